"""Algorithms that work in rounds, each with its own options filled in for the data at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from randsvm.algorithms.osuna import osuna, osuna_closest
from randsvm.algorithms.randsvm import certified, kbh07
from randsvm.parameters.option import command_line, require
from randsvm.parameters.problem import Problem
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.svm.scan import Starter
from randsvm.svm.start import cold_start
from randsvm.svm.subproblem import memory_of
from randsvm.svm.working_set import Choice
from randsvm.training.job import Job
from randsvm.training.multiclass import Subtask, Subtasks
from randsvm.training.stopping import Rule, support_bound

FORMULA_FOR_K = (
    "the formula for k assumes rows of length 1 in feature space, which only the rbf kernel "
    "guarantees"
)


@dataclass(frozen=True)
class AlgorithmSpec:
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

    def working_set(self, subtasks: Subtasks) -> int:
        """Its rows, at the most."""
        return min(self.choice.r, subtasks.most_rows)

    def solve_bytes(self, subtasks: Subtasks) -> int:
        """The memory that a subproblem may take. Raises ParameterError: see memory_of."""
        rows, D = self.working_set(subtasks), subtasks.D
        beside = rows < subtasks.most_rows and not self.choice.every_support_vector
        nonzeros, memory = D.nnz / max(D.n, 1), subtasks.resources.memory
        return memory_of(rows, nonzeros, subtasks.problem, beside, memory)


# Rows of a working set of a nu task: two of either side.
NU_LEAST = 4

# A plan for so many rows and this problem.
SpecFactory = Callable[[int, Problem, Job], AlgorithmSpec]
# The algorithm of a subtask.
SpecOfSubtask = Callable[[Subtask], AlgorithmSpec]


def rows_of(n: int, problem: Problem) -> int:
    """Rows of a working set where the user left it open; a regression has two variables a row."""
    return OsunaParams.rows(n, 2 if problem.kind == "svr" else 1)


def randsvm_spec(algorithm: RandsvmParams, n: int, problem: Problem, job: Job) -> AlgorithmSpec:
    """Algorithm 1 until |SV| >= k; with --gap, and where coefficients have a sum that does not
    leave them at 0 outside of the working set, without that bound. Nor has a precomputed kernel it
    where the gap was left open and nothing is certified: k rows take k^2 values in memory."""
    left_open = problem.doubtful and job.stop.gap is None and not algorithm.about_k
    if job.stop.wanted_gap is None and not (problem.total or problem.size or left_open):
        own = algorithm.resolved(n)
        assert own.support_bound and own.sample_size
        choice, rules = kbh07(own.sample_size), [support_bound(own.support_bound)]
        formula = algorithm.support_bound is None and problem.kernel != "rbf"
        # -k says by itself that no gap ends the run.
        words = command_line(own, replace(job.stop, gap=None))
        return AlgorithmSpec("randsvm", choice, words, rules, [FORMULA_FOR_K] if formula else [])
    unused, own = " ".join(algorithm.about_k), algorithm.without_k()
    rule = "no violators" if job.stop.wanted_gap is None else "--gap"
    notices = [f"{rule} decides when to end: {unused} not used"] if unused else []
    choice = certified(_enough("--sample-size", own.sample_size, n, problem))
    return AlgorithmSpec("randsvm", choice, command_line(own, job.stop), notices=notices)


def _enough(option: str, rows: int | None, n: int, problem: Problem) -> int:
    """The rows of a working set. Raises ParameterError where the user leaves a nu task no room for
    a step, which moves two rows of the same side."""
    if rows is None:
        return rows_of(n, problem)
    least = min(NU_LEAST, n) if problem.size else 1
    require(rows >= least, f"{option} must be {least} or more with -s {problem.task}, got {rows}")
    return rows


def osuna_spec(algorithm: OsunaParams, n: int, problem: Problem, job: Job) -> AlgorithmSpec:
    """Return OFG97's decomposition."""
    return _decomposition("osuna", osuna, algorithm, n, problem, job)


def osuna_closest_spec(algorithm: OsunaParams, n: int, problem: Problem, job: Job) -> AlgorithmSpec:
    """Return OFG97's decomposition with MZ's choice of the closest points."""
    return _decomposition("osuna-closest", osuna_closest, algorithm, n, problem, job)


def _decomposition(
    name: str,
    choose: Callable[[int, int | None], Choice],
    algorithm: OsunaParams,
    n: int,
    problem: Problem,
    job: Job,
) -> AlgorithmSpec:
    size = _enough("--working-set", algorithm.working_set, n, problem)
    return AlgorithmSpec(name, choose(size, algorithm.swap), command_line(algorithm, job.stop))


# Name of an algorithm -> its specification, out of its own parameters.
SPECS: dict[str, Callable[[Any, int, Problem, Job], AlgorithmSpec]] = {
    "randsvm": randsvm_spec,
    "osuna": osuna_spec,
    "osuna-closest": osuna_closest_spec,
}
