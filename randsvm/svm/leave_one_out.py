"""Bounds on the leave-one-out error of a classification, from its solution alone.

T. Joachims, "Estimating the Generalization Performance of an SVM Efficiently", ICML 2000: when row
i is left out, the machine of the other rows is right about it unless 2 alpha_i R^2 + xi_i >= 1,
where R^2 is the largest difference of kernel values K(x, x') and xi_i = max(0, 1 - y_i f(x_i)). A
row with alpha_i = 0 does not change the machine when it is left out. So only support vectors and
rows with xi_i >= 1 can be wrong when they are left out. Both statements hold for the optimum.
"""

from __future__ import annotations

import numpy as np

from randsvm.arrays import squared_norms, sum_in_order
from randsvm.kernels.kernel import Kernel
from randsvm.records import dataclass
from randsvm.svm.running_values import RunningValues, ShardValues
from randsvm.svm.solution import KernelSolution

# The factor for which the paper proves the bound; SVMlight's default of 1 is an estimate.
XI_ALPHA_FACTOR = 2.0


@dataclass(frozen=True)
class LeaveOneOutCounts:
    """Sums of weights over rows, (2,) each: of the rows with y = +1 and of those with y = -1.

    by_shard has the sums of each shard, and its order is that of the shards: sums of weights are
    rounded, and must not depend on how shards are grouped.

    by_shard : (shards, 3, 2) float64, total, xi_alpha and counted.
    total : all rows; xi_alpha : rows with 2 alpha R^2 + xi >= 1; counted : rows with alpha > 0 or
    xi >= 1
    """

    by_shard: np.ndarray

    def __add__(self, other: LeaveOneOutCounts) -> LeaveOneOutCounts:
        return LeaveOneOutCounts(np.concatenate([self.by_shard, other.by_shard]))

    @property
    def total(self) -> np.ndarray:
        return self._sum(0)

    @property
    def xi_alpha(self) -> np.ndarray:
        return self._sum(1)

    @property
    def counted(self) -> np.ndarray:
        return self._sum(2)

    def _sum(self, index: int) -> np.ndarray:
        return np.array([sum_in_order(side) for side in self.by_shard[:, index].T.tolist()])

    @property
    def error(self) -> float:
        """The xi-alpha estimate of the error, an upper bound on that of leave-one-out."""
        return float(self.xi_alpha.sum() / self.total.sum())

    @property
    def recall(self) -> float:
        """The xi-alpha estimate of the recall of y = +1; 0 without such rows."""
        total, flagged = float(self.total[0]), float(self.xi_alpha[0])
        return (total - flagged) / total if total else 0.0

    @property
    def precision(self) -> float:
        """The xi-alpha estimate of the precision of y = +1; 0 if no row would be predicted so."""
        right = float(self.total[0] - self.xi_alpha[0])
        predicted = right + float(self.xi_alpha[1])
        return right / predicted if predicted else 0.0

    @property
    def count_bound(self) -> float:
        """The share of the rows that may be wrong when they are left out, from counts alone."""
        return float(self.counted.sum() / self.total.sum())


@dataclass(frozen=True)
class LeaveOneOutQuery:
    """Ask for the flagged rows of a solution with the offset b. range : R^2."""

    b: float
    range: float

    def __call__(self, values: ShardValues) -> LeaveOneOutCounts:
        y, alpha = values.y, np.abs(values.beta)
        loss = np.maximum(0.0, 1.0 - y * (values.u + self.b))
        weights = np.ones(len(y)) if values.weights is None else values.weights
        wrong = loss >= 1
        flagged = XI_ALPHA_FACTOR * alpha * self.range + loss >= 1
        sides = np.array([y > 0, y <= 0])
        counted = weights * ((alpha > 0) | wrong)
        sums = [sides @ weights, sides @ (weights * flagged), sides @ counted]
        return LeaveOneOutCounts(np.array([sums]))


@dataclass(frozen=True)
class FeatureBounds:
    """The largest |x|^2 and the smallest value, at most 0, of some rows."""

    norm: float
    least: float

    def __add__(self, other: FeatureBounds) -> FeatureBounds:
        return FeatureBounds(max(self.norm, other.norm), min(self.least, other.least))


def feature_bounds(values: ShardValues) -> FeatureBounds:
    """Return the bounds of the features of a shard."""
    found = FeatureBounds(0.0, 0.0)
    for chunk in values.D.chunks(values.shard):
        norm = float(squared_norms(chunk.X).max(initial=0.0))
        X = chunk.X if isinstance(chunk.X, np.ndarray) else chunk.X.data
        found += FeatureBounds(norm, float(X.min(initial=0.0)))
    return found


def kernel_range(values: RunningValues, kernel: Kernel) -> float:
    """Return R^2, a bound on the differences of kernel values between any rows.

    It is the largest K(x, x) if no kernel value is negative, else twice that.
    """
    if kernel.name == "rbf":
        return 1.0
    bounds = values.ask(feature_bounds)
    largest = bounds.norm if kernel.linear else kernel.magnitude(bounds.norm)
    even = kernel.name == "poly" and kernel.degree % 2 == 0
    return largest if even or bounds.least >= 0 else 2 * largest


def leave_one_out(values: RunningValues, solution: KernelSolution) -> LeaveOneOutCounts | None:
    """Return the rows that may be wrong when they are left out; None: nothing is known.

    values : those of the solution of a classification with C, with u of all rows. Nothing is known
    for kernels that may not be positive semidefinite and for precomputed kernel values.
    """
    problem = values.problem
    if (
        problem.task != "svc"
        or problem.kernel == "precomputed"
        or not problem.positive_semidefinite
    ):
        return None
    range_ = kernel_range(values, values.kernel_layout.kernel)
    return values.ask(LeaveOneOutQuery(solution.b, range_))
