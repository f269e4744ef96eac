"""Scan D: advance the running decision values and find the rows that violate the KKT conditions.

One pass gives the violators, the primal objective P and the dual objective D. Knows nothing of
files, solvers or the command line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from scipy import sparse

from randsvm.arrays import slices
from randsvm.data.dataset import Dataset, Shard, random_subset
from randsvm.data.points import Points
from randsvm.data.sampling import Draw, Draws, Smallest
from randsvm.events import Progress, tell
from randsvm.kernels.expansion import BLOCK_ROWS, Expansion, Space, prefers_dense
from randsvm.parameters.problem import Problem
from randsvm.svm.collectors import Collector, UniformSample
from randsvm.svm.solution import SV, Bound
from randsvm.svm.tasks import Task, task_of
from randsvm.svm.working_set import WorkingSet

# Rows whose running decision value is kept in float64 as well, and compared after every scan.
AUDIT_ROWS = 512
# float32 arguments of this size carry a rounding error that no audit needs to find.
FLOAT32_UNIT = 2.0**-24
FLOAT32_LIMIT = 1e-5
# A closing evaluation leaves alone what is this many tolerances beyond the margin.
FAR = 50
# Draw number of the audit rows: a number that no scan ever reaches.
AUDIT_DRAW = 2**63


@dataclass(frozen=True)
class Certificate:
    """D(alpha) <= optimum <= P(w, b), for the whole of D.

    primal P, dual D; certified False where the kernel is not positive semidefinite, and then
    the two bound nothing.
    """

    primal: float
    dual: float
    certified: bool = True

    @property
    def gap(self) -> float:
        """(P - D) / max(|P|, |D|), 0 if both are 0; nan if nothing is certified."""
        if not self.certified:
            return float("nan")
        scale = max(abs(self.primal), abs(self.dual))
        return (self.primal - self.dual) / scale if scale else 0.0


@dataclass(frozen=True)
class Violators:
    """V: how many rows violate their KKT condition, a sample of them, and the certificate.

    Rows of the last working set are never in V. changed: coefficients that the scan brought in,
    seconds: that it took; full_scan_seconds: what a scan of all support vectors from scratch would
    have taken.
    """

    scan: Scan
    sample: Smallest
    certificate: Certificate
    changed: int
    seconds: float
    full_scan_seconds: float

    @property
    def count(self) -> int:
        return self.sample.count

    def draw(self, m: int) -> Points:
        """m of the violators kept: the first in the collector's order, which for a uniform
        sample is a random one."""
        return self.refreshed(self.scan.D.points(self.sample.rows[:m]))

    def refreshed(self, points: Points) -> Points:
        """The same points with u of the solution scanned last."""
        return self.scan.with_u(points)


@dataclass(frozen=True)
class Findings:
    """What one shard reports; findings of consecutive shards add up."""

    loss: float
    violators: Smallest

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.loss + other.loss, self.violators + other.violators)


@dataclass
class _Running:
    """What a scan advances: u of every row under the solution `SV`.

    u: one (rows,) float64 array per shard. space: how kernel blocks are laid out, and the
    precision in which they are computed. audit: random rows, exact: u of them, (m,) float64,
    from float64 kernel values.
    """

    u: list[np.ndarray]
    space: Space
    audit: Points
    exact: np.ndarray
    SV: SV | None = None


class Scan:
    """Passes over D, and the running values that they advance: u of every row of D.

    One for each problem over D; the running values are made with the first scan.
    """

    def __init__(self, D: Dataset) -> None:
        self.D = D
        self._running: _Running | None = None

    def violators(
        self,
        SV: SV,
        outside: Points,
        keep: int,
        rng: Draws,
        choose: Callable[[int, Draw], Collector] = UniformSample,
    ) -> tuple[SV, Violators]:
        """The solution with its u, and V(D, SV) without the rows of `outside`, the last working
        set.

        Keeps `keep` violators, a uniform sample unless `choose` is another collector. Advances u
        by the coefficients that changed since the last scan, unless starting anew is cheaper.
        Where no unbounded support vector determines b, the solution comes back with the b of
        least P.
        """
        return self._scanned(SV, outside, choose(keep, rng.next()), rng)

    def evaluate(self, SV: SV, rng: Draws) -> Violators:
        """V and the certificate of SV from scratch: no rounding of earlier scans is in it.

        Every row is asked but the unbounded support vectors, which lie on the margin. Rows that
        the running values have FAR beyond the margin are left as they are: they have no loss, nor
        would they with 200 times the error that the audit of every scan allows.
        """
        running, far = self._running, None
        if running is not None:
            # New arrays: threads of a scan that was broken off may still write to the old ones.
            u = [part.copy() for part in running.u]
            if running.SV is SV and SV.unbounded.any():
                far = FAR * SV.problem.tolerance
            self._running = replace(running, u=u, SV=None)
        outside = SV.points[np.flatnonzero(SV.unbounded)]
        return self._scanned(SV, outside, UniformSample(0, rng.next()), rng, far)[1]

    def with_u(self, points: Points) -> Points:
        """The same points with u of the solution scanned last."""
        return replace(points, u=self._at(points.rows))

    def _scanned(
        self, SV: SV, outside: Points, collector: Collector, rng: Draws, far: float | None = None
    ) -> tuple[SV, Violators]:
        """far: rows this far beyond the margin keep their running values; None: no row does."""
        if self._running is None:
            self._running = _first_values(self.D, SV, rng)
        began = time.perf_counter()
        question = _Question(task_of(SV.problem), SV, outside.rows, collector)
        found, changed = self._advance(question, far)
        SV = self._running.SV = replace(SV, points=self.with_u(SV.points))
        if not SV.unbounded.any():
            SV = self._running.SV = replace(SV, b=self._best_offset(SV.problem))
            found = self._pass(replace(question, SV=SV), SV.points.X[:0], SV.beta[:0])
        norm = float(SV.beta @ SV.points.u)
        certificate = Certificate(
            norm / 2 + found.loss + question.task.total * SV.b,
            question.task.reward(SV.points.y, SV.beta) - norm / 2,
            SV.problem.positive_semidefinite,
        )
        seconds = full = time.perf_counter() - began
        if SV.kernel.name != "linear":  # which is one vector, however many support vectors it has
            full *= len(SV) / max(changed, 1)
        return SV, Violators(self, found.violators, certificate, changed, seconds, full)

    @property
    def _values(self) -> _Running:
        assert self._running is not None, "the first scan makes the running values"
        return self._running

    def _advance(self, question: _Question, far: float | None) -> tuple[Findings, int]:
        """Bring the running values to the question's solution, and ask it; also how many
        coefficients that took."""
        running = self._values
        SV, old = question.SV, running.SV
        Z, difference = SV.change_since(old)
        fresh = old is None or len(difference) >= len(SV)
        if fresh:
            Z, difference = SV.points.X, SV.beta
        running.SV = SV
        found = self._pass(question, Z, difference, fresh=fresh, far=far)
        if running.space.dtype is np.float32 and not self._precise(Z, difference, fresh):
            # Rounding has shown: from here on everything is computed in float64.
            running.space = replace(running.space, dtype=np.float64)
            found = self._pass(question, SV.points.X, SV.beta, fresh=True)
        return found, len(difference)

    def _pass(
        self,
        question: _Question,
        Z: sparse.csr_matrix,
        difference: np.ndarray,
        *,
        fresh: bool = False,
        far: float | None = None,
    ) -> Findings:
        """One pass over the shards: u += sum_j difference_j K(z_j, .), then the question.

        fresh: u = ... instead, but for rows that are `far` beyond the margin.
        """
        running, D = self._values, self.D
        expansion = Expansion(running.space, Z, difference)
        counter = RowCounter(D.n)

        def work(shard: Shard) -> Findings:
            u = running.u[shard.number]
            bound, may = question.bounds(shard), question.offered(shard)
            mine = question.support_vectors(shard)
            total = Findings(0.0, Smallest(question.collector.keep))
            for chunk in D.chunks(shard):
                at = slice(chunk.start - shard.start, chunk.start - shard.start + len(chunk.y))
                if far is not None:
                    near = question.near(chunk.y, u[at], far) | mine[at]
                    u[at][near] = expansion.values(chunk.X[near])
                elif fresh:
                    u[at] = expansion.values(chunk.X)
                else:
                    u[at] += expansion.values(chunk.X)
                total = total + question.asked(chunk.start, chunk.y, u[at], bound[at], may[at])
                counter.add(len(chunk.y))
            return total

        reports = D.map(work)
        total = next(reports)
        counter.tell()
        for report in reports:
            total = total + report
            counter.tell()
        return total

    def _best_offset(self, problem: Problem) -> float:
        """The b that minimises P(w, b) over all rows for the w of the running values.

        Bisection on the subgradient, for a solution without unbounded support vectors, where
        LIBSVM's b is only a midpoint.
        """
        task = task_of(problem)
        parts = list(zip(self._values.u, self.D.labels_by_shard(), strict=True))
        # The loss of row i bends at b = y_i - u_i, or epsilon beside it: the minimum is at a bend.
        low = min(float((y - u).min(initial=np.inf)) for u, y in parts) - problem.epsilon
        high = max(float((y - u).max(initial=-np.inf)) for u, y in parts) + problem.epsilon
        while True:
            middle = (low + high) / 2
            if not low < middle < high:
                return middle
            slopes = [
                np.where(y > 0, *problem.bounds) @ task.slope(y, u + middle) for u, y in parts
            ]
            slope = float(sum(slopes)) + task.total
            if slope == 0:
                return middle
            low, high = (middle, high) if slope < 0 else (low, middle)

    def _at(self, rows: np.ndarray) -> np.ndarray:
        """Running values of the given ascending rows; (m,) float64."""
        if len(rows) == 0:
            return np.empty(0)
        u = self._values.u
        return np.concatenate([u[s.number][rows[s.within(rows)] - s.start] for s in self.D.shards])

    def _precise(self, Z: sparse.csr_matrix, difference: np.ndarray, fresh: bool) -> bool:
        """Whether the running values agree with float64 ones on the audit rows. As for _pass."""
        running = self._values
        exact = replace(running.space, dtype=np.float64)
        values = Expansion(exact, Z, difference).values(running.audit.X)
        running.exact = values if fresh else running.exact + values
        off = running.exact - self._at(running.audit.rows)
        assert running.SV is not None
        return bool(np.abs(off).max() <= running.SV.problem.tolerance / 4)


class Stop(Protocol):
    """Asked after each scan whether the run ends. precision: factor on the tolerance of the solves
    from here on."""

    precision: float

    def __call__(self, SV: SV, V: Violators) -> bool: ...


# The rows of the first working set, and what is frozen at its bound beside them.
Start = tuple[Points, Bound | None]
Starter = Callable[[Dataset, WorkingSet, Problem, Draws], Start]


def cold_start(D: Dataset, W: WorkingSet, problem: Problem, rng: Draws) -> Start:
    """KBH07's S: a random subset of r rows, nothing frozen."""
    return random_subset(D, W.r, rng), None


@dataclass(frozen=True)
class _Question:
    """What a pass asks of each row: the task's loss and violation, rows never to be offered."""

    task: Task
    SV: SV
    working: np.ndarray
    collector: Collector

    def bounds(self, shard: Shard) -> np.ndarray:
        """Sign of beta for the bounded support vectors of the shard, 0 elsewhere: int8."""
        SV = self.SV
        bound = np.zeros(shard.stop - shard.start, np.int8)
        part = shard.within(SV.points.rows)
        rows, beta = SV.points.rows[part], SV.beta[part]
        bounded = ~SV.unbounded[part]
        bound[rows[bounded] - shard.start] = np.sign(beta[bounded])
        return bound

    def support_vectors(self, shard: Shard) -> np.ndarray:
        """Rows of the shard that are: bool."""
        are = np.zeros(shard.stop - shard.start, bool)
        are[self.SV.points.rows[shard.within(self.SV.points.rows)] - shard.start] = True
        return are

    def near(self, y: np.ndarray, u: np.ndarray, far: float) -> np.ndarray:
        """Rows that are not `far` beyond the margin: bool."""
        return self.task.violation(y, u + self.SV.b, 0) >= -far

    def asked(
        self, start: int, y: np.ndarray, u: np.ndarray, bound: np.ndarray, may: np.ndarray
    ) -> Findings:
        """What the rows of a chunk answer. bound, may: see `bounds` and `offered`."""
        problem = self.SV.problem
        violation = self.task.violation(y, u + self.SV.b, bound)
        chosen = np.flatnonzero((violation > problem.tolerance) & may)
        kept = self.collector.collect(start, chosen, violation)
        loss = np.where(y > 0, *problem.bounds) * self.task.loss(y, u + self.SV.b)
        return Findings(float(loss.sum()), kept)

    def offered(self, shard: Shard) -> np.ndarray:
        """Rows that may be reported as violators: all but the last working set. Bool."""
        may = np.ones(shard.stop - shard.start, bool)
        may[self.working[shard.within(self.working)] - shard.start] = False
        return may


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


def _first_values(D: Dataset, SV: SV, rng: Draws) -> _Running:
    audit = D.points(D.sample(Draw(rng.seed, AUDIT_DRAW), AUDIT_ROWS))
    dense = prefers_dense(D.n, D.d, D.nnz)
    centre = None
    if dense and SV.kernel.name == "rbf":
        centre = np.asarray(audit.X.mean(axis=0), np.float64).ravel()
    space = Space(SV.kernel, dense, centre, np.float32)
    if SV.kernel.magnitude(_largest_norm(D, space)) * FLOAT32_UNIT >= FLOAT32_LIMIT:
        space = replace(space, dtype=np.float64)
    u = [np.zeros(shard.stop - shard.start) for shard in D.shards]
    return _Running(u, space, audit, np.zeros(len(audit)))


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
