"""Certify linear machines: P of a machine and D of coefficients, with bounds of all rounding.

docs/certificate.md has the proof; kernels/rounding.py the bounds of <w, x>.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum, inf
from typing import NamedTuple

import numpy as np

from randsvm.arrays import column_sums, squared_norms, to_csr
from randsvm.data.dataset import Chunk, Dataset
from randsvm.data.shard_executor import Shard
from randsvm.events import Progress, emit
from randsvm.kernels.rounding import (
    EXP_ERROR,
    PRESCRIBED,
    SPARE,
    WRITTEN,
    accumulated,
    addition_error,
    offset_error,
    product_error,
)
from randsvm.svm.linear_loss import Linear, LinearObjective
from randsvm.svm.solution import Certificate
from randsvm.svm.tasks import Task, change_of_dual

# |x| of a row may be this much larger: squares underflow.
VANISHED = 1e-150


class _Sums(NamedTuple):
    """Sums over some rows, and the largest numbers of any.

    lost, most: losses, and the most that they may be; gain, size: the terms of D but for |w|^2,
    and their absolute values; spread: |beta| |x|; shift: |beta| times the move of a row by its
    scaling; longest: |x|; target: |y|; rows: of a chunk; chunks: their number; products : (d,),
    beta x
    """

    lost: float
    most: float
    gain: float
    size: float
    spread: float
    shift: float
    chunks: float
    longest: float
    target: float
    rows: float
    products: np.ndarray

    @staticmethod
    def total(parts: list[_Sums]) -> _Sums:
        *numbers, products = zip(*parts, strict=True)
        return _Sums._make([*map(fsum, numbers[:7]), *map(max, numbers[7:]), sum(products)])


def certified(
    D: Dataset,
    linear: Linear,
    objective: LinearObjective,
    C: float,
    coefficients: Iterable[np.ndarray],
    bias: bool,
    outside: np.ndarray | float = 0.0,
) -> list[Certificate]:
    """Return the certificate of each decision function, with D of its coefficients of the rows.

    coefficients : (n,) each, within their bounds and with the sum 0 but for rounding. bias: whether
    b is free. outside : (K,), the penalty of the weights of features that no row has
    """
    penalties = objective.penalty(linear.w) + outside
    return [
        _certified(D, linear, objective, C, k, beta, bias, float(penalties[k]))
        for k, beta in enumerate(coefficients)
    ]


def _certified(
    D: Dataset, linear: Linear, objective: LinearObjective, C: float, k: int, beta: np.ndarray,
    bias: bool, penalty: float,
) -> Certificate:  # fmt: skip
    w, b, epsilon = linear.w[:, k], float(linear.b[k]), objective.epsilon or 0.0
    penalty_error = addition_error(len(w) + WRITTEN, penalty)
    most_norm = penalty + penalty_error
    most_norm = most_norm if objective.l1 else (2 * most_norm) ** 0.5

    def of(chunk: Chunk) -> _Sums:
        X, own = chunk.X, beta[chunk.start : chunk.start + len(chunk.y)]
        y, weights = objective.binary(chunk.y, chunk.weights, k)
        lengths, u = np.sqrt(squared_norms(X)) + VANISHED, X @ w
        longest, terms, moved = float(lengths.max()), X.shape[1], 0.0
        # Features that a `mapping` computes in float32 are taken as they are.
        if D.mapping is None:
            terms = int(np.diff(to_csr(X).indptr).max())
            if D.scaling is not None:
                moved = D.scaling.rounding(longest, terms, by_differences=False)
        error = product_error(lengths, terms, most_norm, moved)
        f, error = u + b, offset_error(error, y, u, b, epsilon)
        losses = C * weights * [objective.losses(y, each) for each in (f, f - error, f + error)]
        gain, penalty = objective.gains(y, own, C * weights)
        size = np.abs(own)
        return _Sums(
            float(losses[0].sum()),
            float(losses.max(axis=0).sum()),
            float(gain.sum() - penalty.sum()),
            float(size @ (np.abs(y) + epsilon) + np.abs(gain).sum() + penalty.sum()),
            float(size @ lengths),
            float(size.sum()) * moved,
            1,
            longest,
            float(np.abs(y).max()),
            len(y),
            column_sums(X, own),
        )

    def of_shard(shard: Shard) -> _Sums | None:
        parts = [of(chunk) for chunk in D.chunks(shard) if len(chunk.y)]
        return _Sums.total(parts) if parts else None

    parts = []
    for shard, part in zip(D.shards, D.map(of_shard, large=True), strict=True):
        emit(Progress("scanning", shard.stop, D.n))
        parts += [part] if part is not None else []
    found = _Sums.total(parts)
    additions, most = found.rows + found.chunks + PRESCRIBED, found.target + epsilon
    y, weights = objective.binary(D.labels(), D.weights(), k)
    if objective.loss == "log":
        # The gain of a coefficient near 0 or C changes faster than itself, by at most its size.
        additions += 2 * EXP_ERROR + 2 * PRESCRIBED
        with np.errstate(divide="ignore"):
            most = 1.0 + abs(float(np.log(weights[y > 0].sum() / weights[y < 0].sum())))
    primal = penalty + found.lost
    primal_error = (
        found.most - found.lost
        + penalty_error + addition_error(additions, found.most) + addition_error(1, primal)
    )  # fmt: skip
    apart = SPARE * (accumulated(additions) * found.spread + found.shift)
    most_primal = primal + primal_error
    if objective.l1:
        most_length = most_primal  # |w| <= |w|_1 <= P
        # D of a part of the coefficients is at least this part of D.
        v = float(np.abs(found.products).max(initial=0.0)) + apart
        dual, of_products = found.gain, SPARE * max(0.0, v - 1) * abs(found.gain)
    else:
        most_length = (2 * max(most_primal, 0.0)) ** 0.5
        v2 = float(found.products @ found.products)
        dual = found.gain - v2 / 2
        of_products = addition_error(len(w), v2) + SPARE * (v2**0.5 + apart) * apart
    own = np.flatnonzero(beta)
    bound = inf if objective.is_squared else C
    task = Task((bound, bound), epsilon, one_sided=not objective.is_regression)
    # An offset of least P is where the loss of some row begins; see `rounding.largest_offset`.
    offset = SPARE * (most + most_length * found.longest) if bias else 0.0
    dual_error = (
        addition_error(additions, found.size) + of_products
        + change_of_dual(task, y[own], beta[own], weights[own], offset)
    )  # fmt: skip
    return Certificate(primal, dual, primal_error=float(primal_error), dual_error=float(dual_error))
