"""A machine on a basis of few rows: its smoothed losses over all rows of D.

f~ = sum_j a_j K(z_j, .) + b for the m rows z_j of the basis. Knows nothing of how they are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce

import numpy as np

from randsvm.arrays import CsrMatrix, slices, squared_norms
from randsvm.kernels.gram import exact_layout
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

    def __getstate__(self) -> dict[str, object]:
        return {"number": self.number, "kernel": self.kernel, "X": self.X}

    def blocks(self, values: ShardValues) -> Iterator[np.ndarray]:
        """Yield K(x_i, z_j) of the rows of a shard, and 1 in a last column, (rows, m + 1) each.

        They are kept if memory allows.
        """
        kept = values.basis_values
        if kept is not None and kept[0] == self.number:
            yield from kept[1]
            return
        size = 8 * len(values) * (self.X.shape[0] + 1)
        if kept is not None:
            values.basis_values = None
            values.budget.reserve(-kept[2])
        keeps = values.budget.reserve(size)
        blocks: list[np.ndarray] = []
        try:
            for chunk in values.D.chunks(values.shard):
                for at in slices(len(chunk.y), ROWS_AT_ONCE):
                    K = self.layout.values(chunk.X[at], self.X)
                    block = np.column_stack([K, np.ones(len(K))])
                    if keeps:
                        blocks.append(block)
                    yield block
        except BaseException:
            # A pass that ends early, as by a time limit, keeps nothing.
            if keeps:
                values.budget.reserve(-size)
            raise
        if keeps:
            values.basis_values = self.number, blocks, size


@dataclass(frozen=True)
class Losses:
    """Sums of the losses of the rows of shards. The reports of shards add up.

    sums: for each shard (m + 3,), the gradient by (a, b), the sum of the losses, and that of the
    smoothed losses; hessian : (m + 1, m + 1) of the smoothed losses
    """

    sums: list[np.ndarray]
    hessian: np.ndarray

    def __add__(self, other: Losses) -> Losses:
        self.hessian.__iadd__(other.hessian)
        return Losses(self.sums + other.sums, self.hessian)


def losses(
    values: ShardValues, task: Task, basis: Basis, ab: np.ndarray, width: float, grid: float
) -> Losses:
    """Return the losses of a machine on a basis in a shard, and their derivatives.

    A hinge max(0, t) becomes (t + h)^2 / 4h between -h and h. ab : (m + 1,), a and b; width: h;
    grid: see EXACT_BITS.
    """
    size, h, y, start = len(ab), width, values.y, 0
    sums, hessian = np.zeros(size + 2), np.zeros((size, size))
    lower, upper = task.box(y, values.weights)
    tube = task.epsilon + task.tube
    for K in basis.blocks(values):
        at = slice(start, start + len(K))
        start += len(K)
        z = y[at] - K @ ab
        slope, curvature = np.zeros((2, len(K)))
        # The loss is upper max(0, z - tube) + (-lower) max(0, -z - tube).
        for bound, sign in ((upper[at], 1.0), (-lower[at], -1.0)):
            t = sign * z - tube
            bend = np.clip(t + h, 0.0, 2 * h)
            sums[-2] += bound @ np.maximum(t, 0.0)
            sums[-1] += bound @ (bend**2 / (4 * h) + np.maximum(t - h, 0.0))
            slope -= sign * bound * bend / (2 * h)
            curvature += bound * ((bend > 0) & (bend < 2 * h)) / (2 * h)
        sums[:-2] += slope @ K
        bent = np.flatnonzero(curvature)
        hessian += K[bent].T @ (curvature[bent, None] * K[bent])
    return Losses([sums], np.round(hessian / grid) * grid)


def objective(
    values: RunningValues, basis: Basis, ab: np.ndarray, h: float
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Return P less |w|^2 / 2 of a machine on a basis, its smoothed form, and that one's gradient,
    (m + 1,), and hessian, (m + 1, m + 1), by (a, b). h : width of the smoothing."""
    task = values.task
    diagonal = basis.kernel.diagonal(squared_norms(basis.X))
    largest = max(float(np.abs(diagonal).max(initial=0.0)), 1.0)
    bound = values.total_weight * max(task.bounds) * largest**2 / h
    grid = 2.0 ** (np.ceil(np.log2(bound)) - EXACT_BITS)
    query = partial(losses, task=task, basis=basis, ab=ab, width=h, grid=grid)
    found = values.ask(query, "reducing")
    total: np.ndarray = reduce(np.add, found.sums)
    # The term t b of svm/tasks.py.
    total[-3] += task.coefficient_sum
    exact, smoothed = (total[-2:] + task.coefficient_sum * ab[-1]).tolist()
    return exact, smoothed, total[:-2], found.hessian
