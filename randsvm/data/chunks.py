"""Parsed rows as chunks: read once from text, then from RAM, a spill file or a cache file.

Cuts depend on the rows alone, never on memory, jobs or compression. Knows nothing of what a row
stands for.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import IO, Any
from zlib import crc32

import numpy as np

from randsvm.data.svmlight import Block, Labels, LabelTable, read_blocks
from randsvm.errors import DataError, InputError, OutputError, ParameterError, TransferError
from randsvm.events import tell
from randsvm.files import STANDARD, check_apart, create_output, display_name, open_input
from randsvm.parameters.run import Resources

# A chunk is what a worker holds at a time: closed when it has this many rows or nonzeros.
CHUNK_ROWS = 8192
CHUNK_NONZEROS = 1 << 20

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


# --- where chunks live ---------------------------------------------------------------------


class RamStore:
    """Chunks as arrays in memory."""

    place = "memory"

    def __init__(self) -> None:
        self.chunks: list[RawChunk] = []
        self.nbytes = 0

    def append(self, chunk: RawChunk) -> None:
        self.chunks.append(chunk)
        self.nbytes += chunk.nbytes

    def read(self, number: int) -> RawChunk:
        return self.chunks[number]

    def nonzeros(self, number: int) -> int:
        return len(self.chunks[number].values)

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
    memory. place: what kind of file it is. table : (chunks, 5) int64: offset, rows, nonzeros,
    stored indices, crc32.
    """

    # A chunk whose rows all have the same indices (dense data) stores them once.

    def __init__(
        self,
        stream: IO[bytes],
        name: str,
        table: np.ndarray | None = None,
        place: str = "the cache",
    ) -> None:
        self.stream = stream
        self.name = name
        self.place = place
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

    def nonzeros(self, number: int) -> int:
        return self.entries[number][2]

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

    @property
    def nbytes(self) -> int:
        return sum(16 * m + 8 + 4 * (nnz + stored) for _, m, nnz, stored, _ in self.entries)

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
        # What a full disk did not take has nowhere to go: its failure was told.
        with suppress(OSError):
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
            ram, self.inner = self.inner, self._file()
            for each in ram.chunks:
                self.inner.append(each)

    def _file(self) -> FileStore:
        try:
            stream = tempfile.TemporaryFile(dir=self.folder, buffering=1 << 20)  # noqa: SIM115
        except OSError as error:
            where = self.folder or tempfile.gettempdir()
            raise OutputError(f"cannot create a spill file in {where}: {error.strerror}") from error
        return FileStore(stream, "the spill file", place="a spill file")

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes

    @property
    def place(self) -> str:
        return self.inner.place

    def read(self, number: int) -> RawChunk:
        return self.inner.read(number)

    def nonzeros(self, number: int) -> int:
        return self.inner.nonzeros(number)

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
        chunk = joined(self.parts)
        self.parts.clear()
        self.rows = self.nonzeros = 0
        return chunk


def joined(parts: Sequence[RawChunk]) -> RawChunk:
    lengths = np.concatenate([np.diff(p.indptr) for p in parts])
    return RawChunk(
        np.concatenate([p.y for p in parts]),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.concatenate([p.indices for p in parts]),
        np.concatenate([p.values for p in parts]),
    )


def united(indices: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The distinct values of both, ascending. numpy's union1d hashes whole numbers: ten times
    slower than to sort these."""
    both = np.sort(np.concatenate([indices, others]), kind="stable")
    return both[np.diff(both, prepend=both[:1] - 1) != 0]


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
            features = united(features, block.features)
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
        features,
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
    try:
        with Path(path).open("rb") as stream:
            status = os.fstat(stream.fileno())
            head = stream.read(1 << 16)
            stream.seek(max(0, status.st_size - (1 << 16)))
            ends = hashlib.sha256(head + stream.read(1 << 16)).hexdigest()
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}") from error
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ends": ends,
        "reading": vars(reading),
    }


def _write_cache(
    path: str, reading: Reading, cache: str, jobs: int
) -> tuple[Header, np.ndarray, FileStore]:
    """Parse `path` into the cache file, whole or not at all; its content, as `_open_cache` has it.

    Layout: magic, chunks, features, chunk sizes and table, a JSON footer with its own sha256,
    the footer's place.
    """
    identity = _source_identity(path, reading)
    with create_output(cache) as stream:
        stream.write(CACHE_MAGIC)
        store = FileStore(stream, cache)
        header, sizes = _first_pass(path, reading, store, jobs)
        table = np.array(store.entries, np.int64)
        arrays = header.features.tobytes() + table.tobytes()
        footer = {
            "source": identity,
            "header": {**vars(header), "features": len(header.features)},
            "chunks": len(store.entries),
        }
        text = json.dumps(footer).encode()
        stream.write(arrays + text)
        stream.write(hashlib.sha256(arrays + text).digest())
        stream.write(len(arrays).to_bytes(8, "little") + len(text).to_bytes(8, "little"))
        if _source_identity(path, reading) != identity:
            raise TransferError(f"{path} changed while it was read into {cache}")
        # Not by its name: another run may put a cache of its own there.
        written = os.fdopen(os.dup(stream.fileno()), "rb")
    return header, sizes, FileStore(written, cache, table)


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


# --- the door ------------------------------------------------------------------------------


def read(path: str, reading: Reading, resources: Resources) -> tuple[Header, np.ndarray, Store]:
    """Parse `path`, or open its cache: what was learnt, the rows of each chunk (chunks,) int64, and
    the chunks.

    Raises DataError for bad text (with file:line:column), InputError, TransferError, OutputError.
    """
    if resources.cache is not None:
        return _read_through_cache(path, reading, resources.cache, resources.workers)
    store = SpillStore(resources.data_bytes, resources.tmpdir)
    try:
        header, sizes = _first_pass(path, reading, store, resources.workers)
        store.finish()
    except BaseException:
        store.close()
        raise
    return header, sizes, store


def _read_through_cache(
    path: str, reading: Reading, cache: str, jobs: int
) -> tuple[Header, np.ndarray, FileStore]:
    if path == STANDARD:
        raise ParameterError("--cache needs a named file: standard input cannot be checked")
    for name in (path, cache):
        if name == STANDARD or Path(name).is_fifo() or Path(name).is_char_device():
            raise ParameterError(f"--cache needs a regular file: {name} cannot be checked")
    check_apart({"--cache": cache}, {"TRAIN_FILE": path})
    with open_input(path):
        pass  # a file that cannot be opened is known before its cache is
    found = _open_cache(path, reading, cache, jobs)
    return found or _write_cache(path, reading, cache, jobs)
