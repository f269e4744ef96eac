"""Rows and centres for sums of RBF that leave out what is far away.

Rows are sorted by a k-d split into cells of a few dozen. A centre takes part in the sums of a cell
only if it is nearer to the cell's bounding box than a limit: values left out are below
exp(-cutoff). This module does not know layouts, tasks or solutions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randsvm.arrays import slices
from randsvm.kernels._kernels import (
    CELL_CENTRES,
    CELL_ROWS,
    PANEL_CENTRES,
    PANEL_COLUMNS,
    add_sums_of_cells,
    lay_out_cells,
    sort_into_cells,
)

# Rows and values that are sorted together, at most: a chunk.
SLICE_ROWS = 8192
SLICE_VALUES = 1 << 21
# Centres in a vector of the compiled code.
LANES = 16


def rows_per_slice(d: int) -> int:
    """Return the number of rows of d features that are sorted into cells together."""
    return max(CELL_ROWS, min(SLICE_ROWS, SLICE_VALUES // max(d, 1)))


def sort_rows(x: np.ndarray, w: int) -> np.ndarray:
    """Return the order in which each CELL_ROWS consecutive rows form a cell; (m,) uint16.

    x : (m, w or more) float32, of which the first w features count; m <= SLICE_ROWS.
    """
    places: np.ndarray = np.arange(len(x), dtype=np.uint16)
    sort_into_cells(x, w, places, np.empty(2 * w + len(x), np.float32))
    return places


@dataclass(frozen=True)
class CellRows:
    """Rows sorted into cells.

    order : (m,) uint16, the position of each row before sorting; panels : (m / 32 rounded up, d,
    32) float32, the features of 32 rows side by side; lower, upper : (m / CELL_ROWS rounded up, w)
    float32, the bounding boxes.
    """

    order: np.ndarray
    panels: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @staticmethod
    def of(x: np.ndarray, w: int, order: np.ndarray) -> CellRows:
        """Return rows in cells. x : (m, d) float32, augmented, with w features; order: of
        sort_rows."""
        m, d = x.shape
        panels = np.empty((-(-m // PANEL_CENTRES), d, PANEL_CENTRES), np.float32)
        lower: np.ndarray = np.empty((-(-m // CELL_ROWS), w), np.float32)
        upper = np.empty_like(lower)
        lay_out_cells(x, order, panels, lower, upper)
        return CellRows(order, panels, lower, upper)

    @property
    def nbytes(self) -> int:
        arrays = (self.order, self.panels, self.lower, self.upper)
        return sum(array.nbytes for array in arrays)


class CellRbfSum:
    """Sums of RBF over some centres, for rows in cells.

    centres : (m, d) float32, augmented; Z : (m, w), their features; beta : (m,) or (m, K); limit:
    the squared distance from a box at which a centre is left out.
    """

    def __init__(self, centres: np.ndarray, Z: np.ndarray, beta: np.ndarray, limit: float) -> None:
        m, w = Z.shape
        assert m <= CELL_CENTRES
        self.centres, self.limit = centres, limit
        self.columns = np.zeros((w, -(-m // LANES) * LANES), np.float32)
        self.columns[:, :m] = Z.T
        flat = beta.reshape(m, -1).astype(np.float32)
        parts = slices(flat.shape[1], PANEL_COLUMNS)
        self.beta = [(at, np.ascontiguousarray(flat[:, at])) for at in parts]

    def add(self, u: np.ndarray, rows: CellRows, largest: float, buffer: np.ndarray) -> int:
        """Add the sums to u; return the number of kernel values in each sum."""
        u, kept = u.reshape(len(u), -1), 0
        room = np.empty(len(self.columns) * (CELL_CENTRES + 2), np.float32)
        for at, beta in self.beta:
            some = np.zeros((len(u), beta.shape[1]))
            kept = add_sums_of_cells(
                rows.panels, rows.lower, rows.upper, rows.order,
                self.centres, self.columns, beta, self.limit, some, room,
            )  # fmt: skip
            u[:, at] += some
        return kept
