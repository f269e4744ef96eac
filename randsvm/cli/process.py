"""The one door for errors: what ends a command becomes one line and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from randsvm.cli import signals
from randsvm.errors import DataError, Interrupted, OutOfMemoryError, RandsvmError, TransferError
from randsvm.streams import make_standard_streams_patient

BUG = 70
# Parts of numpy that commands do not use.
UNUSED = ("numpy.f2py", "numpy.polynomial", "numpy.testing")
BROKEN_PIPE = 128 + signal.SIGPIPE


def run(command: Callable[..., object], name: str) -> NoReturn:
    """Run a click command as a process; signals and errors end it with the codes of errors.py."""
    signals.install()
    make_standard_streams_patient()
    if sys.stderr is None:  # the caller closed it (2>&-)
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    _leave(_exit_code(command, name))


def import_api() -> Any:
    """Import randsvm.api and return it, without parts of numpy that commands do not use.

    numpy imports these by their first use, but scipy, while it is imported, asks for every name
    that numpy lists: 70 of 240 ms (scipy 1.17, numpy 2.4).
    """
    import importlib.util

    import numpy

    for name in UNUSED:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            # As Python does with every module of a package once it is imported.
            setattr(numpy, name.rpartition(".")[2], module)
    from randsvm import api

    return api


def _exit_code(command: Callable[..., object], name: str) -> int:
    streams = sys.stdout, sys.stderr
    try:
        command(prog_name=name)
    except SystemExit as exit_:
        # Where a reader went away, click wraps both and ends with 1.
        if (sys.stdout, sys.stderr) != streams:
            sys.stdout, sys.stderr = streams
            return BROKEN_PIPE
        return exit_.code if isinstance(exit_.code, int) else 1
    except RandsvmError as error:
        # Bad data speaks like a compiler, file first, so that editors can jump to the place.
        prefix = "" if isinstance(error, DataError) else f"{name}: "
        _say(f"{prefix}{error}")
        return error.exit_code
    except BrokenPipeError:
        return BROKEN_PIPE
    except MemoryError:  # before the run begins
        _say(f"{name}: out of memory")
        return OutOfMemoryError.exit_code
    except Exception as error:  # noqa: BLE001
        # The files of a run have errors of their own: this is where results are said.
        if isinstance(error, OSError) and error.filename is None:
            _say(f"{name}: writing <stdout>: {error.strerror}")
            return TransferError.exit_code
        import traceback

        traceback.print_exc()  # a bug: shown whole
        return BUG
    return 0


def _say(line: str) -> None:
    with contextlib.suppress(OSError, Interrupted):  # the exit code says it as well
        click.echo(line.encode("utf-8", "backslashreplace"), err=True)


def _leave(code: int) -> NoReturn:
    """End now: an interpreter that shuts down would wait for threads that are still at work."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or BROKEN_PIPE
        except Interrupted as signal_:
            code = signal_.exit_code
        except OSError:
            code = code or TransferError.exit_code
    os._exit(code)
