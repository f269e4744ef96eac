"""osuna and osuna-closest: one start, two choices of violators, LIBSVM's optimum in the end."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import oracle
import pytest
from learning import Data, answer_of, board, gaussians, kernel, learn, optimum, two_classes

from randsvm.algorithms import osuna
from randsvm.data import dataset
from randsvm.data.dataset import ParseOptions
from randsvm.data.sampling import Draws
from randsvm.parameters.rounds import OsunaParams
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Params
from randsvm.svm.scan import cold_start
from randsvm.svm.solution import SV

BOTH = ("osuna", "osuna-closest")
WORDS = "-t 2 -g 5"
START = ("working_set", "bound", "support_vectors", "bounded", "violators", "primal", "dual")


def test_both_start_from_the_same_working_set(tmp_path):
    path = board(2000).save(tmp_path / "data")
    words = ("-g", 5, "--working-set", 300, "--max-iterations", 2)
    first, second = {}, {}
    for algorithm in BOTH:
        for seed in (0, 1):
            learnt = learn(algorithm, path, tmp_path / "m", *words, "--seed", seed)
            of_round = [[event[name] for name in START] for event in learnt.rounds]
            first[algorithm, seed], second[algorithm, seed] = of_round
    for seed in (0, 1):
        assert first["osuna", seed] == first["osuna-closest", seed]
        assert second["osuna", seed] != second["osuna-closest", seed]
    assert first["osuna", 0] != first["osuna", 1]


@pytest.mark.parametrize("algorithm", BOTH)
def test_a_working_set_below_the_support_vectors_ends_at_libsvms_optimum(tmp_path, algorithm):
    data, whole = board(2000), optimum("board", 2000, WORDS)
    path = data.save(tmp_path / "data")
    learnt = learn(algorithm, path, tmp_path / "m", *WORDS.split(), "--working-set", 250)
    found = answer_of(learnt.model, data, WORDS)
    assert (learnt.facts["stopped"], learnt.facts["violators"]) == ("no violators", "0")
    assert whole.unbounded < 250 < 3 * 250 < np.count_nonzero(whole.beta)
    assert max(event["working_set"] for event in learnt.rounds) == 250
    assert max(event["bound"] for event in learnt.rounds) > 500
    assert max(abs(found.primal - whole.dual), abs(found.dual - whole.dual)) <= 1e-3 * whole.dual
    assert np.count_nonzero((found.f > 0) != (whole.f > 0)) <= 4
    assert not oracle.violating(data.y, found.f, found.beta, 1.0, 1.1e-3).any()


@pytest.mark.parametrize("algorithm", BOTH)
def test_a_size_left_open_grows_to_twice_the_unbounded_support_vectors(
    tmp_path, monkeypatch, algorithm
):
    assert OsunaParams.SMALLEST == 2000
    monkeypatch.setattr(OsunaParams, "SMALLEST", 100)
    path = board(2000).save(tmp_path / "data")
    learnt = learn(algorithm, path, tmp_path / "m", "-g", 5)
    unbounded = [event["support_vectors"] - event["bounded"] for event in learnt.rounds]
    assert learnt.facts["stopped"] == "no violators"
    assert learnt.rounds[0]["working_set"] == 100
    assert any(event["bound"] for event in learnt.rounds)
    # The size follows from what was known before the solve; pairs are frozen.
    for event, known in zip(learnt.rounds[1:], unbounded, strict=False):
        assert event["working_set"] >= 2 * known - 1 or event["bound"] == 0
    assert 2 * unbounded[-1] > 100
    assert learnt.notices == []


@pytest.mark.parametrize("algorithm", BOTH)
def test_a_size_that_is_too_small_is_raised_said_once_and_still_ends_exact(tmp_path, algorithm):
    data, words = gaussians(1000), "-t 2 -g 20"
    whole = optimum("gaussians", 1000, words)
    path = data.save(tmp_path / "data")
    learnt = learn(algorithm, path, tmp_path / "m", *words.split(), "--working-set", 100)
    found = answer_of(learnt.model, data, words)
    assert whole.unbounded > 300
    assert ["raised" in text for text in learnt.notices] == [True]
    assert "a working set of 100 rows" in learnt.notices[0]
    assert learnt.facts["stopped"] == "no violators"
    assert abs(found.dual - whole.dual) <= 1e-3 * whole.dual


@pytest.mark.parametrize("algorithm", BOTH)
def test_fewer_swaps_are_more_rounds_in_a_working_set_of_the_same_size(tmp_path, algorithm):
    data, words = gaussians(600), "-t 2 -g 1"
    whole = optimum("gaussians", 600, words)
    path, rounds = data.save(tmp_path / "data"), []
    for swap in (1, 10, None):
        extra = () if swap is None else ("--swap", swap)
        learnt = learn(
            algorithm, path, tmp_path / "m", *words.split(), "--working-set", 140, *extra
        )
        # Support vectors are frozen in pairs: a working set may be one row short.
        assert {event["working_set"] for event in learnt.rounds} <= {139, 140}
        assert learnt.facts["stopped"] == "no violators"
        assert abs(float(learnt.facts["primal"]) - whole.dual) <= 1e-3 * whole.dual
        rounds.append(len(learnt.rounds))
    assert rounds[0] > rounds[1] > rounds[2]


# ---- which violators ------------------------------------------------------------------------


def entrants(data: Data, path, decompose, swap: int):
    """Per round: numbers of the violating rows by dense formulas, y f, and the rows swapped in."""
    y, X = data
    params = Params(gamma=1.0, freeze=True)
    seen: list[SV] = []
    sets: list[np.ndarray] = []
    plain = osuna.svmlearn

    def watched(B, params, bound=None):
        sets.append(B.rows)
        return plain(B, params, bound)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(osuna, "svmlearn", watched)
        with closing(dataset.load(str(path), ParseOptions(), Resources(jobs=2))) as whole:
            D = two_classes(whole)
            decompose(
                D,
                80,
                lambda SV, V: len(seen) > 5,
                params,
                Draws(0),
                lambda SV, V: seen.append(SV),
                cold_start,
                swap,
            )
    for solution, before, after in zip(seen, sets, sets[1:], strict=False):
        beta = np.zeros(len(y))
        beta[solution.points.rows] = solution.beta
        f = kernel("-t 2 -g 1", X, X[solution.points.rows]) @ solution.beta + solution.b
        wrong = oracle.violating(y, f, beta, 1.0, params.tolerance)
        wrong[before] = False
        shortfall = np.where(beta == 0, 1 - y * f, y * f - 1)
        yield np.flatnonzero(wrong), shortfall, np.setdiff1d(after, before)


@pytest.mark.parametrize("swap", [1, 8])
def test_osuna_swaps_in_the_first_violators(tmp_path, swap):
    data = gaussians(600)
    rounds = list(entrants(data, data.save(tmp_path / "data"), osuna.osuna, swap))
    assert len(rounds) >= 4
    for wrong, _, entered in rounds:
        assert entered.tolist() == wrong[: len(entered)].tolist()
        assert len(entered) == min(swap, len(wrong))


@pytest.mark.parametrize("swap", [1, 8])
def test_osuna_closest_swaps_in_the_largest_violations(tmp_path, swap):
    data = gaussians(600)
    rounds = list(entrants(data, data.save(tmp_path / "data"), osuna.osuna_closest, swap))
    assert len(rounds) >= 4
    for wrong, shortfall, entered in rounds:
        largest = wrong[np.argsort(-shortfall[wrong], kind="stable")]
        assert sorted(entered) == sorted(largest[: len(entered)])
        assert len(entered) == min(swap, len(wrong))


# ---- other kernels, real data ---------------------------------------------------------------


@pytest.mark.parametrize("algorithm", BOTH)
def test_a_kernel_that_is_not_semidefinite_ends_without_a_certificate(tmp_path, algorithm):
    path = gaussians(900).save(tmp_path / "data")
    words = ("-t", "sigmoid", "-g", 0.5, "-r", -1, "--working-set", 300)
    learnt = learn(algorithm, path, tmp_path / "m", *words, "--max-iterations", 100)
    assert learnt.facts["stopped"] in ("no violators", "no progress")
    assert learnt.facts["gap"] == "nan"
    assert all(event["gap"] is None for event in [*learnt.rounds, learnt.outcome])
    oracle.read_model(learnt.model, 2)


def test_magic_comes_out_at_libsvms_optimum(real, tmp_path):
    """5414.8247: LIBSVM's own objective on all 15,216 rows at -c 1 -g 0.1."""
    words = ("-c", 1, "-g", 0.1, "--gap", 0.001, "--working-set", 2000)
    learnt = learn("osuna", real("magic04.train"), tmp_path / "m", *words)
    assert learnt.facts["stopped"] == "gap <= 0.001"
    assert float(learnt.facts["gap"]) <= 0.001
    assert learnt.outcome["support_vectors"] > 2000
    assert abs(float(learnt.facts["primal"]) - 5414.8247) <= 0.002 * 5414.8247
    assert float(learnt.facts["dual"]) <= 5414.8247 * (1 + 1e-6)
