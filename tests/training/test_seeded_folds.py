"""Test folds that start from a first fit against folds that are trained from nothing."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from learning import gaussians, learn
from scipy import stats
from task_sets import SETS

from randsvm.training import cross_validation

# ---- the final model ----------------------------------------------------------------------------

FINAL_SETS = {
    "two classes": (gaussians(800), ("-g", "0.05,0.5")),
    "three classes": (SETS["several"], ("-g", "0.05,0.5")),
    "tight gap": (gaussians(800), ("-g", "0.05,0.5", "--gap", 1e-6)),
    "regression": (SETS["svr"], ("-s", "svr", "-g", "0.05,0.5")),
}


@pytest.mark.parametrize("few_rows", [True, False])
@pytest.mark.parametrize("name", FINAL_SETS)
def test_the_final_training_starts_from_the_fit_of_the_search(tmp_path, set_sizes, name, few_rows):
    if not few_rows:
        set_sizes(few_rows=0)
    (y, X), words = FINAL_SETS[name]
    path = oracle.write_svmlight(tmp_path / "d", y, X)
    # With a gap for the search, few rows start from each other's fits as many rows do.
    own = "--sample-size", 60, "--search-gap", 0.01, *words
    found = learn("randsvm", path, tmp_path / "m", "-v", 3, "-c", "1,10,100", *own)
    best = found.of("searched")[0]["tried"][0]["values"]
    task = ("-s", "svr") if "-s" in words else ()
    gap = words[words.index("--gap") :] if "--gap" in words else ()
    chosen = "-c", best["C"], "-g", best["gamma"], "--sample-size", 60, *task, *gap
    cold = learn("randsvm", path, tmp_path / "cold", *chosen)
    (warm_end,), (cold_end,) = found.of("trained"), cold.of("trained")
    # The first round of a cold start has a working set alone, so that most coefficients change.
    assert warm_end["iterations"] < cold_end["iterations"]
    assert warm_end["gap"] <= warm_end["gap_asked"]
    wanted = max(warm_end["gap_asked"], 1e-5) * abs(cold_end["primal"])
    assert warm_end["primal"] == pytest.approx(cold_end["primal"], abs=wanted)
    assert warm_end["dual"] <= cold_end["primal"] * (1 + 1e-6)
    assert cold_end["dual"] <= warm_end["primal"] * (1 + 1e-6)


# ---- racing -------------------------------------------------------------------------------------

SEARCH = ("-v", 4, "-c", "0.01,1,100", "-g", "0.001,0.5,20")


def search(tmp_path, name, *words):
    """Return the `tried` records of a search for SEARCH on rows of two classes, best first.

    Searches of the same name have the same log.
    """
    path = tmp_path / "d"
    if not path.exists():
        gaussians(600).save(path)
    found = learn("randsvm", path, tmp_path / name, *SEARCH, *words)
    (searched,) = found.of("searched")
    return searched["tried"], found


def values_of(record):
    return tuple(record["values"].values())


def test_a_race_drops_significantly_worse_combinations_and_keeps_the_best(tmp_path):
    every, whole = search(tmp_path, "whole", "--no-racing")
    raced, found = search(tmp_path, "raced")
    assert all(one["dropped_after"] is None for one in every)
    kept = [one for one in raced if one["dropped_after"] is None]
    dropped = raced[len(kept) :]
    assert kept
    assert dropped
    scores = {values_of(one): one for one in every}
    for one in raced:
        folds = one["dropped_after"] or 4
        assert len(one["scores"]) == folds
        assert one["scores"] == scores[values_of(one)]["scores"][:folds]
    # A dropped combination is worse on all folds together, too.
    best = max(one["score"] for one in every)
    for one in dropped:
        assert scores[values_of(one)]["score"] < best
    assert kept[0]["score"] == best
    assert found.body == whole.body


def test_candidates_are_dropped_by_the_paired_test_of_scipy():
    rng = np.random.default_rng(3)
    m = 4000
    best = (rng.random(m) < 0.1).astype(np.float32)
    losses = {0: best}
    for index, share in enumerate([0.001, 0.005, 0.01, 0.02, 0.1], 1):
        losses[index] = np.where(rng.random(m) < share, 1, best).astype(np.float32)
    expected = [
        index
        for index, loss in losses.items()
        if index and stats.ttest_rel(loss, best, alternative="greater").pvalue < 0.01
    ]
    assert 0 < len(expected) < len(losses) - 1
    assert cross_validation.significantly_worse(losses, m) == expected
    # Repetitions do not make differences significant.
    twice = {index: np.tile(loss, 2) for index, loss in losses.items()}
    assert cross_validation.significantly_worse(twice, m) == expected
