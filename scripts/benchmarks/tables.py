"""Write the records of the harness as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

# An object of the JSON files that the harness writes.
Record: TypeAlias = "dict[str, Any]"

HEADER = [
    *("work", "rows", "command", "quality", "runs", "best", "median", "fit", "CPU", "peak"),
    "times faster than",
]
NEAR = 1.02  # times the floor: smaller peaks cannot be distinguished from it


def markdown(found: Record) -> list[str]:
    """Return the record of a run of the benchmarks as a table."""
    rows = [
        [comparison["name"], f"{comparison['rows']:,}", *_cells(record)]
        for comparison in found["comparisons"]
        for record in comparison["commands"]
    ]
    return [
        f"# {found['title']}",
        "",
        f"{found['machine']}; load {' '.join(f'{load:.1f}' for load in found['load'])}. Whole "
        "processes in turn: best and median wall seconds, medians of the training alone where a "
        "library says it, of user + system seconds and of peak resident MB. Times faster: median "
        "of the pairs, least and most; not compared where quality is short. >: the peer was ended "
        "after that, so its ratio is a lower bound. <=: no more than any process is seen to have.",
        "",
        *table(HEADER, rows),
        *left_out(found),
    ]


def left_out(found: Record) -> list[str]:
    """Return lines about benchmarks that were skipped or not run, and peers that were ended."""
    ended = [
        f'"{record["name"]}" after {record["median"]["wall"]:.4g} s ({each["name"]})'
        for each in found["comparisons"]
        for record in each["commands"]
        if record["ended"]
    ]
    lines = [f"Skipped: {what}" for what in found["skipped"]]
    if later := measured_later(found):
        lines += [f"Measured on another day, perhaps with another version: {', '.join(later)}"]
    if kept := [
        f"{each['name']}, {each['rows']:,} rows"
        for each in found["comparisons"]
        if each.get("peers_kept")
    ]:
        lines += [f"Ours measured later than the peers, not in turn with them: {'; '.join(kept)}"]
    lines += [f"Not run: {', '.join(found['not_run'])}"] if found["not_run"] else []
    lines += [f"Ended at a limit of time: {', '.join(ended)}"] if ended else []
    return [line for text in lines for line in ("", text)]


def day_and_duration(found: Record) -> str:
    """Return the day, and the time that all counted runs take together."""
    seconds = sum(
        run["wall"]
        for each in found["comparisons"]
        for record in each["commands"]
        for run in record["runs"]
    )
    return f"{found['date']}, {seconds / 60:.0f} minutes of runs"


def measured_later(found: Record) -> list[str]:
    """Return name, rows and day of the comparisons that were not measured on the day of the run."""
    day = found.get("date")
    return [
        f"{each['name']}, {each['rows']:,} rows ({each['date']})"
        for each in found["comparisons"]
        if each.get("date", day) != day
    ]


def _cells(record: Record) -> list[str]:
    best, middle = record["best"], record["median"]
    return [
        record["name"],
        ", ".join(f"{name} {value:.6g}" for name, value in record["quality"].items()),
        str(len(record["runs"])),
        *(bounded(record, f"{seconds:.3f}") for seconds in (best["wall"], middle["wall"])),
        f"{middle['fit']:.3f}" if "fit" in middle else "",
        bounded(record, f"{middle['cpu']:.3f}"),
        peak(record),
        "; ".join(part for peer in record.get("peers", {}).items() for part in _standing(*peer)),
    ]


def _standing(name: str, peer: Record) -> list[str]:
    ratios = [(title, peer[of]) for title, of in ((name, "times"), (f"{name}'s fit", "fit"))]
    return peer["short"] or [f"{title}: {spread(found)}" for title, found in ratios if found]


def bounded(record: Record, number: str) -> str:
    """Return a number of a command, as a lower bound if the command was ended."""
    return f"> {number}" if record["ended"] else number


def peak(record: Record) -> str:
    """Return the peak in MB, as an upper bound if it is near the smallest measurable peak."""
    most, floor = record["median"]["peak"], record["median"].get("floor", 0)
    return f"<= {most:.0f}" if most <= NEAR * floor else bounded(record, f"{most:.0f}")


def spread(ratios: Record) -> str:
    """Return the median, least and largest of some ratios; of lower bounds the median alone."""
    pairs, middle = ratios["pairs"], f"{ratios['median']:.3g}"
    return f"> {middle}" if ratios["ended"] else f"{middle} ({min(pairs):.3g}-{max(pairs):.3g})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [row(header), row(["---"] * len(header)), *map(row, rows)]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
