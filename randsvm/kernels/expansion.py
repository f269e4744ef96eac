"""Compute kernel values block by block, and weighted sums of them.

Every kernel is finish(scale <x, z> + left(x) + right(z)). So one matrix product of augmented rows
gives the arguments of a block, and one in-place function turns them into kernel values:

    linear   <x, z>                      rbf       exp(2 g <x, z> - g |x|^2 - g |z|^2)
    poly     (g <x, z> + r)^d            sigmoid   tanh(g <x, z> + r)

Blocks stay in the second-level cache. Compiled code computes and adds values of RBF over dense rows
without storing them. In float32 it uses the arguments above; if rows have few nonzeros, it reads
only these, also in float64 if rounding is small. Otherwise it uses differences of features in
float64, which lose no digits if rows are far from 0.
This module does not know files, tasks or solutions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from randsvm.arrays import (
    CsrMatrix,
    Matrix,
    csr_parts,
    slices,
    squared_norms,
    to_csr,
    to_dense,
)
from randsvm.errors import ParameterError
from randsvm.kernels._kernels import (
    CELL_CENTRES,
    CELL_ROWS,
    PANEL_CENTRES,
    PANEL_COLUMNS,
    add_difference_sums,
    add_rbf_sums,
    add_sparse_sums,
    add_squared_distances,
    add_sums_of_cells,
    lay_out_cells,
    lay_out_panels,
    lay_out_rows,
    sort_into_cells,
    sparse_arguments,
)
from randsvm.kernels.kernel import Kernel

# ---- sums over some centres ------------------------------------------------------------------

# A float32 block of 256 x 1,024 kernel values is 1 MB: it stays in the L2 cache between the
# matrix product, the in-place function and the sum.
BLOCK_ROWS = 256
BLOCK_CENTRES = 1024
# The largest rounding error of an exponent from float64 products of rows. If the error may be
# larger, the exponent is computed from differences, which takes several times as long.
ROUNDING = 1e-12


class SparseRows(NamedTuple):
    """The arguments of compiled sums: rows in CSR, and `left` of each row, in one precision."""

    starts: np.ndarray
    features: np.ndarray
    values: np.ndarray
    left: np.ndarray


@dataclass(frozen=True)
class LayoutRows:
    """Rows in a KernelLayout.

    X : (m, d), dense float64 or CSR; norms, extra : (m,) float64. extra: squared norm of features
    outside X, a part of norms.
    """

    X: Any
    norms: np.ndarray
    extra: np.ndarray

    def __getitem__(self, block: slice) -> LayoutRows:
        return LayoutRows(self.X[block], self.norms[block], self.extra[block])


class CentreSum(Protocol):
    """The sums over some of the centres of an expansion."""

    def add(self, u: np.ndarray, rows: Any, largest: float, buffer: np.ndarray) -> object:
        """Add the sums to u.

        u : (n,) or (n, K); rows: as the layout converts them; largest: their largest squared norm;
        buffer: room for a block of kernel values.
        """


class BlockSum:
    """Sums by blocks of kernel values in the cache: product, finish, and product with beta."""

    def __init__(
        self, kernel: Kernel, centres: DenseCentres | SparseCentres, beta: np.ndarray
    ) -> None:
        self.kernel, self.centres, self.beta = kernel, centres, beta

    def add(self, u: np.ndarray, rows: Any, largest: float, buffer: np.ndarray) -> None:
        """Add the sums to u, see CentreSum."""
        for at in slices(len(u), BLOCK_ROWS):
            block = buffer[: (at.stop - at.start) * len(self.beta)].reshape(at.stop - at.start, -1)
            self.centres.arguments(rows if len(u) <= BLOCK_ROWS else rows[at], block, largest)
            self.kernel.finish(block, largest)
            u[at] += block @ self.beta


class DenseRbfSum:
    """Sums of RBF over dense float32 rows: one compiled loop, values stay in registers."""

    def __init__(self, centres: np.ndarray, beta: np.ndarray) -> None:
        self.panels, self.beta = to_panels(centres), _columns(beta, np.float32)

    def add(self, u: np.ndarray, rows: np.ndarray, largest: float, buffer: np.ndarray) -> None:
        """Add the sums to u, see CentreSum."""
        add_rbf_sums(rows, self.panels, self.beta, u.reshape(len(u), -1))


class SparseRbfSum:
    """Sums of RBF over sparse rows: one compiled loop over the features of each row.

    rows : (m, d), the centres; beta : (m,) or (m, K).
    """

    def __init__(self, kernel: Kernel, dtype: type, rows: CsrMatrix, beta: np.ndarray) -> None:
        m, d = rows.shape
        self.panels: np.ndarray = np.empty((-(-m // PANEL_CENTRES), d + 1, PANEL_CENTRES), dtype)
        right = kernel.right(squared_norms(rows))
        lay_out_panels(*csr_parts(rows), kernel.scale, right, self.panels)
        self.beta = _columns(beta, dtype)

    def add(self, u: np.ndarray, rows: SparseRows, largest: float, buffer: np.ndarray) -> None:
        """Add the sums to u, see CentreSum."""
        u = u.reshape(len(u), -1)
        for at in slices(len(self.beta), PANEL_COLUMNS):
            some = np.zeros((len(u), at.stop - at.start))
            add_sparse_sums(*rows, self.panels, self.beta[at], some)
            u[:, at] += some


class Float64RbfSum:
    """Sums of RBF over dense float64 rows: one compiled loop over the differences of each pair."""

    def __init__(self, gamma: float, centres: np.ndarray, beta: np.ndarray) -> None:
        self.gamma, self.panels = gamma, to_panels(centres)
        self.beta = _columns(beta, np.float64)

    def add(self, u: np.ndarray, rows: np.ndarray, largest: float, buffer: np.ndarray) -> None:
        """Add the sums to u, see CentreSum."""
        u = u.reshape(len(u), -1)
        for at in slices(len(self.beta), PANEL_COLUMNS):
            some = np.zeros((len(u), at.stop - at.start))
            add_difference_sums(rows, self.panels, self.beta[at], self.gamma, some)
            u[:, at] += some


def to_panels(centres: np.ndarray) -> np.ndarray:
    """Return centres (m, d) as panels (count, d, PANEL_CENTRES), features side by side."""
    m, d = centres.shape
    count = -(-m // PANEL_CENTRES)
    # Unused places repeat the last centre. With zeros there, a row whose values overflow to
    # infinity would give 0 times infinity, which is nan.
    padded = centres[np.minimum(np.arange(count * PANEL_CENTRES), m - 1)]
    panels = padded.reshape(count, PANEL_CENTRES, d).transpose(0, 2, 1)
    return np.ascontiguousarray(panels)


def _columns(beta: np.ndarray, dtype: type) -> np.ndarray:
    """Return beta, (m,) or (m, K), as (K, m), padded with 0 to whole panels."""
    m = len(beta)
    columns = np.zeros((beta[0].size, -(-m // PANEL_CENTRES) * PANEL_CENTRES), dtype)
    columns[:, :m] = beta.reshape(m, -1).T
    return columns


class DenseCentres:
    """Centres z_j as augmented rows [scale z, right, 1]."""

    def __init__(self, kernel: Kernel, dtype: type, Z: LayoutRows) -> None:
        right = kernel.right(Z.norms)
        self.rows = augment(Z.X * kernel.scale, right, np.ones(len(right)), dtype)

    def arguments(self, augmented: np.ndarray, block: np.ndarray, largest: float) -> None:
        np.matmul(augmented, self.rows.T, out=block)


class SparseCentres:
    """Centres z_j by columns, times scale; also by rows if float64 may need differences."""

    def __init__(self, kernel: Kernel, dtype: type, Z: LayoutRows) -> None:
        self.kernel = kernel
        self.rows: CsrMatrix = Z.X
        self.columns = self.rows.with_data(self.rows.data * dtype(kernel.scale)).by_columns()
        self.right: np.ndarray = kernel.right(Z.norms).astype(dtype)
        self.exact = kernel.name == "rbf" and dtype is np.float64
        self.largest = float(Z.norms.max(initial=0.0))

    def arguments(
        self,
        prepared: tuple[CsrMatrix, np.ndarray, np.ndarray],
        block: np.ndarray,
        largest: float,
    ) -> None:
        X, left, extra = prepared
        size = self.kernel.gamma * max(largest, self.largest)
        if self.exact and size * np.finfo(np.float64).eps > ROUNDING:
            block[:] = extra[:, None]
            add_squared_distances(*csr_parts(X), *csr_parts(self.rows), block)
            block *= -self.kernel.gamma
            return
        starts, rows, values = self.columns
        sparse_arguments(*csr_parts(X), starts, rows, values, left, self.right, block)


def augment(X: np.ndarray, one: np.ndarray, other: np.ndarray, dtype: type) -> np.ndarray:
    """Return [X, one, other] as one contiguous array of dtype."""
    out = np.empty((X.shape[0], X.shape[1] + 2), dtype)
    out[:, :-2] = X
    out[:, -2] = one
    out[:, -1] = other
    return out


# ---- sums over the centres near a cell of rows ----------------------------------------------

# Rows are sorted by a k-d split into cells of a few dozen. A centre takes part in the sums of a
# cell only if it is nearer to the cell's bounding box than a limit: the values that are left out
# are below exp(-cutoff).

# The largest numbers of rows and of dense values that are sorted into cells together. A chunk has
# at most SLICE_ROWS rows.
SLICE_ROWS = 8192
SLICE_VALUES = 1 << 21
# Centres in a vector of the compiled code.
LANES = 16


def rows_per_slice(d: int) -> int:
    """Return the number of rows of d features that are sorted into cells together."""
    return max(CELL_ROWS, min(SLICE_ROWS, SLICE_VALUES // max(d, 1)))


def sort_rows(x: np.ndarray, w: int) -> np.ndarray:
    """Return the order in which each CELL_ROWS consecutive rows form a cell; (m,) uint16.

    x : (m, w or more) float32, of which the first w features count; m <= SLICE_ROWS.
    """
    places: np.ndarray = np.arange(len(x), dtype=np.uint16)
    sort_into_cells(x, w, places, np.empty(2 * w + len(x), np.float32))
    return places


@dataclass(frozen=True)
class CellRows:
    """Rows sorted into cells.

    order : (m,) uint16, the position of each row before sorting; panels : (m / 32 rounded up, d,
    32) float32, the features of 32 rows side by side; lower, upper : (m / CELL_ROWS rounded up, w)
    float32, the bounding boxes.
    """

    order: np.ndarray
    panels: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @staticmethod
    def of(x: np.ndarray, w: int, order: np.ndarray) -> CellRows:
        """Return rows in cells. x : (m, d) float32, augmented, with w features; order: of
        sort_rows."""
        m, d = x.shape
        panels = np.empty((-(-m // PANEL_CENTRES), d, PANEL_CENTRES), np.float32)
        lower: np.ndarray = np.empty((-(-m // CELL_ROWS), w), np.float32)
        upper = np.empty_like(lower)
        lay_out_cells(x, order, panels, lower, upper)
        return CellRows(order, panels, lower, upper)

    @property
    def nbytes(self) -> int:
        arrays = (self.order, self.panels, self.lower, self.upper)
        return sum(array.nbytes for array in arrays)


class CellRbfSum:
    """Sums of RBF over some centres, for rows in cells.

    centres : (m, d) float32, augmented; Z : (m, w), their features; beta : (m,) or (m, K); limit:
    the squared distance from a box at which a centre is left out.
    """

    def __init__(self, centres: np.ndarray, Z: np.ndarray, beta: np.ndarray, limit: float) -> None:
        m, w = Z.shape
        assert m <= CELL_CENTRES
        self.centres, self.limit = centres, limit
        self.columns = np.zeros((w, -(-m // LANES) * LANES), np.float32)
        self.columns[:, :m] = Z.T
        flat = beta.reshape(m, -1).astype(np.float32)
        parts = slices(flat.shape[1], PANEL_COLUMNS)
        self.beta = [(at, np.ascontiguousarray(flat[:, at])) for at in parts]

    def add(self, u: np.ndarray, rows: CellRows, largest: float, buffer: np.ndarray) -> int:
        """Add the sums to u; return the number of kernel values in each sum."""
        u, kept = u.reshape(len(u), -1), 0
        room = np.empty(len(self.columns) * (CELL_CENTRES + 2), np.float32)
        for at, beta in self.beta:
            some = np.zeros((len(u), beta.shape[1]))
            kept = add_sums_of_cells(
                rows.panels, rows.lower, rows.upper, rows.order,
                self.centres, self.columns, beta, self.limit, some, room,
            )  # fmt: skip
            u[:, at] += some
        return kept


# ---- layouts and expansions ------------------------------------------------------------------

# Up to this number of features, compiled sums of RBF are faster than matrix product, exp and
# product: measured 2.8 times at 2 features, 1.8 at 200, 1.6 at 800, as fast at 1,600. They are
# still 1.6 times as fast for PANEL_COLUMNS sums over the same values, and slower for 50.
PANEL_FEATURES = 1024
# With fewer features than this, sums go over all features, even if rows have few nonzeros.
MIN_FEATURES = 16
# Most rows of one call of compiled sums; fewer with many features.
PANEL_ROWS = 4096
# Cells are used if at most this share of the kernel values remains in the sums: measured, the same
# number of values takes a seventh longer in cells.
PROFITABLE = 0.8
# Number of values of rows that are laid out at once (4 MB in float64).
LAID_OUT = 1 << 19


@dataclass(frozen=True)
class KernelLayout:
    """The layout of rows for kernel blocks.

    dense: rows become dense blocks (few features); else they stay sparse.
    centre: (d,) float64, subtracted from rows for RBF, which leaves the kernel unchanged. It makes
    the rounding of dense rows smaller, and the nonzeros of rows fewer, see `usual_values`. None:
    nothing is subtracted.
    dtype: of the blocks, float32 or float64.
    cutoff: RBF values below exp(-cutoff) may be left out of float32 sums over dense rows, which are
    then sorted into cells (see CellRows). None: nothing is left out.
    uses_nonzeros: whether sums of RBF go over the nonzeros of a row only: for dense layouts of rows
    with few nonzeros. In float64, exponents are then sums of products, not of differences: their
    rounding must be below ROUNDING.
    """

    kernel: Kernel
    dense: bool
    centre: np.ndarray | None
    dtype: type
    cutoff: float | None = None
    uses_nonzeros: bool = False

    @property
    def uses_differences(self) -> bool:
        """Return whether exponents come from differences; rows are not centred then."""
        is_float64 = self.dtype is np.float64 and not self.uses_nonzeros
        return self.kernel.name == "rbf" and self.dense and is_float64

    def sums_nonzeros(self, d: int) -> bool:
        """Return whether sums over rows of d features use the compiled code for nonzeros."""
        return self.uses_nonzeros and self.kernel.name == "rbf" and d <= PANEL_FEATURES

    def uses_cells(self, d: int) -> bool:
        """Return whether rows of d features are sorted into cells."""
        return self.cutoff is not None and d > 0 and self.is_compiled(d) and not self.uses_nonzeros

    def nonzeros(self, X: Matrix) -> CsrMatrix:
        """Return the rows of X less the centre, as a CSR matrix of the precision of the layout."""
        rows = to_csr(X)
        if self.centre is None or not self.centre.any():
            return rows.astype(self.dtype, copy=False)
        return rows.minus(self.centre, self.dtype)

    def convert(self, X: Matrix, extra: np.ndarray | None = None) -> LayoutRows:
        """Return X in this layout. extra : (m,) squared norm of features outside X."""
        more = np.zeros(X.shape[0]) if extra is None else extra
        if not self.dense:
            X = to_csr(X)
            return LayoutRows(X.astype(self.dtype), squared_norms(X) + more, more)
        dense = to_dense(X).astype(np.float64)
        if self.centre is not None and not self.uses_differences:
            dense -= self.centre
        return LayoutRows(dense, np.einsum("ij,ij->i", dense, dense) + more, more)

    def left_operand(self, X: LayoutRows) -> Any:
        """Return the left operand of a block.

        It is the augmented rows [x, 1, left]; for differences [x, extra]; for a sparse layout the
        rows in CSR, left and extra.
        """
        if self.uses_differences:
            return np.column_stack([X.X, X.extra])
        left = self.kernel.left(X.norms)
        if self.dense:
            return augment(X.X, np.ones(len(left)), left, self.dtype)
        return X.X, left.astype(self.dtype), X.extra

    def lay_out(self, X: Matrix, extra: np.ndarray | None = None) -> tuple[Any, np.ndarray]:
        """Return the `left_operand` of X, and the squared norm of each row, (m,) float64."""
        d = X.shape[1]
        if not self.is_compiled(d) or isinstance(X, np.ndarray) or d == 0:
            rows = self.convert(X, extra)
            return self.left_operand(rows), rows.norms
        norms = np.zeros(X.shape[0]) if extra is None else np.array(extra, np.float64)
        x = np.empty((X.shape[0], d + 2), np.float32)
        centre = np.zeros(d) if self.centre is None else self.centre
        lay_out_rows(*csr_parts(X), centre, norms, self.kernel.gamma, x, np.empty(d))
        return x, norms

    def cell_order(self, X: Matrix) -> np.ndarray:
        """Return the order of the rows of X in cells, for `row_blocks`; (m,) uint16.

        Each slice of `rows_per_slice` rows is sorted separately.
        """
        d = X.shape[1]
        parts = slices(X.shape[0], rows_per_slice(d))
        orders = [sort_rows(self.lay_out(X[part])[0], d) for part in parts]
        return np.concatenate([np.empty(0, np.uint16), *orders])

    def row_blocks(
        self, X: Matrix, extra: np.ndarray | None = None, cells: np.ndarray | None = None
    ) -> Iterator[RowBlock]:
        """Yield blocks of rows in the layout of sums; a block stays in the cache.

        cells: the `cell_order` of X; None: computed if needed.
        """
        d = max(X.shape[1], 1)
        if self.uses_cells(X.shape[1]):
            yield from self._cell_blocks(X, extra, cells)
            return
        if self.sums_nonzeros(X.shape[1]):
            yield from self._sparse_blocks(X, extra)
            return
        size = (
            max(BLOCK_ROWS, min(PANEL_ROWS, LAID_OUT // d)) if self.is_compiled(d) else BLOCK_ROWS
        )
        # One call lays out many blocks: with few centres a call costs more than the kernel values.
        for part in slices(X.shape[0], max(1, LAID_OUT // (size * d)) * size):
            rows, norms = self.lay_out(X[part], None if extra is None else extra[part])
            for at in slices(len(norms), size):
                place = slice(part.start + at.start, part.start + at.stop)
                piece = tuple(each[at] for each in rows) if type(rows) is tuple else rows[at]
                yield place, piece, float(norms[at].max())

    def _cell_blocks(
        self, X: Matrix, extra: np.ndarray | None, cells: np.ndarray | None
    ) -> Iterator[RowBlock]:
        d = X.shape[1]
        for part in slices(X.shape[0], rows_per_slice(d)):
            rows, norms = self.lay_out(X[part], None if extra is None else extra[part])
            order = sort_rows(rows, d) if cells is None else cells[part]
            yield part, CellRows.of(rows, d, order), float(norms.max())

    def _sparse_blocks(self, X: Matrix, extra: np.ndarray | None) -> Iterator[RowBlock]:
        for part in slices(X.shape[0], PANEL_ROWS):
            rows = self.nonzeros(X[part])
            norms = squared_norms(rows) + (0.0 if extra is None else extra[part])
            left: np.ndarray = self.kernel.left(norms).astype(self.dtype)
            # Copied: a chunk is valid until its thread reads the next, but blocks are kept.
            starts, features, values = (np.array(each) for each in csr_parts(rows))
            kept = SparseRows(starts, features, values, left)
            yield part, kept, float(norms.max(initial=0.0))

    def is_compiled(self, d: int) -> bool:
        """Return whether sums over rows of d features use the compiled float32 code for RBF."""
        fits = d <= PANEL_FEATURES
        return self.kernel.name == "rbf" and self.dtype is np.float32 and self.dense and fits

    def right_operand(self, Z: LayoutRows) -> DenseCentres | SparseCentres:
        """Return the right operand of a block."""
        return (
            DenseCentres(self.kernel, self.dtype, Z)
            if self.dense
            else SparseCentres(self.kernel, self.dtype, Z)
        )

    def centre_sum(self, centres: Matrix, beta: np.ndarray) -> CentreSum:
        """Return the sums over centres, (m, d). beta : (m,) or (m, K) float64."""
        if self.sums_nonzeros(centres.shape[1]):
            return SparseRbfSum(self.kernel, self.dtype, self.nonzeros(centres), beta)
        Z = self.convert(centres)
        if self.uses_differences:
            return Float64RbfSum(self.kernel.gamma, Z.X, beta)
        if self.uses_cells(Z.X.shape[1]):
            assert self.cutoff is not None
            limit = self.cutoff / self.kernel.gamma if self.kernel.gamma > 0 else np.inf
            return CellRbfSum(DenseCentres(self.kernel, self.dtype, Z).rows, Z.X, beta, limit)
        if self.is_compiled(Z.X.shape[1]) and beta[0].size <= PANEL_COLUMNS:
            return DenseRbfSum(DenseCentres(self.kernel, self.dtype, Z).rows, beta)
        return BlockSum(self.kernel, self.right_operand(Z), beta.astype(self.dtype))


# Rows in the layout of sums: their positions, the left operand, and their largest squared norm.
RowBlock: TypeAlias = "tuple[slice, Any, float]"


def row_block_bytes(piece: RowBlock) -> int:
    """Return the memory of a block of rows in bytes."""
    rows = piece[1]
    parts = rows if isinstance(rows, tuple) else (rows,)
    return sum(part.nbytes for part in parts)


def profits_from_cells(kernel_layout: KernelLayout, X: Matrix, Z: Matrix, sums: int = 1) -> bool:
    """Return whether a layout with a cutoff is faster than one without.

    It counts the values of K(X, Z) that remain in the sums of cells. X: a chunk; Z: up to
    BLOCK_CENTRES rows from all over D. sums: the number of sums over the same kernel values.
    """
    if not kernel_layout.uses_cells(X.shape[1]) or 0 in (X.shape[0], Z.shape[0]):
        return False
    centres = kernel_layout.centre_sum(Z, np.zeros(Z.shape[0]))
    assert isinstance(centres, CellRbfSum)
    u = np.zeros(X.shape[0])
    kept = sum(centres.add(u[at], rows, 0.0, u) for at, rows, _ in kernel_layout.row_blocks(X))
    # Cells compute values once more for each PANEL_COLUMNS sums.
    return kept * -(-sums // PANEL_COLUMNS) < PROFITABLE * X.shape[0] * Z.shape[0]


def prefers_dense(n: int, d: int, nnz: int) -> bool:
    """Return whether dense blocks are faster: few features, or rows with many nonzeros.

    Measured per kernel value: a dense product takes about d / 50 ns, a sparse one a few ns for
    every feature that two rows share.
    """
    return d <= 64 or (d <= 4096 and nnz > 0.02 * n * d)


def has_few_nonzeros(kernel: Kernel, n: int, d: int, nnz: int) -> bool:
    """Return whether compiled sums of RBF are faster over the nonzeros of rows.

    Measured time of a kernel value, over all features and over the nonzeros of a row: 1.2 and
    0.5 ns with 12 nonzeros of 53 features, 2.8 and 0.6 ns with 14 of 139, 9.6 and 1.9 ns with 35 of
    506. If half of the values are nonzeros, sums over the nonzeros are as fast with 139 features,
    and a third slower with 506.
    """
    return kernel.name == "rbf" and MIN_FEATURES <= d <= PANEL_FEATURES and nnz <= n * d / 3


def usual_values(X: CsrMatrix) -> np.ndarray:
    """Return the most frequent value of each feature, (d,) float64; 0 unless it is more frequent
    than 0.

    X : (m, d) CSR, a sample of rows. Rows minus these values have the fewest nonzeros: 24 instead
    of 35 in Census-Income, 10 instead of 14 in a9a.
    """
    starts, _, values = X.by_columns()
    centre = np.zeros(X.shape[1])
    for feature in np.flatnonzero(2 * np.diff(starts) > X.shape[0]):
        found, counts = np.unique(values[starts[feature] : starts[feature + 1]], return_counts=True)
        most = int(counts.argmax())
        if counts[most] > X.shape[0] - counts.sum():
            centre[feature] = found[most]
    return centre


class Expansion:
    """The function u(x) = sum_j beta_j K(z_j, x).

    Z : (m, d) CSR, the centres z_j; beta : (m,) float64, or (m, K) for K sums over the same kernel
    values. The expansion holds a copy of Z in its layout. `values` also holds a few thousand rows
    in the layout, and one block of kernel values if the sums are not compiled. Threads may share
    it.
    """

    def __init__(self, kernel_layout: KernelLayout, Z: CsrMatrix, beta: np.ndarray) -> None:
        self.kernel_layout = kernel_layout
        self.count, self.sum_shape = len(beta), beta.shape[1:]
        kernel = kernel_layout.kernel
        if kernel.linear:
            # A linear expansion is one vector: w = sum_j beta_j z_j.
            self.weights = Z.column_products(beta)
            return
        with np.errstate(over="ignore"):  # `values` raises an error if the result is infinite
            self.centre_sums = [
                kernel_layout.centre_sum(Z[at], beta[at])
                for at in slices(self.count, BLOCK_CENTRES)
            ]

    @staticmethod
    def of(kernel: Kernel, Z: CsrMatrix, beta: np.ndarray, dtype: type = np.float64) -> Expansion:
        """Return an expansion in the layout that suits Z, without centring."""
        m, d = Z.shape
        return Expansion(KernelLayout(kernel, prefers_dense(m, d, Z.nnz), None, dtype), Z, beta)

    def values(self, X: Matrix, extra: np.ndarray | None = None) -> np.ndarray:
        """Return u of each row, (n,) or (n, K) float64, summed in float64 over blocks.

        X : (n, d) CSR or array; extra : (n,) float64, squared norms of features outside X.

        Raises ParameterError if a value leaves float64.
        """
        return evaluate_expansions([self], X, extra)[0]

    def add(self, u: np.ndarray, pieces: Iterable[RowBlock]) -> None:
        """Add the sums for blocks of rows to u; not for the linear kernel."""
        buffer: np.ndarray = np.empty(BLOCK_ROWS * BLOCK_CENTRES, self.kernel_layout.dtype)
        for at, prepared, largest in pieces:
            for each in self.centre_sums:
                each.add(u[at], prepared, largest, buffer)


def evaluate_expansions(
    expansions: Sequence[Expansion], X: Matrix, extra: np.ndarray | None = None
) -> np.ndarray:
    """Return the `values` of each expansion along a new first axis; rows are laid out once.

    The expansions have the same layout and the same number of sums.
    """
    kernel_layout = expansions[0].kernel_layout
    u = np.zeros((len(expansions), X.shape[0], *expansions[0].sum_shape))
    with np.errstate(over="ignore", invalid="ignore"):
        if kernel_layout.kernel.linear:
            for each, of_each in zip(expansions, u, strict=True):
                of_each[:] = X @ each.weights
        else:
            for piece in kernel_layout.row_blocks(X, extra):
                for each, of_each in zip(expansions, u, strict=True):
                    each.add(of_each, [piece])
    if not np.isfinite(u).all():
        raise ParameterError(
            f"values of the {kernel_layout.kernel.name} kernel leave float64 on this data: "
            f"scale the features"
        )
    return u
