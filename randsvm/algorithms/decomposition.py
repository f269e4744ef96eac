"""Decomposition of kernel machines: the steps of a round, and Osuna's algorithms.

Decomposition as in Osuna, Freund, Girosi, AI Memo 1602, 1997, in general form: an algorithm solves
the subproblem of a working set of rows while all other coefficients stay frozen, scans D for
violators of the KKT conditions, and chooses the next working set. Each algorithm is a generator of
rounds, which the caller closes to end the run. This module does not know files, folds or events.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from randsvm.data.dataset import random_subset
from randsvm.data.points import Points
from randsvm.data.sampling import Draws
from randsvm.svm.projection import clipped, with_sums_by_violation
from randsvm.svm.running_values import SavedSolution
from randsvm.svm.scan import Scan, ScanResult
from randsvm.svm.solution import KernelSolution, Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.subproblem_qp import Subproblem
from randsvm.svm.tasks import SUM_ROUNDING
from randsvm.svm.working_set import (
    KEEP_FROM_ROWS,
    KEEP_NONE,
    Collector,
    Order,
    WorkingSet,
    select,
)

# The solutions SV of an algorithm and their violators V, one pair after each scan.
Scans = Generator[tuple[KernelSolution, ScanResult], None, None]
# Returns the first step, and the working set that it belongs to.
Start = Callable[[Scan], tuple[Step, WorkingSet]]


@dataclass
class Decomposition:
    """One run over D.

    rng: numbered random draws. tolerance: returns the tolerance of the next scan.
    """

    scan: Scan
    rng: Draws
    tolerance: Callable[[], float]

    def random_subset(self, r: int) -> WorkingSet:
        """Return a random subset of D of r rows."""
        return WorkingSet.of(random_subset(self.scan.D, r, self.rng))

    def first_step(self, start: Start | None, r: int) -> tuple[Step, WorkingSet]:
        """Return the step that `start` makes, and its working set of about r rows.

        None: a step to coefficients with prescribed sums, or `svmlearn` over a random subset.
        """
        if start is not None:
            return start(self.scan)
        if self.scan.task.coefficient_sum or self.scan.task.absolute_sum:
            return self._step_to_sums(r)
        S = self.random_subset(r)
        return svmlearn(self.scan, self.scan.points(S.rows)), S

    def _step_to_sums(self, r: int) -> tuple[Step, WorkingSet]:
        """Return a first step to coefficients with the sums that a one-class or nu task prescribes.

        It solves a random subset S of r rows. Then the rows of D furthest outside of the solution
        over S go to their bounds.
        """
        scan, S = self.scan, self.random_subset(r)
        points, task = scan.points(S.rows), scan.task
        beta_of_S = _solve_with_sums(scan, points)
        at = np.flatnonzero(beta_of_S)
        scan.advance(points.X[at], beta_of_S[at])
        y, u = scan.labels, scan.u
        beta = with_sums_by_violation(task, y, u, np.zeros(len(u)), scan.weights)
        rows = np.flatnonzero(beta)
        chosen = scan.points(rows)
        return Step(replace(chosen, beta=np.zeros(len(rows))), beta[rows]), S

    def violators(self, step: Step, order: Order, r: int) -> tuple[KernelSolution, ScanResult]:
        """Make the step, scan D, and return the solution SV with its violators V.
        order: which r candidates of each side V holds."""
        return self.scan.after(step, Collector(r, self.rng.next(), order), self.tolerance())


# Where LIBSVM solves all rows at once, all rounds after the first together may take this number of
# iterations more than the first. Measured: a linear kernel on unscaled rows takes 14 millions.
MAX_FURTHER_ITERATIONS = 10_000_000


def rounds_of_whole(
    whole: Scan,
    tolerance: Callable[[], float],
    progress: Callable[[], bool],
    start: Start | None,
    gap: float | None,
) -> Scans:
    """Solve all rows at once, each time from the solution before.

    A round without progress is the last: the next would repeat it. tolerance: see Decomposition.
    progress: returns whether the last round made progress. start: makes the first step; None:
    LIBSVM does. gap: see svmlearn.
    """
    trained = np.arange(whole.D.n) if whole.weights is None else np.flatnonzero(whole.weights)
    solve_all = partial(svmlearn, whole, is_whole=True, gap=gap)
    task = whole.task
    if start is not None:
        step = start(whole)[0]
    elif task.coefficient_sum or task.absolute_sum:
        points = whole.points(trained)
        step = Step(points, _solve_with_sums(whole, points))
    else:
        step = solve_all(whole.points(trained))
    left = MAX_FURTHER_ITERATIONS + step.iterations
    while True:
        SV, V = whole.after(step, KEEP_NONE, tolerance())
        yield SV, V
        if not progress() or (V.count and left < 0):
            return
        step = solve_all(whole.points(trained), SV.b)
        left -= step.iterations


def unchanged(scan: Scan) -> tuple[Step, WorkingSet]:
    """Return a step that changes no coefficient, and an empty working set.

    As a `Start` it continues from the current coefficients of the scan.
    """
    nothing = scan.points(np.empty(0, np.int64))
    return Step(nothing, np.empty(0)), WorkingSet.of(nothing.rows)


def in_float64(scan: Scan) -> tuple[Step, WorkingSet]:
    """Return what `unchanged` returns, after u is computed in float64."""
    scan.refine()
    return unchanged(scan)


def _solve_with_sums(scan: Scan, points: Points) -> np.ndarray:
    """Return the coefficients of an SVM over these m rows alone, (m,) float64, with their share of
    the prescribed sums, by weight."""
    task, y, m = scan.task, points.y, len(points)
    lower, upper = task.box(y, points.weights)
    weight = float(m) if points.weights is None else float(points.weights.sum())
    share = weight / scan.total_weight
    K = scan.gram(points, centred=not task.coefficient_sum)
    # h of svm/subproblem_qp.py with g = 0: y, or 0 for nu-SVC, whose epsilon is 1.
    h = y - task.epsilon * np.sign(y) * task.one_sided
    half = min(task.absolute_sum / 2 * share, float(upper.sum()), float(-lower.sum()))
    sums = (half, half) if task.absolute_sum else (task.coefficient_sum * share,)
    return Subproblem.of(K, h, lower, upper, sums, np.zeros(m)).solve().beta


def start_of_fold(solution: SavedSolution) -> Start:
    """Return the start of a fold, or of another C, from a solution for all rows of a subtask.

    The coefficients of rows that the fold holds out, of weight 0, become 0, and other rows take
    their place.
    """

    def start(scan: Scan) -> tuple[Step, WorkingSet]:
        saved = solution.times(solution.best_factor(scan.problem, scan.labels))
        if saved.float64:
            scan.refine()
        is_precise_enough = saved.float64 or scan.kernel_layout.dtype is np.float32
        scan.continue_from(saved.beta, saved.sums if is_precise_enough else None, saved.added)
        return feasible_step(scan, float(np.abs(saved.beta).sum()))

    return start


def feasible_step(scan: Scan, absolute_sum: float = 0.0) -> tuple[Step, WorkingSet]:
    """Return a step from the current coefficients to feasible ones, and its working set.

    The set holds the rows that the step leaves unbounded. absolute_sum: the least sum of all
    |beta|, unless the task prescribes one: the rows with the largest violations take it over from
    rows whose coefficients become 0.
    """
    task, y, weights = scan.task, scan.labels, scan.weights
    lower, upper = task.box(y, weights)
    beta = clipped(scan.beta, lower, upper)
    for side in (beta > 0, beta < 0) if task.absolute_sum else ():
        beta[side] *= min(1.0, task.absolute_sum / 2 / (abs(beta[side].sum()) or 1.0))
    # First to the least sum of all |beta|, then to the sums that the task prescribes.
    if not task.coefficient_sum:
        task = replace(task, absolute_sum=task.absolute_sum or absolute_sum)
    if abs(beta).sum() < (1 - SUM_ROUNDING) * (task.coefficient_sum or task.absolute_sum):
        beta = with_sums_by_violation(task, y, scan.u, beta, weights)
    beta = with_sums_by_violation(scan.task, y, scan.u, beta, weights)
    rows = np.flatnonzero((beta != 0) | (scan.beta != 0))
    free = np.flatnonzero((beta != 0) & (beta > lower) & (beta < upper))
    return Step(scan.points(rows), beta[rows]), WorkingSet(free, free, pairs=True)


# fmt: off
def osuna(
    run: Decomposition, size: int, swap: int | None, order: Order, start: Start | None = None
) -> Scans:
    """Solve B and swap rows of it for violators, until the caller ends the rounds.

    size: rows of B. swap: rows that leave B in each round, by default half of them. order: those
    that enter are the first ones in file order (OFG97), or have the smallest y f(x) (MZ).
    """
    swap = max(2, min(swap or size - size // 2, size))       # a single row is no pair
    step, B = run.first_step(start, size)                    # solve B = |B| rows of D
    while True:                                              # while |V| > 0
        SV, V = run.violators(step, order, size)             #     V = {j not in B: j violates KKT}
        yield SV, V
        stay = B.latest_first[: size - swap if size >= KEEP_FROM_ROWS else 0]
        enter = select(V.sides, size - len(stay), stay)
        stay = select((B.latest_first,), size - len(enter), enter)
        B = WorkingSet.of(enter, stay)                       #     replace rows of B by rows of V
        points = run.scan.points(B.rows)                     #     solve B, all others frozen
        step = svmlearn(run.scan, points, SV.b, frozen=True)
# fmt: on
