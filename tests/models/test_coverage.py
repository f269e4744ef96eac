"""--coverage: sets and intervals have the truth as often as was asked, and not much oftener."""

from __future__ import annotations

import json
import math

import numpy as np
import oracle
import pytest
from learning import Data, gaussians, learn
from scipy import stats

from randsvm.errors import ModelError, ParameterError
from randsvm.models.conformal import NonconformityScores, class_scores, own_pair_scores
from randsvm.models.load import load
from randsvm.parameters.run import PredictParams
from randsvm.training.probabilities import own_pair_values

LEVELS = [0.5, 0.8, 0.9, 0.95]


def least_coverage(asked, held_out, tested):
    """Return the coverage that chance undercuts in about one of 30,000 cases."""
    return asked - 4 * math.sqrt(asked * (1 - asked) * (1 / held_out + 1 / tested))


# ---- quantiles ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 9, 10, 199])
@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.9, 0.99])
def test_the_quantile_is_that_of_split_conformal_prediction(rows, coverage):
    scores = np.random.default_rng(rows).normal(size=rows)
    found = NonconformityScores.of(scores).largest(coverage)
    rank = math.ceil(round((rows + 1) * coverage, 9))
    assert found == (np.sort(scores)[rank - 1] if rank <= rows else math.inf)


def test_a_row_of_weight_3_is_three_rows():
    rng = np.random.default_rng(1)
    scores, weights = rng.normal(size=50), rng.integers(1, 5, 50)
    one = NonconformityScores.of(scores, weights.astype(float))
    other = NonconformityScores.of(np.repeat(scores, weights))
    for coverage in np.linspace(0.01, 0.99, 99):
        assert one.largest(coverage) == other.largest(coverage)


def test_few_of_many_scores_are_kept_and_never_give_less_coverage():
    scores = np.random.default_rng(2).normal(size=30_000)
    few = NonconformityScores.of(scores)
    assert len(few.scores) <= 2000
    for coverage in np.linspace(0.001, 0.9999, 500):
        rank = math.ceil(30_001 * coverage)
        exact = np.sort(scores)[min(rank, 30_000) - 1]
        assert few.largest(coverage) >= exact
        share = np.mean(scores <= few.largest(coverage))
        assert share <= rank / 30_000 + 1 / 1990


def test_coverage_is_exact_for_exchangeable_rows():
    """Over many draws of few rows, so that a rank that is one too small would show."""
    rng = np.random.default_rng(3)
    covered = [
        rng.normal() <= NonconformityScores.of(rng.normal(size=9)).largest(0.8)
        for _ in range(20_000)
    ]
    assert np.mean(covered) == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 20_000))


# ---- scores of labels ---------------------------------------------------------------------


@pytest.mark.parametrize("classes", [3, 5])
def test_scores_of_pairs_are_the_worst_votes(classes):
    rng = np.random.default_rng(classes)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    f, y = rng.normal(size=(40, len(pairs))), rng.integers(0, classes, 40)
    expected = np.array(
        [
            [
                max(
                    -v if c == i else v for v, (i, j) in zip(row, pairs, strict=True) if c in (i, j)
                )
                for c in range(classes)
            ]
            for row in f
        ]
    )
    scores = class_scores(f, pairs=True)
    np.testing.assert_array_equal(scores, expected)
    own = own_pair_scores(own_pair_values(f, y.astype(float)), y)
    np.testing.assert_array_equal(own, expected[np.arange(40), y])


def test_scores_of_classes_are_distances_from_the_best_other():
    f = np.array([[3.0, 1.0, 2.0], [0.0, 0.0, -1.0]])
    expected = [[-1.0, 2.0, 1.0], [0.0, 0.0, 1.0]]
    np.testing.assert_array_equal(class_scores(f, pairs=False), expected)
    np.testing.assert_array_equal(class_scores(f[:, :1], pairs=False)[0], [-3.0, 3.0])


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
    path, tested = tmp_path / "d", tmp_path / "t"
    path.write_text(oracle.svmlight_text(train.y.tolist(), train.X))
    tested.write_text(oracle.svmlight_text(test.y.tolist(), test.X))
    learnt = learn("randsvm", path, tmp_path / "m", "--conformal", *task, *words)
    assert load(str(learnt.model)).noise_scale is None
    for asked in LEVELS:
        ended = predict(tested, learnt.model, "--coverage", asked, "--report", "json")
        f, low, high = np.array([line.split() for line in ended.lines], float).T
        np.testing.assert_array_equal(f, predict(tested, learnt.model).scores)
        held = np.mean((test.y >= low) & (test.y <= high))
        assert least_coverage(asked, 500, 3000) <= held <= asked + 0.06
        found = json.loads(ended.out)["coverage"]
        assert found["found"] == pytest.approx(held, abs=2e-3)
        assert found["size"] == pytest.approx((high - low)[0])


def test_label_sets_of_a_reduced_model_have_the_label_as_often_as_asked(tmp_path, predict):
    """Ten support vectors give other decision values than some hundreds."""
    rng = np.random.default_rng(11)
    X = oracle.as_float32(rng.uniform(-2, 2, size=(4000, 2)))
    y = np.where((np.floor(X).sum(axis=1) % 2 == 0) ^ (rng.random(4000) < 0.05), 1.0, -1.0)
    train, test = Data(y[:1000], X[:1000]), Data(y[1000:], X[1000:])
    path, words = train.save(tmp_path / "d"), ["-g", 4, "-c", 10]
    learnt = learn("randsvm", path, tmp_path / "m", "--conformal", "--reduce", 10, *words)
    tested = test.save(tmp_path / "t")
    for asked in LEVELS:
        ended = predict(tested, learnt.model, "--coverage", asked, "--report", "json")
        assert json.loads(ended.out)["coverage"]["found"] >= least_coverage(asked, 1000, 3000)


REAL_SETS = {
    "magic04": (("magic04.train", "magic04.test"), ["-c", 8, "-g", 1]),
    "satimage": (("satimage.scale", "satimage.scale.t"), ["-c", 4, "-g", 0.5]),
    "abalone": (("abalone_scale",), ["-s", "svr", "-p", 0.5, "-c", 8, "-g", 1]),
}


@pytest.mark.parametrize("name", REAL_SETS)
def test_held_out_rows_of_real_sets_are_covered(real, tmp_path, predict, name):
    """Half of the rows, at random, train; the beta-binomial distribution limits the others.

    It is that of the covered rows if scores of held-out rows and of new ones are exchangeable. No
    set is empty, so that sets of few labels may cover more. The machines of cross-validation have
    fewer rows than the final one: scores are a little larger than those of new rows.
    """
    parts, words = REAL_SETS[name]
    lines = [line for part in parts for line in real(part).read_bytes().splitlines(keepends=True)]
    order = np.random.default_rng(11).permutation(len(lines))[:6000]
    half = len(order) // 2
    for path, rows in ((tmp_path / "d", order[:half]), (tmp_path / "t", order[half:])):
        path.write_bytes(b"".join(lines[row] for row in rows))
    learnt = learn("randsvm", tmp_path / "d", tmp_path / "m", "--conformal", *words)
    ended = predict(tmp_path / "t", learnt.model, "--coverage", 0.9, "--report", "json")
    found = json.loads(ended.out)["coverage"]
    rank = math.ceil(0.9 * (half + 1))
    covered = stats.betabinom(len(order) - half, rank, half + 1 - rank)
    least, most = (covered.ppf(p) / (len(order) - half) for p in (1e-4, 1 - 1e-4))
    assert least <= found["found"]
    if name == "abalone" or found["size"] > 1.05:
        assert found["found"] <= most + 0.01


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
    with pytest.raises(ModelError, match="expected a model with held-out scores"):
        predict(path, learnt.model, "--coverage", 0.9)
    for level in (0, 1, -0.1, math.nan):
        with pytest.raises(ParameterError, match="coverage must be"):
            PredictParams(coverage=level)
    both = [{"scores": True}, {"probabilities": True}]
    for given in both:
        with pytest.raises(ParameterError, match="give one of --coverage"):
            PredictParams(coverage=0.9, **given)


def test_a_file_of_label_sets_is_replaced(tmp_path, predict):
    data = gaussians(60)
    words = ["red" if label > 0 else "blue" for label in data.y]
    (tmp_path / "d").write_text(oracle.svmlight_text(words, data.X))
    learnt = learn("randsvm", tmp_path / "d", tmp_path / "m", "--conformal")
    for _ in range(2):
        ended = predict(tmp_path / "d", learnt.model, "--coverage", 0.99)
        assert {"red", "blue"} >= set(" ".join(ended.lines[1:]).split())
