"""Test what the tests of other LIBSVM packages expect on scikit-learn's iris: LIBSVM.jl (Julia) and
numo-libsvm (Ruby).

Only their numbers are here.
"""

from __future__ import annotations

import re

import numpy as np
import oracle
import pytest
from commands import run_train
from sklearn.datasets import load_iris

from randsvm import SVC

HALVES = {"train": slice(0, None, 2), "test": slice(1, None, 2), "all": slice(None)}


@pytest.fixture(scope="module")
def iris(tmp_path_factory):
    """Write every other row for training and for testing, and all rows; `scaled-..` has each
    feature in -1 .. 1, as LIBSVM's iris.scale.
    """
    X, y = load_iris(return_X_y=True)
    folder = tmp_path_factory.mktemp("iris")
    for prefix, values in (("", X), ("scaled-", 2 * (X - X.min(axis=0)) / np.ptp(X, axis=0) - 1)):
        for name, rows in HALVES.items():
            oracle.write_svmlight(folder / f"{prefix}{name}", y[rows] + 1, values[rows])
    return folder


TRUTH = np.repeat([1, 2, 3], 25)  # of test


# ---- LIBSVM.jl's runtests.jl --------------------------------------------------------------------


@pytest.mark.parametrize("command", ["randsvm", "osuna", "osuna-closest"])
def test_iris_has_the_errors_of_libsvm_jl(iris, tmp_path, predict, command):
    run_train(command, "-q", iris / "train", tmp_path / "m")
    said = predict(iris / "test", tmp_path / "m").scores
    assert (np.flatnonzero(said != TRUTH) + 1).tolist() == [42, 60, 62, 64, 67]


def test_decision_values_are_those_of_libsvm_jl(tmp_path, predict):
    X = np.array([[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1]], float)
    oracle.write_svmlight(tmp_path / "d", np.array([1, 1, 1, 2, 2, 2]), X)
    run_train("-q", "-t", 0, "--gap", 1e-9, tmp_path / "d", tmp_path / "m")
    scores = predict(tmp_path / "d", tmp_path / "m", "--scores").scores
    assert scores == pytest.approx([1.5, 1.0, 1.5, -1.0, -1.5, -1.5], abs=1e-4)


# ---- numo-libsvm's libsvm_spec.rb ---------------------------------------------------------------

SIGMOID = ("-t", 3, "-g", 0.1, "-r", 1, "-c", 10)


def accuracy_of(capsys):
    """Return the accuracy of the report and check the line that svm-train -v prints."""
    said = "".join(capsys.readouterr())
    found = re.search(r"Cross Validation Accuracy = ([0-9.]+)%", said)
    assert found
    return float(found[1]) / 100


def test_cross_validation_is_as_accurate_as_in_numo_libsvm(iris, tmp_path, capsys):
    run_train("-v", 5, *SIGMOID, iris / "scaled-all", tmp_path / "m")
    assert accuracy_of(capsys) == pytest.approx(0.95, abs=0.05)


def test_labels_and_probabilities_are_as_accurate_as_in_numo_libsvm(iris, tmp_path, predict):
    test, model = iris / "scaled-test", tmp_path / "m"
    run_train("-q", "-b", 1, *SIGMOID, iris / "scaled-train", model)
    assert {len(line.split()) for line in predict(test, model, "--scores").lines} == {3}
    assert np.mean(predict(test, model).scores == TRUTH) == pytest.approx(0.95, abs=0.05)
    header, *lines = [line.split() for line in predict(test, model, "-b", 1).lines]
    labels, p = np.array(header[1:], int), np.array([line[1:] for line in lines], float)
    assert p.shape == (75, 3)
    assert np.mean(labels[p.argmax(axis=1)] == TRUTH) == pytest.approx(0.95, abs=0.05)


# ---- scikit-learn's test_libsvm_iris ------------------------------------------------------------


def test_cross_validation_and_linear_on_iris_reach_scikit_learns_thresholds(iris, tmp_path, capsys):
    run_train("-v", 5, "-t", 0, iris / "all", tmp_path / "m")
    assert accuracy_of(capsys) > 0.95
    X, y = load_iris(return_X_y=True)
    assert SVC(kernel="linear").fit(X, y).score(X, y) > 0.98
