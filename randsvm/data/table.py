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
import re
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

import numpy as np

from randsvm import files
from randsvm.data._svmlight import end_of_records
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
    PADDING,
    UNLABELLED,
    Labels,
    LineTooLongError,
    ParsedRows,
    Spelling,
    in_file,
    pieces,
)
from randsvm.decimals import NUMBER
from randsvm.errors import ContentError, DataError, ParameterError, quoted, shortened
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

Result = TypeVar("Result")

MAX_CATEGORIES = 10_000
# The pattern of MISSING_WORDS.
MISSING = "|".join(map(re.escape, sorted(MISSING_WORDS)))
# Types of pyarrow for texts.
TEXTS = "string", "large_string", "string_view"
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

# Opens a file for reading, from its start.
Opener = Callable[[str], AbstractContextManager[BinaryIO]]


@contextmanager
def opener_of(paths: Sequence[str], tmpdir: str | None) -> Iterator[Opener]:
    """Yield a function that opens the files, each as often as needed: pipes are copied.

    tmpdir: the folder of the copies, which have no names; None: the system's.
    """
    copies: dict[str, BinaryIO] = {}

    def opened(path: str) -> AbstractContextManager[BinaryIO]:
        if path not in copies:
            return files.open_input(path)
        copies[path].seek(0)
        return nullcontext(copies[path])

    with ExitStack() as stack:
        # pyarrow keeps memory that it has freed, some 50 MB, for its next arrays.
        stack.callback(pyarrow.default_memory_pool().release_unused)
        for path in paths:
            if not isinstance(path, Frame) and files.size_of(path) is None:
                with files.open_input(path) as stream:
                    copies[path] = stack.enter_context(copied(stream, tmpdir))
        yield opened


# ---- files as batches -------------------------------------------------------------------------


# A bad value of a batch: its row, from 0, the position of its column, and the problem.
_Fault: TypeAlias = tuple[int, int, str]

# The number of rows of a batch, the arrays of some columns, each as `_plain` returns it, and the
# text that pyarrow refuses; then there are no rows.
_Decoded: TypeAlias = tuple[int, list[Any], list[_Fault]]


class _Table(NamedTuple):
    """An open table.

    names, types : of the columns, as pyarrow has them; first_row : the number of the first row
    batches : yields a function for each batch that decodes the columns at some positions
    hint : the advice about --no-header for messages about the names of columns
    """

    name: str
    names: list[str]
    types: list[Any]
    first_row: int
    batches: Callable[[Sequence[int]], Iterator[Callable[[], _Decoded]]]
    hint: str = ""


def _opened(
    path: str, format_: Format, header: bool, opener: Opener, watch: Watch, block_size: int
) -> AbstractContextManager[_Table]:
    """Open a table and read the names of its columns. Raises DataError."""
    if isinstance(path, Frame):
        return nullcontext(_frame(path))
    if format_ == "parquet":
        return _parquet(path, opener, watch)
    return _delimited(path, format_, header, opener, watch, block_size)


@contextmanager
def _delimited(
    path: str, format_: Format, header: bool, opener: Opener, watch: Watch, block_size: int
) -> Iterator[_Table]:
    name, delimiter = files.display_name(path), DELIMITERS[format_]
    size = block_size // NARROW
    ends = partial(end_of_records, delimiter=ord(delimiter))
    with opener(path) as stream:
        found = pieces(stream, path, lambda: size, LONGEST_ROW, watch, end_of_records=ends)
        texts = (text for text in found if len(text) > len(PADDING))
        try:
            first = next(texts, None)
            if first is None:
                raise DataError(name, 1, 1, "expected a row, found an empty file")
            head = first.tobytes()
            names, rows = _first_row(head, format_, name)
            size = min(block_size, max(size, WIDE_ROWS * head.find(b"\n")))
            if not header:
                names, rows = [str(number + 1) for number in range(len(names))], 0

            def batches(places: Sequence[int]) -> Iterator[Callable[[], _Decoded]]:
                skipped = chain([rows], repeat(0))
                for text in chain([first], texts):
                    yield partial(_parsed, text, name, delimiter, names, places, next(skipped))

            hint = "--no-header if the first line is a row" * header
            yield _Table(name, names, [pyarrow.string()] * len(names), rows + 1, batches, hint)
        except LineTooLongError:
            problem = f"a row of more than {LONGEST_ROW:,} bytes, or a quote that does not end"
            raise ContentError(f"{name}: expected a table, found {problem}") from None


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


def _parsed(
    text: np.ndarray,
    name: str,
    delimiter: str,
    names: Sequence[str],
    places: Sequence[int],
    skipped: int,
) -> _Decoded:
    """Return some columns of whole records, as strings. skipped : the rows to leave out"""
    bad: list[Any] = []

    def refuse(row: Any) -> str:
        bad.append(row)
        return "error"

    # pyarrow.array imports pandas where that is installed.
    nothing = [pyarrow.nulls(0, pyarrow.string())] * len(places)
    # One line end of the padding: the last record of a file may have none.
    text, labels = text[: 1 - len(PADDING)], [str(place) for place in range(len(names))]
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.BufferReader(pyarrow.py_buffer(text)),
            pyarrow.csv.ReadOptions(
                column_names=labels,
                skip_rows_after_names=skipped,
                use_threads=False,
                block_size=len(text),
            ),
            pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            # `_Batch.numbers` converts texts, since it knows which stand for a missing number.
            pyarrow.csv.ConvertOptions(
                include_columns=[labels[place] for place in places],
                column_types=dict.fromkeys(labels, pyarrow.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except pyarrow.ArrowInvalid as error:
        if bad:
            problem = f"expected {len(names)} fields, found {bad[0].actual_columns}"
            return 0, nothing, [(bad[0].number - skipped - 1, 0, problem)]
        found = re.search(r"column #(\d+): Row #(\d+): .*UTF8", str(error))
        if found is None:
            problem = f"expected a table, found {shortened(str(error))}"
            raise ContentError(f"{name}: {problem}") from None
        place, row = map(int, found.groups())
        problem = f"expected UTF-8 in column {quoted(names[place])} (iconv -t utf-8 converts files)"
        return 0, nothing, [(row - skipped - 1, place, problem)]
    # pyarrow accepts an open quote, which makes a field of all rows to the end of the file.
    if table.num_rows == 1 and not end_of_records(text, len(text), ord(delimiter)):
        where = f"in column {quoted(names[-1])}, found the end of the file"
        problem = f"expected a quote at the end of a field {where}"
        return 0, nothing, [(0, len(names) - 1, problem)]
    return table.num_rows, [column.chunk(0) for column in table.columns], []


@contextmanager
def _parquet(path: str, opener: Opener, watch: Watch) -> Iterator[_Table]:
    name, size = files.display_name(path), files.size_of(path)
    with ExitStack() as stack:
        stream = stack.enter_context(opener(path))
        if not stream.seekable():
            # The names of the columns are at the end of the file.
            stream = stack.enter_context(copied(stream))
        with _parquet_errors(name):
            metadata = pyarrow.parquet.read_metadata(stream)
            schema = metadata.schema.to_arrow_schema()
            # pyarrow makes the schema anew for each access, in time proportional to its width.
            names, types = list(schema.names), [one.type for one in schema]
            share = BUFFER_BYTES // max(1, len(names))
            file = pyarrow.parquet.ParquetFile(
                stream,
                metadata=metadata,
                read_dictionary=_repeated_texts(metadata, schema),
                buffer_size=min(max(COLUMN_BYTES[0], share), COLUMN_BYTES[1]),
                pre_buffer=False,
            )
        stack.callback(file.close)

        def batches(places: Sequence[int]) -> Iterator[Callable[[], _Decoded]]:
            done, wanted = 0, [names[place] for place in places]
            with _parquet_errors(name):
                for batch in file.iter_batches(_batch_rows(places), columns=wanted):
                    done += batch.num_rows
                    if size is not None:
                        at = size * done // metadata.num_rows
                        watch(Progress("reading", at, size, "B"))
                    yield partial(_validated, batch, name)

        yield _Table(name, names, types, 1, batches)


def _batch_rows(places: Sequence[int]) -> int:
    """Return the number of rows of a batch with these columns."""
    return min(max(ROWS[0], VALUES // len(places)), ROWS[1])


def _repeated_texts(metadata: Any, schema: Any) -> list[str]:
    """Return the columns of strings that are read as dictionaries, which hold each text once.

    pyarrow collects the texts of a whole row group in a dictionary, so columns with many different
    texts, such as names, are left out.
    """
    strings = {one.name for one in schema if str(one.type) in TEXTS}
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    share = DICTIONARY_BYTES // max(1, len(strings))
    return [
        leaf.path
        for i, leaf in enumerate(metadata.schema)
        if leaf.path in strings
        and all(group.column(i).total_uncompressed_size <= share for group in groups)
    ]


@contextmanager
def _parquet_errors(name: str) -> Iterator[None]:
    """Turn the errors of pyarrow into a ContentError."""
    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = f"expected a Parquet file: {shortened(str(error))}"
        raise ContentError(f"{name}: {problem}{format_hint(name, 'parquet')}") from None


def _validated(batch: Any, name: str) -> _Decoded:
    """Return the columns of a batch. Raises ContentError for those of a damaged file."""
    with _parquet_errors(name):
        # Positions in dictionaries and UTF-8 were not checked before.
        batch.validate(full=True)
        return batch.num_rows, list(map(_plain, batch.columns)), []


def _frame(frame: Frame) -> _Table:
    if hasattr(frame.rows, "__arrow_c_stream__"):
        whole = pyarrow.table(frame.rows)
    else:
        whole = pyarrow.Table.from_pandas(frame.rows, preserve_index=False)

    def batches(places: Sequence[int]) -> Iterator[Callable[[], _Decoded]]:
        for batch in whole.select(list(places)).to_batches(_batch_rows(places)):
            yield partial(_validated, batch, str(frame))

    return _Table(str(frame), list(whole.schema.names), whole.schema.types, 1, batches)


# ---- the values of a batch --------------------------------------------------------------------


def _is_number(kind: Any) -> bool:
    types = pyarrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _plain(array: Any) -> Any:
    """Return a column as an array of numbers, of strings, or of a dictionary of strings."""
    types, kind = pyarrow.types, array.type
    if types.is_dictionary(kind):
        # The texts of other batches are in the dictionary, too.
        if types.is_string(kind.value_type) and len(array.dictionary) <= len(array):
            return array
        return _plain(array.dictionary_decode())
    if types.is_float16(kind):
        return array.cast(pyarrow.float32())
    return array if types.is_string(kind) or _is_number(kind) else array.cast(pyarrow.string())


class _Texts(NamedTuple):
    """A column as texts.

    codes : (m,) int32, positions in `texts`; texts : without blanks around, not all distinct; the
    last one is empty, and stands for null
    """

    codes: np.ndarray
    texts: list[str]

    def first_rows(self) -> list[tuple[str, int]]:
        """Return the texts that rows have, each with its first row, in the order of these rows."""
        m = len(self.codes)
        rows = np.full(len(self.texts), m)
        # The last of several assignments remains.
        rows[self.codes[::-1]] = np.arange(m)[::-1]
        found = sorted(zip(rows.tolist(), self.texts, strict=True))
        return [(text, row) for row, text in found if row < m]

    def are_empty(self) -> np.ndarray:
        """Return which rows have an empty text, (m,) bool."""
        return np.array([not text for text in self.texts])[self.codes]


@dataclass
class _Batch:
    """Rows of a table, and what is wrong with them.

    rows : their number; arrays : see `_plain`, by the positions of their columns; names : of all
    columns; missing : texts that stand for a missing number, as MISSING_WORDS and null do;
    dictionaries : columns as dictionaries of their distinct values
    """

    rows: int
    arrays: dict[int, Any]
    names: Sequence[str]
    missing: Sequence[str]
    faults: list[_Fault]
    dictionaries: dict[int, Any] = field(default_factory=dict)

    def refuse(self, place: int, bad: np.ndarray, problem: Callable[[Any, str], str]) -> None:
        """Add the first bad row of a column. problem : of a value in a column of some name"""
        if bad.any():
            row = int(bad.argmax())
            found = problem(self.arrays[place][row].as_py(), quoted(self.names[place]))
            self.faults.append((row, place, found))

    def _encoded(self, place: int) -> Any:
        array = self.arrays[place]
        if pyarrow.types.is_dictionary(array.type):
            return array
        if place not in self.dictionaries:
            self.dictionaries[place] = array.dictionary_encode()
        return self.dictionaries[place]

    def texts(self, place: int) -> _Texts:
        """Return a column as texts, and refuse NUL bytes, which no text format can hold."""
        array = self._encoded(place)
        values = array.dictionary.to_pylist()
        # nan differs from itself.
        texts = ["" if v is None or v != v else str(v).strip(" \t") for v in values]
        found = _Texts(_codes(array), [*texts, ""])
        if any("\0" in text for text in texts):
            bad = np.array(["\0" in text for text in found.texts])
            self.refuse(place, bad[found.codes], _has_nul)
        return found

    def numbers(self, places: Sequence[int]) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Return columns as numbers, and refuse those that no float32 is near to.

        The numbers are (columns, m) float64, nan where there is none. The other arrays, (m,) bool
        by the positions of their columns, tell which rows have another text.
        """
        values, others = np.empty((len(places), self.rows)), dict[int, np.ndarray]()
        # Columns of one type are converted together, which saves a quarter of the time of tables
        # with thousands of columns, and a seventh of others.
        groups: dict[Any, list[int]] = {}
        for k, place in enumerate(places):
            array = self.arrays[place]
            groups.setdefault(_is_number_at_ends(array) and array.type, []).append(k)
        for kind, of in groups.items():
            found = _float64([self.arrays[places[k]] for k in of]) if kind else None
            if found is not None:
                values[of] = found
                continue
            for k in of:
                values[k], bad = self._column_numbers(places[k])
                if bad.any():
                    others[places[k]] = bad
        if numbers := [float(text) for text in self.missing if NUMBER.fullmatch(text)]:
            values[np.isin(values, numbers)] = np.nan
        with np.errstate(over="ignore"):
            large = np.isinf(values.astype(np.float32))
        for k in np.flatnonzero(large.any(axis=1)).tolist():
            self.refuse(places[k], large[k], _not_a_number)
        return values, others

    def _column_numbers(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a column as numbers, (m,), and which rows have another text, (m,) bool."""
        array = self.arrays[place]
        if _is_number_at_ends(array) and (found := _float64([array])) is not None:
            return found[0], np.zeros(self.rows, bool)
        array = self._encoded(place)
        words = compute.utf8_trim(array.dictionary, " \t")
        own = "".join(f"|{re.escape(text)}" for text in self.missing)
        are_missing = compute.match_substring_regex(words, rf"\A(?:(?i:{MISSING}){own})\z")
        words = compute.if_else(are_missing, pyarrow.nulls(len(words), words.type), words)
        numbers, bad = _float64([words]), np.zeros(len(words), bool)
        if numbers is None:
            texts = words.to_pylist()
            known = [float(one) if one and NUMBER.fullmatch(one) else np.nan for one in texts]
            numbers = np.array([known])
            bad = np.isnan(known) & [one is not None for one in texts]
        codes = _codes(array)
        return np.append(numbers, np.nan)[codes], np.append(bad, False)[codes]


def _is_number_at_ends(array: Any) -> bool:
    """Return whether the first and the last value of a column are numbers or null.

    pyarrow makes a message for each text that is no number, which takes long.
    """
    if not pyarrow.types.is_string(array.type):
        return not pyarrow.types.is_dictionary(array.type)
    ends = [array[row].as_py() for row in (0, -1)] if len(array) else []
    return all(text is None or NUMBER.fullmatch(text) for text in ends)


def _codes(array: Any) -> np.ndarray:
    """Return the positions in the dictionary of an array, (m,); its length for null."""
    return _filled(array.indices.cast(pyarrow.int32()), np.int32, len(array.dictionary))


def _float64(arrays: Sequence[Any]) -> np.ndarray | None:
    """Return columns of one type as numbers, (columns, m), nan for null; None unless all texts are
    finite numbers."""
    array = arrays[0] if len(arrays) == 1 else pyarrow.concat_arrays(arrays)
    try:
        # Without `safe`, integers above 2^53 are rounded as numpy rounds them.
        values = _filled(array.cast(pyarrow.float64(), safe=False), np.float64, np.nan)
    except pyarrow.ArrowInvalid:
        return None
    if _is_number(array.type) or np.isfinite(values).sum() + array.null_count == len(values):
        return values.reshape(len(arrays), -1)
    return None


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


def _not_a_number(value: Any, column: str) -> str:
    text, expected = str(value), "a number"
    if NOT_FINITE.fullmatch(text):
        expected = "a finite number"
    elif NUMBER.fullmatch(text):
        expected = "a number within float32 (3.4e38)"
    return f"expected {expected} in column {column}, found {quoted(text)}"


def _no_value(value: Any, column: str, what: str = "a value", hint: str = "") -> str:
    found = quoted(value) if isinstance(value, str) and value else str(value or "none")
    return f"expected {what} in column {column}, found {found}{hint}"


def _has_nul(value: Any, column: str) -> str:
    return f"expected text in column {column}, found a NUL byte"


_no_label = partial(_no_value, what="a label")
_no_feature = partial(_no_value, hint=" (--missing mean fills it)")


def _in_order(
    table: _Table,
    places: Sequence[int],
    missing: Sequence[str],
    work: Callable[[_Batch], Result],
    threads: int,
) -> Generator[tuple[int, int, Result], None, None]:
    """Yield for each batch its first row, its number of rows, and work(batch), in order.

    Threads compute them. Raises DataError after a batch with faults: for the first one, by row and
    then by column.
    """

    def done(decode: Callable[[], _Decoded]) -> tuple[_Batch, Result]:
        rows, arrays, faults = decode()
        of_places = dict(zip(places, arrays, strict=True))
        batch = _Batch(rows, of_places, table.names, missing, faults)
        return batch, work(batch)

    row = table.first_row
    with (
        ThreadPool(threads) as pool,
        closing(pool.map_in_order(done, table.batches(places), threads)) as found,
    ):
        for batch, result in found:
            yield row, batch.rows, result
            if batch.faults:
                at, place, problem = min(batch.faults, key=lambda fault: fault[:2])
                raise DataError(table.name, row + at, place + 1, problem)
            row += batch.rows


# ---- the names of columns ---------------------------------------------------------------------


def _hint(*parts: str) -> str:
    """Return the end of a message with these parts in brackets, without empty ones."""
    found = "; ".join(filter(None, parts))
    return f" ({found})" if found else ""


def _refused(table: _Table, problem: str, *hints: str, place: int = 0) -> DataError:
    """Return the error for a column or its name."""
    return DataError(table.name, 1, place + 1, problem + _hint(*hints))


def _check_names(table: _Table, used: Container[str]) -> None:
    """Raise DataError unless all columns have different names, or none. used : of the features"""
    for one, times in Counter(table.names).items():
        if times > 1 and (one or one in used):
            problem = f"expected different names of columns, found {quoted(one)} {times} times"
            raise _refused(table, problem, table.hint)


def _no_column(table: _Table, wanted: str, *hints: str) -> DataError:
    more = ", ..." if len(table.names) > MAX_NAMES else ""
    found = ", ".join(map(quoted, table.names[:MAX_NAMES])) + more
    problem = f"expected a column {quoted(wanted)}, found {found}"
    return _refused(table, problem, *hints, table.hint)


def _place(table: _Table, wanted: str, flag: str) -> int:
    """Return the position of a column given by its name, or else by its number from 1.

    flag : the option that names the column
    """
    if wanted in table.names:
        return table.names.index(wanted)
    if wanted.isdigit() and 1 <= int(wanted) <= len(table.names):
        return int(wanted) - 1
    raise _no_column(table, wanted, flag)


def _check_types(table: _Table, places: Sequence[int], kept: Sequence[int] = ()) -> None:
    """Raise DataError for a column whose type has no features, or a kept one that has no texts."""
    for place in sorted({*places, *kept}):
        found = table.types[place]
        kind = found.value_type if pyarrow.types.is_dictionary(found) else found
        legal = _is_number(kind) or str(kind) in (*TEXTS, "bool", "null")
        if place not in places:
            # Types of bytes are binary, large_binary, fixed_size_binary and binary_view.
            legal = not (pyarrow.types.is_nested(kind) or "binary" in str(kind))
        if not legal:
            where = f"in column {quoted(table.names[place])}"
            problem = f"expected numbers or texts {where}, found the type {found}"
            raise _refused(table, problem, "--ignore-columns leaves it out", place=place)


# ---- the columns ------------------------------------------------------------------------------


# The content of a column in a batch: the sum of its numbers times 2 ** EXPONENT, how many it has,
# and its other texts, each with its first row in the batch, from 0.
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
    batch: _Batch, places: Sequence[int], categorical: set[int], has_sums: bool
) -> list[_Content]:
    """Return the content of each column; the numbers of a categorical column are texts.

    has_sums : whether sums are needed; else they are 0
    """
    numeric = [place for place in places if place not in categorical]
    values, others = batch.numbers(numeric)
    counts = np.isfinite(values).sum(axis=1)
    sums = iter(exact_sums(values[counts > 0]) if has_sums else repeat(0))
    of_numbers = dict(zip(numeric, zip(counts.tolist(), values, strict=True), strict=True))
    no_numbers, contents = (0, np.full(batch.rows, np.nan)), list[_Content]()
    for place in places:
        count, own = of_numbers.get(place, no_numbers)
        total, texts = next(sums) if count else 0, list[tuple[str, int]]()
        if not count or place in others:
            found = batch.texts(place).first_rows()
            texts = [(text, row) for text, row in found if text and np.isnan(own[row])]
        contents.append((total, count, texts))
    return contents


@dataclass
class _Learnt:
    """The content of a column: its numbers, and its texts with the place of each first one.

    categorical: whether its numbers are texts, too; total: see _Content
    """

    name: str
    categorical: bool
    total: int = 0
    count: int = 0
    texts: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def add(self, found: _Content, file: str, first_row: int, place: int) -> None:
        """Add what a batch has in the column. Raises DataError for too many texts."""
        total, count, texts = found
        self.total += total
        self.count += count
        for text, row in texts:
            self.texts.setdefault(text, (file, first_row + row, place + 1))
        if len(self.texts) > MAX_CATEGORIES:
            words = (text for text in self.texts if not NUMBER.fullmatch(text))
            text = next(words, next(iter(self.texts)))
            problem = (
                f"expected numbers or at most {MAX_CATEGORIES:,} different texts in column "
                f"{quoted(self.name)}, found more (--ignore-columns leaves it out), such as "
                f"{quoted(text)}"
            )
            raise DataError(*self.texts[text], problem)

    def words(self, missing: Sequence[str]) -> list[str]:
        """Return the texts that do not stand for a missing number.

        missing : more texts that stand for a missing number. In a column of numbers, numbers among
        its texts are such texts, too.
        """
        return [
            text
            for text in self.texts
            if not (text.lower() in MISSING_WORDS or text in missing or NUMBER.fullmatch(text))
        ]

    def column(self, fill: bool, missing: Sequence[str], file: str) -> Column:
        """Return the column.

        Raises DataError if it has no content, an infinite number, or numbers and texts.
        """
        name = quoted(self.name)
        if not self.count:
            # A number among them stands for a missing one.
            if all(map(NUMBER.fullmatch, self.texts)) and not (self.categorical and self.texts):
                problem = f"expected values in column {name}, found none"
                raise DataError(file, 1, 1, f"{problem} (--ignore-columns leaves it out)")
            return Column(self.name, tuple(sorted(self.texts, key=files.encoded)))
        words = self.words(missing)
        for text in words:
            if NOT_FINITE.fullmatch(text):
                problem = f"expected a finite number in column {name}, found {quoted(text)}"
                raise DataError(*self.texts[text], problem)
        if words:
            numbers = f"{self.count:,} number{'s' * (self.count > 1)}"
            problem = f"expected a number in column {name}, which has {numbers}, found "
            hints = (
                f"--missing-values {_shell_record(words[0])} reads it as missing",
                f"--categorical-columns {_shell_record(self.name)} makes categories of all values",
            )
            # A message is one line.
            hint = _hint(*filter(str.isprintable, hints))
            raise DataError(*self.texts[words[0]], f"{problem}{quoted(words[0])}{hint}")
        return Column(self.name, None, self.total / (1 << EXPONENT) / self.count if fill else None)


def _shell_record(field: str) -> str:
    """Return a record of CSV with one field as a word of a shell."""
    record = written_record([field], ",").replace("'", r"'\''")
    return f"'{record}'"


def learn(
    paths: Iterable[tuple[str, Watch]],
    options: TableOptions,
    threads: int,
    opener: Opener,
    *,
    block_size: int = BLOCK_SIZE,
) -> Columns:
    """Return the columns of files with the same columns. Raises DataError.

    A column is a number if all its fields are numbers or missing; a mixture of numbers and texts
    is refused unless the column is named as categorical. paths: with the listeners of their events
    """
    learnt: dict[str, _Learnt] = {}
    label, others, rows, hint, first = None, list[tuple[int, str]](), 0, "", ""
    missing = tuple(text.strip(" \t") for text in fields_of(options.missing))
    for path, watch in paths:
        first = first or files.display_name(path)
        with _opened(path, options.format, options.header, opener, watch, block_size) as table:
            hint, left_out = table.hint, _left_out(table, options)
            if options.label is not None:
                label = table.names[_place(table, options.label, "--label-column")]
            names = [name for name in table.names if name not in left_out]
            _check_names(table, names)
            if learnt and set(names) != learnt.keys():
                other = next(iter(learnt.keys() ^ set(names)))
                found = f"{quoted(other)} in one file only"
                raise _refused(table, f"expected the columns of {first}, found {found}")
            if not names:
                raise _refused(table, "expected a column of features")
            if not learnt:
                categorical = _named(table, "--categorical-columns", options.categorical)
                if both := categorical & left_out:
                    raise ParameterError(
                        f"--categorical-columns names {quoted(min(both))}, which is no feature"
                    )
                learnt = {name: _Learnt(name, name in categorical) for name in names}
                if options.header:
                    others = [(i, s) for i, s in enumerate(table.names) if s in left_out]
            rows += _learn_file(table, learnt, missing, options.fill, threads)
    if not rows:
        problem = f"expected rows after the names of the columns, found none{_hint(hint)}"
        raise DataError(first, 1, 1, problem)
    columns = tuple(one.column(options.fill, missing, first) for one in learnt.values())
    return Columns(
        options.format, options.header, label, options.fill, columns, tuple(others), missing
    )


def _named(table: _Table, flag: str, record: str) -> set[str]:
    """Return the names of the columns that an option lists. Raises DataError for an unknown one."""
    return {table.names[_place(table, one, flag)] for one in fields_of(record)}


def _left_out(table: _Table, options: TableOptions) -> set[str]:
    """Return the names of columns that are no features. Raises DataError for an unknown one."""
    single = [("--label-column", options.label), ("--group-column", options.group)]
    places = [_place(table, name, flag) for flag, name in single if name is not None]
    ignored = _named(table, "--ignore-columns", options.ignored)
    return ignored | {table.names[place] for place in places}


def _learn_file(
    table: _Table,
    learnt: Mapping[str, _Learnt],
    missing: Sequence[str],
    has_sums: bool,
    threads: int,
) -> int:
    """Add what the columns of features have; return the number of rows. has_sums: see _contents"""
    places = [place for place, name in enumerate(table.names) if name in learnt]
    categorical = {place for place in places if learnt[table.names[place]].categorical}
    _check_types(table, places)

    def work(batch: _Batch) -> list[_Content]:
        return _contents(batch, places, categorical, has_sums)

    count = 0
    with closing(_in_order(table, places, missing, work, threads)) as batches:
        for first_row, rows, contents in batches:
            for place, found in zip(places, contents, strict=True):
                learnt[table.names[place]].add(found, table.name, first_row, place)
            count += rows
    return count


# ---- the rows ---------------------------------------------------------------------------------


class _Rows:
    """Makes rows with the features of a training from the columns of a table.

    columns : of the training; keep : names of the columns of `ParsedRows.keys`. labels, zero_based,
    unlabelled, float64: see `read_blocks`
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
    ) -> None:
        self.columns, self.labels = columns, labels
        self.unlabelled, self.float64 = unlabelled, float64
        self.delimiter = DELIMITERS.get(columns.format, ",")
        at = {name: place for place, name in enumerate(table.names)}
        needed = [column.name for column in columns.columns]
        if columns.label is not None and not unlabelled:
            needed.append(columns.label)
        for name in needed:
            if name not in at:
                raise _no_column(table, name)
        # For each column of numbers: its place among all columns of features, its position in the
        # table, and the value of a missing number, nan if that is refused.
        self.numbers = list[tuple[int, int, float]]()
        # For each column of texts its place and its position; the number of each of its texts.
        self.texts = list[tuple[int, int, dict[str, int]]]()
        for k, column in enumerate(columns.columns):
            place = at[column.name]
            if column.categories is None:
                mean = np.nan if column.mean is None else column.mean
                self.numbers.append((k, place, mean))
            else:
                known = {text: i for i, text in enumerate(column.categories)}
                for i, text in enumerate(column.categories):
                    # Whole numbers are floats in a frame where one of them is missing.
                    if (whole := text.removesuffix(".0")).lstrip("-").isdecimal():
                        known.setdefault(whole, i)
                        known.setdefault(f"{whole}.0", i)
                self.texts.append((k, place, known))
        # The index of the number, or of the first category.
        self.starts = np.array([start for _, start in columns.with_starts(zero_based)], np.int32)
        # The position of the label, -1 if there is none.
        self.label = -1 if columns.label is None else at.get(columns.label, -1)
        self.kept = [_place(table, name, "--keep") for name in keep]
        used = {place for _, place, _ in [*self.numbers, *self.texts]} | {self.label} - {-1}
        _check_types(table, sorted(used), self.kept)
        self.used = sorted(used | set(self.kept))

    def block(self, batch: _Batch) -> tuple[ParsedRows, Counter[str]]:
        """Return the rows of a batch before its first fault.

        Lines of spellings count from the first row. The counter has the number of texts of each
        column that are no category.
        """
        indices, values, unseen = self._features(batch)
        codes, y, spellings = self._labels(batch)
        keys = self._keys(batch)
        stop = min((row for row, _, _ in batch.faults), default=batch.rows)
        indices, values = indices[:stop], values[:stop]
        present = values != 0
        indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(present, axis=1))])
        indices, values = indices[present], values[present]
        block = ParsedRows(
            codes=codes[:stop],
            spellings=[one for one in spellings if one.line <= stop],
            y=y[:stop],
            indptr=indptr.astype(np.int64),
            indices=indices,
            values=values if self.float64 else as_stored(values),
            features=np.flatnonzero(np.bincount(indices)).astype(np.int32),
            queries=0,
            keys=keys[:stop] if self.kept else None,
        )
        return block, unseen

    def _features(self, batch: _Batch) -> tuple[np.ndarray, np.ndarray, Counter[str]]:
        """Return the indices and values of all features, (m, columns), and the unseen texts."""
        indices = np.tile(self.starts, (batch.rows, 1))
        values, unseen = np.empty(indices.shape), Counter[str]()
        places = [place for _, place, _ in self.numbers]
        numbers, others = batch.numbers(places)
        for place, bad in others.items():
            batch.refuse(place, bad, _not_a_number)
        means = np.array([mean for _, _, mean in self.numbers])[:, None]
        numbers = np.where(np.isnan(numbers), means, numbers)
        empty = np.isnan(numbers)
        for k in np.flatnonzero(empty.any(axis=1)).tolist():
            batch.refuse(places[k], empty[k], _no_feature)
        values[:, [k for k, _, _ in self.numbers]] = numbers.T
        for k, place, known in self.texts:
            texts = batch.texts(place)
            category = np.array([known.get(text, -1) for text in texts.texts])[texts.codes]
            none = texts.are_empty()
            if count := int(((category < 0) & ~none).sum()):
                unseen[batch.names[place]] = count
            indices[:, k] += np.maximum(category, 0).astype(np.int32)
            values[:, k] = category >= 0
            if not self.columns.fill:
                batch.refuse(place, none, _no_feature)
        return indices, values, unseen

    def _labels(self, batch: _Batch) -> tuple[np.ndarray, np.ndarray, list[Spelling]]:
        """Return codes, y and spellings of a block."""
        m, place = batch.rows, self.label
        codes, y, spellings = np.zeros(m, np.int32), np.full(m, np.nan), list[Spelling]()
        if place < 0:
            return codes, y, [Spelling(UNLABELLED, 1, 1)]
        if self.labels == "number":
            (y,), others = batch.numbers([place])
            for bad in others.values():
                batch.refuse(place, bad, _not_a_number)
            empty = np.isnan(y)
        else:
            texts, numbers = batch.texts(place), dict[str, int]()
            empty = texts.are_empty()
            for text, row in texts.first_rows():
                if text not in numbers:
                    numbers[text] = len(spellings)
                    spellings.append(Spelling(text or UNLABELLED, row + 1, place + 1))
            of_texts = np.array([numbers.get(text, 0) for text in texts.texts], np.int32)
            codes = of_texts[texts.codes]
        if not self.unlabelled:
            batch.refuse(place, empty, _no_label)
        return codes, y, spellings

    def _keys(self, batch: _Batch) -> list[str]:
        """Return the texts of the kept columns of each row as records."""
        kept = map(batch.texts, self.kept)
        texts_of = [[one.texts[code] for code in one.codes.tolist()] for one in kept]
        return [written_record(row, self.delimiter) for row in zip(*texts_of, strict=True)]


def read_blocks(
    path: str,
    columns: Columns,
    *,
    labels: Labels,
    zero_based: bool = False,
    unlabelled: bool = False,
    float64: bool = False,
    threads: int = 1,
    watch: Watch = silent,
    block_size: int = BLOCK_SIZE,
    keep: Sequence[str] = (),
    unseen: Counter[str] | None = None,
    opener: Opener = files.open_input,
    no_header: bool = False,
) -> Generator[ParsedRows, None, None]:
    """Yield the rows of a table in order, converted by this number of threads.

    The columns may have another order than in `columns`, and others may be among them. unlabelled:
    the label may be missing. keep: names of columns whose text `ParsedRows.keys` holds. unseen:
    counts the texts of each column that are no category. no_header: the first line is a row, and
    the names follow from `columns`. Memory and errors are those of svmlight.read_blocks.
    """
    header = columns.header and not no_header
    with _opened(path, columns.format, header, opener, watch, block_size) as table:
        if columns.header and no_header:
            layouts, width = columns.names_without_header(), len(table.names)
            if width not in layouts:
                known = " or ".join(f"{count} ({what})" for count, (_, what) in layouts.items())
                problem = f"expected {known} fields in a file without a header, found {width}"
                raise _refused(table, problem)
            table = table._replace(names=layouts[width][0])
        _check_names(table, [column.name for column in columns.columns])
        rows = _Rows(
            table,
            columns,
            labels=labels,
            zero_based=zero_based,
            unlabelled=unlabelled,
            float64=float64,
            keep=keep,
        )
        with closing(_in_order(table, rows.used, columns.missing, rows.block, threads)) as batches:
            for first_row, _, (block, more_unseen) in batches:
                if unseen is not None:
                    unseen.update(more_unseen)
                if len(block) or block.spellings:
                    yield in_file(block, first_row)


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
