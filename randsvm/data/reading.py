"""The pass that parses and validates the data: it turns text into chunks, and sums them up.

Where chunks are cut depends on the rows alone, never on memory, jobs or compression. Knows nothing
of where chunks are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from randsvm.arrays import sorted_union
from randsvm.data.chunks import RawChunk, cut_chunks
from randsvm.data.columns import Columns, TableOptions
from randsvm.data.labels import LabelTable
from randsvm.data.row_weights import RowWeights
from randsvm.data.svmlight import Block, Labels, Spelling, read_blocks, row_numbers
from randsvm.errors import DataError
from randsvm.events import Progress, Watch, emit
from randsvm.files import display_name, joint_name, size_of

# A chunk is the unit of parallel work. It ends when it has this many rows or nonzeros.
CHUNK_ROWS = 8192
CHUNK_NONZEROS = 1 << 20


def hexdigest(chunks: Iterable[bytes], labels: Sequence[str]) -> str:
    """Return the digest of a data set from those of its chunks, in order, and its labels."""
    return hashlib.sha256(json.dumps(list(labels)).encode() + b"".join(chunks)).hexdigest()


def chunk_digest(chunk: RawChunk) -> bytes:
    """Return the sha256 of labels, row lengths, indices, values, and of weights other than 1."""
    found = hashlib.sha256()
    for array in (chunk.y, np.diff(chunk.indptr), chunk.indices, chunk.values):
        found.update(array.data)
    if chunk.weights is not None and (chunk.weights != 1).any():
        found.update(np.ascontiguousarray(chunk.weights).data)
    return found.digest()


@dataclass(frozen=True)
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


class Totals:
    """Adds up chunks to the summary of a data set, whatever the source of the rows.

    classes: whether y has class numbers
    """

    def __init__(self, classes: bool) -> None:
        self.classes, self.n, self.nnz, self.weight = classes, 0, 0, 0.0
        self.float64 = self.weighted = False
        self.digests: list[bytes] = []
        # The number of rows of each class, and the sum of their weights.
        self.of_classes = np.zeros((2, 0))

    def add(self, chunk: RawChunk) -> None:
        self.n += len(chunk.y)
        self.nnz += len(chunk.values)
        self.float64 = self.float64 or chunk.values.dtype == np.float64
        self.digests.append(chunk_digest(chunk))
        weights = np.ones(len(chunk.y)) if chunk.weights is None else chunk.weights
        self.weighted = self.weighted or bool((weights != 1).any())
        self.weight += float(weights.sum())
        if self.classes:
            y, seen = chunk.y.astype(np.int64), self.of_classes.shape[1]
            more = np.array([np.bincount(y, of_rows, seen) for of_rows in (None, weights)])
            more[:, :seen] += self.of_classes
            self.of_classes = more

    def summary(self, labels: Sequence[str], features: np.ndarray, **more: Any) -> Summary:
        """Return the summary. labels: of all classes. more: see Summary"""
        # Rows of the last classes may all have the weight 0.
        missing = len(labels) - self.of_classes.shape[1]
        counts, weights = np.pad(self.of_classes, ((0, 0), (0, missing)))
        return Summary(
            n=self.n,
            nnz=self.nnz,
            features=features,
            labels=tuple(labels),
            counts=tuple(counts.astype(int).tolist()),
            digest=hexdigest(self.digests, labels),
            float64=self.float64,
            weighted=self.weighted,
            total_weight=self.weight,
            total_weight_by_class=tuple(weights.tolist()),
            **more,
        )


@dataclass(frozen=True)
class ParseOptions:
    """The options that change what is parsed, and how D is cut into chunks.

    labels: class or number. any_label: see LabelTable. has_row_numbers: rows are those of a
    precomputed kernel and begin with 0:number, which needs zero_based. float64: see parse_piece.
    row_weights: the name of a file of weights, one for each row. table: how a table is read; None:
    the format is svmlight. groups: whether the groups of rows are kept: their qids in svmlight.
    """

    labels: Labels = "class"
    zero_based: bool = False
    any_label: bool = False
    has_row_numbers: bool = False
    float64: bool = False
    chunk_rows: int = CHUNK_ROWS
    chunk_nonzeros: int = CHUNK_NONZEROS
    row_weights: str | None = None
    table: TableOptions | None = None
    groups: bool = False

    @property
    def weight_files(self) -> list[str]:
        """Return the file of weights, if there is one."""
        return [] if self.row_weights is None else [self.row_weights]


class _Features:
    """The distinct indices of a file. Row numbers count as indices, because a column of zeros need
    not be written."""

    def __init__(self) -> None:
        # Of the file that is read.
        self.path = ""
        self.indices = np.empty(0, np.int32)
        # The largest feature index in the data, and the largest row number with its file.
        self.written = 0
        self.number = "", Spelling("0", 0, 0)

    def add(self, block: Block) -> None:
        if not np.array_equal(self.indices, block.features):
            self.indices = sorted_union(self.indices, block.features)
        if block.number is None or not len(block):
            return
        numbers = row_numbers(block.indptr, block.indices, block.values)
        self.indices = sorted_union(self.indices, np.unique(numbers).astype(np.int32))
        self.written = max(self.written, int(block.features[-1]))
        if int(block.number.text) > int(self.number[1].text):
            self.number = self.path, block.number

    def check(self) -> None:
        """Raise DataError if a row has a number without a column."""
        path, number = self.number
        if int(number.text) > self.written:
            problem = (
                f"expected a number of a row up to {self.written}, the last column of kernel "
                f"values, found {number.text}"
            )
            raise DataError(display_name(path), number.line, number.column, problem)


def _blocks(
    paths: Sequence[str],
    options: ParseOptions,
    labels: LabelTable,
    features: _Features,
    jobs: int,
    read: Reader,
) -> Generator[Block, None, None]:
    """Yield the blocks of all files, and set the path of `labels` and `features` to the current
    file.
    """
    own: dict[str, bool] = {}
    if options.table is None:
        own = {"has_row_numbers": options.has_row_numbers, "groups": options.groups}
    progress = ReadingProgress(paths, emit)
    for path in paths:
        labels.path = features.path = path
        yield from read(
            path,
            labels=options.labels,
            zero_based=options.zero_based,
            unlabelled=options.any_label,
            jobs=jobs,
            watch=progress.on_event,
            **own,
        )
        progress.next_file()


class ReadingProgress:
    """Reports the progress of one pass over several files as that of one. watch: receives the
    events."""

    def __init__(self, paths: Sequence[str], watch: Watch) -> None:
        self.watch = watch
        sizes = [size for path in paths if (size := size_of(path)) is not None]
        self.several = len(paths) > 1
        self.total = sum(sizes) if len(sizes) == len(paths) else None
        self.before = self.done = 0

    def on_event(self, event: object) -> None:
        """Pass on an event of the current file, with the progress of all files."""
        if isinstance(event, Progress) and self.several and event.stage == "reading":
            self.done = self.before + event.done
            event = event._replace(done=self.done, total=self.total)
        self.watch(event)

    def next_file(self) -> None:
        self.before = self.done


# Returns the blocks of a file.
Reader = Callable[..., Iterator[Block]]


@contextmanager
def reader_of(
    paths: Sequence[str], options: ParseOptions, jobs: int, tmpdir: str | None
) -> Iterator[tuple[Reader, Columns | None]]:
    """Yield the reader of the files' format, and the columns of tables: finding these takes a pass.

    tmpdir: the folder for copies of pipes, which are read twice.
    """
    if options.table is None:
        yield read_blocks, None
        return
    # Imported here because few runs read tables.
    from randsvm.data import table

    progress = ReadingProgress(paths, emit)
    with table.opener_of(paths, tmpdir) as opener:
        columns = table.learn(
            paths,
            options.table,
            jobs,
            opener,
            watch=progress.on_event,
            next_file=progress.next_file,
        )
        group = options.table.group
        keep = () if group is None else (group,)
        yield partial(table.read_blocks, columns=columns, opener=opener, keep=keep), columns


def first_pass(
    paths: Sequence[str],
    options: ParseOptions,
    keep: Callable[[RawChunk], object],
    jobs: int,
    tmpdir: str | None = None,
) -> Summary:
    """Parse and validate all files in order, and call `keep` with each chunk in order.

    tmpdir: see `reader_of`.
    """
    labels, features = LabelTable(paths[0], any_label=options.any_label), _Features()
    has_classes = options.labels == "class"
    totals, groups = Totals(has_classes), list[np.ndarray]()
    # The number of each text of the column of groups, in order of appearance.
    numbers: dict[str, int] = {}
    queries = zero_weights = 0

    def rows_of(blocks: Iterable[Block]) -> Iterator[RawChunk]:
        nonlocal queries, zero_weights
        for whole in blocks:
            block = whole.without_zero_weights()
            for text in whole.keys or ():
                numbers.setdefault(text, len(numbers))
            if block.keys is not None:
                groups.append(np.array([numbers[text] for text in block.keys], np.int64))
            elif block.groups is not None:
                groups.append(block.groups)
            zero_weights += len(whole) - len(block)
            y = labels.classes(block) if has_classes else block.y
            # Columns of kernel values are those of all rows of the file.
            features.add(whole if options.has_row_numbers else block)
            queries += block.queries
            yield RawChunk(y, block.indptr, block.indices, block.values, block.weights)

    # After an error this thread ends the threads of the reader. If the garbage collector ended
    # them, it could do so in a thread that is just starting, which is a deadlock.
    with (
        reader_of(paths, options, jobs, tmpdir) as (read, columns),
        closing(_blocks(paths, options, labels, features, jobs, read)) as blocks,
    ):
        weighted: Iterable[Block] = blocks
        if options.row_weights is not None:
            weighted = RowWeights(options.row_weights, joint_name(paths)).in_blocks(blocks)
        size = options.chunk_rows, options.chunk_nonzeros
        for chunk in cut_chunks(rows_of(weighted), *size, split=True):
            totals.add(chunk)
            keep(chunk)
    if not totals.n:
        problem = "expected a row, found an empty file"
        if zero_weights:
            found = f"the weight 0 in all {zero_weights:,}"
            problem = f"expected a row with a weight above 0, found {found}"
        raise DataError(joint_name(paths), 1, 1, problem)
    summary = totals.summary(
        labels.labels,
        features.indices,
        queries=queries,
        has_row_numbers=options.has_row_numbers,
        zero_weights=zero_weights,
        columns=columns,
        groups=np.concatenate(groups) if groups else None,
    )
    if not (options.any_label or all(summary.counts)):
        path, first = labels.places[summary.counts.index(0)]
        problem = f"expected a weight above 0 in a row of label {first.text}, found only 0"
        raise DataError(display_name(path), first.line, first.column, problem)
    features.check()
    return summary
