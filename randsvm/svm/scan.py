"""Scan D: advance the running decision values and find the rows that violate the KKT conditions.

One pass gives the violators, the primal objective P and the dual objective D. The questions that a
scan asks of each shard are plain data, so that other processes can answer them. Answers of
consecutive shards add up with +, and in any grouping to the same bits: numbers are added up at the
end, in the order of the shards.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

import randsvm.svm._kkt_scan as _kkt_scan
from randsvm.arrays import in_order
from randsvm.data.sampling import Draw, SmallestKeys
from randsvm.data.shard_executor import Shard
from randsvm.svm.offset import Breakpoints, Window
from randsvm.svm.running_values import Far, RunningValues, ShardValues, Values
from randsvm.svm.solution import SV, Certificate, Step
from randsvm.svm.tasks import Task
from randsvm.svm.working_set import (
    Candidates,
    Collector,
    EveryGroup,
    Seen,
    Steepest,
    collected,
)

# A closing evaluation leaves alone what is this many tolerances beyond the margin.
FAR = 50
# It takes the running values as they are where less than one in so many of the support vectors
# came in since they were last computed from scratch.
FEW_BROUGHT = 4
# A side with fewer violators than this share of the other's is filled up.
FEW = 0.25
# What fewer changes than this take tells nothing of what many would.
FEW_CHANGES = 256


@dataclass(frozen=True)
class Violators:
    """V: how many rows violate their KKT condition, candidates for the next working set, and the
    certificate.

    changed: coefficients that the scan brought in, seconds: that it took;
    full_scan_seconds: what a scan of all support vectors from scratch would have taken. step: the
    step that was made; inside: how many support vectors its working set has. lift: what rounding
    may have added to D.
    """

    candidates: EveryGroup
    certificate: Certificate
    changed: int = 0
    seconds: float = 0.0
    full_scan_seconds: float = 0.0
    step: Step = field(default_factory=Step.nothing)
    inside: int = 0
    dual_error: float = 0.0

    @property
    def count(self) -> int:
        return self.candidates.count

    @property
    def steepest(self) -> float:
        return self.candidates.steepest


class Scan(RunningValues):
    """Passes over D, and the running values that they advance. One for each problem over D.

    latest: what the newest look found, and to which tolerance.
    """

    latest: tuple[SV, Violators, float] | None = None

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
        if (
            not self.kernel_layout.kernel.linear
        ):  # which is one vector, however many support vectors it has
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
        self.put(points.rows, step.beta)
        at = np.flatnonzero(step.beta != points.beta)
        if len(at) < len(self.coefficients.rows):
            self.advance(points.X[at], step.beta[at] - points.beta[at])
        else:
            same = np.array_equal(points.rows, self.coefficients.rows)
            self.afresh(points.X if same else None)
        return len(at)

    def look(self, collector: Collector, tolerance: float | None = None) -> tuple[SV, Violators]:
        """The solution as it is, and V."""
        tolerance = self.problem.tolerance if tolerance is None else tolerance
        primal, before, levels, candidates = 0.0, self.task.levels(self.b), [], []
        for k, group in enumerate(self.task.groups):
            sums, level = self._level(group, self.windows[k])
            self.windows[k] = Window.around(level, 4 * abs(level - before[k]) + tolerance)
            found = self.ask(Findings(group, level, tolerance, collector))
            primal += in_order(found.loss) + group.total * level
            candidates.append(self._filled(group, found.candidates, collector.keep))
            levels.append(level)
        norm, linear = in_order(sums.norm), in_order(sums.linear)
        self.task, self.b = self.task.at(levels)
        beta = self.coefficients.beta
        self.slack = self.task.missing(beta)
        if self.slack:
            # P is of the best tube, but the KKT conditions are those of a tube of no width.
            every = self.task.short_of(self.slack)
            found = self.ask(Findings(every, self.b, tolerance, collector))
            candidates = [self._filled(every, found.candidates, collector.keep)]
        V = EveryGroup.of(candidates)
        self.steepest = V.steepest
        certified = self.problem.positive_semidefinite
        certificate = Certificate(norm / 2 + primal, linear - norm / 2, certified, self.least)
        SV_ = SV(self.coefficients.rows, beta, self.b, self.problem, tube=self.task.tube, norm=norm)
        violators = Violators(V, certificate, dual_error=self.dual_error())
        self.latest = SV_, violators, tolerance
        return SV_, violators

    def _level(self, group: Task, window: Window) -> tuple[Totals, float]:
        """Sums of all rows, and the offset of least P of a group."""
        if window.whole:
            window = self._first_window(group)
        while True:
            sums = self.ask(Sums(group, window))
            found = sums.breakpoints.minimum(group.total, self.D.n * max(group.bounds))
            if not isinstance(found, Window):
                return sums, found
            window = found

    def evaluate(self, solution: SV) -> tuple[SV, Violators]:
        """The solution with the b of least P, V and its certificate from scratch: no rounding of
        earlier scans is in it, but for that of the last coefficients where they are FEW_BROUGHT.

        In float64 where the rounding of float32 would show in P or D. Rows that the running values
        have FAR beyond the margin are left as they are: they have no loss, nor would they with 25
        times the error that the audit of every scan allows. Of few rows all that was looked at in
        the last round already.
        """
        began = time.perf_counter()
        points = self.completed(solution).points
        assert points is not None
        same = np.array_equal(solution.rows, self.coefficients.rows) and np.array_equal(
            solution.beta, self.coefficients.beta
        )
        if same and (latest := self._looked_at(solution)):
            found, V = latest
        else:
            near = same and solution.unbounded.any()
            self.task = replace(self.task, tube=solution.tube)
            far = Far(self.task, solution.b, FAR * self.problem.tolerance) if near else None
            known = same and self.brought * FEW_BROUGHT <= len(solution)
            self.b = solution.b
            self.start_from(points, solution.beta, far, known=known)
            found, V = self.look(Steepest(0, Draw(0, 0)))
        seconds = time.perf_counter() - began
        V = replace(V, changed=len(solution), seconds=seconds, full_scan_seconds=seconds)
        return replace(found, points=points), V

    def _looked_at(self, solution: SV) -> tuple[SV, Violators] | None:
        """The newest look, if it was at this solution from scratch, to the problem's tolerance."""
        if not self.few or self.brought or self.latest is None:
            return None
        found, V, tolerance = self.latest
        return (found, V) if found is solution and tolerance == self.problem.tolerance else None

    def completed(self, SV: SV) -> SV:
        """The same with the rows of its support vectors."""
        return replace(SV, points=self.rows(SV.rows)) if SV.points is None else SV

    def _first_window(self, group: Task) -> Window:
        """Around the offset of least P over the audit rows: bends of all rows take memory."""
        if self.few:
            return Window(-np.inf, np.inf)
        audit = self.audit
        m, whole = len(audit), Window(-np.inf, np.inf)
        u, beta = np.concatenate(self.ask(Values(audit.rows))), self.coefficients.of(audit.rows)
        some = totals(group, audit.y, u, beta, whole).breakpoints
        b = some.minimum(group.total * m / self.D.n, m * max(group.bounds))
        assert not isinstance(b, Window)
        return Window.around(b, (some.last - some.first) / 16 if len(some.at) else 1.0)

    def _filled(self, group: Task, found: Candidates, keep: int) -> Candidates:
        """Where nearly all violators are on one side, the steepest rows of the other besides: what
        one side rises the other has to fall."""
        rising, falling = len(found.rising.rows), len(found.falling.rows)
        most, least = max(rising, falling), min(rising, falling)
        if least >= FEW * most:
            return found
        more = self.ask(SteepestRows(group, rising < falling, min(keep, most)))
        if rising < falling:
            return replace(found, rising=more)
        return replace(found, falling=more)


# Share of the |w|^2 of nu-SVC with all coefficients on rows that are one spread apart, below which
# only rounding separates the classes.
SEPARATING_SHARE = 1e-8


def least_norm(scan: Scan) -> float:
    """Return the |w|^2 of nu-SVC below which nothing but rounding separates the classes."""
    K = scan.gram(scan.audit).astype(np.float64)
    return SEPARATING_SHARE * scan.task.size**2 * float(K.diagonal().mean() - K.mean())


@dataclass(frozen=True)
class Totals:
    """What is known before b is. norm: sum beta u, linear: see Task.linear, of each shard."""

    norm: list[float]
    linear: list[float]
    breakpoints: Breakpoints

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.norm + other.norm, self.linear + other.linear, self.breakpoints + other.breakpoints
        )


@dataclass(frozen=True)
class Sums:
    """Everything that P and D are made of but the losses, and the bends of P inside of a window.
    task: or a group of it, as of all questions."""

    task: Task
    window: Window

    def __call__(self, values: ShardValues) -> Totals:
        return totals(self.task, values.y, values.u, values.beta, self.window)


def totals(task: Task, y: np.ndarray, u: np.ndarray, beta: np.ndarray, window: Window) -> Totals:
    """Of any rows; y, u, beta : (m,) float64."""
    at, jump = np.empty(2 * len(y)), np.empty(2 * len(y))
    norm, linear, slope, count, before, behind = _kkt_scan.sums(
        y, u, beta, *box(task), window.left, window.right, at, jump
    )
    inside = at[:count].copy(), jump[:count].copy()
    breakpoints = Breakpoints.of(window, task.bounds, slope, *inside, (before, behind))
    return Totals([norm], [linear], breakpoints)


def box(task: Task) -> tuple[float, float, float, bool]:
    """As the compiled looks have it."""
    return *task.bounds, task.epsilon, task.one_sided


@dataclass(frozen=True)
class Found:
    """What is known once b is. loss: of each shard."""

    loss: list[float]
    candidates: Candidates

    def __add__(self, other: Found) -> Found:
        return Found(self.loss + other.loss, self.candidates + other.candidates)


@dataclass(frozen=True)
class Findings:
    """The losses with the offset b, and the violators that the collector keeps."""

    task: Task
    b: float
    tolerance: float
    collector: Collector

    def __call__(self, values: ShardValues) -> Found:
        y, u, beta, shard = values.y, values.u, values.beta, values.shard
        rise, fall = np.empty(len(y) + 1), np.empty(len(y) + 1)
        rising: np.ndarray = np.empty(len(y) + 1, np.int32)
        falling: np.ndarray = np.empty(len(y) + 1, np.int32)
        loss, _, risers, fallers = _kkt_scan.violations(
            y, u, beta, *box(self.task), self.b, self.tolerance, rising, rise, falling, fall
        )
        rows = _numbers(rising[:risers], shard)
        up = Seen(shard.start, shard.stop, rows, rise[:risers], self.b)
        rows = _numbers(falling[:fallers], shard)
        down = Seen(shard.start, shard.stop, rows, -fall[:fallers], -self.b)
        return Found([loss], collected(self.collector, up, down))


def _numbers(places: np.ndarray, shard: Shard) -> np.ndarray:
    """Row numbers of places in a shard; -1, for none, stays. (m,) int64."""
    return np.where(places < 0, np.int64(-1), places + np.int64(shard.start))


@dataclass(frozen=True)
class SteepestRows:
    """The rows that may rise, or fall, with the steepest slopes, violators or not."""

    task: Task
    rise: bool
    keep: int

    def __call__(self, values: ShardValues) -> SmallestKeys:
        beta = np.clip(values.beta, *self.task.box(values.y))
        up, down = self.task.slopes(values.y, values.u, beta)
        keys = -up if self.rise else down
        rows = np.flatnonzero(np.isfinite(keys))
        return SmallestKeys.of(self.keep, rows + values.shard.start, keys[rows])
