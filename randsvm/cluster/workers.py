"""The workers of a cluster that take part in a run, what each of them holds, and requests to them.

Every wait has a deadline, because a worker that is stopped never answers. This module does not know
Dask: `Connection` carries the messages.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

from randsvm.cluster.actor import Request, dumps
from randsvm.cluster.connection import (
    CLOSING_SECONDS,
    CONNECTING_SECONDS,
    WAITING_STAGE,
    Connection,
    differing_names,
    handshake,
)
from randsvm.errors import ClusterError, OutputError, RandsvmError, SpillError, TransferError
from randsvm.events import HEARTBEAT, Notice, Progress, check, emit, emit_once
from randsvm.parallel import Cancelled

# Seconds between two requests for the state of the cluster.
POLL_SECONDS = 0.5
# Seconds that the first pass waits for all workers; of those still missing, any may join later.
GATHERING_SECONDS = 5.0
# Seconds without an answer of the scheduler, or without any running worker, that end a run.
SILENCE_SECONDS = 60.0
# Seconds until other workers take over the work of a paused worker. Dask pauses a worker whose
# memory is nearly full; it still sends heartbeats. A worker whose threads are all busy with the
# tasks of other programs does not start an actor.
PAUSED_SECONDS = 10.0
# Seconds until other workers take over the work of a worker that sends no heartbeats. A worker
# sends one every few seconds, however long its work takes.
MISSING_SECONDS = 30.0
# A run ends after more consecutive losses than this number.
MAX_LOSSES = 50
# Most client threads that wait for calls, one for each thread of a worker.
MAX_CALLS = 256
# Errors of a worker that cannot write its spill file; other workers may have room on their disks.
SPILL_ERRORS = (OutputError, SpillError)
ARITHMETIC_DIFFERS = (
    "worker {worker} rounds differently from this process ({names}): the model may differ in its "
    "last digits from a model of one machine; the reported gap is valid"
)


@dataclass(eq=False)
class Holding:
    """An actor, and what it holds as far as its replies say.

    actor: None until it has started. begun: when it was asked to start. keys: of objects. chunks:
    key of a data set -> numbers of chunks. states: key of states -> number of a shard -> number of
    changes that its state has seen. pending: the number of requests without a reply; is_busy:
    whether one of them changes what the actor holds, so that no other may be sent.
    """

    begun: float
    actor: Any = None
    keys: set[str] = field(default_factory=set)
    chunks: dict[str, set[int]] = field(default_factory=dict)
    states: dict[str, dict[int, int]] = field(default_factory=dict)
    pending: int = 0
    is_busy: bool = False


@dataclass(eq=False)
class Worker:
    """A worker that the scheduler knows.

    beat: the scheduler's time of the last heartbeat. beat_seen: when this process last saw a new
    heartbeat. running_seen: when it last saw the status `running`. is_ready: whether it has the
    versions of this process. excluded: the reason why it takes no part, or None. differing: the
    names of computations with other last digits. holding: its actor, or None.
    """

    name: str
    beat_seen: float
    running_seen: float
    threads: int = 1
    beat: float = 0.0
    status: str = "running"
    is_ready: bool = False
    excluded: str | None = None
    differing: str = ""
    holding: Holding | None = None

    def update(self, state: dict[str, Any], now: float) -> None:
        """Record what the scheduler reports."""
        if state["last_seen"] != self.beat:
            self.beat, self.beat_seen = state["last_seen"], now
        self.status, self.threads = state["status"], state["nthreads"]
        if self.status == "running":
            self.running_seen = now

    def absence(self, now: float) -> str | None:
        """Return the reason why the worker gets no work at present, or None."""
        if now - self.beat_seen > MISSING_SECONDS:
            return f"has shown no sign of life for {MISSING_SECONDS:.0f} s"
        if now - self.running_seen > PAUSED_SECONDS:
            why = " since its memory is nearly full" if self.status == "paused" else ""
            return f"has been {self.status}{why}"
        holding = self.holding
        if holding and holding.actor is None and now - holding.begun > PAUSED_SECONDS:
            return "is busy with other work"
        return None


class Reply(NamedTuple):
    """The reply to a request. tag: of the caller. is_lost: whether the actor is gone."""

    worker: Worker
    holding: Holding
    tag: Any
    value: Any = None
    is_lost: bool = False


# Receives the replies to the requests of one thread, and None after other changes.
Replies = SimpleQueue["Reply | None"]


class WorkerPool:
    """The workers of the cluster that a connection leads to.

    failure: the reason why the cluster cannot be used, or None. closed: whether the run has ended;
    then no request is sent. bytes_moved: the bytes of all messages.
    """

    failure: str | None = None
    closed = False

    def __init__(self, connection: Connection) -> None:
        self.connection, self.now = connection, connection.now
        self.bytes_moved = self.losses = 0
        self.workers: dict[str, Worker] = {}
        self.began = self.last_answer = self.last_activity = self.now()
        self.is_gathered = False
        self.lock = threading.Lock()
        self.waiting: set[Replies] = set()
        # id of an object -> its key, its summary if it is a store, and the object, which lives on.
        # Replaced, never changed, since other threads read it.
        self.keys: dict[int, tuple[str, Any, Any]] = {}
        # Key of an object or of states -> number of users. Actors free what has none.
        self.users: Counter[str] = Counter()
        # Key -> pickled object.
        self.objects: dict[str, bytes] = {}
        connection.repeat(self.poll, lambda: POLL_SECONDS if self.is_gathered else HEARTBEAT)

    # --- members ---------------------------------------------------------------------------

    def poll(self) -> None:
        """Request the state of the cluster."""
        found, now = self.connection.identity(), self.now()
        self.last_answer = now
        for name, state in found.items():
            worker = self.workers.get(name)
            if worker is None:
                worker = self.workers[name] = Worker(name, now, now)
                self.connection.handshake(name, partial(self._greeted, worker))
            worker.update(state, now)
            self.last_activity = max(self.last_activity, min(worker.beat_seen, worker.running_seen))
        for name, worker in list(self.workers.items()):
            if name not in found:
                self.workers.pop(name, None)
                self.drop(worker, worker.holding)

    def _greeted(self, worker: Worker, found: Any) -> None:
        """Accept a new worker if its versions are those of this process.

        found: the result of its handshake, or an exception
        """
        if isinstance(found, ImportError | AttributeError):
            worker.excluded = f"worker {worker.name} cannot import randsvm: {found}"
            return
        if isinstance(found, BaseException):
            # The worker is gone, or the next poll asks again.
            self.workers.pop(worker.name, None)
            return
        (versions, arithmetic), (ours, our_arithmetic) = found, handshake()
        if names := differing_names(versions, ours):
            theirs = versions.get(names[0])
            worker.excluded = (
                f"worker {worker.name} has {names[0]} {theirs}, this process has {ours[names[0]]}"
            )
            return
        worker.differing = ", ".join(differing_names(arithmetic, our_arithmetic))
        worker.is_ready = True
        self._wake()

    def members(self) -> list[Worker]:
        """Return the workers that get work.

        Workers that are absent for a while are left out, unless all are absent. Raises ClusterError
        if the scheduler or all workers are gone, or all workers are excluded.
        """
        self._check_cluster()
        now, workers = self.now(), list(self.workers.values())
        found = [worker for worker in workers if worker.is_ready and worker.excluded is None]
        present = [worker for worker in found if worker.absence(now) is None]
        for worker in found:
            if worker.differing:
                # One notice suffices for all workers.
                text = ARITHMETIC_DIFFERS.format(worker=worker.name, names=worker.differing)
                emit_once("arithmetic", Notice(text))
            if present and (why := worker.absence(now)):
                text = f"worker {worker.name} {why}: others do its work"
                emit_once(text, Notice(text))
                # A start that is under way goes on: the worker is absent until its actor is there.
                if worker.holding is not None and worker.holding.actor is not None:
                    self.drop(worker, worker.holding)
        if not self.is_gathered:
            expected = max(self.connection.expected_workers, len(workers))
            known = sum(worker.is_ready or worker.excluded is not None for worker in workers)
            self.is_gathered = bool(found) and (
                known >= expected or now - self.began > GATHERING_SECONDS
            )
            if not self.is_gathered:
                return []
        return present or found

    def _check_cluster(self) -> None:
        """Raise ClusterError if the cluster cannot be used; report the excluded workers."""
        if self.failure is not None or self.closed:
            raise ClusterError(self.failure or "the run is over")
        now, workers = self.now(), list(self.workers.values())
        for worker in workers:
            if worker.excluded is not None:
                if all(other.excluded is not None for other in workers):
                    raise self.fail(worker.excluded)
                emit_once(worker.name, Notice(f"{worker.excluded}: it is left out"))
        if (reason := self.connection.end()) is not None:
            raise self.fail(reason)
        if now - self.last_answer > SILENCE_SECONDS:
            raise self.fail(f"the scheduler has not answered for {SILENCE_SECONDS:.0f} s")
        if not self.is_gathered and now - self.began > CONNECTING_SECONDS:
            raise self.fail(f"the cluster has had no workers for {CONNECTING_SECONDS:.0f} s")
        if self.last_answer - self.last_activity > SILENCE_SECONDS:
            idle = [worker.status for worker in workers if worker.status != "running"]
            what = f"been running (they are {idle[0]})" if idle else "answered"
            raise self.fail(f"no worker of the cluster has {what} for {SILENCE_SECONDS:.0f} s")

    def concurrent_calls(self) -> int:
        """Return the number of threads of all workers, once they are there; at most MAX_CALLS."""
        while not (members := self.members()):
            emit(Progress(WAITING_STAGE, 0, None, "beat"))
            self.connection.sleep(HEARTBEAT)
        return min(sum(worker.threads for worker in members), MAX_CALLS)

    def exclude(self, worker: Worker, reason: str) -> bool:
        """Give a worker no more work; return whether this was possible.

        The only worker cannot be excluded.
        """
        others = [other for other in list(self.workers.values()) if other is not worker]
        if not any(other.is_ready and other.excluded is None for other in others):
            return False
        worker.excluded = reason
        return True

    def fail(self, reason: str) -> ClusterError:
        """Record that the cluster cannot be used; return the error to raise."""
        self.failure = reason
        return ClusterError(reason)

    # --- what actors hold ------------------------------------------------------------------

    def share(self, value: Any, summary: Any = None, sent: Any = None) -> str:
        """Let actors hold a value, which is sent to each at most once; return its key.

        summary: of the rows, if the value is a store. sent: what is sent; None: the value.
        """
        with self.lock:
            if (found := self.keys.get(id(value))) is not None:
                self.users[found[0]] += 1
                return found[0]
            key = self.new_key()
            self.objects[key] = pickle.dumps(value if sent is None else sent, 5)
            self.keys = {**self.keys, id(value): (key, summary, value)}
            return key

    def new_key(self) -> str:
        """Return a key with one user."""
        key = uuid.uuid4().hex
        self.users[key] = 1
        return key

    def forget(self, key: str) -> None:
        """Give up a use of a key; actors free what has no users with their next request."""
        with self.lock:
            self.users[key] -= 1
            if self.users[key] > 0:
                return
            del self.users[key]
            self.objects.pop(key, None)
            self.keys = {of: found for of, found in self.keys.items() if found[0] != key}

    def lacks_objects(self, holding: Holding) -> bool:
        """Return whether an actor lacks shared values, which a call may use."""
        with self.lock:
            return bool(self._missing(holding))

    def _missing(self, holding: Holding) -> dict[str, bytes]:
        return {key: self.objects[key] for key in sorted(self.objects.keys() - holding.keys)}

    def dumps(self, value: Any) -> bytes:
        """Pickle a value for an actor; shared values in it are sent by their keys."""
        return dumps(value, {of: found[:2] for of, found in self.keys.items()})

    def holding(self, worker: Worker) -> Holding | None:
        """Return the holding of a worker; None: its actor has not started yet.

        If the worker has no actor, this call starts one, unless the run has ended.
        """
        with self.lock:
            holding = worker.holding
            if holding is not None or self.closed:
                return None if holding is None or holding.actor is None else holding
            worker.holding = begun = Holding(self.now())

        def started(actor: Any) -> None:
            if isinstance(actor, BaseException):
                self._lose(worker, begun)
                return
            with self.lock:
                is_needed = worker.holding is begun and not self.closed
                begun.actor = actor if is_needed else None
            if not is_needed:
                self.connection.release(actor)
            self._wake()

        self.connection.start(worker.name, worker.threads, started)
        return None

    def drop(self, worker: Worker, holding: Holding | None) -> None:
        """Release an actor with all that it holds, unless another one has taken its place."""
        with self.lock:
            if holding is None or worker.holding is not holding:
                return
            worker.holding = None
        if holding.actor is not None:
            self.connection.release(holding.actor)
        self._wake()

    def _lose(self, worker: Worker, holding: Holding) -> None:
        """Drop an actor that is gone."""
        self.losses += 1
        self.drop(worker, holding)

    # --- requests --------------------------------------------------------------------------

    def send(
        self,
        worker: Worker,
        holding: Holding,
        replies: Replies,
        tag: Any,
        *,
        key: str = "",
        chunks: dict[int, bytes] | None = None,
        task: Any = None,
        on_success: Callable[[], object] = lambda: None,
        exclusive: bool = True,
    ) -> bool:
        """Send a request; its reply goes to `replies`.

        An exclusive request comes with all shared values that the actor lacks.

        Return whether the request was sent: False if the actor is busy.

        key, chunks, task: see Request. on_success: called when the actor has succeeded.
        exclusive: whether no other request may run at the same time.
        """
        pickled = None if task is None else self.dumps(task)
        with self.lock:
            if holding.is_busy or (exclusive and holding.pending):
                return False
            holding.pending, holding.is_busy = holding.pending + 1, exclusive
            unused = (holding.keys | holding.states.keys()) - self.users.keys()
            holding.keys -= unused
            for freed in unused:
                holding.chunks.pop(freed, None)
                holding.states.pop(freed, None)
            # Several threads of a worker would each get the objects, if they came with calls.
            needed = self._missing(holding) if exclusive else {}
        message = pickle.dumps(
            Request(tuple(sorted(unused)), needed, key, chunks or {}, pickled), 5
        )
        self._count(message)

        def done(found: Any) -> None:
            reply = Reply(worker, holding, tag, is_lost=True)
            is_error = isinstance(found, BaseException)
            try:
                succeeded, value = (False, found) if is_error else pickle.loads(found)
            except Exception as error:  # noqa: BLE001 - the thread that waits raises it
                succeeded, value = False, error
            # An actor that was released while it worked ends its work by Cancelled.
            if is_error or isinstance(value, Cancelled):
                self._lose(worker, holding)
            else:
                self.losses = 0
                self._count(found)
                if succeeded:
                    holding.keys |= needed.keys()
                    if chunks:
                        holding.chunks.setdefault(key, set()).update(chunks)
                    on_success()
                reply = Reply(worker, holding, tag, value)
            with self.lock:
                holding.pending -= 1
                holding.is_busy = holding.pending > 0 and holding.is_busy
            replies.put(reply)
            self._wake(replies)

        self.connection.send(holding.actor, message, done)
        return True

    def cancel(self, holding: Holding, key: str) -> None:
        """Cancel a call: it ends at its next event. The client has stopped waiting for it."""
        if self.closed:
            return
        message = pickle.dumps(Request((key,), {}, "", {}, None), 5)
        self._count(message)
        self.connection.send(holding.actor, message, lambda found: None)

    def _count(self, message: bytes) -> None:
        with self.lock:
            self.bytes_moved += len(message)

    @contextmanager
    def replies(self) -> Iterator[Replies]:
        """Return a queue for the replies to the requests of this thread."""
        queue: Replies = SimpleQueue()
        with self.lock:
            self.waiting.add(queue)
        try:
            yield queue
        finally:
            with self.lock:
                self.waiting.discard(queue)

    def _wake(self, skipped: Replies | None = None) -> None:
        """Let all threads that wait look at the workers again."""
        with self.lock:
            waiting = list(self.waiting)
        for queue in waiting:
            if queue is not skipped:
                queue.put(None)

    def next_reply(self, replies: Replies) -> Reply | None:
        """Return the next reply; None after a heartbeat, or if workers have changed.

        Raises the error of a task, and ClusterError after too many consecutive losses.
        """
        check()
        reply: Reply | None = self.connection.receive(replies, HEARTBEAT)
        if reply is None:
            emit(Progress(WAITING_STAGE, 0, None, "beat"))
        if self.losses > MAX_LOSSES:
            raise self.fail("the workers lose their data repeatedly")
        if reply is None or not isinstance(error := reply.value, BaseException):
            return reply
        if isinstance(error, (*SPILL_ERRORS, TransferError)):
            reason = f"worker {reply.worker.name}: {error}"
            if isinstance(error, SPILL_ERRORS) and self.exclude(reply.worker, reason):
                self.drop(reply.worker, reply.holding)
                return reply._replace(is_lost=True, value=None)
            assert isinstance(error, RandsvmError)
            raise type(error)(reason)
        raise error

    def close(self) -> None:
        """Close the connection. All waits are short: a scheduler that is gone does not answer."""
        self.closed = True
        self._wake()
        with contextlib.suppress(Exception):
            self.connection.close().join(CLOSING_SECONDS)
