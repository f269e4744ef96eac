"""Test linear models by SGD: the compiled steps against a Python reference, and runs against the
optimum.
"""

from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import oracle
import pytest
import sgd_reference
from base import LOSS_NAMES, LOSSES
from learning import learn
from liblinear import liblinearutil
from model_files import load_model
from random_problems import interrupted_at
from rows import Draws, batch_of, by_class, open_rows, rows_of_pass
from scipy import optimize, sparse
from sklearn import svm
from trainings import Learner, SgdSchedule, _sgd

from randsvm import Arrays, api
from randsvm.errors import Interrupted, ParameterError
from randsvm.events import Notice, Progress, Underway

D = 13  # features of the rows that both learners are given


# ---- the compiled steps -----------------------------------------------------------------------


class SparseRows:
    """Sparse rows of some classes; one row has no features.

    X : (m, d) float32
    label : (m,), the class
    y : (m,) float64, the class, or the target of a regression
    """

    def __init__(self, rows, classes, d=D, seed=0):
        rng = np.random.default_rng([seed, classes])
        self.label = rng.integers(0, classes, rows)
        self.y = self.label.astype(float)
        centres = rng.normal(size=(classes, d))
        X = (rng.normal(size=(rows, d)) + centres[self.label]) * (rng.random((rows, d)) < 0.4)
        X[rows // 2] = 0
        self.X = oracle.as_float32(X)
        self.order = rng.permutation(rows)

    def batch(self, order=None, dense=False):
        """Return the rows as a batch; dense rows have every column, and their columns are not
        stored.
        """
        return batch_of(self.X, self.y, self.order if order is None else order, dense)

    def learn_with_both(self, learner, plain, dense=False):
        """Run the same steps in both learners."""
        learner.learn(self.batch(dense=dense))
        for i in self.order:
            plain.learn(self.X[i], self.y[i] if learner.steps.epsilon else self.label[i])


def steps_of(classes, **changes):
    weights = np.array([1.0, 2.5, 0.5, 1.5])[:classes]
    usual = {"lambda_": 0.01, "bias_lambda": 0.01, "eta0": 0.3, "bias_rate": 0.7}
    return SgdSchedule(**{**usual, "weights": weights, **changes})


def make_learners(steps, d=D):
    return Learner.new(steps, d), sgd_reference.Plain(d, len(steps.weights), steps)


def assert_same_weights(learner, w, b):
    assert learner.linear.w == pytest.approx(w, rel=1e-9, abs=1e-12)
    assert learner.linear.b == pytest.approx(b, rel=1e-9, abs=1e-12)


def assert_same_progress(learner, plain, rows):
    """Compare the loss and the mistakes of each row before it was learned."""
    steps, loss, errors = learner.progressive()
    assert steps == rows
    assert loss == pytest.approx(plain.losses / rows, rel=1e-9)
    assert (errors or 0) * rows == pytest.approx(plain.errors)


KINDS = [
    *[pytest.param({"loss": loss}, classes, id=f"{loss}-{classes}")
      for loss in LOSS_NAMES for classes in (2, 4)],
    *[pytest.param({"crammer_singer": True}, classes, id=f"crammer-singer-{classes}")
      for classes in (2, 3, 4)],
]  # fmt: skip
SCHEDULES = {
    "falling": {},
    "horizon": {"horizon": 150.0},
    "fixed": {"fixed_rate": 0.05},
    "averages": {"averages": True},
    "own-bias": {"bias_lambda": 0.0003, "averages": True},
    "averages-fixed": {"averages": True, "fixed_rate": 0.05},
}


schedules = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
layouts = pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])


# A regression, and novelty detection with the origin as its only negative row.
OF_ONE_CLASS = [
    pytest.param({"epsilon": 0.3}, 1, id="epsilon"),
    pytest.param({"epsilon": 0.3, "loss": "squared-hinge"}, 1, id="epsilon-squared"),
    *[pytest.param({"loss": loss, "origin": 0.6}, 1, id=f"{loss}-1")
      for loss in (*LOSS_NAMES, "outside")],
]  # fmt: skip


@layouts
@schedules
@pytest.mark.parametrize("kind, classes", [*KINDS, *OF_ONE_CLASS])
def test_steps_equal_those_of_the_reference(kind, classes, schedule, dense):
    """The run has more rows than the horizon; beyond the horizon the weights stay."""
    rows = SparseRows(200, classes)
    if "epsilon" in kind:
        rows.y = rows.X @ np.linspace(-1, 1, D) + 0.5
    learner, plain = make_learners(steps_of(classes, **kind, **schedule))
    rows.learn_with_both(learner, plain, dense)
    assert_same_weights(learner, *(plain.mean() if learner.steps.averages else (plain.w, plain.b)))
    assert learner.linear.w.shape == (D, 1 if classes <= 2 and "loss" in kind else classes)
    assert learner.t == plain.t == 200
    assert_same_progress(learner, plain, 200)


PIECES = 20_000
AWARE = [
    *[({"loss": loss}, classes) for loss in LOSS_NAMES for classes in (2, 4)],
    # With more classes the rival may change on the way.
    ({"crammer_singer": True}, 2),
    ({"epsilon": 0.3}, 1),
]


@layouts
@pytest.mark.parametrize("weight", [1e-3, 0.5, 3.0, 1e3])
@pytest.mark.parametrize("kind, classes", AWARE, ids=str)
def test_a_weighted_step_is_many_small_steps(kind, classes, weight, dense):
    """Compare with plain steps on the same row, whose sizes have the same sum."""
    rows = SparseRows(10, classes)
    steps = steps_of(classes, lambda_=1e-300, fixed_rate=0.05, **kind)
    start = Learner.new(steps, D)
    start.learn(rows.batch(dense=dense))
    for row in range(len(rows.y)):
        several, one = (
            Learner(
                replace(steps, fixed_rate=rate, mean_weight=mean),
                start.last.w.copy(),
                start.last.b.copy(),
            )
            for rate, mean in ((0.05 * weight / PIECES, None), (0.05, 2.0))
        )
        several.learn(rows.batch(np.full(PIECES, row), dense))
        batch = rows.batch(np.array([row]), dense)
        one.learn(replace(batch, weights=np.full(len(rows.y), 2 * weight)))
        step = 1e-3 * (1 + 0.05 * weight)
        np.testing.assert_allclose(one.last.w, several.last.w, atol=step)
        np.testing.assert_allclose(one.last.b, several.last.b, atol=step)


@schedules
@pytest.mark.parametrize("kind, classes", KINDS)
def test_weights_count_in_progress_steps_and_means(kind, classes, schedule):
    """Weights of a constant 3 relative to the mean 3 are steps of weight 1."""
    rows = SparseRows(200, classes)
    one, other = (
        Learner.new(steps_of(classes, **kind, **schedule, mean_weight=mean), D) for mean in (1, 3)
    )
    for learner, weight in ((one, 1.0), (other, 3.0)):
        learner.learn(replace(rows.batch(), weights=np.full(200, weight)))
    assert_same_weights(one, other.linear.w, other.linear.b)
    assert one.t == other.t == 200
    counting = Learner.new(steps_of(classes, **kind, **schedule, mean_weight=1.0), D)
    weights = np.random.default_rng(0).integers(1, 4, 200).astype(float)
    counting.learn(replace(rows.batch(), weights=weights))
    assert counting.t == weights.sum()
    steps, _, errors = counting.progressive()
    assert steps == 200
    assert 0 <= errors <= 1


@pytest.mark.parametrize("kind, classes", KINDS)
@pytest.mark.parametrize("averages", [False, True])
def test_a_small_s_is_folded_into_v(kind, classes, averages):
    """With lambda eta0 = 1e7, s = 1 / (1 + 1e7 t) would fall below its least value."""
    steps = steps_of(classes, **kind, lambda_=1e8, bias_lambda=1e8, eta0=0.1, averages=averages)
    rows = SparseRows(250, classes)
    learner, plain = make_learners(steps)
    rows.learn_with_both(learner, plain)
    assert learner.state[_sgd.S] > 0.1  # s was folded into v
    assert_same_weights(learner, *(plain.mean() if averages else (plain.w, plain.b)))
    assert_same_progress(learner, plain, 250)


# ---- losses -----------------------------------------------------------------------------------

MARGINS = (-1000.0, -30.0, -2.0, -0.5, 0.0, 0.3, 0.9, 1.1, 2.0, 30.0, 1000.0)


@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("z", MARGINS)
def test_losses_and_their_slopes_follow_the_formulas(name, z):
    """Compare with the formula and its central differences; MARGINS avoid the hinge's kink."""
    kind, h = LOSS_NAMES.index(name), 1e-6
    truth = oracle.LINEAR_LOSSES[name]
    for found in (_sgd.loss(kind, z), LOSSES[name].of(np.array([z]))[0]):
        assert found == pytest.approx(truth(z), rel=1e-12, abs=1e-15)
    difference = (truth(z + h) - truth(z - h)) / (2 * h)
    assert -_sgd.negative_gradient(kind, z) == pytest.approx(difference, rel=1e-6, abs=1e-6)


# ---- whole runs -------------------------------------------------------------------------------


def epochs_of_rows(path, seed, epochs):
    """Return the rows of each epoch in the order of learning: pairs of x (d,) and class."""
    with open_rows(path) as whole:
        view, _ = by_class(whole, path)
        rng = Draws(seed)
        for _ in range(epochs):
            yield list(rows_of_pass(view, rng.next()))


@pytest.mark.parametrize("words", [(), ("--average",)], ids=["last", "mean"])
@pytest.mark.parametrize(
    "classes, kind",
    [
        (2, ("--loss", "hinge")),
        (2, ("--loss", "squared-hinge")),
        (2, ("--loss", "log")),
        (3, ("--multiclass", "ovr")),
        (3, ("--multiclass", "crammer-singer")),
    ],
    ids=str,
)
def test_a_run_takes_the_steps_of_the_reference_with_bottous_step_sizes(
    tmp_path, classes, kind, words
):
    """eta0 is 1/R2, and the steps of b are 0.1 R2 times as large.

    If the last weights are the result, the step sizes decay linearly to 0. Otherwise the result is
    the mean of the weights since the last restart (epochs 2, 3, 5, 9, 17): here epoch 5. b begins
    at the log odds or the mean of y, and at zero for the Crammer-Singer loss.
    """
    y, X = oracle.clouds(110, 0, classes)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    learn("sgd", path, tmp_path / "m", *kind, *words, "-c", 3, "--epochs", 6, "--seed", 7)
    R2 = oracle.squares(X).mean()
    steps = SgdSchedule(
        lambda_=1 / (3 * 110),
        eta0=1 / R2,
        bias_rate=0.1 * R2,
        bias_lambda=min(1 / (3 * 110), R2 / 110),
        weights=np.ones(classes),
        loss=kind[1] if "--loss" in kind else "hinge",
        crammer_singer="crammer-singer" in kind,
        averages=bool(words),
        horizon=0 if words else 6 * 110,
    )
    plain = sgd_reference.Plain(5, classes, steps)
    labels = [float(label) for label in oracle.read_linear(tmp_path / "m", 5).label]
    p = np.array([np.mean(y == label) for label in labels])
    if not steps.crammer_singer:
        start = np.log(p / (1 - p)) if steps.loss == "log" else 2 * p - 1
        plain.b = start[: len(plain.b)]
    for epoch, rows in enumerate(epochs_of_rows(path, 7, 6), 1):
        if epoch == 5:
            plain.iterates.clear()
        for x, label in rows:
            plain.learn(x, label)
    found = oracle.read_linear(tmp_path / "m", 5)
    w, b = plain.mean() if words else (plain.w, plain.b)
    assert found.w == pytest.approx(w, rel=1e-6, abs=1e-9)
    assert found.b == pytest.approx(b, rel=1e-6, abs=1e-9)


# ---- against the optimum ----------------------------------------------------------------------


@pytest.mark.slow
def test_crammer_singer_reaches_the_objective_of_liblinear_within_a_percent(tmp_path, made):
    """LIBLINEAR regularises b; with -B 100 this is negligible."""
    path, y, X = made("clouds", 600)
    learn("sgd", path, tmp_path / "m", "--epochs", 30, "--multiclass", "crammer-singer")
    theirs = liblinearutil.train(y, sparse.csr_matrix(X), "-s 4 -B 100 -e 1e-4 -q")
    liblinearutil.save_model(str(tmp_path / "theirs"), theirs)
    ours, best = (
        oracle.linear_truth(oracle.read_linear(tmp_path / name, X.shape[1]), y, X).primal
        for name in ("m", "theirs")
    )
    assert ours <= 1.01 * best


@pytest.mark.parametrize("words", [(), ("--average",), ("--multiclass", "crammer-singer")], ids=str)
def test_c_and_lambda_give_the_same_bytes(tmp_path, made, words):
    """With 1,024 rows lambda = 1/(C n) is exact."""
    path, _, _ = made("clouds", 1024, 0, 3)
    models = [
        learn("sgd", path, tmp_path / str(scale[0]), *words, *scale)
        for scale in (("-c", 0.25), ("--lambda", 1 / 256))
    ]
    assert models[0].body == models[1].body
    started = [model.of("started")[0] for model in models]
    assert [(event["C"], event["lambda"]) for event in started] == [(0.25, 1 / 256)] * 2


# ---- any scale, offset and share of classes ---------------------------------------------------

SCALES = (1e-6, 1e-3, 1e-2, 1, 1e3, 1e6)
SOLVERS = {"hinge": 3, "squared-hinge": 2, "log": 0, "svr": 13}


def primal(loss, w, b, y, X):
    """Return P with C = 1 and epsilon = 0.1."""
    f = X @ w + b
    if loss == "svr":
        return float(w @ w / 2 + np.maximum(0, np.abs(y - f) - 0.1).sum())
    return float(w @ w / 2 + oracle.LINEAR_LOSSES[loss](y * f).sum())


def liblinear_primal(loss, y, X):
    """Return P of LIBLINEAR's solution.

    With a large -B LIBLINEAR hardly regularises b, but then it needs many steps along b. It is
    given targets and features near 1 and an equivalent C and epsilon. The best result of a few
    values of -B counts.
    """
    length = float(np.sqrt(np.square(X).mean()))
    middle, spread = (np.median(y), y.std()) if loss == "svr" else (0.0, 1.0)
    C = min(length**2 / spread, 1e3)  # a larger C makes no difference
    found = []
    for B in (1, 10, 100):
        words = f"-s {SOLVERS[loss]} -c {C:.17g} -p {0.1 / spread:.17g} -B {B} -e 1e-4 -q"
        model = liblinearutil.train((y - middle) / spread, sparse.csr_matrix(X / length), words)
        w, b = model.get_decfun()
        sign = -1 if loss != "svr" and model.get_labels()[0] < 0 else 1
        w, b = (sign * spread * some for some in (np.array(w), b))
        found.append(primal(loss, w / length, b + middle, y, X))
    return min(found)


def assert_near_liblinear(folder, loss, y, X, share=0.01):
    """Check that P exceeds LIBLINEAR's by at most this share."""
    oracle.write_rows(folder / "data", y, X)
    words = ("-s", "svr") if loss == "svr" else ("--loss", loss)
    learnt = learn("sgd", folder / "data", folder / "m", *words)
    model = load_model(learnt.model)
    P = primal(loss, model.w[:, 0], float(model.b[0]), y, X)
    assert learnt.outcome["primal"] == pytest.approx(P, rel=1e-6)
    above = P - liblinear_primal(loss, y, X)
    assert above <= share * P + 1e-9


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("share", [0.5, 0.001])
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_classification_reaches_liblinear_within_a_percent_at_any_scale(
    tmp_path, loss, share, scale
):
    rng = np.random.default_rng(4)
    rows = 3000
    y = np.where(np.arange(rows) < share * rows, 1.0, -1.0)
    X = rng.normal(size=(rows, 4)) + 0.3 * y[:, None]
    # With three rare rows on a large scale the first weights fade slowly.
    slow = share < 0.5 and scale >= 1 and loss != "log"
    assert_near_liblinear(tmp_path, loss, y, oracle.as_float32(X * scale), 0.1 if slow else 0.01)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("offset, spread", [(0, 1), (0, 1e-3), (1000, 10), (-1e6, 1), (5e4, 1e5)])
def test_regression_reaches_liblinear_within_a_percent_at_any_scale(
    tmp_path, offset, spread, scale
):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 4))
    y = offset + spread * (X @ [1, 0.5, 0, -0.7] + rng.normal(size=400))
    assert_near_liblinear(tmp_path, "svr", y, oracle.as_float32(X * scale))


# ---- reported numbers -------------------------------------------------------------------------


REPORTED = [
    *[
        (loss, data, words)
        for loss in LOSS_NAMES
        for data, words in [
            (("two_gaussians", 700), ()),
            (("two_gaussians", 700), ("-c", 5, "-w", "-1", 4)),
            (("sparse_rows", 700), ("--average", "--epochs", 3)),
            (("clouds", 700), ("-w", 2, 3, "-w", 4, 0.25)),
            (("clouds", 700), ("--early-stopping", 0.2)),
        ]
    ],
    ("hinge", ("clouds", 700), ("--multiclass", "crammer-singer", "-c", 0.1, "-w", 2, 3)),
    ("hinge", ("clouds", 700, 0, 3), ("-w", "balanced")),
    ("hinge", ("clouds", 700, 0, 3), ("--multiclass", "crammer-singer", "-w", "balanced")),
]


@pytest.mark.parametrize("loss, data, words", REPORTED, ids=str)
def test_p_j_violators_and_errors_are_those_of_the_written_model(tmp_path, made, loss, data, words):
    path, y, X = made(*data)
    learnt = learn("sgd", path, tmp_path / "m", *words, "--loss", loss)
    given = dict(pairwise(words))
    C = float(given.get("-c", 1))
    pairs = [words[i + 1 : i + 3] for i, word in enumerate(words) if word == "-w"]
    if given.get("-w") == "balanced":
        pairs = [(label, len(y) / (3 * (y == label).sum())) for label in (1, 2, 3)]
    weights = {float(label): float(weight) for label, weight in pairs}
    model = oracle.read_linear(learnt.model, X.shape[1])
    truth = oracle.linear_truth(model, y, X, C, loss, weights)
    outcome, metadata = learnt.outcome, learnt.metadata
    assert outcome["primal"] == pytest.approx(truth.primal, rel=1e-9)
    assert outcome["J"] == pytest.approx(truth.primal / (C * len(y)), rel=1e-9)
    assert (outcome["violators"], outcome["error"]) == (truth.violators, truth.errors / len(y))
    assert float(metadata["primal"]) == outcome["primal"]
    assert int(metadata["violators"]) == truth.violators
    assert (float(metadata["C"]), float(metadata["lambda"])) == (C, 1 / (C * len(y)))
    assert (metadata["n"], metadata["stopped"]) == (len(y), outcome["stopped"])


# ---- LIBLINEAR's format -----------------------------------------------------------------------


@pytest.mark.parametrize("multiclass", ["ovr", "crammer-singer"])
@pytest.mark.parametrize(
    "names",
    [
        ["+1", "-1"],
        ["-1", "+1"],
        ["2", "1"],
        ["3", "-7", "0"],
        ["2147483647", "-2147483648", "1", "2", "10"],
    ],
    ids=" ".join,
)
def test_liblinear_predicts_the_same_from_our_model(tmp_path, predict, names, multiclass):
    y, X = oracle.clouds(300, 0, len(names))
    path = oracle.write_rows(tmp_path / "data", [names[int(k) - 1] for k in y], X)
    learnt = learn("sgd", path, tmp_path / "m", "--multiclass", multiclass)
    labels, values = oracle.liblinear_predictions(learnt.model, X)
    predicted, scores = predict(path, learnt.model), predict(path, learnt.model, "--scores")
    assert [int(line) for line in predicted.lines] == labels.tolist()
    found = np.array([line.split() for line in scores.lines], float)
    assert found.shape == values.shape == (300, 1 if len(names) == 2 else len(names))
    assert found == pytest.approx(values, rel=1e-9, abs=1e-9)
    exact = oracle.read_linear(learnt.model, X.shape[1]).decisions(X)
    assert found == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("solver", "loss"), [(5, "squared-hinge"), (6, "log")])
def test_models_with_an_l1_penalty_are_those_of_liblinear(tmp_path, solver, loss, classes):
    y, X = oracle.clouds(300, 0, classes)
    path = oracle.write_rows(tmp_path / "data", y.astype(int), X)
    words = "--penalty", "l1", "--loss", loss, "--gap", 1e-7, "--no-bias", "-c", 0.01
    learnt = learn("sgd", path, tmp_path / "m", *words)
    labels, values = oracle.liblinear_predictions(learnt.model, X)
    made = liblinearutil.train(y.tolist(), X, f"-s {solver} -c 0.01 -e 1e-8 -q")
    theirs, _, found = liblinearutil.predict([], X, made, "-q")
    assert labels.tolist() == theirs
    assert np.array(found) == pytest.approx(np.reshape(values, (300, -1)), abs=1e-3)
    ours = load_model(learnt.model)
    assert ours.solver == {5: "L1R_L2LOSS_SVC", 6: "L1R_LR"}[solver]
    weights = [made.get_decfun(k)[0] for k in range(ours.w.shape[1])]
    assert np.transpose(ours.w) == pytest.approx(np.array(weights), abs=1e-3)


# ---- stopping ---------------------------------------------------------------------------------


def test_early_stopping_keeps_the_weights_of_the_best_held_out_epoch(tmp_path, made):
    path, _, _ = made("clouds", 900)
    words = ("--early-stopping", 0.3)
    learnt = learn("sgd", path, tmp_path / "m", *words, "--epochs", 40)
    held_out = [epoch["held_out"] for epoch in learnt.epochs]
    best = int(np.argmin(held_out)) + 1
    assert 1 < best == len(held_out) - 1 < 39
    assert learnt.metadata["stopped"] == "the loss of the held-out rows stopped falling"
    assert {epoch["rows"] for epoch in learnt.epochs} == {630}
    shorter = learn("sgd", path, tmp_path / "n", *words, "--epochs", best)
    assert shorter.metadata["stopped"] == "all epochs"
    assert [epoch["held_out"] for epoch in shorter.epochs] == held_out[:best]
    assert shorter.body == learnt.body


# ---- class weights ----------------------------------------------------------------------------


# Rows whose gradient is hundreds of times the mean one, because of their weight or their length.
LARGE_GRADIENTS = {
    "balanced": (0.02, 1, ("-w", "balanced")),
    "heavy": (0.5, 1, ("-w", "+1", 100)),
    "long rows": (0.5, 1000, ()),
}


@pytest.mark.parametrize("share, length, words", LARGE_GRADIENTS.values(), ids=LARGE_GRADIENTS)
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_rows_with_large_gradients_do_not_make_the_weights_explode(
    tmp_path, loss, share, length, words
):
    """The model is better than w = 0."""
    rng = np.random.default_rng(8)
    y = np.where(rng.random(4000) < share, 1.0, -1.0)
    X = rng.normal(size=(4000, 5)) + 0.7 * y[:, None]
    # Squared, the loss of a row of length 1,000 outweighs all others: a step that suits it is none
    # for them.
    X[::500] *= min(length, 20) if loss == "squared-hinge" else length
    X = oracle.as_float32(X)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    learnt = learn("sgd", path, tmp_path / "m", "--loss", loss, *words)
    weights = {1.0: 1.0, -1.0: 1.0}
    if "balanced" in words:
        weights = {label: 4000 / (2 * int((y == label).sum())) for label in weights}
    elif words:
        weights[1.0] = 100.0
    model = oracle.read_linear(learnt.model, 5)
    nothing = model._replace(w=np.zeros_like(model.w), b=np.zeros_like(model.b))
    found, zero = (
        oracle.linear_truth(some, y, X, 1.0, loss, weights).primal for some in (model, nothing)
    )
    assert found < zero


# ---- a gap ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"C": 1.0},
        {"C": 1.0, "epochs": 0},
        {"C": 1.0, "loss": "squared-hinge"},
        {"task": "svr", "C": 1.0},
    ],
)
def test_newton_steps_reach_the_gap_on_unscaled_columns(options):
    """The reference of the hinge and the regression is LIBSVM; D bounds every objective."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 3)) * [1, 10, 0.1] + [0, 500, 3]
    f = X @ [1, 0.1, 5] + rng.normal(size=200)
    y = f if "task" in options else f > np.median(f)
    fitted = api.train(Arrays(X, y), algorithm="sgd", gap=1e-5, **options)
    outcome = fitted.outcome
    assert outcome.stopped == "gap <= 1e-05"
    assert 0 <= outcome.primal - outcome.dual <= 1.0001e-5 * outcome.primal
    if "loss" not in options:
        kind = svm.SVR if "task" in options else svm.SVC
        Z = X - X.mean(axis=0)  # b is free: the same problem, with smaller kernel values
        machine = kind(kernel="linear", C=1.0, tol=1e-6).fit(Z, y)
        K, beta = Z @ Z.T, np.zeros(200)
        beta[machine.support_] = machine.dual_coef_[0]
        gain = beta @ y - 0.1 * np.abs(beta).sum() if "task" in options else np.abs(beta).sum()
        assert outcome.primal == pytest.approx(gain - beta @ K @ beta / 2, rel=1e-4)


def many_columns(rows=240, columns=1600, seed=3):
    """Return sparse rows, one of them empty, targets, and the weights of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.02)
    X[7] = 0
    X = sparse.csr_matrix(X)
    f = X @ rng.normal(size=columns) + rng.normal(size=rows) + 0.5
    return X, f, rng.integers(1, 4, rows).astype(float)


def lowest_objective(X, y, C, loss, epsilon, bias):
    """Return the minimum of 1/2 |w|^2 + sum C loss, by scipy's L-BFGS-B on the dual of rows.

    C : (n,)
    """
    n = len(y)
    K = (X @ X.T).toarray()
    signs = np.concatenate([np.ones(n), -np.ones(n)])
    gain = np.concatenate([y, -y]) - (epsilon or 0.0)
    most = np.full(n, np.inf) if loss.startswith("squared") else C
    upper = np.concatenate([most, most])
    if epsilon is None:
        upper = np.where(np.concatenate([y, -y]) > 0, upper, 0.0)
    ridge = 1 / (2 * C) if loss.startswith("squared") else np.zeros(n)
    multiplier = 0.0
    rate = 10.0 if bias else 0.0
    alpha = np.zeros(2 * n)

    def negative_dual(alpha):
        beta = alpha[:n] - alpha[n:]
        total = beta.sum()
        slope = K @ beta + ridge * beta + multiplier + rate * total
        value = beta @ K @ beta / 2 + ridge @ beta**2 / 2 + multiplier * total + rate * total**2 / 2
        return value - gain @ alpha, np.concatenate([slope, -slope]) - gain

    # The multiplier of sum beta = 0 is b (augmented Lagrangian).
    for _ in range(40 if bias else 1):
        bounds = [(0, None if high == np.inf else high) for high in upper]
        found = optimize.minimize(
            negative_dual, alpha, jac=True, method="L-BFGS-B", bounds=bounds,
            options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9},
        )  # fmt: skip
        alpha = found.x
        multiplier += rate * float(signs @ alpha)
    w, b = X.T @ (alpha[:n] - alpha[n:]), multiplier
    r = y - X @ w - b
    losses = np.maximum(np.abs(r) - epsilon, 0) if epsilon is not None else np.maximum(y * r, 0)
    return w @ w / 2 + C @ losses ** (2 if loss.startswith("squared") else 1)


@pytest.mark.parametrize("no_bias", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "loss", ["hinge", "squared-hinge", "epsilon-insensitive", "squared-epsilon-insensitive"]
)
def test_passes_reach_the_gap_on_sparse_rows_of_many_columns(loss, weighted, no_bias):
    X, f, weights = many_columns()
    regression = "epsilon" in loss
    y = f if regression else np.where(f > 0, 1.0, -1.0)
    options = {"task": "svr", "epsilon": 0.1} if regression else {}
    rows = Arrays(X, y if regression else y < 0, weights=weights if weighted else None)
    found = api.train(
        rows, algorithm="sgd", gap=1e-4, loss=loss, no_bias=no_bias, C=0.5, **options
    ).outcome
    assert found.stopped == "gap <= 0.0001"
    assert found.passes > 1
    own = 0.5 * (weights if weighted else np.ones(len(y)))
    least = lowest_objective(X, y, own, loss, 0.1 if regression else None, not no_bias)
    assert found.primal == pytest.approx(least, rel=1.5e-4)
    assert found.dual <= least * (1 + 1e-7)


@pytest.mark.parametrize("no_bias", [False, True])
def test_newton_steps_reach_the_gap_of_logistic_regression(no_bias):
    """The reference is scipy's minimum of P."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 3)) * [1, 10, 0.1] + [0, 50, 3]
    weights = rng.integers(1, 4, 200).astype(float)
    y = X @ [1, 0.1, 5] + 2 * rng.normal(size=200) > 20
    sign = np.where(y, 1, -1)

    def primal(u):
        z = sign * (X @ u[:3] + u[3] * (not no_bias))
        return u[:3] @ u[:3] / 2 + 2 * weights @ np.logaddexp(0, -z)

    least = optimize.minimize(primal, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).fun
    options = {"algorithm": "sgd", "loss": "log", "C": 2.0, "gap": 1e-6, "no_bias": no_bias}
    found = api.train(Arrays(X, y, weights=weights), **options).outcome
    assert found.stopped == "gap <= 1e-06"
    assert found.certificate == "proven"
    assert found.dual <= least <= found.primal * (1 + 1e-9)
    assert found.primal - found.dual <= 1.001e-6 * found.primal


@pytest.mark.parametrize("no_bias", [False, True])
@pytest.mark.parametrize("loss", ["squared-hinge", "log"])
@pytest.mark.parametrize("shape", [(200, 30), (300, 1200)])
def test_an_l1_penalty_reaches_the_minimum_of_scipy(shape, loss, no_bias):
    """scipy minimises over u and v above 0 with w = u - v, so that |w|_1 is their sum."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=shape) * (rng.random(shape) < (0.5 if shape[1] < 100 else 0.03))
    X[:, 0] += 2
    X[:, 2] = X[:, 1]
    sign = np.where(X[:, :9] @ rng.normal(size=9) + rng.normal(size=shape[0]) > 0.5, 1.0, -1.0)
    weights, d = rng.integers(1, 4, shape[0]).astype(float), shape[1]

    def primal(v):
        z = sign * (X @ (v[:d] - v[d : 2 * d]) + v[-1])
        slope = -2 * np.maximum(1 - z, 0) if loss == "squared-hinge" else -1 / (1 + np.exp(z))
        of_f = 0.1 * weights * slope * sign
        of_w = X.T @ of_f
        value = v[:-1].sum() + 0.1 * weights @ oracle.LINEAR_LOSSES[loss](z)
        return value, np.concatenate([1 + of_w, 1 - of_w, [of_f.sum()]])

    bounds = [*[(0, None)] * (2 * d), (0, 0) if no_bias else (None, None)]
    options = {"maxiter": 50_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 50}
    least, v = np.inf, np.zeros(2 * d + 1)
    for _ in range(8):
        reached = optimize.minimize(
            primal, v, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        least, v = reached.fun, reached.x
    rows = Arrays(sparse.csr_matrix(X) if d > 100 else X, sign < 0, weights=weights)
    options = {"loss": loss, "C": 0.1, "gap": 1e-6, "no_bias": no_bias, "penalty": "l1"}
    found = api.train(rows, algorithm="sgd", **options)
    outcome, w = found.outcome, found.model.w
    assert (outcome.stopped, outcome.certificate) == ("gap <= 1e-06", "proven")
    assert outcome.primal == pytest.approx(least, rel=2e-6)
    assert outcome.dual <= least * (1 + 1e-9)
    assert outcome.nonzero_weights == np.count_nonzero(w) < d
    assert not no_bias or not found.model.b.any()


@pytest.mark.parametrize("constant", [False, True])
def test_an_l1_penalty_reaches_the_minimum_where_a_column_lies_far_from_zero(constant):
    """A shift of a column changes b, and neither w nor P."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=200) > 0, 1, -1)
    X[:, 3] *= 0.01
    X[:, 4] *= 0.0 if constant else 1.0
    far = X + np.where(np.arange(6) == 3, 1e6, 0) + np.where(np.arange(6) == 4, 1e7 * constant, 0)
    options = {"loss": "squared-hinge", "C": 100, "gap": 1e-4, "penalty": "l1"}
    near, shifted = (api.train(Arrays(one, y), algorithm="sgd", **options) for one in (X, far))
    assert shifted.outcome.primal <= near.outcome.primal * 1.01


def test_an_l1_penalty_needs_the_memory_for_all_rows_twice():
    """A nonzero takes 12 bytes in its row, and as many in its column."""
    X = np.random.default_rng(0).normal(size=(1000, 720))
    rows, needed = Arrays(X, X[:, 0] > 0), 24 * X.size
    options = {"penalty": "l1", "loss": "log", "C": 0.01, "gap": 0.1, "algorithm": "sgd"}
    with pytest.raises(ParameterError, match=f"here {needed:,} bytes: --memory is too small"):
        api.train(rows, memory=needed - 1, **options)
    assert api.train(rows, memory=needed, **options).outcome.gap <= 0.1
    # The other penalty reads the rows again in each pass.
    assert api.train(rows, memory=needed - 1, **{**options, "penalty": "l2"}).outcome.gap <= 0.1


def test_an_interrupted_training_with_an_l1_penalty_keeps_its_best_weights():
    X, f, _ = many_columns(rows=1500, columns=1000)
    options = {"gap": 1e-9, "loss": "squared-hinge", "penalty": "l1", "C": 3.0}
    whole = api.train(Arrays(X, f > 0), algorithm="sgd", **options)
    fitted, _ = ended(Arrays(X, f > 0), stage_number(40), **options)
    assert fitted.outcome.stopped == "ended by a callback"
    assert fitted.outcome.certificate == "proven"
    assert whole.outcome.primal < fitted.outcome.primal < 0.5 * 3 * 1500
    assert fitted.outcome.dual <= whole.outcome.primal
    assert 0 < fitted.outcome.nonzero_weights < 1000


def test_d_is_at_least_that_of_coefficients_of_0():
    """The first coefficients on columns far from 0 have a D far below 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) * [1, 1e4] + [1e6, 0]
    y = X[:, 1] / 1e4 + rng.normal(size=60) > 0
    options = {"loss": "squared-hinge", "C": 100.0, "gap": 1e-5, "max_iterations": 1}
    found = api.train(Arrays(X, y), algorithm="sgd", **options).outcome
    assert 0 <= found.dual <= found.primal
    assert found.gap < 1 + 1e-6


def test_newton_steps_follow_passes_that_do_not_suffice():
    X, f, _ = many_columns(rows=3000, columns=1000)
    found = api.train(Arrays(X, f > 0), algorithm="sgd", gap=1e-4, C=10).outcome
    assert found.passes and found.newton_steps
    assert found.stopped == "gap <= 0.0001"
    assert 0 <= found.primal - found.dual <= 1.0001e-4 * found.primal


@pytest.mark.parametrize("C", [1.4, 1.5, 1.6, 1.7])
def test_a_gap_that_the_end_of_the_passes_reaches_is_not_lost(C):
    """The passes end at their limit; P is compared with the optimum by scipy."""
    rng = np.random.default_rng(0)
    X = sparse.random(600, 1500, 0.01, format="csr", random_state=1)
    X.data[:] = rng.normal(size=X.nnz)
    y = np.where(X @ rng.normal(size=1500) + 0.3 * rng.normal(size=600) > 0, 1.0, -1.0)
    found = api.train(Arrays(X, y), algorithm="sgd", gap=1e-3, C=C).outcome
    assert found.stopped == "gap <= 0.001"
    least = lowest_objective(X, y, np.full(600, C), "hinge", None, True)
    assert found.primal == pytest.approx(least, rel=1.5e-3)


def ended(rows, when, **options):
    """Train with a gap until `when` of a Progress; return the model and all events."""
    events = []

    def watch(event):
        events.append(event)
        if isinstance(event, Progress) and when(event):
            next(one for one in events if isinstance(one, Underway)).stop()

    return api.train(rows, algorithm="sgd", watch=watch, **options), events


def stage_number(number):
    """Return a function that is true at the event of this number of passes or products."""
    numbers = count(1)
    stages = "coordinate ascent", "Newton step"
    return lambda event: event.stage in stages and next(numbers) == number


@pytest.mark.parametrize("columns", [3, 1600])
def test_classes_are_trained_in_turns(columns):
    """All together, the passes and products are too few for one class. P is 10% below that of
    weights of 0 with the first b."""
    X, _, _ = many_columns(400, columns)
    X = X if columns > 100 else np.random.default_rng(3).normal(size=(400, 3))
    y = np.argmax(X @ np.random.default_rng(1).normal(size=(columns, 5)), axis=1)
    fitted, _ = ended(Arrays(X, y), stage_number(40), gap=1e-9, C=10.0)
    model = fitted.model
    assert fitted.outcome.stopped == "ended by a callback"
    for k, label in enumerate(model.labels):
        own = np.where(y == int(label), 1.0, -1.0)
        most = 9 * np.maximum(1 - own * own.mean(), 0).sum()
        w = model.w[:, k]
        found = w @ w / 2 + 10 * np.maximum(1 - own * (X @ w + model.b[k]), 0).sum()
        assert found < most


def test_classes_that_a_training_has_not_reached_are_named():
    X, _, _ = many_columns(400, 1600)
    y = np.argmax(X @ np.random.default_rng(1).normal(size=(1600, 5)), axis=1)
    fitted, events = ended(Arrays(X, y), stage_number(3), gap=1e-9, C=10.0)
    model = fitted.model
    untrained = [label for k, label in enumerate(model.labels) if not model.w[:, k].any()]
    assert 0 < len(untrained) < 5
    (said,) = [one.text for one in events if isinstance(one, Notice) and "trained" in one.text]
    assert said.endswith(": " + ", ".join(untrained))


@pytest.mark.parametrize(
    "rows, columns, C, scale, targets",
    [
        (300, 2, 1e3, 1e-3, "signs"),
        (1000, 2, 1e3, 1e-3, "classes"),
        (2000, 5, 1e4, 1.0, "prices"),
        (2000, 13, 1e4, 1.0, "prices"),
    ],
)
def test_newton_steps_reach_the_gap_where_no_row_is_curved_at_the_start(
    rows, columns, C, scale, targets
):
    """D is below the objective of every machine, such as that of the best constant."""
    rng = np.random.default_rng(rows + columns)
    X = scale * rng.normal(size=(rows, columns))
    if targets == "prices":
        f = X @ rng.normal(size=columns) / columns**0.5
        y = np.rint(200000 + 80000 * f + 20000 * rng.normal(size=rows))
    else:
        y = np.where(rng.random(rows) < 0.3, 1.0, -1.0)
    task = {} if targets == "classes" else {"task": "svr", "epsilon": 0.1}
    fitted = api.train(Arrays(X, y), algorithm="sgd", gap=1e-3, C=C, **task)
    found, model = fitted.outcome, fitted.model
    assert found.stopped == "gap <= 0.001"

    def objective(w, f):
        sign = 1 if not model.labels or float(model.labels[0]) == 1 else -1
        losses = np.abs(y - f) - 0.1 if task else 1 - sign * y * f
        return w @ w / 2 + C * np.maximum(losses, 0).sum()

    w, b = model.w[:, 0], model.b[0]
    assert found.primal == pytest.approx(objective(w, X @ w + b), rel=1e-6)
    assert found.primal <= 1.001 * objective(0 * w, np.median(y) if task else -1 + 0 * y)
    assert found.primal - found.dual <= 1.001e-3 * found.primal


@pytest.mark.parametrize("epochs", [None, 1])
def test_an_average_of_no_epochs_is_said_to_have_no_effect(tmp_path, made, epochs):
    path, _, _ = made("clouds", 100)
    words = ("--gap", 0.1, "--average", *(() if epochs is None else ("--epochs", epochs)))
    said = " ".join(learn("sgd", path, tmp_path / "m", *words).notices)
    assert ("--average has no effect" in said) == (epochs is None)


def test_a_training_that_ends_between_evaluations_has_its_lowest_p():
    """As a training with this number of passes, P is evaluated after the last one."""
    X, f, _ = many_columns(1500, 1000)
    rows, options = Arrays(X, f > 0), {"C": 100.0, "gap": 1e-9}
    for passes in (4, *range(9, 30, 3)):
        limited = api.train(rows, algorithm="sgd", max_iterations=passes, **options).outcome
        outcome = ended(rows, stage_number(passes + 1), **options)[0].outcome
        assert outcome.passes == passes
        assert outcome.primal == pytest.approx(limited.primal, rel=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
@pytest.mark.parametrize("C", [1e100, 1e200, 1e300])
@pytest.mark.parametrize("columns", [3, 4000])
def test_a_cost_that_overflows_leaves_a_model_without_false_claims(columns, C, loss):
    """D of coefficients of 0 is 0."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    if columns > 3:
        X = many_columns(40, columns)[0]
        X = X[:, np.unique(X.indices)]
    y = np.where(np.random.default_rng(1).random(40) > 0.5, 1.0, -1.0)
    fitted = api.train(Arrays(X, y), algorithm="sgd", gap=1e-3, C=C, loss=loss)
    model, outcome = fitted.model, fitted.outcome
    f = X @ model.w[:, 0] + model.b[0]
    sign = 1 if float(model.labels[0]) == 1 else -1
    losses = np.maximum(1 - sign * y * f, 0) ** (2 if loss == "squared-hinge" else 1)
    assert np.isfinite(f).all()
    assert outcome.primal >= 0.99 * C * losses.sum()
    assert outcome.primal >= outcome.dual >= 0
    assert (outcome.gap <= 1e-3) == (outcome.stopped == "gap <= 0.001")


@pytest.mark.parametrize("how", [{"gap": 1e-3}, {"epochs": 2}], ids=["gap", "epochs"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "log"])
@pytest.mark.parametrize("weight", [1e20, 1e160])
def test_a_huge_weight_of_a_class_leaves_a_model_that_predicts_it(weight, loss, how):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(2, size=40)
    fitted = api.train(Arrays(X, y), algorithm="sgd", loss=loss, weights={1: weight}, **how)
    assert np.isfinite(fitted.model.w).all()
    assert (fitted.predict(X[y == 1]) == 1).all()


@pytest.mark.parametrize("place", ["first", "last"])
def test_chunks_of_empty_rows_count_only_for_the_bias(place):
    """More than 300 columns, so that the steps are products with the rows."""
    filled = sparse.random(600, 400, 0.5, format="csr", random_state=0)
    empty = sparse.csr_matrix((2 * 8192, 400))
    X = sparse.vstack([empty, filled] if place == "first" else [filled, empty]).tocsr()
    y = np.random.default_rng(0).random(X.shape[0]) < 0.4
    options = {"gap": 1e-6, "C": 0.1, "loss": "squared-hinge", "max_iterations": 20}
    outcome = api.train(Arrays(X, y), algorithm="sgd", **options).outcome
    assert outcome.stopped == "gap <= 1e-06"


def test_the_last_pass_that_is_allowed_counts():
    """Without b each pass raises D."""
    X, f, _ = many_columns()
    options = {"gap": 1e-9, "C": 10.0, "loss": "hinge", "no_bias": True}
    found = [
        api.train(Arrays(X, f > 0), algorithm="sgd", max_iterations=most, **options).outcome
        for most in range(2, 6)
    ]
    assert [one.passes for one in found] == [2, 3, 4, 5]
    assert (np.diff([one.dual for one in found]) > 0).all()


def test_an_interrupted_run_certifies_its_last_pass(tmp_path):
    """Without b each pass raises D. P and D are computed after passes 8 and 64 while it runs."""
    X, f, _ = many_columns(rows=1500, columns=1000)
    model = tmp_path / "m"
    options = {"gap": 1e-12, "C": 10.0, "loss": "hinge", "no_bias": True, "algorithm": "sgd"}
    eighth = api.train(Arrays(X, f > 0), max_iterations=8, **options).outcome
    with pytest.raises(Interrupted), interrupted_at(45):
        api.train(Arrays(X, f > 0), model, **options)
    found = oracle.trailer(model)
    assert found["certificate"] == "proven"
    assert eighth.dual < float(found["dual"]) <= float(found["primal"])
    assert 0 < float(found["gap"]) < eighth.gap


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("scale", [1e-14, 1e-9])
def test_losses_of_a_regression_are_exact_for_targets_of_any_scale(scale, power):
    rng = np.random.default_rng(3)
    X = oracle.as_float32(rng.normal(size=(300, 4)))
    y, loss = scale * rng.normal(size=300), ("", "squared-")[power - 1] + "epsilon-insensitive"
    given = {"task": "svr", "epsilon": scale / 10, "C": 1000.0, "loss": loss}
    fitted = api.train(Arrays(X, y), algorithm="sgd", **given)
    w, distance = fitted.model.w[:, 0], np.abs(y - X @ fitted.model.w[:, 0] - fitted.model.b)
    losses = np.maximum(distance - scale / 10, 0)
    P = w @ w / 2 + 1000 * (losses**power).sum()
    assert fitted.outcome.primal == pytest.approx(P, rel=1e-9, abs=0)
    assert fitted.outcome.violators == np.count_nonzero(losses) > 100


def test_the_sample_that_sets_the_first_step_depends_on_the_seed():
    X = np.random.default_rng(0).normal(size=(2500, 2)).round(3)
    y = X[:, 0] ** 3

    def first_step(seed):
        given = {"task": "svr", "epochs": 1, "seed": seed}
        return api.train(Arrays(X, y), algorithm="sgd", **given).model.metadata.eta0

    assert first_step(0) == first_step(0) != first_step(1)
    # The spread of y about its median, divided by the mean of |x|^2, up to the sample.
    spread = np.abs(y - np.median(y)).mean() / oracle.squares(X).mean()
    assert first_step(1) == pytest.approx(spread, rel=0.1)
