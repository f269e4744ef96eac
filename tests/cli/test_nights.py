"""What a night's job relies on: a required gap, a lost terminal, files of another kind."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import oracle
import pytest
from learning import OLD_MODEL, board, gaussians, read_log

import randsvm
from randsvm import __version__
from randsvm.errors import GapError


@pytest.fixture
def data(tmp_path):
    (tmp_path / "m").write_text(OLD_MODEL)
    return board(2000).save(tmp_path / "data")


# ---- --require-gap --------------------------------------------------------------------------


def test_the_required_gap_is_compared_with_that_of_the_model(data):
    model = data.with_name("new")
    own = {"gamma": 5, "gap": 0.2, "working_set": 100}
    randsvm.train(data, model, algorithm="osuna", **own)
    # The gap of the training may have wider bounds of rounding, as it only had to be below 0.2.
    found = randsvm.certify(data, model).gap
    for factor in (0.99, 1.01):
        with nullcontext() if factor > 1 else pytest.raises(GapError):
            randsvm.train(data, model, algorithm="osuna", require_gap=factor * found, **own)


def test_a_required_gap_is_proven_where_float32_proves_only_the_one_asked_for(tmp_path):
    """Rounds that start from a solution end far below the gap that is asked for."""
    data, model = board(6000).save(tmp_path / "data"), tmp_path / "model"
    randsvm.train(data, model, gamma=5, C=10, gap=1e-4)
    own = {"warm_start": model, "gap": 0.3, "require_gap": 1e-3}
    assert randsvm.train(data, tmp_path / "new", **own).gap <= 1e-3


# ---- signals --------------------------------------------------------------------------------

# Thousands of short rounds.
SHORT = ("osuna", "-g", "5", "--working-set", "400", "--swap", "1")


@pytest.fixture
def rows(tmp_path):
    return board(20_000).save(tmp_path / "data")


def rounds(log):
    return log.read_text().count('"iteration"') if log.exists() else 0


def wait_for_rounds(log, least):
    while rounds(log) < least:
        time.sleep(0.02)


def test_a_job_whose_terminal_goes_away_saves_its_model(tmp_path, rows):
    """The system sends SIGHUP, and from then on nothing can be said on stderr."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        words = ["-m", "randsvm.cli.train", *SHORT, "--log", "log", str(rows), "m"]
        os.execv(sys.executable, [sys.executable, *words])
    wait_for_rounds(tmp_path / "log", 3)
    os.close(master)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert oracle.trailer(tmp_path / "m")["stopped"] == "interrupted by signal 1"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_the_caller_ignores_is_not_heard(tmp_path, rows, number):
    """nohup ignores SIGHUP, and a script SIGINT in its background commands."""
    words = (*SHORT, "--max-iterations", 40, "--log", "log", rows, "m")
    old = signal.signal(number, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "randsvm.cli.train", *map(str, words)],
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
    finally:
        signal.signal(number, old)
    with process:
        wait_for_rounds(tmp_path / "log", 3)
        process.send_signal(number)
        assert process.wait(120) == 0
    assert oracle.trailer(tmp_path / "m")["stopped"] == "iteration limit"


# ---- records --------------------------------------------------------------------------------

HEAD = ["event", "schema", "time", "run", "version", "command", "data", "model"]
RESOLVED = ["algorithm", "parameters", "n", "d", "nnz"]


def test_two_runs_share_a_log(command, tmp_path):
    """Runs after each other and at once; every line names its run."""
    gaussians(300).save(tmp_path / "data")
    words = ("osuna", "-q", "--working-set", 20, "--swap", 2, "--log", "log", "data", "m")
    for _ in range(2):
        ended = command("train", *words, sh='"$@" & "$@" -c 2 & wait')
        assert (ended.stdout, ended.stderr) == ("", "")
    lines = read_log(tmp_path / "log")
    runs = {line["run"] for line in lines}
    assert len(runs) == 4
    for run in runs:
        own = [line for line in lines if line["run"] == run]
        assert [line["event"] for line in own][:: len(own) - 1] == ["started", "trained"]
        assert len({line["parameters"] for line in own}) == 1
        numbers = [line["number"] for line in own if line["event"] == "iteration"]
        assert numbers == [*range(1, len(numbers) + 1)]
    for line in lines:
        assert list(line)[: len(HEAD + RESOLVED)] == HEAD + RESOLVED
        assert (line["data"], line["model"], line["n"], line["d"]) == ("data", "m", 300, 2)
        assert line["version"] == __version__
        assert re.fullmatch(r"2[0-9]{3}-[01][0-9]-[0-3][0-9]T[0-9:]{8}\.[0-9]{3}Z", line["time"])
