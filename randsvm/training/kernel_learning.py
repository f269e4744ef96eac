"""All subtasks of a training one after the other, and their solutions as one model."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

import numpy as np

from randsvm.events import Trained
from randsvm.models.model import Model
from randsvm.parameters.svm import Params
from randsvm.training.clock import LATE, Clock, TimeLimitError
from randsvm.training.job import Decision, Job
from randsvm.training.kind import Ending, Learning, Training
from randsvm.training.one_vs_rest import OneVsRest
from randsvm.training.plans import Plan
from randsvm.training.rounds import Rounds, Solved, total
from randsvm.training.several_classes import Subtask
from randsvm.training.stopping import TIME_LIMIT


def decision_of(
    tasks: Iterable[tuple[Subtask, Plan]], job: Job, at_once: int, clock: Clock
) -> Decision:
    """What the subtasks come to without a closing evaluation until `clock` ends, and each of them
    after its first round; at_once: how many such decisions share the memory."""
    solutions = []
    for task, plan in tasks:
        rounds = Rounds(task, plan, job, clock, clock.end, share=at_once)
        solutions.append(rounds.scan.completed(rounds.run_until(inf)[0]))
    return OneVsRest.of(solutions).decision


class KernelLearning(Learning[Trained]):
    """Subtasks one after the other, which share the time until `end`; their solutions are one
    model.

    tasks: makes them all anew, in order. classes: how many there are.
    """

    def __init__(
        self,
        training: Training[Params, Trained],
        params: Params,
        tasks: Callable[[], Iterator[tuple[Subtask, Plan]]],
        classes: int,
        clock: Clock,
        end: float,
    ) -> None:
        self.training = training
        self.params = params
        self.tasks = tasks
        self.classes = classes
        self.clock = clock
        self.end = end
        self.solved: list[Solved] = []
        # Of each task that was begun.
        self.rounds: list[Rounds] = []

    def run(self) -> None:
        for task, plan in self.tasks():
            ends = self.clock.share(1 / (self.classes - len(self.solved)), self.end)
            rounds = Rounds(task, plan, self.training.job, self.clock, ends, self._count)
            # Without any solution there is no model: the first one has all the time there is.
            latest = (self.end if self.rounds else self.clock.end) - LATE
            self.rounds.append(rounds)
            try:
                self.solved.append(rounds.solved(latest))
            except TimeLimitError:
                if not self.begun:
                    raise
                self.solved.append(Solved.nothing(task, TIME_LIMIT))
            rounds.scan.forget()
            if len(self.solved) < self.classes and time.perf_counter() >= self.end - LATE:
                self._leave_rest(TIME_LIMIT)
                break

    @property
    def _count(self) -> int:
        return sum(one.count for one in self.rounds)

    @property
    def reason(self) -> str:  # type: ignore[override]
        """What ended the tasks, in one phrase."""
        reasons = [one.stopped for one in self.solved]
        counts = Counter(reasons)
        if len(counts) == 1 or TIME_LIMIT in counts:
            return TIME_LIMIT if TIME_LIMIT in counts else reasons[0]
        return ", ".join(f"{reason} ({n} of {len(reasons)})" for reason, n in counts.items())

    @property
    def begun(self) -> bool:
        return any(rounds.best.solution is not None for rounds in self.rounds)

    def break_off(self, reason: str) -> None:
        for rounds in self.rounds[len(self.solved) :]:
            if rounds.best.solution is not None:
                self.solved.append(rounds.running(rounds.best.solution, reason))
        self._leave_rest(reason)

    def _leave_rest(self, reason: str) -> None:
        """Classes without a solution have f = -1: predicted only where all others are below."""
        rest = itertools.islice(self.tasks(), len(self.solved), None)
        self.solved += [Solved.nothing(task, reason) for task, _ in rest]

    def outcome(self, ending: Ending) -> Trained:
        every = self.solved
        certificate = total([one.certificate for one in every])
        counted = [one.violators for one in every if one.violators is not None]
        bounded = [one.SV.rows[~one.SV.unbounded] for one in every]
        return Trained(
            model=ending.model,
            iterations=self._count,
            support_vectors=len(self._answer.points),
            bounded=len(np.unique(np.concatenate(bounded))),
            violators=sum(counted) if len(counted) == len(every) else None,
            J=certificate.primal * self.training.scales(self.params)[1],
            evaluated=all(one.evaluated for one in every),
            cross_validation=ending.cross_validation,
            stopped=ending.stopped,
            solve_seconds=sum(one.solve_seconds for one in self.rounds),
            seconds=ending.seconds,
            primal=certificate.primal,
            dual=certificate.dual,
            gap=certificate.gap,
            gap_asked=self.training.job.stop.wanted_gap,
        )

    def facts(self, outcome: Trained) -> dict[str, str]:
        return {
            "lambda": repr(self.training.scales(self.params)[1]),
            "primal": repr(outcome.primal),
            "dual": repr(outcome.dual),
            "gap": repr(outcome.gap),
            "certificate": "evaluated" if outcome.evaluated else "running",
            "violators": "unknown" if outcome.violators is None else str(outcome.violators),
            "stopped": outcome.stopped,
        }

    def model(self, **common: Any) -> Model:
        features, mapping = self.training.D.summary.features, self.training.map_of(self.params)
        if mapping is not None:
            return self._answer.linear_model(features=features, mapping=mapping, **common)
        return self._answer.kernel_model(features, **common)

    @property
    def _answer(self) -> OneVsRest:
        return OneVsRest.of([one.SV for one in self.solved])
