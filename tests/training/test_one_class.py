"""Test -s one-class: novelty detection reaches the optimum of LIBSVM's -s 2 on all rows."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from learning import learn
from libsvm import svmutil
from sklearn.svm import OneClassSVM

from randsvm.errors import ModelError, ParameterError


def cloud(rows, seed=0):
    rng = np.random.default_rng([seed, 12])
    return oracle.as_float32(rng.normal(size=(rows, 3)))


def write_set(path, X):
    return oracle.write_svmlight(path, np.ones(len(X)), X)


@pytest.mark.parametrize("name, gamma", [("satimage.scale", 1 / 36)])
def test_a_model_of_real_data_agrees_with_libsvm(real, tmp_path, predict, name, gamma):
    path = real(name)
    y, X = svmutil.svm_read_problem(str(path), return_scipy=True)
    words = "-s", 2, "-n", 0.05, "-g", gamma, "--gap", 1e-5
    learnt = learn("randsvm", path, tmp_path / "m", *words)
    whole = svmutil.svm_train(y, X, f"-q -s 2 -n 0.05 -g {gamma!r}")
    expected = np.sign(oracle.libsvm_decisions(whole, oracle.as_float32(X.toarray())))
    mine = predict(path, learnt.model, "--scores").scores
    assert np.mean(np.sign(mine) == expected) >= 0.997


def test_labels_of_the_training_rows_are_ignored(tmp_path):
    X = cloud(800)
    one = write_set(tmp_path / "one", X)
    other = oracle.write_svmlight(tmp_path / "other", np.sign(X[:, 0]), X)
    bodies = [
        learn("osuna", path, tmp_path / f"{path.name}.m", "-s", "one-class", "-n", 0.1).model
        for path in (one, other)
    ]
    assert len({model.read_bytes().partition(b"# randsvm")[0] for model in bodies}) == 1


def test_a_working_set_far_below_nu_n_rows_reaches_the_optimum(tmp_path):
    path = write_set(tmp_path / "data", cloud(3000))
    words = ("-s", "one-class", "-n", 0.2, "--gap", 1e-3, "--working-set")
    small, large = (
        learn("osuna", path, tmp_path / "m", *words, size).outcome for size in (100, 3000)
    )
    assert small["stopped"] == large["stopped"] == "gap <= 0.001"
    assert small["support_vectors"] > 600
    assert small["dual"] == pytest.approx(large["dual"], rel=2e-3)


# ---- sgd --------------------------------------------------------------------------------------


def shell(rng, rows, radius, d):
    directions = rng.normal(size=(rows, d))
    return radius * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def ring(rng, rows):
    angle, radius = rng.uniform(0, 2 * np.pi, rows), 5 + rng.normal(size=rows) * 0.3
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


CENTRES = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
FOURIER = "-t rbf -g 0.25 -c 1 --components 512"
NOVELTIES = {
    # name: (options, clean rows, planted rows)
    "linear": (
        "",
        lambda rng, rows: rng.normal(4, 1, (rows, 5)),
        lambda rng: rng.normal(0, 0.5, (20, 5)),
    ),
    "shell": (
        FOURIER,
        lambda rng, rows: rng.normal(size=(rows, 5)),
        lambda rng: shell(rng, 20, 8.0, 5),
    ),
    "clusters": (
        FOURIER,
        lambda rng, rows: CENTRES[rng.integers(0, 3, rows)] + rng.normal(size=(rows, 2)) * 0.7,
        lambda rng: np.array([12.0, 12.0]) + rng.normal(size=(20, 2)) * 2,
    ),
    "ring": (
        FOURIER,
        ring,
        lambda rng: np.vstack([rng.normal(size=(10, 2)) * 0.8, shell(rng, 10, 9.0, 2)]),
    ),
}


@pytest.mark.parametrize("name", NOVELTIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_sgd_detects_novelties(tmp_path, predict, name, seed):
    """Train on 2,000 clean rows; test on 1,000 more and 20 planted outliers."""
    words, clean, planted = NOVELTIES[name]
    rng = np.random.default_rng([seed, 13])
    train = write_set(tmp_path / "train", oracle.as_float32(clean(rng, 2000)))
    test = write_set(
        tmp_path / "test", oracle.as_float32(np.vstack([clean(rng, 1000), planted(rng)]))
    )
    learnt = learn("sgd", train, tmp_path / "m", "-s", "one-class", "--seed", seed, *words.split())
    f = predict(test, learnt.model, "--scores").scores
    usual, new = f[:1000], f[1000:]
    assert np.mean(usual[:, None] > new) >= 0.98
    assert np.mean(new <= 0) >= 0.9
    assert np.mean(usual <= 0) <= 0.05


def test_the_objective_of_sgd_has_the_origin_as_the_only_negative_row(tmp_path):
    """P = 1/2 |w|^2 + C (weights of MADlib's balanced classes) over the rows and the origin."""
    X = oracle.as_float32(np.random.default_rng(3).normal(2, 1, (300, 3)))
    path = write_set(tmp_path / "data", X)
    learnt = learn("sgd", path, tmp_path / "m", "-s", "one-class", "-c", 0.5)
    text = learnt.model.read_text().partition("\nw\n")[2].partition("#")[0]
    *w, b = map(float, text.split())
    hinge = np.maximum(0, 1 - (X @ w + b))
    origin = max(0.0, 1 + b)
    weights = 301 / 600, 301 / 2
    P = np.dot(w, w) / 2 + 0.5 * (weights[0] * hinge.sum() + weights[1] * origin)
    assert float(learnt.metadata["primal"]) == pytest.approx(P, rel=1e-6)


# ---- sgd with -n: the linear model of LIBSVM's -s 2 -t 0 ----------------------------------------

SHARES = {
    "round": lambda rng: rng.normal(size=(600, 5)) + 1.5,
    "far": lambda rng: rng.normal((20, 0, 0, 3, 1), size=(600, 5)),
    "positive": lambda rng: np.abs(rng.normal(size=(400, 30))),
}


def schoelkopf(X, nu, w, b):
    """Return nu/2 |w|^2 + nu b + mean max(0, -f)."""
    return float(nu / 2 * w @ w + nu * b + np.maximum(0, -(X @ w + b)).mean())


@pytest.mark.parametrize("nu", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("name, scale", [*((name, 1.0) for name in SHARES), ("round", 1e-6)])
def test_sgd_leaves_the_same_share_outside_as_libsvm(tmp_path, predict, name, scale, nu):
    X = oracle.as_float32(SHARES[name](np.random.default_rng(0)))
    path = write_set(tmp_path / "data", oracle.as_float32(X * scale))
    learnt = learn("sgd", path, tmp_path / "m", "-s", "one-class", "-n", nu)
    model = oracle.read_linear(learnt.model, X.shape[1])
    w, b = model.w[:, 0], model.b[0]
    f = predict(path, learnt.model, "--scores").scores
    assert int(nu * len(X)) == np.count_nonzero(f <= 0)
    truth = OneClassSVM(kernel="linear", nu=nu, tol=1e-6).fit(X)
    least = schoelkopf(X, nu, truth.coef_[0] / (nu * len(X)), truth.intercept_[0] / (nu * len(X)))
    found = schoelkopf(X, nu, w * scale, b) if scale == 1 else None
    if found is not None:
        assert found == pytest.approx(least, rel=0.01)
        assert float(learnt.metadata["primal"]) == pytest.approx(found / nu, rel=1e-6)
    assert np.mean((f > 0) == (truth.decision_function(X) > 0)) >= 0.99


@pytest.mark.parametrize("nu, outside", [(1, 50), (0.001, 0), (0.02, 1)])
def test_the_smallest_and_largest_share_outside_are_accepted(tmp_path, predict, nu, outside):
    path = write_set(tmp_path / "data", cloud(50))
    learnt = learn("sgd", path, tmp_path / "m", "-s", "one-class", "-n", nu)
    f = predict(path, learnt.model, "--scores").scores
    assert np.count_nonzero(f <= 0) == outside


@pytest.mark.parametrize(
    "words, message",
    [
        (("-c", 2), "-c has no effect"),
        (("--lambda", 2), "--lambda has no effect"),
        (("-s", "svc"), "-n has no effect with -s svc"),
    ],
)
def test_options_without_effect_beside_the_share_are_noted(tmp_path, words, message):
    X = oracle.as_float32(np.random.default_rng(0).normal(size=(20, 2)))
    path = oracle.write_svmlight(tmp_path / "data", np.tile([1.0, -1.0], 10), X)
    learnt = learn("sgd", path, tmp_path / "m", "-s", "one-class", "-n", 0.1, *words)
    assert any(message in text for text in learnt.notices)


def test_a_share_outside_is_refused_with_another_loss_or_an_update(tmp_path):
    path = write_set(tmp_path / "data", np.ones((5, 2), np.float32))
    with pytest.raises(ParameterError, match="-n does not use --loss"):
        learn("sgd", path, tmp_path / "m", "-s", "one-class", "-n", 0.1, "--loss", "log")
    learn("sgd", path, tmp_path / "m", "-s", "one-class", "-n", 0.1)
    with pytest.raises(ModelError, match="expected a model without -n to update"):
        learn("sgd", path, tmp_path / "new", "--update", tmp_path / "m")
