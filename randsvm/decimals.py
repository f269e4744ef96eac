"""Write float64 numbers with the fewest digits that read back to the same bits, and read them.

Compiled code in data/_svmlight.pyx does the same for float32 feature values. Imports no other
module of the package.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# Each digit can match in one way only: other patterns take n^2 steps to refuse n digits.
NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")


def shortest(number: float | np.floating) -> str:
    """Return the number as text; a whole number ends with '.0', as in Python."""
    # float(): repr of a numpy number names its type.
    return repr(float(number))


def compact(number: float | np.floating) -> str:
    """Return the number as text; a whole number has no '.0', as in C."""
    return shortest(number).removesuffix(".0")


def join_rows(rows: np.ndarray) -> list[str]:
    """Return a line for each row, numbers separated by blanks. rows : (m, columns) float64."""
    words = map(repr, rows.ravel().tolist())
    return list(map(" ".join, zip(*[words] * rows.shape[1], strict=True)))


def is_number(word: bytes) -> bool:
    """Return whether the word is a finite decimal number: not nan, 1_0 or 0x1p3."""
    return NUMBER.fullmatch(word) is not None and math.isfinite(float(word))
