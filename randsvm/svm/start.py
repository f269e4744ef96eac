"""Where a run begins: the first step from beta = 0.

Knows nothing of files or models.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from randsvm.data.dataset import random_subset
from randsvm.data.sampling import Draws
from randsvm.kernels.gram import gram
from randsvm.svm import libsvm
from randsvm.svm.encodings import solve
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import Choice, WorkingSet


def cold_start(scan: Scan, choice: Choice, rng: Draws) -> tuple[Step, WorkingSet]:
    """KBH07's S: a random subset of r rows, solved beside nothing else."""
    S = WorkingSet.of(random_subset(scan.D, choice.r, rng).rows, scan.D.n)
    if scan.task.total:
        return _one_class_start(scan, S), S
    step = svmlearn(scan.points(S.rows), scan.problem, scan.space, S.whole)
    return step, S


def resumed(scan: Scan, choice: Choice, rng: Draws) -> tuple[Step, WorkingSet]:
    """A run that goes on from where the scan stands."""
    nothing = scan.points(np.empty(0, np.int64))
    return Step(nothing, np.empty(0)), WorkingSet.of(nothing.rows, scan.D.n)


def _one_class_start(scan: Scan, S: WorkingSet) -> Step:
    """sum beta = nu n: the rows that lie furthest out by the solution of the subset S alone have
    beta = 1, and the next one what remains."""
    points, total = scan.points(S.rows), scan.task.total
    lower, upper = scan.task.box(points.y)
    share = total * len(points) / scan.D.n
    alone = solve(
        gram(scan.space, points.X), points.y, lower, upper, share, call=libsvm.in_daemon_thread
    )
    at = np.flatnonzero(alone.beta)
    scan.advance(points.X[at], alone.beta[at], fresh=True)
    u = scan.u
    count = min(int(total) + 1, len(u))
    rows = np.sort(np.argpartition(u, count - 1)[:count])
    beta = np.ones(count)
    beta[np.argmax(u[rows])] = total - (count - 1)
    chosen = scan.points(rows)
    return Step(replace(chosen, beta=np.zeros(count)), beta)
