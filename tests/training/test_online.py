"""--update continues the training of a linear model with new rows, as a plain reference does."""

import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import oracle
import pandas as pd
import pytest
import sgd_reference
from commands import run_train
from learning import learn, read_log
from liblinear import liblinearutil
from scipy import sparse
from trainings import SgdSchedule

import randsvm
from randsvm.errors import ContentError, Interrupted, ParameterError

KINDS = {
    "hinge": (2, ()),
    "squared-hinge": (2, ("--loss", "squared-hinge")),
    "log": (2, ("--loss", "log")),
    "weights": (2, ("-w", 1, 3, "-w", 2, 0.5)),
    "ovr": (4, ()),
    "ovr-log": (4, ("--loss", "log", "-w", 3, 5)),
    "crammer-singer": (4, ("--multiclass", "crammer-singer")),
}
LOSSES = {"L2R_L1LOSS_SVC_DUAL": "hinge", "L2R_L2LOSS_SVC": "squared-hinge", "L2R_LR": "log"}
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
        old = oracle.read_linear(self.old, 7)
        steps = SgdSchedule(
            lambda_=old.metadata["lambda"],
            eta0=old.metadata["eta0"],
            bias_rate=old.metadata["bias_rate"],
            weights=np.array(old.metadata["weights"], float),
            loss=LOSSES.get(old.solver, "hinge"),
            crammer_singer=old.solver == "MCSVM_CS",
            bias_lambda=old.metadata["bias_lambda"],
            fixed_rate=rate,
        )
        plain = sgd_reference.Plain(7, len(old.label), steps)
        plain.w, plain.b, plain.t = old.w, old.b, old.metadata["t"]
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


def table(path, y, X):
    """Write rows as CSV with the columns x1, x2, ... and label."""
    rows = np.column_stack([X, y]).tolist()
    names = [*(f"x{j}" for j in range(1, X.shape[1] + 1)), "label"]
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")
    return path


@pytest.mark.parametrize("source", ["array", "sparse matrix", "files", "table", "frame"])
def test_rows_of_any_source_make_the_steps_of_a_file(tmp_path, source):
    """The model that is updated is one in memory."""
    case = UpdateCase(tmp_path, 4, ())
    (y, X), labels, options = case.B, case.B[0].astype(int), {}
    old = randsvm.load(str(case.old))
    if source in ("table", "frame"):
        A = table(tmp_path / "A.csv", case.A[0].astype(int).tolist(), case.A[1])
        options = {"format": "csv", "label_column": "label"}
        old = randsvm.train(A, algorithm="sgd", **options)
        options = {"format": "svmlight"}
    expected = randsvm.train(case.path, tmp_path / "of file", "sgd", update=old, **options)
    rows = {
        "array": lambda: randsvm.Arrays(X, labels),
        "sparse matrix": lambda: randsvm.Arrays(sparse.csr_matrix(X), labels),
        "files": lambda: [
            oracle.write_svmlight(tmp_path / str(at), y[at : at + 100], X[at : at + 100])
            for at in (0, 100)
        ],
        "table": lambda: table(tmp_path / "B.csv", labels, X),
        "frame": lambda: pd.read_csv(table(tmp_path / "B.csv", labels, X)),
    }[source]()
    found = randsvm.train(rows, algorithm="sgd", update=old)
    assert found.outcome.steps == expected.outcome.steps == 200
    Z = sparse.csr_matrix(np.vstack([case.A[1], X]))
    np.testing.assert_allclose(
        found.decision_function(Z), expected.decision_function(Z), rtol=1e-12
    )
    assert np.abs(found.decision_function(Z) - old.decision_function(Z)).max() > 0.01


def test_labels_of_arrays_are_those_of_the_model(tmp_path):
    case = UpdateCase(tmp_path, 2, ())
    old, X = randsvm.load(str(case.old)), np.zeros((1, 2))
    with pytest.raises(ContentError, match=r"y: expected one of the labels .*, found 7"):
        randsvm.train(randsvm.Arrays(X, [7]), algorithm="sgd", update=old)
    with pytest.raises(ParameterError, match="--checkpoint needs a MODEL_FILE"):
        randsvm.train(randsvm.Arrays(X, [1]), algorithm="sgd", update=old, checkpoint=1)


def test_newton_steps_count_as_an_epoch(tmp_path):
    """Else the first steps of an update would be as large as those from weights of 0."""
    case = UpdateCase(tmp_path, 2, ("--epochs", 0, "--gap", 0.01))
    assert float(oracle.read_linear(case.old, 7).metadata["t"]) == 200


def test_an_update_may_change_the_class_weights(tmp_path):
    case = UpdateCase(tmp_path, 4, ("-w", 2, 7))
    learnt = case.update("new", "-w3", 5)
    plain = case.reference()
    weights = [5.0 if label == 3 else 1.0 for label in plain.label]
    plain.steps.weights[:] = weights
    assert_learnt(learnt.model, *teach(plain, *case.B).mean())
    assert learnt.metadata["weights"] == weights


def test_the_log_reports_progress_at_each_doubling(tmp_path, set_sizes):
    """Each line has the mean loss of the rows since the line before, each taken before its step."""
    case = UpdateCase(tmp_path, 2, ())
    set_sizes(block_bytes=500)
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


def test_options_without_effect_are_noted_and_not_in_the_printed_command(case, capsys):
    new, words = case.folder / "said", ["-w", "+2", "3", "--update", str(case.old)]
    run_train("sgd", "-t", "rbf", "--seed", 3, *words, case.path, new)
    said = capsys.readouterr().err
    assert f"randsvm-train sgd {' '.join(words)} {case.path} {new}\n" in said
    assert "note: -t has no effect with --update\n" in said
    assert "note: --seed has no effect with --update\n" in said
    assert 'configuration "sgd -w +2 3 --update MODEL"\n' in new.read_text()


def test_an_update_without_rows_reports_no_loss(case, tmp_path, capsys):
    empty, new, log = tmp_path / "empty", tmp_path / "new", tmp_path / "log"
    empty.touch()
    run_train("sgd", "--update", case.old, "--log", log, empty, new)
    said = capsys.readouterr().err
    assert f"{new}: not evaluated\n" in said
    (end,) = (one for one in read_log(log) if one["event"] == "trained")
    assert end["progressive_loss"] is end["progressive_errors"] is None
    old, model = (randsvm.load(str(path)).model for path in (case.old, new))
    assert (old.w == model.w).all()


def test_an_update_of_a_table_model_reads_the_columns_of_the_model(tmp_path, capsys):
    y, X = oracle.clouds(80, 0, 2, 3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    path, old, new = tmp_path / "t.csv", tmp_path / "old", tmp_path / "new"
    frame.to_csv(path, index=False)
    table = ["--format", "csv", "--label-column", "y"]
    run_train("sgd", *table, path, old)
    options = ["--missing", "mean", "--categorical-columns", "a"]
    run_train("sgd", "--update", old, *table, *options, path, new)
    said = capsys.readouterr().err
    ineffective = re.findall(r"note: (\S+) has no effect with --update\n", said)
    assert set(ineffective) == {"--label-column", "--missing", "--categorical-columns"}
    python = randsvm.train(frame, algorithm="sgd", update=old, label_column="y").model
    model = randsvm.load(str(new)).model
    assert (python.w == model.w).all()
    assert (python.b == model.b).all()
    # Options that say how the rows are read have an effect.
    weights, again = tmp_path / "w", tmp_path / "again"
    weights.write_text("1\n" * 80)
    frame.to_csv(path, sep="|", index=False)
    options = ["--row-weights", str(weights), "--format", "csv", "--delimiter", "'|'"]
    run_train("sgd", "--update", old, *options[:-1], "|", path, again)
    said = capsys.readouterr().err
    assert "has no effect" not in said
    assert f"randsvm-train sgd --update {old} {' '.join(options)} {path} {again}\n" in said
    assert (randsvm.load(str(again)).model.w == model.w).all()


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
        self.process.stdin.write(content)
        self.process.stdin.flush()

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


def test_an_update_keeps_nothing_that_describes_the_old_weights(tmp_path):
    """The gap, D and the scores of a search are of the old model."""
    case = UpdateCase(tmp_path, 2, ("--epochs", 0, "--gap", 0.01, "-c", "1,2", "-v", 3))
    learnt = case.update()
    lines = set(oracle.read_linear(learnt.model, 7).metadata)
    assert {"gap", "dual", "cross_validation"} <= set(oracle.read_linear(case.old, 7).metadata)
    assert not lines & {"gap", "dual", "primal", "violators", "C", "digest", "nnz", "averaged"}
    assert not [name for name in lines if name.startswith(("cross_validation", "searched"))]
    assert np.isnan(randsvm.load(str(learnt.model)).gap)
