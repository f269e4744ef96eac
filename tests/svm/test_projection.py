"""Test the projection onto feasible coefficients: box and sum are exact, and bounds are kept."""

import math

import numpy as np
import pytest
from solving import Task, clipped, with_sum, with_sums_by_violation


def boxes(kind, rng, m):
    C = rng.choice([1e-3, 0.7, 1e4])
    if kind == "svr":
        return np.full(m, -C), np.full(m, C)
    if kind == "one-class":
        return np.zeros(m), np.ones(m)
    positive = rng.random(m) < rng.choice([0.1, 0.5])
    return np.where(positive, 0.0, -3 * C), np.where(positive, C, 0.0)


def one_after_the_other(beta, lower, upper, total, order):
    """Move coefficients to their bounds, in the order of a plain loop, until the sum is reached."""
    beta, rising = beta.copy(), total > math.fsum(beta)
    for i in np.argsort(order if rising else -order, kind="stable"):
        beta[i] = np.clip(total - math.fsum(np.delete(beta, i)), lower[i], upper[i])
        if math.fsum(beta) == pytest.approx(total, rel=1e-15, abs=1e-15 * np.abs(beta).max()):
            break
    return beta


@pytest.mark.parametrize("kind", ["svc", "svr", "one-class"])
@pytest.mark.parametrize("seed", range(50))
def test_coefficients_move_in_the_given_order_until_the_sum_is_reached(kind, seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 200))
    lower, upper = boxes(kind, rng, m)
    at = rng.random(m)
    share = np.where(at < 0.4, 0.0, np.where(at < 0.8, 1.0, rng.random(m)))
    before = np.where(share == 1, upper, lower + share * (upper - lower))
    total = lower.sum() + rng.random() * (upper - lower).sum()
    order = rng.permutation(m).astype(float)
    after = with_sum(before, lower, upper, total, order)
    assert ((after >= lower) & (after <= upper)).all()
    assert math.fsum(after) == pytest.approx(total, abs=1e-12 * np.abs(before).sum())
    expected = one_after_the_other(before, lower, upper, total, order)
    assert after == pytest.approx(expected, rel=1e-9, abs=1e-9 * upper.max())


@pytest.mark.parametrize("task", ["svr", "nu-svr", "one-class"])
def test_the_sums_of_a_task_are_restored_and_no_coefficient_crosses_0(task):
    rng = np.random.default_rng(3)
    of = {
        "svr": Task((2.0, 2.0), epsilon=0.1),
        "nu-svr": Task((2.0, 2.0), absolute_sum=30.0),
        "one-class": Task((1.0, 0.0), coefficient_sum=12.0),
    }[task]
    y, u = rng.normal(size=(2, 40))
    lower, upper = of.box(y)
    before = np.clip(rng.normal(size=40), lower, upper)
    after = with_sums_by_violation(of, y, u, before)
    assert ((after >= lower) & (after <= upper) & (before * after >= 0)).all()
    assert math.fsum(after) == pytest.approx(of.coefficient_sum, abs=1e-12)
    if of.absolute_sum:
        assert math.fsum(np.abs(after)) == pytest.approx(of.absolute_sum)
    again = with_sums_by_violation(of, y, u, after)
    assert (again == after).all()


def test_a_coefficient_within_rounding_of_its_bound_is_at_the_bound():
    lower, upper = np.array([0.0, -0.3, 0]), np.array([0.3, 0, 0.3])
    beta = np.array([0.1 * 3 * (1 - 1e-15), -0.3 * (1 - 1e-14), 5.0])
    assert clipped(beta, lower, upper).tolist() == [0.3, -0.3, 0.3]
