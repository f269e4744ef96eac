"""Training of kernel machines by rounds of solve and scan: paths and parameters in, a model out.

Never prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from randsvm.data.dataset import Dataset, Source
from randsvm.events import Trained, Watch, silent
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.parameters.svm import Params
from randsvm.training import run
from randsvm.training.clock import Clock
from randsvm.training.job import Decision, Job, kernel_job
from randsvm.training.kernel_learning import KernelLearning, decision_of
from randsvm.training.kind import Outline, Training
from randsvm.training.plans import Plan, Planner, plan_osuna, plan_randsvm
from randsvm.training.several_classes import Subtask, count, subtasks
from randsvm.training.warm_start import WarmStart

NOT_CERTIFIED = (
    "this kernel is not positive semidefinite: P and D certify nothing, no gap can end the run"
)


def train_randsvm(
    data: Source,
    model: str | None,
    params: Params,
    algorithm: RandsvmParams,
    job: Job | None = None,
    watch: Watch = silent,
) -> Trained:
    """Train on the svmlight file or the arrays `data` with Algorithm 1 of KBH07; write the model to
    `model` (None: nowhere but to job.keep).

    Until job.stop.gap is certified, with all coefficients outside of the working set frozen
    wherever they stand; or, where `algorithm` bounds k or that gap is "none", until |SV| >= k.
    Raises the errors of randsvm.errors; on any error `model` is untouched, except that
    Interrupted leaves the best model so far.
    """
    job = job or Job()
    bounded = bool(algorithm.about_k) and params.task != "one-class"
    planner = partial(plan_randsvm, algorithm)
    return _train(data, model, params, planner, job, watch, bounded=bounded)


def train_osuna(
    data: Source,
    model: str | None,
    params: Params,
    algorithm: OsunaParams,
    job: Job | None = None,
    watch: Watch = silent,
    *,
    closest: bool = False,
) -> Trained:
    """Train by OFG97's decomposition, with MZ's choice of the closest points if `closest`.

    See train_randsvm for files and errors.
    """
    planner = partial(plan_osuna, algorithm, closest)
    return _train(data, model, params, planner, job or Job(), watch)


def _train(
    data: Source,
    model: str | None,
    params: Params,
    planner: Planner,
    job: Job,
    watch: Watch,
    *,
    bounded: bool = False,
) -> Trained:
    """bounded: whether k was asked for, which ends the run where no gap was."""

    def prepare(params: Params, job: Job) -> tuple[partial[KernelTraining], Params, Job]:
        old, notices = None, list[str]()
        if job.warm_start:
            old = WarmStart.read(job.warm_start)
            params, notices = old.params(params, job.left_open)
        job = kernel_job(job, params, bounded)
        return partial(KernelTraining, planner=planner, old=old, notices=notices), params, job

    return run.train(data, model, params, prepare, job, watch)


@dataclass(frozen=True)
class KernelTraining(Training[Params, Trained]):
    """Parameters become subtasks, each with a plan of the algorithm. old: where to start;
    notices: what the user should know of it."""

    planner: Planner
    old: WarmStart | None
    notices: list[str]

    @property
    def most_classes(self) -> int:
        """Every class takes a training of its own."""
        return 1000

    def resolved(self, params: Params) -> Params:
        # First the map: it has its own default of gamma.
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params.resolved(len(self.D.summary.features))

    def scales(self, params: Params) -> tuple[float, float]:
        return params.cost, 1 / (params.cost * self.D.n)

    def outline(self, params: Params) -> Outline:
        task, plan = next(self._tasks(self.D, params))
        rows = min(plan.choice.r, task.D.n)
        uncertified = [] if params.positive_semidefinite else [NOT_CERTIFIED]
        return Outline(
            algorithm=plan.name,
            words=plan.words,
            notices=[*self.notices, *uncertified, *plan.notices],
            working_set=rows,
            solve_bytes=task.solve_bytes(rows),
        )

    def _tasks(
        self, D: Dataset, params: Params, at_once: int = 1
    ) -> Iterator[tuple[Subtask, Plan]]:
        """The subtasks of D or of a view of it, each with its plan; at_once: how many such views
        share LIBSVM's cache."""
        mapping = self.map_of(params)
        params = params.resolved(len(D.summary.features))
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
            params = replace(params, kernel="linear", components=None)
        for task in subtasks(D, params, self.job.resources.libsvm_megabytes / at_once):
            plan = self.planner(task.D, task.problem, self.job)
            yield (
                task,
                plan if self.old is None else replace(plan, start=self.old.on(task.D, params.cost)),
            )

    def decision(self, D: Dataset, params: Params, clock: Clock) -> Decision:
        """Without a closing evaluation, and without a start from another model."""
        at_once = self.job.resources.at_once(self.D.n)
        tasks = replace(self, old=None)._tasks(D, params, at_once)
        return decision_of(tasks, self.job, at_once, clock)

    def fits_sigmoid(self, params: Params) -> bool:
        return params.probability

    def learning(self, params: Params, clock: Clock, until: float) -> KernelLearning:
        classes, tasks = count(self.D, params), partial(self._tasks, self.D, params)
        return KernelLearning(self, params, tasks, classes, clock, until)
