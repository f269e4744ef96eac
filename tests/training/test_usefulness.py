"""Test the note that a model is useless in spite of a small gap, and where it does not appear."""

import signal
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from trainings import CONSTANT_DECISION, OVERFITTED, POOR_FIT_NOTICES

import randsvm
from randsvm.errors import Interrupted
from randsvm.events import Notice

N, D = 1200, 12


def make_rows(n=N):
    return np.random.default_rng(0).normal(size=(n, D)).round(3)


def noise(n=N):
    return np.random.default_rng(1).normal(size=n)


def one_large(X):
    """Return rows with one unscaled feature."""
    X = X.copy()
    X[:, 3] *= 1e5
    return X


def curved(X):
    return np.where(X[:, 0] + X[:, 1] ** 2 - 1 + noise(len(X)) / 2 > 0, 1, -1)


def thirds(X):
    return np.searchsorted([-0.5, 0.5], X[:, 0])


def rare(X):
    return np.where(X[:, 0] > 1.3, 1, -1)


def slope(X):
    return X[:, 0] + noise(len(X)) / 2


def notes(X, y, **options):
    emitted = []

    def watch(event):
        if isinstance(event, Notice) and event.text in POOR_FIT_NOTICES:
            emitted.append(event.text)

    return randsvm.train(randsvm.Arrays(X, y), watch=watch, **options), emitted


@pytest.mark.parametrize(
    "change, labels, options, text",
    [
        (one_large, curved, {}, OVERFITTED),
        (one_large, rare, {}, OVERFITTED),
        (one_large, thirds, {}, OVERFITTED),
        (one_large, thirds, {"multiclass": "ovr"}, OVERFITTED),
        (one_large, curved, {"task": "nu-svc"}, OVERFITTED),
        (one_large, slope, {"task": "svr"}, OVERFITTED),
        (np.array, curved, {"gamma": 5.0}, OVERFITTED),
        (np.array, curved, {"gamma": 0.0}, CONSTANT_DECISION),
        (np.array, rare, {"gamma": 1e-9}, CONSTANT_DECISION),
        (np.array, slope, {"gamma": 0.0, "task": "svr"}, CONSTANT_DECISION),
        (np.array, curved, {"gamma": 0.0, "kernel": "poly", "coef0": 1.0}, CONSTANT_DECISION),
    ],
)
@pytest.mark.parametrize("n", [N, 2 * N])
def test_a_model_that_fails_on_held_out_rows_is_noted(
    change,
    labels,
    options,
    text,
    n,
):
    X, test = change(make_rows(n + 500)[:n]), change(make_rows(n + 500)[n:])
    y, truth = labels(X), labels(test)
    fitted, emitted = notes(X, y, sample_size=500 if n > N else None, **options)
    assert emitted == [text]
    assert fitted.gap <= 0.001
    predicted = fitted.predict(test)
    if options.get("task") == "svr":
        assert np.mean((predicted - truth) ** 2) > 0.9 * truth.var()
    else:
        majority = max(np.mean(truth == label) for label in set(truth.tolist()))
        assert np.mean(predicted == truth) < majority + 0.1


def test_fit_warns_of_a_useless_model():
    X = one_large(make_rows(400))
    with pytest.warns(UserWarning, match="try scaled features"):
        randsvm.SVC(gamma="auto").fit(X, curved(X))
    with pytest.warns(UserWarning, match="try scaled features"):
        randsvm.SVR(gamma="auto").fit(X, slope(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("error", ConvergenceWarning)
        randsvm.SVC(gamma="auto").fit(make_rows(400), curved(make_rows(400)))


def test_a_signal_during_the_folds_of_probabilities_repeats_no_note():
    """The interrupted run has reported on its solutions already."""
    X, said = make_rows(), []

    def watch(event):
        if isinstance(event, Notice):
            said.append(event.text)
        elif OVERFITTED in said:
            raise Interrupted(signal.SIGINT)

    with pytest.raises(Interrupted):
        randsvm.train(randsvm.Arrays(one_large(X), curved(X)), watch=watch, probability=True)
    assert said.count(OVERFITTED) == 1
