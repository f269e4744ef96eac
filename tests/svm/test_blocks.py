"""Test the blocks of a working set against the formulas in dense float64."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import Draw
from scans import KEEP_ALL, TASKS, case, task_file
from scipy import sparse
from solving import (
    BLOCK_COUNT,
    WorkingSet,
    best_share,
    blocks,
    solve_blocks,
    split,
)

import randsvm

NARROW, WIDE = 50.0, 0.05


# ---- the split --------------------------------------------------------------------------------


def test_blocks_are_cut_across_a_line_so_that_near_rows_stay_together():
    """On a line each block is an interval, whatever the random rows are."""
    x = np.random.default_rng(0).permutation(400).astype(float)
    for number in range(5):
        parts = split(sparse.csr_matrix(x[:, None]), BLOCK_COUNT, Draw(3, number))
        assert sorted(int(np.ptp(x[part])) for part in parts) == [99] * 4


# ---- the joint step ---------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.floats(-1, 10), st.floats(0, 10))
def test_the_share_has_the_largest_gain(a, norm):
    """Compare with a fine grid."""
    gains = [t * a - t**2 * norm / 2 for t in np.linspace(0, 1, 1001)]
    t = best_share(a, norm)
    assert 0 <= t <= 1
    if t == 1:
        assert a - norm / 2 >= blocks.WHOLE_STEPS_SHARE * max(gains) - 1e-9
    else:
        assert t * a - t**2 * norm / 2 >= max(gains) - 1e-9
        assert a - norm / 2 <= blocks.WHOLE_STEPS_SHARE * max(gains) + 1e-5


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
            rows = np.sort(rng.permutation(450)[:300])
            W = WorkingSet(rows, rows)
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


# ---- the rule ---------------------------------------------------------------------------------


def test_blocks_that_each_hold_one_class_still_reach_the_gap():
    """All kernel values are almost 0, and one feature, by which rows are split, gives the class."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 1e6, 2400), rng.normal(size=(2400, 5))])
    y = np.where(X[:, 0] < 3e5, 1, -1)
    found = randsvm.train(randsvm.Arrays(X, y), gamma=0.1, sample_size=500)
    assert found.gap <= 0.001
