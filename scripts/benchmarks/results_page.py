"""Publish the results of the benchmarks: docs/benchmarks.json, the pages and the pictures.

docs/benchmarks.json is the copy of results/benchmarks.json that the repository keeps. Every table
of docs/benchmarks.md and README.md, and both pictures, are made from it. Nothing is measured. The
pictures need matplotlib (extra plot).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import Any

import click

from benchmarks import page_tables, papers
from benchmarks.harness import put
from benchmarks.sets import SCRIPTS, results_option
from benchmarks.tables import Record
from benchmarks.trainings import LOOSE
from benchmarks.works import MAX_ROWS
from randsvm import files, plot

# Peers in the order of their colours.
PEERS_DRAWN = ("svm-train, a tenth", "svm-train", "LIBSVM", "intelex")
# Works whose gap is drawn against time, where they were measured.
DRAWN = ("covtype-30000", "a9a", "checkerboard", "twonorm")


def _is_large(each: Record) -> bool:
    first = each["commands"][0]["name"]
    return first.startswith(papers.LARGE_GAP) or each["name"].startswith("warm start")


Points = list[tuple[int, float]]


def _points(comparisons: Sequence[Record], name: str, of: str) -> Points:
    """Return (rows, number) of a program where it was measured. of: "seconds" or "changed"."""
    points = [
        (n, {"seconds": record["median"]["wall"], **record["quality"]})
        for n, record in _records(comparisons, name)
    ]
    return sorted((n, numbers[of]) for n, numbers in points if of in numbers)


def _records(comparisons: Sequence[Record], name: str) -> list[tuple[int, Record]]:
    """Return (rows, record) of a program where it was not ended."""
    return [
        (each["rows"], record)
        for each in comparisons
        for record in each["commands"]
        if record["name"] == name and not record["ended"]
    ]


def _exponent(points: Points) -> str:
    """Return the exponent of growth from the first point to the last."""
    if len({n for n, _ in points}) < 2:
        return ""
    (n, least), (most, last) = points[0], points[-1]
    return f"{log10(last / least) / log10(most / n):.2f}"


def _by_name(found: Record) -> dict[str, Record]:
    """Return name -> comparison, without the large ones, which share names."""
    return {each["name"]: each for each in found["comparisons"] if not _is_large(each)}


# ---- pictures ---------------------------------------------------------------------------------


_NONE: Record = {"commands": [{}]}


def draw_gaps(found: Record, path: Path) -> bool:
    """Draw the gap against seconds: the rounds of ours, and where each program ended."""
    by_name = _by_name(found)
    looser = {
        LOOSE[name][0]: each["commands"][1:] for name, each in by_name.items() if name in LOOSE
    }
    drawn = [by_name[name] for name in DRAWN if "course" in by_name.get(name, _NONE)["commands"][0]]
    if not drawn:
        return False
    with plot.panels(-(-len(drawn) // 2), min(2, len(drawn)), 1.0, 1.2) as (figure, axes):
        for axis, each in zip(axes, drawn, strict=False):
            _draw_gaps_of(axis, each["commands"], looser.get(each["name"], []))
            title = f"{each['name']}, {each['rows']:,} rows"
            axis.set(title=title, xlabel="seconds", ylabel="gap", xscale="log", yscale="log")
            axis.xaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_major_formatter("{x:g}")
            axis.legend(
                loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize="x-small"
            )
        for axis in axes[len(drawn) :]:
            axis.remove()
        _save(figure, path, found)
    return True


def _draw_gaps_of(axis: Any, commands: Sequence[Record], looser: Sequence[Record]) -> None:
    """Draw the rounds of ours, and the end of each program: filled, or open for its fit alone."""
    ours, *peers = commands
    axis.plot(*zip(*ours["course"], strict=True), color=plot.INK, label=ours["name"])
    for record in [ours, *peers, *looser]:
        gap, (colour, mark) = record["quality"].get("gap"), _style_of(record, ours)
        if not gap:
            continue
        label = None if record is ours else record["name"]
        axis.plot(record["median"]["wall"], gap, mark, color=colour, label=label)
        if "fit" in record["median"]:
            axis.plot(record["median"]["fit"], gap, mark, color=colour, markerfacecolor="none")
    axis.plot([], [], "o", color=plot.GREY, markerfacecolor="none", label="open: fit alone")


def _style_of(record: Record, ours: Record) -> tuple[str, str]:
    """Return colour and mark of a program: the same in every picture, at any tolerance."""
    if record is ours:
        return plot.INK, "s"
    number = next((k for k, name in enumerate(PEERS_DRAWN) if record["name"].startswith(name)), 7)
    return plot.COLOURS[number], plot.MARKS[number]


def _save(figure: Any, path: Path, found: Record) -> None:
    """Write a picture with the digest of its results, and print its name."""
    with files.create_output(str(path)) as stream:
        options = {"metadata": {"Source": digest(found)}, "pil_kwargs": {"optimize": True}}
        plot.write(figure, stream, format="png", dpi=80, **options)
    click.echo(path)


def draw_growth(found: Record, path: Path) -> bool:
    """Seconds and coefficients changed against rows, one line for each command, with its exponent
    in the legend."""
    comparisons = [each for each in found["comparisons"] if each["name"] == "growth"]
    if not comparisons:
        return False
    with plot.panels(1, 2) as (figure, axes):
        for axis, of in zip(axes, ("seconds", "changed"), strict=True):
            for number, name in enumerate(MAX_ROWS):
                if points := _points(comparisons, name, of):
                    exponent = _exponent(points)
                    label = f"{name}: n^{exponent}" if exponent else name
                    style = {"color": plot.COLOURS[number], "marker": plot.MARKS[number]}
                    axis.plot(*zip(*points, strict=True), markersize=4, label=label, **style)
            title = {"seconds": "seconds", "changed": "coefficients changed"}[of]
            axis.set(xscale="log", yscale="log", xlabel="rows of checkerboard", ylabel=title)
            axis.xaxis.set_major_formatter("{x:,g}")
            axis.yaxis.set_major_formatter("{x:,g}")
            axis.legend(loc="best")
        _save(figure, path, found)
    return True


def digest(found: Record) -> str:
    """Return the SHA-256 of the results. A picture holds it: a test detects old pictures."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


# ---- files ------------------------------------------------------------------------------------


def to_publish(found: Record) -> Record:
    """Return the results as the repository keeps them.

    They have the gaps of our rounds, from the logs, and no folders of this machine. The duration of
    the run is left out, as it says nothing about merged results.
    """
    found, comparisons = {of: value for of, value in found.items() if of != "seconds"}, []
    for each in found["comparisons"]:
        records = [
            dict(record, words=[*map(_file, record["words"])]) for record in each["commands"]
        ]
        if each["name"] in DRAWN and not _is_large(each):
            records[0]["course"] = _course(each["commands"][0])
        comparisons.append(dict(each, commands=records))
    return dict(found, comparisons=comparisons)


def merged(published: Record, found: Record) -> Record:
    """Return published results in which the comparisons of a later run replace the older ones.

    found: as to_publish returns it. The day of the run stays that of the published results; each
    comparison of the later run has its own.
    """
    comparisons = list(published["comparisons"])
    for each in found["comparisons"]:
        put(comparisons, each)
    return dict(
        published,
        comparisons=comparisons,
        versions=list(dict.fromkeys([*published["versions"], *found["versions"]])),
    )


def _file(word: str) -> str:
    return Path(word).name if "/" in word else word


def _course(record: Record) -> list[tuple[float, float]]:
    """Return the seconds and the gap of each round that has a gap."""
    rounds = [event for event in papers.events(record) if event["event"] == "iteration"]
    return [(event["seconds"], event["gap"]) for event in rounds if event["gap"]]


PICTURES = {"gap": draw_gaps, "growth": draw_growth}


@click.command()
@click.option("--title", default="benchmarks", show_default=True, help="TITLE.json is read.")
@click.option(
    "--output",
    default=SCRIPTS.parent / "docs",
    type=click.Path(path_type=Path),
    help="Folder of the pages.",
)
@click.option("--merge", is_flag=True, help="Replace only what the last run measured.")
@click.option("--published", is_flag=True, help="Read TITLE.json in the folder of the pages.")
@results_option
def main(title: str, output: Path, merge: bool, published: bool, results: Path) -> None:
    """Write the pages and the pictures from the measurements of the benchmarks."""
    kept = output / f"{title}.json"
    if published:
        found = json.loads(kept.read_text())
    else:
        found = to_publish(json.loads((results / f"{title}.json").read_text()))
        found = merged(json.loads(kept.read_text()), found) if merge else found
        _write(kept, json.dumps(found, separators=(",", ":")) + "\n")
    for name, draw in PICTURES.items():
        draw(found, output / f"results-{name}.png")
    for page in (output / "benchmarks.md", output.parent / "README.md"):
        if page.exists():
            _write(page, page_tables.filled(page.read_text(), found))


def _write(path: Path, text: str) -> None:
    with files.create_output(str(path)) as stream:
        stream.write(text.encode())
    click.echo(path)


if __name__ == "__main__":
    main()
