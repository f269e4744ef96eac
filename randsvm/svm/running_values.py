"""The running values u and beta of every row of the data set D, advanced by changed coefficients.

`ShardValues` holds the values of one shard, `RunningValues` those of all shards. Finds no violators
and solves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np

from randsvm.arrays import CsrMatrix, sorted_union, squared_norms
from randsvm.data.dataset import Dataset
from randsvm.data.points import Points, RowCache
from randsvm.data.sampling import AUDIT_DRAW, Draw
from randsvm.data.shard_executor import Shard
from randsvm.events import Progress, emit
from randsvm.kernels.expansion import Expansion, check_finite, values_of
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import Layout, RowBlock, row_block_bytes
from randsvm.parameters.svm import Problem
from randsvm.svm.kernel_layout import gram_of, kernel_centres, kernel_layout_of
from randsvm.svm.libsvm import check_values
from randsvm.svm.offset import Window
from randsvm.svm.solution import ReducedMachine, one_class_floor
from randsvm.svm.subproblem_qp import KernelValues
from randsvm.svm.tasks import Task, task_of

Answer = TypeVar("Answer", bound=Any)

# Rows whose running decision value is computed in float64 as well, and compared after every scan:
# AUDIT_ROWS, but fewer if they have more nonzeros than AUDIT_NONZEROS, down to MIN_AUDIT_ROWS.
# Measured with 4,000 rows of 392 nonzeros: 512 rows take a sixth of the processor time of a run.
AUDIT_ROWS, AUDIT_NONZEROS, MIN_AUDIT_ROWS = 512, 1 << 16, 128
# Rounding may change u by MAX_ERROR_OF_TOLERANCE times the tolerance. It may change u by more, up
# to MAX_ERROR_OF_VIOLATION times the largest violation, but not by more than MAX_TOLERANCES
# times the tolerance.
MAX_ERROR_OF_TOLERANCE, MAX_ERROR_OF_VIOLATION, MAX_TOLERANCES = 1 / 4, 1 / 100, 2


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

    absolute : (m,) float64, the sum of |difference_j K(z_j, .)| over everything that was added to
    u, for float32 sums of rbf; None: it was not needed.
    budget: for rows that stay laid out from one pass to the next; it changes the time and no
    result.
    """

    def __init__(self, D: Dataset, budget: MemoryBudget, shard: Shard) -> None:
        self.D, self.budget, self.shard = D, budget, shard
        self.u, self.beta = np.zeros(len(self)), np.zeros(len(self))
        self.absolute: np.ndarray | None = None
        # The rows in a layout, and their size in bytes.
        self._kept: tuple[Layout, list[RowBlock], int] | None = None
        # Number of a basis or 0, its kernel values with the rows, and the bytes reserved for them;
        # see algorithms/reduced_set.py.
        self.basis_values: tuple[int, list[np.ndarray], int] = 0, [], 0

    def __len__(self) -> int:
        return self.shard.stop - self.shard.start

    @property
    def rows(self) -> CsrMatrix:
        """Return the rows without labels, (m, d)."""
        return self.D.chunk_matrix(self.shard)

    @property
    def y(self) -> np.ndarray:
        return self.D.labels_of(self.shard)

    @property
    def weights(self) -> np.ndarray | None:
        """Return the weights of the rows, or None if the weights of D are all 1."""
        return self.D.weights_of(self.shard)

    # Methods that changes and queries call by functools.partial: other processes can run them.

    def set_coefficients(self, rows: np.ndarray, beta: np.ndarray) -> None:
        """Set beta of some rows of D, and leave u as it is.

        rows : (m,) int64, ascending; beta : (m,) float64
        """
        within = self.shard.within(rows)
        self.beta[rows[within] - self.shard.start] = beta[within]

    def begin(
        self,
        rows: np.ndarray,
        beta: np.ndarray,
        u: np.ndarray | None = None,
        absolute: np.ndarray | None = None,
    ) -> None:
        """Set beta of some rows of D, and 0 for all others, and the sums that were added up.

        u, absolute : (n,) float64; u None: nothing was added.
        """
        own = slice(self.shard.start, self.shard.stop)
        self.beta.fill(0.0)
        self.set_coefficients(rows, beta)
        self.u[:] = 0.0 if u is None else u[own]
        self.absolute = None if absolute is None else absolute[own].copy()

    def u_of(self, rows: np.ndarray | None) -> list[np.ndarray]:
        """Return u of some rows, ascending; None: of all."""
        if rows is None:
            return [self.u.copy()]
        return [self.u[rows[self.shard.within(rows)] - self.shard.start]]

    def absolute_part(self) -> list[np.ndarray | None]:
        """Return `absolute`."""
        return [None if self.absolute is None else self.absolute.copy()]

    def near_margin(self, task: Task, b: float, distance: float) -> list[np.ndarray]:
        """Return the support vectors and the rows at most `distance` beyond the margin, (m,) int64.

        task, b: the task and its offset.
        """
        y = self.y
        rise, fall = task.slopes(y, self.u, np.zeros(len(y)))
        kept = (np.maximum(rise - b, b - fall) >= -distance) | (self.beta != 0)
        return [np.flatnonzero(kept) + self.shard.start]

    def add(self, expansion: Expansion) -> None:
        """Add the expansion to u, and a second sum to `absolute` if it has one.

        Raises ParameterError if a value exceeds float64.
        """
        if not expansion.sum_shape:
            self._add(expansion, self.u)
        else:
            sums = np.zeros((len(self), 2))
            self._add(expansion, sums)
            self.u += sums[:, 0]
            self.absolute = sums[:, 1] + (0.0 if self.absolute is None else self.absolute)
        check_finite(self.u, expansion.layout.kernel)

    def _add(self, expansion: Expansion, u: np.ndarray) -> None:
        D = self.D
        if expansion.layout.kernel.linear or D.mapping is not None:
            for chunk in D.chunks(self.shard):
                at = chunk.start - self.shard.start
                u[at : at + len(chunk.y)] += expansion.values(chunk.X)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            if self._kept is not None and self._kept[0].dtype is not expansion.layout.dtype:
                self.budget.release(self._kept[2])
                self._kept = None
            expansion.add(u, self._rows(expansion.layout) if self._kept is None else self._kept[1])

    def _rows(self, layout: Layout) -> Iterable[RowBlock]:
        """Return the rows in a layout; keep them if the budget allows."""
        made = layout.rows(self.rows)
        if self.budget.left <= 0:
            return made
        blocks = list(made)
        size = sum(row_block_bytes(block) for block in blocks)
        if self.budget.reserve(size):
            self._kept = layout, blocks, size
        return blocks


# --- all shards ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coefficients:
    """beta of the support vectors. rows : (m,) int64, ascending; beta : (m,) float64."""

    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    beta: np.ndarray = field(default_factory=lambda: np.empty(0))

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Return beta of any rows, (k,) float64."""
        if not len(self.rows):
            return np.zeros(len(rows))
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[at] == rows, self.beta[at], 0.0)

    def after(self, rows: np.ndarray, beta: np.ndarray) -> Coefficients:
        """Return the coefficients with new ones for these rows, ascending; beta may be 0."""
        if not len(self.rows):
            return Coefficients(rows[beta != 0], beta[beta != 0])
        others = ~np.isin(self.rows, rows, assume_unique=True)
        every = np.concatenate([self.rows[others], rows[beta != 0]])
        values = np.concatenate([self.beta[others], beta[beta != 0]])
        order = np.argsort(every, kind="stable")
        return Coefficients(every[order], values[order])


class Added(NamedTuple):
    """What u was summed from: the numbers of passes and of centres, and sum |difference_j|."""

    passes: int = 0
    centres: int = 0
    total: float = 0.0

    def after(self, difference: np.ndarray) -> Added:
        """Return this after one more pass."""
        total = self.total + float(np.abs(difference).sum())
        return Added(self.passes + 1, self.centres + len(difference), total)


NOTHING_ADDED = Added()


@dataclass(frozen=True)
class SavedSolution:
    """A solution that scans of the same rows continue from.

    u, absolute : (n,) float64, see ShardValues. added: see RunningValues. float64: whether u comes
    from float64 sums. bounds: of |beta|, see Problem.
    """

    coefficients: Coefficients
    u: np.ndarray
    absolute: np.ndarray | None
    added: Added
    float64: bool
    bounds: tuple[float, float]

    def best_factor(self, problem: Problem, y: np.ndarray) -> float:
        """Return the multiple of these coefficients that has the largest D of those within the
        bounds of a problem, whose C may be another one. y : (n,) labels.

        D(s beta) = s linear - s^2 / 2 |w|^2. Where most coefficients are bounded, the best multiple
        is in proportion to C. Where most are unbounded, it is little above 1.
        """
        most, rows = problem.bounds[0] / self.bounds[0], self.coefficients.rows
        if most == 1.0 or not len(rows):
            return most
        linear = task_of(problem).linear(y[rows], self.coefficients.beta)
        norm = float(self.coefficients.beta @ self.u[rows])
        return min(most, linear / norm) if linear > 0 and norm > 0 else most

    def times(self, factor: float) -> SavedSolution:
        """Return the multiple of this solution, which rounds beta and u once more."""
        coefficients, added = self.coefficients, self.added
        return replace(
            self,
            coefficients=Coefficients(coefficients.rows, factor * coefficients.beta),
            u=factor * self.u,
            absolute=None if self.absolute is None else factor * self.absolute,
            added=Added(added.passes + 2, added.centres, factor * added.total),
        )


class RunningValues:
    """u and beta of every row of D, for the coefficients so far.

    values: u and beta of each shard, in the process that holds the shard
    audit: random rows whose u is compared with float64 sums
    floor: see Certificate
    weights : (n,) float64, None: all are 1
    total_weight: the sum of the weights
    layout_bytes: memory for rows that stay laid out from one pass to the next; it changes the time
        and no result
    float64: whether to use float64 from the start

    These change from round to round:

    coefficients: of the support vectors
    task: with the tube last found
    b: the offset last found
    settled: u is that of the coefficients; False while these change, and if that was broken off
    slack: `Task.absolute_sum` less sum |beta| of nu-SVR
    windows: where the next scan expects the offset of each group of the task
    kernel_layout: how rows are laid out for sums and kernel values, and the precision of the sums
    exact : (m,) float64, u of the audit rows from float64 sums
    audit_error: the largest difference of u of the audit rows from `exact`; 0 after float64 sums
    added: what was added to u since it was last computed from scratch
    reduced: the reduced machine that the coefficients are of; None: they are of the problem
    row_cache: rows that were read by number
    """

    settled, audit_error = True, 0.0

    def __init__(
        self,
        D: Dataset,
        problem: Problem,
        seed: int,
        layout_bytes: int = 0,
        float64: bool = False,
    ) -> None:
        self.D, self.problem, self.seed = D, problem, seed
        self.weights = D.weights()
        self.total_weight = float(D.n if self.weights is None else self.weights.sum())
        # Rows of weight 0 are held out: their coefficients stay 0, but they have a u.
        held_out = 0 if self.weights is None else int(np.count_nonzero(self.weights == 0))
        self.training_rows = D.n - held_out
        self.floor = _floor(D, problem, Kernel.of(problem))
        self.task, self.b, self.slack = task_of(problem), 0.0, 0.0
        self.windows = tuple(Window() for _ in self.task.groups)
        self.coefficients, self.added = Coefficients(), NOTHING_ADDED
        self.reduced: ReducedMachine | None = None
        self._begin(layout_bytes, float64)

    def _begin(self, layout_bytes: int, float64: bool) -> None:
        """Choose the layouts, and make the values of all shards; see `__init__`."""
        D, problem = self.D, self.problem
        self.audit = kernel_centres(D, D.sample(Draw(self.seed, AUDIT_DRAW), audit_rows(D)))
        # The size above which the cache drops rows.
        self.row_cache, self.max_cached_bytes = RowCache(self.audit), layout_bytes // 2
        self.values = D.states(partial(ShardValues, D, MemoryBudget(layout_bytes)))
        self.kernel_layout = kernel_layout_of(D, problem, self.audit, float64)
        self.exact = np.zeros(len(self.audit))

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
        return np.concatenate(self.ask(partial(ShardValues.u_of, rows=rows), stage))

    @property
    def beta(self) -> np.ndarray:
        """Return beta of every row, (n,) float64."""
        beta = np.zeros(self.D.n)
        beta[self.coefficients.rows] = self.coefficients.beta
        return beta

    def points(self, rows: np.ndarray) -> Points:
        """Return rows of D with their running u and beta. rows : (m,) int64, ascending."""
        u = self.u_of(rows) if len(rows) else np.empty(0)
        return replace(self.rows(rows), u=u, beta=self.coefficients.of(rows))

    def rows(self, rows: np.ndarray) -> Points:
        """Return rows of D without u and beta. rows : (m,) int64, ascending.

        They are cached. If the cache is too large, it keeps these and the support vectors.
        """
        cache, missing = self.row_cache, self.row_cache.missing(rows)
        if len(missing) > len(cache.held) and len(missing) > len(rows) // 2:
            # Nearly all are new, as at the start of a nu task: the cache shares their memory.
            found = kernel_centres(self.D, rows)
            self.row_cache = RowCache(found)
            return found
        if len(missing):
            needed = sorted_union(self.coefficients.rows, rows)
            if cache.nbytes > self.max_cached_bytes and len(cache.held) > 2 * len(needed):
                known = np.intersect1d(needed, cache.held.rows, assume_unique=True)
                cache = RowCache(cache.points(known))
            cache = self.row_cache = cache.with_rows(kernel_centres(self.D, missing))
        return cache.points(rows)

    def gram(self, points: Points, *, centred: bool = True) -> np.ndarray:
        """Return K of every pair of some points, (m, m) float32; the caller must not change it.

        centred: whether values may be centred, which is valid for steps that do not change the sum
        of beta. Raises ParameterError if values may exceed float32.
        """
        check_values(points, self.problem)
        return gram_of(self.D, self.kernel_layout, points, centred=centred)

    def shared_gram(self, points: Points) -> KernelValues:
        """Return kernel values of some points, see `gram`; the matrix may have those of others."""
        return KernelValues(self.gram(points), np.arange(len(points)))

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
        self.coefficients = self.coefficients.after(rows, beta)
        self.values.change(partial(ShardValues.set_coefficients, rows=rows, beta=beta))

    def advance(self, Z: CsrMatrix, difference: np.ndarray) -> None:
        """Compute u += sum_j difference_j K(z_j, .).

        Z : (m, d) CSR, the z_j; difference : (m,) float64.
        """
        self.added = self.added.after(difference)
        sums, layout = difference, self.kernel_layout
        if layout.dtype is np.float32 and layout.kernel.name == "rbf":
            # The bound of the errors of u follows from the second sum of every row. In float64, and
            # for kernels whose values have no bound of their own, a bound for all rows does.
            sums = np.column_stack([difference, np.abs(difference)])
        self.values.change(partial(ShardValues.add, expansion=Expansion(layout, Z, sums)))
        # Shards apply a change when they are next asked. This question makes them do it now. So its
        # time counts for this step, and an exception comes while `settled` is False.
        u = self.u_of(self.audit.rows, "scanning")
        self.audit_error = 0.0
        if layout.dtype is np.float32:
            self.exact += values_of(layout.in_float64, Z, difference, self.audit.X)
            self.audit_error = float(np.abs(u - self.exact).max())

    @property
    def saved_solution(self) -> SavedSolution:
        """The current coefficients and their u, for scans of the same rows."""
        parts = [part for part in self.ask(ShardValues.absolute_part) if part is not None]
        absolute = np.concatenate(parts) if parts else None
        float64, bounds = self.kernel_layout.dtype is np.float64, self.problem.bounds
        return SavedSolution(self.coefficients, self.u, absolute, self.added, float64, bounds)

    def continue_from(
        self,
        coefficients: Coefficients,
        u: np.ndarray | None = None,
        absolute: np.ndarray | None = None,
        added: Added | None = None,
    ) -> None:
        """Continue from coefficients.

        u : (n,) float64, their decision values; None: they are computed from scratch. absolute,
        added: see ShardValues and RunningValues; without `added` the errors of u are unknown.
        """
        rows, beta = coefficients.rows, coefficients.beta
        self.coefficients, self.settled = coefficients, False
        X, begin = self.rows(rows).X, partial(ShardValues.begin, rows=rows, beta=beta)
        if u is None:
            self.values.restart(begin)
            self.added, self.exact = NOTHING_ADDED, np.zeros(len(self.audit))
            self.advance(X, beta)
        else:
            self.values.restart(partial(begin, u=u, absolute=absolute))
            self.exact = values_of(self.kernel_layout.in_float64, X, beta, self.audit.X)
            self.audit_error = float(np.abs(u[self.audit.rows] - self.exact).max())
            self.added = added or Added(1, len(rows), math.inf)
        self.settled = True

    def refine(self) -> bool:
        """Continue in float64; return False if all sums are float64 already."""
        if self.kernel_layout.dtype is np.float64:
            return False
        self.kernel_layout = self.kernel_layout.in_float64
        self.continue_from(self.coefficients)
        return True

    def passes_audit(self, max_violation: float) -> bool:
        """Return whether rounding of u may be ignored with this largest violation.

        It may be a share of the tolerance, or of the violation: rounding hides nothing of a
        violation that is a hundred times as large.
        """
        tolerance = self.problem.tolerance
        allowed = min(MAX_ERROR_OF_VIOLATION * max_violation, MAX_TOLERANCES * tolerance)
        return self.audit_error <= max(MAX_ERROR_OF_TOLERANCE * tolerance, allowed)

    def forget(self) -> None:
        """Free the memory of all shards and of the row cache; nothing can be asked any more."""
        self.values.close()
        self.row_cache = RowCache(self.audit)


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
