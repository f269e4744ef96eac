"""States of shards: every change is applied once, in order, even after an interrupted query."""

import operator
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from rows import StateCell, shard_states


def append_word(word):
    """Return a change that appends a word to a state, which is a list."""
    return operator.methodcaller("append", word)


@pytest.fixture
def states():
    with shard_states([5, 4, 1]) as found:
        yield found


def read_states(states):
    return [state for _, state in states.query(list)]


def test_changes_apply_in_order_and_reports_come_in_the_order_of_the_shards(states):
    assert [rows for rows, _ in states.query(len)] == [5, 4, 1]
    states.change(append_word("a"), append_word("b"))
    assert read_states(states) == [[number, "a", "b"] for number in range(3)]
    states.change(append_word("c"))
    assert read_states(states) == [[number, "a", "b", "c"] for number in range(3)]
    assert read_states(states) == [[number, "a", "b", "c"] for number in range(3)]


def test_the_next_query_completes_an_interrupted_one(states):
    """A signal or a time limit ends a query after some of the shards."""
    states.change(append_word("a"))
    for _ in states.query(len):
        break
    states.change(append_word("b"))
    assert read_states(states) == [[number, "a", "b"] for number in range(3)]


def test_a_restart_drops_pending_changes(states):
    states.change(append_word("dropped"))
    states.restart(list.clear, append_word("a"))
    assert read_states(states) == [["a"]] * 3


def test_a_query_waits_for_an_interrupted_query_of_the_same_state():
    go_on, begun = threading.Event(), threading.Event()

    def slow(state):
        begun.set()
        assert go_on.wait(60)
        state.append("slow")

    cell = StateCell([])
    with ThreadPoolExecutor(2) as pool:
        interrupted = pool.submit(cell.query, 0, [slow], list)
        assert begun.wait(60)
        later = pool.submit(cell.query, 0, [slow, append_word("next")], list)
        go_on.set()
        assert later.result(60) == ["slow", "next"]
        assert interrupted.result(60) == ["slow"]
