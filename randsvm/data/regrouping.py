"""Copies of some rows in full chunks of their own, so that a pass over them reads no others.

This module does not know classes, kernels or trainers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from randsvm.data.chunks import RawChunk, join_chunks
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import Shard

# Rows and nonzeros after which a chunk ends.
CHUNK_ROWS = 8192
CHUNK_NONZEROS = 1 << 17


def joined_shards(m: np.ndarray, nnz: np.ndarray) -> Iterator[list[int]]:
    """Yield the numbers of consecutive shards that make one chunk together.

    m, nnz : (shards,) int64, the rows and nonzeros that are wanted from each shard; shards without
    rows are left out.
    """
    held: list[int] = []
    found = np.flatnonzero(m).tolist()
    for number in found:
        held.append(number)
        full = m[held].sum() >= CHUNK_ROWS or nnz[held].sum() >= CHUNK_NONZEROS
        if full or number == found[-1]:
            yield held
            held = []


@dataclass(frozen=True)
class JoinedShards:
    """A division of the rows of a view into chunks. shards: the shards of each chunk."""

    shards: list[list[int]]

    def made(self, D: Dataset, number: int) -> RawChunk:
        """Return a chunk from the rows of D. D is a subset, of which `raw` returns copies."""
        return join_chunks([D.raw(D.shards[i])[0] for i in self.shards[number]])


def copy_rows_to_chunks(D: Dataset, rows: np.ndarray, limit: int, folder: str | None) -> Dataset:
    """Return a view of some rows, renumbered from 0, in chunks of their own.

    rows : (m,) int64, ascending. limit, folder: see ComputedStore. The caller releases the executor
    of the view and closes its store.
    """
    view = D.subset(D.mask(rows))

    def nonzeros(shard: Shard) -> int:
        return len(view.raw(shard)[0].values)

    m = np.diff(view.starts)
    counts = np.array(list(view.map(nonzeros)), np.int64)
    plan = JoinedShards(list(joined_shards(m, counts)))
    sizes, counts = (
        np.array([of[held].sum() for held in plan.shards], np.int64) for of in (m, counts)
    )
    return view.with_computed_chunks(plan.made, sizes, counts, limit, folder)
