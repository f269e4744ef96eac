"""Test that data of any shape reaches the requested gap with working sets of any size.

Each case once ended far above its gap, without a notice or after a thousand rounds.
"""

from functools import partial

import exact_judge
import numpy as np
import oracle
import pytest
from learning import learn


def unbalanced(rows, positive):
    """Return two overlapping classes, one with few rows."""
    rng = np.random.default_rng(11)
    y = np.full(rows, -1.0)
    y[rng.permutation(rows)[:positive]] = 1.0
    return y, oracle.as_float32(rng.normal(size=(rows, 2)) + 0.5 * y[:, None])


def separable(rows):
    """Return normal data of 20 features that a plane separates without noise."""
    rng = np.random.default_rng(7)
    X = oracle.as_float32(rng.normal(size=(rows, 20)))
    return np.sign(X @ rng.normal(size=20)), X


def assert_gap_reached(learnt, gap):
    assert learnt.metadata["stopped"] == f"gap <= {gap:g}"
    assert learnt.metadata["certificate"] == "proven"
    assert -1e-12 <= float(learnt.metadata["gap"]) <= gap


GAP = 1e-3
TWO_CLASSES = {
    "a tenth positive, C = 1e-4": (
        partial(unbalanced, 6000, 628), ("randsvm", "-c", 1e-4), (1e-4, 1e-4),
    ),
    "a tenth positive, C = 1e-3": (
        partial(unbalanced, 3000, 300), ("randsvm", "-c", 1e-3), (1e-3, 1e-3),
    ),
    "separable, C = 1e4": (
        partial(separable, 1000), ("randsvm", "-c", 1e4, "-g", 0.05), (1e4, 1e4),
    ),
    "kernel matrix is the identity, B = 2": (
        partial(unbalanced, 300, 150),
        ("osuna", "--working-set", 2, "-c", 0.1, "-g", 100_000),
        (0.1, 0.1),
    ),
    "class weights, closest": (
        partial(unbalanced, 1500, 157),
        ("osuna-closest", "--working-set", 20, "-w", 1, 5),
        (5.0, 1.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO_CLASSES)
def test_the_gap_is_reached_and_is_that_of_the_written_model(tmp_path, name):
    make, (algorithm, *words), C = TWO_CLASSES[name]
    y, X = make()
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    learnt = learn(algorithm, path, tmp_path / "m", *words, "--gap", GAP)
    assert_gap_reached(learnt, GAP)
    numbers = {"C": C[1], "class_weights": {"1": C[0] / C[1]}}
    verdict = exact_judge.judge(path, learnt.model, learnt.metadata, "svc", **numbers)
    assert not verdict.wrong


@pytest.mark.parametrize("size", [2, 3, 20])
@pytest.mark.parametrize("words", [("-w", 1, 5), ("-c", 0.1, "-g", 100)], ids=str)
@pytest.mark.parametrize("algorithm", ["osuna", "osuna-closest"])
def test_a_working_set_never_exceeds_the_requested_size(tmp_path, algorithm, words, size):
    """No notice says that the size was raised."""
    y, X = unbalanced(300, 60)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    learnt = learn(algorithm, path, tmp_path / "m", *words, "--working-set", size, "--gap", 0.01)
    assert_gap_reached(learnt, 0.01)
    assert max(event["working_set"] for event in learnt.rounds) <= size
    assert learnt.notices == []
