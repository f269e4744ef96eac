"""The offset b that minimises P(w, b) over all rows, for given decision values without it.

P is convex and piecewise linear in b, so a breakpoint minimises it. The slope at b is
total - (sum of `upper` over the rows whose breakpoint `below` is greater than b)
- (sum of `lower` over the rows whose breakpoint `above` is less than b); see Task.breakpoints.

Each shard reports the slope at the left end of a window and the breakpoints within the window. If
there are many, it reports their number in each cell of the window, so the size of a report does not
depend on the number of rows. If the minimum is outside the window, the next window is beside it; if
it is within a cell, the next window is that cell. Reports of shards add up with +.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from randsvm.arrays import sum_in_order

# The window beside a window is this many times as wide.
WIDENING = 16.0
# Shards report up to MAX_BREAKPOINTS breakpoints one by one (half a megabyte), and otherwise counts
# in CELLS cells of the window. Measured at a million rows: 18 passes for 16 scans; 32 with 4,096.
MAX_BREAKPOINTS, CELLS = 32768, 1024
# A slope below this share of the sum of all bounds is rounding. Each addition errs by at most 2^-53
# of its sum, which is at most the sum of the bounds that it adds up. A shard adds up to 8,192 rows
# one by one, the search up to MAX_BREAKPOINTS breakpoints and one slope a shard: for 10^8 rows at
# most (8,192 + 32,768 + 12,208) 2^-53 = 5.9e-12. Sums of equal bounds, whose errors do not cancel,
# reach 2e-13 in a shard and 9e-13 in the search. If such a slope is not due to rounding, the
# midpoint of its interval raises P by at most this share of the sum of all bounds times half of
# the interval.
SLOPE_ROUNDING = 1e-11


@dataclass(frozen=True)
class Window:
    """The interval (left, right] of offsets."""

    left: float
    right: float

    @staticmethod
    def around(b: float, width: float) -> Window:
        return Window(b - width, b + width) if math.isfinite(width) else Window(-np.inf, np.inf)

    @property
    def whole(self) -> bool:
        """Return whether the window is the whole line."""
        return math.isinf(self.left) and math.isinf(self.right)

    @property
    def divisible(self) -> bool:
        """Return whether float64 can tell the ends of its cells apart."""
        largest = max(abs(self.left), abs(self.right))
        return self.right - self.left > 16 * float(np.spacing(largest))

    def cells_of(self, at: np.ndarray) -> np.ndarray:
        """Return the number of the cell that holds each point, (m,) intp. at : (m,) float64."""
        width = (self.right - self.left) / CELLS
        return np.clip(np.ceil((at - self.left) / width) - 1, 0, CELLS - 1).astype(np.intp)

    def cell(self, k: int) -> Window:
        """Return a window slightly wider than cell k: rounding may count a point at its border."""
        width = (self.right - self.left) / CELLS
        left, right = self.left + (k - 1e-6) * width, self.left + (k + 1 + 1e-6) * width
        return Window(float(np.nextafter(left, -np.inf)), float(np.nextafter(right, np.inf)))

    def before(self, breakpoint: float) -> Window:
        """Return the window left of this one; it contains the breakpoint."""
        left = min(breakpoint, self.left - WIDENING * (self.right - self.left))
        return Window(float(np.nextafter(left, -np.inf)), self.left)

    def after(self, breakpoint: float) -> Window:
        """Return the window right of this one; it contains the breakpoint."""
        return Window(self.right, max(breakpoint, self.right + WIDENING * (self.right - self.left)))


@dataclass(frozen=True)
class Breakpoints:
    """The breakpoints of some shards within a window, and the slope at its left end.

    bounds: the two possible increases of the slope at a breakpoint of a row of weight 1.
    slope: the part of the slope of P at the left end that each shard contributes.
    at, jump : (m,) float64, the breakpoints and the increase of the slope at each.
    counts : (3, CELLS) float64, used instead of at and jump for more than MAX_BREAKPOINTS: the
    number of increases of each size in bounds in each cell, and the sum of all other increases.
    left, right: the nearest breakpoints outside the window; first, last: the outermost within it;
    infinite if there are none.
    """

    window: Window
    bounds: tuple[float, float]
    slope: list[float]
    at: np.ndarray
    jump: np.ndarray
    left: float
    right: float
    first: float
    last: float
    counts: np.ndarray | None = None

    @staticmethod
    def of(
        window: Window,
        bounds: tuple[float, float],
        slope: float,
        at: np.ndarray,
        jump: np.ndarray,
        outside: tuple[float, float],
    ) -> Breakpoints:
        """Return the breakpoints of one shard. at, jump : (m,) float64; outside: left and right."""
        first, last = at.min(initial=np.inf), at.max(initial=-np.inf)
        found = Breakpoints(window, bounds, [slope], at, jump, *outside, float(first), float(last))
        return found._compressed()

    def __add__(self, other: Breakpoints) -> Breakpoints:
        counts = [each.counts for each in (self, other) if each.counts is not None]
        both = Breakpoints(
            self.window,
            self.bounds,
            self.slope + other.slope,
            np.concatenate([self.at, other.at]),
            np.concatenate([self.jump, other.jump]),
            max(self.left, other.left),
            min(self.right, other.right),
            min(self.first, other.first),
            max(self.last, other.last),
            np.sum(counts, axis=0) if counts else None,
        )
        return both._compressed()

    def _compressed(self) -> Breakpoints:
        """Return counts instead of the breakpoints if these are too many.

        Counts, and sums of integer weights, are equal in any order of addition, so b does not
        depend on the grouping of shards; other sums differ by less than SLOPE_ROUNDING.
        """
        if self.window.whole or (self.counts is None and len(self.at) <= MAX_BREAKPOINTS):
            return self
        counts = np.zeros((3, CELLS)) if self.counts is None else self.counts
        cells, jump, bounds = self.window.cells_of(self.at), self.jump, self.bounds
        first, second = jump == bounds[0], (jump == bounds[1]) & (jump != bounds[0])
        others = ~(first | second)
        added = [np.bincount(cells[each], minlength=CELLS) for each in (first, second)]
        added.append(np.bincount(cells[others], jump[others], minlength=CELLS))
        counts = counts + added
        return replace(self, at=np.empty(0), jump=np.empty(0), counts=counts)

    def minimum(self, total: float, most: float) -> float | Window:
        """Return b, or the next window to search if b is not a known breakpoint.

        total: the sum that the task prescribes to beta; most: the sum of all bounds.
        """
        at, rise = self.at, self.jump
        if self.counts is not None:
            rise = np.append(self.bounds, 1.0) @ self.counts
            if self.first == self.last or not self.window.divisible:
                at, rise = np.array([self.first]), rise.sum(keepdims=True)
        else:
            # The order of equal breakpoints does not matter: b is the same at each of them. An
            # unstable sort takes a seventh of the time of a stable one.
            order = np.argsort(at)
            at, rise = at[order], rise[order]
        slope, nothing = sum_in_order(self.slope) + total, SLOPE_ROUNDING * most
        slopes = slope + np.cumsum(rise)
        reached = slopes >= -nothing
        if slope > nothing and self.left > -np.inf:
            return self.window.before(self.left)
        if slope >= -nothing:
            # P is flat from the breakpoint before the window, or from -inf, to the first one in it.
            return _midpoint(self.left, self.first if len(rise) else self.right)
        if not reached.any():
            if self.right < np.inf:
                return self.window.after(self.right)
            return _midpoint(self.last if len(rise) else self.left, np.inf)
        k = int(np.argmax(reached))
        if not len(at):
            return self.window.cell(k)
        if slopes[k] > nothing:
            return float(at[k])
        return _midpoint(float(at[k]), float(at[k + 1]) if k + 1 < len(at) else self.right)


def _midpoint(left: float, right: float) -> float:
    """Return the midpoint of the interval where P is flat, or its finite end, or 0.

    LIBSVM chooses the midpoint too if no coefficient is free.
    """
    ends = [end for end in (left, right) if math.isfinite(end)]
    return sum(ends) / len(ends) if ends else 0.0
