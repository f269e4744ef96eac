"""Subproblems with two sums against an interior-point method that knows nothing of LIBSVM."""

from __future__ import annotations

import numpy as np
import pytest
from qp import minimum_of_groups, objective
from test_subproblem_qp import BOUNDS, frozen, kernel, projection, sizes

from randsvm.svm.subproblem_qp import solve_two_sums


def check(K, h, lower, upper, start, accuracy=1e-6):
    """Solves with the sums of start, and holds the solution to what is promised."""
    C = (upper - lower).max()
    size = 1 + np.abs(h).max() + np.abs(K).max() * C
    sums = np.maximum(start, 0).sum(), -np.minimum(start, 0).sum()
    found = solve_two_sums(K, h, lower, upper, sums, start, tolerance=1e-8 * size)
    beta = found.beta
    assert found.ended
    assert (lower <= beta).all() and (beta <= upper).all()
    best, doubt = minimum_of_groups(K, h, lower, upper, sums)
    value = objective(K, h, 0.0, beta)
    terms = np.abs(h) @ np.abs(beta) + np.abs(beta) @ np.abs(K) @ np.abs(beta) / 2
    scale = max(abs(best), 1e-3 * terms, 1e-12)
    assert doubt <= 0.3 * accuracy * scale, "the oracle itself is not sure"
    assert abs(value - best) <= accuracy * scale
    return beta, sums


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", range(4))
def test_classes(seed, C, name):
    rng = np.random.default_rng([seed, 11])
    m = sizes(rng)
    K, y = kernel(rng, m, name), rng.choice([-1.0, 1.0], m)
    lower, upper = np.minimum(0, y * C), np.maximum(0, y * C)
    start = projection(rng, lower, upper)
    beta, sums = check(K, -frozen(rng, m, C), lower, upper, start)
    assert beta[y > 0].sum() == pytest.approx(sums[0], abs=1e-12 * m * C)
    assert -beta[y < 0].sum() == pytest.approx(sums[1], abs=1e-12 * m * C)


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", range(4))
def test_regression(seed, C, name):
    """At the most p above 0 and q below: coefficients of one row cancel."""
    rng = np.random.default_rng([seed, 12])
    m = sizes(rng)
    K = kernel(rng, m, name)
    upper = np.full(m, C)
    start = projection(rng, -upper, upper)
    beta, sums = check(K, rng.normal(size=m) - frozen(rng, m, C), -upper, upper, start)
    assert beta.sum() == pytest.approx(sums[0] - sums[1], abs=1e-12 * m * C)
    assert np.abs(beta).sum() <= sum(sums) + 1e-12 * m * C


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("C", BOUNDS)
@pytest.mark.parametrize("seed", range(4))
def test_classes_beside_nothing(seed, C, name):
    """Without a linear term and with equal sums: LIBSVM's own nu-SVC."""
    rng = np.random.default_rng([seed, 13])
    m = sizes(rng)
    K, y = kernel(rng, m, name), np.where(np.arange(m) % 2, -1.0, 1.0)
    lower, upper = np.minimum(0, y * C), np.maximum(0, y * C)
    total = C * rng.uniform(0, m // 2)
    start = np.zeros(m)
    for side in (y > 0, y < 0):
        start[side] = y[side] * total / side.sum()
    beta, sums = check(K, np.zeros(m), lower, upper, start)
    assert beta.sum() == pytest.approx(0, abs=1e-12 * m * C)
    assert beta[y > 0].sum() == pytest.approx(sums[0], abs=1e-12 * m * C)


def test_equal_rows_have_no_rho_to_divide_by():
    """LIBSVM divides by 0 there: any coefficients with the sums are a solution."""
    m, y = 12, np.where(np.arange(12) % 2, -1.0, 1.0)
    lower, upper = np.minimum(0, y), np.maximum(0, y)
    K = np.ones((m, m), np.float32)
    found = solve_two_sums(K, np.zeros(m), lower, upper, (2.5, 2.5), np.zeros(m))
    assert np.isfinite(found.beta).all()
    assert found.beta[y > 0].sum() == pytest.approx(2.5)
    assert found.beta.sum() == pytest.approx(0, abs=1e-12)
