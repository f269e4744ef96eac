"""What ends a run besides its solution, and that the best solution so far is what is kept."""

from __future__ import annotations

import json
import re
import threading
import time
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
from learning import SLOWNESS, answer_of, board, gaussians, learn, optimum, read_log

from randsvm.svm import libsvm
from randsvm.svm.scan import Certificate
from randsvm.training.stopping import (
    Best,
    Stop,
    gap_reached,
    iterations,
    no_progress,
    support_bound,
    time_limit,
)

WORDS = "-t 2 -g 5"


class Solution:
    """As much of an SV as the rules ask for."""

    def __init__(self, count: int = 0, precision: float = 1.0) -> None:
        self.count = count
        self.precision = precision

    def __len__(self) -> int:
        return self.count


def scanned(primal: float, dual: float, violators: int = 5, certified: bool = True):
    return SimpleNamespace(
        certificate=Certificate(primal, dual, certified), count=violators, primal=primal
    )


# ---- the best so far ------------------------------------------------------------------------


def test_the_best_has_the_lowest_primal_and_the_highest_dual_of_any_round():
    best = Best()
    solutions = [Solution(n) for n in range(4)]
    rounds = [(9.0, 1.0), (5.0, 2.0), (7.0, 4.0), (6.0, 3.0)]
    for solution, objectives in zip(solutions, rounds, strict=True):
        best.see(solution, scanned(*objectives))
    assert best.solution is solutions[1]
    assert (best.certificate.primal, best.certificate.dual) == (5.0, 4.0)
    assert best.certificate.gap == pytest.approx((5 - 4) / 5)


def test_without_a_certificate_the_newest_solution_is_the_best():
    best = Best()
    solutions = [Solution(n) for n in range(3)]
    for solution, primal in zip(solutions, (9.0, 5.0, 7.0), strict=True):
        best.see(solution, scanned(primal, 0.0, certified=False))
    assert best.solution is solutions[2]
    assert np.isnan(best.certificate.gap)


# ---- the rules, one by one ------------------------------------------------------------------


def test_the_gap_is_of_the_best_and_not_of_the_last_round():
    best = Best()
    rule = gap_reached(best, 0.1)
    answers = []
    for objectives in [(10.0, 5.0), (5.2, 4.0), (20.0, 5.1)]:
        V = scanned(*objectives)
        best.see(Solution(), V)
        answers.append(rule(Solution(), V))
    assert answers == ["", "gap <= 0.1", "gap <= 0.1"]


def test_the_support_bound_is_reached_at_k():
    rule = support_bound(7)
    assert [bool(rule(Solution(m), scanned(1, 0))) for m in (0, 6, 7, 8)] == [0, 0, 1, 1]
    assert "7" in rule(Solution(7), scanned(1, 0))


def test_iterations_are_counted():
    rule = iterations(3)
    assert [bool(rule(Solution(), scanned(1, 0))) for _ in range(4)] == [0, 0, 1, 1]


def test_the_time_limit_is_asked_for_anew_each_time():
    ends = [time.perf_counter() + 1000]
    rule = time_limit(lambda: ends[0])
    assert rule(Solution(), scanned(1, 0)) == ""
    ends[0] = time.perf_counter()
    assert rule(Solution(), scanned(1, 0)) == "time limit"


def progress(*rounds: tuple[float, int]) -> list[tuple[str, float]]:
    """The rule's answers to rounds of (D, |V|), and the precision it asked for.

    Precision passes on from a solution to the next, as svmlearn does it.
    """
    rule, precision, answers = no_progress(), 1.0, []
    for dual, violators in rounds:
        SV = Solution(precision=precision)
        answers.append((rule(SV, scanned(10.0, dual, violators)), SV.precision))
        precision = SV.precision
    return answers


def test_two_idle_rounds_solve_more_precisely_once_and_two_more_end_the_run():
    idle = [(1.0, 5)] * 5
    assert progress(*idle) == [
        ("", 1.0),
        ("", 1.0),
        ("", 0.1),
        ("", 0.1),
        ("no progress", 0.1),
    ]


def test_a_gain_in_the_dual_or_fewer_violators_are_progress():
    gains = [(1.0 + 1e-6 * i, 5) for i in range(9)]
    shrinks = [(1.0, 20 - i) for i in range(9)]
    assert set(progress(*gains)) == {("", 1.0)}
    assert set(progress(*shrinks)) == {("", 1.0)}
    too_small = [(1.0 + 1e-9 * i, 5) for i in range(9)]
    assert "no progress" in dict(progress(*too_small))


def test_the_first_rule_that_answers_gives_the_reason_and_every_rule_is_asked():
    asked = []

    def rule(name: str, answer: str):
        return lambda SV, V: asked.append(name) or answer

    stop = Stop([rule("a", ""), rule("b", "why"), rule("c", "other")])
    assert stop.reason == "no violators"
    assert stop(Solution(), scanned(1, 0))
    assert (stop.reason, asked) == ("why", ["a", "b", "c"])


# ---- whole runs -----------------------------------------------------------------------------

ENDLESS = ("osuna", *WORDS.split(), "--working-set", 300, "--swap", 1)


def assert_certificate(model, facts: dict[str, str], data, words: str) -> None:
    """P and D of the trailer against dense float64; D may come from any round."""
    found, whole = answer_of(model, data, words), optimum("board", len(data.y), words)
    assert float(facts["primal"]) == pytest.approx(found.primal, rel=1e-4)
    assert found.dual * (1 - 1e-4) <= float(facts["dual"]) <= whole.primal * (1 + 1e-4)
    P, D = float(facts["primal"]), float(facts["dual"])
    assert float(facts["gap"]) == pytest.approx((P - D) / max(P, D))
    assert facts["certificate"] == "evaluated"


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna", "osuna-closest"])
@pytest.mark.parametrize("most", [1, 4])
def test_max_iterations_are_rounds(tmp_path, algorithm, most):
    data = board(2000)
    path = data.save(tmp_path / "data")
    size = "--sample-size" if algorithm == "randsvm" else "--working-set"
    words = (*WORDS.split(), size, 250, "--max-iterations", most)
    words += ("--gap", 1e-6) if algorithm == "randsvm" else ()
    learnt = learn(algorithm, path, tmp_path / "m", *words)
    assert len(learnt.rounds) == most == learnt.outcome["iterations"]
    assert "iteration" in learnt.facts["stopped"]
    lowest = min(event["primal"] for event in learnt.rounds)
    highest = max(event["dual"] for event in learnt.rounds)
    assert float(learnt.facts["primal"]) == pytest.approx(lowest, rel=1e-4)
    assert float(learnt.facts["dual"]) == pytest.approx(highest, rel=1e-4)
    assert_certificate(learnt.model, learnt.facts, data, WORDS)


@pytest.mark.parametrize("gap", [0.1, 0.001])
@pytest.mark.parametrize("algorithm", ["randsvm", "osuna"])
def test_a_gap_is_a_promise_about_the_model_that_is_saved(tmp_path, algorithm, gap):
    data, whole = board(2000), optimum("board", 2000, WORDS)
    path = data.save(tmp_path / "data")
    size = "--sample-size" if algorithm == "randsvm" else "--working-set"
    learnt = learn(algorithm, path, tmp_path / "m", *WORDS.split(), "--gap", gap, size, 250)
    assert learnt.facts["stopped"] == f"gap <= {gap:g}"
    found = answer_of(learnt.model, data, WORDS)
    assert found.primal - whole.dual <= gap * found.primal * (1 + 1e-3)
    assert [event["gap"] <= gap for event in learnt.rounds] == [False] * (
        len(learnt.rounds) - 1
    ) + [True]
    assert_certificate(learnt.model, learnt.facts, data, WORDS)


@pytest.mark.parametrize("limit, seconds", [("2s", 2.0), ("0.03m", 1.8)])
def test_a_time_limit_is_a_success_that_says_so_everywhere(command, tmp_path, limit, seconds):
    data = board(5000)
    path = data.save(tmp_path / "data")
    words = ("--time-limit", limit, "--log", "log", "--report", "json")
    began = time.perf_counter()
    ended = command("train", *ENDLESS, *words, path, "m")
    took = time.perf_counter() - began
    summary, facts = json.loads(ended.stdout), oracle.trailer(tmp_path / "m")
    assert ended.returncode == 0
    assert (facts["stopped"], summary["stopped"]) == ("time limit", "time limit")
    assert "stopped: time limit" in ended.stderr
    log = read_log(tmp_path / "log")
    assert log[-1]["stopped"] == "time limit"
    assert len([event for event in log if event["event"] == "iteration"]) > 2
    # The closing evaluation is inside the limit; starting Python takes a moment besides.
    assert 0.4 * seconds < summary["seconds"] <= seconds + 0.2 * SLOWNESS
    assert took <= seconds + 1.5 * SLOWNESS
    assert_certificate(tmp_path / "m", facts, data, WORDS)


def test_a_time_limit_breaks_off_a_solve(tmp_path, monkeypatch):
    """LIBSVM takes its time with the third subproblem."""
    ended, calls, plain = threading.Event(), [], libsvm._Library.train

    def slow(library, *arguments):
        calls.append(arguments)
        if len(calls) == 3:
            ended.wait(60)
        return plain(library, *arguments)

    monkeypatch.setattr(libsvm._Library, "train", slow)
    data = board(2000)
    path, words = data.save(tmp_path / "data"), (*WORDS.split(), "--working-set", 250)
    try:
        learnt = learn("osuna", path, tmp_path / "m", *words, "--time-limit", "2s")
    finally:
        ended.set()
    assert (len(calls), len(learnt.rounds)) == (3, 2)
    assert learnt.facts["stopped"] == "time limit"
    assert 1 < learnt.outcome["seconds"] <= 2 + 0.2 * SLOWNESS
    assert_certificate(learnt.model, learnt.facts, data, WORDS)


# ---- refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna", "osuna-closest"])
@pytest.mark.parametrize("words", ["-t sigmoid", "-t 3", "-t poly -r -1"])
def test_a_gap_that_nothing_can_certify_is_refused_in_one_line(command, tmp_path, algorithm, words):
    path = gaussians(50).save(tmp_path / "data")
    ended = command("train", algorithm, *words.split(), "--gap", "0.01", path, "m")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert re.search("--gap needs a positive semidefinite kernel.*-r >= 0", ended.stderr)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        ("--gap 0", "gap must be > 0 and < 1, got 0"),
        ("--gap nan", "gap must be > 0 and < 1, got nan"),
        ("--time-limit 0s", "time limit must be > 0 seconds, got 0"),
        ("--time-limit 5d", "expected a time as 90s, 10m or 2h, found '5d'"),
        ("--max-iterations 0", "max iterations must be >= 1, got 0"),
        ("--swap 0", "swap must be >= 1 rows, got 0"),
        ("--working-set 1", "working set must be >= 2 rows, got 1"),
    ],
)
def test_limits_out_of_range_are_refused(command, tmp_path, words, message):
    path = gaussians(50).save(tmp_path / "data")
    ended = command("train", "osuna", *words.split(), path, "m")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr.splitlines()[-1]
    assert not (tmp_path / "m").exists()
