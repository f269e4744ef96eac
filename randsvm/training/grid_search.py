"""Grid search: every combination of parameters is cross-validated, and the best is found.

What is fitted, and how, is a function given. Knows no algorithm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Any, Generic

from randsvm.data.dataset import Dataset
from randsvm.events import Notice, Searched, Tried, tell
from randsvm.models.metrics import Accuracy, Metric, RegressionErrors
from randsvm.parameters.run import Search
from randsvm.training.cross_validation import (
    CrossValidation,
    decision_values,
    side_by_side,
    subset_of,
)
from randsvm.training.job import Fit, Job, P


@dataclass(frozen=True)
class Candidate(Generic[P]):
    """values: of the parameters that the grid varies. configuration: the words that make the
    parameters again."""

    values: dict[str, float]
    params: P
    configuration: str


def searched(
    D: Dataset,
    params: P,
    fit: Fit[P],
    job: Job,
    configuration: Callable[[P], list[str]],
    until: float,
) -> Searched:
    """Cross-validation of every combination in the grid, or of params as they are; what to learn
    from D follows from the first that was tried.

    configuration: the words that make parameters again. until: see `compared`.
    """
    search = job.search
    assert search.folds is not None, "search.resolved() comes first"
    some = subset_of(D, search.subset, job.run.seed)
    validation = CrossValidation.of(some, search.folds, job, fit)
    candidates = [
        Candidate(values, own, " ".join(configuration(own)))
        for values, own in search.candidates(params)
    ]
    count = RegressionErrors if params.task == "svr" else Accuracy
    return compared(validation, candidates, count, search, until)


def compared(
    validation: CrossValidation[P],
    candidates: Sequence[Candidate[P]],
    count: Callable[[], Metric],
    search: Search,
    until: float = inf,
) -> Searched:
    """Cross-validate every candidate, except those already in the log (search.tried); told one by
    one, and at the end best first (of equals the one that comes first in the grid).

    until: the perf_counter() from when on it makes do with what is done, if anything is.
    """
    began = time.perf_counter()
    results = _Results(candidates, validation.D.summary.digest)
    results.resume(search)

    def counted(index: int, fold: int) -> tuple[int, int, Metric]:
        held, decision = validation.fitted(candidates[index].params, fold)
        counts = count()
        for y, f in decision_values(held, decision):
            counts.add(y, f[:, 0] if f.shape[1] == 1 else f)
        return index, fold, counts

    tasks = [
        lambda index=index, fold=fold: counted(index, fold)
        for index in results.missing()
        for fold in validation.folds
    ]
    # The folds of several candidates are under way at once: one of them has to be whole.
    done = side_by_side(
        tasks, validation.at_once, until, "cross-validation", enough=lambda: bool(results.tried)
    )
    parts: dict[int, dict[int, Metric]] = {}
    for index, fold, counts in done:
        folds = parts.setdefault(index, {})
        folds[fold] = counts
        if len(folds) == len(validation.folds):
            results.add(index, [folds[fold] for fold in validation.folds])
    if missing := len(results.missing()):
        tell(Notice(f"no time for {missing} of {len(candidates)} combinations"))
    found = Searched(results.best_first(count().sign), time.perf_counter() - began)
    tell(found)
    return found


class _Results(Generic[P]):
    """What candidates were worth, by their index; each is told when it is known."""

    def __init__(self, candidates: Sequence[Candidate[P]], digest: str) -> None:
        self.candidates = candidates
        self.digest = digest
        self.tried: dict[int, Tried] = {}

    def resume(self, search: Search) -> None:
        """Take what the log has."""
        logged = {
            (line["configuration"], line["digest"]): {
                name: _with_nan(line[name]) for name in RESULT
            }
            for line in search.tried
            if _whole(line)
        }
        for index, candidate in enumerate(self.candidates):
            line = logged.get((candidate.configuration, self.digest))
            if line is not None:
                result = {name: _with_nan(line[name]) for name in RESULT}
                self._note(index, resumed=True, **result)

    def add(self, index: int, folds: Sequence[Metric]) -> None:
        """All folds of a candidate."""
        whole = sum(folds[1:], folds[0])
        self._note(
            index,
            scores=[part.score for part in folds],
            score=whole.score,
            score_name=whole.score_name,
            rows=whole.labelled,
            details=whole.details,
        )

    def _note(self, index: int, **result: Any) -> None:
        candidate = self.candidates[index]
        self.tried[index] = Tried(
            values=candidate.values,
            configuration=candidate.configuration,
            digest=self.digest,
            number=len(self.tried) + 1,
            of=len(self.candidates),
            **result,
        )
        tell(self.tried[index])

    def missing(self) -> list[int]:
        return [index for index in range(len(self.candidates)) if index not in self.tried]

    def best_first(self, sign: float) -> list[Tried]:
        """sign: 1 where a high score is good, -1 where a low one is."""

        def order(index: int) -> tuple[bool, float, int]:
            score = self.tried[index].score
            return isnan(score), -sign * score, index

        return [self.tried[index] for index in sorted(self.tried, key=order)]


# What a log's line says of a combination besides which it is.
RESULT = ("scores", "score", "score_name", "rows", "details")


def _whole(line: Mapping[str, Any]) -> bool:
    """Whether a line of a log holds a result: anyone may have written to it."""
    if not {"configuration", "digest", *RESULT} <= line.keys():
        return False
    scores, details = line["scores"], line["details"]
    if not (isinstance(scores, list) and scores and isinstance(details, dict)):
        return False
    numbers = [*scores, line["score"], line["rows"]]
    numbers += [value for value in details.values() if value is not None]
    words = line["configuration"], line["digest"], line["score_name"]
    return all(type(one) in (int, float) for one in numbers) and all(
        isinstance(word, str) for word in words
    )


def _with_nan(value: Any) -> Any:
    """The same with nan where JSON has null."""
    if isinstance(value, dict):
        return {name: _with_nan(one) for name, one in value.items()}
    return nan if value is None else value


def facts(found: Searched | None) -> dict[str, str]:
    """What a model's trailer says of a search: the score of its parameters, and how many were
    searched."""
    if found is None:
        return {}
    best = found.tried[0]
    return {
        "cross_validation": f"{best.score_name} {best.score!r}",
        **({"searched": str(best.of)} if best.of > 1 else {}),
    }
