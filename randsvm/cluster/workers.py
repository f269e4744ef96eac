"""The protocol of the client and the workers of a cluster.

The client keeps all rows. For each worker that the scheduler lists, `WorkerPool.workers` has one
Worker, with at most one actor. A worker is

    asked     it was asked to start an actor, or will be with the next poll
    ready     it has an actor
    absent    it sends no heartbeats, is paused, or starts no actor: the client releases its actor
              and gives its work to others, unless all are absent
    excluded  it has other versions, no disk space, or starts no actor for long: it takes no part
              any more

If an actor is lost or released, a new Worker without an actor takes the place of the old one, so
replies of the old actor are not mistaken for those of the next.

The client knows what each actor holds:

    the keys of data sets, models and functions that make states
    the chunks of each data set
    the number of changes that each state has seen

The client sends requests of two kinds (`_send`):

    a delivery  what the actor lacks for some task. A worker gets one delivery at a time.
    a task      for shards of which the actor holds all. A task may come with changes of states.

Both may name keys that the actor frees. What happens then:

    answer         the client records what the actor holds now; the thread that asked gets the reply
    error          the thread that asked raises it. The actor may have done a part: deliveries and
                   changes have numbers, and an actor that gets them again ignores them.
    loss           the connection to a worker breaks, or the scheduler has freed the actor: the
                   thread gives the shards to other workers, with all changes since the last restart
    late answer    of a task that a thread has abandoned or given to another worker: the client
                   records what the actor holds if it is still the actor of its worker
    abandoned task the client asks the actor to cancel it; it ends at its next event
    new worker     it is asked to start an actor, and gets shards in the next passes
    client is gone Dask frees the actors, whose tasks end at their next event

Every wait has a deadline, because a worker that is stopped never answers. This module does not know
Dask: `Connection` carries the messages.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import pickle
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import cloudpickle
import numpy as np

from randsvm.cluster.actor import Maker, Report, Request, given
from randsvm.cluster.connection import CLOSING_SECONDS, WAITING_STAGE, Connection
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import Shard
from randsvm.errors import ClusterError, OutputError, SpillError, TransferError
from randsvm.events import HEARTBEAT, Notice, Progress, check, emit, emit_once
from randsvm.parallel import Cancelled

# Seconds between two requests for the state of the cluster.
POLL_SECONDS = 0.5
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
# A run ends after more consecutive losses than this number.
MAX_LOSSES = 50
# Most client threads that wait for calls, one for each thread of a worker.
MAX_CALLS = 256
# Bytes of chunks in a request.
REQUEST_BYTES = 32 << 20
# The attributes of a view that are not sent: its actor has its own.
LOCAL_ATTRIBUTES = ("store", "threads", "pool", "executor", "groups", "_column_rule")
ARITHMETIC_DIFFERS = (
    "worker {} rounds differently from this process: the model may differ in its last digits from "
    "a model of one machine; the reported gap is valid"
)


# What an actor holds: key -> the numbers of chunks, or of shards and how many changes each of their
# states has seen.
Held: TypeAlias = dict[int, dict[int, int]]


@dataclass(eq=False)
class Worker:
    """A worker as the client sees it, with at most one actor.

    seen: when this process last saw a new heartbeat with the status `running`. beat: the
    scheduler's time of the last heartbeat. excluded: the reason why it takes no part, or None.
    asked: when it was first asked to start the actor, or None. is_starting: whether it has not
    answered yet. rounds_differently: whether it computes other last digits. known: what the actor
    holds, as far as its replies say. tasks: the numbers of the tasks without a reply. delivery: the
    number of the delivery without a reply, or 0.
    """

    name: str
    seen: float
    threads: int = 1
    beat: float = 0.0
    status: str = "running"
    excluded: str | None = None
    asked: float | None = None
    is_starting: bool = False
    actor: Any = None
    rounds_differently: bool = False
    known: Held = field(default_factory=dict)
    tasks: set[int] = field(default_factory=set)
    delivery: int = 0

    def absence(self, now: float) -> str | None:
        """Return the reason why the worker gets no work at present, or None."""
        if now - self.seen > MISSING_SECONDS:
            what = "sent no heartbeat" if self.status == "running" else f"been {self.status}"
            return f"has {what} for {MISSING_SECONDS:.0f} s"
        if self.actor is None and self.asked is not None and now - self.asked > ACTOR_START_SECONDS:
            return f"has started no work for {ACTOR_START_SECONDS:.0f} s"
        return None


class Reply(NamedTuple):
    """The reply to a request. number: of the request. is_lost: whether the actor is gone."""

    worker: Worker
    number: int
    value: Any
    is_lost: bool


# Receives the replies to the requests of one thread.
Replies = SimpleQueue[Reply]


@dataclass(eq=False)
class Shared:
    """An object that actors keep under a key, until this record is freed.

    maker: pickled Maker. value: the data set or other object, which lives on.
    """

    key: int
    maker: bytes
    value: Any

    def chunks(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the first of some chunks of the data set, pickled."""
        found, size = {}, 0
        for number in numbers:
            found[number] = pickle.dumps(self.value.store.read(number), 5)
            size += len(found[number])
            if size > REQUEST_BYTES:
                break
        return found


class WorkerPool:
    """The workers of the cluster that a connection leads to.

    poll_error: what `poll` raised, or None. closed: whether the run has ended; then no request is
    sent. bytes_moved: the bytes of all messages.
    """

    poll_error: Exception | None = None
    closed = False

    def __init__(self, connection: Connection) -> None:
        self.connection, self.now = connection, connection.now
        self.bytes_moved = self.losses = 0
        self.workers: dict[str, Worker] = {}
        self.began = self.last_answer = self.last_activity = self.now()
        self.is_gathered = False
        # Replies need it in the thread of Dask's events: nothing is read or pickled under it.
        self.lock = threading.RLock()
        # The keys of what actors hold and the numbers of requests, which are not 0.
        self.numbers = itertools.count(1)
        # id of a store or of another object -> what actors hold in its place. They free what is no
        # longer here with their next request.
        self.shared: WeakValueDictionary[int, Shared] = WeakValueDictionary()
        connection.repeat(self.poll, lambda: POLL_SECONDS if self.is_gathered else HEARTBEAT)

    # --- members ---------------------------------------------------------------------------

    def poll(self) -> None:
        """Request the state of the cluster; ask workers without an actor to start one."""
        try:
            self._update(self.connection.identity(), self.now())
        except OSError:
            return  # the scheduler does not answer
        except Exception as error:  # noqa: BLE001 - the threads that wait raise it
            self.poll_error = error

    def _update(self, found: Mapping[str, Any], now: float) -> None:
        """Record the state of the cluster; ask workers without an actor to start one."""
        with self.lock:
            self.last_answer = now
            for name in self.workers.keys() - found.keys():
                self.drop(self.workers[name])
                del self.workers[name]
            for name, state in found.items():
                worker = self.workers.setdefault(name, Worker(name, now))
                worker.status, worker.threads = state["status"], state["nthreads"]
                if state["last_seen"] != worker.beat and worker.status == "running":
                    worker.beat, worker.seen = state["last_seen"], now
                self.last_activity = max(self.last_activity, worker.seen)
            idle = [
                worker
                for worker in self.workers.values()
                if worker.actor is None
                and not worker.is_starting
                and worker.excluded is None
                and (worker.asked is not None or worker.absence(now) is None)
            ]
            for worker in idle:
                worker.is_starting, worker.asked = True, worker.asked or now
        for worker in idle:
            self.connection.start(worker.name, worker.threads, partial(self._started, worker))

    def _started(self, worker: Worker, found: Any) -> None:
        """Record the actor of a worker. found: see Connection.start."""
        with self.lock:
            worker.is_starting = False
            if isinstance(found, ClusterError):
                worker.excluded = str(found)
            elif isinstance(found, BaseException):
                # The next poll asks again. This is no loss: nothing was held.
                if worker.asked is not None and self.now() - worker.asked > SILENCE_SECONDS:
                    worker.excluded = f"worker {worker.name} starts no actor: {found}"
            elif self.workers.get(worker.name) is not worker or self.closed:
                self.connection.release(found[0])
            else:
                worker.actor, worker.rounds_differently = found

    def members(self) -> list[Worker]:
        """Return the workers that get work; an actor may still have to start.

        Workers that are absent for a while are left out, unless all are absent. Raises ClusterError
        if the scheduler or all workers are gone, or all workers are excluded.
        """
        now, workers = self.now(), list(self.workers.values())
        if (reason := self._end(now, workers)) is not None:
            raise ClusterError(reason)
        for worker in workers:
            if worker.excluded is not None:
                emit_once(worker.name, Notice(f"{worker.excluded}: it is left out"))
        found = [worker for worker in workers if worker.excluded is None]
        present = [worker for worker in found if worker.absence(now) is None]
        for worker in found:
            if worker.rounds_differently:
                # One notice suffices for all workers.
                emit_once("arithmetic", Notice(ARITHMETIC_DIFFERS.format(worker.name)))
            if present and (why := worker.absence(now)):
                text = f"worker {worker.name} {why}: others do its work"
                emit_once(text, Notice(text))
                # A start that is under way goes on: the worker is absent until its actor is there.
                if worker.actor is not None:
                    self.drop(worker)
        if not self.is_gathered:
            answers = [worker for worker in workers if worker.actor or worker.excluded]
            missing = max(self.connection.expected_workers, len(workers)) - len(answers)
            is_late = now - self.began > GATHERING_SECONDS
            self.is_gathered = bool(found) and (not missing or is_late)
            if not self.is_gathered:
                return []
        return present or found

    def _end(self, now: float, workers: Sequence[Worker]) -> str | None:
        """Return the reason why the cluster cannot be used, or None. Raises the error of a poll."""
        reason = "the run is over" if self.closed else self.connection.end()
        if reason is not None:
            return reason
        if self.poll_error is not None:
            raise self.poll_error
        if workers and all(worker.excluded is not None for worker in workers):
            return workers[0].excluded
        if self.losses > MAX_LOSSES:
            return "the workers lose their data repeatedly"
        if now - self.last_answer > SILENCE_SECONDS:
            return f"the scheduler has not answered for {SILENCE_SECONDS:.0f} s"
        if self.last_answer - self.last_activity > SILENCE_SECONDS:
            idle = [worker.status for worker in workers if worker.status != "running"]
            what = f"been running (they are {idle[0]})" if idle else "answered"
            return f"no worker of the cluster has {what} for {SILENCE_SECONDS:.0f} s"
        return None

    def concurrent_calls(self) -> int:
        """Return the number of threads of all workers, once they are there; at most MAX_CALLS."""
        while not (members := self.members()):
            self._next_reply(SimpleQueue())
        return min(sum(worker.threads for worker in members), MAX_CALLS)

    def drop(self, worker: Worker) -> bool:
        """Release the actor of a worker with all that it holds; the worker may start another.

        Return whether this was still the actor of the worker.
        """
        with self.lock:
            if self.workers.get(worker.name) is not worker:
                return False
            self.workers[worker.name] = replace(
                worker, asked=None, is_starting=False, actor=None, known={}, tasks=set(), delivery=0
            )
        if worker.actor is not None:
            self.connection.release(worker.actor)
        return True

    def exclude(self, worker: Worker, reason: str) -> bool:
        """Give a worker no more work; return whether this was possible.

        The only worker cannot be excluded.
        """
        with self.lock:
            others = [other for other in self.workers.values() if other.name != worker.name]
            if all(other.excluded is not None for other in others):
                return False
            worker.excluded = reason
            self.drop(worker)
            return True

    # --- what actors hold ------------------------------------------------------------------

    def share(self, value: Any, maker: Maker | None = None) -> Shared:
        """Let actors hold a value, which is sent to each at most once.

        A data set is shared with all views of its store. maker: returns what actors hold; None: the
        value.
        """
        key = id(value.store if isinstance(value, Dataset) else value)
        with self.lock:
            found = self.shared.get(key)
        if found is not None:
            return found
        pickled = self.dumps(maker or partial(given, value=value))
        with self.lock:
            return self.shared.setdefault(key, Shared(next(self.numbers), pickled, value))

    def dumps(self, value: Any) -> bytes:
        """Pickle a value for an actor; shared values in it are sent by their keys."""
        with self.lock:
            shared = dict(self.shared.items())
        stream = io.BytesIO()
        _Pickler(stream, shared).dump(value)
        return stream.getvalue()

    # --- requests --------------------------------------------------------------------------

    def reports(
        self,
        shards: Sequence[Shard],
        plan: Callable[[Sequence[Worker]], dict[Worker, list[Shard]]],
        task: Callable[[Worker, Sequence[Shard]], tuple[bytes, Held]],
        shared: Shared,
        needs: Callable[[Shard], Collection[int]],
    ) -> Iterator[Report]:
        """Yield the reports of tasks on shards in order; after losses, other workers do them.

        plan: returns the shards of each worker. task: returns a pickled Task for shards of a
        worker, and what the actor holds after it. shared, needs: the data set or other
        object that the task uses, and the numbers of the chunks for a shard.
        """
        replies: Replies = SimpleQueue()
        waiting = {shard.number for shard in shards}
        # Number of a request -> worker and shards.
        asked: dict[int, tuple[Worker, list[Shard]]] = {}
        early: dict[int, Report] = {}
        expected = deque(shards)
        try:
            while expected:
                members = self.members()
                for number, (worker, some) in list(asked.items()):
                    if worker not in members:
                        waiting.update(shard.number for shard in some)
                        del asked[number]
                for worker, planned in (plan(members) if waiting else {}).items():
                    some = [shard for shard in planned if shard.number in waiting]
                    needed = sorted({number for shard in some for number in needs(shard)})
                    if some and self._supply(worker, shared, needed, replies):
                        pickled, held_then = task(worker, some)
                        request = Request(next(self.numbers), task=pickled, shards=some)
                        worker.tasks.add(request.number)
                        asked[request.number] = worker, some
                        waiting -= {shard.number for shard in some}
                        self._send(worker, request, replies, held_then)
                reply = self._next_reply(replies)
                if reply is not None and reply.number in asked:
                    _, some = asked.pop(reply.number)
                    if reply.is_lost:
                        waiting.update(shard.number for shard in some)
                    else:
                        early.update({report.first: report for report in reply.value})
                while expected and expected[0].number in early:
                    report = early.pop(expected[0].number)
                    yield report
                    while expected and expected[0].number <= report.last:
                        expected.popleft()
        finally:
            for number, (worker, _) in asked.items():
                if not self.closed:
                    self._send(worker, Request(next(self.numbers), [number]), replies, {})

    def _supply(
        self, worker: Worker, shared: Shared, numbers: Sequence[int], replies: Replies
    ) -> bool:
        """Return whether an actor holds all objects and some chunks; if not, deliver some."""
        with self.lock:
            if worker.actor is None:
                return False
            known = worker.known
            makers = {one.key: one.maker for one in self.shared.values() if one.key not in known}
            lacks = [number for number in numbers if number not in known.get(shared.key, {})]
            if not makers and not lacks:
                return True
            if worker.delivery:
                return False
            worker.delivery = number = next(self.numbers)
        try:
            chunks = shared.chunks(lacks)
        except BaseException:
            worker.delivery = 0
            raise
        request = Request(number, (), makers, shared.key, chunks)
        held_then = {**{key: {} for key in makers}, shared.key: dict.fromkeys(chunks, 0)}
        self._send(worker, request, replies, held_then)
        return False

    def _send(self, worker: Worker, request: Request, replies: Replies, held_then: Held) -> None:
        """Send a request, with the keys that the actor is to free.

        held_then: what the actor holds in addition if the request succeeds
        """
        with self.lock:
            unused = worker.known.keys() - {one.key for one in self.shared.values()}
            for key in unused:
                del worker.known[key]
        message = pickle.dumps(request._replace(forget=[*request.forget, *unused]), 5)

        def done(found: Any) -> None:
            is_error = isinstance(found, BaseException)
            try:
                succeeded, value = (False, found) if is_error else pickle.loads(found)
            except Exception as error:  # noqa: BLE001 - the thread that waits raises it
                succeeded, value = False, error
            # An actor that was released while it worked ends its work by Cancelled.
            is_lost = is_error or isinstance(value, Cancelled)
            with self.lock:
                worker.tasks.discard(request.number)
                if worker.delivery == request.number:
                    worker.delivery = 0
                if is_lost:
                    self.losses += self.drop(worker)
                else:
                    self.losses = 0
                    self.bytes_moved += len(found)
                if succeeded:
                    for key, numbers in held_then.items():
                        worker.known.setdefault(key, {}).update(numbers)
            replies.put(Reply(worker, request.number, value, is_lost))

        with self.lock:
            self.bytes_moved += len(message)
        self.connection.send(worker.actor, message, done)

    def _next_reply(self, replies: Replies) -> Reply | None:
        """Return the next reply; None after a heartbeat.

        Raises the error of a task.
        """
        check()
        reply: Reply | None = self.connection.receive(replies, HEARTBEAT)
        if reply is None:
            emit(Progress(WAITING_STAGE, 0, None, "beat"))
        if reply is None or reply.is_lost or not isinstance(error := reply.value, BaseException):
            return reply
        if isinstance(error, OutputError | TransferError):
            reason = f"worker {reply.worker.name}: {error}"
            # Other workers may have room on their disks for spill files.
            if isinstance(error, OutputError | SpillError) and self.exclude(reply.worker, reason):
                return reply._replace(is_lost=True)
            raise type(error)(reason)
        raise error

    def close(self) -> None:
        """Close the connection. All waits are short: a scheduler that is gone does not answer."""
        self.closed = True
        with contextlib.suppress(Exception):
            self.connection.close().join(CLOSING_SECONDS)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles shared values, and views of shared data sets, by their keys."""

    def __init__(self, stream: io.BytesIO, shared: Mapping[int, Shared]) -> None:
        super().__init__(stream, protocol=5)
        self.shared = shared

    def persistent_id(self, value: Any) -> Any:
        """Return the key of a shared value, or what _Unpickler.persistent_load makes a view of."""
        if not isinstance(value, Dataset):
            found = self.shared.get(id(value))
            return None if found is None else found.key
        shared, sent = self.shared[id(value.store)], vars(value)
        sent = {name: of for name, of in sent.items() if name not in LOCAL_ATTRIBUTES}
        mask = sent.pop("row_mask")
        if sent["summary"] is shared.value.summary:
            del sent["summary"]
        return shared.key, sent, None if mask is None else np.packbits(mask)
