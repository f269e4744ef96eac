"""Decision values of rows that are in memory; see prediction.py for those of a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from randsvm.data.chunks import RawChunk
from randsvm.data.in_memory import chunks_of, to_matrix, with_row_numbers
from randsvm.models.model import Model
from randsvm.parallel import ThreadPool

# Rows that a worker thread predicts at once.
ROWS_AT_ONCE = 1024


def decision_values(model: Model, X: Any, jobs: int, labels_only: bool = False) -> np.ndarray:
    """f of each row of X, an array, a sparse matrix or a data frame, as Model.decision has it; of
    a precomputed kernel, column j of X is the value with row j of the training.

    Raises ContentError for values that are not finite.
    """

    def decided(chunk: RawChunk) -> np.ndarray:
        rows = model.rows(chunk.indptr, chunk.indices, chunk.values)
        return model.decision(rows, labels_only)

    if model.has_row_numbers:
        X = with_row_numbers(to_matrix(X))
    chunks = list(chunks_of(X, model.zero_based, ROWS_AT_ONCE, precise=model.precise))
    if len(chunks) == 1:
        return decided(chunks[0])
    if not chunks:
        empty = RawChunk(np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int32), EMPTY)
        return decided(empty)
    with ThreadPool(jobs) as pool:
        return np.concatenate(list(pool.map_in_order(decided, chunks)))


EMPTY = np.empty(0, np.float32)
