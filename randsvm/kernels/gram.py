"""Kernel values for every pair of some rows, and the same values centred."""

from __future__ import annotations

import numpy as np

from randsvm.arrays import CsrMatrix
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import Layout, choose_layout

# Values whose mean exceeds this multiple of their spread are centred: float32 has seven digits.
OFFSET = 100.0


def gram(layout: Layout, X: CsrMatrix, *, centred: bool = False) -> np.ndarray:
    """Return K(x_i, x_j) for every pair of rows, (m, m) float32, in the precision of the layout.

    centred: return `centred_gram` if float32 does not hold the differences between the values. The
    caller may then use K only in products K v with sum v = 0.
    """
    K: np.ndarray = np.empty((X.shape[0],) * 2, np.float32)
    layout.gram(X, K)
    if centred and layout.kernel.name in ("linear", "poly") and _is_far_from_0(K):
        return centred_gram(layout.kernel, X, K)
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
    K: np.ndarray = np.empty((X.shape[0],) * 2)
    exact_layout(kernel, X).gram(X, K)
    return K


def exact_layout(kernel: Kernel, X: CsrMatrix) -> Layout:
    """Return the layout for values in float64 of rows like X."""

    def largest(layout: Layout) -> float:
        return float(layout.squared_norms(X).max(initial=0.0))

    size = *X.shape, X.nnz
    return choose_layout(kernel, size, np.float64, largest=largest, reads_nonzeros=True)
