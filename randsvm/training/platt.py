"""Platt's sigmoid: probabilities of classes out of decision values of rows that were held out.

Platt, "Probabilistic Outputs for Support Vector Machines", 1999, in the form of Lin, Lin and Weng,
"A Note on Platt's Probabilistic Outputs", Machine Learning 68, 2007. Plain formulas.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

MOST_STEPS = 100
RIDGE = 1e-12  # keeps the Hessian from being singular
LEAST_GRADIENT = 1e-5
LEAST_STEP = 1e-10
# Share of the promised decrease that a step has to make (Armijo).
DECREASE = 1e-4


def sigmoids(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A and B of 1 / (1 + exp(A f + B)) for each column of f, (2, K) float64.

    f : (n, K), of rows that were held out; y : (n,) their class indices. A column stands for the
    class of its index.
    """
    return np.array([fitted(column, y == index) for index, column in enumerate(f.T)]).T


def own_pairs(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return f of the pairs that each row's own class is in, (n, K - 1) float64: column j - 1 of a
    row of class i is that of the pair with the class j > i, column j with j < i.

    f : (n, pairs), columns of the pairs (0, 1), (0, 2), .. (K - 2, K - 1). Of many classes that is
    a small part of f.
    """
    classes = _classes(f.shape[1])
    number = np.zeros((classes, classes), np.int64)
    first, second = np.triu_indices(classes, 1)
    number[first, second] = number[second, first] = np.arange(len(first))
    columns = number[~np.eye(classes, dtype=bool)].reshape(classes, classes - 1)
    return np.take_along_axis(f, columns[y.astype(np.int64)], axis=1)


def pair_sigmoids(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return A and B for each pair of classes, fitted to the rows of its two classes, as in LIBSVM;
    (2, pairs) float64.

    f : (n, K - 1), see own_pairs; y : (n,) class indices.
    """
    found = []
    for i, j in itertools.combinations(range(f.shape[1] + 1), 2):
        of_pair = np.flatnonzero((y == i) | (y == j))
        first = y[of_pair] == i
        found.append(fitted(f[of_pair, np.where(first, j - 1, i)], first))
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
