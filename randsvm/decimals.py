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

# Each digit has one place to match: another pattern takes n^2 steps to refuse n digits.
NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?)([0-9]+))?")
# The texts of booleans, which are one text in any case, and the numbers that may stand for them.
BOOLEANS = {"false": "0", "true": "1"}
_BYTES_OF_NUMBER = re.compile(NUMBER.pattern.encode())


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
    return _BYTES_OF_NUMBER.fullmatch(word) is not None and math.isfinite(float(word))


def folded(text: str) -> str:
    """Return a text with one spelling for each boolean: that of Parquet, where pandas has True."""
    return lower if (lower := text.lower()) in BOOLEANS else text


def label_value(text: str) -> int | str:
    """Return what a label stands for: the exact value of a whole number, else the folded text."""
    number = NUMBER.fullmatch(text)
    whole = whole_number(number) if number and math.isfinite(float(text)) else None
    return folded(text) if whole is None else whole


def whole_number(number: re.Match[str]) -> int | None:
    """Return the exact value of a finite match of NUMBER; None if it is not whole."""
    sign, before, behind, only_behind, power_sign, power = number.groups(default="")
    behind = behind or only_behind
    digits = (before + behind).strip("0")
    if not digits:
        return 0
    zeros = len(before + behind) - len((before + behind).rstrip("0"))
    # Ten digits of the power suffice: no token has enough digits to compensate a larger power.
    exponent = int(power_sign + (power.lstrip("0")[:10] or "0")) - len(behind) + zeros
    return None if exponent < 0 else int(sign + digits) * 10**exponent
