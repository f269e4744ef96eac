"""Draw the scores of a grid search, out of its --log file, to a PNG: the contour of grid.py.

Two parameters make a contour, one a line; of more the two (--axes) through the best combination.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, TypeAlias

import click

from randsvm.cli.log import read_trials

LEVELS = 12
# A result of a grid search, as the log holds it.
Record: TypeAlias = "dict[str, Any]"


def of_one_search(records: list[Record]) -> list[Record]:
    """The records on the same data and the same parameters as the last."""
    last = records[-1]
    found = {
        (record["rows"], *record["values"].values()): record
        for record in records
        if record["digest"] == last["digest"] and record["values"].keys() == last["values"].keys()
    }
    return list(found.values())


def on_equal_rows(records: list[Record]) -> list[Record]:
    """Those on as many rows as most are; under a time limit, and of a range, few are on more."""
    (rows, _), *_ = Counter(sorted((r["rows"] for r in records), reverse=True)).most_common(1)
    return [record for record in records if record["rows"] == rows]


def best_of(records: list[Record]) -> Record:
    sign = 1 if records[0]["score_name"] == "accuracy" else -1
    # Under a time limit, and of a range, only the best are tried on the most rows.
    return max(records, key=lambda record: (record["rows"], sign * record["score"]))


@click.command()
@click.argument("log")
@click.option("--axes", help="Two parameters as C,gamma.  [default: the first two that vary]")
@click.option("--output", default="grid.png", show_default=True)
def main(log: str, axes: str | None, output: str) -> None:
    """Plot what LOG says was tried."""
    found = read_trials(log)
    if not found:
        raise click.ClickException(f"{log}: no combination of a grid search is in it")
    records = of_one_search(list(found))
    best = best_of(records)
    varying = [name for name in best["values"] if len({r["values"][name] for r in records}) > 1]
    chosen = (axes.split(",") if axes else varying)[:2]
    unknown = [name for name in chosen if name not in best["values"]]
    if unknown or not chosen:
        raise click.ClickException(f"{log}: {', '.join(best['values'])} vary, not {axes}")
    others = [name for name in varying if name not in chosen]
    equal = on_equal_rows(records)
    through = best_of(equal)["values"]
    shown = [r for r in equal if all(r["values"][o] == through[o] for o in others)]
    draw(shown, best, chosen, output)
    click.echo(output)


def draw(records: list[Record], best: Record, axes: list[str], output: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, plot = plt.subplots(figsize=(7, 5.5))
    if len(axes) == 1:
        points = sorted((record["values"][axes[0]], record["score"]) for record in records)
        plot.plot(*zip(*points, strict=True), marker="o")
        plot.set(ylabel=best["score_name"])
    else:
        contour(figure, plot, records, axes, best["score_name"])
        plot.set(ylabel=axes[1])
        plot.set_yscale("log", base=2)
    plot.set(xlabel=axes[0])
    plot.set_xscale("log", base=2)
    plot.plot(*[best["values"][name] for name in axes], *[best["score"]] * (len(axes) == 1), "r*")
    values = ", ".join(f"{name} = {value:g}" for name, value in best["values"].items())
    plot.set_title(f"best {best['score_name']} {best['score']:.6g} at {values}", fontsize=10)
    plot.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(output, dpi=120)


def contour(
    figure: Any, plot: Any, records: list[Record], axes: list[str], score_name: str
) -> None:
    """Lines of equal score; what was not tried (yet) is left white."""
    x, y = (sorted({record["values"][name] for record in records}) for name in axes)
    score = {tuple(record["values"][name] for name in axes): record["score"] for record in records}
    grid = [[score.get((a, b), math.nan) for a in x] for b in y]
    if min(len(x), len(y)) > 1:
        filled = plot.contourf(x, y, grid, LEVELS, cmap="viridis")
        plot.contour(x, y, grid, LEVELS, colors="black", linewidths=0.5)
        figure.colorbar(filled, label=score_name)
    places = [(a, b) for b in y for a in x if (a, b) in score]
    plot.plot(*zip(*places, strict=True), "k.", markersize=3)


if __name__ == "__main__":
    main()
