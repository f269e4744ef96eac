"""Progress bars, per-iteration lines and the final summary, all on stderr.

On a terminal each stage of work is a bar; elsewhere there is one line per iteration.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from randsvm.events import Notice, Progress

if TYPE_CHECKING:
    from randsvm.api import Iteration, Predicted, Started, Trained
    from randsvm.scan import Certificate

# Stage of work -> what its bar counts in.
UNITS = {"B": {"unit": "B", "unit_scale": True}, "row": {"unit": " rows", "unit_scale": True}}


class Report:
    """The listener of a command. files: what completes the line that repeats the run."""

    def __init__(self, command: str, files: list[str], *, quiet: bool) -> None:
        self.command = command
        self.files = files
        self.quiet = quiet
        self.bars = sys.stderr.isatty() and not quiet
        self.bar: Any = None
        self.stage = ""

    def __call__(self, event: object) -> None:
        if isinstance(event, Progress):
            if self.bars:
                self._draw(event)
            return
        # By name: importing the classes would load numpy before --help is out.
        show = getattr(self, f"_{type(event).__name__.lower()}", None)
        if show is not None and not self.quiet:
            self.close()
            show(event)

    def say(self, line: str) -> None:
        if not self.quiet:
            click.echo(line, err=True)

    def close(self) -> None:
        """Take the bar away, so that a line can be printed."""
        if self.bar is not None:
            self.bar.close()
            self.bar, self.stage = None, ""

    def _draw(self, event: Progress) -> None:
        from tqdm import tqdm

        if event.stage != self.stage:
            self.close()
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

    def _notice(self, event: Notice) -> None:
        self.say(f"note: {event.text}")

    def _started(self, event: Started) -> None:
        words = [self.command, event.algorithm, *event.configuration, *self.files]
        self.say(shlex.join(words))
        self.say(
            f"read {event.n:,} rows, {event.d:,} features, {event.nnz:,} nonzeros "
            f"in {event.seconds:.2f} s"
        )

    def _iteration(self, event: Iteration) -> None:
        self.say(
            f"{event.number:4d}  {event.seconds:8.2f} s  |SV| {event.support_vectors:,} "
            f"({event.bounded:,} bounded)  |V| {event.violators:,}  "
            f"{_objectives(event.certificate)}"
        )

    def trained(self, outcome: Trained, model: str) -> None:
        self.close()
        self.say(
            f"stopped: {outcome.stopped} after {outcome.iterations} iterations, "
            f"{outcome.seconds:.2f} s"
        )
        self.say(
            f"{model}: {outcome.support_vectors:,} support vectors ({outcome.bounded:,} bounded), "
            f"{outcome.violators:,} violators, {_objectives(outcome.certificate)}"
        )

    def predicted(self, outcome: Predicted, *, to_stdout: bool) -> None:
        """LIBSVM's accuracy line is a result: on stdout, unless the labels themselves are there."""
        self.close()
        if outcome.labelled == 0:
            self.say("no labelled rows: no accuracy")
            return
        percent = 100 * outcome.correct / outcome.labelled
        line = f"Accuracy = {percent:g}% ({outcome.correct}/{outcome.labelled}) (classification)"
        click.echo(line, err=to_stdout)


def _objectives(certificate: Certificate) -> str:
    if not certificate.certified:
        return f"P {certificate.primal:.6g}  gap not certified"
    return f"P {certificate.primal:.6g}  D {certificate.dual:.6g}  gap {certificate.gap:.2%}"
