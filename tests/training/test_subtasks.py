"""Test the subtasks of a training by the formulas of their rows, weights and certificates."""

import numpy as np
import oracle
import pytest
from base import Resources
from scans import problem
from solving import Certificate, KernelSolution
from trainings import History, KernelParams, Subtask, Subtasks, open_task, total_certificate

# The row numbers of a pair in the whole D: class by class.
PAIR = np.array([5, 2, 9, 4])


def test_rows_of_a_pair_are_ascending_in_the_whole_with_their_own_weights():
    pair = Subtask(None, problem(), rows=PAIR)
    weights = np.array([1.0, 2.0, 3.0])
    solution = KernelSolution(
        np.array([0, 1, 2]), np.array([0.1, 0.2, -0.3]), 0.5, problem(), weights=weights
    )
    found = pair.in_whole(solution)
    of_row = dict(zip(PAIR.tolist(), zip(solution.beta, weights, strict=False), strict=False))
    assert found.rows.tolist() == [2, 5, 9]
    together = zip(found.beta, found.weights, strict=True)
    assert list(together) == [of_row[row] for row in (2, 5, 9)]


def test_coefficients_of_other_rows_are_not_of_a_pair():
    pair = Subtask(None, problem(), rows=PAIR)
    rows, beta = np.array([2, 3, 9, 11]), np.array([0.1, 0.2, 0.3, 0.4])
    found_rows, found = pair.within(rows, beta)
    assert (found_rows.tolist(), found.tolist()) == ([1, 2], [0.1, 0.3])


def two_classes(folder, positive, weights=None):
    """Write 30 rows, some of the class +1, and the others of the class -1."""
    y = np.where(np.arange(30) < positive, 1, -1)
    X = np.random.default_rng(0).normal(size=(30, 2)).round(3)
    return y, oracle.write_rows(folder / "d", y, X, 1, weights)


def test_rows_of_a_fold_keep_their_weights(tmp_path):
    weights = np.random.default_rng(1).integers(1, 5, 30)
    _, path = two_classes(tmp_path, 12, weights)
    held_out = np.arange(30) % 3 == 0
    with open_task(path) as D:
        fold = Subtasks(D, KernelParams(), Resources(jobs=1)).without(held_out)
        assert fold.D.weights().tolist() == np.where(held_out, 0, weights).tolist()


@pytest.mark.parametrize("positive", [9, 21])
def test_a_constant_has_the_least_sum_of_losses(tmp_path, positive):
    y, path = two_classes(tmp_path, positive)
    with open_task(path) as D:
        solution, certificate = Subtasks(
            D, KernelParams(C=3.0, gamma=1.0), Resources(jobs=1)
        ).constant_solution(0)
    losses = {b: 3.0 * np.maximum(0, 1 - y * b).sum() for b in (-1.0, 0.0, 1.0)}
    assert certificate.primal == losses[solution.b] == min(losses.values())


def test_a_certificate_of_pairs_is_the_sum_of_theirs():
    pairs = [Certificate(2.0, 1.0, sampled=True), Certificate(7.0, 4.0), Certificate(1.0, 1.0)]
    total = total_certificate(pairs)
    assert (total.primal, total.dual, total.largest_distance) == (10.0, 6.0, 4.0)
    assert total.sampled and total.certified
    assert not total_certificate(pairs[1:]).sampled


def test_rounds_at_a_tighter_tolerance_count_anew():
    history = History(violation=0.5, idle=5)
    history.tighten()
    assert (history.violation, history.idle) == (np.inf, 0)
