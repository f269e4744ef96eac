"""Features that float32 rounds: labels and values are those of svm-predict on the text, whichever
way the rows come."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from commands import run_predict
from learning import learn
from libsvm import svmutil

ROWS = 400
OFFSETS = {"1e8": (1e8, 10.0), "seconds": (1.6e9, 1e5), "1e4": (1e4, 1.0), "1e6": (1e6, 1.0)}


class Files(NamedTuple):
    train: Path
    test: Path
    y: np.ndarray
    X: np.ndarray


def text_of(y, X):
    """nan: the row lacks the feature."""
    rows = [
        " ".join([f"{label:.9g}", *(f"{j}:{v!r}" for j, v in enumerate(x, 1) if v == v)])
        for label, x in zip(y.tolist(), X.tolist(), strict=True)
    ]
    return "\n".join([*rows, ""])


def rows_at(offset, spread, *, share=1.0, regression=False, seed=0):
    """share: of the features that a row has."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, 3))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0, 1.0, -1.0)
    if regression:
        y = np.sin(X[:, 0]) + X[:, 1]
    X = np.round(offset + spread * X, 3)
    X[rng.random(X.shape) >= share] = np.nan
    return y, X


def files(folder, offset, spread, **how):
    y, X = rows_at(offset, spread, **how)
    (folder / "train").write_text(text_of(y, X))
    test = rows_at(offset, spread, seed=1, **how)
    (folder / "test").write_text(text_of(*test))
    return Files(folder / "train", folder / "test", y, X)


def svm_predict(test, model):
    y, rows = svmutil.svm_read_problem(str(test))
    return np.array(svmutil.svm_predict(y, rows, svmutil.svm_load_model(str(model)), "-q")[0])


def predicted(test, model):
    run_predict("-q", test, model, model.with_suffix(".out"))
    return np.loadtxt(model.with_suffix(".out"))


RUNS = {
    "rbf": "-g {g}",
    "linear": "-t linear -h 0 --max-iterations 1",
    "poly": "-t poly -d 2 -g {p} --max-iterations 3",
    "one-class": "-s one-class -n 0.2 -g {g}",
    "nu-svc": "-s nu-svc -n 0.4 -g {g}",
}


@pytest.mark.parametrize("share", [1.0, 0.6], ids=["dense", "sparse"])
@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("at", OFFSETS)
def test_labels_are_those_of_svm_predict(tmp_path, at, words, share):
    offset, spread = OFFSETS[at]
    if ("linear" in words or "poly" in words) and offset > 1e4:
        pytest.skip("float64 itself cancels in sums of such products")
    data = files(tmp_path, offset, spread, share=share)
    options = words.format(g=0.5 / spread**2, p=1 / offset**2).split()
    run = learn("randsvm", data.train, tmp_path / "m", *options)
    np.testing.assert_array_equal(
        predicted(data.test, run.model), svm_predict(data.test, run.model)
    )


@pytest.mark.parametrize("features", [(), ("--components", 300)], ids=["kernel", "components"])
@pytest.mark.parametrize("at", OFFSETS)
def test_an_offset_changes_no_accuracy(tmp_path, at, features):
    """Of RBF, which differences alone count in."""
    offset, spread = OFFSETS[at]
    data = files(tmp_path, offset, spread)
    words = ("-g", 0.5 / spread**2, "-v", 3, *features)
    run = learn("randsvm", data.train, tmp_path / "m", *words)
    y = np.loadtxt(data.test, usecols=0)
    assert np.mean(predicted(data.test, run.model) == y) > 0.85
    (searched,) = run.of("searched")
    assert searched["tried"][0]["score"] > 80
