"""Rows of D with their numbers and labels.

This module does not know files, kernels or solvers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from randsvm.arrays import CsrMatrix, join_weights
from randsvm.records import record


@record
class Points:
    """Rows of a data set, in ascending order of `rows`.

    rows : (m,) int64, row numbers in D
    X : (m, d) CSR of float64, or of float32 where a `mapping` computes features; columns are
    positions in D's sorted feature indices; for a precomputed kernel see
    svm.kernel_layout.kernel_centres
    y : (m,) float64, labels of the task (-1/+1 for classification)
    u, beta : (m,) float64, decision values without b and coefficients, if a scan has set them
    weights : (m,) float64, weights of the rows, or None if those of D are all 1
    """

    rows: np.ndarray
    X: CsrMatrix
    y: np.ndarray
    u: np.ndarray | None = None
    beta: np.ndarray | None = None
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: np.ndarray) -> Points:
        u, beta, weights = (
            None if of is None else of[chosen] for of in (self.u, self.beta, self.weights)
        )
        return Points(self.rows[chosen], self.X[chosen], self.y[chosen], u, beta, weights)

    @staticmethod
    def concatenate(parts: Sequence[Points]) -> Points:
        """Return the parts one after another, in any order of rows; two or more lose u and beta."""
        if len(parts) == 1:
            return parts[0]
        return Points(
            np.concatenate([p.rows for p in parts]),
            CsrMatrix.vstack([p.X for p in parts]),
            np.concatenate([p.y for p in parts]),
            weights=join_weights([(len(p), p.weights) for p in parts]),
        )


class GrowingArray:
    """Numbers to which more are appended. Its memory grows by halves, so that each number is
    copied three times at most in the mean, however few are appended at a time.

    room: the memory, at first that of the caller; the first `used` numbers count
    """

    def __init__(self, room: np.ndarray) -> None:
        self.room, self.used = room, len(room)

    @property
    def values(self) -> np.ndarray:
        return self.room[: self.used]

    def append(self, more: np.ndarray) -> None:
        if not len(more):
            return  # the memory of the caller stays as it is
        used = self.used + len(more)
        if used > len(self.room):
            room = np.empty(used + used // 2, self.room.dtype)
            room[: self.used] = self.values
            self.room = room
        self.room[self.used : used] = more
        self.used = used


class RowCache:
    """Rows of D that were read, because working sets and support vectors need the same repeatedly.

    rows : (m,) int64, ascending; places : (m,) int64, where each is among those that were added
    """

    def __init__(self, points: Points) -> None:
        self.places = np.argsort(points.rows)
        self.rows, self.d, X = points.rows[self.places], points.X.shape[1], points.X
        # int64: a matrix of many rows may have more nonzeros than int32 counts.
        starts = X.indptr.astype(np.int64)
        self._data, self._indices, self._starts, self._y = map(
            GrowingArray, (X.data, X.indices, starts, points.y)
        )
        self._weights = None if points.weights is None else GrowingArray(points.weights)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return sum(one.room.nbytes for one in (self._data, self._indices, self._starts))

    def missing(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows that are not in the cache, ascending. rows: ascending."""
        at = np.minimum(np.searchsorted(self.rows, rows), max(len(self) - 1, 0))
        return rows[self.rows[at] != rows] if len(self) else rows

    def add(self, points: Points) -> None:
        """Add rows that are not in the cache, ascending."""
        at, X = np.searchsorted(self.rows, points.rows), points.X
        places = np.arange(len(self), len(self) + len(points))
        self.rows = np.insert(self.rows, at, points.rows)
        self.places = np.insert(self.places, at, places)
        self._starts.append(X.indptr[1:].astype(np.int64) + self._starts.values[-1])
        self._data.append(X.data)
        self._indices.append(X.indices)
        self._y.append(points.y)
        if self._weights is not None:
            assert points.weights is not None, "all rows of D have weights, or none"
            self._weights.append(points.weights)

    def points(self, rows: np.ndarray) -> Points:
        """Return rows of the cache as Points, in the given order."""
        at = self.places[np.searchsorted(self.rows, rows)]
        X = CsrMatrix(
            self._data.values, self._indices.values, self._starts.values, (len(self), self.d)
        )
        weights = None if self._weights is None else self._weights.values[at]
        return Points(rows, X[at], self._y.values[at], weights=weights)
