"""Test that the weights of rows follow the rows through stores, chunks, views and points."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from randsvm.data.chunks import (
    ComputedStore,
    FileStore,
    InMemoryStore,
    RawChunk,
    Store,
    SubsetStore,
    join_chunks,
)
from randsvm.data.points import Points, RowCache
from randsvm.data.reading import WeightSums, chunk_digest


def chunk_of(m: int, seed: int, *, weighted: bool) -> RawChunk:
    """Return random rows, of which some are empty. Labels are 0 and 1."""
    rng = np.random.default_rng(seed)
    X = sparse.random(m, 7, 0.4, "csr", np.float32, rng)
    weights = rng.integers(1, 9, m) / 4 if weighted else None
    y = rng.integers(0, 2, m).astype(float)
    return RawChunk(y, X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, weights)


def equal(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def stores_of(chunks: list[RawChunk], stream: io.BufferedRandom) -> list[Store]:
    """Return stores of each kind with these chunks."""
    memory, file = InMemoryStore(), FileStore(stream, "a file")
    for chunk in chunks:
        memory.append(chunk)
        file.append(chunk)
    file.finish()
    sizes = np.array([len(chunk.y) for chunk in chunks])
    counts = np.array([len(chunk.values) for chunk in chunks])
    computed = [
        ComputedStore(chunks.__getitem__, sizes, counts, limit, None, "memory") for limit in (0, 99)
    ]
    return [SubsetStore(memory, range(len(chunks))), memory, *computed, file]


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_every_store_returns_the_weights_that_it_was_given(tmp_path_factory, sizes, seed):
    chunks = [chunk_of(m, seed + i, weighted=of) for i, (m, of) in enumerate(sizes)]
    path = tmp_path_factory.mktemp("store") / "chunks"
    with path.open("w+b") as stream:
        stores = stores_of(chunks, stream)
        file = stores[-1]
        assert isinstance(file, FileStore) and all(map(file.intact, range(len(chunks))))
        for store in stores:
            for _ in range(2):
                for number, chunk in enumerate(chunks):
                    m = len(chunk.y)
                    read, part = store.read(number), store.part(number, m // 3, m)
                    for found, expected in ((read, chunk), (part, chunk.part(m // 3, m))):
                        for name in ("y", "indptr", "indices", "values", "weights"):
                            assert equal(getattr(found, name), getattr(expected, name)), name
                    assert equal(store.weights(number), chunk.weights)
                    assert store.labels(number).tolist() == chunk.y.tolist()
            store.close()


def test_chunks_without_weights_are_stored_and_hashed_as_before():
    plain, ones = chunk_of(5, 1, weighted=False), chunk_of(5, 1, weighted=False)
    ones = RawChunk(ones.y, ones.indptr, ones.indices, ones.values, np.ones(5))
    other = RawChunk(ones.y, ones.indptr, ones.indices, ones.values, np.full(5, 2.0))
    assert chunk_digest(plain) == chunk_digest(ones) != chunk_digest(other)
    assert other.nbytes == plain.nbytes + 40
    assert plain[np.array([3, 1])].weights is None
    assert plain.part(1, 3).weights is None
    assert join_chunks([plain, plain]).weights is None


def test_joined_chunks_without_weights_have_the_weight_1():
    plain, weighted = chunk_of(3, 1, weighted=False), chunk_of(4, 2, weighted=True)
    whole = join_chunks([plain, weighted, plain])
    assert whole.weights is not None and weighted.weights is not None
    assert whole.weights.tolist() == [1, 1, 1, *weighted.weights.tolist(), 1, 1, 1]
    chosen = np.array([8, 4, 0])
    assert whole[chosen].weights.tolist() == whole.weights[chosen].tolist()


def test_sums_of_weights_are_those_of_the_rows_of_each_class():
    sums = WeightSums()
    chunks = [chunk_of(9, 1, weighted=False), chunk_of(9, 2, weighted=True)]
    for chunk in chunks:
        sums.add(chunk, classes=True)
    whole = join_chunks(chunks)
    expected = [whole.weights[whole.y == label].sum() for label in (0, 1)]
    assert sums.fields() == {
        "weighted": True,
        "weight_sum": pytest.approx(sum(expected)),
        "class_weight_sums": pytest.approx(expected),
    }
    plain = WeightSums()
    plain.add(chunks[0], classes=True)
    assert plain.fields() == {}


def points_of(rows: np.ndarray, weights: np.ndarray | None) -> Points:
    m = len(rows)
    X = sparse.csr_matrix(np.arange(1.0, m + 1, dtype=np.float32)[:, None])
    return Points(rows, X, rows.astype(float), weights=weights)


@pytest.mark.parametrize("order", [(False, True), (True, False), (True, True), (False, False)])
def test_a_row_cache_keeps_weights_of_rows_added_before_and_after(order):
    cache = RowCache(1)
    all_rows = np.arange(20)
    weights = np.ones(20)
    for turn, weighted in enumerate(order):
        rows = all_rows[turn::2]
        if weighted:
            weights[rows] = rows + 0.5
        cache.add(points_of(rows, weights[rows] if weighted else None))
    found = cache.points(all_rows[::-1])
    expected = weights[::-1] if any(order) else None
    assert equal(found.weights, expected)
    subset = cache.subset(np.array([3, 4])).points(np.array([3, 4]))
    assert equal(subset.weights, weights[3:5] if any(order) else None)
    assert equal(found[np.array([1, 2])].weights, None if expected is None else expected[1:3])


def test_concatenated_points_keep_their_weights():
    one, other = points_of(np.arange(2), None), points_of(np.arange(2, 4), np.array([2.0, 3.0]))
    whole = Points.concatenate([one, other])
    assert whole.weights is not None
    assert whole.weights.tolist() == [1, 1, 2, 3]
    assert Points.concatenate([one, one]).weights is None
