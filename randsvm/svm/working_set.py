"""Choose the rows of the working set: candidates among the violators, new rows, rows that stay.

The candidates of two shards add up with +, in any grouping. This module knows nothing of solvers,
scans or files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

import numpy as np

from randsvm.arrays import sorted_union
from randsvm.data.sampling import Draw, SmallestKeys
from randsvm.data.shard_executor import Shard
from randsvm.records import record


@record
class Side:
    """The rows of a group whose coefficients may rise, or those whose coefficients may fall.

    chosen: the violators that the collector keeps, in its order, with the number of all. If the
    other side has far more, `Scan` replaces them by the steepest rows, violators or not.
    steepest: the row with the steepest slope, violator or not; empty if no coefficient may move to
    this side.
    """

    chosen: SmallestKeys
    steepest: SmallestKeys

    def __add__(self, other: Side) -> Side:
        return Side(self.chosen + other.chosen, self.steepest + other.steepest)

    @property
    def rows(self) -> np.ndarray:
        """Return the row numbers, (m,) int64, the steepest first."""
        return _once(np.concatenate([self.steepest.rows, self.chosen.rows]))


@record
class Candidates:
    """Rows of a group, see Task.groups. If a coefficient rises, others of the group have to fall.

    count: the number of violators. sums: of each shard, the sum of the losses of its rows, sum
    beta u, and sum y beta - epsilon sum |beta|.
    """

    count: int
    rising: Side
    falling: Side
    sums: list[tuple[float, ...]] = field(default_factory=list)

    def __add__(self, other: Candidates) -> Candidates:
        sides = self.rising + other.rising, self.falling + other.falling
        return Candidates(self.count + other.count, *sides, self.sums + other.sums)

    @property
    def max_violation(self) -> float:
        """Return the steepest rise less the steepest fall, LIBSVM's measure of optimality.

        It is 0 if no coefficient may rise or none may fall.
        """
        # Smaller keys are steeper: they are minus the rise, or the fall.
        sides = self.rising.steepest.keys, self.falling.steepest.keys
        return -float(sides[0][0] + sides[1][0]) if all(map(len, sides)) else 0.0


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
    """Keeps at most `most` violators of each side, the first in an order."""

    most: int
    draw: Draw
    order: Order


KEEP_NONE = Collector(0, Draw(0, 0), largest_violation)


def side_of(
    collector: Collector,
    shard: Shard,
    rows: np.ndarray,
    slope: np.ndarray,
    level: float,
    weights: np.ndarray | None = None,
) -> Side:
    """Return the rows of one side of a shard that the collector keeps.

    rows : (m,) int64, row numbers in D. rows[0] is the steepest row, or -1 if there is none;
    rows[1:] are the violators. slope : (m,) float64, the rise of each row, or minus its fall.
    level: the slope of a row without violation. weights : (m,) float64, of the rows; None: all are
    1.

    Collectors compare violations times weights, the shares of the rows in the gap. Measured: 43
    rounds instead of 120 with weights within a factor of 1,000, and 46 without weights
    (checkerboard, 50,000 rows, 10% noise).
    """
    violation = slope[1:] - level
    if weights is not None:
        violation = violation * weights[1:]
    keys = collector.order(collector.draw, shard.start, shard.stop, rows[1:], violation)
    exists = rows[:1] >= 0
    steepest = SmallestKeys.of(1, rows[:1][exists], -slope[:1][exists])
    return Side(SmallestKeys.of(collector.most, rows[1:], keys), steepest)


NO_ROWS: np.ndarray = np.empty(0, np.int64)
# A working set with fewer rows than this keeps none from the one before.
KEEP_FROM_ROWS = 8


@record
class WorkingSet:
    """Rows whose coefficients a subproblem changes.

    rows : (m,) int64, ascending. new : (k,) int64, the rows that were not in the previous working
    set, in the order in which they were chosen. pairs: whether the rows are the most violating
    pairs.
    """

    rows: np.ndarray
    new: np.ndarray
    pairs: bool = False

    @staticmethod
    def of(new: np.ndarray, kept: np.ndarray = NO_ROWS, *, pairs: bool = False) -> WorkingSet:
        """Return the working set of new rows and of rows of the one before."""
        return WorkingSet(sorted_union(kept, new), new, pairs)

    @property
    def latest_first(self) -> np.ndarray:
        """Return the new rows followed by the others, (m,) int64."""
        return np.concatenate([self.new, np.setdiff1d(self.rows, self.new, assume_unique=True)])


def select(sides: Sequence[np.ndarray], count: int, excluded: np.ndarray) -> np.ndarray:
    """Return the first `count` rows that are not excluded, taking one of each side in turn.

    excluded : (m,) int64, each row once
    """
    rows = interleaved(*sides)
    # Without assume_unique numpy imports numpy.ma, which takes 10 ms. The order stays.
    return np.setdiff1d(rows, excluded, assume_unique=True)[: max(count, 0)]
