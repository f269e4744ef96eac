"""Training on real worker processes gives the bytes of one process, even if workers are killed."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, nullcontext, suppress
from functools import partial

import numpy as np
import oracle
import pytest
from commands import run_predict, run_train
from dask_cluster import PATIENCE, DaskCluster
from learning import Data, board, read_log

from randsvm import api
from randsvm.algorithms import inner_set
from randsvm.algorithms import randsvm as algorithms
from randsvm.data.reading import ParseOptions
from randsvm.data.shard_executor import ClusterTimes
from randsvm.errors import (
    ClusterError,
    DataError,
    Interrupted,
    ParameterError,
)
from randsvm.events import Epoch, Iteration, Notice, Progress, Tried, Waiting, emit, listening
from randsvm.models import prediction
from randsvm.models.load import load
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Params
from randsvm.training import labelled_data
from randsvm.training.job import Job
from randsvm.training.kernel_machine import KernelTrainer
from randsvm.training.linear_machine import LinearTrainer

pytest.importorskip("distributed")
from distributed.utils import LoopRunner
from fake_cluster import DoneFuture, FakeWorkerPool

from randsvm.cluster import connection
from randsvm.cluster.byte_ranges import first_pass, text_file_at
from randsvm.cluster.connection import arithmetic
from randsvm.cluster.worker import release
from randsvm.cluster.worker_pool import TaskBatch, WorkerPool, map_calls

# dask leaves sockets and tasks to the end of a process that closes without waiting.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = DaskCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture
def two(cluster):
    """Return the cluster with at least two workers."""
    while len(cluster.workers) < 2:
        cluster.add()
    return cluster


# Rows of a file, and of a shard.
ROWS, SHARD = 1000, 150


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    small = partial(ParseOptions, chunk_rows=SHARD)
    monkeypatch.setattr(labelled_data, "ParseOptions", small)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Save a file with comments, blank lines and a byte order mark, without a last newline."""
    path = board(ROWS).save(tmp_path_factory.mktemp("cluster") / "board")
    lines = path.read_text().splitlines()
    for at in range(0, ROWS, 97):
        lines[at] += " # the end\n\n  # a line of its own"
    path.write_text("\ufeff" + "\r\n".join(lines))
    return path


def check_same_model(cluster, folder, data, *words):
    """Check that the model of the cluster has the bytes of a model of this process."""
    run_train(*words, "-q", data, folder / "here")
    run_train(*words, "-q", "--cluster", cluster.file, data, folder / "there")
    assert (folder / "there").read_bytes() == (folder / "here").read_bytes()


RUNS = {
    "rbf": "randsvm -g 5 --sample-size 100 --gap 0.1",
    "weights": "randsvm -g 5 --sample-size 100 --gap 0.1 -w1 3 --scale standard",
    "osuna linear": "osuna -t linear --working-set 100 --gap 0.05 --max-iterations 4",
    "printed rule": "randsvm -g 5 -k 200 --sample-size 300 --scale minmax",
    "float64": "randsvm -g 5 --gap 0.00002 --max-iterations 3",
    "random features": "randsvm -g 5 --components 20 --gap 0.3 --max-iterations 3",
    "one-class": "randsvm -s one-class -n 0.1 -g 5 -b 1 --sample-size 100 --gap 0.01",
    "nu-svc": "randsvm -s nu-svc -n 0.4 -g 5 --sample-size 100 --gap 0.01",
    "nu-svr": "randsvm -s nu-svr -n 0.5 -g 5 --sample-size 100 --gap 0.01",
    "reduced": "randsvm -g 5 --sample-size 100 --gap 0.05 --reduce 30",
    "reduced to a gap": "randsvm -g 5 --sample-size 100 --gap 0.1 --reduce auto",
    "regression": "osuna -s svr -p 0.5 -g 5 --working-set 100 --max-iterations 4",
}


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_a_cluster_writes_the_bytes_of_one_process(two, tmp_path, path, words):
    check_same_model(two, tmp_path, path, *words.split())


@pytest.mark.parametrize(
    "words",
    [
        "randsvm -g 5 --sample-size 100 --gap 0.1",
        "randsvm -s nu-svr -n 0.5 -g 5 --sample-size 100 --gap 0.01",
        "sgd --epochs 2",
    ],
)
def test_a_file_of_weights_gives_the_bytes_of_one_process(two, tmp_path, path, words):
    weights = np.round(np.random.default_rng(1).exponential(size=ROWS), 2)
    weights[::7] = 0.0
    (tmp_path / "w").write_text("".join(f"{weight}\n" for weight in weights.tolist()))
    given = [*words.split(), "--row-weights", tmp_path / "w"]
    if words[:3] != "sgd":
        check_same_model(two, tmp_path, path, *given)
    else:
        # On a cluster sgd averages groups of rows, also without weights.
        run_train(*given, "-q", "--cluster", two.file, path, tmp_path / "there")
    costs, lines, left = tmp_path / "costs", [], iter(weights.tolist())
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        label, space, features = line.partition(" ")
        is_row = bool(line.split("#")[0].split())
        lines.append(f"{label} cost:{next(left)}{space}{features}" if is_row else line)
    costs.write_text("\n".join(lines))
    run_train(*words.split(), "-q", "--cluster", two.file, costs, tmp_path / "other")
    assert same_lines(tmp_path / "there") == same_lines(tmp_path / "other")


@pytest.mark.parametrize(
    "words",
    [
        "randsvm -g 5 -c 1,8 --search-gap 0.05 --gap 0.1",
        "randsvm -g 5 -v 3 -b 1 --sample-size 100 --search-gap 0.05 --gap 0.1 --subset 500",
    ],
)
def test_folds_on_a_cluster_keep_groups(two, tmp_path, path, words):
    qids = iter((np.random.default_rng(1).integers(0, 60, ROWS)).tolist())
    lines = []
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        label, space, features = line.partition(" ")
        is_row = bool(line.split("#")[0].split())
        lines.append(f"{label} qid:{next(qids)}{space}{features}" if is_row else line)
    (tmp_path / "d").write_text("\n".join(lines))
    check_same_model(two, tmp_path, tmp_path / "d", *words.split(), "--groups", "qid")


def same_lines(model):
    """Return the lines of a model except those that name options or depend on them."""
    own = b"# randsvm configuration", b"# randsvm sha256"
    return [line for line in model.read_bytes().splitlines() if not line.startswith(own)]


@pytest.mark.parametrize(
    "words",
    [
        "-g 5",
        "-g 5 -w1 3",
        "-s one-class -n 0.1 -g 5",
        "-g 5 --reduce 100",
        "-g 5 --reduce auto",
    ],
)
def test_inner_sets_on_a_cluster_give_the_bytes_of_one_process(
    two, tmp_path, path, monkeypatch, words
):
    monkeypatch.setattr(inner_set, "FROM_ROWS", ROWS)
    monkeypatch.setattr(algorithms, "MAX_PART", 1.0)
    words += " --sample-size 100 --gap 0.05"
    check_same_model(two, tmp_path, path, "randsvm", *words.split(), "--log", tmp_path / "log")
    rounds = [one for one in read_log(tmp_path / "log") if one["event"] == "iteration"]
    assert len({one["inner_set"] for one in rounds}) > 2
    # With --reduce all rows are scanned with few support vectors after the first scan.
    scanned = [one["support_vectors"] for one in rounds if not one["inner_set"]]
    inner = max(one["support_vectors"] for one in rounds if one["inner_set"])
    assert scanned[-1] == inner if "--reduce" not in words else scanned[-1] < inner / 2


def test_workers_keep_float64_values_that_float32_would_round(two, tmp_path):
    """Chunks before the first value that needs float64 have it too, and so do predictions."""
    y, X = board(ROWS)
    X = 1e8 + 10 * X
    X[: 2 * SHARD] = 0.1
    data = Data(y, X).save(tmp_path / "far")
    check_same_model(two, tmp_path, data, "randsvm", "-g", 0.05, "--sample-size", 100, "--gap", 0.1)
    assert b"# randsvm values float64" in (tmp_path / "there").read_bytes()
    run_predict("-q", data, tmp_path / "here", tmp_path / "alone")
    run_predict("-q", "--cluster", two.file, data, tmp_path / "here", tmp_path / "together")
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "together").read_bytes()


SEVERAL = {
    "one against one": "randsvm -g 1 --sample-size 60 --gap 0.1",
    "small pairs": "randsvm -g 1 --gap 0.01 -w 2 3 --scale standard",
    "one against the rest": "randsvm -g 1 --multiclass ovr --sample-size 100 --gap 0.1",
}


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    """Save rows of four classes."""
    return Data(*oracle.clouds(600)).save(tmp_path_factory.mktemp("cluster") / "clouds")


@pytest.mark.slow
@pytest.mark.parametrize("words", SEVERAL.values(), ids=SEVERAL)
def test_models_of_several_classes_have_the_bytes_of_one_process(
    two, tmp_path, monkeypatch, clouds, words
):
    if "small" not in words:
        # This process would train pairs of few rows.
        monkeypatch.setattr("randsvm.training.multiclass.FEW_ROWS", 100)
    check_same_model(two, tmp_path, clouds, *words.split())


def test_this_process_trains_small_pairs_from_spill_files(two, tmp_path, monkeypatch, clouds):
    monkeypatch.setattr(Resources, "data_bytes", property(lambda resources: 0))
    monkeypatch.setattr("randsvm.data.regrouping.CHUNK_ROWS", 30)
    check_same_model(two, tmp_path, clouds, "randsvm", "-g", 1, "--gap", 0.01)


# ---- fits of a search --------------------------------------------------------------------------

CELLS = {
    "one against one": "randsvm -g 0.5,1 -c 1,4 -v 3 --gap 0.1 --search-gap 0.1",
    "shared kernel values": "randsvm -g 0.5,1 -c 1,4 -v 3 --gap 0.1",
    "one against the rest": "randsvm -g 1 -c 1,4 --multiclass ovr -w balanced -v 2 --gap 0.1",
    "a subset": "osuna -g 1 -c 1,4 -v 2 --subset 200 --scale standard",
    "regression": "randsvm -s svr -g 1 -p 0.1,0.5 -v 2 --gap 0.1 --search-gap 0.1 --scale minmax",
    "shared by regressions": "randsvm -s svr -g 1 -p 0.1,0.5 -v 2 --gap 0.1 --scale minmax",
    "random features": "randsvm -g 1 -c 1,4 --components 20 -v 2 --gap 0.3",
    "probabilities": "randsvm -g 1 -b 1 --gap 0.1",
    "sgd": "sgd --lambda 0.01,0.001 --epochs 2 -v 2",
}


def tried(log):
    found = [one for one in read_log(log) if one["event"] == "tried"]
    return sorted((one["configuration"], one["scores"], one["details"]) for one in found)


def no_fit(*words):
    raise AssertionError("fitted in this process")


@pytest.mark.parametrize("words", CELLS.values(), ids=CELLS)
def test_workers_fit_the_folds_with_the_same_results(two, tmp_path, monkeypatch, clouds, words):
    logs = []
    for where in ([], ["--cluster", two.file]):
        if where:
            monkeypatch.setattr(KernelTrainer, "decision", no_fit)
            monkeypatch.setattr(LinearTrainer, "decision", no_fit)
        logs.append(tmp_path / f"{len(where)}.jsonl")
        model = logs[-1].with_suffix(".model")
        run_train(*words.split(), "-q", *where, "--log", logs[-1], clouds, model)
    assert tried(logs[0]) == tried(logs[1])
    models = [log.with_suffix(".model").read_bytes() for log in logs]
    assert models[0] == models[1]


# With a gap for the search, workers fit the folds; else this process does, with few rows.
SEARCH = {"folds": 3, "C": [0.5, 1, 2, 4], "search_gap": 0.02}


def search_results(data, model, resources, watch):
    """Run a search; return the results of all combinations and the model."""
    every = []

    def both(event):
        if isinstance(event, Tried):
            every.append(event._replace(number=0))
        watch(event)

    given = {**SEARCH, "cluster": resources.cluster} if resources.cluster else SEARCH
    api.train_randsvm(data, model, both, gamma=1, gap=0.01, **given)
    return f"{sorted(map(str, every))}{model.read_text()}"


def test_another_worker_repeats_the_fits_of_a_killed_worker(two, tmp_path, clouds):
    expected = search_results(clouds, tmp_path / "m", Resources(), lambda event: None)
    watch = Once(lambda event: isinstance(event, Tried), two.kill)
    assert search_results(clouds, tmp_path / "m", on_cluster(two), watch) == expected
    assert watch.done


def test_a_search_survives_repeated_losses(tmp_path, clouds, monkeypatch):
    expected = search_results(clouds, tmp_path / "m", Resources(), lambda event: None)
    monkeypatch.setattr("randsvm.cluster.byte_ranges.WorkerPool", FakeWorkerPool)
    monkeypatch.setattr(FakeWorkerPool, "losses", frozenset(range(4, 400, 3)))
    found = search_results(clouds, tmp_path / "m", Resources(cluster="3"), lambda event: None)
    assert found == expected


def test_this_process_fits_large_folds(two, tmp_path, clouds, monkeypatch):
    monkeypatch.setattr("randsvm.training.cross_validation.COPIED_NONZEROS", 100)
    monkeypatch.setattr("randsvm.cluster.cluster_executor.ReplicaExecutor.call", no_fit)
    check_same_model(two, tmp_path, clouds, "randsvm", "-g", 1, "-v", 2, "--gap", 0.1)


class GivenUpError(Exception):
    pass


def after(seconds):
    """Return a listener that raises GivenUpError after some seconds."""
    end = time.monotonic() + seconds

    def watch(event):
        if time.monotonic() > end:
            raise GivenUpError

    return watch


def test_a_call_without_a_caller_ends(two, path):
    def endless():
        while True:
            emit(Waiting())
            time.sleep(0.01)

    with (
        closing(WorkerPool(str(two.file))) as worker_pool,
        closing(labelled_data.load_rows(str(path), Params(), Job(resources=on_cluster(two)))) as D,
    ):
        with D.executor.replicated(D) as some:
            for _ in range(some.executor.concurrent_calls + 1):
                with listening(after(0.5)), pytest.raises(GivenUpError):
                    some.executor.call(endless)
            with listening(after(PATIENCE)):
                assert some.executor.call(lambda: some.n) == ROWS
            key = some.executor.spec.key
            assert key in cached_keys(worker_pool)
        assert are_released(worker_pool, key)


def test_a_map_without_a_caller_ends(two, path):
    def endless(shard):
        while True:
            emit(Waiting())
            time.sleep(0.01)

    with closing(labelled_data.load_rows(str(path), Params(), Job(resources=on_cluster(two)))) as D:
        with listening(after(0.5)), pytest.raises(GivenUpError):
            list(D.executor.map(endless, D.shards))
        with listening(after(PATIENCE)):
            found = list(D.executor.map(lambda shard: shard.number, D.shards))
    assert found == [shard.number for shard in D.shards]


def test_a_signal_ends_a_search(two, tmp_path, clouds):
    def interrupted(event):
        if isinstance(event, Progress) and event.stage == "cross-validation":
            raise Interrupted(signal.SIGTERM)

    with closing(WorkerPool(str(two.file))) as worker_pool:
        before = cached_keys(worker_pool)
        with pytest.raises(Interrupted):
            search_results(clouds, tmp_path / "m", on_cluster(two), interrupted)
        assert not (tmp_path / "m").exists()
        assert are_released(worker_pool, *(cached_keys(worker_pool) - before))


def test_averaged_weights_are_the_same_after_a_worker_is_killed(two, tmp_path, path, monkeypatch):
    monkeypatch.setattr("randsvm.algorithms.sgd.GROUP_CHUNKS", 2)
    models = []
    for kill in (False, True):
        watch = Once(lambda event: isinstance(event, Epoch) and event.number == 2, two.kill)
        watch.done = not kill
        api.train_sgd(path, tmp_path / "m", watch, epochs=4, cluster=two.file)
        assert watch.done
        models.append((tmp_path / "m").read_bytes())
    assert models[0] == models[1]
    assert oracle.trailer(tmp_path / "m")["averaged"] == "3"


def test_several_files_are_one_data_set(two, tmp_path, path):
    lines = path.read_bytes().splitlines(keepends=True)
    for number, some in enumerate([lines[:70], lines[70:71], lines[71:]]):
        (tmp_path / f"part-{number}").write_bytes(b"".join(some).rstrip(b"\r\n"))
    words = ["randsvm", "-g", 5, "--gap", 0.1, "-q"]
    run_train(*words, path, tmp_path / "here")
    run_train(*words, "--cluster", two.file, tmp_path / "part-*", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_workers_open_files_by_the_given_path(tmp_path, monkeypatch):
    """Symlinks are not resolved by the client."""
    (tmp_path / "target").write_text("+1 1:1")
    (tmp_path / "link").symlink_to("target")
    monkeypatch.chdir(tmp_path)
    found = text_file_at("link", ParseOptions("class", chunk_rows=SHARD))
    assert found.path == str(tmp_path / "link")


def test_workers_open_a_model_by_the_given_path(tmp_path, path, monkeypatch):
    def asked(address, paths, options, work):
        assert work.path == str(tmp_path / "link")
        raise GivenUpError

    run_train("randsvm", "-q", "-g", 5, "--max-iterations", 1, path, tmp_path / "target")
    (tmp_path / "link").symlink_to("target")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prediction, "_map_ranges", lambda: asked)
    with pytest.raises(GivenUpError):
        run_predict("-q", "--cluster", "host:1", path, "link", "out")


def test_the_pass_for_chunk_ends_can_be_interrupted(path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", 2000)
    worker_pool = FakeWorkerPool("1")
    file = text_file_at(str(path), ParseOptions("class", chunk_rows=SHARD))
    ranges = -(-file.size // 2000)

    def given_up(event):
        if worker_pool.submitted > ranges + 1:
            raise GivenUpError

    with listening(given_up), pytest.raises(GivenUpError):
        first_pass(worker_pool, "a key", [file])
    assert worker_pool.submitted == ranges + 2
    release("a key")


def test_a_file_named_twice_gives_its_rows_twice(two, tmp_path, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", 9000)
    words = ["randsvm", "-g", 5, "--gap", 0.1, "-q"]
    run_train(*words, path, path, tmp_path / "here")
    run_train(*words, "--cluster", two.file, path, path, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.parametrize("count", [1, 2])
def test_local_workers_import_the_modules_of_this_process(tmp_path, path, monkeypatch, count):
    """Modules of the same names in the working folder are not imported."""
    for name in ("queue", "randsvm"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    words = ["randsvm", "-g", 5, "--max-iterations", 2, "-q"]
    run_train(*words, path, tmp_path / "here")
    run_train(*words, "--cluster", f"local:{count}", path, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.parametrize("rows", [60, 999], ids=["by its values", "by its coefficients"])
def test_a_warm_start_on_a_cluster_gives_the_bytes_of_one_process(two, tmp_path, path, rows):
    some = path.read_bytes().split(b"\n")[:rows]
    (tmp_path / "some").write_bytes(b"\n".join(some))
    run_train("randsvm", "-g", 5, "-q", tmp_path / "some", tmp_path / "old")
    words = ["randsvm", "--warm-start", tmp_path / "old", "--sample-size", 100, "--gap", 0.1]
    check_same_model(two, tmp_path, path, *words)


NUMBERS = {"number", "violators", "support_vectors", "changed", "frozen", "primal", "dual", "gap"}


def test_the_log_has_the_rounds_of_one_process(two, tmp_path, path):
    logs = []
    for words in ([], ["--cluster", two.file]):
        log = tmp_path / f"{len(words)}.jsonl"
        run_train("randsvm", "-g", 5, "-q", *words, "--log", log, path, tmp_path / "m")
        rounds = [one for one in read_log(log) if one["event"] == "iteration"]
        logs.append([{k: one[k] for k in NUMBERS} for one in rounds])
        moved = np.diff([0, *(one["bytes_moved"] for one in rounds)])
        # The messages of a round do not grow with the rows of D.
        assert (moved > 0).all() if words else not moved.any()
        assert moved[1:].max(initial=0) < 500_000
        split = np.array([[one[part] for part in ClusterTimes._fields] for one in rounds])
        assert (np.diff(split, axis=0) >= 0).all() and (split[-1] > 0).all() == bool(words)
        assert split[-1].sum() <= rounds[-1]["seconds"]
    assert logs[0] == logs[1]


PREDICTIONS = {
    "labels": ([], []),
    "scores": ([], ["--scores"]),
    "probabilities": (["-b", 1], ["-b", 1]),
    "regression": (["-s", "svr"], []),
}


@pytest.mark.parametrize("asked", PREDICTIONS.values(), ids=PREDICTIONS)
def test_workers_predict_in_the_order_of_the_rows(
    two,
    tmp_path,
    path,
    monkeypatch,
    capsys,
    asked,
):
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", 2000)
    (tmp_path / "z").write_bytes(path.read_bytes()[3:] + b"\n? 2:0.5 7:1\n")
    (tmp_path / "y").write_bytes(path.read_bytes()[:9000])
    run_train("randsvm", "-g", 5, "--gap", 0.5, "-q", *asked[0], path, tmp_path / "m")
    results = []
    for words in ([], ["--cluster", two.file]):
        out = tmp_path / f"out{len(words)}"
        run_predict(*asked[1], *words, tmp_path / "[yz]", tmp_path / "m", out)
        results.append(
            (capsys.readouterr(), np.loadtxt(out, ndmin=2, skiprows=int("-b" in asked[1])))
        )
    assert results[0][0].out == results[1][0].out
    assert np.allclose(results[0][1], results[1][1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bad", ["+1 1:x\n", "? 0:1\n"])
def test_bad_text_to_predict_is_found_at_its_place(two, tmp_path, path, monkeypatch, bad):
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", 2000)
    (tmp_path / "d").write_text("# first\n" + path.read_text("utf-8-sig") + "\n" + bad)
    run_train("randsvm", "-g", 5, "--gap", 0.5, "-q", path, tmp_path / "m")
    messages = []
    for words in ([], ["--cluster", two.file]):
        with pytest.raises(DataError) as error:
            run_predict("-q", *words, tmp_path / "d", tmp_path / "m", tmp_path / "out")
        messages.append(str(error.value))
        assert not (tmp_path / "out").exists()
    assert messages[0] == messages[1]


# ---- loss -------------------------------------------------------------------------------------

SIX = {"gap": 1e-4, "max_iterations": 6, "sample_size": 100}


@pytest.fixture
def expected(path, tmp_path):
    """Return the model of six rounds in this process."""
    return trained(path, tmp_path / "expected", Resources(), lambda event: None)


def trained(data, model, resources, watch):
    given = {**SIX, "cluster": resources.cluster} if resources.cluster else SIX
    api.train_randsvm(data, model, watch, gamma=5, **given)
    return model.read_bytes()


def on_cluster(cluster):
    return Resources(cluster=str(cluster.file))


class Once:
    """A listener that calls `do` at the first event that matches."""

    def __init__(self, matches, do):
        self.matches, self.do, self.done = matches, do, False

    def __call__(self, event):
        if not self.done and self.matches(event):
            self.done = True
            self.do()


def reading(event):
    return isinstance(event, Progress) and event.stage == "reading"


def scanning(event):
    return isinstance(event, Progress) and event.stage == "scanning"


def third_round(event):
    return isinstance(event, Iteration) and event.number == 3


MOMENTS = {"reading": reading, "scanning": scanning, "between rounds": third_round}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_another_worker_does_the_work_of_a_killed_worker(two, tmp_path, path, expected, moment):
    watch = Once(moment, two.kill)
    assert trained(path, tmp_path / "m", on_cluster(two), watch) == expected
    assert watch.done


def test_a_worker_that_joins_later_takes_part(two, tmp_path, path, expected):
    two.kill()
    watch = Once(third_round, two.add)
    assert trained(path, tmp_path / "m", on_cluster(two), watch) == expected


def test_new_workers_replace_killed_workers(two, tmp_path, path, expected):
    def replace_all():
        while two.workers:
            two.kill()
        two.add()

    assert (
        trained(path, tmp_path / "m", on_cluster(two), Once(third_round, replace_all)) == expected
    )


@pytest.mark.parametrize("patience", [2.0, 60.0], ids=["replaced", "waited for"])
def test_a_run_survives_a_stopped_worker(
    two,
    tmp_path,
    path,
    expected,
    monkeypatch,
    patience,
):
    monkeypatch.setattr("randsvm.cluster.worker_pool.MISSING_SECONDS", patience)
    stopped = two.workers[0]
    go_on = threading.Timer(5, stopped.send_signal, [signal.SIGCONT])

    def stop():
        stopped.send_signal(signal.SIGSTOP)
        go_on.start()

    assert trained(path, tmp_path / "m", on_cluster(two), Once(third_round, stop)) == expected
    go_on.join()


@pytest.mark.parametrize("how", ["limit", "signal"])
def test_a_run_that_waits_for_a_worker_can_be_interrupted(two, tmp_path, path, how):
    while len(two.workers) > 1:
        two.kill()
    worker = two.workers[0]

    class Interrupting(Once):
        """Raises Interrupted a second after the worker was stopped."""

        def __call__(self, event):
            super().__call__(event)
            if how == "signal" and self.done and time.monotonic() > self.at + 1:
                raise Interrupted(signal.SIGTERM)

        def stop(self):
            self.at = time.monotonic()
            worker.send_signal(signal.SIGSTOP)

    watch = Interrupting(third_round, lambda: watch.stop())
    given = {**SIX, "time_limit": 8} if how == "limit" else SIX
    try:
        with pytest.raises(Interrupted) if how == "signal" else nullcontext():
            api.train_randsvm(path, tmp_path / "m", watch, gamma=5, cluster=two.file, **given)
    finally:
        worker.send_signal(signal.SIGCONT)
    assert time.monotonic() - watch.at < PATIENCE
    stopped = oracle.trailer(tmp_path / "m")["stopped"]
    assert stopped == ("time limit" if how == "limit" else "interrupted by signal 15")


def test_finished_pairs_are_written_when_the_cluster_is_lost(two, tmp_path, clouds, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.SILENCE_SECONDS", 3.0)
    monkeypatch.setattr("randsvm.training.multiclass.FEW_ROWS", 100)

    def kill_all():
        while two.workers:
            two.kill()

    model, watch = tmp_path / "m", Once(third_round, kill_all)
    rule = {"gap": 1e-3, "sample_size": 60, "cluster": two.file}
    with pytest.raises(ClusterError, match="no worker"):
        api.train_randsvm(clouds, model, watch, gamma=1, **rule)
    model = load(str(tmp_path / "m"))
    assert len(model.labels) == 4
    assert len(model.beta)


def test_a_worker_of_another_version_is_excluded(two, tmp_path, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.connection.__version__", "0.1")
    with pytest.raises(ClusterError, match=r"worker .* has randsvm .*, this process has 0.1"):
        run_train("randsvm", "-q", "--cluster", two.file, path, tmp_path / "m")


def test_busy_workers_are_members(two, tmp_path):
    """Tasks of another run may keep all their threads for hours."""
    free = tmp_path / "free"

    def work():
        while not free.exists():
            time.sleep(0.01)

    with closing(WorkerPool(str(two.file))) as other:
        latest = time.monotonic() + PATIENCE
        while len(names := [*other.members()]) < len(two.workers) and time.monotonic() < latest:
            time.sleep(0.05)
        client = other.client
        works = [client.submit(work, workers=[name], pure=False) for name in names]
        try:
            with closing(WorkerPool(str(two.file))) as worker_pool:
                assert worker_pool.members().keys() & set(names)
            assert not any(one.done() for one in works)
        finally:
            free.touch()


def test_a_failed_handshake_is_repeated(two, monkeypatch):
    run, failed = connection.ConnectionClient.run, []

    def fails_once(client, *words, **more):
        if len(failed) < len(two.workers):
            failed.append(words)
            raise OSError
        return run(client, *words, **more)

    monkeypatch.setattr(connection.ConnectionClient, "run", fails_once)
    with closing(WorkerPool(str(two.file))) as worker_pool:
        assert worker_pool.members()


def test_a_worker_that_cannot_import_the_package_is_excluded(two, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.HANDSHAKE_MODULE", "randsvm.missing")
    with pytest.raises(ClusterError, match=r"worker .* cannot import randsvm: No module named"):
        WorkerPool(str(two.file))


@pytest.mark.parametrize("others", [{}, {"functions": "bits of another processor"}])
def test_one_notice_reports_workers_that_compute_other_bits(
    two,
    tmp_path,
    path,
    monkeypatch,
    expected,
    others,
):
    ours = {**arithmetic(), **others}
    monkeypatch.setattr("randsvm.cluster.connection.arithmetic", lambda: ours)
    emitted = []
    assert trained(path, tmp_path / "m", on_cluster(two), emitted.append) == expected
    notices = [one.text for one in emitted if isinstance(one, Notice) and "rounds" in one.text]
    assert len(notices) == len(others)
    assert all("(functions)" in text for text in notices)


def test_without_workers_the_best_model_so_far_is_written(two, tmp_path, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.SILENCE_SECONDS", 3.0)

    def kill_all():
        while two.workers:
            two.kill()

    with pytest.raises(ClusterError, match="no worker of the cluster has answered for 3 s"):
        trained(path, tmp_path / "m", on_cluster(two), Once(third_round, kill_all))
    assert (
        oracle.trailer(tmp_path / "m")["stopped"] == "no worker of the cluster has answered for 3 s"
    )


def test_without_a_scheduler_the_best_model_so_far_is_written(tmp_path, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.worker_pool.SILENCE_SECONDS", 5.0)
    (tmp_path / "cluster").mkdir()
    cluster = DaskCluster(tmp_path / "cluster")
    cluster.add()
    try:
        began = time.monotonic()
        with pytest.raises(ClusterError, match="scheduler"):
            trained(
                path, tmp_path / "m", on_cluster(cluster), Once(third_round, cluster.scheduler.kill)
            )
        assert time.monotonic() - began < PATIENCE
        assert "scheduler" in oracle.trailer(tmp_path / "m")["stopped"]
    finally:
        cluster.close()


def cached_keys(worker_pool):
    """Return the keys in the caches of the workers."""

    def keys():
        from randsvm.cluster.worker import _cache

        numbered = [*_cache.ranges, *_cache.cells, *_cache.cancelled]
        return {*_cache.datasets, *(key for key, _ in numbered)}

    return set().union(*worker_pool.client.run(keys).values())


def are_released(worker_pool, *keys):
    """Return whether the workers soon have none of these keys."""
    end = time.monotonic() + PATIENCE
    while (left := cached_keys(worker_pool) & {*keys}) and time.monotonic() < end:
        time.sleep(0.1)
    return not left


@pytest.mark.parametrize("bad", [b"", b"+1 1:x\n"], ids=["a model", "bad text"])
def test_workers_release_the_data_of_a_run_at_its_end(two, tmp_path, clouds, monkeypatch, bad):
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", 2000)
    monkeypatch.setattr("randsvm.training.multiclass.FEW_ROWS", 100)
    (tmp_path / "d").write_bytes(clouds.read_bytes() + bad)
    with closing(WorkerPool(str(two.file))) as worker_pool:
        before = cached_keys(worker_pool)
        words = ["randsvm", "-q", "--gap", 0.1, "--cluster", two.file]
        with pytest.raises(DataError) if bad else nullcontext():
            run_train(*words, tmp_path / "d", tmp_path / "m")
        assert are_released(worker_pool, *(cached_keys(worker_pool) - before))


def test_chunk_ends_are_computed_where_the_range_is_cached(two, path, monkeypatch):
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", 2000)
    with closing(WorkerPool(str(two.file))) as worker_pool:
        first_pass(
            worker_pool, "a key", [text_file_at(str(path), ParseOptions("class", chunk_rows=SHARD))]
        )
        assert "a key" not in cached_keys(worker_pool)


def test_a_result_that_cannot_be_fetched_delays_no_other(monkeypatch):
    """A worker is killed when it has just sent its result."""

    class Unreachable(DoneFuture):
        def result(self, timeout=None):
            time.sleep(1)
            raise OSError

    worker_pool = FakeWorkerPool("2")
    tasks = TaskBatch(worker_pool)
    with monkeypatch.context() as patch:
        patch.setattr("fake_cluster.DoneFuture", Unreachable)
        tasks.submit("worker 0", "lost", int)
    tasks.submit("worker 1", "quick", int)
    assert next(tasks.run(lambda: True, lambda: None, 2)).tag == "quick"


@pytest.mark.parametrize(
    ("task", "word", "error"),
    [(np.empty, 1 << 55, MemoryError), (os.listdir, "/missing", ClusterError)],
    ids=["error of the task", "loss"],
)
def test_repeated_losses_end_a_run(
    two,
    monkeypatch,
    task,
    word,
    error,
):
    monkeypatch.setattr("randsvm.cluster.worker_pool.EXTRA_LOSSES", 3)
    with closing(WorkerPool(str(two.file))) as worker_pool, pytest.raises(error):
        list(map_calls(worker_pool, task, [(word,)]))


# ---- refused arguments --------------------------------------------------------------------------


def test_bad_text_is_found_at_its_line_and_column(two, tmp_path, path):
    bad = tmp_path / "bad"
    text = path.read_bytes()
    bad.write_bytes(text + b"\n\n+1 1:2 2:x\n")
    messages = []
    for words in ([], ["--cluster", two.file]):
        with pytest.raises(DataError) as error:
            run_train("randsvm", "-q", *words, bad, tmp_path / "m")
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert str(bad) in messages[0]


@pytest.fixture
def other_server():
    """Return a function that starts a server; it sends the same bytes to every client."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:

        def serve(words):
            with suppress(OSError):
                while True:
                    stack.enter_context(server.accept()[0]).sendall(words)

        def at(words):
            threading.Thread(target=serve, args=[words], daemon=True).start()
            return f"127.0.0.1:{server.getsockname()[1]}"

        yield at
        server.shutdown(socket.SHUT_RDWR)


def test_a_server_of_another_protocol_is_no_cluster(other_server):
    with pytest.raises(ClusterError, match=r"cannot reach .*: the program there is no scheduler"):
        WorkerPool(other_server(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9))


def test_the_garbage_collector_closes_no_client(other_server):
    """In a thread that is starting another client, closing would wait for a lock for ever."""

    def connect():
        with suppress(ClusterError):
            WorkerPool(other_server(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9))

    def collect():
        with LoopRunner._lock:
            gc.collect()

    gc.disable()
    try:
        connect()
    finally:
        gc.enable()
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("end", [Interrupted(signal.SIGINT), GivenUpError()])
def test_a_run_that_waits_for_a_scheduler_can_be_interrupted(
    other_server,
    monkeypatch,
    end,
):
    monkeypatch.setattr(connection, "CONNECTING_SECONDS", 2.0)

    def given_up(event):
        raise end

    with listening(given_up), pytest.raises(type(end)):
        WorkerPool(other_server(b""))


@pytest.mark.parametrize("algorithm", ["randsvm", "sgd"])
def test_a_time_limit_holds_while_a_run_waits_for_a_scheduler(
    other_server,
    tmp_path,
    path,
    monkeypatch,
    algorithm,
):
    monkeypatch.setattr(connection, "CONNECTING_SECONDS", 2.0)
    words = ["-q", "--time-limit", "0.5s", "--cluster", other_server(b"")]
    with pytest.raises(ClusterError, match=r"cannot reach .* before --time-limit") as raised:
        run_train(algorithm, *words, path, tmp_path / "m")
    assert raised.value.exit_code == os.EX_UNAVAILABLE
    assert not (tmp_path / "m").exists()


def loops():
    """Return the event loop threads of Dask."""
    return {thread for thread in threading.enumerate() if thread.name == "IO loop"}


@pytest.fixture
def no_loops():
    """Check that the event loop threads that a test starts have ended."""
    before = loops()
    yield
    latest = time.monotonic() + PATIENCE
    while (left := loops() - before) and time.monotonic() < latest:
        time.sleep(0.05)
    assert not left


def test_a_failed_connection_leaves_no_threads(no_loops, monkeypatch):
    monkeypatch.setattr(connection, "CONNECTING_SECONDS", 0.5)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ClusterError, match="cannot reach the cluster"):
            WorkerPool(f"127.0.0.1:{unused.getsockname()[1]}")


def test_a_client_that_connects_too_late_is_closed(monkeypatch):
    answers, closed = threading.Event(), threading.Event()

    class Late:
        def __init__(self, **where):
            answers.wait()

        def close(self, timeout):
            closed.set()

    def given_up(event):
        # The notice comes before the client is made; the waiting for it comes after.
        if not isinstance(event, Notice):
            raise GivenUpError

    monkeypatch.setattr(connection, "ConnectionClient", Late)
    with listening(given_up), pytest.raises(GivenUpError):
        WorkerPool("127.0.0.1:1")
    answers.set()
    assert closed.wait(PATIENCE)


@pytest.fixture
def processes(monkeypatch):
    """Replace the workers of local:N by processes that sleep; the third cannot be started."""
    started = []
    popen = subprocess.Popen

    def start(*words, **more):
        if len(started) == 2:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(popen(["sleep", "600"], stdin=subprocess.PIPE))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def test_a_failed_start_of_local_workers_leaves_no_processes(no_loops, processes):
    with pytest.raises(ClusterError, match="temporarily unavailable"):
        WorkerPool("local:3")
    assert [process.wait(PATIENCE) for process in processes] == [-signal.SIGKILL] * 2


def test_the_scheduler_is_closed_even_if_the_client_cannot_be(no_loops, processes, monkeypatch):
    def does_not_close(client, timeout):
        raise TimeoutError

    found = connection.Connection("local:2")
    monkeypatch.setattr(connection.ConnectionClient, "close", does_not_close)
    found.close().join(PATIENCE)
    assert found.local_cluster.status.name == "closed"
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def test_a_run_ends_with_the_last_local_worker(no_loops, processes):

    def kill(event):
        for process in processes:
            process.kill()

    with listening(kill), pytest.raises(ClusterError, match="workers of this machine have ended"):
        WorkerPool("local:2")


@pytest.mark.parametrize(
    "words",
    [
        "randsvm --cluster nonsense FILE",
        "randsvm --cluster local:2 -",
    ],
)
def test_unsupported_arguments_are_refused_before_connecting(tmp_path, path, words):
    command = [str(path) if word == "FILE" else word for word in words.split()]
    with pytest.raises(ParameterError, match="cluster"):
        run_train(*command, tmp_path / "m")


def test_dask_is_imported_only_with_the_option(tmp_path, path):
    words = ["randsvm", "-q", "--gap", "0.5", str(path), str(tmp_path / "m")]
    code = (
        "import sys; from randsvm.cli import train; "
        f"train.train.main({words!r}, standalone_mode=False); "
        "sys.exit(any(name.partition('.')[0] in ('dask', 'distributed') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
