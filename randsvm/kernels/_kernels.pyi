from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Reals: TypeAlias = NDArray[np.floating[Any]]
_Doubles: TypeAlias = NDArray[np.float64]
_Integers: TypeAlias = NDArray[np.int32]
_Places: TypeAlias = NDArray[np.uint16]

PANEL_CENTRES: int
PANEL_COLUMNS: int
DENSE_PANELS: int
SPARSE_PANELS: int
CELL_ROWS: int

def sparse_arguments(
    x_starts: _Integers, x_columns: _Integers, x_values: _Reals,
    z_starts: _Integers, z_rows: _Integers, z_values: _Reals,
    left: _Reals, right: _Reals, block: _Reals,
) -> None: ...  # fmt: skip
def lay_out_panels(
    starts: _Integers, features: _Integers, values: _Reals, right: _Reals, panels: _Reals
) -> None: ...
def dense_rbf(
    x: _Reals, panels: _Reals, rate: float, K: _Reals | None = None,
    beta: _Reals | None = None, u: _Doubles | None = None, widest: int = 512,
) -> None: ...  # fmt: skip
def sparse_rbf(
    starts: _Integers, features: _Integers, x: _Reals, left: _Reals, panels: _Reals,
    K: _Reals | None = None, beta: _Reals | None = None, u: _Doubles | None = None,
    widest: int = 512,
) -> None: ...  # fmt: skip
def exp2(K: _Reals, widest: int = 512) -> None: ...
def mirror(K: _Reals, begin: int, end: int) -> None: ...
def sort_into_cells(x: _Reals, w: int, places: _Places) -> None: ...
def add_sums_of_cells(
    panels: _Reals, places: _Places, z: _Reals, columns: _Reals, beta: _Reals,
    limit: float, rate: float, u: _Doubles, widest: int = 512,
) -> int: ...  # fmt: skip
def squared_distances(
    x_starts: _Integers, x_columns: _Integers, x_values: _Reals,
    z_starts: _Integers, z_columns: _Integers, z_values: _Reals, block: _Doubles,
) -> None: ...  # fmt: skip
