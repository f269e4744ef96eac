from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int32]

def breakpoints(
    y: Doubles, u: Doubles, weights: Doubles | None,
    positive: float, negative: float, epsilon: float, one_sided: bool,
    left: float, right: float, at: Doubles, jump: Doubles,
) -> tuple[float, int, float, float]: ...  # fmt: skip
def violations(
    y: Doubles, u: Doubles, beta: Doubles, weights: Doubles | None,
    positive: float, negative: float, epsilon: float, one_sided: bool,
    b: float, tolerance: float, rising: Rows, rise: Doubles, falling: Rows, fall: Doubles,
) -> tuple[float, float, float, int, int]: ...  # fmt: skip
def residuals(
    y: Doubles, u: Doubles, beta: Doubles, weights: Doubles | None,
    positive: float, negative: float, width: float, one_sided: bool,
    b: float, error: Doubles, computed: Doubles, rise: Doubles,
) -> None: ...  # fmt: skip
