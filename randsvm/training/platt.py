"""Platt's sigmoid: probabilities out of decision values that cross-validation gave.

Platt, "Probabilistic Outputs for Support Vector Machines", 1999, in the form of Lin, Lin and Weng,
"A Note on Platt's Probabilistic Outputs", Machine Learning 68, 2007. Knows no algorithm.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import numpy as np

from randsvm.data.dataset import Dataset, random_subset
from randsvm.data.sampling import Draws
from randsvm.events import Notice, tell
from randsvm.parameters.run import Search
from randsvm.training.cross_validation import CrossValidation
from randsvm.training.job import Job, P, TimedFit

MOST_STEPS = 100
RIDGE = 1e-12  # keeps the Hessian from being singular
LEAST_GRADIENT = 1e-5
LEAST_STEP = 1e-10
# Sigmoids out of f, (n, columns), and y, (n,), of rows that were held out.
Fitting = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Share of the promised decrease that a step has to make (Armijo).
DECREASE = 1e-4
# Of the time for a fold, what it may learn for; the rest is for the decision values.
FITTING = 0.75
# The rows that a sigmoid is fitted to before anything is learnt, and what part of the time they may
# take.
FEW_ROWS, FEW_TIME = 2000, 0.2


def cross_validated(
    D: Dataset, params: P, fit: TimedFit[P], sigmoids: Fitting, job: Job, until: float
) -> np.ndarray | None:
    """The sigmoids of what `fit` learns from D, whose y are class indices, by `sigmoids` or
    `pair_sigmoids`.

    A sigmoid fitted to rows that were trained on would be far too sure of itself. until: the
    perf_counter() by which it has to be done, with as many folds as the time allows; None: with
    none.
    """
    folds = min(Search.FOLDS, D.n)
    waves = math.ceil(folds / job.resources.at_once(D.n))
    seconds = FITTING * (until - time.perf_counter()) / waves
    validation: CrossValidation[P] = CrossValidation.of(
        D, folds, job, lambda D, params: fit(D, params, seconds)
    )
    found = validation.decisions(params, until)
    if found is None:
        tell(Notice("no time for -b 1: probabilities are from few rows"))
        return None
    held, f = found
    if not held.all():
        rows = np.count_nonzero(held)
        tell(Notice(f"little time for -b 1: probabilities are from {rows:,} held-out rows"))
    return sigmoids(f, D.labels()[held])


def of_few(
    D: Dataset, params: P, fit: TimedFit[P], sigmoids: Fitting, job: Job, until: float
) -> np.ndarray | None:
    """The same from few rows of D, in little time: half of them are learnt, the others held out."""
    S = D.only(D.mask(random_subset(D, FEW_ROWS, Draws(job.run.seed))))
    seconds = FEW_TIME * (until - time.perf_counter())
    halves: CrossValidation[P] = CrossValidation.of(
        S, 2, job, lambda D, params: fit(D, params, seconds)
    )
    found = halves.decisions(params, until, folds=[0])
    return None if found is None else sigmoids(found[1], S.labels()[found[0]])


def sigmoids(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A and B of 1 / (1 + exp(A f + B)) for each column of f, (2, K) float64.

    f : (n, K), of rows that were held out; y : (n,) their class indices. A column stands for the
    class of its index.
    """
    return np.array([fitted(column, y == index) for index, column in enumerate(f.T)]).T


def pair_sigmoids(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same for columns that stand for pairs of classes, (0, 1), (0, 2), .. (K - 2, K - 1):
    each is fitted to the rows of its two classes, as in LIBSVM. (2, pairs) float64."""
    classes, found = _classes(f.shape[1]), []
    for (i, j), column in zip(itertools.combinations(range(classes), 2), f.T, strict=True):
        of_pair = (y == i) | (y == j)
        found.append(fitted(column[of_pair], y[of_pair] == i))
    return np.array(found).T


def _classes(pairs: int) -> int:
    """How many classes have so many pairs."""
    return round((1 + math.sqrt(1 + 8 * pairs)) / 2)


def fitted(f: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """A and B by Newton's method with backtracking. f : (n,), positive : (n,) bool.

    The targets are not 1 and 0 but (N+ + 1) / (N+ + 2) and 1 / (N- + 2): values out of a sample
    are no certainty (Platt).
    """
    count = int(positive.sum())
    rest = len(f) - count
    target = np.where(positive, (count + 1) / (count + 2), 1 / (rest + 2))

    def loss(AB: np.ndarray) -> float:
        """- sum t log p + (1 - t) log(1 - p)."""
        z = AB[0] * f + AB[1]
        return float((np.logaddexp(0.0, z) - (1 - target) * z).sum())

    AB = np.array([0.0, np.log((rest + 1) / (count + 1))])
    value = loss(AB)
    design = np.column_stack([f, np.ones(len(f))])
    for _ in range(MOST_STEPS):
        p = 0.5 - 0.5 * np.tanh((AB[0] * f + AB[1]) / 2)
        gradient = design.T @ (target - p)
        if np.abs(gradient).max() < LEAST_GRADIENT:
            break
        hessian = (design.T * (p * (1 - p))) @ design + RIDGE * np.eye(2)
        direction = -np.linalg.solve(hessian, gradient)
        slope, step = float(gradient @ direction), 1.0
        while step >= LEAST_STEP:
            new = loss(AB + step * direction)
            if new < value + DECREASE * step * slope:
                break
            step /= 2
        else:
            break
        AB, value = AB + step * direction, new
    return float(AB[0]), float(AB[1])
