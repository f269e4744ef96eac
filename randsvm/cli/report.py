"""The listener of a command: lines, bars and log records for the events of a run.

Lines go to standard error; results (the accuracy, --report) go to standard output or a file.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatchmethod
from itertools import pairwise
from types import TracebackType
from typing import Any

import click

from randsvm.cli import bars
from randsvm.cli.log import COMMAND_ENDS, PREDICTION_ENDS, Failed, Log, Records, as_line
from randsvm.cli.process import exit_code_of
from randsvm.errors import (
    ClusterError,
    Interrupted,
    OutOfMemoryError,
    OutputError,
    ParameterError,
    RandsvmError,
    TransferError,
    WriteError,
)
from randsvm.events import (
    PERCENT_SCORES,
    Certified,
    Epoch,
    Explained,
    Exported,
    Iteration,
    Notice,
    Predicted,
    Progress,
    Searched,
    Started,
    Trained,
    Tried,
    Unwritten,
    Updated,
    Waiting,
)
from randsvm.files import (
    STANDARD_OUTPUTS,
    check_distinct,
    display_output,
)
from randsvm.parameters.values import AUTO

# Bounds of rounding below this share of P and D are not printed.
VISIBLE_ROUNDING = 1e-6


class Report:
    """The listener of a command, as a context.

    algorithm: that of a training; None for other commands. arguments: options that
    `Started.configuration` lacks. files: the name or names of each file, by its role. Both complete
    the command line of the run. given: options of the command: quiet, report (text or json) and,
    for a training, log and html.
    """

    def __init__(
        self,
        command: str,
        arguments: list[str],
        files: Mapping[str, str | tuple[str, ...]],
        given: Mapping[str, Any],
        *,
        algorithm: str | None = None,
    ) -> None:
        self.start = time.monotonic()
        self.command = command
        self.arguments = arguments
        self.files: list[str] = []
        for names in files.values():
            self.files += [names] if isinstance(names, str) else names
        # A model or predictions on standard output must not be mixed with other lines.
        self.to_stdout = files.get("output" if algorithm is None else "model") in STANDARD_OUTPUTS
        self.records = Records(command, algorithm, files, arguments)
        self.quiet = given["quiet"]
        self.format = given["report"]
        self.given = given
        # Outputs that check_outputs has found to be usable.
        self.log: Log | None = None
        # Records for the page of --html; None: there is no page.
        self.page: list[dict[str, Any]] | None = None if given.get("html") is None else []
        self.bar = bars.Bar() if bars.can_draw() and not self.quiet else None
        self.epoch: str | None = None  # the line of the last epoch, until it is printed
        # For OutOfMemoryError: the current stage, and the options that take memory.
        self.stage = ""
        self.memory_options = "--memory or --jobs" if "memory" in given else "--jobs"
        # Rows of the inner set of the last round; see Iteration.
        self.inner_set = 0
        # The event of the end, whose record is written when the exit code is known.
        self.outcome: object = None
        # The number of scores of a search.
        self.scores = 0
        # The first problem of an output other than the model, and the names of those that failed.
        self.unwritten = ""
        self.failed: set[str] = set()

    def check_outputs(self, files: Mapping[str, Sequence[str | None]]) -> None:
        """Raise an error if the log cannot be written or is another file of the run.

        files: role -> paths of the other files.
        """
        log = self.given.get("log")
        if self.to_stdout and log in STANDARD_OUTPUTS:
            raise ParameterError("standard output is both MODEL_FILE and --log")
        outputs = {"--log": log, "--html": self.given.get("html")}
        check_distinct(outputs, {})
        for role, paths in files.items():
            for path in paths:
                check_distinct(outputs, {role: path})
        if self.page is not None:
            # Fails without matplotlib.
            from randsvm.page import check_page

            check_page(self.given["html"])
        if log is not None:
            checked = Log(log)
            checked.check()
            self.log = checked

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
        if self.bar is not None:
            self.bar.close()
        if isinstance(error, Interrupted | ClusterError) and self.scores and self.outcome is None:
            error.args = (f"{error}; {self._place_of_scores()}",)
        if isinstance(error, MemoryError):
            error = OutOfMemoryError(f"out of memory{self.stage}: lower {self.memory_options}")
        try:
            self._end(error)
        finally:
            if self.log is not None:
                self.log.close()
        error = self._final(error)
        if error is not None and type(error) is not kind:
            raise error

    def _place_of_scores(self) -> str:
        """Return where to find the scores of a search if the run ends without a model."""
        if self.log is None:
            return "without --log its scores are lost"
        return f"its scores are in {display_output(self.log.path)}: the same command continues"

    def _final(self, error: BaseException | None) -> BaseException | None:
        """Return the error that ends the command: this one, or that of an output that failed."""
        if error is None and self.unwritten:
            return TransferError(f"{self.unwritten}: all else is done")
        return error

    def _end(self, error: BaseException | None) -> None:
        """Write the report and the last line of the log.

        The report comes first: if writing it fails, the log has the exit code of that error.
        """
        event: Any = self.outcome
        if event is None:
            event = Failed(_problem(error), time.monotonic() - self.start)
        record = self.records.last(event, exit_code_of(self._final(error)))
        # A mistaken command line leaves an old log unchanged.
        log = self.log
        if log is not None and isinstance(error, ParameterError) and not log.is_begun:
            log = None
        if self.format != "text":
            self._print(as_line(record).rstrip("\n"), event)
            record["exit_code"] = exit_code_of(self._final(error))
        if self.page is not None and not isinstance(error, ParameterError):
            self._write_page([*self.page, record])
            record["exit_code"] = exit_code_of(self._final(error))
        if log is not None:
            self._write_log(as_line(record))

    def _write_page(self, records: list[dict[str, Any]]) -> None:
        from randsvm.page import training_page, write_page

        path = self.given["html"]
        self._attempt(path, lambda: write_page(path, training_page(records)))

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

    def __call__(self, event: object) -> None:
        if isinstance(event, Waiting):
            return
        if isinstance(event, Progress):
            self.stage = f" while {event.stage}"
            if self.bar is not None:
                self.bar.draw(event)
            return
        self.stage = ""
        if isinstance(event, COMMAND_ENDS):
            self.outcome = event
        elif self.log is not None or self.page is not None or self.format != "text":
            # Also without a log: `record` keeps fields of `started`, which the last record repeats.
            record = self.records.record(event)
            self._write_log(as_line(record))
            if self.page is not None:
                self.page.append(record)
        if self.bar is not None:
            self.bar.update(event)
        self._show(event)

    def _write_log(self, line: str) -> None:
        log = self.log
        if log is not None:
            self._attempt(display_output(log.path), lambda: log.write(line))

    def _print(self, line: str, event: object) -> None:
        """Print a result. A failing standard output ends a prediction, and not a training."""
        if self.bar is not None:
            self.bar.clear()
        if self.to_stdout:
            self._say(line)
        elif isinstance(event, PREDICTION_ENDS):
            _echo(line, self.format != "text")
        else:
            self._attempt("<stdout>", lambda: _echo(line, self.format != "text"))

    @singledispatchmethod
    def _show(self, event: object) -> None:
        raise TypeError(f"no line for the event {type(event).__name__}")

    def say(self, line: str) -> None:
        """Print a line on standard error unless --quiet is given."""
        if not self.quiet:
            self._say(line)

    def _say(self, line: str) -> None:
        """Print a line on standard error, also with --quiet."""
        if self.bar is not None:
            self.bar.clear()
        self._attempt("<stderr>", lambda: click.echo(line, err=True))

    @_show.register
    def _(self, event: Unwritten) -> None:
        self.unwritten = self.unwritten or event.problem
        self._say(f"note: {event.problem}: the run goes on without it")

    @_show.register
    def _(self, event: Notice) -> None:
        self.say(f"note: {event.text}")

    @_show.register
    def _(self, event: Started) -> None:
        # A name that begins with a dash would be read as an option.
        dashes = ["--"] if any(re.match("-.", name) for name in self.files) else []
        words = [*event.configuration, *self.arguments, *dashes, *self.files]
        self.say(shlex.join([self.command, event.algorithm, *words]))
        if event.n is None:
            return
        self.say(
            f"read {_counted(event.n, 'row')}, {_counted(event.d or 0, 'feature')}, "
            f"{_counted(event.nnz or 0, 'nonzero')} "
            f"in {event.seconds:.2f} s"
        )
        if not _searches_cost(event.configuration):
            self.say(f"C = {event.C:g}, lambda = 1/(C n) = {event.lambda_:g}{_weight(event)}")
        if event.place != "memory":
            self.say(f"each pass reads {_size(event.pass_bytes or 0)} from {event.place}")

    @_show.register
    def _(self, event: Iteration) -> None:
        if event.inner_set != self.inner_set:
            self.inner_set = event.inner_set
            rows = f"{self.inner_set:,} of the rows" if self.inner_set else "all rows"
            self.say(f"rounds on {rows}:")
        self.say(_round(event))

    @_show.register
    def _(self, outcome: Trained) -> None:
        self._show_last_epoch()
        noun, count = (
            ("step", outcome.steps)
            if outcome.iterations is None
            else ("iteration", outcome.iterations)
        )
        work = _counted(count or 0, noun) + ("" if outcome.largest_gap is None else " in all")
        self.say(_stopped(outcome.stopped, work, outcome.seconds))
        if outcome.iterations is None:
            self.say(
                f"{outcome.model}: training time {outcome.solve_seconds:.2f} s  {_learnt(outcome)}"
            )
        else:
            self._show_kernel_machine(outcome)
        if outcome.bytes_moved:
            self.say(f"{_size(outcome.bytes_moved)} moved to and from the workers")
        self._show_missed_gap(outcome)

    def _show_kernel_machine(self, outcome: Trained) -> None:
        violators = (
            "" if outcome.violators is None else f", {_counted(outcome.violators, 'violator')}"
        )
        name = outcome.model if outcome.saved else f"{outcome.model} (not written)"
        self.say(
            f"{name}: {_counted(outcome.support_vectors or 0, 'support vector')} "
            f"({outcome.bounded:,} at C){violators}"
        )
        objectives = _objectives(outcome.primal, outcome.dual, outcome.gap)
        self.say(f"{objectives}  J = P/(C n) = {outcome.J:.6g}")
        if not outcome.evaluated:
            self.say("not certified: the run ended before its closing evaluation")
        elif outcome.certificate == "sampled":
            self.say("the gap holds with a probability of at least 1 - 1e-9 (sampled rounding)")
        self._show_reduction(outcome)
        if outcome.largest_gap is not None and not math.isnan(outcome.gap):
            self.say(f"largest gap of one problem: {outcome.largest_gap:.3%}")

    def _show_missed_gap(self, outcome: Trained) -> None:
        if outcome.gap_asked is None or not outcome.gap > outcome.gap_asked:
            return
        reached = f"{100 * outcome.gap:.3g}% is certified"
        if math.isinf(outcome.gap):
            reached = "nothing is certified (rounding exceeds P and D)"
        line = (
            f"GAP NOT REACHED: {reached}, "
            f"--gap {outcome.gap_asked:g} asked for {100 * outcome.gap_asked:.3g}%"
        )
        required = self.given.get("require_gap")
        if not self.quiet or required is None:
            # click removes the colour if standard error is no terminal.
            plain = os.environ.get("NO_COLOR")
            self._say(line if plain else click.style(line, "red", bold=True))

    @_show.register
    def _(self, event: Tried) -> None:
        self.scores += 1
        if self.scores == event.number == 1 < event.of:
            self.say("score of each combination (lowest to highest fold), rows scored:")
        known = "  (from the log)" if event.resumed else ""
        span = f" ({min(event.scores):.4g} to {max(event.scores):.4g})" * (len(event.scores) > 1)
        self.say(
            f"{event.number:4d} of {event.of}  {_values(event.values)}{_named_score(event, 5)}"
            f"{span}, {_unfinished(event) or _counted(event.rows, 'row')}{known}"
        )

    @_show.register
    def _(self, event: Searched) -> None:
        best = event.tried[0]
        if event.of > 1:
            self.say(
                f"tried {len(event.tried)} of {event.of} in {event.seconds:.2f} s, "
                "with standard errors over the folds; best first:"
            )
            widths = {
                name: max(len(f"{one.values[name]:g}") for one in event.tried)
                for name in best.values
            }
            for one in event.tried:
                dropped = one.dropped_after is not None
                remark = f"  on {one.rows:,} rows" * (one.rows < best.rows and not dropped)
                remark += f"  {_unfinished(one)}" * dropped
                if one.values == event.one_standard_error:
                    remark += "  simplest within one standard error"
                spread = "" if math.isnan(one.standard_error) else f" +- {one.standard_error:.2g}"
                score = f"{_named_score(one)}{spread}"
                self.say(f"  {_values(one.values, widths)}{score}{remark}")
            if any(one.dropped_after is not None for one in event.tried):
                self.say("dropped: significantly worse than another one on the same rows")
            self.say(f"training on all rows with {_values(best.values).strip()}")
        if self.format != "text":
            return
        # svm-train's lines, which scripts read.
        for line in _cross_validated(best):
            self._print(line, event)

    @_show.register
    def _(self, event: Epoch) -> None:
        held_out = "" if event.held_out is None else f"  held-out loss {event.held_out:.6f}"
        self.epoch = (
            f"epoch {event.number:3d}  {event.seconds:7.2f} s  "
            f"{_progressive(event.loss, event.errors)}{held_out}"
        )
        # Without a bar these epochs have a line; the last epoch always has one. A log has all.
        if self.bar is None and (event.number in (1, 2, 5) or event.number % 10 == 0):
            self._show_last_epoch()

    def _show_reduction(self, outcome: Trained) -> None:
        reduced = outcome.reduced
        if reduced is None:
            return
        changed = reduced.labels_changed
        self.say(
            f"reduced from {reduced.support_vectors_before:,} support vectors (gap "
            f"{reduced.full_gap:.3%}): P is of the reduced machine, D of the full one"
        )
        self.say(
            f"f changes by {reduced.largest_change:.3g} at most, {reduced.mean_change:.3g} on "
            f"average; {changed:,} training labels change"
        )

    def _show_last_epoch(self) -> None:
        if self.epoch is not None:
            self.say(self.epoch)
            self.epoch = None

    @_show.register
    def _(self, event: Updated) -> None:
        self.say(
            f"{event.seconds:7.2f} s  {event.rows:,} rows  of the last {event.last:,}: "
            f"{_progressive(event.loss, event.errors)}"
        )

    @_show.register
    def _(self, outcome: Predicted) -> None:
        """Print svm-predict's accuracy line as a result."""
        self.say(f"predicted {_counted(outcome.rows, 'row')} in {outcome.seconds:.2f} s")
        if outcome.labelled == 0:
            self.say("no labelled rows: no score")
        if self.format == "text":
            for line in [*_noise(outcome), *_score(outcome)]:
                self._print(line, outcome)

    @_show.register
    def _(self, outcome: Certified) -> None:
        """Print P, D and the gap as a result."""
        self.say(
            f"{outcome.model}: {outcome.support_vectors:,} support vectors; P and D with "
            f"{outcome.problem} over {outcome.rows:,} rows in {outcome.seconds:.2f} s"
        )
        if outcome.unknown_support_vectors:
            self.say(
                f"{outcome.unknown_support_vectors:,} support vectors are not among the rows of "
                "the training file"
            )
        if outcome.feasible:
            self.say("the coefficients are feasible")
        else:
            self.say(
                f"the coefficients are infeasible: up to {outcome.beyond_bounds:.3g} beyond their "
                f"bounds, sum off by {outcome.sum_error:.3g}; D is of feasible ones next to them"
            )
        rounding = outcome.primal_error + outcome.dual_error
        if rounding > max(abs(outcome.primal), abs(outcome.dual)) * VISIBLE_ROUNDING:
            self.say(f"the gap includes {rounding:.3g} for the rounding of sums")
        if outcome.largest_gap is not None:
            worst = max(outcome.machines, key=lambda one: (math.isnan(one.gap), one.gap))
            self.say(f"largest gap of one problem: {worst.gap:.3%} ({worst.name})")
        if self.format == "text":
            self._print(_objectives(outcome.primal, outcome.dual, outcome.gap), outcome)

    @_show.register
    def _(self, outcome: Exported) -> None:
        """Print the largest difference as a result."""
        self.say(f"{outcome.output}: {_size(outcome.bytes)} in {outcome.seconds:.2f} s")
        if self.format == "text" and outcome.checked_by is not None:
            labels = outcome.labels_differ
            self._print(
                f"largest difference of decision values {outcome.largest_difference:.3g} over "
                f"{outcome.rows:,} rows, {labels:,} labels differ ({outcome.checked_by})",
                outcome,
            )

    @_show.register
    def _(self, outcome: Explained) -> None:
        values = " ".join(f"{value:.6g}" for value in outcome.base_values)
        self.say(f"explained {_counted(outcome.rows, 'row')} in {outcome.seconds:.2f} s")
        self.say(f"decision values without any feature: {values}")


def _echo(line: str, is_report: bool) -> None:
    """Print a line on standard output. A report needs one that the caller has not closed."""
    if sys.stdout is None and is_report:
        raise WriteError("writing <stdout>: it is closed")
    click.echo(line)


def _problem(error: BaseException | None) -> str:
    """Return the reason for the end of a command in a record."""
    if isinstance(error, RandsvmError):
        return str(error)
    if isinstance(error, click.ClickException):
        return error.format_message()
    return "no result" if error is None else f"{type(error).__name__}: {error}"


def _weight(event: Started) -> str:
    """Return the words about the n of lambda where rows have weights."""
    if not event.C or not event.lambda_:
        return ""
    total = 1 / (event.C * event.lambda_)
    same = math.isclose(total, event.n or 0, rel_tol=1e-9)
    return "" if same else f" (n = {total:g}, the sum of weights)"


def _round(event: Iteration) -> str:
    """Return the line of a round, within 80 columns."""
    gap = "-" if math.isnan(event.gap) else f"{event.gap:.3%}"
    head = f"{event.number:4d} {event.seconds:8.2f} s"
    counts = f"|V| {_count(event.violators):>6}  |SV| {_count(event.support_vectors):>6}"
    if event.machine:
        name = event.machine.replace(" / ", " vs ")
        name = name if len(name) <= 20 else name[:17] + "..."
        return f"{head}  {name}: gap {gap:>8}  {counts}"
    size = _count(event.working_set)
    return f"{head}  gap {gap:>8}  P {event.primal:<11.6g} {counts}  B {size:>5}"


def _learnt(outcome: Trained) -> str:
    """Return what is known of a linear machine: its objectives, or the progressive loss."""
    if outcome.primal is None:
        return _progressive(outcome.progressive_loss or 0.0, outcome.progressive_errors)
    bound = "" if outcome.dual is None else f"D {outcome.dual:.6g}  gap {outcome.gap:.3%}  "
    error = (
        f"training error {outcome.error:.3%}"
        if outcome.error is not None
        else f"mean squared error {outcome.squared_error:.6g}"
    )
    return (
        f"J {outcome.J:.6g} = P/(C n)  P {outcome.primal:.6g}  {bound}{error}  "
        f"{_counted(outcome.violators or 0, 'violator')}"
    )


def _counted(number: int, noun: str) -> str:
    """Return a number with its noun, as "1 row" and "1,000 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _count(number: int) -> str:
    """Return a number with at most six characters."""
    if number < 100_000:
        return f"{number:,}"
    power = 0
    while number >= 10_000:
        number, power = round(number / 1000), power + 1
    return f"{number:,}{'_kMGT'[power]}"


def _stopped(reason: str, work: str, seconds: float) -> str:
    """Return the line about the end of a training; the error message names an interruption."""
    named = "" if reason.startswith("interrupted") else f": {reason}"
    return f"stopped{named} after {work}, {seconds:.2f} s"


def _values(values: Mapping[str, float], widths: Mapping[str, int] | None = None) -> str:
    """Return names and values of the parameters of a grid. widths: columns of the values."""
    own = widths or dict.fromkeys(values, 0)
    return "".join(
        f"{name.rstrip('_')} {f'{value:g}':{own[name] or 1}}  " for name, value in values.items()
    )


def _named_score(one: Tried, digits: int = 6) -> str:
    """Return the name and the score of a combination, with its unit."""
    return f"{one.score_name} {one.score:.{digits}g}" + "%" * (one.score_name in PERCENT_SCORES)


def _unfinished(one: Tried) -> str:
    """Return why a combination does not have the scores of all folds; "" if it has them."""
    if one.interrupted_after is not None:
        return f"interrupted after {_counted(one.interrupted_after, 'fold')}"
    if one.dropped_after is None:
        return ""
    return f"dropped after {_counted(one.dropped_after, 'fold')}"


def _searches_cost(configuration: Sequence[str]) -> bool:
    """Return whether a command line has several values of C or lambda."""
    values = [value for flag, value in pairwise(configuration) if flag in ("-c", "--lambda")]
    return any(value == AUTO or "," in value for value in values)


def _cross_validated(found: Tried) -> list[str]:
    """Return svm-train's lines of a cross-validation."""
    name = found.score_name[:1].upper() + found.score_name[1:]
    if found.score_name in PERCENT_SCORES:
        return [f"Cross Validation {name} = {found.score:g}%"]
    lines = [f"Cross Validation {name} = {found.score:g}"]
    if "squared_correlation" in found.details:
        correlation = found.details["squared_correlation"]
        lines.append(f"Cross Validation Squared correlation coefficient = {correlation:g}")
    return lines


def _metrics(found: Any) -> list[str]:
    """Return the lines of --metrics. found: ClassificationMetrics, RegressionMetrics or None."""
    if found is None:
        return []
    if not hasattr(found, "confusion"):
        return [
            f"Mean absolute error = {found.mean_absolute_error:g}",
            f"Coefficient of determination = {found.determination:g}",
        ]
    columns = [found.labels, *zip(*found.confusion, strict=True)]
    header = ["true \\ predicted", *found.labels[: len(columns) - 1]]
    has_areas = found.mean.average_precision is not None
    scores = []
    for one in [*found.classes, found.mean]:
        shown = one.precision, one.recall, one.f1, *([one.average_precision] if has_areas else [])
        scores.append([one.label, *(f"{x:.4f}" for x in shown), str(one.rows)])
    names = ["precision", "recall", "F1", *(["PR AUC"] if has_areas else [])]
    return [
        *_table([header, *map(list, zip(*columns, strict=True))]),
        *_table([["label", *names, "rows"], *scores]),
        *([] if found.auc is None else [f"ROC AUC = {found.auc:.6f}"]),
        *_probability_metrics(found.probabilities),
    ]


def _probability_metrics(found: Any) -> list[str]:
    """Return the lines of --metrics with -b 1. found: ProbabilityMetrics or None."""
    if found is None:
        return []
    return [
        f"Log loss = {found.log_loss:.6f}",
        f"Brier score = {found.brier:.6f}",
    ]


def _table(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return lines with aligned columns, the first to the left, the others to the right."""
    words = [[str(word) for word in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in words
    ]


def _size(count: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _progressive(loss: float, errors: float | None) -> str:
    """Return the progressive loss and error."""
    return f"progressive loss {loss:.6f}" + ("" if errors is None else f"  error {errors:.3%}")


def _noise(outcome: Predicted) -> list[str]:
    """Return svm-predict's lines on a regression with -b 1."""
    if outcome.noise_scale is None:
        return []
    return [
        "Prob. model for test data: target value = predicted value + z,",
        f"z: Laplace distribution e^(-|z|/sigma)/(2sigma),sigma={outcome.noise_scale:g}",
    ]


def _score(outcome: Predicted) -> list[str]:
    """Return svm-predict's lines, which scripts read, and those of --metrics."""
    if outcome.labelled == 0:
        return []
    coverage = outcome.coverage
    if outcome.accuracy is not None and outcome.correct is not None:
        # `correct` and `labelled` count rows, the accuracy their weights.
        share = 100 * outcome.correct / outcome.labelled
        counts = f" ({outcome.correct}/{outcome.labelled})"
        score = f"{outcome.accuracy:g}%" + counts * math.isclose(outcome.accuracy, share)
        return [
            f"Accuracy = {score} (classification)",
            *([] if coverage is None else [_covered(coverage, "labels in a set")]),
            *_metrics(outcome.metrics),
        ]
    return [
        f"Mean squared error = {outcome.squared_error:g} (regression)",
        f"Squared correlation coefficient = {outcome.squared_correlation:g} (regression)",
        *([] if coverage is None else [_covered(coverage, "the width of the intervals")]),
        *_metrics(outcome.metrics),
    ]


def _covered(coverage: Any, unit: str) -> str:
    """Return the line of --coverage. coverage: Coverage; unit: what its size counts or measures."""
    return f"Coverage = {coverage.found:.4%} ({coverage.asked:g} asked), {coverage.size:g} {unit}"


def _objectives(primal: float | None, dual: float | None, gap: float) -> str:
    """Show the objectives, and the gap in percent and as --gap has it."""
    if math.isnan(gap):
        return f"P {primal:.6g}  gap not certified"
    if math.isinf(gap):
        return f"P {primal:.6g}  D {dual:.6g}  gap not certified: rounding is larger"
    if dual is None or math.isinf(dual):
        return f"P {primal:.6g}  D unknown"
    # Rounding may leave D above P by its last bit: no "-0.000%".
    gap = max(gap, 0.0)
    return f"P {primal:.6g}  D {dual:.6g}  gap {gap:.3%} ({gap:.2g})"
