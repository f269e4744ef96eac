"""Test random feature maps: their mean is the kernel, and each random number follows from its
address.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from csr_rows import csr
from hypothesis import given
from hypothesis import strategies as st
from kernel_sums import RandomMap
from kernel_sums import random_features as features

from randsvm.errors import ContentError, ParameterError

RBF = RandomMap("rbf", 64, 0.7)
POLY = RandomMap("poly", 64, 0.5, 1.0, 3)
MAPS = [
    RBF,
    POLY,
    RandomMap("poly", 64, 1.0, 1.0, 2),
    RandomMap("poly", 64, 0.8, 0.0, 2),
    RandomMap("poly", 64, 0.3, 0.5, 7),
]


def as_csr(X):
    return csr(np.asarray(X, np.float32))


def some_rows(m, d, density=1.0, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return as_csr(np.where(rng.random((m, d)) < density, scale * rng.normal(size=(m, d)), 0))


def indices(d, first=1):
    return np.arange(first, first + d, dtype=np.int32)


def z(given_map, X, at=None):
    return given_map.over(indices(X.shape[1]) if at is None else at).values(X)


def kernel(given_map, X):
    X = X.astype(np.float64)
    if given_map.kernel == "rbf":
        return np.exp(-given_map.gamma * ((X[:, None] - X[None]) ** 2).sum(2))
    return (given_map.gamma * X @ X.T + given_map.coef0) ** given_map.degree


# --- reference: one number at a time, library functions, float64 -------------------------------


# Purposes of numbers. A model of a file has the seed only, so it depends on them.
PHASES, DEGREES, NORMALS, SIGNS = 1, 2, 3, 4


def word(seed, purpose, place, feature=0, group=0):
    key, counter = np.array([seed, feature], np.uint64), np.array([0, group, purpose, 0], np.uint64)
    return int(np.random.Philox(key=key, counter=counter).random_raw(place + 1)[place])


def plain_normal(bits, sine):
    u, v = ((bits >> 32) + 0.5) / 2**32, 2 * math.pi * (((bits % 2**32) + 0.5) / 2**32 - 0.5)
    return math.sqrt(-2 * math.log(u)) * (math.sin(v) if sine else math.cos(v))


def plain_wave(m, j, x):
    b = 2 * math.pi * (word(m.seed, PHASES, j) / 2**64)
    w = {f: plain_normal(word(m.seed, NORMALS, j // 2, f), j % 2 == 1) for f in x}
    dot = math.fsum(w[f] * x[f] for f in x)
    return math.sqrt(2 / m.components) * math.cos(math.sqrt(2 * m.gamma) * dot + b)


def plain_coefficient(m, k):
    g, r = Fraction(m.gamma), Fraction(m.coef0)
    return math.comb(m.degree, k) * g**k * r ** (m.degree - k)


def plain_probabilities(m):
    drawn = [Fraction(1, 2 ** (k + 1)) * (plain_coefficient(m, k) > 0) for k in range(m.degree + 1)]
    return [q / sum(drawn) for q in drawn]


def plain_product(m, j, x):
    q, u, k = plain_probabilities(m), Fraction(word(m.seed, DEGREES, j), 2**64), 0
    while u >= sum(q[: k + 1]):
        k += 1
    product = math.sqrt(plain_coefficient(m, k) / q[k] / m.components)
    for i in range(k):
        bits = {f: word(m.seed, SIGNS, j, f, i // 64) >> i % 64 & 1 for f in x}
        product *= math.fsum(x[f] * (1 - 2 * bits[f]) for f in x)
    return product


@pytest.mark.parametrize(
    "m",
    [
        RandomMap("rbf", 13, 0.7, seed=5),
        RandomMap("poly", 40, 0.5, 1.0, 5, 5),
        RandomMap("poly", 40, 0.5, 1.0, 5, 2**64 - 1),
        RandomMap("poly", 5, 0.5, 0.0, 130, 5),  # more factors than a word has bits
    ],
    ids=str,
)
def test_a_map_follows_the_formula_number_by_number(m):
    at = np.array([0, 3, 70000, 2**31 - 1], np.int32)
    X = as_csr([[0.5, -1.0, 0.25, 1.5], [0, 0, 0, 0], [0, 2.0, 0, 0], [0.1, 0, 0, 1.0]])
    plain = plain_wave if m.kernel == "rbf" else plain_product
    rows = [{int(f): float(v) for f, v in zip(at, row, strict=True)} for row in X.toarray()]
    expected = [[plain(m, j, row) for j in range(m.components)] for row in rows]
    found = z(m, X, at)[:, : m.components]
    assert found == pytest.approx(np.array(expected), rel=2e-5, abs=1e-6)


# --- mean and spread ---------------------------------------------------------------------------


@pytest.mark.parametrize("m", MAPS, ids=str)
def test_the_mean_over_many_maps_is_the_kernel(m):
    """It agrees within 4.5 standard errors over 10 pairs of 4 rows; the seeds are fixed."""
    X, seeds = some_rows(4, 3, scale=0.4), 2000
    maps = [z(replace(m, seed=seed), X).astype(np.float64) for seed in range(seeds)]
    products = np.array([Z @ Z.T for Z in maps])
    mean, error = products.mean(axis=0), products.std(axis=0, ddof=1) / math.sqrt(seeds)
    exact = kernel(m, X.toarray())
    assert error.max() < 0.03 * exact.max()  # else the test would pass for any map
    assert (np.abs(mean - exact) <= 4.5 * error + 1e-6).all()


# --- coefficients and degrees ------------------------------------------------------------------

POLYS = st.builds(
    RandomMap,
    st.just("poly"),
    st.integers(1, 50),
    st.floats(1e-6, 1e3),
    st.just(0.0) | st.floats(1e-6, 1e3),
    st.integers(2, 12),
    st.integers(0, 2**64 - 1),
)


def test_coefficients_are_right_if_powers_overflow_float64():
    """2^900 binomial(1000, 100) overflows, but its product with 1e-4^100 does not."""
    logarithm = math.log(math.comb(1000, 100)) + 100 * math.log(1e-4) + 900 * math.log(2)
    assert features._coefficients(1000, 1e-4, 2.0)[100] == pytest.approx(math.exp(logarithm))
    assert features._coefficients(1000, 1.0, 2.0)[100] == math.inf
    assert features._coefficients(1000, 1e-9, 0.5)[1000] == 0


# --- layouts, blocks, threads ------------------------------------------------------------------


@pytest.mark.parametrize("m", MAPS, ids=str)
def test_dense_and_sparse_rows_agree(m, set_sizes):
    X = some_rows(300, 40, 0.3)
    prepared = m.over(indices(40))
    found = {}
    for name, share in {"dense": -1.0, "sparse": 2.0}.items():
        set_sizes(dense_share=share)
        found[name] = prepared.values(X)
    difference = np.abs(found["dense"] - found["sparse"]).max()
    assert difference <= 1e-5 * np.abs(found["sparse"]).max()


@pytest.mark.parametrize("share", [-1.0, 2.0])
@pytest.mark.parametrize("m", [RBF, POLY], ids=str)
def test_data_beyond_float32_is_refused(m, share, set_sizes):
    set_sizes(dense_share=share)
    with pytest.raises(ContentError, match="leave float32 on this data"):
        z(m, as_csr([[1.0, 2.0], [3e38, 3e38]]))


# --- text form and parameters ------------------------------------------------------------------

RBFS = st.builds(
    RandomMap,
    st.just("rbf"),
    st.integers(1, 2**31 - 1),
    st.floats(0, allow_infinity=False),
    seed=st.integers(0, 2**64 - 1),
)


@given(POLYS | RBFS)
def test_parse_is_the_inverse_of_str(m):
    assert RandomMap.parse(str(m)) == m
    assert str(RandomMap.parse(str(m))) == str(m)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rbf",
        "linear components 4 gamma 1 seed 0",
        "rbf components 4 gamma 1 seed 0 exact",
        "rbf components 4 gamma 1 coef0 0 degree 3 seed 0",
        "poly components 4 gamma 1 seed 0",
        "rbf components 0 gamma 1 seed 0",
        "rbf components 4 gamma nan seed 0",
        "rbf components 4 gamma 1.0 seed 0",
        "rbf components 04 gamma 1 seed 0",
        "rbf components 4 gamma one seed 0",
        "rbf components 4 gamma 1 seed 18446744073709551616",
        "rbf components 4 gamma 1 seed 0 ",
        "rbf components 4 gamma 1 seed 0\n",
        "rbf  components 4 gamma 1 seed 0",
        "poly components 4 gamma 1 coef0 -1 degree 2 seed 0",
        "poly components 4 gamma 1 coef0 1 degree 2 seed 0 exact",
        "poly components 4 gamma 1 coef0 1 degree \u0662 seed 0",
    ],
)
def test_invalid_texts_of_a_map_are_refused(text):
    with pytest.raises(ValueError, match="expected"):
        RandomMap.parse(text)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("linear", 4, 1.0), "rbf and poly, not linear"),
        (("rbf", 0, 1.0), "components must be >= 1"),
        (("rbf", 2**31, 1.0), "components must be >= 1"),
        (("rbf", 4, -1.0), "gamma must be >= 0"),
        (("rbf", 4, math.nan), "gamma must be >= 0"),
        (("rbf", 4, math.inf), "gamma must be >= 0"),
        (("rbf", 4, 1.0, 0.0, 3, -1), "seed must be >= 0"),
        (("rbf", 4, 1.0, 0.0, 3, 2**64), "seed must be >= 0"),
        (("poly", 4, 1.0, -0.5), "coef0 >= 0 and finite, got -0.5"),
        (("poly", 4, 1.0, math.nan), "coef0 >= 0 and finite"),
        (("poly", 4, 1.0, math.inf), "coef0 >= 0 and finite"),
        (("poly", 4, 1.0, 1.0, -1), "degree must be from 0"),
        (("poly", 4, 1.0, 1.0, 1001), "degree must be from 0 to 1000"),
        (("poly", 4, 0.0, 0.0, 2), "is 0 everywhere"),
        (("poly", 4, 1e200, 1.0, 3), "coefficients too large"),
        (("poly", 4, 1e-9, 1e200, 1), "coefficients too large"),
        (("poly", 400, 1.0, 1e110, 3), "coefficients too large"),
    ],
)
def test_bad_parameters_are_refused(arguments, sentence):
    with pytest.raises(ParameterError, match=sentence):
        RandomMap(*arguments).over(np.arange(2, dtype=np.int32))
