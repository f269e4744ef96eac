"""Scan D: advance the running decision values and find the rows that violate the KKT conditions.

One pass gives the violators, the primal objective P and the dual objective D. Knows nothing of
files, solvers or the command line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from randsvm.arrays import slices
from randsvm.data.dataset import Dataset, Shard, random_subset
from randsvm.data.points import Points
from randsvm.data.sampling import Draw, Draws, Smallest
from randsvm.events import Progress, tell
from randsvm.kernels.expansion import BLOCK_ROWS, Expansion, Space, prefers_dense
from randsvm.parameters.svm import Params
from randsvm.svm.collectors import Collector, UniformSample
from randsvm.svm.solution import SV, Bound
from randsvm.svm.tasks import Task, task_of

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
    scanned: the seconds it took; seconds: what a scan of all support vectors from scratch would
    have taken.
    """

    D: Dataset
    sample: Smallest
    certificate: Certificate
    changed: int
    scanned: float
    seconds: float

    @property
    def count(self) -> int:
        return self.sample.count

    def draw(self, m: int) -> Points:
        """m of the violators kept: the first in the collector's order, which for a uniform
        sample is a random one."""
        return _with_u(self.D, self.D.points(self.sample.rows[:m]))

    def refreshed(self, points: Points) -> Points:
        """The same points with u of the solution scanned last."""
        return _with_u(self.D, points)


@dataclass
class Running:
    """The state that a scan advances: u of every row under the solution `SV`.

    u: one (rows,) float64 array per shard. space: how kernel blocks are laid out, and the
    precision in which they are computed. audit: random rows, exact: u of them, (m,) float64,
    from float64 kernel values.
    """

    u: list[np.ndarray]
    space: Space
    audit: Points
    exact: np.ndarray
    SV: SV | None = None


@dataclass(frozen=True)
class Findings:
    """What one shard reports; findings of consecutive shards add up."""

    loss: float
    violators: Smallest
    u: list[np.ndarray] = field(default_factory=list)

    def __add__(self, other: Findings) -> Findings:
        return Findings(
            self.loss + other.loss,
            self.violators + other.violators,
            self.u + other.u,
        )


def violators(
    D: Dataset,
    SV: SV,
    outside: Points,
    keep: int,
    rng: Draws,
    choose: Callable[[int, Draw], Collector] = UniformSample,
    far: float | None = None,
) -> Violators:
    """V(D, SV) without the rows of `outside`, the last working set.

    Keeps `keep` of them, a uniform sample unless `choose` is another collector. Advances u by
    the coefficients that changed since the last scan of this D, unless starting anew is cheaper.
    Completes SV: its u, and its b where no unbounded support vector determines it. far: rows this
    far beyond the margin keep their running values; None: no row does.
    """
    running = _running(D, SV, rng)
    began = time.perf_counter()
    question = _Question(task_of(SV.params), SV, outside.rows, choose(keep, rng.next()))
    found, centres = _advance(D, running, question, far)
    SV.points = _with_u(D, SV.points)
    if not SV.unbounded.any():
        SV.b = best_offset(D, SV.params)
        found = _pass(D, running, question, SV.points.X[:0], SV.beta[:0])
    norm = float(SV.beta @ SV.points.u)
    certificate = Certificate(
        norm / 2 + found.loss + question.task.total * SV.b,
        question.task.reward(SV.points.y, SV.beta) - norm / 2,
        SV.params.positive_semidefinite,
    )
    scanned = seconds = time.perf_counter() - began
    if SV.kernel.name != "linear":  # which is one vector, however many support vectors it has
        seconds *= len(SV) / max(centres, 1)
    return Violators(D, found.violators, certificate, centres, scanned, seconds)


def _advance(
    D: Dataset, running: Running, question: _Question, far: float | None
) -> tuple[Findings, int]:
    """Bring the running values to the question's solution, and ask it; also how many
    coefficients that took."""
    SV, old = question.SV, running.SV
    Z, difference = SV.change_since(old)
    fresh = old is None or len(difference) >= len(SV)
    if fresh:
        Z, difference = SV.points.X, SV.beta
    running.SV = SV
    found = _pass(D, running, question, Z, difference, fresh=fresh, far=far)
    if running.space.dtype is np.float32 and not _precise(D, running, Z, difference, fresh):
        # Rounding has shown: from here on everything is computed in float64.
        running.space = replace(running.space, dtype=np.float64)
        found = _pass(D, running, question, SV.points.X, SV.beta, fresh=True)
    return found, len(difference)


def evaluate(D: Dataset, SV: SV, rng: Draws) -> Violators:
    """V and the certificate of SV from scratch: no rounding of earlier scans is in it.

    Every row is asked but the unbounded support vectors, which lie on the margin. Rows that the
    running values have FAR beyond the margin are left as they are: they have no loss, nor would
    they with 200 times the error that the audit of every scan allows.
    """
    running, far = D.running, None
    if running is not None:
        # New arrays: threads of a scan that was broken off may still write to the old ones.
        u = [part.copy() for part in running.u]
        if running.SV is SV and SV.unbounded.any():
            far = FAR * SV.params.tolerance
        D.running = replace(running, u=u, SV=None)
    return violators(D, SV, SV.points[np.flatnonzero(SV.unbounded)], 0, rng, far=far)


# The rows of the first working set, and what is held at its bound beside them.
Start = tuple[Points, Bound | None]
Starter = Callable[[Dataset, int, Params, Draws], Start]


def cold_start(D: Dataset, r: int, params: Params, rng: Draws) -> Start:
    """KBH07's S: a random subset of r rows, nothing held."""
    return random_subset(D, r, rng), None


def best_offset(D: Dataset, params: Params) -> float:
    """The b that minimises P(w, b) over all rows for the w of the running values.

    Bisection on the subgradient, for a solution without unbounded support vectors, where
    LIBSVM's b is only a midpoint.
    """
    task, parts = task_of(params), list(zip(D.running.u, D.labels_by_shard(), strict=True))
    # The loss of row i bends at b = y_i - u_i, or epsilon beside it: the minimum is at a bend.
    low = min(float((y - u).min(initial=np.inf)) for u, y in parts) - params.epsilon
    high = max(float((y - u).max(initial=-np.inf)) for u, y in parts) + params.epsilon
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return middle
        slopes = [np.where(y > 0, *params.bounds) @ task.slope(y, u + middle) for u, y in parts]
        slope = float(sum(slopes)) + task.total
        if slope == 0:
            return middle
        low, high = (middle, high) if slope < 0 else (low, middle)


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

    def offered(self, shard: Shard) -> np.ndarray:
        """Rows that may be reported as violators: all but the last working set. Bool."""
        may = np.ones(shard.stop - shard.start, bool)
        may[self.working[shard.within(self.working)] - shard.start] = False
        return may


def _pass(
    D: Dataset,
    running: Running,
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
            total = total + _ask(question, chunk.start, chunk.y, u[at], bound[at], may[at])
            counter.add(len(chunk.y))
        part = question.SV.points.rows[shard.within(question.SV.points.rows)]
        return replace(total, u=[u[part - shard.start]])

    reports = D.map(work)
    total = next(reports)
    counter.tell()
    for report in reports:
        total = total + report
        counter.tell()
    return total


def _ask(
    question: _Question,
    start: int,
    y: np.ndarray,
    u: np.ndarray,
    bound: np.ndarray,
    may: np.ndarray,
) -> Findings:
    f = u + question.SV.b
    violation = question.task.violation(y, f, bound)
    chosen = np.flatnonzero((violation > question.SV.params.tolerance) & may)
    kept = question.collector.collect(start, chosen, violation)
    loss = np.where(y > 0, *question.SV.params.bounds) * question.task.loss(y, f)
    return Findings(float(loss.sum()), kept)


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


def _running(D: Dataset, SV: SV, rng: Draws) -> Running:
    """D's running values, made with its first scan."""
    if D.running is None:
        audit = D.points(D.sample(Draw(rng.seed, AUDIT_DRAW), AUDIT_ROWS))
        dense = prefers_dense(D.n, D.d, D.nnz)
        centre = None
        if dense and SV.kernel.name == "rbf":
            centre = np.asarray(audit.X.mean(axis=0), np.float64).ravel()
        space = Space(SV.kernel, dense, centre, np.float32)
        if SV.kernel.magnitude(_largest_norm(D, space)) * FLOAT32_UNIT >= FLOAT32_LIMIT:
            space = replace(space, dtype=np.float64)
        u = [np.zeros(shard.stop - shard.start) for shard in D.shards]
        D.running = Running(u, space, audit, np.zeros(len(audit)))
    return D.running


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


def _with_u(D: Dataset, points: Points) -> Points:
    return replace(points, u=_at(D, D.running, points.rows))


def _at(D: Dataset, running: Running, rows: np.ndarray) -> np.ndarray:
    """Running values of the given ascending rows; (m,) float64."""
    if len(rows) == 0:
        return np.empty(0)
    parts = [running.u[s.number][rows[s.within(rows)] - s.start] for s in D.shards]
    return np.concatenate(parts)


def _precise(
    D: Dataset,
    running: Running,
    Z: sparse.csr_matrix,
    difference: np.ndarray,
    fresh: bool,
) -> bool:
    """Whether the running values agree with float64 ones on the audit rows. As for _pass."""
    exact = replace(running.space, dtype=np.float64)
    values = Expansion(exact, Z, difference).values(running.audit.X)
    running.exact = values if fresh else running.exact + values
    off = running.exact - _at(D, running, running.audit.rows)
    assert running.SV is not None
    return bool(np.abs(off).max() <= running.SV.params.tolerance / 4)
