"""OFG97's decomposition with a working set B of fixed size, and MZ's choice of the closest points.

Osuna, Freund, Girosi, AI Memo 1602, 1997; Mostefaoui, Zaou, "SVM: Reduction of Learning Time".
The two differ by one argument.
"""

from __future__ import annotations

from functools import partial

from randsvm.svm.working_set import Choice, First, Order, Steepest


def fixed_size(size: int, swap: int | None, order: Order) -> Choice:
    """B has `size` rows, `swap` of which (None: half; one alone is no pair) make room for
    violators each time."""
    return Choice(size, max(2, min(swap or size - size // 2, size)), order, full=True)


osuna = partial(fixed_size, order=First)
osuna_closest = partial(fixed_size, order=Steepest)
