"""Write docs/command-line.md from the help texts of the commands.

    python scripts/command_reference.py

The help texts are the source: a test fails while the page differs from them.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from randsvm.cli.commands import HELP_ALL
from randsvm.cli.predict import predict
from randsvm.cli.train import train

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "command-line.md"
TOP = """\
# Command line

This page has every option of `randsvm-train` and `randsvm-predict`. `python
scripts/command_reference.py` writes it from the texts that `--help-all` shows.
[Choosing](choosing.md) explains which algorithm, task and options fit which work.

A value may be given as `--gap 0.01`, `--gap=0.01`, `-c 8` or `-c8`. Words and LIBSVM's numbers are
both accepted: `-t rbf` is `-t 2`.

Shells complete commands, options, words and files. In `~/.bashrc`, or in `~/.zshrc` after
`compinit`, with `zsh_source`:

```text
eval "$(_RANDSVM_TRAIN_COMPLETE=bash_source randsvm-train)"
eval "$(_RANDSVM_PREDICT_COMPLETE=bash_source randsvm-predict)"
```

In `~/.config/fish/config.fish`:

```text
_RANDSVM_TRAIN_COMPLETE=fish_source randsvm-train | source
_RANDSVM_PREDICT_COMPLETE=fish_source randsvm-predict | source
```
"""


class PartsFormatter(click.HelpFormatter):
    """Collect the help of a command part by part; a subclass gives each kind of part its form."""

    def __init__(self) -> None:
        super().__init__(width=10_000, max_width=10_000)
        self.parts: list[str] = []
        self.raw = ""

    def usage(self, prog: str, args: str) -> str:
        raise NotImplementedError

    def paragraph(self, text: str) -> str:
        raise NotImplementedError

    def definitions(self, rows: Sequence[tuple[str, str]]) -> str:
        raise NotImplementedError

    def heading(self, name: str) -> str:
        raise NotImplementedError

    def verbatim(self, text: str) -> str:
        raise NotImplementedError

    def write(self, string: str) -> None:
        self.raw += string

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self._add(self.usage(prog, args))

    def write_text(self, text: str) -> None:
        for part in text.split("\n\n"):
            self._add(self.paragraph(" ".join(part.split())))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        self._add(self.definitions([(term, " ".join(text.split())) for term, text in rows]))

    def write_paragraph(self) -> None:
        pass

    def write_heading(self, heading: str) -> None:
        self._add(self.heading(heading))

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
            self.parts.append(self.verbatim(textwrap.dedent(text).strip()))

    def collected(self) -> list[str]:
        self._end_raw()
        return self.parts


class MarkdownFormatter(PartsFormatter):
    """Collect the help of a command as Markdown."""

    def usage(self, prog: str, args: str) -> str:
        return self.verbatim(f"{prog} {args}")

    def paragraph(self, text: str) -> str:
        return text

    def definitions(self, rows: Sequence[tuple[str, str]]) -> str:
        return "\n".join(f"- `{term}`: {text}" for term, text in rows)

    def heading(self, name: str) -> str:
        return f"### {name}"

    def verbatim(self, text: str) -> str:
        return f"```text\n{text}\n```"


def section(command: click.Command, name: str, parent: click.Context | None = None) -> str:
    """Return the help of a command as a section of the page."""
    context = click.Context(command, info_name=name, parent=parent)
    context.meta[HELP_ALL] = True
    formatter = MarkdownFormatter()
    command.format_help(context, formatter)
    body = "\n\n".join(formatter.collected())
    return f"## {context.command_path}\n\n{body}\n"


def page() -> str:
    """Return the whole page."""
    parts = [TOP]
    for program, group in (("randsvm-train", train), ("randsvm-predict", predict)):
        parent = click.Context(group, info_name=program)
        parts.append(section(group, program))
        parts += [section(command, name, parent) for name, command in group.commands.items()]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
