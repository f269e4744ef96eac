"""What a running job tells whoever listens. Plain records, and one place to send them.

The library itself never prints: cli/report.py draws these as bars and lines. By default nobody
listens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Work of one kind under way: `done` of `total` `unit`s (total None: not known)."""

    stage: str
    done: int
    total: int | None = None
    unit: str = "row"


@dataclass(frozen=True)
class Notice:
    """Something the user should know, said once."""

    text: str


Watch = Callable[[object], None]


def silent(event: object) -> None:
    """The listener of those who do not want to know."""


# A context variable and not an argument: every layer from the reader to the solver would hand
# it down, and Algorithm 1 would no longer read as printed. Only the calling thread tells.
_listener: ContextVar[Watch] = ContextVar("listener", default=silent)
_told: ContextVar[set[str] | None] = ContextVar("told", default=None)


def tell(event: object) -> None:
    _listener.get()(event)


def tell_once(key: str, event: object) -> None:
    """Tell only the first event of this key within `listening`."""
    told = _told.get()
    if told is None or key not in told:
        tell(event)
        if told is not None:
            told.add(key)


@contextlib.contextmanager
def listening(watch: Watch) -> Iterator[None]:
    """Within the block, events of this thread go to `watch`."""
    tokens = _listener.set(watch), _told.set(set())
    try:
        yield
    finally:
        _listener.reset(tokens[0])
        _told.reset(tokens[1])
