"""The subtasks of a training as views of one D: one for each pair of classes, or one for each class
against the rest.

Two classes, regression and novelty detection are one subtask. Knows no algorithm and no files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from randsvm.data.classes import against_the_rest, one_class
from randsvm.data.dataset import Dataset, Shard
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

    @property
    def sides(self) -> tuple[int, int]:
        """How many rows have y = +1 and how many y = -1."""
        D = self.D

        def of(shard: Shard) -> tuple[int, int]:
            y = D.labels_of(shard)
            return int(np.count_nonzero(y > 0)), int(np.count_nonzero(y < 0))

        positive, negative = zip(*D.map(of), strict=True)
        return sum(positive), sum(negative)

    def nothing(self) -> tuple[SV, Certificate]:
        """The solution without support vectors, whose f is the constant of least P, and what it is
        worth: P is linear in b between -1 and 1."""
        D = self.D
        empty = Points(np.empty(0, np.int64), sparse.csr_matrix((0, D.d), dtype=np.float32), EMPTY)
        if self.problem.size:  # of which coefficients have a sum that is not 0
            unknown = Certificate(0.0, 0.0, False)
            return SV(empty.rows, EMPTY, 0.0, self.problem, empty), unknown
        lost = [C * rows for C, rows in zip(self.problem.bounds, self.sides, strict=True)]
        certificate = Certificate(2.0 * min(lost), 0.0, self.problem.positive_semidefinite)
        b = 1.0 if lost[0] > lost[1] else -1.0
        return SV(empty.rows, EMPTY, b, self.problem, empty), certificate

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
        self.names: list[str] = []
        self.counts: list[int] = []
        if params.kind == "svc":
            assert D.targets is not None
            order = np.argsort(D.targets).tolist()
            self.names = [D.summary.names[i] for i in order]
            self.counts = [D.summary.counts[i] for i in order]
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
        D, params = self.D, self.params
        if params.task == "one-class":
            return Subtask(one_class(D), self.problem)
        if params.kind != "svc":
            return Subtask(D, self.problem)
        if self.pairs:
            return self._pair(*self.pairs[number])
        if len(self.names) == 2:
            weights = params.side_weights(self.names, self.counts)
            return Subtask(against_the_rest(D, 0), self._problem(D.n, weights))
        weights = params.one_vs_rest_weights(number, self.names, self.counts)
        view = against_the_rest(D, number)
        return Subtask(view, self._problem(D.n, weights), self.names[number])

    def _pair(self, first: int, second: int) -> Subtask:
        D, rows = self._grouped.pair(first, second)
        if D.n <= FEW_ROWS:
            D = D.in_one_thread().gathered().in_one_thread()
        weights = self.params.pair_weights(first, second, self.names, self.counts)
        pair = self.names[first], self.names[second]
        return Subtask(D, self._problem(D.n, weights), " / ".join(pair), pair, rows)

    @property
    def problem(self) -> Problem:
        """Without weights, over all rows."""
        return self._problem(self.D.n)

    def _problem(self, n: int, weights: tuple[float, float] = (1.0, 1.0)) -> Problem:
        cache = self.resources.libsvm_megabytes / self.at_once
        return replace(self.params.problem(n, weights, cache), doubtful=self.doubtful)

    @cached_property
    def _grouped(self) -> Grouped:
        room = max(0, self.resources.data_bytes - self.D.store.resident_bytes)
        classes = len(self.names)
        return Grouped.of(self.D, classes, room // self.at_once, self.resources.tmpdir)

    def close(self) -> None:
        """Give back what pairs are views of."""
        if "_grouped" in self.__dict__:
            self._grouped.close()
