"""Test that options, weights and seeds reach the functions that use them."""

from __future__ import annotations

import numpy as np
import pytest
from commands import run_predict
from learning import gaussians, learn
from trainings import cross_fitted_sigmoid, fit_sigmoid, folds_of_probabilities, open_task

from randsvm import SVC
from randsvm.errors import ParameterError


def test_the_output_of_a_prediction_is_not_the_file_of_weights(tmp_path):
    path = gaussians(50).save(tmp_path / "d")
    learn("sgd", path, tmp_path / "m")
    weights = tmp_path / "w"
    weights.write_text("1\n" * 50)
    with pytest.raises(ParameterError, match="--row-weights"):
        run_predict("--row-weights", weights, path, tmp_path / "m", weights)
    assert weights.read_text() == "1\n" * 50


def test_random_state_is_the_seed_of_the_model(tmp_path):
    y, X = gaussians(60)
    for seed in 3, 7:
        SVC(random_state=seed).fit(X, y).model_.save(tmp_path / "m")
        assert f"\n# randsvm seed {seed}\n" in (tmp_path / "m").read_text()


def weighted_rows(tmp_path):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=200).round(3), rng.integers(1, 30, 200).astype(float)
    y = np.where(x + rng.normal(size=200) > 0, 1, -1)
    path = tmp_path / "d"
    lines = [f"{y[i]} cost:{w[i]:g} 1:{x[i]}\n" for i in range(200)]
    path.write_text("".join(lines))
    return path, x, y, w


def test_weights_and_the_seed_reach_the_folds_of_probabilities(tmp_path):
    path, x, _, w = weighted_rows(tmp_path)
    with open_task(path) as D:
        first = D.labels() == 0
        found = cross_fitted_sigmoid(D, lambda X: X.toarray().astype(float))
        assert found == pytest.approx(fit_sigmoid(x, first, w), rel=1e-5)
        assert found != pytest.approx(fit_sigmoid(x, first), rel=1e-2)
        assigned = [folds_of_probabilities(D, seed).tolist() for seed in (0, 0, 1)]
    assert assigned[0] == assigned[1] != assigned[2]
