"""Test that options, weights and seeds reach the functions that use them."""

import pytest
from commands import run_predict
from learning import gaussians, learn

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
