"""Compare two commits on sets that neither was tuned on: `make compare`.

Each commit is installed as a wheel in an environment of its own. Sets are drawn from a seed, and
both versions train on them in turn. The report gives the ratios of their times without the start of
the process, and the phase of the logs that differs most.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from importlib import metadata
from itertools import groupby
from math import inf
from pathlib import Path
from statistics import median

import click
import psutil

from benchmarks.drawn_sets import draw
from benchmarks.harness import Command, Comparison, Effort, Gate, Record, output, run_works
from benchmarks.sets import RESULTS, results_option

ROOT = RESULTS.parent
GAP = 0.001
# Two machines within the gap of the optimum are within this share of each other's P.
WITHIN = GAP / (1 - GAP)
LONGEST = 12  # seconds of the older version above which a set loses half of its rows
MOST = 60  # seconds after which it is ended
START_ROWS = "+1 1:1\n-1 1:0\n" * 20  # a set that takes the time of a process that does nothing
DEPENDENCIES = ("numpy", "scipy", "click", "libsvm-official", "tqdm")  # equal for both versions
# Share of all cores that other processes may take, and seconds to wait until it is below.
BUSY, PATIENCE = 0.05, 60
VERSIONS = ("old", "new")
LEAST = 0.001  # seconds below which nothing is measured, once the start is subtracted
# Phases of a run: reading; subproblems; scans; what else is between two rounds; from the last round
# to the end, which is the closing evaluation and the writing of the model.
PHASES = ("reading", "solves", "scans", "between", "closing")
HEAD = (
    f"{'set':44}{'old s':>8}{'new s':>8}{'ratio':>7}{'of rounds':>13}{'cpu':>8}{'peak':>7}"
    f"{'model':>10}{'rounds':>10}  differs most"
)


@click.command()
@click.argument("old")
@click.option("--new", default="HEAD", show_default=True, help="Commit that is compared with OLD.")
@click.option("--seed", type=int, help="Of the sets.  [default: today's date, as 20260131]")
@click.option("--sets", default=24, show_default=True, help="Number of sets.")
@click.option("--runs", default=5, show_default=True, help="Runs of each version on each set.")
@results_option
def main(old: str, new: str, seed: int | None, sets: int, runs: int, results: Path) -> None:
    """Train with the commits OLD and --new on sets that are drawn from a seed, and compare them.

    Seeds are of the day, so that no version is tuned on them. Environments, logs and results are
    kept in results/compare/.
    """
    seed = int(f"{date.today():%Y%m%d}") if seed is None else seed
    commits = [commit_of(name) for name in (old, new)]
    if commits[0] == commits[1]:
        raise click.UsageError(f"{old} and {new} are the same commit")
    if changed := output("git", "status", "--porcelain", "-uno", folder=ROOT):
        click.echo(f"changes that are not committed are not measured:\n{changed}", err=True)
    folder = results / "compare"
    programs = [installed(commit, folder) for commit in commits]
    into = folder / "-".join([f"{seed}", *(commit[:8] for commit in commits)])
    into.mkdir(parents=True, exist_ok=True)
    wait_until_idle()
    works = {
        f"set-{number:02}": partial(training, programs, seed, number, into)
        for number in range(sets)
    }
    for name in works:
        (into / f"{name}.json").unlink(missing_ok=True)
    effort = Effort(runs, long=0, once=inf, own_once=inf, most=MOST)
    try:
        run_works(works, effort, into, commits=commits, seed=seed)
    finally:
        paths = [into / f"{name}.json" for name in works]
        found = [json.loads(path.read_text()) for path in paths if path.exists()]
        if found:
            click.echo("\n".join(report(found)))


def commit_of(name: str) -> str:
    return output("git", "rev-parse", "--verify", f"{name}^{{commit}}", folder=ROOT).strip()


def wait_until_idle() -> None:
    """Wait until other processes leave the cores idle; say so if they do not."""
    end = time.perf_counter() + PATIENCE
    while (busy := psutil.cpu_percent(2) / 100) > BUSY:
        if time.perf_counter() > end:
            click.echo(f"other processes use {busy:.0%} of the machine: compare cpu", err=True)
            return


# ---- environments -----------------------------------------------------------------------------


def installed(commit: str, folder: Path) -> str:
    """Return the training program of a commit, which is installed if it is not there.

    Both versions have the dependencies of this environment.
    """
    environment = folder / commit[:12]
    ready, program = environment / "ready", environment / "bin/randsvm-train"
    pins = "".join(f"{name}=={metadata.version(name)}\n" for name in DEPENDENCIES)
    if not ready.exists() or ready.read_text() != pins:
        click.echo(f"installing {commit[:12]} in {environment}", err=True)
        output(sys.executable, "-m", "venv", "--clear", environment)
        with tempfile.TemporaryDirectory() as source:
            archive = Path(source) / "source.tar"
            output("git", "archive", "--output", archive, commit, folder=ROOT)
            output("tar", "-xf", archive, folder=Path(source))
            wanted = Path(source) / "pins.txt"
            wanted.write_text(pins)
            quiet = ("-m", "pip", "--quiet", "--disable-pip-version-check")
            output(environment / "bin/python", *quiet, "install", "-c", wanted, source)
        ready.write_text(pins)
    return str(program)


# ---- works ------------------------------------------------------------------------------------


def training(programs: Sequence[str], seed: int, number: int, into: Path) -> Comparison:
    """Draw a set in place of the one before, and halve it until the older version trains it in
    LONGEST seconds; return the trainings.

    A start of each version runs before them in each round: medians over a few runs in a row err by
    up to 50 ms, as much as a small training takes.
    """
    drawn = draw(seed, number)
    for path in into.glob("*.train"):
        path.unlink()
    nothing = into / "start.train"
    nothing.write_text(START_ROWS)
    path = into / f"{drawn.name}.train"
    name = f"set-{number:02}"
    drawn.write(path)
    while takes_long(commands(programs, path, drawn.options, name)[0].words):
        drawn = drawn.half()
        drawn.write(path)
    # Starts are compared with nothing.
    starts = [
        replace(one, name=f"start of {one.name}", quality=dict, gates=None)
        for one in commands(programs, nothing, (), "start")
    ]
    trainings = commands(programs, path, drawn.options, name)
    return Comparison(len(drawn.y), [*starts, *trainings])


def takes_long(words: Sequence[str]) -> bool:
    """Return whether a command runs for LONGEST seconds; it is ended then."""
    try:
        subprocess.run(words, timeout=LONGEST, capture_output=True, check=False)
    except subprocess.TimeoutExpired:
        return True
    return False


def commands(
    programs: Sequence[str], path: Path, options: Sequence[str], name: str
) -> list[Command]:
    """Return the training of a file by both versions. The older one serves as a peer."""
    folder, made = path.parent, list[Command]()
    models = [folder / f"{version}.model" for version in VERSIONS]
    for version, program, model in zip(VERSIONS, programs, models, strict=True):
        log = folder / f"{name}.{version}.log"
        log.unlink(missing_ok=True)
        words = [program, "-q", "--gap", f"{GAP}", *options, "--log", str(log), str(path)]
        gates = (Gate("P", WITHIN, WITHIN, relative=True),) if made else None
        quality = partial(result, log, models)
        made.append(Command(version, [*words, str(model)], quality, gates=gates))
    return made


def result(log: Path, models: Sequence[Path]) -> dict[str, float]:
    """Return P, and whether both models are the same, apart from their comments.

    It is called after the first run of each version: the last call compares them.
    """
    texts = [
        [line for line in path.read_bytes().splitlines() if not line.startswith(b"#")]
        for path in models
        if path.exists()
    ]
    return {"P": events(log)[-1][-1]["primal"], "same": texts[0] == texts[-1]}


# ---- report -----------------------------------------------------------------------------------


def events(log: Path) -> list[list[Record]]:
    """Return the records of each run of a log."""
    records = map(json.loads, log.read_text().splitlines())
    return [list(run) for _, run in groupby(records, lambda record: record["run"])]


def phases(log: Path) -> dict[str, float]:
    """Return the seconds of each phase, and the number of rounds: medians over the runs of a log.

    Pairs of classes are solved and scanned side by side: the sum of their seconds may be longer
    than the run, and nothing is left between them.
    """
    found = list[list[float]]()
    for first, *rounds, last in events(log):
        if last["event"] != "trained":
            continue  # it was ended
        latest = max(one["seconds"] for one in (first, *rounds))
        solves, scans = (
            sum(one[f"{phase}_seconds"] for one in rounds) for phase in ("solve", "scan")
        )
        reading = first["seconds"]
        between = max(0.0, latest - reading - solves - scans)
        found.append([reading, solves, scans, between, last["seconds"] - latest, len(rounds)])
    return dict(zip((*PHASES, "rounds"), map(median, zip(*found, strict=True)), strict=True))


def ratios(record: Record, starts: Sequence[Mapping[str, float]], of: str) -> list[float]:
    """Return new / old in each round, of seconds without the start of the process."""
    old, new = (
        [max(run[of] - start[of], LEAST) for run in command["runs"]]
        for command, start in zip(record["commands"][2:], starts, strict=True)
    )
    # A version that was ended ran once.
    return [mine / old[min(place, len(old) - 1)] for place, mine in enumerate(new)]


def start_of(found: Sequence[Record], place: int) -> dict[str, float]:
    """Return the medians of all runs of the start of a version. place: 0 old, 1 new."""
    runs = [run for record in found for run in record["commands"][place]["runs"]]
    return {of: median(run[of] for run in runs) for of in ("wall", "cpu")}


def report(found: Sequence[Record]) -> Iterator[str]:
    """Return the lines that compare two versions.

    found: the records of the sets, as run_works writes them.
    """
    first = found[0]
    old, new = (commit[:8] for commit in first["commits"])
    yield f"{old} -> {new}, seed {first['seed']}, --gap {GAP}, {first['date']}"
    yield first["machine"]
    starts = [start_of(found, place) for place in range(len(VERSIONS))]
    yield "start of the process, subtracted from all seconds: " + " -> ".join(
        f"{one['wall']:.3f} s ({one['cpu']:.3f} of processors)" for one in starts
    )
    yield ""
    yield HEAD
    medians: dict[str, list[float]] = {"wall": [], "cpu": []}
    spent = [Counter[str](), Counter[str]()]
    for record in found:
        theirs, ours = record["commands"][2:]
        used = [
            max(one["median"]["wall"] - start["wall"], LEAST)
            for one, start in zip((theirs, ours), starts, strict=True)
        ]
        times = {of: ratios(record, starts, of) for of in medians}
        logs = [Path(one["words"][one["words"].index("--log") + 1]) for one in (theirs, ours)]
        told = events(logs[1])[0][0]
        name = f"{Path(told['data']).stem}, {record['rows']:,} x {told['d']:,}"
        line = [
            f"{name:44}{used[0]:8.2f}{used[1]:8.2f}{median(times['wall']):7.2f}",
            f"{min(times['wall']):6.2f} -{max(times['wall']):5.2f}{median(times['cpu']):8.2f}",
            f"{ours['median']['peak'] / theirs['median']['peak']:7.2f}",
        ]
        if theirs["ended"]:
            # The ratio is a bound, not a measurement: it is not in the summary.
            yield "".join([*line, "  the older version was ended"])
            continue
        for of, values in times.items():
            medians[of].append(median(values))
        both = [phases(log) for log in logs]
        for total, each in zip(spent, both, strict=True):
            total.update(each)
        rounds = "/".join(f"{each['rounds']:.0f}" for each in both)
        same = "same" if ours["quality"]["same"] else "in gap"
        same = "P DIFFERS" if ours["short"] else same
        yield "".join([*line, f"{same:>10}{rounds:>10}  {largest(*both)}"])
    yield ""
    for of, words in (("wall", "seconds"), ("cpu", "processor seconds")):
        if values := medians[of]:
            worst, best = max(values), min(values)
            yield f"{words}: median {median(values):.2f}, worst {worst:.2f}, best {best:.2f}"
    shares = (f"{phase} {spent[0][phase]:.2f} -> {spent[1][phase]:.2f}" for phase in PHASES)
    yield f"seconds of all sets: {', '.join(shares)}; {largest(*spent)} differs most"


def largest(old: Mapping[str, float], new: Mapping[str, float]) -> str:
    """Return the phase whose seconds differ most, and by how many."""
    phase = max(PHASES, key=lambda phase: abs(new[phase] - old[phase]))
    return f"{phase} {new[phase] - old[phase]:+.2f} s"


if __name__ == "__main__":
    main()
