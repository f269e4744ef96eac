"""Test paths over C against a training of each C alone, and against LIBLINEAR."""

import json
from contextlib import nullcontext
from itertools import count

import linear_judge
import numpy as np
import oracle
import pytest
from learning import jumping_clock, learn
from liblinear import liblinearutil
from scipy import sparse

from randsvm import Arrays, api
from randsvm.errors import Interrupted
from randsvm.events import Notice, Point, Progress, Searched, Underway

C = (0.02, 0.1, 0.5, 2.0)


def rows_of(columns=12, classes=2, n=300, weighted=False):
    """Return rows whose classes, or targets (classes = 0), depend on a few features."""
    rng = np.random.default_rng(columns)
    X = rng.normal(size=(n, columns)) * (rng.random((n, columns)) < (1 if columns < 99 else 0.03))
    f = X[:, :6] @ rng.normal(size=(6, max(classes, 1)))
    f += rng.normal(size=f.shape)
    y = f[:, 0] if classes == 0 else f[:, 0] > 0.3 if classes == 2 else f.argmax(axis=1)
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    return Arrays(sparse.csr_matrix(X) if columns > 99 else X, y, weights=weights)


def path_of(rows, watch=None, values=C, **options):
    """Train a path; return the model, and the points."""
    points = []

    def collect(event):
        if isinstance(event, Point):
            points.append(event)
        if watch is not None:
            watch(event, points)

    given = {"algorithm": "sgd", "path": True, "C": values, "gap": 1e-3, **options}
    return api.train(rows, watch=collect, **given), points


CASES = {
    "hinge": {},
    "hinge, sparse": {"columns": 1500},
    "squared hinge, sparse, weighted rows": {
        "columns": 1500, "weighted": True, "loss": "squared-hinge"
    },
    "log, a heavy class": {"loss": "log", "weights": {"1": 3.0}},
    "l1, squared hinge": {"penalty": "l1", "loss": "squared-hinge", "weighted": True},
    "l1, log, three classes": {"classes": 3, "penalty": "l1", "loss": "log"},
    "no bias": {"columns": 1500, "no_bias": True},
    "random features": {"kernel": "rbf", "gamma": 0.1, "components": 30},
    "svr": {"classes": 0, "task": "svr"},
    "svr, sparse": {"classes": 0, "task": "svr", "columns": 1500},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_point_is_the_optimum_of_a_training_alone(case):
    options = dict(case)
    shape = {name: options.pop(name) for name in ("columns", "classes", "weighted") if name in case}
    rows = rows_of(**shape)
    fitted, points = path_of(rows, values=C[::-1], **options)
    assert [one.C for one in points] == list(C)
    for point in points:
        alone = api.train(rows, algorithm="sgd", C=point.C, gap=1e-3, **options).outcome
        assert 0 <= point.gap <= 1e-3
        assert abs(point.primal - alone.primal) <= (point.gap + alone.gap) * alone.primal
        assert max(point.dual, alone.dual) <= min(point.primal, alone.primal) * (1 + 1e-9)
        assert (point.nonzero_weights is None) == ("penalty" not in case)
    outcome, last = fitted.outcome, points[-1]
    assert (outcome.primal, outcome.gap, outcome.stopped) == (last.primal, last.gap, "gap <= 0.001")
    assert fitted.model.metadata.options["C"] == C[-1]
    # What an update continues from is that of the training alone.
    alone = api.train(rows, algorithm="sgd", C=C[-1], gap=1e-3, **options).model.metadata
    for name in ("lambda_", "eta0", "bias_rate", "bias_lambda"):
        assert getattr(fitted.model.metadata, name) == pytest.approx(getattr(alone, name))


@pytest.mark.parametrize(
    ("number", "l1"), [(9, True), (12, True), (5, False), (8, False), (10, False)]
)
def test_an_exact_judge_confirms_each_point_of_a_path(tmp_path, number, l1):
    """The points of a path are those that shorter paths end with."""
    case, log = linear_judge.case_of(67, number, l1), tmp_path / "log"
    values = [repr(float(case.C) * part) for part in (0.01, 0.1, 0.3, 1)]
    judged = []
    for last in range(1, 5):
        shorter = linear_judge.on_path(case, values[:last])
        log.unlink(missing_ok=True)
        logged = shorter._replace(words=(*shorter.words, "--log", str(log), "--overwrite"))
        assert linear_judge.certified(logged, tmp_path) == "gap reached"
        trailer = oracle.trailer(tmp_path / "model")
        judged.append({name: float(trailer[name]) for name in ("C", "primal", "dual", "gap")})
    records = map(json.loads, log.read_text().splitlines())
    # A run with a lower gap follows, which the judge compares with.
    points = [one for one in records if one["event"] == "point"][:4]
    assert [{name: one[name] for name in judged[0]} for one in points] == judged


@pytest.mark.parametrize(("solver", "loss"), [(5, "squared-hinge"), (6, "log")])
def test_points_and_features_of_a_path_are_those_of_liblinear(tmp_path, solver, loss):
    y, X = oracle.clouds(300, 0, 2)
    data, values = oracle.write_rows(tmp_path / "data", y.astype(int), X), (0.001, 0.01, 0.1)
    words = "--penalty", "l1", "--loss", loss, "--gap", 1e-6, "--no-bias", "--path"
    learnt = learn("sgd", data, tmp_path / "m", *words, "-c", ",".join(map(str, values)))
    sign = np.where(y == y[0], 1, -1)
    for point, cost in zip(learnt.of("point"), values, strict=True):
        made = liblinearutil.train(y.tolist(), X, f"-s {solver} -c {cost} -e 1e-8 -q")
        w = np.array(made.get_decfun()[0])
        losses = oracle.LINEAR_LOSSES[loss](sign * (X @ w))
        least = np.abs(w).sum() + cost * losses.sum()
        assert point["primal"] == pytest.approx(least, rel=3e-6)
        assert point["dual"] <= least * (1 + 1e-9)
        assert point["nonzero_weights"] == np.count_nonzero(np.abs(w) > 1e-6)
    labels, _ = oracle.liblinear_predictions(learnt.model, X)
    assert np.mean(labels == y) == pytest.approx(1 - point["error"])


@pytest.mark.parametrize("case", ["l1, log, three classes", "hinge, sparse", "svr"])
def test_the_solution_before_saves_steps(case):
    options, values = dict(CASES[case]), [0.5 * 1.2**power for power in range(6)]
    shape = {name: options.pop(name) for name in ("columns", "classes") if name in options}
    rows = rows_of(**shape)
    _, points = path_of(rows, values=values, **options)
    alone = [api.train(rows, algorithm="sgd", C=one, gap=1e-3, **options) for one in values]

    def work(found):
        return sum(one.passes + one.newton_steps for one in found)

    assert work(points[1:]) < 0.8 * work([one.outcome for one in alone[1:]])


def test_cross_validation_chooses_the_model_of_a_path():
    found = []

    def watch(event, _):
        if isinstance(event, Searched):
            found.append(event)

    options = {"penalty": "l1", "loss": "log", "folds": 3, "no_racing": True}
    values = (0.001, 0.05, 0.2, 100.0)
    fitted, points = path_of(rows_of(columns=40), watch, values, **options)
    (searched,) = found
    scores = {one.values["C"]: one for one in searched.tried}
    assert [one.cross_validation for one in points] == [scores[one.C] for one in points]
    best = searched.tried[0]
    assert 0.001 < best.values["C"] < 100
    own = points[values.index(best.values["C"])]
    assert fitted.model.metadata.C == own.C
    assert fitted.outcome.cross_validation == best
    assert (fitted.outcome.primal, fitted.outcome.gap) == (own.primal, own.gap)
    assert fitted.outcome.nonzero_weights == np.count_nonzero(fitted.model.w) < 40


def test_a_path_names_each_c_whose_gap_is_missed():
    notes = []

    def watch(event, _):
        notes.extend([event.text] if isinstance(event, Notice) else [])

    rows = rows_of(columns=40)
    options = {"penalty": "l1", "loss": "log", "max_iterations": 2}
    _, points = path_of(rows, watch, values=(1e-6, 0.2, 10.0), **options)
    assert [one.gap <= 1e-3 for one in points] == [True, False, False]
    assert notes == ["--gap 0.001 is not reached at C = 0.2, 10"]


def test_a_path_over_lambda_is_that_over_c(tmp_path):
    y, X = oracle.clouds(200)
    data = oracle.write_rows(tmp_path / "data", y.astype(int), X)
    words = "--loss", "log", "--gap", 1e-3, "--path"
    by_lambda = learn("sgd", data, tmp_path / "a", *words, "--lambda", "0.005,0.05,0.01")
    by_c = learn("sgd", data, tmp_path / "b", *words, "-c", "1,0.5,0.1")
    assert [one["C"] for one in by_lambda.of("point")] == pytest.approx([0.1, 0.5, 1])
    assert [one["lambda"] for one in by_c.of("point")] == pytest.approx([0.05, 0.01, 0.005])
    assert by_lambda.outcome["primal"] == pytest.approx(by_c.outcome["primal"], rel=1e-9)


# ---- paths that end early ------------------------------------------------------------------------


WORDS = {"callback": "ended by a callback", "signal": "signal 15", "time": "time limit"}


@pytest.mark.parametrize("ended", [1, 3])
@pytest.mark.parametrize("how", WORDS)
def test_a_path_that_ends_early_leaves_the_model_of_its_last_point(tmp_path, how, ended):
    model, seen, underway, notes = tmp_path / "m", [], [], []
    with jumping_clock() as jump:

        def watch(event, points):
            seen[:] = points
            underway.extend([event] if isinstance(event, Underway) else [])
            notes.extend([event.text] if isinstance(event, Notice) else [])
            if len(points) != ended or not isinstance(event, Progress):
                return
            if how == "signal":
                raise Interrupted(15)
            underway[0].stop() if how == "callback" else jump()

        expected = pytest.raises(Interrupted) if how == "signal" else nullcontext()
        with expected:
            path_of(rows_of(), watch, model=model, time_limit=1000.0)
    assert len(seen) == ended
    metadata, last = oracle.trailer(model), seen[-1]
    assert float(metadata["C"]) == last.C == C[ended - 1]
    assert f" -c {last.C:g} " in metadata["configuration"]
    assert (metadata["certificate"], float(metadata["gap"])) == ("proven", last.gap)
    assert float(metadata["primal"]) == last.primal
    assert WORDS[how] in metadata["stopped"]
    assert notes == [f"the path came to C = {last.C:g}, and that is the C of the model"]


def test_a_path_that_ends_after_the_chosen_c_leaves_its_model(tmp_path):
    def watch(event, points):
        if len(points) == 3 and isinstance(event, Progress):
            raise Interrupted(15)

    options = {"penalty": "l1", "loss": "log", "folds": 3, "no_racing": True}
    values, model = (0.001, 0.2, 10.0, 100.0), tmp_path / "m"
    with pytest.raises(Interrupted):
        path_of(rows_of(columns=40), watch, values, model=model, **options)
    metadata = oracle.trailer(model)
    assert float(metadata["C"]) == 0.2
    assert float(metadata["gap"]) <= 1e-3


def test_an_interruption_before_the_first_point_leaves_its_weights(tmp_path):
    number = count(1)

    def watch(event, _):
        is_pass = isinstance(event, Progress) and event.stage == "coordinate ascent"
        if is_pass and next(number) == 3:
            raise Interrupted(15)

    with pytest.raises(Interrupted):
        path_of(rows_of(columns=1500), watch, model=tmp_path / "m", gap=1e-9)
    metadata = oracle.trailer(tmp_path / "m")
    assert (float(metadata["C"]), metadata["certificate"]) == (C[0], "proven")
