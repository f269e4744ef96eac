"""Points: rows of D with their numbers and labels, the one data type that carries rows.

Knows nothing of files, kernels or solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Points:
    """Rows of a data set, in ascending order of `rows`.

    rows : (m,) int64, row numbers in D
    X : (m, d) CSR float32, columns are positions in D's sorted feature indices
    y : (m,) float64, labels as the task sees them (-1/+1 for classification)
    u : (m,) float64, decision values without b, where a scan has filled them in
    """

    rows: np.ndarray
    X: sparse.csr_matrix
    y: np.ndarray
    u: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: np.ndarray) -> Points:
        u = None if self.u is None else self.u[chosen]
        return Points(self.rows[chosen], self.X[chosen], self.y[chosen], u)

    def __add__(self, other: Points) -> Points:
        """The rows of both, in ascending order (no row may be in both)."""
        both = Points.concatenate([self, other])
        return both[np.argsort(both.rows, kind="stable")]

    def without(self, rows: np.ndarray) -> Points:
        return self[np.flatnonzero(~np.isin(self.rows, rows))]

    def first(self, m: int) -> Points:
        return self[np.arange(max(0, min(m, len(self))))]

    @staticmethod
    def concatenate(parts: Sequence[Points]) -> Points:
        """One after the other, whatever the order of rows; u only if every part has it."""
        if len(parts) == 1:
            return parts[0]
        values = [p.u for p in parts if p.u is not None]
        return Points(
            np.concatenate([p.rows for p in parts]),
            sparse.vstack([p.X for p in parts], format="csr"),
            np.concatenate([p.y for p in parts]),
            np.concatenate(values) if len(values) == len(parts) else None,
        )
