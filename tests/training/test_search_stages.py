"""Test a search under a time limit, and one of a range: scores on few rows choose what is scored on
more rows.

Each fake fit has a known accuracy, so the best combination is known.
"""

import math
import time
from collections import Counter

import numpy as np
import oracle
import pytest
from learning import gaussians, learn
from task_sets import SETS
from trainings import open_task
from trainings import search as search_grid

from randsvm.errors import ContentError, InfeasibleError
from randsvm.events import Notice, Tried, listening

ROWS = 1200


@pytest.fixture(scope="module")
def labelled_file(tmp_path_factory):
    """Write rows with the label as the first feature and a number below 1 as the second."""
    rng = np.random.default_rng(7)
    y = rng.choice([-1.0, 1.0], ROWS)
    X = np.column_stack([y, rng.random(ROWS)])
    return oracle.write_svmlight(tmp_path_factory.mktemp("stages") / "d", y, X)


class FakeClock:
    """A clock that only fits advance: by one second for each training row."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = FakeClock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def predict_share(share):
    """Return a decision function that is right for this share of the rows."""

    def decision(X):
        rows = X.toarray()
        return (rows[:, 0] * np.sign(share - rows[:, 1]))[:, None]

    return decision


def by_log_distance(D, params):
    """Return an accuracy that is highest at C = 2^2.5, gamma = 2^-3.5 and decreases with the
    distance.
    """
    distance = math.hypot(math.log2(params.C) - 2.5, math.log2(params.gamma) + 3.5)
    return predict_share(0.95 - distance / 40)


class SearchEvents:
    """The events of a search."""

    def __init__(self):
        self.events = []

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def by_rows(self):
        """Return how many combinations were scored on each number of rows."""
        return dict(Counter(one.rows for one in self.of(Tried)))

    @property
    def notices(self):
        return [one.text for one in self.of(Notice)]


def search(path, fit, grid, clock, *, task="svc", **options):
    found = SearchEvents()

    def timed(D, params):
        clock.now += D.n
        return fit(D, params)

    with open_task(path, task) as D, listening(found.events.append):
        return *search_grid(D, timed, grid, task=task, **options), found


C_GRID = {"C": tuple(2.0**power for power in range(12))}


# ---- under a time limit -------------------------------------------------------------------------


def test_all_combinations_are_scored_on_few_rows_and_the_best_on_more(labelled_file, clock):
    def fit(D, params):
        return predict_share(0.9 - abs(math.log2(params.C) - 7) / 20)

    searched, params, found = search(labelled_file, fit, C_GRID, clock, until=30_000)
    assert found.by_rows == {200: 12, 800: 3, 1200: 2}
    assert params.C == 2**7
    assert [one.rows for one in searched.tried] == [1200, 1200, 800, *[200] * 9]
    assert searched.of == 12
    # Each configuration can be run alone.
    assert {one.rows for one in found.of(Tried) if "--subset 200" in one.configuration} == {200}


@pytest.mark.parametrize("words", [(), ("-c", "1,0.001,10")])
def test_a_model_is_written_even_without_time_for_a_search(
    tmp_path,
    words,
    capsys,
    set_sizes,
):
    set_sizes(search_share=0.0)
    labelled_file = gaussians(300).save(tmp_path / "d")
    learnt = learn("sgd", labelled_file, tmp_path / "m", "-v", 3, *words, "--time-limit", "100s")
    assert any(text.startswith("no time for cross-validation") for text in learnt.notices)
    assert "cross_validation" not in learnt.metadata
    assert learnt.metadata["C"] == 1.0
    assert capsys.readouterr().out == ""


def test_a_score_of_nan_is_the_worst(tmp_path, clock):
    """It never wins, whatever its position in the grid."""
    y, X = SETS["svr"]
    oracle.write_svmlight(tmp_path / "d", y, X)

    def fit(D, params):
        value = {1: 3.0, 2: np.nan, 3: 0.0, 4: 9.0}[params.C]
        return lambda X: np.full((X.shape[0], 1), value)

    grid = {"C": (1.0, 2.0, 3.0, 4.0)}
    searched, _, _ = search(tmp_path / "d", fit, grid, clock, task="svr", folds=2)
    assert [one.values["C"] for one in searched.tried] == [3, 1, 4, 2]


def test_a_stage_that_scores_a_third_in_time_is_left_out(labelled_file, clock):
    """One combination of three on more rows, which take ten times as long as expected."""

    def fit(D, params):
        clock.now += 9 * D.n * (D.n > 300)
        return predict_share(0.9 - abs(math.log2(params.C) - 7) / 20)

    searched, params, found = search(labelled_file, fit, C_GRID, clock, until=15_600)
    assert found.by_rows == {200: 12, 800: 1}
    assert [one.rows for one in searched.tried] == [200] * 12
    assert searched.tried[0].values["C"] == params.C


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_a_score_is_that_of_half_of_the_folds_at_least(labelled_file, clock, lacking):
    """The score of four folds of which some have no model."""
    made = []

    def fit(D, params):
        made.append(D)
        if len(made) <= lacking:
            raise InfeasibleError("no model")
        return predict_share(1.0)

    if lacking == 3:
        with pytest.raises(ContentError, match="more than half of the folds have none"):
            search(labelled_file, fit, {"C": (1.0,)}, clock, folds=4)
    else:
        searched, _, _ = search(labelled_file, fit, {"C": (1.0,)}, clock, folds=4)
        assert searched.tried[0].score == 100
    assert len(made) == 4


# ---- a range ------------------------------------------------------------------------------------


@pytest.fixture
def small_stages(set_sizes):
    set_sizes(coarse_rows=60)


AUTO = {"C": "auto", "gamma": "auto"}


def test_a_range_is_searched_coarsely_and_then_finely(labelled_file, small_stages, clock):
    """The search starts with LIBSVM's grid, at least 5 powers of 2 around the best, and ends at the
    best power of sqrt(2).
    """
    searched, params, found = search(labelled_file, by_log_distance, AUTO, clock)
    assert set(found.by_rows) == {60, 240, 960}
    assert found.by_rows[60] == 11 * 10
    # A quarter of the grid, and all neighbours of its best combination.
    assert 28 + 3 <= found.by_rows[240] <= 55 + 8
    assert found.by_rows[960] == 9
    assert abs(math.log2(params.C) - 2.5) <= 1
    assert abs(math.log2(params.gamma) + 3.5) <= 1
    assert searched.tried[0].rows == 960
    # Each combination of grid.py's table occurs once.
    assert len({tuple(one.values.values()) for one in searched.tried}) == len(searched.tried)
    assert searched.of == len(searched.tried)
