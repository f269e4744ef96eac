"""Solve a subproblem in which every row has its own box, for weights of rows:

    min 1/2 beta' K beta - h' beta,  lower <= beta <= upper,
    sum_i beta_i = s over the variables i of each group (one group, or the two of a nu task)

LIBSVM has one box for all variables, or two with class weights, and an equality in which all
variables have the same coefficient. It solves this problem as a C-SVC as follows.

boxes: the variables are moves from the start, beta_i = start_i + room_i t_i with 0 <= t_i <= 1,
    where room_i reaches to an end of the box. An unbounded row has two moves, one to each end.
sum: the pivot of a group, an unbounded row p, keeps the sum: a move adds room_i t_i to row i and
    subtracts it from row p. So the kernel value of two moves is
    room_i room_j (K_ij - K_ip - K_jp + K_pp), and the sum is exact.
LIBSVM's equality: a slack row of the other label has no kernel values and a C above the number of
    variables, so that the equality restricts nothing.
linear term: two pseudo-rows, as in subproblem_qp.py.

A pivot that would leave its box ends at the bound, and the problem is solved again from there with
another pivot. LIBSVM's tolerance applies to t, not to beta, so one tolerance suits only boxes of a
similar size. It is made for the boxes of the rows that violate their KKT conditions before the
solve. Rows with much smaller boxes wait for the next solve, in which no row moves further than the
largest of those boxes.

Measured with 1,000 rows (checkerboard, 10% noise, C = 1), milliseconds of processor time from 0 to
a violation of 0.02, where one box takes 14: weights 1, 2, 3 and weights within a factor of 2: 100;
exponential weights: 45; within a factor of 1,000: 150. An augmented Lagrangian for the sum instead
of a pivot takes as long for the first solve and needs 3 to 10 solves. Windows of the width of the
narrowest box, solved as one box, need 40 for weights within a factor of 2, but do not converge in
60 solves within a factor of 1,000.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import randsvm.svm._solver as _solver
from randsvm.svm.libsvm import PINNED_ROW, Outcome, PrecomputedNodes, c_svc, set_linear_term
from randsvm.svm.projection import fill_to_sum

# Most solves of one subproblem, and of one that another round follows.
MAX_ROW_BOX_SOLVES, MAX_SOLVES_OF_ROUND = 8, 2
# A solve has rows whose rooms differ by at most this factor; LIBSVM makes too many steps with more.
MAX_SPREAD = 1e3
# LIBSVM's tolerance is at least this share of the largest gradient by t: rounding in its sums.
MIN_TOLERANCE = 1e-11
# A coefficient counts as bounded at this distance from its bound, relative to the largest
# coefficient, if the distance is at most the share NEAR_SHARE of its box. Sums round by less.
# Otherwise the row would seem to violate its condition, and no move is large enough to mend that.
NEAR_ROUNDING, NEAR_SHARE = 1e-14, 1e-9
# The pseudo-row that is the slack; the first two hold the linear term.
SLACK_ROW = PINNED_ROW


@dataclass(frozen=True)
class RowBoxQP:
    """The subproblem.

    K : (m, m) float32, symmetric; rows : (variables,) int64, the row of K of each variable;
    group : (variables,) int64, from 0; sums : (groups,) float64; all others : (variables,) float64.
    start is within the boxes and has the sums. tolerance: the largest difference of two gradients
    of a group.
    """

    K: np.ndarray
    rows: np.ndarray
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    group: np.ndarray
    sums: np.ndarray
    start: np.ndarray
    tolerance: float

    def slope(self, beta: np.ndarray) -> np.ndarray:
        """Return h - K beta, (variables,)."""
        return self.h - self._product(beta)

    def _product(self, beta: np.ndarray) -> np.ndarray:
        out = np.zeros(len(self.K))
        _solver.product(self.K, np.bincount(self.rows, beta, len(self.K)).astype(float), out)
        return out[self.rows]

    def gain(self, slope: np.ndarray, step: np.ndarray) -> float:
        """Return by how much a step lowers the objective. slope: at the start of the step."""
        return float(slope @ step - step @ self._product(step) / 2)

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
            now, lower, upper = beta[own], self.lower[own], self.upper[own]
            if math.fsum(now) < s:
                room = fill_to_sum(now - lower, upper - lower, s - math.fsum(lower), -slope[own])
                moved = np.where(room == upper - lower, upper, lower + room)
                beta[own] = np.where(room == now - lower, now, moved)
            else:
                room = fill_to_sum(upper - now, upper - lower, math.fsum(upper) - s, slope[own])
                moved = np.where(room == upper - lower, lower, upper - room)
                beta[own] = np.where(room == upper - now, now, moved)
        return beta

    def at_bounds(self, beta: np.ndarray) -> np.ndarray:
        """Return beta with values next to a bound set to it, and with the sums of the groups."""
        near = np.minimum(
            NEAR_ROUNDING * np.abs(beta).max(initial=0.0), NEAR_SHARE * (self.upper - self.lower)
        )
        found = np.where(beta <= self.lower + near, self.lower, beta)
        found = np.where(found >= self.upper - near, self.upper, found)
        room = np.minimum(found - self.lower, self.upper - found)
        for g, s in enumerate(self.sums.tolist()):
            own = np.flatnonzero(self.group == g)
            rest = s - math.fsum(found[own])
            i = own[np.argmax(room[own])]
            if abs(rest) < room[i]:
                found[i] += rest
        return found


def solve_row_boxes(
    task: RowBoxQP, max_solves: int = MAX_ROW_BOX_SOLVES
) -> tuple[np.ndarray, bool, int]:
    """Return beta, whether LIBSVM ended before its limit of iterations, and its iterations.

    beta is never worse than the start. It may miss the tolerance, after `max_solves`.
    """
    beta, iterations = task.start, 0
    tried = np.zeros(len(beta), bool)
    for _ in range(max_solves):
        slope = task.slope(beta)
        offsets, violation = task.offsets(slope, beta)
        if violation <= task.tolerance:
            break
        pivots = task.pivots(beta, slope - offsets[task.group], tried)
        # The slope of an unbounded pivot is the offset, even if small boxes are not solved yet.
        unbounded = (beta[pivots] > task.lower[pivots]) & (beta[pivots] < task.upper[pivots])
        offsets = np.where(unbounded, slope[pivots], offsets)
        moves = _Moves.of(task, beta, slope, slope - offsets[task.group], pivots)
        if not len(moves.at):
            break
        found = moves.solve()
        iterations += found.iterations
        after = moves.applied(found.alpha)
        bounded = np.clip(after[pivots], task.lower[pivots], task.upper[pivots])
        if np.array_equal(bounded, after[pivots]):
            tried[:] = False
        else:
            after, reached = _within_boxes(task, beta, after, pivots, bounded, slope)
            tried[pivots] |= not reached
        after = task.at_bounds(after)
        if task.gain(slope, after - beta) > 0:
            beta = after
        if not found.ended:
            return beta, False, iterations
    return beta, True, iterations


def _within_boxes(
    task: RowBoxQP,
    beta: np.ndarray,
    after: np.ndarray,
    pivots: np.ndarray,
    bounded: np.ndarray,
    slope: np.ndarray,
) -> tuple[np.ndarray, bool]:
    """Return the better of two feasible points for a solution whose pivots leave their boxes.

    One is the point between beta and the solution where the first pivot reaches its bound. The
    other is the solution with the pivots at their bounds and with the sums restored. Also return
    whether the point is better than beta.
    """
    way = after[pivots] - beta[pivots]
    shares = np.divide(bounded - beta[pivots], way, out=np.ones(len(way)), where=way != 0)
    share = float(shares.min())
    shorter = np.clip(beta + share * (after - beta), task.lower, task.upper)
    first = shares == share
    shorter[pivots[first]] = bounded[first]
    restored = after.copy()
    restored[pivots] = bounded
    restored = task.with_sums(restored, task.slope(restored))
    points = [task.with_sums(shorter, slope), restored]
    gains = [task.gain(slope, point - beta) for point in points]
    best = int(np.argmax(gains))
    return points[best], gains[best] > 0


@dataclass(frozen=True)
class _Moves:
    """The variables t of LIBSVM's problem. at, room, whole, linear : (moves,).

    at: the variable that moves. room: its largest move, negative for a move down. whole: whether
    this reaches the end of the box. linear: the gradient by t. tolerance: that of LIBSVM.
    """

    task: RowBoxQP
    beta: np.ndarray
    pivots: np.ndarray
    at: np.ndarray
    room: np.ndarray
    whole: np.ndarray
    linear: np.ndarray
    tolerance: float

    @staticmethod
    def of(
        task: RowBoxQP,
        beta: np.ndarray,
        slope: np.ndarray,
        wanted: np.ndarray,
        pivots: np.ndarray,
    ) -> _Moves:
        up, down = task.upper - beta, beta - task.lower
        up[pivots] = down[pivots] = 0.0
        violating = np.concatenate(
            [up[wanted > task.tolerance / 2], down[wanted < -task.tolerance / 2]]
        )
        violating = violating[violating > 0]
        if not len(violating):
            violating = np.maximum(up, down).max(keepdims=True)
        largest = float(violating.max())
        least = largest / MAX_SPREAD
        typical = float(np.median(violating[violating >= least]))
        rises, falls = np.flatnonzero(up > least), np.flatnonzero(down > least)
        at = np.concatenate([rises, falls])
        ends = np.concatenate([up[rises], down[falls]])
        room = np.minimum(ends, largest) * np.repeat([1.0, -1.0], [len(rises), len(falls)])
        linear = -room * (slope - slope[pivots[task.group]])[at]
        # The rows that LIBSVM changes first lie next to each other.
        order = np.argsort(linear, kind="stable")
        whole = (ends <= largest)[order]
        tolerance = task.tolerance * typical / 2
        return _Moves(task, beta, pivots, at[order], room[order], whole, linear[order], tolerance)

    def solve(self) -> Outcome:
        """Return LIBSVM's solution, with t of each move in `alpha`."""
        m, unit = len(self.at), float(np.abs(self.linear).max()) or 1.0
        layout = PrecomputedNodes.of(self._kernel(1 / math.sqrt(unit)), np.arange(m))
        set_linear_term(layout, self.linear / unit + 1, pinned=-1.0)
        layout.set_extra(SLACK_ROW, np.zeros(m), np.zeros(4))
        rows = np.concatenate([np.arange(m), [m, m + 1, m + SLACK_ROW]])
        labels = np.append(np.ones(m + 2), -1.0)
        within = max(self.tolerance / unit, MIN_TOLERANCE)
        found = c_svc(layout, rows, labels, (1.0, m + 3.0), within)
        layout.close()
        return found._replace(alpha=found.alpha[:m])

    def _kernel(self, scale: float) -> np.ndarray:
        """Return the kernel values of the moves times scale^2, (moves, moves) float32."""
        task, pivots = self.task, self.task.rows[self.pivots]
        rows, group = task.rows[self.at], task.group[self.at]
        values = task.K.take(rows, axis=0).take(rows, axis=1)
        if len(pivots) == 1:
            with_pivot = task.K[rows, pivots[0]]
            values -= with_pivot[:, None]
            values -= with_pivot - task.K[pivots[0], pivots[0]]
        else:
            with_pivots = task.K[np.ix_(rows, pivots)][:, group]
            values -= with_pivots
            values -= with_pivots.T
            values += task.K[np.ix_(pivots, pivots)][np.ix_(group, group)]
        factor = (scale * self.room).astype(np.float32)
        values *= factor[:, None]
        values *= factor
        return values

    def applied(self, t: np.ndarray) -> np.ndarray:
        """Return beta after the moves, (variables,); only pivots may be outside their boxes."""
        task, m = self.task, len(self.beta)
        step = np.bincount(self.at, self.room * t, m)
        beta = np.clip(self.beta + step, task.lower, task.upper)
        moved = np.bincount(self.at, t != 0, m)
        ends = (t == 1) & self.whole & (moved[self.at] == 1)
        rise, fall = self.at[ends & (self.room > 0)], self.at[ends & (self.room < 0)]
        beta[rise], beta[fall] = task.upper[rise], task.lower[fall]
        for g, pivot in enumerate(self.pivots.tolist()):
            others = task.group == g
            others[pivot] = False
            beta[pivot] = task.sums[g] - math.fsum(beta[others])
        return beta
