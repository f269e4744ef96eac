"""The subtasks of a training as views of one D: one for each pair of classes, or one for each class
against the rest.

Two classes, regression and novelty detection are one subtask. Knows no algorithm and no files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from threading import Lock

import numpy as np
from scipy import sparse

from randsvm.data.classes import against_the_rest, one_class
from randsvm.data.dataset import Dataset
from randsvm.data.grouping import Grouped
from randsvm.data.points import Points
from randsvm.errors import ParameterError
from randsvm.parameters.problem import Problem
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Params
from randsvm.svm.running import FEW_ROWS
from randsvm.svm.solution import SV, Certificate

EMPTY = np.empty(0)
# Pairs of fewer rows are solved one after another: most of their time is Python's, which threads
# only hand to and fro. Measured with 96 rows: two threads take 1.8 times as long as one.
SIDE_BY_SIDE_ROWS = 400


@dataclass(frozen=True)
class Subtask:
    """What one solution is for: D with y = -1/+1 (a regression's targets, novelty detection's 0),
    and the problem with the bounds of its two sides.

    name: of the class that is y = +1, or of the two classes of a pair; empty where there is no
    other subtask. pair: the labels of the two classes; rows : (n,) int64, of a pair, the number in
    the whole D of each of its rows.
    """

    D: Dataset
    problem: Problem
    name: str = ""
    pair: tuple[str, str] | None = None
    rows: np.ndarray | None = None

    def in_whole(self, found: SV) -> SV:
        """The same with the row numbers of the whole D. Points are left behind: all pairs of a
        class have the same ones."""
        if self.rows is None:
            return found
        rows = self.rows[found.rows]
        order = np.argsort(rows)
        return replace(found, rows=rows[order], beta=found.beta[order], points=None)


class Subtasks:
    """The subtasks of D, whose y are class indices (`labelled_classes`), targets, or for novelty
    detection anything. Each is made when it is asked for, as each view of D takes memory.

    resources: what they may use together. at_once: how many such sets of subtasks share it.
    doubtful: see Problem.
    """

    def __init__(
        self,
        D: Dataset,
        params: Params,
        resources: Resources,
        at_once: int = 1,
        *,
        doubtful: bool = False,
    ) -> None:
        self.D, self.params, self.doubtful = D, params, doubtful
        self.resources, self.at_once = resources, at_once
        self._regrouped: Grouped | None = None
        self._lock = Lock()
        self.names: list[str] = []
        self.counts: list[int] = []
        if params.kind == "svc":
            assert D.targets is not None
            order = np.argsort(D.targets).tolist()
            self.names = [D.summary.names[i] for i in order]
            self.counts = [D.summary.counts[i] for i in order]
            self._whole = sum(self.counts) == D.n
            self._check()

    def _check(self) -> None:
        """Raise ParameterError where classes cannot have the nu of -s nu-svc."""
        names, counts = self.names, self.counts
        for i, j in self.pairs if len(names) > 2 else [(0, 1)]:
            self.params.check_classes([names[i], names[j]], [counts[i], counts[j]])
        if self.params.task == "nu-svc" and len(self) == len(names) > 2 and not self.pairs:
            raise ParameterError("-s nu-svc tells two classes apart, not one from the rest")

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The class indices of each pair; none where classes are not paired."""
        if self.params.multiclass != "ovo":
            return []
        first, second = np.triu_indices(len(self.names), 1)
        return list(zip(first.tolist(), second.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.pairs) or (len(self.names) if len(self.names) > 2 else 1)

    @property
    def most_rows(self) -> int:
        """Of any subtask."""
        if not self.pairs:
            return self.D.n
        return min(self.D.n, max(self.counts[i] + self.counts[j] for i, j in self.pairs))

    def side_by_side(self, solve_bytes: int) -> int:
        """How many are solved at once in threads of their own: pairs that are large enough, as far
        as half of the memory allows. solve_bytes: of a subproblem of each."""
        if not self.pairs or self.most_rows < SIDE_BY_SIDE_ROWS:
            return 1
        each = 17 * self.most_rows + solve_bytes
        room = self.resources.memory // 2 // max(each, 1)
        return max(1, min(self.resources.workers, room, len(self)))

    def __getitem__(self, number: int) -> Subtask:
        D, problem = self.D, self._problem_of(number)
        if self.params.task == "one-class":
            return Subtask(one_class(D), problem)
        if self.params.kind != "svc":
            return Subtask(D, problem)
        if not self.pairs:
            name = self.names[number] if len(self.names) > 2 else ""
            return Subtask(against_the_rest(D, number), problem, name)
        first, second = self.pairs[number]
        D, rows = self._grouped().pair(first, second)
        if D.n <= FEW_ROWS:
            D = D.in_one_thread().gathered().in_one_thread()
        pair = self.names[first], self.names[second]
        return Subtask(D, problem, " / ".join(pair), pair, rows)

    # --- what is known of a subtask without a look at its rows -----------------------------

    @property
    def problem(self) -> Problem:
        """Without weights, over all rows."""
        return self._problem(self.D.n)

    def _problem(self, n: int, weights: tuple[float, float] = (1.0, 1.0)) -> Problem:
        cache = self.resources.libsvm_megabytes / self.at_once
        return replace(self.params.problem(n, weights, cache), doubtful=self.doubtful)

    def _problem_of(self, number: int) -> Problem:
        params, names, counts = self.params, self.names, self.counts
        if not names:
            return self.problem
        if self.pairs:
            weights = params.pair_weights(*self.pairs[number], names, counts)
        elif len(names) == 2:
            weights = params.side_weights(names, counts)
        else:
            weights = params.one_vs_rest_weights(number, names, counts)
        return self._problem(sum(self.sides(number)) if self.pairs else self.D.n, weights)

    def sides(self, number: int) -> tuple[int, int]:
        """How many rows of a subtask have y = +1 and how many y = -1, where y are classes."""
        if self.pairs:
            first, second = self.pairs[number]
            return self._size(first), self._size(second)
        return self._size(number), self.D.n - self._size(number)

    def _size(self, index: int) -> int:
        """Rows of a class. counts are of the whole data set, of which D may be a view."""
        return self.counts[index] if self._whole else len(self._grouped().rows[index])

    def nothing(self, number: int) -> tuple[SV, Certificate]:
        """The solution of a subtask without support vectors, whose f is the constant of least P,
        and its certificate: P is linear in b between -1 and 1. For nu-SVC f = 0 with rho = 0 has
        P = 0, and no D is known. Where y are no classes nothing is certified."""
        empty, problem = self._empty, self._problem_of(number)
        if problem.size or not self.names:
            certified = bool(self.names) and problem.positive_semidefinite
            certificate = Certificate(0.0, -inf if certified else 0.0, certified)
            return SV(empty.rows, EMPTY, 0.0, problem, empty), certificate
        lost = [C * rows for C, rows in zip(problem.bounds, self.sides(number), strict=True)]
        certificate = Certificate(2.0 * min(lost), 0.0, problem.positive_semidefinite)
        b = 1.0 if lost[0] > lost[1] else -1.0
        return SV(empty.rows, EMPTY, b, problem, empty), certificate

    @cached_property
    def _empty(self) -> Points:
        """No rows, for hundreds of thousands of pairs at a time."""
        X = sparse.csr_matrix((0, self.D.d), dtype=np.float32)
        return Points(np.empty(0, np.int64), X, EMPTY)

    # --- what pairs are views of -----------------------------------------------------------

    def _grouped(self) -> Grouped:
        """Made once, though several threads ask: of two one would never be closed."""
        with self._lock:
            if self._regrouped is None:
                room = max(0, self.resources.data_bytes - self.D.store.resident_bytes)
                room, classes = room // self.at_once, len(self.names)
                self._regrouped = Grouped.of(self.D, classes, room, self.resources.tmpdir)
            return self._regrouped

    def close(self) -> None:
        """Give back what pairs are views of."""
        if self._regrouped is not None:
            self._regrouped.close()
