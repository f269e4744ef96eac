"""Training by rounds of solve and scan: paths and parameters in, a model file out.

Turns names into objects, calls one algorithm, reports through one callable. Never prints.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
from scipy import sparse

from randsvm import __version__
from randsvm.algorithms.osuna import osuna, osuna_closest
from randsvm.algorithms.randsvm import randsvm
from randsvm.data import dataset
from randsvm.data.dataset import Dataset, ParseOptions
from randsvm.data.sampling import Draws
from randsvm.data.svmlight import Labels
from randsvm.errors import Interrupted, ModelError, ParameterError
from randsvm.events import (
    Iteration,
    Notice,
    Searched,
    Started,
    Trained,
    Watch,
    listening,
    silent,
    tell,
)
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.random_features import RandomMap
from randsvm.models.kernel_model import KernelModel
from randsvm.models.linear_model import LinearModel
from randsvm.models.load import load
from randsvm.models.model import Model
from randsvm.models.seen_features import SeenFeatures
from randsvm.parameters.option import command_line
from randsvm.parameters.problem import Problem
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import Params
from randsvm.svm import libsvm
from randsvm.svm.linear import EPSILON_INSENSITIVE, LOSSES
from randsvm.svm.scan import Certificate, Scan, Starter, Violators, cold_start
from randsvm.svm.solution import SV
from randsvm.svm.working_set import WorkingSet
from randsvm.training import grid_search, platt, several_classes
from randsvm.training.cross_validation import Decision
from randsvm.training.linear_svm import random_map
from randsvm.training.run import (
    HEADROOM,
    LATE,
    PROBABILITY_TIME,
    Job,
    TimeLimitError,
    check_paths,
)
from randsvm.training.several_classes import Machine, Subject, Subtask, subtasks
from randsvm.training.stopping import (
    NO_VIOLATORS,
    TIME_LIMIT,
    Best,
    Rule,
    Stop,
    gap_reached,
    iterations,
    no_progress,
    support_bound,
    time_limit,
    working_set_full,
)
from randsvm.training.warm_start import warm_start

FORMULA_FOR_K = (
    "the formula for k assumes rows of length 1 in feature space, which only the rbf kernel "
    "guarantees"
)

GAP_FOR_K = "--gap decides when to end: -k is not used"


@dataclass(frozen=True)
class _Plan:
    """An algorithm with its own parameters filled in.

    run: the algorithm but for D and what every algorithm gets. W: its working sets.
    rules: what ends it besides V = 0 and Job. configuration: its own options, resolved. notices:
    what the user should know.
    """

    name: str
    run: Callable[..., SV]
    W: WorkingSet
    rules: list[Rule]
    configuration: list[str]
    notices: list[str]


def train_randsvm(
    data: str,
    model: str,
    params: Params,
    algorithm: RandsvmParams,
    job: Job | None = None,
    watch: Watch = silent,
) -> Trained:
    """Train a C-SVC on the svmlight file `data` with Algorithm 1 of KBH07; write it to `model`.

    With job.stop.gap it goes on past |SV| >= k until that gap is certified, and holds bounded
    support vectors outside of the working set. Raises the errors of randsvm.errors; on any error
    `model` is untouched, except that Interrupted leaves the best model so far.
    """
    job = job or Job()

    def plan(D: Dataset, problem: Problem) -> _Plan:
        if job.stop.gap is None and problem.task != "one-class":
            own = algorithm.resolved(D.n)
            assert own.support_bound and own.sample_size
            W, rules = WorkingSet(own.sample_size), [support_bound(own.support_bound)]
            notices = [] if problem.kernel == "rbf" else [FORMULA_FOR_K]
        else:
            own = algorithm
            W, rules, notices = _working_set(own.sample_size, D, problem, job.resources)
            if own.support_bound is not None and job.stop.gap is not None:
                own, notices = replace(own, support_bound=None), [*notices, GAP_FOR_K]
        return _Plan("randsvm", randsvm, W, rules, command_line(own), notices)

    return _train(data, model, params, plan, job, watch)


def train_osuna(
    data: str,
    model: str,
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
    job = job or Job()

    def plan(D: Dataset, problem: Problem) -> _Plan:
        own = algorithm
        W, rules, notices = _working_set(own.working_set, D, problem, job.resources)
        name, decompose = ("osuna-closest", osuna_closest) if closest else ("osuna", osuna)
        run = partial(decompose, swap=own.swap)
        return _Plan(name, run, W, rules, command_line(own), notices)

    return _train(data, model, params, plan, job, watch)


def _working_set(
    size: int | None, D: Dataset, problem: Problem, resources: Resources
) -> tuple[WorkingSet, list[Rule], list[str]]:
    """The working sets, what ends a run that cannot make them larger, and what to say of them.

    Bounded support vectors are frozen outside of them, except with class weights: LIBSVM has no
    form for two bounds with a linear term, so there every support vector must be inside.
    """
    first = size or OsunaParams.smallest(D.n, D.nnz / D.n)
    if problem.one_bound:
        growth = 0.0 if size else OsunaParams.GROWTH
        return WorkingSet(first, freeze=True, growth=growth), [], []
    room, why = resources.rows_in_a_solve(D.nnz / D.n), "with class weights"
    if problem.task == "one-class":
        # sum alpha = nu n with alpha <= 1 takes more rows than nu n.
        first, why = max(first, math.ceil(OsunaParams.ONE_CLASS * problem.total)), "for one-class"
        first = min(first, D.n)
        if first > room:
            raise ParameterError(
                f"one-class needs a working set of {first} rows ({OsunaParams.ONE_CLASS:g} nu n), "
                f"which this --memory does not hold: give more, lower -n, or use sgd"
            )
    W = WorkingSet(first, growth=OsunaParams.INSIDE_GROWTH, most=max(first, room))
    notice = (
        f"{why} the working set holds every support vector: it begins with {first} rows and may "
        f"grow to {min(W.most, D.n)} in this --memory"
    )
    return W, [working_set_full(W)], [notice]


@dataclass(frozen=True)
class _Training:
    """What is to be trained, and how parameters become machines."""

    subject: Subject
    plan_for: Callable[[Dataset, Problem], _Plan]
    job: Job

    @property
    def D(self) -> Dataset:  # noqa: N802 - the papers' name
        return self.subject.D

    def map_of(self, params: Params) -> RandomMap | None:
        return random_map(params, len(self.D.summary.features), self.job.run.seed)

    def plans(
        self, D: Dataset, params: Params, at_once: int = 1
    ) -> Iterator[tuple[Subtask, _Plan]]:
        """The subtasks of D or of a view of it, each with its plan; at_once: how many such views
        share LIBSVM's cache."""
        mapping = self.map_of(params)
        params = params.resolved(len(D.summary.features))
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
            params = replace(params, kernel="linear", components=None)
        for subtask in subtasks(D, params, self.job.resources.libsvm_megabytes / at_once):
            yield subtask, self.plan_for(subtask.D, subtask.problem)

    def fit(self, D: Dataset, params: Params) -> Decision:
        """What is learnt from a view of D; for scores, without a closing evaluation."""
        solutions = []
        for subtask, plan in self.plans(D, params, self.at_once):
            best, scan = Best(), Scan(subtask.D)
            solutions.append(_solve(subtask, plan, self.job, scan, best, best.see)[0])
        machine, mapping = Machine.of(solutions), self.map_of(params)
        if mapping is None:
            return machine.decision
        prepared = mapping.over(D.summary.features)
        return lambda X: machine.decision(prepared.values(X))

    @property
    def at_once(self) -> int:
        """How many fits may be made side by side."""
        return self.job.resources.at_once(self.D.n)


def _solve(
    subtask: Subtask,
    plan: _Plan,
    job: Job,
    scan: Scan,
    best: Best,
    watch: Callable[[SV, Violators], None],
    rules: Sequence[Rule] = (),
    start: Starter = cold_start,
) -> tuple[SV, str]:
    """One algorithm on one subtask: its answer, and what ended it."""
    limits = job.stop
    own = [] if limits.gap is None else [gap_reached(best, limits.gap)]
    own += [] if limits.max_iterations is None else [iterations(limits.max_iterations)]
    stop = Stop([*plan.rules, *own, *rules, no_progress()])
    rng = Draws(job.run.seed)
    last = plan.run(
        scan, plan.W, stop=stop, problem=subtask.problem, rng=rng, watch=watch, start=start
    )
    # A solution without violators is the answer; else the one of lowest P is the best.
    SV = last if stop.reason == NO_VIOLATORS else best.solution
    assert SV is not None
    return SV, stop.reason


def _train(
    data: str,
    model: str,
    params: Params,
    plan_for: Callable[[Dataset, Problem], _Plan],
    job: Job,
    watch: Watch,
) -> Trained:
    began = time.perf_counter()
    job = replace(job, search=job.search.resolved())
    job.stop.check(params)
    check_paths(data, model, job)
    if job.warm_start and params.components:
        raise ParameterError("--warm-start goes with a kernel, not with --components")
    old = _to_start_from(job.warm_start) if job.warm_start else None
    labels: Labels = "number" if params.task == "svr" else "class"
    options = ParseOptions(labels, job.run.zero_based)
    progress = _Progress(began, job.limits.time_limit, watch)
    with listening(progress), closing(dataset.load(data, options, job.resources)) as whole:
        subject = Subject.of(whole, data, params.task)
        training = _Training(subject, plan_for, job)
        if (mapping := training.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        params = params.resolved(whole.d)
        subtask, plan = next(training.plans(subject.D, params))
        if old is not None:
            warm_start(subtask.D, old)  # which refuses other labels before hours of work
        common = command_line(job.stop, job.run, job.search)
        words = command_line(params, grid=job.search.grid)
        repeat = [*words, *plan.configuration, *common, *command_line(job.limits)]
        rows = min(plan.W.r, whole.n)
        tell(
            Started(
                algorithm=plan.name,
                configuration=repeat,
                n=whole.n,
                d=whole.d,
                nnz=whole.nnz,
                C=params.C,
                lambda_=_lambda(whole.n, params),
                seconds=progress.seconds,
                pass_bytes=whole.store.nbytes,
                place=whole.store.place,
                working_set=rows,
                solve_bytes=libsvm.memory_of(rows, subtask.D.nnz / subtask.D.n, subtask.problem),
            )
        )
        for text in [*_peculiarities(whole, params), *plan.notices]:
            tell(Notice(text))
        training = replace(training, subject=subject.scaled(job.run.scale))

        def configuration(params: Params) -> list[str]:
            # In the model stands what decides its bytes: how long a machine took does not repeat.
            return [plan.name, *command_line(params), *plan.configuration, *common]

        searched = None
        if job.search.wanted:
            searched = grid_search.searched(
                training.D, params, training.fit, job, configuration, progress.middle
            )
            params = replace(params, **searched.tried[0].values)  # type: ignore[arg-type]
        words = configuration(params)
        trial = _Trial(training, params, old, progress, model, words, searched)
        return trial.run()


def _to_start_from(path: str) -> KernelModel:
    model = load(path)
    if not isinstance(model, KernelModel):
        raise ModelError(f"{path}: expected a kernel model to start from, found a linear one")
    return model


@dataclass(frozen=True)
class _Solved:
    """The answer to one subtask. violators None: not counted; see Trained."""

    SV: SV
    certificate: Certificate
    violators: int | None
    evaluated: bool
    stopped: str


@dataclass
class _Trial:
    """One training on all rows, from its first round to its written model."""

    training: _Training
    params: Params
    old: KernelModel | None
    progress: _Progress
    model: str
    configuration: list[str]
    searched: Searched | None
    solved: list[_Solved] = field(default_factory=list)
    sigmoid: np.ndarray | None = None
    saved: bool = False

    def run(self) -> Trained:
        training, progress = self.training, self.progress
        D = training.D
        progress.spare(self.params.probability)
        left = several_classes.count(D, self.params)
        try:
            for subtask, plan in training.plans(D, self.params):
                progress.begin(subtask, left)
                self.solved.append(self._solve(subtask, plan))
                left -= 1
                if left and progress.over:
                    self._leave_rest(TIME_LIMIT)
                    break
            if self.params.probability:
                self._fit_sigmoid()
            return self.save()
        except Interrupted as signal:
            if not self.saved and (progress.best.solution is not None or self.solved):
                if len(self.solved) < several_classes.count(D, self.params):
                    self._keep_best(str(signal))
                    self._leave_rest(str(signal))
                self.save(str(signal))
            raise

    def _solve(self, subtask: Subtask, plan: _Plan) -> _Solved:
        progress, job, scan = self.progress, self.training.job, Scan(subtask.D)
        start = cold_start if self.old is None else warm_start(subtask.D, self.old)
        rules = [] if job.limits.time_limit is None else [time_limit(lambda: progress.deadline)]
        try:
            SV, reason = _solve(
                subtask, plan, job, scan, progress.best, progress.iteration, rules, start
            )
        except TimeLimitError:
            if progress.best.solution is None:
                return self._nothing(subtask, TIME_LIMIT)
            SV, reason = progress.best.solution, TIME_LIMIT
        if not progress.time_to_evaluate():
            return self._running(SV, reason)
        V = scan.evaluate(SV, Draws(job.run.seed))
        # Any round's D bounds the optimum from below.
        dual = max(progress.best.dual, V.certificate.dual)
        return _Solved(SV, replace(V.certificate, dual=dual), V.count, True, reason)

    def _running(self, SV: SV, reason: str) -> _Solved:
        """The best solution so far with the certificate of the running values."""
        return _Solved(SV, self.progress.best.certificate, None, False, reason)

    def _nothing(self, subtask: Subtask, reason: str) -> _Solved:
        SV, certificate = subtask.nothing()
        return _Solved(SV, certificate, None, False, reason)

    def _keep_best(self, reason: str) -> None:
        """Of the problem that was broken off."""
        if self.progress.best.solution is not None:
            self.solved.append(self._running(self.progress.best.solution, reason))

    def _leave_rest(self, reason: str) -> None:
        """Classes that were never begun have f = -1: said only where all others are below."""
        plans = self.training.plans(self.training.D, self.params)
        for subtask, _ in itertools.islice(plans, len(self.solved), None):
            self.solved.append(self._nothing(subtask, reason))

    def _fit_sigmoid(self) -> None:
        """Probabilities, if there is time for them: the machines are trained already."""
        training, end = self.training, self.progress.end
        self.sigmoid = platt.cross_validated(
            training.D, self.params, training.fit, training.job, end
        )

    def save(self, reason: str | None = None) -> Trained:
        """Write the machines as the model; reason: what ended all of them."""
        progress, every, n = self.progress, self.solved, self.training.D.n
        machine = Machine.of([one.SV for one in every])
        primal, dual = (sum(getattr(one.certificate, of) for one in every) for of in OBJECTIVES)
        certified = all(one.certificate.certified for one in every)
        certificate = Certificate(primal, dual, certified)
        counted = [one.violators for one in every if one.violators is not None]
        bounded = [one.SV.points.rows[~one.SV.unbounded] for one in every]
        outcome = Trained(
            model=self.model,
            iterations=progress.count,
            support_vectors=len(machine.points),
            bounded=len(np.unique(np.concatenate(bounded))),
            violators=sum(counted) if len(counted) == len(every) else None,
            J=primal * _lambda(n, self.params),
            evaluated=all(one.evaluated for one in every),
            cross_validation=None if self.searched is None else self.searched.tried[0],
            stopped=reason or _joined([one.stopped for one in every]),
            solve_seconds=progress.solve_seconds,
            seconds=progress.seconds,
            primal=primal,
            dual=dual,
            gap=certificate.gap,
        )
        self._model(machine, self._facts(outcome)).save(self.model)
        self.saved = True
        outcome = replace(outcome, seconds=progress.seconds)
        tell(outcome)
        return outcome

    def _facts(self, outcome: Trained) -> dict[str, str]:
        """What the model's trailer says of its making. Nothing that differs between equal works."""
        D = self.training.D
        facts = {
            "version": __version__,
            "configuration": " ".join(self.configuration),
            "seed": str(self.training.job.run.seed),
            "n": str(D.n),
            "d": str(D.original.d),
            "nnz": str(D.summary.nnz),
            "digest": D.summary.digest,
            "C": repr(self.params.cost),
            "lambda": repr(_lambda(D.n, self.params)),
            "primal": repr(outcome.primal),
            "dual": repr(outcome.dual),
            "gap": repr(outcome.gap),
            "certificate": "evaluated" if outcome.evaluated else "running",
            "violators": "unknown" if outcome.violators is None else str(outcome.violators),
            "stopped": outcome.stopped,
        }
        return facts | grid_search.facts(self.searched)

    def _model(self, machine: Machine, facts: dict[str, str]) -> Model:
        """The machines as a model of its own: over the features that their support vectors have;
        of random features as w."""
        training, X = self.training, machine.points.X
        features, task = training.D.summary.features, self.params.task
        common: dict[str, Any] = {
            "labels": training.subject.labels,
            "values": training.subject.values,
            "zero_based": training.job.run.zero_based,
            "seen": SeenFeatures.of(features),
            "scaling": training.D.scaling,
            "sigmoid": self.sigmoid,
            "facts": facts,
        }
        mapping = training.map_of(self.params)
        if mapping is not None:
            return LinearModel(
                w=X.T.astype(np.float64) @ machine.beta,
                b=machine.b,
                solver=EPSILON_INSENSITIVE if task == "svr" else LOSSES["hinge"].solver,
                mapping=mapping,
                features=features,
                **common,
            )
        used, columns = np.unique(X.indices, return_inverse=True)
        return KernelModel(
            task=task,
            kernel=Kernel.of(machine.problem),
            Z=sparse.csr_matrix((X.data, columns, X.indptr), shape=(X.shape[0], len(used))),
            features=features[used],
            beta=machine.beta,
            b=machine.b,
            **common,
        )


OBJECTIVES = ("primal", "dual")


def _joined(reasons: Sequence[str]) -> str:
    """What ended several problems, in one phrase."""
    counts = Counter(reasons)
    if len(counts) == 1 or TIME_LIMIT in counts:
        return TIME_LIMIT if TIME_LIMIT in counts else reasons[0]
    return ", ".join(f"{reason} ({count} of {len(reasons)})" for reason, count in counts.items())


class _Progress:
    """Passes events on, keeps the best solution, and breaks off at the deadline.

    The deadline leaves time for the closing evaluation, a scan of every support vector, as fast
    as the last scan was. Before the first scan there is no model, and nothing is broken off;
    several problems share the time.
    """

    def __init__(self, began: float, limit: float | None, watch: Watch) -> None:
        self.began = began
        # Of everything, of training, of the problem that is under way.
        self.end = self.trained = self.ends = inf if limit is None else began + limit
        self.watch = watch
        self.best = Best()
        self.count = self.begun = 0
        self.solve_seconds = 0.0
        self.closing = False
        # What a scan of all support vectors takes.
        self.scan_seconds = 0.0
        self.subtask: Subtask | None = None

    @property
    def middle(self) -> float:
        """A search may take half of the time that is left."""
        now = time.perf_counter()
        return now + (self.end - now) / 2

    def spare(self, probability: bool) -> None:
        """Training begins; where probabilities follow, they get most of the time that is left."""
        now = time.perf_counter()
        self.trained = now + (self.end - now) / (1 + PROBABILITY_TIME * probability)

    def begin(self, subtask: Subtask, left: int) -> None:
        """The first of `left` problems begins: it has its share of the time that is left."""
        now = time.perf_counter()
        self.ends = now + (self.trained - now) / left
        self.subtask, self.begun, self.closing = subtask, self.begun + 1, False
        self.best, self.scan_seconds = Best(), 0.0

    @property
    def over(self) -> bool:
        """Whether no time for another problem is left."""
        return time.perf_counter() >= self.trained - LATE

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def deadline(self) -> float:
        return self.ends - HEADROOM * self.scan_seconds - LATE

    def time_to_evaluate(self) -> bool:
        """Whether a closing evaluation ends in time; nothing is broken off from here on."""
        self.closing = True
        return time.perf_counter() + self.scan_seconds <= self.ends + LATE

    def __call__(self, event: object) -> None:
        self.watch(event)
        if self.subtask is None or self.closing:
            return
        late = self.deadline if self.best.solution else self.trained - LATE
        if (self.best.solution or self.begun > 1) and time.perf_counter() >= late:
            raise TimeLimitError

    def iteration(self, SV: SV, V: Violators) -> None:
        self.scan_seconds = V.full_scan_seconds
        self.count += 1
        self.solve_seconds += SV.solve.seconds
        self.best.see(SV, V)
        assert self.subtask is not None
        event = Iteration(
            number=self.count,
            seconds=self.seconds,
            solve_seconds=SV.solve.seconds,
            working_set=SV.solve.rows,
            bound=SV.solve.frozen,
            support_vectors=len(SV),
            bounded=SV.bounded_count,
            violators=V.count,
            changed=V.changed,
            scan_seconds=V.seconds,
            gap=self.best.certificate.gap,
            bytes_read=self.subtask.D.bytes_read,
            machine=self.subtask.name,
            primal=V.certificate.primal,
            dual=V.certificate.dual,
        )
        # Not through `tell`: the deadline is the stop rule's business at the end of a round.
        self.watch(event)


def _peculiarities(D: Dataset, params: Params) -> list[str]:
    """What is unusual about this data and kernel."""
    notices = []
    if D.summary.queries:
        notices.append(f"qid: of {D.summary.queries} rows ignored")
    if not params.positive_semidefinite:
        notices.append("this kernel is not positive semidefinite: P and D certify nothing")
    return notices


def _lambda(n: int, params: Params) -> float:
    """lambda = 1/(C n): the same scale of regularisation as CS246, Pegasos and scikit-learn."""
    return 1 / (params.cost * n)
