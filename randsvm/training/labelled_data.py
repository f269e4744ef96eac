"""Read the rows of a training, and give them the labels of its model. Knows no algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from randsvm import files
from randsvm.data import dataset, row_weights
from randsvm.data.classes import labelled_classes
from randsvm.data.columns import DELIMITERS, Columns, Format, TableOptions
from randsvm.data.dataset import Dataset, Source, scaling_of
from randsvm.data.in_memory import Arrays
from randsvm.data.labels import label_values
from randsvm.data.reading import ParseOptions
from randsvm.data.svmlight import NUMBER
from randsvm.errors import ClusterError, DataError, ParameterError
from randsvm.events import Notice, emit
from randsvm.files import display_name, inputs
from randsvm.models.model import ONE_CLASS_LABELS
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params, check_weights
from randsvm.training.clock import TimeLimitError
from randsvm.training.job import Job

# More integer classes than this look like the targets of a regression.
MANY_INTEGERS = 20
# Columns of text that a message lists.
MAX_COLUMNS = 20


@dataclass(frozen=True)
class LabelledData:
    """D with the labels of the task.

    D : y are class indices (positions in `labels`) or the targets of a regression
    labels : the model's labels as text; novelty detection has "1" and "-1", in this order
    values : the labels as numbers, if all of them are, or as text
    """

    D: Dataset
    labels: tuple[str, ...]
    values: tuple[int | str, ...]

    @staticmethod
    def of(whole: Dataset, path: str, task: str) -> LabelledData:
        """Return the rows with labels for a task: "svc", "svr" or "one-class".

        Raises DataError for a classification with a single class.
        """
        if task == "svr":
            return LabelledData(whole, (), ())
        summary = whole.summary
        if task == "one-class":
            indices = {value: index for index, value in enumerate(ONE_CLASS_LABELS)}
            other = len(indices)
            found = [indices.get(str(value), other) for value in summary.values]
            D = whole.relabel(np.array(found, float))
            return LabelledData(D, ONE_CLASS_LABELS, label_values(ONE_CLASS_LABELS))
        D, order = labelled_classes(whole, path)
        names = tuple(summary.names[i] for i in order)
        return LabelledData(D, names, tuple(summary.values[i] for i in order))

    def check_classes(self, path: str, most: int) -> None:
        """Raise DataError if there are more than `most` classes."""
        if len(self.labels) > most:
            problem = f"expected at most {most:,} classes, found {len(self.labels):,}"
            hint = " (-s svr takes numbers as targets)" if isinstance(self.values[0], int) else ""
            raise DataError(display_name(path), 1, 1, problem + hint)

    def check_weights(self, params: Params | SgdParams) -> None:
        """Raise ParameterError for the weight of a class that the data does not have."""
        if self.labels:
            check_weights(params.weights, self.labels)

    def remarks(self, params: Params | SgdParams) -> list[str]:
        """Return messages for the user about labels, parameters and scaling."""
        found, K = [], len(self.labels)
        if K > MANY_INTEGERS and all(isinstance(value, int) for value in self.values):
            found.append(f"{K:,} different numbers as classes: was -s svr, a regression, meant?")
        if params.multiclass and K == 2:
            found.append(f"--multiclass {params.multiclass} has no effect with two classes")
        scaling = self.D.scaling
        if scaling is not None and scaling.factor is not None and not scaling.stores_all:
            by = {"minmax": "largest absolute value", "standard": "standard deviation"}
            some = "" if scaling.shift is None else "sparse features and categories "
            found.append(
                f"sparse rows: --scale {scaling.name} only divides {some}by the "
                f"{by[scaling.name]}, zeros stay zeros"
            )
        return found

    def scaled(self, name: str | None, *, zero_based: bool) -> LabelledData:
        """Return these rows with features scaled as --scale says; None: as they are.

        zero_based: whether the features of a table begin with 0
        """
        if name is None:
            return self
        return replace(self, D=self.D.scaled(scaling_of(self.D, name, zero_based)))


def load_rows(data: Source, params: Params | SgdParams, job: Job) -> Dataset:
    """Read the rows of a file or of arrays.

    Raises DataError for bad text, and InputError for a file that cannot be opened or read.
    """
    options = _parse_options(data, params, job)
    if job.resources.cluster is None:
        D = dataset.load(data, options, job.resources)
    else:
        D = _load_on_cluster(data, options, job)
    if D.summary.columns is not None:
        emit(Notice(_columns_notice(D.summary.columns)))
        if _are_names_numbers(D.summary.columns):
            emit(
                Notice(
                    f"{joint_name(data)}: the first line names the columns, and all names are "
                    "numbers: give --no-header if it is a row"
                )
            )
    return D


def _are_names_numbers(columns: Columns) -> bool:
    """Return whether a header names all columns by numbers, as a row would."""
    names = [column.name for column in columns.columns] + [name for _, name in columns.others]
    has_header = columns.header and columns.format in DELIMITERS
    return has_header and all(NUMBER.fullmatch(name) for name in names)


def _columns_notice(columns: Columns) -> str:
    """Return the message about the columns of a table."""
    texts = [one for one in columns.columns if one.categories is not None]
    count = len(columns.columns) - len(texts)
    found = f"{count} column{'s' * (count != 1)} of numbers"
    if not texts:
        return found
    listed = [str(one) for one in texts[:MAX_COLUMNS]]
    listed += ["..."] * (len(texts) > MAX_COLUMNS)
    return f"{found}, and of text with their categories: {', '.join(listed)}"


def _parse_options(data: Source, params: Params | SgdParams, job: Job) -> ParseOptions:
    """Return how the rows are parsed. Raise ParameterError for options that exclude each other."""
    if job.run.row_weights is not None:
        check_row_weights(data, job)
    row_numbers = params.kernel == "precomputed"
    groups = job.search.groups == "qid"
    if isinstance(data, Arrays) and groups and data.groups is None:
        raise ParameterError("--groups qid needs groups in Arrays")
    if job.run.group_column is not None and not groups:
        raise ParameterError("--group-column is for --groups qid")
    return ParseOptions(
        labels="number" if params.prediction_type == "svr" else "class",
        any_label=params.task == "one-class",
        zero_based=job.run.zero_based or row_numbers,
        has_row_numbers=row_numbers,
        row_weights=job.run.row_weights,
        groups=groups,
        table=_table_options(data, params, job, row_numbers),
    )


def _load_on_cluster(data: Source, options: ParseOptions, job: Job) -> Dataset:
    """Return rows that the workers of a cluster scan."""
    # Imported here since dask is optional, and its import takes a second.
    try:
        from randsvm.cluster.executor import load
    except ImportError as error:
        raise ParameterError(
            f"--cluster needs dask.distributed (pip install 'randsvm[cluster]'): {error}"
        ) from error
    return load(data, options, job.resources, _connecting)


@contextmanager
def _connecting(address: str) -> Iterator[None]:
    """Raise ClusterError if a cluster is not reached before the time limit."""
    try:
        yield
    except TimeLimitError:
        raise ClusterError(
            f"cannot reach the cluster {address} before --time-limit is over: no model was written"
        ) from None


def _table_options(
    data: Source, params: Params | SgdParams, job: Job, row_numbers: bool
) -> TableOptions | None:
    """Return how a table is read; None for svmlight. Raise ParameterError."""
    run = job.run
    if not run.is_table:
        return None
    if isinstance(data, Arrays):
        raise ParameterError("--format is for files, not for arrays")
    if row_numbers:
        raise ParameterError("-t precomputed reads svmlight files, not tables")
    if run.label_column is None and params.task != "one-class":
        raise ParameterError(f"--format {run.format} needs --label-column")
    if job.search.groups == "qid" and run.group_column is None:
        raise ParameterError(f"--groups qid needs --group-column with --format {run.format}")
    return TableOptions(
        cast("Format", run.format),
        run.label_column,
        run.ignore_columns or "",
        not run.no_header,
        run.missing is not None,
        run.group_column,
        run.categorical_columns or "",
        run.missing_values or "",
    )


def check_row_weights(data: Source, job: Job) -> None:
    """Raise ParameterError if the weights cannot be read from a file."""
    if isinstance(data, Arrays):
        raise ParameterError("--row-weights is for files: give the weights in Arrays")
    assert job.run.row_weights is not None
    row_weights.check_path(job.run.row_weights)


def joint_name(data: Source) -> str:
    """Return the name of the data for messages."""
    return str(data) if isinstance(data, Arrays) else files.joint_name(inputs(data))
