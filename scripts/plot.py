"""Draw pictures: the gap against time, a boundary, a search, importances, probabilities.

    python scripts/plot.py convergence LOG... --output convergence.png
    python scripts/plot.py boundary DATA MODEL --output boundary.png
    python scripts/plot.py search LOG --output search.png
    python scripts/plot.py importance REPORT --output importance.png
    python scripts/plot.py reliability REPORT... --output reliability.png

They need matplotlib (extra plot). The growth with the rows is a picture of the benchmarks, which
`make results` draws in the same style.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np

from randsvm.api import FittedModel, load
from randsvm.cli.log import read_trials

# A record of a log.
Record: TypeAlias = "dict[str, Any]"
LEVELS = 12  # of the contour of a search
POINTS = 200  # of a side of the grid on which a machine is evaluated
MARGIN = 0.05  # around the rows, as a share of their range
DPI = 80


# ---- style ------------------------------------------------------------------------------------


def new_figure(
    rows: int = 1, columns: int = 1, width: float = 6.0, height: float = 4.5
) -> tuple[Any, Any]:
    """Return a figure and the array of its axes. Sizes of an axis are in inches."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise click.ClickException("pictures need matplotlib: pip install matplotlib") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    size = (width * columns, height * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axis in axes.flat:
        axis.grid(which="major", alpha=0.3)
    return figure, axes


def add_legend(axis: Any) -> None:
    """Add a legend below the axis, where it hides no point."""
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16)}
    axis.legend(fontsize="x-small", ncols=2, frameon=False, **below)


def save(figure: Any, path: str | Path, **metadata: str) -> None:
    """Write the figure and print its name."""
    figure.tight_layout()
    figure.savefig(path, dpi=DPI, metadata=metadata, pil_kwargs={"optimize": True})
    click.echo(path)


def output_option(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--output", default=default, show_default=True, help="Picture to write.")


@click.group()
def main() -> None:
    """Draw pictures of trainings and models."""


# ---- convergence ------------------------------------------------------------------------------


def iterations(log: str) -> list[Record]:
    """Return the iteration records of the last run of a log.

    A line that a kill cut short is left out.
    """
    records = []
    for line in Path(log).read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            records.append(json.loads(line))
    last = [record for record in records if record["run"] == records[-1]["run"]]
    return [record for record in last if record["event"] == "iteration"]


@main.command()
@click.argument("logs", nargs=-1, required=True)
@output_option("convergence.png")
def convergence(logs: tuple[str, ...], output: str) -> None:
    """Draw the gap and the violators of LOGS (of --log) against time."""
    figure, axes = new_figure(1, 2, height=3.5)
    gaps, counts = axes.flat
    for log in logs:
        records = iterations(log)
        if not records:
            raise click.ClickException(f"{log}: its last run has no round")
        seconds = [record["seconds"] for record in records]
        style = {"marker": "o", "markersize": 3, "label": Path(log).stem}
        # A logarithmic axis has no 0: such points are left out.
        gaps.plot(seconds, [record["gap"] or math.nan for record in records], **style)
        counts.plot(seconds, [record["violators"] or math.nan for record in records], **style)
    gaps.set(xlabel="seconds", ylabel="relative gap of the best model", yscale="log")
    counts.set(xlabel="seconds", ylabel="violators", yscale="log")
    add_legend(gaps)
    add_legend(counts)
    save(figure, output)


# ---- decision boundary ------------------------------------------------------------------------


@main.command()
@click.argument("data")
@click.argument("model")
@output_option("boundary.png")
def boundary(data: str, model: str, output: str) -> None:
    """Draw MODEL over the rows of DATA, two classes of two features.

    The lines are f = 0, and the margin, f = 1 and f = -1. Circles are the support vectors.
    """
    X, labels = read_rows(data)
    fitted = load(model)
    names = [str(label) for label in fitted.model.labels]
    if X.shape[1] != 2 or len(names) != 2:
        raise click.ClickException(f"{data}: expected two features and two classes")
    figure, axes = new_figure(width=5.0)
    axis = axes[0, 0]
    pad = MARGIN * np.ptp(X, axis=0)
    sides = [
        np.linspace(low, high, POINTS)
        for low, high in zip(X.min(axis=0) - pad, X.max(axis=0) + pad, strict=True)
    ]
    grid = np.column_stack([side.ravel() for side in np.meshgrid(*sides)])
    f = fitted.decision_function(grid).reshape(POINTS, POINTS)
    shades = axis.contourf(*sides, f, LEVELS, cmap="RdBu_r", alpha=0.5)
    figure.colorbar(shades, label="decision value f")
    axis.contour(*sides, f, [-1, 0, 1], colors="black", linestyles=["dashed", "solid", "dashed"])
    # f > 0 predicts the first label of the model.
    for label, style in zip(names, ({"color": "tab:red"}, {"color": "tab:blue"}), strict=True):
        chosen = X[labels == label]
        axis.plot(*chosen.T, "o", markersize=2, label=f"{label}: {len(chosen):,} rows", **style)
    Z = support_vectors(fitted)
    circles: dict[str, Any] = {"facecolors": "none", "edgecolors": "black", "linewidths": 0.7}
    axis.scatter(*Z.T, s=24, label=f"{len(Z):,} support vectors", **circles)
    axis.set(xlabel="feature 1", ylabel="feature 2")
    add_legend(axis)
    save(figure, output)


def read_rows(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and the labels of the rows of an svmlight file."""
    rows = [line.split() for line in Path(data).read_text().splitlines() if line.strip()]
    pairs = [[word.split(":") for word in words[1:]] for words in rows]
    X = np.zeros((len(rows), max((int(index) for row in pairs for index, _ in row), default=0)))
    for number, row in enumerate(pairs):
        for index, value in row:
            X[number, int(index) - 1] = float(value)
    return X, np.array([words[0] for words in rows])


def support_vectors(fitted: FittedModel) -> np.ndarray:
    """Return the support vectors of a model of two features as a dense array."""
    model: Any = fitted.model
    Z = np.zeros((model.Z.shape[0], 2))
    Z[:, np.asarray(model.features) - 1] = model.Z.toarray()
    return Z


# ---- search -----------------------------------------------------------------------------------


def trials_of_last_search(records: list[Record]) -> list[Record]:
    """Return the records with the data and the parameters of the last record."""
    last = records[-1]
    found = {
        (record["rows"], *record["values"].values()): record
        for record in records
        if record["digest"] == last["digest"] and record["values"].keys() == last["values"].keys()
    }
    finished = [one for one in found.values() if one.get("interrupted_after") is None]
    return finished or list(found.values())


def on_equal_rows(records: list[Record]) -> list[Record]:
    """Return the records of searches on the most common number of rows.

    Under a time limit only the best combinations are tried on more rows. A combination that was
    dropped after some folds has a score of their rows only.
    """
    every = [rows_of_all_folds(record, records) for record in records]
    (rows, _), *_ = Counter(sorted(every, reverse=True)).most_common(1)
    return [record for record, own in zip(records, every, strict=True) if own == rows]


def rows_of_all_folds(record: Record, records: list[Record]) -> int:
    """Return the rows of all folds of a combination, also if it was dropped after some of them."""
    own = int(record["rows"])
    if record.get("dropped_after") is None:
        return own
    wholes = [one for one in records if one.get("dropped_after") is None]
    folds = len(record["scores"])
    near = [abs(one["rows"] * folds / len(one["scores"]) - own) for one in wholes]
    return int(wholes[near.index(min(near))]["rows"]) if wholes else own


def best_of(records: list[Record]) -> Record:
    """Return the best record of those with the most rows."""
    name = records[0]["score_name"]
    sign = -1 if name.endswith(("error", "loss")) else 1
    return max(records, key=lambda record: (record["rows"], sign * record["score"]))


@main.command()
@click.argument("log")
@click.option("--axes", help="Two parameters, as C,gamma.  [default: the first two that vary]")
@output_option("search.png")
def search(log: str, axes: str | None, output: str) -> None:
    """Draw the scores of the last search in LOG: a contour, or a line for one parameter.

    Of more than two parameters it shows the two of --axes, at the best values of the others.
    """
    found = read_trials(log)
    if not found:
        raise click.ClickException(f"{log}: no combination of a grid search is in it")
    records = trials_of_last_search(list(found))
    best = best_of(records)
    varying = [name for name in best["values"] if len({r["values"][name] for r in records}) > 1]
    chosen = (axes.split(",") if axes else varying)[:2]
    unknown = [name for name in chosen if name not in best["values"]]
    if unknown or not chosen:
        raise click.ClickException(f"{log}: {', '.join(best['values'])} vary, not {axes}")
    others = [name for name in varying if name not in chosen]
    equal = on_equal_rows(records)
    through = best_of(equal)["values"]
    shown = [r for r in equal if all(r["values"][o] == through[o] for o in others)]
    draw_search(shown, best, chosen, output)


def draw_search(records: list[Record], best: Record, axes: list[str], output: str) -> None:
    figure, plots = new_figure()
    plot = plots[0, 0]
    if len(axes) == 1:
        points = sorted((record["values"][axes[0]], record["score"]) for record in records)
        plot.plot(*zip(*points, strict=True), marker="o")
        plot.set(ylabel=best["score_name"])
    else:
        draw_contour(figure, plot, records, axes, best["score_name"])
        plot.set(ylabel=axes[1])
        plot.set_yscale("log", base=2)
    plot.set(xlabel=axes[0])
    plot.set_xscale("log", base=2)
    plot.plot(*[best["values"][name] for name in axes], *[best["score"]] * (len(axes) == 1), "r*")
    values = ", ".join(f"{name} = {value:g}" for name, value in best["values"].items())
    plot.set_title(f"best {best['score_name']} {best['score']:.6g} at {values}", fontsize=10)
    save(figure, output)


def draw_contour(
    figure: Any, plot: Any, records: list[Record], axes: list[str], score_name: str
) -> None:
    """Draw lines of equal score. Combinations that were not tried stay white."""
    x, y = (sorted({record["values"][name] for record in records}) for name in axes)
    score = {tuple(record["values"][name] for name in axes): record["score"] for record in records}
    grid = [[score.get((a, b), math.nan) for a in x] for b in y]
    if min(len(x), len(y)) > 1:
        filled = plot.contourf(x, y, grid, LEVELS, cmap="viridis")
        plot.contour(x, y, grid, LEVELS, colors="black", linewidths=0.5)
        figure.colorbar(filled, label=score_name)
    places = [(a, b) for b in y for a in x if (a, b) in score]
    plot.plot(*zip(*places, strict=True), "k.", markersize=3)


# ---- importance -------------------------------------------------------------------------------

MAX_BARS = 25


@main.command()
@click.argument("report")
@output_option("importance.png")
def importance(report: str, output: str) -> None:
    """Draw the features of REPORT, which `randsvm-predict --importance --report json` prints."""
    record: Record = {}
    with contextlib.suppress(json.JSONDecodeError):
        record = json.loads(Path(report).read_text())
    if not isinstance(record, dict) or record.get("event") != "importances":
        raise click.ClickException(f"{report}: expected a report of --importance")
    features = record["features"][:MAX_BARS]
    figure, axes = new_figure(height=1 + 0.25 * len(features))
    axis = axes[0, 0]
    names = [str(one.get("column") or one["feature"]) for one in features]
    errors = [one["standard_error"] or 0.0 for one in features]
    axis.barh(names, [one["importance"] for one in features], xerr=errors)
    axis.invert_yaxis()
    axis.set(xlabel=f"effect of shuffling on {record['score_name']}", ylabel="feature")
    save(figure, output)


# ---- reliability ------------------------------------------------------------------------------


def probability_scores(report: str) -> Record:
    """Return the scores of the probabilities in a report of randsvm-predict."""
    try:
        found: Record = json.loads(Path(report).read_text())["metrics"]["probabilities"]
        if found and any(one["weight"] for one in found["reliability"]):
            return found
    except (json.JSONDecodeError, KeyError, TypeError):
        pass
    raise click.ClickException(
        f"{report}: expected what randsvm-predict -b 1 --metrics --report json writes"
    )


@main.command()
@click.argument("reports", nargs=-1, required=True)
@output_option("reliability.png")
def reliability(reports: tuple[str, ...], output: str) -> None:
    """Draw how often the predicted class of REPORTS is right, by its probability.

    REPORTS are files of randsvm-predict -b 1 --metrics --report json --report-file REPORT. Points
    on the diagonal are of calibrated probabilities. The bars below are shares of the rows.
    """
    figure, axes = new_figure(2, 1, height=3.5)
    curves, shares = axes.flat
    lowest = 1.0
    for number, report in enumerate(reports):
        found = probability_scores(report)
        bins = [one for one in found["reliability"] if one["weight"]]
        total = sum(one["weight"] for one in bins)
        name = f"{Path(report).stem}: ECE {found['calibration_error']:.4f}"
        points = [(one["probability"], one["accuracy"]) for one in bins]
        curves.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
        width = (bins[0]["up_to"] - bins[0]["above"]) / (len(reports) + 1)
        left = [one["above"] + width * (number + 0.5) for one in bins]
        shares.bar(left, [one["weight"] / total for one in bins], width, align="edge")
        lowest = min(lowest, bins[0]["above"])
    curves.plot([lowest, 1], [lowest, 1], color="black", linestyle="dashed", linewidth=0.8)
    curves.set(ylabel="share of right labels", xlim=(lowest, 1))
    shares.set(xlabel="probability of the predicted class", ylabel="share of the rows")
    shares.set_xlim(lowest, 1)
    add_legend(curves)
    save(figure, output)


if __name__ == "__main__":
    main()
