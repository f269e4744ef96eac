from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Doubles: TypeAlias = NDArray[np.float64]
_Rows: TypeAlias = NDArray[np.int32]

def breakpoints(
    y: _Doubles, u: _Doubles, weights: _Doubles | None,
    positive: float, negative: float, epsilon: float, one_sided: bool,
    left: float, right: float, at: _Doubles, jump: _Doubles,
) -> tuple[float, int, float, float]: ...  # fmt: skip
def violations(
    y: _Doubles, u: _Doubles, beta: _Doubles, weights: _Doubles | None,
    positive: float, negative: float, epsilon: float, one_sided: bool,
    b: float, tolerance: float, rising: _Rows, rise: _Doubles, falling: _Rows, fall: _Doubles,
) -> tuple[float, float, float, int, int]: ...  # fmt: skip
def residuals(
    y: _Doubles, u: _Doubles, beta: _Doubles, weights: _Doubles | None,
    positive: float, negative: float, width: float, one_sided: bool,
    b: float, error: _Doubles, computed: _Doubles, rise: _Doubles,
) -> None: ...  # fmt: skip
