"""Test kernel values and their sums against the formulas, one pair at a time, in float64."""

import math

import numpy as np
import oracle
import pytest
from base import squared_norms
from csr_rows import csr
from kernel_sums import (
    BLOCK_CENTRES,
    BLOCK_ROWS,
    GRAM_ROWS,
    PANEL_CENTRES,
    PANEL_COLUMNS,
    Blocks,
    Dense,
    Expansion,
    Kernel,
    Nonzeros,
    SparseBlocks,
    choose_layout,
    dense_rbf,
    gram,
    sparse_rbf,
    sum_error,
    usual_values,
)
from scipy import sparse

from randsvm.errors import ParameterError

KERNELS = [
    Kernel("linear"),
    Kernel("poly", gamma=0.5, coef0=1.0, degree=3),
    Kernel("poly", gamma=0.5, coef0=-0.5, degree=6),
    Kernel("poly", gamma=0.5, coef0=1.0, degree=0),
    Kernel("rbf", gamma=0.3),
    Kernel("sigmoid", gamma=0.2, coef0=-0.1),
]


def kernel_by_definition(kernel, x, z):
    dot = math.fsum(x * z)
    return {
        "linear": lambda: dot,
        "poly": lambda: (kernel.gamma * dot + kernel.coef0) ** kernel.degree,
        "rbf": lambda: math.exp(-kernel.gamma * math.fsum((x - z) ** 2)),
        "sigmoid": lambda: math.tanh(kernel.gamma * dot + kernel.coef0),
    }[kernel.name]()


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((40, 6)) < 0.6, rng.random((40, 6)), 0)
    X[3] = 0
    return csr(X.astype(np.float32))


def layouts(kernel, dtype):
    """Return all layouts for a kernel and a precision."""
    found = [Blocks(kernel, dtype), SparseBlocks(kernel, dtype)]
    if kernel.name == "rbf":
        centre = np.full(6, 0.4)
        found += [Blocks(kernel, dtype, centre), Nonzeros(kernel, dtype)]
        found.append(Dense(kernel, dtype, centre if dtype is np.float32 else None))
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_gram_and_expansion_follow_the_formula(rows, kernel, dtype, tolerance):
    X = rows.toarray().astype(np.float64)
    exact = np.array([[kernel_by_definition(kernel, x, z) for z in X[:9]] for x in X])
    coarse = max(tolerance, 1e-7)  # LIBSVM takes float32 values
    beta = np.linspace(-1, 2, 9)
    for layout in layouts(kernel, dtype):
        assert gram(layout, rows)[:, :9] == pytest.approx(exact, rel=coarse, abs=coarse)
        values = layout.values(rows, rows[:9])
        assert values.dtype == dtype
        assert values == pytest.approx(exact, rel=tolerance, abs=tolerance)
        u = Expansion(layout, rows[:9], beta).values(rows)
        assert u.dtype == np.float64
        assert u == pytest.approx(exact @ beta, rel=10 * tolerance, abs=10 * tolerance)


@pytest.mark.parametrize("layout", [Dense, Nonzeros, Blocks, SparseBlocks])
def test_the_blocks_of_a_gram_matrix_fit_together(layout):
    X = np.random.default_rng(2).normal(size=(2 * GRAM_ROWS + 3, 3)).astype(np.float32)
    K = gram(layout(Kernel("rbf", 0.7), np.float64), csr(X))
    exact = oracle.kernel_matrix("rbf", X.astype(float), X.astype(float), 0.7)
    assert pytest.approx(exact, abs=1e-7) == K
    assert np.array_equal(K, K.T) and (np.diag(K) == 1).all()


@pytest.mark.parametrize("layout", [Dense, SparseBlocks])
def test_sums_over_several_blocks_agree_with_one_matrix(layout):
    rng = np.random.default_rng(1)
    X = csr(rng.normal(size=(2 * BLOCK_ROWS + 7, 3)).astype(np.float32))
    Z = csr(rng.normal(size=(2 * BLOCK_CENTRES + 5, 3)).astype(np.float32))
    beta = rng.normal(size=Z.shape[0])
    K = oracle.kernel_matrix("rbf", X.toarray().astype(float), Z.toarray().astype(float), 0.7)
    u = Expansion(layout(Kernel("rbf", 0.7), np.float64), Z, beta).values(X)
    assert u == pytest.approx(K @ beta, abs=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sums", [(), (3,)], ids=str)
def test_centres_that_are_not_kept_give_the_same_bits(kernel, dtype, sums):
    X, Z = few_nonzeros(2 * BLOCK_ROWS + 7, 6, 0), few_nonzeros(2 * BLOCK_CENTRES + 5, 6, 1)
    beta = np.random.default_rng(2).normal(size=(Z.shape[0], *sums))
    for layout in layouts(kernel, dtype):
        kept, not_kept = Expansion(layout, Z, beta), Expansion(layout, Z, beta, memory=0)
        assert np.array_equal(kept.values(X), not_kept.values(X))


@pytest.mark.parametrize("layout", [Dense, SparseBlocks])
def test_features_outside_the_columns_count_in_the_distance(layout):
    """`extra` is the squared norm of the features outside the columns: here of a third feature."""
    rng = np.random.default_rng(2)
    whole = rng.normal(size=(5, 3))
    Z = np.column_stack([rng.normal(size=(4, 2)), np.zeros(4)])
    kernel, beta = Kernel("rbf", 0.3), np.arange(1.0, 5.0)
    exact = [
        sum(b * kernel_by_definition(kernel, x, z) for b, z in zip(beta, Z, strict=True))
        for x in whole
    ]
    expansion = Expansion(layout(kernel, np.float64), csr(Z[:, :2]), beta)
    shown = csr(whole[:, :2])
    assert expansion.values(shown, whole[:, 2] ** 2) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("layout", [Blocks, SparseBlocks])
def test_a_value_beyond_float64_is_refused(layout):
    X = csr(np.array([[1.0, 2.0], [1e200, 1.0]]))
    expansion = Expansion(layout(Kernel("poly", 1.0, 0.0, 3), np.float64), X[:1], np.ones(1))
    assert np.isfinite(expansion.values(X[:1])).all()
    with pytest.raises(ParameterError, match="values of the poly kernel leave float64"):
        expansion.values(X)


@pytest.mark.parametrize("dtype, beta", [(np.float32, 1e39), (np.float64, 1e308)])
def test_coefficients_beyond_the_numbers_of_a_sum_are_refused_with_advice(dtype, beta):
    """The features are not to blame: values of rbf are 1 at most."""
    X = csr(np.ones((2, 3)))
    expansion = Expansion(Dense(Kernel("rbf", 1.0), dtype), X, np.full(2, beta))
    with pytest.raises(ParameterError, match=r"or lower C$"):
        expansion.values(X)


# ---- compiled sums of RBF ---------------------------------------------------------------------

WIDTHS = [128, 256, 512]


def compiled_sums(x, z, beta, widest):
    """Return sum_j beta_j 2^<x_i, z_j>; beta : (centres,) or (centres, columns)."""
    count = -(-len(z) // PANEL_CENTRES)
    padded = z[np.arange(count * PANEL_CENTRES) % len(z)]
    panels = padded.reshape(count, PANEL_CENTRES, -1).transpose(0, 2, 1).copy()
    columns = beta.reshape(len(z), -1).T
    u, weights = np.zeros((len(x), len(columns))), np.zeros((len(columns), len(padded)), np.float32)
    weights[:, : len(z)] = columns
    dense_rbf(x, panels, 1.0, None, weights, u, widest)
    return u.reshape(len(x), *beta.shape[1:])


@pytest.mark.slow
@pytest.mark.parametrize("widest", WIDTHS)
def test_the_compiled_power_of_2_is_accurate_to_two_units_in_the_last_place(widest):
    """Check all exponents down to -124, where float32 ends; below it the result is 0, and above 0
    it is 1.
    """
    x = -np.concatenate([np.linspace(0, 123.99, 50_001), np.geomspace(1e-9, 1, 1001)])
    x = x.astype(np.float32)[:, None]
    one = np.ones((1, 1), np.float32)
    exact = np.exp2(x[:, 0].astype(np.float64))
    assert compiled_sums(x, one, np.ones(1), widest) == pytest.approx(exact, rel=2.0**-22, abs=0)
    beyond = np.array([[-124.5], [-1e4], [-3e38], [-np.inf], [0.0], [1e-3]], np.float32)
    assert compiled_sums(beyond, one, np.ones(1), widest).tolist() == [0, 0, 0, 0, 1, 1]
    assert np.isnan(compiled_sums(one * np.float32(np.nan), one, np.ones(1), widest)).all()


@pytest.mark.parametrize("widest", WIDTHS)
@pytest.mark.parametrize(
    "m, centres, d", [(1, 1, 1), (3, 31, 2), (4, 32, 7), (5, 33, 22), (9, 100, 64)]
)
def test_compiled_sums_agree_with_the_matrix_product(m, centres, d, widest):
    rng = np.random.default_rng(3)
    x = -rng.random((m, d)).astype(np.float32)
    z = rng.random((centres, d)).astype(np.float32)
    beta = rng.normal(size=centres)
    exact = np.exp2(x.astype(np.float64) @ z.T.astype(np.float64)) @ beta
    assert compiled_sums(x, z, beta, widest) == pytest.approx(
        exact, abs=1e-6 * np.abs(beta).sum() * d
    )


@pytest.mark.parametrize("widest", WIDTHS)
def test_a_compiled_sum_does_not_depend_on_other_rows(widest):
    """The number of workers and the size of a chunk therefore change no bit of it."""
    rng = np.random.default_rng(4)
    x = -rng.random((23, 5)).astype(np.float32)
    z, beta = rng.random((70, 5)).astype(np.float32), rng.normal(size=70)
    at_once = compiled_sums(x, z, beta, widest)
    assert [compiled_sums(x[i : i + 1], z, beta, widest)[0] for i in range(23)] == at_once.tolist()


# ---- compiled sums of RBF over nonzeros --------------------------------------------------------


def few_nonzeros(rows, d, seed):
    """Return sparse rows; some have no features."""
    X = csr(sparse.random(rows, d, 0.1, "csr", np.float32, random_state=seed))
    X.data = X.data * 4 - 2
    return X


@pytest.mark.parametrize(
    "dtype, most, mean", [(np.float32, 2e-3, 1e-4), (np.float64, 1e-11, 1e-12)]
)
@pytest.mark.parametrize("sums", [(), (1,), (3,), (PANEL_COLUMNS + 1,)], ids=str)
def test_sums_over_nonzeros_follow_the_formula(sums, dtype, most, mean):
    """There are several blocks of centres; the last has an odd number of panels."""
    X, Z = few_nonzeros(BLOCK_ROWS + 60, 90, 0), few_nonzeros(BLOCK_CENTRES + 70, 90, 1)
    beta, kernel = np.random.default_rng(2).normal(size=(Z.shape[0], *sums)), Kernel("rbf", 0.05)
    extra = np.random.default_rng(3).random(X.shape[0])
    layout = Nonzeros(kernel, dtype)
    K = oracle.kernel_matrix("rbf", X.toarray().astype(float), Z.toarray().astype(float), 0.05)
    exact = (K * np.exp(-0.05 * extra)[:, None]) @ beta
    for rows in (X, X.toarray()):
        found = Expansion(layout, Z, beta).values(rows, extra)
        assert found == pytest.approx(exact, abs=most)
        assert np.abs(found - exact).mean() < mean


@pytest.mark.parametrize("dtype, far", [(np.float32, 1e-4), (np.float64, 1e-12)])
@pytest.mark.parametrize("widest", WIDTHS)
def test_sums_over_nonzeros_agree_for_every_vector_width(widest, dtype, far):
    X, Z = few_nonzeros(300, 40, 0), few_nonzeros(PANEL_CENTRES * 3, 40, 1).toarray()
    left, right = -squared_norms(X) / 8, -squared_norms(Z) / 8  # of powers of 2
    panels = np.column_stack([Z / 4, right]).reshape(3, PANEL_CENTRES, -1).transpose(0, 2, 1)
    beta, u = np.random.default_rng(2).normal(size=(1, len(Z))), np.zeros((300, 1))
    numbers = [np.ascontiguousarray(each, dtype) for each in (X.data, left, panels, beta)]
    values, lefts, centres, coefficients = numbers
    sparse_rbf(X.indptr, X.indices, values, lefts, centres, None, coefficients, u, widest)
    K = oracle.kernel_matrix("rbf", X.toarray().astype(float), Z.astype(float), math.log(2) / 8)
    assert u[:, 0] == pytest.approx(K @ beta[0], abs=far)


def usual_rows(m, seed):
    """Rows with a usual value in a third of the features, and with few other nonzeros."""
    rng = np.random.default_rng(seed)
    X = rng.choice([0.0, 1.0, -0.7], (m, 30), p=[0.9, 0.05, 0.05])
    X[:, ::3] = rng.choice([0.0, 1.0, 0.3], (m, 10), p=[0.1, 0.2, 0.7])
    return csr(X, dtype=np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float32, np.float64])
def test_rows_less_their_usual_values_have_fewer_nonzeros(dtype, stored):
    X = usual_rows(60, 0).astype(stored)
    centre = usual_values(X)
    layout = Nonzeros(Kernel("rbf", 0.5), dtype, centre)
    expected = (X.toarray().astype(np.float64) - centre).astype(dtype)
    for rows in (X, X.toarray()):
        found = layout.nonzeros(rows)
        assert found.dtype == dtype
        assert found.nnz == np.count_nonzero(expected) < X.nnz
        assert np.array_equal(found.indices, np.nonzero(expected)[1])
        assert np.array_equal(found.toarray(), expected)


@pytest.mark.parametrize("kind", [Dense, Nonzeros])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_loses_no_more_than_the_additions_of_its_layout(kind, dtype):
    """The first values of each sum are 1; each other one is lost if it is added to them alone."""
    unit, m = np.finfo(dtype).epsneg, 1000
    beta = np.full(m, 0.999 * unit, dtype).astype(np.float64)
    beta[:16] = 1.0
    layout = kind(Kernel("rbf", gamma=1.0), dtype)
    found = Expansion(layout, csr(np.zeros((m, 3))), beta).values(csr(np.zeros((1, 3))))[0]
    lost = (16.0 - found) + (m - 16) * 0.999 * unit
    assert abs(lost) <= (layout.additions(m, 1) + 3) * unit * 16.0


@pytest.mark.parametrize("kind", [Blocks, Dense, Nonzeros, SparseBlocks])
def test_the_bound_of_a_row_is_that_of_its_own_size(kind, rows):
    """Each pair of rows is bounded as two rows of the same sum of lengths."""
    kernel, centre = Kernel("rbf", gamma=0.3), np.full(6, 0.4)
    layout = kind(kernel, np.float32, centre)
    layout.sizes = layout.sizes_of(rows)
    X = rows.toarray() - centre
    lengths, beta = np.sqrt((X**2).sum(axis=1)), np.random.default_rng(1).normal(size=40)
    own = sum_error(layout, layout.sizes_of_pairs(rows), 40)
    for i, length in enumerate(lengths):
        norm = ((length + lengths.max()) / 2) ** 2
        terms = np.count_nonzero(X[i]) if kind is Nonzeros else 6
        alone = sum_error(layout, layout.sizes._replace(norm=norm, terms=terms), 40)
        assert own.relative[i] == pytest.approx(alone.relative, rel=1e-6)
    truth = np.exp(-0.3 * np.square(X[:, None] - X).sum(axis=2))
    error = own.of(truth @ np.abs(beta), np.abs(beta).sum())
    assert (np.abs(Expansion(layout, rows, beta).values(rows) - truth @ beta) <= error).all()
    assert (own.relative <= sum_error(layout, layout.sizes, 40).relative * (1 + 1e-9)).all()


# Beyond the range of float32, and beyond that of its squares.
UNITS = [1e-45, 1e-40, 1e-36, 1e-20, 1.0, 1e20, 1e38]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("profits", [None, lambda cells: True], ids=["dense", "cells"])
@pytest.mark.parametrize("measures", [True, False], ids=["training", "prediction"])
def test_rbf_does_not_depend_on_the_unit_of_the_features(unit, profits, measures):
    """With a gamma to match, features in any unit have the same values."""
    rng = np.random.default_rng(0)
    X, beta, gamma = rng.random((600, 3)) + 0.5, rng.normal(size=200), 0.5
    u = np.exp(-gamma * np.square(X[:, None] - X[:200]).sum(axis=2)) @ beta
    rows = csr(X * unit)
    layout = choose_layout(
        Kernel("rbf", gamma / unit**2), (*rows.shape, rows.nnz), np.float32, sample=rows,
        sizes=(lambda layout: layout.sizes_of(rows)) if measures else None, profits=profits,
    )  # fmt: skip
    layout.sizes = layout.sizes_of(rows)
    bound = sum_error(layout, layout.sizes, len(beta)).of(*[np.abs(beta).sum()] * 2)
    found = Expansion(layout, rows[: len(beta)], beta).values(rows)
    assert np.abs(found - u).max() <= bound < 0.1


@pytest.mark.parametrize("size", [1e-44, 1e-42, 1e-30])
@pytest.mark.parametrize("kind", [Blocks, Dense, Nonzeros, SparseBlocks])
def test_the_bound_of_sums_holds_for_coefficients_below_the_range_of_float32(kind, size):
    rng = np.random.default_rng(0)
    X, beta, layout = rng.random((60, 3)), rng.normal(size=40), kind(Kernel("rbf", 9.0), np.float32)
    u = np.exp(-9.0 * np.square(X[:, None] - X[:40]).sum(axis=2)) @ beta * size
    layout.sizes = layout.sizes_of(csr(X))
    bound = sum_error(layout, layout.sizes, len(beta)).of(*[size * np.abs(beta).sum()] * 2)
    found = Expansion(layout, csr(X[:40]), beta * size).values(csr(X))
    assert np.abs(found - u).max() <= bound


def test_an_unknown_error_of_values_is_unknown_where_all_values_are_0():
    """60,000 products in float32 have no bound, whatever their sum S is."""
    sizes = Dense.sizes._replace(norm=100.0, terms=60_000, length=10.0)
    bound = sum_error(Blocks(Kernel("rbf", 1.0), np.float32), sizes, 10)
    assert bound.of(0.0, 1.0) == math.inf
