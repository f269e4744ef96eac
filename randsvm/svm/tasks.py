"""Tasks: what is trained. A task is a row of a table: loss, KKT violation, dual, LIBSVM's number.

Plain functions of one chunk; knows nothing of scans or solvers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from randsvm.parameters.svm import Params


@dataclass(frozen=True)
class Task:
    """One row of the table. y, f : (m,) float64 of a chunk; loss and slope are per unit of C.

    P = 1/2 |w|^2 + sum C loss(y, f) + total b, D = reward(y, beta) - 1/2 |w|^2; every solution has
    sum beta = total. svm_type: LIBSVM's number, svm_name: its word in a model file.
    """

    svm_type: ClassVar[int]
    svm_name: ClassVar[str]
    total: float = 0.0

    def loss(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def slope(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """A subgradient of the loss by f."""
        raise NotImplementedError

    def violation(self, y: np.ndarray, f: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
        """By how much a row breaks its KKT condition; bound is 0 where beta = 0, and the sign of
        beta where that is at its bound."""
        raise NotImplementedError

    def side(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """The sign of the beta that a row inside the margin asks for."""
        raise NotImplementedError

    def reward(self, y: np.ndarray, beta: np.ndarray) -> float:
        raise NotImplementedError


class Svc(Task):
    """C-SVC: y = -1/+1, alpha = y beta."""

    svm_type = 0
    svm_name = "c_svc"

    def loss(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """max(0, 1 - y f)."""
        return np.maximum(0.0, 1.0 - y * f)

    def slope(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.where(y * f < 1, -y, 0.0)

    def violation(self, y: np.ndarray, f: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
        """alpha = 0: 1 - y f (y f >= 1 is right); alpha = C: y f - 1 (y f <= 1 is right)."""
        shortfall = 1.0 - y * f
        return np.where(np.equal(bound, 0), shortfall, -shortfall)

    def side(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return y

    def reward(self, y: np.ndarray, beta: np.ndarray) -> float:
        """sum alpha = sum y beta."""
        return float(y @ beta)


@dataclass(frozen=True)
class Svr(Task):
    """epsilon-SVR: y is a target, |beta| <= C."""

    svm_type = 3
    svm_name = "epsilon_svr"
    epsilon: float = 0.1

    def loss(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """max(0, |y - f| - epsilon)."""
        return np.maximum(0.0, np.abs(y - f) - self.epsilon)

    def slope(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.where(np.abs(y - f) > self.epsilon, np.sign(f - y), 0.0)

    def violation(self, y: np.ndarray, f: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
        """beta = 0: |y - f| - epsilon; beta = C: epsilon - (y - f); beta = -C mirrored."""
        rest = y - f
        return np.where(
            np.equal(bound, 0), np.abs(rest) - self.epsilon, self.epsilon - bound * rest
        )

    def side(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.where(y > f, 1.0, -1.0)

    def reward(self, y: np.ndarray, beta: np.ndarray) -> float:
        """sum y beta - epsilon sum |beta|."""
        return float(y @ beta - self.epsilon * np.abs(beta).sum())


class OneClass(Task):
    """One-class in LIBSVM's scale: 0 <= beta <= 1, sum beta = total = nu n, f = u - rho."""

    svm_type = 2
    svm_name = "one_class"

    def loss(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """max(0, rho - u)."""
        return np.maximum(0.0, -f)

    def slope(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.where(f < 0, -1.0, 0.0)

    def violation(self, y: np.ndarray, f: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
        """beta = 0: rho - u (u >= rho is right); beta = 1: u - rho."""
        return np.where(np.equal(bound, 0), -f, f)

    def side(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.ones(len(f))

    def reward(self, y: np.ndarray, beta: np.ndarray) -> float:
        return 0.0


def task_of(params: Params) -> Task:
    """The row of the table that `params` names."""
    if params.task == "svr":
        return Svr(epsilon=params.epsilon)
    return OneClass(params.total) if params.task == "one-class" else Svc()


@dataclass(frozen=True)
class Verdict:
    """What is said of m rows: loss (m,) float64, violating (m,) bool, wrong (m,): 0 or 1, or for
    a regression the squared error."""

    loss: np.ndarray
    violating: np.ndarray
    wrong: np.ndarray


class Judge:
    """What a linear solution is asked on each row; f : (m, K), y : (m,) float64."""

    solver: str

    def of(self, y: np.ndarray, f: np.ndarray) -> Verdict:
        raise NotImplementedError


@dataclass(frozen=True)
class Loss:
    """A loss of linear models. solver: LIBLINEAR's word in a model file.

    of(z): L of z = y f, elementwise; the compiled steps know it by its place in LOSS_NAMES.
    """

    solver: str
    of: Callable[[np.ndarray], np.ndarray]


def logistic(z: np.ndarray) -> np.ndarray:
    """log(1 + exp(-z))."""
    return np.logaddexp(0.0, -z)


LOSSES = {
    "hinge": Loss("L2R_L1LOSS_SVC_DUAL", lambda z: np.maximum(0.0, 1.0 - z)),
    "squared-hinge": Loss("L2R_L2LOSS_SVC", lambda z: np.square(np.maximum(0.0, 1.0 - z))),
    "log": Loss("L2R_LR", logistic),
}
# The hinge loss of f[class] - max of the others, and the loss of a regression.
CRAMMER_SINGER = "MCSVM_CS"
EPSILON_INSENSITIVE = "L2R_L1LOSS_SVR_DUAL"


@dataclass(frozen=True)
class Classes(Judge):
    """y : class numbers; K = 1: class 0 is f > 0, else the largest f. weights : (classes,)."""

    loss: str
    weights: np.ndarray
    crammer_singer: bool = False

    @property
    def solver(self) -> str:  # type: ignore[override]
        return CRAMMER_SINGER if self.crammer_singer else LOSSES[self.loss].solver

    def of(self, y: np.ndarray, f: np.ndarray) -> Verdict:
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
        loss = self.weights[classes] * LOSSES[self.loss].of(z).sum(axis=1)
        return Verdict(loss, (z < 1).any(axis=1), said != classes)


@dataclass(frozen=True)
class Targets(Judge):
    """y : targets, K = 1."""

    epsilon: float
    solver = EPSILON_INSENSITIVE

    def of(self, y: np.ndarray, f: np.ndarray) -> Verdict:
        task, value = Svr(epsilon=self.epsilon), f[:, 0]
        loss = task.loss(y, value)
        return Verdict(loss, loss > 0, (y - value) ** 2)
