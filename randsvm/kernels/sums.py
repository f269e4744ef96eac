"""Sums of kernel values over some centres: a class for each way to compute them.

Rows come as a Space of expansion.py lays them out. Knows nothing of files, tasks or solutions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from randsvm.arrays import csr_parts, slices, sorted_csr
from randsvm.kernels._kernels import (
    PANEL_CENTRES,
    PANEL_COLUMNS,
    add_difference_sums,
    add_products,
    add_rbf_sums,
    add_sparse_sums,
    add_squared_distances,
)
from randsvm.kernels.kernel import Kernel

# A float32 block of 256 x 1,024 kernel values is 1 MB: it stays in the L2 cache between the
# matrix product, the in-place function and the sum.
BLOCK_ROWS = 256
BLOCK_CENTRES = 1024
# Rounding of an exponent that float64 products of sparse rows may have; beyond, the exponent is
# computed from differences, which takes several times as long.
ROUNDING = 1e-12


class Nonzeros(NamedTuple):
    """Rows in CSR, float32, and left of each, as compiled sums take them."""

    starts: np.ndarray
    features: np.ndarray
    values: np.ndarray
    left: np.ndarray


@dataclass(frozen=True)
class Rows:
    """Rows in the layout of a Space: X dense (m, d) float64 or CSR; norms, extra : (m,) float64.

    extra: squared norm of features outside X's columns, a part of norms.
    """

    X: np.ndarray | sparse.csr_matrix
    norms: np.ndarray
    extra: np.ndarray

    def __getitem__(self, block: slice) -> Rows:
        return Rows(self.X[block], self.norms[block], self.extra[block])


class Part(Protocol):
    """Some of the centres of an expansion."""

    def add(self, u: np.ndarray, rows: Any, largest: float, buffer: np.ndarray) -> object:
        """u += their sums for rows as the Space lays them out, whose largest squared norm is given.
        u : (n,) or (n, K); buffer: room for a block of kernel values."""


class Block:
    """Kernel values as a block in the cache: product, finish, and product with beta."""

    def __init__(
        self, kernel: Kernel, centres: DenseCentres | SparseCentres, beta: np.ndarray
    ) -> None:
        self.kernel, self.centres, self.beta = kernel, centres, beta

    def add(self, u: np.ndarray, rows: Any, largest: float, buffer: np.ndarray) -> None:
        """See Part."""
        for at in slices(len(u), BLOCK_ROWS):
            block = buffer[: (at.stop - at.start) * len(self.beta)].reshape(at.stop - at.start, -1)
            self.centres.arguments(rows if len(u) <= BLOCK_ROWS else rows[at], block, largest)
            self.kernel.finish(block, largest)
            u[at] += block @ self.beta


class Panels:
    """RBF of dense float32 rows: one compiled loop, in which values stay in registers."""

    def __init__(self, centres: np.ndarray, beta: np.ndarray) -> None:
        self.panels, self.beta = panels_of(centres), _columns(beta, np.float32)

    def add(self, u: np.ndarray, rows: np.ndarray, largest: float, buffer: np.ndarray) -> None:
        """See Part."""
        add_rbf_sums(rows, self.panels, self.beta, u.reshape(len(u), -1))


class NonzeroPanels:
    """RBF of sparse float32 rows: one compiled loop, which goes over the features of each row."""

    def __init__(self, kernel: Kernel, Z: Rows, beta: np.ndarray) -> None:
        centres = np.column_stack([Z.X * kernel.scale, kernel.right(Z.norms)])
        self.panels = panels_of(centres.astype(np.float32))
        self.beta = _columns(beta, np.float32)

    def add(self, u: np.ndarray, rows: Nonzeros, largest: float, buffer: np.ndarray) -> None:
        """See Part."""
        u = u.reshape(len(u), -1)
        for at in slices(len(self.beta), PANEL_COLUMNS):
            some = np.zeros((len(u), at.stop - at.start))
            add_sparse_sums(*rows, self.panels, self.beta[at], some)
            u[:, at] += some


class Differences:
    """RBF of dense float64 rows: one compiled loop, which goes over the features of each pair."""

    def __init__(self, gamma: float, centres: np.ndarray, beta: np.ndarray) -> None:
        self.gamma, self.panels = gamma, panels_of(centres)
        self.beta = _columns(beta, np.float64)

    def add(self, u: np.ndarray, rows: np.ndarray, largest: float, buffer: np.ndarray) -> None:
        """See Part."""
        u = u.reshape(len(u), -1)
        for at in slices(len(self.beta), PANEL_COLUMNS):
            some = np.zeros((len(u), at.stop - at.start))
            add_difference_sums(rows, self.panels, self.beta[at], self.gamma, some)
            u[:, at] += some


def panels_of(centres: np.ndarray) -> np.ndarray:
    """Centres (m, d) as panels (count, d, PANEL_CENTRES): their features side by side."""
    m, d = centres.shape
    count = -(-m // PANEL_CENTRES)
    # Filled up with a centre that is there: 0 times the infinity of a large row would be nan.
    padded = centres[np.minimum(np.arange(count * PANEL_CENTRES), m - 1)]
    panels = padded.reshape(count, PANEL_CENTRES, d).transpose(0, 2, 1)
    return np.ascontiguousarray(panels)


def _columns(beta: np.ndarray, dtype: type) -> np.ndarray:
    """beta, (m,) or (m, K), as (K, m filled up to whole panels with 0)."""
    m = len(beta)
    columns = np.zeros((beta[0].size, -(-m // PANEL_CENTRES) * PANEL_CENTRES), dtype)
    columns[:, :m] = beta.reshape(m, -1).T
    return columns


class DenseCentres:
    """Centres z_j as augmented rows [scale z, right, 1]."""

    def __init__(self, kernel: Kernel, dtype: type, Z: Rows) -> None:
        right = kernel.right(Z.norms)
        self.rows = augment(Z.X * kernel.scale, right, np.ones(len(right)), dtype)

    def arguments(self, augmented: np.ndarray, block: np.ndarray, largest: float) -> None:
        np.matmul(augmented, self.rows.T, out=block)


class SparseCentres:
    """Centres z_j by columns, times scale; and by rows where float64 may need differences."""

    def __init__(self, kernel: Kernel, dtype: type, Z: Rows) -> None:
        self.kernel = kernel
        self.columns = (Z.X * dtype(kernel.scale)).tocsc()
        self.right: np.ndarray = kernel.right(Z.norms).astype(dtype)
        self.exact = kernel.name == "rbf" and dtype is np.float64
        self.largest = float(Z.norms.max(initial=0.0))
        if self.exact:
            self.rows = sorted_csr(Z.X)

    def arguments(
        self,
        prepared: tuple[sparse.csr_matrix, np.ndarray, np.ndarray],
        block: np.ndarray,
        largest: float,
    ) -> None:
        X, left, extra = prepared
        size = self.kernel.gamma * max(largest, self.largest)
        if self.exact and size * np.finfo(np.float64).eps > ROUNDING:
            block[:] = extra[:, None]
            add_squared_distances(*csr_parts(sorted_csr(X)), *csr_parts(self.rows), block)
            block *= -self.kernel.gamma
            return
        Z = self.columns
        np.add(left[:, None], self.right, out=block)
        add_products(*csr_parts(X), *csr_parts(Z), block)


def augment(X: np.ndarray, one: np.ndarray, other: np.ndarray, dtype: type) -> np.ndarray:
    """[X, one, other] as one contiguous array of dtype."""
    out = np.empty((X.shape[0], X.shape[1] + 2), dtype)
    out[:, :-2] = X
    out[:, -2] = one
    out[:, -1] = other
    return out
