"""Cases of scikit-learn's own sklearn/svm/tests/test_svm.py, pointed at our estimators.

Names are as there; where a part needs what we do not have, the rest is here. What is not here:

- a kernel that is a function: a part of test_precomputed, test_svr_errors,
  test_custom_kernel_not_array_input
- sparse kernel values, which ours takes: test_sparse_precomputed
- weights of single rows: test_svm_classifier_sided_sample_weight,
  test_svm_regressor_sided_sample_weight, test_svm_equivalence_sample_weight_C,
  test_negative_sample_weights_mask_all_samples, test_negative_weights_svc_leave_just_one_label,
  test_negative_weights_svc_leave_two_labels, test_negative_weight_equal_coeffs,
  test_linearsvc_fit_sampleweight, test_linearsvm_liblinear_sample_weight
- LinearSVR: test_linearsvr, test_linearsvr_fit_sampleweight
- LIBLINEAR's penalty, dual, fit_intercept, intercept_scaling, verbose and iterations:
  test_linearsvc_parameters, test_dense_liblinear_intercept_handling,
  test_lsvc_intercept_scaling_zero, test_linearsvc_verbose, test_linear_svm_convergence_warnings,
  test_dual_auto, test_dual_auto_edge_cases
- attributes of a fitted machine that are written to, where ours answers by its model:
  test_tweak_params, test_liblinear_set_coef, test_immutable_coef_property,
  test_svc_raises_error_internal_representation
- LIBSVM's iterations, where max_iter counts our rounds: test_libsvm_convergence_warnings (see
  test_estimators.py)
- values beyond float32, which ours refuses before it begins: test_svc_nonfinite_params; an infinite
  C: test_svm_with_infinite_C
- break_ties: test_svc_invalid_break_ties_param, test_svc_ovr_tie_breaking
- warnings of scikit-learn's own future: test_probability_raises_futurewarning,
  test_svc_nusvc_probA_probB_deprecated
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_almost_equal, assert_array_equal
from scipy import sparse
from sklearn import base, datasets, metrics, svm
from sklearn.datasets import make_blobs, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils import check_random_state

from randsvm import SVC, SVR, LinearSVC, NuSVC, NuSVR, OneClassSVM

X = [[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1]]
Y = [1, 1, 1, 2, 2, 2]
T = [[-1, -1], [2, 2], [3, 2]]
TRUE_RESULT = [1, 2, 2]


@pytest.fixture(scope="module")
def iris():
    """In an order in which labels are mixed."""
    found = datasets.load_iris()
    order = check_random_state(42).permutation(found.target.size)
    found.data, found.target = found.data[order], found.target[order]
    return found


def test_libsvm_parameters():
    machine = SVC(kernel="linear").fit(X, Y)
    assert_allclose(machine.dual_coef_, [[-0.25, 0.25]])
    assert_array_equal(machine.support_, [1, 3])
    assert_array_equal(machine.support_vectors_, (X[1], X[3]))
    assert_allclose(machine.intercept_, [0.0], atol=1e-12)
    assert_array_equal(machine.predict(X), Y)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_libsvm_iris(iris, kernel):
    machine = SVC(kernel=kernel).fit(iris.data, iris.target)
    assert np.mean(machine.predict(iris.data) == iris.target) > 0.9
    assert hasattr(machine, "coef_") == (kernel == "linear")
    assert_array_equal(machine.classes_, np.sort(machine.classes_))


def test_precomputed(iris):
    clf = SVC(kernel="precomputed")
    # Kernel values of the training rows with each other, and of others with them.
    K = np.dot(X, np.array(X).T)
    clf.fit(K, Y)
    KT = np.dot(T, np.array(X).T)
    with pytest.raises(ValueError):
        clf.predict(KT.T)
    assert_array_equal(clf.dual_coef_, [[-0.25, 0.25]])
    assert_array_equal(clf.support_, [1, 3])
    assert_array_equal(clf.intercept_, [0])
    assert_array_equal(clf.predict(KT), TRUE_RESULT)
    # The values with support vectors are all that counts.
    only = np.zeros_like(KT)
    only[:, clf.support_] = KT[:, clf.support_]
    assert_array_equal(clf.predict(only), TRUE_RESULT)

    clf, clf2 = SVC(kernel="precomputed", gap=1e-6), SVC(kernel="linear", gap=1e-6)
    K = np.dot(iris.data, iris.data.T)
    clf.fit(K, iris.target)
    clf2.fit(iris.data, iris.target)
    assert_array_equal(clf.support_, clf2.support_)
    assert_allclose(clf.dual_coef_, clf2.dual_coef_, atol=1e-2)
    assert_allclose(clf.intercept_, clf2.intercept_, rtol=1e-2, atol=1e-2)
    assert np.mean(clf.predict(K) == iris.target) == pytest.approx(0.99, abs=0.005)
    only = np.zeros_like(K)
    only[:, clf.support_] = K[:, clf.support_]
    assert np.mean(clf.predict(only) == iris.target) == pytest.approx(0.99, abs=0.005)


def test_sparse_precomputed():
    clf = SVC(kernel="precomputed").fit(sparse.csr_matrix([[1, 0], [0, 1]]), [0, 1])
    assert_array_equal(clf.predict(sparse.csr_matrix([[0.5, 0], [0, 0.5]])), [0, 1])


def test_pairwise_is_told(iris):
    """As of a grid search over a precomputed kernel: rows and columns are cut alike."""
    K = np.dot(iris.data, iris.data.T)
    found = [
        cross_val_score(machine(kernel="precomputed"), K, iris.target).tolist()
        for machine in (SVC, svm.SVC)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["SVR", "OneClassSVM"])
def test_precomputed_without_classes(iris, name):
    theirs, ours = getattr(svm, name), {"SVR": SVR, "OneClassSVM": OneClassSVM}[name]
    K, y = rbf_kernel(iris.data[:, :3], gamma=1), iris.data[:, 3]
    expected = theirs(kernel="precomputed", tol=1e-8).fit(K, y)
    found = ours(kernel="precomputed", gap=1e-7).fit(K, y)
    assert found.gap_ <= 1e-7 and found.support_vectors_.shape == (0, 150)
    if name == "SVR":
        assert_allclose(found.predict(K), expected.predict(K), atol=1e-3)
    else:
        scale = np.abs(expected.decision_function(K)).max()
        assert_allclose(
            found.decision_function(K), expected.decision_function(K), atol=1e-3 * scale
        )


def test_svr():
    diabetes = datasets.load_diabetes()
    for machine in (
        NuSVR(kernel="linear", nu=0.4, C=1.0),
        NuSVR(kernel="linear", nu=0.4, C=10.0),
        SVR(kernel="linear", C=10.0),
    ):
        machine.fit(diabetes.data, diabetes.target)
        assert machine.score(diabetes.data, diabetes.target) > 0.02
    SVR().fit(diabetes.data, np.ones(len(diabetes.data)))


def test_oneclass():
    machine = OneClassSVM().fit(X)
    assert_array_equal(machine.predict(T), [1, -1, -1])
    assert machine.predict(T).dtype == np.dtype("intp")
    assert_array_almost_equal(machine.intercept_, [-1.218], decimal=3)
    assert_array_almost_equal(machine.dual_coef_, [[0.750, 0.750, 0.750, 0.750]], decimal=3)
    with pytest.raises(AttributeError):
        _ = machine.coef_


def test_oneclass_decision_function():
    rng = check_random_state(2)
    rows = 0.3 * rng.randn(100, 2)
    train = np.r_[rows + 2, rows - 2]
    rows = 0.3 * rng.randn(20, 2)
    test, outliers = np.r_[rows + 2, rows - 2], rng.uniform(low=-4, high=4, size=(20, 2))
    machine = OneClassSVM(nu=0.1, kernel="rbf", gamma=0.1).fit(train)
    assert np.mean(machine.predict(test) == 1) > 0.9
    assert np.mean(machine.predict(outliers) == -1) > 0.9
    for rows in (test, outliers):
        f = machine.decision_function(rows)
        assert_array_equal((f > 0).ravel(), machine.predict(rows) == 1)


def test_oneclass_score_samples():
    machine = OneClassSVM(gamma=1).fit([[1, 1], [1, 2], [2, 1]])
    found = machine.score_samples([[2.0, 2.0]])
    assert_array_equal(found, machine.decision_function([[2.0, 2.0]]) + machine.offset_)


def test_oneclass_fit_predict():
    assert_array_equal(OneClassSVM().fit_predict(X), OneClassSVM().fit(X).predict(X))


@pytest.mark.parametrize("kind", [SVC, NuSVC])
def test_probability(iris, kind):
    machine = kind(probability=True, random_state=0).fit(iris.data, iris.target)
    p = machine.predict_proba(iris.data)
    assert_allclose(p.sum(axis=1), 1)
    assert np.mean(p.argmax(axis=1) == machine.predict(iris.data)) > 0.9
    assert_allclose(p, np.exp(machine.predict_log_proba(iris.data)))


def test_decision_function():
    machine = SVC(kernel="linear", C=0.1).fit(X, Y)
    f = np.dot(X, machine.coef_.T) + machine.intercept_
    assert_array_almost_equal(f.ravel(), machine.decision_function(X))
    positive = machine.decision_function(X) > 0
    assert_array_equal(machine.predict(X), machine.classes_[positive.astype(int)])
    assert_array_almost_equal(machine.decision_function(X), [-1.0, -0.66, -1.0, 0.66, 1.0, 1.0], 2)
    machine = SVC(kernel="rbf", gamma=1).fit(X, Y)
    K = rbf_kernel(X, machine.support_vectors_, gamma=machine.gamma)
    f = np.dot(K, machine.dual_coef_.T) + machine.intercept_
    assert_array_almost_equal(f.ravel(), machine.decision_function(X))


@pytest.mark.parametrize("kind", [SVC, NuSVC])
def test_decision_function_shape(iris, kind):
    machine = kind(kernel="linear").fit(iris.data, iris.target)
    f = machine.decision_function(iris.data)
    assert f.shape == (len(iris.data), 3)
    assert_array_equal(machine.predict(iris.data), f.argmax(axis=1))
    rows, y = make_blobs(n_samples=80, centers=5, random_state=0)
    assert machine.fit(rows[:60], y[:60]).decision_function(rows[60:]).shape == (20, 5)
    machine.set_params(decision_function_shape="ovo").fit(rows[:60], y[:60])
    assert machine.decision_function(rows[60:]).shape == (20, 10)


@pytest.mark.parametrize("kind", [SVC, NuSVC])
@pytest.mark.parametrize("classes", [2, 3])
def test_decision_function_shape_two_class(kind, classes):
    rows, y = make_blobs(centers=classes, random_state=0)
    machine = OneVsRestClassifier(kind(decision_function_shape="ovr")).fit(rows, y)
    assert len(machine.predict(rows)) == len(y)


def test_ovr_decision_function():
    """A class in each quadrant; f of the predicted one rises with the distance."""
    corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    machine = SVC(kernel="linear", decision_function_shape="ovr").fit(corners, [0, 1, 2, 3])
    rows = np.vstack([np.array([[5, 5], [10, 10]]) * corner for corner in corners])
    f = machine.decision_function(rows)
    assert_array_equal(machine.predict(rows), [0, 0, 1, 1, 2, 2, 3, 3])
    assert_array_equal(f.argmax(axis=1), machine.predict(rows))
    own = f.max(axis=1).reshape(4, 2)
    assert own.min() > 0
    assert (own[:, 0] < own[:, 1]).all()


def test_an_infeasible_nu_is_a_value_error():
    """One row against five: nu is 1/3 at the most."""
    with pytest.raises(ValueError, match="infeasible"):
        NuSVC(kernel="linear").fit(X, [1, 1, 1, 1, 1, 2])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_svr_predict(iris, kernel):
    """f is the sum of kernel values with the support vectors."""
    rows, targets = iris.data, iris.target.astype(float)
    machine = SVR(kernel=kernel, C=0.1, gamma=1.0).fit(rows, targets)
    if kernel == "linear":
        f = np.dot(rows, machine.coef_.T) + machine.intercept_
    else:
        K = rbf_kernel(rows, machine.support_vectors_, gamma=1.0)
        f = np.dot(K, machine.dual_coef_.T) + machine.intercept_
    assert_allclose(f.ravel(), machine.predict(rows), atol=1e-4)


def test_weight():
    rows, y = make_classification(
        n_samples=200, n_features=10, weights=[0.833, 0.167], random_state=2
    )
    for machine in (SVC(gamma="scale"), LinearSVC(random_state=0)):
        machine.set_params(class_weight={0: 0.1, 1: 10})
        found = machine.fit(rows[:100], y[:100]).predict(rows[100:])
        assert metrics.f1_score(y[100:], found) > 0.3


def test_auto_weight(iris):
    rows, y = iris.data[:, :2], iris.target + 1
    unbalanced = np.delete(np.arange(y.size), np.where(y > 2)[0][::2])
    for machine in (SVC(kernel="linear"), LinearSVC(random_state=0)):
        plain = machine.fit(rows[unbalanced], y[unbalanced]).predict(rows)
        machine.set_params(class_weight="balanced")
        balanced = machine.fit(rows[unbalanced], y[unbalanced]).predict(rows)
        scores = [metrics.f1_score(y, found, average="macro") for found in (plain, balanced)]
        assert scores[0] <= scores[1]


def test_bad_input():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        SVC().fit(X, Y[:-1])
    for machine in (SVC(), LinearSVC(random_state=0)):
        fortran, strided = np.asfortranarray(X), np.ascontiguousarray(np.tile(Y, (2, 1)).T)[:, -1]
        assert not fortran.flags["C_CONTIGUOUS"]
        assert not strided.flags["C_CONTIGUOUS"]
        assert_array_equal(machine.fit(fortran, strided).predict(T), TRUE_RESULT)
    with pytest.raises(ValueError, match="features"):
        SVC().fit(X, Y).predict(np.array(X).T)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_fit_support_vectors_empty(container):
    rows = container([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]])
    machine = SVR(kernel="linear").fit(rows, np.array([0.04, 0.04, 0.10, 0.16]))
    assert not machine.support_vectors_.data.size
    assert not machine.dual_coef_.size


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_linearsvc(loss):
    machine = LinearSVC(loss=loss, random_state=0).fit(X, Y)
    assert_array_equal(machine.predict(T), TRUE_RESULT)
    assert_array_almost_equal(machine.intercept_, [0], decimal=1)
    assert_array_equal((machine.decision_function(T) > 0).astype(int) + 1, TRUE_RESULT)


def test_linearsvc_crammer_singer(iris):
    one, other = (
        LinearSVC(multi_class=name, random_state=0).fit(iris.data, iris.target)
        for name in ("ovr", "crammer_singer")
    )
    assert (one.predict(iris.data) == other.predict(iris.data)).mean() > 0.9
    assert (one.coef_ != other.coef_).all()
    f = other.decision_function(iris.data)
    assert_array_equal(other.predict(iris.data), f.argmax(axis=1))
    assert_allclose(iris.data @ other.coef_.T + other.intercept_, f, atol=1e-4)


def test_crammer_singer_binary():
    rows, y = make_classification(n_classes=2, class_sep=1.5, random_state=0)
    machine = LinearSVC(multi_class="crammer_singer", random_state=0)
    assert machine.fit(rows, y).score(rows, y) > 0.9


def test_linearsvc_iris(iris):
    target = iris.target_names[iris.target]
    machine = LinearSVC(random_state=0).fit(iris.data, target)
    assert set(machine.classes_) == set(iris.target_names)
    assert np.mean(machine.predict(iris.data) == target) > 0.8
    f = machine.decision_function(iris.data)
    assert_array_equal(iris.target_names[f.argmax(axis=1)], machine.predict(iris.data))


def test_svc_clone_with_callable_kernel_and_bad_kernel():
    """Clone keeps it, fit says no."""
    machine = base.clone(SVC(kernel=lambda x, z: np.dot(x, z.T)))
    with pytest.raises(ValueError, match="kernel"):
        machine.fit(X, Y)
    with pytest.raises(ValueError, match="kernel"):
        SVC(kernel="no such").fit(X, Y)


@pytest.mark.parametrize("machine", [SVC(kernel="linear"), LinearSVC(random_state=0)])
def test_linearsvc_and_svc_one_vs_rest_agree(iris, machine):
    """test_ovr_decision_function's outer machine."""
    outer = OneVsRestClassifier(machine).fit(iris.data, iris.target)
    assert np.mean(outer.predict(iris.data) == iris.target) > 0.8


def test_unfitted():
    with pytest.raises(NotFittedError, match=r"\bNuSVR\b.*\bnot\b.*\bfitted\b"):
        NuSVR().predict(X)
    with pytest.raises(NotFittedError, match=r"\bSVC\b.*\bnot\b.*\bfitted\b"):
        SVC().predict(X)


def test_hasattr_predict_proba(iris):
    machine = SVC(probability=True)
    assert hasattr(machine, "predict_proba")
    assert hasattr(machine.fit(iris.data[:60], iris.target[:60]), "predict_proba")
    assert not hasattr(SVC(probability=False).fit(X, Y), "predict_proba")


@pytest.mark.filterwarnings("ignore:all rows have nearly the same decision value")
def test_gamma_scale():
    rows, y = np.array([[0.0, 1.0], [1.0, 1.0]]), [0, 1]
    assert SVC(gamma="auto").fit(rows, y)._gamma == 0.5
    assert SVC(gamma="scale").fit(rows, y)._gamma == pytest.approx(1 / (2 * rows.var()))
    # Values that are all alike.
    assert SVC(gamma="scale").fit(np.ones((2, 2)), y)._gamma == 1.0


def test_n_support():
    machine = SVC().fit(X, Y)
    assert machine.n_support_.sum() == len(machine.support_)
    for machine in (SVR().fit(X, Y), NuSVR().fit(X, Y), OneClassSVM().fit(X)):
        assert machine.n_support_.tolist() == [len(machine.support_)]


@pytest.mark.parametrize("machine", [SVC(), NuSVC(), SVR(), NuSVR(), OneClassSVM(), LinearSVC()])
def test_n_iter_libsvm(iris, machine):
    assert machine.fit(iris.data, iris.target).n_iter_ >= 1


@pytest.mark.parametrize(
    "machine",
    [
        SVC(kernel="linear"),
        SVC(gamma=1),
        NuSVC(gamma=1),
        SVR(gamma=1),
        NuSVR(gamma=1),
        OneClassSVM(gamma=1),
    ],
)
def test_sparse_is_as_dense(machine):
    """test_sparse.py's check_svm_model_equal on the toy rows."""
    dense = base.clone(machine).fit(np.array(X, float), Y)
    found = machine.fit(sparse.csr_matrix(np.array(X, float)), Y)
    assert sparse.issparse(found.support_vectors_)
    assert_allclose(found.support_vectors_.toarray(), dense.support_vectors_)
    assert_allclose(found.dual_coef_, dense.dual_coef_)
    assert_array_equal(found.support_, dense.support_)
    assert_array_equal(found.predict(sparse.csr_matrix(T)), dense.predict(T))


@pytest.mark.parametrize("kind", [SVR, NuSVR])
def test_svr_coef_sign(kind):
    """Of the linear kernel, against the sign of what is predicted."""
    rng = np.random.RandomState(21)
    rows, y = rng.randn(10, 3), rng.randn(10)
    machine = kind(kernel="linear").fit(rows, y)
    f = np.dot(rows, machine.coef_.ravel()) + machine.intercept_
    assert_array_almost_equal(machine.predict(rows), f.ravel())


def test_consistent_decision_function(iris):
    machine = SVC(kernel="rbf", C=1.0).fit(iris.data, iris.target)
    f = machine.decision_function(iris.data)
    assert_array_equal(f.argmax(axis=1), machine.predict(iris.data))
