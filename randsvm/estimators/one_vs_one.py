"""Decision values and weights of pairs of classes, (0, 1), (0, 2) .. (K - 2, K - 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from randsvm.models.decisions import class_pairs


def class_values(f: np.ndarray, K: int) -> np.ndarray:
    """Return a value for each class, (m, K): its votes plus a share of a vote that breaks ties.

    f : (m, pairs), > 0 for the first class of a pair. Among classes with equal votes the class with
    the largest sum of decision values has the largest value.
    """
    votes, sums = np.zeros((2, len(f), K))
    for column, i, j in zip(f.T, *class_pairs(K), strict=True):
        votes[:, i] += column >= 0
        votes[:, j] += column < 0
        sums[:, i] += column
        sums[:, j] -= column
    # The added part is within (-1/3, 1/3), so that it only breaks ties.
    return votes + sums / (3 * (np.abs(sums) + 1))


def pair_weights(dual_coef: np.ndarray, support_vectors: Any, n_support: np.ndarray) -> np.ndarray:
    """Return the weights w of each pair with the linear kernel, (pairs, d).

    dual_coef : (K - 1, m), LIBSVM's sv_coef. support_vectors : (m, d), an array or CSR, grouped by
    class; n_support : (K,) their number in each class.
    """
    ends = np.cumsum(n_support).tolist()
    class_rows = [
        slice(end - count, end) for end, count in zip(ends, n_support.tolist(), strict=True)
    ]
    return np.array(
        [
            dual_coef[j - 1, class_rows[i]] @ support_vectors[class_rows[i]]
            + dual_coef[i, class_rows[j]] @ support_vectors[class_rows[j]]
            for i, j in zip(*class_pairs(len(class_rows)), strict=True)
        ]
    )
