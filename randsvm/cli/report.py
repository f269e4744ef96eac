"""The listener of a command: lines, a progress bar and log records for the events of a run.

Lines go to standard error; results (the accuracy, --report) go to standard output or a file.
docs/file-formats.md describes the records.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import click

from randsvm import __version__
from randsvm.cli.lines import LINES, RESULTS, missed_gap
from randsvm.cli.process import ending_of
from randsvm.errors import (
    ClusterError,
    InputError,
    Interrupted,
    OutOfMemoryError,
    OutputError,
    ParameterError,
    TransferError,
    WriteError,
)
from randsvm.events import (
    SCHEMA,
    Certified,
    Epoch,
    Explained,
    Exported,
    Iteration,
    Point,
    Predicted,
    Progress,
    Started,
    Trained,
    Tried,
    Underway,
    Unwritten,
    Waiting,
)
from randsvm.files import (
    STANDARD,
    STANDARD_OUTPUTS,
    check_distinct,
    check_output,
    display_output,
    read_json_lines,
    without_password,
)

# ---- records and the log ------------------------------------------------------------------------


class Failed(NamedTuple):
    """The end of a command that has no result.

    Parameters
    ----------
    problem : str
        The reason, as printed on standard error.
    seconds : float
        Seconds since the start of the run.
    """

    problem: str
    seconds: float


# The events that end randsvm-predict, and those that end any command.
PREDICTION_ENDS = (Predicted, Certified, Exported, Explained)
COMMAND_ENDS = (Trained, *PREDICTION_ENDS)


def as_line(record: Mapping[str, object]) -> str:
    """Return a record as a line of JSON."""
    return json.dumps(record) + "\n"


def peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    # Linux: ru_maxrss begins with the memory of the process that started this one.
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        line = next(line for line in lines if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def as_json(value: object) -> Any:
    """Return a value that JSON can hold: None for nan and infinities, `lambda` for `lambda_`."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, dict):
        return {name.rstrip("_"): as_json(one) for name, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list | tuple) else value


# The first bytes of a log.
BEGINNING = b'{"event": "'


class Log:
    """A file to whose end lines are added, each in one write, so that several runs may share it.

    The file is opened when the first line is written: a run that does not begin leaves an old log
    unchanged. The constructor raises OutputError if the file cannot be written or is not a log.
    """

    def __init__(self, path: str) -> None:
        check_output(path, "a log", lambda head: head.startswith(BEGINNING))
        self.path = path
        self.stream: BinaryIO | None = None  # until the first line

    def write(self, line: str) -> None:
        """Write a line at once, so that the log of a killed run is complete. Raises OSError."""
        content = line.encode("ascii")
        if self.stream is None:
            if self.path == STANDARD:
                self.stream = sys.stdout.buffer
            else:
                # Without a buffer, which would cut a long line in two.
                self.stream = Path(self.path).open("ab", buffering=0)  # noqa: SIM115 - `close`
                content = b"\n" * _is_cut_short(self.path) + content
        left = memoryview(content)
        while left:
            # One write, unless a pipe or a disk has no room for all of it.
            left = left[self.stream.write(left) :]
        self.stream.flush()

    def close(self) -> None:
        if self.stream is not None and self.path != STANDARD:
            # Every line was flushed: closing writes nothing.
            with contextlib.suppress(OSError):
                self.stream.close()


def _is_cut_short(path: str) -> bool:
    """Return whether a log ends inside a line, as that of a killed run may."""
    log = Path(path)
    if not log.is_file() or not log.stat().st_size:
        return False
    with log.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() != b"\n"


def read_trials(log: str) -> tuple[dict[str, Any], ...]:
    """Return the `tried` records of a log: the scores of earlier searches.

    A file that cannot be read has none, nor have records of another schema.
    """
    records = []
    if Path(log).is_file():
        with contextlib.suppress(InputError):
            records = read_json_lines(log)
    ours = (one for one in records if one.get("schema") == SCHEMA)
    return tuple(one for one in ours if one.get("event") == "tried")


# ---- the listener ------------------------------------------------------------------------------


class Report:
    """The listener of a command, as a context.

    algorithm: that of a training; None for other commands. files: the name or names of each file,
    by its role. given: options of the command: quiet, report (text or json) and, for a training,
    log and html.
    """

    def __init__(
        self,
        command: str,
        files: Mapping[str, str | tuple[str, ...]],
        given: Mapping[str, Any],
        *,
        algorithm: str | None = None,
    ) -> None:
        self.start = time.monotonic()
        self.command = command
        # The password of a URL is no part of lines and records.
        files = {
            role: without_password(names)
            if isinstance(names, str)
            else tuple(map(without_password, names))
            for role, names in files.items()
        }
        self.files: list[str] = []
        for names in files.values():
            self.files += [names] if isinstance(names, str) else names
        # A model, predictions or a page on standard output must not be mixed with other lines.
        result = files.get("output" if algorithm is None else "model")
        # All outputs of a training, which have to be different.
        self.outputs: dict[str, Any] = {
            "MODEL_FILE": result,
            "--log": given.get("log"),
            "--html": given.get("html"),
            "--certificate": given.get("certificate"),
            "--keep-rows": given.get("keep_rows"),
        }
        self.to_stdout = [one for one, path in self.outputs.items() if path in STANDARD_OUTPUTS]
        # The fields of all records. `run` distinguishes the lines of runs that share a log.
        head = {"run": os.urandom(4).hex(), "version": __version__, "command": command}
        self.run: dict[str, object] = {**head, **files}
        if algorithm is not None:
            self.run["algorithm"] = algorithm
        self.given = given
        self.quiet, self.in_json = given["quiet"], given["report"] == "json"
        # Outputs that check_outputs has found to be usable.
        self.log: Log | None = None
        # Records for the page of --html; None: there is no page, or its file is not usable.
        self.page: list[dict[str, Any]] | None = None
        self.bar = Bar(is_drawn=not self.quiet and can_draw())
        # The last event of each kind.
        self.last: dict[type, Any] = {}
        self.stage = ""  # words for OutOfMemoryError
        # The event of the end, whose record is written when the exit code is known.
        self.outcome: object = None
        # Outputs other than the model that failed.
        self.failed: set[str] = set()

    def check_outputs(self, files: Mapping[str, str | Sequence[str] | None]) -> None:
        """Raise an error if the log cannot be written or is another file of the run.

        files: role -> path or paths of the other files.
        """
        if len(self.to_stdout) > 1:
            raise ParameterError(f"standard output is both {' and '.join(self.to_stdout)}")
        # A model may replace the one that it continues.
        model = {"MODEL_FILE": self.outputs["MODEL_FILE"]}
        others = {role: path for role, path in self.outputs.items() if role not in model}
        check_distinct(others, {**files, **model})
        if self.given.get("html") is not None:
            # Fails without matplotlib.
            from randsvm.page import check_page

            check_page(self.given["html"])
            self.page = []
        log = self.given.get("log")
        self.log = None if log is None else Log(log)

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the last record.

        Raise TransferError if an output other than the model failed, and OutOfMemoryError in place
        of MemoryError.
        """
        self.bar.close()
        is_search = Tried in self.last and self.outcome is None
        if is_search and isinstance(error, Interrupted | ClusterError):
            place = "without --log its scores are lost"
            if self.log is not None:
                name = display_output(self.log.path)
                place = f"its scores are in {name}: the same command continues"
            error.args = (f"{error}; {place}",)
        if isinstance(error, MemoryError):
            options = "--memory or --jobs" if "memory" in self.given else "--jobs"
            error = OutOfMemoryError(f"out of memory{self.stage}: lower {options}")
        try:
            self._end(error)
        finally:
            if self.log is not None:
                self.log.close()
        error = self._error_at_end(error)
        # The error of the block goes on by itself; one in its place has another type.
        if error is not None and type(error) is not kind:
            raise error

    def _error_at_end(self, error: BaseException | None) -> BaseException | None:
        """Return the error that ends the command: this one, or that of an output that failed."""
        if error is None and Unwritten in self.last:
            return TransferError(f"{self.last[Unwritten].problem}: all else is done")
        return error

    def _end(self, error: BaseException | None) -> None:
        """Write the report, the page and the last line of the log.

        If writing one of them fails, the next ones have the exit code of that error.
        """
        event: Any = self.outcome
        if event is None:
            event = Failed(ending_of(error)[1], time.monotonic() - self.start)
        record = self._record(event)
        record |= {"peak_memory": peak_memory(), "host": os.uname().nodename}

        def finished() -> dict[str, Any]:
            return record | {"exit_code": ending_of(self._error_at_end(error))[0]}

        is_usage = isinstance(error, ParameterError)
        if self.in_json:
            self._print(as_line(finished()).rstrip("\n"), event)
        if self.page is not None and not is_usage:
            from randsvm.page import training_page, write_page

            path, records = self.given["html"], [*self.page, finished()]
            self._attempt(path, lambda: write_page(path, training_page(records)))
        # A mistaken command line leaves an old log unchanged.
        if self.log is not None and (self.log.stream is not None or not is_usage):
            self._write_log(finished())

    def _attempt(self, output: str, write: Callable[[], object]) -> None:
        """Write to an output other than the model. The run goes on without one that fails."""
        if output in self.failed:
            return
        try:
            write()
        except (OSError, OutputError, WriteError) as error:
            self.failed.add(output)
            reason = error.strerror if isinstance(error, OSError) else None
            self(Unwritten(str(error) if reason is None else f"writing {output}: {reason}"))

    def __call__(self, event: Any) -> None:
        if isinstance(event, Waiting | Underway):
            return
        if isinstance(event, Progress):
            self.stage = f" while {event.stage}"
            self.bar.draw(event)
            return
        self.stage = ""
        if isinstance(event, COMMAND_ENDS):
            self.outcome = event
        else:
            # Also without a log: `_record` keeps fields of Started, which the last record repeats.
            record = self._record(event)
            self._write_log(record)
            if self.page is not None:
                self.page.append(record)
        self.bar.update(event)
        kind = type(event)
        if not self.quiet:
            # A bar shows the loss of epochs.
            has_lines = kind in LINES and not (self.bar.is_drawn and kind is Epoch)
            for line in [*self._headings(event), *(LINES[kind](event) if has_lines else ())]:
                self._say(line)
        self._show_problems(event)
        if kind in RESULTS and not self.in_json:
            for line in RESULTS[kind](event):
                self._print(line, event)
        # Of several outputs that fail, the first decides the exit code.
        if not isinstance(event, Unwritten) or Unwritten not in self.last:
            self.last[kind] = event

    def _record(self, event: Any) -> dict[str, Any]:
        """Return the record of an event."""
        fields = event._asdict()
        if isinstance(event, Started):
            parameters = shlex.join(fields.pop("configuration"))
            self.run |= {"algorithm": event.algorithm, "parameters": parameters}
            self.run |= {"n": event.n, "d": event.d, "nnz": event.nnz}
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        head = {
            "event": type(event).__name__.lower(),
            "schema": SCHEMA,
            "time": now.replace("+00:00", "Z"),
        }
        return as_json({**head, **self.run, **fields})

    def _headings(self, event: Any) -> Iterable[str]:
        """Return the heading of the lines of an event; it depends on earlier events."""
        last = self.last.get(type(event))
        if isinstance(event, Started):
            # A name that begins with a dash would be read as an option.
            dashes = ["--"] if any(re.match("-.", name) for name in self.files) else []
            words = [*event.configuration, *dashes, *self.files]
            yield shlex.join([self.command, event.algorithm, *words])
        elif isinstance(event, Iteration) and event.inner_set != (last.inner_set if last else 0):
            rows = f"{event.inner_set:,} of the rows" if event.inner_set else "all rows"
            yield f"rounds on {rows}:"
        elif isinstance(event, Tried) and last is None and event.number == 1 < event.of:
            yield "score of each combination (its worst and best fold), and the rows scored:"
        elif isinstance(event, Point) and last is None:
            yield "path on all rows, each C from the solution of the one before:"

    def _show_problems(self, event: object) -> None:
        """Print an output that cannot be written, and a missed gap, also with --quiet."""
        if isinstance(event, Unwritten):
            self._say(f"note: {event.problem}: the run goes on without it")
        line = missed_gap(event) if isinstance(event, Trained) else None
        # With --require-gap the error says it.
        if line is not None and not (self.quiet and self.given.get("require_gap") is not None):
            # click removes the colour if standard error is no terminal.
            plain = os.environ.get("NO_COLOR")
            self._say(line if plain else click.style(line, "red", bold=True))

    def _write_log(self, record: Mapping[str, object]) -> None:
        log = self.log
        if log is not None:
            self._attempt(display_output(log.path), lambda: log.write(as_line(record)))

    def _print(self, line: str, event: object) -> None:
        """Print a result. A failing standard output ends a prediction, and not a training."""
        self.bar.clear()
        if set(self.to_stdout) - {"--log"}:
            self._say(line)
        elif isinstance(event, PREDICTION_ENDS):
            _echo(line, self.in_json)
        else:
            self._attempt("<stdout>", lambda: _echo(line, self.in_json))

    def _say(self, line: str) -> None:
        """Print a line on standard error, also with --quiet."""
        self.bar.clear()
        self._attempt("<stderr>", lambda: click.echo(line, err=True))


def _echo(line: str, is_report: bool) -> None:
    """Print a line on standard output. A report needs one that the caller has not closed."""
    if sys.stdout is None and is_report:
        raise WriteError("writing <stdout>: it is closed")
    click.echo(line)


# ---- the progress bar: a line of a terminal that is rewritten and removed ----------------------

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

    def __init__(self, *, is_drawn: bool) -> None:
        self.is_drawn = is_drawn
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
        if not self.is_drawn:
            return
        if self.bar is None or event.stage != self.bar.desc or event.done < self.bar.n:
            from tqdm import tqdm

            self.close()
            done = "{n_fmt} of {total_fmt}" if event.unit == "fit" else "{percentage:3.0f}%"
            known = f"{done} |{{bar}}|" if event.total is not None else "{n_fmt}{unit},"
            shown = "" if event.unit == "beat" else known
            tqdm.monitor_interval = 0  # starts no monitor thread
            self.bar = tqdm(
                desc=event.stage,
                total=event.total,
                leave=False,
                # The same line also after a bar that an error has left behind.
                position=0,
                bar_format=f"{{desc}}: {shown} {{elapsed}}{{postfix}}",
                dynamic_ncols=True,
                # Draw after each event, also without progress, if the last one is 0.1 s ago.
                miniters=0,
                **UNITS.get(event.unit, {}),
            )
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
