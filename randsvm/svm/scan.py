"""Scan D: advance the running decision values and find the rows that violate the KKT conditions.

One pass gives the violators, the primal objective P and the dual objective D. Knows nothing of
files, solvers or the command line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from randsvm.arrays import in_order
from randsvm.data.sampling import Draw, Draws
from randsvm.svm.collectors import Candidates, Collector, EveryGroup, Steepest
from randsvm.svm.offset import Window
from randsvm.svm.running import RunningValues
from randsvm.svm.shard_queries import Findings, SteepestRows, Sums, Totals, Values, totals
from randsvm.svm.shard_values import Far
from randsvm.svm.solution import SV, Certificate, Step
from randsvm.svm.tasks import Task
from randsvm.svm.working_set import Choice, WorkingSet

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


class Stop(Protocol):
    """Asked after each scan whether the run ends. tolerance: of the KKT conditions from here on."""

    @property
    def tolerance(self) -> float: ...

    def __call__(self, SV: SV, V: Violators) -> bool: ...


# The first step, and the working set that it was of.
Starter = Callable[[Scan, Choice, Draws], tuple[Step, WorkingSet]]
