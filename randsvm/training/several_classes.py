"""One against the rest: the subtasks of several classes as relabelled views of one D.

Two classes, regression and novelty detection are one subtask. Knows no algorithm and no files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from randsvm.data.classes import against_the_rest, one_class
from randsvm.data.dataset import Dataset
from randsvm.data.points import Points
from randsvm.errors import ParameterError
from randsvm.parameters.problem import Problem
from randsvm.parameters.svm import Params
from randsvm.svm.solution import SV, Certificate
from randsvm.svm.subproblem import memory_of

EMPTY = np.empty(0)


@dataclass(frozen=True)
class Subtask:
    """What one solution is for: D with y = -1/+1 (a regression's targets, novelty detection's 0),
    and the problem with the bounds of its two sides. name: the class that is y = +1; empty where
    there is no other subtask."""

    D: Dataset
    problem: Problem
    name: str = ""

    def solve_bytes(self, rows: int) -> int:
        """The memory that a subproblem of so many rows may take."""
        return memory_of(rows, self.D.nnz / self.D.n, self.problem)

    def nothing(self) -> tuple[SV, Certificate]:
        """The solution without support vectors that predicts -1 for every row, and what it is
        worth: each row of the class has the loss 2."""
        D = self.D
        assert D.targets is not None
        rows = int(np.array(D.summary.counts) @ (D.targets > 0))
        empty = Points(np.empty(0, np.int64), sparse.csr_matrix((0, D.d), dtype=np.float32), EMPTY)
        primal = 2.0 * self.problem.bounds[0] * rows
        certificate = Certificate(primal, 0.0, self.problem.positive_semidefinite)
        return SV(empty.rows, EMPTY, -1.0, self.problem, empty), certificate


def subtasks(D: Dataset, params: Params, kernel_cache: float) -> Iterator[Subtask]:
    """The subtasks of D, whose y are class indices (`labelled_classes`), targets, or for novelty
    detection anything. Made one after the other, as each view of D takes memory."""

    def problem(weights: tuple[float, float] = (1.0, 1.0)) -> Problem:
        return params.problem(D.n, weights, kernel_cache)

    if params.kind == "svr":
        yield Subtask(D, problem())
        return
    if params.task == "one-class":
        yield Subtask(one_class(D), problem())
        return
    assert D.targets is not None
    order = np.argsort(D.targets).tolist()
    names, counts = [D.summary.names[i] for i in order], [D.summary.counts[i] for i in order]
    if len(names) == 2:
        params.check_classes(names, counts)
        yield Subtask(against_the_rest(D, 0), problem(params.side_weights(names, counts)))
        return
    if params.task == "nu-svc":
        raise ParameterError("-s nu-svc tells two classes apart, not one from the rest")
    for index, name in enumerate(names):
        weights = params.one_vs_rest_weights(index, names, counts)
        yield Subtask(against_the_rest(D, index), problem(weights), name)


def count(D: Dataset, params: Params) -> int:
    """How many `subtasks` there are."""
    classes = len(D.summary.names) if params.kind == "svc" else 1
    return classes if classes > 2 else 1
