"""Workers that are paused, slow or without disk space, and leases of rows on workers."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from typing import TypeVar

import oracle
import pytest
from dask_cluster import PATIENCE, DaskCluster
from learning import board

from randsvm import api
from randsvm.data.reading import ParseOptions
from randsvm.errors import ClusterError, TransferError
from randsvm.events import HEARTBEAT, Iteration, Notice
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Params
from randsvm.training import labelled_data
from randsvm.training.job import Job

pytest.importorskip("distributed")
import cloudpickle
from distributed.core import Status
from fake_cluster import DoneFuture, FakeWorkerPool

from randsvm.cluster import worker
from randsvm.cluster.worker_pool import PendingTask, TaskBatch, TaskResult, WorkerPool

# dask leaves sockets and tasks to the end of a process that closes without waiting.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Report = TypeVar("Report")

ROWS, SHARD = 1000, 150


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(labelled_data, "ParseOptions", partial(ParseOptions, chunk_rows=SHARD))


@pytest.fixture(autouse=True)
def both_take_part(monkeypatch):
    """Make each run wait for two workers at its start."""

    def gather(worker_pool):
        end = time.monotonic() + PATIENCE
        while len(worker_pool.members()) < 2:
            assert time.monotonic() < end
            time.sleep(HEARTBEAT)

    monkeypatch.setattr(WorkerPool, "_wait_for_workers", gather)


@pytest.fixture
def two(tmp_path):
    (tmp_path / "cluster").mkdir()
    cluster = DaskCluster(tmp_path / "cluster")
    for _ in range(2):
        cluster.add()
    yield cluster
    cluster.close()


@pytest.fixture
def path(tmp_path):
    return board(ROWS).save(tmp_path / "board")


def trained(data, cluster, watch=lambda event: None):
    """Train at most six rounds; return the model."""
    model, given = data.with_name("model"), {} if cluster is None else {"cluster": cluster.file}
    rule = {"sample_size": 100, "gap": 1e-4, "max_iterations": 6}
    api.train_randsvm(data, model, watch, gamma=5, **rule, **given)
    return model.read_bytes()


class Acting:
    """A listener that acts on the cluster at the second round and keeps the texts of notices."""

    def __init__(self, cluster, act):
        self.cluster, self.act, self.notices = cluster, act, []
        self.name = ""

    def __call__(self, event):
        if isinstance(event, Notice):
            self.notices.append(event.text)
        if isinstance(event, Iteration) and event.number == 2 and not self.name:
            with closing(WorkerPool(str(self.cluster.file))) as worker_pool:
                self.name = min(worker_pool.members())
                self.act(worker_pool, self.name)

    def named(self, text):
        """Return the number of notices with this text about the worker that was acted on."""
        return sum(f"worker {self.name}" in one and text in one for one in self.notices)


def run_on(worker_pool, function, *names):
    """Call a function of this module on some workers, or on all."""
    # Dask would send a named function by its name.
    return worker_pool.client.run(lambda: function(), workers=list(names) or None)


def set_status(status, worker_pool, *names):
    def change(dask_worker):
        dask_worker.status = Status[status]

    worker_pool.client.run(change, workers=list(names))


def test_others_do_the_work_of_a_paused_worker(two, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.PAUSED_SECONDS", 1.0)
    expected = trained(path, None)
    watch = Acting(two, partial(set_status, "paused"))
    assert trained(path, two, watch) == expected
    assert watch.named("has been paused since its memory is nearly full: others do its work") == 1


def test_a_run_ends_when_all_workers_are_paused(two, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.PAUSED_SECONDS", 1.0)
    monkeypatch.setattr("randsvm.cluster.worker_pool.SILENCE_SECONDS", 3.0)

    def pause_all(worker_pool, name):
        set_status("paused", worker_pool, *worker_pool.members())

    with pytest.raises(ClusterError, match=r"no worker .* has been running \(they are paused\)"):
        trained(path, two, Acting(two, pause_all))
    assert "paused" in oracle.trailer(path.with_name("model"))["stopped"]


def test_a_paused_worker_that_runs_again_takes_part_again(two, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.PAUSED_SECONDS", 1.0)
    with closing(WorkerPool(str(two.file))) as worker_pool:
        names = {*worker_pool.members()}
        name = min(names)
        for status, there in (("paused", names - {name}), ("running", names)):
            set_status(status, worker_pool, name)
            end = time.monotonic() + PATIENCE
            while {*worker_pool.members()} != there:
                assert time.monotonic() < end
                time.sleep(HEARTBEAT)


SECONDS = 15.0


def make_slow():
    """Delay every task over shards on this worker."""
    inner = worker.run_on_shards
    worker.slow = 0

    def slow(*words):
        worker.slow += 1
        time.sleep(SECONDS)
        return inner(*words)

    worker.run_on_shards = slow


def times_slow():
    return worker.slow


def test_others_do_the_work_of_a_slow_worker(two, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.SLOW_SECONDS", 1.0)
    expected = trained(path, None)
    watch = Acting(two, lambda worker_pool, name: run_on(worker_pool, make_slow, name))
    assert trained(path, two, watch) == expected
    assert watch.named("is slow: others do its work") == 1
    # Other workers waited for one task only.
    with closing(WorkerPool(str(two.file))) as worker_pool:
        assert run_on(worker_pool, times_slow, watch.name) == {watch.name: 1}


def test_waits_for_a_slow_worker_add_up():
    """Late tasks of a worker add up until a task is in time."""
    worker_pool = FakeWorkerPool("2")
    tasks = TaskBatch(worker_pool)

    def take(name, seconds):
        task = PendingTask(name, None, time.perf_counter() - seconds, 1.0, 0.0)
        tasks.measure(TaskResult(name, None, seconds=seconds, task=task))

    def is_late(seconds):
        task = PendingTask("worker 1", None, time.perf_counter() - seconds, 1.0, 0.0)
        tasks.pending = {DoneFuture(): task}
        return tasks._is_late(task, worker_pool.members())

    assert not is_late(1000.0)  # no other task is done
    take("worker 0", 1.0)
    assert not is_late(13.9)
    assert is_late(14.1)
    take("worker 1", 10.0)  # 6 seconds beyond 4 times those of the other
    tasks.paces = [1.0]
    assert not is_late(7.9)
    assert is_late(8.1)
    take("worker 1", 3.9)
    tasks.paces = [1.0]
    assert not is_late(13.9)
    assert is_late(14.1)


def limit_files():
    """Limit the size of files to a few bytes, as on a full disk."""
    # Python would leave truncated bytecode of the modules that it imports for the first time.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def begin_with(monkeypatch, act):
    """Act on the cluster when all workers are members, before the first pass."""
    gather = WorkerPool._wait_for_workers

    def then_act(worker_pool):
        gather(worker_pool)
        act(worker_pool)

    monkeypatch.setattr(WorkerPool, "_wait_for_workers", then_act)


def test_a_worker_without_disk_space_is_excluded(two, path, monkeypatch):
    expected = trained(path, None)
    monkeypatch.setattr(Resources, "data_bytes", property(lambda resources: 0))
    full = []

    def fill(worker_pool):
        full.append(min(worker_pool.members()))
        run_on(worker_pool, limit_files, *full)

    begin_with(monkeypatch, fill)
    notices = []

    def watch(event):
        if isinstance(event, Notice):
            notices.append(event.text)

    assert trained(path, two, watch) == expected
    text = f"worker {full[0]}: writing the spill file in"
    assert sum(notice.startswith(text) and "left out" in notice for notice in notices) == 1


def test_a_run_ends_when_no_worker_has_disk_space(two, path, monkeypatch):
    monkeypatch.setattr(Resources, "data_bytes", property(lambda resources: 0))
    begin_with(monkeypatch, lambda worker_pool: run_on(worker_pool, limit_files))
    with pytest.raises(TransferError, match=r"worker tcp://.*: writing the spill file") as error:
        trained(path, two)
    assert error.value.exit_code == 74


# ---- leases -----------------------------------------------------------------------------------


def cached_keys():
    cache = worker._cache
    return {*cache.datasets, *(key for key, _ in [*cache.ranges, *cache.cells])}


def shorten_lease():
    worker.LEASE_SECONDS = 3.0


def on_workers(worker_pool):
    return set().union(*run_on(worker_pool, cached_keys).values())


ENDLESS = """
import sys
from randsvm.cli import train
train.train.main(["randsvm", "-q", "-g", "5", "-c", "1000", "--gap", "1e-12", "--sample-size",
                  "20", "--cluster", *sys.argv[1:]], standalone_mode=False)
"""


def test_workers_release_the_rows_of_a_killed_run(two, tmp_path):
    data = board(20_000).save(tmp_path / "large")
    with closing(WorkerPool(str(two.file))) as worker_pool:
        run_on(worker_pool, shorten_lease)
        words = [sys.executable, "-c", ENDLESS, str(two.file), str(data), str(tmp_path / "m")]
        run = subprocess.Popen(words, start_new_session=True)
        end = time.monotonic() + PATIENCE
        while not on_workers(worker_pool):
            assert run.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        run.send_signal(signal.SIGKILL)
        run.wait()
        while left := on_workers(worker_pool):
            assert time.monotonic() < end, left
            time.sleep(0.5)


def test_workers_keep_the_rows_of_a_run_that_solves_for_long(two, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.RENEWAL_SECONDS", 0.5)
    begin_with(monkeypatch, lambda worker_pool: run_on(worker_pool, shorten_lease))
    job = Job(resources=Resources(cluster=str(two.file)))
    with closing(labelled_data.load_rows(str(path), Params(), job)) as D:
        before = on_workers(D.executor.worker_pool)
        assert before
        time.sleep(8)
        assert on_workers(D.executor.worker_pool) == before


def test_released_rows_are_sent_again(two, path):
    """A client that was stopped for some time loses its leases."""
    expected = trained(path, None)

    def release(worker_pool, name):
        run_on(worker_pool, forget_all)

    watch = Acting(two, release)
    assert trained(path, two, watch) == expected
    assert watch.name


def forget_all():
    lease, worker.LEASE_SECONDS = worker.LEASE_SECONDS, 0.0
    try:
        worker.release_expired()
        assert not cached_keys()
    finally:
        worker.LEASE_SECONDS = lease
