"""The man pages have what --help shows: arguments, options, values, bounds, defaults."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from randsvm.cli.predict import predict
from randsvm.cli.train import train

MAN_PAGES = Path(__file__).parents[2] / "man"
ESCAPES = {
    r"\(aq": "'",
    r"\(ga": "`",
    r"\(ha": "^",
    r"\(ti": "~",
    r"\-": "-",
    r"\&": "",
    r"\e": "\\",
}
COMMANDS: dict[str, tuple[Any, list[str]]] = {
    "randsvm-train": (train, []),
    **{f"randsvm-train-{name}": (train, [name]) for name in train.commands},
    "randsvm-predict": (predict, []),
}


def source_of(title: str) -> str:
    """Return the requests and the text of a man page, without the comment on its first line."""
    return (MAN_PAGES / f"{title}.1").read_text().partition("\n")[2]


def plain(text: str) -> str:
    """Return the characters that roff shows for a text."""
    text = re.sub(r"\\f[BIR]", "", text)
    return re.sub(r"\\(\(..|.)", lambda found: ESCAPES[found[0]], text)


def words(text: str) -> str:
    return " ".join(text.split())


def entries_of_page(title: str) -> dict[str, str]:
    """Return the text of each term of a list in the man page."""
    parts = source_of(title).split("\n.")
    tagged = [plain(part).split("\n", 2) for part in parts if part.startswith("TP\n")]
    return {words(term): words(text) for _, term, text in tagged}


def help_of(title: str) -> str:
    """Return the help without line breaks in an entry."""
    command, more = COMMANDS[title]
    settings: dict[str, Any] = {"terminal_width": 1000, "max_content_width": 1000}
    return CliRunner().invoke(command, [*more, "--help"], **settings).output


def entries_of_help(text: str) -> dict[str, str]:
    """Return the text of each term of a list in the help: the text stands in a column."""
    lists, found, term = re.split(r"\n(?=\S)", text), {}, ""
    for section in lists:
        heading, *lines = section.split("\n")
        if not heading.endswith(":") or heading == "Examples:" or "Completion" in heading:
            continue
        for line in lines:
            new = re.match(r"  (\S.*?)(?:  +(\S.*))?$", line)
            if new:
                term = words(new[1])
                found[term] = new[2] or ""
            elif line.strip():
                found[term] = f"{found[term]} {line.strip()}"
    return {term: words(text) for term, text in found.items()}


@pytest.mark.parametrize("title", COMMANDS)
def test_lists_agree_with_the_help(title: str) -> None:
    shown = entries_of_help(help_of(title))
    assert len(shown) > 10
    assert entries_of_page(title) == shown


@pytest.mark.parametrize("title", COMMANDS)
def test_every_option_and_argument_of_the_command_is_in_the_page(title: str) -> None:
    group, more = COMMANDS[title]
    command = group.commands[more[0]] if more else group
    entries = " ".join(entries_of_page(title))
    page = plain(source_of(title))
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert parameter.make_metavar(click.Context(command)) in page
        elif not getattr(parameter, "hidden", False) and title != "randsvm-train":
            assert all(re.search(rf"(?<![\w-]){flag}(?![\w-])", entries) for flag in parameter.opts)


@pytest.mark.parametrize("title", COMMANDS)
def test_the_paragraphs_and_examples_of_the_help_are_in_the_page(title: str) -> None:
    page = words(plain(source_of(title)))
    command, more = COMMANDS[title]
    own = command.commands[more[0]] if more else command
    for paragraph in own.help.split("\n\n"):
        assert words(paragraph) in page
    for example, meaning in own.examples.items():
        assert f"{example} {meaning}" in page


@pytest.mark.parametrize("title", COMMANDS)
def test_groff_has_no_warning(title: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    path = MAN_PAGES / f"{title}.1"
    ended = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-P-cbou", path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
    assert "SEE ALSO" in ended.stdout


def test_there_is_a_page_of_each_command_and_no_other() -> None:
    assert {path.stem for path in MAN_PAGES.iterdir()} == set(COMMANDS)
