"""The examples of docs/extending.md: each change applies to the package, and its program runs."""

import os
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest
from test_docs import ROOT, blocks_of, without_numbers

PAGE = ROOT / "docs" / "extending.md"


class Example(NamedTuple):
    """A change of the package as a diff, a program, and what the program prints."""

    change: str
    program: str
    printed: str


def examples():
    """Return the example of each section: the block of a change and the two blocks after it."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        kept = [block for block in blocks_of(text) if block.language in ("diff", "python", "text")]
        if kept:
            change, program, printed = kept
            assert [change.language, program.language] == ["diff", "python"]
            found[title] = Example(change.text, program.text, printed.text)
    return found


EXAMPLES = examples()


@pytest.mark.slow
@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_works_after_its_change(title, tmp_path):
    pytest.importorskip("sklearn")
    if shutil.which("patch") is None:
        pytest.skip("patch is not installed")
    example = EXAMPLES[title]
    shutil.copytree(
        ROOT / "randsvm", tmp_path / "randsvm", ignore=shutil.ignore_patterns("__pycache__", "*.c")
    )
    patch = ["patch", "--strip=1", "--quiet", "--no-backup-if-mismatch", "--fuzz=0"]
    done = subprocess.run(patch, cwd=tmp_path, input=example.change, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    compile_changed(example.change, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-c", example.program]
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert without_numbers(ended.stdout) == without_numbers(example.printed)


def compile_changed(change, folder):
    """Compile the Cython modules in `folder` that a diff changes."""
    for name in re.findall(r"^\+\+\+ b/(.*\.pyx)$", change, re.MULTILINE):
        pytest.importorskip("Cython")
        words = [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", "--quiet", name]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_an_example_for_each_part():
    assert set(EXAMPLES) >= {"A task", "A loss", "A kernel", "A model format"}
