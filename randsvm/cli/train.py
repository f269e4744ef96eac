"""randsvm-train: one command for each algorithm."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import click

from randsvm import __version__
from randsvm.cli import options, process
from randsvm.cli.options import SETTINGS, Command, Commands

COMMAND = "randsvm-train"


def training(described: Callable[[], None]) -> Callable[..., None]:
    """Return the callback of a command, which calls the library and reports.

    described: has the name of the algorithm, with _ for -, and the help of the command
    """
    algorithm = described.__name__.replace("_", "-")

    @wraps(described)
    def train(**given: Any) -> None:
        # Imports that --help does not need and that would double its time.
        from randsvm import files
        from randsvm.cli.report import Report, read_trials

        data, model = options.files_of(given)
        explicit, log = options.explicit(given), given["log"]
        roles = {"data": data, "model": model}
        with Report(COMMAND, roles, given, algorithm=algorithm) as report:
            report.check_outputs(
                {
                    "TRAIN_FILE": files.inputs(data),
                    "--warm-start": explicit.get("warm_start"),
                    "--update": explicit.get("update"),
                    "--cache": explicit.get("cache"),
                }
            )
            if log is not None:
                explicit["earlier"] = partial(read_trials, log)
            from randsvm import api

            if algorithm != "sgd":
                process.import_libsvm()
            api.train(data, model, algorithm, report, **explicit)

    return train


@click.group(
    cls=Commands,
    context_settings=SETTINGS,
    plain="randsvm",
    elsewhere=dict.fromkeys(("predict", "certify", "export", "explain", "info"), "randsvm-predict"),
    metavar="ALGORITHM",
    subcommand_metavar="[ALGORITHM] [OPTIONS] TRAIN_FILE [MODEL_FILE]",
    epilog="The default ALGORITHM is randsvm. LIBSVM's -s -t -d -g -r -c -p -n -e -m -h -w -b -q "
    "keep their meaning, but -v also trains a model.",
    examples={
        "randsvm-train -c 1 -g 0.5 data.svm": "writes data.svm.model; options are LIBSVM's",
        "randsvm-train --label-column NAME --scale minmax -c 1,8,64 -g 0.1,1 table.csv": (
            "a table; cross-validates every pair of values, trains with the best"
        ),
        "randsvm-train sgd text.svm.gz text.model": (
            "a linear model, which liblinear-predict reads"
        ),
    },
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def train() -> None:
    """Train a support vector machine, and prove how close it is to the optimum. The file is in
    svmlight format, or a table (.csv, .tsv or .parquet). LIBSVM's and LIBLINEAR's programs read the
    model, unless it uses something that they lack, such as scaling.
    """


@train.command(
    cls=Command,
    short_help="Any kernel: random sampling, certified; start here.",
    examples={
        "randsvm-train randsvm -c 1 -g 0.5 data.svm": (
            "within 0.1% of the optimum, certified; writes data.svm.model"
        ),
        "randsvm-train randsvm --gap 0.01 --time-limit 10m data.svm.gz data.model": (
            "coarser, and after 10 minutes the best model so far"
        ),
        "randsvm-train randsvm -k 1000 --sample-size 5000 data.svm": (
            "the rule of the paper: until there are 1,000 support vectors"
        ),
    },
)
@options.of_algorithm("randsvm")
@training
def randsvm() -> None:
    """Train by random sampling of violators (Kumar, Bhattacharyya, Hariharan, NIPS 2007).

    LIBSVM solves a random subset of TRAIN_FILE, the working set. Then rounds follow: a scan of the
    whole file finds the rows that violate the KKT conditions; random violators enter the working
    set; LIBSVM solves it, while all other coefficients stay as they are. The rounds end when the
    --gap is certified.

    With -k or --gap none the rule of the paper decides: the working set has all support vectors and
    random violators, and the rounds end at k support vectors or when no violator is left.

    TRAIN_FILE may be compressed or a URL; - is standard input; several files, or a quoted pattern
    such as 'part-*.svm', are one data set. MODEL_FILE defaults to the base name of TRAIN_FILE +
    .model in the working folder; after several names it is the last one.
    """


@train.command(
    cls=Command,
    short_help="Any kernel: a working set of fixed size, for comparison.",
    examples={
        "randsvm-train osuna -c 1 -g 0.5 data.svm": (
            "within 0.1% of the optimum, certified; writes data.svm.model"
        ),
        "randsvm-train osuna --working-set 2000 --swap 500 data.svm data.model": (
            "2,000 rows in each solve, 500 of them new"
        ),
        "randsvm-train osuna --gap none data.svm": "until no row violates the KKT conditions",
    },
)
@options.of_algorithm("osuna")
@training
def osuna() -> None:
    """Train by decomposition with a working set of fixed size (Osuna, Freund, Girosi 1997).

    In each round LIBSVM solves the working set, while all other coefficients stay as they are. A
    scan of the whole file then finds violators of the KKT conditions, and the first ones replace
    rows of the working set. The rounds end when the --gap is certified or no violator is left.
    """


@train.command(
    "osuna-closest",
    cls=Command,
    short_help="Any kernel: osuna with the worst violators, for clean data.",
    examples={
        "randsvm-train osuna-closest -c 1 -g 0.5 data.svm": (
            "within 0.1% of the optimum, certified; writes data.svm.model"
        ),
        "randsvm-train osuna-closest --time-limit 60s data.svm data.model": (
            "after a minute the best model so far"
        ),
        "randsvm-train osuna-closest --gap none --working-set 400 data.svm": (
            "until no row violates the KKT conditions"
        ),
    },
)
@options.of_algorithm("osuna-closest")
@training
def osuna_closest() -> None:
    """Train as osuna does, but swap in the largest violators (Mostefaoui, Zaou).

    For classes these are the rows with the smallest y f(x). On noisy data they are outliers, so
    that this algorithm is far slower than osuna.
    """


@train.command(
    cls=Command,
    short_help="Linear, by stochastic gradient: text, many features.",
    examples={
        "randsvm-train sgd --lambda 1e-4 text.svm.gz text.model": (
            "a linear model, which liblinear-predict reads"
        ),
        "randsvm-train sgd -t rbf -g 0.5 --components 2000 data.svm": (
            "2,000 random features stand for the kernel"
        ),
        "feed | randsvm-train sgd --update old.model --checkpoint 60s - new.model": (
            "learns rows as they arrive, writes the model every minute"
        ),
    },
)
@options.of_algorithm("sgd")
@training
def sgd() -> None:
    """Train a linear SVM by stochastic gradient descent (Bottou; CS246).

    Each epoch makes one step for each row, in random order. MODEL_FILE is in LIBLINEAR's text
    format: liblinear-predict reads it. With -t rbf or -t poly the model is linear in random
    features that stand for that kernel, and only randsvm-predict reads it.

    -s one-class without -n expects rows without outliers: it would learn outliers as normal rows.
    With -n at most that share of the rows is outside.

    --update MODEL trains that model further with the rows of TRAIN_FILE as they arrive (- is
    standard input). MODEL_FILE is written at the end and at every --checkpoint.
    """


def main() -> None:
    process.run(train, COMMAND)


if __name__ == "__main__":
    main()
