"""The rows of D once more, class by class: a pair of classes is a view that reads nothing else.

Knows nothing of what is learnt from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from randsvm.data.chunks import ChosenChunks, FileStore, RamStore, RawChunk, Spilling, joined
from randsvm.data.dataset import Dataset
from randsvm.events import check

# A chunk of one class is cut after so many rows, or so many nonzeros: every class has one that is
# being filled.
CHUNK_ROWS = 8192
CHUNK_NONZEROS = 1 << 17


@dataclass(frozen=True)
class Grouped:
    """D, whose y are class indices; store: its chunks, each with rows of one class, in order.

    numbers: of each class, its chunks in the store; rows: of each class, the numbers of its rows
    in D, ascending, (m,) int64.
    """

    D: Dataset
    store: RamStore | FileStore
    numbers: list[list[int]]
    rows: list[np.ndarray]

    @staticmethod
    def of(D: Dataset, classes: int, limit: int, folder: str | None) -> Grouped:
        """limit, folder: as Spilling has them."""
        spilling = Spilling(limit, folder)
        numbers: list[list[int]] = [[] for _ in range(classes)]
        rows: list[list[np.ndarray]] = [[] for _ in range(classes)]
        open_: list[list[RawChunk]] = [[] for _ in range(classes)]
        count = 0

        def close(index: int) -> None:
            nonlocal count
            if open_[index]:
                spilling.append(joined(open_[index]))
                numbers[index].append(count)
                count += 1
                open_[index].clear()

        for shard in D.shards:
            check()
            raw, y = D.raw(shard)
            for index in range(classes):
                here = np.flatnonzero(y == index)
                if len(here):
                    open_[index].append(raw[here])
                    rows[index].append(here + shard.start)
                    if _full(open_[index]):
                        close(index)
        for index in range(classes):
            close(index)
        spilling.store.finish()
        return Grouped(D, spilling.store, numbers, [_together(each) for each in rows])

    def pair(self, first: int, second: int) -> tuple[Dataset, np.ndarray]:
        """The view of the rows of two classes, y = +1 for the first and -1 for the second, and the
        number in D of each of its rows."""
        assert self.D.targets is not None
        own = ChosenChunks(self.store, self.numbers[first] + self.numbers[second])
        targets = np.where(self.D.targets == first, 1.0, -1.0)
        rows = np.concatenate([self.rows[first], self.rows[second]])
        return self.D.stored_in(own).relabel(targets), rows

    def close(self) -> None:
        self.store.close()


def _full(parts: Sequence[RawChunk]) -> bool:
    rows = sum(len(part.y) for part in parts)
    return rows >= CHUNK_ROWS or sum(len(part.values) for part in parts) >= CHUNK_NONZEROS


def _together(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
