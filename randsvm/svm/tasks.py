"""Tasks as one form: what a row may lose, and how far its coefficient may go.

    P = 1/2 |w|^2 + sum_i loss_i(y_i - f_i) + total b,    f = u + b
    D = sum y beta - epsilon sum |beta| - 1/2 |w|^2,      lower <= beta <= upper, sum beta = total
    loss_i(z) = max(0, upper_i (z - epsilon), lower_i (z + epsilon))

    task         y         lower, upper                           epsilon    total
    C-SVC        -1, +1    0, C+ where y = 1; -C-, 0 elsewhere    0          0
    epsilon-SVR  targets   -C, C                                  epsilon    0
    one-class    0         0, 1 (LIBSVM's scale), b = -rho        0          nu n

A row of the table is all that tells the tasks apart. Plain functions of some rows; knows nothing of
scans or solvers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randsvm.parameters.problem import Problem


@dataclass(frozen=True)
class Task:
    """One row of the table. y, u, f, beta : (m,) float64 of some rows.

    bounds: of |beta| where y > 0 and elsewhere. one_sided: beta has the sign of y (C-SVC).
    """

    bounds: tuple[float, float]
    epsilon: float = 0.0
    total: float = 0.0
    one_sided: bool = False

    def box(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """lower and upper of each row, (m,) float64."""
        if self.one_sided:
            positive = y > 0
            return np.where(positive, 0.0, -self.bounds[1]), np.where(positive, self.bounds[0], 0.0)
        return np.full(len(y), -self.bounds[1]), np.full(len(y), self.bounds[0])

    def loss(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """loss(y - f) of each row."""
        lower, upper = self.box(y)
        z = y - f
        lost = np.maximum(upper * (z - self.epsilon), lower * (z + self.epsilon))
        return np.maximum(lost, 0.0)

    def bends(self, y: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The b below which a row loses by its upper bound, and above which by its lower one."""
        z = y - u
        return z - self.epsilon, z + self.epsilon

    def slopes(
        self, y: np.ndarray, u: np.ndarray, beta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What D gains for each unit that beta rises, and loses for each that it falls.

        rise is -inf where beta is at its upper bound, fall is inf at the lower one; they are equal
        where beta is unbounded. The KKT conditions are rise <= b <= fall for all rows.
        """
        lower, upper = self.box(y)
        below, above = self.bends(y, u)
        rise, fall = np.where(beta < 0, above, below), np.where(beta > 0, below, above)
        rise[beta >= upper] = -np.inf
        fall[beta <= lower] = np.inf
        return rise, fall

    def linear(self, y: np.ndarray, beta: np.ndarray) -> float:
        """sum y beta - epsilon sum |beta|."""
        value = float(y @ beta)
        return value - self.epsilon * float(np.abs(beta).sum()) if self.epsilon else value


def task_of(problem: Problem) -> Task:
    """The row of the table that `problem` names."""
    if problem.task == "svr":
        return Task(problem.bounds, epsilon=problem.epsilon)
    if problem.task == "one-class":
        return Task((problem.bounds[0], 0.0), total=problem.total)
    return Task(problem.bounds, one_sided=True)
