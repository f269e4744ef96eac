"""Train a kernel machine: solve each of its binary problems by rounds, and join them to a model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from math import inf, isinf, isnan
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from randsvm.algorithms.decomposition import start_of_fold
from randsvm.arrays import distinct, median
from randsvm.data.dataset import Dataset
from randsvm.errors import ContentError, InfeasibleError
from randsvm.events import (
    Iteration,
    Notice,
    Reduced,
    Trained,
    Waiting,
    Watch,
    emit,
    emit_once,
    listening,
)
from randsvm.models.decisions import class_pairs, pair_positions
from randsvm.models.kernel_model import KernelModel
from randsvm.models.metadata import or_nan
from randsvm.models.model import Model
from randsvm.parallel import completed_results
from randsvm.parameters.option import AUTO, BALANCED, require
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.parameters.run import Search
from randsvm.parameters.svm import (
    NO_DEFECTS,
    NU_TASKS,
    KernelParams,
    Problem,
    class_weights,
    side_weights,
    stated_weights,
)
from randsvm.svm.kernel_layout import kernel_defects
from randsvm.svm.running_values import SavedSolution
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine
from randsvm.svm.whole import KernelMatrix, shares_kernel
from randsvm.training.cross_validation import concurrent_fits, fit_anew, kept_values
from randsvm.training.job import (
    RESERVED_SECONDS,
    Clock,
    Decision,
    FoldFit,
    Job,
    Keep,
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
from randsvm.training.run import FileRun, Plan, StartDetails, Trainer, words_of
from randsvm.training.small_pairs import SmallPairs, small_pairs
from randsvm.training.subtasks import OldModel, Subtask, Subtasks, assemble, finished
from randsvm.training.transcript import without_rows
from randsvm.training.transcript import write as write_transcript

if TYPE_CHECKING:
    from randsvm.algorithms.reduced_set import SubtaskReduction

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
MIN_JUDGED_ROWS = 100


def poor_fit_reason(scan: Scan, solution: KernelSolution) -> str | None:
    """Return why a solution fits other rows poorly, by the audit rows; None: no reason was found.

    scan: its running values must be those of the solution
    """
    audit, problem = scan.audit, scan.problem
    if not len(solution) or problem.kernel == "precomputed":
        return None
    u = scan.u_of(audit.rows)
    # The distance of the margin from f = 0; for a regression, the deviation of y.
    margin = abs(solution.tube) if problem.task == "nu-svc" else 1.0
    if problem.prediction_type == "svr":
        margin = float(np.std(audit.y))
    if problem.prediction_type != "one-class" and np.ptp(u) < MIN_SPREAD * margin:
        return CONSTANT_DECISION
    nearly_all = len(solution) >= MEMORISED_PART * scan.D.n or problem.prediction_type == "svr"
    if problem.kernel != "rbf" or scan.D.n < MIN_JUDGED_ROWS or not nearly_all:
        return None
    beta = scan.beta[audit.rows]
    others = u - beta  # K(x, x) = 1
    typical = median(np.abs(others - median(others)))
    return OVERFITTED if typical < MAX_CONTRIBUTION * median(np.abs(beta)) else None


# On the first fold a race drops combinations after fits to these gaps, too, before those to the gap
# of a search. Processor seconds of whole runs of 25 combinations without these gaps and with them:
# covtype of 10,000 rows 20.9 and 17.0, a9a 37.3 and 23.6 to 32.7 (64 folds, and 46 and 63: rounding
# decides which of many equal combinations stay), magic04 9.5 and 10.7. The best score of magic04
# falls from 86.69 to 86.57%.
COARSE_GAPS = 0.2, 0.05
INDEFINITE_KERNEL = "this kernel is not positive semidefinite"
NOT_CERTIFIED = "P and D certify nothing, no gap can end the run"

# --- before the data is read -----------------------------------------------------------------


def _check_precomputed(job: Job) -> None:
    """Raise ParameterError for options that do not go with precomputed kernel values."""
    excluded = {
        "--scale": (job.data_params.scale, "scaled kernel values belong to no kernel"),
        "--zero-based": (job.data_params.zero_based, "every row begins with 0:number in any case"),
        "--warm-start": (
            job.stop.warm_start,
            "rows have no features to compare with the old model's",
        ),
    }
    for option, (value, reason) in excluded.items():
        require(not value, f"{option} does not go with -t precomputed: {reason}")


# --- training --------------------------------------------------------------------------------


# The solution of each subtask of a fold; None: it has no rows of one of its sides.
SolvedFold: TypeAlias = list[SavedSolution | None]


class KernelTrainer(Trainer[KernelParams]):
    """Trainer of kernel machines: parameters become subtasks, each with an algorithm.

    old: the model to start from; None: start from zero
    defects: of a precomputed kernel
    """

    # Each pair of classes is trained separately.
    max_classes = 1000
    old: OldModel | None = None
    defects = NO_DEFECTS

    def __init__(self, name: str, job: Job, algorithm_params: RandsvmParams | OsunaParams) -> None:
        """algorithm_params: the options of the algorithm alone."""
        super().__init__(name, job)
        self.algorithm_params = algorithm_params
        self._notices: list[str] = []
        self._asked_gap = job.stop.wanted_gap or job.limits.require_gap

    def prepared(self, params: KernelParams) -> tuple[KernelTrainer, KernelParams]:
        """Fill in what follows from the model of --warm-start and from the kernel."""
        other, job = copy(self), self.job
        if job.stop.warm_start:
            other.old = OldModel.read(job.stop.warm_start)
            params, other._notices = other.old.params(params, job.given)
        job.stop.check(params)
        require(
            not (job.stop.warm_start and params.components),
            "--warm-start goes with a kernel, not with --components",
        )
        if params.kernel == "precomputed":
            _check_precomputed(job)
        # If the user bounds k, that bound ends the run instead of a gap.
        bounded = isinstance(self.algorithm_params, RandsvmParams) and bool(
            self.algorithm_params.support_bound_flags
        )
        bounded = bounded and params.task != "one-class"
        stop = job.stop.resolved(params, bounded, job.limits.require_gap)
        other.job = replace(job, stop=stop)
        require(
            stop.reduce != AUTO or stop.wanted_gap is not None,
            "--reduce auto needs a gap: give --gap, or --reduce N",
        )
        return other, params

    def with_rows(self, whole: Dataset, path: str, params: KernelParams) -> KernelTrainer:
        """Return a trainer on the rows. Without a positive semidefinite kernel no gap ends a run.

        Raises ContentError if the user asked for one.
        """
        other = super().with_rows(whole, path, params)
        if params.kernel != "precomputed":
            return other
        other.defects, why = kernel_defects(other.D)
        if why is None:
            return other
        if self._asked_gap is not None:
            raise ContentError(
                f"{why}: no gap can be certified, and {self._asked_gap:g} was asked for"
            )
        # Keep --gap none, which is text; drop the number that was filled in as the default.
        gap = self.job.stop.gap if isinstance(self.job.stop.gap, str) else None
        other.job = replace(self.job, stop=replace(self.job.stop, gap=gap))
        other._notices = [*self._notices, f"{why}: {NOT_CERTIFIED}"]
        return other

    def resolved(self, params: KernelParams) -> KernelParams:
        # Random features come first: they have their own default of gamma.
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params.resolved(len(self.D.summary.features), len(self.labels))

    def cost_and_lambda(self, params: KernelParams) -> tuple[float, float]:
        return params.cost, 1 / (params.cost * self.D.total_weight())

    def subtasks_and_algorithm(self, params: KernelParams) -> tuple[Subtasks, Algorithm]:
        """Return the subtasks of all rows, and the algorithm of the largest one."""
        subtasks = self.subtasks(self.D, params)
        return subtasks, self.algorithm_for(subtasks.max_rows, subtasks.problem)

    def described(self, params: KernelParams) -> StartDetails:
        subtasks, algorithm = self.subtasks_and_algorithm(params)
        is_certified = params.positive_semidefinite
        uncertified = [] if is_certified else [f"{INDEFINITE_KERNEL}: {NOT_CERTIFIED}"]
        return StartDetails(
            algorithm.arguments,
            [*self._notices, *uncertified, *algorithm.notices],
            {
                "gap_asked": self.job.stop.wanted_gap,
                "working_set": algorithm.working_set(subtasks),
                "solve_bytes": algorithm.solve_bytes(subtasks),
            },
        )

    def subtasks(self, D: Dataset, params: KernelParams, memory_sharers: int = 1) -> Subtasks:
        """Return the subtasks of D or of a view of it.

        memory_sharers: the number of such views that share the memory.
        """
        mapping = self.map_of(params)
        params = self.resolved(params)
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
            params = replace(params, kernel="linear", components=None)
        return Subtasks(D, params, self.job.resources, memory_sharers, self.defects)

    def algorithm_for(self, n: int, problem: Problem) -> Algorithm:
        """Return the algorithm for a problem of n rows like those of D."""
        nonzeros = self.D.nnz / max(self.D.n, 1)
        return Algorithm(self.name, self.algorithm_params, self.job, n, nonzeros, problem)

    def small_pairs(self, subtasks: Subtasks) -> Iterator[SmallPairs]:
        """Yield the solutions of pairs of small classes that reach the gap; nothing if these
        subtasks or options need rounds."""
        stop, D, problem = self.job.stop, subtasks.D, subtasks.problem
        gap, rows = stop.gap_before_reduction, min(MIN_JUDGED_ROWS - 1, subtasks.max_rows)
        suits = (
            subtasks.of_pairs
            and (problem.task, problem.kernel) == ("svc", "rbf")
            and (stop.reduce, stop.max_iterations, self.job.limits.certificate) == (None,) * 3
            and D.weights() is None
        )
        if gap is not None and suits and rows <= self.algorithm_for(rows, problem).r:
            yield from small_pairs(subtasks, rows, gap)

    def decision(self, D: Dataset, params: KernelParams, clock: Clock) -> Decision:
        """Return f of the subtasks' solutions, without a closing evaluation."""
        with closing(self.subtasks(D, params, concurrent_fits(D, self.job))) as subtasks:
            solutions = [SV for SV, _ in self._solutions(subtasks, clock)]
            return assemble(subtasks, solutions).decision_matrix

    @contextmanager
    def ways_to_fit(
        self, D: Dataset, candidates: Sequence[KernelParams]
    ) -> Iterator[tuple[Sequence[FoldFit[KernelParams]], int]]:
        trainer, first = self.for_search(), candidates[0]
        # Fits that share work run in this process, also if there is a cluster.
        own_fits = self.job.resources.concurrent_fits(D.n)
        with closing(trainer.subtasks(D, first, own_fits)) as whole:

            def subtasks_of(params: KernelParams) -> Subtasks:
                return replace(whole, params=trainer.resolved(params))

            if first.components is None and self._shares_kernels(map(subtasks_of, candidates)):
                yield [partial(fit_by_libsvm, subtasks_of)], own_fits
            elif first.components is None and self.gains_from_starts(whole):
                if whole.of_pairs:
                    whole.group_rows()
                trainers = [self.for_search(gap) for gap in (*COARSE_GAPS, 0.0)]
                yield [partial(one.fit_from_previous, subtasks_of) for one in trainers], own_fits
            else:
                yield [partial(fit_anew, D, trainer.fit)], concurrent_fits(D, self.job)

    def _shares_kernels(self, subtasks: Iterable[Subtasks]) -> bool:
        """Return whether LIBSVM solves parts of the same rows from kernel values in memory.

        It ends at a tolerance: not at a search gap that the user asks for, and not by the rules
        that end a run without a gap. subtasks: with the parameters of each candidate
        """
        if self.job.search.search_gap is not None or self.job.stop.wanted_gap is None:
            return False
        return all(
            one.params.task in ("svc", "svr")
            and not one.D.summary.weighted
            and shares_kernel(one.D, one.problem)
            for one in subtasks
        )

    def gains_from_starts(self, subtasks: Subtasks) -> bool:
        """Return whether a fit of a fold is faster if it starts from the solution of another fit.

        Nu tasks prescribe the sum of the coefficients, and the coefficients of other rows have
        another sum. KBH07's rule without a gap keeps no coefficients outside of a working set. If
        all rows fit into one working set, LIBSVM is as fast from zero: digits takes 1.8 times as
        long with starts. Random features of each gamma are other rows.
        """
        if subtasks.params.task in NU_TASKS or self.job.stop.wanted_gap is None:
            return False
        folds = self.job.search.fold_count
        rows = subtasks.max_rows * (folds - 1) // folds
        return self.algorithm_for(rows, subtasks.problem).r < rows

    def fit_from_previous(
        self,
        subtasks_of: Callable[[KernelParams], Subtasks],
        params: KernelParams,
        previous: SolvedFold | None,
        training: np.ndarray,
        held_out: np.ndarray,
        keep: Keep,
    ) -> tuple[np.ndarray, SolvedFold]:
        """Train on some rows, all others of which have the weight 0; see FoldFit."""
        subtasks = subtasks_of(params).without(~training)
        with limited(inf) as clock:
            solved = list(self._solutions(subtasks, clock, previous))
        D, saved = subtasks.D, [one for _, one in solved]
        if subtasks.of_pairs:
            machine = assemble(subtasks, [SV for SV, _ in solved])
            return kept_values(D.subset(held_out), machine.decision_matrix, keep), saved
        f = []
        for SV, one in solved:
            assert one is not None, "only a pair of classes may lack a side"
            f.append((one.u[held_out] + SV.b) * SV.scale)
        return keep(np.column_stack(f), D.labels()[held_out]), saved

    def _solutions(
        self, subtasks: Subtasks, clock: Clock, previous: SolvedFold | None = None
    ) -> Iterator[tuple[KernelSolution, SavedSolution | None]]:
        """Yield the solution of each subtask of a fold, without an evaluation, and its
        SavedSolution.

        Raises TimeLimitError if the time of a subtask is over before it has a solution.
        """
        with clock.until(lambda: clock.end - RESERVED_SECONDS):
            small = dict[int, SubtaskSolution]()
            for some in () if previous else self.small_pairs(subtasks):
                small |= some.solutions
        for number in range(len(subtasks)):
            if number in small:
                yield small[number].SV, None
                continue
            if subtasks.lacks_side(number):
                yield subtasks.constant_solution(number)[0], None
                continue
            subtask, saved = subtasks[number], previous[number] if previous else None
            rounds = Rounds(
                subtask,
                self.algorithm_for(subtask.D.n, subtask.problem),
                None if saved is None else start_of_fold(saved),
                clock,
                clock.share(1 / (len(subtasks) - number)),
                memory_sharers=subtasks.memory_sharers,
            )
            try:
                SV = rounds.with_reduction(rounds.solve(clock.end - RESERVED_SECONDS)).SV
                rounds.scan.return_to(SV)
                yield subtask.in_whole(rounds.scan.completed(SV)), rounds.scan.saved_solution
            finally:
                rounds.scan.forget()

    def for_search(self, coarse_gap: float = 0.0) -> KernelTrainer:
        """Return a trainer for parts of the rows, to the gap of a search and without --reduce.

        coarse_gap: the gap if it is larger than that of the search
        """
        stop, asked = self.job.stop, self.job.search.search_gap
        looser = Search.DEFAULT_GAP if asked is None else asked
        if stop.wanted_gap is not None:
            stop = replace(stop, gap=max(stop.wanted_gap, looser, coarse_gap))
        return self.for_parts(replace(stop, reduce=None))

    def new_run(self, plan: Plan[KernelParams], clock: Clock) -> KernelTrainingRun:
        return KernelTrainingRun(self, plan, clock)


# --- fits of folds from shared kernel values -------------------------------------------------


def fit_by_libsvm(
    subtasks_of: Callable[[KernelParams], Subtasks],
    params: KernelParams,
    previous: None,
    training: np.ndarray,
    held_out: np.ndarray,
    keep: Keep,
) -> tuple[np.ndarray, None]:
    """Train on some rows of a small D, whose kernel values all folds and all C share; see FoldFit.

    LIBSVM solves all rows of the fold at once.

    subtasks_of: returns the subtasks of all rows with some parameters
    """
    subtasks, rows = subtasks_of(params), np.flatnonzero(held_out)
    K, labels, sums = subtasks.matrix(), subtasks.labels, subtasks.weight_sums
    trained, y = np.flatnonzero(training), subtasks.D.labels()
    if params.prediction_type == "svr":
        machine = K.regress(trained, y[trained], params.C, params.epsilon, params.tolerance)
        return keep(K.sums(machine, rows)[0] - machine.rho, y[rows]), None
    problems = [(y[trained], class_weights(params.weights, labels, sums))]
    if len(labels) > 2 and not subtasks.of_pairs:
        problems = [
            (y[trained] != k, [*side_weights(params.weights, labels, sums, k, None)])
            for k in range(len(labels))
        ]
    columns = [
        _values_of_pairs(K, params, trained, classes.astype(np.int64), weights, rows)
        for classes, weights in problems
    ]
    return keep(np.hstack(columns), y[rows]), None


def _values_of_pairs(
    K: KernelMatrix,
    params: KernelParams,
    training: np.ndarray,
    classes: np.ndarray,
    weights: Sequence[float],
    rows: np.ndarray,
) -> np.ndarray:
    """Return f of each pair of classes, (m, pairs) float64.

    training, classes : (n,) int64, rows to train on and their classes; weights: of each class;
    rows : (m,) int64
    """
    present = np.bincount(classes, minlength=len(weights)) > 0
    # A pair without a machine predicts its first class if that has rows, else its second.
    constant = np.where(present[class_pairs(len(weights))[0]], 1.0, -1.0)
    f = np.tile(constant, (len(rows), 1))
    if np.count_nonzero(present) > 1:
        machine = K.classify(training, classes, params.C, weights, params.tolerance)
        sums, (i, j) = K.sums(machine, rows), class_pairs(len(machine.labels))
        values = sums[i, :, j - 1].T + sums[j, :, i].T - machine.rho
        # Where LIBSVM has the classes of a pair in the other order, f has the other sign.
        first, second = np.array(machine.labels)[[i, j]]
        columns = pair_positions(len(weights))[first, second]
        f[:, columns] = np.where(first < second, values, -values)
    return f


class KernelTrainingRun(FileRun[KernelParams]):
    """The training of all subtasks, which share the time of the plan, and their joint model.

    Pairs of classes with enough rows are solved side by side, as many as memory allows (see
    `Subtasks.side_by_side`). Other subtasks are solved one after another.

    concurrent_subtasks: the number of subtasks that are solved at a time
    start_of: returns what a subtask starts from; see OldModel.starts. None: nothing
    solved: the solutions by the numbers of their subtasks, also those of interrupted ones
    under_way: the rounds of subtasks by their numbers
    """

    trainer: KernelTrainer

    def __init__(self, trainer: KernelTrainer, plan: Plan[KernelParams], clock: Clock) -> None:
        super().__init__(trainer, plan, clock)
        self.subtasks, largest = trainer.subtasks_and_algorithm(plan.params)
        self.concurrent_subtasks = self.subtasks.side_by_side(largest.solve_bytes(self.subtasks))
        old, C = trainer.old, plan.params.cost
        self.start_of = None if old is None else old.starts(self.subtasks, C)
        self.solved: dict[int, SubtaskSolution] = {}
        self.under_way: dict[int, Rounds] = {}

    def run(self) -> None:
        """Solve the subtasks for which there is time.

        Raises TimeLimitError if the time is over and no subtask has a solution.
        """
        numbers = range(len(self.subtasks))
        if not self.subtasks.of_pairs:
            for number in numbers:
                self._solve(number, self.clock)
            return
        self._solve_small_pairs()
        left = [number for number in numbers if number not in self.solved]
        tasks = [partial(self._solve_in_thread, number) for number in left]
        threads, until = self.concurrent_subtasks, self.clock.end
        for _ in completed_results(tasks, threads, "pairs", "pair", until, self._forward):
            pass
        # A thread that LIBSVM holds has not noticed the end of its time.
        self._take_unfinished(Stopped(StopReason.TIME_LIMIT))
        if not self.solved:
            raise TimeLimitError

    def _solve_small_pairs(self) -> None:
        """Solve the pairs of small classes at once, but for those that miss the gap."""
        if self.start_of is not None:
            return

        def latest() -> float:
            return (self.plan.training_end if self.solved else self.clock.end) - RESERVED_SECONDS

        with suppress(TimeLimitError), self.clock.until(latest):
            self._take_small_pairs()

    def _take_small_pairs(self) -> None:
        calls = list[SmallPairs]()
        for some in self.trainer.small_pairs(self.subtasks):
            for number, spread in zip(some.solutions, some.spreads, strict=True):
                found = some.solutions[number]
                if spread < MIN_SPREAD:
                    found = replace(found, poor_fit=CONSTANT_DECISION)
                self.solved[number] = found
            if self.clock.stopping.is_set():
                return
            calls.append(some)
            is_round = some.ends_group and any(one.solutions for one in calls)
            emit(self._round_of(calls) if is_round else Waiting())
            calls = [] if some.ends_group else calls

    def _round_of(self, calls: Sequence[SmallPairs]) -> Iteration:
        """Return the event of the pairs of a group."""
        numbers = [number for some in calls for number in some.solutions]
        solved = [self.solved[number] for number in numbers]
        total = total_certificate([one.certificate for one in solved])
        vectors = sum(len(one.SV) for one in solved)
        is_one = len(numbers) == 1
        return Iteration(
            number=0,
            seconds=self.clock.seconds,
            solve_seconds=sum(some.solve_seconds for some in calls),
            working_set=sum(some.rows for some in calls),
            support_vectors=vectors,
            bounded=sum(some.bounded for some in calls),
            violators=sum(one.violators or 0 for one in solved),
            changed=vectors,
            scan_seconds=sum(some.scan_seconds for some in calls),
            gap=total.gap,
            bytes_moved=self.subtasks.D.executor.bytes_moved,
            machine=self.subtasks.name_of(numbers[0]) if is_one else f"{len(numbers):,} pairs",
            primal=total.primal,
            dual=total.dual,
        )

    def _solve(self, number: int, clock: Clock) -> None:
        """Solve a subtask, if there is time for it. clock: of this thread"""
        subtasks = self.subtasks
        # Without any solution there is no model: the first subtask may use all the time.
        is_first = not number and not self.solved
        is_late = time.perf_counter() >= self.training_end - RESERVED_SECONDS
        if is_late and not is_first:
            return
        if subtasks.lacks_side(number):
            found = SubtaskSolution.constant(subtasks, number, Stopped(StopReason.NO_VIOLATORS))
            rows = subtasks.row_count(number)
            self.solved[number] = replace(found, transcript=without_rows(rows))
            return
        rounds = self.under_way[number] = self._rounds(number, subtasks[number], clock)
        latest = (self.clock.end if is_first else self.plan.training_end) - RESERVED_SECONDS
        try:
            found = self._completed(rounds, rounds.certified(latest))
            self.solved[number] = rounds.in_whole(found)
        except TimeLimitError:
            if not self.has_model:
                raise
        except InfeasibleError:
            raise
        except Exception as error:
            stopped = Stopped(StopReason.INTERRUPTED, (words_of(error),))
            if (best := rounds.interrupted(stopped)) is not None:
                self.solved[number] = rounds.in_whole(best)
            raise
        finally:
            del self.under_way[number]
            rounds.scan.forget()

    def _rounds(self, number: int, subtask: Subtask, clock: Clock) -> Rounds:
        """Return the rounds of a subtask, which has its share of the time left."""
        trainer, subtasks = self.trainer, self.subtasks
        left = len(subtasks) - len(self.solved)
        return Rounds(
            subtask,
            trainer.algorithm_for(subtask.D.n, subtask.problem),
            None if self.start_of is None else self.start_of(number, subtask),
            clock,
            self.clock.share(min(self.concurrent_subtasks / left, 1.0), self.plan.training_end),
            self.concurrent_subtasks * subtasks.memory_sharers,
        )

    def _completed(self, rounds: Rounds, found: SubtaskSolution) -> SubtaskSolution:
        """Return the solution of a subtask, reduced if that is asked for and there is time, with
        its transcript if that is asked for."""
        # A time limit may have interrupted float64 sums.
        if found.evaluated and rounds.scan.settled:
            found = replace(found, poor_fit=poor_fit_reason(rounds.scan, found.SV))
        found = rounds.with_reduction(found) if found.evaluated else found
        if self.trainer.job.limits.certificate is not None:
            found = replace(found, transcript=rounds.transcript(found))
        return found

    def complete(self) -> None:
        self.subtasks.close()
        self._report()
        if self.params.probability and self.params.prediction_type == "one-class":
            D, end = self.subtasks.D, self.plan.training_end - RESERVED_SECONDS
            decision = self.machine.decision_matrix
            self.calibrated = fit_density_marks(D, decision, self.clock, end)
        super().complete()

    def _report(self) -> None:
        """Report what the solutions lack, if that has not been reported yet."""
        solutions, certificate, lacks = self.solutions, self._certificate, []
        unsolved = len(solutions) - len(self.solved)
        if unsolved:
            kind = "pairs of classes" if self.subtasks.of_pairs else "classes"
            lacks.append(
                f"{unsolved} of {len(solutions)} {kind} have no solution, only a constant decision "
                "value: there was no time for them"
            )
        counts = Counter(one.poor_fit for one in solutions)
        lacks += [text for text in POOR_FIT_NOTICES if counts[text] > len(solutions) / 2]
        if isinf(certificate.gap):
            error = max(certificate.primal_error, certificate.dual_error)
            lacks.append(
                f"rounding of kernel values, {error:.2g}, is larger than the objectives: scale the "
                "features"
            )
        for text in lacks:
            emit_once(text, Notice(text))

    @cached_property
    def _certificate(self) -> Certificate:
        """The sum of the certificates of all subtasks. Only after the run."""
        return total_certificate([one.certificate for one in self.solutions])

    def _solve_in_thread(self, number: int, watch: Watch) -> None:
        """Solve a subtask with a clock that interrupts this thread only."""
        clock = Clock(None, watch)
        clock.began, clock.stopping = self.clock.began, self.clock.stopping
        with listening(clock):
            self._solve(number, clock)

    def _forward(self, event: object) -> None:
        """Emit an event of a thread."""
        if isinstance(event, Notice):
            emit_once(event.text, event)
        else:
            emit(event)

    @property
    def reductions(self) -> list[SubtaskReduction]:
        """The changes in each subtask that --reduce has reduced."""
        return [one.changes for one in self.solutions if one.changes is not None]

    @property
    def reduced(self) -> Reduced | None:
        """Return the changes by --reduce; None without it."""
        changes = self.reductions
        if not changes:
            return None
        full = [
            one.full if isinstance(one, ReducedMachine) and one.full else one
            for one in (one.SV for one in self.solutions)
        ]
        rows = distinct(np.concatenate([one.rows for one in full]))
        certificate = total_certificate(
            [one.changes.full if one.changes else one.certificate for one in self.solutions]
        )
        n, regression = sum(one.rows for one in changes), self.params.prediction_type == "svr"
        return Reduced(
            support_vectors_before=len(rows),
            full_gap=certificate.gap,
            largest_change=max(one.largest for one in changes),
            mean_change=sum(one.mean * one.rows for one in changes) / n,
            labels_changed=0 if regression else sum(one.labels_changed for one in changes),
        )

    @property
    def stopped(self) -> Stopped:  # type: ignore[override]
        """Why the subtasks ended: the time limit, their common reason, or a list of reasons."""
        ends = [one.stopped for one in self.solutions]
        counts = Counter(ends)
        time_limit = Stopped(StopReason.TIME_LIMIT)
        if time_limit in counts:
            return time_limit
        if len(counts) == 1:
            return ends[0]
        reasons = ", ".join(f"{one} ({n} of {len(ends)})" for one, n in counts.items())
        return Stopped(StopReason.SEVERAL, (reasons,))

    @property
    def has_model(self) -> bool:
        under_way = list(self.under_way.values())
        return bool(self.solved) or any(one.best_so_far is not None for one in under_way)

    def _take_unfinished(self, stopped: Stopped) -> None:
        """Take the best solution of each subtask that a thread has not ended.

        Threads go on meanwhile, and may begin others: `dict` copies what is there now.
        """
        for number, rounds in dict(self.under_way).items():
            if (best := rounds.known(stopped)) is not None:
                self.solved.setdefault(number, rounds.in_whole(best))

    def so_far(self) -> tuple[Model, Trained] | None:
        # What the copy caches is of this moment.
        now = copy(self)
        now.solved = dict(self.solved)
        for number, rounds in dict(self.under_way).items():
            if (best := rounds.so_far(Stopped(StopReason.CHECKPOINT))) is not None:
                now.solved.setdefault(number, rounds.in_whole(best))
        return super(KernelTrainingRun, now).so_far()

    def interrupt(self, stopped: Stopped) -> None:
        self._take_unfinished(stopped)
        self.subtasks.close()
        for number, one in dict(self.solved).items():
            if one.stopped.reason is StopReason.INTERRUPTED:
                self.solved[number] = replace(one, stopped=stopped)
        self._report()

    @cached_property
    def solutions(self) -> list[SubtaskSolution]:
        """The solutions of all subtasks, a constant f where there is none. Only after the run."""
        late = Stopped(StopReason.TIME_LIMIT)
        return [
            self.solved.get(number) or SubtaskSolution.constant(self.subtasks, number, late)
            for number in range(len(self.subtasks))
        ]

    def outcome(self, stopped: Stopped) -> Trained:
        solutions, certificate = self.solutions, self._certificate
        gaps = [one.certificate.gap for one in solutions]
        counted = [one.violators for one in solutions if one.violators is not None]
        return Trained(
            model=self.name,
            iterations=self.clock.rounds,
            support_vectors=len(self.machine.beta),
            # The coefficients of a reduced machine have no bounds.
            bounded=0 if self.reductions else count_bounded([one.SV for one in solutions]),
            violators=sum(counted) if len(counted) == len(solutions) else None,
            J=certificate.primal * self.trainer.cost_and_lambda(self.params)[1],
            evaluated=all(one.evaluated for one in solutions),
            certificate=self._certificate_word,
            cross_validation=self.cross_validation,
            stopped=str(stopped),
            seconds=self.clock.seconds,
            primal=certificate.primal,
            dual=certificate.dual,
            gap=certificate.gap,
            # nan if the gap of any problem is unknown
            largest_gap=float(np.max(gaps)) if len(gaps) > 1 else None,
            gap_asked=self.trainer.job.stop.wanted_gap,
            bytes_moved=self.trainer.D.executor.bytes_moved,
            digest=self.trainer.D.summary.digest,
            reduced=self.reduced,
        )

    @property
    def _problem(self) -> dict[str, Any]:
        """The problem as docs/certificate-format.md defines it."""
        params, labels = self.params, self.trainer.labels
        names = [name for name in ("C", "epsilon", "nu") if params.uses(name)]
        tubes = [one.SV.tube for one in self.solutions]
        if params.task == "nu-svr":
            tubes = [max(tube, 0.0) for tube in tubes]
        weights = stated_weights(params.weights, labels)
        return {
            "task": params.task,
            **{name: getattr(params, name) for name in names},
            **({"tube": tubes} if params.task in NU_TASKS else {}),
            **({"class_weights": weights} if params.task == "svc" else {}),
            **({"balanced": True} if BALANCED in dict(params.weights) else {}),
            **({"multiclass": params.multiclass} if params.multiclass else {}),
        }

    def metadata(self, outcome: Trained) -> dict[str, Any]:
        return {
            "problem": self._problem,
            "lambda_": self.trainer.cost_and_lambda(self.params)[1],
            "primal": or_nan(outcome.primal),
            "dual": or_nan(outcome.dual),
            "primal_error": self._certificate.primal_error,
            "dual_error": self._certificate.dual_error,
            "gap": outcome.gap,
            **({} if outcome.largest_gap is None else {"largest_gap": outcome.largest_gap}),
            "certificate": outcome.certificate,
            **({"dual_of": "other coefficients"} if self._certificate.other_dual else {}),
            "violators": or_nan(outcome.violators),
            **({} if outcome.reduced is None else outcome.reduced._asdict()),
            "stopped": outcome.stopped,
        }

    @property
    def _certificate_word(self) -> str:
        """The word for the certificate.

        Reduced machines have the D of other coefficients. Without a closing evaluation nothing is
        certified.
        """
        if self.reduced is not None:
            return "reduced"
        if isnan(self._certificate.gap) or not all(one.evaluated for one in self.solutions):
            return "none"
        return "sampled" if self._certificate.sampled else "proven"

    def write_transcript(self, outcome: Trained) -> None:
        path, solutions = self.trainer.job.limits.certificate, self.solutions
        if path is None:
            return
        transcripts = [one.transcript for one in solutions if one.transcript is not None]
        if len(transcripts) < len(solutions):
            emit(Notice(f"{path} is not written: the training ended before its closing evaluation"))
            return
        write_transcript(path, outcome.model, transcripts)

    def model(self, **common: Any) -> Model:
        mapping = self.trainer.map_of(self.params)
        if mapping is None:
            common["float64"] = True
        return finished(self.machine, mapping, **common)

    @cached_property
    def machine(self) -> KernelModel:
        """The solutions as one model over the columns of D."""
        return assemble(self.subtasks, [one.SV for one in self.solutions])


def fit_density_marks(D: Dataset, decision: Decision, clock: Clock, until: float) -> dict[str, Any]:
    """Return the density marks of novelty detection as fields of Model, from the rows of D.

    The result is empty if there is no time for it before `until` (perf_counter() in seconds), or
    if f has one sign on nearly all rows.
    """
    try:
        with clock.until(lambda: until):
            f = kept_values(D, decision, keep_all)
    except TimeLimitError:
        emit(Notice("no time for -b 1: no probabilities"))
        return {}
    marks = density_marks(f[:, 0], D.weights())
    if marks is None:
        emit(Notice("too few rows on one side of f = 0 for -b 1: no probabilities, as in LIBSVM"))
        return {}
    return {"density_marks": marks}
