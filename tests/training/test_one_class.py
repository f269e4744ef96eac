"""Test -s one-class: novelty detection reaches the optimum of LIBSVM's -s 2 on all rows."""

import numpy as np
import oracle
import pytest
from learning import learn, run_train
from oracle import write_rows
from sklearn.datasets import make_classification
from sklearn.svm import OneClassSVM

import randsvm


def cloud(rows, seed=0):
    rng = np.random.default_rng([seed, 12])
    return oracle.as_float32(rng.normal(size=(rows, 3)))


def test_labels_of_the_training_rows_are_ignored(tmp_path):
    X = cloud(800)
    one = write_rows(tmp_path / "one", np.ones(len(X)), X)
    other = oracle.write_svmlight(tmp_path / "other", np.sign(X[:, 0]), X)
    bodies = [
        learn("osuna", path, tmp_path / f"{path.name}.m", "-s", "one-class", "-n", 0.1).model
        for path in (one, other)
    ]
    assert len({model.read_bytes().partition(b"# randsvm")[0] for model in bodies}) == 1


@pytest.mark.parametrize("other", ["-1", "2", "-1.0"])
def test_a_cross_validation_says_which_labels_it_cannot_score(tmp_path, capsys, other):
    X = cloud(60)
    path = tmp_path / "data"
    labels = ["1", "1.0", other]
    path.write_text("".join(f"{labels[i % 3]} 1:{x:.6f}\n" for i, x in enumerate(X[:, 0])))
    run_train("randsvm", "-s", "one-class", "-v", 3, path, tmp_path / "m")
    said = f"note: labels other than 1 and -1, such as '{other}', are scored as wrong\n"
    assert (said in capsys.readouterr().err) == (other == "2")


# ---- sgd --------------------------------------------------------------------------------------


def test_the_objective_of_sgd_has_the_origin_as_the_only_negative_row(tmp_path):
    """P = 1/2 |w|^2 + C (weights of MADlib's balanced classes) over the rows and the origin."""
    X = oracle.as_float32(np.random.default_rng(3).normal(2, 1, (300, 3)))
    path = write_rows(tmp_path / "data", np.ones(len(X)), X)
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
    path = write_rows(tmp_path / "data", np.ones(len(X)), oracle.as_float32(X * scale))
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


def test_a_linear_kernel_whose_optimum_is_0_ends_at_its_gap(capfd):
    """Half of these rows can be balanced around the origin. No solve of LIBSVM ends at its limit of
    iterations, of which LIBSVM itself would warn."""
    X, _ = make_classification(n_classes=2, n_informative=2, random_state=42)
    machine = randsvm.OneClassSVM(kernel="linear", nu=0.5).fit(X)
    assert machine.gap_ <= 1e-3
    assert machine.coef_[0] @ machine.coef_[0] / 2 < 1e-3
    assert "reaching max number of iterations" not in capfd.readouterr().out
