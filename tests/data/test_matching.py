"""Test the search for rows by content against a search with a dictionary."""

from collections import defaultdict

import numpy as np
import oracle
import pytest
from csr_rows import csr
from rows import NOT_FOUND, matches, open_rows


@pytest.mark.parametrize("seed", range(4))
def test_each_row_is_matched_at_most_once(tmp_path, seed):
    """There are many duplicates with both labels, and rows of the matrix that the data lack."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (3000, 6)).astype(float)
    y = np.where(rng.random(3000) < 0.5, 1.0, -1.0)
    Z = rng.integers(-1, 3, (900, 6)).astype(float)
    beta = rng.normal(size=900) * (rng.random(900) < 0.8)
    with open_rows(oracle.write_svmlight(tmp_path / "data", y, X)) as D:
        found = matches(D, csr(Z.astype(np.float32)), D.summary.features)
    rows, at = found.pairs(np.abs(beta), beta > 0, y[found.rows] > 0)
    assert (np.diff(rows) > 0).all() and len(set(at)) == len(at)
    assert np.array_equal(X[rows], Z[at]) and (y[rows] == np.sign(beta[at])).all()
    have = defaultdict(int)
    wanted = defaultdict(list)
    for x, label in zip(X, y, strict=True):
        have[(*x, label)] += 1
    for z, b in zip(Z, beta, strict=True):
        if b:
            wanted[(*z, np.sign(b))].append(abs(b))
    largest = [sorted(of, reverse=True)[: have[key]] for key, of in wanted.items()]
    assert sorted(np.abs(beta[at])) == sorted(b for of in largest for b in of)


def test_a_row_with_a_feature_that_the_data_lacks_is_not_matched(tmp_path):
    (tmp_path / "data").write_text("1 1:1 2:2\n-1 1:3\n")
    Z = csr(np.array([[1, 2, 5], [3, 0, 0], [1, 2, 0]], np.float32))
    with open_rows(tmp_path / "data") as D:
        found = matches(D, Z, np.array([1, 2, 7], np.int32))
    assert found.groups[0] == NOT_FOUND
    assert found.groups[[2, 1]].tolist() == found.row_groups.tolist()


def test_stored_zeros_do_not_affect_matching(tmp_path):
    (tmp_path / "data").write_text("1 1:0 2:5 3:0\n-1 1:2\n")
    Z = csr((np.array([5, 0, 0], np.float32), [1, 2, 3], [0, 3]), shape=(1, 4))
    with open_rows(tmp_path / "data") as D:
        found = matches(D, Z, np.array([1, 2, 3, 9], np.int32))
    assert found.rows.tolist() == [0] and found.groups.tolist() == found.row_groups.tolist()
