"""Scan D: advance the running decision values and find the rows that violate the KKT conditions.

One pass gives the violators, the primal objective P and the dual objective D. Knows nothing of
files, solvers or the command line.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from scipy import sparse

import randsvm.svm._survey as _survey
from randsvm.arrays import slices
from randsvm.data.dataset import Dataset, Shard
from randsvm.data.points import Gathered, Points
from randsvm.data.sampling import Draw, Draws, Smallest
from randsvm.errors import ParameterError
from randsvm.events import Progress, tell
from randsvm.kernels.expansion import (
    BLOCK_ROWS,
    Expansion,
    Piece,
    Space,
    piece_bytes,
    prefers_dense,
    profits_from_cells,
)
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.problem import Problem
from randsvm.svm.collectors import Candidates, Collector, Seen, Steepest, collected
from randsvm.svm.offset import Bends, Window
from randsvm.svm.solution import SV, Certificate, Step
from randsvm.svm.tasks import task_of
from randsvm.svm.working_set import Choice, WorkingSet

Report = TypeVar("Report", bound=Any)

# Rows whose running decision value is kept in float64 as well, and compared after every scan.
AUDIT_ROWS = 512
# float32 arguments of this size carry a rounding error that no audit needs to find.
FLOAT32_UNIT = 2.0**-24
FLOAT32_LIMIT = 1e-5
# A closing evaluation leaves alone what is this many tolerances beyond the margin.
FAR = 50
# What rounding may move P and D by, relatively, before they are computed in float64.
SHOWS = 1e-6
# A side with fewer violators than this share of the other's is filled up.
FEW = 0.25
# What fewer changes than this take tells nothing of what many would.
FEW_CHANGES = 256
# Kernel values of RBF below exp(-CUT) are left out of sums in float32, whose own rounding is larger.
CUT = 20.0
# Draw number of the audit rows: a number that no scan ever reaches.
AUDIT_DRAW = 2**63


@dataclass(frozen=True)
class Violators:
    """V: how many rows violate their KKT condition, candidates for the next working set, and the
    certificate.

    changed: coefficients that the scan brought in, seconds: that it took;
    full_scan_seconds: what a scan of all support vectors from scratch would have taken. step: the
    step that was made; inside: how many support vectors its working set has.
    """

    candidates: Candidates
    certificate: Certificate
    changed: int = 0
    seconds: float = 0.0
    full_scan_seconds: float = 0.0
    step: Step = field(default_factory=Step.nothing)
    inside: int = 0

    @property
    def count(self) -> int:
        return self.candidates.count

    @property
    def steepest(self) -> float:
        return self.candidates.steepest


@dataclass(frozen=True)
class _Sums:
    """What a shard reports before b is known; those of consecutive shards add up.

    norm: sum beta u, linear: see Task.linear. rows, beta: the support vectors.
    """

    norm: float
    linear: float
    rows: list[np.ndarray]
    beta: list[np.ndarray]
    bends: Bends

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.norm + other.norm,
            self.linear + other.linear,
            self.rows + other.rows,
            self.beta + other.beta,
            self.bends + other.bends,
        )


@dataclass(frozen=True)
class _Findings:
    """What a shard reports once b is known."""

    loss: float
    candidates: Candidates

    def __add__(self, other: _Findings) -> _Findings:
        return _Findings(self.loss + other.loss, self.candidates + other.candidates)


class Scan:
    """Passes over D, and the running values that they advance: u and beta of every row of D.

    One for each problem over D. layout_bytes: memory for rows that stay laid out from one pass to
    the next; which rows fit changes the time and no result. precise: float64 from the start.
    """

    def __init__(
        self,
        D: Dataset,
        problem: Problem,
        seed: int,
        layout_bytes: int = 0,
        precise: bool = False,
    ) -> None:
        self.D, self.problem = D, problem
        self.task, self.kernel = task_of(problem), Kernel.of(problem)
        self.layout_bytes = layout_bytes
        self.gathered = Gathered(D.d)
        audit = D.sample(Draw(seed, AUDIT_DRAW), AUDIT_ROWS)
        self.audit = D.points(audit)
        self.space = self._space(precise)
        self.exact = np.zeros(len(audit))
        self.u = [np.zeros(shard.stop - shard.start) for shard in D.shards]
        self.beta = [np.zeros(shard.stop - shard.start) for shard in D.shards]
        self.b, self.width = 0.0, np.inf
        self._layouts: dict[int, list[Piece]] = {}
        self._orders: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def _space(self, precise: bool) -> Space:
        """How rows are laid out: in float32 where its rounding is small from the start."""
        D = self.D
        dense = prefers_dense(D.n, D.d, D.nnz)
        centre = None
        if dense and self.kernel.name == "rbf":
            centre = np.asarray(self.audit.X.mean(axis=0), np.float64).ravel()
        space = Space(self.kernel, dense, centre, np.float32)
        rounding = self.kernel.magnitude(_largest_norm(D, space)) * FLOAT32_UNIT
        if precise or rounding >= FLOAT32_LIMIT:
            return replace(space, dtype=np.float64)
        in_cells = replace(space, cut=CUT)
        first = D.chunk_matrix(D.shards[0])
        return in_cells if profits_from_cells(in_cells, first, self.audit.X) else space

    # --- what algorithms ask ---------------------------------------------------------------

    def points(self, rows: np.ndarray) -> Points:
        """Rows of D, ascending, with their running u and beta."""
        missing = self.gathered.missing(rows)
        if len(missing):
            self.gathered.add(self.D.points(missing))
        return replace(
            self.gathered.points(rows), u=self._at(self.u, rows), beta=self.beta_of(rows)
        )

    def beta_of(self, rows: np.ndarray) -> np.ndarray:
        return self._at(self.beta, rows)

    def after(
        self, step: Step, collector: Collector, tolerance: float | None = None
    ) -> tuple[SV, Violators]:
        """Make the step, and look at D: the solution with its b, and V.

        Advances u by the coefficients that changed, unless starting anew is cheaper. b is the one
        of least P. tolerance: of the KKT conditions, the problem's where it is None.
        """
        began = time.perf_counter()
        changed = self.take(step)
        advanced = full = time.perf_counter() - began
        SV, V = self.look(collector, tolerance)
        seconds = time.perf_counter() - began
        if self.kernel.name != "linear":  # which is one vector, however many support vectors it has
            full *= len(SV) / max(changed, FEW_CHANGES)
        full += seconds - advanced
        return SV, replace(
            V,
            changed=changed,
            seconds=seconds,
            full_scan_seconds=full,
            step=step,
            inside=int(np.count_nonzero(step.beta)),
        )

    def take(self, step: Step) -> int:
        """Make the step: advance u by the coefficients that it changes; how many these are."""
        points = step.points
        assert points.beta is not None
        self._put(points.rows, step.beta)
        at = np.flatnonzero(step.beta != points.beta)
        support = self._support()
        if len(at) < len(support):
            self.advance(points.X[at], step.beta[at] - points.beta[at])
        else:
            self._afresh(support)
        return len(at)

    def look(self, collector: Collector, tolerance: float | None = None) -> tuple[SV, Violators]:
        """The solution as it is, and V."""
        tolerance = self.problem.tolerance if tolerance is None else tolerance
        window = Window.around(self.b, self.width)
        sums = self._reduced(partial(self._sums, window=window))
        b = sums.bends.minimum(self.task.total, window)
        while b is None:
            window = window.wider()
            sums = self._reduced(partial(self._sums, window=window))
            b = sums.bends.minimum(self.task.total, window)
        self.b, self.width = b, 4 * abs(b - self.b) + tolerance
        found = self._reduced(
            partial(self._findings, b=b, tolerance=tolerance, collector=collector)
        )
        certificate = Certificate(
            sums.norm / 2 + found.loss + self.task.total * b,
            sums.linear - sums.norm / 2,
            self.problem.positive_semidefinite,
        )
        SV_ = SV(np.concatenate(sums.rows), np.concatenate(sums.beta), b, self.problem)
        candidates = self._filled(found.candidates, collector.keep)
        return SV_, Violators(candidates, certificate)

    def evaluate(self, solution: SV) -> tuple[SV, Violators]:
        """The solution with the b of least P, V and its certificate from scratch: no rounding of
        earlier scans is in it.

        In float64 where the rounding of float32 would show in P or D. Rows that the running values
        have FAR beyond the margin are left as they are: they have no loss, nor would they with 200
        times the error that the audit of every scan allows.
        """
        began = time.perf_counter()
        points = self.completed(solution).points
        assert points is not None
        support = self._support()
        same = np.array_equal(solution.rows, support) and np.array_equal(
            solution.beta, self.beta_of(support)
        )
        far = FAR * self.problem.tolerance if same and solution.unbounded.any() else None
        # New arrays: threads of a scan that was broken off may still write to the old ones.
        self.u = [part.copy() for part in self.u]
        self.beta = [np.zeros(len(part)) for part in self.u]
        self._put(solution.rows, solution.beta)
        self.b = solution.b
        exact = replace(self.space, dtype=np.float64)
        self._pass(Expansion(self.space, points.X, solution.beta), fresh=True, far=far)
        self.exact = Expansion(exact, points.X, solution.beta).values(self.audit.X)
        if self._rounding_shows(solution, far):
            self._pass(Expansion(exact, points.X, solution.beta), fresh=True, far=far)
        found, V = self.look(Steepest(0, Draw(0, 0)))
        seconds = time.perf_counter() - began
        V = replace(V, changed=len(solution), seconds=seconds, full_scan_seconds=seconds)
        return replace(found, points=points), V

    def _rounding_shows(self, SV: SV, far: float | None) -> bool:
        """Whether float32 may move P or D by more than SHOWS of it: by what the values of the audit
        rows are off on average, times all coefficients and slopes of losses."""
        if self.space.dtype is np.float64 or not len(SV):
            return False
        audit, u = self.audit, self._at(self.u, self.audit.rows)
        near = self._is_near(audit.y, u, self.beta_of(audit.rows), math.inf if far is None else far)
        off = (self.exact - u)[near]
        if not len(off):
            return False
        bias = abs(float(off.mean())) + float(off.std()) / math.sqrt(len(SV))
        size = abs(self.task.linear(self.points(SV.rows).y, SV.beta)) or float(SV.beta.sum())
        return bias * float(np.abs(SV.beta).sum()) > SHOWS * size

    def refine(self) -> bool:
        """Go on in float64; False where that is so already."""
        if self.space.dtype is np.float64:
            return False
        self.space = replace(self.space, dtype=np.float64)
        self._layouts.clear()
        self._afresh(self._support())
        return True

    def completed(self, SV: SV) -> SV:
        """The same with the rows of its support vectors."""
        return replace(SV, points=self.points(SV.rows)) if SV.points is None else SV

    def forget(self) -> None:
        """Give back the memory; nothing can be asked any more."""
        self.u, self.beta, self.gathered = [], [], Gathered(0)
        self._layouts.clear()
        self._orders.clear()

    # --- passes ----------------------------------------------------------------------------

    def _reduced(self, work: Callable[[Shard], Report]) -> Report:
        reports = self.D.map(work)
        total = next(reports)
        for report in reports:
            total = total + report
        return total

    def _box(self) -> tuple[float, float, float, bool]:
        return *self.task.bounds, self.task.epsilon, self.task.one_sided

    def _sums(self, shard: Shard, window: Window) -> _Sums:
        y, u, beta = self.D.labels_of(shard), self.u[shard.number], self.beta[shard.number]
        at, jump = np.empty(2 * len(y)), np.empty(2 * len(y))
        support: np.ndarray = np.empty(len(y), np.int32)
        norm, linear, slope, bends, supports = _survey.sums(
            y, u, beta, *self._box(), window.left, window.right, at, jump, support
        )
        chosen = support[:supports]
        return _Sums(
            norm,
            linear,
            [chosen + np.int64(shard.start)],
            [beta[chosen]],
            Bends(slope, at[:bends].copy(), jump[:bends].copy()),
        )

    def _filled(self, found: Candidates, keep: int) -> Candidates:
        """Where nearly all violators are on one side, the steepest rows of the other besides: what
        one side rises the other has to fall."""
        rising, falling = len(found.rising.rows), len(found.falling.rows)
        most, least = max(rising, falling), min(rising, falling)
        if least >= FEW * most:
            return found
        steepest = partial(self._steepest_rows, rise=rising < falling, keep=min(keep, most))
        more = self._reduced(steepest)
        if rising < falling:
            return replace(found, rising=more)
        return replace(found, falling=more)

    def _steepest_rows(self, shard: Shard, rise: bool, keep: int) -> Smallest:
        y, u, beta = self.D.labels_of(shard), self.u[shard.number], self.beta[shard.number]
        up, down = self.task.slopes(y, u, beta)
        keys = -up if rise else down
        rows = np.flatnonzero(np.isfinite(keys))
        return Smallest.of(keep, rows + shard.start, keys[rows])

    def _findings(
        self, shard: Shard, b: float, tolerance: float, collector: Collector
    ) -> _Findings:
        y, u, beta = self.D.labels_of(shard), self.u[shard.number], self.beta[shard.number]
        rise, fall = np.empty(len(y) + 1), np.empty(len(y) + 1)
        rising: np.ndarray = np.empty(len(y) + 1, np.int32)
        falling: np.ndarray = np.empty(len(y) + 1, np.int32)
        loss, _, risers, fallers = _survey.violations(
            y, u, beta, *self._box(), b, tolerance, rising, rise, falling, fall
        )
        up = Seen(shard.start, shard.stop, _numbers(rising[:risers], shard), rise[:risers], b)
        falling = _numbers(falling[:fallers], shard)
        down = Seen(shard.start, shard.stop, falling, -fall[:fallers], -b)
        return _Findings(loss, collected(collector, up, down))

    def advance(self, Z: sparse.csr_matrix, difference: np.ndarray, *, fresh: bool = False) -> None:
        """u += sum_j difference_j K(z_j, .); fresh: u = ... instead."""
        self._pass(Expansion(self.space, Z, difference), fresh=fresh)
        if self.space.dtype is np.float32 and not self._precise(Z, difference, fresh):
            # Rounding has shown: from here on everything is computed in float64.
            self.refine()

    def _afresh(self, support: np.ndarray) -> None:
        points = self.points(support)
        assert points.beta is not None
        self.advance(points.X, points.beta, fresh=True)

    def _pass(self, expansion: Expansion, *, fresh: bool, far: float | None = None) -> None:
        """One pass over the shards: u += the expansion. fresh: u = ... instead, but for rows that
        are `far` beyond the margin."""
        counter = RowCounter(self.D.n)

        def work(shard: Shard) -> None:
            u = self.u[shard.number]
            near = None if far is None else self._near(shard, far)
            if near is None:
                if fresh:
                    u.fill(0.0)
                self._add(expansion, shard, u)
            else:
                X = self.D.chunk_matrix(shard)
                u[near] = expansion.values(X[near])
            if not np.isfinite(u).all():
                raise ParameterError(
                    f"values of the {self.kernel.name} kernel leave float64 on this data: "
                    f"scale the features"
                )
            counter.add(len(u))

        for _ in self.D.map(work):
            counter.tell()

    def _near(self, shard: Shard, far: float) -> np.ndarray:
        """Rows that are support vectors or not `far` beyond the margin: bool."""
        y = self.D.labels_of(shard)
        return self._is_near(y, self.u[shard.number], self.beta[shard.number], far)

    def _is_near(self, y: np.ndarray, u: np.ndarray, beta: np.ndarray, far: float) -> np.ndarray:
        rise, fall = self.task.slopes(y, u, np.zeros(len(y)))
        return (np.maximum(rise - self.b, self.b - fall) >= -far) | (beta != 0)

    def _add(self, expansion: Expansion, shard: Shard, u: np.ndarray) -> None:
        """u += the expansion, over rows that stay laid out if there is room."""
        if self.kernel.name == "linear" or self.D.mapping is not None:
            for chunk in self.D.chunks(shard):
                at = slice(chunk.start - shard.start, chunk.start - shard.start + len(chunk.y))
                u[at] += expansion.values(chunk.X)
            return
        ours = expansion.space == self.space
        pieces = self._layouts.get(shard.number) if ours else None
        with np.errstate(over="ignore", invalid="ignore"):
            if pieces is not None:
                expansion.add(u, pieces)
                return
            X = self.D.chunk_matrix(shard)
            made = expansion.space.pieces(X, cells=self._order(shard, X) if ours else None)
            if self.layout_bytes <= 0 or not ours:
                expansion.add(u, made)
                return
            pieces = list(made)
            expansion.add(u, pieces)
        size = sum(piece_bytes(piece) for piece in pieces)
        with self._lock:
            if size <= self.layout_bytes:
                self.layout_bytes -= size
                self._layouts[shard.number] = pieces

    def _order(self, shard: Shard, X: sparse.csr_matrix) -> np.ndarray | None:
        """The order of a shard's rows in cells, found once; None where they are in none."""
        if not self.space.in_cells(X.shape[1]):
            return None
        if shard.number not in self._orders:
            self._orders[shard.number] = self.space.cells(X)
        return self._orders[shard.number]

    def _precise(self, Z: sparse.csr_matrix, difference: np.ndarray, fresh: bool) -> bool:
        """Whether the running values agree with float64 ones on the audit rows."""
        exact = replace(self.space, dtype=np.float64)
        values = Expansion(exact, Z, difference).values(self.audit.X)
        self.exact = values if fresh else self.exact + values
        off = self.exact - self._at(self.u, self.audit.rows)
        return bool(np.abs(off).max() <= self.problem.tolerance / 4)

    # --- running values --------------------------------------------------------------------

    def _at(self, of: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
        """Running values of the given ascending rows; (m,) float64."""
        found = np.empty(len(rows))
        for shard in self.D.shards:
            within = shard.within(rows)
            if within.start < within.stop:
                found[within] = of[shard.number][rows[within] - shard.start]
        return found

    def _put(self, rows: np.ndarray, beta: np.ndarray) -> None:
        for shard in self.D.shards:
            within = shard.within(rows)
            if within.start < within.stop:
                self.beta[shard.number][rows[within] - shard.start] = beta[within]

    def _support(self) -> np.ndarray:
        """Row numbers of all support vectors, ascending."""
        starts = (shard.start for shard in self.D.shards)
        parts = [np.flatnonzero(beta) + s for beta, s in zip(self.beta, starts, strict=True)]
        return np.concatenate(parts)


def _numbers(places: np.ndarray, shard: Shard) -> np.ndarray:
    """Row numbers of places in a shard; -1, for none, stays. (m,) int64."""
    return np.where(places < 0, np.int64(-1), places + np.int64(shard.start))


class Stop(Protocol):
    """Asked after each scan whether the run ends. tolerance: of the KKT conditions from here on."""

    @property
    def tolerance(self) -> float: ...

    def __call__(self, SV: SV, V: Violators) -> bool: ...


# The first step, and the working set that it was of.
Starter = Callable[[Scan, Choice, Draws], tuple[Step, WorkingSet]]


@dataclass
class RowCounter:
    """Rows scanned so far, over all threads; told to the listener by the calling thread."""

    n: int
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, rows: int) -> None:
        with self.lock:
            self.done += rows

    def tell(self) -> None:
        tell(Progress("scanning", self.done, self.n))


def _largest_norm(D: Dataset, space: Space) -> float:
    """max |x|^2 over D, after centring."""

    def of(shard: Shard) -> float:
        norms = [
            space.rows(chunk.X[at]).norms.max()
            for chunk in D.chunks(shard)
            for at in slices(len(chunk.y), BLOCK_ROWS)
        ]
        return float(max(norms, default=0.0))

    return max(D.map(of))
