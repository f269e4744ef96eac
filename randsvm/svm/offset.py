"""The offset b that minimises P(w, b) over all rows, for given decision values without it.

P is convex and piecewise linear in b: its slope is total - sum of upper over rows with bend `below`
beyond b - sum of lower over rows with bend `above` before it (see Task.bends), so the minimum is at
a bend. Shards report their slope at the left end of a window and the bends inside; of many bends,
how much the slope grows in each cell of the window, so that a report is small however many rows
there are. Where the minimum is not in the window it is asked again with a wider one, and where it
is in a cell, with that. Reports add up with +.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from randsvm.arrays import in_order

# How much wider a window becomes that did not hold the minimum.
WIDER = 16.0
# A shard reports so many bends one by one; of more, sums over so many cells of the window.
MOST, CELLS = 256, 128
# Sums of many bounds: what should be 0 is not quite. Of the largest sum that there could be.
NOTHING = 1e-13


@dataclass(frozen=True)
class Window:
    """Where the scan looks for b: from left to right, or everywhere (-inf, inf)."""

    left: float
    right: float

    @staticmethod
    def around(b: float, width: float) -> Window:
        return Window(b - width, b + width) if math.isfinite(width) else Window(-np.inf, np.inf)

    def wider(self) -> Window:
        middle, width = (self.left + self.right) / 2, (self.right - self.left) / 2
        return Window.around(middle, WIDER * width if width > 0 else np.inf)

    def cells_of(self, at: np.ndarray) -> np.ndarray:
        """The numbers of the cells, of equal width, that these points are in. at : (m,) float64."""
        width = (self.right - self.left) / CELLS
        return np.clip(np.ceil((at - self.left) / width) - 1, 0, CELLS - 1).astype(np.intp)

    def cell(self, k: int) -> Window:
        """A little more than cell k, as what is at its border may be counted on either side."""
        width = (self.right - self.left) / CELLS
        left, right = self.left + (k - 1e-6) * width, self.left + (k + 1 + 1e-6) * width
        return Window(float(np.nextafter(left, -np.inf)), float(np.nextafter(right, np.inf)))


@dataclass(frozen=True)
class Bends:
    """slope: what the rows of each shard add to the slope of P at the left end. at, jump: (m,)
    float64 of each, the bends inside of the window and by how much the slope grows there; cells:
    (CELLS,) float64 of each that has too many, by how much it grows in each cell."""

    slope: list[float]
    at: list[np.ndarray]
    jump: list[np.ndarray]
    cells: list[np.ndarray]

    @staticmethod
    def of(slope: float, at: np.ndarray, jump: np.ndarray, window: Window) -> Bends:
        """Of one shard."""
        if len(at) <= MOST or math.isinf(window.left):
            return Bends([slope], [at.copy()], [jump.copy()], [])
        cells = window.cells_of(at)
        if np.bincount(cells).max() > len(at) // 8:
            # Rows that are alike have one bend, which no cell is narrow enough for.
            values, places = np.unique(at, return_inverse=True)
            if len(values) <= MOST:
                return Bends([slope], [values], [np.bincount(places, jump)], [])
        return Bends([slope], [], [], [np.bincount(cells, jump, CELLS)])

    def __add__(self, other: Bends) -> Bends:
        return Bends(
            self.slope + other.slope,
            self.at + other.at,
            self.jump + other.jump,
            self.cells + other.cells,
        )

    def minimum(self, total: float, window: Window, most: float) -> float | Window:
        """b, or the window that is to be asked next. most: the largest sum of bounds that there
        could be."""
        at, rise = np.concatenate([*self.at, []]), np.concatenate([*self.jump, []])
        slope, nothing = in_order(self.slope) + total, NOTHING * most
        if self.cells:
            rise = np.sum([*self.cells, np.bincount(window.cells_of(at), rise, CELLS)], axis=0)
        else:
            order = np.argsort(at, kind="stable")
            at, rise = at[order], rise[order]
        slopes = slope + np.cumsum(rise)
        reached = slopes >= -nothing
        if not math.isinf(window.left) and not (slope <= nothing and reached.any()):
            return window.wider()
        if not len(slopes):
            return 0.0
        k = int(np.argmax(reached)) if reached.any() else len(slopes) - 1
        if self.cells:
            return window.cell(k)
        flat = slopes[k] <= nothing and k + 1 < len(at)
        return float((at[k] + at[k + 1]) / 2) if flat else float(at[k])
