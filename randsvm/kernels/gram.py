"""Kernel values for every pair of some rows, and the same values centred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randsvm.arrays import CsrMatrix, Matrix, csr_parts, slices, squared_norms, to_csr, to_dense
from randsvm.kernels._kernels import (
    PANEL_CENTRES,
    difference_gram,
    lay_out_panels,
    rbf_gram,
    sparse_arguments,
    sparse_rbf_gram,
)
from randsvm.kernels.expansion import KernelLayout, prefers_dense, to_panels
from randsvm.kernels.kernel import Kernel

# A float64 block of a symmetric matrix: 512 kB.
GRAM_ROWS = 256
# Values whose mean exceeds this multiple of their spread are centred: float32 has seven digits.
OFFSET = 100.0


def gram(kernel_layout: KernelLayout, X: CsrMatrix, *, centred: bool = False) -> np.ndarray:
    """Return K(x_i, x_j) for every pair of rows, (m, m) float32, in the precision of the layout.

    centred: return `centred_gram` if float32 does not hold the differences between the values. The
    caller may then use K only in products K v with sum v = 0.
    """
    m, d = X.shape
    kernel = kernel_layout.kernel
    K: np.ndarray = np.empty((m, m), np.float32)
    if m and kernel_layout.uses_differences:
        rows = kernel_layout.convert(X)
        difference_gram(kernel_layout.left_operand(rows), to_panels(rows.X), kernel.gamma, K)
    elif m and kernel_layout.is_compiled(d) and kernel_layout.sums_nonzeros(d):
        _sparse_gram(kernel, kernel_layout.nonzeros(X), K)
    elif m and kernel_layout.is_compiled(d):
        x, _ = kernel_layout.lay_out(X)
        # [2 gamma x, left, 1], as in DenseCentres, but scaled in float32.
        z = np.column_stack([x[:, :d] * np.float32(kernel.scale), x[:, d + 1], x[:, d]])
        rbf_gram(x, to_panels(z), K)
    else:
        _gram_in_blocks(kernel_layout, X, K)
        if centred and kernel.name in ("linear", "poly") and _is_far_from_0(K):
            return centred_gram(kernel, X, K)
    return K


def _sparse_gram(kernel: Kernel, X: CsrMatrix, K: np.ndarray) -> None:
    """Compute RBF values into K, (m, m) float32, from the nonzeros of float32 rows."""
    m, d = X.shape
    norms = squared_norms(X)
    panels: np.ndarray = np.empty((-(-m // PANEL_CENTRES), d + 1, PANEL_CENTRES), np.float32)
    # Products of float32 values have the same digits as in a dense layout.
    lay_out_panels(*csr_parts(X), float(np.float32(kernel.scale)), kernel.right(norms), panels)
    starts, features, values = csr_parts(X)
    left = kernel.left(norms).astype(np.float32)
    sparse_rbf_gram(starts, features, values, left, panels, K)


def _gram_in_blocks(kernel_layout: KernelLayout, X: CsrMatrix, K: np.ndarray) -> None:
    """Compute kernel values into K, (m, m) float32, in blocks of GRAM_ROWS rows and columns."""
    rows = kernel_layout.convert(X)
    parts = list(slices(len(K), GRAM_ROWS))
    centres = [kernel_layout.right_operand(rows[j]) for j in parts]
    buffer: np.ndarray = np.empty(GRAM_ROWS * GRAM_ROWS, kernel_layout.dtype)
    for number, i in enumerate(parts):
        prepared, largest = kernel_layout.left_operand(rows[i]), float(rows.norms[i].max())
        for j, columns in zip(parts[number:], centres[number:], strict=True):
            block = buffer[: (i.stop - i.start) * (j.stop - j.start)].reshape(i.stop - i.start, -1)
            columns.arguments(prepared, block, largest)
            kernel_layout.kernel.finish(block, largest)
            K[i, j] = block
            K[j, i] = block.T
    if kernel_layout.kernel.name == "rbf":
        np.fill_diagonal(K, 1.0)


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
    rows = Float64Rows.of(kernel, X)
    return cross_gram(kernel, rows, rows)


@dataclass(frozen=True)
class Float64Rows:
    """Rows for kernel values in float64.

    X : (m, d) dense, less `centre`, or CSR; norms : (m,) squared norms
    centre : (d,), subtracted from dense rows, for rbf their mean: rbf depends on differences only,
    and smaller values are rounded less. None: rows are sparse
    """

    X: np.ndarray | CsrMatrix
    norms: np.ndarray
    centre: np.ndarray | None

    @staticmethod
    def of(kernel: Kernel, X: CsrMatrix) -> Float64Rows:
        """Return the rows, dense if their products are faster then."""
        if not prefers_dense(X.shape[0], X.shape[1], X.nnz):
            return Float64Rows(X.astype(np.float64), squared_norms(X), None)
        dense = X.toarray().astype(np.float64)
        centre = dense.mean(axis=0) if kernel.name == "rbf" else np.zeros(X.shape[1])
        return Float64Rows._dense(dense, centre)

    @staticmethod
    def _dense(X: Matrix, centre: np.ndarray) -> Float64Rows:
        dense = to_dense(X).astype(np.float64)
        dense -= centre
        return Float64Rows(dense, np.einsum("ij,ij->i", dense, dense), centre)

    def like(self, X: Matrix) -> Float64Rows:
        """Return other rows with the same centre."""
        if self.centre is not None:
            return self._dense(X, self.centre)
        X = to_csr(X)
        return Float64Rows(X.astype(np.float64), squared_norms(X), None)

    def __getitem__(self, rows: np.ndarray) -> Float64Rows:
        return Float64Rows(self.X[rows], self.norms[rows], self.centre)


def cross_gram(kernel: Kernel, rows: Float64Rows, centres: Float64Rows) -> np.ndarray:
    """Return K(x_i, z_j) of rows and centres, (m, k) float64; not for a precomputed kernel."""
    if isinstance(rows.X, np.ndarray):
        K: np.ndarray = rows.X @ to_dense(centres.X).T
    else:
        m, k = rows.X.shape[0], centres.X.shape[0]
        K = np.empty((m, k))
        columns = to_csr(centres.X).by_columns()
        sparse_arguments(*csr_parts(rows.X), *columns, np.zeros(m), np.zeros(k), K)
    K *= kernel.scale
    K += kernel.left(rows.norms)[:, None]
    K += kernel.right(centres.norms)
    kernel.finish(K, max(float(one.norms.max(initial=0.0)) for one in (rows, centres)))
    return K
