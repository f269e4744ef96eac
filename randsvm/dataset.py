"""D: the training set as shards of chunks, parsed once, then read from RAM, a spill file or a
cache file.

Cuts depend on the rows alone, never on memory, jobs or compression. Knows no kernel and no task.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Lock, local
from typing import IO, Any, TypeVar
from zlib import crc32

import numpy as np
from scipy import sparse

from randsvm.collectors import Draw, Draws, Permuter, Smallest
from randsvm.errors import DataError, OutputError, ParameterError, TransferError
from randsvm.events import tell
from randsvm.features import Prepared, RandomMap
from randsvm.files import STANDARD, check_apart, create_output, display_name, open_input
from randsvm.kernels import Matrix, slices
from randsvm.params import Resources
from randsvm.points import Points
from randsvm.svmlight import Block, Labels, LabelTable, read_blocks

Report = TypeVar("Report")

# A chunk is what a worker holds at a time: closed when it has this many rows or nonzeros.
CHUNK_ROWS = 4096
CHUNK_NONZEROS = 1 << 20
# A shard is the unit of parallel work: small enough that two workers end together.
SHARD_CHUNKS = 2
# Rows in random order come in batches that stay in the cache: a batch is pieces of chunks from all
# over D, so that a file sorted by class is mixed as well.
PIECE_ROWS = 256
BATCH_ROWS = 8192
# Random features are computed for so many values at a time: they stay in the L3 cache.
MAPPED_VALUES = 1 << 21
# Rows of a class that the first random subset holds at least, so that LIBSVM sees both.
CLASS_ROWS = 10

CACHE_MAGIC = b"randsvm cache 3\n"


@dataclass(frozen=True)
class RawChunk:
    """Consecutive rows as parsed: y (m,) float64 (class numbers, or target values), indptr
    (m+1,) int64, indices (nnz,) int32 as written in the file, values (nnz,) float32."""

    y: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.y.nbytes + self.indptr.nbytes + self.indices.nbytes + self.values.nbytes


@dataclass(frozen=True)
class Chunk:
    """Rows start .. start + m - 1 of D. y : (m,) float64, X : (m, d) float32, CSR, or an array
    where they are random features."""

    start: int
    X: Matrix
    y: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        return np.arange(self.start, self.start + len(self.y))


@dataclass(frozen=True)
class Batch:
    """Rows for stochastic gradient steps, in CSR and in the order in which they are learnt.

    starts (m + 1,), columns (nnz,), classes (m,), order (steps,) int32; values (nnz,) float32;
    targets (m,) float64. columns are empty where every row has every column.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    classes: np.ndarray
    targets: np.ndarray
    order: np.ndarray

    @staticmethod
    def of(
        starts: np.ndarray,
        columns: np.ndarray,
        values: np.ndarray,
        y: np.ndarray,
        order: np.ndarray,
    ) -> Batch:
        """y : (m,) float64, class numbers or targets: who learns knows which."""
        with np.errstate(invalid="ignore"):  # a target may be beyond int32
            classes = y.astype(np.int32)
        return Batch(starts.astype(np.int32), columns, values, classes, y, order)


@dataclass(frozen=True)
class Shard:
    """Consecutive chunks of D: numbers first .. last - 1, rows start .. stop - 1."""

    number: int
    first: int
    last: int
    start: int
    stop: int

    def within(self, rows: np.ndarray) -> slice:
        """The part of a sorted array of row numbers that lies in this shard."""
        return slice(*np.searchsorted(rows, (self.start, self.stop)))


# --- where chunks live ---------------------------------------------------------------------


class RamStore:
    """Chunks as arrays in memory."""

    def __init__(self) -> None:
        self.chunks: list[RawChunk] = []
        self.nbytes = 0

    def append(self, chunk: RawChunk) -> None:
        self.chunks.append(chunk)
        self.nbytes += chunk.nbytes

    def read(self, number: int) -> RawChunk:
        return self.chunks[number]

    def part(self, number: int, begin: int, end: int) -> RawChunk:
        chunk = self.chunks[number]
        first, last = chunk.indptr[begin], chunk.indptr[end]
        return RawChunk(
            chunk.y[begin:end],
            chunk.indptr[begin : end + 1] - first,
            chunk.indices[first:last],
            chunk.values[first:last],
        )

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self.chunks.clear()


class FileStore:
    """Chunks one after the other in a file, read with pread into buffers that each thread reuses.

    A chunk read is valid until its thread reads the next. Mapped pages would count as resident
    memory. table : (chunks, 5) int64: offset, rows, nonzeros, stored indices, crc32.
    """

    # A chunk whose rows all have the same indices (dense data) stores them once.

    def __init__(self, stream: IO[bytes], name: str, table: np.ndarray | None = None) -> None:
        self.stream = stream
        self.name = name
        self.entries: list[tuple[int, int, int, int, int]] = (
            [] if table is None else [tuple(row) for row in table.tolist()]
        )
        self.buffers = local()

    def append(self, chunk: RawChunk) -> None:
        m, nnz = len(chunk.y), len(chunk.values)
        indices = chunk.indices
        width = nnz // m
        if nnz == m * width and width and (indices.reshape(m, width) == indices[:width]).all():
            indices = indices[:width]
        offset, crc = self.stream.tell(), 0
        try:
            for array in (chunk.y, chunk.indptr, indices, chunk.values):
                data = np.ascontiguousarray(array).data
                crc = crc32(data, crc)
                self.stream.write(data)
            self.stream.write(bytes(-self.stream.tell() % 8))
        except OSError as error:
            raise TransferError(f"writing {self.name}: {error.strerror}") from error
        self.entries.append((offset, m, nnz, len(indices), crc))

    def read(self, number: int) -> RawChunk:
        _, m, nnz, stored, _ = self.entries[number]
        buffer = self._bytes(number)
        y = np.frombuffer(buffer, np.float64, m)
        indptr = np.frombuffer(buffer, np.int64, m + 1, 8 * m)
        indices = np.frombuffer(buffer, np.int32, stored, 16 * m + 8)
        values = np.frombuffer(buffer, np.float32, nnz, 16 * m + 8 + 4 * stored)
        return RawChunk(y, indptr, indices if stored == nnz else np.tile(indices, m), values)

    def part(self, number: int, begin: int, end: int) -> RawChunk:
        """Rows begin .. end - 1 of a chunk, in memory of their own."""
        offset, m, nnz, stored, _ = self.entries[number]
        y = self._array(np.float64, end - begin, offset + 8 * begin)
        indptr = self._array(np.int64, end - begin + 1, offset + 8 * (m + begin))
        first, count = int(indptr[0]), int(indptr[-1] - indptr[0])
        at = offset + 16 * m + 8
        if stored == nnz:
            indices = self._array(np.int32, count, at + 4 * first)
        else:
            indices = np.tile(self._array(np.int32, stored, at), end - begin)
        values = self._array(np.float32, count, at + 4 * (stored + first))
        return RawChunk(y, indptr - first, indices, values)

    def _array(self, dtype: type, count: int, offset: int) -> np.ndarray:
        array: np.ndarray = np.empty(count, dtype)
        self._fill(array.view(np.uint8).data, offset)
        return array

    def intact(self, number: int) -> bool:
        """Whether a chunk is what was written."""
        return crc32(self._bytes(number)) == self.entries[number][4]

    def _bytes(self, number: int) -> memoryview:
        """A chunk as it lies in the file, in this thread's buffer."""
        offset, m, nnz, stored, _ = self.entries[number]
        size = 8 * m + 8 * (m + 1) + 4 * stored + 4 * nnz
        buffer = getattr(self.buffers, "bytes", None)
        if buffer is None or len(buffer) < size:
            buffer = self.buffers.bytes = bytearray(size)
        view = memoryview(buffer)[:size]
        self._fill(view, offset)
        return view

    def _fill(self, view: memoryview, offset: int) -> None:
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self.stream.fileno(), [view[done:]], offset + done)
            except OSError as error:
                raise TransferError(f"reading {self.name}: {error.strerror}") from error
            if count == 0:
                raise TransferError(f"reading {self.name}: it became shorter while in use")
            done += count

    def finish(self) -> None:
        """All chunks are in: what is still on its way to the file goes there."""
        try:
            self.stream.flush()
        except OSError as error:
            raise TransferError(f"writing {self.name}: {error.strerror}") from error

    def close(self) -> None:
        self.stream.close()


class SpillStore:
    """RAM while the chunks fit `limit` bytes, then a file in `folder` that has no name."""

    def __init__(self, limit: int, folder: str | None) -> None:
        self.limit = limit
        self.folder = folder
        self.inner: RamStore | FileStore = RamStore()

    def append(self, chunk: RawChunk) -> None:
        self.inner.append(chunk)
        if isinstance(self.inner, RamStore) and self.inner.nbytes > self.limit:
            self.inner = self._spilled(self.inner)

    def _spilled(self, ram: RamStore) -> FileStore:
        try:
            stream = tempfile.TemporaryFile(dir=self.folder, buffering=1 << 20)  # noqa: SIM115
        except OSError as error:
            where = self.folder or tempfile.gettempdir()
            raise OutputError(f"cannot create a spill file in {where}: {error.strerror}") from error
        store = FileStore(stream, "the spill file")
        for chunk in ram.chunks:
            store.append(chunk)
        return store

    def read(self, number: int) -> RawChunk:
        return self.inner.read(number)

    def part(self, number: int, begin: int, end: int) -> RawChunk:
        return self.inner.part(number, begin, end)

    def finish(self) -> None:
        self.inner.finish()

    def close(self) -> None:
        self.inner.close()


Store = RamStore | FileStore | SpillStore


# --- the first pass ------------------------------------------------------------------------


class ChunkCutter:
    """Joins parsed blocks and cuts them into chunks, at places that depend on the rows alone."""

    def __init__(self, chunk_rows: int, chunk_nonzeros: int) -> None:
        self.chunk_rows = chunk_rows
        self.chunk_nonzeros = chunk_nonzeros
        self.parts: list[RawChunk] = []
        self.rows = self.nonzeros = 0

    def add(self, y: np.ndarray, block: Block) -> Iterator[RawChunk]:
        """Take in a block's rows with labels y; yield the chunks that are full."""
        at, m = 0, len(y)
        while at < m:
            # The chunk closes with the row that reaches either bound.
            enough = block.indptr[at] + self.chunk_nonzeros - self.nonzeros
            by_nonzeros = int(np.searchsorted(block.indptr[at + 1 :], enough)) + at + 1
            to = min(m, at + self.chunk_rows - self.rows, by_nonzeros)
            begin, end = block.indptr[at], block.indptr[to]
            self.parts.append(
                RawChunk(
                    y[at:to],
                    block.indptr[at : to + 1] - begin,
                    block.indices[begin:end],
                    block.values[begin:end],
                )
            )
            self.rows += to - at
            self.nonzeros += int(end - begin)
            if self.rows >= self.chunk_rows or self.nonzeros >= self.chunk_nonzeros:
                yield self.cut()
            at = to

    def cut(self) -> RawChunk:
        """The rows held now as one chunk (copied: a block's memory is let go)."""
        chunk = _joined(self.parts)
        self.parts.clear()
        self.rows = self.nonzeros = 0
        return chunk


def _joined(parts: Sequence[RawChunk]) -> RawChunk:
    lengths = np.concatenate([np.diff(p.indptr) for p in parts])
    return RawChunk(
        np.concatenate([p.y for p in parts]),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.concatenate([p.indices for p in parts]),
        np.concatenate([p.values for p in parts]),
    )


class Digest:
    """sha256 over labels, row lengths, indices and values in file order, however chunks are cut."""

    def __init__(self) -> None:
        self.hashes = [hashlib.sha256() for _ in range(4)]

    def add(self, chunk: RawChunk) -> None:
        lengths = np.diff(chunk.indptr)
        for digest, array in zip(
            self.hashes, (chunk.y, lengths, chunk.indices, chunk.values), strict=True
        ):
            digest.update(array.data)

    def hexdigest(self, names: Sequence[str]) -> str:
        whole = hashlib.sha256(json.dumps(list(names)).encode())
        for digest in self.hashes:
            whole.update(digest.digest())
        return whole.hexdigest()


@dataclass(frozen=True)
class Header:
    """What the first pass learns of the data, besides the chunks.

    features : (d,) int32, the distinct indices, sorted, as written in the file.
    names, values, counts: labels as first spelled, in order of appearance (classification), what
    they stand for, and how many rows have them. queries: rows with a qid:.
    """

    n: int
    nnz: int
    features: np.ndarray
    names: tuple[str, ...]
    values: tuple[int | str, ...]
    counts: tuple[int, ...]
    queries: int
    digest: str


@dataclass(frozen=True)
class Reading:
    """The options that change what is parsed, and how D is cut. `labels`: class or number."""

    labels: Labels = "class"
    zero_based: bool = False
    chunk_rows: int = CHUNK_ROWS
    chunk_nonzeros: int = CHUNK_NONZEROS


def _first_pass(path: str, reading: Reading, store: Store, jobs: int) -> tuple[Header, np.ndarray]:
    """Parse and validate everything once into `store`; returns the header and the rows of each
    chunk, (chunks,) int64."""
    table, digest = LabelTable(path), Digest()
    cutter = ChunkCutter(reading.chunk_rows, reading.chunk_nonzeros)
    features = np.empty(0, np.int32)
    sizes: list[int] = []
    counts = np.zeros(0, np.int64)
    nnz = queries = 0

    def keep(chunk: RawChunk) -> None:
        digest.add(chunk)
        store.append(chunk)
        sizes.append(len(chunk.y))

    blocks = read_blocks(
        path, labels=reading.labels, zero_based=reading.zero_based, jobs=jobs, watch=tell
    )
    for block in blocks:
        if reading.labels == "class":
            y = table.classes(block)
            more = np.bincount(y.astype(np.int64), minlength=len(table))
            counts = more + np.pad(counts, (0, len(table) - len(counts)))
        else:
            y = block.y
        if not np.array_equal(features, block.features):
            features = np.union1d(features, block.features)
        nnz += len(block.values)
        queries += block.queries
        for chunk in cutter.add(y, block):
            keep(chunk)
    if cutter.rows:
        keep(cutter.cut())
    if not sizes:
        raise DataError(display_name(path), 1, 1, "expected a row, found an empty file")
    header = Header(
        sum(sizes),
        nnz,
        features.astype(np.int32),
        tuple(table.names),
        tuple(table.values),
        tuple(counts.tolist()),
        queries,
        digest.hexdigest(table.names),
    )
    return header, np.array(sizes, np.int64)


# --- the cache file ------------------------------------------------------------------------


def _source_identity(path: str, reading: Reading) -> dict[str, Any]:
    """What must be unchanged for a cache to stand for `path`: size, time, both ends, options."""
    source = Path(path)
    status = source.stat()
    with source.open("rb") as stream:
        head = stream.read(1 << 16)
        stream.seek(max(0, status.st_size - (1 << 16)))
        ends = hashlib.sha256(head + stream.read(1 << 16)).hexdigest()
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ends": ends,
        "reading": vars(reading),
    }


def _write_cache(path: str, reading: Reading, cache: str, jobs: int) -> None:
    """Parse `path` into the cache file, whole or not at all.

    Layout: magic, chunks, features, chunk sizes and table, a JSON footer with its own sha256,
    the footer's place.
    """
    identity = _source_identity(path, reading)
    with create_output(cache) as stream:
        stream.write(CACHE_MAGIC)
        store = FileStore(stream, cache)
        header, _ = _first_pass(path, reading, store, jobs)
        arrays = header.features.tobytes() + np.array(store.entries, np.int64).tobytes()
        footer = {
            "source": identity,
            "header": {**vars(header), "features": len(header.features)},
            "chunks": len(store.entries),
        }
        text = json.dumps(footer).encode()
        stream.write(arrays + text)
        stream.write(hashlib.sha256(arrays + text).digest())
        stream.write(len(arrays).to_bytes(8, "little") + len(text).to_bytes(8, "little"))


def _open_cache(
    path: str, reading: Reading, cache: str, jobs: int
) -> tuple[Header, np.ndarray, FileStore] | None:
    """The content of a cache that stands for `path` as it is now; None: missing, stale, damaged."""
    try:
        stream = Path(cache).open("rb")  # noqa: SIM115 - the store keeps it open
    except OSError:
        return None
    with ExitStack() as stack:
        stack.enter_context(stream)
        ends = len(CACHE_MAGIC) + 48
        size = os.fstat(stream.fileno()).st_size
        if size < ends or stream.read(len(CACHE_MAGIC)) != CACHE_MAGIC:
            return None
        stream.seek(size - 48)
        tail = stream.read(48)
        lengths = int.from_bytes(tail[32:40], "little"), int.from_bytes(tail[40:], "little")
        if sum(lengths) > size - ends:
            return None
        stream.seek(size - 48 - sum(lengths))
        arrays, text = stream.read(lengths[0]), stream.read(lengths[1])
        if hashlib.sha256(arrays + text).digest() != tail[:32]:
            return None
        footer = json.loads(text)
        if footer["source"] != json.loads(json.dumps(_source_identity(path, reading))):
            return None
        d = footer["header"]["features"]
        features = np.frombuffer(arrays, np.int32, d).copy()
        table = np.frombuffer(arrays[4 * d :], np.int64).reshape(footer["chunks"], 5)
        store = FileStore(stream, cache, table)
        with ThreadPoolExecutor(jobs) as pool:
            if not all(pool.map(store.intact, range(len(table)))):
                return None
        named = {k: tuple(footer["header"][k]) for k in ("names", "values", "counts")}
        header = Header(**{**footer["header"], **named, "features": features})
        stack.pop_all()
        return header, table[:, 1].copy(), store


# --- D -------------------------------------------------------------------------------------


@dataclass
class _Traffic:
    """Bytes of chunks read so far, over all threads and views."""

    bytes: int = 0
    lock: Lock = field(default_factory=Lock)

    def add(self, count: int) -> None:
        with self.lock:
            self.bytes += count


class Dataset:
    """D as an algorithm sees it: shards, random rows, and `map` over the shards.

    n, d, nnz: rows, distinct features, nonzeros. targets : (classes,) float64 or None: what a
    class number stands for in y (see `relabel`); None leaves y as stored. chosen : (rows stored,)
    bool or None: the rows that the view has (see `only`); None: all. mapping: the random features
    that take the place of its own (see `mapped`).
    """

    def __init__(self, header: Header, sizes: np.ndarray, store: Store, jobs: int) -> None:
        self.header = header
        self.n, self.nnz, self.d = header.n, header.nnz, len(header.features)
        self.store = store
        self.jobs = jobs
        self.pool = ThreadPoolExecutor(jobs, thread_name_prefix="randsvm")
        # Where chunks begin among the rows stored, and among the rows of this view.
        self.stored = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        self._count_from(self.stored)
        self.traffic = _Traffic()
        self.targets: np.ndarray | None = None
        self.chosen: np.ndarray | None = None
        self.mapping: Prepared | None = None
        # Running decision values; made and owned by scan.py, one per view of D.
        self.running: Any = None

    def relabel(self, targets: np.ndarray) -> Dataset:
        """A view whose y is targets[class]; shares the data, not the running values."""
        view = object.__new__(Dataset)
        view.__dict__ = {**self.__dict__, "targets": np.asarray(targets, float), "running": None}
        return view

    def only(self, rows: np.ndarray) -> Dataset:
        """A view with some of this view's rows, (m,) int64 ascending, numbered anew from 0."""
        stored = rows if self.chosen is None else np.flatnonzero(self.chosen)[rows]
        chosen = np.zeros(self.stored[-1], bool)
        chosen[stored] = True
        view = object.__new__(Dataset)
        nnz = round(self.nnz * len(rows) / self.n)
        own = {"chosen": chosen, "running": None, "n": len(rows), "nnz": nnz}
        view.__dict__ = {**self.__dict__, **own}
        view._count_from(np.searchsorted(stored, self.stored))
        return view

    def mapped(self, mapping: RandomMap) -> Dataset:
        """A view whose rows are random features of the rows, computed whenever they are read."""
        prepared = mapping.over(self.header.features)
        view = object.__new__(Dataset)
        own = {"mapping": prepared, "running": None, "d": prepared.width}
        view.__dict__ = {**self.__dict__, **own, "nnz": self.n * prepared.width}
        return view

    def _count_from(self, starts: np.ndarray) -> None:
        """Cut rows into shards. starts : (chunks + 1,) int64, each chunk's first row."""
        self.starts, chunks = starts, len(starts) - 1
        self.shards = [
            Shard(number, first, last, int(starts[first]), int(starts[last]))
            for number, first in enumerate(range(0, chunks, SHARD_CHUNKS))
            for last in [min(first + SHARD_CHUNKS, chunks)]
        ]

    @property
    def bytes_read(self) -> int:
        return self.traffic.bytes

    @cached_property
    def _columns(self) -> np.ndarray | int:
        """How an index becomes a column: an offset, or a table by index."""
        features = self.header.features
        d = len(features)
        if d == 0 or features[-1] - features[0] == d - 1:
            return int(features[0]) if d else 0
        if features[-1] < max(1 << 16, 64 * d):
            table = np.zeros(int(features[-1]) + 1, np.int32)
            table[features] = np.arange(d, dtype=np.int32)
            return table
        return -1

    def columns(self, indices: np.ndarray) -> np.ndarray:
        """Columns of known indices. indices : (nnz,) int32; returns (nnz,) int32."""
        how = self._columns
        if isinstance(how, np.ndarray):
            return how[indices]
        if how < 0:
            return np.searchsorted(self.header.features, indices).astype(np.int32)
        return indices - np.int32(how)

    def chunk(self, number: int) -> Chunk:
        """Chunk `number`, without `mapping`; for a file store valid until this thread asks for the
        next."""
        raw = self.store.read(number)
        self.traffic.add(raw.nbytes)
        X, y = self._matrix(raw), self._labels(raw.y)
        if self.chosen is not None:
            mine = np.flatnonzero(self.chosen[self.stored[number] : self.stored[number + 1]])
            X, y = X[mine], y[mine]
        return Chunk(int(self.starts[number]), X, y)

    def shuffled(self, draw: Draw) -> Iterator[Batch]:
        """Every row once, in random order, batch by batch; y must be class numbers.

        Reads one batch ahead in another thread.
        """
        random = draw.stream()
        sizes = np.diff(self.stored)
        pieces = [
            (number, begin)
            for number in range(len(sizes))
            for begin in range(0, sizes[number], PIECE_ROWS)
        ]
        order = iter(random.permutation(len(pieces)))
        batches = iter(partial(self._batch, pieces, order, random), None)
        if self.mapping is not None:
            yield from self._mapped(batches, self.mapping)
            return
        ahead = self.pool.submit(next, batches, None)
        while (batch := ahead.result()) is not None:
            ahead = self.pool.submit(next, batches, None)
            yield batch

    def _mapped(self, batches: Iterator[Batch], mapping: Prepared) -> Iterator[Batch]:
        """The same steps on random features, few rows at a time, computed ahead by all workers."""
        width, d = mapping.width, len(self.header.features)

        def mapped(batch: Batch, X: sparse.csr_matrix, rows: np.ndarray) -> Batch:
            m = len(rows)
            return Batch(
                np.arange(m + 1, dtype=np.int32) * np.int32(width),
                np.empty(0, np.int32),
                mapping.values(X[rows]).ravel(),
                batch.classes[rows],
                batch.targets[rows],
                np.arange(m, dtype=np.int32),
            )

        waiting: deque[Future[Batch]] = deque()
        for batch in batches:
            shape = (len(batch.starts) - 1, d)
            X = sparse.csr_matrix((batch.values, batch.columns, batch.starts), shape=shape)
            for at in slices(len(batch.order), max(1, MAPPED_VALUES // width)):
                waiting.append(self.pool.submit(mapped, batch, X, batch.order[at]))
                if len(waiting) > self.jobs:
                    yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _batch(
        self, pieces: list[tuple[int, int]], order: Iterator[int], random: Permuter
    ) -> Batch | None:
        """The next pieces, until they are BATCH_ROWS or as many nonzeros as a chunk may have."""
        parts, chosen, rows, nonzeros = [], [], 0, 0
        while rows < BATCH_ROWS and nonzeros < CHUNK_NONZEROS:
            place = next(order, None)
            if place is None:
                break
            number, begin = pieces[place]
            first, beyond = self.stored[number], self.stored[number + 1]
            end = min(begin + PIECE_ROWS, int(beyond - first))
            part = self.store.part(number, begin, end)
            mine = slice(first + begin, first + end)
            some = np.arange(end - begin) if self.chosen is None else self.chosen[mine].nonzero()[0]
            chosen.append(some + rows)
            parts.append(part)
            rows += len(part.y)
            nonzeros += len(part.values)
        if not parts:
            return None
        raw = _joined(parts)
        self.traffic.add(raw.nbytes)
        steps = np.concatenate(chosen)
        return Batch.of(
            raw.indptr,
            self.columns(raw.indices),
            raw.values,
            self._labels(raw.y),
            steps[random.permutation(len(steps))].astype(np.int32),
        )

    def _matrix(self, raw: RawChunk) -> sparse.csr_matrix:
        X = sparse.csr_matrix((len(raw.y), len(self.header.features)), dtype=np.float32)
        # Set directly: the constructor would check every index of every chunk on every pass.
        X.data, X.indices = raw.values, self.columns(raw.indices)
        X.indptr = raw.indptr.astype(np.int32) if len(raw.values) < 2**31 else raw.indptr
        X.has_sorted_indices = X.has_canonical_format = True
        return X

    def _labels(self, y: np.ndarray) -> np.ndarray:
        return y.copy() if self.targets is None else self.targets[y.astype(np.int64)]

    def chunks(self, shard: Shard) -> Iterator[Chunk]:
        """The rows of a shard in order; of random features few at a time."""
        for number in range(shard.first, shard.last):
            chunk = self.chunk(number)
            if self.mapping is None:
                yield chunk
                continue
            for at in slices(len(chunk.y), max(1, MAPPED_VALUES // self.mapping.width)):
                values = self.mapping.values(chunk.X[at])
                yield Chunk(chunk.start + at.start, values, chunk.y[at])

    def _features(self, X: sparse.csr_matrix) -> sparse.csr_matrix:
        """X in this view's features: random ones, if it has a `mapping`."""
        if self.mapping is None:
            return X
        values = self.mapping.values(X)
        m, width = values.shape
        columns = np.tile(np.arange(width, dtype=np.int32), m)
        starts = np.arange(m + 1, dtype=np.int64) * width
        return sparse.csr_matrix((values.ravel(), columns, starts), shape=(m, width))

    def map(self, work: Callable[[Shard], Report]) -> Iterator[Report]:
        """work(shard) for every shard on the pool; reports come in the order of the shards."""
        futures = [self.pool.submit(work, shard) for shard in self.shards]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def points(self, rows: np.ndarray) -> Points:
        """The rows asked for, (m,) int64 in any order, as Points in ascending order."""
        rows = np.sort(rows)

        def gather(shard: Shard) -> list[Points]:
            mine = rows[shard.within(rows)]
            found = []
            for number in range(shard.first, shard.last):
                begin, end = self.starts[number], self.starts[number + 1]
                wanted = mine[slice(*np.searchsorted(mine, (begin, end)))]
                if len(wanted):
                    chunk = self.chunk(number)
                    local_rows = wanted - begin
                    X = self._features(chunk.X[local_rows])
                    found.append(Points(wanted, X, chunk.y[local_rows]))
            return found

        parts = [part for report in self.map(gather) for part in report]
        if not parts:
            empty = sparse.csr_matrix((0, self.d), dtype=np.float32)
            return Points(rows, empty, np.empty(0))
        return Points.concatenate(parts)

    def sample(self, draw: Draw, m: int) -> np.ndarray:
        """Row numbers of a uniform sample of m rows, ascending; (min(m, n),) int64."""

        def smallest(shard: Shard) -> Smallest:
            rows = np.arange(shard.start, shard.stop)
            return Smallest.of(m, rows, draw.keys(shard.start, shard.stop))

        return np.sort(sum(self.map(smallest), Smallest(m)).rows)

    def sample_of_each_class(self, draw: Draw, m: int) -> np.ndarray:
        """Row numbers of the m rows of smallest key in each distinct y; ascending."""

        def smallest(shard: Shard) -> dict[float, Smallest]:
            keys = draw.keys(shard.start, shard.stop)
            numbers = range(shard.first, shard.last)
            y = np.concatenate([self.chunk(number).y for number in numbers])
            found = {}
            for label in np.unique(y):
                local_rows = np.flatnonzero(y == label)
                found[label] = Smallest.of(m, local_rows + shard.start, keys[local_rows])
            return found

        merged: dict[float, Smallest] = {}
        for report in self.map(smallest):
            for label, kept in report.items():
                merged[label] = merged[label] + kept if label in merged else kept
        return np.sort(np.concatenate([kept.rows for kept in merged.values()]))

    def close(self) -> None:
        """Threads of a scan that was broken off end with their chunk; nobody waits for them."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.store.close()


def random_subset(D: Dataset, r: int, rng: Draws) -> Points:
    """S: r rows drawn uniformly; rows of rare classes are added (at least min(10, size) each)."""
    if D.n <= r:
        return D.points(np.arange(D.n))
    draw = rng.next()
    rows = D.sample(draw, r)
    if D.targets is not None:
        rows = np.union1d(rows, D.sample_of_each_class(draw, CLASS_ROWS))
    return D.points(rows)


def load(path: str, reading: Reading, resources: Resources) -> Dataset:
    """Parse `path` (or open its cache) and return D.

    Raises DataError for bad text (with file:line:column), InputError, TransferError, OutputError.
    """
    jobs = resources.workers
    store: Store
    if resources.cache is not None:
        header, sizes, store = _load_through_cache(path, reading, resources.cache, jobs)
    else:
        store = SpillStore(resources.data_bytes, resources.tmpdir)
        try:
            header, sizes = _first_pass(path, reading, store, jobs)
            store.finish()
        except BaseException:
            store.close()
            raise
    return Dataset(header, sizes, store, jobs)


def _load_through_cache(
    path: str, reading: Reading, cache: str, jobs: int
) -> tuple[Header, np.ndarray, FileStore]:
    if path == STANDARD:
        raise ParameterError("--cache needs a named file: standard input cannot be checked")
    if Path(path).is_fifo() or Path(path).is_char_device():
        raise ParameterError(f"--cache needs a regular file: {path} cannot be checked")
    check_apart({"--cache": cache}, {"TRAIN_FILE": path})
    with open_input(path):
        pass  # a file that cannot be opened is known before its cache is
    found = _open_cache(path, reading, cache, jobs)
    if found is None:
        _write_cache(path, reading, cache, jobs)
        found = _open_cache(path, reading, cache, jobs)
    if found is None:
        raise TransferError(f"{path} changed while it was read into {cache}")
    return found


def two_classes(D: Dataset, path: str) -> Dataset:
    """The view of D with y = +1 for LIBSVM's first label, -1 for the other.

    LIBSVM's first label is +1 for {-1, +1}, else the first in the file. Raises DataError when
    there are not two classes.
    """
    values, names = D.header.values, D.header.names
    if len(values) != 2:
        found = f"only the label {names[0]}" if len(values) == 1 else f"{len(values)} classes"
        raise DataError(display_name(path), 1, 1, f"expected two classes, found {found}")
    first = 1 if tuple(values) == (-1, 1) else 0
    return D.relabel(np.where(np.arange(2) == first, 1.0, -1.0))


def labelled_classes(D: Dataset, path: str) -> tuple[Dataset, list[int]]:
    """The view of D with y = place of the label in the model, and the places' class numbers.

    Of two labels LIBSVM's first comes first (see `two_classes`), of more the first in the file.
    """
    if len(D.header.values) <= 2:
        order = order_of_classes(two_classes(D, path))
    else:
        order = list(range(len(D.header.values)))
    return D.relabel(np.argsort(order).astype(float)), order


def one_class(D: Dataset) -> Dataset:
    """The view of D whose labels say nothing: y = 0."""
    return D.relabel(np.zeros(len(D.header.values)))


def order_of_classes(D: Dataset) -> list[int]:
    """The class numbers of a view of `two_classes`, that of y = +1 first."""
    assert D.targets is not None
    first = int(np.argmax(D.targets))
    return [first, 1 - first]


__all__ = ["Chunk", "Dataset", "Reading", "Shard", "load", "random_subset", "two_classes"]
