import numpy as np
from numpy.typing import NDArray

# Places in `state`.
S: int
SIGMA: int
M: int
T: int
STEPS: int
WEIGHT: int
LOSS: int
ERRORS: int

def loss(kind: int, z: float) -> float: ...
def negative_gradient(kind: int, z: float) -> float: ...
def steps(
    starts: NDArray[np.int32],
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    y: NDArray[np.float64],
    order: NDArray[np.int32],
    weights: NDArray[np.float64],
    row_weights: NDArray[np.float64],
    kind: int,
    crammer_singer_loss: bool,
    is_regression: bool,
    epsilon: float,
    origin: float,
    lambda_: float,
    eta0: float,
    bias_rate: float,
    bias_lambda: float,
    horizon: float,
    fixed_rate: float,
    v: NDArray[np.float64],
    b: NDArray[np.float64],
    A: NDArray[np.float64],
    b_sum: NDArray[np.float64],
    f: NDArray[np.float64],
    change: NDArray[np.float64],
    state: NDArray[np.float64],
) -> None: ...
