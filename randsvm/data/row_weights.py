"""Weights of rows in a file of their own: one number a line, as LIBSVM's option -W reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from randsvm import files
from randsvm.data.svmlight import BYTE_ORDER_MARK, PADDING, ParsedRows, parse_piece
from randsvm.decimals import NUMBER
from randsvm.errors import DataError, ParameterError, quoted


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
            raise self._wrong_count(len(self.weights), "")
        return replace(block, weights=self.weights[begin : self.used])

    def check_end(self) -> None:
        """Raise DataError if there are more weights than rows."""
        if self.used < len(self.weights):
            raise self._wrong_count(self.used, f" for {self.used:,} rows")

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each line that is not blank, and the line without its comment."""
        for number, line in enumerate(self.content.split(b"\n"), 1):
            text = line.partition(b"#")[0].rstrip()
            if text:
                yield number, text

    def _wrong_count(self, row: int, rows: str) -> DataError:
        """Return the error for the weight of a row, from 0, or for the one after the last."""
        lines = [0, *(number for number, _ in self._lines())]
        line = lines[row + 1] if row < len(self.weights) else lines[-1] + 1
        found = f"found {len(self.weights):,} weights{rows}"
        problem = f"expected one weight for each row of {self.data}, {found}"
        return DataError(files.display_name(self.path), line, 1, problem)

    def _first_error(self) -> DataError:
        """Return the error for the first line that is not a weight."""
        name = files.display_name(self.path)
        for number, line in self._lines():
            text = files.decoded(line.strip())
            if not NUMBER.fullmatch(text) or not in_range(np.array(float(text))):
                problem = f"expected a weight from 0 to 3.4e38, found {quoted(text)}"
                return DataError(name, number, len(line) - len(line.lstrip()) + 1, problem)
        return DataError(name, 1, 1, "expected text, found a NUL byte")
