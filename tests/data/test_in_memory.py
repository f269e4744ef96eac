"""Test that rows in memory train like a file of the same rows, without needless copies."""

import tracemalloc

import numpy as np
import oracle
import pytest
from rows import matrix_of, open_rows, parts_of, stored_values, summary_of
from scipy import sparse

import randsvm
from randsvm import Arrays
from randsvm.errors import ContentError

SMALL = {"chunk_rows": 7, "chunk_nonzeros": 20}


def rows(n=50, d=6, share=1.0):
    """Return values that float32 represents exactly; about `share` of them are not 0."""
    rng = np.random.default_rng(5)
    return rng.integers(1, 9, (n, d)) / 4.0 * (rng.random((n, d)) < share)


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("labels", ["class", "number"])
def test_arrays_have_the_chunks_counts_and_digest_of_the_file_of_the_same_rows(
    tmp_path, share, labels
):
    X, y = rows(share=share), np.array([3, -1, 3, 12, -1] * 10)
    seen = []
    for source in (oracle.write_rows(tmp_path / "d", y, X), Arrays(X, y)):
        with open_rows(source, labels=labels, **SMALL) as D:
            parts = [(part.start, part.X.tolist(), part.y.tolist()) for part in parts_of(D)]
            seen.append((summary_of(D), parts, D.labels().tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.coo_array, list])
def test_every_type_of_matrix_gives_the_same_rows(kind):
    X = rows(share=0.3)
    given = X.tolist() if kind is list else kind(X)
    with open_rows(Arrays(given, np.arange(50) % 2)) as D:
        assert (matrix_of(D) == X).all()


def test_rows_are_not_copied():
    dense, csr = rows(), sparse.csr_matrix(rows(share=0.3))
    for given, values in ((dense, dense), (csr, csr.data)):
        with open_rows(Arrays(given, np.arange(50) % 2), **SMALL) as D:
            assert np.shares_memory(stored_values(D.store, 3), values)


def test_columns_beyond_those_of_files_are_refused_and_wide_matrices_are_read():
    model = randsvm.train(Arrays(np.array([[0.0], [1.0]]), [0, 1]), task="svc")

    def of(column):
        return sparse.csr_matrix(([1.0, 1.0], ([1, 1], [0, column])), shape=(2, 2**32 + 1))

    for column in (2**31 - 1, 2**32):
        problem = rf"X\[1, {column}\]: expected a column of at most 2147483646"
        with pytest.raises(ContentError, match=problem):
            model.predict(of(column))
        with pytest.raises(ContentError, match=problem), open_rows(Arrays(of(column), [0, 1])):
            pass
    found = model.decision_function(of(2**31 - 2))
    expected = model.decision_function(sparse.csr_matrix([[0.0, 0.0], [1.0, 1.0]]))
    assert found.tolist() == expected.tolist()
    tracemalloc.start()
    with open_rows(Arrays(of(2**31 - 2), [0, 1])) as D:
        assert summary_of(D)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26


def test_the_given_arrays_are_not_modified():
    """This includes matrices with unsorted or duplicate columns."""
    parts = np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])
    X = sparse.csr_matrix(parts, shape=(1, 3))
    with open_rows(Arrays(X, [1.0]), labels="number") as D:
        assert matrix_of(D).tolist() == [[2.0, 5.0]]
    assert X.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        ([2.0, 1.0, 2.0], ("2", "1")),
        (["spam", "ham", "spam"], ("spam", "ham")),
        (["7", "5", "7"], ("7", "5")),
        (np.array([True, False, True]), ("1", "0")),
    ],
)
def test_labels_have_the_spelling_and_order_of_a_file(y, labels):
    with open_rows(Arrays(rows(3), y)) as D:
        found = D.summary
        assert (found.labels, found.counts) == (labels, (2, 1))
        assert D.labels().tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[1.0, np.nan]], [1], r"X\[0, 1\]: expected a finite value .* found NaN"),
        ([[1.0], [1e39]], [1, 2], r"X\[1, 0\]: expected a finite value within float32"),
        (sparse.csr_matrix([[0, 0], [0, np.inf]]), [1, 2], r"X\[1, 1\]: .* found infinity"),
        ([1.0, 2.0], [1, 2], "X: expected two dimensions, rows and features, found 1"),
        (np.array([[1j], [2]]), [1, 2], "X: expected real numbers, found the type complex128"),
        (np.zeros((2, 1), "M8[s]"), [1, 2], r"X: expected real numbers, .* datetime64\[s\]"),
        (np.empty((0, 2)), [], "X: expected a row, found none"),
        ([[1.0], [2.0]], [1], "y: expected 2, one for each row of X, found 1"),
        ([[1.0], [2.0]], None, "y: expected a label or target for each row, found None"),
        ([[1.0], [2.0]], [1.5, 2], "y: .*expected a whole number as the class"),
        ([[1.0], [2.0]], ["1", "1.0"], "y: expected different labels"),
    ],
)
def test_values_that_no_file_can_hold_are_refused_with_their_place(X, y, message):
    with pytest.raises(ContentError, match=message) as caught, open_rows(Arrays(X, y)):
        pass
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("task", ["svr", "nu-svr"])
def test_targets_are_within_float32(task):
    """Squares of larger ones are beyond float64, where numpy warns."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X[:, 0] / np.abs(X[:, 0]).max()
    options = {"task": task, "gamma": 0.5, "probability": True}
    near = randsvm.train(randsvm.Arrays(X, 3e38 * y), epsilon=1e37, **options)
    assert np.isfinite(near.predict(X)).all()
    with pytest.raises(ContentError, match="y: expected targets within float32"):
        randsvm.train(randsvm.Arrays(X, 3.5e38 * y), **options)
