"""Training on real processes of Dask: workers are killed and stopped, a scheduler or a client ends.

The protocol has thousands of schedules in test_simulation.py; this is what only processes show.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, nullcontext
from functools import partial

import oracle
import pytest
from commands import run_train
from dask_cluster import DaskCluster
from learning import board

from randsvm import api
from randsvm.errors import ClusterError, Interrupted
from randsvm.events import Iteration

pytest.importorskip("distributed")
from distributed import Client

# dask leaves sockets and tasks to the end of a process that closes without waiting.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning"),
]

ROWS, SHARD = 1000, 150
GIVEN = {"gamma": 5, "gap": 1e-4, "max_iterations": 6, "sample_size": 100}


@pytest.fixture(autouse=True)
def small_shards_on_workers(set_sizes):
    set_sizes(chunk_rows=SHARD, remote_rows=0)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return board(ROWS).save(tmp_path_factory.mktemp("dask") / "board")


@pytest.fixture
def two(tmp_path):
    (tmp_path / "cluster").mkdir()
    with closing(DaskCluster(tmp_path / "cluster")) as cluster:
        cluster.add()
        cluster.add()
        yield cluster


def at_rounds(**acts):
    """Return a listener that acts at the end of rounds. acts: r2=function, for round 2."""

    def watch(event):
        if isinstance(event, Iteration):
            acts.pop(f"r{event.number}", lambda: None)()

    return watch


def test_killed_stopped_and_new_workers_change_no_byte(two, tmp_path, path, set_sizes):
    api.train(path, tmp_path / "here", **GIVEN)
    set_sizes(missing_seconds=2.0, poll_seconds=0.1)
    stopped = two.workers[1]
    go_on = threading.Timer(6, stopped.send_signal, [signal.SIGCONT])

    def stop():
        stopped.send_signal(signal.SIGSTOP)
        go_on.start()

    watch = at_rounds(r1=partial(two.kill, 0), r2=two.add, r3=stop)
    api.train(path, tmp_path / "there", "randsvm", watch, cluster=two.file, **GIVEN)
    go_on.join()
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.parametrize("how", ["limit", "signal", "no scheduler"])
def test_a_run_that_waits_for_the_cluster_ends_with_its_best_model(
    two, tmp_path, path, set_sizes, how
):
    set_sizes(silence_seconds=5.0 if how == "no scheduler" else 60.0)
    begun = []

    def stop():
        begun.append(time.monotonic())
        for process in [two.scheduler] if how == "no scheduler" else two.workers:
            process.send_signal(signal.SIGSTOP)

    rounds = at_rounds(r2=stop)

    def watch(event):
        rounds(event)
        if how == "signal" and begun and time.monotonic() > begun[0] + 1:
            raise Interrupted(signal.SIGTERM)

    given = {**GIVEN, "time_limit": 8} if how == "limit" else GIVEN
    ends = {"signal": Interrupted, "no scheduler": ClusterError}
    with pytest.raises(ends[how]) if how in ends else nullcontext():
        api.train(path, tmp_path / "m", "randsvm", watch, cluster=two.file, **given)
    stopped = oracle.trailer(tmp_path / "m")["stopped"]
    expected = {"limit": "time limit", "signal": "signal 15", "no scheduler": "scheduler"}
    assert expected[how] in stopped


CLIENT = """
import sys
from randsvm import api
from randsvm.cluster import executor
executor.REMOTE_ROWS = 0
def watch(event):
    if type(event).__name__ == "Iteration":
        print("round", flush=True)
given = {"gamma": 5, "gap": 1e-9, "sample_size": 100}
api.train(sys.argv[1], sys.argv[2], "randsvm", watch, cluster=sys.argv[3], **given)
"""


def test_workers_release_the_rows_of_a_killed_client(two, tmp_path, path):
    def actors(dask_worker):
        return len(dask_worker.state.actors), len(dask_worker.state.tasks)

    words = [path, tmp_path / "m", two.file]
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, *map(str, words)],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert client.stdout.readline() == b"round\n"
    with Client(scheduler_file=str(two.file), set_as_default=False) as dask:
        assert sum(count for count, _ in dask.run(actors).values())
        client.kill()
        client.wait()
        client.stdout.close()
        end = time.monotonic() + 30
        while any(map(any, dask.run(actors).values())) and time.monotonic() < end:
            time.sleep(0.1)
        assert not any(map(any, dask.run(actors).values()))


def test_local_workers_import_the_modules_of_this_process(tmp_path, path, monkeypatch):
    """Modules of the same names in the working folder are not imported."""
    for name in ("queue", "randsvm"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    words = ["randsvm", "-g", 5, "--max-iterations", 2, "-q"]
    run_train(*words, path, tmp_path / "here")
    run_train(*words, "--cluster", "local:2", path, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
