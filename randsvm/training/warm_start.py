"""A start from another model, e.g. yesterday's: from its coefficients where its rows are found
again, and else from its decision values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from randsvm.data.dataset import Dataset, Shard
from randsvm.data.matching import NONE, Matches, matches
from randsvm.data.sampling import Draws
from randsvm.data.scaling import Scaling
from randsvm.errors import ModelError
from randsvm.models.kernel_model import KernelModel
from randsvm.models.load import load
from randsvm.parameters.svm import Params
from randsvm.svm.feasible import clipped, filled, mended
from randsvm.svm.scan import Scan, Starter
from randsvm.svm.solution import Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import Choice, WorkingSet

# Where fewer of the support vectors are found again, the old decision values say more.
LEAST_FOUND = 0.5
# Which fields a kernel has.
KERNEL_FIELDS = {
    "linear": (),
    "poly": ("degree", "gamma", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
}


@dataclass(frozen=True)
class WarmStart:
    """A start from another model.

    The support vectors that are rows of D begin with their old coefficients, in proportion to C,
    made feasible: clipped to the box of today's bounds, and their sum mended. known: the rows that
    were found, which all classes share.
    """

    path: str
    model: KernelModel
    known: dict[int, Matches] = field(default_factory=dict)

    @staticmethod
    def read(path: str) -> WarmStart:
        model = load(path)
        if not isinstance(model, KernelModel):
            raise ModelError(f"{path}: expected a kernel model to start from, found a linear one")
        return WarmStart(path, model)

    # --- parameters ------------------------------------------------------------------------

    def params(self, params: Params, left_open: frozenset[str]) -> tuple[Params, frozenset[str]]:
        """The same with what was left open as in the model, and which fields these are. Raises
        ModelError when the model is of another task."""
        if "task" not in left_open and params.task != self.model.task:
            raise ModelError(
                f"{self.path}: expected a model of -s {params.task} to start from, found one of "
                f"-s {self.model.task}"
            )
        taken = {name: value for name, value in self._values.items() if name in left_open}
        if taken.get("kernel", params.kernel) != self.model.kernel.name:
            taken = {name: taken[name] for name in taken if name not in KERNEL_FIELDS["poly"]}
        params = replace(params, **taken)
        return params, frozenset(name for name in taken if params.uses(name))

    @property
    def _values(self) -> dict[str, Any]:
        """What the model says of its parameters."""
        kernel, facts = self.model.kernel, self.model.facts
        words = facts.get("configuration", "").split()
        values: dict[str, Any] = {"task": self.model.task, "kernel": kernel.name}
        values |= {name: getattr(kernel, name) for name in KERNEL_FIELDS[kernel.name]}
        values |= {} if self._C is None else {"C": self._C}
        for name, letter in (("epsilon", "-p"), ("nu", "-n")):
            if letter in words[:-1]:
                values[name] = self._number(words[words.index(letter) + 1])
        return values

    def _number(self, word: str) -> float:
        try:
            return float(word)
        except ValueError as error:
            raise ModelError(f"{self.path}: expected a number, found {word!r}") from error

    @property
    def _C(self) -> float | None:  # noqa: N802 - the papers' name
        """Of a model of LIBSVM's own, which does not name it: the largest coefficient, if several
        have it."""
        if "C" in self.model.facts:
            return self._number(self.model.facts["C"])
        alpha = np.abs(self.model.beta)
        largest = float(alpha.max(initial=0.0))
        return largest if np.count_nonzero(alpha == largest) > 1 else None

    # --- coefficients ----------------------------------------------------------------------

    def on(self, D: Dataset, C: float) -> Starter:
        """The start on D. Raises ModelError when the model has other labels."""
        column, sign = _orientation(D, self.model)

        def start(scan: Scan, choice: Choice, rng: Draws) -> tuple[Step, WorkingSet]:
            rows, beta = self._found(scan, C, column, sign)
            old = np.count_nonzero(self.model.beta[:, column])
            if len(rows) < LEAST_FOUND * old:
                step, free = self._by_values(scan, column, sign)
            else:
                step, free = _by_coefficients(scan, rows, beta)
            if choice.every_support_vector:
                return _first_round(scan, choice, step, rng)
            return step, WorkingSet(free, free)

        return start

    def _found(
        self, scan: Scan, C: float, column: int, sign: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of D that were support vectors, ascending, and their coefficients in proportion to
        C. A row is used for one support vector only, and for one of its own class."""
        model, task = self.model, scan.task
        if id(scan.D.store) not in self.known:
            self.known[id(scan.D.store)] = self._matches(scan.D)
        known = self.known[id(scan.D.store)]
        beta = sign * model.beta[:, column]
        there = np.flatnonzero((beta != 0) & (known.groups != NONE))
        groups, kinds = known.groups[there], np.zeros(len(there), bool)
        others = np.zeros(len(known.rows), bool)
        if task.one_sided:
            kinds, others = beta[there] > 0, scan.D.labels()[known.rows] > 0
        at, of = _pairs(2 * groups + kinds, np.abs(beta[there]), 2 * known.found + others)
        rows, beta = known.rows[of], beta[there[at]] * self._proportion(C)
        order = np.argsort(rows)
        return rows[order], beta[order]

    def _proportion(self, C: float) -> float:
        """C now / C then; novelty detection has none, or 1."""
        then = self._C
        return C / then if then and self.model.task != "one-class" else 1.0

    def _matches(self, D: Dataset) -> Matches:
        """Rows of D, as the model was given them, that are its support vectors."""
        model, D = self.model, D.original
        if model.scaling is not None:
            D = D.scaled(self._scaling(D.summary.features))
        return matches(D, model.Z, model.features)

    def _scaling(self, features: np.ndarray) -> Scaling:
        """The model's, over the features of D; those that it has not seen become 0."""
        scaling, seen = self.model.scaling, self.model.seen
        assert scaling is not None and seen is not None
        indices = seen.indices(seen.count)
        at = np.minimum(np.searchsorted(indices, features), len(indices) - 1)
        known = indices[at] == features

        def over(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else np.where(known, array[at], 0.0)

        return Scaling(scaling.name, over(scaling.shift), over(scaling.factor))

    # --- decision values -------------------------------------------------------------------

    def _by_values(self, scan: Scan, column: int, sign: float) -> tuple[Step, np.ndarray]:
        """Rows inside the margin of the old f begin at their bound, as many of them as the sum
        allows, and those furthest inside first."""
        f = sign * self._values_on(scan.D.original, column)
        if scan.task.total:
            return _outermost(scan, f), np.empty(0, np.int64)
        y = scan.D.labels()
        rise, fall = scan.task.slopes(y, f, np.zeros(len(y)))
        inside = np.maximum(rise, -fall)
        rows = np.flatnonzero(inside > scan.problem.tolerance)
        lower, upper = scan.task.box(y[rows])
        beta = np.where(rise[rows] > -fall[rows], upper, lower)
        beta = mended(beta, lower, upper, 0.0, inside[rows])
        rows, beta = rows[beta != 0], beta[beta != 0]
        near = np.flatnonzero(np.abs(inside) <= 2 * scan.problem.tolerance)
        return _step(scan, rows, beta), near

    def _values_on(self, D: Dataset, column: int) -> np.ndarray:
        """f of the old model, which does its own scaling, of every row; (n,) float64."""

        def of(shard: Shard) -> np.ndarray:
            X = sparse.csr_matrix(D.chunk(shard.number).X)
            rows = self.model.rows(X.indptr, D.summary.features[X.indices], X.data)
            # Less precise values do for a start.
            f = self.model.decision(rows, labels_only=True)
            return f.reshape(len(f), -1)[:, column]

        return np.concatenate(list(D.map(of)))


def _by_coefficients(scan: Scan, rows: np.ndarray, beta: np.ndarray) -> tuple[Step, np.ndarray]:
    """A feasible step to these coefficients, and the rows that are unbounded by it."""
    task, total = scan.task, scan.task.total
    lower, upper = task.box(scan.D.labels()[rows])
    beta = mended(clipped(beta, lower, upper), lower, upper, total)
    step = _step(scan, rows, beta)
    free = rows[(beta > lower) & (beta < upper)]
    if total and beta.sum() < total:
        # Novelty detection with more rows than yesterday: others are outliers as well, by u.
        scan.take(step)
        step = _outermost(scan, np.concatenate(scan.u))
    return step, free


def _outermost(scan: Scan, u: np.ndarray) -> Step:
    """The step of novelty detection that fills up the sum with the rows furthest out by u."""
    before = np.concatenate(scan.beta)
    upper = scan.task.box(u)[1]
    beta = filled(before, upper, scan.task.total, u)
    changed = np.flatnonzero(beta != before)
    return Step(scan.points(changed), beta[changed])


def _step(scan: Scan, rows: np.ndarray, beta: np.ndarray) -> Step:
    return Step(scan.points(rows), beta)


def _first_round(scan: Scan, choice: Choice, step: Step, rng: Draws) -> tuple[Step, WorkingSet]:
    """KBH07's rule may end a run after its first step, which therefore solves something."""
    SV, V = scan.after(step, choice.collector(rng.next()))
    W = choice.next(WorkingSet.of(SV.rows), SV, V.candidates)
    return svmlearn(scan.points(W.rows), scan.problem, scan.space, scan.problem.tolerance), W


def _pairs(
    keys: np.ndarray, sizes: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions in keys and in others of pairs of equal ones, each used once; of equal keys those
    of larger size come first."""
    order = np.lexsort((-sizes, keys))
    other_order = np.argsort(others, kind="stable")
    one, other = _numbered(keys[order]), _numbered(others[other_order])
    width = 1 + max(one[1].max(initial=0), other[1].max(initial=0))
    _, at, of = np.intersect1d(
        one[0] * width + one[1], other[0] * width + other[1], True, return_indices=True
    )
    return order[at], other_order[of]


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ascending keys, and how many equal ones stand before each."""
    return keys, np.arange(len(keys)) - np.searchsorted(keys, keys)


def _orientation(D: Dataset, model: KernelModel) -> tuple[int, float]:
    """The model's column that is about D's positive class, and the sign of that class there."""
    if D.targets is None or np.ptp(D.targets) == 0:  # regression, one-class
        return 0, 1.0
    first = str(D.summary.values[int(np.argmax(D.targets))])
    values = list(map(str, model.values))
    if sorted(map(str, D.summary.values)) != sorted(values):
        raise ModelError(
            f"the model to start from has the labels {list(model.values)}, the data "
            f"{list(D.summary.values)}"
        )
    index = values.index(first)
    return (index, 1.0) if len(values) > 2 else (0, 1.0 - 2 * index)
