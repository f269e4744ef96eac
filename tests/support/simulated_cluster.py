"""A cluster in one thread: the real code of client and workers, with messages that a seed delays.

The clock stands still while code runs. It advances while the client waits, from event to event.
Messages take random times, so they overtake each other. Workers are killed, stopped for a while,
paused, cut off, out of disk space, or join late. Where several threads of the client wait, as for
folds, each advances the clock in turn; then a seed does not decide everything.
"""

import asyncio
import itertools
import random
import selectors
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import RLock, Thread
from typing import Any

import pytest

from randsvm.cluster.actor import Actor
from randsvm.errors import SpillError
from randsvm.events import Progress, Waiting, emit
from randsvm.parallel import Cancelled

# Seconds between two heartbeats of a worker, and that a message takes at most.
BEAT, SLOWEST = 2.0, 0.3
FAULTS = ("kill", "stop", "pause", "cut", "full disk", "join", "busy", "fail")


class SimulatedActor(Actor):
    """An actor of the workers' real code. owners: the actors of its worker that have a client."""

    def __init__(self, threads: int, owners: set[Actor]) -> None:
        super().__init__(threads)
        self.owners = owners

    def is_wanted(self) -> bool:
        return self in self.owners


class Full(SimulatedActor):
    """An actor on a worker without disk space."""

    def _do(self, request: Any) -> Any:
        raise SpillError("writing the spill file: no space left on device")


@dataclass(eq=False)
class SimulatedWorker:
    """A worker.

    stopped: the time until which it neither answers nor sends heartbeats. busy: the time until
    which other programs keep its threads, so that no actor starts. failing: the time until which
    each start of an actor fails.
    """

    threads: int = 1
    status: str = "running"
    stopped: float = 0.0
    busy: float = 0.0
    failing: float = 0.0
    has_disk: bool = True
    actors: set[Actor] = field(default_factory=set)


class Clock(selectors.SelectSelector):
    """A clock that advances only while an event loop waits."""

    time = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.time += timeout or 0.0
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own, in which threads do their work at once."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.time

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        with ThreadPoolExecutor(1) as threads:
            done = threads.submit(func, *args)
        return asyncio.wrap_future(done, loop=self)


class SimulatedCluster:
    """Takes the place of a `Connection`.

    workers: number of workers at the start. faults: number of faults. seconds: the time in which
    they come. durations: seconds that the next requests take; the others take none.
    """

    def __init__(self, seed: int, workers: int = 3, faults: int = 0, seconds: float = 20.0) -> None:
        self.random = random.Random(seed)
        self.loop = SimulatedLoop()
        self.closed = False
        self.lock = RLock()
        self.numbers = itertools.count()
        self.workers: dict[str, SimulatedWorker] = {}
        self.expected_workers = 0
        self.sent = self.calls = self.bytes_sent = 0
        self.durations: list[float] = []
        names = [self.add() for _ in range(workers)]
        self.reliable = names[0] if workers > 1 else None
        for _ in range(faults):
            self.after(self.random.uniform(0.0, seconds), self._fail)

    def add(self) -> str:
        """Start a worker; return its name."""
        name = f"worker {next(self.numbers)}"
        self.workers[name] = SimulatedWorker(self.random.choice([1, 1, 2]))
        return name

    def kill(self, name: str) -> None:
        for actor in self.workers.pop(name).actors:
            del actor.objects

    def _fail(self) -> None:
        """Let a random worker fail.

        Of several workers the first is not killed or stopped and has disk space; another worker
        joins if the only one fails.
        """
        fault = self.random.choice(FAULTS)
        name = self.random.choice(list(self.workers))
        worker, seconds = self.workers[name], self.random.uniform(0.0, 60.0)
        if fault == "join" or len(self.workers) == 1:
            self.add()
        if name == self.reliable:
            fault = self.random.choice(["pause", "cut"])
        if fault == "kill":
            self.kill(name)
        elif fault == "stop":
            worker.stopped = max(worker.stopped, self.time + min(seconds, 50.0))
        elif fault == "pause":
            worker.status = "paused"
            self.after(min(seconds, 50.0), lambda: setattr(worker, "status", "running"))
        elif fault == "cut":
            worker.actors.clear()
        elif fault == "busy":
            worker.busy = self.time + 10 * seconds
        elif fault == "fail":
            # An actor that the worker has is lost too, so that it needs another.
            worker.actors.clear()
            worker.failing = self.time + seconds / 2
        elif fault == "full disk" and self.reliable is not None:
            worker.has_disk = False

    # --- time ------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        return self.loop.time()

    def after(self, seconds: float, work: Callable[[], object]) -> None:
        """Do something after some seconds."""
        self.loop.call_later(seconds, work)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        with self.lock:
            self.loop.run_until_complete(asyncio.sleep(seconds))

    def run(self, work: Coroutine[Any, Any, Any], stage: str | None = None) -> Any:
        """Advance the clock until a coroutine is done."""
        if self.closed:
            work.close()
            raise Cancelled
        with self.lock:
            task = self.loop.create_task(work)
        try:
            while not task.done():
                with self.lock:
                    self.loop.run_until_complete(asyncio.wait([task], timeout=0.1))
                emit(Waiting() if stage is None else Progress(stage, 0, None, "beat"))
            return task.result()
        finally:
            task.cancel()

    async def _pause(self) -> None:
        """Wait as long as a message takes."""
        await asyncio.sleep(self.random.choice([0.0, 0.001, self.random.uniform(0.0, SLOWEST)]))

    # --- messages --------------------------------------------------------------------------

    async def identity(self) -> dict[str, dict[str, Any]]:
        found = {}
        for name, worker in self.workers.items():
            seen = min(self.time, worker.stopped) if self.time < worker.stopped else self.time
            found[name] = {
                "last_seen": seen // BEAT * BEAT,
                "status": worker.status,
                "nthreads": worker.threads,
            }
        return found

    async def start(self, name: str, threads: int) -> Any:
        worker = self.workers.get(name, SimulatedWorker())

        def start() -> Any:
            if self.time < worker.failing:
                raise OSError("no new thread")
            kind = SimulatedActor if worker.has_disk else Full
            actor = kind(threads, worker.actors)
            worker.actors.add(actor)
            return (name, actor), False

        return await self._ask(name, start, lambda: self.time < worker.busy)

    async def send(self, actor: Any, message: bytes) -> bytes:
        name, found = actor
        self.sent, self.bytes_sent = self.sent + 1, self.bytes_sent + len(message)
        end = self.time + self.durations.pop(0) if self.durations else 0.0
        forgotten = len(found.forgotten)

        def is_working() -> bool:
            return self.time < end and found.is_wanted() and len(found.forgotten) == forgotten

        def handle() -> bytes:
            # An actor that is released while it works ends its work.
            if not found.is_wanted() and self.random.random() < 0.5:
                raise OSError("the actor is gone")
            self.calls += 1
            reply: bytes = found.handle(message)
            return reply

        reply: bytes = await self._ask(name, handle, is_working)
        return reply

    async def _ask(
        self, name: str, work: Callable[[], Any], is_early: Callable[[], bool] = lambda: False
    ) -> Any:
        """Return the result of work on a worker. is_early: whether it cannot have done it yet."""
        await self._pause()
        while name in self.workers and (self.time < self.workers[name].stopped or is_early()):
            await asyncio.sleep(1.0 if is_early() else self.workers[name].stopped - self.time)
        reply: Any = OSError("the worker is gone")
        if name in self.workers:
            try:
                reply = work()
            except OSError as error:
                reply = error
        await self._pause()
        # The connection of a worker that was killed breaks before its reply is here.
        if isinstance(reply, OSError) or name not in self.workers:
            raise OSError("the worker is gone") if name not in self.workers else reply
        return reply

    def release(self, actor: Any) -> None:
        name, found = actor
        if name in self.workers:
            self.workers[name].actors.discard(found)

    def held(self) -> int:
        """Return the number of actors of all workers."""
        return sum(len(worker.actors) for worker in self.workers.values())

    def close(self, tasks: Collection[asyncio.Task[Any]] = ()) -> Thread:
        """End the connection: the scheduler frees all actors of the client."""
        with self.lock:
            self.closed = True
            for task in [*tasks, *asyncio.all_tasks(self.loop)]:
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(1.0))
            self.loop.close()
        for worker in self.workers.values():
            worker.actors.clear()
        thread = Thread(target=bool)
        thread.start()
        return thread


def simulate_clusters(
    patch: pytest.MonkeyPatch, make: Callable[[int], SimulatedCluster]
) -> list[SimulatedCluster]:
    """Let --cluster N connect to make(N); return the list of the clusters that were made."""
    made = []

    def connected(address: str) -> SimulatedCluster:
        made.append(make(int(address)))
        return made[-1]

    patch.setattr("randsvm.cluster.executor.Connection", connected)
    return made
