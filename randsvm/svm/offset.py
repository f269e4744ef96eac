"""The offset b that minimises P(w, b) over all rows, for given decision values without it.

P is convex and piecewise linear in b, so a breakpoint minimises it. The slope at b is
total - (sum of `upper` over the rows whose breakpoint `below` is greater than b)
- (sum of `lower` over the rows whose breakpoint `above` is less than b); see Task.breakpoints.

Each shard reports the slope at both ends of a window and the breakpoints within the window. If
there are many, it reports their number and range only, so the size of a report does not depend on
the number of rows. If the minimum is outside the window, the next window is beside it; if it is
among too many breakpoints, the next window is the part of their range where a straight line between
the slopes at its ends crosses 0. Reports of shards add up with +.
"""

from __future__ import annotations

import math

import numpy as np

from randsvm.arrays import sum_in_order
from randsvm.records import record

# The window beside a window is this many times as wide.
WINDOW_GROWTH = 16.0
# Shards report up to MAX_BREAKPOINTS breakpoints one by one (half a megabyte). A part of a window
# holds half as many if they are spread evenly.
MAX_BREAKPOINTS = 32768
# A slope below this share of the sum of all bounds is rounding. Each addition errs by at most 2^-53
# of the sum of all bounds. For 10^8 rows a shard makes at most 8,192 additions (16,383 after a
# copy), and the search MAX_BREAKPOINTS and one for each of 12,208 shards: in all at most 6.8e-12.
# If such a slope is not due to rounding, the midpoint of its interval raises P by at most this
# share of the sum of all bounds times half of the interval.
SLOPE_ROUNDING = 1e-11


@record
class Window:
    """The interval (left, right] of offsets. low, high: between them is the offset of least P."""

    left: float = -np.inf
    right: float = np.inf
    low: float = -np.inf
    high: float = np.inf

    @staticmethod
    def around(b: float, width: float) -> Window:
        return Window(b - width, b + width)

    @property
    def divisible(self) -> bool:
        """Return whether float64 can tell the ends of its parts apart."""
        largest = max(abs(self.left), abs(self.right))
        return self.right - self.left > 16 * float(np.spacing(largest))

    def part(self, centre: float, share: float) -> Window:
        """Return the part of this window with this share of its width around a point."""
        width = share * (self.right - self.left) / 2
        ends = max(self.left, centre - width), min(self.right, centre + width)
        return Window(*ends, self.left, self.right)

    def before(self, breakpoint: float) -> Window:
        """Return the window left of this one; it contains the breakpoint."""
        left = self.left - WINDOW_GROWTH * (self.right - self.left)
        # Not all of the rest: most breakpoints may be at its other end.
        left = min(breakpoint, max(left, (self.low + self.left) / 2))
        left = max(self.low, float(np.nextafter(left, -np.inf)))
        return Window(left, self.left, self.low, self.left)

    def after(self, breakpoint: float) -> Window:
        """Return the window right of this one; it contains the breakpoint."""
        right = self.right + WINDOW_GROWTH * (self.right - self.left)
        right = max(breakpoint, min(right, (self.right + self.high) / 2))
        return Window(self.right, min(self.high, right), self.right, self.high)


@record
class Breakpoints:
    """The breakpoints of some shards within a window, and the slopes at its ends.

    slope, rise: the part of the slope of P at the left end that each shard contributes, and its
    increase within the window. count: the number of breakpoints. at, jump : (count,) float64, the
    breakpoints and the increase of the slope at each; empty if they are more than MAX_BREAKPOINTS.
    before, after: the nearest breakpoints outside the window; first, last: the outermost within it;
    infinite if there are none.
    """

    window: Window
    slope: list[float]
    rise: list[float]
    count: int
    at: np.ndarray
    jump: np.ndarray
    before: float
    after: float
    first: float
    last: float

    @staticmethod
    def of(
        window: Window, slope: float, at: np.ndarray, jump: np.ndarray, before: float, after: float
    ) -> Breakpoints:
        """Return the breakpoints of one shard. at, jump : (m,) float64, those in the window."""
        first, last = float(at.min(initial=np.inf)), float(at.max(initial=-np.inf))
        few, rise = _few(at, jump), [float(jump.sum())]
        return Breakpoints(window, [slope], rise, len(at), *few, before, after, first, last)

    def __add__(self, other: Breakpoints) -> Breakpoints:
        at, jump = np.empty(0), np.empty(0)
        if self.is_complete and other.is_complete:
            at, jump = np.append(self.at, other.at), np.append(self.jump, other.jump)
        return Breakpoints(
            self.window,
            self.slope + other.slope,
            self.rise + other.rise,
            self.count + other.count,
            *_few(at, jump),
            max(self.before, other.before),
            min(self.after, other.after),
            min(self.first, other.first),
            max(self.last, other.last),
        )

    @property
    def is_complete(self) -> bool:
        """Return whether `at` holds all breakpoints within the window."""
        return len(self.at) == self.count

    def minimum(self, total: float, most: float) -> float | Window:
        """Return b, or the next window to search if b is not a known breakpoint.

        total: the sum that the task prescribes to beta; most: the sum of all bounds.
        """
        slope, nothing = sum_in_order(self.slope) + total, SLOPE_ROUNDING * most
        rise = sum_in_order(self.rise)
        if slope > nothing and self.before > -np.inf:
            return self.window.before(self.before)
        if slope >= -nothing:
            # P is flat from the breakpoint before the window, or from -inf, to the first one in it.
            return _midpoint(self.before, self.first if self.count else self.after)
        at, jump = self.at, self.jump
        if not self.is_complete:
            # The slope is constant before the first breakpoint and after the last one. Between them
            # it is taken as a straight line. The next window is around the zero of this line; of
            # evenly spread breakpoints it would hold half of MAX_BREAKPOINTS.
            window = Window(math.nextafter(self.first, -math.inf), self.last)
            if slope + rise >= -nothing and window.divisible:
                centre = window.left - slope / rise * (window.right - window.left)
                return window.part(centre, MAX_BREAKPOINTS / (2 * self.count))
            # The zero is beyond the window, or no number lies between the first and the last
            # breakpoint: all count as one.
            at, jump = np.array([self.first]), np.array([rise])
        # The order of equal breakpoints does not matter: b is the same at each of them. An unstable
        # sort takes a seventh of the time of a stable one.
        order = np.argsort(at)
        at, slopes = at[order], slope + np.cumsum(jump[order])
        reached = slopes >= -nothing
        if not reached.any():
            if self.after < np.inf:
                return self.window.after(self.after)
            return _midpoint(self.last if self.count else self.before, np.inf)
        k = int(np.argmax(reached))
        if slopes[k] > nothing:
            return float(at[k])
        return _midpoint(float(at[k]), float(at[k + 1]) if k + 1 < len(at) else self.after)


def _few(at: np.ndarray, jump: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the breakpoints of a window, or none if they are too many."""
    return (at, jump) if len(at) <= MAX_BREAKPOINTS else (at[:0], jump[:0])


def _midpoint(left: float, right: float) -> float:
    """Return the midpoint of the interval where P is flat, or its finite end, or 0.

    LIBSVM chooses the midpoint too if no coefficient is free.
    """
    ends = [end for end in (left, right) if math.isfinite(end)]
    return sum(ends) / len(ends) if ends else 0.0
