"""What is counted over predicted rows: accuracy and errors; confusion matrix, F1, ROC AUC.

Counts grow block by block. Knows nothing of models or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import nan
from typing import TypeVar

import numpy as np

from randsvm.events import ClassificationMetrics, ClassMetrics

Own = TypeVar("Own", bound="Counts")


def said(f: np.ndarray) -> np.ndarray:
    """The class of each row, (m,) int64, by its decision values: (m,), class 0 being f > 0, or
    (m, classes), the largest."""
    return f.argmax(axis=1) if f.ndim == 2 else np.where(f > 0, 0, 1)


class Counts:
    """What is counted over all rows, and over the labelled ones."""

    # What the score is, and whether more of it is better; what adds up.
    score_name: str
    sign: int
    sums_of: tuple[str, ...]

    def __init__(self) -> None:
        self.rows = self.labelled = 0

    def add(self, y: np.ndarray, f: np.ndarray, chosen: np.ndarray | None = None) -> None:
        """y : (m,) class numbers or targets, nan where there is none; f : decision values. chosen:
        (m,) the classes that were said, where f does not decide."""
        labelled = ~np.isnan(y)
        self.rows += len(f)
        self.labelled += int(labelled.sum())
        chosen = self._said(f) if chosen is None else chosen
        self.compare(y[labelled], f[labelled], chosen[labelled])

    def _said(self, f: np.ndarray) -> np.ndarray:
        return said(f)

    def compare(self, y: np.ndarray, f: np.ndarray, chosen: np.ndarray) -> None:
        raise NotImplementedError

    @property
    def score(self) -> float:
        raise NotImplementedError

    @property
    def details(self) -> dict[str, float]:
        """What is told beside the score."""
        return {}

    def __add__(self: Own, other: Own) -> Own:
        both = copy(self)
        for name in ("rows", "labelled", *self.sums_of):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both


class Classified(Counts):
    """correct: labelled rows of the class that was said."""

    score_name = "accuracy"
    sign = 1
    sums_of = ("correct",)
    correct = 0

    def compare(self, y: np.ndarray, f: np.ndarray, chosen: np.ndarray) -> None:
        self.correct += int((y == chosen).sum())

    @property
    def score(self) -> float:
        """Accuracy in percent."""
        return 100 * self.correct / self.labelled if self.labelled else nan


class Regressed(Counts):
    """Sums of e^2, y, f, y^2, f^2, y f, |e| with e = f - y."""

    score_name = "mean squared error"
    sign = -1
    sums_of = ("sums",)

    def __init__(self) -> None:
        super().__init__()
        self.sums = np.zeros(7)

    def _said(self, f: np.ndarray) -> np.ndarray:
        return f

    def compare(self, y: np.ndarray, f: np.ndarray, chosen: np.ndarray) -> None:
        error = f - y
        self.sums += [error @ error, y.sum(), f.sum(), y @ y, f @ f, y @ f, np.abs(error).sum()]

    @property
    def details(self) -> dict[str, float]:
        return {"squared_correlation": self.squared_correlation}

    @property
    def score(self) -> float:
        """Mean squared error."""
        return float(self.sums[0]) / self.labelled if self.labelled else nan

    @property
    def squared_correlation(self) -> float:
        """As svm-predict computes it."""
        m, (_, y, f, yy, ff, yf, _) = self.labelled, self.sums.tolist()
        spread = (m * yy - y * y) * (m * ff - f * f)
        return (m * yf - y * f) ** 2 / spread if spread else nan

    @property
    def mean_absolute_error(self) -> float:
        return float(self.sums[6]) / self.labelled if self.labelled else nan

    @property
    def determination(self) -> float:
        """R^2 = 1 - sum e^2 / sum (y - mean y)^2."""
        error, y, _, yy, *_ = self.sums.tolist()
        spread = yy - y * y / self.labelled if self.labelled else 0.0
        return 1 - error / spread if spread > 0 else nan


class Detailed(Classified):
    """Keeps the confusion matrix, and of two classes every decision value (9 bytes a row)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.confusion = np.zeros((classes, classes), np.int64)
        self.values: list[np.ndarray] = []
        self.first: list[np.ndarray] = []

    def compare(self, y: np.ndarray, f: np.ndarray, chosen: np.ndarray) -> None:
        super().compare(y, f, chosen)
        true, K = y.astype(np.int64), self.classes
        size = max(len(self.confusion), int(true.max(initial=-1)) + 1)
        found = np.bincount(true * K + chosen, minlength=size * K).reshape(size, K)
        self.confusion = found + np.pad(self.confusion, ((0, size - len(self.confusion)), (0, 0)))
        if K == 2:
            known = true < K
            # Crammer and Singer's machine has a value for each of the two.
            self.values.append(f[known] if f.ndim == 1 else f[known, 0] - f[known, 1])
            self.first.append(true[known] == 0)

    @property
    def auc(self) -> float | None:
        if self.classes != 2:
            return None
        if not self.values:
            return nan
        f, first = np.concatenate(self.values), np.concatenate(self.first)
        positive, negative = f[first], np.sort(f[~first])
        below = np.searchsorted(negative, positive, "left").sum(dtype=float)
        not_above = np.searchsorted(negative, positive, "right").sum(dtype=float)
        pairs = len(positive) * len(negative)
        return float(below + not_above) / 2 / pairs if pairs else nan

    def metrics(self, labels: Sequence[str]) -> ClassificationMetrics:
        """labels: of all rows of the confusion matrix, the model's first."""
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
        known = [column[~np.isnan(column)] for column in scores.T]
        means = [float(column.mean()) if len(column) else nan for column in known]
        mean = ClassMetrics("mean", int(rows.sum()), *means)
        shown = tuple(labels[: len(self.confusion)])
        return ClassificationMetrics(shown, self.confusion.tolist(), classes, mean, self.auc)
