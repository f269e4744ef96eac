"""One run, from files to a model: read, scale, search, learn, evaluate, save.

A signal or the time limit may end it at any of them. What is learnt, and how, trainer.py's
`Training` and `Learning` say; this file knows no algorithm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isnan, nan
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from randsvm import __version__
from randsvm.arrays import Matrix
from randsvm.data.dataset import Dataset, Source, statistics_of
from randsvm.errors import ClusterError, GapError, Interrupted
from randsvm.events import Learnt, Notice, Searched, Started, Trained, Tried, Watch, emit, listening
from randsvm.kernels.random_features import RandomMap
from randsvm.models import decisions
from randsvm.models.load import certified
from randsvm.models.metadata import SeenFeatures
from randsvm.models.model import Model
from randsvm.parameters.option import Grid, command_line, idle, options
from randsvm.parameters.problem import resolve_gamma
from randsvm.training import grid_search, probabilities
from randsvm.training.clock import LATE, Clock, limited
from randsvm.training.job import (
    IN_MEMORY,
    Decision,
    Job,
    P,
    beside,
    check_gap,
    check_paths,
    lack_of_gap,
    may_stay,
)
from randsvm.training.labelled_data import LabelledData, load_rows, name_of
from randsvm.training.stopping import TIME_LIMIT

Outcome = TypeVar("Outcome", bound=Trained | Learnt)
Kind = TypeVar("Kind", bound="Trainer[Any, Any]")


class Outline(NamedTuple):
    """What a training tells of itself before it begins; see events.Started.

    words: its own options besides its parameters, resolved. notices: what the user should know.
    """

    algorithm: str
    words: list[str]
    notices: list[str]
    working_set: int | None = None
    solve_bytes: int | None = None


class Ending(NamedTuple):
    """What every outcome has. cross_validation: of the parameters that were taken."""

    model: str
    cross_validation: Tried | None
    stopped: str
    seconds: float


@dataclass(frozen=True)
class Trainer(ABC, Generic[P, Outcome]):
    """What is to be learnt, and one way to learn it."""

    labelled_data: LabelledData
    job: Job

    @property
    def D(self) -> Dataset:  # noqa: N802 - the papers' name
        return self.labelled_data.D

    def map_of(self, params: P) -> RandomMap | None:
        """The random features that stand for the kernel; None: there are none."""
        if params.components is None:
            return None
        return RandomMap(
            kernel=params.kernel,
            components=params.components,
            gamma=self.gamma_of(params, 1.0 if params.kernel == "poly" else None),
            coef0=params.coef0,
            degree=params.degree,
            seed=self.job.run.seed,
            exact=params.exact,
        )

    def gamma_of(self, params: P, default: float | None = None) -> float:
        """Return gamma as a number; default: see resolve_gamma."""
        d = len(self.D.summary.features)
        return resolve_gamma(params.gamma, d, lambda: statistics_of(self.D).variance, default)

    def with_gamma(self, params: P) -> P:
        """Return the parameters with a number in place of the word `scale`."""
        if not isinstance(params.gamma, str):
            return params
        return replace(params, gamma=self.gamma_of(params) if params.uses("gamma") else None)

    def for_parts(self: Kind) -> Kind:
        """The same for parts of the rows, which may be learnt elsewhere."""
        return replace(self, job=self.job.for_parts())

    def fit(self, D: Dataset, params: P, seconds: float = inf) -> Decision:
        """What is learnt from a view of the rows in so many seconds, or a little more, with the
        columns that the model has. Raises TimeLimitError where that is nothing."""
        with limited(seconds) as clock:
            decision, mapping = self.decision(D, params, clock), self.map_of(params)
        if mapping is None:
            return decision
        prepared = mapping.over(D.summary.features)
        return lambda X: decision(prepared.values(X))

    def scoring(self, D: Dataset, params: P, seconds: float = inf) -> Decision:
        """The same, with a column for each class, of which the largest is predicted, where there
        are more than two."""
        decision, classes = self.fit(D, params, seconds), len(self.labelled_data.labels)
        if params.multiclass != "ovo":
            return decision

        def votes(X: Matrix) -> np.ndarray:
            f = decision(X)
            return decisions.votes(f > 0, ~(f > 0), classes)

        return votes

    @property
    @abstractmethod
    def most_classes(self) -> int:
        """How many classes may be told apart."""

    @abstractmethod
    def resolved(self, params: P) -> P:
        """What was left open filled in. Raises ParameterError for what does not suit the data."""

    @abstractmethod
    def scales(self, params: P) -> tuple[float, float]:
        """C and lambda = 1/(C n): the scale of CS246, Pegasos and scikit-learn."""

    @abstractmethod
    def outline(self, params: P) -> Outline: ...

    @abstractmethod
    def decision(self, D: Dataset, params: P, clock: Clock) -> Decision:
        """What is learnt from a view of the rows until `clock` ends, over random features where
        there are any."""

    @abstractmethod
    def holds_out(self, params: P) -> bool:
        """Whether probabilities take a cross-validation."""

    def calibration(self, params: P) -> probabilities.Calibration:
        """Return how probabilities are fitted to f of held-out rows."""
        return probabilities.calibration_of(params.kind, params.multiclass)

    @abstractmethod
    def learning(self, params: P, clock: Clock, until: float) -> Learning[Outcome]:
        """Learning from all rows; it has time until then."""


class Learning(ABC, Generic[Outcome]):
    """One training on all rows, from its first step to what it has found.

    reason: what ended it.
    """

    reason: str

    @abstractmethod
    def run(self) -> None:
        """Learn and evaluate, or as much of both as the time allows."""

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether there is anything to write."""

    @abstractmethod
    def break_off(self, reason: str) -> None:
        """A signal came: complete what is there."""

    @abstractmethod
    def outcome(self, ending: Ending) -> Outcome: ...

    @abstractmethod
    def metadata(self, outcome: Outcome) -> dict[str, str]:
        """What the model's trailer says besides what every trailer says."""

    @abstractmethod
    def model(self, **common: Any) -> Model:
        """common: what every model has."""


# A search may take so much of the time; where probabilities follow, their cross-validation gets so
# many times as much as learning.
SEARCH = 1 / 2
PROBABILITY_TIME = 4


# What makes the trainer once the data is read, and the parameters and the job that it has.
Preparation = Callable[[P, Job], tuple[Callable[[LabelledData, Job], Trainer[P, Outcome]], P, Job]]


def train(
    prepare: Preparation[P, Outcome],
    data: Source,
    model: str | None,
    params: P,
    job: Job,
    watch: Watch,
) -> Outcome:
    """Train on the svmlight file or the arrays `data`; write `model` (None: no file).

    prepare: called before anything is read, so that it can refuse what needs no data; it may fill
    in parameters and what the job leaves open. Raises the errors of randsvm.errors; on any error
    `model` is untouched, except that Interrupted leaves the best model so far.
    """
    clock = Clock(job.limits.time_limit, watch)
    job = replace(job, search=job.search.resolved())
    check_paths(data, model, job)
    begin, params, job = prepare(params, job)
    check_gap(job, params)
    with (
        listening(clock),
        clock.before_a_model(model or IN_MEMORY),
        closing(load_rows(data, params, job)) as whole,
    ):
        name = name_of(data)
        training = begin(LabelledData.of(whole, name, params.kind), job)
        training.labelled_data.check_classes(name, training.most_classes)
        training.labelled_data.check_weights(params)
        # Before what is resolved, which may follow from the features as they are learnt.
        training = replace(training, labelled_data=training.labelled_data.scaled(job.run.scale))
        remarks = [*unused(params), *training.labelled_data.remarks(params)]
        params = training.resolved(training.with_gamma(params))
        outline = training.outline(params)
        _announce(training, params, outline, clock)
        for text in remarks:
            emit(Notice(text))

        def configuration(params: P, job: Job) -> list[str]:
            # In the model stands what decides its bytes: what a run may take (time) does not.
            words = [*_words_of(params), *outline.words, *command_line(job.run, job.search)]
            return [outline.algorithm, *words]

        searched = None
        if job.search.wanted:
            until = clock.share(SEARCH)
            searched, params = grid_search.searched(
                training.D, params, training.for_parts().scoring, job, configuration, until
            )
        words = configuration(params, job)
        return FromFile(training, params, clock, model, words, searched).completed()


def _words_of(params: P, grid: Grid = ()) -> list[str]:
    """The options that make these parameters again, without those that mean nothing here."""
    used = {f.name for f, _ in options(params) if params.uses(f.name)}
    return command_line(params, grid=grid, names=used)


def unused(params: P) -> list[str]:
    """What to say of options without effect: LIBSVM takes them in silence."""
    return [
        f"{option} has no effect with -s {params.task} -t {params.kernel}"
        for option in idle(params)
    ]


def _announce(training: Trainer[P, Outcome], params: P, outline: Outline, clock: Clock) -> None:
    """Tell what is about to be done."""
    D, job, (C, lambda_) = training.D, training.job, training.scales(params)
    words = _words_of(params, job.search.grid)
    emit(
        Started(
            algorithm=outline.algorithm,
            configuration=[*words, *outline.words, *command_line(job.run, job.search, job.limits)],
            n=D.n,
            d=len(D.summary.features),
            nnz=D.summary.nnz,
            C=C,
            lambda_=lambda_,
            seconds=clock.seconds,
            pass_bytes=D.store.nbytes,
            place=D.store.place,
            working_set=outline.working_set,
            solve_bytes=outline.solve_bytes,
            gap_asked=job.stop.wanted_gap,
        )
    )
    if D.summary.queries:
        emit(Notice(f"qid: of {D.summary.queries} rows ignored"))
    for text in outline.notices:
        emit(Notice(text))


class Completion(ABC, Generic[Outcome]):
    """The last part of every run: learn, then write the model and tell the outcome. A signal, or a
    cluster that does not go on, writes what has been learnt so far, unless the model is written
    already. Raises GapError where it must not be written, or where a better one stays."""

    clock: Clock
    # Whether the outcome is settled: the model is written, or it must not be.
    ended = False
    # Whether the run was broken off, by a signal or the cluster.
    interrupted = False

    def completed(self) -> Outcome:
        try:
            with self.clock.until(lambda: inf if self.begun else self.clock.end):
                reason = self.learn()
            outcome = self._save(reason)
        except (Interrupted, ClusterError) as end:
            if self.begun and not self.ended:
                self.interrupted = True
                self.break_off(str(end))
                outcome = self._save(str(end))
                if (lack := self.falls_behind(outcome)) is not None:
                    end.args = (f"{end}: {lack}",)
            raise
        if (lack := self.lacks(outcome) or self.falls_behind(outcome)) is not None:
            raise GapError(lack)
        return outcome

    def _save(self, stopped: str) -> Outcome:
        with self.clock.undisturbed():
            outcome = self.outcome(stopped)
            saved = self.lacks(outcome) is None
            if saved:
                self.write(outcome)
            self.ended = True
            outcome = outcome._replace(  # type: ignore[assignment]  # of the same kind
                seconds=self.clock.seconds, saved=saved
            )
            emit(outcome)
        return outcome

    def lacks(self, outcome: Outcome) -> str | None:
        """What the model must have to be written and has not; None: nothing."""
        return None

    def falls_behind(self, outcome: Outcome) -> str | None:
        """What is said where the model was written beside a better one, which stays; None: it was
        written in its place."""
        return None

    @abstractmethod
    def learn(self) -> str:
        """Everything before the model is written; what ended it."""

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether there is anything to write."""

    @abstractmethod
    def break_off(self, reason: str) -> None: ...

    @abstractmethod
    def outcome(self, stopped: str) -> Outcome: ...

    @abstractmethod
    def write(self, outcome: Outcome) -> None: ...


class FromFile(Completion[Outcome], Generic[P, Outcome]):
    """The completion of a run over a whole file, or over arrays. words: the configuration that the
    model has."""

    def __init__(
        self,
        training: Trainer[P, Outcome],
        params: P,
        clock: Clock,
        path: str | None,
        words: list[str],
        searched: Searched | None,
    ) -> None:
        self.training = training
        self.params = params
        self.clock = clock
        self.path = path
        self.words = words
        self.searched = searched
        # The gap of the better model that stays in `path`.
        self.better: float | None = None
        # What the model has for probabilities.
        self.fitted: dict[str, Any] = {}
        self.holds_out = training.holds_out(params)
        if self.holds_out and clock.end < inf:
            # Whenever the limit comes, the model has probabilities.
            calibration = training.calibration(params)
            self.fitted = probabilities.fit_on_subset(
                training.D, params, training.for_parts().fit, calibration, training.job, clock.end
            )
        part = 1 / (1 + PROBABILITY_TIME * self.holds_out)
        self.learning = training.learning(params, clock, clock.share(part))

    def learn(self) -> str:
        self.learning.run()
        if self.holds_out:
            training = self.training
            self.fitted |= probabilities.fit_by_cross_validation(
                training.D,
                self.params,
                training.for_parts().fit,
                training.calibration(self.params),
                training.job,
                self.clock.end - LATE,
            )
        return self.learning.reason

    @property
    def begun(self) -> bool:
        return self.learning.begun

    def break_off(self, reason: str) -> None:
        self.learning.break_off(reason)

    def outcome(self, stopped: str) -> Outcome:
        best = None if self.searched is None else self.searched.tried[0]
        name = self.path or IN_MEMORY
        outcome = self.learning.outcome(Ending(name, best, stopped, self.clock.seconds))
        if self.interrupted or stopped == TIME_LIMIT:
            self.better = self._gap_of_a_better_model(outcome)
        if self.better is not None:
            outcome = outcome._replace(model=beside(name))  # type: ignore[assignment]
        return outcome

    def _gap_of_a_better_model(self, outcome: Outcome) -> float | None:
        """The gap of the model of this task in `path` where it is smaller than that of the outcome;
        None: there is no such model. A training that is to certify nothing is not compared."""
        path = self.path
        if path is None or self.training.job.limits.overwrite or not may_stay(path):
            return None
        if not isinstance(outcome, Trained) or (isnan(outcome.gap) and outcome.gap_asked is None):
            return None
        old = certified(path)
        if old is None or outcome.gap <= old[1]:
            return None
        words = old[0].split()
        tasks = [task for option, task in pairwise(words) if option == "-s"]
        return old[1] if tasks == [self.params.task] else None

    def falls_behind(self, outcome: Outcome) -> str | None:
        if self.better is None or not isinstance(outcome, Trained):
            return None
        new = "not certified" if isnan(outcome.gap) else f"{outcome.gap:.3g}"
        return (
            f"{self.path} stays (gap {self.better:.3g}), the new model (gap {new}) is "
            f"{outcome.model}; --overwrite replaces the old one"
        )

    def lacks(self, outcome: Outcome) -> str | None:
        # Without a certificate none is required: see check_gap.
        gap = outcome.gap if isinstance(outcome, Trained) else nan
        return lack_of_gap(self.training.job, gap, self.path or IN_MEMORY)

    def write(self, outcome: Outcome) -> None:
        labelled_data, job = self.training.labelled_data, self.training.job
        model = self.learning.model(
            labels=labelled_data.labels,
            values=labelled_data.values,
            zero_based=job.run.zero_based or labelled_data.D.summary.has_row_numbers,
            seen=SeenFeatures.of(labelled_data.D.summary.features),
            scaling=labelled_data.D.scaling,
            precise=labelled_data.D.summary.precise,
            metadata=self._metadata(outcome),
            **self.fitted,
        )
        if self.path is not None:
            model.save(outcome.model)
        job.keep(model)

    def _metadata(self, outcome: Outcome) -> dict[str, str]:
        """What the model's trailer says of its making. Nothing that differs between equal works."""
        D = self.training.D
        return {
            "version": __version__,
            "configuration": " ".join(self.words),
            "seed": str(self.training.job.run.seed),
            "n": str(D.n),
            "d": str(len(D.summary.features)),
            "nnz": str(D.summary.nnz),
            "digest": D.summary.digest,
            "C": repr(self.training.scales(self.params)[0]),
            **self.learning.metadata(outcome),
            **grid_search.metadata(self.searched),
        }
