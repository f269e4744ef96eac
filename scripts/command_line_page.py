"""Fill docs/command-line.md with the help of every command, as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from randsvm import files
from randsvm.cli.plot import main as plot
from randsvm.cli.predict import predict
from randsvm.cli.train import train

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
MARK = "<!-- made by scripts/command_line_page.py -->\n"
# The group of commands of each program, and its option for all of the help.
PROGRAMS = {
    "randsvm-train": (train, "--help-all"),
    "randsvm-predict": (predict, "--help-all"),
    "randsvm-plot": (plot, "--help"),
}


def help_of(group: click.Group, program: str, *words: str) -> str:
    """Return the help that these words print."""
    text = CliRunner().invoke(group, words, prog_name=program, terminal_width=80).output
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip()


def helps() -> Iterator[tuple[str, str, str]]:
    """Yield the words of each command, what it does in a few words, and its help."""
    for program, (group, flag) in PROGRAMS.items():
        for name, command in group.commands.items():
            about = command.get_short_help_str(100).rstrip(".")
            yield f"{program} {command.name}", about, help_of(group, program, name, flag)
    words = [sys.executable, "-m", "randsvm.check", "--help"]
    width = {**os.environ, "COLUMNS": "82"}  # argparse leaves two columns free
    checker = subprocess.run(words, env=width, check=True, capture_output=True, text=True)
    yield "randsvm-check", "Verify the certificate of a model", checker.stdout.strip()


def filled(page: str) -> str:
    """Return the page with the help of today's commands after the mark."""
    parts = [f"## {words}\n\n```text\n{text}\n```\n" for words, _, text in helps()]
    return page.partition(MARK)[0] + MARK + "\n" + "\n".join(parts)


def main() -> None:
    """Write the page."""
    text = filled(PAGE.read_text())
    with files.create_output(str(PAGE)) as stream:
        stream.write(text.encode())
    click.echo(PAGE)


if __name__ == "__main__":
    main()
