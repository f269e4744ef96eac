"""The scripts: what makers of sets promise, what the harness compares and what it refuses to."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def harness(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import harness

    return harness


def run(script, *words):
    words = [sys.executable, SCRIPTS / script, *words]
    return subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.mark.parametrize(
    "name", ["twonorm", "ringnorm", "checkerboard", "letters", "sparse", "waveform", "sinc"]
)
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


def test_peaks_of_memory_stand_beside_what_is_promised(tmp_path):
    run("memory.py", "--rows", 1000, "--time-limit", "1s", "--results", tmp_path)
    found = json.loads((tmp_path / "memory.json").read_text())
    assert len(found["commands"]) == 5
    assert all(each["peak"] < each["promised"] for each in found["commands"])


def test_a_cluster_of_this_machine_loses_a_worker_and_writes_the_same_model():
    pytest.importorskip("distributed")
    data = SCRIPTS.parent / "data" / "checkerboard.svm"
    said = run("cluster_demo.py", data, "--gap", 0.01).stdout.decode()
    assert "kill -9" in said
    assert "both models have the same" in said


def seconds(own):
    """A process that says that its work took so long."""
    return [sys.executable, "-c", f"print('seconds {own}')"]


def compared(harness, tmp_path, *works):
    """The JSON that comparing these writes."""
    harness.compare("title", works, harness.Effort(rounds=2), tmp_path)
    return json.loads((tmp_path / "title.json").read_text())


def comparison(harness, accuracy, goal, **peer):
    """Ours takes 2 seconds, the peer 6 with an accuracy of 90."""
    commands = [
        harness.Command("ours", seconds(2), lambda: {"accuracy": accuracy}, goal=goal),
        harness.Command("peer", seconds(6), lambda: {"accuracy": 90.0}, **peer),
    ]
    return lambda: harness.Comparison("work", 100, commands)


@pytest.mark.parametrize(("times", "missed"), [(2.9, []), (3.1, ["times peer"])])
def test_a_goal_is_held_against_the_measured_ratio(harness, tmp_path, times, missed):
    goal = harness.Goal((harness.Gate("accuracy", 0.1),), times=times, against=("peer",))
    found = compared(harness, tmp_path, comparison(harness, 89.95, goal))
    ours = found["comparisons"][0]["commands"][0]
    assert ours["peers"]["peer"]["times"]["median"] == 3
    assert ours["missed"] == missed


def test_time_is_not_compared_where_quality_is_short(harness, tmp_path):
    goal = harness.Goal((harness.Gate("accuracy", 0.1),), times=2, against=("peer",))
    with pytest.raises(click.ClickException, match=r"accuracy 89.8 against 90 of peer"):
        compared(harness, tmp_path, comparison(harness, 89.8, goal))
    ours = json.loads((tmp_path / "title.json").read_text())["comparisons"][0]["commands"][0]
    assert ours["peers"]["peer"]["times"] is None
    assert ours["missed"] == ["times peer"]


def test_what_is_missing_or_fails_is_named_and_the_rest_is_measured(harness, tmp_path):
    goal = harness.Goal(times=2, against=("peer",))
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


def test_the_benchmarks_run(tmp_path):
    run("bench.py", "--rows", 1000, "--rounds", 1, "--results", tmp_path, "reading-twonorm")
    found = json.loads((tmp_path / "benchmarks.json").read_text())
    ours, theirs = found["comparisons"][0]["commands"]
    assert ours["quality"]["nonzeros"] == theirs["quality"]["nonzeros"] == 5000 * 20
    assert "## Physical limits" in (tmp_path / "benchmarks.md").read_text()
