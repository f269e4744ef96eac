"""The training set D in chunks, and its views.

This module does not know the tasks or the functions that compute features.
"""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from randsvm.arrays import (
    CsrMatrix,
    Matrix,
    csr_of_all,
    distinct,
    slices,
    sorted_union,
    sum_of_weights,
    sums_of_classes,
    to_csr,
)
from randsvm.data import cache, in_memory
from randsvm.data.chunks import (
    CHUNK_ROWS,
    RawChunk,
    Store,
    cut_chunks,
    join_chunks,
    new_store,
    numbers_of,
)
from randsvm.data.points import Points
from randsvm.data.reading import Summary
from randsvm.data.sampling import Draw, Draws, SmallestKeys
from randsvm.data.scaling import SPARSE, NonzeroStatistics, Scaling, Statistics
from randsvm.data.shard_executor import WAITING_RESULTS, Executor, Shard, ShardStates
from randsvm.data.svmlight import ParseOptions
from randsvm.events import listening
from randsvm.parallel import Cancelled, ThreadPool
from randsvm.parameters.run import Resources

Item = TypeVar("Item")
Result = TypeVar("Result")
State = TypeVar("State")

# Nonzeros after which a chunk of copied rows ends.
COPIED_NONZEROS = 1 << 17
# Values of computed features at a time: they fit the L3 cache.
MAPPED_VALUES = 1 << 21
# Rows whose keys are computed at once.
KEYS_AT_ONCE = 1 << 18
# The first random subset has at least this many rows of each class, if there are as many, so that
# LIBSVM gets rows of both classes.
CLASS_ROWS = 10


class Chunk(NamedTuple):
    """Rows start .. start + m - 1 of D.

    X : (m, d), CSR of float64, or a float32 array computed by a `mapping`; y : (m,) float64;
    weights : (m,) float64, or None if those of D are all 1.
    """

    start: int
    X: Matrix
    y: np.ndarray
    weights: np.ndarray | None = None


# The rows of a training: the names of files, or arrays.
Source: TypeAlias = "tuple[str, ...] | in_memory.Arrays"

# Rows of a stored chunk: the number of the chunk, the first row in it, and the end.
RowRange: TypeAlias = tuple[int, int, int]


class FeatureMap(Protocol):
    """A function that computes other features, such as random ones, from the features of rows."""

    @property
    def width(self) -> int:
        """Return the number of features that are computed."""

    @property
    def reads_numbers(self) -> bool:
        """Return whether they are computed from the numbers of the file, not the stored values."""

    def values(self, X: CsrMatrix) -> np.ndarray:
        """Return the features of each row, (m, width), C-contiguous. X : (m, d) CSR."""


class Dataset:
    """The training set D: its shards, random rows, and `map` over the shards.

    n, d, nnz: the numbers of rows, distinct features and nonzeros. In a view of some rows nnz is an
    estimate, and in a scaled one an upper bound.

    targets : (classes,) float64, the value of y for each class number (see `relabel`); None: y as
    stored.

    row_mask : (rows stored,) bool, the rows of this view (see `subset`); None: all.

    own_weights : (n,) float64, weights in place of those of the data (see `reweighted`), or None.

    groups : (n,) int64, equal for rows that a fold must not separate, or None.

    scaling, mapping: applied to rows when they are read (see `scaled`, `mapped`).
    """

    def __init__(self, summary: Summary, store: Store, threads: int) -> None:
        self.n, self.nnz, self.d = summary.n, summary.nnz, len(summary.features)
        self.store = store
        self.threads = threads
        self.pool = ThreadPool(threads)
        self.executor = Executor(self.pool)
        # The first row of each chunk among the stored rows.
        self.stored_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(store.sizes)])
        self._count_from(self.stored_starts)
        self.targets: np.ndarray | None = None
        self.row_mask: np.ndarray | None = None
        self.own_weights: np.ndarray | None = None
        # `groups` is apart from the summary: `subset` selects from it, and workers do not need it.
        self.groups, self.summary = summary.groups, replace(summary, groups=None)
        self.scaling: Scaling | None = None
        self.mapping: FeatureMap | None = None

    def relabel(self, targets: np.ndarray) -> Dataset:
        """Return a view whose y is targets[class]. It shares the data."""
        return self._copy_with(targets=np.asarray(targets, float))

    def subset(self, mask: np.ndarray) -> Dataset:
        """Return a view of the rows where `mask` is true, renumbered from 0. mask : (n,) bool."""
        chosen = mask
        if self.row_mask is not None:
            chosen = self.row_mask.copy()
            # `mask` has an entry for each row that this view has.
            chosen[chosen] = mask
        n = int(mask.sum())
        view = self._copy_with(
            row_mask=chosen,
            n=n,
            nnz=round(self.nnz * n / self.n),
            own_weights=None if self.own_weights is None else self.own_weights[mask],
            groups=None if self.groups is None else self.groups[mask],
        )
        ends = zip(self.stored_starts[:-1], self.stored_starts[1:], strict=True)
        counts = [np.count_nonzero(chosen[begin:end]) for begin, end in ends]
        view._count_from(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))
        return view

    def reweighted(self, weights: np.ndarray) -> Dataset:
        """Return a view of the same rows with other weights, (n,) float64; 0 leaves a row out."""
        return self._copy_with(own_weights=weights, summary=replace(self.summary, weighted=True))

    def regrouped(self, limit: int, folder: str | None) -> Dataset:
        """Return a view with the same rows copied to full chunks, so that a pass reads no others.

        The caller releases its executor and closes its store. limit, folder: see Store.
        """
        with new_store(limit, folder) as store:
            for chunk in self.copied():
                store.append(chunk)
        return self.with_store(store)

    def copied(self) -> Iterator[RawChunk]:
        """Yield the rows of this view, as they are stored, in full chunks of their own."""
        shards = [shard for shard in self.shards if shard.stop > shard.start]
        parts = self.executor.map(self.stored, shards)
        return cut_chunks(parts, CHUNK_ROWS, COPIED_NONZEROS, split=False)

    def copied_to_memory(self) -> Dataset:
        """Return a view with the same rows copied to full chunks in memory."""
        return self.regrouped(sys.maxsize, None)

    def single_threaded(self) -> Dataset:
        """Return a view whose work runs in the calling thread, or on a cluster as before."""
        return self._copy_with(executor=self.executor.single_threaded())

    def in_threads(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return work(item) for each item, computed by the threads of this process.

        In a view whose work runs in the calling thread, that thread computes all of them. If an
        exception, such as that of a signal, ends the wait, then work ends at its next event: the
        closing evaluation needs the threads.
        """
        if self.executor.pool is None:
            return list(map(work, items))
        ended = threading.Event()

        def watch(event: object) -> None:
            if ended.is_set():
                raise Cancelled

        def run(item: Item) -> Result:
            with listening(watch):
                return work(item)

        try:
            return list(self.pool.map_in_order(run, items))
        finally:
            ended.set()

    def with_store(self, store: Store) -> Dataset:
        """Return a view of all rows of another store, with the labels, scaling and mapping of this
        one."""
        n, nonzeros = int(store.sizes.sum()), int(store.nonzeros.sum())
        if self.scaling is not None:
            nonzeros = self.scaling.nonzeros(n, self.d, nonzeros)
        view = self._copy_with(store=store, row_mask=None, n=n, nnz=nonzeros)
        view.stored_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(store.sizes)])
        view._count_from(view.stored_starts)
        view.executor = view.executor.for_store_of(view)
        return view

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Return which rows of D have these numbers, (n,) bool."""
        mask = np.zeros(self.n, bool)
        mask[rows] = True
        return mask

    def scaled(self, scaling: Scaling) -> Dataset:
        """Return a view whose rows are scaled when they are read, before any `mapping`."""
        return self._copy_with(scaling=scaling, nnz=scaling.nonzeros(self.n, self.d, self.nnz))

    def mapped(self, mapping: FeatureMap) -> Dataset:
        """Return a view whose features are computed by `mapping` when rows are read."""
        return self._copy_with(mapping=mapping, d=mapping.width, nnz=self.n * mapping.width)

    @property
    def original(self) -> Dataset:
        """Return a view of the same rows and labels with the features of the file."""
        return self._copy_with(scaling=None, mapping=None, d=len(self.summary.features))

    def _copy_with(self, **own: Any) -> Dataset:
        """Return a view with other attributes."""
        view = object.__new__(Dataset)
        view.__dict__ = {**self.__dict__, **own}
        return view

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that workers of a cluster need."""
        state = {**vars(self), "groups": None}
        state.pop("_column_rule", None)
        return state

    def labels(self) -> np.ndarray:
        """Return y of every row, (n,) float64."""
        return np.concatenate(list(self.map(self.labels_of)))

    def labels_of(self, shard: Shard) -> np.ndarray:
        """Return y of the rows of a shard, (m,) float64."""
        y = self.store.chunks[shard.number].y
        return self._labels(y[self._places(shard.number)])

    def weights(self) -> np.ndarray | None:
        """Return the weight of every row, (n,) float64, or None if those of the data are all 1."""
        if not self.summary.weighted:
            return None
        return np.concatenate([of for of in self.map(self.weights_of) if of is not None])

    def weights_of(self, shard: Shard) -> np.ndarray | None:
        """Return the weights of the rows of a shard, (m,) float64; None if `weights` is None."""
        if self.own_weights is not None:
            return self.own_weights[shard.start : shard.stop]
        chunk = self.store.chunks[shard.number]
        weights = self._weights(chunk.weights, len(chunk))
        return None if weights is None else weights[self._places(shard.number)]

    def total_weight(self) -> float:
        """Return the sum of the weights of all rows of this view, n if rows have no weights."""
        weights = self.weights()
        return float(self.n) if weights is None else sum_of_weights(weights)

    def class_totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of rows of each class of this view, (K,) int64, and the sum of their
        weights, (K,) float64; in the order of class indices."""
        assert self.targets is not None
        if self.row_mask is None and self.own_weights is None:
            order = np.argsort(self.targets)
            summary = self.summary
            return np.array(summary.counts)[order], np.array(summary.total_weight_by_class)[order]
        y = self.labels().astype(np.int64)
        counts = np.bincount(y, minlength=len(self.targets))
        return counts, sums_of_classes(y, self.weights(), len(counts))

    def _count_from(self, starts: np.ndarray) -> None:
        """Set the shards. starts : (chunks + 1,) int64, the first row of each chunk, and n."""
        pairs = itertools.pairwise(starts.tolist())
        self.shards = [Shard(number, *rows) for number, rows in enumerate(pairs)]

    @cached_property
    def _column_rule(self) -> np.ndarray | int | None:
        """Return the rule from index to column: an offset, a table, or None (search)."""
        features = self.summary.features
        d = len(features)
        if d == 0 or features[-1] - features[0] == d - 1:
            return int(features[0]) if d else 0
        if features[-1] < max(1 << 16, 64 * d):
            table = np.zeros(int(features[-1]) + 1, np.int32)
            table[features] = np.arange(d, dtype=np.int32)
            return table
        return None

    def _columns(self, indices: np.ndarray) -> np.ndarray:
        """Return the columns of features. indices : (nnz,) int32; returns (nnz,) int32."""
        how = self._column_rule
        if isinstance(how, np.ndarray):
            return how[indices]
        if how is None:
            return np.searchsorted(self.summary.features, indices).astype(np.int32)
        return indices - np.int32(how)

    def _chunk(self, shard: Shard, rows: np.ndarray | None = None) -> Chunk:
        """Return rows of a shard without `mapping`. rows: see `stored`."""
        raw = self.stored(shard, rows)
        weights = self.weights_of(shard)
        if weights is not None and rows is not None:
            weights = weights[rows]
        return Chunk(shard.start, self._matrix(raw), self._labels(raw.y), weights)

    def stored(self, shard: Shard, rows: np.ndarray | None = None) -> RawChunk:
        """Return rows of a shard as they are stored.

        rows : (m,) int64, positions in the shard; None: all.
        """
        places = self._places(shard.number)
        if rows is not None:
            places = rows if isinstance(places, slice) else places[rows]
        return self.store.read(shard.number)[places]

    def _places(self, number: int) -> slice | np.ndarray:
        """Return the positions in a stored chunk of the rows of this view, (m,) int64, or a slice
        of all."""
        if self.row_mask is None:
            return slice(None)
        begin, end = self.stored_starts[number : number + 2]
        return self.row_mask[begin:end].nonzero()[0]

    def read_ranges(
        self, ranges: Sequence[RowRange]
    ) -> tuple[CsrMatrix, np.ndarray, np.ndarray | None, np.ndarray]:
        """Return X, y and weights of ranges of stored rows, and the positions of the rows of this
        view.

        X has the stored values, scaled, without `mapping`. The ranges follow each other in the
        result.
        """
        assert self.own_weights is None, "the weights are those of the stored rows"
        parts, chosen, rows = [], [], 0
        for number, begin, end in ranges:
            some = np.arange(end - begin)
            if self.row_mask is not None:
                first = self.stored_starts[number]
                some = np.flatnonzero(self.row_mask[first + begin : first + end])
            chosen.append(some + rows)
            parts.append(self.store.read(number, slice(begin, end)))
            rows += end - begin
        raw = join_chunks(parts)
        weights = self._weights(raw.weights, rows)
        X = self._matrix(raw, exact=False)
        return X, self._labels(raw.y), weights, np.concatenate(chosen)

    def _matrix(self, raw: RawChunk, *, exact: bool = True) -> CsrMatrix:
        """Return X of stored rows, scaled.

        exact: whether X has the numbers of the file; otherwise, and where a `mapping` does not
        read them, it has the stored values.
        """
        exact = exact and (self.mapping is None or self.mapping.reads_numbers)
        X = raw.X.with_columns(self._columns(raw.X.indices), len(self.summary.features))
        X = X.with_data(numbers_of(X.data)) if exact else X
        return X if self.scaling is None else self.scaling.apply(X)

    def _labels(self, y: np.ndarray) -> np.ndarray:
        return y.copy() if self.targets is None else self.targets[y.astype(np.int64)]

    def _weights(self, weights: np.ndarray | None, m: int) -> np.ndarray | None:
        """Return the weights of m stored rows, or None if those of the data are all 1."""
        if not self.summary.weighted:
            return None
        return np.ones(m) if weights is None else weights.copy()

    def chunks(self, shard: Shard) -> Iterator[Chunk]:
        """Yield the rows of a shard in order; with a `mapping` a few rows at a time."""
        chunk = self._chunk(shard)
        if self.mapping is None:
            yield chunk
            return
        for at in slices(len(chunk.y), max(1, MAPPED_VALUES // self.mapping.width)):
            values = self.mapping.values(to_csr(chunk.X[at]))
            weights = None if chunk.weights is None else chunk.weights[at]
            yield Chunk(chunk.start + at.start, values, chunk.y[at], weights)

    def _features(self, X: CsrMatrix) -> CsrMatrix:
        """Return X with the features of this view, computed by its `mapping` if it has one."""
        if self.mapping is None:
            return X
        values = self.mapping.values(X)
        return csr_of_all(values, *values.shape)

    def map(self, work: Callable[[Shard], Result], *, large: bool = False) -> Iterator[Result]:
        """Yield work(shard) for each shard in order, computed in this process.

        large: whether results have the size of a row of all features; fewer of them then wait.
        """
        return self.executor.map(work, self.shards, self.threads if large else WAITING_RESULTS)

    def states(self, make: Callable[[Shard], State]) -> ShardStates[State]:
        """Return a state make(shard) for each shard, kept where the shard is."""
        return self.executor.states(make, self.shards)

    def points(self, rows: np.ndarray) -> Points:
        """Return some rows as Points in ascending order. rows : (m,) int64, in any order."""
        rows = np.sort(rows)

        def read(shard: Shard) -> Points | None:
            wanted = rows[shard.within(rows)]
            if not len(wanted):
                return None
            _, X, y, weights = self._chunk(shard, wanted - shard.start)
            return Points(wanted, self._features(to_csr(X)), y, weights=weights)

        parts = [part for part in self.map(read) if part is not None]
        if not parts:
            weights = np.empty(0) if self.summary.weighted else None
            return Points(rows, CsrMatrix.without_rows(self.d), np.empty(0), weights=weights)
        return Points.concatenate(parts)

    def chunk_matrix(self, shard: Shard) -> CsrMatrix:
        """Return X of all rows of a shard, with the features of this view."""
        return self._features(to_csr(self._chunk(shard).X))

    def sample(self, draw: Draw, m: int) -> np.ndarray:
        """Return the numbers of m rows drawn uniformly, ascending; (min(m, n),) int64."""
        if m >= self.n:
            return np.arange(self.n)
        parts = (
            SmallestKeys.of(m, np.arange(at.start, at.stop), draw.keys(at.start, at.stop))
            for at in slices(self.n, KEYS_AT_ONCE)
        )
        return np.sort(functools.reduce(operator.add, parts).rows)

    def close(self) -> None:
        """Free the rows without waiting for threads: those of a cancelled scan end with their
        chunk."""
        self.executor.close()
        self.pool.stop()
        self.store.close()


def random_subset(D: Dataset, r: int, rng: Draws) -> np.ndarray:
    """Return the numbers of r rows drawn uniformly, the set S of the algorithms; ascending.

    Up to half of the r rows are reserved so that each class has min(CLASS_ROWS, its size) rows.
    """
    if D.n <= r:
        return np.arange(D.n)
    draw = rng.next()
    rows = D.sample(draw, r)
    if D.targets is not None:
        classes = distinct(D.targets)
        few = min(CLASS_ROWS, r // (2 * len(classes)))

        def smallest(shard: Shard) -> list[SmallestKeys]:
            """Return the rows of each class with the smallest keys."""
            y, keys = D.labels_of(shard), draw.keys(shard.start, shard.stop)
            of_classes = [np.flatnonzero(y == label) for label in classes]
            return [SmallestKeys.of(few, of + shard.start, keys[of]) for of in of_classes]

        of_shards = zip(*D.map(smallest), strict=True)
        least = np.concatenate([functools.reduce(operator.add, of).rows for of in of_shards])
        missing = np.setdiff1d(least, rows, assume_unique=True)
        if len(missing):
            rows = sorted_union(D.sample(draw, r - len(missing)), least)
    return rows


def load(data: Source, options: ParseOptions, resources: Resources) -> Dataset:
    """Return D, from arrays or from files.

    Raises the errors of in_memory.read or cache.read.
    """
    if isinstance(data, in_memory.Arrays):
        return Dataset(*in_memory.read(data, options), resources.threads)
    return Dataset(*cache.read(data, options, resources), resources.threads)


# ---- statistics of features ------------------------------------------------------------------


def fitted_scaling(D: Dataset, name: str, zero_based: bool = False) -> Scaling:
    """Return the scaling `name`, fitted to the rows of D.

    Sparse features of sparse rows, and the categories of texts, are not centred.

    zero_based: whether the features of a table begin with 0
    """
    if name == "unit":
        return Scaling(name)
    features = statistics_of(D)
    # A zero may be written or omitted, also in a feature that is 0 in all rows.
    is_sparse = features.nonzeros.sum() < SPARSE * features.n * np.count_nonzero(features.nonzeros)
    centred = (features.nonzeros >= SPARSE * features.n) | (not is_sparse)
    if D.summary.columns is not None:
        for column, start in D.summary.columns.with_starts(zero_based):
            if column.categories is not None:
                first, last = np.searchsorted(D.summary.features, (start, start + column.width))
                centred[first:last] = False
    return Scaling.fitted(name, features, centred)


def statistics_of(D: Dataset) -> Statistics:
    """Return the statistics of the features of D, without a `mapping`."""
    unmapped = D._copy_with(mapping=None)

    def statistics(shard: Shard) -> NonzeroStatistics:
        return NonzeroStatistics.of(unmapped.chunk_matrix(shard))

    return Statistics.total(D.map(statistics, large=True), len(D.summary.features))
