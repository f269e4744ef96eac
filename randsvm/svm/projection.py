"""Make coefficients feasible: within their boxes, and with the sum that the task prescribes.

The functions work on arrays of some rows; they know nothing of scans or solvers.
"""

from __future__ import annotations

import math

import numpy as np

from randsvm.svm.tasks import BOUND_ROUNDING, SUM_ROUNDING, Task

# A coefficient counts as bounded at this distance from its bound, relative to the largest
# coefficient, if the distance is at most the share BOUND_ROUNDING of its box. Sums round by less.
# Otherwise the row would seem to violate its condition, and no move is large enough to mend that.
NEAR_ROUNDING = 1e-14


def clipped(beta: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Clip beta to its box, and to the bound where it differs by rounding. All (m,) float64."""
    largest = float(np.abs(beta).max(initial=0.0))
    near = np.minimum(NEAR_ROUNDING * largest, BOUND_ROUNDING * (upper - lower))
    beta = np.where(beta <= lower + near, lower, beta)
    return np.where(beta >= upper - near, upper, beta)


def restore_sum(
    beta: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    total: float,
    order: np.ndarray | None = None,
) -> np.ndarray:
    """Return beta with the sum `total`, or the nearest sum without a change of any sign.

    beta, lower, upper : (m,) float64, beta within its box. Unbounded coefficients move first, all
    by the same share of their distance to the bound. If that is not enough, as few bounded ones as
    possible move, one after the other, in ascending `order` : (m,), or in the order of the rows.
    """
    excess = math.fsum(beta) - total
    if excess < 0:
        return -restore_sum(-beta, -upper, -lower, -total, order)
    if excess <= SUM_ROUNDING * max(abs(total), float(np.abs(beta).sum())):
        return beta
    beta, floor = beta.copy(), np.where(beta > 0, np.maximum(lower, 0.0), lower)
    unbounded = np.flatnonzero((beta > lower) & (beta < upper) & (beta != 0))
    way = beta[unbounded] - floor[unbounded]
    if way.sum() > excess:
        beta[unbounded] -= way * (excess / way.sum())
    else:
        beta[unbounded] = floor[unbounded]
        bounded = np.flatnonzero((beta > floor) & (beta == upper))
        bounded = bounded if order is None else bounded[np.argsort(order[bounded], kind="stable")]
        ends = np.cumsum(beta[bounded] - floor[bounded])
        whole = int(np.searchsorted(ends, excess - way.sum(), side="right"))
        beta[bounded[:whole]] = floor[bounded[:whole]]
        unbounded = bounded[whole : whole + 1]
        beta[unbounded] -= math.fsum(beta) - total
    return _exact(beta, floor, upper, total, unbounded)


def _exact(
    beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, total: float, free: np.ndarray
) -> np.ndarray:
    """Add the rounding error of the sum to the coefficient with the most room, and return beta.

    free : (k,) integers, the coefficients that may move.
    """
    if len(free):
        room = np.minimum(beta[free] - lower[free], upper[free] - beta[free])
        one = free[int(room.argmax())]
        beta[one] -= math.fsum(beta) - total
    return np.clip(beta, lower, upper)


def fill_sums_by_violation(
    task: Task,
    y: np.ndarray,
    u: np.ndarray,
    beta: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return beta, increased to the sums that the task prescribes.

    The rows with the largest violation by u go to their bounds, one after the other. All arrays are
    (m,) float64, of all rows of D.
    """
    every = np.zeros(len(beta))
    for group in task.groups:
        lower, upper = group.box(y, weights)
        own, sign = np.clip(beta, lower, upper), np.sign(group.coefficient_sum)
        most = upper if sign > 0 else -lower
        every += sign * fill_to_sum(sign * own, most, sign * group.coefficient_sum, sign * (u - y))
    return every


def fill_to_sum(beta: np.ndarray, upper: np.ndarray, total: float, order: np.ndarray) -> np.ndarray:
    """Return beta >= 0, increased to the sum `total`.

    Coefficients go to their upper bounds in ascending `order`, the last one only as far as needed.
    beta, upper, order : (m,) float64.
    """
    missing = total - math.fsum(beta)
    ranked = np.argsort(order, kind="stable")
    ranked = ranked[beta[ranked] < upper[ranked]]
    ends = np.cumsum(upper[ranked] - beta[ranked])
    whole = int(np.searchsorted(ends, missing, side="right"))
    beta = beta.copy()
    beta[ranked[:whole]] = upper[ranked[:whole]]
    last = ranked[whole : whole + 1]
    beta[last] = np.clip(beta[last] + (total - math.fsum(beta)), 0.0, upper[last])
    return beta
