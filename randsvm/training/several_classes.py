"""One against the rest: the problems of several classes as relabelled views of one D, and their
solutions as one machine.

Two classes, regression and novelty detection are one problem. Knows no algorithm and no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from randsvm.arrays import Matrix
from randsvm.data import dataset
from randsvm.data.classes import against_the_rest, labelled_classes, one_class
from randsvm.data.dataset import Dataset
from randsvm.data.points import Points
from randsvm.errors import DataError
from randsvm.events import Notice, tell
from randsvm.files import display_name
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.kernel import Kernel
from randsvm.models.model import ONE_CLASS_LABELS, ONE_CLASS_VALUES
from randsvm.parameters.problem import Problem
from randsvm.parameters.svm import Params
from randsvm.svm.scan import Certificate
from randsvm.svm.solution import SV

EMPTY = np.empty(0)


# Of kernel machines, which are trained one for each class.
MOST_CLASSES = 1000


@dataclass(frozen=True)
class Subtask:
    """What one solution is for: D with y = -1/+1 (a regression's targets, novelty detection's 0),
    and the problem with the bounds of its two sides. name: the class that is y = +1; empty where
    there is no other subtask."""

    D: Dataset
    problem: Problem
    name: str = ""

    def nothing(self) -> tuple[SV, Certificate]:
        """The solution without support vectors that calls every row -1, and what it is worth:
        each row of the class has lost 2."""
        D = self.D
        assert D.targets is not None
        rows = int(np.array(D.summary.counts) @ (D.targets > 0))
        empty = Points(np.empty(0, np.int64), sparse.csr_matrix((0, D.d), dtype=np.float32), EMPTY)
        primal = 2.0 * self.problem.bounds[0] * rows
        return SV(empty, EMPTY, -1.0, self.problem), Certificate(
            primal, 0.0, self.problem.positive_semidefinite
        )


@dataclass(frozen=True)
class Subject:
    """What is learnt: D with y = places in the model's labels (novelty detection's: 1 is the first,
    -1 the second, and nothing else is ever said), or a regression's targets. values: what the
    labels stand for."""

    D: Dataset
    labels: tuple[str, ...]
    values: tuple[int | str, ...]

    @staticmethod
    def of(whole: Dataset, path: str, task: str, most: int = MOST_CLASSES) -> Subject:
        """Raises DataError when there is only one class to tell apart, or more than `most`."""
        if task == "svr":
            return Subject(whole, (), ())
        summary = whole.summary
        if task == "one-class":
            places = {str(value): place for place, value in enumerate(ONE_CLASS_VALUES)}
            nowhere = len(places)
            found = [places.get(str(value), nowhere) for value in summary.values]
            D = whole.relabel(np.array(found, float))
            return Subject(D, ONE_CLASS_LABELS, ONE_CLASS_VALUES)
        D, order = labelled_classes(whole, path)
        if len(order) > most:
            problem = f"expected at most {most:,} classes, found {len(order):,}"
            hint = (
                " (-s svr takes numbers as targets)" if isinstance(summary.values[0], int) else ""
            )
            raise DataError(display_name(path), 1, 1, problem + hint)
        names = tuple(summary.names[i] for i in order)
        return Subject(D, names, tuple(summary.values[i] for i in order))

    def scaled(self, name: str | None) -> Subject:
        """The same with its features scaled as --scale says."""
        if name is None:
            return self
        scaling = dataset.scaling_of(self.D, name)
        if scaling.factor is not None and scaling.shift is None:
            by = {"minmax": "largest absolute value", "standard": "standard deviation"}[name]
            tell(Notice(f"sparse rows: --scale {name} only divides by the {by}, zeros stay zeros"))
        return replace(self, D=self.D.scaled(scaling))


def subtasks(D: Dataset, params: Params, kernel_cache: float) -> Iterator[Subtask]:
    """The subtasks of D, whose y are places of labels (`labelled_classes`), targets, or
    for novelty detection anything. Made one after the other: each has running values of its own."""

    def problem(weights: tuple[float, float] = (1.0, 1.0)) -> Problem:
        return params.problem(D.n, weights, kernel_cache)

    if params.task == "svr":
        yield Subtask(D, problem())
        return
    if params.task == "one-class":
        yield Subtask(one_class(D), problem())
        return
    assert D.targets is not None
    order = np.argsort(D.targets).tolist()
    names, counts = [D.summary.names[i] for i in order], [D.summary.counts[i] for i in order]
    if len(names) == 2:
        weights = params.side_weights(names, counts)
        yield Subtask(against_the_rest(D, 0), problem(weights))
        return
    for place, name in enumerate(names):
        weights = params.one_vs_rest_weights(place, names, counts)
        yield Subtask(against_the_rest(D, place), problem(weights), name)


def count(D: Dataset, params: Params) -> int:
    """How many `subtasks` there are."""
    classes = len(D.summary.names) if params.task == "svc" else 1
    return classes if classes > 2 else 1


@dataclass(frozen=True)
class Machine:
    """f_c(x) = sum_i beta_ic K(x_i, x) + b_c over the support vectors of all solutions.

    points: them, in ascending order of their rows; beta : (m, K), b : (K,) float64.
    """

    points: Points
    beta: np.ndarray
    b: np.ndarray
    problem: Problem

    @staticmethod
    def of(solutions: Sequence[SV]) -> Machine:
        every = Points.concatenate([replace(one.points, u=None) for one in solutions])
        rows, first = np.unique(every.rows, return_index=True)
        beta = np.zeros((len(rows), len(solutions)))
        for column, one in enumerate(solutions):
            beta[np.searchsorted(rows, one.points.rows), column] = one.beta
        b = np.array([one.b for one in solutions])
        return Machine(every[first], beta, b, solutions[0].problem)

    def decision(self, X: Matrix) -> np.ndarray:
        """f of each row, (m, K) float64."""
        return self._expansion.values(X) + self.b

    @cached_property
    def _expansion(self) -> Expansion:
        return Expansion.of(Kernel.of(self.problem), self.points.X, self.beta)
