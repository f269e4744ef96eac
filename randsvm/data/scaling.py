"""Scale rows by statistics of their features.

This module does not know files, data sets or training.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from randsvm.arrays import FLOAT64_UNIT, CsrMatrix, csr_of_all, squared_norms
from randsvm.records import record

# Rows that write fewer than this share of their features are sparse, and so is a feature that is
# not 0 in fewer than this share of the rows: scaling leaves its zeros zero.
SPARSE = 0.5
# The squares of shorter rows may underflow. Times a power of two, which rounds nothing, such a row
# has the same unit row.
SHORT, LIFT = 2.0**-480, 2.0**600
# A feature that spreads less counts as constant: squares of its deviations underflow.
SMALLEST_SPREAD = 1e-150


@record
class NonzeroStatistics:
    """Statistics of the values of some rows that are not 0, for the features that have some.

    rows: their number. features : (k,) int64, ascending; counts : (k,) int64, the numbers of values
    that are not 0; low, high, mean, squares : (k,) float64, their minimum, maximum, mean, and sum
    of squared deviations.
    """

    rows: int
    features: np.ndarray
    counts: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @staticmethod
    def of(X: CsrMatrix) -> NonzeroStatistics:
        m, d = X.shape
        # A zero may be written or omitted.
        kept = X.data != 0
        columns, values = X.indices[kept], X.data[kept].astype(np.float64)
        counts = np.bincount(columns, minlength=d)
        features = np.flatnonzero(counts)
        k, of_features = len(features), counts[features]
        if k < d:
            counts[features] = np.arange(k)
            columns = counts[columns]
        low, high = (np.full(k, start) for start in (np.inf, -np.inf))
        np.minimum.at(low, columns, values)
        np.maximum.at(high, columns, values)
        mean = np.bincount(columns, values, k) / of_features
        squares = np.bincount(columns, np.square(values - mean[columns]), k)
        return NonzeroStatistics(m, features, of_features, low, high, mean, squares)


@record
class Statistics:
    """Statistics of each feature over n rows: minimum, maximum, mean, sum of squared deviations.

    Each is (d,) float64; a missing feature counts as 0. nonzeros : (d,) int64, the numbers of
    values that are not 0.
    """

    n: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    nonzeros: np.ndarray

    @staticmethod
    def total(parts: Iterable[NonzeroStatistics], d: int) -> Statistics:
        """Return the statistics of disjoint sets of rows together, without cancellation for large
        means (Chan, Golub, LeVeque 1983).

        There is one array of each kind for all d features, however many parts there are.
        """
        n, nonzeros, (mean, squares) = 0, np.zeros(d, np.int64), np.zeros((2, d))
        low, high = (np.full(d, start) for start in (np.inf, -np.inf))
        for part in parts:
            at, before = part.features, nonzeros[part.features]
            counts, difference = before + part.counts, part.mean - mean[at]
            mean[at] += difference * (part.counts / counts)
            squares[at] += part.squares + difference**2 * (before * part.counts / counts)
            low[at] = np.minimum(low[at], part.low)
            high[at] = np.maximum(high[at], part.high)
            nonzeros[at] = counts
            n += part.rows
        # The zeros are one more part.
        share = nonzeros / n
        squares += mean**2 * share * (n - nonzeros)
        mean *= share
        for extreme, least in ((low, np.minimum), (high, np.maximum)):
            least(extreme, 0.0, out=extreme, where=nonzeros < n)
        return Statistics(n, low, high, mean, squares, nonzeros)

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
            norms, data, lengths = np.sqrt(squared_norms(X)), X.data, np.diff(X.indptr)
            if (is_short := norms < SHORT).any():
                data = data * np.repeat(np.where(is_short, LIFT, 1.0), lengths)
                norms = np.sqrt(squared_norms(X.with_data(data)))
            values = data / np.repeat(np.where(norms > 0, norms, 1.0), lengths)
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
