"""Test the projection onto feasible coefficients: box and sum are exact, and bounds are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from solving import clipped, fill_to_sum, restore_sum


def boxes(kind, rng, m):
    C = rng.choice([1e-3, 0.7, 1e4])
    if kind == "svr":
        return np.full(m, -C), np.full(m, C)
    if kind == "one-class":
        return np.zeros(m), np.ones(m)
    positive = rng.random(m) < rng.choice([0.1, 0.5])
    return np.where(positive, 0.0, -3 * C), np.where(positive, C, 0.0)


@pytest.mark.parametrize("kind", ["svc", "svr", "one-class"])
@pytest.mark.parametrize("seed", range(50))
def test_box_and_sum_are_exact_and_bounds_are_kept(kind, seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 200))
    lower, upper = boxes(kind, rng, m)
    at = rng.random(m)
    share = np.where(at < 0.4, 0.0, np.where(at < 0.8, 1.0, rng.random(m)))
    before = lower + share * (upper - lower)
    before[share == 1] = upper[share == 1]
    total = 0.0 if kind != "one-class" else rng.random() * math.fsum(before)
    after = restore_sum(before, lower, upper, total)
    size = np.abs(before).sum()
    assert ((after >= lower) & (after <= upper)).all()
    assert abs(math.fsum(after) - total) <= 1e-12 * size
    excess = math.fsum(before) - total
    assert (np.sign(excess) * (after - before) <= 1e-15 * size).all()
    was = ((before == lower) | (before == upper)) & (before != 0)
    moved = np.flatnonzero(was & (after != before))
    free = ~was & (before != 0)
    if len(moved):
        # Bounded coefficients move only if no unbounded one is left, and all but one of them to 0.
        assert np.isin(after[free], [0.0, *lower, *upper]).all()
        assert np.count_nonzero(after[moved]) <= 1


def test_bounded_coefficients_move_in_the_given_order():
    beta, upper = np.array([1.0, 1, 1, 1, 0]), np.ones(5)
    lower, order = np.zeros(5), np.array([3.0, 1, 2, 0, 5])
    assert restore_sum(beta, lower, upper, 2.5, order).tolist() == [1, 0.5, 1, 0, 0]


def test_coefficients_are_filled_up_in_the_given_order():
    beta, upper = np.array([0.5, 0, 0, 1, 0]), np.ones(5)
    order = np.array([4.0, 2, 3, 0, 1])
    assert fill_to_sum(beta, upper, 3.25, order).tolist() == [0.5, 0.75, 0, 1, 1]


def test_a_coefficient_within_rounding_of_its_bound_is_at_the_bound():
    lower, upper = np.array([0.0, -0.3, 0]), np.array([0.3, 0, 0.3])
    beta = np.array([0.1 * 3 * (1 - 1e-15), -0.3 * (1 - 1e-14), 5.0])
    assert clipped(beta, lower, upper).tolist() == [0.3, -0.3, 0.3]
