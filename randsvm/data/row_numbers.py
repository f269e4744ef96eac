"""Rows of a precomputed kernel in text: each begins with 0:number, LIBSVM's `-t 4`.

Knows where such a number stands and what is wrong with it, nothing of what it is for.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

import numpy as np

from randsvm.errors import quoted

# float32 has all whole numbers up to here.
LARGEST_NUMBER = 1 << 24
TOKEN = re.compile(rb"[^ \t]+")


class Place(NamedTuple):
    """Of a row's first feature: 1-based line and byte column, and its text; empty: there is none,
    and the column is the one behind the row."""

    line: int
    column: int
    text: bytes

    def below(self, lines: int) -> Place:
        """In a file that has so many lines before."""
        return self._replace(line=self.line + lines)

    @property
    def problem(self) -> str:
        """What is wrong with the first feature of a row without a number."""
        found = quoted(self.text) if self.text else "the end of the row"
        return (
            f"expected 0:number (-t precomputed: rows are numbered 1 to {LARGEST_NUMBER}), "
            f"found {found}"
        )


class Numbers(NamedTuple):
    """rows : (m,) int64, of the rows before the first that has none, which is `missing`; beyond:
    where the largest stands if no index of these rows is as large."""

    rows: np.ndarray
    missing: Place | None
    beyond: Place | None

    @staticmethod
    def of(text: bytes, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> Numbers:
        """text: lines of svmlight, of which these are the rows."""
        rows = numbers_of(indptr, indices, values)
        if not rows.all():
            count = int(np.argmin(rows))
            return Numbers(rows[:count], _place_of(text, count), None)
        if not len(rows) or rows.max() <= indices.max():
            return Numbers(rows, None, None)
        return Numbers(rows, None, _place_of(text, int(rows.argmax())))

    def below(self, lines: int) -> Numbers:
        """In a file that has so many lines before."""
        return self if self.beyond is None else self._replace(beyond=self.beyond.below(lines))


def numbers_of(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The number of each row of a CSR matrix, (m,) int64; 0 where a row does not begin with the
    index 0 and a whole number from 1 to LARGEST_NUMBER."""
    numbers: np.ndarray = np.zeros(len(indptr) - 1, np.int64)
    filled = np.flatnonzero(indptr[:-1] < indptr[1:])
    at = indptr[filled]
    first = np.where(indices[at] == 0, values[at], 0.0)
    whole = (first == np.floor(first)) & (first >= 1) & (first <= LARGEST_NUMBER)
    numbers[filled[whole]] = first[whole].astype(np.int64)
    return numbers


def _place_of(text: bytes, row: int) -> Place:
    """Where the first feature of a row stands. row: from 0."""
    lines = enumerate(text.split(b"\n"), 1)
    contents = ((line, whole.partition(b"#")[0].removesuffix(b"\r")) for line, whole in lines)
    rows = (each for each in contents if TOKEN.search(each[1]))
    line, content = next(itertools.islice(rows, row, None))
    tokens = list(TOKEN.finditer(content))
    rest = [token for token in tokens[1:] if not token.group().startswith(b"qid:")]
    if not rest:
        return Place(line, len(content) + 1, b"")
    return Place(line, rest[0].start() + 1, rest[0].group())
