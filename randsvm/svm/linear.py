"""Linear solutions, the losses that judge them, and the pass over the rows that evaluates them."""

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
    """What is said of m rows: loss (m,) float64, violating (m,) bool, wrong (m,): 0 or 1, or for
    a regression the squared error."""

    loss: np.ndarray
    violating: np.ndarray
    wrong: np.ndarray


class Loss:
    """What a linear solution is asked on each row; f : (m, K), y : (m,) float64."""

    solver: str

    def of(self, y: np.ndarray, f: np.ndarray) -> LossValue:
        raise NotImplementedError


# How far apart sums of the same products in another order may be, relatively.
ROUNDING = 1e-9
# The hinge loss of f[class] - max of the others, and the loss of a regression.
CRAMMER_SINGER = "MCSVM_CS"
EPSILON_INSENSITIVE = "L2R_L1LOSS_SVR_DUAL"


@dataclass(frozen=True)
class Classes(Loss):
    """y : class numbers; K = 1: class 0 is f > 0, else the largest f. weights : (classes,)."""

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
            said = np.where(f[:, 0] > 0, 0, 1)
        else:
            said, own = f.argmax(axis=1), f[rows, classes]
            z = -f
            z[rows, classes] = own
            if self.crammer_singer:
                others = f.copy()
                others[rows, classes] = -np.inf
                z = (own - others.max(axis=1))[:, None]
        own_loss = LOSSES[self.loss]
        loss = self.weights[classes] * own_loss.of(z).sum(axis=1)
        return LossValue(loss, (z < own_loss.margin).any(axis=1), said != classes)


@dataclass(frozen=True)
class Targets(Loss):
    """y : targets, K = 1."""

    epsilon: float
    solver = EPSILON_INSENSITIVE

    def of(self, y: np.ndarray, f: np.ndarray) -> LossValue:
        task, value = Task((1.0, 1.0), self.epsilon), f[:, 0]
        loss = task.loss(y, value)
        return LossValue(loss, loss > 0, (y - value) ** 2)


class Linear(NamedTuple):
    """f(x) = <w, x> + b, one column for each decision value.

    w : (d, K) float64, b : (K,) float64. K = 1: class 0 is f > 0; else the class is the largest f.
    """

    w: np.ndarray
    b: np.ndarray

    def decision(self, X: Matrix) -> np.ndarray:
        """f of each row, (m, K) float64."""
        return X @ self.w + self.b


@dataclass(frozen=True)
class LinearFindings:
    """What a pass over the rows says of a linear solution; findings of shards add up.

    loss: sum of the rows' losses, each times its class's weight. violators: rows inside the margin
    (y f < 1, or f < 0 of a share outside, or beyond the tube). wrong: rows of another class than f
    says, or the sum of squared errors.
    """

    rows: int = 0
    loss: float = 0.0
    violators: int = 0
    wrong: float = 0.0

    def __add__(self, other: LinearFindings) -> LinearFindings:
        return LinearFindings(
            self.rows + other.rows,
            self.loss + other.loss,
            self.violators + other.violators,
            self.wrong + other.wrong,
        )


def evaluate_linear(D: Dataset, linear: Linear, loss_function: Loss) -> LinearFindings:
    """Loss, violators and errors of all rows of D: P = 1/2 |w|^2 + C loss."""

    def of(shard: Shard) -> LinearFindings:
        total = LinearFindings()
        for chunk in D.chunks(shard):
            total = total + linear_findings(linear, chunk.X, chunk.y, loss_function)
        return total

    total = LinearFindings()
    for report in D.map(of):
        total = total + report
        emit(Progress("scanning", total.rows, D.n))
    return total


def linear_findings(
    linear: Linear, X: Matrix, y: np.ndarray, loss_function: Loss
) -> LinearFindings:
    """The same of some rows. X : (m, d), y : (m,) float64."""
    value = loss_function.of(y, linear.decision(X))
    return LinearFindings(
        len(y),
        float(value.loss.sum()),
        int(value.violating.sum()),
        float(value.wrong.sum()),
    )


def with_share_outside(D: Dataset, linear: Linear, share: float) -> Linear:
    """The same with the b of least P for the term share * b (K = 1): at most that share of the
    rows of D has f <= 0. Holds u = <w, x> of all rows, 8 bytes each."""

    def of(shard: Shard) -> np.ndarray:
        return np.concatenate([chunk.X @ linear.w[:, 0] for chunk in D.chunks(shard)])

    u = np.sort(np.concatenate(list(D.map(of))))
    count = int(share * len(u))
    inside = u[min(count, len(u) - 1)]
    # Between the last row outside and the first one inside, so that neither has f = 0; where no
    # row is outside, a rounding below the first.
    outside = u[count - 1] if count else inside - ROUNDING * abs(inside)
    return Linear(linear.w, np.array([-(outside + inside) / 2]))
