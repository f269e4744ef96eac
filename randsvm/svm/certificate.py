"""Bound P, D and their distance for a solution, rounding included.

For coefficients beta with any sums, z = y - u - b and width = epsilon + tube, each row has the
residual

    residual_i(z) = loss_i(z) - beta_i z + width |beta_i|  >= 0,

which is 0 where the row satisfies its KKT condition, and by definition of P and D (svm/tasks.py)

    P - D = sum_i residual_i + b (t - sum beta) + tube (a - sum |beta|).

So the distance needs no P and no D, and no digits cancel. A row without a loss and with
beta = 0, or with a loss and beta at its bound, has the residual 0 for every z around its own: its
rounding does not count. What counts is the rounding of the few other rows. Those are computed in
float64 if the bound of float32 does not suffice.

docs/certificate.md has the proofs; kernels/rounding.py the bounds of u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from randsvm.arrays import CsrMatrix
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.layouts import ROUNDING, Layout, SparseBlocks
from randsvm.kernels.rounding import (
    FLOAT64,
    SPARE,
    WRITTEN,
    SumError,
    accumulated,
    offset_error,
    sum_error,
    unit_of,
)
from randsvm.svm.kernel_layout import RowSizes
from randsvm.svm.running_values import Added, ShardValues
from randsvm.svm.tasks import Task

# Errors up to this are finite numbers: inf times 0 is nan.
LARGEST_ERROR = 1e300


@dataclass(frozen=True)
class RowErrors:
    """The bounds of the errors of u of all rows: see SumError. total: B."""

    error: SumError
    total: float

    def of(self, values: ShardValues) -> np.ndarray:
        """Return the bound of each row of a shard, (m,) float64."""
        if values.error is not None:
            return values.error
        most = self.error.of_total(self.total)
        if values.absolute is None:
            return np.full(len(values), min(most, LARGEST_ERROR))
        bound = self.error.relative * values.absolute + self.error.uniform * self.total
        return np.minimum(bound, LARGEST_ERROR)


@dataclass(frozen=True)
class Residuals:
    """Sums over the rows of each shard, (shards, 5) float64.

    Columns: residuals as computed, and at most; |beta| times the error of u; |beta u|;
    |y beta| + epsilon |beta|.
    """

    sums: np.ndarray

    def __add__(self, other: Residuals) -> Residuals:
        return Residuals(np.concatenate([self.sums, other.sums]))


@dataclass(frozen=True)
class ResidualQuery:
    """Ask for the residuals of all rows. primal_only: of a machine that has P and no D; the
    residuals are then the losses. scaled: the part by which the model as written changes b."""

    task: Task
    b: float
    errors: RowErrors
    primal_only: bool = False
    scaled: float = 0.0

    def __call__(self, values: ShardValues) -> Residuals:
        computed, most, error = self.bounds(values)
        y, u, size = values.y, values.u, np.abs(values.beta)
        linear = size * np.abs(y) + self.task.epsilon * size
        sums = [computed.sum(), most.sum(), size @ error, size @ np.abs(u), linear.sum()]
        return Residuals(np.array([sums]))

    def bounds(self, values: ShardValues) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the residual of each row as computed, its largest value, and the error of u;
        (m,) float64 each."""
        task, y, u = self.task, values.y, values.u
        width = task.epsilon + task.tube
        error = self.errors.of(values)
        error = offset_error(error, y, u, self.b, width) + self.scaled * abs(self.b)
        lower, upper = task.box(y, values.weights)
        beta = np.zeros(len(y)) if self.primal_only else values.beta
        # Mirrored where beta < 0, so that beta >= 0.
        sign = np.where(beta < 0, -1.0, 1.0)
        z, beta = sign * (y - u - self.b), np.abs(beta)
        rise = np.where(sign > 0, upper, -lower) - beta
        fall = np.where(sign > 0, lower, -upper) - beta

        def residual(z: np.ndarray) -> np.ndarray:
            inside = z - width
            pieces = np.maximum(rise * inside, -beta * inside)
            return np.maximum(pieces, fall * (z + width) + 2 * width * beta)

        with np.errstate(over="ignore"):
            computed = residual(z)
            most = np.maximum(residual(z - error), residual(z + error))
        return computed, np.maximum(most, computed), error

    def loose(self, values: ShardValues) -> np.ndarray:
        """Return the rows whose rounding changes their residual, or 1/2 |w|^2 of a machine without
        D, (k,) integers."""
        computed, most, _ = self.bounds(values)
        return np.flatnonzero((most > computed) | (self.primal_only & (values.beta != 0)))


def sum_error_of(layout: Layout, sizes: RowSizes, added: Added, scaled: float = 0.0) -> SumError:
    """Return the bound of the errors of sums in a layout.

    scaled: the part by which the model as written changes coefficients.
    """
    kernel = layout.kernel
    unit = FLOAT64 if kernel.linear else unit_of(layout.dtype)
    norm, terms = sizes.norm, sizes.terms
    by_products = sum_error(
        kernel,
        terms=terms,
        norm=norm,
        centres=added.centres,
        additions=layout.additions(added.centres),
        unit=unit,
        differences=layout.uses_differences,
        left_out=layout.left_out,
        size=sizes.length,
    )
    if kernel.name == "rbf" and unit == FLOAT64 and isinstance(layout, SparseBlocks):
        # SparseCentres takes differences where products would err by more than ROUNDING.
        size = min(norm, ROUNDING / (2 * FLOAT64) / kernel.gamma) if kernel.gamma else norm
        made = partial(sum_error, kernel, centres=added.centres, norm=size, size=sizes.length)
        one, other = made(terms=terms), made(terms=2 * terms, differences=True)
        by_products = SumError(max(one.relative, other.relative), max(one.uniform, other.uniform))
    # Each pass adds a sum to u.
    adding = SPARE * (accumulated(3 * added.passes) + scaled)
    if kernel.name == "rbf":
        return by_products._replace(relative=by_products.relative + adding)
    return by_products._replace(uniform=by_products.uniform + adding * largest_value(layout, norm))


def largest_value(layout: Layout, norm: float) -> float:
    """Return a bound of |K|. norm: see RowSizes."""
    kernel = layout.kernel
    return norm if kernel.linear else 1.0 if kernel.name == "rbf" else kernel.magnitude(norm)


class Sharpen:
    """Compute u in float64 of all rows whose rounding changes their residual.

    Z, beta: the support vectors; error: the bound of the errors of these sums.
    """

    def __init__(
        self,
        layout: Layout,
        Z: CsrMatrix,
        beta: np.ndarray,
        query: ResidualQuery,
        error: SumError,
    ) -> None:
        self.made_from = layout, Z, beta, query, error
        self.query, self.error, self.total = query, error, float(np.abs(beta).sum())
        # The second sum is S of SumError.
        sums = np.column_stack([beta, np.abs(beta)])
        self.expansion = Expansion(layout.in_float64, Z, sums)

    def __reduce__(self) -> tuple[object, ...]:
        return Sharpen, self.made_from

    def __call__(self, values: ShardValues) -> None:
        rows, error = self.query.loose(values), self.query.errors.of(values).copy()
        if len(rows):
            X = values.D.chunk_matrix(values.shard)
            values.u[rows], sizes = self.expansion.values(X[rows]).T
            error[rows] = self.error.relative * np.abs(sizes) + self.error.uniform * self.total
        values.error = error


def change_of_dual(
    task: Task, y: np.ndarray, beta: np.ndarray, weights: np.ndarray | None, offset: float
) -> float:
    """Return by how much D of coefficients may be above the optimum, but for its own rounding.

    The bounds and sums of the problem are decimal numbers. Coefficients beta times a factor of at
    most 1 are within the bounds. For these, with any sums, and for the offset b of a solution,
    D + b (t - sum beta) <= P: so a sum that misses the prescribed one costs at most |b| times what
    it misses, for each group.

    task: without an absolute sum if the sum of |beta| may be below it. offset: see
    `rounding.largest_offset`.
    """
    lower, upper = task.box(y, weights)
    bounds = np.where(beta > 0, upper, -lower)
    with np.errstate(divide="ignore"):
        excess = float((np.abs(beta) / bounds).max(initial=0.0))
    # Bounds of 1, those of one-class and nu-svc without weights, are exact.
    is_exact = weights is None and set(task.bounds) <= {0.0, 1.0} and excess <= 1
    written = WRITTEN * FLOAT64
    scaled = 0.0 if is_exact else SPARE * (1 - (1 - written) / max(1.0, excess))
    cost = scaled * float(np.abs(beta) @ (np.abs(y) + task.epsilon))
    for group in task.groups:
        t = group.coefficient_sum
        own = beta if len(task.groups) == 1 else np.where(beta * t > 0, beta, 0.0)
        missing = abs(math.fsum([t, *(-own).tolist()]))
        missing += scaled * float(np.abs(own).sum()) + written * abs(t)
        cost += SPARE * missing * offset if missing else 0.0
    return cost
