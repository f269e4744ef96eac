"""Options of every run and of predictions, and the options of each algorithm."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from randsvm.parameters.option import (
    MEGABYTE,
    OUTPUT,
    RESOURCES,
    SEARCH,
    STOP,
    TABLE,
    Choice,
    Delimiter,
    Duration,
    Flag,
    Folds,
    Grid,
    Kind,
    Number,
    Option,
    Options,
    Parameters,
    Path,
    Size,
    Switch,
    Whole,
    changed_flags,
    grid_values,
    option,
    option_fields,
    require,
    shared_option,
)
from randsvm.parameters.rounds import OsunaParams, RandsvmParams, RoundsParams
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import WEIGHTS, KernelParams
from randsvm.records import record

# The metrics of --select-by for each kind of task; the first is the default.
METRICS_OF_TASK = {
    "svc": ("accuracy", "balanced-accuracy", "auc", "f1", "log-loss"),
    "one-class": ("accuracy",),
    "svr": ("squared-error", "absolute-error"),
}
FORMATS = ("svmlight", "csv", "tsv", "parquet")


@record
class Limits(Options):
    """The time limit of a run, and conditions for writing its model."""

    time_limit: float | None = option(
        None,
        Duration("> 0 seconds"),
        "--time-limit",
        help="End after 90s, 10m or 2h with the best model so far; a number alone is in seconds.",
        group=STOP,
        brief="End after 90s, 10m or 2h with the best model so far.",
    )
    require_gap: float | None = option(
        None,
        Number("> 0 and < 1"),
        "--require-gap",
        help="Keep the old model and end with exit code 75 if the certified gap is above this one.",
        group=STOP,
    )
    certificate: str | None = option(
        None,
        Path(),
        "--certificate",
        help="Write a transcript for randsvm-check, which needs it for reduced and linear models; "
        "for large data it makes the check take seconds.",
        group=OUTPUT,
    )
    keep_rows: str | None = option(
        None,
        Path(),
        "--keep-rows",
        help="Write the rows that were read, with their weights and before --scale, in LIBSVM's "
        "format: randsvm-check reads such rows only, and no tables.",
        group=OUTPUT,
    )
    overwrite: bool = option(
        False,
        Flag(),
        "--overwrite",
        help="Replace MODEL_FILE even if the training was interrupted or ran out of time and the "
        "old model has a smaller gap. By default the new model then goes to "
        "MODEL_FILE.interrupted, unless the model there also has a smaller gap.",
        group=OUTPUT,
    )


@record
class DataParams(Options):
    """The seed, and how rows are read and scaled."""

    seed: int = option(
        0,
        Whole(">= 0 and < 2^64"),
        "--seed",
        help="Seed of all random draws.",
        group=STOP,
    )
    zero_based: bool = option(
        False,
        Flag(),
        "--zero-based",
        help="Feature indices start at 0, not at 1.",
    )
    scale: str | None = option(
        None,
        Choice("minmax", "standard", "unit"),
        "--scale",
        help="Scale features to [-1, 1], to mean 0 and variance 1, or rows to length 1; the model "
        "scales what it predicts. Sparse rows stay sparse.",
        brief="minmax, standard or unit.",
    )
    row_weights: str | None = option(
        None,
        Path(),
        "--row-weights",
        help="File of weights, one line with a number for each row, as LIBSVM's -W: C of a row is "
        "C times its weight.",
    )
    format: str | None = option(
        None,
        Choice(*FORMATS),
        "--format",
        help="Format of TRAIN_FILE. In a table, numeric columns become features and text "
        "columns are one-hot encoded; the model does the same in predictions.  [default: by the "
        "suffix of the name, .csv, .tsv or .parquet; else svmlight]",
        group=TABLE,
        brief="svmlight, csv, tsv or parquet.",
    )
    sql: str | None = option(
        None,
        Kind(),
        "--sql",
        help="Query whose rows are the table; TRAIN_FILE is the URL of the database, "
        "duckdb:///FILE, sqlite:///FILE or postgresql://USER@HOST/NAME. Models and logs have the "
        "query, and the URL without its password.",
        group=TABLE,
    )
    label_column: str | None = option(
        None,
        Kind(),
        "--label-column",
        help="Column of the labels in a table: its name, or its number from 1.",
        group=TABLE,
        brief="Column of the labels in a table.",
    )
    ignore_columns: str | None = option(
        None,
        Kind(),
        "--ignore-columns",
        help="Columns of a table that are not features: names or numbers, separated by commas.",
        group=TABLE,
        brief="Columns of a table to leave out, such as ids.",
    )
    categorical_columns: str | None = option(
        None,
        Kind(),
        "--categorical-columns",
        help="Columns of a table whose numbers are categories, such as codes: names or numbers, "
        "separated by commas.",
        group=TABLE,
    )
    group_column: str | None = option(
        None,
        Kind(),
        "--group-column",
        help="Column of a table whose texts take the place of qid: for --groups qid; it is not a "
        "feature.",
        group=TABLE,
    )
    no_header: bool = option(
        False,
        Flag(),
        "--no-header",
        help="The first line of a CSV or TSV file is a row; numbers from 1 name the columns.",
        group=TABLE,
    )
    delimiter: str | None = option(
        None,
        Delimiter(),
        "--delimiter",
        help="Character between the fields of a CSV or TSV file; the word tab stands for a tab, "
        "and auto finds the character in the first lines. With ; numbers may have decimal commas.  "
        "[default: a comma in CSV, a tab in TSV]",
        group=TABLE,
    )
    missing: str | None = option(
        None,
        Choice("mean"),
        "--missing",
        help="mean: a missing number in a table becomes the mean of its column, and a missing text "
        "counts as no category.  [default: it is an error]",
        group=TABLE,
        brief="mean: fill missing numbers of a table with means.",
    )
    missing_values: str | None = option(
        None,
        Kind(),
        "--missing-values",
        help="Texts or numbers that stand for a missing number in a table, besides NA, ? and the "
        "like; separated by commas, for example '-',-999.",
        group=TABLE,
    )

    keep_index: bool = option(
        False,
        Flag(),
        "--keep-index",
        help="Use columns of a table without a name, and those that pandas wrote for the index of "
        "a frame, as features; by default they are left out.",
        group=TABLE,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag in () if self.is_table else changed_flags(self, TABLE):
            require(flag == "--format", f"{flag} is for tables: give --format csv, tsv or parquet")
        is_text = self.sql is None and self.format != "parquet"
        require(is_text or not self.no_header, "--no-header is for CSV and TSV files")
        require(is_text or self.delimiter is None, "--delimiter is for CSV and TSV files")
        require(self.sql is None or self.format is None, "give one of --sql and --format, not both")

    @property
    def is_table(self) -> bool:
        """Whether the rows come from a table."""
        return self.sql is not None or self.format not in (None, "svmlight")


@record
class Search(Options):
    """Cross-validation before training, for one candidate or for a grid of parameter values.

    grid : fields with several values
    path : whether the values are those of a path of sgd, which are searched with -v only
    earlier : function that returns the `tried` records of earlier runs; their scores are reused
    """

    DEFAULT_FOLDS = 5
    DEFAULT_GAP = 0.01

    folds: tuple[int, int] | None = option(
        None,
        Folds(),
        "-v",
        "--folds",
        help="Folds of a cross-validation before the training; 5x3: three times with other folds.  "
        f"[default: {DEFAULT_FOLDS} in a search, otherwise no cross-validation]",
        group=SEARCH,
        brief="Folds of a cross-validation before the training.",
    )
    subset: int | None = option(
        None,
        Whole(">= 2 rows"),
        "--subset",
        help="Rows of the cross-validation, drawn at random.",
        group=SEARCH,
    )
    grid: Grid = ()
    path: bool = False
    earlier: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    search_gap: float | None = option(
        None,
        Number("> 0 and < 1"),
        "--search-gap",
        help="Relative gap at which the fits of the folds end, or --gap if that is larger. The "
        f"final model is trained to --gap.  [default: {DEFAULT_GAP}; for svc and svr on at most "
        "4,096 rows the fits end at the tolerance of the KKT conditions]",
        group=SEARCH,
    )
    no_racing: bool = option(
        False,
        Flag(),
        "--no-racing",
        help="Score every combination on all folds. By default a combination is dropped when it "
        "is significantly worse than the best one on the folds so far (paired test at 1%).",
        group=SEARCH,
    )
    select_by: str | None = option(
        None,
        Choice(*dict.fromkeys(itertools.chain(*METRICS_OF_TASK.values())), metavar="METRIC"),
        "--select-by",
        help="Metric that decides between combinations: accuracy, balanced-accuracy, auc, f1 (mean "
        "over the classes), log-loss, squared-error or absolute-error; auc and log-loss are for "
        "two classes.  [default: accuracy, or squared-error for regression]",
        group=SEARCH,
    )
    groups: str | None = option(
        None,
        Choice("qid", "time"),
        "--groups",
        help="qid: the rows of one qid:, or of one text in --group-column, stay in one fold. time: "
        "each fold trains on the rows before those that it holds out, in file order.",
        group=SEARCH,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.groups != "time" or self.repeats == 1,
            "--groups time has one order of rows: give -v without repetitions",
        )
        for flag in changed_flags(self, SEARCH):
            require(self.is_wanted, f"{flag} is for cross-validation: give -v or lists of values")

    @property
    def fold_count(self) -> int:
        """The number of folds of one repetition."""
        return self.DEFAULT_FOLDS if self.folds is None else self.folds[0]

    @property
    def repeats(self) -> int:
        """The number of repetitions with other folds."""
        return 1 if self.folds is None else self.folds[1]

    @property
    def is_wanted(self) -> bool:
        return self.folds is not None or (bool(self.grid) and not self.path)

    def resolved(self) -> Search:
        return replace(self, folds=(self.fold_count, self.repeats)) if self.is_wanted else self

    def candidates(self, params: Parameters) -> list[Parameters]:
        """Return the parameters with every combination of values in the grid."""
        specs = {f.name: spec for f, spec in option_fields(params)}
        for name, _ in self.grid:
            require(
                params.uses(name),
                f"several values of {specs[name].flags[0]}, which this kind of machine does not "
                "use",
            )
        return combinations(
            params, {name: grid_values(specs[name], values) for name, values in self.grid}
        )

    @property
    def refined_fields(self) -> list[str]:
        """The fields with the value AUTO, which are searched coarsely and then finely."""
        return [name for name, values in self.grid if isinstance(values, str)]

    def refined_candidates(
        self, params: Parameters, around: Mapping[str, float], step: float
    ) -> list[Parameters]:
        """Return the parameters with every combination of a grid around the values `around`.

        Each of `refined_fields` has its value, that value divided by `step` and times `step`.
        """
        several: dict[str, tuple[float, ...]] = {name: (value,) for name, value in around.items()}
        for name in self.refined_fields:
            several[name] = (around[name] / step, around[name], around[name] * step)
        return combinations(params, several)


def combinations(params: Parameters, several: Mapping[str, tuple[float, ...]]) -> list[Parameters]:
    """Return the parameters with every combination of the values of some fields.

    The last field varies fastest.
    """
    return [
        replace(params, **dict(zip(several, values, strict=True)))
        for values in itertools.product(*several.values())
    ]


@record
class Resources(Options):
    """Threads, memory and files that a run may use.

    They do not change the model, with two exceptions: memory bounds the groups of sgd on a cluster,
    and sparse rows that take more than a quarter of it have no coordinate ascent for a gap of sgd.
    """

    jobs: int | None = option(
        None,
        Whole(">= 1"),
        "--jobs",
        help="Worker threads; results do not depend on them.  [default: all cores]",
        group=RESOURCES,
        brief="Worker threads.",
    )
    memory: int = option(
        2048 * MEGABYTE,
        Size(">= 16M"),
        "--memory",
        help="Bound on memory for data, support vectors and LIBSVM, e.g. 512M or 4G; also in each "
        "worker of --cluster.  [default: 2G]",
        group=RESOURCES,
        brief="Bound on memory, e.g. 512M or 4G.",
    )
    libsvm_cache: float | None = option(
        None,
        Number("> 0 and finite"),
        "-m",
        "--libsvm-cache",
        help="LIBSVM's kernel cache in MB.  [default: a quarter of --memory]",
        group=RESOURCES,
    )
    tmpdir: str | None = option(
        None,
        Path(),
        "--tmpdir",
        help="Folder of temporary files, such as parsed rows.  [default: TMPDIR or /tmp]",
        group=RESOURCES,
    )
    cache: str | None = option(
        None,
        Path(),
        "--cache",
        help="Keep the parsed data in this file for later runs.",
        group=RESOURCES,
    )
    cluster: str | None = option(
        None,
        Path(),
        "--cluster",
        help="Work on a Dask cluster: host:port, a scheduler file, or local:N for N processes of "
        "this machine.",
        group=RESOURCES,
        brief="Scheduler of a Dask cluster, or local:N.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.cluster is None or find_spec("distributed") is not None,
            "--cluster needs dask.distributed (pip install 'dask[distributed]' cryptography)",
        )

    @property
    def threads(self) -> int:
        """The number of threads."""
        if self.jobs is not None:
            return self.jobs
        # Not every system reports the cores that a process may use.
        usable = getattr(os, "sched_getaffinity", None)
        return len(usable(0)) if usable else os.cpu_count() or 1

    @property
    def data_bytes(self) -> int:
        """Bytes of parsed data in memory; more goes to a spill file."""
        return self.memory // 2

    @property
    def layout_bytes(self) -> int:
        """Bytes of rows that are kept between passes in the layout for kernel values."""
        return self.memory // 4

    def concurrent_fits(self, n: int) -> int:
        """Return the number of machines over n rows that may be trained at the same time.

        Each training has running values, states and a mask of the rows (17 bytes a row). All
        concurrent trainings use at most a quarter of the memory.
        """
        return max(1, min(self.threads, self.memory // 4 // (17 * max(n, 1))))

    @property
    def libsvm_megabytes(self) -> float:
        """Size of LIBSVM's kernel cache in MB, which changes the time and no result."""
        return self.libsvm_cache or self.memory / 4 / MEGABYTE


EXPORT_FORMATS = ("c", "onnx")


# Commands that read the rows of a model name a file, or with --data it is an option.
SQL = Option(
    ("--sql",),
    "Query that selects the rows; give the URL of the database, duckdb:///FILE, sqlite:///FILE or "
    "postgresql://USER@HOST/NAME, in place of the file of rows.",
    Kind(),
    TABLE,
)


@record
class PredictParams(Options):
    """Options of predictions."""

    scores: bool = option(
        False,
        Flag(),
        "--scores",
        help="Write decision values instead of labels: one for each row; with three or more "
        "classes one for each pair of classes, in LIBSVM's order, or one for each class if the "
        "model was trained one against the rest.",
        group=OUTPUT,
        brief="Write decision values instead of labels.",
    )
    probabilities: bool = option(
        False,
        Switch(),
        "-b",
        "--probability",
        help="1: write the label and the probability of each class, as svm-predict does; for "
        "regression, print the scale of its noise.  [default: 0]",
        group=OUTPUT,
        brief="1: write labels and probabilities.",
    )
    metrics: bool = option(
        False,
        Flag(),
        "--metrics",
        help="Print the confusion matrix, precision, recall and F1 of each class; for two classes "
        "also the areas under the precision-recall and ROC curves; with -b 1 also log loss and "
        "Brier score.",
        group=OUTPUT,
        brief="Print confusion matrix, precision, recall, F1, AUC.",
    )
    labels: str = option(
        "file",
        Choice("file", "libsvm"),
        "--labels",
        help="How labels are spelled: as in the training file (+1), or as svm-predict does (1).",
        group=OUTPUT,
        brief="Spelling of labels: file (+1) or libsvm (1).",
    )
    coverage: float | None = option(
        None,
        Number("> 0 and < 1"),
        "--coverage",
        help="Write for each row a set of labels that aims to contain the true one with this "
        "probability, or for regression the prediction and an interval. The model must have been "
        "trained with randsvm-train --conformal.",
        group=OUTPUT,
        brief="Write sets of labels or intervals of this coverage.",
    )
    format: str | None = option(
        None,
        Choice(*FORMATS),
        "--format",
        help="Format of the rows. The columns of a table are found by their names, in any order.  "
        "[default: that of the training file]",
        group=TABLE,
        brief="svmlight, csv, tsv or parquet.",
    )
    sql: str | None = shared_option(None, SQL)
    into: str | None = option(
        None,
        Kind(),
        "--into",
        help="Write the columns of --keep and the results into this table of the --sql database "
        "instead of OUTPUT_FILE, in one transaction. The table is created; if it exists and has "
        "the same columns, its rows are replaced.",
        group=TABLE,
    )
    keep: str | None = option(
        None,
        Kind(),
        "--keep",
        help="Write a table: these columns of TEST_FILE (names separated by commas), and then the "
        "results of each row.",
        group=TABLE,
        brief="Write a table with these columns of the input.",
    )
    row_weights: str | None = option(
        None,
        Path(),
        "--row-weights",
        help="File of weights, one line with a number for each row of TEST_FILE, in place of "
        "cost: in the rows. A row counts in scores as its weight.",
        group=OUTPUT,
    )
    no_header: bool = option(
        False,
        Flag(),
        "--no-header",
        help="The first line of a CSV or TSV file is a row. Its columns are those of the training "
        "file in their order, with or without the label, or those of the features.",
        group=TABLE,
    )
    delimiter: str | None = option(
        None,
        Delimiter(),
        "--delimiter",
        help="Character between the fields of a CSV or TSV file; the word tab stands for a tab, "
        "and auto finds the character in the first lines.  [default: that of the training file]",
        group=TABLE,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        scores, sets = self.scores, self.coverage is not None
        require(
            not (scores and self.labels != "file"), "give one of --scores and --labels, not both"
        )
        require(not (scores and self.probabilities), "give one of --scores and -b 1, not both")
        require(
            not (sets and (scores or self.probabilities)),
            "give one of --coverage, --scores and -b 1",
        )
        # A label set has any number of labels, and a table the same columns in each row.
        require(not (sets and self.keep), "give one of --coverage and --keep, not both")
        require(self.into is None or self.sql is not None, "--into is for the database of --sql")
        # The rows of a table have no order.
        require(
            self.into is None or self.keep is not None,
            "--into needs --keep, the columns that say which row a prediction is of",
        )


@record
class CertifyParams(Options):
    """The problem of a model, and the required gap.

    None, and no weights: as the model records, which other programs do not, else LIBSVM's default.
    """

    C: float | None = option(
        None,
        Number("> 0 and finite"),
        "-c",
        "--cost",
        help="C that the model was trained with.  [default: as in the model, else 1]",
        brief="C that the model was trained with.",
    )
    epsilon: float | None = option(
        None,
        Number(">= 0 and finite"),
        "-p",
        "--epsilon",
        help="svr: residuals up to this size cost nothing.  [default: as in the model, else 0.1]",
        brief="svr: residuals up to this size cost nothing.",
    )
    nu: float | None = option(
        None,
        Number("> 0 and <= 1"),
        "-n",
        "--nu",
        help="nu of one-class, nu-svc and nu-svr.  [default: as in the model, else 0.5]",
        brief="nu of one-class, nu-svc and nu-svr.",
    )
    weights: tuple[tuple[str, float], ...] = shared_option(
        (),
        WEIGHTS._replace(
            help="Class weights, as in randsvm-train.  [default: as in the model, else none]"
        ),
    )
    require_gap: float | None = option(
        None,
        Number("> 0 and < 1"),
        "--require-gap",
        help="End with exit code 75 if the gap is above this one.",
        group=STOP,
        brief="End with exit code 75 if the gap is above this one.",
    )
    row_weights: str | None = option(
        None,
        Path(),
        "--row-weights",
        help="File of weights, one line with a number for each row of TRAIN_FILE, in place of "
        "cost: in the rows. C of a row is C times its weight.",
        brief="File of weights, one line with a number for each row.",
    )
    sql: str | None = shared_option(None, SQL)

    def of(self, recorded: Mapping[str, Any]) -> CertifyParams:
        """Return the problem with what is not given from the options that a model records."""
        known = {"C": 1.0, "epsilon": 0.1, "nu": 0.5} | {**recorded}
        given = {name: getattr(self, name) for name in ("C", "epsilon", "nu", "weights")}
        own = {name: known.get(name, ()) for name, value in given.items() if value in (None, ())}
        return replace(self, **own)


# Name of an algorithm -> the classes of its options; the first has the parameters of the model.
ALGORITHMS: dict[str, tuple[type, ...]] = {
    "randsvm": (KernelParams, RandsvmParams, RoundsParams),
    "osuna": (KernelParams, OsunaParams, RoundsParams),
    "osuna-closest": (KernelParams, OsunaParams, RoundsParams),
    "sgd": (SgdParams,),
}
# The classes of the options that every algorithm has.
COMMON: tuple[type, ...] = (Search, Limits, DataParams, Resources)
