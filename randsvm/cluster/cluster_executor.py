"""D whose shards live on the workers of a cluster, and their home: who has which, and what to do
where one was lost.

Knows nothing of text, of states, or of dask.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import cloudpickle
import numpy as np

from randsvm.cluster import worker
from randsvm.cluster.calls import sent
from randsvm.cluster.remote import RemoteDataset, RemoteExecutor
from randsvm.cluster.worker import Each, Missing, Regrouping, Reports, Rows, Run, Visit
from randsvm.cluster.worker_pool import Tasks, WorkerPool
from randsvm.data.chunks import RamStore, RawChunk, joined
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import (
    ClusterTimes,
    LoggedStates,
    SerialExecutor,
    Shard,
    ShardStates,
)

Report = TypeVar("Report")
State = TypeVar("State")

# A message to some shards; whole: to those that have missed something.
Message = Callable[[bool], bytes]


class Owners:
    """Which worker has which chunk of a store: as many as it has threads for."""

    def __init__(self, worker_pool: WorkerPool) -> None:
        self.worker_pool = worker_pool
        self.of: dict[int, str] = {}
        # The most seconds for each shard that the quickest worker has needed in a pass, as in that
        # which reads the rows.
        self.pace = 0.0
        self.lock = Lock()

    def assigned(
        self, shards: Sequence[Shard], chunk: Callable[[Shard], int]
    ) -> dict[str, list[Shard]]:
        """The shards of each worker. Those of a worker that is gone, and of one that has far more
        than its share since others have come, move. chunk: the number of a shard's chunk."""
        members = self.worker_pool.members()
        if not members:
            return {}
        share = {name: -(-len(shards) * n // sum(members.values())) for name, n in members.items()}
        found: dict[str, list[Shard]] = {name: [] for name in members}
        homeless = []
        with self.lock:
            for shard in shards:
                owner = self.of.get(chunk(shard))
                # A worker keeps a little more than its share: to move a shard is to read it again.
                if owner in found and len(found[owner]) < share[owner] + share[owner] // 4:
                    found[owner].append(shard)
                else:
                    homeless.append(shard)
            # Neighbours together: the sums of their reports are one report.
            for name in sorted(found, key=lambda name: len(found[name]) - share[name]):
                room = max(share[name] - len(found[name]), 0)
                found[name] += homeless[:room]
                homeless = homeless[room:]
            for name, some in found.items():
                some.sort(key=lambda shard: shard.number)
                self.of.update({chunk(shard): name for shard in some})
        return {name: some for name, some in found.items() if some}


class ClusterExecutor(RemoteExecutor):
    """The workers of a crew; see Home. rows: whose chunks the shards are. owners: of these chunks.
    numbers: of the chunk of each shard; None: its own number."""

    def __init__(
        self,
        worker_pool: WorkerPool,
        rows: Rows,
        owners: Owners | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        super().__init__(worker_pool, rows)
        self.numbers = numbers
        self.owners = owners or Owners(worker_pool)

    def of_chunks(self, numbers: Sequence[int]) -> ClusterExecutor:
        """Of shards that are some of the chunks."""
        if self.numbers is not None:
            numbers = [self.numbers[number] for number in numbers]
        return ClusterExecutor(self.worker_pool, self.rows, self.owners, numbers)

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        """See Home. Where the cluster is lost, this process reads what a model still needs."""
        if self.worker_pool.lost is not None:
            yield from SerialExecutor().map(work, shards)
            return
        message = cloudpickle.dumps(Each(work))
        for run in self.runs(lambda whole: message, shards):
            yield run.report

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        """See Home."""
        return RemoteStates(self, make, shards)

    def pickled(self, D: Dataset) -> tuple[Any, ...]:
        """See RemoteExecutor."""
        return worker.view, (self.rows.key, *worker.own_of(D), self.numbers)

    def release(self) -> None:
        """See Home."""
        self.worker_pool.notify_all(worker.leave, self.rows.key)

    @contextmanager
    def replicated(self, D: Any) -> Iterator[Any]:
        """See Home."""
        view = sent(D, self.worker_pool, self.rows)
        try:
            yield view
        finally:
            view.executor.release()

    def runs(self, message: Message, shards: Sequence[Shard]) -> Iterator[Run]:
        """What the shards report, in their order."""
        waiting: dict[int, Run] = {}
        following = {a.number: b.number for a, b in itertools.pairwise(shards)}
        number = shards[0].number if shards else None
        tasks = Tasks(self.worker_pool, self.rows.key)
        try:
            for run in self._answered(tasks, message, shards):
                waiting[run.first] = run
                while number in waiting:
                    run = waiting.pop(number)
                    yield run
                    number = following.get(run.last)
            self.owners.pace = max(self.owners.pace, min(tasks.paces, default=0.0))
        finally:
            tasks.drop()

    def _chunk(self, shard: Shard) -> int:
        return shard.number if self.numbers is None else self.numbers[shard.number]

    def _answered(self, tasks: Tasks, message: Message, shards: Sequence[Shard]) -> Iterator[Run]:
        """The same as they come."""
        left = {shard.number: shard for shard in shards}
        asked, last = time.time(), ClusterTimes()
        ordinary = message(False)

        def give(
            name: str,
            some: list[Shard],
            text: bytes,
            rows: bytes | None = None,
            pace: float = 0.0,
        ) -> None:
            threads = self.worker_pool.members().get(name, 1)
            words = self.rows.key, rows, text, tasks.number, some, threads
            weight = len(some) / threads
            tasks.give(name, (some, text), worker.work, *words, weight=weight, pace=pace)

        def assign(some: Sequence[Shard]) -> list[Shard]:
            """Give tasks for these; what nobody is there for."""
            found = self.owners.assigned(some, self._chunk)
            for name, theirs in found.items():
                give(name, theirs, ordinary)
            return [] if found else list(some)

        homeless = assign(shards)
        while left:
            if homeless:
                homeless = assign(homeless)
            answer = tasks.answer()
            if answer is None:
                continue
            some, text = answer.token
            tasks.count(answer.lost or isinstance(answer.result, Missing), len(shards))
            if answer.lost:
                homeless += [shard for shard in some if shard.number in left]
            elif isinstance(answer.result, Missing):
                if answer.result.rows:
                    give(answer.worker, some, text, self.pickled_rows, self.owners.pace)
                else:
                    behind = set(answer.result.shards)
                    for these, again in ((True, message(True)), (False, ordinary)):
                        part = [shard for shard in some if (shard.number in behind) == these]
                        if part:
                            give(answer.worker, part, again, pace=self.owners.pace)
            else:
                tasks.measure(answer)
                reports: Reports = answer.result
                began, ended, now = reports.began, reports.ended, time.time()
                last = ClusterTimes(began - asked, ended - began, now - ended)
                self.worker_pool.move(reports.runs)
                for run in pickle.loads(reports.runs):
                    # Who was slow may answer after all, when another has done it.
                    if run.first in left:
                        for covered in range(run.first, run.last + 1):
                            left.pop(covered, None)
                        yield run
        self.worker_pool.spend(last)


class ClusterDataset(RemoteDataset):
    """D whose shards live on workers."""

    executor: ClusterExecutor

    def regrouped(
        self,
        made: Callable[[Dataset, int], RawChunk],
        sizes: np.ndarray,
        counts: np.ndarray,
        limit: int,
        folder: str | None,
    ) -> Dataset:
        """See Dataset; the workers put them together, each those that it is asked for."""
        view, executor = super().regrouped(made, sizes, counts, limit, folder), self.executor
        grouping = Regrouping(executor.rows, pickle.dumps(self), made, sizes, counts)
        rows = Rows(
            worker.key_below(executor.rows.key),
            grouping,
            executor.rows.memory,
            executor.rows.folder,
        )
        return view._view(executor=ClusterExecutor(executor.worker_pool, rows))

    def of_chunks(self, numbers: Sequence[int]) -> Dataset:
        """See Dataset."""
        return super().of_chunks(numbers)._view(executor=self.executor.of_chunks(numbers))

    def in_one_thread(self) -> Dataset:
        """See Dataset: its rows come here."""

        def of(shard: Shard) -> RawChunk:
            # A copy: reports are sent when all are made, and a file's buffer has but the last.
            return joined([self.raw(shard)[0]])

        store = RamStore()
        for chunk in self.map(of):
            store.append(chunk)
        return self.stored_in(store)._view(executor=SerialExecutor())

    def close(self) -> None:
        self.executor.worker_pool.over = True
        self.executor.release()
        self.executor.worker_pool.close()
        super().close()


class RemoteStates(LoggedStates[State]):
    """See States. The changes since the last restart are kept, for states that are lost."""

    def __init__(
        self, executor: ClusterExecutor, make: Callable[[Shard], State], shards: Sequence[Shard]
    ) -> None:
        super().__init__()
        self.executor, self.shards = executor, shards
        self.run, self.make = worker.key_below(executor.rows.key), cloudpickle.dumps(make)
        # How many changes every state has seen.
        self.done = 0

    @property
    def settled(self) -> bool:
        return self.done == self.log.end

    def query(self, question: Callable[[State], Report]) -> Iterator[tuple[int, Report]]:
        log, end = self.log, self.log.end

        def message(whole: bool) -> bytes:
            first = log.first if whole else max(self.done, log.first)
            changes = log.since(first)
            # Whoever makes a state anew needs all changes, and nobody else needs to know how.
            make = self.make if first == log.first else None
            return cloudpickle.dumps(Visit(self.run, make, first, changes, question))

        for run in self.executor.runs(message, self.shards):
            yield run.rows, run.report
        self.done = end

    def close(self) -> None:
        self.executor.worker_pool.notify_all(worker.forget, self.run)
