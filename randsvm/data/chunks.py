"""Parsed rows as chunks: read once from text, then from RAM, a spill file or a cache file.

Cuts depend on the rows alone, never on memory, jobs or compression. Knows nothing of what a row
stands for.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import local
from typing import IO
from zlib import crc32

import numpy as np

from randsvm.data.svmlight import Block
from randsvm.errors import OutputError, TransferError

# A chunk is what a worker holds at a time: closed when it has this many rows or nonzeros.
CHUNK_ROWS = 8192
CHUNK_NONZEROS = 1 << 20


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
