"""Test what ends a run besides its solution, and that the best solution so far is kept."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import oracle
import pytest
from learning import LATE, answer_of, board, gaussians, learn, optimum, read_log

from randsvm import Arrays, train_randsvm
from randsvm.events import Iteration
from randsvm.svm import libsvm
from randsvm.svm.solution import Certificate
from randsvm.training import stopping
from randsvm.training.rounds import BestSolution, Rounds
from randsvm.training.stopping import (
    MAX_FURTHER_ITERATIONS,
    MAX_IDLE_ROUNDS,
    Record,
    Stopped,
    StopReason,
    Tighten,
    few_violators,
    first_answer,
    gap_reached,
    iterations,
    no_progress,
    no_violators,
    support_bound,
    time_limit,
)

WORDS = "-t 2 -g 5"
EVALUATED = ("proven",)  # the certificate in the trailer of a run that ended in time


class Solution:
    """The parts of an SV that `BestSolution` uses."""

    within_bounds = True


def scanned(primal, dual, certified=True):
    return SimpleNamespace(certificate=Certificate(primal, dual, certified))


def record(tolerance=1e-3, **numbers):
    return Record(tolerance, **numbers)


def reason(answer):
    return str(answer) if isinstance(answer, Stopped) else ""


# ---- the best so far ------------------------------------------------------------------------


def test_the_best_has_the_lowest_primal_and_the_highest_dual_of_any_round():
    best = BestSolution()
    solutions = [Solution() for _ in range(4)]
    rounds = [(9.0, 1.0), (5.0, 2.0), (7.0, 4.0), (6.0, 3.0)]
    for solution, objectives in zip(solutions, rounds, strict=True):
        best.update(solution, scanned(*objectives))
    assert best.solution is solutions[1]
    assert (best.certificate.primal, best.certificate.dual) == (5.0, 4.0)
    assert best.certificate.gap == pytest.approx((5 - 4) / 5)


def test_a_certificate_describes_its_solution():
    """If time ends before the evaluation, it describes the best or the last solution."""
    best, low, last = BestSolution(), Solution(), Solution()
    best.update(low, scanned(5.0, 1.0))
    best.update(last, scanned(7.0, 4.0))
    rounds = SimpleNamespace(best=best, scan=SimpleNamespace(completed=lambda solution: solution))
    for solution, primal in ((low, 5.0), (last, 7.0)):
        found = Rounds.unevaluated(rounds, solution, Stopped(StopReason.TIME_LIMIT))
        assert found.certificate == Certificate(primal, 4.0, True)


def test_without_a_certificate_the_latest_solution_is_the_best():
    best = BestSolution()
    solutions = [Solution() for _ in range(3)]
    for solution, primal in zip(solutions, (9.0, 5.0, 7.0), strict=True):
        best.update(solution, scanned(primal, 0.0, certified=False))
    assert best.solution is solutions[2]
    assert np.isnan(best.certificate.gap)


# ---- single rules ---------------------------------------------------------------------------


def test_only_a_certified_gap_is_reached():
    rule = gap_reached(0.1, 0.1)
    answers = [reason(rule(record(gap=gap))) for gap in (0.2, 0.1, math.nan)]
    assert answers == ["", "gap <= 0.1", ""]
    # Running values had underestimated the gap: the target is lower, the requested gap is the same.
    assert reason(gap_reached(0.1, 0.05)(record(gap=0.06))) == ""
    assert reason(gap_reached(0.1, 0.05)(record(gap=0.05))) == "gap <= 0.1"


def test_the_support_bound_is_reached_at_k():
    rule = support_bound(7)
    answers = [reason(rule(record(support_vectors=m))) for m in (0, 6, 7, 8)]
    assert list(map(bool, answers)) == [0, 0, 1, 1]
    assert "7" in answers[2]


def test_the_iteration_limit_counts_rounds():
    answers = [iterations(3)(record(rounds=number)) for number in (1, 2, 3, 4)]
    assert list(map(bool, answers)) == [0, 0, 1, 1]


def test_the_time_limit_is_reached_when_no_time_is_left():
    assert time_limit(record(seconds_left=1)) is None
    assert time_limit(record()) is None
    assert reason(time_limit(record(seconds_left=0))) == "time limit"


def progress(*rounds, whole=False, steps=0):
    """Return the answers of the rule to rounds of (D, steepest violation)."""
    found, answers = record(), []
    for dual, steepest in rounds:
        found = found.after(
            support_vectors=1,
            violators=5,
            gap=0.5,
            seconds_left=1,
            dual=dual,
            violation=steepest,
            whole=whole,
            steps=steps,
        )
        answers.append(reason(no_progress(False, "scale")(found)))
    return answers


def test_successive_rounds_without_progress_end_the_run():
    answers = progress(*[(1.0, 0.5)] * (MAX_IDLE_ROUNDS + 2))
    assert answers == [""] * MAX_IDLE_ROUNDS + ["no progress (scale)"] * 2


def test_a_gain_in_the_dual_or_a_smaller_violation_is_progress():
    gains = [(1.0 + 1e-6 * i, 0.5) for i in range(19)]
    shrinks = [(1.0, 0.5 - 0.01 * i) for i in range(19)]
    assert set(progress(*gains)) == {""}
    assert set(progress(*shrinks)) == {""}
    too_small = [(1.0 + 1e-12 * i, 0.5) for i in range(19)]
    assert "no progress (scale)" in progress(*too_small)


def test_an_idle_round_over_all_rows_is_not_repeated():
    answers = progress(*[(1.0, 0.5)] * 3, whole=True)
    assert list(map(bool, answers)) == [False, True, True]


def test_rounds_over_all_rows_take_about_as_many_steps_as_libsvm_may_take():
    gains = [(1.0 + 1e-3 * i, 0.5) for i in range(9)]
    assert not any(progress(*gains, whole=True, steps=MAX_FURTHER_ITERATIONS // 10))
    # Of 4 millions each: the first, and further ones up to 4 + 10 millions.
    answers = progress(*gains, whole=True, steps=2 * MAX_FURTHER_ITERATIONS // 5)
    assert list(map(bool, answers)) == [False] * 4 + [True] * 5
    assert not any(progress(*gains, steps=MAX_FURTHER_ITERATIONS))


def test_a_falling_gap_is_progress():
    """The dual and the violation may both stand still."""

    def idle(factor):
        found = record()
        for i in range(19):
            gap = 0.5 * factor**i
            found = found.after(
                support_vectors=1, violators=5, gap=gap, seconds_left=1, dual=1.0, violation=0.5
            )
        return found.idle

    assert idle(0.95) == 0
    assert idle(1 - 1e-6) > MAX_IDLE_ROUNDS


def test_the_tolerance_tightens_before_a_run_without_progress_ends():
    """A few rows that violate the tolerance in turn may leave too large a gap."""
    found = record(tolerance=1e-3, violators=3, idle=MAX_IDLE_ROUNDS)
    rule = no_progress(True, "scale")
    assert isinstance(rule(found), Tighten)
    assert rule(found.tightened()) is None
    tightest = record(tolerance=1e-13, violators=3, idle=MAX_IDLE_ROUNDS)
    assert rule(tightest) == Stopped(StopReason.NO_PROGRESS, ("scale",))


def test_the_tolerance_tightens_to_the_limit_of_float64_or_the_gap():
    """With --gap a run without violators ends only if no smaller tolerance is possible."""
    rule, found, tolerances = no_violators(True), record(tolerance=1e-3), []
    while isinstance(rule(found), Tighten):
        found = found.tightened()
        tolerances.append(found.tolerance)
    assert tolerances == pytest.approx([10.0**-i for i in range(4, 14)])
    assert reason(rule(found)) == "no violators"
    assert rule(record(violators=1)) is None


def test_the_tolerance_tightens_while_violators_are_few_and_never_ends_a_run():
    rule = few_violators(100)
    answers = [rule(record(violators=count)) for count in (0, 1, 49, 50, 1000)]
    assert [isinstance(answer, Tighten) for answer in answers] == [False, True, True, False, False]
    assert rule(record(tolerance=1e-13, violators=1)) is None
    assert rule(record(violators=1, whole=True)) is None


def test_a_run_tightens_its_tolerance_before_working_sets_run_empty(
    monkeypatch,
):
    """A smooth regression reaches its gap in fewer changes, and the gap is the certified one."""
    rng = np.random.default_rng(11)
    X = rng.uniform(-1, 1, (1500, 4))
    y = np.sin(2 * X[:, 0] * X[:, 1]) + X[:, 2] ** 2 + np.cos(3 * X[:, 3])

    def changes():
        events = list[Any]()
        options = {"C": 10, "gamma": 1, "epsilon": 0.01, "sample_size": 200, "gap": 1e-4}
        fitted = train_randsvm(Arrays(X, y), task="svr", watch=events.append, **options)
        assert fitted.gap is not None and fitted.gap <= 1e-4
        return sum(event.changed for event in events if isinstance(event, Iteration))

    tightened = changes()
    monkeypatch.setattr(stopping, "FEW_VIOLATORS_SHARE", 0.0)
    assert tightened < changes()


def test_without_a_requested_gap_a_run_without_violators_ends():
    assert reason(no_violators(False)(record())) == "no violators"
    assert no_violators(False)(record(violators=1)) is None


def test_the_first_rule_that_applies_gives_the_reason():
    first, other = Stopped(StopReason.NO_PROGRESS), Stopped(StopReason.TIME_LIMIT)
    rules = [lambda record: None, lambda record: first, lambda record: other]
    assert first_answer(rules, record()) is first
    assert first_answer(rules[:1], record()) is None


# ---- whole runs -----------------------------------------------------------------------------

ENDLESS = ("osuna", *WORDS.split(), "--working-set", 300, "--swap", 1)


def assert_certificate(model, metadata, data, words, kinds=EVALUATED):
    """Check P and D of the trailer in dense float64; D may come from any round."""
    found, whole = answer_of(model, data, words), optimum("board", len(data.y), words)
    assert float(metadata["primal"]) == pytest.approx(found.primal, rel=1e-4)
    assert found.dual * (1 - 1e-4) <= float(metadata["dual"]) <= whole.primal * (1 + 1e-4)
    P, D = float(metadata["primal"]), float(metadata["dual"])
    # The gap includes the bounds of rounding.
    assert 0 <= float(metadata["gap"]) - (P - D) / max(P, D) <= 0.01 * float(metadata["gap"])
    assert metadata["certificate"] in kinds


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna", "osuna-closest"])
@pytest.mark.parametrize("most", [1, 4])
def test_max_iterations_limits_the_rounds(tmp_path, algorithm, most):
    data = board(2000)
    path = data.save(tmp_path / "data")
    size = "--sample-size" if algorithm == "randsvm" else "--working-set"
    words = (*WORDS.split(), size, 250, "--max-iterations", most)
    words += ("--gap", 1e-6) if algorithm == "randsvm" else ()
    learnt = learn(algorithm, path, tmp_path / "m", *words)
    assert len(learnt.rounds) == most == learnt.outcome["iterations"]
    assert "iteration" in learnt.metadata["stopped"]
    lowest = min(event["primal"] for event in learnt.rounds)
    highest = max(event["dual"] for event in learnt.rounds)
    assert float(learnt.metadata["primal"]) == pytest.approx(lowest, rel=1e-4)
    assert float(learnt.metadata["dual"]) <= highest * (1 + 1e-4)
    assert_certificate(learnt.model, learnt.metadata, data, WORDS)


def test_max_iterations_includes_rounds_after_an_evaluation(tmp_path, monkeypatch):
    path = board(600).save(tmp_path / "data")
    words = (*WORDS.split(), "--sample-size", 60, "--gap", 0.2)
    first = len(learn("randsvm", path, tmp_path / "m", *words).rounds)
    monkeypatch.setattr(Rounds, "_misses_gap", lambda *_: True)
    learnt = learn("randsvm", path, tmp_path / "n", *words, "--max-iterations", first + 1)
    assert len(learnt.rounds) == first + 1


@pytest.mark.parametrize("gap", [0.1, 0.001])
@pytest.mark.parametrize("algorithm", ["randsvm", "osuna"])
def test_the_requested_gap_holds_for_the_saved_model(tmp_path, algorithm, gap):
    data, whole = board(2000), optimum("board", 2000, WORDS)
    path = data.save(tmp_path / "data")
    size = "--sample-size" if algorithm == "randsvm" else "--working-set"
    learnt = learn(algorithm, path, tmp_path / "m", *WORDS.split(), "--gap", gap, size, 250)
    assert learnt.metadata["stopped"] == f"gap <= {gap:g}"
    found = answer_of(learnt.model, data, WORDS)
    assert found.primal - whole.dual <= gap * found.primal * (1 + 1e-3)
    assert [event["gap"] <= gap for event in learnt.rounds] == [False] * (
        len(learnt.rounds) - 1
    ) + [True]
    assert_certificate(learnt.model, learnt.metadata, data, WORDS)


@pytest.mark.parametrize("limit, seconds", [("2s", 2.0), ("0.03m", 1.8)])
def test_a_time_limit_exits_with_0_and_is_reported_everywhere(command, tmp_path, limit, seconds):
    data = board(5000)
    path = data.save(tmp_path / "data")
    words = ("--time-limit", limit, "--log", "log", "--report", "json")
    began = time.perf_counter()
    ended = command("train", *ENDLESS, *words, path, "m")
    took = time.perf_counter() - began
    summary, metadata = json.loads(ended.stdout), oracle.trailer(tmp_path / "m")
    assert ended.returncode == 0
    assert (metadata["stopped"], summary["stopped"]) == ("time limit", "time limit")
    assert "stopped: time limit" in ended.stderr
    log = read_log(tmp_path / "log")
    assert log[-1]["stopped"] == "time limit"
    assert "iteration" in [event["event"] for event in log]
    # Without a limit this run takes hours; on a busy machine everything takes longer.
    assert 0.1 * seconds < summary["seconds"] <= seconds + LATE
    assert took <= seconds + LATE
    assert_certificate(tmp_path / "m", metadata, data, WORDS)


def test_a_time_limit_cancels_a_solve(tmp_path, monkeypatch):
    """The third subproblem would take a minute."""
    ended, calls, plain = threading.Event(), [], libsvm._Library._solve

    def slow(library, *arguments):
        calls.append(arguments)
        if len(calls) == 3:
            ended.wait(60)
        return plain(library, *arguments)

    monkeypatch.setattr(libsvm._Library, "_solve", slow)
    data = board(2000)
    path, words = data.save(tmp_path / "data"), (*WORDS.split(), "--working-set", 250)
    try:
        learnt = learn("osuna", path, tmp_path / "m", *words, "--time-limit", "4s")
    finally:
        ended.set()
    assert (len(calls), len(learnt.rounds)) == (3, 2)
    assert learnt.metadata["stopped"] == "time limit"
    assert learnt.outcome["seconds"] <= 4 + LATE
    # A busy machine may leave no time for the evaluation.
    assert_certificate(learnt.model, learnt.metadata, data, WORDS, [*EVALUATED, "running"])


# ---- refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna", "osuna-closest"])
@pytest.mark.parametrize("words", ["-t sigmoid", "-t 3", "-t poly -r -1"])
def test_a_gap_that_cannot_be_certified_is_refused_in_one_line(command, tmp_path, algorithm, words):
    path = gaussians(50).save(tmp_path / "data")
    ended = command("train", algorithm, *words.split(), "--gap", "0.01", path, "m")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert re.search("--gap needs a positive semidefinite kernel.*-r >= 0", ended.stderr)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        ("--gap 0", "--gap must be > 0 and < 1, got 0"),
        ("--gap nan", "--gap must be > 0 and < 1, got nan"),
        ("--time-limit 0s", "--time-limit must be > 0 seconds, got 0s"),
        ("--time-limit 5d", "expected a time as 90s, 10m or 2h, found '5d'"),
        ("--max-iterations 0", "--max-iterations must be >= 1, got 0"),
        ("--swap 0", "--swap must be >= 1 rows, got 0"),
        ("--working-set 1", "--working-set must be >= 2 rows, got 1"),
    ],
)
def test_limits_out_of_range_are_refused(command, tmp_path, words, message):
    path = gaussians(50).save(tmp_path / "data")
    ended = command("train", "osuna", *words.split(), path, "m")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr.splitlines()[-1]
    assert not (tmp_path / "m").exists()
