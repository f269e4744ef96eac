"""The workers of a cluster as they come and go, and tasks for them. The only file that calls dask.

Every wait has a deadline of its own: a task that is pinned to a worker that is gone would else wait
for ever. Knows nothing of what tasks do.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import operator
import queue
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Future, LocalCluster, fire_and_forget

from randsvm.cluster.worker import greeting, stop
from randsvm.data.home import Spent
from randsvm.errors import ClusterError, ParameterError, RandsvmError
from randsvm.events import HEARTBEAT, Notice, Progress, check, in_daemon_thread, tell, tell_once

# Seconds that the scheduler, and then the first worker, may take to be there.
CONNECTING = 60.0
# Seconds without a word of the scheduler, or of any worker, after which a run ends.
SILENCE = 60.0
# Seconds between two looks at who is there.
LOOK = 0.5
# Seconds without a heartbeat after which others do the work of a worker, if there are any. However
# long its tasks take, a worker has one every few seconds.
ASLEEP = 30.0
# The stage in which a run waits for workers.
WAITING = "waiting for workers"
# So many answers more than there are tasks may be lost one after the other: then it is no accident.
LOST = 50
# Seconds that all waits for the end of something may take in a whole run: a signal ends it within
# two seconds.
CLOSING = 1.5
# Of tasks that can be stopped: no two that this process gives have the same.
NUMBERS = itertools.count()
# What to say of workers on other processors, or with other libraries.
DIFFERS = (
    "worker {worker} computes other last digits than this process ({what}): the model may have "
    "other bytes than that of one machine; the gap that is reported holds"
)


@dataclass(frozen=True)
class Answer:
    """Of a task that was given to a worker. lost: the worker, or its answer, is gone."""

    worker: str
    token: Any
    result: Any = None
    lost: bool = False


class OwnClient(Client):
    """Closed by its crew alone.

    dask's closes when the collector finds it, in whatever thread that is; where that thread starts
    another client, closing waits for ever for a lock that starting has.
    """

    def __init__(self, **where: Any) -> None:
        try:
            super().__init__(**where, set_as_default=False)
        except BaseException:
            with contextlib.suppress(Exception):
                self.close(timeout=CLOSING)
            raise

    def __del__(self) -> None: ...


class Crew:
    """The workers of the cluster at an address; see `members`. lost: why the cluster does not go
    on."""

    lost: str | None = None
    # Seconds that may still be waited at ends.
    patience = CLOSING

    def __init__(self, address: str) -> None:
        for name in list(logging.root.manager.loggerDict):
            # What is lost is made good, or said, here.
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL)
        # Of what is sent once to each worker: weights, or which rows are meant.
        warnings.filterwarnings("ignore", "Sending large graph")
        self.local: LocalCluster | None = None
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self.client = self._connected(address)
        except RandsvmError:
            raise
        except Exception as error:  # what answers may say anything
            # The first bytes of another protocol are a length for dask.
            stranger = isinstance(error, MemoryError)
            reason = "what answers is no scheduler" if stranger else error
            raise ClusterError(f"cannot reach the cluster {address}: {reason}") from error
        # Bytes of messages and of reports, and seconds.
        self.moved, self.spent = 0, Spent()
        self._moving = threading.Lock()
        # Those that tell workers something beside their tasks.
        self._telling: list[threading.Thread] = []
        self._there: dict[str, int] = {}
        # Of each worker, the scheduler's time of its last heartbeat, and when that was new here.
        self._beats: dict[str, tuple[float, float]] = {}
        self._seen = self._somebody = time.perf_counter()
        # Workers whose versions are ours, and who was asked: dask drops what nobody holds.
        self._ready: set[str] = set()
        self._greetings: dict[str, Future] = {}
        # Those whose versions are others, and what to say of it.
        self._refused: dict[str, str] = {}
        # Those that compute other last digits, and in what.
        self._differing: dict[str, str] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._look, name="randsvm-crew", daemon=True).start()
        try:
            self._gather()
        except BaseException:
            self.close()
            raise

    def _connected(self, address: str) -> OwnClient:
        if found := re.fullmatch(r"local:([1-9]\d{0,3})", address):
            return OwnClient(address=self._local_scheduler(int(found[1])))
        where = "scheduler_file" if Path(address).is_file() else "address"
        if where == "address" and not re.fullmatch(r"(\w+://)?[^/\s]+:\d+", address):
            raise ParameterError(
                f"--cluster: expected host:port, a scheduler file or local:N, found {address!r}"
            )

        def connected() -> OwnClient:
            return OwnClient(**{where: address}, timeout=CONNECTING)

        return in_daemon_thread(connected, WAITING)

    def _local_scheduler(self, count: int) -> str:
        """The address of a scheduler in this process, for workers that end with it."""
        self.local = LocalCluster(
            n_workers=0,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        )
        address = self.local.scheduler_address
        words = f"{address} --nthreads 1 --no-nanny --no-dashboard --memory-limit 0"
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", *words.split()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # A signal of the terminal is for the master alone.
                start_new_session=True,
            )
            for _ in range(count)
        ]
        return address

    # --- who is there ----------------------------------------------------------------------

    def _look(self) -> None:
        """Ask the scheduler again and again; in a thread of its own, as it may not answer."""
        while not self._closed.wait(LOOK if self._ready else HEARTBEAT):
            with contextlib.suppress(Exception):
                found = self.client.sync(self.client.scheduler.identity)["workers"]
                for worker in found.keys() - self._there.keys():
                    self._greet(worker)
                self._seen = time.perf_counter()
                beats = {worker: one["last_seen"] for worker, one in found.items()}
                self._beats = {
                    worker: old
                    if (old := self._beats.get(worker)) is not None and old[0] == beat
                    else (beat, self._seen)
                    for worker, beat in beats.items()
                }
                self._there = {worker: one["nthreads"] for worker, one in found.items()}
                self._somebody = max([self._somebody, *(at for _, at in self._beats.values())])

    def _greet(self, worker: str) -> None:
        """Let in a new worker if its versions are ours."""

        def compare(future: Future) -> None:
            try:
                versions, arithmetic = future.result(timeout=SILENCE)
            except (ImportError, AttributeError) as error:
                self._refused[worker] = f"worker {worker} cannot import randsvm: {error}"
                return
            except BaseException:  # noqa: BLE001 - it is gone again
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

        future = self.client.submit(greeting, workers=[worker], pure=False)
        self._greetings[worker] = future
        _when_done(future, compare)

    def _gather(self) -> None:
        """Wait for the first worker."""
        end = time.perf_counter() + CONNECTING
        while not self.members():
            if time.perf_counter() > end:
                raise ClusterError(f"the cluster has had no workers for {CONNECTING:.0f} s")
            tell(Progress(WAITING, 0, None, "beat"))
            time.sleep(HEARTBEAT)

    def members(self) -> dict[str, int]:
        """Address -> threads of the workers that answer. Raises ClusterError where nobody is there
        any more, or nobody with our versions."""
        now, there = time.perf_counter(), self._there
        for worker, reason in list(self._refused.items()):
            if there and self._refused.keys() >= there.keys():
                raise self.is_lost(reason)
            tell_once(worker, Notice(f"{reason}: it is left out"))
        for worker, what in list(self._differing.items()):
            # Once for all of them: it says the same of each.
            tell_once("arithmetic", Notice(DIFFERS.format(worker=worker, what=what)))
        if self.client.status in ("closed", "closing"):
            raise self.is_lost("the scheduler is gone")
        if now - self._seen > SILENCE:
            raise self.is_lost(f"the scheduler has not answered for {SILENCE:.0f} s")
        if self._seen - self._somebody > SILENCE:
            raise self.is_lost(f"no worker of the cluster has answered for {SILENCE:.0f} s")
        found = {worker: n for worker, n in there.items() if worker in self._ready}
        awake = {worker: n for worker, n in found.items() if not self._is_asleep(worker)}
        return awake or found

    def _is_asleep(self, worker: str) -> bool:
        _, at = self._beats.get(worker, (0.0, 0.0))
        return time.perf_counter() - at > ASLEEP

    def move(self, *words: Any) -> None:
        """Count what goes to a worker or comes from one."""
        with self._moving:
            self.moved += sum(len(word) for word in words if isinstance(word, bytes))

    def spend(self, a_pass: Spent) -> None:
        """Count what a pass took."""
        with self._moving:
            self.spent = Spent(*map(operator.add, self.spent, a_pass))

    def is_lost(self, reason: str) -> ClusterError:
        """What to raise where the cluster does not go on."""
        self.lost = reason
        return ClusterError(reason)

    def tell_all(self, function: Callable[..., Any], *words: Any) -> None:
        """A task for every worker, whose answer nobody waits for."""
        with contextlib.suppress(Exception):  # they forget it anyway when they end
            for worker in self._ready & self._there.keys():
                fire_and_forget(self.client.submit(function, *words, workers=[worker], pure=False))

    def tell_now(self, names: list[str], function: Callable[..., Any], *words: Any) -> None:
        """Call a short function on workers beside their tasks, which may keep all their threads;
        nobody waits for it before the end."""

        def call() -> None:
            with contextlib.suppress(Exception):  # they are gone, and their tasks with them
                self.client.run(function, *words, workers=names, on_error="ignore")

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        with self._moving:
            self._telling = [one for one in self._telling if one.is_alive()] + [calling]

    def wait(self, ended: Callable[[], bool]) -> None:
        """Wait for an end, but no more than half of what may still be waited."""
        began = time.perf_counter()
        end = began + self.patience / 2
        while not ended() and time.perf_counter() < end:
            time.sleep(HEARTBEAT / 10)
        self.patience -= min(time.perf_counter() - began, self.patience / 2)

    def close(self) -> None:
        """Without waiting long: a scheduler that is gone does not answer."""
        self.wait(lambda: not any(one.is_alive() for one in self._telling))
        self._closed.set()
        for process in self.processes:
            process.kill()
            process.wait()

        def close() -> None:
            with contextlib.suppress(Exception):
                self.client.close(timeout=CLOSING)
                if self.local is not None:
                    self.local.close(timeout=CLOSING)

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
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
    them by."""

    def __init__(self, crew: Crew, key: str | None = None) -> None:
        self.crew, self.key, self.number = crew, key, next(NUMBERS)
        self.answers: queue.SimpleQueue[tuple[Future, Answer]] = queue.SimpleQueue()
        self.given: dict[Future, tuple[str, Any]] = {}
        # Answers that were lost one after the other.
        self.lost = 0

    def give(self, worker: str, token: Any, function: Callable[..., Any], *words: Any) -> None:
        """A task for a worker; token: comes back with its answer."""
        try:
            future = self.crew.client.submit(
                function, *words, workers=[worker], allow_other_workers=False, pure=False
            )
        except Exception as error:  # the scheduler is gone: dask has many errors for that
            raise self.crew.is_lost(f"the scheduler takes no tasks: {error}") from error
        self.crew.move(*words)
        self.given[future] = worker, token
        _when_done(future, self._done)

    def _done(self, future: Future) -> None:
        """Fetch an answer; called in a thread of its own."""
        worker, token = self.given.get(future, ("", None))
        try:
            answer = Answer(worker, token, future.result(timeout=SILENCE))
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
            tell(Progress(WAITING, 0, None, "beat"))
            return self._overdue()
        if self.given.pop(future, None) is None:
            return None
        if isinstance(answer.result, BaseException):
            raise answer.result
        self.crew.move(answer.result)
        return answer

    def _overdue(self) -> Answer | None:
        """Of a task whose worker is gone, or asleep while others are awake."""
        members = self.crew.members()
        for future, (worker, token) in self.given.items():
            if worker not in members:
                future.release()
                del self.given[future]
                return Answer(worker, token, lost=True)
        return None

    def count(self, lost: bool, tasks: int) -> None:
        """Whether an answer was lost; tasks: how many there are. Raises ClusterError where it is
        no accident any more."""
        self.lost = self.lost + 1 if lost else 0
        if self.lost > LOST + tasks:
            raise self.crew.is_lost("the workers lose what they are given again and again")

    def drop(self) -> None:
        """Nobody wants the tasks that are given any more."""
        names = sorted({name for name, _ in self.given.values()})
        for future in self.given:
            future.release()
        self.given.clear()
        if names and self.key is not None:
            self.crew.tell_now(names, stop, self.key, self.number)
