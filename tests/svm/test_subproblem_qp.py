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
from randsvm.svm.subproblem_qp import one_sum

SEEDS = range(12)
MAX_CALLS = 200


def solve(K, h, lower, upper, s, start=None, *more, **named):
    start = np.clip(np.zeros(len(h)), lower, upper) if start is None else start
    return one_sum(K, h, lower, upper, s, start, *more, **named)


def check(
    K,
    h,
    lower,
    upper,
    s,
    start,
    epsilon=0.0,
    accuracy=1e-6,
):
    """Solve, check the solution, and return its distance from the optimum."""
    size = 1 + np.abs(h).max() + np.abs(K).max() * (upper - lower).max()
    found = solve(K, h, lower, upper, s, start, 1e-8 * size, epsilon)
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
def test_starts_near_the_solution_and_far_from_it_end_there(seed, ratio, epsilon, away):
    rng = np.random.default_rng([seed, 9])
    m = random_size(rng)
    K, y = kernel_matrix(rng, m, rng.choice(["rbf", "linear"])), rng.normal(size=m)
    lower, upper = np.full(m, -1.0), np.full(m, 1.0)
    if not epsilon:
        y = np.where(y > 0, 1.0, -1.0)
        lower, upper = np.where(y > 0, 0, -1.0), np.where(y > 0, ratio, 0)
    h, start = y - frozen_gradient(rng, m, 1.0), random_start(rng, lower, upper)
    best = solution(K.astype(float), h, lower, upper, start.sum(), epsilon)
    start = best + away * (start - best)
    check(K, h, lower, upper, start.sum(), start, epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 0.05])
def test_single_solves_never_lose_and_end_at_the_solution(epsilon):
    rng, m = np.random.default_rng([7, 11]), 120
    K, y = kernel_matrix(rng, m, "rbf"), rng.normal(size=m)
    lower, upper = np.full(m, -1.0), np.full(m, 1.0)
    start, values = random_start(rng, lower, upper), list[float]()
    s = float(start.sum())
    for _ in range(MAX_CALLS):
        part = solve(K, y, lower, upper, s, start, 1e-6, epsilon, partly=True).beta
        values.append(objective(K, y, epsilon, part))
        if np.abs(part - start).max() < 1e-9:
            break
        start = part
    assert (np.diff(values) <= 1e-9).all()
    assert_near_minimum(minimum(K, y, lower, upper, s, epsilon), K, y, epsilon, start, 1e-5)


def test_solutions_of_libsvm_that_lose_are_not_taken(monkeypatch):
    rng, m = np.random.default_rng(14), 30
    K, y = kernel_matrix(rng, m, "rbf"), rng.choice([-1.0, 1.0], m)
    lower, upper = np.where(y > 0, 0, -5.0), np.where(y > 0, 5.0, 0)
    start = random_start(rng, lower, upper)

    def wrong(nodes, rows, labels, *more):
        return libsvm.Outcome(rng.choice([0.0, 1.0], len(rows)), 1, True)

    monkeypatch.setattr(subproblem_qp, "c_svc", wrong)
    found = solve(K, y, lower, upper, start.sum(), start, 1e-6)
    assert objective(K, y, 0.0, found.beta) <= objective(K, y, 0.0, start)


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
def test_a_sum_out_of_reach_is_refused(bounds):
    y = np.array([1.0, -1.0])
    lower, upper = np.where(y > 0, 0, -bounds[1]), np.where(y > 0, bounds[0], 0)
    with pytest.raises(ValueError, match="cannot sum to"):
        solve(np.eye(2, dtype=np.float32), y, lower, upper, bounds[0] + 0.01)


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
