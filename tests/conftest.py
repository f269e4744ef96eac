"""What several test files share: made data sets as files, real data, the commands as processes."""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import oracle
import pytest

REAL_DATA = Path(os.environ.get("RANDSVM_DATA", Path(__file__).parents[1] / "../shared/data"))


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
    """made(name, rows): a set of oracle.py as a file, and its y and X."""
    folder = tmp_path_factory.mktemp("made")

    def make(name: str, rows: int) -> tuple[Path, np.ndarray, np.ndarray]:
        y, X = getattr(oracle, name)(rows)
        path = folder / f"{name}.{rows}"
        if not path.exists():
            oracle.write_svmlight(path, y, X)
        return path, y, X

    return make


@pytest.fixture
def command(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """command("train", "randsvm", ...): the command as its own process, in tmp_path."""

    def run(name: str, *words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", f"randsvm.cli.{name}", *map(str, words)],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            timeout=120,
        )
        streams = (
            stream.decode("utf-8", "surrogateescape") for stream in (ended.stdout, ended.stderr)
        )
        return subprocess.CompletedProcess(ended.args, ended.returncode, *streams)

    return run
