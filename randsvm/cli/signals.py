"""Signals: a handler only records them; randsvm/events.py raises at the next event."""

from __future__ import annotations

import signal
from types import FrameType

from randsvm import events

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def install() -> None:
    """From here on the first SIGINT or SIGTERM ends the run, with the best model so far."""
    for number in SIGNALS:
        signal.signal(number, _record)


def _record(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one of this kind ends the process at once
    events.interrupt(number)
