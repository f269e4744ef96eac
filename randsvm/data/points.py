"""Rows of D with their numbers and labels.

This module does not know files, kernels or solvers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from randsvm.arrays import CsrMatrix, join_weights
from randsvm.records import record


@record
class Points:
    """Rows of a data set, in ascending order of `rows`.

    rows : (m,) int64, row numbers in D
    X : (m, d) CSR of float64, or of float32 where a `mapping` computes features; columns are
    positions in D's sorted feature indices; for a precomputed kernel see
    svm.kernel_layout.kernel_centres
    y : (m,) float64, labels of the task (-1/+1 for classification)
    u, beta : (m,) float64, decision values without b and coefficients, if a scan has set them
    weights : (m,) float64, weights of the rows, or None if those of D are all 1
    """

    rows: np.ndarray
    X: CsrMatrix
    y: np.ndarray
    u: np.ndarray | None = None
    beta: np.ndarray | None = None
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: np.ndarray) -> Points:
        u, beta, weights = (
            None if of is None else of[chosen] for of in (self.u, self.beta, self.weights)
        )
        return Points(self.rows[chosen], self.X[chosen], self.y[chosen], u, beta, weights)

    @staticmethod
    def concatenate(parts: Sequence[Points]) -> Points:
        """Return the parts one after another, in any order of rows; two or more lose u and beta."""
        if len(parts) == 1:
            return parts[0]
        return Points(
            np.concatenate([p.rows for p in parts]),
            CsrMatrix.vstack([p.X for p in parts]),
            np.concatenate([p.y for p in parts]),
            weights=join_weights([(len(p), p.weights) for p in parts]),
        )


class RowCache:
    """Rows of D that were read, because working sets and support vectors need the same repeatedly.

    held : Points, in any order; order : (m,) int64, their positions in ascending order of rows
    """

    def __init__(self, held: Points) -> None:
        self.held, self.order = held, np.argsort(held.rows)

    @property
    def nbytes(self) -> int:
        return self.held.X.nbytes

    def missing(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows that are not in the cache, ascending. rows: ascending."""
        return np.setdiff1d(rows, self.held.rows, assume_unique=True)

    def points(self, rows: np.ndarray) -> Points:
        """Return rows of the cache as Points, in the given order."""
        return self.held[self.order[np.searchsorted(self.held.rows, rows, sorter=self.order)]]
