"""Compute classes and probabilities from decision values.

With several classes a row has a decision value for each class (one against the rest), or for each
pair of classes (one against one) in the order (0, 1), (0, 2), .. (K - 2, K - 1).
"""

from __future__ import annotations

from math import sqrt
from typing import TypeVar

import numpy as np

# The smallest probability of a class, as in LIBSVM; the largest is 1 minus it.
MIN_PROBABILITY = 1e-7
# LIBSVM's constants for the iteration of Wu, Lin and Weng. The tolerance is divided by the number
# of classes; the limit of steps is raised to that number if it is larger.
COUPLING_TOLERANCE = 0.005
MAX_COUPLING_STEPS = 100


def predicted_classes(f: np.ndarray) -> np.ndarray:
    """Return the class index of each row, (m,) int64.

    f : (m,) for two classes, where f > 0 is class 0; or (m, classes), where the largest f wins.
    """
    return f.argmax(axis=1) if f.ndim == 2 else np.where(f > 0, 0, 1)


def class_pairs(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second class of each pair, both (classes (classes - 1) / 2,) int64.

    This table defines the order of pairs in models, decision values and probabilities.
    """
    first, second = np.triu_indices(classes, 1)
    return first, second


AnyInt = TypeVar("AnyInt", int, np.ndarray)


def pair_index(first: AnyInt, second: AnyInt, classes: int) -> AnyInt:
    """Return the position of the pair (first, second), first < second, in `class_pairs`."""
    return first * classes - first * (first + 1) // 2 + second - first - 1


def class_count(pairs: int) -> int:
    """Return the number of classes that have this number of pairs."""
    return round((1 + sqrt(1 + 8 * pairs)) / 2)


def votes(first_wins: np.ndarray, second_wins: np.ndarray, classes: int) -> np.ndarray:
    """Return the number of pairs that each class wins, (m, classes) float32.

    first_wins, second_wins : (m, pairs) bool.
    """
    i, j = class_pairs(classes)
    one_hot = np.eye(classes, dtype=np.float32)
    return first_wins.astype(np.float32) @ one_hot[i] + second_wins.astype(np.float32) @ one_hot[j]


def voted_classes(f: np.ndarray, classes: int) -> np.ndarray:
    """Return the index of the class with the most votes for each row, (m,) int64.

    As in LIBSVM, f > 0 is a vote for the first class of the pair, and the first of several classes
    with equal votes wins. f : (m, pairs).
    """
    wins = f > 0
    return votes(wins, ~wins, classes).argmax(axis=1)


def sigmoids(f: np.ndarray, coefficients: np.ndarray | None) -> np.ndarray:
    """Return Platt's 1 / (1 + exp(A f + B)) of each column, (m, columns).

    f : (m, columns); coefficients : A and B, (2, columns).
    """
    assert coefficients is not None, "has_probabilities comes first"
    A, B = coefficients
    # This form does not overflow.
    return clipped(0.5 - 0.5 * np.tanh(0.5 * (A * f + B)))


def class_probabilities(p: np.ndarray) -> np.ndarray:
    """Return the probability of each class, (m, classes).

    p : (m, 1), of the first of two classes, or (m, classes), of each class against the rest; the
    latter are divided by their sum, as in LIBLINEAR.
    """
    if p.shape[1] == 1:
        return np.hstack([p, 1 - p])
    return p / p.sum(axis=1, keepdims=True)


def clipped(p: np.ndarray) -> np.ndarray:
    """Return probabilities within LIBSVM's bounds."""
    return np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)


def coupled_probabilities(pairwise: np.ndarray, classes: int) -> np.ndarray:
    """Return the probability of each class from the probabilities of all pairs, (m, classes).

    pairwise : (m, pairs), of the first class of each pair.

    Wu, Lin, Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling",
    JMLR 5, 2004, Algorithm 2: p minimises 1/2 sum_i sum_{j != i} (r_ji p_i - r_ij p_j)^2 with
    sum p = 1. Steps and tolerance are LIBSVM's, so that all digits agree.
    """
    i, j = class_pairs(classes)
    r = np.zeros((len(pairwise), classes, classes))
    r[:, i, j] = pairwise
    r[:, j, i] = 1 - r[:, i, j]
    Q = -r * r.transpose(0, 2, 1)
    diagonal = np.arange(classes)
    Q[:, diagonal, diagonal] = np.square(r).sum(axis=1)
    p = np.full((len(pairwise), classes), 1 / classes)
    unconverged = np.arange(len(pairwise))
    for _ in range(max(MAX_COUPLING_STEPS, classes)):
        Qp = np.einsum("mij,mj->mi", Q[unconverged], p[unconverged])
        pQp = (p[unconverged] * Qp).sum(axis=1)
        is_far = np.abs(Qp - pQp[:, None]).max(axis=1) >= COUPLING_TOLERANCE / classes
        unconverged = unconverged[is_far]
        if not len(unconverged):
            break
        p[unconverged] = _coupling_step(Q[unconverged], p[unconverged], Qp[is_far], pQp[is_far])
    return p


def _coupling_step(Q: np.ndarray, p: np.ndarray, Qp: np.ndarray, pQp: np.ndarray) -> np.ndarray:
    """Return p after minimising over each of its entries in turn."""
    for t in range(p.shape[1]):
        change = (pQp - Qp[:, t]) / Q[:, t, t]
        p[:, t] += change
        sum_p = 1 + change
        pQp = (pQp + change * (change * Q[:, t, t] + 2 * Qp[:, t])) / sum_p**2
        Qp = (Qp + change[:, None] * Q[:, t]) / sum_p[:, None]
        p /= sum_p[:, None]
    return p


def novelty_probabilities(f: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Return the probabilities that a row is like the training rows and is a novelty, (m, 2).

    f : (m,); marks : (10,) ascending decision values, the bounds of bins of equal probability.

    Que and Lin, "One-class SVM Probabilistic Outputs", 2022, as in LIBSVM.
    """
    bin_index = np.searchsorted(marks, f, side="right")
    p = bin_index / len(marks)
    p[f < marks[0]] = 0.001
    p[f > marks[-1]] = 0.999
    # LIBSVM returns the probability 0 if f equals the last mark.
    p[f == marks[-1]] = 0.0
    return np.column_stack([p, 1 - p])
