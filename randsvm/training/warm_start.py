"""Start from a solution: of another model by --warm-start, or of another fit of a search."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from randsvm.algorithms.decomposition import Start
from randsvm.arrays import to_csr
from randsvm.data.dataset import Dataset
from randsvm.data.matching import Matches, matches
from randsvm.data.scaling import Scaling
from randsvm.data.shard_executor import Shard
from randsvm.errors import ModelError
from randsvm.files import display_name
from randsvm.models.kernel_model import KernelModel, PairwiseModel
from randsvm.models.load import load
from randsvm.parameters.kernel import KERNELS
from randsvm.parameters.option import command_line
from randsvm.parameters.svm import Params, prediction_type_of
from randsvm.svm.projection import clipped, fill_sums_by_violation, restore_sum
from randsvm.svm.running_values import SavedSolution
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Step
from randsvm.svm.working_set import WorkingSet
from randsvm.training.multiclass import Subtask

# With a smaller part of the support vectors in D, the old decision values give a better start.
MIN_FOUND_PART = 0.5


@dataclass(frozen=True)
class SeededStart:
    """The start of a fold, or of another C, from a solution for all rows of a subtask.

    The coefficients of rows that the fold holds out, of weight 0, become 0. Rows that the solution
    leaves out, but the fold does not, start with the coefficients that `_expected` returns. Then
    the sum is repaired.
    """

    solution: SavedSolution

    def __call__(self, scan: Scan, r: int) -> tuple[Step, WorkingSet]:
        """Return the first step, and the working set that it belongs to."""
        scan.resume(self.solution)
        now = scan.coefficients
        joining = self.solution.left_out & (True if scan.weights is None else scan.weights > 0)
        if joining.any():
            joined, beta = _expected(scan, joining)
            now = now.after(joined, beta)
        step, free = _by_coefficients(scan, now.rows, now.beta)
        return step, _working_set(scan, r, free)


def _expected(scan: Scan, joining: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that join a solution, ascending, and the coefficients expected of them.

    The share of bounded ones among them is that among other rows, within each class. The bounded
    ones are those whose y is furthest above u, or below it for a lower bound. The others start with
    0: where unbounded coefficients share what few rows say, all of them at once would exceed it.

    joining : (n,) bool
    """
    y, u, beta = scan.D.labels(), scan.u, scan.beta
    lower, upper = scan.task.box(y, scan.weights)
    trained = ~joining if scan.weights is None else ~joining & (scan.weights > 0)
    expected = np.zeros(scan.D.n)
    for group in (y > 0, y <= 0) if scan.task.one_sided else (np.ones(scan.D.n, bool),):
        others, rows = group & trained, np.flatnonzero(group & joining)
        ranked = rows[np.argsort((y - u)[rows], kind="stable")]
        for bound, order in ((lower, ranked), (upper, ranked[::-1])):
            bounded = np.count_nonzero(others & (bound != 0) & (beta == bound))
            count = len(rows) * int(bounded) // max(int(np.count_nonzero(others)), 1)
            expected[order[:count]] = bound[order[:count]]
    joined = np.flatnonzero(joining)
    return joined, expected[joined]


def _working_set(scan: Scan, r: int, free: np.ndarray) -> WorkingSet:
    """Return the working set of a first step that leaves the rows `free` unbounded."""
    if r < scan.training_rows:
        return WorkingSet(free, free, pairs=True)
    rows = np.arange(scan.D.n) if scan.weights is None else np.flatnonzero(scan.weights)
    return WorkingSet(rows, rows, whole=True)


def _by_coefficients(scan: Scan, rows: np.ndarray, beta: np.ndarray) -> tuple[Step, np.ndarray]:
    """Return a feasible step to these coefficients, and the rows that it leaves unbounded."""
    task, total = scan.task, scan.task.coefficient_sum
    lower, upper = task.box(scan.D.labels()[rows], _of(scan.weights, rows))
    beta = clipped(beta, lower, upper)
    if total and beta.sum() < total:
        # Novelty detection with more rows than before: u shows which other rows are outliers.
        scan.make_step(Step(scan.points(rows), beta))
        return _outermost(scan, scan.u), rows[:0]
    beta = restore_sum(beta, lower, upper, total)
    return Step(scan.points(rows), beta), rows[(beta > lower) & (beta < upper)]


def _of(weights: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if weights is None else weights[rows]


def _by_values(scan: Scan, f: np.ndarray) -> tuple[Step, np.ndarray]:
    """Return a step that sets the rows inside the margin of the old f to their bounds, and the
    numbers of the rows near that margin, (m,) int64.

    To restore the sum 0, the coefficients of the rows least far inside change first. Where a task
    prescribes another sum, the rows furthest inside fill it, and no row counts as near.
    """
    if scan.task.coefficient_sum or scan.task.absolute_sum:
        return _outermost(scan, f), np.empty(0, np.int64)
    y = scan.D.labels()
    rise, fall = scan.task.slopes(y, f, np.zeros(len(y)))
    inside = np.maximum(rise, -fall)
    rows = np.flatnonzero(inside > scan.problem.tolerance)
    lower, upper = scan.task.box(y[rows], _of(scan.weights, rows))
    beta = np.where(rise[rows] > -fall[rows], upper, lower)
    beta = restore_sum(beta, lower, upper, 0.0, inside[rows])
    rows, beta = rows[beta != 0], beta[beta != 0]
    near = np.flatnonzero(np.abs(inside) <= 2 * scan.problem.tolerance)
    return Step(scan.points(rows), beta), near


def _outermost(scan: Scan, u: np.ndarray) -> Step:
    """Return the step that fills the sums of a task with the rows furthest outside by u."""
    before = scan.beta
    beta = fill_sums_by_violation(scan.task, scan.D.labels(), u, before, scan.weights)
    changed = np.flatnonzero(beta != before)
    return Step(scan.points(changed), beta[changed])


@dataclass(frozen=True)
class OldModel:
    """A kernel model to start from.

    Its support vectors that are rows of D begin with their old coefficients, in proportion to C.
    They are made feasible: clipped to the bounds of the new problem, with their sum repaired.

    known: by the id of a store of rows, which of them are its support vectors; shared by classes
    """

    path: str
    model: KernelModel
    known: dict[int, Matches] = field(default_factory=dict)

    @staticmethod
    def read(path: str) -> OldModel:
        """Read the model. Raises InputError, or ModelError for a model of another kind."""
        model = load(path)
        if not isinstance(model, KernelModel):
            raise ModelError(f"{path}: expected a kernel model to start from, found a linear one")
        return OldModel(path, model)

    @property
    def task(self) -> str:
        return "nu-" * self.model.nu + self.model.task

    def on(self, task: Subtask, C: float) -> Start:
        """Return the start of a subtask. Raises ModelError if the model has other labels."""
        D = task.D
        old = self if task.pair is None else self.pair_model(D, *task.pair)
        column, sign = old.orientation(D, task.pair)
        support = np.count_nonzero(old.model.beta[:, column])

        def start(scan: Scan, r: int) -> tuple[Step, WorkingSet]:
            rows, beta = old.coefficients(D, column, sign, scan.task.one_sided)
            # The sum that a nu task prescribes does not follow from old coefficients.
            if len(rows) >= MIN_FOUND_PART * support and not scan.task.absolute_sum:
                step, free = _by_coefficients(scan, rows, beta * self.proportion(C))
            else:
                step, free = _by_values(scan, old.values(D, column, sign))
            return step, _working_set(scan, r, free)

        return start

    # --- parameters ------------------------------------------------------------------------

    def params(self, params: Params, given: frozenset[str] | None) -> tuple[Params, list[str]]:
        """Return params with every option that is not in `given` as in the model, and a notice.

        given: None stands for all options. Raises ModelError if the model is for another task.
        """
        given = frozenset(self._values) if given is None else given
        if "task" in given and prediction_type_of(params.task) != self.model.task:
            raise ModelError(
                f"{self.path}: expected a model of -s {params.task} to start from, found one of "
                f"-s {self.model.task}"
            )
        pairs = isinstance(self.model, PairwiseModel)
        if params.multiclass and pairs != (params.multiclass == "ovo"):
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
        kernel, metadata = self.model.kernel, self.model.metadata
        arguments = shlex.split(metadata.get("configuration", ""))
        values: dict[str, Any] = {
            "task": self.task,
            "kernel": kernel.name,
        }
        values |= {name: getattr(kernel, name) for name in KERNELS[kernel.name]}
        if self.model.task == "svc" and len(self.model.labels) > 2:
            values["multiclass"] = "ovo" if isinstance(self.model, PairwiseModel) else "ovr"
        values |= {} if self.cost is None else {"C": self.cost}
        for name, letter in (("epsilon", "-p"), ("nu", "-n")):
            if letter in arguments[:-1]:
                values[name] = self._number(arguments[arguments.index(letter) + 1])
        return values

    def _number(self, word: str) -> float:
        try:
            return float(word)
        except ValueError as error:
            raise ModelError(f"{self.path}: expected a number, found {word!r}") from error

    @property
    def cost(self) -> float | None:
        """C; None: unknown. LIBSVM's models do not state it.

        Then it is the largest coefficient, if several support vectors have it.
        """
        if "C" in self.model.metadata:
            return float(self.model.metadata["C"])
        alpha = np.abs(self.model.beta)
        largest = float(alpha.max(initial=0.0))
        return largest if np.count_nonzero(alpha == largest) > 1 else None

    # --- coefficients and decision values --------------------------------------------------

    def proportion(self, C: float) -> float:
        """Return C relative to the model's C; 1 if that is unknown, and for novelty detection."""
        return C / self.cost if self.cost and self.model.task != "one-class" else 1.0

    def coefficients(
        self, D: Dataset, column: int, sign: float, one_sided: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of D that are support vectors, ascending, and their coefficients.

        column, sign: the column of the model's coefficients, and the sign of D's positive class.
        Each row is matched with one support vector. one_sided: only with one of the same class.
        """
        if id(D.store) not in self.known:
            self.known[id(D.store)] = self._matches(D)
        known, beta = self.known[id(D.store)], sign * self.model.beta[:, column]
        y = D.labels()[known.rows]
        kinds, others = (beta > 0, y > 0) if one_sided else (beta != beta, y != y)
        rows, at = known.pairs(np.abs(beta), kinds, others)
        return rows, beta[at]

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
        indices = seen.indices(seen.count)
        at = np.minimum(np.searchsorted(indices, features), len(indices) - 1)
        known = indices[at] == features

        def over(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else np.where(known, array[at], 0.0)

        return Scaling(scaling.name, over(scaling.shift), over(scaling.factor))

    def values(self, D: Dataset, column: int, sign: float) -> np.ndarray:
        """Return f of the old model, with its own scaling, for every row of D; (n,) float64."""
        D = D.original

        def of(shard: Shard) -> np.ndarray:
            X = to_csr(D.chunk(shard.number).X)
            rows = self.model.rows(X.indptr, D.summary.features[X.indices], X.data)
            # A start does not need precise values.
            f = self.model.decision(rows, labels_only=True)
            return f.reshape(len(f), -1)[:, column]

        return sign * np.concatenate(list(D.map(of)))

    def pair_model(self, D: Dataset, first: str, second: str) -> OldModel:
        """Return the part of a one-against-one model that is about these two classes."""
        self._check_labels(D)
        assert isinstance(self.model, PairwiseModel)
        names, values = D.summary.names, list(map(str, self.model.values))
        indices = [values.index(str(D.summary.values[names.index(n)])) for n in (first, second)]
        return OldModel(self.path, self.model.pair_model(*indices))

    def _check_labels(self, D: Dataset) -> None:
        if sorted(map(str, D.summary.values)) != sorted(map(str, self.model.values)):
            raise ModelError(
                f"the model to start from has the labels {list(self.model.values)}, the data "
                f"{list(D.summary.values)}"
            )

    def orientation(self, D: Dataset, pair: object) -> tuple[int, float]:
        """Return the model's column for D's positive class, and the sign of that class in it.

        pair: the pair of classes that this model, from `pair_model`, is about; None: no pair
        """
        if pair is not None:
            return 0, 1.0
        if D.targets is None or np.ptp(D.targets) == 0:  # regression, one-class
            return 0, 1.0
        first = str(D.summary.values[int(np.argmax(D.targets))])
        values = list(map(str, self.model.values))
        self._check_labels(D)
        index = values.index(first)
        return (index, 1.0) if len(values) > 2 else (0, 1.0 - 2 * index)
