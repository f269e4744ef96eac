"""What a model says of the rows of files, block by block and in order: by threads of this process
or by the workers of a cluster.

Counts and writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from randsvm import files
from randsvm.arrays import slices
from randsvm.data import svmlight
from randsvm.data.labels import LabelTable
from randsvm.data.reading import ParseOptions, ReadingProgress
from randsvm.data.svmlight import Block, ParsedPiece
from randsvm.errors import ModelError, ParameterError
from randsvm.events import Progress, Watch
from randsvm.models.load import load
from randsvm.models.model import Model
from randsvm.parallel import ThreadPool


class PredictedRows(NamedTuple):
    """f : decision values; predicted : (m,) class indices (of a regression f itself);
    probabilities : (m, classes) or None; unseen : as in ModelRows."""

    f: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None
    unseen: np.ndarray


@dataclass(frozen=True)
class Predictor:
    """probabilities, labels_only: whether they are asked for, and nothing else is."""

    model: Model
    probabilities: bool
    labels_only: bool

    def parts(self, block: Block) -> list[slice]:
        """Rows that are predicted at once."""
        return list(slices(len(block), self.model.rows_at_once))

    def __call__(self, block: Block, part: slice) -> PredictedRows:
        model = self.model
        indptr = block.indptr[part.start : part.stop + 1]
        values = slice(indptr[0], indptr[-1])
        rows = model.rows(indptr - indptr[0], block.indices[values], block.values[values])
        f = model.decision(rows, self.labels_only)
        if not self.probabilities or model.regression:
            return PredictedRows(f, model.predicted(f), None, rows.unseen)
        probabilities = model.probabilities(f)
        # A label never contradicts the probabilities beside it; those of a novelty are too coarse.
        predicted = model.predicted(f) if model.finds_novelties else probabilities.argmax(axis=1)
        return PredictedRows(f, predicted, probabilities, rows.unseen)


# What is predicted of a block, part by part; nothing is left of its features on a cluster.
PredictedBlocks = Iterator[tuple[Block, Iterable[PredictedRows]]]


def here(
    predictor: Predictor, paths: Sequence[str], jobs: int, table: LabelTable, watch: Watch
) -> PredictedBlocks:
    """By so many threads. table: is told which file a block is from; watch: hears of reading."""
    way = ReadingProgress(paths, watch)
    with ThreadPool(jobs) as pool:
        for path in paths:
            table.path = path
            blocks = svmlight.read_blocks(
                path,
                labels="number" if predictor.model.regression else "class",
                zero_based=predictor.model.zero_based,
                unlabelled=True,
                precise=predictor.model.precise,
                jobs=jobs,
                watch=way.on_event,
            )
            for block in blocks:
                yield block, pool.map_in_order(partial(predictor, block), predictor.parts(block))
            way.next_file()


# --- on a cluster --------------------------------------------------------------------------


@dataclass(frozen=True)
class OnWorker:
    """A predictor whose model a worker reads itself. digest: of the model file."""

    path: str
    digest: str
    probabilities: bool
    labels_only: bool

    def __call__(self, piece: ParsedPiece) -> tuple[ParsedPiece, list[PredictedRows]]:
        model = _read(self.path, self.digest)
        predictor = Predictor(model, self.probabilities, self.labels_only)
        block = piece.block
        found = [predictor(block, part) for part in predictor.parts(block)]
        empty = np.empty(0, np.int32)
        bare = replace(block, indices=empty, values=np.empty(0, np.float32), features=empty)
        return piece._replace(block=bare), found


def _digest(path: str) -> str:
    return hashlib.sha256(files.read_whole(path)).hexdigest()


@lru_cache(maxsize=1)
def _read(path: str, digest: str) -> Model:
    """Raises ModelError where the file is another one than the master has."""
    if _digest(path) != digest:
        raise ModelError(f"{path}: expected the same model on all workers, found another")
    return load(path)


def there(
    predictor: Predictor,
    model: str,
    paths: Sequence[str],
    address: str,
    table: LabelTable,
    watch: Watch,
) -> PredictedBlocks:
    """By the workers of a cluster, which see the files and `model` under the same paths. Raises
    DataError, ClusterError, ParameterError; the rest as `here`."""
    map_ranges: Any = _map_ranges()
    if model == files.STANDARD:
        raise ParameterError("--cluster needs a named MODEL_FILE that all workers see")
    # As in text_file_at: a symlink may lead elsewhere on a worker.
    path = str(Path(model).absolute())
    work = OnWorker(path, _digest(path), predictor.probabilities, predictor.labels_only)
    labels: svmlight.Labels = "number" if predictor.model.regression else "class"
    precise = predictor.model.precise
    options = ParseOptions(labels, predictor.model.zero_based, any_label=True, precise=precise)
    line, base = 1, -1
    for part, (piece, found) in map_ranges(address, paths, options, work):
        if part.base != base:
            table.path, line, base = part.file.name, 1, part.base
        watch(Progress("reading", part.base + part.end, part.total, "B"))
        yield svmlight.to_block(piece, line), found
        if piece.fault:
            raise svmlight.data_error(part.file.name, piece.fault, line)
        line += piece.lines


def _map_ranges() -> Any:
    # Who does not ask for a cluster need not have dask, nor wait a second for its import.
    try:
        from randsvm.cluster.byte_ranges import map_ranges
    except ImportError as error:
        raise ParameterError(
            f"--cluster needs dask.distributed (pip install 'randsvm[cluster]'): {error}"
        ) from error
    return map_ranges
