"""A machine on a basis of few rows: its smoothed primal objective over all rows of D.

f~ = sum_j a_j K(z_j, .) + b for the m rows z_j of the basis. Knows nothing of how they are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from randsvm.arrays import CsrMatrix, slices, sum_in_order
from randsvm.kernels.gram import exact_gram, exact_layout
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import Layout
from randsvm.svm.running_values import RunningValues, ShardValues
from randsvm.svm.tasks import Task

# Rows whose kernel values with the basis are computed at once.
ROWS_AT_ONCE = 1024
# Hessians of shards are rounded to multiples of their largest possible sum times 2^-EXACT_BITS, so
# that their sum is exact in any grouping.
EXACT_BITS = 50


@dataclass(frozen=True)
class Basis:
    """The rows of a basis. number: distinguishes the bases of one run; X : (m, d) CSR."""

    number: int
    kernel: Kernel
    X: CsrMatrix

    @cached_property
    def layout(self) -> Layout:
        return exact_layout(self.kernel, self.X)

    @cached_property
    def gram(self) -> np.ndarray:
        """Return K(z_i, z_j), (m, m) float64."""
        return exact_gram(self.kernel, self.X)

    def __getstate__(self) -> dict[str, object]:
        return {"number": self.number, "kernel": self.kernel, "X": self.X}

    def blocks(self, values: ShardValues) -> Iterator[np.ndarray]:
        """Yield K(x_i, z_j) of the rows of a shard, (rows, m) each; kept if memory allows."""
        kept = values.basis_values
        if kept is not None and kept[0] == self.number:
            yield from kept[1]
            return
        size = 8 * len(values) * self.X.shape[0]
        if kept is not None:
            values.basis_values = None
            values.budget.reserve(-kept[2])
        keeps = values.budget.reserve(size)
        blocks: list[np.ndarray] = []
        for chunk in values.D.chunks(values.shard):
            for at in slices(len(chunk.y), ROWS_AT_ONCE):
                block = self.layout.values(chunk.X[at], self.X)
                if keeps:
                    blocks.append(block)
                yield block
        if keeps:
            values.basis_values = self.number, blocks, size


@dataclass(frozen=True)
class Losses:
    """Sums of the losses of all rows at (a, b).

    exact, smoothed: the sums of each shard; gradient: by (a, b) of each shard, (m + 1,); hessian :
    (m + 1, m + 1)
    """

    exact: list[float]
    smoothed: list[float]
    gradient: list[np.ndarray]
    hessian: np.ndarray

    def __add__(self, other: Losses) -> Losses:
        self.hessian.__iadd__(other.hessian)
        return Losses(
            self.exact + other.exact,
            self.smoothed + other.smoothed,
            self.gradient + other.gradient,
            self.hessian,
        )


def losses(
    values: ShardValues,
    task: Task,
    basis: Basis,
    a: np.ndarray,
    b: float,
    width: float,
    grid: float,
) -> Losses:
    """Return the smoothed losses of a machine on a basis in a shard, with their derivatives.

    A hinge max(0, t) becomes (t + h)^2 / 4h between -h and h. width: h; grid: see EXACT_BITS.
    """
    m, h, y = len(a), width, values.y
    exact, smoothed, start = 0.0, 0.0, 0
    gradient, hessian = np.zeros(m + 1), np.zeros((m + 1, m + 1))
    lower, upper = task.box(y, values.weights)
    tube = task.epsilon + task.tube
    for K in basis.blocks(values):
        at = slice(start, start + len(K))
        start += len(K)
        z = y[at] - (K @ a + b)
        slope, curvature = np.zeros(len(K)), np.zeros(len(K))
        # The loss is upper max(0, z - tube) + (-lower) max(0, -z - tube).
        for bound, sign in ((upper[at], 1.0), (-lower[at], -1.0)):
            t = sign * z - tube
            bend = np.clip(t + h, 0.0, 2 * h)
            exact += float(bound @ np.maximum(t, 0.0))
            smoothed += float(bound @ (bend**2 / (4 * h) + np.maximum(t - h, 0.0)))
            slope -= sign * bound * bend / (2 * h)
            curvature += bound * ((bend > 0) & (bend < 2 * h)) / (2 * h)
        gradient[:m] += slope @ K
        gradient[m] += slope.sum()
        bent = np.flatnonzero(curvature)
        active, weights = K[bent], curvature[bent]
        weighted = active * weights[:, None]
        hessian[:m, :m] += active.T @ weighted
        hessian[:m, m] += weighted.sum(axis=0)
        hessian[m, m] += weights.sum()
    hessian[m, :m] = hessian[:m, m]
    return Losses([exact], [smoothed], [gradient], np.round(hessian / grid) * grid)


@dataclass(frozen=True)
class SmoothedObjective:
    """P of a machine on a basis, and its smoothed form with derivatives by (a, b).

    exact: P with the losses themselves; value, gradient (m + 1,), hessian (m + 1, m + 1): of the
    smoothed losses and the term t b of svm/tasks.py, without the term |w|^2 / 2.
    """

    exact: float
    value: float
    gradient: np.ndarray
    hessian: np.ndarray


def objective(
    values: RunningValues, basis: Basis, a: np.ndarray, b: float, h: float
) -> SmoothedObjective:
    """Return P, and the smoothed losses, of a machine on a basis. h : width of the smoothing."""
    task, norm = values.task, float(a @ basis.gram @ a)
    largest = max(float(np.abs(basis.gram.diagonal()).max(initial=0.0)), 1.0)
    bound = values.total_weight * max(task.bounds) * largest**2 / h
    grid = 2.0 ** (np.ceil(np.log2(bound)) - EXACT_BITS)
    query = partial(losses, task=task, basis=basis, a=a, b=b, width=h, grid=grid)
    found = values.ask(query, "reducing")
    gradient = np.array([sum_in_order(list(each)) for each in zip(*found.gradient, strict=True)])
    gradient[-1] += task.coefficient_sum
    return SmoothedObjective(
        norm / 2 + sum_in_order(found.exact) + task.coefficient_sum * b,
        sum_in_order(found.smoothed) + task.coefficient_sum * b,
        gradient,
        found.hessian,
    )
