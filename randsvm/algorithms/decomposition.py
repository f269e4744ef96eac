"""Decomposition: rounds of solve and scan. Every algorithm on kernels is this one loop.

Osuna, Freund, Girosi, AI Memo 1602, 1997, in general form: the rows of a working set are solved,
all others are frozen wherever they stand. Which rows those are is the algorithm's own: see
randsvm.py and osuna.py. Never mentions files, folds or progress bars.
"""

from __future__ import annotations

from collections.abc import Callable

from randsvm.data.sampling import Draws
from randsvm.svm.scan import Scan, Starter, Stop, Violators
from randsvm.svm.solution import SV
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import Choice


def decompose(
    scan: Scan,
    choice: Choice,
    stop: Stop,
    rng: Draws,
    watch: Callable[[SV, Violators], None],
    start: Starter,
) -> SV:
    """Solve a working set W, scan D for violators V, choose the next W among V and W, until V is
    empty or `stop` says so."""
    step, W = start(scan, choice, rng)
    SV, V = scan.after(step, choice.collector(W, rng.next()), stop.tolerance)
    watch(SV, V)
    while not stop(SV, V):
        W = choice.next(W, SV, V.candidates)
        beside = not (W.whole or choice.every_support_vector)
        step = svmlearn(
            scan.points(W.rows),
            scan.problem,
            scan.gram,
            W.whole,
            scan.slack,
            beside=beside,
            b=SV.b,
        )
        SV, V = scan.after(step, choice.collector(W, rng.next()), stop.tolerance)
        watch(SV, V)
    return SV
