"""Weighted sums of kernel values, block by block. This module does not know files or tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from randsvm.arrays import CsrMatrix, Matrix, slices
from randsvm.errors import ParameterError
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import BLOCK_CENTRES, Layout, RowBlock


class Expansion:
    """The function u(x) = sum_j beta_j K(z_j, x).

    Z : (m, d) CSR, the centres z_j; beta : (m,) float64, or (m, K) for K sums over the same kernel
    values. The expansion holds a copy of Z in its layout. `values` also holds a few thousand rows
    in the layout, and one block of kernel values if the sums are not compiled. Threads may share
    it.
    """

    def __init__(self, layout: Layout, Z: CsrMatrix, beta: np.ndarray) -> None:
        self.layout, self.Z, self.beta = layout, Z, beta
        self.sum_shape = beta.shape[1:]
        if layout.kernel.linear:
            # A linear expansion is one vector: w = sum_j beta_j z_j.
            self.weights = Z.column_products(beta)
            return
        with np.errstate(over="ignore"):  # `values` raises an error if the result is infinite
            parts = slices(len(beta), BLOCK_CENTRES)
            self.centres = [layout.centres(Z[at], beta[at]) for at in parts]

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
        for at, rows in blocks:
            for centres in self.centres:
                self.layout.add(u[at], rows, centres)


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

    The expansions have the same layout and the same number of sums.
    """
    layout = expansions[0].layout
    u = np.zeros((len(expansions), X.shape[0], *expansions[0].sum_shape))
    with np.errstate(over="ignore", invalid="ignore"):
        if layout.kernel.linear:
            for each, of_each in zip(expansions, u, strict=True):
                of_each[:] = X @ each.weights
        else:
            for block in layout.rows(X, extra):
                for each, of_each in zip(expansions, u, strict=True):
                    each.add(of_each, [block])
    check_finite(u, layout.kernel)
    return u


def check_finite(u: np.ndarray, kernel: Kernel) -> None:
    """Raise ParameterError if a sum of kernel values exceeds float64."""
    if not np.isfinite(u).all():
        raise ParameterError(
            f"values of the {kernel.name} kernel leave float64 on this data: scale the features"
        )
