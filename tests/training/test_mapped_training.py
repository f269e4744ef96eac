"""Test random features in whole runs of sgd, randsvm and osuna with --components."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from learning import board, learn
from liblinear import liblinearutil
from libsvm import svmutil
from scipy import sparse

from randsvm.kernels.random_features import RandomMap


@pytest.fixture
def checkerboards(tmp_path):
    return board(4000).save(tmp_path / "train"), board(2000, 1).save(tmp_path / "test")


def test_a_regression_learns_with_random_features(tmp_path, predict):
    rng = np.random.default_rng(0)
    X = oracle.as_float32(rng.uniform(-3, 3, (2000, 1)))
    y = np.sin(2 * X[:, 0])
    path = tmp_path / "data"
    path.write_text(oracle.svmlight_text([repr(float(target)) for target in y], X))
    words = ["-s", "svr", "-p", 0.05, "-t", "rbf", "-g", 1, "--components", 300, "-c", 10]
    learnt = learn("sgd", path, tmp_path / "m", *words, "--epochs", 20)
    assert np.abs(predict(path, learnt.model).scores - y).mean() < 0.1


@pytest.mark.parametrize("algorithm", ["randsvm --gap 1e-3", "osuna"])
def test_kernel_algorithms_solve_the_linear_svm_over_the_features(tmp_path, predict, algorithm):
    """LIBSVM's -t 0 on the mapped rows has the same objective and labels."""
    y, X = board(700)
    path = board(700).save(tmp_path / "data")
    name, *rest = algorithm.split()
    words = ("-t", "rbf", "-g", 2, "--components", 60, "--seed", 5, *rest)
    learnt = learn(name, path, tmp_path / "m", *words)
    features = RandomMap("rbf", 60, 2.0, 0.0, 3, 5).over(np.array([1, 2], np.int32))
    Z = features.values(sparse.csr_matrix(X.astype(np.float32))).astype(float)
    whole = svmutil.svm_train(y, sparse.csr_matrix(Z), "-q -t 0 -e 1e-4")
    coefficients = np.array([coefficient[0] for coefficient in whole.get_sv_coef()])
    w = coefficients @ Z[np.array(whole.get_sv_indices()) - 1]
    assert float(learnt.metadata["dual"]) == pytest.approx(
        np.abs(coefficients).sum() - w @ w / 2, rel=1e-3
    )
    f = Z @ w - whole.rho[0]
    mine = predict(path, learnt.model, "--scores").scores
    sure = np.abs(f) > 0.02
    assert (np.sign(mine) == np.sign(f))[sure].all()


def test_libsvm_and_liblinear_refuse_the_model(checkerboards, tmp_path, capfd):
    train, _ = checkerboards
    learnt = learn("sgd", train, tmp_path / "m", "-t", "rbf", "--components", 50)
    assert svmutil.svm_load_model(str(learnt.model)) is None
    assert liblinearutil.load_model(str(learnt.model)) is None


def test_a_feature_that_training_lacks_does_not_change_a_prediction(
    checkerboards, tmp_path, predict
):
    """The random numbers of a feature depend only on its index."""
    train, test = checkerboards
    learnt = learn("sgd", train, tmp_path / "m", "-t", "rbf", "-g", 5, "--components", 100)
    more = tmp_path / "more"
    more.write_text("\n".join(f"{line} 7:1" for line in test.read_text().splitlines()) + "\n")
    plain, unseen = predict(test, learnt.model, "--scores"), predict(more, learnt.model, "--scores")
    assert plain.lines == unseen.lines
    assert "2000 values of 1 features that training never saw" in unseen.err


@pytest.mark.parametrize(
    "words, message",
    [
        ("sgd --components 5", "random features are for -t rbf and -t poly, not linear"),
        ("osuna -t linear --components 5", "random features are for -t rbf and -t poly"),
        ("sgd -t rbf --components 0", "'--components': must be >= 1, got 0"),
        ("sgd -t poly -r -1", "coef0"),
        ("sgd -t sigmoid", "expected one of linear (0), poly (1), rbf (2), found 'sigmoid'"),
    ],
)
def test_options_that_random_features_lack_are_refused(command, tmp_path, words, message):
    board(50).save(tmp_path / "data")
    ended = command("train", *words.split(), "data", "m")
    assert ended.returncode == 2
    assert message in ended.stderr.splitlines()[-1]
    assert not (tmp_path / "m").exists()


def test_a_model_with_random_features_is_not_updated(command, checkerboards, tmp_path):
    train, _ = checkerboards
    learn("sgd", train, tmp_path / "m", "-t", "rbf", "--components", 50)
    ended = command("train", "sgd", "--update", "m", "train", "new")
    assert ended.returncode == 65
    assert "without random features" in ended.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("sgd", "-t", "poly", "-r", 1, "--components", 20),
        ("sgd", "-t", "rbf", "--components", 20),
        ("osuna", "-t", "poly", "-r", 1, "--components", 20),
        ("osuna", "-t", "rbf", "--components", 20),
    ],
    ids=str,
)
def test_the_printed_command_repeats_the_run(command, tmp_path, words):
    """The command contains gamma even if the user did not set it."""
    board(200).save(tmp_path / "data")
    first = command("train", *words, "data", "m")
    line = first.stderr.splitlines()[0].split()
    assert "-g" in line
    before = (tmp_path / "m").read_bytes()
    again = command("train", *line[1:])
    assert (first.returncode, again.returncode) == (0, 0)
    assert (tmp_path / "m").read_bytes() == before
