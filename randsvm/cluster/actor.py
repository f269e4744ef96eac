"""The part of a run on a worker: an actor that holds chunks of rows and the states of their shards.

The protocol is in workers.py. This module does not know Dask.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from randsvm.data.chunks import Store
from randsvm.data.dataset import Dataset
from randsvm.data.reading import Summary
from randsvm.data.shard_executor import Change, Executor, Shard, StateCell
from randsvm.events import Waiting, emit, listening, silent
from randsvm.parallel import Cancelled, ThreadPool

# A function that returns what an actor holds.
Maker: TypeAlias = "Callable[[Actor], Any]"
# A function that returns the reports on some shards.
Task: TypeAlias = "Callable[[Actor, Sequence[Shard]], list[Report]]"


class Request(NamedTuple):
    """A message to an actor.

    number: of this request. forget: keys of what the actor frees, and numbers of requests that it
    cancels. makers: key -> pickled Maker of what the actor holds as `key`. chunks: pickled chunks
    of the data set `key`, by number. task: a pickled Task for `shards`, or None.
    """

    number: int = 0
    forget: Collection[int] = ()
    makers: dict[int, bytes] = {}  # noqa: RUF012 - never changed
    key: int = 0
    chunks: dict[int, bytes] = {}  # noqa: RUF012
    task: bytes | None = None
    shards: Sequence[Shard] = ()


class HeldChunks(Store):
    """A store with those chunks of a data set that its actor was sent.

    sizes, nonzeros : (chunks,) int64, of each chunk of the data set.
    """

    # Plain attributes instead of the read-only properties of Store.
    sizes = nonzeros = np.empty(0, np.int64)

    def __init__(
        self, sizes: np.ndarray, nonzeros: np.ndarray, limit: int, folder: str | None
    ) -> None:
        super().__init__(limit, folder)
        self.sizes, self.nonzeros = sizes, nonzeros

    def add(self, chunks: dict[int, bytes]) -> None:
        for number, chunk in chunks.items():
            if number not in self.chunks:
                self.append(pickle.loads(chunk), number)
        self.finish()


class Actor:
    """Holds on a worker the data sets, other objects and states of shards of one run.

    threads: the number of threads of the worker.
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.pool = threads, ThreadPool(threads)
        # The threads that handle requests: one for each task, and one that can cancel a task.
        self.callers = ThreadPool(threads + 1)
        self.held: dict[int, Any] = {}
        # The keys of all that was freed, and the numbers of cancelled requests.
        self.freed: set[int] = set()

    def handle(self, message: bytes) -> bytes:
        """Return the pickled reply to a pickled Request: (True, reports) or (False, error)."""
        try:
            request: Request = pickle.loads(message)
            return pickle.dumps((True, self._do(request)), 5)
        except Exception as error:  # noqa: BLE001 - the client raises it
            # Cancelled has two causes. The client has cancelled the request: it waits for no reply,
            # so None will do. Or it has released the actor: the reply Cancelled tells it that the
            # actor is lost.
            is_cancelled = isinstance(error, Cancelled) and self.is_wanted()
            return pickle.dumps((False, None if is_cancelled else error), 5)

    def _do(self, request: Request) -> list[Report]:
        self.freed.update(request.forget)
        for key in request.forget:
            freed = self.held.pop(key, None)
            if isinstance(freed, Dataset):
                freed.store.close()
        for key, maker in request.makers.items():
            if key not in self.held:
                self.held[key] = self.loads(maker)(self)
        if request.chunks:
            self.held[request.key].store.add(request.chunks)
        if request.task is None:
            return []

        def watch(event: object) -> None:
            if request.number in self.freed or not self.is_wanted():
                raise Cancelled

        with listening(watch):
            found: list[Report] = self.loads(request.task)(self, request.shards)
            return found

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

        def report(shard: Shard) -> Report:
            emit(Waiting())
            return Report(shard.number, shard.number, shard.stop - shard.start, work(shard))

        # Each thread needs the listener of this one, and a context of its own.
        contexts = ((copy_context(), shard) for shard in shards)
        return self.pool.map_in_order(lambda one: one[0].run(report, one[1]), contexts)


# --- what an actor holds -------------------------------------------------------------------


def given(actor: Actor, value: Any) -> Any:
    """Return the value itself."""
    return value


def data_set(
    actor: Actor,
    summary: Summary,
    sizes: np.ndarray,
    nonzeros: np.ndarray,
    limit: int,
    folder: str | None,
) -> Dataset:
    """Return a data set without chunks. sizes, nonzeros: see HeldChunks; limit, folder: Store."""
    sets = [D for D in actor.held.values() if isinstance(D, Dataset)]
    limit = max(0, limit - sum(D.store.resident_bytes for D in sets))
    D = Dataset(summary, HeldChunks(sizes, nonzeros, limit, folder), actor.threads)
    D.executor = Executor(None, actor.threads)
    return D


class _Unpickler(pickle.Unpickler):
    """Finds what an actor holds where a value was pickled by its key."""

    def __init__(self, stream: io.BytesIO, held: dict[int, Any]) -> None:
        super().__init__(stream)
        self.held = held

    def persistent_load(self, found: Any) -> Any:
        """Return a value by its key, or a view of a data set by its key and its own attributes."""
        if isinstance(found, int):
            return self.held[found]
        key, attributes, row_mask = found
        D: Dataset = self.held[key]
        if row_mask is not None:
            row_mask = np.unpackbits(row_mask, count=D.stored_starts[-1]).astype(bool)
        return D._copy_with(**attributes, row_mask=row_mask)


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
    return found


def map_shards(
    actor: Actor, shards: Sequence[Shard], function: Callable[[Shard], Any]
) -> list[Report]:
    """Call a function of each shard."""
    return list(actor.reports(function, shards))
