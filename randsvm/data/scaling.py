"""Scale rows by statistics of their features.

This module does not know files, data sets or training.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from randsvm.arrays import FLOAT64_UNIT, CsrMatrix, csr_of_all, squared_norms
from randsvm.records import record

# Rows that write fewer than this share of their features are sparse, and so is a feature that is
# not 0 in fewer than this share of the rows: scaling leaves its zeros zero.
SPARSE = 0.5
# A feature that spreads less counts as constant: squares of its deviations underflow.
SMALLEST_SPREAD = 1e-150


@record
class Statistics:
    """Statistics of each feature over n rows: minimum, maximum, mean, sum of squared deviations.

    Each is (d,) float64; a missing feature counts as 0. nonzeros : (d,) int64, the numbers of
    values that are not 0. Statistics of disjoint sets of rows can be added.
    """

    n: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    nonzeros: np.ndarray

    @staticmethod
    def of(X: CsrMatrix) -> Statistics:
        m, d = X.shape
        # A zero may be written or omitted.
        kept = X.data != 0
        columns, values = X.indices[kept], X.data[kept].astype(np.float64)
        nonzeros = np.bincount(columns, minlength=d)
        low, high = (np.where(nonzeros < m, 0.0, start) for start in (np.inf, -np.inf))
        np.minimum.at(low, columns, values)
        np.maximum.at(high, columns, values)
        mean = np.bincount(columns, values, d) / m
        deviations = np.square(values - mean[columns])
        squares = np.bincount(columns, deviations, d) + (m - nonzeros) * mean**2
        return Statistics(m, low, high, mean, squares, nonzeros)

    def __add__(self, other: Statistics) -> Statistics:
        """Return the statistics of both, without cancellation for large means (Chan, Golub, LeVeque
        1983)."""
        n = self.n + other.n
        difference = other.mean - self.mean
        return Statistics(
            n,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.mean + difference * (other.n / n),
            self.squares + other.squares + difference**2 * (self.n * other.n / n),
            self.nonzeros + other.nonzeros,
        )

    @property
    def variance(self) -> float:
        """Return the variance of all values of all features, zeros included; 0 without features."""
        if not len(self.mean):
            return 0.0
        return float(np.mean(self.squares / self.n) + np.var(self.mean))


@record
class Scaling:
    """x_j becomes (x_j - shift_j) factor_j, or for unit x becomes x / |x|.

    minmax: to [-1, 1], as svm-scale does; standard: to mean 0 and variance 1. shift, factor : (d,)
    float64; zeros of a feature with shift 0 stay zeros; shift None: all are 0. A feature that is
    constant, or spreads less than SMALLEST_SPREAD, has the factor 0. Rows are computed in float64,
    clipped to the range of float32, and converted to the dtype that they had.
    """

    name: str
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None

    @staticmethod
    def fitted(name: str, found: Statistics, centred: np.ndarray) -> Scaling:
        """Return the scaling `name` for these statistics.

        centred : (d,) bool, whether to subtract the middle or the mean of a feature. If not, minmax
        divides by the largest absolute value, and standard by the standard deviation.
        """
        if name == "minmax":
            middle = (found.high + found.low) / 2
            largest = np.maximum(np.abs(found.high), np.abs(found.low))
            half = np.where(centred, (found.high - found.low) / 2, largest)
        else:
            middle = found.mean
            half = np.sqrt(found.squares / found.n)
        # The deviation does not suffice: rounding leaves about 1e-17 for a constant feature.
        constant = (found.high == found.low) | (half < SMALLEST_SPREAD)
        factor = np.where(constant, 0.0, 1 / np.where(constant, 1.0, half))
        return Scaling(name, np.where(centred, middle, 0.0) if centred.any() else None, factor)

    @cached_property
    def shifted(self) -> np.ndarray:
        """Return the positions of the features that are shifted, ascending."""
        return np.empty(0, np.int64) if self.shift is None else np.flatnonzero(self.shift)

    @property
    def stores_all(self) -> bool:
        """Return whether every value of a scaled row is stored."""
        return self.shift is not None and len(self.shifted) >= SPARSE * len(self.shift)

    def nonzeros(self, n: int, d: int, nnz: int) -> int:
        """Return an upper bound on the values that n scaled rows store; nnz: those before."""
        return n * d if self.stores_all else min(n * d, nnz + n * len(self.shifted))

    def apply(self, X: CsrMatrix) -> CsrMatrix:
        """Return the scaled rows, CSR of the same shape and dtype. X : (m, d) CSR.

        Every row stores the shifted features, or all features if at least half are shifted.
        """
        if self.stores_all:
            dense = (X.toarray() - self.shift) * self.factor
            m, d = dense.shape
            return csr_of_all(_within_float32(dense, X.data.dtype), m, d)
        if self.shift is not None and self.factor is not None and len(self.shifted):
            moved = X.minus(self.shift, np.float64)
            values = moved.data * self.factor[moved.indices]
            return moved.with_data(_within_float32(values, X.data.dtype))
        if self.factor is not None:
            values = X.data * self.factor[X.indices]
        else:
            norms = np.sqrt(squared_norms(X))
            values = X.data / np.repeat(np.where(norms > 0, norms, 1.0), np.diff(X.indptr))
        return X.with_data(_within_float32(values, X.data.dtype))

    def rounding(self, length: float, terms: int, by_differences: bool) -> float:
        """Return half of how much the difference of two rows may be rounded.

        docs/certificate.md has the proof. length: the largest |x| of scaled rows. terms: the most
        nonzeros of a row. by_differences: whether only differences of rows matter
        """
        if self.factor is None:
            # A norm is the root of a sum of squares: it has half of the roundings of the sum.
            return FLOAT64_UNIT * (terms / 2 + 8) * length
        moved = 6 * length
        if self.shift is not None:
            # x and the shift are rounded before their difference, which may be far smaller.
            of_shift = float(np.linalg.norm(self.shift * self.factor))
            moved += (1.01 if by_differences else 2.01) * of_shift
        return FLOAT64_UNIT * moved

    def over(self, seen: np.ndarray) -> Scaling:
        """Return the scaling of some of the features. seen : (k,), their positions."""
        shift, factor = (None if a is None else a[seen] for a in (self.shift, self.factor))
        return Scaling(self.name, shift, factor)


def _within_float32(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Clip values to float32: a row far from the training data would have infinite features."""
    largest = np.finfo(np.float32).max
    return np.clip(values, -largest, largest).astype(dtype)
