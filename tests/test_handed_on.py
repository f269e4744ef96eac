"""Test that options, weights and seeds reach the functions that use them."""

from __future__ import annotations

from contextlib import closing
from math import inf

import numpy as np
import pytest
from commands import run_predict
from learning import gaussians, learn

from randsvm import SVC, load
from randsvm.arrays import to_dense
from randsvm.data.dataset import load as load_dataset
from randsvm.data.reading import ParseOptions
from randsvm.errors import ParameterError
from randsvm.parameters.run import Resources, Run
from randsvm.parameters.svm import Params
from randsvm.training.cross_validation import CrossValidation, fit_by_cross_validation
from randsvm.training.job import Job
from randsvm.training.probabilities import calibration_of, fit_sigmoid
from randsvm.training.run import LabelledData


def test_the_output_of_a_prediction_is_not_the_file_of_weights(tmp_path):
    path = gaussians(50).save(tmp_path / "d")
    learn("sgd", path, tmp_path / "m")
    weights = tmp_path / "w"
    weights.write_text("1\n" * 50)
    with pytest.raises(ParameterError, match="--row-weights"):
        run_predict("--row-weights", weights, path, tmp_path / "m", weights)
    assert weights.read_text() == "1\n" * 50


def test_the_bias_of_liblinear_is_multiplied_in(tmp_path):
    path = tmp_path / "m"
    path.write_text(
        "solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 2\nlabel 1 -1\nnr_feature 1\nbias 2\nw\n3\n0.5\n"
    )
    assert load(str(path)).decision_function([[10.0]]) == pytest.approx(3 * 10 + 2 * 0.5)


def test_random_state_is_the_seed_of_the_model(tmp_path):
    y, X = gaussians(60)
    for seed in 3, 7:
        SVC(random_state=seed).fit(X, y).model_.save(tmp_path / "m")
        assert f"\n# randsvm seed {seed}\n" in (tmp_path / "m").read_text()


def test_the_progressive_loss_of_an_update_counts_weights(tmp_path):
    """Rows of weight 0 and of little weight hardly count beside those that are all wrong."""
    path = gaussians(200).save(tmp_path / "d")
    learn("sgd", path, tmp_path / "m")
    old = load(str(tmp_path / "m"))
    X = np.array([[5.0, 5], [-5, -5]])
    labels = old.predict(X)
    lines = [f"{labels[i]:g} cost:{w} 1:{X[i, 0]} 2:{X[i, 1]}\n" for i, w in ((0, 1), (1, 1))]
    wrong = f"{labels[1]:g} cost:98 1:5 2:5\n"
    (tmp_path / "more").write_text(wrong + "".join(lines))
    found = learn("sgd", tmp_path / "more", tmp_path / "new", "--update", tmp_path / "m")
    (record,) = found.of("trained")
    assert record["progressive_errors"] >= 0.98


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

    def fit(D, params, seconds):
        return lambda X: to_dense(X).astype(float)

    with closing(load_dataset(str(path), ParseOptions("class", False), Resources(jobs=1))) as whole:
        D = LabelledData.of(whole, str(path), "svc").D
        params, first = Params(), D.labels() == 0
        found = fit_by_cross_validation(D, params, fit, calibration_of(params, True), Job(), inf)
        assert found["sigmoid"].ravel() == pytest.approx(fit_sigmoid(x, first, w), rel=1e-5)
        assert found["sigmoid"].ravel() != pytest.approx(fit_sigmoid(x, first), rel=1e-2)
        assigned = []
        for seed in 0, 0, 1:
            job = Job(run=Run(seed=seed))
            of = CrossValidation.of(D, 5, job)
            assigned.append(of.assigned[0].tolist())
    assert assigned[0] == assigned[1] != assigned[2]
