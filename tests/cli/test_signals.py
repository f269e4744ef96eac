"""Killed at any moment: a whole model or none, an exit within seconds, nothing left lying about."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import oracle
import psutil
import pytest
from base import ThreadPool
from learning import OLD_MODEL, board, gaussians, kernel, learn, read_log
from liblinear import liblinearutil
from libsvm import svmutil
from model_files import load_model, rows_of

from randsvm import Arrays, api, events
from randsvm.errors import Interrupted

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Thousands of short rounds, and few rounds of seconds in LIBSVM.
SHORT = ("osuna", "-g", 5, "--working-set", 400, "--swap", 1)


@pytest.fixture(scope="module")
def data():
    return board(20_000)


@pytest.fixture(scope="module")
def path(data, tmp_path_factory):
    return data.save(tmp_path_factory.mktemp("signals") / "data")


class Killed(NamedTuple):
    """A process that a signal has ended: its folder, exit code, and what it printed."""

    folder: Path
    code: int
    stdout: str
    stderr: str

    @property
    def model(self):
        return self.folder / "m"


def start(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "randsvm.cli.train", *map(str, words)],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process, folder, number):
    """Send a signal and wait until the process ends: these runs would go on for much longer."""
    process.send_signal(number)
    printed = process.communicate(timeout=60)
    return Killed(folder, process.returncode, *printed)


def assert_model_as_reported(killed, data, number):
    """The model predicts, its trailer names the signal, and P is P of the model as written."""
    loaded, metadata = load_model(killed.model), oracle.trailer(killed.model)
    assert svmutil.svm_load_model(str(killed.model)) is not None
    assert metadata["stopped"] == str(Interrupted(number))
    assert metadata["certificate"] == "proven"
    assert killed.stderr.endswith(f": {metadata['stopped']}\n")
    y, X = data
    C, gamma = float(metadata["C"]), loaded.kernel.gamma
    found = oracle.read_model(killed.model, 2)
    words, Z = f"-t 2 -g {gamma!r}", oracle.as_float32(found.Z)
    u = np.concatenate([kernel(words, part, Z) @ found.beta for part in np.split(X, 20)])
    norm = found.beta @ kernel(words, Z, Z) @ found.beta
    exact = norm / 2 + C * np.maximum(0, 1 - y * (u + found.b)).sum()
    assert abs(metadata["primal"] - exact) <= metadata["primal_error"] + 1e-9 * exact
    values = X[:10].astype(np.float32).ravel()
    rows = rows_of(loaded, np.arange(11) * 2, np.tile([1, 2], 10), values)
    assert loaded.decision(rows)[:, 0] == pytest.approx(u[:10] + found.b, abs=1e-6)


def names(folder):
    return {found.name for found in folder.iterdir()}


def wait_for(process, pattern):
    """Read what the process says until a line of it matches."""
    for line in process.stderr:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"ended without saying {pattern!r}")


def wait_until_idle(process):
    """Wait until the process sleeps and uses no CPU time for a while."""
    watched, idle, used = psutil.Process(process.pid), 0, None
    while idle < 10:
        time.sleep(0.05)
        before, used = used, watched.cpu_times()[:2]
        sleeps = watched.status() == psutil.STATUS_SLEEPING
        idle = idle + 1 if sleeps and used == before else 0


def test_before_the_first_scan_the_old_model_stays(tmp_path, path, number=signal.SIGTERM):
    """The first subproblem takes LIBSVM minutes."""
    (tmp_path / "m").write_text(OLD_MODEL)
    before = (tmp_path / "m").stat()
    words = ("randsvm", "-g", 5, "-c", 1e9, "-e", 1e-9, "-k", 9999, "--sample-size", 10_000)
    process = start(tmp_path, *words, path, "m")
    wait_for(process, "^read 20,000 rows")
    killed = end(process, tmp_path, number)
    assert killed.code == 128 + number
    last = f"randsvm-train: {Interrupted(number)}: no model was written"
    assert killed.stderr.splitlines()[-1] == last
    assert names(tmp_path) == {"m"}
    assert killed.model.read_text() == OLD_MODEL
    assert killed.model.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("command", ["randsvm", "sgd"])
def test_a_signal_at_any_event_says_whether_a_model_was_written(tmp_path, command):
    """Of the first events: those of reading, of the start, and of the first rounds."""
    y, X = gaussians(400, 2)
    more = {"sample_size": 30} if command == "randsvm" else {"epochs": 30}
    for last in range(12):
        (tmp_path / "m").write_text(OLD_MODEL)
        seen = []

        def watch(event, seen=seen, last=last):
            seen.append(event)
            if len(seen) > last:
                raise Interrupted(15)

        with pytest.raises(Interrupted) as raised:
            api.train(Arrays(X, y), tmp_path / "m", command, watch, **more)
        is_kept = (tmp_path / "m").read_text() == OLD_MODEL
        words = ": no model was written" if is_kept else ""
        assert str(raised.value) == f"interrupted by signal 15{words}", seen[-1]


@pytest.mark.parametrize("command", ["randsvm", "sgd"])
def test_a_signal_says_that_the_folder_of_the_model_is_gone(tmp_path, command):
    y, X = gaussians(400, 2)
    folder, seen = tmp_path / "folder", []
    folder.mkdir()
    more = {"sample_size": 30} if command == "randsvm" else {"epochs": 30}

    def watch(event):
        seen.append(event)
        if isinstance(event, events.Iteration | events.Epoch) and folder.exists():
            folder.rmdir()
            raise Interrupted(15)

    with pytest.raises(Interrupted) as raised:
        api.train(Arrays(X, y), folder / "m", command, watch, **more)
    fate = f"no model was written: cannot create {folder / 'm'}: No such file or directory"
    assert str(raised.value) == f"interrupted by signal 15: {fate}"


@pytest.mark.parametrize("number", SIGNALS)
def test_after_the_first_scan_the_best_model_replaces_the_old_one(tmp_path, data, path, number):
    (tmp_path / "m").write_text(OLD_MODEL)
    process = start(tmp_path, *SHORT, "--log", "log", "--report", "json", path, "m")
    wait_for(process, "^ +9 ")
    killed = end(process, tmp_path, number)
    assert killed.code == 128 + number
    report = json.loads(killed.stdout)
    assert report == read_log(tmp_path / "log")[-1]
    assert (report["event"], report["exit_code"]) == ("trained", 128 + number)
    assert names(tmp_path) == {"m", "log"}
    assert_model_as_reported(killed, data, number)
    rounds = [event for event in read_log(tmp_path / "log") if event["event"] == "iteration"]
    metadata = oracle.trailer(killed.model)
    lowest = min(event["primal"] for event in rounds)
    highest = max(event["dual"] for event in rounds)
    assert metadata["primal"] == pytest.approx(lowest, rel=1e-5)
    # A D that is higher by a hundredth of the distance is not worth an evaluation.
    assert metadata["dual"] <= highest * (1 + 1e-5)
    assert metadata["dual"] >= highest - 0.011 * (lowest - highest)


# ---- stochastic gradient descent --------------------------------------------------------------

# Epochs of milliseconds, without end.
SGD = ("sgd", "--epochs", 10**8)


def assert_linear_model_as_reported(killed, data, number):
    """Check that LIBLINEAR reads the model, that it beats a guess, and that it reports no P."""
    assert liblinearutil.load_model(str(killed.model)) is not None
    y, X = data
    model = oracle.read_linear(killed.model, 2)
    assert model.metadata["stopped"] == str(Interrupted(number))
    assert (model.metadata["primal"], model.metadata["violators"]) == (None, None)
    assert killed.stderr.endswith(f": {model.metadata['stopped']}\n")
    assert np.mean(model.labels(X) == y) > 0.85


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    data = gaussians(20_000)
    return data, data.save(tmp_path_factory.mktemp("signals") / "clouds")


@pytest.mark.parametrize(("words", "number"), [((), 15), (("--average",), 2)], ids=["last", "mean"])
def test_sgd_leaves_what_it_has_learnt(tmp_path, clouds, number, words):
    data, path = clouds
    (tmp_path / "m").write_text(OLD_MODEL)
    process = start(tmp_path, *SGD, *words, path, "m")
    wait_for(process, "^epoch +2 ")
    killed = end(process, tmp_path, number)
    assert killed.code == 128 + number
    assert "Traceback" not in killed.stderr
    assert names(tmp_path) == {"m"}
    assert_linear_model_as_reported(killed, data, number)


# ---- waiting for others -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def linear_model(clouds, tmp_path_factory):
    model = tmp_path_factory.mktemp("signals") / "linear"
    learn("sgd", clouds[1], model, "--epochs", 1)
    return model


# Commands that wait without end: DATA has 20,000 rows, no process opens the other end of FIFO, and
# the standard streams are pipes in which nothing moves.
READING = {
    "data from a silent pipe": "train sgd - m",
    "data from a FIFO": "train sgd FIFO m",
    "rows to update from a silent pipe": "train sgd --update LINEAR - m",
    "model from a FIFO": "predict DATA FIFO o",
    "rows to predict from a silent pipe": "predict - LINEAR o",
}
WRITING = {
    "model into a FIFO": "train sgd --epochs 1 DATA FIFO",
    "predictions into a full pipe": "predict --scores DATA LINEAR -",
    "predictions into a FIFO": "predict DATA LINEAR FIFO",
}


@pytest.mark.parametrize("name", WRITING)
def test_a_second_signal_ends_a_command_that_waits_for_a_reader(
    tmp_path, clouds, linear_model, name
):
    with waiting(tmp_path, clouds, linear_model, WRITING[name]) as process:
        # Signals that come at once count as one.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        # A prediction may notice the first signal between two writes.
        assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)


@pytest.mark.parametrize("name", READING)
def test_a_signal_ends_a_command_that_waits_for_input(tmp_path, clouds, linear_model, name):
    line, number = READING[name], SIGNALS[len(name) % 3]
    command = line.partition(" ")[0]
    with waiting(tmp_path, clouds, linear_model, line) as process:
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        printed = process.stderr.read().decode()
        assert re.fullmatch(
            f"randsvm-{command}: {Interrupted(number)}(: no model was .*)?\n", printed
        )
    assert names(tmp_path) == {"fifo"}


@contextmanager
def waiting(tmp_path, clouds, linear_model, line):
    """Start a command that waits without end."""
    os.mkfifo(tmp_path / "fifo")
    paths = {"DATA": str(clouds[1]), "LINEAR": str(linear_model), "FIFO": "fifo"}
    command, *words = [paths.get(word, word) for word in line.split()]
    with subprocess.Popen(
        [sys.executable, "-m", f"randsvm.cli.{command}", *words, "-q"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        wait_until_idle(process)
        yield process


# Sends itself each pair of (signal, seconds until the next) and says that it still runs.
SENDING = """
import os, signal, sys, time
from randsvm import api, events
from randsvm.cli import process
now = 0.0
time.monotonic = lambda: now
process.install_handlers()
for number, seconds in {pairs}:
    os.kill(os.getpid(), number)
    now += seconds
assert events._Signals.first[0] == {pairs}[0][0]
print("goes on")
"""
TERM, INT, HUP, CPU, USR1, USR2 = 15, 2, 1, 24, 10, 12
AS_ONE = 0, "goes on\n", ""


def at_once(number):
    return -number, "", "ended at once by a second signal\n"


@pytest.mark.parametrize(
    "pairs, end",
    [
        ([(TERM, 0), (TERM, 0)], AS_ONE),
        ([(TERM, 0), (INT, 0), (HUP, 0), (TERM, 0)], AS_ONE),
        ([(INT, 0), (INT, 0)], AS_ONE),
        ([(INT, 0.2), (TERM, 0)], AS_ONE),
        ([(CPU, 1.1), (CPU, 1.1), (CPU, 0)], AS_ONE),
        ([(USR1, 0), (USR2, 0)], AS_ONE),
        ([(INT, 0.2), (INT, 0)], at_once(INT)),
        ([(TERM, 1.1), (TERM, 0)], at_once(TERM)),
        ([(USR1, 1.1), (TERM, 0)], at_once(TERM)),
        ([(CPU, 1.1), (INT, 0)], at_once(INT)),
    ],
)
def test_signals_that_come_together_count_as_one_and_a_later_one_ends_the_process(pairs, end):
    words = [sys.executable, "-c", SENDING.format(pairs=pairs)]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == end


@pytest.mark.skipif(shutil.which("timeout") is None, reason="no timeout(1) here")
@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_timeout_leaves_the_best_model(tmp_path, data, path, name):
    """timeout(1) signals the command and then its process group: the command gets two signals."""
    number = int(getattr(signal, f"SIG{name}"))
    # timeout passes on a signal that it receives as if its time were over.
    words = [sys.executable, "-m", "randsvm.cli.train", *map(str, SHORT), path, "m"]
    with subprocess.Popen(
        ["timeout", "--signal", name, "600", *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(process, "^ +9 ")
        process.send_signal(signal.SIGALRM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 124
    assert_model_as_reported(Killed(tmp_path, 128 + number, "", said), data, number)


@pytest.mark.parametrize("name", ["-m", "/usr/bin/randsvm-train", "randsvm-predict"])
def test_ctrl_c_while_libraries_are_imported_shows_no_traceback(name):
    code = f"""
import os, signal, sys
sys.argv = [{name!r}]
import randsvm.cli
os.kill(os.getpid(), signal.SIGINT)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_what_is_no_command_keeps_its_handler():
    code = "import randsvm.cli, signal; signal.raise_signal(signal.SIGINT)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert b"KeyboardInterrupt" in ended.stderr


# ---- recorded, then raised --------------------------------------------------------------------


@pytest.fixture
def signalled(monkeypatch):
    """Records a signal, for this test only."""
    monkeypatch.setattr(events._Signals, "first", None)
    monkeypatch.setattr(events._Signals, "raised", False)
    return events.interrupt


def test_a_signal_is_raised_once_by_the_next_event(signalled):
    received = []
    with events.listening(received.append):
        events.emit(events.Notice("before"))
        signalled(signal.SIGTERM)
        signalled(signal.SIGINT)
        with pytest.raises(Interrupted, match=f"signal {signal.SIGTERM:d}") as caught:
            events.emit(events.Notice("lost"))
        events.emit(events.Notice("after"))
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert [event.text for event in received] == ["before", "after"]


def test_a_signal_ends_a_map_and_cancels_its_remaining_calls(
    signalled,
):
    begun, ended, go_on = [], [], threading.Event()

    def work(item):
        begun.append(item)
        signalled(signal.SIGTERM)
        go_on.wait(60)
        ended.append(item)

    with ThreadPool(1) as pool:
        with pytest.raises(Interrupted):
            list(pool.map_in_order(work, range(5)))
        assert ended == []
        go_on.set()
    assert begun == [0]
