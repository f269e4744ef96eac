"""README.md, docs/ and the other pages: commands run and print what is shown, links lead somewhere.

A block of `sh` holds commands, one a line. A block without a language after it shows what the last
of them prints; `...` stands for lines left out. A block of `python` is a program. The commands of a
page run in order, in a folder with data/ and scripts/. A block that does not run has a comment
before it, `<!-- not run: REASON -->`.
"""

import contextlib
import importlib.util
import io
import itertools
import math
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
import yaml
from commands import run_predict, run_train

import randsvm
from randsvm.cli import plot as drawing
from randsvm.cli import predict as predicting
from randsvm.cli import train as training

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
README = ROOT / "README.md"
OURS = {"randsvm-train": run_train, "randsvm-predict": run_predict}
# Blocks that show something and neither run nor are compared.
SHOWN = {"text", "ini", "bash", "crontab", "yaml", "json", "toml", "mermaid", "diff"}
# Options of other programs.
OTHERS = {
    *("--exact", "--samples"),
    *("--array", "--cpus-per-task", "--job-name", "--mem", "--now", "--signal", "--time"),
    *("--all-files", "--config-settings", "--print-build-identifiers", "--seed"),
    *("--fuzz-seed", "--most-minutes", "--peer-seconds", "--rows"),
    *("--dashboard-address", "--hostfile", "--no-deps", "--nthreads", "--no-nanny", "--protocol"),
    *("--scheduler-file", "--help", "--output"),
}
NUMBER = re.compile(r"[+-]?\d[\d.,]*(?:e[+-]?\d+)?%?")
FENCED = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block: its language, its text, and the reason if it does not run."""

    language: str
    text: str
    reason: str | None


def blocks_of(text):
    """Return the fenced blocks of a text in Markdown."""
    return [
        Block(found["language"], found["text"], found["reason"]) for found in FENCED.finditer(text)
    ]


def blocks(page):
    return blocks_of(page.read_text())


def prose(page):
    """Return a page without its blocks."""
    return FENCED.sub("", page.read_text())


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def run_line(line):
    """Run a command and return what it prints; our own commands run in this process.

    Pictures are not drawn without matplotlib, and Parquet files are not read without pyarrow, nor
    databases without their drivers.
    """
    words = shlex.split(line)
    if "duckdb" in line and importlib.util.find_spec("duckdb") is None:
        return ""
    if "parquet" in line and importlib.util.find_spec("pyarrow") is None:
        return ""
    if words[0] == "randsvm-plot" and importlib.util.find_spec("matplotlib") is None:
        return ""
    if words[0] in ("jq", "mv", "grep") and shutil.which("jq") is None:
        return ""
    if words[0] in OURS and not {"|", ">", "<", "&&", "||"} & set(words):
        return printed_by(lambda: OURS[words[0]](*words[1:]))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.run(
        line,
        shell=True,
        text=True,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert shell.returncode == 0, f"{line}: {shell.returncode}\n{shell.stdout}"
    return shell.stdout


def printed_by(work):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        work()
    return stream.buffer.getvalue().decode()


# Numbers that differ between runs or machines: times, versions, dates, rounding errors of sums.
VARIABLE = re.compile(r"\d[\d.,]* (?:m?s|seconds)\b|\d+\.\d+\.\d+\S*|\d{4}-\d\d-\d\S*|\S+e-1\d\b")
# The results that a page shows are those that the run prints, up to the gap.
TOLERANCE = 0.02


def skeleton(line):
    """Return the line with # in place of each number."""
    return " ".join(NUMBER.sub("#", line).split())


def without_numbers(text):
    return [skeleton(line) for line in text.splitlines()]


def numbers_of(line):
    """Return the numbers of a line that do not differ between runs."""
    words = re.findall(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", VARIABLE.sub("~", line))
    return [float(word.replace(",", "")) for word in words]


def is_same(shown, printed):
    """Return whether two lines have the same words, and the same numbers up to the gap."""
    if skeleton(shown) != skeleton(printed):
        return False
    pairs = list(zip(numbers_of(shown), numbers_of(printed), strict=False))
    return all(math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-3) for a, b in pairs)


def missing(shown, printed):
    lines = printed.splitlines()
    return [
        line
        for line in shown.splitlines()
        if line.split() not in ([], ["..."]) and not any(is_same(line, one) for one in lines)
    ]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """Enter a folder with the files that a reader has before the first command."""
    for folder in ("data", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)


RUN = [page for page in PAGES if any(block.language in ("sh", "python") for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_commands_run_and_print_what_the_page_shows(page, clone):
    printed = ""
    for language, text, reason in blocks(page):
        if reason:
            continue
        if language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                if line and not line.startswith("#"):
                    printed = run_line(line)
        elif language == "python":
            printed = printed_by(lambda text=text: exec(text, {"__name__": "__main__"}))
        elif not language:
            assert missing(text, printed) == [], printed


def test_the_recording_of_a_terminal_is_what_the_tutorial_runs_and_shows():
    lines = ElementTree.parse(ROOT / "docs" / "recording.svg").iterfind("{*}text")
    recorded = "\n".join("".join(line.itertext()) for line in lines)
    commands = [line[2:] for line in recorded.splitlines() if line.startswith("$ ")]
    found = blocks(ROOT / "docs" / "tutorial.md")
    outputs = {sh.text.splitlines()[-1]: shown.text for sh, shown in itertools.pairwise(found)}
    assert len(commands) == 3
    for command in commands:
        assert missing(outputs[command], recorded) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_language_that_is_known_here(page):
    assert {block.language for block in blocks(page)} <= {"sh", "python", "", *SHOWN}
    assert page.read_text().count("```") == 2 * len(blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_named_option_exists(page):
    commands = [
        *training.train.commands.values(),
        *predicting.predict.commands.values(),
        *drawing.main.commands.values(),
    ]
    options = {word for each in commands for option in each.params for word in option.opts}
    written, _, _ = page.read_text().partition("<!-- made by ")
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", written))
    assert sorted(named - options - OTHERS) == []


def test_the_reference_of_python_has_every_public_name():
    page = (ROOT / "docs" / "python-reference.md").read_text()
    named = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    assert {f"randsvm.{name}" for name in randsvm.__all__} <= set(named)
    for name in named:
        assert pkgutil.resolve_name(name) is not None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_named_function_exists(page):
    for path, name in re.findall(r"`([\w/]+\.py):([\w.]+)`", page.read_text()):
        source = (ROOT / "randsvm" / path).read_text()
        assert all(re.search(rf"(def|class) {one}\b", source) for one in name.split(".")), name


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    broken = []
    for link in re.findall(r"\]\(([^)\s]*)\)", prose(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (
            target.exists() and (not anchor or anchor in anchors(target))
        ):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_readme():
    index = ROOT / "docs" / "index.md"
    links = [README.parent / link for link in re.findall(r"\]\(([^)#]*)", prose(README))]
    assert index in links
    links += [index.parent / link for link in re.findall(r"\]\(([^)#]*)", prose(index))]
    assert sorted(set(PAGES) - set(links)) == [README]


# ---- examples of schedulers -----------------------------------------------------------------

NIGHTLY = ROOT / "docs" / "nightly.md"


def examples(language):
    """Return the blocks of a language on the page of nightly jobs."""
    found = [block.text for block in blocks(NIGHTLY) if block.language == language]
    assert found
    return found


def nightly_commands():
    """Return the words of each training that a scheduler runs."""
    rules, job = map(yaml.safe_load, examples("yaml"))
    assert [rule["alert"] for rule in rules["groups"][0]["rules"]]
    template = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    found = [template["containers"][0]["command"]]
    for language in ("crontab", "ini", "bash"):
        for text in examples(language):
            lines = re.findall(r"randsvm-train .*$", text, re.MULTILINE)
            found += map(shlex.split, lines)
    assert len(found) == 4
    return found


def test_trainings_of_the_schedulers_are_command_lines_that_are_understood():
    for name, *words in nightly_commands():
        assert name == "randsvm-train"
        # What the shell of SLURM fills in.
        filled = ["4" if word.startswith("$") else word for word in words]
        training.train.commands["randsvm"].make_context("randsvm", filled)
