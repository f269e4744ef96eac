"""Kernel values less their means, where float32 does not hold the differences of the values."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from scipy import sparse

from randsvm.kernels.expansion import KernelLayout
from randsvm.kernels.gram import GRAM_ROWS, centred_gram, gram
from randsvm.kernels.kernel import Kernel

KERNELS = {
    "linear": Kernel("linear", 1.0, 0.0, 3),
    "poly": Kernel("poly", 1e-3, 1.0, 2),
}


def rows(offset: float) -> np.ndarray:
    """More than one block of them; integers, whose products float64 has exactly."""
    rng = np.random.default_rng(3)
    return rng.integers(-9, 10, (GRAM_ROWS + 40, 3)).astype(np.float64) + offset


def exact(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    products = X.astype(np.longdouble) @ X.T.astype(np.longdouble)
    if kernel.name == "linear":
        return products
    return (np.longdouble(kernel.gamma) * products + kernel.coef0) ** kernel.degree


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_differences_far_from_0_keep_their_digits(kernel: Kernel, dense: bool) -> None:
    X = rows(1e5)
    kernel_layout = KernelLayout(kernel, dense, None, np.float64)
    K, plain = (
        gram(kernel_layout, sparse.csr_matrix(X, dtype=np.float32), centred=c)
        for c in (True, False)
    )
    values = exact(kernel, X)
    # Of steps whose sum is 0.
    steps = np.random.default_rng(4).normal(size=(len(X), 5))
    steps -= steps.mean(axis=0)

    def error(K: np.ndarray) -> float:
        off = (K - values) @ steps
        return float(np.abs(off - off.mean(axis=0)).max() / np.abs(values @ steps).std())

    assert error(K) < 1e-5 < error(plain)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_values_around_0_stay_as_they_are(kernel: Kernel) -> None:
    X = sparse.csr_matrix(rows(0.0), dtype=np.float32)
    kernel_layout = KernelLayout(kernel, True, None, np.float64)
    assert np.array_equal(gram(kernel_layout, X, centred=True), gram(kernel_layout, X))


@pytest.mark.parametrize("name", ["linear", "poly", "rbf", "sigmoid", "precomputed"])
def test_centred_values_are_those_of_centred_rows(name: str) -> None:
    X = rows(0.0)[:40].astype(np.float32) / 8
    values = oracle.kernel_matrix("rbf" if name == "precomputed" else name, X, X, 0.3, 0.5, 2)
    kernel = Kernel(name, gamma=0.3, coef0=0.5, degree=2)
    K = centred_gram(kernel, sparse.csr_matrix(X), values.astype(np.float32))
    centring = np.eye(40) - 1 / 40
    assert pytest.approx(centring @ values @ centring, rel=1e-6, abs=1e-6) == K
