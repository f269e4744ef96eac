"""Byte ranges of tables for the workers of a cluster.

A first pass finds which columns hold numbers and the categories of the others; a second pass
yields rows with the features that `Columns` defines. `delimited` reads CSV and TSV, `parquet`
Parquet.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

import randsvm.data._table as _table
from randsvm import files
from randsvm.data import delimited
from randsvm.data.chunks import copied
from randsvm.data.columns import (
    DELIMITERS,
    MISSING_WORDS,
    Column,
    Columns,
    Format,
    TableOptions,
    fields_of,
    written_record,
)
from randsvm.data.svmlight import (
    BLOCK_SIZE,
    NOT_FINITE,
    NUMBER,
    UNLABELLED,
    Block,
    Labels,
    Spelling,
)
from randsvm.data.table_pieces import ColumnRoles, Content, Opener, Piece, Table
from randsvm.errors import DataError, ParameterError, quoted
from randsvm.events import Watch, silent

MAX_CATEGORIES = _table.MAX_CATEGORIES
# Characters that a label in a model or an output cannot have.
NOT_IN_LABELS = re.compile(r"[\x00-\x20\x7f,:]")
# Parts of the sum of a column in memory.
MAX_PARTS = 200
# Names that a message lists.
MAX_NAMES = 10


class Inputs:
    """The files of tables, which are read twice: pipes are copied to unnamed temporary files."""

    def __init__(self, paths: Sequence[str], tmpdir: str | None) -> None:
        """tmpdir: the folder of the copies; None: the system's."""
        self.copies: dict[str, BinaryIO] = {}
        with ExitStack() as stack:
            for path in paths:
                if files.size_of(path) is None:
                    with files.open_input(path) as stream:
                        self.copies[path] = stack.enter_context(copied(stream, tmpdir))
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


def _opened(
    path: str, format_: Format, header: bool, watch: Watch, opener: Opener, block_size: int
) -> AbstractContextManager[Table]:
    """Open a table and read the names of its columns. Raises DataError."""
    return delimited.opened(path, DELIMITERS[format_], header, watch, opener, block_size)


def _hint(*parts: str) -> str:
    """Return the end of a message with these parts in brackets, without empty ones."""
    found = "; ".join(filter(None, parts))
    return f" ({found})" if found else ""


def _check_names(table: Table, hint: str = "") -> None:
    """Raise DataError unless all columns have different names. hint : see `_header_hint`"""
    for one, times in Counter(table.names).items():
        if times > 1 and one:
            problem = f"expected different names of columns, found {quoted(one)} {times} times"
            raise DataError(table.name, 1, 1, problem + _hint(hint))


def _header_hint(header: bool, format_: Format) -> str:
    """Return the part of a hint that names --no-header, empty if the option would not apply."""
    return "--no-header if the first line is a row" if header and format_ != "parquet" else ""


def _names_without_header(table: Table, columns: Columns) -> list[str]:
    try:
        return columns.names_without_header(len(table.names))
    except ValueError as error:
        problem = f"expected {error} in a file without a header, found {len(table.names)}"
        raise DataError(table.name, 1, 1, problem) from None


def _no_column(table: Table | DelimitedText, wanted: str, *hints: str) -> DataError:
    more = ", ..." if len(table.names) > MAX_NAMES else ""
    found = ", ".join(map(quoted, table.names[:MAX_NAMES])) + more
    problem = f"expected a column {quoted(wanted)}, found {found}"
    other = next((one for one in ";\t," if one in "".join(table.names)), None)
    if len(table.names) == 1 and other is not None:
        hints = (f"the names seem to be separated by {other!r}",)
    return DataError(table.name, 1, 1, problem + _hint(*hints))


def _place(table: Table | DelimitedText, wanted: str, flag: str, hint: str = "") -> int:
    """Return the position of a column given by its name, or else by its number from 1.

    flag : the option that names the column; hint : see `_header_hint`
    """
    if wanted in table.names:
        return table.names.index(wanted)
    if wanted.isdigit() and 1 <= int(wanted) <= len(table.names):
        return int(wanted) - 1
    raise _no_column(table, wanted, flag, hint)


# ---- the columns ------------------------------------------------------------------------------


@dataclass
class _Learnt:
    """The content of a column: its numbers, and its texts with the place of each first one.

    categorical: whether its numbers are texts, too; missing: more texts that stand for a missing
    number; sums: parts of the sum of its numbers
    """

    categorical: bool
    missing: Sequence[str]

    sums: list[float] = field(default_factory=list)
    count: int = 0
    texts: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    @property
    def words(self) -> list[tuple[str, tuple[str, int, int]]]:
        """The texts that do not stand for a missing number, with their places."""
        # A number among the texts of a column of numbers stands for a missing one.
        return [
            (text, place)
            for text, place in self.texts.items()
            if not (text.lower() in MISSING_WORDS or text in self.missing or NUMBER.fullmatch(text))
        ]

    def add(
        self,
        found: Content,
        name: str,
        first_line: int,
        column: str,
    ) -> None:
        """Add what a piece has in the column. Raises DataError for too many texts."""
        self.sums.extend(found.sums)
        if len(self.sums) > MAX_PARTS:
            self.sums[:] = _table.sum_parts(np.array(self.sums))
        self.count += found.numbers
        for content, line, place in found.texts:
            self.texts.setdefault(files.decoded(content), (name, first_line + line - 1, place))
        if len(self.texts) > MAX_CATEGORIES:
            words = (text for text in self.texts if not NUMBER.fullmatch(text))
            text = next(words, next(iter(self.texts)))
            problem = (
                f"expected numbers or at most {MAX_CATEGORIES:,} different texts in column "
                f"{quoted(column)}, found more (--ignore-columns leaves it out), such as "
                f"{quoted(text)}"
            )
            raise DataError(*self.texts[text], problem)

    def column(self, column: str, fill: bool, name: str) -> Column:
        """Return the column.

        Raises DataError if it has no content, an infinite number, or numbers and texts.
        """
        if self.count:
            self._check_words(column)
            return Column(column, None, math.fsum(self.sums) / self.count if fill else None)
        if not self.texts:
            problem = f"expected values in column {quoted(column)}, found none"
            raise DataError(name, 1, 1, f"{problem} (--ignore-columns leaves it out)")
        return Column(column, tuple(sorted(self.texts, key=files.encoded)))

    def _check_words(self, column: str) -> None:
        """Raise DataError if a column of numbers has an infinite one or a text."""
        words = self.words
        for text, place in words:
            if NOT_FINITE.fullmatch(text):
                expected = f"a finite number in column {quoted(column)}"
                raise DataError(*place, f"expected {expected}, found {quoted(text)}")
        if words:
            text, place = words[0]
            numbers = f"{self.count:,} number{'s' * (self.count > 1)}"
            expected = f"a number in column {quoted(column)}, which has {numbers}"
            more = len(words) - 1
            others = f" and {more:,} other text{'s' * (more > 1)}" * (more > 0)
            hints = (
                f"--missing-values {_shell_record(text)} reads it as missing",
                f"--categorical-columns {_shell_record(column)} makes categories of all values",
            )
            raise DataError(
                *place, f"expected {expected}, found {quoted(text)}{others}{_hint(*hints)}"
            )


def _shell_record(field: str) -> str:
    """Return a record of CSV with one field as a word of a shell."""
    return f"'{written_record([field], ',')}'"


def learn(
    paths: Sequence[str],
    options: TableOptions,
    jobs: int,
    opener: Opener,
    *,
    watch: Watch = silent,
    next_file: Callable[[], None] = lambda: None,
    block_size: int = BLOCK_SIZE,
) -> Columns:
    """Return the columns of files with the same columns. Raises DataError.

    A column is a number if all its fields are numbers or missing; a mixture of numbers and texts
    is refused unless the column is named as categorical. next_file: called after each file.
    """
    learnt: dict[str, _Learnt] = {}
    label, others, rows = None, list[tuple[int, str]](), 0
    first = files.display_name(paths[0])
    hint = _header_hint(options.header, options.format)
    missing = tuple(text.strip(" \t") for text in fields_of(options.missing))
    for path in paths:
        with _opened(path, options.format, options.header, watch, opener, block_size) as table:
            _check_names(table, hint)
            left_out = _left_out(table, options, hint)
            if options.label is not None:
                label = table.names[_place(table, options.label, "--label-column", hint)]
            names = [name for name in table.names if name not in left_out]
            if learnt and set(names) != learnt.keys():
                other = next(iter(learnt.keys() ^ set(names)))
                problem = f"expected the columns of {files.display_name(paths[0])}"
                found = f"{quoted(other)} in one file only"
                raise DataError(table.name, 1, 1, f"{problem}, found {found}")
            if not names:
                raise DataError(table.name, 1, 1, "expected a column of features")
            if not learnt:
                flag = "--categorical-columns"
                places = [
                    _place(table, name, flag, hint) for name in fields_of(options.categorical)
                ]
                categorical = {table.names[place] for place in places}
                if both := categorical & left_out:
                    raise ParameterError(f"{flag} names {quoted(min(both))}, which is no feature")
                learnt = {name: _Learnt(name in categorical, missing) for name in names}
                if options.header:
                    others = [(i, s) for i, s in enumerate(table.names) if s in left_out]
            rows += _learn_file(table, learnt, missing, jobs)
        next_file()
    if not options.header:
        _check_first_row(first, learnt.values())
    if not rows:
        problem = f"expected rows after the names of the columns, found none{_hint(hint)}"
        raise DataError(first, 1, 1, problem)
    columns = tuple(one.column(name, options.fill, first) for name, one in learnt.items())
    return Columns(
        options.format, options.header, label, options.fill, columns, tuple(others), missing
    )


def _left_out(table: Table, options: TableOptions, hint: str) -> set[str]:
    """Return the names of columns that are no features. Raises DataError for an unknown one.

    hint : see `_header_hint`
    """
    flags = [("--label-column", options.label), ("--group-column", options.group)]
    flags += [("--ignore-columns", name) for name in fields_of(options.ignored)]
    places = [_place(table, name, flag, hint) for flag, name in flags if name is not None]
    return {table.names[place] for place in places}


def _check_first_row(name: str, learnt: Iterable[_Learnt]) -> None:
    """Raise DataError if the first row looks like names of columns.

    Then each column that has numbers has one text, in the first row.
    """
    texts = [one.words for one in learnt if one.count]
    if texts and all(len(own) == 1 and own[0][1][:2] == (name, 1) for own in texts):
        found = ", ".join(quoted(own[0][0]) for own in texts[:MAX_NAMES])
        problem = f"expected a row of numbers as the ones below it, found {found}"
        hint = "--no-header reads the first line as a row: leave it out if that names the columns"
        raise DataError(name, 1, 1, problem + _hint(hint))


def _learn_file(
    table: Table, learnt: Mapping[str, _Learnt], missing: Sequence[str], jobs: int
) -> int:
    """Add what the columns of features have; return the number of lines that were read."""
    lines, width = 0, len(table.names)
    roles: np.ndarray = np.full(width, _table.IGNORED, np.int8)
    for place, name in enumerate(table.names):
        if name in learnt:
            roles[place] = _table.CATEGORY if learnt[name].categorical else _table.UNKNOWN
    layout = ColumnRoles(
        roles, np.zeros(width, np.uint8), np.zeros(width, np.int32), np.full(width, np.nan), True,
        [[] for _ in range(width)], list(map(files.encoded, missing)),
    )  # fmt: skip
    with closing(table.pieces(layout, jobs, learns=True)) as parsed:
        for line, piece in parsed:
            lines += piece.lines
            for name, found in zip(table.names, piece.contents, strict=True):
                if name in learnt:
                    learnt[name].add(found, table.name, line, name)
    return lines


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
    no_header: bool = False,
) -> Generator[Block, None, None]:
    """Yield the rows of a table in order, parsed by `jobs` threads.

    The columns may have another order than in `columns`, and others may be among them. unlabelled:
    the label may be missing. keep: names of columns whose text `Block.keys` holds. unseen: counts
    the texts of each column that are no category. no_header: the first line is a row, and the names
    follow from `columns`. Memory and errors are those of svmlight.read_blocks.
    """
    clean = CleanLabels(files.display_name(path))
    header = columns.header and not no_header
    hint = _header_hint(header, columns.format)
    with _opened(path, columns.format, header, watch, opener, block_size) as table:
        if columns.header and no_header:
            table.names = _names_without_header(table, columns)
        _check_names(table, hint)
        layout, has_label = _layout(table, columns, labels, zero_based, unlabelled, keep, hint)
        places = [_place(table, name, "--keep") for name in keep]
        order = [sorted(set(places)).index(place) for place in places]
        parsed = table.pieces(layout, jobs, unlabelled=unlabelled, float64=float64, order=order)
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


@dataclass(frozen=True)
class DelimitedText:
    """Parses ranges of a file of delimited fields, also in other processes.

    names : of the columns of the file. first_line, first_byte : of the first record, without a
    byte order mark. starts : the starts of some records, ascending, int64
    """

    name: str
    names: list[str]
    columns: Columns
    first_line: int
    first_byte: int
    starts: np.ndarray

    def record_start(self, at: int, size: int) -> int:
        """Return the first of `starts` from byte `at` on, `size` if there is none."""
        i = int(np.searchsorted(self.starts, at))
        return int(self.starts[i]) if i < len(self.starts) else size

    def parse(
        self, records: bytes, labels: Labels, zero_based: bool, unlabelled: bool, is_start: bool
    ) -> Piece:
        """Return rows with float64 values. is_start : whether the first record of the file, after
        its header, is the first of `records`"""
        layout, has_label = _layout(self, self.columns, labels, zero_based, unlabelled, ())
        delimiter = DELIMITERS[self.columns.format]
        own = _table.Layout(ord(delimiter), *layout)
        piece = delimited.parse(records, own, self.names, delimiter, layout.label, unlabelled, True)
        if not has_label:
            piece.block.codes.fill(0)
            piece.block.y.fill(np.nan)
            piece.spellings.append((UNLABELLED.encode(), 1, 1))
        more = self.first_line - 1 if is_start else 0
        piece.spellings = [(text, line + more, column) for text, line, column in piece.spellings]
        piece.lines += more
        if piece.fault is not None:
            fault = piece.fault._replace(line=piece.fault.line + more)
            is_hinted = is_start and not self.columns.header
            piece.fault = delimited.with_header_hint(fault) if is_hinted else fault
        return piece


def delimited_text(path: str, columns: Columns, block_size: int) -> DelimitedText:
    """Return the parser of ranges of a plain file; see `record_starts`. Raises DataError."""
    form = columns.format
    with _opened(path, form, columns.header, silent, files.open_input, block_size) as table:
        assert isinstance(table, delimited.DelimitedTable)
        _check_names(table)
        names, first_line, first_byte = table.names, table.first_line, table.first_byte
    starts = delimited.record_starts(path, DELIMITERS[form], block_size)
    return DelimitedText(table.name, names, columns, first_line, first_byte, starts)


def _layout(
    table: Table | DelimitedText,
    columns: Columns,
    labels: Labels,
    zero_based: bool,
    unlabelled: bool,
    keep: Sequence[str],
    hint: str = "",
) -> tuple[ColumnRoles, bool]:
    """Return the layout of a file, and whether it has the column of the label.

    hint : ends the message of a missing column
    """
    width = len(table.names)
    roles: np.ndarray = np.full(width, _table.IGNORED, np.int8)
    kept: np.ndarray = np.zeros(width, np.uint8)
    starts: np.ndarray = np.zeros(width, np.int32)
    means = np.full(width, np.nan)
    categories: list[list[bytes]] = [[] for _ in range(width)]
    for column, start in columns.with_starts(zero_based):
        if column.name not in table.names:
            raise _no_column(table, column.name, hint)
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
        raise _no_column(table, label, hint)
    for name in keep:
        kept[_place(table, name, "--keep")] = 1
    missing = list(map(files.encoded, columns.missing))
    return ColumnRoles(roles, kept, starts, means, columns.fill, categories, missing), has_label


def clean_label(text: str) -> str:
    """Return a label as a model and an output can hold it."""
    return NOT_IN_LABELS.sub("_", text or UNLABELLED)


class CleanLabels:
    """Labels as a model and an output can hold them: blanks, commas and colons become _."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.originals: dict[str, str] = {}

    def spelling(self, text: str, line: int, column: int) -> Spelling:
        """Return a label. Raises DataError if two labels become the same."""
        text = text or UNLABELLED
        label = clean_label(text)
        original = self.originals.setdefault(label, text)
        if original != text:
            problem = f"expected labels that differ in more than blanks, found {quoted(text)} and"
            raise DataError(self.name, line, column, f"{problem} {quoted(original)}")
        return Spelling(label, line, column)
