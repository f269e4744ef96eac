"""Kernel names and their parameters, gamma, and the optimisation problem with all its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# Kernel -> its parameters. Both are in LIBSVM's order; the position of a kernel is its number.
KERNELS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "poly": ("degree", "gamma", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "precomputed": (),
}
KERNEL_NAMES = tuple(KERNELS)
# The value of gamma that stands for 1/(d variance of all values), scikit-learn's default.
SCALE = "scale"


def resolve_gamma(
    gamma: float | str | None,
    d: int,
    variance: Callable[[], float] | None = None,
    default: float | None = None,
) -> float:
    """Return gamma as a number for d features.

    gamma None: `default`, or 1/d (LIBSVM's) if that is None too. SCALE: 1/(d variance), or 1 if
    this is not positive and finite; it needs `variance`, which returns the variance of all values,
    zeros included.
    """
    if gamma is None:
        return 1.0 / max(d, 1) if default is None else default
    if isinstance(gamma, str):
        assert variance is not None, "gamma 'scale' needs the variance of the data"
        spread = d * variance()
        return 1.0 / spread if 0 < spread < math.inf else 1.0
    return gamma


@dataclass(frozen=True)
class Problem:
    """An optimisation problem of one decision function over the rows of D.

    bounds : largest |beta| for beta > 0 and for beta < 0 (C of the classes y = +1 and y = -1; 1 for
    one-class and nu-SVC, LIBSVM's scale)
    epsilon : half width of the tube of epsilon-SVR
    total : sum beta of every solution: nu n for one-class, else 0
    tolerance : tolerance of the KKT conditions
    kernel_cache : size of LIBSVM's kernel cache in MB; it does not change results
    size : sum |beta| of every solution of nu-SVC and nu-SVR, else 0
    doubtful : whether the kernel is precomputed and may not be positive semidefinite
    """

    task: str
    kernel: str
    degree: int
    gamma: float
    coef0: float
    bounds: tuple[float, float]
    epsilon: float
    total: float
    tolerance: float
    shrinking: bool
    kernel_cache: float = 100.0
    size: float = 0.0
    doubtful: bool = False

    @property
    def kind(self) -> str:
        """The type of prediction: svc, svr or one-class."""
        return kind_of(self.task)

    @property
    def positive_semidefinite(self) -> bool:
        """Whether the kernel is positive semidefinite: only then D <= optimum <= P."""
        return not self.doubtful and positive_semidefinite(self.kernel, self.coef0)


def kind_of(task: str) -> str:
    """Return the type of prediction of a task: svc, svr or one-class, with or without nu."""
    return task.removeprefix("nu-")


def positive_semidefinite(kernel: str, coef0: float) -> bool:
    """Return whether a kernel is positive semidefinite; precomputed kernels are assumed to be."""
    definite = kernel in ("linear", "rbf", "precomputed")
    return definite or (kernel == "poly" and coef0 >= 0)
