"""Test trainings with weights of rows against repeated rows and against scikit-learn."""

import numpy as np
import oracle
import pytest
from learning import learn
from sklearn import svm

from randsvm import Arrays, train
from randsvm.estimators import NuSVC

ROWS = 300
# The task, the number of classes (0: a regression) and the parameters of each case.
CASES = {
    "2 classes": ("svc", 2, {"C": 2.0}),
    "3 classes": ("svc", 3, {"C": 2.0}),
    "10 classes": ("svc", 10, {"C": 2.0}),
    "one against the rest": ("svc", 3, {"C": 2.0, "multiclass": "ovr"}),
    "class weights": ("svc", 2, {"C": 2.0, "weights": "balanced"}),
    "linear": ("svc", 2, {"C": 0.5, "kernel": "linear"}),
    "svr": ("svr", 0, {"C": 2.0}),
    "one-class": ("one-class", 1, {"nu": 0.2}),
    "nu-svc": ("nu-svc", 2, {"nu": 0.3}),
    "nu-svr": ("nu-svr", 0, {"nu": 0.3, "C": 2.0}),
}


def rows(classes):
    rng = np.random.default_rng([classes, 30])
    X = rng.normal(size=(ROWS, 3))
    if not classes:
        return X.astype(np.float32), np.sin(X[:, 0]) + 0.2 * rng.normal(size=ROWS)
    y = rng.integers(0, classes, ROWS)
    return (X + 1.5 * np.eye(10)[y, :3] + 0.3 * y[:, None]).astype(np.float32), y.astype(float)


def trained(algorithm, arrays, task, gap, **parameters):
    if parameters.get("kernel") != "linear":
        parameters["gamma"] = 0.5
    return train(arrays, None, algorithm, task=task, gap=gap, **parameters).outcome


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("algorithm, options", [("randsvm", {}), ("osuna", {"working_set": 60})])
def test_a_weight_is_as_many_equal_rows(name, algorithm, options):
    task, classes, parameters = CASES[name]
    X, y = rows(classes)
    weights = np.random.default_rng(3).integers(0, 4, ROWS).astype(float)
    repeated = np.repeat(np.arange(ROWS), weights.astype(int))
    weighted = trained(
        algorithm, Arrays(X, y, weights=weights), task, 2e-5, **parameters, **options
    )
    plain = trained("randsvm", Arrays(X[repeated], y[repeated]), task, 2e-5, **parameters)
    assert weighted.gap <= 2e-5
    assert weighted.primal == pytest.approx(plain.primal, rel=1e-4)
    assert pytest.approx(plain.J, rel=1e-4) == weighted.J


REFERENCES = {
    "svc": (svm.SVC(C=2.0, gamma=0.5, tol=1e-7), 2, {"C": 2.0}),
    "svr": (svm.SVR(C=2.0, gamma=0.5, epsilon=0.1, tol=1e-7), 0, {"C": 2.0}),
    "one-class": (svm.OneClassSVM(nu=0.2, gamma=0.5, tol=1e-7), 1, {"nu": 0.2}),
    "nu-svc": (svm.NuSVC(nu=0.3, gamma=0.5, tol=1e-7), 2, {"nu": 0.3}),
    "nu-svr": (svm.NuSVR(nu=0.3, C=2.0, gamma=0.5, tol=1e-7), 0, {"nu": 0.3, "C": 2.0}),
}


@pytest.mark.parametrize("task", REFERENCES)
def test_decision_values_equal_those_of_scikit_learn(task):
    reference, classes, parameters = REFERENCES[task]
    X, y = rows(classes)
    if classes == 2:
        y = 2 * y - 1  # so that both take the same class as the positive one
    weights = np.random.default_rng(4).exponential(size=ROWS)
    model = train(Arrays(X, y, weights=weights), task=task, gamma=0.5, gap=1e-6, **parameters)
    if task == "one-class":
        expected = reference.fit(X, sample_weight=weights).decision_function(X)
    else:
        reference.fit(X, y, sample_weight=weights)
        regression = classes == 0
        expected = reference.predict(X) if regression else reference.decision_function(X)
    found = np.asarray(model.decision_function(X)).ravel()
    np.testing.assert_allclose(found, expected, atol=1e-3 * max(1.0, np.abs(expected).max()))


def spread_rows(seed):
    """Return X, y, weights over orders of magnitude or whole numbers, gamma and nu."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 260)), int(rng.integers(1, 8))
    gamma, nu = float(10 ** rng.uniform(-2, 1)), float(rng.uniform(0.05, 0.6))
    offset = float(rng.choice([0, 0, 3, 30]))
    X = rng.normal(size=(n, d)) * float(10 ** rng.uniform(-0.5, 0.5)) + offset
    y = np.where(X[:, 0] - offset + rng.normal(scale=0.5, size=n) > 0, 1.0, -1.0)
    whole = seed % 3 == 0
    weights = rng.integers(1, 5, n).astype(float) if whole else 10 ** rng.uniform(-2, 2, n)
    return X.astype(np.float32), y, weights, gamma, nu


# 32, 61 and 88: coefficients that end a rounding error from their bounds. 34: the rounding of
# float32 values exceeds the tolerance of a solve.
@pytest.mark.parametrize("seed", [32, 34, 61, 88])
def test_nu_svc_with_spread_weights_reaches_a_small_gap(seed):
    X, y, weights, gamma, nu = spread_rows(seed)
    asked = 1e-7
    machine = NuSVC(nu=nu, gamma=gamma, gap=asked).fit(X, y, sample_weight=weights)
    coefficients, exact = machine.dual_coef_[0], X.astype(np.float64)
    # The model has the margin 1; alpha has the sum nu times the weights.
    total = nu * weights.sum()
    rho = total / np.abs(coefficients).sum()
    alpha = np.abs(coefficients) * rho
    assert (alpha <= weights[machine.support_] * (1 + 1e-6)).all()
    squares = ((exact[:, None] - exact[machine.support_]) ** 2).sum(axis=2)
    u = np.exp(-gamma * squares) @ coefficients * rho
    f = u + rho * machine.intercept_[0]
    norm = float(coefficients @ u[machine.support_]) * rho
    primal = norm / 2 - total * rho + weights @ np.maximum(0, rho - y * f)
    assert 0 <= primal + norm / 2 <= 2 * asked * max(abs(primal), norm / 2)


@pytest.mark.parametrize("options", [(), ("-s", "svr", "-p", 0.3), ("-s", "one-class", "-n", 0.2)])
def test_a_warm_start_goes_on_from_weighted_coefficients(tmp_path, options):
    """Also where weights have changed: a coefficient beyond its new bound moves to the bound."""
    y, X = oracle.checkerboard(1500)
    weights = np.random.default_rng(5).exponential(size=len(y))
    words = ("-g", 5, "-c", 2, "--gap", 1e-3, "--sample-size", 200, *options)
    path = oracle.write_rows(tmp_path / "old", y, X, 1, weights)
    old = learn("randsvm", path, tmp_path / "old.model", *words)
    warm = learn("randsvm", path, tmp_path / "m", *words, "--warm-start", old.model)
    assert len(warm.rounds) <= max(2, len(old.rounds) // 4)
    assert float(warm.metadata["primal"]) == pytest.approx(float(old.metadata["primal"]), rel=2e-3)
    weights[:300] = weights[:300] / 4
    other = oracle.write_rows(tmp_path / "new", y, X, 1, weights)
    cold = learn("randsvm", other, tmp_path / "cold.model", *words)
    warm = learn("randsvm", other, tmp_path / "warm.model", *words, "--warm-start", old.model)
    assert float(warm.metadata["gap"]) <= 1e-3
    assert float(warm.metadata["primal"]) == pytest.approx(float(cold.metadata["primal"]), rel=2e-3)
    assert len(warm.rounds) < len(cold.rounds)


def test_rows_of_a_fold_count_by_their_weights_in_its_score(tmp_path):
    """All rows are equal, so that every fold predicts the class of the larger weight."""
    y, weights = np.repeat([1.0, -1.0], [120, 60]), np.repeat([1.0, 0.1], [120, 60])
    path = oracle.write_rows(tmp_path / "data", y, np.ones((180, 1)), 1, weights)
    learnt = learn("randsvm", path, tmp_path / "m", "-v", 3)
    name, score = learnt.metadata["cross_validation"].split()
    assert name == "accuracy"
    assert float(score) == pytest.approx(100 * 120 / 126)
