"""Works on all rows of small data sets, each done whole by one thread of the workers.

The rows are sent to each worker once. Knows nothing of what the works are.
"""

from __future__ import annotations

import itertools
import pickle
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import cloudpickle

from randsvm.cluster import worker
from randsvm.cluster.crew import CLOSING, WAITING, Crew, Tasks
from randsvm.cluster.worker import Missing, Rows, Sent
from randsvm.data.dataset import Dataset
from randsvm.data.home import Spent, Threads
from randsvm.events import HEARTBEAT, Progress, tell

Report = TypeVar("Report")

# Threads of this process that may call at a time, each for a thread of the workers.
MOST_CALLS = 256


class SentDataset(Dataset):
    """Rows that are here and, as soon as they are needed there, on the workers."""

    home: Callers

    def __reduce__(self) -> tuple[Any, ...]:
        return worker.whole_view, (self.home.rows.key, *worker.own_of(self))

    def _view(self, **own: Any) -> Dataset:
        view = super()._view(**own)
        if not isinstance(view.home, Callers):
            view.__class__ = Dataset
        return view


def sent(D: Dataset, crew: Crew, whole: Rows) -> Dataset:
    """The rows of D, which are some of those of `whole`, for calls; its home has to be left."""
    here = D.in_one_thread()
    chunks = [here.store.read(shard.number) for shard in here.shards]
    source = Sent(whole, here.summary, chunks)
    rows = Rows(uuid.uuid4().hex, source, whole.memory, whole.folder)
    view = here._view(home=Callers(here.pool, crew, rows), nnz=D.nnz)
    view.__class__ = SentDataset
    return view


class Callers(Threads):
    """Where rows are sent to; see Home. What is asked of a shard is done here."""

    def __init__(self, pool: ThreadPoolExecutor, crew: Crew, rows: Rows) -> None:
        super().__init__(pool)
        self.crew, self.rows = crew, rows
        self.pickled_rows = pickle.dumps(rows)
        self.at_once = min(max(sum(crew.members().values()), 1), MOST_CALLS)
        self.numbers = itertools.count()
        # Calls under way on each worker.
        self.busy: Counter[str] = Counter()
        self.lock = Lock()

    @property
    def moved(self) -> int:
        """See Home."""
        return self.crew.moved

    @property
    def spent(self) -> Spent:
        """See Home."""
        return self.crew.spent

    def call(self, work: Callable[[], Report]) -> Report:
        """See Home. Where a worker was lost, another does it."""
        message, tasks = cloudpickle.dumps(work), Tasks(self.crew)
        while True:
            with self._worker() as name:
                found = self._called(tasks, name, message)
            tasks.count(found is None, 1)
            if found is not None:
                report: Report = pickle.loads(found)
                return report

    @contextmanager
    def _worker(self) -> Iterator[str]:
        """One that has a free thread, as soon as there is one."""
        while (name := self._free()) is None:
            tell(Progress(WAITING, 0, None, "beat"))
            time.sleep(HEARTBEAT)
        try:
            yield name
        finally:
            with self.lock:
                self.busy[name] -= 1

    def _free(self) -> str | None:
        members = self.crew.members()
        with self.lock:
            free = {name: threads - self.busy[name] for name, threads in members.items()}
            name = max(free, key=lambda name: free[name], default=None)
            if name is None or free[name] <= 0:
                return None
            self.busy[name] += 1
            return name

    def _called(self, tasks: Tasks, name: str, message: bytes) -> bytes | None:
        """What a worker answers; None: it is lost."""
        key, number, rows = self.rows.key, next(self.numbers), None
        try:
            while True:
                tasks.give(name, None, worker.call, key, rows, message, number)
                while (answer := tasks.answer()) is None:
                    pass
                if answer.lost or isinstance(answer.result, bytes):
                    return None if answer.lost else answer.result
                assert isinstance(answer.result, Missing)
                rows = self.pickled_rows
        finally:
            if tasks.given:
                tasks.drop()
                self.crew.tell_now(name, worker.stop, key, number)

    def leave(self) -> None:
        """See Home. Calls that are broken off are waited for: they stop what they called for."""
        end = time.perf_counter() + CLOSING
        while any(self.busy.values()) and time.perf_counter() < end:
            time.sleep(HEARTBEAT / 10)
        self.crew.tell_all(worker.leave, self.rows.key)
