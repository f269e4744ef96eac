"""The offset b that minimises P(w, b) over all rows, for given decision values without it.

P is convex and piecewise linear in b: its slope is total - sum of upper over rows with bend `below`
beyond b - sum of lower over rows with bend `above` before it (see Task.bends), so the minimum is at
a bend. Shards report their slope at the left end of a window and the bends inside; where the
minimum is not in the window, it is asked again with a wider one. Reports add up with +.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from randsvm.arrays import in_order

# How much wider a window becomes that did not hold the minimum.
WIDER = 16.0


@dataclass(frozen=True)
class Window:
    left: float
    right: float

    @staticmethod
    def around(b: float, width: float) -> Window:
        return Window(b - width, b + width) if math.isfinite(width) else Window(-np.inf, np.inf)

    def wider(self) -> Window:
        middle, width = (self.left + self.right) / 2, (self.right - self.left) / 2
        return Window.around(middle, WIDER * width if width > 0 else np.inf)


@dataclass(frozen=True)
class Bends:
    """slope: what the rows of each shard add to the slope of P at the left end. at, jump: (m,)
    float64 of each, the bends inside of the window and by how much the slope grows there."""

    slope: list[float]
    at: list[np.ndarray]
    jump: list[np.ndarray]

    def __add__(self, other: Bends) -> Bends:
        return Bends(self.slope + other.slope, self.at + other.at, self.jump + other.jump)

    def minimum(self, total: float, window: Window) -> float | None:
        """b, or None where the minimum lies outside of the window."""
        at, jump, slope = np.concatenate(self.at), np.concatenate(self.jump), in_order(self.slope)
        order = np.argsort(at, kind="stable")
        at = at[order]
        slopes = slope + total + np.cumsum(jump[order])
        # Sums of many bounds: what should be 0 is not quite.
        nothing = 1e-12 * (abs(slope) + float(jump.sum()))
        whole = math.isinf(window.left)
        if not len(at) or not (slopes[-1] >= -nothing):
            return 0.0 if whole and not len(at) else (float(at[-1]) if whole else None)
        if slope + total > nothing and not whole:
            return None
        k = int(np.argmax(slopes >= -nothing))
        flat = slopes[k] <= nothing and k + 1 < len(at)
        return float((at[k] + at[k + 1]) / 2) if flat else float(at[k])
