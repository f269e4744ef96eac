"""Test a time limit that passes at any moment of a run: a whole model remains, or the old one and
one line.
"""

from __future__ import annotations

import random
import time

import numpy as np
import oracle
import pytest
from commands import run_predict, run_train
from learning import OLD_MODEL

from randsvm.errors import OutOfTimeError
from randsvm.models.load import load
from randsvm.training.clock import Clock

ROWS = 60
SECONDS = 1e5  # of the limit; a clock that jumps further has passed it

ROUNDS = ("osuna", "-g", 5, "--working-set", 20, "--swap", 4, "--max-iterations", 5)
# Kind of run -> its options and its data.
RUNS = {
    "two classes": (ROUNDS, "two"),
    "several classes": (ROUNDS, "four"),
    "randsvm": (("randsvm", "-g", 5), "four"),
    "regression": ((*ROUNDS, "-s", "svr"), "targets"),
    "one-class": ((*ROUNDS, "-s", "one-class", "-n", 0.3), "two"),
    "scaled": ((*ROUNDS, "--scale", "standard"), "two"),
    "probabilities": ((*ROUNDS, "-b", 1), "two"),
    "probabilities of classes": ((*ROUNDS, "-b", 1), "four"),
    "random features": ((*ROUNDS, "--components", 10), "four"),
    "sgd": (("sgd", "--epochs", 3), "four"),
    "sgd auto": (("sgd", "--epochs", "auto", "-b", 1), "two"),
    "sgd held out": (("sgd", "--early-stopping", 0.3, "-t", "rbf", "--components", 10), "two"),
    "sgd one-class": (("sgd", "-s", "one-class", "-n", 0.1, "--epochs", 3), "two"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deadlines")
    y, X = oracle.two_gaussians(ROWS)
    oracle.write_svmlight(folder / "two", y, X)
    oracle.write_svmlight(folder / "targets", X[:, 0] * 3, X)
    oracle.write_svmlight(
        folder / "four", np.arange(ROWS) % 4, X + np.eye(4, 2)[np.arange(ROWS) % 4]
    )
    return folder


@pytest.fixture
def limit_at(monkeypatch):
    """limit_at(k): let the limit pass with the k-th event that a clock observes; return how many
    events it observed.
    """
    received, plain, hear = [0], time.perf_counter, Clock.__call__
    last = [float("inf")]

    def now():
        return plain() + (2 * SECONDS if received[0] >= last[0] else 0.0)

    def count(clock, event):
        received[0] += 1
        hear(clock, event)

    monkeypatch.setattr(time, "perf_counter", now)
    monkeypatch.setattr(Clock, "__call__", count)

    def arm(k):
        received[0], last[0] = 0, k
        return received

    return arm


@pytest.mark.parametrize("kind", RUNS)
def test_a_time_limit_at_any_moment_leaves_a_whole_model_or_the_old_one(
    files, tmp_path, limit_at, kind
):
    words, name = RUNS[kind]
    model, data = tmp_path / "m", files / name
    line = (*words, "-q", "--time-limit", f"{SECONDS:g}s", data, model)
    received = limit_at(float("inf"))
    run_train(*line)
    events, ends = received[0], set()
    chance = random.Random(kind)
    for k in {1, events - 1, *(chance.randrange(2, events) for _ in range(3))}:
        model.write_text(OLD_MODEL)
        limit_at(k)
        try:
            run_train(*line)
        except OutOfTimeError as error:
            assert error.exit_code == 75
            assert str(error) == (
                f"--time-limit is over before there is a model: {model} is left as it was"
            )
            assert model.read_text() == OLD_MODEL
            ends.add("none")
            continue
        ends.add(oracle.trailer(model)["stopped"])
        load(str(model))
        run_predict("-q", *(["-b", 1] if "-b" in words else []), data, model, tmp_path / "o")
        assert len((tmp_path / "o").read_text().splitlines()) >= ROWS
    assert "none" in ends
    assert len(ends) > 1


def test_the_time_limit_applies_to_a_grid_search(files, tmp_path, limit_at):
    model, data = tmp_path / "m", files / "two"
    for k in (1, 4, 12):
        model.write_text(OLD_MODEL)
        limit_at(k)
        try:
            run_train("osuna", "-q", "-v", 3, "-c", "1,10", "--time-limit", "9h", data, model)
        except OutOfTimeError:
            assert model.read_text() == OLD_MODEL
        else:
            load(str(model))
