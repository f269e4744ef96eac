"""Test the harness of the benchmarks: what it measures, compares and refuses."""

from __future__ import annotations

import json
import re
import sys
from functools import partial

import click
import pytest


@pytest.fixture
def harness(script):
    return script("benchmarks.harness")


def seconds(own):
    """A process that reports this time for its work."""
    return [sys.executable, "-c", f"print('seconds {own}')"]


def comparison_of(harness, tmp_path, *works, **effort):
    """Return the JSON that the comparison writes."""
    named = {str(number): work for number, work in enumerate(works)}
    harness.compare("title", named, harness.Effort(**{"rounds": 2} | effort), tmp_path)
    return json.loads((tmp_path / "title.json").read_text())


@pytest.mark.parametrize(("made", "least", "most"), [("None", 0, 40), ("b'x' * 2**26", 64, 104)])
def test_peak_memory_does_not_include_the_harness(harness, script, made, least, most):
    """The harness process is larger than either command."""
    ballast = b"x" * 2**27
    used, _ = harness.run([sys.executable, "-IS", "-c", f"x = {made}"])
    assert len(ballast) == 2**27
    assert least < used["peak"] < most
    assert 0 < used["floor"] < 40


def test_our_runs_are_replaced_and_those_of_peers_kept(harness, tmp_path):
    """A peer with other options runs again."""

    def run(ours_alone, own, *peers):
        commands = [harness.Command("ours", seconds(own), gates=())]
        commands += [
            harness.Command(f"{number}", seconds(peer)) for number, peer in enumerate(peers)
        ]
        harness.compare(
            "title",
            {"a": lambda: harness.Comparison("a", 100, commands)},
            harness.Effort(rounds=1),
            tmp_path,
            again=ours_alone,
            ours_alone=ours_alone,
        )
        (found,) = json.loads((tmp_path / "title.json").read_text())["comparisons"]
        return [found["date"], *found["commands"]]

    run(False, 3, 6, 8)
    written = json.loads((tmp_path / "title.json").read_text())
    (old,) = written["comparisons"]
    old["date"] = "2001-02-03"
    old["commands"][1]["runs"][0]["wall"] = 12
    (tmp_path / "title.json").write_text(json.dumps(written))
    day, ours, kept, changed = run(True, 2, 6, 4)
    assert day == "2001-02-03"
    later = "Ours measured later than the peers, not in turn with them: a, 100 rows"
    assert later in (tmp_path / "title.md").read_text()
    walls = [each["runs"][0]["wall"] for each in (ours, kept, changed)]
    assert walls == [2, 12, 4]
    assert [ours["peers"][name]["times"]["median"] for name in "01"] == [6, 2]


def comparison(harness, accuracy, gates, **peer):
    """Compare our 2 seconds with a peer of 6 seconds, 3 of them in its fit; its accuracy is 90."""
    words = [sys.executable, "-c", "print('seconds 6'); print('fit 3')"]
    commands = [
        harness.Command("ours", seconds(2), lambda: {"accuracy": accuracy}, gates=gates),
        harness.Command("peer", words, lambda: {"accuracy": 90.0}, **peer),
    ]
    return lambda: harness.Comparison("work", 100, commands)


def test_a_slow_peer_runs_once_and_is_compared_with_all_our_runs(harness, tmp_path):
    work = comparison(harness, 90.0, ())
    found = comparison_of(harness, tmp_path, work, rounds=3, once=5)
    ours, peer = found["comparisons"][0]["commands"]
    assert (len(ours["runs"]), len(peer["runs"])) == (3, 1)
    assert ours["peers"]["peer"]["times"]["pairs"] == [3, 3, 3]


@pytest.mark.parametrize("own", [1e-4, 1e4])
def test_a_peer_beyond_the_time_limit_is_ended_and_bounds_the_ratio(harness, tmp_path, own):
    """The peer would sleep for a minute, and it wrote no model."""
    gates = (harness.Gate("accuracy", 0.1),)
    commands = [
        harness.Command("ours", seconds(own), lambda: {"accuracy": 80.0}, gates=gates),
        harness.Command("peer", ["sleep", "60"], partial(pytest.fail, "no model")),
    ]
    work = partial(harness.Comparison, "work", 100, commands)
    found = comparison_of(harness, tmp_path, work, most=0.05)
    ours, peer = found["comparisons"][0]["commands"]
    assert peer["ended"]
    assert not ours["ended"]
    assert (len(peer["runs"]), peer["quality"]) == (1, {})
    assert ours["peers"]["peer"]["times"]["ended"]
    text = (tmp_path / "title.md").read_text()
    assert f"> {peer['median']['wall']:.3f}" in text
    assert "peer: > " in text
    assert re.search(r'Ended at a limit of time: "peer" after 0\.\d+ s \(work\)', text)


def test_time_is_not_compared_if_quality_is_too_low(harness, tmp_path):
    gates = (harness.Gate("accuracy", 0.1),)
    with pytest.raises(click.ClickException, match=r"accuracy 89.8 against 90 of peer"):
        comparison_of(harness, tmp_path, comparison(harness, 89.8, gates))
    ours = json.loads((tmp_path / "title.json").read_text())["comparisons"][0]["commands"][0]
    assert ours["peers"]["peer"]["times"] is None


def test_missing_or_failing_benchmarks_are_named_and_the_others_run(harness, tmp_path):
    broken = harness.Command("broken", [sys.executable, "-c", "raise SystemExit('no such thing')"])
    works = [
        lambda: harness.Comparison("broken", 1, [broken]),
        comparison(harness, 90.0, (), missing="peer is not installed"),
    ]
    found = comparison_of(harness, tmp_path, *works)
    assert "no such thing" in found["skipped"][0]
    assert found["skipped"][1] == "peer is not installed"
    (ours,) = found["comparisons"][0]["commands"]
    assert len(ours["runs"]) == 2
    assert "Skipped: peer is not installed" in (tmp_path / "title.md").read_text()
