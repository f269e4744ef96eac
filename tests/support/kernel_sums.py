"""Layouts, sums and random features of randsvm.kernels, which tests compare with references."""

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
    Dense,
    Nonzeros,
    SparseBlocks,
    usual_values,
)
from randsvm.kernels.random_features import RandomMap
from randsvm.kernels.rounding import SumError, largest_offset, sum_error
