"""--coverage: sets and intervals have the truth as often as was asked, and not much oftener."""

import json
import math

import numpy as np
import oracle
import pytest
from learning import Data, gaussians, learn
from model_files import largest_score, load_model

from randsvm.errors import ModelError, ParameterError
from randsvm.parameters.run import PredictParams

LEVELS = [0.5, 0.8, 0.9, 0.95]


def least_coverage(asked, held_out, tested):
    """Return the coverage that chance undercuts in about one of 30,000 cases."""
    return asked - 4 * math.sqrt(asked * (1 - asked) * (1 / held_out + 1 / tested))


# ---- quantiles ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 9, 10, 199])
@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.9, 0.99])
def test_the_quantile_is_that_of_split_conformal_prediction(rows, coverage):
    scores = np.random.default_rng(rows).normal(size=rows)
    found = largest_score(scores, coverage)
    rank = math.ceil(round((rows + 1) * coverage, 9))
    assert found == (np.sort(scores)[rank - 1] if rank <= rows else math.inf)


def test_a_row_of_weight_3_is_three_rows():
    rng = np.random.default_rng(1)
    scores, weights = rng.normal(size=50), rng.integers(1, 5, 50)
    for coverage in np.linspace(0.01, 0.99, 99):
        found = largest_score(scores, coverage, weights.astype(float))
        assert found == largest_score(np.repeat(scores, weights), coverage)


# ---- the command --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "words", "classes"),
    [
        ("randsvm", ["-g", 0.2], 2),
        ("randsvm", ["-g", 0.2], 4),
        ("randsvm", ["-g", 0.2, "--multiclass", "ovr"], 4),
        ("sgd", [], 2),
        ("sgd", ["--loss", "log", "-b", 1], 3),
    ],
)
def test_label_sets_have_the_label_as_often_as_asked(tmp_path, predict, algorithm, words, classes):
    rng = np.random.default_rng(classes)
    y = rng.integers(0, classes, 3600)
    angle = 2 * np.pi * y / classes
    X = oracle.as_float32(np.column_stack([np.cos(angle), np.sin(angle)]))
    X = oracle.as_float32(X + 0.9 * rng.normal(size=X.shape))
    train, test = Data(y[:600].astype(float), X[:600]), Data(y[600:].astype(float), X[600:])
    learnt = learn(algorithm, train.save(tmp_path / "d"), tmp_path / "m", "--conformal", *words)
    path, sizes = test.save(tmp_path / "t"), []
    for asked in LEVELS:
        ended = predict(path, learnt.model, "--coverage", asked, "--report", "json")
        assert ended.lines[0] == f"label sets of coverage {asked:g}"
        sets = [line.split() for line in ended.lines[1:]]
        assert all(len(set(one)) == len(one) > 0 for one in sets)
        held = np.mean([f"{int(label):+d}" in one for label, one in zip(test.y, sets, strict=True)])
        found = json.loads(ended.out)["coverage"]
        assert found["found"] == pytest.approx(held)
        assert found["size"] == pytest.approx(np.mean([len(one) for one in sets]))
        assert held >= least_coverage(asked, 600, 3000)
        sizes.append(found["size"])
        if found["size"] > 1.2:  # the sets are not the predicted labels alone
            assert held <= asked + 0.06
    assert sizes == sorted(sizes) and sizes[-1] > sizes[0]
    plain = predict(path, learnt.model)
    assert [one[0] for one in sets] == plain.lines
    assert "coverage" not in plain.out


@pytest.mark.parametrize("words", [["-g", 1], ["-t", 0], ["-s", "nu-svr", "-g", 1]], ids=str)
def test_intervals_have_the_target_as_often_as_asked(tmp_path, predict, words):
    rng = np.random.default_rng(7)
    X = oracle.as_float32(rng.uniform(-3, 3, size=(3500, 1)))
    y = np.round(np.sinc(X[:, 0]) + 0.2 * rng.standard_t(4, size=3500), 4)
    train, test = Data(y[:500], X[:500]), Data(y[500:], X[500:])
    task = [] if "-s" in words else ["-s", "svr"]
    path = oracle.write_rows(tmp_path / "d", *train)
    tested = oracle.write_rows(tmp_path / "t", *test)
    learnt = learn("randsvm", path, tmp_path / "m", "--conformal", *task, *words)
    assert load_model(learnt.model).noise_scale is None
    for asked in LEVELS:
        ended = predict(tested, learnt.model, "--coverage", asked, "--report", "json")
        f, low, high = np.array([line.split() for line in ended.lines], float).T
        np.testing.assert_array_equal(f, predict(tested, learnt.model).scores)
        held = np.mean((test.y >= low) & (test.y <= high))
        assert least_coverage(asked, 500, 3000) <= held <= asked + 0.06
        found = json.loads(ended.out)["coverage"]
        assert found["found"] == pytest.approx(held, abs=2e-3)
        assert found["size"] == pytest.approx((high - low)[0])


def test_rows_have_weights_and_may_have_no_label(tmp_path, predict):
    learnt = learn("randsvm", gaussians(200).save(tmp_path / "d"), tmp_path / "m", "--conformal")
    f = {1.0: "1:9 2:9", -1.0: "1:-9 2:-9"}
    side = predict(write(tmp_path, f"+1 {f[1.0]}\n"), learnt.model).lines[0]
    other = "-1" if side == "+1" else "+1"
    text = f"{side} cost:3 {f[1.0]}\n{other} cost:1 {f[1.0]}\n? {f[1.0]}\n"
    ended = predict(write(tmp_path, text), learnt.model, "--coverage", 0.5, "--report", "json")
    found = json.loads(ended.out)["coverage"]
    assert (found["found"], found["size"]) == (0.75, 1.0)


def write(folder, text):
    (folder / "t").write_text(text)
    return folder / "t"


def test_models_without_scores_and_bad_levels_are_refused(tmp_path, predict):
    path = gaussians(60).save(tmp_path / "d")
    learnt = learn("randsvm", path, tmp_path / "m", "-b", 1)
    with pytest.raises(ModelError, match="expected a model that was trained with --conformal"):
        predict(path, learnt.model, "--coverage", 0.9)
    for level in (0, 1, -0.1, math.nan):
        with pytest.raises(ParameterError, match="coverage: must be"):
            PredictParams(coverage=level)
    both = [{"scores": True}, {"probabilities": True}]
    for given in both:
        with pytest.raises(ParameterError, match="give one of --coverage"):
            PredictParams(coverage=0.9, **given)
