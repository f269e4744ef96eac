"""Algorithms that work in rounds, each with its own options filled in for the data at hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from randsvm.algorithms.osuna import osuna, osuna_closest
from randsvm.algorithms.randsvm import randsvm
from randsvm.data.dataset import Dataset
from randsvm.errors import ParameterError
from randsvm.parameters.option import command_line
from randsvm.parameters.problem import Problem
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.svm.scan import Starter, cold_start
from randsvm.svm.solution import SV
from randsvm.svm.working_set import WorkingSet
from randsvm.training.job import Job
from randsvm.training.stopping import Rule, support_bound, working_set_full

FORMULA_FOR_K = (
    "the formula for k assumes rows of length 1 in feature space, which only the rbf kernel "
    "guarantees"
)

GAP_FOR_K = "--gap decides when to end: -k is not used"


@dataclass(frozen=True)
class Plan:
    """An algorithm with its own options filled in.

    run: the algorithm but for D and what every algorithm gets. W: its working sets. words: its own
    options and the user's limits. rules: what ends it besides V = 0 and those limits. notices: what
    the user should know. start: where the first round begins.
    """

    name: str
    run: Callable[..., SV]
    W: WorkingSet
    words: list[str]
    rules: list[Rule] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    start: Starter = cold_start


# A plan for these rows and this problem.
Planner = Callable[[Dataset, Problem, Job], Plan]


def plan_randsvm(algorithm: RandsvmParams, D: Dataset, problem: Problem, job: Job) -> Plan:
    """Algorithm 1 until |SV| >= k; with --gap, and for one-class, without that bound."""
    if job.stop.gap is None and problem.task != "one-class":
        own = algorithm.resolved(D.n)
        assert own.support_bound and own.sample_size
        W, rules = WorkingSet(own.sample_size), [support_bound(own.support_bound)]
        notices = [] if problem.kernel == "rbf" else [FORMULA_FOR_K]
    else:
        own = algorithm
        W, rules, notices = _working_set(own.sample_size, D, problem, job)
        if own.support_bound is not None and job.stop.gap is not None:
            own, notices = replace(own, support_bound=None), [*notices, GAP_FOR_K]
    return Plan("randsvm", randsvm, W, command_line(own, job.stop), rules, notices)


def plan_osuna(
    algorithm: OsunaParams, closest: bool, D: Dataset, problem: Problem, job: Job
) -> Plan:
    """OFG97's decomposition; closest: with MZ's choice of the closest points."""
    W, rules, notices = _working_set(algorithm.working_set, D, problem, job)
    name, decompose = ("osuna-closest", osuna_closest) if closest else ("osuna", osuna)
    run, words = partial(decompose, swap=algorithm.swap), command_line(algorithm, job.stop)
    return Plan(name, run, W, words, rules, notices)


def _working_set(
    size: int | None, D: Dataset, problem: Problem, job: Job
) -> tuple[WorkingSet, list[Rule], list[str]]:
    """The working sets, what ends a run that cannot make them larger, and what to say of them.

    Bounded support vectors are frozen outside of them, except with class weights: LIBSVM has no
    form for two bounds with a linear term, so there every support vector must be inside.
    """
    first = size or OsunaParams.smallest(D.n, D.nnz / D.n)
    if problem.one_bound:
        growth = 0.0 if size else OsunaParams.GROWTH
        return WorkingSet(first, freeze=True, growth=growth), [], []
    room, why = job.resources.rows_in_a_solve(D.nnz / D.n), "with class weights"
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
    return W, [working_set_full], [notice]
