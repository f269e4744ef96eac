"""The protocol of client and workers in thousands of simulated schedules; see simulated_cluster.

Each schedule makes random changes, queries, restarts, calls and interruptions while workers fail,
and compares every answer with one machine. Changes do not commute, so a change that is lost, done
twice or out of order is seen.
"""

import asyncio
import gzip
import lzma
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from base import Resources, parallel
from clusters import ClusterExecutor, WorkerPool, calls_on
from commands import run_predict, run_train
from learning import Data, board, read_log
from model_files import load_model
from rows import Executor, ParseOptions, dataset
from simulated_cluster import SimulatedCluster, simulate_clusters

import randsvm
from randsvm import Arrays, api
from randsvm.errors import ClusterError, ParameterError, RandsvmError, SpillError
from randsvm.events import Waiting, emit, listening

PRIME = 1_000_003
ROWS, CHUNK = 60, 5
SCHEDULES = 300


@pytest.fixture(autouse=True)
def all_passes_on_workers(set_sizes):
    set_sizes(remote_rows=0)


def rows(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(1, 9, (ROWS, 2)).astype(float), rng.integers(0, 2, ROWS)
    return dataset.load(Arrays(X, y), ParseOptions(chunk_rows=CHUNK), Resources(jobs=1))


# --- states whose changes do not commute ------------------------------------------------------


class Digest:
    """A state: a number that depends on the rows of a shard and on each change in its order."""

    def __init__(self, D, factor, shard):
        total = D.chunk_matrix(shard).toarray().sum() * factor + D.labels_of(shard).sum()
        self.shard, self.start = shard, int(total)
        self.value = self.start


class Multiply(NamedTuple):
    by: int

    def __call__(self, state):
        state.value = (state.value * self.by + state.shard.number + 1) % PRIME


class Begin(NamedTuple):
    at: int

    def __call__(self, state):
        state.value = state.start + self.at


class Fail(NamedTuple):
    """A change that fails in the middle."""

    shard: int

    def __call__(self, state):
        state.value += 1
        if state.shard.number == self.shard:
            raise ParameterError("a value leaves float64")


class Values(NamedTuple):
    times: int

    def __call__(self, state):
        return [state.value * self.times]


def answer(states, question):
    """Return the rows and values of a query in order, however the reports are joined."""
    found = list(states.query(question))
    return sum(n for n, _ in found), [value for _, report in found for value in report]


def total(D, factor):
    D = D.subset(np.ones(D.n, bool))
    return sum(int(D.chunk_matrix(shard).toarray().sum()) for shard in D.shards) * factor


def of_shard(D, shard):
    return int(D.chunk_matrix(shard).toarray().sum()), shard.start


class Schedule:
    """A random course of a client, on a simulated cluster and on one machine side by side."""

    def __init__(self, seed, faults):
        self.random, D = random.Random(seed), rows(seed)
        self.local, self.cluster = D, SimulatedCluster(seed, self.random.randint(1, 4), faults)
        self.pool = WorkerPool(self.cluster)
        resources = Resources(jobs=1)
        mask = np.random.default_rng(seed).random(ROWS) < self.random.choice([0.3, 1.0])
        view = D if mask.all() or not mask.any() else D.subset(mask)
        self.local = view._copy_with(executor=Executor(None))
        self.remote = view._copy_with(executor=ClusterExecutor(self.pool, D, resources))
        self.states = []

    def run(self):
        steps = [self.change, self.change, self.query, self.query, self.query, self.restart]
        steps += [self.begin, self.end, self.leave, self.call, self.distribute, self.fail]
        self.begin()
        for _ in range(self.random.randint(3, 14)):
            self.random.choice(steps)()
        self.query()
        self.pool.close()
        assert self.cluster.held() == 0
        return self.cluster

    def begin(self):
        factor = self.random.randint(1, 9)
        both = [
            D.executor.states(partial(Digest, D, factor), D.shards)
            for D in (self.local, self.remote)
        ]
        assert type(both[0]) is not type(both[1])
        self.states.append(both)

    def end(self):
        if len(self.states) > 1:
            for states in self.states.pop(self.random.randrange(len(self.states))):
                states.close()

    def change(self):
        change = Multiply(self.random.randint(2, 99))
        for states in self.random.choice(self.states):
            states.change(change)

    def restart(self):
        change = Begin(self.random.randint(0, 99))
        for states in self.random.choice(self.states):
            states.restart(change)

    def query(self):
        question = Values(self.random.randint(1, 9))
        local, remote = self.random.choice(self.states)
        assert answer(remote, question) == answer(local, question)

    def leave(self):
        """Stop a query in the middle, as a signal does."""
        local, remote = self.random.choice(self.states)
        reports = remote.query(Values(1))
        if self.random.random() < 0.7:
            next(reports)
        reports.close()
        answer(local, Values(1))
        self.cluster.sleep(self.random.choice([0.0, 0.1, 5.0]))

    def fail(self):
        """Let a change fail on one shard; a restart follows, as after such an error in a run."""
        local, remote = self.random.choice(self.states)
        remote.change(Fail(self.random.randrange(len(self.remote.shards))))
        with pytest.raises(ParameterError):
            list(remote.query(Values(1)))
        for states in (local, remote):
            states.restart(Begin(3))

    def call(self):
        factor = self.random.randint(1, 9)
        with self.remote.executor.replicated(self.remote) as view:
            found = view.executor.call(partial(total, view, factor))
        assert found == total(self.local, factor)

    def distribute(self):
        found = list(
            self.remote.executor.distribute(
                partial(of_shard, self.remote), self.remote.shards, lambda shard: [shard.number]
            )
        )
        assert found == [of_shard(self.local, shard) for shard in self.local.shards]


@pytest.mark.parametrize("first", range(0, SCHEDULES, SCHEDULES // 3))
def test_schedules_with_faults_give_the_answers_of_one_machine(first):
    for seed in range(first, first + SCHEDULES // 3):
        Schedule(seed, faults=seed % 7).run()


# --- single faults ----------------------------------------------------------------------------


@contextmanager
def at_most(cluster, seconds):
    """Fail if something takes longer on the clock of a cluster."""
    end = cluster.time + seconds

    def watch(event):
        assert cluster.time < end, f"still waiting after {seconds} s"

    with listening(watch):
        yield
    assert cluster.time < end


def queried(D):
    """Return the answers of one machine and of the cluster to a query."""
    here = D._copy_with(executor=Executor(None))
    both = [one.executor.states(partial(Digest, one, 2), one.shards) for one in (here, D)]
    return [answer(states, Values(3)) for states in both]


@pytest.fixture
def cluster():
    """A cluster of two workers with one thread each, and rows on it."""
    cluster = SimulatedCluster(0, 2)
    for worker in cluster.workers.values():
        worker.threads = 1
    pool, D = WorkerPool(cluster), rows(0)
    yield cluster, D._copy_with(executor=ClusterExecutor(pool, D, Resources(jobs=1)))
    pool.close()


def test_a_worker_that_is_busy_with_other_work_is_waited_for_once(cluster):
    cluster, D = cluster
    cluster.workers["worker 0"].busy = 500.0
    with at_most(cluster, 40.0):
        for _ in range(10):
            local, remote = queried(D)
            assert remote == local
    assert not cluster.workers["worker 0"].actors
    cluster.sleep(600.0)
    queried(D)
    assert cluster.workers["worker 0"].actors


def test_a_pass_that_waits_for_workers_shows_it(cluster):
    cluster, D = cluster
    for worker in cluster.workers.values():
        worker.busy = 20.0
    stages = set()
    with listening(lambda event: stages.add(getattr(event, "stage", None))):
        queried(D)
    assert "waiting for workers" in stages


def test_others_do_the_work_of_a_worker_whose_starts_fail(cluster):
    cluster, D = cluster
    cluster.workers["worker 0"].failing = 30.0
    with at_most(cluster, 20.0):
        local, remote = queried(D)
    assert remote == local
    cluster.sleep(20.0)
    queried(D)
    assert cluster.workers["worker 0"].actors


def test_a_worker_whose_starts_always_fail_is_left_out(cluster):
    """If there is no other worker, the run ends with the error of the starts."""
    cluster, D = cluster
    cluster.workers["worker 0"].failing = math.inf
    queried(D)
    cluster.sleep(200.0)
    local, remote = queried(D)
    assert remote == local
    cluster.kill("worker 1")
    cluster.sleep(1.0)
    reason = "worker worker 0 starts no actor: no new thread"
    with at_most(cluster, 100.0), pytest.raises(ClusterError, match=reason):
        queried(D)


def test_messages_do_not_wait_while_chunks_are_read(cluster, monkeypatch):
    cluster, D = cluster
    read, loops = D.store.read, []

    def noted(number):
        loops.append(asyncio._get_running_loop())
        return read(number)

    monkeypatch.setattr(D.store, "read", noted)
    list(D.executor.states(partial(Digest, D, 2), D.shards).query(Values(3)))
    assert len(loops) == len(D.shards) and not any(loops)


def test_an_interrupted_delivery_is_made_again(cluster, monkeypatch):
    """As after a time limit, when the rows are read again for the closing evaluation."""
    cluster, D = cluster

    def interrupted(number):
        raise TimeoutError

    with monkeypatch.context() as patch, pytest.raises(TimeoutError):
        patch.setattr(D.store, "read", interrupted)
        list(D.executor.states(partial(Digest, D, 2), D.shards).query(Values(3)))
    with at_most(cluster, 10.0):
        local, remote = queried(D)
    assert remote == local


def test_actors_free_what_the_client_no_longer_uses(cluster):
    cluster, D = cluster
    for _ in range(5):
        queried(D)
    actors = [actor for worker in cluster.workers.values() for actor in worker.actors]
    # The store and the summary of the data set, and the states of the last query.
    assert [len(actor.held) for actor in actors] == [3, 3]


class Unreadable:
    """A result that the client cannot read."""

    def __reduce__(self):
        return int, ("no number",)


def test_a_reply_that_cannot_be_read_leaves_its_worker_free(cluster):
    cluster, D = cluster
    with at_most(cluster, 40.0):
        with (
            D.executor.replicated(D) as view,
            pytest.raises(ValueError, match="no number"),
        ):
            view.executor.call(Unreadable)
        local, remote = queried(D)
    assert remote == local


class Unsendable:
    """A result that cannot be pickled."""

    def __reduce__(self):
        raise TypeError("no pickle")


class OddError(Exception):
    """An error that cannot be made again from its pickle."""

    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def odd():
    raise OddError("no", "pickle")


@pytest.mark.parametrize(
    ("work", "kind", "words"),
    [(Unsendable, TypeError, "no pickle"), (odd, RandsvmError, "OddError: no pickle")],
)
def test_a_worker_whose_reply_cannot_be_pickled_is_not_lost(cluster, work, kind, words):
    cluster, D = cluster
    with at_most(cluster, 40.0):
        with D.executor.replicated(D) as view, pytest.raises(kind, match=words):
            view.executor.call(work)
        local, remote = queried(D)
    assert remote == local


def noticed(view):
    emit(Waiting())
    return view.n


def test_a_call_that_nobody_waits_for_ends(cluster):
    cluster, D = cluster
    cluster.kill("worker 1")

    def watch(event):
        if cluster.time > end:
            raise TimeoutError

    with D.executor.replicated(D) as view:
        for _ in range(3):
            view.executor.call(partial(noticed, view))
        cluster.durations, end = [1000.0], cluster.time + 1.0
        with listening(watch), pytest.raises(TimeoutError):
            view.executor.call(partial(noticed, view))
        actors = [actor for worker in cluster.workers.values() for actor in worker.actors]
        with at_most(cluster, 10.0):
            cluster.sleep(1.0)
            # The actor was asked to cancel the call.
            assert [len(actor.forgotten) for actor in actors] == [1]
            view.executor.call(partial(noticed, view))
            local, remote = queried(D)
    assert remote == local
    # The actors keep what they hold.
    assert actors == [actor for worker in cluster.workers.values() for actor in worker.actors]


def test_the_threads_of_a_worker_get_a_shared_object_once(monkeypatch):
    cluster = SimulatedCluster(0, 1)
    cluster.workers["worker 0"].threads, cluster.durations = 4, [100.0] * 4
    simulate_clusters(monkeypatch, lambda workers: cluster)
    model = np.ones(100_000)
    with calls_on("1", model) as in_order:
        assert list(in_order([partial(np.sum, model)] * 20)) == [1e5] * 20
    assert model.nbytes < cluster.bytes_sent < 2 * model.nbytes


class SlowlyPickled:
    def __reduce__(self):
        time.sleep(0.05)
        return SlowlyPickled, ()


def test_threads_that_share_an_object_at_once_get_one_record(cluster):
    _, D = cluster
    pool, value = D.executor.worker_pool, SlowlyPickled()
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(pool.share, [value] * 3))
    assert found == [found[0]] * 3


def test_calls_that_begin_at_once_are_made_by_different_workers(cluster):
    _, D = cluster
    pool, chosen = D.executor.worker_pool, []
    shared, task = pool.share(D), pool.dumps(lambda actor, shards: [])
    pool.members()

    def plan(members):
        free = [one for one in members if len(one.tasks) < one.threads]
        chosen.extend(one.name for one in free[:1])
        return dict.fromkeys(free[:1], D.shards[:1])

    async def calls():
        one = partial(pool.reports, D.shards[:1], plan, lambda *its: task, shared, lambda _: [])
        await asyncio.gather(one(), one())

    pool.run(calls())
    assert sorted(chosen) == ["worker 0", "worker 1"]


def test_a_fault_of_the_requests_for_the_state_of_the_cluster_ends_the_run(cluster, monkeypatch):
    cluster, D = cluster

    async def identity():
        return {"worker 0": {}}

    monkeypatch.setattr(cluster, "identity", identity)
    with pytest.raises(KeyError):
        queried(D)


# --- whole runs --------------------------------------------------------------------------------

BOARD, SHARD = 600, 60

RUNS = {
    "rbf": "randsvm -g 5 --sample-size 100 --gap 0.1",
    "weights": "randsvm -g 5 --sample-size 100 --gap 0.1 -w1 3 --scale standard",
    "osuna linear": "osuna -t linear --working-set 100 --gap 0.05 --max-iterations 4",
    "float64": "randsvm -g 5 --gap 0.00002 --max-iterations 3",
    "random features": "randsvm -g 5 --components 20 --gap 0.3 --max-iterations 3",
    "one-class": "randsvm -s one-class -n 0.1 -g 5 --sample-size 100 --gap 0.01",
    "nu-svc": "randsvm -s nu-svc -n 0.4 -g 5 --sample-size 100 --gap 0.01",
    "nu-svr": "randsvm -s nu-svr -n 0.5 -g 5 --sample-size 100 --gap 0.01",
    "reduced": "randsvm -g 5 --sample-size 100 --gap 0.05 --reduce 30",
    "regression": "osuna -s svr -p 0.5 -g 5 --working-set 100 --max-iterations 4",
    "probabilities": "randsvm -g 5 --sample-size 100 --gap 0.1 -b 1",
    "folds": "randsvm -g 1,5 --sample-size 100 --gap 0.1 -v 3 --search-gap 0.2",
}


@pytest.fixture
def clusters(monkeypatch, set_sizes):
    """Let --cluster N be a simulated cluster of N workers; return a dictionary of their faults."""
    settings = {"faults": 0, "seconds": 5.0, "seed": 0}

    def make(workers):
        return SimulatedCluster(settings["seed"], workers, settings["faults"], settings["seconds"])

    settings["made"] = simulate_clusters(monkeypatch, make)
    set_sizes(chunk_rows=SHARD, float64_rows=0)
    return settings


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return board(BOARD).save(tmp_path_factory.mktemp("simulated") / "board")


@pytest.mark.parametrize("faults", [0, 8])
@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_a_cluster_writes_the_bytes_of_one_machine(clusters, tmp_path, path, words, faults):
    clusters["faults"] = faults
    run_train(*words.split(), "-q", path, tmp_path / "here")
    run_train(*words.split(), "-q", "--cluster", 3, path, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    (cluster,) = clusters["made"]
    assert cluster.calls and cluster.closed and not cluster.held()


@pytest.mark.parametrize("float64_rows", [0, BOARD])
def test_fits_that_share_work_take_the_threads_of_the_client(
    clusters, tmp_path, path, monkeypatch, set_sizes, float64_rows
):
    set_sizes(float64_rows=float64_rows)
    threads, actual = [], parallel.completed_results

    def completed(calls, count, *arguments):
        threads.append(count)
        return actual(calls, count, *arguments)

    monkeypatch.setattr("randsvm.training.cross_validation.completed_results", completed)
    words = RUNS["folds"].replace("--search-gap 0.2", "") if float64_rows else RUNS["folds"]
    run_train(*words.split(), "-q", "--jobs", 1, "--cluster", 3, path, tmp_path / "there")
    assert set(threads) == {1}


@pytest.mark.parametrize("seed", range(6))
def test_no_schedule_changes_a_byte_of_a_model(clusters, tmp_path, path, seed):
    words = ["randsvm", "-q", "-g", 5, "--sample-size", 100, "--gap", 0.01, "--max-iterations", 5]
    run_train(*words, path, tmp_path / "here")
    clusters.update(seed=seed, faults=12, seconds=3.0)
    run_train(*words, "--cluster", 1 + seed % 4, path, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_pairs_of_classes_on_workers_have_the_bytes_of_one_machine(clusters, tmp_path):
    data = Data(*oracle.clouds(BOARD)).save(tmp_path / "clouds")
    words = ["randsvm", "-q", "-g", 1, "--sample-size", 60, "--gap", 0.01, "--max-iterations", 5]
    run_train(*words, data, tmp_path / "here")
    run_train(*words, "--cluster", 3, data, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def written(kind, path, folder):
    """Write the rows of the board in another form; return the source and the options."""
    y, X = board(BOARD)
    if kind == "arrays":
        return randsvm.Arrays(X, y.astype(int)), {}
    if kind == "cache":
        return str(path), {"cache": str(folder / "cache")}
    if kind in ("gz", "xz"):
        found = folder / f"board.{kind}"
        found.write_bytes({"gz": gzip, "xz": lzma}[kind].compress(path.read_bytes()))
        return str(found), {}
    if kind == "precomputed":
        K = oracle.kernel_matrix("rbf", X, X, 5.0)
        rows = np.column_stack([np.arange(1, len(y) + 1), K])
        kernel = oracle.write_rows(folder / "kernel", y, rows, 0)
        return str(kernel), {"kernel": "precomputed", "gamma": None}
    table = np.column_stack([y, X])
    np.savetxt(folder / "board.csv", table, "%.17g", ",", header="y,a,b", comments="")
    return str(folder / "board.csv"), {"format": "csv", "label_column": "y"}


@pytest.mark.parametrize("kind", ["arrays", "cache", "gz", "xz", "csv", "precomputed"])
def test_a_cluster_trains_on_everything_that_one_machine_reads(clusters, tmp_path, path, kind):
    data, options = written(kind, path, tmp_path)
    given = {"gamma": 5.0, "gap": 0.1, "sample_size": 100, **options}
    api.train(data, tmp_path / "here", **given)
    api.train(data, tmp_path / "there", cluster="2", **given)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    assert clusters["made"][0].calls


def test_small_work_stays_in_the_client(clusters, tmp_path, path, set_sizes):
    set_sizes(remote_rows=BOARD + 1)
    texts = []

    def watch(event):
        texts.append(getattr(event, "text", ""))

    api.train(str(path), tmp_path / "m", "randsvm", watch, gamma=5.0, cluster="2")
    assert not clusters["made"][0].sent
    found = f"fewer than {BOARD + 1} rows: this process makes the scans of kernel machines itself"
    assert found in texts


@pytest.mark.parametrize("asked", ["", "--scores", "--metrics"])
@pytest.mark.parametrize("kind", ["plain", "gz"])
def test_workers_predict_in_the_order_of_the_rows(clusters, tmp_path, path, asked, kind):
    run_train("randsvm", "-q", "-g", 5, path, tmp_path / "m")
    data = path if kind == "plain" else written(kind, path, tmp_path)[0]
    run_predict("-q", *asked.split(), data, tmp_path / "m", tmp_path / "here")
    clusters["faults"] = 4
    run_predict("-q", *asked.split(), "--cluster", 2, data, tmp_path / "m", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    assert clusters["made"][0].calls


def test_the_best_model_is_written_when_all_workers_are_gone(clusters, tmp_path, path):
    def watch(event):
        if type(event).__name__ == "Iteration" and event.number == 2:
            (cluster,) = clusters["made"]
            for name in list(cluster.workers):
                cluster.kill(name)

    with pytest.raises(ClusterError, match="no worker of the cluster has answered for 60 s"):
        api.train(
            str(path),
            tmp_path / "m",
            "randsvm",
            watch,
            gamma=5.0,
            gap=1e-5,
            sample_size=60,
            cluster="2",
        )
    assert load_model(tmp_path / "m").beta.size
    assert "no worker" in oracle.trailer(tmp_path / "m")["stopped"]


def test_the_log_counts_the_bytes_of_messages(clusters, tmp_path, path):
    words = ["-g", 5, "--gap", 0.01, "--sample-size", 60, "--log", tmp_path / "log"]
    run_train("randsvm", "-q", *words, "--cluster", 2, path, tmp_path / "m")
    moved = [one["bytes_moved"] for one in read_log(tmp_path / "log") if "bytes_moved" in one]
    assert moved == sorted(moved) and moved[0] > 0


def full_disk(workers):
    """Return a cluster whose first worker has no disk space."""
    cluster = SimulatedCluster(1, workers)
    cluster.workers["worker 0"].has_disk = False
    return cluster


def test_workers_without_disk_space_are_left_out(clusters, tmp_path, path, monkeypatch):
    """If there is no other worker, the run ends with the error of the worker."""
    words = ["randsvm", "-q", "-g", 5, "--gap", 0.1, "--sample-size", 100]
    run_train(*words, path, tmp_path / "here")
    simulate_clusters(monkeypatch, full_disk)
    run_train(*words, "--cluster", 2, path, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    with pytest.raises(SpillError, match=r"worker worker 0: writing the spill file"):
        run_train(*words, "--cluster", 1, path, tmp_path / "m")
