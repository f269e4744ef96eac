"""Test a step: it solves a working set beside frozen coefficients and never lowers D."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import qp
from scans import TASKS, case, problem, task_file, working_set

from randsvm.data.sampling import Draw
from randsvm.svm import running_values, subproblem
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import Collector, largest_violation

COLLECTOR = Collector(50, Draw(0, 1), largest_violation)
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
        one.scan.after(one.step(feasible_start(one, 0)), COLLECTOR)
        lower, upper = one.box
        duals, total = [one.dual(one.standing)], one.standing.sum()
        for size in (2, 3, 10, 50, 200, 450) * 4:
            W = np.sort(rng.permutation(450)[:size])
            outside = np.delete(one.standing, W)
            one.scan.after(svmlearn(one.scan, working_set(W, whole=False)), COLLECTOR)
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
        one.scan.after(one.step(feasible_start(one, 2)), COLLECTOR)
        before, (lower, upper) = one.standing, one.box
        W = np.sort(np.random.default_rng(3).permutation(450)[:60])
        step = svmlearn(one.scan, working_set(W, whole=True))
        K = one.K[np.ix_(W, W)]
        h = one.y[W] - (one.K @ before)[W] + K @ before[W]
        best, doubt = qp.minimum(K, h, lower[W], upper[W], before[W].sum(), asked.epsilon)
        found = qp.objective(K, h, asked.epsilon, step.beta)
        start = qp.objective(K, h, asked.epsilon, before[W])
        assert doubt <= 1e-6 * abs(best)
        # TIGHT: a share of the possible gain.
        assert best - doubt <= found * (1 + 1e-9 * np.sign(found))
        assert found - best <= 2e-3 * (start - best) + doubt + 1e-9 * abs(best)


@pytest.mark.parametrize("task", ["C-SVC", "epsilon-SVR"])
def test_the_only_solve_of_a_problem_is_as_exact_as_the_gap_asks(tmp_path, task):
    """The certificate comes from a scan of all rows."""
    asked = replace(TASKS[task], bounds=(30.0, 30.0))
    iterations = []
    for gap in (None, 1e-5, 1e-2):
        with case(*task_file(tmp_path, asked), asked) as one:
            one.scan.only_gap = gap
            step = svmlearn(one.scan, working_set(np.arange(450), whole=True))
            _, V = one.scan.after(step, COLLECTOR)
            iterations.append(step.iterations)
            assert V.certificate.gap <= max(gap or 0.0, 1e-3)
    # A small gap does not tighten the tolerance: rounding ends a solve.
    assert iterations[0] == iterations[1] > 1.2 * iterations[2]


def test_a_working_set_without_a_violating_pair_is_unchanged(made, monkeypatch):
    """LIBSVM is not called."""
    monkeypatch.setattr(subproblem, "one_sum", None)
    with case(*made("two_gaussians", 450), problem()) as one:
        rows = np.flatnonzero(one.y > 0)[:9]
        step = svmlearn(one.scan, working_set(rows, whole=False))
        assert step.beta.tolist() == [0.0] * 9 and step.ended


def test_rounds_of_all_rows_compute_their_kernel_values_once(made, monkeypatch):
    computed, plain = [], running_values.gram_of

    def counted(*words, **named):
        computed.append(plain(*words, **named))
        return computed[-1]

    monkeypatch.setattr(running_values, "gram_of", counted)
    with case(*made("two_gaussians", 450), problem()) as one:
        everything, some = np.arange(450), np.arange(0, 450, 2)
        first = one.scan.gram(one.scan.points(everything))
        X = one.scan.points(everything).X.toarray().astype(float)
        squares = np.square(X[:, None] - X[None]).sum(axis=2)
        expected = np.exp(-one.problem.gamma * squares)
        assert first == pytest.approx(expected, abs=1e-5)
        assert one.scan.gram(one.scan.points(everything)) is first
        assert len(computed) == 1
        part = one.scan.gram(one.scan.points(some))
        assert part == pytest.approx(expected[np.ix_(some, some)], abs=1e-5)
        one.scan.refine()
        layout = one.scan.state.gram_layout.in_float64
        one.scan.state = replace(one.scan.state, gram_layout=layout)
        again = one.scan.gram(one.scan.points(everything))
        assert len(computed) == 3
        assert again == pytest.approx(expected, abs=1e-7)
