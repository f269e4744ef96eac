"""Weights of rows in a file of their own: one number a line, as LIBSVM's option -W reads them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from randsvm import files
from randsvm.data.svmlight import (
    BYTE_ORDER_MARK,
    PADDING,
    ParsedRows,
    parse_piece,
)
from randsvm.decimals import NUMBER
from randsvm.errors import DataError, ParameterError, quoted

TOKEN = re.compile(rb"[^ \t]+")


def check_path(path: str) -> None:
    """Raise ParameterError if the weights would come from standard input."""
    if path == files.STANDARD:
        raise ParameterError("--row-weights needs the name of a file, not standard input")


def in_range(weights: np.ndarray) -> np.ndarray:
    """Return which numbers can be weights: squares of larger ones would overflow."""
    return (weights >= 0) & (weights <= np.finfo(np.float32).max)


class RowWeights:
    """The weights of a file, handed out to the rows of the data in order.

    Comments and blank lines are skipped, as in data. Raises DataError for a line that is not a
    weight, and if there are more or fewer weights than rows.

    path: the file of weights. data: the name of the data, for messages.
    """

    def __init__(self, path: str, data: str) -> None:
        check_path(path)
        self.path, self.data = path, data
        self.content = files.read_whole(path).removeprefix(BYTE_ORDER_MARK)
        block, _, fault = parse_piece(self.content + PADDING, labels="number")
        plain = not (fault or len(block.values) or block.queries or block.weights is not None)
        if not plain or not in_range(block.y).all():
            raise self._first_error()
        self.weights = block.y
        self.used = 0

    def of(self, block: ParsedRows) -> ParsedRows:
        """Return the next rows of the data with their weights."""
        if block.weights is not None:
            raise ParameterError(f"give one of --row-weights and cost: in {self.data}, not both")
        begin, self.used = self.used, self.used + len(block)
        if self.used > len(self.weights):
            found = f"{len(self.weights):,} weights"
            raise self._error(self._line(len(self.weights)), 1, found)
        return replace(block, weights=self.weights[begin : self.used])

    def check_end(self) -> None:
        """Raise DataError if there are more weights than rows."""
        if self.used < len(self.weights):
            found = f"{len(self.weights):,} weights for {self.used:,} rows"
            raise self._error(self._line(self.used), 1, found)

    def _error(self, line: int, column: int, found: str) -> DataError:
        problem = f"expected one weight for each row of {self.data}, found {found}"
        return DataError(files.display_name(self.path), line, column, problem)

    def _tokens(self) -> list[tuple[int, list[tuple[int, bytes]]]]:
        """Return the line number of each row, and its tokens with their columns."""
        rows = []
        for number, line in enumerate(self.content.split(b"\n"), 1):
            content = line.partition(b"#")[0].removesuffix(b"\r")
            tokens = [(match.start() + 1, match.group()) for match in TOKEN.finditer(content)]
            if tokens:
                rows.append((number, tokens))
        return rows

    def _line(self, row: int) -> int:
        """Return the line of a weight, or the line after the last. row: from 0."""
        rows = self._tokens()
        if row < len(rows):
            return rows[row][0]
        return rows[-1][0] + 1 if rows else 1

    def _first_error(self) -> DataError:
        """Return the error for the first line that is not a weight."""
        name = files.display_name(self.path)
        for line, tokens in self._tokens():
            column, token = tokens[0]
            text = files.decoded(token)
            if not NUMBER.fullmatch(text) or not in_range(np.array(float(text))):
                problem = f"expected a weight from 0 to 3.4e38, found {quoted(token)}"
                return DataError(name, line, column, problem)
            if len(tokens) > 1:
                column, token = tokens[1]
                problem = f"expected one number a line, found {quoted(token)} after it"
                return DataError(name, line, column, problem)
        return DataError(name, 1, 1, "expected text, found a NUL byte")
