"""The first pass over texts, by the workers of a crew: a task learns what a range of it holds.

Knows nothing of what becomes of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from randsvm.cluster import worker
from randsvm.cluster.ranges import Part, in_order, parts_of
from randsvm.cluster.text import NOTHING, Checksums, Cuts, Learnt, Source, Text
from randsvm.cluster.worker_pool import WorkerPool
from randsvm.data.labels import LabelTable
from randsvm.data.reading import Summary
from randsvm.data.svmlight import Spelling
from randsvm.errors import DataError
from randsvm.events import Progress, emit
from randsvm.files import decoded, name_of


def first_pass(worker_pool: WorkerPool, key: str, texts: Sequence[Text]) -> Source:
    """What the rows are, and where the chunks are cut. Raises DataError for the first bad line."""
    parts = parts_of(texts)
    table = LabelTable(texts[0].name, any_label=texts[0].options.any_label)
    every, calls = NOTHING, [part.call(key) for part in parts]
    learnt = [NOTHING] * len(texts)
    readers: list[tuple[str, int]] = []
    for answer, part in zip(in_order(worker_pool, worker.learn, calls), parts, strict=True):
        found: Learnt = answer.result
        learnt[part.of] += found
        readers.append((answer.worker, found.checksum))
        emit(Progress("reading", part.base + part.end, part.total, "B"))
        if found.fault is not None:
            break
    for text, those in zip(texts, learnt, strict=True):
        table.path = text.name
        for token, (line, column) in those.spellings.items():
            table.number(Spelling(decoded(token), line, column))
        if (fault := those.fault) is not None:
            raise DataError(text.name, fault.line, fault.column, fault.problem)
        every += those
    if not every.rows:
        name = name_of([text.name for text in texts])
        raise DataError(name, 1, 1, "expected a row, found an empty file")
    checksums = [
        Checksums.joined(text, those.checksums) for text, those in zip(texts, learnt, strict=True)
    ]
    return _source(texts, checksums, table, every, _cuts(worker_pool, key, parts, readers))


def _cuts(
    worker_pool: WorkerPool, key: str, parts: Sequence[Part], readers: Sequence[tuple[str, int]]
) -> list[tuple[int, int, int]]:
    """Where chunks end, and their rows and nonzeros: each range goes on where the one before left
    off. readers: the worker that has learnt each range, and still has it, and its checksum."""
    ends: list[tuple[int, int, int]] = []
    last = Cuts([], 0, 0, 0)
    for part, (name, checksum) in zip(parts, readers, strict=True):
        call = part.call(key, last.rows, last.nonzeros)
        last = next(in_order(worker_pool, worker.cut, [call], name)).result
        if last.checksum != checksum:
            raise part.text.changed()
        # A pass of its own, which may be ended as well.
        emit(Progress("reading", part.base + part.end, part.total, "B"))
        ends += [(part.base + end, rows, nonzeros) for end, rows, nonzeros in last.ends]
    end = parts[-1].base + parts[-1].end
    return [*ends, (end, last.rows, last.nonzeros)] if last.rows else ends


def _source(
    texts: Sequence[Text],
    checksums: Sequence[Checksums],
    table: LabelTable,
    learnt: Learnt,
    ends: list[tuple[int, int, int]],
) -> Source:
    counts = np.zeros(len(table), np.int64)
    for token, count in learnt.counts.items():
        counts[int(table.number(Spelling(decoded(token), 0, 0)))] += count
    places, rows, nonzeros = np.array(ends, np.int64).T
    # What follows the last row belongs to its chunk.
    places = np.concatenate([[0], places[:-1], [sum(text.size for text in texts)]])
    summary = Summary(
        n=learnt.rows,
        nnz=learnt.nonzeros,
        features=learnt.features,
        names=tuple(table.names),
        values=tuple(table.values),
        counts=tuple(counts.tolist()),
        queries=learnt.queries,
        digest="",
    )
    return Source(tuple(texts), tuple(checksums), summary, places, rows, nonzeros)
