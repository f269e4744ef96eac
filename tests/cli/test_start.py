"""What a command imports before it begins, which is most of the time of a small run."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

ROWS = "".join(f"{1 if i % 2 else -1} 1:{i % 7} 2:{i % 2 + i % 3}\n" for i in range(100))
# What numpy brings itself, whichever its version.
BARE = """
import sys
import numpy
print(*sys.modules)
"""
RUN = """
import sys
sys.argv = ["randsvm-{0}"]
from randsvm.cli.{0} import {0}
try:
    {0}.main({1}, standalone_mode=False)
finally:
    print()
    print(*sys.modules)
"""


def output(code, folder):
    """Run Python code; return the words of the last line that it prints."""
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()[-1].split()


def imported(folder, command, *words):
    """Return the modules that a process has imported when the command ends."""
    return set(output(RUN.format(command, list(words)), folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("start")
    (path / "rows").write_text(ROWS)
    return path


@pytest.fixture(scope="module")
def bare(folder):
    return set(output(BARE, folder))


@pytest.mark.parametrize("words", [["train"], ["train", "randsvm"], ["train", "sgd"], ["predict"]])
def test_help_imports_no_library_but_click(folder, words):
    found = imported(folder, *words, "--help")
    assert "click" in found
    assert not found & {"numpy", "scipy", "libsvm", "tqdm", "json", "hashlib", "concurrent.futures"}


@pytest.mark.parametrize(
    "words",
    [
        ["randsvm", "-s", "svr"],
        ["randsvm", "--scale", "minmax"],
        ["sgd", "-t", "rbf", "--components", "50"],
        ["randsvm", "--sample-size", "20"],
    ],
)
def test_no_kind_of_small_run_imports_scipy(folder, bare, words):
    trained = imported(folder, "train", *words, "rows", "kind")
    predicted = imported(folder, "predict", "rows", "kind", "labels")
    for found in (trained, predicted):
        assert not {name for name in found if name.startswith("scipy")}
        assert "numpy.ma" not in found - bare  # numpy.unique and the like import it


@pytest.mark.parametrize("algorithm", ["randsvm", "sgd"])
def test_a_small_run_imports_what_it_works_with(folder, algorithm):
    """scipy.sparse and what it imports would take a sixth of the time of the run."""
    trained = imported(folder, "train", algorithm, "rows", algorithm)
    predicted = imported(folder, "predict", "rows", algorithm, "labels")
    assert ("libsvm" in trained, "libsvm" in predicted) == (algorithm == "randsvm", False)
    assert "randsvm.models.prediction" not in trained
    for found in (trained, predicted):
        assert "randsvm.models.certification" not in found
        libraries = {"scipy", "tqdm", "distributed", "matplotlib"}
        assert not {name.partition(".")[0] for name in found} & libraries


def test_an_import_of_the_commands_changes_no_setting_of_the_process():
    code = (
        "import gc, os, sys; sys.argv[0] = '-m'; os.environ.pop('OMP_NUM_THREADS', 0); "
        "before = gc.get_threshold(), dict(os.environ); "
        "import randsvm.cli.train, randsvm.cli.predict; "
        "assert before == (gc.get_threshold(), dict(os.environ))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("variable, found", [("", ""), ("default", "UserWarning: odd")])
def test_warnings_of_libraries_are_for_those_who_ask_for_them(variable, found):
    code = "import warnings; from randsvm.cli.process import run\n"
    code += "run(lambda prog_name: warnings.warn('odd'), 'randsvm-train')"
    environment = {**os.environ, "PYTHONWARNINGS": variable}
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert found in ended.stderr and bool(found) == bool(ended.stderr)


def test_python_m_names_every_program_and_its_module():
    ended = subprocess.run([sys.executable, "-m", "randsvm"], capture_output=True, text=True)
    assert ended.returncode == 2
    installed = {
        (one.name, one.module)
        for one in entry_points(group="console_scripts")
        if one.module.startswith("randsvm.")
    }
    assert set(re.findall(r"(randsvm-\w+) +python -m (\S+)", ended.stderr)) == installed
