"""Test subproblems with a box for each row against an interior-point method."""

from __future__ import annotations

import numpy as np
import pytest
import qp

from randsvm.svm.subproblem_qp import one_sum, two_sums

ROWS = 60
SPREADS = {"2": np.log10(2), "1000": 3.0}
SEEDS = range(3)


def kernel_and_widths(seed, spread):
    rng = np.random.default_rng([seed, 8])
    X = rng.normal(size=(ROWS, 2))
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    widths = 10 ** rng.uniform(-spread / 2, spread / 2, ROWS)
    return np.exp(-squares).astype(np.float32), widths, X


def starts(lower, upper, seed):
    """Return coefficients at both bounds and between them."""
    rng = np.random.default_rng([seed, 9])
    place = rng.choice([0.0, 1.0, 0.3], len(lower))
    return np.where(place == 1, upper, lower + place * (upper - lower))


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_boxes_with_one_sum_are_solved(seed, spread, epsilon):
    K, widths, X = kernel_and_widths(seed, SPREADS[spread])
    h = np.sin(2 * X[:, 0]) + np.where(X[:, 1] > 0, 0.5, -0.5)
    lower = -widths if epsilon else np.where(h > 0, 0.0, -widths)
    upper = widths if epsilon else np.where(h > 0, widths, 0.0)
    start = starts(lower, upper, seed)
    s = float(start.sum())
    found = one_sum(K, h, lower, upper, s, start, 1e-5, epsilon)
    assert found.ended
    assert (lower <= found.beta).all() and (found.beta <= upper).all()
    assert found.beta.sum() == pytest.approx(s, abs=1e-9 * np.abs(found.beta).sum())
    least, doubt = qp.minimum(K, h, lower, upper, s, epsilon)
    assert qp.objective(K, h, epsilon, found.beta) - least <= doubt + 1e-6 * abs(least)


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_boxes_with_two_sums_are_solved(seed, spread, two_sided):
    K, widths, X = kernel_and_widths(seed, SPREADS[spread])
    positive = X[:, 0] > 0
    h = X[:, 1] if two_sided else np.zeros(ROWS)
    lower = -widths if two_sided else np.where(positive, 0.0, -widths)
    upper = widths if two_sided else np.where(positive, widths, 0.0)
    half = 0.3 * min(upper.sum(), -lower.sum())
    found = two_sums(K, h, lower, upper, (half, half), np.zeros(ROWS), 1e-4)
    beta = found.beta
    assert found.ended
    assert (lower <= beta).all() and (beta <= upper).all()
    assert beta.sum() == pytest.approx(0.0, abs=1e-9 * half)
    if not two_sided:
        assert beta[positive].sum() == pytest.approx(half)
    least, doubt = qp.minimum_of_groups(K, h, lower, upper, (half, half))
    assert qp.objective(K, h, 0.0, beta) - least <= doubt + 1e-4 * abs(least)
