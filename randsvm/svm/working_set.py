"""The working set: how many rows it has, which enter, and which stay.

Knows nothing of solvers, scans or files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from randsvm.data.sampling import Draw
from randsvm.svm.collectors import Candidates, Collector, Pairs
from randsvm.svm.solution import SV

# Fewer rows than this are chosen anew each time.
LEAST_KEPT = 8


@dataclass(frozen=True)
class WorkingSet:
    """rows : (m,) int64, ascending; new : those that were not in the one before, in the order in
    which they were chosen."""

    rows: np.ndarray
    new: np.ndarray

    @staticmethod
    def of(rows: np.ndarray) -> WorkingSet:
        return WorkingSet(np.sort(rows), rows)


@dataclass(frozen=True)
class Choice:
    """Rows of a working set.

    r: how many. enter: how many of them are new each time; the others are those that were new the
    last time, and after these any of its rows. collect: the violators among which new rows are
    chosen, of so many for a draw; None: violating pairs, as many of the rows whose coefficients
    may rise as of those that may fall, the steepest first (Joachims 1999; ThunderSVM). With any
    rule the steepest pair is among them, so that every step gains.
    every_support_vector: KBH07's own rule: all support vectors stay, and new violators have the
    room beside them.
    """

    r: int
    enter: int
    collect: Callable[[int, Draw], Collector] | None = None
    every_support_vector: bool = False

    def collector(self, draw: Draw) -> Collector:
        if self.collect is None:
            return Pairs(self.r)
        return self.collect(self.r, draw)

    def room(self, SV: SV) -> int:
        """How many new violators fit: r - |SV| in KBH07."""
        return max(self.r - len(SV), 0) if self.every_support_vector else self.enter

    def next(self, W: WorkingSet, SV: SV, found: Candidates) -> WorkingSet:
        """The working set after W."""
        if self.every_support_vector:
            fresh = np.setdiff1d(found.chosen.rows, SV.rows, assume_unique=True)
            fresh = found.chosen.rows[np.isin(found.chosen.rows, fresh)][: self.room(SV)]
            return WorkingSet(np.union1d(SV.rows, fresh), fresh)
        wanted = _in_order(found, violators_first=self.collect is not None)
        stay = np.concatenate([W.new, W.rows[~np.isin(W.rows, W.new)]])
        stay = stay[: self.r - self.enter] if self.r >= LEAST_KEPT else stay[:0]
        new = wanted[~np.isin(wanted, stay)][: self.r - len(stay)]
        return WorkingSet(np.union1d(stay, new), new)


def _in_order(found: Candidates, violators_first: bool) -> np.ndarray:
    """Candidates, each once, in the order in which they are wanted."""
    rising, falling = found.rising.rows, found.falling.rows
    m = min(len(rising), len(falling))
    pairs = np.column_stack([rising[:m], falling[:m]]).ravel()
    rest = np.concatenate([rising[m:], falling[m:]])
    chosen = found.chosen.rows if violators_first else rest[:0]
    every = np.concatenate([pairs[:2], chosen, pairs[2:], rest])
    _, first = np.unique(every, return_index=True)
    return every[np.sort(first)]
