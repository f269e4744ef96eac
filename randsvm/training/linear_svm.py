"""Linear machines: what a run needs to train one by stochastic gradient descent over a whole file.

online.py learns rows as they arrive.
"""

from __future__ import annotations

from dataclasses import replace

from randsvm.data.classes import one_class
from randsvm.data.dataset import Dataset
from randsvm.events import Learnt, Notice, emit
from randsvm.parameters.sgd import SgdParams
from randsvm.training.clock import Clock
from randsvm.training.epochs import LinearLearning
from randsvm.training.job import Decision, Job
from randsvm.training.objective import Objective
from randsvm.training.trainer import Outline, Trainer

# A step costs as many classes.
MOST_CLASSES = 10_000
# The features' means are more than this part of |x|^2: standard deviations are a tenth of them.
FAR = 0.99


class LinearTrainer(Trainer[SgdParams, Learnt]):
    """Weights of the features, or of random features that stand for a kernel."""

    @property
    def most_classes(self) -> int:
        # Weights and their sums are 16 bytes for each feature and class.
        memory, d = self.job.resources.memory, len(self.D.summary.features)
        return min(MOST_CLASSES, max(2, memory // (16 * max(d, 1))))

    def resolved(self, params: SgdParams) -> SgdParams:
        params = params.resolved(self.D.n)
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params

    def scales(self, params: SgdParams) -> tuple[float, float]:
        return params.scales(self.D.n)

    def outline(self, params: SgdParams) -> Outline:
        return Outline("sgd", words=[], notices=[])

    def decision(self, D: Dataset, params: SgdParams, clock: Clock) -> Decision:
        learning = self._learning(D, params, clock, clock.end)
        learning.learn()
        return learning.answer.decision

    def holds_out(self, params: SgdParams) -> bool:
        """A logistic regression has probabilities by itself."""
        return params.probability and params.loss != "log"

    def learning(self, params: SgdParams, clock: Clock, until: float) -> LinearLearning:
        learning = self._learning(self.D, params, clock, until)
        if learning.offset > FAR and self.job.run.scale != "standard" and not params.components:
            emit(
                Notice(
                    "features lie far from zero, and their differences are small beside that: "
                    "--scale standard is needed for steps that suit them"
                )
            )
        if learning.groups > 1:
            emit(
                Notice(
                    f"the weights of {learning.groups} groups of rows are averaged after each "
                    "epoch: one process would find slightly other ones"
                )
            )
        return learning

    def _learning(
        self, D: Dataset, params: SgdParams, clock: Clock, until: float
    ) -> LinearLearning:
        """From the subject's rows or a view of them."""
        objective, mapping = Objective.of(D, self.labelled_data.labels, params), self.map_of(params)
        if params.task == "one-class":
            D = one_class(D)
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
        return LinearLearning(self, D, objective, params, clock, until)


def prepare(params: SgdParams, job: Job) -> tuple[type[LinearTrainer], SgdParams, Job]:
    """Return what makes the trainer once the data is read, the parameters and the job."""
    return LinearTrainer, params, job
