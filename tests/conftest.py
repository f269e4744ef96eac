"""Set up the test run, and define the fixtures that several test files share."""

import os

# As the commands set it before they import numpy: the sums of BLAS depend on its number of threads.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import ctypes
import importlib
import itertools
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from commands import run_predict, run_train
from fork_server import ForkServer
from hypothesis import HealthCheck, settings
from sizes import change_sizes

SCRIPTS = Path(__file__).parents[1] / "scripts"


class TrainRun(NamedTuple):
    """The model file of a training run, and its text on stderr."""

    model: Path
    stderr: str

    @property
    def metadata(self):
        return oracle.trailer(self.model)


class PredictRun(NamedTuple):
    """The lines that a prediction wrote, and its text on stdout and stderr."""

    lines: list[str]
    out: str
    err: str

    @property
    def scores(self):
        return np.array(self.lines, float)


# `make test` tries the same examples each time; `make fuzz` tries new ones, with the profile "new".
# An example takes any time on a busy machine.
slow_examples = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("new", slow_examples)
settings.register_profile("same", slow_examples, derandomize=True)
settings.load_profile("same")


def pytest_configure(config):
    """Let the processes that tests start receive the signals that this process ignores.

    nohup ignores SIGHUP, and a background job of a script ignores SIGINT and SIGQUIT. A new program
    inherits ignored signals, but gets the default action of a signal that has a handler here.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


def pytest_addoption(parser):
    parser.addoption("--fuzz-seed", type=int, default=0, help="Seed of the cases of -m fuzz.")


def asks_for_fuzz(config):
    """Return whether -m names the marker fuzz."""
    return "fuzz" in config.option.markexpr


def pytest_collection_modifyitems(config, items):
    """Leave out the long fuzz tests unless -m names them."""
    if not asks_for_fuzz(config):
        long = [item for item in items if item.get_closest_marker("fuzz")]
        items[:] = [item for item in items if not item.get_closest_marker("fuzz")]
        config.hook.pytest_deselected(items=long)


@pytest.fixture(autouse=True)
def _same_folds_of_libsvm():
    """Seed C's rand(), from which LIBSVM draws its folds. 1 is the seed in svm-train.

    Otherwise the folds would depend on the tests that ran before in this process.
    """
    ctypes.CDLL(None).srand(1)


@pytest.fixture(scope="session")
def fuzzes(pytestconfig):
    return asks_for_fuzz(pytestconfig)


@pytest.fixture(scope="session")
def fuzz_seed(pytestconfig):
    return int(pytestconfig.option.fuzz_seed)


@pytest.fixture(scope="session")
def results():
    """The folder that keeps the files of failed cases."""
    folder = SCRIPTS.parent / "results"
    folder.mkdir(exist_ok=True)
    return folder


def pytest_terminal_summary(terminalreporter):
    """Count how the trainings ended whose certificates an exact judge saw in `make fuzz`."""
    noted = SCRIPTS.parent / "results" / "certificates.txt"
    if asks_for_fuzz(terminalreporter.config) and noted.exists():
        ended = dict(line.split("\t") for line in noted.read_text().splitlines())
        for how, count in Counter(ended.values()).most_common():
            terminalreporter.write_line(f"certificates: {count} {how}")


@pytest.fixture
def script(monkeypatch):
    """Import a module of the folder scripts by its name."""
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """made(name, rows, ...): write a set of oracle.py to a file; return its path, y and X."""
    folder = tmp_path_factory.mktemp("made")

    def make(name, *arguments):
        y, X = getattr(oracle, name)(*arguments)
        path = folder / ".".join([name, *map(str, arguments)])
        if not path.exists():
            oracle.write_svmlight(path, y, X)
        return path, y, X

    return make


@pytest.fixture
def set_sizes(monkeypatch):
    """set_sizes(float64_rows=0, chunk_rows=20): change sizes of the package; see sizes.py."""
    return partial(change_sizes, monkeypatch)


@pytest.fixture
def train(tmp_path, capsys):
    """train(file, "-g", 1, ...): run `randsvm-train randsvm` within this process.

    Errors are raised as exceptions. Each call writes another model.
    """
    numbers = itertools.count()

    def run(data, *words):
        model = tmp_path / f"{next(numbers)}.model"
        run_train("randsvm", *words, data, model)
        return TrainRun(model, capsys.readouterr().err)

    return run


@pytest.fixture
def predict(tmp_path, capsys):
    """predict(file, model, "--scores", ...): run `randsvm-predict` within this process."""

    def run(data, model, *words):
        output = tmp_path / "output"
        run_predict(*words, data, model, output)
        return PredictRun(output.read_text().splitlines(), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def fork_server():
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def command(tmp_path, fork_server):
    """command("train", "randsvm", ...): run the command as its own process in tmp_path.

    sh: a line of sh that runs it as "$@"; streams: where stdout or stderr goes instead.
    """

    def run(name, *words, stdin=b"", sh=None, **streams):
        words = [*map(str, words)]
        if sh is None and not streams:
            ended = fork_server.run(name, words, tmp_path, stdin)
        else:
            program = [sys.executable, "-m", f"randsvm.cli.{name}", *words]
            ended = subprocess.run(
                ["sh", "-c", sh or 'exec "$@"', "sh", *program],
                input=stdin,
                cwd=tmp_path,
                timeout=120,
                stdout=streams.get("stdout", subprocess.PIPE),
                stderr=streams.get("stderr", subprocess.PIPE),
            )
        stdout, stderr = (
            (stream or b"").decode("utf-8", "surrogateescape")
            for stream in (ended.stdout, ended.stderr)
        )
        return subprocess.CompletedProcess(ended.args, ended.returncode, stdout, stderr)

    return run
