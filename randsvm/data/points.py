"""Rows of D with their numbers and labels.

This module does not know files, kernels or solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from randsvm.arrays import CsrMatrix, join_weights


@dataclass(frozen=True)
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


class RowCache:
    """A cache of rows of D, because working sets and support vectors need the same rows repeatedly.

    Its arrays grow by doubling.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.count = 0
        # Row numbers, ascending, and the position of each row in the arrays below.
        self._rows = np.empty(0, np.int64)
        self._place = np.empty(0, np.int64)
        self._y = np.empty(0)
        # None: the rows of D all have the weight 1.
        self._weights: np.ndarray | None = None
        self._ends = np.zeros(1, np.int64)
        self._indices = np.empty(0, np.int32)
        self._values = np.empty(0)

    @property
    def nbytes(self) -> int:
        arrays = (self._rows, self._place, self._y, self._ends, self._indices, self._values)
        weights = 0 if self._weights is None else self._weights.nbytes
        return sum(array.nbytes for array in arrays) + weights

    def missing(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows that are not in the cache."""
        at = np.searchsorted(self._rows, rows)
        here = np.zeros(len(rows), bool)
        inside = at < len(self._rows)
        here[inside] = self._rows[at[inside]] == rows[inside]
        return rows[~here]

    def subset(self, rows: np.ndarray) -> RowCache:
        """Return a cache of the given rows, without rows that this cache lacks. rows: ascending."""
        fewer = RowCache(self.columns)
        fewer.add(self.points(np.intersect1d(rows, self._rows, assume_unique=True)))
        return fewer

    def add(self, points: Points) -> None:
        """Add rows that are not in the cache, ascending."""
        m, nnz = self.count, int(self._ends[self.count])
        at = np.searchsorted(self._rows, points.rows)
        self._rows = np.insert(self._rows, at, points.rows)
        self._place = np.insert(self._place, at, np.arange(m, m + len(points)))
        self._y = _with_room(self._y, m, points.y)
        if points.weights is not None:
            before = np.empty(0) if self._weights is None else self._weights
            self._weights = _with_room(before, m, points.weights)
        self._ends = _with_room(self._ends, m + 1, nnz + points.X.indptr[1:].astype(np.int64))
        self._indices = _with_room(self._indices, nnz, points.X.indices)
        self._values = _with_room(self._values, nnz, points.X.data)
        self.count += len(points)

    def points(self, rows: np.ndarray) -> Points:
        """Return rows of the cache as Points, in the given order."""
        at = self._place[np.searchsorted(self._rows, rows)]
        nnz = self._ends[self.count]
        shape = self.count, self.columns
        stored = CsrMatrix(
            self._values[:nnz], self._indices[:nnz], self._ends[: self.count + 1], shape
        )
        weights = None if self._weights is None else self._weights[at]
        return Points(rows, stored[at], self._y[at], weights=weights)


def _with_room(array: np.ndarray, used: int, more: np.ndarray) -> np.ndarray:
    """Return the array with `more` after its used part; a full array is doubled, an empty one
    replaced."""
    if not len(array):
        return more
    needed = used + len(more)
    if needed > len(array):
        grown = np.empty(max(needed, 2 * len(array)), array.dtype)
        grown[:used] = array[:used]
        array = grown
    array[used:needed] = more
    return array
