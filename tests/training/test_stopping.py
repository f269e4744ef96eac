"""Test what ends a run besides its solution, and that the best solution so far is kept."""

import json
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import exact_judge
import numpy as np
import oracle
import pytest
from commands import run_train
from learning import board, kernel, learn, read_log
from solving import Certificate, sampling, scan
from trainings import History, Stopped, StopReason, TimeLimitError, open_rounds, trained

from randsvm.errors import Interrupted
from randsvm.events import Waiting, emit, listening

WORDS = "-t 2 -g 5"


# ---- whole runs -----------------------------------------------------------------------------

ENDLESS = ("osuna", *WORDS.split(), "--working-set", 300, "--swap", 1)


def assert_certificate(path, model):
    verdict = exact_judge.judge(path, model, oracle.trailer(model), "svc", C=1)
    assert not verdict.wrong


def test_a_sampled_certificate_is_said_everywhere_and_holds(tmp_path, set_sizes, capsys):
    """The sample is drawn with the seed, whatever the number of threads."""
    set_sizes(float64_rows=0, few_loose=0, drawn_share=1e9)
    path, options = board(1500).save(tmp_path / "data"), ("-g", 20, "--gap", 0.0005)
    learnt = learn("randsvm", path, tmp_path / "m", *options)
    said = learnt.metadata["certificate"], learnt.outcome["certificate"]
    assert said == ("sampled", "sampled")
    assert learnt.outcome["gap"] <= 0.0005
    assert_certificate(path, learnt.model)
    run_train(*options, "--jobs", 1, path, tmp_path / "again")
    assert "the gap holds with a probability of at least 1 - 1e-9" in capsys.readouterr().err
    assert oracle.trailer(tmp_path / "again") == learnt.metadata


def test_the_rows_of_a_sample_are_drawn_independently_of_the_folds(
    tmp_path, set_sizes, monkeypatch
):
    """The proof takes the random numbers of the sample to be independent of C, which they chose."""
    set_sizes(float64_rows=0, few_loose=0, drawn_share=1e9)
    drawn, sampled = [], []
    words, sharpened = sampling.philox_words, scan.Sharpened

    def recorded(key, *others):
        drawn.append(key[1])
        return words(key, *others)

    def asked(*arguments):
        draw = next(each for each in arguments if isinstance(each, sampling.Draw))
        sampled.append((draw.number, set(drawn)))
        return sharpened(*arguments)

    monkeypatch.setattr(sampling, "philox_words", recorded)
    monkeypatch.setattr(scan, "Sharpened", asked)
    path = board(1500).save(tmp_path / "data")
    search = ("-g", 20, "-c", "1,2", "-v", 3, "--subset", 1000, "--jobs", 1)
    learnt = learn("randsvm", path, tmp_path / "m", *search, "--gap", 0.0005)
    assert learnt.metadata["certificate"] == "sampled"
    assert sampled
    assert all(number not in before for number, before in sampled)


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna", "osuna-closest"])
@pytest.mark.parametrize("most", [1, 4])
def test_max_iterations_limits_the_rounds(tmp_path, algorithm, most):
    path = board(2000).save(tmp_path / "data")
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
    assert_certificate(path, learnt.model)


@pytest.mark.parametrize("limit", ["2s", "0.03m"])
def test_a_time_limit_exits_with_0_and_is_reported_everywhere(command, tmp_path, limit):
    """Without a limit this run takes hours."""
    path = board(5000).save(tmp_path / "data")
    words = ("--time-limit", limit, "--log", "log", "--report", "json")
    ended = command("train", *ENDLESS, *words, path, "m")
    summary, metadata = json.loads(ended.stdout), oracle.trailer(tmp_path / "m")
    assert ended.returncode == 0
    assert (metadata["stopped"], summary["stopped"]) == ("time limit", "time limit")
    assert "stopped: time limit" in ended.stderr
    log = read_log(tmp_path / "log")
    assert log[-1]["stopped"] == "time limit"
    assert "iteration" in [event["event"] for event in log]
    assert_certificate(path, tmp_path / "m")


def test_the_best_has_the_lowest_primal_and_the_highest_dual_of_any_round():
    best = History()
    solutions = [SimpleNamespace() for _ in range(4)]
    rounds = [(9.0, 1.0), (5.0, 2.0), (7.0, 4.0), (6.0, 3.0)]
    for solution, (primal, dual) in zip(solutions, rounds, strict=True):
        best.add_solution(solution, Certificate(primal, dual, True))
    assert best.solution is solutions[1]
    assert (best.primal, best.dual) == (5.0, 4.0)


@pytest.mark.parametrize("reason", [StopReason.TIME_LIMIT, StopReason.ITERATION_LIMIT])
def test_no_sums_in_float64_follow_a_limit(tmp_path, set_sizes, monkeypatch, reason):
    """Even if the bounds of float32, all there was time for, are larger than P and D."""
    set_sizes(float64_rows=0)
    with open_rounds(board(500).save(tmp_path / "data"), gamma=5.0) as rounds:
        solved = rounds.solve(inf)
        *_, (SV, V) = rounds.scan.evaluations(solved.SV)
        V = replace(V, certificate=Certificate(1.0, 0.5, primal_error=9.0, dual_error=9.0))
        monkeypatch.setattr(rounds.scan, "evaluations", lambda *_: [(SV, V)])
        found = rounds.with_evaluation(replace(solved, stopped=Stopped(reason)))
        assert found.stopped == Stopped(reason)
        assert not rounds.prepare_to_continue(found)
        assert rounds.scan.kernel_layout.dtype is np.float32


@pytest.mark.parametrize("error", [TimeLimitError, MemoryError])
def test_an_interrupted_run_ends_with_the_scanned_offset_without_support_vectors(
    tmp_path, monkeypatch, error
):
    """Of the solution over an inner set, that over all rows has another offset.

    What ended the run may come again in the evaluation, such as a lack of memory.
    """
    with open_rounds(board(500).save(tmp_path / "data"), gamma=5.0) as rounds:
        SV, _ = rounds.scan.examine(rounds.solve(inf).SV)
        empty = replace(SV, rows=SV.rows[:0], beta=SV.beta[:0], b=7.0, points=None)
        rounds.history, rounds.inner_solution = History(), empty

        # The scan ends, and the evaluation does not.
        def failing(*_):
            raise error

        monkeypatch.setattr(rounds.scan, "evaluations", failing)
        found = rounds.interrupted(Stopped(StopReason.INTERRUPTED, ("",)))
        assert len(found.SV) == 0
        assert -1 <= found.SV.b <= 1


def test_a_signal_during_the_closing_evaluation_keeps_what_it_has_proven(
    tmp_path, set_sizes, monkeypatch
):
    """Without time for another evaluation."""
    set_sizes(interrupted_seconds=0.0)
    data = board(500)
    with open_rounds(data.save(tmp_path / "data"), gamma=5.0) as rounds:
        solved, evaluations = rounds.solve(inf), rounds.scan.evaluations

        def interrupted(*args):
            yield next(evaluations(*args))
            raise Interrupted(15)

        monkeypatch.setattr(rounds.scan, "evaluations", interrupted)
        with pytest.raises(Interrupted):
            rounds.with_evaluation(solved)
        found = rounds.interrupted(Stopped(StopReason.INTERRUPTED, ("",)))
        assert found.evaluated
        assert found.stopped.reason is StopReason.INTERRUPTED
        SV, proven = found.SV, found.certificate
        u = kernel(WORDS, data.X, data.X[SV.rows]) @ SV.beta
        exact = oracle.objectives(data.y, u, SV.dense(500), SV.b, 1.0)
        assert abs(proven.primal - exact.primal) <= proven.primal_error + 1e-12 * exact.primal
        assert abs(proven.dual - exact.dual) <= proven.dual_error + 1e-12 * exact.primal


def test_a_time_limit_keeps_the_certificate_that_rounds_continue_from(tmp_path, monkeypatch):
    """Without time to evaluate the solution of the rounds since then, or where LIBSVM holds the
    thread of the rounds."""
    with open_rounds(board(500).save(tmp_path / "data"), gamma=5.0) as rounds:
        solved, stopped = rounds.solve(inf), Stopped(StopReason.TIME_LIMIT)
        assert not rounds.known(stopped).certificate.certified
        first = rounds.with_evaluation(solved)
        assert first.evaluated
        assert rounds.known(stopped) == replace(first, stopped=stopped)

        def late(*_):
            raise TimeLimitError

        monkeypatch.setattr(rounds.scan, "evaluations", late)
        found = rounds.with_evaluation(replace(solved, stopped=stopped))
        assert found == replace(first, stopped=stopped)


def test_sums_in_float64_after_a_missed_gap_have_a_deadline(tmp_path, set_sizes, monkeypatch):
    set_sizes(float64_rows=0)
    with open_rounds(board(500).save(tmp_path / "data"), gamma=5.0) as rounds:
        evaluations = rounds.scan.evaluations

        def wide(*args):
            """The bounds of float32 are larger than P and D."""
            for SV, V in evaluations(*args):
                bounds = Certificate(1.0, 0.5, primal_error=9.0, dual_error=9.0)
                yield SV, replace(V, certificate=bounds)

        def slow():
            rounds.share_end = 0.0
            emit(Waiting())
            raise AssertionError("not interrupted")

        monkeypatch.setattr(rounds.scan, "evaluations", wide)
        monkeypatch.setattr(rounds.scan, "refine", slow)
        with listening(rounds.clock):
            found = trained(rounds)
        assert found.stopped == Stopped(StopReason.TIME_LIMIT)
        assert found.evaluated
