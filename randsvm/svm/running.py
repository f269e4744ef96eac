"""Running values: u and beta of every row of D, advanced by the coefficients that change.

Knows nothing of violators, solvers or files.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from randsvm.arrays import slices
from randsvm.data.dataset import Dataset, Shard
from randsvm.data.points import Gathered, Points
from randsvm.data.sampling import Draw
from randsvm.errors import ParameterError
from randsvm.events import Progress, tell
from randsvm.kernels.expansion import (
    BLOCK_ROWS,
    Expansion,
    Piece,
    Space,
    piece_bytes,
    prefers_dense,
    profits_from_cells,
)
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.problem import Problem
from randsvm.svm.tasks import task_of

# Rows whose running decision value is kept in float64 as well, and compared after every scan.
AUDIT_ROWS = 512
# float32 arguments of this size carry a rounding error that no audit needs to find.
FLOAT32_UNIT = 2.0**-24
FLOAT32_LIMIT = 1e-5
# What rounding may move P and D by, relatively, before they are computed in float64.
SHOWS = 1e-6
# Kernel values of RBF below exp(-CUT) are left out of sums in float32: its rounding is larger.
CUT = 20.0
# Draw number of the audit rows: a number that no scan ever reaches.
AUDIT_DRAW = 2**63


class RunningValues:
    """u and beta of every row of D under the coefficients so far, and how u is computed.

    u, beta: one (rows,) float64 array per shard. space: how rows are laid out for kernel values,
    and their precision. audit: random rows, exact: u of them, (m,) float64, from float64 kernel
    values. b: the offset of the last look. layout_bytes: memory for rows that stay laid out from
    one pass to the next; which rows fit changes the time and no result. precise: float64 from the
    start.
    """

    def __init__(
        self,
        D: Dataset,
        problem: Problem,
        seed: int,
        layout_bytes: int = 0,
        precise: bool = False,
    ) -> None:
        self.D, self.problem = D, problem
        self.task, self.kernel = task_of(problem), Kernel.of(problem)
        self.layout_bytes = layout_bytes
        self.gathered = Gathered(D.d)
        audit = D.sample(Draw(seed, AUDIT_DRAW), AUDIT_ROWS)
        self.audit = D.points(audit)
        self.space = self._space(precise)
        self.exact = np.zeros(len(audit))
        self.u = [np.zeros(shard.stop - shard.start) for shard in D.shards]
        self.beta = [np.zeros(shard.stop - shard.start) for shard in D.shards]
        self.b, self.width = 0.0, np.inf
        # Whether any pass was in float32.
        self.coarse = self.space.dtype is np.float32
        self._layouts: dict[int, list[Piece]] = {}
        self._orders: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def _space(self, precise: bool) -> Space:
        """How rows are laid out: in float32 where its rounding is small from the start."""
        D = self.D
        dense = prefers_dense(D.n, D.d, D.nnz)
        centre = None
        if dense and self.kernel.name == "rbf":
            centre = np.asarray(self.audit.X.mean(axis=0), np.float64).ravel()
        space = Space(self.kernel, dense, centre, np.float32)
        rounding = self.kernel.magnitude(_largest_norm(D, space)) * FLOAT32_UNIT
        if precise or rounding >= FLOAT32_LIMIT:
            return replace(space, dtype=np.float64)
        in_cells = replace(space, cut=CUT)
        first = D.chunk_matrix(D.shards[0])
        return in_cells if profits_from_cells(in_cells, first, self.audit.X) else space

    def points(self, rows: np.ndarray) -> Points:
        """Rows of D, ascending, with their running u and beta."""
        missing = self.gathered.missing(rows)
        if len(missing):
            self.gathered.add(self.D.points(missing))
        return replace(self.gathered.points(rows), u=self.at(self.u, rows), beta=self.beta_of(rows))

    def beta_of(self, rows: np.ndarray) -> np.ndarray:
        return self.at(self.beta, rows)

    def refine(self) -> bool:
        """Go on in float64; False where that is so already."""
        if self.space.dtype is np.float64:
            return False
        self.space = replace(self.space, dtype=np.float64)
        self._layouts.clear()
        self._afresh(self.support())
        return True

    def forget(self) -> None:
        """Give back the memory; nothing can be asked any more."""
        self.u, self.beta, self.gathered = [], [], Gathered(0)
        self._layouts.clear()
        self._orders.clear()

    def advance(self, Z: sparse.csr_matrix, difference: np.ndarray, *, fresh: bool = False) -> None:
        """u += sum_j difference_j K(z_j, .); fresh: u = ... instead."""
        self.run_pass(Expansion(self.space, Z, difference), fresh=fresh)
        if self.space.dtype is np.float32 and not self._precise(Z, difference, fresh):
            # Rounding has shown: from here on everything is computed in float64.
            self.refine()

    def _afresh(self, support: np.ndarray) -> None:
        points = self.points(support)
        assert points.beta is not None
        self.advance(points.X, points.beta, fresh=True)

    def run_pass(self, expansion: Expansion, *, fresh: bool, far: float | None = None) -> None:
        """One pass over the shards: u += the expansion. fresh: u = ... instead, but for rows that
        are `far` beyond the margin."""
        counter = RowCounter(self.D.n)

        def work(shard: Shard) -> None:
            u = self.u[shard.number]
            near = None if far is None else self.near(shard, far)
            if near is None:
                if fresh:
                    u.fill(0.0)
                self._add(expansion, shard, u)
            else:
                X = self.D.chunk_matrix(shard)
                u[near] = expansion.values(X[near])
            if not np.isfinite(u).all():
                raise ParameterError(
                    f"values of the {self.kernel.name} kernel leave float64 on this data: "
                    f"scale the features"
                )
            counter.add(len(u))

        for _ in self.D.map(work):
            counter.tell()

    def near(self, shard: Shard, far: float) -> np.ndarray:
        """Rows that are support vectors or not `far` beyond the margin: bool."""
        y = self.D.labels_of(shard)
        return self._is_near(y, self.u[shard.number], self.beta[shard.number], far)

    def _is_near(self, y: np.ndarray, u: np.ndarray, beta: np.ndarray, far: float) -> np.ndarray:
        rise, fall = self.task.slopes(y, u, np.zeros(len(y)))
        return (np.maximum(rise - self.b, self.b - fall) >= -far) | (beta != 0)

    def _add(self, expansion: Expansion, shard: Shard, u: np.ndarray) -> None:
        """u += the expansion, over rows that stay laid out if there is room."""
        if self.kernel.name == "linear" or self.D.mapping is not None:
            for chunk in self.D.chunks(shard):
                at = slice(chunk.start - shard.start, chunk.start - shard.start + len(chunk.y))
                u[at] += expansion.values(chunk.X)
            return
        ours = expansion.space == self.space
        pieces = self._layouts.get(shard.number) if ours else None
        with np.errstate(over="ignore", invalid="ignore"):
            if pieces is not None:
                expansion.add(u, pieces)
                return
            X = self.D.chunk_matrix(shard)
            made = expansion.space.pieces(X, cells=self._order(shard, X) if ours else None)
            if self.layout_bytes <= 0 or not ours:
                expansion.add(u, made)
                return
            pieces = list(made)
            expansion.add(u, pieces)
        size = sum(piece_bytes(piece) for piece in pieces)
        with self._lock:
            if size <= self.layout_bytes:
                self.layout_bytes -= size
                self._layouts[shard.number] = pieces

    def _order(self, shard: Shard, X: sparse.csr_matrix) -> np.ndarray | None:
        """The order of a shard's rows in cells, found once; None where they are in none."""
        if not self.space.in_cells(X.shape[1]):
            return None
        if shard.number not in self._orders:
            self._orders[shard.number] = self.space.cells(X)
        return self._orders[shard.number]

    def _precise(self, Z: sparse.csr_matrix, difference: np.ndarray, fresh: bool) -> bool:
        """Whether the running values agree with float64 ones on the audit rows."""
        exact = replace(self.space, dtype=np.float64)
        values = Expansion(exact, Z, difference).values(self.audit.X)
        self.exact = values if fresh else self.exact + values
        off = self.exact - self.at(self.u, self.audit.rows)
        return bool(np.abs(off).max() <= self.problem.tolerance / 4)

    def rounding_shows(self) -> bool:
        """Whether float32 moves P or D by more than SHOWS of it, judged by what the audit rows add
        to them with exact decision values, beyond what chance makes of so few rows."""
        audit, rows = self.audit, self.audit.rows
        u, beta = self.at(self.u, rows), self.beta_of(rows)
        exact = self.task.loss(audit.y, self.exact + self.b)
        off = self.task.loss(audit.y, u + self.b) - exact + beta * (u - self.exact) / 2
        chance = float(np.sqrt(np.square(off).sum()))
        return abs(float(off.sum())) - chance > SHOWS * float(exact.sum() + abs(beta @ u))

    def at(self, of: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
        """Running values of the given ascending rows; (m,) float64."""
        found = np.empty(len(rows))
        for shard in self.D.shards:
            within = shard.within(rows)
            if within.start < within.stop:
                found[within] = of[shard.number][rows[within] - shard.start]
        return found

    def put(self, rows: np.ndarray, beta: np.ndarray) -> None:
        for shard in self.D.shards:
            within = shard.within(rows)
            if within.start < within.stop:
                self.beta[shard.number][rows[within] - shard.start] = beta[within]

    def support(self) -> np.ndarray:
        """Row numbers of all support vectors, ascending."""
        starts = (shard.start for shard in self.D.shards)
        parts = [np.flatnonzero(beta) + s for beta, s in zip(self.beta, starts, strict=True)]
        return np.concatenate(parts)


@dataclass
class RowCounter:
    """Rows scanned so far, over all threads; told to the listener by the calling thread."""

    n: int
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, rows: int) -> None:
        with self.lock:
            self.done += rows

    def tell(self) -> None:
        tell(Progress("scanning", self.done, self.n))


def _largest_norm(D: Dataset, space: Space) -> float:
    """max |x|^2 over D, after centring."""

    def of(shard: Shard) -> float:
        norms = [
            space.rows(chunk.X[at]).norms.max()
            for chunk in D.chunks(shard)
            for at in slices(len(chunk.y), BLOCK_ROWS)
        ]
        return float(max(norms, default=0.0))

    return max(D.map(of))
