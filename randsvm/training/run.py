"""One run, from data to a model: read, scale, search, train, evaluate, save.

A signal or the time limit may end a run at any of these steps. A `Trainer`, of kernel machines or
of linear ones, supplies the training functions; this module knows no algorithm.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from randsvm import __version__
from randsvm.arrays import Matrix, to_csr
from randsvm.data.dataset import Dataset, Source, statistics_of
from randsvm.errors import ClusterError, GapError, Interrupted
from randsvm.events import (
    Notice,
    Searched,
    Started,
    Trained,
    Tried,
    Watch,
    emit,
    listening,
)
from randsvm.models import decisions
from randsvm.models.load import configuration_and_gap, save
from randsvm.models.model import Model, SeenFeatures
from randsvm.parallel import one_blas_thread
from randsvm.parameters.kernel import resolve_gamma
from randsvm.parameters.option import Grid, command_line, ineffective_flags, options
from randsvm.training import probabilities
from randsvm.training.clock import RESERVED_SECONDS, Clock, limited
from randsvm.training.job import (
    IN_MEMORY,
    AnyParams,
    Decision,
    Job,
    SearchFit,
    check_gap,
    check_paths,
    interrupted_path,
    is_existing_file,
    why_gap_too_large,
)
from randsvm.training.labelled_data import LabelledData, joint_name, load_rows
from randsvm.training.selection import Winner, check_select_by, search_metadata
from randsvm.training.stopping import Stopped, StopReason

if TYPE_CHECKING:
    from randsvm.kernels.random_features import RandomMap

AnyTrainer = TypeVar("AnyTrainer", bound="Trainer[Any]")

# The part of the time that a search may take.
SEARCH_TIME = 1 / 2
# The cross-validation for probabilities gets this many times as much time as training.
PROBABILITY_TIME = 4


class RunDescription(NamedTuple):
    """A training before it begins; see events.Started.

    arguments: the options of the algorithm other than the parameters, with defaults filled in
    notices: messages for the user
    """

    algorithm: str
    arguments: list[str]
    notices: list[str]
    working_set: int | None = None
    solve_bytes: int | None = None


class Output(NamedTuple):
    """What a run writes beside its solution.

    path: of the model; None: no file
    arguments: the configuration that the model stores
    searched: the result of the search; None: there was none
    """

    path: str | None = None
    arguments: Sequence[str] = ()
    searched: Searched | None = None


NO_OUTPUT = Output()


# --- what kernel machines and linear machines supply -----------------------------------------


@dataclass(frozen=True)
class Trainer(ABC, Generic[AnyParams]):
    """Labelled rows, and one way to train on them."""

    labelled_data: LabelledData
    job: Job

    @property
    def D(self) -> Dataset:  # noqa: N802 - the papers' name
        return self.labelled_data.D

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
            seed=self.job.run.seed,
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

    def for_parts(self: AnyTrainer) -> AnyTrainer:
        """Return a trainer for parts of the rows, which another process may train on."""
        return replace(self, job=self.job.for_parts())

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

    def fit_for_scores(self, D: Dataset, params: AnyParams, seconds: float = inf) -> Decision:
        """Train as `fit` does; return f, or one column for each of more than two classes.

        The class whose column is the largest is predicted.
        """
        decision, classes = self.fit(D, params, seconds), len(self.labelled_data.labels)
        if params.multiclass != "ovo":
            return decision

        def votes(X: Matrix) -> np.ndarray:
            f = decision(X)
            return decisions.votes(f > 0, ~(f > 0), classes)

        return votes

    def for_search(self: AnyTrainer) -> AnyTrainer:
        """Return a trainer for parts of the rows whose fits are only scored."""
        return self.for_parts()

    def search_fits(self) -> Sequence[SearchFit[AnyParams]]:
        """Return ways to make the fits of a search with shared work, the preferred one first."""
        return ()

    @property
    @abstractmethod
    def max_classes(self) -> int:
        """The largest number of classes that can be trained."""

    @abstractmethod
    def resolved(self, params: AnyParams) -> AnyParams:
        """Return the parameters with defaults that follow from the data filled in.

        Raises ParameterError for parameters that do not suit the data.
        """

    @abstractmethod
    def cost_and_lambda(self, params: AnyParams) -> tuple[float, float]:
        """Return C, and lambda = 1/(C n), the scale of CS246, Pegasos and scikit-learn."""

    @abstractmethod
    def describe(self, params: AnyParams) -> RunDescription:
        """Return the description of a training on all rows."""

    @abstractmethod
    def decision(self, D: Dataset, params: AnyParams, clock: Clock) -> Decision:
        """Train on a view of the rows until `clock` ends; return f over the random features.

        Without random features, f is over the columns of D.
        """

    @abstractmethod
    def fits_probabilities(self, params: AnyParams) -> bool:
        """Return whether probabilities are fitted to held-out rows."""

    def holds_out(self, params: AnyParams) -> bool:
        """Return whether anything is fitted to held-out rows, which takes a cross-validation."""
        return self.fits_probabilities(params) or params.conformal

    def calibration(self, params: AnyParams) -> probabilities.Calibration:
        """Return what is fitted to f of held-out rows."""
        return probabilities.calibration_of(params, self.fits_probabilities(params))

    @abstractmethod
    def start(
        self, params: AnyParams, clock: Clock, until: float, output: Output, first_fit: Any
    ) -> BatchRun[AnyParams]:
        """Return a training on all rows that has time until the moment `until`.

        first_fit: the first fit of `search_fits` with these parameters, to start from, or None
        """


# Returns what makes the trainer once the data is read, and its parameters and its job.
Prepare = Callable[
    [AnyParams, Job],
    tuple[Callable[[LabelledData, Job], Trainer[AnyParams]], AnyParams, Job],
]


# --- from data to a model --------------------------------------------------------------------


def train(
    prepare: Prepare[AnyParams],
    data: Source,
    model: str | None,
    params: AnyParams,
    job: Job,
    watch: Watch,
) -> tuple[Model, Trained]:
    """Train on the file, files or arrays `data`; write `model` (None: no file).

    Returns the model and how its training ended.

    prepare: called before the data is read, to refuse bad options early; it may fill in parameters
    and the job's defaults. Raises the errors of randsvm.errors. On any error `model` is unchanged,
    except that on Interrupted and ClusterError the best model so far, if there is one, is written.
    """
    clock = Clock(job.limits.time_limit, watch)
    job = replace(job, search=job.search.resolved())
    check_paths(data, model, job)
    check_select_by(job.search, params)
    make, params, job = prepare(params, job)
    check_gap(job, params)
    with (
        one_blas_thread(),
        listening(clock),
        clock.before_a_model(model or IN_MEMORY),
        closing(load_rows(data, params, job)) as whole,
    ):
        name = joint_name(data)
        trainer = make(LabelledData.of(whole, name, params.prediction_type), job)
        trainer.labelled_data.check_classes(name, trainer.max_classes)
        trainer.labelled_data.check_weights(params)
        # Scaling comes before defaults that follow from the features, such as -g scale.
        scaled = trainer.labelled_data.scaled(job.run.scale, zero_based=job.run.zero_based)
        trainer = replace(trainer, labelled_data=scaled)
        remarks = [*_unused_options(params), *trainer.labelled_data.remarks(params)]
        params = trainer.resolved(trainer.with_gamma(params))
        description = trainer.describe(params)
        _report_start(trainer, params, description, clock)
        for text in remarks:
            emit(Notice(text))

        def configuration(params: AnyParams, job: Job) -> list[str]:
            # The model stores the options that decide its bytes, so not the limits of time.
            arguments = [
                *_arguments_of(params),
                *description.arguments,
                *command_line(job.run, job.search),
            ]
            return [description.algorithm, *arguments]

        found = Winner(None, params)
        if job.search.is_wanted:
            from randsvm.training.search import search

            until = clock.share(SEARCH_TIME)
            fit = trainer.for_search().fit_for_scores
            found = search(trainer.D, params, fit, job, configuration, until, trainer.search_fits())
        params = found.params
        output = Output(model, configuration(params, job), found.searched)
        until = clock.share(1 / (1 + PROBABILITY_TIME * trainer.holds_out(params)))
        run = trainer.start(params, clock, until, output, found.first_fit)
        # The training frees the first fit of the search, part by part.
        del found
        with run.saved_if_interrupted():
            run.run()
            run.fit_probabilities()
            outcome = run.save(run.stopped)
        return run.result(outcome)


def _arguments_of(params: AnyParams, grid: Grid = ()) -> list[str]:
    """Return the options that make these parameters, without options that have no effect."""
    used = {f.name for f, _ in options(params) if params.uses(f.name)}
    return command_line(params, grid=grid, names=used)


def _unused_options(params: AnyParams) -> list[str]:
    """Return a message for each option without effect. LIBSVM ignores such options silently."""
    return [
        f"{option} has no effect with -s {params.task} -t {params.kernel}"
        for option in ineffective_flags(params)
    ]


def _report_start(
    trainer: Trainer[AnyParams],
    params: AnyParams,
    description: RunDescription,
    clock: Clock,
) -> None:
    """Emit the configuration of the run, and its notices."""
    D, job, (C, lambda_) = trainer.D, trainer.job, trainer.cost_and_lambda(params)
    arguments = [*_arguments_of(params, job.search.grid), *description.arguments]
    emit(
        Started(
            algorithm=description.algorithm,
            configuration=[*arguments, *command_line(job.run, job.search, job.limits)],
            n=D.n,
            d=len(D.summary.features),
            nnz=D.summary.nnz,
            C=C,
            lambda_=lambda_,
            seconds=clock.seconds,
            pass_bytes=D.store.nbytes,
            place=D.store.place,
            working_set=description.working_set,
            solve_bytes=description.solve_bytes,
            gap_asked=job.stop.wanted_gap,
        )
    )
    if D.summary.queries and D.groups is None:
        emit(Notice(f"qid: of {D.summary.queries} rows ignored"))
    if D.summary.zero_weights:
        emit(Notice(f"{D.summary.zero_weights:,} rows of weight 0 left out"))
    for text in description.notices:
        emit(Notice(text))


class TrainingRun(ABC):
    """A training, from its first step to the model that it writes.

    saved_model: the model once it is complete; None before that
    """

    clock: Clock
    saved_model: Model | None = None
    # Whether the model is written, or must not be.
    ended = False
    # Whether a signal or the cluster ended the run.
    was_interrupted = False

    @contextmanager
    def saved_if_interrupted(self) -> Iterator[None]:
        """Train and save in this block: if it is interrupted, the model so far is written.

        A signal or a failure of the cluster interrupts the block. The final model stays as it is
        once it is written. The time limit raises TimeLimitError while there is no model.
        """
        try:
            with self.clock.until(lambda: inf if self.has_model else self.clock.end):
                yield
        except (Interrupted, ClusterError) as error:
            if not self.has_model:
                error.args = (f"{error}: no model was written",)
            elif not self.ended:
                self.was_interrupted = True
                stopped = Stopped(StopReason.INTERRUPTED, (str(error),))
                self.interrupt(stopped)
                outcome = self.save(stopped)
                if (problem := self.why_written_elsewhere(outcome)) is not None:
                    error.args = (f"{error}: {problem}",)
            raise

    def save(self, stopped: Stopped) -> Trained:
        """Write the model, unless its gap is too large; emit and return the outcome."""
        with self.clock.without_deadline():
            outcome = self.outcome(stopped)
            saved = self.why_not_written(outcome) is None
            if saved:
                self.write(outcome)
            self.ended = True
            outcome = outcome._replace(seconds=self.clock.seconds, saved=saved)
            emit(outcome)
        return outcome

    def result(self, outcome: Trained) -> tuple[Model, Trained]:
        """Return the model and its outcome.

        Raises GapError if the model must not be written, or if it is written to another file
        because the existing model is better.
        """
        problem = self.why_not_written(outcome) or self.why_written_elsewhere(outcome)
        if problem is not None:
            raise GapError(problem)
        assert self.saved_model is not None
        return self.saved_model, outcome

    def why_not_written(self, outcome: Trained) -> str | None:
        """Return why the model must not be written; None: it may be."""
        return None

    def why_written_elsewhere(self, outcome: Trained) -> str | None:
        """Return why the model does not replace the existing one; None: it does."""
        return None

    def interrupt(self, stopped: Stopped) -> None:  # noqa: B027 - most runs have nothing to add
        """Complete the model after a signal or a failure of the cluster."""

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


class BatchRun(TrainingRun, Generic[AnyParams]):
    """A training on a whole file, on arrays, or on some of their rows.

    stopped: why it ended
    """

    trainer: Trainer[AnyParams]
    params: AnyParams
    output: Output
    stopped: Stopped
    # The fields of the model for probabilities.
    calibrated: Mapping[str, Any] = MappingProxyType({})
    # The gap of the model in the file, if it is better and stays there.
    better_gap: float | None = None

    @abstractmethod
    def run(self) -> None:
        """Train and evaluate, as far as time allows."""

    @abstractmethod
    def own_outcome(self, stopped: str) -> Trained:
        """Return the event that describes the result. stopped: why the training ended."""

    @abstractmethod
    def metadata(self, outcome: Trained) -> dict[str, str]:
        """Return the entries of the model's trailer that this way of training adds."""

    @abstractmethod
    def model(self, **common: Any) -> Model:
        """Return the model; common: the fields that every model has."""

    def fit_probabilities(self) -> None:
        """Fit the probabilities that take a cross-validation."""
        trainer = self.trainer
        if trainer.holds_out(self.params):
            self.calibrated = probabilities.fit_by_cross_validation(
                trainer.D,
                self.params,
                trainer.for_parts().fit,
                trainer.calibration(self.params),
                trainer.job,
                self.clock.end - RESERVED_SECONDS,
            )

    @property
    def name(self) -> str:
        """The name of the model in messages."""
        return self.output.path or IN_MEMORY

    @property
    def cross_validation(self) -> Tried | None:
        """The result of the parameters that were chosen; None: no cross-validation."""
        searched = self.output.searched
        return None if searched is None else searched.tried[0]

    def outcome(self, stopped: Stopped) -> Trained:
        outcome = self.own_outcome(str(stopped))
        if self.was_interrupted or stopped.reason is StopReason.TIME_LIMIT:
            self.better_gap = self._gap_of_better_model(outcome)
        if self.better_gap is not None:
            outcome = outcome._replace(model=interrupted_path(self.name))
        return outcome

    def _gap_of_better_model(self, outcome: Trained) -> float | None:
        """Return the gap of the model in `path` if it is for this task and below the outcome's.

        None: there is no such model, or this training was to certify no gap.
        """
        path = self.output.path
        if path is None or self.trainer.job.limits.overwrite or not is_existing_file(path):
            return None
        if isnan(outcome.gap) and outcome.gap_asked is None:
            return None
        old = configuration_and_gap(path)
        if old is None or outcome.gap <= old[1]:
            return None
        arguments = shlex.split(old[0])
        tasks = [task for option, task in pairwise(arguments) if option == "-s"]
        return old[1] if tasks == [self.params.task] else None

    def why_written_elsewhere(self, outcome: Trained) -> str | None:
        if self.better_gap is None:
            return None
        new = "not certified" if isnan(outcome.gap) else f"{outcome.gap:.3g}"
        return (
            f"{self.name} stays (gap {self.better_gap:.3g}), the new model (gap {new}) is "
            f"{outcome.model}; --overwrite replaces the old one"
        )

    def why_not_written(self, outcome: Trained) -> str | None:
        # Without a certificate no gap is required: see check_gap.
        return why_gap_too_large(self.trainer.job, outcome.gap, self.name)

    def write(self, outcome: Trained) -> None:
        labelled_data = self.trainer.labelled_data
        zero_based = self.trainer.job.run.zero_based
        self.saved_model = self.model(
            labels=labelled_data.labels,
            zero_based=zero_based or labelled_data.D.summary.has_row_numbers,
            seen=SeenFeatures.of(labelled_data.D.summary.features),
            scaling=labelled_data.D.scaling,
            float64=labelled_data.D.summary.float64,
            columns=labelled_data.D.summary.columns,
            metadata=self._metadata(outcome),
            **self.calibrated,
        )
        if self.output.path is not None:
            save(self.saved_model, outcome.model)

    def _metadata(self, outcome: Trained) -> dict[str, Any]:
        """Return the entries of the model's trailer. Equal runs have equal entries."""
        D = self.trainer.D
        return {
            "version": __version__,
            "configuration": shlex.join(self.output.arguments),
            "seed": self.trainer.job.run.seed,
            "n": D.n,
            "d": len(D.summary.features),
            "nnz": D.summary.nnz,
            "digest": D.summary.digest,
            "C": self.trainer.cost_and_lambda(self.params)[0],
            **self.metadata(outcome),
            **search_metadata(self.output.searched),
        }
