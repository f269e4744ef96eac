"""Write cells and tables of Markdown from the records of the harness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

# An object of the JSON files that the harness writes.
Record: TypeAlias = "dict[str, Any]"

NEAR = 1.02  # times the floor: smaller peaks cannot be distinguished from it


def bounded(record: Record, number: str) -> str:
    """Return a number of a command, as a lower bound if the command was ended."""
    return f"> {number}" if record["ended"] else number


def peak(record: Record) -> str:
    """Return the peak in MB, as an upper bound if it is near the smallest measurable peak."""
    most, floor = record["median"]["peak"], record["median"].get("floor", 0)
    return f"<= {most:.0f}" if most <= NEAR * floor else bounded(record, f"{most:.0f}")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [row(header), row(["---"] * len(header)), *map(row, rows)]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
