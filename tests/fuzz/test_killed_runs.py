"""A worker killed at a random moment: see support/killed_runs.py."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

pytest.importorskip("distributed")

import killed_runs

pytestmark = [
    pytest.mark.cluster,
    # dask closes sockets and ends tasks when its process ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, fuzzes):
    rows = 3600 if fuzzes else 1000
    with closing(killed_runs.KilledRuns(tmp_path_factory.mktemp("killed"), rows)) as runs:
        yield runs


def check(runs, name, workers, seed):
    """Run without a kill, then with one at a random moment of that time."""
    whole = runs.run(name, workers)
    assert whole.same
    moment = random.Random(seed).uniform(0, whole.seconds)
    assert runs.run(name, workers, moment).same, f"one worker killed after {moment:.2f} s"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["randsvm", "sgd"])
def test_a_worker_killed_at_a_random_moment_changes_no_byte(runs, name):
    check(runs, name, 2, name)


@pytest.mark.fuzz
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("name", killed_runs.RUNS)
def test_no_kind_of_run_depends_on_a_killed_worker(runs, fuzz_seed, name, workers):
    check(runs, name, workers, f"{fuzz_seed} {name} {workers}")


@pytest.mark.fuzz
@pytest.mark.parametrize("number", range(20))
def test_no_moment_of_a_kill_changes_a_byte(runs, fuzz_seed, number):
    check(runs, "randsvm", 2, f"{fuzz_seed} {number}")
