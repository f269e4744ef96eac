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
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any

import click

from randsvm.cli import bars
from randsvm.cli.log import COMMAND_ENDS, PREDICTION_ENDS, Failed, Log, Records, as_line
from randsvm.cli.process import ending_of
from randsvm.errors import (
    ClusterError,
    Interrupted,
    OutOfMemoryError,
    OutputError,
    ParameterError,
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
    Reduced,
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
        self.given = given
        self.quiet, self.in_json = given["quiet"], given["report"] == "json"
        # Outputs that check_outputs has found to be usable.
        self.log: Log | None = None
        # Records for the page of --html; None: there is no page.
        self.page: list[dict[str, Any]] | None = None if given.get("html") is None else []
        self.bar = bars.Bar() if bars.can_draw() and not self.quiet else None
        # The last event of each kind.
        self.last: dict[type, Any] = {}
        self.stage = ""  # words for OutOfMemoryError
        # The event of the end, whose record is written when the exit code is known.
        self.outcome: object = None
        # The first problem of an output other than the model, and the names of those that failed.
        self.unwritten = ""
        self.failed: set[str] = set()

    def check_outputs(self, files: Mapping[str, str | Sequence[str] | None]) -> None:
        """Raise an error if the log cannot be written or is another file of the run.

        files: role -> path or paths of the other files.
        """
        log = self.given.get("log")
        if self.to_stdout and log in STANDARD_OUTPUTS:
            raise ParameterError("standard output is both MODEL_FILE and --log")
        check_distinct({"--log": log, "--html": self.given.get("html")}, files)
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
        if isinstance(error, Interrupted | ClusterError) and Tried in self.last:
            error.args = (f"{error}{self._place_of_scores()}",)
        if isinstance(error, MemoryError):
            options = "--memory or --jobs" if "memory" in self.given else "--jobs"
            error = OutOfMemoryError(f"out of memory{self.stage}: lower {options}")
        try:
            self._end(error)
        finally:
            if self.log is not None:
                self.log.close()
        error = self._final(error)
        if error is not None and type(error) is not kind:
            raise error

    def _place_of_scores(self) -> str:
        """Return where to find the scores of a search that ends without a model."""
        if self.outcome is not None:
            return ""
        if self.log is None:
            return "; without --log its scores are lost"
        return f"; its scores are in {display_output(self.log.path)}: the same command continues"

    def _final(self, error: BaseException | None) -> BaseException | None:
        """Return the error that ends the command: this one, or that of an output that failed."""
        if error is None and self.unwritten:
            return TransferError(f"{self.unwritten}: all else is done")
        return error

    def _end(self, error: BaseException | None) -> None:
        """Write the report, the page and the last line of the log.

        If writing one of them fails, the next ones have the exit code of that error.
        """
        event: Any = self.outcome
        if event is None:
            event = Failed(ending_of(error)[1], time.monotonic() - self.start)
        record = self.records.last(event)

        def finished() -> dict[str, Any]:
            return record | {"exit_code": ending_of(self._final(error))[0]}

        is_usage = isinstance(error, ParameterError)
        if self.in_json:
            self._print(as_line(finished()).rstrip("\n"), event)
        if self.page is not None and not is_usage:
            from randsvm.page import training_page, write_page

            path, records = self.given["html"], [*self.page, finished()]
            self._attempt(path, lambda: write_page(path, training_page(records)))
        # A mistaken command line leaves an old log unchanged.
        if self.log is not None and (self.log.is_begun or not is_usage):
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
        elif self.log is not None or self.page is not None or self.in_json:
            # Also without a log: `record` keeps fields of `started`, which the last record repeats.
            record = self.records.record(event)
            self._write_log(record)
            if self.page is not None:
                self.page.append(record)
        if self.bar is not None:
            self.bar.update(event)
        # A bar shows the loss of epochs.
        shown = (
            [] if self.bar is not None and isinstance(event, Epoch) else LINES[type(event)](event)
        )
        for line in [*self._lines_before(event), *shown]:
            self.say(line)
        self._show_problems(event)
        for line in [] if self.in_json else RESULTS.get(type(event), _no_lines)(event):
            self._print(line, event)
        self.last[type(event)] = event

    def _lines_before(self, event: Any) -> Iterable[str]:
        """Return the lines before those of an event, which depend on earlier events."""
        last = self.last.get(type(event))
        if isinstance(event, Started):
            # A name that begins with a dash would be read as an option.
            dashes = ["--"] if any(re.match("-.", name) for name in self.files) else []
            words = [*event.configuration, *self.arguments, *dashes, *self.files]
            yield shlex.join([self.command, event.algorithm, *words])
        elif isinstance(event, Iteration) and event.inner_set != (last.inner_set if last else 0):
            rows = f"{event.inner_set:,} of the rows" if event.inner_set else "all rows"
            yield f"rounds on {rows}:"
        elif isinstance(event, Tried) and last is None and event.number == 1 < event.of:
            yield "score of each combination (lowest to highest fold), rows scored:"

    def _show_problems(self, event: object) -> None:
        """Print what is said also with --quiet."""
        if isinstance(event, Unwritten):
            self.unwritten = self.unwritten or event.problem
            self._say(f"note: {event.problem}: the run goes on without it")
        if isinstance(event, Trained) and event.gap_asked and event.gap > event.gap_asked:
            required = self.given.get("require_gap")
            if not self.quiet or required is None:
                line = _missed_gap(event, event.gap_asked)
                # click removes the colour if standard error is no terminal.
                plain = os.environ.get("NO_COLOR")
                self._say(line if plain else click.style(line, "red", bold=True))

    def _write_log(self, record: Mapping[str, object]) -> None:
        log = self.log
        if log is not None:
            self._attempt(display_output(log.path), lambda: log.write(as_line(record)))

    def _print(self, line: str, event: object) -> None:
        """Print a result. A failing standard output ends a prediction, and not a training."""
        if self.bar is not None:
            self.bar.clear()
        if self.to_stdout:
            self._say(line)
        elif isinstance(event, PREDICTION_ENDS):
            _echo(line, self.in_json)
        else:
            self._attempt("<stdout>", lambda: _echo(line, self.in_json))

    def say(self, line: str) -> None:
        """Print a line on standard error unless --quiet is given."""
        if not self.quiet:
            self._say(line)

    def _say(self, line: str) -> None:
        """Print a line on standard error, also with --quiet."""
        if self.bar is not None:
            self.bar.clear()
        self._attempt("<stderr>", lambda: click.echo(line, err=True))


# ---- lines on standard error -------------------------------------------------------------------


def _no_lines(event: object) -> list[str]:
    return []


def _started(event: Started) -> Iterable[str]:
    if event.n is None:
        return
    size = ", ".join(
        _counted(count or 0, noun)
        for count, noun in ((event.n, "row"), (event.d, "feature"), (event.nnz, "nonzero"))
    )
    yield f"read {size} in {event.seconds:.2f} s"
    if not _searches_cost(event.configuration):
        yield f"C = {event.C:g}, lambda = 1/(C n) = {event.lambda_:g}{_weight(event)}"
    if event.place != "memory":
        yield f"each pass reads {_size(event.pass_bytes or 0)} from {event.place}"


def _tried(event: Tried) -> Iterable[str]:
    known = "  (from the log)" if event.resumed else ""
    span = f" ({min(event.scores):.4g} to {max(event.scores):.4g})" * (len(event.scores) > 1)
    yield (
        f"{event.number:4d} of {event.of}  {_values(event.values)}{_named_score(event, 5)}"
        f"{span}, {_unfinished(event) or _counted(event.rows, 'row')}{known}"
    )


def _searched(event: Searched) -> Iterable[str]:
    if event.of == 1:
        return
    best = event.tried[0]
    yield (
        f"tried {len(event.tried)} of {event.of} in {event.seconds:.2f} s, "
        "with standard errors over the folds; best first:"
    )
    widths = {
        name: max(len(f"{one.values[name]:g}") for one in event.tried) for name in best.values
    }
    for one in event.tried:
        remark = f"  {_unfinished(one)}" if one.dropped_after is not None else ""
        if not remark and one.rows < best.rows:
            remark = f"  on {one.rows:,} rows"
        if one.values == event.one_standard_error:
            remark += "  simplest within one standard error"
        spread = "" if math.isnan(one.standard_error) else f" +- {one.standard_error:.2g}"
        yield f"  {_values(one.values, widths)}{_named_score(one)}{spread}{remark}"
    if any(one.dropped_after is not None for one in event.tried):
        yield "dropped: significantly worse than another one on the same rows"
    yield f"training on all rows with {_values(best.values).strip()}"


def _updated(event: Updated) -> Iterable[str]:
    loss = _progressive(event.loss, event.errors)
    yield f"{event.seconds:7.2f} s  {event.rows:,} rows  of the last {event.last:,}: {loss}"


def _trained(outcome: Trained) -> Iterable[str]:
    if outcome.iterations is None:
        newton = outcome.newton_steps
        works = [] if newton is None else [_counted(newton, "Newton step")]
        if outcome.steps or newton is None:
            works.insert(0, _counted(outcome.steps or 0, "step"))
        work = " and ".join(works)
    else:
        in_all = "" if outcome.largest_gap is None else " in all"
        work = _counted(outcome.iterations, "iteration") + in_all
    # The error message names an interruption.
    reason = "" if outcome.stopped.startswith("interrupted") else f": {outcome.stopped}"
    yield f"stopped{reason} after {work}, {outcome.seconds:.2f} s"
    if outcome.iterations is None:
        yield f"{outcome.model}: {_learnt(outcome)}"
        return
    name = outcome.model if outcome.saved else f"{outcome.model} (not written)"
    found = f"{_counted(outcome.support_vectors or 0, 'support vector')} ({outcome.bounded:,} at C)"
    known = outcome.violators is not None
    yield f"{name}: {found}" + (f", {_counted(outcome.violators or 0, 'violator')}" * known)
    objectives = _objectives(outcome.primal, outcome.dual, outcome.gap)
    yield f"{objectives}  J = P/(C n) = {outcome.J:.6g}"
    if not outcome.evaluated:
        yield "not certified: the run ended before its closing evaluation"
    elif outcome.certificate == "sampled":
        yield "the gap holds with a probability of at least 1 - 1e-9 (sampled rounding)"
    if outcome.reduced is not None:
        yield from _reduced(outcome.reduced)
    if outcome.largest_gap is not None and not math.isnan(outcome.gap):
        yield f"largest gap of one problem: {outcome.largest_gap:.3%}"


def _reduced(found: Reduced) -> Iterable[str]:
    yield (
        f"reduced from {found.support_vectors_before:,} support vectors (gap "
        f"{found.full_gap:.3%}): P is of the reduced machine, D of the full one"
    )
    yield (
        f"f changes by {found.largest_change:.3g} at most, {found.mean_change:.3g} on "
        f"average; {found.labels_changed:,} training labels change"
    )


def _missed_gap(outcome: Trained, asked: float) -> str:
    reached = f"{100 * outcome.gap:.3g}% is certified"
    if math.isinf(outcome.gap):
        reached = "nothing is certified (rounding exceeds P and D)"
    return f"GAP NOT REACHED: {reached}, --gap {asked:g} asked for {100 * asked:.3g}%"


def _predicted(outcome: Predicted) -> Iterable[str]:
    yield f"predicted {_counted(outcome.rows, 'row')} in {outcome.seconds:.2f} s"
    if outcome.labelled == 0:
        yield "no labelled rows: no score"


def _certified(outcome: Certified) -> Iterable[str]:
    yield (
        f"{outcome.model}: {outcome.support_vectors:,} support vectors; P and D with "
        f"{outcome.problem} over {outcome.rows:,} rows in {outcome.seconds:.2f} s"
    )
    if outcome.unknown_support_vectors:
        unknown = f"{outcome.unknown_support_vectors:,} support vectors"
        yield f"{unknown} are not among the rows of the training file"
    if not outcome.feasible:
        yield (
            f"the coefficients are infeasible: up to {outcome.beyond_bounds:.3g} beyond their "
            f"bounds, sum off by {outcome.sum_error:.3g}; D is of feasible ones next to them"
        )
    if outcome.largest_gap is not None:
        worst = max(outcome.machines, key=lambda one: (math.isnan(one.gap), one.gap))
        yield f"largest gap of one problem: {worst.gap:.3%} ({worst.name})"


def _explained(outcome: Explained) -> Iterable[str]:
    yield f"explained {_counted(outcome.rows, 'row')} in {outcome.seconds:.2f} s"
    values = " ".join(f"{value:.6g}" for value in outcome.base_values)
    yield f"decision values without any feature: {values}"


def _echo(line: str, is_report: bool) -> None:
    """Print a line on standard output. A report needs one that the caller has not closed."""
    if sys.stdout is None and is_report:
        raise WriteError("writing <stdout>: it is closed")
    click.echo(line)


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
    chances = found.probabilities
    return [
        *_table([header, *map(list, zip(*columns, strict=True))]),
        *_table([["label", *names, "rows"], *scores]),
        *([] if found.auc is None else [f"ROC AUC = {found.auc:.6f}"]),
        *([] if chances is None else [f"Log loss = {chances.log_loss:.6f}"]),
        *([] if chances is None else [f"Brier score = {chances.brier:.6f}"]),
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


def _epoch(event: Epoch) -> Iterable[str]:
    if event.number in (1, 2, 5) or event.number % 10 == 0:
        held_out = "" if event.held_out is None else f"  held-out loss {event.held_out:.6f}"
        loss = _progressive(event.loss, event.errors)
        yield f"epoch {event.number:3d}  {event.seconds:7.2f} s  {loss}{held_out}"


def _progressive(loss: float, errors: float | None) -> str:
    """Return the progressive loss and error."""
    return f"progressive loss {loss:.6f}" + ("" if errors is None else f"  error {errors:.3%}")


def _score(outcome: Predicted) -> list[str]:
    """Return svm-predict's lines, which scripts read, and those of --metrics."""
    noise = []
    if outcome.noise_scale is not None:
        noise = [
            "Prob. model for test data: target value = predicted value + z,",
            f"z: Laplace distribution e^(-|z|/sigma)/(2sigma),sigma={outcome.noise_scale:g}",
        ]
    if outcome.labelled == 0:
        return noise
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
        *noise,
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


def _compared(outcome: Exported) -> list[str]:
    """Return the line of the comparison of an export with its model."""
    if outcome.checked_by is None:
        return []
    return [
        f"largest difference of decision values {outcome.largest_difference:.3g} over "
        f"{outcome.rows:,} rows, {outcome.labels_differ:,} labels differ ({outcome.checked_by})"
    ]


# Kind of events -> its lines on standard error.
LINES: dict[type, Callable[[Any], Iterable[str]]] = {
    Unwritten: _no_lines,
    Notice: lambda event: [f"note: {event.text}"],
    Started: _started,
    Iteration: lambda event: [_round(event)],
    Tried: _tried,
    Searched: _searched,
    Epoch: _epoch,
    Updated: _updated,
    Trained: _trained,
    Predicted: _predicted,
    Certified: _certified,
    Exported: lambda event: [f"{event.output}: {_size(event.bytes)} in {event.seconds:.2f} s"],
    Explained: _explained,
}
# Kind of events -> its results, the lines on standard output.
RESULTS: dict[type, Callable[[Any], Iterable[str]]] = {
    Searched: lambda event: _cross_validated(event.tried[0]),
    Predicted: _score,
    Certified: lambda event: [_objectives(event.primal, event.dual, event.gap)],
    Exported: _compared,
}
