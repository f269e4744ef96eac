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


def test_a_peak_below_the_measurable_minimum_is_an_upper_bound(harness, script):
    shown = [
        script("benchmarks.tables").peak({"median": harness.run(words)[0], "ended": False})
        for words in (["true"], [sys.executable, "-c", "x = b'x' * 2**26"])
    ]
    assert shown[0].startswith("<= ")
    assert shown[1].isdigit()


def test_a_missing_program_is_named(harness):
    with pytest.raises(click.ClickException, match="no-such-program"):
        harness.run(["no-such-program"])


def test_results_that_are_missing_are_reported_in_one_line(harness, tmp_path):
    with pytest.raises(click.ClickException, match="no results yet"):
        harness.compare("title", {}, harness.Effort(rounds=1), tmp_path, again=True)


def test_a_repeated_benchmark_replaces_its_old_result(harness, tmp_path):
    def work(name, took):
        commands = [harness.Command("ours", seconds(took), gates=())]
        return lambda: harness.Comparison(name, 100, commands)

    def run(again, **works):
        harness.compare("title", works, harness.Effort(rounds=1), tmp_path, again=again)
        return json.loads((tmp_path / "title.json").read_text())

    old = run(False, a=work("a", 1), b=work("b", 2))
    old["comparisons"][1]["date"] = "2001-02-03"
    for each in old["comparisons"]:  # of a harness that knew no floor
        (record,) = each["commands"]
        for numbers in (*record["runs"], record["best"], record["median"]):
            del numbers["floor"]
    (tmp_path / "title.json").write_text(json.dumps(old | {"unseen": 50.0, "not_run": ["c"]}))
    found = run(True, a=work("a", 3), c=work("c", 4))
    assert ["floor" in each["commands"][0]["best"] for each in found["comparisons"]] == [
        True,
        False,
        True,
    ]
    assert found["not_run"] == []
    took = {each["name"]: each["commands"][0]["best"]["wall"] for each in found["comparisons"]}
    assert took == {"a": 3, "b": 2, "c": 4}
    assert [each["date"] for each in found["comparisons"]] == [
        old["date"],
        "2001-02-03",
        old["date"],
    ]
    later = "Measured on another day, perhaps with another version: b, 100 rows (2001-02-03)"
    assert later in (tmp_path / "title.md").read_text()


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


def test_a_peer_is_compared_as_a_whole_and_by_its_fit(harness, tmp_path):
    gates = (harness.Gate("accuracy", 0.1),)
    found = comparison_of(harness, tmp_path, comparison(harness, 89.95, gates))
    ours, peer = found["comparisons"][0]["commands"]
    assert ours["peers"]["peer"]["times"]["median"] == 3
    assert ours["peers"]["peer"]["fit"]["median"] == 1.5
    assert peer["median"]["fit"] == 3


@pytest.mark.parametrize(("longer", "reported"), [(0.04, 0), (0.06, 0.06), (-1, 0)])
def test_differences_between_two_starts_are_noise(harness, longer, reported):
    assert harness.beyond_start(3.25 + longer, 3, 0.25) == pytest.approx(reported)


def test_a_slow_peer_runs_once_and_is_compared_with_all_our_runs(harness, tmp_path):
    work = comparison(harness, 90.0, ())
    found = comparison_of(harness, tmp_path, work, rounds=3, once=5)
    ours, peer = found["comparisons"][0]["commands"]
    assert (len(ours["runs"]), len(peer["runs"])) == (3, 1)
    assert ours["peers"]["peer"]["times"]["pairs"] == [3, 3, 3]


def test_a_short_peer_may_be_run_once(harness, tmp_path):
    work = comparison(harness, 90.0, (), once=True)
    found = comparison_of(harness, tmp_path, work)
    assert [len(each["runs"]) for each in found["comparisons"][0]["commands"]] == [2, 1]


def test_a_long_run_of_ours_runs_once(harness, tmp_path):
    work = comparison(harness, 90.0, ())
    found = comparison_of(harness, tmp_path, work, own_once=1)
    assert [len(each["runs"]) for each in found["comparisons"][0]["commands"]] == [1, 2]


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


def test_a_peer_within_the_time_limit_is_not_ended_and_its_failure_is_reported(harness, tmp_path):
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    broken = partial(harness.Comparison, "broken", 1, [harness.Command("killed", killed)])
    work = comparison(harness, 90.0, ())
    found = comparison_of(harness, tmp_path, broken, work, most=60)
    assert "exit -9" in found["skipped"][0]
    ours, peer = found["comparisons"][0]["commands"]
    assert not peer["ended"]
    assert not ours["peers"]["peer"]["times"]["ended"]


def test_benchmarks_that_would_start_too_late_are_named(harness, tmp_path):
    works = [comparison(harness, 90.0, ())] * 3
    found = comparison_of(harness, tmp_path, *works, whole=0)
    assert len(found["comparisons"]) == 1
    assert found["not_run"] == ["1", "2"]
    assert "Not run: 1, 2" in (tmp_path / "title.md").read_text()


def test_a_comparison_may_have_fewer_rounds(harness, tmp_path):
    commands = [harness.Command("peer", seconds(20))]
    work = partial(harness.Comparison, "work", 100, commands, rounds=1)
    found = comparison_of(harness, tmp_path, work, once=60)
    assert len(found["comparisons"][0]["commands"][0]["runs"]) == 1


def test_time_is_not_compared_if_quality_is_too_low(harness, tmp_path):
    gates = (harness.Gate("accuracy", 0.1),)
    with pytest.raises(click.ClickException, match=r"accuracy 89.8 against 90 of peer"):
        comparison_of(harness, tmp_path, comparison(harness, 89.8, gates))
    ours = json.loads((tmp_path / "title.json").read_text())["comparisons"][0]["commands"][0]
    assert ours["peers"]["peer"]["times"] is None


def test_a_peer_on_fewer_rows_may_be_more_accurate_by_chance(harness, tmp_path):
    gates = (harness.Gate("accuracy", 0.1),)
    found = comparison_of(harness, tmp_path, comparison(harness, 89.8, gates, equal=False))
    ours = found["comparisons"][0]["commands"][0]
    assert ours["short"] == []
    assert ours["peers"]["peer"]["times"] is not None


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
