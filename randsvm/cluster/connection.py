"""The connection to a scheduler, and the handshake of client and workers.

It carries the requests to actors and their replies. For local:N, this module also starts the
scheduler and the processes of its workers.

If connecting fails, this process keeps no threads, sockets or processes of the attempt.

A program that connects to a Dask scheduler or worker may run code there. The scheduler and workers
of local:N listen on the loopback interface only. They accept only connections with the certificate
that is made for this run; other users of the machine do not have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Coroutine, Iterator
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import dask
import numpy as np
import scipy
from distributed import Client, LocalCluster, Security, get_worker

from randsvm import __version__
from randsvm.arrays import CsrMatrix
from randsvm.cluster.actor import Actor
from randsvm.errors import ClusterError, ParameterError
from randsvm.events import Notice, emit
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import (
    BLOCK_CENTRES,
    BLOCK_ROWS,
    Blocks,
    Cells,
    Dense,
    Nonzeros,
)
from randsvm.parallel import Cancelled, result_of, run_in_daemon_thread

Result = TypeVar("Result")

# Seconds until the scheduler, and then the first worker, must answer.
CONNECTING_SECONDS = 60.0
# Seconds that a run may wait in all for calls, threads and processes to end. A signal has to end a
# run within two seconds.
CLOSING_SECONDS = 1.5
# The stage of a run that waits for a scheduler or for workers.
WAITING_STAGE = "waiting for workers"
MAX_LOCAL_WORKERS, MAX_PORT = 9999, 65535
HOST = "127.0.0.1"
# Dask sends a function of this package by its name. The client first asks a worker to import the
# module of `handshake`: only then does a worker without this package report a clear error.
HANDSHAKE_MODULE = "randsvm.cluster.connection"
# Most bytes of a scheduler file.
SCHEDULER_FILE_BYTES = 1 << 20
# The web pages of schedulers and workers show their work to every visitor: serve none.
NO_WEB_PAGES: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
# The program of a worker; it reads sys.path and the settings of Dask from stdin. It takes the
# sys.path of this process, because its own begins with the working folder. The settings are
# not on the command line, because they contain the key of TLS and other users can read it there.
WORKER_PROGRAM = """
import json, sys
sys.path[:], settings = json.load(sys.stdin)
import dask
dask.config.set(settings)
from distributed.cli.dask_worker import main
main()
"""


class WorkerActor(Actor):
    """An actor of Dask, which frees it when the connection of its client ends."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.worker = get_worker()
        self.key = self.worker.get_current_task()

    async def execute(self, message: bytes) -> bytes:
        """Handle a request in a thread of this actor."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.callers, self.handle, message)

    def is_wanted(self) -> bool:
        # `state.actors` lacks it while it is made, `state.tasks` does not.
        return self.key in self.worker.state.tasks


class ConnectionClient(Client):
    """A client that only its connection closes.

    Dask's client closes when the garbage collector finds it, in any thread. If that thread is
    starting another client, closing waits for ever for a lock that the start holds.
    """

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options, set_as_default=False)
        except BaseException:
            _close(self)
            raise

    def __del__(self) -> None: ...


class Connection:
    """The connection to the scheduler at an address.

    client: Dask's client of the scheduler; None until it is connected. processes: the workers of
    local:N. is_over: set by `close`. now: the clock.

    Raises ParameterError for a bad address, ClusterError if no scheduler answers, and the
    exceptions of the listener of events.
    """

    def __init__(self, address: str) -> None:
        self.client: Any = None
        self.local_cluster: LocalCluster | None = None
        self.processes: list[subprocess.Popen[bytes]] = []
        self.now = time.perf_counter
        self.is_over, self.lock = False, threading.Lock()
        for name in list(logging.root.manager.loggerDict):
            # Dask's log messages are not needed: this package repairs or reports all losses.
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            self._connect(address)
        except BaseException:
            self.close().join(CLOSING_SECONDS)
            raise

    def _connect(self, address: str) -> None:
        """Connect to the scheduler at an address; start the cluster of local:N."""
        with _cluster_errors(address):
            if address.startswith("local:"):
                count = address.removeprefix("local:")
                if not re.fullmatch(r"[1-9]\d{0,3}", count):
                    raise ParameterError(
                        f"--cluster: expected local:N with N from 1 to {MAX_LOCAL_WORKERS}, "
                        f"found {address!r}"
                    )
                try:
                    security = Security.temporary()
                except ImportError as error:
                    raise ParameterError(
                        "--cluster local:N needs cryptography (pip install cryptography)"
                    ) from error
                scheduler = self._start_local_scheduler(int(count), security)
                self._start_client(address=scheduler, security=security)
                return
            scheduler = _address_in(address) if Path(address).is_file() else address
            found = re.fullmatch(r"(\w+://)?[^/\s]+:(\d{1,5})", scheduler)
            if found is None or not 1 <= int(found[2]) <= MAX_PORT:
                raise ParameterError(
                    f"--cluster: expected host:port (1 to {MAX_PORT}), a scheduler file or "
                    f"local:N, found {scheduler!r}"
                )

        # A scheduler that does not answer is waited for.
        emit(Notice(f"connecting to the cluster at {address}, for up to {CONNECTING_SECONDS:g} s"))

        def connect() -> None:
            with _cluster_errors(address):
                self._start_client(address=scheduler)

        run_in_daemon_thread(connect, WAITING_STAGE)

    def _start_client(self, **options: Any) -> None:
        """Connect to a scheduler. options: arguments of Dask's Client."""
        self.client = ConnectionClient(
            **options,
            timeout=CONNECTING_SECONDS,
            # On several machines only the scheduler has to be reached.
            direct_to_workers=bool(self.processes),
        )
        # The thread that waits for this client may have stopped waiting.
        if self.is_over:
            _close(self.client)

    def _start_local_scheduler(self, count: int, security: Security) -> str:
        """Start a scheduler in this process and workers that end with it; return its address."""
        with dask.config.set(NO_WEB_PAGES):
            self.local_cluster = LocalCluster(
                n_workers=0,
                protocol="tls://",
                host=HOST,
                security=security,
                dashboard_address=f"{HOST}:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )
        address: str = self.local_cluster.scheduler_address
        pages = f"--no-dashboard --dashboard-address {HOST}:0"
        arguments = f"{address} --host {HOST} {pages} --nthreads 1 --no-nanny --memory-limit 0"
        tls = security.get_tls_config_for_role("worker")
        settings = {
            **NO_WEB_PAGES,
            "distributed.comm.require-encryption": True,
            "distributed.comm.tls.ca-file": tls["ca_file"],
            "distributed.comm.tls.worker.cert": tls["cert"],
            "distributed.comm.tls.worker.key": tls["key"],
        }
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-c", WORKER_PROGRAM, *arguments.split()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Only the client gets the signals of the terminal.
                start_new_session=True,
            )
            self.processes.append(process)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(json.dumps([sys.path, settings]).encode())
        return address

    # --- messages ------------------------------------------------------------------------

    @property
    def expected_workers(self) -> int:
        """Return the number of the workers of local:N that live."""
        return sum(process.poll() is None for process in self.processes)

    def run(self, work: Coroutine[Any, Any, Result], stage: str | None = None) -> Result:
        """Return the result of a coroutine that runs in the event loop; see `result_of`.

        An exception of an event cancels the coroutine. Raises Cancelled after `close`.
        """
        with self.lock:
            if self.is_over:
                work.close()
                raise Cancelled
            future = asyncio.run_coroutine_threadsafe(work, self.client.loop.asyncio_loop)
        try:
            return result_of(future, stage)
        finally:
            future.cancel()

    async def identity(self) -> Any:
        """Return what the scheduler knows of each worker, name -> dictionary.

        Raises OSError if it does not answer, and ClusterError once nothing can be sent any more.
        """
        if self.processes and not self.expected_workers:
            raise ClusterError("all workers of this machine have ended")
        try:
            return (await self.client.scheduler.identity())["workers"]
        except Exception as error:
            if self.client.status in ("closed", "closing"):
                raise ClusterError("the scheduler is gone") from error
            raise

    async def start(self, worker: str, threads: int) -> tuple[Any, bool]:
        """Start an actor on a worker; return it and whether it computes other last digits.

        The actor is a pair: Dask's proxy of it, and the future that keeps it on the worker.

        Raises ClusterError if the worker can take no part. The handshake is a call of `Client.run`:
        unlike a task, it does not wait for a thread, which tasks of another run may keep for hours.
        """
        try:
            await self.client.run(import_module, HANDSHAKE_MODULE, workers=[worker])
            theirs = (await self.client.run(handshake, workers=[worker]))[worker]
        except (ImportError, AttributeError) as error:
            raise ClusterError(f"worker {worker} cannot import randsvm: {error}") from error
        ours = handshake()
        names = differing_names(theirs, ours)
        # Arithmetic is the last name: if it is the first that differs, all versions are the same.
        if names and (name := names[0]) != ARITHMETIC:
            raise ClusterError(
                f"worker {worker} has {name} {theirs.get(name)}, this process has {ours[name]}"
            )
        # A worker that is busy with other work starts the actor once it has a free thread.
        future = self.client.submit(WorkerActor, threads, actor=True, workers=[worker], pure=False)
        proxy = await future
        # Dask binds a proxy to the default client only.
        proxy._client = self.client
        return (proxy, future), bool(names)

    async def send(self, actor: Any, message: bytes) -> bytes:
        """Send a message to an actor; return the reply. Dask has many errors for lost workers."""
        reply: bytes = await actor[0].execute(message)
        return reply

    def release(self, actor: Any) -> None:
        """Free an actor with all that it holds."""
        with contextlib.suppress(Exception):
            actor[1].release()

    def close(self, tasks: Collection[asyncio.Task[Any]] = ()) -> threading.Thread:
        """Kill the workers of local:N; return a thread that closes the client and the scheduler.

        A scheduler that is gone does not answer, so closing it may take long. tasks: are cancelled
        """
        with self.lock:
            self.is_over = True
        for task in list(tasks):
            with contextlib.suppress(RuntimeError):
                self.client.loop.asyncio_loop.call_soon_threadsafe(task.cancel)
        for process in self.processes:
            process.kill()

        def close() -> None:
            latest = time.perf_counter() + CLOSING_SECONDS
            for process in self.processes:
                # A process that reads from a disk that is gone does not end.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, latest - time.perf_counter()))
            for service in (self.client, self.local_cluster):
                if service is not None:
                    _close(service)

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        return closing


def _close(service: Client | LocalCluster) -> None:
    """Close a client or cluster and stop its thread, which Dask may leave running."""
    with contextlib.suppress(Exception):
        service.close(timeout=CLOSING_SECONDS)
    with contextlib.suppress(Exception):
        service._loop_runner.stop(CLOSING_SECONDS)


def _address_in(path: str) -> str:
    """Return the address in a scheduler file. Raises ParameterError."""
    try:
        with Path(path).open("rb") as stream:
            # Another file, such as a data set, may be large.
            return str(json.loads(stream.read(SCHEDULER_FILE_BYTES))["address"])
    except OSError as error:
        raise ClusterError(f"cannot open {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError):
        raise ParameterError(
            f"--cluster: expected a scheduler file (JSON with an address), found {path}"
        ) from None


@contextlib.contextmanager
def _cluster_errors(address: str) -> Iterator[None]:
    """Turn any error of Dask into a ClusterError of one line."""
    try:
        yield
    except (ClusterError, ParameterError):
        raise
    except Exception as error:
        # Dask reads the first bytes of another protocol as a length, and requests that much memory.
        is_other_protocol = isinstance(error, MemoryError)
        reason = " ".join(str(error).split())
        if is_other_protocol:
            reason = "the program there is no scheduler"
        raise ClusterError(f"cannot reach the cluster {address}: {reason}") from error


# --- the handshake -------------------------------------------------------------------------

# Machines of equal arithmetic write models of the same bytes. BLAS, numpy and the C library have
# different code for different processors. Different processors may still compute the same bits, and
# two versions of a library may compute different bits on one processor. So the client compares
# computed numbers, not names of processors. The compiled sums of kernel values have the same bits
# with AVX2 and with AVX-512, and other bits without either.

# Sizes of the matrices of the sums: larger than one block and than one panel. All sums take 0.02 s.
ROWS, CENTRES, FEATURES = BLOCK_ROWS + 3, BLOCK_CENTRES + 5, 5
FUNCTIONS = (np.exp, np.cos, np.tanh, np.log1p, np.sqrt)
ARITHMETIC = "arithmetic"


def handshake() -> dict[str, str]:
    """Return the versions of this process, and last its `arithmetic`.

    The versions decide the bits of a model, or whether pickles can be exchanged: a worker of other
    versions is excluded. A notice reports a worker of other arithmetic.
    """
    return {
        "randsvm": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        ARITHMETIC: arithmetic(),
    }


def differing_names(theirs: dict[str, str], ours: dict[str, str]) -> list[str]:
    """Return the keys of `ours` whose values differ from those of `theirs`."""
    return [name for name, value in ours.items() if theirs.get(name) != value]


@cache
def arithmetic() -> str:
    """Return a digest of sums of kernel values, matrix products, and values of functions."""
    digest, uniform = sha256(), np.random.default_rng(0).random
    X, Z = (CsrMatrix.from_dense(uniform((m, FEATURES)) - 0.5) for m in (ROWS, CENTRES))
    beta, x = uniform(CENTRES) - 0.5, 8 * uniform(1000)
    rbf, poly, single, double = Kernel("rbf", 2.0), Kernel("poly", 2.0, 1.0), np.float32, np.float64
    layouts = (
        Dense(rbf, single),
        Dense(rbf, double),
        Cells(rbf, single, None, 5.0),
        Nonzeros(rbf, single),
        Blocks(poly, single),
        Blocks(poly, double),
    )
    for layout in layouts:
        digest.update(Expansion(layout, Z, beta).values(X).tobytes())
    for function in FUNCTIONS:
        for dtype in (single, double):
            digest.update(function(x.astype(dtype)).tobytes())
    # Functions of the C library.
    values = np.array([(math.exp(v), math.log(v), math.log1p(v)) for v in x.tolist()])
    digest.update(values.tobytes())
    return digest.hexdigest()
