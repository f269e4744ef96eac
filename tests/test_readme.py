"""The README tells the truth: its commands run as typed and print what it shows.

Blocks of `sh` are commands, one a line; a block without a language that follows shows what the last
of them prints, and `...` stands for lines left out. Blocks of `python` are programs. `text` and
`crontab` are only looked at.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import run_predict, run_train

from randsvm.cli import predict as predicting
from randsvm.cli import train as training

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
OURS = {"randsvm-train": run_train, "randsvm-predict": run_predict}
# What sets a machine up, takes minutes, or needs a network: it begins with one of these words.
NOT_HERE = {".", "apt-get", "dask", "install", "make", "openssl", "pip", "sudo", "systemctl"}
OTHERS = {
    "--ccat",
    "--again",
    "--fuzz-seed",
    "--most-minutes",
    "--c11",
    "--rows",
    "--nthreads",
    "--no-nanny",
    "--dashboard-address",
    "--protocol",
    "--scheduler-file",
    "--hostfile",
    "--help",
}
NUMBER = re.compile(r"[+-]?\d[\d.,]*(?:e[+-]?\d+)?%?")


class Block(NamedTuple):
    """A fenced or indented block and what stands after its fence: sh, python, nothing, ..."""

    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """All blocks of a page; an indented one is `sh` if it begins with a program."""
    found = []
    for fenced in re.finditer(r"^```(\w*)\n(.*?)^```$|\n\n((?: {4}[^\n]*\n)+)", page, re.M | re.S):
        language, inside, indented = fenced.groups()
        if indented:
            inside = re.sub("^ {4}", "", indented, flags=re.M)
            program = Path(inside.split()[0]).name
            language = "sh" if program in {*OURS, *NOT_HERE} or shutil.which(program) else ""
        found.append(Block(language, inside))
    return found


def is_for_here(line: str) -> bool:
    """Clusters have tests of their own, environments are what tests run in."""
    words = line.split()
    return words[0] not in NOT_HERE and "venv" not in words and "--cluster" not in words


def run_line(line: str) -> str:
    """What a command prints on both streams; our own commands run in this process."""
    words = shlex.split(line.replace(".venv/bin/", ""))
    if words[0] in OURS and not {"|", ">", "<", "&&"} & set(words):
        return said_by(lambda: OURS[words[0]](*words[1:]))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.run(
        line.replace(".venv/bin/", ""),
        shell=True,
        text=True,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert shell.returncode == 0, f"{line}: {shell.returncode}\n{shell.stdout}"
    return shell.stdout


def said_by(work) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        work()
    return stream.buffer.getvalue().decode()


def words_of(text: str) -> list[str]:
    """The lines with a sign in the place of each number: times and roundings differ."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines()]


def missing(shown: str, said: str) -> list[str]:
    return [line for line in words_of(shown) if line not in {"...", *words_of(said)}]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """What a reader has before the first command."""
    for folder in ("data", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_commands_run_and_print_what_is_shown(clone):
    said = ""
    for language, text in blocks(README):
        if language == "sh":
            lines = text.replace("\\\n", " ").splitlines()
            for line in filter(is_for_here, lines):
                said = run_line(line)
        elif language == "python":
            said = said_by(lambda text=text: exec(text, {"__name__": "__main__"}))
        elif not language:
            assert missing(text, said) == [], said


def test_what_examples_write_is_ignored_by_git():
    ignored = (ROOT / ".gitignore").read_text().split()
    written = set(re.findall(r"([\w/]+)/\w+\.(?:model|out|jsonl|cache)\b", README))
    assert {f"{folder}/" for folder in written} <= set(ignored)


def test_every_option_is_there_and_no_other():
    commands = [*training.train.commands.values(), predicting.predict]
    options = {word for each in commands for option in each.params for word in option.opts}
    known = {word for word in options if word.startswith("--")}
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", README))
    assert sorted(known - {"--help"} - named) == []
    assert sorted(named - known - OTHERS) == []


def test_links_lead_somewhere():
    headings = re.findall(r"^#+ (.*)$", README, re.M)
    anchors = {"#" + re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
    links = [link for link in re.findall(r"\]\(([^)]*)\)", README) if "://" not in link]
    assert [link for link in links if link not in anchors and not (ROOT / link).exists()] == []
