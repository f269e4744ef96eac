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
from randsvm.errors import RandsvmError
from randsvm.events import Waiting, emit, listener, listening, silent
from randsvm.parallel import Cancelled, ThreadPool

# A function that returns what an actor holds.
Task: TypeAlias = "Callable[[Actor, Sequence[Shard]], list[Report]]"


# What an actor holds under each key. Of a store: the number of each chunk -> 0. Of the states of
# shards: the number of each shard -> how many changes its state has seen. Of other objects: {}.
Held: TypeAlias = dict[int, dict[int, int]]


# Keys of the pool and the executor that the views of data sets of an actor use. It is not the pool
# that does tasks: a task waits for what this pool reads ahead.
POOL, EXECUTOR = -1, -2


class LostError(Exception):
    """The actor of a worker is gone, or the client has released it."""


class Request(NamedTuple):
    """A message to an actor.

    number: of this request. forget: keys of what the actor frees, and numbers of requests that it
    cancels; WorkerPool.numbers counts both, so no key is the number of a request. values: key ->
    pickled object that the actor holds as `key`. chunks: pickled chunks of the store `key`, by
    number. task: a pickled Task for `shards`, or None.
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

    threads: the number of threads of the worker. objects: by their keys. held: see Held; the
    changes of states are those of the last query that has ended. forgotten: all that requests asked
    it to forget.
    """

    def __init__(self, threads: int) -> None:
        self.pool = ThreadPool(threads)
        # The threads that handle requests: some for tasks, and others that can cancel these.
        self.callers = ThreadPool(2 * threads + 1)
        self.objects: dict[int, Any] = {
            POOL: ThreadPool(threads),
            EXECUTOR: Executor(None, threads),
        }
        self.held: Held = {}
        self.forgotten: set[int] = set()

    def handle(self, message: bytes) -> bytes:
        """Return the pickled reply to a pickled Request: whether it succeeded, the reports or the
        error, and what the actor holds."""
        try:
            return self._reply(True, self._do(pickle.loads(message)))
        except Exception as error:  # noqa: BLE001 - the client raises it
            # Some errors cannot be pickled, and others cannot be made again from their pickles.
            try:
                reply = self._reply(False, error)
                pickle.loads(reply)
            except Exception:  # noqa: BLE001
                reply = self._reply(False, RandsvmError(f"{type(error).__name__}: {error}"))
            return reply

    def _reply(self, succeeded: bool, result: Any) -> bytes:
        held = {key: dict(numbers) for key, numbers in list(self.held.items())}
        return pickle.dumps((succeeded, result, held), 5)

    def _do(self, request: Request) -> list[Report]:
        self.forgotten.update(request.forget)
        for key in request.forget:
            freed = self.objects.pop(key, None)
            self.held.pop(key, None)
            if isinstance(freed, Store):
                freed.close()
        for key, pickled in request.values.items():
            if key not in self.objects and key not in self.forgotten:
                self._hold(key, self.loads(pickled))
        for number, chunk in request.chunks.items():
            store = self.objects[request.key]
            if number not in store.chunks:
                store.append(pickle.loads(chunk), number)
                store.finish()
            self.held[request.key][number] = 0
        if request.task is None:
            return []

        def watch(event: object) -> None:
            if request.number in self.forgotten:
                raise Cancelled
            if not self.is_wanted():
                raise LostError

        with listening(watch):
            reports: list[Report] = self.loads(request.task)(self, request.shards)
            return reports

    def _hold(self, key: int, value: Any) -> None:
        if isinstance(value, Store):
            # All stores of an actor share its memory.
            stores = [other for other in self.objects.values() if isinstance(other, Store)]
            value.limit -= sum(store.resident_bytes for store in stores)
        self.objects[key], self.held[key] = value, {}

    def loads(self, pickled: bytes) -> Any:
        """Unpickle what WorkerPool.dumps has pickled."""
        return _Unpickler(io.BytesIO(pickled), self.objects).load()

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

    def __init__(self, stream: io.BytesIO, objects: dict[int, Any]) -> None:
        super().__init__(stream)
        self.objects = objects

    def persistent_load(self, key: int) -> Any:
        return self.objects[key]


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
    # The shared pair of RemoteStates, unpickled once: an object that `make` refers to, such as a
    # budget of memory, is one for all states of an actor.
    make, cells = actor.objects[key]
    for shard in shards:
        if shard.number not in cells:
            # An abandoned query may still run, and make the same state.
            cells.setdefault(shard.number, StateCell(make(shard), first))

    def query(shard: Shard) -> Any:
        # An exception in the middle of a change would spoil the state.
        with listening(silent):
            return cells[shard.number].query(first, changes, function)

    reports: list[Report] = []
    for report in actor.reports(query, shards):
        if reports and reports[-1].last + 1 == report.first:
            before = reports.pop()
            rows, value = before.rows + report.rows, before.value + report.value
            report = Report(before.first, report.last, rows, value)
        reports.append(report)
    seen = dict.fromkeys([shard.number for shard in shards], first + len(changes))
    actor.held.get(key, {}).update(seen)
    return reports


def map_shards(
    actor: Actor, shards: Sequence[Shard], function: Callable[[Shard], Any]
) -> list[Report]:
    """Call a function of each shard."""
    return list(actor.reports(function, shards))
