"""Decomposition with a fixed-size working set B: OFG97, and MZ's choice of the closest points.

Osuna, Freund, Girosi, AI Memo 1602, 1997; Mostefaoui, Zaou, "SVM: Reduction of Learning Time".
`osuna` and `osuna_closest` differ by one argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from randsvm.data.sampling import Draw, Draws
from randsvm.parameters.problem import Problem
from randsvm.svm.collectors import Closest, Collector, First
from randsvm.svm.scan import Scan, Starter, Stop, Violators
from randsvm.svm.solution import SV
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import WorkingSet


def decompose(
    scan: Scan,
    W: WorkingSet,
    stop: Stop,
    problem: Problem,
    rng: Draws,
    watch: Callable[[SV, Violators], None],
    start: Starter,
    swap: int | None,
    choose: Callable[[int, Draw], Collector],
) -> SV:
    """Solve the working set B, scan D for violators, swap up to `swap` of them (None: as many as
    fit) for rows of B, until none is left or `stop` says so.

    Rows with alpha = 0 leave B first; when there are none, support vectors with alpha = C are
    held there outside of B (the bound set).
    """
    B, bound = start(scan.D, W, problem, rng)
    SV = svmlearn(B, problem, bound)
    SV, V = scan.violators(SV, outside=B, keep=W.room(SV), rng=rng, choose=choose)
    watch(SV, V)
    while V.count > 0 and not stop(SV, V):
        R = V.draw(min(swap or V.count, W.room(SV)))
        active, bound = W.split(SV, R, stop.precision)
        idle = V.refreshed(B.without(SV.points.rows).without(R.rows))
        B = active + R + idle.first(W.size(SV) - len(active) - len(R))
        SV = svmlearn(B, problem, bound)
        SV, V = scan.violators(SV, outside=B, keep=W.room(SV), rng=rng, choose=choose)
        watch(SV, V)
    return SV


osuna = partial(decompose, choose=First)
osuna_closest = partial(decompose, choose=Closest)
