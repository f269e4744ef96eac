"""randsvm-train: one subcommand per algorithm; each body parses, calls once, reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from randsvm import __version__
from randsvm.cli import door, options
from randsvm.cli.report import Report
from randsvm.errors import ParameterError
from randsvm.files import STANDARD
from randsvm.params import Params, RandsvmParams, Resources, Run

COMMAND = "randsvm-train"


@click.group(context_settings={"max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s")
def train() -> None:
    """Train a support vector machine on an svmlight file too large or too noisy for LIBSVM alone.

    The model file is LIBSVM's text format: svm-predict reads it.
    """


@train.command()
@click.argument("train_file")
@click.argument("model_file", required=False)
@options.parameters(Params, RandsvmParams, Run, Resources)
@options.quiet
def randsvm(train_file: str, model_file: str | None, quiet: bool, **given: Any) -> None:
    """Train by random sampling of violators (Kumar, Bhattacharyya, Hariharan, NIPS 2007).

    Solves a random subset of TRAIN_FILE with LIBSVM, scans the whole file for rows that violate
    the KKT conditions, solves support vectors + random violators, until no violator is left or
    there are k support vectors. TRAIN_FILE may be gzip, bzip2 or xz; - is standard input.

    MODEL_FILE defaults to the base name of TRAIN_FILE + .model in the working folder.
    """
    from randsvm import api

    model = model_file or default_model(train_file)
    report = Report(COMMAND, [train_file, model], quiet=quiet)
    outcome = api.train_randsvm(
        train_file,
        model,
        options.gather(Params, given),
        options.gather(RandsvmParams, given),
        options.gather(Run, given),
        options.gather(Resources, given),
        watch=report,
    )
    report.trained(outcome, model)


def default_model(train_file: str) -> str:
    if train_file == STANDARD:
        raise ParameterError("training from standard input needs a MODEL_FILE")
    return Path(train_file).name + ".model"


def main() -> None:
    door.run(train, COMMAND)


if __name__ == "__main__":
    main()
