"""The workers of a cluster as the client sees them: which take part, what each holds and does.

The coroutines of `WorkerPool` run in the event loop of the connection, so they need no locks. Other
threads start one and wait for its result (`WorkerPool.run`). This module does not know Dask:
`Connection` carries the messages. For each worker that the scheduler lists there is one `Worker`,
with at most one actor. A worker gets no work while it is

    absent    it sends no heartbeats, is paused, or starts no actor: its actor is released and
              others do its work, unless all are absent
    excluded  it has other versions, no disk space, or starts no actor for long: it takes no part
              any more

Each reply of an actor says what the actor holds: `Worker.known`. Before a task, the actor is sent
what it lacks (`_deliver`), at most REQUEST_BYTES of chunks at once. Chunks and changes of states
have numbers, and an actor ignores those that it has had. If the actor is lost, a new Worker
takes the place of the old one, others get the shards, and the new states get all changes since the
last restart. A task that the caller gives up is cancelled: it ends at its next event.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import math
import pickle
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import cloudpickle

from randsvm.cluster.actor import EXECUTOR, POOL, Held, LostError, Report, Request
from randsvm.cluster.connection import CLOSING_SECONDS, WAITING_STAGE, Connection
from randsvm.data.shard_executor import Executor, Shard
from randsvm.errors import ClusterError, OutputError, RandsvmError, SpillError, TransferError
from randsvm.events import Notice, emit_once
from randsvm.parallel import ThreadPool

Result = TypeVar("Result")

# Seconds between two requests for the state of the cluster, and between two looks at it.
POLL_SECONDS, LOOK_SECONDS = 0.5, 0.05
# Seconds that the first pass waits for all workers; of those still missing, any may join later.
GATHERING_SECONDS = 5.0
# Seconds without an answer of the scheduler, or without any running worker, that end a run; seconds
# after which a start that fails excludes a worker.
SILENCE_SECONDS = 60.0
# Seconds until others take over the work of a worker that starts no actor, because its starts fail
# or the tasks of other programs keep all its threads busy.
ACTOR_START_SECONDS = 10.0
# Seconds until other workers take over the work of a worker that sends no heartbeats, or that Dask
# has paused since its memory is nearly full. A worker sends a heartbeat every few seconds, however
# long its work takes.
MISSING_SECONDS = 30.0
# A run ends after more than this number of attempts to do a pass in which no worker completes its
# part; they need not be consecutive.
MAX_LOSSES = 50
# Most client threads that wait for calls, one for each thread of a worker.
MAX_CALLS = 256
# Bytes of chunks in a request.
REQUEST_BYTES = 32 << 20
ARITHMETIC_DIFFERS = (
    "worker {} rounds differently from this process: the model may differ in its last digits from "
    "a model of one machine; the reported gap is valid"
)


# The reply of an actor that is gone.
LOST = pickle.dumps((False, LostError(), {}))


@dataclass(eq=False)
class Worker:
    """A worker as the client sees it, with at most one actor.

    seen: when this process last saw a new heartbeat with the status `running`. beat: the
    scheduler's time of the last heartbeat. excluded: why it takes no part, or None. asked: when it
    was first asked to start the actor. ready: set once it has the actor. known: what the actor
    holds, as far as its replies say. tasks: those without a reply. delivering: held
    during a delivery.
    """

    name: str
    threads: int
    seen: float
    beat: float = -math.inf
    status: str = "running"
    excluded: RandsvmError | None = None
    asked: float = math.inf
    is_starting: bool = False
    actor: Any = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    known: Held = field(default_factory=dict)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    delivering: asyncio.Lock = field(default_factory=asyncio.Lock)

    def absence(self, now: float) -> str | None:
        """Return the reason why the worker gets no work at present, or None."""
        if now - self.seen > MISSING_SECONDS:
            reason = "is paused" if self.status == "paused" else "sends no heartbeat"
            return f"{reason} for {MISSING_SECONDS:g} s"
        if self.actor is None and now - self.asked > ACTOR_START_SECONDS:
            return f"starts no work for {ACTOR_START_SECONDS:g} s"
        return None


@dataclass(eq=False)
class Shared:
    """An object that actors keep under a key, until this record is freed.

    pickled: what actors keep. value: the store or other object here. used: the shared objects that
    `pickled` refers to. A record keeps `value` and `used` alive.
    """

    key: int
    pickled: bytes
    value: Any
    used: Sequence[Shared]

    def chunks(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the first of some chunks of the store, pickled."""
        pickled: dict[int, bytes] = {}
        for number in numbers:
            if sum(map(len, pickled.values())) < REQUEST_BYTES:
                pickled[number] = pickle.dumps(self.value.read(number), 5)
        return pickled


# Returns the shards of each worker.
Plan: TypeAlias = Callable[[Sequence[Worker]], Mapping[Worker, Sequence[Shard]]]


class WorkerPool:
    """The workers of the cluster that a connection leads to.

    bytes_moved: the bytes of all messages. answered, alive: when the scheduler last answered, and
    when a worker was last seen running. gathered: when the first pass no longer waits for workers;
    inf before that pass. notices: keys and texts, which the next thread that waits emits. shared:
    the record of each shared object, by the id of its value. numbers: of shared objects and
    requests.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.workers: dict[str, Worker] = {}
        self.shared: WeakValueDictionary[int, Shared] = WeakValueDictionary()
        self.sharing, self.numbers = threading.Lock(), itertools.count(1)
        self.bytes_moved, self.gathered = 0, math.inf
        self.notices: deque[tuple[str, str]] = deque()
        self.answered = self.alive = connection.now()
        self.background: set[asyncio.Task[Any]] = set()
        self.polling: asyncio.Task[None] = connection.run(self._begin())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a coroutine that the event loop runs, and emit pending notices.

        If an event ends this wait by an exception, the coroutine is cancelled.
        """
        try:
            return self.connection.run(self._joined(work), WAITING_STAGE)
        finally:
            # Another thread may take the last notice first.
            with contextlib.suppress(IndexError):
                while True:
                    key, text = self.notices.popleft()
                    emit_once(key, Notice(text))

    # These two run in the event loop, as `_spawn` must.
    async def _joined(self, work: Coroutine[Any, Any, Result]) -> Result:
        return await self._spawn(work)

    async def _begin(self) -> asyncio.Task[None]:
        return self._spawn(self._poll())

    def _spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin a coroutine as a task, which nothing has to wait for, and keep the task alive."""
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    def close(self) -> None:
        """Close the connection. All waits are short: a scheduler that is gone does not answer."""
        with contextlib.suppress(Exception):
            self.connection.close(self.background).join(CLOSING_SECONDS)

    # --- who takes part --------------------------------------------------------------------

    async def _poll(self) -> None:
        """Follow the state of the cluster."""
        while True:
            with contextlib.suppress(OSError):
                self._update(await self.connection.identity(), self.connection.now())
            is_gathering = self.connection.now() < self.gathered
            await asyncio.sleep(LOOK_SECONDS if is_gathering else POLL_SECONDS)

    def _update(self, found: Mapping[str, Any], now: float) -> None:
        """Record the state of the cluster; ask workers without an actor to start one."""
        self.answered = now
        for name in self.workers.keys() - found.keys():
            self._lose(self.workers[name], "is gone")
            del self.workers[name]
        for name, state in found.items():
            if name not in self.workers:
                self.workers[name] = Worker(name, state["nthreads"], now)
            worker = self.workers[name]
            worker.status = state["status"]
            if state["last_seen"] > worker.beat and worker.status == "running":
                self.alive = worker.seen = now
            worker.beat = state["last_seen"]
            is_idle = worker.actor is None and not worker.is_starting
            if is_idle and worker.excluded is None and worker.status == "running":
                worker.is_starting = True
                self._spawn(self._start(worker))

    async def _start(self, worker: Worker) -> None:
        """Start the actor of a worker; exclude a worker that cannot start one."""
        worker.asked = min(worker.asked, self.connection.now())
        try:
            actor, rounds_differently = await self.connection.start(worker.name, worker.threads)
        except ClusterError as error:
            self._exclude(worker, error)
        except Exception as error:  # noqa: BLE001 - Dask has many errors
            if self.connection.now() - worker.asked > SILENCE_SECONDS:
                reason = f"worker {worker.name} starts no actor: {error}"
                self._exclude(worker, ClusterError(reason))
        else:
            if self.workers.get(worker.name) is not worker:
                self.connection.release(actor)
            # Tasks that wait for a worker that is gone are sent to a released actor, and so end.
            worker.actor = actor
            worker.ready.set()
            if rounds_differently:
                # One notice suffices for all workers.
                self.notices.append(("arithmetic", ARITHMETIC_DIFFERS.format(worker.name)))
        finally:
            worker.is_starting = False

    def _lose(self, worker: Worker, reason: str) -> None:
        """Release the actor of a worker with all that it holds; the worker may start another."""
        if worker.actor is None or self.workers.get(worker.name) is not worker:
            return
        self.notices.append((worker.name, f"worker {worker.name} {reason}: others do its work"))
        self.connection.release(worker.actor)
        self.workers[worker.name] = Worker(
            worker.name, worker.threads, worker.seen, worker.beat, worker.status, worker.excluded
        )

    def _exclude(self, worker: Worker, error: RandsvmError) -> None:
        """Give a worker no more work."""
        worker.excluded = error
        self._lose(worker, "takes no part any more")
        if any(other.excluded is None for other in self.workers.values()):
            self.notices.append((str(error), f"{error}: it is left out"))

    def check_workers(self) -> list[Worker]:
        """Release the actors of absent workers; return the others, which get work.

        An actor may still have to start. If no worker is returned, the caller waits. Raises
        ClusterError if the scheduler or all workers are gone, and the reason if all are excluded.
        """
        if self.polling.done():
            self.polling.result()
        now, workers = self.connection.now(), list(self.workers.values())
        if now - self.answered > SILENCE_SECONDS:
            raise ClusterError(f"the scheduler has not answered for {SILENCE_SECONDS:g} s")
        if self.answered - self.alive > SILENCE_SECONDS:
            states = ", ".join(sorted({worker.status for worker in workers}))
            raise ClusterError(
                f"no worker of the cluster has answered for {SILENCE_SECONDS:g} s"
                f" (state: {states or 'gone'})"
            )
        excluded = [worker.excluded for worker in workers if worker.excluded is not None]
        if excluded and len(excluded) == len(workers):
            raise excluded[-1]
        usable = [worker for worker in workers if worker.excluded is None]
        # The first call begins the wait for all workers.
        self.gathered = min(self.gathered, now + GATHERING_SECONDS)
        missing = len(workers) < max(1, self.connection.expected_workers)
        if now < self.gathered and (missing or any(one.actor is None for one in usable)):
            return []
        self.gathered = now
        present = [worker for worker in usable if worker.absence(now) is None]
        # If all are absent, each keeps its actor and its work.
        for worker in usable if present else []:
            if (absence := worker.absence(now)) is not None:
                self._lose(worker, absence)
        return present

    async def _members(self) -> list[Worker]:
        while not (members := self.check_workers()):
            await asyncio.sleep(LOOK_SECONDS)
        return members

    def members(self) -> list[Worker]:
        """Return the workers that get work, once there are any; see `check_workers`."""
        return self.run(self._members())

    def concurrent_calls(self) -> int:
        """Return the number of threads of all workers, once they are there; at most MAX_CALLS."""
        return min(sum(worker.threads for worker in self.members()), MAX_CALLS)

    # --- what actors hold ------------------------------------------------------------------

    def share(self, value: Any, sent: Any = None) -> Shared:
        """Let actors hold a value, which is sent to each at most once.

        sent: what is sent in its place, such as an empty store in place of a full one.
        """
        # Threads that share a value at once get one record: actors free what has no record here.
        with self.sharing:
            shared = self.shared.get(id(value))
            if shared is None:
                pickled, used = self._pickled(value if sent is None else sent)
                shared = Shared(next(self.numbers), pickled, value, used)
                self.shared[id(value)] = shared
            return shared

    def dumps(self, value: Any) -> bytes:
        """Pickle a value for an actor; shared values in it are sent by their keys."""
        return self._pickled(value)[0]

    def _pickled(self, value: Any) -> tuple[bytes, list[Shared]]:
        pickler = _Pickler(self.shared)
        pickler.dump(value)
        return pickler.stream.getvalue(), pickler.used

    def _living(self) -> dict[int, Shared]:
        """Return all shared objects by their keys. Other threads may share and free objects."""
        records = [reference() for reference in self.shared.valuerefs()]
        return {shared.key: shared for shared in records if shared is not None}

    async def _deliver(self, worker: Worker, shared: Shared, numbers: Collection[int]) -> bool:
        """Return whether an actor holds all objects and some chunks; if not, send some of them."""
        async with worker.delivering:
            living = sorted(self._living().items())
            values = {key: each.pickled for key, each in living if key not in worker.known}
            held = worker.known.get(shared.key, {})
            missing = [number for number in numbers if number not in held]
            if not values and not missing:
                return True
            # Reading and pickling chunks takes long; other messages go on meanwhile.
            chunks = await asyncio.to_thread(shared.chunks, missing)
            await self._send(worker, Request(values=values, key=shared.key, chunks=chunks))
            return False

    async def _send(self, worker: Worker, request: Request) -> Any:
        """Return the reply to a request. Raises LostError, and the error of the task.

        The request names the keys that the actor is to free.
        """
        unused = worker.known.keys() - self._living().keys()
        message = pickle.dumps(request._replace(forget={*request.forget, *unused}), 5)
        self.bytes_moved += len(message)
        try:
            reply = await self.connection.send(worker.actor, message)
        except Exception:  # noqa: BLE001 - Dask has many errors for lost workers
            reply = LOST
        self.bytes_moved += len(reply)
        succeeded, value, worker.known = pickle.loads(reply)
        if succeeded:
            return value
        if isinstance(value, LostError):
            self._lose(worker, "is gone")
        elif isinstance(value, OutputError | TransferError):
            value = type(value)(f"worker {worker.name}: {value}")
            if isinstance(value, OutputError | SpillError):
                # Other workers may have room on their disks for spill files.
                self._exclude(worker, value)
                value = LostError()
        raise value

    # --- who does what ---------------------------------------------------------------------

    async def reports(
        self,
        shards: Sequence[Shard],
        plan: Plan,
        task: Callable[[Worker, Sequence[Shard]], bytes],
        shared: Shared,
        needs: Callable[[Shard], Collection[int]],
    ) -> list[Report]:
        """Return the reports of tasks on shards in order; after losses, other workers do them.

        task: returns a pickled Task for shards of a worker. shared, needs: the data set or other
        object that the task uses, and the numbers of the chunks for a shard.
        """
        left, reports = set(shards), list[Report]()

        def begun(worker: Worker, todo: Sequence[Shard]) -> asyncio.Task[list[Report]]:
            """Give a worker some shards."""
            numbers = [number for shard in todo for number in needs(shard)]
            work = self._spawn(self._do(worker, todo, partial(task, worker, todo), shared, numbers))
            worker.tasks.add(work)
            work.add_done_callback(worker.tasks.discard)
            return work

        async def attempt(
            worker: Worker, todo: Sequence[Shard], work: asyncio.Task[list[Report]]
        ) -> None:
            """Wait for the reports of a worker, unless it is lost or absent."""
            # While no worker is present, this one may still come back with its work.
            while not work.done() and worker in (self.check_workers() or [worker]):
                await asyncio.wait([work], timeout=POLL_SECONDS)
            with contextlib.suppress(LostError):
                if work.done():
                    reports.extend(work.result())
                    left.difference_update(todo)

        losses = 0
        while left:
            planned = plan(await self._members())
            before = len(left)
            todo = {
                worker: [shard for shard in part if shard in left]
                for worker, part in planned.items()
            }
            # Other calls plan only after this: a worker must have its tasks by then.
            tasks = [(worker, part, begun(worker, part)) for worker, part in todo.items() if part]
            try:
                await asyncio.gather(*(attempt(*one) for one in tasks))
            finally:
                for *_, work in tasks:
                    work.cancel()
            if not planned:
                await asyncio.sleep(LOOK_SECONDS)
            elif len(left) == before and (losses := losses + 1) > MAX_LOSSES:
                raise ClusterError("the workers lose their data repeatedly")
        return sorted(reports, key=lambda report: report.first)

    async def _do(
        self,
        worker: Worker,
        shards: Sequence[Shard],
        make: Callable[[], bytes],
        shared: Shared,
        numbers: Collection[int],
    ) -> list[Report]:
        """Return the reports of a task; if this is cancelled, cancel the task."""
        await worker.ready.wait()
        # A delivery is not cut off: the reply says what the actor holds.
        while not await asyncio.shield(self._spawn(self._deliver(worker, shared, numbers))):
            pass
        request = Request(next(self.numbers), task=make(), shards=shards)
        reply = self._spawn(self._send(worker, request))
        try:
            reports: list[Report] = await asyncio.shield(reply)
        except asyncio.CancelledError:
            # The tasks of an actor that is released end without a message.
            if self.workers.get(worker.name) is worker:
                self._spawn(self._send(worker, Request(forget=[request.number])))
            raise
        return reports


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles shared values by their keys. used: the shared values that were pickled so."""

    def __init__(self, shared: Mapping[int, Shared]) -> None:
        self.stream = io.BytesIO()
        super().__init__(self.stream, protocol=5)
        self.shared = shared
        self.used: list[Shared] = []

    def persistent_id(self, value: Any) -> int | None:
        if isinstance(value, Executor):
            return EXECUTOR
        if isinstance(value, ThreadPool):
            return POOL
        shared = self.shared.get(id(value))
        if shared is None:
            return None
        self.used.append(shared)
        return shared.key
