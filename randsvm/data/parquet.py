"""Parquet files, read batch by batch with pyarrow, which is optional.

A column of numbers, booleans, strings or dictionaries of these has the content that it has as CSV:
a boolean is the text true or false, blanks around a text are not part of it, and null, nan and an
empty text are missing. Errors have the numbers of the row and of the column, both from 1.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

import randsvm.data._table as _table
from randsvm import files
from randsvm.data.chunks import as_stored, copied
from randsvm.data.columns import MISSING_WORDS, format_hint, written_record
from randsvm.data.svmlight import NUMBER, Block, Fault, data_error
from randsvm.data.table_pieces import (
    ColumnRoles,
    Content,
    Opener,
    Piece,
    Text,
    features_of,
    missing,
    not_a_number,
)
from randsvm.errors import ContentError, DataError, quoted, shortened
from randsvm.events import Progress, Watch
from randsvm.parallel import ThreadPool

# Bytes of a value of a batch while it is parsed: a number, an index and their copies; the least and
# the largest number of rows of a batch.
VALUE_BYTES = 32
ROWS = 64, 65_536
# Bytes that are read from the file at once: of one column at least and at most; of all columns.
COLUMN_BYTES = 1 << 14, 1 << 20
BUFFER_BYTES = 1 << 23
# Bytes of a column in a row group whose texts pyarrow may keep as a dictionary; of all columns.
DICTIONARY_BYTES = 1 << 22, 1 << 25


@contextmanager
def opened(path: str, watch: Watch, opener: Opener, block_size: int) -> Iterator[ParquetTable]:
    """Open a file and read the names of its columns. Raises ContentError."""
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
        yield ParquetTable(name, file, files.size_of(path), watch, block_size)


def _dictionary_columns(metadata: Any, texts: Set[str]) -> list[str]:
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


class ParquetTable:
    """An open Parquet file; see `table_pieces.Table`."""

    def __init__(
        self, name: str, file: Any, size: int | None, watch: Watch, block_size: int
    ) -> None:
        """size : of the file in bytes; None: unknown. block_size : bytes of a batch"""
        self.name, self.file, self.size = name, file, size
        # pyarrow makes the schema anew for each access, in time proportional to its width.
        self.schema = file.schema_arrow
        self.names = list(self.schema.names)
        self.watch, self.block_size = watch, block_size

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
        """Yield the number of the first row of each piece, and the piece; see `Table`."""
        used = (layout.roles != _table.IGNORED) | (layout.kept != 0)
        places = np.flatnonzero(used).tolist()
        self._check_types(places, layout)
        work = partial(
            _parse,
            names=self.names,
            places=places,
            layout=layout,
            categories=[{files.decoded(t): i for i, t in enumerate(c)} for c in layout.categories],
            unlabelled=unlabelled,
            float64=float64,
            order=order,
            learns=learns,
        )
        row = 1
        with ThreadPool(jobs) as pool:
            for piece in pool.map_in_order(work, self._batches(places, jobs > 1), jobs):
                yield row, piece
                if piece.fault:
                    raise data_error(self.name, piece.fault, row)
                row += piece.lines

    def _check_types(self, places: Sequence[int], layout: ColumnRoles) -> None:
        for place in places:
            found = self.schema.field(place).type
            if layout.roles[place] == _table.IGNORED:
                legal = not (pyarrow.types.is_nested(found) or _is_binary(found))
            else:
                legal = _is_text(found) or _is_number(found) or pyarrow.types.is_null(found)
            if not legal:
                where = f"in column {quoted(self.names[place])}"
                problem = f"expected numbers or texts {where}, found the type {found}"
                more = " (--ignore-columns leaves it out)"
                raise DataError(self.name, 1, place + 1, problem + more)

    def _batches(self, places: Sequence[int], use_threads: bool) -> Iterator[Any]:
        lowest, highest = ROWS
        rows = self.block_size // (VALUE_BYTES * max(1, len(places)))
        total, done = self.file.metadata.num_rows, 0
        columns = [self.names[place] for place in places]
        batches = self.file.iter_batches(
            min(max(lowest, rows), highest), columns=columns, use_threads=use_threads
        )
        while True:
            try:
                batch = next(batches, None)
                if batch is not None:
                    # Positions in dictionaries and UTF-8 of a damaged file are not checked before.
                    batch.validate(full=True)
            except (pyarrow.ArrowException, OSError) as error:
                raise _unreadable(self.name, error) from None
            if batch is None:
                return
            done += batch.num_rows
            if self.size is not None:
                self.watch(Progress("reading", self.size * done // total, self.size, "B"))
            yield batch


def _is_number(kind: Any) -> bool:
    types = pyarrow.types
    if types.is_dictionary(kind):
        return _is_number(kind.value_type)
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_text(kind: Any) -> bool:
    types = pyarrow.types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return _is_string(kind) or bool(types.is_boolean(kind))


def _is_string(kind: Any) -> bool:
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _is_binary(kind: Any) -> bool:
    types = pyarrow.types
    found = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(found or types.is_fixed_size_binary(kind))


# ---- columns of a batch -----------------------------------------------------------------------


class _Texts(NamedTuple):
    """A column as texts.

    codes : (m,) int64, positions in `texts`; texts : without blanks around, not all distinct; the
    last one is empty, and stands for null
    """

    codes: np.ndarray
    texts: list[str]

    def first_rows(self) -> np.ndarray:
        """Return the first row of each text, m if it has none."""
        m = len(self.codes)
        rows = np.full(len(self.texts), m)
        # The last of several assignments remains.
        rows[self.codes[::-1]] = np.arange(m)[::-1]
        return rows


def _as_texts(array: Any) -> _Texts:
    kind = array.type
    if pyarrow.types.is_dictionary(kind) and len(array.dictionary) > len(array):
        # The texts of other batches are in the dictionary, too.
        array = array.dictionary_decode()
        kind = array.type
    if not pyarrow.types.is_dictionary(kind):
        if not (_is_text(kind) or _is_number(kind)) or pyarrow.types.is_boolean(kind):
            array = array.cast(pyarrow.string())
        array = array.dictionary_encode()
    values = array.dictionary.to_pylist()
    if pyarrow.types.is_boolean(array.dictionary.type):
        values = [str(value).lower() for value in values]
    # nan differs from itself.
    texts = [str(v).strip(" \t") if v is not None and v == v else "" for v in values]
    codes = _filled(array.indices.cast(pyarrow.int64()), np.int64, len(texts))
    return _Texts(codes, [*texts, ""])


class _Missing(NamedTuple):
    """The texts and numbers that stand for a missing number, besides null and MISSING_WORDS."""

    texts: Set[str]
    numbers: np.ndarray

    @staticmethod
    def of(layout: ColumnRoles) -> _Missing:
        texts = {files.decoded(text) for text in layout.missing}
        return _Missing(texts, np.array([float(t) for t in texts if NUMBER.fullmatch(t)]))

    def has(self, text: str) -> bool:
        return text.lower() in MISSING_WORDS or text in self.texts

    def as_nan(self, values: np.ndarray) -> np.ndarray:
        """Return numbers with nan in place of those that stand for a missing one."""
        if not len(self.numbers):
            return values
        return np.where(np.isin(values, self.numbers), np.nan, values)


class _Numbers(NamedTuple):
    """A column as numbers.

    values : (m,) float64, nan where the value is missing or not a number
    bad : (m,) bool, where it is not a number; None: nowhere
    """

    values: np.ndarray
    bad: np.ndarray | None


def _as_numbers(array: Any, missing: _Missing) -> _Numbers:
    if _is_number(array.type):
        return _Numbers(missing.as_nan(_float64(array)), None)
    texts = _as_texts(array)
    numbers = np.array([_number(text) for text in texts.texts])
    bad = np.isnan(numbers) & [not missing.has(text) for text in texts.texts]
    return _Numbers(missing.as_nan(numbers)[texts.codes], bad[texts.codes])


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


# ---- pieces -----------------------------------------------------------------------------------


class _Faults:
    """Finds the first bad value of a piece, by row and then by column."""

    def __init__(self) -> None:
        self.first: tuple[int, int, str] | None = None

    def add(self, bad: np.ndarray, place: int, problem: Any) -> None:
        """Add the bad rows of a column. problem : returns the sentence about a row."""
        if not bad.any():
            return
        row = int(bad.argmax())
        if self.first is None or (row, place) < self.first[:2]:
            self.first = row, place, problem(row)


def _checked_texts(array: Any, place: int, name: str, faults: _Faults) -> _Texts:
    """Return a column as texts without NUL bytes, which no text format can hold."""
    texts = _as_texts(array)
    bad = np.array(["\0" in text for text in texts.texts])
    if bad.any():
        problem = f"expected text in column {quoted(name)}, found a NUL byte"
        faults.add(bad[texts.codes], place, lambda row: problem)
    return texts


def _numbers(
    array: Any, place: int, name: str, mean: float, missing: _Missing, faults: _Faults
) -> np.ndarray:
    """Return a column of numbers, (m,) float64. mean: in place of missing ones; nan: refused."""
    numbers = _as_numbers(array, missing)
    _check_numbers(numbers, array, place, name, faults)
    at = np.isnan(numbers.values)
    if np.isnan(mean):
        faults.add(at, place, partial(_missing, array, name, False))
    return np.where(at, mean, numbers.values) if at.any() else numbers.values


def _categories(
    array: Any,
    place: int,
    name: str,
    known: Mapping[str, int],
    layout: ColumnRoles,
    faults: _Faults,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the category of each text, -1 if it has none, and which are missing."""
    texts = _checked_texts(array, place, name, faults)
    category = np.array([known.get(text, -1) for text in texts.texts])
    empty = np.array([not text for text in texts.texts])[texts.codes]
    if not layout.fill:
        faults.add(empty, place, partial(_missing, array, name, False))
    return category[texts.codes], empty


def _parse(
    batch: Any,
    names: Sequence[str],
    places: Sequence[int],
    layout: ColumnRoles,
    categories: Sequence[Mapping[str, int]],
    unlabelled: bool,
    float64: bool,
    order: Sequence[int],
    learns: bool,
) -> Piece:
    m, faults, missing = batch.num_rows, _Faults(), _Missing.of(layout)
    columns = dict(zip(places, batch.columns, strict=True))
    if learns:
        contents = [Content((), 0, []) for _ in names]
        for place, array in columns.items():
            role = int(layout.roles[place])
            contents[place] = _content(array, role, place, names[place], missing, faults)
        return Piece(_empty_block(), [], m, _fault(faults), [], contents)
    features = [place for place in places if layout.roles[place] in (_table.NUMBER, _table.TEXT)]
    features.sort(key=lambda place: int(layout.starts[place]))
    indices = np.empty((m, len(features)), np.int32)
    values = np.zeros((m, len(features)))
    unseen = [0] * len(names)
    for k, place in enumerate(features):
        array, name, start = columns[place], names[place], int(layout.starts[place])
        if layout.roles[place] == _table.NUMBER:
            indices[:, k] = start
            mean = layout.means[place]
            values[:, k] = _numbers(array, place, name, mean, missing, faults)
        else:
            category, empty = _categories(array, place, name, categories[place], layout, faults)
            unseen[place] = int(((category < 0) & ~empty).sum())
            indices[:, k] = start + np.maximum(category, 0)
            values[:, k] = category >= 0
    codes, spellings = np.empty(m, np.int32), list[Text]()
    y = np.empty(m)
    for place, array in columns.items():
        if layout.roles[place] == _table.TARGET:
            y = _target(array, place, names[place], unlabelled, missing, faults)
        elif layout.roles[place] == _table.CLASS:
            codes, spellings = _classes(array, place, names[place], unlabelled, faults)
    kept = [place for place in places if layout.kept[place]]
    texts = [_checked_texts(columns[place], place, names[place], faults) for place in kept]
    keys = _keys(texts, order)
    stop = m if faults.first is None else faults.first[0]
    spellings = [one for one in spellings if one[1] <= stop]
    indices, values = indices[:stop], values[:stop]
    present = values != 0
    indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    indices, values = indices[present], values[present]
    block = Block(
        codes=codes[:stop],
        spellings=[],
        y=y[:stop],
        indptr=indptr.astype(np.int64),
        indices=indices,
        values=values if float64 else as_stored(values),
        features=features_of(indices),
        queries=0,
        keys=keys[:stop] if order else None,
    )
    return Piece(block, spellings, m, _fault(faults), unseen, [])


def _empty_block() -> Block:
    none = np.empty(0, np.int32)
    return Block(none, [], np.empty(0), np.zeros(1, np.int64), none, np.empty(0), none, 0)


def _fault(faults: _Faults) -> Fault | None:
    if faults.first is None:
        return None
    row, place, problem = faults.first
    return Fault(row + 1, place + 1, problem)


def _content(
    array: Any, role: int, place: int, name: str, missing: _Missing, faults: _Faults
) -> Content:
    """Return the content of a column of the role UNKNOWN or CATEGORY, without empty texts."""
    found: list[Text] = []
    if role == _table.UNKNOWN and _is_number(array.type):
        numbers = _as_numbers(array, missing)
        infinite = np.isinf(numbers.values)
        finite = np.isfinite(numbers.values)
        large = finite & ~_fits_float32(numbers.values)
        faults.add(large, place, partial(_not_a_number, array, name))
        for row in np.flatnonzero(infinite)[:1].tolist():
            found.append((str(numbers.values[row]).encode(), row + 1, place + 1))
        sums = _table.sum_parts(numbers.values[finite])
        return Content(sums, int(finite.sum()), found)
    texts = _checked_texts(array, place, name, faults)
    first_rows = texts.first_rows()
    order = np.argsort(first_rows, kind="stable")
    used = [(texts.texts[i], int(first_rows[i]), i) for i in order if first_rows[i] < len(array)]
    count, values = 0, np.empty(0)
    if role == _table.UNKNOWN:
        times = np.bincount(texts.codes, minlength=len(texts.texts))
        found_numbers = missing.as_nan(np.array([_number(text) for text, _, _ in used]))
        numeric = [
            i for (_, _, i), value in zip(used, found_numbers, strict=True) if value == value
        ]
        own = np.array([float(texts.texts[i]) for i in numeric])
        large = np.zeros(len(texts.texts), bool)
        large[numeric] = ~_fits_float32(own)
        faults.add(large[texts.codes], place, partial(_not_a_number, array, name))
        count = int(times[numeric].sum())
        values = np.repeat(own, times[numeric])
        are_numbers = set(numeric)
        used = [one for one in used if one[2] not in are_numbers]
    for text, row, _ in used:
        if text:
            found.append((files.encoded(text), row + 1, place + 1))
    return Content(_table.sum_parts(values), count, found)


def _fits_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.isfinite(values.astype(np.float32))


def _check_numbers(numbers: _Numbers, array: Any, place: int, name: str, faults: _Faults) -> None:
    if numbers.bad is not None:
        faults.add(numbers.bad, place, partial(_not_a_number, array, name))
    large = ~np.isnan(numbers.values) & ~_fits_float32(numbers.values)
    faults.add(large, place, partial(_not_a_number, array, name))


def _missing(array: Any, name: str, is_label: bool, row: int) -> str:
    found = array[row].as_py()
    text = quoted(found) if isinstance(found, str) else str(found or "null")
    return missing(name, text, is_label)


def _not_a_number(array: Any, name: str, row: int) -> str:
    return not_a_number(name, files.encoded(str(array[row].as_py())))


def _target(
    array: Any, place: int, name: str, unlabelled: bool, missing: _Missing, faults: _Faults
) -> np.ndarray:
    """Return the labels of a regression, (m,) float64; nan: a row has none."""
    numbers = _as_numbers(array, missing)
    bad = np.isinf(numbers.values)
    if numbers.bad is not None:
        bad |= numbers.bad
    faults.add(bad, place, partial(_not_a_number, array, name))
    if not unlabelled:
        faults.add(np.isnan(numbers.values), place, partial(_missing, array, name, True))
    return numbers.values


def _classes(
    array: Any, place: int, name: str, unlabelled: bool, faults: _Faults
) -> tuple[np.ndarray, list[Text]]:
    """Return the codes of the labels, (m,) int32, and their spellings in order of appearance."""
    texts = _checked_texts(array, place, name, faults)
    if not unlabelled:
        empty = np.array([not text for text in texts.texts])
        faults.add(empty[texts.codes], place, partial(_missing, array, name, True))
    first_rows = texts.first_rows()
    spellings: list[Text] = []
    codes: dict[str, int] = {}
    for i in np.argsort(first_rows, kind="stable"):
        text = texts.texts[i]
        if first_rows[i] < len(array) and text not in codes:
            codes[text] = len(spellings)
            spellings.append((files.encoded(text), int(first_rows[i]) + 1, place + 1))
    numbers = np.array([codes.get(text, 0) for text in texts.texts], np.int32)
    return numbers[texts.codes], spellings


def _keys(kept: Sequence[_Texts], order: Sequence[int]) -> list[str]:
    """Return the kept columns of each row as a record of CSV. order : of the columns in it."""
    columns = [[texts.texts[code] for code in texts.codes.tolist()] for texts in kept]
    rows = zip(*[columns[i] for i in order], strict=True)
    return [written_record(row, ",") for row in rows]
