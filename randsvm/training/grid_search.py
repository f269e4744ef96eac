"""Cross-validation and grid search over views of D: no rows are copied.

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
from randsvm.training.cross_validation import Crossing, Fit, P, decided, side_by_side, subset_of
from randsvm.training.run import Job


@dataclass(frozen=True)
class Candidate(Generic[P]):
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
    crossing = Crossing.of(some, search.folds, job, fit)
    candidates = [
        Candidate(values, own, " ".join(configuration(own)))
        for values, own in search.candidates(params)
    ]
    count = RegressionErrors if params.task == "svr" else Accuracy  # type: ignore[attr-defined]
    return compared(crossing, candidates, count, search, until)


def compared(
    crossing: Crossing[P],
    candidates: Sequence[Candidate[P]],
    count: Callable[[], Metric],
    known: Search,
    until: float = inf,
) -> Searched:
    """Cross-validate every candidate, those that `known` has excepted; told one by one, and at
    the end best first (of equals the one that comes first in the grid).

    until: the perf_counter() from when on it makes do with what is done, if anything is.
    """
    began = time.perf_counter()
    digest = crossing.D.summary.digest
    logged = {
        (line["configuration"], line["digest"]): {name: _with_nan(line[name]) for name in RESULT}
        for line in known.tried
        if _whole(line)
    }
    tried: dict[int, Tried] = {}
    parts: dict[int, dict[int, Metric]] = {}

    def note(place: int, **found: Any) -> None:
        candidate, done = candidates[place], len(tried) + 1
        tried[place] = Tried(
            candidate.values,
            candidate.configuration,
            digest,
            number=done,
            of=len(candidates),
            **found,
        )
        tell(tried[place])

    def scored(place: int, fold: int) -> tuple[int, int, Metric]:
        held, decision = crossing.fitted(candidates[place].params, fold)
        counts = count()
        for y, f in decided(held, decision):
            counts.add(y, f[:, 0] if f.shape[1] == 1 else f)
        return place, fold, counts

    open_: list[int] = []
    for place, candidate in enumerate(candidates):
        result = logged.get((candidate.configuration, digest))
        if result is None:
            open_.append(place)
        else:
            note(place, resumed=True, **result)
    tasks = [
        lambda place=place, fold=fold: scored(place, fold)
        for place in open_
        for fold in crossing.folds
    ]
    # The folds of several candidates are under way at once: one of them has to be whole.
    done = side_by_side(
        tasks, crossing.at_once, until, "cross-validation", enough=lambda: bool(tried)
    )
    for place, fold, counts in done:
        mine = parts.setdefault(place, {})
        mine[fold] = counts
        if len(mine) == len(crossing.folds):
            folds = [mine[fold] for fold in crossing.folds]
            whole = sum(folds[1:], folds[0])
            note(
                place,
                scores=[part.score for part in folds],
                score=whole.score,
                score_name=whole.score_name,
                rows=whole.labelled,
                details=whole.details,
            )
    if len(tried) < len(candidates):
        tell(
            Notice(f"no time for {len(candidates) - len(tried)} of {len(candidates)} combinations")
        )
    sign = count().sign
    order = sorted(
        tried, key=lambda place: (isnan(tried[place].score), -sign * tried[place].score, place)
    )
    found = Searched([tried[place] for place in order], time.perf_counter() - began)
    tell(found)
    return found


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
    """What JSON has null for."""
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
