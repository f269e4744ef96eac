"""Test cases of scikit-learn's sklearn/svm/tests/test_svm.py that need changes for our estimators.

test_svm_of_scikit_learn.py runs that file itself. Here are the cases that it expects to fail
because digits beyond the gap differ, what our estimators accept in addition, and cases of other
files of scikit-learn.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import base, datasets, svm
from sklearn.metrics.pairwise import rbf_kernel

from randsvm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

X = [[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1]]
Y = [1, 1, 1, 2, 2, 2]
T = [[-1, -1], [2, 2], [3, 2]]


def test_a_sparse_precomputed_kernel_is_accepted():
    clf = SVC(kernel="precomputed").fit(sparse.csr_matrix([[1, 0], [0, 1]]), [0, 1])
    assert_array_equal(clf.predict(sparse.csr_matrix([[0.5, 0], [0, 0.5]])), [0, 1])


@pytest.mark.parametrize("name", ["SVR", "OneClassSVM"])
def test_precomputed_without_classes(name):
    iris = datasets.load_iris()
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
def test_sparse_rows_give_the_same_model_as_dense_rows(machine):
    """test_sparse.py's check_svm_model_equal on the toy rows."""
    dense = base.clone(machine).fit(np.array(X, float), Y)
    found = machine.fit(sparse.csr_matrix(np.array(X, float)), Y)
    assert sparse.issparse(found.support_vectors_)
    assert_allclose(found.support_vectors_.toarray(), dense.support_vectors_)
    assert_allclose(found.dual_coef_.toarray(), dense.dual_coef_)
    assert_array_equal(found.support_, dense.support_)
    assert_array_equal(found.predict(sparse.csr_matrix(T)), dense.predict(T))
