"""Test Algorithm 1 against LIBSVM on all rows, and that the way of running it does not change the
model.
"""

import json
import math
from itertools import pairwise

import numpy as np
import oracle
import pytest
from learning import board, learn

# BOARD needs several rounds of sampling; SMALL is small enough for many runs.
BOARD = ("checkerboard", 5000)
SMALL = ("checkerboard", 900)
SMALL_WORDS = ("-g", 5, "-k", 350, "--sample-size", 400)


def dual(beta, K):
    return float(np.abs(beta).sum() - beta @ K @ beta / 2)


def assert_as_good_as_libsvm(trained, y, X, C, gamma):
    """Check that the dual objectives agree to 1e-3 and at most 0.2% of the predictions differ."""
    model = oracle.read_model(trained.model, X.shape[1])
    whole = oracle.libsvm_train(y, X, f"-c {C} -g {gamma!r} -e 0.0005")
    Z = X[whole.rows]
    found = dual(model.beta, oracle.kernel_matrix("rbf", model.Z, model.Z, gamma))
    optimum = dual(whole.beta, oracle.kernel_matrix("rbf", Z, Z, gamma))
    assert found == pytest.approx(optimum, rel=1e-3)
    f = oracle.kernel_matrix("rbf", X, model.Z, gamma) @ model.beta + model.b
    expected = oracle.kernel_matrix("rbf", X, Z, gamma) @ whole.beta + whole.b
    assert np.count_nonzero((f > 0) != (expected > 0)) <= 0.002 * len(y)


# ---- stopping -------------------------------------------------------------------------------


def test_a_small_bound_on_support_vectors_ends_the_run_and_is_reported(made, train):
    path, _, _ = made(*BOARD)
    trained = train(path, "-g", 5, "-k", 50, "--sample-size", 200)
    count = len(oracle.read_model(trained.model, 2).beta)
    assert count >= 50
    assert trained.metadata["stopped"] == f"{count} support vectors >= k = 50"
    assert trained.metadata["stopped"] in trained.stderr
    assert 0 < float(trained.metadata["gap"]) < math.inf
    assert int(trained.metadata["violators"]) > 0


def test_the_stopping_rule_of_kbh07_leaves_no_violators_beyond_the_tolerance(made, train):
    path, y, X = made(*SMALL)
    trained = train(path, *SMALL_WORDS)
    model = oracle.read_model(trained.model, 2)
    places = {tuple(x): i for i, x in enumerate(X)}
    beta = np.zeros(len(y))
    beta[[places[tuple(z)] for z in oracle.as_float32(model.Z)]] = model.beta
    f = oracle.kernel_matrix("rbf", X, model.Z, 5.0) @ model.beta + model.b
    assert not oracle.violating(y, f, beta, 1.0, 1.1e-3).any()
    assert trained.metadata["violators"] == 0


def test_a_run_without_progress_ends_and_reports_it(made, train):
    """With the sigmoid kernel on a checkerboard, rounds may exchange the same few violators
    endlessly.
    """
    path, _, _ = made(*SMALL)
    words = ("-t", "sigmoid", "-g", 0.5, "-r", -1, "-k", 870, "--sample-size", 880)
    trained = train(path, *words, "--max-iterations", 200)
    assert trained.metadata["stopped"] in (
        "no violators",
        "no progress (scale the features, or lower -c)",
    )
    assert trained.metadata["gap"] is None


# ---- blocks of near rows --------------------------------------------------------------------


def test_blocks_of_near_rows_reach_libsvms_optimum_with_any_number_of_jobs(made, train, tmp_path):
    """With a narrow kernel most rounds solve four blocks at the same time."""
    path, y, X = made("checkerboard", 4000)
    log = tmp_path / "log"
    runs = [train(path, "-g", 200, "-c", 4, "--jobs", jobs, "--log", log) for jobs in (2, 1)]
    assert runs[0].model.read_bytes() == runs[1].model.read_bytes()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    of_one = records[[one["event"] for one in records].index("trained") + 1 :]
    rounds = [one for one in of_one if one["event"] == "iteration"]
    assert [one["working_set"] for one in rounds][1:-1].count(2000) >= len(rounds) // 2 > 1
    duals = [one["dual"] for one in rounds]
    assert all(b >= a - 1e-6 * abs(a) for a, b in pairwise(duals))
    model = oracle.read_model(runs[0].model, 2)
    found = dual(model.beta, oracle.kernel_matrix("rbf", model.Z, model.Z, 200))
    assert found == pytest.approx(max(duals), rel=1e-4)
    assert_as_good_as_libsvm(runs[0], y, X, 4, 200)


def test_no_subproblem_of_kbh07_exceeds_its_size(tmp_path):
    path = board(900).save(tmp_path / "data")
    words = ("-g", 5, "--gap", "none", "-k", 299, "--sample-size", 300)
    learnt = learn("randsvm", path, tmp_path / "m", *words)
    sizes = [event["working_set"] for event in learnt.rounds]
    assert len(sizes) > 1 and max(sizes) <= 300
