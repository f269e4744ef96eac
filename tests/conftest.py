"""What several test files share: made data sets as files, real data, the commands as processes."""

from __future__ import annotations

import importlib
import itertools
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from running import run_predict, run_train

REAL_DATA = Path(os.environ.get("RANDSVM_DATA", Path(__file__).parents[1] / "../shared/data"))
SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch) -> Callable[[str], ModuleType]:
    """Imports a script of the folder scripts by its name."""
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module


@pytest.fixture(scope="session")
def real(tmp_path_factory) -> Callable[[str], Path]:
    """real(name): a real data set, decompressed, since LIBSVM's own reader knows no xz."""
    folder = tmp_path_factory.mktemp("real")

    def find(name: str) -> Path:
        source, plain = REAL_DATA / f"{name}.xz", folder / name
        if not source.exists():
            pytest.skip(f"no {source.name} in the folder of real data (RANDSVM_DATA)")
        if not plain.exists():
            plain.write_bytes(lzma.decompress(source.read_bytes()))
        return plain

    return find


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Callable[..., tuple[Path, np.ndarray, np.ndarray]]:
    """made(name, rows, ...): a set of oracle.py as a file, and its y and X."""
    folder = tmp_path_factory.mktemp("made")

    def make(name: str, *arguments: int) -> tuple[Path, np.ndarray, np.ndarray]:
        y, X = getattr(oracle, name)(*arguments)
        path = folder / ".".join([name, *map(str, arguments)])
        if not path.exists():
            oracle.write_svmlight(path, y, X)
        return path, y, X

    return make


class Trained(NamedTuple):
    """What a training run left: the model file and what was said on stderr."""

    model: Path
    said: str

    @property
    def facts(self) -> dict[str, str]:
        return oracle.trailer(self.model)

    @property
    def body(self) -> bytes:
        """The model without its trailer."""
        return self.model.read_bytes().partition(b"# randsvm")[0]

    @property
    def iterations(self) -> int:
        return int(re.search(r"after ([0-9]+) iteration", self.said)[1])


@pytest.fixture
def train(tmp_path, capsys) -> Callable[..., Trained]:
    """train(file, "-g", 1, ...): `randsvm-train randsvm` within this process, a model per call.

    Errors come as exceptions; what a process adds to that is the business of test_train.py.
    """
    numbers = itertools.count()

    def run(data: Path | str, *words: object) -> Trained:
        model = tmp_path / f"{next(numbers)}.model"
        arguments = ["randsvm", *map(str, words), str(data), str(model)]
        run_train(*arguments)
        return Trained(model, capsys.readouterr().err)

    return run


class Predicted(NamedTuple):
    """What a prediction left: the output's lines, and what was said."""

    lines: list[str]
    out: str
    err: str

    @property
    def scores(self) -> np.ndarray:
        return np.array(self.lines, float)


@pytest.fixture
def predict(tmp_path, capsys) -> Callable[..., Predicted]:
    """predict(file, model, "--scores", ...): `randsvm-predict` within this process."""

    def run(data: Path | str, model: Path, *words: object) -> Predicted:
        output = tmp_path / "output"
        arguments = [*map(str, words), str(data), str(model), str(output)]
        run_predict(*arguments)
        return Predicted(output.read_text().splitlines(), *capsys.readouterr())

    return run


@pytest.fixture
def command(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """command("train", "randsvm", ...): the command as its own process, in tmp_path.

    sh: a line of sh that runs it as "$@"; streams: where stdout or stderr goes instead.
    """

    def run(
        name: str, *words: object, stdin: bytes = b"", sh: str = 'exec "$@"', **streams: int
    ) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", f"randsvm.cli.{name}", *map(str, words)]
        ended = subprocess.run(
            ["sh", "-c", sh, "sh", *program],
            input=stdin,
            cwd=tmp_path,
            timeout=120,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        )
        streams = (
            (stream or b"").decode("utf-8", "surrogateescape")
            for stream in (ended.stdout, ended.stderr)
        )
        return subprocess.CompletedProcess(ended.args, ended.returncode, *streams)

    return run
