"""Solve the subproblem over the rows of a working set, with all other coefficients fixed:

    min 1/2 beta' K beta - sum_i h_i beta_i + epsilon sum_i |beta_i|
    lower <= beta <= upper,  the sum of beta is fixed in each group of variables

    task          h       lower .. upper                            epsilon    groups
    C-SVC         y - g   0 .. C+ if y = 1, -C- .. 0 if y = -1      0          1
    epsilon-SVR   y - g   -C .. C                                   epsilon    1
    one-class     -g      0 .. 1                                    0          1
    nu-SVC        -g      0 .. 1 if y = 1, -1 .. 0 if y = -1        0          2, by the class
    nu-SVR        y - g   0 .. C and -C .. 0                        0          2, by the sign

with g_i = u_i - (K beta)_i, the part of u that stays fixed. Weights of rows multiply the bounds of
each row. A row of a regression has two variables, one for each sign, with h - epsilon and
h + epsilon: so |beta| has no kink, and a nu task has one group for each sign.

LIBSVM solves two of these problems itself, if it starts at beta = 0 and no other coefficients
exist: the C-SVC, also with class weights, and the epsilon-SVR. All others take one of two forms.

Windows, for one sum and boxes of one width: LIBSVM's one-class problem. Each variable has a window
of width w within its box, beta = low + w t:

    min 1/2 t' K t + q' t,   0 <= t <= 1,   sum t = (s - sum low) / w,   q = (K low - h) / w

The window reaches from the coefficient to where its gradient pulls it. It is the whole box, unless
the box is so wide that float64 would lose digits of the gradient: then windows are narrow, and move
and widen from solve to solve. LIBSVM starts with t = 1 for the variables that are highest in their
windows. It reads K as it is, and keeps the sum itself. Of the two variables of a row of a
regression, only the one on the side of its coefficient takes part in a solve. A coefficient that
crosses 0 stops there, and the other variable takes over in the next solve. With class weights,
windows have the width of the narrower boxes, and only if another round follows (`partly`);
otherwise moves are used.

Moves, for any boxes and sums: LIBSVM's C-SVC. Move k changes variable i(k) by its room r_k, the
signed way to one end of its box; a variable between its bounds has two moves. The pivot p(g) of
each group g, an unbounded variable, takes the opposite change, so that every sum is exact:

    beta = beta0 + sum_k r_k t_k (e_i(k) - e_p(g(k))),   0 <= t_k <= 1
    min 1/2 t' Q t - sum_k r_k (sigma_i(k) - sigma_p(g(k))) t_k,   sigma = h - K beta0
    Q_kl = r_k r_l (K_ij - K_i,p(e) - K_p(g),j + K_p(g),p(e)),   k in group g, l in group e

The C-SVC has the label sign(r_k) for move k and the kernel values |r_k| |r_l| (...). So LIBSVM's
steps raise one coefficient and lower another. They keep sum_k sign(r_k) t_k, which the problem does
not prescribe. So there are copies of a slack row with either label, whose kernel values are 0, to
take up the difference. A step along a move and a slack row changes only the variable of the move
and its pivot.

Each solve starts at the coefficients so far, beta0, which makes solutions as exact as float64 where
float32 rounds Q. A pivot that would leave its box ends at the bound, and the problem is solved
again from there with another pivot. A step that is too long is shortened to the share with the
largest gain. LIBSVM's tolerance applies to t, not to beta, so one tolerance suits only rooms of a
similar size. This tolerance is made for the rooms of the variables that violate their KKT
conditions before the solve. Variables with much smaller rooms wait for the next.

Both need a linear term, which LIBSVM lacks: two pseudo-rows stay at t = 1. Their kernel values with
a variable sum to the linear term, the first rounded to float32, as LIBSVM stores it, and the second
with the remainder. They start at t = 1 in the one-class problem, and move there in the first steps
of the C-SVC. Very negative diagonal values keep them there.

Windows are there for their speed: in the middle of a training nearly all coefficients of a working
set are bounded, every pivot soon reaches a bound, and moves that make a pivot leave its box end
early. Moves are faster where boxes differ. Rounds and processor seconds of whole runs, of which
starting takes 0.2:

                        moves alone     both forms
    a9a                 31   1.25       22   0.99
    friedman            33   1.19       26   1.06
    elevators           43   2.70       40   1.99
    class weights 10    24   2.42       24   1.98
    checkerboard        16   1.27       16   1.21

This module knows nothing of data, kernels or scans. It calls LIBSVM through libsvm.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import randsvm.svm._solver as _solver
from randsvm.arrays import FLOAT64_UNIT
from randsvm.records import record
from randsvm.svm.libsvm import (
    MAX_SUM,
    SLACK_DOWN,
    SLACK_UP,
    PrecomputedNodes,
    c_svc,
    check_sums,
    epsilon_svr,
    one_class,
)
from randsvm.svm.projection import clipped, with_sum
from randsvm.svm.tasks import BOUND_ROUNDING

# Most solves of one subproblem. One that another round follows ends after ROUND_SOLVES, or where
# the violation is at most ENOUGH times the tolerance, once the objective has improved. Rounds of a
# checkerboard (20,000 rows), a9a (12,000) and friedman (9,000):
#                                         as they are    ROUND_SOLVES = 1    ENOUGH = 20
#     checkerboard, weights 1, 2, 3       9              9                   9
#     checkerboard, exponential weights   11             12                  12
#     a9a, class weight 5                 20             28                  28
#     a9a, nu-svc                         13             14                  14
#     friedman, nu-svr                    9              18                  14
#     friedman, svr                       14             14                  14
# With ROUND_SOLVES = 8 they are as many as with 3.
MAX_SOLVES, ROUND_SOLVES, ENOUGH = 16, 3, 4.0
# Rooms are at most this multiple of the median room of the violating variables. With 1 up to half
# as many rounds more; with 10 as many as with 3, and nu-svr takes a sixth longer.
MAX_ROOM = 3.0
# A solve has variables whose rooms differ by at most this factor. With more, as of coefficients
# that rounding keeps from their bounds, typical rooms are too small for any progress.
MAX_SPREAD = 1e3
# Copies of a slack row of each label. More, as 5 or 20% of the moves, change no rounds.
SLACK = 4
# LIBSVM's tolerance is at least this share of the largest gradient by t: rounding in its sums.
MIN_TOLERANCE = 1e-11
# Rooms are so small that rounding in float64 changes gradients by at most ROUNDING_SHARE of the
# tolerance. Q in float32 changes gradients by up to FLOAT32_NOISE of the largest kernel value times
# the room, and a smaller tolerance would end in millions of useless steps. So rooms are at
# first those for which the tolerance is larger, and WIDENING times as large after each step.
FLOAT32_NOISE, ROUNDING_SHARE, WIDENING = 2.0**-21, 0.05, 4.0


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
    out = np.zeros(len(K))
    _solver.product(K, np.ascontiguousarray(beta, np.float64), out)
    return out


# ---- LIBSVM's own problems, from beta = 0 ---------------------------------------------------


def submatrix(K: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the values of some rows of K with each other, (m, m); K itself if these are all."""
    is_whole = len(at) == len(K) and bool((at == np.arange(len(K))).all())
    return K if is_whole else K[np.ix_(at, at)]


class KernelValues(NamedTuple):
    """Kernel values of the rows of a subproblem. K : (n, n) float32, of these and perhaps others;
    at : (m,), the row of K of each row; nodes: K as LIBSVM reads it, if others have laid it out."""

    K: np.ndarray
    at: np.ndarray
    nodes: PrecomputedNodes | None = None

    @property
    def submatrix(self) -> np.ndarray:
        """The values of the rows with each other, (m, m); K itself if these are all."""
        return submatrix(self.K, self.at)


def solve_from_zero(
    values: KernelValues,
    y: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tolerance: float,
    epsilon: float | None = None,
) -> Solution:
    """Solve LIBSVM's own C-SVC or, with epsilon, its epsilon-SVR.

    y : (m,), both -1 and 1, or targets; lower, upper : (m,), one value for each side. LIBSVM reads
    only the rows whose coefficients it changes.
    """
    m, C, zero = len(y), float(upper.max()), np.zeros(len(y))
    # The rows of one class lie next to each other.
    order = np.argsort(-y, kind="stable") if epsilon is None else np.arange(m)
    if epsilon is not None:
        # With a small C the sums of kernel values times coefficients are small.
        largest = float(np.abs(values.K.diagonal()[values.at]).max())
        check_sums(min(C, 1.0) * m * largest)
    nodes, rows = values.nodes, values.at[order]
    if nodes is None:
        nodes, rows = PrecomputedNodes.of(values.K, rows), np.arange(m)
    if epsilon is None:
        found = c_svc(nodes, rows, y[order], {1: C, -1: -float(lower.min())}, tolerance)
    else:
        found = epsilon_svr(nodes, rows, y, C, epsilon, tolerance)
    beta = np.empty(m)
    beta[order] = found.beta
    return Solution(at_bounds(beta, lower, upper, zero, zero[:1]), found.ended, found.iterations)


def at_bounds(
    beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, group: np.ndarray, sums: np.ndarray
) -> np.ndarray:
    """Return beta with values next to a bound set to it, and with the sums of the groups.

    group : (variables,), the number of the group of each variable; sums : (groups,) float64.
    """
    found = clipped(beta, lower, upper)
    room = np.minimum(found - lower, upper - found)
    for g, s in enumerate(sums.tolist()):
        own = np.flatnonzero(group == g)
        # The sum of a list is exact, too, and takes a fifth of the time.
        rest = s - math.fsum(found[own][found[own] != 0].tolist())
        i = own[np.argmax(room[own])]
        if abs(rest) < room[i]:
            found[i] += rest
    return found


# ---- windows and moves ----------------------------------------------------------------------


class Moves(NamedTuple):
    """The variables t of LIBSVM's problem. at, room, whole, linear : (moves,).

    at: the variable that moves. room: its largest move, negative for a move down; the moves up come
    first. whole: whether this reaches the end of the box. linear: the gradient by t. tolerance:
    that of LIBSVM.
    """

    at: np.ndarray
    room: np.ndarray
    whole: np.ndarray
    linear: np.ndarray
    tolerance: float


@record
class Subproblem:
    """The subproblem, in variables without a kink.

    K : (m, m) float32, symmetric; rows : (variables,) int64, the row of K of each variable: those
    of all rows, once or twice; group : (variables,) int64, from 0; sums : (groups,) float64; all
    others : (variables,) float64. start is within the boxes.
    """

    K: np.ndarray
    rows: np.ndarray
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    group: np.ndarray
    sums: np.ndarray
    start: np.ndarray

    @staticmethod
    def of(
        K: np.ndarray,
        h: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        sums: tuple[float, ...],
        start: np.ndarray,
        epsilon: float = 0.0,
    ) -> Subproblem:
        """Return the subproblem of m rows.

        K : (m, m) float32, C-contiguous, symmetric; need not be positive semidefinite, as in
        LIBSVM. h, lower, upper : (m,) float64; with epsilon lower < 0 < upper. sums: (s,), the sum
        of beta, or (p, q), the sums of the variables above 0 and below. start : (m,) float64,
        within the bounds; a solution restores the sums if they differ.
        """
        zero = np.zeros(len(K))
        h, totals = np.ascontiguousarray(h, np.float64), np.array(sums)
        if len(sums) > 1:
            totals[1] = -totals[1]
        if epsilon or (len(sums) > 1 and ((lower < 0) & (upper > 0)).any()):
            # Two variables a row, one for each sign.
            h = np.concatenate([h - epsilon, h + epsilon])
            above, below = np.maximum(start, 0.0), np.minimum(start, 0.0)
            if len(sums) > 1:
                # If the sums exceed those of |beta|, both variables of a row grow by the same
                # amount: beta stays.
                more = max(0.0, min(totals[0] - math.fsum(above), math.fsum(below) - totals[1]))
                both = with_sum(zero, zero, np.minimum(upper - above, below - lower), more, zero)
                above, below = above + both, below - both
            start = np.concatenate([above, below])
            lower, upper = np.concatenate([zero, lower]), np.concatenate([upper, zero])
        # With two sums, group 1 has the variables below 0. Only groups that have variables count.
        present, group = np.unique((upper <= 0) * (len(sums) - 1), return_inverse=True)
        rows = np.arange(len(h)) % len(K)
        return Subproblem(K, rows, h, lower, upper, group, totals[present], start)

    def solve(
        self, tolerance: float = 5e-4, partly: bool = False, b: float | None = None
    ) -> Solution:
        """Solve to `tolerance`, the largest difference of two gradients of a group.

        partly: whether another round follows, so that the solves may end before they reach the
        tolerance. b: the offset so far of the only group. The solution is never worse than the
        start with the prescribed sums. Raises ValueError if no coefficients within the bounds have
        the sum.
        """
        slope = self.slope(self.start)
        beta = self.with_sums(self.start, slope)
        slope = slope - self._product(beta - self.start)
        iterations, asked, widening, common = 0, tolerance, 1.0, self.common_width(partly)
        tried, ended = np.zeros(len(beta), bool), True
        start = beta
        for number in range(MAX_SOLVES):
            offsets, violation = self.offsets(slope, beta)
            # Few solves are enough if another round follows.
            enough = number >= ROUND_SOLVES or violation <= ENOUGH * asked
            if violation <= asked or (partly and enough and beta is not start):
                break
            if b is not None and beta is start:
                offsets[:] = b
            wanted = slope - offsets[self.group]
            width = min(common, self.exact_width(tolerance) * widening)
            # Narrower windows round their coefficients away, or their linear term is too large.
            least_width = 8 * FLOAT64_UNIT * float(np.abs(beta).max())
            if common and width < max(least_width, 2 * float(np.abs(slope).max()) / MAX_SUM):
                break
            if width:
                both = number >= ROUND_SOLVES
                found = self.in_windows(beta, slope, wanted, width, tolerance, both)
            else:
                found = self.by_moves(beta, slope, offsets, tolerance, widening, tried)
            # `by_moves` returns beta itself if no variable may move.
            if found.beta is beta:
                break
            iterations += found.iterations
            after = at_bounds(found.beta, self.lower, self.upper, self.group, self.sums)
            step = after - beta
            change = self._product(step)
            # Sums do not change, so the offset only adds rounding.
            ascent, curvature = float((slope - offsets[self.group]) @ step), float(step @ change)
            if 0 < ascent <= curvature / 2:
                share = ascent / curvature
                after, change = np.clip(beta + share * step, self.lower, self.upper), share * change
            if ascent > 0:
                beta, slope, widening = after, slope - change, widening * WIDENING
            else:
                # The solution errs by the tolerance times the rooms. A smaller tolerance alone
                # would ask for more exact t, to tolerance / width. So both become smaller.
                common = width / 10
                tolerance, widening = tolerance / 10, widening / 10
            ended = found.ended
            if not ended:
                break
        return Solution(beta.reshape(-1, len(self.K)).sum(axis=0), ended, iterations)

    def common_width(self, partly: bool) -> float:
        """Return the width of the windows that suit all boxes; 0: there is none.

        Windows of the narrower boxes of two classes suit a round, but not the last solve. partly:
        see `solve`.
        """
        widths = self.upper - self.lower
        narrow, wide = float(widths.min()), float(widths.max())
        others = (widths != narrow) & (widths != wide)
        suits = len(self.sums) == 1 and (partly or narrow == wide) and not others.any()
        return narrow if suits else 0.0

    def exact_width(self, tolerance: float) -> float:
        """Return the room of all variables at which rounding in float64 changes gradients by at
        most ROUNDING_SHARE of the tolerance."""
        size = len(self.rows) * float(np.abs(self.K.diagonal()).max())
        return ROUNDING_SHARE * tolerance / (FLOAT64_UNIT * size) if size > 0 else math.inf

    def sides(self, beta: np.ndarray, wanted: np.ndarray, both: bool) -> np.ndarray:
        """Return which variables may move, (variables,) bool: those that are not 0, and else one of
        each row. both: whether also the other one, if its row is to cross 0. wanted : (variables,)
        float64, slope less offset."""
        if len(beta) == len(self.K) or len(self.sums) > 1:
            return np.ones(len(beta), bool)
        (above, below), (rise, fall) = beta.reshape(2, -1), wanted.reshape(2, -1)
        rises = (above > 0) | ((below == 0) & (rise >= -fall))
        falls = (below < 0) | ~rises
        return np.concatenate([rises | (both & (rise > 0)), falls | (both & (fall < 0))])

    def in_windows(
        self,
        beta: np.ndarray,
        slope: np.ndarray,
        wanted: np.ndarray,
        width: float,
        tolerance: float,
        both: bool,
    ) -> Solution:
        """Solve LIBSVM's one-class problem in windows of one width.

        A window reaches from the coefficient to where it wants to go, as far as the box allows.
        """
        at = np.flatnonzero(self.sides(beta, wanted, both))
        low = np.where(wanted > 0, beta, beta - width)
        low = np.clip(low, self.lower, self.upper - width)[at]
        # LIBSVM starts with t = 1 for the first variables: those that are highest in their windows.
        order = np.argsort(low - beta[at], kind="stable")
        at, low, m = at[order], low[order], len(order)
        step = np.zeros(len(beta))
        step[at] = low - beta[at]
        nodes = PrecomputedNodes.of(self.K, self.rows[at])
        nodes.set_linear_term((self._product(step) - slope)[at] / width)
        rows = np.concatenate([[m, m + 1], np.arange(m)])
        total = 2 + min(max(-math.fsum(step) / width, 0.0), float(m))
        found = one_class(nodes, rows, total, tolerance / width)
        after = beta.copy()
        after[at] = low + width * found.beta[2:]
        return Solution(after, found.ended, found.iterations)

    def by_moves(
        self,
        beta: np.ndarray,
        slope: np.ndarray,
        offsets: np.ndarray,
        tolerance: float,
        widening: float,
        tried: np.ndarray,
    ) -> Solution:
        """Solve LIBSVM's C-SVC of moves.

        tried : (variables,) bool, pivots that left their box without any progress; changes.
        """
        pivots = self.pivots(beta, slope - offsets[self.group], tried)
        # The slope of an unbounded pivot is the offset, even if small boxes are not solved yet.
        unbounded = (beta[pivots] > self.lower[pivots]) & (beta[pivots] < self.upper[pivots])
        offsets = np.where(unbounded, slope[pivots], offsets)
        moves = self.moves(beta, slope, offsets, pivots, tolerance, widening)
        if not len(moves.at):
            return Solution(beta, True, 0)
        found = self.solve_moves(moves, pivots)
        after = self.after_moves(beta, moves, pivots, found.beta)
        bounded = np.clip(after[pivots], self.lower[pivots], self.upper[pivots])
        if np.array_equal(bounded, after[pivots]):
            tried[:] = False
        else:
            after[pivots] = bounded
            after = self.with_sums(after, self.slope(after))
            step = after - beta
            tried[pivots] |= slope @ step <= step @ self._product(step) / 2
        return found._replace(beta=after)

    def moves(
        self,
        beta: np.ndarray,
        slope: np.ndarray,
        offsets: np.ndarray,
        pivots: np.ndarray,
        tolerance: float,
        widening: float,
    ) -> Moves:
        """Return the moves of all variables but the pivots.

        With one sum a row with two variables moves to one side of 0 only: the other variable waits
        unless the row is to cross 0.
        """
        wanted = slope - offsets[self.group]
        up, down = self.upper - beta, beta - self.lower
        moves = self.sides(beta, wanted, both=True)
        moves[pivots] = False
        up, down = np.where(moves, up, 0.0), np.where(moves, down, 0.0)
        violating = np.concatenate([up[wanted > tolerance / 2], down[wanted < -tolerance / 2]])
        violating = violating[violating > 0]
        if not len(violating):
            violating = np.maximum(up, down).max(keepdims=True)
        # Limits of rooms: moves shorter than `least` wait, and those longer than `largest` are cut.
        # `typical` is the room that the tolerance of LIBSVM is for, and `exact` the longest one
        # that rounding allows.
        least = float(violating.max()) / MAX_SPREAD
        # np.median would import numpy.ma.
        ordered = np.sort(violating[violating >= least])
        typical = float(ordered[len(ordered) // 2])
        size = float(np.abs(self.K.diagonal()).max())
        noise = FLOAT32_NOISE * size
        exact = math.inf
        if size > 0:
            exact = widening * min(self.exact_width(tolerance), tolerance / noise)
        typical, least = min(typical, exact), min(least, exact / MAX_SPREAD)
        largest = min(float(violating.max()), MAX_ROOM * typical, exact)
        rises, falls = np.flatnonzero(up > least), np.flatnonzero(down > least)
        at = np.concatenate([rises, falls])
        ends = np.concatenate([up[rises], down[falls]])
        sign = np.repeat([1.0, -1.0], [len(rises), len(falls)])
        room = np.minimum(ends, largest) * sign
        linear = -room * (slope - slope[pivots[self.group]])[at]
        # The rows of one label that LIBSVM changes first lie next to each other.
        order = np.lexsort((linear, -sign))
        whole = (ends <= largest)[order]
        # A gradient by t is a slope times a room; noise is the rounding of a slope in a room of 1.
        tolerance = max(tolerance / 2, noise * largest) * typical
        at, room, linear = at[order], room[order], linear[order]
        return Moves(at, room, whole, linear, tolerance)

    def solve_moves(self, moves: Moves, pivots: np.ndarray) -> Solution:
        """Return t of each move."""
        at, room, linear = moves.at, moves.room, moves.linear
        m, rises, slack = len(at), int((room > 0).sum()), SLACK
        unit = float(np.abs(linear).max()) or 1.0
        rows, group, held = self.rows[at], self.group[at], self.rows[pivots]
        # shift[e, k] for move k of group g: K_i,p(e) less half of K_p(g),p(e).
        shift = self.K[np.ix_(held, rows)].astype(np.float64)
        shift -= self.K[np.ix_(held, held)][:, group] / 2
        factor = np.abs(room) / math.sqrt(unit)
        nodes = PrecomputedNodes.of_moves(self.K, rows, factor, group, shift)
        # 1 more, as the C-SVC has the linear term -sum t.
        nodes.set_linear_term(np.sign(room) * (linear / unit + 1))
        # Two more slack rows that go down balance the two pseudo-rows.
        every = np.concatenate(
            [
                np.arange(rises),
                np.full(slack, m + SLACK_UP),
                [m, m + 1],
                np.arange(rises, m),
                np.full(slack + 2, m + SLACK_DOWN),
            ]
        )
        labels = np.repeat([1.0, -1.0], [rises + slack + 2, m - rises + slack + 2])
        within = max(moves.tolerance / unit, MIN_TOLERANCE)
        found = c_svc(nodes, every, labels, {1: 1.0, -1: 1.0}, within)
        t, falls = np.abs(found.beta), rises + slack + 2
        t = np.concatenate([t[:rises], t[falls : falls + m - rises]])
        return Solution(t, found.ended, found.iterations)

    def after_moves(
        self, beta: np.ndarray, moves: Moves, pivots: np.ndarray, t: np.ndarray
    ) -> np.ndarray:
        """Return beta after the moves, (variables,); only pivots may be outside their boxes."""
        at, room, m = moves.at, moves.room, len(beta)
        after = np.clip(beta + np.bincount(at, room * t, m), self.lower, self.upper)
        moved = np.bincount(at, t != 0, m)
        ends = (t == 1) & moves.whole & (moved[at] == 1)
        rise, fall = at[ends & (room > 0)], at[ends & (room < 0)]
        after[rise], after[fall] = self.upper[rise], self.lower[fall]
        for g, pivot in enumerate(pivots.tolist()):
            others = self.group == g
            others[pivot] = False
            after[pivot] = self.sums[g] - math.fsum(after[others])
        return after

    def _product(self, beta: np.ndarray) -> np.ndarray:
        if len(self.rows) > len(self.K):
            beta = beta.reshape(2, -1).sum(axis=0)
        return product(self.K, beta)[self.rows]

    def slope(self, beta: np.ndarray) -> np.ndarray:
        """Return h - K beta, (variables,)."""
        return self.h - self._product(beta)

    def offsets(self, slope: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the offset of each group, (groups,), and the largest violation of a group."""
        offsets, violation = np.zeros(len(self.sums)), -math.inf
        for g in range(len(self.sums)):
            own = self.group == g
            rise = float(slope[own & (beta < self.upper)].max(initial=-np.inf))
            fall = float(slope[own & (beta > self.lower)].min(initial=np.inf))
            violation = max(violation, rise - fall)
            ends = [end for end in (rise, fall) if math.isfinite(end)]
            offsets[g] = sum(ends) / len(ends) if ends else 0.0
        return offsets, violation

    def pivots(self, beta: np.ndarray, wanted: np.ndarray, tried: np.ndarray) -> np.ndarray:
        """Return the pivot of each group, (groups,) integers.

        It is the unbounded variable with the most room. If there is none, it is the variable with
        the largest product of room and slope less offset.

        wanted : (variables,) float64, slope less offset. tried : (variables,) bool, pivots that
        left their box without any progress.
        """
        room = np.minimum(beta - self.lower, self.upper - beta)
        inward = np.where(wanted > 0, self.upper - beta, beta - self.lower) * np.abs(wanted)
        found = []
        for g in range(len(self.sums)):
            own = (self.group == g) & ~tried
            own = own if own.any() else self.group == g
            key = room if (room[own] > 0).any() else inward
            found.append(int(np.argmax(np.where(own, key, -1.0))))
        return np.array(found)

    def with_sums(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return beta, which is within the boxes, with the sums of the groups.

        Coefficients move to their bounds in the order in which it costs the objective least.
        """
        beta = beta.copy()
        for g, s in enumerate(self.sums.tolist()):
            own = np.flatnonzero(self.group == g)
            lower, upper = self.lower[own], self.upper[own]
            least, most = math.fsum(lower), math.fsum(upper)
            slip = BOUND_ROUNDING * (1 + np.abs(lower).sum() + np.abs(upper).sum())
            if not least - slip <= s <= most + slip:
                raise ValueError(
                    f"coefficients between {least:g} and {most:g} in all cannot sum to {s:g}"
                )
            if abs(s - least) <= slip / 1e4:
                beta[own] = lower
            elif abs(s - most) <= slip / 1e4:
                beta[own] = upper
            else:
                beta[own] = with_sum(beta[own], lower, upper, s, -slope[own])
        return beta
