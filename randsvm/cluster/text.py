"""A text file by byte ranges: what the first pass learns of each, and chunks that are parsed when
somebody asks for them.

Knows nothing of workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

from randsvm.data.chunks import MadeStore, RawChunk, joined, settled
from randsvm.data.labels import LabelTable
from randsvm.data.reading import ParseOptions, Summary, next_cut, united
from randsvm.data.svmlight import (
    BYTE_ORDER_MARK,
    LONGEST_LINE,
    PADDING,
    Dialect,
    Fault,
    parse,
    parse_piece,
)
from randsvm.errors import InputError, TransferError

# Text is parsed in pieces of about this size, and has a checksum for each block of this size.
PIECE, BLOCK = 4 << 20, 64 << 10


@dataclass(frozen=True)
class Text:
    """A file of plain text and how it is parsed.

    size: in bytes, as the master has it. name: as given. seen: (begin, end, crc32) of some bytes,
    as the master has them.
    """

    path: str
    size: int
    options: ParseOptions
    name: str
    seen: tuple[tuple[int, int, int], ...] = ()

    @property
    def dialect(self) -> Dialect:
        options = self.options
        return Dialect(
            options.labels, options.zero_based, options.any_label, precise=options.precise
        )

    def read(self, begin: int, end: int) -> bytes:
        """Raises InputError and TransferError."""
        try:
            with Path(self.path).open("rb", buffering=0) as stream:
                if os.fstat(stream.fileno()).st_size != self.size:
                    raise TransferError(f"reading {self.path}: it is of another size on a worker")
                parts = []
                while begin < end and (part := os.pread(stream.fileno(), end - begin, begin)):
                    parts.append(part)
                    begin += len(part)
        except OSError as error:
            raise InputError(f"cannot open {self.path}: {error.strerror}") from error
        if begin < end:
            raise TransferError(f"reading {self.path}: it became shorter while in use")
        return b"".join(parts)

    def check_seen(self) -> None:
        """Raise TransferError where the file here is another one than the master has."""
        for begin, end, crc in self.seen:
            if crc32(self.read(begin, end)) != crc:
                raise self.changed()

    def changed(self) -> TransferError:
        """Return the error for content that is not what it was, or what it is elsewhere."""
        return TransferError(
            f"reading {self.path}: it changed while in use, or workers see different files there"
        )

    def line_from(self, at: int) -> int:
        """Where the first line begins that does not begin before `at`."""
        if at == 0:
            return 0
        begin = at = at - 1
        while at < self.size:
            text = self.read(at, min(at + PIECE, self.size))
            if (found := text.find(b"\n")) >= 0:
                return at + found + 1
            at += len(text)
            if at - begin > LONGEST_LINE:
                raise TransferError(f"reading {self.path}: a line is longer than {LONGEST_LINE}")
        return self.size

    def parsed(self, begin: int, end: int) -> bytes:
        """Return whole lines, without the mark that may begin a file."""
        return self.lines(self.read(begin, end), begin)

    def lines(self, content: bytes, begin: int) -> bytes:
        """Return the bytes from `begin` on without the mark that may begin a file."""
        return content.removeprefix(BYTE_ORDER_MARK) if begin == 0 else content


@dataclass(frozen=True)
class Checksums:
    """crc32 of consecutive blocks of a text, from byte `begin` on. ends : (blocks,) int64, where
    each ends; crcs : (blocks,) uint32."""

    begin: int
    ends: np.ndarray
    crcs: np.ndarray

    @classmethod
    def of(cls, content: bytes, begin: int) -> Checksums:
        """Return those of the bytes that begin at `begin`."""
        view, cuts = memoryview(content), range(0, len(content), BLOCK)
        crcs = [crc32(view[at : at + BLOCK]) for at in cuts]
        ends = [begin + min(at + BLOCK, len(content)) for at in cuts]
        return cls(begin, np.array(ends, np.int64), np.array(crcs, np.uint32))

    @classmethod
    def joined(cls, text: Text, parts: Sequence[Checksums]) -> Checksums:
        """Return those of a whole text. Raises TransferError where parts do not follow each other:
        their readers saw different files."""
        at = 0
        for part in parts:
            if part.begin != at:
                raise text.changed()
            at = int(part.ends[-1])
        if at != text.size:
            raise text.changed()
        ends = [np.empty(0, np.int64), *(part.ends for part in parts)]
        crcs = [np.empty(0, np.uint32), *(part.crcs for part in parts)]
        return cls(0, np.concatenate(ends), np.concatenate(crcs))

    def read(self, text: Text, begin: int, end: int) -> bytes:
        """Return a range of the text, begin < end, whose blocks are unchanged; else raise
        TransferError."""
        blocks = slice(np.searchsorted(self.ends, begin, "right"), self._after(end))
        start = at = int(self.ends[blocks.start - 1]) if blocks.start else 0
        ends = self.ends[blocks].tolist()
        content = memoryview(text.read(start, ends[-1]))
        for stop, crc in zip(ends, self.crcs[blocks].tolist(), strict=True):
            if crc32(content[at - start : stop - start]) != crc:
                raise text.changed()
            at = stop
        return bytes(content[begin - start : end - start])

    def _after(self, end: int) -> int:
        """Return the number of the first block that begins at `end` or later."""
        return int(np.searchsorted(self.ends, end, "left")) + 1


# --- the first pass ------------------------------------------------------------------------


@dataclass
class Learnt:
    """Of the lines of a range, and with + of two that follow each other.

    spellings: distinct label tokens, in order of appearance, with line (from 1 on) and column of
    the first; counts: rows of each. fault: the first bad token; nothing is known of what follows.
    checksums: of the lines, in parts.
    """

    rows: int
    lines: int
    nonzeros: int
    features: np.ndarray
    spellings: dict[bytes, tuple[int, int]]
    counts: dict[bytes, int]
    queries: int
    fault: Fault | None = None
    checksums: tuple[Checksums, ...] = ()

    @property
    def checksum(self) -> int:
        """One for all bytes."""
        found = 0
        for part in self.checksums:
            found = crc32(part.crcs.data, crc32(part.ends.data, found))
        return found

    def __add__(self, other: Learnt) -> Learnt:
        if self.fault is not None:
            return self
        fault = other.fault
        if fault is not None:
            fault = fault._replace(line=fault.line + self.lines)
        later = {
            token: (line + self.lines, column)
            for token, (line, column) in other.spellings.items()
            if token not in self.spellings
        }
        counts = dict(self.counts)
        for token, count in other.counts.items():
            counts[token] = counts.get(token, 0) + count
        return Learnt(
            self.rows + other.rows,
            self.lines + other.lines,
            self.nonzeros + other.nonzeros,
            united(self.features, other.features),
            {**self.spellings, **later},
            counts,
            self.queries + other.queries,
            fault,
            self.checksums + other.checksums,
        )


NOTHING = Learnt(0, 0, 0, np.empty(0, np.int32), {}, {}, 0)


class Range:
    """The lines that begin in a range of bytes: what is learnt of them, and where rows end, until
    the chunks are cut."""

    def __init__(self, text: Text, begin: int, end: int) -> None:
        text.check_seen()
        self.text = text
        self.begin, self.end = text.line_from(begin), text.line_from(end)
        self.learnt = NOTHING
        lengths, ends = [np.zeros(1, np.int64)], [np.empty(0, np.int64)]
        at = self.begin
        while at < self.end and self.learnt.fault is None:
            to = min(text.line_from(min(at + PIECE, self.end)), self.end)
            learnt, nonzeros, row_ends = self._piece(at, to)
            self.learnt = self.learnt + learnt
            lengths.append(nonzeros)
            ends.append(row_ends)
            at = to
        self.indptr = np.cumsum(np.concatenate(lengths))
        self.row_ends = np.concatenate(ends)

    def _piece(self, begin: int, end: int) -> tuple[Learnt, np.ndarray, np.ndarray]:
        """What is learnt of some lines, the nonzeros of each row and where it ends."""
        content = self.text.read(begin, end)
        mark = begin == 0 and content.startswith(BYTE_ORDER_MARK)
        plain = content.removeprefix(BYTE_ORDER_MARK) if mark else content
        piece = parse_piece(plain + PADDING, self.text.dialect)
        block = piece.block
        tokens = [token for token, _, _ in piece.spellings]
        counts = np.bincount(block.codes, minlength=len(tokens)).tolist()
        learnt = Learnt(
            len(block),
            piece.lines,
            len(block.values),
            block.features,
            {token: (line, column) for token, line, column in piece.spellings},
            dict(zip(tokens, counts, strict=True)),
            block.queries,
            piece.fault,
            (Checksums.of(content, begin),),
        )
        return learnt, np.diff(block.indptr), begin + _row_ends(content, len(block))

    def cuts(self, rows: int, nonzeros: int) -> Cuts:
        """The chunks that end here. rows, nonzeros: of the one that the range before left open."""
        options, at, ends = self.text.options, 0, []
        while at < len(self.indptr) - 1:
            to = next_cut(
                self.indptr, at, options.chunk_rows - rows, options.chunk_nonzeros - nonzeros
            )
            rows += to - at
            nonzeros += int(self.indptr[to] - self.indptr[at])
            if rows >= options.chunk_rows or nonzeros >= options.chunk_nonzeros:
                ends.append((int(self.row_ends[to - 1]), rows, nonzeros))
                rows = nonzeros = 0
            at = to
        return Cuts(ends, rows, nonzeros, self.learnt.checksum)


@dataclass(frozen=True)
class Cuts:
    """ends: where chunks end, in bytes, and their rows and nonzeros; rows, nonzeros: of the chunk
    that is left open; checksum: of the bytes that were read for it."""

    ends: list[tuple[int, int, int]]
    rows: int
    nonzeros: int
    checksum: int


def _row_ends(content: bytes, rows: int) -> np.ndarray:
    """Where each row's line ends, (rows,) int64; lines without a row are part of what follows."""
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1
    if not content.endswith(b"\n"):
        ends = np.append(ends, len(content))
    if len(ends) > rows:
        begins = np.concatenate([[0], ends[:-1]])
        lines = (content[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True))
        ends = ends[np.array([_is_row(line) for line in lines], bool)]
    return ends[:rows].astype(np.int64)


def _is_row(line: bytes) -> bool:
    return bool(line.removeprefix(BYTE_ORDER_MARK).split(b"#", 1)[0].split())


# --- chunks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Text files, one after the other, and their chunks. Values are float64 in all chunks where
    the summary says so, and else in those in which rounding shows.

    checksums: of each file as the first pass read it. places : (chunks + 1,) int64, where each
    chunk begins, counted in bytes of all files; rows, nonzeros : (chunks,) int64.
    """

    texts: tuple[Text, ...]
    checksums: tuple[Checksums, ...]
    summary: Summary
    places: np.ndarray
    rows: np.ndarray
    nonzeros: np.ndarray

    def chunk(self, number: int) -> RawChunk:
        """Raises InputError, and TransferError where the text is not what it was."""
        begin, end = self.places[number : number + 2].tolist()
        parts = []
        for text, checksums in zip(self.texts, self.checksums, strict=True):
            if begin < text.size and end > 0:
                content = checksums.read(text, max(begin, 0), min(end, text.size))
                parts.append(self._rows(text, text.lines(content, max(begin, 0))))
            begin, end = begin - text.size, end - text.size
        chunk = joined(parts) if self.summary.precise else settled(parts, number)
        if len(chunk.y) != self.rows[number] or len(chunk.values) != self.nonzeros[number]:
            raise self.texts[0].changed()
        return chunk

    def _rows(self, text: Text, lines: bytes) -> RawChunk:
        options = text.options
        block = parse(
            lines,
            name=text.path,
            labels=options.labels,
            zero_based=options.zero_based,
            unlabelled=options.any_label,
            precise=True,
            near=not self.summary.precise,
        )
        y = block.y
        if options.labels == "class":
            names = self.summary.names
            table = LabelTable(text.path, names=names, closed=True, any_label=options.any_label)
            y = table.classes(block)
        return RawChunk(y, block.indptr, block.indices, block.values)

    def store(self, limit: int, folder: str | None) -> MadeStore:
        """Its chunks; limit, folder: as MadeStore has them."""
        return MadeStore(self.chunk, self.rows, self.nonzeros, limit, folder, "the workers")
