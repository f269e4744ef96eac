"""One run, from data to a model: read, scale, search, train, evaluate, save.

A signal or the time limit may end a run at any of these steps. A `Trainer`, of kernel machines or
of linear ones, supplies the training functions; this module knows no algorithm.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from math import inf, isnan, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import numpy as np

from randsvm import __version__, files
from randsvm.arrays import to_csr
from randsvm.data import dataset, row_weights
from randsvm.data.classes import labelled_classes
from randsvm.data.columns import Format, TableOptions, is_many
from randsvm.data.dataset import Dataset, Source, fitted_scaling, statistics_of
from randsvm.data.in_memory import Arrays
from randsvm.data.kept_rows import write_rows
from randsvm.data.labels import label_values
from randsvm.data.svmlight import ParseOptions
from randsvm.errors import (
    ClusterError,
    DataError,
    GapError,
    InfeasibleError,
    Interrupted,
    OutputError,
    RandsvmError,
    TransferError,
    quoted,
)
from randsvm.events import (
    Notice,
    Searched,
    Started,
    Trained,
    Tried,
    Underway,
    Watch,
    emit,
    listening,
)
from randsvm.files import display_name, display_output
from randsvm.models.metadata import Metadata
from randsvm.models.model import ONE_CLASS_LABELS, Model
from randsvm.models.model_text import metadata_of, save
from randsvm.parallel import one_blas_thread
from randsvm.parameters.option import Grid, command_line, ineffective_flags, option_fields, require
from randsvm.parameters.rounds import RoundsParams
from randsvm.parameters.run import Resources, Search
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import KernelParams, resolve_gamma, weights_of_labels
from randsvm.records import record
from randsvm.training.cross_validation import (
    check_select_by,
    concurrent_fits,
    fit_anew,
    fit_by_cross_validation,
)
from randsvm.training.job import (
    IN_MEMORY,
    RESERVED_SECONDS,
    AnyParams,
    Clock,
    Decision,
    FoldFit,
    Job,
    Stopped,
    StopReason,
    TimeLimitError,
    check_gap,
    check_paths,
    interrupted_path,
    is_existing_file,
    limited,
    never,
)
from randsvm.training.probabilities import calibration_of

if TYPE_CHECKING:
    from randsvm.kernels.random_features import RandomMap

# More integer classes than this look like the targets of a regression.
MANY_INTEGERS = 20


def labelled(whole: Dataset, path: str, prediction_type: str) -> tuple[Dataset, tuple[str, ...]]:
    """Return the rows and the labels of the model. prediction_type: "svc", "svr" or "one-class".

    y are class indices (positions in the labels) or the targets of a regression. Novelty detection
    has the labels "1" and "-1", in this order. Raises DataError for a classification with a single
    class.
    """
    if prediction_type == "svr":
        return whole, ()
    labels = whole.summary.labels
    if prediction_type == "one-class":
        indices = {label: index for index, label in enumerate(ONE_CLASS_LABELS)}
        values = [str(*label_values([label])) for label in labels]
        D = whole.relabel(np.array([indices.get(value, len(indices)) for value in values], float))
        return D, ONE_CLASS_LABELS
    D, order = labelled_classes(whole, path)
    return D, tuple(labels[i] for i in order)


def load_rows(data: Source, params: KernelParams | SgdParams, job: Job) -> Dataset:
    """Read the rows of a file or of arrays.

    Raises DataError for bad text, and InputError for a file that cannot be opened or read.
    """
    options = _parse_options(data, params, job)
    load = dataset.load if job.resources.cluster is None else _load_on_cluster
    D = load(data, options, job.resources)
    if D.summary.columns is not None:
        for text in D.summary.columns.notices(D.n):
            emit(Notice(text))
    return D


def _parse_options(data: Source, params: KernelParams | SgdParams, job: Job) -> ParseOptions:
    """Return how the rows are parsed. Raise ParameterError for options that exclude each other."""
    if job.data_params.row_weights is not None:
        check_row_weights(data, job)
    row_numbers = params.kernel == "precomputed"
    groups = job.search.groups == "qid"
    lacks_groups = isinstance(data, Arrays) and groups and data.groups is None
    require(not lacks_groups, "--groups qid needs groups in Arrays")
    require(groups or job.data_params.group_column is None, "--group-column is for --groups qid")
    return ParseOptions(
        labels="number" if params.prediction_type == "svr" else "class",
        any_label=params.task == "one-class",
        zero_based=job.data_params.zero_based or row_numbers,
        has_row_numbers=row_numbers,
        row_weights=job.data_params.row_weights,
        groups=groups,
        table=_table_options(data, params, job, row_numbers),
    )


def _load_on_cluster(data: Source, options: ParseOptions, resources: Resources) -> Dataset:
    """Return rows that the workers of a cluster scan.

    Raises ClusterError, also if the cluster is not reached before the time limit.
    """
    # Imported here since dask is optional, and its import takes a second.
    from randsvm.cluster import executor

    address = resources.cluster
    assert address is not None
    try:
        worker_pool = executor.connect(address)
    except TimeLimitError:
        words = f"cannot reach the cluster {address} before --time-limit is over"
        raise ClusterError(words) from None
    try:
        # Workers may start while this process reads.
        return executor.scan_on(worker_pool, dataset.load(data, options, resources), resources)
    except BaseException:
        worker_pool.close()
        raise


def _table_options(
    data: Source, params: KernelParams | SgdParams, job: Job, row_numbers: bool
) -> TableOptions | None:
    """Return how a table is read; None for svmlight. Raise ParameterError."""
    how = job.data_params
    if not how.is_table:
        return None
    require(not isinstance(data, Arrays), "--format is for files, not for arrays")
    require(not row_numbers, "-t precomputed reads svmlight files, not tables")
    table = f"--format {how.format}" if how.sql is None else "--sql"
    require(
        how.label_column is not None or params.task == "one-class",
        f"{'--sql' if how.sql else 'a table'} needs --label-column NAME, the column to predict",
    )
    require(
        how.group_column is not None or job.search.groups != "qid",
        f"--groups qid needs --group-column with {table}",
    )
    return TableOptions(
        # Files for the model of a query have its types of columns.
        cast("Format", how.format or "parquet"),
        how.label_column,
        how.ignore_columns or "",
        not how.no_header,
        how.missing is not None,
        how.group_column,
        how.categorical_columns or "",
        how.missing_values or "",
        how.keep_index,
        how.delimiter or "",
    )


def check_row_weights(data: Source, job: Job) -> None:
    """Raise ParameterError if the weights cannot be read from a file."""
    require(not isinstance(data, Arrays), "--row-weights is for files: give the weights in Arrays")
    assert job.data_params.row_weights is not None
    row_weights.check_path(job.data_params.row_weights)


def joint_name(data: Source) -> str:
    """Return the name of the data for messages."""
    return str(data) if isinstance(data, Arrays) else files.joint_name(data)


AnyTrainer = TypeVar("AnyTrainer", bound="Trainer[Any]")

# The reasons with which a model replaces no better one.
BROKEN_OFF = StopReason.INTERRUPTED, StopReason.TIME_LIMIT, StopReason.CALLBACK
# The part of the time that a search may take.
SEARCH_TIME = 1 / 2
# The cross-validation for probabilities gets this many times as much time as training.
PROBABILITY_TIME = 4


# --- what kernel machines and linear machines supply -----------------------------------------


class StartDetails(NamedTuple):
    """The part of the events about a training that depends on its kind of machine.

    arguments: the options of the algorithm other than the parameters, with their defaults
    notices: messages for the user
    fields: further fields of Started
    """

    arguments: Sequence[str] = ()
    notices: Sequence[str] = ()
    fields: Mapping[str, Any] = MappingProxyType({})


@record
class Plan(Generic[AnyParams]):
    """The parameters, time and files of a training, fixed before its first step.

    training_end: the moment when the time for rounds or steps is over
    path: the file of the model; None: none is written
    arguments: returns the configuration that a model with some parameters stores
    searched: the result of the search; None: there was none
    database: the name of the database of --sql; None: the rows are not from one
    """

    params: AnyParams
    training_end: float
    path: str | None = None
    arguments: Callable[[AnyParams], list[str]] = command_line
    searched: Searched | None = None
    database: str | None = None


class Trainer(ABC, Generic[AnyParams]):
    """One way to train, and the labelled rows once they are read; see `labelled`.

    It stays as it was made: each step before the training returns another one that knows more.
    """

    D: Dataset
    labels: tuple[str, ...]

    def __init__(self, name: str, job: Job) -> None:
        """name: of the algorithm."""
        self.name, self.job = name, replace(job, search=job.search.resolved())

    def with_rows(self: AnyTrainer, whole: Dataset, path: str, params: AnyParams) -> AnyTrainer:
        """Return a trainer on the rows of the file `path`, labelled and scaled.

        Raises DataError if the rows cannot be trained on.
        """
        other = copy(self)
        D, labels = other.D, other.labels = labelled(whole, path, params.prediction_type)
        if len(labels) > other.max_classes:
            problem = f"expected at most {other.max_classes:,} classes, found {len(labels):,}"
            numbers = isinstance(label_values(labels)[0], int)
            hint = " (-s svr takes numbers as targets)" if numbers else ""
            raise DataError(display_name(path), 1, 1, problem + hint)
        if labels:
            weights_of_labels(params.weights, labels)
        # Scaling comes before defaults that follow from the features, such as -g scale.
        how = self.job.data_params
        if how.scale is not None:
            other.D = D.scaled(fitted_scaling(D, how.scale, how.zero_based))
        return other

    def map_of(self, params: AnyParams) -> RandomMap | None:
        """Return the random features that approximate the kernel, or None."""
        if params.components is None:
            return None
        from randsvm.kernels.random_features import RandomMap

        return RandomMap(
            kernel=params.kernel,
            components=params.components,
            gamma=self.gamma_of(params, 1.0 if params.kernel == "poly" else None),
            coef0=params.coef0,
            degree=params.degree,
            seed=self.job.data_params.seed,
        )

    def gamma_of(self, params: AnyParams, default: float | None = None) -> float:
        """Return gamma as a number; default: see resolve_gamma."""
        d = len(self.D.summary.features)
        return resolve_gamma(params.gamma, d, lambda: statistics_of(self.D).variance, default)

    def with_gamma(self, params: AnyParams) -> AnyParams:
        """Return the parameters with a number in place of the word `scale`."""
        if not isinstance(params.gamma, str):
            return params
        return replace(params, gamma=self.gamma_of(params) if params.uses("gamma") else None)

    def for_parts(self: AnyTrainer, stop: RoundsParams | None = None) -> AnyTrainer:
        """Return a trainer for parts of the rows, which another process may train on.

        stop: in place of that of the job
        """
        other, stop = copy(self), replace(stop or self.job.stop, warm_start=None)
        other.job = replace(self.job, search=Search(), stop=stop)
        return other

    def fit(self, D: Dataset, params: AnyParams, seconds: float = inf) -> Decision:
        """Train on a view of the rows within about `seconds`; return f, in the model's columns.

        Raises TimeLimitError if there is no solution by then.
        """
        with limited(seconds) as clock:
            decision, mapping = self.decision(D, params, clock), self.map_of(params)
        if mapping is None:
            return decision
        prepared = mapping.over(D.summary.features)
        return lambda X: decision(prepared.values(to_csr(X)))

    @contextmanager
    def ways_to_fit(
        self, D: Dataset, candidates: Sequence[AnyParams]
    ) -> Iterator[tuple[Sequence[FoldFit[AnyParams]], int]]:
        """Yield ways to fit parts of a view of the rows, and the number of concurrent fits.

        A way takes the parameters of any candidate; see `search.WaysToFit`.
        """
        yield [partial(fit_anew, D, self.for_parts().fit)], concurrent_fits(D, self.job)

    @property
    @abstractmethod
    def max_classes(self) -> int:
        """The largest number of classes that can be trained."""

    @abstractmethod
    def prepared(self: AnyTrainer, params: AnyParams) -> tuple[AnyTrainer, AnyParams]:
        """Return a trainer and parameters with the defaults that need no data, also those of the
        job.

        Raises ParameterError for options that exclude each other.
        """

    @abstractmethod
    def resolved(self, params: AnyParams) -> AnyParams:
        """Fill in the defaults that follow from the data; return the parameters.

        Raises ParameterError for parameters that do not suit the data.
        """

    @abstractmethod
    def cost_and_lambda(self, params: AnyParams) -> tuple[float, float]:
        """Return C, and lambda = 1/(C n), the scale of CS246, Pegasos and scikit-learn."""

    @abstractmethod
    def described(self, params: AnyParams) -> StartDetails:
        """Return that part of the events about a training on all rows."""

    @abstractmethod
    def decision(self, D: Dataset, params: AnyParams, clock: Clock) -> Decision:
        """Train on a view of the rows until `clock` ends; return f over the random features.

        Without random features, f is over the columns of D.
        """

    @abstractmethod
    def new_run(self, plan: Plan[AnyParams], clock: Clock) -> FileRun[AnyParams]:
        """Return a training on all rows."""


# --- from data to a model --------------------------------------------------------------------


def train(
    trainer: Trainer[AnyParams], data: Source, model: str | None, params: AnyParams, watch: Watch
) -> tuple[Model, Trained]:
    """Train on the file, files or arrays `data`; write `model` (None: no file).

    Returns the model and how its training ended.

    Raises the errors of randsvm.errors. On any error the best model so far, if there is one, is
    written, as after a signal; otherwise `model` is unchanged.
    """
    job = trainer.job
    clock = Clock(job.limits.time_limit, watch)
    check_paths(data, model, job)
    check_select_by(job.search, params)
    trainer, params = trainer.prepared(params)
    job = trainer.job  # with its defaults
    check_gap(job, params)
    run: FileRun[AnyParams] | None = None
    with (
        one_blas_thread(),
        listening(clock),
        clock.before_a_model(model or IN_MEMORY, lambda: run is not None and run.has_model),
        closing(load_rows(data, params, job)) as whole,
    ):
        if job.limits.keep_rows is not None:
            write_rows(whole, job.limits.keep_rows, params.task == "one-class")
        trainer = trainer.with_rows(whole, joint_name(data), params)
        run = trainer.new_run(_plan(trainer, data, model, params, clock), clock)
        emit(Underway(run.so_far, run.stop))
        with run.saved_if_broken_off():
            run.run()
            run.complete()
            outcome = run.save(run.ended_by)
        return run.result(outcome)


def _plan(
    trainer: Trainer[AnyParams], data: Source, model: str | None, params: AnyParams, clock: Clock
) -> Plan[AnyParams]:
    """Fill in the parameters that depend on the rows, report the start, and search for the best.

    data, model: as of `train`
    """
    job = trainer.job
    remarks = _remarks(trainer, params)
    params = trainer.resolved(trainer.with_gamma(params))
    described = trainer.described(params)
    _report_start(trainer, params, described, clock)
    for text in [*described.notices, *remarks]:
        emit(Notice(text))

    def configuration(params: AnyParams, job: Job = job) -> list[str]:
        # The model stores the options that decide its bytes, so not the limits of time.
        arguments = [*_arguments_of(params), *described.arguments]
        return [trainer.name, *arguments, *command_line(job.data_params, job.search)]

    searched = None
    if job.search.is_wanted:
        from randsvm.training.search import search

        until = clock.share(SEARCH_TIME)
        searched, params = search(trainer.D, params, trainer.ways_to_fit, job, configuration, until)
    return Plan(
        params,
        clock.share(1 if calibration_of(params) is None else 1 / (1 + PROBABILITY_TIME)),
        model,
        configuration,
        searched,
        None if job.data_params.sql is None else joint_name(data),
    )


def _arguments_of(params: AnyParams, grid: Grid = ()) -> list[str]:
    """Return the options that make these parameters, without options that have no effect."""
    used = {f.name for f, _ in option_fields(params) if params.uses(f.name)}
    return command_line(params, grid=grid, names=used)


def _remarks(trainer: Trainer[AnyParams], params: AnyParams) -> list[str]:
    """Return messages for the user about parameters, labels and scaling."""
    K, scaling = len(trainer.labels), trainer.D.scaling
    # LIBSVM ignores such options silently.
    remarks = [
        f"{option} has no effect with -s {params.task} -t {params.kernel}"
        for option in ineffective_flags(params)
    ]
    if K > MANY_INTEGERS and isinstance(label_values(trainer.labels)[0], int):
        remarks.append(f"{K:,} different numbers as classes: was -s svr, a regression, meant?")
    elif is_many(K, trainer.D.n):
        found = f"{K:,} classes in {trainer.D.n:,} rows, such as {quoted(trainer.labels[0])}"
        remarks.append(f"{found}: was -s svr, a regression with plain numbers as targets, meant?")
    if params.task == "one-class" and trainer.job.search.is_wanted:
        unknown = np.flatnonzero(trainer.D.targets == len(ONE_CLASS_LABELS))
        if len(unknown):
            label = quoted(trainer.D.summary.labels[unknown[0]])
            remarks.append(f"labels other than 1 and -1, such as {label}, are scored as wrong")
    if params.multiclass and K == 2:
        remarks.append(f"--multiclass {params.multiclass} has no effect with two classes")
    if scaling is not None and scaling.factor is not None and not scaling.stores_all:
        by = {"minmax": "largest absolute value", "standard": "standard deviation"}
        some = (
            "all features" if scaling.shift is None else "mostly zero features and those of texts"
        )
        remarks.append(
            f"--scale {scaling.name} divides {some} by their {by[scaling.name]}, without a shift, "
            "so that zeros stay zeros; there is nothing to do"
        )
    return remarks


def _report_start(
    trainer: Trainer[AnyParams], params: AnyParams, described: StartDetails, clock: Clock
) -> None:
    """Emit the configuration of the run, and what was left out of the data."""
    D, job = trainer.D, trainer.job
    is_searched = not {"C", "lambda_"}.isdisjoint(dict(job.search.grid))
    C, lambda_ = (None, None) if is_searched else trainer.cost_and_lambda(params)
    arguments = [*_arguments_of(params, job.search.grid), *described.arguments]
    arguments += ["--path"] * job.search.path
    arguments += command_line(job.stop, names={"warm_start"})
    emit(
        Started(
            algorithm=trainer.name,
            configuration=[*arguments, *command_line(job.data_params, job.search, job.limits)],
            n=D.n,
            d=len(D.summary.features),
            nnz=D.summary.nnz,
            C=C,
            lambda_=lambda_,
            seconds=clock.seconds,
            pass_bytes=D.store.nbytes,
            place=D.store.place,
            **described.fields,
        )
    )
    if D.summary.queries and D.groups is None:
        emit(Notice(f"qid: of {D.summary.queries} rows ignored"))
    if D.summary.zero_weights:
        emit(Notice(f"{D.summary.zero_weights:,} rows of weight 0 left out"))


def words_of(error: Exception) -> str:
    """Return the words for an error in messages and in the model."""
    if isinstance(error, MemoryError):
        return "out of memory"
    return str(error) if isinstance(error, RandsvmError) else f"{type(error).__name__}: {error}"


class TrainingRun(ABC):
    """A training, from its first step to the model that it writes.

    path: the file of the model; None: none is written
    saved_model: the model once it is complete; None before that
    problem: why the model is not in the file that was named; None: it is
    saving: why the training of the model ended that is being written; None: not yet
    ended: whether `save` has ended: the model is written, or stays unwritten for good
    """

    clock: Clock
    path: str | None
    saved_model: Model | None = None
    problem: str | None = None
    saving: Stopped | None = None
    ended = False
    # Whether an error other than a signal leaves the file as it was: the model so far then goes to
    # that of an interrupted run.
    keeps_file_on_error = False
    # What the model so far is of, for messages.
    extent = ""

    @contextmanager
    def saved_if_broken_off(self) -> Iterator[None]:
        """Train and save in this block: if an error ends it, the model so far is written.

        The final model stays as it is once it is written. The time limit raises TimeLimitError
        while there is no model.
        """
        try:
            # Once there is a model, the limit ends the phases of its training, and `save` follows.
            with self.clock.until(lambda: inf if self.has_model else self.clock.end):
                yield
        except Exception as error:
            is_interruption = isinstance(error, Interrupted | ClusterError)
            # With a pair of classes that admits no model there is none of all classes.
            is_lost = self.path is None or self.ended or isinstance(error, InfeasibleError)
            if self.has_model and not is_lost:
                fate = self._fate_after(error)
                # A signal asks for the model so far: its place is worth a word if it is another, or
                # if there is none.
                if fate is not None and (self.problem is not None or not is_interruption):
                    error.args = (f"{words_of(error)}: {fate}",)
            raise

    def _fate_after(self, error: Exception) -> str | None:
        """Save the model so far after an error; return what became of it, or None if it is lost and
        the error says so itself.

        If its file cannot be written, it is written to that of an interrupted run.
        """
        stopped = Stopped(StopReason.INTERRUPTED, (words_of(error),))
        # A failed write leaves a file as it was, but not standard output.
        is_file = self.path is not None and self.path not in files.STANDARD_OUTPUTS
        places = [None, interrupted_path(self.name)] if is_file else [None]
        if self.keeps_file_on_error and not isinstance(error, Interrupted):
            places = places[1:]
        if self.saving is None:
            self.interrupt(stopped)
        elif is_file:
            stopped = self.saving
        else:
            return None
        failures = []
        for place in places:
            try:
                outcome = self.save(stopped, place)
            except (OutputError, TransferError) as failure:
                failures.append(failure)
            else:
                return self.problem or f"the model{self.extent} so far is {outcome.model}"
        if not failures or not isinstance(error, Interrupted | ClusterError):
            return None
        self.problem = f"no model was written: {failures[0]}"
        return self.problem

    def save(self, stopped: Stopped, path: str | None = None) -> Trained:
        """Write the model, unless its gap is too large; emit and return the outcome.

        path: the file in place of the one that was named.
        """
        with self.clock.until(never):
            outcome, self.problem = self.placed(self.outcome(stopped), stopped)
            if path is not None and outcome.saved:
                outcome, self.problem = outcome._replace(model=path), None
            self.saving = stopped
            if outcome.saved:
                self.write(outcome)
            self.ended = True
            outcome = outcome._replace(seconds=self.clock.seconds)
            emit(outcome)
            if outcome.saved:
                self.write_transcript(outcome)
        return outcome

    def result(self, outcome: Trained) -> tuple[Model, Trained]:
        """Return the model and its outcome.

        Raises GapError if the model must not be written, or if it is written to another file
        because the existing model is better.
        """
        if self.problem is not None:
            raise GapError(self.problem)
        assert self.saved_model is not None
        return self.saved_model, outcome

    def placed(self, outcome: Trained, stopped: Stopped) -> tuple[Trained, str | None]:
        """Return the outcome with the file that the model goes to, if any, and the problem: why
        that is not the file that was named. None: it is."""
        return outcome, None

    def interrupt(self, stopped: Stopped) -> None:  # noqa: B027 - most runs have nothing to add
        """Complete the model after an error."""

    def write_transcript(self, outcome: Trained) -> None:  # noqa: B027 - an update writes none
        """Write the file of --certificate, if it is asked for. The model is written."""

    @property
    def name(self) -> str:
        """The name of the model in messages."""
        return self.path or IN_MEMORY

    @property
    @abstractmethod
    def has_model(self) -> bool:
        """Return whether there is a model to write."""

    @abstractmethod
    def outcome(self, stopped: Stopped) -> Trained:
        """Return the event that describes the result."""

    @abstractmethod
    def write(self, outcome: Trained) -> None:
        """Set `saved_model`, and write it to its file."""


class FileRun(TrainingRun, Generic[AnyParams]):
    """A training on a whole file, on arrays, or on some of their rows.

    stopped: why it ended
    training_end: that of the plan, or earlier if the training is to end
    calibrated: the fields of the model for probabilities
    """

    stopped: Stopped
    calibrated: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, trainer: Trainer[AnyParams], plan: Plan[AnyParams], clock: Clock) -> None:
        self.trainer, self.plan, self.clock = trainer, plan, clock
        self.path, self.params, self.training_end = plan.path, plan.params, plan.training_end

    @abstractmethod
    def run(self) -> None:
        """Train and evaluate, as far as time allows."""

    @abstractmethod
    def metadata(self, outcome: Trained) -> dict[str, Any]:
        """Return the fields of Metadata that this way of training adds."""

    @abstractmethod
    def model(self, **common: Any) -> Model:
        """Return the model; common: the fields that every model has."""

    def complete(self) -> None:
        """Fit the probabilities that take a cross-validation."""
        trainer = self.trainer
        calibration = calibration_of(self.params)
        if calibration is not None:
            found = fit_by_cross_validation(
                trainer.D,
                self.params,
                trainer.for_parts().fit,
                calibration,
                trainer.job,
                self.clock.end - RESERVED_SECONDS,
            )
            self.calibrated = {**self.calibrated, **found}

    @property
    def cross_validation(self) -> Tried | None:
        """The result for the parameters; None: no cross-validation."""
        searched, own = self.plan.searched, vars(self.params)
        tried = [] if searched is None else searched.tried
        return next((one for one in tried if one.values.items() <= own.items()), None)

    def placed(self, outcome: Trained, stopped: Stopped) -> tuple[Trained, str | None]:
        required, gap = self.trainer.job.limits.require_gap, outcome.gap
        if required is not None and not gap <= required:
            reason = f"gap {gap:.3g} is above {required:g} (--require-gap)"
            if isnan(gap):
                reason = f"the gap is unknown, and --require-gap asks for {required:g}"
            problem = f"{reason}: {display_output(self.name)} is left as it was"
            return outcome._replace(saved=False), problem
        if stopped.reason not in BROKEN_OFF:
            return outcome, None
        better = self._gap_of_better_model(self.path, outcome)
        if better is None:
            return outcome, None
        new, path = "not certified" if isnan(gap) else f"{gap:.3g}", interrupted_path(self.name)
        # An earlier interrupted run may have left a better model there, too.
        kept = self._gap_of_better_model(path, outcome)
        fate = f"is {path}"
        if kept is not None:
            fate = f"is not written, as {path} also stays (gap {kept:.3g})"
        return outcome._replace(model=path, saved=kept is None), (
            f"{self.name} stays (gap {better:.3g}), the new model (gap {new}) {fate}; "
            "--overwrite replaces the old one"
        )

    def _gap_of_better_model(self, path: str | None, outcome: Trained) -> float | None:
        """Return the gap of the model in a file if it is for this task and below the outcome's.

        None: there is no such model, or the new one has no gap, and none was asked for.
        """
        if path is None or self.trainer.job.limits.overwrite or not is_existing_file(path):
            return None
        if isnan(outcome.gap) and outcome.gap_asked is None:
            return None
        old = metadata_of(path)
        if old is None or old.gap is None or isnan(old.gap) or outcome.gap <= old.gap:
            return None
        return old.gap if old.options.get("task") == self.params.task else None

    def stop(self) -> None:
        """End the rounds or steps; what follows them keeps its time."""
        self.training_end = -inf
        self.clock.stopping.set()

    @property
    def ended_by(self) -> Stopped:
        """Why the training ended, also if a listener ended it."""
        stopped = self.stopped
        if stopped.reason is StopReason.TIME_LIMIT and self.clock.stopping.is_set():
            return Stopped(StopReason.CALLBACK)
        return stopped

    def so_far(self) -> tuple[Model, Trained] | None:
        """Return the model so far, uncertified, and its outcome by running values; None: none."""
        if not self.has_model:
            return None
        outcome = self.outcome(Stopped(StopReason.CHECKPOINT))
        return self._joined(outcome._replace(gap=nan, largest_gap=None)), outcome

    def write(self, outcome: Trained) -> None:
        self.saved_model = self._joined(outcome)
        if self.path is not None:
            save(self.saved_model, outcome.model)

    def _joined(self, outcome: Trained) -> Model:
        """Return the model with all that its file holds."""
        trainer, summary = self.trainer, self.trainer.D.summary
        return self.model(
            labels=trainer.labels,
            zero_based=trainer.job.data_params.zero_based or summary.has_row_numbers,
            seen=summary.features,
            scaling=trainer.D.scaling,
            float64=summary.float64,
            columns=summary.columns,
            metadata=self._metadata(outcome),
            **self.calibrated,
        )

    def _metadata(self, outcome: Trained) -> Metadata:
        """Return the metadata of the model. Equal runs have equal metadata."""
        D, of_search, best = self.trainer.D, dict[str, Any](), self.cross_validation
        if best is not None:
            score = f"{best.score_name} {best.score!r}"
            of_search = {"cross_validation": score, "cross_validation_rows": best.rows}
        searched = self.plan.searched
        if searched is not None and searched.of > 1:
            of_search["searched"] = len(searched.tried)
        return Metadata(
            version=__version__,
            configuration=shlex.join(self.plan.arguments(self.params)),
            database=self.plan.database,
            seed=self.trainer.job.data_params.seed,
            n=D.n,
            d=len(D.summary.features),
            nnz=D.summary.nnz,
            digest=D.summary.digest,
            C=self.trainer.cost_and_lambda(self.params)[0],
            **self.metadata(outcome),
            **of_search,
        )
