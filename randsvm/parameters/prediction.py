"""What a prediction writes and counts besides labels."""

from __future__ import annotations

from dataclasses import dataclass

from randsvm.errors import ParameterError


@dataclass(frozen=True)
class PredictParams:
    """scores: decision values instead of labels; probabilities: of each class, after a label that
    has the largest; metrics: more than the accuracy or the squared error."""

    scores: bool = False
    probabilities: bool = False
    metrics: bool = False

    def __post_init__(self) -> None:
        if self.scores and self.probabilities:
            raise ParameterError("give one of --scores and -b 1, not both")
