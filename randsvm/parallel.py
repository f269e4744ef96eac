"""Threads: pools, results in order, cancellation, and waits that react to signals.

A call that runs in a thread of a pool cannot be killed. It ends early by an exception: the listener
of its events raises `Cancelled` once the result is no longer needed.
"""

import contextlib
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from randsvm.errors import RandsvmError
from randsvm.events import HEARTBEAT, Progress, Waiting, Watch, emit, silent

Item = TypeVar("Item")
Result = TypeVar("Result")

# Seconds that running calls have to end after an exception or a signal. That is more than the
# closing evaluation of an interrupted training may take.
PATIENCE = 1.25


class Cancelled(Exception):  # noqa: N818 - not an error
    """Ends a call whose result is no longer needed; raised by the listener of its events."""


@functools.cache
def _blas() -> Any:
    """Return the controller of the loaded BLAS libraries; None without threadpoolctl.

    None also if OPENBLAS_NUM_THREADS is 1, as the commands set it before they import numpy: BLAS
    then has one thread already.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        return None
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


class _BlasLimit:
    """The limit of BLAS, which all threads share, and the number of blocks that need it."""

    lock = threading.Lock()
    blocks = 0
    limiter: Any = None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread within a `with` block, if threadpoolctl is installed.

    Worker threads call BLAS. Additional threads of BLAS would compete with them for the cores.
    Blocks of several threads may overlap: the last one to end removes the limit.
    """
    blas = _blas()
    if blas is None:
        yield
        return
    with _BlasLimit.lock:
        _BlasLimit.blocks += 1
        if _BlasLimit.blocks == 1:
            _BlasLimit.limiter = blas.limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _BlasLimit.lock:
            _BlasLimit.blocks -= 1
            if _BlasLimit.blocks == 0:
                _BlasLimit.limiter.restore_original_limits()


class ThreadPool(ThreadPoolExecutor):
    """A fixed number of threads.

    As a context manager it waits for all calls that were submitted.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, thread_name_prefix="randsvm")

    def map_in_order(
        self, work: Callable[[Item], Result], items: Iterable[Item], ahead: float = inf
    ) -> Generator[Result, None, None]:
        """Yield work(item) for each item, in order.

        If the caller stops early, calls that have not begun are cancelled. If `items` raises a
        RandsvmError, the results of the items before it come first. A thread of `completed_results`
        calls work(item) itself while as many tasks run as this pool has threads.

        ahead: the number of calls that may be submitted before the first result is needed.
        """
        # Threads of `completed_results` that still have tasks.
        if sum(worker.is_alive() for worker in _this_thread.workers) >= self._max_workers:
            for item in items:
                emit(Waiting())
                yield work(item)
            return
        futures: deque[Future[Result]] = deque()
        ended_by: RandsvmError | None = None
        try:
            try:
                for item in items:
                    futures.append(self.submit(work, item))
                    if len(futures) > ahead:
                        yield result_of(futures.popleft())
            except RandsvmError as error:
                ended_by = error
            while futures:
                yield result_of(futures.popleft())
            if ended_by is not None:
                raise ended_by
        finally:
            for future in futures:
                future.cancel()

    def read_ahead(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items, which are never None; a thread of the pool computes the next one."""
        next_item = self.submit(next, items, None)
        while (item := result_of(next_item)) is not None:
            next_item = self.submit(next, items, None)
            yield item

    def stop(self) -> None:
        """Cancel all calls that have not begun, without waiting for the others."""
        self.shutdown(wait=False, cancel_futures=True)


def result_of(future: Future[Result], stage: str | None = None) -> Result:
    """Return the result of a future, or raise its exception, or Cancelled if it is cancelled.

    While this thread waits, it emits an event every HEARTBEAT seconds: Progress if a stage is
    given, else Waiting. Each event checks for signals, so a signal ends the wait.
    """
    beats = 0
    while not future.done():
        if not wait([future], HEARTBEAT).done:
            beats += 1
            emit(Waiting() if stage is None else Progress(stage, beats, None, "beat"))
    if future.cancelled():
        raise Cancelled
    return future.result()


class _Thread(threading.local):
    """workers: the threads of `completed_results` that this one is of; others stop waiting for
    these daemon threads."""

    workers: Sequence[threading.Thread] = ()


_this_thread = _Thread()


def run_in_daemon_thread(
    work: Callable[[], Result], stage: str | None, memory: object = None
) -> Result:
    """Return work(), called in a daemon thread while this thread waits and reacts to signals.

    The end of a process waits for the threads of a pool, but not for a daemon thread. memory: an
    object that `work` reads; it stays alive even if this thread stops waiting.

    A thread of `completed_results` calls work() itself: with another thread for each solve, ten
    classes of 7,500 rows take a quarter longer, two pairs at a time.
    """
    if _this_thread.workers:
        return work()
    future: Future[Result] = Future()

    # The argument keeps `memory` alive until the thread ends.
    def run(memory: object) -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            future.set_exception(error)

    # A new thread begins on the idle core; a thread that waits for work may be woken on a busy one.
    threading.Thread(target=run, args=[memory], daemon=True).start()
    return result_of(future, stage)


def completed_results(
    tasks: Sequence[Callable[[Watch], Result]],
    threads: int,
    stage: str,
    unit: str,
    until: float = inf,
    receive: Watch = silent,
) -> Iterator[Result]:
    """Yield the result task(watch) of each task as soon as the task completes.

    receive: called in this thread for each event that a task gives to its `watch`, except Progress
    and Waiting, before the result of the task.

    A task that raises Cancelled has no result. `watch` raises it when the caller stops early, a
    task or `receive` raises another exception, or time.perf_counter() reaches `until`.

    From `until` on no task is started, and running tasks are not waited for. Results of tasks that
    have completed by then are yielded, also if this thread was late. If the caller stops early or
    an exception is raised, this function waits up to PATIENCE seconds for running tasks. A task
    that LIBSVM holds may go on after that.
    """
    if time.perf_counter() >= until:
        return
    cancelled, left = threading.Event(), deque(tasks)
    # Events, and the futures of tasks that have ended.
    arrived: SimpleQueue[Any] = SimpleQueue()

    def watch(event: object) -> None:
        if cancelled.is_set():
            raise Cancelled
        if not isinstance(event, Progress | Waiting):
            arrived.put(event)

    def run_tasks() -> None:
        _this_thread.workers = workers
        with contextlib.suppress(IndexError):
            # The caller may notice `until` a heartbeat later than this thread.
            while not cancelled.is_set() and time.perf_counter() < until:
                task, future = left.popleft(), Future[Result]()
                try:
                    future.set_result(task(watch))
                except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                    future.set_exception(error)
                arrived.put(future)

    workers = [threading.Thread(target=run_tasks, daemon=True) for _ in tasks[:threads]]
    for worker in workers:
        worker.start()
    is_over, count = False, 0
    try:
        while count < len(tasks):
            is_over = time.perf_counter() >= until
            if is_over:
                cancelled.set()
            try:
                arrival = arrived.get(timeout=0.0 if is_over else HEARTBEAT)
            except Empty:
                if is_over:
                    break
                arrival = None
            if isinstance(arrival, Future):
                count += 1
                if not isinstance(arrival.exception(), Cancelled):
                    yield arrival.result()
            elif arrival is not None:
                receive(arrival)
            if not is_over:
                emit(Progress(stage, count, len(tasks), unit))
    finally:
        cancelled.set()
        latest = time.perf_counter() + (0.0 if is_over else PATIENCE)
        for worker in workers:
            worker.join(max(0.0, latest - time.perf_counter()))
