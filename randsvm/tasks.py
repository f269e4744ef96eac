"""Tasks: what is trained. A task is a row of a table: loss, KKT violation, dual, LIBSVM's number.

Plain functions of one chunk; knows nothing of scans or solvers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Task:
    """One row of the table.

    svm_type: LIBSVM's number. svm_name: its word in a model file.
    loss(y, f): per-row loss, P = 1/2 |w|^2 + C sum loss.
    violation(y, f, bound): by how much a row breaks its KKT condition; bound : (m,) int8 is 0
    where alpha = 0 and the sign of beta where alpha = C.
    reward(y, beta): the linear part of D, so that D = reward - 1/2 |w|^2.
    """

    svm_type: int
    svm_name: str
    loss: Callable[[np.ndarray, np.ndarray], np.ndarray]
    violation: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    reward: Callable[[np.ndarray, np.ndarray], float]


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
# The hinge loss of f[class] - max of the others.
CRAMMER_SINGER = "MCSVM_CS"


def hinge(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """max(0, 1 - y f)."""
    return np.maximum(0.0, 1.0 - y * f)


def margin_violation(y: np.ndarray, f: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """alpha = 0: 1 - y f (y f >= 1 is right); alpha = C: y f - 1 (y f <= 1 is right)."""
    shortfall = 1.0 - y * f
    return np.where(bound == 0, shortfall, -shortfall)


def sum_of_alpha(y: np.ndarray, beta: np.ndarray) -> float:
    """sum alpha = sum y beta."""
    return float(y @ beta)


TASKS = {
    "svc": Task(0, "c_svc", hinge, margin_violation, sum_of_alpha),
}
