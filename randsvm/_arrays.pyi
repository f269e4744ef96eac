from typing import Any

import numpy as np
from numpy.typing import NDArray

def copy_rows(
    starts: NDArray[Any],
    columns: NDArray[np.int32],
    values: NDArray[np.floating[Any]],
    rows: NDArray[np.int64],
    ends: NDArray[Any],
    out_columns: NDArray[np.int32],
    out_values: NDArray[np.floating[Any]],
) -> None: ...
def fill_dense(
    starts: NDArray[Any],
    columns: NDArray[np.int32],
    values: NDArray[np.floating[Any]],
    out: NDArray[np.floating[Any]],
) -> None: ...
def add_row_products(
    starts: NDArray[Any],
    columns: NDArray[np.int32],
    values: NDArray[Any],
    W: NDArray[np.floating[Any]],
    out: NDArray[np.floating[Any]],
) -> None: ...
def add_column_products(
    starts: NDArray[Any],
    columns: NDArray[np.int32],
    values: NDArray[Any],
    W: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None: ...
def transpose(
    starts: NDArray[Any],
    columns: NDArray[np.int32],
    values: NDArray[np.floating[Any]],
    places: NDArray[Any],
    out_rows: NDArray[np.int32],
    out_values: NDArray[np.floating[Any]],
) -> None: ...
def subtract_centre(
    starts: NDArray[np.int32],
    features: NDArray[np.int32],
    values: NDArray[np.floating[Any]],
    of_centre: NDArray[np.int32],
    centre: NDArray[np.float64],
    new_starts: NDArray[np.int32],
    new_features: NDArray[np.int32],
    new_values: NDArray[np.floating[Any]],
) -> int: ...
