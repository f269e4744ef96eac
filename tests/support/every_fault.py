"""Small runs in which the k-th event, open, read, write, fsync or rename fails.

Whatever k is, no file is lost or damaged, and the next run works.
"""

import errno
import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import run_predict, run_train

from randsvm import events
from randsvm.errors import RandsvmError
from randsvm.files import PatientFile
from randsvm.models.model_text import load
from randsvm.training.job import Clock

# Exit codes that the help documents for a failed input or output, too little memory, a worse model
# than the old one, or a signal.
EXIT_CODES = (66, 71, 73, 74, 75, 128 + signal.SIGTERM)

# The time limit of trainings, which only the fault "time" lets pass.
SECONDS = 1e5


class Calls:
    """Counts the calls of a function, and lets one of them fail."""

    def __init__(self, fails: int | None = None) -> None:
        self.fails, self.count = fails, 0

    def next_fails(self) -> bool:
        self.count += 1
        return self.count - 1 == self.fails


class _Written(io.FileIO):
    """A file that stores half of the bytes of the write that fails."""

    calls: Calls

    def write(self, data: Any, /) -> int:
        if self.calls.next_fails():
            super().write(memoryview(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def _failing(function: Callable[..., Any], calls: Calls, number: int) -> Callable[..., Any]:
    """Let calls by the package fail, not those by the modules that it uses."""

    def call(*arguments: Any, **options: Any) -> Any:
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.startswith("randsvm.") and calls.next_fails():
            raise OSError(number, os.strerror(number))
        return function(*arguments, **options)

    return call


def _signal(patch: pytest.MonkeyPatch, calls: Calls) -> None:
    check = events.check

    def checked() -> None:
        if calls.next_fails():
            events.interrupt(signal.SIGTERM)
        check()

    patch.setattr(events, "check", checked)
    patch.setattr(events._Signals, "first", None)
    patch.setattr(events._Signals, "raised", False)


def _memory(patch: pytest.MonkeyPatch, calls: Calls) -> None:
    check = events.check

    def checked() -> None:
        if calls.next_fails():
            raise MemoryError
        check()

    patch.setattr(events, "check", checked)


def _time(patch: pytest.MonkeyPatch, calls: Calls) -> None:
    """Let the time limit pass with an event that the clock observes."""
    hear, now, late = Clock.__call__, time.perf_counter, [0.0]

    def heard(clock: Clock, event: Any) -> None:
        if calls.next_fails():
            late[0] = 2 * SECONDS
        hear(clock, event)

    patch.setattr(Clock, "__call__", heard)
    patch.setattr(time, "perf_counter", lambda: now() + late[0])


def _write(patch: pytest.MonkeyPatch, calls: Calls) -> None:
    fdopen = os.fdopen

    def opened(descriptor: int, mode: str) -> Any:
        if mode != "wb":
            return fdopen(descriptor, mode)
        raw = _Written(descriptor, mode)
        raw.calls = calls
        return io.BufferedWriter(raw)

    patch.setattr(os, "fdopen", opened)


# Each makes a kind of call fail.
FAULTS: dict[str, Callable[[pytest.MonkeyPatch, Calls], None]] = {
    "signal": _signal,
    "memory": _memory,
    "time": _time,
    "write": _write,
    "open": lambda patch, calls: patch.setattr(os, "open", _failing(os.open, calls, errno.EMFILE)),
    "read": lambda patch, calls: patch.setattr(
        PatientFile, "readinto", _failing(PatientFile.readinto, calls, errno.EIO)
    ),
    "fsync": lambda patch, calls: patch.setattr(os, "fsync", _failing(os.fsync, calls, errno.EIO)),
    "rename": lambda patch, calls: patch.setattr(
        Path, "replace", _failing(Path.replace, calls, errno.EACCES)
    ),
}


class Run(NamedTuple):
    """A command, the files that it replaces, and those that it may also leave.

    keeps: whether a run that ends early leaves the old model, and no worse one
    """

    words: str
    outputs: tuple[str, ...] = ("m",)
    leaves: tuple[str, ...] = ("m.interrupted",)
    keeps: bool = False

    def __call__(self) -> None:
        name, *words = self.words.split()
        if name == "predict":
            run_predict(*words)
        else:
            run_train(words[0], "--time-limit", f"{SECONDS:g}s", *words[1:])


def check_every_fault(run: Run, fault: str, folder: Path, most: int) -> None:
    """Let each of the calls fail, or about `most` of them.

    folder: the working folder, which holds the inputs and old outputs.
    """
    old = contents(folder)
    restore(folder, old)
    with failing(fault, None) as calls:
        run()
    new = contents(folder)
    assert new.keys() == old.keys() | set(run.outputs), "an undisturbed run"
    for k in some_of(calls.count, most):
        restore(folder, old)
        try:
            with failing(fault, k), observed() as models:
                run()
            # At the end of its time a run keeps its best model.
            assert fault == "time" or contents(folder) == new, f"{fault} {k}: the run ended well"
            check_outputs(run, folder, old, new, f"{fault} {k}")
        except RandsvmError as error:
            assert error.exit_code in EXIT_CODES, f"{fault} {k}: {error!r}"
            check_outputs(run, folder, old, new, f"{fault} {k}: {error}")
            if models and not run.keeps:
                check_model_is_kept(folder, old, f"{fault} {k}: {error!r}")
    run()
    assert {name: (folder / name).read_bytes() for name in run.outputs} == {
        name: new[name] for name in run.outputs
    }, f"{fault}: the next run"


@contextmanager
def observed() -> Iterator[list[object]]:
    """Yield the events so far after which a training has a model."""
    seen: list[object] = []
    pass_on = Clock.pass_on

    def passed(clock: Clock, event: Any) -> None:
        pass_on(clock, event)
        if isinstance(event, events.Iteration) and not event.inner_set:
            seen.append(event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clock, "pass_on", passed)
        yield seen


def check_model_is_kept(folder: Path, old: dict[str, bytes], what: str) -> None:
    """Check that a model other than the old one is at its path or at that of an interrupted run."""
    kept = [name for name in ("m", "m.interrupted") if (folder / name).exists()]
    found = [name for name in kept if (folder / name).read_bytes() != old.get(name)]
    assert found, f"{what}: the trained model is lost"


@contextmanager
def failing(fault: str, k: int | None) -> Iterator[Calls]:
    calls = Calls(k)
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[fault](patch, calls)
        yield calls


def some_of(count: int, most: int) -> Sequence[int]:
    """Return the first and the last numbers, and some between them."""
    if count <= most:
        return range(count)
    step = -(-count // (most // 2))
    ends = most // 4
    return sorted({*range(ends), *range(0, count, step), *range(count - ends, count)})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def restore(folder: Path, files: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(0, 0))  # which a cache contains


def check_outputs(
    run: Run, folder: Path, old: dict[str, bytes], new: dict[str, bytes], what: str
) -> None:
    """Check that each file is the old or the new one, or is another whole model."""
    found = contents(folder)
    assert found.keys() >= old.keys(), what
    assert found.keys() <= {*old, *run.outputs, *run.leaves}, what
    for name, content in found.items():
        if content not in (old.get(name), new.get(name)):
            assert not run.keeps and name in ("m", "m.interrupted"), f"{what}: {name}"
            load(str(folder / name))
