"""Test nu-SVC and nu-SVR against LIBSVM on all rows, their formulas, and their refusals."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from learning import board, gaussians, learn, read_log
from libsvm.svmutil import svm_train
from scipy import sparse

from randsvm.errors import ParameterError


def save(path, task, y, X):
    labels = [repr(float(t)) if task == "nu-svr" else f"{int(t):+d}" for t in y]
    path.write_text(oracle.svmlight_text(labels, X))
    return path


def dense_model(model, X):
    """Return beta (n,) of a model file, its b, and f (n,)."""
    found = oracle.read_model(model, X.shape[1])
    places = {tuple(x): i for i, x in enumerate(X)}
    beta = np.zeros(len(X))
    beta[[places[tuple(z)] for z in oracle.as_float32(found.Z)]] = found.beta
    return beta, found.b


def kernel_values(words, X):
    given = dict(zip(words[::2], words[1::2], strict=True))
    name = oracle.LIBSVM_KERNELS[given.get("-t", 2)]
    return oracle.kernel_matrix(name, X, X, given["-g"], given.get("-r", 0))


def test_nu_bounds_the_shares_of_errors_and_of_support_vectors(tmp_path):
    """Schoelkopf et al. 2000, proposition 5: margin errors <= nu <= support vectors."""
    y, X = board(600)
    path = save(tmp_path / "d", "nu-svc", y, X)
    learnt = learn("randsvm", path, tmp_path / "m", "-s", 1, "-n", 0.45, "-g", 1, "--gap", 1e-4)
    assert learnt.outcome["bounded"] <= 0.45 * 600 <= learnt.outcome["support_vectors"]


def test_an_infeasible_nu_is_refused_as_libsvm_does(tmp_path):
    y, X = board(60)
    y = np.where(np.arange(60) < 10, 1.0, -1.0)
    path = save(tmp_path / "d", "nu-svc", y, X)
    with pytest.raises(ParameterError, match=r"-n 0.34 is infeasible .* at most 0.3333"):
        learn("randsvm", path, tmp_path / "m", "-s", 1, "-n", 0.34)
    assert not (tmp_path / "m").exists()
    learn("randsvm", path, tmp_path / "m", "-s", 1, "-n", 0.33, "-g", 5, "--gap", 1e-3)


def test_classes_that_overlap_more_than_nu_end_soon_with_a_notice(tmp_path):
    """LIBSVM divides by a rho near 0 of either sign here."""
    rng = np.random.default_rng(0)
    X = oracle.as_float32(rng.normal(size=(150, 2)))
    path = save(tmp_path / "d", "nu-svc", rng.choice([-1.0, 1.0], 150), X)
    with pytest.raises(ParameterError, match="no margin"):
        learn("randsvm", path, tmp_path / "m", "-s", 1, "-n", 0.1, "-t", 0, "--gap", 1e-3)
    assert read_log(tmp_path / "m.jsonl")[-1]["event"] == "failed"


@pytest.mark.parametrize("nu", [0.9, 1.0])
def test_a_regression_with_a_tube_of_width_zero_is_solved(tmp_path, nu):
    """With many equal targets the tube is 0, and sum |beta| need not be C nu n."""
    rng = np.random.default_rng(1)
    X = oracle.as_float32(rng.normal(size=(80, 2)))
    y = np.where(rng.random(80) < 0.7, 1.0, rng.normal(size=80))
    path = save(tmp_path / "d", "nu-svr", y, X)
    learnt = learn("randsvm", path, tmp_path / "m", "-s", 4, "-n", nu, "-g", 0.1, "--gap", 1e-4)
    assert learnt.outcome["gap"] <= 1e-4
    exact = svm_train(y, sparse.csr_matrix(X), f"-q -s 4 -n {nu} -g 0.1 -e 1e-6")
    beta = np.zeros(80)
    beta[np.array(exact.get_sv_indices()) - 1] = np.array(exact.get_sv_coef())[:, 0]
    K = oracle.kernel_matrix("rbf", X, X, 0.1)
    assert learnt.outcome["dual"] == pytest.approx(y @ beta - beta @ K @ beta / 2, rel=2e-4)


@pytest.mark.parametrize(
    "words", [("osuna", "--working-set"), ("randsvm", "--sample-size")], ids=lambda words: words[0]
)
def test_a_working_set_without_room_for_a_step_is_refused(tmp_path, words):
    """Two rows of each side are enough for LIBSVM's optimum."""
    algorithm, option = words
    path = save(tmp_path / "d", "nu-svc", *gaussians(60))
    run = ("-s", "nu-svc", "-n", 0.5, "-g", 1, option)
    with pytest.raises(ParameterError, match=f"{option} must be 4 or more with -s nu-svc, got 3"):
        learn(algorithm, path, tmp_path / "m", *run, 3)
    assert learn(algorithm, path, tmp_path / "m", *run, 4).outcome["gap"] <= 1e-3


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


def assert_reaches_libsvms_optimum(learnt, best):
    assert learnt.outcome["stopped"].startswith("gap")
    P, D = learnt.outcome["primal"], learnt.outcome["dual"]
    assert best + 1e-5 * abs(best) >= D and best - 1e-5 * abs(best) <= P
    assert 1.01e-3 * max(abs(P), abs(D)) >= P - D


@pytest.mark.parametrize("words", SMALL_SETS, ids=lambda words: f"{words[0]} {words[-2:]}")
@pytest.mark.parametrize("C, nu, gamma", [(10, 0.3, 10), (1, 0.5, 0.2)], ids=["no tube", "tube"])
def test_a_regression_that_starts_with_many_rows_at_c_reaches_the_optimum(
    tmp_path, words, C, nu, gamma
):
    """With C = 10 the tube is 0 at the optimum, and sum |beta| falls far below C nu n."""
    y, X = noisy_targets(300 if "--swap" in words else 1000)
    path = save(tmp_path / "d", "nu-svr", y, X)
    given = ("-s", "nu-svr", "-c", C, "-n", nu, "-g", gamma, "--gap", 1e-3)
    learnt = learn(words[0], path, tmp_path / "m", *given, *words[1:])
    best = best_dual("nu-svr", y, X, f"-s 4 -c {C} -n {nu}", gamma)
    assert_reaches_libsvms_optimum(learnt, best)


@pytest.mark.parametrize("words", SMALL_SETS, ids=lambda words: f"{words[0]} {words[-2:]}")
def test_a_classification_with_most_rows_at_bounds_reaches_the_optimum(tmp_path, words):
    targets, X = noisy_targets(300)
    y = np.where(targets > 0, 1.0, -1.0)
    path = save(tmp_path / "d", "nu-svc", y, X)
    given = ("-s", "nu-svc", "-n", 0.6, "-g", 0.2, "--gap", 1e-3)
    learnt = learn(words[0], path, tmp_path / "m", *given, *words[1:])
    best = best_dual("nu-svc", y, X, "-s 1 -n 0.6", 0.2)
    assert_reaches_libsvms_optimum(learnt, best)


# ---- interrupted runs -----------------------------------------------------------------------


def test_an_unfinished_run_does_not_report_inseparable_classes(tmp_path):
    """After one round rho is below 0, which does not hold for the optimum. The model is written
    with a positive factor and its gap, and the folds of -b 1 are used in the same way.
    """
    y, X = board(600)
    path = save(tmp_path / "d", "nu-svc", y, X)
    words = ("-s", "nu-svc", "-n", 0.4, "-g", 1, "--sample-size", 20)
    cut = learn("randsvm", path, tmp_path / "m", *words, "--max-iterations", 1, "-b", 1)
    assert cut.outcome["stopped"] == "iteration limit" and cut.outcome["gap"] > 1
    assert "probA" in cut.model.read_text()
    beta, b = dense_model(cut.model, X)
    assert np.isfinite(b) and (beta * y >= 0).all() and np.abs(beta).max() > 0
    # P of the best rho; sum |beta| = nu n yields the factor.
    factor = 0.4 * 600 / np.abs(beta).sum()
    u = kernel_values(words[2:6], X) @ (factor * beta)
    margins = y * (u + factor * b)
    rho = np.sort(margins)[int(0.4 * 600)]
    P = factor * beta @ u / 2 - 240 * rho + np.maximum(0, rho - margins).sum()
    assert rho < 0
    assert cut.outcome["primal"] == pytest.approx(P, rel=1e-5)
    whole = learn("randsvm", path, tmp_path / "whole", *words)
    assert cut.outcome["dual"] <= whole.outcome["primal"] <= cut.outcome["primal"]


def test_classes_with_equal_rows_have_no_margin(tmp_path):
    """P = D = 0 at the start, so the gap is reached, but rho is 0."""
    X = np.tile(oracle.as_float32(np.arange(1.0, 6.0)[:, None]), (8, 2))
    y = np.where(np.arange(40) < 20, 1.0, -1.0)
    path = save(tmp_path / "d", "nu-svc", y, X)
    with pytest.raises(ParameterError, match="no margin"):
        learn("randsvm", path, tmp_path / "m", "-s", "nu-svc", "-n", 0.5, "-g", 1)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("task", ["nu-svr", "nu-svc", "one-class"])
def test_kernel_values_beyond_float32_are_refused(tmp_path, task):
    path = tmp_path / "d"
    path.write_text("-1 1:1000000 2:1000001\n+1 1:1000002 2:999999\n" * 3)
    words = ("-s", task, "-n", 0.5, "-t", "poly", "-g", 942, "-d", 3)
    with pytest.raises(ParameterError, match=r"poly kernel reach .* scale the features"):
        learn("randsvm", path, tmp_path / "m", *words)
    assert not (tmp_path / "m").exists()
