"""--calibration: isotonic and temperature probabilities are those of scikit-learn and scipy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import oracle
import pytest
from fixtures import Predict
from learning import Data, gaussians, learn
from libsvm import svmutil
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.isotonic import IsotonicRegression

from randsvm.errors import ModelError, ParameterError
from randsvm.estimators import SVC
from randsvm.models.calibration import Isotonic, Temperature
from randsvm.models.load import load
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params
from randsvm.training import probabilities

KINDS = ["isotonic", "temperature"]


def noisy(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return f with ties, y and weights."""
    rng = np.random.default_rng([seed, classes])
    y = rng.integers(0, classes, rows)
    f = np.round(rng.normal(size=(rows, classes)) + 0.8 * (y[:, None] == np.arange(classes)), 1)
    return f, y, rng.integers(1, 4, rows) / 2


def targets(own: np.ndarray, classes: int, weights: np.ndarray) -> np.ndarray:
    """Return Platt's targets of every class, (n, classes), by a loop over classes."""
    found = np.empty((len(own), classes))
    for index in range(classes):
        count = weights[own == index].sum()
        rows = own == index
        found[rows] = 1 / (count + 2) / (classes - 1)
        found[rows, index] = (count + 1) / (count + 2)
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_isotonic_is_that_of_scikit_learn(weighted: bool) -> None:
    values, y, weights = noisy(400, 2)
    f, positive = np.round(values[:, 0] - values[:, 1], 1), y == 0
    given = weights if weighted else None
    knots = probabilities.fit_isotonic(f, positive, given)
    target = targets(y, 2, weights if weighted else np.ones(400))[:, 0]
    peer = IsotonicRegression(out_of_bounds="clip").fit(f, target, sample_weight=given)
    at = np.linspace(f.min() - 1, f.max() + 1, 997)
    assert np.interp(at, *knots) == pytest.approx(peer.predict(at), abs=1e-12)
    assert knots.shape[1] < len(np.unique(f))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_the_temperature_minimises_the_log_loss(classes: int, weighted: bool) -> None:
    f, y, weights = noisy(300, classes)
    given = weights if weighted else None
    if classes == 2:
        f = np.column_stack([f[:, 0] - f[:, 1], np.zeros(300)])
    found = probabilities.fit_temperature(f, y, given)
    each = weights if weighted else np.ones(300)
    target = targets(y, classes, each)

    def loss(log_scale: float) -> float:
        z = np.exp(log_scale) * f
        return float(each @ (logsumexp(z, axis=1) - (target * z).sum(axis=1)))

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    assert -np.log(found) == pytest.approx(best.x, abs=1e-5)


def test_a_temperature_exists_for_perfect_and_for_useless_values() -> None:
    y = np.arange(40) % 2
    f = np.where(y == 0, 1.0, -1.0)
    for sign in (1, -1, 0):
        logits = np.column_stack([sign * f, np.zeros(40)])
        found = probabilities.fit_temperature(logits, y, None)
        assert 0 < found < np.inf
        p = Temperature(found).columns(np.array([[1.0]]))[0, 0]
        expected = 21 / 22 if sign == 1 else 0.5
        assert p == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("algorithm", "words", "classes"),
    [
        ("randsvm", [], 2),
        ("randsvm", [], 3),
        ("randsvm", ["--multiclass", "ovr"], 3),
        ("randsvm", ["--components", 50], 3),
        ("sgd", [], 2),
        ("sgd", [], 3),
    ],
)
def test_probabilities_are_written_and_read_again(
    tmp_path: Path, predict: Predict, algorithm: str, words: list[object], classes: int, kind: str
) -> None:
    train, test = (Data(*oracle.clouds(150, seed, classes)) for seed in (0, 1))
    path = train.save(tmp_path / "d")
    learnt = learn(algorithm, path, tmp_path / "m", "-b", 1, "--calibration", kind, *words)
    assert f"--calibration {kind}" in learnt.metadata["configuration"]
    predicted = predict(test.save(tmp_path / "t"), learnt.model, "-b", 1)
    labels = predicted.lines[0].split()[1:]
    p = np.array([line.split()[1:] for line in predicted.lines[1:]], float)
    assert p.sum(axis=1) == pytest.approx(1, abs=1e-4)
    said = np.array([line.split()[0] for line in predicted.lines[1:]], float)
    assert (np.array(labels, float)[p.argmax(axis=1)] == said).mean() > 0.99
    assert np.mean(said == test.y) > 0.6
    model = load(str(learnt.model))
    assert model.calibration is not None and model.sigmoid is None
    model.save(str(tmp_path / "again"))
    again = load(str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == learnt.model.read_bytes()
    f = np.random.default_rng(0).normal(size=(20, {2: 1, 3: 3}[classes]))
    np.testing.assert_array_equal(again.probabilities(f), model.probabilities(f))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3])
def test_libsvm_reads_the_labels_and_finds_no_probabilities(
    tmp_path: Path, predict: Predict, classes: int, kind: str
) -> None:
    data = Data(*oracle.clouds(150, 0, classes))
    path = data.save(tmp_path / "d")
    learnt = learn("randsvm", path, tmp_path / "m", "-b", 1, "--calibration", kind)
    model = svmutil.svm_load_model(str(learnt.model))
    assert not model.is_probability_model()
    y, rows = svmutil.svm_read_problem(str(path))
    said, _, _ = svmutil.svm_predict(y, rows, model, "-q")
    assert said == [float(line) for line in predict(path, learnt.model).lines]


@pytest.mark.parametrize("kind", KINDS)
def test_a_calibrator_improves_overconfident_values(kind: str) -> None:
    """The decision values are those of the right logits, times 5."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=20000)
    y = np.where(rng.random(20000) < 1 / (1 + np.exp(-logits)), 0, 1)
    fitted = probabilities.fit_calibrator(kind, 5 * logits[:, None], y, None, False)["calibration"]
    p = fitted.classes(5 * logits[:, None])[:, 0]
    assert np.abs(p - 1 / (1 + np.exp(-logits))).mean() < 0.02


def test_estimators_have_the_parameter() -> None:
    data = gaussians(200)
    found = {}
    for kind in ("sigmoid", *KINDS):
        machine = SVC(probability=True, calibration=kind).fit(data.X, data.y)
        p = machine.predict_proba(data.X)
        assert p.sum(axis=1) == pytest.approx(1)
        assert (machine.classes_[p.argmax(axis=1)] == machine.predict(data.X)).mean() > 0.9
        assert machine.probA_.shape == ((1,) if kind == "sigmoid" else (0,))
        found[kind] = p
    assert np.abs(found["sigmoid"] - found["isotonic"]).max() > 1e-3
    with pytest.raises(ValueError, match="calibration"):
        SVC(probability=True, calibration="no").fit(data.X, data.y)


def test_options_that_do_not_go_together_are_refused() -> None:
    for given in ({}, {"task": "svr", "probability": True}, {"task": "one-class"}):
        with pytest.raises(ParameterError, match="--calibration isotonic is for"):
            Params(calibration="isotonic", **given)
    with pytest.raises(ParameterError, match="--loss log"):
        SgdParams(calibration="isotonic", probability=True, loss="log")
    with pytest.raises(ParameterError, match="--conformal is not for"):
        Params(task="one-class", conformal=True)


def test_damaged_calibrators_are_refused(tmp_path: Path) -> None:
    path = gaussians(60).save(tmp_path / "d")
    model = load(str(learn("randsvm", path, tmp_path / "m", "-b", 1).model))
    rising = np.array([[0.0, 1.0], [0.2, 0.7]])
    bad = {
        "ascending": Isotonic((rising[:, ::-1],)),
        "columns": Isotonic((rising, rising)),
        "temperature above 0": Temperature(-1.0),
    }
    for message, calibrator in bad.items():
        replace(model, sigmoid=None, calibration=calibrator).save(str(tmp_path / "bad"))
        with pytest.raises(ModelError, match=message):
            load(str(tmp_path / "bad"))
