"""Trainings on a Dask cluster of this machine, with and without a worker killed at a random moment:
see tests/killing.py.

Fails where a model has other bytes than that of one process, or a run does not end well.
"""

from __future__ import annotations

import random
import sys
import tempfile
import warnings
from contextlib import closing
from pathlib import Path

import click

from randsvm.errors import RandsvmError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from killing import RUNS, Kills  # noqa: E402


class Count:
    """Of runs, of those that lost a worker before they ended, and of failed ones."""

    def __init__(self) -> None:
        self.runs = self.killed = self.failed = 0

    def of(self, cluster: Kills, name: str, workers: int, kill: float | None = None) -> float:
        """Run, print how it ended; its seconds."""
        self.runs += 1
        title = f"{name}, {workers} worker{'s' * (workers > 1)}"
        if kill is not None:
            title += f", one killed after {kill:.2f} s"
        try:
            same, seconds = cluster.run(name, workers, kill)
        except RandsvmError as error:
            self.failed += 1
            print(f"{title}: FAILED: {error}", flush=True)
            return 0.0
        self.killed += kill is not None and kill < seconds
        self.failed += not same
        end = "the same bytes" if same else "FAILED: other bytes"
        print(f"{title}: {end} after {seconds:.2f} s", flush=True)
        return seconds


@click.command()
@click.option("--only", multiple=True, type=click.Choice(sorted(RUNS)), help="Of the kinds.")
@click.option("--workers", multiple=True, default=(1, 2, 4), show_default=True)
@click.option("--kills", default=20, show_default=True, help="More of the first kind.")
@click.option("--rows", default=3600, show_default=True, help="Of each file.")
@click.option("--seed", default=0, show_default=True, help="Of the moments.")
def main(only: tuple[str, ...], workers: tuple[int, ...], kills: int, rows: int, seed: int) -> None:
    """Run each kind on each number of workers, without a kill and with one; then kill more."""
    # dask leaves sockets and tasks to the end of a process.
    warnings.simplefilter("ignore")
    chance, count, names = random.Random(seed), Count(), only or tuple(RUNS)
    cases = [(name, number, 1) for number in workers for name in names]
    with tempfile.TemporaryDirectory() as folder, closing(Kills(Path(folder), rows)) as cluster:
        for name, number, times in [*cases, (names[0], 2, kills)]:
            whole = count.of(cluster, name, number)
            for _ in range(times):
                count.of(cluster, name, number, chance.uniform(0, whole))
    print(f"{count.runs} runs, {count.killed} of them lost a worker: {count.failed} failed")
    if count.failed:
        raise click.ClickException(f"{count.failed} failed")


if __name__ == "__main__":
    main()
