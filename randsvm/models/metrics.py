"""Metrics of predictions: accuracy, errors, confusion matrix, F1, areas under curves, log loss.

The metrics of several blocks of rows add up to the metric of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import nan
from typing import Any

import numpy as np

from randsvm.events import (
    ClassificationMetrics,
    ClassMetrics,
    Coverage,
    ProbabilityMetrics,
    RegressionMetrics,
)


class ClassCounts:
    """Accuracy, precision, recall and F1; for two classes also the areas under the curves.

    A row counts as its weight. The areas under the ROC and the precision-recall curves need all
    decision values and weights: 17 bytes for each row.

    cells : the number and the weight of the rows of each true and predicted class that occur
        together. With thousands of classes a matrix of all cells would take gigabytes.
    """

    def __init__(self, classes: int, areas: bool = False) -> None:
        """Count nothing so far. areas : whether to keep what the areas under the curves need."""
        self.classes, self.has_areas = classes, areas and classes == 2
        self.cells: dict[tuple[int, int], np.ndarray] = {}
        # Of each block f, whether the first class is the true one, and weights, (m,) each.
        self.blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        # Sums of -log p of the true class and of the squared errors of p, and of weights; None
        # without probabilities.
        self.losses: np.ndarray | None = None

    def add(
        self, y: np.ndarray, f: np.ndarray, predicted: np.ndarray, weights: np.ndarray,
        p: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Count m labelled rows.

        y, predicted : (m,) class indices; f : (m, columns); weights : (m,); p : (m, classes),
        probabilities, or None.
        """
        # Labels may be ones that the model does not have.
        true, K = y.astype(np.int64), self.classes
        cells, cell_of = np.unique(true * K + predicted, return_inverse=True)
        counts = [np.bincount(cell_of, one, len(cells)) for one in (None, weights)]
        for cell, numbers in zip(cells.tolist(), np.column_stack(counts), strict=True):
            self.cells[divmod(cell, K)] = self.cells.get(divmod(cell, K), 0.0) + numbers
        known = true < K
        true, f, weights = true[known], f[known], weights[known]
        if self.has_areas:
            # A model with Crammer and Singer's loss has two decision values.
            difference = f[:, 0] if f.shape[1] == 1 else f[:, 0] - f[:, 1]
            self.blocks.append((difference, true == 0, weights))
        if p is None:
            return
        p = p[known]
        p_true = p[np.arange(len(p)), true]
        # scikit-learn's bound, which keeps the logarithm finite.
        log_loss = -np.log(np.clip(p_true, np.finfo(float).eps, 1))
        squared = np.square(p).sum(axis=1) - np.square(p_true) + np.square(1 - p_true)
        sums = np.array([weights @ log_loss, weights @ squared, weights.sum()])
        self.losses = sums if self.losses is None else self.losses + sums

    @property
    def correct(self) -> int:
        """The number of rows with a correct prediction."""
        return int(self._hits[0])

    @property
    def accuracy(self) -> float:
        """Accuracy in percent; nan without rows."""
        return _ratio(100 * self._hits[1], sum(weight for _, weight in self.cells.values()))

    @property
    def _hits(self) -> np.ndarray:
        """The number and the weight of the rows with a correct prediction, (2,)."""
        hits = (cell for (true, predicted), cell in self.cells.items() if true == predicted)
        return sum(hits, np.zeros(2))

    @property
    def confusion(self) -> np.ndarray:
        """Numbers of rows and sums of their weights, (2, true classes, classes)."""
        true_classes = max([self.classes, *(true + 1 for true, _ in self.cells)])
        confusion = np.zeros((2, true_classes, self.classes))
        for cell, numbers in self.cells.items():
            confusion[(slice(None), *cell)] = numbers
        return confusion

    def _probability_metrics(self) -> ProbabilityMetrics | None:
        """Return the log loss and the Brier score; nan without labelled rows."""
        if self.losses is None:
            return None
        log_loss, squared = (_ratio(loss, self.losses[2]) for loss in self.losses[:2])
        return ProbabilityMetrics(log_loss, squared / 2 if self.classes == 2 else squared)

    def _areas(self) -> tuple[float, float, float]:
        """Return the areas under the ROC curve, and under each class's precision-recall curve."""
        if not self.blocks:
            return nan, nan, nan
        f, first, weights = map(np.concatenate, zip(*self.blocks, strict=True))
        auc = _ratio(
            weights[first] @ correctly_ranked(f, first, weights)[first], weights[first].sum()
        )
        both = average_precision(f, first, weights), average_precision(-f, ~first, weights)
        return auc, *both

    def metrics(self, labels: Sequence[str]) -> ClassificationMetrics:
        """Return further scores. labels : of all true classes, the classes of the model first."""
        (counts, confusion), K = self.confusion, self.classes
        hits, rows = np.diagonal(confusion), counts.sum(axis=1)
        true, predicted = confusion.sum(axis=1)[:K], confusion.sum(axis=0)
        with np.errstate(invalid="ignore"):
            scores = np.column_stack([hits / predicted, hits / true, 2 * hits / (true + predicted)])
        auc, *areas = self._areas() if K == 2 else [None] * (1 + K)
        classes = [
            ClassMetrics._make([label, int(count), *numbers, area])
            for label, count, numbers, area in zip(
                labels, rows, scores.tolist(), areas, strict=False
            )
        ]
        means = [_mean_of_defined(column) for column in scores.T]
        area = _mean_of_defined(np.array(areas, float)) if K == 2 else None
        mean = ClassMetrics._make(["mean", int(rows.sum()), *means, area])
        shown = tuple(labels[: len(counts)])
        confusion = counts.astype(np.int64).tolist()
        likely = self._probability_metrics()
        return ClassificationMetrics(shown, confusion, classes, mean, auc, likely)


class RegressionErrors:
    """Errors e = f - y of a regression, whose predictions are f. A row counts as its weight.

    weight : sum of the weights; sums : (2,), of e^2 and |e|; mean, products : of y and f, (2,) and
    (2, 2), the latter sums of products of the deviations from the mean
    """

    def __init__(self) -> None:
        self.weight, self.sums = 0.0, np.zeros(2)
        self.mean, self.products = np.zeros(2), np.zeros((2, 2))

    def add(
        self, y: np.ndarray, f: np.ndarray, predicted: np.ndarray, weights: np.ndarray,
        p: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Count m labelled rows. y, predicted, weights : (m,), targets, predictions, weights."""
        if total := float(weights.sum()):
            error, pairs = predicted - y, np.column_stack([y, predicted])
            # With this formula the mean of equal pairs is exactly that pair.
            mean = pairs[0] + weights @ (pairs - pairs[0]) / total
            products = ((pairs - mean).T * weights) @ (pairs - mean)
            self._join(total, [weights @ error**2, weights @ np.abs(error)], mean, products)

    def _join(self, total: float, sums: Any, mean: np.ndarray, products: np.ndarray) -> None:
        """Add the sums of rows of weight `total`.

        Chan, Golub, LeVeque 1983, without cancellation for a large mean.
        """
        difference, n = mean - self.mean, (self.weight + total) or 1.0
        between = np.outer(difference, difference) * (self.weight * total / n)
        self.weight, self.sums = self.weight + total, self.sums + sums
        self.mean = self.mean + difference * (total / n)
        self.products = self.products + products + between

    def __add__(self, other: RegressionErrors) -> RegressionErrors:
        """Return the errors of both sets of rows."""
        both = copy(self)
        both._join(other.weight, other.sums, other.mean, other.products)
        return both

    @property
    def squared_error(self) -> float:
        """Mean squared error."""
        return _ratio(self.sums[0], self.weight)

    @property
    def squared_correlation(self) -> float:
        """The squared correlation of y and f.

        svm-predict computes it from sums of squares, which is inexact for targets far from 0.
        """
        (yy, yf), (_, ff) = self.products.tolist()
        return _ratio(yf**2, yy * ff)

    def metrics(self, labels: Sequence[str]) -> RegressionMetrics:
        """Return further scores: the mean of |e|, and R^2 = 1 - sum e^2 / sum (y - mean y)^2."""
        determination = 1 - _ratio(self.sums[0], self.products[0, 0])
        return RegressionMetrics(_ratio(self.sums[1], self.weight), determination)


def _ratio(a: float, b: float) -> float:
    """Return a / b; nan where b is 0."""
    return float(a) / float(b) if b else nan


def _mean_of_defined(scores: np.ndarray) -> float:
    """Return the mean of the scores that are not nan; nan if there is none."""
    defined = scores[~np.isnan(scores)]
    return float(defined.mean()) if len(defined) else nan


def correctly_ranked(f: np.ndarray, first: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the share of the other class that f ranks on the right side of each row, (m,).

    Rows of the first class should have the larger f; equal values count half. The share is by
    weight, and nan if the other class has none. The mean over the rows of either class is the area
    under the ROC curve. f, weights : (m,); first : (m,) bool
    """
    ranked = np.full(len(f), nan)
    for rows, sign in (first, 1), (~first, -1):
        values, others = sign * f[~rows], weights[~rows]
        order = np.argsort(values)
        values = values[order]
        # The weight of the other rows before each place of the sorted ones.
        before = np.concatenate([[0.0], np.cumsum(others[order])])
        if before[-1]:
            own_values = sign * f[rows]
            below = before[np.searchsorted(values, own_values, "left")]
            not_above = before[np.searchsorted(values, own_values, "right")]
            ranked[rows] = (below + not_above) / 2 / before[-1]
    return ranked


def average_precision(f: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> float:
    """Return the area under the precision-recall curve; nan without weight of positive rows.

    It is the sum of precision times the increase of recall over the thresholds on f, from the
    largest: no interpolation, as in scikit-learn. f, positive, weights : (m,).
    """
    if not (weights * positive).any():
        return nan
    order = np.argsort(-f, kind="stable")
    f, positive, weights = f[order], positive[order], weights[order]
    # Rows with equal f are above the same thresholds.
    last = np.append(np.flatnonzero(np.diff(f)), len(f) - 1)
    hits, above = np.cumsum(weights * positive)[last], np.cumsum(weights)[last]
    # Rows of weight 0 may be above all others.
    precision = np.divide(hits, above, out=np.zeros(len(last)), where=above > 0)
    return float(precision @ np.diff(hits, prepend=0.0) / hits[-1])


class CoverageCounts:
    """Counts of label sets or intervals. A row counts as its weight, but not for the mean size.

    asked : probability that was asked for; largest : the largest score of a label in a set, or half
    the width of the intervals
    """

    def __init__(self, asked: float, largest: float) -> None:
        self.asked, self.largest = asked, largest
        # Sum of the weights of the labelled rows, and of those whose set or interval has the
        # truth; number of rows, and sum of the sizes of their sets or widths of intervals.
        self.labelled = self.covered = 0.0
        self.rows, self.sizes = 0, 0.0

    def add(
        self, y: np.ndarray, predicted: np.ndarray, sets: np.ndarray | None, weights: np.ndarray
    ) -> None:
        """Count m label sets, or intervals around predicted targets.

        y : (m,) class indices or targets, nan if unlabelled; sets : (m, classes) bool, or None.
        """
        if sets is None:
            covered, sizes = np.abs(y - predicted) <= self.largest, 2 * self.largest * len(y)
        else:
            known, sizes = y < sets.shape[1], float(sets.sum())
            covered = known & sets[np.arange(len(y)), np.where(known, y, 0).astype(np.int64)]
        self.rows += len(y)
        self.sizes += sizes
        self.labelled += float(weights[~np.isnan(y)].sum())
        self.covered += float(weights[covered].sum())

    def counted(self) -> Coverage:
        """Return the counts as shares."""
        return Coverage(
            self.asked,
            _ratio(self.covered, self.labelled),
            _ratio(self.sizes, self.rows),
        )
