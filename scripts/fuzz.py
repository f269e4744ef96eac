"""Made and damaged files, by the thousand, against the readers: see tests/fuzzing.py.

Every case is repeated by its reader, seed and number; a case that fails is left in results/.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fuzzing import Fuzz  # noqa: E402

# Of the cases, those of each reader: a cache is written to the disk and a command line is run, and
# that takes its time.
SHARES = {"text": 0.58, "model": 0.36, "cache": 0.03, "log": 0.02, "line": 0.01}
# No case may take longer, in seconds, nor all of them more memory, in bytes.
LONGEST = 10
MEMORY = 2 << 30


class SlowError(Exception):
    """A case took longer than LONGEST."""


def _too_slow(number: int, frame: FrameType | None) -> NoReturn:
    raise SlowError


def _run(fuzz: Fuzz, reader: str, seed: int, number: int) -> str:
    """How the case ended; a failure's file is kept."""
    chance = random.Random(f"{seed} {reader} {number}")
    make, check = fuzz.readers[reader]
    content = make(chance)
    signal.alarm(LONGEST)
    try:
        return check(content, chance)
    except Exception as error:  # noqa: BLE001 - every kind of it is what this looks for
        kept = ROOT / "results" / f"fuzz-{reader}-{seed}-{number}"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(content)
        print(f"{kept.relative_to(ROOT)}: {type(error).__name__}: {str(error)[:200]}")
        return "FAILED"
    finally:
        signal.alarm(0)


def _megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@click.command()
@click.option("--cases", default=100_000, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--reader", type=click.Choice(list(SHARES)), help="Only this one.")
@click.option("--only", type=int, help="Only the case of this number.")
def main(cases: int, seed: int, reader: str | None, only: int | None) -> None:
    """Run CASES cases and print how they ended, the slowest, and the largest memory."""
    signal.signal(signal.SIGALRM, _too_slow)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(Path(folder))
        print(f"seed {seed}, {_megabytes()} MB before the first case")
        warnings.simplefilter("error")  # one on stderr is not the one line of an error
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for name, share in SHARES.items():
            if reader not in (None, name):
                continue
            count = cases if reader else round(cases * share)
            ends, slowest = Counter[str](), (0.0, 0)
            for number in range(count) if only is None else [only]:
                began = time.perf_counter()
                ends[_run(fuzz, name, seed, number)] += 1
                slowest = max(slowest, (time.perf_counter() - began, number))
            failed += ends["FAILED"]
            said = ", ".join(f"{count:,} {end}" for end, count in sorted(ends.items()))
            print(
                f"{name}: {ends.total():,} cases: {said}; slowest {slowest[0] * 1000:.0f} ms "
                f"(number {slowest[1]}), memory {_megabytes()} MB"
            )
    if failed:
        raise click.ClickException(f"{failed} cases failed")


if __name__ == "__main__":
    main()
