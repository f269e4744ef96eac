"""Small functions of arrays and sparse matrices. Imports no other module of the package."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from scipy import sparse

# Rows, sparse or dense.
Matrix: TypeAlias = "sparse.csr_matrix | np.ndarray"


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

    Counting them avoids that np.unique imports numpy.ma, which takes 10 ms.
    """
    return np.unique(numbers, return_counts=True)[0]


def slices(count: int, size: int) -> Iterator[slice]:
    """Return slice(0, size), slice(size, 2 size), ... up to count."""
    return (slice(at, min(at + size, count)) for at in range(0, count, size))


def rows_of(X: Matrix, part: slice) -> Matrix:
    """Return X[part], without the copy that sparse rows would make if it is all of X."""
    return X if part == slice(0, X.shape[0]) else X[part]


def csr_of_all(values: np.ndarray, m: int, d: int) -> sparse.csr_matrix:
    """Return a dense (m, d) array as CSR with every value stored."""
    columns = np.tile(np.arange(d, dtype=np.int32), m)
    starts = np.arange(m + 1, dtype=np.int64) * d
    return sparse.csr_matrix((values.ravel(), columns, starts), shape=(m, d))


def sorted_csr(X: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return X with ascending columns in each row."""
    return X if X.has_sorted_indices else X.sorted_indices()


def csr_parts(X: sparse.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr, indices (int32) and data of X, as compiled code takes them."""
    return X.indptr.astype(np.int32, copy=False), X.indices.astype(np.int32, copy=False), X.data


def join_weights(parts: Sequence[tuple[int, np.ndarray | None]]) -> np.ndarray | None:
    """Return the weights of consecutive rows, or None if no part has weights.

    parts: the number of rows of each part, and their weights; None: all 1.
    """
    if all(weights is None for _, weights in parts):
        return None
    return np.concatenate([np.ones(m) if w is None else w for m, w in parts])
