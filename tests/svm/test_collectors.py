"""Test that a uniform sample has the rows with the smallest Philox keys, for any shards in any
order.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import Draw
from solving import (
    Candidates,
    Collector,
    Shard,
    file_order,
    largest_violation,
    side_of,
    uniform_sample,
)

ROWS = 300


@st.composite
def groupings(draw):
    """Generate shards of ROWS rows, and a binary tree of merges over them (in place, left to
    right).
    """
    cuts = draw(st.sets(st.integers(1, ROWS - 1), max_size=12))
    parts = list(zip([0, *sorted(cuts)], [*sorted(cuts), ROWS], strict=True))
    merges = [draw(st.integers(0, len(parts) - 2 - i)) for i in range(len(parts) - 1)]
    return parts, merges


# ---- two sides ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [uniform_sample, file_order, largest_violation])
@given(groupings(), st.integers(1, 40), st.integers(0, 2**32))
def test_candidates_of_shards_add_up_in_any_grouping(order, grouping, keep, seed):
    """The kept rows of each side, the steepest rows and the count are those of a single shard."""
    rng = np.random.default_rng(seed)
    up, down = rng.normal(size=(2, ROWS)).round(1)
    collector = Collector(keep, Draw(seed, 3), order)

    def of(start, stop):
        sides = []
        for slope, level in ((up, 0.5), (down, 0.5)):
            rows = start + np.flatnonzero(slope[start:stop] > level)
            rows = np.concatenate([[start + np.argmax(slope[start:stop])], rows])
            sides.append(side_of(collector, Shard(0, start, stop), rows, slope[rows], level))
        return Candidates(sum(side.chosen.count for side in sides), *sides)

    parts, merges = grouping
    found = [of(start, stop) for start, stop in parts]
    for at in merges:
        found[at : at + 2] = [found[at] + found[at + 1]]
    expected = of(0, ROWS)
    assert found[0].count == expected.count == int((up > 0.5).sum() + (down > 0.5).sum())
    for one, other in (
        (found[0].rising, expected.rising),
        (found[0].falling, expected.falling),
    ):
        assert one.rows.tolist() == other.rows.tolist()
    assert found[0].max_violation == expected.max_violation == up.max() + down.max()
