"""Start and end the process of a command: signals, and errors as one line and an exit code."""

import contextlib
import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from randsvm import events
from randsvm.errors import (
    DataError,
    Interrupted,
    OutOfMemoryError,
    RandsvmError,
    TransferError,
)
from randsvm.files import make_standard_input_patient

# Exit codes of errors that are none of randsvm.errors.
BUG = 70
BROKEN_PIPE = 128 + signal.SIGPIPE


def run(command: Callable[..., object], name: str) -> NoReturn:
    """Run a click command and end the process with its exit code.

    name: of the command, for messages.
    """
    install_handlers()
    make_standard_input_patient()
    # Scans run a thread per core; threads of BLAS would compete with them. The libraries read these
    # variables when numpy is imported, which no command does before its work begins.
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[variable] = "1"
    # New objects between two garbage collections. The default of 700 more than doubles the time of
    # writing a model.
    gc.set_threshold(100_000)
    # pyarrow's own allocators keep tens of megabytes of freed memory for each thread.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Warnings of libraries are for programmers, who ask for them by PYTHONWARNINGS.
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    if sys.stderr is None:  # the caller closed it (2>&-)
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    _leave(_exit_code(command, name))


def import_libsvm() -> None:
    """Import the bindings of LIBSVM without scipy, which would take a third of a small training.

    They import scipy for functions that take its matrices, which no command calls, and do without
    it where the import fails.
    """
    if "scipy" not in sys.modules:
        sys.modules["scipy"] = None  # type: ignore[assignment]
        import libsvm.svm  # noqa: F401

        del sys.modules["scipy"]


def ending_of(error: BaseException | None) -> tuple[int, str]:
    """Return the exit code of a command that this error ends, and the reason; None: no error."""
    if error is None:
        return 0, "no result"
    if isinstance(error, RandsvmError):
        return error.exit_code, str(error)
    if isinstance(error, click.ClickException):
        return error.exit_code, error.format_message()
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE, "the reader of the output went away"
    if isinstance(error, MemoryError):  # Report handles those of a run
        return OutOfMemoryError.exit_code, "out of memory"
    # Files of a run raise errors of randsvm.errors; this one comes from standard output.
    if isinstance(error, OSError) and error.filename is None:
        return TransferError.exit_code, f"writing <stdout>: {error.strerror}"
    return BUG, f"{type(error).__name__}: {error}"


def _exit_code(command: Callable[..., object], name: str) -> int:
    """Run a command, print what ends it early, and return the exit code."""
    streams = sys.stdout, sys.stderr
    try:
        command(prog_name=name)
    except SystemExit as exit_:
        # click replaces both streams and exits with 1 if the reader of its output went away.
        if (sys.stdout, sys.stderr) != streams:
            sys.stdout, sys.stderr = streams
            return BROKEN_PIPE
        return exit_.code if isinstance(exit_.code, int) else 1
    except Exception as error:  # noqa: BLE001
        code, reason = ending_of(error)
        if code == BUG and not isinstance(error, RandsvmError):
            import traceback

            traceback.print_exc()
        elif code != BROKEN_PIPE:
            # A message about data begins with file:line:column, as those of compilers do.
            line = reason if isinstance(error, DataError) else f"{name}: {reason}"
            with contextlib.suppress(OSError, Interrupted):  # the exit code reports the error too
                click.echo(line.encode("utf-8", "backslashreplace"), err=True)
        return code
    return 0


def _leave(code: int) -> NoReturn:
    """Flush and end the process without waiting for threads that are still working."""
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


# ---- signals ----------------------------------------------------------------------------------

# SIGXCPU comes at a soft limit on CPU time. Schedulers send SIGUSR1 or SIGUSR2 before they kill a
# job. Each of them ends a process by default, so a handler takes nothing away.
SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGXCPU,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# A second signal ends the process at once unless it comes within this many seconds:
# timeout(1) sends its signal to the command and again to its process group.
REPEAT_SECONDS = 1.0
# The same for a second Ctrl-C after the first. It is longer than the time between the two signals
# of timeout -s INT, and shorter than the time in which a user presses Ctrl-C twice.
REPEAT_KEY_SECONDS = 0.1


def install_handlers() -> None:
    """Let the first of SIGNALS end the run with the best model so far."""
    for number in SIGNALS:
        # nohup ignores SIGHUP, and a shell script SIGINT in a command that ends with &.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)


def _handle(number: int, frame: FrameType | None) -> None:
    """Record a signal; randsvm.events raises Interrupted at the next event."""
    first, began = events.interrupt(number, time.monotonic())
    # The kernel repeats SIGXCPU after each second of CPU time.
    if began is None or number == signal.SIGXCPU:
        return
    least = REPEAT_KEY_SECONDS if first == number == signal.SIGINT else REPEAT_SECONDS
    if time.monotonic() - began >= least:
        with contextlib.suppress(OSError):
            os.write(2, b"ended at once by a second signal\n")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
