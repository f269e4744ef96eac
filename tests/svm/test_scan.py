"""Test what a scan reports (u, V, b, P, D) against the formulas in dense float64."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
from csr_rows import csr
from kernel_sums import Expansion, SumError, exact_layout, layouts
from learning import board
from rows import Draw, open_rows, scaled, two_classes
from scans import KEEP_ALL, KERNELS, TASKS, case, problem, solve, task_file
from solving import (
    DUAL_SHARE,
    LOG_FAILURE,
    Added,
    Basis,
    Certificate,
    Collector,
    Kernel,
    KernelDefects,
    KernelMatrix,
    MatrixPart,
    MemoryBudget,
    ReducedMachine,
    ResidualQuery,
    RunningValues,
    Scan,
    ShardValues,
    Sharpened,
    largest_violation,
    scan,
)

from randsvm.errors import ParameterError


def offered_rows(V):
    """Return the rows offered to a collector that keeps all: the violators, and as many rows of the
    side that has fewer."""
    return set(np.concatenate(V.sides).tolist())


def assert_certificate(V, one, beta, b, accuracy):
    # D is a difference of two sums that may be much larger.
    rounding = accuracy * np.abs(beta).sum()
    assert V.certificate.primal == pytest.approx(one.primal(beta, b), rel=accuracy, abs=rounding)
    assert V.certificate.dual == pytest.approx(one.dual(beta), rel=accuracy, abs=rounding)


# ---- the formulas -----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def many_rows(set_sizes):
    """Let these small sets use float32, which is otherwise reserved for more rows."""
    set_sizes(float64_rows=0)


@pytest.mark.parametrize("problem", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("data", ["two_gaussians", "sparse_rows"])
def test_a_scan_with_any_kernel_follows_the_formulas(made, data, problem):
    with case(*made(data, 450), problem) as one:
        assert_follows_formulas(one)


@pytest.mark.parametrize("problem", TASKS.values(), ids=TASKS)
def test_a_scan_for_any_task_follows_the_formulas(tmp_path, problem):
    with case(*task_file(tmp_path, problem), problem) as one:
        assert_follows_formulas(one)


def assert_follows_formulas(one):
    beta = one.some(0)
    SV, V = one.scan.after(one.step(beta), KEEP_ALL)
    assert one.u == pytest.approx(one.K @ beta, rel=1e-4, abs=1e-4)
    assert (one.standing == beta).all()
    assert SV.rows.tolist() == np.flatnonzero(beta).tolist()
    assert (SV.beta == beta[SV.rows]).all()
    assert_certificate(V, one, beta, SV.b, 1e-5)
    tolerance = one.problem.tolerance
    sure = one.violators(beta, SV.b, tolerance + 1e-4)
    assert sure <= offered_rows(V)
    assert len(sure) <= V.count <= len(one.violators(beta, SV.b, tolerance - 1e-4))


@pytest.mark.parametrize("problem", [problem(C=2.0), problem(C=2.0, bounds=(1.0, 4.0))], ids=str)
def test_the_certificate_encloses_the_optimum(made, problem):
    """This holds for the solutions of subsets, which are feasible, and for the solution over all
    rows.
    """
    with case(*made("two_gaussians", 450), problem) as one:
        best = solve(one.scan, np.arange(450), whole=True)
        optimum = one.dual(best.beta)
        for m in (30, 100, 300, 450):
            step = solve(one.scan, np.arange(m), whole=True)
            _, V = one.scan.after(step, KEEP_ALL)
            assert V.certificate.dual <= optimum * (1 + 1e-6)
            assert optimum <= V.certificate.primal * (1 + 1e-6)
        assert 0 <= V.certificate.gap < 1e-3


def test_the_bounds_of_a_solution_are_those_of_its_weighted_rows(made):
    with case(*made("two_gaussians", 450), problem()) as one:
        beta = 2 * one.some(0)
        scan = Scan(one.D.reweighted(np.where(beta == 0, 1.0, 2.0)), one.problem, 0)
        SV, V = scan.after(one.step(beta), KEEP_ALL)
        assert SV.within_bounds
        assert V.certificate.dual == pytest.approx(one.dual(beta), rel=1e-5)


# ---- V ----------------------------------------------------------------------------------------


def test_rows_of_the_last_working_set_are_offered_again_if_they_violate(made):
    """With the b of all rows, rows that were just solved may violate."""
    with case(*made("checkerboard", 450), problem(gamma=2.0)) as one:
        working = np.arange(0, 450, 3)
        step = solve(one.scan, working, whole=True)
        SV, V = one.scan.after(step, KEEP_ALL)
        dense = one.standing
        sure = one.violators(dense, SV.b, 2e-3)
        assert sure & set(working.tolist())
        assert sure <= offered_rows(V)


def test_violators_of_one_side_are_offered_with_the_steepest_rows_of_the_other(
    tmp_path,
):
    """sum beta is fixed, so some coefficients have to fall if others rise.

    Before the first step b = -1 predicts the larger class, and only the smaller class violates.
    """
    _, X = oracle.two_gaussians(450)
    y = np.where(np.arange(450) % 10, -1.0, 1.0)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    with case(path, y, X, problem()) as one:
        SV, V = one.scan.find_violators(KEEP_ALL)
        assert one.violators(0 * y, SV.b, 1e-3) == set(np.flatnonzero(y > 0).tolist())
        rising, falling = V.sides
        assert set(np.flatnonzero(y > 0)) <= set(rising)
        assert len(falling) >= 45 and (y[falling] < 0).all()


@pytest.mark.parametrize("name", ["C-SVC", "epsilon-SVR", "one-class"])
def test_rows_near_the_margin_are_found_in_every_shard(tmp_path, name):
    with case(*task_file(tmp_path, TASKS[name]), TASKS[name]) as one:
        assert len(one.D.shards) > 1
        beta = one.some(0)
        SV, _ = one.scan.after(one.step(beta), KEEP_ALL)
        z = one.y - one.scan.u - SV.b
        beyond = {"C-SVC": one.y * z, "epsilon-SVR": np.abs(z) - one.problem.epsilon}.get(name, z)
        for distance in (0.0, 0.1):
            near = np.flatnonzero((beyond >= -distance) | (beta != 0))
            assert one.scan.near_margin(distance).tolist() == near.tolist()
            assert len(near) < 450


def test_the_largest_violations_times_weights_are_offered_first(made):
    """The steepest row is offered besides these, whatever its weight."""
    with case(*made("checkerboard", 450), problem(gamma=2.0)) as one:
        beta, weights = one.some(0), np.random.default_rng(4).integers(1, 9, 450).astype(float)
        scan = Scan(one.D.reweighted(weights), one.problem, 0)
        SV, V = scan.after(one.step(beta), Collector(20, Draw(1, 1), largest_violation))
        z = one.y - scan.u - SV.b
        # All coefficients are below their weighted bound.
        may_rise, may_fall = (one.y > 0) | (beta < 0), (one.y < 0) | (beta > 0)
        for side, rows, way in zip(V.sides, (may_rise, may_fall), (1, -1), strict=True):
            order = np.argsort(np.where(rows, -way * z * weights, np.inf), kind="stable")
            steepest = np.argmax(np.where(rows, way * z, -np.inf))
            first, *others = side.tolist()
            assert first == steepest
            assert others == [row for row in order[:20] if row != steepest]


# ---- running values ---------------------------------------------------------------------------


def chain(one):
    first = one.some(0)
    halved = first * np.where(np.arange(450) % 4, 1.0, 0.5)
    fewer = halved * (np.arange(450) % 10 > 0)
    return [first, halved, fewer, one.some(1), first, 0 * first, one.some(2)]


def test_an_evaluation_sums_again_what_was_taken_over(made):
    """The values that are taken over may be off."""
    with case(*made("two_gaussians", 450), problem(), float64=True) as one:
        beta = chain(one)[1]
        one.scan.continue_from(beta, (one.K @ beta + 2e-4)[None])
        solution, _ = one.scan.find_violators(KEEP_ALL)
        assert one.u == pytest.approx(one.K @ beta + 2e-4, abs=1e-5)
        *_, (evaluated, V) = one.scan.evaluations(solution)
        assert_certificate(V, one, beta, evaluated.b, 1e-6)


@pytest.mark.parametrize("kernel", ["linear", "poly"])
def test_the_bound_of_rounding_remembers_large_coefficients(made, kernel):
    """u keeps the rounding of what was added to it and taken from it again."""
    with case(*made("two_gaussians", 450), KERNELS[kernel], float64=True) as one:
        beta = one.some(0)
        some = np.arange(450) < 75
        one.scan.after(one.step(np.where(some, 1e12 * beta, beta)), KEEP_ALL)
        one.scan.after(one.step(np.where(some, 0.5 * beta, beta)), KEEP_ALL)
        solution, _ = one.scan.after(one.step(beta), KEEP_ALL)
        evaluated, V = next(one.scan.evaluations(solution))
        assert np.abs(one.u - one.K @ beta).max() > 1e-6  # the rounding that remains
        error = abs(V.certificate.primal - one.primal(beta, evaluated.b))
        assert 1e-6 < error <= V.certificate.primal_error


def test_a_saved_multiple_has_the_sums_and_sizes_of_its_coefficients(made):
    with case(*made("two_gaussians", 450), problem()) as one:
        beta = one.some(0)
        one.scan.after(one.step(beta), KEEP_ALL)
        tripled = one.scan.saved_solution.times(3.0)
        assert (tripled.beta == 3 * beta).all()
        assert tripled.u == pytest.approx(3 * one.K @ beta, rel=1e-4, abs=1e-4)
        assert tripled.added.total >= 3 * np.abs(beta).sum() * (1 - 1e-12)


def test_the_size_of_what_was_added_counts_both_signs():
    added = Added().after(np.array([1.0, -2.0])).after(np.array([-1.0]))
    assert (added.passes, added.centres, added.total) == (2, 3, 4.0)


def test_the_best_multiple_stays_within_the_bounds(made):
    """Small coefficients: D rises up to a large multiple."""
    with case(*made("two_gaussians", 450), problem()) as one:
        beta = one.some(0)
        beta -= beta.mean()
        one.scan.continue_from(1e-3 * beta)
        saved = one.scan.saved_solution
        for C in (0.5, 2.0, 8.0):
            assert saved.best_factor(replace(one.problem, bounds=(C, C)), one.y) <= C


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rounding_of_either_sign_is_found(made, sign):
    with case(*made("two_gaussians", 450), problem()) as one:
        _, V = one.scan.after(one.step(0 * one.y), KEEP_ALL)
        one.scan.audit_errors = np.full(len(one.scan.audit), sign)
        assert not one.scan.passes_audit(0.0, V.certificate)


def test_the_rounding_of_the_gap_is_estimated_for_all_rows(made):
    """From a third of them."""
    with case(*made("two_gaussians", 1500), problem()) as one:
        beta, off = one.some(0), 0.05
        one.scan.after(one.step(beta), KEEP_ALL)
        one.scan.audit_errors = np.full(len(one.scan.audit), off)
        assert len(one.scan.audit) < 600

        def residuals(u):
            z = one.y - u - one.scan.b
            return np.maximum(0, one.y * z) - beta * z  # C = 1

        u = one.K @ beta
        change = np.abs(residuals(u + off) - residuals(u)).sum() + abs(beta.sum()) * off / 2
        assert one.scan._rounding_of_distance() == pytest.approx(change, rel=0.3)


def test_rows_that_no_sample_has_count_in_the_bounds(made):
    with case(*made("two_gaussians", 450), problem()) as one:
        solution, V = one.scan.after(one.step(one.some(0)), KEEP_ALL)
        query, q = one.scan._query(solution), 1e-3
        sums = one.scan.ask(query)
        every, some = (
            one.scan._proven(solution, V.certificate, query, sums, each) for each in (0.0, q)
        )
        assert (every.sampled, some.sampled) == (False, True)
        assert some.distance >= every.distance + q * LOG_FAILURE
        assert some.dual_error >= every.dual_error + q * LOG_FAILURE / (2 * DUAL_SHARE)


def test_a_scan_that_is_repeated_keeps_its_tolerance(made, monkeypatch):
    with case(*made("two_gaussians", 450), problem(tolerance=0.5)) as one:
        beta = one.some(0)
        one.scan.after(one.step(beta), KEEP_ALL)
        answers = iter([False, True])
        monkeypatch.setattr(one.scan, "passes_audit", lambda *_: next(answers))
        SV, V = one.scan.find_violators(KEEP_ALL, 1e-6)
        assert V.count == len(one.violators(beta, SV.b, 1e-6))
        assert next(answers, None) is None


@pytest.mark.parametrize("gamma", [1e-3, 1.0])
def test_the_least_norm_is_a_share_of_the_variance_in_feature_space(tmp_path, gamma):
    y, X = oracle.two_gaussians(300)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    with open_rows(path) as whole:
        of = problem(gamma=gamma, task="nu-svc", absolute_sum=60.0)
        found = scan.least_norm(Scan(two_classes(whole), of, 0))
    K = oracle.kernel_matrix("rbf", X, X, gamma)
    variance = np.mean([K[i, i] - 2 * K[i].mean() + K.mean() for i in range(300)])
    assert found == pytest.approx(1e-8 * 60.0**2 * variance, rel=1e-3)


def test_shards_answer_with_u_alone(made, monkeypatch):
    """The sums that bound the rounding of float32 would double the bytes of a cluster."""
    with case(*made("two_gaussians", 450), problem()) as one:
        one.scan.after(one.step(one.some(0)), KEEP_ALL)
        assert one.scan.saved_solution.sums.shape == (2, 450)
        answers, ask = [], one.scan.ask

        def counted(query, *stage):
            answers.append(ask(query, *stage))
            return answers[-1]

        monkeypatch.setattr(one.scan, "ask", counted)
        for rows in None, np.arange(0, 450, 3):
            u = one.scan.u_of(rows)
            assert sum(part.size for part in answers.pop()) == len(u)


def test_a_scan_returns_to_an_earlier_solution(made):
    with case(*made("two_gaussians", 450), problem()) as one:
        solution, _ = one.scan.after(one.step(one.some(0)), KEEP_ALL)
        one.scan.after(one.step(one.some(1)), KEEP_ALL)
        one.scan.return_to(solution)
        assert (one.standing == one.some(0)).all()
        assert one.u == pytest.approx(one.K @ one.some(0), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("changed", [5, 60])
@pytest.mark.parametrize("broken", ["first", "last"])
def test_an_evaluation_after_a_broken_step_is_of_its_own_solution(
    made, monkeypatch, broken, changed
):
    """A time limit may end a step before u has advanced, or after the audit of its values."""
    with case(*made("checkerboard", 450), problem(gamma=2.0)) as one:
        beta = one.some(0, m=40)
        SV, _ = one.scan.after(one.step(beta), KEEP_ALL)
        other = beta.copy()
        other[SV.rows[:changed]] /= 2
        other = other if changed < 40 else one.some(1, m=changed)

        def late(*args, **more):
            raise TimeoutError

        name = "advance" if broken == "first" else "u_of"
        with monkeypatch.context() as patched, pytest.raises(TimeoutError):
            patched.setattr(one.scan, name, late)
            one.scan.make_step(one.step(other))
        SV, V = next(one.scan.evaluations(SV))
        assert_certificate(V, one, beta, SV.b, 1e-5)
        assert one.u == pytest.approx(one.K @ beta, rel=1e-4, abs=1e-4)


def test_values_beyond_float64_are_refused(tmp_path):
    """Of a row that no working set holds."""
    path = tmp_path / "data"
    path.write_text("+1 1:1\n-1 1:2\n+1 1:3e38\n")
    far = problem("poly", gamma=1e38, degree=9)
    with open_rows(path, jobs=1) as whole:
        values = RunningValues(two_classes(whole), far, 0)
        with pytest.raises(ParameterError, match="leave float64 on this data"):
            values.advance(csr(np.ones((1, 1), np.float32)), np.ones(1))


@pytest.mark.parametrize(
    ("P", "D", "gap"), [(4, 3, 0.25), (1, -4, 1.25), (-3, -4, 0.25), (0, 0, 0), (2, -np.inf, 1)]
)
def test_a_gap_is_relative_to_the_larger_objective(P, D, gap):
    assert Certificate(P, D).gap == gap


@pytest.mark.parametrize("C", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("problem", TASKS.values(), ids=TASKS)
def test_an_evaluation_describes_the_returned_solution_for_any_c(tmp_path, problem, C):
    """An error in f or b changes P by C times that error."""
    if problem.task == "one-class" and C > 1:
        pytest.skip("has no C")
    bounds = tuple(C * bound for bound in problem.bounds)
    with case(*task_file(tmp_path, problem), replace(problem, bounds=bounds)) as one:
        beta = one.some(0)
        solution, _ = one.scan.after(one.step(beta), KEEP_ALL)
        *_, (evaluated, V) = one.scan.evaluations(solution)
        assert (evaluated.rows == solution.rows).all()
        assert_certificate(V, one, beta, evaluated.b, 1e-6)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_gap_of_one_class_is_relative_to_the_mean_of_all_rows(tmp_path, kernel):
    """As the page of the certificate defines it; rows differ in their size."""
    of = problem(kernel, task="one-class", bounds=(1.0, 1.0), coefficient_sum=0.3 * 1500)
    y, X = oracle.two_gaussians(1500)
    X = oracle.as_float32(X * np.linspace(0, 5, 1500)[:, None])
    with case(oracle.write_svmlight(tmp_path / "data", y, X), y, X, of) as one:
        mean = one.K.diagonal().mean()
        assert one.scan.floor == pytest.approx(0.005 * 0.3**2 * 1500 * mean)


# ---- samples of rows ---------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.9, -0.4, 0.0])
def test_a_sample_bounds_what_rounding_changes(made, share):
    """Of a third of the rows u is too large by a share of its bound, of a third too small."""
    with case(*made("two_gaussians", 450), problem()) as one:
        beta, error = one.some(0), 1e-3
        solution, _ = one.scan.after(one.step(beta), KEEP_ALL)
        u, off = one.K @ beta, share * error * (np.arange(450) % 3 - 1)
        rows = np.flatnonzero(beta)
        one.scan.continue_from(beta, (u + off)[None])
        query = ResidualQuery(one.scan.task, solution.b, SumError(0.0, error), 1.0)
        layout, some = one.scan.kernel_layout.in_float64, beta[rows]
        sizes = np.column_stack([some, np.abs(some)])
        expansion = Expansion(layout, one.scan.rows(rows).X, sizes)

        def sums(seed, q):
            sharp = SumError(0.0, 1e-12)
            total, draw = sizes[:, 1].sum(), Draw(seed, 1)
            own = lambda X: SumError(0.0, np.full(X.shape[0], error))  # noqa: E731
            asked = Sharpened(query, own, expansion, total, sharp, draw, q, q > 0)
            return np.sum(one.scan.ask(asked), axis=0)

        def residuals(u):
            z = one.y - u - solution.b
            return np.maximum(0, one.y * z) - beta * z  # C = 1

        true, running = residuals(u), residuals(u + off)
        most = np.maximum(residuals(u + off - error), residuals(u + off + error))
        computed, rise, norm, *_, count = np.sum(one.scan.ask(query), axis=0)
        assert computed == pytest.approx(running.sum(), rel=1e-9)
        assert rise == pytest.approx((most - running).sum(), rel=1e-6)
        assert norm == pytest.approx(error * np.abs(beta).sum(), rel=1e-6)
        assert sum(sums(0, 0.0)[:2]) == pytest.approx(true.sum(), rel=1e-9)
        # A sample of two fifths of these rows.
        q = (rise + DUAL_SHARE * norm) / (0.4 * count)
        risen, moved = np.maximum(true - running, 0).sum(), np.abs(beta) @ np.abs(off)
        found = np.array([sums(seed, q)[:3] for seed in range(100)])
        most_residuals = found[:, 0] + found[:, 1] + q * LOG_FAILURE
        assert (most_residuals >= running.sum() + risen).all()
        assert (found[:, 2] + q * LOG_FAILURE / DUAL_SHARE >= moved).all()
        # What is not allowed for rows that were not drawn has a mean above the sum, and near it.
        assert found[:, :2].sum(axis=1).mean() >= true.sum() - 0.1 * risen - 1e-8
        assert found[:, 1].mean() <= 3 * risen + 1e-8
        assert found[:, 2].mean() >= 0.8 * moved


def test_a_dual_of_other_coefficients_holds_for_the_nearest_definite_kernel(made):
    """K of the problem has negative eigenvalues down to -shift."""
    shift = 1e-3
    with case(*made("two_gaussians", 450), problem(defects=KernelDefects(shift=shift))) as one:
        SV, V = one.scan.after(solve(one.scan, np.arange(450), whole=True), KEEP_ALL)
        found = one.scan.with_dual_of(SV, V.certificate)
        one.K += shift * np.eye(450)
        assert found.dual - found.dual_error <= one.dual(one.standing) <= found.dual


def test_rows_are_computed_at_once_where_float32_bounds_nothing(made, set_sizes):
    """Whatever number of rows may be computed: no further round lowers the bound."""
    set_sizes(float64_rows=0, few_loose=0)
    with case(*made("two_gaussians", 450), problem(C=1e4)) as one:
        beta = one.some(0)
        rows = np.flatnonzero(beta)
        one.scan.continue_from(beta, (one.K @ beta)[None], Added(1, len(rows), 1e12))
        solution, _ = one.scan.find_violators(KEEP_ALL)
        first, second = one.scan.evaluations(solution, 1e-3)
        assert first[1].certificate.gap == np.inf
        assert_certificate(second[1], one, beta, second[0].b, 1e-6)


def test_a_reduced_machine_has_no_dual_objective_and_no_sample(made, set_sizes):
    set_sizes(float64_rows=0, few_loose=0, drawn_share=1e9)
    with case(*made("two_gaussians", 450), problem()) as one:
        beta = one.some(0)
        rows = np.flatnonzero(beta)
        solution, _ = one.scan.after(one.step(beta), KEEP_ALL)
        machine = ReducedMachine(rows, beta[rows], 0.0, one.problem)
        _, V = one.scan.examine(machine)
        assert (V.certificate.dual, V.certificate.gap) == (-np.inf, 1.0)
        *_, (found, V) = one.scan.evaluations(machine, 0.1)
        assert (V.certificate.dual, V.certificate.sampled) == (-np.inf, False)
        P = one.primal(beta, found.b)
        assert abs(V.certificate.primal - P) <= V.certificate.primal_error < 1e-6 * P
        # The solution of the problem has its own D again.
        again, V = one.scan.examine(solution)
        assert_certificate(V, one, beta, again.b, 1e-5)


# ---- precision --------------------------------------------------------------------------------


def error_of_u(one):
    return float(np.abs(one.u - one.K @ one.standing).max())


@pytest.mark.slow
def test_a_scan_is_repeated_in_float64_if_float32_is_too_coarse(made):
    """With C = 1e5 the coefficients magnify the rounding of float32 kernel values."""
    with case(*made("two_gaussians", 1000), problem(gamma=0.5, C=1e5)) as one:
        for rows in (np.arange(0, 1000, 2), np.arange(0, 1000, 3)):
            step = solve(one.scan, rows, whole=True)
            _, V = one.scan.after(step, KEEP_ALL)
            assert one.scan.kernel_layout.dtype is np.float32
            allowed = max(one.problem.tolerance / 4, V.max_violation / 100)
            assert error_of_u(one) <= 1.5 * allowed


@pytest.mark.parametrize(
    "solved", [problem(gamma=0.5, C=3e3), problem(task="svr", gamma=0.5, C=1e3, epsilon=0.3)]
)
def test_rounding_does_not_hide_the_gap_that_is_asked_for(made, solved):
    """No violation here shows the rounding: P and D do, where coefficients are large."""
    loose, gap = replace(solved, tolerance=0.5), 1e-5
    with case(*made("two_gaussians", 1000), loose, gap=gap) as one:
        everything = solve(one.scan, np.arange(1000), whole=True, gap=gap)
        SV, V = one.scan.after(everything, KEEP_ALL)
        P, D = one.primal(one.standing, SV.b), one.dual(one.standing)
        allowed = max(gap * abs(P), P - D)
        assert abs((V.certificate.primal - V.certificate.dual) - (P - D)) <= allowed / 2


@pytest.mark.parametrize(
    "problem", [KERNELS["rbf"], problem("poly", gamma=0.02, coef0=1.0, C=0.1)], ids=["rbf", "poly"]
)
def test_a_run_returns_to_float32_after_a_scan_in_float64(made, problem):
    """The bound of u includes the rounding of both parts of the sums."""
    with case(*made("two_gaussians", 450), problem) as one:
        scan, beta = one.scan, one.some(0)
        scan.after(one.step(beta), KEEP_ALL)
        single = error_of_u(one)
        assert scan.repeat_in_float64()
        assert not scan.repeat_in_float64()
        assert error_of_u(one) < min(1e-9, single / 100)
        # The bound of a sum in float64 only: far below one of float32, and above the error.
        assert error_of_u(one) <= bound_of_u(scan).max() < 1e-8
        # A small change in float32: only its own terms have the rounding of float32.
        changed = beta.copy()
        changed[np.flatnonzero(beta)[:5]] *= 0.5
        scan.after(one.step(changed), KEEP_ALL)
        assert scan.kernel_layout.dtype is np.float32
        assert 1e-12 < error_of_u(one) < single
        mixed = bound_of_u(scan)
        assert (np.abs(one.u - one.K @ changed) <= mixed).all()
        scan.continue_from(changed)
        assert 1e-8 < mixed.max() < bound_of_u(scan).max()


@pytest.mark.parametrize(("changes", "dtype"), [(1, np.float64), (3, np.float32)])
def test_a_second_repetition_stays_in_float64_if_it_comes_soon(made, changes, dtype):
    """All 60 terms are summed anew. After one change of 30 coefficients it is cheaper to make
    further changes in float64, after three of them it is not."""
    with case(*made("two_gaussians", 450), KERNELS["rbf"]) as one:
        scan, beta = one.scan, one.some(0)
        scan.after(one.step(beta), KEEP_ALL)
        assert scan.repeat_in_float64()
        for number in range(changes):
            beta = beta.copy()
            beta[np.flatnonzero(beta)[number % 2 :: 2]] *= 0.5
            scan.after(one.step(beta), KEEP_ALL)
        assert scan.repeat_in_float64()
        assert scan.kernel_layout.dtype is dtype
        assert error_of_u(one) < 1e-9


def test_the_bound_counts_what_was_added_in_float64(made):
    """The bound allows each term a rounding of float64."""
    with case(*made("two_gaussians", 450), KERNELS["rbf"]) as one:
        beta = one.some(0)
        one.scan.after(one.step(beta), KEEP_ALL)
        one.scan.repeat_in_float64()
        assert bound_of_u(one.scan).min() >= 2.0**-53 * np.abs(beta).sum()


def bound_of_u(scan):
    """Return the bounds of the errors of u, as `--certificate` writes them, before u of any row is
    computed anew."""
    solution, _ = scan.find_violators(KEEP_ALL)
    query = scan._query(solution)
    return np.concatenate(scan.ask(lambda values: [query.bounds(values)[2]]))


def test_rounding_that_large_violations_allowed_does_not_outlast_them(made):
    """Rows violate by 2 before the step, where u may be off by 2 tolerances, and by a tolerance
    after it."""
    with case(*made("two_gaussians", 450), problem(gamma=0.5, C=1e3)) as one:
        _, V = one.scan.after(solve(one.scan, np.arange(450), whole=True), KEEP_ALL)
        assert V.max_violation < 2 * one.problem.tolerance
        assert error_of_u(one) <= one.problem.tolerance / 4


@pytest.mark.parametrize("offset", [0.0, 1e3, 3e4, 1.7e9])
def test_large_unscaled_features_keep_u_within_a_quarter_of_the_tolerance(tmp_path, offset):
    """Kernel values of rows far from zero are as accurate as those of rows near zero."""
    y, X = oracle.two_gaussians(600)
    X = oracle.as_float32(X * {0.0: 300, 1.7e9: 1e4}.get(offset, 1) + offset)
    path = oracle.write_svmlight(tmp_path / "a.svm", y, X)
    gamma = {0.0: 1e-4, 1.7e9: 1e-8}.get(offset, 0.5)
    with case(path, y, X, problem(gamma=gamma, C=10.0)) as one:
        differences = X[:, None] - X
        one.K = np.exp(-gamma * (differences**2).sum(axis=2))
        one.scan.after(one.step(one.some(0, m=200)), KEEP_ALL)
        assert error_of_u(one) <= one.problem.tolerance / 4


@pytest.mark.parametrize("size, over_nonzeros", [(1.0, True), (300.0, False)])
def test_sums_over_nonzeros_in_float64_lose_no_digits(tmp_path, size, over_nonzeros):
    """Exponents of large rows are computed from differences, also where rows have few nonzeros."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 40)) < 0.2, size + rng.random((300, 40)), 0)
    X[:, 0] = size
    X, y = oracle.as_float32(X), np.where(rng.random(300) < 0.5, 1.0, -1.0)
    path = oracle.write_svmlight(tmp_path / "a.svm", y, X)
    gamma = 0.05 if over_nonzeros else 0.5
    with case(path, y, X, problem(gamma=gamma, C=10.0)) as one:
        matrix, beta = KernelMatrix(one.D, one.problem), one.some(0, m=200)
        assert isinstance(matrix.exact_layout, layouts.Nonzeros) is over_nonzeros
        scan = Scan(one.D, one.problem, 0, matrix=MatrixPart(matrix, matrix.place))
        scan.continue_from(beta)
        K = np.exp(-gamma * np.square(X[:, None] - X).sum(axis=2))
        assert np.abs(scan.u - K @ beta).max() <= 1e-11


def test_unused_rows_are_released_when_memory_is_full(tmp_path):
    data = board(4000)
    path = str(data.save(tmp_path / "data"))
    with open_rows(path, jobs=1) as whole:
        D = two_classes(whole)
        values = RunningValues(D, problem(), 0, layout_bytes=60_000)
        support_vectors = np.arange(0, 200, 2)
        values.rows(support_vectors)
        values.set_coefficients(support_vectors, np.ones(len(support_vectors)))
        for begin in range(0, D.n - 200, 200):
            rows = np.arange(begin, begin + 200)
            found, expected = values.rows(rows), D.points(rows)
            assert (found.X.toarray() == expected.X.toarray()).all()
            assert (found.y == expected.y).all()
            assert values.row_cache.nbytes < 120_000
        assert len(values.row_cache.missing(support_vectors)) == 0
        values.forget()


# ---- b ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", [None, "minmax", "standard"])
def test_a_subset_may_have_no_rows_of_a_chunk(tmp_path, scaling):
    """This happens with folds and --subset if the last chunk is short."""
    y, X = oracle.two_gaussians(101)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    with open_rows(path, chunk_rows=100) as whole:
        D = two_classes(whole).subset(np.arange(101) < 100)
        if scaling:
            D = scaled(D, scaling)
        scan = Scan(D, problem(gamma=0.5), 0)
        step = solve(scan, np.arange(100), whole=True)
        _, V = scan.after(step, KEEP_ALL)
        assert V.certificate.gap < 1e-2
        assert isinstance(step.points.X, type(csr((1, 1))))


def test_a_pass_over_a_basis_that_ends_early_leaves_no_values(tmp_path, monkeypatch):
    """The memory that it reserved serves the next pass."""
    y, X = oracle.two_gaussians(3000)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    with open_rows(path) as whole:
        D, budget = two_classes(whole), MemoryBudget(1 << 20)
        X = D.points(np.arange(5)).X
        basis = Basis(1, exact_layout(Kernel("rbf"), X), X)
        values = ShardValues(D, budget, D.shards[0])
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(values, "D", SimpleNamespace(chunks=lambda _: (1 // 0 for _ in "a")))
            basis.blocks(values)
        kept = basis.blocks(values)
        assert sum(map(len, kept)) == D.n
        assert kept is basis.blocks(values)
        assert budget.left == (1 << 20) - sum(block.nbytes for block in kept)
        basis._replace(number=2).blocks(values)
        assert budget.left == (1 << 20) - sum(block.nbytes for block in kept)
