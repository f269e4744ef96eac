"""The working set: how many rows it has, and which of a solution stay in it.

Knows nothing of solvers, scans or files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from randsvm.data.points import Points
from randsvm.events import Notice, tell_once
from randsvm.svm.solution import SV, Bound
from randsvm.svm.tasks import task_of

# Share of the room beside the unbounded support vectors that fresh violators get; bounded
# support vectors close to the margin have the rest. Measured best on twonorm and a9a.
VIOLATOR_SHARE = 0.7
# A working set that is too small is raised to this multiple of the rows that have to stay.
RAISE = 1.5


@dataclass(frozen=True)
class WorkingSet:
    """Sizes of working sets, and the choice of the rows that stay.

    r: rows of the first. freeze: bounded support vectors may be held outside of it, in the bound
    set. growth: factor over the support vectors that have to be inside (0: the size is fixed).
    most: rows that it may have at all.
    """

    r: int
    freeze: bool = False
    growth: float = 0.0
    most: int = 2**31

    def _stay(self, SV: SV) -> int:
        """Rows that no working set can do without: without a bound set every support vector,
        else the unbounded ones, and the bounded ones of one class that have no counterpart."""
        if not self.freeze:
            return len(SV)
        bounded = SV.beta[~SV.unbounded]
        surplus = abs(int(np.sign(bounded).sum()))
        return len(SV) - len(bounded) + surplus

    def size(self, SV: SV) -> int:
        """Rows of the next working set: r, or what these support vectors make of it.

        At least growth times the rows that have to stay, where the user left the size open; else,
        with a bound set, more than has to stay.
        """
        r, stay = self.r, self._stay(SV)
        if self.growth:
            return min(max(r, math.ceil(self.growth * stay)), max(r, self.most))
        if not self.freeze or math.ceil(1.05 * stay) + 10 <= r:
            return r
        raised = math.ceil(RAISE * stay) + 10
        tell_once(
            "raised",
            Notice(
                f"a working set of {r} rows cannot hold every unbounded support vector and "
                f"violators besides: raised to {raised}, and further as they are found"
            ),
        )
        return raised

    def room(self, SV: SV) -> int:
        """How many new violators fit: r - |SV| (KBH07), or more where some can be frozen."""
        size = self.size(SV)
        share = VIOLATOR_SHARE * (size - self._stay(SV)) if self.freeze else 0
        return max(size - len(SV), int(share), 0)

    def split(self, SV: SV, R: Points, precision: float = 1.0) -> tuple[Points, Bound | None]:
        """The rows of the next working set beside R, and the bound set.

        KBH07: all support vectors are active and there is no bound set. With one: the bounded
        support vectors furthest beyond the margin are frozen, as many of either class, until
        the rest and R fit. Rows of R that are support vectors themselves are with R; where they
        are all of one class their counterparts stay too, and may not fit. precision: of the solve
        to come, see Bound.
        """
        drawn = np.isin(SV.points.rows, R.rows)
        if not self.freeze:
            # An empty bound set asks for a solve that does not fall behind this solution.
            nothing = Bound(SV.points.first(0), np.empty(0), SV, precision)
            return SV.points[~drawn], nothing if precision < 1 else None
        excess = len(SV) - int(drawn.sum()) + len(R) - self.size(SV)
        frozen = _deepest(SV, ~SV.unbounded & ~drawn, excess)
        bound = Bound(SV.points[frozen], SV.beta[frozen], SV[~frozen], precision)
        return SV.points[~frozen & ~drawn], bound


def _deepest(SV: SV, candidates: np.ndarray, count: int) -> np.ndarray:
    """A mask of at least `count` candidates, half of either sign, furthest beyond first."""
    chosen = np.zeros(len(SV), bool)
    u = SV.points.u
    assert u is not None, "a solution is scanned before it is split"
    sides = [np.flatnonzero(candidates & (SV.beta * sign > 0)) for sign in (1, -1)]
    half = min(-(-count // 2), *(len(side) for side in sides))
    if half > 0:
        bound = np.sign(SV.beta)
        violation = task_of(SV.problem).violation(SV.points.y, u + SV.b, bound)
        for side in sides:
            chosen[side[np.argsort(violation[side], kind="stable")[:half]]] = True
    return chosen
