"""The solutions of one class against the rest, side by side: one decision function, one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randsvm.arrays import Matrix
from randsvm.data.points import Points
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.kernel import Kernel
from randsvm.models.kernel_model import KernelModel
from randsvm.models.linear_model import LinearModel
from randsvm.svm.linear import EPSILON_INSENSITIVE, LOSSES
from randsvm.svm.solution import SV
from randsvm.training.expansions import Expansions


@dataclass(frozen=True)
class OneVsRest(Expansions):
    """f_c(x) = sum_i beta_ic K(x_i, x) + b_c over the support vectors of all solutions.

    points: them, in ascending order of their rows; beta : (m, K), b : (K,) float64, one column for
    each solution. problem: of the first solution.
    """

    @staticmethod
    def of(solutions: Sequence[SV]) -> OneVsRest:
        every = Points.concatenate([one.points for one in solutions if one.points is not None])
        rows, first = np.unique(every.rows, return_index=True)
        beta = np.zeros((len(rows), len(solutions)))
        for column, one in enumerate(solutions):
            beta[np.searchsorted(rows, one.rows), column] = one.beta * one.scale
        b = np.array([one.b * one.scale for one in solutions])
        return OneVsRest(every[first], beta, b, solutions[0].problem)

    def decision(self, X: Matrix) -> np.ndarray:
        """f of each row, (m, K) float64."""
        return self._expansion.values(X) + self.b

    @cached_property
    def _expansion(self) -> Expansion:
        return Expansion.of(Kernel.of(self.problem), self.points.X, self.beta)

    def kernel_model(self, features: np.ndarray, **common: Any) -> KernelModel:
        """common: what every model has."""
        return KernelModel(**self.expansion(features), **common)

    def linear_model(self, **common: Any) -> LinearModel:
        """With w = sum_i beta_i x_i, for the linear kernel over random features."""
        regression = self.problem.task == "svr"
        return LinearModel(
            w=self.points.X.T.astype(np.float64) @ self.beta,
            b=self.b,
            solver=EPSILON_INSENSITIVE if regression else LOSSES["hinge"].solver,
            **common,
        )
