"""Models: what prediction needs, decision values and labels of rows, save and load.

Stands alone: a model knows nothing of the data set and the run that made it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from randsvm.data.labels import LabelTable
from randsvm.data.scaling import Scaling
from randsvm.data.svmlight import LARGEST_INDEX
from randsvm.errors import DataError, ModelError
from randsvm.models import header
from randsvm.models.header import FOREIGN, FOREIGN_VERSION
from randsvm.parameters.run import SCALINGS

# What a one-class model says of a row.
ONE_CLASS_LABELS = ("1", "-1")
ONE_CLASS_VALUES = (1, -1)
FOREIGN_LINE = f"{FOREIGN} {FOREIGN_VERSION}"
# No class is ever certain or impossible: LIBSVM's bound.
LEAST_SHARE = 1e-7
# Runs of known features are short to write: what counts them takes no more at their word.
MOST_FEATURES = 1 << 22

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Known:
    """The feature indices that training saw, as runs first..last. Written '1-7,9,12-13'."""

    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(features: np.ndarray) -> Known:
        """features : (d,) int32, sorted."""
        breaks = np.flatnonzero(np.diff(features) != 1)
        at_first = np.concatenate([[0], breaks + 1])[: len(features)]
        at_last = np.concatenate([breaks, [len(features) - 1]])[: len(features)]
        return Known(features[at_first], features[at_last])

    def holds(self, indices: np.ndarray) -> np.ndarray:
        """Which indices were seen; (m,) bool."""
        if len(self.first) == 0:
            return np.zeros(len(indices), bool)
        at = np.searchsorted(self.first, indices, side="right") - 1
        return (at >= 0) & (indices <= self.last[at])

    def indices(self, most: int) -> np.ndarray:
        """Every index, (m,) int32, ascending; of more than `most` only so many."""
        sizes = np.cumsum(self.last - self.first + 1)
        runs = int(np.searchsorted(sizes, most)) + 1
        pairs = zip(self.first[:runs].tolist(), self.last[:runs].tolist(), strict=True)
        parts = [np.arange(a, min(b, a + most) + 1) for a, b in pairs]
        return np.concatenate([np.empty(0, np.int64), *parts])[: most + 1].astype(np.int32)

    @property
    def count(self) -> int:
        return int((self.last - self.first + 1).sum())

    def __str__(self) -> str:
        pairs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in pairs)

    @staticmethod
    def parse(text: str) -> Known:
        """The inverse of str(). Raises ValueError."""
        if not re.fullmatch(r"(\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*)?", text):
            raise ValueError(f"expected runs of features as 1-7,9, found {text[:40]!r}")
        runs = [run.partition("-") for run in text.split(",") if run]
        first = np.array([int(a) for a, _, _ in runs], np.int64)
        last = np.array([int(b or a) for a, _, b in runs], np.int64)
        if not (np.all(first <= last) and np.all(last[:-1] < first[1:])):
            raise ValueError("expected runs of features in ascending order")
        if len(last) and last[-1] > LARGEST_INDEX:
            raise ValueError(f"expected features of at most {LARGEST_INDEX}, found {last[-1]}")
        return Known(first, last)


@dataclass(frozen=True, kw_only=True)
class Model:
    """What prediction needs of any model.

    features : (d,) int32, sorted, as written in the file: the columns of its rows.
    labels, values: the labels as first spelled, and what they stand for (int or str); a class is
    a place in them. known: features that training saw; None: not recorded (a model of LIBSVM's
    or LIBLINEAR's own), so that every feature counts. scaling: what rows become first, over the
    known features. sigmoid: A and B of 1 / (1 + exp(A f + B)), (2, columns of f) float64; None:
    the model has no probabilities. facts: what the trailer says besides.
    """

    features: np.ndarray
    labels: tuple[str, ...]
    values: tuple[int | str, ...]
    zero_based: bool = False
    known: Known | None = None
    scaling: Scaling | None = None
    sigmoid: np.ndarray | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    def decision(self, rows: TestRows, rough: bool = False) -> np.ndarray:
        """f of each row: (m,) float64, or (m, classes) where each class has its own. rough: only
        the labels that follow from it matter."""
        raise NotImplementedError

    def save(self, path: str) -> None:
        """Write the model in LIBSVM's or LIBLINEAR's format, or in one that their programs refuse.

        Raises OutputError and TransferError; the old file stays until the new one is whole.
        """
        raise NotImplementedError

    @property
    def regression(self) -> bool:
        """Whether decision values are the answer themselves."""
        return not self.labels

    def probabilities(self, f: np.ndarray) -> np.ndarray | None:
        """Of each class by its decision values, (m, classes) float64; None: the model has none.

        Platt's sigmoid; of several classes one against the rest, normalised (LIBLINEAR's way).
        """
        sigmoid = self._sigmoid
        return None if sigmoid is None else shares(f, sigmoid)

    @property
    def _sigmoid(self) -> np.ndarray | None:
        return self.sigmoid

    @cached_property
    def _scaled_features(self) -> np.ndarray:
        """The indices that `scaling` is over, in its order."""
        assert self.known is not None
        return self.known.indices(MOST_FEATURES)

    def _scaled(
        self, scaling: Scaling, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows as parsed after scaling; features that training never saw are gone."""
        features = self._scaled_features
        column = np.searchsorted(features, indices)
        inside = np.flatnonzero(column < len(features))
        seen = inside[features[column[inside]] == indices[inside]]
        kept = np.zeros(len(indices) + 1, np.int64)
        kept[seen + 1] = 1
        shape = (len(indptr) - 1, len(features))
        starts = np.cumsum(kept)[indptr]
        X = scaling.apply(sparse.csr_matrix((values[seen], column[seen], starts), shape=shape))
        return X.indptr, features[X.indices], X.data

    def rows(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> TestRows:
        """Rows as parsed, laid out over this model's features."""
        new = np.empty(0, np.int32)
        if self.known is not None:
            new = indices[~self.known.holds(indices)]
        if self.scaling is not None:
            indptr, indices, values = self._scaled(self.scaling, indptr, indices, values)
        m, d = len(indptr) - 1, len(self.features)
        column = np.searchsorted(self.features, indices)
        used = np.zeros(len(indices), bool)
        inside = column < d
        used[inside] = self.features[column[inside]] == indices[inside]
        seen = used if self.known is None else used | self.known.holds(indices)
        row = np.repeat(np.arange(m), np.diff(indptr))
        # A feature that training saw but no support vector has still counts in |x|^2.
        other = ~used if self.known is None else seen & ~used
        extra = np.bincount(row[other], np.square(values[other], dtype=np.float64), m)
        starts = np.concatenate([[0], np.cumsum(used)])[indptr]
        X = sparse.csr_matrix((values[used], column[used], starts), shape=(m, d))
        return TestRows(X, extra, new)

    @property
    def _numbers(self) -> tuple[int, ...] | None:
        """The labels as LIBSVM's programs hold them; None where they cannot."""
        plain = all(isinstance(v, int) and -(2**31) <= v < 2**31 for v in self.values)
        return tuple(int(v) for v in self.values) if plain else None

    @property
    def _named(self) -> bool:
        """Whether the labels come from the data."""
        return bool(self.labels)

    @property
    def _trailer(self) -> dict[str, str]:
        return {
            **self.facts,
            **({"labels": " ".join(self.labels)} if self._named else {}),
            "index_base": "0" if self.zero_based else "1",
            **({} if self.known is None else {"features": str(self.known)}),
            **({} if self.scaling is None else _scaling_lines(self.scaling)),
        }


def common_parts(
    name: str, trailer: Mapping[str, str] | None, label: tuple[int, ...] | None, classes: int
) -> dict[str, Any]:
    """What every model has, out of its trailer."""
    facts = dict(trailer or {})
    labels = tuple(filter(None, facts.pop("labels", " ".join(map(str, label or ()))).split(" ")))
    if len(labels) != classes:
        expected = {2: "two"}.get(classes, str(classes))
        raise ModelError(f"{name}: expected {expected} labels in the trailer, found {len(labels)}")
    known = parsed_fact(name, "features", facts, Known.parse)
    scaling = _scaling_of_lines(name, facts, known)
    values = _values(name, labels)
    if label and values != label:
        raise ModelError(
            f"{name}: expected labels as in the header, found {' '.join(labels)[:40]!r}"
        )
    base = facts.pop("index_base", "1")
    if base not in ("0", "1"):
        raise ModelError(f"{name}: expected index_base 0 or 1 in the trailer, found {base!r}")
    return {
        "labels": labels,
        "values": values,
        "zero_based": base == "0",
        "known": known,
        "scaling": scaling,
        "facts": facts,
    }


def _scaling_lines(scaling: Scaling) -> dict[str, str]:
    """A scaling as lines of the trailer."""
    arrays = {"scale_shift": scaling.shift, "scale_factor": scaling.factor}
    lines = {key: words_of(array) for key, array in arrays.items() if array is not None}
    return {"scale": scaling.name, **lines}


def _scaling_of_lines(name: str, facts: dict[str, str], known: Known | None) -> Scaling | None:
    """The scaling that the trailer's lines hold, taken out of facts."""
    shift, factor = (
        parsed_fact(name, key, facts, array_of) for key in ("scale_shift", "scale_factor")
    )
    scale = facts.pop("scale", None)
    if scale is None:
        return None
    given = [len(array) for array in (shift, factor) if array is not None]
    fits = known is not None and given == [known.count] * len(given)
    few = known is not None and known.count <= MOST_FEATURES
    if not few or scale not in SCALINGS or not fits or (scale != "unit") != (factor is not None):
        raise ModelError(f"{name}: expected a scaling of each known feature, found {scale!r}")
    return Scaling(scale, shift, factor)


def words_of(numbers: np.ndarray) -> str:
    """Numbers in their shortest form that reads back to the same bits."""
    return " ".join(map(repr, numbers.tolist()))


def array_of(text: str) -> np.ndarray:
    """The inverse of `words_of`. Raises ValueError."""
    words = text.encode().split()
    if not all(map(header.is_number, words)):
        raise ValueError("expected finite numbers")
    return np.array(list(map(float, words)))


def parsed_fact(
    name: str, key: str, facts: dict[str, str], parse: Callable[[str], Parsed]
) -> Parsed | None:
    """What the trailer's line `key` means, taken out of facts; None where there is none."""
    try:
        return parse(facts.pop(key)) if key in facts else None
    except ValueError as error:
        raise ModelError(f"{name}: {error}") from error


def flat(f: np.ndarray) -> np.ndarray:
    """Decision values of one column as (m,)."""
    return f[:, 0] if f.shape[1] == 1 else f


def shares(f: np.ndarray, sigmoid: np.ndarray) -> np.ndarray:
    """Probabilities of the classes, (m, classes), by Platt's sigmoids. f : (m,) or (m, classes)."""
    A, B = sigmoid
    z = A * f.reshape(len(f), -1) + B
    # 1 / (1 + exp(z)), which does not overflow.
    p = np.clip(0.5 - 0.5 * np.tanh(0.5 * z), LEAST_SHARE, 1 - LEAST_SHARE)
    if p.shape[1] == 1:
        return np.hstack([p, 1 - p])
    return p / p.sum(axis=1, keepdims=True)


def _values(name: str, labels: tuple[str, ...]) -> tuple[int | str, ...]:
    """What label names stand for, as the reader sees them."""
    try:
        table = LabelTable(name, names=labels)
    except DataError:
        table = LabelTable(name)
    if len(table) != len(labels):
        raise ModelError(
            f"{name}: expected different labels of one kind, found {' '.join(labels)[:40]!r}"
        )
    return tuple(table.values)


@dataclass(frozen=True)
class TestRows:
    """Rows in a model's terms: X (m, d) CSR; extra (m,) squared norm of the features that count
    in |x|^2 only; unseen: indices that training never saw, one for each value dropped."""

    __test__ = False  # pytest: not a test class

    X: sparse.csr_matrix
    extra: np.ndarray
    unseen: np.ndarray
