"""Test the harness of the benchmarks: what it measures, compares and refuses."""

from __future__ import annotations

import json
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
    """Return the commands of each file that the works write."""
    named = {str(number): work for number, work in enumerate(works)}
    harness.run_works(named, harness.Effort(**{"rounds": 2} | effort), tmp_path)
    return [json.loads(path.read_text())["commands"] for path in sorted(tmp_path.glob("*.json"))]


@pytest.mark.parametrize(("made", "least", "most"), [("None", 0, 40), ("b'x' * 2**26", 64, 104)])
def test_peak_memory_does_not_include_the_harness(harness, script, made, least, most):
    """The harness process is larger than either command."""
    ballast = b"x" * 2**27
    used, _ = harness.run([sys.executable, "-IS", "-c", f"x = {made}"])
    assert len(ballast) == 2**27
    assert least < used["peak"] < most
    assert 0 < used["floor"] < 40


def comparison(harness, accuracy, gates, **peer):
    """Compare our 2 seconds with a peer of 6 seconds, 3 of them in its fit; its accuracy is 90."""
    words = [sys.executable, "-c", "print('seconds 6'); print('fit 3')"]
    commands = [
        harness.Command("ours", seconds(2), lambda: {"accuracy": accuracy}, gates=gates),
        harness.Command("peer", words, lambda: {"accuracy": 90.0}, **peer),
    ]
    return lambda: harness.Comparison(100, commands)


def test_a_slow_peer_runs_once_and_is_compared_with_all_our_runs(harness, tmp_path):
    work = comparison(harness, 90.0, ())
    ((ours, peer),) = comparison_of(harness, tmp_path, work, rounds=3, once=5)
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
    work = partial(harness.Comparison, 100, commands)
    ((ours, peer),) = comparison_of(harness, tmp_path, work, most=0.05)
    assert peer["ended"]
    assert not ours["ended"]
    assert (len(peer["runs"]), peer["quality"]) == (1, {})
    assert ours["peers"]["peer"]["times"]["ended"]


def test_time_is_not_compared_if_quality_is_too_low(harness, tmp_path):
    gates = (harness.Gate("accuracy", 0.1),)
    with pytest.raises(click.ClickException, match=r"accuracy 89.8 against 90 of peer"):
        comparison_of(harness, tmp_path, comparison(harness, 89.8, gates))
    ours = json.loads((tmp_path / "0.json").read_text())["commands"][0]
    assert ours["peers"]["peer"]["times"] is None


def test_missing_or_failing_benchmarks_are_named_and_the_others_run(harness, tmp_path, capsys):
    broken = harness.Command("broken", [sys.executable, "-c", "raise SystemExit('no such thing')"])
    works = [
        lambda: harness.Comparison(1, [broken]),
        comparison(harness, 90.0, (), missing="peer is not installed"),
    ]
    ((ours,),) = comparison_of(harness, tmp_path, *works)
    assert len(ours["runs"]) == 2
    said = capsys.readouterr().err
    assert "no such thing" in said
    assert "skipped: peer is not installed" in said
