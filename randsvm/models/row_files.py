"""The labelled rows of files for a model: svmlight, or a table with the columns of its training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from randsvm import files
from randsvm.data import svmlight
from randsvm.data.columns import Format, Frame, TableOptions, fields_of, remarks
from randsvm.data.labels import LabelTable, label_values
from randsvm.data.reading import Reader, labelled_blocks
from randsvm.data.row_weights import RowWeights
from randsvm.data.svmlight import ParsedRows, ParseOptions
from randsvm.decimals import NUMBER
from randsvm.events import Notice, Watch, emit, silent
from randsvm.models.model import Model
from randsvm.parameters.option import AUTO, require
from randsvm.parameters.run import PredictParams


def sources(data: Any, sql: str | None, format_: str | None = None) -> tuple[str, ...]:
    """Return the names of files, or the query of a database as the only one.

    Raises ParameterError for a query with a format of files, and as `files.inputs` and Query do.
    """
    if sql is None:
        return files.inputs(data)
    from randsvm.data.database import Query

    require(format_ is None, "give one of --sql and --format, not both")
    return (Query(data, sql),)


class RowFiles:
    """The files whose rows a model reads.

    kept : names of the columns of a table whose text is in `ParsedRows.keys`
    columns : of the table; None: the files are svmlight
    labels : the labels of the rows that were read, those of the model first
    weighted : whether a row that was read has a weight other than 1
    """

    def __init__(
        self,
        model: Model,
        path: str,
        paths: Sequence[str],
        params: PredictParams,
        training: bool = False,
        prompt: bool = False,
    ) -> None:
        """Choose the reader of the rows.

        path : the model file. params : of which those count that say how rows are read. training :
        the rows are those of the training: each has a label of the model, and rows of weight 0 are
        left out. prompt : svmlight rows of a pipe are yielded as they arrive.

        Raise ParameterError for a table and a model without columns.
        """
        self.model, self.paths, self.training = model, paths, training
        # Rows of a training have the labels of the model; novelty detection ignores the labels.
        # Other rows may have no label, or one that the model does not know. This is a whole number
        # or a name, as those of the model are. It may be either in novelty detection, and if the
        # model has mixed labels: names and numbers, or numbers that are not all whole.
        learnt, texts = not model.is_one_class, model.labels
        mixed = texts == label_values(texts) and any(map(NUMBER.fullmatch, texts))
        self.labels = LabelTable(
            paths[0],
            unlabelled=not training,
            labels=texts if learnt or not training else (),
            closed=learnt and training,
            any_label=not learnt or mixed,
        )
        self.weighted = False
        name = files.joint_name(paths)
        weights, format_, delimiter = params.row_weights, params.format, params.delimiter
        self.row_weights = None if weights is None else RowWeights(weights, name)
        self.kept = [] if params.keep is None else fields_of(params.keep)
        # What features of a table lack, for `remarks`.
        self.lacking: Counter[tuple[str, str]] = Counter()
        self.columns, how = None, None
        is_query = isinstance(paths[0], Frame)
        if format_ != "svmlight" and model.columns is not None:
            own_format = "parquet" if is_query else cast("Format", format_ or model.columns.format)
            own = model.columns.delimiter if own_format == model.columns.format else ""
            header = model.columns.header and not params.no_header
            how = TableOptions(own_format, header=header, delimiter=delimiter or own)
            own = own if delimiter in (None, AUTO) else delimiter
            self.columns = replace(model.columns, format=own_format, delimiter=own)
        require(
            self.columns is not None or (format_ in (None, "svmlight") and not is_query),
            f"{'--sql' if is_query else f'--format {format_}'}: {path} was trained without a "
            "table, so its features have no columns",
        )
        require(
            self.columns is not None or params.keep is None,
            "--keep is for tables: a model of --format csv, tsv or parquet",
        )
        is_text = self.columns is not None and self.columns.format != "parquet"
        require(not params.no_header or is_text, "--no-header is for CSV and TSV files")
        require(delimiter is None or is_text, "--delimiter is for CSV and TSV files")
        options = ParseOptions(
            labels="number" if model.is_regression else "class",
            zero_based=model.zero_based,
            any_label=not training or model.is_one_class,
            has_row_numbers=training and model.has_row_numbers,
            float64=True,
            table=how,
        )
        read: Reader = partial(svmlight.read_blocks, prompt=prompt)
        if self.columns is not None:
            # Imported here because few runs read tables.
            from randsvm.data import table

            read = partial(
                table.read_blocks,
                columns=self.columns,
                keep=self.kept,
                exact_keys=is_query,
            )
        self.read = partial(labelled_blocks, paths, read, self.labels, options, self.row_weights)

    @property
    def delimiter(self) -> str:
        """The character between fields of a table of results."""
        return "," if self.columns is None else self.columns.separator

    def blocks(self, watch: Watch = silent, jobs: int = 1) -> Generator[ParsedRows, None, None]:
        """Yield the blocks of all files in order, with the label and the weight of each row.

        ParsedRows.y : (m,) float64, class indices or targets, nan without a label;
        ParsedRows.weights : (m,) float64.
        """
        with self.row_weights or nullcontext():
            for block in self.read(watch, jobs):
                self.lacking.update(block.lacking)
                rows = block.without_zero_weights() if self.training else block
                weights = np.ones(len(rows)) if rows.weights is None else rows.weights
                self.weighted = self.weighted or bool((weights != 1).any())
                yield replace(rows, weights=weights)

    def report_lacking(self) -> None:
        """Emit notices about values of a table that were missing or unknown to the training."""
        for text in remarks(self.lacking):
            emit(Notice(text))
