"""Support vectors held at alpha = C outside of the working set: the same answer as without."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import learning
import numpy as np
import oracle
import pytest
from learning import Data, answer_of, gaussians, kernel, learn, optimum, two_classes
from scipy import sparse

from randsvm.algorithms.osuna import osuna
from randsvm.data import dataset
from randsvm.data.dataset import ParseOptions
from randsvm.data.points import Points
from randsvm.data.sampling import Draws
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Params
from randsvm.svm import _solver, libsvm
from randsvm.svm.solution import SV, Bound
from randsvm.svm.subproblem import svmlearn

KERNELS = ("-t 2 -g 1", "-t 0", "-t 1 -g 0.5 -r 1 -d 2")
PRECISE = 1e-7


def params_of(words: str, C: float = 1.0, tolerance: float = PRECISE) -> Params:
    """Params by LIBSVM's letters, with a bound set."""
    letters = dict(zip(words.split()[::2], map(float, words.split()[1::2]), strict=True))
    return Params(
        kernel=oracle.LIBSVM_KERNELS[int(letters["-t"])],
        gamma=letters.get("-g", 1.0),
        coef0=letters.get("-r", 0.0),
        degree=int(letters.get("-d", 3)),
        C=C,
        tolerance=tolerance,
        freeze=True,
    )


def points_of(data: Data, rows: np.ndarray, u: np.ndarray | None = None) -> Points:
    X = sparse.csr_matrix(data.X[rows].astype(np.float32))
    return Points(rows, X, data.y[rows], None if u is None else u[rows])


def solution_of(data: Data, beta: np.ndarray, params: Params, b: float = 0.0) -> SV:
    rows = np.flatnonzero(beta)
    return SV(points_of(data, rows), beta[rows], b, params)


def dense(SV: SV, n: int) -> np.ndarray:
    beta = np.zeros(n)
    beta[SV.points.rows] = SV.beta
    return beta


def balanced(beta: np.ndarray, C: float, each: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of `each` bounded support vectors of either class, ascending."""
    sides = [np.flatnonzero(beta * sign == C) for sign in (1, -1)]
    return np.sort(np.concatenate([rng.choice(side, each, replace=False) for side in sides]))


def dual(y: np.ndarray, K: np.ndarray, beta: np.ndarray) -> float:
    return float(y @ beta - beta @ K @ beta / 2)


# ---- one subproblem -------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.5, 20.0])
@pytest.mark.parametrize("words", KERNELS)
def test_the_optimum_stays_when_some_of_its_bounded_vectors_are_frozen(words, C):
    data = gaussians(400)
    y, X = data
    whole = oracle.libsvm_train(y, X, f"{words} -c {C} -e 1e-7")
    beta, K, params = whole.dense(len(y)), kernel(words, X, X), params_of(words, C)
    rng = np.random.default_rng(1)
    N = balanced(beta, C, int(min((beta == C).sum(), (beta == -C).sum()) * 0.8), rng)
    W = np.setdiff1d(np.arange(len(y)), N)
    before = beta.copy()
    before[N] = 0.0
    held = Bound(points_of(data, N), beta[N], solution_of(data, before, params, whole.b))
    found = svmlearn(points_of(data, W, K @ beta), params, held)
    assert len(N) > 20
    assert dual(y, K, dense(found, len(y))) == pytest.approx(dual(y, K, beta), rel=1e-6)
    assert found.b == pytest.approx(whole.b, abs=1e-4)
    assert (dense(found, len(y))[N] == beta[N]).all()


def quadratic_program(
    K: np.ndarray, y: np.ndarray, g: np.ndarray, C: float
) -> tuple[np.ndarray, float]:
    """min 1/2 beta' K beta - (y - g)' beta, 0 <= y beta <= C, sum beta = 0: beta and b.

    Steps along the pair that violates most, until no pair does: these are the KKT conditions.
    """
    low, high = np.minimum(0, C * y), np.maximum(0, C * y)
    beta, slope = np.zeros(len(y)), y - g
    while True:
        i = np.argmax(np.where(beta < high, slope, -np.inf))
        j = np.argmin(np.where(beta > low, slope, np.inf))
        if slope[i] - slope[j] < 1e-9:
            return beta, (slope[i] + slope[j]) / 2
        step = (slope[i] - slope[j]) / max(K[i, i] + K[j, j] - 2 * K[i, j], 1e-12)
        step = min(step, high[i] - beta[i], beta[j] - low[j])
        beta[i] += step
        beta[j] -= step
        slope = slope - step * (K[:, i] - K[:, j])


@pytest.fixture(params=["values", "rows"])
def form(request, monkeypatch):
    """What LIBSVM is given: kernel values, and a C-SVC with a linear term, or the rows of an
    epsilon-SVR, as in large subproblems."""
    if request.param == "rows":
        monkeypatch.setattr(libsvm, "GRAM_MOST", 0)
    return request.param


@pytest.mark.parametrize("start", ["empty", "half", "bound"])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("words", KERNELS)
def test_a_subproblem_is_the_quadratic_program_it_stands_for(words, seed, start, form):
    """Whatever is frozen, right or wrong, and wherever the working set starts from."""
    C, rng = 2.0, np.random.default_rng(seed)
    data = gaussians(48, seed)
    y, X = data
    K, params = kernel(words, X, X), params_of(words, C)
    N = np.sort(np.concatenate([np.flatnonzero(y == sign)[:8] for sign in (1, -1)]))
    W = np.setdiff1d(np.arange(len(y)), N)
    frozen, before = np.zeros(len(y)), np.zeros(len(y))
    frozen[N] = C * y[N]
    pairs = [rng.permutation(W[y[W] == sign])[:5] for sign in (1, -1)]
    if start != "empty":
        part = {"half": np.full(5, 0.5), "bound": np.array([1, 1, 1, 0.5, 0.5])}[start]
        before[np.concatenate(pairs)] = C * np.concatenate([part, -part[::-1]])
    held = Bound(points_of(data, N), frozen[N], solution_of(data, before, params))
    solved = svmlearn(points_of(data, W, K @ (frozen + before)), params, held)
    found, g, inner = dense(solved, len(y)), (K @ frozen)[W], K[np.ix_(W, W)]
    expected, b = quadratic_program(inner, y[W], g, C)

    def objective(beta: np.ndarray) -> float:
        return float((y[W] - g) @ beta - beta @ inner @ beta / 2)

    assert (found[N] == frozen[N]).all()
    assert ((y * found >= 0) & (y * found <= C)).all()
    assert abs(found.sum()) < 1e-9
    assert objective(found[W]) == pytest.approx(objective(expected), rel=1e-6)
    free = (np.abs(expected) > 1e-4) & (np.abs(expected) < C - 1e-4)
    assert not free.any() or solved.b == pytest.approx(b, abs=1e-4)


@pytest.mark.parametrize("words", KERNELS)
def test_a_coarse_tolerance_does_not_fall_behind_the_start(words):
    data = gaussians(400)
    y, X = data
    whole = oracle.libsvm_train(y, X, f"{words} -c 1 -e 1e-7")
    beta, K, params = whole.dense(len(y)), kernel(words, X, X), params_of(words, tolerance=0.9)
    N = balanced(beta, 1.0, 20, np.random.default_rng(1))
    before = beta.copy()
    before[N] = 0.0
    held = Bound(points_of(data, N), beta[N], solution_of(data, before, params, whole.b))
    W = np.setdiff1d(np.arange(len(y)), N)
    found = dense(svmlearn(points_of(data, W, K @ beta), params, held), len(y))
    assert dual(y, K, found) >= dual(y, K, beta) - 1e-6 * np.abs(beta).sum()


@pytest.mark.parametrize("size", [0.0, 1e-4, 1e5])
def test_a_linear_term_of_any_size_is_exact(size, form, monkeypatch):
    """The same number in all of it moves b and nothing else: float32 would lose the rest of it."""
    forms, plain = [], libsvm._solve

    def watched(*arguments, epsilon=None):
        forms.append("rows" if epsilon else "values")
        return plain(*arguments, epsilon=epsilon)

    monkeypatch.setattr(libsvm, "_solve", watched)
    C, data = 2.0, gaussians(48, 0)
    y, X = data
    K, params = kernel("-t 2 -g 1", X, X), params_of("-t 2 -g 1", C)
    N = np.concatenate([np.flatnonzero(y == sign)[:8] for sign in (1, -1)])
    W, frozen = np.setdiff1d(np.arange(len(y)), N), np.zeros(len(y))
    frozen[N] = C * y[N]
    held = Bound(points_of(data, N), frozen[N], solution_of(data, np.zeros(len(y)), params))
    found = svmlearn(points_of(data, W, K @ frozen + size), params, held)
    expected, b = quadratic_program(K[np.ix_(W, W)], y[W], (K @ frozen)[W], C)
    assert dense(found, len(y))[W] == pytest.approx(expected, abs=1e-5)
    assert found.b == pytest.approx(b - size, abs=1e-5)
    assert forms == [form]


@pytest.mark.parametrize("weights", [(1.0, 2.0), (2.0, 1.0)])
@pytest.mark.parametrize("words", KERNELS)
def test_a_more_precise_solve_keeps_the_weights_of_classes(words, weights):
    """Where a class has its own C nothing is held, and nothing starts at a bound."""
    data = gaussians(120)
    y, X = data
    params = replace(params_of(words, tolerance=1e-3), freeze=False, class_weights=weights)
    K, W = kernel(words, X, X), np.arange(120)
    first = svmlearn(points_of(data, W[:90]), params)
    first.precision = 0.1
    held = Bound(points_of(data, W[:0]), np.empty(0), first)
    found = dense(svmlearn(points_of(data, W, K @ dense(first, 120)), params, held), 120)
    expected = dense(svmlearn(points_of(data, W), params), 120)
    assert abs(found.sum()) < 1e-9
    assert (y * found >= 0).all() and (np.abs(found) <= np.where(y > 0, *weights)).all()
    assert dual(y, K, found) == pytest.approx(dual(y, K, expected), rel=1e-3)


@pytest.mark.parametrize("m", [4, 5])
def test_what_was_in_memory_before_does_not_matter(m, monkeypatch):
    monkeypatch.setattr(libsvm, "_spare", [np.full(100, np.inf)])
    data = gaussians(m, 0)
    matrix = libsvm.Gram.of(points_of(data, np.arange(m)), params_of("-t 2 -g 1"))
    beta = np.array([1.0, -1.0, 1.0, -1.0, 0.5])[:m]
    assert matrix.times(beta) == pytest.approx(kernel("-t 2 -g 1", data.X, data.X) @ beta)


def test_a_linear_term_beyond_float32_takes_the_other_form():
    points = points_of(gaussians(5, 0), np.arange(5))
    matrix = libsvm.Gram.of(points, params_of("-t 2 -g 1"))
    before = matrix.times(np.ones(5))
    assert matrix.lean(np.full(5, 1e30)) and not matrix.lean(np.full(5, 1e38))
    assert matrix.times(np.ones(5)).tolist() == before.tolist()


def test_a_working_set_of_one_class_cannot_move(form):
    """sum beta = 0 leaves no other solution than the one it came with."""
    data = gaussians(48, 0)
    y, X = data
    K, params = kernel("-t 2 -g 1", X, X), params_of("-t 2 -g 1")
    N = np.concatenate([np.flatnonzero(y == sign)[:8] for sign in (1, -1)])
    W = np.setdiff1d(np.flatnonzero(y > 0), N)
    frozen = np.zeros(len(y))
    frozen[N] = y[N]
    held = Bound(points_of(data, N), frozen[N], solution_of(data, np.zeros(len(y)), params))
    found = svmlearn(points_of(data, W, K @ frozen), params, held)
    assert dense(found, len(y)).tolist() == frozen.tolist()


def test_a_solution_at_its_bounds_takes_few_steps(monkeypatch, form):
    """LIBSVM begins where the last solution is, and not at 0: 200 rows stay at C."""
    steps, train = [], libsvm._Library.train

    def counted(*arguments):
        answer = train(*arguments)
        steps.append(_solver.iterations())
        return answer

    monkeypatch.setattr(libsvm._Library, "train", counted)
    data = gaussians(400)
    y, X = data
    whole = oracle.libsvm_train(y, X, "-t 2 -g 1 -c 0.01 -e 1e-7")
    beta, K = whole.dense(len(y)), kernel("-t 2 -g 1", X, X)
    params, W = params_of("-t 2 -g 1", 0.01, tolerance=1e-3), np.arange(len(y))
    assert np.count_nonzero(np.abs(beta) == 0.01) > 200
    held = Bound(points_of(data, W[:0]), np.empty(0), solution_of(data, beta, params, whole.b))
    found = svmlearn(points_of(data, W, K @ beta), params, held)
    assert dense(found, len(y)) == pytest.approx(beta, abs=1e-3)
    assert len(steps) == 1 and steps[0] < 100


def test_rows_far_beyond_the_first_width_come_out_right(monkeypatch):
    """y f = 50,000 at one row, where the width M of the epsilon-SVR form is chosen for 1."""
    widths = []
    plain = libsvm._solve

    def watched(*arguments, epsilon):
        widths.append(epsilon)
        return plain(*arguments, epsilon=epsilon)

    monkeypatch.setattr(libsvm, "GRAM_MOST", 0)
    monkeypatch.setattr(libsvm, "_solve", watched)
    # The frozen rows cancel but for 1e-3, so that u tells nothing of what is to come.
    X = oracle.as_float32(np.array([[1.0], [-1.0], [0.5], [0.4999], [50_000.0]]))
    data = Data(np.array([1.0, -1.0, 1.0, -1.0, 1.0]), X)
    y, K, params = data.y, X @ X.T, params_of("-t 0", 10.0)
    N, W = np.array([2, 3]), np.array([0, 1, 4])
    frozen = np.array([0.0, 0.0, 10.0, -10.0, 0.0])
    held = Bound(points_of(data, N), frozen[N], solution_of(data, np.zeros(5), params))
    u = K @ frozen
    u[4] = 0.0
    g = u[W]
    found = svmlearn(points_of(data, W, u), params, held)
    expected, b = quadratic_program(K[np.ix_(W, W)], y[W], g, 10.0)
    assert dense(found, 5)[W] == pytest.approx(expected, abs=1e-4)
    assert found.b == pytest.approx(b, abs=1e-4)
    assert K[4] @ dense(found, 5) + found.b > 1 + 2 * widths[0]
    assert widths == [widths[0] * 16**tries for tries in range(len(widths))]


# ---- whole runs -----------------------------------------------------------------------------

RUNS = {
    "randsvm": ("--gap", 1e-9, "--sample-size", 300),
    "osuna": ("--working-set", 300),
    "osuna-closest": ("--working-set", 300),
}


@pytest.mark.parametrize("words", KERNELS)
@pytest.mark.parametrize("algorithm", RUNS)
def test_the_dual_never_decreases_and_encloses_the_optimum(tmp_path, algorithm, words):
    for name in ("gaussians", "board"):
        data = learning.MAKERS[name](2000)
        whole = optimum(name, 2000, words)
        words_of_run = (*words.split(), *RUNS[algorithm], "--max-iterations", 30)
        learnt = learn(algorithm, data.save(tmp_path / name), tmp_path / "m", *words_of_run)
        duals = [event["dual"] for event in learnt.rounds]
        # sum alpha, of which the slack is a share, is at most C |SV|; here C = 1.
        slack = 1e-6 * np.array([event["support_vectors"] for event in learnt.rounds[1:]])
        assert len(duals) > 3
        assert any(event["bound"] for event in learnt.rounds)
        assert (np.diff(duals) >= -slack).all()
        assert max(duals) <= whole.primal * (1 + 1e-6)
        assert min(event["primal"] for event in learnt.rounds) >= whole.dual * (1 - 1e-6)


@pytest.mark.parametrize("words", [KERNELS[0], KERNELS[2]])
@pytest.mark.parametrize("algorithm", RUNS)
def test_fewer_rows_than_support_vectors_suffice_for_the_optimum(tmp_path, algorithm, words):
    data, whole = gaussians(2000), optimum("gaussians", 2000, words)
    path = data.save(tmp_path / "data")
    learnt = learn(algorithm, path, tmp_path / "m", *words.split(), *RUNS[algorithm])
    found = answer_of(learnt.model, data, words)
    assert learnt.facts["stopped"] == "no violators"
    assert (
        max(event["working_set"] for event in learnt.rounds) <= 300 < np.count_nonzero(found.beta)
    )
    assert not oracle.violating(data.y, found.f, found.beta, 1.0, 1.1e-3).any()
    assert max(abs(found.primal - whole.dual), abs(found.dual - whole.dual)) <= 1e-3 * whole.dual
    assert np.count_nonzero((found.f > 0) != (whole.f > 0)) <= 4


def test_rows_frozen_by_mistake_return_and_leave(tmp_path: Path):
    """Bounded, outside of the working set, y f > 1: violators like any other row."""
    data, words = gaussians(1000), KERNELS[0]
    y, X = data
    params = params_of(words, tolerance=1e-3)
    whole = optimum("gaussians", 1000, words)
    margin = y * whole.f
    wrong = np.concatenate([np.flatnonzero((y == s) & (margin > 1.2))[:40] for s in (1, -1)])
    N = np.sort(wrong)
    assert (whole.beta[N] == 0).all()
    W = np.setdiff1d(np.arange(1000), N)[:200]
    scans = []

    def start(D, r, params, rng):
        g = kernel(words, X, X[N]) @ y[N]
        held = Bound(D.points(N), y[N], SV(D.points(W[:0]), np.empty(0), 0.0, params))
        return points_of(data, W, g), held

    with closing(
        dataset.load(str(data.save(tmp_path / "d")), ParseOptions(), Resources(jobs=1))
    ) as D:
        watch = partial(lambda SV, V: scans.append((SV, V)))
        found = osuna(
            two_classes(D),
            200,
            lambda SV, V: len(scans) > 99,
            params,
            Draws(0),
            watch,
            start,
            None,
        )
    first, V = scans[0]
    assert np.isin(N, first.points.rows).all()
    f = kernel(words, X[N], X[first.points.rows]) @ first.beta + first.b
    beyond = N[y[N] * f > 1.01]
    assert len(beyond) > 0
    # Each is reported, as far as there is room, in the order of `First`.
    kept = V.sample.rows
    assert np.isin(beyond[beyond < kept.max()], kept).all()
    last, V = scans[-1]
    assert V.count == 0
    assert not np.isin(N, last.points.rows).any()
    beta = dense(found, 1000)
    assert dual(y, kernel(words, X, X), beta) == pytest.approx(whole.dual, rel=1e-3)
    assert all(b.certificate.dual > a.certificate.dual - 1e-3 for (_, a), (_, b) in pairwise(scans))
