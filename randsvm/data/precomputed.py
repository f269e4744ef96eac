"""D of a precomputed kernel: a row is its own number in the column of index 0, and K(x, z) in the
column of each number that a row z can have.

So K(x, z) = <x, z> where z has a 1 in the column of its number and nothing else: a sum over
support vectors needs no more of them than their numbers, and rows are read only where they are
passed over. Knows no kernels and no solver.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from randsvm.data.dataset import Dataset
from randsvm.data.points import Points
from randsvm.errors import ContentError


@dataclass(frozen=True)
class SelectedColumns:
    """A FeatureMap that selects columns of rows."""

    numbers: np.ndarray

    @property
    def width(self) -> int:
        return len(self.numbers)

    def values(self, X: sparse.csr_matrix) -> np.ndarray:
        return np.ascontiguousarray(X[:, self.numbers].toarray())


# What a value may differ by from the one across the diagonal, as a share of the largest.
ASYMMETRY = 1e-4
# The column of a row's own number: the index 0 is the least of all.
OWN_NUMBER = SelectedColumns(np.zeros(1, np.int64))


def kernel_centres(D: Dataset, rows: np.ndarray) -> Points:
    """Return rows of D as centres of kernel values. rows : (m,) int64, in any order.

    With a precomputed kernel a centre has a 1 in the column of its number; else it is the row.
    """
    if not D.summary.has_row_numbers:
        return D.points(rows)
    points = D.mapped(OWN_NUMBER).points(rows)
    columns = np.searchsorted(D.summary.features, points.X.data)
    m, ones = len(points), np.ones(len(points), np.float32)
    X = sparse.csr_matrix((ones, columns, np.arange(m + 1)), shape=(m, D.d))
    return replace(points, X=X)


def kernel_values(D: Dataset, points: Points) -> np.ndarray:
    """Return K of every pair of some `kernel_centres`, (m, m) float32, in one pass over their rows.

    Raises ContentError if K(x, z) is not K(z, x).
    """
    m, numbers = len(points), points.X.indices
    values = D.mapped(SelectedColumns(numbers)).points(points.rows).X
    K: np.ndarray = values.data.reshape(m, m)
    off = K - K.T
    if m and off.max() > ASYMMETRY * max(K.max(), -K.min()):
        i, j = np.unravel_index(int(off.argmax()), off.shape)
        one, other = D.summary.features[numbers[[i, j]]]
        raise ContentError(
            f"expected kernel values, which are symmetric, found row number {one} with "
            f"{other}:{K[i, j]:.9g} and row number {other} with {one}:{K[j, i]:.9g}"
        )
    return K
