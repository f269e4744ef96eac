"""What a worker does: plain tasks over what it has cached. It is never asked to remember: what it
does not have it says (`Missing`), and is sent again.

Runs on the workers; knows nothing of the scheduler.
"""

from __future__ import annotations

import pickle
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import scipy

from randsvm import __version__
from randsvm.cluster.text import Cuts, Learnt, Range, Source, Text, TextStore
from randsvm.data.dataset import Dataset
from randsvm.data.home import Cell, Change, Shard

# The fields of a view that are its own; the others follow from the file.
OWN = ("targets", "scaling", "mapping", "d", "nnz")


def versions() -> dict[str, str]:
    """Of what decides the bits of a model, and of what can be sent between processes."""
    return {
        "randsvm": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


@dataclass(frozen=True)
class Rows:
    """The rows of a source on a worker; see Resources for the memory that they may take."""

    key: str
    source: Source
    memory: int
    folder: str | None


@dataclass(frozen=True)
class Missing:
    """What the worker would have to know: the rows, or the states of these shards."""

    rows: bool = False
    shards: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """What some neighbouring shards report. first, last: their numbers."""

    first: int
    last: int
    rows: int
    report: Any


class _Cache:
    """What this process has: rows by their key, states by that of their run and their shard."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.data: dict[str, Dataset] = {}
        self.cells: dict[tuple[str, int], Cell] = {}
        self.makers: dict[str, Callable[[Shard], Any]] = {}
        self.ranges: dict[tuple[str, int], Range] = {}


_here = _Cache()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="randsvm")


# --- the rows ------------------------------------------------------------------------------


def knows(key: str, rows: bytes | None) -> bool:
    """Whether the rows are known, after what was sent of them."""
    with _here.lock:
        if rows is not None and key not in _here.data:
            sent: Rows = pickle.loads(rows)
            store = TextStore(sent.source, sent.memory, sent.folder)
            _here.data[key] = Dataset(sent.source.summary, store, 1)
        return key in _here.data


def view(key: str, own: dict[str, Any], chosen: np.ndarray | None) -> Dataset:
    """A view of the rows as the master has it; what a Dataset of the cluster is pickled as."""
    D = _here.data[key]
    return (D if chosen is None else D.only(chosen))._view(**own)


# --- the first pass ------------------------------------------------------------------------


def learn(key: str, text: Text, number: int, begin: int, end: int) -> Learnt:
    """What a range of the text holds; where its rows end is kept for `cut`."""
    found = Range(text, begin, end)
    _here.ranges[key, number] = found
    return found.learnt


def cut(key: str, text: Text, number: int, begin: int, end: int, rows: int, nonzeros: int) -> Cuts:
    """The chunks that end in a range; see Range.cuts."""
    found = _here.ranges.pop((key, number), None) or Range(text, begin, end)
    return found.cuts(rows, nonzeros)


# --- work over shards ----------------------------------------------------------------------


def work(
    key: str, rows: bytes | None, message: bytes, shards: Sequence[Shard], threads: int
) -> Missing | list[Run]:
    """message: a function of a shard, whose reports come one by one."""
    if not knows(key, rows):
        return Missing(rows=True)
    do: Callable[[Shard], Any] = pickle.loads(message)
    reports = _pool(threads).map(do, shards)
    return [
        Run(shard.number, shard.number, shard.stop - shard.start, report)
        for shard, report in zip(shards, reports, strict=True)
    ]


@dataclass(frozen=True)
class Visit:
    """Changes to the states of a run, from number `first` on, and a question. whole: they do not
    depend on what was before. make: as States has it."""

    run: str
    make: bytes
    first: int
    whole: bool
    changes: list[Change]
    question: Callable[[Any], Any]


def visit(
    key: str, rows: bytes | None, message: bytes, shards: Sequence[Shard], threads: int
) -> Missing | list[Run]:
    """message: a Visit. Reports of neighbours are added up."""
    if not knows(key, rows):
        return Missing(rows=True)
    asked: Visit = pickle.loads(message)
    missing = [shard.number for shard in shards if not _is_ready(asked, shard)]
    if missing:
        return Missing(shards=tuple(missing))

    def of(shard: Shard) -> Any:
        cell = _here.cells[asked.run, shard.number]
        return cell.visit(asked.first, asked.changes, asked.question)

    found: list[Run] = []
    for shard, report in zip(shards, _pool(threads).map(of, shards), strict=True):
        rows_of = shard.stop - shard.start
        if found and found[-1].last + 1 == shard.number:
            last = found.pop()
            found.append(Run(last.first, shard.number, last.rows + rows_of, last.report + report))
        else:
            found.append(Run(shard.number, shard.number, rows_of, report))
    return found


def _is_ready(asked: Visit, shard: Shard) -> bool:
    """Whether the changes can be made to the state of a shard, which is made if they are whole."""
    with _here.lock:
        cell = _here.cells.get((asked.run, shard.number))
        if cell is None and asked.whole:
            make = _here.makers.get(asked.run)
            if make is None:
                make = _here.makers[asked.run] = pickle.loads(asked.make)
            cell = _here.cells[asked.run, shard.number] = Cell(make(shard), asked.first)
        return cell is not None and (asked.whole or cell.done >= asked.first)


def forget(run: str) -> None:
    """A run is over."""
    with _here.lock:
        _here.makers.pop(run, None)
        for key in [key for key in _here.cells if key[0] == run]:
            del _here.cells[key]


def leave(key: str) -> None:
    """The master is done with these rows."""
    with _here.lock:
        D = _here.data.pop(key, None)
    if D is not None:
        D.close()
