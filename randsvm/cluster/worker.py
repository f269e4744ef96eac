"""What a worker does: plain tasks over what it has cached. It is never asked to remember: what it
does not have it says (`Missing`), and is sent again.

Runs on the workers; knows nothing of the scheduler.
"""

from __future__ import annotations

import pickle
import platform
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock, Thread
from typing import Any, TypeAlias

import numpy as np
import scipy

from randsvm import __version__
from randsvm.cluster.arithmetic import arithmetic
from randsvm.cluster.text import Cuts, Learnt, Range, Source, Text
from randsvm.data.chunks import RamStore, RawChunk
from randsvm.data.dataset import Dataset
from randsvm.data.reading import Summary
from randsvm.data.shard_executor import Change, SerialExecutor, Shard, StateCell
from randsvm.data.svmlight import PADDING, ParsedPiece, parse_piece
from randsvm.events import Waiting, Watch, emit, listening, silent
from randsvm.parallel import Cancelled, ThreadPool

# The fields of a view that are its own; the others follow from the file.
OWN = ("targets", "scaling", "mapping", "d", "nnz")
# Seconds after which rows are released that no task and no renewal has been about: the process that
# needed them was killed. If it was not, `Missing` brings them back.
LEASE = 180.0


def versions() -> dict[str, str]:
    """Of what decides the bits of a model, and of what can be sent between processes."""
    return {
        "randsvm": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def greeting() -> tuple[dict[str, str], dict[str, str]]:
    """`versions`, without which a worker is left out, and `arithmetic`, of which it is told where
    it differs."""
    return versions(), arithmetic()


@dataclass(frozen=True)
class Rows:
    """Rows on a worker: of a text, put together from others, or sent. memory, folder: as MadeStore
    has them."""

    key: str
    source: Source | Regrouping | Sent
    memory: int
    folder: str | None


@dataclass(frozen=True)
class Regrouping:
    """Chunks that made(D, number) puts together; see Dataset.regrouped. view: D, pickled, a view
    of `rows`."""

    rows: Rows
    view: bytes
    made: Callable[[Dataset, int], RawChunk]
    sizes: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Sent:
    """The chunks themselves, of few rows. whole: the rows that they were chosen from."""

    whole: Rows
    summary: Summary
    chunks: Sequence[RawChunk]


@dataclass(frozen=True)
class Missing:
    """What the worker would have to know: the rows, or the states of these shards; nothing where
    it was stopped."""

    rows: bool = False
    shards: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reports:
    """Pickled Runs; began, ended: when the worker was at it, by its clock, in seconds."""

    runs: bytes
    began: float
    ended: float


@dataclass(frozen=True)
class Run:
    """What some neighbouring shards report. first, last: their numbers."""

    first: int
    last: int
    rows: int
    report: Any


class _Cache:
    """What this process has: rows by their key, states by that of their run and their shard. Keys
    are paths: see key_below."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.data: dict[str, Dataset] = {}
        self.cells: dict[tuple[str, int], StateCell] = {}
        self.makers: dict[str, Callable[[Shard], Any]] = {}
        self.ranges: dict[tuple[str, int], Range] = {}
        # Of tasks that nobody waits for any more: the key of their rows, and their number.
        self.unwanted: set[tuple[str, int]] = set()
        # Of this worker, as a call has said last.
        self.threads: int | None = None
        # First part of a key -> when a task or a renewal was about it last (time.monotonic), and
        # how many tasks are at work.
        self.touched: dict[str, float] = {}
        self.at_work: Counter[str] = Counter()
        self.releasing: Thread | None = None

    def touch(self, key: str, tasks: int = 0) -> None:
        """Extend the lease of some rows. tasks: how many more are at work."""
        root = key.partition("/")[0]
        with self.lock:
            self.touched[root] = time.monotonic()
            self.at_work[root] += tasks
            if self.releasing is None:
                self.releasing = Thread(target=_release_for_ever, daemon=True)
                self.releasing.start()


_here = _Cache()


@contextmanager
def _at_work(key: str) -> Iterator[None]:
    """Keep the lease of some rows while a task is about them."""
    _here.touch(key, 1)
    try:
        yield
    finally:
        _here.touch(key, -1)


def renew(key: str) -> None:
    """Extend the lease of rows whose master solves. Called beside the tasks of this worker."""
    if key in _here.touched:
        _here.touch(key)


def release() -> None:
    """Give up all rows whose lease is over."""
    latest = time.monotonic() - LEASE
    with _here.lock:
        over = [key for key, at in _here.touched.items() if at < latest and not _here.at_work[key]]
    for key in over:
        leave(key)


def _release_for_ever() -> None:
    while True:
        time.sleep(min(LEASE / 6, 10.0))
        release()


@cache
def _pool(threads: int) -> ThreadPool:
    return ThreadPool(threads)


# --- the rows ------------------------------------------------------------------------------


def knows(key: str, rows: bytes | None) -> bool:
    """Whether the rows are known, after what was sent of them."""
    with _here.lock:
        if rows is not None:
            _remember(pickle.loads(rows))
        return key in _here.data


def _remember(rows: Rows) -> None:
    """These rows, and those that they are put together from."""
    source, limit, folder = rows.source, rows.memory, rows.folder
    if rows.key in _here.data:
        return
    if isinstance(source, Source):
        _here.data[rows.key] = Dataset(source.summary, source.store(limit, folder), 1)
        return
    if isinstance(source, Sent):
        _remember(source.whole)
        store = RamStore()
        for chunk in source.chunks:
            store.append(chunk)
        _here.data[rows.key] = Dataset(source.summary, store, 1)
        return
    _remember(source.rows)
    D: Dataset = pickle.loads(source.view)
    limit = max(0, limit - D.store.resident_bytes)
    _here.data[rows.key] = D.regrouped(source.made, source.sizes, source.counts, limit, folder)


# The rows that a view has, as Dataset.chosen has them: how many, and their bits.
Chosen: TypeAlias = tuple[int, np.ndarray] | None


def own_of(D: Dataset) -> tuple[dict[str, Any], Chosen]:
    """What makes a view of rows of a view of all of them; see `view`."""
    chosen = None if D.chosen is None else (len(D.chosen), np.packbits(D.chosen))
    return {name: getattr(D, name) for name in OWN}, chosen


def view(
    key: str, own: dict[str, Any], chosen: Chosen, numbers: Sequence[int] | None = None
) -> Dataset:
    """A view of the rows as the master has it; what a Dataset of the cluster is pickled as.
    numbers: of its chunks."""
    D = _here.data[key]
    if numbers is not None:
        D = D.of_chunks(numbers)
    if chosen is not None:
        D = D.only(np.unpackbits(chosen[1], count=chosen[0]).astype(bool))
    return D._view(**own)


def whole_view(key: str, own: dict[str, Any], chosen: Chosen) -> Dataset:
    """The same for a work on all rows, which takes one thread; others have their own."""
    return view(key, own, chosen)._view(executor=SerialExecutor(_here.threads))


# --- the first pass ------------------------------------------------------------------------


def learn(key: str, text: Text, number: int, begin: int, end: int) -> Learnt:
    """What a range of the text holds; where its rows end is kept for `cut`."""
    with _at_work(key):
        found = Range(text, begin, end)
    with _here.lock:
        _here.ranges[key, number] = found
    return found.learnt


def cut(key: str, text: Text, number: int, begin: int, end: int, rows: int, nonzeros: int) -> Cuts:
    """The chunks that end in a range; see Range.cuts."""
    with _here.lock:
        found = _here.ranges.pop((key, number), None)
    with _at_work(key):
        found = found or Range(text, begin, end)
        return found.cuts(rows, nonzeros)


def of_lines(work: bytes, text: Text, begin: int, end: int) -> Any:
    """work: a pickled function of the lines that begin in a range of the text."""
    do: Callable[[ParsedPiece], Any] = pickle.loads(work)
    text.check_seen()
    lines = text.parsed(text.line_from(begin), text.line_from(end))
    return do(parse_piece(lines + PADDING, text.dialect))


# --- tasks that can be stopped -------------------------------------------------------------


def _watch(key: str, number: int) -> Watch:
    """The listener of a task."""

    def watch(event: object) -> None:
        # Those of rows that nobody asks for any more are unwanted as well.
        if (key, number) in _here.unwanted or key not in _here.data:
            raise Cancelled

    return watch


def stop(key: str, number: int) -> None:
    """Nobody waits for this task any more. Called beside the tasks of this worker."""
    with _here.lock:
        if key in _here.data:
            _here.unwanted.add((key, number))


def _runs(
    do: Callable[[Shard], Any], shards: Sequence[Shard], threads: int, watch: Watch
) -> Iterator[Run]:
    """do(shard) of each, which begins with an event."""

    def watched(shard: Shard) -> Any:
        with listening(watch):
            emit(Waiting())
            return do(shard)

    for shard, report in zip(shards, _pool(threads).map_in_order(watched, shards), strict=True):
        yield Run(shard.number, shard.number, shard.stop - shard.start, report)


# --- work over shards ----------------------------------------------------------------------


@dataclass(frozen=True)
class Each:
    """A function of each shard, whose reports come one by one."""

    do: Callable[[Shard], Any]

    def runs(self, shards: Sequence[Shard], threads: int, watch: Watch) -> list[Run]:
        return list(_runs(self.do, shards, threads, watch))


@dataclass(frozen=True)
class Visit:
    """Changes to the states of a run, from number `first` on, and a question, whose reports of
    neighbours are added up. make: as States has it, where the changes do not depend on what was
    before."""

    run: str
    make: bytes | None
    first: int
    changes: list[Change]
    question: Callable[[Any], Any]

    def runs(self, shards: Sequence[Shard], threads: int, watch: Watch) -> Missing | list[Run]:
        missing = [shard.number for shard in shards if not _is_ready(self, shard)]
        if missing:
            return Missing(shards=tuple(missing))

        def of(shard: Shard) -> Any:
            cell = _here.cells[self.run, shard.number]
            with listening(silent):  # a change is made whole
                return cell.query(self.first, self.changes, self.question)

        found: list[Run] = []
        for run in _runs(of, shards, threads, watch):
            if found and found[-1].last + 1 == run.first:
                last = found.pop()
                report = last.report + run.report
                run = Run(last.first, run.last, last.rows + run.rows, report)
            found.append(run)
        return found


def work(
    key: str,
    rows: bytes | None,
    message: bytes,
    number: int,
    shards: Sequence[Shard],
    threads: int,
) -> Missing | Reports:
    """What these shards report. message: Each or Visit, pickled."""
    began = time.time()
    if not knows(key, rows):
        return Missing(rows=True)
    asked: Each | Visit = pickle.loads(message)
    try:
        with _at_work(key):
            found = asked.runs(shards, threads, _watch(key, number))
    except Cancelled:
        return Missing()
    return found if isinstance(found, Missing) else Reports(pickle.dumps(found), began, time.time())


def _is_ready(asked: Visit, shard: Shard) -> bool:
    """Whether the changes can be made to the state of a shard, which is made if they are whole."""
    with _here.lock:
        cell = _here.cells.get((asked.run, shard.number))
        if cell is None and asked.make is not None:
            make = _here.makers.get(asked.run)
            if make is None:
                make = _here.makers[asked.run] = pickle.loads(asked.make)
            cell = _here.cells[asked.run, shard.number] = StateCell(make(shard), asked.first)
        return cell is not None and (asked.make is not None or cell.done >= asked.first)


# --- work on all rows ----------------------------------------------------------------------


def call(
    key: str, rows: bytes | None, message: bytes, number: int, threads: int
) -> Missing | bytes:
    """message: a function; its result, pickled. threads: how many such calls are under way on this
    worker at a time."""
    if not knows(key, rows):
        return Missing(rows=True)
    _here.threads = threads
    work: Callable[[], Any] = pickle.loads(message)
    try:
        with _at_work(key), listening(_watch(key, number)):
            return pickle.dumps(work())
    except Cancelled:
        return Missing()


# --- the end -------------------------------------------------------------------------------


def forget(run: str) -> None:
    """A run is over."""
    with _here.lock:
        _here.makers.pop(run, None)
        for key in [key for key in _here.cells if key[0] == run]:
            del _here.cells[key]


def key_below(key: str) -> str:
    """A new key, of what goes when these rows go: other rows that are made of them, or a run."""
    return f"{key}/{uuid.uuid4().hex}"


def leave(key: str) -> None:
    """The master is done with these rows, and with all that is below them, whether or not it has
    said so: what was broken off may not have."""

    def goes(other: str) -> bool:
        return other == key or other.startswith(f"{key}/")

    with _here.lock:
        left = [_here.data.pop(one) for one in [*_here.data] if goes(one)]
        for place in [place for place in _here.ranges if goes(place[0])]:
            del _here.ranges[place]
        for run in [run for run in _here.makers if goes(run)]:
            del _here.makers[run]
        for cell in [cell for cell in _here.cells if goes(cell[0])]:
            del _here.cells[cell]
        _here.unwanted = {one for one in _here.unwanted if not goes(one[0])}
        for table in (_here.touched, _here.at_work):
            table.pop(key, None)
    for D in left:
        D.store.close()
