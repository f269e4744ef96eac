"""Plant each fault of tests/mutants.txt in a copy of the package, and print which test sees it.

    python scripts/mutants.py --only svm.,kernels. --jobs 2

A fault counts as seen if a test fails, a test module cannot be imported, or the tests hang.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "mutants.txt"
FOLDERS = "randsvm", "tests", "scripts", "data", "docs"
FILES = "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "CONTRIBUTING.md"
ALIVE = "ALIVE"


class Fault(NamedTuple):
    """A text of a module, the wrong text that replaces it, and the tests that can see it."""

    name: str
    file: str
    tests: tuple[str, ...]
    old: str
    new: str

    def planted(self, root: Path = ROOT) -> str:
        """Return the content of the module with the fault."""
        content = (root / "randsvm" / self.file).read_text()
        if content.count(self.old) != 1:
            found = f"{content.count(self.old)} times in {self.file}"
            raise ValueError(f"{self.name}: expected its old text once, found it {found}")
        return content.replace(self.old, self.new)


def read_faults(text: str) -> Iterator[Fault]:
    """Read entries of a line "@ NAME FILE TEST..", lines "- OLD" and lines "+ NEW"."""
    for entry in re.split(r"^@ ", text, flags=re.MULTILINE)[1:]:
        head, *lines = entry.splitlines()
        name, file, *tests = head.split()
        old, new = (
            "\n".join(line[2:] for line in lines if line[:2] == mark) for mark in ("- ", "+ ")
        )
        yield Fault(name, file, tuple(tests), old, new)


class Copy:
    """A copy of the project in which one fault at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in FOLDERS:
            if (ROOT / name).exists():
                shutil.copytree(ROOT / name, folder / name)
        for name in FILES:
            shutil.copy2(ROOT / name, folder)

    def killer(self, fault: Fault, seconds: float) -> str:
        """Return the test that sees the fault, or ALIVE."""
        path = self.folder / "randsvm" / fault.file
        planted, status = fault.planted(self.folder), path.stat()
        before = path.read_text()
        path.write_text(planted)
        try:
            return self._run(fault.tests, seconds)
        finally:
            path.write_text(before)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                compiled.unlink()

    def _run(self, tests: tuple[str, ...], seconds: float) -> str:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += [f"tests/{test}" for test in tests]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with tempfile.TemporaryFile("w+") as output:
            started = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **threads, "PYTHONPATH": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = started.wait(seconds)
            except subprocess.TimeoutExpired:
                return f"no end within {seconds:g} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, 9)  # with the processes that a test left
                started.wait()
            output.seek(0)
            text = output.read()
        if code == 0:
            return ALIVE
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
        if code > 2 or found is None:
            raise RuntimeError(f"pytest ended with exit code {code}:\n{text[-2000:]}")
        return found[1].removeprefix("tests/")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="faults with one of these words in their names")
    parser.add_argument("--jobs", type=int, default=1, help="faults at the same time")
    parser.add_argument("--seconds", type=float, default=300, help="time limit of a fault")
    options = parser.parse_args()
    words = options.only.split(",")
    faults = [
        fault
        for fault in read_faults(TABLE.read_text())
        if any(word in fault.name for word in words)
    ]
    with (
        tempfile.TemporaryDirectory(prefix="mutants") as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        copies: Queue[Copy] = Queue()
        for number in range(options.jobs):
            copies.put(Copy(Path(folder, str(number))))
        alive = sum(pool.map(partial(report, copies, options.seconds), faults))
    print(f"{len(faults)} faults, {alive} alive")
    return bool(alive)


def report(copies: Queue[Copy], seconds: float, fault: Fault) -> bool:
    """Print a line of a table. Return whether no test sees the fault."""
    copy, began = copies.get(), time.perf_counter()
    try:
        killer = copy.killer(fault, seconds)
    except ValueError as error:
        killer = f"LOST: {error}"
    finally:
        copies.put(copy)
    print(f"| {fault.name} | {killer} | {time.perf_counter() - began:.0f} s", flush=True)
    return killer == ALIVE


if __name__ == "__main__":
    sys.exit(main())
