"""Test the sums over rows in cells: omitted values are small and their centres far away; all others
are included.
"""

import numpy as np
import pytest
from csr_rows import csr
from kernel_sums import (
    BLOCK_CENTRES,
    CELL_ROWS,
    PANEL_COLUMNS,
    SLICE_ROWS,
    Cells,
    Expansion,
    Kernel,
    add_sums_of_cells,
)

# With this cut the omitted values are visible: up to 0.05 for each centre.
GAMMA, CUT = 3.0, 3.0
# Rounding of float32 sums over exponents of up to 300.
FLOAT32_TOLERANCES = 1e-3
WIDTHS = [128, 256, 512]


def clusters(m, d, seed=0):
    """Return rows around twelve places; the last feature has only two values."""
    rng = np.random.default_rng(seed)
    middles = np.random.default_rng(9).normal(size=(12, d)) * 3
    X = middles[rng.integers(12, size=m)] + 0.3 * rng.normal(size=(m, d))
    X[:, -1] = X[:, -1] > 0
    return X.astype(np.float32)


def cells(cutoff=CUT, gamma=GAMMA, d=4):
    return Cells(Kernel("rbf", gamma), np.float32, np.full(d, 0.25), cutoff)


def kernel_values(X, Z):
    differences = X[:, None].astype(np.float64) - Z
    return np.exp(-GAMMA * (differences**2).sum(axis=2))


def boxes_of(X, order):
    return [order[at : at + CELL_ROWS] for at in range(0, len(order), CELL_ROWS)]


def reference_sums(X, Z, beta, order):
    """Return the sums over the centres that are near enough to the box of a row's cell."""
    u = np.zeros((len(X), *beta.shape[1:]))
    for cell in boxes_of(X, order):
        lower, upper = X[cell].min(axis=0), X[cell].max(axis=0)
        out = np.maximum(0, np.maximum(lower - Z, Z - upper)).astype(np.float64)
        near = GAMMA * (out**2).sum(axis=1) < CUT
        u[cell] = kernel_values(X[cell], Z[near]) @ beta[near]
    return u


@pytest.mark.parametrize("m", [1, 31, 64, 65, 1000])
@pytest.mark.parametrize("columns", [(), (1,), (PANEL_COLUMNS + 1,)])
def test_sums_include_the_centres_near_the_box(m, columns):
    X, Z = clusters(m, 4), clusters(BLOCK_CENTRES + 70, 4, seed=1)
    beta = np.random.default_rng(2).normal(size=(len(Z), *columns))
    ours = cells()
    [(_, (order, _))] = ours.rows(csr(X))
    u = Expansion(ours, csr(Z), beta).values(csr(X))
    assert u == pytest.approx(reference_sums(X, Z, beta, order), abs=FLOAT32_TOLERANCES)
    assert (
        np.abs(u - kernel_values(X, Z) @ beta).max()
        <= np.exp(-CUT) * np.abs(beta).sum() + FLOAT32_TOLERANCES
    )


@pytest.mark.parametrize("widest", WIDTHS)
@pytest.mark.parametrize("columns", [1, 3])
def test_sums_agree_for_every_vector_width(widest, columns):
    X, Z = clusters(500, 4), clusters(100, 4, seed=1)
    beta = np.random.default_rng(2).normal(size=(100, columns))
    ours = cells()
    [(_, (order, panels))] = ours.rows(csr(X))
    u = np.zeros((500, columns))
    centres = ours.centres(csr(Z), beta)
    rate = ours.kernel.rate
    kept = add_sums_of_cells(panels, order, *centres, CUT / GAMMA, rate, u, widest)
    assert u == pytest.approx(reference_sums(X, Z, beta, order), abs=FLOAT32_TOLERANCES)
    assert 0 < kept < 0.5 * 500 * 100


def test_equal_rows_have_equal_sums_and_slices_add_up():
    X = np.repeat(clusters(10, 4), (SLICE_ROWS + 100) // 10, axis=0)
    Z = clusters(40, 4, seed=1)
    ours, X_ = cells(), csr(X)
    assert cells().rows_at_once(4) == SLICE_ROWS < len(X)
    u = Expansion(ours, csr(Z), np.ones(40)).values(X_)
    assert u == pytest.approx(
        kernel_values(X, Z).sum(axis=1), abs=40 * np.exp(-CUT) + FLOAT32_TOLERANCES
    )


def test_features_outside_the_columns_count_in_the_distance():
    X, Z = clusters(200, 4), clusters(50, 4, seed=1)
    extra = np.random.default_rng(1).random(200)
    u = Expansion(cells(), csr(Z), np.ones(50)).values(csr(X), extra)
    exact = np.exp(-GAMMA * extra) * kernel_values(X, Z).sum(axis=1)
    assert u == pytest.approx(exact, abs=50 * np.exp(-CUT) + FLOAT32_TOLERANCES)
