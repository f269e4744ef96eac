"""The base class of models: features, decision values, classes, probabilities.

A model has no reference to its training data or to the run that trained it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from randsvm.arrays import CsrMatrix, Matrix
from randsvm.data.columns import Columns
from randsvm.data.labels import LabelTable, label_values
from randsvm.data.scaling import Scaling
from randsvm.data.svmlight import NUMBER
from randsvm.models import decisions
from randsvm.models.decisions import NonconformityScores, class_scores

# The labels of novelty detection: 1 for rows like the training rows, -1 for novelties.
ONE_CLASS_LABELS = ("1", "-1")
# Rows that a thread predicts at once; a parsed block of a file has several times as many.
ROWS_AT_ONCE = 1024


# The largest length of an array of features.
MAX_FEATURES = 1 << 22


@dataclass(frozen=True)
class SeenFeatures:
    """Feature indices as runs first..last, both (runs,) int64 and ascending: '1-7,9,12-13'."""

    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(features: np.ndarray) -> SeenFeatures:
        """Return the runs of features, (d,) int32 and ascending."""
        breaks = np.flatnonzero(np.diff(features) != 1)
        starts = np.concatenate([[0], breaks + 1])[: len(features)]
        ends = np.concatenate([breaks, [len(features) - 1]])[: len(features)]
        return SeenFeatures(features[starts], features[ends])

    def contains(self, indices: np.ndarray) -> np.ndarray:
        """Return whether each index was in the training data, (m,) bool. indices : (m,)."""
        if len(self.first) == 0:
            return np.zeros(len(indices), bool)
        run = np.searchsorted(self.first, indices, side="right") - 1
        return (run >= 0) & (indices <= self.last[run])

    def indices(self, limit: int) -> np.ndarray:
        """Return the first `limit` + 1 indices, (m,) int32 and ascending.

        m > limit means that the features may be incomplete.
        """
        sizes = np.cumsum(self.last - self.first + 1)
        runs = int(np.searchsorted(sizes, limit, side="right")) + 1
        pairs = zip(self.first[:runs].tolist(), self.last[:runs].tolist(), strict=True)
        parts = [np.arange(a, min(b, a + limit) + 1) for a, b in pairs]
        return np.concatenate([np.empty(0, np.int64), *parts])[: limit + 1].astype(np.int32)

    @property
    def count(self) -> int:
        return int((self.last - self.first + 1).sum())

    def __str__(self) -> str:
        pairs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in pairs)

    @staticmethod
    def parse(text: str) -> SeenFeatures:
        """Return the features of a text that str() made."""
        runs = [run.partition("-") for run in text.split(",") if run]
        first = np.array([int(a) for a, _, _ in runs], np.int64)
        return SeenFeatures(first, np.array([int(b or a) for a, _, b in runs], np.int64))


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
    seen : features of the training data; None for a model of LIBSVM or LIBLINEAR, which uses all
    features of a row
    scaling : of rows over the seen features, applied first
    float64 : whether feature values are float64, as in the training; else they are rounded to
    float32
    sigmoid : (2, columns of f) float64, A and B of the probability 1 / (1 + exp(A f + B)); None:
    not fitted
    conformal : scores of held-out rows, for label sets and intervals; None: not kept
    noise_scale : sigma of the noise z = y - f of a regression, which has the density
    e^(-|z| / sigma) / (2 sigma); None: not fitted
    columns : of the tables that the model was trained with; None: of svmlight files or arrays
    metadata : other lines of the trailer, which describe the training
    """

    features: np.ndarray
    labels: tuple[str, ...]
    b: np.ndarray
    zero_based: bool = False
    seen: SeenFeatures | None = None
    scaling: Scaling | None = None
    float64: bool = False
    sigmoid: np.ndarray | None = None
    conformal: NonconformityScores | None = None
    noise_scale: float | None = None
    columns: Columns | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for pickling, without cached values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def decision(self, rows: ModelRows, labels_only: bool = False) -> np.ndarray:
        """Return the decision values of rows, (m,) or (m, columns) float64.

        Several classes have a column for each class or pair. labels_only : only `predicted` uses
        the result, which may then be less precise
        """
        f = self._decision(rows, labels_only)
        return f[:, 0] if f.shape[1] == 1 else f

    def decision_matrix(self, X: Matrix) -> np.ndarray:
        """Return f, (m, columns) float64. X : (m, d), column j is the feature `features[j]`."""
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

    def properties(self) -> dict[str, Any]:
        """Return the properties of this class of models: format, task, and others by name."""
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
        """Return the class index of each row, (m,) int64, or f itself for a regression.

        f : (m,) or (m, columns), result of `decision`
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
        """Return the probability of each class in the order of `labels`, (m, classes) float64.

        f : (m,) or (m, columns), result of `decision`
        """
        columns = decisions.sigmoids(f.reshape(len(f), -1), self.sigmoid_in_use)
        return decisions.class_probabilities(columns)

    @property
    def sigmoid_in_use(self) -> np.ndarray | None:
        """A and B that were fitted, or those that the loss determines, (2, columns of f)."""
        return self.sigmoid

    def class_scores(self, f: np.ndarray) -> np.ndarray:
        """Return how badly each class fits each row, (m, classes); see `decisions.class_scores`.

        f : (m,) or (m, columns), result of `decision`
        """
        return class_scores(f.reshape(len(f), -1), pairs=False)

    def rows(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> ModelRows:
        """Return rows after scaling, over the features of the model.

        indptr : (m + 1,) int64, as in a CSR matrix; indices : (values,) int32, feature indices as
        in a file; values : (values,) float32 or float64
        """
        values = values.astype(np.float64 if self.float64 else np.float32, copy=False)
        unseen = np.empty(0, np.int32)
        if self.seen is not None:
            unseen = indices[~self.seen.contains(indices)]
        if self.scaling is not None:
            indptr, indices, values = self.scaled(indptr, indices, values)
        m, d = len(indptr) - 1, len(self.features)
        column, used = _find_columns(self.features, indices)
        if used.all():
            return ModelRows(CsrMatrix(values, column, indptr, (m, d)), np.zeros(m), unseen)
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
        """Return the three arrays of scaled rows, without unseen features; see `rows`."""
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

    def label_table(self, path: str, training: bool = False) -> LabelTable:
        """Return a reader of the labels of rows.

        path : name of a file of rows, for messages; training : whether the rows are those of the
        training. Rows of the training have the labels of the model; novelty detection ignores the
        labels. Other rows may have no label, `?`. They may have other labels than the model for
        novelty detection, and if some labels of the model are numbers, but not all are whole ones.
        """
        if training:
            labels = () if self.is_one_class else self.labels
            closed = not self.is_one_class
            return LabelTable(path, labels=labels, closed=closed, any_label=self.is_one_class)
        numbers = any(NUMBER.fullmatch(text) for text in self.labels)
        plain = not numbers or isinstance(label_values(self.labels)[0], int)
        any_label = self.is_one_class or not plain
        return LabelTable(path, unlabelled=True, labels=self.labels, any_label=any_label)

    @property
    def int_labels(self) -> tuple[int, ...] | None:
        """The labels as ints of C, as LIBSVM and LIBLINEAR have them; None if they do not fit."""
        values = [
            v for v in label_values(self.labels) if isinstance(v, int) and -(2**31) <= v < 2**31
        ]
        return tuple(values) if len(values) == len(self.labels) else None


def _find_columns(features: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the column of each index among ascending features, and whether it exists, (m,)."""
    if len(features) and features[-1] - features[0] == len(features) - 1:
        # Searching takes several times as long.
        column = indices - features[0]
        return column, (column >= 0) & (column < len(features))
    column = np.searchsorted(features, indices)
    inside = np.flatnonzero(column < len(features))
    found = np.zeros(len(indices), bool)
    found[inside] = features[column[inside]] == indices[inside]
    return column, found


# --- the lines of a trailer ----------------------------------------------------------------


def trailer_of(model: Model, labels: bool) -> dict[str, Any]:
    """Return the lines of the trailer that all models have.

    labels : whether the labels come from the training data
    """
    scaling, conformal = model.scaling, model.conformal
    lines = {
        **model.metadata,
        "labels": model.labels if labels else None,
        "index_base": model.index_base,
        "values": "float64" if model.float64 else None,
        "features": None if model.seen is None else str(model.seen),
        "columns": None if model.columns is None else json.loads(model.columns.to_json()),
        "scale": None if scaling is None else scaling.name,
        "scale_shift": None if scaling is None else scaling.shift,
        "scale_factor": None if scaling is None else scaling.factor,
        "conformal_scores": None if conformal is None else conformal.scores,
        "conformal_ranks": None if conformal is None else conformal.ranks,
    }
    own = lines.keys() - model.metadata.keys()
    return {key: value for key, value in lines.items() if key not in own or value is not None}


def fields_of(
    trailer: Mapping[str, Any] | None, task: str, header_labels: tuple[int, ...] | None
) -> dict[str, Any]:
    """Return the fields of Model from the trailer and the labels of the header.

    task : svc, one-class or svr; trailer : None for a model of LIBSVM or LIBLINEAR, which parse
    features as float64.
    """
    lines = dict(trailer or {})

    def array(key: str) -> np.ndarray | None:
        return np.array(lines.pop(key), np.float64) if key in lines else None

    labels = tuple(map(str, lines.pop("labels", header_labels or ())))
    seen, columns, scale = (lines.pop(key, None) for key in ("features", "columns", "scale"))
    shift, factor = array("scale_shift"), array("scale_factor")
    scores, ranks = array("conformal_scores"), array("conformal_ranks")
    known = None if seen is None else SeenFeatures.parse(seen)
    arrays = [one for one in (shift, factor) if one is not None]
    if scale is not None and (known is None or any(len(one) != known.count for one in arrays)):
        raise ValueError("expected a scaling of each feature")
    return {
        "labels": {"svc": labels, "one-class": ONE_CLASS_LABELS, "svr": ()}[task],
        "zero_based": lines.pop("index_base", 1) == 0,
        "float64": lines.pop("values", None) == "float64" or trailer is None,
        "seen": known,
        "scaling": None if scale is None else Scaling(scale, shift, factor),
        "conformal": (
            None if scores is None or ranks is None else NonconformityScores(scores, ranks)
        ),
        "columns": None if columns is None else Columns.from_json(json.dumps(columns)),
        "metadata": lines,
    }
