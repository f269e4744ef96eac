"""Executors: run functions on the shards of a data set, and keep a state for each shard.

The algorithms use the protocols `ShardExecutor` and `ShardStates`. The executors of this module run
in this process; those of a cluster are in cluster/executor.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from randsvm.events import check
from randsvm.parallel import ThreadPool

Report = TypeVar("Report")
State = TypeVar("State")
# The state in ShardStates. Covariant, since the methods of the protocol take functions of a state.
StateArgument = TypeVar("StateArgument", covariant=True)
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


class ShardStates(Protocol[StateArgument]):
    """One state for each shard, in the process that holds the rows of the shard."""

    def change(self, *changes: Change[StateArgument]) -> None:
        """Apply these changes to every state before the next query."""

    def restart(self, *changes: Change[StateArgument]) -> None:
        """Drop all earlier changes, and apply these to every state before the next query.

        The new changes must lead to the same state whichever earlier changes a state has seen.
        """

    @property
    def settled(self) -> bool:
        """Return whether every state has seen every change; False after an interrupted query."""

    def query(self, function: Callable[[StateArgument], Report]) -> Iterator[tuple[int, Report]]:
        """Apply the changes; yield (number of rows, function(state)) in the order of the shards.

        Reports of consecutive shards may be added up and come as one.
        """

    def close(self) -> None:
        """Free the states; no method may be called afterwards."""


class ShardExecutor(Protocol):
    """Runs functions where the rows of a data set are."""

    @property
    def bytes_moved(self) -> int:
        """Return the number of bytes sent to and received from workers so far."""

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        """Yield work(shard) for each shard, in order."""

    def distribute(
        self,
        work: Callable[[Shard], Report],
        shards: Sequence[Shard],
        needs: Callable[[Shard], Sequence[int]],
    ) -> Iterator[Report]:
        """Yield work(shard) for each shard, in order; on a cluster workers compute it.

        needs: returns the numbers of the chunks that work(shard) reads
        """

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        """Return the states make(shard)."""

    def over(self, D: Any) -> ShardExecutor:
        """Return the executor for a view with a store of its own."""

    def release(self) -> None:
        """Free the rows on the workers."""

    def close(self) -> None:
        """End the connection to the workers; no method may be called afterwards."""

    @property
    def concurrent_calls(self) -> int | None:
        """Return how many threads can be in `call` at a time; None: any number."""

    def call(self, work: Callable[[], Report]) -> Report:
        """Return work(), which one thread runs and which may read all rows.

        Several threads may use this method at a time.
        """

    def replicated(self, D: Data) -> AbstractContextManager[Data]:
        """Return a context with a view of D, of which every worker holds all rows.

        The executor of that view runs `call` on the workers.
        """


class ChangeLog(Generic[State]):
    """Changes in order, numbered from 0. The log keeps those from number `first` on."""

    def __init__(self) -> None:
        self.first = 0
        self.changes: list[Change[State]] = []

    @property
    def end(self) -> int:
        """Return the number of the next change."""
        return self.first + len(self.changes)

    def since(self, number: int) -> list[Change[State]]:
        """Return the changes from this number on."""
        return self.changes[number - self.first :]

    def clear(self) -> None:
        """Drop all changes; the next change keeps its number."""
        self.first, self.changes = self.end, []


class LoggedStates(Generic[State]):
    """States whose changes wait in a log for the next query."""

    def __init__(self) -> None:
        self.log = ChangeLog[State]()

    def change(self, *changes: Change[State]) -> None:
        self.log.changes += changes

    def restart(self, *changes: Change[State]) -> None:
        self.log.clear()
        self.change(*changes)


class StateCell(Generic[State]):
    """The state of one shard, and the number of changes that it has seen.

    An interrupted query may still run in another thread. The next query waits for its end.
    """

    def __init__(self, state: State, changes_seen: int = 0) -> None:
        self.state, self.changes_seen = state, changes_seen
        self.lock = Lock()

    def query(
        self, first: int, changes: Sequence[Change[State]], function: Callable[[State], Report]
    ) -> Report:
        """Apply the changes not yet seen; return function(state).

        first: the number of changes[0].
        """
        with self.lock:
            for change in changes[max(self.changes_seen - first, 0) :]:
                change(self.state)
            self.changes_seen = max(self.changes_seen, first + len(changes))
            return function(self.state)


# --- executors of this process -------------------------------------------------------------


class BaseExecutor:
    """Base of all executors: by default, calls run in the calling thread and nothing is sent."""

    concurrent_calls: int | None = None

    def call(self, work: Callable[[], Report]) -> Report:
        return work()

    def replicated(self, D: Data) -> AbstractContextManager[Data]:
        return nullcontext(D)

    @property
    def bytes_moved(self) -> int:
        return 0

    def over(self, D: Any) -> Any:
        return self

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        raise NotImplementedError

    def distribute(
        self,
        work: Callable[[Shard], Report],
        shards: Sequence[Shard],
        needs: Callable[[Shard], Sequence[int]],
    ) -> Iterator[Report]:
        return self.map(work, shards)

    def release(self) -> None:
        """Do nothing: a store holds the rows."""

    def close(self) -> None:
        """Do nothing: there is no connection."""


class ThreadExecutor(BaseExecutor):
    """Runs functions in the threads of a pool."""

    def __init__(self, pool: ThreadPool) -> None:
        self.pool = pool

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        return self.pool.map_in_order(work, shards)

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        return LocalStates(self, make, shards)


class SerialExecutor(BaseExecutor):
    """Runs functions in the calling thread.

    This suits many small data sets that are processed in parallel, each by one thread.
    """

    def __init__(self, concurrent_calls: int | None = None) -> None:
        self.concurrent_calls = concurrent_calls

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        for shard in shards:
            check()
            yield work(shard)

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        return LocalStates(self, make, shards)


class LocalStates(LoggedStates[State]):
    """States in this process. They are never lost, so changes that all have seen are dropped."""

    def __init__(
        self, executor: ShardExecutor, make: Callable[[Shard], State], shards: Sequence[Shard]
    ) -> None:
        super().__init__()
        self.executor, self.shards = executor, shards
        self.cells = {shard.number: StateCell(make(shard)) for shard in shards}

    @property
    def settled(self) -> bool:
        return not self.log.changes

    def query(self, function: Callable[[State], Report]) -> Iterator[tuple[int, Report]]:
        first, changes = self.log.first, list(self.log.changes)

        def work(shard: Shard) -> Report:
            return self.cells[shard.number].query(first, changes, function)

        for shard, report in zip(self.shards, self.executor.map(work, self.shards), strict=True):
            yield shard.stop - shard.start, report
        self.log.clear()

    def close(self) -> None:
        self.cells.clear()
