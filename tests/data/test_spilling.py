"""Test that a failed write of the spill file damages no chunk."""

from __future__ import annotations

import numpy as np
import pytest

from randsvm.data import chunks
from randsvm.data.chunks import ComputedStore, FileStore, RawChunk
from randsvm.errors import SpillError

ROWS = 10


def chunk_of(number):
    values = np.full(ROWS, number, np.float32)
    indptr, indices = np.arange(ROWS + 1), np.ones(ROWS, np.int32)
    return RawChunk(np.full(ROWS, float(number)), indptr, indices, values)


@pytest.mark.parametrize("operation", ["append", "finish"])
@pytest.mark.parametrize("limit", [0, chunk_of(0).nbytes])
@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_a_single_failed_write_loses_no_chunk(monkeypatch, operation, limit, failing):
    calls, real = [], getattr(FileStore, operation)

    def fails_once(store, *words):
        calls.append(words)
        real(store, *words)
        if len(calls) == failing + 1:
            raise store.write_error("writing the spill file: No space left on device")

    monkeypatch.setattr(chunks.FileStore, operation, fails_once)
    sizes = np.full(6, ROWS)
    store = ComputedStore(chunk_of, sizes, sizes, limit, None, "memory")
    failed = []
    for number in (3, 1, 5, 0, 4, 2, 1, 3):
        try:
            assert (store.read(number).values == number).all()
        except SpillError:
            failed.append(number)
    assert len(failed) == 1
    for number in range(6):
        assert (store.read(number).values == number).all()
        assert (store.labels(number) == number).all()
    store.close()
