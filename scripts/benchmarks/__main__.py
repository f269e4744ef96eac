"""Run the benchmarks: each work writes a file results/benchmarks/NAME.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from benchmarks import papers
from benchmarks.harness import Comparison, Effort, run_works
from benchmarks.quality import versions
from benchmarks.reductions import REDUCED, reduced
from benchmarks.searches import SEARCHES, search
from benchmarks.sets import REAL, data_option, results_option
from benchmarks.trainings import (
    LOOSE,
    ROWS,
    TRAININGS,
    Bench,
    large,
    largest,
    loose,
    training,
    warm,
)
from benchmarks.untuned import UNTUNED, untuned
from benchmarks.works import (
    MAX_ROWS,
    PREDICTIONS,
    growth,
    linear,
    memory,
    prediction,
    reading,
    start_up,
)

QUICK_ROWS = ROWS // 10
# Seconds of a peer after which it is ended, in a whole run and in a quick one.
MOST, QUICK_MOST = 120, 20
# Our commands on the large sets.
LARGE = {
    "checkerboard": (papers.LARGE_GAP, papers.LARGE_REDUCED),
    "twonorm": (papers.LARGE_GAP,),
}

# In the order in which they run: the most important first, as a run may be stopped.
WORKS: dict[str, Callable[[Bench], Comparison]] = {
    **{name: partial(training, name) for name in TRAININGS},
    **{f"untuned-{name}": partial(untuned, name) for name in UNTUNED},
    **{f"search-{name}": partial(search, name) for name in SEARCHES},
    **{f"prediction-{name}": partial(prediction, name) for name in PREDICTIONS},
    **{f"reduced-{name}": partial(reduced, name) for name in REDUCED},
    **{f"reading-{name}": partial(reading, name) for name in ("twonorm", "sparse")},
    "start-up": start_up,
    **{f"linear-{name}": partial(linear, name) for name in [*REAL, "sparse", *papers.RCV1]},
    "warm-100000": partial(warm, "twonorm", 100_000, 0.001),
    "warm-1000000": partial(warm, "checkerboard", 1_000_000, 0.01),
    **{f"large-{name}": partial(large, name, words) for name, words in LARGE.items()},
    **{
        f"growth-{rows}": partial(growth, rows)
        for rows in (10_000, 30_000, 100_000, 300_000, max(MAX_ROWS.values()))
    },
    **{name: partial(loose, name) for name in LOOSE},
    "memory": memory,
    "largest-checkerboard": partial(largest, "checkerboard", LARGE["checkerboard"]),
}
# Words that stand for several works: the first part of their names.
GROUPS = ("untuned", "search", "reduced", "linear", "growth", "loose")


def chosen(words: Sequence[str]) -> list[str]:
    """The works of these names and groups, in the order of WORKS; all of no words."""
    kept = set(words)
    return [name for name in WORKS if not kept or {name, name.partition("-")[0]} & kept]


@click.command()
@click.argument("works", nargs=-1, type=click.Choice([*WORKS, *GROUPS]))
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
@click.option("--ccat", nargs=2, type=click.Path(path_type=Path), help="RCV1's training, test.")
@click.option("--c11", nargs=2, type=click.Path(path_type=Path), help="The same of class C11.")
@results_option
@data_option
def main(
    works: tuple[str, ...],
    quick: bool,
    rows: int | None,
    rounds: int | None,
    most_minutes: float,
    peer_seconds: float | None,
    ccat: tuple[Path, Path] | None,
    c11: tuple[Path, Path] | None,
    results: Path,
    data: Path,
) -> None:
    """Run WORKS (all), ours and the peers in turn; compare quality, time and memory.

    A word as `untuned` or `linear` stands for all works whose names begin with it.
    A peer or set that is not there is skipped and named, and so are works that were not run. A work
    that runs again replaces its file.
    """
    results.mkdir(parents=True, exist_ok=True)
    rows = rows or (QUICK_ROWS if quick else ROWS)
    texts = {name: files for name, files in (("CCAT", ccat), ("C11", c11)) if files}
    bench = Bench(rows, results, data, texts)
    whole = 60 * most_minutes
    most = peer_seconds or (QUICK_MOST if quick else MOST)
    if quick:
        effort = Effort(rounds or 1, seconds=10, long=0, most=most, whole=whole)
    else:
        effort = Effort(rounds or 3, seconds=600, most=most, whole=whole)
    own = {name: partial(WORKS[name], bench) for name in chosen(works)}
    into = results / ("benchmarks-quick" if quick else "benchmarks")
    run_works(own, effort, into, scale=rows / ROWS, versions=versions())


if __name__ == "__main__":
    main()
