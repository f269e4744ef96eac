"""Coordinate ascent on the dual of a linear machine, for sparse rows of many columns.

Hsieh, Chang, Lin, Keerthi, Sundararajan, "A Dual Coordinate Descent Method for Large-scale Linear
SVM", ICML 2008; of regressions Ho, Lin, "Large-scale Linear Support Vector Regression", JMLR 13,
2012. Each pass visits rows in random order and moves the coefficient of a row to its optimum while
all others stay. w = sum beta x moves along. Rows that stay at a bound are left out.

A free b makes the sum of all coefficients 0, which no single coefficient can keep. So b is the
minimum of P + (b - b0)^2 / (2 s^2), which makes s a further feature of all rows. As b0 follows b,
the penalty vanishes (the proximal point algorithm).

Each visit computes the row's part of P - D: the sum over a pass estimates P - D at no cost.
"""

from __future__ import annotations

from collections.abc import Generator
from math import inf

import numpy as np

from randsvm.algorithms import _coordinates
from randsvm.arrays import CsrMatrix, column_sums, slices, squared_norms
from randsvm.events import Progress, emit

# Values in the rows that are visited between two events.
VALUES = 1 << 24
# The passes end after this many visits of each row: with a large C they would take far more.
MAX_VISITS = 100
SEED = 88172645463325252


def ascend(
    X: CsrMatrix,
    y: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    ridge: np.ndarray,
    epsilon: float,
    bias: bool,
    b: float,
    beta: np.ndarray,
) -> Generator[tuple[np.ndarray, float], bool | None, None]:
    """Yield u = (w, b), (d + 1,), and an estimate of the relative gap, after each pass.

    X : (n, d) float32; bounds : of the coefficients, (n,) each; ridge : (n,), D has the terms
    -ridge beta^2 / 2; b: the first one; beta : (n,), the first coefficients, which become the last
    ones. The next pass visits all rows if `send` gives it True.
    """
    n = X.shape[0]
    square = np.concatenate([squared_norms(X[at]) for at in slices(n, 1 << 14)])
    bias_square = float(square.mean()) * bias
    curvature = np.maximum(square + bias_square + ridge, np.finfo(float).tiny)
    starts, w, state = X.indptr.astype(np.int64), column_sums(X, beta), np.array([b, 0.0, 0.0])
    order, seed = np.arange(n, dtype=np.int32), np.full(1, SEED, np.uint64)
    size = max(1, VALUES * n // max(X.nnz, 1))
    active, inside, visits = n, inf, 0
    while visits < MAX_VISITS * n:
        _coordinates.shuffle(order, active, seed)
        visits, at, state[1:] = visits + active, 0, 0.0
        while at < active:
            stop = min(at + size, active)
            while at < stop:
                at, stop, active = _coordinates.visit(
                    starts, X.indices, X.data, y, *bounds, ridge, curvature, epsilon, bias_square,
                    inside, order, at, stop, active, beta, w, state,
                )  # fmt: skip
            emit(Progress("coordinate ascent", at, active))
        inside, missing = float(state[1]) or inf, float(state[2])
        dual = y @ beta - epsilon * np.abs(beta).sum() - ((ridge * beta) @ beta + w @ w) / 2
        if (yield np.append(w, state[0]), missing / (abs(dual) + missing or 1.0)):
            active, inside = n, inf
        # b0 becomes b.
        state[0] += bias_square * beta.sum()
