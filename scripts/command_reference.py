"""Write docs/command-line.md and the man pages in man/ from the help texts of the commands.

    python scripts/command_reference.py

The help texts are the source: a test fails while a page differs from them. The wheel installs the
man pages, so they are in the repository.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from randsvm import __version__
from randsvm.cli.predict import predict
from randsvm.cli.train import train

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "command-line.md"
MAN_PAGES = ROOT / "man"
TOP = """\
# Command line

This page has every option of both commands. `python scripts/command_reference.py` writes it, and
the man pages `randsvm-train(1)` and `randsvm-predict(1)`, from the texts that `--help` shows.
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
            self.parts.append(self.verbatim(inspect.cleandoc(text)))

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


# The sections that every manual has, by the title in the help. Other ones hold options.
MAN_SECTIONS = {
    "Algorithms": "ALGORITHMS",
    "Examples": "EXAMPLES",
    "Exit codes": "EXIT STATUS",
    "Environment": "ENVIRONMENT",
}
# Characters that roff would change, or that it takes for a request at the beginning of a line.
ROFF = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
)


def roff(text: str) -> str:
    """Return text as roff that shows the same characters."""
    lines = text.translate(ROFF).split("\n")
    return "\n".join(rf"\&{line}" if line.startswith(".") else line for line in lines)


class ManFormatter(PartsFormatter):
    """Collect the help of a command as requests of the roff macros for man pages."""

    def __init__(self) -> None:
        super().__init__()
        self.has_options = False

    def usage(self, prog: str, args: str) -> str:
        return f".SH SYNOPSIS\n.B {roff(prog)}\n{roff(args)}\n.SH DESCRIPTION"

    def paragraph(self, text: str) -> str:
        return f".PP\n{roff(text)}"

    def definitions(self, rows: Sequence[tuple[str, str]]) -> str:
        return "\n".join(f".TP\n{self.term(term)}\n{roff(text)}" for term, text in rows)

    def term(self, term: str) -> str:
        """Return the names of an option in bold and its value in italics."""
        found = re.fullmatch(r"(-\S+(?:, -\S+)*|[^-].*) ?(.*)", term)
        assert found
        flags, value = found.groups()
        return rf"\fB{roff(flags)}\fR" + (rf" \fI{roff(value)}\fR" if value else "")

    def heading(self, name: str) -> str:
        if name in MAN_SECTIONS:
            return f".SH {MAN_SECTIONS[name]}"
        if name.startswith("Completion"):
            return f".SH COMPLETION\n{roff(name.removeprefix('Completion ').capitalize())}:"
        first, self.has_options = not self.has_options, True
        return (".SH OPTIONS\n" if first else "") + f".SS {roff(name)}"

    def verbatim(self, text: str) -> str:
        return f".PP\n.nf\n{roff(text)}\n.fi"


def section(command: click.Command, name: str, parent: click.Context | None = None) -> str:
    """Return the help of a command as a section of the page."""
    context = click.Context(command, info_name=name, parent=parent)
    formatter = MarkdownFormatter()
    command.format_help(context, formatter)
    body = "\n\n".join(formatter.collected())
    return f"## {context.command_path}\n\n{body}\n"


def page() -> str:
    """Return the whole page."""
    parent = click.Context(train, info_name="randsvm-train")
    parts = [TOP, section(train, "randsvm-train")]
    parts += [section(command, name, parent) for name, command in train.commands.items()]
    return "\n".join([*parts, section(predict, "randsvm-predict")])


def man_page(command: click.Command, name: str, parent: click.Context | None = None) -> str:
    """Return the help of a command as a man page."""
    context = click.Context(command, info_name=name, parent=parent)
    formatter = ManFormatter()
    command.format_help(context, formatter)
    title = context.command_path.replace(" ", "-")
    summary = (command.help or "").partition("\n\n")[0]
    others = ", ".join(f".BR {roff(each)} (1)" for each in sorted(man_commands()) if each != title)
    parts = [
        rf".\" scripts/command_reference.py writes this from {context.command_path} --help.",
        f'.TH {roff(title.upper())} 1 "" "randsvm {__version__}" "User Commands"',
        f".SH NAME\n{roff(title)} \\- {roff(' '.join(summary.split()).rstrip('.'))}",
        *formatter.collected(),
        ".SH SEE ALSO\n" + others.replace(", ", " ,\n"),
    ]
    # A heading begins a paragraph by itself.
    return re.sub(r"^(\.S[HS] .*)\n\.PP$", r"\1", "\n".join(parts), flags=re.MULTILINE) + "\n"


def man_commands() -> dict[str, tuple[click.Command, str, click.Context | None]]:
    """Return the command, its name and its parent for the title of each man page."""
    parent = click.Context(train, info_name="randsvm-train")
    return {
        "randsvm-train": (train, "randsvm-train", None),
        **{
            f"randsvm-train-{name}": (command, name, parent)
            for name, command in train.commands.items()
        },
        "randsvm-predict": (predict, "randsvm-predict", None),
    }


def pages() -> dict[Path, str]:
    """Return the text of every page that this program writes."""
    manual = {
        MAN_PAGES / f"{title}.1": man_page(*command) for title, command in man_commands().items()
    }
    return {PAGE: page(), **manual}


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
