"""How long a run by rounds may still take: from how its gap has fallen so far.

Knows no terminal.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise

from randsvm.events import Iteration

# With fewer rounds, or estimates that are further apart than this, nothing is known.
LEAST_ROUNDS, WIDEST_RANGE = 4, 8.0


class TimeLeft:
    """The course of the gap of one problem. asked: where it is to end; None: nowhere."""

    def __init__(self, asked: float | None = None) -> None:
        self.asked = asked
        self.machine = ""
        self.points: list[tuple[float, float]] = []
        self.received = time.perf_counter()

    def hear(self, event: Iteration) -> None:
        if event.machine != self.machine:
            self.machine, self.points = event.machine, []
        if event.gap > 0:  # nan: nothing is certified
            self.points.append((event.seconds, event.gap))
        self.received = time.perf_counter()

    def words(self) -> str:
        """The gap, and the time left as a range; without what is not known."""
        if not self.points:
            return ""
        found = remaining(self.points, self.asked) if self.asked else None
        left = "" if found is None else self._range(*found)
        return f", gap {self.points[-1][1]:.3g}{left}"

    def _range(self, least: float, most: float) -> str:
        gone = time.perf_counter() - self.received
        least, most = max(least - gone, 0.0), most - gone
        if most <= 0:  # it takes longer than the past had let expect
            return ""
        first, last = _time(least), _time(most)
        return f", {first} to {last} left" if first != last else f", about {last} left"


# The logarithm of how many times as long as so far a run may take: beyond that nothing is known.
WIDEST_GROWTH = 10.0


def remaining(points: list[tuple[float, float]], asked: float) -> tuple[float, float] | None:
    """Seconds until a gap of `asked`, the least and the most that the course of (seconds, gap)
    lets expect; None: not known.

    Mostly a gap falls by about the same factor in the same time: the whole course gives one
    estimate, its last half and its last third others. Where it falls more and more slowly, it does
    so like a power of the time: the last half gives an estimate of that kind.
    """
    if len(points) < LEAST_ROUNDS or points[-1][1] <= asked:
        return None
    seconds, gap = points[-1]
    estimates = []
    for begin in (0, len(points) // 2, len(points) * 2 // 3):
        then, before = points[min(begin, len(points) - 2)]
        if not (gap < before and 0 < then < seconds):
            return None
        speed = math.log(before / gap) / (seconds - then)
        estimates.append(math.log(gap / asked) / speed)
    then, before = points[len(points) // 2]
    power = math.log(before / gap) / math.log(seconds / then)
    growth = math.log(gap / asked) / power
    if growth > WIDEST_GROWTH:
        return None
    estimates.append(seconds * math.expm1(growth))
    least, most = min(estimates), max(estimates)
    return (least, most) if most <= WIDEST_RANGE * least else None


def _time(seconds: float) -> str:
    """To one or two digits, in the unit that suits."""
    units = [("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0), ("", math.inf)]
    for (name, size), (_, above) in pairwise(units):
        if seconds < 1.5 * above or not name:
            count = seconds / size
            step = 1 if count < 10 else 5 if count < 60 else 10
            return f"{max(step * round(count / step), 1)} {name}"
    raise AssertionError("the last unit takes everything")
