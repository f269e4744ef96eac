"""Tables of delimited fields (CSV and TSV): their columns, and their rows as blocks.

A first pass finds which columns hold numbers and the categories of the others; a second pass
yields rows with the features that `Columns` defines. Fields follow RFC 4180: a field in double
quotes may hold delimiters, newlines and doubled quotes. Blanks around a field are not part of it.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, NamedTuple

import numpy as np

import randsvm.data._table as _table
from randsvm import files
from randsvm.data.columns import (
    DELIMITERS,
    MISSING_WORDS,
    Column,
    Columns,
    TableOptions,
    fields_of,
)
from randsvm.data.svmlight import (
    BLOCK_SIZE,
    NOT_FINITE,
    NUMBER,
    PADDING,
    UNLABELLED,
    Block,
    Fault,
    Labels,
    LineTooLongError,
    Spelling,
    data_error,
    pieces,
)
from randsvm.errors import DataError, quoted
from randsvm.events import Watch, silent
from randsvm.parallel import ThreadPool

MOST_CATEGORIES = _table.MOST_CATEGORIES
# Characters that a label in a model or an output cannot have.
NOT_IN_LABELS = re.compile(r"[\x00-\x20\x7f,:]")
# Names that a message lists.
MOST_NAMES = 10

# Opens a file for reading, from its start.
Opener = Callable[[str], AbstractContextManager[BinaryIO]]


class Inputs:
    """The files of tables, which are read twice: pipes are copied to unnamed temporary files."""

    def __init__(self, paths: Sequence[str], tmpdir: str | None) -> None:
        """tmpdir: the folder of the copies; None: the system's."""
        self.copies: dict[str, BinaryIO] = {}
        with ExitStack() as stack:
            for path in paths:
                if files.size_of(path) is None:
                    copy: BinaryIO = stack.enter_context(tempfile.TemporaryFile(dir=tmpdir))
                    with files.open_input(path) as stream:
                        shutil.copyfileobj(stream, copy, BLOCK_SIZE)
                    copy.flush()
                    self.copies[path] = copy
            self._stack = stack.pop_all()

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """Open a file or the copy of a pipe."""
        if path in self.copies:
            self.copies[path].seek(0)
            yield self.copies[path]
            return
        with files.open_input(path) as stream:
            yield stream

    def close(self) -> None:
        """Delete the copies."""
        self._stack.close()


# ---- reading ----------------------------------------------------------------------------------


class _Table(NamedTuple):
    """An open table.

    names: of its columns; first_line: of the first record; texts: complete records and PADDING
    """

    name: str
    names: list[str]
    first_line: int
    texts: Iterator[bytes]


@contextmanager
def _opened(
    path: str, delimiter: str, header: bool, watch: Watch, opener: Opener, block_size: int
) -> Iterator[_Table]:
    """Open a table and read the names of its columns. Raises DataError."""
    name = files.display_name(path)
    with opener(path) as stream:
        ends = _table.RecordEnds(ord(delimiter))
        texts = pieces(stream, path, block_size, watch, record_end=ends.last)
        first = next(texts)
        try:
            # The first piece may hold nothing but the start of the file.
            while len(first) == len(PADDING):
                first = next(texts)
        except StopIteration:
            raise DataError(name, 1, 1, "expected a row, found an empty file") from None
        names, lines = _first_record(first, delimiter, name)
        if not header:
            names, lines = [str(number + 1) for number in range(len(names))], 0
        rest = memoryview(first)[_end_of_line(first, lines) :]
        yield _Table(name, names, lines + 1, itertools.chain([bytes(rest)], texts))


def _end_of_line(text: bytes, lines: int) -> int:
    end = 0
    for _ in range(lines):
        end = text.find(b"\n", end) + 1
    return min(end, len(text) - len(PADDING))


def _first_record(text: bytes, delimiter: str, name: str) -> tuple[list[str], int]:
    """Return the fields of the first record, and its last line. Raises DataError."""
    content = text[: -len(PADDING)]
    nul = content.find(b"\0", 0, content.find(b"\n") + 1)
    if nul >= 0:
        raise DataError(name, 1, nul + 1, "expected text, found a NUL byte")
    lines = io.StringIO(files.decoded(content), newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        names = next(filter(None, reader), [])
    except csv.Error as error:
        problem = f"expected the names of columns: {error}"
        raise DataError(name, max(1, reader.line_num), 1, problem) from None
    return [one.strip(" \t") for one in names], reader.line_num


def _check_names(table: _Table) -> None:
    """Raise DataError unless all columns have different names."""
    for one, times in Counter(table.names).items():
        if times > 1 and one:
            problem = f"expected different names of columns, found {quoted(one)} {times} times"
            raise DataError(table.name, 1, 1, problem)


def _no_column(table: _Table, wanted: str) -> DataError:
    more = ", ..." if len(table.names) > MOST_NAMES else ""
    found = ", ".join(map(quoted, table.names[:MOST_NAMES])) + more
    return DataError(table.name, 1, 1, f"expected a column {quoted(wanted)}, found {found}")


def _place(table: _Table, wanted: str) -> int:
    """Return the position of a column given by its name, or else by its number from 1."""
    if wanted in table.names:
        return table.names.index(wanted)
    if wanted.isdigit() and 1 <= int(wanted) <= len(table.names):
        return int(wanted) - 1
    raise _no_column(table, wanted)


@dataclass
class _Piece:
    """The rows of a piece of text before its first fault.

    texts: of each column the sum and the count of numbers, and the distinct texts, if wanted
    """

    block: Block
    spellings: list[tuple[bytes, int, int]]
    lines: int
    fault: Fault | None
    unseen: list[int]
    texts: list[tuple[float, int, list[tuple[bytes, int, int]]]]


def _parse(
    text: bytes,
    layout: _table.Layout,
    names: Sequence[str],
    delimiter: str,
    unlabelled: bool,
    float64: bool,
    order: Sequence[int],
    learns: bool,
) -> _Piece:
    rows, fields = _table.count(text, ord(delimiter))
    room = 1 if learns else fields
    codes, y, indptr = np.empty(rows, np.int32), np.empty(rows), np.empty(rows + 1, np.int64)
    indices, values = np.empty(room, np.int32), np.empty(room)
    spans: np.ndarray = np.empty(1 + 2 * len(order) * rows, np.int64)
    records = _table.Records(layout)
    records.parse(text, unlabelled, codes, y, indptr, indices, values, spans)
    m, entries = records.rows, records.entries
    indices, values = indices[:entries], values[:entries]
    present = np.flatnonzero(np.bincount(indices)) if entries else np.empty(0)
    block = Block(
        codes=codes[:m],
        spellings=[],
        y=y[:m],
        indptr=indptr[: m + 1],
        indices=indices,
        values=values if float64 else values.astype(np.float32),
        features=present.astype(np.int32),
        queries=0,
        keys=_keys(text, spans, m, order, delimiter) if order else None,
    )
    found = [records.column(i) for i in range(layout.width)] if learns else []
    fault = _fault(records, names)
    return _Piece(block, records.spellings(), records.lines, fault, records.unseen_texts(), found)


def _keys(
    text: bytes, spans: np.ndarray, rows: int, order: Sequence[int], delimiter: str
) -> list[str]:
    """Return the kept fields of each row as they are written, with delimiters between them.

    spans : the first byte and the end of each field; order : of the fields in the result
    """
    kept = len(set(order))
    ends = spans[: 2 * kept * rows].reshape(rows, kept, 2)[:, order].tolist()
    join = delimiter.encode().join
    return [files.decoded(join([text[a:b] for a, b in row])) for row in ends]


def _fault(records: _table.Records, names: Sequence[str]) -> Fault | None:
    bad = records.bad_field()
    if bad is None:
        return None
    kind, place, content, line, column = bad
    if kind == _table.WIDTH:
        found = "more" if place > len(names) else f"{place}"
        return Fault(line, column, f"expected {len(names)} fields, found {found}")
    where = f"in column {quoted(names[place])}"
    if kind == _table.NUL:
        problem = f"expected text {where}, found a NUL byte"
    elif kind == _table.UNCLOSED:
        problem = f"expected a quote at the end of a field {where}, found the end of the file"
    elif kind == _table.AFTER_QUOTE:
        problem = f"expected the end of a field {where} after its quote, found {quoted(content)}"
    elif kind == _table.MISSING:
        found = quoted(content) if content else "an empty field"
        problem = f"expected a value {where}, found {found} (--missing mean fills features)"
    else:
        text = files.decoded(content)
        finite = "a finite number" if NOT_FINITE.fullmatch(text) else "a number"
        expected = "a number within float32 (3.4e38)" if NUMBER.fullmatch(text) else finite
        problem = f"expected {expected} {where}, found {quoted(content)}"
    return Fault(line, column, problem)


def _pieces_of(
    table: _Table,
    layout: _table.Layout,
    delimiter: str,
    jobs: int,
    *,
    unlabelled: bool = False,
    float64: bool = False,
    order: Sequence[int] = (),
    learns: bool = False,
) -> Generator[tuple[int, _Piece], None, None]:
    """Yield the first line of each piece, and the piece, parsed by `jobs` threads.

    Raises DataError after the rows before the first bad one.
    """
    work = partial(
        _parse,
        layout=layout,
        names=table.names,
        delimiter=delimiter,
        unlabelled=unlabelled,
        float64=float64,
        order=order,
        learns=learns,
    )
    line = table.first_line
    with ThreadPool(jobs) as pool:
        try:
            for piece in pool.map_in_order(work, table.texts, jobs):
                yield line, piece
                if piece.fault:
                    raise data_error(table.name, piece.fault, line)
                line += piece.lines
        except LineTooLongError as error:
            raise DataError(table.name, line, 1, str(error)) from None


# ---- the columns ------------------------------------------------------------------------------


@dataclass
class _Learnt:
    """The content of a column: its numbers, and its texts with the place of each first one.

    complete: whether numbers are among the texts, too
    """

    sum: float = 0.0
    count: int = 0
    texts: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    complete: bool = False

    @property
    def is_text(self) -> bool:
        """Whether there is a text that does not stand for a missing number."""
        return any(text.lower() not in MISSING_WORDS for text in self.texts)

    @property
    def is_known(self) -> bool:
        return self.complete or not (self.count and self.is_text)

    def add(
        self,
        found: tuple[float, int, list[tuple[bytes, int, int]]],
        name: str,
        first_line: int,
        column: str,
    ) -> None:
        """Add what a piece has in the column. Raises DataError for too many texts."""
        self.sum += found[0]
        self.count += found[1]
        for content, line, place in found[2]:
            self.texts.setdefault(files.decoded(content), (name, first_line + line - 1, place))
        if len(self.texts) > MOST_CATEGORIES:
            words = (text for text in self.texts if not NUMBER.fullmatch(text))
            text = next(words, next(iter(self.texts)))
            problem = (
                f"expected numbers or at most {MOST_CATEGORIES:,} different texts in column "
                f"{quoted(column)}, found more (--ignore-columns leaves it out), such as "
                f"{quoted(text)}"
            )
            raise DataError(*self.texts[text], problem)

    def column(self, column: str, fill: bool, name: str) -> Column:
        """Return the column. Raises DataError if it has no content or an infinite number."""
        if not self.is_text and self.count:
            return Column(column, None, self.sum / self.count if fill else None)
        if not self.texts:
            problem = f"expected values in column {quoted(column)}, found none"
            raise DataError(name, 1, 1, f"{problem} (--ignore-columns leaves it out)")
        for text, place in self.texts.items():
            if self.count and NOT_FINITE.fullmatch(text) and text.lower() not in MISSING_WORDS:
                expected = f"a finite number in column {quoted(column)}"
                raise DataError(*place, f"expected {expected}, found {quoted(text)}")
        return Column(column, tuple(sorted(self.texts, key=files.encoded)))


def learn(
    paths: Sequence[str],
    options: TableOptions,
    jobs: int,
    opener: Opener,
    *,
    watch: Watch = silent,
    block_size: int = BLOCK_SIZE,
) -> Columns:
    """Return the columns of files with the same columns. Raises DataError.

    A column is a number if all its fields are numbers or missing. If numbers and texts are mixed,
    the files are read once more, for the numbers as categories.
    """
    learnt: dict[str, _Learnt] = {}
    label = None
    while not learnt or not all(one.is_known for one in learnt.values()):
        again = bool(learnt)
        wanted = [name for name, one in learnt.items() if not one.is_known]
        for path in paths:
            delimiter = DELIMITERS[options.format]
            with _opened(path, delimiter, options.header, watch, opener, block_size) as table:
                _check_names(table)
                left_out = _left_out(table, options)
                if options.label is not None:
                    label = table.names[_place(table, options.label)]
                if not again:
                    names = [name for name in table.names if name not in left_out]
                    if learnt and set(names) != learnt.keys():
                        other = next(iter(learnt.keys() ^ set(names)))
                        problem = f"expected the columns of {files.display_name(paths[0])}"
                        found = f"{quoted(other)} in one file only"
                        raise DataError(table.name, 1, 1, f"{problem}, found {found}")
                    if not names:
                        raise DataError(table.name, 1, 1, "expected a column of features")
                    for name in names if not learnt else ():
                        learnt[name] = _Learnt()
                    roles = dict.fromkeys(names, _table.UNKNOWN)
                else:
                    roles = dict.fromkeys(wanted, _table.CATEGORY)
                _learn_file(table, roles, learnt, delimiter, jobs)
        for name in wanted:
            learnt[name].complete = True
    first = files.display_name(paths[0])
    columns = tuple(one.column(name, options.fill, first) for name, one in learnt.items())
    return Columns(options.format, options.header, label, options.fill, columns)


def _left_out(table: _Table, options: TableOptions) -> set[str]:
    """Return the names of columns that are no features. Raises DataError for an unknown one."""
    names = [options.label, *fields_of(options.ignored)]
    return {table.names[_place(table, name)] for name in names if name is not None}


def _learn_file(
    table: _Table,
    roles: Mapping[str, int],
    learnt: Mapping[str, _Learnt],
    delimiter: str,
    jobs: int,
) -> None:
    width = len(table.names)
    own = np.array([roles.get(name, _table.IGNORED) for name in table.names], np.int8)
    layout = _table.Layout(
        ord(delimiter), own, np.zeros(width, np.uint8), np.zeros(width, np.int32),
        np.full(width, np.nan), True, [[] for _ in range(width)],
    )  # fmt: skip
    with closing(_pieces_of(table, layout, delimiter, jobs, learns=True)) as parsed:
        for line, piece in parsed:
            for name, found in zip(table.names, piece.texts, strict=True):
                if name in roles:
                    learnt[name].add(found, table.name, line, name)


# ---- the rows ---------------------------------------------------------------------------------


def read_blocks(
    path: str,
    columns: Columns,
    *,
    labels: Labels,
    zero_based: bool = False,
    unlabelled: bool = False,
    float64: bool = False,
    jobs: int = 1,
    watch: Watch = silent,
    block_size: int = BLOCK_SIZE,
    keep: Sequence[str] = (),
    unseen: Counter[str] | None = None,
    opener: Opener = files.open_input,
) -> Generator[Block, None, None]:
    """Yield the rows of a table in order, parsed by `jobs` threads.

    The columns may have another order than in `columns`, and others may be among them. unlabelled:
    the label may be missing. keep: names of columns whose text `Block.keys` holds. unseen: counts
    the texts of each column that are no category. Memory and errors are those of
    svmlight.read_blocks.
    """
    delimiter = DELIMITERS[columns.format]
    clean = _CleanLabels(files.display_name(path))
    with _opened(path, delimiter, columns.header, watch, opener, block_size) as table:
        _check_names(table)
        layout, has_label = _layout(table, columns, labels, zero_based, unlabelled, keep)
        places = [_place(table, name) for name in keep]
        order = [sorted(set(places)).index(place) for place in places]
        parsed = _pieces_of(
            table, layout, delimiter, jobs,
            unlabelled=unlabelled, float64=float64, order=order,
        )  # fmt: skip
        with closing(parsed):
            for line, piece in parsed:
                block = piece.block
                if not has_label:
                    block.codes.fill(0)
                    block.y.fill(np.nan)
                    block.spellings.append(Spelling(UNLABELLED, line, 1))
                block.spellings.extend(
                    clean.spelling(files.decoded(content), line + row - 1, column)
                    for content, row, column in piece.spellings
                )
                if unseen is not None:
                    unseen.update(
                        {
                            name: count
                            for name, count in zip(table.names, piece.unseen, strict=True)
                            if count
                        }
                    )
                if len(block) or block.spellings:
                    yield block


def _layout(
    table: _Table,
    columns: Columns,
    labels: Labels,
    zero_based: bool,
    unlabelled: bool,
    keep: Sequence[str],
) -> tuple[_table.Layout, bool]:
    """Return the layout of a file, and whether it has the column of the label."""
    width = len(table.names)
    roles: np.ndarray = np.full(width, _table.IGNORED, np.int8)
    kept: np.ndarray = np.zeros(width, np.uint8)
    starts: np.ndarray = np.zeros(width, np.int32)
    means = np.full(width, np.nan)
    categories: list[list[bytes]] = [[] for _ in range(width)]
    for column, start in columns.with_starts(zero_based):
        if column.name not in table.names:
            raise _no_column(table, column.name)
        at = table.names.index(column.name)
        roles[at] = _table.NUMBER if column.categories is None else _table.TEXT
        starts[at] = start
        means[at] = np.nan if column.mean is None else column.mean
        categories[at] = [files.encoded(text) for text in column.categories or ()]
    label = columns.label
    has_label = label is not None and label in table.names
    if has_label and label is not None:
        role = _table.TARGET if labels == "number" else _table.CLASS
        roles[table.names.index(label)] = role
    elif label is not None and not unlabelled:
        raise _no_column(table, label)
    for name in keep:
        kept[_place(table, name)] = 1
    delimiter = ord(DELIMITERS[columns.format])
    layout = _table.Layout(delimiter, roles, kept, starts, means, columns.fill, categories)
    return layout, has_label


class _CleanLabels:
    """Labels as a model and an output can hold them: blanks, commas and colons become _."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.originals: dict[str, str] = {}

    def spelling(self, text: str, line: int, column: int) -> Spelling:
        """Return a label. Raises DataError if two labels become the same."""
        text = text or UNLABELLED
        label = NOT_IN_LABELS.sub("_", text)
        original = self.originals.setdefault(label, text)
        if original != text:
            problem = f"expected labels that differ in more than blanks, found {quoted(text)} and"
            raise DataError(self.name, line, column, f"{problem} {quoted(original)}")
        return Spelling(label, line, column)
