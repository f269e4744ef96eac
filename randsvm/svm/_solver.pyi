from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Singles: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int32]

# Address of a print function for LIBSVM that reads the number of iterations.
READ_ITERATIONS: int

def iterations() -> int: ...
def lay_out(K: Singles, index: Rows, values: Doubles) -> None: ...
def lay_out_moves(
    K: Singles, rows: Rows, factor: Doubles, group: Doubles, shift: Doubles, values: Doubles
) -> None: ...
def product(K: Singles, beta: Doubles, out: Doubles) -> None: ...
