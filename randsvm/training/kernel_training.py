"""What training of kernel machines supplies to a run: subtasks, and a plan for each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from randsvm.data.dataset import Dataset
from randsvm.events import Trained
from randsvm.parameters.svm import Params
from randsvm.training.algorithm_specs import AlgorithmSpec, SpecFactory
from randsvm.training.assemble import decision_of
from randsvm.training.clock import Clock
from randsvm.training.cross_validation import at_once
from randsvm.training.job import Decision
from randsvm.training.kernel_learning import KernelLearning
from randsvm.training.several_classes import Subtask, Subtasks
from randsvm.training.trainer import Outline, Trainer
from randsvm.training.warm_start import WarmStart

INDEFINITE = "this kernel is not positive semidefinite"
NOT_CERTIFIED = "P and D certify nothing, no gap can end the run"


@dataclass(frozen=True)
class KernelTrainer(Trainer[Params, Trained]):
    """Parameters become subtasks, each with a plan of the algorithm. old: where to start;
    notices: what the user should know of it. doubt: why a precomputed kernel may not be positive
    semidefinite; None: it is."""

    spec_factory: SpecFactory
    old: WarmStart | None
    notices: list[str]
    doubt: str | None = None

    @property
    def most_classes(self) -> int:
        """Every class takes a training of its own."""
        return 1000

    def resolved(self, params: Params) -> Params:
        # First the map: it has its own default of gamma.
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params.resolved(len(self.D.summary.features), len(self.labelled_data.labels))

    def scales(self, params: Params) -> tuple[float, float]:
        return params.cost, 1 / (params.cost * self.D.n)

    def outline(self, params: Params) -> Outline:
        subtasks = self._subtasks(self.D, params)
        algorithm_spec = self.spec_factory(subtasks.most_rows, subtasks.problem, self.job)
        why = self.doubt if params.positive_semidefinite else INDEFINITE
        uncertified = [f"{why}: {NOT_CERTIFIED}"] if why else []
        return Outline(
            algorithm=algorithm_spec.name,
            words=algorithm_spec.words,
            notices=[*self.notices, *uncertified, *algorithm_spec.notices],
            working_set=algorithm_spec.working_set(subtasks),
            solve_bytes=algorithm_spec.solve_bytes(subtasks),
        )

    def _subtasks(self, D: Dataset, params: Params, at_once: int = 1) -> Subtasks:
        """Of D or of a view of it; at_once: how many such views share memory."""
        mapping = self.map_of(params)
        params = self.resolved(params)
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
            params = replace(params, kernel="linear", components=None)
        doubtful = self.doubt is not None
        return Subtasks(D, params, self.job.resources, at_once, doubtful=doubtful)

    def _algorithm_spec(self, task: Subtask, C: float) -> AlgorithmSpec:
        algorithm_spec = self.spec_factory(task.D.n, task.problem, self.job)
        return (
            algorithm_spec
            if self.old is None
            else replace(algorithm_spec, start=self.old.on(task, C))
        )

    def for_parts(self) -> KernelTrainer:
        """See Training; nor is there a start from another model."""
        return replace(super().for_parts(), old=None)

    def decision(self, D: Dataset, params: Params, clock: Clock) -> Decision:
        """Without a closing evaluation."""
        subtasks = self._subtasks(D, params, at_once(D, self.job))
        algorithm_spec = partial(self._algorithm_spec, C=params.cost)
        return decision_of(subtasks, algorithm_spec, self.job, clock)

    def holds_out(self, params: Params) -> bool:
        return params.probability and params.kind != "one-class"

    def learning(self, params: Params, clock: Clock, until: float) -> KernelLearning:
        subtasks, algorithm_spec = (
            self._subtasks(self.D, params),
            partial(self._algorithm_spec, C=params.cost),
        )
        largest = self.spec_factory(subtasks.most_rows, subtasks.problem, self.job)
        at_once = subtasks.side_by_side(largest.solve_bytes(subtasks))
        return KernelLearning(self, params, subtasks, algorithm_spec, at_once, clock, until)
