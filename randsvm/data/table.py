"""Tables: CSV, TSV, Parquet, and frames in memory, as record batches of pyarrow (extra `tables`).

A first pass finds which columns hold numbers and the categories of the others; a second pass
yields rows with the features that `Columns` defines. pyarrow decodes the files; everything after
that is the same code for all of them. Errors have the number of the row and that of the column. A
header is a row, so in CSV the number of a row is its line unless fields have line ends.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from randsvm import files
from randsvm.data.chunks import RawChunk, as_stored, copied
from randsvm.data.columns import (
    DELIMITERS,
    MISSING_WORDS,
    Column,
    Columns,
    Format,
    Frame,
    TableOptions,
    fields_of,
    format_hint,
    written_record,
)
from randsvm.data.svmlight import (
    BLOCK_SIZE,
    NOT_FINITE,
    NUMBER,
    PADDING,
    UNLABELLED,
    Block,
    Labels,
    Spelling,
    in_file,
    pieces,
)
from randsvm.errors import (
    ContentError,
    DataError,
    ParameterError,
    RandsvmError,
    quoted,
    shortened,
)
from randsvm.events import Progress, Watch, silent
from randsvm.parallel import ThreadPool

try:
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.csv
    import pyarrow.parquet
except ImportError as missing_module:
    raise ParameterError(
        f"tables need pyarrow (pip install 'randsvm[tables]'): {missing_module}"
    ) from missing_module

MAX_CATEGORIES = 10_000
# Names that a message lists.
MAX_NAMES = 10
# A float64 is a whole number times 2 ** -EXPONENT.
EXPONENT = 1126
# A batch of Parquet has one value for every VALUE_BYTES bytes of a block of text. ROWS: the least
# and the largest number of its rows.
VALUE_BYTES = 8
ROWS = 64, 65_536
# Bytes of Parquet that are read at once: of one column at least and at most; of all columns.
COLUMN_BYTES = 1 << 14, 1 << 20
BUFFER_BYTES = 1 << 23
# Bytes of a column in a row group whose texts pyarrow may keep as a dictionary; of all columns.
DICTIONARY_BYTES = 1 << 22, 1 << 25

# A block of text is 1 / READ_AHEAD of a block of svmlight, or more, up to a whole one, if it would
# have fewer than WIDE_ROWS rows of the length of the header. A row is at most as long as a block,
# or ROW_BYTES times as long as the header.
READ_AHEAD, WIDE_ROWS = 8, 10_000
ROW_BYTES = 16

# Opens a file for reading, from its start.
Opener = Callable[[str], AbstractContextManager[BinaryIO]]


class Inputs:
    """The files of tables, which are read twice: pipes are copied to unnamed temporary files."""

    def __init__(self, paths: Sequence[str], tmpdir: str | None) -> None:
        """Copy the pipes. tmpdir: the folder of the copies; None: the system's."""
        self.copies: dict[str, BinaryIO] = {}
        with ExitStack() as stack:
            for path in paths:
                if not isinstance(path, Frame) and files.size_of(path) is None:
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


# ---- files as batches -------------------------------------------------------------------------


# The number of rows of a batch, and its arrays by the positions of the columns.
_Batch: TypeAlias = tuple[int, dict[int, Any]]


class _Table(NamedTuple):
    """An open table.

    names : of the columns; types : of the columns, as pyarrow has them; first_row : the number of
    the first row; batches : returns record batches of the columns at some positions, and the
    progress of reading
    """

    name: str
    names: list[str]
    types: list[Any]
    first_row: int
    batches: Callable[[Sequence[int]], Iterator[tuple[Any, Progress | None]]]


def _opened(
    path: str, format_: Format, header: bool, opener: Opener, block_size: int
) -> AbstractContextManager[_Table]:
    """Open a table and read the names of its columns. Raises DataError."""
    if isinstance(path, Frame):
        return _frame(path)
    if format_ == "parquet":
        return _parquet(path, opener, block_size)
    return _delimited(path, format_, header, opener, block_size)


class _Text(io.RawIOBase):
    """The text of a file as pyarrow reads it: without a byte order mark, with a last line end."""

    def __init__(self, stream: BinaryIO, path: str, block_size: int) -> None:
        self.progress: Any = None
        self.blocks = pieces(
            stream, path, block_size, self._read_on, end_of_records=lambda block, filled: filled
        )
        self.rest = b""
        self.is_open_line = False
        self.quotes = 0
        self.head = self.read()
        while b"\n" not in self.head and (more := self.read()):
            self.head += more
        self.rest = self.head + self.rest

    def _read_on(self, event: object) -> None:
        # pyarrow reads in another thread, which must not emit events.
        self.progress = event

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        least = max(size, 2)
        while len(self.rest) < least and (block := next(self.blocks, None)) is not None:
            text = block[: -len(PADDING)].tobytes()
            self.rest += text
            self.quotes += text.count(b'"')
            self.is_open_line = self.rest[-1:] != b"\n" if self.rest else self.is_open_line
        if not self.rest and self.is_open_line:
            self.rest, self.is_open_line = b"\n", False
        text = self.rest[:size] if size >= 0 else self.rest
        # pyarrow drops a newline at the start of what it reads if a return came before it, also
        # within quotes.
        if len(text) > 1 and text.endswith(b"\r"):
            text = text[:-1]
        self.rest = self.rest[len(text) :]
        return text


@contextmanager
def _delimited(
    path: str, format_: Format, header: bool, opener: Opener, block_size: int
) -> Iterator[_Table]:
    name = files.display_name(path)
    with opener(path) as stream:
        text = _Text(stream, path, block_size // READ_AHEAD)
        # pyarrow refuses a row that is longer than a block, and reads up to 32 blocks ahead.
        header_bytes = text.head.find(b"\n")
        least = min(block_size, WIDE_ROWS * header_bytes)
        block_size = max(block_size // READ_AHEAD, least, ROW_BYTES * header_bytes)
        if not text.head:
            raise DataError(name, 1, 1, "expected a row, found an empty file")
        names, rows = _first_row(text.head, format_, name)
        if not header:
            names, rows = [str(number + 1) for number in range(len(names))], 0
        labels = [str(place) for place in range(len(names))]

        def batches(places: Sequence[int]) -> Iterator[tuple[Any, Progress | None]]:
            bad, done = list[Any](), rows
            try:
                for batch in _csv_reader(text, format_, labels, places, rows, block_size, bad):
                    done += batch.num_rows
                    yield batch, text.progress
                if text.quotes % 2 and done > rows:
                    _check_last(name, names, dict(zip(places, batch.columns, strict=True)), done)
            except pyarrow.ArrowInvalid as error:
                raise _refused(name, names, error, bad, block_size) from None

        yield _Table(name, names, [pyarrow.string()] * len(names), rows + 1, batches)


def _csv_reader(
    text: _Text,
    format_: Format,
    labels: Sequence[str],
    places: Sequence[int],
    skipped: int,
    block_size: int,
    bad: list[Any],
) -> Any:
    """Return the record batches of the columns at some positions, as texts.

    labels : of all columns; skipped : the number of rows before the first; bad : receives a row of
    another width
    """

    def refuse(row: Any) -> str:
        bad.append(row)
        return "error"

    return pyarrow.csv.open_csv(
        text,
        pyarrow.csv.ReadOptions(
            column_names=labels,
            skip_rows_after_names=skipped,
            use_threads=False,
            block_size=block_size,
        ),
        pyarrow.csv.ParseOptions(
            delimiter=DELIMITERS[format_], newlines_in_values=True, invalid_row_handler=refuse
        ),
        # `_numbers` converts texts, as an error of pyarrow has no column.
        pyarrow.csv.ConvertOptions(
            include_columns=[labels[place] for place in places],
            column_types=dict.fromkeys(labels, pyarrow.string()),
            strings_can_be_null=True,
            null_values=[""],
        ),
    )


def _check_last(name: str, names: Sequence[str], arrays: Mapping[int, Any], row: int) -> None:
    """Raise DataError if an open quote made a single field of the rows to the end of the file.

    pyarrow accepts that. arrays : the columns of the last batch, whose last row has the number
    """
    for place, array in arrays.items():
        if "\n" in (array[-1].as_py() or ""):
            where = f"in column {quoted(names[place])}, found the end of the file"
            problem = f"expected a quote at the end of a field {where}"
            raise DataError(name, row, place + 1, problem)


def _refused(
    name: str, names: Sequence[str], error: Exception, bad: Sequence[Any], block_size: int
) -> RandsvmError:
    """Return the error for text that pyarrow refuses. bad : rows of another width"""
    message = str(error)
    if bad:
        problem = f"expected {len(names)} fields, found {bad[0].actual_columns}"
        return DataError(name, bad[0].number, 1, problem)
    place = re.search(r"column #(\d+): Row #(\d+): .*UTF8", message)
    if place:
        column, row = map(int, place.groups())
        problem = (
            f"expected UTF-8 in column {quoted(names[column])} (iconv -t utf-8 converts files)"
        )
        return DataError(name, row, column + 1, problem)
    if "straddl" in message:
        message = f"a row of more than {block_size:,} bytes, or a quote that does not end"
    return ContentError(f"{name}: expected a table, found {shortened(message)}")


def _first_row(text: bytes, format_: Format, name: str) -> tuple[list[str], int]:
    """Return the fields of the first row, and its number, which counts blank lines before it."""
    nul = text.find(b"\0", 0, text.find(b"\n") + 1)
    if nul >= 0:
        problem = "expected text, found a NUL byte"
        raise DataError(name, 1, 1, problem + format_hint(name, format_))
    lines = io.StringIO(files.decoded(text), newline="")
    reader = csv.reader(lines, delimiter=DELIMITERS[format_], skipinitialspace=True)
    names, row = list[str](), 0
    try:
        while not names:
            names, row = next(reader), row + 1
    except (csv.Error, StopIteration) as error:
        raise DataError(name, 1, 1, f"expected the names of columns: {error}") from None
    for place, one in enumerate(names, 1):
        if not one.isascii() and re.search("[\udc80-\udcff]", one):
            problem = "expected UTF-8 in the name of a column (iconv -t utf-8 converts files)"
            raise DataError(name, row, place, problem)
    return [one.strip(" \t") for one in names], row


@contextmanager
def _parquet(path: str, opener: Opener, block_size: int) -> Iterator[_Table]:
    name = files.display_name(path)
    with ExitStack() as stack:
        stream = stack.enter_context(opener(path))
        if not stream.seekable():
            # The names of the columns are at the end of the file.
            stream = stack.enter_context(copied(stream))
        try:
            metadata = pyarrow.parquet.read_metadata(stream)
            schema = metadata.schema.to_arrow_schema()
            texts = {one.name for one in schema if _is_string(one.type)}
            width = max(1, len(schema.names))
            file = pyarrow.parquet.ParquetFile(
                stream,
                metadata=metadata,
                read_dictionary=_dictionary_columns(metadata, texts),
                buffer_size=min(max(COLUMN_BYTES[0], BUFFER_BYTES // width), COLUMN_BYTES[1]),
                pre_buffer=False,
            )
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _unreadable(name, error) from None
        stack.callback(file.close)
        # pyarrow makes the schema anew for each access, in time proportional to its width.
        names, size = list(schema.names), files.size_of(path)

        def batches(places: Sequence[int]) -> Iterator[tuple[Any, Progress | None]]:
            rows = block_size // (VALUE_BYTES * max(1, len(places)))
            rows, done, total = min(max(ROWS[0], rows), ROWS[1]), 0, metadata.num_rows
            try:
                for batch in file.iter_batches(rows, columns=[names[place] for place in places]):
                    # Positions in dictionaries and UTF-8 of a damaged file are not checked before.
                    batch.validate(full=True)
                    done += batch.num_rows
                    at = Progress("reading", (size or 0) * done // total, size, "B")
                    yield batch, None if size is None else at
            except (pyarrow.ArrowException, OSError) as error:
                raise _unreadable(name, error) from None

        yield _Table(name, names, [one.type for one in schema], 1, batches)


def _dictionary_columns(metadata: Any, texts: set[str]) -> list[str]:
    """Return the columns of texts that are read as dictionaries, which hold each text once.

    pyarrow collects the texts of a whole row group in such a dictionary, so columns with many
    different texts, such as names, are left out.
    """
    most = min(DICTIONARY_BYTES[0], DICTIONARY_BYTES[1] // max(1, len(texts)))
    small = []
    for i, leaf in enumerate(metadata.schema):
        if leaf.path in texts:
            groups = (metadata.row_group(k).column(i) for k in range(metadata.num_row_groups))
            if all(
                one.has_dictionary_page and one.total_uncompressed_size <= most for one in groups
            ):
                small.append(leaf.path)
    return small


def _unreadable(name: str, error: Exception) -> ContentError:
    problem = f"expected a Parquet file: {shortened(str(error))}"
    return ContentError(f"{name}: {problem}{format_hint(name, 'parquet')}")


@contextmanager
def _frame(frame: Frame) -> Iterator[_Table]:
    if hasattr(frame.rows, "__arrow_c_stream__"):
        whole = pyarrow.table(frame.rows)
    else:
        whole = pyarrow.Table.from_pandas(frame.rows, preserve_index=False)

    def batches(places: Sequence[int]) -> Iterator[tuple[Any, Progress | None]]:
        for batch in whole.select(list(places)).to_batches(max_chunksize=ROWS[1]):
            yield batch, None

    yield _Table(str(frame), list(whole.schema.names), whole.schema.types, 1, batches)


# ---- values of a column -----------------------------------------------------------------------


def _is_number(kind: Any) -> bool:
    types = pyarrow.types
    if types.is_dictionary(kind):
        return _is_number(kind.value_type)
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_text(kind: Any) -> bool:
    if pyarrow.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return _is_string(kind) or bool(pyarrow.types.is_boolean(kind))


def _is_string(kind: Any) -> bool:
    types = pyarrow.types
    return any(
        is_one(kind)
        for is_one in (
            types.is_string,
            types.is_large_string,
            getattr(types, "is_string_view", bool),
        )
    )


def _is_binary(kind: Any) -> bool:
    types = pyarrow.types
    found = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(found or types.is_fixed_size_binary(kind))


class _Texts(NamedTuple):
    """A column as texts.

    codes : (m,) int64, positions in `texts`; texts : without blanks around, not all distinct; the
    last one is empty, and stands for null
    """

    codes: np.ndarray
    texts: list[str]

    def in_order(self) -> list[tuple[str, int]]:
        """Return the texts that a row has, each with its first row, in the order of these rows."""
        m = len(self.codes)
        rows = np.full(len(self.texts), m)
        # The last of several assignments remains.
        rows[self.codes[::-1]] = np.arange(m)[::-1]
        order = np.argsort(rows, kind="stable").tolist()
        return [(self.texts[i], int(rows[i])) for i in order if rows[i] < m]

    def are_empty(self) -> np.ndarray:
        """Return which rows have an empty text, (m,) bool."""
        return np.array([not text for text in self.texts])[self.codes]


def _encoded(array: Any) -> Any:
    """Return a column as a dictionary of its distinct values."""
    kind = array.type
    if pyarrow.types.is_dictionary(kind) and len(array.dictionary) > len(array):
        # The texts of other batches are in the dictionary, too.
        array = array.dictionary_decode()
        kind = array.type
    if pyarrow.types.is_dictionary(kind):
        return array
    if not (_is_text(kind) or _is_number(kind)) or pyarrow.types.is_boolean(kind):
        array = array.cast(pyarrow.string())
    return array.dictionary_encode()


def _as_texts(array: Any) -> _Texts:
    array = _encoded(array)
    values = array.dictionary.to_pylist()
    if pyarrow.types.is_boolean(array.dictionary.type):
        values = [str(value).lower() for value in values]
    # nan differs from itself.
    texts = [str(v).strip(" \t") if v is not None and v == v else "" for v in values]
    return _Texts(_codes(array, len(texts)), [*texts, ""])


def _codes(array: Any, of_null: int) -> np.ndarray:
    return _filled(array.indices.cast(pyarrow.int64()), np.int64, of_null)


class _Missing(NamedTuple):
    """The texts and numbers that stand for a missing number; null always does.

    pattern : of these texts, for `re` and for pyarrow
    """

    pattern: str
    numbers: np.ndarray

    @staticmethod
    def of(texts: Sequence[str]) -> _Missing:
        numbers = [float(text) for text in texts if NUMBER.fullmatch(text)]
        words = "|".join(map(re.escape, sorted(MISSING_WORDS)))
        own = "".join(f"|{re.escape(text)}" for text in texts)
        return _Missing(rf"\A(?:(?i:{words}){own})\z", np.array(numbers))

    def has(self, text: str) -> bool:
        return re.search(self.pattern.replace(r"\z", r"\Z"), text) is not None

    def as_nan(self, values: np.ndarray) -> np.ndarray:
        """Return numbers with nan in place of those that stand for a missing one."""
        if not len(self.numbers):
            return values
        return np.where(np.isin(values, self.numbers), np.nan, values)


def _all_numbers(arrays: Mapping[int, Any], missing: _Missing) -> tuple[list[int], np.ndarray]:
    """Return the columns that have only numbers and null, and their values.

    The values are (columns, m) float64, nan for null. Columns of one type are converted together:
    a call for each of thousands of columns would take longer than the conversion.
    """
    groups: dict[Any, list[int]] = {}
    for place, array in arrays.items():
        kind = array.type
        if not pyarrow.types.is_dictionary(kind) and (
            _is_number(kind) or (_is_string(kind) and _is_number_at_ends(array))
        ):
            groups.setdefault(kind, []).append(place)
    found, parts = list[int](), list[np.ndarray]()
    waiting = list(groups.values())
    while waiting:
        places = waiting.pop()
        values = _parsed(pyarrow.concat_arrays([arrays[place] for place in places]))
        if values is not None:
            found += places
            parts.append(missing.as_nan(values).reshape(len(places), -1))
        elif len(places) > 1:
            half = len(places) // 2
            waiting += [places[:half], places[half:]]
    return found, np.concatenate(parts) if parts else np.empty((0, 0))


def _is_number_at_ends(array: Any) -> bool:
    """Return whether the first and the last text of a column are numbers or null.

    The conversion of a column of words would take as long as that of numbers, and fail.
    """
    ends = [array[place].as_py() for place in (0, -1)] if len(array) else []
    return all(text is None or NUMBER.fullmatch(text) for text in ends)


def _numbers(array: Any, missing: _Missing) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a column of any type as numbers; see `_all_numbers` for many columns.

    The values are (m,) float64, nan where the value is missing or not a number. The second array is
    (m,) bool, where it is not a number; None: nowhere.
    """
    array = _encoded(array)
    words = array.dictionary
    if _is_string(words.type):
        words = compute.utf8_trim(words, " \t")
        are_missing = compute.match_substring_regex(words, missing.pattern)
        words = compute.if_else(are_missing, pyarrow.nulls(len(words), words.type), words)
    if not pyarrow.types.is_boolean(words.type) and (values := _parsed(words)) is not None:
        codes = _codes(array, len(values))
        return missing.as_nan(np.append(values, np.nan))[codes], None
    texts = _as_texts(array)
    numbers = np.array([_number(text) for text in texts.texts])
    bad = np.isnan(numbers) & [not missing.has(text) for text in texts.texts]
    return missing.as_nan(numbers)[texts.codes], bad[texts.codes]


def _parsed(array: Any) -> np.ndarray | None:
    """Return numbers, (m,) float64, nan for null; None unless all texts are finite numbers."""
    try:
        values = _float64(array)
    except pyarrow.ArrowInvalid:
        return None
    if _is_string(array.type) and np.isfinite(values).sum() + array.null_count < len(values):
        return None
    return values


def _float64(array: Any) -> np.ndarray:
    """Return numbers, (m,) float64, nan where there is null."""
    types = pyarrow.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_float16(array.type):
        array = array.cast(pyarrow.float32())
    # Without `safe`, integers above 2^53 are rounded as numpy rounds them.
    return _filled(array.cast(pyarrow.float64(), safe=False), np.float64, np.nan)


def _filled(array: Any, dtype: type[np.generic], fill: float) -> np.ndarray:
    """Return the numbers of an array of type `dtype`, (m,), with `fill` where there is null.

    pyarrow's `to_numpy`, `fill_null` and `scalar` import pandas where that is installed, which
    takes 45 MB.
    """
    values = _view(array, dtype)
    if not array.null_count:
        return values
    is_null = _view(array.is_null().cast(pyarrow.uint8()), np.uint8)
    return np.where(is_null, np.array(fill, dtype), values)


def _view(array: Any, dtype: type[np.generic]) -> np.ndarray:
    """Return the values of an array of numbers, (m,), read-only and not copied."""
    if not len(array):
        return np.empty(0, dtype)
    start = array.offset * np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, count=len(array), offset=start)


def _number(text: str) -> float:
    return float(text) if NUMBER.fullmatch(text) else np.nan


class _Faults:
    """Finds the first bad value of a batch, by row and then by column."""

    def __init__(self) -> None:
        self.first: tuple[int, int, str] | None = None

    def add(self, bad: np.ndarray, place: int, problem: Callable[[int], str]) -> None:
        """Add the bad rows of a column. problem : returns the sentence about a row."""
        if not bad.any():
            return
        row = int(bad.argmax())
        if self.first is None or (row, place) < self.first[:2]:
            self.first = row, place, problem(row)

    def error(self, name: str, first_row: int, hint: str = "") -> DataError | None:
        """Return the error of the first bad value.

        first_row : of the batch; hint : ends the message of an error in the first row of a text
        """
        if self.first is None:
            return None
        row, place, problem = self.first
        more = hint if first_row + row == 1 else ""
        return DataError(name, first_row + row, place + 1, problem + more)


def _not_a_number(array: Any, name: str, row: int) -> str:
    text, expected = str(array[row].as_py()), "a number"
    if NOT_FINITE.fullmatch(text):
        expected = "a finite number"
    elif NUMBER.fullmatch(text):
        expected = "a number within float32 (3.4e38)"
    return f"expected {expected} in column {quoted(name)}, found {quoted(text)}"


def _no_value(array: Any, name: str, is_label: bool, row: int) -> str:
    found = array[row].as_py()
    text = quoted(found) if isinstance(found, str) and found else str(found or "none")
    what, hint = ("a label", "") if is_label else ("a value", " (--missing mean fills it)")
    return f"expected {what} in column {quoted(name)}, found {text}{hint}"


def _check_float32(
    values: np.ndarray,
    places: Sequence[int],
    arrays: Mapping[int, Any],
    names: Sequence[str],
    faults: _Faults,
) -> None:
    """Add the values that no float32 is near to. values : (columns, m) float64, nan: missing"""
    with np.errstate(over="ignore", invalid="ignore"):
        large = np.isinf(values.astype(np.float32))
    for k in np.flatnonzero(large.any(axis=1)).tolist():
        place = places[k]
        faults.add(large[k], place, partial(_not_a_number, arrays[place], names[place]))


def _checked_texts(array: Any, place: int, name: str, faults: _Faults) -> _Texts:
    """Return a column as texts without NUL bytes, which no text format can hold."""
    texts = _as_texts(array)
    bad = np.array(["\0" in text for text in texts.texts])
    if bad.any():
        problem = f"expected text in column {quoted(name)}, found a NUL byte"
        faults.add(bad[texts.codes], place, lambda row: problem)
    return texts


# ---- the names of columns ---------------------------------------------------------------------


def _hint(*parts: str) -> str:
    """Return the end of a message with these parts in brackets, without empty ones."""
    found = "; ".join(filter(None, parts))
    return f" ({found})" if found else ""


def _check_names(table: _Table, hint: str = "") -> None:
    """Raise DataError unless all columns have different names. hint : see `_header_hint`"""
    for one, times in Counter(table.names).items():
        if times > 1 and one:
            problem = f"expected different names of columns, found {quoted(one)} {times} times"
            raise DataError(table.name, 1, 1, problem + _hint(hint))


def _header_hint(header: bool, format_: Format) -> str:
    """Return the part of a hint that names --no-header, empty if the option would not apply."""
    return "--no-header if the first line is a row" if header and format_ != "parquet" else ""


def _with_names_of(table: _Table, columns: Columns) -> _Table:
    """Return a table without a header with the names of the columns of the training."""
    try:
        return table._replace(names=columns.names_without_header(len(table.names)))
    except ValueError as error:
        problem = f"expected {error} in a file without a header, found {len(table.names)}"
        raise DataError(table.name, 1, 1, problem) from None


def _no_column(table: _Table, wanted: str, *hints: str) -> DataError:
    more = ", ..." if len(table.names) > MAX_NAMES else ""
    found = ", ".join(map(quoted, table.names[:MAX_NAMES])) + more
    problem = f"expected a column {quoted(wanted)}, found {found}"
    other = next((one for one in ";\t," if one in "".join(table.names)), None)
    if len(table.names) == 1 and other is not None:
        hints = (f"the names seem to be separated by {other!r}",)
    return DataError(table.name, 1, 1, problem + _hint(*hints))


def _place(table: _Table, wanted: str, flag: str, hint: str = "") -> int:
    """Return the position of a column given by its name, or else by its number from 1.

    flag : the option that names the column; hint : see `_header_hint`
    """
    if wanted in table.names:
        return table.names.index(wanted)
    if wanted.isdigit() and 1 <= int(wanted) <= len(table.names):
        return int(wanted) - 1
    raise _no_column(table, wanted, flag, hint)


def _check_types(table: _Table, places: Sequence[int], kept: Sequence[int]) -> None:
    """Raise DataError for a column whose type has no features. kept : those of --keep"""
    for place in sorted({*places, *kept}):
        found = table.types[place]
        if place in places:
            legal = _is_text(found) or _is_number(found) or pyarrow.types.is_null(found)
        else:
            legal = not (pyarrow.types.is_nested(found) or _is_binary(found))
        if not legal:
            where = f"in column {quoted(table.names[place])}"
            problem = f"expected numbers or texts {where}, found the type {found}"
            more = " (--ignore-columns leaves it out)"
            raise DataError(table.name, 1, place + 1, problem + more)


# ---- the columns ------------------------------------------------------------------------------


# The content of a column in a batch: the sum of its numbers times 2 ** EXPONENT, how many it has,
# and its distinct texts, each with its first row in the batch, from 0.
_Content: TypeAlias = tuple[int, int, list[tuple[str, int]]]


def exact_sums(values: np.ndarray) -> list[int]:
    """Return the sum of each row of numbers times 2 ** EXPONENT, without rounding.

    So the mean of a column does not depend on how its rows are divided into batches. values : (k,
    m) float64, m up to 2 ** 26; nan and infinity are left out
    """
    fractions, exponents = np.frexp(np.where(np.isfinite(values), values, 0))
    whole = np.ldexp(fractions, 53).astype(np.int64)
    lowest = int(exponents.min(initial=0))
    width = int(exponents.max(initial=0)) - lowest + 1
    at = exponents - lowest + width * np.arange(len(values))[:, None]
    # Sums of 27 bits of at most 2 ** 26 values are exact in float64.
    high, low = (
        np.bincount(at.ravel(), part.ravel(), len(values) * width).astype(np.int64).tolist()
        for part in (whole >> 26, whole & (1 << 26) - 1)
    )
    totals = [0] * len(values)
    for place, (more, less) in enumerate(zip(high, low, strict=True)):
        if more or less:
            row, exponent = divmod(place, width)
            totals[row] += ((more << 26) + less) << (EXPONENT - 53 + lowest + exponent)
    return totals


def _contents(
    arrays: Mapping[int, Any],
    categorical: set[int],
    names: Sequence[str],
    missing: _Missing,
    has_sums: bool,
    faults: _Faults,
) -> dict[int, _Content]:
    """Return the content of each column; numbers are texts, too, if it is categorical.

    has_sums : whether sums are needed; else they are 0
    """
    plain = {place: array for place, array in arrays.items() if place not in categorical}
    places, values = _all_numbers(plain, missing)
    _check_float32(values, places, arrays, names, faults)
    counts = np.isfinite(values).sum(axis=1).tolist()
    sums = exact_sums(values) if has_sums else [0] * len(values)
    found: dict[int, _Content] = {
        place: (total, count, []) for place, total, count in zip(places, sums, counts, strict=True)
    }
    for place, array in arrays.items():
        if place not in found:
            own = None if place in categorical else missing
            found[place] = _content(array, place, names, own, faults)
    return found


def _content(
    array: Any, place: int, names: Sequence[str], missing: _Missing | None, faults: _Faults
) -> _Content:
    """Return the content of a column with texts. missing : None: its numbers are texts, too"""
    values, is_text = np.empty(0), np.ones(len(array), bool)
    if missing is not None:
        numbers, bad = _numbers(array, missing)
        _check_float32(numbers[None], [place], {place: array}, names, faults)
        values = numbers[np.isfinite(numbers)]
        if bad is None and len(values):
            return exact_sums(values[None])[0], len(values), []
        is_text = np.isnan(numbers)
    found = _checked_texts(array, place, names[place], faults)
    texts = [(text, row) for text, row in found.in_order() if text and is_text[row]]
    return exact_sums(values[None])[0], len(values), texts


@dataclass
class _Learnt:
    """The content of a column: its numbers, and its texts with the place of each first one.

    categorical: whether its numbers are texts, too; missing: more texts that stand for a missing
    number; total: see _Content
    """

    categorical: bool
    missing: Sequence[str]

    total: int = 0
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

    def add(self, found: _Content, name: str, first_row: int, place: int, column: str) -> None:
        """Add what a batch has in the column. Raises DataError for too many texts."""
        total, count, texts = found
        self.total += total
        self.count += count
        for text, row in texts:
            self.texts.setdefault(text, (name, first_row + row, place + 1))
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
            return Column(column, None, self.total / (1 << EXPONENT) / self.count if fill else None)
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
        with _opened(path, options.format, options.header, opener, block_size) as table:
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
            rows += _learn_file(table, learnt, _Missing.of(missing), options.fill, jobs, watch)
        next_file()
    if not options.header:
        _check_first_row(first, learnt)
    if not rows:
        problem = f"expected rows after the names of the columns, found none{_hint(hint)}"
        raise DataError(first, 1, 1, problem)
    columns = tuple(one.column(name, options.fill, first) for name, one in learnt.items())
    return Columns(
        options.format, options.header, label, options.fill, columns, tuple(others), missing
    )


def _left_out(table: _Table, options: TableOptions, hint: str) -> set[str]:
    """Return the names of columns that are no features. Raises DataError for an unknown one.

    hint : see `_header_hint`
    """
    flags = [("--label-column", options.label), ("--group-column", options.group)]
    flags += [("--ignore-columns", name) for name in fields_of(options.ignored)]
    places = [_place(table, name, flag, hint) for flag, name in flags if name is not None]
    return {table.names[place] for place in places}


def _check_first_row(name: str, learnt: Mapping[str, _Learnt]) -> None:
    """Raise DataError if the first row looks like names of columns.

    Then each column that has numbers has one text, in the first row.
    """
    texts = [one.words for one in learnt.values() if one.count]
    if texts and all(len(own) == 1 and own[0][1][:2] == (name, 1) for own in texts):
        found = ", ".join(quoted(own[0][0]) for own in texts[:MAX_NAMES])
        problem = f"expected a row of numbers as the ones below it, found {found}"
        hint = "--no-header reads the first line as a row: leave it out if that names the columns"
        raise DataError(name, 1, 1, problem + _hint(hint))


def _learn_file(
    table: _Table,
    learnt: Mapping[str, _Learnt],
    missing: _Missing,
    has_sums: bool,
    jobs: int,
    watch: Watch,
) -> int:
    """Add what the columns of features have; return the number of rows. has_sums: see _contents"""
    places = [place for place, name in enumerate(table.names) if name in learnt]
    categorical = {place for place in places if learnt[table.names[place]].categorical}
    _check_types(table, places, ())

    def work(batch: _Batch) -> tuple[int, dict[int, _Content], _Faults]:
        (rows, arrays), faults = batch, _Faults()
        return rows, _contents(arrays, categorical, table.names, missing, has_sums, faults), faults

    first_row = table.first_row
    with closing(_in_threads(table, places, work, jobs, watch)) as parsed:
        for rows, contents, faults in parsed:
            for place, found in contents.items():
                name = table.names[place]
                learnt[name].add(found, table.name, first_row, place, name)
            if error := faults.error(table.name, first_row):
                raise error
            first_row += rows
    return first_row - table.first_row


def _in_threads(
    table: _Table,
    places: Sequence[int],
    work: Callable[[_Batch], Any],
    jobs: int,
    watch: Watch,
) -> Generator[Any, None, None]:
    """Yield work(batch) of each batch of some columns in order, computed by `jobs` threads."""
    with ThreadPool(jobs) as pool:

        def batches() -> Iterator[_Batch]:
            # A thread decodes, so that this one reacts to signals while it waits for a pipe.
            for batch, progress in pool.read_ahead(table.batches(places)):
                if progress is not None:
                    watch(progress)
                yield batch.num_rows, dict(zip(places, batch.columns, strict=True))

        yield from pool.map_in_order(work, batches(), jobs)


# ---- the rows ---------------------------------------------------------------------------------


class _Rows:
    """Makes rows with the features of a training from the columns of a table.

    columns : of the training; keep : names of the columns of `Block.keys`; hint : ends the message
    of a missing column. labels, zero_based, unlabelled, float64: see `read_blocks`
    """

    def __init__(
        self,
        table: _Table,
        columns: Columns,
        *,
        labels: Labels,
        zero_based: bool,
        unlabelled: bool,
        float64: bool,
        keep: Sequence[str],
        hint: str,
    ) -> None:
        self.names, self.columns, self.labels = table.names, columns, labels
        self.unlabelled, self.float64 = unlabelled, float64
        self.delimiter = DELIMITERS.get(columns.format, ",")
        self.missing = _Missing.of(columns.missing)
        at = {name: place for place, name in enumerate(table.names)}
        for column in columns.columns:
            if column.name not in at:
                raise _no_column(table, column.name, hint)
        # In the order of their indices: the position, the index of the number or of the first
        # category, and the column.
        self.features = [
            (at[one.name], start, one) for one, start in columns.with_starts(zero_based)
        ]
        # The position of the label, -1 if there is none.
        self.label = -1 if columns.label is None else at.get(columns.label, -1)
        if self.label < 0 and columns.label is not None and not unlabelled:
            raise _no_column(table, columns.label, hint)
        self.kept = [_place(table, name, "--keep") for name in keep]
        used = {place for place, _, _ in self.features} | {self.label} - {-1}
        _check_types(table, sorted(used), self.kept)
        self.used = sorted(used | set(self.kept))
        # The number of each text of a column of texts.
        self.categories = {
            place: {text: i for i, text in enumerate(column.categories)}
            for place, _, column in self.features
            if column.categories is not None
        }

    def block(self, batch: _Batch) -> tuple[int, Block, Counter[str], _Faults]:
        """Return the number of rows of a batch, those before its first fault, and the faults.

        Lines of spellings count from the first row. The counter has the number of texts of each
        column that are no category.
        """
        (m, arrays), faults, unseen = batch, _Faults(), Counter[str]()
        indices, values = self._features(m, arrays, unseen, faults)
        codes, y, spellings = self._labels(m, arrays, faults)
        keys = self._keys(arrays, faults)
        stop = m if faults.first is None else faults.first[0]
        indices, values = indices[:stop], values[:stop]
        present = values != 0
        indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(present, axis=1))])
        indices, values = indices[present], values[present]
        block = Block(
            codes=codes[:stop],
            spellings=[one for one in spellings if one.line <= stop],
            y=y[:stop],
            indptr=indptr.astype(np.int64),
            indices=indices,
            values=values if self.float64 else as_stored(values),
            features=_distinct(indices),
            queries=0,
            keys=keys[:stop] if self.kept else None,
        )
        return m, block, unseen, faults

    def _features(
        self, m: int, arrays: Mapping[int, Any], unseen: Counter[str], faults: _Faults
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices and values of all features, (m, columns)."""
        indices = np.empty((m, len(self.features)), np.int32)
        values = np.empty((m, len(self.features)))
        numbers = {
            place: arrays[place] for place, _, one in self.features if one.categories is None
        }
        places, plain = _all_numbers(numbers, self.missing)
        _check_float32(plain, places, arrays, self.names, faults)
        values_of = dict(zip(places, plain, strict=True))
        for k, (place, start, column) in enumerate(self.features):
            array, name = arrays[place], self.names[place]
            if column.categories is None:
                own = values_of.get(place)
                if own is None:
                    own = self._numbers(array, place, faults)
                indices[:, k], values[:, k] = start, own
                empty, fill = np.isnan(own), column.mean is not None
                if fill:
                    values[empty, k] = column.mean
            else:
                texts, fill = _checked_texts(array, place, name, faults), self.columns.fill
                known, empty = self.categories[place], texts.are_empty()
                category = np.array([known.get(text, -1) for text in texts.texts])[texts.codes]
                if count := int(((category < 0) & ~empty).sum()):
                    unseen[name] = count
                indices[:, k] = start + np.maximum(category, 0)
                values[:, k] = category >= 0
            if not fill:
                faults.add(empty, place, partial(_no_value, array, name, False))
        return indices, values

    def _labels(
        self, m: int, arrays: Mapping[int, Any], faults: _Faults
    ) -> tuple[np.ndarray, np.ndarray, list[Spelling]]:
        """Return codes, y and spellings of a block."""
        if self.label < 0:
            return np.zeros(m, np.int32), np.full(m, np.nan), [Spelling(UNLABELLED, 1, 1)]
        array, name = arrays[self.label], self.names[self.label]
        codes, y, spellings = np.zeros(m, np.int32), np.full(m, np.nan), list[Spelling]()
        if self.labels == "number":
            y = self._numbers(array, self.label, faults)
            empty = np.isnan(y)
        else:
            texts = _checked_texts(array, self.label, name, faults)
            empty, numbers = texts.are_empty(), dict[str, int]()
            for text, row in texts.in_order():
                if text not in numbers:
                    numbers[text] = len(spellings)
                    spellings.append(Spelling(text or UNLABELLED, row + 1, self.label + 1))
            of_texts = np.array([numbers.get(text, 0) for text in texts.texts], np.int32)
            codes = of_texts[texts.codes]
        if not self.unlabelled:
            faults.add(empty, self.label, partial(_no_value, array, name, True))
        return codes, y, spellings

    def _keys(self, arrays: Mapping[int, Any], faults: _Faults) -> list[str]:
        """Return the texts of the kept columns of each row as records."""
        kept = [
            _checked_texts(arrays[place], place, self.names[place], faults) for place in self.kept
        ]
        texts_of = [[one.texts[code] for code in one.codes.tolist()] for one in kept]
        return [written_record(row, self.delimiter) for row in zip(*texts_of, strict=True)]

    def _numbers(self, array: Any, place: int, faults: _Faults) -> np.ndarray:
        """Return a column of numbers, (m,) float64; nan: the value is missing."""
        values, bad = _numbers(array, self.missing)
        if bad is not None:
            faults.add(bad, place, partial(_not_a_number, array, self.names[place]))
        _check_float32(values[None], [place], {place: array}, self.names, faults)
        return values


def _distinct(indices: np.ndarray) -> np.ndarray:
    """Return the distinct indices, ascending, int32."""
    present = np.flatnonzero(np.bincount(indices)) if len(indices) else np.empty(0)
    return present.astype(np.int32)


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
    """Yield the rows of a table in order, converted by `jobs` threads.

    The columns may have another order than in `columns`, and others may be among them. unlabelled:
    the label may be missing. keep: names of columns whose text `Block.keys` holds. unseen: counts
    the texts of each column that are no category. no_header: the first line is a row, and the names
    follow from `columns`. Memory and errors are those of svmlight.read_blocks.
    """
    header = columns.header and not no_header
    hint, hint_of_first = _header_hint(header, columns.format), ""
    if not header and columns.format in DELIMITERS:
        hint_of_first = " (--no-header, here or in the training, reads the first line as a row)"
    with _opened(path, columns.format, header, opener, block_size) as table:
        if columns.header and no_header:
            table = _with_names_of(table, columns)
        _check_names(table, hint)
        rows = _Rows(
            table,
            columns,
            labels=labels,
            zero_based=zero_based,
            unlabelled=unlabelled,
            float64=float64,
            keep=keep,
            hint=hint,
        )
        row = table.first_row
        with closing(_in_threads(table, rows.used, rows.block, jobs, watch)) as parsed:
            for m, block, more_unseen, faults in parsed:
                if unseen is not None:
                    unseen.update(more_unseen)
                if len(block) or block.spellings:
                    yield in_file(block, row)
                if error := faults.error(table.name, row, hint_of_first):
                    raise error
                row += m


def chunks_of(rows: Any, columns: Columns, zero_based: bool) -> Iterator[RawChunk]:
    """Yield the rows of a data frame or a pyarrow table as chunks for prediction.

    Their features are those of `columns`; other columns are ignored. Labels are nan. Raises
    DataError for a missing column and for a value that has no features.
    """
    for block in read_blocks(
        Frame(rows), columns, labels="class", zero_based=zero_based, unlabelled=True, float64=True
    ):
        y = np.full(len(block), np.nan)
        yield RawChunk(y, block.indptr, block.indices, block.values)
