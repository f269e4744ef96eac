"""Progress bars, per-iteration lines, the log and the final summary.

On a terminal each stage of work is a bar; elsewhere there is one line per iteration. All of it
goes to stderr but results: the accuracy line and what --report json prints.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import click

from randsvm.errors import OutputError, TransferError
from randsvm.events import (
    Epoch,
    Iteration,
    Learnt,
    Notice,
    Predicted,
    Progress,
    Searched,
    Started,
    Taught,
    Trained,
    Tried,
)
from randsvm.files import STANDARD, check_output, open_patiently

# Stage of work -> what its bar counts in.
UNITS: dict[str, dict[str, Any]] = {
    "B": {"unit": "B", "unit_scale": True},
    "row": {"unit": " rows", "unit_scale": True},
    "fit": {"unit": " fits"},
}


class Report:
    """The listener of a command, as a context.

    words, files: options and arguments that complete the line that repeats the run. given: quiet,
    report (text or json) and log (a path or None), as the options were given. append: the log
    keeps what it has, for a search to go on from.
    """

    def __init__(
        self,
        command: str,
        words: list[str],
        files: list[str],
        given: Mapping[str, Any],
        *,
        append: bool = False,
    ) -> None:
        self.command = command
        self.words = words
        self.files = files
        self.quiet = given["quiet"]
        self.json = given["report"] == "json"
        self.log_file = given.get("log")
        self.mode = "a" if append else "w"
        self.log: IO[str] | None = None
        self.bars = sys.stderr.isatty() and not self.quiet
        self.bar: Any = None
        self.stage = ""

    def __enter__(self) -> Report:
        # Opened with the first event: a run that does not begin leaves an old log as it is.
        if self.log_file is not None:
            check_output(self.log_file)
        return self

    def __exit__(self, *exception: object) -> None:
        self._take_bar_away()
        if self.log not in (None, sys.stdout):
            # Every line was flushed, or its failure told: what is left has nowhere to go.
            with contextlib.suppress(OSError):
                self.log.close()

    def __call__(self, event: object) -> None:
        if isinstance(event, Progress):
            if self.bars:
                self._draw(event)
            return
        # By name: importing the classes would load numpy before --help is out.
        name = type(event).__name__.lower()
        self._write_log(name, event)
        self._take_bar_away()
        getattr(self, f"_{name}")(event)

    def say(self, line: str) -> None:
        if not self.quiet:
            click.echo(line, err=True)

    def _take_bar_away(self) -> None:
        """So that a line can be printed."""
        if self.bar is not None:
            self.bar.close()
            self.bar, self.stage = None, ""

    def _draw(self, event: Progress) -> None:
        from tqdm import tqdm

        if event.stage != self.stage:
            self._take_bar_away()
            layout = "{desc}: {elapsed}" if event.unit == "beat" else None
            self.bar = tqdm(
                desc=event.stage,
                total=event.total,
                leave=False,
                bar_format=layout,
                dynamic_ncols=True,
                **UNITS.get(event.unit, {}),
            )
            self.stage = event.stage
        self.bar.update(event.done - self.bar.n)

    def _write_log(self, name: str, event: Any) -> None:
        """One line per event, each flushed: the log of a killed run is whole up to its end."""
        if self.log_file is None:
            return
        if self.log is None:
            self.log = self._open_log(self.log_file, self.mode)
        try:
            self.log.write(json.dumps({"event": name, **_plain(event)}) + "\n")
            self.log.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise TransferError(f"writing {self.log_file}: {error.strerror}") from error

    @staticmethod
    def _open_log(path: str, mode: str) -> IO[str]:
        try:
            if path == STANDARD:
                return sys.stdout
            log = io.TextIOWrapper(open_patiently(path, f"{mode}b"), "ascii")
            if mode == "a" and _cut_short(path):
                log.write("\n")
            return log
        except OSError as error:
            raise OutputError(f"cannot create {path}: {error.strerror}") from error

    def _notice(self, event: Notice) -> None:
        self.say(f"note: {event.text}")

    def _started(self, event: Started) -> None:
        # What begins with a dash would be taken for an option.
        dashes = ["--"] if any(re.match("-.", name) for name in self.files) else []
        words = [*event.configuration, *self.words, *dashes, *self.files]
        self.say(shlex.join([self.command, event.algorithm, *words]))
        if event.n is None:
            return
        self.say(
            f"read {event.n:,} rows, {event.d:,} features, {event.nnz:,} nonzeros "
            f"in {event.seconds:.2f} s; C = {event.C:g}, lambda = 1/(C n) = {event.lambda_:g}"
        )
        solves = ""
        if event.solve_bytes is not None:
            solves = (
                f"; the first subproblem has {event.working_set:,} rows and takes up to "
                f"{_size(event.solve_bytes)}"
            )
        self.say(f"each pass reads {_size(event.pass_bytes or 0)} from {event.place}{solves}")

    def _iteration(self, event: Iteration) -> None:
        held = f" + {event.bound:,} bound" if event.bound else ""
        machine = f"{event.machine}: " if event.machine else ""
        self.say(
            f"{event.number:4d}  {event.seconds:7.2f} s  {machine}B {event.working_set:,}{held}  "
            f"|SV| {event.support_vectors:,} ({event.bounded:,} at C)  |V| {event.violators:,}  "
            f"{_objectives(event.primal, event.dual, not math.isnan(event.gap))}"
        )

    def _trained(self, outcome: Trained) -> None:
        if self.json:
            click.echo(json.dumps(_plain(outcome)))
        self.say(
            f"stopped: {outcome.stopped} after {outcome.iterations} iterations, "
            f"{outcome.seconds:.2f} s"
        )
        violators = "" if outcome.violators is None else f"{outcome.violators:,} violators, "
        running = "" if outcome.evaluated else " (from running values)"
        objectives = _objectives(outcome.primal, outcome.dual, not math.isnan(outcome.gap))
        self.say(
            f"{outcome.model}: {outcome.support_vectors:,} support vectors "
            f"({outcome.bounded:,} at C), {violators}{objectives}{running}, "
            f"J = P/(C n) = {outcome.J:.6g}"
        )

    def _tried(self, event: Tried) -> None:
        known = "  (from the log)" if event.resumed else ""
        each = " ".join(f"{score:g}" for score in event.scores)
        self.say(
            f"{event.number:4d} of {event.of}  {_values(event.values)}{event.score_name} "
            f"{event.score:g}  in {len(event.scores)} parts: {each}{known}"
        )

    def _searched(self, event: Searched) -> None:
        best = event.tried[0]
        if best.of > 1:
            self.say(f"tried {len(event.tried)} of {best.of} in {event.seconds:.2f} s, best first:")
            for one in event.tried:
                self.say(f"  {_values(one.values)}{one.score_name} {one.score:g}")
        if self.json:
            return
        # LIBSVM's own lines, so that scripts keep working; not into a model on standard output.
        to_stdout = self.files[-1:] == [STANDARD]
        for line in _cross_validated(best):
            click.echo(line, err=to_stdout)

    def _epoch(self, event: Epoch) -> None:
        held_out = "" if event.held_out is None else f"  held-out loss {event.held_out:.6f}"
        self.say(
            f"epoch {event.number:3d}  {event.seconds:7.2f} s  "
            f"{_progressive(event.loss, event.errors)}{held_out}"
        )

    def _taught(self, event: Taught) -> None:
        self.say(
            f"{event.seconds:7.2f} s  {event.rows:,} rows  of the last {event.last:,}: "
            f"{_progressive(event.loss, event.errors)}"
        )

    def _learnt(self, outcome: Learnt) -> None:
        if self.json:
            click.echo(json.dumps(_plain(outcome)))
        self.say(
            f"stopped: {outcome.stopped} after {outcome.rows:,} steps, {outcome.seconds:.2f} s"
        )
        if outcome.primal is None:
            found = _progressive(outcome.progressive_loss, outcome.progressive_errors)
        else:
            error = (
                f"training error {outcome.error:.3%}"
                if outcome.error is not None
                else (f"mean squared error {outcome.squared_error:.6g}")
            )
            found = (
                f"J {outcome.J:.6g} = P/(C n)  P {outcome.primal:.6g}  {error}  "
                f"{outcome.violators:,} violators"
            )
        self.say(f"{outcome.model}: training time {outcome.learning:.2f} s  {found}")

    def _predicted(self, outcome: Predicted) -> None:
        """LIBSVM's accuracy line is a result: on stdout, unless the labels themselves are there."""
        self.say(f"predicted {outcome.rows:,} rows in {outcome.seconds:.2f} s")
        if self.json:
            click.echo(json.dumps(_plain(outcome)), err=outcome.to_stdout)
        elif outcome.labelled == 0:
            self.say("no labelled rows: no score")
        else:
            for line in [*_score(outcome), *_metrics(outcome.metrics)]:
                click.echo(line, err=outcome.to_stdout)


def _cut_short(path: str) -> bool:
    """Whether a log ends inside a line, as that of a killed run may."""
    log = Path(path)
    return log.is_file() and log.read_bytes()[-1:] not in (b"", b"\n")


def tried(log: str) -> tuple[dict[str, Any], ...]:
    """What earlier searches have tried, by their log; a line that was cut short is left out."""
    path = Path(log)
    if not path.is_file():
        return ()
    lines = []
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
    return tuple(one for one in lines if isinstance(one, dict) and one.get("event") == "tried")


def _values(values: Mapping[str, float]) -> str:
    """The parameters of a grid, by their names."""
    return "".join([f"{name.rstrip('_')} {value:g}  " for name, value in values.items()])


def _cross_validated(found: Tried) -> list[str]:
    """svm-train's own lines."""
    if found.score_name == "accuracy":
        return [f"Cross Validation Accuracy = {found.score:g}%"]
    return [
        f"Cross Validation Mean squared error = {found.score:g}",
        f"Cross Validation Squared correlation coefficient = "
        f"{found.details['squared_correlation']:g}",
    ]


def _metrics(found: Any) -> list[str]:
    """Tables of --metrics: ClassificationMetrics, RegressionMetrics or None."""
    if found is None:
        return []
    if not hasattr(found, "confusion"):
        return [
            f"Mean absolute error = {found.mean_absolute_error:g}",
            f"Coefficient of determination = {found.determination:g}",
        ]
    columns = [found.labels, *zip(*found.confusion, strict=True)]
    header = ["true \\ said", *found.labels[: len(columns) - 1]]
    scores = [
        [one.label, *(f"{x:.4f}" for x in (one.precision, one.recall, one.f1)), str(one.rows)]
        for one in [*found.classes, found.mean]
    ]
    return [
        *_table([header, *map(list, zip(*columns, strict=True))]),
        *_table([["label", "precision", "recall", "F1", "rows"], *scores]),
        *([] if found.auc is None else [f"ROC AUC = {found.auc:.6f}"]),
    ]


def _table(rows: list[list[Any]]) -> list[str]:
    """Columns aligned to the right, the first to the left."""
    words = [[str(word) for word in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in words
    ]


def _size(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _progressive(loss: float, errors: float | None) -> str:
    """Of rows before they were learnt."""
    return f"progressive loss {loss:.6f}" + ("" if errors is None else f"  error {errors:.3%}")


def _score(outcome: Predicted) -> list[str]:
    """svm-predict's own lines, so that scripts keep working."""
    if outcome.accuracy is not None:
        score = f"{outcome.accuracy:g}% ({outcome.correct}/{outcome.labelled})"
        return [f"Accuracy = {score} (classification)"]
    return [
        f"Mean squared error = {outcome.squared_error:g} (regression)",
        f"Squared correlation coefficient = {outcome.squared_correlation:g} (regression)",
    ]


def _plain(event: Any) -> Any:
    """An event as JSON has it."""
    return _finite(asdict(event))


def _finite(value: Any) -> Any:
    """null for what JSON has no number for; lambda_ is a word that Python keeps for itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name.rstrip("_"): _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _objectives(primal: float, dual: float, certified: bool) -> str:
    if not certified:
        return f"P {primal:.6g}  gap not certified"
    scale = max(abs(primal), abs(dual))
    # Rounding may leave D above P by its last bit: no "-0.000%".
    gap = max((primal - dual) / scale, 0.0) if scale else 0.0
    return f"P {primal:.6g}  D {dual:.6g}  gap {gap:.3%}"
