"""Choose the rows of the working set: candidates among the violators, new rows, rows that stay.

The candidates of two shards add up with +, in any grouping. This module knows nothing of solvers,
scans or files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from randsvm.arrays import sorted_union
from randsvm.data.sampling import Draw, SmallestKeys


@dataclass(frozen=True)
class Candidates:
    """Rows whose coefficients may rise or may fall.

    count: number of all violators. rising, falling: violators in the collector's order; on a side
    with few violators, the rows with the steepest slopes instead, violators or not. steepest_rise,
    steepest_fall: the row with the steepest slope on each side, violator or not; empty if no
    coefficient may move to that side.
    """

    count: int
    rising: SmallestKeys
    falling: SmallestKeys
    steepest_rise: SmallestKeys
    steepest_fall: SmallestKeys

    def __add__(self, other: Candidates) -> Candidates:
        return Candidates(
            self.count + other.count,
            self.rising + other.rising,
            self.falling + other.falling,
            self.steepest_rise + other.steepest_rise,
            self.steepest_fall + other.steepest_fall,
        )

    @property
    def max_violation(self) -> float:
        """Return the steepest rise less the steepest fall, LIBSVM's measure of optimality.

        It is 0 if no coefficient may rise or none may fall.
        """
        sides = self.steepest_rise.keys, self.steepest_fall.keys
        return -float(sides[0][0] + sides[1][0]) if all(map(len, sides)) else 0.0

    @property
    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that may rise and those that may fall, (m,) int64; the steepest first."""
        rising = np.concatenate([self.steepest_rise.rows, self.rising.rows])
        falling = np.concatenate([self.steepest_fall.rows, self.falling.rows])
        return _once(rising), _once(falling)


@dataclass(frozen=True)
class GroupCandidates:
    """The candidates of each group of a task, see Task.groups.

    Each group has its own sum: if a coefficient rises, others of the same group have to fall.
    """

    groups: tuple[Candidates, ...]

    @staticmethod
    def of(groups: Sequence[Candidates]) -> GroupCandidates:
        """Return the groups, the one with the steepest pair first: a working set with room for one
        pair then makes progress."""
        return GroupCandidates(tuple(sorted(groups, key=lambda group: -group.max_violation)))

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def max_violation(self) -> float:
        return max(group.max_violation for group in self.groups)

    @property
    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that may rise and those that may fall, one row of each group in turn."""
        rising, falling = zip(*(group.sides for group in self.groups), strict=True)
        return interleaved(*rising), interleaved(*falling)

    @property
    def violators(self) -> tuple[np.ndarray, np.ndarray]:
        """Return `sides` without the steepest rows."""
        both = [(group.rising.rows, group.falling.rows) for group in self.groups]
        rising, falling = zip(*both, strict=True)
        return interleaved(*rising), interleaved(*falling)


def interleaved(*sides: np.ndarray) -> np.ndarray:
    """Return the rows of all arrays, one of each in turn; each row once. sides: (m,) int64 each."""
    turns = np.concatenate([np.arange(len(rows)) for rows in sides])
    return _once(np.concatenate(sides)[np.argsort(turns, kind="stable")])


def _once(rows: np.ndarray) -> np.ndarray:
    """Return each row once, at its first place."""
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]


# An order of violators: a function that returns their sort keys, (m,) float64, given the draw of
# the scan; start and stop, the ends of their shard; rows, (m,) int64, their numbers in D; and
# violation, (m,) float64, by how much each violates its KKT condition.
Order: TypeAlias = "Callable[[Draw, int, int, np.ndarray, np.ndarray], np.ndarray]"


def largest_violation(
    draw: Draw, start: int, stop: int, rows: np.ndarray, violation: np.ndarray
) -> np.ndarray:
    """Return keys that put the largest violation first.

    With equal numbers from both sides these are the pairs of Joachims (1999) and ThunderSVM, and
    for MZ the points with the smallest y f(x).
    """
    return -violation


def uniform_sample(
    draw: Draw, start: int, stop: int, rows: np.ndarray, violation: np.ndarray
) -> np.ndarray:
    """Return keys that make a uniform sample of the violators (KBH07)."""
    return draw.keys(start, stop)[rows - start]


def file_order(
    draw: Draw, start: int, stop: int, rows: np.ndarray, violation: np.ndarray
) -> np.ndarray:
    """Return keys that put the first violators met first (MZ's arbitrary choice for OFG97)."""
    return rows


class Collector(NamedTuple):
    """Keeps the first `keep` violators of each side in an order."""

    keep: int
    draw: Draw
    order: Order


@dataclass(frozen=True)
class ShardViolators:
    """The steepest row of one side of the rows start .. stop - 1, followed by the violators.

    rows : (m,) int64, row numbers in D; the first is -1 if there is no steepest row. slope : (m,)
    float64, the rise of each row, or minus its fall. level: the slope of a row without violation.
    weights : (m,) float64, of the rows; None: all are 1.

    Collectors compare violations times weights, the shares of the rows in the gap. Measured: 43
    rounds instead of 120 with weights within a factor of 1,000, and 46 without weights
    (checkerboard, 50,000 rows, 10% noise).
    """

    start: int
    stop: int
    rows: np.ndarray
    slope: np.ndarray
    level: float
    weights: np.ndarray | None = None

    def kept(self, collector: Collector) -> tuple[SmallestKeys, SmallestKeys]:
        """Return the rows that the collector keeps, and the steepest row."""
        rows, violation = self.rows[1:], self.slope[1:] - self.level
        if self.weights is not None:
            violation = violation * self.weights[1:]
        keys = collector.order(collector.draw, self.start, self.stop, rows, violation)
        exists = self.rows[:1] >= 0
        first = SmallestKeys.of(1, self.rows[:1][exists], -self.slope[:1][exists])
        return SmallestKeys.of(collector.keep, rows, keys), first


def collect(collector: Collector, up: ShardViolators, down: ShardViolators) -> Candidates:
    """Return the rows that the collector keeps of both sides of a shard."""
    (rising, rise), (falling, fall) = up.kept(collector), down.kept(collector)
    return Candidates(len(up.rows) + len(down.rows) - 2, rising, falling, rise, fall)


# A working set with fewer rows than this keeps none from the one before.
KEEP_FROM_ROWS = 8


@dataclass(frozen=True)
class WorkingSet:
    """Rows whose coefficients a subproblem changes.

    rows : (m,) int64, ascending. new : (k,) int64, the rows that were not in the previous working
    set, in the order in which they were chosen. pairs: whether the rows are the most violating
    pairs. whole: whether these are all rows of D.
    """

    rows: np.ndarray
    new: np.ndarray
    pairs: bool = False
    whole: bool = False

    @staticmethod
    def of(rows: np.ndarray, n: int) -> WorkingSet:
        """Return a first working set. n: number of rows of D."""
        return WorkingSet(np.sort(rows), rows, whole=len(rows) == n)

    @property
    def latest_first(self) -> np.ndarray:
        """Return the new rows followed by the others, (m,) int64."""
        return np.concatenate([self.new, self.rows[~np.isin(self.rows, self.new)]])

    def next(self, kept: np.ndarray, new: np.ndarray, *, pairs: bool = False) -> WorkingSet:
        """Return the working set of these rows; one that holds all rows of D stays as it is."""
        return self if self.whole else WorkingSet(sorted_union(kept, new), new, pairs)


def select(sides: Sequence[np.ndarray], count: int, excluded: np.ndarray) -> np.ndarray:
    """Return the first `count` rows that are not excluded, taking one of each side in turn."""
    rows = interleaved(*sides)
    return rows[~np.isin(rows, excluded)][: max(count, 0)]
