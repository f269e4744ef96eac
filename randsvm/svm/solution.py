"""Solutions: support vectors with their coefficients beta, the offset b, and the certificate.

Knows nothing of solvers, scans or files.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from randsvm.arrays import CsrMatrix
from randsvm.data.points import Points
from randsvm.errors import RandsvmError
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.svm import Problem
from randsvm.records import record
from randsvm.svm.tasks import BOUND_ROUNDING


@record
class KernelSolution:
    """f(x) = sum_i beta_i K(x_i, x) + b.

    rows : (m,) int64, ascending row numbers of the support vectors in D. beta : (m,) float64,
    nonzero. points: the rows themselves, or None until Scan.completed reads them. tube: see
    svm/tasks.py. norm: |w|^2, or 0 if unknown. weights : (m,) float64, None: all are 1.
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

    def dense(self, n: int) -> np.ndarray:
        """Return beta of every row of D, (n,) float64."""
        beta = np.zeros(n)
        beta[self.rows] = self.beta
        return beta

    def has_coefficients_of(self, other: KernelSolution) -> bool:
        """Return whether both have the same coefficients."""
        return np.array_equal(self.rows, other.rows) and np.array_equal(self.beta, other.beta)

    @property
    def kernel(self) -> Kernel:
        return Kernel.of(self.problem)

    @property
    def scale(self) -> float:
        """Return the factor of f in a model: 1 / rho for nu-SVC, as in LIBSVM, else 1.

        With this factor the margin is at 1. An unfinished solution may have rho <= 0; then rho
        follows from |w|^2 = rho nu n, which holds at an optimum without losses.
        """
        if self.problem.task != "nu-svc" or not len(self):
            return 1.0
        if self.has_margin:
            return -1 / self.tube
        return self.problem.absolute_sum / self.norm if self.norm > 0 else 1.0

    @property
    def has_margin(self) -> bool:
        """Return whether rho of nu-SVC is above 0."""
        return -self.tube > 0 and math.isfinite(1 / self.tube)

    @property
    def unbounded(self) -> np.ndarray:
        """Return which coefficients are below their bound, (m,) bool; bounded ones equal it."""
        return np.abs(self.beta) < self._bounds

    @property
    def within_bounds(self) -> bool:
        """Return whether all |beta| are within their bounds but for rounding.

        Otherwise D of the solution bounds nothing.
        """
        return bool((np.abs(self.beta) <= (1 + BOUND_ROUNDING) * self._bounds).all())

    @property
    def _bounds(self) -> np.ndarray:
        bounds = np.where(self.beta > 0, *self.problem.bounds)
        return bounds if self.weights is None else bounds * self.weights

    @property
    def bounded_count(self) -> int:
        return int(np.count_nonzero(~self.unbounded))


@record
class ReducedMachine(KernelSolution):
    """A machine of few support vectors in place of a solution. It has P and no D, since its
    coefficients may have a wrong sum or wrong signs; and no round continues from it.

    gap: between its P over some rows and the D of `full`, their solution. changes: how it differs
    from that solution.
    """

    gap: float = math.nan
    full: KernelSolution | None = None
    changes: Any = None

    @property
    def within_bounds(self) -> bool:
        return False


# See one_class_floor.
ONE_CLASS_ZERO_SHARE = 0.01


def one_class_floor(total: float, rows: int, mean: float) -> float:
    """Return the size below which an objective of one-class counts as 0.

    Its optimum is 0 where the origin lies among the rows, and a gap relative to 0 is never reached.
    The floor is a share of the optimum for orthogonal rows. total: the sum of the coefficients;
    mean: of K(x, x) over the rows.
    """
    return ONE_CLASS_ZERO_SHARE * total**2 / rows * mean / 2


@record
class Certificate:
    """The objectives over all rows, D(alpha) <= optimum <= P(w, b); `Scan` computes them.

    primal: P. dual: D; -inf if it is unknown. certified: False if the kernel is not positive
    semidefinite; P and D are not bounds then. floor: objectives below it count as 0 in the gap, see
    one_class_floor. primal_error, dual_error: bounds of the rounding of P and D; 0 for running
    values, which are not proven. distance: a bound of P - D where both are of the
    same coefficients, since most rounding cancels; None: it follows from P and D. sampled: whether
    the bounds follow from a sample of the rows. other_dual: whether D is of other coefficients
    than those of the machine.
    """

    primal: float
    dual: float
    certified: bool = True
    floor: float = 0.0
    primal_error: float = 0.0
    dual_error: float = 0.0
    distance: float | None = None
    sampled: bool = False
    other_dual: bool = False

    @property
    def largest_distance(self) -> float:
        """Return a bound of P - D."""
        if self.distance is not None:
            return self.distance
        return self.primal + self.primal_error - self.dual + self.dual_error

    @cached_property
    def gap(self) -> float:
        """Return a bound of (P - D) / max(|P|, |D|, floor).

        It is 0 if P and D are 0, 1 if D is unknown (the limit as D falls to -inf), nan if
        not certified, and inf if rounding is larger than the objectives.
        """
        if not self.certified:
            return float("nan")
        if math.isinf(self.dual):
            return 1.0
        sizes = abs(self.primal) - self.primal_error, abs(self.dual) - self.dual_error
        scale = max(*sizes, self.floor)
        if scale > 0:
            return self.largest_distance / scale
        return 0.0 if self.largest_distance == 0 else math.inf

    def with_dual(self, dual: float, error: float) -> Certificate:
        """Return this certificate with the D of other coefficients. error: its rounding."""
        if self.primal + self.primal_error < dual - error:
            raise RandsvmError(
                f"D = {dual!r} is above P = {self.primal!r} by more than rounding, {error!r} and "
                f"{self.primal_error!r}: this is a bug"
            )
        return replace(self, dual=dual, dual_error=error, distance=None, other_dual=True)


@record
class Step:
    """New coefficients of the rows of a working set, from one subproblem.

    points: the rows, with the old coefficients in points.beta. beta : (m,) float64, the new ones.
    seconds: duration of the solve. ended: False if LIBSVM reached its limit of iterations.
    iterations: number of LIBSVM's iterations. coupling: of the blocks of the working set, see
    blocks.py; None: it is one block. reduced: the reduced machine that the step leads to; None: it
    leads to coefficients of the problem.
    """

    points: Points
    beta: np.ndarray
    seconds: float = 0.0
    ended: bool = True
    iterations: int = 0
    coupling: float | None = None
    reduced: ReducedMachine | None = None


# A step that changes no coefficient.
NO_STEP = Step(
    Points(np.empty(0, np.int64), CsrMatrix.without_rows(0), np.empty(0)),
    np.empty(0),
)
