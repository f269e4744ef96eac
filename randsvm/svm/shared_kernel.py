"""Kernel values of few rows, which all trainings on some of them share.

LIBSVM solves each training at once, to the tolerance of the problem. Nothing is scanned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from randsvm.arrays import squared_norms
from randsvm.data.dataset import Dataset
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import FLOAT32_UNIT
from randsvm.parameters.svm import Problem
from randsvm.svm.kernel_layout import gram_of, kernel_centres, kernel_layouts_of
from randsvm.svm.libsvm import (
    PrecomputedNodes,
    TrainedSvm,
    c_svc,
    check_values,
    epsilon_svr,
)
from randsvm.svm.running_values import FLOAT64_ROWS

# The largest rounding error of u, in tolerances, that is allowed if all coefficients are at their
# bounds. RBF kernels need no such limit: their rounding was measured to be harmless.
MAX_ROUNDING = 10.0


@dataclass(frozen=True)
class SharedKernel:
    """Kernel values of every pair of rows of D.

    The rows are ordered by class, so that the rows of a class are adjacent.

    place : (n,) int64, the position of each row in that order
    K : (n, n) float32, in that order; layout: the same values as LIBSVM reads them
    """

    place: np.ndarray
    K: np.ndarray
    layout: PrecomputedNodes

    @staticmethod
    def of(D: Dataset, problem: Problem) -> SharedKernel:
        """Return the values of the kernel of a problem."""
        y = D.labels()
        order = np.argsort(y, kind="stable") if problem.prediction_type == "svc" else np.arange(D.n)
        points = kernel_centres(D, np.arange(D.n))
        check_values(points, problem)
        _, layout = kernel_layouts_of(D, problem, points, float64=False, all_rows=True)
        K = gram_of(D, layout, points, centred=False)
        place = np.empty(D.n, np.int64)
        place[order] = np.arange(D.n)
        K = np.ascontiguousarray(K[np.ix_(order, order)])
        return SharedKernel(place, K, PrecomputedNodes.of(K, np.arange(D.n)))

    def classify(
        self,
        rows: np.ndarray,
        classes: np.ndarray,
        C: float,
        weights: Sequence[float],
        tolerance: float,
    ) -> TrainedSvm:
        """Return the C-SVM of some rows, for each pair of their classes.

        rows : (m,) numbers of rows of D; classes : (m,) int64 numbers; weights: of each class
        """
        order = np.argsort(self.place[rows])
        places, classes = self.place[rows[order]], classes[order]
        # LIBSVM prints a warning about each bound of a class without rows.
        bounds = {k: C * weights[k] for k in np.unique(classes).tolist()}
        found = c_svc(self.layout, places, classes, bounds, tolerance)
        return found._replace(support=places[found.support])

    def regress(
        self, rows: np.ndarray, y: np.ndarray, C: float, epsilon: float, tolerance: float
    ) -> TrainedSvm:
        """Return the epsilon-SVR of some rows. rows : (m,) numbers of rows of D; y : (m,)."""
        found = epsilon_svr(self.layout, self.place[rows], y, C, epsilon, tolerance)
        return found._replace(support=self.place[rows][found.support])

    @property
    def nbytes(self) -> int:
        return self.K.nbytes + self.layout.buffer.nbytes

    def sums(self, machine: TrainedSvm, rows: np.ndarray) -> np.ndarray:
        """Return the sums of kernel values of some rows with the support vectors of each class.

        rows : (m,) numbers of rows of D. The result is (classes, m, columns) float64; it has one
        column for each other class, and one class for a regression.
        """
        found = []
        for first, last in zip(machine.starts[:-1], machine.starts[1:], strict=True):
            K = self.K[np.ix_(self.place[rows], machine.support[first:last])]
            found.append(K.astype(np.float64) @ machine.coefficients[:, first:last].T)
        return np.array(found)


def shares_kernel(D: Dataset, problem: Problem) -> bool:
    """Return whether LIBSVM may solve parts of D from shared kernel values.

    D must have few rows: the values of FLOAT64_ROWS rows take 108 MB. Values of a linear or
    polynomial kernel must not be so large that float32 rounds their sums by more than MAX_ROUNDING
    allows.
    """
    if D.n > FLOAT64_ROWS or problem.kernel == "precomputed":
        return False
    if problem.kernel in ("rbf", "sigmoid"):
        return True
    norms = squared_norms(kernel_centres(D, np.arange(D.n)).X)
    value = Kernel.of(problem).magnitude(float(norms.max(initial=0.0)))
    return value * max(problem.bounds) * D.n**0.5 * FLOAT32_UNIT <= MAX_ROUNDING * problem.tolerance
