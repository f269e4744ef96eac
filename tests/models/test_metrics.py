"""--metrics: what is counted over predicted rows is what sklearn.metrics says of them."""

import json
import warnings

import numpy as np
import oracle
import pytest
from learning import Data, learn
from model_files import count_of
from sklearn import metrics as peers

# ---- counts -------------------------------------------------------------------------------------


def counted(count, y, f, pieces, weights=None):
    """Block by block, as rows are read."""
    predicted = f if isinstance(count, type(count_of("errors"))) else classes_of(f)
    weights, f = np.ones(len(y)) if weights is None else weights, f.reshape(len(f), -1)
    for part in np.array_split(np.arange(len(y)), pieces):
        count.add(y[part], f[part], predicted[part], weights[part])
    return count


def classes_of(f):
    return f.argmax(axis=1) if f.ndim == 2 else np.where(f > 0, 0, 1)


def weights_of(rows, weighted):
    return np.random.default_rng(3).integers(0, 4, rows) / 2 if weighted else np.ones(rows)


def decisions(rows, classes, seed=0):
    """y of the model's classes and f that is often right, with many ties."""
    rng = np.random.default_rng([seed, 50])
    y = rng.integers(0, classes, rows)
    f = rng.normal(size=(rows, classes)) + 1.5 * (y[:, None] == np.arange(classes))
    f = np.round(f, 1)
    return y.astype(float), (f[:, 0] - f[:, 1] if classes == 2 else f)


def scores(y, predicted, classes, weights):
    """Precision, recall and F1 (classes, 3), nan where nothing is to be divided by."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sklearn's mean of nothing
        found = peers.precision_recall_fscore_support(
            y, predicted, labels=range(classes), sample_weight=weights, zero_division=np.nan
        )
    return np.column_stack(found[:3])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pieces", [1, 9])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_of_classes(classes, pieces, weighted):
    (y, f), w = decisions(500, classes), weights_of(500, weighted)
    predicted = classes_of(f)
    count = counted(count_of("classes", classes), y, f, pieces, w)
    found = count.metrics([str(number) for number in range(classes)])
    assert found.confusion == peers.confusion_matrix(y, predicted).tolist()
    expected = scores(y, predicted, classes, w)
    mine = [[one.precision, one.recall, one.f1] for one in found.classes]
    assert np.array(mine) == pytest.approx(expected)
    mean = found.mean.precision, found.mean.recall, found.mean.f1
    assert mean == pytest.approx(expected.mean(axis=0))
    assert [one.rows for one in found.classes] == np.bincount(y.astype(int)).tolist()
    accuracy = peers.accuracy_score(y, predicted, sample_weight=w)
    assert count.accuracy == pytest.approx(100 * accuracy)
    if classes > 2:
        assert found.auc is None
        return
    assert len(np.unique(f)) < 200
    assert found.auc == pytest.approx(peers.roc_auc_score(y == 0, f, sample_weight=w), abs=1e-12)
    areas = [
        peers.average_precision_score(y == index, sign * f, sample_weight=w)
        for index, sign in ((0, 1), (1, -1))
    ]
    assert [one.average_precision for one in found.classes] == pytest.approx(areas, abs=1e-12)
    assert found.mean.average_precision == pytest.approx(np.mean(areas))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pieces", [1, 9])
@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_of_a_regression(mean, pieces, weighted):
    rng = np.random.default_rng(51)
    y = rng.normal(size=400) + mean
    f = 0.7 * (y - mean) + mean + 0.3 * rng.normal(size=400)
    w = weights_of(400, weighted)
    count = counted(count_of("errors"), y, f, pieces, w)
    assert count.squared_error == pytest.approx(peers.mean_squared_error(y, f, sample_weight=w))
    absolute = peers.mean_absolute_error(y, f, sample_weight=w)
    found = count.metrics([])
    assert found.mean_absolute_error == pytest.approx(absolute)
    assert found.determination == pytest.approx(peers.r2_score(y, f, sample_weight=w), abs=1e-3)
    covariance = np.cov(y - mean, f - mean, aweights=w)
    correlation = covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1])
    assert count.squared_correlation == pytest.approx(correlation, abs=1e-3)


@pytest.mark.parametrize("mean", [1e9, -1e12])
@pytest.mark.parametrize("pieces", [1, 7])
def test_targets_far_from_0_have_a_coefficient_of_determination(mean, pieces):
    """Their squares have no digits left for what they differ by."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    f = y + rng.normal(size=200) / 4
    far = counted(count_of("errors"), y + mean, f + mean, pieces)
    near = counted(count_of("errors"), y, f, pieces)
    # The targets themselves are rounded.
    digits = 1e-15 * abs(mean)
    determined = [each.metrics([]).determination for each in (far, near)]
    assert determined[0] == pytest.approx(determined[1], abs=digits)
    assert far.squared_correlation == pytest.approx(near.squared_correlation, abs=digits)


def test_two_parts_add_up():
    y, f = decisions(90, 2)
    parts = [
        counted(count_of("errors"), y[part], f[part], 1) for part in (slice(30), slice(30, None))
    ]
    both, whole = parts[0] + parts[1], counted(count_of("errors"), y, f, 1)
    assert both.squared_error == pytest.approx(whole.squared_error)
    assert both.squared_correlation == pytest.approx(whole.squared_correlation)


# ---- scores of probabilities ------------------------------------------------------------------


def likely(rows, classes):
    """Return y and probabilities, some of which are 0 for the true class."""
    rng = np.random.default_rng([classes, 51])
    p = rng.dirichlet(np.full(classes, 0.5), rows)
    y = (rng.random(rows)[:, None] > np.cumsum(p, axis=1)).sum(axis=1).clip(0, classes - 1)
    p[:3] = np.eye(classes)[(y[:3] + 1) % classes]
    return y.astype(float), p


def brier_score(y, p, weights):
    """Return scikit-learn's score; before 1.7 it has one for two classes only."""
    classes = p.shape[1]
    if classes == 2:
        return float(peers.brier_score_loss(y == 0, p[:, 0], sample_weight=weights))
    try:
        return float(peers.brier_score_loss(y, p, labels=range(classes), sample_weight=weights))
    except (TypeError, ValueError):
        squared = np.square(p - np.eye(classes)[y.astype(int)]).sum(axis=1)
        return float(np.average(squared, weights=weights))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_scores_of_probabilities(classes, weighted):
    (y, p), weights = likely(400, classes), weights_of(400, weighted)
    scores = count_of("classes", classes)
    for part in np.array_split(np.arange(400), 5):
        scores.add(y[part], p[part], p[part].argmax(axis=1), weights[part], p[part])
    found = scores.metrics(list(map(str, range(classes)))).probabilities
    expected = peers.log_loss(y, p, labels=range(classes), sample_weight=weights)
    assert found.log_loss == pytest.approx(expected, rel=1e-12)
    assert found.brier == pytest.approx(brier_score(y, p, weights), rel=1e-12)


# ---- the command --------------------------------------------------------------------------------

LABELS = np.array(["none", "red", "green", "blue", "white"])


@pytest.fixture
def classes(tmp_path):
    """A model of red, green and blue; a test file that has white and ? as well, but no green."""
    data, test = (Data(*oracle.clouds(300, seed, 4)) for seed in (0, 1))
    some = data.y < 4
    names = LABELS[data.y[some].astype(int)]
    (tmp_path / "d").write_text(oracle.svmlight_text(list(names), data.X[some]))
    names = np.where(np.arange(300) % 10 == 0, "?", LABELS[test.y.astype(int)])
    rows = names != "green"
    (tmp_path / "t").write_text(oracle.svmlight_text(list(names[rows]), test.X[rows]))
    return learn("randsvm", tmp_path / "d", tmp_path / "m", "-g", 0.1).model, tmp_path / "t"


def table(lines, first):
    """The rows of a table under its header."""
    begin = next(i for i, line in enumerate(lines) if line.startswith(first))
    rows = [line.split() for line in lines[begin + 1 :]]
    width = len(lines[begin + 1].split())
    end = next((i for i, row in enumerate(rows) if len(row) != width), len(rows))
    return rows[:end]


def test_tables_and_json_say_the_same_as_scikit_learn(classes, predict):
    model, path = classes
    predicted = predict(path, model, "--metrics")
    true = [line.split()[0] for line in path.read_text().splitlines()]
    pairs = [pair for pair in zip(true, predicted.lines, strict=True) if pair[0] != "?"]
    y, answers = map(list, zip(*pairs, strict=True))
    labels = oracle.trailer(model)["labels"]
    every = [*labels, "white"]
    matrix = peers.confusion_matrix(y, answers, labels=every)[:, :3]
    expected = peers.precision_recall_fscore_support(
        y, answers, labels=labels, zero_division=np.nan
    )
    lines = predicted.out.splitlines()
    assert lines[0].startswith("Accuracy = ")
    assert f"({np.trace(matrix)}/{len(y)}) (classification)" in lines[0]
    assert table(lines, "true \\ predicted") == [
        [label, *map(str, row)] for label, row in zip(every, matrix.tolist(), strict=True)
    ]
    rows = [
        [label, *(f"{x:.4f}" for x in row[:3]), str(row[3])]
        for label, *row in zip(labels, *expected, strict=True)
    ]
    assert table(lines, "label ")[:3] == rows
    assert "ROC AUC" not in predicted.out

    held = json.loads(predict(path, model, "--metrics", "--report", "json").out)["metrics"]
    assert held["labels"] == every
    assert held["confusion"] == matrix.tolist()
    assert held["auc"] is None
    for place, one in enumerate(held["classes"]):
        assert one["label"] == labels[place]
        numbers = [np.nan if one[of] is None else one[of] for of in ("precision", "recall", "f1")]
        assert numbers == pytest.approx([column[place] for column in expected[:3]], nan_ok=True)
    green = labels.index("green")
    assert held["classes"][green]["recall"] is None
    assert held["mean"]["recall"] == pytest.approx(np.nanmean(expected[1]))
