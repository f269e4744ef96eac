"""Train linear SVMs to a duality gap, by Newton's method on the primal objective.

    P = 1/2 |w|^2 + sum_i C_i loss(y_i, f_i),  f = <w, x> + b,  b is 0 or not regularised

The hinge loss and the epsilon-insensitive loss have no second derivative. The augmented Lagrangian
of the dual replaces them by smooth functions: Yan, Li, "An Efficient Augmented Lagrangian Method
for Support Vector Machine", Optimization Methods and Software 35, 2020. Each row has a coefficient

    beta = argmax beta (y - f) - epsilon |beta| - (beta - beta0)^2 / (2 sigma)  in its box,

and sum beta x is the negative gradient of the smoothed losses by w. As soon as the smoothed problem
is solved better than it resembles the real one, beta0 = beta. The squares of these losses are the
case beta0 = 0, sigma = 2 C, without an upper bound, and are not approximated.

Scaled so that its two signs have equal sums, which a free b needs, beta is feasible for the dual,
whose value is a lower bound of P. The gap between the lowest P and the highest D so far ends the
training.

The steps are solved by conjugate gradients over columns of mean 0 and variance 1, so that the units
of the columns do not matter. The penalty stays that of the original columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from randsvm.arrays import Matrix, column_sums, slices
from randsvm.data.dataset import Chunk, Dataset
from randsvm.data.shard_executor import Shard
from randsvm.events import Progress, emit
from randsvm.svm.linear import Linear

# The smoothing begins at this width of f, and narrows by this factor with each new beta0.
WIDTH, NARROWER = 1.0, 0.5
# beta0 changes once the gap of the smoothed problem is below this part of the real gap.
SMOOTHED_PART = 0.3
# Conjugate gradients end at this part of the first squared residual, or after MAX_PRODUCTS steps.
RESIDUAL, MAX_PRODUCTS = 0.01, 500
# A step is shortened by SHORTER until the objective falls by at least this part of its slope.
SUFFICIENT, SHORTER, MAX_TRIALS = 1e-4, 1 / 3, 30
# Training ends after this many consecutive steps that lower no gap by 1%: the rest is rounding.
MAX_IDLE_STEPS = 20
# Relative rounding of sums.
ROUNDING = 1e-12
# Coefficients of at most this number of rows times decision functions are computed at once.
MAX_COEFFICIENTS = 1 << 23
# The rows with curvature are kept for the products of a step if D has at most this many nonzeros.
MAX_KEPT_VALUES = 1 << 26


@dataclass(frozen=True)
class DualForm:
    """The losses of rows as the dual sees them.

    terms(chunk): returns y and C of its rows for each decision function, both (m, K) float64.
    squared: whether the loss is squared. epsilon: the half width of a regression's tube; None:
    classes, whose y is 1 or -1. bias: whether b is free, else 0.
    """

    terms: Callable[[Chunk], tuple[np.ndarray, np.ndarray]]
    squared: bool = False
    epsilon: float | None = None
    bias: bool = True


class Solution(NamedTuple):
    """The weights of lowest P so far, that P, the highest D so far, and the number of steps."""

    linear: Linear
    primal: float
    dual: float
    steps: int

    @property
    def gap(self) -> float:
        scale = max(abs(self.primal), abs(self.dual))
        return (self.primal - self.dual) / scale if scale else 0.0


def minimise(D: Dataset, form: DualForm, start: Linear, gap: float) -> Iterator[Solution]:
    """Yield better and better solutions until P - D <= gap P, or until rounding is in the way.

    Decision functions are independent: as many are trained at once as the memory for the
    coefficients of the rows suffices for.
    """
    scale, K = Standardised(D, form.bias), len(start.b)
    w, b = start.w.copy(), start.b.copy()
    primal, dual, before = np.full(K, np.inf), np.full(K, -np.inf), 0
    for at in slices(K, max(1, MAX_COEFFICIENTS // D.n)):
        problem = _Problem(D, form, scale, at)
        for steps, best in enumerate(problem.steps(Linear(w[:, at], b[at]), gap)):
            (w[:, at], b[at]), primal[at], dual[at] = scale.weights(best.u), best.primal, best.dual
            yield Solution(Linear(w, b), float(primal.sum()), float(dual.sum()), before + steps)
        before += steps


class Standardised:
    """Columns of mean 0 and variance 1 as a change of variables.

    u : (d + 1, K) holds w times the standard deviations, and b + <mean, w> as its last row. Without
    b the columns are divided by the roots of their mean squares, and the last row stays 0.
    """

    def __init__(self, D: Dataset, bias: bool) -> None:
        def sums(shard: Shard) -> np.ndarray:
            return np.sum([column_sums(one.X) for one in D.chunks(shard)], axis=0)

        def squares(shard: Shard) -> np.ndarray:
            parts = [_squared_deviations(one.X, self.mean) for one in D.chunks(shard)]
            return np.sum(parts, axis=0)

        self.bias = bias
        self.mean = np.sum(list(D.map(sums)), axis=0) / D.n if bias else np.zeros(D.d)
        self.deviation = np.sqrt(np.sum(list(D.map(squares)), axis=0) / D.n)
        # The weight of a constant column is 0 at the optimum, as b is free.
        self.deviation[self.deviation <= ROUNDING * np.abs(self.mean)] = 1.0
        # 1/2 |w|^2 is half the sum of penalty u^2.
        self.penalty = np.append(1 / self.deviation**2, 0.0)[:, None]

    def weights(self, u: np.ndarray) -> Linear:
        """Return w and b of the original columns."""
        w = u[:-1] / self.deviation[:, None]
        return Linear(w, u[-1] - self.mean @ w)

    def variables(self, linear: Linear) -> np.ndarray:
        """Return u, (d + 1, K)."""
        w = linear.w * self.deviation[:, None]
        return np.vstack([w, linear.b + self.mean @ linear.w])

    def products(self, sums: np.ndarray) -> np.ndarray:
        """Return X^T q and sum q of standardised columns from those of the original ones."""
        centred = (sums[:-1] - self.mean[:, None] * sums[-1]) / self.deviation[:, None]
        return np.vstack([centred, sums[-1:] * self.bias])


class _Point(NamedTuple):
    """A point u, and numbers of each decision function there, (K,).

    primal, dual: P and D; smoothed, smoothed_dual: those of the smoothed problem; gradient :
    (d + 1, K) of the smoothed problem; curvature: the sum of the rows' second derivatives
    """

    u: np.ndarray
    primal: np.ndarray
    dual: np.ndarray
    smoothed: np.ndarray
    smoothed_dual: np.ndarray
    gradient: np.ndarray
    curvature: np.ndarray


class _Problem:
    """Some decision functions of D, and the coefficients of its rows, by shard.

    beta0, beta : (rows, K) for each shard. curved: the rows with a second derivative in any of the
    functions, and these second derivatives; X is None where the rows are read again.
    """

    def __init__(self, D: Dataset, form: DualForm, scale: Standardised, columns: slice) -> None:
        self.D, self.form, self.scale, self.columns = D, form, scale, columns
        K = columns.stop - columns.start
        self.width = np.full(K, WIDTH)
        self.beta0 = [np.zeros((shard.stop - shard.start, K)) for shard in D.shards]
        self.beta = [np.zeros_like(one) for one in self.beta0]
        self.curved: list[list[tuple[Matrix | None, np.ndarray]]] = [[] for _ in D.shards]
        self.keeps = D.nnz <= MAX_KEPT_VALUES

    def steps(self, start: Linear, gap: float) -> Iterator[_Point]:
        """Yield the best point so far after each step; the first is the start."""
        at = best = self._evaluate(self.scale.variables(start))
        lowest, idle = np.inf, 0
        while True:
            best = _better(best, at)
            yield best
            difference = float((best.primal - best.dual).sum())
            idle = 0 if difference < 0.99 * lowest else idle + 1
            lowest = min(lowest, difference)
            scale = float(np.maximum(np.abs(best.primal), np.abs(best.dual)).sum())
            if difference <= gap * scale or idle == MAX_IDLE_STEPS:
                return
            solved = at.smoothed - at.smoothed_dual < SMOOTHED_PART * (at.primal - at.dual)
            if not self.form.squared and solved.any():
                for beta0, beta in zip(self.beta0, self.beta, strict=True):
                    beta0[:, solved] = beta[:, solved]
                self.width[solved] *= NARROWER
                at = self._evaluate(at.u)
            at = self._lower(at, self._direction(at))

    def _lower(self, at: _Point, step: np.ndarray) -> _Point:
        """Return a point with lower smoothed objectives in the direction of a step."""
        slope = (at.gradient * step).sum(axis=0)
        part = np.ones(len(slope))
        for _ in range(MAX_TRIALS):
            found = self._evaluate(at.u + part * step)
            bound = at.smoothed + SUFFICIENT * part * slope + ROUNDING * np.abs(at.smoothed)
            if not (long := found.smoothed > bound).any():
                break
            part = np.where(long, part * SHORTER, part)
        return found

    def _direction(self, at: _Point) -> np.ndarray:
        """Return the Newton step by conjugate gradients, preconditioned by a diagonal."""
        penalty, total = self.scale.penalty, at.curvature
        # Without a curved row nothing bounds the step of b.
        least = 1e-9 * (1 + total)
        diagonal = penalty + total
        diagonal[-1] += least
        x, r = np.zeros_like(at.u), -at.gradient
        z = r / diagonal
        p, rz = z, (r * z).sum(axis=0)
        enough = RESIDUAL * rz
        for _ in range(MAX_PRODUCTS):
            Hp = penalty * p + self._curvature_product(p)
            Hp[-1] += least * p[-1]
            length = _ratio(rz, (p * Hp).sum(axis=0))
            x = x + length * p
            r = r - length * Hp
            z = r / diagonal
            last, rz = rz, (r * z).sum(axis=0)
            if (rz <= enough).all():
                break
            p = z + _ratio(rz, last) * p
        return x

    def _evaluate(self, u: np.ndarray) -> _Point:
        """Return the point u, and keep the coefficients and the curved rows there."""
        linear, squared = self.scale.weights(u), self.form.squared
        parts = list(self.D.map(lambda shard: self._sums(shard, linear)))
        numbers, positive, negative = (np.sum(one, axis=0) for one in zip(*parts, strict=True))
        loss, smoothed, proximal, curvature = numbers[:4]
        (up, value_up, square_up), (down, value_down, square_down) = numbers[4:7], numbers[7:]
        shorter_up = shorter_down = np.ones(len(up))
        if self.form.bias:
            # Feasible coefficients have the sum 0. The larger side is scaled down.
            shorter_up = np.minimum(1, _ratio(down, up))
            shorter_down = np.minimum(1, _ratio(up, down))
        w = positive * shorter_up + negative * shorter_down
        dual = value_up * shorter_up + value_down * shorter_down - np.square(w).sum(axis=0) / 2
        if squared:
            dual = dual - square_up * shorter_up**2 - square_down * shorter_down**2
        norm = np.square(linear.w).sum(axis=0) / 2
        sums = np.vstack([positive + negative, up - down])
        gradient = self.scale.penalty * u - self.scale.products(sums)
        return _Point(
            u, norm + loss, dual, norm + smoothed, dual - proximal, gradient, curvature
        )  # fmt: skip

    def _sums(self, shard: Shard, linear: Linear) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return sums over the rows of a shard: ten numbers, (10, K), and x beta of the rows with
        beta above and below 0, (d, K). See `_evaluate`."""
        form, epsilon = self.form, self.form.epsilon or 0.0
        numbers, products = np.zeros((10, len(linear.b))), np.zeros((2, *linear.w.shape))
        self.curved[shard.number].clear()
        for chunk in self.D.chunks(shard):
            here = slice(chunk.start - shard.start, chunk.start - shard.start + len(chunk.y))
            beta0 = self.beta0[shard.number][here]
            y, C = (term[:, self.columns] for term in form.terms(chunk))
            residual = y - linear.decision(chunk.X)
            sigma = 2 * C if form.squared else C / self.width
            most = np.inf if form.squared else C
            low, high = (-most, most) if form.epsilon is not None else (
                np.where(y < 0, -most, 0.0), np.where(y > 0, most, 0.0))  # fmt: skip
            moved = beta0 + sigma * residual
            moved -= np.clip(moved, -sigma * epsilon, sigma * epsilon)
            beta = np.clip(moved, low, high)
            second = np.where((beta != 0) & (beta > low) & (beta < high), sigma, 0.0)
            if form.epsilon is None:
                # beta = 0 is a bound of the box.
                loss = np.maximum(y * residual, 0.0)
            else:
                loss = np.maximum(np.abs(residual) - epsilon, 0.0)
            value = beta * y - epsilon * np.abs(beta)
            proximal = np.square(beta - beta0) / (2 * sigma)
            numbers[0] += (C * (loss**2 if form.squared else loss)).sum(axis=0)
            numbers[1] += (beta * residual - epsilon * np.abs(beta) - proximal).sum(axis=0)
            numbers[2] += 0.0 if form.squared else proximal.sum(axis=0)
            numbers[3] += second.sum(axis=0)
            for sign, of in enumerate((beta > 0, beta < 0)):
                side = np.where(of, beta, 0.0)
                terms = np.abs(side), np.where(of, value, 0.0), side**2 / (4 * C)
                numbers[4 + 3 * sign : 7 + 3 * sign] += [one.sum(axis=0) for one in terms]
                products[sign] += _column_products(chunk.X, side)
            self.beta[shard.number][here] = beta
            rows = np.flatnonzero(second.max(axis=1)) if self.keeps else np.arange(len(y))
            kept = _kept(chunk.X, rows) if self.keeps else None
            self.curved[shard.number].append((kept, second[rows]))
        return numbers, products[0], products[1]

    def _curvature_product(self, p: np.ndarray) -> np.ndarray:
        """Return the second derivatives of the smoothed losses times p, (d + 1, K)."""
        linear = self.scale.weights(p)

        def of(shard: Shard) -> np.ndarray:
            curved = self.curved[shard.number]
            again = iter(()) if self.keeps else self.D.chunks(shard)
            sums = np.zeros(p.shape)
            for X, second in curved:
                X = next(again).X if X is None else X
                q = second * linear.decision(X)
                sums[:-1] += _column_products(X, q)
                sums[-1] += q.sum(axis=0)
            return sums

        emit(Progress("Newton step", 0, None, "beat"))
        return self.scale.products(np.sum(list(self.D.map(of)), axis=0))


def _better(best: _Point, at: _Point) -> _Point:
    """Return the lower P with its u, and the higher D, of each decision function."""
    lower = at.primal < best.primal
    return best._replace(
        u=np.where(lower, at.u, best.u),
        primal=np.where(lower, at.primal, best.primal),
        dual=np.maximum(best.dual, at.dual),
    )


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a / b, 0 where b is not above 0."""
    return np.divide(a, b, out=np.zeros(len(a)), where=b > 0)


def _kept(X: Matrix, rows: np.ndarray) -> Matrix:
    """Return copies of some rows: an array in place of sparse rows that store every value."""
    some = X[rows]
    if isinstance(some, np.ndarray) or some.nnz < some.shape[0] * some.shape[1]:
        return some
    return some.toarray().astype(np.float64, copy=False)


def _column_products(X: Matrix, q: np.ndarray) -> np.ndarray:
    """Return X^T q, (d, K)."""
    return X.T @ q if isinstance(X, np.ndarray) else X.column_products(q)


def _squared_deviations(X: Matrix, mean: np.ndarray) -> np.ndarray:
    """Return the sum of (x - mean)^2 of each column, (d,) float64. Zeros are not stored."""
    if isinstance(X, np.ndarray):
        return np.square(X - mean).sum(axis=0)
    ones = np.ones(X.shape[0])
    deviations = np.square(X.data - mean[X.indices])
    stored = X.with_data(np.ones(X.nnz)).column_products(ones)
    return X.with_data(deviations).column_products(ones) + (X.shape[0] - stored) * mean**2
