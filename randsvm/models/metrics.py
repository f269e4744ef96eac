"""Metrics of predictions: accuracy, errors, confusion matrix, F1, ROC AUC.

The metrics of several blocks of rows add up to the metric of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from math import nan
from typing import TypeVar

import numpy as np

from randsvm.events import ClassificationMetrics, ClassMetrics
from randsvm.models.decisions import predicted_classes

AnyMetric = TypeVar("AnyMetric", bound="Metric")


class Metric:
    """Counts over rows, and a score that is computed from them.

    The sum of two metrics has the counts of both sets of rows.

    score_name : name of the score
    sign : 1 if a larger score is better, else -1
    summed_attributes : names of the counts other than `rows` and `labelled`
    """

    score_name: str
    sign: int
    summed_attributes: tuple[str, ...]

    def __init__(self) -> None:
        self.rows = self.labelled = 0

    def add(self, y: np.ndarray, f: np.ndarray, predicted: np.ndarray | None = None) -> None:
        """Count m rows.

        y : (m,) class indices or targets, nan for unlabelled rows; f : decision values; predicted :
        (m,) class indices, or None if they follow from f.
        """
        labelled = ~np.isnan(y)
        self.rows += len(f)
        self.labelled += int(labelled.sum())
        predicted = self._predicted(f) if predicted is None else predicted
        self._compare(y[labelled], f[labelled], predicted[labelled])

    def _predicted(self, f: np.ndarray) -> np.ndarray:
        return predicted_classes(f)

    def _compare(self, y: np.ndarray, f: np.ndarray, predicted: np.ndarray) -> None:
        """Count labelled rows."""
        raise NotImplementedError

    @property
    def score(self) -> float:
        """The score; nan without labelled rows."""
        raise NotImplementedError

    @property
    def details(self) -> dict[str, float]:
        """Other numbers that are reported with the score."""
        return {}

    def __add__(self: AnyMetric, other: AnyMetric) -> AnyMetric:
        both = copy(self)
        for name in ("rows", "labelled", *self.summed_attributes):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both


class Accuracy(Metric):
    """Accuracy in percent. correct : number of labelled rows with a correct prediction."""

    score_name = "accuracy"
    sign = 1
    summed_attributes = ("correct",)
    correct = 0

    def _compare(self, y: np.ndarray, f: np.ndarray, predicted: np.ndarray) -> None:
        self.correct += int((y == predicted).sum())

    @property
    def score(self) -> float:
        return 100 * self.correct / self.labelled if self.labelled else nan


@dataclass(frozen=True)
class Moments:
    """First and second moments of pairs (y, f) over n rows.

    The sum of two moments is that of both sets of rows.

    mean : (2,); products : (2, 2), sums of products of the deviations from the mean
    """

    n: int = 0
    mean: np.ndarray = field(default_factory=lambda: np.zeros(2))
    products: np.ndarray = field(default_factory=lambda: np.zeros((2, 2)))

    @staticmethod
    def of(pairs: np.ndarray) -> Moments:
        """Return the moments of pairs, (m, 2) float64."""
        if not len(pairs):
            return Moments()
        # With this formula the mean of equal pairs is exactly that pair.
        mean = pairs[0] + (pairs - pairs[0]).mean(axis=0)
        deviations = pairs - mean
        return Moments(len(pairs), mean, deviations.T @ deviations)

    def __add__(self, other: Moments) -> Moments:
        """Add moments as in Chan, Golub, LeVeque 1983, without cancellation for a large mean."""
        n = self.n + other.n
        if not n:
            return self
        difference = other.mean - self.mean
        between = np.outer(difference, difference) * (self.n * other.n / n)
        mean = self.mean + difference * (other.n / n)
        return Moments(n, mean, self.products + other.products + between)


class RegressionErrors(Metric):
    """Errors e = f - y of a regression. sums : (2,), of e^2 and |e|; moments : of y and f."""

    score_name = "mean squared error"
    sign = -1
    summed_attributes = ("sums", "moments")

    def __init__(self) -> None:
        super().__init__()
        self.sums = np.zeros(2)
        self.moments = Moments()

    def _predicted(self, f: np.ndarray) -> np.ndarray:
        return f

    def _compare(self, y: np.ndarray, f: np.ndarray, predicted: np.ndarray) -> None:
        error = f - y
        self.sums = np.add(self.sums, [error @ error, np.abs(error).sum()])
        self.moments = self.moments + Moments.of(np.column_stack([y, f]))

    @property
    def details(self) -> dict[str, float]:
        return {"squared_correlation": self.squared_correlation}

    @property
    def score(self) -> float:
        """Mean squared error."""
        return float(self.sums[0]) / self.labelled if self.labelled else nan

    @property
    def squared_correlation(self) -> float:
        """The squared correlation of y and f.

        svm-predict computes it from sums of squares, which is inexact for targets far from 0.
        """
        (yy, yf), (_, ff) = self.moments.products.tolist()
        spread = yy * ff
        return yf**2 / spread if spread else nan

    @property
    def mean_absolute_error(self) -> float:
        return float(self.sums[1]) / self.labelled if self.labelled else nan

    @property
    def r_squared(self) -> float:
        """R^2 = 1 - sum e^2 / sum (y - mean y)^2."""
        spread = float(self.moments.products[0, 0])
        return 1 - float(self.sums[0]) / spread if spread > 0 else nan


class ConfusionMatrix(Accuracy):
    """Accuracy, precision, recall and F1; for two classes also ROC AUC.

    ROC AUC needs all decision values: 9 bytes for each row.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.confusion = np.zeros((classes, classes), np.int64)
        self.values: list[np.ndarray] = []
        self.is_first: list[np.ndarray] = []

    def _compare(self, y: np.ndarray, f: np.ndarray, predicted: np.ndarray) -> None:
        super()._compare(y, f, predicted)
        true, K = y.astype(np.int64), self.classes
        size = max(len(self.confusion), int(true.max(initial=-1)) + 1)
        found = np.bincount(true * K + predicted, minlength=size * K).reshape(size, K)
        self.confusion = found + np.pad(self.confusion, ((0, size - len(self.confusion)), (0, 0)))
        if K == 2:
            is_known = true < K
            # A model with Crammer and Singer's loss has two decision values.
            self.values.append(f[is_known] if f.ndim == 1 else f[is_known, 0] - f[is_known, 1])
            self.is_first.append(true[is_known] == 0)

    @property
    def auc(self) -> float | None:
        if self.classes != 2:
            return None
        if not self.values:
            return nan
        f, first = np.concatenate(self.values), np.concatenate(self.is_first)
        positive, negative = f[first], np.sort(f[~first])
        below = np.searchsorted(negative, positive, "left").sum(dtype=float)
        not_above = np.searchsorted(negative, positive, "right").sum(dtype=float)
        pairs = len(positive) * len(negative)
        return float(below + not_above) / 2 / pairs if pairs else nan

    def metrics(self, labels: Sequence[str]) -> ClassificationMetrics:
        """Return all metrics. labels : of all true classes, the classes of the model first."""
        hits = np.diagonal(self.confusion).astype(float)
        K, rows = self.classes, self.confusion.sum(axis=1)
        with np.errstate(invalid="ignore"):
            precision, recall = hits / self.confusion.sum(axis=0), hits / rows[:K]
            f1 = 2 * hits / (rows[:K] + self.confusion.sum(axis=0))
        scores = np.column_stack([precision, recall, f1])
        classes = [
            ClassMetrics(label, int(count), *numbers)
            for label, count, numbers in zip(labels, rows, scores.tolist(), strict=False)
        ]
        defined = [column[~np.isnan(column)] for column in scores.T]
        means = [float(column.mean()) if len(column) else nan for column in defined]
        mean = ClassMetrics("mean", int(rows.sum()), *means)
        shown = tuple(labels[: len(self.confusion)])
        return ClassificationMetrics(shown, self.confusion.tolist(), classes, mean, self.auc)
