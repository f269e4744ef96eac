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


def _run(case: optima.Case, folder: Path, name: str) -> str:
    """How the case ended. The data of a failure, and of a run that ends with no progress, is kept,
    and the command that repeats it is printed."""
    try:
        end = optima.check(case, folder)
    except Exception as error:  # noqa: BLE001 - every kind of it is what this looks for
        _keep(case, name, f"{type(error).__name__}: {str(error)[:500]}")
        return "FAILED"
    if end == "said: no progress":
        _keep(case, name, end)
    return end


def _keep(case: optima.Case, name: str, why: str) -> None:
    kept = ROOT / "results" / f"fuzz-training-{name}"
    kept.parent.mkdir(exist_ok=True)
    case.save(kept)
    words = shlex.join(["randsvm-train", *case.command(kept.relative_to(ROOT), "/tmp/model")])
    print(f"{name}: {why}\n    {words}", flush=True)


@click.command()
@click.option("--cases", default=500, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first case.")
@click.option("--only", type=int, help="Only the case of this number.")
@click.option("--equal", is_flag=True, help="As many cases of each task.")
def main(cases: int, seed: int, first: int, only: int | None, *, equal: bool) -> None:
    """Run CASES cases and print how they ended, by task, and the slowest."""
    ends, slowest = Counter[tuple[str, str]](), (0.0, 0)
    numbers = range(first, first + cases) if only is None else [only]
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            began = time.perf_counter()
            case = optima.case_of(seed, number, equal=equal)
            ends[case.task, _run(case, Path(folder), f"{seed}-{number}")] += 1
            slowest = max(slowest, (time.perf_counter() - began, number))
    print(
        f"training: {ends.total():,} cases of seed {seed}; "
        f"slowest {slowest[0]:.1f} s (number {slowest[1]})"
    )
    for task in sorted({task for task, _ in ends}):
        own = {end: count for (of, end), count in sorted(ends.items()) if of == task}
        print(f"    {task}: " + ", ".join(f"{count:,} {end}" for end, count in own.items()))
    failed = sum(count for (_, end), count in ends.items() if end == "FAILED")
    if failed:
        raise click.ClickException(f"{failed} cases failed")


if __name__ == "__main__":
    main()
