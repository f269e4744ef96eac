"""The features that training saw. A model's rows, its scaling and its random map are over these.

Knows nothing of models or files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from randsvm.data.svmlight import LARGEST_INDEX

# A damaged model can promise billions of features in a few bytes ("1-2147483647"). Whoever needs
# an array of them takes at most this many.
MOST_FEATURES = 1 << 22


@dataclass(frozen=True)
class SeenFeatures:
    """Feature indices as runs first..last, both (runs,) and ascending. Written '1-7,9,12-13'."""

    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(features: np.ndarray) -> SeenFeatures:
        """features : (d,) int32, ascending."""
        breaks = np.flatnonzero(np.diff(features) != 1)
        starts = np.concatenate([[0], breaks + 1])[: len(features)]
        ends = np.concatenate([breaks, [len(features) - 1]])[: len(features)]
        return SeenFeatures(features[starts], features[ends])

    def contains(self, indices: np.ndarray) -> np.ndarray:
        """Which of the indices were seen; (m,) bool."""
        if len(self.first) == 0:
            return np.zeros(len(indices), bool)
        run = np.searchsorted(self.first, indices, side="right") - 1
        return (run >= 0) & (indices <= self.last[run])

    def indices(self, most: int) -> np.ndarray:
        """Every index, (m,) int32, ascending. If there are more than `most`, the first
        `most` + 1 of them: the length tells."""
        sizes = np.cumsum(self.last - self.first + 1)
        runs = int(np.searchsorted(sizes, most, side="right")) + 1
        pairs = zip(self.first[:runs].tolist(), self.last[:runs].tolist(), strict=True)
        parts = [np.arange(a, min(b, a + most) + 1) for a, b in pairs]
        return np.concatenate([np.empty(0, np.int64), *parts])[: most + 1].astype(np.int32)

    @property
    def count(self) -> int:
        return int((self.last - self.first + 1).sum())

    def __str__(self) -> str:
        pairs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in pairs)

    @staticmethod
    def parse(text: str) -> SeenFeatures:
        """The inverse of str(). Raises ValueError."""
        if not re.fullmatch(r"(\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*)?", text):
            raise ValueError(f"expected runs of features as 1-7,9, found {text[:40]!r}")
        runs = [run.partition("-") for run in text.split(",") if run]
        first = np.array([int(a) for a, _, _ in runs], np.int64)
        last = np.array([int(b or a) for a, _, b in runs], np.int64)
        if not (np.all(first <= last) and np.all(last[:-1] < first[1:])):
            raise ValueError("expected runs of features in ascending order")
        if len(last) and last[-1] > LARGEST_INDEX:
            raise ValueError(f"expected features of at most {LARGEST_INDEX}, found {last[-1]}")
        return SeenFeatures(first, last)
