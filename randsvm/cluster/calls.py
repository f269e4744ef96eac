"""Works on all rows of small data sets, each done whole by one thread of the workers.

The rows are sent to each worker once. Knows nothing of what the works are.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import cloudpickle

from randsvm.cluster import worker
from randsvm.cluster.crew import Crew, Tasks
from randsvm.cluster.remote import RemoteDataset, RemoteHome
from randsvm.cluster.worker import Missing, Rows, Sent
from randsvm.data.dataset import Dataset
from randsvm.data.home import Threads
from randsvm.events import HEARTBEAT, Queued, tell

Report = TypeVar("Report")

# Threads of this process that may call at a time, each for a thread of the workers.
MOST_CALLS = 256


def sent(D: Dataset, crew: Crew, whole: Rows) -> Dataset:
    """The rows of D, which are some of those of `whole`, for calls; its home has to be left."""
    here = D.in_one_thread()
    chunks = [here.store.read(shard.number) for shard in here.shards]
    source = Sent(whole, here.summary, chunks)
    rows = Rows(worker.key_below(whole.key), source, whole.memory, whole.folder)
    view = here._view(home=Callers(here.pool, crew, rows), nnz=D.nnz)
    view.__class__ = RemoteDataset
    return view


class Callers(RemoteHome, Threads):
    """Where rows are sent to; see Home. What is asked of a shard is done here."""

    def __init__(self, pool: ThreadPoolExecutor, crew: Crew, rows: Rows) -> None:
        RemoteHome.__init__(self, crew, rows)
        Threads.__init__(self, pool)
        self.at_once = min(max(sum(crew.members().values()), 1), MOST_CALLS)
        # Calls under way on each worker.
        self.busy: Counter[str] = Counter()
        self.lock = Lock()

    def pickled(self, D: Dataset) -> tuple[Any, ...]:
        """See RemoteHome."""
        return worker.whole_view, (self.rows.key, *worker.own_of(D))

    def call(self, work: Callable[[], Report]) -> Report:
        """See Home. Where a worker was lost, another does it."""
        message, tasks = cloudpickle.dumps(work), Tasks(self.crew, self.rows.key)
        while True:
            with self._worker() as (name, threads):
                found = self._called(tasks, name, message, threads)
            tasks.count(found is None, 1)
            if found is not None:
                report: Report = pickle.loads(found)
                return report

    @contextmanager
    def _worker(self) -> Iterator[tuple[str, int]]:
        """One that has a free thread, as soon as there is one, and how many threads it has."""
        while True:
            tell(Queued())
            if (found := self._free()) is not None:
                break
            time.sleep(HEARTBEAT)
        try:
            yield found
        finally:
            with self.lock:
                self.busy[found[0]] -= 1

    def _free(self) -> tuple[str, int] | None:
        members = self.crew.members()
        with self.lock:
            free = {name: threads - self.busy[name] for name, threads in members.items()}
            name = max(free, key=lambda name: free[name], default=None)
            if name is None or free[name] <= 0:
                return None
            self.busy[name] += 1
            return name, members[name]

    def _called(self, tasks: Tasks, name: str, message: bytes, threads: int) -> bytes | None:
        """What a worker answers; None: it is lost."""
        rows = None
        try:
            while True:
                words = self.rows.key, rows, message, tasks.number, threads
                tasks.give(name, None, worker.call, *words)
                while (answer := tasks.answer()) is None:
                    pass
                if answer.lost or isinstance(answer.result, bytes):
                    return None if answer.lost else answer.result
                assert isinstance(answer.result, Missing)
                rows = self.pickled_rows
        finally:
            tasks.drop()

    def leave(self) -> None:
        """See Home. Calls that are broken off are waited for: they would send the rows again."""
        self.crew.wait(lambda: not any(self.busy.values()))
        self.crew.tell_all(worker.leave, self.rows.key)
