"""Prediction: a file of rows and a model file in, a file of labels or decision values out.

Streams the rows block by block, in input order. Never prints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import numpy as np

from randsvm import files
from randsvm.data.labels import LabelTable
from randsvm.data.reading import sorted_union
from randsvm.decimals import is_number, join_rows
from randsvm.errors import ModelError
from randsvm.events import (
    ClassificationMetrics,
    Notice,
    Predicted,
    Progress,
    RegressionMetrics,
    Watch,
    emit,
    listening,
    silent,
)
from randsvm.models.load import load, refuse_as_data
from randsvm.models.metrics import Accuracy, ConfusionMatrix, Metric, RegressionErrors
from randsvm.models.model import Model
from randsvm.models.predictor import PredictedBlocks, PredictedRows, Predictor, here, there
from randsvm.parameters.prediction import PredictParams
from randsvm.parameters.run import Resources


def predict(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    params: PredictParams | None = None,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Predicted:
    """Predict the rows of svmlight files, in input order, one line each.

    Parameters
    ----------
    data : str, PathLike or sequence of these
        Name of a file, a pattern of names, or several names, predicted one after the other.
    model : str or PathLike
        Model file of randsvm, LIBSVM or LIBLINEAR.
    output : str or PathLike
        File to write; "-" is standard output.
    params : PredictParams, optional
        What to write: labels as the training file spelled them by default.
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
    Memory does not grow with the file, except by 9 bytes a row for the metrics of two classes. On
    any error `output` is unchanged.
    """
    began = time.perf_counter()
    params = params or PredictParams()
    paths, model, output = files.inputs(data), os.fspath(model), os.fspath(output)
    for path in paths:
        files.check_apart({"OUTPUT_FILE": output}, {"TEST_FILE": path, "MODEL_FILE": model})
        refuse_as_data(path, "TEST_FILE MODEL_FILE OUTPUT_FILE")
    files.check_output(output)
    files.check_kind(output, "a file of predictions", are_predictions)
    loaded = load(model)
    if params.probabilities and not loaded.has_probabilities:
        raise ModelError(f"{model}: expected a model with probabilities (trained with -b 1)")
    prediction = _Prediction(paths, model, loaded, resources or Resources(), params)
    with listening(watch):
        with files.create_output(output) as stream:
            stream.write(files.encoded(prediction.first_line))
            for rows in prediction.blocks():
                stream.write(prediction.lines(rows))
        if prediction.unseen_values:
            which = f"{prediction.unseen_values} values of {len(prediction.unseen)} features"
            if loaded.counts_unseen:
                emit(Notice(f"{which} that training never saw count in |x|^2, as in LIBSVM"))
            else:
                emit(Notice(f"ignored {which} that training never saw"))
        outcome = prediction.outcome(time.perf_counter() - began, output in files.STANDARD_OUTPUTS)
        emit(outcome)
        return outcome


def are_predictions(head: bytes) -> bool:
    """Whether a file that begins so holds predictions: lines of a label, of numbers, or of a label
    and numbers, below a line that names the labels where there are probabilities. A row of
    svmlight has index:value, or says nothing but its label; a model has words."""
    lines = head.splitlines()
    if len(head) == files.HEAD_OF_A_KIND:
        lines = lines[:-1]  # cut short
    if lines and lines[0].startswith((b"labels ", b"label normal outlier")):
        lines = lines[1:]
    return all(_is_prediction(line.split()) for line in lines)


def _is_prediction(words: list[bytes]) -> bool:
    if not words or set(words[0]) & set(b"\0:"):
        return False
    cells = words[0].split(b",")
    is_table = len(cells) > 1 and all(map(is_number, cells))
    return not is_table and all(map(is_number, words[1:]))


class _Way:
    """Through a file: the reader is some blocks ahead of the rows that are predicted."""

    def __init__(self) -> None:
        self.read = [Progress("predicting", 0, None, "B")]
        self.block = 0

    def on_event(self, progress: object) -> None:
        assert isinstance(progress, Progress)
        self.read.append(progress._replace(stage="predicting"))

    def emit(self, share: float) -> None:
        """share: of the block that is being predicted, how much is done."""
        begin, end = self.read[self.block], self.read[min(self.block + 1, len(self.read) - 1)]
        emit(end._replace(done=int(begin.done + share * (end.done - begin.done))))


class _Prediction:
    """The rows of some files on their way through a model, and what is counted over them."""

    def __init__(
        self,
        paths: Sequence[str],
        path: str,
        model: Model,
        resources: Resources,
        params: PredictParams,
    ) -> None:
        """path: of the model."""
        self.paths, self.path, self.model = paths, path, model
        self.resources, self.params = resources, params
        self.table = LabelTable(
            paths[0], unlabelled=True, names=model.labels, any_label=model.finds_novelties
        )
        self.metric: Metric = Accuracy()
        if model.regression:
            self.metric = RegressionErrors()
        elif params.metrics:
            self.metric = ConfusionMatrix(len(model.labels))
        self.way = _Way()
        self.names = _spelled(model, params.labels)
        self.unseen_values = 0
        self.unseen = np.empty(0, np.int32)

    def blocks(self) -> Iterator[PredictedRows]:
        """Of consecutive rows."""
        for block, found in self._predicted():
            y = block.y if self.model.regression else self.table.classes(block)
            end = 0
            for rows in found:
                begin, end = end, end + len(rows.f)
                self.metric.add(y[begin:end], rows.f, rows.predicted)
                if len(rows.unseen):
                    self.unseen_values += len(rows.unseen)
                    self.unseen = sorted_union(self.unseen, rows.unseen)
                yield rows
                self.way.emit(end / len(y))
            self.way.block += 1

    def _predicted(self) -> PredictedBlocks:
        params, resources, watch = self.params, self.resources, self.way.on_event
        labels_only = not (params.scores or params.probabilities or params.metrics)
        predictor = Predictor(self.model, params.probabilities, labels_only)
        if resources.cluster is None:
            return here(predictor, self.paths, resources.workers, self.table, watch)
        return there(predictor, self.path, self.paths, resources.cluster, self.table, watch)

    def outcome(self, seconds: float, to_stdout: bool) -> Predicted:
        metric = self.metric
        accuracy = metric if isinstance(metric, Accuracy) else None
        errors = metric if isinstance(metric, RegressionErrors) else None
        return Predicted(
            rows=metric.rows,
            labelled=metric.labelled,
            correct=accuracy.correct if accuracy else None,
            accuracy=accuracy.score if accuracy else None,
            squared_error=errors.score if errors else None,
            squared_correlation=errors.squared_correlation if errors else None,
            unseen_features=len(self.unseen),
            seconds=seconds,
            noise_scale=self.model.noise_scale if self.params.probabilities else None,
            metrics=self._metrics(),
            to_stdout=to_stdout,
        )

    def _metrics(self) -> ClassificationMetrics | RegressionMetrics | None:
        metric = self.metric
        if isinstance(metric, ConfusionMatrix):
            return metric.metrics(self.table.names)
        if isinstance(metric, RegressionErrors) and self.params.metrics:
            return RegressionMetrics(metric.mean_absolute_error, metric.determination)
        return None

    @property
    def first_line(self) -> str:
        """As svm-predict's, of the columns of probabilities."""
        if not self.params.probabilities or self.model.regression:
            return ""
        if self.model.finds_novelties:
            return "label normal outlier\n"
        return " ".join(["labels", *self.names]) + "\n"

    def lines(self, rows: PredictedRows) -> bytes:
        if self.params.scores or self.model.regression:
            values = rows.f.reshape(len(rows.f), -1)
            return "".join(line + "\n" for line in join_rows(values)).encode()
        lines = [self.names[index] for index in rows.predicted.tolist()]
        if rows.probabilities is not None:
            # As many digits as svm-predict writes.
            numbers = [" ".join([f"{p:.6g}" for p in row]) for row in rows.probabilities.tolist()]
            lines = [f"{label} {row}" for label, row in zip(lines, numbers, strict=True)]
        return files.encoded("".join([line + "\n" for line in lines]))


def _spelled(model: Model, labels: str) -> tuple[str, ...]:
    """The labels of the model's classes as they are written."""
    if labels == "file":
        return model.labels
    if not all(isinstance(value, int) for value in model.values):
        raise ModelError(
            f"--labels libsvm: expected labels that are whole numbers, found {model.labels[0]!r}"
        )
    return tuple(map(str, model.values))
