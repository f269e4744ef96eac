"""Test the compiled scan over rows against its plain Python reference."""

import kkt_scan_reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kkt_scan_reference import Box
from solving import Task, _kkt_scan

BOXES = [
    Box(1.0, 1.0, 0.0, True),
    Box(0.5, 30.0, 0.0, True),
    Box(2.0, 2.0, 0.25, False),
    Box(2.0, 2.0, 0.0, False),
    Box(1.0, 0.0, 0.0, False),
]


@st.composite
def rows(draw, box):
    """Generate y, u, beta and weights of up to 40 rows; weights may be None.

    Coefficients are at a bound, at 0 or between; some values of u are equal.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m = draw(st.integers(0, 40))
    y = rng.choice([-1.0, 1.0], m) if box.one_sided else np.round(rng.normal(size=m), 1)
    several = 10 ** rng.uniform(-3, 3, m), rng.integers(1, 4, m) * 1.0
    weights = draw(st.sampled_from([None, *several]))
    lower, upper = Task(box[:2], box.epsilon, one_sided=box.one_sided).box(y, weights)
    height = rng.choice([0.0, 0.5, 1.0, rng.random()], m)
    beta = np.where(height == 1, upper, lower + height * (upper - lower))
    beta[rng.random(m) < 0.3] = 0.0
    return y, np.round(rng.normal(size=m), draw(st.sampled_from([1, 17]))), beta, weights


@pytest.mark.hypothesis
@pytest.mark.parametrize("box", BOXES, ids=str)
def test_breakpoints_equal_those_of_the_reference(box):
    @settings(max_examples=60)
    @given(rows(box), st.floats(-2, 2), st.sampled_from([0.1, 1.0, np.inf]))
    def one(some, b, width):
        y, u, _, weights = some
        at, jump = np.empty(2 * len(y)), np.empty(2 * len(y))
        asked = y, u, weights, *box, b - width, b + width
        slope, count, *outside = _kkt_scan.breakpoints(*asked, at, jump)
        expected = kkt_scan_reference.breakpoints(*asked[:3], box, *asked[-2:])
        found = zip(at[:count].tolist(), jump[:count].tolist(), strict=True)
        assert sorted(found) == sorted(expected.inside)
        assert tuple(outside) == expected.outside
        assert slope == pytest.approx(expected.slope, abs=1e-11)

    one()


@pytest.mark.hypothesis
@pytest.mark.parametrize("box", BOXES, ids=str)
def test_violations_equal_those_of_the_reference(box):
    @settings(max_examples=60)
    @given(rows(box), st.floats(-2, 2), st.sampled_from([0.0, 1e-3, 0.3]))
    def one(some, b, tolerance):
        m = len(some[0])
        rise, fall = np.empty(m + 1), np.empty(m + 1)
        rising, falling = np.empty(m + 1, np.int32), np.empty(m + 1, np.int32)
        *sums, risers, fallers = _kkt_scan.violations(
            *some, *box, b, tolerance, rising, rise, falling, fall
        )
        up = list(zip(rising[:risers].tolist(), rise[:risers].tolist(), strict=True))
        down = list(zip(falling[:fallers].tolist(), fall[:fallers].tolist(), strict=True))
        expected = kkt_scan_reference.violations(*some, box, b, tolerance)
        assert sums == pytest.approx(expected[:3], abs=1e-11)
        assert up == [expected.steepest_rise, *expected.rising]
        assert down == [expected.steepest_fall, *expected.falling]

    one()


@pytest.mark.hypothesis
@pytest.mark.parametrize("box", BOXES, ids=str)
def test_the_slopes_of_a_task_equal_those_of_the_scan(
    box,
):
    """With b = -1e9 every row that may rise violates, and with b = 1e9 every row that may fall. A
    row with coefficient 0 has two slopes.
    """

    @settings(max_examples=60)
    @given(rows(box))
    def one(some):
        rise, fall = Task(box[:2], box.epsilon, one_sided=box.one_sided).slopes(*some)
        up = dict(kkt_scan_reference.violations(*some, box, -1e9, 0.0).rising)
        down = dict(kkt_scan_reference.violations(*some, box, 1e9, 0.0).falling)
        assert {i: each for i, each in enumerate(rise) if each > -np.inf} == up
        assert {i: each for i, each in enumerate(fall) if each < np.inf} == down

    one()
