"""Collectors: which of the rows that a scan meets are candidates for the next working set.

Knows nothing of what a violation is. Candidates of two shards add up with +, in any grouping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from randsvm.data.sampling import Draw, Smallest

# Rows of steepest rise and fall that every collector keeps: with them a step always goes on.
STEEPEST = 16


@dataclass(frozen=True)
class Candidates:
    """chosen: violators, in the collector's order; rising, falling: the rows whose coefficients
    may rise or fall, from the steepest on. count: of all violators."""

    count: int
    chosen: Smallest
    rising: Smallest
    falling: Smallest

    def __add__(self, other: Candidates) -> Candidates:
        return Candidates(
            self.count + other.count,
            self.chosen + other.chosen,
            self.rising + other.rising,
            self.falling + other.falling,
        )


@dataclass(frozen=True)
class Seen:
    """Rows start .. start + m - 1 as a collector sees them. violating : (m,) bool; violation, rise,
    fall : (m,) float64, see Task.slopes."""

    start: int
    violating: np.ndarray
    violation: np.ndarray
    rise: np.ndarray
    fall: np.ndarray


class Collector(Protocol):
    """Which of the violators are kept in `chosen`, and how many of the steepest rows."""

    @property
    def steepest(self) -> int: ...

    def choose(self, seen: Seen) -> Smallest: ...


def collected(collector: Collector, seen: Seen) -> Candidates:
    """What a collector keeps of some rows."""
    count = int(np.count_nonzero(seen.violating))
    return Candidates(
        count,
        collector.choose(seen),
        _steepest(collector.steepest, seen, -seen.rise),
        _steepest(collector.steepest, seen, seen.fall),
    )


def _steepest(keep: int, seen: Seen, keys: np.ndarray) -> Smallest:
    rows = np.flatnonzero(np.isfinite(keys))
    if len(rows) > STEEPEST:
        # Hardly ever does anybody want more than the violators and a few others.
        least = np.partition(keys, STEEPEST - 1)[STEEPEST - 1]
        rows = np.flatnonzero((keys <= least) | (seen.violating & np.isfinite(keys)))
    return Smallest.of(keep, seen.start + rows, keys[rows])


@dataclass(frozen=True)
class Pairs:
    """Violating pairs alone (Joachims 1999; ThunderSVM): no violators are drawn besides."""

    steepest: int

    def choose(self, seen: Seen) -> Smallest:
        return Smallest(0)


@dataclass(frozen=True)
class UniformSample:
    """A uniform sample of the violators (KBH07)."""

    keep: int
    draw: Draw
    steepest: int = STEEPEST

    def choose(self, seen: Seen) -> Smallest:
        keys = self.draw.keys(seen.start, seen.start + len(seen.violation))
        chosen = np.flatnonzero(seen.violating)
        return Smallest.of(self.keep, seen.start + chosen, keys[chosen])


@dataclass(frozen=True)
class First:
    """The first violators met, in file order (MZ's arbitrary choice for OFG97)."""

    keep: int
    draw: Draw
    steepest: int = STEEPEST

    def choose(self, seen: Seen) -> Smallest:
        rows = seen.start + np.flatnonzero(seen.violating)
        return Smallest.of(self.keep, rows, rows)


@dataclass(frozen=True)
class Closest:
    """The violators with the smallest y f(x), i.e. the largest violation (MZ)."""

    keep: int
    draw: Draw
    steepest: int = STEEPEST

    def choose(self, seen: Seen) -> Smallest:
        chosen = np.flatnonzero(seen.violating)
        return Smallest.of(self.keep, seen.start + chosen, -seen.violation[chosen])
