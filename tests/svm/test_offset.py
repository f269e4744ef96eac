"""Test that b minimises P over all breakpoints, for any windows and shards."""

import functools
import operator

import kkt_scan_reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solving import Breakpoints, Task, Window, offset

TASKS = [
    (Task((1.0, 1.0), one_sided=True), 0.0),
    (Task((0.3, 20.0), one_sided=True), 0.0),
    (Task((2.0, 2.0), epsilon=0.25), 0.0),
    (Task((2.0, 2.0)), 0.0),
    (Task((1.0, 0.0)), 0.4),
    # P is constant from -inf.
    (Task((1.0, 0.0)), 1.0),
]
WHOLE = Window(-np.inf, np.inf)


def breakpoints_of(task, y, u, weights, window):
    box = kkt_scan_reference.Box(*task.bounds, task.epsilon, task.one_sided)
    found = kkt_scan_reference.breakpoints(y, u, weights, box, window.left, window.right)
    at, jump = np.array(found.inside, float).reshape(-1, 2).T
    return Breakpoints.of(window, found.slope, at, jump, *found.outside)


def b_and_reports(
    task,
    y,
    u,
    total,
    window,
    shards,
    weights=None,
):
    """Return b, and the reports received during its search."""
    weights = np.ones(len(y)) if weights is None else weights
    reports = []
    split = [np.array_split(each, shards) for each in (y, u, weights)]
    parts = list(zip(*split, strict=True))
    while len(reports) < 100:
        breakpoints = [breakpoints_of(task, y, u, w, window) for y, u, w in parts]
        # Reports of neighbours are added before they are sent.
        half = functools.reduce(operator.add, breakpoints[: shards // 2 + 1])
        reports.append(functools.reduce(operator.add, breakpoints[shards // 2 + 1 :], half))
        b = reports[-1].minimum(total, weights.sum() * max(task.bounds))
        if not isinstance(b, Window):
            return b, reports
        window = b
    raise AssertionError("asked again and again")


@pytest.mark.hypothesis
@pytest.mark.parametrize("most", [offset.MAX_BREAKPOINTS, 3])
@pytest.mark.parametrize("task, share", TASKS, ids=str)
def test_b_does_not_depend_on_the_first_window(task, share, most, set_sizes):
    """b is a breakpoint with the least P, or the midpoint of a flat interval.

    The number of reported breakpoints and of shards does not matter.
    """
    set_sizes(breakpoints=most)

    @settings(max_examples=80)
    @given(
        st.integers(0, 10**6), st.integers(1, 30), st.floats(-3, 3),
        st.sampled_from([1e-6, 0.1, 2.0, np.inf]), st.integers(0, 1), st.integers(1, 4),
        st.sampled_from(["none", "integers", "any"]),
    )  # fmt: skip
    def one(seed, m, around, width, digits, shards, kind):
        rng = np.random.default_rng(seed)
        y = rng.choice([-1.0, 1.0], m) if task.one_sided else rng.normal(size=m).round(digits)
        u = rng.normal(size=m).round(digits)
        weights = {"none": np.ones(m), "integers": rng.integers(1, 4, m) * 1.0}.get(kind)
        weights = 10 ** rng.uniform(-2, 2, m) if weights is None else weights
        total = share * weights.sum()
        b, _ = b_and_reports(task, y, u, total, Window.around(around, width), shards, weights)

        def primal(b):
            return float(task.loss(y, u + b, weights).sum()) + total * b

        least = min(primal(each) for each in np.concatenate(task.breakpoints(y, u)))
        assert primal(b) == pytest.approx(least, abs=1e-9)
        whole, _ = b_and_reports(task, y, u, total, WHOLE, 1, weights)
        assert b == pytest.approx(whole, abs=1e-12)

    one()


def test_the_search_is_short_where_most_breakpoints_are_equal(set_sizes):
    """A straight line between the slopes at the ends of a window meets 0 at the wrong end."""
    set_sizes(breakpoints=100)
    spread = np.concatenate([np.linspace(1e-6, 1e-5, 40), np.geomspace(1e-4, 1000, 1460)])
    breakpoints = np.concatenate([np.zeros(1500), spread])
    y = np.where(np.arange(3000) < 1510, 1.0, -1.0)
    task = Task((1.0, 1.0), one_sided=True)
    b, reports = b_and_reports(task, y, y - breakpoints, 0.0, WHOLE, 2)
    assert spread[8] <= b <= spread[10]
    assert len(reports) <= 35


def test_b_is_the_midpoint_if_p_is_flat():
    """LIBSVM does the same without unbounded support vectors."""
    task = Task((1.0, 1.0), one_sided=True)
    y, u = np.array([1.0, 1.0, -1.0, -1.0]), np.array([0.5, 0.5, 0.0, 0.0])
    for window in (WHOLE, Window(-1.5, 0.0), Window(-0.6, -0.4), Window(0.6, 0.7)):
        assert b_and_reports(task, y, u, 0.0, window, 2)[0] == pytest.approx((0.5 - 1.0) / 2)


@pytest.mark.parametrize("C", [0.137, 3.455, 6.91, 9.857])
def test_b_is_the_midpoint_where_rounding_makes_the_slope_of_a_flat_p(C):
    """8,192 and 8,000 equal bounds have equal sums, and their float64 sums differ by 2e-13 of all
    bounds: each sum has a rounding error with a bias.
    """
    task = Task((C, C * 8192 / 8000), one_sided=True)
    y = np.repeat([1.0, -1.0], [8192, 8000])
    for window in (WHOLE, Window(-0.5, 0.5), Window(-3.0, -0.5), Window(0.5, 3.0)):
        assert b_and_reports(task, y, np.zeros(len(y)), 0.0, window, 2)[0] == 0.0
