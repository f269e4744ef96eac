"""randsvm-train: one subcommand per algorithm; each body parses, calls once, reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from randsvm import __version__
from randsvm.cli import door, options
from randsvm.cli.log import tried
from randsvm.cli.options import Command
from randsvm.cli.report import Report
from randsvm.errors import ParameterError
from randsvm.files import STANDARD, check_apart
from randsvm.parameters.rounds import OsunaParams, RandsvmParams, StopParams
from randsvm.parameters.run import Limits, Resources, Run, Search
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params

COMMAND = "randsvm-train"


@click.group(context_settings={"max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s")
def train() -> None:
    """Train a support vector machine on an svmlight file too large or too noisy for LIBSVM alone.

    Model files are LIBSVM's and LIBLINEAR's text formats: their own programs read them.
    """


def files(command: Command) -> Command:
    command = click.argument("model_file", required=False)(command)
    return click.argument("train_file")(command)


@train.command(cls=options.LibsvmStyle, short_help="Random sampling of violators (KBH07).")
@files
@options.parameters(Params, RandsvmParams)
@options.rounds
@options.common
def randsvm(**given: Any) -> None:
    """Train by random sampling of violators (Kumar, Bhattacharyya, Hariharan, NIPS 2007).

    Solves a random subset of TRAIN_FILE with LIBSVM, scans the whole file for rows that violate
    the KKT conditions, solves support vectors + random violators, until no violator is left or
    there are k support vectors. With --gap it goes on until that gap is certified, over working
    sets of one size, with all other coefficients frozen wherever they stand.

    TRAIN_FILE may be gzip, bzip2 or xz; - is standard input. MODEL_FILE defaults to the base name
    of TRAIN_FILE + .model in the working folder.
    """
    from randsvm import api

    _train(api.train_randsvm, [Params, RandsvmParams], given)


@train.command(cls=options.LibsvmStyle, short_help="Fixed-size decomposition (OFG97).")
@files
@options.parameters(Params, OsunaParams)
@options.rounds
@options.common
def osuna(**given: Any) -> None:
    """Train by decomposition with a working set of fixed size (Osuna, Freund, Girosi 1997).

    Solves a working set of TRAIN_FILE with LIBSVM, scans the whole file, swaps the first violators
    met for rows of the working set, until no violator is left or the --gap is reached. All
    other coefficients are frozen wherever they stand.
    """
    from randsvm import api

    _train(api.train_osuna, [Params, OsunaParams], given)


@train.command(
    "osuna-closest", cls=options.LibsvmStyle, short_help="The same with the closest points (MZ)."
)
@files
@options.parameters(Params, OsunaParams)
@options.rounds
@options.common
def osuna_closest(**given: Any) -> None:
    """As osuna, but swap in the violators with the smallest y f(x) (Mostefaoui, Zaou).

    On noisy data these are the outliers: expect it to be far slower than osuna there.
    """
    from randsvm import api

    _train(partial(api.train_osuna, closest=True), [Params, OsunaParams], given)


@train.command(
    cls=options.LibsvmStyle, short_help="Linear SVM by stochastic gradient descent (CS246)."
)
@files
@options.parameters(SgdParams)
@options.common
def sgd(**given: Any) -> None:
    """Train a linear SVM by stochastic gradient descent (Bottou; CS246).

    One step for each row, in random order, epoch after epoch; two classes or more. MODEL_FILE is
    LIBLINEAR's text format: liblinear-predict reads it. With -t rbf or -t poly it is linear in
    random features that stand for that kernel, and only randsvm-predict reads it.

    -s one-class learns what is usual from rows that are all usual: outliers among them are learnt
    as usual, too.

    With --update MODEL that model is taught the rows of TRAIN_FILE as they arrive (- is standard
    input) and written to MODEL_FILE at the end and at every --checkpoint.
    """
    from randsvm import api

    _train(api.train_sgd, [SgdParams], given)


def _train(call: Callable[..., object], groups: list[type], given: dict[str, Any]) -> None:
    """Make objects of the options, call once, report."""
    from randsvm import api

    data, model = given["train_file"], given["model_file"] or default_model(given["train_file"])
    old = given.get("warm_start")
    search = Search(given["folds"], given["subset"], options.grid(groups, given))
    log = given["log"]
    if search.wanted and log is not None:
        search = replace(search, tried=tried(log))
    job = api.Job(
        options.gather(StopParams, given),
        options.gather(Limits, given),
        options.gather(Run, given),
        options.gather(Resources, given),
        old,
        search,
        options.left_open(groups[0]) if old else frozenset(),
    )
    params: list[object] = [options.gather(group, given) for group in groups]
    inputs = {
        "TRAIN_FILE": data,
        "MODEL_FILE": model,
        "--warm-start": old,
        "--update": given.get("update"),
        "--cache": job.resources.cache,
    }
    check_apart({"--log": log}, inputs)
    extra = ["--warm-start", old] if old else []
    with Report(COMMAND, extra, {"data": data, "model": model}, given) as report:
        call(data, model, *params, job, report)


def default_model(train_file: str) -> str:
    if train_file == STANDARD:
        raise ParameterError("training from standard input needs a MODEL_FILE")
    return Path(train_file).name + ".model"


def main() -> None:
    door.run(train, COMMAND)


if __name__ == "__main__":
    main()
