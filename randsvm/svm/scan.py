"""Scan D: advance the running decision values and find the rows that violate the KKT conditions.

One pass gives the violators, the primal objective P and the dual objective D. Knows nothing of
files, solvers or the command line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

import randsvm.svm._survey as _survey
from randsvm.data.dataset import Shard
from randsvm.data.sampling import Draw, Draws, Smallest
from randsvm.kernels.expansion import (
    Expansion,
)
from randsvm.svm.collectors import Candidates, Collector, Seen, Steepest, collected
from randsvm.svm.offset import Bends, Window
from randsvm.svm.running import RunningValues
from randsvm.svm.solution import SV, Certificate, Step
from randsvm.svm.working_set import Choice, WorkingSet

Report = TypeVar("Report", bound=Any)

# A closing evaluation leaves alone what is this many tolerances beyond the margin.
FAR = 50
# Up to so many kernel values are computed in float64 in any case.
SMALL = 50_000_000
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


class Scan(RunningValues):
    """Passes over D, and the running values that they advance. One for each problem over D."""

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
        self.put(points.rows, step.beta)
        at = np.flatnonzero(step.beta != points.beta)
        support = self.support()
        if len(at) < len(support):
            self.advance(points.X[at], step.beta[at] - points.beta[at])
        else:
            self._afresh(support)
        return len(at)

    def look(self, collector: Collector, tolerance: float | None = None) -> tuple[SV, Violators]:
        """The solution as it is, and V."""
        tolerance = self.problem.tolerance if tolerance is None else tolerance
        window = self._first_window() if math.isinf(self.width) else self._window()
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
        support = self.support()
        same = np.array_equal(solution.rows, support) and np.array_equal(
            solution.beta, self.beta_of(support)
        )
        far = FAR * self.problem.tolerance if same and solution.unbounded.any() else None
        # New arrays: threads of a scan that was broken off may still write to the old ones.
        self.u = [part.copy() for part in self.u]
        self.beta = [np.zeros(len(part)) for part in self.u]
        self.put(solution.rows, solution.beta)
        self.b = solution.b
        exact = replace(self.space, dtype=np.float64)
        self.run_pass(Expansion(self.space, points.X, solution.beta), fresh=True, far=far)
        self.exact = Expansion(exact, points.X, solution.beta).values(self.audit.X)
        small = len(solution) * self.D.n <= SMALL
        if self.space.dtype is np.float32 and (small or self.rounding_shows()):
            self.run_pass(Expansion(exact, points.X, solution.beta), fresh=True, far=far)
        found, V = self.look(Steepest(0, Draw(0, 0)))
        seconds = time.perf_counter() - began
        V = replace(V, changed=len(solution), seconds=seconds, full_scan_seconds=seconds)
        return replace(found, points=points), V

    def completed(self, SV: SV) -> SV:
        """The same with the rows of its support vectors."""
        return replace(SV, points=self.points(SV.rows)) if SV.points is None else SV

    def _window(self) -> Window:
        return Window.around(self.b, self.width)

    def _first_window(self) -> Window:
        """Around the offset of least P over the audit rows: bends of all rows take memory."""
        audit = self.audit
        u, beta, m = self.at(self.u, audit.rows), self.beta_of(audit.rows), len(audit)
        at, jump = np.empty(2 * m), np.empty(2 * m)
        _, _, slope, bends, _ = _survey.sums(
            audit.y, u, beta, *self._box(), -np.inf, np.inf, at, jump, np.empty(m, np.int32)
        )
        some = Bends(slope, [at[:bends]], [jump[:bends]])
        b = some.minimum(self.task.total * m / self.D.n, Window.around(0.0, np.inf))
        self.b = b or 0.0
        self.width = float(np.ptp(at[:bends])) / 16 if bends else 1.0
        return self._window()

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
            Bends(slope, [at[:bends].copy()], [jump[:bends].copy()]),
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
