"""On both sides of each threshold a run finds the optimum, at a similar cost.

The cost is the number of kernel values, a value in float64 counting as two: it does not depend on
the machine. docs/architecture.md has the same list.
"""

import json

import numpy as np
import oracle
import pytest
from commands import run_train
from kernel_sums import counted_values
from learning import board
from sizes import INNER_SETS

ROWS = 3000
GAP = 0.001
# The most that the second way may cost, as a multiple of the first.
MOST = 3
# Rounding is too large for a scan of float32 sums in some rounds of a run.
ONCE = {"audit_share_of_tolerance": 0, "audit_share_of_violation": 2e-6}


def one_hot(rows, features, columns=10):
    """Return rows of some columns, each of which has one of several values, as 0 and 1."""
    rng = np.random.default_rng(5)
    X = np.zeros((rows, features))
    size = features // columns
    for k in range(columns):
        X[np.arange(rows), size * k + rng.integers(0, size, rows)] = 1.0
    return np.where(X @ rng.normal(size=features) + rng.normal(size=rows) > 0, 1, -1), X


DATA = {
    "board": lambda: board(ROWS),
    "three": lambda: oracle.clouds(ROWS, classes=3),
    "one-hot": lambda: one_hot(ROWS, 60),
    "sparse one-hot": lambda: one_hot(ROWS, 128, columns=4),
}
NARROW, WIDE = "-c 10 -g 30 --sample-size 300", "-c 10 -g 3 --sample-size 300"
# name: data, options, and the sizes of both sides. The second side is the way that the name says.
WAYS: dict[str, tuple[str, str, dict[str, float], dict[str, float]]] = {
    "a matrix of all kernel values": ("three", WIDE, {}, {"float64_rows": 0}),
    "an inner set": ("board", WIDE, {}, INNER_SETS),
    "blocks": ("board", WIDE, {"split_rows": 10**9}, {"split_rows": 100}),
    "cells": ("board", WIDE, {"cell_share": 0}, {"cell_share": 10**9}),
    "cells in float64": ("board", NARROW, {"cell_share": 0}, {"cell_share": 10**9}),
    "nonzeros": ("one-hot", "-g .1", {"sparse_features": 10**9}, {"sparse_features": 1}),
    "sparse products": ("sparse one-hot", "-g .1", {}, {"panel_features": 0}),
    "spill": ("board", WIDE, {}, {"data_bytes": 0}),
    "float64": ("board", WIDE, {}, {"float32_limit": 0}),
    "float64 once": ("board", WIDE, {}, ONCE),
}


@pytest.mark.parametrize("name", WAYS)
def test_both_sides_find_the_optimum_at_a_similar_cost(name, tmp_path, set_sizes):
    data, words, *ways = WAYS[name]
    oracle.write_rows(tmp_path / "data", *DATA[data]())
    found, costs = [], []
    for number, sizes in enumerate(ways):
        set_sizes(side_by_side_rows=0, **sizes)
        log = tmp_path / f"{number}.log"
        with counted_values() as counts:
            run_train(
                *(*words.split(), "--gap", GAP, "--jobs", 1, "--log", log),
                *(tmp_path / "data", tmp_path / "model"),
            )
        trained = json.loads(log.read_text().splitlines()[-1])
        assert trained["gap"] <= GAP
        found.append(trained["primal"])
        costs.append(sum(counts))
    assert found[0] == pytest.approx(found[1], rel=GAP / (1 - GAP))
    assert costs[1] <= MOST * costs[0]
