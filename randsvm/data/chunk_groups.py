"""Chunks dealt out like cards, in groups that are worked at side by side.

In which group a chunk is follows from the rows alone. Knows nothing of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import Shard


class Group(NamedTuple):
    """chunks: their numbers; rows: how many there are in all of them; leader: a shard among them
    that lives where the group is worked at."""

    chunks: Sequence[int]
    rows: int
    leader: Shard


def chunk_groups(D: Dataset, count: int) -> list[Group]:
    """Groups of chunks from all over D, so that a file sorted by class does no harm; those without
    rows are left out."""
    groups = []
    for number in range(count):
        chunks = range(number, len(D.shards), count)
        rows = sum(D.shards[chunk].stop - D.shards[chunk].start for chunk in chunks)
        # Neighbours live together: leaders from all over D are as evenly spread as chunks are.
        middle = (number + 0.5) * len(D.shards) / count
        leader = min(chunks, key=lambda chunk: abs(chunk - middle))
        groups.append(Group(chunks, rows, D.shards[leader]))
    return [group for group in groups if group.rows]
