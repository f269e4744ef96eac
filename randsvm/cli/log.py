"""The log: a file that gets a line for each event, and what earlier searches left in it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

from randsvm.files import STANDARD, check_kind, check_output
from randsvm.streams import open_patiently

# Every line of a log begins like this.
BEGINNING = b'{"event": "'


class Log:
    """Lines are added at the end of the file, each in one write: several runs may share it.

    It is opened by the first line: a run that does not begin leaves an old log as it is.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.stream: BinaryIO | None = None

    def check(self) -> None:
        """Raise OutputError now if it could not be written later, or is something else."""
        check_output(self.path)
        check_kind(self.path, "a log", lambda head: head.startswith(BEGINNING))

    def write(self, line: str) -> None:
        """Write a line at once: the log of a killed run is whole up to its end. Raises OSError."""
        content = line.encode("ascii")
        if self.stream is None:
            self.stream = self._open()
            if self.path != STANDARD and _is_cut_short(self.path):
                content = b"\n" + content
        left = memoryview(content)
        while left:
            # One write, but where a pipe or a disk has no room for all of it.
            left = left[self.stream.write(left) :]
        self.stream.flush()

    def _open(self) -> BinaryIO:
        if self.path == STANDARD:
            return sys.stdout.buffer
        # Without a buffer: it would cut a long line in two.
        return open_patiently(self.path, "ab").detach()  # type: ignore[attr-defined]

    def close(self) -> None:
        if self.stream is not None and self.path != STANDARD:
            # Every line was flushed: closing has nothing to add.
            with contextlib.suppress(OSError):
                self.stream.close()


def _is_cut_short(path: str) -> bool:
    """Whether a log ends inside a line, as that of a killed run may."""
    log = Path(path)
    if not log.is_file() or not log.stat().st_size:
        return False
    with log.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() != b"\n"


def read_trials(log: str) -> tuple[dict[str, Any], ...]:
    """Return the `tried` records of a log: the scores of earlier searches.

    A line that was cut short is left out; a file that cannot be read has none.
    """
    path = Path(log)
    if not path.is_file():
        return ()
    lines = []
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            # A thousand brackets are deeper than Python goes.
            with contextlib.suppress(ValueError, RecursionError):
                lines.append(json.loads(line))
    return tuple(one for one in lines if isinstance(one, dict) and one.get("event") == "tried")
