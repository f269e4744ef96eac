"""Real processes cut off at a random moment by a time limit or a signal: see tests/cutting.py.

Fails where one ends in a traceback, loses a model, leaves a file lying about, or ends too late.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from cutting import Cuts  # noqa: E402

# Seconds after a signal within which a process has ended.
SOON = 2.0


@click.command()
@click.option("--processes", default=50, show_default=True, help="Of each kind.")
@click.option("--patience", default=1.0, show_default=True, help="Times as late on a busy machine.")
def main(processes: int, patience: float) -> None:
    """Run PROCESSES with a time limit and as many with a signal; print how they ended."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        cuts = Cuts(Path(folder))
        for name, cut, soon in (("limit", cuts.limit, 0.0), ("signal", cuts.signal, SOON)):
            ends, latest = Counter[str](), 0.0
            for number in range(processes):
                try:
                    end, late = cut(number)
                except AssertionError as error:
                    end, late = f"FAILED (number {number}): {error}"[:400], 0.0
                    failed += 1
                ends[end] += 1
                latest = max(latest, late)
            said = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
            print(f"{name}: {processes} processes: {said}; the latest {latest:.2f} s late")
            failed += latest > soon + (patience - 1) * max(SOON, soon)
    if failed:
        raise click.ClickException(f"{failed} failed")


if __name__ == "__main__":
    main()
