from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Reals: TypeAlias = NDArray[np.floating[Any]]
Singles: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int32]
Places: TypeAlias = NDArray[np.uint16]

PANEL_CENTRES: int
PANEL_COLUMNS: int
DENSE_PANELS: int
SPARSE_PANELS: int
CELL_ROWS: int

def sparse_arguments(
    x_starts: Integers, x_columns: Integers, x_values: Reals,
    z_starts: Integers, z_rows: Integers, z_values: Reals,
    left: Reals, right: Reals, block: Reals,
) -> None: ...  # fmt: skip
def dense_rbf(
    x: Reals, panels: Reals, gamma: float, K: Reals | None = None,
    beta: Reals | None = None, u: Doubles | None = None, widest: int = 512,
) -> None: ...  # fmt: skip
def sparse_rbf(
    starts: Integers, features: Integers, x: Reals, left: Reals, panels: Reals,
    K: Reals | None = None, beta: Reals | None = None, u: Doubles | None = None, widest: int = 512,
) -> None: ...  # fmt: skip
def mirror(K: Reals, begin: int, end: int) -> None: ...
def sort_into_cells(x: Singles, w: int, places: Places) -> None: ...
def add_sums_of_cells(
    panels: Singles, places: Places, z: Singles, columns: Singles, beta: Singles,
    limit: float, u: Doubles, widest: int = 512,
) -> int: ...  # fmt: skip
def squared_distances(
    x_starts: Integers, x_columns: Integers, x_values: Reals,
    z_starts: Integers, z_columns: Integers, z_values: Reals, block: Doubles,
) -> None: ...  # fmt: skip
