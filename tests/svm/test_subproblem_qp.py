"""Test subproblems against an interior-point method that is independent of LIBSVM."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from qp import minimum, objective, solution
from random_subproblems import (
    BOUNDS,
    assert_near_minimum,
    frozen_gradient,
    kernel_matrix,
    random_size,
    random_start,
)

from randsvm.svm import libsvm, subproblem_qp
from randsvm.svm.libsvm import PrecomputedNodes
from randsvm.svm.subproblem import solve
from randsvm.svm.subproblem_qp import BoxQP, needs_many_copies, product

SEEDS = range(12)
MAX_CALLS = 200


def solve_repeatedly(
    K,
    h,
    lower,
    upper,
    s,
    start,
    *more,
    **others,
):
    """Solve repeatedly: with very different class weights one call may end early."""
    for _ in range(MAX_CALLS):
        found = solve(K, h, lower, upper, s, start, *more, **others)
        crowded = needs_many_copies(BoxQP(K, h, lower, upper, s, found.beta, 0.0))
        if not crowded or np.array_equal(found.beta, start):
            break
        start = found.beta
    return found


def check(
    K,
    h,
    lower,
    upper,
    s,
    start,
    epsilon=0.0,
    accuracy=1e-6,
    b=None,
):
    """Solve, check the solution, and return its distance from the optimum."""
    size = 1 + np.abs(h).max() + np.abs(K).max() * (upper - lower).max()
    found = solve_repeatedly(K, h, lower, upper, s, start, 1e-8 * size, epsilon, b=b)
    beta = found.beta
    assert found.ended
    assert (lower <= beta).all() and (beta <= upper).all()
    assert abs(beta.sum() - s) <= 1e-9 * max(1.0, (upper - lower).max())
    return assert_near_minimum(
        minimum(K, h, lower, upper, s, epsilon), K, h, epsilon, beta, accuracy
    )


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_c_svc_is_solved(seed, C, name):
    rng = np.random.default_rng([seed, 1])
    m = random_size(rng)
    K, y = kernel_matrix(rng, m, name), rng.choice([-1.0, 1.0], m)
    lower, upper = np.minimum(0, y * C), np.maximum(0, y * C)
    start = random_start(rng, lower, upper)
    check(K, y - frozen_gradient(rng, m, C), lower, upper, start.sum(), start)


@pytest.mark.parametrize("ratio", [1.01, 2.0, 30.0, 1 / 7])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_c_svc_with_class_weights_is_solved(seed, C, ratio):
    rng = np.random.default_rng([seed, 2])
    m = random_size(rng)
    K, y = kernel_matrix(rng, m, rng.choice(["rbf", "linear"])), rng.choice([-1.0, 1.0], m)
    y[:2] = 1, -1
    lower, upper = np.where(y > 0, 0, -C), np.where(y > 0, C * ratio, 0)
    start = random_start(rng, lower, upper)
    check(K, y - frozen_gradient(rng, m, C), lower, upper, start.sum(), start)


def test_libsvm_is_never_given_many_more_variables_than_rows(
    monkeypatch,
):
    """The share of the rare class, which has a large C, does not matter."""
    given = []
    plain = subproblem_qp.c_svc

    def c_svc(layout, rows, *more):
        given.append(len(rows))
        return plain(layout, rows, *more)

    monkeypatch.setattr(subproblem_qp, "c_svc", c_svc)
    rng = np.random.default_rng(12)
    m = 40
    K, y = kernel_matrix(rng, m, "rbf"), np.where(np.arange(m) < 20, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0, -1.0), np.where(y > 0, 200.0, 0)
    for share in (0.0, 0.002, 0.005, 0.3, 0.9):
        start = np.where(y > 0, share * upper, 0.0)
        for b in (None, 0.0):
            check(K, y - frozen_gradient(rng, m, 1.0), lower, upper, start.sum(), start, b=b)
    assert given
    assert max(given) <= 2 * m + 8


def test_windows_of_class_weights_are_solved_as_one_box(monkeypatch):
    """Rounding changes the widths of windows; it must not lead to a box for each row, which takes
    LIBSVM ten times as long."""
    given = []
    plain = subproblem_qp.any_boxes

    def any_boxes(task, *more):
        given.append(task.has_one_box)
        return plain(task, *more)

    monkeypatch.setattr(subproblem_qp, "any_boxes", any_boxes)
    rng = np.random.default_rng(13)
    for C in (1.0, 0.3, 7.1):
        K, y = kernel_matrix(rng, 60, "rbf"), rng.choice([-1.0, 1.0], 60)
        lower, upper = np.where(y > 0, 0, -C), np.where(y > 0, 10 * C, 0)
        start = lower + rng.random(60) * (upper - lower)
        check(K, y - 0.1 * rng.normal(size=60), lower, upper, start.sum(), start, b=0.0)
    assert len(given) >= 3
    assert all(given)


@pytest.mark.parametrize("ratio", [1.0, 5.0, 1 / 5])
@pytest.mark.parametrize("C", BOUNDS)
def test_c_svc_is_solved_from_zero_without_frozen_coefficients(C, ratio):
    rng = np.random.default_rng([7, 2])
    K, y = kernel_matrix(rng, 40, "rbf"), rng.choice([-1.0, 1.0], 40)
    lower, upper = np.where(y > 0, 0, -C), np.where(y > 0, C * ratio, 0)
    check(K, y, lower, upper, 0.0, None)
    check(K, y, lower, upper, 0.0, np.zeros(40))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_epsilon_svr_is_solved(seed, C, epsilon):
    rng = np.random.default_rng([seed, 3])
    m = random_size(rng)
    # With few features and a large C, SMO itself needs millions of steps.
    K, y = (
        kernel_matrix(rng, m, rng.choice(["rbf", "linear"]) if C < 100 else "rbf"),
        rng.normal(size=m),
    )
    lower, upper = np.full(m, -C), np.full(m, C)
    start = np.where(rng.random(m) < 0.4, 0.0, random_start(rng, lower, upper))
    check(K, y - frozen_gradient(rng, m, C), lower, upper, start.sum(), start, epsilon)


@pytest.mark.parametrize("away", [1.0, 0.1, 0.001])
@pytest.mark.parametrize("ratio, epsilon", [(30.0, 0.0), (1 / 2, 0.0), (1.0, 0.02), (1.0, 0.5)])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_guess_of_the_offset_does_not_change_the_solution(seed, ratio, epsilon, away):
    """The guess makes smaller problems come first, near the solution or far from it."""
    rng = np.random.default_rng([seed, 9])
    m = random_size(rng)
    K, y = kernel_matrix(rng, m, rng.choice(["rbf", "linear"])), rng.normal(size=m)
    lower, upper = np.full(m, -1.0), np.full(m, 1.0)
    if not epsilon:
        y = np.where(np.arange(m) % 2, 1.0, -1.0)
        lower, upper = np.where(y > 0, 0, -1.0), np.where(y > 0, ratio, 0)
    h, start = y - frozen_gradient(rng, m, 1.0), random_start(rng, lower, upper)
    best = solution(K.astype(float), h, lower, upper, start.sum(), epsilon)
    start = best + away * (start - best)
    for b in (0.0, *(10.0 * rng.normal(size=2))):
        check(K, h, lower, upper, start.sum(), start, epsilon, b=b)


@pytest.mark.parametrize("b", [0.0, 0.4, -0.4])
def test_rows_of_a_regression_that_wait_turn_in_a_later_solve(b):
    """Solves that leave a few rows at 0 never lose, and end at the solution."""
    rng, m, epsilon = np.random.default_rng([7, 11]), 120, 0.05
    K, y = kernel_matrix(rng, m, "rbf"), rng.normal(size=m)
    lower, upper = np.full(m, -1.0), np.full(m, 1.0)
    start, values = random_start(rng, lower, upper), list[float]()
    s = float(start.sum())
    for _ in range(MAX_CALLS):
        part = solve(K, y, lower, upper, s, start, 1e-6, epsilon, b=b, partly=True).beta
        values.append(objective(K, y, epsilon, part))
        if np.abs(part - start).max() < 1e-9:
            break
        start = part
    assert (np.diff(values) <= 1e-9).all()
    assert_near_minimum(minimum(K, y, lower, upper, s, epsilon), K, y, epsilon, start, 1e-5)


def test_a_row_does_not_wait_if_no_other_row_moves():
    """Otherwise rounds would repeat themselves: the offset gives the first row the wrong sign."""
    m, epsilon = 201, 0.1
    y = np.where(np.arange(m) % 2, 0.6, -0.6)
    y[0] = 0.6
    start = np.where(y > 0, 0.5, -0.5)
    start[0] = 0.0
    K, C = np.eye(m, dtype=np.float32), np.ones(m)
    found = solve(K, y, -C, C, 0.0, start, 1e-6, epsilon, b=10.0, partly=True)
    assert found.beta[0] > 0.4


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_class_is_solved(seed, name):
    rng = np.random.default_rng([seed, 4])
    m = random_size(rng)
    K, lower, upper = kernel_matrix(rng, m, name), np.zeros(m), np.ones(m)
    start = random_start(rng, lower, upper)
    check(K, -frozen_gradient(rng, m, 1.0), lower, upper, start.sum(), start)


WEIGHTS = [(1.0, 1.0), (1.0, 3.0), (3.0, 1.0)]


@pytest.mark.parametrize("bounds", WEIGHTS)
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_rows_of_a_single_class_are_solved(side, bounds):
    rng = np.random.default_rng(5)
    K, C = kernel_matrix(rng, 20, "rbf"), bounds[0 if side > 0 else 1]
    lower, upper = np.full(20, min(0, side * C)), np.full(20, max(0, side * C))
    start = random_start(rng, lower, upper)
    check(K, side - frozen_gradient(rng, 20, C), lower, upper, start.sum(), start)


@pytest.mark.parametrize("bounds", WEIGHTS)
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_a_single_feasible_point_is_the_solution(end, bounds):
    rng = np.random.default_rng(6)
    y = np.where(np.arange(9) < 4, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    point = lower if end == "lower" else upper
    # The sum may be off by rounding.
    for s in (point.sum(), point.sum() * (1 + 1e-15), point.sum() * (1 - 1e-15)):
        found = solve(kernel_matrix(rng, 9, "rbf"), rng.normal(size=9), lower, upper, s, point)
        assert (found.beta == point).all()


@pytest.mark.parametrize("bounds", WEIGHTS)
def test_a_sum_out_of_reach_is_refused(bounds):
    y = np.array([1.0, -1.0])
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    with pytest.raises(ValueError, match="cannot sum to"):
        solve(np.eye(2, dtype=np.float32), y, lower, upper, bounds[0] + 0.01)


def test_a_single_row_has_the_sum_as_its_coefficient():
    K = np.ones((1, 1), np.float32)
    for s in (0.0, 0.3, 1.0):
        assert solve(K, np.ones(1), np.zeros(1), np.ones(1), s).beta == s


@pytest.mark.parametrize("bounds", WEIGHTS)
def test_equal_rows_are_solved(bounds):
    rng = np.random.default_rng(7)
    y = np.where(np.arange(12) < 5, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    start = random_start(rng, lower, upper)
    check(np.ones((12, 12), np.float32), y, lower, upper, start.sum(), start)


@pytest.mark.parametrize("bounds", WEIGHTS)
def test_all_coefficients_end_at_bounds_far_from_the_margin(bounds):
    """In this case LIBSVM has no finite rho."""
    y = np.where(np.arange(10) < 5, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    h = np.where(np.arange(10) % 2, 100.0, -100.0)
    point = np.where(h > 0, upper, lower)
    found = solve(0.01 * np.eye(10, dtype=np.float32), h, lower, upper, point.sum())
    assert (found.beta == point).all()


@pytest.mark.parametrize("times", [3, 1000])
@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_the_objective_never_gets_worse(ratio, times):
    """An indefinite kernel has several minima; solve descends from the start."""
    rng = np.random.default_rng(8)
    m = 40
    K = kernel_matrix(rng, m, "rbf")
    y = rng.choice([-1.0, 1.0], m)
    lower, upper = np.where(y > 0, 0, -times), np.where(y > 0, ratio * times, 0)
    start = random_start(rng, lower, upper)
    h = y - frozen_gradient(rng, m, times)
    values = [objective(K, h, 0.0, start)]
    for _ in range(3):
        start = solve(K, h, lower, upper, start.sum(), start, tolerance=1e-3).beta
        values.append(objective(K, h, 0.0, start))
    assert (np.diff(values) <= 1e-6 * abs(values[-1])).all()


@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_large_frozen_gradients_keep_the_gradient_exact(ratio):
    """float32 alone would be wrong by 1e5 * 6e-8 = 6e-3."""
    rng = np.random.default_rng(10)
    m, tolerance = 60, 1e-4
    K, y = kernel_matrix(rng, m, "rbf"), rng.choice([-1.0, 1.0], m)
    lower, upper = np.where(y > 0, 0, -10.0), np.where(y > 0, 10.0 * ratio, 0)
    start = random_start(rng, lower, upper)
    h = y + 1e5 + rng.normal(size=m)
    beta = solve_repeatedly(K, h, lower, upper, start.sum(), start, tolerance).beta
    gradient = K.astype(np.float64) @ beta - h
    assert gradient[beta > lower].max() - gradient[beta < upper].min() <= 1.1 * tolerance


@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_the_layout_of_kernel_values_is_the_one_that_libsvm_reads(m):
    """svm.cpp reads x[i][(int) x[j][0].value].value at the given addresses."""
    rng = np.random.default_rng(11)
    K, index = rng.normal(size=(m, m)).astype(np.float32), rng.integers(0, m, m + 3)
    layout = PrecomputedNodes.of(K, index)

    def value(row, node):
        return ctypes.c_double.from_address(int(layout.starts[row]) + 16 * node + 8).value

    number = [int(value(j, 0)) for j in range(len(index))]
    read = [[value(i, each) for each in number] for i in range(len(index))]
    assert (np.array(read) == K[np.ix_(index, index)]).all()


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_an_interrupted_solve_does_not_affect_the_next_one(monkeypatch, ratio):
    rng = np.random.default_rng(12)
    y = np.where(np.arange(10) < 5, 1.0, -1.0)
    task = (
        kernel_matrix(rng, 10, "rbf"),
        y,
        np.where(y > 0, 0, -1.0),
        np.where(y > 0, ratio, 0),
        0.5,
    )

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(libsvm, "run_in_daemon_thread", interrupted)
        with pytest.raises(KeyboardInterrupt):
            solve(*task)
    check(*task, None)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_the_rows_of_an_interrupted_solve_live_until_it_ends(monkeypatch, ratio):
    """A time limit leaves LIBSVM working: freed rows would crash it."""
    rng = np.random.default_rng(12)
    y = np.where(np.arange(10) < 5, 1.0, -1.0)
    task = (
        kernel_matrix(rng, 10, "rbf"),
        y,
        np.where(y > 0, 0, -1.0),
        np.where(y > 0, ratio, 0),
        0.5,
    )
    kept = []

    def interrupted(work, stage, memory):
        kept.append(memory)
        raise KeyboardInterrupt

    monkeypatch.setattr(libsvm, "run_in_daemon_thread", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solve(*task)
    (layout,) = kept
    assert isinstance(layout, PrecomputedNodes)


def test_product_equals_numpys():
    rng = np.random.default_rng(9)
    for m in (1, 2, 3, 4, 5, 63):
        K, beta = kernel_matrix(rng, m, "rbf"), rng.normal(size=m) * (rng.random(m) < 0.6)
        np.testing.assert_allclose(product(K, beta), K.astype(np.float64) @ beta, atol=1e-12)
