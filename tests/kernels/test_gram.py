"""Kernel values less their means, where float32 does not hold the differences of the values."""

import numpy as np
import oracle
import pytest
from base import csr_parts, squared_norms
from csr_rows import csr
from kernel_sums import (
    GRAM_ROWS,
    Blocks,
    Dense,
    Kernel,
    Nonzeros,
    SparseBlocks,
    centred_gram,
    gram,
    sparse_rbf,
)
from scipy import sparse

KERNELS = {
    "linear": Kernel("linear", 1.0, 0.0, 3),
    "poly": Kernel("poly", 1e-3, 1.0, 2),
}


def rows(offset):
    """More than two blocks of them; integers, whose products float64 has exactly."""
    rng = np.random.default_rng(3)
    return rng.integers(-9, 10, (2 * GRAM_ROWS + 40, 3)).astype(np.float64) + offset


def exact(kernel, X):
    products = X.astype(np.longdouble) @ X.T.astype(np.longdouble)
    if kernel.name == "linear":
        return products
    return (np.longdouble(kernel.gamma) * products + kernel.coef0) ** kernel.degree


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("layout", [Blocks, SparseBlocks])
def test_differences_far_from_0_keep_their_digits(kernel, layout):
    X = rows(1e5)
    layout = layout(kernel, np.float64)
    K, plain = (gram(layout, csr(X, dtype=np.float32), centred=c) for c in (True, False))
    values = exact(kernel, X)
    # Of steps whose sum is 0.
    steps = np.random.default_rng(4).normal(size=(len(X), 5))
    steps -= steps.mean(axis=0)

    def error(K):
        off = (K - values) @ steps
        return float(np.abs(off - off.mean(axis=0)).max() / np.abs(values @ steps).std())

    assert error(K) < 1e-5 < error(plain)


@pytest.mark.parametrize("name", ["linear", "poly", "rbf", "sigmoid", "precomputed"])
def test_centred_values_are_those_of_centred_rows(name):
    X = rows(0.0)[:40].astype(np.float32) / 8
    values = oracle.kernel_matrix("rbf" if name == "precomputed" else name, X, X, 0.3, 0.5, 2)
    kernel = Kernel(name, gamma=0.3, coef0=0.5, degree=2)
    K = centred_gram(kernel, csr(X), values.astype(np.float32))
    centring = np.eye(40) - 1 / 40
    assert pytest.approx(centring @ values @ centring, rel=1e-6, abs=1e-6) == K


@pytest.mark.parametrize("widest", [128, 256, 512])
@pytest.mark.parametrize("m", [1, 33, 160, 217])
def test_values_over_nonzeros_are_those_over_all_features(m, widest):
    rng = np.random.default_rng(m)
    X = csr(sparse.random(m, 40, 0.2, "csr", np.float32, rng))
    X.data[:] = rng.choice([1.0, 0.7, -2.3], X.nnz)
    kernel = Kernel("rbf", 0.37)
    K = gram(Nonzeros(kernel, np.float32), X)
    assert np.array_equal(K, gram(Dense(kernel, np.float32), X))
    rows = X.toarray().astype(np.float64)
    exact = oracle.kernel_matrix("rbf", rows, rows, 0.37)
    assert pytest.approx(exact, abs=1e-6) == K
    assert np.array_equal(K, K.T)
    panels, _ = Nonzeros(kernel, np.float32).centres(X)
    left = kernel.left(squared_norms(X)).astype(np.float32)
    narrow = np.zeros((m, m), np.float32)
    sparse_rbf(*csr_parts(X), left, panels, narrow, widest=widest)
    # Rounding of exponents up to 20 also makes the diagonal differ from 1.
    assert pytest.approx(K, abs=1e-5) == narrow


def test_the_largest_gamma_has_values_of_0_and_1():
    """gamma log2(e) is beyond float64, and no value is nan."""
    X = rows(0.0)[:40]
    K = Dense(Kernel("rbf", 1.79e308), np.float64).gram(csr(X), np.float64)
    assert ((X[:, None] == X).all(axis=2) == K).all()
