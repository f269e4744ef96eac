"""Tables of delimited fields (CSV and TSV), parsed piece by piece.

Fields follow RFC 4180: a field in double quotes may hold delimiters, newlines and doubled quotes.
Blanks around a field are not part of it.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

import randsvm.data._table as _table
from randsvm import files
from randsvm.data.chunks import as_stored
from randsvm.data.columns import DELIMITERS, format_hint
from randsvm.data.svmlight import (
    BYTE_ORDER_MARK,
    PADDING,
    Block,
    Fault,
    LineTooLongError,
    data_error,
    pieces,
)
from randsvm.data.table_pieces import (
    ColumnRoles,
    Content,
    Opener,
    Piece,
    features_of,
    missing,
    not_a_number,
)
from randsvm.errors import DataError, quoted
from randsvm.events import Watch
from randsvm.parallel import ThreadPool

LONE_RETURN = "found a carriage return without a newline outside quotes"


class DelimitedTable:
    """An open file of delimited fields; see `table_pieces.Table`."""

    def __init__(
        self,
        name: str,
        names: list[str],
        delimiter: str,
        first_line: int,
        first_byte: int,
        texts: Iterator[bytes],
    ) -> None:
        """Store the start of a file.

        first_line, first_byte : of the first record, without a byte order mark. texts : pieces
        of whole records, each with PADDING
        """
        self.name, self.names, self.delimiter = name, names, delimiter
        self.first_line, self.first_byte, self.texts = first_line, first_byte, texts

    def pieces(
        self,
        layout: ColumnRoles,
        jobs: int,
        *,
        unlabelled: bool = False,
        float64: bool = False,
        order: Sequence[int] = (),
        learns: bool = False,
    ) -> Generator[tuple[int, Piece], None, None]:
        """Yield the first line of each piece, and the piece; see `table_pieces.Table`."""
        own = _table.Layout(ord(self.delimiter), *layout)
        work = partial(
            parse,
            layout=own,
            names=self.names,
            delimiter=self.delimiter,
            label=layout.label,
            unlabelled=unlabelled,
            float64=float64,
            order=order,
            learns=learns,
        )
        line = self.first_line
        with ThreadPool(jobs) as pool:
            try:
                for piece in pool.map_in_order(work, self.texts, jobs):
                    yield line, piece
                    if piece.fault:
                        is_start = self.first_line == line == 1
                        fault = with_header_hint(piece.fault) if is_start else piece.fault
                        raise data_error(self.name, fault, line)
                    line += piece.lines
            except LineTooLongError as error:
                raise DataError(self.name, line, 1, str(error)) from None


@contextmanager
def opened(
    path: str, delimiter: str, header: bool, watch: Watch, opener: Opener, block_size: int
) -> Iterator[DelimitedTable]:
    """Open a table and read the names of its columns. Raises DataError."""
    name = files.display_name(path)
    with opener(path) as stream:
        ends = _table.RecordEnds(ord(delimiter))
        texts = pieces(stream, path, block_size, watch, record_end=ends.last)
        first = next(texts)
        if len(first) == len(PADDING):
            raise DataError(name, 1, 1, "expected a row, found an empty file")
        names, lines = _first_record(first, delimiter, name)
        if not header:
            names, lines = [str(number + 1) for number in range(len(names))], 0
        start = _end_of_line(first, lines)
        if bad := _not_utf8(first[:start]):
            raise data_error(name, bad, 1)
        texts = itertools.chain([bytes(memoryview(first)[start:])], texts)
        yield DelimitedTable(name, names, delimiter, lines + 1, start, texts)


def record_starts(path: str, delimiter: str, block_size: int) -> np.ndarray:
    """Return 0 and, for each block of a plain file, the end of the last record that ends in it.

    These are starts of records, ascending, int64.
    """
    ends, at, starts = _table.RecordEnds(ord(delimiter)), 0, [0]
    with files.open_input(path) as stream:
        while block := files.read_block(stream, block_size, path):
            mark = len(BYTE_ORDER_MARK) if at == 0 and block.startswith(BYTE_ORDER_MARK) else 0
            if end := ends.last(block[mark:]):
                starts.append(at + mark + end)
            at += len(block)
    return np.array(starts, np.int64)


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
        problem = "expected text, found a NUL byte"
        used = next(one for one, byte in DELIMITERS.items() if byte == delimiter)
        raise DataError(name, 1, nul + 1, problem + format_hint(name, used))
    line = content[: content.find(b"\n") + 1] or content
    at = re.search(rb"\r(?!\n|$)", line)
    if at and b'"' not in line[: at.start()]:
        raise DataError(name, 1, at.start() + 1, f"expected the names of columns, {LONE_RETURN}")
    lines = io.StringIO(files.decoded(content), newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        names = next(filter(None, reader), [])
    except csv.Error as error:
        problem = f"expected the names of columns: {error}"
        raise DataError(name, max(1, reader.line_num), 1, problem) from None
    return [one.strip(" \t") for one in names], reader.line_num


def parse(
    text: bytes,
    layout: _table.Layout,
    names: Sequence[str],
    delimiter: str,
    label: int,
    unlabelled: bool,
    float64: bool,
    order: Sequence[int] = (),
    learns: bool = False,
) -> Piece:
    """Return the rows of complete records followed by PADDING. label : see `ColumnRoles`"""
    rows, fields = _table.count(text, ord(delimiter))
    room = 1 if learns else fields
    codes, y, indptr = np.empty(rows, np.int32), np.empty(rows), np.empty(rows + 1, np.int64)
    ends: np.ndarray = np.empty(rows, np.int64)
    indices, values = np.empty(room, np.int32), np.empty(room)
    spans: np.ndarray = np.empty(1 + 2 * len(order) * rows, np.int64)
    records = _table.Records(layout)
    records.parse(text, unlabelled, codes, y, indptr, indices, values, spans, ends)
    m, entries = records.rows, records.entries
    indices, values = indices[:entries], values[:entries]
    block = Block(
        codes=codes[:m],
        spellings=[],
        y=y[:m],
        indptr=indptr[: m + 1],
        indices=indices,
        values=values if float64 else as_stored(values),
        features=features_of(indices),
        queries=0,
        keys=_keys(text, spans, m, order, delimiter) if order else None,
    )
    found = [Content(*records.column(i)) for i in range(layout.width)] if learns else []
    fault = _fault(records, names, label)
    bad = _not_utf8(text)
    if bad is not None and (fault is None or bad.line < fault.line):
        fault = bad
    unseen = records.unseen_texts()
    # The last record may end without a newline.
    ends = np.minimum(ends[:m], len(text) - len(PADDING))
    return Piece(block, records.spellings(), records.lines, fault, unseen, found, ends)


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


def with_header_hint(fault: Fault) -> Fault:
    """Return a fault of a file without a header, with a hint if it is in the first line."""
    if fault.line != 1:
        return fault
    hint = " (--no-header, here or in the training, reads the first line as a row)"
    return fault._replace(problem=fault.problem + hint)


def _not_utf8(text: bytes) -> Fault | None:
    """Return the first byte that is not UTF-8 as a fault."""
    if text.isascii():
        return None
    try:
        text.decode()
    except UnicodeDecodeError as error:
        at = error.start
        line_start = text.rfind(b"\n", 0, at) + 1
        problem = f"expected UTF-8, found the byte 0x{text[at]:02x} (iconv -t utf-8 converts files)"
        return Fault(text.count(b"\n", 0, at) + 1, at - line_start + 1, problem)
    return None


def _fault(records: _table.Records, names: Sequence[str], label: int) -> Fault | None:
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
    elif kind == _table.LONE_RETURN:
        problem = f"expected text {where}, {LONE_RETURN}"
    elif kind == _table.UNCLOSED:
        problem = f"expected a quote at the end of a field {where}, found the end of the file"
    elif kind == _table.AFTER_QUOTE:
        problem = f"expected the end of a field {where} after its quote, found {quoted(content)}"
    elif kind == _table.MISSING:
        found = quoted(content) if content else "an empty field"
        problem = missing(names[place], found, place == label)
    else:
        problem = not_a_number(names[place], content)
    return Fault(line, column, problem)
