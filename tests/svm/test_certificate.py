"""Test the bounds of the certificate against problems whose optimum is a fraction."""

from fractions import Fraction

import numpy as np
import pytest
from kernel_sums import Kernel, largest_offset
from solving import Task, change_of_dual

# Two or three rows with x = y, or x = 1 of one-class, and a linear kernel: w = sum y beta. The
# numbers of the command line are decimal, the coefficients in use the nearest float64 numbers.
# task, y, beta, D of the optimum with beta at the bounds or with the prescribed sum
PROBLEMS = {
    "svc": (
        Task((0.1, 0.1), one_sided=True),
        [1.0, -1.0],
        [0.1, -0.1],
        2 * Fraction("0.1") - 2 * Fraction("0.1") ** 2,
    ),
    "svr": (
        Task((0.1, 0.1), 0.5),
        [1.0, -1.0],
        [0.1, -0.1],
        Fraction("0.1") - 2 * Fraction("0.1") ** 2,
    ),
    "beyond": (
        Task((0.5, 0.5), one_sided=True),
        [1.0, -1.0],
        [0.5 * (1 + 1e-10), -0.5 * (1 + 1e-10)],
        Fraction(1, 2),
    ),
    "one-class": (
        Task((1.0, 0.0), coefficient_sum=0.7 * 3),
        [0.0, 0.0, 0.0],
        [0.7, 0.7, 0.7],
        -(Fraction("2.1") ** 2) / 2,
    ),
    "nu-svc": (
        Task((1.0, 1.0), 1.0, one_sided=True, absolute_sum=0.6 * 3),
        [1.0, -1.0, 1.0],
        [0.6 * 3 / 4, -0.6 * 3 / 2, 0.6 * 3 / 4],
        -(Fraction("1.8") ** 2) / 2,
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_dual_of_float64_coefficients_is_below_the_optimum_of_the_decimal_problem(name):
    task, y, beta, optimum = PROBLEMS[name]
    x = [Fraction(1)] * 3 if name == "one-class" else list(map(Fraction, y))
    exact = list(map(Fraction, beta))
    w = sum(a * b for a, b in zip(x, exact, strict=False))
    linear = sum(Fraction(t) * b for t, b in zip(y, exact, strict=True))
    size = sum(map(abs, exact))
    dual = linear - Fraction(task.epsilon) * size - w * w / 2
    total = task.coefficient_sum + task.absolute_sum
    offset = largest_offset(total, 1.0 + task.epsilon, 1.0, float(optimum))
    change = change_of_dual(task, np.array(y), np.array(beta), None, offset)
    assert dual - Fraction(change) <= optimum
    assert change <= 1e-9


def test_coefficients_without_rounding_change_nothing():
    y, beta = np.array([1.0, -1.0]), np.array([1.0, -1.0])
    assert change_of_dual(Task((1.0, 1.0), one_sided=True), y, beta, None, 1.0) == 0


def test_the_bound_of_a_precomputed_kernel_does_not_depend_on_gamma():
    """K(x, z) = <x, z>, whatever gamma is."""
    values = [Kernel("precomputed", gamma=gamma).magnitude(3.0) for gamma in (1 / 40, 1.0)]
    assert values == [3.0, 3.0]
