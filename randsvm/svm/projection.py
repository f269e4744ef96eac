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


def with_sum(
    beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, total: float, order: np.ndarray
) -> np.ndarray:
    """Return beta, which is within its box, with the sum `total`, or the nearest one that the box
    allows. A sum that differs by rounding stays.

    To raise the sum, coefficients go to their upper bounds in ascending `order`; to lower it, to
    their lower bounds in descending order. The last one goes only as far as needed. All are (m,)
    float64.
    """
    missing = total - math.fsum(beta)
    if abs(missing) <= SUM_ROUNDING * max(abs(total), float(np.abs(beta).sum())):
        return beta
    if missing < 0:
        return -with_sum(-beta, -upper, -lower, -total, -order)
    ranked = np.argsort(order, kind="stable")
    ranked = ranked[beta[ranked] < upper[ranked]]
    ends = np.cumsum(upper[ranked] - beta[ranked])
    whole = int(np.searchsorted(ends, missing, side="right"))
    beta = beta.copy()
    beta[ranked[:whole]] = upper[ranked[:whole]]
    last = ranked[whole : whole + 1]
    beta[last] = np.clip(beta[last] + (total - math.fsum(beta)), lower[last], upper[last])
    return beta


def with_sums_by_violation(
    task: Task,
    y: np.ndarray,
    u: np.ndarray,
    beta: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return beta with the sums that the task prescribes.

    The rows with the largest violation by u go to their bounds, one after the other; none crosses
    0. All arrays are (m,) float64, of all rows of D.
    """
    every = np.zeros(len(beta))
    for group in task.groups:
        lower, upper = group.box(y, weights)
        own = np.clip(beta, lower, upper)
        lower = np.where(own > 0, np.maximum(lower, 0.0), lower)
        upper = np.where(own < 0, np.minimum(upper, 0.0), upper)
        every += with_sum(own, lower, upper, group.coefficient_sum, u - y)
    return every
