"""Run the benchmarks: each work writes a file results/benchmarks/NAME.json."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from benchmarks.harness import Comparison, Effort, run_works
from benchmarks.linear_gaps import SETS, SOLVERS, linear_gap
from benchmarks.quality import versions
from benchmarks.searches import SEARCHES, search
from benchmarks.sets import REAL, data_option, results_option
from benchmarks.trainings import (
    LARGE_GAP,
    LARGE_REDUCED,
    LOOSE,
    ROWS,
    TRAININGS,
    Bench,
    large,
    loose,
    training,
    warm,
)
from benchmarks.untuned import UNTUNED, untuned
from benchmarks.works import PREDICTIONS, linear, prediction, reading, start_up

# Seconds of a peer after which it is ended, in a whole run and in a quick one.
MOST, QUICK_MOST = 120, 20
BOTH = (LARGE_GAP, LARGE_REDUCED)

# In the order in which they run: the most important first, as a run may be stopped.
WORKS: dict[str, Callable[[Bench], Comparison]] = {
    **{name: partial(training, name) for name in TRAININGS},
    **{f"untuned-{name}": partial(untuned, name) for name in UNTUNED},
    **{f"search-{name}": partial(search, name) for name in SEARCHES},
    **{f"prediction-{name}": partial(prediction, name) for name in PREDICTIONS},
    **{f"reading-{name}": partial(reading, name) for name in ("twonorm", "sparse")},
    "start-up": start_up,
    **{f"linear-{name}": partial(linear, name) for name in [*REAL, "sparse"]},
    **{f"gap-{loss}-{name}": partial(linear_gap, name, loss) for loss in SOLVERS for name in SETS},
    **{f"loose-{name}": partial(loose, name) for name in LOOSE},
    "warm-100000": partial(warm, "twonorm", 100_000, 0.001),
    "warm-1000000": partial(warm, "checkerboard", 1_000_000, 0.01),
    "large-checkerboard": partial(large, "checkerboard", 10 * ROWS, BOTH),
    "large-twonorm": partial(large, "twonorm", 10 * ROWS, (LARGE_GAP,)),
    "largest-checkerboard": partial(large, "checkerboard", 100 * ROWS, BOTH),
}


@click.command()
@click.argument("works", nargs=-1)
@click.option("--quick", is_flag=True, help="A tenth of the rows, each run once.")
@click.option("--rows", type=click.IntRange(min=1000), help=f"For {ROWS} rows.  [default: {ROWS}]")
@click.option("--rounds", type=click.IntRange(min=1), help="Counted runs of each.  [default: 3]")
@click.option(
    "--most-minutes",
    type=click.FloatRange(min=0),
    default=110,
    show_default=True,
    help="After which no work begins.",
)
@click.option(
    "--peer-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help=f"After which a peer is ended.  [default: {MOST}; {QUICK_MOST} with --quick]",
)
@results_option
@data_option
def main(
    works: tuple[str, ...],
    quick: bool,
    rows: int | None,
    rounds: int | None,
    most_minutes: float,
    peer_seconds: float | None,
    results: Path,
    data: Path,
) -> None:
    """Run WORKS (all), ours and the peers in turn; compare quality, time and memory.

    A word as `untuned` or `linear` stands for all works whose names begin with it. A peer or set
    that is not there is skipped and named, and so are works that were not run. A work that runs
    again replaces its file.
    """
    kept = set(works)
    chosen = [name for name in WORKS if not kept or {name, name.partition("-")[0]} & kept]
    if unknown := kept - {word for name in WORKS for word in (name, name.partition("-")[0])}:
        raise click.UsageError(f"no work {min(unknown)!r}; there are {', '.join(WORKS)}")
    results.mkdir(parents=True, exist_ok=True)
    bench = Bench(rows or (ROWS // 10 if quick else ROWS), results, data)
    effort = Effort(
        rounds or (1 if quick else 3),
        seconds=10 if quick else 600,
        long=0 if quick else 10,
        most=peer_seconds or (QUICK_MOST if quick else MOST),
        whole=60 * most_minutes,
    )
    own = {name: partial(WORKS[name], bench) for name in chosen}
    into = results / ("benchmarks-quick" if quick else "benchmarks")
    run_works(own, effort, into, scale=bench.rows / ROWS, versions=versions())


if __name__ == "__main__":
    main()
