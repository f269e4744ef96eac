"""Repeat the tables of MZ: osuna against osuna-closest on 600 and 800 Reuters documents.

Mostefaoui, Zaou, "SVM: Reduction of Learning Time". C = 1000, RBF with sigma = 10, working sets of
450 and 540 documents, tested on 300 + 300 others. Needs reuters_acq.train and .test (svmlight,
plain or .xz) in the folder of real sets. Fails if a run takes fewer than 3 rounds: then nothing was
decomposed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from benchmarks.sets import data_option, find
from benchmarks.tables import row
from randsvm import api, files
from randsvm.events import Trained

SIGMA = 10
# MZ ends where no violator is left.
OPTIONS: dict[str, Any] = {"C": 1000, "gamma": 1 / (2 * SIGMA**2), "gap": "none"}
# Documents of either class -> working set: more than the support vectors, fewer than the documents.
SIZES = {300: 450, 400: 540}
TEST_DOCUMENTS = 300
SWAPS = (1, 10, None)
MIN_ROUNDS = 3


def balanced(lines: list[bytes], count: int) -> bytes:
    """Return the first `count` documents of each class."""
    positive = [line for line in lines if not line.startswith(b"-")][:count]
    negative = [line for line in lines if line.startswith(b"-")][:count]
    return b"".join(positive + negative)


def trained(train: Path, test: Path, size: int, swap: int | None, closest: bool) -> list[str]:
    """Train and test; return a row of the table."""
    model = train.with_suffix(".model")
    given = {**OPTIONS, "working_set": size} | ({} if swap is None else {"swap": swap})
    fitted = api.train_osuna(train, model, closest=closest, **given)
    outcome = fitted.outcome
    assert isinstance(outcome, Trained)
    if outcome.iterations < MIN_ROUNDS:
        sys.exit(f"only {outcome.iterations} rounds with B = {size}: nothing was decomposed")
    score = api.predict(str(test), str(model), str(train.with_suffix(".out")))
    return [
        "osuna-closest" if closest else "osuna",
        "all that fit" if swap is None else str(swap),
        str(outcome.iterations),
        str(outcome.support_vectors),
        f"{outcome.solve_seconds:.2f} s",
        f"{outcome.seconds:.2f} s",
        f"{score.accuracy:.2f}%",
        f"{outcome.gap:.1e}",
    ]


HEADER = ["algorithm", "swapped", "rounds", "|SV|", "solver", "total", "accuracy", "gap"]


@click.command()
@data_option
def main(data: Path) -> None:
    """Print MZ's two tables."""
    source = {}
    for part in ("train", "test"):
        text = files.read_whole(str(find(data, f"reuters_acq.{part}")))
        source[part] = text.splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder) / "test.svm"
        test.write_bytes(balanced(source["test"], TEST_DOCUMENTS))
        for documents, size in SIZES.items():
            train = Path(folder) / f"{documents}.svm"
            train.write_bytes(balanced(source["train"], documents))
            print(f"\n{documents} + {documents} documents, working set B = {size}\n")
            print(row(HEADER))
            print(row(["---"] * len(HEADER)))
            for swap in SWAPS:
                for closest in (False, True):
                    print(row(trained(train, test, size, swap, closest)), flush=True)


if __name__ == "__main__":
    main()
