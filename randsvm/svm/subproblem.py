"""Solve one subproblem: `svmlearn` receives the rows of a working set and returns a step.

All coefficients outside the working set keep their values (OFG97's decomposition in general form).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from randsvm.data.points import Points
from randsvm.events import Notice, emit_once
from randsvm.kernels.gram import centred_gram
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.option import MEGABYTE, format_size, require
from randsvm.parameters.svm import Problem
from randsvm.svm import libsvm
from randsvm.svm.solution import Step
from randsvm.svm.subproblem_qp import Solution, product, solve, solve_two_sums
from randsvm.svm.tasks import Task, task_of

# LIBSVM gets precomputed kernel values for at most this many rows (12 bytes a value in all).
GRAM_MOST = 4096
# The tolerance of a solve is this share of the largest KKT violation of its rows; a smaller
# tolerance gains nothing that the next round keeps. So tolerances decrease with the violations of
# a run. Measured: covtype, twonorm and checkerboard change as many coefficients with 0.03 as with
# 0.1, and a quarter more with 0.3. FINAL_SOLVE_SHARE applies if there is no next round. Measured:
# with 26 classes (C = 4), 47 of the 325 pairs miss a gap of 0.1% with 2e-4 and none with 1e-4.
SOLVE_SHARE, FINAL_SOLVE_SHARE = 0.1, 1e-4
# Rounding of gradients in LIBSVM, relative to their largest terms.
GRADIENT_ROUNDING = 1e-12
# The largest decrease of the dual objective in one solve, relative to its parts. A solve that
# loses more is repeated with a tenth of the tolerance, up to MAX_SOLVES solves.
MAX_DUAL_LOSS = 1e-12
MAX_SOLVES = 3

# If the rounding of float32 kernel values changes u by more than SOLVE_SHARE of the violation, the
# values are centred, and their diagonal increases by the share DIAGONAL_INCREASE. Without it the
# rounded kernel is indefinite, and LIBSVM makes millions of useless steps. D gains at least as much
# as the objective with the larger diagonal. Measured: with 16 or 32 units of float32 a run reaches
# a gap of 0.1% in equally many steps; with 8 or 64 it needs half as many again.
FLOAT32_UNIT, DIAGONAL_INCREASE = 2.0**-24, 2.0**-20

# K of every pair of some points, (m, m) float32.
Gram = Callable[[Points], np.ndarray]

NOT_SOLVED = "LIBSVM reached its limit of iterations, a subproblem is not solved to the tolerance: "


def svmlearn(
    points: Points,
    problem: Problem,
    gram: Gram,
    whole: bool,
    slack: float = 0.0,
    *,
    frozen: bool = False,
    b: float | None = None,
) -> Step:
    """Solve the SVM over `points`, which hold u and beta; all other coefficients stay fixed.

    whole: whether these are all rows of D, so that there is no next round.
    slack: see ScanState.
    frozen: whether coefficients of other rows may differ from 0. If not, LIBSVM solves more than
        GRAM_MOST rows from 0 with its own kernel, if it has that kernel.
    b: the offset of the solution so far; None: there is no solution yet.
    """
    began = time.perf_counter()
    if not laid_out(len(points), problem, frozen):
        libsvm.check_values(points, problem)
        own = libsvm.whole(points, problem, problem.tolerance / 2)
        return _step(points, Solution(own.alpha, own.ended, own.iterations), problem, began)
    task, y, u, beta = task_of(problem), points.y, points.u, points.beta
    assert u is not None and beta is not None
    unchanged = Solution(beta, True, 0)
    violation = task.short_of(slack).violation(y, u, beta, points.weights)
    if violation <= 0:
        return _step(points, unchanged, problem, began)

    K, (lower, upper) = gram(points), task.box(y, points.weights)
    share = FINAL_SOLVE_SHARE if whole else SOLVE_SHARE
    # Rounding by coefficients of any size is smallest in centred values.
    if (
        not task.absolute_sum
        and not beta.any()
        and _rounding(K, np.maximum(upper, -lower)) > violation
    ):
        K = centred_gram(Kernel.of(problem), points.X, K)
    # If there are more rows than features, the rounded values belong to no linear kernel.
    singular = problem.kernel == "linear" and points.X.shape[1] < len(points)
    largest = (share if singular else SOLVE_SHARE) * violation
    rounding_shows = not task.absolute_sum and _rounding(K, beta) > largest
    if rounding_shows:
        K, share = centred_gram(Kernel.of(problem), points.X, K), SOLVE_SHARE
        K.flat[:: len(K) + 1] *= np.float32(1 + DIAGONAL_INCREASE)

    products = product(K, beta)
    h = y - (u - products)
    # LIBSVM's sums cannot distinguish two gradients that differ by less than this.
    floor = GRADIENT_ROUNDING * float(np.abs(h).max() + np.abs(products).max())
    if violation <= floor:
        return _step(points, unchanged, problem, began)
    tolerance = max(share * violation, floor)
    s = float(beta.sum())
    # Rows of a regression may wait for the next round, where there is one.
    partly = not whole if task.epsilon else rounding_shows
    before, iterations, best = _dual_part(task, h, beta, products), 0, beta
    for _ in range(MAX_SOLVES):
        if task.absolute_sum:
            sums = _two_sums(beta, upper, slack)
            found = solve_two_sums(K, h, lower, upper, sums, beta, tolerance)
        else:
            found = solve(K, h, lower, upper, s, beta, tolerance, task.epsilon, b, partly)
        iterations += found.iterations
        after = _dual_part(task, h, found.beta, product(K, found.beta))
        # With rounded values D may decrease by this in a solve to this tolerance; no tighter bound
        # is known.
        lost = tolerance * float(np.abs(found.beta - beta).sum()) if rounding_shows else 0.0
        if after >= before - MAX_DUAL_LOSS * (abs(before) + abs(after)) - lost:
            best = found.beta
            break
        if not found.ended:
            break
        tolerance /= 10
    return _step(points, Solution(best, found.ended, iterations), problem, began)


def _step(points: Points, found: Solution, problem: Problem, began: float) -> Step:
    """Return the step to a solution; emit a notice if LIBSVM reached its limit of iterations."""
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


def _rounding(K: np.ndarray, beta: np.ndarray) -> float:
    """Return an estimate of the change of u = K beta by rounding K to float32."""
    norms = np.maximum(K.diagonal().astype(np.float64), 0.0)
    largest = float(norms.max(initial=0.0))
    return FLOAT32_UNIT * math.sqrt(largest * float((norms * beta) @ beta))


def _dual_part(task: Task, h: np.ndarray, beta: np.ndarray, products: np.ndarray) -> float:
    """Return the part of D that the working set can change. All arrays (m,) float64."""
    return task.linear(h, beta) - float(products @ beta) / 2


def laid_out(rows: int, problem: Problem, frozen: bool) -> bool:
    """Return whether LIBSVM gets precomputed kernel values; frozen: see svmlearn."""
    return (
        rows <= GRAM_MOST
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
    ParameterError if kernel values of more than GRAM_MOST rows need more than `allowed` bytes; up
    to GRAM_MOST rows are always allowed.
    """
    if laid_out(rows, problem, frozen):
        # Values in K, in the layout, and in LIBSVM's cache. Few rows of svr have two variables.
        variables = 2 * rows if problem.task == "nu-svr" else rows
        values = 4 * rows**2 + 12 * variables**2
        require(
            rows <= GRAM_MOST or values <= allowed,
            f"kernel values of a working set of {rows} rows take {format_size(values)}, "
            f"--memory is {format_size(allowed)}: more memory, or fewer rows",
        )
        return values
    columns = rows if problem.task == "svr" else 2 * rows
    cache = min(problem.kernel_cache * MEGABYTE, 4 * rows * columns)
    return int(rows * libsvm.NODE_BYTES * (nonzeros + 1) + cache)
