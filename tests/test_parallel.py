"""Thread pools: the order of results, what runs ahead, errors and cancellation."""

import functools
import threading
import time

import numpy as np
import pytest
from base import ThreadPool, parallel

import randsvm
from randsvm.errors import InputError


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


@pytest.mark.parametrize("count", [2, 1])
def test_a_pool_helps_tasks_only_while_they_leave_threads_idle(count):
    """Two tasks wait for each other, so that both run; one leaves a thread idle."""
    together = threading.Barrier(count)

    def task(watch):
        together.wait(10)
        found = set(pool.map_in_order(lambda _: threading.get_ident(), range(3)))
        together.wait(10)
        return found == {threading.get_ident()}

    with ThreadPool(2) as pool:
        found = list(parallel.completed_results([task] * count, 2, "tasks", "fit"))
    assert found == [count == 2] * count


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
        fitted = randsvm.train(randsvm.Arrays(X, y), watch=lambda _: seen.append(threads()))
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


def test_no_task_begins_after_the_end_of_the_time():
    """The first task ends after it, when the second one is next in the queue."""
    begun, until = [], time.perf_counter() + 0.05

    def task(number, cancelled):
        begun.append(number)
        time.sleep(0.1)
        return number

    tasks = [functools.partial(task, number) for number in range(3)]
    found = list(parallel.completed_results(tasks, 1, "tasks", "fit", until))
    # Whether the caller waits for the result of the first task is a matter of time.
    assert begun == [0]
    assert found in ([], [0])


def test_nobody_waits_for_a_task_after_the_end_of_the_time(monkeypatch):
    monkeypatch.setattr(parallel, "PATIENCE", 60.0)
    ended, begun, release = [], threading.Event(), threading.Event()

    def task(watch):
        begun.set()
        ended.append(release.wait(10.0))

    until = time.perf_counter() + 0.5
    assert list(parallel.completed_results([task], 1, "tasks", "fit", until)) == []
    assert begun.is_set() and not ended
    release.set()
