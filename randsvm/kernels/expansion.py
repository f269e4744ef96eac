"""Kernel values, block by block, and sums of them.

Every kernel is finish(scale <x, z> + left(x) + right(z)), so that one matrix product over
augmented rows gives all arguments of a block and one in-place function the kernel values:

    linear   <x, z>                      rbf       exp(2 g <x, z> - g |x|^2 - g |z|^2)
    poly     (g <x, z> + r)^d            sigmoid   tanh(g <x, z> + r)

Blocks stay in the second-level cache; values of RBF over dense float32 rows are summed up where
they are made, by compiled code. Knows nothing of files, tasks or solutions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from randsvm.arrays import Matrix, slices, squared_norms
from randsvm.errors import ParameterError
from randsvm.kernels._kernels import PANEL_CENTRES, PANEL_COLUMNS, add_products, add_rbf_sums
from randsvm.kernels.kernel import Kernel

# A float32 block of 256 x 1,024 kernel values is 1 MB: it stays in the L2 cache between the
# matrix product, the in-place function and the sum.
BLOCK_ROWS = 256
BLOCK_CENTRES = 1024
# Up to so many features, compiled sums of RBF are faster than matrix product, exp and product:
# measured 2.8 times at 2 features, 1.8 at 200, 1.6 at 800, as fast at 1,600. Of sums over the same
# values PANEL_COLUMNS at once are 1.6 times as fast, 50 would be slower.
PANEL_FEATURES = 1024
# Rows of one such call at the most; of many features fewer.
PANEL_ROWS = 4096
# A float64 block of a symmetric matrix: 512 kB.
GRAM_ROWS = 256
# Values of rows that are laid out at once (4 MB in float64).
LAID_OUT = 1 << 19


@dataclass(frozen=True)
class Space:
    """How rows are laid out for kernel blocks.

    dense: rows become dense blocks (few features), else they stay sparse.
    centre: (d,) float64, subtracted from dense rows for RBF: the kernel does not change, the
    rounding shrinks. None: nothing is subtracted.
    dtype: of the blocks, float32 or float64.
    """

    kernel: Kernel
    dense: bool
    centre: np.ndarray | None
    dtype: type

    def rows(self, X: Matrix, extra: np.ndarray | None = None) -> Rows:
        """X ready for `products`. extra : (m,) squared norm of features outside X's columns."""
        if not self.dense:
            X = sparse.csr_matrix(X)
            norms = squared_norms(X)
            return Rows(X.astype(self.dtype), norms if extra is None else norms + extra)
        dense = (X if isinstance(X, np.ndarray) else X.toarray()).astype(np.float64)
        if self.centre is not None:
            dense -= self.centre
        norms = np.einsum("ij,ij->i", dense, dense)
        return Rows(dense, norms if extra is None else norms + extra)

    def prepared(self, X: Rows) -> Any:
        """Rows for the left side of a block: augmented [x, 1, left], or CSR and left."""
        left = self.kernel.left(X.norms)
        if self.dense:
            return _augment(X.X, np.ones(len(left)), left, self.dtype)
        return X.X, left.astype(self.dtype)

    def pieces(self, X: Matrix, extra: np.ndarray | None = None) -> Iterator[Piece]:
        """The rows of X laid out for sums, a few at a time: those of a piece stay in the cache."""
        d = max(X.shape[1], 1)
        size = max(BLOCK_ROWS, min(PANEL_ROWS, LAID_OUT // d)) if self.compiled(d) else BLOCK_ROWS
        # Many pieces are laid out at a time: for a few centres that costs more than their kernel.
        for part in slices(X.shape[0], max(1, LAID_OUT // (size * d)) * size):
            rows = self.rows(X[part], None if extra is None else extra[part])
            for at in slices(len(rows.norms), size):
                place = slice(part.start + at.start, part.start + at.stop)
                yield place, self.prepared(rows[at]), float(rows.norms[at].max())

    def compiled(self, d: int) -> bool:
        """Whether sums over rows of d features are compiled."""
        fits = d <= PANEL_FEATURES
        return self.kernel.name == "rbf" and self.dtype is np.float32 and self.dense and fits

    def centres(self, Z: Rows) -> _DenseCentres | _SparseCentres:
        """Rows for the right side of a block."""
        return _DenseCentres(self, Z) if self.dense else _SparseCentres(self, Z)

    def part(self, Z: Rows, beta: np.ndarray) -> _Panels | _Block:
        """A part of an expansion. beta : (m,) or (m, K) float64, of the centres Z."""
        if self.compiled(Z.X.shape[1]) and beta[0].size <= PANEL_COLUMNS:
            return _Panels(_DenseCentres(self, Z).rows, beta)
        return _Block(self, self.centres(Z), beta.astype(self.dtype))


# Rows laid out for sums: which they are, as `prepared`, and their largest squared norm.
Piece: TypeAlias = "tuple[slice, Any, float]"


@dataclass(frozen=True)
class Rows:
    """Rows in the layout of a Space: X dense (m, d) float64 or CSR, norms (m,) float64."""

    X: np.ndarray | sparse.csr_matrix
    norms: np.ndarray

    def __getitem__(self, block: slice) -> Rows:
        return Rows(self.X[block], self.norms[block])


def prefers_dense(n: int, d: int, nnz: int) -> bool:
    """Whether dense blocks are faster: few features, or rows that fill a good part of them.

    Measured per kernel value: a dense product costs about d / 50 ns, a sparse one a few ns for
    every feature that two rows share.
    """
    return d <= 64 or (d <= 4096 and nnz > 0.02 * n * d)


class Expansion:
    """u(x) = sum_j beta_j K(z_j, x), evaluated for many x.

    Z : (m, d) CSR, the centres z_j; beta : (m,) float64, or (m, K) for K sums over the same
    kernel values. Holds one prepared copy of Z; `values` lays out a few thousand rows at a time
    besides, and where the sums are not compiled one block of kernel values. Safe to share between
    threads.
    """

    def __init__(self, space: Space, Z: sparse.csr_matrix, beta: np.ndarray) -> None:
        self.space = space
        self.count, self.sums = len(beta), beta.shape[1:]
        kernel = space.kernel
        if kernel.name == "linear":
            # A linear expansion is one vector: w = sum_j beta_j z_j.
            self.weights = Z.T.astype(np.float64) @ beta
            return
        with np.errstate(over="ignore"):  # `values` refuses what comes of it
            self.parts = [
                space.part(space.rows(Z[at]), beta[at]) for at in slices(self.count, BLOCK_CENTRES)
            ]

    @staticmethod
    def of(
        kernel: Kernel, Z: sparse.csr_matrix, beta: np.ndarray, dtype: type = np.float64
    ) -> Expansion:
        """In the layout that suits Z, of rows as they are."""
        m, d = Z.shape
        return Expansion(Space(kernel, prefers_dense(m, d, Z.nnz), None, dtype), Z, beta)

    def values(self, X: Matrix, extra: np.ndarray | None = None) -> np.ndarray:
        """u of each row. X : (n, d) CSR; returns (n,) or (n, K) float64, blocks summed in
        float64.

        Raises ParameterError where a value leaves float64.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            u = self._values(X, extra)
        if not np.isfinite(u).all():
            raise ParameterError(
                f"values of the {self.space.kernel.name} kernel leave float64 on this data: "
                f"scale the features"
            )
        return u

    def _values(self, X: Matrix, extra: np.ndarray | None) -> np.ndarray:
        if self.space.kernel.name == "linear":
            return X @ self.weights
        u = np.zeros((X.shape[0], *self.sums))
        self.add(u, self.space.pieces(X, extra))
        return u

    def add(self, u: np.ndarray, pieces: Iterable[Piece]) -> None:
        """u += their sums, for rows that the Space has laid out; not for the linear kernel."""
        buffer: np.ndarray = np.empty(BLOCK_ROWS * BLOCK_CENTRES, self.space.dtype)
        for at, prepared, largest in pieces:
            for each in self.parts:
                each.add(u[at], prepared, largest, buffer)


class _Block:
    """Kernel values as a block in the cache: product, finish, and product with beta."""

    def __init__(
        self, space: Space, centres: _DenseCentres | _SparseCentres, beta: np.ndarray
    ) -> None:
        self.kernel, self.centres, self.beta = space.kernel, centres, beta

    def add(self, u: np.ndarray, rows: Any, largest: float, buffer: np.ndarray) -> None:
        """u += their sums for prepared rows, whose largest squared norm is given."""
        for at in slices(len(u), BLOCK_ROWS):
            block = buffer[: (at.stop - at.start) * len(self.beta)].reshape(at.stop - at.start, -1)
            self.centres.arguments(rows if len(u) <= BLOCK_ROWS else rows[at], block)
            self.kernel.finish(block, largest)
            u[at] += block @ self.beta


class _Panels:
    """RBF of dense float32 rows: one compiled loop, in which values stay in registers."""

    def __init__(self, centres: np.ndarray, beta: np.ndarray) -> None:
        m, d = centres.shape
        count = -(-m // PANEL_CENTRES)
        # Filled up with a centre that is there: 0 times the infinity of a large row would be nan.
        padded = centres[np.minimum(np.arange(count * PANEL_CENTRES), m - 1)]
        panels = padded.reshape(count, PANEL_CENTRES, d).transpose(0, 2, 1)
        self.panels = np.ascontiguousarray(panels)
        self.beta = np.zeros((beta[0].size, len(padded)), np.float32)
        self.beta[:, :m] = beta.reshape(m, -1).T

    def add(self, u: np.ndarray, rows: np.ndarray, largest: float, buffer: np.ndarray) -> None:
        """See _Block."""
        add_rbf_sums(rows, self.panels, self.beta, u.reshape(len(u), -1))


class _DenseCentres:
    """Centres z_j as augmented rows [scale z, right, 1]."""

    def __init__(self, space: Space, Z: Rows) -> None:
        right = space.kernel.right(Z.norms)
        self.rows = _augment(Z.X * space.kernel.scale, right, np.ones(len(right)), space.dtype)

    def arguments(self, augmented: np.ndarray, block: np.ndarray) -> None:
        np.matmul(augmented, self.rows.T, out=block)


class _SparseCentres:
    """Centres z_j by columns, times scale."""

    def __init__(self, space: Space, Z: Rows) -> None:
        self.columns = (Z.X * space.dtype(space.kernel.scale)).tocsc()
        self.right: np.ndarray = space.kernel.right(Z.norms).astype(space.dtype)

    def arguments(self, prepared: tuple[sparse.csr_matrix, np.ndarray], block: np.ndarray) -> None:
        (X, left), Z = prepared, self.columns
        np.add(left[:, None], self.right, out=block)
        add_products(X.indptr, X.indices, X.data, Z.indptr, Z.indices, Z.data, block)


def _augment(X: np.ndarray, one: np.ndarray, other: np.ndarray, dtype: type) -> np.ndarray:
    """[X, one, other] as one contiguous array of dtype."""
    out = np.empty((X.shape[0], X.shape[1] + 2), dtype)
    out[:, :-2] = X
    out[:, -2] = one
    out[:, -1] = other
    return out


def gram(space: Space, X: sparse.csr_matrix) -> np.ndarray:
    """K(x_i, x_j) of every pair of rows, (m, m) float32, computed in the Space's precision."""
    rows = space.rows(X)
    m = len(rows.norms)
    parts = list(slices(m, GRAM_ROWS))
    centres = [space.centres(rows[j]) for j in parts]
    K: np.ndarray = np.empty((m, m), np.float32)
    buffer: np.ndarray = np.empty(GRAM_ROWS * GRAM_ROWS, space.dtype)
    for number, i in enumerate(parts):
        prepared = space.prepared(rows[i])
        for j, columns in zip(parts[number:], centres[number:], strict=True):
            block = buffer[: (i.stop - i.start) * (j.stop - j.start)].reshape(i.stop - i.start, -1)
            columns.arguments(prepared, block)
            space.kernel.finish(block, float(rows.norms[i].max()))
            K[i, j] = block
            K[j, i] = block.T
    if space.kernel.name == "rbf":
        np.fill_diagonal(K, 1.0)
    return K
