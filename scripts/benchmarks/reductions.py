"""The works of reduced models: size, gap, changed labels and the time of prediction."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from benchmarks.harness import Command, Comparison, output
from benchmarks.quality import PREDICT, TRAIN, count, size
from benchmarks.real_data import PARAMETERS
from benchmarks.sets import find, plain
from benchmarks.trainings import Bench

# Sets of real_data.py -> the number of rows of a run of full size.
FETCHED = {
    "covtype": 30_000,
    "census": 50_000,
    "flights": 30_000,
    "delay": 20_000,
    "covtype7": 30_000,
}
# Real set -> its file of training rows, and the options of the training.
REDUCED = {
    "a9a": ("a9a", "-c 1 -g 0.00813"),
    "magic04": ("magic04.train", "-c 10 -g 4 --scale minmax"),
    "reuters_acq": ("reuters_acq.train", "-c 1 -g 1"),
    "sms_spam": ("sms_spam.train", "-c 10 -g 0.1"),
    "mushrooms": ("mushrooms.crlf", "-c 1 -g 0.01"),
    "svmguide1": ("svmguide1", "-c 10 -g 8 --scale minmax"),
    "splice": ("splice", "-c 1 -g 0.02"),
    "german": ("german.numer_scale", "-c 1 -g 0.04"),
    "heart": ("heart_scale", "-c 1 -g 0.077"),
    "iris": ("iris.scale", "-c 1 -g 0.25"),
    "satimage": ("satimage.scale", "-c 4 -g 2"),
    "reuters_r8": ("reuters_r8.train", "-c 10 -g 0.5"),
    "elevators": ("elevators.train", "-s svr -c 0.01 -p 0.002 -g 0.05 --scale standard"),
    "abalone": ("abalone_scale", "-s svr -c 10 -p 0.5 -g 2"),
    "housing": ("housing_scale", "-s svr -c 10 -p 0.5 -g 0.5"),
    **{name: (name, PARAMETERS[name]) for name in FETCHED},
}
# Support vectors that are kept: a share of those of the full machine, or the fewest within a gap.
SHARE, AUTO_GAP = 20, 0.01
FULL, TWENTIETH, AUTO = "full", f"--reduce, 1/{SHARE}", f"--reduce auto --gap {AUTO_GAP}"


def reduced(name: str, bench: Bench) -> Comparison:
    """Return predictions by the full machine of a real set and by reduced ones.

    The rows of the training file are repeated: a prediction of few rows takes the time of a start.
    """
    file, options = REDUCED[name]
    if name in FETCHED:
        train, _ = bench.sets(name, bench.scaled(FETCHED[name]))
    else:
        train = plain(find(bench.data, file), bench.results)
    rows = repeated(train, bench.rows, bench.results)
    models = {of: bench.model(train, f"reduced {of}") for of in (FULL, TWENTIETH, AUTO)}
    words = [TRAIN, "-q", *options.split()]
    output(*words, "--gap", 0.001, train, models[FULL])
    kept = max(1, size(models[FULL]) // SHARE)
    output(*words, "--gap", 0.001, "--reduce", kept, train, models[TWENTIETH])
    output(*words, "--gap", AUTO_GAP, "--reduce", "auto", train, models[AUTO])
    commands = [
        Command(
            of,
            [PREDICT, "-q", str(rows), str(model), "/dev/null"],
            partial(change, model),
            gates=None if of == FULL else (),
            own=True,
        )
        for of, model in models.items()
    ]
    return Comparison(count(train), commands)


def repeated(path: Path, rows: int, into: Path) -> Path:
    """Return a file of this number of rows, those of another file over and over."""
    lines, target = path.read_bytes().splitlines(), into / f"{path.name}.times.{rows}"
    whole, rest = divmod(rows, len(lines))
    # The last line of the file may have no end.
    text = b"".join(line + b"\n" for line in lines)
    with target.open("wb") as out:
        for _ in range(whole):
            out.write(text)
        out.writelines(line + b"\n" for line in lines[:rest])
    return target


def change(model: Path) -> dict[str, float]:
    """Return size, P, gap and changes of a model, as its trailer has them."""
    names = "primal", "gap", "labels_changed", "largest_change", "needed_for_1_percent"
    found = re.findall(rf"^# randsvm ({'|'.join(names)}) (\S+)$", model.read_text(), re.M)
    return {"SV": size(model)} | {key: float(number) for key, number in found}
