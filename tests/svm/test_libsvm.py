"""Test rows given to LIBSVM without copies: the bits of results are those of its bindings."""

import ctypes

import numpy as np
import oracle
import pytest
from libsvm import svm
from rows import Points
from scans import problem
from scipy import sparse
from solving import check_values, train_with_libsvm_kernel

from randsvm.errors import ParameterError

KERNELS = [
    problem("linear", C=0.5),
    problem("poly", gamma=0.3, coef0=1.0, degree=4),
    problem(C=10.0, tolerance=1e-4),
    problem(shrinking=False),
    problem("sigmoid", gamma=0.1, coef0=-0.2),
    problem(bounds=(0.5, 4.0)),
]


def options(asked):
    """Return the parameters as options of LIBSVM."""
    return (
        f"-t {oracle.LIBSVM_KERNELS.index(asked.kernel)} -g {asked.gamma} -r {asked.coef0} "
        f"-d {asked.degree} -c 1 -w1 {asked.bounds[0]} -w-1 {asked.bounds[1]} "
        f"-e {asked.tolerance!r} -h {int(asked.shrinking)}"
    )


def points_of(y, X):
    return Points(np.arange(len(y)), sparse.csr_matrix(X.astype(np.float32)), y)


@pytest.mark.parametrize("asked", KERNELS, ids=lambda asked: asked.kernel)
@pytest.mark.parametrize("data", [oracle.two_gaussians, oracle.sparse_rows])
def test_the_result_is_that_of_libsvms_svm_train(data, asked):
    y, X = data(300)
    found = train_with_libsvm_kernel(points_of(y, X), asked, asked.tolerance)
    assert found.beta.tolist() == oracle.libsvm_train(y, X, options(asked)).dense(300).tolist()
    assert found.ended


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_the_positive_class_has_positive_coefficients_in_any_order_of_rows(first):
    y, X = oracle.two_gaussians(60)
    order = np.argsort(-first * y, kind="stable")
    beta = train_with_libsvm_kernel(points_of(y[order], X[order]), problem(), 1e-3).beta
    assert beta.any()
    assert (beta * y[order] >= 0).all()


def test_rows_without_features_are_trained_on():
    y, X = np.array([1.0, -1.0, -1.0]), np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    expected = oracle.libsvm_train(y, X, "-g 0.8 -e 0.0005").dense(3)
    found = train_with_libsvm_kernel(points_of(y, X), problem(), 5e-4)
    assert found.beta.tolist() == expected.tolist()


def test_kernel_values_beyond_float32_are_refused():
    y, X = oracle.two_gaussians(5)
    check_values(points_of(y, X * 1e18), problem("linear"))
    with pytest.raises(ParameterError, match="scale the features"):
        check_values(points_of(y, X * 1e20), problem("linear"))
    check_values(points_of(y, X * 1e20), problem("rbf"))


def test_later_solves_of_the_caller_print_as_before(capfd):
    """The print function is one for all users of the library in a process."""
    y, X = oracle.two_gaussians(60)
    found, asked = svm.svm_problem(y, X), svm.svm_parameter("-t 0")
    train_with_libsvm_kernel(points_of(y, X), problem(), 1e-3)
    assert capfd.readouterr().out == ""
    model = svm.libsvm.svm_train(found, asked)
    svm.libsvm.svm_free_and_destroy_model(ctypes.pointer(model))
    assert "optimization finished" in capfd.readouterr().out
