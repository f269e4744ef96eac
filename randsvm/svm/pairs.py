"""Solve and certify pairs of small classes, many at once.

Rounds over one pair take milliseconds of Python, LIBSVM's solve of a few rows takes microseconds.
Here LIBSVM solves pair after pair in one call, from kernel values of the rows of many classes, and
the certificates follow from arrays of all pairs. A pair whose certificate misses the gap needs
rounds of its own. What an array has for a row of a pair is 0 beyond the last row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from randsvm.arrays import FLOAT64_UNIT
from randsvm.data.dataset import Dataset
from randsvm.kernels._kernels import PANEL_COLUMNS
from randsvm.kernels.expansion import exact_layout
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.rounding import (
    PRESCRIBED,
    SPARE,
    addition_error,
    distance_of_machines,
    largest_offset,
    offset_error,
    sum_error,
)
from randsvm.parameters.svm import Problem
from randsvm.svm.certificate import Bounds, ResidualSums, largest_value
from randsvm.svm.kernel_layout import kernel_centres, sizes_of_rows
from randsvm.svm.libsvm import PrecomputedNodes, c_svc_of_pairs
from randsvm.svm.offset import SLOPE_ROUNDING
from randsvm.svm.solution import Certificate


class SolvedPairs(NamedTuple):
    """The C-SVMs of some pairs of classes.

    beta, u : (pairs, m) float64; b : (pairs,) float64, of least P; norm : (pairs,), |w|^2;
    violators : (pairs,) integers, rows whose KKT condition fails by more than the tolerance;
    primal, dual, primal_error, dual_error, distance : (pairs,), see Certificate; seconds: of LIBSVM
    """

    beta: np.ndarray
    u: np.ndarray
    b: np.ndarray
    norm: np.ndarray
    violators: np.ndarray
    primal: np.ndarray
    dual: np.ndarray
    primal_error: np.ndarray
    dual_error: np.ndarray
    distance: np.ndarray
    seconds: float

    def certificates(self) -> Iterator[Certificate]:
        """Yield the certificate of each pair."""
        numbers = self.primal, self.dual, self.primal_error, self.dual_error, self.distance
        of_pairs = zip(*(of.tolist() for of in numbers), strict=True)
        for primal, dual, primal_error, dual_error, distance in of_pairs:
            yield Certificate(
                primal,
                dual,
                primal_error=primal_error,
                dual_error=dual_error,
                distance=distance,
            )


class SharedValues:
    """The rbf values of every pair of some rows of D, for all pairs of their classes.

    rows : (n,) int64, the row numbers, in the order of the places in `solve`
    """

    def __init__(self, D: Dataset, rows: np.ndarray, problem: Problem) -> None:
        self.rows = rows
        points = kernel_centres(D, rows)
        X = points.X[np.searchsorted(points.rows, rows)]
        self.layout = exact_layout(Kernel.of(problem), X)
        self.layout.sizes = sizes_of_rows(D, self.layout, X)
        self.K = self.layout.gram(X, np.float64)
        self.nodes = PrecomputedNodes.of(self.K.astype(np.float32), np.arange(len(rows)))

    def solve(
        self,
        at: np.ndarray,
        counts: np.ndarray,
        bounds: np.ndarray,
        tolerance: float,
        kkt_tolerance: float,
    ) -> SolvedPairs:
        """Solve and certify the C-SVMs of some pairs of classes.

        at : (pairs, m) integers, places of the rows of each pair, those with y = 1 first; counts :
        (pairs, 2) integers, the numbers of rows with y = 1 and with y = -1; bounds : (pairs, 2)
        float64, their C; tolerance: of LIBSVM; kkt_tolerance: of violators
        """
        began, integers = time.perf_counter(), (at.astype(np.int32), counts.astype(np.int32))
        beta, u = c_svc_of_pairs(self.nodes, self.K, *integers, bounds, tolerance)
        seconds = time.perf_counter() - began
        place, (first, second) = np.arange(at.shape[1]), counts.T[:, :, None]
        y = np.where(place < first, 1.0, np.where(place < first + second, -1.0, 0.0))
        C = np.where(y > 0, bounds[:, :1], bounds[:, 1:]) * (y != 0)
        b = least_loss_offsets(y, u, C)
        # Mirrored where y = -1, so that each coefficient is alpha, and z = 1 - y f the loss.
        alpha, z = np.abs(beta), y * (y - u - b[:, None])
        is_violator = ((alpha < C) & (z > kkt_tolerance)) | ((alpha > 0) & (-z > kkt_tolerance))
        return SolvedPairs(
            beta,
            u,
            b,
            np.sum(beta * u, axis=1),
            np.count_nonzero(is_violator, axis=1),
            seconds=seconds,
            **self._objectives(y, u, beta, b, C, z),
        )

    def _objectives(
        self,
        y: np.ndarray,
        u: np.ndarray,
        beta: np.ndarray,
        b: np.ndarray,
        C: np.ndarray,
        z: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Return P, D and their bounds, as `certificate.proven` does for one problem."""
        alpha, m, layout = np.abs(beta), y.shape[1], self.layout
        # Sums of more columns than compiled code has are added one after another, as here.
        of_sum = sum_error(layout, layout.sizes, m, sums=PANEL_COLUMNS + 1)
        size = alpha.sum(axis=1)
        error = offset_error(of_sum.of(size, size)[:, None], y, u, b[:, None], 0.0) * (y != 0)

        def residual(z: np.ndarray) -> np.ndarray:
            return np.maximum((C - alpha) * z, -alpha * z)

        computed = residual(z)
        rise = np.maximum(residual(z - error), residual(z + error)) - computed
        rise = np.maximum(rise, 0.0)
        terms = computed, rise, alpha * error, alpha * np.abs(u), alpha, rise > 0
        sums = ResidualSums(*(term.sum(axis=1) for term in terms))
        apart = distance_of_machines(layout, size)
        bounds = Bounds.of(sums, 1 + m, terms=2 * np.abs(b) * size, apart=apart)
        norm = np.sum(beta * u, axis=1)
        dual = size - norm / 2
        # The sum of beta is 0 but for its rounding, and that of this sum.
        missing = np.abs(beta.sum(axis=1)) + addition_error(m, size)
        shift = np.abs(b) * missing
        primal = dual + sums.residuals
        primal_error = bounds.dual + bounds.residuals + shift
        # As `tasks.change_of_dual`: beta within the decimal bounds, and an offset of a solution.
        scaled = SPARE * PRESCRIBED * FLOAT64_UNIT
        offset = largest_offset(0.0, 1.0, largest_value(layout), primal + primal_error)
        change = scaled * size + SPARE * (missing + scaled * size) * offset
        return {
            "primal": primal,
            "dual": dual,
            "primal_error": primal_error,
            "dual_error": bounds.dual + change,
            "distance": sums.residuals + bounds.residuals + shift + change,
        }


def least_loss_offsets(y: np.ndarray, u: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Return the b of least P of each pair, (pairs,); see `offset.Breakpoints.minimum`.

    y, u, C : (pairs, m), with y = 0 and C = 0 beyond the rows of a pair
    """
    at = np.where(y != 0, y - u, np.inf)
    order = np.argsort(at, axis=1)
    at, jump = np.take_along_axis(at, order, axis=1), np.take_along_axis(C, order, axis=1)
    # The slope rises by C at each breakpoint, from the sum of C over the rows with y = 1.
    slopes = np.cumsum(jump, axis=1) - np.sum(C * (y > 0), axis=1)[:, None]
    nothing = SLOPE_ROUNDING * C.sum(axis=1)
    k = np.argmax(slopes >= -nothing[:, None], axis=1)
    pair = np.arange(len(at))
    left, right = at[pair, k], at[pair, np.minimum(k + 1, at.shape[1] - 1)]
    return np.where(slopes[pair, k] > nothing, left, (left + right) / 2)
