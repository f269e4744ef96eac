"""Connections to schedulers: what is refused, and what is left of a connection that fails."""

import errno
import gc
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, closing, suppress

import pytest
from commands import run_train
from dask_cluster import PATIENCE
from learning import board

from randsvm.errors import ClusterError, Interrupted
from randsvm.events import Notice, listening

pytest.importorskip("distributed")
from clusters import Connection, WorkerPool, connection
from distributed.utils import LoopRunner

# dask leaves sockets and tasks to the end of a process that closes without waiting.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning"),
]


class GivenUpError(Exception):
    pass


@pytest.fixture
def path(tmp_path):
    return board(200).save(tmp_path / "board")


@pytest.fixture
def other_server():
    """Return a function that starts a server; it sends the same bytes to every client."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:

        def serve(words):
            with suppress(OSError):
                while True:
                    stack.enter_context(server.accept()[0]).sendall(words)

        def at(words):
            threading.Thread(target=serve, args=[words], daemon=True).start()
            return f"127.0.0.1:{server.getsockname()[1]}"

        yield at
        server.shutdown(socket.SHUT_RDWR)


def test_a_server_of_another_protocol_is_no_cluster(other_server):
    with pytest.raises(ClusterError, match=r"cannot reach .*: the program there is no scheduler"):
        Connection(other_server(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9))


def test_the_garbage_collector_closes_no_client(other_server):
    """In a thread that is starting another client, closing would wait for a lock for ever."""

    def connect():
        with suppress(ClusterError):
            Connection(other_server(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9))

    def collect():
        with LoopRunner._lock:
            gc.collect()

    gc.disable()
    try:
        connect()
    finally:
        gc.enable()
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("end", [Interrupted(signal.SIGINT), GivenUpError()])
def test_a_run_that_waits_for_a_scheduler_can_be_interrupted(
    other_server,
    set_sizes,
    end,
):
    set_sizes(connecting_seconds=2.0)

    def given_up(event):
        raise end

    with listening(given_up), pytest.raises(type(end)):
        Connection(other_server(b""))


@pytest.mark.parametrize("algorithm", ["randsvm", "sgd"])
def test_a_time_limit_holds_while_a_run_waits_for_a_scheduler(
    other_server,
    tmp_path,
    path,
    set_sizes,
    algorithm,
):
    set_sizes(connecting_seconds=2.0)
    words = ["-q", "--time-limit", "0.5s", "--cluster", other_server(b"")]
    with pytest.raises(ClusterError, match=r"cannot reach .* before --time-limit") as raised:
        run_train(algorithm, *words, path, tmp_path / "m")
    assert raised.value.exit_code == os.EX_UNAVAILABLE
    assert not (tmp_path / "m").exists()


def loops():
    """Return the event loop threads of Dask."""
    return {thread for thread in threading.enumerate() if thread.name == "IO loop"}


@pytest.fixture
def no_loops():
    """Check that the event loop threads that a test starts have ended."""
    before = loops()
    yield
    latest = time.monotonic() + PATIENCE
    while (left := loops() - before) and time.monotonic() < latest:
        time.sleep(0.05)
    assert not left


def test_a_failed_connection_leaves_no_threads(no_loops, set_sizes):
    set_sizes(connecting_seconds=0.5)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ClusterError, match="cannot reach the cluster"):
            Connection(f"127.0.0.1:{unused.getsockname()[1]}")


def test_a_client_that_connects_too_late_is_closed(monkeypatch):
    answers, closed = threading.Event(), threading.Event()

    class Late:
        def __init__(self, **where):
            answers.wait()

        def close(self, timeout):
            closed.set()

    def given_up(event):
        # The notice comes before the client is made; the waiting for it comes after.
        if not isinstance(event, Notice):
            raise GivenUpError

    monkeypatch.setattr(connection, "ConnectionClient", Late)
    with listening(given_up), pytest.raises(GivenUpError):
        Connection("127.0.0.1:1")
    answers.set()
    assert closed.wait(PATIENCE)


@pytest.fixture
def processes(monkeypatch):
    """Replace the workers of local:N by processes that sleep; the third cannot be started."""
    started = []
    popen = subprocess.Popen

    def start(*words, **more):
        if len(started) == 2:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(popen(["sleep", "600"], stdin=subprocess.PIPE))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def test_a_failed_start_of_local_workers_leaves_no_processes(no_loops, processes):
    with pytest.raises(ClusterError, match="temporarily unavailable"):
        Connection("local:3")
    assert [process.wait(PATIENCE) for process in processes] == [-signal.SIGKILL] * 2


def test_the_scheduler_is_closed_even_if_the_client_cannot_be(no_loops, processes, monkeypatch):
    def does_not_close(client, timeout):
        raise TimeoutError

    found = connection.Connection("local:2")
    monkeypatch.setattr(connection.ConnectionClient, "close", does_not_close)
    found.close().join(PATIENCE)
    assert found.local_cluster.status.name == "closed"
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def test_a_run_ends_with_the_last_local_worker(no_loops, processes):
    with closing(WorkerPool(Connection("local:2"))) as worker_pool:
        for process in processes:
            process.kill()
            process.wait()
        with pytest.raises(ClusterError, match="workers of this machine have ended"):
            worker_pool.members()
