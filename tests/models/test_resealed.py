"""Every command refuses a model whose trailer was edited and sealed again, in one line, or works.

Each line of each kind of model is removed, and its value replaced by each of some bad ones.
"""

import contextlib
import io
import re

import click
import numpy as np
import oracle
import pytest
from commands import run_predict, run_train
from model_files import load_model, resealed

from randsvm import api, estimators
from randsvm.errors import Interrupted, ModelError, RandsvmError
from randsvm.events import Iteration

# Texts in place of a value; "" leaves none.
BAD = (
    "", "x", '"x"', '""', '"nan"', '"1"', "NaN", "-1", "0.5", "1e400", "99999999999999999999",
    "null", "true", "[]", "[1]", '["x"]', "[[1], [2, 3]]", "{}",
)  # fmt: skip
# Lines of texts for people, which may be any.
WORDS = {"version", "stopped", "cross_validation", "label_column"}
# Numbers that may be below 0, and whole or other numbers that may be above it.
ANY = {"primal", "dual"}
FRACTIONS = {
    *ANY, "C", "lambda", "primal_error", "dual_error", "gap", "largest_gap", "epsilon", "nu",
    "origin", "eta0", "bias_rate", "bias_lambda", "t", "full_gap", "largest_change", "mean_change",
}  # fmt: skip
UNKNOWN = {*FRACTIONS, "violators"}
# Lists of a number for each class.
LISTS = {"weights", "probA", "probB"}
# Lines that a model may lack.
OPTIONAL = {
    "columns", "dual_of", "largest_gap", "primal", "scale_shift", "searched", "values", "violators",
}  # fmt: skip


def may_be(key, value):
    """Return whether a line may have this value, whatever the others are."""
    if value is None:
        return key in OPTIONAL
    return (
        (key in WORDS and value.startswith('"'))
        or (key in FRACTIONS and value in ("0.5", "99999999999999999999"))
        or (key in ANY and value == "-1")
        or (key in UNKNOWN and value == "null")
        or (key in LISTS and value == "[1]")
        or (key == "problem" and value == "{}")
    )


# ---- models -------------------------------------------------------------------------------------

# How each model is trained: a kind of data, and the words of the command.
TRAININGS = {
    "scaled": ("two", "randsvm -g 1 -b 1 --conformal --scale standard -w 1 2"),
    "pairs": ("three", "osuna -g 1 -v 2 -c 1,2 --no-racing"),
    "the rest": ("three", "randsvm -g 1 --multiclass ovr"),
    "columns": ("table", "randsvm -s svr -g 1 -p 0.2 --format csv --label-column y"),
    "novelty": ("two", "randsvm -s one-class -g 1 -n 0.3 -b 1"),
    "nu": ("two", "randsvm -s nu-svc -g 1 -n 0.3 --zero-based"),
    "reduced": ("two", "randsvm -g 0.01 -c 10 --reduce 8"),
    "features": ("two", "randsvm -g 1 --components 9"),
    "linear": ("three", "sgd"),
    "linear, a gap": ("two", "sgd --gap 0.1 -v 2"),
    "linear, calibrated": ("two", "sgd -b 1 --conformal"),
    "linear novelty": ("two", "sgd -s one-class"),
    "share outside": ("two", "sgd -s one-class -n 0.3"),
    "linear regression": ("two", "sgd -s svr -p 0.1"),
    "updated": ("three", "sgd --update linear"),
}


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """Exports need not be compiled, which takes most of the time."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CC", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("resealed")
    y, X = oracle.two_gaussians(60, d=3)
    oracle.write_svmlight(path / "two", y, X)
    oracle.write_svmlight(path / "three", np.arange(60) % 3, X + np.arange(60)[:, None] % 3)
    rows = [f"{x[0]:.2f},{x[1]:.2f},{'ab'[k % 2]}" for k, x in enumerate(X)]
    (path / "table").write_text("\n".join(["y,x,z", *rows, ""]))
    for kind in TRAININGS:
        train(path, kind, kind)
    return path


def train(folder, kind, model):
    data, line = TRAININGS[kind]
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        run_train(*line.split(), "-q", data, model)


# ---- commands -----------------------------------------------------------------------------------


def saved_over(folder, kind):
    """A training that is interrupted reads the gap of the model that it would replace."""

    def end(event):
        if isinstance(event, Iteration):
            raise Interrupted(2)

    with contextlib.suppress(Interrupted):
        api.train(folder / "two", folder / "m", "osuna", end, working_set=20, swap=1, gap=1e-9)


def estimated(folder, kind):
    task, linear = " ".join(TRAININGS[kind][1].split()), "sgd" in TRAININGS[kind][1]
    cls = (
        estimators.OneClassSVM if "one-class" in task
        else estimators.LinearSVR if linear and "svr" in task
        else estimators.SVR if "svr" in task
        else estimators.LinearSVC if linear or "components" in task
        else estimators.NuSVC if "nu-svc" in task
        else estimators.SVC
    )  # fmt: skip
    try:
        estimator = cls.from_model("m")
    except ModelError as error:
        if "expected a model for" not in str(error):
            raise
    else:
        repr(estimator.get_params())
        estimator.save(folder / "again")


def commands(kind):
    """Return the commands that read a model of this kind, by name."""
    data, words = TRAININGS[kind]
    linear, kernel = words.startswith("sgd"), "components" not in words and "sgd" not in words
    found = {
        "load": lambda folder: load_model("m"),
        "from_model": lambda folder: estimated(folder, kind),
        "info": lambda folder: run_predict("info", "--report", "json", "m"),
        "predict": lambda folder: run_predict("-q", data, "m", "o"),
        "export": lambda folder: run_predict("export", "c", "-q", "m", "o"),
        "interrupted": lambda folder: saved_over(folder, kind),
    }
    if "-b 1" in words:
        found["predict -b 1"] = lambda folder: run_predict("-q", "-b", 1, data, "m", "o")
    if "--conformal" in words:
        found["coverage"] = lambda folder: run_predict("-q", "--coverage", 0.8, data, "m", "o")
    if kernel:
        found["certify"] = lambda folder: run_predict("certify", "-q", data, "m")
        found["explain"] = lambda folder: run_predict("explain", "-q", data, "m", "o")
        # Options that are not given are those of the model.
        table = words[words.index("--format") :].split() if "--format" in words else []
        start = (words.split()[0], "-q", *table, "--warm-start", "m", data, "n")
        found["warm start"] = lambda folder: run_train(*start)
    if linear and not {"-b", "-n"} & set(words.split()):
        found["update"] = lambda folder: run_train("sgd", "-q", "--update", "m", data, "n")
    return found


def end_of(command, folder, model):
    """Return the exit code and the message of an error of a command, or None.

    model: the content of the file m. Raise an error that is not for users.
    """
    for output in ("o", "n", "again", "m.interrupted"):
        (folder / output).unlink(missing_ok=True)
    (folder / "m").write_bytes(model)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        try:
            command(folder)
        except (RandsvmError, click.ClickException) as error:
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            assert "\n" not in text
            return error.exit_code, text
    return None


# Commands that take most of the time, and the lines that they read.
SLOW = {"interrupted": ("configuration", "gap"), "explain": ("features",), "certify": ("C", "n")}


def edits(folder, kind):
    """Yield each line and each value in its place, with the model that has it."""
    whole = (folder / kind).read_text()
    for line in whole.splitlines():
        key = line.removeprefix("# randsvm ").partition(" ")[0]
        if line.startswith("# randsvm ") and key not in ("format", "sha256"):
            for value in (None, *BAD):
                new = "" if value is None else f"# randsvm {key} {value}\n"
                yield key, value, resealed(whole.replace(line + "\n", new).encode())


@pytest.mark.parametrize("kind", TRAININGS)
def test_an_edited_line_is_refused_or_does_no_harm(folder, kind):
    wrong, tried = [], set()

    def ends(key, value, model, names):
        found = commands(kind)
        for name in names:
            try:
                ended = end_of(found[name], folder, model)
            except Exception as error:  # noqa: BLE001 - each is a fault
                wrong.append((key, value, name, f"{type(error).__name__}: {error}"))
                continue
            if ended and not (ended[0] == 65 and "\n" not in ended[1]):
                wrong.append((key, value, name, ended))
            yield ended

    for key, value, model in edits(folder, kind):
        (refused,) = {*ends(key, value, model, ["load"])} or {"a fault"}
        is_good = may_be(key, value)
        if not refused and not is_good:
            wrong.append((key, value, "load", "it is read"))
        if refused and not re.search("^m(:[0-9]+)?: expected .*, found ", refused[1]):
            wrong.append((key, value, "load", refused))
        # Of each line, all commands meet a value that is refused, and a good one.
        if (key, is_good) not in tried or not (refused or is_good):
            tried.add((key, is_good))
            names = [name for name in commands(kind) if key in SLOW.get(name, key)]
            others = {*ends(key, value, model, names)}
            if refused and others - {refused, None}:
                wrong.append((key, value, "other messages", others))
    assert wrong == []


@pytest.mark.parametrize("kind", TRAININGS)
def test_every_command_reads_the_model_as_it_is(folder, kind):
    """Else the test above would tell nothing."""
    for name, command in commands(kind).items():
        assert end_of(command, folder, (folder / kind).read_bytes()) is None, name


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("C", "0", "a number above 0 or null"),
        ("configuration", '"svm -c 1"', "the options of a training"),
        ("running_v", "[1e400]", "a list of finite numbers"),
    ],
)
def test_a_line_with_a_value_that_no_training_writes_is_refused(tmp_path, key, value, expected):
    data, model = tmp_path / "data", tmp_path / "model"
    oracle.write_svmlight(data, *oracle.two_gaussians(60))
    run_train("sgd", "-q", data, model)
    if key == "running_v":
        run_train("sgd", "-q", "--update", model, data, tmp_path / "next")
        model = tmp_path / "next"
    line = rb"(?m)^# randsvm " + key.encode() + rb" .*$"
    content = model.read_bytes()
    assert re.search(line, content)
    wrong = re.sub(line, f"# randsvm {key} {value}".encode(), content)
    model.write_bytes(resealed(wrong))
    with pytest.raises(ModelError, match=f"expected {expected} in the line '# randsvm {key}'"):
        load_model(model)
