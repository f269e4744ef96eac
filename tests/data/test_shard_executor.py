"""States that live with the shards: every change is made once, in order, whatever breaks off."""

from __future__ import annotations

import operator
import threading

import pytest

from randsvm.data.shard_executor import Cell, Shard, ShardStates, ThreadExecutor
from randsvm.parallel import ThreadPool

SHARDS = [Shard(0, 0, 5), Shard(1, 5, 9), Shard(2, 9, 10)]


def note(word: str) -> operator.methodcaller:
    """A change of a state that is a list: one word more."""
    return operator.methodcaller("append", word)


@pytest.fixture
def states():
    with ThreadPool(2) as pool:
        yield ThreadExecutor(pool).states(lambda shard: [shard.number], SHARDS)


def seen(states: ShardStates) -> list[list]:
    return [state for _, state in states.visit(list)]


def test_each_state_is_changed_in_order_and_asked_in_the_order_of_the_shards(states):
    assert [rows for rows, _ in states.visit(len)] == [5, 4, 1]
    states.change(note("a"), note("b"))
    assert seen(states) == [[number, "a", "b"] for number in range(3)]
    states.change(note("c"))
    assert seen(states) == [[number, "a", "b", "c"] for number in range(3)]
    assert seen(states) == [[number, "a", "b", "c"] for number in range(3)]


def test_what_was_broken_off_is_completed_by_the_next_visit(states):
    """Whether it was reached before or not; as after a signal or at a time limit."""
    assert states.settled
    states.change(note("a"))
    for _ in states.visit(len):
        break
    assert not states.settled
    states.change(note("b"))
    assert seen(states) == [[number, "a", "b"] for number in range(3)]
    assert states.settled


def test_a_restart_leaves_out_what_was_not_done(states):
    states.change(note("left out"))
    states.restart(list.clear, note("a"))
    assert seen(states) == [["a"]] * 3


def test_a_visit_waits_for_the_thread_that_still_works_on_a_state():
    go_on, begun = threading.Event(), threading.Event()

    def slow(state: list) -> None:
        begun.set()
        assert go_on.wait(60)
        state.append("slow")

    cell = Cell[list]([])
    with ThreadPool(2) as pool:
        broken_off = pool.submit(cell.visit, 0, [slow], list)
        assert begun.wait(60)
        later = pool.submit(cell.visit, 0, [slow, note("next")], list)
        go_on.set()
        assert later.result(60) == ["slow", "next"]
        assert broken_off.result(60) == ["slow"]
