"""Callbacks of scikit-learn 1.9: what they see of each round, and how they end a fit."""

import contextlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_estimators import INEXACT, small

from randsvm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM

callback = pytest.importorskip("sklearn.callback")


class Recorder:
    """A callback that keeps the fitted estimators of all tasks.

    stop: the number of rounds after which it ends the fit; error: what it raises there instead
    """

    def __init__(self, stop=None, error=None):
        self.stop, self.error = stop, error
        self.tasks, self.begun, self.is_over = [], 0, False

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        self.is_over = True

    def on_fit_task_begin(self, estimator, context):
        self.begun += 1

    def on_fit_task_end(
        self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None
    ):
        self.tasks.append((context.task_name, fitted_estimator, X, y, metadata))
        if len(self.tasks) == self.stop and self.error is not None:
            raise self.error
        return len(self.tasks) == self.stop

    @property
    def rounds(self):
        return [machine for name, machine, *_ in self.tasks if name == "round"]


def wavy(n=2000):
    """Rows of a regression that takes several rounds, and its estimator."""
    X = np.random.default_rng(0).uniform(-1, 1, size=(n, 2))
    return X, np.sin(4 * X[:, 0]) + X[:, 1] ** 2, SVR(C=10, gamma=5, epsilon=0.01)


def objectives(machine, X, y):
    """P and D of an SVR with the rbf kernel, from its coefficients alone."""
    beta = np.zeros(len(X))
    beta[machine.support_] = machine.dual_coef_[0]
    squares = np.square(X).sum(axis=1)
    distances = squares[:, None] + squares - 2 * X @ X.T
    u = np.exp(-machine.gamma * distances) @ beta
    losses = np.maximum(np.abs(y - u - machine.intercept_) - machine.epsilon, 0)
    primal = beta @ u / 2 + machine.C * losses.sum()
    return primal, y @ beta - machine.epsilon * np.abs(beta).sum() - beta @ u / 2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_each_round_has_the_model_of_a_fit_that_ends_there():
    X, y, machine = wavy()
    seen = Recorder()
    machine.set_callbacks(seen).fit(X, y)
    *rounds, last = seen.rounds
    assert len(rounds) == machine.n_iter_ > 2
    assert seen.begun == len(seen.tasks) == len(rounds) + 2
    assert seen.is_over
    assert not hasattr(machine, "_callback_fit_ctx")
    for number, so_far in enumerate(rounds, 1):
        primal, dual = objectives(so_far, X, y)
        outcome = so_far.model_.outcome
        assert outcome.primal == pytest.approx(primal, rel=1e-4)
        # D is that of the best round.
        assert outcome.dual >= dual - 1e-4 * primal
        assert so_far.gap_ == pytest.approx(abs(outcome.primal - outcome.dual) / outcome.primal)
        assert so_far.n_iter_ == number
        # No file of it may claim a gap.
        assert so_far.model_.info()["certificate"] == "none"
        assert so_far.model_.info()["gap"] is None
        shorter = SVR(**machine.set_params(max_iter=number).get_params()).fit(X, y)
        assert np.array_equal(so_far.predict(X), shorter.predict(X))
    assert last.gap_ == machine.gap_ <= 1e-3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sparse", [False, True])
def test_estimators_of_earlier_steps_keep_their_weights(sparse):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1200)) * (rng.random((200, 1200)) < 0.05)
    X = csr_array(X) if sparse else X[:, :20]
    y = X.sum(axis=1) + rng.normal(size=200) > 0
    seen = Recorder()
    LinearSVC(tol=1e-6, loss="hinge").set_callbacks(seen).fit(X, y)
    for machine in seen.rounds:
        w, outcome = machine.coef_[0], machine.model_.outcome
        losses = np.maximum(1 - np.where(y, 1, -1) * (X @ w + machine.intercept_), 0)
        primal = w @ w / 2 + losses.sum()
        assert outcome.dual == pytest.approx((1 - outcome.gap) * primal, rel=1e-5)
    assert len(seen.rounds) > 3


KINDS = [
    SVC(gamma=20),
    NuSVC(nu=0.5, gamma=5),
    SVR(gamma=5),
    NuSVR(gamma=5),
    OneClassSVM(nu=0.1),
    LinearSVC(),
    LinearSVR(),
    LinearSVC(loss="log", max_iter=5),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("machine", KINDS, ids=repr)
def test_callbacks_do_not_change_a_fit(machine):
    X, y = small(300)
    weight = np.linspace(0.5, 2, len(y))
    plain = machine.fit(X, y, sample_weight=weight).predict(X)
    seen = Recorder()
    machine.set_callbacks(seen).fit(X, y, sample_weight=weight)
    assert np.array_equal(machine.predict(X), plain)
    assert machine.n_iter_ <= len(seen.rounds) <= machine.n_iter_ + 1
    for name, so_far, seen_X, seen_y, metadata in seen.tasks:
        assert name in ("fit", "round")
        assert seen_X is X
        assert seen_y is y
        assert metadata["sample_weight"] is weight
        assert so_far.predict(X).shape == y.shape
    for _, so_far, *_ in seen.tasks[-2:]:
        assert np.array_equal(so_far.predict(X), plain)
        assert so_far.gap_ == machine.gap_ or np.isnan(machine.gap_)
    machine.set_callbacks()


class PropagatedRecorder(Recorder):
    """A callback that tools of scikit-learn hand on to the estimators in them."""

    max_propagation_depth = None


@pytest.mark.filterwarnings("default")
@parametrize_with_checks(
    [kind(n_jobs=1).set_callbacks(Recorder()) for kind in (SVC, LinearSVR)],
    expected_failed_checks=lambda kind: INEXACT,
)
def test_checks_of_scikit_learn_pass_with_callbacks(estimator, check):
    check(estimator)


def test_a_callback_ends_a_fit_with_a_certified_model():
    X, y, machine = wavy()
    with warnings.catch_warnings():
        # Who ends a fit knows that the gap is missed.
        warnings.simplefilter("error")
        machine.set_callbacks(Recorder(stop=2)).fit(X, y)
    assert machine.n_iter_ == 2
    assert machine.stopped_ == "ended by a callback"
    assert machine.fit_status_ == 1
    primal, dual = objectives(machine, X, y)
    assert machine.gap_ > 1e-3
    assert primal <= machine.model_.outcome.primal * (1 + 1e-6)
    assert machine.model_.outcome.dual >= dual - 1e-6 * primal
    assert machine.model_.info()["certificate"] == "proven"


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_callback_ends_a_fit_of_several_pairs(n_jobs):
    X, y = make_blobs(1200, 3, centers=4, cluster_std=3, random_state=0)
    machine = SVC(gamma=0.1, n_jobs=n_jobs, decision_function_shape="ovo")
    machine.set_callbacks(Recorder(stop=1)).fit(X, y)
    assert machine.stopped_ == "ended by a callback"
    # Pairs that had no round have a constant decision value.
    varies = np.ptp(machine.decision_function(X), axis=0) > 0
    assert 1 <= varies.sum() <= 2 * n_jobs


@pytest.mark.parametrize("machine", [LinearSVC(tol=1e-8), LinearSVC(loss="log", tol=1e-14)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_callback_ends_the_steps_of_a_linear_machine(machine):
    X, y = small(300)
    machine.set_callbacks(Recorder(stop=2)).fit(X, y)
    assert machine.stopped_ == "ended by a callback"
    assert machine.n_iter_ == 2
    assert machine.model_.outcome.primal > 0


@pytest.mark.parametrize("error", [ValueError("enough"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("machine", [SVC(gamma=20), LinearSVC(loss="hinge")], ids=repr)
def test_an_error_of_a_callback_leaves_an_estimator_without_a_model(machine, error):
    X, y = small(300)
    machine.fit(X, y)
    seen = Recorder(stop=1, error=error)
    with pytest.raises(type(error)) as raised:
        machine.set_callbacks(seen).fit(X, y)
    assert raised.value is error
    assert str(error) in ("enough", "")
    assert seen.is_over
    with pytest.raises(NotFittedError):
        machine.predict(X)
    machine.set_callbacks().fit(X, y).predict(X)


def test_tools_of_scikit_learn_hand_callbacks_on():
    X, y = small(300)
    seen = PropagatedRecorder()
    model = make_pipeline(StandardScaler(), SVC(C=10)).set_callbacks(seen).fit(X, y)
    assert len(seen.rounds) == model[-1].n_iter_[0] + 1
    seen = PropagatedRecorder()
    GridSearchCV(SVC(), {"C": [1, 10]}, cv=2).set_callbacks(seen).fit(X, y)
    assert len(seen.rounds) >= 2 * (2 * 2 + 1)


def test_scores_and_bars_of_scikit_learn_work(capsys):
    X, y = small(300)
    monitor, callbacks = callback.ScoringMonitor(scoring="accuracy"), []
    with contextlib.suppress(ImportError):  # without rich
        callbacks = [callback.ProgressBar()]
    machine = SVC(gamma=20).set_callbacks(monitor, *callbacks).fit(X, y)
    scores = [one["accuracy"] for one in monitor.get_logs().data]
    assert len(scores) == machine.n_iter_[0] + 2
    assert scores[-1] == scores[0] == machine.score(X, y)
    if callbacks:
        assert "SVC - fit" in capsys.readouterr().out


def test_older_versions_of_scikit_learn_have_no_callbacks():
    program = (
        "import sys, warnings, sklearn.svm; sys.modules['sklearn.callback'] = None\n"
        "import randsvm\n"
        "X = [[0.0], [1.0], [2.0], [3.0]]\n"
        "warnings.simplefilter('error')\n"
        "print(randsvm.SVC().fit(X, [0, 0, 1, 1]).predict(X))\n"
        "randsvm.SVC().set_callbacks()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[0 0 1 1]\n"
    last = done.stderr.splitlines()[-1]
    assert last == "AttributeError: 'SVC' object has no attribute 'set_callbacks'"
