"""Real processes that a time limit or a signal cuts off at a random moment, and what must hold.

A case is repeated by its number; scripts/fuzz_limits.py runs many.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import oracle
from learning import OLD_MODEL

from randsvm.models.load import load

# Seconds and part of a time limit that a run may take longer.
LATE, LATE_PART = 1.0, 0.05
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SLOW = "--working-set 50 --swap 1 --gap 1e-9 -g 5 -c 100"
# Runs without an end, and their data.
RUNS = (
    (f"osuna {SLOW}", "two"),
    (f"osuna {SLOW} -b 1", "two"),
    (f"osuna {SLOW}", "four"),
    (f"osuna {SLOW} -b 1", "four"),
    (f"osuna {SLOW} -s svr", "targets"),
    (f"osuna {SLOW} -s one-class -n 0.3 --scale standard", "two"),
    ("sgd --epochs 100000000", "four"),
    ("sgd --epochs 100000000 -b 1 --scale minmax", "two"),
    ("sgd --epochs auto -t rbf", "two"),
)


class Cuts:
    """The cases over small files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        y, X = oracle.two_gaussians(400)
        oracle.write_svmlight(folder / "two", y, X)
        oracle.write_svmlight(folder / "targets", X[:, 0] * 3, X)
        classes = np.arange(400) % 4
        oracle.write_svmlight(folder / "four", classes, X + np.eye(4, 2)[classes])

    def limit(self, number: int) -> tuple[str, float]:
        """A time limit: how the case ended, and how many seconds after what it is allowed."""
        chance = random.Random(f"limit {number}")
        limit = chance.choice([chance.uniform(0.02, 0.5), chance.uniform(0.5, 2)])
        process = self._start(number, "--time-limit", f"{limit:.3f}s", "--report", "json")
        out, said = process.communicate(timeout=120)
        whole = self._end(process.returncode, said, {0: "model", 75: "old model"})
        if process.returncode:
            return whole, 0.0
        outcome = json.loads(out)
        assert outcome["stopped"] == oracle.trailer(self.folder / "m")["stopped"]
        return whole, outcome["seconds"] - limit - max(LATE, LATE_PART * limit)

    def signal(self, number: int) -> tuple[str, float]:
        """A signal: how the case ended, and how many seconds after it."""
        chance = random.Random(f"signal {number}")
        which = SIGNALS[number % len(SIGNALS)]
        process = self._start(number)
        time.sleep(chance.uniform(0.05, 2.5))
        process.send_signal(which)
        began = time.perf_counter()
        _, said = process.communicate(timeout=120)
        took = time.perf_counter() - began
        # Python itself, before it runs any of our code, dies of the signal.
        ends = {128 + which: "signal", -which: "killed", 0: "model"}
        return self._end(process.returncode, said, ends), took

    def _start(self, number: int, *more: str) -> subprocess.Popen[str]:
        words, data = RUNS[number % len(RUNS)]
        (self.folder / "m").write_text(OLD_MODEL)
        return subprocess.Popen(
            [sys.executable, "-m", "randsvm.cli.train", *words.split(), "-q", *more, data, "m"],
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _end(self, code: int, said: str, ends: dict[int, str]) -> str:
        """One of `ends`: a whole new model or the old one as it was, and not a word too much."""
        assert code in ends, (code, said)
        assert code < 0 or "Traceback" not in said, said
        assert len(said.splitlines()) <= 1 or code < 0, said
        text = (self.folder / "m").read_text()
        if text != OLD_MODEL:
            load(str(self.folder / "m"))
        assert code != 0 or text != OLD_MODEL
        assert {one.name for one in self.folder.iterdir()} == {"two", "four", "targets", "m"}
        return ends[code]
