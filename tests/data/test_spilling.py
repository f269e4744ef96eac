"""Test that a failed write of the spill file damages no chunk."""

from __future__ import annotations

import numpy as np
import pytest
from rows import chunk, fail_once, spilling_writer
from scipy import sparse

from randsvm.errors import SpillError

ROWS = 10


def chunk_of(number):
    rows = np.ones(ROWS, np.int32), np.arange(ROWS + 1)
    X = sparse.csr_matrix((np.full(ROWS, number, np.float32), *rows), shape=(ROWS, 2))
    return chunk(np.full(ROWS, float(number)), X)


@pytest.mark.parametrize("operation", ["append", "finish"])
@pytest.mark.parametrize("limit", [0, chunk_of(0).nbytes])
@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_a_single_failed_write_loses_no_chunk(monkeypatch, operation, limit, failing):
    calls = fail_once(monkeypatch, operation, failing)
    writer, kept, failed = spilling_writer(limit), [], []
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
