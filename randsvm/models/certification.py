"""Judge a kernel model of any program by its training file: P, D and the gap, in float64.

Reads the text of the rows and of the model. Shares the reader, kernel functions and decision values
of models with the rest of the package, and nothing with the training.
"""

from __future__ import annotations

import os
import shlex
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import inf, isinf, isnan, nan

import numpy as np

from randsvm import files
from randsvm.arrays import CsrMatrix, absolute, slices, squared_norms, to_csr
from randsvm.data.labels import LabelTable
from randsvm.data.svmlight import Block, numbers_of
from randsvm.errors import ContentError, GapError, ModelError
from randsvm.events import Certified, MachineObjectives, Notice, Watch, emit, listening, silent
from randsvm.models import decisions
from randsvm.models.kernel_model import KernelModel, PairwiseModel
from randsvm.models.load import check_is_not_model, load
from randsvm.models.model import ModelRows
from randsvm.models.prediction import weights_at
from randsvm.models.row_files import RowFiles
from randsvm.parallel import ThreadPool
from randsvm.parameters.kernel import positive_semidefinite
from randsvm.parameters.option import command_line
from randsvm.parameters.run import CertifyParams, Resources
from randsvm.parameters.svm import Params
from randsvm.records import NamedTuple, dataclass

# Support vectors are found among the rows by this number of random projections.
PROJECTIONS = 4
# Programs write values with 8 digits (LIBSVM), or round them to float32.
VALUE_ROUNDING = 2e-7
# Coefficients that rounding moves by this share of their sum still count as feasible.
COEFFICIENT_ROUNDING = 1e-6
# The gap of one-class is relative to at least this share of 1/2 nu^2 n K(x, x), the optimum for
# orthogonal rows of weight 1: on other rows it may be 0. docs/certificate.md has the definition.
ONE_CLASS_ZERO_SHARE = 0.01


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
    P is the primal objective of the machine as written. D is the dual objective of the feasible
    coefficients next to those of the model: a coefficient beyond its bound is moved to the bound,
    and that of a support vector that is not a row of the training file to 0. Therefore
    D <= optimum <= P holds for any model.

    Rows are read in chunks; memory grows with the support vectors only, except by 16 bytes a row
    for nu-SVR.
    """
    began = time.perf_counter()
    params, resources = params or CertifyParams(), resources or Resources()
    paths, model = files.inputs(data), os.fspath(model)
    for path in paths:
        check_is_not_model(path, "TRAIN_FILE MODEL_FILE")
    loaded = load(model, float64=True)
    if not isinstance(loaded, KernelModel):
        raise ModelError(f"{model}: expected a model in LIBSVM's format, found one of LIBLINEAR")
    if loaded.task == "svc" and len(loaded.labels) < 2:
        raise ModelError(f"{model}: expected a model of two or more classes")
    with listening(watch):
        judge = _judge_of(loaded, params)
        found = _read(judge, paths, resources.workers)
        outcome = judge.outcome(model, found, resources.workers, began)
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


class CandidateRows(NamedTuple):
    """Rows of the file that may be support vectors.

    groups : (k,) int64, number of the group of equal support vectors that the row may equal
    y : (k,) float64, class index or target of each row
    weights : (k,) float64, weight of each row
    distances : (k,) float64, distance of the projections
    X : (k, d) CSR, kernel values of the rows; only of a precomputed kernel
    """

    groups: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    distances: np.ndarray
    X: CsrMatrix | None = None

    @staticmethod
    def joined(parts: Sequence[CandidateRows]) -> CandidateRows:
        groups, y, weights, distances = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("groups", "y", "weights", "distances")
        )
        matrices = [part.X for part in parts if part.X is not None]
        return CandidateRows(
            groups, y, weights, distances, CsrMatrix.vstack(matrices) if matrices else None
        )

    def nearest(self, count: int) -> CandidateRows:
        """Return the rows whose distance is at most twice the smallest distance in their group.

        count : number of groups
        """
        least = np.full(count, inf)
        np.minimum.at(least, self.groups, self.distances)
        near = self.distances <= 2 * least[self.groups]
        X = None if self.X is None else self.X[near]
        return CandidateRows(
            self.groups[near], self.y[near], self.weights[near], self.distances[near], X
        )


class MatchedRows(NamedTuple):
    """The row of each of m support vectors.

    y : (m,) float64, class index or target of the row; nan: the support vector is no row
    weights : (m,) float64, weight of the row; 0 if it is none
    """

    y: np.ndarray
    weights: np.ndarray

    @property
    def unknown(self) -> np.ndarray:
        """Whether each support vector is no row, (m,) bool."""
        return np.isnan(self.y)


class SupportVectorIndex:
    """Finds the rows of a file that are support vectors of a model.

    groups : (m,) int64, number of the group of equal support vectors
    count : number of groups
    """

    def __init__(self, model: KernelModel) -> None:
        # scipy.spatial takes 50 ms to import, and only this class needs it.
        from scipy.spatial import cKDTree

        self.model = model
        if model.has_row_numbers:
            # The features of this model are row numbers, and each row of Z has one of them.
            self.groups, self.count = model.Z.indices.astype(np.int64), len(model.features)
            return
        self.directions = np.random.default_rng(0).normal(size=(len(model.features), PROJECTIONS))
        centres, groups = np.unique(model.Z @ self.directions, axis=0, return_inverse=True)
        self.groups, self.count = groups.ravel().astype(np.int64), len(centres)
        self.tree = cKDTree(centres) if len(centres) else None

    def find(
        self, rows: ModelRows, numbers: np.ndarray | None, y: np.ndarray, weights: np.ndarray
    ) -> CandidateRows:
        """Return the rows that equal a support vector. numbers : of rows of kernel values."""
        if numbers is not None:
            at = np.searchsorted(self.model.features, numbers)
            at[at == self.count] = 0
            found = np.flatnonzero((self.model.features[at] == numbers) if self.count else [])
            distances = np.zeros(len(found))
            some = to_csr(rows.X)[found]
            return CandidateRows(at[found], y[found], weights[found], distances, some)
        if self.tree is None:
            return CandidateRows(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0))
        X = rows.X
        distances, groups = self.tree.query(X @ self.directions, p=inf)
        tolerances = VALUE_ROUNDING * (absolute(X) @ np.abs(self.directions)).max(axis=1)
        # A value of a feature that no support vector has makes the row another one.
        found = np.flatnonzero((distances <= tolerances) & (rows.extra == 0))
        groups = groups[found].astype(np.int64)
        return CandidateRows(groups, y[found], weights[found], distances[found])

    def rows_of_classes(
        self, rows: CandidateRows, wanted: np.ndarray, sizes: np.ndarray
    ) -> MatchedRows:
        """Return the row of each support vector of a classifier. A row serves for one of them.

        Among equal rows of a class the largest weights go to the largest coefficients, so that
        feasible coefficients stay feasible.

        wanted : (m,) int64, the class of each support vector; -1: any. sizes : (m,) float64, the
        absolute values of the coefficients.
        """
        found = _pair(self.groups, wanted, sizes, rows)
        known = found >= 0
        y, weights = np.full(len(found), nan), np.zeros(len(found))
        y[known], weights[known] = rows.y[found[known]], rows.weights[found[known]]
        return MatchedRows(y, weights)

    def rows_of_targets(self, rows: CandidateRows, beta: np.ndarray, C: float) -> MatchedRows:
        """Return the row of each support vector of a regression. A row serves for one of them.

        Among equal rows the largest targets go to the largest coefficients: D is the highest of
        all ways to assign them within the bounds.

        beta : (m,). C : bound of |beta| of a row of weight 1.
        """
        y, weights = np.full(len(beta), nan), np.zeros(len(beta))
        sizes = np.bincount(rows.groups, minlength=self.count)
        # A group with more support vectors than rows loses those with the smallest coefficients.
        by_size = np.lexsort([-np.abs(beta), self.groups])
        kept = by_size[_ranks(self.groups[by_size]) < sizes[self.groups[by_size]]]
        left = np.arange(len(rows.groups))
        for sign, some in ((1.0, kept[beta[kept] >= 0]), (-1.0, kept[beta[kept] < 0])):
            counts = np.bincount(self.groups[some], minlength=self.count)
            group, y_left, w_left = rows.groups[left], sign * rows.y[left], rows.weights[left]
            order = np.lexsort([-w_left, -y_left, group])
            # In each group the rows with the largest targets take the largest coefficients.
            taken = order[_ranks(group[order]) < counts[group[order]]]
            some = some[np.lexsort([-np.abs(beta[some]), self.groups[some]])]
            some = some[_fitting(np.abs(beta[some]), C * w_left[taken], self.groups[some])]
            y[some], weights[some] = rows.y[left[taken]], rows.weights[left[taken]]
            left = np.delete(left, taken)
        return MatchedRows(y, weights)


def _fitting(sizes: np.ndarray, bounds: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return which coefficient each row takes, (m,) int64, a position in `sizes`.

    Each row in turn takes the largest coefficient that is left and within its bound, and the
    smallest if there is none.

    sizes : (m,) float64, absolute values of the coefficients, descending in each group; bounds :
    (m,) float64, of the rows; groups : (m,) int64, ascending, of the coefficients and of the rows.
    """
    found = np.arange(len(sizes))
    mixed = (np.diff(groups) == 0) & (np.diff(bounds) != 0)
    for group in np.unique(groups[1:][mixed]).tolist():
        begin, end = np.searchsorted(groups, [group, group + 1]).tolist()
        left = list(range(end - 1, begin - 1, -1))
        for row in range(begin, end):
            bound = float(bounds[row]) * (1 + COEFFICIENT_ROUNDING)
            fits = bisect_right(left, bound, key=sizes.__getitem__)
            found[row] = left.pop(max(fits - 1, 0))
    return found


def _ranks(keys: np.ndarray) -> np.ndarray:
    """Return the number of equal keys before each key. keys : (m,), equal ones side by side."""
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return np.arange(len(keys)) - np.repeat(starts, np.diff(starts, append=len(keys)))


def _pair(
    groups: np.ndarray, wanted: np.ndarray, sizes: np.ndarray, rows: CandidateRows
) -> np.ndarray:
    """Return the number of the row for each support vector, -1: none; see `rows_of_classes`."""
    found = np.full(len(groups), -1, np.int64)
    classes = rows.y.astype(np.int64)
    free = np.ones(len(classes), bool)
    span = int(classes.max(initial=0)) + 2
    # First support vectors of a known class with rows of that class, then all that are left.
    for keys, row_keys in (
        (groups * span + wanted + 1, rows.groups * span + classes + 1),
        (groups, rows.groups),
    ):
        missing, left = np.flatnonzero(found < 0), np.flatnonzero(free)
        some = missing[np.lexsort([-sizes[missing], keys[missing]])]
        of_rows = left[np.lexsort([-rows.weights[left], row_keys[left]])]
        one, other = (
            np.column_stack([sorted_keys, _ranks(sorted_keys)])
            for sorted_keys in (keys[some], row_keys[of_rows])
        )
        both = np.concatenate([one, other])
        _, numbers = np.unique(both, axis=0, return_inverse=True)
        numbers = numbers.ravel()
        _, at, of = np.intersect1d(
            numbers[: len(one)], numbers[len(one) :], assume_unique=True, return_indices=True
        )
        found[some[at]] = of_rows[of]
        free[of_rows[of]] = False
    return found


# --- losses of the rows --------------------------------------------------------------------


class RowLosses(NamedTuple):
    """Sums over some rows.

    losses : (2, machines), sums of weight times loss of each machine without C: of the rows of its
    first class and of the others. One-class and regression use the first row only.
    rows : number of rows
    weights : (classes,) float64, sum of the weights of each class; of other tasks the sum of all
    diagonal : sum of K(x, x), of one-class only
    residuals : (2, m), y - f of nu-SVR and the weights; of other tasks (2, 0)
    matches : rows that are support vectors
    """

    losses: np.ndarray
    rows: int
    weights: np.ndarray
    diagonal: float
    residuals: np.ndarray
    matches: CandidateRows


def _read(judge: _Judge, paths: Sequence[str], jobs: int) -> RowLosses:
    """Return the sums over all rows of the files."""
    model = judge.model
    files_of_rows = RowFiles(model, paths[0], paths)
    own = {} if model.columns is not None else {"has_row_numbers": model.has_row_numbers}
    table = LabelTable(paths[0], names=model.labels, closed=True)
    if model.is_one_class:  # labels do not matter, as in training
        table = LabelTable(paths[0], any_label=True)
    parts: list[RowLosses] = []
    row_weights = weights_at(judge.params.row_weights, paths)
    with ThreadPool(jobs) as pool:
        begin_file = partial(setattr, table, "path")
        blocks = files_of_rows.blocks(
            emit, jobs=jobs, begin_file=begin_file, unlabelled=False, float64=True, **own
        )
        weighted = blocks if row_weights is None else map(row_weights.of, blocks)
        for block in map(Block.without_zero_weights, weighted):
            y = block.y if model.is_regression else table.classes(block)
            work = partial(judge.losses, block, y)
            parts += pool.map_in_order(work, slices(len(block), model.rows_at_once))
    if row_weights is not None:
        row_weights.check_end()
    if not parts:
        raise ContentError(f"{paths[0]}: expected rows, found none")
    losses, rows, weights, diagonals, residuals, matches = zip(*parts, strict=True)
    return RowLosses(
        np.sum(losses, axis=0),
        sum(rows),
        np.sum(weights, axis=0),
        float(sum(diagonals)),
        np.concatenate(residuals, axis=1),
        CandidateRows.joined(matches).nearest(judge.index.count),
    )


# --- feasible coefficients -----------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """The constraints on the coefficients of one machine.

    lower, upper : (m,) float64, bounds; both 0 for a support vector that is not a row
    total : sum that the coefficients must have
    size : bound of the sum of their absolute values
    """

    lower: np.ndarray
    upper: np.ndarray
    total: float = 0.0
    size: float = inf

    def nearest(self, beta: np.ndarray) -> np.ndarray | None:
        """Return feasible coefficients near beta; None: there are none on these rows."""
        beta = np.clip(beta, self.lower, self.upper)
        excess = float(beta.sum()) - self.total
        if self.total:
            room = beta - self.lower if excess > 0 else self.upper - beta
            capacity = float(room.sum())
            if abs(excess) > capacity * (1 + 1e-12):
                return None
            beta = beta - (room * (excess / capacity) if excess else 0)
        elif excess:
            side = beta > 0 if excess > 0 else beta < 0
            beta = np.where(side, beta * (1 - excess / beta[side].sum()), beta)
        size = float(np.abs(beta).sum())
        return beta * (self.size / size) if size > self.size else beta


# --- tasks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    """Computes P and D of a model of one task."""

    model: KernelModel
    params: CertifyParams

    @property
    def used(self) -> set[str]:
        """The parameters that have an effect."""
        return {"nu"}

    @cached_property
    def index(self) -> SupportVectorIndex:
        return SupportVectorIndex(self.model)

    def losses(self, block: Block, y: np.ndarray, part: slice) -> RowLosses:
        """Return the sums over the rows `part` of a block. y : (len(block),)."""
        indptr = block.indptr[part.start : part.stop + 1]
        values = slice(indptr[0], indptr[-1])
        rows = self.model.rows(indptr - indptr[0], block.indices[values], block.values[values])
        # block.numbers.rows also has the rows of weight 0, which the block leaves out.
        numbers = None
        if block.numbers is not None:
            numbers = numbers_of(indptr - indptr[0], block.indices[values], block.values[values])
        f = self.model.decision(rows).reshape(len(indptr) - 1, -1)
        weights = np.ones(len(f)) if block.weights is None else block.weights[part]
        losses, sums = self.row_losses(f, y[part], weights)
        residuals = np.empty((2, 0))
        if self.model.nu and self.model.is_regression:
            residuals = np.array([y[part] - f[:, 0], weights])
        matches = self.index.find(rows, numbers, y[part], weights)
        diagonal = self.diagonal(rows) if self.model.is_one_class else 0.0
        return RowLosses(losses, len(f), sums, diagonal, residuals, matches)

    def row_losses(
        self, f: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return `losses` and `weights` of RowLosses. f : (m, K), decision values of the rows."""
        raise NotImplementedError

    def diagonal(self, rows: ModelRows) -> float:
        """Return the sum of K(x, x) over rows; 0 for a precomputed kernel, as in the training."""
        kernel = self.model.kernel
        if kernel.name == "precomputed":
            return 0.0
        if kernel.name == "rbf":
            return float(rows.X.shape[0])
        norms = squared_norms(rows.X) + rows.extra
        return float(sum(kernel.magnitude(norm) for norm in norms.tolist()))

    def machines(self, found: RowLosses, norms: _Norms) -> Iterator[MachineObjectives]:
        """Yield P and D of each machine."""
        raise NotImplementedError

    def least_objective(self, found: RowLosses) -> float:
        """Return the size below which an objective counts as 0 in the gap."""
        return 0.0

    @property
    def certified(self) -> bool:
        """Return whether D is a lower bound of P: the kernel is positive semidefinite."""
        return positive_semidefinite(self.model.kernel.name, self.model.kernel.coef0)

    def objectives(
        self, name: str, primal: float, dual: float, least: float, changes: _Changes
    ) -> MachineObjectives:
        if isinf(dual) or not self.certified:
            dual = nan
        scale = max(abs(primal), abs(dual), least)
        gap = (primal - dual) / scale if scale else 0.0
        return MachineObjectives(name, primal, dual, gap, *changes)

    def outcome(self, name: str, found: RowLosses, jobs: int, began: float) -> Certified:
        """Return the certificate. name : the model file; began : time.perf_counter() at first."""
        model = self.model
        if model.has_row_numbers and self.certified:
            emit(Notice("the precomputed kernel is taken to be positive semidefinite"))
        if not self.certified:
            emit(Notice(f"the {model.kernel.name} kernel has no certificate: P is no bound"))
        with ThreadPool(jobs) as pool:
            machines = list(self.machines(found, _Norms(model, self.index, found.matches, pool)))
        primal, dual = (
            float(sum(getattr(one, of) for one in machines)) for of in ("primal", "dual")
        )
        scale = max(abs(primal), abs(dual), self.least_objective(found))
        return Certified(
            model=name,
            problem=self.problem,
            rows=found.rows,
            support_vectors=len(model.beta),
            unknown_support_vectors=int(self.matched(found).unknown.sum()),
            primal=primal,
            dual=dual,
            gap=(primal - dual) / scale if scale else 0.0,
            largest_gap=float(np.max([one.gap for one in machines])) if machines[1:] else None,
            feasible=all(one.infeasibility <= COEFFICIENT_ROUNDING for one in machines),
            infeasibility=max(one.infeasibility for one in machines),
            beyond_bounds=max(one.beyond_bounds for one in machines),
            sum_error=max(one.sum_error for one in machines),
            machines=machines,
            seconds=time.perf_counter() - began,
        )

    @property
    def problem(self) -> str:
        """The options of the problem that neither the model nor the rows have, as text."""
        words = command_line(self.params, names=self.used)
        if self.params.row_weights is not None:
            words += ["--row-weights", self.params.row_weights]
        return shlex.join(words)

    def matched(self, found: RowLosses) -> MatchedRows:
        """Return the row of each support vector."""
        raise NotImplementedError


class _Changes(NamedTuple):
    """The distance of coefficients from feasible ones; see MachineObjectives."""

    infeasibility: float
    beyond_bounds: float
    sum_error: float

    @staticmethod
    def of(beta: np.ndarray, feasible: np.ndarray | None, box: Box) -> _Changes:
        size = float(np.abs(beta).sum())
        beyond = np.maximum(beta - box.upper, box.lower - beta).max(initial=0.0)
        changed = inf if feasible is None else float(np.abs(feasible - beta).sum())
        share = changed / size if size else (changed and inf)
        return _Changes(share, float(beyond), float(beta.sum()) - box.total)


class _Norms:
    """Computes |w|^2 of coefficients over the support vectors of a model."""

    def __init__(
        self,
        model: KernelModel,
        index: SupportVectorIndex,
        matches: CandidateRows,
        pool: ThreadPool,
    ) -> None:
        self.model, self.index, self.matches, self.pool = model, index, matches, pool

    def __call__(self, B: np.ndarray) -> np.ndarray:
        """Return |w|^2 of each machine. B : (m, machines)."""
        model = replace(
            self.model,
            beta=_stored_coefficients(self.model, B),
            b=np.zeros(B.shape[1]),
            scaling=None,
        )
        Z = self._kernel_rows if model.has_row_numbers else model.Z
        parts = slices(Z.shape[0], model.rows_at_once)
        u = self.pool.map_in_order(lambda part: model.decision_matrix(Z[part]), parts)
        return (B * np.concatenate([np.zeros((0, B.shape[1])), *u])).sum(axis=0)

    @cached_property
    def _kernel_rows(self) -> CsrMatrix:
        """The kernel values of the support vectors, (m, d), as the file has them."""
        groups, first = np.unique(self.matches.groups, return_index=True)
        if len(groups) < self.index.count:
            raise ContentError("expected the row of each support vector, found fewer rows")
        assert self.matches.X is not None
        return self.matches.X[first][self.index.groups]


def _stored_coefficients(model: KernelModel, B: np.ndarray) -> np.ndarray:
    """Return coefficients as the model stores them: the inverse of `model.coefficients`."""
    if not isinstance(model, PairwiseModel):
        return B
    beta, own = np.zeros_like(model.beta), _own_classes(model)
    for k, (i, j) in enumerate(zip(*decisions.class_pairs(len(model.nr_sv)), strict=True)):
        beta[own == i, j - 1] = B[own == i, k]
        beta[own == j, i] = B[own == j, k]
    return beta


def _own_classes(model: PairwiseModel) -> np.ndarray:
    return np.repeat(np.arange(len(model.nr_sv)), model.nr_sv)


class _Classification(_Judge):
    """C-SVC and nu-SVC of two classes, of pairs of classes, or of each class against the rest."""

    @property
    def used(self) -> set[str]:
        return {"nu"} if self.model.nu else {"C", "weights"}

    @property
    def pairs(self) -> list[tuple[int, int | None]]:
        """The class of f > 0 and the other one of each machine; None: all other classes."""
        classes = len(self.model.labels)
        if isinstance(self.model, PairwiseModel):
            return list(
                zip(*(each.tolist() for each in decisions.class_pairs(classes)), strict=True)
            )
        return [(0, 1)] if classes == 2 else [(c, None) for c in range(classes)]

    def row_losses(
        self, f: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        losses = np.zeros((2, f.shape[1]))
        for k, (i, j) in enumerate(self.pairs):
            first, other = y == i, (y != i if j is None else y == j)
            losses[0, k] = weights[first] @ np.maximum(0, 1 - f[first, k])
            losses[1, k] = weights[other] @ np.maximum(0, 1 + f[other, k])
        return losses, np.bincount(y.astype(np.int64), weights, len(self.model.labels))

    def machines(self, found: RowLosses, norms: _Norms) -> Iterator[MachineObjectives]:
        B, counts = self.model.coefficients, found.weights.tolist()
        scales, totals = self._scales(found, B)
        rows, boxes = self.matched(found), []
        own = np.where(rows.unknown, -1, rows.y)
        for k, (i, j) in enumerate(self.pairs):
            side = np.where(own == i, 1, np.where(own >= 0, -1, 0))
            side = side if j is None else np.where((own == i) | (own == j), side, 0)
            C = self._bounds(i, j, counts)
            lower, upper = np.where(side < 0, -C[1], 0.0), np.where(side > 0, C[0], 0.0)
            boxes.append((Box(lower * rows.weights, upper * rows.weights), totals[k]))
        beta = B * scales
        feasible = [self._feasible(*box, b) for box, b in zip(boxes, beta.T, strict=True)]
        known = [b if f is None else f for f, b in zip(feasible, beta.T, strict=True)]
        own_norms, moved_norms = _both_norms(norms, beta, np.array(known).T)
        for k, (i, j) in enumerate(self.pairs):
            C, total, rho = self._bounds(i, j, counts), boxes[k][1], scales[k]
            loss = rho * (C[0] * found.losses[0, k] + C[1] * found.losses[1, k])
            primal = own_norms[k] / 2 + loss - (total * rho if self.model.nu else 0.0)
            dual = -moved_norms[k] / 2 + (0.0 if self.model.nu else np.abs(known[k]).sum())
            changes = _Changes.of(beta[:, k], feasible[k], boxes[k][0])
            yield self.objectives(
                self._name(i, j), primal, -inf if feasible[k] is None else dual, 0.0, changes
            )

    def _scales(self, found: RowLosses, B: np.ndarray) -> tuple[np.ndarray, list[float]]:
        """Return the factor of the coefficients and sum alpha of nu-SVC (else 0) of each machine.

        The model of nu-SVC is divided by rho, and the sum of alpha was nu n. B : (m, machines).
        """
        scales, totals = np.ones(B.shape[1]), [0.0] * B.shape[1]
        if not self.model.nu:
            return scales, totals
        counts, size = found.weights.tolist(), np.abs(B).sum(axis=0)
        for k, (i, j) in enumerate(self.pairs):
            totals[k] = self.params.nu * (sum(counts) if j is None else counts[i] + counts[j])
            scales[k] = totals[k] / size[k] if size[k] else 1.0
        return scales, totals

    def _feasible(self, box: Box, total: float, beta: np.ndarray) -> np.ndarray | None:
        """Return feasible coefficients near beta. total : sum of alpha of nu-SVC, else 0."""
        if not self.model.nu:
            return box.nearest(beta)
        positive = Box(np.zeros_like(beta), box.upper, total / 2).nearest(beta)
        negative = Box(box.lower, np.zeros_like(beta), -total / 2).nearest(beta)
        return None if positive is None or negative is None else positive + negative

    def _bounds(self, i: int, j: int | None, counts: Sequence[int]) -> tuple[float, float]:
        """Return C of both sides of a machine."""
        if self.model.nu:
            return 1.0, 1.0
        weights = Params(weights=self.params.weights)
        names, C = self.model.labels, self.params.C
        if j is None:
            first, other = weights.one_vs_rest_weights(i, names, counts)
        else:
            first, other = weights.pair_weights(i, j, names, counts)
        return C * first, C * other

    def _name(self, i: int, j: int | None) -> str:
        labels = self.model.labels
        if len(labels) == 2:
            return ""
        return f"{labels[i]} against {'the rest' if j is None else labels[j]}"

    def matched(self, found: RowLosses) -> MatchedRows:
        model, B = self.model, self.model.coefficients
        if isinstance(model, PairwiseModel):
            wanted = _own_classes(model)
        elif len(model.labels) == 2:
            wanted = np.where(model.beta[:, 0] > 0, 0, 1)
        else:
            wanted = np.where((model.beta > 0).any(axis=1), model.beta.argmax(axis=1), -1)
        sizes = np.abs(B * self._scales(found, B)[0]).max(axis=1, initial=0.0)
        return self.index.rows_of_classes(found.matches, wanted, sizes)


class _Regression(_Judge):
    """epsilon-SVR and nu-SVR."""

    @property
    def used(self) -> set[str]:
        return {"C", "nu"} if self.model.nu else {"C", "epsilon"}

    def row_losses(
        self, f: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        loss = weights @ np.maximum(0, np.abs(y - f[:, 0]) - self.params.epsilon)
        return np.array([[loss]]), weights.sum(keepdims=True)

    def machines(self, found: RowLosses, norms: _Norms) -> Iterator[MachineObjectives]:
        beta, rows = self.model.beta[:, 0], self.matched(found)
        C, total = self.params.C, float(found.weights[0])
        bound = C * rows.weights
        size = C * self.params.nu * total if self.model.nu else inf
        box = Box(-bound, bound, size=size)
        feasible = box.nearest(beta)
        assert feasible is not None
        own_norms, moved_norms = _both_norms(norms, beta[:, None], feasible[:, None])
        if self.model.nu:
            # The half width of the tube with the least P. The derivative of P by the half width is
            # C times (nu n less the weight of the rows outside).
            residuals, weights = np.abs(found.residuals[0]), found.residuals[1]
            order = np.argsort(-residuals, kind="stable")
            inside = order[np.cumsum(weights[order]) > self.params.nu * total]
            width = float(residuals[inside[0]]) if len(inside) else 0.0
            loss = size * width + C * (weights @ np.maximum(0, residuals - width))
            epsilon = 0.0
        else:
            loss, epsilon = C * found.losses[0, 0], self.params.epsilon
        linear = float(np.nan_to_num(rows.y) @ feasible) - epsilon * np.abs(feasible).sum()
        changes = _Changes.of(beta, feasible, box)
        primal, dual = own_norms[0] / 2 + loss, linear - moved_norms[0] / 2
        yield self.objectives("", primal, dual, 0.0, changes)

    def matched(self, found: RowLosses) -> MatchedRows:
        return self.index.rows_of_targets(found.matches, self.model.beta[:, 0], self.params.C)


class _OneClass(_Judge):
    """one-class, in LIBSVM's scale."""

    def row_losses(
        self, f: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return np.array([[weights @ np.maximum(0, -f[:, 0])]]), weights.sum(keepdims=True)

    def machines(self, found: RowLosses, norms: _Norms) -> Iterator[MachineObjectives]:
        beta, total = self.model.beta[:, 0], self.params.nu * float(found.weights[0])
        box = Box(np.zeros_like(beta), self.matched(found).weights, total)
        feasible = box.nearest(beta)
        known = beta if feasible is None else feasible
        own_norms, moved_norms = _both_norms(norms, beta[:, None], known[:, None])
        rho = -float(self.model.b[0])
        primal = own_norms[0] / 2 - total * rho + found.losses[0, 0]
        dual = -inf if feasible is None else -moved_norms[0] / 2
        changes = _Changes.of(beta, feasible, box)
        yield self.objectives("", primal, dual, self.least_objective(found), changes)

    def least_objective(self, found: RowLosses) -> float:
        mean = self.params.nu * float(found.weights[0]) / found.rows
        return ONE_CLASS_ZERO_SHARE * mean**2 * found.diagonal / 2

    def matched(self, found: RowLosses) -> MatchedRows:
        any_class = np.zeros(len(self.model.beta), np.int64)
        rows = found.matches._replace(y=np.zeros(len(found.matches.y)))
        return self.index.rows_of_classes(rows, any_class, np.abs(self.model.beta[:, 0]))


def _judge_of(model: KernelModel, params: CertifyParams) -> _Judge:
    kinds = {"svc": _Classification, "svr": _Regression, "one-class": _OneClass}
    return kinds[model.task](model, params)


def _both_norms(norms: _Norms, beta: np.ndarray, feasible: np.ndarray) -> Iterable[np.ndarray]:
    """Return |w|^2 of each machine for the coefficients as written and for feasible ones."""
    own = norms(beta)
    return own, own if np.array_equal(beta, feasible) else norms(feasible)
