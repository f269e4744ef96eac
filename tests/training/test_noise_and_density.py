"""Test -b 1 of regressions and of novelty detection against LIBSVM's numbers and rules."""

import numpy as np
import oracle
import pytest
from learning import learn
from libsvm import svmutil
from model_files import load_model
from scipy import sparse


def curve(rows):
    """Return a parabola with Laplace noise of scale 0.3; one target in 50 is an outlier."""
    rng = np.random.default_rng(rows)
    X = oracle.as_float32(rng.normal(size=(rows, 2)))
    far = np.where(np.arange(rows) % 50 == 0, 40.0, 0.0)
    return X[:, 0] ** 2 + X[:, 1] + rng.laplace(scale=0.3, size=rows) + far, X


def cloud(rows):
    return oracle.as_float32(np.random.default_rng(rows).normal(size=(rows, 2)))


def train_with_libsvm(y, X, words):
    problem = svmutil.svm_problem(y, sparse.csr_matrix(X))
    return svmutil.svm_train(problem, svmutil.svm_parameter(f"-q -b 1 {words}"))


# ---- the noise of a regression ------------------------------------------------------------------


@pytest.mark.parametrize("scale", [(), ("--scale", "standard")])
@pytest.mark.parametrize("task", [3, 4])
def test_the_noise_agrees_with_libsvms(tmp_path, task, scale):
    y, X = curve(300)
    words = ("-s", task, "-c", 2, "-g", 0.5, "-p", 0.1, "-n", 0.5)
    learnt = learn(
        "randsvm", oracle.write_rows(tmp_path / "d", y, X), tmp_path / "m", "-b", 1, *words, *scale
    )
    model = load_model(learnt.model)
    Z = (X - X.mean(axis=0)) / X.std(axis=0) if scale else X
    theirs = train_with_libsvm(y, Z, " ".join(map(str, words))).get_svr_probability()
    assert theirs < 0.5
    # Both draw their folds at random.
    assert model.noise_scale == pytest.approx(theirs, rel=0.1)


def test_a_single_row_has_no_noise(tmp_path):
    path = oracle.write_rows(tmp_path / "d", np.array([2.0]), np.ones((1, 1)))
    learnt = learn("randsvm", path, tmp_path / "m", "-s", 3, "-b", 1)
    assert "one row is too few for -b 1" in learnt.notices
    assert not load_model(learnt.model).has_probabilities


# ---- the density of novelty detection -----------------------------------------------------------


@pytest.mark.parametrize("rows, nu", [(300, 0.3), (301, 0.07), (100, 0.9)])
def test_the_density_marks_are_libsvms(tmp_path, rows, nu):
    X, words = cloud(rows), f"-s 2 -n {nu} -g 0.5"
    path = oracle.write_rows(tmp_path / "d", np.ones(rows), X)
    learnt = learn("randsvm", path, tmp_path / "m", "-b", 1, "--gap", 1e-7, *words.split())
    theirs = train_with_libsvm(np.ones(rows), X, f"{words} -e 1e-7")
    svmutil.svm_save_model(str(tmp_path / "theirs"), theirs)
    expected = load_model(tmp_path / "theirs").density_marks
    found = load_model(learnt.model).density_marks
    # Rounding decides on which side of 0 the rows at 0 are.
    assert found == pytest.approx(expected, abs=0.02 * np.ptp(expected))


def test_the_density_marks_divide_the_rows_evenly(tmp_path, predict):
    """Each bin between marks has a tenth of the probability and a fifth of the rows of its side."""
    path = oracle.write_rows(tmp_path / "d", np.ones(400), cloud(400))
    learnt = learn("randsvm", path, tmp_path / "m", "-b", 1, "-s", 2, "-n", 0.5, "-g", 0.5)
    lines = predict(path, learnt.model, "-b", 1).lines
    assert lines[0] == "label normal outlier"
    p = np.array([line.split()[1] for line in lines[1:]], float)
    values, counts = np.unique(p, return_counts=True)
    assert values == pytest.approx([0.001, *np.arange(0.1, 0.95, 0.1), 0.999])
    assert (counts[[0, -1]] < 40).all() and counts.sum() == 400 and counts[1:-1].max() < 80
