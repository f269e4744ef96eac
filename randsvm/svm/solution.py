"""SV: a solution, i.e. support vectors with their coefficients beta and the offset b.

Decides what of it stays in the next working set. Knows nothing of solvers or files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from randsvm.data.points import Points
from randsvm.events import Notice, tell_once
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.svm import Params
from randsvm.svm.tasks import task_of

# Share of the room beside the unbounded support vectors that fresh violators get; bounded
# support vectors close to the margin have the rest. Measured best on twonorm and a9a.
VIOLATOR_SHARE = 0.7
# A working set that is too small is raised to this multiple of the rows that have to stay.
RAISE = 1.5


@dataclass(frozen=True)
class Solve:
    """How a solution was found: rows in the subproblem, rows held at their bound, seconds."""

    rows: int = 0
    frozen: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Bound:
    """The bound set N of a subproblem: support vectors that stay at alpha = C outside of it.

    points, beta: N and its coefficients, as many positive as negative. before: the rest of the
    solution, which the subproblem starts from and must not fall behind.
    """

    points: Points
    beta: np.ndarray
    before: SV


@dataclass
class SV:
    """f(x) = sum_i beta_i K(x_i, x) + b.

    points: the support vectors, ascending row numbers; the first scan of this solution fills in
    their u, and chooses b where no unbounded support vector determines it.
    beta : (m,) float64, nonzero, = y alpha.
    precision: factor on the tolerance of the solves that start from here (see stopping.py).
    """

    points: Points
    beta: np.ndarray
    b: float
    params: Params
    solve: Solve = field(default_factory=Solve)
    precision: float = 1.0

    def __len__(self) -> int:
        return len(self.beta)

    def __getitem__(self, chosen: np.ndarray) -> SV:
        """The same with some of its support vectors."""
        return replace(self, points=self.points[chosen], beta=self.beta[chosen])

    @property
    def kernel(self) -> Kernel:
        return Kernel.of(self.params)

    @property
    def unbounded(self) -> np.ndarray:
        """0 < alpha < C. LIBSVM sets bounded coefficients to C exactly. (m,) bool."""
        return np.abs(self.beta) < np.where(self.beta > 0, *self.params.bounds)

    @property
    def bounded_count(self) -> int:
        return int(np.count_nonzero(~self.unbounded))

    @property
    def _stay(self) -> int:
        """Rows that no working set can do without: without a bound set every support vector,
        else the unbounded ones, and the bounded ones of one class that have no counterpart."""
        if not self.params.freeze:
            return len(self)
        bounded = self.beta[~self.unbounded]
        surplus = abs(int(np.sign(bounded).sum()))
        return len(self) - len(bounded) + surplus

    def size(self, r: int) -> int:
        """Rows of the next working set: r, or what these support vectors make of it.

        At least params.growth times the rows that have to stay, where the user left the size
        open; else, with a bound set, more than has to stay.
        """
        params = self.params
        if params.growth:
            return min(max(r, math.ceil(params.growth * self._stay)), max(r, params.most))
        if not params.freeze or math.ceil(1.05 * self._stay) + 10 <= r:
            return r
        raised = math.ceil(RAISE * self._stay) + 10
        tell_once(
            "raised",
            Notice(
                f"a working set of {r} rows cannot hold every unbounded support vector and "
                f"violators besides: raised to {raised}, and further as they are found"
            ),
        )
        return raised

    def room(self, r: int) -> int:
        """How many fresh violators fit: r - |SV| (KBH07), or more where some can be frozen."""
        size = self.size(r)
        share = VIOLATOR_SHARE * (size - self._stay) if self.params.freeze else 0
        return max(size - len(self), int(share), 0)

    def split(self, r: int, R: Points) -> tuple[Points, Bound | None]:
        """The rows of the next working set beside R, and the bound set.

        KBH07: all support vectors are active and there is no bound set. With one: the bounded
        support vectors furthest beyond the margin are frozen, as many of either class, until
        the rest and R fit. Rows of R that are support vectors themselves are with R; where they
        are all of one class their counterparts stay too, and may not fit.
        """
        drawn = np.isin(self.points.rows, R.rows)
        if not self.params.freeze:
            # An empty bound set asks for a solve that does not fall behind this solution.
            nothing = Bound(self.points.first(0), np.empty(0), self)
            return self.points[~drawn], nothing if self.precision < 1 else None
        frozen = self._deepest(~self.unbounded & ~drawn, self._excess(r, R, drawn))
        bound = Bound(self.points[frozen], self.beta[frozen], self[~frozen])
        return self.points[~frozen & ~drawn], bound

    def _excess(self, r: int, R: Points, drawn: np.ndarray) -> int:
        return len(self) - int(drawn.sum()) + len(R) - self.size(r)

    def _deepest(self, candidates: np.ndarray, count: int) -> np.ndarray:
        """A mask of at least `count` candidates, half of either sign, furthest beyond first."""
        chosen = np.zeros(len(self), bool)
        u = self.points.u
        assert u is not None, "a solution is scanned before it is split"
        sides = [np.flatnonzero(candidates & (self.beta * sign > 0)) for sign in (1, -1)]
        half = min(-(-count // 2), *(len(side) for side in sides))
        if half > 0:
            bound = np.sign(self.beta)
            violation = task_of(self.params).violation(self.points.y, u + self.b, bound)
            for side in sides:
                chosen[side[np.argsort(violation[side], kind="stable")[:half]]] = True
        return chosen

    def change_since(self, old: SV | None) -> tuple[sparse.csr_matrix, np.ndarray]:
        """Rows whose coefficient differs from `old`, and by how much.

        Returns X (m, d) CSR and the differences (m,) float64, so that u_new = u_old +
        sum_j difference_j K(x_j, .).
        """
        if old is None:
            return self.points.X, self.beta
        both = Points.concatenate([self.points, old.points])
        rows, first = np.unique(both.rows, return_index=True)
        difference = np.zeros(len(rows))
        difference[np.searchsorted(rows, self.points.rows)] += self.beta
        difference[np.searchsorted(rows, old.points.rows)] -= old.beta
        changed = np.flatnonzero(difference)
        return both.X[first[changed]], difference[changed]
