"""Test that a failed write of the spill file damages no chunk."""

import numpy as np
import pytest
from rows import Store, chunk, fail_once, stored_values
from scipy import sparse

from randsvm.errors import SpillError

ROWS = 10


def chunk_of(number):
    rows = np.ones(ROWS, np.int32), np.arange(ROWS + 1)
    X = sparse.csr_matrix((np.full(ROWS, number, np.float32), *rows), shape=(ROWS, 2))
    return chunk(np.full(ROWS, float(number)), X)


@pytest.mark.parametrize("operation", ["write", "finish"])
@pytest.mark.parametrize("limit", [0, chunk_of(0).nbytes])
@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_a_single_failed_write_loses_no_chunk(monkeypatch, operation, limit, failing):
    calls = fail_once(monkeypatch, operation, failing)
    store, kept, failed = Store(limit, None), [], []
    for number in (3, 1, 5, 0, 4, 2):
        try:
            store.append(chunk_of(number))
        except SpillError:
            failed.append(number)
        else:
            kept.append(number)
    try:
        store.finish()
    except SpillError:
        failed.append(None)
        store.finish()
    assert len(failed) == (failing < len(calls))
    for place, number in enumerate(kept):
        assert (stored_values(store, place) == number).all()
        assert (store.chunks[place].y == number).all()
    store.close()
