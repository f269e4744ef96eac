"""The part of a run on a worker: an actor that holds chunks of rows and the states of their shards.

The client knows what each actor holds, because an actor changes only as its replies say. It sends
whatever an actor lacks with the task that needs it. This module does not know Dask.
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import cloudpickle
import numpy as np

from randsvm.data.chunks import Store
from randsvm.data.dataset import Dataset
from randsvm.data.reading import Summary
from randsvm.data.shard_executor import Change, Executor, Shard, StateCell
from randsvm.events import Waiting, emit, listening, silent
from randsvm.parallel import Cancelled, ThreadPool

# The attributes of a view that are not sent: its actor has its own.
LOCAL_ATTRIBUTES = ("store", "jobs", "pool", "executor", "groups", "_column_rule")
# The actor whose message this thread reads.
_reading = threading.local()


# The work of a request, which `dumps` pickles: it returns the reply.
Task: TypeAlias = "Callable[[Actor], Any]"


class Request(NamedTuple):
    """A message to an actor.

    forget: keys of what the actor frees. objects: key -> pickled object that the actor keeps.
    key, chunks: pickled chunks of the data set `key`, by number. task: a pickled Task, or None.
    """

    forget: tuple[str, ...]
    objects: dict[str, bytes]
    key: str
    chunks: dict[int, bytes]
    task: bytes | None


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


class HeldData(NamedTuple):
    """Sizes and summary from which an actor makes a data set; its chunks are in HeldChunks."""

    summary: Summary
    sizes: np.ndarray
    nonzeros: np.ndarray
    limit: int
    folder: str | None

    def dataset(self, threads: int, resident_bytes: int) -> Dataset:
        """Return the data set without chunks. resident_bytes: of other data sets of the actor."""
        limit = max(0, self.limit - resident_bytes)
        store = HeldChunks(self.sizes, self.nonzeros, limit, self.folder)
        D = Dataset(self.summary, store, threads)
        D.executor = Executor(None, threads)
        return D


class Actor:
    """Holds on a worker the data sets, other objects and states of shards of one run.

    threads: the number of threads of the worker.
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.pool = threads, ThreadPool(threads)
        # The threads that handle requests: one for each call, and one that can cancel a call.
        self.callers = ThreadPool(threads + 1)
        # The keys of all that was freed.
        self.freed: set[str] = set()
        self.held: dict[str, Any] = {}
        # Key of states -> the function that makes a state, and number of a shard -> its state.
        self.states: dict[str, tuple[Callable[[Shard], Any], dict[int, StateCell[Any]]]] = {}

    def handle(self, message: bytes) -> bytes:
        """Return the pickled reply to a pickled Request: (True, result) or (False, error)."""
        try:
            request: Request = pickle.loads(message)
            return pickle.dumps((True, self._do(request)), 5)
        except Exception as error:  # noqa: BLE001 - the client raises it
            return pickle.dumps((False, error), 5)

    def _do(self, request: Request) -> Any:
        self.freed.update(request.forget)
        for key in request.forget:
            self.states.pop(key, None)
            if isinstance(found := self.held.pop(key, None), Dataset):
                found.store.close()
        for key, pickled in request.objects.items():
            found = self.loads(pickled)
            if isinstance(found, HeldData):
                sets = [of for of in self.held.values() if isinstance(of, Dataset)]
                found = found.dataset(self.threads, sum(D.store.resident_bytes for D in sets))
            self.held[key] = found
        if request.chunks:
            self.held[request.key].store.add(request.chunks)
        return None if request.task is None else self.loads(request.task)(self)

    def loads(self, pickled: bytes) -> Any:
        """Unpickle what `dumps` has pickled."""
        _reading.actor = self
        try:
            return pickle.loads(pickled)
        finally:
            del _reading.actor

    def is_wanted(self) -> bool:
        """Return whether the client still has a connection."""
        return True

    def map(self, work: Callable[[Shard], Any], shards: Sequence[Shard]) -> Iterator[Any]:
        """Yield work(shard) for each shard in order, computed by the threads of the worker."""

        def watched(shard: Shard) -> Any:
            with self.watching():
                emit(Waiting())
                return work(shard)

        if self.threads == 1:
            return map(watched, shards)
        return self.pool.map_in_order(watched, shards)

    @contextmanager
    def watching(self, key: str = "") -> Iterator[None]:
        """End the work of this thread at its next event if the client is gone or frees a key."""

        def watch(event: object) -> None:
            if key in self.freed or not self.is_wanted():
                raise Cancelled

        with listening(watch):
            yield


# --- tasks ---------------------------------------------------------------------------------


class Report(NamedTuple):
    """The sum of the reports of the consecutive shards first .. last, which have `rows` rows."""

    first: int
    last: int
    rows: int
    value: Any


def query_states(
    actor: Actor,
    key: str,
    make: bytes | None,
    fresh: frozenset[int],
    first: int,
    changes: bytes,
    function: bytes,
    shards: Sequence[Shard],
) -> list[Report]:
    """Apply changes to the states of shards; return function(state) of each, in reports.

    key: of the states. make: the function that makes a state, pickled by `dumps`; the shards of
    the numbers `fresh` get a new state. first: the number of changes[0], the first since the last
    restart if there is a new state. changes, function: pickled.
    """
    if key not in actor.states:
        assert make is not None
        # All states of an actor share the memory budget of one unpickled function.
        actor.states[key] = actor.loads(make), {}
    new_state, cells = actor.states[key]
    for shard in shards:
        if shard.number in fresh:
            cells[shard.number] = StateCell(new_state(shard), first)
    unpickled: list[Change[Any]] = pickle.loads(changes)
    of_state = pickle.loads(function)

    def query(shard: Shard) -> Any:
        # An exception in the middle of a change would spoil the state.
        with listening(silent):
            return cells[shard.number].query(first, unpickled, of_state)

    found: list[Report] = []
    for report in _reports(actor, query, shards):
        if found and found[-1].last + 1 == report.first:
            before = found.pop()
            rows, value = before.rows + report.rows, before.value + report.value
            report = Report(before.first, report.last, rows, value)
        found.append(report)
    return found


def map_shards(actor: Actor, function: bytes, shards: Sequence[Shard]) -> list[Report]:
    """Call a function, pickled by `dumps`, of each shard."""
    return list(_reports(actor, actor.loads(function), shards))


def _reports(
    actor: Actor, work: Callable[[Shard], Any], shards: Sequence[Shard]
) -> Iterator[Report]:
    for shard, value in zip(shards, actor.map(work, shards), strict=True):
        yield Report(shard.number, shard.number, shard.stop - shard.start, value)


def call(actor: Actor, key: str, function: bytes) -> list[Report]:
    """Call a function without arguments, pickled by `dumps`, until the client frees the key."""
    try:
        with actor.watching(key):
            return [Report(0, 0, 0, actor.loads(function)())]
    except Cancelled:
        if key not in actor.freed:
            raise
        return []


# --- what actors hold is sent by its key ---------------------------------------------------


def held(key: str) -> Any:
    """Return what the actor whose message is read holds as `key`."""
    return _reading.actor.held[key]


def make_view(
    key: str, attributes: dict[str, Any], row_mask: tuple[int, np.ndarray] | None
) -> Dataset:
    """Return a view of a data set that the actor holds."""
    D: Dataset = held(key)
    if row_mask is not None:
        attributes["row_mask"] = np.unpackbits(row_mask[1], count=row_mask[0]).astype(bool)
    attributes.setdefault("summary", D.summary)
    return D._copy_with(**attributes)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what `keys` names, and views of data sets that it names, as calls with the key.

    keys: id of a store or of another object -> (key, summary of the rows of the store).
    """

    def __init__(self, stream: io.BytesIO, keys: dict[int, tuple[str, Any]]) -> None:
        super().__init__(stream, protocol=5)
        self.keys = keys

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Dataset):
            return make_view, self._view(value)
        if (found := self.keys.get(id(value))) is not None:
            return held, (found[0],)
        return super().reducer_override(value)

    def _view(self, D: Dataset) -> tuple[Any, ...]:
        key, summary = self.keys[id(D.store)]
        sent = {name: of for name, of in vars(D).items() if name not in LOCAL_ATTRIBUTES}
        mask = sent.pop("row_mask")
        if sent["summary"] is summary:
            del sent["summary"]
        packed = None if mask is None else (len(mask), np.packbits(mask))
        return key, {**sent, "row_mask": None}, packed


def dumps(value: Any, keys: dict[int, tuple[str, Any]]) -> bytes:
    """Pickle a value for an actor; keys: see _Pickler."""
    with io.BytesIO() as stream:
        _Pickler(stream, keys).dump(value)
        return stream.getvalue()
