"""What a model needs for probabilities, fitted to decision values, and where these come from.

Classes have sigmoids and a regression the scale of its noise, both from rows that were held out;
novelty detection has marks between values of its own rows. Knows no algorithm.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from randsvm.data.dataset import Dataset, random_subset
from randsvm.data.sampling import Draws
from randsvm.events import Notice, emit
from randsvm.parameters.run import Search
from randsvm.training import platt
from randsvm.training.clock import Clock, TimeLimitError
from randsvm.training.cross_validation import CrossValidation, at_once, decision_values, replicated
from randsvm.training.job import Decision, Job, P, TimedFit


class Fitting(NamedTuple):
    """How probabilities are fitted to f, (n, columns), and y, (n,), of rows that were held out.

    keep: what is kept of f, called with f and y of some rows at a time; fit: what the model has, by
    its names, called with what was kept of all rows and y.
    """

    fit: Callable[[np.ndarray, np.ndarray], dict[str, Any]]
    keep: Callable[[np.ndarray, np.ndarray], np.ndarray]


def every_column(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return f


# Of the time for a fold, what it may learn for; the rest is for the decision values.
FITTING = 0.75
# The rows that are fitted to before anything is learnt, and what part of the time they may take.
FEW_ROWS, FEW_TIME = 2000, 0.2
# The rows whose values are the marks where the time for all rows is not known to be there.
MARKED_ROWS = 500
# Residuals beyond so many standard deviations of the noise are none of it, as in LIBSVM.
OUTLIERS = 5
# LIBSVM's bins of density.
BINS = 10


def fitting(kind: str, multiclass: str | None) -> Fitting:
    """Of classes (svc), one against one or else, or of a regression (svr)."""
    if kind == "svr":
        return Fitting(lambda f, y: {"noise_scale": laplace_scale(y - f[:, 0])}, every_column)
    if multiclass == "ovo":
        return Fitting(lambda f, y: {"sigmoid": platt.pair_sigmoids(f, y)}, platt.own_pairs)
    return Fitting(lambda f, y: {"sigmoid": platt.sigmoids(f, y)}, every_column)


# --- held-out rows -------------------------------------------------------------------------


def cross_validated(
    D: Dataset, params: P, fit: TimedFit[P], fitting: Fitting, job: Job, until: float
) -> dict[str, Any]:
    """What `fitting` finds for what `fit` learns from D, whose y are class indices or targets.

    A sigmoid fitted to rows that were trained on would be far too sure of itself. until: the
    perf_counter() by which it has to be done, with as many folds as the time allows; nothing where
    that is none.
    """
    folds = min(Search.FOLDS, D.n)
    if folds < 2:
        emit(Notice("one row is too few for -b 1: no probabilities"))
        return {}
    with replicated(D, D) as whole:
        waves = math.ceil(folds / at_once(whole, job))
        seconds = FITTING * (until - time.perf_counter()) / waves
        validation: CrossValidation[P] = CrossValidation.of(
            whole, folds, job, lambda D, params: fit(D, params, seconds)
        )
        found = validation.decisions(params, until, fitting.keep)
    if found is None:
        emit(Notice("no time for -b 1: probabilities are from few rows"))
        return {}
    held, f = found
    if not held.all():
        rows = np.count_nonzero(held)
        emit(Notice(f"little time for -b 1: probabilities are from {rows:,} held-out rows"))
    return fitting.fit(f, D.labels()[held])


def of_few(
    D: Dataset, params: P, fit: TimedFit[P], fitting: Fitting, job: Job, until: float
) -> dict[str, Any]:
    """The same from few rows of D, in little time: half of them are learnt, the others held out."""
    if D.n < 2:
        return {}
    S = D.only(D.mask(random_subset(D, FEW_ROWS, Draws(job.run.seed))))
    seconds = FEW_TIME * (until - time.perf_counter())
    with replicated(D, S) as few:
        halves: CrossValidation[P] = CrossValidation.of(
            few, 2, job, lambda D, params: fit(D, params, seconds)
        )
        found = halves.decisions(params, until, fitting.keep, folds=[0])
    return {} if found is None else fitting.fit(found[1], S.labels()[found[0]])


def laplace_scale(z: np.ndarray) -> float:
    """sigma of the density e^(-|z| / sigma) / (2 sigma) of residuals, (n,): the mean of |z|, as of
    LIBSVM without those that are beyond 5 standard deviations, which are sqrt(2) sigma each.

    Lin and Weng, "Simple Probabilistic Predictions for Support Vector Regression", 2004.
    """
    size = np.abs(z)
    return float(size[size <= OUTLIERS * math.sqrt(2) * size.mean()].mean())


# --- rows of training ----------------------------------------------------------------------


def marked(D: Dataset, decision: Decision, clock: Clock, until: float, seed: int) -> dict[str, Any]:
    """The marks of novelty detection: of all rows of D, or of few if there is no time for them.

    decision: what was learnt. until: the perf_counter() by which it has to be done.
    """

    def values(D: Dataset) -> np.ndarray:
        return np.concatenate([f[:, 0] for _, f in decision_values(D, decision)])

    few = np.empty(0)
    if until < math.inf:
        few = values(D.only(D.mask(random_subset(D, MARKED_ROWS, Draws(seed)))))
    try:
        with clock.until(lambda: until):
            f = values(D)
    except TimeLimitError:
        emit(Notice(f"little time for -b 1: probabilities are from {len(few):,} rows"))
        f = few
    marks = density_marks(f)
    if marks is None:
        emit(Notice("too few rows on one side of f = 0 for -b 1: no probabilities, as in LIBSVM"))
        return {}
    return {"density_marks": marks}


def density_marks(f: np.ndarray) -> np.ndarray | None:
    """Decision values between bins of equal probability, (10,) ascending, as LIBSVM chooses them:
    five bins of as many rows each on either side of 0. f : (n,). None: a side has fewer than five
    rows.

    Que and Lin, "One-class SVM Probabilistic Outputs", 2022.
    """
    f = np.sort(f)
    side = BINS // 2
    outside = int(np.searchsorted(f, 0.0))
    inside = len(f) - outside
    if min(outside, inside) < side:
        return None
    bins = np.arange(side)
    below, above = f[bins * outside // side], f[outside - 1 + (bins + 1) * inside // side]
    borders = np.concatenate([below, [0.0], above])
    return np.asarray((borders[1:] + borders[:-1]) / 2)
