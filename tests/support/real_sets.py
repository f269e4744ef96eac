"""The folder of the real data sets, which are no part of this project."""

from __future__ import annotations

import lzma
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BESIDE = "../shared/data"  # from the root of a checkout


def folder() -> Path | None:
    """Return the folder that RANDSVM_DATA names, else ../shared/data of this checkout.

    In a git worktree that lies elsewhere, ../shared/data of the main checkout is tried as well.
    """
    if named := os.environ.get("RANDSVM_DATA"):
        found = [Path(named)]
    else:
        found = [root / BESIDE for root in (ROOT, _main_checkout())]
    return next((path.resolve() for path in found if path.is_dir()), None)


def _main_checkout() -> Path:
    """Return the root of the main checkout, or of this one where git does not know another."""
    words = ["git", "rev-parse", "--path-format=absolute", "--git-common-dir"]
    try:
        answer = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ROOT
    return Path(answer.stdout.strip()).parent if answer.returncode == 0 else ROOT


FOLDER = folder()
SETTING = "RANDSVM_DATA names their folder, the default is ../shared/data"


def summary() -> str:
    """One line: where the real data sets are, or that they are missing."""
    return f"real data: {FOLDER}" if FOLDER else f"real data: missing, their tests skip ({SETTING})"


def packed(name: str) -> Path:
    """Return the path of a set, compressed with xz; skip the test where it is missing."""
    if FOLDER is None:
        pytest.skip(f"no folder of real data: {SETTING}")
    path = FOLDER / f"{name}.xz"
    if not path.exists():
        pytest.skip(f"no {path.name} in the folder of real data")
    return path


def content(name: str) -> bytes:
    """Return the text of a set; skip the test where it is missing."""
    return lzma.decompress(packed(name).read_bytes())
