"""Compare whole processes, ours and its peers in turn: quality first, then time and memory.

Finds and makes the data, writes JSON and Markdown. Knows no algorithm: bench.py says what runs.
Imports little, because a child's peak memory is never seen below that of the process it began in.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from randsvm import files

HERE = Path(__file__).resolve().parent
REAL_DATA = HERE.parents[1] / "shared/data"
PEAK_UNIT = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss, in a megabyte
SHOWN = 500  # bytes of what a failed process said

data_option = click.option(
    "--data",
    envvar="RANDSVM_DATA",
    default=REAL_DATA,
    type=click.Path(path_type=Path),
    help="Folder of the real sets.  [default: RANDSVM_DATA, else ../shared/data]",
)


# ---- data -------------------------------------------------------------------------------------


class MissingError(click.ClickException):
    """A set that is not there."""


def find(folder: Path, name: str) -> Path:
    """The set `name` in `folder`, plain or .xz. Raises MissingError."""
    for path in (folder / name, folder / f"{name}.xz"):
        if path.exists():
            return path
    raise MissingError(f"{name}: neither it nor {name}.xz is in {folder} (--data, RANDSVM_DATA)")


def plain(source: Path, into: Path) -> Path:
    """`source`, decompressed to the folder `into` where it is .xz: peers know no xz."""
    if source.suffix != ".xz":
        return source
    target = into / source.stem
    if _outdated(target, source):
        with files.open_input(str(source)) as packed, files.create_output(str(target)) as text:
            shutil.copyfileobj(packed, text)
    return target


def made(name: str, rows: int, seed: int, into: Path) -> Path:
    """A set of make_data.py in the folder `into`."""
    maker, target = HERE / "make_data.py", into / f"{name}.{rows}.{seed}"
    if _outdated(target, maker):
        click.echo(f"making {target}", err=True)
        output(sys.executable, maker, name, target, "--rows", rows, "--seed", seed)
    return target


def _outdated(target: Path, source: Path) -> bool:
    return not target.exists() or target.stat().st_mtime < source.stat().st_mtime


# ---- processes --------------------------------------------------------------------------------


def run(words: Sequence[str]) -> dict[str, float]:
    """Seconds and peak resident MB of one process, as the system tells; its output is dropped."""
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            tail = said.read()[-SHOWN:].decode(errors="replace")
            raise click.ClickException(f"{shlex.join(words)}: exit {process.returncode}\n{tail}")
    return {
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss / PEAK_UNIT,
    }


def output(*words: object) -> str:
    """What a process that nobody measures writes to standard output."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise click.ClickException(f"{shlex.join(done.args)}: exit {done.returncode}")
    return done.stdout


# ---- comparisons ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A program and its arguments. quality: what it made is worth, asked once it ran.
    missing: why it cannot be run, where it cannot."""

    name: str
    words: Sequence[str]
    quality: Callable[[], dict[str, float]]
    missing: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Commands for one piece of work, ours first. allowed: quality -> how far ours may be below
    a peer's for time to be compared."""

    name: str
    commands: Sequence[Command]
    allowed: dict[str, float]


def measure(comparison: Comparison, runs: int) -> dict:
    """A B A B ... after one uncounted run of each, whose quality is taken."""
    present = [command for command in comparison.commands if not command.missing]
    measured = []
    for command in present:
        run(command.words)
        measured.append({"name": command.name, "words": command.words, "runs": []})
        measured[-1]["quality"] = command.quality()
    for _ in range(runs):
        for command, record in zip(present, measured, strict=True):
            record["runs"].append(run(command.words))
    for record in measured:
        for name, statistic in (("best", min), ("median", median)):
            record[name] = {of: statistic(_all(record, of)) for of in ("wall", "cpu", "peak")}
    for peer in measured[1:]:
        peer |= against(measured[0], peer, comparison.allowed)
    return {"name": comparison.name, "allowed": comparison.allowed, "commands": measured}


def against(ours: dict, peer: dict, allowed: dict[str, float]) -> dict:
    """Where ours is short in quality; if nowhere, how many times the time of ours the peer took."""
    short = [
        f"{name} {ours['quality'][name]:g}, more than {less:g} below {peer['quality'][name]:g}"
        for name, less in allowed.items()
        if not ours["quality"][name] >= peer["quality"][name] - less
    ]
    if short:
        return {"short": short, "times": None}
    pairs = [b / a for a, b in zip(_all(ours, "wall"), _all(peer, "wall"), strict=True)]
    best = peer["best"]["wall"] / ours["best"]["wall"]
    return {"short": [], "times": {"best": best, "median": median(pairs), "pairs": pairs}}


def _short(record: dict) -> list[str]:
    return record.get("short", [])


def _all(record: dict, of: str) -> list[float]:
    return [each[of] for each in record["runs"]]


def compare(
    title: str, comparisons: Sequence[Comparison], skipped: Sequence[str], runs: int, into: Path
) -> None:
    """Measure, and write TITLE.json and TITLE.md to the folder `into` after each comparison.

    skipped: what could not become a comparison. Raises ClickException at the end where ours was
    short in quality.
    """
    missing = {command.missing for each in comparisons for command in each.commands}
    found = {
        "title": title,
        "machine": f"{os.cpu_count()} cores, {platform.platform()}, Python "
        f"{platform.python_version()}",
        "load": [os.getloadavg()[0]],
        "unseen": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / PEAK_UNIT,
        "skipped": [*skipped, *sorted(missing - {None})],
        "comparisons": [],
    }
    for comparison in comparisons:
        click.echo(f"{comparison.name}: 1 + {runs} runs of each", err=True)
        found["comparisons"].append(measure(comparison, runs))
        found["load"].append(os.getloadavg()[0])
        for suffix, text in ((".json", json.dumps(found, indent=1)), (".md", markdown(found))):
            with files.create_output(str(into / f"{title}{suffix}")) as stream:
                stream.write(f"{text}\n".encode())
    click.echo(markdown(found))
    short = [each["name"] for each in found["comparisons"] if any(map(_short, each["commands"]))]
    if short:
        raise click.ClickException(f"ours was short in quality: {', '.join(short)}")


# ---- tables -----------------------------------------------------------------------------------

HEADER = ["work", "command", "quality", "best", "median", "CPU", "peak", "slower than ours"]


def markdown(found: dict) -> str:
    """The JSON record as a table."""
    rows = [
        row([comparison["name"], *cells(record)])
        for comparison in found["comparisons"]
        for record in comparison["commands"]
    ]
    return "\n".join(
        [
            f"# {found['title']}",
            "",
            f"{found['machine']}; load {' '.join(f'{load:.1f}' for load in found['load'])}. Whole "
            "processes in turn: best and median wall seconds, medians of user + system seconds and "
            f"of peak resident MB (never seen below {found['unseen']:.0f}). Slower than ours: best "
            "to best; median, least and most of the pairs.",
            "",
            row(HEADER),
            row(["---"] * len(HEADER)),
            *rows,
            *(f"\nSkipped: {what}" for what in found["skipped"]),
        ]
    )


def cells(record: dict) -> list[str]:
    best, middle = record["best"], record["median"]
    slower = "; ".join(_short(record))
    if times := record.get("times"):
        pairs = times["pairs"]
        slower = f"{times['best']:.2f}; {times['median']:.2f} ({min(pairs):.2f}-{max(pairs):.2f})"
    return [
        record["name"],
        ", ".join(f"{name} {value:.6g}" for name, value in record["quality"].items()),
        *(f"{seconds:.3f}" for seconds in (best["wall"], middle["wall"], middle["cpu"])),
        f"{middle['peak']:.0f}",
        slower,
    ]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
