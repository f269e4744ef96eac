"""Test sparse rows against scipy, and Philox against numpy."""

import pickle

import numpy as np
import pytest
from base import CsrMatrix, column_sums, median, philox_words, sorted_union, to_csr
from csr_rows import csr
from scipy import sparse

DTYPES = [np.float32, np.float64]


def scipy_rows(m, d, density, dtype, seed=0):
    random = np.random.default_rng(seed)
    return sparse.random(m, d, density, "csr", dtype, rng=random)


def same(found, expected):
    """Return whether both store the same values in the same places."""
    expected = expected.tocsr()
    expected.sort_indices()
    pairs = (
        (found.data, expected.data),
        (found.indices, expected.indices),
        (found.indptr, expected.indptr),
    )
    is_equal = all(np.array_equal(*pair) for pair in pairs)
    return is_equal and found.shape == expected.shape and found.dtype == expected.dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "d", "density"), [(40, 30, 0.2), (7, 5, 1.0), (6, 9, 0.0), (0, 4, 1)]
)
def test_rows_are_those_of_scipy(m, d, density, dtype):
    X = scipy_rows(m, d, density, dtype)
    ours = CsrMatrix.from_scipy(X)
    random = np.random.default_rng(1)
    chosen = random.integers(0, m, 2 * m) if m else np.empty(0, np.int64)
    mask = random.random(m) < 0.4
    assert same(ours, X) and same(CsrMatrix.from_dense(X.toarray()), X)
    assert same(ours[chosen], X[chosen]) and same(ours[mask], X[mask])
    for part in (slice(2, 5), slice(3, None), slice(None, None, 3), slice(None, None, -1)):
        assert same(ours[part], X[part])
    assert same(CsrMatrix.vstack([ours, ours[chosen], ours]), sparse.vstack([X, X[chosen], X]))
    assert np.array_equal(ours.toarray(), X.toarray())
    assert same(pickle.loads(pickle.dumps(ours)), X)
    assert same(ours.astype(np.float64), X.astype(np.float64))
    numbers = np.array([d - 1, 0, d - 1])
    assert np.array_equal(ours.columns(numbers), X[:, numbers].toarray())
    by_columns = sparse.csc_matrix(X)
    expected = (by_columns.indptr, by_columns.indices, by_columns.data)
    assert all(np.array_equal(*pair) for pair in zip(ours.by_columns(), expected, strict=True))
    assert (ours.to_scipy() != X).nnz == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
@pytest.mark.parametrize("columns", [(), (1,), (3,), (0,)])
def test_products_are_those_of_scipy(dtype, other, columns):
    X = scipy_rows(50, 20, 0.3, dtype)
    random = np.random.default_rng(2)
    W = random.normal(size=(20, *columns)).astype(other)
    found, expected = CsrMatrix.from_scipy(X) @ W, X @ W
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found == pytest.approx(expected, rel=100 * float(np.finfo(found.dtype).eps), abs=1e-6)
    V = random.normal(size=(50, *columns)).astype(other)
    transposed = CsrMatrix.from_scipy(X).column_products(V)
    assert transposed.dtype == np.float64
    assert transposed == pytest.approx(X.T.astype(np.float64) @ V.astype(np.float64), abs=1e-13)


def test_rows_of_other_orders_are_sorted_and_their_duplicates_added():
    X = sparse.coo_matrix(([1.0, 2.0, 4.0, 8.0], ([1, 0, 1, 1], [2, 1, 0, 2])), (3, 3))
    rows = csr(X)
    assert rows.indices.tolist() == [1, 0, 2] and rows.data.tolist() == [2, 4, 9]
    unsorted = sparse.csr_matrix((np.array([1.0, 2.0, 4.0]), [2, 0, 2], [0, 3]), shape=(1, 3))
    rows = CsrMatrix.from_scipy(unsorted)
    assert rows.indices.tolist() == [0, 2] and rows.data.tolist() == [2, 5]
    assert unsorted.indices.tolist() == [2, 0, 2]


def test_sums_of_columns_do_not_depend_on_the_kind_of_rows():
    X = scipy_rows(30, 6, 0.5, np.float32).toarray()
    expected = X.astype(np.float64).sum(axis=0)
    assert column_sums(X) == pytest.approx(expected, abs=1e-12)
    assert column_sums(to_csr(X)) == pytest.approx(expected, abs=1e-12)


def test_a_slice_shares_memory_and_chosen_rows_do_not():
    X = CsrMatrix.from_scipy(scipy_rows(20, 10, 0.5, np.float32))
    assert np.shares_memory(X[3:7].data, X.data)
    assert not np.shares_memory(X[np.arange(3, 7)].data, X.data)
    assert not np.shares_memory(X.astype(np.float32).data, X.data)


@pytest.mark.parametrize("first", [0, 1, 3, 4, 37])
@pytest.mark.parametrize("count", [0, 1, 6, 101])
@pytest.mark.parametrize(
    "counter", [(0, 0, 0, 0), (2**64 - 2, 0, 7, 1), (2**64 - 1, 2**64 - 1, 2**64 - 1, 5)]
)
def test_words_are_those_of_numpys_philox(first, count, counter):
    for key in ((0, 0), (1, 2), (2**64 - 1, 20071206)):
        arrays = np.array(key, np.uint64), np.array(counter, np.uint64)
        bits = np.random.Philox(key=arrays[0], counter=arrays[1])
        words = philox_words(key, counter, first, count)
        assert np.array_equal(words, bits.random_raw(first + count)[first:])


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (5, 0), (1, 1), (40, 70)])
def test_a_sorted_union_is_that_of_numpy(sizes):
    rng = np.random.default_rng(sum(sizes))
    for low in (-20, 0, 10**12):
        a, b = (rng.integers(low, low + 50, size) for size in sizes)
        found = sorted_union(a, b)
        assert np.array_equal(found, np.union1d(a, b))
        assert found.dtype == np.int64


@pytest.mark.parametrize("size", [1, 2, 3, 40, 71])
def test_a_median_is_that_of_numpy(size):
    numbers = np.random.default_rng(size).normal(size=size)
    assert median(numbers) == np.median(numbers)
