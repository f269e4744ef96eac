"""Judge a kernel model of any program by its training file: P, D and the gap, in float64.

Reads the text of the rows and of the model. Shares the reader, kernel functions, decision values
of models, problems and bounds of rounding with the rest of the package.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import copysign, fsum, inf, isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from randsvm.arrays import (
    CsrMatrix,
    Matrix,
    absolute,
    slices,
    squared_norms,
    sums_of_classes,
    to_csr,
)
from randsvm.data.svmlight import ParsedRows, row_numbers
from randsvm.errors import ContentError, ModelError
from randsvm.events import Certified, MachineObjectives, Notice, emit
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.layouts import RowSizes
from randsvm.kernels.rounding import (
    PRESCRIBED,
    WRITTEN,
    addition_error,
    largest_offset,
    offset_error,
    sum_error,
)
from randsvm.models import decisions
from randsvm.models.kernel_model import KernelModel
from randsvm.models.metadata import Metadata
from randsvm.models.model import Model, ModelRows
from randsvm.models.row_files import RowFiles
from randsvm.parallel import ThreadPool
from randsvm.parameters.option import changed_flags, command_line, option_fields
from randsvm.parameters.run import CertifyParams, PredictParams, Resources
from randsvm.parameters.svm import KernelParams, is_semidefinite, side_weights
from randsvm.svm.solution import Certificate, one_class_floor
from randsvm.svm.tasks import Task, change_of_dual, task_of

# Two rows count as equal if this number of random projections of them agree.
PROJECTIONS = 4
# A feature may differ by this share between a row and its support vector: some programs write 8
# digits.
VALUE_ROUNDING = 2e-7
# Coefficients are feasible if they are this share of their sum away from feasible ones.
COEFFICIENT_ROUNDING = 1e-6

# The gap of a model file is rounded to float64 (docs/certificate-format.md, section 1). Here its
# bounds of rounding may be wider than in the training, by this share of the gap.
CLAIM_ROUNDING, WIDER_BOUNDS = 2.0**-50, 0.01


def certify_kernel(
    loaded: KernelModel,
    model: str,
    paths: Sequence[str],
    params: CertifyParams,
    resources: Resources,
    began: float,
) -> Certified:
    """Return the certificate of a kernel machine. model: its file; began: time.perf_counter() at
    first"""
    if loaded.prediction_type == "svc" and len(loaded.labels) < 2:
        raise ModelError(f"{model}: expected a model of two or more classes")
    with ThreadPool(resources.threads) as pool:
        judge = Judge(loaded, params.of(loaded.metadata.options))
        remark_on_options(params, judge.options, loaded)
        of_rows = PredictParams(row_weights=params.row_weights)
        rows = RowFiles(loaded, model, paths, of_rows, training=True)
        parts: list[RowSums] = []
        for block in rows.blocks(emit, resources.threads):
            work = partial(judge.sums, block)
            parts += pool.map_in_order(work, slices(len(block), loaded.rows_at_once))
        if not parts:
            raise ContentError(f"{paths[0]}: expected rows, found none")
        return judge.outcome(model, total_of(parts), pool, began)


def remark_on_options(params: CertifyParams, used: Sequence[str], loaded: Model) -> None:
    """Emit notices about options without effect, and about weights that are missing.

    used: the names of the options that define the problem of the model
    """
    own: dict[str, Any] = {f.name: f.default for f, _ in option_fields(params) if f.name in used}
    for flag in changed_flags(replace(params, require_gap=None, sql=None, **own)):
        emit(Notice(f"{flag} has no effect with this model"))
    weights = loaded.metadata.options.get("row_weights")
    if weights and params.row_weights is None:
        emit(Notice(f"trained with --row-weights {shlex.quote(weights)}: give it here, too"))


def claimed_gap(claims: Metadata, params: CertifyParams) -> float | None:
    """Return the gap that a model file claims for this problem, or None."""
    own = CertifyParams().of(claims.options)
    names = "C", "epsilon", "nu", "weights"
    is_own = all(getattr(params, name) == getattr(own, name) for name in names)
    return claims.gap if is_own and claims.certificate not in (None, "none") else None


# --- sums over the rows --------------------------------------------------------------------


class SupportVectorRows(NamedTuple):
    """Rows of the file that equal support vectors.

    The search is not that of data/matching.py, so that no fault of the training hides itself.

    groups : (k,) int64, number of the group of equal support vectors that the row equals
    y : (k,) float64, class index or target of each row; in one machine 1 or -1 for the class
    weights : (k,) float64, weight of each row
    distances : (k,) float64, distance of the projections
    X : (k, d) CSR, kernel values of the rows; of other kernels than a precomputed one (k, 0)
    """

    groups: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    distances: np.ndarray
    X: CsrMatrix

    def some(self, rows: np.ndarray) -> SupportVectorRows:
        """Return some of the rows. rows : (k,) bool."""
        return SupportVectorRows._make(each[rows] for each in self)


class SupportVectors:
    """Finds the rows of a file that are support vectors of a model.

    Equal support vectors have equal points: random projections, or the number of a row of kernel
    values.

    groups : (m,) int64, number of the group of equal support vectors
    first : (count,) int64, one support vector of each group
    """

    def __init__(self, model: KernelModel) -> None:
        # scipy.spatial takes 50 ms to import, and only this class needs it.
        from scipy.spatial import cKDTree

        d, m = model.Z.shape[1], len(model.beta)
        self.directions = np.random.default_rng(0).normal(size=(d, PROJECTIONS))
        numbers = model.features[model.Z.indices] if model.has_row_numbers else None
        points, _ = self._points(ModelRows(model.Z, np.zeros(m), model.Z.indices), numbers)
        points, self.first, groups = np.unique(
            points, axis=0, return_index=True, return_inverse=True
        )
        self.groups, self.tree = groups.reshape(m), cKDTree(points)

    def _points(self, rows: ModelRows, numbers: np.ndarray | None) -> tuple[np.ndarray, Any]:
        """Return rows as points of the tree, and how far from them equal vectors may be.

        The distance is that of features which differ by VALUE_ROUNDING each.
        """
        if numbers is not None:
            return numbers[:, None].astype(np.float64), 0.0
        room = VALUE_ROUNDING * (absolute(rows.X) @ np.abs(self.directions)).max(axis=1)
        # A value of a feature that no support vector has makes the row another one.
        return rows.X @ self.directions, np.where(rows.extra == 0, room, -1.0)

    def find(
        self, rows: ModelRows, numbers: np.ndarray | None, y: np.ndarray, weights: np.ndarray
    ) -> SupportVectorRows:
        """Return the rows that equal support vectors. numbers : (m,), of rows of kernel values."""
        points, room = self._points(rows, numbers)
        distances, groups = self.tree.query(points, p=inf)
        X = rows.X if numbers is not None else np.empty((len(y), 0))
        every = SupportVectorRows(groups, y, weights, distances, to_csr(X))
        return every.some(distances <= room)


class RowSums(NamedTuple):
    """Sums over some rows.

    losses : (machines, 2, 2), sums of weight times loss of each machine without C, and the most
    that they may be with rounding: of the rows of its first class, and of the others
    rows : number of rows
    weights : (classes,) float64, sum of the weights of each class; of other tasks the sum of all
    diagonal : sum of K(x, x); 0 for a precomputed kernel
    largest : (2,) float64, the largest K(x, x) and the largest target
    residuals : (3, m), y - f of nu-SVR, the bounds of rounding and the weights; else (3, 0)
    matches : rows that are support vectors
    """

    losses: np.ndarray
    rows: int
    weights: np.ndarray
    diagonal: float
    largest: np.ndarray
    residuals: np.ndarray
    matches: SupportVectorRows


def total_of(parts: Sequence[RowSums]) -> RowSums:
    """Return the sums over the rows of all parts.

    Of the rows that equal one support vector, those much farther away than the nearest are left
    out.
    """
    losses, rows, weights, diagonal, largest, residuals, matches = zip(*parts, strict=True)
    *arrays, X = zip(*matches, strict=True)
    every = SupportVectorRows._make([*map(np.concatenate, arrays), CsrMatrix.vstack(X)])
    smallest = np.full(every.groups.max(initial=-1) + 1, np.inf)
    np.minimum.at(smallest, every.groups, every.distances)
    found = every.some(every.distances <= 2 * smallest[every.groups])
    residuals = np.concatenate(residuals, axis=1)
    return RowSums(
        np.sum(losses, axis=0),
        sum(rows),
        np.array(list(map(fsum, zip(*weights, strict=True)))),
        fsum(diagonal),
        np.max(largest, axis=0),
        residuals,
        found,
    )


def losses_within(
    task: Task, y: np.ndarray, f: np.ndarray, error: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return the losses of rows y > 0 and of others, and the most they may be, (2, 2).

    error : (m,), bounds of the error of f.
    """
    computed = task.loss(y, f, weights)
    most = np.maximum(task.loss(y, f - error, weights), task.loss(y, f + error, weights))
    first = y > 0
    return np.array([[each @ rows for each in (computed, most)] for rows in (first, ~first)])


# --- feasible coefficients -----------------------------------------------------------------


def divided(task: Task, rows: SupportVectorRows, s: np.ndarray) -> np.ndarray:
    """Return the coefficients of rows with the sums s of groups and the largest
    sum y beta - epsilon sum |beta|, (k,) float64.

    Each row has a piece below 0, of slope y + epsilon, and one above 0, of slope y - epsilon. From
    the lower bounds on, the steepest pieces of a group are filled first.

    rows : of one machine; s : (count,), within the bounds of the groups.
    """
    lower, upper = task.box(rows.y, rows.weights)
    slopes = np.concatenate([rows.y + task.epsilon, rows.y - task.epsilon])
    rooms, groups = np.concatenate([-lower, upper]), np.tile(rows.groups, 2)
    order = np.lexsort((-slopes, groups))
    # The room of the steeper pieces of the same group.
    before = np.cumsum(rooms[order]) - rooms[order]
    before -= before[np.searchsorted(groups[order], groups[order])]
    to_fill = s - np.bincount(rows.groups, lower, len(s))
    filled = np.clip(to_fill[groups[order]] - before, 0, rooms[order])
    beta = np.clip(lower + np.bincount(order % len(lower), filled, len(lower)), lower, upper)
    # The coefficient of a row alone in its group is exact.
    alone = np.bincount(rows.groups, minlength=len(s))[rows.groups] == 1
    return np.where(alone, s[rows.groups], beta)


def feasible_near(
    task: Task, rows: SupportVectorRows, groups: np.ndarray, beta: np.ndarray, count: int
) -> tuple[np.ndarray, tuple[float, float, float]]:
    """Return feasible coefficients of rows near those of a machine, (k,) float64, and how far they
    are: infeasibility, beyond_bounds and sum_error of MachineObjectives.

    If nothing is feasible, infeasibility is inf.

    rows : of the machine; groups : (m,) int64, the group of each support vector; beta : (m,)
    float64; count : number of groups.
    """
    feasible, moved, beyond, smaller = np.zeros(len(rows.y)), 0.0, 0.0, inf
    # The nu tasks have a part above 0 and one below 0. First the sums of each part are clipped to
    # what its rows can have; `smaller` becomes the smaller total of both.
    parts, near = task.groups, []
    for part in parts:
        signed_beta = (
            np.where(beta * part.coefficient_sum > 0, beta, 0.0) if task.absolute_sum else beta
        )
        wanted = np.bincount(groups, signed_beta, count)
        lower, upper = (np.bincount(rows.groups, b, count) for b in part.box(rows.y, rows.weights))
        s = np.clip(wanted, lower, upper)
        beyond = max(beyond, float(np.abs(s - wanted).max(initial=0.0)))
        smaller = min(smaller, fsum(np.abs(s)))
        near.append((s, wanted, lower, upper))
    # Then the sums of a part move to the total that the task prescribes.
    for part, (s, wanted, lower, upper) in zip(parts, near, strict=True):
        total = part.coefficient_sum
        if task.absolute_sum and not task.one_sided:  # sum |beta| may be less
            total = copysign(min(smaller, abs(total)), total)
        missing = total - fsum(s)
        # Every group moves by the same share of its room.
        room = (upper if missing > 0 else lower) - s
        most = fsum(np.abs(room))
        s = np.clip(s + min(1.0, abs(missing) / (most or 1.0)) * room, lower, upper)
        is_feasible = abs(missing) <= most + COEFFICIENT_ROUNDING * abs(total)
        moved += fsum(np.abs(s - wanted)) if is_feasible else inf
        feasible += divided(part, rows, s)
    size = fsum(np.abs(beta))
    # Any move of a machine without coefficients is infinite beside them.
    infeasibility = moved / size if size else (moved and inf)
    return feasible, (infeasibility, beyond, fsum(beta) - task.coefficient_sum)


def tube_of_least_loss(task: Task, residuals: np.ndarray) -> float:
    """Return half the width of the tube of nu-SVR with the least P. residuals : see RowSums.

    The derivative of P by it is C times (nu n less the weight of the rows outside).
    """
    sizes, weights = np.abs(residuals[0]), residuals[2]
    order = np.argsort(-sizes, kind="stable")
    inside = order[np.cumsum(weights[order]) > task.absolute_sum / task.bounds[0]]
    return float(sizes[inside[0]]) if len(inside) else 0.0


# --- P and D -------------------------------------------------------------------------------


def machines_of(model: KernelModel) -> list[tuple[str, int, int | None]]:
    """Return the binary problem of each decision value of a model: its name, the class of f > 0 and
    the other class, None if these are all others."""
    names = model.labels
    if model.prediction_type != "svc":
        return [("", 0, None)]
    if len(names) == 2:
        return [("", 0, 1)]
    if not model.has_pairs:
        return [(f"{name} against the rest", c, None) for c, name in enumerate(names)]
    both = zip(*(each.tolist() for each in decisions.class_pairs(len(names))), strict=True)
    return [(f"{names[i]} against {names[j]}", i, j) for i, j in both]


class NearMachine(NamedTuple):
    """A machine as written, and feasible coefficients near its own.

    losses : (2, 2), see `RowSums`, in the scale of the task
    rows, beta : (k,), the rows whose feasible coefficients are not 0, and these
    distance : infeasibility, beyond_bounds and sum_error of MachineObjectives
    columns : (m, 2), the coefficients of both on the support vectors
    """

    task: Task
    losses: np.ndarray
    rows: SupportVectorRows
    beta: np.ndarray
    distance: tuple[float, float, float]
    columns: np.ndarray


class Judge:
    """Computes P and D of a model.

    beta, totals : (m, machines) and (machines,), the coefficients and sum |beta|
    training : the task, and what defines it beside the rows, as in a training
    options : names of the options of `params` that define the problem
    loss : the task with the loss of all machines, with bounds of 1 and without prescribed sums
    certified : whether D is a lower bound of the optimum: the kernel is positive semidefinite
    """

    def __init__(self, model: KernelModel, params: CertifyParams) -> None:
        self.model, self.params, kernel = model, params, model.kernel
        self.certified = is_semidefinite(kernel.name, kernel.coef0)
        self.machines, self.support = machines_of(model), SupportVectors(model)
        self.beta, self.layout = model.coefficients, model.float64_layout
        self.totals = np.abs(self.beta).sum(axis=0)
        kind = model.prediction_type
        numbers: dict[str, Any] = {name: getattr(params, name) for name in ("C", "nu", "epsilon")}
        task = f"nu-{kind}" if model.nu else kind
        self.training = KernelParams(task=task, gamma=0.0, **numbers)
        self.options = [name for name in ("C", "epsilon", "nu") if self.training.uses(name)]
        self.options += ["row_weights", *["weights"] * (task == "svc")]
        # The losses of nu-svc are those of svc after the division of the model by rho.
        tube = self.training.epsilon if task == "svr" else 0.0
        below = 0.0 if kind == "one-class" else 1.0
        self.loss = Task((1.0, below), epsilon=tube, one_sided=kind == "svc")

    # --- sums over the rows ---------------------------------------------------------------------

    def sums(self, block: ParsedRows, part: slice) -> RowSums:
        """Return the sums over the rows `part` of a block."""
        model, X = self.model, block.X[part]
        assert block.weights is not None, "RowFiles gives all rows weights"
        rows, y, weights = model.rows(X), block.y[part], block.weights[part]
        f, sizes = model.decision_and_sizes(rows.X, rows.extra)
        others = 0
        if rows.extra.any():
            others = int(np.diff(X.indptr).max())
            if model.scaling is not None and model.seen is not None:
                others = len(model.seen)
        errors = self._errors(rows.X, rows.extra, self.totals, sizes, others)
        losses, residuals = np.empty((len(self.machines), 2, 2)), np.empty((3, 0))
        for k in range(len(self.machines)):
            targets, costs = self._rows_of(k, y, weights)
            b = float(model.b[k])
            error = offset_error(errors[:, k], targets, f[:, k] - b, b, self.loss.epsilon)
            losses[k] = losses_within(self.loss, targets, f[:, k], error, costs)
            if model.nu and model.is_regression:
                residuals = np.array([targets - f[:, k], error, costs])
        classes, numbers_of_classes = 1, np.zeros(len(y), np.int64)
        if self.loss.one_sided:
            classes, numbers_of_classes = len(model.labels), y.astype(np.int64)
        counts = sums_of_classes(numbers_of_classes, weights, classes)
        numbers = row_numbers(X) if model.has_row_numbers else None
        if model.has_row_numbers:
            # As in the training, objectives of one-class do not count as 0 then.
            diagonal, largest = 0.0, np.abs(X.data[X.indices != 0])
        else:
            with np.errstate(over="ignore"):
                largest = model.kernel.diagonal(squared_norms(rows.X) + rows.extra)
            diagonal = float(largest.sum())
        return RowSums(
            losses,
            len(y),
            counts,
            diagonal,
            np.array([largest.max(initial=0.0), np.abs(targets).max(initial=0.0)]),
            residuals,
            self.support.find(rows, numbers, y, weights),
        )

    def _rows_of(self, k: int, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return y of some rows in machine k, and their weights, 0 for rows of other classes."""
        if self.model.prediction_type != "svc":
            return (np.zeros(len(y)) if self.model.is_one_class else y), weights
        _, first, other = self.machines[k]
        is_first = y == first
        is_in = is_first | (y == other) if other is not None else True
        return np.where(is_first, 1.0, -1.0), weights * is_in

    def _errors(
        self,
        X: Matrix,
        extra: np.ndarray | float,
        totals: np.ndarray,
        sizes: np.ndarray,
        others: int = 0,
    ) -> np.ndarray:
        """Return bounds of the rounding of kernel sums of rows, (m, columns).

        extra : (m,), squared norms of other features; totals : (columns,), sum |beta|; sizes :
        (m, columns), sum |beta| K; others: the largest number of other features of a row.
        """
        Z, length = self.model.Z, 0.0
        if not self.certified:
            return np.zeros_like(sizes)
        if self.model.has_row_numbers:
            norm = float(np.abs(to_csr(X).data).max(initial=0.0))
        else:
            norms = np.concatenate([squared_norms(X) + extra, squared_norms(Z)])
            norm = float(norms.max(initial=0.0))
            length = norm**0.5
        # K has another factor for the features that the model does not have. Its exponent is a sum
        # of `others` terms.
        terms, scaling = X.shape[1] + others, self.model.scaling
        of_rows = RowSizes(norm, terms + 1, length)
        if scaling is not None:
            # The vectors of the model are not moved.
            of_rows = of_rows.after(scaling.rounding(length, terms, by_differences=True))
        error = sum_error(self.layout, of_rows, len(self.beta), sums=2 * len(totals))
        return error.of(np.abs(sizes), totals)

    # --- P and D --------------------------------------------------------------------------------

    def _task(self, k: int, found: RowSums) -> Task:
        """Return the task of machine k."""
        (_, first, other), counts = self.machines[k], found.weights.tolist()
        n = fsum(counts) if other is None else counts[first] + counts[other]
        sides = (1.0, 1.0)
        if self.training.task == "svc":
            sides = side_weights(self.params.weights, self.model.labels, counts, first, other)
        return task_of(self.training.problem(n, sides))

    def objectives(
        self, machines: Sequence[int], found: RowSums, pool: ThreadPool
    ) -> list[MachineObjectives]:
        """Return P of some machines as written, and D of feasible coefficients near their own."""
        near = [self._near(k, found) for k in machines]
        B = np.hstack([one.columns for one in near])
        norms, errors = (each.reshape(-1, 2) for each in self._norms(B, found.matches, pool))
        return [
            self._objectives(k, one, found, *sums)
            for k, one, *sums in zip(machines, near, norms, errors, strict=True)
        ]

    def _near(self, k: int, found: RowSums) -> NearMachine:
        """Return machine k with feasible coefficients near its own."""
        beta, losses, task, rho = self.beta[:, k], found.losses[k], self._task(k, found), 1.0
        if task.absolute_sum and task.one_sided:
            # The model of nu-svc is divided by rho, and the sum of alpha was nu n.
            rho = task.absolute_sum / (fsum(np.abs(beta)) or 1.0)
            task = replace(task, tube=-rho)
        elif task.absolute_sum:
            task = replace(task, tube=tube_of_least_loss(task, found.residuals))
            z, error, costs = found.residuals
            losses = losses_within(replace(self.loss, tube=task.tube), z, 0 * z, error, costs)
        y, weights = self._rows_of(k, found.matches.y, found.matches.weights)
        rows = found.matches._replace(y=y, weights=weights).some(weights > 0)
        groups, first = self.support.groups, self.support.first
        near, distance = feasible_near(task, rows, groups, rho * beta, len(first))
        rows, near = rows.some(near != 0), near[near != 0]
        # One support vector stands for its group.
        moved = np.zeros(len(beta))
        moved[first] = np.bincount(rows.groups, near, len(first))
        return NearMachine(
            task, rho * losses, rows, near, distance, np.column_stack([rho * beta, moved])
        )

    def _objectives(
        self, k: int, machine: NearMachine, found: RowSums, norms: np.ndarray, errors: np.ndarray
    ) -> MachineObjectives:
        """Return P and D of machine k. norms, errors : (2,), |w|^2 of both columns, and bounds."""
        task, losses, rows, near, distance, _ = machine
        bounds = np.array(task.bounds if task.one_sided else task.bounds[:1] * 2)
        lost, most = bounds @ losses
        offset = task.coefficient_sum * float(self.model.b[k])
        terms = [lost, offset, norms[0] / 2, task.absolute_sum * task.tube]
        primal, size = fsum(terms), fsum(map(abs, terms))
        additions = found.rows + PRESCRIBED
        primal_error = most - lost + errors[0] / 2 + addition_error(additions, most + size)

        dual, dual_error = nan, inf
        if self.certified and isfinite(distance[0]):
            dual = task.linear(rows.y, near) - norms[1] / 2
            total = abs(task.coefficient_sum) + task.absolute_sum
            largest, target = found.largest.tolist()
            # The sums of groups are rounded, too: each is a coefficient of |u| <= |w| K(x, x)^1/2.
            squared = max(norms[1], 0.0) + errors[1]
            slope = np.abs(rows.y) + task.epsilon + (squared * largest) ** 0.5
            size = fsum(np.abs(near) * slope) + squared
            b = largest_offset(total, target + task.epsilon, largest, primal + primal_error)
            change = change_of_dual(task, rows.y, near, rows.weights, b)
            dual_error = errors[1] / 2 + addition_error(len(near) + WRITTEN, size) + change
        name, gap = self.machines[k][0], self._gap(found, primal, dual, primal_error, dual_error)
        return MachineObjectives(name, primal, dual, gap, *distance, primal_error, dual_error)

    def _norms(
        self, B: np.ndarray, matches: SupportVectorRows, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return |w|^2 of each column of coefficients, and bounds of its rounding. B : (m, c)."""
        used = np.flatnonzero(B.any(axis=1))
        Z = self._kernel_rows(matches) if self.model.has_row_numbers else self.model.Z
        Z, B = Z[used], B[used]
        sizes = np.abs(B)
        sums = Expansion(self.layout, self.model.Z[used], np.hstack([B, sizes]))

        def evaluate(part: slice) -> np.ndarray:
            u, of_u = np.hsplit(sums.values(Z[part]), 2)
            errors = self._errors(Z[part], 0.0, sizes.sum(axis=0), of_u)
            terms = B[part] * u
            return np.array([terms, np.abs(terms), sizes[part] * errors]).sum(axis=1)

        parts = pool.map_in_order(evaluate, slices(len(used), self.model.rows_at_once))
        norms, added, errors = sum(parts, np.zeros((3, B.shape[1])))
        return norms, errors + [addition_error(len(used), size) for size in added.tolist()]

    def _kernel_rows(self, matches: SupportVectorRows) -> CsrMatrix:
        """Return the kernel values of the support vectors, (m, d), as the file has them."""
        groups, at = np.unique(matches.groups, return_index=True)
        if len(groups) < len(self.support.first):
            raise ContentError("expected the row of each support vector, found fewer rows")
        return matches.X[at][self.support.groups]

    def _gap(
        self, found: RowSums, primal: float, dual: float, primal_error: float, dual_error: float
    ) -> float:
        """Return a bound of the relative gap; nan where D is unknown."""
        floor = 0.0
        if self.model.is_one_class:
            total = self.training.nu * float(found.weights[0])
            floor = one_class_floor(total, found.rows, found.diagonal / found.rows)
        return Certificate(primal, dual, self.certified, floor, primal_error, dual_error).gap

    # --- the claim of the model file ------------------------------------------------------------

    def _verdict(self, claimed: float, gap: float, least: float) -> str:
        """Return whether the claim holds. least : the smallest gap that rounding leaves possible"""
        if gap <= claimed * (1 + CLAIM_ROUNDING):
            return "verified"
        claims = self.model.metadata
        # D of such a model is of coefficients that its file does not have.
        if claims.certificate == "reduced" or claims.dual_of is not None:
            return "undecided"
        if least > claimed:
            return "refuted"
        is_near = gap - claimed <= WIDER_BOUNDS * claimed
        return "verified up to rounding" if is_near else "undecided"

    # --- the outcome ----------------------------------------------------------------------------

    def outcome(self, name: str, found: RowSums, pool: ThreadPool, began: float) -> Certified:
        """Return the certificate. name : the model file; began : time.perf_counter() at first."""
        model = self.model
        if model.has_row_numbers and self.certified:
            emit(Notice("the precomputed kernel is taken to be positive semidefinite"))
        if not self.certified:
            emit(Notice(f"the {model.kernel.name} kernel has no certificate: P is no bound"))
        # Machines of all classes have their support vectors in common, those of pairs have few.
        all_machines = range(len(self.machines))
        together = [[k] for k in all_machines] if model.has_pairs else [all_machines]
        machines = [one for some in together for one in self.objectives(some, found, pool)]
        primal, primal_error, dual, dual_error = (
            float(sum(getattr(one, field) for one in machines))
            for field in ("primal", "primal_error", "dual", "dual_error")
        )
        infeasibility, beyond_bounds, sum_error, largest_gap = (
            float(np.max([getattr(one, field) for one in machines]))
            for field in ("infeasibility", "beyond_bounds", "sum_error", "gap")
        )
        rounding = primal_error + dual_error
        # An unknown D has an infinite error.
        if max(abs(primal), abs(dual)) < rounding < inf:
            which = f"rounding of kernel values, {rounding:.3g},"
            emit(Notice(f"{which} is larger than the objectives: scale the features"))
        known = np.isin(self.support.groups, found.matches.groups)
        gap = self._gap(found, primal, dual, primal_error, dual_error)
        claimed = claimed_gap(model.metadata, self.params)
        # The rounding that the gap includes may be in favour of the claim.
        divisor = max(abs(primal) - primal_error, abs(dual) - dual_error)
        least = gap - 2 * rounding / divisor if divisor > 0 else -inf
        return Certified(
            model=name,
            problem=shlex.join(command_line(self.params, names=self.options)),
            rows=found.rows,
            support_vectors=len(model.beta),
            unknown_support_vectors=int((~known).sum()),
            primal=primal,
            dual=dual,
            gap=gap,
            largest_gap=largest_gap if len(machines) > 1 else None,
            feasible=infeasibility <= COEFFICIENT_ROUNDING,
            infeasibility=infeasibility,
            beyond_bounds=beyond_bounds,
            sum_error=sum_error,
            primal_error=primal_error,
            dual_error=dual_error,
            claimed_gap=claimed,
            verdict=None if claimed is None else self._verdict(claimed, gap, least),
            machines=machines,
            seconds=time.perf_counter() - began,
        )
