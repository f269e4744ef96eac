"""The svmlight text format: parse, write, and errors with file:line:column.

The only room that knows the format. Never keeps rows: it hands them on block by block.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple

import numpy as np

from randsvm import _svmlight, files
from randsvm.errors import DataError
from randsvm.events import Progress, Watch, silent

Labels = Literal["class", "number"]

BLOCK_SIZE = 4 << 20
# A block holds whole lines, so this bounds the memory that a file without line ends can take.
LONGEST_LINE = 256 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UNLABELLED = "?"

NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?)0*([0-9]+))?")
NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Spelling:
    """A distinct label token and where it first stands: 1-based line and byte column."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    codes : (m,) int32, positions in `spellings`; empty unless labels are classes
    spellings : the block's distinct label tokens in order of first appearance
    y : (m,) float64, nan for `?`; empty unless labels are numbers
    indptr : (m + 1,) int64;  indices : (nnz,) int32 as written;  values : (nnz,) float32
    features : the distinct indices, ascending, int32
    queries : rows with a qid:
    """

    codes: np.ndarray
    spellings: list[Spelling]
    y: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    features: np.ndarray
    queries: int

    def __len__(self) -> int:
        return len(self.indptr) - 1


class _Dialect(NamedTuple):
    """What is legal besides the format itself."""

    labels: Labels
    zero_based: bool
    unlabelled: bool


class _Fault(NamedTuple):
    """The first bad token of a piece; `line` counts from the piece's first line."""

    line: int
    column: int
    problem: str


class _Piece(NamedTuple):
    """The rows before the first fault; spellings are (token, line in the piece, column)."""

    block: Block
    spellings: list[tuple[bytes, int, int]]
    lines: int
    fault: _Fault | None


def read_blocks(
    path: str,
    *,
    labels: Labels,
    zero_based: bool = False,
    unlabelled: bool = False,
    jobs: int = 1,
    watch: Watch = silent,
    block_size: int = BLOCK_SIZE,
) -> Iterator[Block]:
    """The rows of a file (`-`: standard input) in order, parsed by `jobs` threads.

    Memory: jobs + 2 blocks of text and their rows; a longer line (up to LONGEST_LINE) makes a
    longer block. Raises DataError for the first bad line in file order, after the rows before
    it were yielded: whoever maps labels meets an earlier bad label first. The last block
    before an error may hold no rows and only the bad row's spelling.
    """
    name = files.display_name(path)
    dialect = _Dialect(labels, zero_based, unlabelled)
    line = 1
    with files.open_input(path) as stream:
        pieces = _pieces(stream, path, min(block_size, LONGEST_LINE), watch)
        for piece in _in_order(pieces, dialect, jobs):
            block = _placed(piece, line)
            if len(block) or block.spellings:
                yield block
            if piece.fault:
                raise _error(name, piece.fault, line)
            line += piece.lines


def parse(
    text: bytes,
    *,
    name: str,
    labels: Labels,
    zero_based: bool = False,
    unlabelled: bool = False,
    first_line: int = 1,
) -> Block:
    """The rows of complete lines in memory; `name` and `first_line` are for its DataError."""
    piece = _parse_piece(text + _svmlight.PADDING, _Dialect(labels, zero_based, unlabelled))
    if piece.fault:
        raise _error(name, piece.fault, first_line)
    return _placed(piece, first_line)


def _error(name: str, fault: _Fault, first_line: int) -> DataError:
    return DataError(name, first_line + fault.line - 1, fault.column, fault.problem)


# ---- reading ----------------------------------------------------------------------------------


def _pieces(stream: BinaryIO, path: str, size: int, watch: Watch) -> Iterator[bytes | None]:
    """Complete lines and PADDING, about `size` bytes a piece; None: the next line is too long."""
    position = _Position(stream)
    rest: list[bytes] = []  # the incomplete line, in parts: a long one is joined only once
    first = True
    while True:
        text = files.read_block(stream, size, path)
        watch(Progress("reading", *position.after(len(text)), "B"))
        length = sum(map(len, rest))
        cut = text.rfind(b"\n") + 1 if text else 0
        if length + (text.find(b"\n") if cut else len(text)) > LONGEST_LINE:
            yield None
            return
        if text and not cut:
            rest.append(text)
            continue
        start = b"".join(rest)[:3] if rest else text[:3]
        piece = b"".join([*rest, memoryview(text)[:cut], _svmlight.PADDING])
        if first and start == BYTE_ORDER_MARK:
            piece = piece[len(BYTE_ORDER_MARK) :]
        first = False
        yield piece
        if not text:
            return
        rest = [text[cut:]]


class _Position:
    """How far a stream has been read: in the bytes of the file if it is one, else as they come."""

    def __init__(self, stream: BinaryIO) -> None:
        self.read = 0
        self.descriptor = None
        try:
            status = os.fstat(stream.fileno())
        except OSError:
            return
        if stat.S_ISREG(status.st_mode):
            self.descriptor, self.total = stream.fileno(), status.st_size

    def after(self, size: int) -> tuple[int, int | None]:
        """(done, total) when `size` more bytes of content have been read."""
        self.read += size
        if self.descriptor is None:
            return self.read, None
        # Compressed or not, the descriptor stands where the file has been read to.
        return os.lseek(self.descriptor, 0, os.SEEK_CUR), self.total


def _in_order(
    pieces: Iterator[bytes | None], dialect: _Dialect, jobs: int
) -> Iterator[_Piece]:
    """Parse with `jobs` threads, at most jobs + 1 pieces ahead of the consumer."""
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="svmlight")
    waiting: deque[Future[_Piece]] = deque()
    try:
        for text in pieces:
            if text is None:
                break
            waiting.append(pool.submit(_parse_piece, text, dialect))
            if len(waiting) > jobs:
                yield waiting.popleft().result()
        else:
            text = b""
        while waiting:
            yield waiting.popleft().result()
        if text is None:
            limit = f"a line of at most {LONGEST_LINE} bytes"
            yield _parse_piece(_svmlight.PADDING, dialect)._replace(
                fault=_Fault(1, 1, f"expected {limit}, found a longer one")
            )
    finally:
        pool.shutdown(cancel_futures=True)


def _parse_piece(text: bytes, dialect: _Dialect) -> _Piece:
    newlines, colons = _svmlight.count(text)
    numbers = dialect.labels == "number"
    codes = np.empty(0 if numbers else newlines, np.int32)
    y = np.empty(newlines if numbers else 0)
    indptr = np.empty(newlines + 1, np.int64)
    indices = np.empty(colons, np.int32)
    values = np.empty(colons, np.float32)
    rows = _svmlight.Rows()
    rows.parse(
        text, numbers, dialect.zero_based, dialect.unlabelled, codes, y, indptr, indices, values
    )
    indices = indices[: rows.entries]
    block = Block(
        codes=codes[: rows.rows],
        spellings=[],
        y=y[: rows.rows],
        indptr=indptr[: rows.rows + 1],
        indices=indices,
        values=values[: rows.entries],
        features=_distinct(rows, indices),
        queries=rows.queries,
    )
    return _Piece(block, rows.spellings(), rows.newlines, _fault(rows, dialect))


def _distinct(rows: _svmlight.Rows, indices: np.ndarray) -> np.ndarray:
    features = np.empty(rows.distinct(), np.int32)
    rows.features(features)
    if rows.beyond:
        large = np.unique(indices[indices >= _svmlight.MARKED])
        features = np.concatenate([features, large])
    return features


def _placed(piece: _Piece, first_line: int) -> Block:
    """The piece's block, its spellings with their lines in the file."""
    piece.block.spellings.extend(
        Spelling(_text(token), first_line + line - 1, column)
        for token, line, column in piece.spellings
    )
    return piece.block


def _text(token: bytes) -> str:
    return token.decode("utf-8", "surrogateescape")


# ---- what is wrong with a token ---------------------------------------------------------------


def _fault(rows: _svmlight.Rows, dialect: _Dialect) -> _Fault | None:
    bad = rows.bad_token()
    if bad is None:
        return None
    kind, token, line, column, previous = bad
    if kind == _svmlight.NUL:
        return _Fault(line, column, "expected text, found a NUL byte")
    if kind == _svmlight.QUERY:
        return _Fault(line, column, f"expected qid:number, found {quoted(token)}")
    if kind == _svmlight.LABEL:
        return _Fault(line, column, _label_problem(token, dialect))
    return _Fault(line, column, _feature_problem(token, previous))


def _label_problem(token: bytes, dialect: _Dialect) -> str:
    text = _text(token)
    if ":" in text:
        expected = "a label"
    elif "," in text:
        expected = "one label"
    elif text == UNLABELLED:
        expected = "a label (unlabelled rows are for prediction only)"
    elif NOT_FINITE.fullmatch(text) or NUMBER.fullmatch(text):
        expected = "a finite label"
    elif dialect.labels == "class":
        expected = "a label without control characters"
    else:
        expected = "a number as label"
    return f"expected {expected}, found {quoted(token)}"


def _feature_problem(token: bytes, previous: int) -> str:
    index, colon, value = token.partition(b":")
    if index == b"qid" and colon:
        return f"expected qid: directly after the label, found {quoted(token)}"
    if not (index and colon and value):
        return f"expected index:value, found {quoted(token)}"
    if not index.isdigit():
        return f"expected an index in digits, found {quoted(index)}"
    return _index_problem(index.lstrip(b"0") or b"0", previous) or _value_problem(index, value)


def _index_problem(digits: bytes, previous: int) -> str | None:
    shown = shortened(digits)
    if len(digits) > 10 or int(digits) > _svmlight.MAX_INDEX:
        return f"expected an index of at most {_svmlight.MAX_INDEX}, found {shown}"
    if int(digits) > previous:
        return None
    if previous == 0:
        return f"expected an index of 1 or more (or --zero-based), found {shown}"
    return f"expected an index above {previous}, found {shown}"


def _value_problem(index: bytes, value: bytes) -> str:
    text = _text(value)
    if NOT_FINITE.fullmatch(text):
        expected = "a finite value"
    elif NUMBER.fullmatch(text):
        expected = "a value within float32 (3.4e38)"
    else:
        expected = f"a number after {shortened(index)}:"
    return f"expected {expected}, found {quoted(value)}"


def quoted(token: bytes) -> str:
    """The token for a message: in quotes, shortened, what cannot be printed escaped."""
    return f"'{shortened(token)}'"


def shortened(token: bytes) -> str:
    """At most 40 characters or so of a token; what cannot be printed is escaped."""
    text = token.decode("utf-8", "backslashreplace") if len(token) <= 40 else ""
    if not text:
        text = token[:40].decode("utf-8", "backslashreplace") + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# ---- classes ----------------------------------------------------------------------------------


class LabelTable:
    """The classes of a file (or of a model, by `names`), numbered by first appearance.

    names : as first spelled.  numeric : whether they are numbers; None while there is none.
    """

    def __init__(
        self, path: str, unlabelled: bool = False, names: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.unlabelled = unlabelled
        self.names: list[str] = []
        self.values: list[int | str] = []
        self.numeric: bool | None = None
        self._numbers: dict[str, float] = {}  # by spelling
        self._classes: dict[int | str, int] = {}  # by value
        for name in names:
            self._number(Spelling(name, 0, 0))

    def __len__(self) -> int:
        return len(self.names)

    def classes(self, block: Block) -> np.ndarray:
        """(m,) float64 class numbers, nan for `?`; raises DataError at the first bad label."""
        numbers = np.array([self._number(spelling) for spelling in block.spellings], float)
        return numbers[block.codes] if len(block) else np.empty(0)

    def _number(self, spelling: Spelling) -> float:
        number = self._numbers.get(spelling.text)
        if number is None:
            number = self._numbers[spelling.text] = self._new(spelling)
        return number

    def _new(self, spelling: Spelling) -> float:
        if spelling.text == UNLABELLED:
            if not self.unlabelled:
                raise self._error(spelling, "a label (unlabelled rows are for prediction only)")
            return np.nan
        value = self._value(spelling)
        if value not in self._classes:
            self._classes[value] = len(self.names)
            self.names.append(spelling.text)
            self.values.append(value)
        return self._classes[value]

    def _value(self, spelling: Spelling) -> int | str:
        number = NUMBER.fullmatch(spelling.text)
        if self.numeric is None:
            self.numeric = number is not None
        if self.numeric != (number is not None):
            kind = "a number" if self.numeric else "a name"
            raise self._error(spelling, f"{kind} like the label {self.names[0]!r} before")
        if number is None:
            return spelling.text
        whole = whole_number(number)
        if whole is None:
            raise self._error(spelling, "a whole number as class (or -s svr for regression)")
        return whole

    def _error(self, spelling: Spelling, expected: str) -> DataError:
        found = quoted(spelling.text.encode("utf-8", "surrogateescape"))
        return DataError(
            files.display_name(self.path),
            spelling.line,
            spelling.column,
            f"expected {expected}, found {found}",
        )


def whole_number(number: re.Match[str]) -> int | None:
    """The value of a match of NUMBER; None if it is not whole or has more than 309 digits."""
    sign, before, behind, only_behind, power_sign, power = number.groups(default="")
    behind = behind or only_behind
    digits = (before + behind).lstrip("0")
    trimmed = digits.rstrip("0")
    # No token is long enough for a power of ten with more than nine digits to be undone.
    exponent = int(power_sign + (power[:10] or "0")) - len(behind) + len(digits) - len(trimmed)
    if not trimmed:
        return 0
    if exponent < 0 or len(trimmed) + exponent > 309:
        return None
    return int(sign + trimmed) * 10**exponent


# ---- writing ----------------------------------------------------------------------------------


def write(
    stream: BinaryIO,
    labels: Sequence[str],
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
) -> None:
    """svmlight rows; values in the shortest form that reads back to the same float32."""
    shown = spelled(values)
    entries = [f"{index}:{value}" for index, value in zip(indices.tolist(), shown, strict=True)]
    bounds = indptr.tolist()
    for label, start, stop in zip(labels, bounds[:-1], bounds[1:], strict=True):
        line = " ".join([label, *entries[start:stop]])
        stream.write(line.encode("utf-8", "surrogateescape") + b"\n")


def spelled(values: np.ndarray) -> list[str]:
    """The shortest decimal form of each float32: 1 for 1.0, 1e-5 for 1e-05."""
    # Equal values are spelled once; by bits, because -0.0 == 0.0.
    bits, positions = np.unique(values.view(np.int32), return_inverse=True)
    distinct = [_tidy(str(value)) for value in bits.view(np.float32)]
    return [distinct[position] for position in positions.tolist()]


def _tidy(number: str) -> str:
    mantissa, e, exponent = number.removesuffix(".0").partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa
