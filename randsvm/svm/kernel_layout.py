"""Choose the layout of the rows of D for kernel values; compute the values of pairs of rows.

This module does not know coefficients, solvers or files.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from randsvm.arrays import FLOAT64_UNIT, CsrMatrix, Matrix, slices, to_csr
from randsvm.data.dataset import Dataset
from randsvm.data.points import Points
from randsvm.data.shard_executor import Shard
from randsvm.errors import ContentError
from randsvm.kernels._kernels import mirror
from randsvm.kernels.expansion import gram
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import (
    BLOCK_ROWS,
    Cells,
    Layout,
    RowSizes,
    choose_layout,
    largest_sizes,
)
from randsvm.parameters.svm import KernelDefects, Problem
from randsvm.records import record

# The kernel values of up to this many rows are one matrix, under any --memory: 16 bytes a pair of
# rows (268 MB) as LIBSVM reads them. LIBSVM solves these rows from precomputed values, and a
# precomputed kernel is checked to be positive semidefinite (1 to 2 s).
MAX_MATRIX_ROWS = 4096


def kernel_layout_of(D: Dataset, problem: Problem, sample: Points, float64: bool) -> Layout:
    """Return the layout of the rows of D for sums and for kernel values of pairs of rows.

    It is in float32 if its rounding is small, otherwise in float64. With a precomputed kernel sums
    are products with the values of the file, and always in float64.

    sample: rows of D. float64: whether to use float64 in any case.
    """
    kernel, size, sizes = Kernel.of(problem), (D.n, D.d, D.nnz), partial(row_sizes, D)

    def profits(cells: Cells) -> bool:
        def profits_in(shard: Shard) -> bool:
            return cells.profits(D.chunk_matrix(shard), sample.X)

        return next(D.executor.map(profits_in, D.shards[:1]))

    if float64:
        layout = choose_layout(kernel, size, np.float64)
    else:
        layout = choose_layout(
            kernel, size, np.float32, sample=sample.X, sizes=sizes, reads_nonzeros=True,
            profits=profits,
        )  # fmt: skip
    # The choice did not need the sizes: they are still the default.
    if layout.sizes is Layout.sizes:
        layout.sizes = sizes(layout)
    return layout


def row_sizes(D: Dataset, layout: Layout) -> RowSizes:
    """Return the sizes of all rows of D, for the bounds of rounding errors."""

    def sizes(shard: Shard) -> RowSizes:
        if layout.kernel.name == "precomputed":
            rows = D.chunk_matrix(shard)
            values = np.abs(rows.data[D.summary.features[rows.indices] != 0])
            return RowSizes(float(values.max(initial=0.0)), D.d)
        return largest_sizes(sizes_of_rows(D, layout, chunk.X) for chunk in D.chunks(shard))

    return largest_sizes(D.map(sizes))


def sizes_of_rows(D: Dataset, layout: Layout, X: Matrix) -> RowSizes:
    """Return the sizes of some rows of D in a layout, with what their scaling rounds."""
    sizes = layout.sizes_of(X)
    # Features that a `mapping` computes in float32 are taken as they are.
    if D.scaling is None or D.mapping is not None:
        return sizes
    terms, is_rbf = int(np.diff(to_csr(X).indptr).max(initial=0)), layout.kernel.name == "rbf"
    return sizes.after(D.scaling.rounding(sizes.length, terms, is_rbf))


def gram_of(D: Dataset, layout: Layout, points: Points, *, centred: bool) -> np.ndarray:
    """Return K of every pair of some rows of D, (m, m) float32.

    points: the rows, from `kernel_centres`. centred: see gram.
    """
    if layout.kernel.name == "precomputed":
        return kernel_values(D, points).astype(np.float32)
    return gram(layout, points.X, centred=centred)


# ---- precomputed kernels ---------------------------------------------------------------------

# With a precomputed kernel a row has its own number in the column of index 0, and K(x, z) in the
# column of the number of each row z. If z has a 1 in the column of its number and nothing else,
# K(x, z) = <x, z>. So a sum over support vectors needs their numbers only.


@record
class SelectedColumns:
    """A FeatureMap that selects columns of rows."""

    numbers: np.ndarray

    # Kernel values are those of the file: a certificate is about them.
    reads_numbers = True

    @property
    def width(self) -> int:
        return len(self.numbers)

    def values(self, X: CsrMatrix) -> np.ndarray:
        return np.ascontiguousarray(X.columns(self.numbers))


# Largest difference of K(x, z) and K(z, x), as a share of the largest value.
ASYMMETRY = 1e-4
# The column of a row's own number: the index 0 is the least of all.
OWN_NUMBER = SelectedColumns(np.zeros(1, np.int64))


def kernel_centres(D: Dataset, rows: np.ndarray) -> Points:
    """Return rows of D as centres of kernel values, ascending. rows : (m,) int64, in any order.

    With a precomputed kernel a centre has a 1 in the column of its number; else it is the row.
    """
    if not D.summary.has_row_numbers:
        return D.points(rows)
    points = D.mapped(OWN_NUMBER).points(rows)
    columns = np.searchsorted(D.summary.features, points.X.data)
    m, ones = len(points), np.ones(len(points))
    X = CsrMatrix(ones, columns, np.arange(m + 1), (m, D.d))
    return replace(points, X=X)


def kernel_values(D: Dataset, points: Points) -> np.ndarray:
    """Return K of every pair of some `kernel_centres`, (m, m) float64, in one pass over their rows.

    Raises ContentError if K(x, z) is not K(z, x).
    """
    m, numbers = len(points), points.X.indices
    selected, K = D.mapped(SelectedColumns(numbers)), np.empty((m, m))
    # Blocks of rows, so that no second matrix is in memory.
    for block in slices(m, BLOCK_ROWS):
        K[block] = selected.points(points.rows[block]).X.data.reshape(-1, m)
    allowed = ASYMMETRY * max(K.max(initial=0.0), -K.min(initial=0.0))
    for block in slices(m, BLOCK_ROWS):
        off = K[block] - K[:, block].T
        if off.max() > allowed:
            i, j = np.unravel_index(int(off.argmax()), off.shape)
            i += block.start
            one, other = D.summary.features[numbers[[i, j]]]
            raise ContentError(
                f"expected kernel values, which are symmetric, found row number {one} with "
                f"{other}:{K[i, j]:.9g} and row number {other} with {one}:{K[j, i]:.9g}"
            )
    return K


# Rounding of kernel values, as a share of the largest, moves the eigenvalues of n rows by that
# share times sqrt(n). Measured in units of 2^-24 sqrt(n): 0.1 for float64 values kept as float32,
# up to 3 for values computed in float32 (rbf, n = 3,500), 2 to 12 for values with six digits.
PSD_ROUNDING = 2.0**-21

INDEFINITE = "the precomputed kernel is not positive semidefinite, even allowing for rounding"
NOT_CHECKED = (
    f"a precomputed kernel of more than {MAX_MATRIX_ROWS:,} rows is not checked to be positive "
    "semidefinite"
)


# Parts of it that are tried first: the smaller number that is enough, the narrower the bounds.
PARTS_TRIED = 1 / 64, 1 / 8, 1


def kernel_defects(D: Dataset) -> tuple[KernelDefects, str | None]:
    """Return how far the precomputed values in D are from a positive semidefinite matrix, and why
    they are too far, or None.

    They pass if no eigenvalue is below -PSD_ROUNDING sqrt(n) times the largest diagonal value.
    Raises ContentError where the values are not symmetric.
    """
    # Imported here: it takes 30 ms, an eighth of a small training, and no other kernel needs it.
    from scipy.linalg import lapack

    n = D.n
    if n > MAX_MATRIX_ROWS:
        return KernelDefects(shift=np.inf), NOT_CHECKED
    K = kernel_values(D, kernel_centres(D, np.arange(n)))
    asymmetry, diagonal = symmetrise(K), K.diagonal().copy()
    largest = max(float(diagonal.max()), float(np.finfo(np.float32).tiny))
    # A factorisation that succeeds is that of a matrix nearer than n units of its trace (Higham,
    # theorem 10.3). The values are decimal numbers: another few units each.
    rounding = (2 * n + 8) * FLOAT64_UNIT * n * max(largest, float(K.max()), -float(K.min()))
    allowed = PSD_ROUNDING * np.sqrt(n) * largest
    for shift in (rounding, *(part * allowed for part in PARTS_TRIED)):
        K.flat[:: n + 1] = diagonal + shift
        # LAPACK reads columns; the transpose of a symmetric matrix has them in place, without a
        # copy. It overwrites the values above the diagonal of K.
        _, failed = lapack.dpotrf(K.T, lower=True, clean=False, overwrite_a=True)
        if not failed:
            return KernelDefects(asymmetry, shift + rounding), None
        mirror(K, 0, n)
    return KernelDefects(asymmetry, np.inf), INDEFINITE


def symmetrise(K: np.ndarray) -> float:
    """Replace K, (n, n), by its symmetric part; return the largest difference of K and K^T."""
    most = 0.0
    for block in slices(len(K), BLOCK_ROWS):
        at = slice(block.start, len(K))
        off = K[at, block] - K[block, at].T
        most = max(most, float(np.abs(off).max()))
        K[at, block] -= off / 2
    mirror(K, 0, len(K))
    return most
