"""Grid search: which combinations of parameters are cross-validated, on how many rows.

All of them on all rows; under a time limit, and where a range is searched, few rows show which
are worth more rows. What is fitted, and how, is a function given. Knows no algorithm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf, isnan, nan, sqrt
from typing import Any, Generic, TypeAlias

from randsvm.data.dataset import Dataset
from randsvm.events import Notice, Searched, Tried, emit
from randsvm.models.metrics import Accuracy, Metric, RegressionErrors
from randsvm.parallel import Cancelled
from randsvm.training.cross_validation import (
    CrossValidation,
    Held,
    replicated,
    side_by_side,
    subset_of,
)
from randsvm.training.job import Fit, Job, P

# The first stage has so many rows at least, for each part, for each class, and in all: under a time
# limit, and where a range is searched.
PART_ROWS, CLASS_ROWS = 10, 20
LEAST_ROWS, COARSE_ROWS = 200, 500
# From stage to stage there are so many times the rows, and this part of the combinations.
GROWTH, KEPT, LEAST_KEPT = 4, 1 / 4, 2
# None is dropped where the next stage with all of them takes this part of the time at the most.
PLENTY = 1 / 4
# Steps around the best of a range, the first on GROWTH times the first rows, each on GROWTH times
# the rows of the one before.
FINER = (2.0, sqrt(2.0))

# What is compared, and on how many rows.
Stage: TypeAlias = "tuple[Sequence[Candidate[P]], int]"


def search(
    D: Dataset,
    params: P,
    fit: Fit[P],
    job: Job,
    configuration: Callable[[P, Job], list[str]],
    until: float,
) -> tuple[Searched | None, P]:
    """Cross-validation of every combination in the grid, or of params as they are, told; and the
    parameters of the best. What to learn from D follows from the first that was tried.

    configuration: the words that make parameters and a job again. until: the perf_counter()
    from when on it makes do with what is done; None: nothing was.
    """
    began, search = time.perf_counter(), job.search
    count = RegressionErrors if params.kind == "svr" else Accuracy
    candidate_scores = CandidateScores(Asked(D, fit, job, configuration, count, until))
    candidates = _of(search.candidates(params))
    rows = min(search.subset or D.n, D.n)
    if search.auto:
        refined(candidate_scores, candidates, params, rows)
    elif until < inf:
        narrowed(candidate_scores, candidates, rows)
    else:
        candidate_scores.stage(candidates, rows)
    if not candidate_scores.found:
        first = "" if len(candidates) == 1 else ": the first combination is taken"
        emit(Notice(f"no time for cross-validation{first}"))
        return None, candidates[0].params
    found = Searched(
        candidate_scores.ranked, time.perf_counter() - began, len(candidate_scores.every)
    )
    emit(found)
    return found, replace(params, **found.tried[0].values)  # type: ignore[arg-type]


def narrowed(
    candidate_scores: CandidateScores[P], candidates: Sequence[Candidate[P]], most: int
) -> None:
    """Successive halving within a time: all on few rows, the best of them on more, up to `most`.

    Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
    AISTATS 2016. Where there is plenty of time none is dropped.
    """
    stage: Stage[P] | None = candidates, first_rows(candidate_scores, LEAST_ROWS, most)
    while stage is not None:
        rows = stage[1]
        best_first = candidate_scores.stage(*stage)
        if rows == most or not best_first:
            return
        stage = next_stage(candidate_scores, best_first, rows, most)
    emit(Notice(f"no time to cross-validate on more than {rows:,} of {most:,} rows"))


def first_rows(candidate_scores: CandidateScores[P], least: int, most: int) -> int:
    """Of the first stage: enough for each part and of each class."""
    asked = candidate_scores.asked
    classes = len(asked.D.summary.names)
    return min(max(least, PART_ROWS * asked.folds, CLASS_ROWS * classes), most)


def next_stage(
    candidate_scores: CandidateScores[P], best_first: Sequence[Candidate[P]], rows: int, most: int
) -> Stage[P] | None:
    """What there is time for after a stage on so many rows; None: for nothing."""
    left, best = (
        candidate_scores.asked.until - time.perf_counter(),
        kept(candidate_scores, best_first),
    )
    # Where the log had the stage, nothing is known of the time that fits take.
    plenty = PLENTY * left if candidate_scores.pace else -1.0
    plans = [
        (best_first, most, plenty),
        (best_first, min(GROWTH * rows, most), plenty),
        (best, min(GROWTH * rows, most), left),
        (best, min(2 * rows, most), left),
    ]
    fitting = (
        (some, to)
        for some, to, seconds in plans
        if candidate_scores.expected(len(some), to) <= seconds
    )
    return next(fitting, None)


def refined(
    candidate_scores: CandidateScores[P], candidates: Sequence[Candidate[P]], params: P, most: int
) -> None:
    """A range: all of it on few rows, the best of it on more, then steps around the best."""

    def stage(some: Sequence[Candidate[P]], rows: int) -> bool:
        """Whether there is time for it."""
        left = candidate_scores.asked.until - time.perf_counter()
        if candidate_scores.found and candidate_scores.expected(len(some), rows) <= left:
            candidate_scores.stage(some, rows)
            return True
        emit(Notice(f"no time to search finer, on {rows:,} rows"))
        return False

    coarse = first_rows(candidate_scores, COARSE_ROWS, most)
    best = candidate_scores.stage(candidates, coarse)
    going_on = stage(kept(candidate_scores, best), min(GROWTH * coarse, most))
    for power, step in enumerate(FINER, 1):
        if going_on:
            around = candidate_scores.ranked[0].values
            near = _of(candidate_scores.asked.job.search.finer(params, around, step))
            going_on = stage(near, min(GROWTH**power * coarse, most))


def kept(
    candidate_scores: CandidateScores[P], best_first: Sequence[Candidate[P]]
) -> Sequence[Candidate[P]]:
    """Those that are worth more rows, and what is as good as the last of them, up to half."""
    count = max(LEAST_KEPT, ceil(KEPT * len(best_first)))
    scores = [candidate_scores.found[one.key][1].score for one in best_first]
    equals = scores[count : len(scores) // 2].count(scores[count - 1]) if count < len(scores) else 0
    return best_first[: count + equals]


def _of(combinations: Sequence[tuple[dict[str, float], P]]) -> list[Candidate[P]]:
    return [Candidate(values, params) for values, params in combinations]


def search_metadata(found: Searched | None) -> dict[str, str]:
    """What a model's trailer says of a search: the score of its parameters, on how many rows, and
    how many were tried."""
    if found is None:
        return {}
    best = found.tried[0]
    return {
        "cross_validation": f"{best.score_name} {best.score!r}",
        "cross_validation_rows": str(best.rows),
        **({"searched": str(len(found.tried))} if found.of > 1 else {}),
    }


# A fit under a time limit is broken off when it has taken so many times what others took and so
# many times its fair share of the time, or this part of all that is left.
GENEROUS, LARGEST_PART = 4.0, 1 / 8
# What fits cost grows as this power of the rows, or less.
COST_POWER = 1.5

Key = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Candidate(Generic[P]):
    """values: of the parameters that the grid varies."""

    values: dict[str, float]
    params: P

    @property
    def key(self) -> Key:
        return tuple(self.values.items())


@dataclass(frozen=True)
class Asked(Generic[P]):
    """What is cross-validated: parameters on rows of D, by `fit`.

    configuration: the words that make parameters and a job again. count: makes what scores.
    until: the perf_counter() from when on a search makes do with what is done.
    """

    D: Dataset
    fit: Fit[P]
    job: Job
    configuration: Callable[[P, Job], list[str]]
    count: Callable[[], Metric]
    until: float = inf

    @property
    def folds(self) -> int:
        assert self.job.search.folds is not None, "search.resolved() comes first"
        return self.job.search.folds


class CandidateScores(Generic[P]):
    """What combinations were worth, each on the most rows that it was tried on."""

    def __init__(self, asked: Asked[P]) -> None:
        self.asked = asked
        self.logged = {
            (line["configuration"], line["digest"]): line
            for line in asked.job.search.earlier()
            if _whole(line)
        }
        # Every combination that there was, in order, and the rows and result of those tried.
        self.every: dict[Key, Candidate[P]] = {}
        self.found: dict[Key, tuple[int, Tried]] = {}
        # The seconds for a candidate on a row, in a stage on `paced` rows.
        self.pace, self.paced = 0.0, 1

    def stage(self, candidates: Sequence[Candidate[P]], rows: int) -> list[Candidate[P]]:
        """Cross-validate on so many rows, drawn at random; those done in time, best first.

        A stage in which half of them or more are not done decides nothing, unless it is the first.
        """
        self.every |= {one.key: one for one in candidates}
        known = {one.key for one in candidates if self.found.get(one.key, (0,))[0] == rows}
        missing = [one for one in candidates if one.key not in known]
        began = time.perf_counter()
        done = {one.key: (rows, tried) for one, tried in self._tried(missing, rows)}
        if len(done) < len(missing):
            where = "" if rows == self.asked.D.n else f" on {rows:,} rows"
            of = f"{len(missing) - len(done)} of {len(candidates)} combinations"
            emit(Notice(f"no time for {of}{where}"))
        if done and self.asked.until < inf:
            self.pace = (time.perf_counter() - began) / len(done)
            self.paced = rows
        if self.found and 2 * (len(known) + len(done)) <= len(candidates):
            return []
        self.found |= done
        own = {one.key for one in candidates}
        return [
            self.every[key] for key in self._best_first if self.found[key][0] == rows and key in own
        ]

    def expected(self, count: int, rows: int) -> float:
        """The seconds that a stage of so many candidates takes."""
        return self.pace * count * (rows / self.paced) ** COST_POWER

    @property
    def ranked(self) -> list[Tried]:
        """The result of each combination, best first; what was dropped on fewer rows is behind."""
        return [self.found[key][1] for key in self._best_first]

    @property
    def _best_first(self) -> list[Key]:
        """Of equals the one that comes first in the grid."""
        sign, order = self.asked.count().sign, {key: at for at, key in enumerate(self.every)}

        def rank(key: Key) -> tuple[int, bool, float, int]:
            rows, tried = self.found[key]
            return -rows, isnan(tried.score), -sign * tried.score, order[key]

        return sorted(self.found, key=rank)

    def _tried(
        self, candidates: Sequence[Candidate[P]], rows: int
    ) -> Iterator[tuple[Candidate[P], Tried]]:
        """The results as they come, each told; first those that the log has."""
        for number, (one, result, resumed) in enumerate(self._results(candidates, rows), 1):
            tried = Tried(
                values=one.values,
                configuration=self._configuration(one, rows),
                digest=self.asked.D.summary.digest,
                number=number,
                of=len(candidates),
                resumed=resumed,
                **result,
            )
            emit(tried)
            yield one, tried

    def _results(
        self, candidates: Sequence[Candidate[P]], rows: int
    ) -> Iterator[tuple[Candidate[P], dict[str, Any], bool]]:
        """The fields of RESULT, and whether the log has them."""
        missing = []
        for one in candidates:
            line = self.logged.get((self._configuration(one, rows), self.asked.D.summary.digest))
            if line is None:
                missing.append(one)
            else:
                yield one, {name: _with_nan(line[name]) for name in RESULT}, True
        if missing:
            for index, folds in self._computed([one.params for one in missing], rows):
                yield missing[index], _result(folds), False

    def _computed(self, candidates: Sequence[P], rows: int) -> Iterator[tuple[int, list[Metric]]]:
        """Which candidate it is, and what each fold counted, as soon as all are done."""
        asked = self.asked
        with replicated(asked.D, subset_of(asked.D, rows, asked.job.run.seed)) as some:
            validation = CrossValidation.of(some, asked.folds, asked.job, asked.fit)
            yield from self._counted(validation, candidates, rows)

    def _counted(
        self, validation: CrossValidation[P], candidates: Sequence[P], rows: int
    ) -> Iterator[tuple[int, list[Metric]]]:
        asked = self.asked
        count = partial(counted, asked.count)
        broken_off: set[int] = set()

        def cell(index: int, fold: int) -> tuple[int, int, Metric]:
            if index in broken_off:
                raise Cancelled
            try:
                return index, fold, validation.done(count, candidates[index], fold)
            except Cancelled:
                broken_off.add(index)
                raise

        tasks = [
            partial(cell, index, fold)
            for index in range(len(candidates))
            for fold in validation.folds
        ]

        def patience(left: int, taken: Sequence[float]) -> float:
            if asked.until == inf:
                return inf
            time_left = asked.until - time.perf_counter()
            most, fair = LARGEST_PART * time_left, time_left * validation.at_once / left
            usual = self.expected(1, rows) * validation.at_once / asked.folds
            if taken:
                usual = max(usual, sorted(taken)[len(taken) // 2])
            return max(GENEROUS * usual, min(GENEROUS * fair, most)) if usual else most

        parts: dict[int, dict[int, Metric]] = {}
        for index, fold, counts in side_by_side(
            tasks, validation.at_once, asked.until, "cross-validation", patience
        ):
            folds = parts.setdefault(index, {})
            folds[fold] = counts
            if len(folds) == len(validation.folds):
                yield index, [folds[fold] for fold in validation.folds]

    def _configuration(self, one: Candidate[P], rows: int) -> str:
        """The command line of a combination alone on so many rows."""
        job = self.asked.job
        if rows < self.asked.D.n:
            job = replace(job, search=replace(job.search, subset=rows))
        return " ".join(self.asked.configuration(one.params, job))


def counted(count: Callable[[], Metric], fold: Held[P]) -> Metric:
    """What `count` makes of a fold."""
    counts = count()
    for y, f in fold.values():
        counts.add(y, f[:, 0] if f.shape[1] == 1 else f)
    return counts


# What a log's line says of a combination besides which it is.
RESULT = ("scores", "score", "score_name", "rows", "details")


def _result(folds: Sequence[Metric]) -> dict[str, Any]:
    """Of all folds of a candidate."""
    whole = sum(folds[1:], folds[0])
    return {
        "scores": [part.score for part in folds],
        "score": whole.score,
        "score_name": whole.score_name,
        "rows": whole.labelled,
        "details": whole.details,
    }


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
