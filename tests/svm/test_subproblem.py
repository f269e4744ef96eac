"""Test a step: it solves a working set beside frozen coefficients and never lowers D."""

from dataclasses import replace

import numpy as np
import pytest
import qp
from scans import KEEP_ALL, TASKS, case, solve, task_file

KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 1.0},
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "gamma": 0.5, "coef0": 1.0, "degree": 2},
}


def feasible_start(one, seed):
    """Return coefficients in their boxes whose sum is the problem's; some are at a bound."""
    rng = np.random.default_rng(seed)
    lower, upper = one.box
    beta = one.some(seed, m=len(one.y) // 2)
    for i in rng.permutation(len(beta)):
        beta[i] = np.clip(beta[i] + one.problem.coefficient_sum - beta.sum(), lower[i], upper[i])
    assert beta.sum() == pytest.approx(one.problem.coefficient_sum, abs=1e-12)
    return beta


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("task", TASKS)
def test_steps_over_any_rows_never_lower_d_and_stay_in_the_box_with_the_sum(tmp_path, task, kernel):
    if (task, kernel) == ("one-class", "linear"):
        pytest.skip("LIBSVM takes its most iterations where nothing is left to gain")
    asked = replace(TASKS[task], **KERNELS[kernel])
    with case(*task_file(tmp_path, asked), asked) as one:
        rng = np.random.default_rng(1)
        one.scan.after(one.step(feasible_start(one, 0)), KEEP_ALL)
        lower, upper = one.box
        duals, total = [one.dual(one.standing)], one.standing.sum()
        for size in (2, 3, 10, 50, 200, 450) * 4:
            W = np.sort(rng.permutation(450)[:size])
            outside = np.delete(one.standing, W)
            one.scan.after(solve(one.scan, W, whole=False), KEEP_ALL)
            beta = one.standing
            assert (np.delete(beta, W) == outside).all()
            assert (lower <= beta).all() and (beta <= upper).all()
            duals.append(one.dual(beta))
        assert beta.sum() == pytest.approx(total, abs=1e-9 * upper.max())
        assert (np.diff(duals) >= -1e-9 * np.abs(duals).max()).all()


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("task", TASKS)
def test_a_step_solves_its_quadratic_program(tmp_path, task, C):
    asked = TASKS[task]
    if task != "one-class":
        bounds = (C * asked.bounds[0], C * asked.bounds[1])
        asked = replace(asked, bounds=bounds)
    with case(*task_file(tmp_path, asked), asked, float64=True) as one:
        one.scan.after(one.step(feasible_start(one, 2)), KEEP_ALL)
        before, (lower, upper) = one.standing, one.box
        W = np.sort(np.random.default_rng(3).permutation(450)[:60])
        step = solve(one.scan, W, whole=True)
        K = one.K[np.ix_(W, W)]
        h = one.y[W] - (one.K @ before)[W] + K @ before[W]
        best, doubt = qp.minimum(K, h, lower[W], upper[W], before[W].sum(), asked.epsilon)
        found = qp.objective(K, h, asked.epsilon, step.beta)
        start = qp.objective(K, h, asked.epsilon, before[W])
        assert doubt <= 1e-6 * abs(best)
        # TIGHT: a share of the possible gain.
        assert best - doubt <= found * (1 + 1e-9 * np.sign(found))
        assert found - best <= 2e-3 * (start - best) + doubt + 1e-9 * abs(best)
