"""Collectors: which of the violators that a scan meets are kept.

Knows nothing of what a violation is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from randsvm.data.sampling import Draw, Smallest


class Collector(Protocol):
    """Which of the rows offered a scan keeps."""

    @property
    def keep(self) -> int:
        """How many."""

    def collect(self, start: int, chosen: np.ndarray, violation: np.ndarray) -> Smallest:
        """Rows start + chosen are offered; violation : (m,) float64 of the whole chunk."""


@dataclass(frozen=True)
class UniformSample:
    """A uniform sample of the rows offered (KBH07)."""

    keep: int
    draw: Draw

    def collect(self, start: int, chosen: np.ndarray, violation: np.ndarray) -> Smallest:
        keys = self.draw.keys(start, start + len(violation))[chosen]
        return Smallest.of(self.keep, start + chosen, keys)


@dataclass(frozen=True)
class First:
    """The first rows met, in file order (MZ's arbitrary choice for OFG97)."""

    keep: int
    draw: Draw

    def collect(self, start: int, chosen: np.ndarray, violation: np.ndarray) -> Smallest:
        return Smallest.of(self.keep, start + chosen, start + chosen)


@dataclass(frozen=True)
class Closest:
    """The rows with the smallest y f(x), i.e. the largest violation (MZ)."""

    keep: int
    draw: Draw

    def collect(self, start: int, chosen: np.ndarray, violation: np.ndarray) -> Smallest:
        return Smallest.of(self.keep, start + chosen, -violation[chosen])
