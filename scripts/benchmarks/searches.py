"""The works that search C and gamma: 25 combinations in 5 folds, and the same by GridSearchCV."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness import Command, Comparison, Gate, run
from benchmarks.quality import (
    INTELEX,
    NO_INTELEX,
    TRAIN,
    count,
)
from benchmarks.sets import fetched, find, first, plain
from benchmarks.trainings import Bench, records
from benchmarks.untuned_sets import whole

LINE = "0.5,2,8,32,128"
# The percentage points by which our best score may be below those of peers: of 10,000 rows and
# more, and of few rows, where other folds alone change the best score by more.
POINTS, FEW_POINTS, MANY_ROWS = 0.2, 0.5, 10_000
RACING, ALL_FOLDS = "randsvm -v 5", "randsvm -v 5 --no-racing"
INTELEX_GRID = "GridSearchCV, intelex"


@dataclass(frozen=True)
class Grid:
    """The values that are searched.

    C, gamma: lists of values, as in options of randsvm.
    whole: whether all folds of all combinations are scored by ours as well.
    """

    C: str
    gamma: str
    whole: bool = True


# On large noisy sets, a search of all folds takes several minutes.
SEARCHES = {
    "digits": Grid(LINE, "0.005,0.02,0.08,0.3,1"),
    "sms_spam": Grid(LINE, "0.0078125,0.03125,0.125,0.5,2"),
    "reviews": Grid(LINE, "0.0078125,0.03125,0.125,0.5,2", whole=False),
    "magic04": Grid(LINE, "0.0078125,0.03125,0.125,0.5,2"),
    "covtype-10000": Grid(LINE, "0.5,2,8,32,128", whole=False),
    "a9a": Grid("0.125,0.5,2,8,32", "0.001953125,0.0078125,0.03125,0.125,0.5",
                whole=False),
}  # fmt: skip
FILES = {"sms_spam": "sms_spam.train", "magic04": "magic04.train", "a9a": "a9a"}


def search(name: str, bench: Bench) -> Comparison:
    """Search a grid; the peer does so on the same rows with folds of its own."""
    grid, train = SEARCHES[name], rows_of(name, bench)
    labels = (RACING, ALL_FOLDS) if grid.whole else (RACING,)
    commands = [ours(bench, train, label, grid) for label in labels]
    commands.append(peer_search(bench, train, grid))
    return Comparison(count(train), commands, rounds=1)


def rows_of(name: str, bench: Bench) -> Path:
    """Return the training file of a set, of as many rows as a run of this size has."""
    if name in ("digits", "reviews"):
        train = whole(name, bench.results)
    elif name in FILES:
        train = plain(find(bench.data, FILES[name]), bench.results)
    else:
        train = first(fetched("covtype", bench.results)[0], 10_000, bench.results)
    return first(train, bench.scaled(count(train)), bench.results)


def ours(bench: Bench, train: Path, label: str, grid: Grid) -> Command:
    """Return a search by randsvm, which trains the best combination to a gap of 0.001 at last.

    It runs once and without an old log, as a search continues from its log.
    """
    model = bench.model(train, label + grid.C + grid.gamma)
    log = model.with_suffix(".jsonl")
    log.unlink(missing_ok=True)
    options = ["-q", "-c", grid.C, "-g", grid.gamma]
    words = [TRAIN, *label.split(), *options, "--log", str(log), str(train), str(model)]
    points = POINTS if count(train) >= MANY_ROWS else FEW_POINTS
    quality = partial(searched, log, train, model)
    return Command(label, words, quality, gates=(Gate("score", points),), once=True)


def searched(log: Path, train: Path, model: Path) -> dict[str, float]:
    """Return the best score of the last search of a log, in percent, and the time of the search.

    fits: the seconds of the search in those of one more training of the best combination
    """
    (found,) = [one for one in records(log) if one["event"] == "searched"][-1:]
    best = found["tried"][0]
    values, own = best["values"], model.with_suffix(".final")
    words = ["-q", "-c", str(values["C"]), "-g", str(values["gamma"]), str(train), str(own)]
    used, _ = run([TRAIN, "randsvm", *words])
    return {"score": best["score"], "fits": found["seconds"] / used["wall"]}


def peer_search(bench: Bench, train: Path, grid: Grid) -> Command:
    """Return the search of the peer on all cores."""
    found = bench.results / f"{train.name}.search.json"
    words = [*INTELEX, "search", str(train), str(found), grid.C, grid.gamma]
    return Command(INTELEX_GRID, words, lambda: json.loads(found.read_text()), NO_INTELEX)
