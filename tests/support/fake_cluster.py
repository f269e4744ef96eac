"""A cluster whose workers are this process, for tests of what is sent to workers and when."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import Any

from randsvm.cluster.worker_pool import WorkerPool
from randsvm.data.shard_executor import ClusterTimes


class DoneFuture(Future):
    """A future of dask that is done."""

    def release(self) -> None:
        pass


class FakeWorkerPool(WorkerPool):
    """A crew of workers that run a task when it is submitted; its address is their number.

    loses: the numbers of tasks, from 0, whose worker is lost.
    """

    loses: frozenset[int] = frozenset()
    threads = 1  # of each worker

    def __init__(self, address: str) -> None:
        self.names = [f"worker {number}" for number in range(int(address))]
        self.client, self.bytes_moved, self.times, self.given = self, 0, ClusterTimes(), 0
        self.waited: dict[str, float] = {}
        self._lock = Lock()

    def members(self) -> dict[str, int]:
        return dict.fromkeys(self.names, self.threads)

    def submit(self, function: Any, *words: Any, **options: Any) -> DoneFuture:
        future = DoneFuture()
        self.given += 1
        if self.given - 1 in self.loses:
            future.set_exception(ConnectionError())
            return future
        try:
            future.set_result(function(*words))
        except BaseException as error:  # noqa: BLE001 - a future holds any exception
            future.set_exception(error)
        return future

    def broadcast(self, function: Any, *words: Any) -> None:
        function(*words)

    def call_now(self, names: list[str], function: Any, *words: Any) -> None:
        function(*words)

    def close(self) -> None:
        pass
