"""Draw certified gap and violators against time, for one or more --log files, to a PNG."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click


def iterations(log: str) -> list[dict[str, Any]]:
    """Return the iteration records of a log's last run; a kill may cut a line short."""
    records = []
    for line in Path(log).read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            records.append(json.loads(line))
    last = [record for record in records if record["run"] == records[-1]["run"]]
    return [record for record in last if record["event"] == "iteration"]


@click.command()
@click.argument("logs", nargs=-1, required=True)
@click.option("--output", default="convergence.png", show_default=True)
def main(logs: tuple[str, ...], output: str) -> None:
    """Plot the given LOGS, named by their file names."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (gaps, counts) = plt.subplots(2, 1, sharex=True, figsize=(8, 7))
    for log in logs:
        records = iterations(log)
        seconds = [r["seconds"] for r in records]
        style = {"marker": "o", "markersize": 3, "label": Path(log).stem}
        # A log axis cannot show what is zero, so such points are left out.
        gaps.plot(seconds, [r["gap"] or float("nan") for r in records], **style)
        counts.plot(seconds, [r["violators"] or float("nan") for r in records], **style)
    gaps.set(ylabel="relative gap of the best model", yscale="log")
    counts.set(ylabel="violators |V|", yscale="log", xlabel="seconds")
    for axes in (gaps, counts):
        axes.grid(which="both", alpha=0.3)
    gaps.legend()
    figure.tight_layout()
    figure.savefig(output, dpi=120)
    click.echo(output)


if __name__ == "__main__":
    main()
