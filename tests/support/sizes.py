"""The sizes at which the package works in another way, for tests on few rows.

The only module that knows where these constants are.
"""

from functools import partial
from typing import Any

import pytest

from randsvm.data.svmlight import ParseOptions
from randsvm.training import run

# Each size, and the constants of the package that hold it.
CONSTANTS = {
    "averaged_chunks": ["algorithms.sgd.GROUP_CHUNKS"],
    "batch_rows": ["data.batches.BATCH_ROWS"],
    "block_bytes": ["data.svmlight.BLOCK_SIZE"],
    "breakpoints": ["svm.offset.MAX_BREAKPOINTS"],
    "audit_share_of_tolerance": ["svm.running_values.MAX_ERROR_OF_TOLERANCE"],
    "audit_share_of_violation": ["svm.running_values.MAX_ERROR_OF_VIOLATION"],
    "cache_end_bytes": ["data.cache.END"],
    "panel_features": ["kernels.layouts.PANEL_FEATURES"],
    "cell_share": ["kernels.layouts.PROFITABLE"],
    "coarse_rows": ["training.search.COARSE_ROWS"],
    "connecting_seconds": ["cluster.connection.CONNECTING_SECONDS"],
    "data_bytes": ["parameters.run.Resources.data_bytes"],
    "dense_share": ["kernels.random_features.DENSE"],
    "float64_rows": [
        "svm.whole.MAX_MATRIX_ROWS",
        "training.rounds.MAX_MATRIX_ROWS",
        "training.subtasks.MAX_MATRIX_ROWS",
    ],
    "drawn_share": ["svm.scan.MOST_DRAWN"],
    "float32_limit": ["kernels.layouts.FLOAT32_LIMIT"],
    "few_loose": ["svm.scan.FEW_LOOSE"],
    "gram_rows": ["svm.subproblem.MAX_MATRIX_ROWS"],
    "inner_set_rows": ["algorithms.randsvm.FROM_ROWS"],
    "inner_set_share": ["algorithms.randsvm.MAX_PART"],
    "interrupted_seconds": ["training.rounds.INTERRUPTED_SECONDS"],
    "longest_line": ["data.svmlight.LONGEST_LINE"],
    "mapped_values": ["kernels.random_features.BLOCK"],
    "missing_seconds": ["cluster.workers.MISSING_SECONDS"],
    "patience_seconds": ["parallel.PATIENCE"],
    "piece_rows": ["data.batches.PIECE_ROWS"],
    "poll_seconds": ["cluster.workers.POLL_SECONDS"],
    "reduced_gap": ["training.rounds.MAX_REDUCED_GAP"],
    "remote_rows": ["cluster.executor.REMOTE_ROWS"],
    "search_share": ["training.run.SEARCH_TIME"],
    "side_by_side_rows": ["training.subtasks.SIDE_BY_SIDE_ROWS"],
    "silence_seconds": ["cluster.workers.SILENCE_SECONDS"],
    "sparse_features": ["kernels.layouts.MIN_FEATURES"],
    "split_rows": ["svm.blocks.MIN_SPLIT_ROWS"],
    "table_block_bytes": ["data.table.BLOCK_SIZE"],
}

# Data sets are read in several blocks of text, and in shards of 20 rows.
MANY_SHARDS = {"block_bytes": 2000, "chunk_rows": 20, "batch_rows": 60, "piece_rows": 10}
# Not all kernel values are held.
MANY_ROWS = {"float64_rows": 0, "side_by_side_rows": 0}
# Trainings begin on an inner set, as on hundreds of thousands of rows.
INNER_SETS = {"inner_set_rows": 2, "inner_set_share": 0.9}


def change_sizes(patch: pytest.MonkeyPatch, **sizes: Any) -> None:
    """Change sizes of the package until `patch` is undone; sizes: see CONSTANTS."""
    for name, size in sizes.items():
        if name == "chunk_rows":
            patch.setattr(run, "ParseOptions", partial(ParseOptions, chunk_rows=size))
        else:
            for constant in CONSTANTS[name]:
                patch.setattr(f"randsvm.{constant}", size)
