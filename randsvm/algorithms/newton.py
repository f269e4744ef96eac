"""Train linear SVMs to a duality gap, by Newton's method on the primal objective.

Sparse rows of many columns have passes of coordinates.py first.

    P = 1/2 |w|^2 + sum_i C_i loss(y_i, f_i),  f = <w, x> + b,  b is 0 or not regularised

The hinge loss and the epsilon-insensitive loss have no second derivative. The augmented Lagrangian
of the dual replaces them by smooth functions: Yan, Li, "An Efficient Augmented Lagrangian Method
for Support Vector Machine", Optimization Methods and Software 35, 2020. Each row has a coefficient

    beta = argmax beta (y - f) - epsilon |beta| - (beta - beta0)^2 / (2 sigma)  in its box,

and sum beta x is the negative gradient of the smoothed losses by w. Whenever the error of the
solution of the smoothed problem is below the error of the smoothing, beta0 becomes beta. The
squares of these losses are the case beta0 = 0, sigma = 2 C, without an upper bound, and are not
approximated. Nor is the logistic loss: its beta is the negative slope.

For a free b, the positive and the negative beta are scaled to equal sums. Then beta is feasible for
the dual, whose value is a lower bound of P. The gap between the lowest P and the highest D so far
ends the training.

The steps are solved by conjugate gradients, with products of the Hessian as a matrix if there are
few columns, else with two passes over the rows. Their preconditioner is the diagonal of the Hessian
for columns of mean 0, so that neither the units nor the means of the columns matter.

With an L1 penalty, |w|_1 in place of 1/2 |w|^2, D lacks the term -1/2 |sum beta x|^2, and beta is
feasible if no element of sum beta x is above 1 in size: a factor brings it there. A step minimises
the quadratic model of the losses, and |w|_1, by coordinate descent: Yuan, Ho, Lin, "An Improved
GLMNET for L1-regularized Logistic Regression", JMLR 13, 2012. Passes over the columns leave out
weights that stay 0. Where few are left, passes over the matrix of their second derivatives follow,
which take far less time. Each move of a weight also moves b to its best value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import count
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from randsvm.algorithms import _newton
from randsvm.algorithms.coordinates import ascend
from randsvm.arrays import CsrMatrix, Matrix, column_sums, median, to_csr
from randsvm.data.dataset import Chunk, Dataset
from randsvm.data.shard_executor import Shard
from randsvm.events import Progress, emit
from randsvm.svm.linear_loss import Linear, LinearObjective

# The smoothing of classes begins at this width of f, and that of targets at their mean distance
# from the median. It narrows by this factor with each new beta0.
WIDTH, NARROWER = 1.0, 0.5
# beta0 changes once the gap of the smoothed problem is below this part of the real gap.
SMOOTHED_PART = 0.3
# Conjugate gradients end at this part of the first squared residual, or after MAX_PRODUCTS steps.
RESIDUAL, MAX_PRODUCTS = 0.01, 500
# A step is shortened by SHORTER until the objective falls by at least this part of its slope.
SUFFICIENT, SHORTER, MAX_TRIALS = 1e-4, 1 / 3, 30
# Training ends after this many consecutive steps that do not lower the gap by 1%: the rest is
# rounding.
MAX_IDLE_STEPS = 20
# Rows have passes of coordinate ascent if there are at least this many columns, a quarter of which
# or less they have. With fewer columns Newton steps take less time.
MANY_COLUMNS = 1000
# Decision functions are trained in turns, since a run may end early: all up to the first of these
# numbers of passes and steps, then all up to the next. P and D are also computed there.
TURNS = (1, 8, 64)
# Bytes of each row for a decision function whose training is under way.
ROW_BYTES = 100
# Where the estimate of a pass reaches the gap and the evaluation does not, passes go on until their
# estimate is below this part of the gap.
STRICTER = 0.7
# With an L1 penalty, a step ends after MAX_PASSES passes over the columns. After FEW_PASSES, where
# at most FEW_WEIGHTS weights are left, up to MAX_FEW_PASSES passes over the matrix of their second
# derivatives follow, FEW_AT_ONCE between two events, which end at ALL_BUT of the first decrease.
MAX_PASSES, FEW_PASSES, FEW_WEIGHTS, MAX_FEW_PASSES, FEW_AT_ONCE = 100, 5, 1000, 10_000, 100
ALL_BUT = 1e-6
# A second derivative that falls below this part where b moves as well has lost its digits.
CANCELLED = 1e-8
# Relative rounding of sums.
ROUNDING = 1e-12
# A column counts as constant if its variance is at most this part of its mean square.
CONSTANT = 1e-15
# The Hessian is computed as a matrix if there are at most FEW_COLUMNS columns and, on average, at
# most FEW_IN_ROW nonzeros in a row, unless the squared mean of a column is more than FAR times its
# variance.
FEW_COLUMNS, FEW_IN_ROW, FAR = 300, 100, 1e4
# Rows with at most this many nonzeros are kept as they are read, and more if memory allows.
FEW_VALUES = 1 << 20


@dataclass(eq=False)
class Found:
    """The best solution of one decision function so far; passes and steps change it.

    u : (d + 1,), w and b of the lowest P so far. rows, beta: the feasible coefficients of the
    highest D so far that are not 0, and their rows. primal, dual: that P, infinite before the
    training begins, and that D
    C: that of the problem. steps, passes: the Newton steps and passes so far. is_limited: whether
    their number ended the training above the gap. take_latest: see `_Problem._take`; None if P and
    D after the last pass are known
    """

    u: np.ndarray
    C: float
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    beta: np.ndarray = field(default_factory=lambda: np.empty(0))
    primal: float = inf
    # That of coefficients of 0.
    dual: float = 0.0
    steps: int = 0
    passes: int = 0
    is_limited: bool = False
    take_latest: Callable[[], None] | None = None


@dataclass(frozen=True)
class Solution:
    """The best solutions of all decision functions so far; passes and steps change them.

    n: the number of rows
    """

    parts: list[Found]
    n: int

    @staticmethod
    def at(linear: Linear, C: float, n: int) -> Solution:
        """Return a solution with coefficients of 0."""
        columns = zip(linear.w.T, linear.b, strict=True)
        return Solution([Found(np.append(w, b), C) for w, b in columns], n)

    @property
    def linear(self) -> Linear:
        u = np.stack([part.u for part in self.parts], axis=1)
        return Linear(u[:-1], u[-1])

    @property
    def coefficients(self) -> Iterator[np.ndarray]:
        """The coefficients of each decision function, (n,)."""
        for part in self.parts:
            beta = np.zeros(self.n)
            beta[part.rows] = part.beta
            yield beta

    @property
    def primal(self) -> float:
        return sum(part.primal for part in self.parts)

    @property
    def dual(self) -> float:
        return sum(part.dual for part in self.parts)

    @property
    def steps(self) -> int:
        """The most Newton steps of a decision function."""
        return max(part.steps for part in self.parts)

    @property
    def passes(self) -> int:
        """The most passes of a decision function."""
        return max(part.passes for part in self.parts)

    @property
    def is_limited(self) -> bool:
        return any(part.is_limited for part in self.parts)

    @property
    def gap(self) -> float:
        scale = max(abs(self.primal), abs(self.dual))
        return (self.primal - self.dual) / scale if scale else 0.0

    def take_latest(self) -> None:
        """Keep what the last pass has found, if it is better."""
        for part in self.parts:
            if part.take_latest is not None:
                part.take_latest()


class Minimiser:
    """Passes and Newton steps over the rows of D, with one value of C after the other.

    moments: returns `column_moments`. bias: whether b is free, otherwise it is 0. memory: bytes for
    the rows, which are read again in each pass if D has more.
    X: all rows, for passes of coordinate ascent; columns: all rows for an L1 penalty, see
    `CsrMatrix.by_columns`; None: there is no need. rows: returns the rows of a shard
    """

    def __init__(
        self,
        D: Dataset,
        objective: LinearObjective,
        moments: Callable[[], np.ndarray],
        *,
        bias: bool = True,
        memory: float = inf,
    ) -> None:
        self.D, self.objective, self.moments, self.bias = D, objective, moments, bias
        self.memory, self.X, self.columns = memory, None, None
        chunks = (chunk for shard in D.shards for chunk in D.chunks(shard))
        may_ascend = D.mapping is None and objective.loss != "log" and D.d >= MANY_COLUMNS
        if objective.l1:
            starts, of_rows, values = CsrMatrix.vstack([to_csr(c.X) for c in chunks]).by_columns()
            self.columns = starts.astype(np.int64), of_rows, values
        elif may_ascend and 12 * D.nnz <= min(memory, 3 * D.n * D.d):
            self.X = CsrMatrix.vstack([to_csr(c.X).astype(np.float32, copy=False) for c in chunks])
        self.rows: Callable[[Shard], Iterable[Chunk]] = partial(_rows, D)
        # Passes of coordinate ascent need rows rarely. A kept nonzero takes 12 bytes, a row some
        # more.
        if D.nnz <= FEW_VALUES or (self.X is None and 16 * D.nnz <= memory):
            self.rows = cache(lambda shard: list(_rows(D, shard)))

    def minimise(
        self, C: float, start: Solution, gap: float, most: int | None = None
    ) -> Iterator[Solution]:
        """Yield the solution after each pass and step until P - D <= gap max(|P|, |D|), or until
        rounding is in the way.

        Each decision function is trained with at most `most` steps and passes, in turns, or one
        after the other if there is not the memory for turns. Rows with few of many columns have
        passes of coordinate ascent, and then Newton steps if the passes miss the gap.
        """

        def trained(k: int, found: Found) -> Iterator[None]:
            """Train a decision function; its problem takes memory from now on until the end."""
            problem = _Problem(self, C, k, found, start.parts[k])
            yield from problem.reach(gap, inf if most is None else most)

        solution = Solution([Found(part.u, C) for part in start.parts], self.D.n)
        under_way = [(found, trained(k, found)) for k, found in enumerate(solution.parts)]
        may_turn = ROW_BYTES * self.D.n * len(under_way) <= self.memory
        for turn in (*TURNS, inf) if may_turn else (inf,):
            for found, steps in under_way.copy():
                for _ in steps:
                    yield solution
                    if found.passes + found.steps >= turn:
                        break
                else:
                    under_way.remove((found, steps))


def column_moments(D: Dataset) -> np.ndarray:
    """Return the mean and the mean square of each column of D, (2, d) float64."""

    def sums(shard: Shard) -> np.ndarray:
        found = np.zeros((2, D.d))
        for _, X, *_ in _rows(D, shard):
            found[0] += column_sums(X)
            found[1] += column_squares(X)
        return found

    return _total(D, sums, np.zeros((2, D.d))) / D.n


class _Point(NamedTuple):
    """A point u = (w, b), (d + 1,), and what is known there.

    primal, dual: P and D; smoothed, smoothed_dual: those of the smoothed problem; gradient :
    (d + 1,) of the smoothed problem; curvature: the sum of the rows' second derivatives
    """

    u: np.ndarray
    primal: float
    dual: float
    smoothed: float
    smoothed_dual: float
    gradient: np.ndarray
    curvature: float


class _Problem:
    """A decision function of D, and its coefficients of the rows.

    mean, variance : (d,) of the columns; without b the mean counts as 0
    y, C, most, beta0, beta, second : (n,), C of each row with its weights; most: bounds of |beta|;
    second: the second derivatives of the smoothed losses. feasible_part: the factor of beta that
    makes it feasible for an L1 penalty. columns: of all rows, see `CsrMatrix.by_columns`; None
    without an L1 penalty. found: the best solution so far
    """

    def __init__(self, of: Minimiser, C: float, k: int, found: Found, start: Found) -> None:
        self.D, self.objective, self.bias, self.width = of.D, of.objective, of.bias, WIDTH
        self.rows, self.X, self.columns, self.found = of.rows, of.X, of.columns, found
        self.moments = of.moments
        self.rng = np.random.default_rng(0)
        self.y, weights = of.objective.binary(of.D.labels(), of.D.weights(), k)
        if self.objective.is_regression:
            self.width = float(np.abs(self.y - median(self.y)).mean()) or WIDTH
        # A class of weight 0 has no losses. Coefficients are divided by C, so it is not 0.
        self.C = np.maximum(C * weights, np.finfo(float).tiny)
        largest = np.full(of.D.n, np.finfo(float).max)
        self.most = largest if self.objective.is_squared else self.C
        self.is_log = self.objective.loss == "log"
        self.is_smooth = self.objective.is_squared or self.is_log
        self.beta0, self.beta, self.second = np.zeros((3, of.D.n))
        self.feasible_part = 1.0
        # Those of rows beyond the margin are 0 or C, and grow with C.
        most = self.most[start.rows]
        self.beta[start.rows] = np.clip(start.beta * (C / start.C), -most, most)

    def reach(self, gap: float, limit: float) -> Iterator[None]:
        """Make passes and Newton steps, at most `limit`, until the gap is reached or rounding is in
        the way; yield at the start and after each."""
        self.gap, self.limit, found = gap, limit, self.found
        # Epochs have weights without coefficients, which passes would lose.
        if self.X is not None and (self.beta.any() or not found.u[:-1].any()):
            yield from self._ascend(self.X)
        if not self.is_smooth:
            self.beta0[:] = self.beta
        if not self.is_over:
            yield from self._steps()
        found.is_limited = self.is_over and not self.is_reached

    def _ascend(self, X: CsrMatrix) -> Iterator[None]:
        """Make the passes of `reach`."""
        found, regression = self.found, self.objective.is_regression
        up, down = (self.y > 0) | regression, (self.y < 0) | regression
        ridge = 1 / (2 * self.C) if self.objective.is_squared else np.zeros(len(self.y))
        bounds = -(down * self.most), up * self.most
        self._keep(self._evaluate(found.u, given=True))
        yield
        epsilon, b = self.objective.epsilon or 0.0, float(found.u[-1])
        passes = ascend(X, self.y, bounds, ridge, epsilon, self.bias, b, self.beta)
        asked, again = self.gap, None
        with suppress(StopIteration):
            while not self.is_over:
                u, estimate = passes.send(again)
                found.passes, found.take_latest = found.passes + 1, partial(self._take, u)
                again = estimate <= asked
                if again or found.passes in (*TURNS, self.limit):
                    self._keep(self._evaluate(u, given=True))
                    asked *= STRICTER if again else 1.0
                yield
        if not self.is_over:
            # The passes ended above the gap: Newton steps begin where they ended.
            self._keep(self._evaluate(u, given=True))

    @property
    def is_reached(self) -> bool:
        primal, dual = self.found.primal, self.found.dual
        return isfinite(primal) and primal - dual <= self.gap * max(abs(primal), abs(dual))

    @property
    def is_over(self) -> bool:
        return self.is_reached or self.found.passes + self.found.steps >= self.limit

    def _feasible(self) -> np.ndarray:
        """Return the coefficients with the sum that is prescribed."""
        size = np.array([self.beta[self.beta > 0].sum(), -self.beta[self.beta < 0].sum()])
        return self.feasible_part * self.beta * np.where(self.beta > 0, *self._shorter(size))

    def _shorter(self, size: np.ndarray) -> np.ndarray:
        """Return the factors of the coefficients above 0 and below 0, whose absolute sums are
        `size`, that make their sum 0: the larger side is scaled down."""
        if not self.bias:
            return np.ones(2)
        return np.divide(size.min(), size, out=np.zeros(2), where=size > 0)

    def _keep(self, at: _Point) -> None:
        """Keep the point if its P is the lowest so far, and the coefficients there if their D is
        the highest."""
        found = self.found
        found.take_latest = None
        if at.dual > found.dual:
            found.dual = at.dual
            self._keep_coefficients()
        if at.primal < found.primal:
            found.u, found.primal = at.u, at.primal

    def _keep_coefficients(self) -> None:
        beta = self._feasible()
        self.found.rows = np.flatnonzero(beta)
        self.found.beta = beta[self.found.rows]

    def _take(self, u: np.ndarray) -> None:
        """Keep the point after the last pass, and the coefficients, as far as they are better, or
        if there is not the time to know."""
        try:
            self._keep(self._evaluate(u, given=True))
        except Exception:
            self.found.u, self.found.take_latest = u, None
            self._keep_coefficients()
            raise

    def _steps(self) -> Iterator[None]:
        """Make the Newton steps of `reach`."""
        direction = self._l1_direction if self.columns is not None else self._direction
        found, lowest, last = self.found, inf, 0
        at = self._evaluate(found.u)
        for number in count():
            found.steps = number
            self._keep(at)
            yield
            difference = found.primal - found.dual
            if difference < 0.99 * lowest:
                lowest, last = difference, number
            if self.is_over or number - last == MAX_IDLE_STEPS:
                return
            solved = at.smoothed - at.smoothed_dual < SMOOTHED_PART * (at.primal - at.dual)
            if solved and not self.is_smooth:
                self.beta0[:] = self.beta
                self.width *= NARROWER
                at = self._evaluate(at.u)
            at = self._lower(at, direction(at))

    def _lower(self, at: _Point, step: np.ndarray) -> _Point:
        """Return a point with a lower smoothed objective in the direction of a step."""
        slope, part = float(at.gradient @ step), 1.0
        if self.objective.l1:
            after, before = map(self.objective.penalty, ((at.u + step)[:-1], at.u[:-1]))
            slope += float(after - before)
        for _ in range(MAX_TRIALS):
            found = self._evaluate(at.u + part * step)
            change = SUFFICIENT * part * slope + ROUNDING * abs(at.smoothed)
            if found.smoothed <= at.smoothed + change:
                break
            part *= SHORTER
        return found

    @np.errstate(over="ignore", invalid="ignore")
    def _l1_direction(self, at: _Point) -> np.ndarray:
        """Return the Newton step of an L1 penalty by passes of coordinate descent."""
        assert self.columns is not None
        d, total = self.D.d, at.curvature * self.bias
        step, moved, curvature = np.zeros(d + 1), np.zeros(self.D.n), np.full((2, d), -1.0)
        step[-1] = -at.gradient[-1] / total if total else 0.0
        # The other weights are 0 and stay 0 in this step.
        moving = (at.u[:-1] != 0) | (np.abs(at.gradient[:-1]) > 1)
        order, first, most = np.flatnonzero(moving).astype(np.int32), 0.0, FEW_WEIGHTS
        for number in range(MAX_PASSES):
            emit(Progress("Newton step", 0, None, "beat"))
            self.rng.shuffle(order)
            left, decrease = _newton.descend(
                *self.columns, self.second, at.gradient, at.u, total, curvature, order, moved, step
            )
            order, first = order[:left], first or decrease
            if decrease <= RESIDUAL * first:
                break
            if number + 1 >= FEW_PASSES and left <= most:
                if self._descend_few(at, np.sort(order), step, ALL_BUT * first):
                    break
                most = -1  # the matrix would lose its digits again
        return step

    def _descend_few(self, at: _Point, chosen: np.ndarray, step: np.ndarray, enough: float) -> bool:
        """Continue the passes of `step` with the weights `chosen`, by the matrix of their second
        derivatives, until a pass lowers the model of P by little; see `enough` of `descend_few`.

        Return False, without a change, where the matrix has lost its digits.
        """
        few = np.append(chosen, self.D.d)
        H = self._curvature(chosen)
        H += np.triu(H, 1).T
        H[-1] *= self.bias
        H[:, -1] *= self.bias
        G = at.gradient[few] + H @ step[few]
        # Each weight moves together with the best b.
        mean, before = H[-1] / (H[-1, -1] or 1.0), CANCELLED * np.diag(H)[:-1]
        H, G = H - np.outer(mean, H[-1]), G - mean * G[-1]
        # Passes over columns with large means and small spreads are rounded less.
        if (np.diag(H)[:-1] < before).any():
            return False
        w = (at.u + step)[chosen]
        start = w.copy()
        for _ in range(0, MAX_FEW_PASSES, FEW_AT_ONCE):
            emit(Progress("Newton step", 0, None, "beat"))
            if _newton.descend_few(H, G, w, FEW_AT_ONCE, enough) <= enough:
                break
        # A weight of 0 is exactly 0 after the step.
        step[chosen] = np.where(w == 0, -at.u[chosen], step[chosen] + (w - start))
        step[-1] -= mean[:-1] @ (w - start)
        return True

    @np.errstate(over="ignore", invalid="ignore")
    def _direction(self, at: _Point) -> np.ndarray:
        """Return the Newton step by preconditioned conjugate gradients."""
        # Without a curved row nothing bounds the step of b: with the curvature of all rows in its
        # place the step is at most the width.
        ridge = 1e-9 * at.curvature or float(self.C.sum()) / self.width
        H = self._hessian(ridge) if self.is_direct else None
        x, r = np.zeros_like(at.u), -at.gradient
        p = self._preconditioned(r, at.curvature, ridge)
        rz = float(r @ p)
        enough = RESIDUAL * rz
        for _ in range(MAX_PRODUCTS):
            if rz <= enough:
                break
            Hp = self._hessian_product(p, ridge) if H is None else H @ p
            curvature = float(p @ Hp)
            # It is 0 or nan where numbers leave float64.
            if not curvature > 0:
                break
            length = rz / curvature
            x = x + length * p
            r = r - length * Hp
            z = self._preconditioned(r, at.curvature, ridge)
            last, rz = rz, float(r @ z)
            p = z + rz / last * p
        return x

    @cached_property
    def mean(self) -> np.ndarray:
        """The means of the columns; without b they count as 0, (d,)."""
        return self.moments()[0] * self.bias

    @cached_property
    def variance(self) -> np.ndarray:
        """The variances of the columns, (d,)."""
        square = self.moments()[1]
        variance = square - self.mean**2
        # The weight of a constant column is 0 at the optimum, as b is free.
        return np.where(variance > CONSTANT * square, variance, 1.0)

    @cached_property
    def is_direct(self) -> bool:
        # The outer products of few values take less time than the products of a step.
        few = self.D.d <= FEW_COLUMNS and self.D.nnz <= FEW_IN_ROW * self.D.n
        # Products with sums of squares of columns far from 0 are rounded too much.
        return few and bool((self.mean**2 <= FAR * self.variance).all())

    def _preconditioned(self, r: np.ndarray, curvature: float, ridge: float) -> np.ndarray:
        """Return r divided by the diagonal of the Hessian for columns of mean 0.

        f = <x - mean, w> + (b + <mean, w>): with such columns the offset is b + <mean, w>.
        """
        w = (r[:-1] - self.mean * r[-1]) / (1 + curvature * self.variance)
        return np.append(w, r[-1] / (curvature + ridge) - self.mean @ w)

    def _hessian_product(self, p: np.ndarray, ridge: float) -> np.ndarray:
        """Return the Hessian of the smoothed problem times p, (d + 1,).

        ridge: the penalty of b + <mean, w>
        """

        def add(chunk: Chunk, at: slice, sums: np.ndarray) -> None:
            _newton.add_products(*_parts(chunk.X), p, self.second[at], sums)

        emit(Progress("Newton step", 0, None, "beat"))
        level = ridge * float(p[-1] + self.mean @ p[:-1])
        product = self._added_to(np.append(p[:-1] + level * self.mean, level), add)
        product[-1] *= self.bias
        return product

    @np.errstate(over="ignore", invalid="ignore")
    def _evaluate(self, u: np.ndarray, given: bool = False) -> _Point:
        """Return the point u, and keep the coefficients and second derivatives there.

        given: whether the coefficients are those of `ascend`.
        """
        w, b, of = u[:-1], float(u[-1]), self.objective

        def add(chunk: Chunk, at: slice, sums: np.ndarray) -> None:
            _newton.add_sums(
                *_parts(chunk.X), w, b, self.y[at], self.C[at], self.most[at], self.beta0[at],
                of.is_regression, of.is_squared, self.is_log, of.epsilon or 0.0, self.width,
                given, self.beta[at], self.second[at], sums,
            )  # fmt: skip

        # Four numbers, then three of the rows with beta above 0 and of those below, then x beta of
        # both.
        sums = self._added_to(np.zeros((5 + len(w), 2)), add)
        (loss, smoothed), (proximal, curvature) = sums[:2].tolist()
        (size, value, square), products = sums[2:5], sums[5:]
        shorter = self._shorter(size)
        penalty, v = float(self.objective.penalty(w)), products @ shorter
        if self.objective.l1:
            self.feasible_part = 1 / max(1.0, float(np.abs(v).max(initial=0.0)))
            shorter *= self.feasible_part
        dual = float(value @ shorter - square @ shorter**2)
        if self.is_log:
            dual = float(self.objective.gains(self.y, self._feasible(), self.C)[0].sum())
        gradient = np.append(-products.sum(axis=1), (size[1] - size[0]) * self.bias)
        if not self.objective.l1:
            dual -= float(v @ v) / 2
            gradient[:-1] += w
        smoothed += penalty
        return _Point(u, penalty + loss, dual, smoothed, dual - proximal, gradient, curvature)

    def _hessian(self, ridge: float) -> np.ndarray:
        """Return the Hessian of the smoothed problem, (d + 1, d + 1). ridge: the penalty of b +
        <mean, w>."""
        H, m = self._curvature(np.arange(self.D.d)), self.D.d + 1
        if not self.bias:
            H[:, -1] = 0.0
        level = np.append(self.mean, 1.0)
        return (
            H + np.triu(H, 1).T + np.diag([*np.ones(m - 1), 0.0]) + ridge * np.outer(level, level)
        )

    def _curvature(self, columns: np.ndarray) -> np.ndarray:
        """Return the sum of second x x^T over the rows, with x = (row, 1): its upper triangle.

        columns : of the row in x
        """
        d, m = self.D.d, len(columns) + 1
        places = np.full(d, -1, np.int32)
        places[columns] = np.arange(m - 1)

        def add(chunk: Chunk, at: slice, H: np.ndarray) -> None:
            X = chunk.X if m - 1 == d else _chosen(chunk.X, columns, places)
            _newton.add_curvature(*_parts(X), self.second[at], H)

        emit(Progress("Newton step", 0, None, "beat"))
        return self._added_to(np.zeros((m, m)), add)

    def _added_to(
        self, total: np.ndarray, add: Callable[[Chunk, slice, np.ndarray], None]
    ) -> np.ndarray:
        """Return `total` with the sums over all rows added.

        add(chunk, at, sums) adds those of a chunk, whose rows are `at`, to `sums`.
        """

        def of(shard: Shard) -> np.ndarray:
            sums = np.zeros_like(total)
            for chunk in self.rows(shard):
                add(chunk, slice(chunk.start, chunk.start + len(chunk.y)), sums)
            return sums

        return _total(self.D, of, total)


def _chosen(X: Matrix, columns: np.ndarray, places: np.ndarray) -> Matrix:
    """Return rows over some columns. places : (d,), the place of each in `columns`; others -1"""
    if isinstance(X, np.ndarray):
        return X[:, columns]
    found = places[X.indices]
    used = found >= 0
    starts = np.concatenate([[0], np.cumsum(used)])[X.indptr]
    return CsrMatrix(X.data[used], found[used], starts, (X.shape[0], len(columns)))


def _rows(D: Dataset, shard: Shard) -> Iterator[Chunk]:
    """Yield the rows of a shard; if they store every value, as an array, whose products are
    faster."""
    for chunk in D.chunks(shard):
        X = chunk.X
        if not isinstance(X, np.ndarray) and X.nnz == X.shape[0] * X.shape[1]:
            X = X.data.reshape(X.shape)
        yield chunk._replace(X=X)


def column_squares(X: Matrix) -> np.ndarray:
    """Return the sum of the squares of each column, (d,) float64."""
    if isinstance(X, np.ndarray):
        return np.einsum("ij,ij->j", X, X, dtype=np.float64)
    return column_sums(X.with_data(np.square(X.data)))


def _parts(X: Matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the starts of the rows, their columns (empty if they have all) and values."""
    if isinstance(X, np.ndarray):
        m, d = X.shape
        return np.arange(m + 1) * d, np.empty(0, np.int32), np.ascontiguousarray(X).ravel()
    return X.indptr.astype(np.int64), X.indices, X.data


def _total(D: Dataset, sums: Callable[[Shard], np.ndarray], total: np.ndarray) -> np.ndarray:
    """Return the sum of sums(shard) over the shards of D, added to `total` in order."""
    for part in D.map(sums, large=True):
        total += part
    return total
