"""Records of events as JSON, and the log file that holds one in each line.

docs/file-formats.md describes the records.
"""

import contextlib
import json
import math
import os
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from randsvm.errors import InputError
from randsvm.events import (
    Certified,
    Explained,
    Exported,
    Predicted,
    Trained,
)
from randsvm.files import STANDARD, check_output, read_json_lines

# Version of the names in a record and of their meanings. Programs that read records check it.
SCHEMA = 5


class Failed(NamedTuple):
    """The end of a command that has no result.

    Parameters
    ----------
    problem : str
        The reason, as printed on standard error.
    seconds : float
        Seconds since the start of the run.
    """

    problem: str
    seconds: float


# The events that end randsvm-predict, and those that end any command.
PREDICTION_ENDS = (Predicted, Certified, Exported, Explained)
COMMAND_ENDS = (Trained, *PREDICTION_ENDS)


def record_of(event: object, fields: Mapping[str, object]) -> dict[str, Any]:
    """Return the record of an event with these fields, with values that JSON can hold."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    head = {
        "event": type(event).__name__.lower(),
        "schema": SCHEMA,
        "time": now.replace("+00:00", "Z"),
    }
    return as_json({**head, **fields})


def as_line(record: Mapping[str, object]) -> str:
    """Return a record as a line of JSON."""
    return json.dumps(record) + "\n"


def peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    # Linux: ru_maxrss begins with the memory of the process that started this one.
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        line = next(line for line in lines if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def as_json(value: object) -> Any:
    """Return a value that JSON can hold: None for nan and infinities, `lambda` for `lambda_`."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, dict):
        return {name.rstrip("_"): as_json(one) for name, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list | tuple) else value


# The first bytes of a log.
BEGINNING = b'{"event": "'


class Log:
    """A file to whose end lines are added, each in one write, so that several runs may share it.

    The file is opened when the first line is written: a run that does not begin leaves an old log
    unchanged. The constructor raises OutputError if the file cannot be written or is not a log.
    """

    def __init__(self, path: str) -> None:
        check_output(path, "a log", lambda head: head.startswith(BEGINNING))
        self.path = path
        self.stream: BinaryIO | None = None  # until the first line

    def write(self, line: str) -> None:
        """Write a line at once, so that the log of a killed run is complete. Raises OSError."""
        content = line.encode("ascii")
        if self.stream is None:
            if self.path == STANDARD:
                self.stream = sys.stdout.buffer
            else:
                # Without a buffer, which would cut a long line in two.
                self.stream = Path(self.path).open("ab", buffering=0)  # noqa: SIM115 - `close`
                content = b"\n" * _is_cut_short(self.path) + content
        left = memoryview(content)
        while left:
            # One write, unless a pipe or a disk has no room for all of it.
            left = left[self.stream.write(left) :]
        self.stream.flush()

    def close(self) -> None:
        if self.stream is not None and self.path != STANDARD:
            # Every line was flushed: closing writes nothing.
            with contextlib.suppress(OSError):
                self.stream.close()


def _is_cut_short(path: str) -> bool:
    """Return whether a log ends inside a line, as that of a killed run may."""
    log = Path(path)
    if not log.is_file() or not log.stat().st_size:
        return False
    with log.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() != b"\n"


def read_trials(log: str) -> tuple[dict[str, Any], ...]:
    """Return the `tried` records of a log: the scores of earlier searches.

    A file that cannot be read has none.
    """
    found = []
    if Path(log).is_file():
        with contextlib.suppress(InputError):
            found = read_json_lines(log)
    return tuple(one for one in found if one.get("event") == "tried")
