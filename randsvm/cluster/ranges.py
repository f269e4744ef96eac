"""Texts by ranges of bytes, and work on each of them by the workers of a crew; results in order.

Knows nothing of what the work is.
"""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from randsvm.cluster import worker
from randsvm.cluster.text import BLOCK, Text
from randsvm.cluster.worker_pool import Answer, Tasks, WorkerPool
from randsvm.data.reading import ParseOptions
from randsvm.data.svmlight import ParsedPiece
from randsvm.errors import InputError, ParameterError
from randsvm.files import COMPRESSIONS, STANDARD

# So many results for each thread may wait for one before them.
AHEAD = 8
# Bytes of text that a task reads.
RANGE = 32 << 20


def text_of(path: str, options: ParseOptions) -> Text:
    """A file that every worker can open by its name."""
    if path == STANDARD:
        raise ParameterError("--cluster needs a named file that all workers see, not a pipe")
    try:
        with Path(path).open("rb") as stream:
            status, head = os.fstat(stream.fileno()), stream.read(8)
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ParameterError(f"--cluster needs a regular file that all workers see: {path} is none")
    if head.startswith(tuple(COMPRESSIONS)):
        raise ParameterError(f"--cluster reads plain text only: decompress {path}")
    # Not where a symlink leads to: it may lead elsewhere on a worker.
    return Text(str(Path(path).absolute()), status.st_size, options, path)


@dataclass(frozen=True)
class Part:
    """A range of bytes of a text that a task reads. number: among all of them; of: the number of
    its text; base: bytes of the texts before this one; total: of all of them."""

    number: int
    of: int
    text: Text
    base: int
    begin: int
    end: int
    total: int

    def call(self, key: str, *words: Any) -> tuple[Any, ...]:
        return (key, self.text, self.number, self.begin, self.end, *words)


def _seen(text: Text, begin: int, end: int) -> Text:
    """Return the text with checksums of both ends of a range: a worker that sees another file under
    this name is likely to notice before it reads the range."""
    ends = {(begin, min(begin + BLOCK, end)), (max(begin, end - BLOCK), end)}
    return replace(text, seen=tuple((a, b, crc32(text.read(a, b))) for a, b in sorted(ends)))


def parts_of(texts: Sequence[Text]) -> list[Part]:
    """Return the ranges of all texts."""
    found: list[Part] = []
    base, total = 0, sum(text.size for text in texts)
    for of, text in enumerate(texts):
        for at in range(0, max(text.size, 1), RANGE):
            end = min(at + RANGE, text.size)
            seen = _seen(text, at, end)
            found.append(Part(len(found), of, seen, base, at, end, total))
        base += text.size
    return found


def over_lines(
    address: str, paths: Sequence[str], options: ParseOptions, work: Callable[[ParsedPiece], Any]
) -> Iterator[tuple[Part, Any]]:
    """work(lines of a range), in the order of the files, on the workers of a cluster. work: a
    function that they can import, or an object of such a class."""
    parts = parts_of([text_of(path, options) for path in paths])
    worker_pool, pickled = WorkerPool(address), pickle.dumps(work)
    try:
        calls = [(pickled, part.text, part.begin, part.end) for part in parts]
        for part, answer in zip(parts, in_order(worker_pool, worker.of_lines, calls), strict=True):
            yield part, answer.result
    finally:
        worker_pool.close()


def in_order(
    worker_pool: WorkerPool,
    task: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    where: str | None = None,
) -> Iterator[Answer]:
    """task(*call) of each call, on whatever worker, or on one while it is there; the answers in
    order. None is begun long before those that it has to wait for."""
    found: dict[int, Answer] = {}
    tasks = Tasks(worker_pool)
    todo, following = list(range(len(calls)))[::-1], 0
    try:
        while following < len(calls):
            members = worker_pool.members()
            if where in members:
                members = {where: members[where]}
            busy = dict.fromkeys(members, 0)
            for given in tasks.given.values():
                busy[given.worker] = busy.get(given.worker, 0) + 1
            most = following + AHEAD * sum(members.values())
            for name, threads in members.items():
                while todo and todo[-1] < most and busy[name] <= threads:
                    number = todo.pop()
                    tasks.give(name, number, task, *calls[number])
                    busy[name] += 1
            answer = tasks.answer()
            if answer is None:
                continue
            tasks.count(answer.lost, len(calls))
            if answer.lost:
                todo = sorted([*todo, answer.token], reverse=True)
            else:
                tasks.measure(answer)
                found[answer.token] = answer
            while following in found:
                yield found.pop(following)
                following += 1
    finally:
        tasks.drop()
