"""The connection to a cluster: a client of its scheduler, and for local:N the scheduler and its
workers as well. It is made whole, or nothing of it stays in this process.

Every connection to a Dask scheduler or worker may run code there. Those of local:N listen on the
loopback interface only, and accept only connections with a certificate that exists as long as the
run: other users of the machine have none.

Knows nothing of tasks, nor of who is there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Security

from randsvm.errors import ClusterError, ParameterError
from randsvm.events import HEARTBEAT
from randsvm.parallel import run_in_daemon_thread

# Seconds that the scheduler, and then the first worker, may take to be there.
CONNECTING = 60.0
# Seconds that all waits for the end of something may take in a whole run: a signal ends it within
# two seconds.
CLOSING = 1.5
# The stage in which a run waits for a scheduler, or for workers.
WAITING = "waiting for workers"
# Most workers of local:N, and the last port that there is.
MOST_LOCAL, LAST_PORT = 9999, 65535
HOST = "127.0.0.1"
# Seconds that a scheduler may take to write its file.
WRITING = 2.0
# The page of a scheduler or worker says what it does to everybody who connects: serve none.
NO_PAGES: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
# The program of a worker, which reads sys.path and settings of Dask from stdin. Its sys.path is
# that of this process: a script of its own would put the working folder before all else. The key
# of TLS is among the settings: command lines can be read by other users.
WORKER = """
import json, sys
sys.path[:], settings = json.load(sys.stdin)
import dask
dask.config.set(settings)
from distributed.cli.dask_worker import main
main()
"""


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
        if address.startswith("local:"):
            count = address.removeprefix("local:")
            if not re.fullmatch(r"[1-9]\d{0,3}", count):
                raise ParameterError(
                    f"--cluster: expected local:N with N from 1 to {MOST_LOCAL}, found {address!r}"
                )
            with _reaching(address):
                security = _temporary_security()
                where = self._local_scheduler(int(count), security)
                return self._connected(address=where, security=security)
        kind = "scheduler_file" if _is_file(address) else "address"
        if kind == "address":
            _check_address(address)
        else:
            _check_scheduler_file(address)

        def connected() -> OwnClient:
            with _reaching(address):
                return self._connected(**{kind: address})

        return run_in_daemon_thread(connected, WAITING)

    def _connected(self, **where: Any) -> OwnClient:
        client = OwnClient(**where, timeout=CONNECTING)
        self.clients.append(client)
        # Nobody may be there any more who waits for it.
        if self.ended:
            _close(client)
        return client

    def _local_scheduler(self, count: int, security: Security) -> str:
        """Start a scheduler in this process and workers that end with it; return its address."""
        with dask.config.set(NO_PAGES):
            self.local = LocalCluster(
                n_workers=0,
                protocol="tls://",
                host=HOST,
                security=security,
                dashboard_address=f"{HOST}:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )
        address: str = self.local.scheduler_address
        pages = f"--no-dashboard --dashboard-address {HOST}:0"
        words = f"{address} --host {HOST} {pages} --nthreads 1 --no-nanny --memory-limit 0"
        settings = json.dumps([sys.path, {**NO_PAGES, **_worker_settings(security)}]).encode()
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-c", WORKER, *words.split()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # A signal of the terminal is for the master alone.
                start_new_session=True,
            )
            self.processes.append(process)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(settings)
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


def _temporary_security() -> Security:
    """Return TLS with a certificate of its own, which this process and its workers hold."""
    try:
        return Security.temporary()
    except ImportError as error:
        raise ParameterError(
            "--cluster local:N needs the package cryptography (pip install 'randsvm[cluster]')"
        ) from error


def _worker_settings(security: Security) -> dict[str, Any]:
    """Return the settings of Dask for a worker that takes part in this TLS."""
    tls = security.get_tls_config_for_role("worker")
    return {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": tls["ca_file"],
        "distributed.comm.tls.worker.cert": tls["cert"],
        "distributed.comm.tls.worker.key": tls["key"],
    }


def _is_file(address: str) -> bool:
    """Whether there is a file of this name; one that cannot be looked at is reported."""
    with _reaching(address):
        return Path(address).is_file()


def _check_address(address: str) -> None:
    """Raise ParameterError unless this is host:port."""
    found = re.fullmatch(r"(\w+://)?[^/\s]+:(\d{1,5})", address)
    if found is None or not 1 <= int(found[2]) <= LAST_PORT:
        raise ParameterError(
            f"--cluster: expected host:port (1 to {LAST_PORT}), a scheduler file or local:N, "
            f"found {address!r}"
        )


def _check_scheduler_file(path: str) -> None:
    """Raise ParameterError unless this file has the address of a scheduler."""
    latest = time.perf_counter() + WRITING
    while not _has_address(path):
        if time.perf_counter() > latest:
            raise _no_scheduler_file(path)
        time.sleep(HEARTBEAT)


def _has_address(path: str) -> bool:
    """Whether a scheduler file is whole. Raises ParameterError for a file of another kind."""
    try:
        with Path(path).open("rb") as stream:
            # A data set may be large: it is not read.
            if stream.peek(1)[:1] not in (b"", b"{"):
                raise _no_scheduler_file(path)
            content = json.load(stream)
    except OSError as error:
        raise ClusterError(f"cannot open {path}: {error.strerror}") from error
    except ParameterError:
        raise
    except ValueError:
        return False
    if not isinstance(content.get("address"), str):
        raise _no_scheduler_file(path)
    return True


def _no_scheduler_file(path: str) -> ParameterError:
    return ParameterError(
        f"--cluster: expected a scheduler file (JSON with an address), found {path}"
    )


@contextlib.contextmanager
def _reaching(address: str) -> Iterator[None]:
    """Turn any error of Dask into one line."""
    try:
        yield
    except (ClusterError, ParameterError):
        raise
    except Exception as error:
        # The first bytes of another protocol are a length for dask.
        stranger = isinstance(error, MemoryError)
        reason = "what answers is no scheduler" if stranger else " ".join(str(error).split())
        raise ClusterError(f"cannot reach the cluster {address}: {reason}") from error
