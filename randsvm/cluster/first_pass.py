"""The first pass over texts, by the workers of a crew: a task learns what a range of it holds.

Knows nothing of what becomes of the rows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from randsvm.cluster import worker
from randsvm.cluster.crew import Crew, Tasks
from randsvm.cluster.text import NOTHING, Cuts, Learnt, Source, Text
from randsvm.data.labels import LabelTable
from randsvm.data.reading import ParseOptions, Summary
from randsvm.data.svmlight import Spelling
from randsvm.errors import DataError, InputError, ParameterError
from randsvm.events import Progress, tell
from randsvm.files import COMPRESSIONS, STANDARD, decoded, name_of

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
    return Text(str(Path(path).resolve()), status.st_size, options, path)


@dataclass(frozen=True)
class Part:
    """A range of bytes of a text that a task reads. number: among all of them; base: bytes of the
    texts before this one."""

    number: int
    text: Text
    base: int
    begin: int
    end: int

    def call(self, key: str, *words: Any) -> tuple[Any, ...]:
        return (key, self.text, self.number, self.begin, self.end, *words)


def _parts(texts: Sequence[Text]) -> list[Part]:
    found: list[Part] = []
    base = 0
    for text in texts:
        for at in range(0, max(text.size, 1), RANGE):
            found.append(Part(len(found), text, base, at, min(at + RANGE, text.size)))
        base += text.size
    return found


def first_pass(crew: Crew, key: str, texts: Sequence[Text]) -> Source:
    """What the rows are, and where the chunks are cut. Raises DataError for the first bad line."""
    parts, size = _parts(texts), sum(text.size for text in texts)
    table = LabelTable(texts[0].name, any_label=texts[0].options.any_label)
    every, calls = NOTHING, [part.call(key) for part in parts]
    learnt = dict.fromkeys(texts, NOTHING)
    for found, part in zip(_in_order(crew, worker.learn, calls), parts, strict=True):
        learnt[part.text] = learnt[part.text] + found
        tell(Progress("reading", part.base + part.end, size, "B"))
        if found.fault is not None:
            break
    for text in texts:
        table.path = text.name
        for token, (line, column) in learnt[text].spellings.items():
            table.number(Spelling(decoded(token), line, column))
        if (fault := learnt[text].fault) is not None:
            raise DataError(text.name, fault.line, fault.column, fault.problem)
        every = every + learnt[text]
    if not every.rows:
        name = name_of([text.name for text in texts])
        raise DataError(name, 1, 1, "expected a row, found an empty file")
    return _source(texts, table, every, _cuts(crew, key, parts))


def _cuts(crew: Crew, key: str, parts: Sequence[Part]) -> list[tuple[int, int, int]]:
    """Where chunks end, and their rows and nonzeros: each range goes on where the one before left
    off."""
    ends: list[tuple[int, int, int]] = []
    last = Cuts([], 0, 0)
    for part in parts:
        call = part.call(key, last.rows, last.nonzeros)
        last = next(_in_order(crew, worker.cut, [call]))
        ends += [(part.base + end, rows, nonzeros) for end, rows, nonzeros in last.ends]
    end = parts[-1].base + parts[-1].end
    return [*ends, (end, last.rows, last.nonzeros)] if last.rows else ends


def _source(
    texts: Sequence[Text], table: LabelTable, learnt: Learnt, ends: list[tuple[int, int, int]]
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
    return Source(tuple(texts), summary, places, rows, nonzeros)


def _in_order(
    crew: Crew, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
) -> Iterator[Any]:
    """task(*call) of each call, on whatever worker; the results in order."""
    found: dict[int, Any] = {}
    tasks = Tasks(crew)
    todo, following = list(range(len(calls)))[::-1], 0
    try:
        while following < len(calls):
            members = crew.members()
            busy = dict.fromkeys(members, 0)
            for name, _ in tasks.given.values():
                busy[name] = busy.get(name, 0) + 1
            for name, threads in members.items():
                while todo and busy[name] <= threads:
                    number = todo.pop()
                    tasks.give(name, number, task, *calls[number])
                    busy[name] += 1
            answer = tasks.answer()
            if answer is None:
                continue
            if answer.lost:
                todo.append(answer.token)
            else:
                found[answer.token] = answer.result
            while following in found:
                yield found.pop(following)
                following += 1
    finally:
        tasks.drop()
