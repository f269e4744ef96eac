"""The works on sets whose times were no aim in development, small and large, beside svm-train.

The sets are made by untuned_sets.py. A cross-validation of scikit-learn's SVC or SVR on 2,000 rows
chose the options, and the search of liblinear-train those of the linear machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from benchmarks.harness import Command, Comparison, Gate, output
from benchmarks.quality import NO_LIBLINEAR, count, scored
from benchmarks.sets import first
from benchmarks.trainings import GAP, POINTS, SQUARES, SVM_TRAIN, Bench, ours, peer
from benchmarks.untuned_sets import division, whole

LARGE = 10_000  # rows from which on one division is enough
DIVISIONS = 5
RARE = 0.2  # share of the rarer of two classes below which the area under the ROC curve is told
FEW_ROWS = 2  # test rows by which ours may be less accurate, where these are more than POINTS
LINEAR = "liblinear-train, tuned"


class Untuned(NamedTuple):
    """Words for the page, LIBSVM's options, and LIBLINEAR's."""

    words: str
    options: str
    linear: str


UNTUNED = {
    "digits": Untuned("digits, 10 classes, images of 8 x 8", "-c 2 -g 0.5", "-s 2 -c 1"),
    "soil": Untuned("soil types, 19 classes, 14 features", "-c 128 -g 0.5", "-s 2 -c 1024"),
    "carrier": Untuned(
        "carriers of flights, 16 classes, 107 features", "-c 8 -g 0.125", "-s 2 -c 0.125"
    ),
    "jet": Untuned("engines of planes, 18 features", "-c 32 -g 32", "-s 2 -c 2"),
    "mnist": Untuned("MNIST, 10 classes, images of 28 x 28", "-c 2 -g 0.03125", "-s 2 -c 0.015625"),
    "segments": Untuned("segments of images, 7 classes, 18 features", "-c 8 -g 2", "-s 2 -c 32"),
    "shuttle": Untuned("anomalies of a shuttle, 9 features", "-c 2 -g 32", "-s 2 -c 0.0625"),
    "diamonds": Untuned(
        "price of diamonds (regression), 26 features",
        "-s 3 -c 32 -g 0.125 -p 0.03",
        "-s 11 -c 128 -p 0",
    ),
    "cut": Untuned("cut of diamonds, 5 classes, 22 features", "-c 128 -g 0.125", "-s 2 -c 8"),
    "reviews": Untuned("film reviews, 9,821 words", "-c 8 -g 0.5", "-s 2 -c 2"),
    "mushrooms": Untuned("mushrooms, 112 features", "-c 0.5 -g 0.125", "-s 2 -c 0.03125"),
    "abalone": Untuned(
        "abalone (regression), 8 features", "-s 3 -c 8 -g 2 -p 0.3", "-s 11 -c 2 -p 0"
    ),
}


def untuned(name: str, bench: Bench) -> Comparison:
    """Return the training of a set by randsvm, svm-train, intelex and a tuned linear machine.

    Where a set is small, its qualities are means of several divisions, with their standard error;
    the times and the gap are those of the first.
    """
    what, rows = UNTUNED[name], whole(name, bench.results)
    options, divisions = what.options.split(), []
    for seed in range(1 if count(rows) >= LARGE else DIVISIONS):
        train, test = division(rows, seed, bench.results)
        divisions.append((first(train, bench.scaled(count(train)), bench.results), test))
    tests = [test for _, test in divisions]
    gates = (
        Gate("accuracy", max(POINTS, 100 * FEW_ROWS / sum(map(count, tests)))),
        Gate("mse", above=SQUARES, relative=True),
    )

    def linear(train: Path, test: Path) -> Command:
        words = ["liblinear-train", "-q", "-B", "1", *what.linear.split(), str(train)]
        model = str(bench.model(train, "linear"))
        return Command(LINEAR, [*words, model], missing=NO_LIBLINEAR, equal=False)

    programs: list[Callable[[Path, Path], Command]] = [
        lambda train, test: ours(bench, train, test, options, GAP, gates),
        partial(peer, SVM_TRAIN, bench, options=options),
        partial(peer, "intelex", bench, options=options),
        linear,
    ]
    commands, with_auc = [], is_unequal(rows)
    for program in programs:
        each = list(starmap(program, divisions))
        commands.append(replace(each[0], quality=partial(over_divisions, each, tests, with_auc)))
    return Comparison(count(divisions[0][0]), commands)


def over_divisions(
    commands: Sequence[Command], tests: Sequence[Path], with_auc: bool
) -> dict[str, float]:
    """Return the quality of the first command, which ran, and means over the divisions of what its
    models reach on test rows, with their standard errors. The others are run here."""
    found = commands[0].quality()
    for command in commands[1:]:
        output(*command.words)
    scores = [
        scored(test, model_of(command), with_auc)
        for command, test in zip(commands, tests, strict=True)
    ]
    for of in scores[0]:
        values = [each[of] for each in scores]
        found[of] = fmean(values)
        if len(values) > 1:
            found[f"{of}_error"] = stdev(values) / sqrt(len(values))
    return found


def model_of(command: Command) -> Path:
    return next(Path(word) for word in command.words if word.endswith(".model"))


def is_unequal(rows: Path) -> bool:
    """Return whether one of two classes has less than RARE of the rows."""
    with rows.open("rb") as lines:
        counts = Counter(line.split(maxsplit=1)[0] for line in lines)
    return len(counts) == 2 and min(counts.values()) < RARE * sum(counts.values())
