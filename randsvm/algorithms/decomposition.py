"""The steps that all algorithms on kernels share.

Decomposition as in Osuna, Freund, Girosi, AI Memo 1602, 1997, in general form: an algorithm solves
the subproblem of a working set of rows while all other coefficients stay frozen, scans D for
violators of the KKT conditions, and chooses the next working set. randsvm.py and osuna.py show the
algorithms. Each is a generator of rounds; the caller records them, and closes it at the end of the
run. Nothing here depends on files, folds or progress bars.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np

from randsvm.data.dataset import random_subset
from randsvm.data.points import Points
from randsvm.data.sampling import Draws
from randsvm.svm.projection import fill_sums_by_violation
from randsvm.svm.scan import Scan, Violators
from randsvm.svm.solution import KernelSolution, Step
from randsvm.svm.subproblem_qp import one_sum, two_sums
from randsvm.svm.working_set import Collector, LargestViolation, Order, WorkingSet

# The solutions SV of an algorithm and their violators V, one pair after each scan.
Rounds = Generator[tuple[KernelSolution, Violators], None, None]
# Returns the first step for working sets of r rows, and the working set that it belongs to.
Start = Callable[[Scan, int], tuple[Step, WorkingSet]]


@dataclass
class Decomposition:
    """One run over D. rng: numbered random draws. tolerance: of the KKT conditions in the next
    scan; the caller may change it between two rounds."""

    scan: Scan
    rng: Draws
    tolerance: float

    def random_subset(self, r: int) -> WorkingSet:
        """Return a random subset of D of r rows."""
        D = self.scan.D
        return WorkingSet.of(random_subset(D, r, self.rng), D.n)

    def first_start(self, start: Start | None) -> Start | None:
        """Return what makes the first step: `start`, or what coefficients with prescribed sums
        need; None: `svmlearn` over a random subset."""
        sums = self.scan.task.coefficient_sum or self.scan.task.absolute_sum
        return self._start_with_sums if sums and start is None else start

    def _start_with_sums(self, scan: Scan, r: int) -> tuple[Step, WorkingSet]:
        """Return a first step to coefficients with the sums that a one-class or nu task prescribes.

        It solves a random subset S of r rows. If S holds all rows of D, that is the solution.
        Otherwise the rows of D furthest outside of the solution over S go to their bounds.
        """
        S = self.random_subset(r)
        points, task = scan.points(S.rows), scan.task
        beta_of_S = _solve_with_sums(scan, points)
        if S.whole:
            return Step(replace(points, beta=np.zeros(len(points))), beta_of_S), S
        at = np.flatnonzero(beta_of_S)
        scan.advance(points.X[at], beta_of_S[at], fresh=True)
        y, u = scan.D.labels(), scan.u
        beta = fill_sums_by_violation(task, y, u, np.zeros(len(u)), scan.weights)
        rows = np.flatnonzero(beta)
        chosen = scan.points(rows)
        return Step(replace(chosen, beta=np.zeros(len(rows))), beta[rows]), S

    def violators(
        self, step: Step, W: WorkingSet, order: Order, r: int
    ) -> tuple[KernelSolution, Violators]:
        """Make the step, which solved W, scan D, and return the solution SV with its violators V.
        order: which r candidates of each side V holds."""
        return self.scan.after(step, self.collector(W, order, r), self.tolerance)

    def collector(self, W: WorkingSet, order: Order, r: int) -> Collector:
        """Return the collector of the next scan; if W holds all rows of D, it keeps no row."""
        draw = self.rng.next()
        return LargestViolation(0, draw) if W.whole else order(r, draw)


def no_step(scan: Scan, r: int) -> tuple[Step, WorkingSet]:
    """Return a step that changes no coefficient, and an empty working set.

    As a `Start` it continues from the current coefficients of the scan.
    """
    nothing = scan.points(np.empty(0, np.int64))
    return Step(nothing, np.empty(0)), WorkingSet.of(nothing.rows, scan.D.n)


def _solve_with_sums(scan: Scan, points: Points) -> np.ndarray:
    """Return the coefficients of an SVM over these m rows alone, (m,) float64, with their share of
    the prescribed sums, by weight."""
    task, y, m = scan.task, points.y, len(points)
    lower, upper = task.box(y, points.weights)
    weight = float(m) if points.weights is None else float(points.weights.sum())
    share = weight / scan.total_weight
    K = scan.gram(points, centred=not task.coefficient_sum)
    h = y - task.epsilon * np.sign(y) * task.one_sided
    if not task.absolute_sum:
        total = task.coefficient_sum * share
        return one_sum(K, h, lower, upper, total, np.clip(0.0, lower, upper)).beta
    half = min(task.absolute_sum / 2 * share, float(upper.sum()), float(-lower.sum()))
    return two_sums(K, h, lower, upper, (half, half), np.zeros(m)).beta
