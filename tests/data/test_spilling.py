"""Test that a failed write of the spill file damages no chunk."""

from __future__ import annotations

import numpy as np
import pytest

from randsvm.data import chunks
from randsvm.data.chunks import FileStore, RawChunk, SpillingWriter
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
    writer, kept, failed = SpillingWriter(limit, None), [], []
    for number in (3, 1, 5, 0, 4, 2):
        try:
            writer.append(chunk_of(number))
        except SpillError:
            failed.append(number)
            # A chunk whose write failed may be in the file.
            kept += [None] * (len(writer.store) - len(kept))
        else:
            kept.append(number)
    try:
        writer.store.finish()
    except SpillError:
        failed.append(None)
        writer.store.finish()
    assert len(failed) == (failing < len(calls))
    for place, number in enumerate(kept):
        if number is not None:
            assert (writer.store.read(place).values == number).all()
            assert (writer.store.labels(place) == number).all()
    writer.store.close()
