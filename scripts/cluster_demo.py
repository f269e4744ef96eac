"""Train on a Dask cluster on this machine, kill a worker, and compare the model.

With several machines, a worker is started on each; the rest is the same.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

# Seconds within which the scheduler must start.
PATIENCE = 60.0
# The worker is killed after so many rounds.
ROUNDS = 2
DASK = (sys.executable, "-m", "dask")
# Whoever can connect to a scheduler or worker can run code there.
LOOPBACK = ("--host", "127.0.0.1", "--dashboard-address")
TRAIN = (sys.executable, "-m", "randsvm.cli.train", "randsvm", "-g", "5", "--sample-size", "200")


def started(stack: ExitStack, command: Sequence[object]) -> subprocess.Popen[bytes]:
    """Start a process that is killed when the stack is closed."""
    # One thread each: the scan has a worker per core.
    process = subprocess.Popen(
        [*map(str, command)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def scheduler_of(stack: ExitStack, file: Path) -> dict[str, object]:
    """Start a scheduler; return what it writes about itself to its scheduler file."""
    click.echo(f"$ dask scheduler --scheduler-file {file.name} --host 127.0.0.1")
    words = ["--scheduler-file", file, "--port", 0, *LOOPBACK, "127.0.0.1:8787"]
    started(stack, [*DASK, "scheduler", *words])
    end = time.monotonic() + PATIENCE
    while not file.exists():
        if time.monotonic() > end:
            raise click.ClickException("the scheduler has not started")
        time.sleep(0.1)
    return json.loads(file.read_text())


def kill_after(worker: subprocess.Popen[bytes], log: Path, run: subprocess.Popen[bytes]) -> None:
    """Kill the worker after ROUNDS rounds, as the kernel does when memory runs out."""
    while run.poll() is None:
        if log.exists() and log.read_text().count('"iteration"') >= ROUNDS:
            worker.send_signal(signal.SIGKILL)
            click.echo(f"after {ROUNDS} rounds: kill -9 {worker.pid}, a worker")
            return
        time.sleep(0.01)


@click.command()
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.option("--gap", default=0.001, show_default=True)
def demo(data: Path, gap: float) -> None:
    """Train on DATA with a scheduler and two workers, of which one is killed, and without."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file, log = Path(folder) / "dask.json", Path(folder) / "log.jsonl"
        about = scheduler_of(stack, file)
        click.echo(f"scheduler at {about['address']}")
        port = dict(about["services"]).get("dashboard")  # type: ignore[call-overload]
        click.echo(f"dashboard at http://127.0.0.1:{port}/status" if port else "no dashboard")
        words = ["--nthreads", "1", "--no-nanny", "--host", "127.0.0.1"]
        click.echo(f"$ dask worker --scheduler-file {file.name} {' '.join(words)}  (twice)")
        words = ["--scheduler-file", str(file), *words, *LOOPBACK, "127.0.0.1:0"]
        workers = [started(stack, [*DASK, "worker", *words]) for _ in range(2)]
        common = [*TRAIN, "--gap", str(gap), str(data)]
        there, here = Path(folder) / "there.model", Path(folder) / "here.model"
        click.echo(f"$ randsvm-train {' '.join(common[3:])} --cluster {file.name}")
        run = subprocess.Popen([*common, str(there), "--cluster", str(file), "--log", str(log)])
        kill_after(workers[0], log, run)
        if run.wait():
            raise click.ClickException("the run on the cluster has failed")
        click.echo("the same in one process")
        subprocess.run([*common, str(here), "-q"], check=True)
        if there.read_bytes() != here.read_bytes():
            raise click.ClickException("the models differ")
        click.echo(f"both models have the same {here.stat().st_size:,} bytes")


if __name__ == "__main__":
    demo()
