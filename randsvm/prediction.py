"""Prediction: a file of rows and a model file in, a file of labels or decision values out.

Streams the rows block by block, in input order. Never prints.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import nan

import numpy as np

from randsvm import files, svmlight
from randsvm.events import Notice, Progress, Watch, listening, silent, tell
from randsvm.kernels import slices
from randsvm.model import Model, load
from randsvm.params import Resources

# Rows that one prediction task holds; a block of text is several of them.
PREDICT_ROWS = 1024


@dataclass(frozen=True)
class Predicted:
    """How prediction went; rows include the unlabelled.

    Of the labelled rows: correct and accuracy in percent, or for a regression squared_error (mean)
    and squared_correlation; nan without labelled rows, None where it is the other kind of model.
    to_stdout: whether the lines went there.
    """

    rows: int
    labelled: int
    correct: int | None
    accuracy: float | None
    squared_error: float | None
    squared_correlation: float | None
    unseen_features: int
    seconds: float
    to_stdout: bool


def predict(
    data: str,
    model: str,
    output: str,
    *,
    scores: bool = False,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Predicted:
    """Predict the rows of the svmlight file `data` in input order; one line each into `output`.

    Labels as they were spelled in training, or with `scores` the decision values. Memory does not
    grow with the file. Raises the errors of randsvm.errors; on any error `output` is untouched.
    """
    began = time.perf_counter()
    files.check_apart({"OUTPUT_FILE": output}, {"TEST_FILE": data, "MODEL_FILE": model})
    files.check_output(output)
    loaded = load(model)
    jobs = (resources or Resources()).workers
    count = _Regressed() if loaded.regression else _Classified()
    with listening(watch):
        with files.create_output(output) as stream:
            for f in _decisions(data, loaded, jobs, count):
                stream.write(_lines(f, loaded, scores))
        if count.unseen_values:
            which = f"{count.unseen_values} values of {len(count.unseen)} features"
            tell(Notice(f"ignored {which} that training never saw"))
        outcome = Predicted(
            count.rows,
            count.labelled,
            *count.score,
            len(count.unseen),
            time.perf_counter() - began,
            output == files.STANDARD,
        )
        tell(outcome)
        return outcome


# correct, accuracy, squared error, squared correlation: see Predicted.
Score = tuple[int | None, float | None, float | None, float | None]


class _Counts:
    """What is counted over all rows, and the score of the labelled ones."""

    def __init__(self) -> None:
        self.rows = self.labelled = self.unseen_values = 0
        self.unseen = np.empty(0, np.int32)

    def add(self, y: np.ndarray, f: np.ndarray, unseen: np.ndarray) -> None:
        """y : (m,) class numbers or targets, nan where there is none."""
        labelled = ~np.isnan(y)
        self.rows += len(f)
        self.labelled += int(labelled.sum())
        self.compare(y[labelled], f[labelled])
        if len(unseen):
            self.unseen_values += len(unseen)
            self.unseen = np.union1d(self.unseen, unseen)

    def compare(self, y: np.ndarray, f: np.ndarray) -> None:
        raise NotImplementedError

    @property
    def score(self) -> Score:
        raise NotImplementedError


class _Classified(_Counts):
    correct = 0

    def compare(self, y: np.ndarray, f: np.ndarray) -> None:
        self.correct += int((y == Model.said(f)).sum())

    @property
    def score(self) -> Score:
        accuracy = 100 * self.correct / self.labelled if self.labelled else nan
        return self.correct, accuracy, None, None


class _Regressed(_Counts):
    def __init__(self) -> None:
        super().__init__()
        # Sums of e^2, y, f, y^2, f^2, y f.
        self.sums = np.zeros(6)

    def compare(self, y: np.ndarray, f: np.ndarray) -> None:
        self.sums += [((f - y) ** 2).sum(), y.sum(), f.sum(), y @ y, f @ f, y @ f]

    @property
    def score(self) -> Score:
        """As svm-predict computes them."""
        m, (error, y, f, yy, ff, yf) = self.labelled, self.sums.tolist()
        if m == 0:
            return None, None, nan, nan
        spread = (m * yy - y * y) * (m * ff - f * f)
        return None, None, error / m, (m * yf - y * f) ** 2 / spread if spread else nan


def _predicting(read: object) -> None:
    """To who reads, the text that is read is the progress of the prediction."""
    assert isinstance(read, Progress)
    tell(replace(read, stage="predicting"))


def _decisions(data: str, model: Model, jobs: int, count: _Counts) -> Iterator[np.ndarray]:
    """Decision values of consecutive blocks of rows; counts what is right on the way."""
    table = svmlight.LabelTable(data, unlabelled=True, names=model.labels)
    blocks = svmlight.read_blocks(
        data,
        labels="number" if model.regression else "class",
        zero_based=model.zero_based,
        unlabelled=True,
        jobs=jobs,
        watch=_predicting,
    )
    with ThreadPoolExecutor(jobs) as pool:
        for block in blocks:
            y = block.y if model.regression else table.classes(block)

            def work(at: slice, block: svmlight.Block = block) -> tuple[np.ndarray, np.ndarray]:
                indptr = block.indptr[at.start : at.stop + 1]
                values = slice(indptr[0], indptr[-1])
                rows = model.rows(indptr - indptr[0], block.indices[values], block.values[values])
                return model.decision(rows), rows.unseen

            for at, (f, unseen) in zip(
                slices(len(y), PREDICT_ROWS),
                pool.map(work, slices(len(y), PREDICT_ROWS)),
                strict=True,
            ):
                count.add(y[at], f, unseen)
                yield f


def _lines(f: np.ndarray, model: Model, scores: bool) -> bytes:
    if scores or model.regression:
        rows = f.reshape(len(f), -1).tolist()
        return "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()
    names = [(name + "\n").encode("utf-8", "surrogateescape") for name in model.labels]
    return b"".join([names[place] for place in model.said(f).tolist()])
