"""Layouts of rows in memory for fast kernel values and sums of them, and the choice of one.

The sums are over centres z, such as support vectors, for each row x.

Every kernel is finish(scale <x, z> + left(x) + right(z)). So one matrix product of augmented rows
gives the arguments of a block, and one in-place function turns them into kernel values:

    linear   <x, z>                      rbf       exp(2 g <x, z> - g |x|^2 - g |z|^2)
    poly     (g <x, z> + r)^d            sigmoid   tanh(g <x, z> + r)

Blocks serve all kernels. The other layouts serve rbf by compiled code, which does not store values
that are only summed: Dense by products in float32 and by differences of features in float64, which
lose no digits if rows are far from 0; Cells by products in float32, and Nonzeros by those of the
nonzeros of a row. This module does not know files, tasks or solutions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from randsvm.arrays import (
    FLOAT32_UNIT,
    FLOAT64_UNIT,
    CsrMatrix,
    Matrix,
    column_sums,
    csr_parts,
    slices,
    squared_norms,
    to_csr,
    to_dense,
)
from randsvm.kernels._kernels import (
    CELL_ROWS,
    DENSE_PANELS,
    PANEL_CENTRES,
    PANEL_COLUMNS,
    SPARSE_PANELS,
    add_sums_of_cells,
    dense_rbf,
    lay_out_panels,
    mirror,
    sort_into_cells,
    sparse_arguments,
    sparse_rbf,
    squared_distances,
)
from randsvm.kernels.kernel import ROUNDING, Kernel

# A float32 block of 256 x 1,024 kernel values is 1 MB: it stays in the L2 cache between the
# matrix product, the in-place function and the sum.
BLOCK_ROWS = 256
BLOCK_CENTRES = 1024
# A float64 block of a symmetric matrix: 512 kB.
GRAM_ROWS = 256
# Up to this number of features, compiled sums of RBF are faster than matrix product, exp and
# product: measured 2.8 times at 2 features, 1.8 at 200, 1.6 at 800, as fast at 1,600. They are
# still 1.6 times as fast for PANEL_COLUMNS sums over the same values, and slower for 50.
PANEL_FEATURES = 1024
# With more features than this, products are faster than differences in float64: measured with AVX2
# 16 and 11 ns a kernel value with 128 features, 148 and 73 ns with 1,176.
DIFFERENCES = 64
# With fewer features than this, sums go over all features, even if rows have few nonzeros.
MIN_FEATURES = 16
# Most rows of one call of compiled sums; fewer with many features: LAID_OUT values (4 MB in
# float64).
PANEL_ROWS = 4096
LAID_OUT = 1 << 19
# Float32 numbers in a vector of the compiled code.
LANES = 16

# What compiled code fills: (K, None, None) with kernel values, or (None, beta, u), where it adds
# the sums of kernel values with coefficients beta to u.
Sink: TypeAlias = "tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]"
# Rows as `Layout.rows` lays them out: their positions and arrays.
RowBlock: TypeAlias = "tuple[slice, Any]"


def bytes_of(laid_out: Any) -> int:
    """Return the memory of rows or centres in a layout, in bytes: arrays in tuples."""
    if isinstance(laid_out, tuple):
        return sum(map(bytes_of, laid_out))
    return 0 if laid_out is None else int(laid_out.nbytes)


class RowSizes(NamedTuple):
    """Sizes of some rows, from which the rounding of their kernel values is bounded.

    norm: the largest |x|^2 in a layout, after its centre is subtracted, or |K| of precomputed
    kernels. terms: the most products of one pair of rows. length: the largest |x| before that, as
    the file has the rows; 0 if their features are exact. moved: half of how much the difference of
    two rows may be rounded beside that, see `after`.
    """

    norm: Any = 0.0
    terms: Any = 0
    length: float = 0.0
    moved: float = 0.0

    def after(self, moved: float) -> RowSizes:
        """Return the sizes of rows that scaling moved so far by its rounding."""
        norm, length = (math.sqrt(self.norm) + moved) ** 2, self.length + moved
        return RowSizes(norm, self.terms, length, moved)


def largest_sizes(sizes: Iterable[RowSizes]) -> RowSizes:
    """Return the largest of each size."""
    return RowSizes(*map(max, zip(*sizes, strict=True)))


class Layout:
    """How rows and centres are laid out for kernel values, and how values are computed.

    `rows` and `centres` lay out; `add` computes sums of kernel values, `values` the values
    themselves, and `gram` those of every pair of rows.

    dtype: of kernel values and of their sums over BLOCK_CENTRES centres, float32 or float64.
    centre: (d,) float64, subtracted from rows for rbf, which leaves the kernel unchanged. It makes
    the rounding of dense rows smaller, and the nonzeros of rows fewer, see `usual_values`. None:
    nothing is subtracted.
    sizes: of the rows that the layout is for, where bounds of rounding are needed
    """

    # Defaults of all layouts. `sizes` and `has_few_nonzeros` are set for one layout where it is
    # chosen.
    sizes = RowSizes()
    # Whether each product reads all features.
    is_dense = True
    # Whether Nonzeros are faster in float64.
    has_few_nonzeros = False
    # Whether the products of a pair of rows are added one after another, and norms after them.
    adds_norms_last = False
    # Values of rbf below this may be missing in sums.
    left_out = 0.0

    def __init__(self, kernel: Kernel, dtype: type, centre: np.ndarray | None = None) -> None:
        self.kernel, self.dtype, self.centre = kernel, dtype, centre

    @property
    def in_float64(self) -> Layout:
        """The layout of the same rows with values and sums in float64, for some rows."""
        if self.dtype is np.float64:
            return self
        kind, centre, sizes = type(self), self.centre, self.sizes
        if self.is_dense and self.kernel.name == "rbf":
            # Differences of features need no centre, so norms are those of rows in the file.
            exact = sizes._replace(norm=sizes.length**2)
            if self.has_few_nonzeros:
                kind, centre, sizes = Nonzeros, None, exact
            elif sizes.terms > DIFFERENCES and self.kernel.has_exact_products(sizes.norm):
                kind = Blocks
            else:
                kind, centre, sizes = Dense, None, exact
        layout = kind(self.kernel, np.float64, centre)
        layout.sizes = sizes
        return layout

    @property
    def of_all_in_float64(self) -> Layout:
        """The layout of the same rows in float64, for sums over all rows."""
        return self.in_float64

    def additions(self, centres: int, sums: int) -> int:
        """Return the most additions that a kernel value goes through in the precision of the layout
        within a block of centres; the sums of blocks are added in float64.

        sums: the number of sums over the same kernel values.
        """
        return min(centres, BLOCK_CENTRES)

    def exponents(self, norm: Any, terms: Any) -> tuple[Any, Any]:
        """Return the largest exponent of rbf among those from products of features, and the number
        of terms of those from differences of features.

        The number is 0 if all exponents come from products. norm, terms: see RowSizes.
        """
        # (|x| + |z|)^2 <= 4 norm
        return 4 * self.kernel.gamma * norm, 0

    def sizes_of(self, X: Matrix) -> RowSizes:
        """Return the sizes of some rows."""
        found = [RowSizes(0.0, X.shape[1])]
        for at in slices(X.shape[0], BLOCK_ROWS):
            norms, length = self.squared_norms(X[at]), float(squared_norms(X[at]).max()) ** 0.5
            found.append(RowSizes(float(norms.max()), X.shape[1], length))
        return largest_sizes(found)

    def sizes_of_pairs(self, X: Matrix) -> RowSizes:
        """Return sizes of each row, of its pairs with any centre: arrays (m,).

        norm: ((|x| + |z|) / 2)^2 with the largest |z|, so that 4 norm bounds (|x| + |z|)^2
        """
        norms = self.squared_norms(X)
        norm = ((np.sqrt(norms) + self.sizes.moved + math.sqrt(self.sizes.norm)) / 2) ** 2
        return self.sizes._replace(norm=norm)

    def rows(self, X: Matrix) -> Iterator[RowBlock]:
        """Yield blocks of rows that stay in the cache. X : (m, d) CSR or array."""
        for at in slices(X.shape[0], self.rows_at_once(X.shape[1])):
            yield at, self.lay_out(X[at])

    def rows_at_once(self, d: int) -> int:
        """Return the number of rows of d features in a block."""
        return max(BLOCK_ROWS, min(PANEL_ROWS, LAID_OUT // max(d, 1)))

    def lay_out(self, X: Matrix) -> Any:
        """Return a block of rows; here dense ones, [x, 1, left], (m, d + 2)."""
        x = self.centred(X)
        return _beside(self.dtype, x, np.ones(len(x)), self.kernel.left(squared_norms(x)))

    def some(self, rows: Any, at: slice) -> Any:
        """Return some rows of a block."""
        return rows[at]

    def centres(self, Z: Matrix, beta: np.ndarray | None = None) -> Any:
        """Return centres laid out, and their coefficients.

        Z : (m, d), m <= BLOCK_CENTRES for sums; beta : (m,) or (m, K) float64, the coefficients of
        sums. Without beta the features are scaled in the precision of the layout.
        """
        raise NotImplementedError

    def augmented_centres(self, Z: Matrix, precision: type = np.float64) -> np.ndarray:
        """Return dense centres as [scale z, right, 1], (m, d + 2). precision: of the scaling."""
        z = self.centred(Z)
        right = self.kernel.right(squared_norms(z))
        scaled = z.astype(precision, copy=False) * self.kernel.scale
        return _beside(self.dtype, scaled, right, np.ones(len(z)))

    def add(self, u: np.ndarray, rows: Any, centres: Any) -> None:
        """Add the sums over the centres to u, (n,) or (n, K) float64."""
        beta = centres[-1]
        for at in slices(len(u), max(1, BLOCK_ROWS * BLOCK_CENTRES // len(beta))):
            block: np.ndarray = np.empty((at.stop - at.start, len(beta)), self.dtype)
            self.store(self.some(rows, at), centres, block)
            u[at] += block @ beta

    def values(self, X: Matrix, Z: Matrix) -> np.ndarray:
        """Return K(x_i, z_j), (m, k) in the precision of the layout."""
        centres = self.centres(Z)
        K: np.ndarray = np.empty((X.shape[0], Z.shape[0]), self.dtype)
        for at, rows in self.rows(X):
            self.store(rows, centres, K[at])
        return K

    def store(self, rows: Any, centres: Any, K: np.ndarray) -> None:
        """Store the kernel values of rows and centres in K, of the precision of the layout; the
        values of a row of K are adjacent."""
        raise NotImplementedError

    def gram(self, X: Matrix, dtype: type) -> np.ndarray:
        """Return the kernel values of every pair of rows, (m, m), as float32 or float64."""
        K: np.ndarray = np.empty((X.shape[0], X.shape[0]), dtype)
        rows = self.lay_out(X)
        for at in slices(len(K), GRAM_ROWS):
            others = slice(at.start, len(K))
            part = K[others, at]
            block = part if dtype is self.dtype else np.empty(part.shape, self.dtype)
            self.store(self.some(rows, others), self.centres(X[at]), block)
            if block is not part:
                part[:] = block
            mirror(K, at.start, at.stop)
        if self.kernel.name == "rbf":
            K.ravel()[:: len(K) + 1] = 1.0
        return K

    def centred(self, X: Matrix) -> np.ndarray:
        """Return the rows less the centre, (m, d) float64, a copy."""
        dense = to_dense(X).astype(np.float64, order="C")
        if self.centre is not None:
            dense -= self.centre
        return dense

    def squared_norms(self, X: Matrix) -> np.ndarray:
        """Return the squared norm of each row less the centre, (m,) float64."""
        return squared_norms(X if self.centre is None else self.centred(X))


def _beside(dtype: type, X: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Return X with other columns beside it, as one contiguous array of dtype."""
    columns = [column[:, None] for column in others]
    return np.concatenate([X, *columns], axis=1, dtype=dtype, casting="same_kind")


# ---- blocks ----------------------------------------------------------------------------------


class Blocks(Layout):
    """Blocks of kernel values in the cache: product, finish, and product with beta.

    Rows are augmented, [x, 1, left], and centres are [scale z, right, 1].
    """

    def rows_at_once(self, d: int) -> int:
        return BLOCK_ROWS

    def centres(self, Z: Matrix, beta: np.ndarray | None = None) -> Any:
        return self.augmented_centres(Z), None if beta is None else beta.astype(self.dtype)

    def store(self, rows: Any, centres: Any, K: np.ndarray) -> None:
        np.matmul(rows, centres[0].T, out=K)
        self.kernel.finish(K)


class SparseRows(Layout):
    """The base of layouts of rows with few nonzeros.

    A block of rows is CSR and left, (m,).
    """

    is_dense = False

    def sizes_of(self, X: Matrix) -> RowSizes:
        rows = self.nonzeros(X)
        terms, norms = np.diff(rows.indptr), squared_norms(rows)
        length = float(squared_norms(X).max(initial=0.0)) ** 0.5
        return RowSizes(float(norms.max(initial=0.0)), int(terms.max(initial=0)), length)

    def squared_norms(self, X: Matrix) -> np.ndarray:
        return squared_norms(X if self.centre is None else self.nonzeros(X))

    def nonzeros(self, X: Matrix) -> CsrMatrix:
        """Return the rows of X less the centre, as a CSR matrix of the precision of the layout."""
        rows = to_csr(X)
        if self.centre is None or not self.centre.any():
            return rows.astype(self.dtype, copy=False)
        return rows.minus(self.centre, self.dtype)

    def lay_out(self, X: Matrix) -> Any:
        rows = self.nonzeros(X)
        left = self.kernel.left(squared_norms(rows))
        # Copied: a chunk is valid until its thread reads the next, but blocks are kept.
        return *map(np.array, csr_parts(rows)), left.astype(self.dtype)

    def some(self, rows: Any, at: slice) -> Any:
        starts, features, values, left = rows
        return starts[at.start : at.stop + 1], features, values, left[at]


class SparseBlocks(SparseRows, Blocks):
    """Blocks for rows with many features and few nonzeros.

    Centres are columns times scale; also rows, as float64 may need differences.
    """

    def exponents(self, norm: Any, terms: Any) -> tuple[Any, Any]:
        if self.dtype is np.float32:
            return super().exponents(norm, terms)
        # `store` takes differences where gamma |x|^2 times FLOAT64_UNIT, of one of the rows, may be
        # above ROUNDING. So exponents from products, at most gamma (|x| + |z|)^2, are below this.
        exponent = super().exponents(norm, terms)[0]
        return np.minimum(exponent, 4 * ROUNDING / FLOAT64_UNIT), 2 * terms

    def centres(self, Z: Matrix, beta: np.ndarray | None = None) -> Any:
        rows = self.nonzeros(Z)
        columns = rows.with_data(rows.data * self.dtype(self.kernel.scale)).by_columns()
        right: np.ndarray = self.kernel.right(squared_norms(rows)).astype(self.dtype)
        return columns, csr_parts(rows), right, None if beta is None else beta.astype(self.dtype)

    def store(self, rows: Any, centres: Any, K: np.ndarray) -> None:
        starts, features, values, left = rows
        (at, numbers, products), (z_starts, z_features, z_values), right, _ = centres
        exponent = -min(left.min(initial=0.0), right.min(initial=0.0))
        is_exact = self.kernel.name == "rbf" and self.dtype is np.float64
        if is_exact and exponent * FLOAT64_UNIT > ROUNDING:
            squared_distances(starts, features, values, z_starts, z_features, z_values, K)
            K *= -self.kernel.rate
        else:
            sparse_arguments(starts, features, values, at, numbers, products, left, right, K)
        self.kernel.finish(K)


# ---- compiled code for rbf -------------------------------------------------------------------


class Compiled(Layout):
    """The base of layouts whose centres are panels: compiled code computes and adds up values.

    group: the number of panels whose values are added up before they are added to a sum.
    """

    adds_norms_last = True
    group = DENSE_PANELS

    def additions(self, centres: int, sums: int) -> int:
        block = super().additions(centres, sums)
        if sums > PANEL_COLUMNS:
            return block
        # Each lane of a vector has its own sum: first over a group of panels, then over the groups.
        # The lanes are added up in float64, which counts for float64 layouts only.
        is_single = self.dtype is np.float32
        panels, lanes = -(-block // PANEL_CENTRES), LANES if is_single else LANES // 2
        of_group = min(self.group, panels) * PANEL_CENTRES // lanes
        groups = -(-panels // self.group)
        return min(block, of_group + groups + (0 if is_single else lanes))

    def centres(self, Z: Matrix, beta: np.ndarray | None = None) -> Any:
        panels = self.panels(Z, self.dtype if beta is None else np.float64)
        return panels, None if beta is None else _padded(beta, self.dtype)

    def panels(self, Z: Matrix, precision: type) -> np.ndarray:
        """Return centres as the compiled code reads them. precision: of the scaling."""
        raise NotImplementedError

    def add(self, u: np.ndarray, rows: Any, centres: Any) -> None:
        panels, beta = centres
        if beta.shape[1] > PANEL_COLUMNS:
            # A product of matrices is faster for many sums over the same values.
            super().add(u, rows, centres)
            return
        sums = np.zeros((len(u), beta.shape[1]))
        self.run(rows, panels, (None, beta.T, sums))
        u += sums.reshape(u.shape)

    def store(self, rows: Any, centres: Any, K: np.ndarray) -> None:
        self.run(rows, centres[0], (K, None, None))

    def run(self, rows: Any, panels: np.ndarray, sink: Sink) -> None:
        """Run the compiled code: it stores values, or adds them up."""
        dense_rbf(rows, panels, self.kernel.rate, *sink)


def _padded(beta: np.ndarray, dtype: type) -> np.ndarray:
    """Return beta, (m,) or (m, K), as (m, K) with adjacent columns, and 0 up to whole panels."""
    m = len(beta)
    columns = np.zeros((beta[0].size, -(-m // PANEL_CENTRES) * PANEL_CENTRES), dtype)
    columns[:, :m] = beta.reshape(m, -1).T
    return columns.T


def to_panels(centres: np.ndarray) -> np.ndarray:
    """Return centres (m, d) as panels (count, d, PANEL_CENTRES), features side by side."""
    m, d = centres.shape
    count = -(-m // PANEL_CENTRES)
    # Unused places repeat the last centre. With zeros there, a row whose values overflow to
    # infinity would give 0 times infinity, which is nan.
    places = np.minimum(np.arange(count * PANEL_CENTRES), m - 1)
    padded = np.take(centres, places, axis=0)
    panels = padded.reshape(count, PANEL_CENTRES, d).transpose(0, 2, 1)
    return np.ascontiguousarray(panels)


class Dense(Compiled):
    """Dense rows of rbf. In float32 they are augmented as those of Blocks.

    In float64 they are as they are, and exponents come from differences of features.
    """

    def exponents(self, norm: Any, terms: Any) -> tuple[Any, Any]:
        return (0.0, terms) if self.dtype is np.float64 else super().exponents(norm, terms)

    def lay_out(self, X: Matrix) -> Any:
        return self.centred(X) if self.dtype is np.float64 else super().lay_out(X)

    def panels(self, Z: Matrix, precision: type) -> np.ndarray:
        return to_panels(self.columns_of_panels(Z, precision))

    def columns_of_panels(self, Z: Matrix, precision: type) -> np.ndarray:
        """Return centres, (m, columns), that panels hold. precision: of the scaling."""
        is_double = self.dtype is np.float64
        return self.centred(Z) if is_double else self.augmented_centres(Z, precision)


class Nonzeros(SparseRows, Compiled):
    """Rows of rbf with few nonzeros: compiled code reads only these of a row.

    In float64 exponents are sums of products, not of differences: see `Kernel.has_exact_products`.
    """

    group = SPARSE_PANELS

    def sizes_of_pairs(self, X: Matrix) -> RowSizes:
        # Only nonzeros of the row are multiplied.
        terms = np.diff(self.nonzeros(X).indptr)
        return super().sizes_of_pairs(X)._replace(terms=terms)

    def panels(self, Z: Matrix, precision: type) -> np.ndarray:
        z = self.nonzeros(Z)
        scaled = z.data.astype(precision, copy=False) * self.kernel.scale
        right: np.ndarray = self.kernel.right(squared_norms(z)).astype(self.dtype)
        starts, features, values = csr_parts(z.with_data(scaled.astype(self.dtype, copy=False)))
        count = -(-z.shape[0] // PANEL_CENTRES)
        panels: np.ndarray = np.zeros((count, z.shape[1] + 1, PANEL_CENTRES), self.dtype)
        lay_out_panels(starts, features, values, right, panels)
        return panels

    def run(self, rows: Any, panels: np.ndarray, sink: Sink) -> None:
        starts, features, values, left = rows
        sparse_rbf(starts, features, values, left, panels, *sink)


# ---- cells -----------------------------------------------------------------------------------

# Rows are sorted by a k-d split into cells of a few dozen. A centre takes part in the sums of a
# cell only if it is nearer to the cell's bounding box than a limit: the values that are left out
# are below exp(-cutoff).

# RBF values below exp(-CUT) are left out of float32 sums, below exp(-EXACT_CUT) of float64 sums:
# rounding changes the sums by more.
CUT, EXACT_CUT = 20.0, 40.0
# The largest numbers of rows and of dense values that are sorted into cells together. A chunk has
# at most SLICE_ROWS rows.
SLICE_ROWS = 8192
SLICE_VALUES = 1 << 21
# The most additions of one kernel value within a block in cells.
CELL_ADDITIONS = 144
# Cells are used if at most this share of the kernel values remains in the sums: measured, the same
# number of values takes a seventh longer in cells.
PROFITABLE = 0.8


class Cells(Dense):
    """Dense rows of rbf, sorted into cells: values below exp(-cutoff) may be left out.

    A block of rows is (order, panels): the position of each row before sorting, (m,) uint16; the
    features of 32 rows side by side, (m / 32 rounded up, d, 32), in float32 d + 2 augmented ones.
    """

    def __init__(
        self, kernel: Kernel, dtype: type, centre: np.ndarray | None, cutoff: float
    ) -> None:
        super().__init__(kernel, dtype, centre)
        # Rounding moves the limit of a distance a little.
        self.cutoff, self.left_out = cutoff, math.exp(1 - cutoff)

    @property
    def of_all_in_float64(self) -> Layout:
        # Of few rows from all over D no cell is small.
        layout = self.in_float64
        if layout is self or self.has_few_nonzeros:
            return layout
        cells = Cells(self.kernel, np.float64, layout.centre, EXACT_CUT)
        cells.sizes = layout.sizes
        return cells

    def additions(self, centres: int, sums: int) -> int:
        return min(centres, CELL_ADDITIONS)

    def rows_at_once(self, d: int) -> int:
        return max(CELL_ROWS, min(SLICE_ROWS, SLICE_VALUES // max(d, 1)))

    def lay_out(self, X: Matrix) -> Any:
        x = super().lay_out(X)
        places = np.arange(len(x), dtype=np.uint16)
        sort_into_cells(x, X.shape[1], places)
        return places, to_panels(np.take(x, places, axis=0))

    def gram(self, X: Matrix, dtype: type) -> np.ndarray:
        return Dense(self.kernel, self.dtype, self.centre).gram(X, dtype)

    def centres(self, Z: Matrix, beta: np.ndarray | None = None) -> Any:
        """Return the augmented centres, their features by columns, and columns of beta."""
        assert beta is not None
        m, w = Z.shape
        columns = np.zeros((w, -(-m // LANES) * LANES), self.dtype)
        columns[:, :m] = self.centred(Z).T
        flat: np.ndarray = beta.reshape(m, -1).astype(self.dtype)
        return self.columns_of_panels(Z, np.float64), columns, flat

    def add(self, u: np.ndarray, rows: Any, centres: Any) -> None:
        self.add_near(u, rows, centres)

    def add_near(self, u: np.ndarray, rows: Any, centres: Any) -> int:
        """Add the sums to u; return the number of kernel values in each sum."""
        order, panels = rows
        z, columns, beta = centres
        u, kept = u.reshape(len(u), -1), 0
        limit = self.cutoff / self.kernel.gamma if self.kernel.gamma > 0 else np.inf
        for at in slices(beta.shape[1], PANEL_COLUMNS):
            some, own = np.zeros((len(u), at.stop - at.start)), np.ascontiguousarray(beta[:, at])
            kept = add_sums_of_cells(panels, order, z, columns, own, limit, self.kernel.rate, some)
            u[:, at] += some
        return kept

    def profits(self, X: CsrMatrix, Z: CsrMatrix, sums: int = 1) -> bool:
        """Return whether cells are faster than Dense.

        It counts the values of K(X, Z) that remain in the sums. X: a chunk; Z: up to BLOCK_CENTRES
        rows from all over D. sums: the number of sums over the same kernel values.
        """
        if 0 in (X.shape[0], Z.shape[0]):
            return False
        centres, u = self.centres(Z, np.zeros(Z.shape[0])), np.zeros(X.shape[0])
        kept = sum(self.add_near(u[at], rows, centres) for at, rows in self.rows(X))
        # Cells compute values once more for each PANEL_COLUMNS sums.
        return bool(kept * -(-sums // PANEL_COLUMNS) < PROFITABLE * X.shape[0] * Z.shape[0])


# ---- the choice ------------------------------------------------------------------------------


# Sums are in float32 only if FLOAT32_UNIT times Kernel.magnitude, the rounding error of the largest
# number, is below FLOAT32_LIMIT.
FLOAT32_LIMIT = 1e-5
# Beyond these sizes of gamma and of kernel values products may leave the range of float32: rows of
# 1e20 with a gamma of 1e-41 have usual values of rbf.
FLOAT32_RANGE = 1e-30, 1e30


def choose_layout(
    kernel: Kernel,
    size: tuple[int, int, int],
    dtype: type,
    *,
    sample: CsrMatrix | None = None,
    sizes: Callable[[Layout], RowSizes] | None = None,
    reads_nonzeros: bool = False,
    profits: Callable[[Cells], bool] | None = None,
    cutoff: float = CUT,
) -> Layout:
    """Return the fastest layout that is accurate enough.

    size: the numbers of rows, features and nonzeros. dtype: float32 if it is accurate, or float64.
    sample: some rows, for the centre of a float32 layout. sizes: returns the sizes of all rows in a
    layout; None: every layout is accurate. reads_nonzeros: whether Nonzeros may be chosen.
    profits: whether Cells are faster than Dense; None: they are not chosen. cutoff: of Cells in
    float32.
    """

    def is_accurate(layout: Layout) -> bool:
        if sizes is None:
            return True
        layout.sizes = sizes(layout)
        norm = layout.sizes.norm
        if layout.dtype is np.float32:
            size = kernel.magnitude(norm)
            return size * FLOAT32_UNIT < FLOAT32_LIMIT and (is_rbf or size >= least)
        return kernel.has_exact_products(norm)

    least, most = FLOAT32_RANGE
    dtype = dtype if least <= kernel.scale <= most else np.float64
    d, is_rbf, is_single = size[1], kernel.name == "rbf", dtype is np.float32
    few_nonzeros = is_rbf and reads_nonzeros and has_few_nonzeros(*size)
    layout: Layout
    if kernel.name == "precomputed":
        return SparseBlocks(kernel, np.float64)
    # FLOAT32_LIMIT is tested without a centre here. If only centred rows are below it, the kernel
    # is narrow and cells are faster: covtype, gamma 32, takes 1.5 instead of 2.0 s.
    if few_nonzeros and is_accurate(Nonzeros(kernel, dtype)):
        usual = usual_values(sample) if is_single and sample is not None else None
        return Nonzeros(kernel, dtype, usual)
    if not prefers_dense(*size):
        layout = SparseBlocks(kernel, dtype)
    elif not is_rbf:
        layout = Blocks(kernel, dtype)
    else:
        if not is_single:
            layout = Blocks(kernel, dtype)
            is_wide = d > DIFFERENCES and sizes is not None
            return layout if is_wide and is_accurate(layout) else Dense(kernel, dtype)
        centre = None if sample is None else column_sums(sample) / max(sample.shape[0], 1)
        layout = (Dense if d <= PANEL_FEATURES else Blocks)(kernel, dtype, centre)
    if is_single and not is_accurate(layout):
        layout, is_single = layout.in_float64, False
    if isinstance(layout, Dense) and profits is not None and d > 0:
        in_cells = Cells(kernel, layout.dtype, layout.centre, cutoff if is_single else EXACT_CUT)
        in_cells.sizes = layout.sizes
        layout = in_cells if profits(in_cells) else layout
        layout.has_few_nonzeros = few_nonzeros and is_accurate(Nonzeros(kernel, np.float64))
    return layout


def prefers_dense(n: int, d: int, nnz: int) -> bool:
    """Return whether dense blocks are faster: few features, or rows with many nonzeros.

    Measured per kernel value, with AVX2: a dense product takes about d / 35 ns, a sparse one 4 ns
    and 1 ns for every feature that two rows share.
    """
    return d <= 64 or (d <= 4096 and nnz > 0.05 * n * d)


def has_few_nonzeros(n: int, d: int, nnz: int) -> bool:
    """Return whether compiled sums of RBF are faster over the nonzeros of rows.

    Measured time of a kernel value, over all features and over the nonzeros of a row: 1.2 and
    0.5 ns with 12 nonzeros of 53 features, 2.8 and 0.6 ns with 14 of 139, 9.6 and 1.9 ns with 35 of
    506. If half of the values are nonzeros, sums over the nonzeros are as fast with 139 features,
    and a third slower with 506. With 1,000 features and 10 nonzeros, evenly spread, sparse products
    take 0.6, 1.2 and 4.6 ns for 1,024, 200 and 20 centres, and sums over the nonzeros 0.9, 0.7 and
    1.4 ns; of 23 nonzeros, most in few features as in texts, 3.1, 4.0 and 12.7 ns, and 1.6, 1.3 and
    1.9 ns.
    """
    return MIN_FEATURES <= d <= PANEL_FEATURES and nnz <= n * d / 3


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
