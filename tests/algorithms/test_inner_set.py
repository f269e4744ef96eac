"""Test inner sets: rounds on the rows near the margin alone reach the optimum over all rows."""

import signal

import numpy as np
import oracle
import pytest
from commands import run_train
from learning import board, read_log
from oracle import write_rows

import randsvm
from randsvm.errors import Interrupted
from randsvm.events import Iteration
from randsvm.parameters.run import CertifyParams

ROWS = 4000
GAP = 0.002
# Rows of the random subsets from which the first inner set follows.
SUBSET_ROWS = 379
BOARD = oracle.checkerboard(ROWS, 3)
TARGETS = np.round(np.sin(3 * BOARD[1][:, 0]), 3)
SETS = {
    "svc": (*BOARD, ["-c", 1, "-g", 5], {}),
    "class weights": (*BOARD, ["-c", 1, "-g", 5, "-w", 1, 4], {"weights": (("1", 4.0),)}),
    "svr": (
        TARGETS,
        BOARD[1],
        ["-s", "svr", "-c", 1, "-p", 0.2, "-g", 5],
        {"epsilon": 0.2},
    ),
    "one-class": (*BOARD, ["-s", "one-class", "-n", 0.1, "-g", 0.5], {"nu": 0.1}),
    "ovo": (*oracle.clouds(ROWS), ["-c", 1, "-g", 0.2], {}),
    "ovr": (*oracle.clouds(ROWS), ["-c", 1, "-g", 0.2, "--multiclass", "ovr"], {}),
}


@pytest.fixture(autouse=True)
def used_for_few_rows(set_sizes):
    set_sizes(inner_set_rows=100, inner_set_share=0.9)


def trained(folder, name, *words):
    """Train on a set; return its file, the model and the records of the rounds."""
    y, X, options, _ = SETS[name]
    train, model, log = write_rows(folder / "train", y, X), folder / "model", folder / "log"
    log.unlink(missing_ok=True)
    asked = [] if "--gap" in words else ["--gap", GAP]
    command = ["-q", *options, *asked, *words, "--sample-size", 300]
    run_train("randsvm", *command, "--log", log, train, model, "--overwrite")
    return train, model, [one for one in read_log(log) if one["event"] == "iteration"]


def sizes(rounds):
    """Return the distinct numbers of rows of the problems in order; 0: all rows."""
    every = [one["inner_set"] for one in rounds]
    return [size for i, size in enumerate(every) if not i or size != every[i - 1]]


@pytest.mark.parametrize("name", SETS)
def test_the_certificate_is_that_of_all_rows(tmp_path, name):
    train, model, rounds = trained(tmp_path, name)
    judged = randsvm.certify(train, model, params=CertifyParams(**SETS[name][3]))
    said = oracle.trailer(model)
    assert judged.feasible
    assert judged.gap <= GAP * 1.01
    assert float(said["primal"]) == pytest.approx(judged.primal, rel=1e-5)
    # The highest D of any round, of which the model's own is one.
    assert float(said["dual"]) >= judged.dual - 1e-5 * abs(judged.dual)
    found = sizes(rounds)
    assert any(0 < size < ROWS for size in found)
    assert found[-1] == 0
    # An inner set keeps its rows.
    inner = [size for size in found if size]
    assert name in ("ovo", "ovr") or inner == sorted(inner)


@pytest.mark.parametrize("name", SETS)
def test_the_optimum_is_that_of_rounds_over_all_rows(tmp_path, set_sizes, name):
    _, model, _ = trained(tmp_path, name)
    set_sizes(inner_set_rows=ROWS + 1)
    inner = oracle.trailer(model)
    _, model, rounds = trained(tmp_path, name, "--gap", 1e-5)
    assert sizes(rounds) == [0]
    plain = oracle.trailer(model)
    tolerance = 1e-5 * abs(float(plain["primal"]))
    assert float(inner["dual"]) <= float(plain["primal"]) + tolerance
    assert float(inner["primal"]) >= float(plain["dual"]) - tolerance


@pytest.mark.parametrize("seed", range(3))
def test_no_round_over_all_rows_states_a_dual_above_the_optimum(tmp_path, seed):
    """The optimum of a random half of the rows may be above that of all rows. Here it is about 2 C
    for each row of the rarer class."""
    rng = np.random.default_rng(seed)
    y, X = np.where(rng.random(ROWS) < 0.1, 1.0, -1.0), rng.normal(size=(ROWS, 2)).round(3)
    train, log = write_rows(tmp_path / "train", y, X), tmp_path / "log"
    words = ["-q", "-g", 0.01, "-c", 0.01, "--sample-size", 300]
    run_train("randsvm", *words, "--gap", GAP, "--log", log, train, tmp_path / "model")
    run_train("osuna", *words[:-2], "--gap", 1e-6, train, tmp_path / "exact")
    optimum, lowest = float(oracle.trailer(tmp_path / "exact")["primal"]), np.inf
    rounds = [one for one in read_log(log) if one["event"] == "iteration"]
    assert any(one["inner_set"] for one in rounds)
    for one in (one for one in rounds if not one["inner_set"]):
        lowest = min(lowest, one["primal"])
        assert one["gap"] >= -1e-6
        assert lowest * (1 - one["gap"]) <= optimum * (1 + 1e-6)


def test_a_row_of_weight_w_counts_as_w_equal_rows(tmp_path):
    y, X = board(ROWS)
    weights = np.random.default_rng(5).integers(1, 4, ROWS)
    train, model, log = tmp_path / "train", tmp_path / "model", tmp_path / "log"
    write_rows(train, y, X, 1, weights)
    words = ["-q", "-g", 5, "--sample-size", 300]
    run_train("randsvm", *words, "--gap", GAP, "--log", log, train, model)
    rounds = [one for one in read_log(log) if one["event"] == "iteration"]
    assert any(SUBSET_ROWS < size < ROWS for size in sizes(rounds))
    every = write_rows(tmp_path / "every", np.repeat(y, weights), np.repeat(X, weights, axis=0))
    said = oracle.trailer(model)
    judged = randsvm.certify(every, model, params=CertifyParams())
    assert float(said["primal"]) == pytest.approx(judged.primal, rel=1e-5)
    run_train("osuna", "-q", "-g", 5, "--gap", 1e-4, every, tmp_path / "plain")
    plain = oracle.trailer(tmp_path / "plain")
    assert float(said["dual"]) <= float(plain["primal"]) * (1 + 1e-5)
    assert float(said["gap"]) <= GAP


def test_a_large_inner_set_gives_way_to_all_rows(tmp_path, set_sizes):
    set_sizes(inner_set_share=0.0)
    train, model, rounds = trained(tmp_path, "svc")
    assert sizes(rounds)[-1] == 0
    assert len([size for size in sizes(rounds) if size == 0]) == 1
    judged = randsvm.certify(train, model, params=CertifyParams())
    assert judged.feasible
    assert judged.gap <= GAP * 1.01


def interrupted(folder, name, rounds):
    """Interrupt a training in this round over inner sets; return the training file and the model.

    rounds: from 1; 0: in the first round over a random subset
    """
    y, X, _, certify = SETS[name]
    count = 0

    def watch(event):
        nonlocal count
        if isinstance(event, Iteration):
            count += event.inner_set > SUBSET_ROWS
            if count == rounds:
                raise Interrupted(signal.SIGTERM)

    train, model = write_rows(folder / "train", y, X), folder / "model"
    with pytest.raises(Interrupted):
        task = {"task": name} if name in ("svr", "one-class") else {}
        gamma = 0.5 if name == "one-class" else 5.0
        randsvm.train(
            train, model, "randsvm", watch, gamma=gamma, sample_size=300, **task, **certify
        )
    return train, model


@pytest.mark.parametrize("name", ["svc", "svr", "one-class"])
def test_an_interrupted_run_ends_with_the_solution_of_the_inner_set(tmp_path, name):
    train, model = interrupted(tmp_path, name, 2)
    said = oracle.trailer(model)
    judged = randsvm.certify(train, model, params=CertifyParams(**SETS[name][3]))
    assert judged.feasible
    assert said["certificate"] == "proven"
    assert float(said["primal"]) == pytest.approx(judged.primal, rel=1e-5)
    assert float(said["dual"]) >= judged.dual - 1e-5 * abs(judged.dual)
    best = oracle.trailer(trained(tmp_path, name)[1])
    assert float(said["dual"]) <= float(best["primal"])


@pytest.mark.parametrize("name", ["svc", "one-class"])
def test_a_solution_of_the_inner_set_is_written_without_time_for_a_scan(tmp_path, set_sizes, name):
    """It is feasible for all rows, and nothing is certified."""
    set_sizes(interrupted_seconds=0.0)
    train, model = interrupted(tmp_path, name, 2)
    said = oracle.trailer(model)
    judged = randsvm.certify(train, model, params=CertifyParams(**SETS[name][3]))
    assert judged.feasible
    assert (said["certificate"], said["primal"], said["gap"]) == ("none", None, None)
    best = float(oracle.trailer(trained(tmp_path, name)[1])["primal"])
    assert judged.dual <= best
    # The offset is that of the inner set.
    assert judged.primal - best < 2 * abs(best)


def test_a_run_interrupted_before_the_inner_set_writes_no_model(tmp_path):
    assert not interrupted(tmp_path, "svc", 0)[1].exists()


@pytest.mark.parametrize(
    "name, reduce",
    [*((name, "auto") for name in SETS if name != "svr"), ("svc", 150), ("ovr", 150)],
)
def test_a_reduced_machine_takes_the_place_of_the_scan_with_all_support_vectors(
    tmp_path, name, reduce
):
    """The regression has too few support vectors for that."""
    train, model, rounds = trained(tmp_path, name, "--reduce", reduce, "--gap", 0.02)
    said = oracle.trailer(model)
    judged = randsvm.certify(train, model, params=CertifyParams(**SETS[name][3]))
    assert said["certificate"] == "reduced"
    assert float(said["primal"]) == pytest.approx(judged.primal, rel=1e-4)
    run_train("osuna", "-q", *SETS[name][2], "--gap", 1e-4, train, tmp_path / "plain")
    plain = oracle.trailer(tmp_path / "plain")
    optimum = float(plain["primal"])
    assert float(said["dual"]) <= optimum + 1e-5 * abs(optimum)
    if reduce == "auto":
        assert float(said["gap"]) <= 0.02
    if name not in ("ovo", "ovr"):
        # All rows are scanned with few support vectors.
        scans = [one["support_vectors"] for one in rounds if not one["inner_set"]]
        assert scans
        assert max(scans) < int(said["support_vectors_before"]) / 2
        assert judged.support_vectors == scans[-1]
