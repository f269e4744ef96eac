"""Test that the weights of rows follow the rows through stores, chunks, views and points."""

import bz2
import gzip
import lzma
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import open_rows, parts_of, summary_of
from scipy import sparse

from randsvm import Arrays
from randsvm.errors import ContentError, DataError

# ---- from files and arrays ---------------------------------------------------------------------

SMALL = {"chunk_rows": 4, "chunk_nonzeros": 9}
OPENERS = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@st.composite
def rows(draw):
    """Generate labels, features and weights; the first row of each class has a weight."""
    m = draw(st.integers(2, 30))
    labels = ["a", "b", *draw(st.lists(st.sampled_from(["a", "b"]), min_size=m, max_size=m))]
    features = [
        [(i, draw(st.integers(1, 9)) / 4) for i in sorted(draw(st.sets(st.integers(1, 6))))]
        for _ in labels
    ]
    some = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0, 0.1, 1e-30, 1e30]))
    weights = [1.0, 0.5, *(draw(some) for _ in labels[2:])]
    return labels, features, weights


def text_of(labels, features, weights):
    return "".join(
        " ".join([
            label,
            *([] if weight is None else [f"cost:{weight!r}"]),
            *(f"{index}:{value!r}" for index, value in row),
        ]) + "\n"
        for label, row, weight in zip(labels, features, weights, strict=True)
    )  # fmt: skip


def seen_in(D):
    """Return the rows, labels and weights of a data set, by three ways that must agree."""
    _, X, y, own = zip(*parts_of(D), strict=True)
    weights, points = D.weights(), D.points(np.arange(D.n))
    np.testing.assert_array_equal(weights, points.weights)
    if weights is None:
        assert set(own) == {None}
    else:
        assert weights.tolist() == np.concatenate(own).tolist()
        assert D.total_weight() == pytest.approx(weights.sum())
    X, y = np.concatenate(X).tolist(), np.concatenate(y).tolist()
    return X, y, None if weights is None else weights.tolist()


@given(rows(), st.sampled_from(list(OPENERS)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_weights_do_not_depend_on_where_rows_are_kept(tmp_path_factory, content, suffix, dense):
    labels, features, weights = content
    folder = tmp_path_factory.mktemp("weights")
    path = folder / f"a.svm{suffix}"
    with OPENERS[suffix](path, "wt") as stream:
        stream.write(text_of(labels, features, weights))
    numbers = [1.0 if weight is None else weight for weight in weights]
    kept = [i for i, weight in enumerate(numbers) if weight]
    occurring = sorted({index for i in kept for index, _ in features[i]})
    expected = (
        [[dict(features[i]).get(index, 0.0) for index in occurring] for i in kept],
        [float(labels[i] == "b") for i in kept],
        [numbers[i] for i in kept] if any(numbers[i] != 1 for i in kept) else None,
    )
    found = []
    for way in ({"jobs": 1}, {"jobs": 3}, {"memory": 0}, *[{"cache": folder / "cache"}] * 2):
        with open_rows(path, **SMALL, **way) as D:
            assert seen_in(D) == expected
            found.append(summary_of(D))
    X = np.zeros((len(labels), 7))
    for row, pairs in enumerate(features):
        X[row, [index - 1 for index, _ in pairs]] = [value for _, value in pairs]
    matrix = sparse.csr_matrix(X)
    arrays = Arrays(X if dense else matrix, labels, weights=numbers)
    by_class = [sum(numbers[i] for i in kept if labels[i] == label) for label in "ab"]
    with open_rows(arrays, **SMALL) as D:
        assert D.summary.total_weight_by_class == pytest.approx(by_class)
        assert D.summary.total_weight == pytest.approx(sum(by_class))
        rows = X[np.ix_(kept, D.summary.features - 1)].tolist()
        assert seen_in(D) == (rows, *expected[1:])
        if not dense and (X != 0).sum() < 0.5 * X.size:
            found.append(summary_of(D))
    assert all(other == found[0] for other in found[1:])
    assert found[0]["zero_weights"] == len(labels) - len(kept)


@pytest.fixture
def weighted(tmp_path):
    """Return D with 30 rows, weights 0.5, 1, 1.5, ... and y = -1 or +1."""
    text = "".join(f"{'ab'[i % 2]} cost:{(i + 1) / 2} 1:{i + 1} 2:1\n" for i in range(30))
    (tmp_path / "d").write_text(text)
    with open_rows(tmp_path / "d", **SMALL) as D:
        yield D.relabel(np.array([-1.0, 1.0]))


def test_every_view_has_the_weights_of_its_rows(weighted):
    def check(view, unit):
        rows, _, weights = seen_in(view)
        assert weights == [row[0] * unit for row in rows]
        assert view.points(np.array([9, 3])).weights.tolist() == [weights[3], weights[9]]

    mask = np.arange(30) % 3 != 0
    other = weighted.reweighted(np.arange(1, 31) / 8)  # in place of those of the rows
    part, other_part = weighted.subset(mask), other.subset(mask)
    spilled = part.regrouped(0, None)
    for view in (weighted, part, part.subset(np.arange(20) > 4), part.copied_to_memory(),
                 spilled, weighted.single_threaded()):  # fmt: skip
        check(view, 0.5)
    spilled.store.close()
    for view in (other, other_part, other_part.subset(np.arange(20) > 4)):
        check(view, 0.125)
    assert part.subset(np.zeros(20, bool)).points(np.empty(0, int)).weights.tolist() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a cost:0 1:1\nb cost:0 1:1\n", "1:1: expected a row with a weight above 0, found the "
         "weight 0 in all 2"),
        ("a 1:1\n#\n b cost:0 1:1\na 1:2\nb cost:0\n", "3:2: expected a weight above 0 in a row of "
         "label b, found only 0"),
        ("a 1:1\nb 1:1\na 1:2\nb cost:-2\n", "4:3: expected cost:weight from 0 to 3.4e38, found "
         "'cost:-2'"),
    ],
)  # fmt: skip
def test_bad_weights_are_refused_with_their_place(tmp_path, text, message):
    path = tmp_path / "d"
    path.write_text(text)
    with pytest.raises(DataError) as caught, open_rows(path):
        pass
    assert str(caught.value) == f"{path}:{message}"
    assert caught.value.exit_code == 65


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1, 2], r"weights\[1\]: expected a weight from 0 to 3.4e38, found -1"),
        ([1, 2, np.nan], r"weights\[2\]: expected a weight from 0 to 3.4e38, found nan"),
        ([np.inf, 2, 1], r"weights\[0\]: expected a weight from 0 to 3.4e38, found inf"),
        ([0, 0, 0], "weights: expected one above 0, found the weight 0 in all 3"),
        ([1, 1], "weights: expected 3, one for each row of X, found 2"),
        ([[1], [1], [1]], r"weights: expected 3, .* found an array of shape \(3, 1\)"),
        (["a", "b", "c"], "weights: expected numbers, found others"),
        ([1, 0, 1], "weights: expected one above 0 in a row of label b, found only 0"),
    ],
)
def test_bad_weights_of_arrays_are_refused(weights, message):
    arrays = Arrays([[1.0], [2], [3]], ["a", "b", "a"], weights=weights)
    with pytest.raises(ContentError, match=message), open_rows(arrays):
        pass


@pytest.mark.parametrize("labels", ["class", "number"])
def test_sums_of_many_weights_lose_few_units(labels):
    """The bounds of a certificate count the roundings of a sum of weights."""
    n, weights = 20_000, [0.1, 0.3, 1e-9]
    y, own = np.arange(n) % 2, np.array(weights)[np.arange(n) % 3]
    of_class = [sum(map(Fraction, own[y == k].tolist())) for k in range(2)]
    with open_rows(Arrays(np.ones((n, 1)), y, weights=own), labels=labels, chunk_rows=20) as D:
        sums = [D.total_weight(), D.summary.total_weight, *D.summary.total_weight_by_class]
    expected = [sum(of_class)] * 2 + of_class * (labels == "class")
    for found, exact in zip(sums, expected, strict=True):
        assert abs(Fraction(found) / exact - 1) <= 2 * 2.0**-53
