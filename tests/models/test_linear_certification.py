"""P, D and the gap of linear machines by `certify`, beside numpy; models of LIBLINEAR included."""

import numpy as np
import oracle
import pytest
from commands import run_train
from liblinear import liblinearutil

import randsvm
from randsvm.errors import ModelError
from randsvm.parameters.run import CertifyParams


def rows(kind, n=300, d=6):
    """Return y, which is -1 and 1, or 1 to 3, or a target, and X with zeros."""
    rng = np.random.default_rng(4)
    X = np.round(rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7), 4)
    f = X @ rng.normal(size=d) + 0.7 * rng.normal(size=n)
    if kind == "svr":
        return np.round(f, 3), X
    return (np.where(f > 0.3, 1.0, -1.0) if kind == "two" else 1.0 + np.digitize(f, [-1, 1])), X


POWERS = {"hinge": 1, "squared-hinge": 2}


def losses(kind, loss, y, f, label):
    if kind == "svr":
        return np.maximum(np.abs(y - f) - 0.1, 0) ** POWERS[loss]
    return oracle.LINEAR_LOSSES[loss](np.where(y == label, 1, -1) * f)


@pytest.mark.parametrize("bias", [-1, 2])
@pytest.mark.parametrize(
    ("solver", "kind", "loss"),
    [
        (0, "two", "log"),
        (7, "three", "log"),
        (1, "three", "squared-hinge"),
        (2, "two", "squared-hinge"),
        (3, "two", "hinge"),
        (3, "three", "hinge"),
        (5, "two", "squared-hinge"),
        (5, "three", "squared-hinge"),
        (6, "two", "log"),
        (11, "svr", "squared-hinge"),
        (12, "svr", "squared-hinge"),
        (13, "svr", "hinge"),
    ],
)
def test_a_model_of_liblinear_has_its_objective_and_a_small_gap(tmp_path, solver, kind, loss, bias):
    y, X = rows(kind)
    data = oracle.write_rows(tmp_path / "data", y, X)
    options = f"-s {solver} -c 2 -e 1e-6 -B {bias} -q" + " -p 0.1" * (kind == "svr")
    model = liblinearutil.train(y.tolist(), [dict(enumerate(x, 1)) for x in X.tolist()], options)
    liblinearutil.save_model(str(tmp_path / "m"), model)
    found = randsvm.certify(data, tmp_path / "m", params=CertifyParams(C=2.0, epsilon=None))
    Z = X if bias < 0 else np.hstack([X, np.full((len(X), 1), bias)])
    labels = [None] if kind == "svr" else model.get_labels()
    primal = 0.0
    for k in range(1 if len(labels) < 3 else 3):
        w = np.array([model.get_decfun_coef(j, k) for j in range(1, X.shape[1] + 1)])
        w = w if bias < 0 else np.append(w, model.get_decfun_bias(k) / bias)
        primal += np.abs(w).sum() if solver in (5, 6) else w @ w / 2
        primal += 2 * losses(kind, loss, y, Z @ w, labels[k]).sum()
    assert found.primal == pytest.approx(primal, rel=1e-9)
    assert found.primal_error < 1e-9 * primal
    assert 0 <= found.gap < 2e-3
    assert found.verdict is None
    assert found.rows == 300


def test_other_losses_of_liblinear_are_refused(tmp_path):
    y, X = rows("three")
    data = oracle.write_rows(tmp_path / "data", y, X)
    liblinearutil.save_model(str(tmp_path / "m"), liblinearutil.train(y, X, "-s 4 -q"))
    with pytest.raises(ModelError, match="expected a linear model"):
        randsvm.certify(data, tmp_path / "m")


@pytest.mark.parametrize(
    "words",
    [
        "--gap 0.001 -c 3",
        "--gap 1e-6 -c 3 --loss log --no-bias",
        "--gap 0.001 --loss squared-hinge --scale standard -w 1 3",
        "--gap 0.001 --lambda 0.01 --scale unit",
        "--gap 1e-5 --penalty l1 --loss squared-hinge -w 1 3 --scale minmax",
        "--gap 1e-5 --penalty l1 --loss log --no-bias",
        "-c 0.1",
    ],
)
@pytest.mark.parametrize("kind", ["two", "three"])
def test_the_claims_of_an_own_model_are_verified(tmp_path, words, kind):
    y, X = rows(kind)
    data = oracle.write_rows(tmp_path / "data", y, X, 1, np.linspace(0.5, 2, len(y)))
    run_train("sgd", "-q", *words.split(), data, tmp_path / "m")
    found, stated = randsvm.certify(data, tmp_path / "m"), oracle.trailer(tmp_path / "m")
    assert found.primal == pytest.approx(float(stated["primal"]), rel=1e-9)
    if "--gap" in words:
        assert found.claimed_gap == float(stated["gap"])
        assert found.verdict == "verified"
        assert found.dual <= float(stated["primal"])
    else:
        assert found.verdict is None


def test_a_false_p_is_refuted_and_another_c_is_another_problem(tmp_path):
    y, X = rows("two")
    data = oracle.write_rows(tmp_path / "data", y, X)
    run_train("sgd", "-q", "--gap", 0.001, data, tmp_path / "m")
    other = randsvm.certify(data, tmp_path / "m", params=CertifyParams(C=100.0))
    assert other.claimed_gap is None
    assert other.gap > 0.002
    y[:40] *= -1
    oracle.write_rows(tmp_path / "data", y, X)
    assert randsvm.certify(data, tmp_path / "m").verdict == "refuted"
