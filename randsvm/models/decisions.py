"""Compute classes, probabilities, and label sets and intervals from decision values.

With several classes a row has a decision value for each class (one against the rest), or for each
pair of classes (one against one) in the order (0, 1), (0, 2), .. (K - 2, K - 1).

Label sets and intervals have a stated coverage. A score says how badly a label or a target fits a
row. In split conformal prediction q is the ceil((n + 1) coverage)-th smallest of the scores of n
held-out rows, and the set of a new row has all labels with a score of at most q. If the new row is
exchangeable with the held-out rows, its true label is in the set with at least the probability
`coverage`.

Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005; Lei, G'Sell, Rinaldo,
Tibshirani, Wasserman, "Distribution-Free Predictive Inference for Regression", JASA 113, 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, sqrt

import numpy as np

from randsvm.records import record

# The smallest probability of a class, as in LIBSVM; the largest is 1 minus it.
MIN_PROBABILITY = 1e-7
# LIBSVM's constants for the iteration of Wu, Lin and Weng. The tolerance is divided by the number
# of classes; the limit of steps is raised to that number if it is larger.
COUPLING_TOLERANCE = 0.005
MAX_COUPLING_STEPS = 100
# Of more held-out rows this number of quantiles is stored, each rounded up.
MAX_SCORES = 2000
# Rounding may raise the needed rank by up to this part of a row.
ROUNDING = 1e-9


def predicted_classes(f: np.ndarray) -> np.ndarray:
    """Return the class index of each row, (m,) int64.

    f : (m, 1) for two classes, where f > 0 is class 0; or (m, classes), where the largest f wins.
    """
    return f.argmax(axis=1) if f.shape[1] > 1 else np.where(f[:, 0] > 0, 0, 1)


def class_pairs(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second class of each pair, both (classes (classes - 1) / 2,) int64.

    This table defines the order of pairs in models, decision values and probabilities.
    """
    first, second = np.triu_indices(classes, 1)
    return first, second


def pair_positions(classes: int) -> np.ndarray:
    """Return the position in `class_pairs` of the pair of two classes, (classes, classes) int64.

    The diagonal has no meaning.
    """
    first, second = class_pairs(classes)
    position = np.zeros((classes, classes), np.int64)
    position[first, second] = position[second, first] = np.arange(len(first))
    return position


def pairs_of_classes(classes: int) -> np.ndarray:
    """Return the position in `class_pairs` of the pairs of each class with the others.

    Of shape (classes, classes - 1); the other classes are in their order.
    """
    others = ~np.eye(classes, dtype=bool)
    return pair_positions(classes)[others].reshape(classes, classes - 1)


def class_count(pairs: int) -> int:
    """Return the number of classes that have this number of pairs."""
    return round((1 + sqrt(1 + 8 * pairs)) / 2)


def pairs_by_first(classes: int) -> Iterator[tuple[int, slice]]:
    """Yield each class and its pairs with later classes, as a slice of `class_pairs`."""
    stop = 0
    for first in range(classes):
        start, stop = stop, stop + classes - 1 - first
        yield first, slice(start, stop)


def votes(first_wins: np.ndarray, second_wins: np.ndarray, classes: int) -> np.ndarray:
    """Return the number of pairs that each class wins, (m, classes) float32.

    first_wins, second_wins : (m, pairs) bool.
    """
    found = np.zeros((len(first_wins), classes), np.float32)
    for first, pairs in pairs_by_first(classes):
        found[:, first] += np.count_nonzero(first_wins[:, pairs], axis=1)
        found[:, first + 1 :] += second_wins[:, pairs]
    return found


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


# --- label sets and intervals --------------------------------------------------------------


@record
class NonconformityScores:
    """Scores of held-out rows.

    scores : (m,) float64, ascending; ranks : (m,) float64, the sum of the weights of the rows with
    at most this score. The last rank is that of all rows.
    """

    scores: np.ndarray
    ranks: np.ndarray

    @staticmethod
    def of(scores: np.ndarray, weights: np.ndarray | None = None) -> NonconformityScores:
        """Return the scores of rows in any order. weights : (n,), or None if all are 1."""
        order = np.argsort(scores, kind="stable")
        ranks = np.cumsum(np.ones(len(scores)) if weights is None else weights[order])
        scores = scores[order]
        if len(scores) > MAX_SCORES:
            wanted = ranks[-1] * np.arange(1, MAX_SCORES) / MAX_SCORES
            quantiles = np.unique(np.append(np.searchsorted(ranks, wanted), len(ranks) - 1))
            scores, ranks = scores[quantiles], ranks[quantiles]
        return NonconformityScores(scores, ranks)

    def largest(self, coverage: float) -> float:
        """Return the largest score of a set with this coverage; inf: too few rows were held out."""
        at = int(np.searchsorted(self.ranks, coverage * (self.ranks[-1] + 1) - ROUNDING))
        return float(self.scores[at]) if at < len(self.scores) else inf


def class_scores(f: np.ndarray, pairs: bool) -> np.ndarray:
    """Return the score of each class for each row, (m, classes).

    The score of a class says by how much another class wins. With two classes it is -f and f. With
    a column for each class it is the largest f of another class less f of the class. With pairs it
    is the largest f, over the pairs of the class, in favour of the other class.

    f : (m, 1), (m, classes), or (m, pairs) where `pairs` is true.
    """
    if pairs:
        classes = class_count(f.shape[1])
        scores = np.full((len(f), classes), -inf)
        for first, columns in pairs_by_first(classes):
            own, others = scores[:, first], scores[:, first + 1 :]
            np.maximum(own, (-f[:, columns]).max(axis=1, initial=-inf), out=own)
            np.maximum(others, f[:, columns], out=others)
        return scores
    if f.shape[1] == 1:
        return np.hstack([-f, f])
    second, largest = np.partition(f, -2, axis=1)[:, -2:].T
    best = f == largest[:, None]
    return np.where(best, second[:, None], largest[:, None]) - f


def own_pair_scores(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the score of each row's own class, (n,).

    f : (n, classes - 1), see `own_pair_values`; y : (n,) class indices.
    """
    # f > 0 is a vote for the row's own class in the columns of later classes.
    is_later = np.arange(f.shape[1]) >= y[:, None]
    return np.where(is_later, -f, f).max(axis=1)
