"""randsvm-check: true certificates are verified, wrong ones are refuted for the right reason."""

import ast
import bz2
import gzip
import hashlib
import json
import lzma
import random
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import exact_judge
import numpy as np
import pytest
import random_problems
from commands import run_predict, run_train

import randsvm
from randsvm import check
from randsvm.errors import (
    ContentError,
    DataError,
    InfeasibleError,
    OutOfTimeError,
    OutputError,
    ParameterError,
    RandsvmError,
)

SOURCE = Path(check.__file__)
DATA = Path(__file__).parent.parent / "data"


def verdict(data, model, **options):
    """Return the exit code and the reason."""
    data = [data] if isinstance(data, str | Path) else data
    return check.check([str(path) for path in data], str(model), **options)


# ---- one file of its own -----------------------------------------------------------------------


def test_the_checker_uses_numpy_and_the_standard_library_only():
    found = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module.partition(".")[0])
    assert found - set(sys.stdlib_module_names) == {"numpy"}


def test_the_checker_is_short():
    assert len(SOURCE.read_text().splitlines()) <= 790


def test_the_checker_runs_alone_without_the_package(tmp_path):
    run_train("-q", "-g", 5, DATA / "checkerboard.svm", tmp_path / "model")
    alone = tmp_path / "check.py"
    alone.write_bytes(SOURCE.read_bytes())
    code = "import sys; sys.modules['randsvm'] = None; exec(open(sys.argv.pop(1)).read())"
    words = [sys.executable, "-I", "-c", code, alone, DATA / "checkerboard.svm", tmp_path / "model"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("verified: P ")


# ---- true certificates ---------------------------------------------------------------------------


def labelled(rng, n, classes):
    X = np.round(rng.normal(size=(n, 3)), 4)
    y = (np.abs(X[:, 0] + np.round(rng.normal(size=n), 1)) * 2).astype(int) % classes
    return y, X


def text_of(labels, X, costs=None, first=1):
    lines = []
    for k, (label, x) in enumerate(zip(labels, X, strict=True)):
        cost = "" if costs is None else f" cost:{costs[k]}"
        features = "".join(f" {j}:{value:.12g}" for j, value in enumerate(x, first) if value)
        lines.append(f"{label}{cost}{features}\n")
    return "".join(lines)


def sets():
    rng = np.random.default_rng(5)
    y, X = labelled(rng, 160, 2)
    three, _ = labelled(rng, 160, 3)
    targets = np.round(np.sin(X[:, 0]) + X[:, 1] ** 2, 3)
    costs = np.round(rng.choice([0, 0.25, 1, 2.5], 160), 2)
    twice = np.repeat(X[:40], 4, axis=0)
    signs = [f"{2 * v - 1:+d}" for v in y]
    # Six digits: such values are stored in fewer bytes than float64 numbers.
    K = np.round(np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(2)), 6)
    of_kernel = np.column_stack([np.arange(1, 161), K])
    return {
        "two": text_of(signs, X),
        "labels": "".join(f"{sign}\n" for sign in signs),
        "weighted": text_of(signs, X, costs),
        "words": text_of(np.array(["spam", "ham"])[y], X),
        "three": text_of(three + 1, X),
        "targets": text_of(targets, X),
        "weighted targets": text_of(targets, X, costs),
        "equal rows": text_of(targets, twice),
        "equal rows of two": text_of(signs, twice),
        "kernel": text_of(signs, of_kernel, first=0),
        "kernel of three": text_of(three + 1, of_kernel, costs, first=0),
        "kernel of targets": text_of(targets, of_kernel, costs, first=0),
        "short": text_of(signs, X * 10.0 ** -rng.integers(156, 163, (len(X), 1))),
        "far": text_of(signs, X * [1, 1000, 1] + [2020, 0, 0.5]),
    }


SETS = sets()
TRAININGS = {
    "svc": ("two", "-c 2 -g 0.7"),
    "class weights": ("two", "-c 2 -g 0.7 -w1 3 -w-1 0.5"),
    "balanced": ("two", "-c 2 -g 0.7 -w balanced"),
    "words": ("words", "-c 0.1 -g 0.7"),
    "row weights": ("weighted", "-c 1 -g 0.5 -w balanced"),
    "linear kernel": ("two", "-t linear -c 0.3"),
    "polynomial": ("two", "-t poly -d 3 -r 1 -g 0.2"),
    "polynomial of degree 0": ("two", "-t poly -d 0"),
    "pairs": ("three", "-c 1 -g 0.5 -w balanced -w2 1.5"),
    "rest": ("three", "-c 1 -g 0.5 --multiclass ovr -w balanced -w2 1.5"),
    "svr": ("targets", "-s svr -c 5 -g 0.5 -p 0.05"),
    "weighted svr": ("weighted targets", "-s svr -c 5 -g 0.5 -p 0.05"),
    "equal rows": ("equal rows", "-s svr -c 5 -g 0.5 -p 0.05"),
    "equal rows of two": ("equal rows of two", "-c 5 -g 0.5"),
    "nu-svc": ("two", "-s nu-svc -n 0.3 -g 0.5"),
    "nu-svc of pairs": ("three", "-s nu-svc -n 0.2 -g 0.5"),
    "nu-svr": ("targets", "-s nu-svr -n 0.3 -g 0.5"),
    "nu-svr of equal rows": ("equal rows", "-s nu-svr -n 0.4 -c 3 -g 0.5"),
    "one-class": ("two", "-s one-class -n 0.3 -g 0.5"),
    "weighted one-class": ("weighted", "-s one-class -n 0.3 -g 0.5"),
    "precomputed": ("kernel", "-t precomputed -c 2"),
    "precomputed pairs": ("kernel of three", "-t precomputed -c 1 -w balanced"),
    "precomputed rest": ("kernel of three", "osuna -t precomputed -c 1 --multiclass ovr"),
    "precomputed svr": ("kernel of targets", "-s svr -t precomputed -c 5 -p 0.05"),
    "precomputed one-class": ("kernel", "-s one-class -t precomputed -n 0.3"),
    "precomputed nu-svc": ("kernel", "-s nu-svc -t precomputed -n 0.3"),
    "precomputed nu-svr": ("kernel of targets", "-s nu-svr -t precomputed -n 0.3"),
    "osuna": ("two", "osuna -c 20 -g 0.7 --working-set 20"),
    "minmax": ("far", "--scale minmax -c 2 -g 0.7"),
    "standard": ("far", "--scale standard -c 2 -g 0.7"),
    "unit": ("two", "--scale unit -c 2 -g 0.7"),
    "unit of short rows": ("short", "--scale unit -c 2 -g 0.7"),
    "large C": ("two", "-c 100000 -g 3"),
}
LINEAR = {
    "hinge": ("two", "sgd --gap 0.01"),
    "squared hinge": ("weighted", "sgd --gap 0.001 --loss squared-hinge -w1 2"),
    "rest, linear": ("three", "sgd --gap 0.01 -w balanced"),
    "no bias": ("three", "sgd --gap 0.01 --no-bias --scale standard"),
    "linear svr": ("targets", "sgd -s svr --gap 0.01 -p 0.1"),
    "logistic": ("weighted", "sgd --gap 0.0001 --loss log -w1 2"),
    "L1": ("weighted", "sgd --gap 0.0001 --penalty l1 --loss squared-hinge -w1 2"),
    "L1, rest": ("three", "sgd --gap 0.001 --penalty l1 --loss log --scale standard"),
    "squared svr": ("targets", "sgd -s svr --gap 0.01 --loss squared-epsilon-insensitive"),
    "small C": ("two", "sgd --gap 0.01 --loss squared-hinge -c 1e-170"),
    "no features": ("labels", "sgd --gap 0.01"),
}
REDUCED = {
    "reduced": ("two", "-c 2 -g 0.7 --reduce 12"),
    "reduced svr": ("targets", "-s svr -c 5 -g 0.5 --reduce 8"),
    "reduced pairs": ("three", "-c 1 -g 0.5 --reduce 10"),
}
EVERY = TRAININGS | LINEAR | REDUCED


class Files(NamedTuple):
    data: Path
    model: Path
    transcript: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function from the name of a training to its files."""
    folder, made = tmp_path_factory.mktemp("check"), {}

    def files(name):
        if name not in made:
            data, options = EVERY[name]
            place = folder / str(len(made))
            place.mkdir()
            made[name] = Files(place / "data", place / "model", place / "transcript")
            made[name].data.write_text(SETS[data])
            words = shlex.split(options)
            algorithm = [words.pop(0)] if words[0] in ("osuna", "sgd") else []
            files = [*made[name][:2]]
            run_train(*algorithm, "-q", *words, "--certificate", made[name].transcript, *files)
        return made[name]

    return files


@pytest.mark.parametrize("name", TRAININGS)
def test_a_true_certificate_is_verified(trained, name):
    data, model, transcript = trained(name)
    assert verdict(data, model)[0] == check.VERIFIED
    assert verdict(data, model, certificate=str(transcript))[0] == check.VERIFIED


@pytest.mark.parametrize("name", LINEAR | REDUCED)
def test_without_its_transcript_p_is_checked_and_d_only_claimed(trained, name):
    data, model, transcript = trained(name)
    status, text = verdict(data, model)
    assert status == check.UNDECIDED
    assert "is only said of D: --certificate FILE decides" in text
    assert verdict(data, model, certificate=str(transcript))[0] == check.VERIFIED


def test_a_kernel_without_certificate_claims_nothing(tmp_path):
    run_train("-q", "-t", "sigmoid", "-g", 0.01, DATA / "twonorm.svm", tmp_path / "model")
    found = verdict(DATA / "twonorm.svm", tmp_path / "model")
    assert found == (check.UNDECIDED, "MODEL claims no gap")


@pytest.mark.parametrize("line", ["coef0 -1", "gamma -0.2"])
def test_a_kernel_that_may_be_indefinite_is_not_verified(trained, tmp_path, line):
    data, model, _ = trained("polynomial")
    wrong = tmp_path / "model"
    wrong.write_bytes(model.read_bytes())
    resealed(wrong, header(*line.split()))
    status, text = verdict(data, wrong)
    assert (status, "may be indefinite" in text) == (check.UNDECIDED, True)


def test_an_indefinite_precomputed_kernel_is_not_verified(tmp_path):
    data, model = tmp_path / "data", tmp_path / "model"
    X = np.random.default_rng(0).normal(size=(40, 3))
    K = np.column_stack([np.arange(1, 41), np.round(0.1 * np.eye(40) - X @ X.T, 6)])
    data.write_text(text_of(np.where(X[:, 0] > 0, 1, -1), K, first=0))
    run_train("-q", "-t", "precomputed", data, model)
    for line in ("primal_error 1e-6", "dual_error 1e-6", "gap 1e-6", 'certificate "proven"'):
        key = line.partition(" ")[0]
        resealed(model, lambda body, k=key, v=line: re.sub(rf"(?<=# randsvm ){k} .*", v, body))
    assert verdict(data, model)[0] == check.UNDECIDED


def test_files_may_be_many_and_compressed_and_weights_in_one_of_their_own(tmp_path):
    rows = SETS["two"].splitlines(keepends=True)
    parts = [tmp_path / name for name in ("a.gz", "b.bz2", "c.xz", "d")]
    for path, pack, k in zip(parts, (gzip, bz2, lzma, None), range(4), strict=True):
        text = "\ufeff# comment\n\n" * (k == 3) + "".join(rows[40 * k : 40 * k + 40])
        text = text.replace("\n", "\r\n") if k == 2 else text
        path.write_bytes(pack.compress(text.encode()) if pack else text.encode())
    weights = tmp_path / "weights"
    weights.write_text("".join(f"{k % 3}\n" for k in range(160)))
    run_train("-q", "-g", 0.5, "--row-weights", weights, *parts, tmp_path / "model")
    assert verdict(parts, tmp_path / "model", row_weights=str(weights))[0] == check.VERIFIED
    status, text = verdict(parts, tmp_path / "model")
    assert (status, text[:8]) == (check.REFUTED, "the rows")


# The spellings of each of two classes.
LABELS = {
    "ranges": (["18-24"], ["25-34", "25-34"]),
    "numbers": (["1", "+1", "1.0", "1e0", "01.", ".1e1"], ["-1", "-1.00"]),
    "booleans": (["True", "TRUE", "true"], ["false", "False"]),
    "letters of numbers": (["e5"], ["1.2.3"]),
    "escapes": (['a"\\\u00e9'], ["\U0001f600"]),
    "no UTF-8": (["\udcff"], ["b"]),
}


def trained_on_labels(folder, name):
    """Return the files of a training with these spellings of two labels."""
    data, model, rng = folder / "data", folder / "model", np.random.default_rng(3)
    y, X = labelled(rng, 60, 2)
    labels = [rng.choice(LABELS[name][k]) for k in y]
    data.write_bytes(text_of(labels, X).encode("utf-8", "surrogateescape"))
    run_train("-q", data, model)
    return data, model


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_one_class_as_in_the_training(tmp_path, name):
    assert verdict(*trained_on_labels(tmp_path, name))[0] == check.VERIFIED


def test_the_table_of_a_regression_is_undecided_too(tmp_path):
    table, model = tmp_path / "t.csv", tmp_path / "model"
    table.write_text("y,a\n" + "".join(f"{k / 7},{k}\n" for k in range(20)))
    run_train("-q", "-s", "svr", "--label-column", "y", table, model)
    status, text = verdict(table, model)
    assert status == check.UNDECIDED and "--keep-rows" in text, text


def test_a_model_of_a_table_is_undecided_and_what_decides_is_said(tmp_path):
    y, X = labelled(np.random.default_rng(3), 60, 2)
    for name, fill in ("narrow", ""), ("spaced", " "):
        rows = [f"{a[0]},{fill}{a[1]},{'yes' if k else 'no'}" for k, a in zip(y, X, strict=True)]
        data, model = tmp_path / f"{name}.csv", tmp_path / name
        data.write_text("\n".join(["a,b,buys", *rows]))
        run_train("-q", "--label-column", "buys", data, model)
        status, text = verdict(data, model)
        assert (status, "--keep-rows" in text) == (check.UNDECIDED, True)
        assert verdict(tmp_path / "none", model)[0] == check.NO_INPUT


def test_an_svmlight_copy_of_a_table_verifies_the_model_of_the_table(tmp_path):
    y, X = labelled(np.random.default_rng(3), 60, 2)
    towns = np.array(["Aix", "Bern", "Caen"])
    rows = [f"{a[0]},{towns[k % 3]},{a[1]},{b}" for k, (a, b) in enumerate(zip(X, y, strict=True))]
    data, model, copy = (tmp_path / name for name in ("t.csv", "model", "copy"))
    data.write_text("\n".join(["a,town,b,y", *rows]))
    features = np.column_stack([X[:, 0], np.eye(3)[np.arange(60) % 3], X[:, 1]])
    for change, status in (0, check.VERIFIED), (1, check.UNDECIDED):
        copy.write_text(text_of(y, features + change * (np.arange(60)[:, None] == 7)))
        run_train("-q", "--label-column", "y", "--scale", "minmax", data, model)
        assert verdict(copy, model)[0] == status


# What --keep-rows writes is verified: name, content, options.
KEPT = {
    "table": (
        "t.csv",
        "a,town,b,buys\n" + "".join(
            f"{'' if k % 7 == 3 else k % 5},{['Aix', 'Bern', 'Caen'][k % 3]},{k % 11 / 7!r},"
            f"{'yes' if k % 2 else 'no'}\n" for k in range(60)
        ),
        "--label-column buys --missing mean --scale minmax -w balanced",
    ),
    "targets": ("t.csv", "y,a\n" + "".join(f"{k % 9 / 7!r},{k}\n" for k in range(40)),
                "-s svr --label-column y -g 0.01"),
    "no labels": ("t.csv", "b,a\n" + "".join(f"{k % 9},{k}\n" for k in range(40)),
                  "-s one-class -g 0.01"),
    "order of classes": ("rows", "ham cost:0 1:1\n" + "spam 1:0 2:3\n" + SETS["words"], "-g 0.7"),
    "weights": ("rows", SETS["weighted"], "-g 0.7 -w balanced"),
    "precomputed": ("rows", SETS["kernel of three"], "-t precomputed"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_the_rows_that_are_kept_verify_the_model(tmp_path, name):
    data, content, options = KEPT[name]
    (tmp_path / data).write_text(content)
    model, kept = tmp_path / "model", tmp_path / "kept"
    for _ in range(2):  # a run replaces the rows of another
        run_train("-q", *shlex.split(options), "--keep-rows", kept, tmp_path / data, model)
    assert verdict(kept, model)[0] == check.VERIFIED
    if name in ("order of classes", "weights"):
        run_train("-q", *shlex.split(options), kept, tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == model.read_bytes()


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda rows: [*rows[:5], rows[6], rows[5], *rows[7:]], "do not have the digest"),
        (lambda rows: rows[:-1], "do not have the digest"),
        (lambda rows: [rows[0], "yes 1:2;3", *rows[2:]], "expected index:value, found '1:2;3'"),
    ],
)
def test_kept_rows_that_were_edited_are_undecided_for_the_reason_that_is_said(
    tmp_path, change, reason
):
    data, content, options = KEPT["table"]
    (tmp_path / data).write_text(content)
    model, kept = tmp_path / "model", tmp_path / "kept"
    run_train("-q", *shlex.split(options), "--keep-rows", kept, tmp_path / data, model)
    kept.write_text("\n".join(change(kept.read_text().splitlines())))
    status, text = verdict(kept, model)
    assert status == check.UNDECIDED
    assert reason in text and "the unchanged file from randsvm-train --keep-rows" in text
    # It is no table, whether or not its first line is still there.
    for skipped in 0, 1:
        kept.write_text("\n".join(kept.read_text().splitlines()[skipped:]))
        with pytest.raises(DataError, match=r"rows are svmlight.* give the csv table") as caught:
            run_predict(kept, model, tmp_path / "out")
        assert "--no-header" not in str(caught.value)


def test_rows_that_cannot_be_kept_are_refused(tmp_path):
    table, kept = tmp_path / "t.csv", tmp_path / "kept"
    table.write_text("a,y\n1,not here\n2,here\n")
    words = "--label-column", "y", "--keep-rows", kept, table, tmp_path / "model"
    with pytest.raises(ContentError, match="the label 'not here' has a blank"):
        run_train(*words)
    kept.write_text("1 1:1\n")
    with pytest.raises(OutputError, match="is not a file of --keep-rows"):
        run_train(*words)
    with pytest.raises(ParameterError, match="both TRAIN_FILE and --keep-rows"):
        run_train("--keep-rows", kept, kept, tmp_path / "model")


def test_near_rows_far_from_zero_are_verified_by_finer_numbers(tmp_path):
    """Squares of 1e14 leave float64 exponents errors of some percent."""
    y, X = labelled(np.random.default_rng(3), 60, 2)
    X = np.round(X, 2) + 1e7
    X[::2, 1] = 0
    data, model = tmp_path / "data", tmp_path / "model"
    data.write_text(text_of(y, X))
    run_train("-q", "-g", 0.5, data, model)
    assert verdict(data, model)[0] == check.VERIFIED
    # The model is read once, so it may come from a pipe.
    words = [sys.executable, SOURCE, data, "-"]
    assert subprocess.run(words, input=model.read_bytes(), capture_output=True).returncode == 0


@pytest.mark.parametrize("number", [120, 140])
def test_rows_of_zeros_and_no_coefficients_are_checked(tmp_path, number):
    assert random_verdict(tmp_path, 8, number)[0] == check.VERIFIED


# ---- wrong certificates ------------------------------------------------------------------------


def resealed(model, edit):
    """Write the model with a change to its text, and with the seal of the changed text."""
    body = model.read_bytes().rpartition(b"# randsvm sha256 ")[0].decode()
    changed = edit(body)
    assert changed != body
    seal = hashlib.sha256(changed.encode()).hexdigest()
    model.write_text(f"{changed}# randsvm sha256 {seal}\n")


def stated(key, change):
    """Return an edit of the number of a line of the trailer."""

    def edit(body):
        return re.sub(rf"(# randsvm {key} )(\S+)", lambda m: m[1] + repr(change(float(m[2]))), body)

    return edit


def problem(**values):
    """Return an edit of the problem."""

    def edit(body):
        return re.sub(
            r"(?<=# randsvm problem ).*", lambda m: json.dumps(json.loads(m[0]) | values), body
        )

    return edit


def of_task(svm_type, **values):
    """Return an edit that replaces the problem, and the name of its task in the header."""
    return lambda body: header("svm_type", svm_type)(
        re.sub(r"(?<=# randsvm problem ).*", json.dumps(values), body)
    )


def header(keyword, text):
    return lambda body: re.sub(rf"(?m)^{keyword} .*", f"{keyword} {text}", body)


def and_header(edit, keyword, text):
    """Return an edit and one of the header, which has to say the same."""
    return lambda body: header(keyword, text)(edit(body))


def vector(change, number=0):
    """Return an edit of one vector. change: maps its coefficient and features to lines"""

    def edit(body):
        above, _, below = body.partition("\nSV\n")
        lines, mark, rest = below.partition("# randsvm")
        rows = lines.splitlines()
        first, _, features = rows[number].partition(" ")
        rows[number : number + 1] = change(first, features)
        above = re.sub(r"total_sv \d+", f"total_sv {len(rows)}", above)
        of_two = r"(?m)^(nr_sv (\d+)) \d+$"
        above = re.sub(of_two, lambda m: f"{m[1]} {len(rows) - int(m[2])}", above)
        return "\n".join([above, "SV", *rows, mark + rest])

    return edit


def largest(change):
    """Return an edit of the vector with the largest coefficient."""

    def edit(body):
        rows = body.partition("\nSV\n")[2].partition("# randsvm")[0].splitlines()
        sizes = [abs(float(row.split()[0])) for row in rows]
        return vector(change, int(np.argmax(sizes)))(body)

    return edit


def times(factor):
    return lambda c, x: [f"{float(c) * factor!r} {x}"]


FORGOTTEN = "the coefficient|P "
# name: training, edit of the model, reason
MODELS = {
    "coefficient beyond its bound": ("svc", largest(times(1.5)), "the coefficient of row"),
    "coefficient beyond its bound by 1e-6": (
        "svc", largest(times(1 + 1e-6)), "the coefficient of row"),
    "coefficient of svr beyond": ("svr", largest(times(3)), "the coefficient of row"),
    "coefficient of one-class beyond": (
        "one-class", largest(times(2)), "the coefficient of row"),
    "smaller coefficient": ("svc", vector(times(0.5)), "P |miss a sum"),
    "coefficient left out": ("svc", largest(lambda c, x: []), "miss a sum"),
    "sign of a coefficient": ("svc", largest(times(-1)), "is no row of the data on that side"),
    "vector that hides a bound": (
        "svc",
        largest(lambda c, x: [f"{c} {x}", f"{float(c) * 0.5!r} {x}"]),
        "the coefficient of row",
    ),
    "vector split in two": (
        "svc", largest(lambda c, x: [f"{c} {x}", f"{float(c) * 1e-7!r} {x}"]), "the coefficient"),
    "vector that is no row": ("svc", vector(lambda c, x: [f"{c} 1:9.5"]), "is no row of the data"),
    "feature of a vector by one digit": (
        "svc", vector(lambda c, x: [f"{c} " + x.rstrip()[:-1] + str((int(x.rstrip()[-1]) + 5) % 10)]),  # noqa: E501
        "is no row of the data",
    ),
    "more feature of a vector": (
        "svc", lambda body: vector(lambda c, x: [f"{c} {x} 7:1e-9"])(
            re.sub("(?m)^(# randsvm features) .*", r'\1 "1-7"', body)), "is no row of"),
    "P of another b": ("svc", header("rho", "0.75"), "P "),
    "b by a thousandth": (
        "svc", lambda body: re.sub(r"rho (\S+)", lambda m: f"rho {float(m[1]) + 1e-3!r}", body), "P "),  # noqa: E501
    "rho of one-class": ("one-class", header("rho", "5"), "P "),
    "rho of a pair": (
        "pairs", lambda body: re.sub(r"rho (\S+)", lambda m: f"rho {float(m[1]) + 0.1!r}", body), "P "),  # noqa: E501
    "b of svr": ("svr", header("rho", "0"), "P "),
    "b of nu-svr": ("nu-svr", header("rho", "0.1"), "P "),
    "b of nu-svc": ("nu-svc", header("rho", "0.5"), "P "),
    "class weight forgotten": ("class weights", problem(class_weights=[1, 1]), FORGOTTEN),
    "class weights of the other classes": (
        "class weights", problem(class_weights=[0.5, 3]), FORGOTTEN),
    "balanced forgotten": ("balanced", problem(class_weights=[1, 1]), FORGOTTEN),
    "balance of the rest forgotten": ("rest", problem(balanced=False), FORGOTTEN),
    "larger C": ("svc", problem(C=4), "P "),
    "smaller C": ("svc", problem(C=1.9), "the coefficient of row"),
    "epsilon": ("svr", problem(epsilon=0.04), "P "),
    "nu of nu-svc": ("nu-svc", problem(nu=0.25), "P |the coefficient"),
    "nu of nu-svr": ("nu-svr", problem(nu=0.25), "miss a sum"),
    "nu of one-class": ("one-class", problem(nu=0.31), "miss a sum|P "),
    "tube of nu-svr": ("nu-svr", problem(tube=[0.5]), "P "),
    "tube of nu-svc": ("nu-svc", problem(tube=[-0.1]), "P "),
    "another task": (
        "svr",
        of_task("nu_svr", task="nu-svr", C=5, nu=0.5, tube=[0.05]),
        "P |D |miss a sum"),
    "P rounded down": ("svc", stated("primal", lambda v: v * (1 - 1e-6)), "P "),
    "P rounded up": ("svc", stated("primal", lambda v: v * (1 + 1e-6)), "P "),
    "P by 1e-9": ("svc", stated("primal", lambda v: v * (1 - 1e-9)), "P "),
    "D too high": ("svc", stated("dual", lambda v: v * (1 + 1e-6)), "D "),
    "D of one-class": ("one-class", stated("dual", lambda v: v * (1 - 1e-6)), "D "),
    "gap rounded down": ("svc", stated("gap", lambda v: v * (1 - 1e-3)), "gap "),
    "gap of 0": ("svc", stated("gap", lambda v: 0.0), "gap "),
    "gap of pairs": ("pairs", stated("gap", lambda v: v * 0.99), "gap "),
    "gap of nu-svr": ("nu-svr", stated("gap", lambda v: v / 2), "gap "),
    "negative gap": ("svr", stated("gap", lambda v: -v), "gap "),
    "another gamma": ("svc", header("gamma", "0.71"), "P "),
    "another kernel": ("svc", header("kernel_type", "linear"), "P |D |gap"),
    "another degree": ("polynomial", header("degree", "2"), "P "),
    "another coef0": ("polynomial", header("coef0", "0.9"), "P "),
    "labels swapped": ("svc", lambda body: re.sub(
        r"label (\S+) (\S+)", r"label \2 \1", re.sub(
        r'labels \["(.*?)", "(.*?)"\]', r'labels ["\2", "\1"]', body)), "is no row of the data|P "),
    "labels of other classes": ("svc", and_header(lambda body: re.sub(
        r"labels .*", 'labels ["1", "2"]', body), "label", "1 2"), "labels"),
    "n": ("svc", stated("n", lambda v: int(v) + 1), "rows"),
    "shift of a feature": ("minmax", lambda body: re.sub(
        r"scale_shift \[([\d.]+)", lambda m: f"scale_shift [{float(m[1]) + 1e-3!r}", body),
        "is no row of the data"),
    "factor of a feature": ("standard", lambda body: re.sub(
        r"scale_factor \[([\d.]+)", lambda m: f"scale_factor [{float(m[1]) * 1.001!r}", body),
        "is no row of the data"),
    "digest": ("svc", lambda body: re.sub(r"(?<=digest .).", "x", body), "the digest"),
    "P of a reduced machine": ("reduced", stated("primal", lambda v: v * (1 - 1e-5)), "P "),
    "vector of a reduced machine": ("reduced", vector(times(0.99)), "P |u of row"),
    "w of a linear machine": ("hinge", lambda body: re.sub(
        r"\nw\n(\S+)", lambda m: f"\nw\n{float(m[1]) + 1!r}", body), "P "),
    "gap of a linear machine": ("hinge", stated("gap", lambda v: v / 2), "gap "),
    "P is NaN": ("svc", lambda body: re.sub(r"(?<=primal )\S+", "NaN", body), "no number"),
    "gap is -Infinity": (
        "svc", lambda body: re.sub(r"(?<= gap )\S+", "-Infinity", body), "no number"),
    "more error of P than there is P": (
        "svc", stated("primal", lambda v: v * 1.5), "P "),
    "epsilon forgotten": ("svr", problem(epsilon=0), "P |D "),
    "nu-svr as svr": (
        "nu-svr", of_task("epsilon_svr", task="svr", C=1, epsilon=0),
        "P |D |miss a sum"),
    "svc as one-class": (
        "svc", lambda body: re.sub("(?m)^(label|nr_sv|# randsvm labels) .*\n", "", of_task(
            "one_class", task="one-class", nu=0.3)(body)),
        "digest"),
    "weight of a class of three": (
        "pairs", problem(class_weights=[None, 1, None]), "P |coefficient"),
    "numbers of vectors of the classes": (
        "pairs", lambda body: re.sub(
            r"nr_sv (\d+) (\d+)", lambda m: f"nr_sv {int(m[1]) + 1} {int(m[2]) - 1}", body),
        "is no row of the data on that side|miss a sum|coefficient"),
    "coefficient of the second pair": (
        "pairs",
        vector(lambda c, x: [f"{c} {float(x.split()[0]) * 0.9 + 1e-3!r} {x.partition(' ')[2]}"]),
        "is no row|P |miss a sum|coefficient",
    ),
    "scaling forgotten": (
        "minmax", lambda body: re.sub("# randsvm scale.*\n", "", body), "is no row"),
    "number of a precomputed vector": (
        "precomputed", vector(lambda c, x: [f"{c} 0:161"]), "is no row"),
    "number of another precomputed vector": (
        "precomputed", vector(lambda c, x: [f"{c} 0:{int(x.split(':')[1]) % 160 + 1}"]),
        "is no row|P |coefficient"),
    "coefficient of a precomputed vector": ("precomputed", vector(times(0.9)), "miss a sum|P "),
    "linear instead of precomputed": (
        "precomputed", header("kernel_type", "linear"), "P |D |gap|is no row"),
    "D of a reduced machine": ("reduced", stated("dual", lambda v: v * (1 + 1e-5)), "D "),
    "gap of a reduced machine": ("reduced", stated("gap", lambda v: v * 0.99), "gap "),
    "reduced machine said to be whole": (
        "reduced",
        lambda body: re.sub("# randsvm dual_of.*\n", "", body).replace('"reduced"', '"proven"'),
        "is no row|miss a sum|coefficient|P "),
    "gap of 0 beside a far lower D": (
        "svc", lambda body: stated("dual", lambda v: -1e300)(stated("gap", lambda v: 0.0)(body)),
        "gap "),
    "P of 0 beside a far lower D": (
        "svc", lambda body: stated("dual", lambda v: -1e300)(stated("primal", lambda v: 0.0)(body)),
        "P "),
    "infinite P": (
        "svc", lambda body: re.sub("(?<=# randsvm primal ).*", "1e999", body), "infinite"),
    "bias of a linear machine forgotten": ("hinge", lambda body: re.sub(
        r"\n\S+ \n# randsvm format", "\n# randsvm format",
        re.sub("(?m)^bias .*", "bias -1", body)), "P "),
    "b of a machine without": ("hinge", problem(bias=False), "b is "),
    "squared loss said to be linear": (
        "squared hinge",
        and_header(problem(loss="hinge"), "solver_type", "L2R_L1LOSS_SVC_DUAL"),
        "P |coefficient"),
    "linear loss said to be squared": (
        "hinge", and_header(problem(loss="squared-hinge"), "solver_type", "L2R_L2LOSS_SVC"), "P "),
    "squares of weights instead of their sizes": (
        "L1", and_header(problem(penalty="l2"), "solver_type", "L2R_L2LOSS_SVC"), "P "),
    "D of an L1 machine": ("L1", stated("dual", lambda v: v * 1.01), "D "),
    "D of a linear machine": ("linear svr", stated("dual", lambda v: v * 1.01), "D "),
    "D of a small C": ("small C", stated("dual", lambda v: v * 2), "D "),
}  # fmt: skip


def test_there_are_many_kinds_of_damage():
    assert len(MODELS) + len(ROWS) + len(TRANSCRIPTS) >= 90


@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_model_is_refuted_for_the_right_reason(trained, tmp_path, name):
    training, edit, reason = MODELS[name]
    data, model, transcript = trained(training)
    options = {}
    wrong = tmp_path / "model"
    wrong.write_bytes(model.read_bytes())
    resealed(wrong, edit)
    if training in LINEAR | REDUCED:
        first, rest = transcript.read_bytes().split(b"\n", 1)
        seal = check.Model(str(wrong)).seal
        head, arrays = rest.split(b"\n", 1)
        head = json.dumps(json.loads(head) | {"model": seal}).encode()
        (tmp_path / "transcript").write_bytes(b"\n".join([first, head, arrays]))
        options = {"certificate": str(tmp_path / "transcript")}
    status, text = verdict(data, wrong, **options)
    assert status == check.REFUTED, text
    assert re.search(reason, text), text


def without(line):
    return lambda lines: lines[:line] + lines[line + 1 :]


def one_digit(lines):
    at = next(k for k, line in enumerate(lines) if "1:0." in line)
    return [*lines[:at], lines[at].replace("1:0.", "1:1.", 1), *lines[at + 1 :]]


def other_label(lines):
    return [("-1" if lines[0].startswith("+1") else "+1") + lines[0][2:], *lines[1:]]


ROWS = {
    "a digit": one_digit,
    "a row less": without(3),
    "a row more": lambda lines: [*lines, lines[0]],
    "rows in another order": lambda lines: [lines[1], lines[0], *lines[2:]],
    "another label": other_label,
    "a weight": lambda lines: [lines[0].replace(" ", " cost:2 ", 1), *lines[1:]],
    "a feature more": lambda lines: [lines[0] + " 9:1e-9", *lines[1:]],
    "labels swapped": lambda lines: [("-" if line[0] == "+" else "+") + line[1:] for line in lines],
}


@pytest.mark.parametrize("name", ROWS)
def test_other_rows_are_refuted_by_their_digest(trained, tmp_path, name):
    data, model, _ = trained("svc")
    (tmp_path / "data").write_text("\n".join(ROWS[name](data.read_text().splitlines())) + "\n")
    status, text = verdict(tmp_path / "data", model)
    assert (status, text[:8]) == (check.REFUTED, "the rows")


def test_a_model_with_a_wrong_seal_is_refuted(trained, tmp_path):
    data, model, _ = trained("svc")
    text = model.read_text()
    (tmp_path / "model").write_text(text.replace("# randsvm gap ", "# randsvm gap 1", 1))
    status, reason = verdict(data, tmp_path / "model")
    assert status == check.REFUTED
    assert reason.startswith("the seal of")


def written(transcript, model, change, path):
    """Write a transcript with changed arrays of its first machine."""
    machines = [dict(one) for one in check.transcript_of(str(transcript), check.Model(str(model)))]
    machines[0] |= change(machines[0])
    sizes = [{name: len(array) for name, array in one.items()} for one in machines]
    head = json.dumps({"model": check.Model(str(model)).seal, "machines": sizes})
    kinds = check.ARRAYS.items()
    arrays = [one[name].astype(kind) for one in machines for name, kind in kinds]
    text = f"randsvm transcript 1\n{head}\n".encode()
    path.write_bytes(text + b"".join(array.tobytes() for array in arrays))


def changed(name, change):
    """Return a change of the array of this name."""

    def of(arrays):
        array = arrays[name].copy()
        change(array)
        return {name: array}

    return of


def wrong_rows(u):
    u[::9] += 0.4


def first(value):
    def change(array):
        array[0] = value

    return change


def scaled_by(factor):
    def change(array):
        array *= factor

    return change


def moved(by):
    def change(array):
        array += by

    return change


TRANSCRIPTS = {
    "u of a few rows": ("svc", changed("u", wrong_rows), "u of row|P "),
    "u of the support vectors": ("svc", changed("exact_u", moved(0.5)), "u of row"),
    "bounds of u of 0": ("svc", changed("error", scaled_by(0)), "u of row|P "),
    "u is NaN": ("svc", changed("u", first(np.nan)), "no number"),
    "bound is infinite": ("svc", changed("error", first(np.inf)), "no number"),
    "negative bounds": (
        "svc", changed("exact_error", lambda e: scaled_by(-1)(e)), "no bound"),
    "one negative bound": ("svc", changed("error", first(-1e30)), "no bound"),
    "rows left out": (
        "svc", lambda one: {name: one[name][:-9] for name in ("rows", "beta", "v", "v_error")},
                      "is no row of the data"),
    "coefficients beyond their bounds": (
        "hinge", changed("beta", scaled_by(1.2)), "the coefficient of row"),
    "signs of coefficients": ("hinge", changed("beta", scaled_by(-1)), "the coefficient of row"),
    "signs of coefficients of squared losses": (
        "squared hinge", changed("beta", scaled_by(-1)), "the coefficient of row|miss a sum"),
    "a coefficient is NaN": ("hinge", changed("beta", first(np.nan)), "no number"),
    "coefficients that miss their sum": (
        "hinge", changed("beta", lambda beta: scaled_by(0.5)(beta[beta > 0]) or first(0)(beta)), "miss a sum|D |gap"),  # noqa: E501
    "smaller coefficients": ("hinge", changed("beta", scaled_by(0.9)), "D |gap"),
    "coefficients beyond the bound of an L1 penalty": (
        "L1", changed("beta", scaled_by(1.001)), "miss a sum or bound"),
    "coefficients of other rows": ("hinge", changed("rows", moved(1)), "do not ascend"),
    "v of a reduced machine": (
        "reduced", changed("v", moved(0.1)), "of row .* in the transcript|D "),
    "coefficients of a reduced machine": (
        "reduced", changed("beta", scaled_by(0.9)), "D |of row|miss a sum"),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_wrong_transcript_is_refuted_for_the_right_reason(trained, tmp_path, name):
    training, change, reason = TRANSCRIPTS[name]
    data, model, transcript = trained(training)
    written(transcript, model, change, tmp_path / "transcript")
    status, text = verdict(data, model, certificate=str(tmp_path / "transcript"))
    assert status == check.REFUTED, text
    assert re.search(reason, text), text


def test_a_transcript_may_not_hide_behind_the_errors_of_the_check(tmp_path):
    """Squares of 1e14 leave u of some rows unknown, where the transcript says that no row is wrong.

    The claims are those of the transcript: P and D are far above the optimum.
    """
    y, X = labelled(np.random.default_rng(1), 400, 2)
    X = np.round(X, 2) + 1e7
    X[::2, 1] = 0
    data, model, right, wrong = (tmp_path / name for name in ("data", "model", "right", "wrong"))
    data.write_text(text_of(y, X))
    run_train("-q", "-g", 0.5, "--certificate", right, data, model)

    def checked():
        read = check.Model(str(model))
        rows = check.Data([str(data)], None, read)
        return check.Check(read, rows, check.transcript_of(str(wrong), read), 2000, None)

    def hidden(arrays):
        read = check.Model(str(model))
        rows = check.Data([str(data)], None, read)
        features = [check.Rows.of(texts, 1, float) for texts in (rows.texts, read.texts)]
        u, error = read.sums(*features, read.beta[:, 0])
        signs = np.where([y == read.trailer["labels"][0] for y in rows.labels], 1, -1)
        exact_u, exact_error = np.where(error > 10, [-2 * signs, 0 * u], [u, error])
        exact = np.arange(len(u))
        return {"exact": exact, "exact_u": exact_u, "exact_error": exact_error}

    written(right, model, hidden, wrong)
    with np.errstate(all="ignore"):
        P, D, *_ = (float(value) for value in checked().evaluated(0))
    assert 1.5 * float(re.search(r"# randsvm primal (\S+)", model.read_text())[1]) < D
    old = check.Model(str(model)).seal
    claims = {"primal": P, "primal_error": 1e-3 * P, "dual": D, "dual_error": 1e-3 * D}
    for key, value in (claims | {"gap": 1.02 * (P - D) / P}).items():
        resealed(model, stated(key, lambda _, value=value: value))
    new = check.Model(str(model)).seal
    wrong.write_bytes(wrong.read_bytes().replace(old.encode(), new.encode()))
    with np.errstate(all="ignore"):
        assert checked().verdict()[0] == check.UNDECIDED
    assert verdict(data, model, certificate=str(wrong))[0] == check.REFUTED


def test_a_small_bound_is_no_less_than_one_beside_large_ones():
    """Coefficients may exceed each bound by a relative 1e-9."""
    C = np.array([1e13, 1.0])
    one = SimpleNamespace(
        y=np.array([1.0, -1.0]), C=C, b=0.0, tube=0, epsilon=0, t=0, a=0, has_b=True,
        sign=np.array([1.0, -1.0]), squared=False, log=False, l1=False, rows=np.arange(2),
    )  # fmt: skip
    sums = (np.zeros((2, 2)), np.zeros((2, 2)), (0.0, 0.0))
    check.evaluate(one, np.array([1e13, -1.0]), sums, 1.0)
    with pytest.raises(check.Ended, match=r"the coefficient of row 2 is -1.0001, its bound 1.0"):
        check.evaluate(one, np.array([1e13, -1.0001]), sums, 1.0)


def test_a_transcript_of_another_model_is_refuted(trained):
    data, model, _ = trained("balanced")
    status, text = verdict(data, model, certificate=str(trained("svc").transcript))
    assert (status, text.endswith("is the transcript of another model")) == (check.REFUTED, True)


def test_a_transcript_with_a_rest_is_refused(trained, tmp_path):
    data, model, transcript = trained("svc")
    (tmp_path / "t").write_bytes(transcript.read_bytes() + bytes(8))
    status, text = verdict(data, model, certificate=str(tmp_path / "t"))
    assert (status, "bytes, found" in text) == (check.BAD, True)


def test_values_that_a_chain_of_near_ones_connects_are_apart():
    """Vectors with the coefficient 0 may be links between a row and another vector."""
    rows = [check.Rows.of([b"1:%.17g" % v for v in some], 1, float) for some in ([1], [1.1, 1.2])]
    keys, apart = check.keys_of(*rows, 0.11)
    assert len({*keys}) == 1 and apart == pytest.approx(0.2 / 1.2)
    keys, apart = check.keys_of(*rows, 0)
    assert len({*keys}) == 3 and apart == 0


def test_the_floor_of_one_class_is_that_of_the_specification(trained):
    """0.5% of the sum of coefficients, squared, over n, with K(x, x) = 1."""
    data, model, _ = trained("one-class")
    read = check.Model(str(model))
    one = check.Check(read, check.Data([str(data)], None, read), None, 0, None)
    assert one.floor == pytest.approx(0.005 * (0.3 * 160) ** 2 / 160)


# ---- a second checker, written from the specification --------------------------------------------

SMALL = {
    "svc": "-c 2 -g 0.7 -w1 3",
    "balanced": "-c 1 -g 0.5 -w balanced -w2 1.5",
    "rest": "-c 1 -g 0.5 --multiclass ovr -w balanced -w2 1.5",
    "linear": "-t linear -c 0.3",
    "polynomial": "-t poly -d 3 -r 1 -g 0.2",
    "minmax": "-c 2 -g 0.7 --scale minmax",
    "standard": "-t linear -c 0.3 --scale standard",
    "unit": "-c 2 -g 0.7 --scale unit -w balanced",
}
CHANGES = {
    "P": stated("primal", lambda v: v * (1 - 1e-8)),
    "D": stated("dual", lambda v: v + 1e-6 * abs(v)),
    "gap": stated("gap", lambda v: v * 0.99),
    "coefficient": largest(times(1.5)),
    "C": problem(C=0.05),
    "b": lambda body: re.sub(r"rho (\S+)", lambda m: f"rho {float(m[1]) + 1e-3!r}", body),
}


@pytest.fixture(scope="module")
def second_verdict(tmp_path_factory):
    """Return a function from data and model to the exit code of the second checker."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no cc to compile the second checker")
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long double is too coarse for the second checker")
    program = tmp_path_factory.mktemp("second") / "checker"
    source = Path(random_problems.__file__).with_name("second_checker.c")
    subprocess.run([compiler, "-O2", "-o", program, source, "-lm"], check=True)
    return lambda *files: subprocess.run([program, *files], stdout=subprocess.DEVNULL).returncode


@pytest.mark.parametrize("name", SMALL)
def test_a_second_checker_agrees_about_true_and_wrong_certificates(tmp_path, name, second_verdict):
    rng, (data, model) = np.random.default_rng(11), (tmp_path / "data", tmp_path / "model")
    y, X = labelled(rng, 45, 2 if name == "svc" else 3)
    X[:8], y[:8] = X[8:16], rng.permutation(y[8:16])  # equal rows, some of two classes
    data.write_text(text_of(y + 1, X, np.round(rng.choice([0, 0.25, 1, 2.5], 45), 2)))
    run_train("-q", *shlex.split(SMALL[name]), data, model)
    assert (second_verdict(data, model), verdict(data, model)[0]) == (0, 0)
    content = model.read_bytes()
    for change in CHANGES.values():
        model.write_bytes(content)
        resealed(model, change)
        assert (second_verdict(data, model), verdict(data, model)[0]) == (1, 1)


def test_numbers_below_the_range_of_float64_are_those_of_float64(tmp_path, second_verdict):
    y, X = labelled(np.random.default_rng(3), 40, 2)
    tiny = "1 1:1e-320 2:2.3e-320\n0 1:3e-320 2:-2e-320\n1 1:1e-400\n0 cost:1e-400 1:1\n"
    data, model = tmp_path / "data", tmp_path / "model"
    data.write_text(text_of(y, X) + tiny)
    run_train("-q", "--scale", "unit", data, model)
    assert (second_verdict(data, model), verdict(data, model)[0]) == (0, 0)
    texts = [b"1e-320", b"-2.3e-310", b"1e-400", b"0.1"]
    fine, near = check.numbers(texts, check.FINE), check.numbers(texts, float)
    assert (fine[:3] == near[:3]).all()


@pytest.mark.parametrize("name", ["ranges", "numbers", "booleans", "letters of numbers"])
def test_a_second_checker_agrees_about_labels(tmp_path, name, second_verdict):
    data, model = trained_on_labels(tmp_path, name)
    assert (second_verdict(data, model), verdict(data, model)[0]) == (0, 0)


def test_the_rest_of_a_far_heavier_class_has_its_own_weight(tmp_path):
    """`balanced` divides by the weight of the rest: a difference of sums would have few digits."""
    y, X = np.arange(90) % 3, np.random.default_rng(0).normal(size=(90, 3)).round(3)
    data, model, costs = tmp_path / "data", tmp_path / "model", ["1000000000", "0.001", "0.003"]
    data.write_text(text_of(y, X, np.array(costs)[y]))
    run_train("-q", "-w", "balanced", "--multiclass", "ovr", "-c", 1e-12, "-g", 1, data, model)
    rows = model.read_text().partition("\nSV\n")[2].partition("#")[0].splitlines()
    # Of the machine of label 0; the others have y = -1.
    largest = -min(float(row.split()[0]) for row in rows)
    _, *rest = sums = [np.count_nonzero(y == k) * Fraction(cost) for k, cost in enumerate(costs)]
    bound = Fraction("1e-12") * Fraction("0.003") * sum(sums) / (2 * sum(rest))
    assert largest == pytest.approx(float(bound), rel=1e-12)
    assert verdict(data, model)[0] == check.VERIFIED


# ---- bad inputs ----------------------------------------------------------------------------------

BAD_ROWS = {
    "index": "+1 2:1 1:1\n",
    "index beyond int32": "+1 4294967297:1\n",
    "no colon": "+1 1 2\n",
    "two colons": "+1 1:2:3 4\n",
    "nan": "+1 1:nan\n",
    "underscore": "+1 1:1_0\n",
    "infinite": "+1 1:1e999\n",
    "weight": "+1 cost:-1 1:1\n",
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_end_with_65(trained, tmp_path, name):
    (tmp_path / "data").write_text("-1 1:1\n" + BAD_ROWS[name])
    assert verdict(tmp_path / "data", trained("svc").model)[0] == check.BAD


# A line of the header of three classes, what it becomes, and the message.
BAD_COUNTS = {
    "nr_sv": (r"nr_sv (\d+)", "nr_sv 1", r"nr_sv counts \d+ vectors, the file has \d+"),
    "rho": (r"rho (\S+)", "rho", "expected 3 numbers rho, found 2"),
}


@pytest.mark.parametrize("name", BAD_COUNTS)
def test_a_model_whose_counts_disagree_ends_with_65_and_a_plain_line(trained, tmp_path, name):
    line, other, reason = BAD_COUNTS[name]
    data, content, _ = trained("pairs")
    model = tmp_path / "model"
    model.write_bytes(content.read_bytes())
    resealed(model, lambda body: re.sub(line, other, body, count=1))
    status, text = verdict(data, model)
    assert (status, re.fullmatch(reason, text) is not None) == (check.BAD, True), text


def line_twice(key):
    return lambda body: re.sub(rf"(?m)^({key} .*\n)", r"\1\1", body)


def removed(keys):
    return lambda body: re.sub(rf"(?m)^# randsvm ({keys}) .*\n", "", body)


def trailer(key, text):
    return lambda body: re.sub(rf"(?m)^(# randsvm {key}) .*", rf"\1 {text}", body)


# Edits of a model that make it none: training, edit, message.
NO_MODELS = {
    "a row of w more": (
        "hinge",
        lambda body: re.sub(r"(\n\S+ \n# randsvm format)", r"\n123456 \1", body),
        "nr_feature",
    ),
    "a number more in each row of w": (
        "hinge",
        lambda body: re.sub(r"(?m)^(\S+) $", r"\1 7 ", body),
        "rows of w",
    ),
    "nr_feature": ("hinge", header("nr_feature", "2"), "nr_feature"),
    "bias": ("hinge", header("bias", "nan"), "finite numbers"),
    "solver_type": ("hinge", header("solver_type", "L2R_L1LOSS_SVR_DUAL"), "solver_type"),
    "other label of the header": ("svc", header("label", "1 2"), "label"),
    "labels of the header swapped": (
        "svc",
        lambda body: re.sub(r"label (\S+) (\S+)", r"label \2 \1", body),
        "label",
    ),
    "no label": ("svc", lambda body: re.sub("label .*\n", "", body, count=1), "label"),
    "nr_class": ("svc", header("nr_class", "3"), "nr_class"),
    "svm_type": ("svc", header("svm_type", "epsilon_svr"), "svm_type"),
    "total_sv": ("svc", header("total_sv", "7"), "total_sv"),
    "nr_sv of two": ("svc", header("nr_sv", "1 1"), "nr_sv counts 2"),
    "unknown keyword": ("svc", lambda body: f"sorted 1\n{body}", "sorted"),
    "version below the first line": (
        "svc",
        lambda body: body.replace("\nkernel_type", "\nrandsvm_model 2\nkernel_type"),
        "randsvm_model",
    ),
    "no gamma": ("svc", lambda body: re.sub("gamma .*\n", "", body, count=1), "gamma"),
    "infinite gamma": ("svc", header("gamma", "inf"), "finite numbers"),
    "gamma twice": ("svc", line_twice("gamma"), "key twice"),
    "gap twice": ("svc", line_twice("# randsvm gap"), "key twice"),
    "no errors": ("svc", removed("primal_error|dual_error"), "primal_error"),
    "no certificate": ("svc", removed("certificate"), "certificate"),
    "unknown certificate": ("svc", trailer("certificate", '"proved"'), "certificate"),
    "index_base": ("svc", trailer("index_base", "2"), "index_base"),
    "vector of other features": ("svc", trailer("features", '"1-2"'), "features"),
    "shift of one feature": ("minmax", trailer("scale_shift", "[1]"), "expected 3 factors"),
    "unknown scale": ("minmax", trailer("scale", '"log"'), "['scale']"),
    "short scale": ("minmax", trailer("scale_factor", "[1]"), "expected 3 factors"),
    "brackets": ("svc", trailer("problem", "[" * 100_000), "recursion"),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_what_the_prediction_refuses_is_no_model(trained, tmp_path, name):
    training, edit, reason = NO_MODELS[name]
    data, content, _ = trained(training)
    model = tmp_path / "model"
    model.write_bytes(content.read_bytes())
    resealed(model, edit)
    with pytest.raises(RandsvmError):
        randsvm.load(str(model))
    status, text = verdict(data, model)
    assert status == check.BAD and reason in text, text


@pytest.mark.parametrize(
    "training, edit, status, reason",
    [
        ("rest", problem(class_weights=[0, 0, 0]), check.BAD, "class_weights"),
        ("rest", problem(class_weights=[1, 1]), check.BAD, "expected 3 class_weights"),
        ("polynomial", header("degree", "2000000000"), check.UNDECIDED, "degrees up to 1000"),
        ("svc", trailer("features", '"1-99999999999"'), check.UNDECIDED, "at most 67,108,864"),
        ("svc", trailer("features", '"2-3,1"'), check.UNDECIDED, "ascending"),
        (
            "svc",
            lambda body: body.replace('problem {"task"', 'problem {"C": 1, "task"'),
            check.BAD,
            "key twice",
        ),
        ("hinge", removed("primal_error|dual_error|certificate"), check.UNDECIDED, "only said"),
        ("svc", problem(C=[2.0] * 160), check.BAD, "['C']"),
        ("svc", problem(C=True), check.BAD, "['C']"),
        ("svc", problem(loss="squared-hinge"), check.BAD, "['loss']"),
        ("svc", problem(bias=True), check.BAD, "['bias']"),
        ("svr", problem(epsilon=-0.05), check.BAD, "['epsilon']"),
        ("nu-svc", problem(C=5), check.BAD, "['C']"),
        ("nu-svc", problem(class_weights=[3, 3]), check.BAD, "['class_weights']"),
        ("one-class", problem(C=2), check.BAD, "['C']"),
        ("nu-svr", problem(nu=2), check.BAD, "['nu']"),
        ("nu-svr", problem(tube=[-0.05]), check.BAD, "numbers tube"),
        ("nu-svr", problem(tube=[0.05, 0.05]), check.BAD, "numbers tube"),
        ("rest, linear", problem(multiclass="ovo"), check.BAD, "['multiclass']"),
        (
            "linear svr",
            and_header(problem(loss="log"), "solver_type", "L2R_LR"),
            check.BAD,
            "['loss']",
        ),
        (
            "linear svr",
            and_header(
                problem(task="nu-svr", nu=0.5, tube=[0.1]),
                "solver_type",
                "L2R_L1LOSS_NU-SVR_DUAL",
            ),
            check.BAD,
            "nu-svr",
        ),
        (
            "precomputed",
            lambda body: body.replace("# randsvm n ", '# randsvm scale "unit"\n# randsvm n '),
            check.BAD,
            "['scale']",
        ),
        ("svc", header("gamma", "0.7_0"), check.BAD, "decimal numbers"),
        ("svc", vector(lambda c, x: [f"{c}_0 {x}"]), check.BAD, "decimal numbers"),
    ],
)
def test_other_edits_are_not_verified(trained, tmp_path, training, edit, status, reason):
    data, content, _ = trained(training)
    model = tmp_path / "model"
    model.write_bytes(content.read_bytes())
    resealed(model, edit)
    found, text = verdict(data, model)
    assert found == status and reason in text, text


def test_a_file_that_is_no_model_ends_with_65_and_a_missing_one_with_66(trained, tmp_path):
    data, model, _ = trained("svc")
    assert verdict(data, data)[0] == check.BAD
    assert verdict(tmp_path / "none", model)[0] == check.NO_INPUT
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"+1 1:1\n")[:-9])
    assert verdict(tmp_path / "cut.gz", model)[0] == check.BAD
    resealed_without = tmp_path / "model"
    resealed_without.write_bytes(model.read_bytes())
    resealed(resealed_without, lambda body: re.sub("# randsvm problem .*\n", "", body))
    assert verdict(data, resealed_without)[0] == check.BAD


def test_the_command_prints_its_verdict_and_ends_with_its_code(trained, tmp_path):
    data, model, _ = trained("svc")
    for words, code in (([data, model], 0), ([DATA / "twonorm.svm", model], 1), ([data], 2)):
        done = subprocess.run([sys.executable, SOURCE, *words], capture_output=True, text=True)
        assert done.returncode == code
        assert done.stdout.startswith({0: "verified: P ", 1: "refuted: ", 2: ""}[code])


def test_a_verdict_that_cannot_be_written_ends_with_74(trained):
    data, model, _ = trained("svc")
    words = [sys.executable, SOURCE, data, model]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(words, stdout=full).returncode == 74
    closed = shlex.join(map(str, words)) + " >&-"
    assert subprocess.run(closed, shell=True, capture_output=True).returncode == 74


def test_mistaken_samples_end_with_2(trained):
    data, model, transcript = trained("svc")
    words = [sys.executable, SOURCE, "--certificate", transcript, "--samples", "-5", data, model]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "--samples" in done.stderr


def test_numbers_that_overflow_leave_no_warning(trained, tmp_path):
    data, content, _ = trained("svc")
    model = tmp_path / "model"
    model.write_bytes(content.read_bytes())
    resealed(model, header("gamma", "1e308"))
    done = subprocess.run([sys.executable, SOURCE, data, model], capture_output=True, text=True)
    assert done.returncode in (check.REFUTED, check.UNDECIDED) and done.stderr == ""


def test_an_empty_transcript_is_none(trained, tmp_path):
    data, model, _ = trained("svc")
    (tmp_path / "empty").write_bytes(b"")
    status, text = verdict(data, model, certificate=str(tmp_path / "empty"))
    assert status == check.BAD and text.endswith("not a transcript")


# ---- random certificates -------------------------------------------------------------------------


def test_the_rounding_of_a_check_refutes_no_long_sum_of_an_l1_penalty(tmp_path):
    """The sums of 30,000 products with a mean far from 0, which the training adds chunk by chunk,
    are 1 but for rounding."""
    rng, n = np.random.default_rng(0), 30_000
    X = np.column_stack([rng.normal(200, 20, n).round(1), rng.normal(size=n).round(2)])
    y = np.where((X[:, 0] - 200) / 20 + X[:, 1] + 1.5 * rng.normal(size=n) > 0, 1, -1)
    data, model, transcript = tmp_path / "data", tmp_path / "model", tmp_path / "transcript"
    data.write_text(text_of(y, X, None))
    words = "--penalty", "l1", "--loss", "log", "--gap", 0.001, "--certificate", transcript
    run_train("sgd", "-q", *words, data, model)
    assert verdict(data, model, certificate=str(transcript))[0] == check.VERIFIED


SCALES = [], ["--scale", "minmax"], ["--scale", "standard"], ["--scale", "unit"]
OF_CLASSES = (
    "",
    "-w balanced",
    "-w1 2.5 -w2 0.3",
    "--multiclass ovr -w balanced",
    "-s nu-svc -n 0.1",
)
OF_SGD = (
    "", "--loss squared-hinge", "--no-bias -w1 3", "-s svr -p 0.1",
    "-s svr --loss squared-epsilon-insensitive", "--penalty l1 --loss squared-hinge",
    "--penalty l1 --loss log --no-bias",
)  # fmt: skip


def random_words(folder, seed, number):
    """Return the words of a random training: of one problem, of several classes, or linear."""
    data, model = folder / "data", folder / "model"
    if number % 5 < 3:
        case = random_problems.case_of(seed, number)
        if number % 5 == 1:
            case = random_problems.with_reduction(case, random.Random(number))
        return case.command(case.save(data), model)
    rng = np.random.default_rng([seed, number])
    y, X = labelled(rng, int(rng.integers(20, 120)), int(rng.integers(2, 5)))
    X = np.round(X, rng.integers(0, 5)) * 10.0 ** rng.integers(-3, 4)
    costs = rng.choice([0.25, 1, 2.5], len(y)) if rng.random() < 0.5 else None
    gap = ["--gap", 10 ** rng.uniform(-4, -1)]
    if number % 5 == 3:
        words = [*shlex.split(rng.choice(OF_CLASSES)), "-g", "scale"]
        words += ["-c", 10 ** rng.uniform(-2, 3)]
        words += ["--reduce", 5] if rng.random() < 0.2 else []
    else:
        words = ["sgd", *shlex.split(rng.choice(OF_SGD)), "-c", 10 ** rng.uniform(-2, 1)]
    labels = np.round(X[:, 0] + np.sin(y), 3) if "svr" in words else y + 1
    data.write_text(text_of(labels, X, costs))
    return [*words, *gap, "-q", data, model]


def random_verdict(folder, seed, number):
    """Return the verdict about a random training; None: it claims nothing or failed."""
    model, transcript = folder / "model", folder / "transcript"
    words = [*random_words(folder, seed, number), *SCALES[number // 5 % 5 % 4]]
    with suppress(InfeasibleError, ParameterError, OutOfTimeError):
        run_train(*words, "--certificate", transcript)
    if not model.exists():
        return None
    read = check.Model(str(model))
    if read.trailer.get("certificate") == "none" or read.trailer.get("gap") is None:
        return None
    is_other = "dual_of" in read.trailer or read.trailer.get("certificate") == "reduced"
    needed = number % 2 or is_other or read.is_linear
    has_one = needed and transcript.exists()
    return verdict(folder / "data", model, certificate=str(transcript) if has_one else None)


@pytest.fixture
def exactly_compared(tmp_path, monkeypatch):
    """Return a function that compares P of random small problems with rational arithmetic, and
    returns how many it compared."""
    found, evaluated = [], check.Check.evaluated

    def kept(self, number):
        found.append(evaluated(self, number))
        return found[-1]

    monkeypatch.setattr(check.Check, "evaluated", kept)

    def compared(seed, number):
        case = random_problems.case_of(seed, number)
        data, model = tmp_path / f"{number}.data", tmp_path / f"{number}.model"
        if len(case.y) > 20 or case.task.startswith("nu"):
            return False
        with suppress(InfeasibleError, ParameterError, OutOfTimeError):
            run_train(*case.command(case.save(data), model))
        if not model.exists() or verdict(data, model)[1] == "MODEL claims no gap":
            return False
        rows = exact_judge.read_rows(data)
        kernel, machine = exact_judge.read_model(model, rows.X.shape[1])
        numbers, words = random_problems.exact_numbers(case), case.words
        places = [k for k, word in enumerate(words) if word == "-w"]
        numbers["class_weights"] = {words[k + 1]: words[k + 2] for k in places}
        problem = exact_judge.problem_of(rows, case.task, machine.labels, **numbers)
        exact = exact_judge.objective(problem, kernel, rows, machine)
        P, P_error = (Fraction(*value.as_integer_ratio()) for value in found[-1][[0, 2]])
        assert exact.least - P_error <= P <= exact.most + P_error, number
        return True

    return lambda seed, numbers: sum(compared(seed, number) for number in numbers)


def test_p_of_the_check_is_that_of_rational_arithmetic(exactly_compared):
    assert exactly_compared(12, range(60)) >= 8


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(10))
def test_p_of_many_checks_is_that_of_rational_arithmetic(exactly_compared, fuzz_seed, part):
    assert exactly_compared(fuzz_seed, range(100 * part, 100 * part + 100)) >= 10


@pytest.mark.parametrize("part", range(2))
def test_random_true_certificates_are_verified(tmp_path, part):
    found = []
    for number in range(20 * part, 20 * part + 20):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(random_verdict(folder, 8, number))
    judged = [one for one in found if one is not None]
    assert not [one for one in judged if one[0] == check.REFUTED]
    assert sum(one[0] == check.UNDECIDED for one in judged) <= 1


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(60))
def test_many_random_true_certificates_are_not_refuted(tmp_path, fuzz_seed, part):
    """3,000 trainings: `make fuzz FUZZ='tests/test_check.py -k many_random'`."""
    found = []
    for number in range(50 * part, 50 * part + 50):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append((number, random_verdict(folder, fuzz_seed, number)))
    judged = [(number, *one) for number, one in found if one is not None]
    assert [one for one in judged if one[1] == check.REFUTED] == []
    assert sum(one[1] == check.UNDECIDED for one in judged) <= max(1, 0.02 * len(judged))
