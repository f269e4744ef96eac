"""All other works: start-up, reading, prediction, linear machines."""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Command, Comparison, Gate, output
from benchmarks.quality import (
    NO_LIBLINEAR,
    NO_LIBSVM,
    PEERS,
    PREDICT,
    TRAIN,
    accuracy,
    agreement,
    count,
    labels,
    numbers,
    objective,
    size,
)
from benchmarks.sets import made
from benchmarks.trainings import GAMMA, POINTS, Bench

SMALL_ROWS = 100
# Options of the model that is predicted with, and rows of its training: about 7,000 support
# vectors, at 2 and 20 features, and of 26 classes.
PREDICTIONS = {
    "checkerboard": (f"-c 1 -g {GAMMA['checkerboard']}", 80_000),
    "twonorm": (f"-c 1 -g {GAMMA['twonorm']}", 100_000),
    "letters": ("-c 4 -g 1", 15_000),
}
MANY_CLASSES = {"reuters_r8": 0.5, "satimage": 0.5}  # POINTS of linear machines
LIBLINEAR = "liblinear-train -s 3 -B 1"


def start_up(bench: Bench) -> Comparison:
    train, test = (made("twonorm", SMALL_ROWS, seed, bench.results) for seed in (0, 1))
    model = str(bench.model(train, "start-up"))
    commands = [
        Command("randsvm-train --help", [TRAIN, "--help"], gates=()),
        Command("randsvm-train randsvm --help", [TRAIN, "randsvm", "--help"], gates=()),
        Command("randsvm-predict --help", [PREDICT, "--help"], gates=()),
        Command("randsvm-train randsvm", [TRAIN, "randsvm", str(train), model], gates=()),
        Command("randsvm-train sgd", [TRAIN, "sgd", str(train), model], gates=()),
        Command("randsvm-predict", [PREDICT, str(test), model, "/dev/null"], gates=()),
    ]
    return Comparison(SMALL_ROWS, commands)


def reading(name: str, bench: Bench) -> Comparison:
    """Compare readers, without the start of Python and imports.

    Our reader parses in one thread besides the main one.
    """
    path = made(name, bench.rows * 5, 0, bench.results)
    same = (Gate("rows", 0, 0), Gate("nonzeros", 0, 0), Gate("sum", 1e-6, 1e-6, relative=True))
    ours, theirs = ([*PEERS, function, str(path)] for function in ("read", "load_svmlight_file"))
    commands = [
        Command("randsvm's reader, --jobs 1", ours, partial(numbers, *ours), gates=same),
        Command("load_svmlight_file", theirs, partial(numbers, *theirs)),
    ]
    return Comparison(bench.rows * 5, commands)


def prediction(name: str, bench: Bench) -> Comparison:
    """Compare predictions by the same model, for as many rows as it was trained on."""
    options, rows = PREDICTIONS[name]
    rows = bench.scaled(rows)
    train, test = (made(name, rows, seed, bench.results) for seed in (0, 1))
    model = bench.model(train, "prediction")
    output(TRAIN, "randsvm", "-q", "--gap", 0.001, *options.split(), train, model)
    mine, theirs = (bench.results / f"prediction.{name}.{whose}" for whose in ("ours", "theirs"))
    commands = [
        Command(
            "randsvm-predict",
            [PREDICT, "-q", str(test), str(model), str(mine)],
            lambda: agreement(mine, mine) | {"SV": size(model)},
            gates=(Gate("agreement", 0.01),),
        ),
        Command(
            "svm-predict",
            ["svm-predict", str(test), str(model), str(theirs)],
            lambda: agreement(theirs, mine) | {"SV": size(model)},
            NO_LIBSVM,
        ),
    ]
    return Comparison(rows, commands)


def linear(name: str, bench: Bench) -> Comparison:
    """Compare trainings of linear machines: hinge loss, C = 1, and the other options at the
    defaults of each program."""
    train, test = bench.sets(name, bench.rows * 5)
    rows, classes = count(train), len(labels(train))
    model = {of: bench.model(train, of) for of in ("sgd", "liblinear", "sklearn")}
    score = {
        "sgd": (PREDICT, "-q", test, model["sgd"], "/dev/null"),
        "liblinear": ("liblinear-predict", test, model["liblinear"], "/dev/null"),
        "sklearn": (*PEERS, "score", test, model["sklearn"]),
    }

    def quality(of: str) -> dict[str, float]:
        return accuracy(*score[of]) | objective(train, model[of], 1 / rows, classes)

    dual = ["liblinear-train", "-q", "-s", "3", "-B", "1", str(train), str(model["liblinear"])]
    sklearn = [*PEERS, "sgd", str(train), str(model["sklearn"]), str(1 / rows)]
    commands = [
        Command(
            "sgd",
            [TRAIN, "sgd", "-q", str(train), str(model["sgd"])],
            partial(quality, "sgd"),
            gates=(Gate("accuracy", MANY_CLASSES.get(name, POINTS)),),
        ),
        Command(LIBLINEAR, dual, partial(quality, "liblinear"), NO_LIBLINEAR),
        Command("SGDClassifier", sklearn, partial(quality, "sklearn")),
    ]
    return Comparison(rows, commands)
