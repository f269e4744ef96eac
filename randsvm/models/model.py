"""Models: what prediction needs. Rows laid out over a model's features, decision values, classes.

Stands alone: a model knows nothing of the data set and the run that made it, nor of the layout of
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from randsvm.arrays import Matrix
from randsvm.data.scaling import Scaling
from randsvm.models import decisions
from randsvm.models.metadata import MOST_FEATURES, Metadata, SeenFeatures, trailer_items

# The classes of a one-class model: like the training rows, and unlike them.
ONE_CLASS_LABELS = ("1", "-1")
ONE_CLASS_VALUES = (1, -1)
# Rows that a thread predicts at once; a block of text has several times as many.
ROWS_AT_ONCE = 1024


class ModelRows(NamedTuple):
    """Rows laid out over a model's features.

    X : (m, d) CSR; extra : (m,) squared norm of the features that are in no column of X and still
    count in |x|^2; unseen : indices that training never saw, one for each value.
    """

    X: Matrix
    extra: np.ndarray
    unseen: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Model:
    """What prediction needs of any model.

    features : (d,) int32, ascending, as written in the file: the columns of its rows.
    labels, values : of each class, by class index: the label as first spelled, and what it stands
    for (int or str). Empty for a regression.
    seen : the features that training saw; None: not recorded (a model of LIBSVM's or LIBLINEAR's
    own), so that every feature counts.
    scaling : of rows, before all else, over the seen features.
    precise : whether the features of rows are float64, as in training where rounding to float32
    showed; others are rounded to float32.
    sigmoid : A and B of 1 / (1 + exp(A f + B)), (2, columns of f) float64; None: none was fitted.
    noise_scale : of a regression, sigma where y - f has the density e^(-|z| / sigma) / (2 sigma);
    None: not fitted.
    facts : the other lines of the trailer, how the model was made.
    """

    features: np.ndarray
    labels: tuple[str, ...]
    values: tuple[int | str, ...]
    zero_based: bool = False
    seen: SeenFeatures | None = None
    scaling: Scaling | None = None
    precise: bool = False
    sigmoid: np.ndarray | None = None
    noise_scale: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the fields, and nothing that was computed from them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def decision(self, rows: ModelRows, labels_only: bool = False) -> np.ndarray:
        """f of each row: (m,) float64, or (m, classes) where each class has its own.

        labels_only: nothing but `predicted` is asked of f, which may then be less precise.
        """
        f = self._decision(rows, labels_only)
        return f[:, 0] if f.shape[1] == 1 else f

    def decision_matrix(self, X: Matrix) -> np.ndarray:
        """Return f of rows that are laid out over the model's features, (m, columns) float64.

        X : (m, d), without features outside the model's.
        """
        return self._decision(ModelRows(X, np.zeros(X.shape[0]), np.empty(0, np.int32)), False)

    def _decision(self, rows: ModelRows, labels_only: bool) -> np.ndarray:
        """(m, columns) float64."""
        raise NotImplementedError

    @property
    def rows_at_once(self) -> int:
        """Of rows to predict, how many are best handed to `decision` together."""
        return ROWS_AT_ONCE

    def save(self, path: str) -> None:
        """Write the model in the format of LIBSVM or LIBLINEAR; what these cannot express goes
        into a layout of our own, which their programs refuse.

        Raises OutputError and TransferError; the old file stays until the new one is whole.
        """
        raise NotImplementedError

    def described(self) -> dict[str, Any]:
        """What this kind of model has to say of itself, plain words and numbers: its format and
        task first."""
        raise NotImplementedError

    @property
    def finds_novelties(self) -> bool:
        """Whether it was trained with one class: the labels of rows are then not its own."""
        return False

    @property
    def has_row_numbers(self) -> bool:
        """Whether rows are kernel values and begin with 0:number."""
        return False

    @property
    def counts_unseen(self) -> bool:
        """Whether features that training never saw change f."""
        return False

    @property
    def regression(self) -> bool:
        """Whether decision values are the answer themselves."""
        return not self.labels

    def predicted(self, f: np.ndarray) -> np.ndarray:
        """The class index of each row by its decision values, (m,); of a regression f itself."""
        return f if self.regression else decisions.predicted_classes(f)

    @property
    def has_probabilities(self) -> bool:
        return self._probability_sigmoid is not None

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """Of each class by the decision values, (m, classes) float64."""
        assert self._probability_sigmoid is not None, "has_probabilities comes first"
        return decisions.probabilities(f, self._probability_sigmoid)

    @property
    def _probability_sigmoid(self) -> np.ndarray | None:
        """The fitted one, or one that the kind of model brings."""
        return self.sigmoid

    def rows(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> ModelRows:
        """Rows as parsed, scaled and laid out over this model's features."""
        values = values.astype(np.float64 if self.precise else np.float32, copy=False)
        unseen = np.empty(0, np.int32)
        if self.seen is not None:
            unseen = indices[~self.seen.contains(indices)]
        if self.scaling is not None:
            indptr, indices, values = self._scaled(self.scaling, indptr, indices, values)
        m, d = len(indptr) - 1, len(self.features)
        column, used = _columns(self.features, indices)
        # A feature that no support vector has still counts in |x|^2, as in LIBSVM.
        other = ~used
        row = np.repeat(np.arange(m), np.diff(indptr))
        extra = np.bincount(row[other], np.square(values[other], dtype=np.float64), m)
        starts = np.concatenate([[0], np.cumsum(used)])[indptr]
        X = sparse.csr_matrix((values[used], column[used], starts), shape=(m, d))
        return ModelRows(X, extra, unseen)

    def _scaled(
        self, scaling: Scaling, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows as parsed after scaling; features that training never saw are gone."""
        features = self._scaled_features
        column, used = _columns(features, indices)
        starts = np.concatenate([[0], np.cumsum(used)])[indptr]
        shape = (len(indptr) - 1, len(features))
        X = scaling.apply(sparse.csr_matrix((values[used], column[used], starts), shape=shape))
        return X.indptr, features[X.indices], X.data

    @cached_property
    def _scaled_features(self) -> np.ndarray:
        """The indices that `scaling` is over, in its order."""
        assert self.seen is not None
        return self.seen.indices(MOST_FEATURES)

    @property
    def _c_labels(self) -> tuple[int, ...] | None:
        """The labels as LIBSVM and LIBLINEAR hold them, C ints; None where they cannot."""
        fit = all(isinstance(v, int) and -(2**31) <= v < 2**31 for v in self.values)
        return tuple(int(v) for v in self.values) if fit else None

    @property
    def _labels_from_data(self) -> bool:
        return bool(self.labels)

    @property
    def _trailer(self) -> dict[str, str]:
        """All lines of the trailer."""
        labels = self.labels if self._labels_from_data else ()
        lines = trailer_items(labels, self.zero_based, self.seen, self.scaling, self.precise)
        return {**self.metadata, **lines}


def _columns(features: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The column of each index among ascending features, and whether it is one of them, (m,)."""
    column = np.searchsorted(features, indices)
    inside = np.flatnonzero(column < len(features))
    found = np.zeros(len(indices), bool)
    found[inside] = features[column[inside]] == indices[inside]
    return column, found


def fields_of_any_model(
    metadata: Metadata, task: str, header_labels: tuple[int, ...] | None, classes: int
) -> dict[str, Any]:
    """The fields that every model has, out of its trailer and its header.

    task: svc, one-class or svr; classes: of svc. `facts` is the rest of the trailer: lines that
    are taken out of it later are no longer there.
    """
    labels, values = metadata.labels(header_labels, classes if task == "svc" else 0)
    seen = metadata.seen_features()
    return {
        "labels": ONE_CLASS_LABELS if task == "one-class" else labels,
        "values": ONE_CLASS_VALUES if task == "one-class" else values,
        "zero_based": metadata.zero_based(),
        "precise": metadata.precise(),
        "seen": seen,
        "scaling": metadata.scaling(seen),
        "metadata": metadata.rest,
    }
