"""Test repeated folds, and folds in the order of time, against scikit-learn's."""

from typing import Any

import numpy as np
import pytest
from learning import gaussians, learn
from sklearn.model_selection import TimeSeriesSplit
from trainings import (
    folds_of,
    forward_folds,
    open_task,
    splits_of,
    subset_of,
)

# ---- repetitions --------------------------------------------------------------------------------


def test_each_repetition_spreads_the_rows_over_other_folds(tmp_path):
    path = gaussians(203).save(tmp_path / "d")
    y = gaussians(203).y
    with open_task(path) as D:
        splits = splits_of(D, folds="5x3")
        first, second, _ = folds_of(D, folds="5x3")
        (once,) = folds_of(D, folds=5)
    assert len(splits) == 15
    for repetition in range(3):
        held = np.array([held for _, held in splits[5 * repetition :][:5]])
        assert (held.sum(axis=0) == 1).all()
        for label in (-1, 1):
            assert np.ptp(held[:, y == label].sum(axis=1)) <= 1
    assert all((training == ~held).all() for training, held in splits)
    assert 0.1 < np.mean(first == second) < 0.3
    assert (first == once).all()


@pytest.mark.parametrize("words", [(), ("--search-gap", 1e-4), ("--no-racing",)])
def test_the_first_repetition_has_the_scores_of_a_single_one(tmp_path, words):
    path = gaussians(200).save(tmp_path / "d")
    own = ("-g", 0.1, "--sample-size", 50, *words)
    (once,) = learn("randsvm", path, tmp_path / "once", "-v", 4, *own).of("tried")
    found = learn("randsvm", path, tmp_path / "m", "-v", "4x3", *own)
    (thrice,) = found.of("tried")
    assert thrice["scores"][:4] == once["scores"]
    assert len(thrice["scores"]) == 12
    assert thrice["mean"] == pytest.approx(float(np.mean(thrice["scores"])))
    parts = np.reshape(thrice["scores"], (3, 4))
    error = np.sqrt(parts.var(axis=1, ddof=1).mean() / 4)
    assert thrice["standard_error"] == pytest.approx(float(error))
    assert " -v 4x3" in found.metadata["configuration"]


# ---- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "folds"), [(20, 3), (21, 3), (100, 7), (6, 5)])
def test_forward_folds_are_those_of_scikit_learn(n, folds):
    fold = forward_folds(n, folds)
    splits = TimeSeriesSplit(folds).split(np.zeros((n, 1)))
    for number, (training, held_out) in enumerate(splits):
        assert np.flatnonzero(fold == number).tolist() == held_out.tolist()
        assert np.flatnonzero(fold < number).tolist() == training.tolist()


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["search", "subset"])
def test_the_seed_chooses_the_held_out_rows(tmp_path, kind):
    path, found = gaussians(203).save(tmp_path / "d"), list[Any]()
    for seed in (0, 0, 1):
        with open_task(path) as D:
            if kind == "subset":
                found.append(subset_of(D, 100, seed).points(np.arange(100)).X.data)
            else:
                found.append(folds_of(D, seed, folds=5)[0])
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()


def test_small_classes_begin_in_different_folds(tmp_path):
    """Seven classes of two rows each fill five folds with three or two rows."""
    path = tmp_path / "d"
    path.write_text("".join(f"{label} 1:{row}\n" for label in range(7) for row in range(2)))
    with open_task(path) as D:
        (fold,) = folds_of(D, folds=5)
    assert sorted(np.bincount(fold, minlength=5)) == [2, 3, 3, 3, 3]
