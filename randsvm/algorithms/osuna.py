"""OFG97's decomposition with a working set B of fixed size, and MZ's choice of the closest points.

Osuna, Freund, Girosi, AI Memo 1602, 1997; Mostefaoui, Zaou, "SVM: Reduction of Learning Time".
"""

from __future__ import annotations

import numpy as np

from randsvm.algorithms.decomposition import Decomposition, Rounds, Start
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import (
    KEEP_FROM_ROWS,
    FileOrder,
    LargestViolation,
    Order,
    WorkingSet,
    select,
)


def osuna(run: Decomposition, size: int, swap: int | None, start: Start | None = None) -> Rounds:
    """Run OFG97's decomposition: rows of B make room for the first violators in file order."""
    return _decompose(run, size, swap, FileOrder, start)


def osuna_closest(
    run: Decomposition, size: int, swap: int | None, start: Start | None = None
) -> Rounds:
    """Run MZ's variant: rows of B make room for the violators with the smallest y f(x)."""
    return _decompose(run, size, swap, LargestViolation, start)


# fmt: off
def _decompose(
    run: Decomposition, size: int, swap: int | None, order: Order, start: Start | None
) -> Rounds:
    """Solve B and swap rows of it for violators, until the caller ends the rounds.

    size: rows of B. swap: rows that leave B in each round, by default half of them.
    """
    swap = max(2, min(swap or size - size // 2, size))       # a single row is no pair
    if (start := run.first_start(start)) is None:
        B = run.random_subset(size)                          # B = |B| rows of D
        step = svmlearn(run.scan, B)                         # solve B
    else:
        step, B = start(run.scan, size)
    while True:                                              # while |V| > 0
        SV, V = run.violators(step, B, order, size)          #     V = {j not in B: j violates KKT}
        yield SV, V
        stay = B.latest_first[: size - swap if size >= KEEP_FROM_ROWS else 0]
        enter = select(V.candidates.sides, size - len(stay), stay)
        B = B.next(_refilled(B, enter, size), enter)         #     replace rows of B by rows of V
        step = svmlearn(run.scan, B, SV.b, frozen=True)      #     solve B, all others frozen
# fmt: on


def _refilled(B: WorkingSet, enter: np.ndarray, size: int) -> np.ndarray:
    """Return rows of B that stay: as many as the entering rows leave space for."""
    return select((B.latest_first,), size - len(enter), enter)
