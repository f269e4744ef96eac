"""The test suite passes wherever it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import real_sets
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
IGNORING = 'trap "" HUP INT QUIT TERM; exec "$@"'  # as nohup and a shell's background jobs do


def run_tests(words, sh='exec "$@"', **environment):
    """Run pytest in a new process; return its output."""
    program = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    ended = subprocess.run(
        ["sh", "-c", sh, "sh", *program],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


# The action of each signal in a new program: 0 is the default, 1 is to ignore it.
ACTIONS = """
import signal
numbers = signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM
print(*(int(signal.getsignal(number) == signal.SIG_IGN) for number in numbers))
"""


def test_a_process_that_a_test_starts_ignores_no_signal():
    ended = subprocess.run([sys.executable, "-c", ACTIONS], capture_output=True, text=True)
    assert ended.stdout.split() == ["0"] * 4


def test_a_process_that_a_test_starts_ignores_no_signal_under_nohup():
    words = ["-q", f"{__file__}::test_a_process_that_a_test_starts_ignores_no_signal"]
    assert "1 passed" in run_tests(words, IGNORING)


def test_an_example_of_hypothesis_has_no_time_limit():
    assert settings().deadline is None


def test_missing_real_data_are_reported_in_one_line(tmp_path):
    """The tests that need real data are skipped."""
    words = ["tests/models/test_prediction.py", "-m", "real_data"]
    said = run_tests(words, RANDSVM_DATA=str(tmp_path / "nowhere"))
    assert " passed" not in said
    reports = [line for line in said.splitlines() if line.startswith("real data: missing")]
    assert len(reports) == 1
    assert "RANDSVM_DATA" in reports[0]


def test_real_data_are_found_beside_the_main_checkout(tmp_path, monkeypatch):
    """The tests run in a git worktree in another folder."""
    main, data = tmp_path / "code" / "main", tmp_path / "code" / "shared" / "data"
    main.mkdir(parents=True)
    data.mkdir(parents=True)
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (
        ["init", "--quiet"],
        [*who, "commit", "--quiet", "--allow-empty", "--message", "empty"],
        ["worktree", "add", "--quiet", str(tmp_path / "elsewhere")],
    ):
        subprocess.run(["git", *words], cwd=main, check=True, capture_output=True)
    monkeypatch.delenv("RANDSVM_DATA", raising=False)
    for root in (main, tmp_path / "elsewhere"):
        monkeypatch.setattr(real_sets, "ROOT", root)
        assert real_sets.folder() == data
    monkeypatch.setattr(real_sets, "ROOT", tmp_path)
    assert real_sets.folder() is None
