"""Grid search: which combinations of parameters are cross-validated, on how many rows.

All of them on all rows; under a time limit, and where a range is searched, few rows show which
are worth more rows. What is fitted, and how, is a function given. Knows no algorithm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, inf, sqrt
from typing import TypeAlias

from randsvm.data.dataset import Dataset
from randsvm.events import Notice, Searched, emit
from randsvm.models.metrics import Accuracy, RegressionErrors
from randsvm.training.candidate_scores import Asked, Candidate, CandidateScores
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


def searched(
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


def metadata(found: Searched | None) -> dict[str, str]:
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
