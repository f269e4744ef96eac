"""Records: what --log and --report json hold of each event, under the same names everywhere.

docs/file-formats.md has the table of them.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from randsvm import __version__
from randsvm.events import Learnt, Started, Trained

# Of the names in a record and of what they mean. A program that reads records checks it.
SCHEMA = 2

# Every training ends in a record of one kind with the same names, whatever the algorithm.
TRAINED = "trained"
OUTCOMES = (Trained, Learnt)


class Records:
    """The records of one run of a command.

    files: what each file is -> its name. words: options that complete the parameters of a run.
    """

    def __init__(
        self, command: str, files: Mapping[str, str | tuple[str, ...]], words: Sequence[str] = ()
    ) -> None:
        self.words = words
        # Tells the lines of two runs that share a log.
        run = os.urandom(4).hex()
        head = {"run": run, "version": __version__, "command": command}
        self.run: dict[str, Any] = {**head, **files}

    def record(self, event: Any) -> dict[str, Any]:
        """Of an event, as JSON has it."""
        own = event._asdict()
        if isinstance(event, Started):
            self.run |= {
                "algorithm": event.algorithm,
                "parameters": shlex.join([*own.pop("configuration"), *self.words]),
                "n": event.n,
                "d": event.d,
                "nnz": event.nnz,
            }
        if isinstance(event, OUTCOMES):
            own = {name: own.get(name) for name in outcome_names()}
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        head = {"event": _name(event), "schema": SCHEMA, "time": now.replace("+00:00", "Z")}
        return as_json({**head, **self.run, **own})

    def line(self, event: object) -> str:
        return json.dumps(self.record(event)) + "\n"


def _name(event: object) -> str:
    return TRAINED if isinstance(event, OUTCOMES) else type(event).__name__.lower()


def outcome_names() -> list[str]:
    """Of the last record of a training; null where a name means nothing to an algorithm."""
    return list(dict.fromkeys(name for kind in OUTCOMES for name in kind._fields))


def as_json(value: Any) -> Any:
    """null for what JSON has no number for; lambda_ is a word that Python keeps for itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, dict):
        return {name.rstrip("_"): as_json(one) for name, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list | tuple) else value
