"""One subproblem over any rows W, with everything else frozen wherever it stands:

    min 1/2 beta' K beta - h' beta + epsilon sum_i |beta_i|
    lower <= beta <= upper,  sum_i beta_i = s

    task           h       lower .. upper                       epsilon
    C-SVC          y - g   0 .. C+ if y = 1, -C- .. 0 if y = -1   0
    epsilon-SVR    y - g   -C .. C                              epsilon
    one-class      -g      0 .. 1                               0

with g_i = u_i - (K beta_W)_i, the part of u that is frozen. Use:

    h = y - (u_W - product(K, beta_W))
    found = solve(K, h, lower, upper, beta_W.sum(), start=beta_W, tolerance=5e-4)
    found.beta, found.ended

Knows nothing of data, kernels or scans, and LIBSVM only by its problems in libsvm.py.

One box. Where upper - lower is the same C everywhere, the subproblem is LIBSVM's one-class problem:
with beta = lower + C t,

    min 1/2 t' K t + q' t,  0 <= t <= 1,  sum_i t_i = (s - sum lower) / C,   q = (K lower - h) / C.

LIBSVM has no q: two pseudo-rows at t = 1 have the values q_i with row i, the first as float32,
which is what LIBSVM keeps, the second what is left of it. They come first, so that LIBSVM begins
with t = 1 for them, and their diagonal is so negative that they stay there. After them come the
rows in the order of their start, so that it begins with bounded coefficients where they are. The
sum is exact. An epsilon-SVR is this with one variable for the sign that a row is expected to have
(0 <= a <= C with h - epsilon, or -C <= a* <= 0 with h + epsilon), and with both, beta = a + a*, for
rows that turn again and again. From 0 on it is LIBSVM's own.

Two boxes (class weights) are a C-SVC, see _TwoBoxes. For a box for each row (weights of rows) see
row_boxes.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import randsvm.svm._solver as _solver
from randsvm.svm.libsvm import (
    HELD_ROW,
    LARGEST_SUM,
    PINNED_ROW,
    PINNING_VALUE,
    Caller,
    Layout,
    Outcome,
    at_once,
    c_svc,
    check_sums,
    epsilon_svr,
    nu_svc,
    one_class,
    set_linear_term,
)
from randsvm.svm.row_boxes import MAX_SOLVES, MAX_SOLVES_OF_ROUND, RowBoxes, solve_row_boxes

# A coefficient this close to its bound, relative to the box, is at it: rounding in LIBSVM's steps.
BOUND_ROUNDING = 1e-13
# Most smaller problems that are solved one after the other, see _by_signs and _by_windows.
MAX_RESTARTS = 3
# Steps are tried where the slopes differ by no more than this number of steps of a row changes.
MAX_WINDOW_STEPS = 2
# Number of coefficients that class weights try as the one that makes the sum.
MAX_SUM_ROWS = 30
# Relative rounding of a sum in float64. It moves the gradient of a one-class problem by this share
# of what all variables at their bounds would make; ROUNDING_SHARE: the share of the tolerance that
# this may be. Wider boxes are narrowed first, and widened by WIDENING where that binds, see
# one_box.
FLOAT64_ROUNDING = 2.0**-52
ROUNDING_SHARE, WIDENING = 0.1, 256.0


class Solution(NamedTuple):
    """beta (m,) float64, exactly lower or upper where it is bounded. ended: False if LIBSVM met
    its limit of iterations; iterations: of all its solves."""

    beta: np.ndarray
    ended: bool
    iterations: int


def product(K: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """K beta, added up in float64. K : (m, m) float32, symmetric; returns (m,) float64.

    Of K as LIBSVM sees it, so that its rounding cancels in what does not change. Rows with
    beta = 0 cost nothing.
    """
    out = np.zeros(len(beta))
    _solver.product(K, np.ascontiguousarray(beta, np.float64), out)
    return out


def solve(
    K: np.ndarray,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    s: float,
    start: np.ndarray | None = None,
    tolerance: float = 5e-4,
    epsilon: float = 0.0,
    call: Caller = at_once,
    b: float | None = None,
    partly: bool = False,
) -> Solution:
    """Solve the subproblem above to `tolerance`, the largest difference of two gradients; where b
    is given, to twice that at the most. With class weights that differ by a lot it may end at a
    better point than start on the way there, see _by_windows.

    K : (m, m) float32, C-contiguous, symmetric; need not be positive semidefinite, as in LIBSVM.
    h, lower, upper : (m,) float64; with epsilon lower = -upper.
    s: from sum lower to sum upper. start : (m,) float64, a feasible point to begin from. b: the
    offset that goes with it, where it is known: smaller problems come first then. partly: with
    class weights, whether to end after these, with coefficients on their way in wide boxes.
    call: see Caller. If it raises while LIBSVM still works, LIBSVM's memory is left to it.
    Raises ValueError where no beta has this sum.
    """
    h = np.ascontiguousarray(h, np.float64)
    width = upper - lower
    wide, narrow = float(width.max(initial=0.0)), float(width.min(initial=np.inf))
    bounded = only_point(lower, upper, s)
    if bounded is not None:
        return Solution(bounded, True, 0)
    task = Boxed(K, h, lower, upper, s, lower, tolerance)
    if s == 0 and not epsilon and _is_svc(task, start) and task.has_two_boxes:
        return _svc(task, call)
    own = start is not None and not start.any() and np.array_equal(lower, -upper)
    if s == 0 and own and wide == narrow:
        return _svr(task, epsilon, call)
    task = replace(task, start=task.finished(lower) if start is None else start)
    if epsilon:
        if b is None:
            b = sum(_max_rise_and_min_fall(task, task.start, -task.gradient(task.start))) / 2
        return _by_signs(task, epsilon, b, call)
    if wide == narrow or not task.has_two_boxes:
        return any_boxes(task, call, MAX_SOLVES if b is None else MAX_SOLVES_OF_ROUND)
    if b is None and not _needs_many_copies(task):
        return _two_boxes(task, call)
    return _by_windows(task, b, call, partly)


def only_point(lower: np.ndarray, upper: np.ndarray, s: float) -> np.ndarray | None:
    """The only feasible point, if s is at an end of what can be reached."""
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
class Boxed:
    """The subproblem without epsilon. K : (m, m); index : (variables,) int64, the row of K that
    each variable has, None: variable i has row i % m; all others : (variables,) float64."""

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
        """The row of K of each variable, (variables,) int64."""
        return np.arange(len(self.h)) % len(self.K) if self.index is None else self.index

    @property
    def has_two_boxes(self) -> bool:
        """Return whether the boxes with lower = 0 have one width, and those with upper = 0."""
        above, below = self.upper > 0, self.upper <= 0
        zero = (self.lower[above] == 0).all() and (self.upper[below] == 0).all()
        return bool(zero and not np.ptp(self.upper[above]) if above.any() else zero) and not (
            below.any() and np.ptp(self.lower[below])
        )

    def gradient(self, beta: np.ndarray) -> np.ndarray:
        """K beta - h."""
        rows = self.rows
        return product(self.K, np.bincount(rows, beta, len(self.K)))[rows] - self.h

    def layout(self, order: np.ndarray) -> Layout:
        return Layout.of(self.K, self.rows[order])

    @property
    def position_in_box(self) -> np.ndarray:
        """Where start is in its box, from 0 to 1."""
        return (self.start - self.lower) / (self.upper - self.lower)

    def finished(self, beta: np.ndarray, solved: float | None = None) -> np.ndarray:
        """beta with values next to a bound, or beyond, at it, and others so that the sum is s.

        solved: width of the box in which LIBSVM found them, where that is not the task's; 0: they
        are LIBSVM's own numbers.
        """
        beta = self._in_box(beta, solved)
        _restore_sum(beta, self)
        return self._in_box(beta, solved)

    def _in_box(self, beta: np.ndarray, solved: float | None) -> np.ndarray:
        width = self.upper - self.lower
        # Coefficients may be tiny beside their box: then only rounding takes them to a bound.
        rounding = BOUND_ROUNDING * np.abs(beta).max(initial=0.0)
        rounding = rounding + 8 * FLOAT64_ROUNDING * (width if solved is None else solved)
        near = np.minimum(BOUND_ROUNDING * width, rounding)
        beta = np.where(beta <= self.lower + near, self.lower, beta)
        return np.where(beta >= self.upper - near, self.upper, beta)


def _restore_sum(beta: np.ndarray, task: Boxed) -> None:
    """Add what is left of s to coefficients that have room, in place."""
    rest = task.s - math.fsum(beta)
    room = np.minimum(beta - task.lower, task.upper - beta)
    i = int(np.argmax(room))
    if abs(rest) <= room[i] / 2:
        beta[i] += rest
    elif abs(rest) > BOUND_ROUNDING * (task.upper - task.lower).sum():
        # More than rounding: in the order in which it costs the objective least.
        side = math.copysign(1.0, rest)
        room = (task.upper if rest > 0 else -task.lower) - side * beta
        order = np.argsort(side * task.gradient(beta), kind="stable")
        filled = np.minimum(np.cumsum(room[order]), abs(rest))
        beta[order] += side * np.diff(filled, prepend=0.0)


def _is_svc(task: Boxed, start: np.ndarray | None) -> bool:
    """Whether this is LIBSVM's own C-SVC, beside nothing and from 0 on."""
    y = np.where(task.upper > 0, 1.0, -1.0)
    return (start is None or not start.any()) and np.array_equal(task.h, y)


def _svc(task: Boxed, call: Caller) -> Solution:
    """LIBSVM's own C-SVC: from 0 on it looks only at the rows whose coefficients it changes."""
    y = task.h
    order = np.argsort(-y, kind="stable")
    layout = task.layout(order)
    bounds = float(task.upper.max()), float(-task.lower.min())
    found = c_svc(layout, np.arange(len(y)), y[order], bounds, task.tolerance, call)
    layout.close()
    beta = np.empty(len(y))
    beta[order] = y[order] * found.alpha
    return Solution(task.finished(beta, 0.0), found.ended, found.iterations)


def _svr(task: Boxed, epsilon: float, call: Caller) -> Solution:
    """Solve LIBSVM's own epsilon-SVR from 0 on."""
    m = len(task.h)
    check_sums(m * float(np.abs(task.K.diagonal()).max()))
    layout = task.layout(np.arange(m))
    C = float(task.upper[0])
    found = epsilon_svr(layout, np.arange(m), task.h, C, epsilon, task.tolerance, call)
    layout.close()
    return Solution(task.finished(found.alpha, 0.0), found.ended, found.iterations)


def any_boxes(task: Boxed, call: Caller, most_solves: int = MAX_SOLVES) -> Solution:
    """Solve a task of one box, or with a box for each row."""
    if not np.ptp(task.upper - task.lower):
        return one_box(task, call)
    one_sum = np.zeros(len(task.h), np.int64), np.array([task.s])
    return _row_boxes(task, *one_sum, call, most_solves)


def _row_boxes(
    task: Boxed, group: np.ndarray, sums: np.ndarray, call: Caller, most_solves: int = MAX_SOLVES
) -> Solution:
    """Solve a task with a box for each row, see row_boxes.py."""
    boxes = RowBoxes(
        task.K, task.rows, task.h, task.lower, task.upper, group, sums, task.start, task.tolerance
    )
    return Solution(*solve_row_boxes(boxes, call, most_solves))


def one_box(task: Boxed, call: Caller) -> Solution:
    """Solve a task of one box, see the head of this file.

    With beta = lower + C t a box that is far wider than the solution loses the digits of the
    gradient. So the boxes are narrowed to what the tolerance allows, around the start; as long as
    a coefficient ends at such a narrower bound, the task is solved again from there in wider boxes.
    """
    C, iterations = float((task.upper - task.lower).max()), 0
    largest = len(task.h) * float(np.abs(task.K.diagonal()).max())
    width = ROUNDING_SHARE * task.tolerance / (FLOAT64_ROUNDING * largest) if largest > 0 else C
    # The linear term is the gradient divided by the width.
    width = max(width, 2 * float(np.abs(task.gradient(task.start)).max()) / LARGEST_SUM)
    while width < C:
        low = np.clip(task.start - width / 2, task.lower, task.upper - width)
        high = np.minimum(low + width, task.upper)
        found = _one_class(replace(task, lower=low, upper=high), call)
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
    found = _one_class(task, call)
    return found._replace(iterations=iterations + found.iterations)


def _one_class(task: Boxed, call: Caller) -> Solution:
    """LIBSVM's one-class problem with a linear term."""
    C = float(task.upper[0] - task.lower[0])
    order = np.argsort(-task.position_in_box, kind="stable")
    q = task.gradient(task.lower)[order] / C
    layout = task.layout(order)
    set_linear_term(layout, q)
    m = len(order)
    rows = np.concatenate([[m, m + 1], np.arange(m)])
    total = (task.s - math.fsum(task.lower)) / C + 2
    found = one_class(layout, rows, total, task.tolerance / C, call)
    layout.close()
    beta = np.empty(m)
    beta[order] = task.lower[order] + C * found.alpha[2:]
    return Solution(task.finished(beta), found.ended, found.iterations)


def _by_signs(task: Boxed, epsilon: float, b: float, call: Caller) -> Solution:
    """A regression with one variable a row, for the sign that its coefficient has or, from 0 on,
    would take at the offset b. Rows that would then turn to the other sign turn, and the problem is
    solved again from there; after MAX_RESTARTS they have a variable for either sign, until none
    turns.

    With half as many variables there are a quarter as many values to lay out.
    """
    m = len(task.h)
    up = np.where(task.start != 0, task.start, -task.gradient(task.start) - b) > 0
    both, iterations, turns = np.zeros(m, bool), 0, 0
    while True:
        part = _signed(task, epsilon, up, np.flatnonzero(both))
        found = _within(part, call)
        iterations += found.iterations
        slope = -part.gradient(found.beta)
        b = sum(_max_rise_and_min_fall(part, found.beta, slope)) / 2
        beta = np.bincount(part.rows, found.beta, m)
        across = np.where(up, b - slope[:m], slope[:m] - b) > 2 * epsilon + task.tolerance
        turned = across & (beta == 0) & ~both
        if not found.ended or not turned.any():
            return Solution(beta, found.ended, iterations)
        task, turns = replace(task, start=beta), turns + 1
        if turns < MAX_RESTARTS:
            up = up != turned
        else:
            both |= turned
            up = np.where(beta != 0, beta > 0, up)


def _signed(task: Boxed, epsilon: float, up: np.ndarray, both: np.ndarray) -> Boxed:
    """A variable of one sign for each row, and behind these one of the other sign for some. up :
    (m,) bool, whether the first is above 0; both : (k,) int64, the rows that have two."""
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


def _within(part: Boxed, call: Caller) -> Solution:
    """The solution within a part of the boxes, in which start is."""
    bounded = only_point(part.lower, part.upper, part.s)
    return any_boxes(part, call) if bounded is None else Solution(bounded, True, 0)


def _max_rise_and_min_fall(task: Boxed, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
    """The steepest rise and the steepest fall; b of a solution is in the middle."""
    rise = slope[beta < task.upper].max(initial=-np.inf)
    fall = slope[beta > task.lower].min(initial=np.inf)
    return float(rise), float(fall)


def _needs_many_copies(task: Boxed) -> bool:
    """Whether _TwoBoxes would need more copies of one row than there are rows, to solve at once."""
    width = task.upper - task.lower
    s = task.s if task.upper[np.argmax(width)] > 0 else -task.s
    return s > len(task.h) * float(width.min())


def _by_windows(task: Boxed, b: float | None, call: Caller, partly: bool) -> Solution:
    """Two boxes as one: of a wide box a part as wide as the narrow ones, from where its row is
    towards where it wants to go at the offset b (None: in the middle of the slopes); as long as
    some end where only their part does, again from there, and at last _two_boxes: at once where
    rows want to go too far. Where that is crowded, or `partly`, some may be left on their way. Of
    one box LIBSVM begins where the rows are, of two from 0.
    """
    width, slope = task.upper - task.lower, -task.gradient(task.start)
    narrow, iterations = float(width.min()), 0
    wide, partly = width > narrow, partly or _needs_many_copies(task)
    rise, fall = _max_rise_and_min_fall(task, task.start, slope)
    b = (rise + fall) / 2 if b is None else b
    far = rise - fall > MAX_WINDOW_STEPS * narrow * float(task.K.diagonal().max())
    for _ in range(0 if far and not partly else MAX_RESTARTS):
        rises = slope > b
        low = np.maximum(np.where(rises, task.start, task.start - narrow), task.lower)
        low = np.where(wide, np.minimum(low, task.upper - narrow), task.lower)
        high = np.where(wide, low + narrow, task.upper)
        found = _within(replace(task, lower=low, upper=high), call)
        iterations += found.iterations
        beta = task.finished(found.beta)
        slope = -task.gradient(beta)
        b = sum(_max_rise_and_min_fall(task, beta, slope)) / 2
        below = (found.beta <= low) & (beta > task.lower) & (slope < b - task.tolerance)
        above = (found.beta >= high) & (beta < task.upper) & (slope > b + task.tolerance)
        if not found.ended or not (below | above).any():
            return Solution(beta, found.ended, iterations)
        task = replace(task, start=beta)
    if partly:
        return Solution(task.start, True, iterations)
    found = _two_boxes(task, call)
    return found._replace(iterations=iterations + found.iterations)


def _two_boxes(task: Boxed, call: Caller) -> Solution:
    """Class weights, see _TwoBoxes; mirrored if the wide boxes are below the narrow ones, so that
    LIBSVM begins with beta = 0, not with all of beta at C."""
    width = task.upper - task.lower
    A, B = float(width.max()), float(width.min())
    wide = width == A
    if task.upper[wide][0] > 0:
        return _TwoBoxes(task, wide, A, B).solve(call)
    mirrored = replace(
        task, h=-task.h, lower=-task.upper, upper=-task.lower, s=-task.s, start=-task.start
    )
    found = _TwoBoxes(mirrored, wide, A, B).solve(call)
    return found._replace(beta=0.0 - found.beta)


@dataclass(frozen=True)
class _TwoBoxes:
    """Boxes of width A for some rows and B < A for the others: LIBSVM's C-SVC with two C.

    LIBSVM begins with a = 0 and keeps sum_i y_i a_i = 0, a_i <= A where the label y_i is 1 and
    a_i <= B where it is -1. So wide rows have label 1, beta = lower + a, and narrow ones -1,
    beta = upper - a. What LIBSVM cannot give is

        the linear term: two corner rows, label -1 and so negative a diagonal that LIBSVM takes them
            to a = B first of all and leaves them there. Their values with row i, w_i in all as
            in one_box, add -y_i B w_i to its gradient.
        the sum: one row is there twice, with either label, often enough to come from where it
            would have to be for the sum to its box, both ways. If it does not end inside, it is
            at the bound that it passed in a solution with the bound as well (the objective is
            convex in it): it stays there, and another one is tried for the rest. A pseudo-row
            with a large diagonal works instead, but LIBSVM needs twice as many steps, or does not
            end at all.

    wide : (m,) bool.
    """

    task: Boxed
    wide: np.ndarray
    A: float
    B: float

    def solve(self, call: Caller) -> Solution:
        task, iterations = self.task, 0
        lower, upper, near = task.lower, task.upper, BOUND_ROUNDING * self.A
        beta, fixed = task.start, np.full(len(self.wide), np.nan)
        for _ in range(min(MAX_SUM_ROWS, len(fixed))):
            room = np.minimum(beta - lower, upper - beta) / (upper - lower)
            k = int(np.argmax(np.where(np.isnan(fixed), room, -1.0)))
            beta, found = self._attempt(k, fixed, call)
            iterations += found.iterations
            if lower[k] - near <= beta[k] <= upper[k] + near or not found.ended:
                return Solution(task.finished(beta), found.ended, iterations)
            fixed[k] = lower[k] if beta[k] < lower[k] else upper[k]
            beta = task.finished(beta)
        return Solution(beta, False, iterations)

    def _attempt(self, k: int, fixed: np.ndarray, call: Caller) -> tuple[np.ndarray, Outcome]:
        """The solution with `fixed` where that is a number, of which row k makes the sum and may
        leave its box."""
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
        found = c_svc(layout, rows, labels, (A, B), task.tolerance, call)
        layout.close()
        moved = labels * found.alpha
        begin[index[1:-1]] += moved[up : up + last - 1]
        begin[k] += math.fsum(moved[:up]) + math.fsum(moved[up + last - 1 : -2])
        return begin, found

    def _variables(self, k: int, loose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and labels as LIBSVM orders them, 1 first: row k, the others, row k again."""
        others = np.flatnonzero(loose)
        others = others[others != k]
        others = others[np.argsort(~self.wide[others], kind="stable")]
        y = np.where(self.wide[others], 1.0, -1.0)
        return np.concatenate([[k], others, [k]]), np.concatenate([[1.0], y, [-1.0]])


# --- two sums -------------------------------------------------------------------------------
#
# A subproblem of the nu tasks: two sums, one of the coefficients above 0 and one of those below.
#
#     min 1/2 beta' K beta - h' beta,   beta = a - a*,   0 <= a <= upper,   0 <= a* <= -lower
#     sum_i a_i = p,  sum_i a*_i = q
#
# nu-SVC has a where y = 1 and a* where y = -1; nu-SVR has both in every row, so that the sum of
# |beta| is p + q where none has both, and less where some have. All bounds but 0 are one C.
#
# With a = C t and a* = C t this is LIBSVM's nu-SVC, labels 1 and -1, but for
#
#     the linear term: two corner rows of label 1 stay at t = 1, as in subproblem_qp.py.
#     the sums: LIBSVM's are equal. What one is short of the other, in whole parts, are copies of a
#         pseudo-row that stays at its bound; what remains, r, is one pinned row. It has a large
#         diagonal H, and values with the corner rows that give it the gradient at t = r that the
#         free rows of its group are expected to have. It ends where theirs is, next to r, and the
#         difference is given back.
#
# Without a linear term and with equal sums it is LIBSVM's nu-SVC as it is, see _without_pins.

# H beside the largest kernel value. LIBSVM tightens the other rows by its root before it looks at
# the pinned row again; what the sum is off by, relative to C, is the violation over H.
PIN_STIFFNESS = 2.0**15


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
    found = any_boxes(alone, call)
    beta[group] = found.beta
    return found._replace(beta=beta)


def _both_groups(
    task: Boxed, positive: np.ndarray, sums: tuple[float, float], call: Caller
) -> Solution:
    """Solve for both groups, see the comment above."""
    if np.ptp(task.upper - task.lower):
        task = replace(task, start=_with_sums(task, positive, sums, task.start))
        group = np.where(positive, 0, 1)
        return _row_boxes(task, group, np.array([sums[0], -sums[1]]), call)
    plain = None
    if sums[0] == sums[1] and not task.h.any():
        plain = _without_pins(task, positive, sums, call)
    if plain is not None:
        return plain
    C = float((task.upper - task.lower)[0])
    sign = np.where(positive, 1.0, -1.0)
    t = np.abs(task.start) / C
    # Of each group bounded ones first, so that LIBSVM begins near the start.
    order = np.lexsort((-t, ~positive))
    slope = task.gradient(task.start) / C
    gradients = [_free_gradient(sign[g] * slope[g], t[g]) for g in (positive, ~positive)]
    # Moves LIBSVM's rho, the mean of both, away from 0, and nothing else.
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
    found = nu_svc(layout, rows, labels, total, task.tolerance / C, call)
    layout.close()
    beta = np.empty(m)
    # The first row stays at 1. Where kernel values are so large that their differences are lost,
    # LIBSVM's rho is 0 all the same: what is not finite then is refused by the first scan.
    with np.errstate(invalid="ignore"):
        beta[order] = C * sign[order] * (found.alpha[-m:] / found.alpha[0])
    return Solution(_with_sums(task, positive, sums, beta), found.ended, found.iterations)


def _without_pins(
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


def _free_gradient(slope: np.ndarray, t: np.ndarray) -> float:
    """The gradient that free variables of a group have, or will have: between that of those that
    may rise and of those that may fall."""
    falls, rises = slope[t > 0].max(initial=-np.inf), slope[t < 1].min(initial=np.inf)
    ends = [float(end) for end in (falls, rises) if math.isfinite(end)]
    return sum(ends) / len(ends)
