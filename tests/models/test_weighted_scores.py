"""Test that a row of weight w counts in scores and probabilities as w equal rows."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest
from commands import run_train
from sklearn import metrics as reference

from randsvm.models.metrics import Accuracy, ConfusionMatrix, Metric, RegressionErrors
from randsvm.models.prediction import predict
from randsvm.parameters.run import PredictParams
from randsvm.training import probabilities

M = TypeVar("M", bound=Metric)

RNG = np.random.default_rng(3)
N = 200
WEIGHTS = RNG.integers(0, 4, N).astype(float)
REPEATED = np.repeat(np.arange(N), WEIGHTS.astype(int))


def counted(kind, y, f, weights):
    """Return the sum of two metrics, each of a part of the rows."""
    parts = kind(), kind()
    for metric, part in zip(parts, (slice(70), slice(70, None)), strict=True):
        metric.add(y[part], f[part], weights=None if weights is None else weights[part])
    return parts[0] + parts[1]


def test_a_weighted_accuracy_is_that_of_repeated_rows():
    y, f = RNG.integers(0, 2, N).astype(float), RNG.normal(size=N)
    weighted = counted(Accuracy, y, f, WEIGHTS)
    assert weighted.score == pytest.approx(counted(Accuracy, y[REPEATED], f[REPEATED], None).score)
    right = (f <= 0) == (y == 1)
    assert weighted.score == pytest.approx(100 * np.average(right, weights=WEIGHTS))
    assert (weighted.rows, weighted.correct) == (N, right.sum())


def test_weighted_errors_of_a_regression_are_those_of_scikit_learn_and_repeated_rows():
    y, f = RNG.normal(size=N) + 100, RNG.normal(size=N) + 100
    found = counted(RegressionErrors, y, f, WEIGHTS)
    repeated = counted(RegressionErrors, y[REPEATED], f[REPEATED], None)
    assert found.score == pytest.approx(reference.mean_squared_error(y, f, sample_weight=WEIGHTS))
    assert found.mean_absolute_error == pytest.approx(
        reference.mean_absolute_error(y, f, sample_weight=WEIGHTS)
    )
    assert found.r_squared == pytest.approx(reference.r2_score(y, f, sample_weight=WEIGHTS))
    assert found.squared_correlation == pytest.approx(repeated.squared_correlation)


def test_weighted_scores_of_classes_are_those_of_scikit_learn():
    y, f = RNG.integers(0, 2, N).astype(float), RNG.integers(-9, 9, N) / 4
    matrix = ConfusionMatrix(2)
    for part in (slice(70), slice(70, None)):
        matrix.add(y[part], f[part], weights=WEIGHTS[part])
    predicted = (f <= 0).astype(int)
    found = matrix.metrics(["a", "b"])
    expected = reference.precision_recall_fscore_support(y, predicted, sample_weight=WEIGHTS)
    for index, one in enumerate(found.classes):
        for name, values in zip(("precision", "recall", "f1"), expected, strict=False):
            assert getattr(one, name) == pytest.approx(values[index])
    assert found.auc == pytest.approx(reference.roc_auc_score(y == 0, f, sample_weight=WEIGHTS))
    assert found.confusion == reference.confusion_matrix(y, predicted).tolist()


def test_weighted_sigmoids_are_those_of_repeated_rows():
    f, y = RNG.normal(size=N), RNG.integers(0, 3, N)
    columns = np.column_stack([f + (y == 1), RNG.normal(size=N), f])
    for fit, values in (
        (probabilities.fit_sigmoids, columns),
        (probabilities.fit_pair_sigmoids, columns[:, :2]),
    ):
        expected = fit(values[REPEATED], y[REPEATED])
        assert fit(values, y, WEIGHTS) == pytest.approx(expected, rel=1e-3, abs=1e-4)
        assert fit(values, y, np.ones(N)) == pytest.approx(fit(values, y), rel=1e-9)


def test_a_weighted_laplace_scale_is_that_of_repeated_rows():
    z = np.append(RNG.laplace(size=N - 1), 40.0)
    assert probabilities.laplace_scale(z, WEIGHTS) == pytest.approx(
        probabilities.laplace_scale(z[REPEATED])
    )


def test_weighted_density_marks_are_those_of_repeated_rows():
    # Either side of 0 has a total weight that five bins divide.
    f = np.concatenate([-1 - RNG.random(10), 1 + RNG.random(10)])
    weights = np.tile([1.0, 3.0, 2.0, 1.0, 3.0], 4)
    rows = np.repeat(np.arange(20), weights.astype(int))
    expected = probabilities.density_marks(f[rows])
    assert expected is not None
    assert probabilities.density_marks(f, weights) == pytest.approx(expected)
    assert probabilities.density_marks(f, np.ones(20)) == pytest.approx(
        probabilities.density_marks(f)
    )


def test_each_row_of_a_long_file_counts_as_its_own_weight(tmp_path):
    """A prediction works on 1,024 rows at once."""
    (tmp_path / "d").write_text("+1 1:1\n-1 1:-1\n" * 20)
    run_train("-q", tmp_path / "d", tmp_path / "m")
    (tmp_path / "t").write_text("+1 1:1\n" * 1500 + "-1 1:1\n" * 1500)
    (tmp_path / "w").write_text("2\n" * 1500 + "6\n" * 1500)
    params = PredictParams(row_weights=str(tmp_path / "w"))
    found = predict(tmp_path / "t", tmp_path / "m", tmp_path / "out", params=params)
    assert found.accuracy == 25
