"""Kernels: their names and parameters, the default of gamma, and which are semidefinite."""

import math
from collections.abc import Callable

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


def is_semidefinite(kernel: str, coef0: float) -> bool:
    """Return whether a kernel is positive semidefinite; precomputed kernels are assumed to be."""
    definite = kernel in ("linear", "rbf", "precomputed")
    return definite or (kernel == "poly" and coef0 >= 0)
