"""Weights of rows in a file of their own: one number a line, as LIBSVM's option -W reads them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np

from randsvm import files
from randsvm.data.svmlight import (
    PIECE_SIZE,
    LineTooLongError,
    ParsedRows,
    ParseOptions,
    parse_piece,
    pieces,
)
from randsvm.decimals import NUMBER
from randsvm.errors import DataError, ParameterError, quoted
from randsvm.events import Waiting, emit


def check_path(path: str) -> None:
    """Raise ParameterError if the weights would come from standard input."""
    if path == files.STANDARD:
        raise ParameterError("--row-weights needs the name of a file, not standard input")


def in_range(weights: np.ndarray) -> np.ndarray:
    """Return which numbers can be weights: squares of larger ones would overflow."""
    return (weights >= 0) & (weights <= np.finfo(np.float32).max)


class RowWeights:
    """The weights of a file, handed out to the rows of the data in order.

    The file is open in a `with` block, and only a piece of it is in memory. Comments and blank
    lines are skipped, as in data. Raises DataError for a line that is not a weight, and if there
    are more or fewer weights than rows.

    path: the file of weights. data: the name of the data, for messages.
    """

    def __init__(self, path: str, data: str) -> None:
        check_path(path)
        self.path, self.data = path, data
        # The number of weights so far. The last piece with weights, its first line, and its weights
        # that no row has yet.
        self.count, self.text, self.line, self.rest = 0, np.empty(0, np.uint8), 1, np.empty(0)

    def __enter__(self) -> RowWeights:
        self.parts = self._read()
        self._next()
        return self

    def __exit__(self, *error: object) -> None:
        self.parts.close()

    def of(self, block: ParsedRows) -> ParsedRows:
        """Return the next rows of the data with their weights."""
        if block.weights is not None:
            raise ParameterError(f"give one of --row-weights and cost: in {self.data}, not both")
        parts, missing = [np.empty(0)], len(block)
        while missing:
            if not len(self.rest) and not self._next():
                raise self._wrong_count("")
            parts.append(self.rest[:missing])
            self.rest = self.rest[missing:]
            missing -= len(parts[-1])
        return replace(block, weights=np.concatenate(parts))

    def check_end(self) -> None:
        """Raise DataError if there are more weights than rows."""
        if len(self.rest) or self._next():
            raise self._wrong_count(f" for {self.count - len(self.rest):,} rows")

    def _next(self) -> bool:
        """Go on to the next piece with weights; return whether there is one."""
        self.rest = next(self.parts, np.empty(0))
        self.count += len(self.rest)
        return len(self.rest) > 0

    def _read(self) -> Generator[np.ndarray, None, None]:
        """Yield the weights of each piece of the file that has some."""
        line = 1
        with files.open_input(self.path) as stream:
            texts = pieces(stream, self.path, lambda: PIECE_SIZE, PIECE_SIZE, _check)
            try:
                for text in texts:
                    block, lines, fault = parse_piece(text, ParseOptions(labels="number"))
                    others = block.nonzeros or block.queries or block.weights is not None
                    if fault or others or not in_range(block.y).all():
                        raise self._first_error(text, line)
                    if len(block):
                        self.text, self.line = text, line
                        yield block.y
                    line += lines
            except LineTooLongError as error:
                raise DataError(files.display_name(self.path), line, 1, str(error)) from None

    def _wrong_count(self, rows: str) -> DataError:
        """Return the error for the first weight without a row, or for the one after the last."""
        lines = [0, *(number for number, _ in _lines(self.text, self.line))]
        line = lines[-len(self.rest)] if len(self.rest) else lines[-1] + 1
        count = self.count + sum(map(len, self.parts))
        problem = f"expected one weight for each row of {self.data}, found {count:,} weights{rows}"
        return DataError(files.display_name(self.path), line, 1, problem)

    def _first_error(self, text: np.ndarray, first: int) -> DataError:
        """Return the error for the first line of a piece that is not a weight."""
        name = files.display_name(self.path)
        for number, line in _lines(text, first):
            word = files.decoded(line.strip())
            if not NUMBER.fullmatch(word) or not in_range(np.array(float(word))):
                problem = f"expected a weight from 0 to 3.4e38, found {quoted(word)}"
                return DataError(name, number, len(line) - len(line.lstrip()) + 1, problem)
        return DataError(name, first, 1, "expected text, found a NUL byte")


def _lines(text: np.ndarray, first: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each line that is not blank, and the line without its comment.

    text: a piece of a file, see `pieces`. first: its first line.
    """
    for number, line in enumerate(text.tobytes().split(b"\n"), first):
        word = line.partition(b"#")[0].rstrip()
        if word:
            yield number, word


def _check(event: object) -> None:
    """Check for signals; the progress is that of the data."""
    emit(Waiting())
