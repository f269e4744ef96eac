"""Fit the parameters of a model's probabilities to decision values.

For classes the parameters are those of sigmoids, for a regression the scale of its noise, both
fitted to held-out rows. For novelty detection they are marks between the decision values of the
training rows. On request the scores of held-out rows are kept for label sets and intervals. This
module does not know algorithms.

Platt, "Probabilistic Outputs for Support Vector Machines", 1999, in the form of Lin, Lin and Weng,
"A Note on Platt's Probabilistic Outputs", Machine Learning 68, 2007.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from randsvm.models.decisions import (
    NonconformityScores,
    class_count,
    class_pairs,
    class_scores,
    own_pair_scores,
    pairs_of_classes,
)
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import KernelParams

# Residuals above this number of standard deviations are outliers, as in LIBSVM.
OUTLIER_DEVIATIONS = 5
# LIBSVM's number of density bins.
DENSITY_BINS = 10


class Calibration(NamedTuple):
    """The functions that fit probabilities to held-out rows.

    fit : takes the kept values of all rows, y, (n,), and weights, (n,) or None; returns fields of
    Model by name
    keep : takes f, (m, columns), and y, (m,), of some rows; returns the values that `fit` needs
    options : the options that ask for it, for messages
    """

    fit: Callable[[np.ndarray, np.ndarray, np.ndarray | None], dict[str, Any]]
    keep: Callable[[np.ndarray, np.ndarray], np.ndarray]
    options: str


def keep_all(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return f


def calibration_of(params: KernelParams | SgdParams) -> Calibration | None:
    """Return what is fitted to held-out rows for a regression (svr) or for classes (svc).

    None: neither are probabilities fitted, nor is a score kept of each row (`params.conformal`). A
    logistic regression has probabilities of its own, and novelty detection has those of its rows.
    """
    fits_probabilities = params.probability and params.prediction_type != "one-class"
    if isinstance(params, SgdParams) and params.loss == "log":
        fits_probabilities = False
    if not fits_probabilities and not params.conformal:
        return None
    pairs = params.multiclass == "ovo" and params.prediction_type == "svc"

    def fit(f: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        row_weights = np.ones(len(y)) if weights is None else weights
        if fits_probabilities and params.prediction_type == "svr":
            fields["noise_scale"] = laplace_scale(y - f[:, 0], row_weights)
        elif fits_probabilities:
            fields["sigmoid"] = (fit_pair_sigmoids if pairs else fit_sigmoids)(f, y, row_weights)
        if params.conformal:
            scores = held_out_scores(f, y, params.prediction_type, pairs)
            fields["conformal"] = NonconformityScores.of(scores, weights)
        return fields

    options = ["-b 1"] * fits_probabilities + ["--conformal"] * params.conformal
    return Calibration(fit, own_pair_values if pairs else keep_all, " ".join(options))


def held_out_scores(f: np.ndarray, y: np.ndarray, prediction_type: str, pairs: bool) -> np.ndarray:
    """Return the score of the true label or target of each row, (n,); see models/decisions.py."""
    if prediction_type == "svr":
        return np.abs(y - f[:, 0])
    if pairs:
        return own_pair_scores(f, y)
    return np.take_along_axis(class_scores(f, pairs=False), y.astype(np.int64)[:, None], 1)[:, 0]


# --- sigmoids of classes --------------------------------------------------------------------


def fit_sigmoids(f: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return A and B of 1 / (1 + exp(A f + B)) for each column of f, (2, K) float64.

    f : (n, K), of held-out rows; column i is about class i. y : (n,) class indices. weights : (n,)
    """
    return np.array([fit_sigmoid(column, y == i, weights) for i, column in enumerate(f.T)]).T


def own_pair_values(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return f of the pairs with each row's own class, (n, K - 1) float64.

    For a row of class i, column j - 1 belongs to the pair with class j > i, and column j to the
    pair with class j < i. With many classes that is a small part of f.

    f : (n, pairs), see `class_pairs`; y : (n,) class indices.
    """
    columns = pairs_of_classes(class_count(f.shape[1]))
    return np.take_along_axis(f, columns[y.astype(np.int64)], axis=1)


def fit_pair_sigmoids(f: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return A and B for each pair of classes, (2, pairs) float64.

    As in LIBSVM, a pair's sigmoid is fitted to the rows of its two classes. f : (n, K - 1), see
    `own_pair_values`; y : (n,) class indices; weights : (n,).
    """
    fitted = []
    for i, j in zip(*class_pairs(f.shape[1] + 1), strict=True):
        of_pair = np.flatnonzero((y == i) | (y == j))
        first = y[of_pair] == i
        pair_values = f[of_pair, np.where(first, j - 1, i)]
        fitted.append(fit_sigmoid(pair_values, first, weights[of_pair]))
    return np.array(fitted).T


# --- one sigmoid ---------------------------------------------------------------------------

MAX_STEPS = 100
RIDGE = 1e-12  # keeps the Hessian from being singular
MIN_GRADIENT = 1e-5
MIN_STEP = 1e-10
# Share of the promised decrease that a step has to make (Armijo).
DECREASE = 1e-4


def fit_sigmoid(f: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return A and B by Newton's method with backtracking. f : (n,); positive : (n,) bool.

    The targets are (N+ + 1) / (N+ + 2) and 1 / (N- + 2) instead of 1 and 0 (Platt): a sample
    never makes a class certain. A row counts as its weight, (n,): N+ and N- are sums of weights,
    and so are the loss and its derivatives.
    """
    count, rest = float(weights[positive].sum()), float(weights[~positive].sum())
    target = np.where(positive, (count + 1) / (count + 2), 1 / (rest + 2))

    def loss(AB: np.ndarray) -> float:
        """Return - sum t log p + (1 - t) log(1 - p)."""
        z = AB[0] * f + AB[1]
        return float((weights * (np.logaddexp(0.0, z) - (1 - target) * z)).sum())

    AB = np.array([0.0, np.log((rest + 1) / (count + 1))])
    value = loss(AB)
    design = np.column_stack([f, np.ones(len(f))])
    for _ in range(MAX_STEPS):
        p = 0.5 - 0.5 * np.tanh((AB[0] * f + AB[1]) / 2)
        curvature = weights * (p * (1 - p))
        gradient = design.T @ (weights * (target - p))
        if np.abs(gradient).max() < MIN_GRADIENT:
            break
        hessian = (design.T * curvature) @ design + RIDGE * np.eye(2)
        direction = -np.linalg.solve(hessian, gradient)
        slope, step = float(gradient @ direction), 1.0
        while step >= MIN_STEP:
            new = loss(AB + step * direction)
            if new < value + DECREASE * step * slope:
                break
            step /= 2
        else:
            break
        AB, value = AB + step * direction, new
    return float(AB[0]), float(AB[1])


# --- noise of a regression -----------------------------------------------------------------


def laplace_scale(z: np.ndarray, weights: np.ndarray) -> float:
    """Return sigma of the density e^(-|z| / sigma) / (2 sigma) of the residuals z, (n,).

    sigma is the mean of |z|, weighted by weights, (n,). As in LIBSVM, residuals beyond 5 standard
    deviations, sqrt(2) sigma each, do not count.

    Lin and Weng, "Simple Probabilistic Predictions for Support Vector Regression", 2004.
    """
    size = np.abs(z)
    near = size <= OUTLIER_DEVIATIONS * math.sqrt(2) * np.average(size, weights=weights)
    return float(np.average(size[near], weights=weights[near]))


# --- density of novelty detection ----------------------------------------------------------


def density_marks(f: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray | None:
    """Return decision values between bins of equal probability, (10,) ascending, as in LIBSVM.

    Either side of 0 has five bins with the same number of rows, or of equal weight. f : (n,);
    weights : (n,), or None if all are 1. None: one side has fewer than five rows.

    Que and Lin, "One-class SVM Probabilistic Outputs", 2022.
    """
    order = np.argsort(f, kind="stable")
    f = f[order]
    side = DENSITY_BINS // 2
    outside = int(np.searchsorted(f, 0.0))
    inside = len(f) - outside
    if min(outside, inside) < side:
        return None
    bins = np.arange(side)
    # Below 0 the value where each bin begins, above 0 where it ends: together with 0 these are the
    # borders of the bins.
    if weights is None:
        below, above = f[bins * outside // side], f[outside - 1 + (bins + 1) * inside // side]
    else:
        mass = np.cumsum(weights[order])
        zero, total = mass[outside - 1], mass[-1]
        below = f[np.minimum(np.searchsorted(mass, bins * zero / side, "right"), outside - 1)]
        above = zero + (bins + 1) * (total - zero) / side
        above = f[np.clip(np.searchsorted(mass, above, "left"), outside, len(f) - 1)]
    borders = np.concatenate([below, [0.0], above])
    return np.asarray((borders[1:] + borders[:-1]) / 2)
