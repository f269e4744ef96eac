"""Test linear machines with weights of rows against repeated rows."""

import numpy as np
import pytest
from oracle import LINEAR_LOSSES, write_rows
from rows import open_rows
from sklearn.datasets import make_blobs, make_regression
from trainings import offset_for_share

from randsvm import Arrays, load, train
from randsvm.events import Epoch

ROWS = 1500
CASES = {
    "hinge": (2, {}),
    "squared hinge": (2, {"loss": "squared-hinge"}),
    "log": (2, {"loss": "log"}),
    "4 classes": (4, {}),
    "Crammer and Singer": (4, {"multiclass": "crammer-singer"}),
    "class weights": (2, {"weights": "balanced"}),
    "regression": (0, {"task": "svr"}),
    "one-class": (1, {"task": "one-class"}),
    "random features": (2, {"kernel": "rbf", "gamma": 0.02, "components": 60}),
    "lambda": (2, {"lambda_": 1e-3}),
}


def rows(classes):
    if not classes:
        X, y = make_regression(ROWS, 5, noise=20, random_state=0)
        return X, y / np.abs(y).mean()
    return make_blobs(ROWS, 5, centers=classes, cluster_std=4, random_state=0)[:2]


def trained(arrays, **parameters):
    return train(arrays, algorithm="sgd", **parameters).outcome


@pytest.mark.parametrize("unit", [1.0, 1e-4])
@pytest.mark.parametrize("name", CASES)
def test_a_weight_is_as_many_equal_rows(name, unit):
    """With all weights `unit` times as large, C is as many times smaller."""
    classes, parameters = CASES[name]
    X, y = rows(classes)
    weights = np.random.default_rng(1).integers(0, 4, ROWS).astype(float)
    repeated = np.repeat(np.arange(ROWS), weights.astype(int))
    # The loss at the origin counts as one row more.
    unit = 1.0 if name == "one-class" else unit
    scale = {} if "lambda_" in parameters else {"C": 1 / unit}
    weighted = trained(Arrays(X, y, weights=unit * weights), **parameters, **scale)
    plain = trained(Arrays(X[repeated], y[repeated]), **parameters)
    assert abs(weighted.J - plain.J) < 0.01 * plain.J
    if "lambda_" not in parameters:
        assert weighted.primal == pytest.approx(plain.primal, rel=0.01)
    assert weighted.progressive_loss == pytest.approx(plain.progressive_loss, rel=0.05)
    for one, other in (
        (weighted.error, plain.error),
        (weighted.progressive_errors, plain.progressive_errors),
    ):
        assert one == (None if other is None else pytest.approx(other, abs=0.02))
    unweighted = trained(Arrays(X, y), **parameters).J
    assert abs(unweighted - plain.J) > 0.001 * plain.J


def test_held_out_sets_count_weights():
    X, y = rows(2)
    # The labels of light rows are wrong: only weighted losses fall.
    heavy = np.random.default_rng(3).random(ROWS) < 0.4
    weights = np.where(heavy, 1.0, 1e-6)
    events = []
    wrong = Arrays(X, np.where(heavy, y, 1 - y), weights=weights)
    fitted = train(wrong, algorithm="sgd", watch=events.append, early_stopping=0.2)
    assert (fitted.predict(X) == y).mean() > 0.9
    held_out = [event.held_out or 0.0 for event in events if isinstance(event, Epoch)]
    assert min(held_out) < 0.5


def test_the_share_outside_is_one_of_the_weight():
    X = rows(1)[0]
    weights = np.random.default_rng(4).exponential(size=ROWS) ** 3
    fitted = train(Arrays(X, weights=weights), algorithm="sgd", task="one-class", nu=0.2)
    outside = np.asarray(fitted.decision_function(X)).ravel() <= 0
    assert weights[outside].sum() <= 0.2 * weights.sum()
    assert weights[outside].sum() > 0.2 * weights.sum() - weights.max()
    with open_rows(Arrays([[1.0], [2.0], [3.0]], weights=[1, 2, 5]), any_label=True) as D:
        assert offset_for_share(D, [1.0], 0.375) == -2.5


def test_an_epoch_reports_rows_and_no_steps():
    """A row of twice the mean weight makes two steps, and is one row."""
    events = []
    X, y = rows(2)
    weights = np.where(np.arange(ROWS) % 2, 1.0, 3.0)
    outcome = train(
        Arrays(X, y, weights=weights), algorithm="sgd", epochs=2, watch=events.append
    ).outcome
    assert [event.rows for event in events if isinstance(event, Epoch)] == [ROWS, ROWS]
    assert outcome.steps == 2 * (2 * ROWS // 2 + ROWS // 2)


@pytest.mark.parametrize("loss", LINEAR_LOSSES)
def test_an_update_takes_a_row_of_weight_2_as_the_row_twice(tmp_path, loss):
    X, y = rows(2)
    y = 2 * y - 1
    first = np.arange(ROWS) < 300
    start = str(tmp_path / "start")
    train(write_rows(tmp_path / "first", y[first], X[first]), start, algorithm="sgd", loss=loss)
    X, y = X[~first], y[~first]
    weights = np.random.default_rng(5).integers(0, 4, len(y)).astype(float)
    repeated = np.repeat(np.arange(len(y)), weights.astype(int))
    (tmp_path / "weights").write_text("".join(f"{weight:g}\n" for weight in weights))
    sources = {
        "repeated": (write_rows(tmp_path / "r", y[repeated], X[repeated]), {}),
        "cost": (write_rows(tmp_path / "c", y, X, 1, weights), {}),
        "file": (write_rows(tmp_path / "f", y, X), {"row_weights": str(tmp_path / "weights")}),
        "plain": (str(tmp_path / "f"), {}),
    }
    losses, w = {}, {}
    for name, (data, options) in sources.items():
        train(data, str(tmp_path / name), algorithm="sgd", update=start, **options)
        model = load(str(tmp_path / name)).model
        z = y * (X @ model.w[:, 0] + model.b[0]) * (1 if model.labels[0] == "1" else -1)
        losses[name] = float(weights @ LINEAR_LOSSES[loss](z)) / weights.sum()
        w[name] = np.append(model.w, model.b)
        assert model.metadata.t == 300 + (len(y) if name == "plain" else weights.sum())
    assert (w["cost"] == w["file"]).all()
    assert (w["cost"] != w["plain"]).any()
    assert losses["cost"] == pytest.approx(losses["repeated"], rel=0.1)


def test_the_progressive_loss_of_an_update_is_a_weighted_mean(tmp_path):
    """A fixed rate of nearly 0 keeps the weights of the old model."""
    X, y = rows(2)
    y = 2 * y - 1
    start = str(tmp_path / "start")
    train(write_rows(tmp_path / "first", y[:300], X[:300]), start, algorithm="sgd")
    weights = np.random.default_rng(5).integers(1, 9, len(y)).astype(float)
    data = write_rows(tmp_path / "d", y, X, 1, weights)
    found = train(
        data, str(tmp_path / "m"), algorithm="sgd", update=start, update_rate=1e-300
    ).outcome
    model = load(start).model
    f = X @ model.w[:, 0] + model.b[0]
    z = y * f * (1 if model.labels[0] == "1" else -1)
    expected = np.average(LINEAR_LOSSES["hinge"](z), weights=weights)
    assert found.progressive_loss == pytest.approx(expected)
    assert found.progressive_errors == pytest.approx(np.average(z <= 0, weights=weights))


@pytest.mark.parametrize("weights", [None, [1.0, 1, 1, 1]])
@pytest.mark.parametrize(
    ("u", "share", "outside"),
    [
        ([1.0, 1, 1, 2], 0.5, 0),
        ([1.0, 2, 2, 3], 0.5, 1),
        ([1.0, 1, 2, 3], 0.5, 2),
        ([3.0, 3, 3, 3], 0.5, 0),
        ([0.0, 0, 0, 0], 0.5, 0),
        ([-1.0, -1, -1, -1], 0.99, 0),
    ],
)
def test_rows_with_equal_values_are_on_the_same_side(u, share, outside, weights):
    """At most the share of the rows has f <= 0."""
    rows = Arrays([[1.0, one] for one in u], weights=weights)
    with open_rows(rows, any_label=True) as D:
        b = offset_for_share(D, [0.0, 1.0], share)
    assert np.count_nonzero(np.array(u) + b <= 0) == outside
