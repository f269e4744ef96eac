"""svmlearn gives what LIBSVM's own Python bindings give on the same rows, bit by bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle
import pytest
from scipy import sparse

from randsvm.data.points import Points
from randsvm.parameters.svm import Params
from randsvm.svm.solution import SV, Bound
from randsvm.svm.subproblem import svmlearn

KERNELS = [
    Params(kernel="linear", gamma=1.0, C=0.5),
    Params(kernel="poly", gamma=0.3, coef0=1.0, degree=4),
    Params(kernel="rbf", gamma=0.8, C=10.0, tolerance=1e-4),
    Params(kernel="rbf", gamma=0.8, shrinking=False),
    Params(kernel="sigmoid", gamma=0.1, coef0=-0.2),
]


def options(params: Params) -> str:
    """The same in LIBSVM's letters; a subproblem is solved to half the tolerance of the scan."""
    return (
        f"-t {oracle.LIBSVM_KERNELS.index(params.kernel)} -g {params.gamma} -r {params.coef0} "
        f"-d {params.degree} -c {params.C} -e {params.tolerance / 2!r} -h {int(params.shrinking)}"
    )


def points_of(y: np.ndarray, X: np.ndarray, first: int = 0) -> Points:
    return Points(np.arange(first, first + len(y)), sparse.csr_matrix(X.astype(np.float32)), y)


@pytest.mark.parametrize("params", KERNELS, ids=lambda params: params.kernel)
@pytest.mark.parametrize("data", [oracle.two_gaussians, oracle.sparse_rows])
def test_svmlearn_is_libsvms_svm_train(data, params):
    y, X = data(300)
    expected = oracle.libsvm_train(y, X, options(params))
    SV = svmlearn(points_of(y, X, first=1000), params)
    assert SV.points.rows.tolist() == (expected.rows + 1000).tolist()
    assert SV.beta.tolist() == expected.beta.tolist()
    assert SV.b == expected.b
    assert (SV.points.X.toarray() == X[expected.rows]).all()
    assert (SV.points.y == y[expected.rows]).all()


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_the_positive_class_has_positive_coefficients_whichever_comes_first(first):
    y, X = oracle.two_gaussians(60)
    order = np.argsort(-first * y, kind="stable")
    SV = svmlearn(points_of(y[order], X[order]), Params(gamma=1.0))
    assert len(SV) > 0
    assert (SV.beta * SV.points.y > 0).all()


def test_bounded_support_vectors_are_told_from_unbounded_ones():
    y, X = oracle.two_gaussians(300)
    SV = svmlearn(points_of(y, X), Params(gamma=1.0, C=0.3))
    alpha = np.abs(SV.beta)
    assert 0 < SV.unbounded.sum() < len(SV)
    assert (alpha[~SV.unbounded] == 0.3).all()
    assert (alpha[SV.unbounded] < 0.3).all()


@pytest.mark.parametrize("label", [1.0, -1.0])
def test_a_subset_of_one_class_has_the_constant_answer(label):
    X = oracle.two_gaussians(5)[1]
    SV = svmlearn(points_of(np.full(5, label), X), Params(gamma=1.0))
    assert (len(SV), SV.b) == (0, label)


def test_rows_without_a_feature_are_points_like_others():
    y, X = np.array([1.0, -1.0, -1.0]), np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    expected = oracle.libsvm_train(y, X, "-g 1 -e 0.0005")
    SV = svmlearn(points_of(y, X), Params(gamma=1.0))
    assert SV.points.rows.tolist() == [0, 1, 2]
    assert SV.beta.tolist() == expected.beta.tolist()


# ---- with a bound set ------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("start", ["nothing", "half of the answer"])
def test_rows_held_at_their_bound_count_as_in_the_whole_problem(C, start):
    """Where N holds bounded support vectors of the answer on all rows, the subproblem over the
    other rows has that answer, whatever solution it starts from."""
    y, X = oracle.two_gaussians(400)
    params = Params(gamma=0.5, C=C, tolerance=1e-6)
    K = oracle.kernel_matrix("rbf", X, X, 0.5)
    answer = oracle.libsvm_train(y, X, options(params)).dense(400)
    bounded = [np.flatnonzero(answer == sign * C)[:: 2 if C < 100 else 1] for sign in (1, -1)]
    m = min(map(len, bounded))
    N = np.sort(np.concatenate([rows[:m] for rows in bounded]))
    assert m > 5
    W = np.setdiff1d(np.arange(400), N)
    before = np.zeros(400)
    before[W] = answer[W] / 2 if start != "nothing" else 0.0
    u = K @ np.where(np.isin(np.arange(400), N), answer, before)
    at = np.flatnonzero(before)
    rest = SV(replace(points_of(y, X)[at], u=u[at]), before[at], 0.0, params)
    bound = Bound(points_of(y, X)[N], answer[N], rest)
    found = svmlearn(replace(points_of(y, X)[W], u=u[W]), params, bound)
    beta = np.zeros(400)
    beta[found.points.rows] = found.beta
    assert (beta[N] == answer[N]).all()
    assert (y * beta >= 0).all()
    assert np.abs(beta).max() == C
    assert beta.sum() == pytest.approx(0, abs=1e-9 * C)
    dual = [np.abs(each).sum() - each @ K @ each / 2 for each in (beta, answer)]
    assert dual[0] == pytest.approx(dual[1], rel=1e-6)
    b = oracle.libsvm_train(y, X, options(params)).b
    assert found.b == pytest.approx(b, abs=1e-4)
