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
# A column is judged by so many pairs of different values at least: fewer may be close to each other
# by chance. Small data sets are judged by what they have.
PAIRS = 8


def sample_of(m: int) -> np.ndarray:
    """The rows that a chunk of m rows is judged by, ascending."""
    if m <= ALL_ROWS:
        return np.arange(m)
    return np.arange(FEW_ROWS) * m // FEW_ROWS


def is_measurable(indices: np.ndarray, values: np.ndarray, pairs_needed: int = PAIRS) -> bool:
    """Whether rounding is measurable in any column of some rows.

    indices : (nnz,) int, the column of each value; values : (nnz,) float64, row by row.

    A column's values are compared in pairs, each of the first half with one of the second half.
    Both the differences and what rounding moves are averaged as square roots, so that few values
    far from the others (a missing time stamp that is given as 0) hide nothing.
    """
    moved = np.abs(values - values.astype(np.float32))
    if not moved.any():
        return False
    order = np.argsort(indices, kind="stable")
    indices, values, moved = indices[order], values[order], moved[order]
    begins = np.flatnonzero(np.diff(indices, prepend=indices[0] - 1))
    counts = np.diff(begins, append=len(indices))
    column = np.repeat(np.arange(len(begins)), counts)
    half = (counts // 2)[column]
    first = np.flatnonzero(np.arange(len(values)) - begins[column] < half)
    one, other, column = values[first], values[first + half[first]], column[first]
    apart = np.abs(one - other)
    differ = apart > NOISE * np.maximum(np.abs(one), np.abs(other))
    column, apart = column[differ], apart[differ]
    pairs = np.bincount(column, minlength=len(begins))
    judged = pairs >= pairs_needed
    if not judged.any():
        return False
    spread = np.bincount(column, np.sqrt(apart), len(begins))[judged] / pairs[judged]
    shift = np.add.reduceat(np.sqrt(moved), begins)[judged] / counts[judged]
    return bool((shift**2 > MEASURABLE * spread**2).any())
