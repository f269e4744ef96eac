"""The functions that run on a worker, and the cache of a worker.

messages.py lists these functions with what they receive and return. A worker may lose its cache at
any time: a task whose data are not in the cache returns a `CacheMiss`, and the client then sends
the data with the task. This module does not call the scheduler.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock, Thread
from typing import Any

import numpy as np

from randsvm.cluster.messages import (
    CacheMiss,
    DatasetSpec,
    MapTask,
    PackedRowMask,
    ReplicatedChunks,
    ShardReport,
    ShardReports,
    StateTask,
)
from randsvm.cluster.text_file import ChunkedText, ChunkEnds, RangeSummary, TextFile, TextRange
from randsvm.data.chunks import InMemoryStore
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import SerialExecutor, Shard, StateCell
from randsvm.data.svmlight import ParsedPiece
from randsvm.events import Waiting, Watch, emit, listening, silent
from randsvm.parallel import Cancelled, ThreadPool

# A worker releases the rows of a run this many seconds after its last task or renewal, because the
# client was probably killed. If the client was only suspended, a CacheMiss brings the rows back.
LEASE_SECONDS = 180.0

# --- the cache -----------------------------------------------------------------------------


class _Cache:
    """The data of this worker.

    Keys are paths: the key of data that are made from the data set `key` begins with `key/` (see
    `child_key`).
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.datasets: dict[str, Dataset] = {}
        # (key of the states, number of the shard) -> state.
        self.cells: dict[tuple[str, int], StateCell[Any]] = {}
        # Key of the states -> function that makes one.
        self.make_state: dict[str, Callable[[Shard], Any]] = {}
        # (key of the data set, number of the range) -> lines of the range.
        self.ranges: dict[tuple[str, int], TextRange] = {}
        # (key of the data set, number of the batch) of cancelled tasks.
        self.cancelled: set[tuple[str, int]] = set()
        # The number of calls that the client runs on this worker at a time.
        self.concurrent_calls: int | None = None
        # Key of a run -> time.monotonic() of its last task or renewal, and number of its running
        # tasks.
        self.last_used: dict[str, float] = {}
        self.running: Counter[str] = Counter()
        self.release_thread: Thread | None = None

    def touch(self, key: str, tasks: int = 0) -> None:
        """Extend the lease of a run, and add `tasks` to its running tasks."""
        root = key.partition("/")[0]
        with self.lock:
            self.last_used[root] = time.monotonic()
            self.running[root] += tasks
            if self.release_thread is None:
                self.release_thread = Thread(target=_release_expired_forever, daemon=True)
                self.release_thread.start()


_cache = _Cache()


def release(key: str) -> None:
    """Release a data set and all data whose keys are below its key."""

    def matches(other: str) -> bool:
        return other == key or other.startswith(f"{key}/")

    with _cache.lock:
        released = [
            _cache.datasets.pop(cached_key)
            for cached_key in [*_cache.datasets]
            if matches(cached_key)
        ]
        for number in [number for number in _cache.ranges if matches(number[0])]:
            del _cache.ranges[number]
        for states_key in [cached_key for cached_key in _cache.make_state if matches(cached_key)]:
            del _cache.make_state[states_key]
        for cell in [cell for cell in _cache.cells if matches(cell[0])]:
            del _cache.cells[cell]
        _cache.cancelled = {entry for entry in _cache.cancelled if not matches(entry[0])}
        for table in (_cache.last_used, _cache.running):
            table.pop(key, None)
    for D in released:
        D.store.close()


def release_states(states_key: str) -> None:
    """Release all states with this key."""
    with _cache.lock:
        _cache.make_state.pop(states_key, None)
        for key in [key for key in _cache.cells if key[0] == states_key]:
            del _cache.cells[key]


def renew_lease(key: str) -> None:
    """Extend the lease of a run; Dask calls this even if tasks keep all threads of this worker."""
    if key in _cache.last_used:
        _cache.touch(key)


def release_expired() -> None:
    """Release the data of all runs whose lease has expired."""
    latest = time.monotonic() - LEASE_SECONDS
    with _cache.lock:
        times = _cache.last_used.items()
        expired = [key for key, at in times if at < latest and not _cache.running[key]]
    for key in expired:
        release(key)


def _release_expired_forever() -> None:
    while True:
        time.sleep(min(LEASE_SECONDS / 6, 10.0))
        release_expired()


@contextmanager
def _leased(key: str) -> Iterator[None]:
    """Keep the lease of a run while one of its tasks runs."""
    _cache.touch(key, 1)
    try:
        yield
    finally:
        _cache.touch(key, -1)


@cache
def _pool(threads: int) -> ThreadPool:
    return ThreadPool(threads)


# --- data sets and their views -------------------------------------------------------------


def ensure_dataset(key: str, spec: bytes | None) -> bool:
    """Add a data set to the cache if its pickled DatasetSpec was sent.

    Return whether the cache has the data set.
    """
    with _cache.lock:
        if spec is not None:
            _add_dataset(pickle.loads(spec))
        return key in _cache.datasets


def _add_dataset(spec: DatasetSpec) -> None:
    if spec.key not in _cache.datasets:
        _cache.datasets[spec.key] = _new_dataset(spec)


def _new_dataset(spec: DatasetSpec) -> Dataset:
    """Make a data set; its parents are added to the cache first."""
    source, limit = spec.source, spec.memory
    if isinstance(source, ChunkedText):
        return Dataset(source.summary, source.store(limit, spec.folder), 1)
    _add_dataset(source.parent)
    if isinstance(source, ReplicatedChunks):
        store = InMemoryStore()
        for chunk in source.chunks:
            store.append(chunk)
        return Dataset(source.summary, store, 1)
    D: Dataset = pickle.loads(source.view)
    limit = max(0, limit - D.store.resident_bytes)
    return D.with_computed_chunks(source.make, source.sizes, source.counts, limit, spec.folder)


def make_view(
    key: str, fields: dict[str, Any], row_mask: PackedRowMask, chunks: Sequence[int] | None = None
) -> Dataset:
    """Return a view of a cached data set. The client pickles a view as a call of this function.

    chunks: the numbers of the chunks of the view; None: all.
    """
    D = _cache.datasets[key]
    if chunks is not None:
        D = D.chunk_subset(chunks)
    if row_mask is not None:
        D = D.subset(np.unpackbits(row_mask[1], count=row_mask[0]).astype(bool))
    return D._copy_with(**fields)


def make_serial_view(key: str, fields: dict[str, Any], row_mask: PackedRowMask) -> Dataset:
    """Return a view for `run_call`, which uses one thread."""
    return make_view(key, fields, row_mask)._copy_with(
        executor=SerialExecutor(_cache.concurrent_calls)
    )


# --- text ----------------------------------------------------------------------------------


def summarise_range(
    key: str, file: TextFile, number: int, begin: int, end: int, weights: np.ndarray | None
) -> RangeSummary:
    """Read a range of a file; its row ends stay in the cache for `chunk_ends`."""
    with _leased(key):
        text_range = TextRange(file, begin, end, weights)
    with _cache.lock:
        _cache.ranges[key, number] = text_range
    return text_range.summary


def chunk_ends(
    key: str,
    file: TextFile,
    number: int,
    begin: int,
    end: int,
    weights: np.ndarray | None,
    rows: int,
    nonzeros: int,
) -> ChunkEnds:
    """Return the chunks that end in a range; see TextRange.chunk_ends."""
    with _cache.lock:
        text_range = _cache.ranges.pop((key, number), None)
    with _leased(key):
        text_range = text_range or TextRange(file, begin, end, weights)
        return text_range.chunk_ends(rows, nonzeros)


def map_lines(function: bytes, file: TextFile, begin: int, end: int) -> Any:
    """Return function(lines that begin in a range of a file).

    function: pickled.
    """
    call: Callable[[ParsedPiece], Any] = pickle.loads(function)
    file.check_content()
    return call(file.piece(begin, end))


# --- cancellation --------------------------------------------------------------------------


def cancel(key: str, batch_number: int) -> None:
    """Cancel a batch of tasks; Dask calls this even if tasks keep all threads of this worker."""
    with _cache.lock:
        if key in _cache.datasets:
            _cache.cancelled.add((key, batch_number))


def _watch(key: str, batch_number: int) -> Watch:
    """Return a listener that raises Cancelled if the batch is cancelled or its rows released."""

    def watch(event: object) -> None:
        if (key, batch_number) in _cache.cancelled or key not in _cache.datasets:
            raise Cancelled

    return watch


# --- tasks over shards ---------------------------------------------------------------------


def _state_reports(
    task: StateTask, shards: Sequence[Shard], threads: int, watch: Watch
) -> CacheMiss | list[ShardReport]:
    """Run a StateTask; add up the reports of consecutive shards."""
    missing = [shard.number for shard in shards if not _has_state(task, shard)]
    if missing:
        return CacheMiss(shards=tuple(missing))

    def query(shard: Shard) -> Any:
        cell = _cache.cells[task.states_key, shard.number]
        with listening(silent):  # an exception in the middle of a change would spoil the state
            return cell.query(task.first, task.changes, task.function)

    found: list[ShardReport] = []
    for shard_report in _map_shards(query, shards, threads, watch):
        if found and found[-1].last + 1 == shard_report.first:
            last = found.pop()
            report = last.report + shard_report.report
            shard_report = ShardReport(
                last.first, shard_report.last, last.rows + shard_report.rows, report
            )
        found.append(shard_report)
    return found


def _has_state(task: StateTask, shard: Shard) -> bool:
    """Return whether the changes apply to the state of a shard; make the state if possible."""
    with _cache.lock:
        cell = _cache.cells.get((task.states_key, shard.number))
        if cell is None and task.make is not None:
            make = _cache.make_state.get(task.states_key)
            if make is None:
                make = _cache.make_state[task.states_key] = pickle.loads(task.make)
            cell = StateCell(make(shard), task.first)
            _cache.cells[task.states_key, shard.number] = cell
        return cell is not None and (task.make is not None or cell.changes_seen >= task.first)


def _map_shards(
    function: Callable[[Shard], Any], shards: Sequence[Shard], threads: int, watch: Watch
) -> Iterator[ShardReport]:
    """Yield function(shard) for each shard, in order. Before each call `watch` may raise."""

    def watched(shard: Shard) -> Any:
        with listening(watch):
            emit(Waiting())
            return function(shard)

    reports = _pool(threads).map(watched, shards)
    for shard, report in zip(shards, reports, strict=True):
        yield ShardReport(shard.number, shard.number, shard.stop - shard.start, report)


def run_on_shards(
    key: str,
    spec: bytes | None,
    task: bytes,
    batch_number: int,
    shards: Sequence[Shard],
    threads: int,
) -> CacheMiss | ShardReports:
    """Run a pickled MapTask or StateTask on some shards.

    spec: the pickled DatasetSpec, if the cache needs it. batch_number: for `cancel`. threads: the
    number of threads of this worker.
    """
    began = time.time()
    if not ensure_dataset(key, spec):
        return CacheMiss(dataset=True)
    message: MapTask | StateTask = pickle.loads(task)
    found: CacheMiss | list[ShardReport]
    try:
        with _leased(key):
            watch = _watch(key, batch_number)
            if isinstance(message, MapTask):
                found = list(_map_shards(message.function, shards, threads, watch))
            else:
                found = _state_reports(message, shards, threads, watch)
    except Cancelled:
        return CacheMiss()
    if isinstance(found, CacheMiss):
        return found
    return ShardReports(pickle.dumps(found), began, time.time())


def run_call(
    key: str, spec: bytes | None, function: bytes, batch_number: int, concurrent_calls: int
) -> CacheMiss | bytes:
    """Return the pickled result of a pickled function without arguments, which reads all rows.

    spec: the pickled DatasetSpec, if the cache needs it. batch_number: for `cancel`.
    concurrent_calls: the number of calls that the client runs on this worker at a time.
    """
    if not ensure_dataset(key, spec):
        return CacheMiss(dataset=True)
    _cache.concurrent_calls = concurrent_calls
    call: Callable[[], Any] = pickle.loads(function)
    try:
        with _leased(key), listening(_watch(key, batch_number)):
            return pickle.dumps(call())
    except Cancelled:
        return CacheMiss()
