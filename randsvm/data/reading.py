"""The pass that parses and validates the data: it turns text into chunks, and sums them up.

Where chunks are cut depends on the rows alone, never on memory, threads or compression. Knows
nothing of where chunks are kept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import numpy as np

from randsvm.arrays import sorted_union, sums_of_classes
from randsvm.data.chunks import RawChunk, cut_chunks, numbers_of
from randsvm.data.columns import Columns, remarks
from randsvm.data.labels import LabelTable
from randsvm.data.row_weights import RowWeights
from randsvm.data.svmlight import ParsedRows, ParseOptions, Spelling, read_blocks, row_numbers
from randsvm.errors import DataError
from randsvm.events import Notice, Progress, Watch, emit
from randsvm.files import display_name, joint_name, size_of
from randsvm.records import record


class Digest:
    """The digest of rows that docs/certificate-format.md defines: of their numbers, not of the text
    or of how they are cut into chunks. has_labels: whether labels count."""

    TYPES = "<f8", "<f8", "<i8", "<i4", "<f8"

    def __init__(self, has_labels: bool) -> None:
        self.has_labels, self.parts = has_labels, [hashlib.sha256() for _ in self.TYPES]

    def add(self, chunk: RawChunk) -> None:
        """Add the next rows."""
        X, y = chunk.X, chunk.y if self.has_labels else np.empty(0)
        weights = np.ones(len(chunk)) if chunk.weights is None else chunk.weights
        arrays = y, weights, np.diff(X.indptr), X.indices, numbers_of(X.data)
        for part, array, dtype in zip(self.parts, arrays, self.TYPES, strict=True):
            part.update(np.ascontiguousarray(array, dtype).data)

    def of(self, labels: Sequence[str]) -> str:
        """Return the digest of all rows. labels: of their classes."""
        content = json.dumps(list(labels) if self.has_labels else []).encode()
        return hashlib.sha256(content + b"".join(one.digest() for one in self.parts)).hexdigest()


@record
class Summary:
    """The result of the first pass over the data, without the chunks.

    features : (d,) int32, the distinct indices, sorted, as written in the file.

    labels, counts: of each class, in order of appearance: the label as first written, and its
    number of rows. queries: the number of rows with a qid. has_row_numbers: see ParseOptions.
    float64: whether a chunk has float64 values.

    weighted: whether any row has a weight other than 1. total_weight, total_weight_by_class: the
    sums of the weights of all rows, and of the rows of each class. zero_weights: the number of rows
    of weight 0, which are left out. columns: those of a table.
    groups : (n,) int64, equal for rows that a fold must not separate, or None; see ParseOptions.
    """

    n: int
    nnz: int
    features: np.ndarray
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    digest: str
    float64: bool
    weighted: bool
    total_weight: float
    total_weight_by_class: tuple[float, ...]
    queries: int = 0
    has_row_numbers: bool = False
    zero_weights: int = 0
    columns: Columns | None = None
    groups: np.ndarray | None = None


class FirstPass:
    """Makes chunks of blocks of rows, whatever their source, and sums them up.

    known: the labels of files, whose path is that of the current file; None: there are no files.
    written: the largest feature index in the data. last: the largest number of a row of a
    precomputed kernel, and its file. lacking: what the features of tables lack, for `remarks`.
    """

    def __init__(self, options: ParseOptions, known: LabelTable | None = None) -> None:
        self.options, self.known = options, known
        self.n = self.nnz = self.queries = self.zero_weights = self.written = 0
        self.last = Spelling("0", 1, 1), ""
        self.lacking = Counter[tuple[str, str]]()
        self.float64 = self.weighted = False
        self.digest = Digest(not options.any_label)
        # The number of rows of each class, the sum of their weights, and what rounding took from
        # that sum; rows without classes count as one class.
        self.of_classes = np.zeros((3, 0))
        self.features = np.empty(0, np.int32)
        # The groups of the rows of each block.
        self.groups: list[np.ndarray] = []
        # The group of each text of the column of groups, in order of appearance.
        self.group_of: dict[str, int] = {}

    def chunks(self, blocks: Iterable[ParsedRows]) -> Iterator[RawChunk]:
        """Yield the rows of `labelled_blocks`, without those of weight 0."""
        options = self.options
        rows = map(self._rows, blocks)
        for chunk in cut_chunks(rows, options.chunk_rows, options.chunk_nonzeros, split=True):
            self._add(chunk)
            yield chunk

    def _rows(self, whole: ParsedRows) -> RawChunk:
        block = whole.without_zero_weights()
        self.zero_weights += len(whole) - len(block)
        self.queries += block.queries
        self.lacking.update(block.lacking)
        for text in whole.keys or ():
            self.group_of.setdefault(text, len(self.group_of))
        if block.keys is not None:
            self.groups.append(np.array([self.group_of[text] for text in block.keys], np.int64))
        elif block.groups is not None:
            self.groups.append(block.groups)
        # Columns of kernel values are those of all rows of the file.
        self._add_features(whole if self.options.has_row_numbers else block)
        return block

    def _add_features(self, block: ParsedRows) -> None:
        if not np.array_equal(self.features, block.features):
            self.features = sorted_union(self.features, block.features)
        if block.number is not None and len(block):
            assert self.known is not None, "row numbers are read from files only"
            # Row numbers count as indices, because a column of zeros need not be written.
            numbers = row_numbers(block.X)
            self.features = sorted_union(self.features, np.unique(numbers).astype(np.int32))
            self.written = max(self.written, int(block.features[-1]))
            largest = block.number, self.known.path
            self.last = max(self.last, largest, key=lambda number: int(number[0].text))

    def _add(self, chunk: RawChunk) -> None:
        self.n += len(chunk)
        self.nnz += chunk.nonzeros
        self.float64 = self.float64 or chunk.X.dtype == np.float64
        self.digest.add(chunk)
        weights = chunk.weights
        self.weighted = self.weighted or (weights is not None and bool((weights != 1).any()))
        has_classes = self.options.labels == "class"
        y = (chunk.y if has_classes else np.zeros(len(chunk))).astype(np.int64)
        # A chunk may have new classes.
        more = max(0, int(y.max(initial=0)) + 1 - self.of_classes.shape[1])
        counts, sums, rest = np.pad(self.of_classes, ((0, 0), (0, more)))
        of_chunk = sums_of_classes(y, weights, len(counts))
        total = sums + of_chunk
        # Knuth's two-sum
        part = total - sums
        rest += (sums - (total - part)) + (of_chunk - part)
        self.of_classes = np.array([counts + np.bincount(y, minlength=len(counts)), total, rest])

    def summary(self, labels: Sequence[str], columns: Columns | None = None) -> Summary:
        """Return the summary, after the last chunk. labels: of all classes"""
        has_classes = self.options.labels == "class"
        sums = self.of_classes if has_classes else self.of_classes[:, :0]
        # Rows of the last classes may all have the weight 0.
        counts, weights, rest = np.pad(sums, ((0, 0), (0, len(labels) - sums.shape[1])))
        return Summary(
            n=self.n,
            nnz=self.nnz,
            features=self.features,
            labels=tuple(labels),
            counts=tuple(counts.astype(int).tolist()),
            digest=self.digest.of(labels),
            float64=self.float64,
            weighted=self.weighted,
            total_weight=math.fsum(self.of_classes[1:].ravel().tolist()),
            total_weight_by_class=tuple((weights + rest).tolist()),
            queries=self.queries,
            has_row_numbers=self.options.has_row_numbers,
            zero_weights=self.zero_weights,
            columns=columns,
            groups=np.concatenate(self.groups) if self.groups else None,
        )


# ---- files ------------------------------------------------------------------------------------


# Returns the blocks of a file.
Reader = Callable[..., Generator[ParsedRows, None, None]]


def labelled_blocks(
    paths: Sequence[str],
    read: Reader,
    known: LabelTable,
    options: ParseOptions,
    weights: RowWeights | None = None,
    watch: Watch = emit,
    threads: int = 1,
) -> Generator[ParsedRows, None, None]:
    """Yield the blocks of files in order; ParsedRows.y : (m,) float64, class numbers or targets.

    known: learns the labels; its path is that of the current file. weights: of the rows, from a
    file of their own, which is open. watch: receives the events.
    """
    for path, listener in with_progress(paths, watch):
        known.path = path
        with closing(read(path, options, threads=threads, watch=listener)) as blocks:
            for block in blocks:
                rows = block if weights is None else weights.of(block)
                is_number = options.labels == "number"
                yield rows if is_number else replace(rows, y=known.classes(rows))
    if weights is not None:
        weights.check_end()


def with_progress(paths: Sequence[str], watch: Watch) -> Iterator[tuple[str, Watch]]:
    """Yield each file, and the listener of its events, which reports the progress of all files."""
    sizes = [size_of(path) for path in paths]
    total = None if None in sizes else sum(filter(None, sizes))
    before = 0

    def listener(event: object) -> None:
        if isinstance(event, Progress) and len(paths) > 1 and event.stage == "reading":
            event = event._replace(done=before + event.done, total=total)
        watch(event)

    for path, size in zip(paths, sizes, strict=True):
        yield path, listener
        before += size or 0


@contextmanager
def reader_of(
    paths: Sequence[str], options: ParseOptions, threads: int, tmpdir: str | None
) -> Iterator[tuple[Reader, Columns | None]]:
    """Yield the reader of the files' format, and the columns of tables: finding these takes a pass.

    tmpdir: the folder for copies of pipes, which are read twice.
    """
    if options.table is None:
        yield read_blocks, None
        return
    # Imported here because few runs read tables.
    from randsvm.data import table

    with table.opener_of(paths, tmpdir) as opener:
        columns = table.learn(with_progress(paths, emit), options.table, threads, opener)
        keep = () if options.table.group is None else (options.table.group,)
        yield partial(table.read_blocks, columns=columns, keep=keep, opener=opener), columns


def read_files(
    paths: Sequence[str],
    options: ParseOptions,
    keep: Callable[[RawChunk], object],
    threads: int,
    tmpdir: str | None = None,
) -> Summary:
    """Parse and validate all files in order, and call `keep` with each chunk in order.

    tmpdir: see `reader_of`.
    """
    labels = LabelTable(paths[0], any_label=options.any_label)
    first_pass, name, weights = FirstPass(options, labels), joint_name(paths), None
    if options.row_weights is not None:
        weights = RowWeights(options.row_weights, name)
    # After an error this thread ends the threads of the reader. If the garbage collector ended
    # them, it could do so in a thread that is just starting, which is a deadlock.
    with (
        weights or nullcontext(),
        reader_of(paths, options, threads, tmpdir) as (read, columns),
        closing(labelled_blocks(paths, read, labels, options, weights, threads=threads)) as blocks,
    ):
        for chunk in first_pass.chunks(blocks):
            keep(chunk)
    for text in remarks(first_pass.lacking):
        emit(Notice(text))
    if not first_pass.n:
        problem = "expected a row, found an empty file"
        if first_pass.zero_weights:
            zeros = f"the weight 0 in all {first_pass.zero_weights:,}"
            problem = f"expected a row with a weight above 0, found {zeros}"
        raise DataError(name, 1, 1, problem)
    summary = first_pass.summary(labels.labels, columns)
    if not (options.any_label or all(summary.counts)):
        path, first = labels.places[summary.counts.index(0)]
        problem = f"expected a weight above 0 in a row of label {first.text}, found only 0"
        raise DataError(display_name(path), first.line, first.column, problem)
    number, path = first_pass.last
    if int(number.text) > first_pass.written:
        problem = (
            f"expected a number of a row up to {first_pass.written}, the last column of kernel "
            f"values, found {number.text}"
        )
        raise DataError(display_name(path), number.line, number.column, problem)
    return summary
