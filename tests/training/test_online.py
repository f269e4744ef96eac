"""--update continues the training of a linear model with new rows, as a plain reference does."""

from __future__ import annotations

import array
import fcntl
import gzip
import re
import signal
import subprocess
import sys
import termios
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import numpy as np
import oracle
import pytest
import sgd_reference
from commands import run_train
from learning import learn
from liblinear import liblinearutil

from randsvm.algorithms.sgd import SgdSchedule
from randsvm.data import svmlight
from randsvm.errors import DataError, Interrupted, ModelError, ParameterError
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


def test_a_fixed_rate_follows_what_changes(tmp_path):
    """All labels change sign between two files."""
    y, X = oracle.two_gaussians(2000)
    path = oracle.write_svmlight(tmp_path / "A", y, X)
    turned = oracle.write_svmlight(tmp_path / "B", -y[:500], X[:500])
    old = learn("sgd", path, tmp_path / "old").model
    assert oracle.read_linear(old, 2).accuracy(-y, X) < 0.1
    learn("sgd", turned, tmp_path / "new", "--update", old, "--update-rate", 0.05)
    assert oracle.read_linear(tmp_path / "new", 2).accuracy(-y, X) > 0.9


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


def test_an_update_drops_metadata_that_describe_the_old_model_alone(tmp_path):
    metadata = UpdateCase(tmp_path, 2, ()).update().metadata
    assert (metadata["primal"], metadata["violators"]) == ("unknown", "unknown")
    assert not {"digest", "nnz", "C"} & set(metadata)


def test_an_update_may_change_the_class_weights(tmp_path):
    case = UpdateCase(tmp_path, 4, ("-w", 2, 7))
    learnt = case.update("new", "-w3", 5)
    plain = case.reference()
    weights = [5.0 if label == 3 else 1.0 for label in plain.label]
    plain.steps.weights[:] = weights
    assert_learnt(learnt.model, *teach(plain, *case.B).mean())
    assert learnt.metadata["weights"] == " ".join(map(repr, weights))


@pytest.mark.parametrize("rate", [(), ("--update-rate", 0.02)], ids=["falling", "fixed"])
def test_how_rows_arrive_does_not_change_a_byte(tmp_path, monkeypatch, rate):
    """With small blocks, features appear in another order."""
    case = UpdateCase(tmp_path, 4, ())
    content = case.update("new", *rate).model.read_bytes()
    packed = tmp_path / "B.gz"
    packed.write_bytes(gzip.compress(case.path.read_bytes()))
    assert case.update("packed", *rate, data=packed).model.read_bytes() == content
    for block_size in (1, 100, 3000):
        defaults = {**svmlight.read_blocks.__kwdefaults__, "block_size": block_size}
        with monkeypatch.context() as patch:
            patch.setattr(svmlight.read_blocks, "__kwdefaults__", defaults)
            assert case.update(f"in {block_size}", *rate).model.read_bytes() == content


def test_the_name_of_the_old_model_does_not_change_a_byte(tmp_path):
    """A model contains no file names, so equal runs give equal bytes."""
    case = UpdateCase(tmp_path, 2, ())
    content = case.update().model.read_bytes()
    case.old = case.old.rename(tmp_path / "yesterday")
    assert case.update("other").model.read_bytes() == content


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


# ---- as good as all at once ---------------------------------------------------------------------


def halves(path, folder, seed):
    """Write the rows of a file in random order to two files."""
    lines = path.read_text().splitlines(keepends=True)
    order = np.random.default_rng(seed).permutation(len(lines))
    for name, part in zip("AB", np.array_split(order, 2), strict=True):
        (folder / name).write_text("".join(lines[i] for i in part))
    return folder / "A", folder / "B"


def accuracy(predicted):
    correct, rows = map(int, re.search(r"\((\d+)/(\d+)\)", predicted.out).groups())
    return correct / rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, words",
    [
        ("reuters_r8.train reuters_r8.test", ("--lambda", 1 / 5485)),
        ("reuters_r8.train reuters_r8.test", ("--loss", "log", "--lambda", 1 / 5485)),
        ("sms_spam.train sms_spam.test", ("--lambda", 1 / 3901)),
        ("sms_spam.train sms_spam.test", ("--loss", "squared-hinge")),
        ("satimage.scale satimage.scale.t", ()),
    ],
    ids=str,
)
def test_a_then_b_is_within_half_a_point_of_both_at_once(real, tmp_path, predict, name, words):
    """The accuracies are means over three random halvings. An update keeps the lambda of A."""
    train, test = map(real, name.split())
    whole, updated = [], []
    for seed in range(3):
        A, B = halves(train, tmp_path, seed)
        both = learn("sgd", train, tmp_path / "both", *words, "--seed", seed)
        old = learn("sgd", A, tmp_path / "old", *words, "--seed", seed)
        new = learn("sgd", B, tmp_path / "new", "--update", old.model)
        whole.append(accuracy(predict(test, both.model)))
        updated.append(accuracy(predict(test, new.model)))
    assert np.mean(updated) >= np.mean(whole) - 0.005


@pytest.mark.parametrize(
    "made_by, words",
    [
        ("two_gaussians", ()),
        ("two_gaussians", ("--loss", "squared-hinge")),
        ("clouds", ("--loss", "log")),
        ("clouds", ("--multiclass", "crammer-singer")),
        ("sparse_rows", ()),
    ],
    ids=str,
)
def test_a_then_b_of_made_sets_is_within_half_a_point(tmp_path, made, predict, made_by, words):
    path, _, _ = made(made_by, 4000)
    test, _, _ = made(made_by, 20_000, 1)
    A, B = halves(path, tmp_path, 0)
    both = learn("sgd", path, tmp_path / "both", *words)
    old = learn("sgd", A, tmp_path / "old", *words)
    new = learn("sgd", B, tmp_path / "new", "--update", old.model)
    assert accuracy(predict(test, new.model)) >= accuracy(predict(test, both.model)) - 0.005


# ---- files and models ---------------------------------------------------------------------------


def test_a_model_may_be_updated_in_place(tmp_path):
    case = UpdateCase(tmp_path, 2, ())
    content = case.update().model.read_bytes()
    learnt = case.update("old")
    assert learnt.model == case.old
    assert case.old.read_bytes() == content


@pytest.mark.parametrize("words", [(), ("--average",), ("--early-stopping", 0.2)], ids=str)
def test_a_model_of_any_training_can_be_updated(tmp_path, words):
    case = UpdateCase(tmp_path, 4, words)
    learnt = case.update()
    assert_learnt(learnt.model, *teach(case.reference(), *case.B).mean())
    _, X = case.B
    labels, _ = oracle.liblinear_predictions(learnt.model, X)
    assert labels.tolist() == oracle.read_linear(learnt.model, 7).labels(X).tolist()


NAMES = {"strings": (["spam", "ham"], 1), "zero-based": (["+1", "-1"], 0),
         "huge": (["a", "b", "9c"], 0)}  # fmt: skip


@pytest.mark.parametrize("names, base", NAMES.values(), ids=NAMES)
def test_models_that_liblinear_refuses_are_updated_as_others(tmp_path, predict, names, base):
    """The decision values equal those of a model with plain labels and indices from 1."""
    y, X = oracle.clouds(300, 0, len(names))
    plain = [str(10 + int(k)) for k in y]
    mine = [names[int(k) - 1] for k in y]
    models = []
    for name, labels, start in (("mine", mine, base), ("plain", plain, 1)):
        for part, rows in (("A", slice(0, 150)), ("B", slice(150, 300))):
            text = oracle.svmlight_text(labels[rows], X[rows], start)
            (tmp_path / f"{name}.{part}").write_text(text)
        words = () if start else ("--zero-based",)
        old = learn("sgd", tmp_path / f"{name}.A", tmp_path / f"{name}.old", *words)
        new = tmp_path / f"{name}.new"
        models.append(learn("sgd", tmp_path / f"{name}.B", new, "--update", old.model).model)
    assert liblinearutil.load_model(str(models[0])) is None
    said = [predict(tmp_path / f"{name}.B", new, "--scores").lines
            for name, new in zip(("mine", "plain"), models, strict=True)]  # fmt: skip
    assert said[0] == said[1]


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


def test_a_bad_row_is_refused_though_rows_before_it_were_learnt(tmp_path):
    case = UpdateCase(tmp_path, 2, ())
    (tmp_path / "bad").write_text(case.path.read_text() + "1 1:x\n")
    with pytest.raises(DataError, match=r"bad:201:3: expected a number after 1:, found 'x'"):
        case.update(data=tmp_path / "bad")
    assert not (tmp_path / "new").exists()


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
        ("--epochs auto", "epochs"),
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
        ("--update-rate 0", "--update-rate must be > 0 and finite, got 0"),
        ("--update-rate nan", "--update-rate must be > 0 and finite, got nan"),
    ],
)
def test_invalid_parameters_of_an_update_are_refused(tmp_path, words, message):
    case = UpdateCase(tmp_path, 2, ())
    with pytest.raises(ParameterError, match=message) as caught:
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


def test_a_refused_option_is_one_line_and_exit_2(command, tmp_path):
    UpdateCase(tmp_path, 2, ())
    ended = command("train", "sgd", "-q", "--update", "old", "-c", 1, "B", "new")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "randsvm-train: --update keeps the options of the model: it takes no --cost\n"
    )


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


def test_half_a_row_waits_for_its_end(case, update_process):
    running = update_process("--checkpoint", 1)
    whole = b"".join(running.lines[:3])
    for piece in (whole[:-5], whole[-5:]):
        running.write_bytes(piece)
        running.wait_for_rows(2 if piece != whole[-5:] else 3)
    y, X = case.B
    assert_learnt(running.model, *teach(case.reference(), y[:3], X[:3]).mean())


def test_the_first_write_may_be_too_short_to_recognise_a_compression(case, update_process):
    running = update_process("--checkpoint", 1)
    running.write_bytes(running.lines[0][:2])
    running.wait_until_read()
    running.write_bytes(running.lines[0][2:])
    running.wait_for_rows(1)
    running.write(1, 3)
    running.wait_for_rows(3)
    assert running.end()[0] == 0
    y, X = case.B
    assert_learnt(running.model, *teach(case.reference(), y[:3], X[:3]).mean())


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


def test_a_checkpoint_of_time_is_written_after_that_time(
    update_process,
):
    running = update_process("--checkpoint", "0.5s")
    running.write(0, 10)
    running.wait_for(" 10 rows ")
    time.sleep(0.5)
    running.write(10, 12)
    running.wait_for_rows(12)
    assert running.end()[0] == 0


def test_a_checkpoint_of_time_needs_no_further_row(
    update_process,
):
    """The checkpoint is written in time although no more rows arrive."""
    running = update_process("--checkpoint", "0.5s")
    running.write(0, 1)
    running.wait_for(" 1 rows ")
    running.write(1, 3)
    running.wait_for_rows(3)


def test_an_hour_between_checkpoints_leaves_the_model_to_the_end(
    update_process,
):
    running = update_process("--checkpoint", "1h")
    running.write(0, 10)
    running.wait_for(" 10 rows ")
    assert not running.model.exists()
    assert running.end()[0] == 0
    assert running.rows == 10


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


def test_a_time_limit_ends_a_silent_stream(update_process):
    running = update_process("--time-limit", "4s")
    running.write(0, 10)
    running.wait_for(" 10 rows ")
    code = running.process.wait(SECONDS)
    _, said = running.end()
    assert code == 0
    assert "stopped: time limit after 10 steps" in said
    assert running.rows == 10


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
