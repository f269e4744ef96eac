"""How time and memory grow with the rows: measure each command at 10^4, 10^5, ... rows of twonorm.

Writes results/growth.json, growth.md, and draws growth.png. How it is measured: harness.py.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click
from bench import GAMMA
from harness import Command, Comparison, Effort, compare, output
from quality import NO_LIBSVM, PREDICT, TRAIN
from sets import made, results_option

SET, LEAST = "twonorm", 10_000
# Command -> times LEAST that it is measured at, at the most.
MOST = {"svm-train": 10, "randsvm --gap 0.01": 100, "sgd": 1000, "predict": 1000}


def growing(rows: int, results: Path) -> Comparison:
    """The commands that are measured at so many rows. predict has the model of LEAST rows."""
    train = made(SET, rows, 0, results)
    model = {name: str(results / f"growth.{name.split()[0]}.model") for name in MOST}
    options = ["-g", str(GAMMA[SET]), str(train)]
    randsvm = [TRAIN, "randsvm", "-q", "--gap", "0.01", *options]
    if rows == LEAST:
        output(*randsvm, model["predict"])
    commands = [
        Command("svm-train", ["svm-train", "-q", *options, model["svm-train"]], missing=NO_LIBSVM),
        Command("randsvm --gap 0.01", [*randsvm, model["randsvm --gap 0.01"]]),
        Command("sgd", [TRAIN, "sgd", "-q", str(train), model["sgd"]]),
        Command("predict", [PREDICT, "-q", str(train), model["predict"], "/dev/null"]),
    ]
    return Comparison(SET, rows, [each for each in commands if rows <= LEAST * MOST[each.name]])


def draw(found: dict, path: Path) -> None:
    """Seconds and peak memory against rows, one line for each command."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
    for axis, of, title in zip(axes, ("wall", "peak"), ("seconds", "peak MB"), strict=True):
        for name in MOST:
            points = [
                (each["rows"], record["median"][of])
                for each in found["comparisons"]
                for record in each["commands"]
                if record["name"] == name
            ]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
        axis.set(xscale="log", yscale="log", xlabel=f"rows of {SET}", ylabel=title)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(which="both", alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    click.echo(path)


@click.command()
@click.option("--most", default=10_000_000, show_default=True, help="Rows of the largest set.")
@click.option("--draw", "redraw", is_flag=True, help="Draw what was measured before.")
@results_option
def main(most: int, redraw: bool, results: Path) -> None:
    """Measure how cost grows, and draw it."""
    if not redraw:
        sizes = [LEAST * 10**power for power in range(4) if LEAST * 10**power <= most]
        works = [partial(growing, rows, results) for rows in sizes]
        results.mkdir(parents=True, exist_ok=True)
        compare("growth", works, Effort(rounds=1, long=5), results)
    draw(json.loads((results / "growth.json").read_text()), results / "growth.png")


if __name__ == "__main__":
    main()
