"""The inner set A: rows near the margin, the only ones whose coefficients may differ from 0.

The mean f0 of the machines of two random subsets chooses A before there is a solution. The error of
f0 is estimated as half of the difference of the two machines on the audit rows. The subsets are
solved with C n / m for m rows, so that f0 estimates f of all n rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from randsvm.algorithms.decomposition import Decomposition, Start, no_step
from randsvm.arrays import sorted_union
from randsvm.data.dataset import random_subset
from randsvm.data.points import Points
from randsvm.kernels.expansion import Expansion
from randsvm.parameters.svm import Problem
from randsvm.svm.running_values import ValuesQuery
from randsvm.svm.scan import Scan
from randsvm.svm.solution import KernelSolution, ReducedMachine, Step
from randsvm.svm.working_set import WorkingSet

# Both subsets together have SUBSET_FACTOR n^(2/3) rows. The error of f0, and with it the size of A,
# falls with the square root of that number. With the exponent 2/3, f0 of all rows takes about as
# many kernel values as the rounds on A.
SUBSET_FACTOR = 3.0
# A holds the rows that are at most ERRORS times the error of f0 beyond the margin. Of the rows at
# exactly that distance, one in 22 is within the margin of f (for a normal error), and so a support
# vector. If such a row is outside of A, each change of its coefficient costs n kernel values. If it
# is in A, each change of any coefficient costs one kernel value for it. Both costs are equal if one
# row in 22 is a support vector.
ERRORS = 1.7
# The error is measured on the audit rows nearest to the margin: one in NEAREST_SHARE of them.
NEAREST_SHARE = 8
# Inner sets are used from this many rows on. Measured at a gap of 1%: kernel values as multiples of
# |SV| n, with and without an inner set, before the evaluation.
#
#     rows              100,000       300,000     1,000,000
#     checkerboard    1.26   1.43   1.19   1.38   1.12   1.33
#     twonorm         1.83   1.67   1.61   1.70   1.62   1.82
FROM_ROWS = 200_000
# The machines of the subsets end at this gap.
SUBSET_GAP = 0.02


class PartSolver(Protocol):
    """Solves the problem of some rows of D alone, by `train_certified`.

    It returns the solution, and the machine that scans D in its place: the same, or one with few
    support vectors. Both have `points` and row numbers of D.

    rows : (m,) int64, ascending row numbers in D. start: makes the first step. factor: the bounds
    of the coefficients are multiplied by it. gap: the gap that ends this solve; None: a share of
    the gap that ends the whole run.
    """

    def __call__(
        self,
        rows: np.ndarray,
        start: Start | None = None,
        *,
        factor: float = 1.0,
        gap: float | None = None,
    ) -> tuple[KernelSolution, KernelSolution]: ...


def inner_set_pays(n: int, problem: Problem) -> bool:
    """Return whether kernel values of D cost enough that an inner set may save some.

    A linear kernel needs one vector for all support vectors. The nu tasks have two sums of
    coefficients, of which every subset has its own share.
    """
    has_costly_kernel = (
        problem.kernel not in ("linear", "precomputed") and problem.positive_semidefinite
    )
    return n >= FROM_ROWS and has_costly_kernel and not problem.absolute_sum


class InitialEstimate(NamedTuple):
    """f0, the mean of the machines of two subsets, and its error. step: sets the coefficients to
    those of f0, which may exceed the bounds of the problem over D. W: the rows that step changes.
    """

    step: Step
    W: WorkingSet
    error: float


def estimate_from_subsets(run: Decomposition, solve_part: PartSolver) -> InitialEstimate:
    """Return f0 of two random subsets of D."""
    scan, D = run.scan, run.scan.D
    rows = random_subset(D, math.ceil(SUBSET_FACTOR * D.n ** (2 / 3)), run.rng)
    machines = []
    for half in _halves(run, rows):
        weight = len(half) if scan.weights is None else float(scan.weights[half].sum())
        factor = scan.total_weight / weight
        machines.append(solve_part(half, factor=factor, gap=SUBSET_GAP)[0])
    assert all(one.points is not None for one in machines)
    points = Points.concatenate([one.points for one in machines if one.points is not None])
    order = np.argsort(points.rows)
    beta = np.concatenate([one.beta for one in machines])[order] / 2
    points = replace(points[order], beta=np.zeros(len(points)), u=np.zeros(len(points)))
    W = WorkingSet.of(points.rows, D.n)
    return InitialEstimate(Step(points, beta), W, _error_of_mean(run, machines))


def _halves(run: Decomposition, rows: np.ndarray) -> list[np.ndarray]:
    """Return a random half of the rows and the other one, ascending, with equal parts of each
    class."""
    random = rows[run.rng.next().stream().permutation(len(rows))]
    if run.scan.task.one_sided:
        y = run.scan.D.labels()[random]
        random = random[np.argsort(y > 0, kind="stable")]
    return [np.sort(random[start::2]) for start in (0, 1)]


def _error_of_mean(run: Decomposition, machines: list[KernelSolution]) -> float:
    """Return the root of the mean square error of f0 on the audit rows nearest to the margin."""
    scan = run.scan
    layout = replace(scan.kernel_layout, dtype=np.float64)
    one, other = (
        Expansion(layout, machine.points.X, machine.beta).values(scan.audit.X) + machine.b
        for machine in machines
        if machine.points is not None
    )
    f, y = (one + other) / 2, scan.audit.y
    rise, fall = scan.task.slopes(y, f, np.zeros(len(y)))
    distance = np.abs(np.maximum(rise, -fall))
    nearest = np.argsort(distance, kind="stable")[: max(1, len(y) // NEAREST_SHARE)]
    return float(np.sqrt(np.square((one - other)[nearest]).mean())) / 2


def step_to(run: Decomposition, solution: KernelSolution | None) -> tuple[Step, WorkingSet]:
    """Return the step from the current coefficients to a solution, and the rows that it changes.

    None: to coefficients that are all 0.
    """
    scan = run.scan
    before = scan.coefficients
    rows = before.rows if solution is None else sorted_union(before.rows, solution.rows)
    beta = np.zeros(len(rows))
    if solution is not None:
        beta[np.searchsorted(rows, solution.rows)] = solution.beta
    points = replace(scan.rows(rows), beta=before.of(rows))
    machine = solution if isinstance(solution, ReducedMachine) else None
    return Step(points, beta, machine=machine), WorkingSet.of(rows, scan.D.n)


def starting_from(scan: Scan, solution: KernelSolution, A: np.ndarray) -> Start:
    """Return what starts a run over the rows A of D, ascending, from a solution. scan: of D. If its
    coefficients are this solution, the run takes over its u of these rows, else u is computed."""
    rows = np.searchsorted(A, solution.rows)
    free = rows[solution.unbounded]
    W = WorkingSet(free, free, pairs=True)
    held = np.array_equal(solution.rows, scan.coefficients.rows)
    if not (held and np.array_equal(solution.beta, scan.coefficients.beta)):
        return lambda scan, r: (Step(scan.points(rows), solution.beta), W)
    u = np.concatenate(scan.ask(ValuesQuery(A)))

    def start(scan: Scan, r: int) -> tuple[Step, WorkingSet]:
        scan.take_over(rows, solution.beta, u)
        return no_step(scan, r)[0], W

    return start
