"""Test subproblems against an interior-point method that is independent of LIBSVM."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
import qp
from qp import minimum, objective
from solving import PrecomputedNodes, Subproblem, libsvm, subproblem_qp

SEEDS = range(12)
MAX_CALLS = 200
# Bounds C of the coefficients.
BOUNDS = (1e-3, 0.3, 1.0, 30.0, 1e4)


# ---- random problems ----------------------------------------------------------------------------


def kernel_matrix(rng, m, name):
    """Return K : (m, m) float32, positive semidefinite in float32; about every fifth row is a
    duplicate.

    For the linear kernel the rows have few digits.
    """
    X = np.round(rng.normal(size=(m, 4)) * 4) / 4
    twice = rng.random(m) < 0.2
    X[twice] = X[rng.integers(0, m, twice.sum())]
    squares = (X**2).sum(axis=1)
    if name == "linear":
        return (X @ X.T).astype(np.float32)
    distances = np.maximum(0, squares[:, None] + squares - 2 * X @ X.T)
    return np.exp(-2.0 * distances).astype(np.float32)


def frozen_gradient(rng, m, C):
    """Return the gradient of frozen coefficients, of the size of a few kernel values times C."""
    return rng.normal(size=m) * rng.choice([0.0, 1.0, 3 * C])


def random_start(rng, lower, upper):
    """Return a start with coefficients at both bounds and between them; its sum is arbitrary."""
    share = rng.choice([0.1, 0.5, 0.95])
    height = np.where(rng.random(len(lower)) < share, 1.0, 0.0)
    free = rng.random(len(lower)) < rng.choice([0.0, 0.3, 1.0])
    height[free] = rng.random(free.sum())
    return np.where(height == 1, upper, lower + height * (upper - lower))


def of_classes(y, negative, positive):
    return np.where(y > 0, 0.0, -negative), np.where(y > 0, positive, 0.0)


# The linear term, both bounds and epsilon of a task. y: signs; t: targets; w: a width for each row.
TASKS = {
    "svc": lambda y, t, w, C: (y, *of_classes(y, C, C), 0.0),
    **{
        f"class weights {ratio}": lambda y, t, w, C, r=ratio: (y, *of_classes(y, C, C * r), 0.0)
        for ratio in (1.01, 2.0, 30.0, 1 / 7)
    },
    **{
        f"svr {epsilon}": lambda y, t, w, C, e=epsilon: (t, -C + 0 * t, C + 0 * t, e)
        for epsilon in (0.0, 0.1, 1.0)
    },
    "one-class": lambda y, t, w, C: (0 * t, 0 * t, 1 + 0 * t, 0.0),
    "row weights": lambda y, t, w, C: (y, *of_classes(y, C * w, C * w), 0.0),
    "row weights of svr": lambda y, t, w, C: (t, -C * w, C * w, 0.2),
}


def random_problem(task, C, seed):
    """Return K, the linear term, both bounds, epsilon, a feasible start and the generator."""
    rng = np.random.default_rng([seed, list(TASKS).index(task), 1])
    m = int(rng.choice([2, 3, 5, 17, 40, 60]))
    # With few features and a large C, SMO itself needs millions of steps.
    is_slow = "row" in task or ("svr" in task and C >= 100)
    name = "rbf" if is_slow else rng.choice(["rbf", "linear"])
    K, y = kernel_matrix(rng, m, name), rng.choice([-1.0, 1.0], m)
    y[:2] = 1, -1
    widths = 10 ** rng.uniform(-1.5, 1.5, m)
    h, lower, upper, epsilon = TASKS[task](y, rng.normal(size=m), widths, C)
    start = random_start(rng, lower, upper)
    return K, h - frozen_gradient(rng, m, C), lower, upper, epsilon, start, rng


def accuracy_of(task, C):
    return 2e-4 if "row" in task or C > 100 else 1e-6


def assert_near_minimum(reference, K, h, epsilon, beta, accuracy):
    """Check the objective of beta.

    reference : the smallest objective found by qp.py, and how far above the minimum it may be
    """
    best, doubt = reference
    value = objective(K, h, epsilon, beta)
    # If the minimum is near 0, errors are relative to the terms of its sum.
    terms = np.abs(h) @ np.abs(beta) + np.abs(beta) @ np.abs(K) @ np.abs(beta) / 2
    scale = max(abs(best), 1e-3 * terms, 1e-12)
    assert doubt <= 0.3 * accuracy * scale, "the oracle is not accurate enough"
    assert abs(value - best) <= accuracy * scale


def solve(K, h, lower, upper, s, start=None, tolerance=5e-4, epsilon=0.0, **named):
    start = np.clip(np.zeros(len(h)), lower, upper) if start is None else start
    subproblem = Subproblem.of(K, h, lower, upper, (s,), start, epsilon)
    return subproblem.solve(tolerance, **named)


def check(K, h, lower, upper, start, epsilon=0.0, accuracy=1e-6):
    """Solve with the sum of `start`, and check the solution."""
    s, size = start.sum(), 1 + np.abs(h).max() + np.abs(K).max() * (upper - lower).max()
    found = solve(K, h, lower, upper, s, start, 1e-8 * size, epsilon)
    beta = found.beta
    assert found.ended
    assert (lower <= beta).all() and (beta <= upper).all()
    assert abs(beta.sum() - s) <= 1e-9 * max(1.0, (upper - lower).max())
    assert_near_minimum(minimum(K, h, lower, upper, s, epsilon), K, h, epsilon, beta, accuracy)


# ---- one sum ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_subproblem_is_solved(seed, C, task):
    K, h, lower, upper, epsilon, start, _ = random_problem(task, C, seed)
    check(K, h, lower, upper, start, epsilon, accuracy_of(task, C))


@pytest.mark.parametrize("away", [1.0, 0.1, 0.001])
@pytest.mark.parametrize("task", ["class weights 30.0", "class weights 2.0", "svr 0.1", "svr 1.0"])
@pytest.mark.parametrize("seed", SEEDS)
def test_starts_near_the_solution_and_far_from_it_end_there(seed, task, away):
    K, h, lower, upper, epsilon, start, _ = random_problem(task, 1.0, seed)
    best = qp.solution(K.astype(float), h, lower, upper, start.sum(), epsilon)
    check(K, h, lower, upper, best + away * (start - best), epsilon)


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
    K, h, lower, upper, _, start, rng = random_problem("svc", 5.0, 14)

    def wrong(nodes, rows, labels, *more):
        return SimpleNamespace(beta=rng.choice([0.0, 1.0], len(rows)), iterations=1, ended=True)

    monkeypatch.setattr(subproblem_qp, "c_svc", wrong)
    found = solve(K, h, lower, upper, start.sum(), start, 1e-6)
    assert objective(K, h, 0.0, found.beta) <= objective(K, h, 0.0, start)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (1.0, 3.0), (3.0, 1.0)])
def test_a_sum_out_of_reach_is_refused(bounds):
    y = np.array([1.0, -1.0])
    lower, upper = of_classes(y, bounds[1], bounds[0])
    with pytest.raises(ValueError, match="cannot sum to"):
        solve(np.eye(2, dtype=np.float32), y, lower, upper, bounds[0] + 0.01)


@pytest.mark.parametrize("times", [3, 1000])
@pytest.mark.parametrize("task", ["svc", "class weights 2.0"])
def test_the_objective_never_gets_worse(task, times):
    """An indefinite kernel has several minima; solve descends from the start."""
    for seed in range(3):
        K, h, lower, upper, _, start, _ = random_problem(task, times, seed)
        values = [objective(K, h, 0.0, start)]
        for _ in range(3):
            start = solve(K, h, lower, upper, start.sum(), start, tolerance=1e-3).beta
            values.append(objective(K, h, 0.0, start))
        assert (np.diff(values) <= 1e-6 * abs(values[-1])).all()


# ---- two sums -----------------------------------------------------------------------------------


def check_two_sums(K, h, lower, upper, sums, start, accuracy):
    """Solve with these sums of the coefficients above and below 0, and check the solution."""
    C = (upper - lower).max()
    size = 1 + np.abs(h).max() + np.abs(K).max() * C
    found = Subproblem.of(K, h, lower, upper, sums, start).solve(1e-8 * size)
    beta, room = found.beta, 1e-12 * len(h) * C
    assert found.ended
    assert (lower <= beta).all() and (beta <= upper).all()
    assert beta.sum() == pytest.approx(sums[0] - sums[1], abs=room)
    if (lower * upper == 0).all():
        assert np.maximum(beta, 0).sum() == pytest.approx(sums[0], abs=room)
    else:  # the two coefficients of one row cancel
        assert np.abs(beta).sum() <= sum(sums) + room
    best = qp.minimum_of_groups(K, h, lower, upper, sums)
    assert_near_minimum(best, K, h, 0.0, beta, accuracy)


@pytest.mark.parametrize(
    "task, C",
    [
        *((task, C) for task in ("svc", "svr 0.0") for C in BOUNDS),
        *((task, C) for task in ("row weights", "row weights of svr") for C in (0.3, 1.0)),
    ],
)
@pytest.mark.parametrize("seed", range(6))
def test_a_subproblem_with_two_sums_is_solved(seed, C, task):
    K, h, lower, upper, _, start, _ = random_problem(task, C, seed)
    sums = np.maximum(start, 0).sum(), -np.minimum(start, 0).sum()
    check_two_sums(K, h, lower, upper, sums, start, accuracy_of(task, C))


def test_equal_rows_are_solved_without_dividing_by_rho():
    """LIBSVM divides by 0 here: any coefficients with the sums are a solution."""
    m, y = 12, np.where(np.arange(12) % 2, -1.0, 1.0)
    lower, upper = of_classes(y, 1.0, 1.0)
    K = np.ones((m, m), np.float32)
    found = Subproblem.of(K, np.zeros(m), lower, upper, (2.5, 2.5), np.zeros(m)).solve()
    assert np.isfinite(found.beta).all()
    assert found.beta[y > 0].sum() == pytest.approx(2.5)
    assert found.beta.sum() == pytest.approx(0, abs=1e-12)


# ---- what LIBSVM is given -----------------------------------------------------------------------


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


@pytest.mark.parametrize("task", ["svc", "class weights 2.0"])
def test_the_rows_of_an_interrupted_solve_live_until_it_ends(monkeypatch, task):
    """A time limit leaves LIBSVM working: freed rows would crash it. The next solve is right."""
    K, h, lower, upper, _, start, _ = random_problem(task, 1.0, 12)
    kept = []

    def interrupted(work, stage, memory):
        kept.append(memory)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(libsvm, "run_in_daemon_thread", interrupted)
        solve(K, h, lower, upper, start.sum(), start)
    ((layout, _, _),) = kept
    assert isinstance(layout, PrecomputedNodes)
    check(K, h, lower, upper, start)
