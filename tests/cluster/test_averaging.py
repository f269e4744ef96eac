"""sgd on a cluster: groups of rows side by side, whose weights are averaged after each epoch."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import oracle
import pytest
import sgd_reference
from learning import Data
from running import run_train
from scipy import sparse

from randsvm.algorithms import sgd
from randsvm.algorithms.sgd import Learner, Steps
from randsvm.data import dataset
from randsvm.data.batches import shuffled
from randsvm.data.classes import labelled_classes
from randsvm.data.dataset import Dataset, ParseOptions
from randsvm.data.dealing import dealt
from randsvm.data.sampling import Draws
from randsvm.parameters.run import Resources
from randsvm.training import source

pytest.importorskip("distributed")
from inline import InlineCrew

# Rows of a file, and of a shard: with 3 chunks in a group there are 4 groups.
ROWS, SHARD, GROUPS = 600, 50, 4


@pytest.fixture(autouse=True)
def small_groups(monkeypatch) -> None:
    monkeypatch.setattr(source, "ParseOptions", partial(ParseOptions, chunk_rows=SHARD))
    monkeypatch.setattr(sgd, "GROUP_CHUNKS", 3)
    monkeypatch.setattr("randsvm.cluster.load.Crew", InlineCrew)


@pytest.fixture(scope="module")
def clouds(tmp_path_factory) -> Path:
    """Three classes, one after the other."""
    y, X = oracle.clouds(ROWS, classes=3)
    by_class = np.argsort(y, kind="stable")
    return Data(y[by_class], X[by_class]).save(tmp_path_factory.mktemp("averaging") / "clouds")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    """Two classes, one after the other."""
    y, X = oracle.clouds(ROWS, classes=2)
    by_class = np.argsort(y, kind="stable")
    return Data(y[by_class], X[by_class]).save(tmp_path_factory.mktemp("averaging") / "two")


def opened(path: Path) -> closing[Dataset]:
    options = ParseOptions(chunk_rows=SHARD)
    return closing(dataset.load(str(path), options, Resources(jobs=2)))


# ---- the steps --------------------------------------------------------------------------------


@pytest.mark.parametrize("averages", [False, True], ids=["last", "mean"])
@pytest.mark.parametrize("part", [False, True], ids=["all rows", "some rows"])
def test_weights_are_the_mean_of_the_twins_weights_by_their_rows(clouds, averages, part):
    steps = Steps(
        lambda_=0.01, eta0=0.1, bias_rate=0.5, weights=np.ones(3), averages=averages,
        horizon=0 if averages else 2 * ROWS,
    )  # fmt: skip
    with opened(clouds) as whole:
        view, _ = labelled_classes(whole, "")
        if part:
            view = view.only(np.arange(view.n) % 7 > 0)
            steps = Steps(**{**vars(steps), "horizon": 0 if averages else 2 * view.n})
        learner = Learner.new(steps, view.d)
        one_pass = sgd.averaged(view, Draws(5), GROUPS)
        expected = epochs_of_twins(view, steps, Draws(5), 2)
        for w, b in expected:
            assert sum(one_pass(learner)) == view.n
            assert learner.linear.w == pytest.approx(w, rel=1e-6, abs=1e-9)
            assert learner.linear.b == pytest.approx(b, rel=1e-6, abs=1e-9)
        assert (learner.t, learner.learnt) == (2 * view.n, 2 * view.n)


def epochs_of_twins(D: Dataset, steps: Steps, rng: Draws, epochs: int):
    """After each epoch the mean of the last weights, or, of all iterates of all twins so far."""
    w, b = np.zeros((D.d, 3)), np.zeros(3)
    iterates = []
    for epoch in range(epochs):
        found = []
        for group in dealt(D, GROUPS):
            horizon = steps.horizon * group.rows / D.n
            twin = sgd_reference.Plain(D.d, 3, Steps(**{**vars(steps), "horizon": horizon}))
            twin.w, twin.b, twin.t = w, b, epoch * group.rows
            for x, label in rows_of(D.of_chunks(group.chunks), rng):
                twin.learn(x, label)
            assert len(twin.iterates) == group.rows
            iterates += twin.iterates
            found.append((group.rows, twin.w, twin.b))
        rows = [n for n, _, _ in found]
        w, b = (np.average([one[i] for one in found], axis=0, weights=rows) for i in (1, 2))
        yield [np.mean([it[i] for it in iterates], axis=0) if steps.averages else (w, b)[i]
               for i in (0, 1)]  # fmt: skip


def rows_of(D: Dataset, rng: Draws):
    for batch in shuffled(D, rng.next()):
        shape = len(batch.classes), D.d
        X = sparse.csr_matrix((batch.values, batch.columns, batch.starts), shape).toarray()
        yield from ((X[i].astype(float), batch.classes[i]) for i in batch.order)


def test_groups_are_of_all_rows_and_of_all_classes_though_the_file_is_sorted(clouds):
    with opened(clouds) as whole:
        view, _ = labelled_classes(whole, "")
        groups = dealt(view, GROUPS)
        chunks = sorted(chunk for group in groups for chunk in group.chunks)
        assert chunks == list(range(len(view.shards)))
        assert sum(group.rows for group in groups) == view.n
        assert all(group.leader.number in group.chunks for group in groups)
        # A part of the file has as many leaders as any other.
        parts = [group.leader.number * GROUPS // len(chunks) for group in groups]
        assert parts == list(range(GROUPS))
        for group in groups:
            assert set(view.of_chunks(group.chunks).labels()) == {0, 1, 2}


# ---- the whole run ----------------------------------------------------------------------------

RUNS = {
    "two": "FILE",
    "three": "CLOUDS --scale standard",
    "crammer-singer": "CLOUDS --multiclass crammer-singer",
    "log": "FILE --loss log",
    "squared hinge": "FILE --loss squared-hinge --average -w1 3",
    "auto": "FILE --epochs auto",
    "early": "CLOUDS --early-stopping 0.2",
    "one epoch": "FILE --epochs 1",
    "regression": "FILE -s svr -p 0.2",
    "one-class": "FILE -s one-class",
    "share": "FILE -s one-class -n 0.1",
    "random features": "FILE -t rbf -g 0.5 --components 20",
    "probabilities": "FILE -b 1",
    "search": "FILE -v 3 -c 0.1,1",
}


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_a_model_has_the_same_bytes_however_many_workers_there_are(
    tmp_path, monkeypatch, clouds, two, words
):
    file = clouds if "CLOUDS" in words else two
    command = ["sgd", "-q", "--epochs", 4, *words.split()[1:], file]
    if "epochs" in words or "early" in words:
        command[2:4] = []
    for workers in (1, 3):
        run_train(*command, "--cluster", workers, tmp_path / str(workers))
    model = (tmp_path / "1").read_bytes()
    assert (tmp_path / "3").read_bytes() == model
    assert oracle.trailer(tmp_path / "1")["averaged"] == str(GROUPS)
    monkeypatch.setattr(InlineCrew, "loses", frozenset(range(4, 400, 3)))
    run_train(*command, "--cluster", 2, tmp_path / "2")
    assert (tmp_path / "2").read_bytes() == model
