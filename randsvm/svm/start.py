"""Where a run begins: the first step from beta = 0.

Knows nothing of files or models.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from randsvm.data.dataset import random_subset
from randsvm.data.points import Points
from randsvm.data.sampling import Draws
from randsvm.svm import libsvm
from randsvm.svm.projection import outermost
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.subproblem_qp import solve, solve_two_sums
from randsvm.svm.working_set import Choice, WorkingSet

# See least_norm.
NOTHING = 1e-8


def least_norm(scan: Scan) -> float:
    """|w|^2 of nu-SVC below which nothing but rounding separates the classes: this share of what
    it would be were all coefficients on rows that are one spread apart."""
    K = scan.gram(scan.audit).astype(np.float64)
    return NOTHING * scan.task.size**2 * float(K.diagonal().mean() - K.mean())


def cold_start(scan: Scan, choice: Choice, rng: Draws) -> tuple[Step, WorkingSet]:
    """KBH07's S: a random subset of r rows, solved beside nothing else."""
    S = WorkingSet.of(random_subset(scan.D, choice.r, rng), scan.D.n)
    if scan.task.total or scan.task.size:
        return _start_with_sums(scan, S), S
    step = svmlearn(scan.points(S.rows), scan.problem, scan.gram, S.whole)
    return step, S


def resumed(scan: Scan, choice: Choice, rng: Draws) -> tuple[Step, WorkingSet]:
    """A run that goes on from where the scan stands."""
    nothing = scan.points(np.empty(0, np.int64))
    return Step(nothing, np.empty(0)), WorkingSet.of(nothing.rows, scan.D.n)


def _start_with_sums(scan: Scan, S: WorkingSet) -> Step:
    """Coefficients with the sums that the task asks for: the solution over all rows, or, of a
    subset S, the rows that lie furthest out by its own solution are at their bounds."""
    points, task = scan.points(S.rows), scan.task
    alone = _alone(scan, points)
    if S.whole:
        return Step(replace(points, beta=np.zeros(len(points))), alone)
    at = np.flatnonzero(alone)
    scan.advance(points.X[at], alone[at], fresh=True)
    y, u = scan.D.labels(), scan.u
    beta = outermost(task, y, u, np.zeros(len(u)))
    rows = np.flatnonzero(beta)
    chosen = scan.points(rows)
    return Step(replace(chosen, beta=np.zeros(len(rows))), beta[rows])


def _alone(scan: Scan, points: Points) -> np.ndarray:
    """The coefficients of some rows beside nothing else, with their share of the sums."""
    task, y, m = scan.task, points.y, len(points)
    lower, upper = task.box(y)
    call = libsvm.in_daemon_thread
    K, h = scan.gram(points, centred=not task.total), y - task.epsilon * np.sign(y) * task.one_sided
    if not task.size:
        return solve(K, h, lower, upper, task.total * m / scan.D.n, call=call).beta
    share = min(task.size / 2 * m / scan.D.n, float(upper.sum()), float(-lower.sum()))
    return solve_two_sums(K, h, lower, upper, (share, share), np.zeros(m), call=call).beta
