"""The part of a run on a worker: an actor that holds chunks of rows and the states of their shards.

The protocol is in workers.py. This module does not know Dask.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from randsvm.data.chunks import Store
from randsvm.data.shard_executor import Change, Executor, Shard, StateCell
from randsvm.events import Waiting, emit, listener, listening, silent
from randsvm.parallel import Cancelled, ThreadPool

# A function that returns what an actor holds.
Task: TypeAlias = "Callable[[Actor, Sequence[Shard]], list[Report]]"


# What an actor holds: key -> the numbers of chunks, or of shards and how many changes each of their
# states has seen.
Held: TypeAlias = dict[int, dict[int, int]]


# Keys of the pool and the executor that the views of data sets of an actor use. The threads that
# do tasks read ahead in that pool, so it is another one.
POOL, EXECUTOR = -1, -2


class LostError(Exception):
    """The actor of a worker is gone, or the client has released it."""


class Request(NamedTuple):
    """A message to an actor.

    number: of this request. forget: keys of what the actor frees, and numbers of requests that it
    cancels. values: key -> pickled object that the actor holds as `key`. chunks: pickled chunks of
    the store `key`, by number. task: a pickled Task for `shards`, or None.
    """

    number: int = 0
    forget: Collection[int] = ()
    values: dict[int, bytes] = {}  # noqa: RUF012 - never changed
    key: int = 0
    chunks: dict[int, bytes] = {}  # noqa: RUF012
    task: bytes | None = None
    shards: Sequence[Shard] = ()


class Actor:
    """Holds on a worker the data sets, other objects and states of shards of one run.

    threads: the number of threads of the worker. held: objects by their keys. had: see Held; of
    states, the changes of the last query that has ended.
    """

    def __init__(self, threads: int) -> None:
        self.pool = ThreadPool(threads)
        # The threads that handle requests: some for tasks, and others that can cancel these.
        self.callers = ThreadPool(2 * threads + 1)
        self.held: dict[int, Any] = {POOL: ThreadPool(threads), EXECUTOR: Executor(None, threads)}
        self.had: Held = {}
        # The keys of all that was freed, and the numbers of cancelled requests.
        self.freed: set[int] = set()

    def handle(self, message: bytes) -> bytes:
        """Return the pickled reply to a pickled Request: whether it succeeded, the reports or the
        error, and what the actor holds."""
        found: Any
        try:
            succeeded, found = True, self._do(pickle.loads(message))
        except Exception as error:  # noqa: BLE001 - the client raises it
            succeeded, found = False, error
        holding = {key: dict(numbers) for key, numbers in list(self.had.items())}
        return pickle.dumps((succeeded, found, holding), 5)

    def _do(self, request: Request) -> list[Report]:
        self.freed.update(request.forget)
        for key in request.forget:
            freed = self.held.pop(key, None)
            self.had.pop(key, None)
            if isinstance(freed, Store):
                freed.close()
        for key, pickled in request.values.items():
            if key not in self.held and key not in self.freed:
                self._hold(key, self.loads(pickled))
        for number, chunk in request.chunks.items():
            store = self.held[request.key]
            if number not in store.chunks:
                store.append(pickle.loads(chunk), number)
                store.finish()
            self.had[request.key][number] = 0
        if request.task is None:
            return []

        def watch(event: object) -> None:
            if request.number in self.freed:
                raise Cancelled
            if not self.is_wanted():
                raise LostError

        with listening(watch):
            found: list[Report] = self.loads(request.task)(self, request.shards)
            return found

    def _hold(self, key: int, value: Any) -> None:
        if isinstance(value, Store):
            # All stores of an actor share its memory.
            stores = [one for one in self.held.values() if isinstance(one, Store)]
            value.limit -= sum(store.resident_bytes for store in stores)
        self.held[key], self.had[key] = value, {}

    def loads(self, pickled: bytes) -> Any:
        """Unpickle what WorkerPool.dumps has pickled."""
        return _Unpickler(io.BytesIO(pickled), self.held).load()

    def is_wanted(self) -> bool:
        """Return whether the client still has a connection."""
        return True

    def reports(self, work: Callable[[Shard], Any], shards: Sequence[Shard]) -> Iterator[Report]:
        """Yield the report work(shard) of each shard in order, computed by the threads.

        The work of a request that is cancelled ends at its next event.
        """

        watch = listener()

        def report(shard: Shard) -> Report:
            with listening(watch):
                emit(Waiting())
                return Report(shard.number, shard.number, shard.stop - shard.start, work(shard))

        return self.pool.map_in_order(report, shards)


# --- what an actor holds -------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    """Finds what an actor holds where a value was pickled by its key."""

    def __init__(self, stream: io.BytesIO, held: dict[int, Any]) -> None:
        super().__init__(stream)
        self.held = held

    def persistent_load(self, key: int) -> Any:
        return self.held[key]


# --- tasks ---------------------------------------------------------------------------------


class Report(NamedTuple):
    """The sum of the reports of the consecutive shards first .. last, which have `rows` rows."""

    first: int
    last: int
    rows: int
    value: Any


def query_states(
    actor: Actor,
    shards: Sequence[Shard],
    key: int,
    first: int,
    changes: Sequence[Change[Any]],
    function: Callable[[Any], Any],
) -> list[Report]:
    """Apply changes to the states of shards; return function(state) of each, in reports.

    key: of the function that makes a state, and the states of the shards that the actor has had.
    first: the number of changes[0]. For a new state it is the first since the last restart.
    """
    # All states of an actor share the memory budget of one unpickled function.
    make, cells = actor.held[key]
    for shard in shards:
        if shard.number not in cells:
            # An abandoned query may still run, and make the same state.
            cells.setdefault(shard.number, StateCell(make(shard), first))

    def query(shard: Shard) -> Any:
        # An exception in the middle of a change would spoil the state.
        with listening(silent):
            return cells[shard.number].query(first, changes, function)

    found: list[Report] = []
    for report in actor.reports(query, shards):
        if found and found[-1].last + 1 == report.first:
            before = found.pop()
            rows, value = before.rows + report.rows, before.value + report.value
            report = Report(before.first, report.last, rows, value)
        found.append(report)
    seen = dict.fromkeys([shard.number for shard in shards], first + len(changes))
    actor.had.get(key, {}).update(seen)
    return found


def map_shards(
    actor: Actor, shards: Sequence[Shard], function: Callable[[Shard], Any]
) -> list[Report]:
    """Call a function of each shard."""
    return list(actor.reports(function, shards))
