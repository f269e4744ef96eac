"""A worker killed at a random moment: a share of scripts/fuzz_cluster.py."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

pytest.importorskip("distributed")

import killing

# dask leaves sockets and tasks to the end of a process that closes without waiting.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")


@pytest.fixture(scope="module")
def kills(tmp_path_factory) -> Iterator[killing.Kills]:
    with closing(killing.Kills(tmp_path_factory.mktemp("kills"), 1000)) as kills:
        yield kills


@pytest.mark.parametrize("name", ["randsvm", "sgd"])
def test_a_worker_killed_at_a_random_moment_changes_no_byte(kills, name):
    whole = kills.run(name, 2)
    assert whole.same
    assert kills.run(name, 2, random.Random(name).uniform(0, whole.seconds)).same
