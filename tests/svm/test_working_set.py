"""Test which rows the next working set has, and that it has the requested size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scans import problem

from randsvm.algorithms.osuna import osuna, osuna_closest
from randsvm.algorithms.randsvm import certified, kbh07
from randsvm.data.sampling import Draw, SmallestKeys
from randsvm.svm.solution import SV
from randsvm.svm.working_set import (
    Candidates,
    Choice,
    EveryGroup,
    First,
    Steepest,
    UniformSample,
    WorkingSet,
)

N = 200


def first_of(found: EveryGroup) -> tuple[np.ndarray, np.ndarray]:
    (group,) = found.groups
    return group.steepest_rise.rows[:1], group.steepest_fall.rows[:1]


def one_group(*of: object) -> EveryGroup:
    return EveryGroup((Candidates(*of),))


def smallest(rows: np.ndarray) -> SmallestKeys:
    return SmallestKeys.of(N, rows, np.arange(len(rows)))


@st.composite
def rounds(draw):
    """Generate a working set, support vectors and candidates, with distinct or shared rows."""
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
    return rng, found, SV(support, np.ones(len(support)), 0.0, problem())


CHOICES = {
    "osuna": osuna,
    "osuna-closest": osuna_closest,
    "randsvm": lambda size, swap: certified(size),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_working_set_has_at_most_the_requested_size_and_always_the_steepest_pair(name):
    @settings(max_examples=80)
    @given(rounds(), st.integers(2, 100), st.none() | st.integers(1, 100))
    def one(a_round, size, swap):
        rng, found, solution = a_round
        choice = CHOICES[name](size, swap)
        W = WorkingSet.of(rng.permutation(N)[:size], N)
        for _ in range(3):
            W = choice.next(W, solution, found)
            assert len(W.rows) == len(set(W.rows.tolist())) <= size
            assert (np.diff(W.rows) > 0).all()
            assert set(W.new.tolist()) <= set(W.rows.tolist())
            pair = {
                int(found.groups[0].steepest_rise.rows[0]),
                int(found.groups[0].steepest_fall.rows[0]),
            }
            # A single new row can be only one of the pair.
            missing = pair - set(W.rows.tolist())
            assert len(missing) <= (swap == 1) or W.whole

    one()


def test_equal_numbers_of_rows_that_may_rise_and_fall_enter():
    rising, falling = np.arange(0, 50), np.arange(100, 150)
    found = one_group(
        100, smallest(rising), smallest(falling), smallest(rising[:1]), smallest(falling[:1])
    )
    solution = SV(np.empty(0, np.int64), np.empty(0), 0.0, problem())
    W = osuna(20, None).next(WorkingSet.of(np.arange(160, 180), N), solution, found)
    assert sorted(W.new.tolist()) == [*range(5), *range(100, 105)]
    # The rest are rows of the previous working set.
    assert len(W.rows) == 20 and set(W.rows) - set(W.new) <= set(range(160, 180))


@settings(max_examples=50)
@given(rounds(), st.integers(2, 150))
def test_kbh07_keeps_all_support_vectors_and_fills_the_rest(a_round, r):
    rng, found, solution = a_round
    W = kbh07(r).next(WorkingSet.of(rng.permutation(N)[:r], N), solution, found)
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
    """The limit for few is lower if most support vectors are bounded."""
    choice, solution = certified(20), SV(np.arange(90), np.full(90, beta), 0.0, problem())
    first = WorkingSet.of(np.arange(20), N)
    assert isinstance(choice.collector(first, Draw(0, 1)), UniformSample)
    some, many = (
        one_group(count, *[smallest(np.arange(100, 110))] * 2, *[smallest(np.arange(1))] * 2)
        for count in (few, 90 if beta == 1 else 10_000)
    )
    assert not choice.next(first, solution, many).paired
    paired = choice.next(first, solution, some)
    assert isinstance(choice.collector(paired, Draw(0, 1)), Steepest)
    assert choice.next(paired, solution, many).paired


@pytest.mark.parametrize(
    "collector, wanted",
    [(First(2, Draw(0, 1)), [3, 7]), (Steepest(2, Draw(0, 1)), [9, 7])],
)
def test_osuna_takes_the_first_violators_and_osuna_closest_the_largest(collector, wanted):
    rows, violation = np.array([3, 7, 9]), np.array([0.1, 0.5, 2.0])
    kept = SmallestKeys.of(2, rows, collector.keys(0, 10, rows, violation))
    assert kept.rows.tolist() == wanted


def test_a_working_set_of_all_rows_stays_the_same():
    choice, solution = osuna(N, None), SV(np.arange(3), np.ones(3), 0.0, problem())
    W = WorkingSet.of(np.arange(N), N)
    found = one_group(1, *[smallest(np.arange(1))] * 4)
    assert isinstance(choice, Choice)
    assert choice.next(W, solution, found).rows.tolist() == list(range(N))
