"""A plain Python reference of the compiled scan over rows, randsvm/svm/_kkt_scan.pyx."""

from math import inf
from typing import NamedTuple

import numpy as np


class Box(NamedTuple):
    """Bounds of |beta|, for rows with y > 0 and for the others.

    one_sided: beta has the sign of y.
    """

    positive: float
    negative: float
    epsilon: float
    one_sided: bool

    def of(self, y: float, weight: float) -> tuple[float, float]:
        """Return the lower and the upper bound of beta for a row with label y and a weight."""
        if not self.one_sided:
            return -self.negative * weight, self.positive * weight
        return (0.0, self.positive * weight) if y > 0 else (-self.negative * weight, 0.0)


class Breakpoints(NamedTuple):
    """The slope of P at `left`, and its breakpoints.

    inside : where in (left, right] the slope of P grows, each with the growth
    outside : the nearest bend at or before left, and the nearest one after right
    """

    slope: float
    inside: list[tuple[float, float]]
    outside: tuple[float, float]


def breakpoints(
    y: np.ndarray, u: np.ndarray, weights: np.ndarray | None, box: Box, left: float, right: float
) -> Breakpoints:
    weights = np.ones(len(y)) if weights is None else weights
    slope, inside, before, behind = 0.0, [], -inf, inf
    for i in range(len(y)):
        lower, upper = box.of(y[i], weights[i])
        # A row loses upper (z - epsilon) for each b below z - epsilon, lower (z + epsilon) above.
        for bend, bound in ((y[i] - u[i] - box.epsilon, upper), (y[i] - u[i] + box.epsilon, lower)):
            if (bound > 0 and left < bend) or (bound < 0 and left >= bend):
                slope -= bound
            if bound != 0 and left < bend <= right:
                inside.append((bend, abs(bound)))
            if bound != 0 and bend <= left:
                before = max(before, bend)
            if bound != 0 and bend > right:
                behind = min(behind, bend)
    return Breakpoints(slope, inside, (before, behind))


class Violations(NamedTuple):
    """Violators of the KKT conditions.

    rising, falling : rows with their slopes, in order
    steepest_rise, steepest_fall : a row and its slope; the row is -1 if there is none
    """

    loss: float
    norm: float
    linear: float
    rising: list[tuple[int, float]]
    falling: list[tuple[int, float]]
    steepest_rise: tuple[int, float]
    steepest_fall: tuple[int, float]


def violations(
    y: np.ndarray,
    u: np.ndarray,
    beta: np.ndarray,
    weights: np.ndarray | None,
    box: Box,
    b: float,
    tolerance: float,
) -> Violations:
    weights = np.ones(len(y)) if weights is None else weights
    loss, rising, falling = 0.0, [], []
    rises, falls = [(-1, -inf)], [(-1, inf)]
    for i in range(len(y)):
        lower, upper = box.of(y[i], weights[i])
        below, above = y[i] - u[i] - box.epsilon, y[i] - u[i] + box.epsilon
        loss += max(0.0, upper * (below - b)) + max(0.0, lower * (above - b))
        if not lower <= beta[i] <= upper:
            continue
        if beta[i] < upper:
            rise = above if beta[i] < 0 else below
            rises.append((i, rise))
            if rise - b > tolerance:
                rising.append((i, rise))
        if beta[i] > lower:
            fall = below if beta[i] > 0 else above
            falls.append((i, fall))
            if b - fall > tolerance:
                falling.append((i, fall))
    # max and min return the first of equal rows.
    return Violations(
        loss,
        float(beta @ u),
        float(y @ beta) - box.epsilon * float(np.abs(beta).sum()),
        rising,
        falling,
        max(rises, key=lambda row: row[1]),
        min(falls, key=lambda row: row[1]),
    )
