"""The estimators: scikit-learn's own checks, its tools around them, and LIBSVM as the truth."""

import os
import pickle
import re
from unittest import mock

import joblib
import numpy as np
import oracle
import pandas
import pytest
from commands import run_train
from learning import board
from libsvm import svmutil
from scipy import sparse
from scipy.optimize import minimize
from sklearn import config_context, datasets, svm
from sklearn.base import clone, is_regressor
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import randsvm
from randsvm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM
from randsvm.errors import ModelError, OutputError

# One thread: the machines of a test are too small for more.
CHECKED = [
    *(kind(n_jobs=1) for kind in (SVC, NuSVC, SVR, NuSVR, OneClassSVM)),
    *(kind(n_jobs=1) for kind in (LinearSVC, LinearSVR)),
]


# Nothing is skipped: scikit-learn's SVC skips what needs this variable, too.
@pytest.fixture(autouse=True)
def array_api():
    with mock.patch.dict(os.environ, SCIPY_ARRAY_API="1"):
        yield


# As scikit-learn's own machines. test_weights_of_rows_are_repeated_rows compares less strictly.
INEXACT = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "two trainings agree to their tolerance, not in 7 digits, and gamma='scale' counts rows",
)
IGNORES = {"check_class_weight_classifiers": "NuSVC ignores class_weight"}


@pytest.mark.filterwarnings("default")
@parametrize_with_checks(
    CHECKED,
    expected_failed_checks=lambda kind: INEXACT | (IGNORES if isinstance(kind, NuSVC) else {}),
)
def test_the_estimator_passes_every_check_of_scikit_learn(estimator, check):
    check(estimator)


def small(rows=300):
    y, X = board(rows)
    return oracle.as_float32(X), y.astype(int)


def dense_of(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix, pandas.DataFrame])
def test_an_svc_is_that_of_scikit_learn(layout):
    X, y = small()
    # LIBSVM adds up to its own tolerance.
    theirs = svm.SVC(gamma=5, tol=1e-5).fit(X, y)
    ours = SVC(gamma=5, gap=1e-6, tol=1e-5).fit(layout(X), y)
    assert 0 <= ours.gap_ <= 1e-6
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    assert np.allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)
    assert np.allclose(ours.intercept_, theirs.intercept_, atol=1e-3)
    dense = np.zeros((2, len(X)))
    for beta, machine in zip(dense, (ours, theirs), strict=True):
        beta[machine.support_] = dense_of(machine.dual_coef_)[0]
        assert machine.n_support_.tolist() == [(beta < 0).sum(), (beta > 0).sum()]
    assert np.allclose(*dense, atol=2e-2)
    assert (ours.predict(layout(X)) == theirs.predict(X)).mean() > 0.99


def test_a_run_that_ends_above_its_gap_warns():
    y, X = board(4000)
    with pytest.warns(ConvergenceWarning, match="iteration limit, with a gap of") as warned:
        machine = SVC(gamma=5, gap=1e-5, max_iter=1).fit(X, y)
    assert warned[0].filename == __file__
    assert machine.gap_ > 1e-5


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (SVC, {"kernel": "precomputed"}, "expected kernel values of each row with each"),
        (
            SVC,
            {"kernel": "cosine"},
            r"kernel: expected one of linear .*, found 'cosine'",
        ),
        (
            SVC,
            {"kernel": 3},
            "kernel: expected one of linear",
        ),
        (SVC, {"kernel": lambda X, Z: X}, r"kernel returned values of shape \(20, 2\), expected"),
        (SVC, {"C": 0}, "must be > 0"),
        (SVC, {"gamma": "median"}, "gamma must be a number, 'scale' or 'auto'"),
        (SVC, {"decision_function_shape": "all"}, "must be 'ovr' or 'ovo'"),
        (SVC, {"gap": 2}, "gap: must be"),
        (SVC, {"tol": -1}, "^tol: must be"),
        (SVR, {"max_iter": 0}, "^max_iter: must be"),
        (SVC, {"n_jobs": 0}, "^n_jobs: must be"),
        (SVC, {"class_weight": {1: 0.0}}, "^class_weight: must be"),
        (LinearSVC, {"tol": 0}, "^tol: must be"),
        (LinearSVC, {"penalty": "l1", "dual": True}, "Unsupported set .*: penalty='l1'"),
        (LinearSVC, {"penalty": "l1", "loss": "hinge"}, "Unsupported set .*: penalty='l1'"),
        (LinearSVC, {"penalty": "l0"}, "penalty must be 'l1' or 'l2'"),
        (LinearSVC, {"loss": "hinge", "dual": False}, "Unsupported set.*'hinge' needs the dual"),
        (LinearSVC, {"multi_class": "ovo"}, "multi_class must be"),
        (LinearSVR, {"loss": "hinge"}, "is epsilon-insensitive or squared-epsilon-ins"),
        (LinearSVR, {"dual": False}, "needs the dual"),
        (LinearSVR, {"epsilon": -1.0}, "epsilon"),
    ],
)
def test_bad_parameters_are_value_errors(kind, parameters, message):
    X, y = small(20)
    with pytest.raises(ValueError, match=message):
        kind(**parameters).fit(X, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_an_l1_penalty_gives_the_weights_of_scikit_learn(classes):
    """Without an intercept the problems are equal; with one scikit-learn penalises it, the less
    the larger intercept_scaling is."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 20))
    y = np.digitize(X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=150), [0.3, 1.5][: classes - 1])
    for scaling, fit_intercept in ((1.0, False), (1000.0, True)):
        both = [
            kind(
                penalty="l1", dual=False, C=0.05, tol=1e-7, max_iter=100_000, random_state=0,
                fit_intercept=fit_intercept, intercept_scaling=scaling,
            ).fit(X, y)
            for kind in (LinearSVC, svm.LinearSVC)
        ]  # fmt: skip
        ours, theirs = both
        assert ours.coef_ == pytest.approx(theirs.coef_, abs=2e-3)
        assert (ours.coef_ == 0).sum() > 10 * len(ours.coef_)
        assert ours.gap_ <= 1e-7
    with pytest.raises(ValueError, match="partial_fit"):
        ours.partial_fit(X, y)


WEIGHTED = {
    "SVC": {"C": 2.0},
    "NuSVC": {"nu": 0.3},
    "SVR": {"C": 2.0},
    "NuSVR": {"nu": 0.3, "C": 2.0},
    "OneClassSVM": {"nu": 0.2},
}


def values_of(machine, X):
    return machine.predict(X) if is_regressor(machine) else machine.decision_function(X)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix, pandas.DataFrame])
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_rows_are_repeated_rows(name, layout):
    """Weights below 0 count as 0."""
    X, y = small(80)
    weights = np.random.default_rng(0).integers(-2, 4, 80)
    machine = getattr(randsvm, name)(gamma=1.0, gap=1e-7, tol=1e-5, **WEIGHTED[name])
    weighted = clone(machine).fit(layout(X), y, sample_weight=weights)
    times = np.maximum(weights, 0)
    repeated = clone(machine).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    expected = values_of(repeated, X)
    found = values_of(weighted, layout(X))
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())
    # support_ counts the rows of X, those without weight included.
    assert (weights[weighted.support_] > 0).all()
    np.testing.assert_array_equal(dense_of(weighted.support_vectors_), X[weighted.support_])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (0, "all samples have zero or negative weights"),
        (-np.ones(20), "all samples have zero or negative weights"),
        (np.ones(19), r"sample_weight.shape == \(19,\), expected \(20,\)"),
        (np.ones((20, 2)), r"sample_weight.shape == \(20, 2\), expected"),
        (np.full(20, np.nan), "sample_weight contains NaN"),
        (np.full(20, np.inf), "sample_weight contains infinity"),
    ],
)
@pytest.mark.parametrize("name", [*WEIGHTED, "LinearSVC", "LinearSVR"])
def test_bad_weights_are_value_errors(name, weights, message):
    X, y = small(20)
    with pytest.raises(ValueError, match=message):
        getattr(randsvm, name)().fit(X, y, sample_weight=weights)


def dual_objective(X, y):
    """The dual objective of scikit-learn's SVC with the linear kernel and C = 1, near optimal."""
    K = X @ X.T
    machine = svm.SVC(kernel="precomputed", tol=1e-2).fit(K, y)
    beta = machine.dual_coef_[0]
    within = K[np.ix_(machine.support_, machine.support_)]
    return float(np.abs(beta).sum() - beta @ within @ beta / 2)


def least_squared_hinge(X, y):
    """The least objective of the squared hinge and C = 1, found by L-BFGS on scaled columns."""
    deviation = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    penalty = np.append(np.where(deviation > 0, deviation, 1) ** -2.0, 0)

    def objective(u):
        margin = (1 - y * (Z @ u[:-1] + u[-1])).clip(0)
        slope = -2 * y * margin
        gradient = penalty * u + np.append(slope @ Z, slope.sum())
        return penalty @ u**2 / 2 + margin @ margin, gradient

    found = minimize(
        objective, np.zeros(len(penalty)), jac=True, method="L-BFGS-B", options={"maxiter": 5000}
    )
    return float(found.fun)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits"])
def test_a_linear_svc_reaches_the_optimum_on_unscaled_columns(name, loss):
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    classes = np.unique(y)
    signs = [np.where(y == one, 1.0, -1.0) for one in classes[len(classes) == 2 :]]
    best = dual_objective if loss == "hinge" else least_squared_hinge
    expected = sum(best(X, one) for one in signs)
    machine = LinearSVC(loss=loss).fit(X, y)
    margin = (1 - np.stack(signs, axis=1) * (X @ machine.coef_.T + machine.intercept_)).clip(0)
    losses = margin if loss == "hinge" else margin**2
    objective = np.square(machine.coef_).sum() / 2 + losses.sum()
    assert objective <= 1.02 * expected
    assert machine.gap_ <= machine.tol


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("name", ["iris", "breast_cancer", "digits"])
def test_a_linear_svc_without_intercept_reaches_the_optimum_of_liblinear(name, loss):
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X = X / X.std(axis=0).clip(1e-9)
    options = {"loss": loss, "C": 0.1, "fit_intercept": False}
    peer = svm.LinearSVC(**options, tol=1e-8, max_iter=100_000, random_state=0).fit(X, y)
    machine = LinearSVC(**options, tol=1e-6).fit(X, y)
    signs = np.where(y[:, None] == np.unique(y)[-len(peer.coef_) :], 1.0, -1.0)

    def objective(w):
        margin = (1 - signs * (X @ w.T)).clip(0)
        return np.square(w).sum() / 2 + 0.1 * (margin ** (1 + (loss != "hinge"))).sum()

    assert objective(machine.coef_) == pytest.approx(objective(peer.coef_), rel=1e-5)
    assert machine.gap_ <= 1e-6
    assert not machine.intercept_.any()


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_a_linear_svr_reaches_the_optimum_of_liblinear(power, fit_intercept, epsilon):
    """LIBLINEAR penalises its intercept, but a large intercept_scaling makes that negligible."""
    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = X / X.std(axis=0), y / y.std()
    options = {
        "loss": "squared_" * (power - 1) + "epsilon_insensitive",
        "C": 0.5,
        "epsilon": epsilon,
        "fit_intercept": fit_intercept,
    }
    peer = svm.LinearSVR(
        **options, intercept_scaling=100, tol=1e-8, max_iter=10**6, random_state=0
    ).fit(X, y)
    machine = LinearSVR(**options, tol=1e-6).fit(X, y)

    def objective(fitted):
        residual = y - X @ fitted.coef_ - fitted.intercept_
        losses = (abs(residual) - epsilon).clip(0) ** power
        return np.square(fitted.coef_).sum() / 2 + 0.5 * losses.sum()

    # The peer ends a little above its optimum.
    assert 0.999 * objective(peer) < objective(machine) < objective(peer) * (1 + 1e-5)
    assert machine.model_.outcome.primal == pytest.approx(objective(machine), rel=1e-9)
    assert machine.gap_ <= machine.tol
    assert bool(machine.intercept_.any()) == fit_intercept
    assert (machine.coef_.shape, machine.intercept_.shape) == ((X.shape[1],), (1,))
    np.testing.assert_allclose(machine.predict(X), X @ machine.coef_ + machine.intercept_, 1e-6)


@pytest.mark.parametrize("kind", [LinearSVC, LinearSVR])
def test_a_model_without_intercept_is_read_by_liblinear_and_updated_without(tmp_path, kind):
    X, y = small(200)
    machine = kind(fit_intercept=False).fit(X, y)
    machine.save(tmp_path / "m")
    assert "\nbias -1\n" in (tmp_path / "m").read_text()
    again = kind.from_model(tmp_path / "m")
    assert not again.fit_intercept
    assert again.predict(X).tolist() == machine.predict(X).tolist()
    labels, f = oracle.liblinear_predictions(tmp_path / "m", X)
    assert f.ravel() == pytest.approx(machine.model_.decision_function(X))
    assert (f if kind is LinearSVR else labels).ravel() == pytest.approx(machine.predict(X))
    assert not machine.partial_fit(X, y).intercept_.any()


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_the_dual_of_a_linear_svc_is_below_every_objective(C):
    """Random weights have objectives above D."""
    rng = np.random.default_rng(0)
    X, y = make_blobs(300, 4, centers=2, cluster_std=5, random_state=0)
    weights = rng.exponential(size=len(X))
    for loss in ("hinge", "squared_hinge"):
        machine = LinearSVC(loss=loss, C=C, tol=1e-6).fit(X, y, sample_weight=weights)
        dual = machine.model_.outcome.dual
        for scale in (0, 1e-4, 1e-2, 1):
            w = machine.coef_[0] * (1 + scale * rng.normal(size=4))
            b = machine.intercept_[0] * (1 + scale * rng.normal())
            margin = (1 - (2 * y - 1) * (X @ w + b)).clip(0)
            losses = margin if loss == "hinge" else margin**2
            assert dual <= (w @ w / 2 + C * (weights * losses).sum()) * (1 + 1e-9)
        assert machine.gap_ <= 1e-6


# --- a drop-in for scikit-learn's ----------------------------------------------------------------

KINDS = ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM", "LinearSVC", "LinearSVR")


@pytest.mark.parametrize("name", KINDS)
def test_every_parameter_of_scikit_learn_is_taken_with_its_default(name):
    X, y = small(100)
    given = getattr(svm, name)().get_params()
    ours = getattr(randsvm, name)
    own = ours().get_params()
    assert given.keys() <= own.keys()
    differ = {key for key in given if given[key] != own[key]}
    assert differ <= {"probability"}  # "deprecated" there
    found = ours(**given).fit(X, y)
    assert (found.predict(X) == ours().fit(X, y).predict(X)).all()


@pytest.mark.parametrize("made", [LinearSVC, LinearSVR])
def test_partial_fit_is_an_update_of_the_command(tmp_path, made):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)).astype(np.float32)
    target = X @ rng.normal(size=(5, 3))
    y = target.argmax(axis=1) if made is LinearSVC else target[:, 0]
    weights = rng.integers(1, 4, 200) / 2
    options = [] if made is LinearSVC else ["-s", "svr", "-p", "0"]
    model, rows, more = (tmp_path / name for name in ("model", "rows", "more"))
    labels = list(map(repr, y.tolist()))
    rows.write_text(oracle.svmlight_text(labels[:200], X[:200]))
    labels = [f"{label} cost:{w}" for label, w in zip(labels[200:], weights, strict=True)]
    more.write_text(oracle.svmlight_text(labels, X[200:]))
    loss = ["--loss", "squared-hinge"] if made is LinearSVC else []
    run_train("sgd", "-q", "-c", 1, "--epochs", 1, *options, *loss, rows, model)
    run_train("sgd", "-q", "--update", model, more, model)
    expected = made.from_model(model)
    names = np.array(["b c", "a", "é"])
    y = names[y] if made is LinearSVC else y
    found = (
        made().partial_fit(X[:200], y[:200]).partial_fit(X[200:], y[200:], sample_weight=weights)
    )
    order = [1, 0, 2] if made is LinearSVC else slice(None)
    assert found.coef_[order] == pytest.approx(expected.coef_, rel=1e-9)
    assert found.predict(X[:9]).tolist() == found.model_.predict(X[:9]).tolist()
    assert np.isnan(found.gap_) and found.score(X, y) > 0.9


def test_new_labels_of_partial_fit_are_refused():
    X, y = make_blobs(40, random_state=0)
    with pytest.raises(ValueError, match="y has labels that the classes of partial_fit lack"):
        LinearSVC().partial_fit(X, y, classes=[0, 1])
    found = LinearSVC().partial_fit(X, y, classes=[2, 0, 1])
    with pytest.raises(ValueError, match="y has labels that the classes of partial_fit lack"):
        found.partial_fit(X, y + 1)
    with pytest.raises(ValueError, match="classes differ from those of the first call"):
        found.partial_fit(X, y, classes=[0, 1])


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "log"])
@pytest.mark.parametrize("names", [[0, 1], ["b", "a", "c"]])
def test_the_first_rows_of_partial_fit_may_lack_classes(loss, names):
    """It is as good as SGDClassifier where the first rows have one class."""
    X, y = make_blobs(600, centers=len(names), random_state=0)
    order = np.append(np.flatnonzero(y == 0)[:50], np.flatnonzero(y)).astype(int)
    rest = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(y)), order[:50]))
    X, y = (each[np.append(order[:50], rest)] for each in (X, np.array(names)[y]))
    ours, theirs = LinearSVC(loss=loss), SGDClassifier(average=True, random_state=0)
    for begin in range(0, 600, 50):
        for machine in (ours, theirs):
            part = slice(begin, begin + 50)
            machine.partial_fit(X[part], y[part], classes=names)
    assert ours.classes_.tolist() == sorted(names)
    assert ours.score(X, y) > theirs.score(X, y) - 0.03


def test_a_linear_svc_that_ends_early_warns():
    X, y = small(100)
    with pytest.warns(ConvergenceWarning, match=r"iteration limit, with a gap of .* above 1e-06"):
        machine = LinearSVC(max_iter=1, tol=1e-6).fit(X, y)
    assert machine.n_iter_ == 1 < LinearSVC(tol=1e-6).fit(X, y).n_iter_


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_a_fitted_machine_has():
    X, y = make_blobs(90, 2, centers=3, cluster_std=4, random_state=0)
    theirs = svm.SVC(kernel="linear").fit(X, y)
    ours = SVC(kernel="linear").fit(X, y)
    missing = {name for name in vars(theirs) if re.fullmatch("[a-z].*_", name)} - set(dir(ours))
    assert missing == set()
    assert ours.shape_fit_ == theirs.shape_fit_
    assert ours.fit_status_ == 0
    assert ours.n_iter_.shape == theirs.n_iter_.shape
    assert ours.n_iter_.sum() == max(ours.model_.outcome.iterations, 3)
    assert ours.fit_time_ > 0
    assert ours.stopped_.startswith("gap <=")
    with pytest.raises(ValueError, match="read-only"):
        ours.coef_[0, 0] = 0


@pytest.mark.parametrize("break_ties", [False, True])
def test_a_prediction_needs_a_fit(break_ties):
    with pytest.raises(NotFittedError):
        SVC(break_ties=break_ties, decision_function_shape="ovr").predict([[0.0]])


def test_an_estimator_from_a_model_of_svm_train(tmp_path):
    random = np.random.default_rng(2)
    X = random.standard_normal((90, 3)).round(3)
    y = np.where(X[:, 0] > 0, 2, 1) + 4 * (X[:, 1] > 0.5)
    trained = svmutil.svm_train(y.tolist(), X.tolist(), "-g 0.4 -q")
    svmutil.svm_save_model(str(tmp_path / "m"), trained)
    expected, _, _ = svmutil.svm_predict([], X.tolist(), trained, "-q")
    machine = randsvm.SVC.from_model(tmp_path / "m")
    assert machine.predict(X).tolist() == expected
    assert machine.classes_.tolist() == sorted(set(y.tolist())) != trained.get_labels()
    for shape in ("ovo", "ovr"):
        theirs = svm.SVC(gamma=0.4, decision_function_shape=shape).fit(X, y)
        machine.decision_function_shape = shape
        f = machine.decision_function(X)
        np.testing.assert_allclose(f, theirs.decision_function(X), atol=1e-2)
    with pytest.raises(ModelError, match="expected a model for SVR"):
        randsvm.SVR.from_model(tmp_path / "m")


HARD_LABELS = [
    ("big cat", "small dog"),
    ("a,b", "c"),
    ("cat", ""),
    ("1.5", "2"),
    ("#x", "y"),
    ("?", "x"),
    ("1", "+1"),
    ("7", "seven"),
    ("line\nbreak", "back\\slash", "\u00e4 \u00f6"),
]


@pytest.mark.parametrize("labels", HARD_LABELS)
@pytest.mark.parametrize("kind", [SVC, LinearSVC])
def test_saved_labels_that_no_file_of_rows_can_hold_come_back(tmp_path, kind, labels):
    X = np.random.default_rng(0).standard_normal((90, 2))
    y = np.array(labels)[np.digitize(X[:, 0], [-0.4, 0.4]) % len(labels)]
    machine = kind().fit(X, y)
    machine.save(tmp_path / "m")
    again = kind.from_model(tmp_path / "m")
    assert again.classes_.tolist() == machine.classes_.tolist()
    np.testing.assert_array_equal(again.predict(X), machine.predict(X))
    f, g = machine.decision_function(X), again.decision_function(X)
    np.testing.assert_allclose(g, f, rtol=1e-9, atol=1e-12)
    loaded = randsvm.load(str(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.predict(X), machine.predict(X))
    assert sorted(loaded.info()["labels"]) == sorted(labels)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


@pytest.mark.parametrize("content", ["a text\n", "#!/bin/sh\nexit\n"])
def test_saving_replaces_models_only(tmp_path, content):
    X, y = small(60)
    machine = SVC().fit(X, y)
    path = tmp_path / "m"
    path.write_text(content)
    for save in (machine.save, machine.model_.save):
        with pytest.raises(OutputError, match="exists and is not a model, so it is not replaced"):
            save(path)
    assert path.read_text() == content
    path.write_text("")
    machine.save(path)
    SVC(C=2).fit(X, y).save(path)
    assert SVC.from_model(path).model_.info()["C"] == 2


RECORDED = {
    "SVC": {"C": 3.0, "gamma": 1.0, "tol": 1e-4, "gap": 1e-5, "class_weight": {0: 0.1, 1: 3.0}},
    "NuSVC": {"nu": 0.6, "gamma": 0.3},
    "SVR": {"C": 3.0, "epsilon": 0.25, "kernel": "linear"},
    "NuSVR": {"C": 0.1, "nu": 0.7},
    "OneClassSVM": {"nu": 0.2},
    "LinearSVC": {"C": 3.0, "loss": "hinge", "class_weight": {0: 2.0, 1: 0.5}},
    "LinearSVR": {"C": 3.0, "epsilon": 0.25, "tol": 1e-5},
}
SOLUTION = ("support_vectors_", "dual_coef_", "intercept_", "n_support_", "coef_")


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_an_estimator_from_a_saved_model_has_its_parameters_and_solution(
    tmp_path, name, classes, layout
):
    random = np.random.default_rng(1)
    X = random.standard_normal((90, 5)) * (random.uniform(size=(90, 5)) < 0.3)
    X = oracle.as_float32(X if layout is sparse.csr_matrix else X + 1.0)
    y = np.argsort(np.argsort(X[:, 0] + 0.1 * random.standard_normal(90))) * classes // 90
    machine = getattr(randsvm, name)(**RECORDED[name]).fit(layout(X), y)
    machine.save(tmp_path / "m")
    again = getattr(randsvm, name).from_model(tmp_path / "m")
    given, found = RECORDED[name], again.get_params()
    for parameter in given.keys() - {"class_weight"}:
        assert found[parameter] == given[parameter], parameter
    if "class_weight" in given:
        assert again.class_weight == {k: given["class_weight"].get(k, 1.0) for k in range(classes)}
        np.testing.assert_array_equal(again.class_weight_, machine.class_weight_)
    for attribute in SOLUTION:
        if hasattr(machine, attribute):
            ours, theirs = (dense_of(getattr(one, attribute)) for one in (again, machine))
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=attribute)
        else:
            assert not hasattr(again, attribute)
    if hasattr(machine, "support_vectors_"):
        assert sparse.issparse(again.support_vectors_) == sparse.issparse(machine.support_vectors_)


@pytest.mark.parametrize("order", [[3, 1, 2], [1, 2, 3], [2, 3, 1], [4, 2, 1, 3], [2, 1], [1, 2]])
def test_the_solution_of_a_model_of_svm_train_is_that_of_scikit_learn(tmp_path, order):
    """LIBSVM's labels are in the order of their first rows, scikit-learn's sorted."""
    random = np.random.default_rng(3)
    X = random.standard_normal((120, 3)).round(3)
    X = X[X[:, 0].argsort()]
    y = np.repeat(order, 120 // len(order))
    trained = svmutil.svm_train(y.tolist(), X.tolist(), "-t 0 -c 0.5 -e 1e-8 -q")
    svmutil.svm_save_model(str(tmp_path / "m"), trained)
    assert trained.get_labels() == order
    machine = SVC.from_model(tmp_path / "m")
    theirs = svm.SVC(kernel="linear", C=0.5, tol=1e-8).fit(X, y)
    for attribute in SOLUTION:
        ours, expected = dense_of(getattr(machine, attribute)), getattr(theirs, attribute)
        np.testing.assert_allclose(ours, expected, atol=1e-5, err_msg=attribute)
    assert machine.C == 1.0
    assert not hasattr(machine, "class_weight_")


def test_balanced_classes_have_equal_sums_of_weights():
    X, y = small()
    weights = np.random.default_rng(2).integers(1, 5, len(y)).astype(float)
    machine = SVC(gamma=5, class_weight="balanced").fit(X, y, weights)
    sums = [weights[y == label].sum() for label in machine.classes_]
    np.testing.assert_allclose(machine.class_weight_ * sums, weights.sum() / 2)


@pytest.mark.parametrize("name, kind", [("randsvm", SVC), ("sgd", LinearSVC)])
def test_weights_beside_balanced_are_not_lost_in_silence(tmp_path, name, kind):
    X, y = small()
    data = oracle.write_svmlight(tmp_path / "d", y, X)
    for words in (["balanced"], ["balanced", "-w", 1, 3]):
        run_train(name, "-q", "-w", *words, data, tmp_path / "m")
        if len(words) == 1:
            machine = kind.from_model(tmp_path / "m")
        else:
            with pytest.warns(UserWarning, match="model's own weights of 1:"):
                machine = kind.from_model(tmp_path / "m")
        assert machine.class_weight == "balanced"


@pytest.mark.parametrize("given", [{"kernel": "sigmoid"}, {"kernel": "poly", "coef0": -1}])
def test_a_gap_is_refused_with_a_kernel_that_has_no_certificate(given):
    X, y = small()
    for machine in (SVC, NuSVR, OneClassSVM):
        with pytest.raises(ValueError, match=r"^gap must be None, got 0\.01: kernel='"):
            machine(gamma=0.1, gap=0.01, **given).fit(X, y)
        assert np.isnan(machine(gamma=0.1, **given).fit(X, y).gap_)


def test_columns_of_a_model_file_are_in_the_order_of_the_classes(tmp_path):
    """The labels of a model are in the order of their first rows."""
    X, y = make_blobs([30] * 3, centers=[[4, 0], [0, 4], [-4, -4]], shuffle=False, random_state=0)
    X, y = oracle.as_float32(X), np.array([3, 1, 2])[y]
    data = oracle.write_svmlight(tmp_path / "d", y, X)
    for name, kind, words in (("randsvm", SVC, ["-b", 1]), ("sgd", LinearSVC, [])):
        run_train(name, "-q", *words, data, tmp_path / "m")
        machine = kind.from_model(tmp_path / "m")
        predicted = machine.predict(X)
        assert np.mean(predicted == y) > 0.9
        f = machine.decision_function(X)
        np.testing.assert_array_equal(machine.classes_[f.argmax(axis=1)], predicted)
        if kind is SVC:
            p = machine.predict_proba(X)
            assert np.mean(machine.classes_[p.argmax(axis=1)] == y) > 0.9


@pytest.mark.parametrize("kind", [SVC, SVR, OneClassSVM, LinearSVC, LinearSVR])
def test_skops_writes_and_reads_estimators(kind):
    io = pytest.importorskip("skops.io")
    X, y = small(60)
    machine = kind(n_jobs=1).fit(X, y)
    data = io.dumps(machine)
    again = io.loads(data, trusted=io.get_untrusted_types(data=data))
    np.testing.assert_array_equal(again.predict(X), machine.predict(X))


@pytest.mark.parametrize("machine", CHECKED, ids=repr)
def test_joblib_and_pickle_write_and_read_estimators(tmp_path, machine):
    X, y = small(60)
    fitted = clone(machine).fit(X, y)
    joblib.dump(fitted, tmp_path / "j")
    for again in (joblib.load(tmp_path / "j"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
        assert again.get_params() == fitted.get_params()
        assert again.gap_ == fitted.gap_


@pytest.mark.parametrize("interface", ["spmatrix", "sparray"])
@pytest.mark.parametrize("layout", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_attributes_have_the_interface_that_is_configured(tmp_path, layout, interface):
    X, _ = small(60)
    y = X[:, 0] > X[:, 1]
    X[X < 0.3] = 0
    try:
        configured = config_context(sparse_interface=interface)
    except TypeError:
        pytest.skip("scikit-learn 1.9 brought the option sparse_interface")
    with configured:
        ours, theirs = (kind(kernel="linear").fit(layout(X), y) for kind in (SVC, svm.SVC))
        ours.save(tmp_path / "m")
        again = SVC.from_model(tmp_path / "m")
        for name in ("support_vectors_", "dual_coef_", "coef_"):
            assert type(getattr(ours, name)) is type(getattr(theirs, name))
            found = getattr(again, name)
            assert not sparse.issparse(found) or type(found) is type(getattr(theirs, name))


@pytest.mark.parametrize("kind", [SVC, OneClassSVM, LinearSVR])
def test_arrays_of_other_namespaces_are_taken_as_arrays_of_numpy_or_refused(kind):
    strict = pytest.importorskip("array_api_strict")
    X, y = small(60)
    other = strict.asarray(X), strict.asarray(y)
    machine = kind().fit(*other)
    np.testing.assert_array_equal(machine.predict(other[0]), kind().fit(X, y).predict(X))
    with config_context(array_api_dispatch=True):
        message = r"^X: expected an array of numpy, found one of array_api_strict: give numpy.as"
        for call in (lambda: machine.predict(other[0]), lambda: kind().fit(*other)):
            with pytest.raises(TypeError, match=message):
                call()
        if kind is not OneClassSVM:
            with pytest.raises(TypeError, match=r"^y: expected an array of numpy"):
                kind().fit(X, other[1])
        np.testing.assert_array_equal(kind().fit(X, y).predict(X), machine.predict(X))


def test_weights_are_routed_and_names_of_features_are_kept():
    X, y = small(100)
    frame = pandas.DataFrame(X, columns=["a", "b"])
    weight = np.where(np.arange(100) % 2, 1.0, 0.0)
    with config_context(enable_metadata_routing=True):
        machine = SVC().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(machine, {"C": [1.0]}, cv=2).fit(frame, y, sample_weight=weight)
        LinearSVC().set_partial_fit_request(sample_weight=True, classes=True)
    assert list(search.best_estimator_.feature_names_in_) == ["a", "b"]
    assert (search.best_estimator_.support_ % 2 == 1).all()
    plain = SVC().fit(frame, y)
    assert (plain.support_ % 2 == 0).any()


def test_a_notebook_shows_the_parameters():
    page = SVC(C=3, gap=0.5)._repr_html_()
    assert page.count('class="user-set"') == 2 and "gap" in page


def test_c_of_a_model_follows_from_its_lambda(tmp_path):
    X, y = small(100)
    randsvm.train(randsvm.Arrays(X, y), tmp_path / "m", algorithm="sgd", lambda_=0.05)
    assert pytest.approx(1 / (0.05 * 100)) == LinearSVC.from_model(tmp_path / "m").C


def test_the_offset_is_that_of_scikit_learn():
    X, _ = small()
    ours, theirs = (kind(nu=0.2, gamma=5).fit(X) for kind in (OneClassSVM, svm.OneClassSVM))
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=0.02)
    np.testing.assert_allclose(ours.offset_, theirs.offset_, rtol=0.02)


@pytest.mark.parametrize("source", ["table", "reader", "relation", "polars", "lazy", "pandas"])
def test_rows_with_the_interface_of_arrow_are_those_of_the_array(source):
    pa = pytest.importorskip("pyarrow")
    X, y = make_blobs(200, 3, centers=2, cluster_std=4, random_state=0)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])

    def made():
        table = pa.Table.from_pandas(frame)
        if source == "relation":
            connection = pytest.importorskip("duckdb").connect()
            return connection.register("rows", frame).sql("SELECT * FROM rows")
        if source in ("polars", "lazy"):
            rows = pytest.importorskip("polars").from_arrow(table)
            return rows.lazy() if source == "lazy" else rows
        arrow = frame.convert_dtypes(dtype_backend="pyarrow")
        return {"table": table, "reader": table.to_reader(50), "pandas": arrow}[source]

    expected, found = SVC().fit(X, y), SVC().fit(made(), y)
    assert list(found.feature_names_in_) == ["a", "b", "c"]
    assert found.dual_coef_.tobytes() == expected.dual_coef_.tobytes()
    assert np.array_equal(found.decision_function(made()), expected.decision_function(X))
    assert found.score(made(), y) == expected.score(X, y)
