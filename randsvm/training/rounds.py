"""Rounds of solve and scan: one algorithm on one subtask, from its first solve to its evaluation.

All of training that calls svm/ while a run is under way is here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from randsvm.algorithms.decomposition import Decomposition, Start, resumed
from randsvm.arrays import distinct
from randsvm.data.sampling import Draws
from randsvm.errors import ParameterError
from randsvm.events import Iteration
from randsvm.svm.scan import Scan, Violators, least_norm
from randsvm.svm.solution import SV, Certificate
from randsvm.svm.subproblem import memory_of
from randsvm.training.clock import LATE, Clock, TimeLimitError
from randsvm.training.job import Job
from randsvm.training.multiclass import Subtask, Subtasks
from randsvm.training.stopping import (
    NO_DIGITS,
    NO_MARGIN,
    NO_PROGRESS,
    NO_VIOLATORS,
    TIME_LIMIT,
    End,
    Record,
    Rule,
    Tighten,
    first_answer,
    gap_reached,
    iterations,
    no_margin,
    no_progress,
    no_violators,
    reached,
    time_limit,
)
from randsvm.training.usefulness import doubt

# A gap below this takes float64 from the start: rounding of float32 is some 1e-6 of P.
PRECISE_GAP = 3e-5
# What rounding may lift the D of a round by, relatively, in float32 and in float64.
COARSE, FINE = 2e-5, 1e-10
# A run whose evaluated gap is above the one asked for goes on until it is so much below.
# From the third time on in float64: rounding may be what told it that the gap was reached.
ASIDE, ROUGH_AGAIN, MOST_AGAIN = 0.5, 2, 8
# By how much a closing evaluation may take longer than the last scan lets expect.
HEADROOM = 1.25


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm with its own options filled in.

    solve: the algorithm. r: rows of its working sets. freezes: whether coefficients outside of a
    working set stay at their values; else they are 0. words: its own options and the user's limits.
    rules: what ends it besides V = 0 and those limits. notices: what the user should know.
    warm_start: replaces the first working set.
    """

    name: str
    solve: Callable[[Decomposition], SV]
    r: int
    freezes: bool
    words: list[str]
    rules: list[Rule] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    warm_start: Start | None = None

    def working_set(self, subtasks: Subtasks) -> int:
        """Its rows, at the most."""
        return min(self.r, subtasks.most_rows)

    def solve_bytes(self, subtasks: Subtasks) -> int:
        """The memory that a subproblem may take. Raises ParameterError: see memory_of."""
        rows, D = self.working_set(subtasks), subtasks.D
        beside = rows < subtasks.most_rows and self.freezes
        nonzeros, memory = D.nnz / max(D.n, 1), subtasks.resources.memory
        return memory_of(rows, nonzeros, subtasks.problem, beside, memory)


@dataclass
class Best:
    """The solution of lowest P and the highest D of any round: P - D bounds that solution's
    distance from the optimum. P is not monotone. last: P of the newest solution. least: see
    Certificate."""

    solution: SV | None = None
    primal: float = inf
    dual: float = -inf
    last: float = inf
    certified: bool = True
    least: float = 0.0

    def see(self, SV: SV, V: Violators) -> None:
        certificate = V.certificate
        self.dual = max(self.dual, certificate.dual - V.dual_error)
        self.certified, self.last = certificate.certified, certificate.primal
        self.least = certificate.least
        # A kernel without a certificate: P is no guide, the newest solution is the best.
        if certificate.primal <= self.primal or not certificate.certified:
            self.solution, self.primal = SV, certificate.primal

    @property
    def certificate(self) -> Certificate:
        return Certificate(self.primal, self.dual, self.certified, self.least)

    @property
    def last_certificate(self) -> Certificate:
        """Of the newest solution."""
        return Certificate(self.last, self.dual, self.certified, self.least)

    @property
    def last_gap(self) -> float:
        return self.last_certificate.gap


@dataclass(frozen=True)
class Solved:
    """The answer to one subtask. violators None: not counted; evaluated: see events.Trained.
    doubt: see usefulness.doubt."""

    SV: SV
    certificate: Certificate
    violators: int | None
    evaluated: bool
    stopped: str
    doubt: str | None = None

    @staticmethod
    def nothing(subtasks: Subtasks, number: int, reason: str) -> Solved:
        """Of a subtask that has no solution yet."""
        SV, certificate = subtasks.nothing(number)
        return Solved(SV, certificate, None, False, reason)

    def of_whole(self, task: Subtask) -> Solved:
        """The same with the row numbers of the whole D."""
        return replace(self, SV=task.in_whole(self.SV))


def total(certificates: Sequence[Certificate]) -> Certificate:
    """Of several subtasks together."""
    names = "primal", "dual", "least"
    primal, dual, least = (sum(getattr(one, name) for one in certificates) for name in names)
    return Certificate(primal, dual, all(one.certified for one in certificates), least)


def count_bounded(solutions: Sequence[SV]) -> int:
    """How many rows are at a bound in any of the solutions."""
    return len(distinct(np.concatenate([one.rows[~one.unbounded] for one in solutions])))


@dataclass
class Rounds:
    """One algorithm on one subtask.

    clock: hears of each round, and breaks it off. ends: the moment when the subtask's share of the
    time is over. before: rounds of earlier subtasks. share: how many
    such runs share the memory. count, solve_seconds: of all rounds;
    scan_seconds: what a scan of all support vectors takes.
    """

    task: Subtask
    algorithm_spec: AlgorithmSpec
    job: Job
    clock: Clock = field(default_factory=Clock)
    ends: float = inf
    before: int = 0
    share: int = 1
    best: Best = field(default_factory=Best)
    count: int = 0
    solve_seconds: float = 0.0
    scan_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.aim, self.again = self.job.stop.wanted_gap or 0.0, 0
        layout_bytes = self.job.resources.layout_bytes // self.share
        precise = (self.job.stop.wanted_gap or 1.0) < PRECISE_GAP
        self.scan = Scan(self.task.D, self.task.problem, self.job.run.seed, layout_bytes, precise)
        nu_svc = self.task.problem.task == "nu-svc"
        self.least_norm = least_norm(self.scan) if nu_svc else None

    def solved(self, latest: float) -> Solved:
        """The answer, evaluated if there is time for it. Raises TimeLimitError where there is none
        at the moment `latest`."""

        SV, reason = self.run_until(latest)
        try:
            with self.clock.until(lambda: self.ends + LATE):
                if time.perf_counter() + self.scan_seconds > self.ends + LATE:
                    raise TimeLimitError
                SV, V = self.scan.evaluate(SV)
        except TimeLimitError:
            return self.running(SV, reason)
        V = replace(V, certificate=self._certificate(V.certificate))
        if self._goes_on(V, reason):
            self.algorithm_spec = replace(self.algorithm_spec, warm_start=resumed)
            self.best = Best()
            self.best.see(SV, V)
            return self.solved(latest)
        if reason == NO_VIOLATORS and self._lacks_gap(V):
            reason = NO_DIGITS
        return Solved(SV, V.certificate, V.count, True, reason, doubt(self.scan, SV))

    def run_until(self, latest: float) -> tuple[SV, str]:
        """All rounds, or those that there is time for. Raises TimeLimitError where there is no
        solution at the moment `latest`."""

        def late() -> float:
            return latest if self.best.solution is None else self.deadline

        try:
            with self.clock.until(late):
                return self.run()
        except TimeLimitError:
            if self.best.solution is None:
                raise
            return self.best.solution, TIME_LIMIT

    def _certificate(self, evaluated: Certificate) -> Certificate:
        """With the highest D of any round, which bounds the optimum from below, less what rounding
        may have lifted it by."""
        if not evaluated.certified:
            return evaluated
        scale = max(abs(evaluated.primal), abs(self.best.dual))
        rounds = self.best.dual - (COARSE if self.scan.coarse else FINE) * scale
        dual = min(max(evaluated.dual, rounds), evaluated.primal)
        return replace(evaluated, dual=dual)

    def _goes_on(self, V: Violators, reason: str) -> bool:
        """Whether there is more to be done for the gap that was asked for than the evaluation
        found: the running values promised too much, or float32 carried no further."""
        gap = self.job.stop.wanted_gap
        if gap is None or not self._lacks_gap(V) or self.again == MOST_AGAIN:
            return False
        self.again += 1
        if reason == reached(gap):
            self.aim *= ASIDE
            if self.again > ROUGH_AGAIN:
                self.scan.refine()
            return True
        return reason in (NO_VIOLATORS, NO_PROGRESS) and self.scan.refine()

    def _lacks_gap(self, V: Violators) -> bool:
        gap = self.job.stop.wanted_gap
        return gap is not None and V.certificate.gap > gap

    def running(self, SV: SV, reason: str) -> Solved:
        """The best solution or the last one, with the certificate of the running values."""
        best = self.best
        certificate = best.certificate if SV is best.solution else best.last_certificate
        return Solved(self.scan.completed(SV), certificate, None, False, reason)

    def run(self) -> tuple[SV, str]:
        """All rounds: their answer, and what ended them. A solution without violators, or with
        the gap that was asked for, is the answer; else the one of lowest P is the best."""
        stop = AskRules(self, Record(self.task.problem.tolerance, rounds=self.count))
        rng, spec = Draws(self.job.run.seed), self.algorithm_spec
        last = spec.solve(Decomposition(self.scan, rng, stop, self._watch, spec.warm_start))
        gap = self.job.stop.wanted_gap
        own = stop.reason == NO_VIOLATORS or (gap is not None and stop.reason == reached(gap))
        SV = last if own else self.best.solution
        assert SV is not None
        if stop.reason == NO_MARGIN and self.best.certified:
            raise self._no_margin
        if own and self.least_norm is not None and not SV.has_margin:
            raise self._no_margin
        return SV, stop.reason

    @property
    def _no_margin(self) -> ParameterError:
        """For -s nu-svc whose optimum has rho <= 0."""
        between = f" between {self.task.name}" if self.task.name else ""
        return ParameterError(f"-s nu-svc finds no margin{between}: the classes overlap, raise -n")

    def _watch(self, SV: SV, V: Violators) -> None:
        self.count += 1
        self.solve_seconds += V.step.seconds
        self.scan_seconds = V.full_scan_seconds
        self.best.see(SV, V)
        event = Iteration(
            number=self.before + self.count,
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
        )
        # Not through `tell`: at the end of a round the stop rule asks for the time.
        self.clock.watch(event)

    @property
    def rules(self) -> list[Rule]:
        """In the order in which they are asked."""
        limits = self.job.stop
        gap = limits.wanted_gap
        own = [] if gap is None else [gap_reached(gap, self.aim)]
        own += [] if limits.max_iterations is None else [iterations(limits.max_iterations)]
        if self.least_norm is not None:
            own.append(no_margin(self.least_norm))
        ends = [no_violators(gap is not None), no_progress(gap is not None)]
        return [*self.algorithm_spec.rules, *own, time_limit, *ends]

    @property
    def deadline(self) -> float:
        """When no further round may begin: a closing evaluation, a scan of every support vector,
        takes as long as the last scan lets expect."""
        return self.ends - HEADROOM * self.scan_seconds - LATE


@dataclass
class AskRules:
    """Keeps the record of the rounds, asks the rules after each of them, and acts on the first
    answer: what algorithms know as algorithms.decomposition.Stop. reason: what ended the rounds."""

    rounds: Rounds
    record: Record
    reason: str = NO_VIOLATORS

    @property
    def tolerance(self) -> float:
        return self.record.tolerance

    def __call__(self, SV: SV, V: Violators) -> bool:
        rounds = self.rounds
        self.record = self.record.after(
            support_vectors=len(SV),
            violators=V.count,
            steepest=V.steepest,
            gap=rounds.best.last_gap,
            seconds_left=rounds.deadline - time.perf_counter(),
            dual=V.certificate.dual,
            whole=len(V.step.points) == rounds.task.D.n,
            steps=V.step.iterations,
        )
        answer = first_answer(rounds.rules, self.record)
        if isinstance(answer, Tighten):
            self.record = self.record.tightened()
        if isinstance(answer, End):
            self.reason = answer.reason
        return isinstance(answer, End)
