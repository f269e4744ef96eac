import numpy as np
from numpy.typing import NDArray

def breakpoints(
    y: NDArray[np.float64],
    u: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    positive: float,
    negative: float,
    epsilon: float,
    one_sided: bool,
    left: float,
    right: float,
    at: NDArray[np.float64],
    jump: NDArray[np.float64],
) -> tuple[float, int, float, float]: ...
def violations(
    y: NDArray[np.float64],
    u: NDArray[np.float64],
    beta: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    positive: float,
    negative: float,
    epsilon: float,
    one_sided: bool,
    b: float,
    tolerance: float,
    rising: NDArray[np.int32],
    rise: NDArray[np.float64],
    falling: NDArray[np.int32],
    fall: NDArray[np.float64],
) -> tuple[float, float, float, int, int]: ...
def residuals(
    y: NDArray[np.float64],
    u: NDArray[np.float64],
    beta: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    positive: float,
    negative: float,
    width: float,
    one_sided: bool,
    b: float,
    error: NDArray[np.float64],
    computed: NDArray[np.float64],
    rise: NDArray[np.float64],
) -> None: ...
