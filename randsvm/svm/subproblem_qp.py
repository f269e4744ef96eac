"""The forms of the subproblem over the rows W of a working set, with all others fixed:

    min 1/2 beta' K beta - h' beta + epsilon sum_i |beta_i|
    lower <= beta <= upper,  sum_i beta_i = s

    task           h       lower .. upper                       epsilon
    C-SVC          y - g   0 .. C+ if y = 1, -C- .. 0 if y = -1   0
    epsilon-SVR    y - g   -C .. C                              epsilon
    one-class      -g      0 .. 1                               0

with g_i = u_i - (K beta_W)_i, the part of u that stays fixed. subproblem.py chooses the form.

This module knows nothing of data, kernels or scans. It calls LIBSVM through libsvm.py.

One box. If upper - lower is the same C for all rows, the subproblem is LIBSVM's one-class problem
with a linear term. With beta = lower + C t it is

    min 1/2 t' K t + q' t,  0 <= t <= 1,  sum_i t_i = (s - sum lower) / C,   q = (K lower - h) / C.

LIBSVM has no linear term q. Two pseudo-rows at t = 1 replace it: their kernel values with row i sum
to q_i, the first rounded to float32, as LIBSVM stores it, and the second with the remainder. They
come first, so that LIBSVM starts with t = 1 for them, and their diagonal is so negative that they
stay there. The other rows follow in descending order of their start, so that LIBSVM starts with
bounded coefficients where they are. The sum is exact.

An epsilon-SVR has one variable for the sign that a row is expected to have (0 <= a <= C with
h - epsilon, or -C <= a* <= 0 with h + epsilon). Rows that change their sign repeatedly have both
variables, beta = a + a*. From beta = 0 the subproblem is LIBSVM's own epsilon-SVR.

With two boxes (class weights) the subproblem is a C-SVC, see _TwoBoxes. With a box for each row
(weights of rows) see subproblem_row_boxes.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import randsvm.svm._solver as _solver
from randsvm.svm.libsvm import (
    HELD_ROW,
    MAX_SUM,
    PINNED_ROW,
    PINNING_VALUE,
    Outcome,
    PrecomputedNodes,
    c_svc,
    nu_svc,
    one_class,
    set_linear_term,
)
from randsvm.svm.subproblem_row_boxes import MAX_ROW_BOX_SOLVES, RowBoxQP, solve_row_boxes

# A coefficient at this distance from its bound, relative to the box, counts as bounded: LIBSVM's
# steps have rounding errors.
BOUND_ROUNDING = 1e-13
# Limit on the restarts of by_signs and by_windows.
MAX_RESTARTS = 3
# A round may leave rows at 0 whose coefficients should take the other sign, if they are at most
# this share of the working set; they are violators in the next round. Measured, processor seconds
# and rounds with 1,500 rows a round, if all such rows change their sign in the round, with this
# limit, and if none does: arm of 8 joints (8,000 rows, epsilon 0.01) 4.1 s, 2.7 s and 2.6 s, 41,
# 41 and 45 rounds; elevators (epsilon 0.01) 5.5 s, 3.6 s and 3.6 s, 34, 35 and 56 rounds; sinc
# (20,000 rows, epsilon 0.001) 2.8 s, 1.9 s and 3.4 s, 30, 29 and 135 rounds.
TURNED_SHARE = 0.01
# by_windows tries windows if the slopes differ by at most this many steps of one narrow box.
MAX_WINDOW_STEPS = 2
# Number of coefficients that _TwoBoxes tries as the one that provides the sum.
MAX_SUM_ROWS = 30
# Relative rounding of a sum in float64. It changes the gradient of a one-class problem by this
# share of the gradient with all variables at their bounds. ROUNDING_SHARE: the share of the
# tolerance that the change may reach. one_box narrows boxes that are too wide for that, and
# multiplies their width by WIDENING while they bind.
FLOAT64_ROUNDING = 2.0**-52
ROUNDING_SHARE, WIDENING = 0.1, 256.0


class Solution(NamedTuple):
    """The solution of a subproblem.

    beta : (m,) float64, equal to lower or upper where it is bounded. ended: False if LIBSVM reached
    its limit of iterations. iterations: the number in all of LIBSVM's solves.
    """

    beta: np.ndarray
    ended: bool
    iterations: int


def product(K: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return K beta, (m,) float64, summed in float64. K : (m, m) float32, symmetric; beta : (m,).

    K is the float32 matrix that LIBSVM reads, so that the rounding of K cancels for coefficients
    that do not change. Rows with beta = 0 cost no time.
    """
    out = np.zeros(len(beta))
    _solver.product(K, np.ascontiguousarray(beta, np.float64), out)
    return out


def only_point(lower: np.ndarray, upper: np.ndarray, s: float) -> np.ndarray | None:
    """Return the only feasible point if s is the least or the largest sum; else None."""
    least, most = float(lower.sum()), float(upper.sum())
    rounding = 1e-13 * (1 + np.abs(lower).sum() + np.abs(upper).sum())
    if not least - 1e4 * rounding <= s <= most + 1e4 * rounding:
        raise ValueError(f"coefficients between {least:g} and {most:g} in all cannot sum to {s:g}")
    if s <= least + rounding:
        return lower.astype(np.float64)
    if s >= most - rounding:
        return upper.astype(np.float64)
    return None


@dataclass(frozen=True)
class BoxQP:
    """The subproblem without epsilon.

    K : (m, m) float32. index : (variables,) int64, the row of K of each variable; None: variable i
    has row i % m. h, lower, upper, start : (variables,) float64. s: the sum of the coefficients.
    """

    K: np.ndarray
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    s: float
    start: np.ndarray
    tolerance: float
    index: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """Return the row of K of each variable, (variables,) int64."""
        return np.arange(len(self.h)) % len(self.K) if self.index is None else self.index

    @property
    def has_one_box(self) -> bool:
        """Return whether all boxes have the same width, up to the rounding of their bounds."""
        width = self.upper - self.lower
        largest = max(float(np.abs(self.lower).max()), float(np.abs(self.upper).max()))
        return bool(np.ptp(width) <= 2 * FLOAT64_ROUNDING * largest)

    @property
    def has_two_boxes(self) -> bool:
        """Return whether all boxes end at 0; those above have one width, those below also."""
        above, below = self.upper > 0, self.upper <= 0
        if (self.lower[above] != 0).any() or (self.upper[below] != 0).any():
            return False
        return all(
            not len(widths) or not np.ptp(widths)
            for widths in (self.upper[above], self.lower[below])
        )

    def gradient(self, beta: np.ndarray) -> np.ndarray:
        """Return K beta - h, (variables,) float64."""
        rows = self.rows
        return product(self.K, np.bincount(rows, beta, len(self.K)))[rows] - self.h

    def layout(self, order: np.ndarray) -> PrecomputedNodes:
        """Return the layout of the variables in this order."""
        return PrecomputedNodes.of(self.K, self.rows[order])

    @property
    def position_in_box(self) -> np.ndarray:
        """Return the position of start in its box, from 0 to 1, (variables,) float64."""
        return (self.start - self.lower) / (self.upper - self.lower)

    def finished(self, beta: np.ndarray, solved: float | None = None) -> np.ndarray:
        """Return beta with values near or beyond a bound set to it, and with the sum s.

        solved: the width by which LIBSVM's variables were multiplied, which rounds beta; None: that
        of the task's boxes; 0: beta is as LIBSVM returned it.
        """
        beta = self._in_box(beta, solved)
        _restore_sum(beta, self)
        return self._in_box(beta, solved)

    def _in_box(self, beta: np.ndarray, solved: float | None) -> np.ndarray:
        width = self.upper - self.lower
        # Coefficients may be tiny compared with their box; only rounding may move them to a bound.
        rounding = BOUND_ROUNDING * np.abs(beta).max(initial=0.0)
        rounding = rounding + 8 * FLOAT64_ROUNDING * (width if solved is None else solved)
        near = np.minimum(BOUND_ROUNDING * width, rounding)
        beta = np.where(beta <= self.lower + near, self.lower, beta)
        return np.where(beta >= self.upper - near, self.upper, beta)


def _restore_sum(beta: np.ndarray, task: BoxQP) -> None:
    """Change beta in place so that its sum is s; all values stay within their boxes."""
    rest = task.s - math.fsum(beta.tolist())
    room = np.minimum(beta - task.lower, task.upper - beta)
    i = int(np.argmax(room))
    if abs(rest) <= room[i] / 2:
        beta[i] += rest
    elif abs(rest) > BOUND_ROUNDING * (task.upper - task.lower).sum():
        # The rest is more than rounding: change the coefficients that cost the objective least.
        side = math.copysign(1.0, rest)
        room = (task.upper if rest > 0 else -task.lower) - side * beta
        order = np.argsort(side * task.gradient(beta), kind="stable")
        filled = np.minimum(np.cumsum(room[order]), abs(rest))
        beta[order] += side * np.diff(filled, prepend=0.0)


def any_boxes(task: BoxQP, max_solves: int = MAX_ROW_BOX_SOLVES) -> Solution:
    """Solve a task with one box for all rows, or with a box for each row."""
    if task.has_one_box:
        return one_box(task)
    one_sum = np.zeros(len(task.h), np.int64), np.array([task.s])
    return _row_boxes(task, *one_sum, max_solves)


def _row_boxes(
    task: BoxQP, group: np.ndarray, sums: np.ndarray, max_solves: int = MAX_ROW_BOX_SOLVES
) -> Solution:
    """Solve a task with a box for each row, see subproblem_row_boxes.py."""
    boxes = RowBoxQP(
        task.K, task.rows, task.h, task.lower, task.upper, group, sums, task.start, task.tolerance
    )
    return Solution(*solve_row_boxes(boxes, max_solves))


def one_box(task: BoxQP) -> Solution:
    """Solve a task with one box for all rows, see the docstring of this module.

    If the box is far wider than the solution, beta = lower + C t loses digits of the gradient. So
    the task is solved in narrower boxes around the start, as wide as the tolerance allows. While a
    coefficient ends at a narrowed bound, the task is solved again from there in wider boxes.
    """
    C, iterations = float((task.upper - task.lower).max()), 0
    largest = len(task.h) * float(np.abs(task.K.diagonal()).max())
    width = ROUNDING_SHARE * task.tolerance / (FLOAT64_ROUNDING * largest) if largest > 0 else C
    # The linear term is the gradient divided by the width.
    width = max(width, 2 * float(np.abs(task.gradient(task.start)).max()) / MAX_SUM)
    while width < C:
        low = np.clip(task.start - width / 2, task.lower, task.upper - width)
        high = np.minimum(low + width, task.upper)
        found = _one_class(replace(task, lower=low, upper=high))
        iterations += found.iterations
        beta = found.beta
        if (
            not found.ended
            or not (
                ((beta <= low) & (low > task.lower)) | ((beta >= high) & (high < task.upper))
            ).any()
        ):
            return Solution(task.finished(beta, width), found.ended, iterations)
        task, width = replace(task, start=beta), width * WIDENING
    found = _one_class(task)
    return found._replace(iterations=iterations + found.iterations)


def _one_class(task: BoxQP) -> Solution:
    """Solve a task with one box as LIBSVM's one-class problem with a linear term."""
    C = float((task.upper - task.lower).max())
    order = np.argsort(-task.position_in_box, kind="stable")
    q = task.gradient(task.lower)[order] / C
    layout = task.layout(order)
    set_linear_term(layout, q)
    m = len(order)
    rows = np.concatenate([[m, m + 1], np.arange(m)])
    total = (task.s - math.fsum(task.lower)) / C + 2
    found = one_class(layout, rows, total, task.tolerance / C)
    layout.close()
    beta = np.empty(m)
    beta[order] = task.lower[order] + C * found.alpha[2:]
    return Solution(task.finished(beta), found.ended, found.iterations)


def by_signs(task: BoxQP, epsilon: float, b: float, partly: bool = False) -> Solution:
    """Solve a regression with one variable for each row, of the sign that its coefficient has.

    A coefficient of 0 gets the sign that it would take at the offset b. If rows of the solution
    should have the other sign, they change it, and the problem is solved again from there. After
    MAX_RESTARTS such rows get a variable for either sign, until no row changes. With `partly` it
    ends where few rows should change, once a coefficient has moved.

    Half as many variables need a quarter of the kernel values.
    """
    m = len(task.h)
    up = np.where(task.start != 0, task.start, -task.gradient(task.start) - b) > 0
    both, iterations, turns = np.zeros(m, bool), 0, 0
    left = int(TURNED_SHARE * m) if partly else 0
    first, rounding = task.start, BOUND_ROUNDING * float((task.upper - task.lower).max())
    while True:
        part = _signed(task, epsilon, up, np.flatnonzero(both))
        found = _within(part)
        iterations += found.iterations
        slope = -part.gradient(found.beta)
        b = sum(max_rise_and_min_fall(part, found.beta, slope)) / 2
        beta = np.bincount(part.rows, found.beta, m)
        across = np.where(up, b - slope[:m], slope[:m] - b) > 2 * epsilon + task.tolerance
        turned = across & (beta == 0) & ~both
        few = np.count_nonzero(turned) <= left and np.abs(beta - first).max() > rounding
        if not found.ended or few or not turned.any():
            return Solution(beta, found.ended, iterations)
        task, turns = replace(task, start=beta), turns + 1
        if turns < MAX_RESTARTS:
            up = up != turned
        else:
            both |= turned
            up = np.where(beta != 0, beta > 0, up)


def _signed(task: BoxQP, epsilon: float, up: np.ndarray, both: np.ndarray) -> BoxQP:
    """Return the task with one variable for each row, then one of the other sign for some rows.

    up : (m,) bool, whether the first variable is above 0; both : (k,) int64, the rows with two.
    """
    rows = np.concatenate([np.arange(len(up)), both])
    up = np.concatenate([up, ~up[both]])
    start = np.where((task.start[rows] > 0) == up, task.start[rows], 0.0)
    return replace(
        task,
        h=task.h[rows] - np.where(up, epsilon, -epsilon),
        lower=np.where(up, 0.0, task.lower[rows]),
        upper=np.where(up, task.upper[rows], 0.0),
        start=start,
        index=rows,
    )


def _within(part: BoxQP) -> Solution:
    """Solve within a part of the boxes that contains start."""
    bounded = only_point(part.lower, part.upper, part.s)
    return any_boxes(part) if bounded is None else Solution(bounded, True, 0)


def max_rise_and_min_fall(task: BoxQP, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
    """Return the steepest rise and the steepest fall; b of a solution is their midpoint."""
    rise = slope[beta < task.upper].max(initial=-np.inf)
    fall = slope[beta > task.lower].min(initial=np.inf)
    return float(rise), float(fall)


def needs_many_copies(task: BoxQP) -> bool:
    """Return whether _TwoBoxes would need more copies of one row than there are rows."""
    width = task.upper - task.lower
    s = task.s if task.upper[np.argmax(width)] > 0 else -task.s
    return s > len(task.h) * float(width.min())


def by_windows(task: BoxQP, b: float | None, partly: bool) -> Solution:
    """Solve a task with two boxes in windows: shrink wide boxes, solve, move the windows, repeat.

    A window is a part of a wide box, as wide as the narrow boxes. It reaches from the coefficient
    in the direction of its gradient at the offset b; None: the midpoint of the slopes. While
    coefficients end at a bound of their window only, the task is solved again from there. After
    MAX_RESTARTS two_boxes solves the task; at once if coefficients have far to move. If `partly`,
    or if two_boxes would need too many copies, some coefficients may stay where they are.

    LIBSVM starts at the given coefficients with one box, but at 0 with two.
    """
    width, slope = task.upper - task.lower, -task.gradient(task.start)
    narrow, iterations = float(width.min()), 0
    wide, partly = width > narrow, partly or needs_many_copies(task)
    rise, fall = max_rise_and_min_fall(task, task.start, slope)
    b = (rise + fall) / 2 if b is None else b
    far = rise - fall > MAX_WINDOW_STEPS * narrow * float(task.K.diagonal().max())
    for _ in range(0 if far and not partly else MAX_RESTARTS):
        rises = slope > b
        low = np.maximum(np.where(rises, task.start, task.start - narrow), task.lower)
        low = np.where(wide, np.minimum(low, task.upper - narrow), task.lower)
        high = np.where(wide, low + narrow, task.upper)
        found = _within(replace(task, lower=low, upper=high))
        iterations += found.iterations
        beta = task.finished(found.beta)
        slope = -task.gradient(beta)
        b = sum(max_rise_and_min_fall(task, beta, slope)) / 2
        below = (found.beta <= low) & (beta > task.lower) & (slope < b - task.tolerance)
        above = (found.beta >= high) & (beta < task.upper) & (slope > b + task.tolerance)
        if not found.ended or not (below | above).any():
            return Solution(beta, found.ended, iterations)
        task = replace(task, start=beta)
    if partly:
        return Solution(task.start, True, iterations)
    found = two_boxes(task)
    return found._replace(iterations=iterations + found.iterations)


def two_boxes(task: BoxQP) -> Solution:
    """Solve a task with class weights, see _TwoBoxes.

    If the wide boxes are those of negative coefficients, all signs are reversed, so that LIBSVM
    starts with beta = 0 and not with all of beta at C.
    """
    width = task.upper - task.lower
    A, B = float(width.max()), float(width.min())
    wide = width == A
    if task.upper[wide][0] > 0:
        return _TwoBoxes(task, wide, A, B).solve()
    mirrored = replace(
        task, h=-task.h, lower=-task.upper, upper=-task.lower, s=-task.s, start=-task.start
    )
    found = _TwoBoxes(mirrored, wide, A, B).solve()
    return found._replace(beta=0.0 - found.beta)


@dataclass(frozen=True)
class _TwoBoxes:
    """Boxes of width A for some rows and B < A for the others: LIBSVM's C-SVC with two C.

    LIBSVM starts with a = 0 and keeps sum_i y_i a_i = 0, with a_i <= A where the label y_i is 1 and
    a_i <= B where it is -1. So wide rows have label 1, beta = lower + a, and narrow ones have label
    -1, beta = upper - a. LIBSVM lacks two parts of the subproblem:

        the linear term: two pseudo-rows have label -1 and so negative a diagonal that LIBSVM moves
            them to a = B in its first steps and leaves them there. Their values with row i sum
            to w_i, as in one_box, and add -y_i B w_i to its gradient.
        the sum: one row starts where the sum requires it, even outside its box, and has copies
            with both labels, enough to reach its box from either side. If it ends outside its
            box, the solution within all boxes has it at the bound that it passed, since the
            objective is convex. So it is fixed there, and another row is tried. A pseudo-row with a
            large diagonal works instead, but LIBSVM then needs twice as many steps, or does not
            end at all.

    wide : (m,) bool.
    """

    task: BoxQP
    wide: np.ndarray
    A: float
    B: float

    def solve(self) -> Solution:
        """Solve with one row after another as the row that provides the sum."""
        task, iterations = self.task, 0
        lower, upper, near = task.lower, task.upper, BOUND_ROUNDING * self.A
        beta, fixed = task.start, np.full(len(self.wide), np.nan)
        for _ in range(min(MAX_SUM_ROWS, len(fixed))):
            room = np.minimum(beta - lower, upper - beta) / (upper - lower)
            k = int(np.argmax(np.where(np.isnan(fixed), room, -1.0)))
            beta, found = self._attempt(k, fixed)
            iterations += found.iterations
            if lower[k] - near <= beta[k] <= upper[k] + near or not found.ended:
                return Solution(task.finished(beta), found.ended, iterations)
            fixed[k] = lower[k] if beta[k] < lower[k] else upper[k]
            beta = task.finished(beta)
        return Solution(beta, False, iterations)

    def _attempt(self, k: int, fixed: np.ndarray) -> tuple[np.ndarray, Outcome]:
        """Solve with row k providing the sum; row k may leave its box.

        fixed : (m,) float64, the values of fixed coefficients, and nan for all others.
        """
        task, A, B = self.task, self.A, self.B
        loose = np.isnan(fixed)
        begin = np.where(loose, np.where(self.wide, task.lower, task.upper), fixed)
        begin[k] = task.s - 2 * B - (math.fsum(begin) - begin[k])
        up = math.ceil(max(0.0, task.upper[k] - begin[k]) / A)
        down = math.ceil(max(0.0, begin[k] - task.lower[k]) / B)
        index, y = self._variables(k, loose)
        layout = task.layout(index)
        set_linear_term(layout, -(task.gradient(begin)[index] + y) / B)
        last = len(index) - 1
        rows = np.concatenate([np.zeros(up), np.arange(1, last), np.full(down, last)])
        rows = np.append(rows, [last + 1, last + 2]).astype(np.int64)
        labels = np.concatenate([np.ones(up), y[1:-1], np.full(down + 2, -1.0)])
        found = c_svc(layout, rows, labels, (A, B), task.tolerance)
        layout.close()
        moved = labels * found.alpha
        begin[index[1:-1]] += moved[up : up + last - 1]
        begin[k] += math.fsum(moved[:up]) + math.fsum(moved[up + last - 1 : -2])
        return begin, found

    def _variables(self, k: int, loose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and labels in LIBSVM's order, 1 first: row k, the others, row k again."""
        others = np.flatnonzero(loose)
        others = others[others != k]
        others = others[np.argsort(~self.wide[others], kind="stable")]
        y = np.where(self.wide[others], 1.0, -1.0)
        return np.concatenate([[k], others, [k]]), np.concatenate([[1.0], y, [-1.0]])


# --- two sums -------------------------------------------------------------------------------
#
# The subproblem of the nu tasks has two sums, of the positive and of the negative coefficients:
#
#     min 1/2 beta' K beta - h' beta,   beta = a - a*,   0 <= a <= upper,   0 <= a* <= -lower
#     sum_i a_i = p,  sum_i a*_i = q
#
# nu-SVC has a where y = 1 and a* where y = -1. nu-SVR has both in every row, so the sum of |beta|
# is p + q if no row has both above 0, and less otherwise. All bounds other than 0 are the same C.
#
# With a = C t and a* = C t this is LIBSVM's nu-SVC, with labels 1 and -1, except for
#
#     the linear term: two pseudo-rows of label 1 stay at t = 1, as with one box.
#     the sums: LIBSVM's are equal. The group with the smaller sum gets copies of a pseudo-row that
#         stays at its bound, one for each whole C of the difference, and one pinned row for the
#         remainder r. The pinned row has a large diagonal H. Its values with the pseudo-rows of the
#         linear term give it, at t = r, the gradient that the free rows of its group are expected
#         to have. So it ends close to r; the small difference is returned to the other rows.
#
# Without a linear term and with equal sums it is exactly LIBSVM's nu-SVC, see _without_pins.

# H relative to the largest kernel value. LIBSVM reduces the violation of the other rows by the root
# of H before it selects the pinned row again. The error of the sum, relative to C, is the violation
# divided by H.
PIN_STIFFNESS = 2.0**15


def solve_two_sums(
    K: np.ndarray,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    sums: tuple[float, float],
    start: np.ndarray,
    tolerance: float = 5e-4,
) -> Solution:
    """Solve the subproblem above to `tolerance`, the largest difference of gradients of a group.

    K : (m, m) float32, C-contiguous, symmetric. h, lower, upper : (m,) float64. sums: p and q.
    start : (m,) float64 within the bounds. Raises ValueError if no feasible beta has these sums.
    """
    h = np.ascontiguousarray(h, np.float64)
    m, zero = len(h), np.zeros(len(h))
    above, below = np.maximum(start, 0.0), np.minimum(start, 0.0)
    if (lower < 0).any() and (upper[lower < 0] > 0).any():
        h, start = np.tile(h, 2), np.concatenate([above, below])
        lower, upper = np.concatenate([zero, lower]), np.concatenate([upper, zero])
    task = BoxQP(K, h, lower, upper, sums[0] - sums[1], start, tolerance)
    found = _solved(task, upper > 0, sums)
    return found._replace(beta=found.beta.reshape(-1, m).sum(axis=0))


def _solved(task: BoxQP, positive: np.ndarray, sums: tuple[float, float]) -> Solution:
    """Solve for the groups that have a choice. positive : (variables,) bool, the group of a."""
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
        return _one_group(replace(task, start=beta), open_groups[0])
    return _both_groups(task, positive, sums)


def _one_group(task: BoxQP, group: np.ndarray) -> Solution:
    """Solve for the variables of one group, with those of the other fixed at start."""
    beta, rows = task.start.copy(), np.flatnonzero(group) % len(task.K)
    outside = replace(task, h=np.zeros(len(beta))).gradient(np.where(group, 0.0, beta))
    alone = BoxQP(
        np.ascontiguousarray(task.K[np.ix_(rows, rows)]),
        (task.h - outside)[group],
        task.lower[group],
        task.upper[group],
        task.s - math.fsum(beta[~group]),
        beta[group],
        task.tolerance,
    )
    found = any_boxes(alone)
    beta[group] = found.beta
    return found._replace(beta=beta)


def _both_groups(task: BoxQP, positive: np.ndarray, sums: tuple[float, float]) -> Solution:
    """Solve for both groups, see the comment above."""
    if not task.has_one_box:
        task = replace(task, start=_with_sums(task, positive, sums, task.start))
        group = np.where(positive, 0, 1)
        return _row_boxes(task, group, np.array([sums[0], -sums[1]]))
    plain = None
    if sums[0] == sums[1] and not task.h.any():
        plain = _without_pins(task, positive, sums)
    if plain is not None:
        return plain
    C = float((task.upper - task.lower)[0])
    sign = np.where(positive, 1.0, -1.0)
    t = np.abs(task.start) / C
    # Bounded variables come first in each group, so that LIBSVM starts near `task.start`.
    order = np.lexsort((-t, ~positive))
    slope = task.gradient(task.start) / C
    gradients = [_free_gradient(sign[g] * slope[g], t[g]) for g in (positive, ~positive)]
    # The shift only moves LIBSVM's rho, the mean of both gradients, away from 0.
    shift = 8 * float(np.abs(slope).max()) + 1 - sum(gradients)
    whole, rest = divmod((sums[0] - sums[1]) / C + 2, 1)
    pinned, pinned_gradient = (-1.0, gradients[1]) if whole >= 0 else (1.0, gradients[0] + shift)
    if whole < 0:
        whole, rest = (-whole - 1, 1 - rest) if rest else (-whole, 0.0)
    H = 2.0 ** math.ceil(
        math.log2(PIN_STIFFNESS * max(float(np.abs(np.diag(task.K)).max()), 1e-300))
    )
    layout = task.layout(order)
    w = (-task.h / C + np.where(positive, shift, 0.0))[order]
    set_linear_term(layout, w, pinned * (pinned_gradient - H * rest))
    zero = np.zeros(len(order))
    layout.set_extra(HELD_ROW, zero, [0.0, 0.0, PINNING_VALUE, 0.0])
    layout.set_extra(PINNED_ROW, zero, [0.0, 0.0, 0.0, H])
    m, whole = len(order), int(whole)
    rows = np.concatenate(
        [[m, m + 1], np.full(whole, m + HELD_ROW), [m + PINNED_ROW], np.arange(m)]
    )
    labels = np.concatenate([[1.0, 1.0], np.full(whole + 1, pinned), sign[order]])
    total = sums[0] / C + 2 if pinned < 0 else sums[1] / C
    found = nu_svc(layout, rows, labels, total, task.tolerance / C)
    layout.close()
    beta = np.empty(m)
    # The first row stays at 1. If kernel values are so large that their differences are lost,
    # LIBSVM's rho is 0 nevertheless. Then beta is not finite, and the first scan raises an error.
    with np.errstate(invalid="ignore"):
        beta[order] = C * sign[order] * (found.alpha[-m:] / found.alpha[0])
    return Solution(_with_sums(task, positive, sums, beta), found.ended, found.iterations)


def _without_pins(task: BoxQP, positive: np.ndarray, sums: tuple[float, float]) -> Solution | None:
    """Solve LIBSVM's own nu-SVC from its own start; return None if its divisor rho is 0."""
    C = float((task.upper - task.lower)[0])
    sign = np.where(positive, 1.0, -1.0)
    order = np.argsort(~positive, kind="stable")
    layout, m = task.layout(order), len(order)
    found = nu_svc(layout, np.arange(m), sign[order], sums[0] / C, task.tolerance / C)
    layout.close()
    total = float(found.alpha.sum())
    if not 0 < total < math.inf:
        return None
    beta = np.empty(m)
    beta[order] = sign[order] * found.alpha * ((sums[0] + sums[1]) / total)
    return Solution(_with_sums(task, positive, sums, beta), found.ended, found.iterations)


def _with_sums(
    task: BoxQP, positive: np.ndarray, sums: tuple[float, float], beta: np.ndarray
) -> np.ndarray:
    """Return beta within its bounds, each group with its sum."""
    for group, total in ((positive, sums[0]), (~positive, -sums[1])):
        one = np.where(group, task.lower, beta), np.where(group, task.upper, beta)
        others = math.fsum(beta[~group])
        beta = replace(task, lower=one[0], upper=one[1], s=total + others).finished(beta)
    return beta


def _free_gradient(slope: np.ndarray, t: np.ndarray) -> float:
    """Return the gradient that free variables of a group have or will have.

    It lies between the gradients of the variables that may rise and of those that may fall.
    slope, t : (variables of the group,) float64.
    """
    falls, rises = slope[t > 0].max(initial=-np.inf), slope[t < 1].min(initial=np.inf)
    ends = [float(end) for end in (falls, rises) if math.isfinite(end)]
    return sum(ends) / len(ends)
