"""Subtasks solved without a closing evaluation, and the solutions of any of them as one answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeAlias

import numpy as np

from randsvm.models.model import Model
from randsvm.svm.solution import SV
from randsvm.training.algorithm_specs import AlgorithmSpec
from randsvm.training.clock import Clock
from randsvm.training.job import Decision, Job
from randsvm.training.one_vs_one import OneVsOne
from randsvm.training.one_vs_rest import OneVsRest
from randsvm.training.rounds import Rounds
from randsvm.training.several_classes import Subtask, Subtasks

Answer: TypeAlias = OneVsOne | OneVsRest
# The plan of a subtask.
SpecOfSubtask = Callable[[Subtask], AlgorithmSpec]


def decision_of(
    subtasks: Subtasks, algorithm_spec: SpecOfSubtask, job: Job, clock: Clock
) -> Decision:
    """What the subtasks come to without a closing evaluation until `clock` ends, and each of them
    after its first round; pairs that are not begun by then have a constant f."""
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
    return assemble(subtasks, solutions).decision


def assemble(subtasks: Subtasks, solutions: Sequence[SV]) -> Answer:
    """solutions: of all subtasks, in order, over the rows of the whole D."""
    if subtasks.pairs:
        return OneVsOne.of(subtasks.D, len(subtasks.names), solutions)
    return OneVsRest.of(solutions)


def model_of(answer: Answer, features: np.ndarray, mapping: Any, **common: Any) -> Model:
    """mapping: the random features that the answer is over, or None. common: what every model
    has."""
    if mapping is None:
        return answer.kernel_model(features, **common)
    assert isinstance(answer, OneVsRest)
    return answer.linear_model(features=features, mapping=mapping, **common)
