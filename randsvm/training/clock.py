"""The one clock of a run: how much of its time limit each phase may take, and who breaks it off.

Knows no phase: each asks for its share and runs within `until`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf

from randsvm.errors import OutOfTimeError
from randsvm.events import Watch, listener, listening, silent
from randsvm.files import display_output

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
        """Within the block, the first event after the moment `late()` raises TimeLimitError, and no
        block around it does."""
        around, self._late = self._late, late
        try:
            yield
        finally:
            self._late = around

    @contextmanager
    def before_a_model(self, model: str) -> Iterator[None]:
        """What comes before there is anything to write to `model`. Raises OutOfTimeError where the
        limit comes first."""
        try:
            with self.until(lambda: self.end):
                yield
        except TimeLimitError:
            name = display_output(model)
            raise OutOfTimeError(
                f"--time-limit is over before there is a model: {name} is left as it was"
            ) from None

    def undisturbed(self) -> AbstractContextManager[None]:
        """Within the block, nothing is broken off."""
        return self.until(never)

    def __call__(self, event: object) -> None:
        self.watch(event)
        if time.perf_counter() >= self._late():
            self._late = never
            raise TimeLimitError


@contextmanager
def limited(seconds: float) -> Iterator[Clock]:
    """A clock of its own for part of a run: it passes events on to whoever listens now."""
    clock = Clock(seconds, listener())
    with listening(clock):
        yield clock
