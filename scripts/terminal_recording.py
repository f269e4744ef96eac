"""Run commands and write what they print as an SVG that plays it in its own time.

Long waits are shortened. Programs that do not play an SVG show the last picture. A `text` of the
SVG is a line of output, and a `tspan` is a part of it, since lines are wrapped at blanks. Each
argument is a command line:

    python scripts/terminal_recording.py recording.svg 'randsvm-train TRAIN_FILE MODEL_FILE'
"""

from __future__ import annotations

import html
import itertools
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import click

from randsvm import files

COLUMNS = 100
CHARACTER, LINE, PAD = 7.8, 18, 14  # width and height of a character, and the border, pixels
# Seconds between a prompt and the start of its command, and between its last line and the next
# prompt. MOST: of a wait between two lines.
TYPING, MOST = 1.0, 0.5
STYLE = """
rect{fill:#16181a}text{font:13px ui-monospace,Consolas,Menlo,monospace;fill:#e6e6e6;white-space:pre}
.typed{fill:#8fd0ff}text{animation:appear .01s step-end backwards}
@keyframes appear{from{opacity:0}}
@media(prefers-reduced-motion:reduce){text{animation:none}}
"""


def recorded(command: str) -> Iterator[tuple[float, str]]:
    """Run a command; yield the seconds from its start to each line, and the line."""
    start = time.monotonic()
    # The commands that belong to this Python come first.
    run = f'PATH="{Path(sys.executable).parent}:$PATH"; {command}'
    process = subprocess.Popen(
        run, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    for line in process.stdout:
        yield time.monotonic() - start, line.rstrip("\n")
    if process.wait():
        raise click.ClickException(f"{command}: exit code {process.returncode}")


def wrapped(line: str) -> list[str]:
    """Return the parts of a line, which end behind blanks if there are several."""
    wrapper = textwrap.TextWrapper(COLUMNS, drop_whitespace=False, break_on_hyphens=False)
    return wrapper.wrap(line) or [""]


def drawing(commands: tuple[str, ...]) -> str:
    """Run commands in turn, and return the SVG of what they print."""
    now, lines = 0.0, []
    for command in commands:
        lines.append((now, wrapped(f"$ {command}"), "typed"))
        now, before = now + TYPING, 0.0
        for seconds, line in recorded(command):
            now, before = now + min(seconds - before, MOST), seconds
            lines.append((now, wrapped(line), "printed"))
        now += TYPING
    rows = itertools.count()
    texts = [
        f'<text class="{kind}" style="animation-delay:{at:.2f}s">'
        + "".join(
            f'<tspan x="{PAD}" y="{PAD + LINE * (next(rows) + 0.75):g}">{html.escape(part)}</tspan>'
            for part in parts
        )
        + "</text>"
        for at, parts, kind in lines
    ]
    width, height = round(COLUMNS * CHARACTER) + 2 * PAD, next(rows) * LINE + 2 * PAD
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}">',
            f"<style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="6"/>',
            *texts,
            "</svg>\n",
        ]
    )


@click.command()
@click.argument("output")
@click.argument("commands", nargs=-1, required=True)
def main(output: str, commands: tuple[str, ...]) -> None:
    """Write OUTPUT, an SVG of what COMMANDS print."""
    text = drawing(commands)
    with files.create_output(output) as stream:
        stream.write(text.encode())
    click.echo(output)


if __name__ == "__main__":
    main()
