"""Test -b 1: Platt's sigmoid against an optimiser and the predictions of LIBSVM and LIBLINEAR."""

import numpy as np
import oracle
import pytest
from learning import Data, gaussians, learn
from liblinear import liblinearutil
from libsvm import svmutil
from scipy import optimize, sparse
from sklearn.metrics import log_loss
from trainings import fit_sigmoid

from randsvm import Arrays, train
from randsvm.errors import ModelError

# ---- the sigmoid --------------------------------------------------------------------------------


def platts_loss(AB, f, positive):
    """Return the log loss with the targets (N+ + 1)/(N+ + 2) and 1/(N- + 2)."""
    count, rest = positive.sum(), (~positive).sum()
    target = np.where(positive, (count + 1) / (count + 2), 1 / (rest + 2))
    z = AB[0] * f + AB[1]
    return float((target * np.logaddexp(0, z) + (1 - target) * np.logaddexp(0, -z)).sum())


RANDOM = np.random.default_rng(30)
CASES = {
    "overlapping": (RANDOM.normal(size=300) + np.repeat([1, -1], 150), np.arange(300) < 150),
    "separable": (np.linspace(-2, 2, 50), np.linspace(-2, 2, 50) > 0),
    "upside down": (RANDOM.normal(size=99) + np.repeat([-1, 1, 1], 33), np.arange(99) < 33),
    "one of many": (RANDOM.normal(size=200), np.arange(200) == 7),
    "says nothing": (np.zeros(30), np.arange(30) < 10),
    "large": (1e4 * (RANDOM.normal(size=80) + np.repeat([1, -1], 40)), np.arange(80) < 40),
    "small": (1e-5 * (RANDOM.normal(size=80) + np.repeat([1, -1], 40)), np.arange(80) < 40),
}


@pytest.mark.parametrize("case", CASES)
def test_the_sigmoid_minimises_platts_loss(case):
    f, positive = CASES[case]
    found = np.array(fit_sigmoid(f, positive, np.ones(len(f))))
    size = np.abs(f).max() or 1.0
    best = optimize.minimize(
        lambda AB: platts_loss(AB / [size, 1], f, positive), [-1.0, 0.0], method="BFGS", tol=1e-9
    )
    assert platts_loss(found, f, positive) == pytest.approx(best.fun, abs=1e-5)
    assert found[1] == pytest.approx(best.x[1], abs=1e-2)


# ---- models of two classes ----------------------------------------------------------------------


def probabilities_of(lines):
    """Return the labels of the first line, the predicted label of each row, and the probabilities
    (m, K).
    """
    header, *rows = [line.split() for line in lines]
    assert header[0] == "labels"
    return header[1:], [row[0] for row in rows], np.array([row[1:] for row in rows], float)


def loss_of(y, labels, shares):
    """Return the log loss of probabilities of six digits, whose columns are these labels."""
    order = np.argsort(np.array(labels, float))
    return log_loss(y, (shares / shares.sum(axis=1, keepdims=True))[:, order])


def predictions_of_libsvm(path, X):
    """Return the labels and probabilities of svm-predict -b 1."""
    model = svmutil.svm_load_model(str(path))
    labels, _, shares = svmutil.svm_predict([], sparse.csr_matrix(X), model, "-b 1 -q")
    return labels, np.array(shares)


WORDS = ("-c", 2, "-g", 0.3)


def test_the_predicted_label_has_the_larger_probability(tmp_path, predict):
    """f may have the other sign, because the sigmoid need not be 1/2 at f = 0."""
    data = gaussians(600)
    some = np.flatnonzero((data.y > 0) | (np.arange(600) % 8 == 0))
    path = Data(data.y[some], data.X[some]).save(tmp_path / "d")
    learnt = learn("randsvm", path, tmp_path / "m", "-b", 1, "-c", 0.05, "-g", 0.3)
    predicted = predict(path, learnt.model, "-b", 1)
    labels, said, shares = probabilities_of(predicted.lines)
    assert said == [labels[place] for place in shares.argmax(axis=1)]
    plain = predict(path, learnt.model).lines
    assert said != plain
    right = np.mean(np.array(said, float) == data.y[some])
    assert f"({round(right * len(some))}/{len(some)})" in predicted.out


def test_probabilities_do_not_change_labels_and_scores(tmp_path, predict):
    path = gaussians(200).save(tmp_path / "d")
    without = learn("randsvm", path, tmp_path / "without", *WORDS)
    learnt = learn("randsvm", path, tmp_path / "with", "-b", 1, *WORDS)
    for words in [(), ("--scores",)]:
        lines = [predict(path, one.model, *words).lines for one in (without, learnt)]
        assert lines[0] == lines[1]
    text = learnt.body.decode()
    assert "probA" in text
    kept = [line for line in text.splitlines() if not line.startswith("prob")]
    assert kept == without.body.decode().splitlines()


# ---- quality ------------------------------------------------------------------------------------


NOISY = ("-c", 10, "-g", 0.05)


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna"])
def test_the_held_out_log_loss_is_close_to_libsvms(tmp_path, predict, algorithm):
    (y, X), (test_y, test_X) = (Data(*oracle.two_gaussians(500, seed, 20)) for seed in (0, 1))
    X[:, 1:], test_X[:, 1:] = X[:, 1:] - y[:, None], test_X[:, 1:] - test_y[:, None]  # noise
    paths = [Data(y, X).save(tmp_path / "train"), Data(test_y, test_X).save(tmp_path / "test")]
    learnt = learn(algorithm, paths[0], tmp_path / "m", "-b", 1, *NOISY)
    labels, _, shares = probabilities_of(predict(paths[1], learnt.model, "-b", 1).lines)
    positive = list(map(float, labels)).index(1)
    mine = log_loss(test_y > 0, shares[:, positive])
    words = " ".join(map(str, NOISY))
    model = svmutil.svm_train(y, sparse.csr_matrix(X), f"-q -b 1 {words}")
    svmutil.svm_save_model(str(tmp_path / "theirs"), model)
    theirs = predictions_of_libsvm(tmp_path / "theirs", test_X)[1][:, model.get_labels().index(1)]
    assert mine <= 1.05 * log_loss(test_y > 0, theirs)
    # A sigmoid fitted to the training rows would be worse.
    sign = 1 if positive == 0 else -1
    f, test_f = (sign * predict(path, learnt.model, "--scores").scores for path in paths)
    A, B = fit_sigmoid(f, y > 0, np.ones(len(f)))
    assert log_loss(test_y > 0, 1 / (1 + np.exp(A * test_f + B))) > 1.15 * mine


@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_follow_from_the_sigmoids_of_the_model(tmp_path, predict, classes):
    """A and B of the model map --scores to the probabilities."""
    data = Data(*oracle.clouds(300, 0, classes))
    path = data.save(tmp_path / "d")
    learnt = learn("randsvm", path, tmp_path / "m", "-b", 1, "--multiclass", "ovr", *WORDS)
    lines = predict(path, learnt.model, "--scores").lines
    f = np.array([line.split() for line in lines], float)
    heads = dict(line.partition(" ")[::2] for line in learnt.body.decode().splitlines()[:14])
    A, B = (np.array(heads[name].split(), float) for name in ("probA", "probB"))
    p = 1 / (1 + np.exp(A * f + B))
    expected = np.hstack([p, 1 - p]) if classes == 2 else p / p.sum(axis=1, keepdims=True)
    _, _, shares = probabilities_of(predict(path, learnt.model, "-b", 1).lines)
    assert shares == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "words", [("randsvm", "--components", 100), ("sgd",), ("sgd", "-t", "rbf", "--components", 100)]
)
@pytest.mark.parametrize("classes", [2, 4])
def test_linear_models_have_probabilities(tmp_path, predict, words, classes):
    data, test = (Data(*oracle.clouds(400, seed, classes)) for seed in (0, 1))
    algorithm, *own = words
    learnt = learn(algorithm, data.save(tmp_path / "d"), tmp_path / "m", "-b", 1, *own)
    labels, _, shares = probabilities_of(
        predict(test.save(tmp_path / "t"), learnt.model, "-b", 1).lines
    )
    assert shares.sum(axis=1) == pytest.approx(np.ones(400), abs=1e-5)
    prior = [np.mean(data.y == float(label)) for label in labels]
    guess = loss_of(test.y, labels, np.tile(prior, (400, 1)))
    assert loss_of(test.y, labels, shares) < 0.7 * guess


@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_probabilities_of_weighted_rows_have_the_weighted_share(multiclass):
    """Labels that the features say nothing about: a class has the probability of its weight."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(150, 2)).astype(np.float32), np.repeat([1.0, 2.0, 3.0], 50)
    weights = np.repeat([8.0, 1.0, 1.0], 50)
    model = train(
        Arrays(X, y, weights=weights), kernel="linear", C=0.01, multiclass=multiclass,
        probability=True,
    )  # fmt: skip
    shares = np.asarray(model.predict_proba(X)).mean(axis=0)
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.05)


# ---- logistic regression ------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("words", [(), ("-b", 1)])
def test_a_logistic_regression_needs_no_fitted_sigmoid(tmp_path, predict, classes, words):
    data = Data(*oracle.clouds(400, 0, classes))
    path = data.save(tmp_path / "d")
    learnt = learn("sgd", path, tmp_path / "m", "--loss", "log", *words)
    labels, said, shares = probabilities_of(predict(path, learnt.model, "-b", 1).lines)
    model = liblinearutil.load_model(str(learnt.model))
    theirs, _, their_shares = liblinearutil.predict([], sparse.csr_matrix(data.X), model, "-b 1 -q")
    assert [int(label) for label in labels] == model.get_labels()
    assert shares == pytest.approx(np.array(their_shares), abs=1e-6)
    assert [float(label) for label in said] == theirs
    assert "probA" not in learnt.metadata


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm, words",
    [("randsvm", ()), ("sgd", ()), ("randsvm", ("-s", "svr")), ("sgd", ("-s", 2))],
)
def test_a_model_without_probabilities_is_refused(tmp_path, predict, algorithm, words):
    path = gaussians(60).save(tmp_path / "d")
    learnt = learn(algorithm, path, tmp_path / "m", *words)
    (tmp_path / "output").write_text("old\n")
    with pytest.raises(ModelError, match="expected a model with probabilities") as refused:
        predict(path, learnt.model, "-b", 1)
    assert refused.value.exit_code == 65
    assert (tmp_path / "output").read_text() == "old\n"
