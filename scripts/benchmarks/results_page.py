"""Publish the results of the benchmarks: docs/benchmarks/, the pages and the pictures.

docs/benchmarks/ keeps the files of results/benchmarks/, one for each work. Every table of
docs/benchmarks.md and README.md, and the pictures, are made from it. Nothing is measured. The
pictures need the extra plot.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks import page_tables
from benchmarks.__main__ import WORKS
from benchmarks.harness import Record
from benchmarks.page_tables import Found
from benchmarks.sets import SCRIPTS, results_option
from benchmarks.trainings import records
from randsvm import files, plot

# Work -> the title of its panel in the picture of gaps.
DRAWN = {
    "covtype-30000": "covtype, 30,000 rows",
    "a9a": "a9a, 32,561 rows",
    "checkerboard": "checkerboard, 100,000 rows",
    "twonorm": "twonorm, 100,000 rows",
}
# Start of the name of a program -> label, colour and mark.
PROGRAMS = {
    "svm-train": ("svm-train", plot.COLOURS[1], "^"),
    "LIBSVM": ("LIBSVM, all cores", plot.COLOURS[2], "s"),
    "intelex": ("intelex", plot.COLOURS[3], "D"),
}
OURS = "randsvm"
# Borders separate filled marks that overlap.
FILLED: dict[str, Any] = {"markersize": 8, "markeredgecolor": "white"}
HOLLOW: dict[str, Any] = {"markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 1.6}
# Colours of text, bars of peers and the background: for light and for dark pages.
THEMES = {
    "light": ("#1d1f21", "#b3b9c1", "#ffffff"),
    "dark": ("#e6edf3", "#5b6570", "#0d1117"),
}
BAR_COLOURS = {"light": plot.COLOURS[0], "dark": plot.COLOURS[5]}
DPI = 150


# ---- pictures ------------------------------------------------------------------------------------


@plot.in_style
def draw_times(found: Found, path: Path, theme: str) -> None:
    """Draw the seconds of each program on the sets of the README, as bars."""
    ink, grey, background = THEMES[theme]
    shown = [work for work in page_tables.README_BARS if work in found]
    figure = Figure(figsize=(800 / 100, 0.64 * len(shown) + 0.5), facecolor=background)
    axis = figure.subplots()
    axis.set_facecolor(background)
    for place, work in enumerate(reversed(shown)):
        for offset, bar in zip((0.26, 0, -0.26), page_tables.bars(found[work]), strict=True):
            own = bar.name == OURS
            colour = BAR_COLOURS[theme] if own else grey
            if bar.seconds is None:
                text = f"{bar.name}: not run"
                axis.text(0.105, place + offset, text, va="center", color=ink, fontsize=9)
                continue
            axis.barh(place + offset, bar.seconds - 0.1, 0.24, left=0.1, color=colour)
            weight = "bold" if own else "normal"
            text = f"  {bar.name} {page_tables.number(bar.seconds)} s"
            axis.text(
                bar.seconds, place + offset, text, va="center", color=ink, fontsize=9, weight=weight
            )
    names = [page_tables.README_BARS[work] for work in reversed(shown)]
    axis.set_yticks(range(len(shown)), names, fontsize=10)
    axis.set(xscale="log", xlim=(0.1, 400), ylim=(-0.5, len(shown) - 0.5))
    axis.set_xlabel("seconds of the whole process (logarithmic)", fontsize=9)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.grid(axis="y", visible=False)
    axis.tick_params(colors=ink, which="both", length=0)
    axis.xaxis.label.set_color(ink)
    for side in axis.spines.values():
        side.set_visible(False)
    _save(figure, path, {work: found[work] for work in shown})


@plot.in_style
def draw_gaps(found: Found, path: Path) -> None:
    """Draw the gap against seconds: the rounds of ours, and where each program ended.

    Marks of runs with a larger tolerance are hollow. One legend serves all panels.
    """
    drawn = [name for name in DRAWN if name in found]
    figure, axes = plot.panels(len(drawn))
    labelled: dict[str, Any] = {}
    for axis, name in zip(axes, drawn, strict=True):
        looser = found.get(f"loose-{name}", {"commands": []})["commands"][1:]
        ours, *peers = found[name]["commands"]
        axis.plot(*zip(*ours["course"], strict=True), color=plot.COLOURS[0], linewidth=2)
        last = ours["median"]["wall"], ours["quality"]["gap"]
        axis.plot(*last, "o", color=plot.COLOURS[0], label=OURS)
        for record in peers:
            _draw_program(axis, record)
        for record in looser:
            _draw_program(axis, record, hollow=True)
        handles, labels = axis.get_legend_handles_labels()
        labelled |= dict(zip(labels, handles, strict=True))
        axis.set(title=DRAWN[name], xlabel="seconds", xscale="log", yscale="log")
        axis.set(ylabel="gap", ylim=(1e-7, 2), xlim=(0.1, 200))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_yticks([1, 1e-2, 1e-4, 1e-6], ["100%", "1%", "0.01%", "0.0001%"])
    labelled["hollow: larger tolerance"] = Line2D(
        [], [], linestyle="", **HOLLOW, color="grey", marker="o"
    )
    figure.legend(labelled.values(), labelled, loc="outside upper center", ncols=len(labelled))
    _save(figure, path, _of_gaps(found))


def _draw_program(axis: Any, record: Record, *, hollow: bool = False) -> None:
    """Draw where a program ended; a program of another kind has no mark."""
    name, gap = record["name"], record["quality"].get("gap")
    style = next((PROGRAMS[start] for start in PROGRAMS if name.startswith(start)), None)
    if style is None or not gap or "tenth" in name:
        return
    label, colour, mark = style
    shown = HOLLOW if hollow else FILLED | {"label": label}
    axis.plot(record["median"]["wall"], gap, mark, color=colour, **shown)


def _save(figure: Figure, path: Path, drawn: Found) -> None:
    with files.create_output(str(path)) as stream:
        options = {"metadata": {"Source": digest(drawn)}, "pil_kwargs": {"optimize": True}}
        plot.write(figure, stream, format="png", dpi=DPI, **options)


def _of_gaps(found: Found) -> Found:
    names = [*DRAWN, *(f"loose-{name}" for name in DRAWN)]
    return {name: found[name] for name in names if name in found}


def digest(drawn: Found) -> str:
    """Return the SHA-256 of results. The picture of them holds it: a test detects an old one."""
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()


def pictures(found: Found) -> dict[str, tuple[Callable[[Path], None], Found]]:
    """Return the pictures of the pages by file name: a function that draws it, and its results."""
    bars = {work: found[work] for work in page_tables.README_BARS if work in found}
    times: dict[str, tuple[Callable[[Path], None], Found]] = {
        f"results-times{suffix}.png": (partial(draw_times, found, theme=theme), bars)
        for theme, suffix in (("light", ""), ("dark", "-dark"))
        if bars
    }
    return times | {"results-gap.png": (partial(draw_gaps, found), _of_gaps(found))}


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
    """Publish what was measured, and write the tables and the pictures of the pages."""
    kept = output / "benchmarks"
    kept.mkdir(exist_ok=True)
    for path in sorted((results / "benchmarks").glob("*.json")):
        found = to_publish(path.stem, json.loads(path.read_text()))
        _write(kept / path.name, json.dumps(found, separators=(",", ":")) + "\n")
    works = published(kept)
    for name, (draw, _) in pictures(works).items():
        draw(output / name)
    for page in (output / "benchmarks.md", output.parent / "README.md"):
        if page.exists():
            _write(page, page_tables.filled(page.read_text(), works))


def _write(path: Path, text: str) -> None:
    with files.create_output(str(path)) as stream:
        stream.write(text.encode())
    click.echo(path)


if __name__ == "__main__":
    main()
