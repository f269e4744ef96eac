"""Rows as the package reads, keeps and draws them, given as plain arrays.

The only way from tests to the modules of randsvm.data: a change there changes this module alone.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

import randsvm
from randsvm.arrays import FEATURES, CsrMatrix, csr_parts
from randsvm.data import batches, dataset, matching, svmlight, table
from randsvm.data import chunks as storage
from randsvm.data._svmlight import end_of_records
from randsvm.data.batches import Batch, chunk_groups, shuffled_batches
from randsvm.data.chunks import RawChunk, Store
from randsvm.data.classes import labelled_classes, one_versus_rest
from randsvm.data.columns import Column, Columns, TableOptions
from randsvm.data.dataset import Dataset
from randsvm.data.labels import LabelTable
from randsvm.data.points import Points
from randsvm.data.sampling import Draw, Draws, SmallestKeys
from randsvm.data.scaling import NonzeroStatistics, Scaling, Statistics
from randsvm.data.shard_executor import Executor, Shard, StateCell
from randsvm.data.svmlight import ParseOptions
from randsvm.errors import SpillError
from randsvm.parallel import ThreadPool
from randsvm.parameters.run import Resources

# ---- the data set D ---------------------------------------------------------------------------


@contextmanager
def open_rows(
    data: Any,
    table: dict[str, Any] | None = None,
    *,
    jobs: int = 2,
    memory: int | None = None,
    cache: Path | None = None,
    **options: Any,
) -> Iterator[Dataset]:
    """Open files or Arrays as D.

    table: how a table is read, fields of TableOptions. memory: in bytes; 0: a spill file has the
    rows. options: fields of ParseOptions, such as chunk_rows=100 or labels="number".
    """
    if not isinstance(data, (randsvm.Arrays, tuple)):
        data = (str(data),)
    options["table"] = None if table is None else TableOptions(**table)
    resources = Resources(jobs=jobs, cache=None if cache is None else str(cache))
    if memory is not None:  # may be below the least value of the option
        object.__setattr__(resources, "memory", memory)
    with closing(dataset.load(data, ParseOptions(**options), resources)) as D:
        yield D


class Part(NamedTuple):
    """The rows of a chunk: the number of the first, X (m, d), y (m,), weights (m,) or None."""

    start: int
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None


def parts_of(D: Dataset) -> list[Part]:
    """Return copies of the rows of D, chunk by chunk; X is float64."""
    found = []
    for shard in D.shards:
        for start, X, y, weights in D.chunks(shard):
            dense = X.toarray() if isinstance(X, CsrMatrix) else X.astype(float)
            own = None if weights is None else weights.copy()
            found.append(Part(start, dense, y.copy(), own))
    return found


def matrix_of(D: Dataset) -> np.ndarray:
    """Return X of all rows, (n, d) float64."""
    return np.concatenate([part.X for part in parts_of(D)])


def summary_of(D: Dataset) -> dict[str, Any]:
    """Return the counts, labels and digest of a data set as values that can be compared."""
    return {**vars(D.summary), "features": D.summary.features.tolist()}


def two_classes(whole: Dataset) -> Dataset:
    """Return a view with y = +1 for the first label of the data set's model, -1 for the other."""
    return one_versus_rest(labelled_classes(whole, "")[0], 0)


def by_class(whole: Dataset, path: object = "") -> tuple[Dataset, list[str]]:
    """Return a view whose y is the number of the class in the model, and the labels in order."""
    D, order = labelled_classes(whole, str(path))
    return D, [whole.summary.labels[i] for i in order]


def scaled(D: Dataset, name: str) -> Dataset:
    return D.scaled(dataset.fitted_scaling(D, name))


def fitted_scaling(name: str, parts: list[CsrMatrix], centred: np.ndarray) -> Scaling:
    """Return the scaling that is fitted to the rows of all parts."""
    found = Statistics.total(map(NonzeroStatistics.of, parts), len(centred))
    return Scaling.fitted(name, found, centred)


def columns_of(D: Dataset) -> list[tuple[str, tuple[str, ...] | None, float | None]]:
    """Return name, categories and mean of each column of a table."""
    assert D.summary.columns is not None
    return [(one.name, one.categories, one.mean) for one in D.summary.columns.columns]


def without_parsing(patch: pytest.MonkeyPatch) -> None:
    """Let any parsing of text fail: rows can only come from a cache."""
    patch.setattr("randsvm.data.reading.read_blocks", None)


# ---- random rows ------------------------------------------------------------------------------


def sample(D: Dataset, m: int, *key: int) -> np.ndarray:
    """Return m rows drawn with the key (seed, number of the draw)."""
    return D.sample(Draw(*key), m)


def batch_of(X: np.ndarray, y: np.ndarray, order: np.ndarray, dense: bool = False) -> Batch:
    """Return rows as a batch of float32. dense: all values are stored, without columns."""
    rows = X.astype(np.float32)
    return Batch(rows if dense else CsrMatrix.from_dense(rows), y, order.astype(np.int32))


def arrays_of(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the starts of the rows of a batch, the columns and the values."""
    return csr_parts(batch.X)


def rows_of_pass(D: Dataset, draw: Draw, *chunks: Any) -> Iterator[tuple[np.ndarray, int]]:
    """Yield x (d,) and the class of each row in the random order of a pass of SGD."""
    for batch in shuffled_batches(D, draw, *chunks):
        starts, columns, values = arrays_of(batch)
        X = sparse.csr_matrix((values, columns, starts), (len(batch.y), D.d)).toarray()
        yield from ((X[i].astype(float), int(batch.y[i])) for i in batch.order)


# ---- svmlight ---------------------------------------------------------------------------------


class Block:
    """Consecutive rows of a file: codes, spellings, indptr, indices, values, y."""

    def __init__(self, rows: svmlight.ParsedRows) -> None:
        self.rows = rows
        self.indptr, self.indices, self.values = rows.X.indptr, rows.X.indices, rows.X.data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rows, name)

    def __len__(self) -> int:
        return len(self.rows)

    def without_zero_weights(self) -> Any:
        return Block(self.rows.without_zero_weights())


def parse(text: bytes, labels: Any = "class", *, name: str = "a.svm", **options: Any) -> Any:
    """Return the block of rows of a text."""
    return Block(svmlight.parse(text, ParseOptions(labels, **options), name))


def groups_of(text: bytes) -> np.ndarray:
    """Return the group of each row of a text, (m,) int64: its qid modulo 2^64."""
    block, _, fault = svmlight.parse_piece(text + svmlight.PADDING, ParseOptions(groups=True))
    assert fault is None and block.groups is not None
    return block.groups


def read_blocks(
    path: object,
    labels: Any = "class",
    *,
    threads: int = 1,
    block_size: int | None = None,
    **options: Any,
) -> Iterator[Any]:
    """Yield the blocks of rows of a file. options: fields of ParseOptions"""
    with pytest.MonkeyPatch.context() as patch:
        if block_size is not None:
            patch.setattr(svmlight, "BLOCK_SIZE", block_size)
        rows = svmlight.read_blocks(str(path), ParseOptions(labels, **options), threads=threads)
        yield from map(Block, rows)


def write_svmlight(
    stream: Any, labels: list[str], indptr: np.ndarray, indices: np.ndarray, values: np.ndarray
) -> None:
    """Write labels, and rows in CSR form."""
    svmlight.write(stream, labels, CsrMatrix(values, indices, indptr, (len(labels), FEATURES)))


# The float64 numbers that stored values stand for, and numbers as chunks keep them: float32 where
# it stands for all of them.
numbers_of = storage.numbers_of
stored = storage.as_stored


# ---- tables -----------------------------------------------------------------------------------


def record_end(text: bytes) -> int:
    """Return the end of the last complete record of a text whose fields end with ";"."""
    return end_of_records(text, len(text), ord(";")) if text else 0


def exact_sums(values: np.ndarray) -> list[Fraction]:
    """Return the sum of each row of numbers without rounding."""
    return [Fraction(one, 1 << table.EXPONENT) for one in table.exact_sums(values)]


def table_blocks(path: Path, D: Dataset, block_size: int) -> list[Any]:
    """Return the blocks of a table that has the columns of D; values are float64."""
    columns = D.summary.columns
    assert columns is not None
    how = TableOptions(columns.format, header=columns.header)
    options = ParseOptions(float64=True, table=how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "BLOCK_SIZE", block_size)
        return list(map(Block, table.read_blocks(str(path), options, columns=columns)))


# ---- chunks and states of shards --------------------------------------------------------------


def chunk(
    y: np.ndarray, X: Any, values: np.ndarray | None = None, weights: np.ndarray | None = None
) -> RawChunk:
    """Return a chunk of the rows of a CSR matrix; values: other values of its nonzeros."""
    rows = CsrMatrix(X.data if values is None else values, X.indices, X.indptr, X.shape)
    return RawChunk(rows, y, weights)


def stored_values(store: Store, number: int) -> np.ndarray:
    """Return the values of a chunk as they are stored."""
    return store.read(number).X.data


def fail_once(patch: pytest.MonkeyPatch, operation: str, failing: int) -> list[Any]:
    """Let a call of "write" or "finish" of a spill file fail; return the list of all calls.

    failing: the number of the call that fails, from 0
    """
    calls, real = [], getattr(storage.ChunkFile, operation)

    def fails_once(file: Any, *words: Any) -> Any:
        calls.append(words)
        done = real(file, *words)
        if len(calls) == failing + 1:
            raise SpillError("writing the spill file: No space left on device")
        return done

    patch.setattr(storage.ChunkFile, operation, fails_once)
    return calls


@contextmanager
def shard_states(sizes: list[int]) -> Iterator[Any]:
    """Yield states of shards with these numbers of rows; each is a list with the shard's number."""
    ends = np.cumsum([0, *sizes]).tolist()
    shards = [Shard(i, ends[i], ends[i + 1]) for i in range(len(sizes))]
    with ThreadPool(2) as pool:
        yield Executor(pool).states(lambda shard: [shard.number], shards)


# ---- rows by content --------------------------------------------------------------------------

NOT_FOUND = matching.NOT_FOUND
# Which rows of a data set equal the rows of a CSR matrix with given features.
matches = matching.matches
