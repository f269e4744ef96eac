"""Test the scripts: the data generators, the quality of a model, the comparison of two versions,
and the page of results."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
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


# ---- two versions -----------------------------------------------------------------------------


@pytest.fixture
def drawn_sets(script, monkeypatch):
    module = script("benchmarks.drawn_sets")
    monkeypatch.setattr(module, "ROWS", (3000, 3000))
    return module


@pytest.mark.slow
def test_drawn_sets_have_all_kinds_and_are_learned_with_their_options(drawn_sets):
    """The reference is scikit-learn on rows that the search did not see."""
    svm = pytest.importorskip("sklearn.svm")
    drawn = [drawn_sets.draw(20260101, number) for number in range(8)]
    assert {one.name.split(",")[0] for one in drawn} == set(drawn_sets.KINDS)
    given = [dict(zip(one.options[::2], one.options[1::2], strict=True)) for one in drawn]
    assert {options.get("-s") for options in given} == {None, "svr", "one-class"}
    for one, options in zip(drawn, given, strict=True):
        y, gamma = np.array(one.y, float), float(options["-g"])
        assert one.X.shape[0] == len(y) == 3000
        train, test = slice(2000), slice(2000, None)
        if options.get("-s") == "one-class":
            assert set(y) == {1}
            continue
        C = float(options["-c"])
        machine = (
            svm.SVR(C=C, gamma=gamma, epsilon=float(options["-p"]))
            if "-s" in options
            else svm.SVC(C=C, gamma=gamma)
        )
        score = machine.fit(one.X[train], y[train]).score(one.X[test], y[test])
        constant = (
            0 if "-s" in options else np.unique(y[test], return_counts=True)[1].max() / len(y[test])
        )
        assert score > constant, one.name


def test_a_seed_stands_for_one_set(drawn_sets, tmp_path):
    texts = []
    for seed in (3, 3, 4):
        drawn_sets.draw(seed, 0).write(tmp_path / "set")
        texts.append((tmp_path / "set").read_bytes())
    assert texts[0] == texts[1] != texts[2]


def test_a_set_that_takes_long_is_halved(script, drawn_sets, monkeypatch, tmp_path):
    compare = script("benchmarks.compare")
    rows = []

    def takes_long(words):
        rows.append(len(Path(words[-2]).read_text().splitlines()))
        return rows[-1] > 800

    monkeypatch.setattr(compare, "takes_long", takes_long)
    comparison = compare.training(["old", "new"], 3, 0, tmp_path)
    assert rows == [3000, 1500, 750] and comparison.rows == 750


def test_the_report_compares_times_without_the_start_and_names_the_phase(script, tmp_path):
    compare = script("benchmarks.compare")

    def record(name, seconds, scans, **more):
        commands = []
        for version, wall, scan in zip(("old", "new"), seconds, scans, strict=True):
            log = tmp_path / f"{name}.{version}.log"
            events = [
                {"event": "started", "run": "a", "data": "text.train", "d": 7, "seconds": 0.5},
                {"event": "iteration", "run": "a", "seconds": 1.5 + scan}
                | {"solve_seconds": 0.75, "scan_seconds": scan},
                {"event": "trained", "run": "a", "seconds": 1.75 + scan},
            ]
            log.write_text("".join(f"{json.dumps(event)}\n" for event in events))
            runs = [{"wall": one, "cpu": 2 * one, "peak": 100.0} for one in wall]
            quality = {"P": 1.0, "same": version == "old"}
            commands.append(
                {"name": version, "words": ["--log", str(log)], "runs": runs, "ended": False}
                | {"median": runs[0], "quality": quality, "short": []}
            )
        shared = {"commits": ["a" * 40, "b" * 40], "seed": 1, "date": "day", "machine": "one"}
        return shared | {"rows": 1000, "commands": commands} | more

    first = record("first", ([2.5, 2.5, 2.5], [4.0, 4.5, 5.0]), (1.0, 3.0))
    second = record("second", ([2.5, 2.5, 2.5], [2.0, 2.0, 2.0]), (1.0, 0.5))
    for one, late in ((first, 0.25), (second, 0)):
        begun = record("start", ([0.5, 0.5], [1.0, 1.0 + late]), (0, 0))["commands"]
        one["commands"][:0] = begun
    lines = list(compare.report([first, second]))
    one, other = (line for line in lines if line.startswith("text, 1,000 x 7"))
    assert " ".join(one.split()[4:]) == (
        "2.00 3.00 1.75 1.50 - 2.00 1.75 1.00 in gap 1/1 scans +2.00 s"
    )
    assert other.endswith("scans -0.50 s")
    assert "seconds: median 1.12, worst 1.75, best 0.50" in lines
    assert lines[-1].endswith(
        "scans 2.00 -> 3.50, between 0.50 -> 0.50, closing 0.50 -> 0.50; scans +1.50 s differs most"
    )


@pytest.mark.slow
def test_a_version_has_the_results_of_itself(script, drawn_sets, tmp_path):
    compare, harness = (script(f"benchmarks.{name}") for name in ("compare", "harness"))
    programs = [script("benchmarks.quality").TRAIN] * 2
    works = {"set-00": lambda: compare.training(programs, 1, 0, tmp_path)}
    effort = harness.Effort(2, long=0)
    harness.run_works(works, effort, tmp_path, commits=["a" * 40] * 2, seed=1)
    found = [json.loads((tmp_path / f"{name}.json").read_text()) for name in works]
    assert [len(one["runs"]) for one in found[0]["commands"]] == [2] * 4
    line = list(compare.report(found))[5]
    assert " same " in line
    rounds = line.split(" same ")[1].split()[0].split("/")
    assert rounds[0] == rounds[1]


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


def test_every_command_has_a_page_of_the_manual(script, tmp_path):
    pages = script("man_pages").pages()
    assert len(pages) == 3 + script("command_line_page").filled("").count("## randsvm-")
    groff = shutil.which("groff")
    for name, text in pages.items():
        assert text.startswith(f'.TH "{name[:-2].upper()}" 1 ')
        (tmp_path / name).write_text(text)
        if groff is not None:
            words = [groff, "-man", "-Tascii", "-ww", tmp_path / name]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            assert done.stderr == ""
            assert "--help" in done.stdout


def test_the_recipe_of_conda_has_the_requirements_of_the_project():
    tomllib, yaml = (pytest.importorskip(name) for name in ("tomllib", "yaml"))
    root = SCRIPTS.parent
    pyproject = tomllib.loads((root / "pyproject.toml").read_text())
    project, text = pyproject["project"], (root / "conda" / "meta.yaml").read_text()
    # Words of Jinja, which conda fills in, are texts here.
    text = re.sub(r"\{%.*?%\}", "", text)
    recipe = yaml.safe_load(re.sub(r"\{\{(.*?)\}\}", lambda found: found[1].strip(" )("), text))
    run = [line.replace(" ", "") for line in recipe["requirements"]["run"]]
    assert run == ["python" + project["requires-python"], *project["dependencies"]]
    host = [line.replace(" ", "").lower() for line in recipe["requirements"]["host"]]
    assert {one.lower() for one in pyproject["build-system"]["requires"]} <= set(host)
    scripts = [f"{name} = {place}" for name, place in project["scripts"].items()]
    assert recipe["build"]["entry_points"] == scripts
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
