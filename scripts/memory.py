"""Peak resident memory of whole processes on a large file, beside what is promised.

Promised: --memory + 16 bytes a row + 300 MB; for prediction, which has no --memory, 300 MB.
Writes results/memory.json and results/memory.md.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import click
from harness import machine, run
from quality import PREDICT, TRAIN
from sets import made, results_option
from tables import table

from randsvm import files

MEGABYTE = 1 << 20
BYTES_A_ROW = 16
BASE = 300
HEADER = ["command", "outcome", "seconds", "peak MB", "promised MB"]


def outcome(model: Path) -> str:
    """What the trailer of a model and its header say: support vectors, gap, why it ended."""
    said = dict(
        re.findall(r"^(?:# randsvm )?(total_sv|gap|stopped) (.+)$", model.read_text(), re.M)
    )
    parts = [f"{int(said['total_sv']):,} support vectors"] if "total_sv" in said else []
    parts += [f"gap {float(said['gap']):.1%}"] if "gap" in said else []
    return ", ".join([*parts, said["stopped"]])


def measure(
    title: str, words: Sequence[object], promised: float, model: Path | None = None
) -> dict[str, object]:
    """One process: seconds and peak MB beside the promise; model: what it is to write."""
    click.echo(title, err=True)
    used = run([str(word) for word in words])
    learnt = outcome(model) if model else ""
    return {"command": title, "outcome": learnt, "promised": promised, **used}


def markdown(found: dict) -> str:
    """The JSON record as a table."""
    rows = [
        [
            f"`{each['command']}`",
            each["outcome"],
            f"{each['wall']:.0f}",
            f"{each['peak']:.0f}",
            f"{each['promised']:.0f}",
        ]
        for each in found["commands"]
    ]
    title = f"# Memory: {found['rows']:,} rows, {found['bytes']:,} bytes of text"
    return "\n".join([title, "", found["machine"], "", *table(HEADER, rows)])


@click.command()
@click.option("--rows", default=10_000_000, show_default=True, help="Rows of twonorm.")
@click.option("--memory", default=512, show_default=True, help="--memory of training, in MB.")
@click.option("--time-limit", default="3m", show_default=True, help="Of randsvm and osuna, each.")
@results_option
def main(rows: int, memory: int, time_limit: str, results: Path) -> None:
    """Train with sgd, randsvm and osuna under --memory, predict; compare peaks with the promise.

    The spill file takes 96 bytes a row in TMPDIR. randsvm and osuna are not expected to reach
    their gap within the time limit: their memory is the question.
    """
    results.mkdir(parents=True, exist_ok=True)
    data = str(made("twonorm", rows, 0, results))
    promised = memory + BYTES_A_ROW * rows / MEGABYTE + BASE
    rounds = ["-g", "0.05", "--gap", "0.01", "--time-limit", time_limit]
    models = {name: results / f"memory.{name}.model" for name in ("sgd", "randsvm", "osuna")}
    found = {
        "machine": machine(),
        "rows": rows,
        "bytes": Path(data).stat().st_size,
        "commands": [],
    }
    for name, model in models.items():
        words = [name, *([] if name == "sgd" else rounds), "--memory", f"{memory}M"]
        title = f"randsvm-train {shlex.join(words)}"
        record = measure(title, [TRAIN, *words, data, model], promised, model)
        found["commands"].append(record)
    for name in ("sgd", "randsvm"):
        title = f"randsvm-predict, all rows, model of {name}"
        record = measure(title, [PREDICT, data, models[name], "/dev/null"], BASE)
        found["commands"].append(record)
    for suffix, text in ((".json", json.dumps(found, indent=1)), (".md", markdown(found))):
        with files.create_output(str(results / f"memory{suffix}")) as stream:
            stream.write(f"{text}\n".encode())
    click.echo(markdown(found))
    above = [each["command"] for each in found["commands"] if each["peak"] > each["promised"]]
    if above:
        raise click.ClickException(f"more than promised: {'; '.join(above)}")


if __name__ == "__main__":
    main()
