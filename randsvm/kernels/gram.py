"""Kernel values of every pair of some rows."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from randsvm.arrays import slices
from randsvm.kernels._kernels import difference_gram, rbf_gram
from randsvm.kernels.expansion import KernelLayout
from randsvm.kernels.sums import panels_of

# A float64 block of a symmetric matrix: 512 kB.
GRAM_ROWS = 256


def gram(kernel_layout: KernelLayout, X: sparse.csr_matrix) -> np.ndarray:
    """K(x_i, x_j) of every pair of rows, (m, m) float32, computed in the Space's precision."""
    m, d = X.shape
    K: np.ndarray = np.empty((m, m), np.float32)
    if m and kernel_layout.by_differences:
        rows = kernel_layout.rows(X)
        difference_gram(
            kernel_layout.prepared(rows), panels_of(rows.X), kernel_layout.kernel.gamma, K
        )
    elif m and kernel_layout.compiled(d):
        x, _ = kernel_layout.laid_out(X)
        # [2 gamma x, left, 1]: what `centres` makes, of float32 rows.
        z = np.column_stack(
            [x[:, :d] * np.float32(kernel_layout.kernel.scale), x[:, d + 1], x[:, d]]
        )
        rbf_gram(x, panels_of(z), K)
    else:
        _gram_in_blocks(kernel_layout, X, K)
    return K


def _gram_in_blocks(kernel_layout: KernelLayout, X: sparse.csr_matrix, K: np.ndarray) -> None:
    """See gram; into K."""
    rows = kernel_layout.rows(X)
    parts = list(slices(len(K), GRAM_ROWS))
    centres = [kernel_layout.centres(rows[j]) for j in parts]
    buffer: np.ndarray = np.empty(GRAM_ROWS * GRAM_ROWS, kernel_layout.dtype)
    for number, i in enumerate(parts):
        prepared, largest = kernel_layout.prepared(rows[i]), float(rows.norms[i].max())
        for j, columns in zip(parts[number:], centres[number:], strict=True):
            block = buffer[: (i.stop - i.start) * (j.stop - j.start)].reshape(i.stop - i.start, -1)
            columns.arguments(prepared, block, largest)
            kernel_layout.kernel.finish(block, largest)
            K[i, j] = block
            K[j, i] = block.T
    if kernel_layout.kernel.name == "rbf":
        np.fill_diagonal(K, 1.0)
