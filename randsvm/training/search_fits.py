"""Ways to make the fits of a search: alone, or with shared kernel values.

kernel_machine.py has fits that start from each other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Generic, NamedTuple

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.models import decisions
from randsvm.models.decisions import class_pairs
from randsvm.parameters.svm import Params, class_weights
from randsvm.svm.libsvm import TrainedSvm
from randsvm.svm.shared_kernel import SharedKernel, shares_kernel
from randsvm.training.cross_validation import held_out_values
from randsvm.training.job import AnyParams, Fit
from randsvm.training.multiclass import Subtasks


class HeldOutValues(NamedTuple):
    """The values of the rows that a fit holds out. f : (m, K) float64."""

    f: np.ndarray


class ColdFit(Generic[AnyParams]):
    """Fits that start from nothing. train: trains on the rows of a view; returns f."""

    starts_from_fits = False

    def __init__(self, train: Fit[AnyParams]) -> None:
        self.train = train

    def suits(self, D: Dataset, candidates: Sequence[AnyParams]) -> bool:
        """Return True."""
        return True

    def fit(
        self, D: Dataset, params: AnyParams, start: Any, training: np.ndarray, held_out: np.ndarray
    ) -> HeldOutValues:
        """Return f of the rows that a fit on other rows holds out; see SearchFit.fit."""
        held, rest = D.subset(held_out), D.subset(training)
        work = partial(held_out_values, self.train, params, rest, held, _all_values)
        return HeldOutValues(D.executor.call(work).kept)

    def close(self) -> None:
        """Do nothing."""


def _all_values(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return f


@dataclass(frozen=True)
class SharedFit:
    """The training on some rows of D with the kernel values of all rows."""

    kernel: SharedKernel
    subtasks: Subtasks

    def held_out(self, training: np.ndarray, held_out: np.ndarray) -> np.ndarray:
        """Return f of rows that are held out, (m, K) float64, as KernelTrainer's fits do.

        training, held_out : numbers of rows of D, int64
        """
        y, params = self.subtasks.D.labels(), self.subtasks.params
        if params.prediction_type == "svr":
            machine = self.kernel.regress(
                training, y[training], params.C, params.epsilon, params.tolerance
            )
            return np.asarray(self.kernel.sums(machine, held_out)[0] - machine.rho)
        names, sums = self.subtasks.names, self.subtasks.weight_sums
        classes = y[training].astype(np.int64)
        if len(names) > 2 and not self.subtasks.pairs:
            columns = []
            for k in range(len(names)):
                sides = np.where(classes == k, 0, 1)
                bounds = params.one_vs_rest_weights(k, names, sums)
                columns.append(self._pairs(training, sides, bounds, held_out))
            return np.hstack(columns)
        weights = class_weights(params.weights, names, sums)
        f = self._pairs(training, classes, weights, held_out)
        return f if len(names) == 2 else decisions.votes(f > 0, ~(f > 0), len(names))

    def _pairs(
        self,
        training: np.ndarray,
        classes: np.ndarray,
        weights: Sequence[float],
        held_out: np.ndarray,
    ) -> np.ndarray:
        """Return f of each pair of classes, (m, pairs) float64; classes : (n,) int64."""
        params, count = self.subtasks.params, len(weights)
        present = np.bincount(classes, minlength=count) > 0
        # A pair without a machine predicts its first class if that has rows, else its second.
        constant = np.where(present[class_pairs(count)[0]], 1.0, -1.0)
        f = np.tile(constant, (len(held_out), 1))
        if np.count_nonzero(present) < 2:
            return f
        machine = self.kernel.classify(training, classes, params.C, weights, params.tolerance)
        self._fill_in(f, machine, self.kernel.sums(machine, held_out), count)
        return f

    def _fill_in(self, f: np.ndarray, machine: TrainedSvm, sums: np.ndarray, count: int) -> None:
        """Set the columns of f of the pairs that the machine knows."""
        labels = machine.labels
        first, second = class_pairs(len(labels))
        for pair, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            values = sums[i][:, j - 1] + sums[j][:, i] - machine.rho[pair]
            own, other = labels[i], labels[j]
            sign = 1 if own < other else -1
            column = decisions.pair_index(min(own, other), max(own, other), count)
            f[:, column] = sign * values


class SharedKernelFit:
    """Fits on few rows, which share the kernel values of all pairs of rows.

    The values are computed once for all folds and all values of C. LIBSVM solves each fold at once.

    subtasks_of: returns the subtasks of rows with some parameters
    max_bytes: of the kernel values in memory; the values of one kernel always are
    """

    starts_from_fits = False

    def __init__(self, subtasks_of: Callable[[Dataset, Params], Subtasks], max_bytes: int) -> None:
        self.subtasks_of, self.max_bytes = subtasks_of, max_bytes
        # The kernels that were used last come last.
        self._kernels: OrderedDict[Params, SharedKernel] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """Free the kernel values."""
        self._kernels.clear()

    def suits(self, D: Dataset, candidates: Sequence[Params]) -> bool:
        """Return whether LIBSVM solves parts of D at once with shared kernel values."""
        first = candidates[0]
        if first.task not in ("svc", "svr") or first.components or D.summary.weighted:
            return False
        return all(shares_kernel(D, self.subtasks_of(D, one).problem) for one in candidates)

    def fit(
        self,
        D: Dataset,
        params: Params,
        start: Any,
        training: np.ndarray,
        held_out: np.ndarray,
    ) -> HeldOutValues:
        """Return f of the rows that a fit on other rows holds out; see SearchFit.fit."""
        subtasks = self.subtasks_of(D, params)
        fit = SharedFit(self._kernel(D, subtasks), subtasks)
        return HeldOutValues(fit.held_out(np.flatnonzero(training), np.flatnonzero(held_out)))

    def _kernel(self, D: Dataset, subtasks: Subtasks) -> SharedKernel:
        """Return the kernel values of all rows; the first caller computes them."""
        key = replace(subtasks.params, C=1.0, epsilon=0.0, weights=())
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = SharedKernel.of(D, subtasks.problem)
            self._kernels.move_to_end(key)
            while len(self._kernels) > 1 and self._size > self.max_bytes:
                self._kernels.popitem(last=False)
            return self._kernels[key]

    @property
    def _size(self) -> int:
        return sum(one.nbytes for one in self._kernels.values())
