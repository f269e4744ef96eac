"""SGD on a cluster: workers train on groups of rows; each epoch ends with the mean weights."""

import signal
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import oracle
import pytest
import sgd_reference
from base import LOSS_NAMES
from commands import run_train
from learning import Data, jumping_clock, read_log
from rows import (
    Draws,
    by_class,
    chunk_groups,
    open_rows,
    rows_of_pass,
)
from trainings import Learner, SgdSchedule, sgd

import randsvm
from randsvm import api
from randsvm.errors import ClusterError, Interrupted, OutOfTimeError
from randsvm.events import Epoch, Progress, Trained, listening

pytest.importorskip("distributed")
from clusters import executor
from simulated_cluster import SimulatedCluster, simulate_clusters

# Rows of a file, and of a shard: with 3 chunks in a group there are 4 groups.
ROWS, SHARD, GROUPS = 600, 50, 4


@pytest.fixture(autouse=True)
def small_groups(monkeypatch, set_sizes):
    set_sizes(chunk_rows=SHARD, averaged_chunks=3, remote_rows=0)
    simulate(monkeypatch)


def simulate(monkeypatch, faults=0):
    """Let --cluster N be a simulated cluster of N workers; return the list of them."""
    return simulate_clusters(monkeypatch, lambda workers: SimulatedCluster(1, workers, faults, 2.0))


@pytest.fixture(scope="module")
def sorted_clouds(tmp_path_factory):
    """Save files of two and of three classes, sorted by class."""
    folder = tmp_path_factory.mktemp("averaging")
    files = {}
    for classes in (2, 3):
        y, X = oracle.clouds(ROWS, classes=classes)
        by_class = np.argsort(y, kind="stable")
        files[classes] = Data(y[by_class], X[by_class]).save(folder / str(classes))
    return files


@pytest.fixture
def two(sorted_clouds):
    return sorted_clouds[2]


@pytest.fixture
def three(sorted_clouds):
    return sorted_clouds[3]


def opened(path):
    return open_rows(path, chunk_rows=SHARD)


# ---- the steps --------------------------------------------------------------------------------


@pytest.mark.parametrize("averages", [False, True], ids=["last", "mean"])
@pytest.mark.parametrize("part", [False, True], ids=["all rows", "some rows"])
def test_weights_are_the_mean_of_reference_weights_by_rows(three, averages, part):
    steps = SgdSchedule(
        lambda_=0.01, bias_lambda=0.01, eta0=0.1, bias_rate=0.5, weights=np.ones(3),
        averages=averages, horizon=0 if averages else 2 * ROWS,
    )  # fmt: skip
    with opened(three) as whole:
        view, _ = by_class(whole)
        if part:
            view = view.subset(np.arange(view.n) % 7 > 0)
            steps = replace(steps, horizon=0 if averages else 2 * view.n)
        learner = Learner.new(steps, view.d)
        in_order, rng = view.single_threaded(), Draws(5)
        expected = reference_epochs(view, steps, Draws(5), 2)
        for w, b in expected:
            assert sum(sgd.averaged_pass(in_order, learner, rng, GROUPS)) == view.n
            assert learner.linear.w == pytest.approx(w, rel=1e-6, abs=1e-9)
            assert learner.linear.b == pytest.approx(b, rel=1e-6, abs=1e-9)
        assert (learner.t, learner.steps_made) == (2 * view.n, 2 * view.n)


def test_steps_of_groups_count_by_weight():
    """Heavy rows make several steps each, yet an epoch counts as many as there are rows."""
    y, X = oracle.clouds(ROWS, classes=2)
    weights = np.random.default_rng(0).exponential(size=ROWS)
    rows = randsvm.Arrays(X, y.astype(int), weights=weights)
    steps = SgdSchedule(
        lambda_=0.01, bias_lambda=0.01, eta0=0.1, bias_rate=0.5, weights=np.ones(2), averages=True,
        mean_weight=float(weights.mean()),
    )  # fmt: skip
    with open_rows(rows, jobs=1, chunk_rows=SHARD) as D:
        learner = Learner.new(steps, D.d)
        one_pass = sgd.averaged_pass(D.single_threaded(), learner, Draws(5), GROUPS)
        assert sum(one_pass) > 1.2 * ROWS
    assert learner.t == pytest.approx(ROWS)
    assert learner.linear.w == pytest.approx(-learner.A / ROWS)


def reference_epochs(D, steps, rng, epochs):
    """Yield after each epoch the mean of the last weights, or of all iterates, of the reference
    learners of all groups."""
    w, b = np.zeros((D.d, 3)), np.zeros(3)
    iterates = []
    for epoch in range(epochs):
        found = []
        for shards in chunk_groups(D, GROUPS).values():
            m = sum(shard.stop - shard.start for shard in shards)
            horizon = steps.horizon * m / D.n
            reference = sgd_reference.Plain(D.d, 3, replace(steps, horizon=horizon))
            reference.w, reference.b, reference.t = w, b, epoch * m
            for x, label in rows_of_pass(D, rng.next(), [shard.number for shard in shards]):
                reference.learn(x, label)
            assert len(reference.iterates) == m
            iterates += reference.iterates
            found.append((m, reference.w, reference.b))
        rows = [n for n, _, _ in found]
        w, b = (np.average([one[i] for one in found], axis=0, weights=rows) for i in (1, 2))
        yield [np.mean([it[i] for it in iterates], axis=0) if steps.averages else (w, b)[i]
               for i in (0, 1)]  # fmt: skip


def test_groups_of_a_sorted_file_hold_all_rows_and_all_classes(three):
    with opened(three) as whole:
        view, _ = by_class(whole)
        groups = chunk_groups(view, GROUPS)
        assert sorted(shard for group in groups.values() for shard in group) == view.shards
        assert all(leader in group for leader, group in groups.items())
        # A part of the file has as many leaders as any other.
        parts = [leader.number * GROUPS // len(view.shards) for leader in groups]
        assert parts == list(range(GROUPS))
        for group in groups.values():
            assert {y for shard in group for y in view.labels_of(shard)} == {0, 1, 2}


# ---- the whole run ----------------------------------------------------------------------------

RUNS = {
    "two": (2, "--epochs 4"),
    "three": (3, "--epochs 4 --scale standard"),
    "crammer-singer": (3, "--epochs 4 --multiclass crammer-singer"),
    "log": (2, "--epochs 4 --loss log"),
    "squared hinge": (2, "--epochs 4 --loss squared-hinge --average -w1 3"),
    "early": (3, "--early-stopping 0.2"),
    "one epoch": (2, "--epochs 1"),
    "regression": (2, "--epochs 4 -s svr -p 0.2"),
    "one-class": (2, "--epochs 4 -s one-class"),
    "share": (2, "--epochs 4 -s one-class -n 0.1"),
    "random features": (2, "--epochs 4 -t rbf -g 0.5 --components 20"),
    "probabilities": (2, "--epochs 2 -b 1"),
    "search": (2, "--epochs 3 -v 3 -c 0.1,1"),
}


@pytest.mark.parametrize("classes, words", RUNS.values(), ids=RUNS)
def test_the_number_of_workers_changes_no_byte_of_a_model(
    tmp_path,
    monkeypatch,
    sorted_clouds,
    classes,
    words,
):
    """The bytes are those of the same groups in this process, even if workers fail."""
    command = ["sgd", "-q", *words.split(), "--cluster"]
    data, model = sorted_clouds[classes], tmp_path / "model"
    with monkeypatch.context() as patch:
        patch.setattr(executor, "connect", lambda address: None)
        patch.setattr(executor, "scan_on", lambda pool, D, resources: D.single_threaded())
        run_train(*command, "here", data, model)
    expected = model.read_bytes()
    assert oracle.trailer(model)["averaged"] == GROUPS
    run_train(*command, 1, data, model)
    assert model.read_bytes() == expected
    simulate(monkeypatch, faults=10)
    run_train(*command, 3, data, model)
    assert model.read_bytes() == expected


@pytest.mark.parametrize("classes, words", RUNS.values(), ids=RUNS)
def test_a_small_file_gives_the_bytes_of_one_process(
    tmp_path,
    set_sizes,
    sorted_clouds,
    classes,
    words,
):
    set_sizes(averaged_chunks=7)
    command = ["sgd", "-q", *words.split(), sorted_clouds[classes]]
    run_train(*command, tmp_path / "here")
    run_train(*command, "--cluster", 2, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_the_objective_of_a_sorted_file_is_near_that_of_plain_steps(tmp_path, two, loss):
    """Each of the four groups has 150 rows. At the start P is 600."""
    primal = []
    for words in ([], ["--cluster", 2]):
        run_train("sgd", "-q", "--loss", loss, *words, two, tmp_path / "m")
        primal.append(float(oracle.trailer(tmp_path / "m")["primal"]))
    assert primal[1] == pytest.approx(primal[0], rel=0.05)


# ---- memory -----------------------------------------------------------------------------------

# With this many features, half of 16 MB holds the weights of two groups.
WIDE = 100_000


@pytest.fixture
def wide(tmp_path, two):
    """Save the same rows with features that no two rows share."""
    each = WIDE // ROWS
    lines = two.read_text().splitlines()
    text = [
        f"{line} " + " ".join(f"{100 + row * each + i}:0.01" for i in range(each))
        for row, line in enumerate(lines)
    ]
    (tmp_path / "wide").write_text("\n".join(text) + "\n")
    return tmp_path / "wide"


def test_the_memory_of_one_worker_bounds_the_number_of_groups(tmp_path, wide):
    """A group takes 8 bytes for a weight and 8 for its sum, and as many for the message."""
    models = {}
    for memory, workers in (("2G", 1), ("16M", 1), ("16M", 3)):
        model = models[memory, workers] = tmp_path / f"{memory}-{workers}"
        words = ["--epochs", 1, "--memory", memory, "--cluster", workers]
        run_train("sgd", "-q", *words, wide, model)
    groups = [int(oracle.trailer(model)["averaged"]) for model in models.values()]
    assert groups[0] == GROUPS
    assert groups[1] == (16 << 20) // 2 // (32 * WIDE)
    assert models["16M", 1].read_bytes() == models["16M", 3].read_bytes()


# ---- interruption -------------------------------------------------------------------------------


class GivenUpError(Exception):
    pass


def test_an_epoch_can_be_interrupted_within_a_group(two):
    """The learner does not change."""
    steps = SgdSchedule(lambda_=0.01, bias_lambda=0.01, eta0=0.1, bias_rate=0.5, weights=np.ones(2))
    begun = []

    def watch(event):
        begun.append(event)
        raise GivenUpError

    with opened(two) as whole:
        learner = Learner.new(steps, whole.d)
        one_pass = sgd.averaged_pass(whole.single_threaded(), learner, Draws(5), 1)
        with listening(watch), pytest.raises(GivenUpError):
            list(one_pass)
    assert len(begun) == 1
    assert not learner.steps_made and not learner.v.any()


@pytest.fixture
def late():
    """Return a function that moves the clock forward by more than an hour."""
    with jumping_clock() as jump:
        yield jump


HOUR = 3600


@pytest.mark.parametrize("how", ["signal", "lost", "limit"])
def test_an_interrupted_run_has_the_weights_of_the_last_whole_epoch(
    tmp_path, monkeypatch, two, late, how
):
    emitted, clusters = [], simulate(monkeypatch)

    def watch(event):
        emitted.append(event)
        if isinstance(event, Progress) and event.stage == "epoch 3" and how == "signal":
            raise Interrupted(signal.SIGTERM)
        if isinstance(event, Progress) and event.stage == "epoch 3" and how == "limit":
            late()
        if isinstance(event, Epoch) and event.number == 2 and how == "lost":
            for name in list(clusters[0].workers):
                clusters[0].kill(name)

    raised = {"signal": Interrupted, "lost": ClusterError}
    with pytest.raises(raised[how]) if how in raised else nullcontext():
        api.train(two, tmp_path / "m", "sgd", watch, cluster="2", time_limit=HOUR)
    (learnt,) = (event for event in emitted if isinstance(event, Trained))
    assert learnt.steps == 2 * ROWS
    stopped = oracle.trailer(tmp_path / "m")["stopped"]
    assert stopped == learnt.stopped
    assert {"signal": "signal 15", "lost": "no worker", "limit": "time limit"}[how] in stopped
    assert np.abs(oracle.read_linear(tmp_path / "m", 5).w).max() > 0


def test_without_a_whole_epoch_there_is_no_model(tmp_path, two, late):
    def watch(event):
        if isinstance(event, Progress) and event.stage == "epoch 1":
            late()

    with pytest.raises(OutOfTimeError, match="before there is a model"):
        api.train(two, tmp_path / "m", "sgd", watch, cluster="2", time_limit=HOUR)
    assert not (tmp_path / "m").exists()


def test_the_messages_of_an_epoch_contain_weights_only(tmp_path, two):
    run_train("sgd", "-q", "--epochs", 5, "--cluster", 2, "--log", tmp_path / "log", two,
              tmp_path / "m")  # fmt: skip
    moved = [one["bytes_moved"] for one in read_log(tmp_path / "log") if one["event"] == "epoch"]
    assert (np.diff(moved) > 0).all()
    # Five weights and the overhead of messages.
    assert np.diff(moved).max() < 20_000
