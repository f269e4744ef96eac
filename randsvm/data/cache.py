"""The cache file: parsed data kept for later runs, rebuilt whenever it is stale."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from randsvm.data.chunks import FileStore, SpillStore, Store
from randsvm.data.reading import ParseOptions, Summary, first_pass
from randsvm.errors import InputError, ParameterError, TransferError
from randsvm.files import STANDARD, check_apart, create_output, open_input
from randsvm.parameters.run import Resources

CACHE_MAGIC = b"randsvm cache 3\n"


# --- the cache file ------------------------------------------------------------------------


def _source_identity(path: str, options: ParseOptions) -> dict[str, Any]:
    """What must be unchanged for a cache to stand for `path`: size, time, both ends, options."""
    try:
        with Path(path).open("rb") as stream:
            status = os.fstat(stream.fileno())
            head = stream.read(1 << 16)
            stream.seek(max(0, status.st_size - (1 << 16)))
            ends = hashlib.sha256(head + stream.read(1 << 16)).hexdigest()
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}") from error
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ends": ends,
        "reading": vars(options),
    }


def _write_cache(
    path: str, options: ParseOptions, cache: str, jobs: int
) -> tuple[Summary, np.ndarray, FileStore]:
    """Parse `path` into the cache file, whole or not at all; its content, as `_open_cache` has it.

    Layout: magic, chunks, features, chunk sizes and table, a JSON footer with its own sha256,
    the footer's place.
    """
    identity = _source_identity(path, options)
    with create_output(cache) as stream:
        stream.write(CACHE_MAGIC)
        store = FileStore(stream, cache)
        summary, sizes = first_pass(path, options, store, jobs)
        table = np.array(store.entries, np.int64)
        arrays = summary.features.tobytes() + table.tobytes()
        footer = {
            "source": identity,
            "header": {**vars(summary), "features": len(summary.features)},
            "chunks": len(store.entries),
        }
        text = json.dumps(footer).encode()
        stream.write(arrays + text)
        stream.write(hashlib.sha256(arrays + text).digest())
        stream.write(len(arrays).to_bytes(8, "little") + len(text).to_bytes(8, "little"))
        if _source_identity(path, options) != identity:
            raise TransferError(f"{path} changed while it was read into {cache}")
        # Not by its name: another run may put a cache of its own there.
        written = os.fdopen(os.dup(stream.fileno()), "rb")
    return summary, sizes, FileStore(written, cache, table)


def _open_cache(
    path: str, options: ParseOptions, cache: str, jobs: int
) -> tuple[Summary, np.ndarray, FileStore] | None:
    """The content of a cache that stands for `path` as it is now; None: missing, stale, damaged."""
    try:
        stream = Path(cache).open("rb")  # noqa: SIM115 - the store keeps it open
    except OSError:
        return None
    with ExitStack() as stack:
        stack.enter_context(stream)
        ends = len(CACHE_MAGIC) + 48
        size = os.fstat(stream.fileno()).st_size
        if size < ends or stream.read(len(CACHE_MAGIC)) != CACHE_MAGIC:
            return None
        stream.seek(size - 48)
        tail = stream.read(48)
        lengths = int.from_bytes(tail[32:40], "little"), int.from_bytes(tail[40:], "little")
        if sum(lengths) > size - ends:
            return None
        stream.seek(size - 48 - sum(lengths))
        arrays, text = stream.read(lengths[0]), stream.read(lengths[1])
        if hashlib.sha256(arrays + text).digest() != tail[:32]:
            return None
        footer = json.loads(text)
        if footer["source"] != json.loads(json.dumps(_source_identity(path, options))):
            return None
        d = footer["header"]["features"]
        features = np.frombuffer(arrays, np.int32, d).copy()
        table = np.frombuffer(arrays[4 * d :], np.int64).reshape(footer["chunks"], 5)
        store = FileStore(stream, cache, table)
        with ThreadPoolExecutor(jobs) as pool:
            if not all(pool.map(store.intact, range(len(table)))):
                return None
        named = {k: tuple(footer["header"][k]) for k in ("names", "values", "counts")}
        summary = Summary(**{**footer["header"], **named, "features": features})
        stack.pop_all()
        return summary, table[:, 1].copy(), store


# --- the door ------------------------------------------------------------------------------


def read(
    path: str, options: ParseOptions, resources: Resources
) -> tuple[Summary, np.ndarray, Store]:
    """Parse `path`, or open its cache: what was learnt, the rows of each chunk (chunks,) int64, and
    the chunks.

    Raises DataError for bad text (with file:line:column), InputError, TransferError, OutputError.
    """
    if resources.cache is not None:
        return _read_through_cache(path, options, resources.cache, resources.workers)
    store = SpillStore(resources.data_bytes, resources.tmpdir)
    try:
        summary, sizes = first_pass(path, options, store, resources.workers)
        store.finish()
    except BaseException:
        store.close()
        raise
    return summary, sizes, store


def _read_through_cache(
    path: str, options: ParseOptions, cache: str, jobs: int
) -> tuple[Summary, np.ndarray, FileStore]:
    if path == STANDARD:
        raise ParameterError("--cache needs a named file: standard input cannot be checked")
    for name in (path, cache):
        if name == STANDARD or Path(name).is_fifo() or Path(name).is_char_device():
            raise ParameterError(f"--cache needs a regular file: {name} cannot be checked")
    check_apart({"--cache": cache}, {"TRAIN_FILE": path})
    with open_input(path):
        pass  # a file that cannot be opened is known before its cache is
    found = _open_cache(path, options, cache, jobs)
    return found or _write_cache(path, options, cache, jobs)
