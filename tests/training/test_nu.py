"""Test nu-SVC and nu-SVR against LIBSVM on all rows, their formulas, and their refusals."""

import numpy as np
import oracle
import pytest
from learning import learn, read_log
from libsvm.svmutil import svm_train
from scipy import sparse

import randsvm
from randsvm.errors import ContentError, ParameterError


def test_classes_that_overlap_more_than_nu_end_soon_with_a_notice(tmp_path):
    """LIBSVM divides by a rho near 0 of either sign here."""
    rng = np.random.default_rng(0)
    X = oracle.as_float32(rng.normal(size=(150, 2)))
    path = oracle.write_rows(tmp_path / "d", rng.choice([-1.0, 1.0], 150), X)
    with pytest.raises(ContentError, match="no margin"):
        learn("randsvm", path, tmp_path / "m", "-s", 1, "-n", 0.1, "-t", 0, "--gap", 1e-3)
    assert read_log(tmp_path / "m.jsonl")[-1]["event"] == "failed"


@pytest.mark.parametrize("nu", [0.1, 0.9])
def test_rows_that_have_both_labels_are_refused_with_advice_for_any_nu(nu):
    """A larger nu does not help here."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    data = randsvm.Arrays(np.vstack([X, X]), np.repeat([1, -1], 40))
    with pytest.raises(ContentError, match=r"no margin.*; if none helps, use another kernel"):
        randsvm.train(data, task="nu-svc", nu=nu, gamma=1)


@pytest.mark.parametrize("tolerance", [0.1, 1e-3])
def test_a_margin_below_the_rounding_of_float32_is_found(tmp_path, tolerance):
    """K = (c + g <x, z>)^2 with c = .9 and 2 c g <x, z> of 1e-9: D is that of a linear kernel."""
    rng = np.random.default_rng(3)
    y = np.where(np.arange(40) % 2, 1.0, -1.0)
    X = np.column_stack([y + 0.3 * rng.normal(size=40), rng.normal(size=40)]).round(3)
    path = oracle.write_rows(tmp_path / "d", y, np.column_stack([X, np.full(40, 3e4)]))
    words = ("-s", 1, "-t", 1, "-d", 2, "-g", 1e-9, "-n", 0.3, "-e", tolerance, "--gap", 0.01)
    learn("randsvm", path, tmp_path / "m", *words, "--sample-size", 10)
    linear = svm_train(y, sparse.csr_matrix(X), "-q -s 1 -t 0 -n 0.3 -e 1e-6")
    beta = np.array(linear.get_sv_coef())[:, 0]
    beta *= 0.3 * 40 / np.abs(beta).sum()
    w = beta @ X[np.array(linear.get_sv_indices()) - 1]
    written = oracle.trailer(tmp_path / "m")
    assert -float(written["dual"]) == pytest.approx(0.9 * 1e-9 * w @ w, rel=0.02)
    assert float(written["gap"]) <= 0.01


@pytest.mark.parametrize("C, weight", [(1e308, 1.0), (1e300, 1e38)], ids=["sums", "bounds"])
def test_a_cost_whose_sums_leave_float64_is_named(C, weight):
    X = np.arange(1.0, 7.0)[:, None]
    data = randsvm.Arrays(X, X[:, 0] + 0.5, weights=np.full(6, weight))
    with pytest.raises(ParameterError, match="leave float64 on this data: lower -c"):
        randsvm.train(data, task="nu-svr", C=C, gamma=1)


# ---- many rows at C, and working sets that are a small part of them ------------------------------


def noisy_targets(rows):
    """Return targets that hardly depend on the rows."""
    rng = np.random.default_rng(16)
    X = oracle.as_float32(rng.normal(size=(rows, 5)).round(3))
    return (X[:, 0] + rng.normal(size=rows)).round(3), X


def best_dual(task, y, X, words, gamma):
    """Return D of LIBSVM's solution on all rows."""
    exact = svm_train(y, sparse.csr_matrix(X), f"-q {words} -g {gamma} -e 1e-6")
    beta = np.zeros(len(y))
    beta[np.array(exact.get_sv_indices()) - 1] = np.array(exact.get_sv_coef())[:, 0]
    norm = beta @ oracle.kernel_matrix("rbf", X, X, gamma) @ beta
    if task == "nu-svc":
        return -norm / 2 / np.abs(beta).max() ** 2
    return y @ beta - norm / 2


SMALL_SETS = (
    ("randsvm", "--sample-size", 40),
    ("osuna-closest", "--working-set", 40),
    ("osuna", "--working-set", 30, "--swap", 2),
    ("osuna-closest", "--working-set", 30, "--swap", 2),
)


# The task, rows, options that LIBSVM has too, and gamma.
MANY_AT_BOUNDS = {
    "no tube": ("nu-svr", 1000, "-s 4 -c 10 -n 0.3", 10),
    "tube": ("nu-svr", 1000, "-s 4 -c 1 -n 0.5", 0.2),
    "classes": ("nu-svc", 300, "-s 1 -n 0.6", 0.2),
}


@pytest.mark.parametrize("words", SMALL_SETS, ids=lambda words: f"{words[0]} {words[-2:]}")
@pytest.mark.parametrize("task, rows, options, gamma", MANY_AT_BOUNDS.values(), ids=MANY_AT_BOUNDS)
def test_a_run_that_starts_with_many_rows_at_bounds_reaches_the_optimum(
    tmp_path, words, task, rows, options, gamma
):
    """With C = 10 the tube is 0 at the optimum, and sum |beta| falls far below C nu n."""
    targets, X = noisy_targets(300 if "--swap" in words else rows)
    y = targets if task == "nu-svr" else np.where(targets > 0, 1.0, -1.0)
    path = oracle.write_rows(tmp_path / "d", y, X)
    algorithm, *own = words
    given = (*options.split(), "-g", gamma, "--gap", 1e-3)
    learnt = learn(algorithm, path, tmp_path / "m", *given, *own)
    best = best_dual(task, y, X, options, gamma)
    assert learnt.outcome["stopped"].startswith("gap")
    P, D = learnt.outcome["primal"], learnt.outcome["dual"]
    assert best + 1e-5 * abs(best) >= D and best - 1e-5 * abs(best) <= P
    assert 1.01e-3 * max(abs(P), abs(D)) >= P - D
