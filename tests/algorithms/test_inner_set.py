"""Test inner sets: rounds on the rows near the margin alone reach the optimum over all rows."""

from __future__ import annotations

import signal

import numpy as np
import oracle
import pytest
from commands import run_train
from learning import board, read_log

import randsvm
from randsvm.algorithms.reduced_set import SubtaskReduction
from randsvm.data import dataset
from randsvm.data.reading import ParseOptions
from randsvm.errors import Interrupted
from randsvm.events import Iteration, Notice
from randsvm.parameters.run import CertifyParams, Resources
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, ReducedMachine
from randsvm.training import rounds
from randsvm.training.rounds import Rounds

ROWS = 4000
GAP = 0.002
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


def written(path, y, X, weights=None):
    path.write_text(oracle.svmlight_text([f"{label:g}" for label in y], X, weights=weights))
    return path


def trained(folder, name, *words):
    """Train on a set; return its file, the model and the records of the rounds."""
    y, X, options, _ = SETS[name]
    train, model, log = written(folder / "train", y, X), folder / "model", folder / "log"
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


def test_a_reduced_machine_with_coefficients_of_one_class_gives_no_dual_objective(
    tmp_path, monkeypatch, set_sizes
):
    """Its coefficients are within their bounds, but do not add up to 0: their D is too large.

    No rounds continue from it: it is evaluated once, although the gap is above the one asked for.
    """
    y, X = oracle.two_gaussians(1000)
    y = np.where(np.arange(len(y)) < 150, 1, -1)
    C = 1e-4

    def of_one_class(part, SV, gap, certificate=None, lowers=True):
        kept = np.flatnonzero(part.task.D.labels() < 0)
        beta, points = np.full(len(kept), -C), part.scan.rows(kept)
        changes = SubtaskReduction(Certificate(0.03, 0.0, True), 0, 0, 0, 1000, (1, 1))
        machine = ReducedMachine(kept, beta, SV.b, SV.problem, points, gap=2.0, changes=changes)
        return machine, changes.full, changes

    evaluate, evaluated = Scan.evaluate, []

    def counted(scan, SV):
        evaluated.append(SV)
        return evaluate(scan, SV)

    monkeypatch.setattr(Scan, "evaluate", counted)
    monkeypatch.setattr(Rounds, "reduce", of_one_class)
    set_sizes(reduced_gap=2.0, inner_set_share=1)
    train, model, log = written(tmp_path / "train", y, X), tmp_path / "model", tmp_path / "log"
    words = ["-q", "-c", C, "-g", 0.1, "--sample-size", 300, "--log", log]
    run_train("randsvm", *words, "--reduce", 150, "--gap", 1e-9, train, model)
    rounds = [one for one in read_log(log) if one["event"] == "iteration"]
    assert any(one["inner_set"] for one in rounds)
    assert [type(SV) for SV in evaluated] == [ReducedMachine]
    # The losses of f = -1.
    assert float(oracle.trailer(model)["dual"]) <= 300 * C
    assert all(one["dual"] is None or one["dual"] <= 300 * C for one in rounds)


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


def test_a_row_of_weight_w_counts_as_w_equal_rows(tmp_path):
    y, X = board(ROWS)
    weights = np.random.default_rng(5).integers(1, 4, ROWS)
    train, model, log = tmp_path / "train", tmp_path / "model", tmp_path / "log"
    written(train, y, X, weights)
    words = ["-q", "-g", 5, "--sample-size", 300]
    run_train("randsvm", *words, "--gap", GAP, "--log", log, train, model)
    rounds = [one for one in read_log(log) if one["event"] == "iteration"]
    assert any(0 < size < ROWS for size in sizes(rounds)[2:])
    every = written(tmp_path / "every", np.repeat(y, weights), np.repeat(X, weights, axis=0))
    said = oracle.trailer(model)
    judged = randsvm.certify(every, model, params=CertifyParams())
    assert float(said["primal"]) == pytest.approx(judged.primal, rel=1e-5)
    run_train("osuna", "-q", "-g", 5, "--gap", 1e-4, every, tmp_path / "plain")
    plain = oracle.trailer(tmp_path / "plain")
    assert float(said["dual"]) <= float(plain["primal"]) * (1 + 1e-5)
    assert float(said["gap"]) <= GAP


def test_few_violators_are_few_of_the_working_set_of_their_problem(tmp_path, monkeypatch):
    """By default a working set has all of up to 3,000 rows, and 1,000 of the 4,000."""
    seen, plain = set(), rounds.decide

    def recorded(record, limits):
        seen.add(limits.rows)
        return plain(record, limits)

    monkeypatch.setattr(rounds, "decide", recorded)
    train, log = written(tmp_path / "train", *BOARD), tmp_path / "log"
    words = ("-q", "-g", 5, "--gap", GAP, "--log", log)
    run_train("randsvm", *words, train, tmp_path / "model")
    found = {one["inner_set"] for one in read_log(log) if one["event"] == "iteration"}
    assert any(0 < size <= 3000 for size in found)
    assert seen <= {size if 0 < size <= 3000 else 1000 for size in found}
    assert len(seen) > 1


def test_a_large_inner_set_gives_way_to_all_rows(tmp_path, set_sizes):
    set_sizes(inner_set_share=0.0)
    train, model, rounds = trained(tmp_path, "svc")
    assert sizes(rounds)[-1] == 0
    assert len([size for size in sizes(rounds) if size == 0]) == 1
    judged = randsvm.certify(train, model, params=CertifyParams())
    assert judged.feasible
    assert judged.gap <= GAP * 1.01


def interrupted(folder, name, rounds):
    """Interrupt a training this number of rounds after the estimate, or in its first round; return
    the training file, the model and the notices.

    rounds: None: the first round
    """
    y, X, _, certify = SETS[name]
    after_estimate, notices = 0, []

    def watch(event):
        nonlocal after_estimate
        if isinstance(event, Notice):
            notices.append(event.text)
        if isinstance(event, Iteration):
            after_estimate += after_estimate > 0 or not event.inner_set
            if rounds is None or after_estimate == rounds + 1:
                raise Interrupted(signal.SIGTERM)

    train, model = written(folder / "train", y, X), folder / "model"
    with pytest.raises(Interrupted):
        task = {"task": name} if name in ("svr", "one-class") else {}
        gamma = 0.5 if name == "one-class" else 5.0
        randsvm.train_randsvm(train, model, watch, gamma=gamma, sample_size=300, **task, **certify)
    return train, model, notices


@pytest.mark.parametrize("name", ["svc", "svr", "one-class"])
def test_an_interrupted_run_ends_with_the_solution_of_the_inner_set(tmp_path, name):
    train, model, notices = interrupted(tmp_path, name, 3)
    said = oracle.trailer(model)
    judged = randsvm.certify(train, model, params=CertifyParams(**SETS[name][3]))
    assert judged.feasible
    assert said["certificate"] == "proven"
    assert not any("no time for a solution" in text for text in notices)
    assert float(said["primal"]) == pytest.approx(judged.primal, rel=1e-5)
    assert float(said["dual"]) >= judged.dual - 1e-5 * abs(judged.dual)
    best = oracle.trailer(trained(tmp_path, name)[1])
    assert float(said["dual"]) <= float(best["primal"])


@pytest.mark.parametrize("rounds", [0, None])
@pytest.mark.parametrize("name", ["svc", "one-class"])
def test_an_interrupted_run_without_another_solution_keeps_the_estimate(tmp_path, name, rounds):
    """Its P is true, and it has no D."""
    train, model, notices = interrupted(tmp_path, name, rounds)
    said = oracle.trailer(model)
    judged = randsvm.certify(train, model, params=CertifyParams(**SETS[name][3]))
    assert not judged.feasible
    assert said["certificate"] == "estimate"
    assert any("no time for a solution" in text for text in notices)
    assert said["primal"] == pytest.approx(judged.primal, rel=1e-5)
    assert abs(said["primal"] - judged.primal) <= said["primal_error"] + judged.primal_error
    assert (said["dual"], said["gap"]) == (None, 1.0)


@pytest.mark.parametrize("name", [name for name in SETS if name != "svr"])
@pytest.mark.parametrize("reduce", ["auto", 150])
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
        # After the estimate all rows are scanned with few support vectors.
        scans = [one["support_vectors"] for one in rounds if not one["inner_set"]][1:]
        assert scans
        assert max(scans) < int(said["support_vectors_before"]) / 2
        assert judged.support_vectors == scans[-1]


@pytest.mark.parametrize("mask", ["few", "most", "view"])
def test_regrouped_rows_are_those_of_the_data_set(tmp_path, mask):
    path = written(tmp_path / "train", *BOARD)
    D = dataset.load(str(path), ParseOptions(chunk_rows=300), Resources(jobs=1))
    try:
        rng = np.random.default_rng(2)
        whole = D.subset(rng.random(D.n) < 0.7) if mask == "view" else D
        rows = np.flatnonzero(rng.random(whole.n) < (0.9 if mask == "most" else 0.05))
        some = whole.subset(whole.mask(rows)).regrouped(0, None)
        expected = whole.points(rows)
        found = some.points(np.arange(some.n))
        assert some.n == len(rows)
        assert len(some.shards) < len(whole.shards)
        assert (found.y == expected.y).all()
        assert (found.X.toarray() == expected.X.toarray()).all()
        assert (some.labels() == found.y).all()
        some.store.close()
    finally:
        D.close()
