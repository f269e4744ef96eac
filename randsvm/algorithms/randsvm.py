"""Algorithm 1 of KBH07, RandSVM-1(D, k, r), as printed, and its certified variant.

Kumar, Bhattacharyya, Hariharan, "A Randomized Algorithm for Large Scale Support Vector Learning",
NIPS 2007.

The default r = 1.5 k of the printed rule (RandsvmParams.SAMPLE_FACTOR) is measured: r - |SV|
violators enter a round, so a small excess over k makes many rounds, while LIBSVM's time grows with
r squared. Processor seconds at k = 10,404 and 100,000 rows, checkerboard (C = 1, g = 5; 8,614
support vectors) and twonorm (C = 1, g = 0.05; 6,984):

    r / k          1.02   1.1   1.25   1.5   2.0
    checkerboard    6.5   4.8    5.8   3.5   3.7
    twonorm         8.3   8.5    8.5   9.9  10.0

Between 1.1 and 2 the totals of both differ by less than 10%; 1.5 leaves space if |SV| ends near k.

For large sets the certified variant trains on the inner set A: the rows near the margin, the only
ones whose coefficients may differ from 0. Two machines, trained on random subsets, choose A: their
mean f0 estimates f, and half of their difference on the audit rows estimates the error of f0. A
subset of m of the n rows is solved with C n / m, so that f0 estimates f of all rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import numpy as np

from randsvm.algorithms.decomposition import Decomposition, Scans, Start, unchanged
from randsvm.arrays import sorted_union
from randsvm.data.dataset import random_subset
from randsvm.data.points import Points
from randsvm.data.sampling import Permuter
from randsvm.kernels.expansion import Expansion
from randsvm.parameters.svm import Problem
from randsvm.svm.blocks import BlockChoice
from randsvm.svm.scan import Scan, ScanResult
from randsvm.svm.solution import KernelSolution, Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import (
    KEEP_FROM_ROWS,
    WorkingSet,
    interleaved,
    largest_violation,
    select,
    uniform_sample,
)

# Both subsets together have SUBSET_FACTOR n^(2/3) rows. The error of f0, and with it the size of A,
# falls with the square root of that number. With the exponent 2/3, f0 of all rows takes about as
# many kernel values as the rounds on A.
SUBSET_FACTOR = 3.0
# A holds the rows that are at most ERRORS times the error of f0 beyond the margin. 1.7 balances two
# costs: a support vector outside of A costs n kernel values for each change of its coefficient, and
# a row of A costs one kernel value for each change of any coefficient. Both costs are equal for a
# row that is a support vector with the probability 1/22. If the error is normal, such a row is 1.7
# errors beyond the margin.
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
    """A function that solves the problem of some rows of D alone, by `train_certified`."""

    def __call__(
        self,
        rows: np.ndarray,
        start: Start | None = None,
        *,
        factor: float = 1.0,
        gap: float | None = None,
    ) -> tuple[KernelSolution, KernelSolution]:
        """Return the solution, and the machine with which D is scanned: the solution, or one with
        few support vectors. Both have `points` and row numbers of D.

        rows : (m,) int64, ascending row numbers in D
        start: makes the first step
        factor: the bounds of the coefficients are multiplied by it
        gap: the gap that ends this solve; None: a share of the gap that ends the whole run
        """


def inner_set_pays(n: int, problem: Problem) -> bool:
    """Return whether kernel values of D cost enough that an inner set may save some.

    A linear kernel needs one vector for all support vectors. The nu tasks have two sums of
    coefficients, of which every subset has its own share.
    """
    has_costly_kernel = (
        problem.kernel not in ("linear", "precomputed") and problem.positive_semidefinite
    )
    return n >= FROM_ROWS and has_costly_kernel and not problem.absolute_sum


def estimate_from_subsets(run: Decomposition, solve_part: PartSolver) -> tuple[Step, float]:
    """Return f0, the mean of the machines of two random subsets of D, and its error.

    f0 is the step to its coefficients, which may exceed the bounds of the problem over D.
    """
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
    return Step(points, beta), _error_of_mean(run, machines)


def _halves(run: Decomposition, rows: np.ndarray) -> list[np.ndarray]:
    """Return a random half of the rows and the other one, ascending, with equal parts of each
    class."""
    random = rows[Permuter(run.rng.next()).permutation(len(rows))]
    if run.scan.task.one_sided:
        y = run.scan.D.labels()[random]
        random = random[np.argsort(y > 0, kind="stable")]
    return [np.sort(random[start::2]) for start in (0, 1)]


def _error_of_mean(run: Decomposition, machines: list[KernelSolution]) -> float:
    """Return the root of the mean square error of f0 on the audit rows nearest to the margin."""
    scan = run.scan
    layout = scan.kernel_layout.in_float64
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


def start_on_inner_set(whole_scan: Scan, solution: KernelSolution, A: np.ndarray) -> Start:
    """Return what starts a run over the rows A of D, ascending, from a solution.

    If `whole_scan`, a scan of D, holds this solution, u of A is copied from it; else u is computed.
    """
    rows = np.searchsorted(A, solution.rows)
    free = rows[solution.unbounded]
    W = WorkingSet(free, free, pairs=True)
    if not whole_scan.holds(solution):
        return lambda scan: (Step(scan.points(rows), solution.beta), W)
    beta, u = replace(solution, rows=rows).dense(len(A)), whole_scan.u_of(A)

    def start(scan: Scan) -> tuple[Step, WorkingSet]:
        scan.continue_from(beta, u[None])
        return unchanged(scan)[0], W

    return start


# Working sets of violating pairs keep the share 1 / KEPT_SHARE of their rows. Measured on covtype:
# if none is kept, 50% more coefficients change; if a half is kept, as many as with a third.
KEPT_SHARE = 3
# Violators are drawn at random while there are more than this many for each support vector. Where
# nearly all support vectors are bounded (MOSTLY_BOUNDED) the limit is lower: then the number of
# violators that go to their bounds matters more than their choice. Measured: 22 rounds instead of
# 31 on a9a, 46 instead of 71 on a regression with 28,000 bounded support vectors; checkerboard, 96%
# bounded, takes the same number either way.
VIOLATORS_PER_SV, VIOLATORS_PER_BOUNDED_SV, MOSTLY_BOUNDED = 4.0, 0.25, 0.98
# An inner set has at most this part of the rows: c changed coefficients cost c n kernel values
# without A, and c |A| + |SV| n with it, where c is 1.3 |SV| to 2 |SV|.
MAX_PART = 0.35


# fmt: off
def randsvm_1(run: Decomposition, r: int, start: Start | None = None) -> Scans:
    """Run RandSVM-1(D, k, r) as printed; the caller knows k.

    alpha is 0 outside of SV + R, so r has to exceed the number of support vectors.
    """
    if start is None:
        S = W = run.random_subset(r)                          # S = a random subset of D, |S| = r
        step = svmlearn(run.scan, run.scan.points(S.rows))    # SV = svmlearn(S)
    else:
        step, W = _after_start(run, r, start)
    while True:                                               # while |V| > 0 and |SV| < k
        SV, V = run.violators(step, uniform_sample, r)        #     V = violators(D, SV)
        yield SV, V
        R = _subset_of_violators(V, r - len(SV), SV)          #     R = a random subset of V
        W = WorkingSet.of(R, SV.rows)
        points = run.scan.points(W.rows)
        step = svmlearn(run.scan, points, SV.b)               #     SV = svmlearn(SV + R)


def train_certified(run: Decomposition, r: int, start: Start | None = None) -> Scans:
    """Run RandSVM-1 with coefficients outside of W frozen instead of 0, so that r may be small.

    The gap ends the rounds instead of k. While violators are many, W is a random subset
    of them. Once they are few, W holds the pairs that violate most and a third of the W before
    (Joachims 1999; ThunderSVM). Where blocks of near rows hardly depend on each other, W holds
    several of them, which are solved at the same time.
    """
    step, W = run.first_step(start, r)                        # SV = svmlearn(a random subset of D)
    blocks = BlockChoice(run.scan, run.rng, r)
    while True:                                               # while gap > the gap asked for
        order = largest_violation if W.pairs else uniform_sample
        SV, V = run.violators(step, order, r)                 #     V = violators(D, SV)
        yield SV, V
        m, keeps = blocks.rows_after(step, V.certificate), W.pairs and r >= KEEP_FROM_ROWS
        kept = W.latest_first[: m // KEPT_SHARE if keeps else 0]
        R = select(V.sides, m - len(kept), kept)              #     R = a subset of V
        W = WorkingSet.of(R, kept, pairs=W.pairs or not _are_many(V, SV))
        if blocks.divides(W):
            step = blocks.svmlearn(W, SV.b)                   #     svmlearn(blocks of W)
        else:
            points = run.scan.points(W.rows)                  #     svmlearn(W) beside all others
            step = svmlearn(run.scan, points, SV.b, frozen=True)


def train_on_inner_set(
    run: Decomposition, r: int, solve_part: PartSolver, start: Start | None = None
) -> Scans:
    """Train on the rows A near the margin, where alpha may differ from 0, then scan D.

    A solution over A is one over D unless rows outside of A violate; these join A. Where A holds
    many of the rows, D takes its place. Without `start` there is no solution before the first A is
    solved.
    """
    step, error = estimate_from_subsets(run, solve_part)      # f0 = mean of svmlearn(2 subsets)
    step = start(run.scan)[0] if start else step
    SV, V = run.violators(step, largest_violation, r)         # u = f0 of all rows
    machine = solution = SV if start else None                # f0 solves nothing
    if solution is not None:
        yield SV, V
    tau = ERRORS * error
    A = run.scan.near_margin(tau)                             # A = {rows with y f0 < 1 + tau}
    while len(A) <= MAX_PART * run.scan.D.n:
        again = start_on_inner_set(run.scan, solution, A) if solution is not None else None
        solution, machine = solve_part(A, again)              # SV = train_certified(A, r)
        step = run.scan.step_to(machine)
        SV, V = run.violators(step, largest_violation, r)     #     V = violators(D, SV)
        yield SV, V
        tau /= 2
        A = sorted_union(A, run.scan.near_margin(tau))        #     A = A + {rows: y f < 1 + tau}
    if solution is None or machine is not solution:           # D was not scanned with SV
        run.scan.make_step(run.scan.step_to(solution))
    yield from train_certified(run, r, unchanged if solution is not None else None)
# fmt: on


def _subset_of_violators(V: ScanResult, size: int, SV: KernelSolution) -> np.ndarray:
    """Return row numbers of a random subset of V without SV; uniform_sample has shuffled V."""
    sides = [(group.rising.chosen.rows, group.falling.chosen.rows) for group in V.groups]
    return select([interleaved(*rows) for rows in zip(*sides, strict=True)], size, SV.rows)


def _are_many(V: ScanResult, SV: KernelSolution) -> bool:
    """Return whether violators are many enough to be drawn at random."""
    mostly_bounded = SV.bounded_count >= MOSTLY_BOUNDED * len(SV)
    limit = VIOLATORS_PER_BOUNDED_SV if mostly_bounded else VIOLATORS_PER_SV
    return V.count > limit * len(SV)


def _after_start(run: Decomposition, r: int, start: Start) -> tuple[Step, WorkingSet]:
    """Make a start and solve one round after it.

    k may end the run at its first scan. Without this round, the model would then be the start,
    which nothing has fitted to D.
    """
    step, _ = start(run.scan)
    SV, V = run.violators(step, uniform_sample, r)
    W = WorkingSet.of(_subset_of_violators(V, r - len(SV), SV), SV.rows)
    return svmlearn(run.scan, run.scan.points(W.rows)), W
