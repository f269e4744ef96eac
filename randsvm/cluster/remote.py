"""What data sets whose rows are on workers have in common, and their homes.

Knows nothing of who has which rows, nor of what is asked of them.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import Any

from randsvm.cluster.worker import Rows
from randsvm.cluster.worker_pool import WorkerPool
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import ClusterTimes, LocalExecutor


class RemoteExecutor(LocalExecutor, ABC):
    """The workers of a crew, where these rows are as soon as they are needed; see Home."""

    def __init__(self, worker_pool: WorkerPool, rows: Rows) -> None:
        self.worker_pool, self.rows = worker_pool, rows
        self.pickled_rows = pickle.dumps(rows)

    @property
    def bytes_moved(self) -> int:
        """See Home."""
        return self.worker_pool.moved

    @property
    def cluster_times(self) -> ClusterTimes:
        """See Home."""
        return self.worker_pool.spent

    @abstractmethod
    def pickled(self, D: Dataset) -> tuple[Any, ...]:
        """A view of the rows as it is sent: what is its own, to be put on the rows there."""


class RemoteDataset(Dataset):
    """Rows that are on workers; the master has what it has learnt of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self.executor, RemoteExecutor)
        return self.executor.pickled(self)

    def _view(self, **own: Any) -> Dataset:
        view = super()._view(**own)
        if not isinstance(view.executor, RemoteExecutor):
            # Its rows are here: it is like any other.
            view.__class__ = Dataset
        return view
