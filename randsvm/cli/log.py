"""The log: one JSON object for each event, and what earlier searches left in it."""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from randsvm.errors import OutputError, TransferError
from randsvm.files import STANDARD, check_output, open_patiently


class Log:
    """A file that gets a line for each event. mode: "a" keeps the lines that it has, "w" does not.

    It is opened by the first event: a run that does not begin leaves an old log as it is.
    """

    def __init__(self, path: str, mode: str) -> None:
        self.path, self.mode = path, mode
        self.stream: IO[str] | None = None

    def check(self) -> None:
        """Raise OutputError now if it could not be created later."""
        check_output(self.path)

    def write(self, event: object) -> None:
        """A line, flushed at once: the log of a killed run is whole up to its end."""
        if self.stream is None:
            self.stream = self._open()
        try:
            fields = {"event": type(event).__name__.lower(), **as_json(event)}
            self.stream.write(json.dumps(fields) + "\n")
            self.stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise TransferError(f"writing {self.path}: {error.strerror}") from error

    def _open(self) -> IO[str]:
        if self.path == STANDARD:
            return sys.stdout
        try:
            stream = io.TextIOWrapper(open_patiently(self.path, f"{self.mode}b"), "ascii")
            if self.mode == "a" and _cut_short(self.path):
                stream.write("\n")
            return stream
        except OSError as error:
            raise OutputError(f"cannot create {self.path}: {error.strerror}") from error

    def close(self) -> None:
        if self.stream is not None and self.stream is not sys.stdout:
            # Every line was flushed: an error was raised then, and closing has nothing to add.
            with contextlib.suppress(OSError):
                self.stream.close()


def _cut_short(path: str) -> bool:
    """Whether a log ends inside a line, as that of a killed run may."""
    log = Path(path)
    return log.is_file() and log.read_bytes()[-1:] not in (b"", b"\n")


def tried(log: str) -> tuple[dict[str, Any], ...]:
    """What earlier searches have tried, by their log; a line that was cut short is left out."""
    path = Path(log)
    if not path.is_file():
        return ()
    lines = []
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
    return tuple(one for one in lines if isinstance(one, dict) and one.get("event") == "tried")


def as_json(event: Any) -> Any:
    """An event as JSON has it."""
    return _finite(asdict(event))


def _finite(value: Any) -> Any:
    """null for what JSON has no number for; lambda_ is a word that Python keeps for itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name.rstrip("_"): _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value
