"""What the harness found as Markdown. Measures and reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

HEADER = [
    *("work", "rows", "command", "quality", "runs", "best", "median", "fit", "CPU", "peak"),
    *("times faster than", "goal", "reached"),
]


def markdown(found: dict) -> list[str]:
    """The JSON record as a table."""
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
        "library says it, of user + system seconds and of peak resident MB (never seen below "
        f"{found['unseen']:.0f}). Times faster: median of the pairs, least and most; not compared "
        "where quality is short.",
        "",
        *table(HEADER, rows),
        *(f"\nSkipped: {what}" for what in found["skipped"]),
    ]


def _cells(record: dict) -> list[str]:
    best, middle = record["best"], record["median"]
    return [
        record["name"],
        ", ".join(f"{name} {value:.6g}" for name, value in record["quality"].items()),
        str(len(record["runs"])),
        *(f"{seconds:.3f}" for seconds in (best["wall"], middle["wall"])),
        f"{middle['fit']:.3f}" if "fit" in middle else "",
        f"{middle['cpu']:.3f}",
        f"{middle['peak']:.0f}",
        "; ".join(part for peer in record.get("peers", {}).items() for part in _standing(*peer)),
        record.get("goal", ""),
        verdict(record.get("missed")),
    ]


def _standing(name: str, peer: dict) -> list[str]:
    ratios = [(title, peer[of]) for title, of in ((name, "times"), (f"{name}'s fit", "fit"))]
    return peer["short"] or [f"{title}: {spread(found)}" for title, found in ratios if found]


def spread(ratios: dict) -> str:
    """The median of some ratios, the least and the most."""
    pairs = ratios["pairs"]
    return f"{ratios['median']:.3g} ({min(pairs):.3g}-{max(pairs):.3g})"


def verdict(missed: list[str] | None) -> str:
    if missed is None:
        return ""
    return f"no: {', '.join(missed)}" if missed else "yes"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [row(header), row(["---"] * len(header)), *map(row, rows)]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
