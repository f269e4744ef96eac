"""What decision values say of a row: its class, and the probability of each class.

Several classes have a decision value for each class, one against the rest, or one for each pair of
classes, one against one; pairs stand in the order (0, 1), (0, 2), .. (K - 2, K - 1).
"""

from __future__ import annotations

from math import sqrt
from typing import TypeVar

import numpy as np

# No class is ever certain or impossible: LIBSVM's bound.
LEAST_PROBABILITY = 1e-7
# Of Wu, Lin and Weng's iteration, as in LIBSVM: what p may be off by, times the classes; steps.
COUPLING_TOLERANCE = 0.005
MOST_COUPLINGS = 100


def predicted_classes(f: np.ndarray) -> np.ndarray:
    """The class index of each row, (m,) int64.

    f : (m,) of two classes, class 0 where f > 0 and else class 1; or (m, classes), the largest.
    """
    return f.argmax(axis=1) if f.ndim == 2 else np.where(f > 0, 0, 1)


def class_pairs(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second class of each pair, both (classes (classes - 1) / 2,) int64.

    This table defines the order of pairs in models, decision values and probabilities.
    """
    first, second = np.triu_indices(classes, 1)
    return first, second


AnyInt = TypeVar("AnyInt", int, np.ndarray)


def pair_number(first: AnyInt, second: AnyInt, classes: int) -> AnyInt:
    """Return the position of the pair (first, second), first < second, in `class_pairs`."""
    return first * classes - first * (first + 1) // 2 + second - first - 1


def classes_of_pairs(pairs: int) -> int:
    """Return the number of classes that have this number of pairs."""
    return round((1 + sqrt(1 + 8 * pairs)) / 2)


def votes(first_wins: np.ndarray, second_wins: np.ndarray, classes: int) -> np.ndarray:
    """How many pairs each class wins, (m, classes) float32. Both arguments: (m, pairs) bool."""
    i, j = class_pairs(classes)
    each = np.eye(classes, dtype=np.float32)
    return first_wins.astype(np.float32) @ each[i] + second_wins.astype(np.float32) @ each[j]


def voted_classes(f: np.ndarray, classes: int) -> np.ndarray:
    """The class index of each row, (m,) int64, as LIBSVM counts: a pair with f > 0 is won by its
    first class and else by its second; of the classes with most votes the first.

    f : (m, pairs).
    """
    wins = f > 0
    return votes(wins, ~wins, classes).argmax(axis=1)


def probabilities(f: np.ndarray, sigmoid: np.ndarray) -> np.ndarray:
    """Of each class, (m, classes): Platt's 1 / (1 + exp(A f + B)) of each column of f.

    f : (m,) or (m, classes); sigmoid : A and B, (2, columns of f). Of several classes, one against
    the rest, the sigmoids are normalised (LIBLINEAR's way).
    """
    p = _sigmoids(f.reshape(len(f), -1), sigmoid)
    if p.shape[1] == 1:
        return np.hstack([p, 1 - p])
    return p / p.sum(axis=1, keepdims=True)


def _sigmoids(f: np.ndarray, sigmoid: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(A f + B)) within LIBSVM's bounds, (m, columns)."""
    A, B = sigmoid
    # A form that does not overflow.
    p = 0.5 - 0.5 * np.tanh(0.5 * (A * f + B))
    return np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)


def coupled_probabilities(f: np.ndarray, sigmoid: np.ndarray, classes: int) -> np.ndarray:
    """Of each class, (m, classes), out of the sigmoids of all pairs. f : (m, pairs); sigmoid :
    (2, pairs).

    Wu, Lin, Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling",
    JMLR 5, 2004, Algorithm 2: p minimises 1/2 sum_i sum_{j != i} (r_ji p_i - r_ij p_j)^2 with
    sum p = 1. Steps and tolerance are LIBSVM's, so that digits agree, too.
    """
    i, j = class_pairs(classes)
    r = np.zeros((len(f), classes, classes))
    r[:, i, j] = _sigmoids(f, sigmoid)
    r[:, j, i] = 1 - r[:, i, j]
    Q = -r * r.transpose(0, 2, 1)
    diagonal = np.arange(classes)
    Q[:, diagonal, diagonal] = np.square(r).sum(axis=1)
    p = np.full((len(f), classes), 1 / classes)
    left = np.arange(len(f))
    for _ in range(max(MOST_COUPLINGS, classes)):
        Qp = np.einsum("mij,mj->mi", Q[left], p[left])
        pQp = (p[left] * Qp).sum(axis=1)
        off = np.abs(Qp - pQp[:, None]).max(axis=1) >= COUPLING_TOLERANCE / classes
        left = left[off]
        if not len(left):
            break
        p[left] = _coupling_step(Q[left], p[left], Qp[off], pQp[off])
    return p


def _coupling_step(Q: np.ndarray, p: np.ndarray, Qp: np.ndarray, pQp: np.ndarray) -> np.ndarray:
    """p after each of its entries was set to its best beside the others, in turn."""
    for t in range(p.shape[1]):
        change = (pQp - Qp[:, t]) / Q[:, t, t]
        p[:, t] += change
        sum_p = 1 + change
        pQp = (pQp + change * (change * Q[:, t, t] + 2 * Qp[:, t])) / sum_p**2
        Qp = (Qp + change[:, None] * Q[:, t]) / sum_p[:, None]
        p /= sum_p[:, None]
    return p


def novelty_probabilities(f: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Of a row being like the training rows and of it being a novelty, (m, 2).

    f : (m,); marks : (10,) ascending decision values between bins of equal probability: Que and
    Lin, "One-class SVM Probabilistic Outputs", 2022, as in LIBSVM.
    """
    bin_of = np.searchsorted(marks, f, side="right")
    p = bin_of / len(marks)
    p[f < marks[0]] = 0.001
    p[f > marks[-1]] = 0.999
    # On the last mark itself LIBSVM finds no bin.
    p[f == marks[-1]] = 0.0
    return np.column_stack([p, 1 - p])
