"""--reduce: few support vectors with new coefficients, and a split certificate."""

import numpy as np
import oracle
import pytest
from commands import run_train
from libsvm import svmutil
from oracle import write_rows
from scipy import optimize

import randsvm
from randsvm.parameters.run import CertifyParams

TARGETS = np.round(np.sin(3 * oracle.two_gaussians(400, d=2)[1][:, 0]), 3)
SETS = {
    "svc": (*oracle.two_gaussians(500), ["-c", 1, "-g", 0.3], {}),
    "weights": (
        *oracle.two_gaussians(500),
        ["-c", 1, "-g", 0.3, "-w", 1, 4],
        {"weights": (("1", 4.0),)},
    ),
    "linear": (*oracle.two_gaussians(500, d=5), ["-c", 1, "-t", "linear"], {}),
    "poly": (
        *oracle.two_gaussians(300),
        ["-c", "1", "-t", "poly", "-d", "2", "-g", "0.5", "-r", "1"],
        {},
    ),
    "sparse": (*oracle.sparse_rows(400), ["-c", 1, "-g", 0.05], {}),
    "svr": (
        TARGETS,
        oracle.two_gaussians(400, d=2)[1],
        ["-s", "svr", "-c", 1, "-p", 0.05, "-g", 0.3],
        {"epsilon": 0.05},
    ),
    "one-class": (
        *oracle.two_gaussians(400),
        ["-s", "one-class", "-n", 0.4, "-g", 0.3],
        {"nu": 0.4},
    ),
    "ovo": (*oracle.clouds(400), ["-c", 1, "-g", 0.2], {}),
    "ovr": (*oracle.clouds(400), ["-c", 1, "-g", 0.2, "--multiclass", "ovr"], {}),
}


def trained(tmp_path, name, *words):
    """Train the full and the reduced machine; return both model files and the training file."""
    y, X, options, _ = SETS[name]
    train = write_rows(tmp_path / "train", y, X)
    full, reduced = tmp_path / "full", tmp_path / "reduced"
    run_train("-q", *options, train, full)
    run_train("-q", *options, *words, train, reduced)
    return train, full, reduced


def decisions(model, X):
    return randsvm.load(str(model)).decision_function(X)


@pytest.mark.parametrize("name", SETS)
def test_the_split_certificate_has_p_of_the_reduced_and_d_of_the_full_machine(tmp_path, name):
    train, full, reduced = trained(tmp_path, name, "--reduce", 20)
    judged = randsvm.certify(train, reduced, params=CertifyParams(**SETS[name][3]))
    said, before = oracle.trailer(reduced), oracle.trailer(full)
    assert said["certificate"] == "reduced"
    assert float(said["primal"]) == pytest.approx(judged.primal, rel=1e-5)
    assert float(said["dual"]) == pytest.approx(float(before["dual"]), rel=1e-9)
    assert said["full_gap"] == before["gap"]
    primal, dual = float(said["primal"]), float(said["dual"])
    gap = (primal - dual) / max(primal, abs(dual))
    assert float(said["gap"]) == pytest.approx(gap, rel=1e-6, abs=1e-9)
    machines = {"ovo": 6, "ovr": 4}.get(name, 1)
    assert judged.support_vectors <= 20 * machines
    assert int(said["support_vectors_before"]) == len(randsvm.load(str(full)).model.beta)
    if machines == 1:
        assert judged.support_vectors < int(said["support_vectors_before"])
    # The reduced machine is nearly as good; with many dimensions 20 rows are too few.
    if name not in ("sparse", "ovo", "ovr"):
        assert primal <= float(before["primal"]) + 0.05 * abs(float(before["primal"]))


@pytest.mark.parametrize("name", ["svc", "svr", "one-class", "sparse"])
def test_the_reported_changes_are_those_of_the_two_models(tmp_path, name):
    _, full, reduced = trained(tmp_path, name, "--reduce", 15)
    X, said = SETS[name][1], oracle.trailer(reduced)
    before, after = decisions(full, X), decisions(reduced, X)
    change = np.abs(after - before)
    assert float(said["largest_change"]) == pytest.approx(change.max(), rel=1e-3)
    assert float(said["mean_change"]) == pytest.approx(change.mean(), rel=1e-3)
    changed = 0 if name == "svr" else int(((before > 0) != (after > 0)).sum())
    assert abs(int(said["labels_changed"]) - changed) <= 1
    assert change.max() > 0


@pytest.mark.parametrize("name", ["svc", "ovo", "svr"])
def test_libsvm_loads_a_reduced_model_and_predicts_the_same(tmp_path, name):
    _, _, reduced = trained(tmp_path, name, "--reduce", 10)
    X, model = SETS[name][1], svmutil.svm_load_model(str(reduced))
    rows = [{j + 1: x[j] for j in np.flatnonzero(x)} for x in X]
    labels, values = oracle.libsvm_predictions(model, rows)
    if name == "svc":
        values *= model.get_labels()[0]
        np.testing.assert_allclose(values[:, 0], decisions(reduced, X), rtol=0, atol=1e-5)
    np.testing.assert_allclose(labels, randsvm.load(str(reduced)).predict(X), atol=1e-5)


def test_a_row_of_weight_w_is_reduced_as_w_equal_rows(tmp_path):
    """P is that of the file with rows repeated, and the least on these support vectors; the
    reference minimises it, smoothed over a thousandth, by L-BFGS."""
    y, X, options, _ = SETS["svc"]
    weights = np.random.default_rng(3).choice([1, 1, 1, 20], len(y))
    train, model = tmp_path / "train", tmp_path / "m"
    write_rows(train, y, X, 1, weights)
    every = write_rows(tmp_path / "every", np.repeat(y, weights), np.repeat(X, weights, axis=0))
    run_train("-q", *options, "--gap", 1e-4, "--reduce", 5, train, model)
    judged = randsvm.certify(every, model, params=CertifyParams())
    assert judged.support_vectors == 5
    assert float(oracle.trailer(model)["primal"]) == pytest.approx(judged.primal, rel=1e-5)
    Z = randsvm.load(str(model)).model.Z.toarray()
    K, G = (oracle.kernel_matrix("rbf", rows, Z, 0.3) for rows in (X, Z))

    def smoothed(x, h=1e-3):
        z = 1 - y * (K @ x[:-1] + x[-1])
        bend = np.clip(z + h, 0, 2 * h)
        slope = -weights * y * bend / (2 * h)
        value = weights @ (bend**2 / (4 * h) + np.maximum(z - h, 0)) + x[:-1] @ G @ x[:-1] / 2
        return value, np.append(K.T @ slope + G @ x[:-1], slope.sum())

    options = {"maxiter": 20_000, "maxfun": 50_000}
    least = optimize.minimize(smoothed, np.zeros(6), jac=True, method="L-BFGS-B", options=options)
    assert least.fun * 0.999 <= judged.primal <= least.fun * 1.005


def test_auto_finds_few_support_vectors_within_the_gap(tmp_path):
    for name in ("svc", "one-class", "svr"):
        train, full, reduced = trained(tmp_path, name, "--reduce", "auto", "--gap", 0.01)
        said = oracle.trailer(reduced)
        judged = randsvm.certify(train, reduced, params=CertifyParams(**SETS[name][3]))
        assert 0 < float(said["gap"]) <= 0.01
        assert judged.primal <= float(said["dual"]) / (1 - 0.0101) or name == "one-class"
        assert judged.support_vectors < len(randsvm.load(str(full)).model.beta) / 3


def test_auto_keeps_the_full_machine_where_p_of_a_reduced_one_is_unknown(tmp_path, monkeypatch):
    reduced_set = "randsvm.algorithms.reduced_set"
    monkeypatch.setattr(f"{reduced_set}.SIZES", (8, 16))
    monkeypatch.setattr(f"{reduced_set}.Reducer._cost", lambda reducer, found: np.nan)
    _, full, reduced = trained(tmp_path, "svc", "--reduce", "auto", "--gap", 0.01)
    sizes = [len(randsvm.load(str(path)).model.beta) for path in (full, reduced)]
    assert sizes[0] == sizes[1] > 16
