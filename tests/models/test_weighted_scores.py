"""Test that a row of weight w counts in scores and probabilities as w equal rows."""

import numpy as np
import pytest
from commands import run_train
from model_files import density_marks, fit_pair_sigmoids, fit_sigmoids, laplace_scale

from randsvm import predict
from randsvm.parameters.run import PredictParams

RNG = np.random.default_rng(3)
N = 200
WEIGHTS = RNG.integers(0, 4, N).astype(float)
REPEATED = np.repeat(np.arange(N), WEIGHTS.astype(int))


def test_weighted_sigmoids_are_those_of_repeated_rows():
    f, y = RNG.normal(size=N), RNG.integers(0, 3, N)
    columns = np.column_stack([f + (y == 1), RNG.normal(size=N), f])
    for fit, values in (
        (fit_sigmoids, columns),
        (fit_pair_sigmoids, columns[:, :2]),
    ):
        expected = fit(values[REPEATED], y[REPEATED], np.ones(len(REPEATED)))
        assert fit(values, y, WEIGHTS) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_a_weighted_laplace_scale_is_that_of_repeated_rows():
    z = np.append(RNG.laplace(size=N - 1), 40.0)
    expected = laplace_scale(z[REPEATED], np.ones(len(REPEATED)))
    assert laplace_scale(z, WEIGHTS) == pytest.approx(expected)


def test_weighted_density_marks_are_those_of_repeated_rows():
    # Either side of 0 has a total weight that five bins divide.
    f = np.concatenate([-1 - RNG.random(10), 1 + RNG.random(10)])
    weights = np.tile([1.0, 3.0, 2.0, 1.0, 3.0], 4)
    rows = np.repeat(np.arange(20), weights.astype(int))
    expected = density_marks(f[rows])
    assert density_marks(f, weights) == pytest.approx(expected)
    assert density_marks(f, np.ones(20)) == pytest.approx(density_marks(f))


def test_each_row_of_a_long_file_counts_as_its_own_weight(tmp_path):
    """A prediction works on 1,024 rows at once."""
    (tmp_path / "d").write_text("+1 1:1\n-1 1:-1\n" * 20)
    run_train("-q", tmp_path / "d", tmp_path / "m")
    (tmp_path / "t").write_text("+1 1:1\n" * 1500 + "-1 1:1\n" * 1500)
    (tmp_path / "w").write_text("2\n" * 1500 + "6\n" * 1500)
    params = PredictParams(row_weights=str(tmp_path / "w"))
    found = predict(tmp_path / "t", tmp_path / "m", tmp_path / "out", params=params)
    assert found.accuracy == 25
