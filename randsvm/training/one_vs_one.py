"""The solutions of all pairs of classes: one set of support vectors, one model, as in LIBSVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randsvm.arrays import Matrix, distinct
from randsvm.data.dataset import Dataset
from randsvm.data.precomputed import centres
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.kernel import Kernel
from randsvm.models.decisions import pairs
from randsvm.models.pairwise_model import PairwiseModel
from randsvm.svm.solution import SV
from randsvm.training.expansions import Expansions


@dataclass(frozen=True)
class OneVsOne(Expansions):
    """f_ij(x) = sum over the support vectors of classes i and j of their coefficients K(z, x),
    + b_ij, for the pairs (0, 1), (0, 2), .. (K - 2, K - 1).

    points: support vectors of any pair, grouped by class, in the order of their rows. beta :
    (m, K - 1), b : (pairs,) float64, nr_sv : (K,): see PairwiseModel. problem: of the first pair.
    """

    nr_sv: np.ndarray

    @staticmethod
    def of(D: Dataset, classes: int, solutions: Sequence[SV]) -> OneVsOne:
        """D: whose y are class indices. solutions: of the pairs, over the rows of D."""
        rows = distinct(np.concatenate([one.rows for one in solutions]))
        points = centres(D, rows)
        beta = np.zeros((len(rows), classes - 1))
        for i, j, one in zip(*pairs(classes), solutions, strict=True):
            at = np.searchsorted(rows, one.rows)
            # A coefficient against the class j stands in column j, or j - 1 behind the own class.
            beta[at, np.where(points.y[at] == i, j - 1, i)] = one.beta * one.scale
        order = np.argsort(points.y, kind="stable")
        nr_sv = np.bincount(points.y.astype(np.int64), minlength=classes)
        b = np.array([one.b * one.scale for one in solutions])
        return OneVsOne(points[order], beta[order], b, solutions[0].problem, nr_sv)

    def decision(self, X: Matrix) -> np.ndarray:
        """f of each row, (m, pairs) float64."""
        sums = np.array([each.values(X) for each in self._expansions])
        i, j = pairs(len(self.nr_sv))
        return (sums[i, :, j - 1] + sums[j, :, i]).T + self.b

    @cached_property
    def _expansions(self) -> list[Expansion]:
        """Of the support vectors of each class, with a sum against each other class."""
        ends = np.cumsum(self.nr_sv)
        parts = [slice(end - count, end) for end, count in zip(ends, self.nr_sv, strict=True)]
        X, kernel = self.points.X, Kernel.of(self.problem)
        return [Expansion.of(kernel, X[part], self.beta[part]) for part in parts]

    def kernel_model(self, features: np.ndarray, **common: Any) -> PairwiseModel:
        """common: what every model has."""
        sizes = tuple(self.nr_sv.tolist())
        return PairwiseModel(nr_sv=sizes, **self.expansion(features), **common)
