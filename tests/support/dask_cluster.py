"""A Dask scheduler and its workers as processes of this machine."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Seconds until a process must have started on a busy machine.
PATIENCE = 120.0
LOOPBACK = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")


class DaskCluster:
    """A Dask scheduler and its workers; `file` is the scheduler file for --cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("scheduler", "--scheduler-file", self.file, "--port", 0)
        end = time.monotonic() + PATIENCE
        while not self.file.exists():
            assert time.monotonic() < end
            time.sleep(0.05)

    def _start(
        self, program: str, *arguments: object, folder: Path | None = None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"distributed.cli.dask_{program}",
                *LOOPBACK,
                *map(str, arguments),
            ],
            cwd=folder or self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, folder: Path | None = None, memory: str = "0") -> subprocess.Popen[bytes]:
        """Start one more worker. folder: its working folder; memory: its limit for Dask."""
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", memory]
        started = self._start("worker", "--scheduler-file", self.file, *options, folder=folder)
        self.workers.append(started)
        return self.workers[-1]

    def kill(self, number: int = -1) -> None:
        """Kill a worker with SIGKILL, as the kernel does when it runs out of memory."""
        worker = self.workers.pop(number)
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def close(self) -> None:
        for process in [*self.workers, self.scheduler]:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
