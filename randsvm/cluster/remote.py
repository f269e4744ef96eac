"""What data sets whose rows are on workers have in common, and their homes.

Knows nothing of who has which rows, nor of what is asked of them.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import Any

from randsvm.cluster.crew import Crew
from randsvm.cluster.worker import Rows
from randsvm.data.dataset import Dataset
from randsvm.data.home import Plain, Spent


class RemoteHome(Plain, ABC):
    """The workers of a crew, where these rows are as soon as they are needed; see Home."""

    def __init__(self, crew: Crew, rows: Rows) -> None:
        self.crew, self.rows = crew, rows
        self.pickled_rows = pickle.dumps(rows)

    @property
    def moved(self) -> int:
        """See Home."""
        return self.crew.moved

    @property
    def spent(self) -> Spent:
        """See Home."""
        return self.crew.spent

    @abstractmethod
    def pickled(self, D: Dataset) -> tuple[Any, ...]:
        """A view of the rows as it is sent: what is its own, to be put on the rows there."""


class RemoteDataset(Dataset):
    """Rows that are on workers; the master has what it has learnt of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self.home, RemoteHome)
        return self.home.pickled(self)

    def _view(self, **own: Any) -> Dataset:
        view = super()._view(**own)
        if not isinstance(view.home, RemoteHome):
            # Its rows are here: it is like any other.
            view.__class__ = Dataset
        return view
