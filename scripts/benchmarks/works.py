"""All other works: start-up, reading, prediction, linear machines, memory, growth."""

from __future__ import annotations

from functools import partial
from math import inf
from pathlib import Path

from benchmarks import papers
from benchmarks.harness import Command, Comparison, Gate, output
from benchmarks.quality import (
    NO_LIBLINEAR,
    NO_LIBSVM,
    NO_SKLEARN,
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
from benchmarks.trainings import GAMMA, MEMORY, POINTS, SAMPLED, Bench, ours, promised

SMALL_ROWS = 100
BOUND = 100  # MB of --memory, where the rows take several times as much
# Options of the model that is predicted with, and rows of its training: about 7,000 support
# vectors, at 2 and 20 features, and of 26 classes.
PREDICTIONS = {
    "checkerboard": (f"-c 1 -g {GAMMA['checkerboard']}", 80_000),
    "twonorm": (f"-c 1 -g {GAMMA['twonorm']}", 100_000),
    "letters": ("-c 4 -g 1", 15_000),
}
MANY_CLASSES = {"reuters_r8": 0.5, "satimage": 0.5}  # POINTS of linear machines
GROWING = "checkerboard"
REPEATED = 300_000  # rows of growth up to which commands run more than once
# Command -> rows that it is measured at, at the most, in a run of full size.
MAX_ROWS = {"svm-train": 100_000, "randsvm": 1_000_000, "sgd": 1_000_000, "predict": 1_000_000}


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
        Command("load_svmlight_file", theirs, partial(numbers, *theirs), NO_SKLEARN),
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
    """Compare trainings of linear machines: hinge loss, C = 1 (RCV1: Bottou's lambda), and the
    other options at the defaults of each program."""
    train, test = bench.sets(name, bench.rows * 5)
    rows, classes = count(train), len(labels(train))
    lambda_ = papers.LAMBDA if name in bench.texts else 1 / rows
    model = {of: bench.model(train, of) for of in ("sgd", "liblinear", "tight", "sklearn")}
    J = {of: partial(objective, train, model[of], lambda_, classes) for of in model}
    quality = {
        "sgd": lambda: accuracy(PREDICT, "-q", test, model["sgd"], "/dev/null") | J["sgd"](),
        "sklearn": lambda: accuracy(*PEERS, "score", test, model["sklearn"]) | J["sklearn"](),
    } | {
        of: lambda of=of: accuracy("liblinear-predict", test, model[of], "/dev/null") | J[of]()
        for of in ("liblinear", "tight")
    }
    C, log = f"{1 / (lambda_ * rows):.10g}", str(model["sgd"].with_suffix(".jsonl"))
    dual = ["liblinear-train", "-q", "-s", "3", "-B", "1", "-c", C]
    gates = (Gate("accuracy", MANY_CLASSES.get(name, POINTS)),)
    words = [TRAIN, "sgd", "-q", "-c", C, "--log", log, str(train), str(model["sgd"])]
    sklearn = [*PEERS, "sgd", str(train), str(model["sklearn"]), str(lambda_)]
    commands = [
        Command(papers.SGD, words, quality["sgd"], gates=gates),
        Command(
            papers.LIBLINEAR,
            [*dual, str(train), str(model["liblinear"])],
            quality["liblinear"],
            NO_LIBLINEAR,
        ),
        Command("SGDClassifier", sklearn, quality["sklearn"], NO_SKLEARN),
        Command(
            papers.OPTIMUM,
            [*dual, "-e", "0.001", str(train), str(model["tight"])],
            quality["tight"],
            NO_LIBLINEAR,
            timed=False,
        ),
    ]
    if name in papers.TEXT_SETS:
        options = ["-c", C]
        points_below = {papers.LINEAR_GAP: POINTS, papers.LINEAR_RULE: SAMPLED}
        commands += [
            ours(bench, train, test, options, label, (Gate("accuracy", points),))
            for label, points in points_below.items()
        ]
    return Comparison(rows, commands)


def memory(bench: Bench) -> Comparison:
    """Measure the peaks of memory of trainings whose rows take far more than --memory, and of a
    prediction, which has no --memory. The time limit allows a round or more; the gap is ignored."""
    rows = bench.rows * 100
    path = made(GROWING, rows, 0, bench.results)
    model = {name: str(bench.model(path, f"memory {name}")) for name in ("sgd", "randsvm")}
    gap = ["-c", "1", "-g", str(GAMMA[GROWING]), "--gap", "0.01"]
    options = {"sgd": [], "randsvm": [*gap, "--time-limit", f"{bench.limit(120)}s"]}
    trained, predicted = {"promised": promised(rows, BOUND)}, {"promised": 300.0}
    commands = [
        Command(
            f"{name} --memory {BOUND}M",
            [TRAIN, name, "-q", "--memory", f"{BOUND}M", *options[name], str(path), model[name]],
            lambda: trained,
            gates=(),
        )
        for name in options
    ]
    words = [PREDICT, "-q", str(path), model["sgd"], "/dev/null"]
    commands.append(Command("predict, sgd's model", words, lambda: predicted, gates=()))
    return Comparison(rows, commands, rounds=1)


def growth(rows: int, bench: Bench) -> Comparison:
    """Measure time and memory of all commands at this number of rows, once if it is large.

    The prediction uses a model that was trained on a tenth of ROWS.
    """
    least, own = bench.scaled(10_000), bench.scaled(rows)
    train, first = made(GROWING, own, 0, bench.results), made(GROWING, least, 0, bench.results)
    options = ["-c", "1", "-g", str(GAMMA[GROWING])]
    model = {name: str(bench.model(train, f"growth {name}")) for name in MAX_ROWS}
    predicted = str(bench.model(first, "growth randsvm"))
    if not Path(predicted).exists():
        output(TRAIN, "randsvm", "-q", "--gap", 0.01, *options, first, predicted)
    log = Path(model["randsvm"]).with_suffix(".jsonl")
    solve = ["-q", *options]
    words = {
        "randsvm": [TRAIN, "randsvm", "--gap", "0.01", *solve, "--log", str(log)],
        "sgd": [TRAIN, "sgd", "-q"],
        "svm-train": ["svm-train", "-m", str(MEMORY), *solve],
    }
    commands = [
        Command(
            name,
            [*program, str(train), model[name]],
            partial(changed, log) if name == "randsvm" else dict,
            NO_LIBSVM if name == "svm-train" else None,
        )
        for name, program in words.items()
    ]
    commands.append(Command("predict", [PREDICT, "-q", str(train), predicted, "/dev/null"]))
    commands = [each for each in commands if rows <= MAX_ROWS[each.name]]
    return Comparison(own, commands, rounds=inf if rows <= REPEATED else 1)


def changed(log: Path) -> dict[str, float]:
    """Return the coefficients that changed, summed over the rounds of the last run in a log."""
    rounds = [each for each in papers.read_log(log) if each["event"] == "iteration"]
    return {"changed": sum(each["changed"] for each in rounds)}
