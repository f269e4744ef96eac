"""Algorithm 1 of KBH07: RandSVM-1(D, k, r).

Kumar, Bhattacharyya, Hariharan, "A Randomized Algorithm for Large Scale Support Vector Learning",
NIPS 2007. Never mentions files, folds or progress bars.

The default r = 1.5 k (RandsvmParams.EXCESS) is measured: r - |SV| violators enter a round, so a
small excess over k makes many rounds, while LIBSVM's time grows with r squared. Processor seconds
at k = 10,404 and 100,000 rows, checkerboard (C = 1, g = 5; 8,614 support vectors) and twonorm
(C = 1, g = 0.05; 6,984):

    r / k          1.02   1.1   1.25   1.5   2.0
    checkerboard    6.5   4.8    5.8   3.5   3.7
    twonorm         8.3   8.5    8.5   9.9  10.0

Between 1.1 and 2 the sums differ by less than a tenth; 1.5 leaves room where |SV| ends near k.
"""

from __future__ import annotations

from collections.abc import Callable

from randsvm.data.sampling import Draws
from randsvm.parameters.problem import Problem
from randsvm.svm.scan import Scan, Starter, Stop, Violators
from randsvm.svm.solution import SV
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import WorkingSet


def randsvm(
    scan: Scan,
    W: WorkingSet,
    stop: Stop,
    problem: Problem,
    rng: Draws,
    watch: Callable[[SV, Violators], None],
    start: Starter,
) -> SV:
    """Solve a random subset S of r rows, scan D for violators V, solve SV + random violators R,
    until V is empty or `stop` says so (KBH07: |SV| >= k).

    Where n <= r, S is all of D: one LIBSVM solve and the scan that certifies it.
    """
    S, bound = start(scan.D, W, problem, rng)  # KBH07: a random subset of r rows, nothing bound
    SV = svmlearn(S, problem, bound)
    SV, V = scan.violators(SV, outside=S, keep=W.room(SV), rng=rng)
    watch(SV, V)
    while V.count > 0 and not stop(SV, V):
        R = V.draw(W.room(SV))  # r - |SV| in KBH07
        active, bound = W.split(SV, R, stop.precision)  # KBH07: all are active, none is bound
        SV = svmlearn(active + R, problem, bound)
        SV, V = scan.violators(SV, outside=active + R, keep=W.room(SV), rng=rng)
        watch(SV, V)
    return SV
