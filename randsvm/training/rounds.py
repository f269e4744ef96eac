"""The loop over rounds of one binary problem: solve a working set, scan all rows, decide to end.

The closing evaluation certifies the last solution."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isinf, nan
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from randsvm.algorithms import randsvm
from randsvm.algorithms.decomposition import (
    Decomposition,
    Scans,
    Start,
    in_float64,
    osuna,
    rounds_of_whole,
    unchanged,
)
from randsvm.algorithms.randsvm import inner_set_pays
from randsvm.arrays import distinct
from randsvm.data.sampling import Draws
from randsvm.errors import InfeasibleError, ParameterError
from randsvm.events import Iteration, Notice, emit, listening
from randsvm.parameters.option import command_line, require
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.parameters.svm import Problem
from randsvm.records import record
from randsvm.svm.kernel_layout import MAX_MATRIX_ROWS
from randsvm.svm.libsvm import remedy
from randsvm.svm.scan import Scan, ScanResult, least_norm
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine
from randsvm.svm.subproblem import memory_of
from randsvm.svm.working_set import file_order, largest_violation
from randsvm.training.job import RESERVED_SECONDS, Clock, Job, Stopped, StopReason, TimeLimitError
from randsvm.training.subtasks import Subtask, Subtasks
from randsvm.training.transcript import TranscriptArrays, transcript_of

if TYPE_CHECKING:
    from randsvm.algorithms.reduced_set import SubtaskReduction


# A round makes progress if it raises D by this factor of |D|, lowers the largest violation, or
# lowers the gap to this factor of the lowest one so far.
MIN_DUAL_GAIN = 1e-9
LOWER_GAP_FACTOR = 0.99
# A run ends after this number of rounds in a row without progress.
MAX_IDLE_ROUNDS = 5
# A tighter tolerance is this part of the one before, down to what float64 can resolve.
TIGHTEN_FACTOR = 0.1
MIN_TOLERANCE = 1e-13
# With a gap the tolerance also tightens as soon as the violators are fewer than this share of a
# working set: otherwise rounds of few rows follow that hardly lower the gap. Rounds and changed
# coefficients until a gap of 0.1%:
#                                             without         with
#     arm of 8 joints, 36,000 rows            129  104,521    96   92,573
#     Friedman's function, 20,000 rows        227  168,317    186  156,485
#     svmguide1                               33   17,766     18   13,647
# Shares of 0.3 and 1 give nearly the same numbers.
FEW_VIOLATORS_SHARE = 0.5


# The certificate before the first round.
UNKNOWN = Certificate(inf, -inf)


@dataclass
class History:
    """The numbers of the rounds so far, and the best solutions.

    P and D are those of the scans: the rounding of the running values is not bounded.

    rounds: the number of rounds over these rows
    scan_seconds: the seconds that a scan of all support vectors takes
    solution, primal: the solution with the lowest P, which does not fall monotonically
    dual_solution, dual: the solution with the highest D; None: no round over these rows had it.
        P - D bounds the distance of `solution` from the optimum
    last: the certificate of the last solution, with its own D
    support_vectors, violators: their numbers after the last round
    violation: the smallest max_violation of all rounds at this tolerance
    progress_gap: the last gap that counted as progress: it was below LOWER_GAP_FACTOR times
        the one before it
    idle: the number of rounds in a row without progress at this tolerance
    """

    rounds: int = 0
    scan_seconds: float = 0.0
    solution: KernelSolution | None = None
    primal: float = inf
    dual_solution: KernelSolution | None = None
    dual: float = -inf
    last: Certificate = UNKNOWN
    support_vectors: int = 0
    violators: int = 0
    violation: float = inf
    progress_gap: float = inf
    idle: int = 0

    def certificate(self, primal: float) -> Certificate:
        """Return a certificate of this P and the highest D."""
        return Certificate(primal, self.dual, self.last.certified, self.last.floor)

    @property
    def gap_of_last(self) -> float:
        """The gap between P of the last solution and the highest D of any round; nan for a kernel
        without a certificate.

        It decides when the rounds end. They report the gap of the lowest P, which may be smaller.
        """
        return self.certificate(self.last.primal).gap

    def add_solution(self, SV: KernelSolution, certificate: Certificate) -> None:
        """Take a solution into account."""
        self.last = certificate
        if certificate.dual > self.dual:
            self.dual, self.dual_solution = certificate.dual, SV
        # For a kernel without a certificate P is no guide: the last solution is the best.
        if certificate.primal <= self.primal or not certificate.certified:
            self.solution, self.primal = SV, certificate.primal

    def add_round(self, SV: KernelSolution, V: ScanResult) -> None:
        """Take a round into account."""
        before = self.dual
        self.rounds += 1
        self.scan_seconds = V.full_scan_seconds
        self.support_vectors, self.violators = len(SV), V.count
        self.add_solution(SV, V.certificate)
        lower = self.gap_of_last < LOWER_GAP_FACTOR * self.progress_gap
        gains = V.certificate.dual - before > MIN_DUAL_GAIN * abs(V.certificate.dual)
        progress = lower or gains or V.max_violation < self.violation
        self.progress_gap = self.gap_of_last if lower else self.progress_gap
        self.violation = min(self.violation, V.max_violation)
        self.idle = 0 if progress else self.idle + 1

    def tighten(self) -> None:
        """Forget the violations and idle rounds at the former tolerance."""
        self.violation, self.idle = inf, 0


class RoundLimits(NamedTuple):
    """The limits that end the rounds of a run.

    few_violators: fewer are not worth a round at the same tolerance
    advice: what the user may change if rounds make no progress
    gap_asked: None: no gap ends the run
    gap_target: the gap of running values at which the closing evaluation is expected to find
        `gap_asked`
    support_vectors: KBH07's bound k; None: there is no such bound
    rounds: the most rounds; None: any number
    least_norm: for -s nu-svc, the |w|^2 at which no machine is left; None: another task
    """

    few_violators: float
    advice: str
    gap_asked: float | None = None
    gap_target: float = 0.0
    support_vectors: int | None = None
    rounds: int | None = None
    least_norm: float | None = None


def decide(
    history: History, limits: RoundLimits, tolerance: float, seconds_left: float
) -> Stopped | float | None:
    """Return why the rounds end after this one, or a tighter tolerance for further rounds.

    It rules the rounds of every algorithm, over all rows, an inner set or the rows of a fold. None:
    they go on as they are. tolerance: of the KKT conditions so far. seconds_left: the time
    left for further rounds.
    """
    gap, k = limits.gap_asked, limits.support_vectors
    if k is not None and history.support_vectors >= k:
        return Stopped(StopReason.SUPPORT_BOUND, (history.support_vectors, k))
    if gap is not None and history.gap_of_last <= limits.gap_target:
        return Stopped(StopReason.GAP_REACHED, (gap,))
    if limits.rounds is not None and history.rounds >= limits.rounds:
        return Stopped(StopReason.ITERATION_LIMIT)
    # Where classes overlap by more than the support vectors of a nu-SVC allow, D = -1/2 |w|^2 goes
    # to 0: LIBSVM divides by 0 and returns a machine of infinite C.
    if limits.least_norm is not None and -2 * history.dual <= limits.least_norm:
        return Stopped(StopReason.NO_MARGIN)
    if seconds_left <= 0:
        return Stopped(StopReason.TIME_LIMIT)
    # Only a tighter tolerance lowers a gap that is asked for and not reached without violators.
    tighter = tolerance * TIGHTEN_FACTOR
    may_tighten = gap is not None and tighter >= MIN_TOLERANCE
    if not history.violators:
        return tighter if may_tighten else Stopped(StopReason.NO_VIOLATORS)
    if history.violators < limits.few_violators and may_tighten:
        return tighter
    if history.idle < MAX_IDLE_ROUNDS:
        return None
    # A few rows near the tolerance may violate it in turn while the gap does not fall.
    return tighter if may_tighten else Stopped(StopReason.NO_PROGRESS, (limits.advice,))


# A gap below this takes float64 from the start: float32 rounds P by about 1e-6.
FLOAT64_GAP = 3e-5
# If the evaluated gap is above the one asked for, the run continues until the gap of the running
# values is at most the next target, at most MAX_CONTINUATIONS times:
#     excess = evaluated gap - gap of the running values
#     next target = max(TARGET_FACTOR * last target, gap asked for - EXCESS_FACTOR * excess)
# After FLOAT32_CONTINUATIONS of them the run continues in float64: rounding may have made the gap
# look smaller than it is. Measured on 100,000 rows of covtype, where the evaluation adds 0.005% to
# the gap: 2 further rounds, and 8 with half of the former target.
EXCESS_FACTOR, TARGET_FACTOR, FLOAT32_CONTINUATIONS, MAX_CONTINUATIONS = 1.5, 0.5, 2, 8
# The reasons with which the last solution is the one that was asked for.
SOLVED = StopReason.NO_VIOLATORS, StopReason.GAP_REACHED
# After an evaluation that misses the gap, the rounds may continue if they made no progress, or if
# the evaluation replaced a reason in SOLVED. After a limit they do not.
CONTINUED = StopReason.GAP_NOT_PROVEN, StopReason.NO_PROGRESS
# A closing evaluation may take this many times as long as the last scan predicts.
EVALUATION_FACTOR = 1.25
# Another solution with a higher D is evaluated if D rises by more than this part of the distance.
NEGLIGIBLE_GAIN = 0.01
# A reduced machine with a larger gap says too little about the rows outside of an inner set.
MAX_REDUCED_GAP = 0.1
# The closing evaluation of an interrupted run may take these seconds.
INTERRUPTED_SECONDS = 1.0
# Rounds over some rows end at this share of the gap that is asked for over all rows: the losses of
# the other rows may raise the gap.
PART_GAP_SHARE = 0.9

# The fewest rows of a working set of a nu task: two of each side.
MIN_NU_ROWS = 4

# Which violators a decomposition swaps in first: Osuna et al., and Mostefaoui and Zaou.
ORDERS = {"osuna": file_order, "osuna-closest": largest_violation}

FORMULA_FOR_K = (
    "the formula for k assumes rows of length 1 in feature space, which only the rbf kernel "
    "guarantees"
)


@record
class Algorithm:
    """An algorithm with its options, for n rows of a problem.

    params: the options of the algorithm alone
    nonzeros: the mean number of nonzeros of a row
    """

    name: str
    params: RandsvmParams | OsunaParams
    job: Job
    n: int
    nonzeros: float
    problem: Problem

    @cached_property
    def as_published(self) -> RandsvmParams | None:
        """The k and r of KBH07's Algorithm 1 as in the paper; None: another algorithm runs.

        Algorithm 1 runs if no gap ends the run. Tasks whose coefficients have a sum other than 0
        cannot have the coefficient 0 in all rows outside of the working set. A precomputed kernel
        that may be indefinite has no default gap. As Algorithm 1 takes k^2 values of memory, it
        runs there only if the user chose k, or chose to have no gap.
        """
        params, problem = self.params, self.problem
        if not isinstance(params, RandsvmParams) or self.job.stop.wanted_gap is not None:
            return None
        is_unchosen = (
            problem.may_be_indefinite
            and self.job.stop.gap is None
            and not params.support_bound_flags
        )
        sums = problem.coefficient_sum or problem.absolute_sum
        return None if sums or is_unchosen else params.resolved(self.n)

    @cached_property
    def r(self) -> int:
        """The number of rows of a working set.

        Raises ParameterError for too few rows for a step of a nu task, which moves two rows of the
        same side.
        """
        if self.as_published is not None:
            assert self.as_published.sample_size
            return self.as_published.sample_size
        n, problem, params = self.n, self.problem, self.params
        if isinstance(params, RandsvmParams):
            option, rows = "--sample-size", params.sample_size
        else:
            option, rows = "--working-set", params.working_set
        if rows is None:
            # A regression has two variables a row.
            variables = 2 if problem.prediction_type == "svr" else 1
            nonzeros = self.nonzeros if problem.kernel == "rbf" else 0.0
            return OsunaParams.default_rows(n, variables, nonzeros)
        least = min(MIN_NU_ROWS, n) if problem.absolute_sum else 1
        require(
            rows >= least, f"{option} must be {least} or more with -s {problem.task}, got {rows}"
        )
        return rows

    @property
    def uses_inner_set(self) -> bool:
        """Whether rounds begin on an inner set. --max-iterations counts rounds over all rows."""
        return (
            isinstance(self.params, RandsvmParams)
            and self.as_published is None
            and self.job.stop.max_iterations is None
            and inner_set_pays(self.n, self.problem)
        )

    def rounds(self, run: Decomposition, start: Start | None) -> Scans:
        """Return the rounds over all rows, from a start."""
        if isinstance(self.params, OsunaParams):
            return osuna(run, self.r, self.params.swap, ORDERS[self.name], start)
        if self.as_published is not None:
            return randsvm.randsvm_1(run, self.r, start)
        return randsvm.train_certified(run, min(self.r, self.n), start)

    @property
    def arguments(self) -> list[str]:
        """The options as on a command line, with defaults that follow from the data."""
        stop, params = replace(self.job.stop, warm_start=None), self.params
        if self.as_published is not None:
            # -k says by itself that no gap ends the run.
            return command_line(self.as_published, replace(stop, gap=None))
        if isinstance(params, RandsvmParams):
            # Its other options only determine k.
            params = RandsvmParams(sample_size=params.sample_size)
        return command_line(params, stop)

    @property
    def notices(self) -> list[str]:
        """The messages for the user about its options."""
        if not isinstance(self.params, RandsvmParams):
            return []
        if self.as_published is not None:
            formula = self.params.support_bound is None and self.problem.kernel != "rbf"
            return [FORMULA_FOR_K] if formula else []
        unused = " ".join(self.params.support_bound_flags)
        rule = "no violators" if self.job.stop.wanted_gap is None else "--gap"
        return [f"{rule} decides when to end: {unused} not used"] if unused else []

    def working_set(self, subtasks: Subtasks) -> int:
        """Return the largest number of rows of a working set."""
        return min(self.r, subtasks.max_rows)

    def solve_bytes(self, subtasks: Subtasks) -> int:
        """Return the bytes of memory that a subproblem may take.

        Raises ParameterError if that is more than the run may use.
        """
        rows, D = self.working_set(subtasks), subtasks.D
        frozen = rows < subtasks.max_rows and self.as_published is None
        nonzeros, memory = D.nnz / max(D.n, 1), subtasks.resources.memory
        return memory_of(rows, nonzeros, subtasks.problem, frozen, memory)


@record
class SubtaskSolution:
    """The solution of one subtask.

    violators: their number; None: they were not counted
    evaluated: whether the certificate comes from a closing evaluation of the solution
    poor_fit: why the model fits other rows poorly; None: no reason was found, or none was sought
    changes: what --reduce has changed; None: it has not reduced the solution
    dual: the solution of which D is, if that is another one
    transcript: what --certificate writes of it; None: nothing
    """

    SV: KernelSolution
    certificate: Certificate
    violators: int | None
    evaluated: bool
    stopped: Stopped
    poor_fit: str | None = None
    changes: SubtaskReduction | None = None
    dual: KernelSolution | None = None
    transcript: TranscriptArrays | None = None

    @staticmethod
    def constant(subtasks: Subtasks, number: int, stopped: Stopped) -> SubtaskSolution:
        """Return a constant decision value for a subtask that has not been solved."""
        SV, certificate = subtasks.constant_solution(number)
        return SubtaskSolution(SV, certificate, None, certificate.certified, stopped)


def total_certificate(certificates: Sequence[Certificate]) -> Certificate:
    """Return the sum of the certificates of several subtasks."""
    numbers = [
        (one.primal, one.dual, one.floor, one.primal_error, one.dual_error, one.largest_distance)
        for one in certificates
    ]
    primal, dual, floor, primal_error, dual_error, distance = map(sum, zip(*numbers, strict=True))
    return Certificate(
        primal,
        dual,
        all(one.certified for one in certificates),
        floor,
        primal_error,
        dual_error,
        distance,
        sampled=any(one.sampled for one in certificates),
        other_dual=any(one.other_dual for one in certificates),
    )


def count_bounded(solutions: Sequence[KernelSolution]) -> int:
    """Return the number of rows that are at a bound in any of the solutions."""
    return len(distinct(np.concatenate([one.rows[~one.unbounded] for one in solutions])))


AnySolution = TypeVar("AnySolution", bound=KernelSolution)


@dataclass
class Rounds:
    """One algorithm on one subtask.

    start: makes the first step; None: the algorithm does
    clock: receives each round, and interrupts it
    share_end: the moment when the subtask's share of the time is over
    memory_sharers: the number of such runs that share the memory
    gap_asked: the gap that ends the rounds; None: the one that the job asks for before a reduction
    rows_of_whole: the number of rows of the problem that the subtask is a part of; None: it is no
        part
    """

    subtask: Subtask
    algorithm: Algorithm
    start: Start | None = None
    clock: Clock = field(default_factory=Clock)
    share_end: float = inf
    memory_sharers: int = 1
    gap_asked: float | None = None
    rows_of_whole: int | None = None

    def __post_init__(self) -> None:
        if self.gap_asked is None:
            self.gap_asked = self.algorithm.job.stop.gap_before_reduction
        # The rounds end at this gap of the running values: `gap`, or less after an evaluation that
        # found a larger one.
        self.gap_target, self.continuations = self.gap_asked or 0.0, 0
        # The history of these rounds, and the last solution with a proven certificate.
        self.history = History()
        self.evaluated: SubtaskSolution | None = None
        # Whether rounds begin on an inner set, and the last solution over it: the coefficients of
        # all other rows are 0, so that it is feasible for all rows.
        self.begins_on_inner_set = self.rows_of_whole is None and self.algorithm.uses_inner_set
        self.inner_solution: KernelSolution | None = None
        shares = self.memory_sharers * (1 + self.begins_on_inner_set)
        subtask, float64 = self.subtask, (self.gap_asked or 1.0) < FLOAT64_GAP
        most = 0 if self.begins_on_inner_set else min(self.algorithm.r, MAX_MATRIX_ROWS)
        self.scan = Scan(
            subtask.D,
            subtask.problem,
            self.algorithm.job.data_params.seed,
            self.algorithm.job.resources.layout_bytes // shares,
            float64,
            self.gap_asked,
            subtask.kernel_matrix(float64) if subtask.D.n <= most else None,
        )
        # Sums of the boxes of all rows.
        if isinf(4 * self.scan.total_weight * max(subtask.problem.bounds)):
            raise self._beyond_float64
        nu_svc = self.subtask.problem.task == "nu-svc"
        self.least_norm = least_norm(self.scan) if nu_svc else None

    def certified(self, first_solution_by: float) -> SubtaskSolution:
        """Return the solution of rounds and closing evaluations in turn, until the gap that was
        asked for is proven or further rounds would not lower it.

        first_solution_by: see `solve`.
        """
        found = self.with_evaluation(self.solve(first_solution_by))
        while self.prepare_to_continue(found):
            found = self.with_evaluation(self.solve(first_solution_by))
        return found

    def solve(self, first_solution_by: float) -> SubtaskSolution:
        """Make the rounds that there is time for, and return the solution, by running values.

        That is the last one if it has no violators or the gap that was asked for, and the one of
        lowest P otherwise. Raises TimeLimitError if there is no solution at the moment
        `first_solution_by`.
        """
        # `interrupt_at` and `_scans` read these during the rounds.
        self.first_solution_by, self.tolerance = first_solution_by, self.subtask.problem.tolerance
        try:
            with self.clock.until(self.interrupt_at), closing(self._scans()) as rounds:
                for SV, V in rounds:
                    self._report(SV, V)
                    left = self.last_round_start - time.perf_counter()
                    answer = decide(self.history, self._limits(SV), self.tolerance, left)
                    if isinstance(answer, Stopped):
                        break
                    if answer is not None:
                        self.history.tighten()
                        self.tolerance = answer
                else:
                    # Only rounds that solve all rows end by themselves.
                    answer = Stopped(StopReason.NO_PROGRESS, (remedy(self.scan.problem),))
                if not self._lacks_margin(SV, answer):
                    return self._found(self._chosen(SV, answer), answer)
        except TimeLimitError:
            best, stopped = self.best_so_far, Stopped(StopReason.TIME_LIMIT)
            if best is None:
                raise
            if self.evaluated is not None and best is self.evaluated.SV:
                return replace(self.evaluated, stopped=stopped)
            return self._found(best, stopped)
        if self.scan.kernel_layout.dtype is np.float64:
            between = "" if self.subtask.is_only else f" between {self.subtask.name}"
            problem = f"nu-svc finds no margin{between}: the classes overlap too much for this nu"
            advice = "raise nu; if none helps, use another kernel, or C in place of nu"
            raise InfeasibleError(f"{problem} ({advice})")
        # |w|^2 may be below the rounding of float32.
        self.start, self.begins_on_inner_set = in_float64, False
        self.history = History(self.history.rounds, self.history.scan_seconds)
        return self.solve(first_solution_by)

    def _lacks_margin(self, last: KernelSolution, stopped: Stopped) -> bool:
        """Return whether a nu-SVC has no margin, by the values of the rounds."""
        if stopped.reason is StopReason.NO_MARGIN:
            return self.history.last.certified
        return stopped.reason in SOLVED and self.least_norm is not None and not last.has_margin

    def _found(self, SV: KernelSolution, stopped: Stopped) -> SubtaskSolution:
        """Return a solution of the rounds so far, with the certificate of its running values.

        P of a solution of the inner set is unknown.
        """
        history = self.history
        primal = history.primal if SV is history.solution else history.last.primal
        certificate = history.certificate(primal)
        if history.solution is None:
            certificate = Certificate(nan, history.dual, certified=False)
        changes = SV.changes if isinstance(SV, ReducedMachine) else None
        return SubtaskSolution(
            SV,
            certificate,
            violators=None,
            evaluated=False,
            stopped=stopped,
            changes=changes,
        )

    def _chosen(self, last: KernelSolution, stopped: Stopped) -> KernelSolution:
        """Return the solution of rounds that have ended. Raises ParameterError if none has a P."""
        best = self.history.solution
        if best is None:
            raise self._beyond_float64
        return last if stopped.reason in SOLVED else best

    @property
    def _beyond_float64(self) -> ParameterError:
        advice = remedy(self.scan.problem)
        return ParameterError(f"coefficients or objectives leave float64 on this data: {advice}")

    def _scans(self) -> Scans:
        def tolerance() -> float:
            return self.tolerance

        if self.scan.matrix is not None:
            gap = self.gap_asked if self.subtask.is_only else None
            return rounds_of_whole(
                self.scan, tolerance, lambda: not self.history.idle, self.start, gap
            )
        run = Decomposition(self.scan, Draws(self.algorithm.job.data_params.seed), tolerance)
        if self.begins_on_inner_set:
            return randsvm.train_on_inner_set(run, self.algorithm.r, self.solve_part, self.start)
        return self.algorithm.rounds(run, self.start)

    def _limits(self, SV: KernelSolution) -> RoundLimits:
        published = self.algorithm.as_published
        # A round that solves all rows has no use for more violators.
        rows = 0 if self.scan.matrix is not None else self.algorithm.r
        return RoundLimits(
            few_violators=FEW_VIOLATORS_SHARE * rows,
            advice=remedy(self.scan.problem),
            gap_asked=self.gap_asked,
            gap_target=SV.gap if isinstance(SV, ReducedMachine) else self.gap_target,
            support_vectors=published.support_bound if published else None,
            rounds=self.algorithm.job.stop.max_iterations,
            least_norm=self.least_norm,
        )

    def _report(self, SV: KernelSolution, V: ScanResult) -> None:
        """Note and report a round."""
        history = self.history
        history.add_round(SV, V)
        event = Iteration(
            number=0,
            seconds=self.clock.seconds,
            solve_seconds=V.step.seconds,
            working_set=len(V.step.points),
            support_vectors=len(SV),
            bounded=SV.bounded_count,
            violators=V.count,
            changed=V.changed,
            scan_seconds=V.seconds,
            gap=history.certificate(history.primal).gap,
            bytes_moved=self.subtask.D.executor.bytes_moved,
            machine=self.subtask.name,
            primal=V.certificate.primal,
            dual=V.certificate.dual,
            inner_set=0 if self.rows_of_whole is None else self.subtask.D.n,
        )
        # Not by `emit`, which may raise TimeLimitError: at the end of a round `decide` asks for
        # the time. The clock numbers the rounds of all subtasks.
        self.clock.pass_on(event)

    @property
    def best_so_far(self) -> KernelSolution | None:
        """The best solution so far, or that of the inner set; None: there is none."""
        return self.inner_solution if self.history.solution is None else self.history.solution

    def interrupt_at(self) -> float:
        """Return the moment that interrupts a round."""
        return self.first_solution_by if self.best_so_far is None else self.last_round_start

    @property
    def last_round_start(self) -> float:
        """The moment after which no round may begin, since the closing evaluation needs time.

        The evaluation scans every support vector; the last scan predicts the seconds that it takes.
        """
        if self.clock.stopping.is_set():
            return -inf
        seconds = EVALUATION_FACTOR * self.history.scan_seconds
        if self.rows_of_whole is not None:
            # All rows are scanned with this solution, and evaluated.
            seconds *= 2 * self.rows_of_whole / self.subtask.D.n
        return self.share_end - seconds - RESERVED_SECONDS

    # --- problems of some rows ---------------------------------------------------------------

    def solve_part(
        self,
        rows: np.ndarray,
        start: Start | None = None,
        *,
        factor: float = 1.0,
        gap: float | None = None,
    ) -> tuple[KernelSolution, KernelSolution]:
        """Solve the problem of some rows; see randsvm.PartSolver."""
        if gap is None:
            gap = PART_GAP_SHARE * self.gap_target if self.gap_asked else None
        resources, whole = self.algorithm.job.resources, self.subtask.D
        room = max(0, resources.data_bytes - whole.store.resident_bytes) // self.memory_sharers
        D = whole.subset(whole.mask(rows)).regrouped(room, resources.tmpdir)
        name, is_only = self.subtask.name, self.subtask.is_only
        subtask = Subtask(D, self.subtask.problem.with_bounds_times(factor), name, is_only)
        inner = Rounds(
            subtask,
            replace(self.algorithm, n=len(rows), problem=subtask.problem),
            start,
            self.clock,
            self.share_end,
            memory_sharers=2 * self.memory_sharers,
            gap_asked=gap,
            rows_of_whole=whole.n,
        )
        # With other bounds than those of the whole problem, it may not be feasible for all rows.
        solved, is_feasible = None, factor == 1.0
        try:
            solved = inner.solve(self.interrupt_at())
            SV = _over(inner, rows, solved.SV)
            if not is_feasible:
                return SV, SV
            self.inner_solution = SV
            return SV, self._reduced_part(inner, rows, solved, SV)
        finally:
            # Also after an exception the best solution so far is kept. If it is feasible, its D
            # bounds the optimum over all rows.
            best, so_far = inner.history, self.history
            if is_feasible and solved is None and best.solution is not None:
                self.inner_solution = _over(inner, rows, best.solution)
            if is_feasible and best.dual > so_far.dual:
                so_far.dual, so_far.dual_solution = best.dual, None
            inner.scan.forget()
            D.executor.release()
            D.store.close()

    def _reduced_part(
        self, part: Rounds, rows: np.ndarray, solved: SubtaskSolution, SV: KernelSolution
    ) -> KernelSolution:
        """Return the machine of few support vectors that --reduce asks for, or the solution.

        The solution stays if it is as small, or the machine too coarse. SV: the solution with its
        row numbers in all of D.
        """
        stop = self.algorithm.job.stop
        gap = stop.wanted_gap
        if stop.reduce is None or gap is None:
            return SV
        # Lowering P takes longer than the scans that a few support vectors less save.
        lowers = stop.reduced_size is not None
        machine = part.reduce(solved, gap * PART_GAP_SHARE, lowers=lowers).SV
        if not isinstance(machine, ReducedMachine) or machine.gap > MAX_REDUCED_GAP:
            return SV
        # The losses of other rows may raise the gap.
        gap = machine.gap + (1 - PART_GAP_SHARE) * gap
        return replace(_over(part, rows, machine), gap=gap, full=SV)

    # --- reduction and evaluation ------------------------------------------------------------

    def with_reduction(self, found: SubtaskSolution) -> SubtaskSolution:
        """Return a solution with the fewer support vectors of --reduce, or as it is without time.

        The scan holds the values of an evaluated solution.
        """
        stop = self.algorithm.job.stop
        if stop.reduce is None or not len(found.SV) or isinstance(found.SV, ReducedMachine):
            return found
        try:
            with self.clock.until(lambda: self.share_end - RESERVED_SECONDS):
                return self.reduce(found, stop.wanted_gap)
        except TimeLimitError:
            if found.evaluated:
                emit(Notice("--reduce: there was no time to reduce the support vectors"))
            return found

    def reduce(
        self, found: SubtaskSolution, gap: float | None, lowers: bool = True
    ) -> SubtaskSolution:
        """Return a machine with fewer support vectors, its certificate, and the changes.

        gap, lowers: see reduced_set.Reducer.
        """
        from randsvm.algorithms.reduced_set import Reducer, SubtaskReduction

        size, seed = self.algorithm.job.stop.reduced_size, self.algorithm.job.data_params.seed
        self.scan.return_to(found.SV)
        reducer = Reducer(self.scan, found.SV, found.certificate, size, gap, seed, lowers)
        SV, certificate = reducer.run()
        if isinstance(SV, ReducedMachine) and found.evaluated:
            # The last evaluation has the best certificate.
            *_, (SV, V) = self.scan.evaluations(SV)
            certificate = self.scan.with_dual_of(found.SV, V.certificate)
            if size is None and gap is not None and certificate.gap > gap:
                # With the bounds of rounding the machine misses the gap that chose it.
                SV, certificate = found.SV, found.certificate
        changes = SubtaskReduction(certificate, self.subtask.D.n)
        changes = SV.changes if isinstance(SV, ReducedMachine) else changes
        dual = found.SV if isinstance(SV, ReducedMachine) else found.dual
        return replace(
            found, SV=SV, certificate=certificate, violators=None, changes=changes, dual=dual
        )

    def with_evaluation(self, found: SubtaskSolution) -> SubtaskSolution:
        """Return a solution of `solve` with the certificate of a closing evaluation, if there is
        time for one."""
        if found.evaluated:
            return found
        end, stop, machine = self.share_end + RESERVED_SECONDS, self.algorithm.job.stop, found.SV
        found = self._evaluate(found, self.clock, end)
        if isinstance(machine, ReducedMachine):
            # With a number of support vectors, --reduce takes the gap that they have.
            asked = stop.wanted_gap if stop.reduced_size is None else None
            if machine.full is None or asked is None or not found.certificate.gap > asked:
                return found
            # The losses of rows outside of the inner set are too large: all rows decide then
            # which support vectors are needed.
            whole = self._evaluate(replace(found, SV=machine.full, changes=None), self.clock, end)
            if not whole.evaluated:
                return found
            found = whole
        if found.stopped.reason in SOLVED and self._misses_gap(found):
            found = replace(found, stopped=Stopped(StopReason.GAP_NOT_PROVEN))
        return found

    def _evaluate(
        self,
        found: SubtaskSolution,
        clock: Clock,
        end: float,
        ends: tuple[type[Exception], ...] = (TimeLimitError,),
    ) -> SubtaskSolution:
        """Return the solution with the lowest proven gap that is found before `end`.

        Without time for any, that is the last solution with a certificate, or else P and D have no
        bound of rounding, and certify nothing. ends: the exceptions that end the evaluation.
        """
        found = replace(found, certificate=replace(found.certificate, certified=False))
        with suppress(*ends), clock.until(lambda: end):
            if self.history.solution is None:
                SV, at_first = self.scan.examine(found.SV)
                found = replace(found, SV=SV)
                self.history.add_solution(SV, at_first.certificate)
            for SV, V in self.scan.evaluations(found.SV, self.gap_to_prove):
                count = None if isinstance(SV, ReducedMachine) else V.count
                found = replace(
                    found, SV=SV, certificate=V.certificate, violators=count, evaluated=True
                )
                self.evaluated = found
            certificate, dual = self._with_best_dual(found.SV, found.certificate)
            found = self.evaluated = replace(found, certificate=certificate, dual=dual)
        if not found.evaluated and self.evaluated is not None:
            return replace(self.evaluated, stopped=found.stopped)
        return found

    @property
    def gap_to_prove(self) -> float | None:
        """The gap from which on an evaluation needs no better bounds: `gap_asked`, or that of
        --require-gap if it is smaller."""
        required = self.algorithm.job.limits.require_gap
        gaps = [gap for gap in (self.gap_asked, required) if gap is not None]
        return None if self.gap_asked is None else min(gaps)

    def _with_best_dual(
        self, SV: KernelSolution, evaluated: Certificate
    ) -> tuple[Certificate, KernelSolution | None]:
        """Return the certificate with D of the best solution, if it lowers the gap, and that
        solution if it is another one.

        Each D bounds the optimum from below.
        """
        is_reduced = isinstance(SV, ReducedMachine)
        source_of_dual = self.inner_solution if is_reduced else self.history.dual_solution
        gains = self.history.dual - evaluated.dual
        if self.gap_to_prove is not None and evaluated.gap <= self.gap_to_prove:
            return evaluated, None
        if (
            source_of_dual is None
            or not evaluated.certified
            or SV.has_coefficients_of(source_of_dual)
        ):
            return evaluated, None
        if not is_reduced and gains <= NEGLIGIBLE_GAIN * evaluated.largest_distance:
            return evaluated, None
        other = self.scan.with_dual_of(source_of_dual, evaluated)
        return (other, source_of_dual) if other.gap < evaluated.gap else (evaluated, None)

    def prepare_to_continue(self, found: SubtaskSolution) -> bool:
        """Return whether further rounds may reach the gap that the evaluation did not find.

        They may where the running values showed too small a gap, or where float32 was the limit.
        Then the next `solve` continues from this solution.
        """
        if not self._misses_gap(found) or self.continuations == MAX_CONTINUATIONS:
            return False
        if isinstance(found.SV, ReducedMachine) or found.stopped.reason not in CONTINUED:
            return False
        # More rounds do not lower the rounding of float64, from which a gap of inf follows.
        gap = found.certificate.gap
        # The rounds reached their target, and the gap is missed: the target was too large.
        lowers_target = self.history.gap_of_last <= self.gap_target and gap < inf
        refines = not lowers_target or self.continuations >= FLOAT32_CONTINUATIONS
        refines = refines and self.scan.kernel_layout.dtype is np.float32
        if not (lowers_target or refines):
            return False
        if lowers_target:
            lower = (self.gap_asked or 0.0) - EXCESS_FACTOR * (gap - self.history.gap_of_last)
            self.gap_target = max(self.gap_target * TARGET_FACTOR, lower)
        # After a gap of inf the run continues in float64, once: this needs no count.
        self.continuations += gap < inf
        self.start, self.begins_on_inner_set = (in_float64 if refines else unchanged), False
        self.history = History(self.history.rounds, self.history.scan_seconds)
        self.history.add_solution(found.SV, found.certificate)
        return True

    def _misses_gap(self, found: SubtaskSolution) -> bool:
        return (
            found.evaluated
            and self.gap_asked is not None
            and found.certificate.gap > self.gap_asked
        )

    # --- interruptions -----------------------------------------------------------------------

    def so_far(self, stopped: Stopped) -> SubtaskSolution | None:
        """Return the best solution so far, by running values; None: there is none.

        Another thread than that of the rounds may ask.
        """
        return None if (best := self.best_so_far) is None else self._found(best, stopped)

    def known(self, stopped: Stopped) -> SubtaskSolution | None:
        """Return the best solution so far with the certificate that it has, if any; None: there is
        none.

        Another thread than that of the rounds may ask.
        """
        if (found := self.so_far(stopped)) is None:
            return None
        if (proven := self.evaluated) is not None and proven.SV.has_coefficients_of(found.SV):
            return replace(proven, stopped=stopped)
        return replace(found, certificate=replace(found.certificate, certified=False))

    def interrupted(self, stopped: Stopped) -> SubtaskSolution | None:
        """Return the best solution so far with the certificate that it has, or gets in a second;
        None: there is none.

        That of an inner set is scanned first. Without time for the scan and a closing evaluation
        the last solution with a certificate is returned, or else one without.
        """
        if (found := self.known(stopped)) is None or found.evaluated:
            return found
        # What ended the rounds may end the evaluation as well.
        clock, ends = Clock(INTERRUPTED_SECONDS), (Exception,)
        # Events go to no other listener, which may cancel this work.
        with listening(clock):
            return self._evaluate(found, clock, clock.end, ends=ends)

    def transcript(self, found: SubtaskSolution) -> TranscriptArrays:
        """Return the arrays of --certificate for a solution with row numbers of the subtask."""
        dual = found.SV if found.dual is None else found.dual
        return transcript_of(self.scan, found.SV, dual, self.subtask.rows)

    def in_whole(self, found: SubtaskSolution) -> SubtaskSolution:
        """Return a solution with the row numbers of the whole D, and with its rows unless it is of
        a pair."""
        SV = found.SV if self.subtask.rows is not None else self.scan.completed(found.SV)
        return replace(found, SV=self.subtask.in_whole(SV))


def _over(part: Rounds, rows: np.ndarray, SV: AnySolution) -> AnySolution:
    """Return a solution of the problem of some rows with their row numbers in all of D."""
    points = part.scan.completed(SV).points
    assert points is not None
    return replace(SV, rows=rows[SV.rows], points=replace(points, rows=rows[points.rows]))
