"""Test trainings with weights of rows against repeated rows and against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import svm

from randsvm import Arrays, train_osuna, train_randsvm
from randsvm.events import Trained

ROWS = 300
# The task, the number of classes (0: a regression) and the parameters of each case.
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
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


def rows(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([classes, 30])
    X = rng.normal(size=(ROWS, 3))
    if not classes:
        return X.astype(np.float32), np.sin(X[:, 0]) + 0.2 * rng.normal(size=ROWS)
    y = rng.integers(0, classes, ROWS)
    return (X + 1.5 * np.eye(10)[y, :3] + 0.3 * y[:, None]).astype(np.float32), y.astype(float)


def trained(train: Any, arrays: Arrays, task: str, gap: float, **parameters: Any) -> Trained:
    if parameters.get("kernel") != "linear":
        parameters["gamma"] = 0.5
    outcome = train(arrays, task=task, gap=gap, **parameters).outcome
    assert isinstance(outcome, Trained)
    return outcome


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "algorithm, options", [(train_randsvm, {}), (train_osuna, {"working_set": 60})]
)
def test_a_weight_is_as_many_equal_rows(name: str, algorithm: Any, options: dict[str, Any]) -> None:
    task, classes, parameters = CASES[name]
    X, y = rows(classes)
    weights = np.random.default_rng(3).integers(0, 4, ROWS).astype(float)
    repeated = np.repeat(np.arange(ROWS), weights.astype(int))
    weighted = trained(
        algorithm, Arrays(X, y, weights=weights), task, 2e-5, **parameters, **options
    )
    plain = trained(train_randsvm, Arrays(X[repeated], y[repeated]), task, 2e-5, **parameters)
    assert weighted.gap <= 2e-5
    assert weighted.primal == pytest.approx(plain.primal, rel=1e-4)


REFERENCES: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "svc": (svm.SVC(C=2.0, gamma=0.5, tol=1e-7), 2, {"C": 2.0}),
    "svr": (svm.SVR(C=2.0, gamma=0.5, epsilon=0.1, tol=1e-7), 0, {"C": 2.0}),
    "one-class": (svm.OneClassSVM(nu=0.2, gamma=0.5, tol=1e-7), 1, {"nu": 0.2}),
    "nu-svc": (svm.NuSVC(nu=0.3, gamma=0.5, tol=1e-7), 2, {"nu": 0.3}),
    "nu-svr": (svm.NuSVR(nu=0.3, C=2.0, gamma=0.5, tol=1e-7), 0, {"nu": 0.3, "C": 2.0}),
}


@pytest.mark.parametrize("task", REFERENCES)
def test_decision_values_equal_those_of_scikit_learn(task: str) -> None:
    reference, classes, parameters = REFERENCES[task]
    X, y = rows(classes)
    if classes == 2:
        y = 2 * y - 1  # so that both take the same class as the positive one
    weights = np.random.default_rng(4).exponential(size=ROWS)
    model = train_randsvm(
        Arrays(X, y, weights=weights), task=task, gamma=0.5, gap=1e-6, **parameters
    )
    if task == "one-class":
        expected = reference.fit(X, sample_weight=weights).decision_function(X)
    else:
        reference.fit(X, y, sample_weight=weights)
        regression = classes == 0
        expected = reference.predict(X) if regression else reference.decision_function(X)
    found = np.asarray(model.decision_function(X)).ravel()
    np.testing.assert_allclose(found, expected, atol=1e-3 * max(1.0, np.abs(expected).max()))
