"""Random small trainings, by the hundred, beside an exact optimum: see tests/optima.py.

Every case is repeated by its seed and number; the data of one that fails is left in results/.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import optima  # noqa: E402


def _run(folder: Path, seed: int, number: int) -> str:
    """How the case ended; a failure's data is kept, and the command that repeats it is printed."""
    case = optima.case_of(seed, number)
    try:
        return optima.check(case, folder)
    except Exception as error:  # noqa: BLE001 - every kind of it is what this looks for
        kept = ROOT / "results" / f"fuzz-training-{seed}-{number}"
        kept.parent.mkdir(exist_ok=True)
        case.save(kept)
        words = shlex.join(["randsvm-train", *case.command(kept.relative_to(ROOT), "/tmp/model")])
        print(f"number {number}: {type(error).__name__}: {str(error)[:500]}\n    {words}")
        return "FAILED"


@click.command()
@click.option("--cases", default=500, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first case.")
@click.option("--only", type=int, help="Only the case of this number.")
def main(cases: int, seed: int, first: int, only: int | None) -> None:
    """Run CASES cases and print how they ended, and the slowest."""
    ends, slowest = Counter[str](), (0.0, 0)
    numbers = range(first, first + cases) if only is None else [only]
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            began = time.perf_counter()
            ends[_run(Path(folder), seed, number)] += 1
            slowest = max(slowest, (time.perf_counter() - began, number))
    said = ", ".join(f"{count:,} {end}" for end, count in sorted(ends.items()))
    print(
        f"training: {ends.total():,} cases of seed {seed}: {said}; "
        f"slowest {slowest[0]:.1f} s (number {slowest[1]})"
    )
    if ends["FAILED"]:
        raise click.ClickException(f"{ends['FAILED']} cases failed")


if __name__ == "__main__":
    main()
