"""A small data set for each task, opened as cross-validation opens it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import oracle
from learning import Data, gaussians

from randsvm.data import dataset
from randsvm.data.dataset import Dataset
from randsvm.data.reading import ParseOptions
from randsvm.parameters.run import Resources
from randsvm.training.run import labelled

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


@contextmanager
def open_dataset(
    path: Path, kind: str, jobs: int = 2, *, groups: bool = False
) -> Iterator[Dataset]:
    """Open the data set as cross-validation does."""
    task = kind if kind in ("svr", "one-class") else "svc"
    options = ParseOptions("number" if kind == "svr" else "class", False, groups=groups)
    with closing(dataset.load(str(path), options, Resources(jobs=jobs))) as whole:
        yield labelled(whole, str(path), task)[0]
