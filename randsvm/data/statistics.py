"""Statistics of the features of D, by its shards, and the scaling that follows from them.

Knows nothing of what a scaling does.
"""

from __future__ import annotations

import functools
import operator

from randsvm.data.dataset import Dataset
from randsvm.data.scaling import SPARSE, Scaling, Statistics
from randsvm.data.shard_executor import Shard


def scaling_of(D: Dataset, name: str) -> Scaling:
    """The scaling `name`, fitted to the rows of D; sparse data is not centred and stays sparse."""
    if name == "unit":
        return Scaling(name)
    return Scaling.fitted(name, statistics_of(D), centred=D.nnz >= SPARSE * D.n * D.d)


def statistics_of(D: Dataset) -> Statistics:
    """Of the features of D, without a `mapping`."""

    def of(shard: Shard) -> Statistics | None:
        X = D.chunk(shard.number).X
        return Statistics.of(X) if X.shape[0] else None

    return functools.reduce(operator.add, filter(None, D.map(of)))
