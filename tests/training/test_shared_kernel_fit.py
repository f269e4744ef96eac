"""Test folds that share kernel values against scikit-learn's machines on the same rows."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, SVR
from task_sets import GAMMA, SETS, open_dataset

from randsvm.models.decisions import class_pairs, votes
from randsvm.parameters.rounds import OsunaParams, RandsvmParams, StopParams
from randsvm.parameters.run import Resources, Search
from randsvm.parameters.svm import Params
from randsvm.training import kernel_machine
from randsvm.training.job import Job
from randsvm.training.run import LabelledData
from randsvm.training.search import SharedKernelFit

# The set, the parameters, and scikit-learn's machine with the same ones.
MACHINES = {
    "two classes": ("svc", {}, SVC(gamma=GAMMA)),
    "large C": ("svc", {"C": 1000.0}, SVC(gamma=GAMMA, C=1000.0)),
    "polynomial": (
        "svc",
        {"kernel": "poly", "coef0": 1.0},
        SVC(kernel="poly", gamma=GAMMA, coef0=1.0),
    ),
    "linear": ("svc", {"kernel": "linear"}, SVC(kernel="linear")),
    "class weights": (
        "svc",
        {"weights": (("-1", 3.0),)},
        SVC(gamma=GAMMA, class_weight={-1: 3.0}),
    ),
    "several": ("several", {}, SVC(gamma=GAMMA, decision_function_shape="ovo")),
    "weights of several": (
        "several",
        {"weights": (("2", 4.0),)},
        SVC(gamma=GAMMA, decision_function_shape="ovo", class_weight={2: 4.0}),
    ),
    "one against the rest": (
        "several",
        {"multiclass": "ovr"},
        OneVsRestClassifier(SVC(gamma=GAMMA)),
    ),
    "regression": ("svr", {"task": "svr"}, SVR(gamma=GAMMA)),
}
# LIBSVM's tolerance is 0.001 in both, with kernel values of another precision.
CLOSE = 5e-3


def shared_fit(D, params, algorithm=None, **job):
    """Return the preferred fits of a search on D, and the resolved parameters."""
    own = Job(StopParams(), resources=Resources(jobs=1), search=Search(folds=3), **job)
    name = "osuna" if isinstance(algorithm, OsunaParams) else "randsvm"
    make, params, own = kernel_machine.prepare(name, algorithm or RandsvmParams(), params, own)
    names = tuple(D.summary.names) if params.prediction_type == "svc" else ()
    trainer = make(LabelledData(D, names, tuple(D.summary.values)), own)
    return trainer.search_fits()[0], trainer.resolved(params)


def expected_f(machine, X, order):
    """Return f as the package has it. order: the classes as class indices of the package."""
    f = machine.decision_function(X) if hasattr(machine, "classes_") else machine.predict(X)
    if f.ndim == 1:
        sign = 1 if len(order) < 2 or order[0] == 1 else -1
        return sign * f[:, None]
    if isinstance(machine, OneVsRestClassifier):
        return f[:, np.argsort(order)]
    i, j = class_pairs(len(order))
    ours = np.empty_like(f)
    for column, (first, second) in enumerate(zip(order[i], order[j], strict=True)):
        both = sorted([first, second])
        at = [k for k, pair in enumerate(zip(i, j, strict=True)) if list(pair) == both]
        ours[:, at[0]] = f[:, column] if first < second else -f[:, column]
    return votes(ours > 0, ~(ours > 0), len(order))


@pytest.mark.parametrize("name", MACHINES)
def test_decision_values_equal_those_of_scikit_learn(tmp_path, name):
    kind, given, machine = MACHINES[name]
    path = oracle.write_svmlight(tmp_path / "d", *SETS[kind])
    y, X = SETS[kind]
    fold = np.random.default_rng(1).integers(3, size=len(y))
    with open_dataset(path, kind) as D:
        fits, params = shared_fit(D, Params(**{"gamma": GAMMA, **given}))
        assert isinstance(fits, SharedKernelFit)
        assert fits.suits(D, [params])
        classes = np.unique(y) if params.prediction_type == "svc" else y[:0]
        # The targets that D has.
        y = y if params.prediction_type == "svc" else D.labels()
        order = np.array([int(D.labels()[y == one][0]) for one in classes])
        for part in range(3):
            held = fold == part
            # Rows may be neither trained on nor held out.
            training = ~held & (np.arange(len(y)) % 10 > 0)
            machine.fit(X[training], y[training])
            wanted = expected_f(machine, X[held], order)
            found = fits.fit(D, params, None, training, held).f
            if name.endswith("several"):
                assert np.mean(found.argmax(axis=1) == wanted.argmax(axis=1)) > 0.98
            else:
                scale = max(1.0, float(np.abs(wanted).max()))
                assert found == pytest.approx(wanted, abs=CLOSE * scale)


def test_a_class_without_training_rows_is_never_predicted(tmp_path):
    path = oracle.write_svmlight(tmp_path / "d", *SETS["several"])
    with open_dataset(path, "several") as D:
        fits, params = shared_fit(D, Params(gamma=GAMMA))
        held = D.labels() == 1
        f = fits.fit(D, params, None, ~held, held).f
        assert set(f.argmax(axis=1).tolist()) <= {0, 2}
        only = D.labels() == 2
        f = fits.fit(D, params, None, only, ~only).f
        assert set(f.argmax(axis=1).tolist()) == {2}
