"""randsvm-predict: labels, decision values or probabilities of svmlight files by a model."""

from __future__ import annotations

from typing import Any, Literal

import click

from randsvm import __version__
from randsvm.cli import options, process
from randsvm.cli.commands import SETTINGS, Command
from randsvm.errors import ParameterError
from randsvm.parameters.run import LABEL_SPELLINGS, PredictParams, Resources

COMMAND = "randsvm-predict"


class OfFilesOrInfo(Command):
    """A command that takes --info MODEL in place of its files."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.MissingParameter:
            # click has read the options by now; a missing TEST_FILE is right with --info.
            if ctx.params.get("info") is None or ctx.params.get("test_file") is not None:
                raise
            for parameter in self.params:
                ctx.params.setdefault(parameter.name or "", parameter.get_default(ctx))
            return []
        if ctx.params["info"] is not None:
            raise ParameterError("--info MODEL takes no other files")
        return rest


@click.command(
    cls=OfFilesOrInfo,
    context_settings=SETTINGS,
    examples={
        "randsvm-predict test.svm data.svm.model labels.txt": "prints the accuracy",
        "randsvm-predict --scores rows.svm.gz data.model -": "decision values on standard output",
        "randsvm-predict --metrics test.svm data.model /dev/null": (
            "confusion matrix, precision, recall, F1, AUC"
        ),
    },
)
@click.argument("test_file", type=options.PATH)
@click.argument("model_file", type=options.PATH)
@click.argument("output_file", type=options.PATH)
@click.option(
    "--scores",
    is_flag=True,
    help="Write decision values instead of labels: one; of several classes one for each pair, in "
    "LIBSVM's order, or, of sgd and --multiclass ovr, for each class.",
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
    show_default=True,
    help="How labels are spelled: as in the training file (+1), or as svm-predict does (1).",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="Print the confusion matrix, precision, recall and F1 of each class, and of two the AUC.",
)
@click.option(
    "--info",
    metavar="MODEL",
    help="Print a description of this model and of its training, and predict nothing; --report "
    "json: as one JSON object.",
)
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
    info: str | None,
    jobs: int | None,
    cluster: str | None,
    **given: Any,
) -> None:
    """Predict the rows of TEST_FILE with MODEL_FILE, one line each, in order, into OUTPUT_FILE.

    TEST_FILE may be a quoted pattern: its files are predicted in the order of their names. Rows
    labelled ? are predicted and left out of the accuracy, which is printed as svm-predict
    prints it. MODEL_FILE may come from randsvm-train, from LIBSVM's svm-train or from LIBLINEAR's
    liblinear-train. Files may be gzip, bzip2 or xz; - is standard input or output.
    """
    from randsvm.cli.report import Report

    if info is not None:
        _print_description(info, given["report"] == "json")
        return
    resources = Resources(jobs=jobs, cluster=cluster)
    params = PredictParams(scores, probability, metrics, labels)
    files = {"data": test_file, "model": model_file, "output": output_file}
    with Report(COMMAND, [], files, given) as report:
        process.import_api().predict(
            test_file, model_file, output_file, params=params, resources=resources, watch=report
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
