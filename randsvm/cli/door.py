"""The one door for errors: what ends a command becomes one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import click

from randsvm.errors import DataError, Interrupted, RandsvmError

BUG = 70


def run(command: Callable[..., object], name: str) -> NoReturn:
    """Run a click command as a process; signals and errors end it with the codes of errors.py."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    _leave(_exit_code(command, name))


def _exit_code(command: Callable[..., object], name: str) -> int:
    try:
        command(prog_name=name)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1
    except RandsvmError as error:
        # Bad data speaks like a compiler, file first, so that editors can jump to the place.
        prefix = "" if isinstance(error, DataError) else f"{name}: "
        _say(f"{prefix}{error}")
        return error.exit_code
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except Exception:  # noqa: BLE001 - a bug: shown whole
        traceback.print_exc()
        return BUG
    return 0


def _say(line: str) -> None:
    click.echo(line.encode("utf-8", "backslashreplace"), err=True)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # A second signal means what it says.
    signal.signal(number, signal.SIG_DFL)
    raise Interrupted(number)


def _leave(code: int) -> NoReturn:
    """End now: an interpreter that shuts down would wait for threads that are still at work."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):
        code = code or 128 + signal.SIGPIPE
    os._exit(code)
