"""Progress bars on a terminal: one line that is rewritten and removed."""

from __future__ import annotations

import os
import sys
from typing import Any

from randsvm.events import Epoch, Iteration, Progress

# Unit of a Progress event -> arguments of tqdm.
UNITS: dict[str, dict[str, Any]] = {
    "B": {"unit": "B", "unit_scale": True},
    "row": {"unit": " rows", "unit_scale": True},
    "fit": {"unit": " fits"},
}


def can_draw() -> bool:
    """Return whether standard error is a terminal that can rewrite a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Bar:
    """The bar of the current stage of work. note: its postfix, of the whole run."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.note = ""

    def update(self, event: object) -> None:
        """Take from an event what the bars show of the whole run."""
        if isinstance(event, Iteration) and event.gap > 0:
            self.note = f"gap {event.gap:.3g}"
        elif isinstance(event, Epoch):
            loss = event.loss if event.held_out is None else event.held_out
            self.note = f"{'loss' if event.held_out is None else 'held-out loss'} {loss:.4g}"

    def draw(self, event: Progress) -> None:
        """Draw the bar of this stage, at most every 0.1 s."""
        if self.bar is None or event.stage != self.bar.desc or event.done < self.bar.n:
            self.close()
            self.bar = _bar(event)
        self.bar.set_postfix_str(self.note, refresh=False)
        self.bar.update(event.done - self.bar.n)

    def clear(self) -> None:
        """Make room for a line; the next event draws the bar again."""
        if self.bar is not None:
            self.bar.clear()

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def _bar(event: Progress) -> Any:
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # starts no monitor thread
    return tqdm(
        desc=event.stage,
        total=event.total,
        leave=False,
        # The same line also after a bar that an error has left behind.
        position=0,
        bar_format=_layout(event),
        dynamic_ncols=True,
        # Draw after each event, also without progress, if the last one is 0.1 s ago.
        miniters=0,
        **UNITS.get(event.unit, {}),
    )


def _layout(event: Progress) -> str:
    """Return the bar_format of tqdm for a stage."""
    if event.unit == "beat":
        return "{desc}: {elapsed}{postfix}"
    if event.total is None:
        return "{desc}: {n_fmt}{unit}, {elapsed}{postfix}"
    done = "{percentage:3.0f}%" if event.unit != "fit" else "{n_fmt} of {total_fmt}"
    return "{desc}: " + done + " |{bar}| {elapsed}{postfix}"
