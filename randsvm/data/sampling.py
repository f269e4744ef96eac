"""Random keys of rows, permutations, and samples of the rows with the smallest keys.

Row i has the key Philox(seed, s, i) in draw number s. So a sample depends on the seed only, not on
shards, threads or workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from randsvm.arrays import philox_words
from randsvm.records import record

# The numbers of the draws of a run. Number 0: the samples of sgd. From 1 on: the rounds.
# The candidates for the basis of --reduce.
CANDIDATES_DRAW = 2**62 - 1
# From here on: the bases of --reduce, and the splits of working sets into blocks. They may share
# keys, since no result needs both to be independent.
REDUCTION_DRAW = SPLIT_DRAW = 2**62
# The audit rows.
AUDIT_DRAW = 2**63
# The folds.
FOLDS_DRAW = 2**63 + 1
# The rows of a stage of a search.
SUBSET_DRAW = 2**63 + 2
# From here on: the folds of all repetitions but the first.
REPEATS_DRAW = 2**63 + 1000
# From here on: the rows that evaluations compute, whose proof needs keys that no other draw shares.
EVALUATION_DRAW = 2**63 + 2**62


@dataclass
class Draws:
    """The random draws of one run: draw number s gives every row of D a key.

    A uniform sample of m rows is the m rows with the smallest keys; it does not depend on shards,
    threads or order, and raw Philox bits are the same in every numpy version.
    """

    seed: int
    number: int = 0

    def next(self) -> Draw:
        self.number += 1
        return Draw(self.seed, self.number)


class Draw(NamedTuple):
    seed: int
    number: int

    def keys(self, start: int, stop: int) -> np.ndarray:
        """Return the keys of rows start .. stop - 1, (stop - start,) uint64."""
        # One Philox counter step yields four words, so row i has word i % 4 of step i // 4.
        return philox_words((self.seed, self.number), (0, 0, 0, 0), start, stop - start)


class Permuter:
    """Successive random permutations from the keys of one draw."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.used = 0

    def permutation(self, m: int) -> np.ndarray:
        """Return 0 .. m - 1 in random order, (m,) int64."""
        keys = self.draw.keys(self.used, self.used + m)
        self.used += m
        return np.argsort(keys, kind="stable")


@record
class SmallestKeys:
    """The `most` candidates with the smallest keys; of equal keys, the smaller row number wins.

    Samples of two sets of rows can be added. rows : (m,) int64, keys : (m,) of any dtype, both
    sorted by (key, row); count: the number of all candidates.
    """

    most: int
    count: int = 0
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    keys: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))

    @classmethod
    def of(cls, most: int, rows: np.ndarray, keys: np.ndarray) -> SmallestKeys:
        count = len(rows)
        if 0 < most < count // 2:
            # Sorting is expensive: first drop the keys above the largest that may stay.
            low = keys <= np.partition(keys, most - 1)[most - 1]
            rows, keys = rows[low], keys[low]
        # numpy's stable sort merges two sorted samples in linear time. Only equal keys need the
        # second, slower sort.
        order = np.argsort(keys, kind="stable")
        in_order = keys[order[: most + 1]]
        if (in_order[1:] == in_order[:-1]).any():
            order = np.lexsort((rows, keys))
        order = order[:most]
        return cls(most, count, rows[order], keys[order])

    def __add__(self, other: SmallestKeys) -> SmallestKeys:
        # An empty sample may have keys of another dtype, which must not change the result's.
        keys = [side.keys for side in (self, other) if len(side.rows)]
        merged = self.of(
            self.most,
            np.concatenate([self.rows, other.rows]),
            np.concatenate(keys) if keys else self.keys,
        )
        return SmallestKeys(self.most, self.count + other.count, merged.rows, merged.keys)
