"""Test the blocks of a working set against the formulas in dense float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scans import TASKS, case, problem, task_file, working_set
from scipy import optimize, sparse

import randsvm
from randsvm.data.sampling import Draw, Draws
from randsvm.svm import blocks
from randsvm.svm.blocks import BLOCKS, WIDER, Blocks, best_shares, coupling, solve_blocks, split
from randsvm.svm.solution import Certificate, Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import UniformSample

KEEP_ALL = UniformSample(10**6, Draw(1, 1))
NARROW, WIDE = 50.0, 0.05


def parts_of(one, W, draw):
    """Return the rows of each block of W."""
    return [W.rows[part] for part in split(one.scan.rows(W.rows).X, BLOCKS, draw)]


# ---- the split --------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(8, 200), st.integers(1, 30), st.integers(0, 10**6))
def test_each_row_is_in_one_block_of_nearly_equal_size(m, d, number):
    values = np.random.default_rng(number).normal(size=(m, d)).round(1)
    parts = split(sparse.csr_matrix(values), BLOCKS, Draw(0, number))
    assert len(parts) == BLOCKS
    assert sorted(np.concatenate(parts).tolist()) == list(range(m))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    assert all((np.diff(part) > 0).all() for part in parts)


def test_blocks_are_cut_across_a_line_so_that_near_rows_stay_together():
    """On a line each block is an interval, whatever the random rows are."""
    x = np.random.default_rng(0).permutation(400).astype(float)
    for number in range(5):
        parts = split(sparse.csr_matrix(x[:, None]), BLOCKS, Draw(3, number))
        assert sorted(int(np.ptp(x[part])) for part in parts) == [99] * 4


def test_equal_rows_are_split_as_well():
    parts = split(sparse.csr_matrix(np.ones((50, 3))), BLOCKS, Draw(0, 1))
    assert [len(part) for part in parts] == [12, 13, 12, 13]


# ---- the joint step ---------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.floats(0, 3), st.integers(0, 10**6))
def test_shares_have_the_largest_gain(count, together, seed):
    """Compare with a bounded minimiser of scipy. together: a common part of all steps."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(count, 6)) + together
    Q, a = A @ A.T, rng.uniform(0, 10, count)

    def loss(t):
        return float(t @ Q @ t / 2 - a @ t)

    t = best_shares(a, Q)
    best = optimize.minimize(
        loss, np.full(count, 0.5), jac=lambda t: Q @ t - a, bounds=[(0, 1)] * count, tol=1e-12
    )
    assert (t >= 0).all() and (t <= 1).all() and -loss(t) >= 0
    if (t == 1).all():
        assert -loss(t) >= blocks.WHOLE_STEPS_SHARE * -best.fun - 1e-9
    else:
        assert loss(t) <= best.fun + 1e-6 * (1 + abs(best.fun))
        assert -loss(np.ones(count)) <= blocks.WHOLE_STEPS_SHARE * -best.fun + 1e-9


@pytest.mark.parametrize("gamma", [NARROW, WIDE, 1.0])
@pytest.mark.parametrize("task", TASKS)
def test_the_dual_objective_never_falls_and_the_constraints_hold(tmp_path, task, gamma):
    """Compare with D in float64. With a wide kernel whole steps of all blocks would lower D."""
    of = replace(TASKS[task], gamma=gamma)
    if task != "one-class":
        of = of.with_bounds_times(50.0)
    with case(*task_file(tmp_path, of), of) as one:
        rng = np.random.default_rng(1)
        (lower, upper), total = one.box, of.coefficient_sum
        if total:
            beta = np.where(np.arange(450) < total, 1.0, 0.0)
            SV, _ = one.scan.after(one.step(beta), KEEP_ALL)
        else:
            SV, _ = one.scan.find_violators(KEEP_ALL)
        first = before = one.dual(one.standing)
        for number in range(4):
            W = working_set(np.sort(rng.permutation(450)[:300]), whole=False)
            step = solve_blocks(one.scan, W, SV.b, Draw(0, number))
            assert step.points.rows.tolist() == W.rows.tolist()
            SV, V = one.scan.after(step, KEEP_ALL)
            beta = one.standing
            assert (lower <= beta).all() and (beta <= upper).all()
            assert beta.sum() == pytest.approx(total, abs=1e-9)
            after = one.dual(beta)
            assert after >= before - 1e-6 * abs(before)
            assert V.certificate.dual == pytest.approx(after, rel=1e-4)
            before = after
        assert before > first


@pytest.mark.parametrize("gamma", [NARROW, WIDE])
def test_a_joint_step_is_a_share_of_the_step_of_each_block(made, gamma):
    with case(*made("two_gaussians", 450, 0, 6), problem(gamma=gamma, C=50.0)) as one:
        W, draw = working_set(np.arange(0, 400), whole=False), Draw(2, 5)
        found = solve_blocks(one.scan, W, 0.0, draw)
        steps, a = np.zeros((BLOCKS, 450)), []
        for k, rows in enumerate(parts_of(one, W, draw)):
            steps[k, rows] = svmlearn(one.scan, working_set(rows, whole=False), frozen=True).beta
            a.append(one.y @ steps[k])
        Q = steps @ one.K @ steps.T
        t = best_shares(np.array(a), Q)
        assert (t == 1).all() == (gamma == NARROW)
        assert found.beta == pytest.approx((t @ steps)[W.rows], abs=2e-3)
        own = np.trace(Q)
        assert found.coupling == pytest.approx((np.abs(Q).sum() - own) / own, rel=1e-2, abs=1e-6)


def test_the_coupling_of_blocks_is_the_sum_of_their_products():
    Q = np.array([[2.0, -1.0, 0.5], [-1.0, 3.0, 0.0], [0.5, 0.0, 1.0]])
    assert coupling(Q) == pytest.approx(3 / 6)
    assert coupling(np.zeros((2, 2))) == np.inf


# ---- the rule ---------------------------------------------------------------------------------


def coupled(one, W, of):
    """Return a step over W that changes nothing, with this coupling."""
    points = one.scan.points(W.rows)
    return Step(points, np.zeros(len(points)), coupling=of)


def distance(of):
    return Certificate(primal=of, dual=0.0)


def test_blocks_are_used_between_two_couplings(made, monkeypatch):
    monkeypatch.setattr(blocks, "MIN_ROWS", 20)
    found = []
    with case(*made("two_gaussians", 450), problem()) as one:
        rule, W = Blocks(one.scan, Draws(0), 100), working_set(np.arange(100), whole=False)
        asked = [0.5, 0.2, 0.05, 0.3, 0.3, 0.5, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01]
        for number, each in enumerate(asked):
            found.append(rule.rows_after(coupled(one, W, each), distance(0.5**number)))
    # After 0.5 the coupling is not looked at in the next round; after the second time the wait is
    # four rounds longer.
    one_block, several = 100, 100 * WIDER
    assert found == [one_block] * 2 + [several] * 3 + [one_block] * 4 + [several] * 5


def test_rounds_of_blocks_without_progress_are_followed_by_one_block(made, monkeypatch):
    monkeypatch.setattr(blocks, "MIN_ROWS", 20)
    with case(*made("two_gaussians", 450), problem()) as one:
        rule, W = Blocks(one.scan, Draws(0), 100), working_set(np.arange(100), whole=False)
        left = [1.0, 0.7, 0.8, 0.6, 0.6, 0.6, 0.5, 0.4, 0.3]
        found = [rule.rows_after(coupled(one, W, 0.01), distance(each)) for each in left]
    assert found == [200] * 5 + [100] * 2 + [200] * 2


def test_blocks_that_each_hold_one_class_still_reach_the_gap():
    """All kernel values are almost 0, and one feature, by which rows are split, gives the class."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 1e6, 2400), rng.normal(size=(2400, 5))])
    y = np.where(X[:, 0] < 3e5, 1, -1)
    found = randsvm.train_randsvm(randsvm.Arrays(X, y), gamma=0.1, sample_size=500)
    assert found.gap <= 0.001


@pytest.mark.parametrize(
    "of, rows",
    [
        (problem("linear"), 450),
        (problem("poly"), 450),
        (problem(), 190),
        (problem(task="nu-svc", bounds=(1.0, 1.0), absolute_sum=90.0), 450),
    ],
    ids=["linear", "poly", "few rows", "two sums"],
)
def test_one_block_stays_one_where_blocks_are_not_for(made, monkeypatch, of, rows):
    monkeypatch.setattr(blocks, "MIN_ROWS", 20)
    with case(*made("two_gaussians", rows), of) as one:
        rule, W = Blocks(one.scan, Draws(0), 100), working_set(np.arange(100), whole=False)
        assert rule.rows_after(coupled(one, W, 0.01), distance(1.0)) == 100


@pytest.mark.parametrize("gamma, pays", [(2000.0, True), (WIDE, False)])
def test_the_coupling_of_one_block_is_measured(made, monkeypatch, gamma, pays):
    monkeypatch.setattr(blocks, "MIN_ROWS", 20)
    with case(*made("two_gaussians", 450), problem(gamma=gamma)) as one:
        W = working_set(np.arange(200), whole=False)
        rule, step = Blocks(one.scan, Draws(0), 200), svmlearn(one.scan, W, frozen=True)
        assert rule.rows_after(step, distance(1.0)) == (400 if pays else 200)
        assert rule.divides(working_set(np.arange(300), whole=False)) == pays
        assert not rule.divides(W)
