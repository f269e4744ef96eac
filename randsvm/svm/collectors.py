"""Collectors: which of the rows that a scan meets are candidates for the next working set.

Knows nothing of what a violation is. Candidates of two shards add up with +, in any grouping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from randsvm.data.sampling import Draw, Smallest


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
    """The violators among the rows from `start` on, before each list the steepest row.

    rising, falling : (m,) int64, rows of D whose coefficients may rise (fall); rise, fall : (m,)
    float64, see Task.slopes. rows: of the whole shard.
    """

    start: int
    rows: int
    rising: np.ndarray
    rise: np.ndarray
    falling: np.ndarray
    fall: np.ndarray

    @property
    def violators(self) -> np.ndarray:
        """(m,) int64, in no order."""
        return np.concatenate([self.rising[1:], self.falling[1:]])

    def violation(self, b: float) -> np.ndarray:
        """By how much `violators` violate their KKT condition, (m,) float64."""
        return np.concatenate([self.rise[1:] - b, b - self.fall[1:]])


class Collector(Protocol):
    """Which of the violators are kept in `chosen`; steepest: how many of the steepest rows are."""

    @property
    def steepest(self) -> int: ...

    def choose(self, seen: Seen, b: float) -> Smallest: ...


def collected(collector: Collector, seen: Seen, b: float) -> Candidates:
    """What a collector keeps of some rows."""
    return Candidates(
        len(seen.rising) + len(seen.falling) - 2,
        collector.choose(seen, b),
        _steepest(collector.steepest, seen.rising, -seen.rise),
        _steepest(collector.steepest, seen.falling, seen.fall),
    )


def _steepest(keep: int, rows: np.ndarray, keys: np.ndarray) -> Smallest:
    if rows[0] < 0:
        return Smallest(keep)
    if len(rows) > 1 and keys[0] == keys[1:].min():
        rows, keys = rows[1:], keys[1:]  # it is a violator itself
    return Smallest.of(keep, rows, keys)


@dataclass(frozen=True)
class Pairs:
    """Violating pairs alone (Joachims 1999; ThunderSVM): no violators are drawn besides."""

    steepest: int

    def choose(self, seen: Seen, b: float) -> Smallest:
        return Smallest(0)


@dataclass(frozen=True)
class UniformSample:
    """A uniform sample of the violators (KBH07)."""

    keep: int
    draw: Draw
    steepest: int = 1

    def choose(self, seen: Seen, b: float) -> Smallest:
        rows = seen.violators
        if not len(rows):
            return Smallest(self.keep)
        keys = self.draw.keys(seen.start, seen.start + seen.rows)[rows - seen.start]
        return Smallest.of(self.keep, rows, keys)


@dataclass(frozen=True)
class First:
    """The first violators met, in file order (MZ's arbitrary choice for OFG97)."""

    keep: int
    draw: Draw
    steepest: int = 1

    def choose(self, seen: Seen, b: float) -> Smallest:
        return Smallest.of(self.keep, seen.violators, seen.violators)


@dataclass(frozen=True)
class Closest:
    """The violators with the smallest y f(x), i.e. the largest violation (MZ)."""

    keep: int
    draw: Draw
    steepest: int = 1

    def choose(self, seen: Seen, b: float) -> Smallest:
        return Smallest.of(self.keep, seen.violators, -seen.violation(b))
