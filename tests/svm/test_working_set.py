"""Which rows the next working set has, and that it has as many as were asked for."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scans import problem

import randsvm.algorithms.osuna as osuna_module
from randsvm.algorithms import randsvm
from randsvm.algorithms.osuna import osuna, osuna_closest
from randsvm.algorithms.randsvm import randsvm_1, train_certified
from randsvm.data.sampling import Draw, SmallestKeys
from randsvm.svm.solution import Certificate, KernelSolution
from randsvm.svm.working_set import (
    Candidates,
    FileOrder,
    GroupCandidates,
    LargestViolation,
    UniformSample,
    WorkingSet,
)

N = 200


def first_of(found):
    (group,) = found.groups
    return group.steepest_rise.rows[:1], group.steepest_fall.rows[:1]


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
        for algorithm in (randsvm, osuna_module):
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


def test_as_many_rows_that_may_rise_enter_as_rows_that_may_fall():
    rising, falling = np.arange(0, 50), np.arange(100, 150)
    found = one_group(
        100, smallest(rising), smallest(falling), smallest(rising[:1]), smallest(falling[:1])
    )
    solution = KernelSolution(np.empty(0, np.int64), np.empty(0), 0.0, problem())
    run = Script(WorkingSet.of(np.arange(160, 180), N), solution, found)
    run.after(osuna(run, 20, None))
    (W,) = run.working_sets
    assert sorted(W.new.tolist()) == [*range(5), *range(100, 105)]
    # The rest are rows that were in the one before.
    assert len(W.rows) == 20 and set(W.rows) - set(W.new) <= set(range(160, 180))


@settings(max_examples=50)
@given(rounds(), st.integers(2, 150))
def test_kbh07_keeps_all_support_vectors_and_fills_the_rest(a_round, r):
    rng, found, solution = a_round
    run = Script(WorkingSet.of(rng.permutation(N)[:r], N), solution, found)
    run.after(randsvm_1(run, r))
    S, W = run.working_sets
    assert S is run.first
    support = set(solution.rows.tolist())
    assert support <= set(W.rows.tolist())
    assert len(W.rows) <= max(r, len(support))
    others = {
        *found.groups[0].rising.rows.tolist(),
        *found.groups[0].falling.rows.tolist(),
    } - support
    assert len(W.new) == min(max(r - len(support), 0), len(others))
    assert set(W.new.tolist()) <= others


@pytest.mark.parametrize("beta, few", [(1.0, 20), (0.5, 90)])
def test_pairs_are_chosen_once_random_violators_are_few(beta, few):
    """Few: beside support vectors most of which are bounded fewer than beside others."""
    solution = KernelSolution(np.arange(90), np.full(90, beta), 0.0, problem())
    some, many = (
        one_group(count, *[smallest(np.arange(100, 110))] * 2, *[smallest(np.arange(1))] * 2)
        for count in (few, 90 if beta == 1 else 10_000)
    )
    first = WorkingSet.of(np.arange(20), N)
    run = Script(first, solution, many)
    run.after(train_certified(run, 20))
    assert run.orders == [UniformSample, UniformSample] and not run.working_sets[0].pairs
    run = Script(first, solution, some)
    run.after(train_certified(run, 20))
    assert run.orders == [UniformSample, LargestViolation]
    run = Script(run.working_sets[0], solution, many)
    run.after(train_certified(run, 20))
    assert run.orders == [LargestViolation, LargestViolation] and run.working_sets[0].pairs


@pytest.mark.parametrize(
    "collector, wanted",
    [(FileOrder(2, Draw(0, 1)), [3, 7]), (LargestViolation(2, Draw(0, 1)), [9, 7])],
)
def test_osuna_takes_the_first_violators_and_osuna_closest_the_largest(collector, wanted):
    rows, violation = np.array([3, 7, 9]), np.array([0.1, 0.5, 2.0])
    kept = SmallestKeys.of(2, rows, collector.keys(0, 10, rows, violation))
    assert kept.rows.tolist() == wanted


def test_a_working_set_of_all_rows_stays_the_same():
    solution = KernelSolution(np.arange(3), np.ones(3), 0.0, problem())
    found = one_group(1, *[smallest(np.arange(1))] * 4)
    run = Script(WorkingSet.of(np.arange(N), N), solution, found)
    run.after(osuna(run, N, None))
    assert run.working_sets[0].rows.tolist() == list(range(N))
