"""A data set as D and as arrays, with a scan over it; its formulas in dense float64."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import oracle
from rows import two_classes

from randsvm.data import dataset
from randsvm.data.classes import one_class
from randsvm.data.dataset import Dataset
from randsvm.data.sampling import Draw
from randsvm.data.svmlight import ParseOptions
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Problem
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Step
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import Collector, uniform_sample

# With this many rows in a chunk, a few hundred rows make several shards.
SMALL = ParseOptions(chunk_rows=100)


def problem(kernel: str = "rbf", gamma: float = 0.8, C: float = 1.0, **others: Any) -> Problem:
    """Return the problem of a C-SVC; others: any field of Problem."""
    fields = {
        "task": "svc", "kernel": kernel, "degree": 3, "gamma": gamma, "coef0": 0.0,
        "bounds": (C, C), "epsilon": 0.0, "coefficient_sum": 0.0, "tolerance": 1e-3,
        "shrinking": True,
    }  # fmt: skip
    return Problem(**{**fields, **others})


TASKS = {
    "C-SVC": problem(C=2.0),
    "class weights": problem(bounds=(0.5, 5.0)),
    "epsilon-SVR": problem(task="svr", C=2.0, epsilon=0.2),
    "one-class": problem(task="one-class", bounds=(1.0, 1.0), coefficient_sum=0.3 * 450),
}
KERNELS = {
    "linear": problem("linear", C=0.5),
    "poly": problem("poly", gamma=0.3, coef0=1.0, C=0.1),
    "rbf": problem(C=2.0),
    "sigmoid": problem("sigmoid", gamma=0.1, coef0=0.2),
}


@dataclass
class Case:
    """y : (n,) as the task sees it; X : (n, d); K : (n, n)."""

    D: Dataset
    y: np.ndarray
    X: np.ndarray
    problem: Problem
    scan: Scan
    K: np.ndarray

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and the upper bound of each row, as in svm/tasks.py."""
        n, (positive, negative) = len(self.y), self.problem.bounds
        if self.problem.task == "one-class":
            return np.zeros(n), np.full(n, positive)
        if self.problem.task == "svr":
            return np.full(n, -negative), np.full(n, positive)
        return np.where(self.y > 0, 0.0, -negative), np.where(self.y > 0, positive, 0.0)

    def loss(self, f: np.ndarray) -> float:
        lower, upper = self.box
        z, epsilon = self.y - f, self.problem.epsilon
        return float(np.maximum(0, np.maximum(upper * (z - epsilon), lower * (z + epsilon))).sum())

    def primal(self, beta: np.ndarray, b: float) -> float:
        u = self.K @ beta
        return beta @ u / 2 + self.loss(u + b) + self.problem.coefficient_sum * b

    def dual(self, beta: np.ndarray) -> float:
        linear = self.y @ beta - self.problem.epsilon * np.abs(beta).sum()
        return float(linear - beta @ self.K @ beta / 2)

    def violators(self, beta: np.ndarray, b: float, tolerance: float) -> set[int]:
        """Return the rows that violate rise <= b <= fall; see Task.slopes."""
        lower, upper = self.box
        z = self.y - self.K @ beta - b
        below, above = z - self.problem.epsilon, z + self.problem.epsilon
        rises = (np.where(beta < 0, above, below) > tolerance) & (beta < upper)
        falls = (np.where(beta > 0, below, above) < -tolerance) & (beta > lower)
        return set(np.flatnonzero(rises | falls).tolist())

    def some(self, seed: int, m: int = 60) -> np.ndarray:
        """Return beta with m nonzeros, a third of them at a bound; its sum is arbitrary."""
        rng = np.random.default_rng(seed)
        lower, upper = self.box
        height = np.where(rng.random(len(self.y)) < 0.3, 1.0, rng.uniform(0.01, 0.99, len(self.y)))
        side = np.where(rng.random(len(self.y)) < 0.5, lower, upper)
        beta = height * np.where(side == 0, lower + upper, side)
        beta[rng.permutation(len(self.y))[m:]] = 0.0
        return beta

    def step(self, beta: np.ndarray) -> Step:
        """Return the step from the current beta of the scan to `beta`."""
        rows = np.flatnonzero((beta != 0) | (self.standing != 0))
        return Step(self.scan.points(rows), beta[rows])

    @property
    def standing(self) -> np.ndarray:
        return self.scan.beta

    @property
    def u(self) -> np.ndarray:
        return self.scan.u


# A scan with it returns all violators.
KEEP_ALL = Collector(10**6, Draw(1, 1), uniform_sample)


def solve(scan: Scan, rows: np.ndarray, *, whole: bool, **options: Any) -> Any:
    """Return the step to the solution on these rows. whole: whether no round follows."""
    return svmlearn(scan, scan.points(rows), is_whole=whole, **options)


@contextmanager
def case(
    path: Path,
    y: np.ndarray,
    X: np.ndarray,
    problem: Problem,
    options: ParseOptions = SMALL,
    **scan: Any,
) -> Iterator[Case]:
    """Open a data set. path : svmlight text of y and X; a one-class problem ignores the labels."""
    X = X[:, X.any(axis=0)]
    if problem.task == "svr":
        options = replace(options, labels="number")
    with closing(dataset.load((str(path),), options, Resources(jobs=2))) as whole:
        if problem.task == "svc":
            D = two_classes(whole)
            flipped = (D.points(np.arange(1)).y != y[:1]).any()
            D = D.relabel(-np.asarray(D.targets)) if flipped else D
        else:
            D = one_class(whole) if problem.task == "one-class" else whole
            y = y if problem.task == "svr" else np.zeros(len(y))
        K = oracle.kernel_matrix(problem.kernel, X, X, problem.gamma, problem.coef0, problem.degree)
        yield Case(D, y, X, problem, Scan(D, problem, 1, **scan), K)


def task_file(folder: Path, problem: Problem, rows: int = 450) -> tuple[Path, np.ndarray, Any]:
    """Write a file for any task; return its path, y and X."""
    y, X = oracle.two_gaussians(rows)
    if problem.task == "svr":
        y = X[:, 0] + np.random.default_rng(3).normal(size=rows) / 4
        return oracle.write_rows(folder / "data", y, X), y, X
    return oracle.write_svmlight(folder / "data", y, X), y, X
