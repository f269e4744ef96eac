"""Fill docs/command-line.md with the help of every command, as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
from click.testing import CliRunner

from randsvm import files
from randsvm.cli.plot import main as plot
from randsvm.cli.predict import predict
from randsvm.cli.train import train

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
MARK = "<!-- made by scripts/command_line_page.py -->\n"
PROGRAMS = {"randsvm-train": (train, True), "randsvm-predict": (predict, True)}


def filled(page: str) -> str:
    """Return the page with the help of today's commands after the mark."""
    parts = []
    for program, (group, flag) in {**PROGRAMS, "randsvm-plot": (plot, False)}.items():
        for name, command in group.commands.items():
            words = [name, "--help-all" if flag else "--help"]
            text = CliRunner().invoke(group, words, prog_name=program, terminal_width=80).output
            text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
            parts.append(section(f"{program} {command.name}", text))
    words = [sys.executable, "-m", "randsvm.check", "--help"]
    width = {**os.environ, "COLUMNS": "82"}  # argparse leaves two columns free
    checker = subprocess.run(words, env=width, check=True, capture_output=True, text=True)
    parts.append(section("randsvm-check", checker.stdout))
    return page.partition(MARK)[0] + MARK + "\n" + "\n".join(parts)


def section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text.strip()}\n```\n"


def main() -> None:
    """Write the page."""
    text = filled(PAGE.read_text())
    with files.create_output(str(PAGE)) as stream:
        stream.write(text.encode())
    click.echo(PAGE)


if __name__ == "__main__":
    main()
