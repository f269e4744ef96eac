"""What the harness found as Markdown. Measures and reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

HEADER = [
    *("work", "rows", "command", "quality", "runs", "best", "median", "CPU", "peak"),
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
        "processes in turn: best and median wall seconds, medians of user + system seconds and of "
        f"peak resident MB (never seen below {found['unseen']:.0f}). Times faster: median of the "
        "pairs, least and most; not compared where quality is short.",
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
        *(f"{seconds:.3f}" for seconds in (best["wall"], middle["wall"], middle["cpu"])),
        f"{middle['peak']:.0f}",
        "; ".join(part for peer in record.get("peers", {}).items() for part in _standing(*peer)),
        record.get("goal", ""),
        _verdict(record.get("missed")),
    ]


def _standing(name: str, peer: dict) -> list[str]:
    if not peer["times"]:
        return peer["short"]
    pairs = peer["times"]["pairs"]
    return [f"{name}: {peer['times']['median']:.2f} ({min(pairs):.2f}-{max(pairs):.2f})"]


def _verdict(missed: list[str] | None) -> str:
    if missed is None:
        return ""
    return f"no: {', '.join(missed)}" if missed else "yes"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [row(header), row(["---"] * len(header)), *map(row, rows)]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
