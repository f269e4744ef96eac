"""The sizes at which the package works in another way, for tests on few rows.

The only module that knows the names of these constants.
"""

from __future__ import annotations

from functools import partial

import pytest

from randsvm.algorithms import randsvm
from randsvm.data import batches, svmlight
from randsvm.data.reading import ParseOptions
from randsvm.parameters.run import Resources
from randsvm.svm import subproblem
from randsvm.training import run, subtasks


def many_shards(patch: pytest.MonkeyPatch, rows: int = 20) -> None:
    """Read data sets in several blocks of text, and in shards of this many rows."""
    patch.setattr(run, "ParseOptions", partial(ParseOptions, chunk_rows=rows))
    blocks = {**(svmlight.read_blocks.__kwdefaults__ or {}), "block_size": 2000}
    patch.setattr(svmlight.read_blocks, "__kwdefaults__", blocks)
    patch.setattr(batches, "BATCH_ROWS", 3 * rows)
    patch.setattr(batches, "PIECE_ROWS", rows // 2)


def spill_rows(patch: pytest.MonkeyPatch) -> None:
    """Leave no memory for rows: they are read from a spill file."""
    patch.setattr(Resources, "data_bytes", property(lambda resources: 0))


def as_many_rows(patch: pytest.MonkeyPatch) -> None:
    """Train as on more rows than whose kernel values are all held."""
    patch.setattr("randsvm.svm.running_values.FEW_ROWS", 0)
    patch.setattr("randsvm.svm.shared_kernel.FEW_ROWS", 0)
    patch.setattr("randsvm.training.subtasks.FEW_ROWS", 0)
    patch.setattr(subtasks, "SIDE_BY_SIDE_ROWS", 0)


def inner_sets(patch: pytest.MonkeyPatch) -> None:
    """Train on an inner set first, as hundreds of thousands of rows do."""
    patch.setattr(randsvm, "FROM_ROWS", 2)
    patch.setattr(randsvm, "MAX_PART", 0.9)


def no_gram_matrices(patch: pytest.MonkeyPatch) -> None:
    """Hold the kernel values of subproblems of up to 100 rows only."""
    patch.setattr(subproblem, "MAX_GRAM_ROWS", 100)
