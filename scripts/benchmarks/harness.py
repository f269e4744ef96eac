"""Run whole processes in turn, and compare their quality, time and memory.

Independent of data sets and algorithms. The module `spawn` measures a process.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import click
import psutil

from randsvm import files

# An object of the JSON files that this module writes.
Record: TypeAlias = "dict[str, Any]"

PEAK_UNIT = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss, in a megabyte
SHOWN = 500  # bytes of the error output of a failed process that are shown
SPAWN = [sys.executable, "-IS", str(Path(__file__).with_name("spawn.py"))]

# Seconds that a process prints: of its work without its start; of the training of a library
# without reading.
CLOCK, FIT = (re.compile(rb"^%s ([0-9.e+-]+)$" % name, re.M) for name in (b"seconds", b"fit"))


# ---- processes --------------------------------------------------------------------------------


def run(words: Sequence[str], most: float = inf) -> tuple[dict[str, float], bool]:
    """Return the seconds and peak resident MB of a process, by spawn.py, and whether it was ended.

    Of the result, wall is S if the process prints `seconds S`, else its whole time; fit is S if it
    prints `fit S`; floor is the least MB that can be measured: a peak at the floor is an upper
    bound. most: seconds after which the process is ended; all numbers are then those at its end.
    Raises ClickException if the process fails.
    """
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
        tempfile.TemporaryFile() as emitted,
    ):
        own = [*SPAWN, str(emitted.fileno()), str(most), *words]
        subprocess.run(
            own, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, pass_fds=[emitted.fileno()]
        )
        for file in (out, errors, emitted):
            file.seek(0)
        printed, error = out.read(), errors.read()[-SHOWN:].decode(errors="replace")
        found = {name.decode(): float(number) for name, number in map(bytes.split, emitted)}
    if not found:
        raise click.ClickException(f"{shlex.join(words)}: not run\n{error}")
    code, ended = int(found.pop("code")), bool(found.pop("ended"))
    if code and not ended:
        raise click.ClickException(f"{shlex.join(words)}: exit {code}\n{error}")
    clock, fit = CLOCK.search(printed), FIT.search(printed)
    found |= {"wall": float(clock[1])} if clock else {}
    found |= {"fit": float(fit[1])} if fit else {}
    return found | {name: found[name] / PEAK_UNIT for name in ("peak", "floor")}, ended


def output(*words: object, folder: Path | None = None) -> str:
    """Run a process in `folder` without measuring it; return its standard output."""
    program = [str(word) for word in words]
    done = subprocess.run(program, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise click.ClickException(f"{shlex.join(done.args)}: exit {done.returncode}")
    return done.stdout


# ---- commands --------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """How far a quality of ours may lie below and above a peer's for time to be compared.

    relative: as a share of the peer's.
    """

    quality: str
    below: float = inf
    above: float = inf
    relative: bool = False

    def fault(self, ours: float, theirs: float) -> str | None:
        """Return what is wrong, in words; None: nothing. A nan is wrong."""
        unit = abs(theirs) if self.relative else 1
        if theirs - self.below * unit <= ours <= theirs + self.above * unit:
            return None
        return f"{self.quality} {ours:.6g} against {theirs:.6g}"


@dataclass(frozen=True)
class Command:
    """A program and its arguments.

    quality: called after the first run; returns scores of the result. missing: why the command
    cannot be run; None: it can. gates: of a command of randsvm, conditions on its quality against
    every peer; None for a peer, and for a command of randsvm that serves as one. once: whether it
    runs only once, even if it is fast. equal: False for a peer with fewer rows or a larger
    tolerance, to which no gate applies.
    """

    name: str
    words: Sequence[str]
    quality: Callable[[], dict[str, float]] = dict
    missing: str | None = None
    gates: tuple[Gate, ...] | None = None
    once: bool = False
    equal: bool = True


@dataclass(frozen=True)
class Comparison:
    """Commands that do the same work. rows: size of the data; rounds: at most this many."""

    rows: int
    commands: Sequence[Command]
    rounds: float = inf


@dataclass(frozen=True)
class Effort:
    """How often and how long commands run.

    rounds: number of counted runs. All others are in seconds. seconds: a comparison begins no
    further round after these. long: a first run that takes at least this long is counted too, as
    warming up matters little. once, own_once: a peer, or randsvm, that takes at least this long
    runs once. most: a peer is ended after these. whole: no work begins after these.
    """

    rounds: int = 3
    seconds: float = inf
    long: float = 10.0
    once: float = 20.0
    own_once: float = 60.0
    most: float = inf
    whole: float = inf


# ---- comparisons ------------------------------------------------------------------------------


def measure(comparison: Comparison, effort: Effort) -> Record:
    """Run the commands in turn (A B A B ...) and return their records.

    A first round gives the qualities; its runs count if they are long (see Effort.long) or the
    command runs once. A peer that was ended at the time limit has no quality.
    """
    began = time.perf_counter()
    rounds = int(min(effort.rounds, comparison.rounds))
    present = [command for command in comparison.commands if not command.missing]
    records: list[Record] = [
        {"name": command.name, "words": list(command.words)} for command in present
    ]
    pairs = list(zip(present, records, strict=True))
    again = []
    for command, record in pairs:
        used, ended = run(command.words, effort.most if command.gates is None else inf)
        record |= {"runs": [used], "ended": ended, "quality": {} if ended else command.quality()}
        once = effort.once if command.gates is None else effort.own_once
        if not command.once and not ended and used["wall"] < once:
            again.append(record)
            if used["wall"] < effort.long:
                record["runs"] = []
    for number in range(rounds):
        late = time.perf_counter() - began > effort.seconds
        for record in again:
            if len(record["runs"]) <= number and not (late and record["runs"]):
                record["runs"].append(run(record["words"])[0])
    for record in records:
        used = record["runs"]
        record["median"] = {of: median(one[of] for one in used) for of in used[0]}
    peers = [pair for pair in pairs if pair[0].gates is None]
    for command, record in pairs:
        if command.gates is not None:
            record["peers"] = {
                peer.name: against(record, theirs, command.gates if peer.equal else ())
                for peer, theirs in peers
            }
            record["short"] = [fault for one in record["peers"].values() for fault in one["short"]]
    return {"rows": comparison.rows, "commands": records}


def against(ours: Record, peer: Record, gates: Sequence[Gate]) -> Record:
    """Compare randsvm with a peer.

    short: the gates that randsvm fails. times: if there are none, the median of the peer's time
    divided by ours, round by round; a lower bound if the peer was ended. A peer that has fewer runs
    counts with its last one again.
    """
    both = ours["quality"].keys() & peer["quality"].keys()
    faults = [
        gate.fault(ours["quality"][gate.quality], peer["quality"][gate.quality])
        for gate in gates
        if gate.quality in both
    ]
    short = [f"{fault} of {peer['name']}" for fault in faults if fault]
    own, theirs = ([run["wall"] for run in one["runs"]] for one in (ours, peer))
    ratios = [theirs[min(place, len(theirs) - 1)] / seconds for place, seconds in enumerate(own)]
    return {"short": short, "ended": peer["ended"], "times": None if short else median(ratios)}


def run_works(
    works: Mapping[str, Callable[[], Comparison]], effort: Effort, into: Path, **metadata: object
) -> None:
    """Measure works, and write a file NAME.json for each to the folder `into`.

    works: name -> function that returns the comparison. metadata: further entries of the files. A
    work that cannot be run, and a peer that is not installed, are named.
    Raises ClickException at the end if a gate failed.
    """
    into.mkdir(parents=True, exist_ok=True)
    began, short = time.perf_counter(), list[str]()
    for number, (name, work) in enumerate(works.items()):
        if time.perf_counter() - began > effort.whole:
            click.echo(f"not run: {', '.join([*works][number:])}", err=True)
            break
        try:
            comparison = work()
            click.echo(f"{name}, {comparison.rows:,} rows", err=True)
            found = measure(comparison, effort)
        except click.ClickException as error:
            click.echo(f"skipped: {error.message}", err=True)
            continue
        for reason in dict.fromkeys(filter(None, (one.missing for one in comparison.commands))):
            click.echo(f"skipped: {reason}", err=True)
        found |= {"date": time.strftime("%Y-%m-%d"), "machine": machine(), **metadata}
        found |= {"load": os.getloadavg()[0], "effort": asdict(effort)}
        with files.create_output(str(into / f"{name}.json")) as stream:
            stream.write(f"{json.dumps(found, indent=1)}\n".encode())
        short += [fault for one in found["commands"] for fault in one.get("short", [])]
    if short:
        raise click.ClickException(f"ours was short in quality: {'; '.join(short)}")


def machine() -> str:
    """Return processor, cores, memory, system and Python in words."""
    try:
        names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        names = []
    memory = psutil.virtual_memory().total / 2**30
    parts = [*names[:1], f"{os.cpu_count()} cores", f"{memory:.0f} GB", platform.platform()]
    return ", ".join([*parts, f"Python {platform.python_version()}"])
