"""PredictParams: what a prediction writes and scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from randsvm.errors import ParameterError

SPELLINGS = ("file", "libsvm")


@dataclass(frozen=True)
class PredictParams:
    """What a prediction writes and scores.

    scores: decision values instead of labels. probabilities: the most probable label and the
    probability of each class; of a regression the scale of its noise. metrics: more scores than
    accuracy or squared error. labels: spelled as in the training file, or as LIBSVM writes them.
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
