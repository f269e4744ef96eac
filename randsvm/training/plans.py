"""Algorithms that work in rounds, each with its own options filled in for the data at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from randsvm.algorithms.osuna import osuna, osuna_closest
from randsvm.algorithms.randsvm import certified, kbh07
from randsvm.data.dataset import Dataset
from randsvm.parameters.option import command_line, options
from randsvm.parameters.problem import Problem
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.svm.scan import Starter
from randsvm.svm.start import cold_start
from randsvm.svm.working_set import Choice
from randsvm.training.job import Job
from randsvm.training.stopping import Rule, support_bound

FORMULA_FOR_K = (
    "the formula for k assumes rows of length 1 in feature space, which only the rbf kernel "
    "guarantees"
)

# What there is only for KBH07's own rule.
FOR_K = ("support_bound", "distortion", "delta", "separable")


@dataclass(frozen=True)
class Plan:
    """An algorithm with its own options filled in.

    choice: of its working sets. words: its own options and the user's limits. rules: what ends it
    besides V = 0 and those limits. notices: what the user should know. start: where the first
    round begins.
    """

    name: str
    choice: Choice
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
        choice, rules = kbh07(own.sample_size), [support_bound(own.support_bound)]
        notices = [] if problem.kernel == "rbf" else [FORMULA_FOR_K]
        return Plan("randsvm", choice, command_line(own, job.stop), rules, notices)
    choice = certified(algorithm.sample_size or OsunaParams.rows(D.n))
    words = command_line(algorithm, job.stop, names={"sample_size", "gap", "max_iterations"})
    return Plan("randsvm", choice, words, notices=_without_k(algorithm, job.stop.gap))


def _without_k(algorithm: RandsvmParams, gap: float | None) -> list[str]:
    """What to say of options of KBH07's own rule where it is not the rule."""
    given = [
        spec.flags[0]
        for f, spec in options(algorithm)
        if f.name in FOR_K and getattr(algorithm, f.name) != f.default
    ]
    rule = "-s one-class" if gap is None else "--gap"
    return [f"no effect with {rule}: {' '.join(given)}"] if given else []


def plan_osuna(
    algorithm: OsunaParams, closest: bool, D: Dataset, problem: Problem, job: Job
) -> Plan:
    """OFG97's decomposition; closest: with MZ's choice of the closest points."""
    name, choose = ("osuna-closest", osuna_closest) if closest else ("osuna", osuna)
    size = algorithm.working_set or OsunaParams.rows(D.n)
    return Plan(name, choose(size, algorithm.swap), command_line(algorithm, job.stop))
