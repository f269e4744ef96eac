"""The clock of a run: it measures time, shares the time limit among phases, and ends a phase.

Knows no phase: each phase asks for its share of the time and runs within `until`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf

from randsvm.errors import OutOfTimeError
from randsvm.events import Watch, listener, listening, silent
from randsvm.files import display_output

# Seconds before a time limit that are reserved for late events and for writing the model.
RESERVED_SECONDS = 0.2


class TimeLimitError(Exception):
    """The time of a phase is over; raised by the first event after that moment."""


def never() -> float:
    """Return a deadline that never comes."""
    return inf


class Clock:
    """A listener of a run that passes events on and ends a phase whose time is over.

    Moments are in seconds, as perf_counter() returns them.

    began: the moment when the run began
    end: the moment when the time limit of the run is over; infinite without a limit
    """

    def __init__(self, limit: float | None = None, watch: Watch = silent) -> None:
        self.began = time.perf_counter()
        self.end = inf if limit is None else self.began + limit
        self.watch = watch
        self._deadline: Callable[[], float] = never

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return time.perf_counter() - self.began

    def share(self, part: float, end: float | None = None) -> float:
        """Return the moment when this part of the time left until `end` is over.

        end: None stands for the end of the run.
        """
        now = time.perf_counter()
        return now + ((self.end if end is None else end) - now) * part

    @contextmanager
    def until(self, deadline: Callable[[], float]) -> Iterator[None]:
        """Raise TimeLimitError at the first event in the block after the moment `deadline()`.

        Deadlines of outer blocks do not apply within the block.
        """
        outer, self._deadline = self._deadline, deadline
        try:
            yield
        finally:
            self._deadline = outer

    @contextmanager
    def before_a_model(self, model: str) -> Iterator[None]:
        """Raise OutOfTimeError if the time limit comes in this block, before a model exists."""
        try:
            with self.until(lambda: self.end):
                yield
        except TimeLimitError:
            name = display_output(model)
            raise OutOfTimeError(
                f"--time-limit is over before there is a model: {name} is left as it was"
            ) from None

    def without_deadline(self) -> AbstractContextManager[None]:
        """Return a block that no deadline interrupts."""
        return self.until(never)

    def __call__(self, event: object) -> None:
        self.watch(event)
        if time.perf_counter() >= self._deadline():
            self._deadline = never
            raise TimeLimitError


@contextmanager
def limited(seconds: float) -> Iterator[Clock]:
    """Yield a clock for a part of a run; it passes events on to the current listener."""
    clock = Clock(seconds, listener())
    with listening(clock):
        yield clock
