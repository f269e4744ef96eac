"""The workers of a cluster that take part in a run, and batches of tasks for them.

Dask never ends a task that is pinned to a worker that is gone, so each wait here has a deadline.
This module does not know what tasks do.
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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from distributed import Future, fire_and_forget

from randsvm.cluster.connection import (
    CLOSING_SECONDS,
    CONNECTING_SECONDS,
    WAITING_STAGE,
    Connection,
    differing_names,
    handshake,
)
from randsvm.cluster.messages import CacheMiss
from randsvm.cluster.worker import LEASE_SECONDS, cancel, renew_lease
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

# Seconds between two requests for the state of the cluster.
POLL_SECONDS = 0.5
# Seconds without an answer of the scheduler, or without any running worker, that end a run.
SILENCE_SECONDS = 60.0
# Seconds until other workers take over the tasks of a paused worker. Dask pauses a worker whose
# memory is nearly full; it still sends heartbeats.
PAUSED_SECONDS = 10.0
# Seconds until other workers take over the tasks of a worker that sends no heartbeats. A worker
# sends one every few seconds, however long its tasks take.
MISSING_SECONDS = 30.0
# A task is late once it has taken SLOW_FACTOR times as long, for its amount of work, as the slowest
# completed task of its batch. The late seconds of a worker add up until one of its tasks is in
# time. If the sum exceeds SLOW_SECONDS while another worker is idle, the worker is slow. It then
# gets no tasks for SUSPENSION_SECONDS; each later suspension is twice as long as the last one.
SLOW_SECONDS, SLOW_FACTOR, SUSPENSION_SECONDS = 10.0, 4.0, 60.0
RENEWAL_SECONDS = LEASE_SECONDS / 6
# A batch fails after more consecutive losses than its number of tasks plus this number.
EXTRA_LOSSES = 50
BATCH_NUMBERS = itertools.count()
# Errors about a file that may be intact on other machines.
FILE_ERRORS = (InputError, OutputError, TransferError)
# Errors of a worker that cannot write its spill file; other workers may have room on their disks.
SPILL_ERRORS = (OutputError, SpillError)
# Dask sends a function of this package by its name. The client first asks a worker to import the
# module of `handshake`: only then does a worker without this package report a clear error.
HANDSHAKE_MODULE = "randsvm.cluster.connection"
ARITHMETIC_DIFFERS = (
    "worker {worker} rounds differently from this process ({names}): the model may differ in its "
    "last digits from a model of one machine; the reported gap is valid"
)


@dataclass
class WorkerHealth:
    """The last signs of life of a worker.

    beat: the scheduler's time of the last heartbeat. beat_seen: time.perf_counter() when this
    process last saw a new heartbeat. running_seen: when it last saw the status `running`.
    """

    beat: float
    status: str
    beat_seen: float
    running_seen: float

    def update(self, beat: float, status: str, now: float) -> None:
        """Record what the scheduler reports of the worker. now: time.perf_counter()."""
        if beat != self.beat:
            self.beat, self.beat_seen = beat, now
        self.status = status
        if status == "running":
            self.running_seen = now


class WorkerPool:
    """The workers of the cluster at an address.

    failure: the reason why the cluster cannot be used any more. closed: whether the run has ended;
    then no task is submitted. key: key of the data of this run in the caches of workers.
    late_seconds: worker -> its late seconds, see SLOW_SECONDS. bytes_moved, times: sums over all
    messages.
    """

    failure: str | None = None
    closed = False
    key: str | None = None
    # Seconds that `wait` may still spend.
    closing_seconds = CLOSING_SECONDS

    def __init__(self, address: str) -> None:
        for name in list(logging.root.manager.loggerDict):
            # Dask's log messages are not needed: this package repairs or reports all losses.
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL)
        # Dask warns of large arguments: the weights and masks of rows, sent once to each worker.
        warnings.filterwarnings("ignore", "Sending large graph")
        self.bytes_moved, self.times = 0, ClusterTimes()
        self.late_seconds: dict[str, float] = {}
        self._lock = threading.Lock()
        self._call_threads: list[threading.Thread] = []
        # Worker -> number of its threads.
        self._threads: dict[str, int] = {}
        self._health: dict[str, WorkerHealth] = {}
        # Slow worker -> end of its suspension, and seconds that it lasts.
        self._suspended: dict[str, tuple[float, float]] = {}
        self._renewed = self._last_answer = self._last_activity = time.perf_counter()
        # Workers whose handshake has begun.
        self._contacted: set[str] = set()
        # Workers whose handshake has succeeded.
        self._ready: set[str] = set()
        # Excluded worker -> reason.
        self._excluded: dict[str, str] = {}
        # Worker of other arithmetic -> the names of the computations that differ.
        self._differing: dict[str, str] = {}
        self._stop_polling = threading.Event()
        self.connection = Connection(address)
        self.client = self.connection.client
        try:
            threading.Thread(target=self._poll, name="randsvm-workers", daemon=True).start()
            self._wait_for_workers()
        except BaseException:
            self.close()
            raise

    # --- members ---------------------------------------------------------------------------

    def _poll(self) -> None:
        """Request the state of the cluster repeatedly; in a thread, as the scheduler may hang."""
        while not self._stop_polling.wait(POLL_SECONDS if self._ready else HEARTBEAT):
            with contextlib.suppress(Exception):
                scheduler: Any = self.client.scheduler  # None before the first connection
                found = self.client.sync(scheduler.identity)["workers"]
                self._contacted.intersection_update(found)
                for worker in found.keys() - self._contacted:
                    self._contacted.add(worker)
                    # A worker that hangs may never answer.
                    threading.Thread(target=self._handshake, args=[worker], daemon=True).start()
                self._last_answer = now = time.perf_counter()
                health = {}
                for worker, state in found.items():
                    beat, status = state["last_seen"], state["status"]
                    worker_health = self._health.get(worker) or WorkerHealth(beat, status, now, now)
                    worker_health.update(beat, status, now)
                    health[worker] = worker_health
                self._health = health
                self._threads = {worker: state["nthreads"] for worker, state in found.items()}
                active = [min(each.beat_seen, each.running_seen) for each in health.values()]
                self._last_activity = max([self._last_activity, *active])
                self._renew_leases(now)

    def _renew_leases(self, now: float) -> None:
        """Keep the data of this run on the workers while the client solves."""
        if self.key is None or now - self._renewed < RENEWAL_SECONDS:
            return
        self._renewed = now
        present = self._ready & self._threads.keys()
        names = [name for name in present if self._absence(name) is None]
        with contextlib.suppress(Exception):  # a CacheMiss brings the data back
            self._call(names, renew_lease, self.key)

    def _handshake(self, worker: str) -> None:
        """Accept a new worker if its versions are those of the client.

        The call is not a task, since tasks of another run may keep all threads for hours.
        """
        try:
            self.client.run(import_module, HANDSHAKE_MODULE, workers=[worker])
            versions, arithmetic = self.client.run(handshake, workers=[worker])[worker]
        except (ImportError, AttributeError) as error:
            self._excluded[worker] = f"worker {worker} cannot import randsvm: {error}"
            return
        except Exception:  # noqa: BLE001 - the worker is gone, or the next poll asks again
            self._contacted.discard(worker)
            return
        our_versions, our_arithmetic = handshake()
        if names := differing_names(versions, our_versions):
            name = names[0]
            theirs, ours = versions.get(name), our_versions[name]
            reason = f"worker {worker} has {name} {theirs}, this process has {ours}"
            self._excluded[worker] = reason
            return
        if names := differing_names(arithmetic, our_arithmetic):
            self._differing[worker] = ", ".join(names)
        self._ready.add(worker)

    def _wait_for_workers(self) -> None:
        """Wait for the first worker."""
        end = time.perf_counter() + CONNECTING_SECONDS
        while not self.members():
            if time.perf_counter() > end:
                raise ClusterError(f"the cluster has had no workers for {CONNECTING_SECONDS:.0f} s")
            emit(Progress(WAITING_STAGE, 0, None, "beat"))
            time.sleep(HEARTBEAT)

    def members(self) -> dict[str, int]:
        """Return the addresses of the workers that get tasks, each with its number of threads.

        Workers that are absent for a while are left out, unless all are absent. Raises ClusterError
        if the scheduler or all workers are gone, or all workers are excluded.
        """
        self._check_cluster()
        for worker, names in list(self._differing.items()):
            # One notice suffices for all workers.
            text = ARITHMETIC_DIFFERS.format(worker=worker, names=names)
            emit_once("arithmetic", Notice(text))
        accepted = self._ready - self._excluded.keys()
        found = {worker: n for worker, n in self._threads.items() if worker in accepted}
        absent = {worker: why for worker in found if (why := self._absence(worker))}
        present = {worker: n for worker, n in found.items() if worker not in absent}
        if present:
            for worker, why in absent.items():
                text = f"worker {worker} {why}: others do its work"
                emit_once(text, Notice(text))
        return present or found

    def _check_cluster(self) -> None:
        """Raise ClusterError if the cluster cannot be used; report the excluded workers."""
        now, present = time.perf_counter(), self._threads
        for worker, reason in list(self._excluded.items()):
            if present and self._excluded.keys() >= present.keys():
                raise self.fail(reason)
            emit_once(worker, Notice(f"{reason}: it is left out"))
        if self.client.status in ("closed", "closing"):
            raise self.fail("the scheduler is gone")
        if self.connection.all_workers_ended:
            raise self.fail("all workers of this machine have ended")
        if now - self._last_answer > SILENCE_SECONDS:
            raise self.fail(f"the scheduler has not answered for {SILENCE_SECONDS:.0f} s")
        if self._last_answer - self._last_activity > SILENCE_SECONDS:
            idle = [each.status for each in list(self._health.values()) if each.status != "running"]
            what = f"been running (they are {idle[0]})" if idle else "answered"
            raise self.fail(f"no worker of the cluster has {what} for {SILENCE_SECONDS:.0f} s")

    def _absence(self, worker: str) -> str | None:
        """Return the reason why a worker gets no tasks at present, or None."""
        now, health = time.perf_counter(), self._health.get(worker)
        if health is None or now - health.beat_seen > MISSING_SECONDS:
            return f"has shown no sign of life for {MISSING_SECONDS:.0f} s"
        if now - health.running_seen > PAUSED_SECONDS:
            why = " since its memory is nearly full" if health.status == "paused" else ""
            return f"has been {health.status}{why}"
        if now < self._suspended.get(worker, (0.0, 0.0))[0]:
            return "is slow"
        return None

    def suspend(self, worker: str) -> None:
        """Give a slow worker no tasks for some time, twice as long as the last time."""
        _, last = self._suspended.get(worker, (0.0, SUSPENSION_SECONDS / 2))
        self._suspended[worker] = time.perf_counter() + 2 * last, 2 * last

    def exclude(self, worker: str, reason: str) -> bool:
        """Give a worker no more tasks; return whether this was possible.

        The only worker cannot be excluded.
        """
        if not self.members().keys() - {worker}:
            return False
        self._excluded[worker] = reason
        return True

    def fail(self, reason: str) -> ClusterError:
        """Record that the cluster cannot be used any more; return the error to raise."""
        self.failure = reason
        return ClusterError(reason)

    # --- messages --------------------------------------------------------------------------

    def count_bytes(self, *messages: Any) -> None:
        """Count the messages that are bytes as sent or received."""
        with self._lock:
            self.bytes_moved += sum(
                len(message) for message in messages if isinstance(message, bytes)
            )

    def add_times(self, times: ClusterTimes) -> None:
        """Add the times of one pass."""
        with self._lock:
            self.times = ClusterTimes(*map(operator.add, self.times, times))

    def broadcast(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Submit a task to every worker without waiting for the results."""
        with contextlib.suppress(Exception):  # a worker that is gone has released its data
            for worker in self._ready & self._threads.keys():
                future = self.client.submit(function, *arguments, workers=[worker], pure=False)
                fire_and_forget(future)

    def call_now(self, names: list[str], function: Callable[..., Any], *arguments: Any) -> None:
        """Call a short function on workers, even if tasks keep all of their threads.

        Only `close` waits for these calls.
        """
        caller = self._call(names, function, *arguments)
        with self._lock:
            running = [thread for thread in self._call_threads if thread.is_alive()]
            self._call_threads = [*running, caller]

    def _call(
        self, names: list[str], function: Callable[..., Any], *arguments: Any
    ) -> threading.Thread:
        """Call a function on workers in a new thread, which is returned."""

        def call() -> None:
            with contextlib.suppress(Exception):  # the workers are gone, and their tasks with them
                self.client.run(function, *arguments, workers=names, on_error="ignore")

        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        return caller

    # --- the end ---------------------------------------------------------------------------

    def wait(self, has_ended: Callable[[], bool]) -> None:
        """Wait until has_ended() is true, for at most half of `closing_seconds`."""
        began = time.perf_counter()
        end = began + self.closing_seconds / 2
        while not has_ended() and time.perf_counter() < end:
            time.sleep(HEARTBEAT / 10)
        self.closing_seconds -= min(time.perf_counter() - began, self.closing_seconds / 2)

    def close(self) -> None:
        """Close the connection. All waits are short: a scheduler that is gone does not answer."""
        self.wait(lambda: not any(thread.is_alive() for thread in self._call_threads))
        self._stop_polling.set()
        closing = self.connection.close()
        self.wait(lambda: not closing.is_alive())


# --- tasks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PendingTask:
    """A task without a result.

    tag: an object of the caller, which the result carries too. submitted: time.perf_counter().
    weight: the amount of work for each thread of the worker, in any unit. pace: seconds for each
    unit of weight that the caller expects.
    """

    worker: str
    tag: Any
    submitted: float
    weight: float
    pace: float


@dataclass(frozen=True)
class TaskResult:
    """The result of a task.

    lost: whether the worker or its result is gone. seconds: from submission to the result.
    """

    worker: str
    tag: Any
    result: Any = None
    lost: bool = False
    seconds: float = 0.0
    task: PendingTask | None = None


class TaskBatch:
    """Tasks that one thread submits to workers, and their results.

    key: key of the data set of the tasks; None: they cannot be cancelled. number: number of the
    batch, for worker.cancel. paces: seconds for each unit of weight, for each measured task.
    """

    def __init__(self, worker_pool: WorkerPool, key: str | None = None) -> None:
        self.worker_pool, self.key, self.number = worker_pool, key, next(BATCH_NUMBERS)
        self.paces: list[float] = []
        self.pending: dict[Future[Any], PendingTask] = {}
        self.results: queue.SimpleQueue[tuple[Future[Any], TaskResult]] = queue.SimpleQueue()
        # Workers that may still run tasks that other workers have taken over.
        self.abandoned: set[str] = set()
        self.consecutive_losses = 0

    def submit(
        self,
        worker: str,
        tag: Any,
        function: Callable[..., Any],
        *arguments: Any,
        weight: float = 1.0,
        pace: float = 0.0,
    ) -> None:
        """Submit a task to a worker. tag, weight, pace: see PendingTask.

        Raises ClusterError if the scheduler is gone, or the run has ended.
        """
        if self.worker_pool.closed:
            # This thread has not noticed the end of the run; workers would cache the data again.
            raise ClusterError("the run is over")
        try:
            future = self.worker_pool.client.submit(
                function, *arguments, workers=[worker], allow_other_workers=False, pure=False
            )
        except Exception as error:  # Dask has many errors for a scheduler that is gone
            raise self.worker_pool.fail(f"the scheduler takes no tasks: {error}") from error
        self.worker_pool.count_bytes(*arguments)
        self.pending[future] = PendingTask(worker, tag, time.perf_counter(), weight, pace)
        _when_done(future, self._receive)

    def _receive(self, future: Future[Any]) -> None:
        """Fetch a result; runs in its own thread."""
        task = self.pending.get(future)
        worker, tag = ("", None) if task is None else (task.worker, task.tag)
        try:
            value = future.result(timeout=SILENCE_SECONDS)
            seconds = 0.0 if task is None else time.perf_counter() - task.submitted
            result = TaskResult(worker, tag, value, seconds=seconds, task=task)
        except RandsvmError as error:
            result = TaskResult(worker, tag, error)
        except BaseException as error:  # noqa: BLE001 - Dask has many errors for lost results
            # Subclasses count too: numpy defines some.
            is_computation_error = isinstance(error, MemoryError | ArithmeticError | ValueError)
            is_bug = (
                is_computation_error or type(error).__module__ == "builtins"
            ) and not isinstance(error, OSError)
            result = TaskResult(worker, tag, error if is_bug else None, lost=not is_bug)
        self.results.put((future, result))

    def run(
        self, is_unfinished: Callable[[], bool], submit: Callable[[], None], tasks: int
    ) -> Iterator[TaskResult]:
        """Yield results in the order in which they arrive, while is_unfinished() is true.

        Before each wait, `submit` submits the tasks that can run now. The caller submits the tasks
        of lost results again. tasks: the number of tasks of the caller.

        Raises the error of a task, and ClusterError after too many consecutive losses.
        """
        while is_unfinished():
            submit()
            result = self._next_result()
            if result is not None:
                self._count_losses(result.lost or isinstance(result.result, CacheMiss), tasks)
                yield result

    def _next_result(self) -> TaskResult | None:
        """Return the next result, or None after HEARTBEAT seconds; raise the error of a task."""
        check()
        try:
            future, result = self.results.get(timeout=HEARTBEAT)
        except queue.Empty:
            emit(Progress(WAITING_STAGE, 0, None, "beat"))
            return self._overdue()
        if self.pending.pop(future, None) is None:
            return None
        if isinstance(result.result, FILE_ERRORS):
            # The file may be intact on other machines.
            reason = f"worker {result.worker}: {result.result}"
            if isinstance(result.result, SPILL_ERRORS) and self.worker_pool.exclude(
                result.worker, reason
            ):
                return TaskResult(result.worker, result.tag, lost=True)
            raise type(result.result)(reason)
        if isinstance(result.result, BaseException):
            raise result.result
        self.worker_pool.count_bytes(result.result)
        return result

    def _overdue(self) -> TaskResult | None:
        """Return a task as lost if its worker is gone, or slow while another worker is idle."""
        members = self.worker_pool.members()
        for future, task in self.pending.items():
            if task.worker in members and self._is_late(task, members):
                self.worker_pool.suspend(task.worker)
                members = self.worker_pool.members()
            if task.worker not in members:
                future.release()
                del self.pending[future]
                self.abandoned.add(task.worker)
                return TaskResult(task.worker, task.tag, lost=True)
        return None

    def _is_late(self, task: PendingTask, members: dict[str, int]) -> bool:
        """Return whether the worker of a task is slow while another worker is idle."""
        if not members.keys() - {each.worker for each in self.pending.values()}:
            return False
        excess = self._excess(task, time.perf_counter() - task.submitted)
        return (
            excess > 0
            and excess + self.worker_pool.late_seconds.get(task.worker, 0.0) > SLOW_SECONDS
        )

    def _excess(self, task: PendingTask, seconds: float) -> float:
        """Return the seconds of a task beyond SLOW_FACTOR times the measured pace."""
        if not self.paces:
            return 0.0
        return seconds - SLOW_FACTOR * task.weight * max(task.pace, *self.paces)

    def measure(self, result: TaskResult) -> None:
        """Record the time of a completed task."""
        task = result.task
        assert task is not None
        excess = self._excess(task, result.seconds)
        seconds = self.worker_pool.late_seconds
        seconds[task.worker] = seconds.get(task.worker, 0.0) + excess if excess > 0 else 0.0
        self.paces.append(result.seconds / task.weight)

    def _count_losses(self, lost: bool, tasks: int) -> None:
        """Count consecutive losses and cache misses; see `run`."""
        self.consecutive_losses = self.consecutive_losses + 1 if lost else 0
        if self.consecutive_losses > EXTRA_LOSSES + tasks:
            raise self.worker_pool.fail("the workers lose their data repeatedly")

    def cancel(self) -> None:
        """Cancel all pending tasks."""
        names = sorted({task.worker for task in self.pending.values()} | self.abandoned)
        for future in self.pending:
            future.release()
        self.pending.clear()
        if names and self.key is not None:
            self.worker_pool.call_now(names, cancel, self.key, self.number)


def _when_done(future: Future[Any], function: Callable[[Future[Any]], object]) -> None:
    """Call function(future) in a new thread when the future is done.

    Dask tries for 30 s to fetch a result of a worker that was killed, and has one thread for all
    callbacks: results of other workers would wait as long.
    """
    future.add_done_callback(
        lambda future: threading.Thread(target=function, args=[future], daemon=True).start()
    )


# A call is submitted only if it is among the next CALLS_AHEAD calls for each thread of the cluster,
# counted from the first call whose result has not been yielded.
CALLS_AHEAD = 8


def map_calls(
    worker_pool: WorkerPool,
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    worker: str | None = None,
) -> Iterator[TaskResult]:
    """Yield the result of function(*call) for each call, in order.

    worker: the worker that runs the calls as long as it is a member; None: any worker.
    """
    results: dict[int, TaskResult] = {}
    batch = TaskBatch(worker_pool)
    unsubmitted, next_number = list(range(len(calls)))[::-1], 0

    def submit() -> None:
        members = worker_pool.members()
        if worker in members:
            members = {worker: members[worker]}
        busy = Counter(task.worker for task in batch.pending.values())
        end = next_number + CALLS_AHEAD * sum(members.values())
        for name, threads in members.items():
            while unsubmitted and unsubmitted[-1] < end and busy[name] <= threads:
                number = unsubmitted.pop()
                batch.submit(name, number, function, *calls[number])
                busy[name] += 1

    def is_unfinished() -> bool:
        return next_number < len(calls)

    try:
        for result in batch.run(is_unfinished, submit, len(calls)):
            if result.lost:
                unsubmitted = sorted([*unsubmitted, result.tag], reverse=True)
            else:
                batch.measure(result)
                results[result.tag] = result
            while next_number in results:
                yield results.pop(next_number)
                next_number += 1
    finally:
        batch.cancel()
