"""Kernel values of every pair of some rows."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from randsvm.arrays import slices, squared_norms
from randsvm.kernels._kernels import difference_gram, rbf_gram
from randsvm.kernels.expansion import KernelLayout, prefers_dense, to_panels
from randsvm.kernels.kernel import Kernel

# A float64 block of a symmetric matrix: 512 kB.
GRAM_ROWS = 256
# Values whose mean exceeds this multiple of their spread are centred: float32 has seven digits.
OFFSET = 100.0


def gram(kernel_layout: KernelLayout, X: sparse.csr_matrix, *, centred: bool = False) -> np.ndarray:
    """Return K(x_i, x_j) of every pair of rows, (m, m) float32, in the precision of the layout.

    centred: subtract the means of rows and columns if the values lie far from 0 beside their
    spread, so that float32 holds their differences. For sum d = 0 the sums sum_j K_ij d_j then
    differ by a constant only.
    """
    m, d = X.shape
    K: np.ndarray = np.empty((m, m), np.float32)
    if m and kernel_layout.uses_differences:
        rows = kernel_layout.convert(X)
        difference_gram(
            kernel_layout.left_operand(rows), to_panels(rows.X), kernel_layout.kernel.gamma, K
        )
    elif m and kernel_layout.is_compiled(d):
        x, _ = kernel_layout.lay_out(X)
        # [2 gamma x, left, 1]: what `centres` makes, of float32 rows.
        z = np.column_stack(
            [x[:, :d] * np.float32(kernel_layout.kernel.scale), x[:, d + 1], x[:, d]]
        )
        rbf_gram(x, to_panels(z), K)
    else:
        sums, diagonal = _gram_in_blocks(kernel_layout, X, K)
        mean, far = float(sums.mean()) / max(m, 1), kernel_layout.kernel.name in ("linear", "poly")
        if centred and far and abs(mean) > OFFSET * (diagonal - mean) and np.isfinite(mean):
            _gram_in_blocks(kernel_layout, X, K, sums / m)
    return K


def _gram_in_blocks(
    kernel_layout: KernelLayout,
    X: sparse.csr_matrix,
    K: np.ndarray,
    means: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Compute `gram` into K, less the means : (m,) of rows and columns.

    Returns the sums of the rows, (m,) float64, and the mean of the diagonal.
    """
    m = len(K)
    rows, sums, diagonal = kernel_layout.convert(X), np.zeros(m), 0.0
    parts = list(slices(m, GRAM_ROWS))
    centres = [kernel_layout.right_operand(rows[j]) for j in parts]
    buffer: np.ndarray = np.empty(GRAM_ROWS * GRAM_ROWS, kernel_layout.dtype)
    for number, i in enumerate(parts):
        prepared, largest = kernel_layout.left_operand(rows[i]), float(rows.norms[i].max())
        for j, columns in zip(parts[number:], centres[number:], strict=True):
            block = buffer[: (i.stop - i.start) * (j.stop - j.start)].reshape(i.stop - i.start, -1)
            columns.arguments(prepared, block, largest)
            kernel_layout.kernel.finish(block, largest)
            if means is not None:
                block -= means[i, None]
                block -= means[j] - means.mean()
            K[i, j] = block
            K[j, i] = block.T
            sums[i] += block.sum(axis=1)
            if i == j:
                diagonal += float(block.trace()) / m
            else:
                sums[j] += block.sum(axis=0)
    if kernel_layout.kernel.name == "rbf":
        np.fill_diagonal(K, 1.0)
    return sums, diagonal


def exact_gram(kernel: Kernel, X: sparse.csr_matrix) -> np.ndarray:
    """Return K(x_i, x_j) of every pair of rows, (m, m) float64, computed in float64.

    Not for a precomputed kernel.
    """
    rows = X.astype(np.float64)
    if prefers_dense(X.shape[0], X.shape[1], X.nnz):
        dense = rows.toarray()
        if kernel.name == "rbf":  # does not change, and its rounding shrinks
            dense -= dense.mean(axis=0)
        K, norms = dense @ dense.T, np.einsum("ij,ij->i", dense, dense)
    else:
        K, norms = (rows @ rows.T).toarray(), squared_norms(rows)
    K *= kernel.scale
    K += kernel.left(norms)[:, None]
    K += kernel.right(norms)
    kernel.finish(K, float(norms.max(initial=0.0)))
    return K
