"""The first pass: text to chunks, and what it learns of the data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from randsvm.data.chunks import CHUNK_NONZEROS, CHUNK_ROWS, ChunkCutter, RawChunk, Store
from randsvm.data.labels import LabelTable
from randsvm.data.svmlight import Labels, read_blocks
from randsvm.errors import DataError
from randsvm.events import tell
from randsvm.files import display_name


def united(indices: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The distinct values of both, ascending. numpy's union1d hashes whole numbers: ten times
    slower than to sort these."""
    both = np.sort(np.concatenate([indices, others]), kind="stable")
    return both[np.diff(both, prepend=both[:1] - 1) != 0]


class Digest:
    """sha256 over labels, row lengths, indices and values in file order, however chunks are cut."""

    def __init__(self) -> None:
        self.hashes = [hashlib.sha256() for _ in range(4)]

    def add(self, chunk: RawChunk) -> None:
        lengths = np.diff(chunk.indptr)
        for digest, array in zip(
            self.hashes, (chunk.y, lengths, chunk.indices, chunk.values), strict=True
        ):
            digest.update(array.data)

    def hexdigest(self, names: Sequence[str]) -> str:
        whole = hashlib.sha256(json.dumps(list(names)).encode())
        for digest in self.hashes:
            whole.update(digest.digest())
        return whole.hexdigest()


@dataclass(frozen=True)
class Summary:
    """What the first pass learns of the data, besides the chunks.

    features : (d,) int32, the distinct indices, sorted, as written in the file.
    names, values, counts: labels as first spelled, in order of appearance (classification), what
    they stand for, and how many rows have them. queries: rows with a qid:.
    """

    n: int
    nnz: int
    features: np.ndarray
    names: tuple[str, ...]
    values: tuple[int | str, ...]
    counts: tuple[int, ...]
    queries: int
    digest: str


@dataclass(frozen=True)
class ParseOptions:
    """The options that change what is parsed, and how D is cut. `labels`: class or number."""

    labels: Labels = "class"
    zero_based: bool = False
    chunk_rows: int = CHUNK_ROWS
    chunk_nonzeros: int = CHUNK_NONZEROS


def first_pass(
    path: str, options: ParseOptions, store: Store, jobs: int
) -> tuple[Summary, np.ndarray]:
    """Parse and validate everything once into `store`; returns the summary and the rows of each
    chunk, (chunks,) int64."""
    table, digest = LabelTable(path), Digest()
    cutter = ChunkCutter(options.chunk_rows, options.chunk_nonzeros)
    features = np.empty(0, np.int32)
    sizes: list[int] = []
    counts = np.zeros(0, np.int64)
    nnz = queries = 0

    def keep(chunk: RawChunk) -> None:
        digest.add(chunk)
        store.append(chunk)
        sizes.append(len(chunk.y))

    blocks = read_blocks(
        path, labels=options.labels, zero_based=options.zero_based, jobs=jobs, watch=tell
    )
    for block in blocks:
        if options.labels == "class":
            y = table.classes(block)
            more = np.bincount(y.astype(np.int64), minlength=len(table))
            counts = more + np.pad(counts, (0, len(table) - len(counts)))
        else:
            y = block.y
        if not np.array_equal(features, block.features):
            features = united(features, block.features)
        nnz += len(block.values)
        queries += block.queries
        for chunk in cutter.add(y, block):
            keep(chunk)
    if cutter.rows:
        keep(cutter.cut())
    if not sizes:
        raise DataError(display_name(path), 1, 1, "expected a row, found an empty file")
    summary = Summary(
        sum(sizes),
        nnz,
        features,
        tuple(table.names),
        tuple(table.values),
        tuple(counts.tolist()),
        queries,
        digest.hexdigest(table.names),
    )
    return summary, np.array(sizes, np.int64)
