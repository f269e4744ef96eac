"""Tables: CSV, TSV, Parquet, and frames in memory, as record batches of pyarrow (extra `tables`).

A pass over the columns (`learn`) finds which of them hold numbers, and the categories of the
others; then the rows are read (`read_blocks`) with the features that `Columns` defines. pyarrow
decodes the files; everything after that is the same code for all of them. Errors have the number of
the row and that of the column. A header is a row, so in CSV the number of a row is its line unless
fields have line ends or lines are blank.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np

from randsvm import files
from randsvm.arrays import FEATURES, CsrMatrix, distinct
from randsvm.data._svmlight import end_of_records
from randsvm.data.chunks import as_stored, copied, spilled
from randsvm.data.columns import (
    DELIMITERS,
    EMPTY,
    FILLED,
    MISSING_WORDS,
    UNSEEN,
    Column,
    Columns,
    Frame,
    TableOptions,
    fields_of,
    format_hint,
    written_record,
)
from randsvm.data.database import Batches
from randsvm.data.svmlight import (
    BLOCK_SIZE,
    NEWLINE,
    PADDING,
    UNLABELLED,
    LineTooLongError,
    ParsedRows,
    ParseOptions,
    Spelling,
    in_file,
    pieces,
)
from randsvm.decimals import BOOLEANS, NUMBER, folded
from randsvm.errors import (
    ContentError,
    DataError,
    ParameterError,
    quoted,
    shortened,
    suggestion,
)
from randsvm.events import Notice, Progress, Watch, emit, silent
from randsvm.parallel import ThreadPool
from randsvm.parameters.option import AUTO
from randsvm.records import record

try:
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.csv
    import pyarrow.parquet
    import pyarrow.types as types
except ImportError as missing_module:
    raise ParameterError(
        f"tables need pyarrow (pip install pyarrow): {missing_module}"
    ) from missing_module

Result = TypeVar("Result")

MAX_CATEGORIES = 10_000
# Names that a message lists.
MAX_NAMES = 10
# A float64 is a whole number times 2 ** -EXPONENT.
EXPONENT = 1126
# Bytes of the longest row of a text.
LONGEST_ROW = 16 << 20
# A block of text is 1 / NARROW of a block of svmlight. If it would then have fewer than WIDE_ROWS
# rows as long as the header, it is longer, up to a whole block: each column of a block takes calls.
NARROW, WIDE_ROWS = 8, 10_000
# A batch of Parquet or a frame has VALUES values. ROWS: the least and the largest number of its
# rows.
VALUES = 1 << 19
ROWS = 64, 65_536
# Bytes of Parquet that are read at once: of one column at least and at most; of all columns.
COLUMN_BYTES = 1 << 14, 1 << 20
BUFFER_BYTES = 1 << 23
# Bytes of all dictionaries of texts in a row group.
DICTIONARY_BYTES = 1 << 25
# Texts that are finite numbers, as a pattern of pyarrow.
IS_NUMBER = rf"\A(?:{NUMBER.pattern})\z"
# Values that show whether a column is likely to hold numbers.
FIRST_VALUES = 2
# Whole numbers are likely to be ids if random ones of their range would repeat so often, and these
# repeat at most this share as often, or if the name of the column is that of ids.
REPEATS, SHARE_OF_REPEATS = 10, 0.1
NAME_OF_IDS = re.compile(r"(.*[_ .-])?id", re.IGNORECASE | re.DOTALL)
# The first line of rows in svmlight: that of a file of --keep-rows, or a label and features.
IS_SVMLIGHT = re.compile(rb"# rows of randsvm-train\r?\n|\S+( (qid|cost|[0-9]+):\S+)+\s*\n")
# Records of the beginning of a text that show its delimiter.
FIRST_RECORDS = 20
# A comma comes last, as it may also be in numbers.
TAB, LIKELY_DELIMITERS = "\t", "\t;|,"
# Between these, numbers may have decimal commas.
DECIMAL_COMMA = ";"
# The name that pandas gives to a column without one begins so.
UNNAMED = "Unnamed: "
# Characters around a value that are not part of it.
BLANKS = " \t"

ICONV = " (iconv -t utf-8 converts files)"
MEAN_FILLS = " (--missing mean fills it)"

# Opens a file for reading, from its start, or the rows of a frame.
Opener = Callable[[str], AbstractContextManager[Any]]
# The row and the column of a bad value in a batch, from 0, and the problem.
_Fault: TypeAlias = tuple[int, int, str]


# ---- columns of pyarrow as arrays -------------------------------------------------------------

# Methods of pyarrow such as `array`, `scalar` and `to_numpy` import pandas where that is installed,
# which takes 45 MB. Buffers of numpy do not.


def _arrow(values: np.ndarray, kind: Any) -> Any:
    return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])


NAN = _arrow(np.array([np.nan]), pyarrow.float64())[0]
NO_CODE = _arrow(np.array([-1], np.int32), pyarrow.int32())[0]


def _numpy(array: Any, null: Any = NAN) -> np.ndarray:
    """Return the values of an array as numbers of the type of `null`, which replaces null.

    Raises pyarrow.ArrowInvalid for a text that is no number.
    """
    array = array.cast(null.type, safe=False)
    if array.null_count:
        array = compute.coalesce(array, null)
    dtype = np.float64 if null is NAN else np.int32
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_number(kind: Any) -> bool:
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def _plain(array: Any) -> Any:
    """Return a column as an array of numbers, of strings, or of a dictionary of strings."""
    # For example, numbers of any length of PostgreSQL are an extension of strings.
    array = getattr(array, "storage", array)
    if types.is_dictionary(array.type):
        values = _plain(array.dictionary)
        # The texts of other batches are in the dictionary, too.
        if types.is_string(values.type) and len(values) <= len(array):
            return pyarrow.DictionaryArray.from_arrays(array.indices, values)
        return values.take(array.indices)
    # pyarrow divides the digits of a decimal, which does not give the nearest number.
    is_plain = types.is_string(array.type) or types.is_integer(array.type)
    return array if is_plain or types.is_floating(array.type) else array.cast("string")


def _numbers(array: Any) -> np.ndarray:
    """Return the numbers among strings, (m,) float64, nan for null and for other texts."""
    trimmed = compute.utf8_trim(array, BLANKS)
    is_number = compute.match_substring_regex(trimmed, IS_NUMBER)
    return _numpy(compute.if_else(is_number, trimmed, pyarrow.nulls(1, "string")[0]))


@dataclass
class _Batch:
    """Consecutive rows of a table.

    rows : their number; arrays : columns by their positions, see `_plain`; names : of all columns;
    faults : for each column the first row that is refused, if there is one
    decimal_comma : whether numbers may have commas in place of points
    marks : the first row and the column of a number with a point, and with a comma, if they may
    """

    rows: int
    arrays: dict[int, Any]
    names: Sequence[str]
    faults: list[_Fault] = field(default_factory=list)
    decimal_comma: bool = False
    marks: list[tuple[int, int, str]] = field(default_factory=list)

    def refuse(self, place: int, bad: np.ndarray, expected: str, hint: str = "") -> None:
        """Refuse the first of the rows that are bad, (m,) bool, in a column."""
        if bad.any():
            row = int(bad.argmax())
            value = self.arrays[place][row].as_py()
            found = quoted(value) if isinstance(value, str) and value else (value or "none")
            problem = f"expected {expected} in column {quoted(self.names[place])}, found {found}"
            self.faults.append((row, place, problem + hint))

    def texts(self, place: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, list[str]]:
        """Return for each row, or for some, the position of its text in a list; the last is empty.

        Blanks around texts are removed, and nan is empty.
        """
        codes, values = self.values(place, rows)
        return codes, ["" if v is None or v != v else str(v).strip(BLANKS) for v in values]

    def values(self, place: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, list[Any]]:
        """Return for each row, or for some, the position of its value in a list; the last is None.

        A NUL byte is refused, as no text format can hold it.
        """
        if rows is None:
            array = self._encoded(place)
        else:
            taken = _plain(self.arrays[place].take(_arrow(rows, pyarrow.int64())))
            array = taken if types.is_dictionary(taken.type) else taken.dictionary_encode()
        values = [*array.dictionary.to_pylist(), None]
        codes = _numpy(array.indices, NO_CODE)
        has_nul = np.array(["\0" in str(value) for value in values])[codes]
        if has_nul.any():
            row = int(has_nul.argmax() if rows is None else rows[has_nul.argmax()])
            problem = f"expected text in column {quoted(self.names[place])}, found a NUL byte"
            self.faults.append((row, place, problem))
        return codes, values

    def _encoded(self, place: int) -> Any:
        """Return a column as a dictionary, in which each text is compared once."""
        if not types.is_dictionary(self.arrays[place].type):
            self.arrays[place] = self.arrays[place].dictionary_encode()
        return self.arrays[place]

    def _with_points(self, array: Any) -> Any:
        """Return texts in which numbers have points."""
        return compute.replace_substring(array, ",", ".") if self.decimal_comma else array

    def _mark(self, places: Sequence[int], texts: Any, are_numbers: np.ndarray) -> None:
        """Note where columns have a point, and where a comma. are_numbers : (columns, m) bool"""
        for mark in ".,":
            has = _numpy(compute.match_substring(texts, mark), NO_CODE) == 1
            marked = has.reshape(len(places), -1) & are_numbers
            for at in np.flatnonzero(marked.any(axis=1)).tolist():
                self.marks.append((int(marked[at].argmax()), places[at], mark))

    def numbers(self, places: Sequence[int], missing: Sequence[str] = ()) -> np.ndarray:
        """Return columns as numbers, (columns, m) float64; nan : missing, or another text.

        Numbers outside the range of float32 are refused. missing : see TableOptions
        """
        values = np.empty((len(places), self.rows))
        groups: dict[Any, list[int]] = {}
        texts: list[tuple[list[int], Any]] = []
        for at, place in enumerate(places):
            array = self.arrays[place]
            is_number = not types.is_dictionary(array.type)
            if types.is_string(array.type):
                # pyarrow makes a message for each text that is no number, which takes long.
                first = filter(None, self._with_points(array[:FIRST_VALUES]).to_pylist())
                is_number = NUMBER.fullmatch(next(first, "")) is not None
            if is_number:
                groups.setdefault(array.type, []).append(at)
                continue
            array = self._encoded(place)
            numbers = np.append(_numbers(self._with_points(array.dictionary)), np.nan)
            values[at] = numbers[_numpy(array.indices, NO_CODE)]
            if self.decimal_comma and not np.isnan(numbers).all():
                texts.append(([at], array.dictionary_decode()))
        # Each call of pyarrow takes longer than the numbers of a short column.
        for kind, members in groups.items():
            joined, found = pyarrow.concat_arrays([self.arrays[places[at]] for at in members]), None
            is_text = types.is_string(kind)
            plain = self._with_points(joined) if is_text else joined
            with suppress(pyarrow.ArrowInvalid):
                found = _numpy(plain)
            # pyarrow reads inf, too, a text that may stand for a missing number.
            if found is None or (is_text and np.isinf(found).any()):
                found = _numbers(plain)
            values[members] = found.reshape(len(members), -1)
            if is_text and self.decimal_comma:
                texts.append((members, joined))
        if missing:
            values[np.isin(values, _floats(missing))] = np.nan
        for members, own in texts:
            self._mark([places[at] for at in members], own, ~np.isnan(values[members]))
        with np.errstate(over="ignore"):
            bad = np.isinf(values.astype(np.float32))
        for at in np.flatnonzero(bad.any(axis=1)).tolist():
            self.refuse(places[at], bad[at], "a finite number within float32 (3.4e38)")
        return values


def _is_missing(text: str, missing: Collection[str]) -> bool:
    """Return whether a text stands for a missing number, as MISSING_WORDS do in any case."""
    if text.lower() in MISSING_WORDS or text in missing:
        return True
    # A decimal comma may be in the place of the point.
    text = text.replace(",", ".")
    return NUMBER.fullmatch(text) is not None and float(text) in _floats(missing)


def _floats(texts: Iterable[str]) -> list[float]:
    return [float(text) for text in texts if NUMBER.fullmatch(text)]


def _in_table(missing: Sequence[str], table: _Table) -> tuple[str, ...]:
    """Return the texts that stand for a missing number, and those that have points there."""
    points = [text.replace(",", ".") for text in missing if table.delimiter == DECIMAL_COMMA]
    return (*missing, *points)


# ---- files and frames as batches --------------------------------------------------------------


@record
class _Table:
    """An open table.

    names, kinds : of the columns, the types as pyarrow has them; first_row : the number of the
    first row; batches : yields a function for each batch that decodes the columns at some
    positions, in ascending order; hint : the advice for a header that names no such column;
    of_pandas : names of the columns of an index, as the metadata of pandas has them; delimiter : of
    the fields of a text; is_other_likely : whether another one seems to divide them
    """

    name: str
    names: list[str]
    kinds: list[Any]
    batches: Callable[[Sequence[int]], Iterator[Callable[[], _Batch]]]
    first_row: int = 1
    hint: str = ""
    of_pandas: Sequence[str] = ()
    delimiter: str = ""
    is_other_likely: bool = False

    @property
    def index(self) -> list[int]:
        """The positions of columns that pandas wrote for the index of a frame.

        CSV gives them no name, and pandas reads such a column as `Unnamed: 0`.
        """
        of_index = "", *self.of_pandas
        return [
            at for at, name in enumerate(self.names) if name in of_index or name.startswith(UNNAMED)
        ]

    def refused(self, problem: str, *hints: str, place: int = 0) -> DataError:
        """Return the error for a column or its name."""
        return _error((self.name, 1, place), problem, *hints)

    def places(self, wanted: Iterable[str | None], flag: str = "") -> list[int]:
        """Return the positions of columns given by their names, or else by their numbers from 1."""
        found, positions = [], {name: at for at, name in reversed([*enumerate(self.names)])}
        for name in (one for one in wanted if one is not None):
            is_position = flag and name.isdecimal() and 1 <= int(name) <= len(self.names)
            if name not in positions and not is_position:
                more = ", ..." * (len(self.names) > MAX_NAMES)
                listed = ", ".join(map(quoted, self.names[:MAX_NAMES])) + more
                near = suggestion(name, self.names)
                problem = f"expected a column {quoted(name)}, found {listed}{near}"
                raise self.refused(problem, flag, self.hint)
            found.append(positions[name] if name in positions else int(name) - 1)
        return found

    def check(self, features: Collection[str], places: Sequence[int], kept: Sequence[int]) -> None:
        """Raise DataError for a name of two columns, and for a type without features or texts."""
        for name, count in Counter(self.names).items():
            if count > 1 and (name or name in features):
                problem = f"expected different names of columns, found {quoted(name)} {count} times"
                raise self.refused(problem, self.hint)
        for place in (*places, *kept):
            kind = self.kinds[place]
            inner = kind.value_type if types.is_dictionary(kind) else kind
            is_known = _is_number(inner) or _is_text(inner) or str(inner) in ("bool", "null")
            if not is_known and not (place in kept and types.is_temporal(inner)):
                problem = f"expected numbers or texts in column {quoted(self.names[place])}"
                problem += f", found the type {shortened(str(kind))}"
                raise self.refused(problem, "--ignore-columns leaves it out", place=place)

    def scan(
        self, places: Iterable[int], work: Callable[[_Batch], Result], threads: int
    ) -> Generator[tuple[int, Result], None, None]:
        """Yield for each batch the number of its first row, and work(batch), in order.

        Threads compute them. Raises DataError after a batch with faults: for the first one, by row
        and then by column.
        """

        def done(decode: Callable[[], _Batch]) -> tuple[_Batch, Result]:
            batch = decode()
            return batch, work(batch)

        row, decoders = self.first_row, self.batches(sorted(set(places)))
        marks: dict[int, str] = {}
        with (
            ThreadPool(threads) as pool,
            closing(pool.map_in_order(done, decoders, threads)) as results,
        ):
            for batch, result in results:
                yield row, result
                for at, place, mark in sorted(batch.marks):
                    # A comma could separate thousands in a column with decimal points.
                    if marks.setdefault(place, mark) != mark:
                        expected = {".": "commas", ",": "points"}[mark]
                        rows = np.arange(batch.rows) == at
                        batch.refuse(place, rows, f"decimal {expected} as before")
                if batch.faults:
                    at, place, problem = min(batch.faults)
                    raise DataError(self.name, row + at, place + 1, problem)
                row += batch.rows


def _error(where: tuple[str, int, int], problem: str, *hints: str) -> DataError:
    """Return an error. where : file, row from 1, column from 0; hints : empty ones are left out"""
    file, row, place = where
    given = "; ".join(filter(None, hints))
    return DataError(file, row, place + 1, problem + f" ({given})" * bool(given))


@contextmanager
def opener_of(paths: Sequence[str], tmpdir: str | None) -> Iterator[Opener]:
    """Yield a function that opens the files, each as often as needed: pipes and streams of record
    batches are copied.

    tmpdir: the folder of the copies, which have no names; None: the system's.
    """
    copies: dict[str, BinaryIO] = {}

    def opened(path: str) -> AbstractContextManager[Any]:
        if path not in copies:
            return open_source(path)
        copies[path].seek(0)
        return nullcontext(copies[path])

    with ExitStack() as stack:
        # pyarrow keeps memory that it has freed, some 50 MB, for its next arrays.
        stack.callback(pyarrow.default_memory_pool().release_unused)
        for path in paths:
            if isinstance(path, Frame):
                with path.opened() as rows, _stream_errors(path):
                    source = _arrow_rows(path, rows)
                    if not isinstance(source, pyarrow.Table):
                        copies[path] = stack.enter_context(spilled(_messages(source), tmpdir))
            elif files.size_of(path) is None:
                with files.open_input(path) as stream, files.reading(path):
                    copies[path] = stack.enter_context(copied(stream, tmpdir))
        yield opened


def open_source(path: str) -> AbstractContextManager[Any]:
    """Open a file, or the rows of a frame."""
    return path.opened() if isinstance(path, Frame) else files.open_input(path)


@contextmanager
def _opened(
    path: str,
    options: TableOptions,
    opener: Opener,
    watch: Watch,
) -> Iterator[_Table]:
    """Open a table and read the names of its columns. Raises DataError."""
    with ExitStack() as stack:
        stream = stack.enter_context(opener(path))
        if isinstance(path, Frame):
            is_copy = hasattr(stream, "seek")
            yield _frame(path, stream if is_copy else _arrow_rows(path, stream), watch)
            return
        if options.format != "parquet":
            yield _delimited(path, stream, options, watch)
            return
        if not (hasattr(stream, "raw") and stream.seekable()):
            # The names of the columns are at the end of the file, which a decompressor reaches only
            # through all content; only plain files have a raw stream.
            with files.reading(path):
                stream = stack.enter_context(copied(stream))
        yield _parquet(path, stream, watch)


def _batches(
    name: str,
    names: list[str],
    read: Callable[[Sequence[int], int], Iterable[Any]],
    places: Sequence[int],
) -> Iterator[Callable[[], _Batch]]:
    """Yield a function for each batch of pyarrow.

    read : receives the places of columns and a number of rows, and yields batches of that size
    """
    for batch in read(places, _batch_rows(len(places))):
        yield partial(_batch, batch, name, names, places)


def _batch_rows(columns: int) -> int:
    return min(max(ROWS[0], VALUES // max(1, columns)), ROWS[1])


def _batch(batch: Any, name: str, names: list[str], places: Sequence[int]) -> _Batch:
    try:
        arrays = dict(zip(places, map(_plain, batch.columns), strict=True))
    except pyarrow.ArrowException as error:
        # For example, the system does not know the time zone of a column.
        raise ContentError(f"{name}: {shortened(str(error))}") from None
    return _Batch(batch.num_rows, arrays, names)


def _arrow_rows(path: str, rows: Any) -> Any:
    """Return rows as a table of pyarrow if they are in memory, else as a reader of batches.

    A frame of another library that is not known to be in memory may be read only once.
    """
    try:
        if hasattr(rows, "iloc"):
            return pyarrow.Table.from_pandas(rows, preserve_index=False)
        if isinstance(rows, pyarrow.Table) or hasattr(rows, "__dataframe__"):
            return pyarrow.table(rows)
        if isinstance(rows, Batches):
            return rows
        return pyarrow.RecordBatchReader.from_stream(rows)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        # The last of several messages of pyarrow names the column.
        found = str(error.args[-1]) if error.args else str(error)
        raise ContentError(f"{path}: expected columns of one type each: {found}") from None


def _messages(reader: Any) -> Iterator[bytes]:
    """Yield the messages of a stream of Arrow with the batches of a reader."""
    buffer, done = io.BytesIO(), 0
    with pyarrow.ipc.new_stream(buffer, reader.schema) as stream:
        for part in _parts(reader, _batch_rows(len(reader.schema))):
            stream.write_batch(part)
            done += part.num_rows
            emit(Progress("reading", done))
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _parts(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yield batches of at most this number of rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _frame(name: str, source: Any, watch: Watch) -> _Table:
    """Return the table of what `_arrow_rows` returned, or of a file of `_messages`."""

    def copy(places: Sequence[int] | None = None) -> Any:
        source.seek(0)
        options = pyarrow.ipc.IpcReadOptions(included_fields=places and list(places))
        return pyarrow.ipc.open_stream(source, options=options)

    is_copy = hasattr(source, "seek")
    schema = copy().schema if is_copy else source.schema
    names = list(map(str, schema.names))

    def read(places: Sequence[int], size: int) -> Iterator[Any]:
        if isinstance(source, pyarrow.Table):
            yield from source.select(places).to_batches(size)
            return
        done, batches = 0, copy(places) if is_copy else (one.select(places) for one in source)
        with _stream_errors(name):
            for batch in _parts(batches, size):
                done += batch.num_rows
                watch(Progress("reading", done))
                yield batch

    kinds = [getattr(kind, "storage_type", kind) for kind in schema.types]
    of_pandas = _index_names(schema)
    return _Table(name, names, kinds, partial(_batches, name, names, read), of_pandas=of_pandas)


@contextmanager
def _stream_errors(name: str) -> Iterator[None]:
    """Turn the errors of a stream of record batches into a ContentError."""
    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise ContentError(f"{name}: {' '.join(str(error).split())}") from None


def _index_names(schema: Any) -> list[str]:
    """Return the names of the columns that hold the index of a frame of pandas."""
    try:
        found = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
        # A range of numbers is an object: it has no column.
        return [name for name in found if isinstance(name, str)]
    except (KeyError, TypeError, ValueError):
        return []


def _parquet(path: str, stream: BinaryIO, watch: Watch) -> _Table:
    name, size = files.display_name(path), files.size_of(path)
    with _parquet_errors(name):
        metadata = pyarrow.parquet.read_metadata(stream)
        # pyarrow makes the schema anew for each access, in time proportional to its width.
        schema = metadata.schema.to_arrow_schema()
        names = list(schema.names)
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        # pyarrow collects the texts of a whole row group in a dictionary, which holds each once.
        strings = {one.name for one in schema if _is_text(one.type)}
        largest = DICTIONARY_BYTES // max(1, len(strings))
        repeated = [
            leaf.path
            for i, leaf in enumerate(metadata.schema)
            if leaf.path in strings
            and all(group.column(i).total_uncompressed_size <= largest for group in groups)
        ]
        file = pyarrow.parquet.ParquetFile(
            stream,
            metadata=metadata,
            read_dictionary=repeated,
            buffer_size=min(
                max(COLUMN_BYTES[0], BUFFER_BYTES // max(1, len(names))), COLUMN_BYTES[1]
            ),
            pre_buffer=False,
        )

    def read(places: Sequence[int], rows: int) -> Iterator[Any]:
        done = 0
        with _parquet_errors(name):
            for batch in file.iter_batches(rows, columns=[names[place] for place in places]):
                # Positions in dictionaries and UTF-8 were not checked before.
                batch.validate(full=True)
                done += batch.num_rows
                if size is not None:
                    watch(Progress("reading", size * done // metadata.num_rows, size, "B"))
                yield batch

    kinds, of_pandas = [one.type for one in schema], _index_names(schema)
    return _Table(name, names, kinds, partial(_batches, name, names, read), of_pandas=of_pandas)


@contextmanager
def _parquet_errors(name: str) -> Iterator[None]:
    """Turn the errors of pyarrow into a ContentError."""
    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = f"expected a Parquet file: {shortened(str(error))}"
        raise ContentError(f"{name}: {problem}{format_hint(name, 'parquet')}") from None


def _delimited(path: str, stream: BinaryIO, options: TableOptions, watch: Watch) -> _Table:
    """Return the table of a text. Its first row has the names, or as many fields as the others."""
    name, header, usual = files.display_name(path), options.header, DELIMITERS[options.format]
    delimiter, size = options.delimiter or usual, max(1, BLOCK_SIZE // NARROW)

    def ends(text: np.ndarray, size: int) -> int:
        nonlocal delimiter
        if delimiter == AUTO and (text[:size] == NEWLINE).sum() > 1:
            delimiter = _likely_delimiter(text[:size], usual)
        return 0 if delimiter == AUTO else end_of_records(text, size, ord(delimiter))

    texts = pieces(stream, path, lambda: size, LONGEST_ROW, watch, end_of_records=ends)
    with _long_rows(name):
        first = next(texts)
    if len(first) <= len(PADDING):
        raise DataError(name, 1, 1, "expected a row, found an empty file")
    if delimiter == AUTO:
        delimiter = _likely_delimiter(first, usual)
    fields, row = _first_record(first, delimiter, name, format_hint(path, options.format))
    size = min(max(size, WIDE_ROWS * len(",".join(fields))), BLOCK_SIZE)
    names = fields if header else [str(i + 1) for i in range(len(fields))]
    other = _likely_delimiter(first[: -len(PADDING)], delimiter)
    hint = "--no-header if the first line is a row" * header
    if other != delimiter:
        hint = f"{_option(other)} if it divides the fields"
    if IS_SVMLIGHT.match(first.tobytes()):
        rows = "svmlight, such as those of --keep-rows"
        hint = f"the rows are {rows}: give the {options.format} table"

    def batches(places: Sequence[int]) -> Iterator[Callable[[], _Batch]]:
        own_names = list(map(str, range(len(names))))
        included = [own_names[place] for place in places]
        parse = partial(
            _parsed,
            table,
            places,
            named=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=LONGEST_ROW + BLOCK_SIZE, column_names=own_names
            ),
            strings=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(included, pyarrow.string()),
                include_columns=included,
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
        skipped = int(header)
        with _long_rows(name):
            for text in chain([first], texts):
                if len(text) > len(PADDING):
                    yield partial(parse, text=text, skipped=skipped)
                skipped = 0

    table = _Table(
        name,
        names,
        [pyarrow.string()] * len(names),
        batches,
        row + int(header),
        hint,
        delimiter=delimiter,
        is_other_likely=other != delimiter,
    )
    return table


def _option(delimiter: str) -> str:
    return f"--delimiter {'tab' if delimiter == TAB else repr(delimiter)}"


def _likely_delimiter(text: np.ndarray, default: str) -> str:
    """Return the delimiter that divides the first records into as many fields each, if one does."""
    head = files.decoded(text.tobytes())
    for delimiter in LIKELY_DELIMITERS:
        with suppress(csv.Error):
            records = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
            widths = [len(one) for one in islice(filter(None, records), FIRST_RECORDS)]
            # The last record may be cut.
            whole = widths[:-1] or widths
            if whole and min(whole) == max(whole) > 1:
                return delimiter
    return default


@contextmanager
def _long_rows(name: str) -> Iterator[None]:
    try:
        yield
    except LineTooLongError:
        what = f"a row of more than {LONGEST_ROW:,} bytes, or a quote that does not end"
        raise ContentError(f"{name}: expected rows, found {what}") from None


def _first_record(text: np.ndarray, delimiter: str, name: str, hint: str) -> tuple[list[str], int]:
    """Return the fields of the first row, and its number, which counts blank lines before it."""
    lines = io.StringIO(files.decoded(text.tobytes()), newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        row, fields = next((row, fields) for row, fields in enumerate(reader, 1) if fields)
    except (csv.Error, StopIteration) as error:
        raise DataError(name, 1, 1, f"expected the names of columns: {error}") from None
    if re.search("[\0\udc80-\udcff]", "".join(fields)):
        raise DataError(name, row, 1, f"expected UTF-8 in the names of columns{hint or ICONV}")
    return [one.strip(BLANKS) for one in fields], row


def _parsed(
    table: _Table,
    places: Sequence[int],
    *,
    named: Any,
    strings: Any,
    text: np.ndarray,
    skipped: int,
) -> _Batch:
    """Return some columns of whole records, as strings. skipped : the rows to leave out"""
    faults: list[_Fault] = []
    names, delimiter = table.names, table.delimiter
    hint = f" ({table.hint})" * table.is_other_likely

    def refuse(row: Any) -> str:
        problem = f"expected {row.expected_columns} fields, found {row.actual_columns}{hint}"
        faults.append((row.number - 1 - skipped, 0, problem))
        return "skip"

    parsing = pyarrow.csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
    )
    no_rows = dict.fromkeys(places, pyarrow.nulls(0, "string"))
    content = pyarrow.BufferReader(text[: -len(PADDING)])
    try:
        found = pyarrow.csv.read_csv(content, named, parsing, strings).slice(skipped)
    except pyarrow.ArrowInvalid as error:
        place = re.search(r"column #(\d+): Row #(\d+): .*UTF8", str(error))
        if place is None:
            raise ContentError(f"{table.name}: {error}") from None
        column, row = int(place[1]), int(place[2]) - 1 - skipped
        problem = f"expected UTF-8 in column {quoted(names[column])}{ICONV}"
        return _Batch(0, no_rows, names, [(row, column, problem)])
    # pyarrow accepts an open quote, which makes a field of all rows to the end of the file.
    if found.num_rows == 1 and not end_of_records(text, len(text) - 1, ord(delimiter)):
        problem = f"expected a quote at the end of a field in column {quoted(names[-1])}"
        faults.append((0, len(names) - 1, problem))
    batches = found.to_batches()
    arrays = dict(zip(places, batches[0].columns, strict=True)) if batches else no_rows
    return _Batch(found.num_rows, arrays, names, faults, decimal_comma=delimiter == DECIMAL_COMMA)


# ---- the columns of a training ----------------------------------------------------------------


def exact_sums(values: np.ndarray) -> list[int]:
    """Return the sum of each row of numbers times 2 ** EXPONENT, without rounding.

    So the mean of a column does not depend on how its rows are divided into batches. values : (k,
    m) float64, m up to 2 ** 26; nan and infinity are left out
    """
    fractions, exponents = np.frexp(np.where(np.isfinite(values), values, 0))
    whole = np.ldexp(fractions, 53).astype(np.int64)
    # A value is whole * 2 ** (exponent - 53). Those of a row with one exponent are summed together.
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


def repeats(values: np.ndarray) -> tuple[float, float]:
    """Return how many repeat an earlier one, of as many random whole numbers in the range of these,
    and of these themselves.

    The second number is a lower bound if it is too large for ids, and inf if some values are not
    whole. values : (m,) float64; nan and infinity are left out
    """
    values = values[np.isfinite(values)]
    m, first = len(values), values[:FIRST_VALUES]
    if (first != np.floor(first)).any() or (values != np.floor(values)).any():
        return 0.0, np.inf
    if not m:
        return 0.0, 0.0
    size = float(values.max() - values.min()) + 1
    expected = m + size * np.expm1(-m / size)
    least = max(0.0, m - size)
    # Sorting takes longer than all else.
    if expected < 1 or least > SHARE_OF_REPEATS * expected:
        return expected, least
    return expected, float(m - len(distinct(values)))


@dataclass
class _Learnt:
    """The values of a column of features.

    count, total : the number of its numbers, and their exact sum; texts : the others, each with the
    file and the row of its first one, and the position of the column there; expected, repeated :
    sums of what `repeats` returns
    """

    name: str
    is_categorical: bool
    count: int = 0
    total: int = 0
    texts: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    expected: float = 0.0
    repeated: float = 0.0

    @property
    def is_like_ids(self) -> bool:
        """Whether the numbers of the column are likely to be ids, by its name or their values."""
        if self.is_categorical or self.repeated == np.inf:
            return False
        are_unique = self.repeated <= SHARE_OF_REPEATS * self.expected
        is_named = NAME_OF_IDS.fullmatch(self.name) is not None
        return is_named or (are_unique and self.expected >= REPEATS)

    def check_texts(self) -> None:
        """Raise DataError for more texts than a column of categories may have."""
        if len(self.texts) > MAX_CATEGORIES:
            others = (text for text in self.texts if not NUMBER.fullmatch(text))
            first = next(others, next(iter(self.texts)))
            problem = (
                f"expected numbers or at most {MAX_CATEGORIES:,} different texts in column "
                f"{quoted(self.name)}, found {quoted(first)} and others"
            )
            raise _error(self.texts[first], problem, "--ignore-columns leaves it out")

    def column(self, fill: bool, missing: Collection[str], file: str) -> Column:
        """Return the column. Raises DataError if it has no content, or numbers and texts."""
        texts = sorted(set(map(folded, self.texts)), key=files.encoded)
        words = [text for text in self.texts if not _is_missing(text, missing)]
        name = quoted(self.name)
        if not self.count:
            # A number among the texts stands for a missing one.
            if all(map(NUMBER.fullmatch, texts)) and not (self.is_categorical and texts):
                problem = f"expected values in column {name}, found none"
                raise _error((file, 1, 0), problem, "--ignore-columns leaves it out")
            return Column(self.name, tuple(texts))
        if words:
            numbers = f"{self.count:,} number{'s' * (self.count != 1)}"
            problem = f"expected a number in column {name}, which has {numbers}, found "
            hints = (
                f"--missing-values {_shell_record(words[0])} reads it as missing",
                f"--categorical-columns {_shell_record(self.name)} makes categories of all values",
            )
            # A message is one line.
            printable = filter(str.isprintable, hints)
            raise _error(self.texts[words[0]], problem + quoted(words[0]), *printable)
        return Column(self.name, None, self.total / (1 << EXPONENT) / self.count if fill else None)


def _shell_record(*texts: str) -> str:
    """Return a record of CSV as a word of a shell."""
    return "'" + written_record(texts, ",").replace("'", "'\\''") + "'"


def learn(
    paths: Iterable[tuple[str, Watch]],
    options: TableOptions,
    threads: int,
    opener: Opener,
) -> Columns:
    """Return the columns of files with the same columns. Raises DataError.

    A column is a number if all its fields are numbers or missing; a mixture of numbers and texts
    is refused unless the column is named as categorical. paths: with the listeners of their events
    """
    missing = tuple(text.strip(BLANKS) for text in fields_of(options.missing))
    every_missing = set(missing)
    learnt: dict[str, _Learnt] = {}
    labels, left_out, of_index, rows, first = list[int](), list[int](), list[str](), 0, None
    for path, watch in paths:
        with _opened(path, options, opener, watch) as table:
            # A number stands for a column of each file: those of all files have one name.
            labels = table.places([options.label], "--label-column")
            ignored = table.places(fields_of(options.ignored), "--ignore-columns")
            groups = table.places([options.group], "--group-column")
            coded = table.places(fields_of(options.categorical), "--categorical-columns")
            index = sorted({*table.index} - {*labels, *ignored, *groups, *coded})
            index = [] if options.keep_index else index
            own = sorted({*labels, *ignored, *groups, *index})
            if first is None:
                first, left_out, of_index = table, own, [table.names[at] for at in index]
                for at in set(coded) & set(left_out):
                    problem = f"names {quoted(table.names[at])}, which is no feature"
                    raise ParameterError(f"--categorical-columns {problem}")
                for at, name in enumerate(table.names):
                    if at not in left_out:
                        learnt[name] = _Learnt(name, at in coded)
                if not learnt:
                    raise table.refused("expected a column of features", table.hint)
                if table.is_other_likely and len(table.names) == 1 and not options.delimiter:
                    kept = f"{_option(table.delimiter)} reads one"
                    raise table.refused("expected several columns, found one", table.hint, kept)
            if other := learnt.keys() ^ (set(table.names) - {table.names[at] for at in own}):
                found = f"found {quoted(min(other))} in one file only"
                raise table.refused(f"expected the columns of {first.name}, {found}")
            own_missing = _in_table(missing, table)
            every_missing.update(own_missing)
            rows += _learn_file(table, list(learnt.values()), own_missing, options.fill, threads)
    assert first is not None
    if not rows:
        problem = "expected rows after the names of the columns, found none"
        raise first.refused(problem, first.hint)
    if ids := [one.name for one in learnt.values() if one.count and one.is_like_ids]:
        emit(Notice(_remark_about_ids(ids)))
    return Columns(
        format=options.format,
        header=options.header,
        label=table.names[labels[0]] if labels else None,
        fill=options.fill,
        columns=tuple(
            one.column(options.fill, every_missing, first.name) for one in learnt.values()
        ),
        others=tuple((at, first.names[at]) for at in left_out if options.header),
        missing=missing,
        index=tuple(of_index),
        delimiter="" if first.delimiter == DELIMITERS.get(options.format) else first.delimiter,
    )


def _remark_about_ids(names: Sequence[str]) -> str:
    """Return a message about columns of numbers that are likely to be ids."""
    listed = ", ".join(map(quoted, names[:MAX_NAMES])) + ", ..." * (len(names) > MAX_NAMES)
    looks = f"columns {listed} look like ids, not quantities: leave them out"
    if len(names) == 1:
        looks = f"column {listed} looks like an id, not a quantity: leave it out"
    record = _shell_record(*names[:MAX_NAMES])
    option = f" with --ignore-columns {record}" if record.isprintable() else ""
    return f"{looks}{option}?"


def _learn_file(
    table: _Table, learnt: Sequence[_Learnt], missing: Sequence[str], has_sums: bool, threads: int
) -> int:
    """Add what the columns of features have in a file; return the number of its rows."""
    places = table.places([one.name for one in learnt])
    table.check([one.name for one in learnt], places, ())
    numeric = [place for place, one in zip(places, learnt, strict=True) if not one.is_categorical]

    def contents(batch: _Batch) -> tuple[int, list[tuple[Any, ...]]]:
        """Return the number of rows, and for each column the number of its numbers, their sum, what
        `repeats` says of them, and its texts with rows."""
        values = batch.numbers(numeric, missing)
        have_text = np.isnan(values)
        counts = (batch.rows - have_text.sum(axis=1)).tolist()
        sums = exact_sums(values) if has_sums else [0] * len(values)
        found = zip(counts, sums, map(repeats, values), have_text, strict=True)
        numbers = dict(zip(numeric, found, strict=True))
        no_numbers, content = (0, 0, (0.0, 0.0), np.ones(batch.rows, bool)), []
        for place in places:
            count, total, repeated, is_text = numbers.get(place, no_numbers)
            has_texts = count + batch.arrays[place].null_count < batch.rows
            texts = _first_rows(batch, place, np.flatnonzero(is_text)) if has_texts else []
            content.append((count, total, repeated, texts))
        return batch.rows, content

    rows = 0
    for row, (count_of_rows, found) in table.scan(places, contents, threads):
        rows += count_of_rows
        for one, place, (count, total, repeated, texts) in zip(learnt, places, found, strict=True):
            one.count += count
            one.total += total
            one.expected, one.repeated = one.expected + repeated[0], one.repeated + repeated[1]
            for text, at in texts:
                if text:
                    one.texts.setdefault(text, (table.name, row + at, place))
            one.check_texts()
    return rows


def _first_rows(batch: _Batch, place: int, rows: np.ndarray | None = None) -> list[tuple[str, int]]:
    """Return the different texts of some rows, or all, with their first rows, in that order."""
    chosen = np.arange(batch.rows) if rows is None else rows
    if not len(chosen):
        return []
    codes, texts = batch.texts(place, None if len(chosen) == batch.rows else chosen)
    first = np.full(len(texts), batch.rows)
    # The rows come in reverse, since of several with one code the last assignment stays.
    first[codes[::-1]] = chosen[::-1]
    found: dict[str, int] = {}
    for code in np.argsort(first).tolist():
        found.setdefault(texts[code], int(first[code]))
    return [(text, row) for text, row in found.items() if row < batch.rows]


# ---- rows -------------------------------------------------------------------------------------


class _Rows:
    """Makes rows with the features of a training from the columns of a table.

    columns : of the training; keep : names of the columns of `ParsedRows.keys`; exact_keys : see
    `read_blocks`
    """

    def __init__(
        self,
        table: _Table,
        columns: Columns,
        options: ParseOptions,
        keep: Sequence[str],
        exact_keys: bool,
    ) -> None:
        self.columns, self.options, self.exact_keys = columns, options, exact_keys
        self.missing = _in_table(columns.missing, table)
        starts = list(columns.with_starts(options.zero_based))
        self.starts = [start for _, start in starts]
        names = [column.name for column in columns.columns]
        self.features, self.kept = table.places(names), table.places(keep, "--keep")
        # The position of the label; None if there is none.
        is_needed = columns.label is not None and not options.any_label
        is_named = columns.label in table.names or is_needed
        self.label = table.places([columns.label])[0] if is_named else None
        own = [*self.features, *([] if self.label is None else [self.label])]
        table.check({*names, *keep}, own, self.kept)
        self.places = [*own, *self.kept]
        self.positions = [_positions(column.categories or (), start) for column, start in starts]

    def block(self, batch: _Batch) -> ParsedRows:
        """Return the rows of a batch before its first fault.

        Lines of spellings count from the first row. `lacking` counts all rows of the batch.
        """
        indices, values, lacking = self._features(batch)
        codes, y, spellings = self._labels(batch)
        keys = self._keys(batch) if self.kept else None
        rows = min([batch.rows, *(row for row, _, _ in batch.faults)])
        mask = values[:rows] != 0
        indices, stored = indices[:rows][mask], values[:rows][mask]
        starts = np.append(0, np.cumsum(mask.sum(axis=1)))
        stored = stored if self.options.float64 else as_stored(stored)
        return ParsedRows(
            CsrMatrix(stored, indices, starts, (rows, FEATURES)),
            y[:rows],
            None,
            features=np.flatnonzero(np.bincount(indices)).astype(np.int32),
            codes=codes[:rows],
            spellings=[one for one in spellings if one.line <= rows],
            keys=None if keys is None else keys[:rows],
            lacking=lacking,
        )

    def _features(self, batch: _Batch) -> tuple[np.ndarray, np.ndarray, Counter[tuple[str, str]]]:
        """Return the indices and values of all features, (m, columns), and what they lack."""
        columns, fill = self.columns.columns, self.columns.fill
        shape = batch.rows, len(columns)
        indices, X = np.empty(shape, np.int32), np.empty(shape)
        lacking = Counter[tuple[str, str]]()
        indices[:] = self.starts
        numeric = [at for at, column in enumerate(columns) if column.categories is None]
        numbers = batch.numbers([self.features[at] for at in numeric], self.missing)
        for i in np.flatnonzero(np.isnan(numbers).any(axis=1)).tolist():
            column, place = columns[numeric[i]], self.features[numeric[i]]
            is_missing = self._without_number(batch, place, numbers[i], "a value", fill)
            numbers[i, is_missing] = column.mean or 0.0
            lacking[FILLED, column.name] += int(is_missing.sum())
        X[:, numeric] = numbers.T
        for at, column in enumerate(columns):
            if column.categories is None:
                continue
            place, positions = self.features[at], self.positions[at]
            codes, texts = batch.texts(place)
            known = np.array([_position(positions, text) for text in texts], np.int32)[codes]
            is_empty = np.array([not text for text in texts])[codes]
            if not fill:
                batch.refuse(place, is_empty, "a value", MEAN_FILLS)
            X[:, at], indices[:, at] = known >= 0, known
            lacking[EMPTY, column.name] += int(is_empty.sum())
            lacking[UNSEEN, column.name] += int(((known < 0) & ~is_empty).sum())
        # The plus leaves out zeros.
        return indices, X, +lacking

    def _without_number(
        self, batch: _Batch, place: int, values: np.ndarray, expected: str, is_optional: bool
    ) -> np.ndarray:
        """Return which rows have no number. Refuse other texts, and all unless it is optional."""
        is_missing, bad = np.isnan(values), np.zeros(batch.rows, bool)
        rows, hint = np.flatnonzero(is_missing), MEAN_FILLS * (place != self.label)
        if len(rows) > batch.arrays[place].null_count:
            codes, texts = batch.texts(place, rows)
            is_other = np.array([not _is_missing(text, self.missing) for text in texts])
            bad[rows] = is_other[codes]
            batch.refuse(place, bad, "a number")
        if not is_optional:
            batch.refuse(place, is_missing & ~bad, expected, hint)
        return is_missing

    def _labels(self, batch: _Batch) -> tuple[np.ndarray, np.ndarray, list[Spelling]]:
        """Return codes, y and spellings of a block."""
        place, no_codes, y = self.label, np.empty(0, np.int32), np.full(batch.rows, np.nan)
        if place is None:
            return np.zeros(batch.rows, np.int32), y, [Spelling(UNLABELLED, 1, 1)]
        if self.options.labels == "number":
            (y,) = batch.numbers([place], self.missing)
            self._without_number(batch, place, y, "a label", self.options.any_label)
            return no_codes, y, []
        codes, texts = batch.texts(place)
        if not self.options.any_label:
            batch.refuse(place, np.array([not text for text in texts])[codes], "a label")
            has_end = np.array([not {"\n", "\r"}.isdisjoint(text) for text in texts])[codes]
            batch.refuse(place, has_end, "a label without line ends")
        first = dict(_first_rows(batch, place))
        spellings = [Spelling(one or UNLABELLED, row + 1, place + 1) for one, row in first.items()]
        numbers = {text: number for number, text in enumerate(first)}
        return np.array([numbers.get(one, 0) for one in texts], np.int32)[codes], y, spellings

    def _keys(self, batch: _Batch) -> list[str]:
        """Return the kept columns of each row as records.

        In those of a database an empty text is "", and a field without a text is NULL.
        """
        delimiter = self.columns.separator
        if not self.exact_keys:
            columns = [np.array(own, object)[codes] for codes, own in map(batch.texts, self.kept)]
            return [written_record(row, delimiter) for row in zip(*columns, strict=True)]
        fields = []
        for codes, values in map(batch.values, self.kept):
            texts = ["" if v is None else written_record([str(v)], delimiter) for v in values]
            fields.append(np.array(texts, object)[codes])
        return list(map(delimiter.join, zip(*fields, strict=True)))


def _positions(categories: Sequence[str], start: int) -> dict[str, int]:
    """Return the feature of each text; 1 and 0 may stand for booleans."""
    found = {text: start + i for i, text in enumerate(map(folded, categories))}
    numbers = {BOOLEANS[text]: found[text] for text in BOOLEANS.keys() & found.keys()}
    return numbers | found


def _position(positions: dict[str, int], text: str) -> int:
    """Return the feature of a text, or -1. Codes are 2.0 where a frame has missing ones."""
    text = folded(text)
    whole = text.removesuffix(".0")
    if text in positions or not whole.lstrip("-").isdecimal():
        return positions.get(text, -1)
    return positions.get(whole, positions.get(f"{whole}.0", -1))


def read_blocks(
    path: str,
    options: ParseOptions,
    *,
    columns: Columns,
    threads: int = 1,
    watch: Watch = silent,
    keep: Sequence[str] = (),
    exact_keys: bool = False,
    opener: Opener = open_source,
) -> Generator[ParsedRows, None, None]:
    """Yield the rows of a table in order, converted by this number of threads.

    The columns may have another order than in `columns`, and others may be among them. Where the
    table has no header, unlike that of `columns`, its names follow from `columns`. keep: names of
    columns whose text `ParsedRows.keys` holds; exact_keys: with blanks, and with "" for an empty
    text that is not NULL. Memory and errors are those of svmlight.read_blocks.
    """
    assert options.table is not None, "the rows are those of a table"
    with _opened(path, options.table, opener, watch) as table:
        if columns.header and not options.table.header:
            layouts = columns.names_without_header()
            if len(table.names) not in layouts:
                widths = " or ".join(f"{width} ({words})" for width, (_, words) in layouts.items())
                where = f"in a file without a header, found {len(table.names)}"
                raise table.refused(f"expected {widths} fields {where}", table.hint)
            table.names[:] = layouts[len(table.names)][0]
        rows = _Rows(table, columns, options, keep, exact_keys)
        with closing(table.scan(rows.places, rows.block, threads)) as blocks:
            for row, block in blocks:
                yield in_file(block, row)


def parts_of(rows: Any, columns: Columns, zero_based: bool) -> Iterator[CsrMatrix]:
    """Yield the rows of a data frame or a pyarrow table for prediction, as in a file.

    Their features are those of `columns`; other columns are ignored. Raises DataError for a
    missing column and for a value that has no features.
    """
    how = TableOptions(columns.format, header=columns.header)
    options = ParseOptions(zero_based=zero_based, any_label=True, float64=True, table=how)
    return (block.X for block in read_blocks(Frame(rows), options, columns=columns))
