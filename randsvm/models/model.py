"""The base class of models: features, decision values, classes, probabilities.

A model has no reference to its training data or to the run that trained it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from randsvm.arrays import FEATURES, CsrMatrix, Matrix, find_columns, rows_over
from randsvm.data.columns import Columns
from randsvm.data.labels import label_values
from randsvm.data.scaling import Scaling
from randsvm.models import decisions
from randsvm.models.decisions import NonconformityScores
from randsvm.models.metadata import Metadata

# The labels of novelty detection: 1 for rows like the training rows, -1 for novelties.
ONE_CLASS_LABELS = ("1", "-1")
# Rows that a thread predicts at once; a parsed block of a file has several times as many.
ROWS_AT_ONCE = 1024
# Decision values that a thread computes at once: fewer rows if there are many pairs of classes.
VALUES_AT_ONCE = 2**20


class ModelRows(NamedTuple):
    """Rows over the features of a model.

    X : (m, d) CSR or array
    extra : (m,) float64, squared norm of the features that have no column but count in |x|^2
    unseen : (values,) int32, feature index of each value whose feature is not in the training data
    """

    X: Matrix
    extra: np.ndarray
    unseen: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Model:
    """The base of models, which predict rows and write their file.

    features : (d,) int32, feature index of each column of rows, ascending, as written in files
    labels : label of each class as the training data first spelled it; empty for a regression
    b : (columns of f,) float64, offset of each decision value
    zero_based : whether feature indices begin at 0
    seen : (s,) int32, features of the training data, ascending; None for a model of LIBSVM or
    LIBLINEAR, which uses all features of a row
    scaling : of rows over the seen features, applied first
    float64 : whether feature values are float64, as in the training; else they are rounded to
    float32
    sigmoid : (2, columns of f) float64, A and B of the probability 1 / (1 + exp(A f + B)); None:
    the model has none
    conformal : scores of held-out rows, for label sets and intervals; None: not kept
    noise_scale : sigma of the noise z = y - f of a regression, which has the density
    e^(-|z| / sigma) / (2 sigma); None: not fitted
    density_marks : (10,), bounds of the bins of `decisions.novelty_probabilities`; None: not fitted
    columns : of the tables that the model was trained with; None: of svmlight files or arrays
    metadata : of the training
    """

    features: np.ndarray
    labels: tuple[str, ...]
    b: np.ndarray
    zero_based: bool = False
    seen: np.ndarray | None = None
    scaling: Scaling | None = None
    float64: bool = False
    sigmoid: np.ndarray | None = None
    conformal: NonconformityScores | None = None
    noise_scale: float | None = None
    density_marks: np.ndarray | None = None
    columns: Columns | None = None
    metadata: Metadata = field(default_factory=Metadata)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for pickling, without cached values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def decision(self, rows: ModelRows, labels_only: bool = False) -> np.ndarray:
        """Return the decision values of rows, (m, columns) float64.

        Several classes have a column for each class or pair. labels_only : only `predicted` uses
        the result, which may then be less precise
        """
        raise NotImplementedError

    def decision_matrix(self, X: Matrix) -> np.ndarray:
        """Return f, (m, columns) float64. X : (m, d), column j is the feature `features[j]`."""
        return self.decision(ModelRows(X, np.zeros(X.shape[0]), np.empty(0, np.int32)))

    @property
    def rows_at_once(self) -> int:
        """The number of rows for which one call of `decision` is fastest."""
        return max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(1, len(self.b))))

    @property
    def index_base(self) -> int:
        """The smallest index that a feature can have, 0 or 1."""
        return 0 if self.zero_based else 1

    @property
    def width(self) -> int:
        """The number of columns of rows as an array: an entry for each index up to the largest."""
        known = [self.features] if self.seen is None else [self.features, self.seen]
        largest = max(int(features[-1]) if len(features) else 0 for features in known)
        return max(1, largest + 1 - self.index_base)

    def properties(self) -> dict[str, Any]:
        """Return the properties of this class of models: format, task, and others by name."""
        raise NotImplementedError

    @property
    def is_one_class(self) -> bool:
        """Return whether the task is novelty detection, which ignores the labels of rows."""
        return self.properties()["task"] == "one-class"

    @property
    def has_row_numbers(self) -> bool:
        """Return whether rows are kernel values and begin with 0:number (a precomputed kernel)."""
        return False

    @property
    def has_pairs(self) -> bool:
        """Return whether a decision value belongs to a pair of classes instead of a class."""
        return False

    @property
    def counts_unseen(self) -> bool:
        """Return whether features that are not in the training data change f."""
        return False

    @property
    def is_regression(self) -> bool:
        """Return whether decision values are the predictions."""
        return not self.labels

    def predicted(self, f: np.ndarray) -> np.ndarray:
        """Return the class index, int64, or the predicted target of each row, (m,).

        f : (m, columns), result of `decision`
        """
        if self.has_pairs:
            return decisions.voted_classes(f, len(self.labels))
        return f[:, 0] if self.is_regression else decisions.predicted_classes(f)

    @property
    def has_probabilities(self) -> bool:
        """Return whether `probabilities` can be called."""
        fitted = self.sigmoid, self.noise_scale, self.density_marks
        return any(one is not None for one in fitted)

    @property
    def has_class_probabilities(self) -> bool:
        """Return whether `probabilities` can be called, and the task is not a regression."""
        return self.has_probabilities and not self.is_regression

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """Return the probability of each class in the order of `labels`, (m, classes) float64.

        f : (m, columns), result of `decision`
        """
        if self.density_marks is not None:
            return decisions.novelty_probabilities(f[:, 0], self.density_marks)
        p = decisions.sigmoids(f, self.sigmoid)
        if self.has_pairs:
            return decisions.coupled_probabilities(p, len(self.labels))
        return decisions.class_probabilities(p)

    def rows(self, X: CsrMatrix) -> ModelRows:
        """Return rows after scaling, over the features of the model. X : rows as in a file."""
        X = X.astype(np.float64 if self.float64 else np.float32, copy=False)
        unseen = np.empty(0, np.int32)
        if self.scaling is not None:
            X, unseen = self.scaled(X)
        rows, used = rows_over(X, self.features)
        extra: np.ndarray = np.zeros(X.shape[0])
        if not used.all():
            # A feature that no support vector has still counts in |x|^2, as in LIBSVM.
            other = ~used
            row = np.repeat(np.arange(len(extra)), np.diff(X.indptr))[other]
            extra = np.bincount(row, np.square(X.data[other], dtype=np.float64), len(extra))
            if self.seen is not None and self.scaling is None:
                unseen = X.indices[other]
                unseen = unseen[~find_columns(self.seen, unseen)[1]]
        return ModelRows(rows, extra, unseen)

    def scaled(self, X: CsrMatrix) -> tuple[CsrMatrix, np.ndarray]:
        """Return scaled rows, without unseen features, and these; see `rows`."""
        assert self.scaling is not None and self.seen is not None
        rows, known = rows_over(X, self.seen)
        rows = self.scaling.apply(rows)
        return rows.with_columns(self.seen[rows.indices], FEATURES), X.indices[~known]

    @property
    def int_labels(self) -> tuple[int, ...] | None:
        """The labels as ints of C, as LIBSVM and LIBLINEAR have them; None if they do not fit."""
        values = [
            v for v in label_values(self.labels) if isinstance(v, int) and -(2**31) <= v < 2**31
        ]
        return tuple(values) if len(values) == len(self.labels) else None
