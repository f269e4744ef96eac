"""What a scan reports (u, V, P, D) against the formulas in dense float64."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import two_classes
from scipy import sparse

from randsvm.data import dataset
from randsvm.data.dataset import ParseOptions
from randsvm.data.points import Points
from randsvm.data.sampling import Draws
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Params
from randsvm.svm import scan
from randsvm.svm.scan import evaluate, violators
from randsvm.svm.solution import SV
from randsvm.svm.subproblem import svmlearn

SMALL = ParseOptions(chunk_rows=100)
KERNELS = [
    Params(kernel="linear", gamma=1.0, C=0.5),
    Params(kernel="poly", gamma=0.3, coef0=1.0, degree=3, C=0.1),
    Params(kernel="rbf", gamma=0.8, C=2.0),
    Params(kernel="sigmoid", gamma=0.1, coef0=0.2),
]


class Case:
    """A data set as D and as arrays, and solutions over rows of it."""

    def __init__(self, D, y: np.ndarray, X: np.ndarray, params: Params) -> None:
        self.D, self.y, self.X, self.params = D, y, X, params
        self.K = oracle.kernel_matrix(
            params.kernel, X, X, float(params.gamma or 1), params.coef0, params.degree
        )

    def points(self, rows: np.ndarray) -> Points:
        X = sparse.csr_matrix(self.X[rows].astype(np.float32))
        return Points(rows, X, self.y[rows])

    def solution(self, rows: np.ndarray, alpha: np.ndarray, b: float) -> SV:
        return SV(self.points(rows), alpha * self.y[rows], b, self.params)

    def some(self, seed: int, m: int = 60) -> SV:
        """A feasible-looking solution: random rows, a third of them bounded."""
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.choice(len(self.y), m, replace=False))
        alpha = self.params.C * np.where(rng.random(m) < 0.3, 1.0, rng.uniform(0.01, 0.99, m))
        return self.solution(rows, alpha, float(rng.normal()))

    def solved(self, rows: np.ndarray) -> SV:
        """LIBSVM's answer for some rows."""
        words = f"-t {oracle.LIBSVM_KERNELS.index(self.params.kernel)} -g {self.params.gamma}"
        words += f" -r {self.params.coef0} -d {self.params.degree} -c {self.params.C} -e 1e-5"
        found = oracle.libsvm_train(self.y[rows], self.X[rows], words)
        return self.solution(rows[found.rows], np.abs(found.beta), found.b)

    def dense(self, SV: SV) -> np.ndarray:
        beta = np.zeros(len(self.y))
        beta[SV.points.rows] = SV.beta
        return beta

    def scan(self, SV: SV, outside: np.ndarray | None = None, keep: int = 10**6, seed: int = 1):
        working = self.points(np.empty(0, np.int64) if outside is None else outside)
        return violators(self.D, SV, outside=working, keep=keep, rng=Draws(seed))


@contextmanager
def case(path: Path, y, X, params: Params, options: ParseOptions = SMALL):
    """D holds the columns that the file has; X may have others that are all zero."""
    X = X[:, X.any(axis=0)]
    with closing(dataset.load(str(path), options, Resources(jobs=2))) as whole:
        D = two_classes(whole)
        D = D if (D.points(np.arange(D.n)).y == y).all() else whole.relabel(np.array([-1.0, 1.0]))
        yield Case(D, y, X, params)


def assert_certificate(V, case: Case, SV: SV, accuracy: float) -> None:
    beta = case.dense(SV)
    exact = oracle.objectives(case.y, case.K @ beta, beta, SV.b, case.params.C)
    # D is a difference of two sums, which both may be much larger.
    rounding = accuracy * np.abs(beta).sum()
    assert V.certificate.primal == pytest.approx(exact.primal, rel=accuracy)
    assert V.certificate.dual == pytest.approx(exact.dual, rel=accuracy, abs=rounding)
    if case.params.kernel != "sigmoid":
        assert V.certificate.gap == pytest.approx(exact.gap, rel=10 * accuracy)


# ---- the formulas ---------------------------------------------------------------------------


@pytest.mark.parametrize("params", KERNELS, ids=lambda params: params.kernel)
@pytest.mark.parametrize("data", ["two_gaussians", "sparse_rows"])
def test_a_scan_follows_the_formulas(made, data, params):
    with case(*made(data, 450), params) as one:
        SV = one.some(0)
        V = one.scan(SV)
        beta = one.dense(SV)
        u = one.K @ beta
        assert SV.points.u == pytest.approx(u[SV.points.rows], rel=1e-4, abs=1e-4)
        assert_certificate(V, one, SV, 1e-5)
        unbounded = (beta != 0) & (np.abs(beta) < params.C)
        sure = oracle.violating(one.y, u + SV.b, beta, params.C, params.tolerance + 1e-4)
        possible = oracle.violating(one.y, u + SV.b, beta, params.C, params.tolerance - 1e-4)
        offered = set(V.sample.rows.tolist())
        assert set(np.flatnonzero(sure & ~unbounded)) <= offered
        assert offered - set(np.flatnonzero(unbounded)) <= set(np.flatnonzero(possible))
        assert V.count == len(offered)


def test_without_a_semidefinite_kernel_nothing_is_certified(made):
    with case(*made("two_gaussians", 450), KERNELS[3]) as one:
        assert np.isnan(one.scan(one.some(0)).certificate.gap)
    with case(*made("two_gaussians", 450), Params(kernel="poly", gamma=1.0, coef0=-1.0)) as one:
        assert np.isnan(one.scan(one.some(0, m=5)).certificate.gap)


def test_the_certificate_encloses_the_optimum(made):
    path, y, X = made("two_gaussians", 450)
    params = Params(gamma=0.8, C=2.0)
    with case(path, y, X, params) as one:
        best = one.dense(one.solved(np.arange(450)))
        optimum = oracle.objectives(y, one.K @ best, best, 0.0, params.C).dual
        for m in (30, 100, 300):
            V = one.scan(one.solved(np.arange(m)))
            assert V.certificate.dual <= optimum * (1 + 1e-6)
            assert optimum <= V.certificate.primal * (1 + 1e-6)
        V = one.scan(one.solved(np.arange(450)))
        assert 0 <= V.certificate.gap < 1e-4
        assert V.count == 0


# ---- V --------------------------------------------------------------------------------------


def test_rows_of_the_working_set_are_never_offered(made):
    with case(*made("checkerboard", 450), Params(gamma=2.0)) as one:
        working = np.arange(0, 450, 3)
        SV = one.solved(working)
        V = one.scan(SV, outside=working)
        assert V.count > 0
        assert not set(V.sample.rows) & set(working)
        everything = one.scan(one.some(1), outside=np.arange(450))
        assert (everything.count, len(everything.sample.rows)) == (0, 0)


def test_a_bounded_support_vector_beyond_the_margin_is_a_violator_unless_in_the_working_set(made):
    """alpha = C wants y f <= 1: the other way round than for alpha = 0."""
    params = Params(gamma=0.8)
    with case(*made("two_gaussians", 450), params) as one:
        rows = np.arange(0, 450, 5)
        SV = one.solution(rows, np.full(len(rows), params.C), 0.0)
        offered = set(one.scan(SV).sample.rows)
        margin = one.y * (one.K @ one.dense(SV) + SV.b)
        beyond = rows[margin[rows] > 1 + params.tolerance]
        within = rows[margin[rows] < 1 - params.tolerance]
        assert len(beyond) > 3
        assert len(within) > 3
        assert set(beyond) <= offered
        assert not set(within) & offered
        assert not set(beyond) & set(one.scan(SV, outside=beyond).sample.rows)


def test_drawn_violators_are_a_uniform_sample_by_philox_keys(made):
    with case(*made("checkerboard", 450), Params(gamma=2.0)) as one:
        SV = one.solved(np.arange(40))
        everyone = np.sort(one.scan(SV, seed=5).sample.rows)
        V = one.scan(SV, keep=30, seed=5)
        keys = np.random.Philox(key=np.array([5, 1], np.uint64)).random_raw(450)
        smallest = everyone[np.argsort(keys[everyone])]
        assert V.count == len(everyone) > 30
        for m in (30, 7):
            R = V.draw(m)
            assert R.rows.tolist() == sorted(smallest[:m].tolist())
            assert (R.X.toarray() == one.X[R.rows]).all()


# ---- running values -------------------------------------------------------------------------


@pytest.mark.parametrize("params", KERNELS, ids=lambda params: params.kernel)
@pytest.mark.parametrize("limit, accuracy", [(0.0, 1e-9), (scan.FLOAT32_LIMIT, 1e-5)])
def test_advancing_equals_starting_from_scratch(made, monkeypatch, params, limit, accuracy):
    """Solutions that share coefficients with the one before, some that share none. A limit of 0
    on float32's rounding lets the run begin in float64."""
    monkeypatch.setattr(scan, "FLOAT32_LIMIT", limit)
    path, y, X = made("two_gaussians", 450)
    with case(path, y, X, params) as one:
        for SV in chain(one):
            V = one.scan(SV)
            u = one.K @ one.dense(SV)
            rounding = accuracy * np.abs(SV.beta).sum()
            assert SV.points.u == pytest.approx(u[SV.points.rows], rel=accuracy, abs=rounding)
            assert_certificate(V, one, SV, accuracy)


def chain(one: Case) -> list[SV]:
    first = one.some(0)
    changed = first.beta * np.where(np.arange(60) % 4, 1.0, 0.5)
    kept = np.flatnonzero(np.arange(60) % 10)
    return [
        one.some(0),
        SV(first.points, changed, 0.3, one.params),
        SV(first.points[kept], changed[kept], -0.3, one.params),
        one.some(1),
        SV(first.points[kept], first.beta[kept], 0.0, one.params),
        SV(first.points[kept[:0]], first.beta[:0], 1.0, one.params),
        one.some(2),
    ]


def test_a_final_evaluation_forgets_what_was_advanced(made):
    with case(*made("two_gaussians", 450), Params(gamma=0.8)) as one:
        SV = one.some(0)
        one.scan(SV)
        for u in one.D.running.u:
            u += 2e-4  # too little for the audit of float32 to notice
        assert_certificate(evaluate(one.D, SV, Draws(1)), one, SV, 1e-5)


@settings(max_examples=15, deadline=None)
@given(st.integers(20, 450), st.integers(20, 2000))
def test_the_size_of_chunks_changes_only_rounding(made, rows, nonzeros):
    path, y, X = made("two_gaussians", 450)
    options = ParseOptions(chunk_rows=rows, chunk_nonzeros=nonzeros)
    params = Params(gamma=0.8)
    with case(path, y, X, params) as one, case(path, y, X, params, options) as other:
        SV, expected = one.some(3), one.scan(one.some(3))
        V = other.scan(SV)
        assert V.sample.rows.tolist() == expected.sample.rows.tolist()
        assert V.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-6)
        assert V.certificate.dual == pytest.approx(expected.certificate.dual, rel=1e-6)


# ---- precision ------------------------------------------------------------------------------


def error_of_u(one: Case, SV: SV) -> float:
    beta = one.dense(SV)
    u = np.concatenate(one.D.running.u)
    return float(np.abs(u - one.K @ beta).max())


def test_where_float32_is_too_coarse_the_run_goes_on_in_float64(made):
    """C = 1,000: the coefficients blow up the rounding of float32 kernel values."""
    params = Params(gamma=0.5, C=1000.0)
    with case(*made("two_gaussians", 2000), params) as one:
        SV = one.solved(np.arange(0, 2000, 2))
        one.scan(SV)
        assert one.D.running.space.dtype is np.float64
        assert error_of_u(one, SV) <= params.tolerance / 4
        one.scan(one.solved(np.arange(0, 2000, 3)))
        assert one.D.running.space.dtype is np.float64


def test_easy_data_stays_in_float32(made):
    with case(*made("two_gaussians", 450), Params(gamma=0.5)) as one:
        SV = one.solved(np.arange(0, 450, 2))
        one.scan(SV)
        assert one.D.running.space.dtype is np.float32
        assert error_of_u(one, SV) <= one.params.tolerance / 4


@pytest.mark.parametrize("offset", [0.0, 1e3, 3e4])
def test_large_unscaled_features_keep_u_within_a_quarter_of_the_tolerance(tmp_path, offset):
    """The kernel of far-away rows is as well-known as that of rows near zero."""
    y, X = oracle.two_gaussians(600)
    X = oracle.as_float32(X * (300 if offset == 0 else 1) + offset)
    path = oracle.write_svmlight(tmp_path / "a.svm", y, X)
    params = Params(gamma=1e-4 if offset == 0 else 0.5, C=10.0)
    with case(path, y, X, params) as one:
        differences = X[:, None] - X
        one.K = np.exp(-float(params.gamma or 0) * (differences**2).sum(axis=2))
        SV = one.some(0, m=200)
        one.scan(SV)
        assert error_of_u(one, SV) <= params.tolerance / 4


def test_a_sparse_layout_and_a_dense_one_agree(made, monkeypatch):
    path, y, X = made("sparse_rows", 450)
    for params in KERNELS:
        seen = []
        for dense in (True, False):
            monkeypatch.setattr("randsvm.svm.scan.prefers_dense", lambda *_, dense=dense: dense)
            with case(path, y, X, params) as one:
                SV = one.some(0)
                V = one.scan(SV)
                assert one.D.running.space.dense == dense
                seen.append((SV.points.u, V.certificate.primal))
        assert seen[0][0] == pytest.approx(seen[1][0], rel=1e-4, abs=1e-4)
        assert seen[0][1] == pytest.approx(seen[1][1], rel=1e-5)


def test_a_huge_index_is_scanned_like_any_other(tmp_path):
    y, X = oracle.two_gaussians(50)
    path = oracle.write_svmlight(tmp_path / "a.svm", y, X)
    path.write_text(path.read_text().replace(" 2:", " 2147483647:"))
    with case(path, y, X, Params(gamma=1.0)) as one:
        SV = one.some(0, m=20)
        assert_certificate(one.scan(SV), one, SV, 1e-5)


# ---- b --------------------------------------------------------------------------------------


def primal_at(one: Case, u: np.ndarray, b: float) -> float:
    return float(np.maximum(0, 1 - one.y * (u + b)).sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_without_unbounded_support_vectors_b_minimises_p(made, seed, C):
    """P(b) is convex and piecewise linear, so its minimum is at a breakpoint b = y_i - u_i."""
    params = Params(gamma=0.8, C=C)
    with case(*made("two_gaussians", 450), params) as one:
        rows = np.sort(np.random.default_rng(seed).choice(450, 70 + 40 * seed, replace=False))
        SV = one.solution(rows, np.full(len(rows), C), 5.0)
        V = one.scan(SV)
        u = one.K @ one.dense(SV)
        least = min(primal_at(one, u, b) for b in one.y - u)
        assert primal_at(one, u, SV.b) == pytest.approx(least, rel=1e-5)
        assert_certificate(V, one, SV, 1e-5)


def test_a_solution_without_support_vectors_answers_the_larger_class(made):
    with case(*made("two_gaussians", 450), Params(gamma=0.8)) as one:
        SV = one.solution(np.empty(0, np.int64), np.empty(0), -one.y.sum())
        V = one.scan(SV)
        assert np.sign(SV.b) == np.sign(one.y.sum())
        assert V.certificate.primal == pytest.approx(2 * min((one.y > 0).sum(), (one.y < 0).sum()))
        assert V.certificate.dual == 0


@pytest.mark.parametrize("scaling", [None, "minmax", "standard"])
def test_a_part_of_the_rows_may_leave_a_chunk_without_any(tmp_path, scaling):
    """Folds and --subset do, where the last chunk is short."""
    y, X = oracle.two_gaussians(101)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    with closing(dataset.load(str(path), ParseOptions(chunk_rows=100), Resources())) as whole:
        D = two_classes(whole).only(np.arange(101) < 100)
        if scaling:
            D = D.scaled(dataset.scaling_of(D, scaling))
        params = Params(gamma=0.5)
        found = svmlearn(D.points(np.arange(100)), params)
        V = violators(D, found, outside=found.points.first(0), keep=10, rng=Draws(0))
        assert V.certificate.gap < 1e-2
