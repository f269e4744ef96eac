"""The connection to a cluster: a client of its scheduler, and for local:N the scheduler and its
workers as well. It is made whole, or nothing of it stays in this process.

Knows nothing of tasks, nor of who is there.
"""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

from randsvm.errors import ClusterError, ParameterError
from randsvm.events import in_daemon_thread

# Seconds that the scheduler, and then the first worker, may take to be there.
CONNECTING = 60.0
# Seconds that all waits for the end of something may take in a whole run: a signal ends it within
# two seconds.
CLOSING = 1.5
# The stage in which a run waits for a scheduler, or for workers.
WAITING = "waiting for workers"
# A worker imports what this process does: its own script would put the working folder, with
# whatever lies there, before all else.
WORKER = "import sys; sys.path[:] = {path!a}; from distributed.cli.dask_worker import main; main()"


class OwnClient(Client):
    """Closed by its connection alone.

    dask's closes when the collector finds it, in whatever thread that is; where that thread starts
    another client, closing waits for ever for a lock that starting has.
    """

    def __init__(self, **where: Any) -> None:
        try:
            super().__init__(**where, set_as_default=False)
        except BaseException:
            _close(self)
            raise

    def __del__(self) -> None: ...


class Connection:
    """client: of the scheduler at an address. processes: the workers of local:N. ended: whether
    nobody needs it any more.

    Raises ParameterError for what is no address, ClusterError where no scheduler answers, and what
    whoever listens raises meanwhile.
    """

    def __init__(self, address: str) -> None:
        self.local: LocalCluster | None = None
        self.processes: list[subprocess.Popen[bytes]] = []
        self.clients: list[OwnClient] = []
        self.ended = False
        try:
            self.client = self._client(address)
        except BaseException:
            self.end().join(CLOSING)
            raise

    def _client(self, address: str) -> OwnClient:
        if found := re.fullmatch(r"local:([1-9]\d{0,3})", address):
            with _reaching(address):
                return self._connected(address=self._local_scheduler(int(found[1])))
        with _reaching(address):
            where = "scheduler_file" if Path(address).is_file() else "address"
        if where == "address" and not re.fullmatch(r"(\w+://)?[^/\s]+:\d+", address):
            raise ParameterError(
                f"--cluster: expected host:port, a scheduler file or local:N, found {address!r}"
            )

        def connected() -> OwnClient:
            with _reaching(address):
                return self._connected(**{where: address})

        return in_daemon_thread(connected, WAITING)

    def _connected(self, **where: str) -> OwnClient:
        client = OwnClient(**where, timeout=CONNECTING)
        self.clients.append(client)
        # Nobody may be there any more who waits for it.
        if self.ended:
            _close(client)
        return client

    def _local_scheduler(self, count: int) -> str:
        """The address of a scheduler in this process, for workers that end with it."""
        self.local = LocalCluster(
            n_workers=0,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        )
        address: str = self.local.scheduler_address
        words = f"{address} --nthreads 1 --no-nanny --no-dashboard --memory-limit 0"
        code = WORKER.format(path=[str(folder) for folder in sys.path])
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-c", code, *words.split()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # A signal of the terminal is for the master alone.
                start_new_session=True,
            )
            self.processes.append(process)
        return address

    @property
    def deserted(self) -> bool:
        """Whether all workers of local:N have ended."""
        ended = [process.poll() is not None for process in self.processes]
        return bool(ended) and all(ended)

    def end(self) -> threading.Thread:
        """Kill the workers of local:N, and close the rest in the thread that is returned: who is
        gone does not answer."""
        self.ended = True
        for process in self.processes:
            process.kill()

        def close() -> None:
            latest = time.perf_counter() + CLOSING
            for process in self.processes:
                # One that reads from a disk that is gone does not end.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, latest - time.perf_counter()))
            for one in [*self.clients, self.local]:
                if one is not None:
                    _close(one)

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        return closing


def _close(one: Client | LocalCluster) -> None:
    """With the thread that it has, which dask leaves running where the other side was lost."""
    with contextlib.suppress(Exception):
        one.close(timeout=CLOSING)
    with contextlib.suppress(Exception):
        one._loop_runner.stop(CLOSING)


@contextlib.contextmanager
def _reaching(address: str) -> Iterator[None]:
    """What answers there may say anything, and dask has many errors for it."""
    try:
        yield
    except Exception as error:
        # The first bytes of another protocol are a length for dask.
        stranger = isinstance(error, MemoryError)
        reason = "what answers is no scheduler" if stranger else error
        raise ClusterError(f"cannot reach the cluster {address}: {reason}") from error
