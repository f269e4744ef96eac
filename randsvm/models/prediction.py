"""Prediction: a file of rows and a model file in, a file of labels or decision values out.

Streams the rows block by block, in input order. Never prints.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from randsvm import files
from randsvm.arrays import slices
from randsvm.data import svmlight
from randsvm.data.labels import LabelTable
from randsvm.data.reading import united
from randsvm.errors import ModelError, ParameterError
from randsvm.events import (
    ClassificationMetrics,
    Notice,
    Predicted,
    Progress,
    RegressionMetrics,
    Watch,
    listening,
    silent,
    tell,
)
from randsvm.models.load import load
from randsvm.models.metrics import Classified, Counts, Detailed, Regressed, said
from randsvm.models.model import Model
from randsvm.parameters.run import Resources

# Rows that one prediction task holds; a block of text is several of them.
PREDICT_ROWS = 1024


@dataclass(frozen=True)
class Wanted:
    """What is written and counted besides labels. scores: decision values instead of them;
    probabilities: of the classes, after a label that has the largest; metrics: see metrics.py."""

    scores: bool = False
    probabilities: bool = False
    metrics: bool = False

    def __post_init__(self) -> None:
        if self.scores and self.probabilities:
            raise ParameterError("give one of --scores and -b 1, not both")


LABELS = Wanted()


def predict(
    data: str,
    model: str,
    output: str,
    *,
    wanted: Wanted = LABELS,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Predicted:
    """Predict the rows of the svmlight file `data` in input order; one line each into `output`.

    Labels as they were spelled in training, or what else is `wanted`. Memory does not grow with
    the file, but by 9 bytes a row for the metrics of two classes. Raises the errors of
    randsvm.errors; on any error `output` is untouched.
    """
    began = time.perf_counter()
    files.check_apart({"OUTPUT_FILE": output}, {"TEST_FILE": data, "MODEL_FILE": model})
    files.check_output(output)
    loaded = load(model)
    jobs = (resources or Resources()).workers
    if wanted.probabilities and loaded.probabilities(np.zeros(1)) is None:
        raise ModelError(f"{model}: expected a model with probabilities (trained with -b 1)")
    reading = _Reading(data, loaded, jobs, wanted)
    with listening(watch):
        with files.create_output(output) as stream:
            if wanted.probabilities:
                stream.write(files.encoded(" ".join(["labels", *loaded.labels]) + "\n"))
            for answer in reading.answers():
                stream.write(_lines(answer, loaded, wanted))
        if reading.unseen_values:
            which = f"{reading.unseen_values} values of {len(reading.unseen)} features"
            tell(Notice(f"ignored {which} that training never saw"))
        outcome = reading.outcome(time.perf_counter() - began, output == files.STANDARD)
        tell(outcome)
        return outcome


def _predicting(read: object) -> None:
    """To who reads, the text that is read is the progress of the prediction."""
    assert isinstance(read, Progress)
    tell(replace(read, stage="predicting"))


@dataclass(frozen=True)
class _Answer:
    """What a model says of some rows: f decision values, said (m,) classes (of a regression f
    itself), shares (m, classes) probabilities or None."""

    f: np.ndarray
    said: np.ndarray
    shares: np.ndarray | None


class _Reading:
    """The rows of a file on their way through a model; counts what is right."""

    def __init__(self, data: str, model: Model, jobs: int, wanted: Wanted) -> None:
        self.data, self.model, self.jobs, self.wanted = data, model, jobs, wanted
        self.table = LabelTable(data, unlabelled=True, names=model.labels)
        self.count: Counts = Classified()
        if model.regression:
            self.count = Regressed()
        elif wanted.metrics:
            self.count = Detailed(len(model.labels))
        # Whether decision values matter beyond the labels.
        self.rough = not (wanted.scores or wanted.probabilities or wanted.metrics)
        self.unseen_values = 0
        self.unseen = np.empty(0, np.int32)

    def answers(self) -> Iterator[_Answer]:
        """Of consecutive blocks of rows."""
        blocks = svmlight.read_blocks(
            self.data,
            labels="number" if self.model.regression else "class",
            zero_based=self.model.zero_based,
            unlabelled=True,
            jobs=self.jobs,
            watch=_predicting,
        )
        with ThreadPoolExecutor(self.jobs) as pool:
            for block in blocks:
                y = block.y if self.model.regression else self.table.classes(block)
                parts = list(slices(len(y), PREDICT_ROWS))
                found = pool.map(self._answer, [block] * len(parts), parts)
                for at, (answer, unseen) in zip(parts, found, strict=True):
                    self.count.add(y[at], answer.f, answer.said)
                    if len(unseen):
                        self.unseen_values += len(unseen)
                        self.unseen = united(self.unseen, unseen)
                    yield answer

    def _answer(self, block: svmlight.Block, at: slice) -> tuple[_Answer, np.ndarray]:
        model = self.model
        indptr = block.indptr[at.start : at.stop + 1]
        values = slice(indptr[0], indptr[-1])
        rows = model.rows(indptr - indptr[0], block.indices[values], block.values[values])
        f = model.decision(rows, self.rough)
        if model.regression:
            return _Answer(f, f, None), rows.unseen
        shares = model.probabilities(f) if self.wanted.probabilities else None
        if shares is None:
            return _Answer(f, said(f), None), rows.unseen
        # What is said never contradicts the probabilities beside it.
        return _Answer(f, shares.argmax(axis=1), shares), rows.unseen

    def outcome(self, seconds: float, to_stdout: bool) -> Predicted:
        count = self.count
        classified = count if isinstance(count, Classified) else None
        regressed = count if isinstance(count, Regressed) else None
        return Predicted(
            rows=count.rows,
            labelled=count.labelled,
            correct=classified.correct if classified else None,
            accuracy=classified.score if classified else None,
            squared_error=regressed.score if regressed else None,
            squared_correlation=regressed.squared_correlation if regressed else None,
            unseen_features=len(self.unseen),
            seconds=seconds,
            metrics=self._metrics(),
            to_stdout=to_stdout,
        )

    def _metrics(self) -> ClassificationMetrics | RegressionMetrics | None:
        count = self.count
        if isinstance(count, Detailed):
            return count.metrics(self.table.names)
        if isinstance(count, Regressed) and self.wanted.metrics:
            return RegressionMetrics(count.mean_absolute_error, count.determination)
        return None


def _lines(answer: _Answer, model: Model, wanted: Wanted) -> bytes:
    if wanted.scores or model.regression:
        rows = answer.f.reshape(len(answer.f), -1).tolist()
        return "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()
    names = [model.labels[place] for place in answer.said.tolist()]
    if answer.shares is not None:
        # As many digits as svm-predict writes.
        shares = [" ".join([f"{share:.6g}" for share in row]) for row in answer.shares.tolist()]
        names = [f"{name} {row}" for name, row in zip(names, shares, strict=True)]
    return files.encoded("".join([name + "\n" for name in names]))
