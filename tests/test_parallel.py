"""Thread pools: the order of results, what runs ahead, errors and cancellation."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import randsvm
from randsvm import parallel
from randsvm.errors import DataError, InputError
from randsvm.events import Notice, Waiting, emit, listening
from randsvm.parallel import Cancelled, ThreadPool, completed_results, run_forwarding_events


def test_a_map_submits_at_most_the_given_number_of_calls_ahead():
    taken = []

    def items():
        for item in range(9):
            taken.append(item)
            yield item

    with ThreadPool(2) as pool:
        results = pool.map_in_order(abs, items(), 3)
        assert next(results) == 0
        assert taken == [0, 1, 2, 3]
        assert list(results) == list(range(1, 9))


def test_an_error_of_the_items_follows_the_results_before_it():
    def items():
        yield 1
        yield 2
        raise InputError("gone")

    with ThreadPool(2) as pool:
        results = pool.map_in_order(abs, items(), 5)
        assert [next(results), next(results)] == [1, 2]
        with pytest.raises(InputError):
            next(results)


def test_read_ahead_yields_all_items_and_raises_their_errors():
    def items():
        yield 1
        raise DataError("file", 1, 1, "bad")

    with ThreadPool(1) as pool:
        assert list(pool.read_ahead(iter("abc"))) == ["a", "b", "c"]
        results = pool.read_ahead(items())
        assert next(results) == 1
        with pytest.raises(DataError):
            next(results)


def test_a_caller_that_stops_early_cancels_the_tasks_that_run():
    begun, ended = threading.Event(), threading.Event()

    def slow(cancelled):
        begun.set()
        cancelled.wait(60)
        ended.set()
        raise Cancelled

    tasks = [lambda cancelled: begun.wait(60), slow]
    results = completed_results(tasks, 2, "testing", "task")
    assert next(results)
    results.close()
    assert ended.wait(60)


def test_tasks_end_when_their_time_is_over():
    def slow(cancelled):
        assert cancelled.wait(60)

    until = time.perf_counter() + 0.3
    assert list(completed_results([slow, slow], 1, "testing", "task", until, grace=60)) == []


def test_results_from_before_the_end_are_not_lost_if_the_caller_is_late(
    monkeypatch,
):
    """The end comes, and one of two tasks is done, while the caller still submits tasks."""
    second_began, submit = threading.Event(), ThreadPool.submit

    def first(cancelled):
        return "first"

    def second(cancelled):
        second_began.set()
        assert cancelled.wait(60)
        raise Cancelled

    def submit_late(pool, task, *arguments):
        future = submit(pool, task, *arguments)
        assert task is first or second_began.wait(60)
        return future

    monkeypatch.setattr(ThreadPool, "submit", submit_late)
    monkeypatch.setattr(time, "perf_counter", lambda: 2.0 if second_began.is_set() else 0.0)
    results = completed_results([first, second], 1, "testing", "task", until=1.0, grace=60)
    assert list(results) == ["first"]


def test_after_the_end_no_task_is_started(monkeypatch):
    started = []
    tasks = [lambda _: started.append("task")]
    assert list(completed_results(tasks, 1, "testing", "task", until=time.perf_counter())) == []
    assert started == []


def test_the_error_of_a_task_cancels_the_others_and_follows_its_events():
    received, cancelled, begun = [], [], threading.Event()

    def fails(listen):
        listen(Notice("first"))
        begun.wait(60)
        raise ZeroDivisionError

    def waits(listen):
        begun.set()
        with listening(listen):
            try:
                while True:
                    emit(Waiting())
                    time.sleep(0.01)
            except Cancelled:
                cancelled.append(True)
                raise

    with pytest.raises(ZeroDivisionError):
        run_forwarding_events([fails, waits], 2, received.append, "testing", "task")
    assert Notice("first") in received
    assert cancelled == [True]


def test_training_and_prediction_limit_blas_to_one_thread(monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    parallel._blas.cache_clear()

    def threads():
        found = threadpoolctl.threadpool_info()
        return {one["num_threads"] for one in found if one["user_api"] == "blas"}

    seen = []
    X = np.random.default_rng(0).normal(size=(50, 3))
    y = np.where(X[:, 0] > 0, 1, -1)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        fitted = randsvm.train_randsvm(randsvm.Arrays(X, y), watch=lambda _: seen.append(threads()))
        decide = type(fitted.model).decision

        def noted(model, rows, labels_only=False):
            seen.append(threads())
            return decide(model, rows, labels_only)

        monkeypatch.setattr(type(fitted.model), "decision", noted)
        fitted.predict(X)
        assert threads() == before
    assert len(seen) > 3
    assert all(one == {1} for one in seen)
    parallel._blas.cache_clear()


def test_calls_in_daemon_threads_share_a_thread_while_it_is_idle():
    first = parallel.run_in_daemon_thread(threading.current_thread, "call")
    others = set()
    for _ in range(20):
        time.sleep(0.005)
        others.add(parallel.run_in_daemon_thread(threading.current_thread, "call"))
    assert others == {first}
    assert first.daemon
    gate = threading.Event()
    waiting = threading.Thread(
        target=parallel.run_in_daemon_thread, args=[lambda: gate.wait(10), "call"]
    )
    waiting.start()
    time.sleep(0.05)
    assert parallel.run_in_daemon_thread(threading.current_thread, "call") is not first
    gate.set()
    waiting.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_its_own_daemon_threads():
    parallel.run_in_daemon_thread(int, "call")
    time.sleep(0.05)
    child = os.fork()
    if not child:
        signal.alarm(5)
        os._exit(parallel.run_in_daemon_thread(lambda: 7, "call"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_a_free_lock_and_its_threads_of_blas(
    monkeypatch,
):
    """Also if another thread held the lock and the limit at the fork."""
    limits = []

    class Limiter:
        def restore_original_limits(self):
            limits.append("restored")

    monkeypatch.setattr(parallel._BlasLimit, "blocks", 1)
    monkeypatch.setattr(parallel._BlasLimit, "limiter", Limiter())
    with parallel._BlasLimit.lock:
        child = os.fork()
        if child == 0:
            is_free = parallel._BlasLimit.lock.acquire(blocking=False)
            os._exit(0 if is_free and not parallel._BlasLimit.blocks and limits else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
