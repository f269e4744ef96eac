"""Whether rounding feature values to float32 changes the data measurably.

A float32 has 24 bits. Where a column lies far from 0 and its values differ little (seconds since
1970, values of 1e8 that spread by 10), rounding moves a value by a measurable share of what tells
it from others, and with it every kernel value. Knows nothing of where rows are kept.
"""

from __future__ import annotations

import numpy as np

# Rounding is measurable where it moves the values of a column by more than this share of what they
# differ by: a column whose mean is some 60 times its standard deviation. Sums of kernel values in
# float32, which the scans are content with, are off by as much.
MEASURABLE = 2.0**-20
# Values that differ by less than this share of their size differ by rounding of float64.
NOISE = 2.0**-44
# Rows that a chunk is judged by: all of a small one, and else a few, as this must cost next to
# nothing beside parsing.
ALL_ROWS, FEW_ROWS = 512, 64
# Of more chunks than that, every one in so many is judged.
FIRST_CHUNKS = 8
# A column is judged by so many pairs of different values at least: fewer may be close to each other
# by chance. Small data sets are judged by what they have.
PAIRS = 8


def is_judged(number: int) -> bool:
    """Whether a chunk is looked at. number: of the chunk, from 0."""
    return number < FIRST_CHUNKS or number % FIRST_CHUNKS == 0


def sample_of(m: int) -> np.ndarray:
    """The rows that a chunk of m rows is judged by, ascending."""
    if m <= ALL_ROWS:
        return np.arange(m)
    return np.arange(FEW_ROWS) * m // FEW_ROWS


def is_measurable(indices: np.ndarray, values: np.ndarray, pairs_needed: int = PAIRS) -> bool:
    """Whether rounding is measurable in any column of some rows.

    indices : (nnz,) int, the column of each value; values : (nnz,) float64, row by row.

    A column's values are compared in pairs, each of the first half with one of the second half.
    Means are geometric, so that some values far from the others (missing time stamps that are given
    as 0) hide nothing.
    """
    moved = np.abs(values - values.astype(np.float32))
    if not moved.any():
        return False
    order = np.argsort(indices, kind="stable")
    indices, values, moved = indices[order], values[order], moved[order]
    begins = np.flatnonzero(np.diff(indices, prepend=indices[0] - 1))
    counts = np.diff(begins, append=len(indices))
    of = np.repeat(np.arange(len(begins)), counts)
    half = (counts // 2)[of]
    first = np.flatnonzero(np.arange(len(values)) - begins[of] < half)
    one, other, column = values[first], values[first + half[first]], of[first]
    apart = np.abs(one - other)
    differ = apart > NOISE * np.maximum(np.abs(one), np.abs(other))
    column, apart = column[differ], apart[differ]
    inexact = moved > 0
    pairs, spread = _mean_logarithm(column, apart, len(begins))
    rounded, shift = _mean_logarithm(of[inexact], moved[inexact], len(begins))
    judged = (pairs >= pairs_needed) & (rounded >= pairs_needed)
    return bool((shift[judged] - spread[judged] > np.log(MEASURABLE)).any())


def _mean_logarithm(
    column: np.ndarray, values: np.ndarray, columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """How many values each column has, and the mean of their logarithms; (columns,) each."""
    counts = np.bincount(column, minlength=columns)
    return counts, np.bincount(column, np.log(values), columns) / np.maximum(counts, 1)
