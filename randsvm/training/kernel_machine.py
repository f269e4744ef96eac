"""Kernel machines: train one by rounds of solve and scan, and join its subtasks to a model."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf, isinf, isnan
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from randsvm.algorithms.decomposition import Start
from randsvm.arrays import distinct, median
from randsvm.data.dataset import Dataset, random_subset
from randsvm.data.sampling import Draws
from randsvm.errors import ClusterError, ContentError, Interrupted, ParameterError
from randsvm.events import (
    Iteration,
    Notice,
    Reduced,
    Trained,
    Watch,
    emit,
    emit_once,
    listening,
)
from randsvm.models import decisions
from randsvm.models.kernel_model import KernelModel
from randsvm.models.model import Model
from randsvm.parallel import Cancelled, run_forwarding_events
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.parameters.svm import NU_TASKS, Params, Problem
from randsvm.parameters.values import AUTO
from randsvm.svm.kernel_layout import why_not_psd
from randsvm.svm.running_values import SavedSolution, ValuesQuery
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine
from randsvm.training.cross_validation import at_once, kept_values
from randsvm.training.job import (
    RESERVED_SECONDS,
    Clock,
    Decision,
    Job,
    SearchFit,
    Stopped,
    StopReason,
    TimeLimitError,
    limited,
)
from randsvm.training.probabilities import density_marks, keep_all
from randsvm.training.rounds import (
    Algorithm,
    Rounds,
    SubtaskSolution,
    count_bounded,
    total_certificate,
)
from randsvm.training.run import BatchRun, LabelledData, Output, RunDescription, Trainer
from randsvm.training.subtasks import Subtask, Subtasks, assemble, finished

if TYPE_CHECKING:
    from randsvm.algorithms.reduced_set import SubtaskReduction
    from randsvm.training.subtasks import OldModel

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


# Each class is trained separately.
MAX_CLASSES = 1000
INDEFINITE = "this kernel is not positive semidefinite"
MODEL_IS_ESTIMATE = (
    "there was no time for a solution over all rows: the model is an estimate of it, whose "
    "coefficients may exceed C"
)
NOT_CERTIFIED = "P and D certify nothing, no gap can end the run"

# Makes the trainer once the data is read.
MakeTrainer: TypeAlias = "Callable[[LabelledData, Job], KernelTrainer]"


# --- before the data is read -----------------------------------------------------------------


def prepare(
    name: str, algorithm: RandsvmParams | OsunaParams, params: Params, job: Job
) -> tuple[MakeTrainer, Params, Job]:
    """Return what makes the trainer, and the parameters and the job with defaults filled in.

    The defaults follow from the model of --warm-start and from the kernel.

    name: of the algorithm. Raises ParameterError for options that exclude each other.
    """
    old, notices, asked = None, list[str](), job.stop.wanted_gap or job.limits.require_gap
    if job.warm_start:
        from randsvm.training.subtasks import OldModel

        old = OldModel.read(job.warm_start)
        params, notices = old.params(params, job.given)
    job.stop.check(params)
    if job.warm_start and params.components:
        raise ParameterError("--warm-start goes with a kernel, not with --components")
    if params.kernel == "precomputed":
        _check_precomputed(job)
    # If the user bounds k, that bound ends the run instead of a gap.
    bounded = isinstance(algorithm, RandsvmParams) and bool(algorithm.support_bound_flags)
    bounded = bounded and params.task != "one-class"
    job = replace(job, stop=job.stop.resolved(params, bounded, job.limits.require_gap))
    if job.stop.reduce == AUTO and job.stop.wanted_gap is None:
        raise ParameterError("--reduce auto needs a gap: give --gap, or --reduce N")
    make: MakeTrainer = partial(KernelTrainer, name=name, own=algorithm, old=old, notices=notices)
    if params.kernel == "precomputed":
        make = partial(_with_checked_kernel, make, asked)
    return make, params, job


def _check_precomputed(job: Job) -> None:
    """Raise ParameterError for options that do not go with precomputed kernel values."""
    excluded = {
        "--scale": (job.run.scale, "scaled kernel values belong to no kernel"),
        "--zero-based": (job.run.zero_based, "every row begins with 0:number in any case"),
        "--warm-start": (job.warm_start, "rows have no features to compare with the old model's"),
    }
    for option, (value, reason) in excluded.items():
        if value:
            raise ParameterError(f"{option} does not go with -t precomputed: {reason}")


def _with_checked_kernel(
    make: MakeTrainer, asked: float | None, labelled_data: LabelledData, job: Job
) -> KernelTrainer:
    """Return the trainer for a precomputed kernel, whose values may not be those of a kernel.

    If they are not positive semidefinite no gap ends the run. Raises ContentError if the user
    asked for one.
    """
    trainer, why = make(labelled_data, job), why_not_psd(labelled_data.D)
    if why is None:
        return trainer
    if asked is not None:
        raise ContentError(f"{why}: no gap can be certified, and {asked:g} was asked for")
    # A gap that is text is "none"; a number was filled in as the default.
    gap = job.stop.gap if isinstance(job.stop.gap, str) else None
    return replace(trainer, job=replace(job, stop=replace(job.stop, gap=gap)), not_psd=why)


# --- training --------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelTrainer(Trainer[Params]):
    """Trainer of kernel machines: parameters become subtasks, each with an algorithm.

    name, own: the algorithm, and its own options
    old: the model to start from; None: start from zero
    notices: messages for the user about that model
    not_psd: why a precomputed kernel may not be positive semidefinite; None: it is
    """

    name: str
    own: RandsvmParams | OsunaParams
    old: OldModel | None
    notices: list[str]
    not_psd: str | None = None

    @property
    def max_classes(self) -> int:
        return MAX_CLASSES

    def resolved(self, params: Params) -> Params:
        # Random features come first: they have their own default of gamma.
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params.resolved(len(self.D.summary.features), len(self.labelled_data.labels))

    def cost_and_lambda(self, params: Params) -> tuple[float, float]:
        return params.cost, 1 / (params.cost * self.D.total_weight())

    def describe(self, params: Params) -> RunDescription:
        subtasks = self._subtasks(self.D, params)
        algorithm = self.algorithm_for(subtasks.max_rows, subtasks.problem)
        why = self.not_psd if params.positive_semidefinite else INDEFINITE
        uncertified = [f"{why}: {NOT_CERTIFIED}"] if why else []
        return RunDescription(
            algorithm=algorithm.name,
            arguments=algorithm.arguments,
            notices=[*self.notices, *uncertified, *algorithm.notices],
            working_set=algorithm.working_set(subtasks),
            solve_bytes=algorithm.solve_bytes(subtasks),
        )

    def _subtasks(self, D: Dataset, params: Params, at_once: int = 1) -> Subtasks:
        """Return the subtasks of D or of a view of it.

        at_once: the number of such views that share the memory.
        """
        mapping = self.map_of(params)
        params = self.resolved(params)
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
            params = replace(params, kernel="linear", components=None)
        may_be_indefinite = self.not_psd is not None
        return Subtasks(D, params, self.job.resources, at_once, may_be_indefinite=may_be_indefinite)

    def algorithm_for(self, n: int, problem: Problem) -> Algorithm:
        """Return the algorithm for a problem of n rows like those of D."""
        nonzeros = self.D.nnz / max(self.D.n, 1)
        return Algorithm(self.name, self.own, self.job.stop, n, nonzeros, problem)

    def start_of(self, task: Subtask, C: float) -> Start | None:
        """Return the start of a subtask from the old model; None: there is no old model."""
        return None if self.old is None else self.old.on(task, C)

    def for_parts(self) -> KernelTrainer:
        return replace(super().for_parts(), old=None)

    def decision(self, D: Dataset, params: Params, clock: Clock) -> Decision:
        """Return f of the subtasks' solutions, without a closing evaluation."""
        subtasks = self._subtasks(D, params, at_once(D, self.job))
        solutions = []
        try:
            for number, found in enumerate(self.solve_subtasks(subtasks, clock)):
                if found is None:
                    solutions.append(subtasks.constant_solution(number)[0])
                else:
                    task, rounds, SV = found
                    solutions.append(task.in_whole(rounds.scan.completed(SV)))
        finally:
            subtasks.close()
        return assemble(subtasks, solutions).decision_matrix

    def solve_subtasks(
        self,
        subtasks: Subtasks,
        clock: Clock,
        starts: Sequence[SavedSolution | None] | None = None,
    ) -> Iterator[tuple[Subtask, Rounds, KernelSolution] | None]:
        """Yield each subtask with its rounds and its solution, without a closing evaluation.

        Each subtask gets at least one round. None: one of its sides has no rows, or `clock` ended
        before a pair has begun.
        """
        job = self.job
        for number, start in enumerate(starts or [None] * len(subtasks)):
            late = number > 0 and time.perf_counter() >= clock.end
            if subtasks.pairs and (late or 0 in subtasks.side_weights(number)):
                yield None
                continue
            task, end = subtasks[number], clock.share(1 / (len(subtasks) - number))
            algorithm = self.algorithm_for(task.D.n, task.problem)
            first = None if start is None else _seeded_start(start)
            shares = subtasks.at_once
            rounds = Rounds(task, algorithm, job, first, clock, end, memory_shares=shares)
            try:
                SV = rounds.run(inf)[0]
                if job.stop.reduce is not None and len(SV):
                    SV = _reduced_in_time(rounds, SV, job.stop.wanted_gap)
                yield task, rounds, SV
            finally:
                rounds.scan.forget()

    def search_fits(self) -> list[SearchFit[Params]]:
        fits: list[SearchFit[Params]] = []
        # LIBSVM ends at a tolerance, not at a gap that the user asks for.
        if self.job.search.search_gap is None and self.job.stop.wanted_gap is not None:
            from randsvm.training.search import SharedKernelFit

            fits.append(SharedKernelFit(self._subtasks, self.job.resources.memory // 4))
        return [*fits, SeededKernelFit(self.for_search())]

    def for_search(self) -> KernelTrainer:
        """Return a trainer for parts of the rows, to the gap of a search and without --reduce."""
        stop, search, part = self.job.stop, self.job.search, self.for_parts()
        looser = search.DEFAULT_GAP if search.search_gap is None else search.search_gap
        if stop.wanted_gap is not None:
            stop = replace(stop, gap=max(stop.wanted_gap, looser))
        job = replace(part.job, search=search, stop=replace(stop, reduce=None))
        return replace(part, job=job)

    def fits_probabilities(self, params: Params) -> bool:
        return params.probability and params.prediction_type != "one-class"

    def start(
        self,
        params: Params,
        clock: Clock,
        until: float,
        output: Output,
        first_fit: SeededFit | None,
    ) -> KernelTrainingRun:
        subtasks = self._subtasks(self.D, params)
        largest = self.algorithm_for(subtasks.max_rows, subtasks.problem)
        at_once = subtasks.side_by_side(largest.solve_bytes(subtasks))
        seeds = {} if first_fit is None else dict(enumerate(first_fit.seeds))
        return KernelTrainingRun(self, params, subtasks, at_once, clock, until, seeds, output)


def _seeded_start(solution: SavedSolution) -> Start:
    """Return the start from a solution. Few runs need the module."""
    from randsvm.algorithms.decomposition import SeededStart

    return SeededStart(solution)


def _reduced_in_time(rounds: Rounds, SV: KernelSolution, gap: float | None) -> KernelSolution:
    """Return a solution with the fewer support vectors of --reduce, or as it is without time."""
    try:
        with rounds.clock.until(lambda: rounds.end):
            return rounds.reduce(SV, gap)[0]
    except TimeLimitError:
        return SV


@dataclass(frozen=True)
class SeededFit:
    """A fit from which others start: with a larger C, on other rows, or the final training.

    subtasks: of all rows
    seeds: the solution of each subtask; None: the fit has no rows of one of its sides
    f : (m, K) float64, the values of the rows that the fit holds out
    """

    subtasks: Subtasks
    seeds: list[SavedSolution | None]
    f: np.ndarray


class SeededKernelFit:
    """Fits of a search, each of which starts from another fit."""

    starts_from_fits = True

    def __init__(self, trainer: KernelTrainer) -> None:
        self.trainer = trainer
        # The rows of pairs of classes, which all fits on the same rows share.
        self._pairs: Subtasks | None = None
        self._lock = Lock()

    def close(self) -> None:
        """Free what fits on the same rows share."""
        if self._pairs is not None:
            self._pairs.close()
            self._pairs = None

    def suits(self, D: Dataset, candidates: Sequence[Params]) -> bool:
        """Return whether fits on most rows of D with these parameters gain from others.

        Nu tasks prescribe the sum of the coefficients, and the coefficients of other rows have
        another sum. KBH07's rule without a gap keeps no coefficients outside of a working set. If
        all rows fit into one working set, LIBSVM is as fast from zero: digits takes 1.8 times as
        long with seeds. Random features of each gamma are other rows.
        """
        trainer, params = self.trainer, candidates[0]
        if params.task in NU_TASKS or params.components or trainer.job.stop.wanted_gap is None:
            return False
        subtasks = trainer._subtasks(D, params)
        folds = trainer.job.search.fold_count
        rows = subtasks.max_rows * (folds - 1) // folds
        return trainer.algorithm_for(rows, subtasks.problem).r < rows

    def fit(
        self,
        D: Dataset,
        params: Params,
        start: SeededFit | None,
        training: np.ndarray,
        held_out: np.ndarray,
    ) -> SeededFit:
        """Return a fit on some rows of D that starts from `start`; see SearchFit.fit."""
        if start is None:
            subtasks, starts = self._subtasks(D, params), None
        else:
            subtasks = start.subtasks.with_params(self.trainer.resolved(params))
            starts = start.seeds
        rest = subtasks.without(~training)
        found: list[tuple[KernelSolution, SavedSolution] | None] = []
        with limited(inf) as clock:
            for one in self.trainer.solve_subtasks(rest, clock, starts):
                if one is None:
                    found.append(None)
                    continue
                task, rounds, SV = one
                rounds.scan.return_to(SV)
                found.append((task.in_whole(SV), rounds.scan.saved_solution))
        seeds = [None if one is None else one[1] for one in found]
        return SeededFit(subtasks, seeds, self._values(rest, found, held_out))

    def _subtasks(self, D: Dataset, params: Params) -> Subtasks:
        subtasks = self.trainer._subtasks(D, params, at_once(D, self.trainer.job))
        if not subtasks.pairs:
            return subtasks
        with self._lock:
            if self._pairs is None:
                subtasks.group_rows()
                self._pairs = subtasks
            return self._pairs.with_params(self.trainer.resolved(params))

    def _values(
        self,
        subtasks: Subtasks,
        found: Sequence[tuple[KernelSolution, SavedSolution] | None],
        held_out: np.ndarray,
    ) -> np.ndarray:
        """Return f of the rows that the subtasks leave out, (m, K) float64, from their solutions.

        held_out : (n,) bool
        """
        if not subtasks.pairs:
            columns = []
            for number, one in enumerate(found):
                SV = subtasks.constant_solution(number)[0] if one is None else one[0]
                u = np.zeros(subtasks.D.n) if one is None else one[1].u
                columns.append((u[held_out] + SV.b) * SV.scale)
            return np.column_stack(columns)
        solutions = [
            subtasks.constant_solution(number)[0] if one is None else one[0]
            for number, one in enumerate(found)
        ]
        decision = assemble(subtasks, solutions).decision_matrix
        classes = len(subtasks.names)

        def votes(f: np.ndarray, y: np.ndarray) -> np.ndarray:
            return decisions.votes(f > 0, ~(f > 0), classes)

        return kept_values(subtasks.D.subset(held_out), decision, votes).kept


class KernelTrainingRun(BatchRun[Params]):
    """The training of all subtasks, which share the time until `end`, and their joint model.

    Pairs of classes are solved side by side, other subtasks one after another.

    at_once: the number of subtasks that are solved at a time
    seeds: what subtasks start from, by their numbers
    """

    def __init__(
        self,
        trainer: KernelTrainer,
        params: Params,
        subtasks: Subtasks,
        at_once: int,
        clock: Clock,
        end: float,
        seeds: dict[int, SavedSolution | None],
        output: Output,
    ) -> None:
        self.trainer: KernelTrainer = trainer
        self.output = output
        self.params = params
        self.subtasks = subtasks
        self.at_once = at_once
        self.clock = clock
        self.end = end
        self.seeds = seeds
        # By the number of a subtask: its solution; the solution of one that was interrupted; the
        # rounds made; the seconds of its solves; the rounds under way.
        self.solved: dict[int, SubtaskSolution] = {}
        self.interrupted: dict[int, SubtaskSolution] = {}
        self.counts: dict[int, int] = {}
        self.solve_seconds: dict[int, float] = {}
        self.under_way: dict[int, Rounds] = {}
        # By the number of a subtask that --reduce has reduced: its full solution, and the changes.
        self.full: dict[int, SubtaskSolution] = {}
        self.reductions: dict[int, SubtaskReduction] = {}
        # The number of rounds reported by subtasks that are solved side by side.
        self.reported_rounds = 0
        # The numbers of subtasks that were begun or due, and have no solution.
        self.unsolved: set[int] = set()
        # Whether any subtask that ended has a solution.
        self.has_solution = False
        # What a model of novelty detection has for probabilities.
        self.density_marks: dict[str, Any] = {}

    def run(self) -> None:
        try:
            if self.at_once == 1:
                for number in range(len(self.subtasks)):
                    self._solve_subtask(number, self.clock)
            else:
                tasks = [partial(self._solve_in_thread, n) for n in range(len(self.subtasks))]
                run_forwarding_events(tasks, self.at_once, self._forward, "pairs", "pair")
        finally:
            self.subtasks.close()
        self._fill_in_unsolved(Stopped(StopReason.TIME_LIMIT))
        self._report_poor_fit()
        self._report_rounding()
        self._report_estimate()
        if self.params.probability and self.params.prediction_type == "one-class":
            D, seed = self.subtasks.D, self.trainer.job.run.seed
            end = self.end - RESERVED_SECONDS
            self.density_marks = fit_density_marks(
                D, self._machine.decision_matrix, self.clock, end, seed
            )

    def _report_poor_fit(self) -> None:
        """Report why the model fits other rows poorly, if most of its subtasks do."""
        counts = Counter(one.poor_fit for one in self._solutions)
        for text in POOR_FIT_NOTICES:
            if counts[text] > len(self.solved) / 2:
                emit(Notice(text))

    def _report_rounding(self) -> None:
        """Report if rounding is larger than the objectives, so that nothing is certified."""
        certificate = self._certificate
        if isinf(certificate.gap):
            error = max(certificate.primal_error, certificate.dual_error)
            emit(
                Notice(
                    f"rounding of kernel values, {error:.2g}, is larger than the objectives: scale "
                    "the features"
                )
            )

    @property
    def _certificate(self) -> Certificate:
        """The sum of the certificates of all subtasks."""
        return total_certificate([one.certificate for one in self._solutions])

    def _report_estimate(self) -> None:
        """Report if the time did not suffice for a solution within its bounds."""
        if self._holds_estimate:
            emit(Notice(MODEL_IS_ESTIMATE))

    @property
    def _holds_estimate(self) -> bool:
        """Return whether the model holds the initial estimate of an inner set, not a solution."""
        return not self.reductions and not all(one.SV.within_bounds for one in self._solutions)

    def _solve_in_thread(self, number: int, watch: Watch) -> None:
        """Solve a subtask with a clock that interrupts this thread only."""
        clock = Clock(None, watch)
        clock.began = self.clock.began
        with listening(clock):
            self._solve_subtask(number, clock)

    def _forward(self, event: object) -> None:
        """Emit an event of a thread, with rounds numbered over all threads."""
        if isinstance(event, Iteration):
            self.reported_rounds += 1
            event = event._replace(number=self.reported_rounds)
        if isinstance(event, Notice):
            emit_once(event.text, event)
        else:
            emit(event)

    def _solve_subtask(self, number: int, clock: Clock) -> None:
        """Solve one subtask, if there is time for it.

        Raises TimeLimitError if the time is over and no subtask has a solution.
        """
        if number and time.perf_counter() >= self.end - RESERVED_SECONDS:
            return
        if self.subtasks.pairs and 0 in self.subtasks.side_weights(number):
            stopped = Stopped(StopReason.NO_VIOLATORS)
            self.solved[number] = SubtaskSolution.constant(self.subtasks, number, stopped)
            return
        task, left = self.subtasks[number], len(self.subtasks) - len(self.solved)
        end = self.clock.share(min(self.at_once / left, 1.0), self.end)
        job, earlier = self.trainer.job, sum(self.counts.values())
        algorithm = self.trainer.algorithm_for(task.D.n, task.problem)
        start, seed = self.trainer.start_of(task, self.params.cost), self.seeds.pop(number, None)
        if seed is not None:
            start = _seeded_start(seed)
        rounds = Rounds(task, algorithm, job, start, clock, end, earlier, self.at_once)
        # Without any solution there is no model: the first subtask may use all the time.
        latest = (self.end if number else self.clock.end) - RESERVED_SECONDS
        self.under_way[number] = rounds
        try:
            solution = None
            while solution is None:
                SV, stopped = rounds.run(latest)
                solution = rounds.evaluated(SV, stopped)
            if solution.evaluated:
                solution = replace(solution, poor_fit=poor_fit_reason(rounds.scan, solution.SV))
            self.solved[number] = solution.in_whole(task)
            if job.stop.reduce is not None:
                self._reduce(number, solution, rounds, end)
        except TimeLimitError:
            if not self.has_model:
                raise
            self._use_constant(number, Stopped(StopReason.TIME_LIMIT))
        except (Interrupted, ClusterError, Cancelled) as error:
            found = rounds.interrupted(Stopped(StopReason.INTERRUPTED, (str(error),)))
            if found is not None:
                self.interrupted[number] = found.in_whole(task)
            raise
        finally:
            self.counts[number] = rounds.count
            self.solve_seconds[number] = rounds.solve_seconds
            if rounds.best.solution is not None:
                self.has_solution = True
            del self.under_way[number]
            rounds.scan.forget()

    def _reduce(self, number: int, solution: SubtaskSolution, rounds: Rounds, end: float) -> None:
        """Replace the solution of a subtask by one with fewer support vectors, if time allows."""
        job, task = self.trainer.job, rounds.task
        if not solution.evaluated or not len(solution.SV):
            return
        if isinstance(solution.SV, ReducedMachine):
            done = solution.SV.changes
            assert solution.SV.full is not None
            full = replace(solution, SV=solution.SV.full, certificate=done.full)
            self.full[number], self.reductions[number] = full.in_whole(task), done
            self.solved[number] = replace(solution, violators=None).in_whole(task)
            return
        gap = job.stop.wanted_gap
        try:
            with rounds.clock.until(lambda: end - RESERVED_SECONDS):
                machine, certificate, found = rounds.reduce(solution.SV, gap, solution.certificate)
        except TimeLimitError:
            emit(Notice("--reduce: there was no time to reduce the support vectors"))
            return
        self.full[number] = self.solved[number]
        self.reductions[number] = found
        reduced = replace(solution, SV=machine, certificate=certificate, violators=None)
        self.solved[number] = reduced.in_whole(task)

    @property
    def reduced(self) -> Reduced | None:
        """Return the changes by --reduce; None without it."""
        if not self.reductions:
            return None
        from randsvm.algorithms.reduced_set import total_reduction

        full = [self.full.get(number, one) for number, one in sorted(self.solved.items())]
        rows = distinct(np.concatenate([one.SV.rows for one in full]))
        return total_reduction(
            [self.reductions[number] for number in sorted(self.reductions)],
            total_certificate([one.certificate for one in full]),
            len(rows),
            self.params.prediction_type == "svr",
        )

    @property
    def stopped(self) -> Stopped:  # type: ignore[override]
        """Why the subtasks ended: the time limit, their common reason, or a list of reasons."""
        every = [one.stopped for one in self._solutions]
        counts = Counter(every)
        time_limit = Stopped(StopReason.TIME_LIMIT)
        if time_limit in counts:
            return time_limit
        if len(counts) == 1:
            return every[0]
        reasons = ", ".join(f"{one} ({n} of {len(every)})" for one, n in counts.items())
        return Stopped(StopReason.SEVERAL, (reasons,))

    @property
    def has_model(self) -> bool:
        under_way = list(self.under_way.values())
        return self.has_solution or any(one.best.solution is not None for one in under_way)

    def interrupt(self, stopped: Stopped) -> None:
        interrupted = {n: replace(one, stopped=stopped) for n, one in self.interrupted.items()}
        self.solved = {**interrupted, **self.solved}
        self._fill_in_unsolved(stopped)
        self._report_estimate()

    def _fill_in_unsolved(self, stopped: Stopped) -> None:
        """Give subtasks without a solution a constant f, and report how many they are."""
        for number in range(len(self.subtasks)):
            if number not in self.solved:
                self._use_constant(number, stopped)
        if self.unsolved:
            kind = "pairs of classes" if self.subtasks.pairs else "classes"
            emit(
                Notice(
                    f"{len(self.unsolved)} of {len(self.subtasks)} {kind} have no solution, only a "
                    "constant decision value: there was no time for them"
                )
            )

    def _use_constant(self, number: int, stopped: Stopped) -> None:
        self.solved[number] = SubtaskSolution.constant(self.subtasks, number, stopped)
        self.unsolved.add(number)

    @property
    def _solutions(self) -> list[SubtaskSolution]:
        return [self.solved[number] for number in sorted(self.solved)]

    def own_outcome(self, stopped: str) -> Trained:
        every = self._solutions
        certificate = self._certificate
        counted = [one.violators for one in every if one.violators is not None]
        return Trained(
            model=self.name,
            iterations=sum(self.counts.values()),
            support_vectors=len(self._machine.beta),
            # The coefficients of a reduced machine have no bounds.
            bounded=0 if self.reductions else count_bounded([one.SV for one in every]),
            violators=sum(counted) if len(counted) == len(every) else None,
            J=certificate.primal * self.trainer.cost_and_lambda(self.params)[1],
            evaluated=all(one.evaluated for one in every),
            cross_validation=self.cross_validation,
            stopped=stopped,
            solve_seconds=sum(self.solve_seconds.values()),
            seconds=self.clock.seconds,
            primal=certificate.primal,
            dual=certificate.dual,
            gap=certificate.gap,
            largest_gap=_largest([one.certificate.gap for one in every]),
            gap_asked=self.trainer.job.stop.wanted_gap,
            bytes_moved=self.trainer.D.executor.bytes_moved,
            reduced=self.reduced,
        )

    def metadata(self, outcome: Trained) -> dict[str, Any]:
        return {
            "lambda": self.trainer.cost_and_lambda(self.params)[1],
            "primal": outcome.primal,
            "dual": outcome.dual,
            "primal_error": self._certificate.primal_error,
            "dual_error": self._certificate.dual_error,
            "gap": outcome.gap,
            **({} if outcome.largest_gap is None else {"largest_gap": outcome.largest_gap}),
            "certificate": self._certificate_word(outcome),
            "violators": outcome.violators,
            **({} if outcome.reduced is None else _reduction_metadata(outcome.reduced)),
            "stopped": outcome.stopped,
        }

    def _certificate_word(self, outcome: Trained) -> str:
        """Return the word for the certificate: a reduced machine, and an estimate, has the D of
        other coefficients. Without a closing evaluation nothing is certified."""
        if outcome.reduced is not None:
            return "reduced"
        if self._holds_estimate:
            return "estimate"
        return "none" if isnan(outcome.gap) else "proven"

    def model(self, **common: Any) -> Model:
        mapping = self.trainer.map_of(self.params)
        if mapping is None:
            common["float64"] = True
        return finished(self._machine, mapping, **common, **self.density_marks)

    @cached_property
    def _machine(self) -> KernelModel:
        """The solutions as one model over the columns of D."""
        return assemble(self.subtasks, [one.SV for one in self._solutions])


def _largest(gaps: list[float]) -> float | None:
    """Return the largest gap of several problems, nan if one is; None for one problem."""
    return float(np.max(gaps)) if len(gaps) > 1 else None


def _reduction_metadata(reduced: Reduced) -> dict[str, Any]:
    """Return the lines of the trailer about --reduce."""
    return {
        "support_vectors_before": reduced.support_vectors_before,
        "full_gap": reduced.full_gap,
        "largest_change": reduced.largest_change,
        "mean_change": reduced.mean_change,
        "labels_changed": reduced.labels_changed,
        "needed_for_1_percent": reduced.needed_for_1_percent,
        "needed_for_5_percent": reduced.needed_for_5_percent,
    }


# Rows for the density marks if there may be no time for all rows.
MARKED_ROWS = 500


def fit_density_marks(
    D: Dataset, decision: Decision, clock: Clock, until: float, seed: int
) -> dict[str, Any]:
    """Return the density marks of novelty detection as fields of Model, from the rows of D.

    If there is no time for all rows before `until` (perf_counter() in seconds), the marks are from
    a random subset. The result is empty if f has one sign on nearly all rows.
    """

    def values(D: Dataset) -> tuple[np.ndarray, np.ndarray | None]:
        _, f, weights = kept_values(D, decision, keep_all)
        return f[:, 0], weights

    subset: tuple[np.ndarray, np.ndarray | None] = np.empty(0), None
    if until < math.inf:
        subset = values(D.subset(D.mask(random_subset(D, MARKED_ROWS, Draws(seed)))))
    try:
        with clock.until(lambda: until):
            f, weights = values(D)
    except TimeLimitError:
        emit(Notice(f"little time for -b 1: probabilities are from {len(subset[0]):,} rows"))
        f, weights = subset
    marks = density_marks(f, weights)
    if marks is None:
        emit(Notice("too few rows on one side of f = 0 for -b 1: no probabilities, as in LIBSVM"))
        return {}
    return {"density_marks": marks}
