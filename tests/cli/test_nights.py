"""What a night's job relies on: a required gap, a lost terminal, files of another kind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import oracle
import pytest
from learning import OLD_MODEL, SLOWNESS, board

# One round of these leaves a gap.
ROUGH = ("osuna", "-g", 5, "--working-set", 100, "--max-iterations", 1)


@pytest.fixture
def data(tmp_path) -> Path:
    (tmp_path / "m").write_text(OLD_MODEL)
    return board(2000).save(tmp_path / "data")


# ---- --require-gap --------------------------------------------------------------------------


def test_above_the_required_gap_the_old_model_stays(command, tmp_path, data):
    ended = command("train", *ROUGH, "--require-gap", 0.01, "-q", "--report", "json", data, "m")
    outcome = json.loads(ended.stdout)
    assert (ended.returncode, outcome["saved"]) == (75, False)
    assert outcome["gap"] > 0.01
    assert ended.stderr == (
        f"randsvm-train: gap {outcome['gap']:.3g} is above 0.01 (--require-gap): "
        f"m is left as it was\n"
    )
    assert (tmp_path / "m").read_text() == OLD_MODEL


def test_within_the_required_gap_the_model_has_the_same_bytes(command, tmp_path, data):
    words = ("osuna", "-g", 5, "--gap", 0.01, "-q")
    assert command("train", *words, "--require-gap", 0.01, data, "m").returncode == 0
    assert command("train", *words, data, "other").returncode == 0
    assert (tmp_path / "m").read_bytes() == (tmp_path / "other").read_bytes()
    assert float(oracle.trailer(tmp_path / "m")["gap"]) <= 0.01


def test_a_time_limit_does_not_get_round_the_required_gap(command, tmp_path, data):
    slow = ("osuna", "-g", 5, "--working-set", 100, "--swap", 1, "--time-limit", "1s")
    ended = command("train", *slow, "--require-gap", 1e-6, data, "m")
    assert ended.returncode == 75
    assert "stopped: time limit" in ended.stderr
    assert "m (not written): " in ended.stderr
    assert (tmp_path / "m").read_text() == OLD_MODEL


@pytest.mark.parametrize(
    "words",
    [("sgd",), ("sgd", "--update", "m"), ("osuna", "-t", "sigmoid")],
    ids=["sgd", "update", "sigmoid"],
)
def test_a_required_gap_needs_a_certificate(command, tmp_path, data, words):
    ended = command("train", *words, "--require-gap", 0.01, data, "m")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("randsvm-train: --require-gap needs a certificate: ")
    assert (tmp_path / "m").read_text() == OLD_MODEL


# ---- signals --------------------------------------------------------------------------------

# Thousands of short rounds.
SHORT = ("osuna", "-g", "5", "--working-set", "400", "--swap", "1")


def start(folder: Path, *words: object, **streams: int) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "randsvm.cli.train", *map(str, words)]
    return subprocess.Popen(program, cwd=folder, **streams)


@pytest.fixture
def rows(tmp_path) -> Path:
    return board(20_000).save(tmp_path / "data")


def rounds(log: Path) -> int:
    return log.read_text().count('"iteration"') if log.exists() else 0


def wait_for_rounds(log: Path, least: int) -> None:
    ends = time.perf_counter() + 30
    while rounds(log) < least:
        assert time.perf_counter() < ends
        time.sleep(0.02)


def test_a_signal_does_not_get_round_the_required_gap(tmp_path, rows):
    (tmp_path / "m").write_text(OLD_MODEL)
    words = (*SHORT, "--require-gap", "1e-6", "--log", "log", rows, "m")
    with start(tmp_path, *words, stderr=subprocess.PIPE) as process:
        wait_for_rounds(tmp_path / "log", 3)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"m (not written): " in said
    assert (tmp_path / "m").read_text() == OLD_MODEL


def test_a_job_whose_terminal_goes_away_saves_its_model(tmp_path, rows):
    """The system sends SIGHUP, and from then on nothing can be said on stderr."""
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.chdir(tmp_path)
        words = ["-m", "randsvm.cli.train", *SHORT, "--log", "log", str(rows), "m"]
        os.execv(sys.executable, [sys.executable, *words])
    wait_for_rounds(tmp_path / "log", 3)
    os.close(master)
    began = time.perf_counter()
    _, status = os.waitpid(pid, 0)
    assert time.perf_counter() - began <= 2 * SLOWNESS
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert oracle.trailer(tmp_path / "m")["stopped"] == "interrupted by signal 1"


def test_under_nohup_a_hangup_is_not_heard(tmp_path, rows):
    words = (*SHORT, "--max-iterations", 40, "--log", "log", rows, "m")
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(tmp_path, *words, stderr=subprocess.DEVNULL)
    finally:
        signal.signal(signal.SIGHUP, old)
    with process:
        wait_for_rounds(tmp_path / "log", 3)
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == 0
    assert oracle.trailer(tmp_path / "m")["stopped"] == "iteration limit"
