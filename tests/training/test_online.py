"""--update continues the training of a linear model with new rows, as a plain reference does."""

from __future__ import annotations

import array
import fcntl
import re
import signal
import subprocess
import sys
import termios
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import click
import numpy as np
import oracle
import pytest
import sgd_reference
from commands import run_train
from learning import learn
from liblinear import liblinearutil

from randsvm.algorithms.sgd import SgdSchedule
from randsvm.data import svmlight
from randsvm.errors import Interrupted, ModelError, ParameterError
from randsvm.models.load import load

KINDS = {
    "hinge": (2, ()),
    "squared-hinge": (2, ("--loss", "squared-hinge")),
    "log": (2, ("--loss", "log")),
    "weights": (2, ("-w", 1, 3, "-w", 2, 0.5)),
    "ovr": (4, ()),
    "ovr-log": (4, ("--loss", "log", "-w", 3, 5)),
    "crammer-singer": (4, ("--multiclass", "crammer-singer")),
}
kinds = pytest.mark.parametrize("classes, words", KINDS.values(), ids=KINDS)


class UpdateCase:
    """Rows A, a model of A, and rows B of the same distribution with two more features."""

    def __init__(self, folder, classes, words, rows=200):
        self.folder = folder
        y, X = oracle.clouds(2 * rows, 0, classes, 7)
        X[:rows, [2, 6]] = 0
        self.A, self.B = (y[:rows], X[:rows]), (y[rows:], X[rows:])
        self.path_A = oracle.write_svmlight(folder / "A", *self.A)
        self.path = oracle.write_svmlight(folder / "B", *self.B)
        self.old = learn("sgd", self.path_A, folder / "old", *words).model

    def update(self, name="new", *words, data=None):
        data = self.path if data is None else data
        return learn("sgd", data, self.folder / name, "--update", self.old, *words)

    def reference(self, rate=0.0):
        """Return a plain learner in the state that the old model's file holds."""
        return reference_of(self.old, 7, rate)


def reference_of(path, d, rate=0.0):
    old = oracle.read_linear(path, d)
    losses = {"L2R_L1LOSS_SVC_DUAL": "hinge", "L2R_L2LOSS_SVC": "squared-hinge", "L2R_LR": "log"}
    names = ("lambda", "eta0", "bias_rate")
    lambda_, eta0, bias_rate = (float(old.metadata[name]) for name in names)
    weights = np.array(old.metadata["weights"].split(), float)
    plain = sgd_reference.Plain(
        d,
        len(old.label),
        SgdSchedule(
            lambda_,
            eta0,
            bias_rate,
            weights,
            losses.get(old.solver, "hinge"),
            old.solver == "MCSVM_CS",
            bias_lambda=float(old.metadata["bias_lambda"]),
            fixed_rate=rate,
        ),
    )
    plain.w, plain.b, plain.t = old.w, old.b, float(old.metadata["t"])
    plain.label = [float(name) for name in old.label]
    return plain


def teach(plain, y, X):
    for label, x in zip(y, X, strict=True):
        plain.learn(x, plain.label.index(label))
    return plain


def assert_learnt(model, w, b):
    found = oracle.read_linear(model, len(w))
    assert found.w == pytest.approx(w, rel=1e-9, abs=1e-12)
    assert found.b == pytest.approx(b, rel=1e-9, abs=1e-12)


# ---- an update takes the steps of the reference -------------------------------------------------


@kinds
def test_an_update_takes_the_steps_of_the_reference_in_the_order_of_the_rows(
    tmp_path, classes, words
):
    """The new model is the mean of the weights since the update began; some features are new."""
    case = UpdateCase(tmp_path, classes, words)
    learnt, plain = case.update(), teach(case.reference(), *case.B)
    assert_learnt(learnt.model, *plain.mean())
    outcome = learnt.outcome
    assert outcome["steps"] == 200
    assert outcome["progressive_loss"] == pytest.approx(plain.losses / 200, rel=1e-9)
    assert outcome["progressive_errors"] == pytest.approx(plain.errors / 200)


@kinds
def test_a_fixed_rate_takes_steps_of_that_size_and_the_last_weights(tmp_path, classes, words):
    case = UpdateCase(tmp_path, classes, words)
    learnt = case.update("new", "--update-rate", 0.02)
    plain = teach(case.reference(0.02), *case.B)
    assert_learnt(learnt.model, plain.w, plain.b)
    assert learnt.outcome["progressive_errors"] == pytest.approx(plain.errors / 200)


@kinds
def test_lambda_and_eta0_are_carried_on_and_t_adds_up(tmp_path, classes, words):
    """Training counts each row once; an update takes one step for each row."""
    case = UpdateCase(tmp_path, classes, words)
    learnt, old = case.update(), oracle.trailer(case.old)
    again = learn("sgd", case.path_A, tmp_path / "again", "--update", learnt.model)
    assert [float(metadata["t"]) for metadata in (old, learnt.metadata, again.metadata)] == [
        200,
        400,
        600,
    ]
    assert [metadata["n"] for metadata in (old, learnt.metadata, again.metadata)] == [
        "200",
        "400",
        "600",
    ]
    for name in ("lambda", "eta0", "bias_rate", "weights", "seed", "labels"):
        assert old[name] == learnt.metadata[name] == again.metadata[name]
    assert learnt.metadata["stopped"] == "end of the data"
    both = teach(teach(case.reference(), *case.B), *case.A)
    assert_learnt(again.model, *both.mean())


@pytest.mark.parametrize("rate", [(), ("--update-rate", 0.02)], ids=["falling", "fixed"])
@kinds
def test_two_updates_are_one_with_the_rows_of_both(tmp_path, classes, words, rate):
    """The models are equal to the last bit; the second file has a feature of its own."""
    case = UpdateCase(tmp_path, classes, words)
    lines = case.path.read_text().splitlines(keepends=True)
    lines[150] = lines[150].rstrip("\n") + " 11:0.5\n"
    parts = {"whole": lines, "first": lines[:70], "second": lines[70:]}
    for name, part in parts.items():
        (tmp_path / name).write_text("".join(part))
    once = case.update("once", *rate, data=tmp_path / "whole")
    first = case.update("one", *rate, data=tmp_path / "first")
    twice = learn("sgd", tmp_path / "second", tmp_path / "two", "--update", first.model, *rate)
    assert twice.model.read_bytes() == once.model.read_bytes()


def test_a_mean_goes_on_from_the_running_weights_of_a_fixed_rate(tmp_path):
    """The mean restarts, because the model before had none."""
    case = UpdateCase(tmp_path, 2, ())
    fixed = case.update("fixed", "--update-rate", 0.02)
    after = learn("sgd", case.path_A, tmp_path / "after", "--update", fixed.model)
    plain = reference_of(fixed.model, 7)
    assert_learnt(after.model, *teach(plain, *case.A).mean())


def test_running_weights_of_another_size_are_refused(tmp_path):
    case = UpdateCase(tmp_path, 2, ())
    model = load(str(case.update().model))
    metadata = {**model.metadata, "running_b": "1.0 2.0"}
    replace(model, metadata=metadata).save(str(tmp_path / "bad"))
    with pytest.raises(ModelError, match="bad: expected the running weights of an update, found"):
        learn("sgd", case.path, tmp_path / "n", "--update", tmp_path / "bad")


def test_an_update_may_change_the_class_weights(tmp_path):
    case = UpdateCase(tmp_path, 4, ("-w", 2, 7))
    learnt = case.update("new", "-w3", 5)
    plain = case.reference()
    weights = [5.0 if label == 3 else 1.0 for label in plain.label]
    plain.steps.weights[:] = weights
    assert_learnt(learnt.model, *teach(plain, *case.B).mean())
    assert learnt.metadata["weights"] == " ".join(map(repr, weights))


def test_the_log_reports_progress_at_each_doubling(tmp_path, monkeypatch):
    """Each line has the mean loss of the rows since the line before, each taken before its step."""
    case = UpdateCase(tmp_path, 2, ())
    defaults = {**svmlight.read_blocks.__kwdefaults__, "block_size": 500}
    monkeypatch.setattr(svmlight.read_blocks, "__kwdefaults__", defaults)
    emitted = case.update().of("updated")
    assert len(emitted) > 3
    rows = [event["rows"] for event in emitted]
    assert np.cumsum([event["last"] for event in emitted]).tolist() == rows
    assert all(b >= 2 * a for a, b in pairwise(rows))
    plain, y, X = case.reference(), *case.B
    for event in emitted:
        begin, end = event["rows"] - event["last"], event["rows"]
        plain.losses, plain.errors = 0.0, 0
        teach(plain, y[begin:end], X[begin:end])
        assert event["loss"] == pytest.approx(plain.losses / event["last"], rel=1e-9)
        assert event["errors"] == pytest.approx(plain.errors / event["last"])


# ---- files and models ---------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--average",), ("--early-stopping", 0.2)], ids=str)
def test_a_model_of_any_training_can_be_updated(tmp_path, words):
    case = UpdateCase(tmp_path, 4, words)
    learnt = case.update()
    assert_learnt(learnt.model, *teach(case.reference(), *case.B).mean())
    _, X = case.B
    labels, _ = oracle.liblinear_predictions(learnt.model, X)
    assert labels.tolist() == oracle.read_linear(learnt.model, 7).labels(X).tolist()


def test_a_new_huge_index_makes_no_huge_model(tmp_path, predict):
    case = UpdateCase(tmp_path, 2, ())
    (tmp_path / "B").write_text("1 2147483647:1\n2 7:1\n" * 30)
    learnt = case.update()
    assert len(learnt.model.read_bytes()) < 5000
    assert liblinearutil.load_model(str(learnt.model)) is None
    (tmp_path / "test").write_text("? 2147483647:1\n? 2147483646:1\n")
    scores = predict(tmp_path / "test", learnt.model, "--scores").scores
    assert scores[0] > scores[1]


def test_a_label_that_the_model_does_not_know_is_refused(command, tmp_path):
    case = UpdateCase(tmp_path, 4, ())
    lines = case.path.read_text().splitlines(keepends=True)
    lines[6] = "  7 1:1\n"
    case.path.write_text("".join(lines))
    old, before = case.old.read_bytes(), case.old.stat()
    ended = command("train", "sgd", "-q", "--update", "old", "B", "old")
    labels = oracle.trailer(case.old)["labels"].replace(" ", ", ")
    assert (ended.returncode, ended.stdout) == (65, "")
    assert ended.stderr == f"B:7:3: expected one of the labels {labels}, found '7'\n"
    assert case.old.read_bytes() == old
    assert case.old.stat().st_mtime_ns == before.st_mtime_ns


def foreign(folder):
    y, X = oracle.two_gaussians(50)
    model = liblinearutil.train(y, X, "-s 3 -B 1 -q")
    liblinearutil.save_model(str(folder / "old"), model)
    return folder / "old"


def kernel(folder):
    path = oracle.write_svmlight(folder / "data", *oracle.two_gaussians(50))
    return learn("osuna", path, folder / "old").model


def trained(*words):
    def make(folder):
        path = oracle.write_svmlight(folder / "data", *oracle.two_gaussians(50))
        return learn("sgd", path, folder / "old", *words).model

    return make


def text(folder):
    (folder / "old").write_text("1 1:1\n")
    return folder / "old"


@pytest.mark.parametrize(
    "make, message",
    [
        (foreign, "old: expected a model of randsvm-train sgd to update, found one without"),
        (kernel, "old: expected a linear model to update, found another"),
        (text, "old:1: expected"),
        (trained("--scale", "minmax"), "old: expected a model without --scale to update"),
        (trained("-b", 1), "old: expected a model without -b 1 to update"),
        (trained("--conformal"), "old: expected a model without --conformal to update"),
        (trained("-s", "one-class", "-n", 0.1), "old: expected a model without -n to update"),
        (
            trained("-t", "rbf", "--components", 9),
            "old: expected a model without random features to update",
        ),
    ],
)
def test_only_a_model_of_sgd_can_be_updated(tmp_path, make, message):
    path = oracle.write_svmlight(tmp_path / "B", *oracle.two_gaussians(50))
    with pytest.raises(ModelError, match=message) as caught:
        learn("sgd", path, tmp_path / "new", "--update", make(tmp_path))
    assert caught.value.exit_code == 65
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words, option",
    [
        ("-c 1", "cost"),
        ("--lambda 0.1", "lambda"),
        ("--loss log", "loss"),
        ("--multiclass ovr", "multiclass"),
        ("--epochs 3", "epochs"),
        ("--early-stopping 0.1", "early-stopping"),
    ],
)
def test_options_that_the_model_determines_are_refused(tmp_path, words, option):
    case = UpdateCase(tmp_path, 2, ())
    with pytest.raises(ParameterError, match=f"the options of the model: it takes no --{option}$"):
        case.update("new", *words.split())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        ("-w balanced", "-w balanced needs the number of rows, which --update does not know"),
        ("-w 9 2", "-w 9: no class has this label; the labels are"),
        ("--update-rate 0", "must be > 0 and finite, got 0"),
        ("--update-rate nan", "must be > 0 and finite, got nan"),
    ],
)
def test_invalid_parameters_of_an_update_are_refused(tmp_path, words, message):
    case = UpdateCase(tmp_path, 2, ())
    with pytest.raises((ParameterError, click.BadParameter), match=message) as caught:
        case.update("new", *words.split())
    assert caught.value.exit_code == 2
    assert not (tmp_path / "new").exists()


def test_options_without_effect_are_noted_and_not_in_the_printed_command(case, capsys):
    new, words = case.folder / "said", ["-w", "+2", "3", "--update", str(case.old)]
    run_train("sgd", "-t", "rbf", "--seed", 3, *words, case.path, new)
    said = capsys.readouterr().err
    assert f"randsvm-train sgd {' '.join(words)} {case.path} {new}\n" in said
    assert "note: -t has no effect with --update\n" in said
    assert "note: --seed has no effect with --update\n" in said
    assert "configuration sgd -w +2 3 --update MODEL\n" in new.read_text()


# ---- rows as they arrive ------------------------------------------------------------------------

SECONDS = 60.0  # a busy machine reads and learns late


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return UpdateCase(tmp_path_factory.mktemp("stream"), 2, ())


class UpdateProcess:
    """A process of --update that reads rows from a pipe; its model is `m`."""

    def __init__(self, case, folder, process):
        self.model = folder / "m"
        self.process = process
        self.known = int(oracle.trailer(case.old)["n"])
        self.lines = case.path.read_bytes().splitlines(keepends=True)

    def write(self, begin, end):
        self.write_bytes(b"".join(self.lines[begin:end]))

    def write_bytes(self, content):
        assert self.process.stdin is not None
        self.process.stdin.write(content)
        self.process.stdin.flush()

    def wait_until_read(self):
        """Wait until the pipe is empty."""
        assert self.process.stdin is not None
        left = array.array("i", [1])

        def empty():
            fcntl.ioctl(self.process.stdin, termios.FIONREAD, left)
            return left[0] == 0

        self._wait(empty, "it read what was written")

    def wait_for_rows(self, rows):
        """Wait until the model has learnt this number of the rows."""
        self._wait(lambda: self.rows >= rows, f"a model of {rows} rows")

    @property
    def rows(self):
        return int(oracle.trailer(self.model)["n"]) - self.known if self.model.exists() else 0

    def _wait(self, done, what):
        ends = time.perf_counter() + SECONDS
        while not done():
            assert self.process.poll() is None, f"ended before {what}"
            assert time.perf_counter() < ends, f"waited in vain for {what}"
            time.sleep(0.01)

    def wait_for(self, pattern):
        """Read stderr up to a line that matches."""
        assert self.process.stderr is not None
        assert any(re.search(pattern, line.decode()) for line in self.process.stderr)

    def end(self, number=0):
        """Close the pipe, or send a signal; return the exit code and stderr."""
        if number:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()


@pytest.fixture
def update_process(case, tmp_path):
    """update_process("--checkpoint", 1): `randsvm-train sgd --update OLD - m` as a process."""
    with ExitStack() as stack:

        def start(*words):
            arguments = ["sgd", "--update", case.old, *words, "-", "m"]
            process = subprocess.Popen(
                [sys.executable, "-m", "randsvm.cli.train", *map(str, arguments)],
                cwd=tmp_path,
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            # Whatever happens, it does not stay behind.
            stack.enter_context(process)
            stack.callback(process.kill)
            return UpdateProcess(case, tmp_path, process)

        yield start


def test_rows_of_a_pipe_are_learnt_as_they_arrive(case, update_process):
    """Each checkpoint is a whole model of the rows so far."""
    running = update_process("--checkpoint", 1)
    done = 0
    for rows in (1, 2, 10, 150):
        running.write(done, rows)
        running.wait_for_rows(rows)
        y, X = case.B
        plain = teach(case.reference(), y[:rows], X[:rows])
        assert_learnt(running.model, *plain.mean())
        assert oracle.trailer(running.model)["stopped"] == "checkpoint"
        assert liblinearutil.load_model(str(running.model)) is not None
        done = rows
    code, said = running.end()
    assert code == 0
    assert "stopped: end of the data after 150 steps" in said
    assert oracle.trailer(running.model)["stopped"] == "end of the data"
    assert_learnt(running.model, *plain.mean())


def test_a_checkpoint_every_n_rows_is_written_after_n_rows(
    update_process,
):
    running = update_process("--checkpoint", 20)
    running.write(0, 10)
    running.wait_for(" 10 rows ")
    assert not running.model.exists()
    running.write(10, 25)
    running.wait_for_rows(25)
    running.write(25, 44)
    running.end()
    assert running.rows == 44


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_the_model_of_the_rows_so_far(case, update_process, number):
    running = update_process()
    running.write(0, 10)
    running.wait_for(" 10 rows ")
    code, said = running.end(number)
    assert code == 128 + number
    assert "Traceback" not in said
    y, X = case.B
    assert_learnt(running.model, *teach(case.reference(), y[:10], X[:10]).mean())
    assert oracle.trailer(running.model)["stopped"] == str(Interrupted(number))
    assert running.rows == 10


def test_a_signal_before_the_first_row_writes_nothing(
    update_process,
):
    running = update_process()
    running.wait_for("^randsvm-train sgd ")
    code, _ = running.end(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert not running.model.exists()


def test_a_bad_row_in_a_stream_leaves_the_last_checkpoint(
    update_process,
):
    running = update_process("--checkpoint", 1)
    running.write(0, 5)
    running.wait_for_rows(5)
    running.write_bytes(b"1 1:1\n1 nonsense\n")
    code, said = running.end()
    assert code == 65
    assert said.splitlines()[-1].startswith("<stdin>:7:3: expected index:value")
    assert running.rows == 6
    assert oracle.trailer(running.model)["stopped"] == "checkpoint"
