"""The running values u and beta of every row of the data set D, advanced by changed coefficients.

`ShardValues` holds the values of one shard, `RunningValues` those of all shards. Finds no violators
and solves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np

import randsvm.svm._kkt_scan as _kkt_scan
from randsvm.arrays import CsrMatrix, sorted_union, squared_norms
from randsvm.data.dataset import Dataset
from randsvm.data.points import Points, RowCache
from randsvm.data.sampling import AUDIT_DRAW, Draw
from randsvm.data.shard_executor import Executor, Shard
from randsvm.events import Progress, emit
from randsvm.kernels.expansion import Expansion, check_finite, values_of
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import Layout, RowBlock, bytes_of
from randsvm.parameters.svm import Problem
from randsvm.records import record
from randsvm.svm.kernel_layout import gram_of, kernel_centres, kernel_layout_of
from randsvm.svm.libsvm import check_values
from randsvm.svm.offset import Window
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine, one_class_floor
from randsvm.svm.subproblem_qp import KernelValues
from randsvm.svm.tasks import Task, task_of
from randsvm.svm.whole import MatrixPart

Answer = TypeVar("Answer", bound=Any)

# Rows whose running decision value is computed in float64 as well, and compared after every scan:
# AUDIT_ROWS, but fewer if they have more nonzeros than AUDIT_NONZEROS, down to MIN_AUDIT_ROWS.
# Measured with 4,000 rows of 392 nonzeros: 512 rows take a sixth of the processor time of a run.
AUDIT_ROWS, AUDIT_NONZEROS, MIN_AUDIT_ROWS = 512, 1 << 16, 128
# Rounding may change u by MAX_ERROR_OF_TOLERANCE times the tolerance, or by MAX_ERROR_OF_VIOLATION
# times the largest violation of the same scan. It may change P - D by MAX_ERROR_OF_GAP times what
# the gap that is asked for allows, or times P - D of the same scan.
MAX_ERROR_OF_TOLERANCE, MAX_ERROR_OF_VIOLATION, MAX_ERROR_OF_GAP = 1 / 4, 1 / 100, 1 / 4


# --- one shard ------------------------------------------------------------------------------


class MemoryBudget:
    """Bytes for rows that stay laid out, shared by all shards of a process."""

    def __init__(self, size: int) -> None:
        self.left, self.lock = size, Lock()

    def reserve(self, size: int) -> bool:
        """Reserve `size` bytes and return True, or return False if fewer are left."""
        with self.lock:
            fits = size <= self.left
            self.left -= size if fits else 0
            return fits

    def release(self, size: int) -> None:
        with self.lock:
            self.left += size

    def __reduce__(self) -> tuple[type[MemoryBudget], tuple[int]]:
        return MemoryBudget, (self.left,)


class ShardValues:
    """u and beta of every row of a shard, (m,) float64 each.

    sums : (1, m) or (2, m) float64, what was added up: u; for float32 sums of rbf also
    sum |difference_j K(z_j, .)| over everything that was added to u.
    budget: for rows that stay laid out from one pass to the next; it changes the time and no
    result.
    held: the rows, if they are in memory; None: D reads them.
    """

    def __init__(
        self, D: Dataset, budget: MemoryBudget, shard: Shard, held: Points | None = None
    ) -> None:
        self.D, self.budget, self.shard, self.held = D, budget, shard, held
        self.sums, self.beta = np.zeros((1, len(self))), np.zeros(len(self))
        # The rows in the layout of each type of numbers, and their size in bytes.
        self._kept: dict[type, tuple[list[RowBlock], int]] = {}
        # Number of a basis or 0, its kernel values with the rows, and the bytes reserved for them;
        # see algorithms/reduced_set.py.
        self.basis_values: tuple[int, list[np.ndarray], int] = 0, [], 0

    def __len__(self) -> int:
        return self.shard.stop - self.shard.start

    @property
    def u(self) -> np.ndarray:
        return self.sums[0]

    @property
    def rows(self) -> CsrMatrix:
        """Return the rows without labels, (m, d)."""
        return self.D.chunk_matrix(self.shard) if self.held is None else self.held.X

    @property
    def y(self) -> np.ndarray:
        return self.D.labels_of(self.shard) if self.held is None else self.held.y

    @property
    def weights(self) -> np.ndarray | None:
        """Return the weights of the rows, or None if the weights of D are all 1."""
        return self.D.weights_of(self.shard) if self.held is None else self.held.weights

    # Methods that changes and queries call by functools.partial: other processes can run them.

    def set_coefficients(self, rows: np.ndarray, beta: np.ndarray) -> None:
        """Set beta of some rows of D, and leave u as it is.

        rows : (m,) int64, ascending; beta : (m,) float64
        """
        within = self.shard.within(rows)
        self.beta[rows[within] - self.shard.start] = beta[within]

    def begin(self, rows: np.ndarray, beta: np.ndarray, sums: np.ndarray | None) -> None:
        """Set beta of some rows of D, and 0 for all others, and the sums that were added up.

        sums : (1, n) or (2, n) float64; None: nothing was added.
        """
        self.beta.fill(0.0)
        self.set_coefficients(rows, beta)
        own = slice(self.shard.start, self.shard.stop)
        self.sums = np.zeros((1, len(self))) if sums is None else sums[:, own].copy()

    def sums_of(self, rows: np.ndarray | None, count: int = 2) -> list[np.ndarray]:
        """Return at most `count` of `sums`, of some rows, ascending; None: of all."""
        sums = self.sums[:count]
        if rows is None:
            return [sums.copy()]
        return [sums[:, rows[self.shard.within(rows)] - self.shard.start]]

    def near_margin(self, task: Task, b: float, distance: float) -> list[np.ndarray]:
        """Return the support vectors and the rows at most `distance` beyond the margin, (m,) int64.

        task, b: the task and its offset.
        """
        y = self.y
        rise, fall = task.slopes(y, self.u, np.zeros(len(y)))
        # How much a row violates the KKT condition of beta = 0; for C-SVC 1 - y f.
        kept = (np.maximum(rise - b, b - fall) >= -distance) | (self.beta != 0)
        return [np.flatnonzero(kept) + self.shard.start]

    def add(self, expansion: Expansion) -> None:
        """Add the expansion to the sums. Raises ParameterError if u exceeds float64."""
        if not expansion.sum_shape:
            self._add(expansion, self.u)
        else:
            # Two columns, of the two rows of `sums`. The first expansion with two columns adds the
            # second row.
            added = np.zeros((len(self), *expansion.sum_shape))
            self._add(expansion, added)
            added[:, : len(self.sums)] += self.sums.T
            self.sums = added.T.copy()
        check_finite(self.u, expansion.layout.kernel)

    def _add(self, expansion: Expansion, u: np.ndarray) -> None:
        D, layout = self.D, expansion.layout
        if self.held is not None and layout.kernel.linear:
            u += expansion.values(self.held.X)
        elif layout.kernel.linear or D.mapping is not None:
            for chunk in D.chunks(self.shard):
                at = chunk.start - self.shard.start
                u[at : at + len(chunk.y)] += expansion.values(chunk.X)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                expansion.add(u, self._rows(layout))

    def _rows(self, layout: Layout) -> Iterable[RowBlock]:
        """Return the rows in a layout; keep them if the budget allows."""
        if layout.dtype in self._kept:
            return self._kept[layout.dtype][0]
        made = layout.rows(self.rows)
        if self.budget.left <= 0:
            return made
        blocks = list(made)
        size = sum(bytes_of(rows) for _, rows in blocks)
        if self.budget.reserve(size):
            self._kept[layout.dtype] = blocks, size
        return blocks

    def release_rows(self) -> None:
        """Free the rows that stayed laid out."""
        for _, size in self._kept.values():
            self.budget.release(size)
        self._kept = {}


# --- all shards ------------------------------------------------------------------------------


class Added(NamedTuple):
    """How u was summed: the numbers of passes and of centres, and sum |difference_j|.

    centres, total: of the sums in the precision of the layout. exact_centres, exact_total: of a
    pass in float64 before them, see `RunningValues.repeat_in_float64`.
    """

    passes: int = 0
    centres: int = 0
    total: float = 0.0
    exact_centres: int = 0
    exact_total: float = 0.0

    def after(self, difference: np.ndarray) -> Added:
        """Return this after one more pass."""
        total = self.total + float(np.abs(difference).sum())
        centres = self.centres + len(difference)
        return self._replace(passes=self.passes + 1, centres=centres, total=total)


NOTHING_ADDED = Added()


@record
class SavedSolution:
    """A solution that scans of the same rows continue from.

    beta : (n,) float64. sums : (1, n) or (2, n) float64, see ShardValues. added: see RunningValues.
    float64: whether the layout of the sums is in float64. bounds: of |beta|, see Problem.
    """

    beta: np.ndarray
    sums: np.ndarray
    added: Added
    float64: bool
    bounds: tuple[float, float]

    @property
    def u(self) -> np.ndarray:
        return self.sums[0]

    def best_factor(self, problem: Problem, y: np.ndarray) -> float:
        """Return the factor s of the largest D(s beta) with s beta within the bounds of a problem.

        The C of the problem may be another one. y : (n,) labels.

        D(s beta) = s linear - s^2 / 2 |w|^2. Where most coefficients are bounded, the best multiple
        is in proportion to C. Where most are unbounded, it is little above 1.
        """
        most, rows = problem.bounds[0] / self.bounds[0], np.flatnonzero(self.beta)
        if most == 1.0 or not len(rows):
            return most
        beta = self.beta[rows]
        linear, norm = task_of(problem).linear(y[rows], beta), float(beta @ self.u[rows])
        return min(most, linear / norm) if linear > 0 and norm > 0 else most

    def times(self, factor: float) -> SavedSolution:
        """Return the multiple of this solution.

        Each coefficient and each sum is rounded once more: these count as two passes.
        """
        passes, centres, total, exact_centres, exact_total = self.added
        added = Added(passes + 2, centres, factor * total, exact_centres, factor * exact_total)
        return replace(self, beta=factor * self.beta, sums=factor * self.sums, added=added)


class RunningValues:
    """u and beta of every row of D, for the coefficients so far.

    values: u and beta of each shard, in the process that holds the shard
    audit: random rows whose u is compared with float64 sums; with a matrix all rows
    floor: see Certificate
    matrix: kernel values of all rows, which are few; all sums are then in float64. None: there are
        none
    weights : (n,) float64, None: all are 1. Rows of weight 0 are held out: their coefficients stay
        0, but they have a u
    total_weight: the sum of the weights
    layout_bytes: memory for rows that stay laid out from one pass to the next; it changes the time
        and no result
    float64: whether to use float64 from the start
    gap: the gap that is asked for; None: none is

    These change from round to round:

    beta : (n,) float64, the coefficients
    task: with the tube last found
    b: the offset last found
    settled: u is that of beta; False while these change, and if that was broken off
    slack: `Task.absolute_sum` less sum |beta| of nu-SVR
    windows: where the next scan expects the offset of each group of the task
    kernel_layout: how rows are laid out for sums and kernel values, and the precision of the sums
    audit_u : (m,) float64, u of the audit rows from float64 sums
    audit_errors : (m,) float64, their running u less `audit_u`; 0 after float64 sums
    added: what was added to u since it was last computed from scratch
    reduced: the reduced machine that the coefficients are of; None: they are of the problem
    row_cache: rows that were read by number
    """

    settled = True

    def __init__(
        self,
        D: Dataset,
        problem: Problem,
        seed: int,
        layout_bytes: int = 0,
        float64: bool = False,
        gap: float | None = None,
        matrix: MatrixPart | None = None,
    ) -> None:
        self.D, self.problem, self.seed, self.gap, self.matrix = D, problem, seed, gap, matrix
        self.weights = D.weights()
        self.total_weight = float(D.n if self.weights is None else self.weights.sum())
        self.floor = _floor(D, problem, Kernel.of(problem))
        self.task, self.b, self.slack = task_of(problem), 0.0, 0.0
        self.windows = tuple(Window() for _ in self.task.groups)
        self.beta, self.added = np.zeros(D.n), NOTHING_ADDED
        self.reduced: ReducedMachine | None = None
        values = partial(ShardValues, D, MemoryBudget(layout_bytes))
        if matrix is None:
            self.values = D.states(values)
            self.audit = kernel_centres(D, D.sample(Draw(seed, AUDIT_DRAW), audit_rows(D)))
            self.kernel_layout = kernel_layout_of(D, problem, self.audit, float64)
        else:
            everything = self.audit = matrix.points(D.labels(), self.weights)
            if problem.kernel == "precomputed":
                everything = D.points(everything.rows)
            # All rows are one shard in this thread, also if D is on a cluster.
            whole = [Shard(0, 0, D.n)]
            self.values = Executor(None).states(partial(values, held=everything), whole)
            self.kernel_layout = matrix.matrix.exact_layout
        # The size above which the cache drops rows.
        self.row_cache, self.max_cached_bytes = RowCache(self.audit), layout_bytes // 2
        self.audit_u = self.audit_errors = np.zeros(len(self.audit))

    # --- read ------------------------------------------------------------------------------

    @property
    def labels(self) -> np.ndarray:
        """Return y of every row, (n,) float64."""
        return self.D.labels()

    @property
    def u(self) -> np.ndarray:
        """Return a copy of u of every row, (n,) float64; `u_of` is cheaper."""
        return self.u_of(None)

    def u_of(self, rows: np.ndarray | None, stage: str | None = None) -> np.ndarray:
        """Return u of some rows, ascending, (m,) float64; None: of all. stage: see ask."""
        query = partial(ShardValues.sums_of, rows=rows, count=1)
        return np.concatenate(self.ask(query, stage), axis=1)[0]

    @property
    def support(self) -> np.ndarray:
        """Return the rows of the support vectors, (m,) int64, ascending."""
        return np.flatnonzero(self.beta)

    def holds(self, solution: KernelSolution) -> bool:
        """Return whether beta is that of a solution, and u that of beta."""
        is_same = np.array_equal(self.beta, solution.dense(self.D.n))
        return self.settled and is_same

    def points(self, rows: np.ndarray) -> Points:
        """Return rows of D with their running u and beta. rows : (m,) int64, ascending."""
        u = self.u_of(rows) if len(rows) else np.empty(0)
        return replace(self.rows(rows), u=u, beta=self.beta[rows])

    def rows(self, rows: np.ndarray) -> Points:
        """Return rows of D without u and beta. rows : (m,) int64, ascending.

        They are cached. If the cache is too large, it keeps these and the support vectors.
        """
        if self.matrix is not None:
            return self.audit if len(rows) == self.D.n else self.audit[rows]
        cache, missing = self.row_cache, self.row_cache.missing(rows)
        if len(missing) > len(cache) and len(missing) > len(rows) // 2:
            # Nearly all are new, as at the start of a nu task: the cache shares their memory.
            found = kernel_centres(self.D, rows)
            self.row_cache = RowCache(found)
            return found
        if len(missing):
            needed = sorted_union(self.support, rows)
            if cache.nbytes > self.max_cached_bytes and len(cache) > 2 * len(needed):
                known = np.intersect1d(needed, cache.rows, assume_unique=True)
                cache = self.row_cache = RowCache(cache.points(known))
            cache.add(kernel_centres(self.D, missing))
        return cache.points(rows)

    def gram(self, points: Points, *, centred: bool = True) -> np.ndarray:
        """Return K of every pair of some points, (m, m) float32; the caller must not change it.

        centred: whether values may be centred, which is valid for steps that do not change the sum
        of beta. Raises ParameterError if values may exceed float32.
        """
        if self.matrix is not None:
            return self.matrix.gram(points, centred)
        check_values(points, self.problem)
        return gram_of(self.D, self.kernel_layout, points, centred=centred)

    def shared_gram(self, points: Points) -> KernelValues:
        """Return kernel values of some points, see `gram`; `matrix` also has those of others."""
        shared = None if self.matrix is None else self.matrix.shared_gram(points)
        return shared or KernelValues(self.gram(points), np.arange(len(points)))

    def ask(self, question: Callable[[ShardValues], Answer], stage: str | None = None) -> Answer:
        """Return the sum of the answers of all shards. stage: name of the progress events."""
        done, total = 0, None
        for rows, answer in self.values.query(question):
            done += rows
            if stage is not None:
                emit(Progress(stage, done, self.D.n))
            total = answer if total is None else total + answer
        assert total is not None
        return total

    # --- change ----------------------------------------------------------------------------

    def set_coefficients(self, rows: np.ndarray, beta: np.ndarray) -> None:
        """Set beta of some rows and leave u as it is. rows : (m,) int64, ascending."""
        self.beta = self.beta.copy()
        self.beta[rows] = beta
        self.values.change(partial(ShardValues.set_coefficients, rows=rows, beta=beta))

    def advance(self, Z: CsrMatrix, difference: np.ndarray) -> None:
        """Compute u += sum_j difference_j K(z_j, .).

        Z : (m, d) CSR, the z_j; difference : (m,) float64.
        """
        self.added = self.added.after(difference)
        sums, layout = difference, self.kernel_layout
        if layout.dtype is np.float32 and layout.kernel.name == "rbf":
            # The bound of the errors of u follows from the second sum of every row. In float64 the
            # sum of |difference| is enough, as K is at most 1. Bounds of other kernels use no S.
            sums = np.column_stack([difference, np.abs(difference)])
        self.values.change(partial(ShardValues.add, expansion=Expansion(layout, Z, sums)))
        # Shards apply a change when they are next asked. This question makes them do it now. So its
        # time counts for this step, and an exception comes while `settled` is False.
        u = self.u_of(self.audit.rows, "scanning")
        self.audit_errors = np.zeros(len(u))
        if layout.dtype is np.float32:
            self.audit_u = self.audit_u + values_of(layout.in_float64, Z, difference, self.audit.X)
            self.audit_errors = u - self.audit_u

    @property
    def saved_solution(self) -> SavedSolution:
        """The current coefficients and their sums, for scans of the same rows."""
        float64, bounds = self.kernel_layout.dtype is np.float64, self.problem.bounds
        sums = np.concatenate(self.ask(partial(ShardValues.sums_of, rows=None)), axis=1)
        return SavedSolution(self.beta, sums, self.added, float64, bounds)

    def continue_from(
        self, beta: np.ndarray, sums: np.ndarray | None = None, added: Added | None = None
    ) -> None:
        """Continue from coefficients, (n,) float64.

        sums : (1, n) or (2, n) float64, see ShardValues, the first of which are decision values;
        None: they are computed from scratch. added: see RunningValues; None: the errors of the sums
        are unknown.
        """
        self.beta, self.settled, rows = beta, False, np.flatnonzero(beta)
        X, own = self.rows(rows).X, beta[rows]
        self.values.restart(partial(ShardValues.begin, rows=rows, beta=own, sums=sums))
        if sums is None:
            self.added, self.audit_u = NOTHING_ADDED, np.zeros(len(self.audit))
            self.advance(X, own)
        else:
            self.audit_u = values_of(self.kernel_layout.in_float64, X, own, self.audit.X)
            self.audit_errors = sums[0, self.audit.rows] - self.audit_u
            self.added = added or Added(1, len(rows), math.inf)
        self.settled = True

    def refine(self) -> None:
        """Compute u in float64, and continue in float64."""
        if self.kernel_layout.dtype is np.float32:
            self.kernel_layout = self.kernel_layout.of_all_in_float64
            self.values.change(ShardValues.release_rows)
            self.continue_from(self.beta)

    def repeat_in_float64(self) -> bool:
        """Compute u in float64, and continue in the precision of the layout; return False if u is a
        sum in float64 already.

        If float32 has added fewer centres since the last time than float64 adds now, stay in
        float64: changes in float64 would have cost less than two sums from scratch.
        """
        layout = self.kernel_layout
        if layout.dtype is np.float64 or not self.added.centres:
            return False
        if self.added.exact_centres and self.added.centres <= len(self.support):
            self.refine()
            return True
        try:
            self.kernel_layout = layout.of_all_in_float64
            self.continue_from(self.beta)
        finally:
            self.kernel_layout = layout
        passes, centres, total, *_ = self.added
        self.added = Added(passes, exact_centres=centres, exact_total=total)
        self.audit_u = self.u_of(self.audit.rows)
        return True

    def passes_audit(self, max_violation: float, certificate: Certificate) -> bool:
        """Return whether rounding of u may be ignored in a scan with this largest violation, P and
        D.

        It may be a share of the tolerance, or of the violation: rounding hides nothing of a
        violation that is a hundred times as large. So it is with P - D, if a gap ends the run.
        """
        tolerance = MAX_ERROR_OF_TOLERANCE * self.problem.tolerance
        error = float(np.abs(self.audit_errors).max(initial=0.0))
        if error > max(tolerance, MAX_ERROR_OF_VIOLATION * max_violation):
            return False
        P, D = certificate.primal, certificate.dual
        if not error or self.gap is None or not certificate.certified or math.isinf(D):
            return True
        distance = max(self.gap * max(abs(P), abs(D)), P - D)
        return self._rounding_of_distance() <= MAX_ERROR_OF_GAP * distance

    def _rounding_of_distance(self) -> float:
        """Return an estimate of how much rounding of u changes P - D, from the audit rows."""
        task, audit, found = self.task, self.audit, np.empty((3, len(self.audit)))
        box = *task.bounds, task.epsilon + task.tube, task.one_sided
        beta, nothing = self.beta[audit.rows], np.zeros(len(audit))
        for u, residuals in zip(
            (self.audit_u, self.audit_u + self.audit_errors), found, strict=False
        ):
            _kkt_scan.residuals(
                audit.y, u, beta, audit.weights, *box, self.b, nothing, residuals, found[2]
            )
        change = np.abs(found[1] - found[0]).sum() + abs(beta @ self.audit_errors) / 2
        return float(change) * self.D.n / max(len(audit), 1)

    def forget(self) -> None:
        """Free the memory of all shards and of the row cache; nothing can be asked any more."""
        self.values.close()
        self.row_cache, self.matrix = RowCache(self.audit), None


def audit_rows(D: Dataset) -> int:
    """Return the number of audit rows of a data set."""
    return min(max(AUDIT_NONZEROS * D.n // max(D.nnz, 1), MIN_AUDIT_ROWS), AUDIT_ROWS, D.n)


def _floor(D: Dataset, problem: Problem, kernel: Kernel) -> float:
    """Return the size below which an objective counts as 0; see `one_class_floor`."""
    if problem.task != "one-class" or kernel.name == "precomputed":
        return 0.0

    def diagonal(shard: Shard) -> float:
        norms = [squared_norms(chunk.X).tolist() for chunk in D.chunks(shard)]
        return math.fsum(kernel.magnitude(norm) for some in norms for norm in some)

    mean = 1.0 if kernel.name == "rbf" else math.fsum(D.map(diagonal)) / D.n
    return one_class_floor(problem.coefficient_sum, D.n, mean)
