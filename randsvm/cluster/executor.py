"""The executors of a data set whose heavy passes run on the workers of a cluster.

The client keeps all rows. It sends each worker the chunks that its work needs, once. Passes that
only read rows run in this process: they take less time than messages. This module does not know
Dask.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import cloudpickle

from randsvm.cluster.actor import HeldData, Report, Task, call, map_shards, query_states
from randsvm.cluster.connection import Connection
from randsvm.cluster.workers import Holding, Replies, Reply, Worker, WorkerPool
from randsvm.data.dataset import Dataset
from randsvm.data.shard_executor import Executor, LocalStates, Shard, ShardStates
from randsvm.events import Notice, Queued, emit
from randsvm.parallel import ThreadPool
from randsvm.parameters.run import Resources

Result = TypeVar("Result")
State = TypeVar("State")

# Passes over fewer rows stay in this process: messages would take longer than the work.
REMOTE_ROWS = 500_000
# Bytes of chunks in a request.
REQUEST_BYTES = 32 << 20

# A function to call once the worker has succeeded.
OnSuccess = Callable[[], object]
# Returns the task for some shards of a worker, and its OnSuccess.
Work = Callable[[Holding, list[Shard]], "tuple[Task, OnSuccess]"]


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
    executor = ClusterExecutor(worker_pool, D, resources)
    return D._copy_with(executor=executor)


class ClusterExecutor(Executor):
    """Keeps the states of shards on workers, and reads shards in this process.

    owners: the worker of each chunk. key: of the rows on workers; empty until a pass needs them.
    """

    def __init__(self, worker_pool: WorkerPool, D: Dataset, resources: Resources) -> None:
        super().__init__(D.pool)
        self.worker_pool, self.store, self.summary = worker_pool, D.store, D.summary
        self.resources = resources
        self.owners: dict[int, str] = {}
        self.key = ""

    def single_threaded(self) -> ClusterExecutor:
        """Return this executor, which has its own rule of what stays in this process."""
        return self

    def over(self, D: Dataset) -> ClusterExecutor:
        """Return the executor for a view with a store of its own."""
        return type(self)(self.worker_pool, D, self.resources)

    @property
    def bytes_moved(self) -> int:  # type: ignore[override]
        return self.worker_pool.bytes_moved

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        if sum(shard.stop - shard.start for shard in shards) < REMOTE_ROWS:
            return LocalStates(self, make, shards)
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
        self.share()
        function = self.worker_pool.dumps(work)

        def task(holding: Holding, some: list[Shard]) -> tuple[Task, OnSuccess]:
            return partial(map_shards, function=function, shards=some), lambda: None

        for report in Pass(self.worker_pool, self, shards, task, needs, self.assign).reports():
            yield report.value

    @contextmanager
    def replicated(self, D: Any) -> Iterator[Any]:
        view = D if D.row_mask is None else D.in_memory()
        view = view._copy_with(executor=CallExecutor(self.worker_pool, view, self.resources))
        try:
            yield view
        finally:
            view.executor.release()

    def share(self) -> None:
        """Let workers hold the rows of this data set."""
        if not self.key:
            store, resources = self.store, self.resources
            limit, folder = resources.data_bytes, resources.tmpdir
            held = HeldData(self.summary, store.sizes, store.nonzeros, limit, folder)
            self.key = self.worker_pool.share(self.store, self.summary, held)

    def missing(self, holding: Holding, numbers: Sequence[int]) -> list[int]:
        """Return the numbers of those chunks that an actor does not hold."""
        has = holding.chunks.get(self.key, set())
        return [number for number in numbers if number not in has]

    def send_chunks(
        self, worker: Worker, holding: Holding, replies: Replies, numbers: Sequence[int]
    ) -> bool:
        """Send the first of some chunks to a worker; the tag of the request is None.

        Return whether the actor was free.
        """
        chunks, size = {}, 0
        for number in numbers:
            chunks[number] = pickle.dumps(self.store.read(number), 5)
            size += len(chunks[number])
            if size > REQUEST_BYTES:
                break
        return self.worker_pool.send(worker, holding, replies, None, key=self.key, chunks=chunks)

    def assign(
        self, shards: Sequence[Shard], members: Sequence[Worker]
    ) -> dict[Worker, list[Shard]]:
        """Return the shards of each worker, in proportion to its threads.

        Shards move away from a worker that is gone. They also move from old workers to new ones,
        until no worker has far more than its share.
        """
        threads = sum(worker.threads for worker in members)
        share = {worker: -(-len(shards) * worker.threads // threads) for worker in members}
        found: dict[Worker, list[Shard]] = {worker: [] for worker in members}
        by_name = {worker.name: worker for worker in members}
        unassigned = []
        for shard in shards:
            owner = by_name.get(self.owners.get(shard.number, ""))
            # A worker keeps up to a quarter more: a shard that moves has to be sent again.
            if owner is not None and len(found[owner]) < share[owner] + share[owner] // 4:
                found[owner].append(shard)
            else:
                unassigned.append(shard)
        # Consecutive shards go to one worker, which adds their reports up to one.
        for worker in sorted(found, key=lambda worker: len(found[worker]) - share[worker]):
            room = max(share[worker] - len(found[worker]), 0)
            found[worker] += unassigned[:room]
            unassigned = unassigned[room:]
        for worker, some in found.items():
            some.sort(key=lambda shard: shard.number)
            self.owners.update({shard.number: worker.name for shard in some})
        return {worker: some for worker, some in found.items() if some}

    def release(self) -> None:
        if self.key:
            self.worker_pool.forget(self.key)

    def close(self) -> None:
        self.worker_pool.close()


class Pass:
    """One pass over shards: sends the work, and sends it again after losses.

    assign: returns the shards of each worker, none if all workers are busy. exclusive: whether a
    worker does no other work at the same time.
    """

    def __init__(
        self,
        worker_pool: WorkerPool,
        executor: ClusterExecutor | None,
        shards: Sequence[Shard],
        work: Work,
        needs: Callable[[Shard], Sequence[int]],
        assign: Callable[[Sequence[Shard], Sequence[Worker]], dict[Worker, list[Shard]]],
        exclusive: bool = True,
    ) -> None:
        self.executor, self.pool, self.shards = executor, worker_pool, shards
        self.work, self.needs, self.assign, self.exclusive = work, needs, assign, exclusive
        # Shards that no worker has been given.
        self.unassigned = list(shards)
        # The shards that a worker gets with its next task.
        self.queued: dict[Worker, list[Shard]] = {}
        # The actor and the shards of the task that a worker runs.
        self.running: dict[Worker, tuple[Holding, list[Shard]]] = {}

    def reports(self) -> Iterator[Report]:
        """Yield the reports in the order of the shards."""
        early: dict[int, Report] = {}
        position = {shard.number: at for at, shard in enumerate(self.shards)}
        expected = 0
        with self.pool.replies() as replies:
            while expected < len(self.shards):
                self._assign()
                for worker in list(self.queued):
                    self._send(worker, replies)
                for report in self._reported(self.pool.next_reply(replies)):
                    early[position[report.first]] = report
                while expected in early:
                    report = early.pop(expected)
                    yield report
                    expected = position[report.last] + 1

    def _assign(self) -> None:
        """Give the shards of workers that are gone, and all that no worker has, to workers."""
        members = self.pool.members()
        for worker in self.queued.keys() - set(members):
            self.unassigned += self.queued.pop(worker)
        for worker, (holding, shards) in list(self.running.items()):
            if worker not in members:
                self.pool.drop(worker, holding)
            if worker.holding is not holding:
                del self.running[worker]
                self.unassigned += shards
        if self.unassigned and members:
            self.unassigned.sort(key=lambda shard: shard.number)
            if assigned := self.assign(self.unassigned, members):
                self.unassigned = []
            for worker, shards in assigned.items():
                self.queued.setdefault(worker, []).extend(shards)

    def _send(self, worker: Worker, replies: Replies) -> None:
        """Send the queued shards of a worker, or first what it lacks."""
        holding = self.pool.holding(worker)
        if holding is None or worker in self.running:
            return
        if holding.pending >= (1 if self.exclusive else worker.threads):
            return
        shards = sorted(self.queued[worker], key=lambda shard: shard.number)
        needed = sorted({number for shard in shards for number in self.needs(shard)})
        if self.executor is not None and (missing := self.executor.missing(holding, needed)):
            self.executor.send_chunks(worker, holding, replies, missing)
            return
        if not self.exclusive and self.pool.lacks_objects(holding):
            self.pool.send(worker, holding, replies, None)
            return
        task, on_success = self.work(holding, shards)
        if self.pool.send(
            worker,
            holding,
            replies,
            shards,
            task=task,
            on_success=on_success,
            exclusive=self.exclusive,
        ):
            self.running[worker] = holding, self.queued.pop(worker)

    def _reported(self, reply: Reply | None) -> list[Report]:
        """Return the reports in a reply; those of a lost worker are asked for again."""
        running = None if reply is None else self.running.get(reply.worker)
        # An actor that is lost may have been replaced already.
        if reply is None or reply.tag is None or running is None or running[0] is not reply.holding:
            return []
        _, shards = self.running.pop(reply.worker)
        if reply.is_lost:
            self.unassigned += shards
            return []
        reports: list[Report] = reply.value
        return reports


class RemoteStates(ShardStates[State]):
    """States on workers. `changes` keeps all changes since the last restart: a worker that makes a
    lost state again needs them."""

    def __init__(
        self, executor: ClusterExecutor, make: Callable[[Shard], State], shards: Sequence[Shard]
    ) -> None:
        super().__init__(shards)
        executor.share()
        self.executor, self.pool = executor, executor.worker_pool
        self.key, self.make = self.pool.new_key(), self.pool.dumps(make)

    def query(self, function: Callable[[State], Result]) -> Iterator[tuple[int, Result]]:
        end, pickled = self.end, cloudpickle.dumps(function)
        # Number of the first change -> all changes from there on, pickled.
        changes: dict[int, bytes] = {}

        def work(holding: Holding, shards: list[Shard]) -> tuple[Task, OnSuccess]:
            seen = holding.states.setdefault(self.key, {})
            fresh = frozenset(shard.number for shard in shards if shard.number not in seen)
            first = min(max(seen.get(shard.number, 0), self.first) for shard in shards)
            if first not in changes:
                changes[first] = cloudpickle.dumps(self.changes[first - self.first :])
            make = self.make if fresh else None
            task = partial(
                query_states,
                key=self.key,
                make=make,
                fresh=fresh,
                first=first,
                changes=changes[first],
                function=pickled,
                shards=shards,
            )

            def on_success() -> None:
                seen.update(dict.fromkeys([shard.number for shard in shards], end))

            return task, on_success

        def own(shard: Shard) -> list[int]:
            return [shard.number]

        found = Pass(self.pool, self.executor, self.shards, work, own, self.executor.assign)
        for report in found.reports():
            yield report.rows, report.value

    def close(self) -> None:
        self.pool.forget(self.key)


class CallExecutor(ClusterExecutor):
    """Runs calls on workers that hold all rows, and everything else in this process.

    Several threads call at a time; the rows are shared before.
    """

    def __init__(self, worker_pool: WorkerPool, D: Dataset, resources: Resources) -> None:
        super().__init__(worker_pool, D, resources)
        self.concurrent_calls = worker_pool.concurrent_calls()
        self.share()

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> ShardStates[State]:
        return LocalStates(self, make, shards)

    def call(self, work: Callable[[], Result]) -> Result:
        """Return work(), computed by a worker; if the worker is lost, another one runs it."""
        return called(self.worker_pool, work, self)


def called(
    worker_pool: WorkerPool, work: Callable[[], Result], rows: CallExecutor | None = None
) -> Result:
    """Return work(), computed by a worker with a free thread.

    rows: the executor of the data set whose chunks the call reads
    """
    key = uuid.uuid4().hex
    task = partial(call, key=key, function=worker_pool.dumps(work))
    numbers = () if rows is None else range(len(rows.store.sizes))

    def assign(shards: Sequence[Shard], members: Sequence[Worker]) -> dict[Worker, list[Shard]]:
        held = [(worker, holding) for worker in members if (holding := worker_pool.holding(worker))]
        free = [
            (holding.pending - worker.threads, at)
            for at, (worker, holding) in enumerate(held)
            if not holding.is_busy and holding.pending < worker.threads
        ]
        if not free:
            emit(Queued())
            return {}
        return {held[min(free)[1]][0]: list(shards)}

    one_call = Pass(
        worker_pool,
        rows,
        # A call is a pass over one dummy shard.
        [Shard(0, 0, 0)],
        lambda holding, shards: (task, lambda: None),
        lambda shard: numbers,
        assign,
        exclusive=False,
    )
    try:
        (report,) = one_call.reports()
    finally:
        # Of an abandoned call, such as a fit that takes too long.
        for holding, _ in one_call.running.values():
            worker_pool.cancel(holding, key)
    found: Result = report.value
    return found


class Calls:
    """A context in which workers compute calls, such as predictions.

    shared: an object that the calls use, sent to each worker once.
    """

    def __init__(self, address: str, shared: object) -> None:
        self.worker_pool = connect(address)
        self.worker_pool.share(shared)

    def __enter__(self) -> Calls:
        try:
            self.pool = ThreadPool(self.worker_pool.concurrent_calls())
        except BaseException:
            self.worker_pool.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        # The threads of the pool end as soon as the connection is closed.
        self.worker_pool.close()
        self.pool.shutdown()

    def in_order(self, calls: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """Yield the result of each call, in order."""
        return self.pool.map_in_order(partial(called, self.worker_pool), calls)
