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
from randsvm.events import Notice, Searched, tell
from randsvm.models.metrics import Accuracy, RegressionErrors
from randsvm.training.job import Fit, Job, P
from randsvm.training.trials import Asked, Candidate, Trials

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
    trials = Trials(Asked(D, fit, job, configuration, count, until))
    candidates = _of(search.candidates(params))
    rows = min(search.subset or D.n, D.n)
    if search.auto:
        refined(trials, candidates, params, rows)
    elif until < inf:
        narrowed(trials, candidates, rows)
    else:
        trials.stage(candidates, rows)
    if not trials.found:
        first = "" if len(candidates) == 1 else ": the first combination is taken"
        tell(Notice(f"no time for cross-validation{first}"))
        return None, candidates[0].params
    found = Searched(trials.ranked, time.perf_counter() - began, len(trials.every))
    tell(found)
    return found, replace(params, **found.tried[0].values)  # type: ignore[arg-type]


def narrowed(trials: Trials[P], candidates: Sequence[Candidate[P]], most: int) -> None:
    """Successive halving within a time: all on few rows, the best of them on more, up to `most`.

    Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
    AISTATS 2016. Where there is plenty of time none is dropped.
    """
    stage: Stage[P] | None = candidates, first_rows(trials, LEAST_ROWS, most)
    while stage is not None:
        rows = stage[1]
        best_first = trials.stage(*stage)
        if rows == most or not best_first:
            return
        stage = next_stage(trials, best_first, rows, most)
    tell(Notice(f"no time to cross-validate on more than {rows:,} of {most:,} rows"))


def first_rows(trials: Trials[P], least: int, most: int) -> int:
    """Of the first stage: enough for each part and of each class."""
    asked = trials.asked
    classes = len(asked.D.summary.names)
    return min(max(least, PART_ROWS * asked.folds, CLASS_ROWS * classes), most)


def next_stage(
    trials: Trials[P], best_first: Sequence[Candidate[P]], rows: int, most: int
) -> Stage[P] | None:
    """What there is time for after a stage on so many rows; None: for nothing."""
    left, best = trials.asked.until - time.perf_counter(), kept(trials, best_first)
    # Where the log had the stage, nothing is known of the time that fits take.
    plenty = PLENTY * left if trials.pace else -1.0
    plans = [
        (best_first, most, plenty),
        (best_first, min(GROWTH * rows, most), plenty),
        (best, min(GROWTH * rows, most), left),
        (best, min(2 * rows, most), left),
    ]
    fitting = (
        (some, to) for some, to, seconds in plans if trials.expected(len(some), to) <= seconds
    )
    return next(fitting, None)


def refined(trials: Trials[P], candidates: Sequence[Candidate[P]], params: P, most: int) -> None:
    """A range: all of it on few rows, the best of it on more, then steps around the best."""

    def stage(some: Sequence[Candidate[P]], rows: int) -> bool:
        """Whether there is time for it."""
        left = trials.asked.until - time.perf_counter()
        if trials.found and trials.expected(len(some), rows) <= left:
            trials.stage(some, rows)
            return True
        tell(Notice(f"no time to search finer, on {rows:,} rows"))
        return False

    coarse = first_rows(trials, COARSE_ROWS, most)
    best = trials.stage(candidates, coarse)
    going_on = stage(kept(trials, best), min(GROWTH * coarse, most))
    for power, step in enumerate(FINER, 1):
        if going_on:
            around = trials.ranked[0].values
            near = _of(trials.asked.job.search.finer(params, around, step))
            going_on = stage(near, min(GROWTH**power * coarse, most))


def kept(trials: Trials[P], best_first: Sequence[Candidate[P]]) -> Sequence[Candidate[P]]:
    """Those that are worth more rows, and what is as good as the last of them, up to half."""
    count = max(LEAST_KEPT, ceil(KEPT * len(best_first)))
    scores = [trials.found[one.key][1].score for one in best_first]
    equals = scores[count : len(scores) // 2].count(scores[count - 1]) if count < len(scores) else 0
    return best_first[: count + equals]


def _of(combinations: Sequence[tuple[dict[str, float], P]]) -> list[Candidate[P]]:
    return [Candidate(values, params) for values, params in combinations]


def facts(found: Searched | None) -> dict[str, str]:
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
