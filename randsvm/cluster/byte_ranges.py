"""Read text files with the workers of a cluster: each task reads one range of bytes.

load        the training set: the first pass, then chunks on the workers
map_ranges  a function of the lines of each range, for predictions
"""

from __future__ import annotations

import os
import pickle
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np

from randsvm.cluster import worker
from randsvm.cluster.cluster_executor import ClusterDataset, ClusterExecutor
from randsvm.cluster.messages import DatasetSpec
from randsvm.cluster.text_file import (
    BLOCK_BYTES,
    EMPTY_SUMMARY,
    PIECE_BYTES,
    Checksums,
    ChunkedText,
    ChunkEnds,
    RangeSummary,
    TextFile,
    TextWeights,
)
from randsvm.cluster.worker_pool import WorkerPool, map_calls
from randsvm.data import text_table as table
from randsvm.data.dataset import Dataset
from randsvm.data.labels import LabelTable
from randsvm.data.reading import (
    ParseOptions,
    ReadingProgress,
    Summary,
    WeightSums,
    chunk_digest,
    hexdigest,
    no_rows,
    weightless_class,
)
from randsvm.data.row_weights import RowWeights
from randsvm.data.shard_executor import Shard
from randsvm.data.svmlight import ParsedPiece, Spelling
from randsvm.errors import DataError, InputError, ParameterError
from randsvm.events import Progress, emit
from randsvm.files import COMPRESSIONS, STANDARD, decoded, joint_name, open_input
from randsvm.parameters.run import Resources

T = TypeVar("T")

# Bytes of text that a task reads.
RANGE_BYTES = 32 << 20


@dataclass(frozen=True)
class ByteRange:
    """The bytes begin .. end - 1 of a file.

    number: number of the range, counted over all files. file_number: number of the file. base:
    bytes of the files before this one. total: bytes of all files. weights : (rows,) float64, of
    the rows that begin in the range, from a file of weights; None: those of the text.
    """

    number: int
    file_number: int
    file: TextFile
    base: int
    begin: int
    end: int
    total: int
    weights: np.ndarray | None = None

    def arguments(self, key: str, *more: Any) -> tuple[Any, ...]:
        """Return the arguments of worker.summarise_range and worker.chunk_ends."""
        return (key, self.file, self.number, self.begin, self.end, self.weights, *more)

    @property
    def progress(self) -> Progress:
        return Progress("reading", self.base + self.end, self.total, "B")


def text_file_at(path: str, options: ParseOptions) -> TextFile:
    """Return a regular file of plain text, which every worker can open by its name.

    Raises InputError, and ParameterError for a pipe, another kind of file or compressed text.
    """
    if path == STANDARD:
        raise ParameterError("--cluster needs a named file that all workers see, not a pipe")
    try:
        with Path(path).open("rb") as stream:
            status, head = os.fstat(stream.fileno()), stream.read(8)
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ParameterError(f"--cluster needs a regular file that all workers see, not {path}")
    if head.startswith(tuple(COMPRESSIONS)):
        raise ParameterError(f"--cluster reads plain text only: decompress {path}")
    # Symlinks are not resolved: on a worker they may lead to another place.
    return TextFile(str(Path(path).absolute()), status.st_size, options, path)


def text_files(paths: Sequence[str], options: ParseOptions, jobs: int) -> list[TextFile]:
    """Return the files; those of tables have a parser with columns and starts of records.

    This process reads tables for that: only a pass over all quotes finds the ends of records.
    """
    files = [text_file_at(path, options) for path in paths]
    if options.table is None:
        return files
    way = ReadingProgress(paths, emit)
    columns = table.learn(
        paths, options.table, jobs, open_input, watch=way.on_event, next_file=way.next_file
    )
    found = []
    for file, path in zip(files, paths, strict=True):
        parser = table.delimited_text(path, columns, PIECE_BYTES)
        found.append(replace(file, table=parser))
    return found


def byte_ranges(files: Sequence[TextFile]) -> list[ByteRange]:
    """Return the ranges of all files, with checksums of both ends of each range.

    If a worker sees another file under the same name, the checksums most likely reveal it before
    the worker reads the range.
    """
    found: list[ByteRange] = []
    base, total = 0, sum(file.size for file in files)
    for file_number, file in enumerate(files):
        for at in range(0, max(file.size, 1), RANGE_BYTES):
            end = min(at + RANGE_BYTES, file.size)
            checked = _with_checksums(file, at, end)
            found.append(ByteRange(len(found), file_number, checked, base, at, end, total))
        base += file.size
    return found


def _with_checksums(file: TextFile, begin: int, end: int) -> TextFile:
    """Return the file with checksums of the first and the last block of a byte range."""
    ends = {(begin, min(begin + BLOCK_BYTES, end)), (max(begin, end - BLOCK_BYTES), end)}
    return replace(file, checksums=tuple((a, b, crc32(file.read(a, b))) for a, b in sorted(ends)))


def map_ranges(
    address: str,
    paths: Sequence[str],
    options: ParseOptions,
    function: Callable[[ParsedPiece], Any],
) -> Iterator[tuple[ByteRange, Any]]:
    """Yield each range and function(its lines), in the order of the files.

    function: importable by the workers, or an instance of an importable class.
    """
    ranges = byte_ranges([text_file_at(path, options) for path in paths])
    worker_pool = WorkerPool(address)
    try:
        yield from zip(ranges, _mapped(worker_pool, ranges, function), strict=True)
    finally:
        worker_pool.close()


def _mapped(
    worker_pool: WorkerPool, ranges: Sequence[ByteRange], function: Callable[[ParsedPiece], T]
) -> Iterator[T]:
    """Yield function(lines) of each range; see `map_ranges`."""
    pickled = pickle.dumps(function)
    calls = [(pickled, byte_range.file, byte_range.begin, byte_range.end) for byte_range in ranges]
    for result in map_calls(worker_pool, worker.map_lines, calls):
        yield result.result


# --- the training set ----------------------------------------------------------------------


def load(
    paths: Sequence[str],
    options: ParseOptions,
    resources: Resources,
    connecting: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Dataset:
    """Return D, read by the workers of the cluster resources.cluster.

    connecting: returns the context in which the cluster of an address is connected

    Raises DataError for bad text (with file:line:column), InputError, TransferError, ClusterError,
    ParameterError.
    """
    if resources.cache is not None:
        raise ParameterError("--cache does not go with --cluster yet: workers keep what they parse")
    files = text_files(paths, options, resources.workers)
    assert resources.cluster is not None
    with connecting(resources.cluster):
        worker_pool = WorkerPool(resources.cluster)
    key = uuid.uuid4().hex
    worker_pool.key = key
    try:
        text = first_pass(worker_pool, key, files)
        return _load(worker_pool, key, text, resources)
    except BaseException:
        worker_pool.broadcast(worker.release, key)
        worker_pool.close()
        raise


def _load(worker_pool: WorkerPool, key: str, text: ChunkedText, resources: Resources) -> Dataset:
    """Return D."""
    groups, text = text.summary.groups, replace(text, summary=replace(text.summary, groups=None))
    spec = DatasetSpec(key, text, resources.data_bytes, resources.tmpdir)
    # If the cluster fails, this process reads and keeps the chunks that a model still needs.
    store = text.store(resources.data_bytes, resources.tmpdir)
    D = ClusterDataset(text.summary, store, resources.workers)
    D.executor = executor = ClusterExecutor(worker_pool, spec)
    D.groups = groups

    classes = text.files[0].options.labels == "class"

    def digest(shard: Shard) -> tuple[bytes, bool, WeightSums]:
        chunk, sums = D.store.read(shard.number), WeightSums()
        sums.add(chunk, classes=classes)
        return chunk_digest(chunk), chunk.values.dtype == np.float64, sums

    digests, sums, float64 = [], WeightSums(), False
    for chunk_hash, is_float64, of_chunk in executor.map(digest, D.shards):
        float64 = float64 or is_float64
        digests.append(chunk_hash)
        sums += of_chunk
        emit(Progress("reading", int(D.starts[len(digests)]), D.n))
    names = D.summary.names
    digest_of_all = hexdigest(digests, names)
    D.summary = replace(D.summary, digest=digest_of_all, float64=float64, **sums.fields())
    return D


def first_pass(worker_pool: WorkerPool, key: str, files: Sequence[TextFile]) -> ChunkedText:
    """Read all files once; return them with the summary of all rows and the ends of the chunks.

    Raises DataError for the first bad line.
    """
    ranges = byte_ranges(files)
    if files[0].options.row_weights is not None:
        weights = RowWeights(files[0].options.row_weights, joint_name([one.name for one in files]))
        ranges = _with_weights(worker_pool, ranges, weights)
    labels = LabelTable(files[0].name, any_label=files[0].options.any_label)
    whole, calls = EMPTY_SUMMARY, [byte_range.arguments(key) for byte_range in ranges]
    summaries = [EMPTY_SUMMARY] * len(files)
    readers: list[tuple[str, int]] = []
    results = map_calls(worker_pool, worker.summarise_range, calls)
    for result, byte_range in zip(results, ranges, strict=True):
        found: RangeSummary = result.result
        summaries[byte_range.file_number] += found
        readers.append((result.worker, found.checksum))
        emit(byte_range.progress)
        if found.fault is not None:
            break
    places: list[tuple[str, Spelling]] = []
    for file, summary in zip(files, summaries, strict=True):
        labels.path = file.name
        clean = table.CleanLabels(file.name)
        for token, (line, column) in summary.spellings.items():
            spelling = Spelling(decoded(token), line, column)
            if file.table is not None:
                spelling = clean.spelling(*spelling)
            if labels.number(spelling) == len(places):
                places.append((file.name, spelling))
        if (fault := summary.fault) is not None:
            raise DataError(file.name, fault.line, fault.column, fault.problem)
        whole += summary
    if not whole.rows:
        raise no_rows(joint_name([file.name for file in files]), whole.zero_weights)
    checksums = [
        Checksums.joined(file, summary.checksums)
        for file, summary in zip(files, summaries, strict=True)
    ]
    counts = _class_counts(labels, files[0], whole)
    if not (labels.any_label or counts.all()):
        raise weightless_class(*places[int(np.argmin(counts))])
    ends = _chunk_ends(worker_pool, key, ranges, readers)
    text = _chunked_text(files, checksums, labels, whole, counts, ends)
    weighted = [byte_range.weights for byte_range in ranges if byte_range.weights is not None]
    if not weighted:
        return text
    return replace(text, row_weights=TextWeights.of(np.concatenate(weighted), text.rows))


class _RowCount(NamedTuple):
    """The number of rows of some lines, whether any has cost:, and whether a line is bad."""

    rows: int
    has_cost: bool
    is_faulty: bool

    @staticmethod
    def of(piece: ParsedPiece) -> _RowCount:
        return _RowCount(len(piece.block), piece.block.weights is not None, piece.fault is not None)


def _with_weights(
    worker_pool: WorkerPool, ranges: list[ByteRange], weights: RowWeights
) -> list[ByteRange]:
    """Return the ranges with the weights of their rows.

    The workers count the rows of each range first: this takes one more pass over the text. Raises
    DataError if there are more or fewer weights than rows.
    """
    counts = _mapped(worker_pool, ranges, _RowCount.of)
    found = []
    for byte_range, count in zip(ranges, counts, strict=True):
        if count.is_faulty:
            # The next pass reports the bad line.
            return ranges
        found.append(replace(byte_range, weights=weights.take(count.rows, count.has_cost)))
    weights.check_end()
    return found


def _chunk_ends(
    worker_pool: WorkerPool,
    key: str,
    ranges: Sequence[ByteRange],
    readers: Sequence[tuple[str, int]],
) -> list[tuple[int, int, int]]:
    """Return (end in bytes, rows, nonzeros) of each chunk.

    The ranges are processed one by one, because a chunk may begin in one range and end in a later
    one. readers: the worker that read each range, and the checksum of the range.
    """
    ends: list[tuple[int, int, int]] = []
    last = ChunkEnds([], 0, 0, 0)
    for byte_range, (name, checksum) in zip(ranges, readers, strict=True):
        call = byte_range.arguments(key, last.rows, last.nonzeros)
        last = next(map_calls(worker_pool, worker.chunk_ends, [call], name)).result
        if last.checksum != checksum:
            raise byte_range.file.changed_error()
        # At each event, a signal or a time limit may end this pass.
        emit(byte_range.progress)
        ends += [(byte_range.base + end, rows, nonzeros) for end, rows, nonzeros in last.ends]
    end = ranges[-1].base + ranges[-1].end
    return [*ends, (end, last.rows, last.nonzeros)] if last.rows else ends


def _class_counts(table: LabelTable, file: TextFile, whole: RangeSummary) -> np.ndarray:
    """Return the number of rows of each class, (classes,) int64."""
    counts: np.ndarray = np.zeros(len(table), np.int64)
    for token, count in whole.counts.items():
        counts[int(table.number(Spelling(file.label(token), 0, 0)))] += count
    return counts


def _chunked_text(
    files: Sequence[TextFile],
    checksums: Sequence[Checksums],
    table: LabelTable,
    whole: RangeSummary,
    counts: np.ndarray,
    ends: list[tuple[int, int, int]],
) -> ChunkedText:
    """Return the files with their summary and the bounds of the chunks.

    whole: the summary of all files. counts : (classes,) int64, rows of each class. ends: (end in
    bytes, rows, nonzeros) of each chunk.
    """
    starts, rows, nonzeros = np.array(ends, np.int64).T
    # Text after the last row belongs to the chunk of that row.
    starts = np.concatenate([[0], starts[:-1], [sum(file.size for file in files)]])
    summary = Summary(
        n=whole.rows,
        nnz=whole.nonzeros,
        features=whole.features,
        names=tuple(table.names),
        values=tuple(table.values),
        counts=tuple(counts.tolist()),
        queries=whole.queries,
        digest="",
        weighted=whole.weighted,
        zero_weights=whole.zero_weights,
        columns=None if files[0].table is None else files[0].table.columns,
        groups=whole.groups if files[0].options.groups else None,
    )
    return ChunkedText(tuple(files), tuple(checksums), summary, starts, rows, nonzeros)
