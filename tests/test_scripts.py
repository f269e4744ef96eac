"""The scripts: what makers of sets promise, what the harness compares and what it refuses to."""

import argparse
import json
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import click
import numpy as np
import oracle
import pytest
from click.testing import CliRunner
from libsvm import svm as bindings
from libsvm import svmutil
from scipy import sparse

SCRIPTS = Path(__file__).parents[1] / "scripts"
SETS = (
    *("twonorm", "ringnorm", "checkerboard", "unbalanced", "letters", "sparse", "waveform"),
    *("sinc", "friedman"),
)


@pytest.fixture
def script(monkeypatch):
    """Imports a script by its name."""
    monkeypatch.syspath_prepend(SCRIPTS)
    return import_module


@pytest.fixture
def harness(script):
    return script("harness")


def run(script, *words):
    words = [sys.executable, SCRIPTS / script, *words]
    return subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_the_beginning_of_a_larger_set(name):
    """Whether the sets end within a block of rows, at its end or beyond."""
    made = [run("make_data.py", name, "-", "--rows", rows).stdout for rows in (9, 10_000, 10_009)]
    assert [text.count(b"\n") for text in made] == [9, 10_000, 10_009]
    assert made[1].startswith(made[0])
    assert made[2].startswith(made[1])


@pytest.mark.parametrize("script", sorted(path.stem for path in SCRIPTS.glob("*.py")))
def test_a_script_finds_what_it_imports(script):
    if "matplotlib" in (SCRIPTS / f"{script}.py").read_text():
        pytest.importorskip("matplotlib")
    subprocess.run([sys.executable, "-c", f"import {script}"], cwd=SCRIPTS, check=True)


def test_a_cluster_of_this_machine_loses_a_worker_and_writes_the_same_model():
    pytest.importorskip("distributed")
    data = SCRIPTS.parent / "data" / "checkerboard.svm"
    said = run("cluster_demo.py", data, "--gap", 0.01).stdout.decode()
    assert "kill -9" in said
    assert "both models have the same" in said


def test_the_cost_of_averaging_is_of_models_with_that_many_groups(script, monkeypatch, tmp_path):
    pytest.importorskip("distributed")
    averaging, inline = script("averaging"), import_module("inline")
    for constant in ("GROUP_CHUNKS", "MOST_GROUPS"):
        monkeypatch.setattr(averaging.sgd, constant, 1)
    monkeypatch.setattr(averaging.source, "ParseOptions", None)
    monkeypatch.setattr("randsvm.cluster.load.Crew", inline.InlineCrew)
    path = str(oracle.write_svmlight(tmp_path / "rows", *oracle.sparse_rows(500)))
    words = [path, path, "--groups", "3", "--epochs", "4", "--cluster", "1"]
    said = CliRunner().invoke(averaging.main, words, catch_exceptions=False)
    cells = [line.split("|")[2:-1] for line in said.output.splitlines()]
    assert [cell[0].strip() for cell in cells] == ["plain", "3 groups"]
    assert cells[0][1].strip() == "+0.00%"
    assert cells[1][1].strip() != "+0.00%"
    assert all(60 < float(cell[2].strip(" %")) <= 100 for cell in cells)


def test_what_more_cores_take_is_computed_from_how_a_round_splits(script, tmp_path):
    """Made logs: ten times the rows have twice the rounds, so a hundred times have four times."""
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


def seconds(own):
    """A process that says that its work took so long."""
    return [sys.executable, "-c", f"print('seconds {own}')"]


def compared(harness, tmp_path, *works, **effort):
    """The JSON that comparing these writes."""
    named = {str(number): work for number, work in enumerate(works)}
    harness.compare("title", named, harness.Effort(**{"rounds": 2} | effort), tmp_path)
    return json.loads((tmp_path / "title.json").read_text())


def test_a_work_that_is_run_again_takes_the_place_of_the_old_one(harness, tmp_path):
    def work(name, took):
        commands = [harness.Command("ours", seconds(took), goal=harness.Goal())]
        return lambda: harness.Comparison(name, 100, commands)

    def run(again, **works):
        harness.compare("title", works, harness.Effort(rounds=1), tmp_path, again=again)
        return json.loads((tmp_path / "title.json").read_text())

    run(False, a=work("a", 1), b=work("b", 2))
    found = run(True, a=work("a", 3))
    assert found["not_run"] == []
    took = {each["name"]: each["commands"][0]["best"]["wall"] for each in found["comparisons"]}
    assert took == {"a": 3, "b": 2}
    assert found["again"] == ["a"]
    assert (
        "Run again, later and perhaps by a newer version: a" in (tmp_path / "title.md").read_text()
    )


def comparison(harness, accuracy, goal, **peer):
    """Ours takes 2 seconds, the peer 6 with an accuracy of 90, 3 of them for its fit."""
    words = [sys.executable, "-c", "print('seconds 6'); print('fit 3')"]
    commands = [
        harness.Command("ours", seconds(2), lambda: {"accuracy": accuracy}, goal=goal),
        harness.Command("peer", words, lambda: {"accuracy": 90.0}, **peer),
    ]
    return lambda: harness.Comparison("work", 100, commands)


@pytest.mark.parametrize(("times", "missed"), [(2.9, []), (3.1, ["times peer"])])
def test_a_goal_is_held_against_the_measured_ratio(harness, tmp_path, times, missed):
    goal = harness.Goal((harness.Gate("accuracy", 0.1),), {"peer": times})
    found = compared(harness, tmp_path, comparison(harness, 89.95, goal))
    ours = found["comparisons"][0]["commands"][0]
    assert ours["peers"]["peer"]["times"]["median"] == 3
    assert ours["missed"] == missed


@pytest.mark.parametrize(("times", "missed"), [(1.4, []), (1.6, ["fit peer"])])
def test_the_fit_alone_of_a_peer_is_a_goal_of_its_own(harness, tmp_path, times, missed):
    goal = harness.Goal(fit={"peer": times})
    found = compared(harness, tmp_path, comparison(harness, 90.0, goal))
    ours, peer = found["comparisons"][0]["commands"]
    assert peer["median"]["fit"] == 3
    assert ours["missed"] == missed


@pytest.mark.parametrize(("most", "missed"), [({"accuracy": 91}, []), ({"gap": 0.001}, ["gap"])])
def test_a_quality_that_is_not_there_is_missed(harness, tmp_path, most, missed):
    goal = harness.Goal(most=most)
    found = compared(harness, tmp_path, comparison(harness, 90.0, goal))
    assert found["comparisons"][0]["commands"][0]["missed"] == missed


def test_a_slow_peer_is_run_once_and_stands_against_all_of_ours(harness, tmp_path):
    work = comparison(harness, 90.0, harness.Goal(times={"peer": 2}))
    found = compared(harness, tmp_path, work, rounds=3, once=5)
    ours, peer = found["comparisons"][0]["commands"]
    assert (len(ours["runs"]), len(peer["runs"])) == (3, 1)
    assert ours["peers"]["peer"]["times"]["pairs"] == [3, 3, 3]


def test_ours_is_run_once_where_that_takes_long(harness, tmp_path):
    work = comparison(harness, 90.0, harness.Goal(times={"peer": 2}))
    found = compared(harness, tmp_path, work, own_once=1)
    assert [len(each["runs"]) for each in found["comparisons"][0]["commands"]] == [1, 2]


@pytest.mark.parametrize(("own", "missed"), [(0.004, []), (0.4, ["times peer, which was ended"])])
def test_a_peer_that_takes_too_long_is_ended_and_bounds_the_ratio(harness, tmp_path, own, missed):
    """It would sleep for a minute and is asked for a model that it did not write."""
    goal = harness.Goal((harness.Gate("accuracy", 0.1),), {"peer": 4}, {"peer": 4})
    commands = [
        harness.Command("ours", seconds(own), lambda: {"accuracy": 80.0}, goal=goal),
        harness.Command("peer", ["sleep", "60"], partial(pytest.fail, "no model")),
    ]
    work = partial(harness.Comparison, "work", 100, commands)
    found = compared(harness, tmp_path, work, most=0.05)
    ours, peer = found["comparisons"][0]["commands"]
    assert peer["ended"]
    assert not ours["ended"]
    assert (len(peer["runs"]), peer["quality"]) == (1, {})
    assert ours["peers"]["peer"]["times"]["ended"]
    assert ours["missed"] == missed
    text = (tmp_path / "title.md").read_text()
    assert "> 0.05" in text
    assert "peer: > " in text
    assert "Ended after 0.05 s: peer (work, 100 rows)" in text


def test_a_peer_that_is_in_time_is_not_ended_and_its_own_failure_is_one(harness, tmp_path):
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    broken = partial(harness.Comparison, "broken", 1, [harness.Command("killed", killed)])
    work = comparison(harness, 90.0, harness.Goal(times={"peer": 2}))
    found = compared(harness, tmp_path, broken, work, most=60)
    assert "exit -9" in found["skipped"][0]
    ours, peer = found["comparisons"][0]["commands"]
    assert not peer["ended"]
    assert not ours["peers"]["peer"]["times"]["ended"]


def test_works_that_would_begin_late_are_named(harness, tmp_path):
    works = [comparison(harness, 90.0, harness.Goal(times={"peer": 2}))] * 3
    found = compared(harness, tmp_path, *works, whole=0)
    assert len(found["comparisons"]) == 1
    assert found["not_run"] == ["1", "2"]
    assert "Not run: 1, 2" in (tmp_path / "title.md").read_text()


def test_a_comparison_may_ask_for_fewer_rounds(harness, tmp_path):
    commands = [harness.Command("peer", seconds(20))]
    work = partial(harness.Comparison, "work", 100, commands, rounds=1)
    found = compared(harness, tmp_path, work, once=60)
    assert len(found["comparisons"][0]["commands"][0]["runs"]) == 1


def test_time_is_not_compared_where_quality_is_short(harness, tmp_path):
    goal = harness.Goal((harness.Gate("accuracy", 0.1),), {"peer": 2})
    with pytest.raises(click.ClickException, match=r"accuracy 89.8 against 90 of peer"):
        compared(harness, tmp_path, comparison(harness, 89.8, goal))
    ours = json.loads((tmp_path / "title.json").read_text())["comparisons"][0]["commands"][0]
    assert ours["peers"]["peer"]["times"] is None
    assert ours["missed"] == ["times peer"]


def test_what_is_missing_or_fails_is_named_and_the_rest_is_measured(harness, tmp_path):
    goal = harness.Goal(times={"peer": 2})
    broken = harness.Command("broken", [sys.executable, "-c", "raise SystemExit('no such thing')"])
    works = [
        lambda: harness.Comparison("broken", 1, [broken]),
        comparison(harness, 90.0, goal, missing="peer is not installed"),
    ]
    found = compared(harness, tmp_path, *works)
    assert "no such thing" in found["skipped"][0]
    assert found["skipped"][1] == "peer is not installed"
    (ours,) = found["comparisons"][0]["commands"]
    assert (len(ours["runs"]), ours["missed"]) == (2, None)
    assert "Skipped: peer is not installed" in (tmp_path / "title.md").read_text()


# ---- what a model file is worth ---------------------------------------------------------------

FRIEDMAN = oracle.as_float32(np.random.default_rng(1).random((120, 3)))
TARGETS = np.round(np.sin(5 * FRIEDMAN[:, 0]) + FRIEDMAN[:, 1], 3)
# Equal rows with other targets: what is made of them must stay a bound.
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


def judged(script, train, model, options, test=None):
    """What the certificate finds, LIBSVM's options in words."""
    words = options.split()
    given = {"-c": "1", "-p": "0.1", "-n": "0.5"} | dict(zip(words[::2], words[1::2], strict=True))
    weights = [(name[2:], value) for name, value in given.items() if name.startswith("-w")]
    given = {"c": given["-c"], "p": given["-p"], "n": given["-n"]}
    given = {name: float(value) for name, value in given.items()}
    paths = {"train": str(train), "model": str(model), "test": test and str(test)}
    return script("certificate").evaluate(argparse.Namespace(**paths, **given, w=weights, most=1e9))


def solved(y, X, options, path):
    """LIBSVM's own optimum to 1e-7, its model written to `path`, and the model itself."""
    told = []
    wanted = bindings.svm_parameter(f"{options} -e 1e-7")
    wanted.print_func = bindings.PRINT_STRING_FUN(lambda text: told.append(text.decode()))
    model = svmutil.svm_train(bindings.svm_problem(y, sparse.csr_matrix(X)), wanted)
    bindings.libsvm.svm_save_model(str(path).encode(), model)
    lines = "".join(told).splitlines()
    return sum(float(line.split()[2].rstrip(",")) for line in lines if line[:3] == "obj"), model


@pytest.mark.parametrize("name", TRAININGS)
def test_the_certificate_is_libsvms_objective_and_its_gap_closes(script, tmp_path, name):
    y, X, options = TRAININGS[name]
    train, path = written(tmp_path / "train", y, X), tmp_path / "model"
    optimum, model = solved(y, X, options, path)
    found = judged(script, train, path, options, test=train)
    assert found["dual"] == pytest.approx(-optimum, rel=1e-5)
    assert found["primal"] == pytest.approx(-optimum, rel=1e-5)
    # LIBSVM writes 8 digits of a value, so the certificate is of rows a little aside.
    assert -1e-7 <= found["gap"] < 1e-5
    _, (accuracy, mse, _), _ = svmutil.svm_predict(y, sparse.csr_matrix(X), model, "-q")
    said = {"accuracy": accuracy, "mse": mse}
    shown = found.keys() & said.keys()
    assert shown or name == "novelty detection"
    assert {of: found[of] for of in shown} == pytest.approx({of: said[of] for of in shown})


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("factor", [0.5, 2])
def test_the_certificate_is_no_better_than_the_model(script, tmp_path, name, factor):
    """Half of each coefficient is far from the optimum; twice as much, or half of a sum that must
    be nu n, is not feasible and bounds nothing."""
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
    gap = judged(script, train, path, options)["gap"]
    if factor == 2 or name == "novelty detection":
        assert np.isnan(gap)
    else:
        assert gap > 0.05


@pytest.mark.parametrize("name", ["two classes", "weights", "sparse rows", "several classes"])
def test_libsvm_reads_a_machine_of_scikit_learn(script, tmp_path, name):
    """As the peers write it, and predicts what LIBSVM's own machine does."""
    y, X, options = TRAININGS[name]
    train, path, own = written(tmp_path / "train", y, X), tmp_path / "theirs", tmp_path / "own"
    script("peers").machine("sklearn", str(train), str(path), *options.split())
    solved(y, X, options, own)
    theirs, ours = (svmutil.svm_load_model(str(each)) for each in (path, own))
    rows = sparse.csr_matrix(X)
    predicted = [svmutil.svm_predict(y, rows, model, "-q") for model in (theirs, ours)]
    assert predicted[0][0] == predicted[1][0]
    assert judged(script, train, path, options)["gap"] < 5e-3


def test_what_costs_too_much_is_left_out(script, tmp_path):
    y, X, options = TRAININGS["two classes"]
    train, path = written(tmp_path / "train", y, X), tmp_path / "model"
    solved(y, X, options, path)
    words = ["certificate.py", train, path, "-c", 1, "--test", train, "--most", 1000]
    assert run(*words).stdout.decode().split()[::2] == ["SV"]


# ---- real sets, and the page ------------------------------------------------------------------


def test_a_download_that_is_another_one_is_refused(script, tmp_path):
    (tmp_path / "archive").write_bytes(b"something else")
    with pytest.raises(click.ClickException, match="expected sha256 d9ef"):
        script("real_data").check(tmp_path / "archive", "d9ef")


def test_words_become_features_and_numbers_go_to_one(script):
    """Beside scikit-learn's own encoder and scaler."""
    pandas = pytest.importorskip("pandas")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    table = pandas.DataFrame(
        {"age": ["3", "?", "7", "5"], "work": ["b", "a", "b", "?"], "money": [0, 9, 99, 999]}
    )
    indptr, indices, values = script("real_data").csr(table, money=["money"], numbers=["age"])
    X = sparse.csr_matrix((values, indices - 1, indptr), (4, 5)).toarray()
    known = np.array([[3, 5, 7, 5], np.log1p(table["money"])]).T
    scaled = preprocessing.MinMaxScaler().fit_transform(known)
    words = preprocessing.OneHotEncoder(sparse_output=False).fit_transform(table[["work"]])
    expected = np.column_stack([scaled[:, 0], words, scaled[:, 1]])
    np.testing.assert_allclose(X, expected, atol=1e-7)


def test_the_benchmarks_run_and_the_page_shows_time_beside_gap(script, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    works = ["reading-twonorm", "one-class", "growth-10000", "growth-300000"]
    run("bench.py", "--quick", "--rows", 1000, "--results", tmp_path, *works)
    found = json.loads((tmp_path / "benchmarks-quick.json").read_text())
    reading, training, *growth = (each["commands"] for each in found["comparisons"])
    ours, theirs = reading
    assert ours["quality"]["nonzeros"] == theirs["quality"]["nonzeros"] == 5000 * 20
    assert "## Physical limits" in (tmp_path / "benchmarks-quick.md").read_text()
    page = script("results_page")
    monkeypatch.setattr(page, "DRAWN", ["one-class"])
    words = ["--title", "benchmarks-quick", "--results", tmp_path, "--output", tmp_path]
    assert (
        CliRunner().invoke(page.main, list(map(str, words)), catch_exceptions=False).exit_code == 0
    )
    text = (tmp_path / "RESULTS.md").read_text()
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
    for picture in ("RESULTS-gap.png", "RESULTS-growth.png"):
        assert picture in text
        assert 0 < (tmp_path / picture).stat().st_size < 100_000
