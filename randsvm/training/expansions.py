"""What decision functions over shared support vectors have in common, whatever they tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from randsvm.data.points import Points
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.problem import Problem


@dataclass(frozen=True)
class Expansions:
    """Sums of kernels over the support vectors `points`; beta: their coefficients, a row for each;
    b: the offsets. problem: that they solve."""

    points: Points
    beta: np.ndarray
    b: np.ndarray
    problem: Problem

    def expansion(self, features: np.ndarray) -> dict[str, Any]:
        """Fields of a model, over those of the features that the support vectors have."""
        X = self.points.X
        used, columns = np.unique(X.indices, return_inverse=True)
        return {
            "task": self.problem.kind,
            "nu": self.problem.size > 0,
            "kernel": Kernel.of(self.problem),
            "Z": sparse.csr_matrix((X.data, columns, X.indptr), shape=(X.shape[0], len(used))),
            "features": features[used],
            "beta": self.beta,
            "b": self.b,
            "support": self.points.rows,
        }
