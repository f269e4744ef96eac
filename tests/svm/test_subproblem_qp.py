"""Subproblems against an interior-point method that knows nothing of LIBSVM."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from qp import minimum, objective, solution

from randsvm.svm import subproblem_qp
from randsvm.svm.libsvm import Layout
from randsvm.svm.subproblem_qp import Boxed, Solution, _is_crowded, product, solve

BOUNDS = (1e-3, 0.3, 1.0, 30.0, 1e4)
SEEDS = range(12)
MOST_CALLS = 200


def kernel(rng: np.random.Generator, m: int, name: str) -> np.ndarray:
    """(m, m) float32, positive semidefinite as float32: rows have few digits for the linear one.
    Every fifth row or so is there twice."""
    X = np.round(rng.normal(size=(m, 4)) * 4) / 4
    twice = rng.random(m) < 0.2
    X[twice] = X[rng.integers(0, m, twice.sum())]
    squares = (X**2).sum(axis=1)
    if name == "linear":
        return (X @ X.T).astype(np.float32)
    distances = np.maximum(0, squares[:, None] + squares - 2 * X @ X.T)
    return np.exp(-2.0 * distances).astype(np.float32)


def frozen(rng: np.random.Generator, m: int, C: float) -> np.ndarray:
    """g of coefficients that are frozen anywhere: of the size of a few kernel values times C."""
    return rng.normal(size=m) * rng.choice([0.0, 1.0, 3 * C])


def projection(rng: np.random.Generator, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """A start with coefficients at both bounds and between them, its sum anywhere."""
    share = rng.choice([0.1, 0.5, 0.95])
    height = np.where(rng.random(len(lower)) < share, 1.0, 0.0)
    free = rng.random(len(lower)) < rng.choice([0.0, 0.3, 1.0])
    height[free] = rng.random(free.sum())
    return np.where(height == 1, upper, lower + height * (upper - lower))


def solved(K, h, lower, upper, s, start, *more, **others) -> Solution:
    """Of class weights that differ by a lot one call may go but a part of the way."""
    for _ in range(MOST_CALLS):
        found = solve(K, h, lower, upper, s, start, *more, **others)
        crowded = _is_crowded(Boxed(K, h, lower, upper, s, found.beta, 0.0))
        if not crowded or np.array_equal(found.beta, start):
            break
        start = found.beta
    return found


def check(K, h, lower, upper, s, start, epsilon=0.0, accuracy=1e-6, b=None) -> float:
    """Solves, and holds the solution to what is promised; returns how far it is off."""
    size = 1 + np.abs(h).max() + np.abs(K).max() * (upper - lower).max()
    found = solved(K, h, lower, upper, s, start, 1e-8 * size, epsilon, b=b)
    beta = found.beta
    assert found.ended
    assert (lower <= beta).all() and (beta <= upper).all()
    assert abs(beta.sum() - s) <= 1e-9 * max(1.0, (upper - lower).max())
    best, doubt = minimum(K, h, lower, upper, s, epsilon)
    value = objective(K, h, epsilon, beta)
    # Where the optimum is 0 or next to it, relative to what adds up to it.
    terms = np.abs(h) @ np.abs(beta) + np.abs(beta) @ np.abs(K) @ np.abs(beta) / 2
    scale = max(abs(best), 1e-3 * terms, 1e-12)
    assert doubt <= 0.3 * accuracy * scale, "the oracle itself is not sure"
    assert abs(value - best) <= accuracy * scale
    return abs(value - best) / scale


def sizes(rng: np.random.Generator) -> int:
    return int(rng.choice([2, 3, 5, 17, 40, 60]))


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_c_svc(seed, C, name):
    rng = np.random.default_rng([seed, 1])
    m = sizes(rng)
    K, y = kernel(rng, m, name), rng.choice([-1.0, 1.0], m)
    lower, upper = np.minimum(0, y * C), np.maximum(0, y * C)
    start = projection(rng, lower, upper)
    check(K, y - frozen(rng, m, C), lower, upper, start.sum(), start)


@pytest.mark.parametrize("ratio", [1.01, 2.0, 30.0, 1 / 7])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_class_weights(seed, C, ratio):
    rng = np.random.default_rng([seed, 2])
    m = sizes(rng)
    K, y = kernel(rng, m, rng.choice(["rbf", "linear"])), rng.choice([-1.0, 1.0], m)
    y[:2] = 1, -1
    lower, upper = np.where(y > 0, 0, -C), np.where(y > 0, C * ratio, 0)
    start = projection(rng, lower, upper)
    check(K, y - frozen(rng, m, C), lower, upper, start.sum(), start)


def test_libsvm_is_never_given_many_more_variables_than_rows(monkeypatch):
    """However much of the rare class, with its large C, is in a working set."""
    given = []
    plain = subproblem_qp.c_svc

    def c_svc(layout, rows, *more):
        given.append(len(rows))
        return plain(layout, rows, *more)

    monkeypatch.setattr(subproblem_qp, "c_svc", c_svc)
    rng = np.random.default_rng(12)
    m = 40
    K, y = kernel(rng, m, "rbf"), np.where(np.arange(m) < 20, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0, -1.0), np.where(y > 0, 200.0, 0)
    for share in (0.0, 0.002, 0.005, 0.3, 0.9):
        start = np.where(y > 0, share * upper, 0.0)
        for b in (None, 0.0):
            check(K, y - frozen(rng, m, 1.0), lower, upper, start.sum(), start, b=b)
    assert given
    assert max(given) <= 2 * m + 8


@pytest.mark.parametrize("ratio", [1.0, 5.0, 1 / 5])
@pytest.mark.parametrize("C", BOUNDS)
def test_c_svc_from_nothing_beside_nothing(C, ratio):
    rng = np.random.default_rng([7, 2])
    K, y = kernel(rng, 40, "rbf"), rng.choice([-1.0, 1.0], 40)
    lower, upper = np.where(y > 0, 0, -C), np.where(y > 0, C * ratio, 0)
    check(K, y, lower, upper, 0.0, None)
    check(K, y, lower, upper, 0.0, np.zeros(40))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_epsilon_svr(seed, C, epsilon):
    rng = np.random.default_rng([seed, 3])
    m = sizes(rng)
    # Over rows of few features SMO itself needs millions of steps where C is large.
    K, y = kernel(rng, m, rng.choice(["rbf", "linear"]) if C < 100 else "rbf"), rng.normal(size=m)
    lower, upper = np.full(m, -C), np.full(m, C)
    start = np.where(rng.random(m) < 0.4, 0.0, projection(rng, lower, upper))
    check(K, y - frozen(rng, m, C), lower, upper, start.sum(), start, epsilon)


@pytest.mark.parametrize("away", [1.0, 0.1, 0.001])
@pytest.mark.parametrize("ratio, epsilon", [(30.0, 0.0), (1 / 2, 0.0), (1.0, 0.02), (1.0, 0.5)])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_offset_leads_to_the_same_solution_wherever_it_is(seed, ratio, epsilon, away):
    """With it smaller problems come first: near the solution, and far from it."""
    rng = np.random.default_rng([seed, 9])
    m = sizes(rng)
    K, y = kernel(rng, m, rng.choice(["rbf", "linear"])), rng.normal(size=m)
    lower, upper = np.full(m, -1.0), np.full(m, 1.0)
    if not epsilon:
        y = np.where(np.arange(m) % 2, 1.0, -1.0)
        lower, upper = np.where(y > 0, 0, -1.0), np.where(y > 0, ratio, 0)
    h, start = y - frozen(rng, m, 1.0), projection(rng, lower, upper)
    best = solution(K.astype(float), h, lower, upper, start.sum(), epsilon)
    start = best + away * (start - best)
    for b in (0.0, *(10.0 * rng.normal(size=2))):
        check(K, h, lower, upper, start.sum(), start, epsilon, b=b)


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_class(seed, name):
    rng = np.random.default_rng([seed, 4])
    m = sizes(rng)
    K, lower, upper = kernel(rng, m, name), np.zeros(m), np.ones(m)
    start = projection(rng, lower, upper)
    check(K, -frozen(rng, m, 1.0), lower, upper, start.sum(), start)


WEIGHTS = [(1.0, 1.0), (1.0, 3.0), (3.0, 1.0)]


@pytest.mark.parametrize("bounds", WEIGHTS)
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_rows_of_one_class(side, bounds):
    rng = np.random.default_rng(5)
    K, C = kernel(rng, 20, "rbf"), bounds[0 if side > 0 else 1]
    lower, upper = np.full(20, min(0, side * C)), np.full(20, max(0, side * C))
    start = projection(rng, lower, upper)
    check(K, side - frozen(rng, 20, C), lower, upper, start.sum(), start)


@pytest.mark.parametrize("bounds", WEIGHTS)
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_where_one_point_is_feasible_it_is_the_solution(end, bounds):
    rng = np.random.default_rng(6)
    y = np.where(np.arange(9) < 4, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    point = lower if end == "lower" else upper
    # The sum as rounding may leave it.
    for s in (point.sum(), point.sum() * (1 + 1e-15), point.sum() * (1 - 1e-15)):
        found = solve(kernel(rng, 9, "rbf"), rng.normal(size=9), lower, upper, s, point)
        assert (found.beta == point).all()


@pytest.mark.parametrize("bounds", WEIGHTS)
def test_a_sum_out_of_reach_is_refused(bounds):
    y = np.array([1.0, -1.0])
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    with pytest.raises(ValueError, match="cannot sum to"):
        solve(np.eye(2, dtype=np.float32), y, lower, upper, bounds[0] + 0.01)


def test_one_row_is_where_the_sum_is():
    K = np.ones((1, 1), np.float32)
    for s in (0.0, 0.3, 1.0):
        assert solve(K, np.ones(1), np.zeros(1), np.ones(1), s).beta == s


@pytest.mark.parametrize("bounds", WEIGHTS)
def test_all_rows_the_same(bounds):
    rng = np.random.default_rng(7)
    y = np.where(np.arange(12) < 5, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    start = projection(rng, lower, upper)
    check(np.ones((12, 12), np.float32), y, lower, upper, start.sum(), start)


@pytest.mark.parametrize("bounds", WEIGHTS)
def test_far_from_the_margin_all_coefficients_end_at_bounds(bounds):
    """LIBSVM has no finite rho then."""
    y = np.where(np.arange(10) < 5, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    h = np.where(np.arange(10) % 2, 100.0, -100.0)
    point = np.where(h > 0, upper, lower)
    found = solve(0.01 * np.eye(10, dtype=np.float32), h, lower, upper, point.sum())
    assert (found.beta == point).all()


@pytest.mark.parametrize("times", [3, 1000])
@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_the_objective_never_gets_worse(ratio, times):
    """An indefinite kernel has more than one minimum; solve keeps going down from the start."""
    rng = np.random.default_rng(8)
    m = 40
    K = kernel(rng, m, "rbf")
    y = rng.choice([-1.0, 1.0], m)
    lower, upper = np.where(y > 0, 0, -times), np.where(y > 0, ratio * times, 0)
    start = projection(rng, lower, upper)
    h = y - frozen(rng, m, times)
    values = [objective(K, h, 0.0, start)]
    for _ in range(3):
        start = solve(K, h, lower, upper, start.sum(), start, tolerance=1e-3).beta
        values.append(objective(K, h, 0.0, start))
    assert (np.diff(values) <= 1e-6 * abs(values[-1])).all()


@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_large_frozen_parts_leave_the_gradient_exact(ratio):
    """float32 alone would be off by 1e5 * 6e-8 = 6e-3."""
    rng = np.random.default_rng(10)
    m, tolerance = 60, 1e-4
    K, y = kernel(rng, m, "rbf"), rng.choice([-1.0, 1.0], m)
    lower, upper = np.where(y > 0, 0, -10.0), np.where(y > 0, 10.0 * ratio, 0)
    start = projection(rng, lower, upper)
    h = y + 1e5 + rng.normal(size=m)
    beta = solved(K, h, lower, upper, start.sum(), start, tolerance).beta
    gradient = K.astype(np.float64) @ beta - h
    assert gradient[beta > lower].max() - gradient[beta < upper].min() <= 1.1 * tolerance


@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_layout_is_what_libsvm_reads(m):
    """x[i][(int) x[j][0].value].value of svm.cpp, by the addresses that it is given."""
    rng = np.random.default_rng(11)
    K, index = rng.normal(size=(m, m)).astype(np.float32), rng.integers(0, m, m + 3)
    layout = Layout.of(K, index)

    def value(row: int, node: int) -> float:
        return ctypes.c_double.from_address(int(layout.starts[row]) + 16 * node + 8).value

    number = [int(value(j, 0)) for j in range(len(index))]
    read = [[value(i, each) for each in number] for i in range(len(index))]
    assert (np.array(read) == K[np.ix_(index, index)]).all()


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_a_solve_that_is_broken_off_leaves_the_next_one_alone(ratio):
    rng = np.random.default_rng(12)
    y = np.where(np.arange(10) < 5, 1.0, -1.0)
    task = (kernel(rng, 10, "rbf"), y, np.where(y > 0, 0, -1.0), np.where(y > 0, ratio, 0), 0.5)

    def interrupted(work):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(*task, call=interrupted)
    check(*task, None)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_what_libsvm_reads_lives_until_it_ends_though_the_caller_has_left(ratio):
    """A time limit leaves it working: freed rows would be a crash."""
    rng = np.random.default_rng(12)
    y = np.where(np.arange(10) < 5, 1.0, -1.0)
    task = (kernel(rng, 10, "rbf"), y, np.where(y > 0, 0, -1.0), np.where(y > 0, ratio, 0), 0.5)
    left = []

    def interrupted(work):
        left.append(work)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(*task, call=interrupted)
    (work,) = left
    kept = [*(cell.cell_contents for cell in work.__closure__ or ()), *(work.__defaults__ or ())]
    assert any(isinstance(each, Layout) for each in kept)


def test_product_is_the_plain_one():
    rng = np.random.default_rng(9)
    for m in (1, 2, 3, 4, 5, 63):
        K, beta = kernel(rng, m, "rbf"), rng.normal(size=m) * (rng.random(m) < 0.6)
        np.testing.assert_allclose(product(K, beta), K.astype(np.float64) @ beta, atol=1e-12)
