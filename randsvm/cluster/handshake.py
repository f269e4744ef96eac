"""The versions and the arithmetic of a process, which client and workers compare.

Machines of equal arithmetic write models of the same bytes. BLAS, numpy and the C library have
different code for different processors. Different processors may still compute the same bits, and
two versions of a library may compute different bits on one processor. So the client compares
computed numbers, not names of processors. The compiled sums of kernel values have the same bits
with AVX2 and with AVX-512, and other bits without either.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator
from functools import cache
from hashlib import sha256

import numpy as np
import scipy
from scipy import sparse

from randsvm import __version__
from randsvm.kernels.expansion import BLOCK_CENTRES, BLOCK_ROWS, Expansion, KernelLayout
from randsvm.kernels.kernel import Kernel

# Sizes of the matrices of the sums: larger than one block and than one panel. All sums take 0.02 s.
ROWS, CENTRES, FEATURES = BLOCK_ROWS + 3, BLOCK_CENTRES + 5, 5
FUNCTIONS = (np.exp, np.cos, np.tanh, np.log1p, np.sqrt)


def handshake() -> tuple[dict[str, str], dict[str, str]]:
    """Return `versions` and `arithmetic` of this process.

    A worker of other versions is excluded; a notice reports a worker of other arithmetic.
    """
    return versions(), arithmetic()


def versions() -> dict[str, str]:
    """Return the versions that decide the bits of a model, or whether pickles can be exchanged."""
    return {
        "randsvm": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def differing_names(theirs: dict[str, str], ours: dict[str, str]) -> list[str]:
    """Return the keys of `ours` whose values differ from those of `theirs`."""
    return [name for name, value in ours.items() if theirs.get(name) != value]


@cache
def arithmetic() -> dict[str, str]:
    """Return the digest of the results of each kind of computation in this process."""
    rbf, poly = Kernel("rbf", 2.0), Kernel("poly", 2.0, 1.0)
    single, double = np.float32, np.float64
    cells, sparse_differences = (
        KernelLayout(rbf, True, None, single, 5.0),
        KernelLayout(rbf, True, None, single, None, True),
    )
    parts = {
        "sums of kernel values": _sums(
            _dense(rbf, single), _dense(rbf, double), cells, sparse_differences
        ),
        "matrix products": _sums(_dense(poly, single), _dense(poly, double)),
        "functions": _function_values(),
    }
    return {name: sha256(b"".join(bits)).hexdigest() for name, bits in parts.items()}


def _dense(kernel: Kernel, dtype: type) -> KernelLayout:
    return KernelLayout(kernel, True, None, dtype)


def _sums(*layouts: KernelLayout) -> Iterator[bytes]:
    """Yield the bytes of sums of kernel values, one for each layout."""
    uniform = np.random.default_rng(0).random
    X, Z = (sparse.csr_matrix(uniform((m, FEATURES)) - 0.5) for m in (ROWS, CENTRES))
    beta = uniform(CENTRES) - 0.5
    for kernel_layout in layouts:
        yield Expansion(kernel_layout, Z, beta).values(X).tobytes()


def _function_values() -> Iterator[bytes]:
    """Yield the bytes of values of functions of numpy and of the C library."""
    x = 8 * np.random.default_rng(0).random(1000)
    for function in FUNCTIONS:
        yield from (function(x.astype(dtype)).tobytes() for dtype in (np.float32, np.float64))
    yield np.array([(math.exp(-v), math.log(v), math.log1p(v)) for v in x.tolist()]).tobytes()
