"""Sparse rows, and small functions of arrays. Imports no other module of the package."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from randsvm import _arrays
from randsvm.errors import ContentError

# The unit roundoff of each precision.
FLOAT32_UNIT, FLOAT64_UNIT = 2.0**-24, 2.0**-53
# The columns of rows as in a file: the features from 0 to 2^31 - 1.
FEATURES = 2**31
# The largest column of a caller's matrix: it is the last feature that files may have.
MAX_COLUMN = FEATURES - 2


class CsrMatrix:
    """Sparse rows: row i has the values data[indptr[i]:indptr[i + 1]] in the columns `indices`.

    The columns of a row ascend; each is stored once at most. The constructor does not check them.
    The package computes with these rows, because importing scipy.sparse would take a sixth of the
    time of a small run. Callers of the package give and receive matrices of scipy.

    data : (nnz,) float32 or float64
    indices : (nnz,) int32
    indptr : (m + 1,) int32, or int64 if there are more than 2^31 values
    """

    def __init__(
        self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
    ) -> None:
        self.data = data
        self.indices: np.ndarray = np.asarray(indices, np.int32)
        self.indptr: np.ndarray = np.asarray(indptr, np.int32 if len(data) < 2**31 else np.int64)
        self.shape = shape

    @staticmethod
    def without_rows(d: int) -> CsrMatrix:
        """Return no rows of d columns, float32."""
        return CsrMatrix(
            np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(1, np.int32), (0, d)
        )

    @staticmethod
    def from_dense(X: np.ndarray) -> CsrMatrix:
        """Return the values of X that are not 0. X : (m, d) float32 or float64."""
        row, column = np.nonzero(X)
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=X.shape[0]))])
        return CsrMatrix(X[row, column], column, starts, X.shape)

    @staticmethod
    def from_scipy(X: Any) -> CsrMatrix:
        """Return the rows of a scipy sparse matrix in any format, in its memory if possible.

        Raises ContentError for a value in a column that no file can have.
        """
        csr = X.tocsr()
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
        if csr.shape[1] > MAX_COLUMN + 1 and (beyond := csr.indices > MAX_COLUMN).any():
            at = int(beyond.argmax())
            row = np.searchsorted(csr.indptr, at, "right") - 1
            problem = f"expected a column of at most {MAX_COLUMN}, found a value"
            raise ContentError(f"X[{row}, {csr.indices[at]}]: {problem}")
        return CsrMatrix(np.ascontiguousarray(csr.data), csr.indices, csr.indptr, csr.shape)

    @staticmethod
    def vstack(parts: Sequence[CsrMatrix]) -> CsrMatrix:
        """Return the rows of all parts, one after another; there is at least one part."""
        lengths = np.concatenate([np.diff(part.indptr) for part in parts])
        return CsrMatrix(
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
            (len(lengths), parts[0].shape[1]),
        )

    def to_scipy(self) -> Any:
        """Return the same rows as a csr_matrix of scipy, which shares their memory."""
        from scipy import sparse

        return sparse.csr_matrix((self.data, self.indices, self.indptr), shape=self.shape)

    @property
    def nnz(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    def __getitem__(self, rows: slice | np.ndarray) -> CsrMatrix:
        """Return some rows: views of the same memory for a slice, copies for numbers or a mask."""
        m, d = self.shape
        if isinstance(rows, slice):
            begin, end, step = rows.indices(m)
            if step == 1:
                end = max(begin, end)
                if (begin, end) == (0, m):
                    return self
                first, last = self.indptr[begin], self.indptr[end]
                starts = self.indptr[begin : end + 1] - first
                some = slice(first, last)
                return CsrMatrix(self.data[some], self.indices[some], starts, (end - begin, d))
            rows = np.arange(begin, end, step)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64, copy=False)
        lengths = self.indptr[rows + 1] - self.indptr[rows]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        ends: np.ndarray = starts[1:].astype(self.indptr.dtype)
        indices, data = np.empty(starts[-1], np.int32), np.empty(starts[-1], self.dtype)
        _arrays.copy_rows(self.indptr, self.indices, self.data, rows, ends, indices, data)
        return CsrMatrix(data, indices, starts, (len(rows), d))

    def with_data(self, data: np.ndarray) -> CsrMatrix:
        """Return a matrix with the same nonzero pattern and other values. data : (nnz,)."""
        return CsrMatrix(data, self.indices, self.indptr, self.shape)

    def with_columns(self, indices: np.ndarray, d: int) -> CsrMatrix:
        """Return a matrix with the same values in other columns, of d. indices : (nnz,)."""
        return CsrMatrix(self.data, indices, self.indptr, (self.shape[0], d))

    def astype(self, dtype: Any, copy: bool = True) -> CsrMatrix:
        """Return the rows with values of this dtype: copies, or the same if `copy` is False."""
        return self.with_data(self.data.astype(dtype, copy=copy))

    def minus(self, centre: np.ndarray, dtype: type) -> CsrMatrix:
        """Return the rows minus the centre, as values of `dtype`; zeros are not stored.

        centre : (d,) float64. Differences are computed in float64.
        """
        columns = np.flatnonzero(centre)
        most = self.nnz + self.shape[0] * len(columns)
        starts = np.empty(self.shape[0] + 1, np.int32)
        indices: np.ndarray = np.empty(most, np.int32)
        data: np.ndarray = np.empty(most, dtype)
        count = _arrays.subtract_centre(
            *csr_parts(self), columns.astype(np.int32), centre[columns], starts, indices, data
        )
        return CsrMatrix(data[:count].copy(), indices[:count].copy(), starts, self.shape)

    def toarray(self) -> np.ndarray:
        """Return the rows as a new array, (m, d)."""
        m, d = self.shape
        if len(self.data) == m * d:
            return self.data.reshape(m, d).copy()
        dense = np.zeros((m, d), self.dtype)
        _arrays.fill_dense(self.indptr, self.indices, self.data, dense)
        return dense

    def columns(self, numbers: np.ndarray) -> np.ndarray:
        """Return some columns, (m, k). numbers : (k,), in any order."""
        place = np.full(self.shape[1], -1, np.int32)
        distinct_numbers, to = np.unique(numbers, return_inverse=True)
        place[distinct_numbers] = np.arange(len(distinct_numbers), dtype=np.int32)
        at = place[self.indices]
        kept = at >= 0
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[self.indptr]
        shape = (self.shape[0], len(distinct_numbers))
        return CsrMatrix(self.data[kept], at[kept], starts, shape).toarray()[:, to]

    def __matmul__(self, W: np.ndarray) -> np.ndarray:
        """Return X W in the higher precision of both. W : (d,) or (d, K)."""
        dtype = np.result_type(self.dtype, W.dtype)
        given: np.ndarray = np.ascontiguousarray(W, dtype)
        out = np.zeros((self.shape[0], *W.shape[1:]), dtype)
        columns = math.prod(W.shape[1:])
        _arrays.add_row_products(
            self.indptr, self.indices, self.data,
            given.reshape(len(W), columns), out.reshape(len(out), columns),
        )  # fmt: skip
        return out

    def column_products(self, W: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return X^T W, (d,) or (d, K) float64, added to `out` if it is given, which is contiguous.

        W : (m,) or (m, K)
        """
        given: np.ndarray = np.ascontiguousarray(W, np.float64)
        if out is None:
            out = np.zeros((self.shape[1], *W.shape[1:]))
        columns = math.prod(W.shape[1:])
        _arrays.add_column_products(
            self.indptr, self.indices, self.data,
            given.reshape(len(W), columns), out.reshape(len(out), columns),
        )  # fmt: skip
        return out

    def by_columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the starts of the columns, (d + 1,), and the rows and values of each column."""
        counts = np.bincount(self.indices, minlength=self.shape[1])
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(self.indptr.dtype)
        rows, values = np.empty_like(self.indices), np.empty_like(self.data)
        places = starts[:-1].copy()
        _arrays.transpose(self.indptr, self.indices, self.data, places, rows, values)
        return starts, rows, values


def find_columns(features: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def rows_over(X: CsrMatrix, features: np.ndarray) -> tuple[CsrMatrix, np.ndarray]:
    """Return rows over ascending features, and whether each value has a column, (nnz,) bool.

    X : rows whose columns are all features, as in a file
    """
    column, used = find_columns(features, X.indices)
    if used.all():
        return X.with_columns(column, len(features)), used
    starts = np.concatenate([[0], np.cumsum(used)])[X.indptr]
    shape = X.shape[0], len(features)
    return CsrMatrix(X.data[used], column[used], starts, shape), used


# Rows, sparse or dense.
Matrix: TypeAlias = "CsrMatrix | np.ndarray"


def to_csr(X: Matrix) -> CsrMatrix:
    """Return rows as sparse rows; zeros of dense rows are not stored."""
    return CsrMatrix.from_dense(X) if isinstance(X, np.ndarray) else X


def to_dense(X: Matrix) -> np.ndarray:
    """Return rows as an array."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def squared_norms(X: Matrix) -> np.ndarray:
    """Return |x|^2 of each row, (m,) float64. X : (m, d)."""
    if isinstance(X, np.ndarray):
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)
    squares = np.square(X.data, dtype=np.float64)
    if len(squares) == 0:
        return np.zeros(X.shape[0])
    # reduceat sums from one start to the next: rows without entries must not be among them.
    starts = X.indptr[:-1]
    filled = np.flatnonzero(starts < X.indptr[1:])
    sums = np.zeros(X.shape[0])
    sums[filled] = np.add.reduceat(squares, starts[filled])
    return sums


def sum_in_order(numbers: Iterable[float]) -> float:
    """Return the sum, added from left to right: `sum` rounds differently since Python 3.12."""
    return functools.reduce(operator.add, numbers)


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return each number once, ascending.

    With return_counts, np.unique does not import numpy.ma, which takes 10 ms.
    """
    return np.unique(numbers, return_counts=True)[0]


def sorted_union(indices: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the distinct values of two integer arrays, ascending.

    numpy.union1d imports numpy.ma and hashes integers: ten times the time of sorting.
    """
    both = np.sort(np.concatenate([indices, others]), kind="stable")
    return both[np.diff(both, prepend=both[:1] - 1) != 0]


def median(numbers: np.ndarray) -> float:
    """Return the median of one number or more. numpy.median imports numpy.ma."""
    middle = (len(numbers) - 1) // 2, len(numbers) // 2
    return float(np.partition(numbers, middle)[list(middle)].mean())


def slices(count: int, size: int) -> Iterator[slice]:
    """Return slice(0, size), slice(size, 2 size), ... up to count."""
    return (slice(at, min(at + size, count)) for at in range(0, count, size))


def absolute(X: Matrix) -> Matrix:
    """Return the absolute values."""
    return np.abs(X) if isinstance(X, np.ndarray) else X.with_data(np.abs(X.data))


def column_sums(X: Matrix, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the sum of each column, (d,) float64. weights : (m,) of the rows, None: all are 1."""
    weights = np.ones(X.shape[0]) if weights is None else weights
    return weights @ X if isinstance(X, np.ndarray) else X.column_products(weights)


def csr_of_all(values: np.ndarray, m: int, d: int) -> CsrMatrix:
    """Return a dense (m, d) array as CSR with every value stored."""
    columns = np.tile(np.arange(d, dtype=np.int32), m)
    return CsrMatrix(values.ravel(), columns, np.arange(m + 1, dtype=np.int64) * d, (m, d))


def csr_parts(X: Matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr (int32), indices and data of X, as compiled code takes them.

    An array has no indices, which stands for all columns in each row. Raises ContentError for more
    nonzeros than int32 counts.
    """
    if isinstance(X, np.ndarray):
        m, d = X.shape
        return np.arange(m + 1, dtype=np.int32) * np.int32(d), np.empty(0, np.int32), X.ravel()
    if X.nnz > np.iinfo(np.int32).max:
        raise ContentError(f"expected at most 2,147,483,647 nonzeros at once, found {X.nnz:,}")
    return X.indptr.astype(np.int32, copy=False), X.indices, X.data


def join_weights(parts: Sequence[tuple[int, np.ndarray | None]]) -> np.ndarray | None:
    """Return the weights of consecutive rows, or None if no part has weights.

    parts: the number of rows of each part, and their weights; None: all 1.
    """
    if all(weights is None for _, weights in parts):
        return None
    return np.concatenate([np.ones(m) if w is None else w for m, w in parts])


def sum_of_weights(weights: np.ndarray) -> float:
    """Return the sum of numbers that are not below 0, which two roundings have changed at most."""
    return math.fsum(math.fsum(weights[at].tolist()) for at in slices(len(weights), 1 << 16))


def sums_of_classes(y: np.ndarray, weights: np.ndarray | None, classes: int) -> np.ndarray:
    """Return the `sum_of_weights` of each class, (classes,) float64.

    y : (m,) int64, class numbers; weights : (m,), None: all are 1.
    """
    if weights is None:
        return np.bincount(y, minlength=classes).astype(np.float64)
    order = np.argsort(y, kind="stable")
    ends = np.searchsorted(y[order], np.arange(classes + 1))
    return np.array([sum_of_weights(weights[order[a:b]]) for a, b in pairwise(ends)])


def philox_words(
    key: tuple[int, int], counter: tuple[int, int, int, int], first: int, count: int
) -> np.ndarray:
    """Return words first .. first + count - 1 of the Philox stream, (count,) uint64.

    They do not depend on how a stream is cut into pieces.
    """
    # A step of the counter gives four words.
    steps = sum(word << 64 * place for place, word in enumerate(counter)) + first // 4
    words = [steps >> 64 * place & (1 << 64) - 1 for place in range(4)]
    # The dtype is given: numpy converts a list with a word above 2^63 to float64.
    bits = np.random.Philox(key=np.array(key, np.uint64), counter=np.array(words, np.uint64))
    return bits.random_raw(count + first % 4)[first % 4 :]
