"""How support vectors are laid out for prediction, precisely or fast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from randsvm.kernels.cells import SLICE_ROWS
from randsvm.kernels.expansion import (
    BLOCK_CENTRES,
    KernelLayout,
    has_few_nonzeros,
    prefers_dense,
    profits_from_cells,
)
from randsvm.kernels.kernel import Kernel


def precise_layout(kernel: Kernel, Z: sparse.csr_matrix) -> KernelLayout:
    """In float64, what suits the centres Z, (m, d)."""
    m, d = Z.shape
    return KernelLayout(kernel, prefers_dense(m, d, Z.nnz), None, np.float64)


def fast_layout(kernel: Kernel, Z: sparse.csr_matrix, cut: float | None, sums: int) -> KernelLayout:
    """In float32, what suits so many sums over the centres Z, (m, d), for rows that lie where they
    do. cut: see Space; kept where it pays."""
    m, d = Z.shape
    dense = prefers_dense(m, d, Z.nnz)
    if dense and has_few_nonzeros(kernel, m, d, Z.nnz):
        return KernelLayout(kernel, dense, None, np.float32, by_nonzeros=True)
    centre = np.asarray(Z.mean(axis=0, dtype=np.float64)).ravel() if dense and m else None
    kernel_layout = KernelLayout(kernel, dense, centre, np.float32, cut)
    some, fewer = (Z[:: max(1, -(-m // most))] for most in (SLICE_ROWS, BLOCK_CENTRES))
    pays = m > BLOCK_CENTRES and profits_from_cells(kernel_layout, some, fewer, sums)
    return kernel_layout if pays else replace(kernel_layout, cut=None)
