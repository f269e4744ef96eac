"""The running values of one shard, and what changes them.

Knows nothing of the other shards, of violators, solvers or files.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np
from scipy import sparse

from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import Shard
from randsvm.errors import ParameterError
from randsvm.kernels.expansion import Expansion, KernelLayout, Piece, piece_bytes
from randsvm.svm.tasks import Task


class Room:
    """Bytes for rows that stay laid out, shared by the shards of a process."""

    def __init__(self, size: int) -> None:
        self.left, self.lock = size, Lock()

    def take(self, size: int) -> bool:
        """Whether there was room for so much."""
        with self.lock:
            fits = size <= self.left
            self.left -= size if fits else 0
            return fits

    def __reduce__(self) -> tuple[type[Room], tuple[int]]:
        return Room, (self.left,)


@dataclass
class Layout:
    """Rows as they were laid out in a space."""

    kernel_layout: KernelLayout
    pieces: list[Piece]
    size: int


class ShardValues:
    """u and beta of every row of a shard, (m,) float64 each. room: for rows that stay laid out from
    one pass to the next; which do changes the time and no result."""

    def __init__(self, D: Dataset, room: Room, shard: Shard) -> None:
        self.D, self.room, self.shard = D, room, shard
        self.u, self.beta = np.zeros(len(self)), np.zeros(len(self))
        self._layout: Layout | None = None
        self._order: np.ndarray | None = None

    def __len__(self) -> int:
        return self.shard.stop - self.shard.start

    @property
    def y(self) -> np.ndarray:
        return self.D.labels_of(self.shard)

    def near(self, far: Far) -> np.ndarray:
        """Rows that are support vectors or not `far` beyond the margin: (m,) bool."""
        y, u = self.y, self.u
        rise, fall = far.task.slopes(y, u, np.zeros(len(y)))
        return (np.maximum(rise - far.b, far.b - fall) >= -far.distance) | (self.beta != 0)

    def add(self, expansion: Expansion, *, keep: bool) -> None:
        """u += the expansion. keep: over rows that stay laid out if there is room."""
        u, D = self.u, self.D
        if expansion.kernel_layout.kernel.linear or D.mapping is not None:
            for chunk in D.chunks(self.shard):
                at = chunk.start - self.shard.start
                u[at : at + len(chunk.y)] += expansion.values(chunk.X)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            if not keep:
                expansion.add(u, expansion.kernel_layout.pieces(D.chunk_matrix(self.shard)))
            elif (pieces := self._kept(expansion.kernel_layout)) is not None:
                expansion.add(u, pieces)
            else:
                self._lay_out(expansion)

    def _kept(self, kernel_layout: KernelLayout) -> list[Piece] | None:
        """The rows as they were laid out in this space; those of another one are let go."""
        layout = self._layout
        if layout is not None and layout.kernel_layout.dtype is not kernel_layout.dtype:
            self.room.take(-layout.size)
            layout = self._layout = None
        return None if layout is None else layout.pieces

    def _lay_out(self, expansion: Expansion) -> None:
        """u += the expansion, over rows laid out anew."""
        kernel_layout, X = expansion.kernel_layout, self.D.chunk_matrix(self.shard)
        if self._order is None and kernel_layout.in_cells(X.shape[1]):
            self._order = kernel_layout.cells(X)
        made = kernel_layout.pieces(
            X, cells=self._order if kernel_layout.in_cells(X.shape[1]) else None
        )
        if self.room.left <= 0:
            expansion.add(self.u, made)
            return
        pieces = list(made)
        expansion.add(self.u, pieces)
        size = sum(piece_bytes(piece) for piece in pieces)
        if self.room.take(size):
            self._layout = Layout(kernel_layout, pieces, size)


# --- changes -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Put:
    """beta of some rows of D. rows : (m,) int64, ascending; beta : (m,) float64. alone: it is 0 of
    all others."""

    rows: np.ndarray
    beta: np.ndarray
    alone: bool = False

    def __call__(self, values: ShardValues) -> None:
        within = values.shard.within(self.rows)
        if self.alone:
            values.beta.fill(0.0)
        values.beta[self.rows[within] - values.shard.start] = self.beta[within]


@dataclass(frozen=True)
class Far:
    """Rows that are so far beyond the margin of a task, with the offset b."""

    task: Task
    b: float
    distance: float


class Pass:
    """u += sum_j difference_j K(z_j, .). fresh: u = ... instead, but for rows that are `far`. keep:
    rows may stay laid out in this space."""

    def __init__(
        self,
        kernel_layout: KernelLayout,
        Z: sparse.csr_matrix,
        difference: np.ndarray,
        *,
        fresh: bool,
        far: Far | None = None,
        keep: bool = True,
    ) -> None:
        self.kernel_layout, self.Z, self.difference = kernel_layout, Z, difference
        self.fresh, self.far, self.keep = fresh, far, keep
        self.expansion = Expansion(kernel_layout, Z, difference)

    def __reduce__(self) -> tuple[object, ...]:
        return _pass, (self.kernel_layout, self.Z, self.difference, self.fresh, self.far, self.keep)

    def __call__(self, values: ShardValues) -> None:
        """Raises ParameterError where a value leaves float64."""
        u = values.u
        if self.far is None:
            if self.fresh:
                u.fill(0.0)
            values.add(self.expansion, keep=self.keep)
        else:
            near = values.near(self.far)
            X = values.D.chunk_matrix(values.shard)
            u[near] = self.expansion.values(X[near])
        if not np.isfinite(u).all():
            raise ParameterError(
                f"values of the {self.kernel_layout.kernel.name} kernel leave float64: "
                f"scale the features"
            )


def _pass(
    kernel_layout: KernelLayout,
    Z: sparse.csr_matrix,
    difference: np.ndarray,
    fresh: bool,
    far: Far | None,
    keep: bool,
) -> Pass:
    return Pass(kernel_layout, Z, difference, fresh=fresh, far=far, keep=keep)
