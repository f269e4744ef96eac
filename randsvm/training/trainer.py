"""What a kind of training, kernel or linear, supplies to a run (see run.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from randsvm.arrays import Matrix
from randsvm.data.dataset import Dataset, statistics_of
from randsvm.events import Learnt, Trained, Tried
from randsvm.kernels.random_features import RandomMap
from randsvm.models import decisions
from randsvm.models.model import Model
from randsvm.parameters.svm import SCALE
from randsvm.training import probabilities
from randsvm.training.clock import Clock, limited
from randsvm.training.job import Decision, Job, P
from randsvm.training.labelled_data import LabelledData

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
        gamma = params.gamma
        assert not isinstance(gamma, str), "with_gamma(params) comes first"
        if gamma is None:
            gamma = 1.0 if params.kernel == "poly" else 1.0 / max(len(self.D.summary.features), 1)
        return RandomMap(
            kernel=params.kernel,
            components=params.components,
            gamma=gamma,
            coef0=params.coef0,
            degree=params.degree,
            seed=self.job.run.seed,
            exact=params.exact,
        )

    def with_gamma(self, params: P) -> P:
        """The same with scikit-learn's gamma for the word that stands for it."""
        if params.gamma != SCALE:
            return params
        if not params.uses("gamma"):
            return replace(params, gamma=None)
        spread = len(self.D.summary.features) * statistics_of(self.D).variance
        return replace(params, gamma=1.0 / spread if spread > 0 else 1.0)

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
