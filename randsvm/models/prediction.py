"""Predict the rows of files with a model file, and write labels, decision values or probabilities.

Rows are read, predicted and written block by block, in input order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from randsvm import files
from randsvm.arrays import slices, sorted_union
from randsvm.data.columns import written_record
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
from randsvm.models.decisions import class_scores, label_sets
from randsvm.models.metrics import (
    Accuracy,
    ConfusionMatrix,
    CoverageCounts,
    Metric,
    RegressionErrors,
)
from randsvm.models.model import Model
from randsvm.models.model_text import check_is_not_model, load
from randsvm.models.row_files import RowFiles, csr_rows
from randsvm.parallel import ThreadPool
from randsvm.parameters.run import PredictParams, Resources

# The first words of a file of label sets.
LABEL_SETS = "label sets of coverage"
# The scores among the fields of Predicted; a metric has some of them.
SCORES = "correct", "accuracy", "squared_error", "squared_correlation"


def predict(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
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
    model : str or PathLike
        Model file of randsvm, LIBSVM or LIBLINEAR.
    output : str or PathLike
        File to write; "-" is standard output.
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
    paths, model, output = files.inputs(data), os.fspath(model), os.fspath(output)
    inputs = {"TEST_FILE": paths, "MODEL_FILE": model, "--row-weights": params.row_weights}
    files.check_distinct({"OUTPUT_FILE": output}, inputs)
    check_is_not_model(paths, "TEST_FILE MODEL_FILE OUTPUT_FILE")
    loaded = load(model)
    if params.probabilities and not loaded.has_probabilities:
        raise ModelError(f"{model}: expected a model with probabilities (trained with -b 1)")
    prediction = _FilePrediction(paths, model, loaded, resources or Resources(), params)
    files.check_output(output, *prediction.replaceable)
    with listening(watch):
        with files.create_output(output) as stream:
            # Nothing is written before the first rows are read, which may fail.
            header = files.encoded(prediction.header_line)
            for rows, keys in prediction.blocks():
                stream.write(header + prediction.lines(rows, keys))
                header = b""
            stream.write(header)
        if loaded.is_regression and params.labels != "file":
            emit(Notice("--labels has no effect with a regression"))
        if prediction.rows.weighted:
            emit(Notice("rows have weights, which the scores count"))
        prediction.rows.report_other_texts()
        if (label := prediction.rows.labels.ignored_label) is not None:
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
    return not is_table and all(map(is_number, words[1:]))


class _FilePrediction:
    """The prediction of files: predicted rows, lines of the output, counts over all rows."""

    def __init__(
        self,
        paths: Sequence[str],
        path: str,
        model: Model,
        resources: Resources,
        params: PredictParams,
    ) -> None:
        """Prepare a prediction. paths : files of rows; path : the model file."""
        self.paths, self.path, self.model = paths, path, model
        self.resources, self.params = resources, params
        self.metric: Metric = Accuracy()
        if model.is_regression:
            self.metric = RegressionErrors()
        elif params.metrics:
            self.metric = ConfusionMatrix(len(model.labels))
        self.coverage: CoverageCounts | None = None
        if params.coverage is not None:
            if model.conformal is None:
                raise ModelError(f"{path}: expected a model that was trained with --conformal")
            largest = model.conformal.largest(params.coverage)
            self.coverage = CoverageCounts(params.coverage, largest)
        # The progress of the reader, which is some blocks ahead of the predicted rows.
        self.read: list[Any] = [Progress("predicting", 0, None, "B")]
        self.unseen_values = 0
        self.unseen = np.empty(0, np.int32)
        self.rows = RowFiles(
            model, path, paths, params.format, params.keep, params.no_header, params.row_weights
        )
        # The text between the fields of a line, and the labels as fields.
        self.between = self.rows.delimiter if self.rows.kept else " "
        self.names = _written_labels(model, params.labels)
        if self.rows.kept or params.probabilities or params.coverage is not None:
            self.names = tuple(written_record([name], self.between) for name in self.names)
        self.columns, self.first_line, self.written = self._form()

    def blocks(self) -> Iterator[tuple[PredictedRows, list[str] | None]]:
        """Yield the predictions of consecutive rows, and what is kept of each row."""
        for number, (block, found) in enumerate(self._predicted()):
            end = 0
            for rows in found:
                begin, end = end, end + len(rows.f)
                self._count(rows, block, slice(begin, end))
                yield rows, None if block.keys is None else block.keys[begin:end]
                before, after = self.read[number], self.read[min(number + 1, len(self.read) - 1)]
                done = before.done + end / len(block) * (after.done - before.done)
                emit(after._replace(stage="predicting", done=int(done)))

    def _count(self, rows: PredictedRows, block: ParsedRows, part: slice) -> None:
        """Count the predictions of some rows of a block."""
        assert block.weights is not None, "RowFiles gives all rows weights"
        y, weights = block.y[part], block.weights[part]
        self.metric.add(y, rows.f, rows.predicted, weights, rows.probabilities)
        if self.coverage is not None:
            sets = None if self.model.is_regression else self._label_sets(rows)[1]
            self.coverage.add(y, rows.predicted, sets, weights)
        if len(rows.unseen):
            self.unseen_values += len(rows.unseen)
            self.unseen = sorted_union(self.unseen, rows.unseen)

    def _predicted(self) -> Iterator[tuple[ParsedRows, Iterator[PredictedRows]]]:
        """Yield blocks, which this process parses, and the predictions of their parts."""
        model, params, resources = self.model, self.params, self.resources
        labels_only = not (params.scores or params.probabilities or params.metrics)
        labels_only = labels_only and params.coverage is None
        predict = partial(predicted_rows, model, params.probabilities, labels_only)
        with ExitStack() as stack:
            if resources.cluster is None:
                pool = stack.enter_context(ThreadPool(resources.threads))
                in_order: Callable[..., Iterator[PredictedRows]]
                in_order = partial(pool.map_in_order, lambda call: call())
            else:
                # dask is optional, and its import takes a second.
                from randsvm.cluster.executor import calls_on

                in_order = stack.enter_context(calls_on(resources.cluster, model))
            for block in self.rows.blocks(self.read.append, resources.threads):
                parts = slices(len(block), model.rows_at_once)
                yield block, in_order(partial(predict, *csr_rows(block, part)) for part in parts)

    def outcome(self, seconds: float) -> Predicted:
        metric, labels = self.metric, self.rows.labels.labels
        return Predicted(
            rows=metric.rows,
            labelled=metric.labelled,
            **{name: getattr(metric, name, None) for name in SCORES},
            unseen_features=len(self.unseen),
            seconds=seconds,
            noise_scale=self.model.noise_scale if self.params.probabilities else None,
            metrics=metric.metrics(labels) if self.params.metrics else None,
            coverage=None if self.coverage is None else self.coverage.counted(),
        )

    @property
    def replaceable(self) -> tuple[str, Callable[[bytes], bool]]:
        """Return the kind of file that the output may replace, and a function that recognises the
        first bytes of such a file.

        An output with kept columns replaces only a table with the same header. Without kept columns
        the output of a model of tables has neither commas nor tabs: a file with commas or tabs may
        be a table of the user and is not replaced.
        """
        if self.rows.kept:
            header = files.encoded(self.header_line)[: files.FILE_TYPE_BYTES]
            return "a table of the same columns", lambda head: head.startswith(header)
        fields = b"" if self.rows.columns is None else b",\t"
        odd = [files.encoded(name) for name in self.names if set(name) & set(' ,\t"')]

        def recognises(head: bytes) -> bool:
            if len(head) == files.FILE_TYPE_BYTES:
                head = head[: head.rfind(b"\n") + 1]  # the last line may be truncated
            for name in odd:
                head = head.replace(name, b"label")
            return not set(fields) & set(head) and holds_predictions(head)

        return "a file of predictions", recognises

    @property
    def header_line(self) -> str:
        """The first line; with kept columns, the names of all columns."""
        if not self.rows.kept:
            return self.first_line
        names = [written_record([name], self.between) for name in self.rows.kept]
        return self.between.join([*names, *self.columns]) + "\n"

    def lines(self, rows: PredictedRows, keys: list[str] | None) -> bytes:
        """Return the lines of some rows. keys : the kept fields of each row, as written."""
        lines = self.written(rows)
        if keys is not None:
            lines = [self.between.join(fields) for fields in zip(keys, lines, strict=True)]
        return files.encoded("\n".join([*lines, ""]))

    # --- what a line contains --------------------------------------------------------------

    def _form(self) -> tuple[list[str], str, Callable[[PredictedRows], list[str]]]:
        """Return the names of the columns of the output, its first line without kept columns, and
        the function that returns the line of each row.
        """
        model, params, count = self.model, self.params, len(self.model.b)
        if self.coverage is not None and not model.is_regression:
            return [], f"{LABEL_SETS} {self.coverage.asked:g}\n", self._sets
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
            values = np.column_stack([rows.f, rows.f - half, rows.f + half])
        return [line.replace(" ", self.between) for line in join_rows(values)]

    def _labels(self, rows: PredictedRows) -> list[str]:
        return [self.names[index] for index in rows.predicted.tolist()]

    def _likely(self, rows: PredictedRows) -> list[str]:
        assert rows.probabilities is not None
        # The number of digits is svm-predict's.
        numbers = [[f"{p:.6g}" for p in row] for row in rows.probabilities.tolist()]
        fields = zip(self._labels(rows), numbers, strict=True)
        return [self.between.join([label, *row]) for label, row in fields]

    def _label_sets(self, rows: PredictedRows) -> tuple[np.ndarray, np.ndarray]:
        """Return the score of each class, and whether it is in the set, (m, classes) each."""
        assert self.coverage is not None
        scores = class_scores(rows.f, self.model.has_pairs)
        return scores, label_sets(scores, rows.predicted, self.coverage.largest)

    def _sets(self, rows: PredictedRows) -> list[str]:
        """Return a line of labels for each row: the predicted label, then by rising score."""
        scores, sets = self._label_sets(rows)
        scores = np.where(sets, scores, np.inf)
        scores[np.arange(len(scores)), rows.predicted] = -np.inf
        order, sizes = np.argsort(scores, axis=1, kind="stable").tolist(), sets.sum(axis=1).tolist()
        return [
            self.between.join([self.names[index] for index in row[:size]])
            for row, size in zip(order, sizes, strict=True)
        ]


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


# --- rows ----------------------------------------------------------------------------------


class PredictedRows(NamedTuple):
    """The predictions of m rows.

    f : (m, columns) float64, decision values
    predicted : (m,) class indices or targets
    probabilities : (m, classes) float64, or None
    unseen : (values,) int32, feature index of each value whose feature is not in the training data
    """

    f: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None
    unseen: np.ndarray


def predicted_rows(
    model: Model,
    probabilities: bool,
    labels_only: bool,
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
) -> PredictedRows:
    """Return the predictions of rows in CSR.

    probabilities : whether to compute probabilities
    labels_only : whether only labels are needed, so that decision values may be less precise
    """
    rows = model.rows(indptr, indices, values)
    f = model.decision(rows, labels_only)
    if not probabilities or model.is_regression:
        return PredictedRows(f, model.predicted(f), None, rows.unseen)
    chances = model.probabilities(f)
    # The label is the most probable class. The probabilities of novelty detection are too coarse
    # for that, and its labels follow from f.
    predicted = model.predicted(f) if model.is_one_class else chances.argmax(axis=1)
    return PredictedRows(f, predicted, chances, rows.unseen)
