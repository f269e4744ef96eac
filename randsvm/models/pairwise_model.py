"""Kernel models of several classes, one against one, as LIBSVM has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from randsvm.kernels.expansion import Expansion, Space
from randsvm.models import decisions
from randsvm.models.kernel_model import KernelModel


@dataclass(frozen=True, kw_only=True)
class PairwiseModel(KernelModel):
    """f_ij(x) = sum over the support vectors of classes i and j of their coefficients K(z, x),
    + b_ij, for each pair of K > 2 classes; f_ij > 0 is a vote for i, and else for j.

    nr_sv : support vectors of each class; the rows of Z are grouped by class, in this order.
    beta : (m, K - 1) float64, LIBSVM's sv_coef: of a support vector of class i, column j - 1 is its
    coefficient against class j > i, column j against j < i. b : (K (K - 1) / 2,) float64, and the
    columns of `sigmoid`, of the pairs (0, 1), (0, 2), .. (K - 2, K - 1).
    """

    nr_sv: tuple[int, ...]

    def predicted(self, f: np.ndarray) -> np.ndarray:
        """By votes, as LIBSVM counts them. f : (m, pairs)."""
        return decisions.voted_classes(f, len(self.labels))

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        assert self.sigmoid is not None, "has_probabilities comes first"
        return decisions.coupled_probabilities(f, self.sigmoid, len(self.labels))

    def _expansions(self, dtype: type) -> tuple[Expansion, ...]:
        """Of each class, with a sum against each other class: a support vector's kernel value is
        computed once for all the pairs that its class is in."""
        space = Space.of(self.kernel, self.Z, dtype)
        return tuple(Expansion(space, self.Z[of], self.beta[of]) for of in self._classes)

    @property
    def _classes(self) -> list[slice]:
        """The support vectors of each class."""
        ends = np.cumsum(self.nr_sv).tolist()
        return [slice(end - count, end) for end, count in zip(ends, self.nr_sv, strict=True)]

    def _of_pairs(self, sums: np.ndarray) -> np.ndarray:
        """(m, pairs), out of each class's sums, (classes, m, classes - 1)."""
        i, j = decisions.pairs(len(self.labels))
        return (sums[i, :, j - 1] + sums[j, :, i]).T

    def _f(self, sums: np.ndarray) -> np.ndarray:
        return self._of_pairs(sums) + self.b

    @cached_property
    def _sizes(self) -> np.ndarray:
        of_classes = np.array([np.abs(self.beta[of]).sum(axis=0) for of in self._classes])
        return self._of_pairs(of_classes[:, None])[0]

    def _certain(self, f: np.ndarray, error: np.ndarray) -> np.ndarray:
        classes, certain = len(self.labels), np.abs(f) > error
        least = decisions.votes(certain & (f > 0), certain & ~(f > 0), classes)
        most = decisions.votes(~certain | (f > 0), ~certain | ~(f > 0), classes)
        winner = self.predicted(f)
        # The winner may share its votes with classes behind it.
        others = most + 0.5 * (np.arange(classes) < winner[:, None])
        row = np.arange(len(f))
        others[row, winner] = -1
        return least[row, winner] >= others.max(axis=1)

    @property
    def _grouped(self) -> tuple[int, ...]:
        return self.nr_sv
