"""Solve one subproblem: `svmlearn` receives the rows of a working set and returns a step.

All coefficients outside the working set keep their values (OFG97's decomposition in general form).
`svmlearn` forms the quadratic program, and subproblem_qp.py solves it.
"""

from __future__ import annotations

import math
import time

import numpy as np

from randsvm.arrays import FLOAT32_UNIT
from randsvm.data.points import Points
from randsvm.kernels.expansion import centred_gram
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.option import MEGABYTE, format_size, require
from randsvm.parameters.svm import Problem
from randsvm.svm import libsvm
from randsvm.svm.kernel_layout import MAX_MATRIX_ROWS
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Step
from randsvm.svm.subproblem_qp import KernelValues, Solution, Subproblem, product, solve_from_zero
from randsvm.svm.tasks import task_of

# The tolerance of a solve is this share of the largest KKT violation of its rows; a smaller
# tolerance gains nothing that the next round keeps. So tolerances decrease with the violations of
# a run. Measured: covtype, twonorm and checkerboard change as many coefficients with 0.03 as with
# 0.1, and a quarter more with 0.3. FINAL_SOLVE_SHARE applies if a solve of all rows is to be the
# last. Measured: with 26 classes (C = 4), 47 of the 325 pairs miss a gap of 0.1% with 2e-4 and none
# with 1e-4.
# Losses count C times in P. With a narrow RBF kernel many rows have coefficients of about 1, below
# C, so that the tolerance that a gap needs is proportional to 1 / C: where C is above
# FINAL_SOLVE_COST, the share falls as 1 / C does, down to MIN_FINAL_SHARE. Measured: with 26
# classes, C = 10 and 7,477 support vectors of 15,000 rows, all 325 pairs miss a gap of 0.1% with
# 1e-4 and none with 5e-5.
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
# If the rounding of float32 kernel values changes u by more than SOLVE_SHARE of the violation, the
# values are centred, and their diagonal increases by the share DIAGONAL_INCREASE. Without it the
# rounded kernel is indefinite, and LIBSVM makes millions of useless steps. D gains at least as much
# as the objective with the larger diagonal. Measured: with 16 or 32 units of float32 a run reaches
# a gap of 0.1% in equally many steps; with 8 or 64 it needs half as many again.
DIAGONAL_INCREASE = 2.0**-20


def svmlearn(
    scan: Scan,
    points: Points,
    b: float | None = None,
    *,
    frozen: bool = False,
    is_whole: bool = False,
    gap: float | None = None,
) -> Step:
    """Solve the SVM over some points; all other coefficients stay fixed. The scan does not change.

    Threads may solve different points at the same time, except for a precomputed kernel.

    b: the offset of the solution so far; None: there is no solution yet.
    frozen: whether there are frozen support vectors, outside of the points. If not, LIBSVM solves
        more than MAX_MATRIX_ROWS rows from 0 with its own kernel, if it has that kernel.
    is_whole: whether these are all rows of D, so that no solve is expected to follow.
    gap: the gap that ends the training, if this is its only problem; None: it is one of several, or
        no gap ends it.
    """
    problem, slack, began = scan.problem, scan.slack, time.perf_counter()
    task, y, u, beta = task_of(problem), points.y, points.u, points.beta
    assert u is not None and beta is not None
    has_both_classes = problem.task != "svc" or np.ptp(y) > 0
    if has_both_classes and not uses_precomputed_values(len(points), problem, frozen):
        libsvm.check_values(points, problem)
        own = libsvm.train_with_libsvm_kernel(points, problem, problem.tolerance / 2)
        return Step(points, own.beta, time.perf_counter() - began, own.ended, own.iterations)
    movable = task.without_absolute_sum() if slack else task
    violation = movable.violation(y, u, beta, points.weights)
    if violation <= 0:
        return Step(points, beta)

    values, (lower, upper) = scan.shared_gram(points), task.box(y, points.weights)
    diagonal = values.K.diagonal()[values.at].astype(np.float64)
    from_zero = not (beta.any() or u.any())
    bound = float(max(upper.max(), -lower.min()))
    final_share = final_solve_share(problem, gap, bound, violation, float(np.ptp(y)))
    share = final_share if is_whole else SOLVE_SHARE
    # Centred values serve all tasks, as a step changes no sum of coefficients, and round least. A
    # start from zero takes them if the rounding of the largest possible beta exceeds the violation,
    # any other start if the rounding of its beta exceeds a share of it.
    if not beta.any() and _rounding(diagonal, np.maximum(upper, -lower)) > violation:
        values = _centred(problem, points, values)
    # If there are more rows than features, the rounded values belong to no linear kernel.
    is_singular = problem.kernel == "linear" and scan.D.d < len(points)
    # Then, and in nu tasks, the rounding has to stay below the tolerance of this solve.
    compared = share if is_singular or task.absolute_sum else SOLVE_SHARE
    if _rounding(diagonal, beta) > compared * violation:
        values, share = _centred(problem, points, values), SOLVE_SHARE
        values.K.flat[:: len(points) + 1] *= np.float32(1 + DIAGONAL_INCREASE)

    # LIBSVM's own problems have one C for each class, and one for a regression.
    has_one_weight = points.weights is None or bool(np.ptp(points.weights) == 0)
    if from_zero and problem.task in ("svc", "svr") and has_one_weight:
        floor = GRADIENT_ROUNDING * float(np.abs(y).max())
        epsilon = None if task.one_sided else task.epsilon
        tolerance = max(share * violation, floor)
        found = solve_from_zero(values, y, lower, upper, tolerance, epsilon)
    else:
        K = values.submatrix
        products = product(K, beta)
        h = y - (u - products)
        # LIBSVM's sums cannot distinguish two gradients that differ by less than this.
        floor = GRADIENT_ROUNDING * float(np.abs(h).max() + np.abs(products).max())
        tolerance, partly = max(share * violation, floor), not is_whole and b is not None
        if violation <= floor:
            found = Solution(beta, True, 0)
        elif task.absolute_sum:
            sums = _two_sums(beta, upper, slack)
            found = Subproblem.of(K, h, lower, upper, sums, beta).solve(tolerance, partly)
        else:
            s = float(beta.sum())
            subproblem = Subproblem.of(K, h, lower, upper, (s,), beta, task.epsilon)
            found = subproblem.solve(tolerance, partly, b)
    return Step(points, found.beta, time.perf_counter() - began, found.ended, found.iterations)


def _two_sums(beta: np.ndarray, upper: np.ndarray, slack: float) -> tuple[float, float]:
    """Return the sums of |beta| above and below 0 that a nu task prescribes to a working set."""
    above, below = float(np.maximum(beta, 0).sum()), float(-np.minimum(beta, 0).sum())
    if not slack:
        return above, below
    # Together the sums are at most the sum of the bounds. Then every beta is still possible: both
    # variables of a row, alpha and alpha*, may grow by the same amount.
    more = min(slack, float(upper.sum()) - above - below) / 2
    return above + more, below + more


def final_solve_share(
    problem: Problem, gap: float | None, bound: float, violation: float, at_zero: float
) -> float:
    """Return the share of the violation that the last solve of all rows has as its tolerance.

    gap: see svmlearn. bound: the largest bound of a coefficient. at_zero: the violation at 0.
    """
    # What follows is for values of at most 1, as those of an RBF kernel. Where values are large, a
    # tenth of a violation may be far from the gap.
    if problem.kernel != "rbf":
        return FINAL_SOLVE_SHARE
    share = FINAL_SOLVE_SHARE * FINAL_SOLVE_COST / bound
    share = max(MIN_FINAL_SHARE, min(share, FINAL_SOLVE_SHARE))
    of_gap = REGRESSION_GAP_SHARE if problem.prediction_type == "svr" else GAP_SHARE
    share = share if gap is None else max(share, min(of_gap * gap, SOLVE_SHARE))
    if problem.coefficient_sum or problem.absolute_sum:
        return share
    # A solve that starts near the optimum needs no smaller tolerance than one from beta = 0.
    return min(SOLVE_SHARE, share * max(violation, at_zero) / violation)


def _centred(problem: Problem, points: Points, values: KernelValues) -> KernelValues:
    """Return the centred values of points, in a matrix of their own."""
    K = centred_gram(Kernel.of(problem), points.X, values.submatrix)
    return KernelValues(K, np.arange(len(K)))


def _rounding(diagonal: np.ndarray, beta: np.ndarray) -> float:
    """Return an estimate of the change of u = K beta by rounding K to float32. diagonal: of K."""
    if not beta.any():
        return 0.0
    norms = np.maximum(diagonal, 0.0)
    largest = float(norms.max(initial=0.0))
    # The squares of large coefficients overflow. A power of two changes no digit.
    scale = 2.0 ** (math.frexp(float(np.abs(beta).max()))[1] - 1)
    beta = beta / scale
    return FLOAT32_UNIT * math.sqrt(largest * float((norms * beta) @ beta)) * scale


def uses_precomputed_values(rows: int, problem: Problem, frozen: bool) -> bool:
    """Return whether LIBSVM gets precomputed kernel values; frozen: see svmlearn."""
    return (
        rows <= MAX_MATRIX_ROWS
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
    ParameterError if kernel values of more than MAX_MATRIX_ROWS rows need more than `allowed`
    bytes; fewer rows are always allowed.
    """
    if uses_precomputed_values(rows, problem, frozen):
        # Values in K, in the layout, and in LIBSVM's cache. Where boxes differ, most rows may have
        # two moves. Elsewhere the rows with a second move are too few to count.
        moves = 2 * rows if problem.task == "nu-svr" or problem.weighted else rows
        values = 4 * rows**2 + 12 * moves**2
        require(
            rows <= MAX_MATRIX_ROWS or values <= allowed,
            f"kernel values of a working set of {rows} rows take {format_size(values)}, "
            f"--memory is {format_size(allowed)}: more memory, or fewer rows",
        )
        return values
    columns = rows if problem.task == "svr" else 2 * rows
    cache = min(problem.kernel_cache * MEGABYTE, 4 * rows * columns)
    return int(rows * libsvm.NODE_BYTES * (nonzeros + 1) + cache)
