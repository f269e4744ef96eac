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

Knows nothing of data, kernels or scans, and LIBSVM only by its two problems in libsvm.py.

One box. Where upper - lower is the same C everywhere, the subproblem is LIBSVM's one-class problem:
with beta = lower + C t,

    min 1/2 t' K t + q' t,  0 <= t <= 1,  sum_i t_i = (s - sum lower) / C,   q = (K lower - h) / C.

LIBSVM has no q: two pseudo-rows at t = 1 have the values q_i with row i, the first as float32,
which is what LIBSVM keeps, the second what is left of it. They come first, so that LIBSVM begins
with t = 1 for them, and their diagonal is so negative that they stay there. After them come the
rows in the order of their start, so that it begins with bounded coefficients where they are. The
sum is exact. An epsilon-SVR is this for two variables a row, beta = a + a*, 0 <= a <= C with
h - epsilon and -C <= a* <= 0 with h + epsilon.

Two boxes (class weights) are a C-SVC, see _TwoBoxes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import randsvm.svm._solver as _solver
from randsvm.svm.libsvm import Caller, Layout, Outcome, at_once, c_svc, one_class

# Diagonal of a pseudo-row that stays at its bound, for alpha = 1: LIBSVM never finds its gradient
# worth a step. Within float32, and far above all gradients.
HOLD = -1e30
# A coefficient this close to its bound, relative to the box, is at it: rounding in LIBSVM's steps.
NEAR = 1e-13
# So often class weights guess which bound a coefficient is going to reach, before they do without.
GUESSES = 4
# Largest diagonal of a pinned row, and how far the rounding of its gradient stays below the
# tolerance: else LIBSVM never comes to an end.
PINNED_MOST = 2.0**24
PINNED_ROUNDING = 1 / 32


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
) -> Solution:
    """Solve the subproblem above to `tolerance`, the largest difference of two gradients.

    K : (m, m) float32, C-contiguous, symmetric; need not be positive semidefinite, as in LIBSVM.
    h, lower, upper : (m,) float64. upper - lower has one value or two; two with epsilon = 0, one
    of lower and upper 0, and all rows of a value on the same side.
    s: from sum lower to sum upper. start : (m,) float64, a feasible point to begin from.
    call: see Caller. If it raises while LIBSVM still works, LIBSVM's memory is left to it.
    Raises ValueError where no beta has this sum.
    """
    h = np.ascontiguousarray(h, np.float64)
    width = upper - lower
    wide, narrow = float(width.max(initial=0.0)), float(width.min(initial=np.inf))
    bounded = _only_point(lower, upper, s)
    if bounded is not None:
        return Solution(bounded, True, 0)
    if start is None:
        start = lower
    if epsilon:
        return _regression(K, h, upper, s, start, tolerance, epsilon, call)
    task = _Task(K, h, lower, upper, s, start, tolerance)
    if wide == narrow:
        return _one_box(task, call)
    return _two_boxes(task, call)


def _only_point(lower: np.ndarray, upper: np.ndarray, s: float) -> np.ndarray | None:
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
class _Task:
    """The subproblem without epsilon. K : (m, m), of which variable i has row i % m; all others
    : (variables,) float64."""

    K: np.ndarray
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    s: float
    start: np.ndarray
    tolerance: float

    def gradient(self, beta: np.ndarray) -> np.ndarray:
        """K beta - h."""
        m = len(self.K)
        sums = product(self.K, beta.reshape(-1, m).sum(axis=0))
        return np.tile(sums, len(beta) // m) - self.h

    def layout(self, order: np.ndarray) -> Layout:
        return Layout.of(self.K, order % len(self.K))

    @property
    def height(self) -> np.ndarray:
        """Where start is in its box, from 0 to 1."""
        return (self.start - self.lower) / (self.upper - self.lower)

    def finished(self, beta: np.ndarray) -> np.ndarray:
        """beta with values next to a bound at it, and unbounded ones so that the sum is s."""
        near = NEAR * (self.upper - self.lower)
        beta = np.where(beta <= self.lower + near, self.lower, beta)
        beta = np.where(beta >= self.upper - near, self.upper, beta)
        _give_back(beta, self)
        return beta


def _give_back(beta: np.ndarray, task: _Task) -> None:
    """Add what is left of s to coefficients that have room, in place."""
    rest = task.s - math.fsum(beta)
    room = np.minimum(beta - task.lower, task.upper - beta) / 2
    for i in np.argsort(-room)[: np.count_nonzero(room > 0)]:
        step = min(max(rest, -room[i]), room[i])
        beta[i] += step
        rest -= step
        if rest == 0:
            return
    # Nothing unbounded is left: the bounded coefficient that the objective parts with first.
    if abs(rest) > NEAR * (task.upper - task.lower).sum():
        side = math.copysign(1.0, rest)
        room = np.where(rest > 0, task.upper - beta, beta - task.lower)
        slope = np.where(room > 0, side * task.gradient(beta), np.inf)
        i = int(np.argmin(slope))
        beta[i] += side * min(abs(rest), room[i])


def _split(values: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """The values as float32, which LIBSVM keeps, and what is left of them; both float64."""
    first = np.asarray(values, np.float64).astype(np.float32).astype(np.float64)
    return first, values - first


def _one_box(task: _Task, call: Caller) -> Solution:
    """See the head of this file."""
    C = float(task.upper[0] - task.lower[0])
    order = np.argsort(-task.height, kind="stable")
    q = task.gradient(task.lower)[order] / C
    layout = task.layout(order)
    for number, part in enumerate(_split(q)):
        layout.set_extra(number, part, np.where(np.arange(3) == number, HOLD, 0.0))
    m = len(order)
    rows = np.concatenate([[m, m + 1], np.arange(m)])
    total = (task.s - math.fsum(task.lower)) / C + 2
    found = one_class(layout, rows, total, task.tolerance / C, call)
    layout.close()
    beta = np.empty(m)
    beta[order] = task.lower[order] + C * found.alpha[2:]
    return Solution(task.finished(beta), found.ended, found.iterations)


def _regression(
    K: np.ndarray,
    h: np.ndarray,
    upper: np.ndarray,
    s: float,
    start: np.ndarray,
    tolerance: float,
    epsilon: float,
    call: Caller,
) -> Solution:
    """beta = a + a*: the positive and the negative part, each with a price of epsilon."""
    m, zero = len(h), np.zeros(len(h))
    task = _Task(
        K,
        np.concatenate([h - epsilon, h + epsilon]),
        np.concatenate([zero, -upper]),
        np.concatenate([upper, zero]),
        s,
        np.concatenate([np.maximum(start, 0.0), np.minimum(start, 0.0)]),
        tolerance,
    )
    both = _one_box(task, call)
    return both._replace(beta=both.beta[:m] + both.beta[m:])


def _two_boxes(task: _Task, call: Caller) -> Solution:
    """Class weights: see _TwoBoxes. Mirrored if the wide boxes are below 0."""
    width = task.upper - task.lower
    A, B = float(width.max()), float(width.min())
    wide = width == A
    if task.upper[wide][0] > 0:
        return _TwoBoxes(task, wide, A, B).solve(call)
    mirrored = _Task(
        task.K, -task.h, -task.upper, -task.lower, -task.s, -task.start, task.tolerance
    )
    found = _TwoBoxes(mirrored, wide, A, B).solve(call)
    return found._replace(beta=0.0 - found.beta)


@dataclass(frozen=True)
class _TwoBoxes:
    """Boxes 0 .. A for some rows and -B .. 0 for the others, A > B: a C-SVC with two C.

    A coefficient begins at one of its bounds and moves away from it by a: up with label 1, then
    LIBSVM keeps a <= A, or down with label -1, then a <= B. From 0 on that is the box. At the
    other bound LIBSVM has the other row's box, and a has to be looked at afterwards:
    where it left its own box, or came to the end of a smaller one, the solve is repeated with
    this coefficient from 0 on.

    Pseudo-rows give the linear term and the sum, with r = s - sum of where coefficients begin:

        two corner rows, label -1, negative diagonal: LIBSVM takes them to a = B first of all and
            leaves them there; their values with row i, in all w_i, add -y_i B w_i to its gradient
        a pinned row, diagonal H and values v with the corner rows, given so many times that
            their a can sum to 2 B - r, where their gradient is zero (1 / H beside it).

    wide : (m,) bool, rows with the box 0 .. A.
    """

    task: _Task
    wide: np.ndarray
    A: float
    B: float

    def solve(self, call: Caller) -> Solution:
        from_zero = np.zeros(len(self.wide), bool)
        iterations, begin = 0, self.task.start
        for guess in range(GUESSES):
            high = self._begin_high(begin, from_zero | (guess == GUESSES - 1))
            beta, wrong, found = self._attempt(high, call)
            iterations += found.iterations
            if not wrong.any():
                break
            from_zero |= wrong
            begin = np.clip(beta, self.task.lower, self.task.upper)
        return Solution(self.task.finished(beta), found.ended, iterations)

    def _begin_high(self, begin: np.ndarray, from_zero: np.ndarray) -> np.ndarray:
        """Which coefficients begin at their upper bound: as many as the sum has room for, those
        that are highest in `begin` first; (m,) bool."""
        task = self.task
        width = task.upper - task.lower
        order = np.argsort((task.lower - begin) / width, kind="stable")
        high = np.empty(len(order), bool)
        high[order] = np.cumsum(width[order]) <= task.s - task.lower.sum()
        return np.where(from_zero, ~self.wide, high)

    def _attempt(self, high: np.ndarray, call: Caller) -> tuple[np.ndarray, np.ndarray, Outcome]:
        """beta, and where it cannot be trusted."""
        task, A, B = self.task, self.A, self.B
        begin, y = np.where(high, task.upper, task.lower), np.where(high, -1.0, 1.0)
        # LIBSVM puts label 1 first.
        order = np.argsort(high, kind="stable")
        layout = task.layout(order)
        total = 2 * B - (task.s - math.fsum(begin))
        side, bound = (1.0, A) if total >= 0 else (-1.0, B)
        times = int(abs(total) / bound) + 1
        self._pseudo_rows(layout, (task.gradient(begin) + y)[order], total, side)
        m = len(order)
        rows = np.concatenate([np.full(times, m + 2), np.arange(m), [m, m + 1]])
        labels = np.concatenate([np.full(times, side), y[order], [-1.0, -1.0]])
        found = c_svc(layout, rows, labels, (A, B), task.tolerance, call)
        layout.close()
        a = np.empty(m)
        a[order] = found.alpha[times : times + m]
        far = (a > B * (1 + NEAR)) & ~self.wide | (a >= B) & self.wide
        return begin + y * a, far & (high == self.wide), found

    def _pseudo_rows(self, layout: Layout, slope: np.ndarray, total: float, side: float) -> None:
        """slope : (variables,) that the corner rows add to y_i times the gradient; total: what the
        pinned rows sum to, with the label `side`."""
        H = self._pinned_diagonal(total)
        v = (H * total - side - self._multiplier()) / self.B
        for number, (part, pinned) in enumerate(
            zip(_split(-slope / self.B), _split(v), strict=True)
        ):
            corner = HOLD / self.B
            layout.set_extra(number, part, [corner, corner, float(pinned)])
        layout.set_extra(2, np.zeros(layout.variables), [0.0, 0.0, H])

    def _pinned_diagonal(self, total: float) -> float:
        """H, a power of two. The gradient is H times a sum of this size, with its rounding."""
        rounding = (abs(total) + self.A) * 2.0**-52
        H = PINNED_ROUNDING * self.task.tolerance / rounding
        return min(PINNED_MOST, 2.0 ** math.floor(math.log2(H)))

    def _multiplier(self) -> float:
        """A guess at the gradient of unbounded coefficients: it moves the pinned rows by 1 / H of
        it, which is what they are off by without."""
        task = self.task
        free = (task.lower < task.start) & (task.start < task.upper)
        return float(np.median(task.gradient(task.start)[free])) if free.any() else 0.0
