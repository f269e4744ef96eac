"""The executors of data sets whose heavy passes run on the workers of a cluster, and calls there.

Passes that only read rows run in this process: they take less time than messages. This module does
not know Dask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from typing import Any, TypeVar

from randsvm.cluster.actor import map_shards, query_states
from randsvm.cluster.connection import Connection
from randsvm.cluster.workers import Shared, Worker, WorkerPool
from randsvm.data.chunks import Store
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import Executor, Shard, ShardStates
from randsvm.events import Notice, emit
from randsvm.parallel import ThreadPool
from randsvm.parameters.run import Resources

Result = TypeVar("Result")
State = TypeVar("State")

# Passes over fewer rows stay in this process: messages would take longer than the work.
REMOTE_ROWS = 500_000


def connect(address: str) -> WorkerPool:
    """Return the workers of the cluster at an address. Raises ClusterError."""
    return WorkerPool(Connection(address))


def scan_on(worker_pool: WorkerPool, D: Dataset, resources: Resources) -> Dataset:
    """Return a view of D that workers scan; `Dataset.close` closes their connection."""
    if D.n < REMOTE_ROWS:
        emit(
            Notice(
                f"fewer than {REMOTE_ROWS:,} rows: this process makes the scans of kernel machines "
                "itself"
            )
        )
    return D._copy_with(executor=ClusterExecutor(worker_pool, D, resources))


class ClusterExecutor(Executor):
    """Keeps the states of shards on workers, and reads shards in this process.

    concurrent_calls: None in the executor of a data set that workers scan; its `call` runs here. A
    number in that of a replicated data set: its `call` runs on workers, each of which holds all
    rows, and all passes run here.

    owners: the name of the worker of each shard. shared, summary: the rows and the summary of D on
    workers, once a pass needs them.
    """

    shared: Shared | None = None
    summary: Shared | None = None

    def __init__(
        self,
        worker_pool: WorkerPool,
        D: Dataset,
        resources: Resources,
        concurrent_calls: int | None = None,
    ) -> None:
        super().__init__(D.pool, concurrent_calls)
        self.worker_pool, self.D, self.resources = worker_pool, D, resources
        self.owners: dict[int, str] = {}

    def single_threaded(self) -> ClusterExecutor:
        """Return this executor: workers, not the threads of this process, do its heavy passes."""
        return self

    def for_store_of(self, D: Dataset) -> ClusterExecutor:
        """Return the executor for a view with a store of its own."""
        return ClusterExecutor(self.worker_pool, D, self.resources, self.concurrent_calls)

    @property
    def bytes_moved(self) -> int:  # type: ignore[override]
        return self.worker_pool.bytes_moved

    def share(self) -> Shared:
        """Let workers hold the rows of this data set."""
        if self.shared is None:
            # An actor begins with an empty store; chunks follow when a task needs them.
            empty = Store(self.resources.data_bytes, self.resources.tmpdir)
            self.shared = self.worker_pool.share(self.D.store, sent=empty)
            # Views refer to the summary, which is sent once as long as this refers to it.
            self.summary = self.worker_pool.share(self.D.summary)
        return self.shared

    def release(self) -> None:
        self.shared = self.summary = None

    def close(self) -> None:
        self.worker_pool.close()

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        rows = sum(shard.stop - shard.start for shard in shards)
        if rows < REMOTE_ROWS or self.concurrent_calls is not None:
            return super().states(make, shards)
        return RemoteStates(self, make, shards)

    def distribute(
        self,
        work: Callable[[Shard], Result],
        shards: Sequence[Shard],
        needs: Callable[[Shard], Sequence[int]],
    ) -> Iterator[Result]:
        """Yield work(shard) for each shard, in order, computed by the workers.

        needs: returns the numbers of the chunks that work(shard) reads
        """
        shared = self.share()
        task = self.worker_pool.dumps(partial(map_shards, function=work))
        plan = partial(self.assign, shards)
        reports = self.worker_pool.reports(shards, plan, lambda *ignored: task, shared, needs)
        for report in self.worker_pool.run(reports):
            yield report.value

    def assign(
        self, shards: Sequence[Shard], members: Sequence[Worker]
    ) -> dict[Worker, list[Shard]]:
        """Choose the shards of each worker in proportion to its threads, as its owner; return them.

        Shards move away from a worker that is gone. They also move from old workers to new ones,
        until no worker has far more than its share.
        """
        threads = sum(worker.threads for worker in members)
        share = {worker: -(-len(shards) * worker.threads // threads) for worker in members}
        assigned: dict[Worker, list[Shard]] = {worker: [] for worker in members}
        by_name = {worker.name: worker for worker in members}
        moving = []
        for shard in shards:
            owner = by_name.get(self.owners.get(shard.number, ""))
            # A worker keeps up to a quarter more: a shard that moves has to be sent again.
            if owner is not None and len(assigned[owner]) < share[owner] + share[owner] // 4:
                assigned[owner].append(shard)
            else:
                moving.append(shard)
        # Consecutive shards go to one worker, which adds their reports up to one. All find room:
        # shares are rounded up, and what a worker has above its share is no longer moving.
        for worker in sorted(assigned, key=lambda worker: len(assigned[worker]) - share[worker]):
            room = max(share[worker] - len(assigned[worker]), 0)
            assigned[worker] = sorted(assigned[worker] + moving[:room])
            moving = moving[room:]
            self.owners.update({shard.number: worker.name for shard in assigned[worker]})
        return assigned

    @contextmanager
    def replicated(self, D: Dataset) -> Iterator[Dataset]:  # type: ignore[override]
        view = D if D.row_mask is None else D.copied_to_memory()
        calls = self.worker_pool.concurrent_calls()
        executor = ClusterExecutor(self.worker_pool, view, self.resources, calls)
        # Several threads call at a time; the rows are shared before.
        executor.share()
        try:
            yield view._copy_with(executor=executor)
        finally:
            executor.release()

    def call(self, work: Callable[[], Result]) -> Result:
        """Return work(), computed by a worker; if the worker is lost, another one runs it."""
        if self.concurrent_calls is None:
            return work()
        return called(self.worker_pool, self.share(), range(len(self.D.store)), work)


class RemoteStates(ShardStates[State]):
    """States on workers. `changes` keeps all changes since the last restart: a worker that makes a
    lost state again needs them."""

    def __init__(
        self, executor: ClusterExecutor, make: Callable[[Shard], State], shards: Sequence[Shard]
    ) -> None:
        super().__init__(executor, shards, {})
        self.worker_pool, self.assign = executor.worker_pool, partial(executor.assign, shards)
        # None after `close`.
        self.rows: Shared | None = executor.share()
        # On each actor, the dictionary gets the states that it makes (`query_states`).
        self.shared: Shared | None = self.worker_pool.share((make, {}))

    def query(self, function: Callable[[State], Result]) -> Iterator[tuple[int, Result]]:
        assert self.rows is not None and self.shared is not None
        key = self.shared.key

        @cache
        def pickled(first: int) -> bytes:
            """Return the task with all changes from a number on."""
            changes = self.changes[first - self.first :]
            query = partial(query_states, key=key, first=first, changes=changes, function=function)
            return self.worker_pool.dumps(query)

        def task(worker: Worker, shards: Sequence[Shard]) -> bytes:
            # A state that the actor does not have yet needs all changes since the last restart. A
            # reply from before the delivery of this key may have come after it.
            seen = worker.known.get(key, {})
            first = min(max(seen.get(shard.number, 0), self.first) for shard in shards)
            return pickled(first)

        reports = self.worker_pool.reports(
            self.shards, self.assign, task, self.rows, lambda shard: [shard.number]
        )
        for report in self.worker_pool.run(reports):
            yield report.rows, report.value

    def close(self) -> None:
        self.rows = self.shared = None


def called(
    worker_pool: WorkerPool, shared: Shared, numbers: Sequence[int], work: Callable[[], Result]
) -> Result:
    """Return work(), computed by a worker with a free thread.

    shared, numbers: the data set or other object that it uses, and the numbers of its chunks
    """
    task = worker_pool.dumps(partial(map_shards, function=lambda shard: work()))
    # The pool plans passes over shards and makes them again after a loss: a call is a pass over one
    # shard without rows, which the work does not read.
    shards = [Shard(0, 0, 0)]

    def plan(members: Sequence[Worker]) -> dict[Worker, list[Shard]]:
        free = [worker for worker in members if worker.actor and len(worker.tasks) < worker.threads]
        return {min(free, key=lambda worker: len(worker.tasks)): shards} if free else {}

    reports = worker_pool.reports(
        shards, plan, lambda *ignored: task, shared, lambda shard: numbers
    )
    (report,) = worker_pool.run(reports)
    result: Result = report.value
    return result


@contextmanager
def calls_on(
    address: str, value: object
) -> Iterator[Callable[[Iterable[Callable[[], Any]]], Iterator[Any]]]:
    """Yield a function that yields the results of calls in order, computed by workers.

    value: an object that the calls use, sent to each worker once.
    """
    with closing(connect(address)) as worker_pool:
        call = partial(called, worker_pool, worker_pool.share(value), ())
        pool = ThreadPool(worker_pool.concurrent_calls())
        try:
            yield partial(pool.map_in_order, call)
        finally:
            # Its threads end as soon as the connection is closed.
            pool.stop()
