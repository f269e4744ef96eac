"""Test that the weights of rows follow the rows through stores, chunks, views and points."""

from __future__ import annotations

import bz2
import gzip
import lzma
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from randsvm.data import dataset, in_memory
from randsvm.data.chunks import (
    RawChunk,
    join_chunks,
)
from randsvm.data.dataset import ParseOptions
from randsvm.data.in_memory import Arrays
from randsvm.data.reading import Totals
from randsvm.errors import ContentError, DataError
from randsvm.parameters.run import Resources


def chunk_of(m, seed, *, weighted):
    """Return random rows, of which some are empty. Labels are 0 and 1."""
    rng = np.random.default_rng(seed)
    X = sparse.random(m, 7, 0.4, "csr", np.float32, rng)
    weights = rng.integers(1, 9, m) / 4 if weighted else None
    y = rng.integers(0, 2, m).astype(float)
    return RawChunk(y, X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, weights)


def equal(one, other):
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def test_sums_of_weights_are_those_of_the_rows_of_each_class():
    sums = Totals()
    chunks = [chunk_of(9, 1, weighted=False), chunk_of(9, 2, weighted=True)]
    for chunk in chunks:
        sums.add(chunk, classes=True)
    whole = join_chunks(chunks)
    expected = [whole.weights[whole.y == label].sum() for label in (0, 1)]
    found = sums.fields(["a", "b"])
    assert {name: found[name] for name in ("n", "weighted", "weight_sum", "class_weight_sums")} == {
        "n": 18,
        "weighted": True,
        "weight_sum": pytest.approx(sum(expected)),
        "class_weight_sums": pytest.approx(expected),
    }
    plain = Totals()
    plain.add(chunks[0], classes=True)
    assert "weighted" not in plain.fields(["a", "b"])


def test_one_chunk_of_float64_values_makes_a_data_set_of_them():
    totals, chunk = Totals(), chunk_of(9, 1, weighted=False)
    totals.add(chunk, classes=True)
    assert not totals.fields([])["float64"]
    totals.add(replace(chunk, values=chunk.values.astype(np.float64)), classes=True)
    totals.add(chunk, classes=True)
    assert totals.fields([])["float64"]


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
    # A chunk of a file is valid until the next is read.
    parts = [
        (chunk.X.toarray(), chunk.y, chunk.weights)
        for shard in D.shards
        for chunk in D.chunks(shard)
    ]
    weights, points = D.weights(), D.points(np.arange(D.n))
    X, y = np.vstack([X for X, _, _ in parts]), np.concatenate([y for _, y, _ in parts])
    assert equal(weights, points.weights)
    if weights is None:
        assert all(of is None for _, _, of in parts)
    else:
        assert weights.tolist() == np.concatenate([of for _, _, of in parts]).tolist()
        assert D.total_weight() == weights.sum()
    return X.tolist(), y.tolist(), None if weights is None else weights.tolist()


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
    options, found = ParseOptions(**SMALL), []
    spilling = replace(Resources(jobs=1), tmpdir=str(folder))
    object.__setattr__(spilling, "memory", 0)
    cache = str(folder / "cache")
    ways = [Resources(jobs=1), Resources(jobs=3), spilling, *[Resources(cache=cache)] * 2]
    for resources in ways:
        with closing(dataset.load(str(path), options, resources)) as D:
            assert seen_in(D) == expected
            found.append(D.summary)
    X = np.zeros((len(labels), 7))
    for row, pairs in enumerate(features):
        X[row, [index - 1 for index, _ in pairs]] = [value for _, value in pairs]
    matrix = sparse.csr_matrix(X)
    arrays = Arrays(X if dense else matrix, labels, weights=numbers)
    summary, _ = in_memory.read(arrays, options)
    if not dense and (X != 0).sum() < 0.5 * X.size:
        found.append(summary)
    assert summary.class_weight_sums == found[0].class_weight_sums
    for other in found[1:]:
        assert {**vars(other), "features": 0} == {**vars(found[0]), "features": 0}
        assert other.features.tolist() == found[0].features.tolist()
    by_class = [sum(numbers[i] for i in kept if labels[i] == label) for label in "ab"]
    assert found[0].total_weight_by_class == pytest.approx(by_class)
    assert found[0].total_weight == pytest.approx(sum(by_class))
    assert found[0].zero_weights == len(labels) - len(kept)


@pytest.fixture
def weighted(tmp_path):
    """Return D with 30 rows, weights 0.5, 1, 1.5, ... and y = -1 or +1."""
    text = "".join(f"{'ab'[i % 2]} cost:{(i + 1) / 2} 1:{i + 1} 2:1\n" for i in range(30))
    (tmp_path / "d").write_text(text)
    with closing(dataset.load(str(tmp_path / "d"), ParseOptions(**SMALL), Resources())) as D:
        yield D.relabel(np.array([-1.0, 1.0]))


def test_every_view_has_the_weights_of_its_rows(weighted):
    def check(view, unit):
        rows, _, weights = seen_in(view)
        assert weights == [row[0] * unit for row in rows]

    mask = np.arange(30) % 3 != 0
    other = weighted.reweighted(np.arange(1, 31) / 8)  # in place of those of the rows
    part, other_part = weighted.subset(mask), other.subset(mask)
    spilled = part.regrouped(0, None)
    for view in (weighted, part, part.subset(np.arange(20) > 4), part.in_memory(),
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
    with pytest.raises(DataError) as caught:
        dataset.load(str(path), ParseOptions(), Resources())
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
    with pytest.raises(ContentError, match=message):
        in_memory.read(Arrays([[1.0], [2], [3]], ["a", "b", "a"], weights=weights), ParseOptions())
