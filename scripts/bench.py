"""The benchmarks: what runs, beside which peers, and what is to be reached. How: harness.py.

Writes results/benchmarks.json and results/benchmarks.md: every comparison, the papers' tables
(papers.py) and the physical limits of the machine (limits.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path

import click
import limits
import papers
from harness import Command, Comparison, Effort, Gate, Goal, compare, output
from quality import (
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
    of_kernel,
    of_libsvm,
    size,
)
from sets import REAL, MissingError, data_option, first, made, real, results_option

ROWS = 100_000  # of the sets that svm-train is run on; large sets have `LARGE` times as many
LARGE = 10
TEST_ROWS = (10_000, 100_000)  # of dense and of sparse sets
# Below a peer's accuracy, in points: of --gap, of KBH07's rule, of linear machines.
CERTIFIED, SAMPLED, LINEAR = 0.1, 2.0, 0.2
# C and gamma of kernel machines of several classes, rows where the set is made.
SEVERAL = {"letters": (4, 1), "satimage": (4, 2), "reuters_r8": (10, 0.5)}
LETTERS, LETTERS_TEST = 15_000, 5_000
MANY_CLASSES = {"reuters_r8": 0.5, "satimage": 0.5}
GAMMA = {"twonorm": 0.05, "ringnorm": 0.05, "checkerboard": 5, "a9a": 0.00813}
# Seconds of --gap 0.01 on the large sets.
SECONDS = {"twonorm": 150, "checkerboard": 75}
MEMORY = 100  # MB, of the run that may use no more
SMALL_ROWS = 100


@dataclass(frozen=True)
class Bench:
    """What all works share: rows of a set (at most, if it is real), where results and real sets
    are, and the sets that the user named: name -> files for training and test."""

    rows: int
    results: Path
    data: Path
    texts: dict[str, tuple[Path, Path]] = field(default_factory=dict)

    def sets(self, name: str, rows: int) -> tuple[Path, Path]:
        """Files of a set for training and test. Raises MissingError."""
        if name in papers.RCV1:
            if name not in self.texts:
                raise MissingError(f"{name}: --{name.lower()} names its files")
            return self.texts[name]
        if name in REAL:
            train, test = real(name, self.data, self.results)
            return first(train, self.rows, self.results), test
        train = made(name, rows, 0, self.results)
        return train, made(name, TEST_ROWS[name == "sparse"], 1, self.results)

    def model(self, train: Path, program: str) -> Path:
        return self.results / f"{train.name}.{program.replace(' ', '')}.model"


# ---- works ------------------------------------------------------------------------------------


def start_up(bench: Bench) -> Comparison:
    train, test = (made("twonorm", SMALL_ROWS, seed, bench.results) for seed in (0, 1))
    model = str(bench.model(train, "start-up"))
    shown, small = Goal(seconds=0.15), Goal(seconds=0.4)
    commands = [
        Command("randsvm-train --help", [TRAIN, "--help"], goal=shown),
        Command("randsvm-train randsvm --help", [TRAIN, "randsvm", "--help"], goal=shown),
        Command("randsvm-predict --help", [PREDICT, "--help"], goal=shown),
        Command("randsvm-train randsvm", [TRAIN, "randsvm", str(train), model], goal=small),
        Command("randsvm-train sgd", [TRAIN, "sgd", str(train), model], goal=small),
        Command("randsvm-predict", [PREDICT, str(test), model, "/dev/null"], goal=small),
    ]
    return Comparison("start-up", SMALL_ROWS, commands)


def reading(name: str, bench: Bench) -> Comparison:
    """Seconds of the reading alone, without Python's start and imports. Ours parses in one thread
    beside the main one."""
    path = made(name, bench.rows * 5, 0, bench.results)
    same = (Gate("rows", 0, 0), Gate("nonzeros", 0, 0), Gate("sum", 1e-6, 1e-6, relative=True))
    ours, theirs = ([*PEERS, function, str(path)] for function in ("read", "load_svmlight_file"))
    goal = Goal(same, times=15, against=("load_svmlight_file",))
    commands = [
        Command("randsvm's reader, --jobs 1", ours, partial(numbers, *ours), goal=goal),
        Command("load_svmlight_file", theirs, partial(numbers, *theirs), NO_SKLEARN),
    ]
    return Comparison(f"reading {name}", bench.rows * 5, commands)


def prediction(bench: Bench) -> Comparison:
    """Decision values of one model by both programs."""
    train = made("twonorm", bench.rows, 0, bench.results)
    test = made("twonorm", bench.rows, 1, bench.results)
    model = bench.model(train, "prediction")
    output(TRAIN, "randsvm", "-q", "--gap", 0.001, "-g", GAMMA["twonorm"], train, model)
    ours, theirs = (bench.results / f"prediction.{whose}.out" for whose in ("ours", "theirs"))
    goal = Goal((Gate("agreement", 0.01),), times=15, against=("svm-predict",))
    commands = [
        Command(
            "randsvm-predict",
            [PREDICT, "-q", str(test), str(model), str(ours)],
            partial(agreement, ours, ours),
            goal=goal,
        ),
        Command(
            "svm-predict",
            ["svm-predict", str(test), str(model), str(theirs)],
            partial(agreement, theirs, ours),
            NO_LIBSVM,
        ),
    ]
    return Comparison(f"prediction with {size(model):,} support vectors", bench.rows, commands)


def kernel(name: str, bench: Bench) -> Comparison:
    """--gap, KBH07's rule with k = 1,000 and with k from the formula, svm-train, SVC; C = 1."""
    train, test = bench.sets(name, bench.rows)
    within = {points: (Gate("accuracy", points),) for points in (CERTIFIED, SAMPLED)}
    certified = Goal(within[CERTIFIED], times=8, against=("svm-train",))
    sampled = Goal(within[SAMPLED], times=10, against=("svm-train",))
    if name == "ringnorm":
        certified, sampled = Goal(within[CERTIFIED]), Goal(within[SAMPLED])
    own = partial(ours, bench, train, test, ["-g", GAMMA[name]])
    commands = [own(papers.GAP, certified)]
    if name != "a9a":
        commands += [own(papers.RULE, sampled), own(papers.FORMULA, Goal(within[SAMPLED]))]
    gamma, theirs, SVC = str(GAMMA[name]), bench.model(train, "svm"), bench.model(train, "SVC")
    commands += [
        Command(
            "svm-train",
            ["svm-train", "-q", "-c", "1", "-g", gamma, str(train), str(theirs)],
            partial(of_libsvm, theirs, test),
            NO_LIBSVM,
        ),
        Command(
            "SVC",
            [*PEERS, "svc", str(train), str(SVC), "1", gamma],
            partial(accuracy, *PEERS, "score", test, SVC),
            NO_SKLEARN,
        ),
    ]
    return Comparison(name, count(train), commands)


def several(name: str, bench: Bench) -> Comparison:
    """One against one, training and the prediction of test rows, beside LIBSVM's programs."""
    if name == "letters":
        train, test = (
            made(name, rows, seed, bench.results)
            for seed, rows in enumerate((LETTERS, LETTERS_TEST))
        )
    else:
        train, test = bench.sets(name, bench.rows)
    (C, gamma), theirs = SEVERAL[name], bench.model(train, "svm")
    goal = Goal((Gate("accuracy", 0.3),), times=1.5, against=("svm-train",))
    words = ["-c", str(C), "-g", str(gamma)]
    commands = [
        ours(bench, train, test, words, papers.GAP, goal),
        Command(
            "svm-train",
            ["svm-train", "-q", "-m", "2000", *words, str(train), str(theirs)],
            partial(of_libsvm, theirs, test),
            NO_LIBSVM,
        ),
    ]
    return Comparison(f"several-{name}", count(train), commands)


def large(name: str, bench: Bench) -> Comparison:
    """Ten times the rows, where svm-train takes hours."""
    rows = bench.rows * LARGE
    train, test = bench.sets(name, rows)
    certified = Goal(seconds=SECONDS.get(name, inf), most={"gap": 0.01})
    own = partial(ours, bench, train, test, ["-g", GAMMA[name]])
    goals = {papers.LARGE_GAP: certified, papers.RULE: Goal(), papers.FORMULA: Goal()}
    return Comparison(name, rows, [own(words, goal) for words, goal in goals.items()])


def ours(
    bench: Bench, train: Path, test: Path, options: list[object], label: str, goal: Goal
) -> Command:
    """One training by the command `label` with more options; its log beside its model."""
    model = bench.model(train, label)
    log = model.with_suffix(".jsonl")
    words = [TRAIN, *label.split(), "-q", *options, "--log", log, train, model]
    return Command(label, [str(word) for word in words], partial(of_kernel, model, test), goal=goal)


def linear(name: str, bench: Bench) -> Comparison:
    """Hinge loss, C = 1 (RCV1: Bottou's lambda), each program otherwise at its defaults; all of
    them only train."""
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
    goal = Goal(
        (Gate("accuracy", MANY_CLASSES.get(name, LINEAR)),),
        times=1,
        against=(papers.LIBLINEAR, "SGDClassifier"),
        near={"J": 0.01} if classes == 2 else {},
    )
    words = [TRAIN, "sgd", "-q", "-c", C, "--log", log, str(train), str(model["sgd"])]
    sklearn = [*PEERS, "sgd", str(train), str(model["sklearn"]), str(lambda_)]
    commands = [
        Command(papers.SGD, words, quality["sgd"], goal=goal),
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
    if name in papers.TEXTS:
        own = partial(ours, bench, train, test, ["-c", C])
        goals = {papers.LINEAR_GAP: LINEAR, papers.LINEAR_RULE: SAMPLED}
        commands += [
            own(words, Goal((Gate("accuracy", points),))) for words, points in goals.items()
        ]
    return Comparison(f"linear {name}", rows, commands)


def memory(bench: Bench) -> Comparison:
    """--memory far below what the rows take."""
    rows = bench.rows * 100
    path = made("checkerboard", rows, 0, bench.results)
    most = Goal(peak=MEMORY + 16 * rows / 2**20 + 300)
    words = [TRAIN, "sgd", "-q", "--memory", f"{MEMORY}M", str(path), str(bench.model(path, "sgd"))]
    return Comparison("memory", rows, [Command(f"sgd --memory {MEMORY}M", words, goal=most)])


WORKS: dict[str, Callable[[Bench], Comparison]] = {
    "start-up": start_up,
    "reading-twonorm": partial(reading, "twonorm"),
    "reading-sparse": partial(reading, "sparse"),
    "prediction": prediction,
    **{name: partial(kernel, name) for name in GAMMA},
    **{f"linear-{name}": partial(linear, name) for name in [*REAL, "sparse", *papers.RCV1]},
    **{f"several-{name}": partial(several, name) for name in SEVERAL},
    "memory": memory,
    **{f"large-{name}": partial(large, name) for name in ("checkerboard", "twonorm", "ringnorm")},
}


@click.command()
@click.argument("works", nargs=-1, type=click.Choice(list(WORKS)))
@click.option("--quick", is_flag=True, help="A tenth of the rows, 2 rounds at the most.")
@click.option("--rows", type=click.IntRange(min=1000), help=f"Rows of a set.  [default: {ROWS}]")
@click.option("--rounds", type=click.IntRange(min=1), help="Counted runs of each.  [default: 3]")
@click.option("--ccat", nargs=2, type=click.Path(path_type=Path), help="RCV1's training, test.")
@click.option("--c11", nargs=2, type=click.Path(path_type=Path), help="The same of class C11.")
@results_option
@data_option
def main(works, quick, rows, rounds, ccat, c11, results: Path, data: Path) -> None:
    """Run WORKS (all), ours and the peers in turn; compare quality, time and memory.

    A peer or set that is not there is skipped and named.
    """
    results.mkdir(parents=True, exist_ok=True)
    rows = rows or (ROWS // 10 if quick else ROWS)
    texts = {name: files for name, files in (("CCAT", ccat), ("C11", c11)) if files}
    bench = Bench(rows, results, data, texts)
    effort = Effort(rounds or 2, 10, 3) if quick else Effort(rounds or 3, 600)
    title = "benchmarks-quick" if quick else "benchmarks"
    chosen = [partial(WORKS[name], bench) for name in works or WORKS]
    found = json.loads(output(sys.executable, limits.__file__))
    compare(title, chosen, effort, results, sections, rows=rows, limits=found)


def sections(found: dict) -> list[str]:
    scale = found["rows"] / ROWS
    note = f"These sets have {scale:g} times the rows that the goals are meant for."
    return [
        *(["", note] if scale != 1 else []),
        *papers.kbh07(found),
        *papers.cs246(found),
        *limits.shares(found),
    ]


if __name__ == "__main__":
    main()
