"""The workers of a cluster as they come and go, and tasks for them.

Every wait has a deadline of its own: a task that is pinned to a worker that is gone would else wait
for ever. Knows nothing of what tasks do.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import operator
import queue
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from distributed import Future, fire_and_forget

from randsvm.cluster.connection import CLOSING, CONNECTING, WAITING, Connection
from randsvm.cluster.worker import LEASE, greeting, renew, stop
from randsvm.data.shard_executor import ClusterTimes
from randsvm.errors import (
    ClusterError,
    InputError,
    OutputError,
    RandsvmError,
    SpillError,
    TransferError,
)
from randsvm.events import HEARTBEAT, Notice, Progress, check, emit, emit_once

# Seconds without a word of the scheduler, or of any worker, after which a run ends.
SILENCE = 60.0
# Seconds between two looks at who is there.
LOOK = 0.5
# Seconds after which others do the work of a worker that has beaten but not been running, if there
# are any: Dask pauses a worker whose memory is nearly full, and starts no task there.
PAUSED = 10.0
# A worker is slow when others, one of which is idle, have waited for it for LATE seconds in all,
# beyond TIMES what their own tasks took; a task in time makes good for all before. It gets no tasks
# for REST seconds at first, then for twice as long each time.
LATE, TIMES, REST = 10.0, 4.0, 60.0
# Seconds between two renewals of the lease of the rows of this run; see worker.LEASE.
RENEWAL = LEASE / 6
# Seconds without a heartbeat after which others do the work of a worker, if there are any. However
# long its tasks take, a worker has one every few seconds.
ASLEEP = 30.0
# So many answers more than there are tasks may be lost one after the other: then it is no accident.
LOST = 50
# Of tasks that can be stopped: no two that this process gives have the same.
NUMBERS = itertools.count()
# Errors that are about files of one machine.
FILE_ERRORS = (InputError, OutputError, TransferError)
# Of them, those of a worker that cannot keep rows in a spill file: others may have room.
NO_ROOM = (OutputError, SpillError)
# What a worker is to import first: a function of ours would be looked for before anything could be
# said of an error.
GREETS = "randsvm.cluster.worker"
# What to say of workers on other processors, or with other libraries.
DIFFERS = (
    "worker {worker} computes other last digits than this process ({what}): the model may have "
    "other bytes than that of one machine; the gap that is reported holds"
)


@dataclass(frozen=True)
class Answer:
    """The answer to a task that was given to a worker. lost: the worker, or its answer, is gone.
    seconds: since the task was given."""

    worker: str
    token: Any
    result: Any = None
    lost: bool = False
    seconds: float = 0.0
    given: Given | None = None


@dataclass(frozen=True)
class Given:
    """A task that was given to a worker at a time of time.perf_counter. weight: its work in some
    unit, for each thread of the worker; pace: seconds for each unit that are not slow."""

    worker: str
    token: Any
    at: float
    weight: float
    pace: float


@dataclass
class Signs:
    """Signs of life of a worker. beat: the scheduler's time of its last heartbeat; heard, running:
    when that was new, and when the status was `running`, by time.perf_counter."""

    beat: float
    status: str
    received: float
    running: float

    def see(self, beat: float, status: str, now: float) -> None:
        if beat != self.beat:
            self.beat, self.received = beat, now
        self.status = status
        if status == "running":
            self.running = now


class WorkerPool:
    """The workers of the cluster at an address; see `members`. lost: why the cluster does not go
    on; over: whether the run has ended, and nobody may give workers anything any more."""

    lost: str | None = None
    over = False
    # Seconds that may still be waited at ends.
    patience = CLOSING
    # The key of the rows of this run, on all workers.
    key: str | None = None

    def __init__(self, address: str) -> None:
        for name in list(logging.root.manager.loggerDict):
            # What is lost is made good, or said, here.
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL)
        # Of what is sent once to each worker: weights, or which rows are meant.
        warnings.filterwarnings("ignore", "Sending large graph")
        # Bytes of messages and of reports, and seconds.
        self.moved, self.spent = 0, ClusterTimes()
        self._moving = threading.Lock()
        # Those that tell workers something beside their tasks.
        self._emitting: list[threading.Thread] = []
        self._there: dict[str, int] = {}
        self._signs: dict[str, Signs] = {}
        # Worker -> until when it gets no tasks since it is slow, and for how many seconds.
        self._resting: dict[str, tuple[float, float]] = {}
        # Worker -> seconds that others have waited for it.
        self.waited: dict[str, float] = {}
        self._renewed = time.perf_counter()
        self._seen = self._somebody = time.perf_counter()
        # Workers whose versions are ours, and those who were asked.
        self._ready: set[str] = set()
        self._asked: set[str] = set()
        # Those that cannot take part, and what to say of it.
        self._refused: dict[str, str] = {}
        # Those that compute other last digits, and in what.
        self._differing: dict[str, str] = {}
        self._closed = threading.Event()
        self.connection = Connection(address)
        self.client = self.connection.client
        try:
            threading.Thread(target=self._look, name="randsvm-crew", daemon=True).start()
            self._gather()
        except BaseException:
            self.close()
            raise

    # --- who is there ----------------------------------------------------------------------

    def _look(self) -> None:
        """Ask the scheduler again and again; in a thread of its own, as it may not answer."""
        while not self._closed.wait(LOOK if self._ready else HEARTBEAT):
            with contextlib.suppress(Exception):
                found = self.client.sync(self.client.scheduler.identity)["workers"]
                self._asked.intersection_update(found)
                for worker in found.keys() - self._asked:
                    self._asked.add(worker)
                    # One that stands still may never answer.
                    threading.Thread(target=self._greet, args=[worker], daemon=True).start()
                self._seen = now = time.perf_counter()
                signs = {}
                for worker, one in found.items():
                    beat, status = one["last_seen"], one["status"]
                    sign = self._signs.get(worker) or Signs(beat, status, now, now)
                    sign.see(beat, status, now)
                    signs[worker] = sign
                self._signs = signs
                self._there = {worker: one["nthreads"] for worker, one in found.items()}
                at_work = [min(sign.received, sign.running) for sign in signs.values()]
                self._somebody = max([self._somebody, *at_work])
                self._renew(now)

    def _renew(self, now: float) -> None:
        """Tell the workers now and then that the rows of this run are still needed."""
        if self.key is None or now - self._renewed < RENEWAL:
            return
        self._renewed = now
        names = [name for name in self._ready & self._there.keys() if self._absence(name) is None]
        with contextlib.suppress(Exception):  # they release the rows, and are sent them again
            self._call(names, renew, self.key)

    def _greet(self, worker: str) -> None:
        """Let in a new worker if its versions are ours. It is asked beside its tasks: those of
        another run may keep all its threads for hours."""
        try:
            self.client.run(import_module, GREETS, workers=[worker])
            versions, arithmetic = self.client.run(greeting, workers=[worker])[worker]
        except (ImportError, AttributeError) as error:
            self._refused[worker] = f"worker {worker} cannot import randsvm: {error}"
            return
        except Exception:  # noqa: BLE001 - it is gone again, or else it is asked again
            self._asked.discard(worker)
            return
        our_versions, our_arithmetic = greeting()
        if other := _differing(versions, our_versions):
            name = other[0]
            found = f"has {name} {versions.get(name)}, here is {our_versions[name]}"
            self._refused[worker] = f"worker {worker} {found}"
            return
        if other := _differing(arithmetic, our_arithmetic):
            self._differing[worker] = ", ".join(other)
        self._ready.add(worker)

    def _gather(self) -> None:
        """Wait for the first worker."""
        end = time.perf_counter() + CONNECTING
        while not self.members():
            if time.perf_counter() > end:
                raise ClusterError(f"the cluster has had no workers for {CONNECTING:.0f} s")
            emit(Progress(WAITING, 0, None, "beat"))
            time.sleep(HEARTBEAT)

    def members(self) -> dict[str, int]:
        """Address -> threads of the workers that answer. Raises ClusterError where nobody is there
        any more, or nobody with our versions."""
        now, there = time.perf_counter(), self._there
        for worker, reason in list(self._refused.items()):
            if there and self._refused.keys() >= there.keys():
                raise self.is_lost(reason)
            emit_once(worker, Notice(f"{reason}: it is left out"))
        for worker, what in list(self._differing.items()):
            # Once for all of them: it says the same of each.
            emit_once("arithmetic", Notice(DIFFERS.format(worker=worker, what=what)))
        if self.client.status in ("closed", "closing"):
            raise self.is_lost("the scheduler is gone")
        if self.connection.deserted:
            raise self.is_lost("all workers of this machine have ended")
        if now - self._seen > SILENCE:
            raise self.is_lost(f"the scheduler has not answered for {SILENCE:.0f} s")
        if self._seen - self._somebody > SILENCE:
            idle = [one.status for one in list(self._signs.values()) if one.status != "running"]
            what = f"been running (they are {idle[0]})" if idle else "answered"
            raise self.is_lost(f"no worker of the cluster has {what} for {SILENCE:.0f} s")
        taking_part = self._ready - self._refused.keys()
        found = {worker: n for worker, n in there.items() if worker in taking_part}
        absent = {worker: why for worker in found if (why := self._absence(worker))}
        awake = {worker: n for worker, n in found.items() if worker not in absent}
        if awake:
            for worker, why in absent.items():
                text = f"worker {worker} {why}: others do its work"
                emit_once(text, Notice(text))
        return awake or found

    def _absence(self, worker: str) -> str | None:
        """Return why a worker gets no tasks for now; None: it does."""
        now, sign = time.perf_counter(), self._signs.get(worker)
        if sign is None or now - sign.received > ASLEEP:
            return f"has shown no sign of life for {ASLEEP:.0f} s"
        if now - sign.running > PAUSED:
            why = " since its memory is nearly full" if sign.status == "paused" else ""
            return f"has been {sign.status}{why}"
        if now < self._resting.get(worker, (0.0, 0.0))[0]:
            return "is slow"
        return None

    def rest(self, worker: str) -> None:
        """Give a slow worker no tasks for some time."""
        _, last = self._resting.get(worker, (0.0, REST / 2))
        self._resting[worker] = time.perf_counter() + 2 * last, 2 * last

    def leave_out(self, worker: str, reason: str) -> bool:
        """Give a worker no tasks any more. Return False, and do nothing, if it is the only one."""
        if not self.members().keys() - {worker}:
            return False
        self._refused[worker] = reason
        return True

    def move(self, *words: Any) -> None:
        """Count what goes to a worker or comes from one."""
        with self._moving:
            self.moved += sum(len(word) for word in words if isinstance(word, bytes))

    def spend(self, a_pass: ClusterTimes) -> None:
        """Count what a pass took."""
        with self._moving:
            self.spent = ClusterTimes(*map(operator.add, self.spent, a_pass))

    def is_lost(self, reason: str) -> ClusterError:
        """What to raise where the cluster does not go on."""
        self.lost = reason
        return ClusterError(reason)

    def notify_all(self, function: Callable[..., Any], *words: Any) -> None:
        """A task for every worker, whose answer nobody waits for."""
        with contextlib.suppress(Exception):  # they forget it anyway when they end
            for worker in self._ready & self._there.keys():
                fire_and_forget(self.client.submit(function, *words, workers=[worker], pure=False))

    def emit_now(self, names: list[str], function: Callable[..., Any], *words: Any) -> None:
        """Call a short function on workers beside their tasks, which may keep all their threads;
        nobody waits for it before the end."""

        calling = self._call(names, function, *words)
        with self._moving:
            self._emitting = [one for one in self._emitting if one.is_alive()] + [calling]

    def _call(
        self, names: list[str], function: Callable[..., Any], *words: Any
    ) -> threading.Thread:
        """Call a function on workers in a thread of its own, which is returned."""

        def call() -> None:
            with contextlib.suppress(Exception):  # they are gone, and their tasks with them
                self.client.run(function, *words, workers=names, on_error="ignore")

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        return calling

    def wait(self, ended: Callable[[], bool]) -> None:
        """Wait for an end, but no more than half of what may still be waited."""
        began = time.perf_counter()
        end = began + self.patience / 2
        while not ended() and time.perf_counter() < end:
            time.sleep(HEARTBEAT / 10)
        self.patience -= min(time.perf_counter() - began, self.patience / 2)

    def close(self) -> None:
        """Without waiting long: a scheduler that is gone does not answer."""
        self.wait(lambda: not any(one.is_alive() for one in self._emitting))
        self._closed.set()
        closing = self.connection.end()
        self.wait(lambda: not closing.is_alive())


def _when_done(future: Future, do: Callable[[Future], object]) -> None:
    """Call do(future) when it is done, in a thread of its own. What a worker had that is killed
    just then dask tries to fetch for 30 s; in its one thread for all calls the answers of other
    workers would wait as long."""
    future.add_done_callback(
        lambda future: threading.Thread(target=do, args=[future], daemon=True).start()
    )


def _differing(theirs: dict[str, str], ours: dict[str, str]) -> list[str]:
    return [name for name, value in ours.items() if theirs.get(name) != value]


class Tasks:
    """Tasks that one thread gives to the workers of a crew. given: those that it waits for.

    key: of the rows that they are about, if they can be stopped; number: what worker.stop knows
    them by. paces: seconds for each unit of weight of those that were measured."""

    def __init__(self, worker_pool: WorkerPool, key: str | None = None) -> None:
        self.worker_pool, self.key, self.number = worker_pool, key, next(NUMBERS)
        self.paces: list[float] = []
        # Workers whose tasks others have got: they may still be at work.
        self.abandoned: set[str] = set()
        self.answers: queue.SimpleQueue[tuple[Future, Answer]] = queue.SimpleQueue()
        self.given: dict[Future, Given] = {}
        # Answers that were lost one after the other.
        self.lost = 0

    def give(
        self,
        worker: str,
        token: Any,
        function: Callable[..., Any],
        *words: Any,
        weight: float = 1.0,
        pace: float = 0.0,
    ) -> None:
        """Give a worker a task. token: comes back with its answer; weight, pace: see Given. Raises
        ClusterError where the scheduler is gone, or the run is over."""
        if self.worker_pool.over:
            # A thread that has not heard of it: workers would begin to remember anew.
            raise ClusterError("the run is over")
        try:
            future = self.worker_pool.client.submit(
                function, *words, workers=[worker], allow_other_workers=False, pure=False
            )
        except Exception as error:  # the scheduler is gone: dask has many errors for that
            raise self.worker_pool.is_lost(f"the scheduler takes no tasks: {error}") from error
        self.worker_pool.move(*words)
        self.given[future] = Given(worker, token, time.perf_counter(), weight, pace)
        _when_done(future, self._done)

    def _done(self, future: Future) -> None:
        """Fetch an answer; called in a thread of its own."""
        given = self.given.get(future)
        worker, token = ("", None) if given is None else (given.worker, given.token)
        try:
            result = future.result(timeout=SILENCE)
            seconds = 0.0 if given is None else time.perf_counter() - given.at
            answer = Answer(worker, token, result, seconds=seconds, given=given)
        except RandsvmError as error:
            answer = Answer(worker, token, error)
        except BaseException as error:  # noqa: BLE001 - dask has many for what is lost
            # Errors of numpy's own are among these.
            known = isinstance(error, MemoryError | ArithmeticError | ValueError)
            bug = (known or type(error).__module__ == "builtins") and not isinstance(error, OSError)
            answer = Answer(worker, token, error if bug else None, lost=not bug)
        self.answers.put((future, answer))

    def answer(self) -> Answer | None:
        """The next one, or None after a beat; raises what went wrong in it."""
        check()
        try:
            future, answer = self.answers.get(timeout=HEARTBEAT)
        except queue.Empty:
            emit(Progress(WAITING, 0, None, "beat"))
            return self._overdue()
        if self.given.pop(future, None) is None:
            return None
        if isinstance(answer.result, FILE_ERRORS):
            # The file may be a good one on other machines.
            reason = f"worker {answer.worker}: {answer.result}"
            if isinstance(answer.result, NO_ROOM) and self.worker_pool.leave_out(
                answer.worker, reason
            ):
                return Answer(answer.worker, answer.token, lost=True)
            raise type(answer.result)(reason)
        if isinstance(answer.result, BaseException):
            raise answer.result
        self.worker_pool.move(answer.result)
        return answer

    def _overdue(self) -> Answer | None:
        """Return a task as lost whose worker is gone, or late while others have nothing to do."""
        members = self.worker_pool.members()
        for future, given in self.given.items():
            if given.worker in members and self._is_late(given, members):
                self.worker_pool.rest(given.worker)
                members = self.worker_pool.members()
            if given.worker not in members:
                future.release()
                del self.given[future]
                self.abandoned.add(given.worker)
                return Answer(given.worker, given.token, lost=True)
        return None

    def _is_late(self, given: Given, members: dict[str, int]) -> bool:
        """Whether the worker of a task is slow, and another one is idle."""
        if not members.keys() - {one.worker for one in self.given.values()}:
            return False
        excess = self._excess(given, time.perf_counter() - given.at)
        return excess > 0 and excess + self.worker_pool.waited.get(given.worker, 0.0) > LATE

    def _excess(self, given: Given, seconds: float) -> float:
        """Return the seconds beyond TIMES those that tasks of other workers took."""
        if not self.paces:
            return 0.0
        return seconds - TIMES * given.weight * max(given.pace, *self.paces)

    def measure(self, answer: Answer) -> None:
        """Remember how long a task took whose work is done."""
        given = answer.given
        assert given is not None
        excess = self._excess(given, answer.seconds)
        waited = self.worker_pool.waited
        waited[given.worker] = waited.get(given.worker, 0.0) + excess if excess > 0 else 0.0
        self.paces.append(answer.seconds / given.weight)

    def count(self, lost: bool, tasks: int) -> None:
        """Whether an answer was lost; tasks: how many there are. Raises ClusterError where it is
        no accident any more."""
        self.lost = self.lost + 1 if lost else 0
        if self.lost > LOST + tasks:
            raise self.worker_pool.is_lost("the workers lose what they are given again and again")

    def drop(self) -> None:
        """Nobody wants the tasks that are given any more."""
        names = sorted({given.worker for given in self.given.values()} | self.abandoned)
        for future in self.given:
            future.release()
        self.given.clear()
        if names and self.key is not None:
            self.worker_pool.emit_now(names, stop, self.key, self.number)
