"""Test -s svr: epsilon-regression by every algorithm reaches the optimum of LIBSVM's -s 3 on all
rows.
"""

import re

import numpy as np
import oracle
import pytest
from learning import learn
from libsvm import svmutil
from scipy import sparse

from randsvm.errors import ParameterError


def noisy(rows, seed=0):
    """A wave with noise: y (m,), X (m, 2)."""
    rng = np.random.default_rng([seed, 11])
    X = oracle.as_float32(rng.uniform(-3, 3, (rows, 2)))
    return np.round(np.sin(X[:, 0]) + X[:, 1] + rng.normal(size=rows) * 0.3, 6), X


def test_scores_are_svm_predicts_lines(tmp_path, predict):
    y, X = noisy(400)
    path = oracle.write_rows(tmp_path / "data", y, X)
    learnt = learn("osuna", path, tmp_path / "m", "-s", "svr", "-g", 0.5)
    predicted = predict(path, learnt.model)
    _, (_, error, correlation), _ = svmutil.svm_predict(
        y, sparse.csr_matrix(X), svmutil.svm_load_model(str(learnt.model)), "-q"
    )
    found = re.fullmatch(
        r"Mean squared error = (\S+) \(regression\)\n"
        r"Squared correlation coefficient = (\S+) \(regression\)\n",
        predicted.out,
    )
    assert found
    assert float(found[1]) == pytest.approx(error, rel=1e-4)
    assert float(found[2]) == pytest.approx(correlation, rel=1e-4)


@pytest.mark.parametrize(("words", "size"), [("-t linear", 1.7e12), ("-t poly -g 1", 1e5)], ids=str)
def test_kernel_values_beyond_float32_are_an_error_of_one_line(tmp_path, words, size):
    """Unscaled milliseconds since 1970 are such features."""
    y, X = noisy(500)
    path = oracle.write_svmlight(tmp_path / "data", y, size * (1 + np.round(X) / 16))
    with pytest.raises(ParameterError, match="float32: scale the features"):
        learn("randsvm", path, tmp_path / "m", "-s", "svr", *words.split())


def test_large_kernel_values_are_no_error_with_a_small_c(tmp_path):
    """Rows times C are the same problem with C / size as these rows with C."""
    y, X = noisy(60)
    path = oracle.write_svmlight(tmp_path / "data", y, 1e16 * np.round(X, 3))
    learnt = learn("randsvm", path, tmp_path / "m", "-s", "svr", "-t", "linear", "-c", 1e-32)
    assert learnt.metadata["gap"] <= 1e-3
