"""The cache file: parsed data kept for later runs, rebuilt whenever it is stale."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import numpy as np

from randsvm.data.chunks import ChunkEntry, ChunkFile, Store, new_store
from randsvm.data.columns import Columns
from randsvm.data.reading import Summary, read_files
from randsvm.data.svmlight import ParseOptions
from randsvm.errors import InputError, ParameterError, TransferError, WriteError
from randsvm.events import Unwritten, emit
from randsvm.files import (
    STANDARD,
    check_distinct,
    create_output,
    is_stream,
    joint_name,
    open_input,
)
from randsvm.parallel import ThreadPool
from randsvm.parameters.run import Resources

# Layout: magic; chunks; the footer: a line of JSON with the identity of the source and the summary,
# then the features, the table of chunks (see ChunkEntry) and the groups of rows, as numpy saves
# arrays; the sha256 of the footer and its length in bytes.
KIND = b"randsvm cache "
MAGIC = KIND + b"12\n"
DIGEST, LENGTH = 32, 8
TAIL = DIGEST + LENGTH
PLACE = "the cache"
# Bytes of the head and of the tail of a source that are compared.
END = 1 << 16


def is_cache(head: bytes) -> bool:
    """Return whether a file with this beginning is a cache of some version."""
    return head.startswith(KIND)


def read(
    paths: Sequence[str], options: ParseOptions, resources: Resources
) -> tuple[Summary, Store]:
    """Return the summary and the chunks of files, from their cache or by parsing them.

    If the disk has no room for a cache, the files are parsed again without one. Raises DataError
    for bad text (with file:line:column), InputError, TransferError, OutputError.
    """
    if resources.cache is not None:
        try:
            return _read_through_cache(paths, options, resources.cache, resources.threads)
        except WriteError as error:
            emit(Unwritten(str(error)))
    with new_store(resources.data_bytes, resources.tmpdir) as store:
        summary = read_files(paths, options, store.append, resources.threads, resources.tmpdir)
    return summary, store


def _read_through_cache(
    paths: Sequence[str], options: ParseOptions, cache: str, threads: int
) -> tuple[Summary, Store]:
    if STANDARD in paths:
        raise ParameterError("--cache needs a named file: standard input cannot be checked")
    for name in filter(None, (*paths, options.row_weights, cache)):
        if is_stream(name):
            raise ParameterError(f"--cache needs a regular file: {name} cannot be checked")
    check_distinct({"--cache": cache}, {"TRAIN_FILE": paths, "--row-weights": options.row_weights})
    for path in paths:
        with open_input(path):
            pass  # a source that cannot be opened is refused, even if there is a cache of it
    if (found := _opened(paths, options, cache, threads)) is not None:
        return found
    return _written(paths, options, cache, threads)


def _identity(paths: Sequence[str], options: ParseOptions) -> dict[str, object]:
    """Return the state of the files and the options that a cache must match."""
    files = list(map(_file, filter(None, (*paths, options.row_weights))))
    return {"files": files, "reading": asdict(options)}


def _file(path: str) -> dict[str, object]:
    """Return the size, the time and a digest of both ends of a file."""
    try:
        with Path(path).open("rb") as stream:
            status = os.fstat(stream.fileno())
            head = stream.read(END)
            stream.seek(max(0, status.st_size - END))
            ends = hashlib.sha256(head + stream.read(END)).hexdigest()
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}") from error
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "ends": ends}


def _written(
    paths: Sequence[str], options: ParseOptions, cache: str, threads: int
) -> tuple[Summary, Store]:
    """Parse the files into a new cache, which appears whole or not at all.

    Raises the errors of read_files.
    """
    identity = _identity(paths, options)
    # Closes the stream for reading if an error prevents the cache; without one, the store keeps it.
    with ExitStack() as on_error:
        with create_output(cache) as stream:
            stream.write(MAGIC)
            store = Store(file=ChunkFile(stream, cache, PLACE))
            summary = read_files(paths, options, store.append, threads)
            table = np.array(list(map(_fields, store.chunks.values())), np.int64)
            columns = None if summary.columns is None else summary.columns.to_json()
            has_groups = summary.groups is not None
            others = {"features": None, "groups": has_groups, "columns": columns}
            footer = io.BytesIO()
            footer.write(json.dumps([identity, {**vars(summary), **others}]).encode() + b"\n")
            groups = np.empty(0) if summary.groups is None else summary.groups
            for array in (summary.features, table, groups):
                np.save(footer, array)
            content = footer.getvalue()
            stream.write(content + hashlib.sha256(content).digest())
            stream.write(len(content).to_bytes(LENGTH, "little"))
            if _identity(paths, options) != identity:
                raise TransferError(f"{joint_name(paths)} changed while it was read into {cache}")
            # The name may belong to the cache of another run by now.
            written = on_error.enter_context(os.fdopen(os.dup(stream.fileno()), "rb"))
        on_error.pop_all()
    return summary, _store(written, cache, table)


def _opened(
    paths: Sequence[str], options: ParseOptions, cache: str, threads: int
) -> tuple[Summary, Store] | None:
    """Return the content of the cache; None if it is missing, stale or damaged."""
    try:
        stream = Path(cache).open("rb")  # noqa: SIM115 - the store keeps it open
    except OSError:
        return None
    with ExitStack() as stack:
        stack.enter_context(stream)
        footer = _footer(stream)
        if footer is None:
            return None
        identity, summary = json.loads(footer.readline())
        if identity != _identity(paths, options):
            return None
        summary["features"], table, groups = (np.load(footer) for _ in range(3))
        store = _store(stream, cache, table)
        with ThreadPool(threads) as pool:
            if not all(pool.map_in_order(ChunkEntry.is_intact, store.chunks.values())):
                return None
        of_classes = "labels", "counts", "total_weight_by_class"
        summary |= {key: tuple(summary[key]) for key in of_classes}
        summary["groups"] = groups if summary["groups"] else None
        if summary["columns"] is not None:
            summary["columns"] = Columns.from_json(summary["columns"])
        stack.pop_all()
        return Summary(**summary), store


def _store(stream: BinaryIO, cache: str, table: np.ndarray) -> Store:
    """Return the chunks of a complete cache.

    table : (chunks, 8) int64, the `_fields` of each chunk
    """
    file = ChunkFile(stream, cache, PLACE, final=True)
    return Store(
        file=file,
        chunks=[
            ChunkEntry(file, offset, tuple(lengths), value_bytes, crc)
            for offset, *lengths, value_bytes, crc in table.tolist()
        ],
    )


def _fields(entry: ChunkEntry) -> list[int]:
    return [entry.offset, *entry.lengths, entry.value_bytes, entry.crc]


def _footer(stream: BinaryIO) -> io.BytesIO | None:
    """Return the footer of a cache; None if it is no cache or damaged."""
    size = os.fstat(stream.fileno()).st_size
    if size < len(MAGIC) + TAIL or stream.read(len(MAGIC)) != MAGIC:
        return None
    stream.seek(size - TAIL)
    digest = stream.read(DIGEST)
    length = int.from_bytes(stream.read(LENGTH), "little")
    if length > size - TAIL - len(MAGIC):
        return None
    stream.seek(size - TAIL - length)
    content = stream.read(length)
    return io.BytesIO(content) if hashlib.sha256(content).digest() == digest else None
