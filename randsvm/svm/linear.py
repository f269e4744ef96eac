"""Linear solutions, their loss functions, and the pass over the rows that evaluates a solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from randsvm.arrays import Matrix
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import Shard
from randsvm.events import Progress, emit
from randsvm.parameters.sgd import LOSSES
from randsvm.svm.tasks import Task


class LossValue(NamedTuple):
    """The losses of m rows.

    loss : (m,) float64. violating : (m,) bool, whether the row is inside the margin or outside the
    tube. wrong : (m,), whether the predicted class is wrong; for a regression, the squared error.
    """

    loss: np.ndarray
    violating: np.ndarray
    wrong: np.ndarray


class Loss:
    """A loss function of linear solutions. solver: the name of the LIBLINEAR solver in a model."""

    solver: str

    def of(self, y: np.ndarray, f: np.ndarray) -> LossValue:
        """Return the loss of each row. y : (m,) float64; f : (m, K) float64, decision values."""
        raise NotImplementedError


# Relative difference of two sums of the same products in different orders.
ROUNDING = 1e-9
# LIBLINEAR's solver of the hinge loss of f[class] - max of the others.
CRAMMER_SINGER = "MCSVM_CS"
# LIBLINEAR's solvers of a regression.
EPSILON_INSENSITIVE = "L2R_L1LOSS_SVR_DUAL"
SQUARED_EPSILON_INSENSITIVE = "L2R_L2LOSS_SVR"


@dataclass(frozen=True)
class Classes(Loss):
    """The loss of a classification.

    y holds class numbers. With K = 1, f > 0 predicts class 0; otherwise the largest f predicts the
    class. weights : (classes,) float64, the weight of the losses of each class.
    """

    loss: str
    weights: np.ndarray
    crammer_singer: bool = False

    @property
    def solver(self) -> str:  # type: ignore[override]
        return CRAMMER_SINGER if self.crammer_singer else LOSSES[self.loss].solver

    def of(self, y: np.ndarray, f: np.ndarray) -> LossValue:
        classes, rows = y.astype(np.int64), np.arange(len(y))
        if f.shape[1] == 1:
            z = np.where(classes == 0, 1.0, -1.0)[:, None] * f
            predicted = np.where(f[:, 0] > 0, 0, 1)
        else:
            predicted, own = f.argmax(axis=1), f[rows, classes]
            z = -f
            z[rows, classes] = own
            if self.crammer_singer:
                others = f.copy()
                others[rows, classes] = -np.inf
                z = (own - others.max(axis=1))[:, None]
        own_loss = LOSSES[self.loss]
        loss = self.weights[classes] * own_loss.of(z).sum(axis=1)
        return LossValue(loss, (z < own_loss.margin).any(axis=1), predicted != classes)


@dataclass(frozen=True)
class Targets(Loss):
    """The epsilon-insensitive loss of a regression, or its square: y holds targets, and K = 1."""

    epsilon: float
    squared: bool = False

    @property
    def solver(self) -> str:  # type: ignore[override]
        return SQUARED_EPSILON_INSENSITIVE if self.squared else EPSILON_INSENSITIVE

    def of(self, y: np.ndarray, f: np.ndarray) -> LossValue:
        task, value = Task((1.0, 1.0), self.epsilon), f[:, 0]
        loss = task.loss(y, value)
        return LossValue(loss**2 if self.squared else loss, loss > 0, (y - value) ** 2)


class Linear(NamedTuple):
    """f(x) = <w, x> + b, one column for each decision value.

    w : (d, K) float64; b : (K,) float64. With K = 1, f > 0 predicts class 0; otherwise the largest
    f predicts the class.
    """

    w: np.ndarray
    b: np.ndarray

    def decision(self, X: Matrix) -> np.ndarray:
        """Return f of each row, (m, K) float64. X : (m, d)."""
        return X @ self.w + self.b


@dataclass(frozen=True)
class LinearFindings:
    """Sums over the rows for a linear solution; the findings of shards add up.

    rows: their number. weight: the sum of their weights, or rows. loss: sum of the losses,
    each times the weights of its row and its class. violators: number of rows inside the margin
    (y f < 1; for novelty detection f < 0) or outside the tube of a regression. wrong: weight of the
    rows whose predicted class is wrong, or the weighted sum of squared errors.
    """

    rows: int = 0
    weight: float = 0.0
    loss: float = 0.0
    violators: int = 0
    wrong: float = 0.0

    def __add__(self, other: LinearFindings) -> LinearFindings:
        return LinearFindings(
            self.rows + other.rows,
            self.weight + other.weight,
            self.loss + other.loss,
            self.violators + other.violators,
            self.wrong + other.wrong,
        )


def evaluate_linear(D: Dataset, linear: Linear, loss_function: Loss) -> LinearFindings:
    """Return loss, violators and errors of all rows of D: P = 1/2 |w|^2 + C loss."""

    def of(shard: Shard) -> LinearFindings:
        total = LinearFindings()
        for chunk in D.chunks(shard):
            total = total + linear_findings(linear, chunk.X, chunk.y, loss_function, chunk.weights)
        return total

    total = LinearFindings()
    for report in D.map(of):
        total = total + report
        emit(Progress("scanning", total.rows, D.n))
    return total


def linear_findings(
    linear: Linear,
    X: Matrix,
    y: np.ndarray,
    loss_function: Loss,
    weights: np.ndarray | None = None,
) -> LinearFindings:
    """Return loss, violators and errors of some rows.

    X : (m, d); y : (m,) float64; weights : (m,) float64, or None if rows have none
    """
    value = loss_function.of(y, linear.decision(X))
    if weights is None:
        loss, wrong, weight = value.loss, value.wrong, float(len(y))
    else:
        loss, wrong, weight = weights * value.loss, weights * value.wrong, float(weights.sum())
    return LinearFindings(
        len(y), weight, float(loss.sum()), int(value.violating.sum()), float(wrong.sum())
    )


def with_share_outside(D: Dataset, linear: Linear, share: float) -> Linear:
    """Return the solution with the b for which at most this share of the weight of D has f <= 0.

    This b minimises P with the term share * b (K = 1). Holds u = <w, x> of all rows, 8 bytes each.
    """

    def of(shard: Shard) -> np.ndarray:
        return np.concatenate([chunk.X @ linear.w[:, 0] for chunk in D.chunks(shard)])

    u, weights = np.concatenate(list(D.map(of))), D.weights()
    if weights is None:
        u = np.sort(u)
        count = int(share * len(u))
    else:
        order = np.argsort(u, kind="stable")
        u, sums = u[order], np.cumsum(weights[order])
        count = int(np.searchsorted(sums, share * sums[-1], side="right"))
    if count == len(u):
        largest = u[-1] + (ROUNDING * abs(u[-1]) or np.finfo(float).tiny)
        return Linear(linear.w, np.array([-largest]))
    inside = u[count]
    # Rows with equal u are on the same side.
    count = int(np.searchsorted(u, inside))
    # b lies between the last row outside and the first one inside, so that neither has f = 0. If no
    # row is outside, it is slightly more than the first one needs.
    slightly_less = inside - (ROUNDING * abs(inside) or np.finfo(float).tiny)
    outside = u[count - 1] if count else slightly_less
    return Linear(linear.w, np.array([-(outside + inside) / 2]))
