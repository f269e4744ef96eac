"""Signals: a handler only records them; randsvm/events.py raises at the next event."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import FrameType

from randsvm import events

# SIGXCPU comes at a soft limit on CPU time. Schedulers send SIGUSR1 or SIGUSR2 before they kill a
# job; by default these end a process, so a run loses nothing by listening to them.
SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGXCPU,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Seconds after the first signal from which on another one ends the process at once. timeout(1)
# sends its signal to the command and again to its process group.
SAME = 1.0
# The same for a second Ctrl-C: faster than anyone can press it, slower than timeout -s INT.
SAME_KEY = 0.1


class _First:
    """The first signal, None before it, and the time when it came."""

    number: int | None = None
    at = 0.0


def install() -> None:
    """From here on the first of SIGNALS ends the run, with the best model so far."""
    for number in SIGNALS:
        # Under nohup a run outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _record)


def _record(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if _First.number is None:
        _First.number, _First.at = number, now
        events.interrupt(number)
    elif _ends_at_once(_First.number, number, now - _First.at):
        with contextlib.suppress(OSError):
            os.write(2, b"ended at once by a second signal\n")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _ends_at_once(first: int, second: int, seconds: float) -> bool:
    """Whether a signal ends the process `seconds` after the first one."""
    if second == signal.SIGXCPU:  # the kernel repeats it with every second of CPU time
        return False
    return seconds >= (SAME_KEY if first == second == signal.SIGINT else SAME)
