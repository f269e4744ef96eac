"""Streams that react to signals while they wait for a pipe or a terminal.

Python continues a system call after a signal whose handler raises nothing.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from randsvm.events import HEARTBEAT, Waiting, check, emit


class PatientFile(io.FileIO):
    """A file, pipe or terminal that checks for signals while it waits.

    Writing to a terminal that was closed is no error: SIGHUP ends the run.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_terminal = self.isatty()

    def readinto(self, buffer: Any, /) -> int:
        while not is_ready(self.fileno(), select.POLLIN, HEARTBEAT):
            emit(Waiting())
        check()
        return super().readinto(buffer)

    def write(self, data: Any, /) -> int:
        if stat.S_ISREG(os.fstat(self.fileno()).st_mode):
            return super().write(data)
        waited = 0.0
        while not is_ready(self.fileno(), select.POLLOUT, HEARTBEAT):
            waited += HEARTBEAT
            check(waited)
        # A pipe with room takes PIPE_BUF bytes without waiting.
        part = memoryview(data)[: select.PIPE_BUF]
        try:
            return super().write(part)
        except OSError as error:
            if self._is_terminal and error.errno == errno.EIO:
                return len(part)
            raise


def make_standard_streams_patient() -> None:
    """Replace sys.stdin, sys.stdout and sys.stderr by patient ones until the process ends."""
    if sys.stdin is not None:
        reader = io.BufferedReader(PatientFile(sys.stdin.fileno(), "rb", closefd=False))
        sys.stdin = io.TextIOWrapper(reader, sys.stdin.encoding, sys.stdin.errors)
    for name in ("stdout", "stderr"):
        if (old := getattr(sys, name)) is not None:
            writer = io.BufferedWriter(PatientFile(old.fileno(), "wb", closefd=False))
            new = io.TextIOWrapper(
                writer,
                old.encoding,
                old.errors,
                line_buffering=old.line_buffering,
                write_through=old.write_through,
            )
            setattr(sys, name, new)


def is_ready(descriptor: int, event: int, seconds: float) -> bool:
    """Return whether it can be read (POLLIN) or written (POLLOUT) within `seconds`.

    A regular file always can.
    """
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(1000 * seconds))


def _open_at_once(path: str, flags: int) -> int:
    """Open a file for io.FileIO without waiting in a system call."""
    waited = 0.0
    while True:
        try:
            descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
        except OSError as error:
            # A FIFO without a reader. One without a writer can be opened.
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(Path(path).stat().st_mode):
                raise
            time.sleep(HEARTBEAT)
            waited += HEARTBEAT
            check(waited)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def open_patiently(path: str | Path, mode: str) -> BinaryIO:
    """Open a file for reading ("rb") or writing ("wb", "ab"); wait for the other end of a FIFO."""
    raw = PatientFile(str(Path(path)), mode, opener=_open_at_once)
    return io.BufferedReader(raw) if mode == "rb" else io.BufferedWriter(raw)
