"""Judge a kernel model of any program by its training file: P, D and the gap, in float64.

Reads the text of the rows and of the model. Shares the reader, kernel functions and decision values
of models with the rest of the package, and nothing with the training.
"""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import copysign, fsum, inf, isnan, nan
from typing import Any, NamedTuple

import numpy as np

from randsvm import files
from randsvm.arrays import FLOAT64_UNIT, CsrMatrix, Matrix, absolute, slices, squared_norms, to_csr
from randsvm.data.svmlight import ParsedRows, row_numbers
from randsvm.errors import ContentError, GapError, ModelError
from randsvm.events import Certified, MachineObjectives, Notice, Watch, emit, listening, silent
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.layouts import RowSizes
from randsvm.kernels.rounding import (
    SPARE,
    WRITTEN,
    addition_error,
    largest_offset,
    offset_error,
    sum_error,
)
from randsvm.models import decisions
from randsvm.models.kernel_model import KernelModel
from randsvm.models.model import ModelRows
from randsvm.models.model_text import check_is_not_model, load
from randsvm.models.row_files import RowFiles, csr_rows
from randsvm.parallel import ThreadPool
from randsvm.parameters.kernel import is_semidefinite
from randsvm.parameters.option import changed_flags, command_line, option_fields
from randsvm.parameters.run import CertifyParams, Resources
from randsvm.parameters.svm import side_weights
from randsvm.svm.solution import Certificate, one_class_floor
from randsvm.svm.tasks import Task

# Support vectors are found among the rows by this number of random projections.
PROJECTIONS = 4
# Programs write values with 8 digits (LIBSVM), or round them to float32.
VALUE_ROUNDING = 2e-7
# Coefficients that rounding moves by this share of their sum still count as feasible.
COEFFICIENT_ROUNDING = 1e-6
# The options of the problem that neither the model nor the rows have, by task and whether it is a
# nu task.
PROBLEM_OPTIONS = {
    ("svc", False): ("C", "weights", "row_weights"),
    ("svc", True): ("nu", "row_weights"),
    ("svr", False): ("C", "epsilon", "row_weights"),
    ("svr", True): ("C", "nu", "row_weights"),
    ("one-class", False): ("nu", "row_weights"),
}


def certify(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: str | os.PathLike[str],
    *,
    params: CertifyParams | None = None,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Certified:
    """Compute P, D and their gap for a kernel model of any program, in float64.

    Parameters
    ----------
    data : str, PathLike or sequence of these
        Training file of the model, a pattern of names, or several names.
    model : str or PathLike
        Model file in LIBSVM's format, of randsvm, svm-train, ThunderSVM or another program.
    params : CertifyParams, optional
        C, epsilon, nu, the class weights and the weights of rows of the training, and the gap that
        is required.
    resources : Resources, optional
        Worker threads.
    watch : callable, default=silent
        Called with each event of `randsvm.events`.

    Returns
    -------
    Certified
        P, D, the gap, and how far the coefficients are from feasible ones.

    Raises
    ------
    GapError
        If the gap is above `params.require_gap`, or is unknown.
    DataError, ModelError
        If the rows or the model are unusable.
    InputError, TransferError
        If a file cannot be opened or read.

    Notes
    -----
    P is the primal objective of the machine as written. D is the dual objective of feasible
    coefficients with nearly the same w: equal rows have equal kernel values, so only the sum of
    their coefficients matters to w, and D is the highest of all ways to divide this sum among
    them. A sum beyond the bounds of its rows is moved to the bounds, and that of a support vector
    that is not a row of the training file to 0. Therefore D <= optimum <= P holds for any model.
    The gap includes bounds of all rounding of the sums.

    Rows are read in chunks; memory grows with the support vectors only, except by 16 bytes a row
    for nu-SVR.
    """
    began = time.perf_counter()
    params, resources = params or CertifyParams(), resources or Resources()
    paths, model = files.inputs(data), os.fspath(model)
    check_is_not_model(paths, "TRAIN_FILE MODEL_FILE")
    loaded = load(model)
    if not isinstance(loaded, KernelModel):
        raise ModelError(f"{model}: expected a model in LIBSVM's format, found one of LIBLINEAR")
    if loaded.prediction_type == "svc" and len(loaded.labels) < 2:
        raise ModelError(f"{model}: expected a model of two or more classes")
    with listening(watch):
        names = (*PROBLEM_OPTIONS[loaded.prediction_type, loaded.nu], "require_gap")
        used: dict[str, Any] = {
            f.name: f.default for f, _ in option_fields(params) if f.name in names
        }
        for flag in changed_flags(replace(params, **used)):
            emit(Notice(f"{flag} has no effect with this model"))
        judge = Judge(loaded, params)
        found = _read(judge, model, paths, resources.threads)
        outcome = judge.outcome(model, found, resources.threads, began)
        emit(outcome)
        required = params.require_gap
        # nan is above every gap.
        if required is not None and not outcome.gap <= required:
            problem = f"gap {outcome.gap:.3g} is above"
            if isnan(outcome.gap):
                problem = "the gap is unknown, expected at most"
            raise GapError(f"{model}: {problem} {required:g} (--require-gap)")
        return outcome


# --- support vectors among the rows --------------------------------------------------------


class SupportVectorRows(NamedTuple):
    """Rows of the file that may be support vectors.

    The search is not that of data/matching.py, so that no fault of the training hides itself.

    groups : (k,) int64, number of the group of equal support vectors that the row may equal
    y : (k,) float64, class index or target of each row; in one machine 1 or -1 for the class
    weights : (k,) float64, weight of each row
    distances : (k,) float64, distance of the projections
    X : (k, d) CSR, kernel values of the rows; only of a precomputed kernel
    """

    groups: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    distances: np.ndarray
    X: CsrMatrix | None = None

    def sums(self, values: np.ndarray, count: int) -> np.ndarray:
        """Return the sum over the rows of each group. values : (k,); count : number of groups."""
        return np.bincount(self.groups, values, count)


def nearest(parts: Sequence[SupportVectorRows], count: int) -> SupportVectorRows:
    """Return the rows whose distance is at most twice the smallest distance in their group.

    count : number of groups
    """
    groups, y, weights, distances = map(np.concatenate, zip(*(p[:4] for p in parts), strict=True))
    least = np.full(count, inf)
    np.minimum.at(least, groups, distances)
    near = distances <= 2 * least[groups]
    matrices = [part.X for part in parts if part.X is not None]
    X = CsrMatrix.vstack(matrices)[near] if matrices else None
    return SupportVectorRows(groups[near], y[near], weights[near], distances[near], X)


class SupportVectorIndex:
    """Finds the rows of a file that are support vectors of a model.

    Equal rows have equal points: their projections, or the number of a row of kernel values.

    groups : (m,) int64, number of the group of equal support vectors
    count : number of groups
    """

    def __init__(self, model: KernelModel) -> None:
        # scipy.spatial takes 50 ms to import, and only this class needs it.
        from scipy.spatial import cKDTree

        self.directions = np.random.default_rng(0).normal(size=(len(model.features), PROJECTIONS))
        points = model.Z @ self.directions
        if model.has_row_numbers:
            # The features of this model are row numbers, and each row of Z has one of them.
            points = model.features[model.Z.indices][:, None]
        centres, groups = np.unique(points, axis=0, return_inverse=True)
        self.groups, self.count = groups.ravel().astype(np.int64), len(centres)
        # A tree without points finds the number 0 at the distance inf.
        self.tree = cKDTree(centres)

    def find(
        self, rows: ModelRows, numbers: np.ndarray | None, y: np.ndarray, weights: np.ndarray
    ) -> SupportVectorRows:
        """Return the rows that equal a support vector. numbers : of rows of kernel values."""
        if numbers is None:
            points = rows.X @ self.directions
            tolerances = VALUE_ROUNDING * (absolute(rows.X) @ np.abs(self.directions)).max(axis=1)
            # A value of a feature that no support vector has makes the row another one.
            tolerances[rows.extra != 0] = -1.0
        else:
            points, tolerances = numbers[:, None], np.zeros(len(y))
        distances, groups = self.tree.query(points, p=inf)
        found = np.flatnonzero(distances <= tolerances)
        X = None if numbers is None else to_csr(rows.X)[found]
        return SupportVectorRows(
            groups[found].astype(np.int64), y[found], weights[found], distances[found], X
        )


# --- sums over the rows --------------------------------------------------------------------


class RowSums(NamedTuple):
    """Sums over some rows.

    losses : (2, 2, machines), sums of weight times loss of each machine without C, and bounds of
    their rounding: of the rows of its first class, and of the others
    rows : number of rows
    weights : (classes,) float64, sum of the weights of each class; of other tasks the sum of all
    diagonal : sum of K(x, x); 0 for a precomputed kernel
    largest : (2,) float64, the largest K(x, x) and the largest target
    residuals : (3, m), y - f of nu-SVR, the weights and the bounds of rounding; else (3, 0)
    matches : rows that are support vectors
    """

    losses: np.ndarray
    rows: int
    weights: np.ndarray
    diagonal: float
    largest: np.ndarray
    residuals: np.ndarray
    matches: SupportVectorRows


def _read(judge: Judge, model: str, paths: Sequence[str], jobs: int) -> RowSums:
    """Return the sums over all rows of the files. model : the model file."""
    rows = RowFiles(judge.model, model, paths, row_weights=judge.params.row_weights, training=True)
    parts: list[RowSums] = []
    with ThreadPool(jobs) as pool:
        for block in rows.blocks(emit, jobs):
            work = partial(judge.sums, block)
            parts += pool.map_in_order(work, slices(len(block), judge.model.rows_at_once))
    if not parts:
        raise ContentError(f"{paths[0]}: expected rows, found none")
    *added, largest, residuals, matches = zip(*parts, strict=True)
    losses, count, weights, diagonal = (sum(each[1:], each[0]) for each in added)
    residuals = np.concatenate(residuals, axis=1)
    found = nearest(matches, judge.index.count)
    return RowSums(losses, count, weights, diagonal, np.max(largest, axis=0), residuals, found)


# --- feasible coefficients -----------------------------------------------------------------


def feasible_sums(
    beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, total: float
) -> np.ndarray | None:
    """Return sums of coefficients of groups near beta, within their bounds and with this total.

    None: there are none on these rows. A total of 0 is reached by shrinking the larger side,
    another total by moving every group by the same share of its room.
    """
    beta = np.clip(beta, lower, upper)
    excess = fsum(beta) - total
    if not excess:
        return beta
    if not total:
        side = np.where(beta * excess > 0, beta, 0.0)
        return beta - side * (excess / side.sum())
    room = beta - lower if excess > 0 else upper - beta
    capacity = float(room.sum())
    if abs(excess) > capacity * (1 + 1e-12):
        return None
    return beta - room * (excess / capacity)


def largest_linear(task: Task, rows: SupportVectorRows, s: np.ndarray) -> tuple[float, float]:
    """Return the largest sum y beta - epsilon sum |beta| of coefficients with the sums s of groups,
    and a bound of its rounding.

    Each row has a piece below 0, of slope y + epsilon, and one above 0, of slope y - epsilon. From
    the lower bounds on, the steepest pieces of a group are filled first.

    rows : of one machine; s : (count,), within the bounds of the groups.
    """
    lower, upper = task.box(rows.y, rows.weights)
    slopes = np.concatenate([rows.y + task.epsilon, rows.y - task.epsilon])
    lengths, groups = np.concatenate([-lower, upper]), np.tile(rows.groups, 2)
    order = np.lexsort([-slopes, groups])
    slopes, lengths, groups = slopes[order], lengths[order], groups[order]
    ends = np.cumsum(lengths)
    before = ends - lengths
    first = np.searchsorted(groups, groups, "left")
    room = s[groups] - rows.sums(lower, len(s))[groups] - (before - before[first])
    filled = np.clip(room, 0.0, lengths)
    gains = slopes * np.where(order < len(lower), filled - lengths, filled)
    # What rounding moves counts with the steepest slope.
    moved = 8 * FLOAT64_UNIT * float(lengths.sum()) * float(np.abs(slopes).max(initial=0.0))
    return fsum(gains), addition_error(len(gains) + WRITTEN, float(np.abs(gains).sum())) + moved


class Feasible(NamedTuple):
    """Feasible coefficients of one machine.

    groups : (count,) sums of coefficients of groups; None: there are none on these rows
    linear, error : sum y beta - epsilon sum |beta|, and a bound of its rounding
    missing : what rounding may have left out of prescribed sums, or of decimal bounds
    infeasibility, beyond_bounds, sum_error : see MachineObjectives
    """

    groups: np.ndarray | None
    linear: float
    error: float
    missing: float
    infeasibility: float
    beyond_bounds: float
    sum_error: float


def feasible_near(
    task: Task, rows: SupportVectorRows, groups: np.ndarray, beta: np.ndarray, count: int
) -> Feasible:
    """Return feasible coefficients near those of a machine.

    rows : of the machine; groups : (m,) int64, the group of each support vector; beta : (m,)
    float64; count : number of groups.
    """
    found, linear, error, missing, changed, beyond = np.zeros(count), 0.0, 0.0, 0.0, 0.0, 0.0
    parts, half, excess = [], inf, fsum(beta) - task.coefficient_sum
    # The nu tasks have a sum above 0 and one below 0.
    for part in task.groups:
        own = np.where(beta * part.coefficient_sum > 0, beta, 0.0) if task.absolute_sum else beta
        wanted = np.bincount(groups, own, count)
        lower, upper = (rows.sums(bound, count) for bound in part.box(rows.y, rows.weights))
        beyond = max(beyond, float(np.maximum(wanted - upper, lower - wanted).max(initial=0.0)))
        parts.append((part, wanted, lower, upper))
        half = min(half, float(np.abs(np.clip(wanted, lower, upper)).sum()))
    for part, wanted, lower, upper in parts:
        total = part.coefficient_sum
        if task.absolute_sum and not task.one_sided:  # sum |beta| may be less
            total = copysign(min(half, abs(total)), total)
        s = feasible_sums(wanted, lower, upper, total)
        if s is None:
            return Feasible(None, 0.0, 0.0, 0.0, inf, beyond, excess)
        gain, doubt = largest_linear(part, rows, s)
        found, linear, error = found + s, linear + gain, error + doubt
        missing += abs(fsum(s) - total) + 2 * WRITTEN * FLOAT64_UNIT * float(np.abs(s).sum())
        changed += float(np.abs(s - wanted).sum())
    size = float(np.abs(beta).sum())
    share = changed / size if size else (changed and inf)
    return Feasible(found, linear, error, missing, share, beyond, excess)


# --- P and D -------------------------------------------------------------------------------


class Machine(NamedTuple):
    """One binary problem. first, other: classes of f > 0 and of the rest, None: all others."""

    name: str
    first: int = 0
    other: int | None = None


def machines_of(model: KernelModel) -> list[Machine]:
    """Return the binary problem of each decision value of a model."""
    names = model.labels
    if model.prediction_type != "svc":
        return [Machine("")]
    if len(names) == 2:
        return [Machine("", 0, 1)]
    if not model.has_pairs:
        return [Machine(f"{name} against the rest", c) for c, name in enumerate(names)]
    both = zip(*(each.tolist() for each in decisions.class_pairs(len(names))), strict=True)
    return [Machine(f"{names[i]} against {names[j]}", i, j) for i, j in both]


def loss_of(model: KernelModel, params: CertifyParams) -> Task:
    """Return the task of each machine with bounds of 1 and without prescribed sums."""
    if model.is_one_class:
        return Task((1.0, 0.0))
    if model.is_regression:
        return Task((1.0, 1.0), params.epsilon)
    return Task((1.0, 1.0), one_sided=True)


class Judge:
    """Computes P and D of a model.

    loss : the task of each machine without C and prescribed sums
    totals : (columns of f,), sum |beta|
    certified : whether D is a lower bound of the optimum: the kernel is positive semidefinite
    """

    def __init__(self, model: KernelModel, params: CertifyParams) -> None:
        self.model, self.params, self.index = model, params, SupportVectorIndex(model)
        self.machines, self.loss = machines_of(model), loss_of(model, params)
        self.totals = np.abs(model.coefficients).sum(axis=0)
        self.certified = is_semidefinite(model.kernel.name, model.kernel.coef0)
        # The width of the tube of nu-SVR follows from the residuals of all rows.
        self.finds_tube = model.nu and model.is_regression

    def _rows_of(self, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return y of some rows in each machine, and their weights, 0 for rows of other classes.

        Both are (m, machines).
        """
        y, weights = y[:, None], weights[:, None]
        if self.model.prediction_type != "svc":
            return np.zeros_like(y) if self.model.is_one_class else y, weights
        first, other = np.array([(one.first, one.other) for one in self.machines], float).T
        mine = (y == first) | (y == other) | np.isnan(other)
        return np.where(y == first, 1.0, -1.0), np.where(mine, weights, 0.0)

    # --- sums over rows -------------------------------------------------------------------------

    def sums(self, block: ParsedRows, part: slice) -> RowSums:
        """Return the sums over the rows `part` of a block."""
        model, text = self.model, csr_rows(block, part)
        rows = model.rows(*text)
        numbers = None if block.number is None else row_numbers(*text)
        f, sizes = model.decision_and_sizes(rows.X, rows.extra)
        assert block.weights is not None, "RowFiles gives all rows weights"
        y, weights = block.y[part], block.weights[part]
        b, width = float(np.abs(model.b).max()), self.params.epsilon + 1.0
        own, costs = self._rows_of(y, weights)
        errors = self._errors(self.totals, rows.X, rows.extra, sizes)
        errors = offset_error(errors, own, f - model.b, b, width)
        lost = self.loss.loss(own, f)
        most = np.maximum(self.loss.loss(own, f - errors), self.loss.loss(own, f + errors))
        # The bounds of a regression are equal on both sides.
        sides = np.array([np.where(own >= 0, costs, 0.0), np.where(own < 0, costs, 0.0)])
        losses = np.einsum("pmk,smk->psk", [lost, most - lost], sides)
        residuals = np.empty((3, 0))
        if self.finds_tube:
            residuals = np.array([y - f[:, 0], weights, errors[:, 0]])
        counts = np.array([weights.sum()])
        if model.prediction_type == "svc":
            counts = np.bincount(y.astype(np.int64), weights, len(model.labels))
        if model.has_row_numbers:
            # As in the training, objectives of one-class do not count as 0 then.
            diagonal, entry = 0.0, float(np.abs(text[2][text[1] != 0]).max(initial=0.0))
        else:
            with np.errstate(over="ignore"):
                K = model.kernel.diagonal(squared_norms(rows.X) + rows.extra)
            diagonal, entry = float(K.sum()), float(K.max(initial=0.0))
        largest = np.array([entry, np.abs(own).max(initial=0.0)])
        matches = self.index.find(rows, numbers, y, weights)
        return RowSums(losses, len(f), counts, diagonal, largest, residuals, matches)

    def _errors(
        self, totals: np.ndarray, X: Matrix, extra: np.ndarray | float, sizes: np.ndarray
    ) -> np.ndarray:
        """Return bounds of the rounding of kernel sums of rows, (m, columns).

        totals : (columns,), sum |beta|; sizes : (m, columns), sum |beta| K.
        """
        model, Z, size = self.model, self.model.Z, 0.0
        if not self.certified:
            return np.zeros_like(sizes)
        if model.has_row_numbers:
            norm = float(np.abs(X.data if isinstance(X, CsrMatrix) else X).max(initial=0.0))
        else:
            norms = squared_norms(X) + extra, squared_norms(Z)
            norm = max(float(each.max(initial=0.0)) for each in norms)
            size = math.sqrt(norm)
        rows = RowSizes(norm, X.shape[1] + 1, size)
        error = sum_error(model.float64_layout, rows, Z.shape[0], sums=2 * len(totals))
        return error.of(np.abs(sizes), totals)

    # --- machines -------------------------------------------------------------------------------

    def task(self, machine: Machine, found: RowSums) -> Task:
        """Return the task of a machine."""
        params, counts, loss = self.params, found.weights.tolist(), self.loss
        i, j = machine.first, machine.other
        if self.model.is_one_class:
            return replace(loss, coefficient_sum=params.nu * counts[0])
        if self.finds_tube:
            return Task((params.C, params.C), absolute_sum=params.C * params.nu * counts[0])
        if self.model.is_regression:
            return replace(loss, bounds=(params.C, params.C))
        if self.model.nu:
            weight = sum(counts) if j is None else counts[i] + counts[j]
            return replace(loss, epsilon=1.0, absolute_sum=params.nu * weight)
        above, below = side_weights(params.weights, self.model.labels, counts, i, j)
        return replace(loss, bounds=(params.C * above, params.C * below))

    def objectives(self, found: RowSums, pool: ThreadPool) -> Iterator[MachineObjectives]:
        """Yield P and D of each machine."""
        tasks, B = [self.task(one, found) for one in self.machines], self.model.coefficients
        # The model of nu-SVC is divided by rho, and the sum of alpha was nu n.
        rho = np.ones(B.shape[1])
        if self.model.nu and self.model.prediction_type == "svc":
            sizes = np.abs(B).sum(axis=0)
            rho = np.array([one.absolute_sum for one in tasks]) / np.where(sizes, sizes, 1.0)
        beta, moved, near = B * rho, np.zeros_like(B), []
        groups, matches, count = self.index.groups, found.matches, self.index.count
        # One support vector stands for its group.
        first = np.unique(groups, return_index=True)[1]
        y, weights = self._rows_of(matches.y, matches.weights)
        for k, of in enumerate(weights.T):
            mine = of > 0
            rows = SupportVectorRows(
                matches.groups[mine], y[mine, k], of[mine], matches.distances[mine]
            )
            near.append(feasible_near(tasks[k], rows, groups, beta[:, k], count))
            if near[k].groups is not None:
                moved[first, k] = near[k].groups
        norms = np.hsplit(self._norms(np.hstack([beta, moved]), matches, pool), 2)
        own, other = (each.T.tolist() for each in norms)
        for k, machine in enumerate(self.machines):
            primal, error = self._primal(tasks[k], found, k, float(rho[k]), *own[k])
            dual, dual_error = nan, inf
            if near[k].groups is not None and self.certified:
                dual = near[k].linear - other[k][0] / 2
                dual_error = self._dual_error(tasks[k], found, near[k], primal + error, *other[k])
            gap = self._gap(found, primal, dual, error, dual_error)
            yield MachineObjectives(
                machine.name, primal, dual, gap, *near[k][4:], error, dual_error
            )

    def _primal(
        self, task: Task, found: RowSums, k: int, rho: float, norm: float, norm_error: float
    ) -> tuple[float, float]:
        """Return P of machine k and a bound of its rounding. norm: |w|^2, with its error."""
        tube = -rho
        if self.finds_tube:
            tube, loss, rise = self._tube_losses(task, found)
        else:
            loss, rise = (rho * (found.losses[..., k] @ task.bounds)).tolist()
        offset = task.coefficient_sum * float(self.model.b[k]) * rho
        terms = [loss, offset, norm / 2, task.absolute_sum * tube]
        error = rise + addition_error(found.rows, loss + rise) + norm_error / 2
        return sum(terms), error + addition_error(4, sum(map(abs, terms)))

    def _tube_losses(self, task: Task, found: RowSums) -> tuple[float, float, float]:
        """Return half the width of the tube of nu-SVR, the losses, and by how much they may rise.

        The width is the one of least P. The derivative of P by it is C times
        (nu n less the weight of the rows outside).
        """
        residuals, (weights, errors) = np.abs(found.residuals[0]), found.residuals[1:]
        order = np.argsort(-residuals, kind="stable")
        C = task.bounds[0]
        inside = order[np.cumsum(weights[order]) > task.absolute_sum / C]
        width = float(residuals[inside[0]]) if len(inside) else 0.0
        outside, most = (np.maximum(0, r - width) for r in (residuals, residuals + errors))
        return width, C * float(weights @ outside), C * float(weights @ (most - outside))

    def _dual_error(
        self, task: Task, found: RowSums, near: Feasible, primal: float,
        norm: float, norm_error: float,
    ) -> float:  # fmt: skip
        """Return a bound of the rounding of D. primal: at least P; norm: see `_primal`."""
        error = near.error + norm_error / 2 + addition_error(2, abs(near.linear) + norm)
        if not near.missing:
            return error
        total = abs(task.coefficient_sum) + task.absolute_sum
        largest, most = found.largest.tolist()
        offset = largest_offset(total, most + task.epsilon, largest, primal)
        return error + SPARE * near.missing * offset

    def _norms(self, B: np.ndarray, matches: SupportVectorRows, pool: ThreadPool) -> np.ndarray:
        """Return |w|^2 of each column of coefficients, and bounds of its rounding, (2, columns).

        B : (m, columns).
        """
        model, sizes = self.model, np.abs(B)
        Z = self._kernel_rows(matches) if model.has_row_numbers else model.Z
        sums = Expansion(model.float64_layout, model.Z, np.hstack([B, sizes]))
        totals = sizes.sum(axis=0)

        def evaluate(part: slice) -> np.ndarray:
            u, terms = np.hsplit(sums.values(Z[part]), 2)
            return np.array([B[part] * u, sizes[part] * self._errors(totals, Z[part], 0.0, terms)])

        parts = pool.map_in_order(evaluate, slices(Z.shape[0], model.rows_at_once))
        terms, errors = np.concatenate([np.zeros((2, 0, B.shape[1])), *parts], axis=1)
        rounding = [addition_error(len(B), size) for size in np.abs(terms).sum(axis=0).tolist()]
        return np.array([terms.sum(axis=0), errors.sum(axis=0) + rounding])

    def _kernel_rows(self, matches: SupportVectorRows) -> CsrMatrix:
        """Return the kernel values of the support vectors, (m, d), as the file has them."""
        groups, first = np.unique(matches.groups, return_index=True)
        if len(groups) < self.index.count:
            raise ContentError("expected the row of each support vector, found fewer rows")
        assert matches.X is not None
        return matches.X[first][self.index.groups]

    def _gap(
        self, found: RowSums, primal: float, dual: float, primal_error: float, dual_error: float
    ) -> float:
        """Return a bound of the relative gap; nan where D is unknown."""
        floor = 0.0
        if self.model.is_one_class:
            total = self.params.nu * float(found.weights[0])
            floor = one_class_floor(total, found.rows, found.diagonal / found.rows)
        return Certificate(primal, dual, self.certified, floor, primal_error, dual_error).gap

    # --- the outcome ----------------------------------------------------------------------------

    def outcome(self, name: str, found: RowSums, jobs: int, began: float) -> Certified:
        """Return the certificate. name : the model file; began : time.perf_counter() at first."""
        model = self.model
        if model.has_row_numbers and self.certified:
            emit(Notice("the precomputed kernel is taken to be positive semidefinite"))
        if not self.certified:
            emit(Notice(f"the {model.kernel.name} kernel has no certificate: P is no bound"))
        with ThreadPool(jobs) as pool:
            machines = list(self.objectives(found, pool))
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
        known = np.isin(self.index.groups, found.matches.groups)
        names = PROBLEM_OPTIONS[model.prediction_type, model.nu]
        return Certified(
            model=name,
            problem=shlex.join(command_line(self.params, names=names)),
            rows=found.rows,
            support_vectors=len(model.beta),
            unknown_support_vectors=int((~known).sum()),
            primal=primal,
            dual=dual,
            gap=self._gap(found, primal, dual, primal_error, dual_error),
            largest_gap=largest_gap if len(machines) > 1 else None,
            feasible=infeasibility <= COEFFICIENT_ROUNDING,
            infeasibility=infeasibility,
            beyond_bounds=beyond_bounds,
            sum_error=sum_error,
            primal_error=primal_error,
            dual_error=dual_error,
            machines=machines,
            seconds=time.perf_counter() - began,
        )
