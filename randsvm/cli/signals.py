"""Signals as exceptions, which nobody may swallow."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from randsvm.errors import Interrupted
from randsvm.startup import SIGNALS

_raised: list[Interrupted] = []


def install() -> None:
    """From here on SIGINT and SIGTERM raise Interrupted in the main thread."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # A second signal means what it says.
    signal.signal(number, signal.SIG_DFL)
    _raised.append(Interrupted(number))
    raise _raised[0]


def raise_lost() -> None:
    """Raise the exception of a signal again if somebody caught it: libraries that try this and that
    have an `except Exception` here and there."""
    if not _raised:
        return
    handled = sys.exc_info()[1]
    while handled is not None:
        if handled is _raised[0]:
            return  # it is being dealt with
        handled = handled.__context__
    raise _raised[0]
