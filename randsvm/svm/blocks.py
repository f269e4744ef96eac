"""Solve several blocks of near rows at the same time, and add up their steps.

Where a kernel is narrow, rows that are far from each other have kernel values of almost 0. Then a
working set splits into blocks that hardly depend on each other, and one core can solve each of
them. With d, the change of beta in all blocks, and a share t from 0 to 1, the step t d changes D by
at least

    gain(t) = t a - 1/2 t^2 d' K d,
    a = L(beta + d) - L(beta) - d' u,   L(beta) = sum y beta - epsilon sum |beta|

(for classes L is linear, and the change is exactly gain(t)). Each block keeps its own sum of beta,
so every t is feasible. The step uses the t of the largest gain, so D never falls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from randsvm.arrays import CsrMatrix
from randsvm.data.points import Points
from randsvm.data.sampling import SPLIT_DRAW, Draw, Draws
from randsvm.kernels.expansion import Expansion
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import WorkingSet

# LIBSVM solves a working set of r rows as one problem. A working set in blocks has WIDER r rows, in
# BLOCK_COUNT blocks of r / 2 rows: LIBSVM makes as many iterations in all, and each costs half as
# much. Measured with one block of r rows, 2 of r, 4 of r / 2, and 8 of r / 2 rows:
#     covtype, 30,000 rows: 0.93, 0.75, 0.56, 0.62 processor seconds of all solves; 83, 42, 45, 27
#         rounds; 73, 70, 73, 81 thousand coefficients changed
#     covtype, 100,000 rows: 3.8, 3.1, 1.8, 2.0 s; 116, 62, 72, 45; 169, 161, 174, 199
BLOCK_COUNT, WIDER = 4, 2
# Blocks are used while their coupling is below MAX_COUPLING. Measured, of one block of r rows split
# into four: 0.01 to 0.3 on covtype with gamma 32, at first 0.02; 0.12 to 0.8 on checkerboard, 0.6
# to 2.7 on a9a, census and flights, which need two to three times as many rounds if they are split.
# On 100,000 rows of covtype, one seed of three takes 81 rounds with 0.2 and 99 with 0.1. A trial of
# blocks in place of the measurement changes 18% more coefficients on twonorm.
MAX_COUPLING = 0.2
# Blocks have stalled if P - D is above this part of P - D two rounds before: P may rise in one
# round. The next rounds then solve one block: each block keeps its own sum of beta, so rounds of
# several blocks cannot move it between blocks. Measured on covtype with C = 1, 10 and 100: mostly
# 0.4 to 0.9.
STALLED = 0.99
# Blocks are used only if r is at least this: blocks of fewer than half as many rows cost more than
# they save.
MIN_SPLIT_ROWS = 500
# The step is whole (t = 1) if that gains at least this share of the largest gain:
# coefficients that reach a bound in their block then stay there. With couplings below
# MAX_COUPLING nearly all steps are whole: a share for each block, by a quadratic program,
# gave the same rounds on noisy checkerboard with gamma 200 (C = 1 and 10).
WHOLE_STEPS_SHARE = 0.9


class BlockChoice:
    """The choice, round by round, between a working set of r rows and one of several blocks.

    While blocks are not used, the coupling is measured after rounds 1, 3, 7, 15 and so on: a step
    of one block is split for that only. The wait doubles each time that the coupling is too large
    or that blocks make no progress.
    """

    def __init__(self, scan: Scan, rng: Draws, r: int) -> None:
        self.scan, self.rng, self.r = scan, rng, r
        self.several = False
        self.rounds, self.due, self.wait = 0, 1, 1
        # P - D after the last two rounds.
        self.distances = math.inf, math.inf
        rows = scan.D.n if scan.weights is None else np.count_nonzero(scan.weights)
        self.may_split = (
            r >= MIN_SPLIT_ROWS
            and scan.problem.kernel == "rbf"
            and not scan.task.absolute_sum
            and WIDER * r < rows
        )

    def rows_after(self, step: Step, certificate: Certificate) -> int:
        """Decide whether the next rounds have blocks, given the last step and P and D; return the
        number of rows of the next working set."""
        self.rounds += 1
        distance = certificate.primal - certificate.dual
        stalled = self.several and distance > STALLED * self.distances[0]
        self.distances = self.distances[1], distance
        is_usual_size = self.r / 2 < len(step.points) <= WIDER * self.r
        if self.may_split and is_usual_size and (self.several or self.rounds >= self.due):
            measured = step.coupling
            if measured is None:
                parts = split(step.points.X, BLOCK_COUNT, self._draw)
                measured = coupling(products(self.scan, step.points, parts, step.beta))
            self.several = measured < MAX_COUPLING and not stalled
            if not self.several:
                # A single working set is measured again in the round `due`.
                self.wait *= 2
                self.due = self.rounds + self.wait
        return WIDER * self.r if self.several else self.r

    @property
    def _draw(self) -> Draw:
        return Draw(self.rng.seed, SPLIT_DRAW + self.rounds)

    def divides(self, W: WorkingSet) -> bool:
        """Return whether to solve W by `svmlearn` below."""
        return self.several and len(W.rows) > self.r

    def svmlearn(self, W: WorkingSet, b: float) -> Step:
        """Solve each block of W while all other coefficients stay fixed; return the joint step."""
        return solve_blocks(self.scan, W, b, self._draw)


def solve_blocks(scan: Scan, W: WorkingSet, b: float, draw: Draw) -> Step:
    """Solve each of BLOCK_COUNT blocks of W, in the threads of this process; return the joint step.

    b: the offset of the solution so far. draw: the random draw that determines the split.
    """
    began, points = time.perf_counter(), scan.points(W.rows)
    assert points.beta is not None and points.u is not None
    parts = split(points.X, BLOCK_COUNT, draw)
    found = scan.D.in_threads(lambda part: svmlearn(scan, points[part], b, frozen=True), parts)
    beta = points.beta.copy()
    for part, one in zip(parts, found, strict=True):
        beta[part] = one.beta
    Q = products(scan, points, parts, beta)
    at = np.flatnonzero(beta != points.beta)
    before, after, y = points.beta[at], beta[at], points.y[at]
    gain = scan.task.linear(y, after) - scan.task.linear(y, before)
    share = best_share(gain - float((after - before) @ points.u[at]), float(Q.sum()))
    if share < 1:
        between = points.beta + share * (beta - points.beta)
        beta = np.clip(between, np.minimum(points.beta, beta), np.maximum(points.beta, beta))
    ended, iterations = all(one.ended for one in found), sum(one.iterations for one in found)
    return Step(points, beta, time.perf_counter() - began, ended, iterations, coupling(Q))


def split(X: CsrMatrix, count: int, draw: Draw) -> list[np.ndarray]:
    """Return the row numbers of `count` blocks of near rows, of nearly equal sizes.

    Each halving cuts at the median along the line through two random rows. They are random so that
    blocks differ from round to round, because no sum of coefficients moves from block to block
    within a round. count: a power of two.
    """
    keys, parts = draw.keys(0, 2 * count), [np.arange(X.shape[0])]
    while len(parts) < count:
        halves = []
        # Parts are numbered as the nodes of a binary tree, from 0; each number has two keys.
        for number, part in enumerate(parts, start=len(parts) - 1):
            first, second = (part[int(key) % len(part)] for key in keys[2 * number :][:2])
            ends = X[np.array([first, second])].toarray()
            line = (ends[0] - ends[1]).astype(np.float64)
            order = np.argsort(X[part] @ line, kind="stable")
            middle = len(part) // 2
            halves += [part[np.sort(order[:middle])], part[np.sort(order[middle:])]]
        parts = halves
    return parts


def products(
    scan: Scan, points: Points, parts: Sequence[np.ndarray], beta: np.ndarray
) -> np.ndarray:
    """Return Q_kl = d_k' K d_l, (blocks, blocks) float64, for the change d_k of each block."""
    assert points.beta is not None
    change = beta - points.beta
    moved = [part[change[part] != 0] for part in parts]

    def row(k: int) -> list[float]:
        """Return Q_kl for l >= k, and 0 before."""
        of_block = Expansion(scan.kernel_layout, points.X[moved[k]], change[moved[k]])
        found = (change[one] * of_block.values(points.X[one]) for one in moved[k:])
        return [0.0] * k + [float(terms.sum()) for terms in found]

    Q = np.array(list(scan.D.in_threads(row, range(len(parts)))))
    return Q + np.triu(Q, 1).T


def coupling(Q: np.ndarray) -> float:
    """Return sum_{k != l} |Q_kl| / sum_k Q_kk, or infinity if no coefficient changes."""
    own = float(np.trace(Q))
    return (float(np.abs(Q).sum()) - own) / own if own > 0 else math.inf


def best_share(a: float, norm: float) -> float:
    """Return t with the largest gain, or 1 if that gains nearly as much. norm: d' K d."""
    share = min(max(a / norm, 0.0), 1.0) if norm > 0 else float(a > 0)
    return 1.0 if a - norm / 2 >= WHOLE_STEPS_SHARE * (share * a - share**2 * norm / 2) else share
