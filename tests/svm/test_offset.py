"""b of least P against all bends, whatever the windows and the shards."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest
import survey
from hypothesis import given, settings
from hypothesis import strategies as st

from randsvm.svm import offset
from randsvm.svm.offset import Bends, Window
from randsvm.svm.tasks import Task

TASKS = [
    (Task((1.0, 1.0), one_sided=True), 0.0),
    (Task((0.3, 20.0), one_sided=True), 0.0),
    (Task((2.0, 2.0), epsilon=0.25), 0.0),
    (Task((2.0, 2.0)), 0.0),
    (Task((1.0, 0.0)), 0.4),
]


def bends_of(task: Task, y: np.ndarray, u: np.ndarray, window: Window) -> Bends:
    box = survey.Box(*task.bounds, task.epsilon, task.one_sided)
    found = survey.sums(y, u, np.zeros(len(y)), box, window.left, window.right)
    at, jump = zip(*found.bends, strict=True) if found.bends else ((), ())
    return Bends.of(found.slope, np.array(at, float), np.array(jump, float), window)


@pytest.mark.parametrize("most", [offset.MOST, 3])
@pytest.mark.parametrize("task, share", TASKS, ids=str)
def test_b_is_a_bend_of_least_p_wherever_the_first_window_is(task, share, most, monkeypatch):
    """And however many bends a shard reports one by one."""
    monkeypatch.setattr(offset, "MOST", most)

    @settings(max_examples=80, deadline=None)
    @given(
        st.integers(0, 10**6), st.integers(1, 30), st.floats(-3, 3),
        st.sampled_from([1e-6, 0.1, 2.0, np.inf]), st.integers(0, 1), st.integers(1, 4),
    )  # fmt: skip
    def one(seed, m, around, width, digits, shards):
        rng = np.random.default_rng(seed)
        y = rng.choice([-1.0, 1.0], m) if task.one_sided else rng.normal(size=m).round(digits)
        u, total = rng.normal(size=m).round(digits), share * m
        window = Window.around(around, width)
        for _ in range(200):
            parts = [
                bends_of(task, *part, window)
                for part in zip(np.array_split(y, shards), np.array_split(u, shards), strict=True)
            ]
            b = functools.reduce(operator.add, parts).minimum(total, window, m * max(task.bounds))
            if not isinstance(b, Window):
                break
            window = b
        assert isinstance(b, float)

        def primal(b: float) -> float:
            return float(task.loss(y, u + b).sum()) + total * b

        least = min(primal(each) for each in np.concatenate(task.bends(y, u)))
        assert primal(b) == pytest.approx(least, abs=1e-9)

    one()


def test_where_p_is_flat_b_is_in_the_middle():
    """As LIBSVM takes it where nothing is free: half way between the two bends."""
    task = Task((1.0, 1.0), one_sided=True)
    y, u = np.array([1.0, 1.0, -1.0, -1.0]), np.array([0.5, 0.5, 0.0, 0.0])
    window = Window(-np.inf, np.inf)
    assert bends_of(task, y, u, window).minimum(0.0, window, 4.0) == pytest.approx((0.5 - 1.0) / 2)


def test_without_rows_b_is_0():
    nothing = Bends([0.0], [np.empty(0)], [np.empty(0)], [])
    assert nothing.minimum(0.0, Window(-np.inf, np.inf), 0.0) == 0.0


@pytest.mark.parametrize("alike", [False, True])
def test_a_report_is_small_however_many_rows_are_at_the_margin(alike):
    """Rows that are alike have bends at one place: no cell around it has few of them."""
    task, window = Task((0.1, 0.1), one_sided=True), Window(-2.0, 3.0)
    y = np.repeat([1.0, -1.0], 5000)
    u = np.zeros(len(y)) if alike else np.random.default_rng(0).normal(size=len(y)) / 4
    asked = 0
    while isinstance(window, Window):
        found, asked = bends_of(task, y, u, window), asked + 1
        assert sum(map(len, [*found.at, *found.cells])) <= offset.MOST
        window = found.minimum(0.0, window, len(y) * 0.1)
    least = min(task.loss(y, u + b).sum() for b in np.concatenate(task.bends(y, u)))
    assert task.loss(y, u + window).sum() == pytest.approx(least, abs=1e-9)
    assert asked < 5
