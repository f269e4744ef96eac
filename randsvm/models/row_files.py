"""The rows of files for a model: svmlight, or a table with the columns of its training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from randsvm.data import svmlight
from randsvm.data.columns import DELIMITERS, Columns, Format, fields_of
from randsvm.data.reading import Reader, ReadingProgress
from randsvm.data.svmlight import Block
from randsvm.errors import ParameterError
from randsvm.events import Notice, Watch, emit, silent
from randsvm.models.model import Model
from randsvm.parameters.run import FORMATS


class RowFiles:
    """The files whose rows a model reads.

    kept : names of the columns of a table whose text is in `Block.keys`
    columns : of the table; None: the files are svmlight
    """

    def __init__(
        self,
        model: Model,
        path: str,
        paths: Sequence[str],
        format_: str | None = None,
        keep: str | None = None,
        no_header: bool = False,
    ) -> None:
        """Choose the reader of the rows.

        path : the model file. format_ : of the files; None: that of the training files. no_header :
        the first line of a text table is a row.

        Raise ParameterError for a table and a model without columns.
        """
        check_format(format_)
        self.model, self.paths = model, paths
        self.kept = [] if keep is None else fields_of(keep)
        # Of each column of a table the number of texts that training never saw.
        self.other_texts: Counter[str] = Counter()
        self.columns: Columns | None = None
        self.read: Reader = svmlight.read_blocks
        columns = model.columns
        if format_ == "svmlight" or (format_ is None and columns is None):
            if keep is not None:
                raise ParameterError(
                    "--keep is for tables: a model of --format csv, tsv or parquet"
                )
            if no_header:
                raise ParameterError("--no-header is for CSV and TSV files")
            return
        if columns is None:
            raise ParameterError(
                f"--format {format_}: {path} was trained without a table, so its features have "
                "no columns"
            )
        # Imported here because few runs read tables.
        from randsvm.data import table

        if format_ is not None:
            columns = replace(columns, format=cast("Format", format_))
        if no_header and columns.format == "parquet":
            raise ParameterError("--no-header is for CSV and TSV files")
        self.columns = columns
        self.read = partial(
            table.read_blocks,
            columns=columns,
            keep=self.kept,
            unseen=self.other_texts,
            no_header=no_header,
        )

    @property
    def delimiter(self) -> str:
        """The character between fields of a table of results."""
        return DELIMITERS.get("csv" if self.columns is None else self.columns.format, ",")

    def blocks(
        self,
        watch: Watch = silent,
        *,
        jobs: int = 1,
        begin_file: Callable[[str], object] = lambda path: None,
        **given: Any,
    ) -> Iterator[Block]:
        """Yield the blocks of all files in order.

        begin_file : called with each name. given : options of the reader in place of the usual ones
        """
        model, reading = self.model, ReadingProgress(self.paths, watch)
        options = {
            "labels": "number" if model.is_regression else "class",
            "zero_based": model.zero_based,
            "unlabelled": True,
            "float64": True,
        } | given
        for path in self.paths:
            begin_file(path)
            yield from self.read(path, jobs=jobs, watch=reading.on_event, **options)
            reading.next_file()

    def report_other_texts(self) -> None:
        """Emit a notice if texts of a table are none of the categories of their columns."""
        if not self.other_texts:
            return
        counts = sorted(self.other_texts.items())
        listed = ", ".join([f"{name} ({count:,})" for name, count in counts])
        which = f"{sum(self.other_texts.values()):,} texts that training never saw"
        emit(Notice(f"{which} are none of the categories of their columns: {listed}"))


def check_format(format_: str | None) -> None:
    """Raise ParameterError for an unknown format of rows."""
    if format_ is not None and format_ not in FORMATS:
        raise ParameterError(f"expected format {', '.join(FORMATS)}, found {format_!r}")
