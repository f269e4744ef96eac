"""randsvm-plot: pictures of training runs, searches and models, and a page about a training run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from randsvm import __version__, files
from randsvm.cli import options, process
from randsvm.cli.options import SETTINGS
from randsvm.errors import ParameterError

COMMAND = "randsvm-plot"
FORMATS = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
# First bytes of a picture, which another picture may replace.
BEGINNINGS = b"\x89PNG", b"<?xml", b"<svg", b"%PDF"
DOTS = 150  # of a PNG for each inch


def _output(name: str) -> Callable[..., Any]:
    return click.option(
        "-o",
        "--output",
        default=f"{name}.png",
        show_default=True,
        type=options.PATH,
        help="File to write: PNG, SVG or PDF by its suffix.",
    )


def _save(output: str, draw: Callable[[Any], Any]) -> None:
    """Draw a picture and write it. draw: returns a figure of the module that it is given."""
    suffix = Path(output).suffix.lower()
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise ParameterError(f"--output {output}: expected a name that ends in {known}")
    files.check_output(output, "a picture", lambda head: head.startswith(BEGINNINGS))
    from randsvm import plot

    figure = draw(plot)
    with files.create_output(output) as stream:
        plot.write(figure, stream, format=FORMATS[suffix], dpi=DOTS)
    click.echo(output)


@click.group(context_settings={**SETTINGS, "help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Draw training runs, searches and models (needs matplotlib and scikit-learn)."""


@main.command()
@click.argument("logs", nargs=-1, required=True, type=options.PATH, metavar="LOG...")
@_output("convergence")
def convergence(logs: tuple[str, ...], output: str) -> None:
    """Draw gap, P, D and violators against time.

    LOG is a file of randsvm-train --log, whose last run is drawn. For sgd the picture has the
    loss and the accuracy of each epoch.
    """
    _save(output, lambda plot: plot.convergence(*logs))


@main.command()
@click.argument("log", type=options.PATH)
@_output("path")
def path(log: str, output: str) -> None:
    """Draw the path over C of sgd --path.

    The picture has the features with a weight, and the scores of the training rows and of the
    cross-validation.
    """
    _save(output, lambda plot: plot.path(log))


@main.command()
@click.argument("log", type=options.PATH)
@click.option("--axes", help="One or two parameters, e.g. C,gamma.  [default: those that vary]")
@_output("search")
def search(log: str, axes: str | None, output: str) -> None:
    """Draw the scores of a search.

    Two parameters make a map, one makes a line."""
    _save(output, lambda plot: plot.search(log, axes and axes.split(",")))


@main.command()
@click.argument("data", type=options.PATH)
@click.argument("model", type=options.PATH)
@_output("scores")
def scores(data: str, model: str, output: str) -> None:
    """Draw the errors of a model on labelled rows.

    For classes: confusion matrix, ROC, precision and recall, decision values, calibration. For
    regression: residuals."""
    _save(output, lambda plot: plot.scores(data, model))


@main.command()
@click.argument("data", type=options.PATH)
@click.argument("model", type=options.PATH)
@click.option(
    "--features",
    nargs=2,
    type=int,
    help="Draw the plane of two features; all others are set to their mean.",
)
@_output("boundary")
def boundary(data: str, model: str, features: tuple[int, int] | None, output: str) -> None:
    """Draw decision values over the rows of DATA.

    The picture also has the margin and the support vectors. Rows of more than two features are
    drawn in the plane of their principal components.
    """
    _save(output, lambda plot: plot.boundary(data, model, features))


@main.command()
@click.argument("data", type=options.PATH)
@click.argument("model", type=options.PATH)
@click.option("--row", default=1, show_default=True, help="Number of the row, from 1.")
@click.option("--rows", default=100, show_default=True, help="Rows of the sample.")
@_output("explain")
def explain(data: str, model: str, row: int, rows: int, output: str) -> None:
    """Draw Shapley values of rows (kernel rbf).

    One chart has the values of one row, another one their mean sizes over a sample of rows."""
    _save(output, lambda plot: plot.explain(data, model, row, rows))


@main.command()
@click.argument("log", type=options.PATH)
@click.argument("model", type=options.PATH)
@click.argument("names", nargs=-1, required=True, type=options.PATH, metavar="[TEST_DATA] FILE")
def page(log: str, model: str, names: tuple[str, ...]) -> None:
    """Write one HTML page about a training run.

    FILE has all pictures of the last training run in LOG. The model is scored on TEST_DATA,
    labelled rows that it was not trained on."""
    if len(names) > 2:
        raise click.UsageError("expected LOG MODEL [TEST_DATA] FILE")
    from randsvm.page import training_page, write_page
    from randsvm.plot import read_log

    data = names[0] if len(names) == 2 else None
    files.check_distinct({"FILE": names[-1]}, {"LOG": log, "MODEL": model, "TEST_DATA": data})
    write_page(names[-1], training_page(read_log(log), model, data))
    click.echo(names[-1])


def run() -> None:
    process.run(main, COMMAND)


if __name__ == "__main__":
    run()
