from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Singles: TypeAlias = NDArray[np.float32]
_Doubles: TypeAlias = NDArray[np.float64]
_Rows: TypeAlias = NDArray[np.int32]

# Address of a print function for LIBSVM that reads the number of iterations.
READ_ITERATIONS: int

def begin() -> None: ...
def end() -> int: ...
def lay_out(K: _Singles, index: _Rows, values: _Doubles) -> None: ...
def lay_out_moves(
    K: _Singles, rows: _Rows, factor: _Doubles, group: _Doubles, shift: _Doubles, values: _Doubles
) -> None: ...
def product(K: _Singles, beta: _Doubles, out: _Doubles) -> None: ...
def train_pairs(
    train: int,
    destroy: int,
    parameter: int,
    parts: NDArray[np.int64],
    weights: _Doubles,
    starts: NDArray[np.uint64],
    K: _Doubles,
    at: _Rows,
    counts: _Rows,
    bounds: _Doubles,
    beta: _Doubles,
    u: _Doubles,
) -> None: ...
