"""Options of predictions: the contents of the output and the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from randsvm.errors import ParameterError

SPELLINGS = ("file", "libsvm")


@dataclass(frozen=True)
class PredictParams:
    """Options of predictions.

    scores : whether to write decision values instead of labels
    probabilities : whether to write the most probable label and the probability of each class; for
    a regression whether to report the scale of its noise
    metrics : whether to report more metrics than accuracy or squared error
    labels : whether labels are written as in the training file ("file") or as in LIBSVM ("libsvm")
    """

    scores: bool = False
    probabilities: bool = False
    metrics: bool = False
    labels: Literal["file", "libsvm"] = "file"

    def __post_init__(self) -> None:
        if self.labels not in SPELLINGS:
            raise ParameterError(f"expected labels {' or '.join(SPELLINGS)}, found {self.labels!r}")
        if self.scores and self.labels != "file":
            raise ParameterError("give one of --scores and --labels, not both")
        if self.scores and self.probabilities:
            raise ParameterError("give one of --scores and -b 1, not both")
