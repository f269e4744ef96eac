"""A subproblem of the nu tasks: two sums, one of the coefficients above 0 and one of those below.

    min 1/2 beta' K beta - h' beta,   beta = a - a*,   0 <= a <= upper,   0 <= a* <= -lower
    sum_i a_i = p,  sum_i a*_i = q

nu-SVC has a where y = 1 and a* where y = -1; nu-SVR has both in every row, so that the sum of
|beta| is p + q where none has both, and less where some have. All bounds but 0 are one C.

With a = C t and a* = C t this is LIBSVM's nu-SVC, labels 1 and -1, but for

    the linear term: two corner rows of label 1 stay at t = 1, as in subproblem_qp.py.
    the sums: LIBSVM's are equal. What one is short of the other, in whole parts, are copies of a
        pseudo-row that stays at its bound; what remains, r, is one pinned row. It has a large
        diagonal H, and values with the corner rows that give it the gradient at t = r that the
        free rows of its group are expected to have. It ends where theirs is, next to r, and the
        difference is given back.

Without a linear term and with equal sums it is LIBSVM's nu-SVC as it is, see _plain.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from randsvm.svm.libsvm import Caller, at_once, nu_svc
from randsvm.svm.subproblem_qp import HOLD, Boxed, Solution, one_box, only_point, set_linear_term

# Pseudo-rows behind the two of the linear term.
HELD, PIN = 2, 3
# H beside the largest kernel value. LIBSVM tightens the other rows by its root before it looks at
# the pinned row again; what the sum is off by, relative to C, is the violation over H.
STIFF = 2.0**15


def solve_two_sums(
    K: np.ndarray,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    sums: tuple[float, float],
    start: np.ndarray,
    tolerance: float = 5e-4,
    call: Caller = at_once,
) -> Solution:
    """Solve the subproblem above to `tolerance`, the largest difference of gradients of a group.

    K : (m, m) float32, C-contiguous, symmetric. h, lower, upper : (m,) float64. sums: p and q.
    start : (m,) float64 within the bounds. call: see Caller. Raises ValueError where no beta has
    these sums.
    """
    h = np.ascontiguousarray(h, np.float64)
    m, zero = len(h), np.zeros(len(h))
    above, below = np.maximum(start, 0.0), np.minimum(start, 0.0)
    if (lower < 0).any() and (upper[lower < 0] > 0).any():
        h, start = np.tile(h, 2), np.concatenate([above, below])
        lower, upper = np.concatenate([zero, lower]), np.concatenate([upper, zero])
    task = Boxed(K, h, lower, upper, sums[0] - sums[1], start, tolerance)
    found = _solved(task, upper > 0, sums, call)
    return found._replace(beta=found.beta.reshape(-1, m).sum(axis=0))


def _solved(task: Boxed, positive: np.ndarray, sums: tuple[float, float], call: Caller) -> Solution:
    """positive : (variables,) bool, the group of a."""
    beta, open_groups = task.start.copy(), []
    for group, total in ((positive, sums[0]), (~positive, -sums[1])):
        point = only_point(task.lower[group], task.upper[group], total)
        if point is None:
            open_groups.append(group)
        else:
            beta[group] = point
    if not open_groups:
        return Solution(beta, True, 0)
    if len(open_groups) == 1:
        return _one_group(replace(task, start=beta), open_groups[0], call)
    return _both_groups(task, positive, sums, call)


def _one_group(task: Boxed, group: np.ndarray, call: Caller) -> Solution:
    """The variables of one group, with those of the other where start has them."""
    beta, rows = task.start.copy(), np.flatnonzero(group) % len(task.K)
    outside = replace(task, h=np.zeros(len(beta))).gradient(np.where(group, 0.0, beta))
    alone = Boxed(
        np.ascontiguousarray(task.K[np.ix_(rows, rows)]),
        (task.h - outside)[group],
        task.lower[group],
        task.upper[group],
        task.s - math.fsum(beta[~group]),
        beta[group],
        task.tolerance,
    )
    found = one_box(alone, call)
    beta[group] = found.beta
    return found._replace(beta=beta)


def _both_groups(
    task: Boxed, positive: np.ndarray, sums: tuple[float, float], call: Caller
) -> Solution:
    """See the head of this file."""
    plain = None
    if sums[0] == sums[1] and not task.h.any():
        plain = _plain(task, positive, sums, call)
    if plain is not None:
        return plain
    C = float((task.upper - task.lower)[0])
    sign = np.where(positive, 1.0, -1.0)
    t = np.abs(task.start) / C
    # Of each group bounded ones first, so that LIBSVM begins near the start.
    order = np.lexsort((-t, ~positive))
    slope = task.gradient(task.start) / C
    levels = [_level(sign[g] * slope[g], t[g]) for g in (positive, ~positive)]
    # Moves LIBSVM's rho, the mean of both, away from 0, and nothing else.
    shift = 8 * float(np.abs(slope).max()) + 1 - sum(levels)
    whole, rest = divmod((sums[0] - sums[1]) / C + 2, 1)
    pinned, level = (-1.0, levels[1]) if whole >= 0 else (1.0, levels[0] + shift)
    if whole < 0:
        whole, rest = (-whole - 1, 1 - rest) if rest else (-whole, 0.0)
    H = 2.0 ** math.ceil(math.log2(STIFF * max(float(np.abs(np.diag(task.K)).max()), 1e-300)))
    layout = task.layout(order)
    w = (-task.h / C + np.where(positive, shift, 0.0))[order]
    set_linear_term(layout, w, pinned * (level - H * rest))
    zero = np.zeros(len(order))
    layout.set_extra(HELD, zero, [0.0, 0.0, HOLD, 0.0])
    layout.set_extra(PIN, zero, [0.0, 0.0, 0.0, H])
    m, whole = len(order), int(whole)
    rows = np.concatenate([[m, m + 1], np.full(whole, m + HELD), [m + PIN], np.arange(m)])
    labels = np.concatenate([[1.0, 1.0], np.full(whole + 1, pinned), sign[order]])
    total = sums[0] / C + 2 if pinned < 0 else sums[1] / C
    found = nu_svc(layout, rows, labels, total, task.tolerance / C, call)
    layout.close()
    beta = np.empty(m)
    # The first row stays at 1. Where kernel values are so large that their differences are lost,
    # LIBSVM's rho is 0 all the same: what is not finite then is refused by the first scan.
    with np.errstate(invalid="ignore"):
        beta[order] = C * sign[order] * (found.alpha[-m:] / found.alpha[0])
    return Solution(_with_sums(task, positive, sums, beta), found.ended, found.iterations)


def _plain(
    task: Boxed, positive: np.ndarray, sums: tuple[float, float], call: Caller
) -> Solution | None:
    """LIBSVM's own nu-SVC, from its own start. None: its rho is 0, by which it divides."""
    C = float((task.upper - task.lower)[0])
    sign = np.where(positive, 1.0, -1.0)
    order = np.argsort(~positive, kind="stable")
    layout, m = task.layout(order), len(order)
    found = nu_svc(layout, np.arange(m), sign[order], sums[0] / C, task.tolerance / C, call)
    layout.close()
    total = float(found.alpha.sum())
    if not 0 < total < math.inf:
        return None
    beta = np.empty(m)
    beta[order] = sign[order] * found.alpha * ((sums[0] + sums[1]) / total)
    return Solution(_with_sums(task, positive, sums, beta), found.ended, found.iterations)


def _with_sums(
    task: Boxed, positive: np.ndarray, sums: tuple[float, float], beta: np.ndarray
) -> np.ndarray:
    """beta within its bounds, each group with its sum."""
    for group, total in ((positive, sums[0]), (~positive, -sums[1])):
        one = np.where(group, task.lower, beta), np.where(group, task.upper, beta)
        others = math.fsum(beta[~group])
        beta = replace(task, lower=one[0], upper=one[1], s=total + others).finished(beta)
    return beta


def _level(slope: np.ndarray, t: np.ndarray) -> float:
    """The gradient that free variables of a group have, or will have: between that of those that
    may rise and of those that may fall."""
    falls, rises = slope[t > 0].max(initial=-np.inf), slope[t < 1].min(initial=np.inf)
    ends = [float(end) for end in (falls, rises) if math.isfinite(end)]
    return sum(ends) / len(ends)
