"""randsvm-predict: predictions by a model; its certificate, description, export and explanation."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal

import click

from randsvm import __version__
from randsvm.cli import options, process
from randsvm.cli.options import SETTINGS, Command, Commands
from randsvm.errors import ModelError, ParameterError
from randsvm.files import STANDARD
from randsvm.parameters.option import OUTPUT, Option, Path
from randsvm.parameters.run import EXPORT_FORMATS, CertifyParams, PredictParams, Resources

COMMAND = "randsvm-predict"
DATA = Option(
    ("--data",),
    "Compare the predictions of the rows of this file.  [default: the support vectors; for a "
    "linear model, random rows]",
    Path(),
    OUTPUT,
    "Compare the predictions of the rows of this file.",
)
# Options of PredictParams that say how the columns of a table are read.
TABLE_OPTIONS = ("format", "no_header", "delimiter", "sql")


@click.group(
    cls=Commands,
    context_settings=SETTINGS,
    plain="predict",
    metavar="COMMAND",
    subcommand_metavar="[COMMAND] [OPTIONS] TEST_FILE MODEL_FILE OUTPUT_FILE",
    epilog="Without COMMAND it predicts, as svm-predict does.",
    exit_codes={
        0: "done",
        74: "reading or writing failed, as on a full disk or a closed pipe",
        75: "the gap is above --require-gap of certify",
        69: "the cluster cannot be reached or stops working",
        128: "+ signal: interrupted; an old OUTPUT_FILE stays",
    },
    examples={
        "randsvm-predict test.svm data.svm.model labels.txt": "prints the accuracy",
        "randsvm-predict info data.svm.model": "what the model is and how it was trained",
        "randsvm-predict certify train.svm train.svm.model -c 8": (
            "P, D and the gap of a model of svm-train"
        ),
    },
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def predict() -> None:
    """Predict with a model of randsvm-train, of LIBSVM's svm-train or LIBLINEAR's liblinear-train.

    Other commands certify the model, write it as C or ONNX, explain its predictions, or print what
    it is.
    """


def _file(name: str) -> Callable[[options.Decorated], options.Decorated]:
    return click.argument(name, type=options.PATH, metavar=name.upper())


# The role in the records of each file of a command.
ROLES = {
    "test_file": "data",
    "train_file": "data",
    "data": "data",
    "model_file": "model",
    "output_file": "output",
    "into": "output",
}


def _reported(function: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with --report and --quiet; `function` gets the listener as `watch`."""

    @wraps(function)
    def command(report: str, quiet: bool, **given: Any) -> None:
        from randsvm.cli.report import Report

        named = {role: name for name, role in ROLES.items() if given.get(name) is not None}
        if given.get("sql") is not None and "data" in named:
            from randsvm.data.database import Query

            given[named["data"]] = Query(given[named["data"]], given["sql"])
        files = {role: given[name] for role, name in named.items()}
        if files.get("data") == files["model"] == STANDARD:
            raise ParameterError("standard input is both the data and MODEL_FILE")
        with Report(COMMAND, files, {"report": report, "quiet": quiet}) as watch:
            function(watch=watch, **given)

    return options.report(options.quiet(command))


@predict.command(
    "predict",
    cls=Command,
    short_help="Predict the rows of a file (the default).",
    examples={
        "randsvm-predict --scores rows.svm.gz data.model -": "decision values on standard output",
        "randsvm-predict -b 1 --metrics test.svm data.model proba.txt": (
            "probabilities; prints the confusion matrix, F1, AUC, log loss"
        ),
        "randsvm-predict --coverage 0.9 test.svm data.model sets.txt": (
            "label sets that aim to contain the true label of 90% of the rows"
        ),
    },
)
@_file("test_file")
@_file("model_file")
@click.argument("output_file", type=options.PATH, metavar="[OUTPUT_FILE]", required=False)
@options.parameters(PredictParams)
@options.parameters(Resources, only=["jobs", "cluster"])
@_reported
def predict_rows(
    test_file: str,
    model_file: str,
    output_file: str | None,
    jobs: int | None,
    cluster: str | None,
    watch: Any,
    **given: Any,
) -> None:
    """Predict the rows of TEST_FILE with MODEL_FILE, one line each, in order, into OUTPUT_FILE.

    The word predict may be left out. OUTPUT_FILE is required, except with --into.

    TEST_FILE may be a quoted pattern: its files are predicted in the order of their names. Rows
    labelled ? are predicted and left out of the accuracy, which is printed as svm-predict
    prints it. Files may be compressed or URLs; - is standard input or output.
    """
    if output_file is None and given["into"] is None:
        raise click.UsageError("Missing argument 'OUTPUT_FILE' (- prints the predictions).")
    params, resources = PredictParams(**given), Resources(jobs=jobs, cluster=cluster)
    from randsvm.models import prediction

    prediction.predict(
        test_file, model_file, output_file, params=params, resources=resources, watch=watch
    )


@predict.command(
    cls=Command,
    short_help="Print P, D and the gap of a model of any program.",
    examples={
        "randsvm-predict certify train.svm train.svm.model -c 8": "a model of svm-train -c 8",
        "randsvm-predict certify train.svm m -c 8 --require-gap 0.01": "exit code 75 above 1%",
    },
)
@_file("train_file")
@_file("model_file")
@options.parameters(CertifyParams)
@options.parameters(Resources, only=["jobs"])
@_reported
def certify(
    train_file: str,
    model_file: str,
    jobs: int | None,
    watch: Any,
    **given: Any,
) -> None:
    """Print the objectives P and D of MODEL_FILE over TRAIN_FILE and the gap between them.

    They are computed in float64 from the text of both files. The model may come from any program
    that writes LIBSVM's or LIBLINEAR's format; give -c, -p, -n and -w as in its training, unless
    randsvm-train wrote it. The last line says whether the gap that the model claims holds. A
    refuted claim ends with exit code 65, unless --require-gap is given.
    """
    params, resources = CertifyParams(**given), Resources(jobs=jobs)
    from randsvm.training import certification

    found = certification.certify(
        train_file, model_file, params=params, resources=resources, watch=watch
    )
    if found.verdict == "refuted" and params.require_gap is None:
        raise ModelError(f"{model_file}: the gap that it claims does not hold for {train_file}")


@predict.command(
    cls=Command,
    short_help="Write a model as C99 source or as an ONNX graph.",
    examples={
        "randsvm-predict export c data.model model.c": "compared on the support vectors",
        "randsvm-predict export onnx --data test.svm data.model model.onnx": (
            "compared on the rows of test.svm"
        ),
    },
)
@click.argument("form", type=click.Choice(EXPORT_FORMATS), metavar="c|onnx")
@_file("model_file")
@_file("output_file")
@options.click_option("data", None, DATA)
@options.parameters(PredictParams, only=TABLE_OPTIONS)
@_reported
def export(
    form: Literal["c", "onnx"],
    model_file: str,
    output_file: str,
    data: str | None,
    watch: Any,
    **given: Any,
) -> None:
    """Write MODEL_FILE as one C99 file without allocation, or as an ONNX graph, to OUTPUT_FILE.

    ONNX needs the package onnx (pip install onnx). Where there is a C compiler, or
    onnxruntime, the predictions of the export are compared with those of the model: the largest
    difference and the number of labels that differ are printed.

    --data names the file with the rows to compare; --format, --sql and the other options of tables
    say how it is read.
    """
    from randsvm.models import export

    params = PredictParams(**given)
    export.export(model_file, output_file, data, format=form, params=params, watch=watch)


@predict.command(
    cls=Command,
    short_help="Write the Shapley values of each row.",
    examples={
        "randsvm-predict explain test.svm data.model values.txt": "f index:value .. for each row",
        "randsvm-predict explain --keep id test.csv data.model values.csv": "a table",
    },
)
@_file("test_file")
@_file("model_file")
@_file("output_file")
@options.parameters(PredictParams, only=(*TABLE_OPTIONS, "keep"))
@options.parameters(Resources, only=["jobs"])
@_reported
def explain(
    test_file: str,
    model_file: str,
    output_file: str,
    jobs: int | None,
    watch: Any,
    **given: Any,
) -> None:
    """Write the exact Shapley values of the features of each row of TEST_FILE to OUTPUT_FILE.

    A row has a line for each decision value: this value, and then index:value of each feature. The
    model must have the RBF kernel.
    """
    from randsvm.models import shapley

    params, resources = PredictParams(**given), Resources(jobs=jobs)
    shapley.explain(
        test_file, model_file, output_file, params=params, resources=resources, watch=watch
    )


@predict.command(
    cls=Command,
    short_help="Print what a model is and how it was trained.",
    examples={"randsvm-predict info data.svm.model": "kernel, C, gap, support vectors, version"},
)
@_file("model_file")
@options.report
def info(model_file: str, report: str) -> None:
    """Print a description of MODEL_FILE and of its training; --report json: as one JSON object."""
    import json

    from randsvm.cli.report import as_json
    from randsvm.models.fitted import describe_file, format_lines

    found = describe_file(model_file)
    click.echo(json.dumps(as_json(found)) if report == "json" else "\n".join(format_lines(found)))


def main() -> None:
    process.run(predict, COMMAND)


if __name__ == "__main__":
    main()
