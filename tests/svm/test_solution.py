"""What of a solution stays in the next working set, what is frozen, and what changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

from randsvm.data.points import Points
from randsvm.events import listening
from randsvm.parameters.svm import Params
from randsvm.svm.solution import SV

N = 400
C = 2.0

# A set of N rows; row i is the i-th unit vector, so that X' difference is a dense vector.
LABELS = np.where(np.random.default_rng(7).random(N) < 0.5, 1.0, -1.0)

counts = st.integers(0, 60)
seeds = st.integers(0, 10**6)


def points(rows: np.ndarray) -> Points:
    X = sparse.identity(N, np.float32, format="csr")[rows]
    return Points(rows, X, LABELS[rows])


def solution(seed: int, unbounded: int, positive: int, negative: int, **params: object) -> SV:
    """Random rows with that many unbounded, bounded positive, bounded negative coefficients."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(N)
    sides = [order[LABELS[order] > 0], order[LABELS[order] < 0]]
    bounded = np.concatenate([sides[0][:positive], sides[1][:negative]])
    others = np.setdiff1d(order, bounded)[:unbounded]
    alpha = np.zeros(N)
    alpha[bounded] = C
    alpha[others] = rng.uniform(0.01, 0.99, len(others)) * C
    rows = np.flatnonzero(alpha)
    held = points(rows)
    u = rng.normal(size=len(rows))
    with_u = Points(held.rows, held.X, held.y, u)
    return SV(with_u, (alpha * LABELS)[rows], float(rng.normal()), Params(C=C, gamma=1.0, **params))


def dense(SV: SV) -> np.ndarray:
    beta = np.zeros(N)
    beta[SV.points.rows] = SV.beta
    return beta


def some(SV: SV, seed: int, fresh: int, drawn: int) -> Points:
    """R: rows that are no support vectors, and bounded support vectors."""
    rng = np.random.default_rng(seed)
    outside = rng.permutation(np.setdiff1d(np.arange(N), SV.points.rows))[:fresh]
    inside = rng.permutation(SV.points.rows[np.abs(SV.beta) == C])[:drawn]
    return points(np.sort(np.concatenate([outside, inside])))


def stay(SV: SV) -> int:
    """Unbounded rows, and bounded rows without a counterpart."""
    bounded = SV.beta[np.abs(SV.beta) == C]
    return len(SV) - len(bounded) + abs(int((bounded > 0).sum()) - int((bounded < 0).sum()))


# ---- split ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seeds, counts, counts, counts, st.integers(0, 40), st.integers(0, 10), st.integers(20, 200))
def test_what_is_frozen_is_balanced_deepest_and_never_drawn(
    seed, unbounded, positive, negative, fresh, drawn, r
):
    SV = solution(seed, unbounded, positive, negative, freeze=True)
    R = some(SV, seed, fresh, drawn)
    active, bound = SV.split(r, R)
    frozen, beta = bound.points.rows, bound.beta
    assert (np.abs(beta) == C).all()
    assert (beta > 0).sum() == (beta < 0).sum()
    assert not np.intersect1d(frozen, R.rows).size
    at = np.searchsorted(SV.points.rows, frozen)
    assert (SV.beta[at] == beta).all()
    margin = SV.points.y * (SV.points.u + SV.b)
    left = (np.abs(SV.beta) == C) & ~np.isin(SV.points.rows, [*frozen, *R.rows])
    for sign in (1, -1):
        ours, others = margin[at][beta * sign > 0], margin[left & (SV.beta * sign > 0)]
        assert len(ours) == 0 or len(others) == 0 or ours.max() <= others.min()
    # Every support vector is in exactly one place.
    mine = np.intersect1d(R.rows, SV.points.rows)
    assert np.concatenate([active.rows, frozen, mine]).size == len(SV)
    assert set(active.rows) | set(frozen) | set(mine) == set(SV.points.rows)
    assert set(bound.before.points.rows) == set(SV.points.rows) - set(frozen)


@settings(max_examples=60, deadline=None)
@given(seeds, counts, counts, counts, st.integers(20, 200), st.sampled_from([0.0, 3.0]))
def test_the_next_working_set_fits_its_size(seed, unbounded, positive, negative, r, growth):
    SV = solution(seed, unbounded, positive, negative, freeze=True, growth=growth)
    assume(len(SV) > 0)
    R = some(SV, seed, SV.room(r), 0)
    active, bound = SV.split(r, R)
    assert len(active) + len(R) <= SV.size(r)
    # Nothing is frozen for which there was room.
    assert len(bound.points) <= max(0, len(SV) + len(R) - SV.size(r)) + 1


@settings(max_examples=60, deadline=None)
@given(seeds, counts, counts, counts, st.integers(20, 200), st.floats(0, 1))
def test_it_fits_as_well_when_bounded_support_vectors_are_drawn(
    seed, unbounded, positive, negative, r, share
):
    SV = solution(seed, unbounded, positive, negative, freeze=True)
    assume(len(SV) > 0)
    room = SV.room(r)
    R = some(SV, seed, room - int(share * room), int(share * room))
    active, _ = SV.split(r, R)
    assert len(active) + len(R) <= SV.size(r)


def test_it_exceeds_by_their_counterparts_at_most_when_all_that_are_drawn_are_of_one_class():
    """Violators inside the bound set come so from a file that is sorted by class."""
    SV = solution(1, 5, 60, 60, freeze=True)
    R = points(SV.points.rows[SV.beta == C][: SV.room(60)])
    active, _ = SV.split(60, R)
    assert SV.size(60) < len(active) + len(R) <= SV.size(60) + len(R)


def test_kbh07_freezes_nothing():
    SV = solution(1, 20, 30, 25)
    R = some(SV, 1, 30, 5)
    active, bound = SV.split(40, R)
    assert bound is None
    assert set(active.rows) == set(SV.points.rows) - set(R.rows)
    assert SV.size(40) == 40
    assert [SV.room(r) for r in (100, 75, 10)] == [25, 0, 0]


# ---- sizes ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seeds, counts, counts, counts, st.integers(2, 200), st.sampled_from([0.0, 3.0]))
def test_there_is_always_room_for_violators(seed, unbounded, positive, negative, r, growth):
    SV = solution(seed, unbounded, positive, negative, freeze=True, growth=growth)
    assume(len(SV) > 0)
    assert SV.size(r) >= r
    assert SV.room(r) >= 1
    assert stay(SV) + SV.room(r) <= SV.size(r)


@pytest.mark.parametrize("unbounded, size", [(10, 100), (33, 100), (34, 102), (60, 180)])
def test_a_size_left_open_grows_to_three_times_the_unbounded_ones(unbounded, size):
    SV = solution(3, unbounded, 50, 50, freeze=True, growth=3.0)
    assert SV.size(100) == size


def test_a_size_that_is_too_small_is_raised_and_says_so_once():
    told = []
    with listening(told.append):
        for unbounded in (40, 45, 20, 60):
            SV = solution(3, unbounded, 50, 50, freeze=True)
            sizes = {SV.size(50), SV.size(50)}
            SV.split(50, some(SV, 3, SV.room(50), 0))
            assert len(sizes) == 1
            if unbounded >= 45:
                assert min(sizes) > unbounded
    (notice,) = told
    assert "a working set of 50 rows" in notice.text
    assert "raised to " in notice.text


def test_a_size_that_suffices_is_kept_in_silence():
    told = []
    with listening(told.append):
        SV = solution(3, 20, 60, 60, freeze=True)
        assert SV.size(50) == 50
    assert told == []


# ---- what changed ---------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seeds, seeds, counts, counts)
def test_the_change_between_solutions_is_the_dense_difference(one, other, unbounded, bounded):
    old, new = solution(one, unbounded, bounded, 10), solution(other, 12, 30, bounded)
    # Some of the new coefficients are the old ones.
    before, after = dense(old), dense(new)
    X, difference = new.change_since(old)
    assert (X.T @ difference == after - before).all()
    assert len(difference) == np.count_nonzero(after - before)
    X, difference = new.change_since(None)
    assert (X.T @ difference == after).all()


def test_nothing_changed_between_a_solution_and_itself():
    SV = solution(5, 20, 20, 20)
    X, difference = SV.change_since(solution(5, 20, 20, 20))
    assert (X.shape, len(difference)) == ((0, N), 0)
