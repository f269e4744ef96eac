"""Label sets and intervals with a stated coverage, from the scores of held-out rows.

A score says how badly a label or a target fits a row. In split conformal prediction q is the
ceil((n + 1) coverage)-th smallest of the scores of n held-out rows, and the set of a new row has
all labels with a score of at most q. If the new row is exchangeable with the held-out rows, its
true label is in the set with at least the probability `coverage`.

Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005; Lei, G'Sell, Rinaldo,
Tibshirani, Wasserman, "Distribution-Free Predictive Inference for Regression", JASA 113, 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from randsvm.models.decisions import class_count, class_pairs

# Of more held-out rows this number of quantiles is stored, each rounded up.
MAX_SCORES = 2000
# Rounding may raise the needed rank by up to this part of a row.
ROUNDING = 1e-9


@dataclass(frozen=True)
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
            at = np.unique(np.append(np.searchsorted(ranks, wanted), len(ranks) - 1))
            scores, ranks = scores[at], ranks[at]
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
        for column, i, j in zip(f.T, *class_pairs(classes), strict=True):
            np.maximum(scores[:, i], -column, out=scores[:, i])
            np.maximum(scores[:, j], column, out=scores[:, j])
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


def label_sets(scores: np.ndarray, predicted: np.ndarray, largest: float) -> np.ndarray:
    """Return which labels are in the set of each row, (m, classes) bool.

    The predicted label always is, so that no set is empty. scores : see `class_scores`;
    predicted : (m,) class indices; largest : see `NonconformityScores.largest`.
    """
    found = scores <= largest
    found[np.arange(len(found)), predicted] = True
    return found
