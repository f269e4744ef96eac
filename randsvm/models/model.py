"""The base class of models: features, decision values, classes, probabilities.

A model has no reference to its training data or to the run that trained it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from randsvm.arrays import CsrMatrix, Matrix
from randsvm.data.columns import Columns
from randsvm.data.scaling import Scaling
from randsvm.models import decisions
from randsvm.models.conformal import NonconformityScores, class_scores
from randsvm.models.trailer import MAX_FEATURES, SeenFeatures, Trailer, trailer_items

# The labels of novelty detection: 1 for rows like the training rows, -1 for novelties.
ONE_CLASS_LABELS = ("1", "-1")
ONE_CLASS_VALUES = (1, -1)
# Rows that a thread predicts at once; a parsed block of a file has several times as many.
ROWS_AT_ONCE = 1024


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

    Parameters
    ----------
    features : array of shape (d,), int32
        Feature indices of the columns of rows, ascending, as written in files.
    labels : tuple of str
        Label of each class as the training data first spelled it; empty for a regression.
    values : tuple of int or str
        Value of each label.
    label_texts : tuple of str, optional
        Texts that the labels stand for, such as "A, b" for A__b; None: the labels themselves.
    b : array of shape (columns of f,), float64
        Offset of each decision value.
    zero_based : bool
        Whether feature indices begin at 0.
    seen : SeenFeatures, optional
        Features of the training data; None for a model of LIBSVM or LIBLINEAR, which uses all
        features of a row.
    scaling : Scaling, optional
        Scaling of rows over the seen features; it is applied first.
    float64 : bool
        Whether feature values are float64, as in the training; if not, they are rounded to float32.
    sigmoid : array of shape (2, columns of f), float64, optional
        A and B of the probability 1 / (1 + exp(A f + B)); None: not fitted.
    conformal : NonconformityScores, optional
        Scores of held-out rows, for label sets and intervals; None: not kept.
    noise_scale : float, optional
        Scale sigma of the noise z = y - f of a regression, which has the density
        e^(-|z| / sigma) / (2 sigma); None: not fitted.
    columns : Columns, optional
        Columns of the tables that the model was trained with; None: of svmlight files or arrays.
    metadata : mapping of str to str
        Other lines of the trailer, which describe the training.
    """

    features: np.ndarray
    labels: tuple[str, ...]
    values: tuple[int | str, ...]
    b: np.ndarray
    zero_based: bool = False
    seen: SeenFeatures | None = None
    scaling: Scaling | None = None
    float64: bool = False
    sigmoid: np.ndarray | None = None
    conformal: NonconformityScores | None = None
    noise_scale: float | None = None
    columns: Columns | None = None
    label_texts: tuple[str, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for pickling, without cached values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def decision(self, rows: ModelRows, labels_only: bool = False) -> np.ndarray:
        """Return the decision values of rows.

        Parameters
        ----------
        rows : ModelRows
            Rows from `rows`.
        labels_only : bool, default=False
            Whether only `predicted` uses the result, which may then be less precise.

        Returns
        -------
        array of shape (m,) or (m, columns), float64
            Values f of each row; several classes have a column for each class or pair.
        """
        f = self._decision(rows, labels_only)
        return f[:, 0] if f.shape[1] == 1 else f

    def decision_matrix(self, X: Matrix) -> np.ndarray:
        """Return the decision values of rows over the features of the model.

        Parameters
        ----------
        X : CSR matrix or array of shape (m, d)
            Rows; column j is the feature `features[j]`.

        Returns
        -------
        array of shape (m, columns), float64
            Values f of each row.
        """
        return self._decision(ModelRows(X, np.zeros(X.shape[0]), np.empty(0, np.int32)), False)

    def _decision(self, rows: ModelRows, labels_only: bool) -> np.ndarray:
        """Return f, (m, columns) float64."""
        raise NotImplementedError

    @property
    def rows_at_once(self) -> int:
        """The number of rows for which one call of `decision` is fastest."""
        return ROWS_AT_ONCE

    @property
    def index_base(self) -> int:
        """The smallest index that a feature can have, 0 or 1."""
        return 0 if self.zero_based else 1

    @property
    def width(self) -> int:
        """The number of columns of rows as an array: an entry for each index up to the largest."""
        largest = int(self.features[-1]) if len(self.features) else 0
        if self.seen is not None and len(self.seen.last):
            largest = max(largest, int(self.seen.last[-1]))
        return max(1, largest + 1 - self.index_base)

    def save(self, path: str) -> None:
        """Write the model in the format of LIBSVM or LIBLINEAR.

        A model that their formats cannot express is written in a layout that their programs refuse.

        Parameters
        ----------
        path : str
            Name of the file; it is replaced as a whole or not at all.

        Raises
        ------
        OutputError, TransferError
            If the file cannot be created or written.
        """
        raise NotImplementedError

    def properties(self) -> dict[str, Any]:
        """Return the properties of this class of models.

        Returns
        -------
        dict
            Values by name: format, task, and properties of the class.
        """
        raise NotImplementedError

    @property
    def is_one_class(self) -> bool:
        """Return whether the task is novelty detection, which ignores the labels of rows."""
        return False

    @property
    def has_row_numbers(self) -> bool:
        """Return whether rows are kernel values and begin with 0:number (a precomputed kernel)."""
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
        """Return the predictions that follow from decision values.

        Parameters
        ----------
        f : array of shape (m,) or (m, columns), float64
            Result of `decision`.

        Returns
        -------
        array of shape (m,)
            Class index of each row, int64; f itself for a regression.
        """
        return f if self.is_regression else decisions.predicted_classes(f)

    @property
    def has_probabilities(self) -> bool:
        """Return whether `probabilities` can be called."""
        return self.sigmoid_in_use is not None

    @property
    def has_class_probabilities(self) -> bool:
        """Return whether `probabilities` can be called, and the task is not a regression."""
        return self.has_probabilities and not self.is_regression

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        f : array of shape (m,) or (m, columns), float64
            Result of `decision`.

        Returns
        -------
        array of shape (m, classes), float64
            Probabilities, in the order of `labels`.
        """
        columns = decisions.sigmoids(f.reshape(len(f), -1), self.sigmoid_in_use)
        return decisions.class_probabilities(columns)

    @property
    def sigmoid_in_use(self) -> np.ndarray | None:
        """A and B that were fitted, or those that the loss determines, (2, columns of f)."""
        return self.sigmoid

    def class_scores(self, f: np.ndarray) -> np.ndarray:
        """Return how badly each class fits each row; see `conformal.class_scores`.

        Parameters
        ----------
        f : array of shape (m,) or (m, columns), float64
            Result of `decision`.

        Returns
        -------
        array of shape (m, classes), float64
            Scores, in the order of `labels`.
        """
        return class_scores(f.reshape(len(f), -1), pairs=False)

    def rows(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> ModelRows:
        """Return rows after scaling, over the features of the model.

        Parameters
        ----------
        indptr : array of shape (m + 1,), int64
            First value of each row, as in a CSR matrix.
        indices : array of shape (values,), int32
            Feature index of each value, as in a file.
        values : array of shape (values,), float32 or float64
            Values of the features.

        Returns
        -------
        ModelRows
            Rows for `decision`.
        """
        values = values.astype(np.float64 if self.float64 else np.float32, copy=False)
        unseen = np.empty(0, np.int32)
        if self.seen is not None:
            unseen = indices[~self.seen.contains(indices)]
        if self.scaling is not None:
            indptr, indices, values = self.scaled(indptr, indices, values)
        m, d = len(indptr) - 1, len(self.features)
        column, used = _find_columns(self.features, indices)
        # A feature that no support vector has still counts in |x|^2, as in LIBSVM.
        other = ~used
        row = np.repeat(np.arange(m), np.diff(indptr))
        extra = np.bincount(row[other], np.square(values[other], dtype=np.float64), m)
        starts = np.concatenate([[0], np.cumsum(used)])[indptr]
        X = CsrMatrix(values[used], column[used], starts, (m, d))
        return ModelRows(X, extra, unseen)

    def scaled(
        self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows after scaling, without unseen features.

        Parameters
        ----------
        indptr : array of shape (m + 1,), int64
            First value of each row, as in a CSR matrix.
        indices : array of shape (values,), int32
            Feature index of each value, as in a file.
        values : array of shape (values,), float32 or float64
            Values of the features.

        Returns
        -------
        tuple of arrays
            The same three arrays of the scaled rows.
        """
        assert self.scaling is not None, "the model has a scaling"
        features = self._scaled_features
        column, used = _find_columns(features, indices)
        starts = np.concatenate([[0], np.cumsum(used)])[indptr]
        shape = (len(indptr) - 1, len(features))
        X = self.scaling.apply(CsrMatrix(values[used], column[used], starts, shape))
        return X.indptr, features[X.indices], X.data

    @cached_property
    def _scaled_features(self) -> np.ndarray:
        """The feature index of each column of `scaling`, (d,) int32."""
        assert self.seen is not None
        return self.seen.indices(MAX_FEATURES)

    @property
    def original_labels(self) -> tuple[str, ...]:
        """The labels of the training data, also those that no svmlight file can hold."""
        return self.labels if self.label_texts is None else self.label_texts

    @property
    def _c_labels(self) -> tuple[int, ...] | None:
        """The labels as C ints, as in LIBSVM and LIBLINEAR; None if they do not fit."""
        fit = all(isinstance(v, int) and -(2**31) <= v < 2**31 for v in self.values)
        return tuple(int(v) for v in self.values) if fit else None

    @property
    def _labels_from_data(self) -> bool:
        return bool(self.labels)

    @property
    def _trailer(self) -> dict[str, str]:
        """The lines of the trailer."""
        labels = self.labels if self._labels_from_data else ()
        lines = trailer_items(
            labels,
            self.zero_based,
            self.seen,
            self.scaling,
            self.float64,
            self.columns,
            self.label_texts,
        )
        if self.conformal is not None:
            lines |= self.conformal.lines()
        return {**self.metadata, **lines}


def _find_columns(features: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the column of each index among ascending features, and whether it exists, (m,)."""
    column = np.searchsorted(features, indices)
    inside = np.flatnonzero(column < len(features))
    found = np.zeros(len(indices), bool)
    found[inside] = features[column[inside]] == indices[inside]
    return column, found


def common_fields(
    trailer: Trailer, task: str, header_labels: tuple[int, ...] | None, classes: int, columns: int
) -> dict[str, Any]:
    """Return the fields of Model from the trailer and the header.

    task : svc, one-class or svr; classes : number of classes of svc; columns : of f. The
    field `metadata` is `trailer.unparsed` itself, so that later calls of `trailer.take` remove
    lines from it.
    """
    labels, values = trailer.labels(header_labels, classes if task == "svc" else 0)
    seen = trailer.seen_features()
    return {
        "labels": ONE_CLASS_LABELS if task == "one-class" else labels,
        "values": ONE_CLASS_VALUES if task == "one-class" else values,
        "zero_based": trailer.zero_based(),
        "float64": trailer.float64(),
        "seen": seen,
        "scaling": trailer.scaling(seen),
        "conformal": NonconformityScores.parse(trailer),
        "columns": trailer.columns(),
        "label_texts": trailer.label_texts(len(labels)),
        "metadata": trailer.unparsed,
    }
