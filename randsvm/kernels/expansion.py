"""Weighted sums of kernel values, block by block, and the values of every pair of rows.

This module does not know files or tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from randsvm.arrays import CsrMatrix, Matrix, slices
from randsvm.errors import ParameterError
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import (
    BLOCK_CENTRES,
    Layout,
    RowBlock,
    RowSizes,
    bytes_of,
    choose_layout,
)

# Values whose mean exceeds this multiple of their spread are centred: float32 has seven digits.
OFFSET = 100.0
# The most memory of the centres of an expansion in their layout; that of rows for which they are
# laid out again if they take more.
CENTRE_BYTES, ROW_BYTES = 1 << 26, 1 << 25


class Expansion:
    """The function u(x) = sum_j beta_j K(z_j, x).

    Z : (m, d) CSR, the centres z_j; beta : (m,) float64, or (m, K) for K sums over the same kernel
    values. The expansion holds a copy of Z in its layout, if this takes at most `memory` bytes;
    otherwise blocks of centres are laid out again for each few thousand rows, with the same bits.
    `values` also holds these rows in the layout, and one block of kernel values if the sums are not
    compiled. Threads may share it.
    """

    def __init__(
        self, layout: Layout, Z: CsrMatrix, beta: np.ndarray, memory: int = CENTRE_BYTES
    ) -> None:
        self.layout, self.Z, self.beta = layout, Z, beta
        self.sum_shape = beta.shape[1:]
        self.kept: list[Any] | None = None
        if layout.kernel.linear:
            # A linear expansion is one vector: w = sum_j beta_j z_j.
            self.weights = Z.column_products(beta)
            return
        blocks = self.centres()
        # Blocks of a layout differ by their nonzeros only.
        kept = list(islice(blocks, 1))
        if sum(map(bytes_of, kept)) * len(beta) <= memory * min(len(beta), BLOCK_CENTRES):
            self.kept = [*kept, *blocks]

    def centres(self) -> Iterator[Any]:
        """Yield blocks of centres in the layout."""
        for at in slices(len(self.beta), BLOCK_CENTRES):
            with np.errstate(over="ignore"):  # `values` raises an error if the result is infinite
                block = self.layout.centres(self.Z[at], self.beta[at])
            yield block

    def __reduce__(self) -> tuple[object, ...]:
        """Send the centres to other processes as they were given."""
        return Expansion, (self.layout, self.Z, self.beta)

    def values(self, X: Matrix, extra: np.ndarray | None = None) -> np.ndarray:
        """Return u of each row, (n,) or (n, K) float64, summed in float64 over blocks.

        X : (n, d) CSR or array; extra : (n,) float64, squared norms of features outside X.

        Raises ParameterError if a value leaves float64.
        """
        return evaluate_expansions([self], X, extra)[0]

    def add(self, u: np.ndarray, blocks: Iterable[RowBlock]) -> None:
        """Add the sums for blocks of rows to u; not for the linear kernel."""
        for some in grouped(blocks, self):
            for centres in self.centres() if self.kept is None else self.kept:
                for at, rows in some:
                    self.layout.add(u[at], rows, centres)


def grouped(blocks: Iterable[RowBlock], *expansions: Expansion) -> Iterator[list[RowBlock]]:
    """Yield groups of blocks for which the centres are read once: one block each, or ROW_BYTES if
    an expansion does not keep its centres."""
    least = ROW_BYTES if any(each.kept is None for each in expansions) else 0
    group, size = list[RowBlock](), 0
    for block in blocks:
        group.append(block)
        size += bytes_of(block[1])
        if size >= least:
            yield group
            group, size = [], 0
    if group:
        yield group


def values_of(layout: Layout, Z: CsrMatrix, beta: np.ndarray, X: Matrix) -> np.ndarray:
    """Return the `values` of an expansion that is used once, with few centres in memory."""
    u = np.zeros(X.shape[0])
    for at in slices(len(beta), BLOCK_CENTRES):
        u += Expansion(layout, Z[at], beta[at]).values(X)
    return u


def evaluate_expansions(
    expansions: Sequence[Expansion], X: Matrix, extra: np.ndarray | None = None
) -> np.ndarray:
    """Return the `values` of each expansion along a new first axis; rows are laid out once.

    The expansions have the same layout and the same number of sums. All rbf values of a row have
    the factor exp(-gamma extra) in common.
    """
    layout = expansions[0].layout
    u = np.zeros((len(expansions), X.shape[0], *expansions[0].sum_shape))
    with np.errstate(over="ignore", invalid="ignore"):
        if layout.kernel.linear:
            for each, of_each in zip(expansions, u, strict=True):
                of_each[:] = X @ each.weights
        else:
            for blocks in grouped(layout.rows(X), *expansions):
                for each, of_each in zip(expansions, u, strict=True):
                    each.add(of_each, blocks)
            if extra is not None and layout.kernel.name == "rbf":
                u *= np.exp(-layout.kernel.gamma * extra).reshape(-1, *[1] * (u.ndim - 2))
    check_finite(u, layout.kernel)
    return u


def check_finite(u: np.ndarray, kernel: Kernel) -> None:
    """Raise ParameterError if a sum of kernel values exceeds float64."""
    if not np.isfinite(u).all():
        raise ParameterError(
            f"sums of values of the {kernel.name} kernel leave float64 on this data: scale the "
            "features, or lower C"
        )


# --- every pair of rows --------------------------------------------------------------------


def gram(layout: Layout, X: CsrMatrix, *, centred: bool = False) -> np.ndarray:
    """Return K(x_i, x_j) for every pair of rows, (m, m) float32, in the precision of the layout.

    centred: see `centred_if_far`. The caller may then use K only in products K v with sum v = 0.
    """
    K = layout.gram(X, np.float32)
    return centred_if_far(layout.kernel, X, K) if centred else K


def centred_if_far(kernel: Kernel, X: CsrMatrix, K: np.ndarray) -> np.ndarray:
    """Return `centred_gram` if float32 does not hold the differences between the values K, or K."""
    if kernel.name in ("linear", "poly") and _is_far_from_0(K):
        return centred_gram(kernel, X, K)
    return K


def _is_far_from_0(K: np.ndarray) -> bool:
    """Return whether the mean of the kernel values exceeds OFFSET times their spread."""
    if not len(K):
        return False
    mean, diagonal = float(K.mean(dtype=np.float64)), float(K.diagonal().mean(dtype=np.float64))
    return bool(np.isfinite(mean)) and abs(mean) > OFFSET * (diagonal - mean)


def centred_gram(kernel: Kernel, X: CsrMatrix, K: np.ndarray) -> np.ndarray:
    """Return kernel values less the means of rows and columns, (m, m) float32.

    These are the kernel values of rows centred in feature space: the smallest values with the same
    v^T K v for every v with sum v = 0, so float32 rounds them least. For such v, K v differs from
    that of `gram` by a constant only.

    K : (m, m) float32, the values of `gram`. They are used for a precomputed kernel only; those of
    other kernels are computed again in float64.
    """
    exact = K.astype(np.float64) if kernel.name == "precomputed" else exact_gram(kernel, X)
    means = exact.mean(axis=0)
    exact -= means[:, None]
    exact -= means - means.mean()
    return np.ascontiguousarray(exact, np.float32)


def exact_gram(kernel: Kernel, X: CsrMatrix) -> np.ndarray:
    """Return K(x_i, x_j) for every pair of rows, (m, m) float64, computed in float64.

    The kernel must not be precomputed.
    """
    return exact_layout(kernel, X).gram(X, np.float64)


def exact_layout(kernel: Kernel, X: CsrMatrix) -> Layout:
    """Return the layout for values in float64 of rows like X."""

    def sizes(layout: Layout) -> RowSizes:
        return layout.sizes_of(X)

    size = *X.shape, X.nnz
    return choose_layout(kernel, size, np.float64, sizes=sizes, reads_nonzeros=True)
