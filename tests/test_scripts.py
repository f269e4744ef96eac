"""Test the scripts: the data generators, the quality of a model, and the page of results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

SCRIPTS = Path(__file__).parents[1] / "scripts"
SETS = (
    *("twonorm", "ringnorm", "checkerboard", "unbalanced", "letters", "sparse", "waveform"),
    *("sinc", "friedman", "incomes"),
)


def run(*words):
    """Run Python in the folder of the scripts."""
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=SCRIPTS, check=True, capture_output=True
    )


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_the_beginning_of_a_larger_set(name):
    """The sets may end within a block of rows, at its end or beyond."""
    few, many = (run("make_data.py", name, "-", "--rows", rows).stdout for rows in (9, 10_009))
    assert [text.count(b"\n") - (name == "incomes") for text in (few, many)] == [9, 10_009]
    assert many.startswith(few)


# ---- real sets, and the page ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_benchmarks_run_and_the_page_shows_time_and_gap(script, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    works = ["reading-twonorm", "one-class"]
    run("-m", "benchmarks", "--quick", "--rows", 1000, "--results", tmp_path, *works)
    (tmp_path / "benchmarks-quick").rename(tmp_path / "benchmarks")
    found = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("benchmarks/*")}
    (ours, theirs), training = (found[name]["commands"] for name in works[:2])
    assert ours["quality"]["nonzeros"] == theirs["quality"]["nonzeros"] == 5000 * 20
    assert training[0]["quality"]["gap"] == pytest.approx(
        training[0]["quality"]["reported_gap"], rel=1e-2
    )
    page = script("benchmarks.results_page")
    monkeypatch.setattr(page, "DRAWN", {"one-class": "one-class"})
    output = tmp_path / "docs"
    output.mkdir()
    words = map(str, ["--results", tmp_path, "--output", output])
    assert CliRunner().invoke(page.main, [*words], catch_exceptions=False).exit_code == 0
    assert str(tmp_path) not in (output / "benchmarks" / "one-class.json").read_text()
    assert 0 < (output / "results-gap.png").stat().st_size < 200_000


@pytest.fixture
def published(script):
    return script("benchmarks.results_page").published(SCRIPTS.parent / "docs" / "benchmarks")


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_the_tables_of_a_page_come_from_the_published_results(script, published, page):
    text = (SCRIPTS.parent / page).read_text()
    assert text == script("benchmarks.page_tables").filled(text, published), "run: make results"


def test_the_pictures_come_from_the_published_results(script, published):
    page = script("benchmarks.results_page")
    for name, (_, drawn) in page.pictures(published).items():
        picture = (SCRIPTS.parent / "docs" / name).read_bytes()
        assert page.digest(drawn).encode() in picture, "make results"
        assert len(picture) < 200_000


def test_the_page_of_the_command_line_has_the_help_of_today(script):
    page = script("command_line_page")
    text = page.PAGE.read_text()
    assert text == page.filled(text), "run: .venv/bin/python scripts/command_line_page.py"
