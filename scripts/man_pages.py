"""Write a man page for each program and each of its commands, with the help as it is printed.

python scripts/man_pages.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from command_line_page import PROGRAMS, help_of, helps
from randsvm import __version__

FOLDER = Path("build/man/man1")


def page(name: str, about: str, text: str) -> str:
    """Return a page of the manual: text is shown as it is."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    # A dot or an apostrophe at the begin of a line would be a request of roff.
    shown = "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)
    return (
        f'.TH "{name.upper()}" 1 "" "randsvm {__version__}"\n'
        f".SH NAME\n{name} \\- {about}\n.SH DESCRIPTION\n.nf\n{shown}\n.fi\n"
    )


def pages() -> dict[str, str]:
    """Return the pages by the names of their files."""
    found = {}
    for program, (group, _) in PROGRAMS.items():
        about = (group.help or "").partition(".")[0]
        found[program] = page(program, about, help_of(group, program, "--help"))
    for words, about, text in helps():
        name = words.replace(" ", "-")
        found[name] = page(name, about, text)
    return {f"{name}.1": text for name, text in found.items()}


def main() -> None:
    """Write the pages."""
    folder = Path(*sys.argv[1:2]) if sys.argv[1:] else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)
    click.echo(folder)


if __name__ == "__main__":
    main()
