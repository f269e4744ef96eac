"""Views of D by class: class indices, one class against the rest, pairs of classes.

Rows can be copied into chunks of one class each, so that a pair of classes reads no other rows.
This module does not know the trainers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randsvm.data.chunks import RawChunk, join_chunks
from randsvm.data.dataset import Dataset
from randsvm.data.regrouping import joined_shards
from randsvm.data.shard_executor import Shard
from randsvm.errors import DataError
from randsvm.files import display_name


def labelled_classes(D: Dataset, path: str) -> tuple[Dataset, list[int]]:
    """Return a view of D whose y are class indices of the model, and a list of class numbers of D.

    Entry i of the list is the class number in D of the class with index i in the model.

    Of the labels -1 and +1 the positive one comes first, as in LIBSVM; other labels are in the
    order of the file. Raises DataError for a single class.
    """
    values, names = D.summary.values, D.summary.names
    if len(values) == 1:
        found = f"expected two classes, found only the label {names[0]}"
        raise DataError(display_name(path), 1, 1, found)
    order = [1, 0] if tuple(values) == (-1, 1) else list(range(len(values)))
    return D.relabel(np.argsort(order).astype(float)), order


def one_versus_rest(D: Dataset, index: int) -> Dataset:
    """Return a view with y = +1 for one class and -1 for the others. D: from `labelled_classes`."""
    assert D.targets is not None
    return D.relabel(np.where(D.targets == index, 1.0, -1.0))


def one_class(D: Dataset) -> Dataset:
    """Return a view of D with y = 0 for all rows."""
    return D.relabel(np.zeros(len(D.summary.values)))


# ---- chunks of one class ---------------------------------------------------------------------


@dataclass(frozen=True)
class ClassChunkPlan:
    """A division of rows into chunks of one class each, in order.

    For each chunk, classes: its class; shards: the numbers of the shards of D that have its rows;
    sizes, counts : (chunks,) int64, its numbers of rows and of nonzeros.
    """

    classes: list[int]
    shards: list[list[int]]
    sizes: np.ndarray
    counts: np.ndarray

    @staticmethod
    def cut(rows: np.ndarray, nonzeros: np.ndarray) -> ClassChunkPlan:
        """Plan chunks. rows, nonzeros : (shards, classes) int64, of each class in each shard."""
        of, shards, sizes, counts = [], [], [], []
        for index, (m, nnz) in enumerate(zip(rows.T, nonzeros.T, strict=True)):
            for held in joined_shards(m, nnz):
                of.append(index)
                shards.append(held)
                sizes.append(m[held].sum())
                counts.append(nnz[held].sum())
        return ClassChunkPlan(of, shards, np.array(sizes, np.int64), np.array(counts, np.int64))

    def made(self, D: Dataset, number: int) -> RawChunk:
        """Return a chunk, from the rows of D; y of D are class indices."""
        parts = []
        for shard in self.shards[number]:
            raw, y = D.raw(D.shards[shard])
            parts.append(raw[np.flatnonzero(y == self.classes[number])])
        return join_chunks(parts)


@dataclass(frozen=True)
class RowsByClass:
    """The rows of a data set in chunks of one class each, so that a pair of classes reads no
    others.

    numbers: the chunks of each class; rows: for each class, the numbers of its rows in the original
    data set, ascending, (m,) int64.
    """

    D: Dataset
    numbers: list[list[int]]
    rows: list[np.ndarray]

    @staticmethod
    def of(D: Dataset, classes: int, limit: int, folder: str | None) -> RowsByClass:
        """Return the rows by class. y of D are class indices; limit, folder: see ComputedStore."""

        def by_class(shard: Shard) -> tuple[list[np.ndarray], np.ndarray]:
            raw, y = D.raw(shard)
            lengths = np.diff(raw.indptr)
            rows = [np.flatnonzero(y == index) for index in range(classes)]
            return [here + shard.start for here in rows], np.array([lengths[r].sum() for r in rows])

        found = list(D.map(by_class))
        sizes = np.array([[len(here) for here in rows] for rows, _ in found], np.int64)
        chunks = ClassChunkPlan.cut(sizes, np.array([counts for _, counts in found], np.int64))
        numbers = [
            [i for i, c in enumerate(chunks.classes) if c == index] for index in range(classes)
        ]
        rows = [np.concatenate([rows[index] for rows, _ in found]) for index in range(classes)]
        whole = D.with_computed_chunks(chunks.made, chunks.sizes, chunks.counts, limit, folder)
        return RowsByClass(whole, numbers, rows)

    def pair(self, first: int, second: int) -> tuple[Dataset, np.ndarray]:
        """Return a view of two classes, and the original number of each of its rows.

        y is +1 for the first class and -1 for the second.
        """
        assert self.D.targets is not None
        view = self.D.chunk_subset(self.numbers[first] + self.numbers[second])
        targets = np.where(self.D.targets == first, 1.0, -1.0)
        rows = np.concatenate([self.rows[first], self.rows[second]])
        return view.relabel(targets), rows

    def close(self) -> None:
        self.D.executor.release()
        self.D.store.close()
