"""Certify a solution: bounds of P, D and P - D that include all rounding errors.

For coefficients beta with any sums, z = y - u - b and width = epsilon + tube, each row has the
residual

    residual_i(z) = loss_i(z) - beta_i z + width |beta_i|  >= 0,

which is 0 where the row satisfies its KKT condition, and by definition of P and D (svm/tasks.py)

    P - D = sum_i residual_i + b (t - sum beta) + tube (a - sum |beta|).

So P - D is computed without P and D, and no digits cancel. A row without a loss and with beta = 0,
or with a loss and beta at its bound, has the residual 0 for all z near its own, so the rounding of
its u does not matter. u of the few other rows, or of a sample of them, is computed in float64 if
the bound of float32 is too large.

docs/certificate.md has the proofs; kernels/rounding.py the bounds of u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import randsvm.svm._kkt_scan as _kkt_scan
from randsvm.arrays import FLOAT64_UNIT, CsrMatrix
from randsvm.data.sampling import Draw
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.layouts import Layout, RowSizes
from randsvm.kernels.rounding import (
    PRESCRIBED,
    SPARE,
    SumError,
    addition_error,
    distance_of_machines,
    largest_offset,
    offset_error,
)
from randsvm.records import record
from randsvm.svm.running_values import ShardValues
from randsvm.svm.solution import Certificate, KernelSolution
from randsvm.svm.tasks import Task, change_of_dual

# Errors up to this are finite numbers: inf times 0 is nan.
LARGEST_ERROR = 1e300


class ResidualSums(NamedTuple):
    """Sums over some rows.

    residuals: as computed. rise: by how much they may rise. norm_error: |beta| times the error of
    u. u_size: |beta u|. linear_size: |y beta| + epsilon |beta|. may_rise: the number of rows whose
    residual may rise. Arrays have a number for each of many problems.
    """

    residuals: Any
    rise: Any
    norm_error: Any
    u_size: Any
    linear_size: Any
    may_rise: Any

    @staticmethod
    def total(shards: list[ResidualSums]) -> ResidualSums:
        """Return the sums over the rows of all shards."""
        return ResidualSums(*np.sum(shards, axis=0).tolist())


@record
class ResidualQuery:
    """Ask for sums of residuals, one entry for each shard.

    error: the bounds of the errors of u of all rows. total: B of SumError, the sum of |beta| added.
    primal_only: of a machine that has P and no D; the residuals are then the losses. rescaling: the
    part by which the model as written changes all coefficients and b. shift: of K(x, x), see
    KernelDefects.
    """

    task: Task
    b: float
    error: SumError
    total: float
    primal_only: bool = False
    rescaling: float = 0.0
    shift: float = 0.0

    def __call__(self, values: ShardValues) -> list[ResidualSums]:
        computed, rise, error = self.bounds(values)
        return self.sums(values, computed, rise, np.abs(values.beta) * error)

    def sums(
        self, values: ShardValues, computed: np.ndarray, rise: np.ndarray, norm_error: np.ndarray
    ) -> list[ResidualSums]:
        """Return the sums over the rows of a shard, of which each array has one term."""
        size = np.abs(values.beta)
        linear = size @ np.abs(values.y) + self.task.epsilon * size.sum()
        count = int(np.count_nonzero(rise))
        sums = computed.sum(), rise.sum(), norm_error.sum(), size @ np.abs(values.u), linear, count
        return [ResidualSums(*map(float, sums))]

    def bounds(
        self,
        values: ShardValues,
        rows: slice | np.ndarray = slice(None),
        own_error: Callable[[CsrMatrix], SumError] | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the residual of each row as computed, by how much it may rise, and the error of
        u; (m,) float64 each. own_error: see Sharpened."""
        size = self.total if len(values.sums) == 1 else values.sums[1, rows]
        bound = self.error if own_error is None else own_error(values.rows[rows])
        error = np.minimum(bound.of(size, self.total), LARGEST_ERROR)
        return self.residuals(values, rows, values.u[rows], error)

    def residuals(
        self, values: ShardValues, rows: slice | np.ndarray, u: np.ndarray, error: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the `bounds` of some rows. u, error : (k,), their u and its error."""
        task, y, weights = self.task, values.y[rows], values.weights
        width = task.epsilon + task.tube
        error = offset_error(error, y, u, self.b, width) + self.rescaling * abs(self.b)
        error += self.shift * np.abs(values.beta[rows])
        beta = np.zeros(len(y)) if self.primal_only else values.beta[rows]
        weights = None if weights is None else weights[rows]
        computed, rise = np.empty(len(y)), np.empty(len(y))
        box = *task.bounds, width, task.one_sided
        _kkt_scan.residuals(y, u, beta, weights, *box, self.b, error, computed, rise)
        return computed, rise, error


# A bound from a sample of rows is wrong with this probability at most. A run makes at most nine of
# them for each binary problem.
FAILURE = 1e-14
# Both sums of a sample, of the rise of residuals and of |beta| times the error of u, are wrong with
# half of it.
LOG_FAILURE = math.log(2 / FAILURE)
# The sample is drawn for P - D. The bound of D from the same rows may be 1 / DUAL_SHARE times as
# wide.
DUAL_SHARE = 0.05


@record
class Sharpened:
    """Ask for the sums of ResidualQuery with u in float64 of all rows whose rounding changes them,
    or of a sample of these.

    The rounding of row i may add w_i to the sums. A row whose w_i is above q is computed, any
    other with the probability w_i / q. If a row adds d_i <= w_i, the product of 1 - d_i / w_i
    over the drawn rows has a mean of at most exp(-sum d / q), with the sum over all rows that
    might be drawn. So sum d is above q (LOG_FAILURE - sum log(1 - d_i / w_i)) with half the
    probability FAILURE at most, by Markov's inequality.

    The bound of the running values is first that of the largest rows. A row that counts then gets
    the bound of its own size, which is lower, so that fewer rows are computed.

    own_error: returns the bounds of the errors of running values of some rows. expansion: the sums
    u, and S of SumError, in float64; total, error: B and the bound of their errors. q: 0: all rows
    are computed. with_dual: whether |beta_i| times the error of u_i counts into w_i.
    """

    query: ResidualQuery
    own_error: Callable[[CsrMatrix], SumError]
    expansion: Expansion
    total: float
    error: SumError
    draw: Draw
    q: float
    with_dual: bool

    def __call__(self, values: ShardValues) -> list[ResidualSums]:
        query, q, size = self.query, self.q, np.abs(values.beta)
        # Step 3 of docs/certificate.md: the bounds of the running values, first with the sizes of
        # the largest rows, then with their own sizes for the rows whose rounding shows.
        computed, rise, error = query.bounds(values)
        # Without a sample the error of D counts only if it is large or D is that of others.
        share = DUAL_SHARE if self.with_dual else 0.0
        loose = np.flatnonzero(rise + share * size * error)
        if len(loose):
            computed[loose], rise[loose], error[loose] = query.bounds(values, loose, self.own_error)
        norm_error = size * error
        # Step 5: w_i, and the rows to compute. With q = 0 they are all rows with w_i > 0.
        w = rise + share * norm_error
        keys = self.draw.keys(values.shard.start, values.shard.stop) * 2.0**-64
        drawn = np.flatnonzero(keys * q < w)
        if q:
            # The drawn ones of these rows bound what all of them add; `proven` adds q LOG_FAILURE.
            uncertain = w <= q
            rise[uncertain], norm_error[uncertain] = 0.0, 0.0
        if len(drawn):
            w_drawn, certain = w[drawn], w[drawn] > q
            u, sizes = self.expansion.values(values.rows[drawn]).T.copy()
            exact_error = self.error.of(np.abs(sizes), self.total)
            exact, exact_rise, exact_error = query.residuals(values, drawn, u, exact_error)
            # d_i of P - D, and the error of |beta_i u_i| of D, both of the running value of u_i.
            d = np.maximum(exact + exact_rise - computed[drawn], 0.0)
            moved = size[drawn] * (np.abs(u - values.u[drawn]) + exact_error)
            rise[drawn] = np.where(certain, exact_rise, self._weighed(d, w_drawn))
            weighed_moved = self._weighed(DUAL_SHARE * moved, w_drawn) / DUAL_SHARE
            # |w|^2 stays that of the running values, also where the row is computed.
            norm_error[drawn] = np.where(certain, moved, weighed_moved)
            computed[drawn] = np.where(certain, exact, computed[drawn])
        return query.sums(values, computed, rise, norm_error)

    def _weighed(self, d: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Return the terms -q log(1 - d_i / w_i) of the drawn rows, see the class."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return -self.q * np.log1p(-np.minimum(d / w, 1.0))


@record
class Transcribed:
    """Ask for u of all rows and bounds of its error, and which are sums in float64: those of rows
    with coefficients and of rows whose rounding shows. The answers are [(3, m)] of each shard.

    query: of the running values. sharpened: has the sums in float64; None: the running values are
    as good
    """

    query: ResidualQuery
    sharpened: Sharpened | None

    def __call__(self, values: ShardValues) -> list[np.ndarray]:
        sharp = self.sharpened
        _, rise, error = self.query.bounds(values)
        u, exact = values.u.copy(), (rise > 0) | (values.beta != 0)
        if exact.any() and sharp is not None:
            u[exact], sizes = sharp.expansion.values(values.rows[np.flatnonzero(exact)]).T
            error[exact] = sharp.error.of(np.abs(sizes), sharp.total)
        return [np.array([u, error, exact])]


def error_of_rows(X: CsrMatrix, layout: Layout, error: Callable[[RowSizes], SumError]) -> SumError:
    """Return the bounds of the errors of u of some rows, from the size of each row."""
    return error(layout.sizes_of_pairs(X))


def largest_value(layout: Layout) -> float:
    """Return a bound of |K|."""
    kernel, norm = layout.kernel, layout.sizes.norm
    return norm if kernel.linear else 1.0 if kernel.name == "rbf" else kernel.magnitude(norm)


def change_of_solution(
    task: Task, solution: KernelSolution, labels: np.ndarray, layout: Layout, primal: float
) -> float:
    """Return `change_of_dual` of a solution. labels : (n,) of all rows; primal: P, at most."""
    beta, most = solution.beta, float(np.abs(labels).max(initial=0.0)) + task.epsilon
    total = abs(task.coefficient_sum) + task.absolute_sum
    offset = largest_offset(total, most, largest_value(layout), primal)
    return change_of_dual(task, labels[solution.rows], beta, solution.weights, offset)


class Bounds(NamedTuple):
    """Bounds of the rounding of D, and of that of P - D, of one problem or arrays of many."""

    dual: Any
    residuals: Any

    @staticmethod
    def of(
        sums: ResidualSums,
        additions: Any,
        terms: Any,
        apart: Any,
        prescribed: float = 0.0,
        rescaling: float = 0.0,
        undrawn: float = 0.0,
    ) -> Bounds:
        """Return the bounds that follow from sums over all rows, which may be arrays.

        additions: see `proven`. terms: 2 (|b| + epsilon + |tube|) sum |beta|. apart: the distance
        between the w of the model file and that of the rows. prescribed: the size of the terms of
        b and tube with the prescribed sums. undrawn: what rows that no sample has may add.
        """
        residuals, rise, norm_error, u_size, linear_size, _ = sums
        norm_error = norm_error + addition_error(additions, u_size) + undrawn / DUAL_SHARE
        # Step 3: how much the residuals and the terms of b and tube may be above their sum.
        most = residuals + rise + undrawn
        rounding = addition_error(additions, most) + PRESCRIBED * FLOAT64_UNIT * prescribed
        # Coefficients, b and C are decimal numbers: each term of P changes by that part.
        sizes = terms + linear_size + u_size + most
        written = 2 * (PRESCRIBED * FLOAT64_UNIT + rescaling) * sizes
        dual = norm_error / 2 + addition_error(additions, linear_size)
        return Bounds(dual, most - residuals + rounding + written + apart**2 / 2)


def proven(
    query: ResidualQuery,
    sums: ResidualSums,
    additions: int,
    solution: KernelSolution,
    running: Certificate,
    labels: np.ndarray,
    layout: Layout,
    q: float = 0.0,
) -> Certificate:
    """Return the certificate of a solution with bounds of all rounding.

    sums: the answers to the query over all rows; additions: the number of their terms that were
    added one after another. running: the certificate without bounds. labels : (n,) float64, of all
    rows. layout: of the sums u. q: of a sample, see Sharpened.
    """
    task, b, beta = query.task, query.b, solution.beta
    size = float(np.abs(beta).sum())
    # Step 3: P = D + sum r_i + b (t - sum beta) + tube (a - sum |beta|). A reduced machine has no
    # D: with losses in place of r_i and beta = 0, the first term is |w|^2 / 2.
    dual_beta = np.empty(0) if query.primal_only else beta
    missing_sum = math.fsum([task.coefficient_sum, *(-dual_beta).tolist()])
    missing_size = math.fsum([task.absolute_sum, *(-np.abs(dual_beta)).tolist()])
    sum_terms = b * missing_sum + (task.tube * missing_size if task.absolute_sum else 0.0)
    linear = task.linear(labels[solution.rows[: len(dual_beta)]], dual_beta)
    dual = solution.norm / 2 if query.primal_only else linear - solution.norm / 2
    bounds = Bounds.of(
        sums,
        additions,
        terms=2 * (abs(b) + task.epsilon + abs(task.tube)) * size,
        # The vectors of the model file are rounded rows: P is of their w, D of that of the rows.
        apart=0.0 if query.primal_only else distance_of_machines(layout, size),
        prescribed=abs(b * task.coefficient_sum) + abs(task.tube * task.absolute_sum),
        rescaling=query.rescaling,
        # Step 5 of docs/certificate.md: q log(1 / p), 0 without a sample. The sums have the other
        # term.
        undrawn=SPARE * q * LOG_FAILURE,
    )
    found = replace(
        running,
        primal=dual + sums.residuals + sum_terms,
        primal_error=bounds.dual + bounds.residuals,
        sampled=q > 0,
    )
    if query.primal_only:
        return found
    # Step 4: by how much D of coefficients that miss their sums may be above the optimum.
    change = change_of_solution(task, solution, labels, layout, found.primal + found.primal_error)
    distance = sums.residuals + sum_terms + bounds.residuals + change
    return replace(found, dual=dual, dual_error=bounds.dual + change, distance=distance)
