"""Predict the rows of files with a model file, and write labels, decision values or probabilities.

Rows are read, predicted and written block by block, in input order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from randsvm import files
from randsvm.arrays import CsrMatrix, slices, sorted_union
from randsvm.data.columns import fields_of, written_record
from randsvm.data.labels import label_values
from randsvm.data.svmlight import ParsedRows
from randsvm.decimals import is_number, join_rows
from randsvm.errors import ModelError, quoted
from randsvm.events import (
    Notice,
    Predicted,
    Progress,
    Watch,
    emit,
    listening,
    silent,
)
from randsvm.models.decisions import class_scores
from randsvm.models.metrics import ClassCounts, CoverageCounts, RegressionErrors
from randsvm.models.model import Model
from randsvm.models.model_text import check_is_not_model, load
from randsvm.models.row_files import RowFiles, sources
from randsvm.parallel import ThreadPool
from randsvm.parameters.option import require
from randsvm.parameters.run import PredictParams, Resources

# Characters that are likely between the fields of a table.
DELIMITERS_OF_TABLES = ",\t;|"
# The first words of a file of label sets.
LABEL_SETS = "label sets of coverage"
# The scores among the fields of Predicted; a metric has some of them.
SCORES = "correct", "accuracy", "squared_error", "squared_correlation"


def predict(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    params: PredictParams | None = None,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Predicted:
    """Predict the rows of svmlight files or tables, in input order, one line each.

    Parameters
    ----------
    data : str, PathLike or sequence of these
        Name of a file, a pattern of names, or several names. Files are predicted in this order.
        With the option ``sql``, a query, it is the URL of a database.
    model : str or PathLike
        Model file of randsvm, LIBSVM or LIBLINEAR.
    output : str or PathLike, optional
        File to write; "-" is standard output. None with the option ``into``, a table.
    params : PredictParams, optional
        Contents of the output; by default labels as the training file spells them.
    resources : Resources, optional
        Worker threads, or the cluster.
    watch : callable, default=silent
        Called with each event of `randsvm.events`.

    Returns
    -------
    Predicted
        Counts and scores.

    Raises
    ------
    DataError, ModelError
        If the rows or the model are unusable.
    InputError, OutputError, TransferError
        If a file cannot be opened, created, read or written.

    Notes
    -----
    Memory does not grow with the file, except by about 45 bytes a row for the metrics of two
    classes. On any error `output` is unchanged.
    """
    began = time.perf_counter()
    params = params or PredictParams()
    require((output is None) == (params.into is not None), "give one of OUTPUT_FILE and --into")
    model, output = os.fspath(model), None if output is None else os.fspath(output)
    paths = sources(data, params.sql, params.format)
    inputs = {"TEST_FILE": paths, "MODEL_FILE": model, "--row-weights": params.row_weights}
    files.check_distinct({"OUTPUT_FILE": output}, inputs)
    check_is_not_model(paths, "TEST_FILE MODEL_FILE OUTPUT_FILE")
    loaded = load(model)
    if params.probabilities and not loaded.has_probabilities:
        raise ModelError(f"{model}: expected a model with probabilities (trained with -b 1)")
    rows = RowFiles(loaded, model, paths, params)
    prediction = _FilePrediction(model, rows, params)
    with listening(watch):
        with prediction.created_output(output) as stream:
            # Nothing is written before the first rows are read, which may fail.
            header = files.encoded(prediction.header)
            for found, keys in prediction.parts(resources or Resources()):
                stream.write(header + prediction.lines(found, keys))
                header = b""
            stream.write(header)
        if loaded.is_regression and params.labels != "file":
            emit(Notice("--labels has no effect with a regression"))
        if rows.weighted:
            emit(Notice("rows have weights, which the scores count"))
        rows.report_lacking()
        if (label := rows.labels.ignored_label) is not None:
            known = " and ".join(loaded.labels)
            emit(Notice(f"rows with other labels than {known}, as {quoted(label)}: not scored"))
        if prediction.unseen_values:
            which = f"{prediction.unseen_values} values of {len(prediction.unseen)} features"
            if loaded.counts_unseen:
                emit(Notice(f"{which} that training never saw count in |x|^2, as in LIBSVM"))
            else:
                emit(Notice(f"ignored {which} that training never saw"))
        outcome = prediction.outcome(time.perf_counter() - began)
        emit(outcome)
        return outcome


# --- predicted rows ------------------------------------------------------------------------


class PredictedRows(NamedTuple):
    """The predictions of m rows.

    f : (m, columns) float64, decision values
    predicted : (m,) class indices or targets
    unseen : (values,) int32, feature index of each value whose feature is not in the training data
    probabilities : (m, classes) float64, or None
    scores : (m, classes) float64, by which the labels of a set are sorted: -inf of the predicted
    label, inf of a label outside of the set; None without label sets
    """

    f: np.ndarray
    predicted: np.ndarray
    unseen: np.ndarray
    probabilities: np.ndarray | None = None
    scores: np.ndarray | None = None


def predicted_rows(
    model: Model,
    params: PredictParams,
    largest: float | None,
    X: CsrMatrix,
) -> PredictedRows:
    """Return the predictions of rows as in a file. largest : see CoverageCounts; None: no sets"""
    rows = model.rows(X)
    needs_f = params.scores or params.probabilities or params.metrics or largest is not None
    f = model.decision(rows, labels_only=not needs_f)
    found = PredictedRows(f, model.predicted(f), rows.unseen)
    if model.is_regression:
        return found
    if params.probabilities:
        chances = model.probabilities(f)
        # The label is the most probable class. The probabilities of novelty detection are too
        # coarse for that, and its labels follow from f.
        predicted = found.predicted if model.is_one_class else chances.argmax(axis=1)
        return found._replace(predicted=predicted, probabilities=chances)
    if largest is not None:
        scores = class_scores(f, model.has_pairs)
        scores[scores > largest] = np.inf
        # The predicted label always is in the set, so that no set is empty.
        scores[np.arange(len(f)), found.predicted] = -np.inf
        return found._replace(scores=scores)
    return found


class _FilePrediction:
    """The prediction of files: predicted rows, lines of the output, counts over all rows.

    unseen_values, unseen : number of values of features that training never saw, and these features
    coverage : the counts of sets or intervals; None: there are none
    between : the text between the fields of a line
    names : the labels as fields
    header : the first line; with kept columns, the names of all columns
    """

    def __init__(self, path: str, rows: RowFiles, params: PredictParams) -> None:
        """Prepare a prediction. path : the model file."""
        self.rows, self.params, model = rows, params, rows.model
        self.count = self.labelled = self.unseen_values = 0
        self.unseen = np.empty(0, np.int32)
        self.metric: ClassCounts | RegressionErrors = RegressionErrors()
        if not model.is_regression:
            self.metric = ClassCounts(len(model.labels), params.metrics)
        self.coverage = None
        if params.coverage is not None:
            if model.conformal is None:
                raise ModelError(f"{path}: expected a model that was trained with --conformal")
            largest = model.conformal.largest(params.coverage)
            self.coverage = CoverageCounts(params.coverage, largest)
        self.between = rows.delimiter if rows.kept else " "
        self.names = _written_labels(model, params.labels)
        odd = next((name for name in self.names if {"\n", "\r"} & set(name)), None)
        if odd is not None and not rows.kept:
            expected = "labels without line ends, as each row has one line"
            raise ModelError(f"{path}: expected {expected}, found {quoted(odd)}")
        if rows.kept or params.probabilities or params.coverage is not None:
            self.names = tuple(written_record([name], self.between) for name in self.names)
        columns, self.header, self.lines_of = self._form()
        if rows.kept:
            kept = [written_record([name], self.between) for name in rows.kept]
            self.header = self.between.join([*kept, *columns]) + "\n"

    def parts(self, resources: Resources) -> Iterator[tuple[PredictedRows, list[str] | None]]:
        """Yield the predictions of consecutive rows, and the columns that --keep copies."""
        # The progress of the reader before each block. The reader is some blocks ahead.
        progress: list[Any] = [Progress("predicting", 0, None, "B")]
        largest = None if self.coverage is None else self.coverage.largest
        work = partial(predicted_rows, self.rows.model, self.params, largest)
        with ExitStack() as stack:
            if resources.cluster is None:
                pool = stack.enter_context(ThreadPool(resources.threads))
                in_order: Callable[..., Iterator[PredictedRows]]
                in_order = partial(pool.map_in_order, lambda call: call())
            else:
                # dask is optional, and its import takes a second.
                from randsvm.cluster.executor import calls_on

                in_order = stack.enter_context(calls_on(resources.cluster, self.rows.model))
            blocks = self.rows.blocks(progress.append, resources.threads)
            for number, block in enumerate(blocks):
                parts = list(slices(len(block), self.rows.model.rows_at_once))
                calls = (partial(work, block.X[part]) for part in parts)
                for part, found in zip(parts, in_order(calls), strict=True):
                    self._add(found, block, part)
                    yield found, None if block.keys is None else block.keys[part]
                    # The predicted rows of the block are this share of the way between both.
                    before, after = progress[number], progress[min(number + 1, len(progress) - 1)]
                    share = min(1.0, part.stop / len(block))
                    done = before.done + share * (after.done - before.done)
                    emit(after._replace(stage="predicting", done=int(done)))

    def _add(self, found: PredictedRows, block: ParsedRows, part: slice) -> None:
        """Count the predictions of some rows of a block."""
        assert block.weights is not None, "RowFiles gives all rows weights"
        y, weights = block.y[part], block.weights[part]
        labelled = ~np.isnan(y)
        self.count += len(y)
        self.labelled += int(labelled.sum())
        p = None if found.probabilities is None else found.probabilities[labelled]
        true, f, predicted = y[labelled], found.f[labelled], found.predicted[labelled]
        self.metric.add(true, f, predicted, weights[labelled], p)
        if self.coverage is not None:
            sets = None if found.scores is None else found.scores < np.inf
            self.coverage.add(y, found.predicted, sets, weights)
        if len(found.unseen):
            self.unseen_values += len(found.unseen)
            self.unseen = sorted_union(self.unseen, found.unseen)

    def outcome(self, seconds: float) -> Predicted:
        metric = self.metric
        return Predicted(
            rows=self.count,
            labelled=self.labelled,
            **{name: getattr(metric, name, None) for name in SCORES},
            unseen_features=len(self.unseen),
            seconds=seconds,
            noise_scale=self.rows.model.noise_scale if self.params.probabilities else None,
            metrics=metric.metrics(self.rows.labels.labels) if self.params.metrics else None,
            coverage=None if self.coverage is None else self.coverage.counted(),
        )

    # --- what the output contains ---------------------------------------------------------

    def created_output(self, path: str | None) -> AbstractContextManager[BinaryIO]:
        """Create the output: a file, or the table of --into if there is no path.

        Raises OutputError if it holds something else, before rows are predicted.
        """
        if path is not None:
            files.check_output(path, *self.replaceable)
            return files.create_output(path)
        from randsvm.data.database import Query, filled_table

        query, table, kept = self.rows.paths[0], self.params.into, self.rows.kept
        assert isinstance(query, Query) and table is not None
        is_whole = all(isinstance(value, int) for value in label_values(self.rows.model.labels))
        names = fields_of(self.header.rstrip("\n"))[len(kept) :]
        label = "int64" if is_whole and not self.rows.model.is_regression else "string"
        kinds = {name: label if name == "label" else "float64" for name in names}
        return filled_table(query, table, kept, kinds)

    @property
    def replaceable(self) -> tuple[str, Callable[[bytes], bool]]:
        """Return the kind of file that the output may replace, and a function that recognises the
        first bytes of such a file.

        An output with kept columns replaces only a table with the same header. Without kept columns
        the output has no delimiters but in names of labels: a file with others may be a table of
        the user and is not replaced.
        """
        if self.rows.kept:
            header = files.encoded(self.header)[: files.FILE_TYPE_BYTES]
            return "a table of the same columns", lambda head: head.startswith(header)
        fields = DELIMITERS_OF_TABLES + self.rows.delimiter
        odd = [files.encoded(name) for name in self.names if set(name) & set(f' :"{fields}')]

        def recognises(head: bytes) -> bool:
            if len(head) == files.FILE_TYPE_BYTES:
                head = head[: head.rfind(b"\n") + 1]  # the last line may be truncated
            for name in odd:
                head = head.replace(name, b"label")
            return not set(fields.encode()) & set(head) and holds_predictions(head)

        return "a file of predictions", recognises

    def lines(self, rows: PredictedRows, keys: list[str] | None) -> bytes:
        """Return the lines of some rows. keys : the kept fields of each row, as written."""
        lines = self.lines_of(rows)
        if keys is not None:
            lines = [self.between.join(fields) for fields in zip(keys, lines, strict=True)]
        return files.encoded("\n".join([*lines, ""]))

    def _form(self) -> tuple[list[str], str, Callable[[PredictedRows], list[str]]]:
        """Return the names of the columns of the output, its first line without kept columns, and
        the function that returns the line of each row.
        """
        model, params, count = self.rows.model, self.params, len(self.rows.model.b)
        if params.coverage is not None and not model.is_regression:
            return [], f"{LABEL_SETS} {params.coverage:g}\n", self._sets
        if params.scores:
            scores = ["score"] if count == 1 else [f"score_{i + 1}" for i in range(count)]
            return scores, "", self._numbers
        if model.is_regression:
            return ["prediction"], "", self._numbers
        if not params.probabilities:
            return ["label"], "", self._labels
        if model.is_one_class:
            return (names := ["label", "normal", "outlier"]), " ".join(names) + "\n", self._likely
        # The first line is svm-predict's.
        first_line = " ".join(["labels", *self.names]) + "\n"
        return ["label", *self.names], first_line, self._likely

    def _numbers(self, rows: PredictedRows) -> list[str]:
        values = rows.f
        if self.coverage is not None:
            half = self.coverage.largest
            values = np.column_stack([values, values - half, values + half])
        return [line.replace(" ", self.between) for line in join_rows(values)]

    def _labels(self, rows: PredictedRows) -> list[str]:
        return [self.names[index] for index in rows.predicted.tolist()]

    def _likely(self, rows: PredictedRows) -> list[str]:
        assert rows.probabilities is not None
        # The number of digits is svm-predict's.
        numbers = [[f"{p:.6g}" for p in row] for row in rows.probabilities.tolist()]
        fields = zip(self._labels(rows), numbers, strict=True)
        return [self.between.join([label, *row]) for label, row in fields]

    def _sets(self, rows: PredictedRows) -> list[str]:
        """Return a line of labels for each row: the predicted label, then by rising score."""
        assert rows.scores is not None
        order = np.argsort(rows.scores, axis=1, kind="stable").tolist()
        sizes = (rows.scores < np.inf).sum(axis=1).tolist()
        sets = (row[:size] for row, size in zip(order, sizes, strict=True))
        return [self.between.join([self.names[index] for index in one]) for one in sets]


def _written_labels(model: Model, labels: str) -> tuple[str, ...]:
    """Return the text that the output contains for each class of the model."""
    if labels == "file":
        return model.labels
    values = label_values(model.labels)
    if not all(isinstance(value, int) for value in values):
        raise ModelError(
            f"--labels libsvm: expected labels that are whole numbers, found {model.labels[0]!r}"
        )
    return tuple(map(str, values))


# The ends of an interval that is unbounded.
INFINITIES = b"-inf", b"inf"


def holds_predictions(head: bytes) -> bool:
    """Return whether a file with these first lines holds predictions.

    Its lines are a label, numbers, or a label and numbers; with probabilities the first line names
    the labels. Rows of svmlight contain index:value, and models contain words.
    """
    lines = head.splitlines()
    if lines and lines[0].startswith(LABEL_SETS.encode()):
        return not any(set(line) & set(b"\0:") for line in lines)
    if lines and lines[0].startswith((b"labels ", b"label normal outlier")):
        lines = lines[1:]
    # Most lines of labels are equal.
    return all(_is_prediction(line.split()) for line in set(lines))


def _is_prediction(words: list[bytes]) -> bool:
    if not words or set(words[0]) & set(b"\0:"):
        return False
    cells = words[0].split(b",")
    is_table = len(cells) > 1 and all(map(is_number, cells))
    return not is_table and all(is_number(word) or word in INFINITIES for word in words[1:])
