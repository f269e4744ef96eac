"""The one clock of a run: how much of its time limit each phase may take, and who breaks it off.

Knows no phase: each asks for its share and runs within `until`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from randsvm.events import Watch, silent

# Seconds before a time limit that are kept free for what is noticed late and for writing.
LATE = 0.2


class TimeLimitError(Exception):
    """The time of a phase is over; raised by the first event after it."""


def never() -> float:
    return inf


class Clock:
    """Listens to a run: passes its events on, and breaks off a phase whose time is over.

    began, end: of the whole run, as perf_counter() has it; end is infinite without a limit.
    """

    def __init__(self, limit: float | None = None, watch: Watch = silent) -> None:
        self.began = time.perf_counter()
        self.end = inf if limit is None else self.began + limit
        self.watch = watch
        self._late: Callable[[], float] = never

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def share(self, part: float, end: float | None = None) -> float:
        """The moment when this part of the time that is left until `end` (None: the run's) is
        over."""
        now = time.perf_counter()
        return now + ((self.end if end is None else end) - now) * part

    @contextmanager
    def until(self, late: Callable[[], float]) -> Iterator[None]:
        """Within the block, the first event after the moment `late()` raises TimeLimitError."""
        self._late = late
        try:
            yield
        finally:
            self._late = never

    def __call__(self, event: object) -> None:
        self.watch(event)
        if time.perf_counter() >= self._late():
            self._late = never
            raise TimeLimitError
