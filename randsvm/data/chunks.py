"""Chunks of parsed rows, and the stores that hold them: in memory, a spill file, or a cache file.

The values of a chunk are float32 if each of them stands for its value: the shortest decimal that
rounds to the float32 is the number of the file. So it is if the file has numbers of at most 6
digits, whole numbers up to 2^24, or float32 numbers that a program wrote with the fewest digits.
Otherwise the values of the chunk are float64. `RawChunk.numbers` returns the numbers of the file in
both cases, so nothing that is computed from rows depends on which of the two a chunk holds. One
scale of a column, such as the number of its decimals, would hold fewer data sets: of 16 real ones
12 have numbers of 6 or 7 digits of any size.

This module does not know the text format or the meaning of a row.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from threading import local
from typing import IO, Any, BinaryIO, NamedTuple, Protocol
from zlib import crc32

import numpy as np

import randsvm.data._svmlight as _svmlight
from randsvm.arrays import join_weights
from randsvm.errors import OutputError, SpillError, TransferError, WriteError

# Bytes of a stream that are copied at once.
COPIED_BYTES = 1 << 20


# ---- float32 or float64 ----------------------------------------------------------------------


def as_stored(values: np.ndarray) -> np.ndarray:
    """Return float64 values as float32 if these stand for the same numbers, else as they are."""
    rounded: np.ndarray = np.empty(len(values), np.float32)
    exact = _svmlight.round_decimals(np.ascontiguousarray(values), rounded)
    return rounded if exact else values


def numbers_of(values: np.ndarray) -> np.ndarray:
    """Return the numbers that values stand for, (nnz,) float64: the inverse of `as_stored`."""
    if values.dtype == np.float64:
        return values
    numbers: np.ndarray = np.empty(len(values))
    _svmlight.decimals(np.ascontiguousarray(values), numbers)
    return numbers


# ---- chunks ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RawChunk:
    """Consecutive parsed rows.

    y : (m,) float64, class numbers or target values; indptr : (m + 1,) int64; indices : (nnz,)
    int32, as written in the file; values : (nnz,) float32 or float64, see `numbers`;
    weights : (m,) float64, above 0, or None if all weights are 1.
    """

    y: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    weights: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        weights = 0 if self.weights is None else self.weights.nbytes
        arrays = self.y.nbytes + self.indptr.nbytes + self.indices.nbytes + self.values.nbytes
        return arrays + weights

    @property
    def numbers(self) -> np.ndarray:
        """Return the numbers of the file, (nnz,) float64."""
        return numbers_of(self.values)

    def part(self, begin: int, end: int) -> RawChunk:
        """Return rows begin .. end - 1 as views of the same memory."""
        first, last = self.indptr[begin], self.indptr[end]
        return RawChunk(
            self.y[begin:end],
            self.indptr[begin : end + 1] - first,
            self.indices[first:last],
            self.values[first:last],
            None if self.weights is None else self.weights[begin:end],
        )

    def copy(self) -> RawChunk:
        """Return a copy of all rows."""
        return RawChunk(
            self.y.copy(),
            self.indptr.copy(),
            self.indices.copy(),
            self.values.copy(),
            None if self.weights is None else self.weights.copy(),
        )

    def __getitem__(self, rows: np.ndarray) -> RawChunk:
        """Return a copy of some rows. rows : (m,) int64."""
        if len(rows) == len(self.y) and (rows == np.arange(len(rows))).all():
            return self.copy()
        begins = self.indptr[rows]
        lengths = self.indptr[rows + 1] - begins
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        at = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], lengths)
        weights = None if self.weights is None else self.weights[rows]
        return RawChunk(self.y[rows], indptr, self.indices[at], self.values[at], weights)


def join_chunks(parts: Sequence[RawChunk]) -> RawChunk:
    """Return a copy of the parts as one chunk."""
    lengths = np.concatenate([np.diff(p.indptr) for p in parts])
    if len({p.values.dtype for p in parts}) == 1:
        values = np.concatenate([p.values for p in parts])
    else:
        values = np.concatenate([p.numbers for p in parts])
    return RawChunk(
        np.concatenate([p.y for p in parts]),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.concatenate([p.indices for p in parts]),
        # Some rows of a block or a chunk may stand for their numbers where not all do.
        values if values.dtype == np.float32 else as_stored(values),
        join_weights([(len(p.y), p.weights) for p in parts]),
    )


def chunk_end(indptr: np.ndarray, at: int, rows: int, nonzeros: int) -> int:
    """Return the end of a chunk that continues at row `at`.

    The chunk ends with the row that reaches `rows` rows or `nonzeros` nonzeros, or with the last
    row. indptr : (m + 1,) int64.
    """
    by_nonzeros = int(np.searchsorted(indptr[at + 1 :], indptr[at] + nonzeros)) + at + 1
    return min(len(indptr) - 1, at + rows, by_nonzeros)


def cut_chunks(
    parts: Iterable[RawChunk], rows: int, nonzeros: int, *, split: bool
) -> Iterator[RawChunk]:
    """Yield all rows in chunks that have `rows` rows or `nonzeros` nonzeros, but the last one.

    Chunks are copies, so that the memory of their parts is freed. split: whether a part may be
    divided, so that where chunks are cut does not depend on the parts; else chunks may have more
    rows.
    """
    held: list[RawChunk] = []
    m = nnz = 0
    for part in parts:
        at = 0
        while at < len(part.y):
            to = len(part.y)
            if split:
                to = chunk_end(part.indptr, at, rows - m, nonzeros - nnz)
            held.append(part.part(at, to))
            m, nnz = m + to - at, nnz + len(held[-1].values)
            if m >= rows or nnz >= nonzeros:
                yield join_chunks(held)
                held, m, nnz = [], 0, 0
            at = to
    if held:
        yield join_chunks(held)


# --- where chunks live ---------------------------------------------------------------------


class InMemoryStore:
    """A store of chunks as arrays in memory."""

    place = "memory"

    def __init__(self) -> None:
        self.chunks: list[RawChunk] = []
        self.nbytes: int = 0

    def __len__(self) -> int:
        return len(self.chunks)

    @property
    def resident_bytes(self) -> int:
        """Return the number of bytes in memory."""
        return self.nbytes

    def append(self, chunk: RawChunk) -> None:
        self.chunks.append(chunk)
        self.nbytes += chunk.nbytes

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of rows of each chunk, (chunks,) int64."""
        return np.array([len(chunk.y) for chunk in self.chunks], np.int64)

    def read(self, number: int) -> RawChunk:
        return self.chunks[number]

    def labels(self, number: int) -> np.ndarray:
        return self.chunks[number].y

    def weights(self, number: int) -> np.ndarray | None:
        return self.chunks[number].weights

    def nonzeros(self, number: int) -> int:
        return len(self.chunks[number].values)

    def part(self, number: int, begin: int, end: int) -> RawChunk:
        return self.chunks[number].part(begin, end)

    def chosen(self, numbers: Sequence[int]) -> InMemoryStore:
        """Return a store of some chunks, which shares their memory."""
        some = InMemoryStore()
        for number in numbers:
            some.append(self.chunks[number])
        return some

    def finish(self) -> None:
        """Do nothing: no write is pending."""

    def close(self) -> None:
        self.chunks.clear()


class ChunkEntry(NamedTuple):
    """The place and the layout of a chunk in a file; see FileStore.

    offset: in bytes. stored: the number of stored indices. weighted: 1 if weights are stored, else
    0.
    """

    offset: int
    rows: int
    nonzeros: int
    stored: int
    value_bytes: int
    crc: int
    weighted: int

    @property
    def dtype(self) -> type:
        return np.float32 if self.value_bytes == 4 else np.float64

    @property
    def indptr_at(self) -> int:
        """Return the offset of indptr in the chunk, in bytes."""
        return 8 * self.rows * (1 + self.weighted)

    @property
    def values_at(self) -> int:
        """Return the offset of the values in the chunk, in bytes."""
        return self.indptr_at + 8 * self.rows + 8

    @property
    def indices_at(self) -> int:
        return self.values_at + self.value_bytes * self.nonzeros

    @property
    def size(self) -> int:
        """Return the size of the chunk in bytes."""
        return self.indices_at + 4 * self.stored


class FileStore:
    """A store of chunks in a file, read with pread into a buffer for each thread.

    A chunk is valid until its thread reads the next. The file is not mapped into memory, because
    mapped pages would count as resident.

    A chunk is y, weights (if it has them), indptr, values, indices. If all its rows have the same
    indices (dense data), these are stored once.

    place: the kind of the file, in words. table : (chunks, 7) int64, the fields of ChunkEntry, for
    a named file that must not change.
    """

    write_error: type[WriteError] = WriteError

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
        self.entries = [] if table is None else [ChunkEntry(*row) for row in table.tolist()]
        self.written = None if table is None else self._written()
        self.buffers = local()
        self.resident_bytes = 0

    def __len__(self) -> int:
        return len(self.entries)

    def _written(self) -> tuple[int, int]:
        """Return the size and the time of the file, which a write changes."""
        status = os.fstat(self.stream.fileno())
        return status.st_size, status.st_mtime_ns

    def append(self, chunk: RawChunk) -> None:
        m, nnz = len(chunk.y), len(chunk.values)
        indices = chunk.indices
        width = nnz // m
        if nnz == m * width and width and (indices.reshape(m, width) == indices[:width]).all():
            indices = indices[:width]
        offset, crc = self.stream.tell(), 0
        weights = [] if chunk.weights is None else [chunk.weights]
        try:
            for array in (chunk.y, *weights, chunk.indptr, chunk.values, indices):
                data = np.ascontiguousarray(array).data
                crc = crc32(data, crc)
                self.stream.write(data)
            self.stream.write(bytes(-self.stream.tell() % 8))
        except OSError as error:
            raise self.write_error(f"writing {self.name}: {error.strerror}") from error
        itemsize = chunk.values.itemsize
        self.entries.append(ChunkEntry(offset, m, nnz, len(indices), itemsize, crc, len(weights)))

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of rows of each chunk, (chunks,) int64."""
        return np.array([entry.rows for entry in self.entries], np.int64)

    def read(self, number: int) -> RawChunk:
        entry = self.entries[number]
        m, nnz, stored = entry.rows, entry.nonzeros, entry.stored
        buffer = self._bytes(number)
        y = np.frombuffer(buffer, np.float64, m)
        weights = np.frombuffer(buffer, np.float64, m, 8 * m) if entry.weighted else None
        indptr = np.frombuffer(buffer, np.int64, m + 1, entry.indptr_at)
        values: np.ndarray = np.frombuffer(buffer, entry.dtype, nnz, entry.values_at)
        indices = np.frombuffer(buffer, np.int32, stored, entry.indices_at)
        indices = indices if stored == nnz else np.tile(indices, m)
        return RawChunk(y, indptr, indices, values, weights)

    def labels(self, number: int) -> np.ndarray:
        """Return a copy of y of a chunk."""
        entry = self.entries[number]
        return self._array(np.float64, entry.rows, entry.offset)

    def weights(self, number: int) -> np.ndarray | None:
        """Return a copy of the weights of a chunk."""
        entry = self.entries[number]
        return self._weights(entry, 0, entry.rows)

    def _weights(self, entry: ChunkEntry, begin: int, end: int) -> np.ndarray | None:
        if not entry.weighted:
            return None
        return self._array(np.float64, end - begin, entry.offset + 8 * (entry.rows + begin))

    def nonzeros(self, number: int) -> int:
        return self.entries[number].nonzeros

    def part(self, number: int, begin: int, end: int) -> RawChunk:
        """Return a copy of rows begin .. end - 1 of a chunk."""
        entry = self.entries[number]
        offset, stored = entry.offset, entry.stored
        y = self._array(np.float64, end - begin, offset + 8 * begin)
        weights = self._weights(entry, begin, end)
        indptr = self._array(np.int64, end - begin + 1, offset + entry.indptr_at + 8 * begin)
        first, count = int(indptr[0]), int(indptr[-1] - indptr[0])
        at = offset + entry.values_at + entry.value_bytes * first
        values = self._array(entry.dtype, count, at)
        at = offset + entry.indices_at
        if stored == entry.nonzeros:
            indices = self._array(np.int32, count, at + 4 * first)
        else:
            indices = np.tile(self._array(np.int32, stored, at), end - begin)
        return RawChunk(y, indptr - first, indices, values, weights)

    def chosen(self, numbers: Sequence[int]) -> FileStore:
        """Return a store of some chunks, which shares the file; only one of both is closed."""
        some = copy(self)
        some.entries = [self.entries[number] for number in numbers]
        return some

    @property
    def nbytes(self) -> int:
        return sum(entry.size for entry in self.entries)

    def _array(self, dtype: type, count: int, offset: int) -> np.ndarray:
        array: np.ndarray = np.empty(count, dtype)
        self._fill(array.view(np.uint8).data, offset)
        return array

    def intact(self, number: int) -> bool:
        """Return whether the bytes of a chunk have the checksum of those written."""
        return crc32(self._bytes(number)) == self.entries[number].crc

    def _bytes(self, number: int) -> memoryview:
        """Read the bytes of a chunk into the buffer of this thread."""
        entry = self.entries[number]
        size = entry.size
        buffer = getattr(self.buffers, "bytes", None)
        if buffer is None or len(buffer) < size:
            buffer = self.buffers.bytes = bytearray(size)
        view = memoryview(buffer)[:size]
        self._fill(view, entry.offset)
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
        if self.written is not None and self._written() != self.written:
            raise TransferError(f"reading {self.name}: it changed while in use")

    def finish(self) -> None:
        """Write the buffer of the stream, after the last chunk."""
        try:
            self.stream.flush()
        except OSError as error:
            raise self.write_error(f"writing {self.name}: {error.strerror}") from error

    def close(self) -> None:
        # A write that failed has raised already: the error of closing says nothing new.
        with suppress(OSError):
            self.stream.close()


class SpillFile(FileStore):
    """A store of chunks in a temporary file without a name."""

    write_error = SpillError

    def __init__(self, stream: IO[bytes], folder: str) -> None:
        super().__init__(stream, spill_name(folder), place="a spill file")


class Store(Protocol):
    """The chunks of a data set.

    place: where they are, in words; nbytes: of all chunks; resident_bytes: of those in memory.
    """

    place: str

    @property
    def nbytes(self) -> int: ...

    @property
    def resident_bytes(self) -> int: ...

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of rows of each chunk, (chunks,) int64."""

    def read(self, number: int) -> RawChunk:
        """Return a chunk; from a file it is valid until this thread reads the next."""

    def labels(self, number: int) -> np.ndarray:
        """Return y of a chunk."""

    def weights(self, number: int) -> np.ndarray | None:
        """Return the weights of the rows of a chunk; None: all 1."""

    def nonzeros(self, number: int) -> int: ...

    def part(self, number: int, begin: int, end: int) -> RawChunk:
        """Return rows begin .. end - 1 of a chunk."""

    def close(self) -> None: ...


class SpillingWriter:
    """Appends chunks to memory up to `limit` bytes, then to a file without a name in `folder`.

    store: the store that holds them now.
    """

    def __init__(self, limit: int, folder: str | None) -> None:
        self.limit = limit
        self.folder = folder
        self.store: InMemoryStore | FileStore = InMemoryStore()

    def append(self, chunk: RawChunk) -> None:
        """Append a chunk. If that fails, the chunks before it remain."""
        store = self.store
        if isinstance(store, InMemoryStore) and store.nbytes + chunk.nbytes > self.limit:
            # Other threads may read: they see the file when it is complete.
            file = self._file()
            try:
                for each in (*store.chunks, chunk):
                    file.append(each)
                file.finish()
            except BaseException:
                file.close()
                raise
            self.store = file
        else:
            store.append(chunk)

    def _file(self) -> FileStore:
        return SpillFile(*spill_stream(self.folder))


@contextmanager
def new_store(limit: int, folder: str | None) -> Iterator[SpillingWriter]:
    """Yield a SpillingWriter whose store is finished at the end, or closed after an error."""
    writer = SpillingWriter(limit, folder)
    try:
        yield writer
        writer.store.finish()
    except BaseException:
        writer.store.close()
        raise


def spill_stream(folder: str | None) -> tuple[BinaryIO, str]:
    """Create a temporary file without a name in a folder (None: the system's); return both.

    Raises OutputError.
    """
    where = folder or tempfile.gettempdir()
    try:
        stream: Any = tempfile.TemporaryFile(dir=folder, buffering=1 << 20)  # noqa: SIM115
        return stream, where
    except OSError as error:
        raise OutputError(f"cannot create a spill file in {where}: {error.strerror}") from error


def spill_name(folder: str) -> str:
    """Return the name of a spill file in messages."""
    return f"the spill file in {folder} (--tmpdir)"


def copied(stream: BinaryIO, folder: str | None = None) -> BinaryIO:
    """Return a spill file, at its start, with the rest of a stream.

    Raises OutputError, or SpillError if it cannot be written.
    """
    copy, where = spill_stream(folder)
    try:
        while block := stream.read(COPIED_BYTES):
            with _spilling(where):
                copy.write(block)
        with _spilling(where):
            copy.seek(0)
    except BaseException:
        with suppress(OSError):
            copy.close()
        raise
    return copy


@contextmanager
def _spilling(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpillError(f"writing {spill_name(folder)}: {error.strerror}") from error
