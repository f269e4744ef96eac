"""Permutation importance, against scikit-learn's and against exact values."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from commands import run_predict, run_train

import randsvm
from randsvm.errors import ContentError, ParameterError
from randsvm.models import importance as module
from randsvm.parameters.run import ImportanceParams, Resources


def made_set(path: Path, seed: int, rows: int, regression: bool) -> tuple[Path, Any, Any]:
    """Write rows whose label depends on features 1 and 3, and little on 2."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, 4)).round(3)
    X[random.random((rows, 4)) < 0.2] = 0
    t = 2 * X[:, 2] + X[:, 0] + 0.2 * X[:, 1]
    y = t.round(4) if regression else np.where(t + 0.3 * random.standard_normal(rows) > 0, 1, -1)
    path.write_text(
        "".join(
            f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(x) if v) + "\n"
            for label, x in zip(y.tolist(), X.tolist(), strict=True)
        )
    )
    return path, X, y


@pytest.mark.parametrize("task", ["svc", "svr", "sgd"])
def test_importances_are_those_of_scikit_learn(tmp_path: Path, task: str) -> None:
    inspection = pytest.importorskip("sklearn.inspection")
    dummy = pytest.importorskip("sklearn.dummy")
    regression = task == "svr"
    train, _, _ = made_set(tmp_path / "train", 1, 300, regression)
    test, X, y = made_set(tmp_path / "test", 2, 400, regression)
    words = ["sgd"] if task == "sgd" else ["-s", task, "-g", "0.3"]
    run_train(*words, "-q", train, tmp_path / "m")
    found = randsvm.importance(test, tmp_path / "m", params=ImportanceParams(repeats=30))
    fitted = randsvm.load(str(tmp_path / "m"))

    def score(_: object, X: Any, y: Any) -> float:
        predicted = fitted.predict(X)
        return -np.mean((predicted - y) ** 2) if regression else 100 * np.mean(predicted == y)

    theirs = inspection.permutation_importance(
        dummy.DummyClassifier(), X, y, scoring=score, n_repeats=30, random_state=0
    )
    assert found.score == pytest.approx(abs(score(None, X, y)), rel=1e-9)
    assert [one.feature for one in found.features][:2] == [3, 1]
    for one in found.features:
        mean = theirs.importances_mean[one.feature - 1]
        own = theirs.importances_std[one.feature - 1] / 29**0.5
        assert abs(one.importance - mean) <= 4 * np.hypot(own, one.standard_error) + 1e-12
        assert one.standard_error == pytest.approx(own, rel=0.6, abs=0.02)


@pytest.mark.parametrize("words", ["", "-t linear", "--multiclass ovr", "-s nu-svc", "-b 1", "sgd"])
def test_importances_of_several_classes_begin_at_the_score_of_a_prediction(
    tmp_path: Path, words: str
) -> None:
    y, X = oracle.clouds(240, 0, 4)
    data = oracle.write_svmlight(tmp_path / "d", y, X)
    run_train(*words.split(), "-q", data, tmp_path / "m")
    labels = randsvm.load(str(tmp_path / "m")).predict(X)
    found = randsvm.importance(data, tmp_path / "m", params=ImportanceParams(repeats=3))
    assert found.score == pytest.approx(100 * np.mean(labels == y), rel=1e-9)
    assert max(one.importance for one in found.features) > 5


def test_the_loss_of_a_linear_regression_is_known(tmp_path: Path) -> None:
    """Shuffling feature j adds 2 w_j^2 var_j to the mean squared error, for independent rows."""
    data, X, _ = made_set(tmp_path / "train", 1, 3000, True)
    run_train("-s", "svr", "-t", "linear", "-p", "0.001", "-q", data, tmp_path / "m")
    found = randsvm.importance(data, tmp_path / "m", params=ImportanceParams(repeats=10))
    expected = {3: 2 * 4, 1: 2 * 1, 2: 2 * 0.04, 4: 0.0}
    for one in found.features:
        wanted = expected[one.feature] * X[:, one.feature - 1].var()
        assert one.importance == pytest.approx(wanted, rel=0.1, abs=1e-3)


def test_blocks_groups_and_threads_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _, _ = made_set(tmp_path / "train", 1, 500, False)
    run_train("-q", data, tmp_path / "m")
    one = randsvm.importance(data, tmp_path / "m", resources=Resources(jobs=1))
    monkeypatch.setattr(module, "COLUMN_BYTES", 1)
    two = randsvm.importance(data, tmp_path / "m", resources=Resources(jobs=2))
    assert one.features == two.features
    other = randsvm.importance(data, tmp_path / "m", params=ImportanceParams(seed=1))
    assert one.features != other.features
    # The rows of two files are those of one.
    lines = data.read_text().splitlines(keepends=True)
    (tmp_path / "a").write_text("".join(lines[:200]))
    (tmp_path / "b").write_text("".join(lines[200:]))
    assert (
        randsvm.importance([tmp_path / "a", tmp_path / "b"], tmp_path / "m").features
        == one.features
    )


def test_the_command_prints_a_table_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, _, _ = made_set(tmp_path / "train", 1, 200, False)
    run_train("-q", data, tmp_path / "m")
    run_predict("--importance", "--repeats", "3", "-q", data, tmp_path / "m")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["feature", "loss", "of", "accuracy", "standard", "error"]
    assert lines[1].split()[0] == "3"
    run_predict("--importance", "--repeats", "3", "--report", "json", data, tmp_path / "m")
    record = json.loads(capsys.readouterr().out)
    assert record["event"] == "importances"
    assert record["features"][0]["feature"] == 3
    assert f"{record['features'][0]['importance']:.6g}" == lines[1].split()[1]


def test_unusable_input_is_refused(tmp_path: Path) -> None:
    data, _, _ = made_set(tmp_path / "train", 1, 100, False)
    run_train("-q", data, tmp_path / "m")
    (tmp_path / "unlabelled").write_text("? 1:1\n? 2:1\n")
    with pytest.raises(ContentError, match="expected labelled rows, found none"):
        randsvm.importance(tmp_path / "unlabelled", tmp_path / "m")
    os.mkfifo(tmp_path / "pipe")
    for stream in ("-", tmp_path / "pipe"):
        with pytest.raises(ParameterError, match="several times"):
            randsvm.importance(stream, tmp_path / "m")
    with pytest.raises(ParameterError, match="writes no file"):
        run_predict("--importance", data, tmp_path / "m", tmp_path / "out")
