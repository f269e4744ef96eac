from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

# UTF-8 in any buffer.
_Text: TypeAlias = bytes | NDArray[np.uint8]

PADDING: bytes

# What was expected in place of a bad token. NUL: text; a NUL byte was found.
LABEL: int
QUERY: int
FEATURE: int
NUL: int
COST: int
NUMBER: int

MARKED: int
MAX_INDEX: int

@disjoint_base
class Rows:
    @property
    def rows(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def lines(self) -> int: ...
    @property
    def beyond(self) -> bool: ...
    @property
    def few_digits(self) -> bool: ...
    @property
    def number(self) -> int: ...
    @property
    def number_line(self) -> int: ...
    @property
    def number_column(self) -> int: ...
    def parse(
        self,
        text: _Text,
        most: float,
        zero_based: bool,
        unlabelled: bool,
        numbered: bool,
        codes: NDArray[np.int32],
        y: NDArray[np.float64],
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        values: NDArray[np.float64],
        groups: NDArray[np.int64] | None = None,
    ) -> None: ...
    def weights(self) -> NDArray[np.float64] | None: ...
    def features(self) -> NDArray[np.int32]: ...
    def spellings(self) -> list[tuple[bytes, int, int]]: ...
    def bad_token(self) -> tuple[int, bytes, int, int, int] | None: ...

@disjoint_base
class Lines:
    def __init__(
        self,
        labels: bytes,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        values: NDArray[np.floating[Any]],
    ) -> None: ...
    def fill(self, into: NDArray[np.uint8]) -> int: ...

def first_numbers(text: bytes, numbers: NDArray[np.float64], rest: bytearray) -> int: ...
def end_of_lines(text: _Text, size: int) -> int: ...
def end_of_records(text: _Text, size: int, delimiter: int) -> int: ...
def count(text: _Text) -> tuple[int, int]: ...
def round_decimals(values: NDArray[np.float64]) -> NDArray[np.float32] | None: ...
def decimals(values: NDArray[np.float32]) -> NDArray[np.float64]: ...
