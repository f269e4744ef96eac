"""Kernel machines: what a run needs to train one by rounds of solve and scan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any, TypeAlias

from randsvm.algorithms.decomposition import Decomposition
from randsvm.algorithms.osuna import osuna, osuna_closest
from randsvm.algorithms.randsvm import certified, randsvm_1
from randsvm.data.dataset import Dataset
from randsvm.errors import ClusterError, ContentError, Interrupted
from randsvm.events import Iteration, Notice, Trained, Watch, emit, emit_once, listening
from randsvm.models.kernel_model import KernelModel
from randsvm.models.model import Model
from randsvm.parallel import Cancelled, run_forwarding_events
from randsvm.parameters.option import command_line, require
from randsvm.parameters.problem import Problem
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.parameters.svm import Params
from randsvm.svm.kernel_layout import why_not_psd
from randsvm.svm.solution import SV
from randsvm.training.clock import LATE, Clock, TimeLimitError
from randsvm.training.cross_validation import at_once
from randsvm.training.job import Decision, Job, kernel_job, without_gap
from randsvm.training.labelled_data import LabelledData
from randsvm.training.multiclass import Subtask, Subtasks, assemble, finished
from randsvm.training.probabilities import fit_density_marks
from randsvm.training.rounds import AlgorithmSpec, Rounds, Solved, count_bounded, total
from randsvm.training.run import Ending, Learning, Outline, Trainer
from randsvm.training.stopping import NO_VIOLATORS, TIME_LIMIT, support_bound
from randsvm.training.usefulness import TEXTS
from randsvm.training.warm_start import WarmStart

Begin: TypeAlias = "Callable[[LabelledData, Job], KernelTrainer]"


def prepare(
    name: str, algorithm: RandsvmParams | OsunaParams, params: Params, job: Job
) -> tuple[Begin, Params, Job]:
    """Return what makes the trainer once the data is read, and the parameters and the job with
    what follows from --warm-start and the kernel filled in.

    name: of the algorithm, in SPECS. Raises ParameterError for what does not go together.
    """
    old, notices, asked = None, list[str](), job.stop.wanted_gap or job.limits.require_gap
    if job.warm_start:
        old = WarmStart.read(job.warm_start)
        params, notices = old.params(params, job.given)
    # Where k is asked for it ends the run, and no gap.
    bounded = isinstance(algorithm, RandsvmParams) and bool(algorithm.about_k)
    job = kernel_job(job, params, bounded and params.task != "one-class")
    spec_factory: SpecFactory = partial(SPECS[name], algorithm)
    begin: Begin = partial(KernelTrainer, spec_factory=spec_factory, old=old, notices=notices)
    if params.kernel == "precomputed":
        begin = partial(_in_doubt, begin, asked)
    return begin, params, job


def _in_doubt(
    begin: Begin, asked: float | None, labelled_data: LabelledData, job: Job
) -> KernelTrainer:
    """The training with a precomputed kernel, which may not be positive semidefinite: then no gap
    ends it. Raises ContentError where one was asked for."""
    training, why = begin(labelled_data, job), why_not_psd(labelled_data.D)
    if why is None:
        return training
    if asked is not None:
        raise ContentError(f"{why}: no gap can be certified, and {asked:g} was asked for")
    return replace(training, job=without_gap(job), doubt=why)


FORMULA_FOR_K = (
    "the formula for k assumes rows of length 1 in feature space, which only the rbf kernel "
    "guarantees"
)


# Rows of a working set of a nu task: two of either side.
NU_LEAST = 4

# A plan for so many rows and this problem.
SpecFactory = Callable[[int, Problem, Job], AlgorithmSpec]
# The algorithm of a subtask.
SpecOfSubtask = Callable[[Subtask], AlgorithmSpec]


def rows_of(n: int, problem: Problem) -> int:
    """Rows of a working set where the user left it open; a regression has two variables a row."""
    return OsunaParams.rows(n, 2 if problem.kind == "svr" else 1)


def randsvm_spec(algorithm: RandsvmParams, n: int, problem: Problem, job: Job) -> AlgorithmSpec:
    """Algorithm 1 until |SV| >= k; with --gap, and where coefficients have a sum that does not
    leave them at 0 outside of the working set, without that bound. Nor has a precomputed kernel it
    where the gap was left open and nothing is certified: k rows take k^2 values in memory."""
    left_open = problem.doubtful and job.stop.gap is None and not algorithm.about_k
    if job.stop.wanted_gap is None and not (problem.total or problem.size or left_open):
        own = algorithm.resolved(n)
        assert own.support_bound and own.sample_size
        r, rules = own.sample_size, [support_bound(own.support_bound)]
        solve = partial(randsvm_1, r=r)
        formula = algorithm.support_bound is None and problem.kernel != "rbf"
        # -k says by itself that no gap ends the run.
        words = command_line(own, replace(job.stop, gap=None))
        notices = [FORMULA_FOR_K] if formula else []
        return AlgorithmSpec("randsvm", solve, r, False, words, rules, notices)
    unused, own = " ".join(algorithm.about_k), algorithm.without_k()
    rule = "no violators" if job.stop.wanted_gap is None else "--gap"
    notices = [f"{rule} decides when to end: {unused} not used"] if unused else []
    r = _enough("--sample-size", own.sample_size, n, problem)
    words = command_line(own, job.stop)
    return AlgorithmSpec("randsvm", partial(certified, r=r), r, True, words, notices=notices)


def _enough(option: str, rows: int | None, n: int, problem: Problem) -> int:
    """The rows of a working set. Raises ParameterError where the user leaves a nu task no room for
    a step, which moves two rows of the same side."""
    if rows is None:
        return rows_of(n, problem)
    least = min(NU_LEAST, n) if problem.size else 1
    require(rows >= least, f"{option} must be {least} or more with -s {problem.task}, got {rows}")
    return rows


def osuna_spec(algorithm: OsunaParams, n: int, problem: Problem, job: Job) -> AlgorithmSpec:
    """Return OFG97's decomposition."""
    return _decomposition("osuna", osuna, algorithm, n, problem, job)


def osuna_closest_spec(algorithm: OsunaParams, n: int, problem: Problem, job: Job) -> AlgorithmSpec:
    """Return OFG97's decomposition with MZ's choice of the closest points."""
    return _decomposition("osuna-closest", osuna_closest, algorithm, n, problem, job)


def _decomposition(
    name: str,
    algorithm_of_size: Callable[[Decomposition, int, int | None], SV],
    algorithm: OsunaParams,
    n: int,
    problem: Problem,
    job: Job,
) -> AlgorithmSpec:
    size = _enough("--working-set", algorithm.working_set, n, problem)

    def solve(run: Decomposition) -> SV:
        return algorithm_of_size(run, size, algorithm.swap)

    return AlgorithmSpec(name, solve, size, True, command_line(algorithm, job.stop))


# Name of an algorithm -> its specification, out of its own parameters.
SPECS: dict[str, Callable[[Any, int, Problem, Job], AlgorithmSpec]] = {
    "randsvm": randsvm_spec,
    "osuna": osuna_spec,
    "osuna-closest": osuna_closest_spec,
}


INDEFINITE = "this kernel is not positive semidefinite"
NOT_CERTIFIED = "P and D certify nothing, no gap can end the run"


@dataclass(frozen=True)
class KernelTrainer(Trainer[Params, Trained]):
    """Parameters become subtasks, each with a plan of the algorithm. old: where to start;
    notices: what the user should know of it. doubt: why a precomputed kernel may not be positive
    semidefinite; None: it is."""

    spec_factory: SpecFactory
    old: WarmStart | None
    notices: list[str]
    doubt: str | None = None

    @property
    def most_classes(self) -> int:
        """Every class takes a training of its own."""
        return 1000

    def resolved(self, params: Params) -> Params:
        # First the map: it has its own default of gamma.
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params.resolved(len(self.D.summary.features), len(self.labelled_data.labels))

    def scales(self, params: Params) -> tuple[float, float]:
        return params.cost, 1 / (params.cost * self.D.n)

    def outline(self, params: Params) -> Outline:
        subtasks = self._subtasks(self.D, params)
        algorithm_spec = self.spec_factory(subtasks.most_rows, subtasks.problem, self.job)
        why = self.doubt if params.positive_semidefinite else INDEFINITE
        uncertified = [f"{why}: {NOT_CERTIFIED}"] if why else []
        return Outline(
            algorithm=algorithm_spec.name,
            words=algorithm_spec.words,
            notices=[*self.notices, *uncertified, *algorithm_spec.notices],
            working_set=algorithm_spec.working_set(subtasks),
            solve_bytes=algorithm_spec.solve_bytes(subtasks),
        )

    def _subtasks(self, D: Dataset, params: Params, at_once: int = 1) -> Subtasks:
        """Of D or of a view of it; at_once: how many such views share memory."""
        mapping = self.map_of(params)
        params = self.resolved(params)
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
            params = replace(params, kernel="linear", components=None)
        doubtful = self.doubt is not None
        return Subtasks(D, params, self.job.resources, at_once, doubtful=doubtful)

    def _algorithm_spec(self, task: Subtask, C: float) -> AlgorithmSpec:
        algorithm_spec = self.spec_factory(task.D.n, task.problem, self.job)
        return (
            algorithm_spec
            if self.old is None
            else replace(algorithm_spec, warm_start=self.old.on(task, C))
        )

    def for_parts(self) -> KernelTrainer:
        """See Training; nor is there a start from another model."""
        return replace(super().for_parts(), old=None)

    def decision(self, D: Dataset, params: Params, clock: Clock) -> Decision:
        """Return f of the subtasks' solutions, without a closing evaluation."""
        subtasks = self._subtasks(D, params, at_once(D, self.job))
        algorithm_spec = partial(self._algorithm_spec, C=params.cost)
        return _decision_of(subtasks, algorithm_spec, self.job, clock)

    def holds_out(self, params: Params) -> bool:
        return params.probability and params.kind != "one-class"

    def learning(self, params: Params, clock: Clock, until: float) -> KernelLearning:
        subtasks, algorithm_spec = (
            self._subtasks(self.D, params),
            partial(self._algorithm_spec, C=params.cost),
        )
        largest = self.spec_factory(subtasks.most_rows, subtasks.problem, self.job)
        at_once = subtasks.side_by_side(largest.solve_bytes(subtasks))
        return KernelLearning(self, params, subtasks, algorithm_spec, at_once, clock, until)


def _decision_of(
    subtasks: Subtasks, algorithm_spec: SpecOfSubtask, job: Job, clock: Clock
) -> Decision:
    """Solve the subtasks without a closing evaluation and return their f.

    Each subtask gets at least one round. A pair that has not begun when `clock` ends gets a
    constant f.
    """
    solutions = []
    try:
        for number in range(len(subtasks)):
            late = number > 0 and time.perf_counter() >= clock.end
            if subtasks.pairs and (late or 0 in subtasks.sides(number)):
                solutions.append(subtasks.nothing(number)[0])
                continue
            task, ends = subtasks[number], clock.share(1 / (len(subtasks) - number))
            rounds = Rounds(task, algorithm_spec(task), job, clock, ends, share=subtasks.at_once)
            try:
                solutions.append(task.in_whole(rounds.scan.completed(rounds.run_until(inf)[0])))
            finally:
                rounds.scan.forget()
    finally:
        subtasks.close()
    return assemble(subtasks, solutions).decision_matrix


class KernelLearning(Learning[Trained]):
    """Subtasks which share the time until `end`, pairs of classes side by side and others one
    after the other; their solutions are one model.

    plan: of a subtask. at_once: how many are under way at a time.
    """

    def __init__(
        self,
        training: Trainer[Params, Trained],
        params: Params,
        subtasks: Subtasks,
        algorithm_spec: SpecOfSubtask,
        at_once: int,
        clock: Clock,
        end: float,
    ) -> None:
        self.training = training
        self.params = params
        self.subtasks = subtasks
        self.algorithm_spec = algorithm_spec
        self.at_once = at_once
        self.clock = clock
        self.end = end
        # By the number of their subtask; broken_off: what those have that were under way; counts:
        # of their rounds.
        self.solved: dict[int, Solved] = {}
        self.broken_off: dict[int, Solved] = {}
        self.counts: dict[int, int] = {}
        self.solve_seconds: dict[int, float] = {}
        self.received = 0
        self.under_way: dict[int, Rounds] = {}
        # The numbers of those that were to be solved and have no solution.
        self.unsolved: set[int] = set()
        # Whether any of those that ended has a solution.
        self.found = False
        # What novelty detection has for probabilities.
        self.marks: dict[str, Any] = {}

    def run(self) -> None:
        try:
            if self.at_once == 1:
                for number in range(len(self.subtasks)):
                    self._work(number, self.clock)
            else:
                works = [partial(self._beside, number) for number in range(len(self.subtasks))]
                run_forwarding_events(works, self.at_once, self._receive, "pairs", "pair")
        finally:
            self.subtasks.close()
        self._leave_rest(TIME_LIMIT)
        self._tell_doubts()
        if self.params.probability and self.params.kind == "one-class":
            D, seed = self.subtasks.D, self.training.job.run.seed
            self.marks = fit_density_marks(
                D, self._machine.decision_matrix, self.clock, self.end - LATE, seed
            )

    def _tell_doubts(self) -> None:
        """Tell why the model is useless, if most of its subtasks are."""
        counts = Counter(one.doubt for one in self._every)
        for text in TEXTS:
            if counts[text] > len(self.solved) / 2:
                emit(Notice(text))

    def _beside(self, number: int, watch: Watch) -> None:
        """A subtask in a thread of its own, whose clock knows only its own share of the time."""
        clock = Clock(None, watch)
        clock.began = self.clock.began
        with listening(clock):
            self._work(number, clock)

    def _receive(self, event: object) -> None:
        if isinstance(event, Iteration):
            self.received += 1
            event = event._replace(number=self.received)
        if isinstance(event, Notice):
            emit_once(event.text, event)
        else:
            emit(event)

    def _work(self, number: int, clock: Clock) -> None:
        """One subtask, if there is time for it. Raises TimeLimitError where that is over and there
        is no solution of any."""
        if number and time.perf_counter() >= self.end - LATE:
            return
        if self.subtasks.pairs and 0 in self.subtasks.sides(number):
            self.solved[number] = Solved.nothing(self.subtasks, number, NO_VIOLATORS)
            return
        task, left = self.subtasks[number], len(self.subtasks) - len(self.solved)
        ends = self.clock.share(min(self.at_once / left, 1.0), self.end)
        job, before = self.training.job, sum(self.counts.values())
        rounds = Rounds(task, self.algorithm_spec(task), job, clock, ends, before, self.at_once)
        # Without any solution there is no model: the first one has all the time there is.
        latest = (self.end if number else self.clock.end) - LATE
        self.under_way[number] = rounds
        try:
            self.solved[number] = rounds.solved(latest).of_whole(task)
        except TimeLimitError:
            if not self.begun:
                raise
            self._leave(number, TIME_LIMIT)
        except (Interrupted, ClusterError, Cancelled):
            if (best := rounds.best.solution) is not None:
                self.broken_off[number] = rounds.running(best, "").of_whole(task)
            raise
        finally:
            self.counts[number] = rounds.count
            self.solve_seconds[number] = rounds.solve_seconds
            if rounds.best.solution is not None:
                self.found = True
            del self.under_way[number]
            rounds.scan.forget()

    @property
    def reason(self) -> str:  # type: ignore[override]
        """What ended the tasks, in one phrase."""
        reasons = [one.stopped for one in self._every]
        counts = Counter(reasons)
        if len(counts) == 1 or TIME_LIMIT in counts:
            return TIME_LIMIT if TIME_LIMIT in counts else reasons[0]
        return ", ".join(f"{reason} ({n} of {len(reasons)})" for reason, n in counts.items())

    @property
    def begun(self) -> bool:
        under_way = list(self.under_way.values())
        return self.found or any(rounds.best.solution is not None for rounds in under_way)

    def break_off(self, reason: str) -> None:
        broken_off = {n: replace(one, stopped=reason) for n, one in self.broken_off.items()}
        self.solved = {**broken_off, **self.solved}
        self._leave_rest(reason)

    def _leave_rest(self, reason: str) -> None:
        """Give subtasks without a solution a constant f, and report how many they are."""
        for number in range(len(self.subtasks)):
            if number not in self.solved:
                self._leave(number, reason)
        if self.unsolved:
            kind = "pairs of classes" if self.subtasks.pairs else "classes"
            emit(
                Notice(
                    f"{len(self.unsolved)} of {len(self.subtasks)} {kind} have no solution, only a "
                    "constant decision value: there was no time for them"
                )
            )

    def _leave(self, number: int, reason: str) -> None:
        self.solved[number] = Solved.nothing(self.subtasks, number, reason)
        self.unsolved.add(number)

    @property
    def _every(self) -> list[Solved]:
        return [self.solved[number] for number in sorted(self.solved)]

    def outcome(self, ending: Ending) -> Trained:
        every = self._every
        certificate = total([one.certificate for one in every])
        counted = [one.violators for one in every if one.violators is not None]
        return Trained(
            model=ending.model,
            iterations=sum(self.counts.values()),
            support_vectors=len(self._machine.beta),
            bounded=count_bounded([one.SV for one in every]),
            violators=sum(counted) if len(counted) == len(every) else None,
            J=certificate.primal * self.training.scales(self.params)[1],
            evaluated=all(one.evaluated for one in every),
            cross_validation=ending.cross_validation,
            stopped=ending.stopped,
            solve_seconds=sum(self.solve_seconds.values()),
            seconds=ending.seconds,
            primal=certificate.primal,
            dual=certificate.dual,
            gap=certificate.gap,
            largest_gap=max(one.certificate.gap for one in every) if len(every) > 1 else None,
            gap_asked=self.training.job.stop.wanted_gap,
            bytes_moved=self.training.D.executor.bytes_moved,
        )

    def metadata(self, outcome: Trained) -> dict[str, str]:
        return {
            "lambda": repr(self.training.scales(self.params)[1]),
            "primal": repr(outcome.primal),
            "dual": repr(outcome.dual),
            "gap": repr(outcome.gap),
            **({} if outcome.largest_gap is None else {"largest_gap": repr(outcome.largest_gap)}),
            "certificate": "evaluated" if outcome.evaluated else "running",
            "violators": "unknown" if outcome.violators is None else str(outcome.violators),
            "stopped": outcome.stopped,
        }

    def model(self, **common: Any) -> Model:
        return finished(self._machine, self.training.map_of(self.params), **common, **self.marks)

    @cached_property
    def _machine(self) -> KernelModel:
        """The solutions as one model over the columns of D."""
        return assemble(self.subtasks, [one.SV for one in self._every])
