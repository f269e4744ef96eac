"""The messages between the client and the workers: everything that is sent, in both directions.

The client runs functions of worker.py as Dask tasks on a worker:

    function          receives                                           returns
    summarise_range   TextFile, number, bounds, weights of a byte range  RangeSummary
    chunk_ends        the same, rows and nonzeros of the open chunk      ChunkEnds
    map_lines         a function, TextFile, bounds of a byte range       function(lines)
    run_on_shards     key and DatasetSpec, MapTask or StateTask, shards  ShardReports or CacheMiss
    run_call          key and DatasetSpec, a function                    its result or CacheMiss
    cancel            key, number of a batch of tasks
    renew_lease       key
    release           key
    release_states    key of states
    handshake         (in connection.py)                                 versions, arithmetic

A key names data in the cache of a worker. A DatasetSpec is sent only if the worker answered with a
CacheMiss. Functions and tasks are pickled. A Dataset in them is pickled as a call of
worker.make_view, with what `packed_view` returns: rows are not sent. Only the rows of
ReplicatedChunks, and those that a function returns, travel. TextFile, RangeSummary and ChunkEnds
are in text_file.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from randsvm.cluster.text_file import ChunkedText
from randsvm.data.chunks import RawChunk
from randsvm.data.dataset import Dataset
from randsvm.data.reading import Summary
from randsvm.data.shard_executor import Change, Shard

# --- data sets -----------------------------------------------------------------------------

# The fields of a view that are sent; the others follow from the data set.
VIEW_FIELDS = ("targets", "scaling", "mapping", "d", "nnz")


def child_key(key: str) -> str:
    """Return a new key for data that are released with the data set `key`."""
    return f"{key}/{uuid.uuid4().hex}"


@dataclass(frozen=True)
class DatasetSpec:
    """Specification from which a worker makes a data set.

    key: key of the data set in the cache. memory: bytes of chunks to hold in memory. folder: folder
    of the spill file for the other chunks.
    """

    key: str
    source: ChunkedText | RegroupedChunks | ReplicatedChunks
    memory: int
    folder: str | None


@dataclass(frozen=True)
class RegroupedChunks:
    """Chunks made from the rows of another data set; see Dataset.with_computed_chunks.

    view: the pickled view of the data set of `parent`. make: called with the view and the number
    of a chunk. sizes, counts : (chunks,) int64, rows and nonzeros of each chunk.
    """

    parent: DatasetSpec
    view: bytes
    make: Callable[[Dataset, int], RawChunk]
    sizes: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class ReplicatedChunks:
    """All chunks of a small data set, to send to each worker. `parent` has the rows too."""

    parent: DatasetSpec
    summary: Summary
    chunks: Sequence[RawChunk]


# Dataset.row_mask as it is sent: the number of rows, and one bit for each row. None: all rows.
PackedRowMask: TypeAlias = tuple[int, np.ndarray] | None


def packed_view(D: Dataset) -> tuple[dict[str, Any], PackedRowMask]:
    """Return the fields and the packed row mask of a view, arguments of `make_view`."""
    row_mask = None if D.row_mask is None else (len(D.row_mask), np.packbits(D.row_mask))
    return {name: getattr(D, name) for name in VIEW_FIELDS}, row_mask


# --- tasks over shards ---------------------------------------------------------------------


@dataclass(frozen=True)
class MapTask:
    """A task that calls a function of each shard."""

    function: Callable[[Shard], Any]


@dataclass(frozen=True)
class StateTask:
    """A task that applies changes to the states of shards, and then calls a function of each state.

    states_key: key of the states in the cache. make: the pickled function that makes a state; None
    if the changes apply to existing states only. first: the number of changes[0] in the ChangeLog
    of the client.
    """

    states_key: str
    make: bytes | None
    first: int
    changes: list[Change[Any]]
    function: Callable[[Any], Any]


@dataclass(frozen=True)
class CacheMiss:
    """The result of a task whose data are not in the cache of the worker.

    dataset: whether the data set is missing. shards: the numbers of the shards without a usable
    state. If nothing is missing, the task was cancelled.
    """

    dataset: bool = False
    shards: tuple[int, ...] = ()


@dataclass(frozen=True)
class ShardReport:
    """The report of the consecutive shards first .. last, which have `rows` rows."""

    first: int
    last: int
    rows: int
    report: Any


@dataclass(frozen=True)
class ShardReports:
    """The result of a task over shards.

    reports: pickled list of ShardReport. began, ended: begin and end of the task, as time.time() of
    the worker.
    """

    reports: bytes
    began: float
    ended: float
