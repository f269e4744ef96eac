"""Views of D by class: class indices, one class against the rest, pairs of classes.

Rows can be copied into chunks of one class each, so that a pair of classes reads no other rows.
This module does not know the trainers.
"""

from __future__ import annotations

import numpy as np

from randsvm.data.chunks import new_store
from randsvm.data.dataset import Dataset
from randsvm.data.labels import label_values
from randsvm.errors import DataError
from randsvm.files import display_name


def labelled_classes(D: Dataset, path: str) -> tuple[Dataset, list[int]]:
    """Return a view of D whose y are class indices of the model, and a list of class numbers of D.

    Entry i of the list is the class number in D of the class with index i in the model.

    Of the labels -1 and +1 the positive one comes first, as in LIBSVM; other labels are in the
    order of the file. Raises DataError for a single class.
    """
    labels = D.summary.labels
    if len(labels) == 1:
        found = f"expected two classes, found only the label {labels[0]}"
        raise DataError(display_name(path), 1, 1, found)
    order = [1, 0] if label_values(labels) == (-1, 1) else list(range(len(labels)))
    return D.relabel(np.argsort(order).astype(float)), order


def one_versus_rest(D: Dataset, index: int) -> Dataset:
    """Return a view with y = +1 for one class and -1 for the others. D: from `labelled_classes`."""
    assert D.targets is not None
    return D.relabel(np.where(D.targets == index, 1.0, -1.0))


def one_class(D: Dataset) -> Dataset:
    """Return a view of D with y = 0 for all rows."""
    return D.relabel(np.zeros(len(D.summary.labels)))


# ---- chunks of one class ---------------------------------------------------------------------


class RowsByClass:
    """The rows of a data set in chunks of one class each, so that a pair of classes reads no
    others."""

    def __init__(self, D: Dataset, classes: int, limit: int, folder: str | None) -> None:
        """Copy the rows. y of D are class indices. limit, folder: see Store."""
        y = D.labels()
        # For each class, its rows in D, ascending, and the numbers of its chunks.
        self.rows = [np.flatnonzero(y == index) for index in range(classes)]
        self.numbers: list[range] = []
        self.D, self.chunks = D, 0
        with new_store(limit, folder) as self.store:
            for rows in self.rows:
                before = len(self.store)
                for chunk in D.subset(D.mask(rows)).copied():
                    self.store.append(chunk)
                self.numbers.append(range(before, len(self.store)))

    def pair(self, first: int, second: int) -> tuple[Dataset, np.ndarray]:
        """Return a view of two classes, and the number in D of each of its rows.

        y is +1 for the first class and -1 for the second.
        """
        assert self.D.targets is not None
        view = self.D.with_store(self.store.chosen([*self.numbers[first], *self.numbers[second]]))
        rows = np.concatenate([self.rows[first], self.rows[second]])
        return view.relabel(np.where(self.D.targets == first, 1.0, -1.0)), rows

    def close(self) -> None:
        self.store.close()
