"""Rows of D in random order, batch by batch, for stochastic gradient steps.

This module does not know the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from randsvm.arrays import Matrix, slices, to_csr
from randsvm.data.dataset import MAPPED_VALUES, Dataset, FeatureMap, RowRange
from randsvm.data.sampling import Draw, Permuter
from randsvm.data.shard_executor import Shard
from randsvm.records import record

# A batch fits the processor's cache. Its pieces, ranges of rows, come from all over D, so that
# the classes of a sorted file are mixed.
PIECE_ROWS = 256
PIECE_NONZEROS = 1 << 14
MIN_PIECES = 1024
BATCH_ROWS = 1 << 16
BATCH_NONZEROS = 1 << 20


@record
class Batch:
    """Rows, and the order of learning.

    X : (m, d), CSR, or an array of computed features; y : (m,) float64, class indices or targets;
    order : (steps,) int32; weights : (m,) float64, the weight of each step on a row, or None if
    rows have none.
    """

    X: Matrix
    y: np.ndarray
    order: np.ndarray
    weights: np.ndarray | None = None


def split_by_weight(
    rows: np.ndarray, weights: np.ndarray, unit: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all steps, and the weight of one step on each row, (m,).

    A row makes as many steps as its weight has units, rounded up, so that no step is much longer
    than the mean. rows : (steps,) positions in weights. unit : about the mean weight, so that there
    are at most twice as many steps as rows.
    """
    counts = np.ceil(weights / unit)
    return np.repeat(rows, counts[rows].astype(np.int64)), weights / counts


def shuffled_batches(
    D: Dataset, draw: Draw, chunks: Sequence[int] | None = None
) -> Iterator[Batch]:
    """Yield every row of D once, in random order, batch by batch.

    Another thread reads one batch ahead. chunks: the numbers of those to read; None: all.
    """
    random = Permuter(draw)
    numbers = list(range(len(D.shards)) if chunks is None else chunks)
    rows = np.diff(D.stored_starts)[numbers].tolist()
    nonzeros = [D.store.chunks[number].nonzeros for number in numbers]
    count = math.ceil(max(sum(rows) / BATCH_ROWS, sum(nonzeros) / BATCH_NONZEROS))
    pieces = list[RowRange]()
    for number, m, nnz in zip(numbers, rows, nonzeros, strict=True):
        # With a single batch whole chunks do, since `_batch` permutes its rows. Several batches mix
        # ranges of rows, which are shorter in a smaller file, so that there are always many.
        few = min(PIECE_ROWS, m * PIECE_NONZEROS // max(nnz, 1), sum(rows) // MIN_PIECES)
        size = max(1, m if count == 1 else few)
        pieces += [(number, at.start, at.stop) for at in slices(m, size)]
    groups = np.array_split(random.permutation(len(pieces)), count)
    batches = (_batch(D, [pieces[i] for i in group], random) for group in groups)
    if D.mapping is not None:
        yield from _mapped(D, batches, D.mapping)
        return
    if count == 1:
        # There is nothing to read ahead, and for 100 rows a hand-over takes as long as an epoch.
        yield from batches
        return
    yield from D.pool.read_ahead(batches)


def _batch(D: Dataset, pieces: Sequence[RowRange], random: Permuter) -> Batch:
    X, y, weights, rows = D.read_ranges(pieces)
    if weights is not None:
        rows, weights = split_by_weight(rows, weights, D.summary.total_weight / D.summary.n)
    order = rows[random.permutation(len(rows))].astype(np.int32)
    return Batch(X, y, order, weights)


def _mapped(D: Dataset, batches: Iterator[Batch], mapping: FeatureMap) -> Iterator[Batch]:
    """Yield the same rows with the features of `mapping`, computed ahead by all workers, few rows a
    batch."""
    few = max(1, MAPPED_VALUES // mapping.width)

    def parts() -> Iterator[tuple[Batch, np.ndarray]]:
        for batch in batches:
            for at in slices(len(batch.order), few):
                yield batch, batch.order[at]

    def mapped(part: tuple[Batch, np.ndarray]) -> Batch:
        batch, rows = part
        values = mapping.values(to_csr(batch.X[rows]))
        weights = None if batch.weights is None else batch.weights[rows]
        return Batch(values, batch.y[rows], np.arange(len(rows), dtype=np.int32), weights)

    return D.pool.map_in_order(mapped, parts(), D.threads)


def chunk_groups(D: Dataset, count: int) -> dict[Shard, list[Shard]]:
    """Deal the chunks to `count` groups; return the shards of each group with rows, by its leader.

    A group is processed on the worker of its leader. It has chunks from all over D, so that a file
    sorted by class does no harm.
    """
    groups = {}
    for number in range(count):
        shards = D.shards[number::count]
        # A worker has neighbouring shards: leaders from all over D spread groups over the workers.
        middle = (number + 0.5) * len(D.shards) / count
        leader = min(shards, key=lambda shard: abs(shard.number - middle))
        if any(shard.stop > shard.start for shard in shards):
            groups[leader] = shards
    return groups
