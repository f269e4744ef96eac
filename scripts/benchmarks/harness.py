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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import median

import click
import psutil

from benchmarks.tables import Record, markdown
from randsvm import files

PEAK_UNIT = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss, in a megabyte
NOISE = 0.05  # seconds by which two starts differ
SHOWN = 500  # bytes of the error output of a failed process that are shown
SPAWN = [sys.executable, "-IS", str(Path(__file__).with_name("spawn.py"))]

# Numbers of the process's own: what it measures around the work alone, without its start, and of
# a library around the training, without reading.
CLOCK, FIT = (re.compile(rb"^%s ([0-9.e+-]+)$" % name, re.M) for name in (b"seconds", b"fit"))


# ---- processes --------------------------------------------------------------------------------


def run(words: Sequence[str], most: float = inf) -> tuple[dict[str, float], bool]:
    """Seconds and peak resident MB of one process, as spawn.py tells; whether it was ended.

    wall: the seconds that the process says it took where it prints `seconds S`, else all of them.
    fit: where it prints `fit S`. floor: MB that a process is seen to have at the least: a peak that
    is not above it is an upper bound. most: seconds after which it is ended; then all numbers are
    those at its end. Raises ClickException when it fails.
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


def beyond_start(ours: float, peer: float, start: float) -> float:
    """Seconds that ours took longer than a peer and the start of ours, 0 where that is noise."""
    longer = ours - peer - start
    return longer if longer > NOISE else 0.0


# ---- what is to be reached --------------------------------------------------------------------


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
        """What is wrong, in words. Conditions are written so that nan is wrong too."""
        unit = abs(theirs) if self.relative else 1
        if theirs - self.below * unit <= ours <= theirs + self.above * unit:
            return None
        return f"{self.quality} {ours:.6g} against {theirs:.6g}"


@dataclass(frozen=True)
class Goal:
    """What a command of ours is to reach; one without conditions is only reported.

    times: peer -> as many times faster. fit: the same of our whole process and the peer's training
    alone. seconds, peak (MB): at most. most: quality -> at most. near: quality -> share that it may
    be above the lowest of all. start: peer -> a command whose seconds ours may take longer than the
    peer. gates: hold against every peer. A peer that is not there is not compared with.
    """

    gates: tuple[Gate, ...] = ()
    times: dict[str, float] = field(default_factory=dict)
    fit: dict[str, float] = field(default_factory=dict)
    seconds: float = inf
    peak: float = inf
    most: dict[str, float] = field(default_factory=dict)
    near: dict[str, float] = field(default_factory=dict)
    start: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{times:g} times {name}" for name, times in self.times.items()]
        parts += [f"{times:g} times {name}'s fit alone" for name, times in self.fit.items()]
        parts += [f"{self.seconds:g} s"] if self.seconds < inf else []
        parts += [f"{self.peak:.0f} MB"] if self.peak < inf else []
        parts += [f"{name} <= {value:g}" for name, value in self.most.items()]
        parts += [f"{name} within {share:.0%} of the lowest" for name, share in self.near.items()]
        parts += [f"the time of {name} and of {start}" for name, start in self.start.items()]
        return ", ".join(parts)

    def within(self, there: Collection[str], fits: Collection[str]) -> Goal:
        """Without what is to be compared with others than the peers `there`, or with fits that no
        peer told."""
        kept = [
            {name: times for name, times in goal.items() if name in names}
            for goal, names in ((self.times, there), (self.fit, fits))
        ]
        start = {name: own for name, own in self.start.items() if {name, own} <= set(there)}
        return replace(self, times=kept[0], fit=kept[1], start=start)

    def missed(self, record: Record, lowest: dict[str, float]) -> list[str]:
        """What `record` does not reach, in words. lowest: of each quality, among the peers."""
        quality, typical = record["quality"], record["median"]
        faults = [
            *self._slow(record["peers"]),
            *self._late(typical["wall"], record["peers"]),
            "seconds" * (typical["wall"] > self.seconds),
            "memory" * (typical["peak"] > self.peak),
            *(name for name, most in self.most.items() if not quality.get(name, inf) <= most),
            *(
                f"{name} {quality[name] / lowest[name] - 1:.1%} above"
                for name, share in self.near.items()
                if name in lowest and not quality[name] <= (1 + share) * lowest[name]
            ),
        ]
        return [fault for fault in faults if fault]

    def _slow(self, peers: dict[str, Record]) -> Iterable[str]:
        """Ratios that are below what is to be reached; of a peer that was ended the lower bound."""
        for of in ("times", "fit"):
            for name, times in getattr(self, of).items():
                ratio = peers[name][of]
                if not (ratio and ratio["median"] >= times):
                    yield f"{of} {name}{', which was ended' if ratio and ratio['ended'] else ''}"

    def _late(self, seconds: float, peers: dict[str, Record]) -> Iterable[str]:
        """By how many seconds ours took longer than a peer and the start of ours."""
        for name, start in self.start.items():
            others = (peers[of]["seconds"] for of in (name, start))
            if longer := beyond_start(seconds, *others):
                yield f"{longer:.2g} s longer than {name} and {start}"


@dataclass(frozen=True)
class Command:
    """A program and its arguments.

    quality: what it made is worth, asked once it ran. missing: why it cannot be run, where it
    cannot. goal: of a command of ours; None for what others stand beside. own: whether it is ours,
    which is never ended. timed: False for a peer whose quality alone is wanted. once: for a peer
    that is run but once, however short that is. equal: False for a peer that is given less, a part
    of the rows or a looser tolerance: no gate holds against what chance made of its accuracy.
    """

    name: str
    words: Sequence[str]
    quality: Callable[[], dict[str, float]] = dict
    missing: str | None = None
    goal: Goal | None = None
    timed: bool = True
    once: bool = False
    equal: bool = True
    own: bool = False


@dataclass(frozen=True)
class Comparison:
    """Commands for one piece of work, on so many rows; in so many rounds at the most."""

    name: str
    rows: int
    commands: Sequence[Command]
    rounds: float = inf


@dataclass(frozen=True)
class Effort:
    """How often and how long commands run.

    rounds: of runs that are counted. seconds: after which a comparison begins no other round.
    long: of a command's first run from which on that counts as well, as nothing that it warms up is
    felt. once, own_once: from which on a peer, or ours, is run but once. most: after which a peer
    is ended. whole: after which no comparison begins.
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
    """A B A B ... after one round, which gives the quality and counts only where it was long.

    ended: whether a peer took longer than it may; what it made, and is worth, is unknown then.
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
        used, ended = run(command.words, inf if command.goal or command.own else effort.most)
        record |= {"runs": [used], "ended": ended, "quality": {} if ended else command.quality()}
        once = effort.own_once if command.goal else effort.once
        if command.timed and not command.once and not ended and used["wall"] < once:
            again.append(record)
            if used["wall"] < effort.long:
                record["runs"] = []
    for number in range(rounds):
        late = time.perf_counter() - began > effort.seconds
        for record in again:
            if len(record["runs"]) <= number and not (late and record["runs"]):
                record["runs"].append(run(record["words"])[0])
    for record in records:
        for name, statistic in (("best", min), ("median", median)):
            record[name] = {of: statistic(_all(record, of)) for of in record["runs"][0]}
    peers = [pair for pair in pairs if pair[0].goal is None]
    for command, record in pairs:
        if command.goal:
            _judge(command.goal, record, peers)
    return {"name": comparison.name, "rows": comparison.rows, "commands": records}


def _judge(goal: Goal, record: Record, peers: Sequence[tuple[Command, Record]]) -> None:
    """Add to our record how it stands against each peer, its goal and what of that is missed."""
    record["peers"] = {
        peer.name: against(record, theirs, goal.gates if peer.equal else (), peer.timed)
        for peer, theirs in peers
    }
    record["short"] = [fault for found in record["peers"].values() for fault in found["short"]]
    fits = [theirs["name"] for _, theirs in peers if "fit" in theirs["best"]]
    goal = goal.within(record["peers"].keys(), fits)
    record |= {"goal": str(goal), "missed": None}
    if str(goal):
        worth = [theirs["quality"] for _, theirs in peers]
        lowest = {
            name: min(quality[name] for quality in worth if name in quality)
            for name in goal.near
            if any(name in quality for quality in worth)
        }
        record["missed"] = goal.missed(record, lowest)


def against(ours: Record, peer: Record, gates: Sequence[Gate], timed: bool = True) -> Record:
    """Where ours is short in quality; if nowhere, how many times the time of ours the peer took,
    and its training alone, where it says that."""
    both = ours["quality"].keys() & peer["quality"].keys()
    faults = [
        gate.fault(ours["quality"][gate.quality], peer["quality"][gate.quality])
        for gate in gates
        if gate.quality in both
    ]
    short = [f"{fault} of {peer['name']}" for fault in faults if fault]
    compared = timed and not short
    return {
        "short": short,
        "seconds": peer["median"]["wall"],
        "times": _ratios(ours, peer, "wall") if compared else None,
        "fit": _ratios(ours, peer, "fit") if compared and "fit" in peer["best"] else None,
    }


def _ratios(ours: Record, peer: Record, of: str) -> Record:
    """Of runs of one round; a peer that ran less often stands against all of ours with its last.
    ended: the peer was, so these are lower bounds."""
    own, theirs = _all(ours, "wall"), _all(peer, of)
    pairs = [theirs[min(place, len(theirs) - 1)] / a for place, a in enumerate(own)]
    ratios = {"best": min(theirs) / min(own), "median": median(pairs), "pairs": pairs}
    return ratios | {"ended": peer["ended"]}


def _all(record: Record, of: str) -> list[float]:
    return [each[of] for each in record["runs"]]


def compare(
    title: str,
    works: Mapping[str, Callable[[], Comparison]],
    effort: Effort,
    into: Path,
    sections: Callable[[Record], list[str]] = lambda found: [],
    again: bool = False,
    **metadata: object,
) -> None:
    """Measure, and write TITLE.json and TITLE.md to the folder `into` after each comparison.

    works: name -> what makes the comparison; one that cannot be made or fails is named among the
    skipped, one that was not begun among those not run. sections: lines of Markdown below the
    table. again: whether these replace works of the last run, whose others are kept. facts: what
    the JSON says besides. Raises ClickException at the end where ours was short in quality.
    """
    began = time.perf_counter()
    found: Record = {
        "title": title,
        "machine": machine(),
        "load": [os.getloadavg()[0]],
        "effort": asdict(effort),
        **metadata,
        "seconds": 0.0,
        "not_run": list(works),
        "skipped": [],
        "comparisons": [],
        "again": [],
    }
    if again:
        before = json.loads((into / f"{title}.json").read_text())
        kept = ("comparisons", "skipped", "load", "again")
        found |= {of: before[of] for of in (*kept, "not_run", "seconds") if of in before}
    into.mkdir(parents=True, exist_ok=True)
    earlier = found["seconds"]
    for name, work in works.items():
        if found["seconds"] - earlier > effort.whole:
            break
        _add(found, name, work, effort)
        found["again"] += [name] if again and name not in found["again"] else []
        found["seconds"] = earlier + time.perf_counter() - began
        text = "\n".join([*markdown(found), *sections(found)])
        for suffix, content in ((".json", json.dumps(found, indent=1)), (".md", text)):
            with files.create_output(str(into / f"{title}{suffix}")) as stream:
                stream.write(f"{content}\n".encode())
    click.echo(text)
    ours = [record for each in found["comparisons"] for record in each["commands"]]
    if short := [fault for record in ours for fault in record.get("short", [])]:
        raise click.ClickException(f"ours was short in quality: {'; '.join(short)}")


def _add(found: Record, name: str, work: Callable[[], Comparison], effort: Effort) -> None:
    """What one work gave, and the seconds of all of it: sets, runs, qualities."""
    began = time.perf_counter()
    try:
        comparison = work()
        click.echo(f"{name}: {comparison.name}, {comparison.rows:,} rows", err=True)
        measured = measure(comparison, effort)
        measured["seconds"] = time.perf_counter() - began
        _put(found["comparisons"], measured)
        _skip(found, [command.missing for command in comparison.commands])
    except click.ClickException as error:
        _skip(found, [error.message])
    found["not_run"] = [other for other in found["not_run"] if other != name]
    found["load"].append(os.getloadavg()[0])


def _put(comparisons: list[Record], measured: Record) -> None:
    """In the place of the same work, if it ran before."""
    for place, each in enumerate(comparisons):
        if (each["name"], each["rows"]) == (measured["name"], measured["rows"]):
            comparisons[place] = measured
            return
    comparisons.append(measured)


def machine() -> str:
    """Return processor, cores, memory, system and Python in words."""
    try:
        names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        names = []
    memory = psutil.virtual_memory().total / 2**30
    parts = [*names[:1], f"{os.cpu_count()} cores", f"{memory:.0f} GB", platform.platform()]
    return ", ".join([*parts, f"Python {platform.python_version()}"])


def _skip(found: Record, reasons: Iterable[str | None]) -> None:
    for reason in reasons:
        if reason and reason not in found["skipped"]:
            click.echo(f"skipped: {reason}", err=True)
            found["skipped"].append(reason)
