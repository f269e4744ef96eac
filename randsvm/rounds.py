"""Training by rounds of solve and scan: paths and parameters in, a model file out.

Turns names into objects, calls one algorithm, reports through one callable. Never prints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
from scipy import sparse

from randsvm import __version__, dataset
from randsvm.algorithms.osuna import osuna, osuna_closest
from randsvm.algorithms.randsvm import randsvm
from randsvm.collectors import Draws
from randsvm.dataset import Dataset, Reading
from randsvm.errors import Interrupted, ModelError, ParameterError
from randsvm.events import Notice, Watch, listening, silent, tell
from randsvm.jobs import HEADROOM, LATE, Job, Started, TimeLimitError, check_paths
from randsvm.linear import random_map
from randsvm.model import (
    ONE_CLASS_LABELS,
    ONE_CLASS_VALUES,
    KernelModel,
    Known,
    LinearModel,
    Model,
    load,
)
from randsvm.params import (
    OsunaParams,
    Params,
    RandsvmParams,
    Resources,
    Run,
    command_line,
)
from randsvm.scan import Certificate, Starter, Violators, cold_start, evaluate, warm_start
from randsvm.solution import SV
from randsvm.stopping import (
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
from randsvm.svmlight import Labels
from randsvm.tasks import EPSILON_INSENSITIVE, LOSSES

FORMULA_FOR_K = (
    "the formula for k assumes rows of length 1 in feature space, which only the rbf kernel "
    "guarantees"
)

GAP_FOR_K = "--gap decides when to end: -k is not used"


@dataclass(frozen=True)
class Iteration:
    """One solve and the scan after it.

    certificate: of this solution for the whole data set. gap: of the best solution so far.
    """

    number: int
    seconds: float
    solve_seconds: float
    working_set: int
    bound: int
    support_vectors: int
    bounded: int
    violators: int
    certificate: Certificate
    gap: float
    bytes_read: int


@dataclass(frozen=True)
class Trained:
    """How training ended; the certificate is of the model as written.

    J = P / (C n). evaluated: whether the certificate was computed from scratch at the end, or
    (after a signal) stems from the running values of the scans. violators None: not counted then.
    """

    model: str
    iterations: int
    support_vectors: int
    bounded: int
    violators: int | None
    certificate: Certificate
    J: float
    evaluated: bool
    stopped: str
    solve_seconds: float
    seconds: float


@dataclass(frozen=True)
class _Plan:
    """An algorithm with its own parameters filled in.

    run: the algorithm but for D and what every algorithm gets. rules: what ends it besides V = 0
    and Job. configuration: its own options, resolved. notices: what the user should know.
    """

    name: str
    run: Callable[..., SV]
    params: Params
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

    def plan(D: Dataset, params: Params) -> _Plan:
        if job.stop.gap is None and params.task != "one-class":
            own = algorithm.resolved(D.n)
            assert own.support_bound and own.sample_size
            r, rules = own.sample_size, [support_bound(own.support_bound)]
            notices = [] if params.kernel == "rbf" else [FORMULA_FOR_K]
        else:
            own = algorithm
            r, params, rules, notices = _working_set(own.sample_size, D, params, job.resources)
            if own.support_bound is not None and job.stop.gap is not None:
                own, notices = replace(own, support_bound=None), [*notices, GAP_FOR_K]
        return _Plan("randsvm", partial(randsvm, r=r), params, rules, command_line(own), notices)

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

    def plan(D: Dataset, params: Params) -> _Plan:
        own = algorithm
        size, params, rules, notices = _working_set(own.working_set, D, params, job.resources)
        name, decompose = ("osuna-closest", osuna_closest) if closest else ("osuna", osuna)
        run = partial(decompose, size=size, swap=own.swap)
        return _Plan(name, run, params, rules, command_line(own), notices)

    return _train(data, model, params, plan, job, watch)


def _working_set(
    size: int | None, D: Dataset, params: Params, resources: Resources
) -> tuple[int, Params, list[Rule], list[str]]:
    """The size of the first working set, how it grows, and what ends a run that cannot grow.

    Bounded support vectors are held outside of it, except with class weights: LIBSVM has no form
    for two bounds with a linear term, so there every support vector must be inside.
    """
    first = size or OsunaParams.SMALLEST
    if params.one_bound:
        growth = 0.0 if size else OsunaParams.GROWTH
        return first, replace(params, freeze=True, growth=growth), [], []
    room, why = resources.rows_in_a_solve(D.nnz / D.n), "with class weights"
    if params.task == "one-class":
        # sum alpha = nu n with alpha <= 1 takes more rows than nu n.
        first, why = max(first, math.ceil(OsunaParams.ONE_CLASS * params.total)), "for one-class"
        first = min(first, D.n)
        if first > room:
            raise ParameterError(
                f"one-class needs a working set of {first} rows ({OsunaParams.ONE_CLASS:g} nu n), "
                f"which this --memory does not hold: give more, lower -n, or use sgd"
            )
    most = max(first, room)
    notice = (
        f"{why} the working set holds every support vector: it begins with {first} rows and may "
        f"grow to {min(most, D.n)} in this --memory"
    )
    params = replace(params, growth=OsunaParams.INSIDE_GROWTH, most=most)
    return first, params, [working_set_full(first)], [notice]


def _train(
    data: str,
    model: str,
    params: Params,
    plan_for: Callable[[Dataset, Params], _Plan],
    job: Job,
    watch: Watch,
) -> Trained:
    began = time.perf_counter()
    job.stop.check(params)
    check_paths(data, model, job)
    if job.warm_start and params.components:
        raise ParameterError("--warm-start goes with a kernel, not with --components")
    old = _to_start_from(job.warm_start) if job.warm_start else None
    labels: Labels = "number" if params.task == "svr" else "class"
    reading = Reading(labels, job.run.zero_based)
    progress = _Progress(began, job.limits.time_limit, watch)
    with listening(progress), closing(dataset.load(data, reading, job.resources)) as whole:
        mapping = random_map(params, whole.d, job.run.seed)
        if mapping is not None:
            params = replace(params, gamma=mapping.gamma)
        params = params.resolved(whole.n, whole.d)
        if params.task == "svc":
            D = dataset.two_classes(whole, data)
            order = dataset.order_of_classes(D)
            names, counts = [D.header.names[i] for i in order], [D.header.counts[i] for i in order]
            params = params.weighted(names, counts)
        else:
            D = whole if params.task == "svr" else dataset.one_class(whole)
        params = replace(params, cache=job.resources.libsvm_megabytes)
        words = command_line(params)
        if mapping is not None:
            D, params = D.mapped(mapping), replace(params, kernel="linear", components=None)
        plan = plan_for(D, params)
        # In the model stands what decides its bytes: how long a machine took does not repeat.
        configuration = [*words, *plan.configuration, *command_line(job.stop, job.run)]
        repeat = [*configuration, *command_line(job.limits)]
        scales = params.C, _lambda(D, params)
        tell(Started(plan.name, repeat, D.n, whole.d, whole.nnz, *scales, progress.seconds))
        for text in [*_peculiarities(D, params), *plan.notices]:
            tell(Notice(text))
        trial = _Trial(D, plan, job, progress, model, [plan.name, *configuration])
        start = cold_start if old is None else warm_start(D, old)
        try:
            return trial.run(start)
        except Interrupted as signal:
            if progress.best.solution is not None and not trial.saved:
                trial.save(progress.best.solution, None, str(signal))
            raise


def _to_start_from(path: str) -> KernelModel:
    model = load(path)
    if not isinstance(model, KernelModel):
        raise ModelError(f"{path}: expected a kernel model to start from, found a linear one")
    return model


@dataclass
class _Trial:
    """One training from its first round to its written model."""

    D: Dataset
    plan: _Plan
    job: Job
    progress: _Progress
    model: str
    configuration: list[str]
    saved: bool = False

    def run(self, start: Starter) -> Trained:
        D, plan, progress = self.D, self.plan, self.progress
        rng = Draws(self.job.run.seed)
        stop = Stop([*plan.rules, *self._rules(), no_progress()])
        progress.D = D
        try:
            last = plan.run(
                D,
                stop=stop,
                params=plan.params,
                rng=rng,
                watch=progress.iteration,
                start=start,
            )
            reason = stop.reason
        except TimeLimitError:
            last, reason = None, TIME_LIMIT
        # A solution without violators is the answer; else the one of lowest P is the best.
        SV = last if last is not None and reason == NO_VIOLATORS else progress.best.solution
        assert SV is not None
        V = evaluate(D, SV, rng) if progress.time_to_evaluate(SV) else None
        return self.save(SV, V, reason)

    def _rules(self) -> list[Rule]:
        rules, limits = [], self.job.stop
        if limits.gap is not None:
            rules.append(gap_reached(self.progress.best, limits.gap))
        if limits.max_iterations is not None:
            rules.append(iterations(limits.max_iterations))
        if self.job.limits.time_limit is not None:
            rules.append(time_limit(lambda: self.progress.deadline))
        return rules

    def save(self, SV: SV, V: Violators | None, reason: str) -> Trained:
        """Write SV as the model; V is its evaluation, None if there was no time for one."""
        progress, best = self.progress, self.progress.best
        progress.closing = True
        certificate = best.certificate
        if V is not None:
            # Any round's D bounds the optimum from below.
            dual = max(best.dual, V.certificate.dual)
            certificate = replace(V.certificate, dual=dual)
        outcome = Trained(
            self.model,
            progress.count,
            len(SV),
            SV.bounded_count,
            None if V is None else V.count,
            certificate,
            certificate.primal * _lambda(self.D, self.plan.params),
            V is not None,
            reason,
            progress.solve_seconds,
            progress.seconds,
        )
        facts = _facts(self.D, self.plan.params, self.job, outcome, self.configuration)
        _model(self.D, SV, self.job.run, facts).save(self.model)
        self.saved = True
        outcome = replace(outcome, seconds=progress.seconds)
        tell(outcome)
        return outcome


class _Progress:
    """Passes events on, keeps the best solution, and breaks off at the deadline.

    The deadline leaves time for the closing evaluation, a scan of every support vector, as fast
    as the last scan was. Before the first scan there is no model, and nothing is broken off.
    """

    def __init__(self, began: float, limit: float | None, watch: Watch) -> None:
        self.began = began
        self.ends = inf if limit is None else began + limit
        self.watch = watch
        self.best = Best()
        self.count = 0
        self.solve_seconds = 0.0
        self.closing = False
        self.scan_rate = 0.0
        self.D: Dataset | None = None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def deadline(self) -> float:
        support_vectors = len(self.best.solution) if self.best.solution else 0
        return self.ends - HEADROOM * self.scan_rate * support_vectors - LATE

    def time_to_evaluate(self, SV: SV) -> bool:
        """Whether a closing evaluation ends in time; nothing is broken off from here on."""
        self.closing = True
        return time.perf_counter() + self.scan_rate * len(SV) <= self.ends + LATE

    def __call__(self, event: object) -> None:
        self.watch(event)
        if self.best.solution and not self.closing and time.perf_counter() >= self.deadline:
            raise TimeLimitError

    def iteration(self, SV: SV, V: Violators) -> None:
        self.scan_rate = V.seconds
        self.count += 1
        self.solve_seconds += SV.solve.seconds
        self.best.see(SV, V)
        assert self.D is not None
        event = Iteration(
            self.count,
            self.seconds,
            SV.solve.seconds,
            SV.solve.rows,
            SV.solve.frozen,
            len(SV),
            SV.bounded_count,
            V.count,
            V.certificate,
            self.best.certificate.gap,
            self.D.bytes_read,
        )
        # Not through `tell`: the deadline is the stop rule's business at the end of a round.
        self.watch(event)


def _peculiarities(D: Dataset, params: Params) -> list[str]:
    """What is unusual about this data and kernel."""
    notices = []
    if D.header.queries:
        notices.append(f"qid: of {D.header.queries} rows ignored")
    if not params.positive_semidefinite:
        notices.append("this kernel is not positive semidefinite: P and D certify nothing")
    return notices


def _lambda(D: Dataset, params: Params) -> float:
    """lambda = 1/(C n): the same scale of regularisation as CS246, Pegasos and scikit-learn."""
    return 1 / (params.C * D.n)


def _facts(
    D: Dataset, params: Params, job: Job, outcome: Trained, configuration: list[str]
) -> dict[str, str]:
    """What the model's trailer says of its making. Nothing that differs between equal works."""
    certificate = outcome.certificate
    return {
        "version": __version__,
        "configuration": " ".join(configuration),
        "seed": str(job.run.seed),
        "n": str(D.n),
        "d": str(D.d),
        "nnz": str(D.nnz),
        "digest": D.header.digest,
        "C": repr(params.C),
        "lambda": repr(_lambda(D, params)),
        "primal": repr(certificate.primal),
        "dual": repr(certificate.dual),
        "gap": repr(certificate.gap),
        "certificate": "evaluated" if outcome.evaluated else "running",
        "violators": "unknown" if outcome.violators is None else str(outcome.violators),
        "stopped": outcome.stopped,
    }


def _model(D: Dataset, SV: SV, run: Run, facts: dict[str, str]) -> Model:
    """SV as a model of its own: over the features that its support vectors have; of random
    features as w."""
    X, task = SV.points.X, SV.params.task
    order = dataset.order_of_classes(D) if task == "svc" else []
    labels, values = ONE_CLASS_LABELS, ONE_CLASS_VALUES
    common: dict[str, Any] = {
        "labels": labels if task == "one-class" else tuple(D.header.names[i] for i in order),
        "values": values if task == "one-class" else tuple(D.header.values[i] for i in order),
        "zero_based": run.zero_based,
        "known": Known.of(D.header.features),
        "facts": facts,
    }
    if D.mapping is not None:
        return LinearModel(
            w=(X.T.astype(np.float64) @ SV.beta)[:, None],
            b=np.array([SV.b]),
            solver=EPSILON_INSENSITIVE if task == "svr" else LOSSES["hinge"].solver,
            mapping=D.mapping.map,
            features=D.header.features,
            **common,
        )
    used, columns = np.unique(X.indices, return_inverse=True)
    return KernelModel(
        task=task,
        kernel=SV.kernel,
        Z=sparse.csr_matrix((X.data, columns, X.indptr), shape=(len(SV), len(used))),
        features=D.header.features[used],
        beta=SV.beta,
        b=SV.b,
        **common,
    )
