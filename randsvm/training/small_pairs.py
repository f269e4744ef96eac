"""Solve the pairs of small classes of a training, many at once."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from randsvm.arrays import distinct, slices
from randsvm.events import check
from randsvm.models.decisions import pair_positions
from randsvm.svm.pairs import SharedValues
from randsvm.svm.solution import KernelSolution
from randsvm.svm.subproblem import final_solve_share
from randsvm.training.job import Stopped, StopReason
from randsvm.training.rounds import SubtaskSolution
from randsvm.training.subtasks import Subtasks

# Kernel values are shared by the classes of two blocks of rows. Each takes 12 bytes, and as much
# again while it is computed; blocks have BLOCK_ROWS rows where these are an eighth of the memory.
# Arrays of all rows of a group of pairs have GROUP_VALUES at most, a few megabytes.
BLOCK_ROWS, VALUE_BYTES, GROUP_VALUES = 1024, 24, 2**18
# What is solved in one call is lost if a signal or the time limit ends the run meanwhile.
CALL_SECONDS = 0.2
# D rises by 2 at most from one row of each class to the other: LIBSVM's violation at 0.
VIOLATION_AT_0 = 2.0
# A solve of few rows may be this much more exact than others, so that hardly a pair misses the gap.
SHARE_OF_TOLERANCE = 0.1


class SmallPairs(NamedTuple):
    """Pairs that were solved in one call and reach the gap.

    solutions: by the numbers of the subtasks; spreads: the largest less the smallest u of each;
    rows: the sum of their numbers of rows; bounded: the number of coefficients at their bound;
    solve_seconds, scan_seconds: of the call; ends_group: whether it is the last of its group, which
    depends on no time
    """

    solutions: dict[int, SubtaskSolution]
    spreads: list[float]
    rows: int
    bounded: int
    solve_seconds: float
    scan_seconds: float
    ends_group: bool


def small_pairs(subtasks: Subtasks, max_rows: int, gap: float) -> Iterator[SmallPairs]:
    """Yield the solutions of the pairs of classes, of `max_rows` // 2 rows at most, that reach the
    gap; pairs that miss it need rounds."""
    D, K, most = subtasks.D, len(subtasks.labels), max_rows // 2
    if sum(count <= most for count in subtasks.counts) < 2:
        return
    y = D.labels().astype(np.int64)
    counts = np.bincount(y, minlength=K)
    rows = np.split(np.argsort(y, kind="stable"), np.cumsum(counts)[:-1])
    small = np.flatnonzero((counts > 0) & (counts <= most))
    number = pair_positions(K)
    room = math.isqrt(subtasks.resources.memory // (8 * VALUE_BYTES)) // 2
    block_of = np.cumsum(counts[small]) // min(BLOCK_ROWS, room)
    blocks = [small[block_of == block] for block in distinct(block_of)]
    step = 1
    for a, b in itertools.combinations_with_replacement(blocks, 2):
        i, j = (side.ravel() for side in np.meshgrid(a, b, indexing="ij"))
        i, j = i[i < j], j[i < j]
        classes = distinct(np.concatenate([a, b]))
        values = SharedValues(D, np.concatenate([rows[k] for k in classes]), subtasks.problem)
        starts = np.zeros(K, np.int64)
        starts[classes] = np.cumsum(counts[classes]) - counts[classes]
        sizes = counts[i] + counts[j]
        # Pairs of similar sizes leave less room in arrays.
        order = np.argsort(sizes, kind="stable")
        for part in slices(len(order), max(1, GROUP_VALUES // max_rows)):
            group = order[part]
            # The number of columns decides how sums round: it depends on no time.
            place = np.arange(sizes[group].max())
            done = 0
            while done < len(group):
                began, pairs = time.perf_counter(), group[done : done + step]
                sides = np.column_stack([i[pairs], j[pairs]])
                numbers, own = number[i[pairs], j[pairs]], (starts[sides], counts[sides])
                done += step
                some = _solved(subtasks, values, numbers, sides, *own, place, gap)
                yield some._replace(ends_group=done >= len(group))
                check()
                rate = step / (time.perf_counter() - began)
                step = max(1, min(2 * step, int(rate * CALL_SECONDS)))


def _solved(
    subtasks: Subtasks,
    values: SharedValues,
    numbers: np.ndarray,
    sides: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    place: np.ndarray,
    gap: float,
) -> SmallPairs:
    """Return the solutions of those of some pairs that reach the gap.

    numbers : (pairs,); sides, starts, counts : (pairs, 2), the classes of each pair, where their
    rows begin among the shared values, and the numbers of these; place : (m,), 0, 1, ... m - 1, for
    at least as many rows as a pair has
    """
    began, params, problem = time.perf_counter(), subtasks.params, subtasks.problem
    sizes = counts.sum(axis=1)
    (first, other_first), count = starts.T[:, :, None], counts[:, :1]
    at = np.where(place < count, first + place, other_first + place - count)
    is_row = place < sizes[:, None]
    at = np.where(is_row, at, 0)
    bounds = params.cost * np.array(subtasks.class_weights)[sides]
    largest = float(bounds.max())
    share = final_solve_share(problem, None, largest, VIOLATION_AT_0, VIOLATION_AT_0)
    tolerance = SHARE_OF_TOLERANCE * share * VIOLATION_AT_0
    solved = values.solve(at, counts, bounds, tolerance, problem.tolerance)
    u, stopped = solved.u, Stopped(StopReason.GAP_REACHED, (gap,))
    spreads = np.where(is_row, u, -np.inf).max(axis=1) - np.where(is_row, u, np.inf).min(axis=1)
    # The support vectors of each pair come first, by their row numbers in D.
    rows = np.where(solved.beta != 0, values.rows[at], np.iinfo(np.int64).max)
    order = np.argsort(rows, axis=1)
    rows, beta = (np.take_along_axis(each, order, axis=1) for each in (rows, solved.beta))
    # One array has the support vectors of all pairs.
    rows, beta = rows[beta != 0], beta[beta != 0]
    ends = np.cumsum(np.count_nonzero(solved.beta, axis=1)).tolist()
    parts = zip(
        *(numbers.tolist(), map(slice, [0, *ends], ends), solved.b.tolist()),
        *(solved.norm.tolist(), solved.violators.tolist(), solved.certificates()),
        strict=False,
    )
    solutions = dict[int, SubtaskSolution]()
    for number, vectors, b, norm, violators, certificate in parts:
        if certificate.gap <= gap:
            of_pair = subtasks.problem_of(number)
            SV = KernelSolution(rows[vectors], beta[vectors], b, of_pair, norm=norm)
            solutions[number] = SubtaskSolution(SV, certificate, violators, True, stopped)
    reached = np.isin(numbers, list(solutions), assume_unique=True)
    C = np.where(place < count, bounds[:, :1], bounds[:, 1:])
    return SmallPairs(
        solutions,
        spreads[reached].tolist(),
        int(sizes[reached].sum()),
        int(np.count_nonzero((np.abs(solved.beta) >= C)[reached])),
        solved.seconds,
        time.perf_counter() - began - solved.seconds,
        ends_group=False,
    )
