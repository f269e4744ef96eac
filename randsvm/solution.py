"""SV: a solution, i.e. support vectors with their coefficients beta and the offset b.

Knows nothing of how it was found, nor of files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from randsvm.kernels import Kernel
from randsvm.params import Params
from randsvm.points import Points


@dataclass
class SV:
    """f(x) = sum_i beta_i K(x_i, x) + b.

    points: the support vectors, ascending row numbers; beta : (m,) float64, nonzero, = y alpha.
    u : (m,) float64, u_i = f(x_i) - b, filled in by the first scan of this solution, which also
    chooses b where no unbounded support vector determines it.
    """

    points: Points
    beta: np.ndarray
    b: float
    params: Params
    u: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.beta)

    @property
    def kernel(self) -> Kernel:
        return Kernel.of(self.params)

    @property
    def unbounded(self) -> np.ndarray:
        """0 < alpha < C. LIBSVM sets bounded coefficients to C exactly. (m,) bool."""
        return np.abs(self.beta) < self.params.C

    def room(self, r: int) -> int:
        """How many fresh violators fit beside the support vectors: r - |SV| (KBH07)."""
        return r - len(self)

    def split(self, r: int, R: Points) -> tuple[Points, None]:
        """Active rows and bound set for the next round: all are active (KBH07)."""
        return self.points, None

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
