"""Compute the time of training 100 million rows on many cores. Computed, not measured.

With LOGS, split the time of a round by the logs of runs, and print the time of a round of more
rows on more cores. Without LOGS, print the tables of docs/cluster.md from the measured constants
of this script: the parts of a round, and the counts of whole runs with inner sets.

A round takes latency + messages + work + solve + the rest of this process. Work falls with the
cores and grows with the rows. What moves to and from each worker is bounded, and goes over one
network connection. The rest stays as it is. Rounds grow with a power of the rows.

A whole run with inner sets takes

    kernel values / (cores * values per second) + rounds * seconds of a round without its work
    + bytes of a worker * workers / bytes per second of the network,

and its counts are those of `COUNTED`, continued to more rows by powers of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from pathlib import Path

import click

from benchmarks.page_tables import filled_with
from benchmarks.papers import read_log
from benchmarks.tables import table

PARTS = ("message", "work", "report", "solve", "rest")
TITLES = ("message", "work", "report", "LIBSVM", "other work of the client")


@dataclass(frozen=True)
class Round:
    """A mean round of a run without an inner set on two workers of one thread each.

    n : rows; rounds : of the run; bytes : to and from both workers. message, work, report, solve,
    rest : seconds until the slowest worker begins, of the slowest worker, until its answer arrives,
    of LIBSVM and of other work of the client
    """

    n: int
    rounds: int
    message: float
    work: float
    report: float
    solve: float
    rest: float
    bytes: float

    @property
    def fixed(self) -> float:
        """The seconds that stay the same on more cores."""
        return sum(getattr(self, part) for part in PARTS if part != "work")


@dataclass(frozen=True)
class Counted:
    """The counts of a whole run with inner sets on checkerboards with --gap 0.01.

    changed : coefficients that changed, summed over all rounds. kernel_values, reduced_values :
    without and with --reduce auto; None: not counted
    """

    n: int
    rounds: int
    changed: float
    support_vectors: float
    kernel_values: float | None
    reduced_values: float


# Measured with two workers of one thread each.
ROUNDS = {
    "checkerboard": Round(1_000_000, 44, 0.060, 0.292, 0.033, 0.087, 0.017, 2 * 0.46e6),
    "twonorm": Round(1_000_000, 77, 0.077, 0.773, 0.047, 0.117, 0.023, 2 * 0.67e6),
}
COUNTED = (
    Counted(1_000_000, 155, 102_000, 42_900, 4.8e10, 9.5e9),
    Counted(3_000_000, 282, 214_000, 91_400, None, 4.0e10),
    Counted(10_000_000, 199, 489_000, 210_300, None, 2.1e11),
)
# Bytes to and from both workers of a run of the first row of COUNTED, without and with --reduce
# auto.
MOVED = 103e6, 124e6
# Kernel values per second of a core, without --reduce auto (scans of all rows) and with it (most
# values are between few rows): of runs with a million rows and two threads.
RATES = 2.5e9, 1.25e9
# The tables of the page: of so many rows, on so many cores.
ROWS = 1e8
CORES = 10, 100, 1000
THREADS = 8
NETWORK = 1e9


def split(path: Path) -> Round:
    """Return the mean round of a log.

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
    return Round(n, len(rounds), message, work, report, solve, rest, mean("bytes_moved"))


def workers(cores: float, threads: int) -> float:
    """Return the number of workers, each with `threads` threads, on these cores, at least 1."""
    return max(1.0, cores / threads)


def seconds_of_a_round(
    found: Round, rows: float, cores: float, threads: int, network: float
) -> float:
    """Return the seconds of a round without an inner set.

    found : a round on two cores. threads : of each worker. network : bytes per second.
    """
    moving = found.bytes / 2 * workers(cores, threads) / network
    return found.work * rows / found.n * 2 / cores + moving + found.fixed


def power(ns: tuple[float, float], values: tuple[float, float]) -> float:
    """Return the exponent of the power of n through two values."""
    return log(values[1] / values[0]) / log(ns[1] / ns[0])


def continued(first: Counted, last: Counted, rows: float) -> Counted:
    """Return the counts of a run with more rows.

    Support vectors, changed coefficients and the kernel values of --reduce auto grow with the
    powers of the rows that lead from `first` to `last`. A round changes as many coefficients as in
    `last`. Without --reduce the kernel values are those of `first` for each pair of a row and a
    support vector.
    """

    def more(name: str) -> float:
        values = getattr(first, name), getattr(last, name)
        return values[1] * (rows / last.n) ** power((first.n, last.n), values)

    assert first.kernel_values is not None
    changed, support_vectors = more("changed"), more("support_vectors")
    pairs = first.kernel_values / (first.support_vectors * first.n)
    return Counted(
        round(rows),
        round(last.rounds * changed / last.changed),
        changed,
        support_vectors,
        pairs * support_vectors * rows,
        more("reduced_values"),
    )


def bytes_of_a_worker(counted: Counted, reduced: bool) -> float:
    """Return the bytes to and from a worker: they grow with the changed coefficients."""
    return MOVED[reduced] / 2 * counted.changed / COUNTED[0].changed


def seconds_of_a_run(
    counted: Counted, reduced: bool, cores: float, threads: int, network: float
) -> float:
    """Return the seconds of a whole run; see the formula above. reduced : with --reduce auto"""
    values = counted.reduced_values if reduced else counted.kernel_values
    assert values is not None
    moving = bytes_of_a_worker(counted, reduced) * workers(cores, threads) / network
    fixed = counted.rounds * ROUNDS["checkerboard"].fixed
    return values / (cores * RATES[reduced]) + fixed + moving


# ---- tables -----------------------------------------------------------------------------------


def two_digits(value: float) -> str:
    """Return a number of two digits, as 1.2e14 or 4,800."""
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}" if value >= 1e9 else f"{float(f'{value:.2g}'):,.0f}"


def measured_rounds() -> list[str]:
    """Return the table of the parts of a round."""
    head = ["data", "rounds", *TITLES, "bytes to and from a worker"]
    rows = []
    for name, found in ROUNDS.items():
        seconds = [f"{getattr(found, part):.3f} s" for part in PARTS]
        moved = f"{found.bytes / 2e6:.2f} MB"
        rows.append([f"{name}, {found.n:,} rows", f"{found.rounds}", *seconds, moved])
    return table(head, rows)


def computed_rounds() -> list[str]:
    """Return the table of the seconds of a round of ROWS rows."""
    head = ["cores", *(f"{name}, seconds a round" for name in ROUNDS)]
    rows = []
    for cores in CORES:
        seconds = [
            seconds_of_a_round(found, ROWS, cores, THREADS, NETWORK) for found in ROUNDS.values()
        ]
        rows.append([f"{cores:,}", *(f"{one:.2f}" for one in seconds)])
    return table(head, rows)


def counts() -> list[str]:
    """Return the table of the counts of whole runs, the last one computed."""
    found = [*COUNTED, continued(COUNTED[0], COUNTED[-1], ROWS)]
    head = ["rows", "rounds", "changed coefficients", "support vectors", "kernel values"]
    rows = []
    for one in found:
        is_computed = one is found[-1]
        spelled = two_digits if is_computed else "{:,.0f}".format
        cells = [*map(spelled, (one.rounds, one.changed, one.support_vectors))]
        values = [
            "-" if each is None else two_digits(each)
            for each in (one.kernel_values, one.reduced_values)
        ]
        rows.append([f"{one.n:,}{', computed' if is_computed else ''}", *cells, *values])
    return table([*head, "kernel values with `--reduce auto`"], rows)


def whole_runs() -> list[str]:
    """Return the table of the seconds of a whole run of ROWS rows."""
    counted = continued(COUNTED[0], COUNTED[-1], ROWS)
    rows = []
    for cores in CORES:
        seconds = [
            seconds_of_a_run(counted, reduced, cores, THREADS, NETWORK) for reduced in (False, True)
        ]
        rows.append([f"{cores:,}", *map(two_digits, seconds)])
    return table(["cores", "checkerboard, seconds", "with `--reduce auto`, seconds"], rows)


# The tables of docs/cluster.md by their names there.
TABLES = {
    "measured-rounds": measured_rounds,
    "computed-rounds": computed_rounds,
    "counts": counts,
    "whole-runs": whole_runs,
}


def of_logs(
    logs: tuple[Path, ...], rows: float, cores: tuple[int, ...], threads: int, network: float
) -> list[str]:
    """Return the table of the last log, and that of a round of more rows on more cores."""
    first, found = split(logs[0]), split(logs[-1])
    grows = power((first.n, found.n), (first.rounds, found.rounds)) if logs[1:] else 0
    rounds = found.rounds * (rows / found.n) ** grows
    cells = [f"{getattr(found, part):.3f}" for part in PARTS]
    head = ["rows", "rounds", *(f"{part}, s" for part in PARTS), "bytes a worker"]
    values = [f"{found.n:,}", f"{found.rounds}", *cells, f"{found.bytes / 2:,.0f}"]
    computed = f"Computed: {rows:,.0f} rows, {rounds:,.0f} rounds (rows^{grows:.2f})"
    lines = []
    for count in cores:
        one = seconds_of_a_round(found, rows, count, threads, network)
        lines.append([f"{count:,}", f"{one:.2f}", f"{one * rounds / 3600:.1f}"])
    more = table(["cores", "s a round", "hours"], lines)
    return [*table(head, [values]), "", computed, "", *more]


@click.command()
@click.argument("logs", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--rows", default=ROWS, show_default=True, help="Rows of the file to compute.")
@click.option("--cores", multiple=True, default=CORES, show_default=True)
@click.option("--threads", default=THREADS, show_default=True, help="Threads of each worker.")
@click.option("--network", default=NETWORK, show_default=True, help="Bytes per second.")
@click.option(
    "--page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Without LOGS: write the tables into this page, docs/cluster.md, and print nothing.",
)
def main(
    logs: tuple[Path, ...],
    rows: float,
    cores: tuple[int, ...],
    threads: int,
    network: float,
    page: Path | None,
) -> None:
    """Estimate the time on more cores from LOGS of runs with --cluster local:2.

    The runs are on samples of the same data, the smallest first. The last one is split; the first
    and the last tell how the number of rounds grows with the rows. Without LOGS, print the tables
    of docs/cluster.md; the other options are for LOGS.
    """
    if logs:
        lines = of_logs(logs, rows, cores, threads, network)
    elif page is not None:
        page.write_text(filled_with(page.read_text(), lambda name: TABLES[name]()))
        return
    else:
        lines = [line for make in TABLES.values() for line in (*make(), "")]
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
