"""Bounds on the leave-one-out error hold for machines that are trained again without each row."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import oracle
import pytest
from learning import Data, learn
from sklearn.svm import SVC

from randsvm.svm.leave_one_out import LeaveOneOutQuery

CASES = [
    pytest.param({"kernel": "rbf", "gamma": 0.5}, ["-g", 0.5], id="rbf"),
    pytest.param({"kernel": "rbf", "gamma": 4.0}, ["-g", 4], id="narrow-rbf"),
    pytest.param({"kernel": "linear"}, ["-t", 0], id="linear"),
    pytest.param(
        {"kernel": "poly", "gamma": 0.5, "coef0": 1.0, "degree": 2},
        ["-t", 1, "-g", 0.5, "-r", 1, "-d", 2],
        id="poly",
    ),
    pytest.param(
        {"kernel": "poly", "gamma": 0.5, "coef0": 1.0, "degree": 3},
        ["-t", 1, "-g", 0.5, "-r", 1, "-d", 3],
        id="odd-poly",
    ),
]


def overlapping(rows: int, seed: int, shift: float = 0.0) -> Data:
    """Return two classes that overlap. shift : added to the features."""
    rng = np.random.default_rng([seed, 77])
    y = np.where(rng.random(rows) < 0.4, 1, -1)
    X = rng.normal(size=(rows, 2)) + 0.9 * y[:, None] + shift
    return Data(y, oracle.as_float32(X))


def left_out(data: Data, weights: np.ndarray | None = None, **options: Any) -> np.ndarray:
    """Return the sign of f of each row by a machine of scikit-learn without the row."""
    machine = SVC(tol=1e-8, **options)
    signs = np.empty(len(data.y))
    for row in range(len(data.y)):
        rest = np.arange(len(data.y)) != row
        own = None if weights is None else weights[rest]
        machine.fit(data.X[rest], data.y[rest], sample_weight=own)
        signs[row] = machine.predict(data.X[[row]])[0]
    return signs


def largest_difference(X: np.ndarray, options: dict[str, Any]) -> float:
    """Return the bound on the differences of kernel values that the documentation states."""
    if options["kernel"] == "rbf":
        return 1.0
    norm = np.square(X).sum(axis=1).max()
    if options["kernel"] == "linear":
        largest = norm
    else:
        largest = (options["gamma"] * norm + options["coef0"]) ** options["degree"]
    positive = X.min() >= 0 or options.get("degree") == 2
    return float(largest if positive else 2 * largest)


def recorded(data: Data, folder: Path, *words: object) -> dict[str, float]:
    """Train, and return the bounds of the record."""
    learnt = learn("randsvm", data.save(folder / "d"), folder / "m", "--gap", 1e-8, *words)
    found = learnt.outcome["leave_one_out"]
    trailer = learnt.metadata
    assert float(trailer["xi_alpha_error"]) == found["error"]
    assert float(trailer["leave_one_out_bound"]) == found["count_bound"]
    return found


@pytest.mark.parametrize("shift", [0.0, 6.0])
@pytest.mark.parametrize(("options", "words"), CASES)
@pytest.mark.parametrize("C", [0.05, 1.0])
def test_bounds_hold_for_machines_without_each_row(
    tmp_path: Path, options: dict[str, Any], words: list[object], C: float, shift: float
) -> None:
    data = overlapping(40, int(10 * C), shift)
    found = recorded(data, tmp_path, "-c", C, *words)
    signs = left_out(data, C=C, **options)
    error = np.mean(signs != data.y)
    assert error <= found["error"] + 1e-9
    assert error <= found["count_bound"] + 1e-9
    assert found["error"] <= found["count_bound"] + 1e-9
    label = float(found["label"])
    recall = np.mean(signs[data.y == label] == label)
    assert found["recall"] <= recall + 1e-9


@pytest.mark.parametrize("shift", [0.0, 6.0])
@pytest.mark.parametrize(("options", "words"), CASES)
def test_estimates_are_those_of_the_formula(
    tmp_path: Path, options: dict[str, Any], words: list[object], shift: float
) -> None:
    C = 0.02 if options["kernel"] != "rbf" else 0.3
    data = overlapping(80, 5, shift)
    found = recorded(data, tmp_path, "-c", C, *words)
    machine = SVC(C=C, tol=1e-8, **options).fit(data.X, data.y)
    alpha = np.zeros(80)
    alpha[machine.support_] = np.abs(machine.dual_coef_[0])
    loss = np.maximum(0, 1 - data.y * machine.decision_function(data.X))
    # The offset of a machine whose support vectors are all at C is not unique.
    assert ((alpha > 1e-6 * C) & (alpha < C * (1 - 1e-6))).any()
    flagged = 2 * alpha * largest_difference(data.X, options) + loss >= 1
    positive = data.y == float(found["label"])
    right = (positive & ~flagged).sum()
    assert found["error"] == pytest.approx(flagged.mean())
    assert found["recall"] == pytest.approx(right / positive.sum())
    predicted = right + (flagged & ~positive).sum()
    assert found["precision"] == pytest.approx(right / predicted)
    counted = (alpha > 0) | (loss >= 1)
    assert found["count_bound"] == pytest.approx(counted.mean())


def test_a_row_counts_as_its_weight(tmp_path: Path) -> None:
    data = overlapping(40, 3)
    weights = np.random.default_rng(3).integers(1, 5, 40)
    (tmp_path / "w").write_text("".join(f"{weight}\n" for weight in weights))
    found = recorded(data, tmp_path, "-c", 0.3, "-g", 0.5, "--row-weights", tmp_path / "w")
    machine = SVC(C=0.3, gamma=0.5, tol=1e-8).fit(data.X, data.y, sample_weight=weights)
    alpha = np.zeros(40)
    alpha[machine.support_] = np.abs(machine.dual_coef_[0])
    loss = np.maximum(0, 1 - data.y * machine.decision_function(data.X))
    flagged = 2 * alpha + loss >= 1
    assert 0 < flagged.mean() < 1
    assert found["error"] == pytest.approx(np.average(flagged, weights=weights))
    wrong = left_out(data, weights, C=0.3, gamma=0.5) != data.y
    assert np.average(wrong, weights=weights) <= found["error"] + 1e-9


def test_a_wrong_row_without_a_coefficient_is_flagged() -> None:
    """Such rows exist before the optimum, as at a time limit."""
    u, beta, y = np.array([2.0, -1.0, 0.5]), np.zeros(3), np.array([1.0, 1.0, 1.0])
    values: Any = SimpleNamespace(y=y, u=u, beta=beta, weights=None)
    found = LeaveOneOutQuery(0.0, 1.0)(values)
    assert (found.error, found.count_bound) == pytest.approx((1 / 3, 1 / 3))


@pytest.mark.parametrize(
    "words",
    [["-s", "nu-svc"], ["-t", "sigmoid", "-g", 0.1], ["-s", "svr"], ["-s", "one-class"]],
    ids=str,
)
def test_other_tasks_have_no_bounds(tmp_path: Path, words: list[object]) -> None:
    learnt = learn("randsvm", overlapping(60, 1).save(tmp_path / "d"), tmp_path / "m", *words)
    assert learnt.outcome["leave_one_out"] is None
    assert "xi_alpha_error" not in learnt.metadata


def test_three_classes_have_no_bounds(tmp_path: Path) -> None:
    data = Data(*oracle.clouds(90, 0, 3)).save(tmp_path / "d")
    for words in ([], ["--multiclass", "ovr"]):
        learnt = learn("randsvm", data, tmp_path / "m", *words)
        assert "xi_alpha_error" not in learnt.metadata


def test_a_reduced_machine_has_the_bounds_of_the_full_one(tmp_path: Path) -> None:
    data = overlapping(150, 2)
    full = recorded(data, tmp_path, "-g", 0.5)
    assert recorded(data, tmp_path, "-g", 0.5, "--reduce", 10) == full
