"""Rows in random order, batch by batch, for stochastic gradient steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Batch:
    """Rows for stochastic gradient steps, in CSR and in the order in which they are learnt.

    starts (m + 1,), columns (nnz,), classes (m,), order (steps,) int32; values (nnz,) float32;
    targets (m,) float64. columns are empty where every row has every column.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    classes: np.ndarray
    targets: np.ndarray
    order: np.ndarray

    @staticmethod
    def of(
        starts: np.ndarray,
        columns: np.ndarray,
        values: np.ndarray,
        y: np.ndarray,
        order: np.ndarray,
    ) -> Batch:
        """y : (m,) float64, class numbers or targets: who learns knows which."""
        with np.errstate(invalid="ignore"):  # a target may be beyond int32
            classes = y.astype(np.int32)
        return Batch(starts.astype(np.int32), columns, values, classes, y, order)
