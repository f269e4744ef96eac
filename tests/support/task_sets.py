"""A small data set for each task."""

import numpy as np
import oracle
from learning import Data, gaussians

ROWS, GAMMA = 200, 0.5


def regression(rows: int) -> Data:
    rng = np.random.default_rng([rows, 20])
    X = oracle.as_float32(rng.normal(size=(rows, 3)))
    return Data(np.round(np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=rows), 3), X)


def novelties(rows: int) -> Data:
    """Return rows of which one in ten is far from the others."""
    rng = np.random.default_rng([rows, 21])
    y = np.where(rng.random(rows) < 0.1, -1.0, 1.0)
    return Data(y, oracle.as_float32(rng.normal(size=(rows, 3)) * np.where(y < 0, 3, 1)[:, None]))


SETS = {
    "svc": gaussians(ROWS),
    "several": Data(*oracle.clouds(ROWS)),
    "svr": regression(ROWS),
    "one-class": novelties(ROWS),
}
