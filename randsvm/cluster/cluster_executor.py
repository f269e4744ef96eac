"""The executors and the data sets of a cluster.

    ClusterExecutor, ClusterDataset   each worker holds some shards
    ReplicaExecutor                   each worker holds all rows of a small data set

This module knows neither text files nor Dask.
"""

from __future__ import annotations

import itertools
import pickle
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import cloudpickle
import numpy as np

from randsvm.cluster import worker
from randsvm.cluster.messages import (
    CacheMiss,
    DatasetSpec,
    MapTask,
    RegroupedChunks,
    ReplicatedChunks,
    ShardReport,
    ShardReports,
    StateTask,
    child_key,
    packed_view,
)
from randsvm.cluster.worker_pool import TaskBatch, WorkerPool
from randsvm.data.chunks import InMemoryStore, RawChunk, join_chunks
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import (
    BaseExecutor,
    ClusterTimes,
    LoggedStates,
    SerialExecutor,
    Shard,
    ShardStates,
    ThreadExecutor,
)
from randsvm.events import HEARTBEAT, Queued, emit
from randsvm.parallel import ThreadPool

Report = TypeVar("Report")
State = TypeVar("State")

# A function that returns a pickled task; its argument: whether to make missing states from scratch.
TaskFactory = Callable[[bool], bytes]

# The largest number of threads of this process in `call`; each waits for one thread of a worker.
MAX_CALLS = 256


class RemoteExecutor(BaseExecutor, ABC):
    """Base of executors with rows on workers. spec: from which workers make the data set."""

    def __init__(self, worker_pool: WorkerPool, spec: DatasetSpec) -> None:
        self.worker_pool, self.spec = worker_pool, spec
        self.pickled_spec = pickle.dumps(spec)

    @property
    def bytes_moved(self) -> int:
        return self.worker_pool.bytes_moved

    @property
    def cluster_times(self) -> ClusterTimes:
        return self.worker_pool.times

    def release(self) -> None:
        self.worker_pool.broadcast(worker.release, self.spec.key)

    @abstractmethod
    def reduce_view(self, D: Dataset) -> tuple[Any, ...]:
        """Return the function and the arguments that make a view on a worker, for __reduce__."""


class RemoteDataset(Dataset):
    """A data set whose rows are on workers."""

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self.executor, RemoteExecutor)
        return self.executor.reduce_view(self)


# --- shards on workers ---------------------------------------------------------------------


class ShardAssignment:
    """The worker of each chunk; each worker has shards in proportion to its threads.

    pace: seconds that a thread of the fastest worker took for a shard, in the slowest pass so far.
    Passes that read the rows from files count too.
    """

    def __init__(self, worker_pool: WorkerPool) -> None:
        self.worker_pool = worker_pool
        self.owners: dict[int, str] = {}
        self.pace = 0.0
        self.lock = Lock()

    def assign(
        self, shards: Sequence[Shard], chunk: Callable[[Shard], int]
    ) -> dict[str, list[Shard]]:
        """Return the shards of each worker.

        Shards move away from a worker that is gone. They also move from old workers to new ones,
        until no worker has far more than its share. chunk: returns the number of the chunk of a
        shard.
        """
        members = self.worker_pool.members()
        if not members:
            return {}
        share = {name: -(-len(shards) * n // sum(members.values())) for name, n in members.items()}
        found: dict[str, list[Shard]] = {name: [] for name in members}
        unassigned = []
        with self.lock:
            for shard in shards:
                owner = self.owners.get(chunk(shard))
                # A worker keeps up to a quarter more: a shard that moves has to be read again.
                if owner in found and len(found[owner]) < share[owner] + share[owner] // 4:
                    found[owner].append(shard)
                else:
                    unassigned.append(shard)
            # Consecutive shards go to one worker, which adds their reports up to one.
            for name in sorted(found, key=lambda name: len(found[name]) - share[name]):
                room = max(share[name] - len(found[name]), 0)
                found[name] += unassigned[:room]
                unassigned = unassigned[room:]
            for name, some in found.items():
                some.sort(key=lambda shard: shard.number)
                self.owners.update({chunk(shard): name for shard in some})
        return {name: some for name, some in found.items() if some}


class ClusterExecutor(RemoteExecutor):
    """Runs functions on the workers that hold the shards.

    assignment: the worker of each chunk of `spec`; all views share it. chunks: the number of the
    chunk of each shard; None: it is the number of the shard.
    """

    def __init__(
        self,
        worker_pool: WorkerPool,
        spec: DatasetSpec,
        assignment: ShardAssignment | None = None,
        chunks: Sequence[int] | None = None,
    ) -> None:
        super().__init__(worker_pool, spec)
        self.chunks = chunks
        self.assignment = assignment or ShardAssignment(worker_pool)

    def chunk_subset(self, numbers: Sequence[int]) -> ClusterExecutor:
        """Return the executor for a view of some of the chunks."""
        if self.chunks is not None:
            numbers = [self.chunks[number] for number in numbers]
        return ClusterExecutor(self.worker_pool, self.spec, self.assignment, numbers)

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        """Yield work(shard) for each shard, in order.

        If the cluster has failed, this process reads the shards that a model still needs.
        """
        if self.worker_pool.failure is not None:
            yield from SerialExecutor().map(work, shards)
            return
        task = cloudpickle.dumps(MapTask(work))
        for shard_report in self.reports(lambda from_scratch: task, shards):
            yield shard_report.report

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        return RemoteStates(self, make, shards)

    def reduce_view(self, D: Dataset) -> tuple[Any, ...]:
        return worker.make_view, (self.spec.key, *packed_view(D), self.chunks)

    @contextmanager
    def replicated(self, D: Any) -> Iterator[Any]:
        view = _replica(D, self.worker_pool, self.spec)
        try:
            yield view
        finally:
            view.executor.release()

    def reports(self, make_task: TaskFactory, shards: Sequence[Shard]) -> Iterator[ShardReport]:
        """Run a task on all shards; yield the reports in the order of the shards."""
        early_reports: dict[int, ShardReport] = {}
        next_shard = {a.number: b.number for a, b in itertools.pairwise(shards)}
        expected = shards[0].number if shards else None
        batch = TaskBatch(self.worker_pool, self.spec.key)
        try:
            for shard_report in _ShardPass(self, batch, make_task, shards).reports():
                early_reports[shard_report.first] = shard_report
                while expected in early_reports:
                    shard_report = early_reports.pop(expected)
                    yield shard_report
                    expected = next_shard.get(shard_report.last)
            fastest = min(batch.paces, default=0.0)
            self.assignment.pace = max(self.assignment.pace, fastest)
        finally:
            batch.cancel()

    def chunk_of(self, shard: Shard) -> int:
        """Return the number in `spec` of the chunk of a shard."""
        return shard.number if self.chunks is None else self.chunks[shard.number]


class _ShardPass:
    """One pass over shards: submits tasks, and submits them again after losses and cache misses."""

    def __init__(
        self,
        executor: ClusterExecutor,
        batch: TaskBatch,
        make_task: TaskFactory,
        shards: Sequence[Shard],
    ) -> None:
        self.executor, self.batch, self.make_task = executor, batch, make_task
        self.shards = shards
        # Number of a shard -> shard, for shards without a report.
        self.unreported = {shard.number: shard for shard in shards}
        # Shards without a report that no worker has been given.
        self.unassigned = list(shards)
        self.task = make_task(False)

    def reports(self) -> Iterator[ShardReport]:
        """Yield the reports in the order in which they arrive."""
        began, times = time.time(), ClusterTimes()
        for result in self.batch.run(lambda: bool(self.unreported), self._assign, len(self.shards)):
            shards, task = result.tag
            found = result.result
            if result.lost:
                self.unassigned += [shard for shard in shards if shard.number in self.unreported]
            elif isinstance(found, CacheMiss):
                self._resubmit(result.worker, shards, task, found)
            else:
                self.batch.measure(result)
                times = _times(began, found, time.time())
                yield from self._new_reports(found)
        self.executor.worker_pool.add_times(times)

    def _assign(self) -> None:
        """Submit the task for all shards without a worker, if there are workers.

        Unlike the calls of `map_calls`, which any worker runs, a shard goes to the worker that has
        its rows.
        """
        if not self.unassigned:
            return
        assignment, chunk_of = self.executor.assignment, self.executor.chunk_of
        found = assignment.assign(self.unassigned, chunk_of)
        for name, shards in found.items():
            self._submit(name, shards, self.task)
        if found:
            self.unassigned = []

    def _submit(
        self,
        name: str,
        shards: list[Shard],
        task: bytes,
        spec: bytes | None = None,
        pace: float = 0.0,
    ) -> None:
        threads = self.executor.worker_pool.members().get(name, 1)
        arguments = self.executor.spec.key, spec, task, self.batch.number, shards, threads
        weight = len(shards) / threads
        tag = shards, task
        self.batch.submit(name, tag, worker.run_on_shards, *arguments, weight=weight, pace=pace)

    def _resubmit(self, name: str, shards: list[Shard], task: bytes, miss: CacheMiss) -> None:
        """Submit a task again with the data that the worker lacks."""
        pace = self.executor.assignment.pace
        if miss.dataset:
            self._submit(name, shards, task, self.executor.pickled_spec, pace)
            return
        lacking = set(miss.shards)
        for from_scratch, again in ((True, self.make_task(True)), (False, self.task)):
            some = [shard for shard in shards if (shard.number in lacking) == from_scratch]
            if some:
                self._submit(name, some, again, pace=pace)

    def _new_reports(self, found: ShardReports) -> Iterator[ShardReport]:
        self.executor.worker_pool.count_bytes(found.reports)
        for shard_report in pickle.loads(found.reports):
            # A slow worker may report shards that another worker has reported already.
            if shard_report.first in self.unreported:
                for covered in range(shard_report.first, shard_report.last + 1):
                    self.unreported.pop(covered, None)
                yield shard_report


def _times(began: float, reports: ShardReports, now: float) -> ClusterTimes:
    """Return the times of a pass that began at `began`, from the last reports."""
    return ClusterTimes(reports.began - began, reports.ended - reports.began, now - reports.ended)


class ClusterDataset(RemoteDataset):
    """A data set whose shards are on workers."""

    executor: ClusterExecutor

    def with_computed_chunks(
        self,
        made: Callable[[Dataset, int], RawChunk],
        sizes: np.ndarray,
        counts: np.ndarray,
        limit: int,
        folder: str | None,
    ) -> Dataset:
        """Return the view of Dataset.with_computed_chunks; workers compute the chunks they need."""
        view = super().with_computed_chunks(made, sizes, counts, limit, folder)
        worker_pool, parent = self.executor.worker_pool, self.executor.spec
        chunks = RegroupedChunks(parent, pickle.dumps(self), made, sizes, counts)
        spec = DatasetSpec(child_key(parent.key), chunks, parent.memory, parent.folder)
        return view._copy_with(executor=ClusterExecutor(worker_pool, spec))

    def chunk_subset(self, numbers: Sequence[int]) -> Dataset:
        executor = self.executor.chunk_subset(numbers)
        return super().chunk_subset(numbers)._copy_with(executor=executor)

    def single_threaded(self) -> Dataset:
        """Copy the rows to this process; return a view that works in the calling thread."""

        def copy(shard: Shard) -> RawChunk:
            # A file store reuses its buffer for the next chunk, but all chunks are kept here.
            return join_chunks([self.raw(shard)[0]])

        store = InMemoryStore()
        for chunk in self.map(copy):
            store.append(chunk)
        return self.with_store(store)._copy_with(Dataset, executor=SerialExecutor())

    def close(self) -> None:
        worker_pool = self.executor.worker_pool
        worker_pool.closed = True
        self.executor.release()
        worker_pool.close()
        super().close()


class RemoteStates(LoggedStates[State]):
    """States on workers. The log keeps all changes since the last restart: a worker that makes a
    lost state again needs them."""

    def __init__(
        self, executor: ClusterExecutor, make: Callable[[Shard], State], shards: Sequence[Shard]
    ) -> None:
        super().__init__()
        self.executor, self.shards = executor, shards
        self.key, self.make = child_key(executor.spec.key), cloudpickle.dumps(make)
        # The number of changes that every state has seen.
        self.changes_seen = 0

    @property
    def settled(self) -> bool:
        return self.changes_seen == self.log.end

    def query(self, function: Callable[[State], Report]) -> Iterator[tuple[int, Report]]:
        log, end = self.log, self.log.end

        def make_task(from_scratch: bool) -> bytes:
            first = log.first if from_scratch else max(self.changes_seen, log.first)
            # A new state needs all changes since the last restart.
            make = self.make if first == log.first else None
            return cloudpickle.dumps(StateTask(self.key, make, first, log.since(first), function))

        for shard_report in self.executor.reports(make_task, self.shards):
            yield shard_report.rows, shard_report.report
        self.changes_seen = end

    def close(self) -> None:
        self.executor.worker_pool.broadcast(worker.release_states, self.key)


# --- all rows on each worker ---------------------------------------------------------------


def _replica(D: Dataset, worker_pool: WorkerPool, parent: DatasetSpec) -> Dataset:
    """Return a view of D, of which every worker holds all rows, for calls on workers.

    parent: the specification of the data set of which D is a view. The caller has to release the
    executor of the view.
    """
    local = D.single_threaded()
    chunks = [local.store.read(shard.number) for shard in local.shards]
    source = ReplicatedChunks(parent, local.summary, chunks)
    spec = DatasetSpec(child_key(parent.key), source, parent.memory, parent.folder)
    executor = ReplicaExecutor(local.pool, worker_pool, spec)
    return local._copy_with(RemoteDataset, executor=executor, nnz=D.nnz)


class ReplicaExecutor(RemoteExecutor, ThreadExecutor):
    """Runs calls on workers that hold all rows, and maps over shards in this process."""

    def __init__(self, pool: ThreadPool, worker_pool: WorkerPool, spec: DatasetSpec) -> None:
        RemoteExecutor.__init__(self, worker_pool, spec)
        ThreadExecutor.__init__(self, pool)
        self.concurrent_calls = min(max(sum(worker_pool.members().values()), 1), MAX_CALLS)
        # Worker -> number of its running calls.
        self.running: Counter[str] = Counter()
        self.lock = Lock()

    def reduce_view(self, D: Dataset) -> tuple[Any, ...]:
        return worker.make_serial_view, (self.spec.key, *packed_view(D))

    def call(self, work: Callable[[], Report]) -> Report:
        """Return work(), run by a worker; if the worker is lost, another one runs it."""
        function, batch = cloudpickle.dumps(work), TaskBatch(self.worker_pool, self.spec.key)
        while True:
            with self._free_worker() as (name, threads):
                found = self._call_on(batch, name, function, threads)
            if found is not None:
                report: Report = pickle.loads(found)
                return report

    @contextmanager
    def _free_worker(self) -> Iterator[tuple[str, int]]:
        """Wait for a worker with a free thread; return its name and its number of threads."""
        while True:
            emit(Queued())
            if (found := self._reserve_thread()) is not None:
                break
            time.sleep(HEARTBEAT)
        try:
            yield found
        finally:
            with self.lock:
                self.running[found[0]] -= 1

    def _reserve_thread(self) -> tuple[str, int] | None:
        """Reserve a thread of the worker with the most free threads; None: all threads are busy."""
        members = self.worker_pool.members()
        with self.lock:
            free = {name: threads - self.running[name] for name, threads in members.items()}
            name = max(free, key=lambda name: free[name], default=None)
            if name is None or free[name] <= 0:
                return None
            self.running[name] += 1
            return name, members[name]

    def _call_on(self, batch: TaskBatch, name: str, function: bytes, threads: int) -> bytes | None:
        """Return the pickled result of a call on a worker; None: the worker is lost."""
        spec: bytes | None = None

        def submit() -> None:
            if not batch.pending:
                arguments = self.spec.key, spec, function, batch.number, threads
                batch.submit(name, None, worker.run_call, *arguments)

        try:
            for result in batch.run(lambda: True, submit, 1):
                if result.lost:
                    break
                if not isinstance(result.result, CacheMiss):
                    pickled: bytes = result.result
                    return pickled
                spec = self.pickled_spec
            return None
        finally:
            batch.cancel()

    def release(self) -> None:
        """Wait for the end of cancelled calls, then release the rows.

        A call that ends later would add the rows to the cache of its worker again.
        """
        self.worker_pool.wait(lambda: not any(self.running.values()))
        super().release()
