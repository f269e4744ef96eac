"""The offset b that minimises P(w, b) over all rows, for given decision values without it.

P is convex and piecewise linear in b: its slope is total - sum of upper over rows with bend `below`
beyond b - sum of lower over rows with bend `above` before it (see Task.bends), so the minimum is at
a bend. Shards report their slope at the left end of a window and the bends inside; where these are
many, how many there are in each cell of the window, so that a report is small however many rows
there are. Where the minimum is not in the window, what is beside it is asked next, and where it is
in a cell, that cell. Reports add up with +.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from randsvm.arrays import in_order

# How many times wider what is beside a window is asked for.
WIDENING = 16.0
# Shards report up to this number of bends one by one (half a megabyte), or else counts of cells of
# the window. Measured at a million rows: 18 passes for 16 scans; 32 if it were 4,096.
MAX_BREAKPOINTS, CELLS = 32768, 1024
# Of the largest sum of bounds that there could be: what is smaller is rounding. A shard adds up to
# some thousand rows one by one, which is off by 2e-13 of their own largest sum at the most.
SLOPE_ROUNDING = 1e-13


@dataclass(frozen=True)
class Window:
    """What lies beyond `left` and not beyond `right`."""

    left: float
    right: float

    @staticmethod
    def around(b: float, width: float) -> Window:
        return Window(b - width, b + width) if math.isfinite(width) else Window(-np.inf, np.inf)

    @property
    def whole(self) -> bool:
        return math.isinf(self.left) and math.isinf(self.right)

    @property
    def divisible(self) -> bool:
        """Whether its cells are narrower than it is: not of a few last digits."""
        largest = max(abs(self.left), abs(self.right))
        return self.right - self.left > 16 * float(np.spacing(largest))

    def cells_of(self, at: np.ndarray) -> np.ndarray:
        """The numbers of the cells, of equal width, that these points are in. at : (m,) float64."""
        width = (self.right - self.left) / CELLS
        return np.clip(np.ceil((at - self.left) / width) - 1, 0, CELLS - 1).astype(np.intp)

    def cell(self, k: int) -> Window:
        """A little more than cell k, as what is at its border may be counted on either side."""
        width = (self.right - self.left) / CELLS
        left, right = self.left + (k - 1e-6) * width, self.left + (k + 1 + 1e-6) * width
        return Window(float(np.nextafter(left, -np.inf)), float(np.nextafter(right, np.inf)))

    def before(self, bend: float) -> Window:
        """What is left of it, to the bend and further."""
        left = min(bend, self.left - WIDENING * (self.right - self.left))
        return Window(float(np.nextafter(left, -np.inf)), self.left)

    def behind(self, bend: float) -> Window:
        """What is right of it, to the bend and further."""
        return Window(self.right, max(bend, self.right + WIDENING * (self.right - self.left)))


@dataclass(frozen=True)
class Breakpoints:
    """The bends of some shards inside of a window.

    bounds: the two sizes that the jump of a row of weight 1 may have. slope: what the rows of each
    shard add to the slope of P at the left end. at, jump : (m,) float64, where the bends are and by
    how much the slope grows there; of more than MAX_BREAKPOINTS counts : (3, CELLS) instead, how
    many jumps of each of the two sizes each cell has, and the sum of all other jumps. left, right:
    the nearest bends outside; first, last: of those inside; infinite where there is none.
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
        """Of one shard."""
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
        """Return the bends as counts if they are too many. Counts, and sums of weights that are
        integers, add up to equal numbers in any order, so b does not depend on the grouping of
        shards; other sums differ by less than SLOPE_ROUNDING."""
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
        """b, or the window that is to be asked next. most: the largest sum of bounds that there
        could be."""
        at, rise = self.at, self.jump
        if self.counts is not None:
            rise = np.append(self.bounds, 1.0) @ self.counts
            if self.first == self.last or not self.window.divisible:
                at, rise = np.array([self.first]), rise.sum(keepdims=True)
        else:
            order = np.argsort(at, kind="stable")
            at, rise = at[order], rise[order]
        slope, nothing = in_order(self.slope) + total, SLOPE_ROUNDING * most
        slopes = slope + np.cumsum(rise)
        reached = slopes >= -nothing
        if slope > nothing and self.left > -np.inf:
            return self.window.before(self.left)
        if slope >= -nothing:
            # Flat from the bend before the window to the first one in it, or all the way from -inf.
            return _midpoint(self.left, self.first if len(rise) else self.right)
        if not reached.any():
            if self.right < np.inf:
                return self.window.behind(self.right)
            return _midpoint(self.last if len(rise) else self.left, np.inf)
        k = int(np.argmax(reached))
        if not len(at):
            return self.window.cell(k)
        if slopes[k] > nothing:
            return float(at[k])
        return _midpoint(float(at[k]), float(at[k + 1]) if k + 1 < len(at) else self.right)


def _midpoint(left: float, right: float) -> float:
    """Of where P is flat, as LIBSVM takes it where nothing is free; of half a line its end."""
    ends = [end for end in (left, right) if math.isfinite(end)]
    return sum(ends) / len(ends) if ends else 0.0
