"""A start from another model, e.g. yesterday's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from randsvm.data.dataset import CLASS_ROWS, Dataset, Shard
from randsvm.data.sampling import Draws, Smallest
from randsvm.errors import ModelError
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.kernel import Kernel
from randsvm.models.kernel_model import KernelModel
from randsvm.models.load import load
from randsvm.parameters.problem import Problem
from randsvm.svm.scan import RowCounter, Start, Starter
from randsvm.svm.solution import SV, Bound
from randsvm.svm.tasks import task_of
from randsvm.svm.working_set import WorkingSet


@dataclass(frozen=True)
class WarmStart:
    """A start from another model's f on the rows to train on.

    Rows on the margin or inside (y f <= 1) are its support rows and violators. With a bound set,
    the r of them closest to the margin are the working set and the others are frozen at
    alpha = C, as many of either sign; without one, the working set is a random sample of them.
    """

    model: KernelModel

    @staticmethod
    def read(path: str) -> WarmStart:
        model = load(path)
        if not isinstance(model, KernelModel):
            raise ModelError(f"{path}: expected a kernel model to start from, found a linear one")
        return WarmStart(model)

    def on(self, D: Dataset) -> Starter:
        """The start on D. Raises ModelError when the model has other labels."""
        column, sign = _orientation(D, self.model)

        def start(D: Dataset, W: WorkingSet, problem: Problem, rng: Draws) -> Start:
            inside = _inside_the_margin(D, self.model, column, sign, problem)
            draw = rng.next()
            extra = np.empty(0, np.int64)
            if problem.task == "svc":
                extra = D.sample_of_each_class(draw, CLASS_ROWS)
            if not W.freeze:
                rows = inside.rows
                chosen = Smallest.of(W.r, rows, draw.keys(0, D.n)[rows]).rows
                # One-class cannot do with fewer rows than nu n.
                fill = D.sample(draw, W.r) if problem.total and len(chosen) < W.r else extra
                return D.points(np.union1d(chosen, fill)), None
            near, N = _split_start(inside, W, problem)
            working = D.points(np.union1d(near, np.setdiff1d(extra, N)))
            frozen = D.points(N)
            beta = problem.bounds[0] * inside.side[np.searchsorted(inside.rows, N)]
            u = Expansion.of(Kernel.of(problem), frozen.X, beta).values(working.X)
            b = sign * float(self.model.b[column])
            nothing = SV(working.first(0), np.empty(0), b, problem)
            return replace(working, u=u), Bound(frozen, beta, nothing)

        return start


@dataclass(frozen=True)
class _Inside:
    """Rows on the margin or inside, ascending; how far, and the sign of beta that they ask for."""

    rows: np.ndarray
    distance: np.ndarray
    side: np.ndarray


def _split_start(inside: _Inside, W: WorkingSet, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the working set, the closest to the margin, and a balanced bound set of others."""
    rows, distance, side = inside.rows, inside.distance, inside.side
    on_margin = int((distance <= 2 * problem.tolerance).sum())
    order = np.argsort(distance, kind="stable")
    beyond = order[max(W.r, int(W.growth * on_margin)) :]
    half = min(int((side[beyond] > 0).sum()), int((side[beyond] < 0).sum()))
    frozen = [beyond[side[beyond] * sign > 0][::-1][:half] for sign in (1, -1)]
    N = np.sort(rows[np.concatenate(frozen)])
    return np.setdiff1d(rows, N), N


def _orientation(D: Dataset, model: KernelModel) -> tuple[int, float]:
    """The model's column that is about D's positive class, and the sign of that class there."""
    if D.targets is None or np.ptp(D.targets) == 0:  # regression, one-class
        return 0, 1.0
    first = str(D.summary.values[int(np.argmax(D.targets))])
    values = list(map(str, model.values))
    if sorted(map(str, D.summary.values)) != sorted(values):
        raise ModelError(
            f"the model to start from has the labels {list(model.values)}, the data "
            f"{list(D.summary.values)}"
        )
    index = values.index(first)
    return (index, 1.0) if len(values) > 2 else (0, 1.0 - 2 * index)


def _inside_the_margin(
    D: Dataset, model: KernelModel, column: int, sign: float, problem: Problem
) -> _Inside:
    """The rows that are not beyond the margin by more than the tolerance under `model`."""
    task = task_of(problem)

    def of(shard: Shard) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        found = []
        # The model does its own scaling.
        for chunk in D.original.chunks(shard):
            X = sparse.csr_matrix(chunk.X)
            f = model.decision(model.rows(X.indptr, D.summary.features[X.indices], X.data))
            f = sign * f.reshape(len(f), -1)[:, column]
            violation = task.violation(chunk.y, f, 0)
            inside = np.flatnonzero(violation >= -problem.tolerance)
            side = task.side(chunk.y, f)[inside]
            found.append((inside + chunk.start, np.abs(violation[inside]), side))
        return found

    counter, parts = RowCounter(D.n), []
    for shard, report in zip(D.shards, D.map(of), strict=True):
        counter.add(shard.stop - shard.start)
        counter.tell()
        parts += report
    rows, distance, side = (np.concatenate([p[i] for p in parts]) for i in range(3))
    return _Inside(rows, distance, side)
