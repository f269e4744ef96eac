"""Test float64 values of RBF on unscaled data against differences in exact arithmetic."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from csr_rows import csr
from kernel_sums import (
    PANEL_CENTRES,
    PANEL_COLUMNS,
    Blocks,
    Dense,
    Expansion,
    Kernel,
    SparseBlocks,
    dense_rbf,
    exact_gram,
    gram,
)

WIDTHS = [128, 256, 512]


def exact_kernel(x, z, gamma):
    squares = sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(x, z, strict=True))
    return math.exp(-gamma * float(squares))


def exact_values(X, Z, gamma):
    return np.array([[exact_kernel(x, z, gamma) for z in Z] for x in X])


def unscaled(m, d, kind):
    """Return rows whose squared norms are huge beside those of their differences, and a gamma."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(m, d))
    if kind == "seconds":
        X[:, 0] = 1.6e9 + 128 * rng.integers(5, size=m)
        return X.astype(np.float32), 1e-5
    if kind == "offset":
        return (X + 1e6).astype(np.float32), 0.1
    if kind == "two places":
        return (X + 1e9 * rng.integers(2, size=(m, 1))).astype(np.float32), 0.1
    return (X * 1e8).astype(np.float32), 1e-16 / d


KINDS = ["seconds", "offset", "two places", "large"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", [Dense, SparseBlocks])
@pytest.mark.parametrize("columns", [(), (PANEL_COLUMNS + 1,)])
def test_sums_keep_their_digits_on_unscaled_data(kind, layout, columns):
    X, gamma = unscaled(60, 7, kind)
    X[np.random.default_rng(4).random(X.shape) < 0.3] = 0
    X[2] = 0
    layout = layout(Kernel("rbf", gamma), np.float64)
    beta = np.random.default_rng(5).normal(size=(20, *columns))
    u = Expansion(layout, csr(X[:20]), beta).values(csr(X))
    truth = exact_values(X, X[:20], gamma)
    assert u == pytest.approx(truth @ beta, abs=1e-12 * float(np.abs(beta).sum()), rel=0)
    # The only value is that of a row with an equal centre.
    each = Expansion(layout, csr(X[:1]), np.ones(1)).values(csr(X))
    assert each == pytest.approx(truth[:, 0], rel=1e-12)
    assert each[0] == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", [Dense, SparseBlocks])
def test_a_gram_matrix_keeps_its_digits_on_unscaled_data(kind, layout):
    X, gamma = unscaled(70, 5, kind)
    K = gram(layout(Kernel("rbf", gamma), np.float64), csr(X))
    assert pytest.approx(exact_values(X, X, gamma), rel=2.0**-23) == K
    assert (np.diag(K) == 1).all() and (K == K.T).all()


@pytest.mark.parametrize("layout", [Blocks, SparseBlocks, Dense])
def test_a_layout_in_float64_keeps_the_digits_of_unscaled_data(layout):
    X, gamma = unscaled(40, 5, "two places")
    centre = None if layout is SparseBlocks else X.mean(axis=0)
    in_float64 = layout(Kernel("rbf", gamma), np.float32, centre).in_float64
    exact = exact_values(X, X, gamma)
    assert in_float64.values(csr(X), csr(X)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [5, 300])
def test_float64_values_of_pairs_keep_their_digits_on_unscaled_data(kind, d):
    X, gamma = unscaled(40, 5, kind)
    wide = np.zeros((40, d), X.dtype)
    wide[:, :5] = X
    K = exact_gram(Kernel("rbf", gamma), csr(wide))
    assert pytest.approx(exact_values(X, X, gamma), rel=1e-12) == K


def summed(x, z, beta, rate, widest):
    """Return sum_j beta_j 2^(-rate |x_i - z_j|^2)."""
    m, w = z.shape
    count = -(-m // PANEL_CENTRES)
    padded = z[np.arange(count * PANEL_CENTRES) % m]
    panels = padded.reshape(count, PANEL_CENTRES, w).transpose(0, 2, 1).copy()
    weights = np.zeros((beta.shape[1], len(padded)))
    weights[:, :m] = beta.T
    u = np.zeros((len(x), beta.shape[1]))
    dense_rbf(x, panels, rate, None, weights, u, widest)
    return u


@pytest.mark.parametrize("widest", WIDTHS)
def test_the_float64_power_of_2_is_accurate_to_two_units_in_the_last_place(widest):
    """Check all exponents down to -1021, where float64 ends; below it the result is 0."""
    e = np.concatenate([np.linspace(0, 1020.9, 10_001), np.geomspace(1e-18, 1, 1001)])
    # The squares of float32 numbers are exact in float64.
    x = np.sqrt(e).astype(np.float32).astype(float)[:, None]
    u = summed(x, np.zeros((1, 1)), np.ones((1, 1)), 1.0, widest)[:, 0]
    exact = [float(Decimal(2) ** -Decimal(v)) for v in x[:, 0] ** 2]
    assert u == pytest.approx(exact, rel=2.0**-51, abs=0)
    beyond = np.array([[31.96], [1e150], [np.inf], [0.0]])
    found = summed(beyond, np.zeros((1, 1)), np.ones((1, 1)), 1.0, widest)
    assert found[:, 0].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("widest", WIDTHS)
@pytest.mark.parametrize("m, centres, w, columns", [(1, 1, 1, 1), (5, 33, 7, 1), (9, 64, 3, 4)])
def test_compiled_sums_agree_with_numpy(m, centres, w, columns, widest):
    rng = np.random.default_rng(0)
    x, z, beta = rng.random((m, w)), rng.random((centres, w)), rng.normal(size=(centres, columns))
    squares = ((x[:, None] - z) ** 2).sum(axis=2)
    assert summed(x, z, beta, 0.7, widest) == pytest.approx(
        np.exp2(-0.7 * squares) @ beta, abs=1e-13
    )
