"""A cluster whose workers are this process, for tests of the messages to workers."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import Any

from randsvm.cluster.worker_pool import WorkerPool
from randsvm.data.shard_executor import ClusterTimes


class DoneFuture(Future[Any]):
    """A future with the methods of a Dask future."""

    def release(self) -> None:
        pass


class FakeWorkerPool(WorkerPool):
    """A pool of workers that run a task when it is submitted; the address is their number.

    losses: the numbers of tasks, from 0, whose worker is lost. submitted: the number of tasks.
    """

    losses: frozenset[int] = frozenset()
    # Threads of each worker.
    threads = 1

    def __init__(self, address: str) -> None:
        self.names = [f"worker {number}" for number in range(int(address))]
        self.client: Any = self
        self.bytes_moved, self.times, self.submitted = 0, ClusterTimes(), 0
        self.late_seconds: dict[str, float] = {}
        self._lock = Lock()

    def members(self) -> dict[str, int]:
        return dict.fromkeys(self.names, self.threads)

    def submit(self, function: Any, *arguments: Any, **options: Any) -> DoneFuture:
        future = DoneFuture()
        self.submitted += 1
        if self.submitted - 1 in self.losses:
            future.set_exception(ConnectionError())
            return future
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - a future holds any exception
            future.set_exception(error)
        return future

    def broadcast(self, function: Any, *arguments: Any) -> None:
        function(*arguments)

    def call_now(self, names: list[str], function: Any, *arguments: Any) -> None:
        function(*arguments)

    def close(self) -> None:
        pass
