"""Full disks, lost files and killed processes: exit codes, messages and files that stay whole."""

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import oracle
import pytest
from commands import run_predict, run_train
from every_fault import contents
from learning import OLD_MODEL, board, jumping_clock, learn
from model_files import load_model
from rows import open_rows, parts_of, svmlight

from randsvm import api
from randsvm.errors import (
    ClusterError,
    GapError,
    InputError,
    Interrupted,
    OutOfMemoryError,
    TransferError,
)
from randsvm.events import Epoch, Iteration, Progress, Started, Trained, listening

OLD, OLD_CACHE, OLD_LABELS = OLD_MODEL, "randsvm cache 0\n", "old\n"


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """Write data, data too large for --memory 16M, models and old outputs."""
    folder = tmp_path_factory.mktemp("faults")
    data = board(2000).save(folder / "data")
    wide = " ".join(f"{j}:1" for j in range(1, 1201))
    (folder / "wide").write_text(f"+1 {wide}\n-1 {wide}\n" * 500)
    learn("randsvm", data, folder / "model", "-g", 5, "-k", 50, "--sample-size", 300)
    learn("sgd", data, folder / "linear")
    for name, old in (("m", OLD), ("c", OLD_CACHE), ("o", OLD_LABELS)):
        (folder / name).write_text(old)
    return folder


@pytest.fixture
def folder(master, tmp_path):
    """Copy the files to the working folder of `command`."""
    shutil.copytree(master, tmp_path, dirs_exist_ok=True)
    return tmp_path


def full_disk(blocks):
    """Return a line of sh for `command`: files hold this many blocks of 512 bytes at most."""
    # Python would leave truncated bytecode of the modules that it imports for the first time.
    return f'ulimit -f {blocks}; PYTHONDONTWRITEBYTECODE=1 exec "$@"'


# ---- full disks -------------------------------------------------------------------------------


SPILL = "the spill file in . (--tmpdir or TMPDIR)"
# The most blocks of 512 bytes that a file may have, a command, and the file that does not fit.
FULL = {
    "model": (8, "train randsvm -q -g 5 data m", "m"),
    "predictions": (8, "predict -q data model o", "o"),
    "spill file": (1000, "train sgd -q --memory 16M --tmpdir . wide m", SPILL),
}


@pytest.mark.parametrize("blocks, line, what", FULL.values(), ids=FULL)
def test_a_full_disk_leaves_every_file_as_it_was(command, folder, blocks, line, what):
    before = contents(folder)
    name, *words = line.split()
    ended = command(name, *words, sh=full_disk(blocks))
    assert (ended.returncode, ended.stdout) == (74, "")
    assert ended.stderr == f"randsvm-{name}: writing {what}: File too large\n"
    assert contents(folder) == before


def lost(what, reason):
    """Return the messages about an optional output that a training cannot write."""
    problem = f"writing {what}: {reason}"
    return (
        f"note: {problem}: the run goes on without it\nrandsvm-train: {problem}: all else is done\n"
    )


@pytest.mark.parametrize("blocks", [8, 94], ids=["chunks", "footer"])
def test_a_cache_without_room_does_not_cost_the_model(command, folder, blocks):
    command("train", "sgd", "-q", "data", "expected")
    before = contents(folder)
    words = ("sgd", "-q", "--cache", "c", "data", "m")
    ended = command("train", *words, sh=full_disk(blocks))
    assert (ended.returncode, ended.stdout) == (74, "")
    assert ended.stderr == lost("c", "File too large")
    assert contents(folder) == {**before, "m": before["expected"]}


def test_a_log_without_room_does_not_cost_the_model(command, folder):
    """The log ends where the disk is full.

    The run also ends above its gap. The line about it comes before the error, which is the last
    line: it explains the exit code.
    """
    words = ("osuna", "-q", "-g", 5, "--working-set", 200, "--swap", 1, "--max-iterations", 30)
    expected = command("train", *words, "data", "expected")
    assert expected.stderr.startswith("GAP NOT REACHED: ")
    sh = full_disk(20)
    ended = command("train", *words, "--log", "log", "data", "m", sh=sh)
    assert (ended.returncode, ended.stdout) == (74, "")
    note, error = lost("log", "File too large").splitlines()
    assert ended.stderr.splitlines() == [note, *expected.stderr.splitlines(), error]
    assert (folder / "m").read_bytes() == (folder / "expected").read_bytes()
    assert 19 * 512 <= (folder / "log").stat().st_size <= 20 * 512


# ---- files that stay ----

KEPT = {
    "data, through a folder that does not exist": "train sgd --epochs 1 data no/../data",
    "model, through a folder that does not exist": "predict data model no/../model",
    "old model, through such a folder": "train sgd data no/../m",
    "data": "predict data model wide",
    "compressed data": "predict data model packed",
    "model": "predict data model m",
    "linear model": "predict data model linear",
    "cache": "predict data model c",
    "table": "predict data model table",
    "text": "predict data model text",
    "data with comments": "predict data model remarks",
}


@pytest.mark.parametrize("line", KEPT.values(), ids=KEPT)
def test_an_output_that_would_destroy_something_else_is_73(command, folder, line):
    (folder / "packed").write_bytes(gzip.compress((folder / "data").read_bytes()))
    (folder / "table").write_text("1,2.5,3\n2,3,1e-3\n")
    (folder / "text").write_text("a letter\n")
    (folder / "remarks").write_text("# made by hand\n1 1:2\n")
    before = contents(folder)
    name, *words = line.split()
    ended = command(name, *words)
    assert (ended.returncode, ended.stdout) == (73, "")
    assert ended.stderr.startswith(f"randsvm-{name}: cannot create {words[-1]}: ")
    assert ended.stderr.count("\n") == 1
    assert contents(folder) == before


@pytest.mark.parametrize(
    "old",
    [
        "spam\nham\n",
        "labels spam ham\nspam 0.25 0.75\n",
        "label normal outlier\n1 0.9 0.1\n",
        "-1.5e-07 2 3\n",
        "+1\n" * 100_000,
    ],
)
def test_old_predictions_of_any_model_are_replaced(command, folder, old):
    (folder / "o").write_text(old)
    assert command("predict", "-q", "data", "model", "o").returncode == 0
    assert (folder / "o").read_text() != old


# ---- standard streams -------------------------------------------------------------------------

SAYING = {
    "help": "train --help",
    "version": "predict --version",
    "help of a command": "train sgd --help",
    "accuracy": "predict -q data model o",
    "labels": "predict -q data model -",
    "model": "train sgd -q data -",
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("line", SAYING.values(), ids=SAYING)
def test_standard_output_on_a_full_disk_is_74(command, folder, line):
    name, *words = line.split()
    ended = command(name, *words, sh='exec "$@" > /dev/full')
    assert ended.returncode == 74
    assert ended.stderr == f"randsvm-{name}: writing <stdout>: No space left on device\n"


@pytest.mark.parametrize("line", SAYING.values(), ids=SAYING)
def test_a_reader_that_closes_its_pipe_ends_the_command_with_141(
    command, folder, closed_pipe, line
):
    name, *words = line.split()
    ended = command(name, *words, stdout=closed_pipe)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


@pytest.fixture
def closed_pipe():
    """Yield the writing end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "how, reason",
    [
        ("> /dev/full", "No space left on device"),
        ("", "Broken pipe"),
        (">&-", "it is closed"),
    ],
)
@pytest.mark.parametrize("words", ["--report json -v 2", "-v 2"])
def test_results_that_cannot_be_printed_do_not_cost_the_model(
    command, folder, closed_pipe, words, how, reason
):
    if "json" not in words and how == ">&-":
        pytest.skip("without --report json, a closed stdout is no error")
    command("train", "sgd", "-q", *words.split(), "data", "expected")
    expected = (folder / "expected").read_bytes()
    words = ("sgd", "-q", *words.split(), "data", "m")
    ended = command("train", *words, sh=f'exec "$@" {how}', stdout=closed_pipe)
    assert (ended.returncode, ended.stderr) == (74, lost("<stdout>", reason))
    assert (folder / "m").read_bytes() == expected


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
@pytest.mark.parametrize("line", ["train --help", "train sgd data m", "predict data model o"])
def test_closed_standard_streams_do_no_harm(command, folder, line, closed):
    name, *words = line.split()
    ended = command(name, *words, sh=f'exec "$@" {closed}')
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    written = folder / words[-1]
    assert not written.exists() or written.read_text() != OLD


# ---- inputs that change under the reader ------------------------------------------------------


def once(kind, act):
    """Return a listener that calls `act` at the first event of a kind."""
    waiting = [act]

    def watch(event):
        if isinstance(event, kind) and waiting:
            waiting.pop()()

    return watch


def read(path, cache=None):
    with open_rows(path, jobs=1, cache=cache) as D:
        return [(part.y.tolist(), part.X.tolist()) for part in parts_of(D)]


@pytest.fixture
def long(tmp_path):
    """Write a file that is read in several blocks."""
    path = tmp_path / "long"
    path.write_text("+1 1:0.5\n-1 1:0.25\n" * 300_000)
    return path


def write_in_place(path, at):
    """Change one digit of a file, which keeps its size."""
    with path.open("r+b") as stream:
        os.pwrite(stream.fileno(), b"7", at)


def append(path):
    with path.open("a") as stream:
        stream.write("+1 1:1\n")


@pytest.mark.parametrize(
    "act, problem",
    [
        (lambda path: os.truncate(path, 5 << 20), "became shorter while in use"),
        (lambda path: write_in_place(path, 5), "changed while it was read"),
        (append, "changed while it was read"),
        (os.utime, "changed while it was read"),
    ],
    ids=["cut", "in place", "longer", "touched"],
)
def test_a_file_that_changes_while_it_is_read_is_refused(long, act, problem):
    """Otherwise the model would be trained on a part of a file, or on a mixture of two."""
    os.utime(long, (1, 1))
    with (
        listening(once(Progress, lambda: act(long))),
        pytest.raises(TransferError, match=rf"reading .*long: it {problem}"),
    ):
        read(long)


@pytest.mark.parametrize(
    "act, error",
    [
        (Path.unlink, InputError),
        (lambda path: os.truncate(path, 100), TransferError),
        (append, TransferError),
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
        read(long, cache)
    assert cache.read_text() == OLD_CACHE
    assert {path.name for path in long.parent.iterdir()} <= {"long", "cache"}


def train_with(name, folder, act):
    """Train with a cache, and call `act` as soon as it is open."""
    data, model = folder / "data", folder / "m"
    given = {"jobs": 2, "cache": folder / "cache"}
    watch = once(Started, act)
    if name == "sgd":
        api.train(data, model, "sgd", watch, **given)
    else:
        api.train(data, model, "osuna", watch, gamma=5, working_set=500, gap=1e-3, **given)


def write_later(path):
    """Write after the tick of the clock in which the cache was written."""
    time.sleep(0.05)
    write_in_place(path, 200)


@pytest.mark.parametrize("used", [False, True], ids=["just written", "found"])
@pytest.mark.parametrize("name", ["sgd", "osuna"])
@pytest.mark.parametrize(
    "act, problem",
    [(lambda path: os.truncate(path, 1000), "became shorter"), (write_later, "changed")],
    ids=["cut", "written to"],
)
def test_a_cache_that_changes_while_in_use_ends_training(folder, name, used, act, problem):
    cache = folder / "cache"
    if used:
        read(folder / "data", cache)
    with pytest.raises(TransferError, match=rf"reading .*cache: it {problem} while in use"):
        train_with(name, folder, lambda: act(cache))
    assert (folder / "m").read_text() == OLD


# ---- interrupted runs and better models ----


@pytest.fixture
def good(folder):
    """Write a certified model in place of the old one; return its bytes."""
    learn("randsvm", folder / "data", folder / "m", "-g", 5)
    assert float(oracle.trailer(folder / "m")["gap"]) <= 1e-3
    return (folder / "m").read_bytes()


def signalled():
    raise Interrupted(signal.SIGINT)


def without_cluster():
    raise ClusterError("the cluster does not go on")


# What happens in the first round, and the error that ends the run.
ENDS = {
    "signal": (signalled, Interrupted, 130),
    "cluster": (without_cluster, ClusterError, 69),
    "time limit": (None, GapError, 75),
}


def interrupt_training(folder, end, received, **given):
    """Train to the model file m, and interrupt the run in its first round."""
    rule = {"working_set": 100, "swap": 1, "gap": 1e-9, "time_limit": 1000}
    with jumping_clock() as jump:
        first = once(Iteration, ENDS[end][0] or jump)

        def watch(event):
            received.append(event)
            first(event)

        api.train(folder / "data", folder / "m", "osuna", watch, gamma=5, **rule, **given)


ends = pytest.mark.parametrize("end", ENDS)


@ends
def test_an_interrupted_run_does_not_replace_a_better_model(folder, good, end):
    received = []
    _, error, code = ENDS[end]
    with pytest.raises(error) as caught:
        interrupt_training(folder, end, received)
    assert caught.value.exit_code == code
    new = folder / "m.interrupted"
    assert (folder / "m").read_bytes() == good
    metadata = oracle.trailer(new)
    # A time limit that ends within a step leaves no time for any bound.
    assert metadata["gap"] is None if end == "time limit" else float(metadata["gap"]) > 0.1
    assert load_model(new)
    last = received[-1]
    assert isinstance(last, Trained)
    assert (last.model, last.saved) == (str(new), True)
    assert f"{folder / 'm'} stays" in str(caught.value)
    assert f"is {new}; --overwrite" in str(caught.value)
    assert "stays" not in metadata["stopped"]


def test_weights_without_a_gap_do_not_replace_a_certified_model(folder):
    """The signal comes before the first Newton step."""
    given = {"gap": 0.1, "epochs": 1}
    api.train(folder / "data", folder / "m", "sgd", **given)
    good = (folder / "m").read_bytes()
    assert oracle.trailer(folder / "m")["gap"] <= 0.1
    with pytest.raises(Interrupted, match=r"the new model .* is .*interrupted"):
        api.train(folder / "data", folder / "m", "sgd", once(Epoch, signalled), **given)
    assert (folder / "m").read_bytes() == good
    assert "gap" not in oracle.trailer(folder / "m.interrupted")


@ends
def test_an_interrupted_run_does_not_replace_a_better_interrupted_model(folder, good, end):
    shutil.copy(folder / "m", folder / "m.interrupted")
    received = []
    with pytest.raises(ENDS[end][1], match=r"is not written, as .*interrupted also stays"):
        interrupt_training(folder, end, received)
    assert (folder / "m.interrupted").read_bytes() == (folder / "m").read_bytes() == good
    assert not received[-1].saved


@ends
def test_with_overwrite_a_better_model_is_replaced(folder, good, end):
    if end == "time limit":
        interrupt_training(folder, end, [], overwrite=True)
    else:
        with pytest.raises(ENDS[end][1], match=r"^(?!.*stays)"):
            interrupt_training(folder, end, [], overwrite=True)
    assert (folder / "m").read_bytes() != good
    assert not (folder / "m.interrupted").exists()


ONE_ROUND = "--gap 1e-9 --max-iterations 1 --working-set 10 --swap 1"
# How a model is trained, and what is done to its file.
NOT_BETTER = {
    "worse": (f"osuna -g 5 {ONE_ROUND}", bytes),
    "regression": ("randsvm -g 5 -s svr", bytes),
    "damaged": ("randsvm -g 5", lambda content: content.replace(b"SV", b"S V", 1)),
    "of LIBSVM": ("randsvm -g 5", lambda content: content.partition(b"# randsvm")[0]),
    "of sgd": ("sgd", bytes),
}


@pytest.mark.parametrize("words, altered", NOT_BETTER.values(), ids=NOT_BETTER)
def test_a_model_that_is_not_better_is_replaced(folder, words, altered):
    algorithm, *words = words.split()
    learn(algorithm, folder / "data", folder / "m", *words)
    before = altered((folder / "m").read_bytes())
    (folder / "m").write_bytes(before)
    with pytest.raises(Interrupted, match=r"^interrupted by Ctrl-C$"):
        interrupt_training(folder, "signal", [])
    assert (folder / "m").read_bytes() != before
    assert not (folder / "m.interrupted").exists()


# ---- pipes that end too early, memory that ends ----


@pytest.mark.parametrize("runs, option", [("train", "--memory or --jobs"), ("predict", "--jobs")])
def test_out_of_memory_is_one_line_and_71(folder, monkeypatch, runs, option):
    monkeypatch.chdir(folder)
    parse = svmlight.parse_piece

    def fail(*_, **__):
        monkeypatch.setattr(svmlight, "parse_piece", parse)
        raise MemoryError

    monkeypatch.setattr(svmlight, "parse_piece", fail)
    words = ["sgd", "-q", "data", "m"] if runs == "train" else ["-q", "data", "model", "o"]
    stage = " while reading" if runs == "train" else ""  # no progress of a prediction yet
    with pytest.raises(OutOfMemoryError, match=f"^out of memory{stage}: lower {option}$"):
        (run_train if runs == "train" else run_predict)(*words)
    assert OutOfMemoryError.exit_code == 71


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ulimit -v is Linux's")
def test_a_bound_on_memory_shows_no_traceback(command, folder):
    """The bound may be exceeded anywhere after the libraries are loaded."""
    rows = (folder / "data").read_text() * 200
    (folder / "large").write_text(rows)
    code = (
        "import resource, sys; from randsvm.cli import train; "
        "import randsvm.training.linear_machine; "
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize(); "
        "resource.setrlimit(resource.RLIMIT_AS, (size + 20_000_000, size + 20_000_000)); "
        "sys.argv[0] = 'randsvm-train'; train.main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "sgd", "-q", "--jobs", "1", "large", "m"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 71
    assert re.fullmatch("randsvm-train: out of memory[^\\n]*\\n", ended.stderr)
    assert (folder / "m").read_text() == OLD


# ---- two runs at once -------------------------------------------------------------------------


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

# A program that saves two models in turn until it is killed.
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from randsvm.models.model_text import load, save

models = [load("one"), load("other")]
for _ in range(20):
    writer = os.fork()
    while writer == 0:
        for model in models:
            save(model, "m")
    time.sleep(random.uniform(0.001, 0.03))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    print(Path("m").read_bytes() in (Path("one").read_bytes(), Path("other").read_bytes()))
"""


def test_a_kill_while_a_model_is_written_leaves_the_old_or_the_new_one(folder, command):
    """A killed run may leave a temporary file, which does not disturb later runs."""
    for name, seed in (("one", 0), ("other", 1)):
        words = ("-g", 5, "-k", 500, "--sample-size", 1500, "--seed", seed)
        learn("randsvm", folder / "data", folder / name, *words)
    (folder / "m").write_bytes((folder / "one").read_bytes())
    before = set(contents(folder))
    ended = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert (ended.stdout, ended.stderr) == ("True\n" * 20, "")
    left = set(contents(folder)) - before
    assert left  # some were killed half-way
    assert all(re.fullmatch(r"\.m\.[0-9a-f]{16}", name) for name in left)
    assert command("predict", "-q", "data", "m", "o").returncode == 0
    assert command("train", "sgd", "-q", "data", "m").returncode == 0
