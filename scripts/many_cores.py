"""Split the time of a round on a cluster by the log of a run, and estimate from that the time of
more rows on a larger cluster. The estimate is computed, not measured.

A round takes latency + messages + work + solve + the rest of this process. Work falls with the
cores and grows with the rows. What moves to and from each worker is bounded, and goes over one
network connection. The rest stays as it is. Rounds grow with a power of the rows.
"""

from __future__ import annotations

from math import log
from pathlib import Path

import click

from benchmarks.papers import read_log
from benchmarks.tables import table

PARTS = ("message", "work", "report", "solve", "rest")


def split(path: Path) -> dict[str, float]:
    """Return n and the rounds of a log, and means per round: seconds of PARTS, bytes moved.

    The first round is left out: workers read and make their states in it.
    """
    events = read_log(path)
    n = next(event["n"] for event in events if "n" in event)
    rounds = [event for event in events if event["event"] == "iteration"]
    count = len(rounds) - 1

    def mean(name: str) -> float:
        return (rounds[-1][name] - rounds[0][name]) / count

    solve = sum(each["solve_seconds"] for each in rounds[1:]) / count
    message, work, report = (mean(f"{part}_seconds") for part in ("message", "worker", "report"))
    rest = mean("seconds") - message - work - report - solve
    parts = dict(zip(PARTS, (message, work, report, solve, rest), strict=True))
    return {"n": n, "rounds": len(rounds), "bytes": mean("bytes_moved"), **parts}


def seconds_of_a_round(
    found: dict[str, float], rows: float, cores: int, threads: int, network: float
) -> float:
    """Return the seconds of a round on `cores` cores.

    found: `split` of a run on two workers with one thread each. threads: threads of each worker.
    network: bytes per second.
    """
    moving = found["bytes"] / 2 * max(1, cores / threads) / network
    work = found["work"] * rows / found["n"] * 2 / cores
    return work + moving + sum(found[part] for part in PARTS if part != "work")


@click.command()
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--rows", default=1e8, show_default=True, help="Of the file that is asked about.")
@click.option("--cores", multiple=True, default=[10, 100, 1000], show_default=True)
@click.option("--threads", default=8, show_default=True, help="Of each worker.")
@click.option("--network", default=1e9, show_default=True, help="Bytes per second.")
def main(
    logs: tuple[Path, ...], rows: float, cores: tuple[int, ...], threads: int, network: float
) -> None:
    """Estimate the time on more cores from LOGS of runs with --cluster local:2.

    The runs are on samples of the same data, the smallest first. The last one is split; the first
    and the last tell how the number of rounds grows with the rows.
    """
    first, found = split(logs[0]), split(logs[-1])
    grows = log(found["rounds"] / first["rounds"]) / log(found["n"] / first["n"]) if logs[1:] else 0
    rounds = found["rounds"] * (rows / found["n"]) ** grows
    cells = [f"{found[part]:.3f}" for part in PARTS]
    head = ["rows", "rounds", *(f"{part}, s" for part in PARTS), "bytes a worker"]
    values = [f"{found['n']:,}", f"{found['rounds']}", *cells, f"{found['bytes'] / 2:,.0f}"]
    click.echo("\n".join(table(head, [values])))
    click.echo(f"\nComputed: {rows:,.0f} rows, {rounds:,.0f} rounds (rows^{grows:.2f})\n")
    lines = []
    for count in cores:
        one = seconds_of_a_round(found, rows, count, threads, network)
        lines.append([f"{count:,}", f"{one:.2f}", f"{one * rounds / 3600:.1f}"])
    click.echo("\n".join(table(["cores", "s a round", "hours"], lines)))


if __name__ == "__main__":
    main()
