"""The running values of D: u and beta of every row, advanced by the coefficients that change.

`ShardValues` holds the values of one shard, `RunningValues` those of all shards. Knows nothing of
violators, solvers or files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from randsvm.arrays import squared_norms
from randsvm.data.dataset import Dataset
from randsvm.data.points import Points, RowCache
from randsvm.data.precomputed import kernel_centres
from randsvm.data.sampling import Draw
from randsvm.data.shard_executor import Shard
from randsvm.errors import ParameterError
from randsvm.events import Progress, emit
from randsvm.kernels.expansion import Expansion, KernelLayout, RowBlock, row_block_bytes
from randsvm.parameters.problem import Problem
from randsvm.svm.kernel_layout import gram_of, kernel_layout_of
from randsvm.svm.libsvm import check_values
from randsvm.svm.offset import Window
from randsvm.svm.tasks import Task, task_of

Report = TypeVar("Report", bound=Any)

# Rows whose running decision value is kept in float64 as well, and compared after every scan.
AUDIT_ROWS = 512
# What rounding may move P and D by, relatively, before they are computed in float64.
SHOWS = 1e-6
# Up to so many kernel values are computed in float64 in any case.
SMALL = 50_000_000
# Rounding may move u by a share of the tolerance, or of the steepest violation while that is
# large: so many tolerances at the most.
OF_TOLERANCE, OF_STEEPEST, MOST_TOLERANCES = 1 / 4, 1 / 100, 2
# So few rows have float64 sums from the start, and no audit: their kernel values cost no more.
FEW_ROWS = 3000
# See RunningValues._least.
NOTHING = 0.01
# Draw number of the audit rows: a number that no scan ever reaches.
AUDIT_DRAW = 2**63


# --- one shard ------------------------------------------------------------------------------


class Room:
    """Bytes for rows that stay laid out, shared by the shards of a process."""

    def __init__(self, size: int) -> None:
        self.left, self.lock = size, Lock()

    def take(self, size: int) -> bool:
        """Whether there was room for so much."""
        with self.lock:
            fits = size <= self.left
            self.left -= size if fits else 0
            return fits

    def __reduce__(self) -> tuple[type[Room], tuple[int]]:
        return Room, (self.left,)


@dataclass
class Layout:
    """Rows as they were laid out in a space."""

    kernel_layout: KernelLayout
    pieces: list[RowBlock]
    size: int


class ShardValues:
    """u and beta of every row of a shard, (m,) float64 each. room: for rows that stay laid out from
    one pass to the next; which do changes the time and no result."""

    def __init__(self, D: Dataset, room: Room, shard: Shard) -> None:
        self.D, self.room, self.shard = D, room, shard
        self.u, self.beta = np.zeros(len(self)), np.zeros(len(self))
        self._layout: Layout | None = None
        self._order: np.ndarray | None = None

    def __len__(self) -> int:
        return self.shard.stop - self.shard.start

    @property
    def y(self) -> np.ndarray:
        return self.D.labels_of(self.shard)

    def near(self, far: Far) -> np.ndarray:
        """Rows that are support vectors or not `far` beyond the margin: (m,) bool."""
        y, u = self.y, self.u
        rise, fall = far.task.slopes(y, u, np.zeros(len(y)))
        return (np.maximum(rise - far.b, far.b - fall) >= -far.distance) | (self.beta != 0)

    def add(self, expansion: Expansion, *, keep: bool) -> None:
        """u += the expansion. keep: over rows that stay laid out if there is room."""
        u, D = self.u, self.D
        if expansion.kernel_layout.kernel.linear or D.mapping is not None:
            for chunk in D.chunks(self.shard):
                at = chunk.start - self.shard.start
                u[at : at + len(chunk.y)] += expansion.values(chunk.X)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            if not keep:
                expansion.add(u, expansion.kernel_layout.row_blocks(D.chunk_matrix(self.shard)))
            elif (pieces := self._kept(expansion.kernel_layout)) is not None:
                expansion.add(u, pieces)
            else:
                self._lay_out(expansion)

    def _kept(self, kernel_layout: KernelLayout) -> list[RowBlock] | None:
        """The rows as they were laid out in this space; those of another one are let go."""
        layout = self._layout
        if layout is not None and layout.kernel_layout.dtype is not kernel_layout.dtype:
            self.room.take(-layout.size)
            layout = self._layout = None
        return None if layout is None else layout.pieces

    def _lay_out(self, expansion: Expansion) -> None:
        """u += the expansion, over rows laid out anew."""
        kernel_layout, X = expansion.kernel_layout, self.D.chunk_matrix(self.shard)
        if self._order is None and kernel_layout.uses_cells(X.shape[1]):
            self._order = kernel_layout.cell_order(X)
        made = kernel_layout.row_blocks(
            X, cells=self._order if kernel_layout.uses_cells(X.shape[1]) else None
        )
        if self.room.left <= 0:
            expansion.add(self.u, made)
            return
        pieces = list(made)
        expansion.add(self.u, pieces)
        size = sum(row_block_bytes(piece) for piece in pieces)
        if self.room.take(size):
            self._layout = Layout(kernel_layout, pieces, size)


# --- changes -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Put:
    """beta of some rows of D. rows : (m,) int64, ascending; beta : (m,) float64. alone: it is 0 of
    all others."""

    rows: np.ndarray
    beta: np.ndarray
    alone: bool = False

    def __call__(self, values: ShardValues) -> None:
        within = values.shard.within(self.rows)
        if self.alone:
            values.beta.fill(0.0)
        values.beta[self.rows[within] - values.shard.start] = self.beta[within]


@dataclass(frozen=True)
class Far:
    """Rows that are so far beyond the margin of a task, with the offset b."""

    task: Task
    b: float
    distance: float


class Pass:
    """u += sum_j difference_j K(z_j, .). fresh: u = ... instead, but for rows that are `far`. keep:
    rows may stay laid out in this space."""

    def __init__(
        self,
        kernel_layout: KernelLayout,
        Z: sparse.csr_matrix,
        difference: np.ndarray,
        *,
        fresh: bool,
        far: Far | None = None,
        keep: bool = True,
    ) -> None:
        self.kernel_layout, self.Z, self.difference = kernel_layout, Z, difference
        self.fresh, self.far, self.keep = fresh, far, keep
        self.expansion = Expansion(kernel_layout, Z, difference)

    def __reduce__(self) -> tuple[object, ...]:
        return _pass, (self.kernel_layout, self.Z, self.difference, self.fresh, self.far, self.keep)

    def __call__(self, values: ShardValues) -> None:
        """Raises ParameterError where a value leaves float64."""
        u = values.u
        if self.far is None:
            if self.fresh:
                u.fill(0.0)
            values.add(self.expansion, keep=self.keep)
        else:
            near = values.near(self.far)
            X = values.D.chunk_matrix(values.shard)
            u[near] = self.expansion.values(X[near])
        if not np.isfinite(u).all():
            raise ParameterError(
                f"values of the {self.kernel_layout.kernel.name} kernel leave float64: "
                f"scale the features"
            )


def _pass(
    kernel_layout: KernelLayout,
    Z: sparse.csr_matrix,
    difference: np.ndarray,
    fresh: bool,
    far: Far | None,
    keep: bool,
) -> Pass:
    return Pass(kernel_layout, Z, difference, fresh=fresh, far=far, keep=keep)


@dataclass(frozen=True)
class Values:
    """u of the rows asked for, ascending; None: of all. Reports arrays, (m,) float64."""

    rows: np.ndarray | None = None

    def __call__(self, values: ShardValues) -> list[np.ndarray]:
        if self.rows is None:
            return [values.u.copy()]
        shard = values.shard
        return [values.u[self.rows[shard.within(self.rows)] - shard.start]]


# --- all shards ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coefficients:
    """beta of the rows where it is not 0. rows : (m,) int64, ascending; beta : (m,) float64."""

    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    beta: np.ndarray = field(default_factory=lambda: np.empty(0))

    def of(self, rows: np.ndarray) -> np.ndarray:
        """beta of any rows, (k,) float64."""
        if not len(self.rows):
            return np.zeros(len(rows))
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[at] == rows, self.beta[at], 0.0)

    def after(self, rows: np.ndarray, beta: np.ndarray) -> Coefficients:
        """The same with others for these rows, ascending; beta may be 0."""
        others = ~np.isin(self.rows, rows, assume_unique=True)
        every = np.concatenate([self.rows[others], rows[beta != 0]])
        values = np.concatenate([self.beta[others], beta[beta != 0]])
        order = np.argsort(every, kind="stable")
        return Coefficients(every[order], values[order])


class RunningValues:
    """u and beta of every row of D under the coefficients so far, and how u is computed.

    values: u and beta of each shard, where it lives; coefficients: beta of the support vectors,
    here. space: how rows are laid out for kernel values, and their precision; gram_layout: the same
    for those that LIBSVM is given, which it keeps as float32. audit: random rows, exact: u of them,
    (m,) float64, from float64 kernel values, off: what the running ones are off by; few: they are
    all rows, sums are in float64, and nothing is off; fetched: those of them last asked for.
    b: the offset of the last look; slack: what sum |beta| of nu-SVR is short of `Task.size`.
    least: see Certificate.
    layout_bytes: memory for rows that stay laid out from one pass to the next; which rows fit
    changes the time and no result. precise: float64 from the start.
    """

    def __init__(
        self,
        D: Dataset,
        problem: Problem,
        seed: int,
        layout_bytes: int = 0,
        precise: bool = False,
    ) -> None:
        self.D, self.problem, self.layout_bytes = D, problem, layout_bytes
        self.task = task_of(problem)
        self.row_cache = RowCache(D.d)
        self.few = D.n <= FEW_ROWS
        if self.few:
            self.audit = kernel_centres(D, np.arange(D.n))
        else:
            self.audit = kernel_centres(D, D.sample(Draw(seed, AUDIT_DRAW), AUDIT_ROWS))
        self.fetched = self.audit
        self.gram_layout = kernel_layout_of(D, problem, self.audit, precise=precise, few=self.few)
        self.kernel_layout = (
            replace(self.gram_layout, dtype=np.float64) if self.few else self.gram_layout
        )
        self.exact, self.off = np.zeros(len(self.audit)), np.zeros(len(self.audit))
        self.values = D.states(partial(ShardValues, D, Room(layout_bytes)))
        self.coefficients = Coefficients()
        self.b, self.slack = 0.0, 0.0
        self.least = self._least()
        # Where the next look expects the offset of each group of the task.
        self.windows = [Window.around(0.0, np.inf) for _ in self.task.groups]
        # By how much the steepest rise exceeded the steepest fall when D was last looked at: of
        # u = 0, the spread of the targets.
        self.steepest = float(np.ptp(self.audit.y))
        # Coefficients brought in since u was last computed from scratch.
        self.brought = 0
        # Whether any pass was in float32.
        self.coarse = self.kernel_layout.dtype is np.float32

    def _least(self) -> float:
        """Size below which an objective counts as 0: for novelty detection, whose optimum is 0
        where the origin lies among the rows, a share of the optimum of orthogonal rows,
        1/2 nu^2 n K(x, x). A gap relative to 0 can never be reached."""
        kernel = self.gram_layout.kernel
        if self.problem.task != "one-class" or kernel.name == "precomputed":
            return 0.0
        norms = squared_norms(self.audit.X)
        diagonal = [kernel.magnitude(norm) for norm in norms.tolist()]
        mean = 1.0 if kernel.name == "rbf" else float(np.mean(diagonal))
        return NOTHING * self.problem.total**2 / self.D.n * mean / 2

    # --- what is known of rows -------------------------------------------------------------

    @property
    def u(self) -> np.ndarray:
        """Of every row, (n,) float64: for the few who cannot do with less."""
        return np.concatenate(self.ask(Values()))

    @property
    def beta(self) -> np.ndarray:
        """Of every row, (n,) float64."""
        beta = np.zeros(self.D.n)
        beta[self.coefficients.rows] = self.coefficients.beta
        return beta

    def points(self, rows: np.ndarray) -> Points:
        """Rows of D, ascending, with their running u and beta."""
        u = np.concatenate(self.ask(Values(rows))) if len(rows) else np.empty(0)
        return replace(self.rows(rows), u=u, beta=self.coefficients.of(rows))

    def rows(self, rows: np.ndarray) -> Points:
        """The same without u and beta."""
        if self.few:
            if not np.array_equal(rows, self.fetched.rows):
                self.fetched = self.audit[rows]
            return self.fetched
        missing = self.row_cache.missing(rows)
        if len(missing) > self.row_cache.count and len(missing) > len(rows) // 2:
            # Nearly all are new, as where a nu task begins with a share of all rows: they are
            # shared with what is kept, not copied from it.
            found, self.row_cache = kernel_centres(self.D, rows), RowCache(self.D.d)
            self.row_cache.add(found)
            return found
        if len(missing):
            self._make_room(rows)
            self.row_cache.add(kernel_centres(self.D, missing))
        return self.row_cache.points(rows)

    def _make_room(self, rows: np.ndarray) -> None:
        """Forget what is neither a support vector nor one of these rows, where that is most of what
        is kept and more than there is memory for."""
        if self.row_cache.nbytes <= self.layout_bytes // 2:
            return
        needed = np.union1d(self.coefficients.rows, rows)
        if self.row_cache.count > 2 * len(needed):
            self.row_cache = self.row_cache.subset(needed)

    def gram(self, points: Points, *, centred: bool = True) -> np.ndarray:
        """K of every pair of some points, (m, m) float32, for steps that leave the sum of their
        coefficients as it is; not centred: for any. Raises ParameterError where the values may be
        beyond float32."""
        check_values(points, self.problem)
        return gram_of(self.D, self.gram_layout, points, centred=centred)

    def ask(self, question: Callable[[ShardValues], Report], stage: str | None = None) -> Report:
        """The reports of all shards, added up; stage: what is told to be done to their rows."""
        done, total = 0, None
        for rows, report in self.values.query(question):
            done += rows
            if stage is not None:
                emit(Progress(stage, done, self.D.n))
            total = report if total is None else total + report
        assert total is not None
        return total

    # --- how they change -------------------------------------------------------------------

    def put(self, rows: np.ndarray, beta: np.ndarray) -> None:
        """beta of rows, ascending; u does not know of it."""
        self.coefficients = self.coefficients.after(rows, beta)
        self.values.change(Put(rows, beta))

    def advance(self, Z: sparse.csr_matrix, difference: np.ndarray, *, fresh: bool = False) -> None:
        """u += sum_j difference_j K(z_j, .); fresh: u = ... instead."""
        self.brought = 0 if fresh else self.brought + len(difference)
        self.values.change(Pass(self.kernel_layout, Z, difference, fresh=fresh))
        u = self._scanned()
        if self.kernel_layout.dtype is np.float32 and not self._precise(Z, difference, fresh, u):
            # Rounding has shown: from here on everything is computed in float64.
            self.refine()

    def afresh(self, X: sparse.csr_matrix | None = None) -> None:
        """Compute u from scratch, of the coefficients as they are. X: of their rows; None: it is
        fetched."""
        rows, beta = self.coefficients.rows, self.coefficients.beta
        self.values.restart(Put(rows, beta, alone=True))
        self.advance(self.rows(rows).X if X is None else X, beta, fresh=True)

    def refine(self) -> bool:
        """Go on in float64; False where that is so already."""
        if self.kernel_layout.dtype is np.float64:
            return False
        self.kernel_layout = self.gram_layout = replace(self.kernel_layout, dtype=np.float64)
        self.afresh()
        return True

    def start_from(
        self, points: Points, beta: np.ndarray, far: Far | None, *, known: bool = False
    ) -> None:
        """u and beta from scratch, of rows alone that have these coefficients, but u of rows that
        are `far`; in float64 where the rounding of float32 would show. known: u is there already,
        in this precision."""
        if not self.values.settled:
            far, known = None, False
        self.coefficients = Coefficients(points.rows, beta)
        put, X = Put(points.rows, beta, alone=True), points.X

        def run(kernel_layout: KernelLayout, *, keep: bool) -> np.ndarray:
            change = self.values.restart if far is None else self.values.change
            change(put, Pass(kernel_layout, X, beta, fresh=True, far=far, keep=keep))
            return self._scanned()

        u = self._scanned() if known else run(self.kernel_layout, keep=True)
        if self.kernel_layout.dtype is np.float32:
            exact = replace(self.kernel_layout, dtype=np.float64)
            self.exact = Expansion(exact, X, beta).values(self.audit.X)
            if len(beta) * self.D.n <= SMALL or self.rounding_shows(u):
                u = run(exact, keep=False)
            self.off = u - self.exact

    def _scanned(self) -> np.ndarray:
        """u of the audit rows after all changes; tells how far they are."""
        return np.concatenate(self.ask(Values(self.audit.rows), "scanning"))

    def _precise(
        self, Z: sparse.csr_matrix, difference: np.ndarray, fresh: bool, u: np.ndarray
    ) -> bool:
        """Whether the running values u of the audit rows agree with float64 ones: to a share of the
        tolerance, or of the steepest violation, as rounding hides nothing of a violation that is a
        hundred times as large."""
        exact = replace(self.kernel_layout, dtype=np.float64)
        values = Expansion(exact, Z, difference).values(self.audit.X)
        self.exact = values if fresh else self.exact + values
        self.off = u - self.exact
        tolerance = self.problem.tolerance
        allowed = min(OF_STEEPEST * self.steepest, MOST_TOLERANCES * tolerance)
        return bool(np.abs(self.off).max() <= max(OF_TOLERANCE * tolerance, allowed))

    def dual_error(self) -> float:
        """What rounding of float32 may have lifted D by, judged by the audit rows: D has half of
        sum beta u."""
        if self.kernel_layout.dtype is np.float64:
            return 0.0
        off = self.coefficients.of(self.audit.rows) * self.off
        # Of few rows among many chance makes as much as they add up to.
        chance = float(np.sqrt(np.square(off).sum())) if len(off) < self.D.n else 0.0
        return (abs(float(off.sum())) + chance) / 2 * self.D.n / len(off)

    def rounding_shows(self, u: np.ndarray) -> bool:
        """Whether float32 moves P or D by more than SHOWS of it, judged by what the audit rows, of
        which u are the running values, add to them with exact decision values, beyond what chance
        makes of so few rows."""
        audit, beta = self.audit, self.coefficients.of(self.audit.rows)
        exact = self.task.loss(audit.y, self.exact + self.b)
        off = self.task.loss(audit.y, u + self.b) - exact + beta * (u - self.exact) / 2
        chance = float(np.sqrt(np.square(off).sum()))
        return abs(float(off.sum())) - chance > SHOWS * float(exact.sum() + abs(beta @ u))

    def forget(self) -> None:
        """Give back the memory; nothing can be asked any more."""
        self.values.close()
        self.row_cache = RowCache(0)
