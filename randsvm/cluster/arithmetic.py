"""What a machine makes of numbers that are the same everywhere. Machines that agree here write
models of the same bytes.

Found by computing, not by names: BLAS, numpy and the C library have code for each kind of
processor, but two kinds may agree, and two libraries on one kind may not. The compiled sums of
kernel values have the same bits with AVX2 and with AVX-512, and others where there is neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from hashlib import sha256

import numpy as np
from scipy import sparse

from randsvm.kernels.expansion import BLOCK_CENTRES, BLOCK_ROWS, Expansion, KernelLayout
from randsvm.kernels.kernel import Kernel

# Beyond the ends of a block and of a panel; all of it takes 0.02 s.
ROWS, CENTRES, FEATURES = BLOCK_ROWS + 3, BLOCK_CENTRES + 5, 5
FUNCTIONS = (np.exp, np.cos, np.tanh, np.log1p, np.sqrt)


@cache
def arithmetic() -> dict[str, str]:
    """What is computed -> digest of the bits that come out."""
    rbf, poly = Kernel("rbf", 2.0), Kernel("poly", 2.0, 1.0)
    single, double = np.float32, np.float64
    cells, few = (
        KernelLayout(rbf, True, None, single, 5.0),
        KernelLayout(rbf, True, None, single, None, True),
    )
    parts = {
        "sums of kernel values": _sums(_dense(rbf, single), _dense(rbf, double), cells, few),
        "matrix products": _sums(_dense(poly, single), _dense(poly, double)),
        "functions": _values(),
    }
    return {name: sha256(b"".join(bits)).hexdigest() for name, bits in parts.items()}


def _dense(kernel: Kernel, dtype: type) -> KernelLayout:
    return KernelLayout(kernel, True, None, dtype)


def _sums(*spaces: KernelLayout) -> Iterator[bytes]:
    """Of kernel values, in each way to compute them."""
    uniform = np.random.default_rng(0).random
    X, Z = (sparse.csr_matrix(uniform((m, FEATURES)) - 0.5) for m in (ROWS, CENTRES))
    beta = uniform(CENTRES) - 0.5
    for kernel_layout in spaces:
        yield Expansion(kernel_layout, Z, beta).values(X).tobytes()


def _values() -> Iterator[bytes]:
    """Of functions: numpy's, and those of the C library."""
    x = 8 * np.random.default_rng(0).random(1000)
    for function in FUNCTIONS:
        yield from (function(x.astype(dtype)).tobytes() for dtype in (np.float32, np.float64))
    yield np.array([(math.exp(-v), math.log(v), math.log1p(v)) for v in x.tolist()]).tobytes()
