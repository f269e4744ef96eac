"""The working set: how many rows it has, which enter, and which stay.

Knows nothing of solvers, scans or files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from randsvm.data.sampling import Draw
from randsvm.svm.collectors import Collector, EveryGroup, Steepest, in_turn
from randsvm.svm.solution import SV

# Fewer rows than this are chosen anew each time.
LEAST_KEPT = 8
# Of pairs one row in so many stays from the last time. Measured on covtype: without any that stay a
# half more coefficients change, with a half as many.
KEPT = 3
# Violators are drawn at random while they are more than this many times the support vectors: where
# nearly all of these (ALL) are bounded, longer, as which of the violators go to their bounds first
# matters less than how many do. Measured: 22 rounds for 31 of a9a, and 46 for 71 of a regression
# with 28,000 bounded support vectors; checkerboard, 96% bounded, has as many either way.
PLENTY, PLENTY_BOUNDED, ALL = 4.0, 0.25, 0.98


@dataclass(frozen=True)
class WorkingSet:
    """rows : (m,) int64, ascending; new : those that were not in the one before, as many that may
    rise as that may fall in any first part of it. paired: see Choice. whole: whether these are all
    rows of D."""

    rows: np.ndarray
    new: np.ndarray
    paired: bool = False
    whole: bool = False

    @staticmethod
    def of(rows: np.ndarray, n: int) -> WorkingSet:
        """n: rows of D."""
        return WorkingSet(np.sort(rows), rows, whole=len(rows) == n)


def _plenty(SV: SV) -> float:
    """How many violators are no longer plenty."""
    times = PLENTY_BOUNDED if SV.bounded_count >= ALL * len(SV) else PLENTY
    return times * len(SV)


# Makes a collector of so many rows for a draw.
Order = Callable[[int, Draw], Collector]


@dataclass(frozen=True)
class Choice:
    """How working sets are chosen.

    r: their rows. order: of the violators from which the new rows are taken, as many of those
    whose coefficients may rise as of those that may fall; the steepest of either side is always
    among them, so that every step gains, whatever r. enter: how many are new each time; the others
    are those that were new the last time, and after these any of its rows.
    then_pairs: once violators are no longer plenty beside the support vectors, take the steepest
    and keep a third (Joachims 1999; ThunderSVM). every_support_vector: KBH07's own rule: all
    support vectors stay, and violators have the room beside them. full: rows of the last set make
    up for violators that are missing.
    """

    r: int
    enter: int
    order: Order
    then_pairs: bool = False
    every_support_vector: bool = False
    full: bool = False

    def collector(self, W: WorkingSet, draw: Draw) -> Collector:
        if W.whole:  # no other rows are ever wanted
            return Steepest(0, draw)
        return Steepest(self.r, draw) if W.paired else self.order(self.r, draw)

    def next(self, W: WorkingSet, SV: SV, found: EveryGroup) -> WorkingSet:
        """The working set after W."""
        if W.whole:
            return W
        if self.every_support_vector:
            return self._beside(SV, found)
        enter = self.r - self.r // KEPT if W.paired else self.enter
        last = np.concatenate([W.new, W.rows[~np.isin(W.rows, W.new)]])
        stay = last[: self.r - enter] if self.r >= LEAST_KEPT else last[:0]
        wanted = in_turn(*found.sides)
        new = wanted[~np.isin(wanted, stay)][: self.r - len(stay)]
        if self.full:
            stay = last[~np.isin(last, new)][: self.r - len(new)]
        paired = W.paired or (self.then_pairs and found.count <= _plenty(SV))
        return WorkingSet(np.union1d(stay, new), new, paired)

    def _beside(self, SV: SV, found: EveryGroup) -> WorkingSet:
        """Every support vector, and violators in the room that is left."""
        wanted = in_turn(*found.violators)
        new = wanted[~np.isin(wanted, SV.rows)][: max(self.r - len(SV), 0)]
        return WorkingSet(np.union1d(SV.rows, new), new)
