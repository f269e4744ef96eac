"""The columns of a table and the features that each becomes. A model stores its columns."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

from randsvm.decimals import NUMBER
from randsvm.errors import quoted
from randsvm.parameters.option import Delimiter
from randsvm.records import record

Format = Literal["csv", "tsv", "parquet"]
# The byte between the fields of a text format.
DELIMITERS = {"csv": ",", "tsv": "\t"}
# Columns of text that a message lists.
MAX_COLUMNS = 20
# More texts than this may be no categories.
MANY_TEXTS = 20
# Words, in any case, that stand for a missing number. A text is missing only if it is empty.
MISSING_WORDS = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))


# Values of a table that its features lack: what of them -> how a message counts them.
FILLED, EMPTY, UNSEEN = "filled", "empty", "unseen"
REMARKS = {
    FILLED: "missing numbers, which become the means of their columns",
    EMPTY: "missing texts, which match no category",
    UNSEEN: "texts that training never saw, which match no category",
}


def remarks(lacking: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield messages about numbers of values. lacking : by a key of REMARKS and a column"""
    for kind, words in REMARKS.items():
        counts = sorted((name, count) for (of, name), count in lacking.items() if of == kind)
        listed = [f"{name} ({count:,})" for name, count in counts[:MAX_COLUMNS]]
        if len(counts) > MAX_COLUMNS:
            listed.append(f"... ({sum(count for _, count in counts):,} in all)")
        if listed:
            yield f"{words}: {', '.join(listed)}"


class Frame(str):
    """Rows with Arrow's interface of streams, or a frame of pandas, where functions expect a path.

    Its text is its name in messages.
    """

    rows: Any

    def __new__(cls, rows: Any, name: str = "<data frame>") -> Frame:
        frame = super().__new__(cls, name)
        frame.rows = LazyRows(rows) if is_lazy(rows) else rows
        return frame

    def opened(self) -> AbstractContextManager[Any]:
        """Open the rows."""
        return nullcontext(self.rows)


def is_frame(rows: object) -> bool:
    """Return whether rows have named columns of different types that pyarrow can read."""
    return hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "iloc") or is_lazy(rows)


def is_lazy(rows: object) -> bool:
    """Return whether rows are a LazyFrame of polars, or a similar plan of a frame."""
    return hasattr(rows, "collect_schema") and not hasattr(rows, "__arrow_c_stream__")


def as_table(rows: Any) -> Any:
    """Return rows; as a table of pyarrow if they are a LazyFrame or a stream, such as a reader of
    pyarrow or a relation of DuckDB."""
    rows = LazyRows(rows) if is_lazy(rows) else rows
    if hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "__array__"):
        import pyarrow

        return pyarrow.table(rows)
    return rows


class LazyRows:
    """The rows of a LazyFrame with Arrow's interface of streams."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the stream of the rows, batch by batch where polars can."""
        import pyarrow

        schema = self.plan.head(0).collect().to_arrow().schema

        def batches() -> Iterator[Any]:
            # polars 1.34 or newer
            streams = hasattr(self.plan, "collect_batches")
            for frame in self.plan.collect_batches() if streams else [self.plan.collect()]:
                yield from frame.to_arrow().cast(schema).to_batches()

        reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
        return reader.__arrow_c_stream__(requested_schema)


@record
class TableOptions:
    """How the tables of a training are read.

    label: name of the label's column, or its number from 1; None: there is no label. ignored: names
    or numbers of columns that are no features, separated by commas. header: whether the first
    record of a text format names the columns; else their numbers are their names. fill: whether
    values may be missing: a number becomes the mean of its column, a text has no category.
    group: name or number of the column of the groups of rows; None: there is none. categorical:
    names or numbers of columns whose numbers are categories, too. missing: more texts that stand
    for a missing number. Lists are records of CSV. keep_index: whether columns without a name and
    the index of a frame of pandas are features. delimiter: the character between the fields of a
    text format, or AUTO; empty: that of the format.
    """

    format: Format
    label: str | None = None
    ignored: str = ""
    header: bool = True
    fill: bool = False
    group: str | None = None
    categorical: str = ""
    missing: str = ""
    keep_index: bool = False
    delimiter: str = ""


@record
class Column:
    """A column of features: one feature for a number, or one for each category of a text.

    categories : texts in the order of their features, sorted; None for numbers
    mean : value of a missing number; None: a missing number is refused
    """

    name: str
    categories: tuple[str, ...] | None = None
    mean: float | None = None

    @property
    def width(self) -> int:
        """The number of features."""
        return 1 if self.categories is None else len(self.categories)

    def __str__(self) -> str:
        return self.name if self.categories is None else f"{self.name} ({self.width})"


@record
class Columns:
    """The columns that a model was trained with.

    format, header, label, fill : see TableOptions; columns : those of features, in the order of
    their features; others : the other columns of a training file with a header, such as the label:
    their positions from 0, ascending, and their names; missing : more texts that stand for a
    missing number; index : names of the others that pandas wrote for the index of a frame;
    delimiter : of the first training file, empty if it is that of the format
    """

    format: Format
    header: bool
    label: str | None
    fill: bool
    columns: tuple[Column, ...]
    others: tuple[tuple[int, str], ...] = ()
    missing: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    delimiter: str = ""

    @property
    def separator(self) -> str:
        """The character between the fields of a text."""
        return self.delimiter or DELIMITERS.get(self.format, ",")

    def with_starts(self, zero_based: bool) -> Iterator[tuple[Column, int]]:
        """Yield each column and its first feature index."""
        start = 0 if zero_based else 1
        for column in self.columns:
            yield column, start
            start += column.width

    @property
    def features(self) -> int:
        """The number of features of all columns."""
        return sum(column.width for column in self.columns)

    @property
    def feature_names(self) -> list[str]:
        """The name of each feature: that of its column, and =text for a category."""
        return [
            column.name if text is None else f"{column.name}={text}"
            for column in self.columns
            for text in (column.categories or (None,))
        ]

    def notices(self, rows: int) -> Iterator[str]:
        """Yield the messages about the columns of a training with this number of rows."""
        texts = [one for one in self.columns if one.categories is not None]
        count = len(self.columns) - len(texts)
        found = f"{count} column{'s' * (count != 1)} of numbers"
        if texts:
            listed = [*map(str, texts[:MAX_COLUMNS]), *["..."] * (len(texts) > MAX_COLUMNS)]
            found += f"; columns of text, with their numbers of categories: {', '.join(listed)}"
        yield found
        if self.index:
            which = ", ".join(map(quoted, self.index))
            yield f"left out the index of a frame, column {which} (--keep-index makes it a feature)"
        names = [column.name for column in self.columns] + [name for _, name in self.others]
        number = next(filter(NUMBER.fullmatch, names), None)
        if self.header and self.format in DELIMITERS and number is not None:
            found = f"the first line names the columns, and {quoted(number)} is a number"
            yield f"{found}: give --no-header if it is a row"
        for column in texts:
            if is_many(column.width, rows):
                found = f"column {quoted(column.name)} has {column.width:,} texts in {rows:,} rows"
                example = (
                    f"such as {quoted((column.categories or ('',))[0])}, each becomes a category"
                )
                advice = "write amounts and dates as numbers, or leave it out by --ignore-columns"
                yield f"{found}, {example}: {advice}"

    def names_without_header(self) -> dict[int, tuple[list[str], str]]:
        """Return the names of the columns of a file without a header, by the number of its fields.

        These are the columns of the training file in their order, with or without the label, or
        those of the features. The second value says which.
        """
        features = [column.name for column in self.columns]
        every = list(features)
        for position, name in self.others:
            every.insert(position, name)
        unlabelled = [name for name in every if name != self.label]
        # Layouts of equal widths are equal.
        return {
            len(features): (features, "only features"),
            len(every): (every, "as in the training"),
            len(unlabelled): (unlabelled, "without the label"),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the object of JSON that `from_json` reads."""
        columns = [
            {name: value for name, value in vars(column).items() if value is not None}
            for column in self.columns
        ]
        found = {**vars(self), "columns": columns}
        optional = "others", "missing", "index", "delimiter"
        return {key: found[key] for key in found if found[key] or key not in optional}

    @staticmethod
    def from_json(found: Any) -> Columns:
        """Return the columns of a model. Raise ValueError for another object."""
        try:
            columns, label = tuple(map(_column, found["columns"])), found["label"]
            given, missing = found.get("others", []), found.get("missing", [])
            index, delimiter = found.get("index", []), found.get("delimiter", "")
            others = tuple(sorted((position, name) for position, name in given))
            width = len(columns) + len(others)
            names = {column.name for column in columns}
            valid = (
                found["format"] in (*DELIMITERS, "parquet")
                and isinstance(found["header"], bool)
                and isinstance(found["fill"], bool)
                and (label is None or isinstance(label, str))
                and (delimiter == "" or delimiter in [*Delimiter.CHARACTERS])
                and isinstance(given, list)
                and all(isinstance(texts, list) for texts in (missing, index))
                and all(isinstance(text, str) for text in (*missing, *index))
                and len(columns) > 0
                and len(names) == len(columns)
                and names.isdisjoint(name for _, name in others)
                and all(isinstance(name, str) for _, name in others)
                and all(type(position) is int and 0 <= position < width for position, _ in others)
                and len({position for position, _ in others}) == len(others)
            )
            if not valid:
                raise TypeError
        except (TypeError, KeyError, ValueError):
            shown = str(found)[:40]
            raise ValueError(f"expected the columns of a table, found {shown}") from None
        given = found["format"], found["header"], label, found["fill"]
        return Columns(*given, columns, others, tuple(missing), tuple(index), delimiter)


def _column(entry: dict[str, Any]) -> Column:
    """Return a column of a model. Raise TypeError or KeyError for another object."""
    name, categories, mean = entry["name"], entry.get("categories"), entry.get("mean")
    if categories is not None:
        categories = tuple(categories)
        if not all(isinstance(text, str) for text in categories):
            raise TypeError
        if len(set(categories)) != len(categories) or not categories:
            raise TypeError
    if not isinstance(name, str) or (mean is not None and not math.isfinite(mean)):
        raise TypeError
    return Column(name, categories, None if mean is None else float(mean))


def is_many(texts: int, rows: int) -> bool:
    """Return whether a text column has too many distinct texts to be categories."""
    return texts > MANY_TEXTS and 2 * texts > rows


def format_of_name(path: str) -> str:
    """Return the format of tables that the suffix of a file's name says, else svmlight."""
    name = Path(path.lower())
    if name.suffix in (".gz", ".bz2", ".xz"):
        name = name.with_suffix("")
    found = name.suffix.removeprefix(".")
    return found if found in (*DELIMITERS, "parquet") else "svmlight"


def format_hint(path: str, used: str = "svmlight") -> str:
    """Return the option for a file whose name is that of another format than `used`, or nothing."""
    found = format_of_name(path)
    is_other = found not in ("svmlight", used)
    return f" (--format {found} reads such files)" if is_other else ""


def fields_of(record: str) -> list[str]:
    """Return the fields of a record of CSV, such as a list of names."""
    return next(csv.reader([record], skipinitialspace=True), [])


def written_record(fields: Sequence[str], delimiter: str) -> str:
    """Return a record without its newline; fields are quoted where they need it."""
    line = io.StringIO()
    # The csv module quotes the characters of the line terminator.
    csv.writer(line, delimiter=delimiter, lineterminator="\r\n").writerow(fields)
    return line.getvalue().removesuffix("\r\n")
