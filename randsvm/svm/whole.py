"""Problems whose rows are all in one working set: LIBSVM solves all of them at once.

A `KernelMatrix` holds the kernel values of few rows, which all problems on some of them share: the
pairs of classes, the folds of a search, and all values of C.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

from randsvm.arrays import FLOAT32_UNIT, squared_norms
from randsvm.data.dataset import Dataset
from randsvm.data.points import Points
from randsvm.kernels.expansion import centred_if_far, exact_layout, gram
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import RowSizes, choose_layout
from randsvm.parameters.svm import Problem
from randsvm.svm.kernel_layout import (
    MAX_MATRIX_ROWS,
    kernel_centres,
    kernel_values,
    sizes_of_rows,
)
from randsvm.svm.libsvm import PrecomputedNodes, TrainedSvm, c_svc, check_values, epsilon_svr
from randsvm.svm.subproblem_qp import KernelValues, submatrix

# The largest rounding error of u, in tolerances, that is allowed if all coefficients are at their
# bounds. RBF kernels need no such limit: their rounding was measured to be harmless.
MAX_ROUNDING = 10.0


class KernelMatrix:
    """Kernel values of every pair of the rows of D, (n, n) float32.

    The rows are ordered by class, so that the rows of a class are adjacent.

    place : (n,) int64, the position of each row in that order
    X : the rows in that order
    exact_layout: the layout for sums in float64
    """

    _nodes: PrecomputedNodes | None = None

    def __init__(self, D: Dataset, problem: Problem, float64: bool = False) -> None:
        points, self.kernel = kernel_centres(D, np.arange(D.n)), Kernel.of(problem)
        check_values(points, problem)
        is_svc, self.place = problem.prediction_type == "svc", np.empty(D.n, np.int64)
        order = np.argsort(points.y, kind="stable") if is_svc else np.arange(D.n)
        self.place[order] = np.arange(D.n)
        self.X = points.X[order] if is_svc else points.X
        self.exact_layout = exact_layout(self.kernel, self.X)
        if self.kernel.name == "precomputed":
            exact = kernel_values(D, points)[np.ix_(order, order)]
            sizes = RowSizes(float(np.abs(exact).max(initial=0.0)), D.d)
            self.K = exact.astype(np.float32)
        else:
            dtype = np.float64 if float64 else np.float32
            layout = choose_layout(
                self.kernel,
                (D.n, D.d, D.nnz),
                dtype,
                sample=self.X,
                sizes=lambda layout: layout.sizes_of(self.X),
            )
            sizes, self.K = sizes_of_rows(D, self.exact_layout, self.X), gram(layout, self.X)
        self.exact_layout.sizes = sizes
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """The bytes of its values, and of those that LIBSVM reads."""
        return 3 * self.K.nbytes

    @property
    def nodes(self) -> PrecomputedNodes:
        """The values as LIBSVM reads them."""
        # The lock of a cached_property is one for all matrices in Python 3.11 and older.
        with self._lock:
            if self._nodes is None:
                self._nodes = PrecomputedNodes.of(self.K, np.arange(len(self.K)))
            return self._nodes

    # LIBSVM solves these problems to a tolerance, for all pairs of classes at once.

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
        found = c_svc(self.nodes, places, classes, bounds, tolerance)
        return found._replace(support=places[found.support])

    def regress(
        self, rows: np.ndarray, y: np.ndarray, C: float, epsilon: float, tolerance: float
    ) -> TrainedSvm:
        """Return the epsilon-SVR of some rows. rows : (m,) numbers of rows of D; y : (m,)."""
        places = self.place[rows]
        found = epsilon_svr(self.nodes, places, y, C, epsilon, tolerance)
        return found._replace(support=places[found.support])

    def sums(self, machine: TrainedSvm, rows: np.ndarray) -> np.ndarray:
        """Return the sums of kernel values of some rows with the support vectors of each class.

        rows : (m,) numbers of rows of D. The result is (classes, m, columns) float64; it has one
        column for each other class, and one class for a regression.
        """
        found = []
        for first, last in itertools.pairwise(machine.starts):
            K = self.K[np.ix_(self.place[rows], machine.support[first:last])]
            found.append(K.astype(np.float64) @ machine.coefficients[:, first:last].T)
        return np.array(found)


class MatrixPart(NamedTuple):
    """Some rows of a KernelMatrix. at : (n,) integers, their places in it."""

    matrix: KernelMatrix
    at: np.ndarray

    def points(self, y: np.ndarray, weights: np.ndarray | None) -> Points:
        """Return the rows with their labels."""
        return Points(np.arange(len(y)), self.matrix.X[self.at], y, weights=weights)

    def gram(self, points: Points, centred: bool) -> np.ndarray:
        """Return K of every pair of some of the rows, (m, m) float32; centred: see `gram`."""
        K = submatrix(self.matrix.K, self.at[points.rows])
        return centred_if_far(self.matrix.kernel, points.X, K) if centred else K

    def shared_gram(self, points: Points) -> KernelValues | None:
        """Return the whole matrix as values of some of the rows; None: they have to be centred."""
        if self.matrix.kernel.name in ("linear", "poly"):
            return None
        return KernelValues(self.matrix.K, self.at[points.rows], self.matrix.nodes)


def shares_kernel(D: Dataset, problem: Problem) -> bool:
    """Return whether LIBSVM may solve parts of D from shared kernel values, without a certificate.

    D must have few rows. Values of a linear or polynomial kernel must not be so large that float32
    rounds their sums by more than MAX_ROUNDING allows.
    """
    if D.n > MAX_MATRIX_ROWS or problem.kernel == "precomputed":
        return False
    if problem.kernel in ("rbf", "sigmoid"):
        return True
    norms = squared_norms(kernel_centres(D, np.arange(D.n)).X)
    value = Kernel.of(problem).magnitude(float(norms.max(initial=0.0)))
    return value * max(problem.bounds) * D.n**0.5 * FLOAT32_UNIT <= MAX_ROUNDING * problem.tolerance
