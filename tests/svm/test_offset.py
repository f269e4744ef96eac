"""b of least P against all bends, whatever the windows and the shards."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest
import survey
from hypothesis import given, settings
from hypothesis import strategies as st

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
    return Bends([found.slope], [np.array(at, float)], [np.array(jump, float)])


@pytest.mark.parametrize("task, share", TASKS, ids=str)
def test_b_is_a_bend_of_least_p_wherever_the_first_window_is(task, share):
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
        for _ in range(100):
            parts = [
                bends_of(task, *part, window)
                for part in zip(np.array_split(y, shards), np.array_split(u, shards), strict=True)
            ]
            b = functools.reduce(operator.add, parts).minimum(total, window)
            if b is not None:
                break
            window = window.wider()
        assert b is not None

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
    assert bends_of(task, y, u, window).minimum(0.0, window) == pytest.approx((0.5 - 1.0) / 2)


def test_without_rows_b_is_0():
    nothing = Bends([0.0], [np.empty(0)], [np.empty(0)])
    assert nothing.minimum(0.0, Window(-np.inf, np.inf)) == 0.0
