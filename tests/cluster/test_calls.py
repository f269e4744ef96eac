"""Calls on workers: cancellation, memory, waiting time, and what their caches keep."""

from __future__ import annotations

import pickle
import signal
import time
from contextlib import closing, nullcontext
from functools import partial
from types import SimpleNamespace

import cloudpickle
import oracle
import pytest
from commands import run_train
from learning import Data

from randsvm import api
from randsvm.data.reading import ParseOptions
from randsvm.errors import ClusterError, Interrupted
from randsvm.events import Iteration, Progress, Queued, Waiting, emit, listening
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Params
from randsvm.training import kernel_machine, labelled_data
from randsvm.training.job import Job

pytest.importorskip("distributed")
from fake_cluster import FakeWorkerPool

from randsvm.cluster import worker
from randsvm.cluster.connection import CLOSING_SECONDS
from randsvm.cluster.messages import CacheMiss, MapTask, StateTask, child_key
from randsvm.cluster.worker import _cache
from randsvm.cluster.worker_pool import WorkerPool, map_calls

# Rows of a file, and of a shard.
ROWS, SHARD = 300, 50


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr(labelled_data, "ParseOptions", partial(ParseOptions, chunk_rows=SHARD))
    monkeypatch.setattr("randsvm.cluster.byte_ranges.WorkerPool", FakeWorkerPool)


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    return Data(*oracle.clouds(ROWS)).save(tmp_path_factory.mktemp("calls") / "clouds")


@pytest.fixture
def D(clouds):  # noqa: N802 - the papers' name
    job = Job(resources=Resources(cluster="2"))
    with closing(labelled_data.load_rows(str(clouds), Params(), job)) as D:
        yield D


# State shared by functions that are pickled by name.
of_task = SimpleNamespace(key="", begun=0, ended=0)


def cancelled_in_the_second(shard):
    """Cancel the task in the second call; the argument is a shard or its state."""
    of_task.begun += 1
    if of_task.begun == 2:
        worker.cancel(of_task.key, NUMBER)
    emit(Waiting())
    of_task.ended += 1
    return 0


def nothing(shard):
    """Return the state of a shard, None."""


def nothing_of(state):
    return []


NUMBER = 7
VISIT = StateTask("run", pickle.dumps(nothing), 0, [], cancelled_in_the_second)


@pytest.mark.parametrize(
    ("message", "ended"),
    [(MapTask(cancelled_in_the_second), 1), (VISIT, 2)],
    ids=["map", "states"],
)
def test_a_cancelled_task_ends_but_completes_changes_of_states(D, monkeypatch, message, ended):
    executor = D.executor
    for name, value in {"key": executor.spec.key, "begun": 0, "ended": 0}.items():
        monkeypatch.setattr(of_task, name, value)
    words = executor.pickled_spec, pickle.dumps(message), NUMBER, D.shards, 1
    assert worker.run_on_shards(executor.spec.key, *words) == CacheMiss()
    assert len(D.shards) > 2
    assert (of_task.begun, of_task.ended) == (2, ended)
    worker.release_states(VISIT.states_key)


def test_cancelling_a_task_of_released_rows_stores_nothing(D):
    key = D.executor.spec.key
    list(D.executor.map(len, D.shards))
    worker.cancel(key, 1)
    assert (key, 1) in _cache.cancelled
    D.executor.release()
    worker.cancel(key, 2)
    assert not [one for one in _cache.cancelled if one[0] == key]


def test_a_call_ends_when_its_rows_are_released(D):

    def releasing():
        worker.release(key)
        emit(Waiting())

    with D.executor.replicated(D) as some:
        key = some.executor.spec.key
        words = key, some.executor.pickled_spec, cloudpickle.dumps(releasing), 1, 1
        assert worker.run_call(*words) == CacheMiss()


# ---- memory -----------------------------------------------------------------------------------


def test_folds_share_the_memory_of_a_worker_by_its_threads(tmp_path, monkeypatch, clouds):
    shares = []

    class Noted(kernel_machine.Subtasks):
        def __init__(self, D, params, resources, at_once=1, **more):
            shares.append(at_once)
            super().__init__(D, params, resources, at_once, **more)

    monkeypatch.setattr(kernel_machine, "Subtasks", Noted)
    monkeypatch.setattr(FakeWorkerPool, "threads", 3)
    words = ["randsvm", "-q", "-g", 1, "-c", "1,4", "-v", 2, "--gap", 0.1, "--jobs", 2]
    words += ["--search-gap", 0.1]
    run_train(*words, clouds, tmp_path / "here")
    assert set(shares) == {1, 2}
    shares.clear()
    run_train(*words, "--cluster", 2, clouds, tmp_path / "there")
    assert set(shares) == {1, 3}
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


# ---- what caches keep ---------------------------------------------------------------------------


def cached_keys():
    """Return the keys of the data sets and states in the cache of this process."""
    with _cache.lock:
        return {*_cache.datasets, *_cache.make_state, *(run for run, _ in _cache.cells)}


def never(event):
    return False


def a_round(event):
    return isinstance(event, Iteration)


def a_scan(event):
    return isinstance(event, Progress) and event.stage == "scanning"


def a_fold(event):
    return isinstance(event, Progress) and event.stage == "cross-validation"


TWO = oracle.two_gaussians(ROWS)
# Rows, parameters, folds, and the event at which a signal comes.
RUNS = {
    "folds for probabilities": (TWO, {"gamma": 1.0, "probability": True}, None, never),
    "folds of a search": (TWO, {"gamma": 1.0}, 2, never),
    "a signal in the rounds": (TWO, {"gamma": 1.0}, None, a_round),
    "a signal in the rounds of a pair": (oracle.clouds(ROWS), {"gamma": 1.0}, None, a_round),
    "a signal before the first one": (oracle.clouds(ROWS), {"gamma": 1.0}, None, a_scan),
    "a signal in the folds": (oracle.clouds(ROWS), {"gamma": 1.0}, 2, a_fold),
}


def interrupted_at(matches):
    """Return a listener that raises Interrupted when an event matches."""

    def watch(event):
        if matches(event):
            raise Interrupted(signal.SIGTERM)

    return watch


@pytest.fixture
def large(monkeypatch):
    """Make the data set too large to replicate, and its pairs too large for this process."""
    monkeypatch.setattr("randsvm.training.cross_validation.COPIED_NONZEROS", 100)
    monkeypatch.setattr("randsvm.training.multiclass.FEW_ROWS", 100)


def train(folder, rows, options, folds, watch):
    given = {**options, "folds": folds} if folds else options
    path = Data(*rows).save(folder / "d")
    api.train_randsvm(path, folder / "m", watch, sample_size=60, gap=0.3, cluster="2", **given)


@pytest.mark.parametrize(("rows", "params", "folds", "end"), RUNS.values(), ids=RUNS)
def test_workers_release_all_data_of_a_run(
    tmp_path,
    large,
    rows,
    params,
    folds,
    end,
):
    before = cached_keys()
    with nullcontext() if end is never else pytest.raises(Interrupted):
        train(tmp_path, rows, params, folds, interrupted_at(end))
    # Cancelled folds end a little later.
    latest = time.monotonic() + 60
    while cached_keys() - before and time.monotonic() < latest:
        time.sleep(0.01)
    assert cached_keys() == before


@pytest.mark.parametrize("name", ["folds for probabilities", "folds of a search"])
def test_workers_release_the_states_of_finished_folds(tmp_path, large, monkeypatch, name):
    """Workers hold the states of running folds only."""
    monkeypatch.setattr(Resources, "concurrent_fits", lambda resources, rows: 1)
    rows, params, folds, _ = RUNS[name]
    most = 0

    def watch(event):
        nonlocal most
        with _cache.lock:
            most = max(most, len({run for run, _ in _cache.cells}))

    train(tmp_path, rows, params, folds, watch)
    assert most == 1


def test_a_run_that_is_over_submits_no_tasks(D):
    """A late thread of the run would make workers cache the rows again."""
    executor, shards = D.executor, D.shards
    assert list(executor.map(lambda shard: shard.number, shards)) == [one.number for one in shards]
    D.close()
    with pytest.raises(ClusterError, match="over"):
        list(executor.map(lambda shard: shard.number, shards))
    assert executor.spec.key not in _cache.datasets


def test_released_rows_take_their_states_with_them(D):
    shard, key = D.shards[0], D.executor.spec.key
    other = child_key(key)
    for run in (other, child_key(other), "another"):
        visit = StateTask(run, pickle.dumps(nothing), 0, [], nothing_of)
        worker.run_on_shards(key, D.executor.pickled_spec, pickle.dumps(visit), NUMBER, [shard], 1)
    worker.release(key)
    assert {run for run, _ in _cache.cells} == {*_cache.make_state} == {"another"}
    worker.release_states("another")


# ---- time -------------------------------------------------------------------------------------


def test_a_lost_or_waiting_call_emits_queued(D, monkeypatch):
    emitted = []
    with D.executor.replicated(D) as some:
        worker_pool = some.executor.worker_pool
        lost, busy = worker_pool.submitted, some.executor.running
        monkeypatch.setattr(worker_pool, "losses", frozenset([lost]))
        busy.update(worker_pool.names)

        def watch(event):
            emitted.append(event)
            if len(emitted) == 3:
                busy.clear()

        with listening(watch):
            assert some.executor.call(lambda: some.n) == ROWS
    # Three events while it waits for a thread, and one after the loss.
    assert sum(isinstance(event, Queued) for event in emitted) == 4


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock by one that advances by the seconds of sleep()."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds):
        clock.now += seconds

    time = SimpleNamespace(perf_counter=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr("randsvm.cluster.worker_pool.time", time)
    return clock


def test_all_waits_at_the_end_of_a_run_have_one_deadline(clock):
    worker_pool = FakeWorkerPool("1")
    WorkerPool.wait(worker_pool, lambda: True)
    assert clock.now == 0
    for _ in range(3):
        WorkerPool.wait(worker_pool, lambda: False)
    assert 0 < clock.now < CLOSING_SECONDS


def release_expired(shard):
    worker.release_expired()
    return len(_cache.datasets)


def test_rows_in_use_outlive_their_lease(D, monkeypatch):
    monkeypatch.setattr(worker, "LEASE_SECONDS", -1.0)
    assert set(D.map(release_expired)) == {1}
    worker.release_expired()
    assert not cached_keys()


def test_losses_end_a_run_only_without_results_between_them(
    monkeypatch,
):
    monkeypatch.setattr("randsvm.cluster.worker_pool.EXTRA_LOSSES", 2)
    calls = [(number,) for number in range(9)]
    monkeypatch.setattr(FakeWorkerPool, "losses", frozenset(n for n in range(99) if n % 4))
    results = map_calls(FakeWorkerPool("1"), float, calls)
    assert [one.result for one in results] == [float(number) for number in range(9)]
    monkeypatch.setattr(FakeWorkerPool, "losses", frozenset(range(99)))
    with pytest.raises(ClusterError, match="lose their data repeatedly"):
        list(map_calls(FakeWorkerPool("1"), float, calls))


def test_the_digest_of_rows_on_workers_is_that_of_one_process(D, clouds):
    with closing(labelled_data.load_rows(str(clouds), Params(), Job())) as here:
        assert len(here.shards) > 1
        assert D.summary.digest == here.summary.digest
