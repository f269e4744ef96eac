"""b of least P against all bends, whatever the windows and the shards."""

from __future__ import annotations

import functools
import operator

import kkt_scan_reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from randsvm.svm import offset
from randsvm.svm.offset import Breakpoints, Window
from randsvm.svm.tasks import Task

TASKS = [
    (Task((1.0, 1.0), one_sided=True), 0.0),
    (Task((0.3, 20.0), one_sided=True), 0.0),
    (Task((2.0, 2.0), epsilon=0.25), 0.0),
    (Task((2.0, 2.0)), 0.0),
    (Task((1.0, 0.0)), 0.4),
    # P is flat all the way from -inf.
    (Task((1.0, 0.0)), 1.0),
]
WHOLE = Window(-np.inf, np.inf)


def bends_of(task: Task, y: np.ndarray, u: np.ndarray, window: Window) -> Breakpoints:
    box = kkt_scan_reference.Box(*task.bounds, task.epsilon, task.one_sided)
    found = kkt_scan_reference.sums(y, u, np.zeros(len(y)), box, window.left, window.right)
    at, jump = np.array(found.breakpoints, float).reshape(-1, 2).T
    return Breakpoints.of(window, task.bounds, found.slope, at, jump, found.outside)


def found_from(
    task: Task, y: np.ndarray, u: np.ndarray, total: float, window: Window, shards: int
) -> tuple[float, list[Breakpoints]]:
    """b, and what was reported on the way to it."""
    reports, parts = (
        [],
        list(zip(np.array_split(y, shards), np.array_split(u, shards), strict=True)),
    )
    while len(reports) < 100:
        breakpoints = [bends_of(task, *part, window) for part in parts]
        # Reports of neighbours are added before they are sent.
        half = functools.reduce(operator.add, breakpoints[: shards // 2 + 1])
        reports.append(functools.reduce(operator.add, breakpoints[shards // 2 + 1 :], half))
        b = reports[-1].minimum(total, len(y) * max(task.bounds))
        if not isinstance(b, Window):
            return b, reports
        window = b
    raise AssertionError("asked again and again")


@pytest.mark.parametrize("most, cells", [(offset.MOST, offset.CELLS), (3, 7)])
@pytest.mark.parametrize("task, share", TASKS, ids=str)
def test_b_is_that_of_all_bends_at_once_wherever_the_first_window_is(
    task, share, most, cells, monkeypatch
):
    """A bend of least P, or the middle where P is flat; however many bends are reported one by
    one, and by however many shards."""
    monkeypatch.setattr(offset, "MOST", most)
    monkeypatch.setattr(offset, "CELLS", cells)

    @settings(max_examples=80)
    @given(
        st.integers(0, 10**6), st.integers(1, 30), st.floats(-3, 3),
        st.sampled_from([1e-6, 0.1, 2.0, np.inf]), st.integers(0, 1), st.integers(1, 4),
    )  # fmt: skip
    def one(seed, m, around, width, digits, shards):
        rng = np.random.default_rng(seed)
        y = rng.choice([-1.0, 1.0], m) if task.one_sided else rng.normal(size=m).round(digits)
        u, total = rng.normal(size=m).round(digits), share * m
        b, _ = found_from(task, y, u, total, Window.around(around, width), shards)

        def primal(b: float) -> float:
            return float(task.loss(y, u + b).sum()) + total * b

        least = min(primal(each) for each in np.concatenate(task.breakpoints(y, u)))
        assert primal(b) == pytest.approx(least, abs=1e-9)
        assert b == pytest.approx(found_from(task, y, u, total, WHOLE, 1)[0], abs=1e-12)

    one()


@pytest.mark.parametrize("width", [0.1, 1e-6])
def test_bends_that_differ_in_their_last_digits_are_one_place(width, monkeypatch):
    """No cell tells them apart; the search for b ends all the same."""
    monkeypatch.setattr(offset, "MOST", 3)
    task, u = Task((2.0, 2.0)), np.zeros(12)
    y = np.repeat([0.6, np.nextafter(0.6, 1), np.nextafter(0.6, 0)], 4)
    b, _ = found_from(task, y, u, 0.0, Window.around(0.6, width), 1)
    assert b == pytest.approx(0.6, rel=1e-14)


def test_where_p_is_flat_b_is_in_the_middle():
    """As LIBSVM takes it where nothing is free: half way between the two bends."""
    task = Task((1.0, 1.0), one_sided=True)
    y, u = np.array([1.0, 1.0, -1.0, -1.0]), np.array([0.5, 0.5, 0.0, 0.0])
    for window in (WHOLE, Window(-1.5, 0.0), Window(-0.6, -0.4), Window(0.6, 0.7)):
        assert found_from(task, y, u, 0.0, window, 2)[0] == pytest.approx((0.5 - 1.0) / 2)


def test_without_rows_b_is_0():
    assert found_from(Task((1.0, 1.0)), np.empty(0), np.empty(0), 0.0, WHOLE, 1)[0] == 0.0


@pytest.mark.parametrize("alike", [False, True])
def test_a_report_is_small_however_many_rows_are_at_the_margin(alike, monkeypatch):
    """Rows that are alike have bends at one place: no cell around it has few of them."""
    monkeypatch.setattr(offset, "MOST", 1000)
    task = Task((0.1, 0.1), one_sided=True)
    y = np.repeat([1.0, -1.0], 5000)
    u = np.zeros(len(y)) if alike else np.random.default_rng(0).normal(size=len(y)) / 4
    b, reports = found_from(task, y, u, 0.0, Window(-2.0, 3.0), 5)
    assert b == pytest.approx(found_from(task, y, u, 0.0, WHOLE, 1)[0], abs=1e-12)
    assert all(len(each.at) <= offset.MOST for each in reports)
    assert 1 < len(reports) < 5
