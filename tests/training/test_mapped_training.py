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


def accuracy(predicted):
    return float(predicted.out.split()[2].rstrip("%"))


def quadratic(rows, seed=0):
    """Label rows by the sign of a random quadratic of 10 normal features; 10% of the labels are
    wrong.
    """
    rng = np.random.default_rng([seed, 14])
    A, b = (np.random.default_rng(15).normal(size=size) for size in ((10, 10), 10))
    X = oracle.as_float32(rng.normal(size=(rows, 10)))
    value = np.einsum("ij,jk,ik->i", X, A, X) + X @ b - np.trace(A)
    wrong = rng.random(rows) < 0.1
    return np.where((value > 0) != wrong, 1.0, -1.0), X


@pytest.fixture
def checkerboards(tmp_path):
    return board(4000).save(tmp_path / "train"), board(2000, 1).save(tmp_path / "test")


def exact_labels(y, X, Z, words):
    model = svmutil.svm_train(y, sparse.csr_matrix(X), f"-q {words}")
    return np.sign(oracle.libsvm_decisions(model, Z))


def test_fourier_features_are_nearly_as_accurate_as_the_kernel(checkerboards, tmp_path, predict):
    train, test = checkerboards
    learnt = learn("sgd", train, tmp_path / "m", *["-t", "rbf", "-g", "5", "--components", "2000"])
    data = board(2000, 1)
    best = 100 * np.mean(exact_labels(*board(4000), data.X, "-c 1 -g 5") == data.y)
    assert accuracy(predict(test, learnt.model)) >= best - 1
    straight = learn("sgd", train, tmp_path / "linear")
    assert accuracy(predict(test, straight.model)) < 70


@pytest.mark.slow
@pytest.mark.parametrize("words", ["", "--exact"])
def test_maclaurin_features_are_nearly_as_accurate_as_the_kernel(tmp_path, predict, words):
    y, X = quadratic(3000)
    test_y, test_X = quadratic(2000, 1)
    train = oracle.write_svmlight(tmp_path / "train", y, X)
    test = oracle.write_svmlight(tmp_path / "test", test_y, test_X)
    options = ("-t poly -d 2 -r 1 --components 2000 " + words).split()
    learnt = learn("sgd", train, tmp_path / "m", *options)
    best = 100 * np.mean(exact_labels(y, X, test_X, "-t 1 -d 2 -r 1 -g 1") == test_y)
    assert accuracy(predict(test, learnt.model)) >= best - 2


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


def test_another_seed_gives_another_map(checkerboards, tmp_path):
    train, _ = checkerboards
    words = ("-t", "rbf", "-g", 5, "--components", 100, "--epochs", 2)
    one, other = (learn("sgd", train, tmp_path / "m", *words, "--seed", s).body for s in (0, 1))
    assert one != other


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
        ("sgd -t rbf --components 0", "components must be >= 1, got 0"),
        ("sgd -t poly -r -1", "coef0"),
        ("sgd -t rbf --exact --components 5", "--exact is for the random features of -t poly"),
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
