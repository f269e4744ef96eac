"""Compare trainings of linear machines at equal gaps: P at most GAP above a lower bound.

The problem is the same for all: two classes, C = 1, no offset. P is computed from the written
weights by numpy (`peers.py objective`). The lower bound is D of a training by randsvm to TIGHT.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.harness import Command, Comparison, Gate, output
from benchmarks.quality import (
    LINEAR_PEERS,
    NO_LIBLINEAR,
    NO_LINEAR_PEERS,
    PEERS,
    TRAIN,
    count,
    numbers,
)
from benchmarks.sets import made
from benchmarks.trainings import Bench

GAP, TIGHT = 1e-3, 1e-4
# Rows of the sets that are made; the last is drawn with a seed that no development used.
MADE = {"sparse": 500_000, "twonorm": 300_000, "drawn": 100_000}
SEED = 20261129
SETS = ("a9a", "reuters_acq", "sms_spam", "covtype", *MADE)
SOLVERS = {"hinge": "3", "squared-hinge": "1"}  # loss -> LIBLINEAR's dual solver
# Program -> the losses that it has, and a tolerance that reaches the gap on most sets.
PROGRAMS = {
    "liblinear-train": (tuple(SOLVERS), 0.03),
    "liblinear-multicore": (tuple(SOLVERS), 0.03),
    "scikit-learn": (tuple(SOLVERS), 0.03),
    "snapml": (("hinge",), 1e-4),
    "cyanure": (("squared-hinge",), 0.001),
    "rehline": (("hinge",), 1e-3),
}
# rehline takes rows with all values; those of more values than this do not fit the memory.
MOST_VALUES = 2e8
THREADS = "2"


def linear_gap(name: str, loss: str, bench: Bench) -> Comparison:
    if name in MADE:
        kind = "sparse" if name == "drawn" else name
        seed = SEED if name == "drawn" else 0
        train = made(kind, bench.scaled(MADE[name]), seed, bench.results)
    else:
        train = bench.sets(name, bench.scaled(10**9))[0]
    rows = count(train)
    tight = bench.model(train, f"linear-tight-{loss}")
    ours = ["sgd", "-q", "--no-bias", "--loss", loss, str(train)]
    output(TRAIN, *ours, tight, "--gap", TIGHT)
    found = re.search(r"^# randsvm dual (.+)$", tight.read_text(), re.M)
    assert found
    bound = float(found[1]) / rows

    def above(model: Path) -> dict[str, float]:
        J = numbers(*PEERS, "objective", train, model, 1 / rows, loss)["J"]
        return {"above": J / bound - 1}

    model = bench.model(train, f"linear-gap-{loss}")
    words = [TRAIN, *ours, str(model), "--gap", str(GAP)]
    gates = (Gate("above", above=GAP),)
    commands = [Command("sgd", words, partial(above, model), gates=gates)]
    for program, (losses, tolerance) in PROGRAMS.items():
        own = bench.model(train, f"{program}-{loss}")
        options, files = [str(tolerance), THREADS], [str(train), str(own)]
        words = [*LINEAR_PEERS, "linear", program, *files, loss, "1", *options]
        missing = NO_LINEAR_PEERS
        if program == "liblinear-train":
            missing = NO_LIBLINEAR
            words = [program, "-q", "-s", SOLVERS[loss], "-e", options[0], *files]
        fits = program != "rehline" or rows * _features(train) <= MOST_VALUES
        if loss in losses and fits:
            commands.append(Command(program, words, partial(above, own), missing))
    return Comparison(rows, commands)


def _features(train: Path) -> int:
    """Return the largest index of the first rows."""
    with train.open() as lines:
        words = [line.split()[-1] for line in islice(lines, 1000)]
    return max(int(word.partition(":")[0]) for word in words if ":" in word)
