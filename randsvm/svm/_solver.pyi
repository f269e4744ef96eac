import numpy as np
from numpy.typing import NDArray

# Address of a print function for LIBSVM that reads the number of iterations.
READ_ITERATIONS: int

def iterations() -> int: ...
def lay_out(
    K: NDArray[np.float32], index: NDArray[np.int32], values: NDArray[np.float64]
) -> None: ...
def lay_out_moves(
    K: NDArray[np.float32],
    rows: NDArray[np.int32],
    factor: NDArray[np.float64],
    group: NDArray[np.float64],
    shift: NDArray[np.float64],
    values: NDArray[np.float64],
) -> None: ...
def product(
    K: NDArray[np.float32], beta: NDArray[np.float64], out: NDArray[np.float64]
) -> None: ...
