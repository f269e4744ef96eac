"""All subtasks of a training, and their solutions as one model."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from randsvm.errors import ClusterError, Interrupted
from randsvm.events import Iteration, Notice, Trained, Watch, emit, emit_once, listening
from randsvm.models.kernel_model import KernelModel
from randsvm.models.model import Model
from randsvm.parallel import Cancelled, run_forwarding_events
from randsvm.parameters.svm import Params
from randsvm.training.algorithm_specs import SpecOfSubtask
from randsvm.training.clock import LATE, Clock, TimeLimitError
from randsvm.training.multiclass import Subtasks, assemble, finished
from randsvm.training.probabilities import fit_density_marks
from randsvm.training.rounds import Rounds, Solved, count_bounded, total
from randsvm.training.stopping import NO_VIOLATORS, TIME_LIMIT
from randsvm.training.trainer import Ending, Learning, Trainer
from randsvm.training.usefulness import TEXTS


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
