"""The svmlight text format: parse, write, and errors with file:line:column.

The only module that knows the format. It yields rows block by block and keeps none.
"""

from __future__ import annotations

import math
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import field, replace
from functools import partial
from io import BufferedReader
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

import randsvm.data._svmlight as _svmlight
from randsvm import files
from randsvm.arrays import FEATURES, CsrMatrix
from randsvm.data.chunks import CHUNK_NONZEROS, CHUNK_ROWS, RawChunk, as_stored
from randsvm.data.columns import TableOptions, format_hint
from randsvm.decimals import NUMBER
from randsvm.errors import DataError, RandsvmError, TransferError, quoted, shortened
from randsvm.events import HEARTBEAT, Notice, Progress, Watch, emit, silent
from randsvm.parallel import ThreadPool
from randsvm.records import record

Labels = Literal["class", "number", "coefficient"]

BLOCK_SIZE = 4 << 20
# A block holds whole lines, so this bounds the memory that a file without line ends can take.
LONGEST_LINE = 256 << 20
# Bytes of a piece of written text; labels that are encoded at a time.
PIECE_SIZE = 1 << 20
LABELS_AT_ONCE = 1 << 14
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UNLABELLED = "?"
MAX_INDEX = _svmlight.MAX_INDEX
# The largest number of a row of a precomputed kernel: float32 has all whole numbers up to here.
MAX_NUMBER = 1 << 24
# The end of any text that is parsed.
PADDING = _svmlight.PADDING
NEWLINE = PADDING[0]

# What labels are -> the largest of those that are numbers. Targets round to finite float32 numbers,
# as features do; the lines of models begin with coefficients.
LARGEST: dict[Labels, float] = {
    "class": 0.0,
    "number": math.nextafter(2.0**128 - 2.0**103, 0),
    "coefficient": sys.float_info.max,
}
NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


class Spelling(NamedTuple):
    """A label token, or a row number, and its position: 1-based line and byte column."""

    text: str
    line: int
    column: int


@record
class ParseOptions:
    """The options that change what is parsed, and how D is cut into chunks.

    labels: what labels are. any_label: every label is allowed, also `?`; see LabelTable.
    has_row_numbers: rows are those of a precomputed kernel and begin with 0:number, which needs
    zero_based. float64: values are float64 in any case. row_weights: the name of a file of weights,
    one for each row. table: how a table is read; None: the format is svmlight. groups: whether the
    groups of rows are kept: their qids in svmlight, which every row must have.
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


# The codes of labels that are numbers.
NO_CODES: np.ndarray = np.empty(0, np.int32)


@record
class ParsedRows(RawChunk):
    """Consecutive rows of a file.

    X : (m, FEATURES), float64, or float32 where these stand for the same numbers (see chunks.py)
    and the dialect allows it
    y : (m,) float64, nan for `?`, and for classes until a LabelTable numbers them
    weights : (m,) float64, at least 0, of rows with a cost: and 1 for the others; None: all 1
    features : the distinct indices, ascending, int32
    codes : (m,) int32, positions in `spellings`; empty unless labels are classes
    spellings : the block's distinct label tokens in order of first appearance, with their first
    positions
    queries : rows with a qid:
    number : the largest row number, if every row has to begin with 0:number; otherwise None
    keys : for each row of a table, the text of its kept columns: those of --keep, or that of the
    groups; None: no column is kept
    groups : (m,) int64, equal for rows of one qid; None: qids are ignored
    lacking : what the features of a table lack, for `remarks`
    """

    features: np.ndarray
    codes: np.ndarray = field(default_factory=lambda: NO_CODES)
    spellings: Sequence[Spelling] = ()
    queries: int = 0
    number: Spelling | None = None
    keys: list[str] | None = None
    groups: np.ndarray | None = None
    lacking: Counter[tuple[str, str]] = field(default_factory=Counter)

    def without_zero_weights(self) -> ParsedRows:
        """Return the block without its rows of weight 0.

        Their spellings stay: labels are those of all rows of the file.
        """
        if self.weights is None or self.weights.all():
            return self
        rows = np.flatnonzero(self.weights)
        kept = self[rows]
        return replace(
            self,
            **vars(kept),
            features=np.unique(kept.X.indices),
            codes=self.codes[rows] if len(self.codes) else self.codes,
            groups=None if self.groups is None else self.groups[rows],
            keys=None if self.keys is None else [self.keys[row] for row in rows],
        )


# The line and the column of the first bad token of a piece, from its first line, and the problem.
Fault: TypeAlias = tuple[int, int, str]
# The rows of a piece, the number of its lines, and its first bad token.
Piece: TypeAlias = tuple[ParsedRows, int, "Fault | None"]


def read_blocks(
    path: str,
    options: ParseOptions,
    *,
    threads: int = 1,
    watch: Watch = silent,
    prompt: bool = False,
) -> Generator[ParsedRows, None, None]:
    """Yield the rows of a file (`-`: standard input) in order, parsed by this number of threads.

    Memory: two blocks of text more than threads, and their rows. A line longer than a block (up to
    LONGEST_LINE) makes a longer block. Raises DataError for the first bad line of the file, after
    all rows before that line are yielded, so that a caller that checks labels reports a bad label
    of an earlier line instead. The label of the bad line itself is checked first, too: its spelling
    is in the last block, which may have no rows.
    prompt: yield the rows of a pipe as they arrive, parsed by this thread, not when a block is
    full.
    """
    name = files.display_name(path)
    line = 1
    with files.open_input(path) as stream, ThreadPool(threads) as pool:
        size = min(BLOCK_SIZE, LONGEST_LINE)
        texts = pieces(stream, path, lambda: size, LONGEST_LINE, watch, prompt)
        parse: Callable[..., Piece] = partial(parse_piece, options=options)
        # An error of reading is raised only after the rows before it were parsed, whose own errors
        # come first.
        in_threads = pool.map_in_order(parse, texts, threads)
        with closing((parse(text) for text in texts) if prompt else in_threads) as parsed:
            try:
                for block, lines, fault in parsed:
                    if len(block) or block.spellings:
                        yield in_file(block, line)
                    if fault:
                        is_first = line == fault[0] == 1
                        hint = format_hint(path) if is_first and not options.any_label else ""
                        raise data_error(name, fault, line, hint)
                    line += lines
            except LineTooLongError as error:
                raise DataError(name, line, 1, str(error)) from None


def parse(text: bytes, options: ParseOptions, name: str, first_line: int = 1) -> ParsedRows:
    """Return the rows of complete lines in memory. name, first_line: for DataError."""
    block, _, fault = parse_piece(text + PADDING, options)
    if fault:
        raise data_error(name, fault, first_line)
    return in_file(block, first_line)


def first_numbers(text: bytes, lines: int, count: int) -> tuple[np.ndarray, bytes]:
    """Return the numbers that lines begin with, (read, count), and the text with blanks instead.

    text : complete lines; lines, count : their number, and that of the numbers of each, at least 1.
    read : the number of lines before the first one without enough numbers.
    """
    # A number takes two bytes at least, so memory depends on the text alone.
    most = min(lines, len(text) // (2 * count))
    numbers, rest = np.empty((most, count)), bytearray(text)
    read = _svmlight.first_numbers(text + PADDING, numbers, rest)
    return numbers[:read], bytes(rest)


def data_error(name: str, fault: Fault, first_line: int, hint: str = "") -> DataError:
    line, column, problem = fault
    return DataError(name, first_line + line - 1, column, problem + hint)


# ---- reading ----------------------------------------------------------------------------------


class LineTooLongError(RandsvmError):
    def __init__(self, longest: int) -> None:
        super().__init__(f"expected a line of at most {longest} bytes, found a longer one")


def pieces(
    stream: Any,
    path: str,
    size: Callable[[], int],
    longest: int,
    watch: Watch,
    prompt: bool = False,
    end_of_records: Callable[[np.ndarray, int], int] = _svmlight.end_of_lines,
) -> Iterator[np.ndarray]:
    """Yield complete records and PADDING as uint8, about size() bytes at a time.

    longest: the most bytes of a record. end_of_records: returns the end of the last complete record
    in the first bytes of a block, 0 if there is none.
    """
    position = _Position(stream)
    read = stream.readinto
    if prompt and isinstance(stream, BufferedReader):
        read = partial(_read_what_is_there, stream)
    block, held, first = np.empty(size() + len(PADDING), np.uint8), 0, True
    while True:
        if prompt and position.read:
            beats = 0
            while not files.has_more(stream, HEARTBEAT):
                beats += 1
                watch(Progress("waiting for rows", beats, None, "beat"))
        with files.reading(path):
            count = read(block.data[held : -len(PADDING)])
        watch(Progress("reading", *position.after(count), "B"))
        if not count:
            position.check_end(path)
        filled = held + count
        cut = end_of_records(block, filled) if count else filled
        # No record ends in the first `longest` bytes and the byte after them.
        if filled > longest and not end_of_records(block, longest + 1):
            raise LineTooLongError(longest)
        if count and not cut:
            # This moves no bytes where the system can map a long block to other addresses.
            block.resize(filled + size() + len(PADDING), refcheck=False)
            held = filled
            continue
        rest = block[cut:filled].copy()
        block[cut : cut + len(PADDING)] = NEWLINE
        piece = block[: cut + len(PADDING)]
        has_mark = first and piece[: len(BYTE_ORDER_MARK)].tobytes() == BYTE_ORDER_MARK
        yield piece[len(BYTE_ORDER_MARK) :] if has_mark else piece
        if not count:
            if held and position.is_pipe:
                name = files.display_name(path)
                emit(Notice(f"{name} ends without a newline: was its writer cut short?"))
            return
        held, first = len(rest), False
        block = np.empty(held + size() + len(PADDING), np.uint8)
        block[:held] = rest


def _read_what_is_there(stream: BufferedReader, buffer: memoryview) -> int:
    """Read bytes to a buffer, and wait only if none are there; return their number.

    `readinto1` waits for further bytes even if it has some from its own buffer.
    """
    found = stream.read1(len(buffer))
    buffer[: len(found)] = found
    return len(found)


class _Position:
    """The position in a stream: in bytes of the file, compressed or not, or of a pipe."""

    def __init__(self, stream: Any) -> None:
        self.read = 0
        self.descriptor = None
        self.plain = isinstance(stream, BufferedReader)
        try:
            status = os.fstat(stream.fileno())
        except OSError:
            return
        if stat.S_ISREG(status.st_mode):
            self.descriptor, self.total = stream.fileno(), status.st_size
            self.written = status.st_mtime_ns

    def after(self, size: int) -> tuple[int, int | None]:
        """Return (done, total) after `size` more bytes of content."""
        self.read += size
        if self.descriptor is None:
            return self.read, None
        # Compressed or not, the descriptor stands where the file has been read to.
        return os.lseek(self.descriptor, 0, os.SEEK_CUR), self.total

    @property
    def is_pipe(self) -> bool:
        """Return whether this is a plain pipe, which looks complete if its writer is killed."""
        return self.plain and self.descriptor is None

    def check_end(self, path: str) -> None:
        """Raise TransferError if the file changed, or became shorter, since it was opened."""
        if self.descriptor is None:
            return
        status = os.fstat(self.descriptor)
        # An archive marks its end itself.
        if self.plain and self.after(0)[0] < self.total:
            what = "became shorter while in use"
        elif (status.st_size, status.st_mtime_ns) != (self.total, self.written):
            what = "changed while it was read"
        else:
            return
        raise TransferError(f"reading {files.display_name(path)}: it {what}")


def parse_piece(text: bytes | np.ndarray, options: ParseOptions) -> Piece:
    """Return the rows before the first fault, the number of their lines, and the fault.

    Positions count from the first line of the piece. text: complete lines and PADDING.
    """
    labels, zero_based, numbered = options.labels, options.zero_based, options.has_row_numbers
    newlines, colons = _svmlight.count(text)
    codes, y = np.empty(newlines * (labels == "class"), np.int32), np.full(newlines, np.nan)
    indptr = np.empty(newlines + 1, np.int64)
    indices = np.empty(colons, np.int32)
    values: np.ndarray = np.empty(colons)
    queries = np.empty(newlines, np.int64) if options.groups else None
    rows = _svmlight.Rows()
    rows.parse(
        text, LARGEST[labels], zero_based, options.any_label, numbered, codes, y, indptr, indices,
        values, queries,
    )  # fmt: skip
    indices, values = indices[: rows.entries], values[: rows.entries]
    if not options.float64:
        values = values.astype(np.float32) if rows.few_digits else as_stored(values)
    block = ParsedRows(
        CsrMatrix(values, indices, indptr[: rows.rows + 1], (rows.rows, FEATURES)),
        y[: rows.rows],
        rows.weights(),
        features=_distinct(rows, indices),
        codes=codes[: rows.rows],
        spellings=[
            Spelling(files.decoded(token), line, column) for token, line, column in rows.spellings()
        ],
        queries=rows.queries,
        number=(
            Spelling(str(rows.number), rows.number_line, rows.number_column) if numbered else None
        ),
        groups=None if queries is None else queries[: rows.rows],
    )
    return block, rows.lines, _fault(rows, labels, zero_based)


def _distinct(rows: _svmlight.Rows, indices: np.ndarray) -> np.ndarray:
    features = rows.features()
    if rows.beyond:
        large = np.unique(indices[indices >= _svmlight.MARKED])
        features = np.concatenate([features, large])
    return features


def in_file(block: ParsedRows, first_line: int) -> ParsedRows:
    """Return the block of a piece, with positions as lines of the file."""
    if first_line == 1:
        return block

    def moved(one: Spelling) -> Spelling:
        return one._replace(line=one.line + first_line - 1)

    number = None if block.number is None else moved(block.number)
    return replace(block, number=number, spellings=list(map(moved, block.spellings)))


# ---- errors in a token ----------------------------------------------------------------------


def _fault(rows: _svmlight.Rows, labels: Labels, zero_based: bool) -> Fault | None:
    bad = rows.bad_token()
    if bad is None:
        return None
    kind, token, line, column, previous = bad
    if kind == _svmlight.LABEL:
        return line, column, _label_problem(token, labels)
    if kind == _svmlight.FEATURE:
        return line, column, _feature_problem(token, previous, zero_based)
    found = quoted(token) if token else "the end of the row"
    reason = "" if token.startswith(b"qid:") else " (--groups qid needs it in each row)"
    rule = f"-t precomputed: rows are numbered 1 to {MAX_NUMBER}"
    problems = {
        _svmlight.NUL: "expected text, found a NUL byte",
        _svmlight.QUERY: f"expected qid:number, found {found}{reason}",
        _svmlight.COST: f"expected cost:weight from 0 to 3.4e38, found {found}",
        _svmlight.NUMBER: f"expected 0:number ({rule}), found {found}",
    }
    return line, column, problems[kind]


def _label_problem(token: bytes, labels: Labels) -> str:
    text = files.decoded(token)
    rules = (
        (":" in text, "a label"),
        (text.count(",") > 1, "label index:value ... with spaces between them (is it a CSV file?)"),
        ("," in text, "one label"),
        (text == UNLABELLED, "a label (unlabelled rows are for prediction only)"),
        (NUMBER.fullmatch(text) and labels == "number", "a label within float32 (3.4e38)"),
        (NOT_FINITE.fullmatch(text) or NUMBER.fullmatch(text), "a finite label"),
        (labels == "class", "a label without control characters"),
        (True, "a number as label"),
    )
    expected = next(words for is_broken, words in rules if is_broken)
    return f"expected {expected}, found {quoted(token)}"


def _feature_problem(token: bytes, previous: int, zero_based: bool) -> str:
    index, _, value = token.partition(b":")
    text, digits = files.decoded(value), index.lstrip(b"0") or b"0"
    is_small = digits.isdigit() and len(digits) <= len(str(MAX_INDEX))
    number = int(digits) if is_small else MAX_INDEX + 1
    short = shortened(digits)
    rules = (
        (token.startswith(b"qid:"), "qid: directly after the label", quoted(token)),
        (token.startswith(b"cost:"), "cost: once, before the features", quoted(token)),
        (b"," in token and not (index and value), "index:value (is it a CSV file?)", quoted(token)),
        (not (index and value), "index:value", quoted(token)),
        (not index.isdigit(), "an index in digits", quoted(index)),
        (number > MAX_INDEX, f"an index of at most {MAX_INDEX}", short),
        (number < 1 - zero_based, "an index of 1 or more (from 0: train with --zero-based)", "0"),
        (number <= previous, f"an index above {previous}", short),
        (NOT_FINITE.fullmatch(text), "a finite value", quoted(value)),
        (NUMBER.fullmatch(text), "a value within float32 (3.4e38)", quoted(value)),
        (True, f"a number after {short}:", quoted(value)),
    )
    expected, found = next(words for is_broken, *words in rules if is_broken)
    return f"expected {expected}, found {found}"


# ---- writing ----------------------------------------------------------------------------------


def write(stream: files.Sink, labels: Sequence[str], X: CsrMatrix) -> None:
    """Write svmlight rows; each value in the shortest form that reads back to the same number.

    X : rows as in a file, one for each label. float64 values are written as float64 where float32
    numbers do not stand for all of them.
    Memory: two pieces, LABELS_AT_ONCE labels, and about 24 bytes a row.
    """
    if X.shape[0] != len(labels):
        raise ValueError(f"expected a label for each of {X.shape[0]} rows, found {len(labels)}")
    values = as_stored(X.data) if X.dtype == np.float64 else X.data.astype(np.float32, copy=False)
    indptr, indices = X.indptr.astype(np.int64), np.ascontiguousarray(X.indices)
    values = np.ascontiguousarray(values)
    for start in range(0, len(labels), LABELS_AT_ONCE):
        stop = start + LABELS_AT_ONCE
        names = files.encoded("\n".join([*labels[start:stop], ""]))
        lines = _svmlight.Lines(names, indptr[start : stop + 1], indices, values)
        buffer = np.empty(PIECE_SIZE + len(names), np.uint8)
        while size := lines.fill(buffer):
            stream.write(buffer[:size].tobytes())


# ---- row numbers of a precomputed kernel -----------------------------------------------------


def row_numbers(X: CsrMatrix) -> np.ndarray:
    """Return the number of each row, (m,) int64.

    It is 0 if a row does not begin with the index 0 and a whole number from 1 to MAX_NUMBER.
    """
    numbers: np.ndarray = np.zeros(X.shape[0], np.int64)
    filled = np.flatnonzero(np.diff(X.indptr))
    at = X.indptr[filled]
    first = np.where(X.indices[at] == 0, X.data[at], 0.0)
    whole = (first == np.floor(first)) & (first >= 1) & (first <= MAX_NUMBER)
    numbers[filled[whole]] = first[whole].astype(np.int64)
    return numbers
