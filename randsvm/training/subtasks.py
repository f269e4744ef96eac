"""Split a training into subtasks, join their solutions to a model, and split an old model to start.

Several classes are one subtask for each pair of classes, or one for each class against the rest.
Two classes, regression and novelty detection are a single subtask. Nothing here depends on which
algorithm solves it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum, inf, isfinite
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from randsvm.algorithms.decomposition import Start, feasible_step
from randsvm.arrays import CsrMatrix, sums_of_classes
from randsvm.data.classes import RowsByClass, one_class, one_versus_rest
from randsvm.data.dataset import Dataset
from randsvm.data.labels import label_values
from randsvm.data.matching import Matches, matches
from randsvm.data.points import Points
from randsvm.data.scaling import Scaling
from randsvm.errors import ModelError, ParameterError
from randsvm.events import Notice, emit_once
from randsvm.files import display_name
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.rounding import PRESCRIBED, addition_error
from randsvm.models.decisions import class_pairs
from randsvm.models.kernel_model import KernelModel
from randsvm.models.model import Model
from randsvm.models.model_text import load
from randsvm.parameters.option import command_line
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import (
    KERNELS,
    NO_DEFECTS,
    NU_TASKS,
    KernelDefects,
    KernelParams,
    Problem,
    class_weights,
    prediction_type_of,
    side_weights,
)
from randsvm.records import record
from randsvm.svm.kernel_layout import MAX_MATRIX_ROWS, kernel_centres
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine, Step
from randsvm.svm.whole import KernelMatrix, MatrixPart
from randsvm.svm.working_set import WorkingSet

if TYPE_CHECKING:
    from randsvm.kernels.random_features import RandomMap

EMPTY = np.empty(0)
# Pairs of fewer rows are solved one after another: most of their time is spent in Python, which
# runs one thread at a time. Measured on two cores: two threads take 1.8 times as long as one with
# 96 rows; whole runs 1.1 times with 500 rows (18 or 784 features), 0.9 times with 800 rows (784).
SIDE_BY_SIDE_ROWS = 700


@record
class Subtask:
    """One binary classification, regression or novelty detection.

    D : its rows with y = -1/+1, a regression's targets, or 0 for novelty detection
    problem : with the bounds of the coefficients of both sides
    name : the class with y = +1, or both classes of a pair; empty if is_only
    is_only : whether the training has no other subtask
    rows : (n,) int64, the row numbers in the whole D, for a pair
    whole_matrix : returns the kernel values of the whole D; its argument is that of
        `kernel_matrix`. None: the subtask has its own
    """

    D: Dataset
    problem: Problem
    name: str = ""
    is_only: bool = True
    rows: np.ndarray | None = None
    whole_matrix: Callable[[bool], KernelMatrix] | None = None

    def kernel_matrix(self, float64: bool) -> MatrixPart:
        """Return kernel values of the rows of D. float64: whether they are computed in float64 in
        any case."""
        if self.whole_matrix is None:
            matrix = KernelMatrix(self.D, self.problem, float64)
            return MatrixPart(matrix, matrix.place)
        matrix = self.whole_matrix(float64)
        return MatrixPart(matrix, matrix.place if self.rows is None else matrix.place[self.rows])

    def within(self, rows: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of this subtask with coefficients other than 0, ascending, and beta.

        rows : numbers in the whole D; beta : their coefficients
        """
        if self.rows is not None:
            order = np.argsort(self.rows)
            place = np.minimum(np.searchsorted(self.rows, rows, sorter=order), len(order) - 1)
            # The place of a row that is not in this subtask is that of another row.
            rows, beta = order[place], np.where(self.rows[order[place]] == rows, beta, 0.0)
        used = np.flatnonzero(beta)
        used = used[np.argsort(rows[used])]
        return rows[used], beta[used]

    def in_whole(self, solution: KernelSolution) -> KernelSolution:
        """Return the solution with row numbers of the whole D.

        A pair's solution loses its points: several pairs share the rows of a class.
        """
        if self.rows is None:
            return solution
        if isinstance(solution, ReducedMachine) and solution.full is not None:
            solution = replace(solution, full=self.in_whole(solution.full))
        rows = self.rows[solution.rows]
        order = np.argsort(rows)
        weights = None if solution.weights is None else solution.weights[order]
        return replace(
            solution, rows=rows[order], beta=solution.beta[order], weights=weights, points=None
        )


class SharedByFolds:
    """The grouped rows and kernel values that subtasks of all folds and parameters share.

    lock: for changes
    by_class: the rows grouped by class, for pairs of classes; None: not grouped
    matrices: kernel values of all rows, which are few, by the kernel; see `Subtasks.matrix`
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.by_class: RowsByClass | None = None
        self.matrices = OrderedDict[Any, KernelMatrix]()


@dataclass(eq=False)
class Subtasks:
    """The subtasks of D, a sequence. A view of D takes memory, so each is made on demand.

    D : y are class indices (`labelled_classes`) or targets; novelty detection ignores them
    resources : shared by all subtasks
    memory_sharers : number of such sequences that share the resources
    defects : of a precomputed kernel
    labels, counts, weight_sums: of each class: its label, the number of its rows, and the sum of
        their weights, in the whole file; empty if there are no classes
    """

    D: Dataset
    params: KernelParams
    resources: Resources
    memory_sharers: int = 1
    defects: KernelDefects = NO_DEFECTS
    shared: SharedByFolds = field(default_factory=SharedByFolds)

    def __post_init__(self) -> None:
        # Threads of a pool gain nothing for few rows: starting them takes as long as the work.
        self.D = D = self.D.single_threaded() if self.D.n <= MAX_MATRIX_ROWS else self.D
        targets = D.targets if self.is_classification else None
        order = [] if targets is None else np.argsort(targets).tolist()
        self.labels = [D.summary.labels[i] for i in order]
        totals = D.class_totals() if self.is_classification else (np.empty(0), np.empty(0))
        self.counts, self.weight_sums = (of_classes.tolist() for of_classes in totals)
        for first, other in self.sides if self.params.task == "nu-svc" else ():
            if other is None:
                raise ParameterError("-s nu-svc separates two classes, not one from the rest")
            classes = first, other
            sums = [self.weight_sums[i] for i in classes]
            # A part of the rows may lack a class: its pairs are not trained.
            if all(sums):
                self.params.check_classes([self.labels[i] for i in classes], sums)

    @property
    def is_classification(self) -> bool:
        return self.params.prediction_type == "svc"

    @property
    def of_pairs(self) -> bool:
        """Whether each subtask has the rows of two of several classes."""
        return self.params.multiclass == "ovo"

    @cached_property
    def sides(self) -> list[tuple[int, int | None]]:
        """The index of the class with y = +1, and of that with y = -1, of each subtask.

        The second is None for the rest of the rows, or if there are no classes.
        """
        classes = len(self.labels)
        if self.of_pairs or classes == 2:
            first, other = class_pairs(classes)
            return list(zip(first.tolist(), other.tolist(), strict=True))
        return [(k, None) for k in range(max(1, classes))]

    def __len__(self) -> int:
        return len(self.sides)

    @property
    def max_rows(self) -> int:
        """The number of rows of the largest subtask."""
        if not self.of_pairs:
            return self.D.n
        return min(self.D.n, sum(sorted(self.counts)[-2:]))

    def row_count(self, number: int) -> int:
        """Return the number of rows of a subtask."""
        sides = self.sides[number]
        return (
            sum(int(self.counts[k]) for k in sides if k is not None) if self.of_pairs else self.D.n
        )

    def side_by_side(self, solve_bytes: int) -> int:
        """Return how many subtasks are solved at the same time, each in a thread.

        Only pairs with enough rows are, and they use at most half of the memory. solve_bytes : the
        memory of one subproblem.
        """
        if not self.of_pairs or self.max_rows < SIDE_BY_SIDE_ROWS:
            return 1
        each = 17 * self.max_rows + solve_bytes
        room = self.resources.memory // 2 // max(each, 1)
        return max(1, min(self.resources.threads, room, len(self)))

    def name_of(self, number: int) -> str:
        """Return the name of a subtask; empty if it is the only one."""
        names = [self.labels[side] for side in self.sides[number] if side is not None]
        return "" if len(self) == 1 else " / ".join(names)

    def __getitem__(self, number: int) -> Subtask:
        D, problem = self.D, self.problem_of(number)
        if not self.is_classification:
            return Subtask(one_class(D) if self.params.task == "one-class" else D, problem)
        first, other = self.sides[number]
        is_only, name = len(self) == 1, self.name_of(number)
        if not self.of_pairs:
            matrix = None if is_only or D.n > MAX_MATRIX_ROWS else self.matrix
            rest = one_versus_rest(D, first)
            return Subtask(rest, problem, name, is_only, whole_matrix=matrix)
        assert other is not None
        if D.n <= MAX_MATRIX_ROWS:
            rows = np.flatnonzero((self._classes == first) | (self._classes == other))
            pair = D.subset(D.mask(rows)).relabel(np.where(D.targets == first, 1.0, -1.0))
            return Subtask(pair, problem, name, is_only, rows, self.matrix)
        D, rows = self.group_rows().pair(first, other)
        if D.n <= MAX_MATRIX_ROWS:
            D = D.single_threaded().copied_to_memory()
        if self.D.own_weights is not None:
            D = D.reweighted(self.D.own_weights[rows])
        return Subtask(D, problem, name, is_only, rows)

    @cached_property
    def _classes(self) -> np.ndarray:
        """The class index of each row, (n,) float64."""
        return self.D.labels()

    def matrix(self, float64: bool = False) -> KernelMatrix:
        """Return the kernel values of all rows, which are few, for these subtasks and copies of
        them. float64: see `Subtask.kernel_matrix`."""
        params = self.params
        key = params.kernel, params.gamma, params.coef0, params.degree, float64
        kept, room = self.shared.matrices, self.resources.memory // 2
        with self.shared.lock:
            if key not in kept:
                # All have the same size. Those that were used last stay, in half of the memory:
                # data of so few rows hardly needs any.
                while kept and (1 + len(kept)) * next(iter(kept.values())).nbytes > room:
                    kept.popitem(last=False)
                kept[key] = KernelMatrix(self.D, self.problem, float64)
            kept.move_to_end(key)
            return kept[key]

    def without(self, held_out: np.ndarray) -> Subtasks:
        """Return the subtasks of a fold: the rows that it holds out have the weight 0.

        Call `group_rows` first, and close the original, not this. held_out : (n,) bool
        """
        weights = self.D.weights()
        weights = ~held_out * (1.0 if weights is None else weights)
        return replace(self, D=self.D.reweighted(weights))

    # --- properties of a subtask that need no pass over its rows ---------------------------

    @property
    def problem(self) -> Problem:
        """The problem over all rows, without class weights."""
        return self._problem(self._total_weight)

    def _problem(self, weight: float, class_weights: tuple[float, float] = (1.0, 1.0)) -> Problem:
        """Return the problem over rows whose weights add up to `weight`."""
        if (found := self._problems.get((weight, class_weights))) is None:
            cache = self.resources.libsvm_megabytes / self.memory_sharers
            weighted = self.D.summary.weighted
            found = self.params.problem(weight, class_weights, cache, weighted, self.defects)
            self._problems[weight, class_weights] = found
        return found

    @cached_property
    def _problems(self) -> dict[tuple[float, tuple[float, float]], Problem]:
        """Problems by their weights: thousands of pairs have the same."""
        return {}

    def problem_of(self, number: int) -> Problem:
        params, labels, sums = self.params, self.labels, self.weight_sums
        if not labels:
            return self.problem
        first, other = self.sides[number]
        if other is None:
            weights = side_weights(params.weights, labels, sums, first, None)
        else:
            weights = self.class_weights[first], self.class_weights[other]
        # Only the nu tasks depend on the weight of all rows.
        weight = self._total_weight
        if self.of_pairs and params.task in NU_TASKS:
            weight = sum(self.side_sums(number))
        return self._problem(weight, weights)

    @cached_property
    def class_weights(self) -> list[float]:
        """The factor of C of each class in its pairs."""
        return class_weights(self.params.weights, self.labels, self.weight_sums)

    @cached_property
    def _total_weight(self) -> float:
        """The sum of the weights of all rows of D."""
        return self.D.total_weight() if self.D.summary.weighted else self.D.n

    @cached_property
    def _class_sums(self) -> list[float]:
        """The sum of the weights of the rows of each class in D, which may be a view."""
        labels, weights = self.D.labels().astype(np.int64), self.D.weights()
        return sums_of_classes(labels, weights, len(self.labels)).tolist()

    def side_sums(self, number: int) -> tuple[float, float]:
        """Return the sums of the weights of the rows with y = +1 and with y = -1."""
        (first, other), sums = self.sides[number], self._class_sums
        rest = [*sums[:first], *sums[first + 1 :]] if other is None else [sums[other]]
        return sums[first], fsum(rest)

    def lacks_side(self, number: int) -> bool:
        """Return whether a pair has no rows, or only rows of weight 0, of one of its classes."""
        return self.of_pairs and 0 in self.side_sums(number)

    def constant_solution(self, number: int) -> tuple[KernelSolution, Certificate]:
        """Return the solution of a subtask without support vectors, and its certificate.

        f is the constant b with the lowest P: P is linear in b between -1 and 1. For nu-SVC f = 0
        with rho = 0 has P = 0, and D is unknown. Only classifications are certified.
        """
        empty, problem = self._empty, self.problem_of(number)
        if problem.absolute_sum or not self.labels:
            certified = bool(self.labels) and problem.positive_semidefinite
            certificate = Certificate(0.0, -inf if certified else 0.0, certified)
            return KernelSolution(empty.rows, EMPTY, 0.0, problem, empty), certificate
        sides = self.side_sums(number)
        lost = [C * weight for C, weight in zip(problem.bounds, sides, strict=True)]
        primal = 2.0 * min(lost)
        rounding = addition_error(PRESCRIBED, primal)
        certificate = Certificate(primal, 0.0, problem.positive_semidefinite, primal_error=rounding)
        b = 1.0 if lost[0] > lost[1] else -1.0
        return KernelSolution(empty.rows, EMPTY, b, problem, empty), certificate

    @cached_property
    def _empty(self) -> Points:
        """No rows; shared, because there may be hundreds of thousands of pairs."""
        return Points(np.empty(0, np.int64), CsrMatrix.without_rows(self.D.d), EMPTY)

    # --- the rows of pairs -----------------------------------------------------------------

    def group_rows(self) -> RowsByClass:
        """Return the rows grouped by class, once for all that share them."""
        with self.shared.lock:
            if self.shared.by_class is None:
                room = max(0, self.resources.data_bytes - self.D.store.resident_bytes)
                room, classes = room // self.memory_sharers, len(self.labels)
                self.shared.by_class = RowsByClass(self.D, classes, room, self.resources.tmpdir)
            return self.shared.by_class

    def close(self) -> None:
        """Free the rows that were grouped by class."""
        if self.shared.by_class is not None:
            self.shared.by_class.close()


# --- solutions as one model ----------------------------------------------------------------


def assemble(subtasks: Subtasks, solutions: Sequence[KernelSolution]) -> KernelModel:
    """Return the model of all subtasks, over the columns of D.

    solutions : one for each subtask, in their order, over the rows of the whole D. `finished`
    makes the model that is saved.
    """
    problem = solutions[0].problem
    fields: dict[str, Any] = {
        "prediction_type": problem.prediction_type,
        "nu": problem.absolute_sum > 0,
        "kernel": Kernel.of(problem),
        "features": subtasks.D.summary.features,
        "labels": tuple(subtasks.labels),
        "b": np.array([one.b * one.scale for one in solutions]),
    }
    joined = _joined_pairs(subtasks, solutions) if subtasks.of_pairs else _joined_columns(solutions)
    return KernelModel(**joined, **fields)


def _joined_pairs(subtasks: Subtasks, solutions: Sequence[KernelSolution]) -> dict[str, Any]:
    """Return the support vectors of all pairs, grouped by class, as KernelModel has them."""
    sizes = [len(one) for one in solutions]
    first, other = (np.repeat(side, sizes) for side in class_pairs(len(subtasks.labels)))
    rows, places = np.unique(np.concatenate([one.rows for one in solutions]), return_inverse=True)
    points = kernel_centres(subtasks.D, rows)
    beta = np.zeros((len(rows), len(subtasks.labels) - 1))
    column = np.where(points.y[places] == first, other - 1, first)
    beta[places, column] = np.concatenate([one.beta * one.scale for one in solutions])
    order = np.argsort(points.y, kind="stable")
    return {
        "Z": points.X[order],
        "beta": beta[order],
        "support": points.rows[order],
        "class_of": points.y[order].astype(np.int64),
    }


def _joined_columns(solutions: Sequence[KernelSolution]) -> dict[str, Any]:
    """Return the support vectors of all solutions by row number, a column of beta for each."""
    points = Points.concatenate([one.points for one in solutions if one.points is not None])
    rows, first = np.unique(points.rows, return_index=True)
    beta = np.zeros((len(rows), len(solutions)))
    for column, one in enumerate(solutions):
        beta[np.searchsorted(rows, one.rows), column] = one.beta * one.scale
    return {"Z": points.X[first], "beta": beta, "support": rows}


def finished(machine: KernelModel, mapping: RandomMap | None, **common: Any) -> Model:
    """Return the model to save.

    machine : by `assemble`. mapping : the random features that its columns are; None: the features
    themselves. common : the fields of Model that the data and the options determine.
    """
    if mapping is None:
        return replace(machine.without_unused_features(), **common)
    from randsvm.models.linear_model import ONE_CLASS_SOLVER, LinearModel
    from randsvm.svm.linear_loss import LOSSES, SOLVER_OF_REGRESSION_LOSS

    solvers = {
        "svc": LOSSES["hinge"].solver,
        "svr": SOLVER_OF_REGRESSION_LOSS["hinge"],
        "one-class": ONE_CLASS_SOLVER,
    }
    return LinearModel(
        w=machine.Z.column_products(machine.beta),
        b=machine.b,
        solver=solvers[machine.prediction_type],
        mapping=mapping,
        features=machine.features,
        **common,
    )


# With a smaller part of the support vectors in D, a training starts from nothing: with fewer, the
# rest of the coefficients has to be found anyway.
MIN_FOUND_PART = 0.5


@record
class OldModel:
    """A kernel model to start from.

    Its support vectors that are rows of D begin with their old coefficients, in proportion to C.
    They are made feasible: clipped to the bounds of the new problem, with their sum repaired.
    """

    path: str
    model: KernelModel

    @staticmethod
    def read(path: str) -> OldModel:
        """Read the model. Raises InputError, or ModelError for a model of another kind."""
        model = load(path)
        if not isinstance(model, KernelModel):
            raise ModelError(f"{path}: expected a kernel model to start from, found a linear one")
        return OldModel(path, model)

    @property
    def task(self) -> str:
        return "nu-" * self.model.nu + self.model.prediction_type

    def starts(self, subtasks: Subtasks, C: float) -> Callable[[int, Subtask], Start | None]:
        """Return a function of the number of a subtask, and the subtask, that returns its start.

        The start is None if few support vectors are rows of the data. Each row is matched with one
        support vector. In models of two classes, or of pairs of classes, both must have the same
        class, as each coefficient is of one class. The coefficients of a nu task are scaled to the
        sum that it prescribes. Raises ModelError if the model has other labels.
        """
        model, D, numbers = self.model, subtasks.D, self._class_numbers(subtasks.labels)
        matched = self._matches(D)
        classes, row_classes = np.zeros(len(model.beta), np.int64), np.zeros_like(matched.rows)
        if model.class_of is not None or len(numbers) == 2:
            # Of two classes, the coefficients of the first are positive.
            classes = 1 * (model.beta[:, 0] < 0) if model.class_of is None else model.class_of
            row_classes = numbers[D.labels()[matched.rows].astype(np.int64)]
        rows, vectors = matched.pairs(np.abs(model.beta).max(axis=1), classes, row_classes)

        def start_of(number: int, subtask: Subtask) -> Start | None:
            sides = [int(numbers[side]) for side in subtasks.sides[number] if side is not None]
            coefficients = self._coefficients(*sides)
            found_rows, beta = subtask.within(rows, coefficients[vectors])
            if len(found_rows) < MIN_FOUND_PART * np.count_nonzero(coefficients):
                text = "--warm-start: few of its support vectors are rows of the data, so the "
                text += "training starts from nothing"
                emit_once(text, Notice(text))
                return None
            factor = self.proportion(C)
            if subtask.problem.absolute_sum:
                factor = subtask.problem.absolute_sum / np.abs(coefficients).sum()

            def start(scan: Scan) -> tuple[Step, WorkingSet]:
                scaled = np.zeros(scan.D.n)
                scaled[found_rows] = beta * factor
                scan.continue_from(scaled)
                return feasible_step(scan)

            return start

        return start_of

    def _class_numbers(self, labels: Sequence[str]) -> np.ndarray:
        """Return the number of each of these labels in the model, (classes,) int64; [0] without
        classes."""
        if self.model.prediction_type != "svc":
            return np.zeros(1, np.int64)
        old, new = _values_of(self.model.labels), _values_of(labels)
        if sorted(old) != sorted(new):
            raise ModelError(f"the model to start from has the labels {old}, the data {new}")
        return np.array([old.index(value) for value in new], np.int64)

    def _coefficients(self, first: int, second: int | None = None) -> np.ndarray:
        """Return the coefficient of each support vector, (m,) float64, where class `first` is
        positive and class `second`, or each other one, is negative."""
        model, beta = self.model, self.model.beta
        if not model.has_pairs:
            return beta[:, first] if beta.shape[1] > 1 else beta[:, 0] * (1 - 2 * first)
        assert second is not None
        i, j = sorted((first, second))
        of_both = np.where(model.class_of == i, beta[:, j - 1], 0.0)
        of_both = np.where(model.class_of == j, beta[:, i], of_both)
        return of_both if first == i else -of_both

    # --- parameters ------------------------------------------------------------------------

    def params(
        self, params: KernelParams, given: frozenset[str] | None
    ) -> tuple[KernelParams, list[str]]:
        """Return params with every option that is not in `given` as in the model, and a notice.

        given: None stands for all options. Raises ModelError if the model is for another task.
        """
        given = frozenset(self._values) if given is None else given
        if "task" in given and prediction_type_of(params.task) != self.model.prediction_type:
            raise ModelError(
                f"{self.path}: expected a model of -s {params.task} to start from, found one of "
                f"-s {self.model.prediction_type}"
            )
        if params.multiclass and self.model.has_pairs != (params.multiclass == "ovo"):
            raise ModelError(
                f"{self.path}: expected a model of --multiclass {params.multiclass} to start from"
            )
        taken = {name: value for name, value in self._values.items() if name not in given}
        if taken.get("kernel", params.kernel) != self.model.kernel.name:
            taken = {name: taken[name] for name in taken if name not in KERNELS["poly"]}
        params = replace(params, **taken)
        arguments = command_line(params, names={name for name in taken if params.uses(name)})
        return params, [
            f"as in {display_name(self.path)}: {' '.join(arguments)}"
        ] if arguments else []

    @property
    def _values(self) -> dict[str, Any]:
        """The parameters that the model states."""
        kernel, recorded = self.model.kernel, self.model.metadata.options
        values: dict[str, Any] = {
            "task": self.task,
            "kernel": kernel.name,
        }
        values |= {name: getattr(kernel, name) for name in KERNELS[kernel.name]}
        if self.model.prediction_type == "svc" and len(self.model.labels) > 2:
            values["multiclass"] = "ovo" if self.model.has_pairs else "ovr"
        values |= {} if self.cost is None else {"C": self.cost}
        return values | {name: recorded[name] for name in ("epsilon", "nu") if name in recorded}

    @property
    def cost(self) -> float | None:
        """C; None: unknown. LIBSVM's models do not state it.

        Then it is the largest coefficient, if several support vectors have it.
        """
        if (C := self.model.metadata.C) is not None and isfinite(C):
            return C
        alpha = np.abs(self.model.beta)
        largest = float(alpha.max(initial=0.0))
        return largest if np.count_nonzero(alpha == largest) > 1 else None

    # --- coefficients ----------------------------------------------------------------------

    def proportion(self, C: float) -> float:
        """Return C relative to the model's C; 1 if that is unknown, and for novelty detection."""
        return C / self.cost if self.cost and self.model.prediction_type != "one-class" else 1.0

    def _matches(self, D: Dataset) -> Matches:
        """Return which unscaled rows of D are support vectors of the model."""
        model, D = self.model, D.original
        if model.scaling is not None:
            D = D.scaled(self._scaling(D.summary.features))
        return matches(D, model.Z, model.features)

    def _scaling(self, features: np.ndarray) -> Scaling:
        """Return the model's scaling over the features of D; features that it lacks become 0."""
        scaling, seen = self.model.scaling, self.model.seen
        assert scaling is not None and seen is not None
        at = np.minimum(np.searchsorted(seen, features), len(seen) - 1)
        known = seen[at] == features

        def over(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else np.where(known, array[at], 0.0)

        return Scaling(scaling.name, over(scaling.shift), over(scaling.factor))


def _values_of(labels: Sequence[str]) -> list[str]:
    """Return labels in one notation: 1 for +1 and 1.0."""
    return list(map(str, label_values(labels)))
