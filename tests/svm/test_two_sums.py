"""Test subproblems with two sums against an interior-point method that is independent of LIBSVM."""

from __future__ import annotations

import numpy as np
import pytest
from qp import minimum_of_groups
from random_subproblems import (
    BOUNDS,
    assert_near_minimum,
    frozen_gradient,
    kernel_matrix,
    random_size,
    random_start,
)

from randsvm.svm.subproblem_qp import two_sums


def check(
    K,
    h,
    lower,
    upper,
    start,
    accuracy=1e-6,
):
    """Solve with the sums of `start`, and check the solution."""
    C = (upper - lower).max()
    size = 1 + np.abs(h).max() + np.abs(K).max() * C
    sums = np.maximum(start, 0).sum(), -np.minimum(start, 0).sum()
    found = two_sums(K, h, lower, upper, sums, start, tolerance=1e-8 * size)
    beta = found.beta
    assert found.ended
    assert (lower <= beta).all() and (beta <= upper).all()
    assert_near_minimum(minimum_of_groups(K, h, lower, upper, sums), K, h, 0.0, beta, accuracy)
    return beta, sums


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_two_sum_classification_is_solved(seed, C, name):
    rng = np.random.default_rng([seed, 11])
    m = random_size(rng)
    K, y = kernel_matrix(rng, m, name), rng.choice([-1.0, 1.0], m)
    lower, upper = np.minimum(0, y * C), np.maximum(0, y * C)
    start = random_start(rng, lower, upper)
    beta, sums = check(K, -frozen_gradient(rng, m, C), lower, upper, start)
    assert beta[y > 0].sum() == pytest.approx(sums[0], abs=1e-12 * m * C)
    assert -beta[y < 0].sum() == pytest.approx(sums[1], abs=1e-12 * m * C)


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_two_sum_regression_is_solved(seed, C, name):
    """At most p is above 0 and q below: the coefficients of one row cancel."""
    rng = np.random.default_rng([seed, 12])
    m = random_size(rng)
    K = kernel_matrix(rng, m, name)
    upper = np.full(m, C)
    start = random_start(rng, -upper, upper)
    beta, sums = check(K, rng.normal(size=m) - frozen_gradient(rng, m, C), -upper, upper, start)
    assert beta.sum() == pytest.approx(sums[0] - sums[1], abs=1e-12 * m * C)
    assert np.abs(beta).sum() <= sum(sums) + 1e-12 * m * C


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_nu_svc_without_frozen_coefficients_is_libsvms(seed, C, name):
    """Without a linear term and with equal sums this is LIBSVM's own nu-SVC."""
    rng = np.random.default_rng([seed, 13])
    m = random_size(rng)
    K, y = kernel_matrix(rng, m, name), np.where(np.arange(m) % 2, -1.0, 1.0)
    lower, upper = np.minimum(0, y * C), np.maximum(0, y * C)
    total = C * rng.uniform(0, m // 2)
    start = np.zeros(m)
    for side in (y > 0, y < 0):
        start[side] = y[side] * total / side.sum()
    beta, sums = check(K, np.zeros(m), lower, upper, start)
    assert beta.sum() == pytest.approx(0, abs=1e-12 * m * C)
    assert beta[y > 0].sum() == pytest.approx(sums[0], abs=1e-12 * m * C)


def test_equal_rows_are_solved_without_dividing_by_rho():
    """LIBSVM divides by 0 here: any coefficients with the sums are a solution."""
    m, y = 12, np.where(np.arange(12) % 2, -1.0, 1.0)
    lower, upper = np.minimum(0, y), np.maximum(0, y)
    K = np.ones((m, m), np.float32)
    found = two_sums(K, np.zeros(m), lower, upper, (2.5, 2.5), np.zeros(m))
    assert np.isfinite(found.beta).all()
    assert found.beta[y > 0].sum() == pytest.approx(2.5)
    assert found.beta.sum() == pytest.approx(0, abs=1e-12)
