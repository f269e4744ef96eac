"""Executors: run functions on the shards of a data set, and keep a state for each shard.

The executor of this module runs in this process; those of a cluster are in cluster/executor.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from randsvm.events import check
from randsvm.parallel import ThreadPool

Result = TypeVar("Result")
State = TypeVar("State")
# The type of a data set.
Data = TypeVar("Data")


class Shard(NamedTuple):
    """The unit of parallel work: the rows start .. stop - 1 of D, which are chunk `number`."""

    number: int
    start: int
    stop: int

    def within(self, rows: np.ndarray) -> slice:
        """Return the slice of a sorted array of row numbers that lies in this shard."""
        return slice(*np.searchsorted(rows, (self.start, self.stop)))


# A function that changes a state in place.
Change: TypeAlias = "Callable[[State], object]"


class StateCell(Generic[State]):
    """The state of one shard, and the number of changes that it has seen.

    An interrupted query may still run in another thread. The next query waits for its end.
    """

    def __init__(self, state: State, changes_seen: int = 0) -> None:
        self.state, self.changes_seen = state, changes_seen
        self.lock = Lock()

    def query(
        self, first: int, changes: Sequence[Change[State]], function: Callable[[State], Result]
    ) -> Result:
        """Apply the changes not yet seen; return function(state).

        first: the number of changes[0].
        """
        with self.lock:
            for change in changes[max(self.changes_seen - first, 0) :]:
                change(self.state)
            self.changes_seen = max(self.changes_seen, first + len(changes))
            return function(self.state)


class ShardStates(Generic[State]):
    """The states of some shards in this process.

    Changes are numbered from 0. Those from number `first` on wait in `changes` for the next query.
    """

    def __init__(
        self, executor: Executor, shards: Sequence[Shard], cells: dict[int, StateCell[State]]
    ) -> None:
        self.executor, self.shards, self.cells = executor, shards, cells
        self.first = 0
        self.changes: list[Change[State]] = []

    @property
    def end(self) -> int:
        """Return the number of the next change."""
        return self.first + len(self.changes)

    def change(self, *changes: Change[State]) -> None:
        """Apply these changes to every state before the next query."""
        self.changes += changes

    def restart(self, *changes: Change[State]) -> None:
        """Drop all earlier changes, and apply these to every state before the next query.

        The new changes must lead to the same state whichever earlier changes a state has seen.
        """
        self.first, self.changes = self.end, list(changes)

    def query(self, function: Callable[[State], Result]) -> Iterator[tuple[int, Result]]:
        """Apply the changes; yield (number of rows, function(state)) in the order of the shards.

        Results of consecutive shards may be added up and come as one.
        """
        first, changes = self.first, list(self.changes)

        def work(shard: Shard) -> Result:
            return self.cells[shard.number].query(first, changes, function)

        for shard, result in zip(self.shards, self.executor.map(work, self.shards), strict=True):
            yield shard.stop - shard.start, result
        # These states are never lost, so changes that all have seen are dropped.
        self.restart()

    def close(self) -> None:
        """Free the states; no method may be called afterwards."""
        self.cells.clear()


# The most results that wait in memory for a slow caller: they may be rows.
WAITING_RESULTS = 16


class Executor:
    """Runs functions over shards in this process.

    pool: the threads that run them; None: the calling thread, which suits many small data sets that
    are processed in parallel. concurrent_calls: how many threads can be in `call` at a time; None:
    any number, in this process.
    """

    # The number of bytes sent to and received from workers so far.
    bytes_moved = 0

    def __init__(self, pool: ThreadPool | None, concurrent_calls: int | None = None) -> None:
        self.pool, self.concurrent_calls = pool, concurrent_calls

    def map(
        self,
        work: Callable[[Shard], Result],
        shards: Sequence[Shard],
        waiting: int = WAITING_RESULTS,
    ) -> Iterator[Result]:
        """Yield work(shard) for each shard, in order. waiting: the most results in memory."""
        if self.pool is not None:
            yield from self.pool.map_in_order(work, shards, waiting)
            return
        for shard in shards:
            check()
            yield work(shard)

    def distribute(
        self,
        work: Callable[[Shard], Result],
        shards: Sequence[Shard],
        needs: Callable[[Shard], Sequence[int]],
    ) -> Iterator[Result]:
        """Yield work(shard) for each shard, in order; on a cluster workers compute it.

        needs: returns the numbers of the chunks that work(shard) reads
        """
        return self.map(work, shards)

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        """Return the states make(shard)."""
        cells = {shard.number: StateCell(make(shard)) for shard in shards}
        return ShardStates(self, shards, cells)

    def single_threaded(self) -> Executor:
        """Return the executor for work that this process does best in the calling thread."""
        return Executor(None, self.concurrent_calls)

    def for_store_of(self, D: Any) -> Executor:
        """Return the executor for a view with a store of its own."""
        return self

    def call(self, work: Callable[[], Result]) -> Result:
        """Return work(), which one thread runs and which may read all rows.

        Several threads may use this method at a time.
        """
        return work()

    def replicated(self, D: Data) -> AbstractContextManager[Data]:
        """Return a context with a view of D, of which every worker holds all rows.

        The executor of that view runs `call` on the workers.
        """
        return nullcontext(D)

    def release(self) -> None:
        """Free the rows on the workers."""

    def close(self) -> None:
        """End the connection to the workers; no method may be called afterwards."""
