"""Which rows the next working set has, and that it has as many as were asked for."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scans import problem

from randsvm.algorithms import decomposition, randsvm
from randsvm.algorithms.decomposition import osuna, osuna_closest
from randsvm.algorithms.randsvm import train_certified
from randsvm.data.sampling import SmallestKeys
from randsvm.svm.solution import Certificate, KernelSolution
from randsvm.svm.working_set import (
    Candidates,
    GroupCandidates,
    WorkingSet,
)

N = 200


def one_group(*of):
    return GroupCandidates((Candidates(*of),))


def smallest(rows):
    return SmallestKeys.of(N, rows, np.arange(len(rows)))


@st.composite
def rounds(draw):
    """A working set, support vectors and candidates, their rows all different or the same."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rising = rng.permutation(N)[: draw(st.integers(1, 60))]
    falling = rng.permutation(N)[: draw(st.integers(1, 60))]
    found = one_group(
        len(rising) + len(falling),
        smallest(rising),
        smallest(falling),
        smallest(rng.permutation(N)[:1]),
        smallest(rng.permutation(N)[:1]),
    )
    support = np.sort(rng.permutation(N)[: draw(st.integers(0, 80))])
    return rng, found, KernelSolution(support, np.ones(len(support)), 0.0, problem())


class Script:
    """A run that scans nothing: each scan finds the same violators.

    orders: order of the violators in each scan.
    """

    rng = None

    def __init__(self, first, solution, found):
        self.first, self.solution = first, solution
        self.V = SimpleNamespace(
            candidates=found, count=found.count, certificate=Certificate(1.0, 0.0)
        )
        self.working_sets = []
        self.orders = []

    @property
    def scan(self):
        """Return what `solve_nothing` gets."""
        return self

    def random_subset(self, r):
        return self.first

    def first_start(self, start):
        return lambda scan, r: (None, self.first)

    def violators(self, step, W, order, r):
        self.orders.append(order)
        return self.solution, self.V

    def after(self, rounds, number=1):
        """Make the first round, and this number of further ones."""
        for _ in itertools.islice(rounds, number + 1):
            pass


def solve_nothing(run, W, *_, **__):
    run.working_sets.append(W)


@pytest.fixture(autouse=True, scope="module")
def no_solves():
    with pytest.MonkeyPatch.context() as patch:
        for algorithm in (randsvm, decomposition):
            patch.setattr(algorithm, "svmlearn", solve_nothing)
        yield


ALGORITHMS = {
    "osuna": osuna,
    "osuna-closest": osuna_closest,
    "randsvm": lambda run, size, swap: train_certified(run, size),
}


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_working_set_has_at_most_the_requested_size_and_always_the_steepest_pair(
    name,
):
    @settings(max_examples=80)
    @given(rounds(), st.integers(2, 100), st.none() | st.integers(1, 100))
    def one(a_round, size, swap):
        rng, found, solution = a_round
        first = WorkingSet.of(rng.permutation(N)[:size], N)
        run = Script(first, solution, found)
        run.after(ALGORITHMS[name](run, size, swap), 3)
        assert len(run.working_sets) == 3
        for W in run.working_sets:
            assert len(W.rows) == len(set(W.rows.tolist())) <= size
            assert (np.diff(W.rows) > 0).all()
            assert set(W.new.tolist()) <= set(W.rows.tolist())
            pair = {
                int(found.groups[0].steepest_rise.rows[0]),
                int(found.groups[0].steepest_fall.rows[0]),
            }
            # One row that is new can be one of them only.
            missing = pair - set(W.rows.tolist())
            assert len(missing) <= (swap == 1) or W.whole

    one()
