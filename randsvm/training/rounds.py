"""Rounds of solve and scan: one algorithm on one subtask, from the first solve to the evaluation.

reduction.py and warm_start.py work on the scan of these rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from randsvm.algorithms.decomposition import Decomposition, Start, empty_step
from randsvm.arrays import distinct, median
from randsvm.data.regrouping import copy_rows_to_chunks
from randsvm.data.sampling import Draws
from randsvm.errors import ClusterError, Interrupted, ParameterError
from randsvm.events import Iteration
from randsvm.parallel import Cancelled
from randsvm.parameters.option import command_line
from randsvm.parameters.rounds import OsunaParams, RandsvmParams, StopParams
from randsvm.parameters.svm import Problem
from randsvm.svm.libsvm import remedy
from randsvm.svm.running_values import ValuesQuery
from randsvm.svm.scan import Scan, Violators, least_norm
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine
from randsvm.svm.subproblem import memory_of
from randsvm.training.clock import RESERVED_SECONDS, Clock, TimeLimitError
from randsvm.training.job import Job
from randsvm.training.multiclass import Subtask, Subtasks
from randsvm.training.stopping import (
    Record,
    Rule,
    Stopped,
    StopReason,
    Tighten,
    few_violators,
    first_answer,
    gap_reached,
    iterations,
    no_margin,
    no_progress,
    no_violators,
    time_limit,
)

if TYPE_CHECKING:
    from randsvm.training.reduction import SubtaskReduction

# A gap below this takes float64 from the start: float32 rounds P by about 1e-6.
FLOAT64_GAP = 3e-5
# If the evaluated gap is above the one asked for, the run continues until the gap of the running
# values is below its former target times this factor, at most MAX_CONTINUATIONS times. After
# FLOAT32_CONTINUATIONS of them it continues in float64: rounding may have made the
# gap look smaller than it is.
TARGET_FACTOR, FLOAT32_CONTINUATIONS, MAX_CONTINUATIONS = 0.5, 2, 8
# A closing evaluation may take this many times as long as the last scan predicts.
EVALUATION_FACTOR = 1.25
# Another solution with a higher D is evaluated if D rises by more than this part of the distance.
NEGLIGIBLE_GAIN = 0.01
# A reduced machine with a larger gap says too little about the rows outside of an inner set.
MAX_REDUCED_GAP = 0.1
# An interrupted run evaluates the solution of an inner set if that takes less than these seconds.
INTERRUPTED_SECONDS = 1.0
# Rounds over some rows end at this share of the gap that is asked for over all rows: the losses of
# the other rows may raise the gap.
PART_GAP_SHARE = 0.9

# A certificate bounds the distance from the optimum. With features on large scales or an unsuitable
# gamma, the optimum itself fits rows poorly that it was not trained on.
OVERFITTED = (
    "nearly every row is a support vector and is fitted by its own coefficient alone, since kernel "
    "values between rows are almost 0: the model is overfitted, however small its gap is; "
    "try --scale standard, -g scale or a smaller -g"
)
CONSTANT_DECISION = (
    "all rows have nearly the same decision value, since kernel values hardly differ: the model "
    "predicts a constant, however small its gap is; try --scale standard, -g scale, a larger -g or "
    "a larger -c"
)
POOR_FIT_NOTICES = (OVERFITTED, CONSTANT_DECISION)

# At least this part of the rows of a memorised data set are support vectors, except for a
# regression, whose tube may hold some rows. Noisy data has fewer: a9a 37%, covtype 58%.
MEMORISED_PART = 0.95
# All other rows together contribute at most this much to f of a memorised row, relative to its own
# coefficient; medians. Measured: up to 0.16 for digits, wine and others unscaled at gamma = 1/d,
# where held-out rows are predicted badly; at least 0.6 for random labels, and for regressions with
# a tube of 0, of which every row is a support vector as well.
MAX_CONTRIBUTION = 0.2
# f is constant if its spread relative to the margin is below this.
MIN_SPREAD = 1e-3
# With fewer rows, nearly all rows are support vectors of good models as well.
MIN_ROWS = 100


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm with its options resolved for the data.

    solve: the algorithm
    r: the number of rows of its working sets
    freezes: whether coefficients outside of a working set keep their values; otherwise they are 0
    options: the parameters of the algorithm and the user's limits
    rules: stop rules besides V = 0 and the user's limits
    notices: messages for the user
    warm_start: makes the first step in place of a random working set
    parts: whether it also solves problems over some of the rows, which share the memory
    """

    name: str
    solve: Callable[[Decomposition], KernelSolution]
    r: int
    freezes: bool
    options: tuple[RandsvmParams | OsunaParams, StopParams]
    rules: list[Rule] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    warm_start: Start | None = None
    parts: bool = False

    @property
    def arguments(self) -> list[str]:
        """The options as on a command line."""
        return command_line(*self.options)

    def working_set(self, subtasks: Subtasks) -> int:
        """Return the largest number of rows of a working set."""
        return min(self.r, subtasks.max_rows)

    def solve_bytes(self, subtasks: Subtasks) -> int:
        """Return the bytes of memory that a subproblem may take.

        Raises ParameterError if that is more than the run may use.
        """
        rows, D = self.working_set(subtasks), subtasks.D
        frozen = rows < subtasks.max_rows and self.freezes
        nonzeros, memory = D.nnz / max(D.n, 1), subtasks.resources.memory
        return memory_of(rows, nonzeros, subtasks.problem, frozen, memory)


@dataclass
class BestSolution:
    """The solutions with the lowest P, and with the highest D, of all rounds, by running values.

    P - D bounds the distance of that solution from the optimum. P does not fall monotonically.

    dual_solution: the one with the highest D; None: no round over these rows had it
    last_primal: P of the newest solution
    least: objectives below it count as 0 in the gap; see Certificate
    """

    solution: KernelSolution | None = None
    dual_solution: KernelSolution | None = None
    primal: float = inf
    dual: float = -inf
    last_primal: float = inf
    certified: bool = True
    least: float = 0.0

    def update(self, SV: KernelSolution, V: Violators) -> None:
        """Take the solution of a new round into account."""
        certificate = V.certificate
        if certificate.dual > self.dual:
            self.dual, self.dual_solution = certificate.dual, SV
        self.certified, self.last_primal = certificate.certified, certificate.primal
        self.least = certificate.least
        # For a kernel without a certificate P is no guide: the newest solution is the best. So is
        # one within its bounds, after an initial estimate that is not.
        estimated = self.solution is not None and not self.solution.within_bounds
        if certificate.primal <= self.primal or not certificate.certified or estimated:
            self.solution, self.primal = SV, certificate.primal

    @property
    def certificate(self) -> Certificate:
        return self._of(self.primal)

    @property
    def last_certificate(self) -> Certificate:
        """The certificate of the newest solution."""
        return self._of(self.last_primal)

    def _of(self, primal: float) -> Certificate:
        return Certificate(primal, self.dual, self.certified, self.least)

    @property
    def last_gap(self) -> float:
        return self.last_certificate.gap


@dataclass(frozen=True)
class SubtaskSolution:
    """The solution of one subtask.

    violators: their number; None: they were not counted
    evaluated: whether the certificate comes from a closing evaluation of the solution
    poor_fit: why the model fits other rows poorly; None: no reason was found
    """

    SV: KernelSolution
    certificate: Certificate
    violators: int | None
    evaluated: bool
    stopped: Stopped
    poor_fit: str | None = None

    @staticmethod
    def constant(subtasks: Subtasks, number: int, stopped: Stopped) -> SubtaskSolution:
        """Return a constant decision value for a subtask that has not been solved."""
        SV, certificate = subtasks.constant_solution(number)
        return SubtaskSolution(SV, certificate, None, False, stopped)

    def in_whole(self, task: Subtask) -> SubtaskSolution:
        """Return this solution with the row numbers of the whole D."""
        return replace(self, SV=task.in_whole(self.SV))


def total_certificate(certificates: Sequence[Certificate]) -> Certificate:
    """Return the sum of the certificates of several subtasks."""
    names = "primal", "dual", "least", "primal_error", "dual_error", "largest_distance"
    primal, dual, *others = (sum(getattr(one, name) for one in certificates) for name in names)
    return Certificate(primal, dual, all(one.certified for one in certificates), *others)


def count_bounded(solutions: Sequence[KernelSolution]) -> int:
    """Return the number of rows that are at a bound in any of the solutions."""
    return len(distinct(np.concatenate([one.rows[~one.unbounded] for one in solutions])))


Machine = TypeVar("Machine", bound=KernelSolution)


@dataclass
class Rounds:
    """One algorithm on one subtask.

    clock: receives each round, and interrupts it
    end: the moment when the subtask's share of the time is over
    earlier_rounds: the number of rounds of earlier subtasks
    memory_shares: the number of such runs that share the memory
    count, solve_seconds: the number of rounds, and the seconds of all their solves
    scan_seconds: the seconds that a scan of all support vectors takes
    parent: the Rounds over all rows, if this object solves the problem of some of the rows; P of
        this object then counts these rows only. None: this object is over all rows
    gives_dual: whether the dual objective over these rows also bounds the optimum over all rows
    inner: the newest solution of a part with `gives_dual`; None: there is none
    reduced_gap: with --reduce, the gap that was asked for; None: there is no such gap
    reduced_machine: the reduced machine that takes the place of `inner`; None: there is none
    record, stopped: the numbers that stop rules see, and the reason that ended the rounds
    """

    task: Subtask
    algorithm_spec: AlgorithmSpec
    job: Job
    clock: Clock = field(default_factory=Clock)
    end: float = inf
    earlier_rounds: int = 0
    memory_shares: int = 1
    best: BestSolution = field(default_factory=BestSolution)
    count: int = 0
    solve_seconds: float = 0.0
    scan_seconds: float = 0.0
    parent: Rounds | None = None
    gives_dual: bool = False
    inner: KernelSolution | None = None
    reduced_gap: float | None = None
    reduced_machine: ReducedMachine | None = None

    def __post_init__(self) -> None:
        self.gap_target, self.continuations = self.job.stop.wanted_gap or 0.0, 0
        shares = self.memory_shares * (2 if self.algorithm_spec.parts or self.parent else 1)
        layout_bytes = self.job.resources.layout_bytes // shares
        float64 = (self.job.stop.wanted_gap or 1.0) < FLOAT64_GAP
        self.scan = Scan(self.task.D, self.task.problem, self.job.run.seed, layout_bytes, float64)
        if not self.task.name:
            self.scan.only_gap = self.job.stop.wanted_gap
        nu_svc = self.task.problem.task == "nu-svc"
        self.least_norm = least_norm(self.scan) if nu_svc else None

    def run(self, latest: float) -> tuple[KernelSolution, Stopped]:
        """Make the rounds that there is time for; return the solution, and why they ended.

        The last solution is returned if it has no violators or the gap that was asked for, or if
        its values showed a worse combination, and the one of lowest P otherwise. Raises
        TimeLimitError if there is no solution at the moment `latest`.
        """
        self.latest = latest
        self.record = Record(self.task.problem.tolerance, rounds=self.count)
        self.stopped = Stopped(StopReason.NO_VIOLATORS)
        rng, spec = Draws(self.job.run.seed), self.algorithm_spec
        run = Decomposition(
            self.scan,
            rng,
            self,
            self._watch,
            self._solve_part,
            self._in_place_of,
            spec.warm_start,
        )
        try:
            with self.clock.until(lambda: latest if self.best.solution is None else self.deadline):
                last = spec.solve(run)
        except TimeLimitError:
            if self.best.solution is None:
                raise
            return self.best.solution, Stopped(StopReason.TIME_LIMIT)
        reason = self.stopped.reason
        is_solved = reason in (StopReason.NO_VIOLATORS, StopReason.GAP_REACHED)
        is_judged = reason is StopReason.WORSE_COMBINATION
        SV = last if is_solved or is_judged else self.best.solution
        assert SV is not None
        if reason is StopReason.NO_MARGIN and self.best.certified:
            raise self._no_margin
        if is_solved and self.least_norm is not None and not SV.has_margin:
            raise self._no_margin
        return SV, self.stopped

    def _solve_part(
        self,
        rows: np.ndarray,
        solve: Callable[[Decomposition], KernelSolution],
        start: Start | None = None,
        *,
        factor: float = 1.0,
        gap: float | None = None,
    ) -> KernelSolution:
        """Run an algorithm over some rows alone, as decomposition.PartSolver promises."""
        job, resources, limits = self.job, self.job.resources, self.job.stop
        if limits.wanted_gap is not None:
            limits = replace(limits, gap=gap or PART_GAP_SHARE * self.gap_target)
        room = max(0, resources.data_bytes - self.task.D.store.resident_bytes)
        D = copy_rows_to_chunks(self.task.D, rows, room // self.memory_shares, resources.tmpdir)
        task = Subtask(D, self.task.problem.with_bounds_times(factor), self.task.name)
        spec = replace(self.algorithm_spec, solve=solve, warm_start=start, parts=False)
        part = Rounds(
            task,
            spec,
            replace(job, stop=limits),
            self.clock,
            self.end,
            self.earlier_rounds + self.count,
            self.memory_shares,
            parent=self,
            gives_dual=factor == 1,
        )
        try:
            SV, _ = part.run(self.latest if self.best.solution is None else self.deadline)
            found = part.over(rows, SV)
            if part.gives_dual:
                self.inner, self.reduced_machine = found, None
                if self.reduced_gap is not None:
                    self.reduced_machine = part.reduced(SV, rows, self.reduced_gap)
            return found
        except Interrupted:
            if part.gives_dual and part.best.solution is not None:
                self.inner = part.over(rows, part.best.solution)
            raise
        finally:
            self.count += part.count
            self.record = replace(self.record, rounds=self.record.rounds + part.count)
            self.solve_seconds += part.solve_seconds
            part.scan.forget()
            D.executor.release()
            D.store.close()

    def reduced(self, SV: KernelSolution, rows: np.ndarray, gap: float) -> ReducedMachine | None:
        """Return a reduced machine for the solution of the problem of some rows, with their row
        numbers in all of D; None: the solution is as small, or the machine too coarse."""
        # Lowering P takes longer than the scans that a few support vectors less save.
        lowers = self.job.stop.reduced_size is not None
        machine, _, _ = self.reduce(SV, gap * PART_GAP_SHARE, lowers=lowers)
        if not isinstance(machine, ReducedMachine) or machine.gap > MAX_REDUCED_GAP:
            return None
        return self.over(rows, machine)

    def reduce(
        self,
        SV: KernelSolution,
        gap: float | None,
        certificate: Certificate | None = None,
        lowers: bool = True,
    ) -> tuple[KernelSolution, Certificate, SubtaskReduction]:
        """Return a machine with fewer support vectors, its certificate, and the changes.

        SV: a solution of `run`. certificate: that of its evaluation, whose values the scan holds;
        None: it was not evaluated, so certificates are of running values. gap, lowers: see
        reduction.Reduction.
        """
        from randsvm.training.reduction import Reduction

        job, best = self.job, self.best
        evaluated = certificate is not None
        if certificate is None:
            self.scan.return_to(SV)
            certificate = best.certificate if SV is best.solution else best.last_certificate
        size, seed = job.stop.reduced_size, job.run.seed
        found = Reduction(self.scan, SV, certificate, size, gap, seed, lowers).run()
        if not evaluated or not isinstance(found[0], ReducedMachine):
            return found
        machine, V = self.scan.evaluate(found[0])
        return machine, self._with_dual_of(V.certificate, SV), found[2]

    def _in_place_of(self, solution: KernelSolution) -> KernelSolution:
        """Return the machine to scan all rows with, as decomposition.ReplaceSolution promises."""
        return self.reduced_machine or solution

    def over(self, rows: np.ndarray, SV: Machine) -> Machine:
        """Return a solution of the problem of some rows with their row numbers in all of D."""
        points = self.scan.completed(SV).points
        assert points is not None
        return replace(SV, rows=rows[SV.rows], points=replace(points, rows=rows[points.rows]))

    def evaluated(self, SV: KernelSolution, stopped: Stopped) -> SubtaskSolution | None:
        """Return the solution of `run` with the certificate of a closing evaluation.

        Without time for the evaluation the certificate is that of the running values. None: the
        gap is above the one asked for, and a further `run` continues from this solution.
        """
        end = self.end + RESERVED_SECONDS
        try:
            with self.clock.until(lambda: end):
                if time.perf_counter() + self.scan_seconds > end:
                    raise TimeLimitError
                SV, V = self.scan.evaluate(SV)
        except TimeLimitError:
            return self.unevaluated(SV, stopped)
        # Without time for another D, the evaluation has its own.
        with suppress(TimeLimitError), self.clock.until(lambda: end):
            V = replace(V, certificate=self._with_best_dual(SV, V.certificate))
        if self._should_continue(SV, V, stopped):
            self.algorithm_spec = replace(self.algorithm_spec, warm_start=empty_step)
            self.best = BestSolution()
            self.best.update(SV, V)
            return None
        ends = StopReason.NO_VIOLATORS, StopReason.GAP_REACHED
        if stopped.reason in ends and self._misses_gap(V) and SV.within_bounds:
            stopped = Stopped(StopReason.PRECISION_LIMIT)
        poor_fit = poor_fit_reason(self.scan, SV)
        count = V.count if SV.within_bounds else None
        return SubtaskSolution(SV, V.certificate, count, True, stopped, poor_fit)

    def _with_best_dual(self, SV: KernelSolution, evaluated: Certificate) -> Certificate:
        """Return the certificate with D of the best solution, if it lowers the gap.

        Each D bounds the optimum from below.
        """
        best = self.best.dual_solution if SV.within_bounds else self.inner
        gains = self.best.dual - evaluated.dual
        if best is None or not evaluated.certified or SV.has_coefficients_of(best):
            return evaluated
        if SV.within_bounds and gains <= NEGLIGIBLE_GAIN * evaluated.largest_distance:
            return evaluated
        other = self._with_dual_of(evaluated, best)
        return min(other, evaluated, key=lambda one: one.gap)

    def _with_dual_of(self, evaluated: Certificate, solution: KernelSolution) -> Certificate:
        """Return the certificate with D of another solution, computed in float64."""
        return evaluated.with_dual(*self.scan.dual_of(solution))

    def _should_continue(self, SV: KernelSolution, V: Violators, stopped: Stopped) -> bool:
        """Return whether further rounds may reach the gap that the evaluation did not find.

        They may where the running values showed too small a gap, or where float32 was the limit.
        """
        gap = self.job.stop.wanted_gap
        if gap is None or not self._misses_gap(V) or self.continuations == MAX_CONTINUATIONS:
            return False
        if not SV.within_bounds:
            return False
        if V.certificate.gap == inf:
            # More rounds do not lower the rounding of float64.
            return self.scan.refine()
        self.continuations += 1
        if stopped.reason is StopReason.GAP_REACHED:
            self.gap_target *= TARGET_FACTOR
            if self.continuations > FLOAT32_CONTINUATIONS:
                self.scan.refine()
            return True
        limits = StopReason.NO_VIOLATORS, StopReason.NO_PROGRESS
        return stopped.reason in limits and self.scan.refine()

    def _misses_gap(self, V: Violators) -> bool:
        gap = self.job.stop.wanted_gap
        return gap is not None and V.certificate.gap > gap

    def interrupted(self, stopped: Stopped) -> SubtaskSolution | None:
        """Return the best solution so far; None: there is none.

        The solution of an inner set replaces an estimate beyond the bounds, if all rows can be
        scanned with it in time.
        """
        if self.best.solution is None:
            return None
        if self.inner is not None and not self.best.solution.within_bounds:
            end = time.perf_counter() + INTERRUPTED_SECONDS
            late = TimeLimitError, Interrupted, ClusterError, Cancelled
            with suppress(*late), self.clock.until(lambda: end):
                self.best.update(*self.scan.examine(self.inner))
        return self.unevaluated(self.best.solution, stopped)

    def unevaluated(self, SV: KernelSolution, stopped: Stopped) -> SubtaskSolution:
        """Return the best or the last solution with the certificate of the running values."""
        best = self.best
        certificate = best.certificate if SV is best.solution else best.last_certificate
        return SubtaskSolution(self.scan.completed(SV), certificate, None, False, stopped)

    @property
    def _no_margin(self) -> ParameterError:
        """The error for -s nu-svc whose optimum has rho <= 0."""
        between = f" between {self.task.name}" if self.task.name else ""
        return ParameterError(f"nu-svc finds no margin{between}: the classes overlap, raise nu")

    def _watch(self, SV: KernelSolution, V: Violators) -> None:
        """Report a round."""
        self.count += 1
        self.solve_seconds += V.step.seconds
        self.scan_seconds = V.full_scan_seconds
        self.best.update(SV, V)
        whole = self.parent.best if self.parent is not None and self.gives_dual else self.best
        if self.best.dual > whole.dual:
            whole.dual, whole.dual_solution = self.best.dual, None
        event = Iteration(
            number=self.earlier_rounds + self.count,
            seconds=self.clock.seconds,
            solve_seconds=V.step.seconds,
            working_set=len(V.step.points),
            frozen=len(SV) - V.inside,
            support_vectors=len(SV),
            bounded=SV.bounded_count,
            violators=V.count,
            changed=V.changed,
            scan_seconds=V.seconds,
            gap=self.best.certificate.gap,
            bytes_read=self.task.D.bytes_read,
            bytes_moved=self.task.D.executor.bytes_moved,
            **self.task.D.executor.cluster_times._asdict(),
            machine=self.task.name,
            primal=V.certificate.primal,
            dual=V.certificate.dual,
            inner_set=0 if self.parent is None else self.task.D.n,
        )
        # Not by `emit`, which may raise TimeLimitError: at the end of a round the stop rules ask
        # for the time.
        self.clock.watch(event)

    @property
    def tolerance(self) -> float:
        """The tolerance of the KKT conditions in the next round."""
        return self.record.tolerance

    def __call__(self, SV: KernelSolution, V: Violators) -> bool:
        """Return whether the run ends after this round, as decomposition.Stop promises."""
        self.record = self.record.after(
            support_vectors=len(SV),
            violators=V.count,
            violation=V.max_violation,
            gap=self.best.last_gap,
            seconds_left=self.deadline - time.perf_counter(),
            dual=V.certificate.dual,
            whole=len(V.step.points) >= self.scan.training_rows,
            steps=V.step.iterations,
        )
        answer = first_answer(self._rules(SV), self.record)
        if isinstance(answer, Tighten):
            self.record = self.record.tightened()
        if isinstance(answer, Stopped):
            self.stopped = answer
        return isinstance(answer, Stopped)

    def _rules(self, SV: KernelSolution) -> list[Rule]:
        """Return the stop rules after a round with this solution, by priority."""
        limits = self.job.stop
        gap = limits.wanted_gap
        own = [] if gap is None else [gap_reached(gap, self._target(SV))]
        own += [] if limits.max_iterations is None else [iterations(limits.max_iterations)]
        if self.least_norm is not None:
            own.append(no_margin(self.least_norm))
        advice = remedy(self.scan.problem)
        ends = [no_violators(gap is not None), no_progress(gap is not None, advice)]
        if gap is not None:
            ends.insert(0, few_violators(self.algorithm_spec.r))
        return [*self.algorithm_spec.rules, *own, time_limit, *ends]

    def _target(self, SV: KernelSolution) -> float:
        """Return the gap of running values that ends the rounds with this solution.

        A reduced machine has its own gap on the inner set. The losses of other rows may raise it.
        """
        if not isinstance(SV, ReducedMachine) or self.reduced_gap is None:
            return self.gap_target
        return SV.gap + (1 - PART_GAP_SHARE) * self.reduced_gap

    @property
    def deadline(self) -> float:
        """The moment after which no round may begin, since the closing evaluation needs time.

        The evaluation scans every support vector; the last scan predicts the seconds that it takes.
        """
        seconds = EVALUATION_FACTOR * self.scan_seconds
        if self.parent is not None:
            # All rows are scanned with this solution, and evaluated.
            seconds *= 2 * self.parent.task.D.n / self.task.D.n
        return self.end - seconds - RESERVED_SECONDS


def poor_fit_reason(scan: Scan, solution: KernelSolution) -> str | None:
    """Return why a solution fits other rows poorly, by the audit rows; None: no reason was found.

    scan: its running values must be those of the solution
    """
    audit, problem = scan.audit, scan.problem
    if not len(solution) or problem.kernel == "precomputed":
        return None
    u = np.concatenate(scan.ask(ValuesQuery(audit.rows)))
    if problem.prediction_type != "one-class" and np.ptp(u) < MIN_SPREAD * _margin(
        problem, solution, audit.y
    ):
        return CONSTANT_DECISION
    nearly_all = len(solution) >= MEMORISED_PART * scan.D.n or problem.prediction_type == "svr"
    if problem.kernel != "rbf" or scan.D.n < MIN_ROWS or not nearly_all:
        return None
    beta = scan.coefficients.of(audit.rows)
    others = u - beta  # K(x, x) = 1
    typical = median(np.abs(others - median(others)))
    return OVERFITTED if typical < MAX_CONTRIBUTION * median(np.abs(beta)) else None


def _margin(problem: Problem, solution: KernelSolution, y: np.ndarray) -> float:
    """Return the distance of the margin from f = 0; for a regression, the deviation of y."""
    if problem.prediction_type == "svr":
        return float(np.std(y))
    return abs(solution.tube) if problem.task == "nu-svc" else 1.0
