"""Test the metrics that a search selects by against scikit-learn's, and their losses of rows."""

from math import isnan

import numpy as np
import oracle
import pytest
from learning import gaussians, learn
from sklearn import metrics
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.svm import SVC, SVR
from task_sets import SETS
from trainings import (
    fit_sigmoid,
    folds_of,
    mean_and_error,
    open_task,
    score_of,
    significantly_worse,
    simplest_within_error,
)

from randsvm.events import Tried


def cross_fitted_loss(y, f, w):
    """Return scikit-learn's log loss of probabilities fitted to the other half of the rows."""
    p, half = np.empty(len(y)), np.zeros(len(y), bool)
    half[np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y != 0)])[::2]] = True
    for rows in (half, ~half):
        A, B = fit_sigmoid(f[~rows], y[~rows] == 0, w[~rows])
        p[rows] = 1 / (1 + np.exp(A * f[rows] + B))
    return float(metrics.log_loss(y == 0, p, sample_weight=w))


def said(f):
    return f.argmax(axis=1) if f.ndim == 2 else np.where(f > 0, 0, 1)


REFERENCES = {
    "accuracy": lambda y, f, w: 100 * metrics.accuracy_score(y, said(f), sample_weight=w),
    "balanced-accuracy": lambda y, f, w: (
        100 * metrics.balanced_accuracy_score(y, said(f), sample_weight=w)
    ),
    "auc": lambda y, f, w: metrics.roc_auc_score(y == 0, f, sample_weight=w),
    "f1": lambda y, f, w: metrics.f1_score(y, said(f), average="macro", sample_weight=w),
    "log-loss": cross_fitted_loss,
    "squared-error": lambda y, f, w: metrics.mean_squared_error(y, f, sample_weight=w),
    "absolute-error": lambda y, f, w: metrics.mean_absolute_error(y, f, sample_weight=w),
}


def rows_for(name, classes, rows=60):
    rng = np.random.default_rng([classes, rows])
    if name.endswith("error"):
        return rng.normal(size=rows), rng.normal(size=rows)
    y = np.minimum(rng.integers(classes + 1, size=rows), classes - 1).astype(float)
    if classes > 2:
        f = rng.normal(size=(rows, classes)) + 1.5 * np.eye(classes)[y.astype(int)]
        return y, f
    # With equal values.
    return y, np.round(rng.normal(size=rows) + 1 - 2 * y, 1) + 0.05


CASES = [
    (name, classes)
    for name in REFERENCES
    for classes in (2, 3)
    if classes == 2 or name in ("accuracy", "balanced-accuracy", "f1")
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("name", "classes"), CASES)
def test_scores_equal_scikit_learns(name, classes, weighted):
    y, f = rows_for(name, classes)
    w = np.random.default_rng(3).integers(1, 4, size=len(y)).astype(float)
    w = w if weighted else np.ones(len(y))
    found = score_of(name, classes, y, f, w if weighted else None)
    assert found.score == pytest.approx(REFERENCES[name](y, f, w), rel=1e-6)
    assert found.rows == len(y)


def right_values(name, y, f):
    """Return decision values by which each row is right: f for AUC is above or below all others."""
    if name.endswith("error"):
        return y
    if f.ndim == 1:
        return np.where(y == 0, 1e3, -1e3)
    return 1e3 * np.eye(f.shape[1])[y.astype(int)]


# The sigmoid of the log loss changes with the rows.
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("name", "classes"), [one for one in CASES if one[0] != "log-loss"])
def test_losses_of_rows_are_the_gain_of_the_score_if_they_were_right(name, classes, weighted):
    """Judged by scikit-learn, with a small part of a row that is predicted correctly."""
    y, f = rows_for(name, classes)
    w = np.random.default_rng(4).integers(1, 4, len(y)).astype(float)
    w = w if weighted else np.ones(len(y))
    found = score_of(name, classes, y, f, w)
    unit = -0.01 if "accuracy" in name else 1 if name.endswith("error") else -1

    def mean_loss(row, part):
        more = np.append(w, part * w[row])
        more[row] *= 1 - part
        values = np.concatenate([f, right_values(name, y, f)[[row]]])
        score = unit * REFERENCES[name](np.append(y, y[row]), values, more)
        return score if unit > 0 else 1 + score

    assert found.losses.mean() == pytest.approx(mean_loss(0, 0.0))
    gains = [len(y) * (mean_loss(row, 0.0) - mean_loss(row, 1e-6)) / 1e-6 for row in range(30)]
    # A constant makes the mean that of the score.
    assert found.losses[:30] - found.losses[0] == pytest.approx(
        np.array(gains) - gains[0], abs=1e-3
    )


def test_six_rows_of_a_rare_class_are_the_fewest_that_a_race_drops_by():
    """Also if all their differences are equal, so that their variance is 0."""
    for rare, expected in (2, []), (5, []), (6, [1]):
        y = (np.arange(200) < rare).astype(float)
        right, wrong = np.where(y == 0, 1.0, -1.0), np.ones(200)
        for name in "accuracy", "balanced-accuracy", "auc":
            losses = [score_of(name, 2, y, f).losses for f in (right, wrong)]
            if name == "auc":
                losses[1] = score_of(name, 2, y, -right).losses
            assert significantly_worse(losses, 200) == expected, (name, rare)


# ---- mean and standard error ---------------------------------------------------------------


def test_the_standard_error_is_that_of_the_mean():
    scores = [1.0, 2.0, 4.0, 5.0]
    mean, error = mean_and_error(scores, 4)
    assert mean == 3
    assert error == pytest.approx(float(np.std(scores, ddof=1)) / 2)
    # The same rows once more say nothing new.
    assert mean_and_error(scores * 3, 4) == pytest.approx((mean, error))
    assert isnan(mean_and_error([1.0], 4)[1])


def tried(C, gamma, score, error=1.0, **other):
    values = {"C": C, "gamma": gamma}
    given = {"resumed": False, "details": {}, "standard_error": error, **other}
    return Tried(values, "", "", [score], score, "accuracy", given.pop("rows", 9), 1, 1, **given)


def test_the_simplest_combination_within_one_standard_error_is_marked():
    best = tried(10, 1, 90)
    several = [
        best,
        tried(1, 2, 89.5),
        tried(1, 0.5, 89),
        tried(0.1, 1, 88.9),
        tried(0.01, 1, 89.5, dropped_after=1),
        tried(0.01, 0.1, 90, rows=5),
    ]
    assert simplest_within_error(several, 1) == {"C": 1, "gamma": 0.5}
    assert simplest_within_error([tried(10, 1, 90, float("nan"))], 1) is None
    errors = [tried(10, 1, 0.5, 0.1), tried(1, 1, 0.6), tried(0.1, 1, 0.61)]
    assert simplest_within_error(errors, -1) == {"C": 1, "gamma": 1}


@pytest.mark.parametrize(
    ("name", "simpler", "other"),
    [("C", 1, 2), ("gamma", 1, 2), ("lambda_", 2, 1), ("nu", 0.5, 0.2), ("epsilon", 0.5, 0.2)],
)
def test_the_simpler_of_two_values_fits_the_rows_less_closely(name, simpler, other):
    """A larger lambda = 1/(C n) is a smaller C, and a larger epsilon ignores more errors."""
    both = [tried(1, 1, 90)._replace(values={name: value}) for value in (other, simpler)]
    for several in both, both[::-1]:
        assert simplest_within_error(several, 1) == {name: simpler}


# ---- the command ----------------------------------------------------------------------------


def search(path, model, *words):
    return learn("randsvm", path, model, "-v", 3, *words)


@pytest.mark.parametrize(
    ("name", "scoring"),
    [
        ("balanced-accuracy", "balanced_accuracy"),
        ("auc", "roc_auc"),
        ("f1", "f1_macro"),
        ("absolute-error", "neg_mean_absolute_error"),
    ],
)
def test_a_search_selects_by_scikit_learns_score(tmp_path, name, scoring, capsys):
    kind = "svr" if name.endswith("error") else "svc"
    data = SETS["svr"] if kind == "svr" else gaussians(300)
    y, X = data
    path = tmp_path / "d"
    oracle.write_rows(path, y, X)
    grid = "-g", "0.01,0.5,20"
    found = search(path, tmp_path / "m", "-s", kind, "--no-racing", "--select-by", name, *grid)
    with open_task(path, kind) as D:
        (fold,) = folds_of(D, folds=3)
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    (searched,) = found.of("searched")
    scale = 100 if name == "balanced-accuracy" else 1
    expected = {}
    for gamma in (0.01, 0.5, 20):
        machine = SVR(gamma=gamma) if kind == "svr" else SVC(gamma=gamma)
        expected[gamma] = scale * np.abs(cross_val_score(machine, X, y, cv=splits, scoring=scoring))
    for one in searched["tried"]:
        scores = expected[one["values"]["gamma"]]
        assert one["scores"] == pytest.approx(scores.tolist(), rel=0.02)
        assert one["mean"] == pytest.approx(float(np.mean(one["scores"])))
        assert one["standard_error"] == pytest.approx(
            float(np.std(one["scores"], ddof=1) / np.sqrt(3))
        )
    choose = min if kind == "svr" else max
    best = choose(expected, key=lambda gamma: float(expected[gamma].mean()))
    assert searched["tried"][0]["values"] == {"gamma": best}
    assert f"-g {best:g} " in found.metadata["configuration"]
    assert f"--select-by {name}" in found.metadata["configuration"]
    own = searched["tried"][0]["score_name"]
    assert f"Cross Validation {own[0].upper()}{own[1:]} = " in capsys.readouterr().out


# ---- files that are sorted by class -----------------------------------------------------------


def sorted_by_class(path, share, shift):
    """Write 20,000 rows, the rarer class first, which most chunks have none of."""
    rng = np.random.default_rng(6)
    y = np.where(np.arange(20_000) < share * 20_000, 1.0, -1.0)
    X = rng.normal(size=(len(y), 4)).round(3)
    X[:, 0] = (X[:, 0] + shift * y).round(3)
    oracle.write_rows(path, y, X)
    return y, X


def test_the_log_loss_of_a_sorted_file_is_that_of_logistic_regression(tmp_path):
    y, X = sorted_by_class(tmp_path / "d", 0.5, 0.6)
    found = learn("sgd", tmp_path / "d", tmp_path / "m", "-v", 3, "--select-by", "log-loss")
    p = cross_val_predict(LogisticRegression(), X, y, cv=StratifiedKFold(3), method="predict_proba")
    (record,) = found.of("searched")[0]["tried"]
    assert record["score"] == pytest.approx(metrics.log_loss(y, p), rel=0.01)


@pytest.mark.parametrize("name", ["balanced-accuracy", "f1", "auc"])
def test_a_race_on_a_sorted_file_keeps_the_combination_that_tells_classes_apart(tmp_path, name):
    sorted_by_class(tmp_path / "d", 0.05, 0.6)
    kernel = "-t", "rbf", "-g", "1e-9,0.1", "--components", 50, "--epochs", 2, "-w1", 19
    words = *kernel, "-v", 3, "--select-by", name
    found = learn("sgd", tmp_path / "d", tmp_path / "m", *words)
    best, other = found.of("searched")[0]["tried"]
    assert best["values"] == {"gamma": 0.1}
    assert best["dropped_after"] is None
    assert other["dropped_after"] == 1
