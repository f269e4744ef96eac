"""Layouts, sums and random features of randsvm.kernels, which tests compare with references."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from randsvm.kernels import layouts, random_features
from randsvm.kernels._kernels import (
    CELL_ROWS,
    PANEL_CENTRES,
    PANEL_COLUMNS,
    add_sums_of_cells,
    dense_rbf,
    sparse_rbf,
)
from randsvm.kernels.expansion import Expansion, centred_gram, exact_gram, exact_layout, gram
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import (
    BLOCK_CENTRES,
    BLOCK_ROWS,
    GRAM_ROWS,
    SLICE_ROWS,
    Blocks,
    Cells,
    Compiled,
    Dense,
    Layout,
    Nonzeros,
    SparseBlocks,
    choose_layout,
    usual_values,
)
from randsvm.kernels.random_features import RandomMap
from randsvm.kernels.rounding import SumError, largest_offset, sum_error


@contextmanager
def counted_values() -> Iterator[list[float]]:
    """Yield a list to which each sum of kernel values, and each matrix of them, adds the number of
    values that it computes. A value in float64 counts as two."""
    counts: list[float] = []

    def counting(function: Callable[..., Any], size: Callable[..., int]) -> Any:
        def counted(self: Layout, *args: Any) -> Any:
            found = function(self, *args)
            counts.append(size(found, *args) * (2 if self.dtype is np.float64 else 1))
            return found

        return counted

    def pairs(_: Any, u: np.ndarray, rows: Any, centres: Any) -> int:
        return len(u) * centres[-1].shape[0]

    with pytest.MonkeyPatch.context() as patch:
        for of in (Layout, Compiled):
            patch.setattr(of, "add", counting(of.add, pairs))
        kept = counting(Cells.add_near, lambda found, u, *_: found)
        patch.setattr(Cells, "add_near", kept)
        patch.setattr(Layout, "gram", counting(Layout.gram, lambda K, *_: K.size // 2))
        yield counts
