"""Chunks of parsed rows, and the stores that hold them: in memory, a spill file, or a cache file.

The values of a chunk are float32 if each number of the file is the shortest decimal that rounds to
its float32. That is so if the file has numbers of at most 6 digits, whole numbers up to 2^24, or
float32 numbers that a program wrote with the fewest digits.
Otherwise the values of the chunk are float64. `numbers_of` returns the numbers of the file in
both cases, so what is computed from these does not depend on which of the two a chunk holds. Only
the steps of sgd and the features of a `mapping` use the stored values.
The alternative, integers with one power of ten for each column, would represent fewer data sets: 12
of 16 real ones have numbers of 6 or 7 digits of any size.

This module does not know the text format or the meaning of a row.
"""

from __future__ import annotations

import operator
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, BinaryIO
from zlib import crc32

import numpy as np

import randsvm.data._svmlight as _svmlight
from randsvm.arrays import FEATURES, CsrMatrix, Matrix, csr_of_all, join_weights
from randsvm.errors import OutputError, SpillError, TransferError, WriteError
from randsvm.records import record

# A chunk is the unit of parallel work. It ends when it has this many rows or nonzeros.
CHUNK_ROWS, CHUNK_NONZEROS = 8192, 1 << 20
# Bytes of a stream that are copied at once.
COPIED_BYTES = 1 << 20


# ---- float32 or float64 ----------------------------------------------------------------------


def as_stored(values: np.ndarray) -> np.ndarray:
    """Return float64 values as float32 if these stand for the same numbers, else as they are."""
    rounded = _svmlight.round_decimals(np.ascontiguousarray(values))
    return values if rounded is None else rounded


def numbers_of(values: np.ndarray) -> np.ndarray:
    """Return the numbers that values stand for, (nnz,) float64: the inverse of `as_stored`."""
    is_exact = values.dtype == np.float64
    return values if is_exact else _svmlight.decimals(np.ascontiguousarray(values))


def as_in_file(X: Matrix, base: int) -> CsrMatrix:
    """Return rows of a caller's matrix as those of a file, (m, FEATURES) float64.

    float32 values of a chunk stand for decimals, and those of a caller's array do not. base: the
    index of the first feature.
    """
    X = csr_of_all(X, *X.shape) if isinstance(X, np.ndarray) else X
    return X.astype(np.float64, copy=False).with_columns(X.indices + np.int32(base), FEATURES)


# ---- chunks ----------------------------------------------------------------------------------


@record
class RawChunk:
    """Consecutive rows as in a file.

    X : (m, FEATURES) CSR, float32 or float64, see `numbers_of`; y : (m,) float64, class numbers or
    target values; weights : (m,) float64, or None if all weights are 1
    """

    X: CsrMatrix
    y: np.ndarray
    weights: np.ndarray | None

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def nonzeros(self) -> int:
        return self.X.nnz

    @property
    def nbytes(self) -> int:
        weights = 0 if self.weights is None else self.weights.nbytes
        return self.X.nbytes + self.y.nbytes + weights

    def __getitem__(self, rows: slice | np.ndarray) -> RawChunk:
        """Return some rows: views of the same memory for a slice, copies for numbers, (m,) int64,
        unless these are all."""
        if isinstance(rows, np.ndarray) and np.array_equal(rows, np.arange(len(self))):
            return self
        weights = None if self.weights is None else self.weights[rows]
        return RawChunk(self.X[rows], self.y[rows], weights)


def join_chunks(parts: Sequence[RawChunk]) -> RawChunk:
    """Return a copy of the parts as one chunk."""
    matrices = [part.X for part in parts]
    if len({X.dtype for X in matrices}) > 1:
        matrices = [X.with_data(numbers_of(X.data)) for X in matrices]
    X = CsrMatrix.vstack(matrices)
    if X.dtype == np.float64:
        # float32 values may do for these rows where they did not for all rows of a part.
        X = X.with_data(as_stored(X.data))
    weights = join_weights([(len(part), part.weights) for part in parts])
    return RawChunk(X, np.concatenate([part.y for part in parts]), weights)


def cut_chunks(
    parts: Iterable[RawChunk], rows: int, nonzeros: int, *, split: bool
) -> Iterator[RawChunk]:
    """Yield all rows in chunks.

    A chunk ends with the row that reaches `rows` rows or `nonzeros` nonzeros, or with the last row.
    Chunks are copies, so that the memory of their parts is freed. split: whether a part may be
    divided, so that where chunks are cut does not depend on the parts; else chunks may have more
    rows.
    """
    held: list[RawChunk] = []
    m = nnz = 0
    for part in parts:
        at, starts = 0, part.X.indptr
        while at < len(part):
            to = len(part)
            if split:
                # The chunk ends with the row that reaches `full`, the place of its last nonzero.
                full = int(starts[at]) + nonzeros - nnz
                by_nonzeros = at + 1 + int(np.searchsorted(starts[at + 1 :], full))
                to = min(to, at + rows - m, by_nonzeros)
            held.append(part[at:to])
            m, nnz = m + to - at, nnz + held[-1].nonzeros
            if m >= rows or nnz >= nonzeros:
                yield join_chunks(held)
                held, m, nnz = [], 0, 0
            at = to
    if held:
        yield join_chunks(held)


# --- where chunks live ---------------------------------------------------------------------


@record
class ArrayRows:
    """Rows of a matrix of the caller, in place of a chunk: they become one when they are read.

    y, weights : see RawChunk; base : the index of the first feature
    """

    X: Matrix
    y: np.ndarray
    weights: np.ndarray | None
    base: int

    def __len__(self) -> int:
        return len(self.y)

    @property
    def nonzeros(self) -> int:
        return self.X.size if isinstance(self.X, np.ndarray) else self.X.nnz

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.y.nbytes + (0 if self.weights is None else self.weights.nbytes)

    def some(self, rows: slice) -> ArrayRows:
        """Return some rows as views of the same memory."""
        weights = None if self.weights is None else self.weights[rows]
        return ArrayRows(self.X[rows], self.y[rows], weights, self.base)

    def __getitem__(self, rows: slice) -> RawChunk:
        own = self.some(rows)
        return RawChunk(as_in_file(own.X, own.base), own.y, own.weights)


@contextmanager
def writing(name: str, kind: type[WriteError]) -> Iterator[None]:
    """Turn errors of the system into those of writing a file."""
    try:
        yield
    except OSError as error:
        raise kind(f"writing {name}: {error.strerror}") from error


class ChunkFile:
    """A file of chunks, read with pread. It is not mapped into memory, because mapped pages would
    count as resident.

    name: in messages. place: the kind of the file, in words. write_error: raised if a write fails.
    final: whether the file must not change.
    """

    def __init__(
        self,
        stream: IO[bytes],
        name: str,
        place: str,
        write_error: type[WriteError] = WriteError,
        *,
        final: bool = False,
    ) -> None:
        self.stream, self.name, self.place = stream, name, place
        self.write_error = write_error
        self.state = self._state() if final else None

    def _state(self) -> tuple[int, int]:
        """Return the size and the time of the file, which a write changes."""
        status = os.fstat(self.stream.fileno())
        return status.st_size, status.st_mtime_ns

    def write(self, chunk: RawChunk) -> ChunkEntry:
        """Append a chunk."""
        X, m, nnz = chunk.X, len(chunk), chunk.nonzeros
        indices, width = X.indices, nnz // m
        if nnz == m * width and width and (indices.reshape(m, width) == indices[:width]).all():
            indices = indices[:width]
        offset, crc = self.stream.tell(), 0
        weights = np.empty(0) if chunk.weights is None else chunk.weights
        arrays = chunk.y, weights, X.indptr, X.data, indices
        with writing(self.name, self.write_error):
            for array in arrays:
                data = np.ascontiguousarray(array).data
                crc = crc32(data, crc)
                self.stream.write(data)
            self.stream.write(bytes(-self.stream.tell() % 8))
        return ChunkEntry(self, offset, tuple(map(len, arrays)), X.dtype.itemsize, crc)

    def finish(self) -> None:
        """Write the buffer of the stream, after the last chunk."""
        with writing(self.name, self.write_error):
            self.stream.flush()

    def read(self, offset: int, count: int, dtype: type) -> np.ndarray:
        """Read an array. offset: in bytes."""
        array: np.ndarray = np.empty(count, dtype)
        view, done = array.view(np.uint8).data, 0
        while done < len(view):
            try:
                size = os.preadv(self.stream.fileno(), [view[done:]], offset + done)
            except OSError as error:
                raise TransferError(f"reading {self.name}: {error.strerror}") from error
            if size == 0:
                raise TransferError(f"reading {self.name}: it became shorter while in use")
            done += size
        if self.state is not None and self._state() != self.state:
            raise TransferError(f"reading {self.name}: it changed while in use")
        return array

    def close(self) -> None:
        # A write that failed has raised already: the error of closing says nothing new.
        with suppress(OSError):
            self.stream.close()


@record
class ChunkEntry:
    """A chunk in a file: the arrays y, weights, and indptr, values and indices of X.

    offset: in bytes. lengths: of the arrays. Weights that are all 1 have none, and rows that all
    have the same indices, as dense data, share them. value_bytes: 4 or 8. crc: of all arrays
    """

    file: ChunkFile
    offset: int
    lengths: tuple[int, ...]
    value_bytes: int
    crc: int

    def __len__(self) -> int:
        return self.lengths[0]

    @property
    def nonzeros(self) -> int:
        return self.lengths[3]

    @property
    def nbytes(self) -> int:
        return self._bytes_before(len(self.lengths))

    def _bytes_before(self, array: int) -> int:
        widths = 8, 8, 4, self.value_bytes, 4
        return sum(map(operator.mul, self.lengths[:array], widths))

    def _read(self, array: int, some: slice = slice(None)) -> np.ndarray:
        """Return an array, or some of it. array: its place among the arrays."""
        values = np.float32 if self.value_bytes == 4 else np.float64
        dtype = (np.float64, np.float64, np.int32, values, np.int32)[array]
        begin, end, _ = some.indices(self.lengths[array])
        at = self.offset + self._bytes_before(array) + begin * np.dtype(dtype).itemsize
        return self.file.read(at, end - begin, dtype)

    @property
    def y(self) -> np.ndarray:
        return self._read(0)

    @property
    def weights(self) -> np.ndarray | None:
        return self._read(1) if self.lengths[1] else None

    def __getitem__(self, rows: slice) -> RawChunk:
        """Return some consecutive rows."""
        begin, end, _ = rows.indices(len(self))
        starts = self._read(2, slice(begin, end + 1))
        some = slice(int(starts[0]), int(starts[-1]))
        if self.lengths[4] == self.nonzeros:
            indices = self._read(4, some)
        else:
            indices = np.tile(self._read(4), end - begin)
        X = CsrMatrix(self._read(3, some), indices, starts - starts[0], (end - begin, FEATURES))
        weights = self._read(1, rows) if self.lengths[1] else None
        return RawChunk(X, self._read(0, rows), weights)

    def is_intact(self) -> bool:
        """Return whether the bytes of the chunk have the checksum of those written."""
        return crc32(self.file.read(self.offset, self.nbytes, np.uint8).data) == self.crc


class Store:
    """The chunks of a data set: all of them in memory, in arrays of the caller, or in a file.

    Chunks that are appended go to memory up to `limit` bytes, and then all to a file without a name
    in `folder`.

    chunks: each a RawChunk, ArrayRows or a ChunkEntry, by number, in the order of the rows. nbytes:
    of all chunks. file: None if they are in memory.
    """

    def __init__(
        self,
        limit: int = sys.maxsize,
        folder: str | None = None,
        file: ChunkFile | None = None,
        chunks: Iterable[RawChunk | ArrayRows | ChunkEntry] = (),
    ) -> None:
        self.limit, self.folder, self.file = limit, folder, file
        self.chunks: dict[int, Any] = dict(enumerate(chunks))
        self.nbytes = sum(chunk.nbytes for chunk in self.chunks.values())

    def __len__(self) -> int:
        return len(self.chunks)

    @property
    def place(self) -> str:
        """Return where the chunks are, in words."""
        return "memory" if self.file is None else self.file.place

    @property
    def resident_bytes(self) -> int:
        """Return the number of bytes of the chunks in memory, without arrays of the caller."""
        return sum(one.nbytes for one in self.chunks.values() if isinstance(one, RawChunk))

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of rows of each chunk, (chunks,) int64."""
        return np.array(list(map(len, self.chunks.values())), np.int64)

    @property
    def nonzeros(self) -> np.ndarray:
        """Return the number of nonzeros of each chunk, (chunks,) int64."""
        return np.array([chunk.nonzeros for chunk in self.chunks.values()], np.int64)

    def append(self, chunk: RawChunk, number: int | None = None) -> None:
        """Append a chunk. If that fails, the chunks before it remain."""
        if self.file is None and self.nbytes + chunk.nbytes > self.limit:
            self._spill()
        kept = chunk if self.file is None else self.file.write(chunk)
        self.chunks[len(self.chunks) if number is None else number] = kept
        self.nbytes += kept.nbytes

    def _spill(self) -> None:
        stream, where = spill_stream(self.folder)
        file = ChunkFile(stream, spill_name(where), "a spill file", SpillError)
        try:
            entries = {number: file.write(chunk) for number, chunk in self.chunks.items()}
            file.finish()
        except BaseException:
            file.close()
            raise
        # The file is set before the entries: a thread that finds an entry needs the file.
        self.file = file
        self.chunks, self.nbytes = entries, sum(entry.nbytes for entry in entries.values())

    def read(self, number: int, rows: slice = slice(None)) -> RawChunk:
        """Return a chunk, or some consecutive rows of it."""
        return self.chunks[number][rows]

    def chosen(self, numbers: Iterable[int]) -> Store:
        """Return a store of some chunks, which shares memory and file; only one is closed."""
        return Store(file=self.file, chunks=[self.chunks[number] for number in numbers])

    def finish(self) -> None:
        """Write the buffered data, after the last chunk."""
        if self.file is not None:
            self.file.finish()

    def close(self) -> None:
        self.chunks = {}
        if self.file is not None:
            self.file.close()


@contextmanager
def new_store(limit: int, folder: str | None) -> Iterator[Store]:
    """Yield a store whose chunks are finished at the end, or closed after an error."""
    store = Store(limit, folder)
    try:
        yield store
        store.finish()
    except BaseException:
        store.close()
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
    return f"the spill file in {folder} (--tmpdir or TMPDIR)"


def copied(stream: BinaryIO, folder: str | None = None) -> BinaryIO:
    """Return a spill file, at its start, with the rest of a stream; see `spilled`."""
    return spilled(iter(partial(stream.read, COPIED_BYTES), b""), folder)


def spilled(blocks: Iterable[bytes], folder: str | None = None) -> BinaryIO:
    """Return a spill file, at its start, with these blocks.

    Raises OutputError, or SpillError if it cannot be written.
    """
    copy, where = spill_stream(folder)
    try:
        for block in blocks:
            with writing(spill_name(where), SpillError):
                copy.write(block)
        with writing(spill_name(where), SpillError):
            copy.seek(0)
    except BaseException:
        with suppress(OSError):
            copy.close()
        raise
    return copy
