"""Tasks: what is trained. A task is a row of a table: loss, KKT violation, dual, LIBSVM's number.

Plain functions of one chunk; knows nothing of scans or solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from randsvm.parameters.problem import Problem


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


def task_of(problem: Problem) -> Task:
    """The row of the table that `problem` names."""
    if problem.task == "svr":
        return Svr(epsilon=problem.epsilon)
    return OneClass(problem.total) if problem.task == "one-class" else Svc()
