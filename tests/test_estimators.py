"""The estimators: scikit-learn's own checks, its tools around them, and LIBSVM as the truth."""

from __future__ import annotations

import os
import pickle
from unittest import mock

import numpy as np
import oracle
import pandas
import pytest
from learning import board
from libsvm import svmutil
from scipy import sparse
from sklearn import svm
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import randsvm
from randsvm import SVC, SVR, LinearSVC, NuSVC, NuSVR, OneClassSVM
from randsvm.estimators.one_vs_one import class_values, pair_weights

# One thread: the machines of a test are too small for more. Few passes where that many do.
CHECKED = [
    *(kind(n_jobs=1) for kind in (SVC, NuSVC, SVR, NuSVR, OneClassSVM)),
    LinearSVC(n_jobs=1, max_iter=20),
]


# Nothing is skipped: scikit-learn's SVC skips what needs this variable, too.
@pytest.fixture(autouse=True)
def array_api():
    with mock.patch.dict(os.environ, SCIPY_ARRAY_API="1"):
        yield


@pytest.mark.filterwarnings("default")
@parametrize_with_checks(CHECKED)
def test_the_estimator_passes_every_check_of_scikit_learn(estimator, check):
    check(estimator)


def small(rows: int = 300):
    y, X = board(rows)
    return oracle.as_float32(X), y.astype(int)


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
        beta[machine.support_] = machine.dual_coef_[0]
        assert machine.n_support_.tolist() == [(beta < 0).sum(), (beta > 0).sum()]
    assert np.allclose(*dense, atol=2e-2)
    assert (ours.predict(layout(X)) == theirs.predict(X)).mean() > 0.99


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_nu_machines_are_those_of_scikit_learn(layout):
    X, y = small()
    targets = np.sin(X[:, 0]) + X[:, 1] ** 2
    several = np.digitize(X[:, 0], [1.3, 2.6])
    for name, own, labels in [
        ("NuSVC", {"nu": 0.6}, y),
        ("NuSVC", {"nu": 0.3, "decision_function_shape": "ovo"}, several),
        ("NuSVR", {"nu": 0.4, "C": 2}, targets),
    ]:
        theirs = getattr(svm, name)(gamma=5, tol=1e-6, **own).fit(X, labels)
        ours = getattr(randsvm, name)(gamma=5, tol=1e-5, gap=1e-6, **own).fit(layout(X), labels)
        assert 0 <= ours.gap_ <= 1e-6
        asked = "predict" if name == "NuSVR" else "decision_function"
        f, expected = (getattr(machine, asked)(X) for machine in (ours, theirs))
        assert np.allclose(f, expected, atol=5e-3 * np.abs(expected).max())
        assert np.abs(ours.intercept_ - theirs.intercept_).max() < 5e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    "labels", [[0, 1], [-1, 1], [7, 3], ["a b", "c"], [0.0, 2.0], [True, False]]
)
def test_labels_of_any_kind_come_back(labels):
    X, y = small(200)
    y = np.array(labels)[(y > 0).astype(int)]
    machine = SVC(gamma=5).fit(X, y)
    assert (machine.predict(X) == svm.SVC(gamma=5).fit(X, y).predict(X)).mean() > 0.98
    assert machine.predict(X).dtype == y.dtype
    positive = machine.decision_function(X) > 0
    assert (machine.classes_[positive.astype(int)] == machine.predict(X)).all()


def test_what_is_saved_is_read_by_libsvm(tmp_path):
    X, y = small()
    machine = SVC(gamma=5).fit(X, y)
    machine.save(tmp_path / "m")
    model = svmutil.svm_load_model(str(tmp_path / "m"))
    assert np.allclose(oracle.libsvm_decisions(model, X), machine.decision_function(X), atol=1e-5)
    assert (randsvm.load(str(tmp_path / "m")).predict(X) == machine.predict(X)).all()


def test_a_pickled_machine_predicts_the_same():
    X, y = small()
    machine = make_pipeline(StandardScaler(), SVC(gamma=5)).fit(X, y)
    f = machine.decision_function(X)
    again = pickle.loads(pickle.dumps(machine))
    assert (again.decision_function(X) == f).all()
    assert clone(machine).set_params(svc__C=3)[-1].C == 3


@pytest.mark.filterwarnings("ignore:all rows have nearly the same decision value")
def test_a_grid_search_finds_the_kernel_that_fits():
    X, y = small()
    search = GridSearchCV(SVC(n_jobs=1), {"gamma": [1e-6, 5], "C": [1, 4]}, cv=3).fit(X, y)
    assert search.best_params_["gamma"] == 5
    assert search.best_score_ > 0.65


def test_class_weights_are_those_of_scikit_learn():
    X, y = small()
    for weight in ("balanced", {-1: 0.3, 1: 2}):
        ours, theirs = (
            kind(gamma=5, class_weight=weight, **own).fit(X, y)
            for kind, own in ((SVC, {"gap": 1e-5}), (svm.SVC, {}))
        )
        assert np.allclose(ours.decision_function(X), theirs.decision_function(X), atol=0.02)


def test_gamma_is_that_of_scikit_learn():
    X, y = small()
    X = np.where(X > 0.3, X, 0)
    for gamma in ("scale", "auto", 0.3):
        for given in (X, sparse.csr_matrix(X)):
            machine = SVC(gamma=gamma).fit(given, y)
            assert machine.model_.model.kernel.gamma == pytest.approx(
                svm.SVC(gamma=gamma).fit(X, y)._gamma
            )


def test_probabilities_add_up_and_follow_the_order_of_classes():
    X, y = small()
    machine = SVC(gamma=5, probability=True).fit(X, y)
    p = machine.predict_proba(X)
    assert np.allclose(p.sum(axis=1), 1)
    order = np.argsort(machine.decision_function(X))
    assert (np.diff(p[order, 1]) >= 0).all()
    assert np.allclose(np.exp(machine.predict_log_proba(X)), p)
    assert not hasattr(SVC(), "predict_proba")


def test_a_run_that_ends_above_its_gap_warns():
    y, X = board(4000)
    with pytest.warns(ConvergenceWarning, match="iteration limit, with a gap of"):
        machine = SVC(gamma=5, gap=1e-5, max_iter=1).fit(X, y)
    assert machine.gap_ > 1e-5


def test_a_sigmoid_has_no_gap():
    X, y = small()
    assert np.isnan(SVC(kernel="sigmoid", gap=0.01).fit(X, y).gap_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "precomputed"}, "expected kernel values of each row with each"),
        ({"kernel": "cosine"}, "kernel must be one of linear, poly, rbf, sigmoid, precomputed"),
        ({"kernel": lambda X, Z: X @ Z.T}, "kernel must be linear, poly, rbf, sigmoid or precom"),
        ({"C": 0}, "must be > 0"),
        ({"gamma": "median"}, "gamma must be a number, 'scale' or 'auto'"),
        ({"decision_function_shape": "all"}, "must be 'ovr' or 'ovo'"),
        ({"gap": 2}, "gap must be"),
    ],
)
def test_bad_parameters_are_value_errors(parameters, message):
    X, y = small(20)
    with pytest.raises(ValueError, match=message):
        SVC(**parameters).fit(X, y)


@pytest.mark.parametrize("machine", [SVC(), SVR(), OneClassSVM(), LinearSVC()])
def test_a_weight_for_each_row_is_refused_with_a_way_out(machine):
    X, y = small(20)
    with pytest.raises(TypeError, match=r"no sample_weight: .* repeat the rows"):
        machine.fit(X, y, sample_weight=np.ones(20))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        machine.fit(X, y, weight=1)
    machine.fit(X, y, sample_weight=None)


@pytest.mark.parametrize("kind", ["svc", "svr"])
def test_repeated_rows_are_weights(kind):
    """As the message about them says: beside scikit-learn's sample_weight."""
    X, y = small(60)
    weights = np.arange(60) % 4
    options = {"gamma": 0.5, "tol": 1e-5}
    ours, theirs = {"svc": (SVC, svm.SVC), "svr": (SVR, svm.SVR)}[kind]
    theirs = theirs(**options).fit(X, y, sample_weight=weights)
    ours = ours(**options, gap=1e-7).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    f, truth = (
        one.decision_function(X) if kind == "svc" else one.predict(X) for one in (ours, theirs)
    )
    np.testing.assert_allclose(f, truth, atol=2e-3)


def test_jobs_count_from_the_end_as_elsewhere():
    X, y = small(50)
    cores = os.cpu_count()
    for jobs, threads in ((1, 1), (-1, cores), (-cores, 1)):
        assert SVC(n_jobs=jobs).fit(X, y).model_.jobs == threads


def test_a_notebook_shows_the_gap_of_what_is_fitted():
    X, y = small(100)
    assert "<td>gap</td>" in SVC().fit(X, y)._repr_html_()
    assert "<td>gap</td>" not in SVC()._repr_html_()


def test_a_linear_svc_says_that_it_is_not_certified():
    X, y = small(100)
    machine = LinearSVC().fit(X, y)
    assert np.isnan(machine.gap_)
    assert "<td>certificate</td><td>none</td>" in machine._repr_html_()
    assert "<td>certificate</td><td>evaluated</td>" in SVC().fit(X, y)._repr_html_()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_linear_svc_is_near_that_of_scikit_learn(loss):
    """In the objective: where the classes overlap, other weights are as good."""
    y, X = oracle.two_gaussians(2000, 0)

    def objective(machine) -> float:
        w, b = machine.coef_[0], machine.intercept_[0]
        slack = np.maximum(0, 1 - y * (X @ w + b))
        return w @ w / 2 + (slack**2 if loss == "squared_hinge" else slack).sum()

    theirs = svm.LinearSVC(loss=loss, intercept_scaling=100).fit(X, y)
    ours = LinearSVC(loss=loss).fit(X, y)
    assert objective(ours) < 1.01 * objective(theirs)
    assert np.allclose(ours.decision_function(X), X @ ours.coef_[0] + ours.intercept_, atol=1e-5)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_functions_of_pairs_become_classes_and_weights_as_in_scikit_learn(layout):
    X, y = make_blobs(60, 3, centers=4, cluster_std=4, random_state=0)
    theirs = svm.SVC(kernel="linear", decision_function_shape="ovo").fit(X, y)
    f = theirs.decision_function(X)
    values = theirs.set_params(decision_function_shape="ovr").decision_function(X)
    assert np.allclose(class_values(f, 4), values)
    w = pair_weights(theirs.dual_coef_, layout(theirs.support_vectors_), theirs.n_support_)
    assert np.allclose(w, theirs.coef_)
