"""The works that train kernel machines: data sets, options and peers.

`randsvm-predict certify` judges every model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from benchmarks.harness import Command, Comparison, Gate, Record, output
from benchmarks.quality import (
    INTELEX,
    NO_INTELEX,
    NO_LIBSVM,
    PEERS,
    TRAIN,
    certified,
    count,
)
from benchmarks.real_data import PARAMETERS
from benchmarks.sets import REAL, fetched, find, first, made, plain, sample

ROWS = 100_000  # of a generated set in a run of full size
MIN_ROWS = 1000
TEST_ROWS = {"sparse": 100_000}  # of sets with more than the usual 10,000
MEMORY = 2000  # MB: our --memory by default, and svm-train's -m

# Our commands: with a certificate, by the rule of KBH07, and until no row violates.
GAP, RULE, FORMULA = (
    "randsvm --gap 0.001",
    "randsvm -k 1000 --sample-size 5000",
    "randsvm --gap none",
)
LARGE_GAP = "randsvm --gap 0.01"
LARGE_REDUCED = f"{LARGE_GAP} --reduce auto"

# How far our accuracy may be below a peer's, in percentage points, with --gap and by KBH07's rule;
# and how far our mean squared error may be above a peer's, as a share.
POINTS, SAMPLED, SQUARES = 0.2, 2.0, 0.01


@dataclass(frozen=True)
class Bench:
    """What all works share.

    rows: used in place of ROWS. results, data: folders of results and of real sets. mark: suffix of
    the names of models and logs, to keep those of another work with the same rows and commands.
    """

    rows: int
    results: Path
    data: Path
    mark: str = ""

    def scaled(self, rows: int) -> int:
        """Return the rows of a set that has `rows` rows in a run of full size."""
        return max(min(rows, MIN_ROWS), rows * self.rows // ROWS)

    def sets(self, name: str, rows: int) -> tuple[Path, Path]:
        """Files of a set for training and test, of so many rows at most. Raises MissingError."""
        most = TEST_ROWS.get(name, 10_000)
        if name in REAL:
            train, test = (plain(find(self.data, part), self.results) for part in REAL[name])
        elif name in PARAMETERS:
            train, test = fetched(name, self.results)
        else:
            return made(name, rows, 0, self.results), made(name, most, 1, self.results)
        return first(train, rows, self.results), first(test, most, self.results)

    def model(self, train: Path, program: str) -> Path:
        """Return the model file of a program, named by its words except for names of files."""
        kept = "".join(word.strip(",") for word in program.split() if "/" not in word)
        return self.results / f"{train.name}.{kept}{self.mark}.model"


Gates: TypeAlias = "tuple[Gate, ...]"


@dataclass(frozen=True)
class Trainer:
    """A training: its data set, rows in a run of full size, LIBSVM's options and peers.

    rules: whether KBH07's rules run as well. points: percentage points by which our accuracy may be
    lower.
    """

    set: str
    rows: int
    options: str
    peers: tuple[str, ...]
    rules: bool = False
    points: float = POINTS

    @property
    def gates(self) -> tuple[Gate, ...]:
        return Gate("accuracy", self.points), Gate("mse", above=SQUARES, relative=True)


SVM_TRAIN, ALL_CORES, TENTH = "svm-train", "LIBSVM, all cores", "svm-train, a tenth"
EXACT = (SVM_TRAIN, ALL_CORES, "intelex", TENTH)

covtype, census, flights, delay, covtype7 = (
    PARAMETERS[name] for name in ("covtype", "census", "flights", "delay", "covtype7")
)
GAMMA = {"twonorm": 0.05, "ringnorm": 0.05, "checkerboard": 5}
twonorm, ringnorm, checkerboard = (f"-c 1 -g {GAMMA[name]}" for name in GAMMA)

# Real sets first, as a run may be stopped. scikit-learn-intelex has no novelty detection.
TRAININGS = {
    "covtype-30000": Trainer("covtype", 30_000, covtype, EXACT),
    "a9a": Trainer("a9a", 32_561, "-c 1 -g 0.00813", EXACT),
    "census": Trainer("census", 50_000, census, EXACT),
    "flights": Trainer("flights", 30_000, flights, EXACT),
    "regression-delay": Trainer("delay", 20_000, delay, EXACT),
    "covtype-100000": Trainer("covtype", 100_000, covtype, ("intelex", TENTH)),
    "covtype-all": Trainer("covtype", 522_911, covtype, ()),
    "checkerboard": Trainer("checkerboard", ROWS, checkerboard, EXACT, rules=True),
    "twonorm": Trainer("twonorm", ROWS, twonorm, EXACT, rules=True),
    "ringnorm": Trainer("ringnorm", ROWS, ringnorm, (SVM_TRAIN, "intelex"), rules=True),
    "weights": Trainer("unbalanced", 50_000, f"{twonorm} -w1 10", EXACT),
    "regression-18500": Trainer("friedman", 18_500, "-s 3 -c 1 -g 0.125 -p 0.1", EXACT),
    "regression-40000": Trainer("friedman", 40_000, "-s 3 -c 1 -g 0.125 -p 0.1", EXACT),
    "one-class": Trainer("twonorm", ROWS, "-s 2 -n 0.05 -g 0.05", (SVM_TRAIN, ALL_CORES)),
    "several-letters": Trainer("letters", 15_000, "-c 4 -g 1", EXACT, points=0.3),
    "several-satimage": Trainer("satimage", 4_435, "-c 4 -g 2", EXACT, points=0.3),
    "several-reuters_r8": Trainer("reuters_r8", 5_485, "-c 10 -g 0.5", EXACT, points=0.3),
    "several-covtype7": Trainer("covtype7", 30_000, covtype7, EXACT, points=0.3),
    # Of the benchmarks of scikit-learn-intelex (scikit-learn_bench): C and kernel are theirs, gamma
    # is scikit-learn's "scale", 1 / (features x variance of all values).
    "kernel-linear": Trainer("a9a", 32_561, "-t 0 -c 1", (SVM_TRAIN, "intelex")),
    "large-c": Trainer("covtype", 20_000, "-c 100 -g 0.25", (SVM_TRAIN, "intelex")),
}

# Training -> a tolerance at which the gaps of peers are a little below 0.1%, our gap. At their
# default of 0.001 the gaps are far smaller.
LOOSE = {"covtype-30000": 0.007, "census": 0.025, "a9a": 0.08, "checkerboard": 0.1}


# ---- works ------------------------------------------------------------------------------------


def training(name: str, bench: Bench) -> Comparison:
    """Compare --gap 0.001, and KBH07's rules if the training has them, with the peers."""
    what = TRAININGS[name]
    train, test = bench.sets(what.set, bench.scaled(what.rows))
    options = what.options.split()
    commands = [ours(bench, train, test, options, GAP, what.gates)]
    if what.rules:
        sampled = (Gate("accuracy", SAMPLED),)
        commands += [ours(bench, train, test, options, rule, sampled) for rule in (RULE, FORMULA)]
    commands += [peer(of, bench, train, test, options) for of in what.peers]
    return Comparison(count(train), commands)


def loose(name: str, bench: Bench) -> Comparison:
    """Compare --gap 0.001 with peers at a tolerance that gives them a similar gap.

    svm-train runs once, as it takes long.
    """
    what, tolerance, own = TRAININGS[name], LOOSE[name], replace(bench, mark="-loose")
    train, test = bench.sets(what.set, bench.scaled(what.rows))
    options = what.options.split()
    commands = [ours(own, train, test, options, GAP, what.gates)]
    for of, once in ((SVM_TRAIN, True), ("intelex", False)):
        command = peer(of, own, train, test, [*options, "-e", str(tolerance)])
        name_there = f"{of}, tolerance {tolerance:g}"
        commands.append(replace(command, name=name_there, once=once, equal=False))
    return Comparison(count(train), commands)


def ours(
    bench: Bench, train: Path, test: Path, options: list[str], label: str, gates: Gates | None
) -> Command:
    """Return the command of a training by randsvm. label: its first words; options: LIBSVM's."""
    model = bench.model(train, label + task(options))
    log = model.with_suffix(".jsonl")
    words = [TRAIN, *label.split(), "-q", *options, "--log", str(log), str(train), str(model)]
    quality = partial(certified, train, model, test, options)
    return Command(label, words, quality, gates=gates)


def task(options: list[str]) -> str:
    """Return the task or kernel in the options, for names: works on the same rows have their own
    models."""
    return " " + "".join(options[:2]) if options[0] in ("-s", "-t") else ""


def peer(name: str, bench: Bench, train: Path, test: Path, options: list[str]) -> Command:
    model = bench.model(train, name + task(options))
    rows = sample(train, 0.1, bench.results) if name == TENTH else train
    files = [str(rows), str(model)]
    program = ["svm-train", "-q", "-m", str(MEMORY), *options, *files]
    intelex = [*INTELEX, "machine", *files, *options]
    words, missing = {
        SVM_TRAIN: (program, NO_LIBSVM),
        TENTH: (program, NO_LIBSVM),
        ALL_CORES: ([*PEERS, "libsvm", *files, *options], None),
        "intelex": (intelex, NO_INTELEX),
    }[name]
    quality = partial(certified, train, model, test, options)
    return Command(name, words, quality, missing, equal=name != TENTH)


def large(name: str, rows: int, labels: Sequence[str], bench: Bench) -> Comparison:
    """Train once on many rows, where svm-train would take hours. labels: our commands."""
    train, test = bench.sets(name, bench.scaled(rows))
    options = ["-c", "1", "-g", str(GAMMA[name])]
    commands = [ours(bench, train, test, options, label, ()) for label in labels]
    return Comparison(bench.scaled(rows), commands, rounds=1)


def warm(name: str, rows: int, gap: float, bench: Bench) -> Comparison:
    """10% more rows than yesterday: a start from yesterday's model beside a cold one."""
    rows = bench.scaled(rows)
    before = made(name, rows, 0, bench.results)
    train, test = bench.sets(name, rows + rows // 10)
    options = ["-c", "1", "-g", str(GAMMA[name])]
    old = bench.model(before, "yesterday")
    output(TRAIN, "randsvm", "-q", "--gap", gap, *options, before, old)
    cold = f"randsvm --gap {gap:g}"
    gates = (Gate("accuracy", POINTS),)
    commands = [
        ours(bench, train, test, options, f"{cold} --warm-start {old}", gates),
        ours(bench, train, test, options, cold, None),
    ]
    return Comparison(rows + rows // 10, commands)


def records(log: Path) -> list[Record]:
    """Return the records of the last run in a log."""
    found = list(map(json.loads, log.read_text().splitlines()))
    return [event for event in found if event["run"] == found[-1]["run"]]
