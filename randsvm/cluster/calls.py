"""Works on all rows of small data sets, each done whole by one thread of the workers.

The rows are sent to each worker once. Knows nothing of what the works are.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import cloudpickle

from randsvm.cluster import worker
from randsvm.cluster.remote import RemoteDataset, RemoteExecutor
from randsvm.cluster.worker import Missing, Rows, Sent
from randsvm.cluster.worker_pool import Tasks, WorkerPool
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import ThreadExecutor
from randsvm.events import HEARTBEAT, Queued, emit
from randsvm.parallel import ThreadPool

Report = TypeVar("Report")

# Threads of this process that may call at a time, each for a thread of the workers.
MOST_CALLS = 256


def sent(D: Dataset, worker_pool: WorkerPool, whole: Rows) -> Dataset:
    """The rows of D, which are some of those of `whole`, for calls; its home has to be left."""
    here = D.in_one_thread()
    chunks = [here.store.read(shard.number) for shard in here.shards]
    source = Sent(whole, here.summary, chunks)
    rows = Rows(worker.key_below(whole.key), source, whole.memory, whole.folder)
    view = here._view(executor=Callers(here.pool, worker_pool, rows), nnz=D.nnz)
    view.__class__ = RemoteDataset
    return view


class Callers(RemoteExecutor, ThreadExecutor):
    """Where rows are sent to; see Home. What is asked of a shard is done here."""

    def __init__(self, pool: ThreadPool, worker_pool: WorkerPool, rows: Rows) -> None:
        RemoteExecutor.__init__(self, worker_pool, rows)
        ThreadExecutor.__init__(self, pool)
        self.concurrent_calls = min(max(sum(worker_pool.members().values()), 1), MOST_CALLS)
        # Calls under way on each worker.
        self.busy: Counter[str] = Counter()
        self.lock = Lock()

    def pickled(self, D: Dataset) -> tuple[Any, ...]:
        """See RemoteExecutor."""
        return worker.whole_view, (self.rows.key, *worker.own_of(D))

    def call(self, work: Callable[[], Report]) -> Report:
        """See Home. Where a worker was lost, another does it."""
        message, tasks = cloudpickle.dumps(work), Tasks(self.worker_pool, self.rows.key)
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
            emit(Queued())
            if (found := self._free()) is not None:
                break
            time.sleep(HEARTBEAT)
        try:
            yield found
        finally:
            with self.lock:
                self.busy[found[0]] -= 1

    def _free(self) -> tuple[str, int] | None:
        members = self.worker_pool.members()
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

    def release(self) -> None:
        """See Home. Calls that are broken off are waited for: they would send the rows again."""
        self.worker_pool.wait(lambda: not any(self.busy.values()))
        self.worker_pool.notify_all(worker.leave, self.rows.key)
