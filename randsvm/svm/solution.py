"""SV: a solution, i.e. support vectors with their coefficients beta and the offset b.

Knows nothing of solvers, scans or files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from randsvm.data.points import Points
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.svm import Problem


@dataclass(frozen=True)
class SV:
    """f(x) = sum_i beta_i K(x_i, x) + b.

    rows : (m,) int64, ascending row numbers of the support vectors in D. beta : (m,) float64,
    nonzero. points: the rows themselves, where they are needed; see Scan.completed. tube: see
    svm/tasks.py. norm: |w|^2, 0 where it is not known. weights : (m,) float64, None: all are 1.
    """

    rows: np.ndarray
    beta: np.ndarray
    b: float
    problem: Problem
    points: Points | None = None
    tube: float = 0.0
    norm: float = 0.0
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.beta)

    @property
    def kernel(self) -> Kernel:
        return Kernel.of(self.problem)

    @property
    def scale(self) -> float:
        """The factor of f in a model: 1 / rho for nu-SVC, as in LIBSVM, so that the margin is at 1.

        An unfinished solution may have rho <= 0. Then rho is taken from |w|^2 = rho nu n, which
        holds at the optimum but for the losses.
        """
        if self.problem.task != "nu-svc" or not len(self):
            return 1.0
        if self.has_margin:
            return -1 / self.tube
        return self.problem.absolute_sum / self.norm if self.norm > 0 else 1.0

    @property
    def has_margin(self) -> bool:
        """Whether rho of nu-SVC is above 0."""
        return -self.tube > 0 and math.isfinite(1 / self.tube)

    @property
    def unbounded(self) -> np.ndarray:
        """Return where |beta| is below its bound, which bounded coefficients have exactly; (m,)
        bool."""
        bounds = np.where(self.beta > 0, *self.problem.bounds)
        return np.abs(self.beta) < (bounds if self.weights is None else bounds * self.weights)

    @property
    def bounded_count(self) -> int:
        return int(np.count_nonzero(~self.unbounded))


@dataclass(frozen=True)
class Certificate:
    """D(alpha) <= optimum <= P(w, b), for the whole of D.

    primal P, dual D; certified False where the kernel is not positive semidefinite, and then
    the two bound nothing. least: objectives below it are 0 for the gap, see RunningValues._least.
    """

    primal: float
    dual: float
    certified: bool = True
    least: float = 0.0

    @property
    def gap(self) -> float:
        """(P - D) / max(|P|, |D|, least), 0 if both are 0; 1, its limit, where D is unknown, -inf;
        nan if nothing is certified."""
        if not self.certified:
            return float("nan")
        if math.isinf(self.dual):
            return 1.0
        scale = max(abs(self.primal), abs(self.dual), self.least)
        return (self.primal - self.dual) / scale if scale else 0.0


@dataclass(frozen=True)
class Step:
    """What a subproblem changed: the coefficients of the rows of a working set.

    points: the rows, whose coefficients were points.beta; beta : (m,) float64, what they are now;
    seconds: that the solve took. ended: whether LIBSVM came to an end before its most iterations.
    iterations: of LIBSVM.
    """

    points: Points
    beta: np.ndarray
    seconds: float = 0.0
    ended: bool = True
    iterations: int = 0

    @staticmethod
    def nothing() -> Step:
        X = sparse.csr_matrix((0, 0), dtype=np.float32)
        return Step(Points(np.empty(0, np.int64), X, np.empty(0)), np.empty(0))
