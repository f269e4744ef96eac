"""Kernel functions K(x, z) with LIBSVM's parameters: linear, poly, rbf, sigmoid, precomputed."""

from __future__ import annotations

import math

import numpy as np

from randsvm.arrays import FLOAT64_UNIT
from randsvm.kernels._kernels import exp2
from randsvm.parameters.svm import Problem
from randsvm.records import record

# The largest rounding error of an exponent from float64 products of rows. If the error may be
# larger, the exponent is computed from differences, which takes several times as long.
ROUNDING = 5e-13
LOG2_E = 1 / math.log(2)
# The largest float64 number.
LARGEST = float(np.finfo(np.float64).max)


def _power(block: np.ndarray, degree: int) -> None:
    """Raise a block to a power in place by repeated squaring (numpy takes 20 times as long)."""
    if degree == 0:
        block.fill(1)
        return
    base = block.copy()
    for bit in bin(degree)[3:]:
        block *= block
        if bit == "1":
            block *= base


@record
class Kernel:
    """The kernel K(x, z), with LIBSVM's parameters.

    name: linear, poly, rbf, sigmoid or precomputed. With precomputed a row x holds its kernel
    values with all numbered rows, and a centre z has a 1 in the column of its number, so that K(x,
    z) = <x, z>.
    """

    name: str
    gamma: float = 1.0
    coef0: float = 0.0
    degree: int = 3

    @staticmethod
    def of(problem: Problem) -> Kernel:
        return Kernel(problem.kernel, problem.gamma, problem.coef0, problem.degree)

    @property
    def linear(self) -> bool:
        """Return whether K(x, z) = <x, z>."""
        return self.name in ("linear", "precomputed")

    @property
    def rate(self) -> float:
        """The rate at which rbf falls: K(x, z) = 2^(-rate |x - z|^2), which takes fewer operations
        than a power of e. It is finite, since an infinite rate times a distance of 0 is nan."""
        return min(self.gamma * LOG2_E, LARGEST)

    @property
    def scale(self) -> float:
        return 1.0 if self.linear else 2 * self.rate if self.name == "rbf" else self.gamma

    def left(self, norms: np.ndarray) -> np.ndarray:
        """Return left(x) of layouts.py for m rows, (m,). norms : (m,) float64, |x|^2."""
        return -self.rate * norms if self.name == "rbf" else np.zeros(len(norms))

    def right(self, norms: np.ndarray) -> np.ndarray:
        """Return right(z) of layouts.py for m centres, (m,). norms : (m,) float64, |z|^2."""
        if self.name == "rbf":
            return -self.rate * norms
        return np.full(len(norms), 0.0 if self.name == "linear" else self.coef0)

    def finish(self, block: np.ndarray) -> None:
        """Turn arguments into kernel values, in place. block : (m, k), rows of adjacent values."""
        if self.name == "rbf":
            exp2(block)
        elif self.name == "poly":
            _power(block, self.degree)
        elif self.name == "sigmoid":
            np.tanh(block, out=block)

    def magnitude(self, norm: float) -> float:
        """Return the largest size of a number that is rounded, for rows with |x|^2 up to `norm`.

        It is gamma |x|^2 for rbf, the argument of tanh for sigmoid, else the kernel value.
        """
        if self.name == "rbf":
            return self.gamma * norm
        if self.name == "poly":
            try:
                return (self.gamma * norm + abs(self.coef0)) ** self.degree
            except OverflowError:
                return math.inf
        return self.scale * norm + abs(self.coef0)

    def steepness(self, norm: float) -> float:
        """Return a bound of |phi(x) - phi(z)| / |x - z| for K(x, z) = <phi(x), phi(z)>, for rows
        with |x|^2 up to `norm`."""
        if self.name == "poly":
            # degree times the root of gamma (gamma |x|^2 + |r|)^(degree - 1)
            return self.degree * math.sqrt(self.gamma * max(1.0, self.magnitude(norm)))
        return math.sqrt(2 * self.gamma) if self.name == "rbf" else 1.0

    def has_exact_products(self, norm: float) -> bool:
        """Return whether float64 products of rows with |x|^2 up to `norm` make exponents as exact
        as differences of features."""
        return self.magnitude(norm) * FLOAT64_UNIT <= ROUNDING

    def diagonal(self, norms: np.ndarray) -> np.ndarray:
        """Return K(x, x) of m rows, (m,). norms : (m,) float64, |x|^2."""
        values: np.ndarray = self.scale * norms + self.left(norms) + self.right(norms)
        self.finish(values[None])
        return values
