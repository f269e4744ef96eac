import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self, disjoint_base

# Roles of columns.
IGNORED: int
NUMBER: int
TEXT: int
CLASS: int
TARGET: int
UNKNOWN: int
CATEGORY: int

# Kinds of faults.
WIDTH: int
NUL: int
UNCLOSED: int
AFTER_QUOTE: int
MISSING: int
NOT_A_NUMBER: int
LONE_RETURN: int

MAX_CATEGORIES: int
# Bytes that follow a text to parse.
PADDING: bytes

@disjoint_base
class Layout:
    @property
    def width(self) -> int: ...
    def __new__(
        cls,
        delimiter: int,
        roles: NDArray[np.int8],
        kept: NDArray[np.uint8],
        starts: NDArray[np.int32],
        means: NDArray[np.float64],
        fill: bool,
        categories: list[list[bytes]],
        missing: list[bytes] = [],
    ) -> Self: ...

@disjoint_base
class Records:
    @property
    def rows(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def lines(self) -> int: ...
    def __new__(cls, layout: Layout) -> Self: ...
    def parse(
        self,
        text: bytes,
        unlabelled: bool,
        codes: NDArray[np.int32],
        y: NDArray[np.float64],
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        values: NDArray[np.float64],
        spans: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None: ...
    def spellings(self) -> list[tuple[bytes, int, int]]: ...
    def column(self, i: int) -> tuple[tuple[float, ...], int, list[tuple[bytes, int, int]]]: ...
    def unseen_texts(self) -> list[int]: ...
    def bad_field(self) -> tuple[int, int, bytes, int, int] | None: ...

@disjoint_base
class RecordEnds:
    def __init__(self, delimiter: int) -> None: ...
    def last(self, text: bytes) -> int: ...

def sum_parts(values: NDArray[np.float64]) -> tuple[float, ...]: ...
def count(text: bytes, delimiter: int) -> tuple[int, int]: ...
