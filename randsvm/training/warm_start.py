"""A start from another model, e.g. yesterday's: from its coefficients where its rows are found
again, and else from its decision values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randsvm.data.sampling import Draws
from randsvm.parameters.svm import Params
from randsvm.svm.projection import clipped, mended, outermost
from randsvm.svm.scan import Scan, Starter
from randsvm.svm.solution import Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import Choice, WorkingSet
from randsvm.training.multiclass import Subtask
from randsvm.training.old_model import OldModel

# Where fewer of the support vectors are found again, the old decision values say more.
LEAST_FOUND = 0.5


@dataclass(frozen=True)
class WarmStart:
    """A start from another model.

    Its support vectors that are rows of D begin with their old coefficients, in proportion to C,
    made feasible: clipped to the box of today's bounds, and their sum mended.
    """

    old: OldModel

    @staticmethod
    def read(path: str) -> WarmStart:
        """Raises InputError and ModelError."""
        return WarmStart(OldModel.read(path))

    def params(self, params: Params, given: frozenset[str] | None) -> tuple[Params, list[str]]:
        """See OldModel.params."""
        return self.old.params(params, given)

    def on(self, task: Subtask, C: float) -> Starter:
        """The start of a subtask. Raises ModelError when the model has other labels."""
        D = task.D
        old = self.old if task.pair is None else self.old.of_pair(D, *task.pair)
        column, sign = old.orientation(D, task.pair)
        support = np.count_nonzero(old.model.beta[:, column])

        def start(scan: Scan, choice: Choice, rng: Draws) -> tuple[Step, WorkingSet]:
            rows, beta = old.coefficients(D, column, sign, scan.task.one_sided)
            # Old coefficients tell nothing of the sum that a nu task has today.
            if len(rows) >= LEAST_FOUND * support and not scan.task.size:
                step, free = _by_coefficients(scan, rows, beta * self.old.proportion(C))
            else:
                step, free = _by_values(scan, old.values(D, column, sign))
            if choice.every_support_vector:
                return _first_round(scan, choice, step, rng)
            if choice.r >= D.n:
                return step, WorkingSet.of(np.arange(D.n), D.n)
            return step, WorkingSet(free, free, paired=choice.then_pairs)

        return start


def _by_coefficients(scan: Scan, rows: np.ndarray, beta: np.ndarray) -> tuple[Step, np.ndarray]:
    """A feasible step to these coefficients, and the rows that are unbounded by it."""
    task, total = scan.task, scan.task.total
    lower, upper = task.box(scan.D.labels()[rows])
    beta = clipped(beta, lower, upper)
    if total and beta.sum() < total:
        # Novelty detection with more rows than yesterday: others are outliers as well, by u.
        scan.take(Step(scan.points(rows), beta))
        return _outermost(scan, scan.u), rows[:0]
    beta = mended(beta, lower, upper, total)
    return Step(scan.points(rows), beta), rows[(beta > lower) & (beta < upper)]


def _by_values(scan: Scan, f: np.ndarray) -> tuple[Step, np.ndarray]:
    """Rows inside the margin of the old f begin at their bound, as many of them as the sum
    allows, and those furthest inside first."""
    if scan.task.total or scan.task.size:
        return _outermost(scan, f), np.empty(0, np.int64)
    y = scan.D.labels()
    rise, fall = scan.task.slopes(y, f, np.zeros(len(y)))
    inside = np.maximum(rise, -fall)
    rows = np.flatnonzero(inside > scan.problem.tolerance)
    lower, upper = scan.task.box(y[rows])
    beta = np.where(rise[rows] > -fall[rows], upper, lower)
    beta = mended(beta, lower, upper, 0.0, inside[rows])
    rows, beta = rows[beta != 0], beta[beta != 0]
    near = np.flatnonzero(np.abs(inside) <= 2 * scan.problem.tolerance)
    return Step(scan.points(rows), beta), near


def _outermost(scan: Scan, u: np.ndarray) -> Step:
    """The step that fills up the sums that a task asks for with the rows furthest out by u."""
    before = scan.beta
    beta = outermost(scan.task, scan.D.labels(), u, before)
    changed = np.flatnonzero(beta != before)
    return Step(scan.points(changed), beta[changed])


def _first_round(scan: Scan, choice: Choice, step: Step, rng: Draws) -> tuple[Step, WorkingSet]:
    """KBH07's rule may end a run after its first step, which therefore solves something."""
    W = WorkingSet.of(step.points.rows, scan.D.n)
    SV, V = scan.after(step, choice.collector(W, rng.next()))
    W = choice.next(W, SV, V.candidates)
    return svmlearn(scan.points(W.rows), scan.problem, scan.gram, W.whole, scan.slack), W
