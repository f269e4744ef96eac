"""Publish the results of the benchmarks: docs/benchmarks/, the pages and the picture.

docs/benchmarks/ keeps the files of results/benchmarks/, one for each work. Every table of
docs/benchmarks.md and README.md, and the picture, are made from it. Nothing is measured. The
picture needs the extra plot.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import page_tables
from benchmarks.__main__ import WORKS
from benchmarks.harness import Record
from benchmarks.page_tables import Found
from benchmarks.sets import SCRIPTS, results_option
from benchmarks.trainings import records
from randsvm import files, plot

# Peers in the order of their colours.
PEERS_DRAWN = ("svm-train, a tenth", "svm-train", "LIBSVM", "intelex")
# Works whose gap is drawn against time, where they were measured.
DRAWN = ("covtype-30000", "a9a", "checkerboard", "twonorm")


# ---- the picture ---------------------------------------------------------------------------------


@plot.in_style
def draw_gaps(found: Found, path: Path) -> None:
    """Draw the gap against seconds: the rounds of ours, and where each program ended."""
    drawn = [name for name in DRAWN if name in found]
    figure, axes = plot.panels(-(-len(drawn) // 2), min(2, len(drawn)), 1.0, 1.2)
    for axis, name in zip(axes, drawn, strict=False):
        others = found.get(f"loose-{name}", {"commands": []})["commands"][1:]
        _draw_gaps_of(axis, found[name]["commands"], others)
        title = f"{name}, {found[name]['rows']:,} rows"
        axis.set(title=title, xlabel="seconds", ylabel="gap", xscale="log", yscale="log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize="x-small")
    for axis in axes[len(drawn) :]:
        axis.remove()
    with files.create_output(str(path)) as stream:
        options = {"metadata": {"Source": digest(found)}, "pil_kwargs": {"optimize": True}}
        plot.write(figure, stream, format="png", dpi=80, **options)


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


def digest(found: Found) -> str:
    """Return the SHA-256 of the results drawn. The picture holds it: a test detects an old one."""
    names = [*DRAWN, *(f"loose-{name}" for name in DRAWN)]
    drawn = {name: found[name] for name in names if name in found}
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()


# ---- files ------------------------------------------------------------------------------------


def to_publish(name: str, found: Record) -> Record:
    """Return a work's results as the repository keeps them: with the gaps of our rounds, from the
    logs, and without folders of this machine."""
    records = [dict(one, words=[*map(_file, one["words"])]) for one in found["commands"]]
    if name in DRAWN:
        records[0]["course"] = _course(found["commands"][0])
    return dict(found, commands=records)


def _file(word: str) -> str:
    return Path(word).name if "/" in word else word


def _course(record: Record) -> list[tuple[float, float]]:
    """Return the seconds and the gap of each round that has a gap."""
    log = Path(record["words"][record["words"].index("--log") + 1])
    rounds = [event for event in records(log) if event["event"] == "iteration"]
    return [(event["seconds"], event["gap"]) for event in rounds if event["gap"]]


def published(folder: Path) -> Found:
    """Return the results in a folder by work, in the order in which works run."""
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    return {name: found[name] for name in WORKS if name in found}


@click.command()
@click.option(
    "--output",
    default=SCRIPTS.parent / "docs",
    type=click.Path(path_type=Path),
    help="Folder of the pages.",
)
@results_option
def main(output: Path, results: Path) -> None:
    """Publish what was measured, and write the tables and the picture of the pages."""
    kept = output / "benchmarks"
    kept.mkdir(exist_ok=True)
    for path in sorted((results / "benchmarks").glob("*.json")):
        found = to_publish(path.stem, json.loads(path.read_text()))
        _write(kept / path.name, json.dumps(found, separators=(",", ":")) + "\n")
    works = published(kept)
    draw_gaps(works, output / "results-gap.png")
    for page in (output / "benchmarks.md", output.parent / "README.md"):
        if page.exists():
            _write(page, page_tables.filled(page.read_text(), works))


def _write(path: Path, text: str) -> None:
    with files.create_output(str(path)) as stream:
        stream.write(text.encode())
    click.echo(path)


if __name__ == "__main__":
    main()
