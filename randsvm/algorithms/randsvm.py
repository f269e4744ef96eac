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
"""

from __future__ import annotations

import numpy as np

from randsvm.algorithms.decomposition import Decomposition, Rounds, Start, no_step
from randsvm.algorithms.inner_set import (
    ERRORS,
    PartSolver,
    estimate_from_subsets,
    starting_from,
    step_to,
)
from randsvm.arrays import sorted_union
from randsvm.svm.blocks import Blocks
from randsvm.svm.scan import Violators
from randsvm.svm.solution import KernelSolution, Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import (
    KEEP_FROM_ROWS,
    LargestViolation,
    Order,
    UniformSample,
    WorkingSet,
    select,
)

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
def randsvm_1(run: Decomposition, r: int, start: Start | None = None) -> Rounds:
    """Run RandSVM-1(D, k, r) as printed; the caller knows k.

    alpha is 0 outside of SV + R, so r has to exceed the number of support vectors.
    """
    if start is None:
        S = W = run.random_subset(r)                         # S = a random subset of D, |S| = r
        step = svmlearn(run.scan, S)                         # SV = svmlearn(S)
    else:
        step, W = _after_start(run, r, start)
    while True:                                              # while |V| > 0 and |SV| < k
        SV, V = run.violators(step, W, UniformSample, r)     #     V = violators(D, SV)
        yield SV, V
        R = _random_subset(V, r - len(SV), SV)               #     R = a random subset of V
        W = W.next(SV.rows, R)
        step = svmlearn(run.scan, W, SV.b)                   #     SV = svmlearn(SV + R)


def train_certified(run: Decomposition, r: int, start: Start | None = None) -> Rounds:
    """Run RandSVM-1 with coefficients outside of W frozen instead of 0, so that r may be small.

    The gap ends the rounds instead of k. While violators are many, W is a random subset
    of them. Once they are few, W holds the pairs that violate most and a third of the W before
    (Joachims 1999; ThunderSVM). Where blocks of near rows hardly depend on each other, W holds
    several of them, which are solved at the same time.
    """
    if (start := run.first_start(start)) is None:
        S = W = run.random_subset(r)                         # S = a random subset of D, |S| = r
        step = svmlearn(run.scan, S)                         # SV = svmlearn(S)
    else:
        step, W = start(run.scan, r)
    blocks = Blocks(run.scan, run.rng, r)
    while True:                                              # while gap > the gap asked for
        SV, V = run.violators(step, W, _order(W), r)         #     V = violators(D, SV)
        yield SV, V
        m, keeps = blocks.rows_after(step, V.certificate), W.pairs and r >= KEEP_FROM_ROWS
        kept = W.latest_first[: m // KEPT_SHARE if keeps else 0]
        R = select(V.candidates.sides, m - len(kept), kept)  #     R = a subset of V
        W = W.next(kept, R, pairs=W.pairs or not _are_many(V, SV))
        if blocks.divides(W):
            step = blocks.svmlearn(W, SV.b)                  #     svmlearn(blocks of W)
        else:
            step = svmlearn(run.scan, W, SV.b, frozen=True)  #     svmlearn(W) beside all others


def train_on_inner_set(
    run: Decomposition, r: int, solve_part: PartSolver, start: Start | None = None
) -> Rounds:
    """Train on the rows A near the margin, where alpha may differ from 0, then scan D.

    A solution over A is one over D unless rows outside of A violate; these join A. Where A holds
    many of the rows, D takes its place. `solve_part` also returns the machine that scans D: the
    solution, or its reduction to few support vectors.
    """
    f0 = estimate_from_subsets(run, solve_part)              # f0 = mean of svmlearn(2 subsets)
    step, W = start(run.scan, r) if start else (f0.step, f0.W)
    SV, V = run.violators(step, W, LargestViolation, r)      # u = f0 of all rows
    yield SV, V
    tau = ERRORS * f0.error
    A = run.scan.near_margin(tau)                            # A = {rows with y f0 < 1 + tau}
    machine = solution = SV if SV.within_bounds else None    # an f0 beyond bounds solves nothing
    while len(A) <= MAX_PART * run.scan.D.n:
        start = starting_from(run.scan, solution, A) if solution is not None else None
        solution, machine = solve_part(A, start)             # SV = train_certified(A, r)
        step, W = step_to(run, machine)
        SV, V = run.violators(step, W, LargestViolation, r)  #     V = violators(D, SV)
        yield SV, V
        tau /= 2
        A = sorted_union(A, run.scan.near_margin(tau))       #     A = A + {rows with y f < 1 + tau}
    if solution is None or not SV.within_bounds or machine is not solution:
        run.scan.make_step(step_to(run, solution)[0])
    yield from train_certified(run, r, no_step if solution is not None else start)
# fmt: on


def _random_subset(V: Violators, size: int, SV: KernelSolution) -> np.ndarray:
    """Return row numbers of a random subset of V without SV; UniformSample has shuffled V."""
    return select(V.candidates.violators, size, SV.rows)


def _order(W: WorkingSet) -> Order:
    return LargestViolation if W.pairs else UniformSample


def _are_many(V: Violators, SV: KernelSolution) -> bool:
    """Return whether violators are many enough to be drawn at random."""
    mostly_bounded = SV.bounded_count >= MOSTLY_BOUNDED * len(SV)
    limit = VIOLATORS_PER_BOUNDED_SV if mostly_bounded else VIOLATORS_PER_SV
    return V.count > limit * len(SV)


def _after_start(run: Decomposition, r: int, start: Start) -> tuple[Step, WorkingSet]:
    """Make a start and solve one round after it, since k may end the run after one step."""
    step, _ = start(run.scan, r)
    W = WorkingSet.of(step.points.rows, run.scan.D.n)
    SV, V = run.scan.after(step, run.collector(W, UniformSample, r))
    W = W.next(SV.rows, _random_subset(V, r - len(SV), SV))
    return svmlearn(run.scan, W), W
