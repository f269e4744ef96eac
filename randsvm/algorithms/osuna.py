"""Decomposition with a fixed-size working set B: OFG97, and MZ's choice of the closest points.

Osuna, Freund, Girosi, AI Memo 1602, 1997; Mostefaoui, Zaou, "SVM: Reduction of Learning Time".
`osuna` and `osuna_closest` differ by one argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from randsvm.data.dataset import Dataset
from randsvm.data.sampling import Draw, Draws
from randsvm.parameters.svm import Params
from randsvm.svm.collectors import Closest, Collector, First
from randsvm.svm.scan import Starter, Violators, violators
from randsvm.svm.solution import SV
from randsvm.svm.subproblem import svmlearn


def decompose(
    D: Dataset,
    size: int,
    stop: Callable[[SV, Violators], bool],
    params: Params,
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
    B, bound = start(D, size, params, rng)
    SV = svmlearn(B, params, bound)
    V = violators(D, SV, outside=B, keep=SV.room(size), rng=rng, choose=choose)
    watch(SV, V)
    while V.count > 0 and not stop(SV, V):
        R = V.draw(min(swap or V.count, SV.room(size)))
        active, bound = SV.split(size, R)
        idle = V.refreshed(B.without(SV.points.rows).without(R.rows))
        B = active + R + idle.first(SV.size(size) - len(active) - len(R))
        SV = svmlearn(B, params, bound)
        V = violators(D, SV, outside=B, keep=SV.room(size), rng=rng, choose=choose)
        watch(SV, V)
    return SV


osuna = partial(decompose, choose=First)
osuna_closest = partial(decompose, choose=Closest)
