"""SV: a solution, i.e. support vectors with their coefficients beta and the offset b.

Knows nothing of solvers, scans or files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from randsvm.data.points import Points
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.problem import Problem


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
    solution, which the subproblem starts from and must not fall behind. precision: factor on the
    tolerance of this solve.
    """

    points: Points
    beta: np.ndarray
    before: SV
    precision: float = 1.0


@dataclass(frozen=True)
class SV:
    """f(x) = sum_i beta_i K(x_i, x) + b.

    points: the support vectors, ascending row numbers; the first scan of this solution fills in
    their u, and chooses b where no unbounded support vector determines it.
    beta : (m,) float64, nonzero, = y alpha.
    """

    points: Points
    beta: np.ndarray
    b: float
    problem: Problem
    solve: Solve = field(default_factory=Solve)

    def __len__(self) -> int:
        return len(self.beta)

    def __getitem__(self, chosen: np.ndarray) -> SV:
        """The same with some of its support vectors."""
        return replace(self, points=self.points[chosen], beta=self.beta[chosen])

    @property
    def kernel(self) -> Kernel:
        return Kernel.of(self.problem)

    @property
    def unbounded(self) -> np.ndarray:
        """0 < alpha < C. LIBSVM sets bounded coefficients to C exactly. (m,) bool."""
        return np.abs(self.beta) < np.where(self.beta > 0, *self.problem.bounds)

    @property
    def bounded_count(self) -> int:
        return int(np.count_nonzero(~self.unbounded))

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
