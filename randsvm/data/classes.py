"""Views of D by its classes: as class indices, one class against the rest, all rows as one class.

Knows nothing of what is learnt from them.
"""

from __future__ import annotations

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.errors import DataError
from randsvm.files import display_name


def labelled_classes(D: Dataset, path: str) -> tuple[Dataset, list[int]]:
    """The view of D with y = class index in the model, and the number in D of each such class.

    Of the labels -1 and +1 the positive one comes first, as in LIBSVM; others are in the order in
    which the file has them. Raises DataError when there is only one.
    """
    values, names = D.summary.values, D.summary.names
    if len(values) == 1:
        found = f"expected two classes, found only the label {names[0]}"
        raise DataError(display_name(path), 1, 1, found)
    order = [1, 0] if tuple(values) == (-1, 1) else list(range(len(values)))
    return D.relabel(np.argsort(order).astype(float)), order


def against_the_rest(D: Dataset, index: int) -> Dataset:
    """The view of a view of `labelled_classes` with y = +1 for one class, -1 for all others."""
    assert D.targets is not None
    return D.relabel(np.where(D.targets == index, 1.0, -1.0))


def one_class(D: Dataset) -> Dataset:
    """The view of D in which all rows are of one class: y = 0."""
    return D.relabel(np.zeros(len(D.summary.values)))
