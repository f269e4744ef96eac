from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Reals: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

def add_sums(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: _Reals,
    w: NDArray[np.float64],
    b: float,
    y: NDArray[np.float64],
    C: NDArray[np.float64],
    most: NDArray[np.float64],
    beta0: NDArray[np.float64],
    is_regression: bool,
    is_squared: bool,
    is_log: bool,
    epsilon: float,
    width: float,
    given: bool,
    beta: NDArray[np.float64],
    second: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None: ...
def add_curvature(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: _Reals,
    second: NDArray[np.float64],
    H: NDArray[np.float64],
) -> None: ...
def add_products(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: _Reals,
    p: NDArray[np.float64],
    second: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None: ...
def descend(
    starts: NDArray[np.int64],
    rows: NDArray[np.int32],
    values: _Reals,
    second: NDArray[np.float64],
    gradient: NDArray[np.float64],
    u: NDArray[np.float64],
    total: float,
    curvature: NDArray[np.float64],
    order: NDArray[np.int32],
    moved: NDArray[np.float64],
    step: NDArray[np.float64],
) -> tuple[int, float]: ...
def descend_few(
    H: NDArray[np.float64],
    G: NDArray[np.float64],
    w: NDArray[np.float64],
    passes: int,
    enough: float,
) -> float: ...
