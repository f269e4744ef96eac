"""A text file that is read by byte ranges, with checksums of its content.

The first pass summarises each range; chunks are parsed when they are needed. This module does not
know about workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np

from randsvm.arrays import sorted_union
from randsvm.data.chunks import ComputedStore, RawChunk, join_chunks
from randsvm.data.labels import LabelTable
from randsvm.data.reading import ParseOptions, Summary, chunk_end
from randsvm.data.svmlight import (
    BYTE_ORDER_MARK,
    LONGEST_LINE,
    PADDING,
    Block,
    Dialect,
    Fault,
    ParsedPiece,
    Spelling,
    parse,
    parse_piece,
)
from randsvm.data.text_table import DelimitedText, clean_label
from randsvm.errors import InputError, TransferError
from randsvm.files import decoded

# Bytes of text that are parsed at once, and that have one checksum.
PIECE_BYTES, BLOCK_BYTES = 4 << 20, 64 << 10


@dataclass(frozen=True)
class TextFile:
    """A plain text file and its parse options, the same for the client and all workers.

    path: absolute. size: in bytes, on the client. name: as the user gave it. checksums: (begin,
    end, crc32) of some byte ranges, on the client. table: parser of a table; None: svmlight.
    """

    path: str
    size: int
    options: ParseOptions
    name: str
    checksums: tuple[tuple[int, int, int], ...] = ()
    table: DelimitedText | None = None

    @property
    def dialect(self) -> Dialect:
        """Return the options of the parser."""
        options = self.options
        return Dialect(
            options.labels,
            options.zero_based,
            options.any_label,
            float64=options.float64,
            groups=options.groups,
        )

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes begin .. end - 1.

        Raises InputError if the file cannot be opened, TransferError if its size has changed.
        """
        try:
            with Path(self.path).open("rb", buffering=0) as stream:
                if os.fstat(stream.fileno()).st_size != self.size:
                    raise self.changed_error()
                parts = []
                while begin < end and (part := os.pread(stream.fileno(), end - begin, begin)):
                    parts.append(part)
                    begin += len(part)
        except OSError as error:
            raise InputError(f"cannot open {self.path}: {error.strerror}") from error
        if begin < end:
            raise TransferError(f"reading {self.path}: it became shorter while in use")
        return b"".join(parts)

    def check_content(self) -> None:
        """Raise TransferError if the checksums of the client do not match the file here."""
        for begin, end, crc in self.checksums:
            if crc32(self.read(begin, end)) != crc:
                raise self.changed_error()

    def changed_error(self) -> TransferError:
        """Return the error for content that differs between two reads or two machines."""
        return TransferError(
            f"reading {self.path}: it changed while in use, or workers see different files there"
        )

    def line_start(self, at: int) -> int:
        """Return the start of the first line that begins at byte `at` or later."""
        if at == 0:
            return 0
        if self.table is not None:
            return self.table.record_start(at, self.size)
        begin = at = at - 1
        while at < self.size:
            text = self.read(at, min(at + PIECE_BYTES, self.size))
            if (found := text.find(b"\n")) >= 0:
                return at + found + 1
            at += len(text)
            if at - begin > LONGEST_LINE:
                raise TransferError(f"reading {self.path}: a line is longer than {LONGEST_LINE}")
        return self.size

    def piece(self, begin: int, end: int) -> ParsedPiece:
        """Return the lines that begin in a byte range."""
        first = self.line_start(begin)
        return self.parsed(self.read(first, self.line_start(end)), first)[0]

    def parsed(self, content: bytes, begin: int) -> tuple[ParsedPiece, np.ndarray]:
        """Return the lines of the bytes from `begin` on, and the byte where each row ends."""
        text = without_byte_order_mark(content, begin)
        if self.table is None:
            piece = parse_piece(text + PADDING, self.dialect)
            return piece, begin + _row_ends(content, len(piece.block))
        options = self.options
        first_byte = self.table.first_byte if begin == 0 else 0
        found = self.table.parse(
            text[first_byte:] + PADDING,
            options.labels,
            options.zero_based,
            options.any_label,
            is_start=begin == 0,
        )
        assert found.row_ends is not None
        ends = found.row_ends + (begin + len(content) - len(text) + first_byte)
        return ParsedPiece(found.block, found.spellings, found.lines, found.fault), ends

    def label(self, token: bytes) -> str:
        """Return the label that a token of the text stands for."""
        text = decoded(token)
        return text if self.table is None else clean_label(text)


def without_byte_order_mark(content: bytes, begin: int) -> bytes:
    """Return the bytes of a file from `begin` on without the byte order mark."""
    return content.removeprefix(BYTE_ORDER_MARK) if begin == 0 else content


@dataclass(frozen=True)
class Checksums:
    """Checksums of consecutive blocks of a file, from byte `begin` on.

    ends : (blocks,) int64, the byte where each block ends; crcs : (blocks,) uint32.
    """

    begin: int
    ends: np.ndarray
    crcs: np.ndarray

    @classmethod
    def of(cls, content: bytes, begin: int) -> Checksums:
        """Return the checksums of the bytes of a file from `begin` on."""
        view, cuts = memoryview(content), range(0, len(content), BLOCK_BYTES)
        crcs = [crc32(view[at : at + BLOCK_BYTES]) for at in cuts]
        ends = [begin + min(at + BLOCK_BYTES, len(content)) for at in cuts]
        return cls(begin, np.array(ends, np.int64), np.array(crcs, np.uint32))

    @classmethod
    def joined(cls, file: TextFile, parts: Sequence[Checksums]) -> Checksums:
        """Return the checksums of a whole file from those of its parts.

        Raises TransferError if the parts leave gaps or overlap: then workers saw different files.
        """
        at = 0
        for part in parts:
            if part.begin != at:
                raise file.changed_error()
            at = int(part.ends[-1])
        if at != file.size:
            raise file.changed_error()
        ends = [np.empty(0, np.int64), *(part.ends for part in parts)]
        crcs = [np.empty(0, np.uint32), *(part.crcs for part in parts)]
        return cls(0, np.concatenate(ends), np.concatenate(crcs))

    def read(self, file: TextFile, begin: int, end: int) -> bytes:
        """Return the bytes begin .. end - 1, begin < end, of a file.

        Raises TransferError if a block has changed.
        """
        blocks = slice(np.searchsorted(self.ends, begin, "right"), self._after(end))
        start = at = int(self.ends[blocks.start - 1]) if blocks.start else 0
        ends = self.ends[blocks].tolist()
        content = memoryview(file.read(start, ends[-1]))
        for stop, crc in zip(ends, self.crcs[blocks].tolist(), strict=True):
            if crc32(content[at - start : stop - start]) != crc:
                raise file.changed_error()
            at = stop
        return bytes(content[begin - start : end - start])

    def _after(self, end: int) -> int:
        """Return the number of the first block that begins at `end` or later."""
        return int(np.searchsorted(self.ends, end, "left")) + 1


# --- the first pass ------------------------------------------------------------------------


@dataclass
class RangeSummary:
    """Summary of consecutive lines; summaries of consecutive ranges can be added.

    spellings: line and column of the first appearance of each label token, in order; lines count
    from 1. counts: number of rows of each token. weighted: whether any row has a weight other than
    1. zero_weights: number of rows of weight 0, which are left out. fault: the first bad token; the
    summary leaves out all later lines. checksums: one entry for each piece that was read. groups :
    (rows,) int64, the qids if they are kept.
    """

    rows: int
    lines: int
    nonzeros: int
    features: np.ndarray
    spellings: dict[bytes, tuple[int, int]]
    counts: dict[bytes, int]
    queries: int
    weighted: bool = False
    zero_weights: int = 0
    fault: Fault | None = None
    checksums: tuple[Checksums, ...] = ()
    groups: np.ndarray = field(default_factory=partial(np.empty, 0, np.int64))

    @property
    def checksum(self) -> int:
        """Return one checksum of all bytes."""
        found = 0
        for part in self.checksums:
            found = crc32(part.crcs.data, crc32(part.ends.data, found))
        return found

    def __add__(self, other: RangeSummary) -> RangeSummary:
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
        return RangeSummary(
            self.rows + other.rows,
            self.lines + other.lines,
            self.nonzeros + other.nonzeros,
            sorted_union(self.features, other.features),
            {**self.spellings, **later},
            counts,
            self.queries + other.queries,
            self.weighted or other.weighted,
            self.zero_weights + other.zero_weights,
            fault,
            self.checksums + other.checksums,
            np.concatenate([self.groups, other.groups]),
        )


EMPTY_SUMMARY = RangeSummary(0, 0, 0, np.empty(0, np.int32), {}, {}, 0)


class TextRange:
    """The lines that begin in a byte range: their summary, and the data from which chunks are cut.

    indptr : (rows + 1,) int64, nonzeros before each row; row_ends : (rows,) int64, the byte where
    each row ends.
    """

    def __init__(
        self, file: TextFile, begin: int, end: int, weights: np.ndarray | None = None
    ) -> None:
        """Read the lines.

        weights: (rows,) float64, of the rows, from a file of weights; None: those of the text.
        """
        file.check_content()
        self.file, self.weights, self.rows_read = file, weights, 0
        self.begin, self.end = file.line_start(begin), file.line_start(end)
        self.summary = EMPTY_SUMMARY
        lengths, row_ends = [np.zeros(1, np.int64)], [np.empty(0, np.int64)]
        at = self.begin
        while at < self.end and self.summary.fault is None:
            piece_end = min(file.line_start(min(at + PIECE_BYTES, self.end)), self.end)
            summary, nonzeros, ends = self._piece(at, piece_end)
            self.summary = self.summary + summary
            lengths.append(nonzeros)
            row_ends.append(ends)
            at = piece_end
        self.indptr = np.cumsum(np.concatenate(lengths))
        self.row_ends = np.concatenate(row_ends)

    def _piece(self, begin: int, end: int) -> tuple[RangeSummary, np.ndarray, np.ndarray]:
        """Return the summary of some lines, and the nonzeros and the end of each row."""
        content = self.file.read(begin, end)
        piece, ends = self.file.parsed(content, begin)
        whole = piece.block
        if self.weights is not None:
            at, self.rows_read = self.rows_read, self.rows_read + len(whole)
            whole = replace(whole, weights=self.weights[at : self.rows_read])
        block = whole.without_zero_weights()
        tokens = [token for token, _, _ in piece.spellings]
        counts = np.bincount(block.codes, minlength=len(tokens)).tolist()
        summary = RangeSummary(
            len(block),
            piece.lines,
            len(block.values),
            block.features,
            {token: (line, column) for token, line, column in piece.spellings},
            dict(zip(tokens, counts, strict=True)),
            block.queries,
            block.is_weighted,
            len(whole) - len(block),
            piece.fault,
            (Checksums.of(content, begin),),
            EMPTY_SUMMARY.groups if block.groups is None else block.groups,
        )
        if summary.zero_weights:
            ends = ends[whole.weights != 0]
        return summary, np.diff(block.indptr), ends

    def chunk_ends(self, rows: int, nonzeros: int) -> ChunkEnds:
        """Return the chunks that end in this range.

        rows, nonzeros: the size of the chunk that is still open at the end of the previous range.
        """
        options, at, ends = self.file.options, 0, []
        while at < len(self.indptr) - 1:
            cut = chunk_end(
                self.indptr, at, options.chunk_rows - rows, options.chunk_nonzeros - nonzeros
            )
            rows += cut - at
            nonzeros += int(self.indptr[cut] - self.indptr[at])
            if rows >= options.chunk_rows or nonzeros >= options.chunk_nonzeros:
                ends.append((int(self.row_ends[cut - 1]), rows, nonzeros))
                rows = nonzeros = 0
            at = cut
        return ChunkEnds(ends, rows, nonzeros, self.summary.checksum)


@dataclass(frozen=True)
class ChunkEnds:
    """The chunks that end in a range.

    ends: (end in bytes, rows, nonzeros) of each chunk. rows, nonzeros: the size of the chunk that
    is still open at the end of the range. checksum: one checksum of all bytes of the range.
    """

    ends: list[tuple[int, int, int]]
    rows: int
    nonzeros: int
    checksum: int


def _row_ends(content: bytes, rows: int) -> np.ndarray:
    """Return the byte where each row ends, (rows,) int64.

    A blank line or a comment belongs to the row after it.
    """
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
class TextWeights:
    """The weights of all rows of some files, also of the rows of weight 0, which chunks leave out.

    weights : (rows,) float64; starts : (chunks + 1,) int64, the row where each chunk begins.
    """

    weights: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, weights: np.ndarray, rows: np.ndarray) -> TextWeights:
        """Return the weights of chunks. rows : (chunks,) int64, their rows of weight above 0."""
        # A chunk ends with its last row; rows of weight 0 after it belong to the next one.
        last = np.flatnonzero(weights)[np.cumsum(rows) - 1]
        return cls(weights, np.concatenate([[0], last[:-1] + 1, [len(weights)]]))

    def of_chunk(self, number: int) -> np.ndarray:
        """Return the weights of the rows of a chunk as they stand in the text."""
        return self.weights[self.starts[number] : self.starts[number + 1]]


@dataclass(frozen=True)
class ChunkedText:
    """Text files, one after the other, cut into chunks.

    checksums: checksums of each file in the first pass. starts : (chunks + 1,) int64, the byte
    where each chunk begins, counted over all files; rows, nonzeros : (chunks,) int64.
    row_weights: weights of a file of their own; None: those of the text.
    """

    files: tuple[TextFile, ...]
    checksums: tuple[Checksums, ...]
    summary: Summary
    starts: np.ndarray
    rows: np.ndarray
    nonzeros: np.ndarray
    row_weights: TextWeights | None = None

    def chunk(self, number: int) -> RawChunk:
        """Read and parse a chunk.

        Raises InputError, and TransferError if the text has changed since the first pass.
        """
        begin, end = self.starts[number : number + 2].tolist()
        parts = []
        weights = None if self.row_weights is None else self.row_weights.of_chunk(number)
        for file, checksums in zip(self.files, self.checksums, strict=True):
            if begin < file.size and end > 0:
                first = max(begin, 0)
                content = checksums.read(file, first, min(end, file.size))
                block = self._block(file, content, first)
                if weights is not None:
                    own, weights = weights[: len(block)], weights[len(block) :]
                    block = replace(block, weights=own)
                parts.append(self._raw_chunk(file, block.without_zero_weights()))
            begin, end = begin - file.size, end - file.size
        chunk = join_chunks(parts)
        if len(chunk.y) != self.rows[number] or len(chunk.values) != self.nonzeros[number]:
            raise self.files[0].changed_error()
        return chunk

    def _block(self, file: TextFile, content: bytes, begin: int) -> Block:
        options = file.options
        if file.table is not None:
            piece, _ = file.parsed(content, begin)
            spellings = [Spelling(file.label(token), *place) for token, *place in piece.spellings]
            return replace(piece.block, spellings=spellings)
        return parse(
            without_byte_order_mark(content, begin),
            name=file.path,
            labels=options.labels,
            zero_based=options.zero_based,
            unlabelled=options.any_label,
        )

    def _raw_chunk(self, file: TextFile, block: Block) -> RawChunk:
        options, y = file.options, block.y
        if options.labels == "class":
            names = self.summary.names
            table = LabelTable(file.path, names=names, closed=True, any_label=options.any_label)
            y = table.classes(block)
        return RawChunk(y, block.indptr, block.indices, block.values, block.weights)

    def store(self, limit: int, folder: str | None) -> ComputedStore:
        """Return the chunks as a store; limit, folder: see ComputedStore."""
        weighted = self.summary.weighted
        return ComputedStore(
            self.chunk, self.rows, self.nonzeros, limit, folder, "the workers", weighted=weighted
        )
