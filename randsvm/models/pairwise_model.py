"""Kernel models of several classes, one against one, as LIBSVM has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randsvm.kernels.expansion import Expansion, KernelLayout
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

    def _expansions(self, kernel_layout: KernelLayout, beta: np.ndarray) -> tuple[Expansion, ...]:
        """Of each class, with a sum against each other class: a support vector's kernel value is
        computed once for all the pairs that its class is in."""
        ends = np.cumsum(self.nr_sv).tolist()
        classes = [slice(end - count, end) for end, count in zip(ends, self.nr_sv, strict=True)]
        return tuple(Expansion(kernel_layout, self.Z[each], beta[each]) for each in classes)

    def _f(self, sums: np.ndarray) -> np.ndarray:
        """(m, pairs). sums : (classes, m, classes - 1)."""
        i, j = decisions.pairs(len(self.labels))
        return (sums[i, :, j - 1] + sums[j, :, i]).T + self.b

    def _sizes(self, sums: np.ndarray) -> np.ndarray:
        i, j = decisions.pairs(len(self.labels))
        return (sums[i] + sums[j]).T

    def _certain(self, f: np.ndarray, off: np.ndarray) -> np.ndarray:
        """Whether the winner keeps the most votes if all pairs that are in doubt vote against it,
        and each for whom it likes."""
        doubtful = np.abs(f) <= off
        certain = ~doubtful.any(axis=1)
        some = np.flatnonzero(~certain)
        certain[some] = self._wins_anyway(f[some], doubtful[some])
        return certain

    def _wins_anyway(self, f: np.ndarray, doubtful: np.ndarray) -> np.ndarray:
        """(m,) bool. Both arguments: (m, pairs)."""
        classes, wins = len(self.labels), f > 0
        least = decisions.votes(wins & ~doubtful, ~(wins | doubtful), classes)
        most = decisions.votes(wins | doubtful, ~wins | doubtful, classes)
        row, winner = np.arange(len(f)), self.predicted(f)
        # The winner may share its votes with classes behind it.
        most += 0.5 * (np.arange(classes) < winner[:, None])
        most[row, winner] = -1
        return least[row, winner] >= most.max(axis=1)

    @property
    def _grouped(self) -> tuple[int, ...]:
        return self.nr_sv

    def of_pair(self, first: int, second: int) -> KernelModel:
        """The model of two classes alone, f > 0 for `first`."""
        i, j = sorted((first, second))
        sign = 1.0 if first == i else -1.0
        ends = np.cumsum(self.nr_sv)
        rows = np.concatenate([np.arange(ends[k] - self.nr_sv[k], ends[k]) for k in (i, j)])
        columns = np.repeat([j - 1, i], [self.nr_sv[i], self.nr_sv[j]])
        beta = sign * self.beta[rows, columns]
        used = beta != 0
        number = i * len(self.labels) - i * (i + 1) // 2 + j - i - 1
        return KernelModel(
            task=self.task,
            kernel=self.kernel,
            Z=self.Z[rows[used]],
            beta=beta[used, None],
            b=sign * self.b[number : number + 1],
            features=self.features,
            labels=(self.labels[first], self.labels[second]),
            values=(self.values[first], self.values[second]),
            zero_based=self.zero_based,
            seen=self.seen,
            scaling=self.scaling,
            precise=self.precise,
        )
