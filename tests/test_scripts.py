"""Test the scripts: the data generators, the certificate of a model, and the page of results."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import oracle
import pytest
from click.testing import CliRunner
from fake_cluster import FakeWorkerPool
from libsvm import svm as bindings
from libsvm import svmutil
from scipy import sparse

SCRIPTS = Path(__file__).parents[1] / "scripts"
SETS = (
    *("twonorm", "ringnorm", "checkerboard", "unbalanced", "letters", "sparse", "waveform"),
    *("sinc", "friedman"),
)


def run(*words):
    """Run Python in the folder of the scripts."""
    words = [sys.executable, *map(str, words)]
    return subprocess.run(words, cwd=SCRIPTS, check=True, capture_output=True)


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_the_beginning_of_a_larger_set(name):
    """The sets may end within a block of rows, at its end or beyond."""
    made = [run("make_data.py", name, "-", "--rows", rows).stdout for rows in (9, 10_000, 10_009)]
    assert [text.count(b"\n") for text in made] == [9, 10_000, 10_009]
    assert made[1].startswith(made[0])
    assert made[2].startswith(made[1])


MODULES = sorted(path.relative_to(SCRIPTS).with_suffix("") for path in SCRIPTS.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_script_finds_its_imports(module):
    if "matplotlib" in (SCRIPTS / module).with_suffix(".py").read_text():
        pytest.importorskip("matplotlib")
    run("-c", f"import {'.'.join(module.parts)}")


@pytest.mark.slow
@pytest.mark.cluster
def test_the_cluster_demo_loses_a_worker_and_writes_the_same_model():
    pytest.importorskip("distributed")
    data = SCRIPTS.parent / "data" / "checkerboard.svm"
    said = run("cluster_demo.py", data, "--gap", 0.01).stdout.decode()
    assert "kill -9" in said
    assert "both models have the same" in said


def test_the_cost_of_averaging_uses_models_with_that_number_of_groups(
    script, monkeypatch, tmp_path
):
    pytest.importorskip("distributed")
    averaging = script("averaging")
    for constant in ("GROUP_CHUNKS", "MOST_GROUPS"):
        monkeypatch.setattr(averaging.sgd, constant, 1)
    monkeypatch.setattr(averaging.labelled_data, "ParseOptions", None)
    monkeypatch.setattr("randsvm.cluster.byte_ranges.WorkerPool", FakeWorkerPool)
    path = str(oracle.write_svmlight(tmp_path / "rows", *oracle.sparse_rows(500)))
    words = [path, path, "--groups", "3", "--epochs", "4", "--cluster", "1"]
    said = CliRunner().invoke(averaging.main, words, catch_exceptions=False)
    cells = [line.split("|")[2:-1] for line in said.output.splitlines()]
    assert [cell[0].strip() for cell in cells] == ["plain", "3 groups"]
    assert cells[0][1].strip() == "+0.00%"
    assert cells[1][1].strip() != "+0.00%"
    assert all(60 < float(cell[2].strip(" %")) <= 100 for cell in cells)


def test_the_time_on_more_cores_is_computed_from_the_parts_of_a_round(script, tmp_path):
    """The logs are artificial: ten times the rows have twice the rounds, so a hundred times have
    four times.
    """
    many_cores, logs = script("many_cores"), []
    split = {"message_seconds": 0.1, "worker_seconds": 2.0, "report_seconds": 0.2}
    for n, rounds in ((1000, 10), (10_000, 20)):
        made = [{"event": "started", "n": n, "run": 0}]
        for k in range(rounds):
            so_far = {name: 50 + k * value for name, value in (split | {"seconds": 3.0}).items()}
            round_ = {"event": "iteration", "run": 0, "solve_seconds": 0.5, "bytes_moved": k * 2e6}
            made.append(round_ | so_far)
        logs.append(tmp_path / f"{n}.jsonl")
        logs[-1].write_text("".join(json.dumps(one) + "\n" for one in made))
    words = [*map(str, logs), "--rows", "1e6", "--network", "1e6", "--cores", "100"]
    said = CliRunner().invoke(many_cores.main, words, catch_exceptions=False).output
    assert "80 rounds" in said
    # Work 2 s x 100 x 2/100; 12.5 workers of 1 MB each; what stays 0.1 + 0.2 + 0.5 + 0.2.
    assert "| 100 | 17.50 |" in said


# ---- the certificate of a model file ----------------------------------------------------------

FRIEDMAN = oracle.as_float32(np.random.default_rng(1).random((120, 3)))
TARGETS = np.round(np.sin(5 * FRIEDMAN[:, 0]) + FRIEDMAN[:, 1], 3)
# Equal rows with different targets; their bound must stay a bound.
FRIEDMAN[60:80] = FRIEDMAN[:20]

TRAININGS = {
    "two classes": (*oracle.checkerboard(200), "-c 1 -g 2"),
    "weights": (*oracle.two_gaussians(200), "-c 1 -g 0.5 -w1 5 -w-1 2"),
    "linear kernel": (*oracle.two_gaussians(200), "-t 0 -c 1"),
    "sparse rows": (*oracle.sparse_rows(150), "-c 1 -g 0.5"),
    "several classes": (*oracle.clouds(160), "-c 2 -g 0.3 -w1 2 -w2 3"),
    "regression": (TARGETS, FRIEDMAN, "-s 3 -c 1 -g 2 -p 0.1"),
    "novelty detection": (*oracle.two_gaussians(200), "-s 2 -n 0.2 -g 0.5"),
}


def written(path, y, X):
    path.write_text(oracle.svmlight_text([f"{label:g}" for label in y], X))
    return path


def certificate_of(script, train, model, options, test=None):
    """Return the certificate of a model; LIBSVM's options are words."""
    words = options.split()
    given = {"-c": "1", "-p": "0.1", "-n": "0.5"} | dict(zip(words[::2], words[1::2], strict=True))
    weights = [(name[2:], value) for name, value in given.items() if name.startswith("-w")]
    given = {"c": given["-c"], "p": given["-p"], "n": given["-n"]}
    given = {name: float(value) for name, value in given.items()}
    paths = {"train": str(train), "model": str(model), "test": test and str(test)}
    return script("benchmarks.certificate").evaluate(
        argparse.Namespace(**paths, **given, w=weights, most=1e9)
    )


def solved(y, X, options, path):
    """Return LIBSVM's optimum to 1e-7 and its model, which is written to `path`."""
    emitted = []
    wanted = bindings.svm_parameter(f"{options} -e 1e-7")
    wanted.print_func = bindings.PRINT_STRING_FUN(lambda text: emitted.append(text.decode()))
    model = svmutil.svm_train(bindings.svm_problem(y, sparse.csr_matrix(X)), wanted)
    bindings.libsvm.svm_save_model(str(path).encode(), model)
    lines = "".join(emitted).splitlines()
    return sum(float(line.split()[2].rstrip(",")) for line in lines if line[:3] == "obj"), model


@pytest.mark.parametrize("name", TRAININGS)
def test_the_certificate_has_libsvms_objective_and_a_small_gap(script, tmp_path, name):
    y, X, options = TRAININGS[name]
    train, path = written(tmp_path / "train", y, X), tmp_path / "model"
    optimum, model = solved(y, X, options, path)
    found = certificate_of(script, train, path, options, test=train)
    assert found["dual"] == pytest.approx(-optimum, rel=1e-5)
    assert found["primal"] == pytest.approx(-optimum, rel=1e-5)
    # LIBSVM writes 8 digits of a value, so the certificate is for slightly different rows.
    assert -1e-7 <= found["gap"] < 1e-5
    _, (accuracy, mse, _), _ = svmutil.svm_predict(y, sparse.csr_matrix(X), model, "-q")
    said = {"accuracy": accuracy, "mse": mse}
    shown = found.keys() & said.keys()
    assert shown or name == "novelty detection"
    assert {of: found[of] for of in shown} == pytest.approx({of: said[of] for of in shown})


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_worse_model_has_a_worse_certificate(script, tmp_path, name, factor):
    """Half of each coefficient is far from the optimum. Twice each coefficient, or half of a sum
    that must be nu n, is infeasible and bounds nothing.
    """
    y, X, options = TRAININGS[name]
    train, path = written(tmp_path / "train", y, X), tmp_path / "model"
    solved(y, X, options, path)
    head, rows = path.read_text().split("SV\n")
    columns = max(1, len(set(y)) - 1) if "several" in name else 1
    lines = []
    for line in rows.splitlines():
        words = line.split(" ", columns)
        lines += [" ".join([*(repr(factor * float(word)) for word in words[:-1]), words[-1]])]
    path.write_text("\n".join([f"{head}SV", *lines, ""]))
    gap = certificate_of(script, train, path, options)["gap"]
    if factor == 2 or name == "novelty detection":
        assert np.isnan(gap)
    else:
        assert gap > 0.05


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        *((name, "dense") for name in ("two classes", "weights", "sparse rows", "several classes")),
        ("sparse rows", "csr"),
    ],
)
def test_libsvm_reads_a_model_of_scikit_learn(script, tmp_path, name, layout):
    """The peers write this file, and it predicts the same as LIBSVM's own model."""
    y, X, options = TRAININGS[name]
    train, path, own = written(tmp_path / "train", y, X), tmp_path / "theirs", tmp_path / "own"
    words = [*options.split(), "--layout", layout]
    script("benchmarks.peers").machine("sklearn", str(train), str(path), *words)
    solved(y, X, options, own)
    theirs, ours = (svmutil.svm_load_model(str(each)) for each in (path, own))
    rows = sparse.csr_matrix(X)
    predicted = [svmutil.svm_predict(y, rows, model, "-q") for model in (theirs, ours)]
    assert predicted[0][0] == predicted[1][0]
    assert certificate_of(script, train, path, options)["gap"] < 5e-3


def test_a_looser_tolerance_of_scikit_learn_leaves_a_larger_gap(script, tmp_path):
    y, X, options = TRAININGS["two classes"]
    train, path, gaps = written(tmp_path / "train", y, X), tmp_path / "model", []
    for tolerance in ("0.001", "0.1"):
        words = [*options.split(), "-e", tolerance]
        script("benchmarks.peers").machine("sklearn", str(train), str(path), *words)
        gaps.append(certificate_of(script, train, path, options)["gap"])
    assert gaps[1] > 3 * gaps[0]


def test_expensive_certificates_are_omitted(script, tmp_path):
    y, X, options = TRAININGS["two classes"]
    train, path = written(tmp_path / "train", y, X), tmp_path / "model"
    solved(y, X, options, path)
    words = ["benchmarks/certificate.py", train, path, "-c", 1, "--test", train, "--most", 1000]
    assert run(*words).stdout.decode().split()[::2] == ["SV"]


# ---- real sets, and the page ------------------------------------------------------------------


def test_a_download_with_another_checksum_is_refused(script, tmp_path):
    (tmp_path / "archive").write_bytes(b"something else")
    with pytest.raises(click.ClickException, match="expected sha256 d9ef"):
        script("benchmarks.real_data").check(tmp_path / "archive", "d9ef")


def test_words_are_encoded_and_numbers_scaled_to_one(script):
    """scikit-learn's encoder and scaler give the same values."""
    pandas = pytest.importorskip("pandas")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    table = pandas.DataFrame(
        {"age": ["3", "?", "7", "5"], "work": ["b", "a", "b", "?"], "money": [0, 9, 99, 999]}
    )
    indptr, indices, values = script("benchmarks.real_data").csr(
        table, money=["money"], numbers=["age"]
    )
    X = sparse.csr_matrix((values, indices - 1, indptr), (4, 5)).toarray()
    known = np.array([[3, 5, 7, 5], np.log1p(table["money"])]).T
    scaled = preprocessing.MinMaxScaler().fit_transform(known)
    words = preprocessing.OneHotEncoder(sparse_output=False).fit_transform(table[["work"]])
    expected = np.column_stack([scaled[:, 0], words, scaled[:, 1]])
    np.testing.assert_allclose(X, expected, atol=1e-7)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_benchmarks_run_and_the_page_shows_time_and_gap(script, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    works = ["reading-twonorm", "one-class", "growth-10000", "growth-300000"]
    run("-m", "benchmarks", "--quick", "--rows", 1000, "--results", tmp_path, *works)
    found = json.loads((tmp_path / "benchmarks-quick.json").read_text())
    reading, training, *growth = (each["commands"] for each in found["comparisons"])
    ours, theirs = reading
    assert ours["quality"]["nonzeros"] == theirs["quality"]["nonzeros"] == 5000 * 20
    assert "## Physical limits" in (tmp_path / "benchmarks-quick.md").read_text()
    page = script("benchmarks.results_page")
    monkeypatch.setattr(page, "DRAWN", ["one-class"])
    words = ["--title", "benchmarks-quick", "--results", tmp_path, "--output", tmp_path]
    assert (
        CliRunner().invoke(page.main, list(map(str, words)), catch_exceptions=False).exit_code == 0
    )
    text = (tmp_path / "results.md").read_text()
    for record in training:
        quality = record["quality"]
        assert f"{quality['gap']:.4%} | {quality['inliers']:.1f}% inside" in text
    before = {record["name"]: record["median"]["wall"] for record in growth[0]}
    for record in growth[1]:  # on three times the rows; svm-train is not among them
        after = record["median"]["wall"]
        exponent = np.emath.logn(3, after / before[record["name"]])
        assert f"{after:.3g} s | {exponent:.2f} | " in text
    worth = training[0]["quality"]
    assert worth["gap"] == pytest.approx(worth["said"], rel=1e-2)
    for picture in ("results-gap.png", "results-growth.png"):
        assert picture in text
        assert 0 < (tmp_path / picture).stat().st_size < 100_000
