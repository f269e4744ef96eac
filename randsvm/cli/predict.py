"""randsvm-predict: predictions of svmlight files by a model, and the certificate of a model."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import click
from click.core import ParameterSource

from randsvm import __version__
from randsvm.cli import options, process
from randsvm.cli.commands import RESOURCES, SETTINGS, Command
from randsvm.errors import ParameterError
from randsvm.files import STANDARD, inputs
from randsvm.parameters.option import options as option_fields
from randsvm.parameters.run import (
    EXPORT_FORMATS,
    FORMATS,
    LABEL_SPELLINGS,
    CertifyParams,
    PredictParams,
    Resources,
)

COMMAND = "randsvm-predict"


class Mode(NamedTuple):
    """Work that an option asks for in place of a prediction.

    files : the arguments that it takes, in order; own : options for this work only; shared :
    other options that have an effect.
    """

    files: tuple[str, ...]
    own: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()


MODES = {
    "certify": Mode(
        ("test_file", "model_file"),
        frozenset(f.name for f, _ in option_fields(CertifyParams)),
        frozenset({"jobs", "row_weights"}),
    ),
    "export": Mode(
        ("test_file", "model_file", "output_file"), shared=frozenset({"format", "no_header"})
    ),
    "explain": Mode(
        ("test_file", "model_file", "output_file"),
        shared=frozenset({"jobs", "format", "keep", "no_header"}),
    ),
}
# Options that every work has.
COMMON_OPTIONS = {"report", "quiet"}


class PredictCommand(Command):
    """A command whose files depend on its work: a prediction, or one of MODES, or --info MODEL."""

    FILES = "test_file", "model_file", "output_file"
    OUTPUT = "Output"
    TITLES = (OUTPUT, *(f"With --{mode}" for mode, found in MODES.items() if found.own), RESOURCES)

    def title_of(self, option: click.Option) -> str:
        for mode, found in MODES.items():
            if option.name in found.own:
                return f"With --{mode}"
        return RESOURCES if option.name in ("jobs", "cluster") else self.OUTPUT

    def check_files(self, ctx: click.Context) -> None:
        given = ctx.params
        if given["info"] is not None:
            if given["test_file"] is not None:
                raise ParameterError("--info MODEL takes no other files")
            return
        mode = _chosen_mode(ctx)
        if mode == "export" and given["output_file"] is None:
            # TEST_FILE is the one that may be left out.
            given["output_file"] = given["model_file"]
            given["model_file"], given["test_file"] = given["test_file"], None
        for name in self.FILES if mode is None else MODES[mode].files:
            if given[name] is None and not (mode == "export" and name == "test_file"):
                missing = next(one for one in self.params if one.name == name)
                raise click.MissingParameter(ctx=ctx, param=missing)


def _chosen_mode(ctx: click.Context) -> str | None:
    """Return the option that replaces the prediction; None: the work is a prediction.

    Raise ParameterError for options and files that have no effect on the work.
    """
    chosen = [name for name in MODES if ctx.params[name]]
    if len(chosen) > 1:
        raise ParameterError(f"give one of --{chosen[0]} and --{chosen[1]}, not both")
    mode = chosen[0] if chosen else None
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        flag = max(parameter.opts, key=len)
        if mode is None:
            owners = [f"--{other}" for other, found in MODES.items() if name in found.own]
            if owners:
                raise ParameterError(f"{flag} is for {' and '.join(owners)}")
            continue
        found = MODES[mode]
        if name == "output_file" and name not in found.files:
            data = "TRAIN_FILE" if mode == "certify" else "TEST_FILE"
            raise ParameterError(f"--{mode} takes {data} MODEL_FILE and writes no file")
        if name not in found.own | found.shared | COMMON_OPTIONS | {mode, *found.files}:
            raise ParameterError(f"{flag} has no effect with --{mode}")
    return mode


@click.command(
    cls=PredictCommand,
    context_settings=SETTINGS,
    examples={
        "randsvm-predict test.svm data.svm.model labels.txt": "prints the accuracy",
        "randsvm-predict --scores rows.svm.gz data.model -": "decision values on standard output",
        "randsvm-predict --metrics test.svm data.model /dev/null": (
            "confusion matrix, precision, recall, F1, AUC"
        ),
        "randsvm-predict -b 1 --metrics test.svm data.model proba.txt": (
            "also log loss and Brier score"
        ),
        "randsvm-predict --coverage 0.9 test.svm data.model sets.txt": (
            "label sets that contain the true label with probability 0.9"
        ),
        "randsvm-predict --certify train.svm train.svm.model -c 8": (
            "P, D and the gap of a model of svm-train"
        ),
        "randsvm-predict --export c train.svm data.model model.c": (
            "C99 source, compared on the rows of train.svm"
        ),
    },
)
@click.argument("test_file", type=options.PATH, required=False, metavar="TEST_FILE")
@click.argument("model_file", type=options.PATH, required=False, metavar="MODEL_FILE")
@click.argument("output_file", type=options.PATH, required=False, metavar="OUTPUT_FILE")
@click.option(
    "--scores",
    is_flag=True,
    help="Write decision values instead of labels: one for each row; with three or more classes "
    "one for each pair of classes, in LIBSVM's order, or one for each class if the model was "
    "trained by sgd or with --multiclass ovr.",
)
@click.option(
    "-b",
    "--probability",
    type=options.Switch(),
    default=False,
    help="1: write the label and the probability of each class, as svm-predict does; of a "
    "regression, print the scale of its noise.",
)
@click.option(
    "--labels",
    type=click.Choice(LABEL_SPELLINGS),
    default=PredictParams.labels,
    help="How labels are spelled: as in the training file (+1), or as svm-predict does (1).  "
    f"[default: {PredictParams.labels}]",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="Print the confusion matrix, precision, recall and F1 of each class; for two classes also "
    "the areas under the precision-recall and ROC curves; with -b 1 also log loss and "
    "Brier score.",
)
@click.option(
    "--coverage",
    type=float,
    default=None,
    help="Write for each row a set of labels that contains the true one with this probability, or "
    "for a regression the prediction and an interval. The model must have been trained with "
    "--conformal.  [default: none]",
)
@click.option(
    "--info",
    metavar="MODEL",
    help="Print a description of this model and of its training, and predict nothing; --report "
    "json: as one JSON object.",
)
@click.option(
    "--certify",
    is_flag=True,
    help="Take TRAIN_FILE MODEL_FILE, and print the objectives P and D of the model and the gap "
    "between them, computed in float64 from the text of both files. The model may come from any "
    "program that writes LIBSVM's format; give -c, -p, -n and -w as in its training.",
)
@click.option(
    "--export",
    type=click.Choice(EXPORT_FORMATS),
    help="Take [TEST_FILE] MODEL_FILE OUTPUT_FILE, and write the model as one C99 file without "
    "allocation, or as an ONNX graph (pip install 'randsvm[onnx]'). Where there is a C compiler, "
    "or onnxruntime, the export predicts the rows of TEST_FILE, or else the support vectors; the "
    "largest difference is printed, and a different label is an error.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Write the exact Shapley values of the features of each row in place of labels: "
    "f index:value .. for each decision value f of a model with the RBF kernel.",
)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Format of TEST_FILE.  [default: that of the training; its columns are found by their "
    "names, in any order]",
)
@click.option(
    "--no-header",
    is_flag=True,
    help="The first line of a CSV or TSV file is a row. Its columns are those of the training in "
    "their order, with or without the label, or those of the features.",
)
@click.option(
    "--keep",
    metavar="COLUMNS",
    help="Write a table: these columns of TEST_FILE, names separated by commas, and the prediction "
    "of each row.",
)
@click.option(
    "--row-weights",
    type=options.PATH,
    help="File of weights, one number a line for each row of TEST_FILE or TRAIN_FILE, in place of "
    "cost: in the rows. A row counts in scores as its weight; with --certify its weight multiplies "
    "its C.  [default: none]",
)
@options.parameters(CertifyParams)
@options.parameters(Resources, only=["jobs"])
@click.option(
    "--cluster",
    help="Predict on the workers of a Dask cluster, which see the files: host:port, a scheduler "
    "file, or local:N for N processes of this machine.  [default: none]",
)
@options.report
@options.quiet
@click.version_option(__version__, message="%(prog)s %(version)s")
def predict(
    test_file: str,
    model_file: str,
    output_file: str,
    scores: bool,
    probability: bool,
    labels: Literal["file", "libsvm"],
    metrics: bool,
    coverage: float | None,
    format: str | None,
    no_header: bool,
    keep: str | None,
    info: str | None,
    certify: bool,
    export: Literal["c", "onnx"] | None,
    explain: bool,
    row_weights: str | None,
    jobs: int | None,
    cluster: str | None,
    **given: Any,
) -> None:
    """Predict the rows of TEST_FILE with MODEL_FILE, one line each, in order, into OUTPUT_FILE.

    TEST_FILE may be a quoted pattern: its files are predicted in the order of their names. Rows
    labelled ? are predicted and left out of the accuracy, which is printed as svm-predict
    prints it. MODEL_FILE may come from randsvm-train, from LIBSVM's svm-train or from LIBLINEAR's
    liblinear-train. Files may be gzip, bzip2 or xz; - is standard input or output.
    With --certify, TEST_FILE is the training file of the model, and there is no OUTPUT_FILE.
    With --export, TEST_FILE may be left out.
    """
    from randsvm.cli.report import Report

    if info is not None:
        _print_description(info, given["report"] == "json")
        return
    if test_file == model_file == STANDARD:
        raise ParameterError("standard input is both TEST_FILE and MODEL_FILE")
    if certify:
        _certify(test_file, model_file, row_weights, jobs, given)
        return
    if export is not None:
        _export(export, test_file, model_file, output_file, format, no_header, given)
        return
    resources = Resources(jobs=jobs, cluster=cluster)
    files = {"data": test_file, "model": model_file, "output": output_file}
    with Report(COMMAND, [], files, given) as report:
        params = PredictParams(
            scores, probability, metrics, labels, coverage, format, keep, row_weights, no_header
        )
        roles = {"TEST_FILE": inputs(test_file), "MODEL_FILE": [model_file]}
        report.check_outputs(
            {**roles, "--row-weights": [row_weights], "OUTPUT_FILE": [output_file]}
        )
        if explain:
            from randsvm import api

            api.explain(
                test_file,
                model_file,
                output_file,
                resources=resources,
                format=format,
                keep=keep,
                no_header=no_header,
                watch=report,
            )
            return
        from randsvm import api

        api.predict(
            test_file, model_file, output_file, params=params, resources=resources, watch=report
        )


def _certify(
    data: str, model: str, row_weights: str | None, jobs: int | None, given: dict[str, Any]
) -> None:
    from randsvm.cli.report import Report

    own = {name: given[name] for name in MODES["certify"].own}
    params = CertifyParams(**own, row_weights=row_weights)
    with Report(COMMAND, [], {"data": data, "model": model}, given) as report:
        roles = {"TRAIN_FILE": inputs(data), "MODEL_FILE": [model]}
        report.check_outputs({**roles, "--row-weights": [row_weights]})
        from randsvm import api

        api.certify(data, model, params=params, resources=Resources(jobs=jobs), watch=report)


def _export(
    format_name: Literal["c", "onnx"],
    data: str | None,
    model: str,
    output: str,
    data_format: str | None,
    no_header: bool,
    given: dict[str, Any],
) -> None:
    from randsvm.cli.report import Report

    files = {"model": model, "output": output}
    roles = {"MODEL_FILE": [model], "OUTPUT_FILE": [output]}
    if data is not None:
        files, roles = {"data": data, **files}, {"TEST_FILE": [*inputs(data)], **roles}
    with Report(COMMAND, [], files, given) as report:
        report.check_outputs(roles)
        from randsvm import api

        api.export(
            model,
            output,
            data,
            format=format_name,
            data_format=data_format,
            no_header=no_header,
            watch=report,
        )


def _print_description(model: str, in_json: bool) -> None:
    import json

    from randsvm.cli.log import as_json
    from randsvm.models.fitted import describe_file, format_lines

    found = describe_file(model)
    click.echo(json.dumps(as_json(found)) if in_json else "\n".join(format_lines(found)))


def main() -> None:
    process.run(predict, COMMAND)


if __name__ == "__main__":
    main()
