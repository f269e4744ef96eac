"""Write docs/command-line.md from the help texts of the commands.

    python scripts/command_reference.py

The help texts are the source: a test fails while the page differs from them.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from randsvm.cli.predict import predict
from randsvm.cli.train import train

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
TOP = """\
# Command line

This page has every option of both commands. `python scripts/command_reference.py` writes it from
the texts that `--help` shows. [Choosing](choosing.md) explains which algorithm, task and options
fit which work.

A value may be given as `--gap 0.01`, `--gap=0.01`, `-c 8` or `-c8`. Words and LIBSVM's numbers are
both accepted: `-t rbf` is `-t 2`.
"""


class MarkdownFormatter(click.HelpFormatter):
    """Collect the help of a command as Markdown; text without a form becomes a block of code."""

    def __init__(self) -> None:
        super().__init__(width=10_000, max_width=10_000)
        self.parts: list[str] = []
        self.raw = ""

    def write(self, string: str) -> None:
        self.raw += string

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self._add(f"```text\n{prog} {args}\n```")

    def write_text(self, text: str) -> None:
        self._add("\n\n".join(" ".join(part.split()) for part in text.split("\n\n")))

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        self._add("\n".join(f"- `{term}`: {' '.join(text.split())}" for term, text in rows))

    def write_paragraph(self) -> None:
        pass

    def write_heading(self, heading: str) -> None:
        self._add(f"### {heading}")

    @contextlib.contextmanager
    def indentation(self) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        self._end_raw()
        self.write_heading(name)
        yield
        self._end_raw()

    def _add(self, part: str) -> None:
        self._end_raw()
        self.parts.append(part)

    def _end_raw(self) -> None:
        text, self.raw = self.raw, ""
        if text.strip():
            self.parts.append(f"```text\n{inspect.cleandoc(text)}\n```")

    def getvalue(self) -> str:
        self._end_raw()
        return "\n\n".join(self.parts)


def section(command: click.Command, name: str, parent: click.Context | None = None) -> str:
    """Return the help of a command as a section of the page."""
    context = click.Context(command, info_name=name, parent=parent)
    formatter = MarkdownFormatter()
    command.format_help(context, formatter)
    return f"## {context.command_path}\n\n{formatter.getvalue()}\n"


def page() -> str:
    """Return the whole page."""
    parent = click.Context(train, info_name="randsvm-train")
    parts = [TOP, section(train, "randsvm-train")]
    parts += [section(command, name, parent) for name, command in train.commands.items()]
    return "\n".join([*parts, section(predict, "randsvm-predict")])


if __name__ == "__main__":
    PAGE.write_text(page())
