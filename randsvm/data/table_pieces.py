"""The types that the readers of tables share: what a column is for, and pieces of rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np

import randsvm.data._table as _table
from randsvm.data.svmlight import NOT_FINITE, NUMBER, Block, Fault
from randsvm.errors import quoted
from randsvm.files import decoded

# Opens a file for reading, from its start.
Opener = Callable[[str], AbstractContextManager[BinaryIO]]
# A distinct text of a column: its bytes, and the line and column of the first one in the piece.
Text = tuple[bytes, int, int]


class ColumnRoles(NamedTuple):
    """The use of the columns of a file.

    roles : (columns,) int8, of `_table`
    kept : (columns,) uint8, whether `Block.keys` has the column
    starts : (columns,) int32, the feature index of a number or of the first category
    means : (columns,) float64, the value of a missing number; nan: it is refused
    fill : whether a text may be missing; it is then in none of the categories
    categories : the categories of each column of text, in the order of their features
    missing : more texts that stand for a missing number; a number among them stands for all
    spellings of its value
    """

    roles: np.ndarray
    kept: np.ndarray
    starts: np.ndarray
    means: np.ndarray
    fill: bool
    categories: list[list[bytes]]
    missing: list[bytes]

    @property
    def label(self) -> int:
        """The position of the label, -1 if there is none."""
        found = np.flatnonzero((self.roles == _table.CLASS) | (self.roles == _table.TARGET))
        return int(found[0]) if len(found) else -1


class Content(NamedTuple):
    """The content of a column in a piece.

    sums : numbers whose sum is exactly that of the column; `math.fsum` rounds it once
    numbers : the number of its numbers; texts : distinct ones
    """

    sums: tuple[float, ...]
    numbers: int
    texts: list[Text]


@dataclass
class Piece:
    """The rows of a part of a file before its first fault.

    spellings : the distinct labels; lines : the number of lines
    unseen : how many texts of each column are no category
    contents : of each column, if they are wanted
    row_ends : (m,) int64, the byte after each row of a text
    """

    block: Block
    spellings: list[Text]
    lines: int
    fault: Fault | None
    unseen: list[int]
    contents: list[Content]
    row_ends: np.ndarray | None = None


class Table(Protocol):
    """An open table.

    name : of the file; names : of its columns
    """

    name: str
    names: list[str]

    def pieces(
        self,
        layout: ColumnRoles,
        jobs: int,
        *,
        unlabelled: bool = False,
        float64: bool = False,
        order: Sequence[int] = (),
        learns: bool = False,
    ) -> Generator[tuple[int, Piece], None, None]:
        """Yield the first line of each piece, and the piece, parsed by `jobs` threads.

        unlabelled : the label may be missing. order : of the kept columns in `Block.keys`.
        learns : `contents` are wanted, and no rows. A piece with a fault is the last one; after
        it, raise DataError.
        """
        ...


def missing(column: str, found: str, is_label: bool) -> str:
    """Return the problem of a missing value. found : what is in its place."""
    where = f"in column {quoted(column)}, found {found}"
    if is_label:
        return f"expected a label {where}"
    return f"expected a value {where} (--missing mean fills it)"


def not_a_number(column: str, content: bytes) -> str:
    """Return the problem of a value that is not a number, not finite or too large."""
    text = decoded(content)
    expected = "a number"
    if NOT_FINITE.fullmatch(text):
        expected = "a finite number"
    elif NUMBER.fullmatch(text):
        expected = "a number within float32 (3.4e38)"
    return f"expected {expected} in column {quoted(column)}, found {quoted(content)}"


def features_of(indices: np.ndarray) -> np.ndarray:
    """Return the distinct indices, ascending, int32."""
    present = np.flatnonzero(np.bincount(indices)) if len(indices) else np.empty(0)
    return present.astype(np.int32)
