"""Solve one subproblem: `svmlearn` receives a working set and returns a step.

All coefficients outside the working set keep their values (OFG97's decomposition in general form).
`svmlearn` forms the quadratic program, and `solve` chooses the form in which LIBSVM solves it, see
subproblem_qp.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from randsvm.data.points import Points
from randsvm.events import Notice, emit_once
from randsvm.kernels.gram import centred_gram
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.option import require
from randsvm.parameters.svm import Problem
from randsvm.parameters.values import MEGABYTE, format_size
from randsvm.svm import libsvm
from randsvm.svm.kernel_layout import FLOAT32_UNIT
from randsvm.svm.libsvm import c_svc, check_sums, epsilon_svr
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Step
from randsvm.svm.subproblem_qp import (
    BoxQP,
    Solution,
    any_boxes,
    by_signs,
    by_windows,
    max_rise_and_min_fall,
    needs_many_copies,
    only_point,
    product,
    solve_two_sums,
    two_boxes,
)
from randsvm.svm.subproblem_row_boxes import MAX_SOLVES_OF_ROUND
from randsvm.svm.tasks import Task, task_of
from randsvm.svm.working_set import WorkingSet

# Up to this many rows LIBSVM gets precomputed kernel values (16 bytes a value in all). For more
# rows, see `uses_precomputed_values`.
MAX_GRAM_ROWS = 4096
# The tolerance of a solve is this share of the largest KKT violation of its rows; a smaller
# tolerance gains nothing that the next round keeps. So tolerances decrease with the violations of
# a run. Measured: covtype, twonorm and checkerboard change as many coefficients with 0.03 as with
# 0.1, and a quarter more with 0.3. FINAL_SOLVE_SHARE applies if a solve of all rows is to be the
# last. Measured: with 26 classes (C = 4), 47 of the 325 pairs miss a gap of 0.1% with 2e-4 and none
# with 1e-4.
# Losses count C times in P. With a narrow RBF kernel many rows have coefficients of about 1, below
# C, so that the tolerance that a gap needs is proportional to 1 / C: above FINAL_SOLVE_COST it is
# smaller, down to MIN_FINAL_SHARE. Measured: with 26 classes, C = 10 and 7,477 support vectors of
# 15,000 rows, all 325 pairs miss a gap of 0.1% with 1e-4 and none with 5e-5.
SOLVE_SHARE, FINAL_SOLVE_SHARE = 0.1, 1e-4
FINAL_SOLVE_COST, MIN_FINAL_SHARE = 5.0, 2e-6
# If there is one problem only, the share is at least GAP_SHARE times the gap that is asked for, for
# regressions REGRESSION_GAP_SHARE: a solve that misses the gap costs a repetition of one solve.
# Measured for a gap of 0.1% on 11 real sets of 270 to 2,628 rows, C = 0.5 to 32: shares of 5e-4
# lead to gaps of 0.001% to 0.03% for classes and 0.002% to 0.06% for regressions, and a made
# regression misses its gap with 0.5. Planes with turbines (C = 32, 2,628 rows of which 351 are
# distinct) take 14,700 iterations with 5e-4 and 224,000 with 1.6e-5.
GAP_SHARE, REGRESSION_GAP_SHARE = 0.5, 0.1
# Rounding of gradients in LIBSVM, relative to their largest terms.
GRADIENT_ROUNDING = 1e-12
# The largest decrease of the dual objective in one solve, relative to its parts. A solve that
# loses more is repeated with a tenth of the tolerance, up to MAX_REPEATED_SOLVES solves.
MAX_DUAL_LOSS = 1e-12
MAX_REPEATED_SOLVES = 3

# If the rounding of float32 kernel values changes u by more than SOLVE_SHARE of the violation, the
# values are centred, and their diagonal increases by the share DIAGONAL_INCREASE. Without it the
# rounded kernel is indefinite, and LIBSVM makes millions of useless steps. D gains at least as much
# as the objective with the larger diagonal. Measured: with 16 or 32 units of float32 a run reaches
# a gap of 0.1% in equally many steps; with 8 or 64 it needs half as many again.
DIAGONAL_INCREASE = 2.0**-20

# The largest violation of a C-SVC whose coefficients are all 0: the slopes are 1 and -1.
FIRST_VIOLATION = 2.0

NOT_SOLVED = "LIBSVM reached its limit of iterations, a subproblem is not solved to the tolerance: "


def svmlearn(scan: Scan, W: WorkingSet, b: float | None = None, *, frozen: bool = False) -> Step:
    """Solve the SVM over the rows of W; all other coefficients stay fixed.

    b: the offset of the solution so far; None: there is no solution yet.
    frozen: whether coefficients outside of W may differ from 0. If not, LIBSVM solves more than
        MAX_GRAM_ROWS rows from 0 with its own kernel, if it has that kernel.
    """
    problem, began = scan.problem, time.perf_counter()
    is_first = not len(scan.coefficients.rows) and problem.task == "svc" and not problem.weighted
    if is_first and uses_precomputed_values(len(W.rows), problem, frozen and not W.whole):
        points = scan.rows(W.rows)
        points = replace(points, beta=np.zeros(len(points)))
        return step_to_solution(points, _first_svc(scan, points, W), problem, began)
    points = scan.points(W.rows)
    if not uses_precomputed_values(len(points), problem, frozen and not W.whole):
        libsvm.check_values(points, problem)
        own = libsvm.train_with_libsvm_kernel(points, problem, problem.tolerance / 2)
        return step_to_solution(
            points, Solution(own.alpha, own.ended, own.iterations), problem, began
        )
    return step_to_solution(points, solution_of(scan, points, b, whole=W.whole), problem, began)


def solution_of(
    scan: Scan, points: Points, b: float | None = None, *, whole: bool = False
) -> Solution:
    """Solve the SVM over some points, with precomputed kernel values; change nothing in the scan.

    Threads may solve different points at the same time, except for a precomputed kernel. b: see
    svmlearn. whole: whether these are all rows of D.
    """
    problem, slack = scan.problem, scan.slack
    task, y, u, beta = task_of(problem), points.y, points.u, points.beta
    assert u is not None and beta is not None
    unchanged = Solution(beta, True, 0)
    violation = task.with_slack(slack).violation(y, u, beta, points.weights)
    if violation <= 0:
        return unchanged

    K, (lower, upper) = scan.gram(points), task.box(y, points.weights)
    share = SOLVE_SHARE
    if whole:
        share = _final_share(problem, float(max(upper.max(), -lower.min())), scan.only_gap)
        # A solve that starts near the optimum needs no smaller tolerance than one from beta = 0.
        # Kernel values of an RBF are at most 1; where they are large, a tenth of a violation may be
        # far from the gap.
        if problem.kernel == "rbf" and not (task.coefficient_sum or task.absolute_sum):
            share = min(SOLVE_SHARE, share * max(violation, float(np.ptp(y))) / violation)
    # The coefficients of the solution may reach their bounds: centred values round least.
    # A step changes no sum of coefficients, so centred values serve all tasks.
    if not beta.any() and _rounding(K, np.maximum(upper, -lower)) > violation:
        K = centred_gram(Kernel.of(problem), points.X, K)
    # If there are more rows than features, the rounded values belong to no linear kernel.
    singular = problem.kernel == "linear" and points.X.shape[1] < len(points)
    # With two sums the share of a whole solve stays small while violations fall.
    largest = (share if singular or task.absolute_sum else SOLVE_SHARE) * violation
    rounding_shows = _rounding(K, beta) > largest
    if rounding_shows:
        K, share = centred_gram(Kernel.of(problem), points.X, K), SOLVE_SHARE
        K.flat[:: len(K) + 1] *= np.float32(1 + DIAGONAL_INCREASE)

    products = product(K, beta)
    h = y - (u - products)
    # LIBSVM's sums cannot distinguish two gradients that differ by less than this.
    floor = GRADIENT_ROUNDING * float(np.abs(h).max() + np.abs(products).max())
    if violation <= floor:
        return unchanged
    tolerance = max(share * violation, floor)
    sums = _two_sums(beta, upper, slack) if task.absolute_sum else None
    s = float(beta.sum())
    # Rows of a regression may wait for the next round, where there is one.
    partly = not whole if task.epsilon else rounding_shows

    def solve_to(tolerance: float) -> Solution:
        if sums is not None:
            return solve_two_sums(K, h, lower, upper, sums, beta, tolerance)
        return solve(K, h, lower, upper, s, beta, tolerance, task.epsilon, b, partly)

    def dual_part(beta: np.ndarray) -> float:
        return _dual_part(task, h, beta, product(K, beta))

    start = beta, _dual_part(task, h, beta, products)
    return _solve_without_decrease(solve_to, dual_part, start, tolerance, rounding_shows)


def _solve_without_decrease(
    solve_to: Callable[[float], Solution],
    dual_part: Callable[[np.ndarray], float],
    start: tuple[np.ndarray, float],
    tolerance: float,
    rounding_shows: bool,
) -> Solution:
    """Return a solution, or the start if each solve decreases D.

    After a decrease of D, the next solve has a tenth of the tolerance. The iterations are those of
    all solves.

    solve_to: solves to a tolerance. start: beta and its `dual_part`. rounding_shows: whether the
    rounding of K to float32 may decrease D.
    """
    (beta, before), iterations = start, 0
    for _ in range(MAX_REPEATED_SOLVES):
        found = solve_to(tolerance)
        iterations += found.iterations
        after = dual_part(found.beta)
        # With rounded values D may decrease by this in a solve to this tolerance; no tighter bound
        # is known.
        lost = tolerance * float(np.abs(found.beta - beta).sum()) if rounding_shows else 0.0
        if after >= before - MAX_DUAL_LOSS * (abs(before) + abs(after)) - lost:
            return Solution(found.beta, found.ended, iterations)
        if not found.ended:
            break
        tolerance /= 10
    return Solution(beta, found.ended, iterations)


def _first_svc(scan: Scan, points: Points, W: WorkingSet) -> Solution:
    """Solve the C-SVC of some rows while all coefficients are 0.

    Two rows of different classes then have a violation of 2. LIBSVM also starts with coefficients
    of 0, so its solution cannot have a smaller D.
    """
    problem, y = scan.problem, points.y
    if (y == y[0]).all():
        return Solution(np.zeros(len(y)), True, 0)
    K, (lower, upper) = scan.gram(points), scan.task.box(y)
    if _rounding(K, upper - lower) > FIRST_VIOLATION:
        K = centred_gram(Kernel.of(problem), points.X, K)
    share = SOLVE_SHARE
    if W.whole:
        share = _final_share(problem, max(problem.bounds), scan.only_gap)
    return _svc(BoxQP(K, y, lower, upper, 0.0, lower, share * FIRST_VIOLATION))


def step_to_solution(points: Points, found: Solution, problem: Problem, began: float) -> Step:
    """Return the step to a solution; emit a notice if LIBSVM reached its limit of iterations.

    began: when the solve began, by time.perf_counter().
    """
    if not found.ended:
        emit_once("iterations of LIBSVM", Notice(NOT_SOLVED + libsvm.remedy(problem)))
    return Step(points, found.beta, time.perf_counter() - began, found.ended, found.iterations)


def _two_sums(beta: np.ndarray, upper: np.ndarray, slack: float) -> tuple[float, float]:
    """Return the sums of |beta| above and below 0 that a nu task prescribes to a working set."""
    above, below = float(np.maximum(beta, 0).sum()), float(-np.minimum(beta, 0).sum())
    if not slack:
        return above, below
    # The sums cannot exceed the sum of the bounds. With p + q <= sum upper every beta of a row is
    # still possible: a and a* may both grow by the same amount.
    more = min(slack, float(upper.sum()) - above - below) / 2
    return above + more, below + more


def _final_share(problem: Problem, bound: float, gap: float | None) -> float:
    """Return the share of the violation that the last solve of all rows has as its tolerance.

    bound: the largest bound of a coefficient; gap: see RunningValues.only_gap.
    """
    if problem.kernel != "rbf":
        return FINAL_SOLVE_SHARE
    share = FINAL_SOLVE_SHARE * FINAL_SOLVE_COST / bound
    share = max(MIN_FINAL_SHARE, min(share, FINAL_SOLVE_SHARE))
    of_gap = REGRESSION_GAP_SHARE if problem.prediction_type == "svr" else GAP_SHARE
    return share if gap is None else max(share, min(of_gap * gap, SOLVE_SHARE))


def _rounding(K: np.ndarray, beta: np.ndarray) -> float:
    """Return an estimate of the change of u = K beta by rounding K to float32."""
    if not beta.any():
        return 0.0
    norms = np.maximum(K.diagonal().astype(np.float64), 0.0)
    largest = float(norms.max(initial=0.0))
    # The squares of large coefficients overflow. A power of two changes no digit.
    scale = 2.0 ** (math.frexp(float(np.abs(beta).max()))[1] - 1)
    beta = beta / scale
    return FLOAT32_UNIT * math.sqrt(largest * float((norms * beta) @ beta)) * scale


def _dual_part(task: Task, h: np.ndarray, beta: np.ndarray, products: np.ndarray) -> float:
    """Return the part of D that the working set can change. All arrays (m,) float64."""
    return task.linear(h, beta) - float(products @ beta) / 2


def solve(
    K: np.ndarray,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    s: float,
    start: np.ndarray | None = None,
    tolerance: float = 5e-4,
    epsilon: float = 0.0,
    b: float | None = None,
    partly: bool = False,
) -> Solution:
    """Solve the quadratic program of subproblem_qp.py to `tolerance`, the largest difference of two
    gradients.

    If b is given, the difference may reach twice the tolerance. With class weights that differ
    greatly the result may be only a better point than start, see by_windows.

    K : (m, m) float32, C-contiguous, symmetric; need not be positive semidefinite, as in LIBSVM.
    h, lower, upper : (m,) float64; with epsilon lower = -upper.
    s: the sum, from sum lower to sum upper.
    start : (m,) float64, a feasible point; None: LIBSVM's own start.
    b: the offset of the start, if known. With class weights, by_windows then comes first.
    partly: whether a later round may complete the solution. With class weights, coefficients may
        then end inside of wide boxes before they are optimal, see by_windows. With epsilon, few
        rows (TURNED_SHARE) may stay at 0 although the other sign would suit them.
    An error while LIBSVM still runs, such as an interruption, does not release its memory.
    Raises ValueError if no feasible beta has the sum s.
    """
    h = np.ascontiguousarray(h, np.float64)
    bounded = only_point(lower, upper, s)
    if bounded is not None:
        return Solution(bounded, True, 0)
    task = BoxQP(K, h, lower, upper, s, lower, tolerance)
    if s == 0 and not epsilon and _is_svc(task, start) and task.has_two_boxes:
        return _svc(task)
    own = start is not None and not start.any() and np.array_equal(lower, -upper)
    if s == 0 and own and task.has_one_box:
        return _svr(task, epsilon)
    task = replace(task, start=task.finished(lower) if start is None else start)
    if epsilon:
        if b is None:
            b = sum(max_rise_and_min_fall(task, task.start, -task.gradient(task.start))) / 2
        return by_signs(task, epsilon, b, partly)
    if task.has_one_box or not task.has_two_boxes:
        return any_boxes(task) if b is None else any_boxes(task, MAX_SOLVES_OF_ROUND)
    if b is None and not needs_many_copies(task):
        return two_boxes(task)
    return by_windows(task, b, partly)


def _is_svc(task: BoxQP, start: np.ndarray | None) -> bool:
    """Return whether this is LIBSVM's own C-SVC: no other coefficients, and a start at 0."""
    y = np.where(task.upper > 0, 1.0, -1.0)
    return (start is None or not start.any()) and np.array_equal(task.h, y)


def _svc(task: BoxQP) -> Solution:
    """Solve LIBSVM's own C-SVC from 0; it reads only the rows whose coefficients it changes."""
    y = task.h
    order = np.argsort(-y, kind="stable")
    layout = task.layout(order)
    bounds = float(task.upper.max()), float(-task.lower.min())
    found = c_svc(layout, np.arange(len(y)), y[order], bounds, task.tolerance)
    layout.close()
    beta = np.empty(len(y))
    beta[order] = y[order] * found.alpha
    return Solution(task.finished(beta, 0.0), found.ended, found.iterations)


def _svr(task: BoxQP, epsilon: float) -> Solution:
    """Solve LIBSVM's own epsilon-SVR from 0."""
    m = len(task.h)
    check_sums(m * float(np.abs(task.K.diagonal()).max()))
    layout = task.layout(np.arange(m))
    C = float(task.upper[0])
    found = epsilon_svr(layout, np.arange(m), task.h, C, epsilon, task.tolerance)
    layout.close()
    return Solution(task.finished(found.alpha, 0.0), found.ended, found.iterations)


def uses_precomputed_values(rows: int, problem: Problem, frozen: bool) -> bool:
    """Return whether LIBSVM gets precomputed kernel values; frozen: see svmlearn."""
    return (
        rows <= MAX_GRAM_ROWS
        or frozen
        or problem.absolute_sum > 0
        or problem.kernel == "precomputed"
        or problem.weighted
    )


def memory_of(
    rows: int, nonzeros: float, problem: Problem, frozen: bool, allowed: float = math.inf
) -> int:
    """Return the number of bytes that a subproblem needs at most.

    rows: its number of rows; nonzeros: mean number in a row; frozen: see svmlearn. Raises
    ParameterError if kernel values of more than MAX_GRAM_ROWS rows need more than `allowed` bytes;
    up to MAX_GRAM_ROWS rows are always allowed.
    """
    if uses_precomputed_values(rows, problem, frozen):
        # Values in K, in the layout, and in LIBSVM's cache. The rows of svr that get a second
        # variable are too few to count.
        variables = 2 * rows if problem.task == "nu-svr" else rows
        values = 4 * rows**2 + 12 * variables**2
        require(
            rows <= MAX_GRAM_ROWS or values <= allowed,
            f"kernel values of a working set of {rows} rows take {format_size(values)}, "
            f"--memory is {format_size(allowed)}: more memory, or fewer rows",
        )
        return values
    columns = rows if problem.task == "svr" else 2 * rows
    cache = min(problem.kernel_cache * MEGABYTE, 4 * rows * columns)
    return int(rows * libsvm.NODE_BYTES * (nonzeros + 1) + cache)
