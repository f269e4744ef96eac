"""Test races of combinations against searches of all folds, and against scipy's paired test."""

import json

import numpy as np
import pytest
from learning import gaussians, learn
from scipy import stats
from trainings import significantly_worse

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


# Fits start from others where a working set has fewer rows than a fold.
@pytest.mark.parametrize("words", [(), ("--sample-size", 100, "--gap", 1e-6, "--search-gap", 1e-6)])
def test_a_race_drops_significantly_worse_combinations_and_keeps_the_best(words, tmp_path):
    every, whole = search(tmp_path, "whole", "--no-racing", *words)
    raced, found = search(tmp_path, "raced", *words)
    assert all(one["dropped_after"] is None for one in every)
    kept = [one for one in raced if one["dropped_after"] is None]
    dropped = raced[len(kept) :]
    assert kept
    assert dropped
    scores = {values_of(one): one for one in every}
    for one in raced:
        folds = one["dropped_after"] or 4
        assert len(one["scores"]) == folds
        # Those that lose the first fold need not be solved to the gap of the search.
        if folds > 1 or not words:
            assert one["scores"] == scores[values_of(one)]["scores"][:folds]
    # A dropped combination is worse on all folds together, too.
    best = max(one["score"] for one in every)
    for one in dropped:
        assert scores[values_of(one)]["score"] < best
    assert kept[0]["score"] == best
    assert found.body == whole.body


def test_a_combination_that_its_log_lacks_races_alone_with_the_same_score_of_each_fold(tmp_path):
    raced, _ = search(tmp_path, "raced")
    log, missing = tmp_path / "raced.jsonl", raced[-1]
    lines = log.read_text().splitlines(keepends=True)
    own = json.dumps(missing["configuration"])
    log.write_text("".join(line for line in lines if own not in line))
    again, _ = search(tmp_path, "raced")
    (one,) = (one for one in again if one["configuration"] == missing["configuration"])
    assert missing["dropped_after"] < len(one["scores"]) == 4
    assert one["scores"][: missing["dropped_after"]] == missing["scores"]
    others = [other["scores"] for other in again if other is not one]
    assert sorted(others) == sorted(other["scores"] for other in raced[:-1])


def test_candidates_are_dropped_by_the_paired_test_of_scipy():
    rng = np.random.default_rng(3)
    m = 4000
    best = (rng.random(m) < 0.1).astype(np.float32)
    losses = [best]
    for share in 0.001, 0.005, 0.01, 0.02, 0.1:
        losses.append(np.where(rng.random(m) < share, 1, best).astype(np.float32))
    expected = [
        index
        for index, loss in enumerate(losses)
        if index and stats.ttest_rel(loss, best, alternative="greater").pvalue < 0.01
    ]
    assert 0 < len(expected) < len(losses) - 1
    assert significantly_worse(losses, m) == expected
    # Repetitions do not make differences significant.
    twice = [np.tile(loss, 2) for loss in losses]
    assert significantly_worse(twice, m) == expected
