"""Progress bars on a terminal: one line that is rewritten and removed, with the time left."""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TextIO

from randsvm.events import Epoch, Iteration, Progress, Started

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
        self.left = TimeLeft()
        self.note: Callable[[], str] = str

    def update(self, event: object) -> None:
        """Take from an event what the next bars show of the whole run."""
        if isinstance(event, Started):
            self.left = TimeLeft(event.gap_asked)
        elif isinstance(event, Iteration):
            self.left.add(event)
            self.note = self.left.words
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
                # Estimate the time left by the mean speed: the speed of the last events is 0 if
                # these are without progress.
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
    return "{desc}: " + done + " |{bar}| {elapsed}, {remaining} left"


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


# ---- time left --------------------------------------------------------------------------------

# No estimate with fewer rounds, or where the largest estimate exceeds this multiple of the least.
MIN_ROUNDS, WIDEST_RANGE = 4, 8.0
# No estimate where the logarithm of the total time over the time so far exceeds this.
WIDEST_GROWTH = 10.0


class TimeLeft:
    """The time that a run by rounds may still take, estimated from the gaps of its rounds.

    asked: the gap that ends the run; None: there is none.
    """

    def __init__(self, asked: float | None = None) -> None:
        self.asked = asked
        self.machine = ""
        self.points: list[tuple[float, float]] = []
        self.received = time.perf_counter()

    def add(self, event: Iteration) -> None:
        """Take in the gap after a round."""
        if event.machine != self.machine:
            self.machine, self.points = event.machine, []
        if event.gap > 0:  # nan: nothing is certified
            self.points.append((event.seconds, event.gap))
        self.received = time.perf_counter()

    def words(self) -> str:
        """Return the gap and the time left as a range, as far as they are known."""
        if not self.points:
            return ""
        found = remaining(self.points, self.asked) if self.asked else None
        left = "" if found is None else self._range(*found)
        return f", gap {self.points[-1][1]:.3g}{left}"

    def _range(self, least: float, most: float) -> str:
        gone = time.perf_counter() - self.received
        least, most = max(least - gone, 0.0), most - gone
        if most <= 0:  # longer than was estimated
            return ""
        first, last = _time(least), _time(most)
        return f", {first} to {last} left" if first != last else f", about {last} left"


def remaining(points: list[tuple[float, float]], asked: float) -> tuple[float, float] | None:
    """Return the least and the most seconds until a gap of `asked`; None: not known.

    points: (seconds, gap) after each round. Mostly a gap falls by about the same factor in the same
    time: all rounds give one estimate, their last half and their last third two more. A gap that
    falls more and more slowly does so like a power of the time: the last half gives a fourth
    estimate of that kind.
    """
    if len(points) < MIN_ROUNDS or points[-1][1] <= asked:
        return None
    seconds, gap = points[-1]
    estimates = []
    for begin in (0, len(points) // 2, len(points) * 2 // 3):
        then, before = points[min(begin, len(points) - 2)]
        if not (gap < before and 0 < then < seconds):
            return None
        speed = math.log(before / gap) / (seconds - then)
        estimates.append(math.log(gap / asked) / speed)
    then, before = points[len(points) // 2]
    power = math.log(before / gap) / math.log(seconds / then)
    growth = math.log(gap / asked) / power
    if growth > WIDEST_GROWTH:
        return None
    estimates.append(seconds * math.expm1(growth))
    least, most = min(estimates), max(estimates)
    return (least, most) if most <= WIDEST_RANGE * least else None


def _time(seconds: float) -> str:
    """Return a time with one or two digits and a unit."""
    units = [("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0), ("", math.inf)]
    for (name, size), (_, above) in pairwise(units):
        if seconds < 1.5 * above or not name:
            count = seconds / size
            step = 1 if count < 10 else 5 if count < 60 else 10
            return f"{max(step * round(count / step), 1)} {name}"
    raise AssertionError("the last unit takes everything")
