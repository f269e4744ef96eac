from typing import Any

import numpy as np
from numpy.typing import NDArray

PANEL_CENTRES: int
PANEL_COLUMNS: int
DENSE_PANELS: int
SPARSE_PANELS: int
CELL_ROWS: int

def sparse_arguments(
    x_starts: NDArray[np.int32],
    x_columns: NDArray[np.int32],
    x_values: NDArray[np.floating[Any]],
    z_starts: NDArray[np.int32],
    z_rows: NDArray[np.int32],
    z_values: NDArray[np.floating[Any]],
    left: NDArray[np.floating[Any]],
    right: NDArray[np.floating[Any]],
    block: NDArray[np.floating[Any]],
) -> None: ...
def dense_rbf(
    x: NDArray[np.floating[Any]],
    panels: NDArray[np.floating[Any]],
    gamma: float,
    K: NDArray[np.floating[Any]] | None = None,
    beta: NDArray[np.floating[Any]] | None = None,
    u: NDArray[np.float64] | None = None,
    widest: int = 512,
) -> None: ...
def sparse_rbf(
    starts: NDArray[np.int32],
    features: NDArray[np.int32],
    x: NDArray[np.floating[Any]],
    left: NDArray[np.floating[Any]],
    panels: NDArray[np.floating[Any]],
    K: NDArray[np.floating[Any]] | None = None,
    beta: NDArray[np.floating[Any]] | None = None,
    u: NDArray[np.float64] | None = None,
    widest: int = 512,
) -> None: ...
def mirror(K: NDArray[np.floating[Any]], begin: int, end: int) -> None: ...
def sort_into_cells(
    x: NDArray[np.float32],
    w: int,
    places: NDArray[np.uint16],
) -> None: ...
def add_sums_of_cells(
    panels: NDArray[np.float32],
    places: NDArray[np.uint16],
    z: NDArray[np.float32],
    columns: NDArray[np.float32],
    beta: NDArray[np.float32],
    limit: float,
    u: NDArray[np.float64],
    widest: int = 512,
) -> int: ...
def squared_distances(
    x_starts: NDArray[np.int32],
    x_columns: NDArray[np.int32],
    x_values: NDArray[np.floating[Any]],
    z_starts: NDArray[np.int32],
    z_columns: NDArray[np.int32],
    z_values: NDArray[np.floating[Any]],
    block: NDArray[np.float64],
) -> None: ...
