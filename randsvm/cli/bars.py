"""Progress bars on a terminal: one line at its bottom that is rewritten and leaves nothing."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from randsvm.cli.time_left import TimeLeft
from randsvm.events import Epoch, Iteration, Progress, Started

# Stage of work -> what its bar counts in.
UNITS: dict[str, dict[str, Any]] = {
    "B": {"unit": "B", "unit_scale": True},
    "row": {"unit": " rows", "unit_scale": True},
    "fit": {"unit": " fits"},
}
# Columns of a bar: a terminal that is made somewhat narrower still holds it.
WIDEST = 70


def wanted() -> bool:
    """Whether there is a terminal that can rewrite a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Bar:
    """The bar of the stage of work that is under way.

    note: what stands behind the name of the stage. closed, done, began: the stage whose bar was
    taken away last, how far it was and when it began: a bar may go on after a line.
    """

    def __init__(self) -> None:
        self.bar: Any = None
        self.stage = ""
        self.closed, self.done, self.began = "", 0, 0.0
        self.left = TimeLeft()
        self.note: Callable[[], str] = str

    def hear(self, event: object) -> None:
        """What the next bars are to say of the work as a whole."""
        if isinstance(event, Started):
            self.left = TimeLeft(event.gap_asked)
        elif isinstance(event, Iteration):
            self.left.hear(event)
            self.note = self.left.words
        elif isinstance(event, Epoch):
            loss = event.loss if event.held_out is None else event.held_out
            kind = "loss" if event.held_out is None else "held-out loss"
            self.note = f", {kind} {loss:.4g}".__str__

    def draw(self, event: Progress) -> None:
        if event.stage != self.stage:
            self.close()
            self.bar = _line()(
                desc=event.stage + self.note(),
                total=event.total,
                leave=False,
                bar_format=_layout(event),
                ncols=_width(sys.stderr),
                # Each event may be drawn, also one that only says that time goes by, as long as
                # there are 0.1 s between two drawings.
                miniters=0,
                # The time left is told by the mean speed: a drawing without progress is no speed.
                smoothing=0,
                **UNITS.get(event.unit, {}),
            )
            self.bar.dynamic_ncols = lambda stream: (_width(stream), None)
            if event.stage == self.closed and event.done >= self.done > 0:
                self.bar.start_t = self.began
            self.stage = event.stage
        self.bar.set_description_str(event.stage + self.note(), refresh=False)
        self.bar.update(event.done - self.bar.n)

    def close(self) -> None:
        """Take the bar away, so that a line can be printed."""
        if self.bar is not None:
            self.closed, self.done, self.began = self.stage, self.bar.n, self.bar.start_t
            self.bar.close()
            self.bar, self.stage = None, ""


def _layout(event: Progress) -> str:
    if event.unit == "beat":
        return "{desc}: {elapsed}"
    if event.total is None:
        return "{desc}: {n_fmt}{unit}, {elapsed}"
    done = "{percentage:3.0f}%" if event.unit != "fit" else "{n_fmt} of {total_fmt}"
    return "{desc}: " + done + " |{bar}| {elapsed}, {remaining} left"


def _columns(stream: TextIO) -> int:
    try:
        # A terminal of unknown size says 0.
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _width(stream: TextIO) -> int:
    """Of a bar."""
    return min(_columns(stream) - 1, WIDEST)


@functools.cache
def _line() -> type:
    """tqdm's bar, drawn so that nothing stays behind where the terminal was made narrower
    (it breaks the old line in two) or somebody typed into the line (^C)."""
    from tqdm import tqdm

    class Line(tqdm):
        monitor_interval = 0  # no thread of its own

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
