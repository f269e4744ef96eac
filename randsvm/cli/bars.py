"""Progress bars on a terminal: one line that is rewritten and removed."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from randsvm.events import Epoch, Iteration, Progress

# Unit of a Progress event -> arguments of tqdm.
UNITS: dict[str, dict[str, Any]] = {
    "B": {"unit": "B", "unit_scale": True},
    "row": {"unit": " rows", "unit_scale": True},
    "fit": {"unit": " fits"},
}
# Columns of a bar at most: a terminal that is made somewhat narrower still holds it.
MAX_COLUMNS = 70


def can_draw() -> bool:
    """Return whether standard error is a terminal that can rewrite a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Bar:
    """The bar of the current stage of work.

    note: returns the text behind the name of the stage. closed, done, began: the stage whose bar
    was removed last, its progress and its start, from which the bar continues after a printed line.
    """

    def __init__(self) -> None:
        self.bar: Any = None
        self.stage = ""
        self.closed, self.done, self.began = "", 0, 0.0
        self.note: Callable[[], str] = str

    def update(self, event: object) -> None:
        """Take from an event what the next bars show of the whole run."""
        if isinstance(event, Iteration):
            self.note = (f", gap {event.gap:.3g}" if event.gap > 0 else "").__str__
        elif isinstance(event, Epoch):
            loss = event.loss if event.held_out is None else event.held_out
            kind = "loss" if event.held_out is None else "held-out loss"
            self.note = f", {kind} {loss:.4g}".__str__

    def draw(self, event: Progress) -> None:
        """Draw the bar of this stage, at most every 0.1 s."""
        if event.stage != self.stage:
            self.close()
            self.bar = _line()(
                desc=event.stage + self.note(),
                total=event.total,
                leave=False,
                # The same line also after a bar that an error has left behind.
                position=0,
                bar_format=_layout(event),
                ncols=_width(sys.stderr),
                # Draw after each event, also without progress, if the last one is 0.1 s ago.
                miniters=0,
                **UNITS.get(event.unit, {}),
            )
            self.bar.dynamic_ncols = lambda stream: (_width(stream), None)
            if event.stage == self.closed and event.done >= self.done > 0:
                self.bar.start_t = self.began
            self.stage = event.stage
        self.bar.set_description_str(event.stage + self.note(), refresh=False)
        self.bar.update(event.done - self.bar.n)

    def close(self) -> None:
        """Remove the bar, so that a line can be printed."""
        if self.bar is not None:
            self.closed, self.done, self.began = self.stage, self.bar.n, self.bar.start_t
            self.bar.close()
            self.bar, self.stage = None, ""


def _layout(event: Progress) -> str:
    """Return the bar_format of tqdm for a stage."""
    if event.unit == "beat":
        return "{desc}: {elapsed}"
    if event.total is None:
        return "{desc}: {n_fmt}{unit}, {elapsed}"
    done = "{percentage:3.0f}%" if event.unit != "fit" else "{n_fmt} of {total_fmt}"
    return "{desc}: " + done + " |{bar}| {elapsed}"


def _columns(stream: TextIO) -> int:
    try:
        # A terminal of unknown size reports 0.
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _width(stream: TextIO) -> int:
    """Return the columns of a bar."""
    return min(_columns(stream) - 1, MAX_COLUMNS)


@functools.cache
def _line() -> type:
    """Return a subclass of tqdm that also erases a line that the terminal has broken in two, when
    it was made narrower, and characters typed into the line (^C)."""
    from tqdm import tqdm

    class Line(tqdm):
        monitor_interval = 0  # starts no monitor thread

        @staticmethod
        def status_printer(file: TextIO) -> Callable[[str], None]:
            drawn = 0

            def draw(text: str) -> None:
                nonlocal drawn
                above = (drawn - 1) // _columns(file) if drawn else 0
                up = f"\033[{above}A\r\033[J" if above else "\r"
                file.write(f"{up}{text}\033[K")
                file.flush()
                drawn = len(text)

            return draw

    return Line
