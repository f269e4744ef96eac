"""Where shards live: who works on them, and who keeps a state for each of them.

Here they live in this process, and its threads work. What is asked of a home is plain functions of
a shard, or of its state, so that it may as well be elsewhere. Knows nothing of what a state is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from randsvm.events import check
from randsvm.parallel import ThreadPool

Report = TypeVar("Report")
State = TypeVar("State")
# The same in a protocol whose methods take functions of it.
Taken = TypeVar("Taken", covariant=True)
# A data set.
Rows = TypeVar("Rows")


class Shard(NamedTuple):
    """The unit of parallel work: the rows start .. stop - 1 of D, which are chunk `number`."""

    number: int
    start: int
    stop: int

    def within(self, rows: np.ndarray) -> slice:
        """The part of a sorted array of row numbers that lies in this shard."""
        return slice(*np.searchsorted(rows, (self.start, self.stop)))


# What is done to every state.
Change: TypeAlias = "Callable[[State], object]"


class ShardStates(Protocol[Taken]):
    """A state for each shard, which is changed and asked where the shard lives."""

    def change(self, *changes: Change[Taken]) -> None:
        """Do this to every state before the next question."""

    def restart(self, *changes: Change[Taken]) -> None:
        """The same, where it does not matter what was done before: that need not be done again
        where a state was lost, nor be completed where it was broken off."""

    @property
    def settled(self) -> bool:
        """Whether every change is done everywhere: False after a visit was broken off."""

    def visit(self, question: Callable[[Taken], Report]) -> Iterator[tuple[int, Report]]:
        """What each state reports after all changes, in the order of the shards, with its number of
        rows. Reports of neighbours may come as one, their sum."""

    def close(self) -> None:
        """Give back the memory; nothing can be asked any more."""


class ClusterTimes(NamedTuple):
    """Seconds that messages, the work of the slowest worker, and its reports took so far. The
    first and the last are told apart by the clocks of two machines."""

    message_seconds: float = 0.0
    worker_seconds: float = 0.0
    report_seconds: float = 0.0


class ShardExecutor(Protocol):
    """Where the shards of a data set live. moved: bytes to and from other processes so far."""

    @property
    def moved(self) -> int: ...

    @property
    def spent(self) -> ClusterTimes: ...

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        """work(shard) of each; reports come in the order of the shards."""

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        """New states, each made by `make`."""

    def leave(self) -> None:
        """Nobody asks for these rows any more."""

    @property
    def at_once(self) -> int | None:
        """How many works are under way side by side, of those that `call` takes, and where one of
        them is done; None: as many as threads call."""

    def call(self, work: Callable[[], Report]) -> Report:
        """work(), which is about all rows, done by one thread; others may call meanwhile."""

    def replicated(self, D: Rows) -> AbstractContextManager[Rows]:
        """A view of the same rows, which have to be few: within the block, whoever does what the
        home of that view is called for has all of them."""


class Log(Generic[State]):
    """Changes in order, numbered from the beginning; `first` is the number of the oldest that is
    kept."""

    def __init__(self) -> None:
        self.first = 0
        self.changes: list[Change[State]] = []

    @property
    def end(self) -> int:
        return self.first + len(self.changes)

    def since(self, number: int) -> list[Change[State]]:
        return self.changes[number - self.first :]

    def forget(self) -> None:
        """What is there so far."""
        self.first, self.changes = self.end, []


class LoggedStates(Generic[State]):
    """What States have in common: changes wait in a log for the next visit."""

    def __init__(self) -> None:
        self.log = Log[State]()

    def change(self, *changes: Change[State]) -> None:
        self.log.changes += changes

    def restart(self, *changes: Change[State]) -> None:
        self.log.forget()
        self.change(*changes)


class Cell(Generic[State]):
    """The state of one shard and how many changes it has seen. A visit that was broken off may
    still be at work in another thread: the next one waits for its end."""

    def __init__(self, state: State, done: int = 0) -> None:
        self.state, self.done = state, done
        self.lock = Lock()

    def visit(
        self, first: int, changes: Sequence[Change[State]], question: Callable[[State], Report]
    ) -> Report:
        """changes: from number `first` on."""
        with self.lock:
            for change in changes[max(self.done - first, 0) :]:
                change(self.state)
            self.done = max(self.done, first + len(changes))
            return question(self.state)


# --- this process --------------------------------------------------------------------------


class LocalExecutor:
    """A home whose callers do what they call for themselves."""

    at_once: int | None = None

    def call(self, work: Callable[[], Report]) -> Report:
        """See Home."""
        return work()

    def replicated(self, D: Rows) -> AbstractContextManager[Rows]:
        """See Home."""
        return nullcontext(D)

    @property
    def moved(self) -> int:
        """See Home."""
        return 0

    @property
    def spent(self) -> ClusterTimes:
        """See Home."""
        return ClusterTimes()

    def leave(self) -> None:
        """See Home; the rows are not here but in a store."""


class ThreadExecutor(LocalExecutor):
    """The threads of a pool."""

    def __init__(self, pool: ThreadPool) -> None:
        self.pool = pool

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        """See Home."""
        return self.pool.map_in_order(work, shards)

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        """See Home."""
        return LocalStates(self, make, shards)


class SerialExecutor(LocalExecutor):
    """The thread that asks: where many small data sets are worked at side by side, each by one.
    at_once: see Home."""

    def __init__(self, at_once: int | None = None) -> None:
        self.at_once = at_once

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        """See Home."""
        for shard in shards:
            check()
            yield work(shard)

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        """See Home."""
        return LocalStates(self, make, shards)


class LocalStates(LoggedStates[State]):
    """See States. No state is ever lost: what all have done is forgotten."""

    def __init__(
        self, executor: ShardExecutor, make: Callable[[Shard], State], shards: Sequence[Shard]
    ) -> None:
        super().__init__()
        self.executor, self.shards = executor, shards
        self.cells = {shard.number: Cell(make(shard)) for shard in shards}

    @property
    def settled(self) -> bool:
        return not self.log.changes

    def visit(self, question: Callable[[State], Report]) -> Iterator[tuple[int, Report]]:
        first, changes = self.log.first, list(self.log.changes)

        def work(shard: Shard) -> Report:
            return self.cells[shard.number].visit(first, changes, question)

        for shard, report in zip(self.shards, self.executor.map(work, self.shards), strict=True):
            yield shard.stop - shard.start, report
        self.log.forget()

    def close(self) -> None:
        self.cells.clear()
