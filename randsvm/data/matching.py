"""Find the rows of D that are equal to rows of a given matrix.

This module does not know models or training.
"""

from __future__ import annotations

import numpy as np

from randsvm.arrays import FEATURES, CsrMatrix, rows_over
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import Shard
from randsvm.records import record

NOT_FOUND = -1


@record
class Matches:
    """Groups of equal rows, numbered from 0.

    groups : (m,) int64, the group of each row of the matrix; NOT_FOUND if D cannot have the row.
    rows : (k,) int64, the rows of D that equal a row of the matrix, ascending.
    row_groups : (k,) int64, the groups of these rows.
    """

    groups: np.ndarray
    rows: np.ndarray
    row_groups: np.ndarray

    def pairs(
        self, sizes: np.ndarray, kinds: np.ndarray, row_kinds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of D, ascending, and the matched row of the matrix for each.

        Each row is used once. sizes : (m,), rows of the matrix with larger sizes are matched first,
        and rows of size 0 never. kinds, row_kinds : (m,) and (k,) integers from 0, or bool, of the
        rows of the matrix and of `rows`: two rows are matched only if these are equal.
        """
        usable = np.flatnonzero((sizes > 0) & (self.groups != NOT_FOUND))
        usable = usable[np.argsort(-sizes[usable], kind="stable")]
        count = 1 + int(max(kinds.max(initial=0), row_kinds.max(initial=0)))
        # The first of several equal rows of the matrix gets the first of those of D, and so on.
        keys = _with_occurrence(count * self.groups[usable] + kinds[usable])
        row_keys = _with_occurrence(count * self.row_groups + row_kinds)
        _, matched, matched_rows = np.intersect1d(keys, row_keys, True, return_indices=True)
        order = np.argsort(matched_rows)
        return self.rows[matched_rows[order]], usable[matched[order]]


def matches(D: Dataset, Z: CsrMatrix, features: np.ndarray) -> Matches:
    """Find the rows of Z in D, in one pass over D.

    Z : (m, len(features)) CSR; features: ascending, as written in the file. If the values of D all
    have a float32 that stands for them, those of Z are compared as float32: other programs write
    support vectors with fewer digits.

    Rows are compared by two products with random weights. Equal rows are summed in the same order,
    to the same bits (a stored zero adds nothing). Rows whose products agree are equal, or differ by
    less than rounding, which is good enough to start from their coefficients.
    """
    possible = np.ones(Z.shape[0], bool)
    weights = np.random.Generator(np.random.Philox(0)).standard_normal((D.d, 2))
    dtype: type = np.float64 if D.summary.float64 or D.scaling is not None else np.float32

    def products(X: CsrMatrix) -> np.ndarray:
        # Complex numbers are pairs that numpy sorts.
        return (X @ weights).view(np.complex128)[:, 0]

    Z = Z.astype(dtype, copy=False)
    X, known = rows_over(Z.with_columns(features[Z.indices], FEATURES), D.summary.features)
    row = np.repeat(np.arange(len(possible)), np.diff(Z.indptr))
    # Stored zeros of other features change nothing.
    possible[row[(Z.data != 0) & ~known]] = False
    keys, groups = np.unique(products(X), return_inverse=True)

    def find(shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        own = products(D.chunk_matrix(shard).astype(dtype, copy=False))
        at = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
        rows = np.flatnonzero(keys[at] == own)
        return rows + shard.start, at[rows]

    parts = list(D.map(find)) if len(keys) else [(np.empty(0, np.int64),) * 2]
    rows, found = (np.concatenate(of) for of in zip(*parts, strict=True))
    return Matches(np.where(possible, groups, NOT_FOUND), rows, found)


def _with_occurrence(keys: np.ndarray) -> np.ndarray:
    """Return a distinct number for each key, from the key and the number of equal keys before it.

    keys : (m,) int64, below 2^32.
    """
    order = np.argsort(keys, kind="stable")
    before: np.ndarray = np.empty(len(keys), np.int64)
    before[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
    return (keys.astype(np.int64) << 31) + before
