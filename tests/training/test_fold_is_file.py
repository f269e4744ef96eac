"""Test that the fit of a fold or a subset is the fit of a file with just those rows.

Values that the whole file fixes before (gamma, scaling, labels) are given to both.
"""

import numpy as np
import oracle
import pytest
from trainings import decision_of_part, refuse_some_writes

import randsvm
from randsvm.events import Notice

SVC = {"gamma": 0.7, "gap": 1e-5}
SGD = {"algorithm": "sgd", "epochs": 20}
# Name -> what is trained, options, and how far apart decision values may be.
FITS = {
    "svc": ("two", {**SVC, "C": 3}),
    "svc, class weights": ("two", {**SVC, "C": 3, "weights": {"1": 4}}),
    "svc, balanced": ("two", {**SVC, "C": 3, "weights": "balanced"}),
    "svc, weights of rows": ("weighted", {**SVC, "C": 3}),
    "svc, balanced and weights of rows": ("weighted", {**SVC, "weights": "balanced"}),
    "svc, three classes, balanced": ("three", {**SVC, "weights": "balanced"}),
    "svc, one against the rest": ("three", {**SVC, "multiclass": "ovr", "weights": "balanced"}),
    "nu-svc": ("two", {**SVC, "task": "nu-svc", "nu": 0.3}),
    "nu-svc, three classes": ("three", {**SVC, "task": "nu-svc", "nu": 0.2}),
    "one-class": ("two", {**SVC, "task": "one-class", "nu": 0.2}),
    "svr": ("targets", {**SVC, "task": "svr"}),
    "nu-svr": ("targets", {**SVC, "task": "nu-svr", "nu": 0.4}),
    "random features": ("two", {**SVC, "components": 30}),
    "osuna": ("two", {**SVC, "algorithm": "osuna"}),
    "sgd, C": ("two", {**SGD, "C": 1}),
    "sgd, lambda": ("two", {**SGD, "lambda_": 1e-2}),
    "sgd, lambda and gap": ("two", {**SGD, "lambda_": 1e-2, "gap": 1e-6}),
    "sgd, C and gap": ("two", {**SGD, "C": 0.1, "gap": 1e-6}),
    "sgd, balanced and gap": ("two", {**SGD, "C": 0.1, "gap": 1e-6, "weights": "balanced"}),
    "sgd, three classes": ("three", {**SGD, "lambda_": 1e-2, "weights": "balanced"}),
    "sgd, weights of rows": ("weighted", {**SGD, "lambda_": 1e-2, "gap": 1e-6}),
    "sgd, random features": ("two", {**SGD, "kernel": "rbf", "gamma": 0.7, "components": 30}),
    "sgd, svr": ("targets", {**SGD, "task": "svr", "lambda_": 1e-2, "gap": 1e-6}),
    "sgd, one-class": ("two", {**SGD, "task": "one-class", "nu": 0.2}),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Write sets of 300 rows, and files of their first rows in a part; the classes are uneven."""
    folder = tmp_path_factory.mktemp("parts")
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 3)).round(3)
    part = rng.random(300) < 0.6 - 0.35 * (X[:, 0] > 0)
    # Classes are in the order of their first rows.
    part[:20] = True
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=300) > 0, 1, -1)
    classes = 1 + (X[:, 1] > 0.6) + 2 * (X[:, 0] > 0.8)
    classes = np.minimum(classes, 3)
    weights = rng.integers(1, 5, 300)
    sets = {"two": y, "three": classes, "targets": (2 * X[:, 0] - X[:, 2]).round(3)}
    for name, labels in sets.items():
        oracle.write_svmlight(folder / name, labels, X)
        oracle.write_svmlight(folder / f"{name}.part", labels[part], X[part])
    lines = (folder / "two").read_text().splitlines()
    lines = [
        line.replace(" ", f" cost:{weight} ", 1)
        for line, weight in zip(lines, weights, strict=True)
    ]
    (folder / "weighted").write_text("\n".join(lines) + "\n")
    some = [line for line, chosen in zip(lines, part, strict=True) if chosen]
    (folder / "weighted.part").write_text("\n".join(some) + "\n")
    return folder, part, X


def test_a_fold_in_which_nu_is_infeasible_has_no_score(tmp_path, command):
    """Of 31 and 69 rows a fold trains on 24 and 56, where nu is at most 0.6."""
    rng = np.random.default_rng(3)
    y = rng.permutation(np.repeat([-1, 1], [31, 69]))
    oracle.write_svmlight(tmp_path / "d", y, rng.normal(size=(100, 2)) + 4 * y[:, None])
    words = "randsvm", "-s", "nu-svc", "-g", 0.5
    ended = command("train", *words, "-n", 0.61, "-v", 5, "d", "m")
    assert ended.returncode == 0
    assert "no accuracy of fold" in ended.stderr
    assert "-n 0.61 is infeasible" in ended.stderr
    ended = command("train", *words, "-n", 0.61, "-b", 1, "d", "m")
    assert ended.returncode == 0
    assert "-b 1: not fitted" in ended.stderr
    assert "probA" not in (tmp_path / "m").read_text()
    # The whole training is infeasible.
    ended = command("train", *words, "-n", 0.63, "d", "none")
    assert ended.returncode == 65
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("folds, code", [(4, 0), (3, 65)])
def test_a_metric_without_a_score_of_half_of_the_folds_chooses_nothing(
    tmp_path, command, folds, code
):
    """Rows in the order of time: both classes in the first half, then one."""
    rng = np.random.default_rng(0)
    y = np.where((np.arange(60) % 2 == 0) & (np.arange(60) < (40 if folds == 4 else 20)), -1, 1)
    oracle.write_svmlight(tmp_path / "d", y, rng.normal(size=(60, 2)) + y[:, None])
    words = "randsvm", "-c", "1,8", "-v", folds, "--groups", "time", "--select-by", "auc"
    ended = command("train", *words, "--log", "log", "d", "m")
    assert ended.returncode == code, ended.stderr
    assert "no AUC of fold" in ended.stderr
    assert (tmp_path / "m").exists() == (code == 0)


def test_a_checkpoint_that_cannot_be_written_does_not_end_an_update(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    y = rng.choice([-1, 1], 30_000)
    oracle.write_svmlight(tmp_path / "d", y, rng.normal(size=(30_000, 2)) + y[:, None])
    randsvm.train(tmp_path / "d", tmp_path / "m", algorithm="sgd", epochs=1)
    expected = randsvm.train(tmp_path / "d", algorithm="sgd", update=str(tmp_path / "m"))
    heard = []

    def watch(event):
        if isinstance(event, Notice):
            heard.append(event.text)

    refuse_some_writes(monkeypatch, 1)
    options = {"algorithm": "sgd", "update": str(tmp_path / "m"), "checkpoint": 5_000}
    found = randsvm.train(tmp_path / "d", tmp_path / "new", watch=watch, **options)
    assert any("the update goes on" in text for text in heard)
    assert (found.model.w == expected.model.w).all()
    assert (randsvm.load(tmp_path / "new").model.w == expected.model.w).all()


@pytest.mark.parametrize("name", FITS)
def test_the_fit_of_a_part_is_the_fit_of_a_file_with_its_rows(inputs, name):
    folder, part, X = inputs
    data, options = FITS[name]
    own = {"algorithm": "randsvm", **options}
    alone = randsvm.train([folder / f"{data}.part"], **own)
    expected = alone.decision_function(X).reshape(len(X), -1)
    found, labels = decision_of_part(folder / data, part, X, **own)
    assert labels == alone.model.labels
    scale = max(1.0, float(np.abs(expected).max()))
    # Both end at a gap, from other starts; sgd draws other rows.
    loose = "sgd" in name and "gap" not in options
    assert np.abs(found - expected).max() <= (0.25 if loose else 0.02) * scale
