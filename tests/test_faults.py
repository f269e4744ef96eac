"""What the system refuses, takes away or kills: an exit code, a line, and nothing half-written."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from learning import OLD_MODEL, board, learn

from randsvm import api, files
from randsvm.data import dataset, reading
from randsvm.data.dataset import ParseOptions
from randsvm.errors import InputError, Interrupted, OutputError, TransferError
from randsvm.events import Progress, Started, listening
from randsvm.models.load import load
from randsvm.parameters.rounds import OsunaParams, StopParams
from randsvm.parameters.run import Resources
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params
from randsvm.training.job import Job

OLD, OLD_CACHE = OLD_MODEL, "randsvm cache 0\n"


@pytest.fixture(scope="module")
def master(tmp_path_factory) -> Path:
    """Rows, rows too many for --memory 16M, models, and old outputs."""
    folder = tmp_path_factory.mktemp("faults")
    data = board(2000).save(folder / "data")
    wide = " ".join(f"{j}:1" for j in range(1, 1201))
    (folder / "wide").write_text(f"+1 {wide}\n-1 {wide}\n" * 500)
    learn("randsvm", data, folder / "model", "-g", 5, "-k", 50, "--sample-size", 300)
    learn("sgd", data, folder / "linear")
    for name, old in (("m", OLD), ("c", OLD_CACHE), ("o", "the old file\n")):
        (folder / name).write_text(old)
    return folder


@pytest.fixture
def folder(master, tmp_path) -> Path:
    """The same, where `command` works."""
    shutil.copytree(master, tmp_path, dirs_exist_ok=True)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- full disks -------------------------------------------------------------------------------


# Where files may grow to so many blocks of 512 bytes: the command, and what does not fit.
FULL = {
    "model": (8, "train randsvm -q -g 5 data m", "m"),
    "linear model": (1, "train sgd -q data m", "m"),
    "updated model": (1, "train sgd -q --update linear data m", "m"),
    "predictions": (8, "predict -q data model o", "o"),
    "cache": (8, "train sgd -q --cache c data m", "c"),
    "footer of the cache": (94, "train sgd -q --cache c data m", "c"),
    "spill file": (1000, "train sgd -q --memory 16M --tmpdir . wide m", "the spill file"),
    "end of the spill file": (9390, "train sgd -q --memory 16M wide m", "the spill file"),
}


@pytest.mark.parametrize("blocks, line, what", FULL.values(), ids=FULL)
def test_a_full_disk_leaves_every_file_as_it_was(command, folder, blocks, line, what):
    before = contents(folder)
    name, *words = line.split()
    ended = command(name, *words, sh=f'ulimit -f {blocks}; exec "$@"')
    assert (ended.returncode, ended.stdout) == (74, "")
    assert ended.stderr == f"randsvm-{name}: writing {what}: File too large\n"
    assert contents(folder) == before


def test_a_log_ends_with_the_last_line_that_the_disk_took(command, folder):
    words = ("osuna", "-q", "-g", 5, "--working-set", 200, "--swap", 1, "--log", "log")
    ended = command("train", *words, "data", "m", sh='ulimit -f 8; exec "$@"')
    assert (ended.returncode, ended.stdout) == (74, "")
    assert ended.stderr == "randsvm-train: writing log: File too large\n"
    assert (folder / "m").read_text() == OLD
    assert (folder / "log").stat().st_size <= 8 * 512


def test_a_spill_file_that_cannot_be_created_is_73(command, folder):
    words = ("sgd", "-q", "--memory", "16M", "--tmpdir", "data/no", "wide", "m")
    ended = command("train", *words)
    assert (ended.returncode, ended.stdout) == (73, "")
    assert ended.stderr == (
        "randsvm-train: cannot create a spill file in data/no: Not a directory\n"
    )
    assert (folder / "m").read_text() == OLD


def test_permissions_that_cannot_be_kept_leave_the_old_file_and_no_other(folder, monkeypatch):
    """Some file systems know none."""

    def fail(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    before = contents(folder)
    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(OutputError, match=r"cannot create .*m: Operation not permitted"):
        load(str(folder / "model")).save(str(folder / "m"))
    assert contents(folder) == before


# ---- standard streams -------------------------------------------------------------------------

SAYING = {
    "help": "train --help",
    "version": "predict --version",
    "help of a command": "train sgd --help",
    "summary": "train sgd -q --report json data m",
    "accuracy": "predict -q data model o",
    "labels": "predict -q data model -",
    "model": "train sgd -q data -",
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("line", SAYING.values(), ids=SAYING)
def test_standard_output_on_a_full_disk_is_74(command, folder, line):
    name, *words = line.split()
    ended = command(name, *words, sh='exec "$@" > /dev/full')
    assert ended.returncode == 74
    assert ended.stderr == f"randsvm-{name}: writing <stdout>: No space left on device\n"


@pytest.mark.parametrize("line", SAYING.values(), ids=SAYING)
def test_a_reader_that_went_away_is_141_without_a_word(command, folder, gone, line):
    name, *words = line.split()
    ended = command(name, *words, stdout=gone)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


@pytest.fixture
def gone():
    """The writing end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("line", ["train sgd data m", "train sgd --bogus", "train sgd no m"])
def test_nobody_hears_what_goes_wrong(command, folder, gone, line):
    name, *words = line.split()
    before = contents(folder)
    ended = command(name, *words, stderr=gone)
    # An error of its own keeps its code; else the pipe is what went wrong.
    assert ended.returncode == (66 if "no" in words else 128 + signal.SIGPIPE)
    assert (ended.stdout, contents(folder)) == ("", before)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_standard_error_on_a_full_disk_is_74_and_the_old_model_stays(command, folder):
    before = contents(folder)
    ended = command("train", "sgd", "data", "m", sh='exec "$@" 2> /dev/full')
    assert (ended.returncode, ended.stdout, contents(folder)) == (74, "", before)


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
@pytest.mark.parametrize("line", ["train --help", "train sgd data m", "predict data model o"])
def test_closed_standard_streams_do_no_harm(command, folder, line, closed):
    name, *words = line.split()
    ended = command(name, *words, sh=f'exec "$@" {closed}')
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    written = folder / words[-1]
    assert not written.exists() or written.read_text() != OLD


def test_head_takes_one_line_and_ends_the_prediction(command, folder):
    rows = folder / "rows"
    rows.write_text((folder / "data").read_text() * 50)  # more than a pipe holds
    sh = '{ "$@"; echo "$?" > code; } | head -n 1'
    ended = command("predict", "-q", "rows", "model", "-", sh=sh)
    assert (ended.stdout in ("+1\n", "-1\n"), ended.stderr) == (True, "")
    assert (folder / "code").read_text() == f"{128 + signal.SIGPIPE}\n"


# ---- inputs that change under the reader ------------------------------------------------------


def once(kind: type, act: Callable[[], object]) -> Callable[[object], None]:
    """A listener that acts at the first event of a kind."""
    waiting = [act]

    def watch(event: object) -> None:
        if isinstance(event, kind) and waiting:
            waiting.pop()()

    return watch


def read(path: Path, resources: Resources | None = None) -> list[list]:
    with closing(dataset.load(str(path), ParseOptions(), resources or Resources(jobs=1))) as D:
        return [
            [chunk.y.tolist(), chunk.X.toarray().tolist()]
            for shard in D.shards
            for chunk in D.chunks(shard)
        ]


@pytest.fixture
def long(tmp_path) -> Path:
    """A file that is read in several blocks."""
    path = tmp_path / "long"
    path.write_text("+1 1:0.5\n-1 1:0.25\n" * 300_000)
    return path


def test_a_file_that_is_cut_while_it_is_read_is_refused(long):
    """Its rows would be read as a smaller set."""
    with (
        listening(once(Progress, lambda: os.truncate(long, 5 << 20))),
        pytest.raises(TransferError, match=r"reading .*long: it became shorter while in use"),
    ):
        read(long)


def write_in_place(path: Path, at: int) -> None:
    """Change one digit of a file, which keeps its size."""
    with path.open("r+b") as stream:
        os.pwrite(stream.fileno(), b"7", at)


def append(path: Path) -> None:
    with path.open("a") as stream:
        stream.write("+1 1:1\n")


@pytest.mark.parametrize(
    "act",
    [lambda path: write_in_place(path, 5), append, os.utime],
    ids=["in place", "longer", "touched"],
)
def test_a_file_that_is_written_to_while_it_is_read_is_refused(long, act):
    """The model would be of rows that no file ever had."""
    os.utime(long, (1, 1))
    with (
        listening(once(Progress, lambda: act(long))),
        pytest.raises(TransferError, match=r"reading .*long: it changed while it was read"),
    ):
        read(long)


def test_a_file_that_is_removed_while_it_is_read_is_read_to_its_end(long):
    expected = read(long)
    with listening(once(Progress, long.unlink)):
        assert read(long) == expected


@pytest.mark.parametrize(
    "act, error",
    [
        (Path.unlink, InputError),
        (lambda path: os.truncate(path, 100), TransferError),
        (lambda path: path.write_text(path.read_text() + "+1 1:1\n"), TransferError),
        (os.utime, TransferError),
    ],
    ids=["removed", "cut", "longer", "touched"],
)
def test_a_source_that_changes_while_it_is_cached_leaves_the_old_cache(long, act, error):
    cache = long.with_name("cache")
    cache.write_text(OLD_CACHE)
    with (
        listening(once(Progress, lambda: act(long))),
        pytest.raises(error, match=r"cannot open|became shorter|changed while it was read"),
    ):
        read(long, Resources(cache=str(cache)))
    assert cache.read_text() == OLD_CACHE
    assert {path.name for path in long.parent.iterdir()} <= {"long", "cache"}


def train_with(name: str, folder: Path, act: Callable[[], object]) -> None:
    """Train through a cache, and act when it has been opened."""
    data, model = str(folder / "data"), str(folder / "m")
    job = Job(StopParams(gap=1e-3), resources=Resources(jobs=2, cache=str(folder / "cache")))
    watch = once(Started, act)
    if name == "sgd":
        api.train_sgd(data, model, SgdParams(), job, watch)
    else:
        api.train_osuna(data, model, Params(gamma=5), OsunaParams(working_set=500), job, watch)


@pytest.mark.parametrize("used", [False, True], ids=["just written", "found"])
@pytest.mark.parametrize("name", ["sgd", "osuna"])
def test_a_cache_that_is_cut_while_in_use_ends_training(folder, name, used):
    if used:
        read(folder / "data", Resources(cache=str(folder / "cache")))
    with pytest.raises(TransferError, match=r"reading .*cache: it became shorter while in use"):
        train_with(name, folder, lambda: os.truncate(folder / "cache", 1000))
    assert (folder / "m").read_text() == OLD


@pytest.mark.parametrize("used", [False, True], ids=["just written", "found"])
@pytest.mark.parametrize("name", ["sgd", "osuna"])
def test_a_cache_that_is_written_to_while_in_use_ends_training(folder, name, used):
    cache = folder / "cache"
    if used:
        read(folder / "data", Resources(cache=str(cache)))

    def act() -> None:
        # Later than the tick of the clock in which the cache was written.
        time.sleep(0.05)
        write_in_place(cache, 200)

    with pytest.raises(TransferError, match=r"reading .*cache: it changed while in use"):
        train_with(name, folder, act)
    assert (folder / "m").read_text() == OLD


@pytest.mark.parametrize("name", ["sgd", "osuna"])
def test_a_cache_that_is_removed_while_in_use_is_still_there(folder, name):
    train_with(name, folder, lambda: None)
    content = (folder / "m").read_bytes()
    train_with(name, folder, (folder / "cache").unlink)
    assert (folder / "m").read_bytes() == content
    assert load(str(folder / "m"))


@pytest.mark.parametrize("name", ["data", "model", "c"])
def test_what_may_not_be_read_is_66_and_such_a_cache_is_made_anew(command, folder, name):
    (folder / name).chmod(0)
    if os.access(folder / name, os.R_OK):
        pytest.skip("this user may read everything")
    words = {"data": "train sgd data m", "model": "predict data model o"}
    command_name, *words = words.get(name, "train sgd --cache c data m").split()
    ended = command(command_name, *words)
    assert ended.returncode == (0 if name == "c" else 66)
    assert ("Permission denied" in ended.stderr) == (name != "c")


# ---- two runs at once -------------------------------------------------------------------------


def test_of_two_runs_that_write_one_model_the_last_to_end_wins(folder):
    first, last = ((folder / name).read_bytes() for name in ("data", "model"))
    with files.create_output(str(folder / "m")) as stream:
        stream.write(last)
        with files.create_output(str(folder / "m")) as other:
            other.write(first)
        assert (folder / "m").read_bytes() == first
    assert (folder / "m").read_bytes() == last
    assert not [name for name in contents(folder) if name.startswith(".")]


@pytest.mark.parametrize("zero_based", [False, True], ids=["of its kind", "of another kind"])
def test_a_cache_that_another_run_replaces_at_once_is_used_as_written(
    folder, monkeypatch, zero_based
):
    """Between the moment when it gets its name and the first reading of it."""
    path, cache = folder / "data", Resources(cache=str(folder / "c"))
    expected = read(path)
    other = ParseOptions(zero_based=zero_based)

    def meanwhile(_: Path) -> None:
        monkeypatch.undo()
        dataset.load(str(path), other, cache).close()

    monkeypatch.setattr(files, "_sync_folder", meanwhile)
    assert read(path, cache) == expected
    # What stands there now is a whole cache: the other's.
    monkeypatch.setattr(reading, "read_blocks", None)
    with closing(dataset.load(str(path), other, cache)) as D:
        assert D.n == 2000


@pytest.mark.parametrize("shared", ["m", "c"], ids=["model", "cache"])
def test_two_processes_at_once_leave_a_whole_file_of_one_of_them(command, folder, shared):
    words = ("sgd", "-q", "--cache", "c") if shared == "c" else ("sgd", "-q")
    each = []
    for seed in (0, 1):
        command("train", *words, "--seed", seed, "data", "m")
        each.append((folder / shared).read_bytes())
    sh = '"$@" & "$@" --seed 1 & wait'
    ended = command("train", *words, "data", "m", sh=sh)
    assert (ended.stdout, ended.stderr) == ("", "")
    assert (folder / shared).read_bytes() in each
    assert not [name for name in contents(folder) if name.startswith(".")]


# ---- kills ------------------------------------------------------------------------------------

# Saves one model and the other, over and over; is killed 50 times; what stands then is told apart.
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from randsvm.models.load import load

models = [load("one"), load("other")]
for _ in range(50):
    writer = os.fork()
    while writer == 0:
        for model in models:
            model.save("m")
    time.sleep(random.uniform(0.001, 0.03))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    print(Path("m").read_bytes() in (Path("one").read_bytes(), Path("other").read_bytes()))
"""


def test_killed_while_a_model_is_written_the_old_or_the_new_one_stands(folder, command):
    """What a kill leaves besides has a name of its own, and no later run minds it."""
    for name, seed in (("one", 0), ("other", 1)):
        words = ("-g", 5, "-k", 500, "--sample-size", 1500, "--seed", seed)
        learn("randsvm", folder / "data", folder / name, *words)
    (folder / "m").write_bytes((folder / "one").read_bytes())
    before = set(contents(folder))
    ended = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert (ended.stdout, ended.stderr) == ("True\n" * 50, "")
    left = set(contents(folder)) - before
    assert left  # some were killed half-way
    assert all(re.fullmatch(r"\.m\.[0-9a-f]{16}", name) for name in left)
    assert command("predict", "-q", "data", "m", "o").returncode == 0
    assert command("train", "sgd", "-q", "data", "m").returncode == 0


# A command whose first fsync, of the file that it has just written, takes a minute.
SLOW = """
import os, sys, time

def slowly(descriptor, fsync=os.fsync):
    os.fsync = fsync
    print("writing", file=sys.stderr, flush=True)
    time.sleep(1)  # as long as a slow disk takes: nothing can break that off

os.fsync = slowly
from randsvm.cli import {}
{}.main()
"""

# The command, and the file whose writing a signal meets.
WRITING = {
    "model": ("train osuna -q -g 5 data m", "m"),
    "linear model": ("train sgd -q data m", "m"),
    "cache": ("train sgd -q --cache c data m", "c"),
    "predictions": ("predict -q data model o", "o"),
}


signals = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@signals
@pytest.mark.parametrize("line, written", WRITING.values(), ids=WRITING)
def test_a_signal_while_a_file_is_written_leaves_a_whole_one(folder, line, written, number):
    name, *words = line.split()
    before = contents(folder)
    with subprocess.Popen(
        [sys.executable, "-c", SLOW.replace("{}", name), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "writing\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.splitlines()[-1] == f"randsvm-{name}: {Interrupted(number)}"
    after = contents(folder)
    assert set(after) == set(before)
    assert {name for name in after if after[name] != before[name]} <= {written}
    if after["m"] != before["m"]:
        load(str(folder / "m"))
    assert after["o"].count(b"\n") in (before["o"].count(b"\n"), before["data"].count(b"\n"))


@signals
def test_a_signal_while_rows_to_predict_are_awaited_leaves_the_old_output(folder, number):
    before = contents(folder)
    with subprocess.Popen(
        [sys.executable, "-m", "randsvm.cli.predict", "-", "model", "o"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(before["data"])
        process.stdin.flush()
        while not any(name.startswith(".o.") for name in contents(folder)):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        said = process.stderr.read().decode()
    assert said == f"randsvm-predict: {Interrupted(number)}\n"
    assert contents(folder) == before
