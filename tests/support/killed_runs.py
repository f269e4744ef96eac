"""Train on a cluster of real processes, kill a worker at a random moment, and compare the model.

It must have the bytes of a model that one process trains.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from threading import Timer
from typing import NamedTuple
from unittest.mock import patch

import oracle
from commands import run_train
from dask_cluster import PATIENCE, DaskCluster
from fake_cluster import FakeWorkerPool
from learning import Data, board

from randsvm.cluster.worker_pool import WorkerPool
from randsvm.data.reading import ParseOptions

# A run for each task and algorithm, and its data.
BOARD = "-g 5 --sample-size 100 --gap 0.01 --max-iterations 5"
CLOUDS = "-g 1 --sample-size 60 --gap 0.01 --max-iterations 5"
RUNS = {
    "randsvm": (f"randsvm {BOARD}", "board"),
    "osuna": ("osuna -g 5 --working-set 200 --max-iterations 5", "board"),
    "osuna-closest": ("osuna-closest -g 5 --working-set 200 --max-iterations 5", "board"),
    "class weights": (f"randsvm {BOARD} -w1 3", "board"),
    "one against one": (f"randsvm {CLOUDS}", "clouds"),
    "one against the rest": (f"randsvm {CLOUDS} --multiclass ovr", "clouds"),
    "regression": (f"randsvm -s svr -p 0.3 {BOARD}", "board"),
    "one-class": (f"randsvm -s one-class -n 0.1 {BOARD}", "board"),
    # A run with a looser gap may find no margin.
    "nu-svc": ("randsvm -s nu-svc -n 0.5 -g 5 --sample-size 100 --gap 0.05", "board"),
    "scaled random features": (f"randsvm {BOARD} --components 20 --scale minmax", "board"),
    "sgd": ("sgd --epochs 6 --scale standard", "clouds"),
}
# Runs that average weights over groups of rows, on a cluster only. The expected model is that of a
# fake cluster.
AVERAGED = {"sgd"}
# Number of chunks of a file, and of byte ranges in which workers read it.
CHUNKS, RANGES = 12, 5


class Ended(NamedTuple):
    """Whether the model of a run has the expected bytes, and the wall seconds of the run."""

    same: bool
    seconds: float


class KilledRuns:
    """Runs on files of `rows` rows in `folder`. The caller closes it."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.expected: dict[str, bytes] = {}
        board(rows).save(folder / "board")
        clouds = Data(*oracle.clouds(rows)).save(folder / "clouds")
        self.patches = ExitStack()
        for name, value in {
            "training.labelled_data.ParseOptions": partial(ParseOptions, chunk_rows=rows // CHUNKS),
            "training.multiclass.FEW_ROWS": 0,
            "data.regrouping.CHUNK_ROWS": rows // CHUNKS,
            "cluster.byte_ranges.RANGE_BYTES": clouds.stat().st_size // RANGES,
            "algorithms.sgd.GROUP_CHUNKS": 3,
        }.items():
            self.patches.enter_context(patch(f"randsvm.{name}", value))
        self.cluster = DaskCluster(folder)

    def run(self, name: str, workers: int, kill: float | None = None) -> Ended:
        """Run one of RUNS on a number of workers.

        kill: the seconds after which one worker is killed; if it was the only one, another starts.
        """
        if name not in self.expected:
            self.expected[name] = self._trained_here(name)
        self._assemble(workers)
        timer = Timer(kill or 0.0, self._kill if kill is not None else lambda: None)
        timer.start()
        began = time.monotonic()
        try:
            model = self._train(name, "--cluster", self.cluster.file)
            seconds = time.monotonic() - began
        finally:
            timer.join()
        return Ended(model == self.expected[name], seconds)

    def close(self) -> None:
        self.patches.close()
        self.cluster.close()

    def _trained_here(self, name: str) -> bytes:
        if name not in AVERAGED:
            return self._train(name)
        with patch("randsvm.cluster.byte_ranges.WorkerPool", FakeWorkerPool):
            return self._train(name, "--cluster", 1)

    def _train(self, name: str, *more: object) -> bytes:
        words, data = RUNS[name]
        model = self.folder / "model"
        model.unlink(missing_ok=True)
        run_train(*words.split(), "-q", *more, self.folder / data, model)
        return model.read_bytes()

    def _kill(self) -> None:
        self.cluster.kill(0)
        if not self.cluster.workers:
            self.cluster.add()

    def _assemble(self, workers: int) -> None:
        """Start or kill workers until the cluster has `workers` of them."""
        while len(self.cluster.workers) > workers:
            self.cluster.kill()
        while len(self.cluster.workers) < workers:
            self.cluster.add()
        end = time.monotonic() + PATIENCE
        with closing(WorkerPool(str(self.cluster.file))) as worker_pool:
            while len(worker_pool.members()) != workers:
                assert time.monotonic() < end
                time.sleep(0.1)
