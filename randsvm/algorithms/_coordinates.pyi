import numpy as np
from numpy.typing import NDArray

def shuffle(order: NDArray[np.int32], active: int, seed: NDArray[np.uint64]) -> None: ...
def visit(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    y: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    ridge: NDArray[np.float64],
    curvature: NDArray[np.float64],
    epsilon: float,
    bias_square: float,
    inside: float,
    order: NDArray[np.int32],
    at: int,
    stop: int,
    active: int,
    beta: NDArray[np.float64],
    w: NDArray[np.float64],
    state: NDArray[np.float64],
) -> tuple[int, int, int]: ...
