"""Signals: a handler only records them; randsvm/events.py raises at the next event."""

from __future__ import annotations

import signal
from types import FrameType

from randsvm import events

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install() -> None:
    """From here on the first of SIGNALS ends the run, with the best model so far."""
    for number in SIGNALS:
        # Under nohup a run outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _record)


def _record(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one of this kind ends the process at once
    events.interrupt(number)
