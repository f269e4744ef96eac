"""Run commands that a time limit or a signal ends at a random moment, and check what they leave.

A case is repeated by its number.
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

# Seconds, and share of the time limit, that a run may take beyond its limit.
LATE, LATE_PART = 1.0, 0.05
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SLOW = "--working-set 50 --swap 1 --gap 1e-9 -g 5 -c 100"
# Endless runs, and their data.
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


def ended_by_python(code: int, said: str, number: int) -> bool:
    """Whether a signal has ended Python before it ran code of randsvm.cli.

    Then SIGINT raises KeyboardInterrupt where Python imports its own modules.
    """
    imports = number == signal.SIGINT and code == 1 and "KeyboardInterrupt" in said
    return code == -number or (imports and "randsvm/cli" not in said)


class InterruptedRuns:
    """Runs on small files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        y, X = oracle.two_gaussians(400)
        oracle.write_svmlight(folder / "two", y, X)
        oracle.write_svmlight(folder / "targets", X[:, 0] * 3, X)
        classes = np.arange(400) % 4
        oracle.write_svmlight(folder / "four", classes, X + np.eye(4, 2)[classes])

    def limit(self, number: int) -> tuple[str, float]:
        """Set a random time limit; return how the run ended, and its seconds beyond the limit."""
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
        """Send a signal at a random moment; return how and after how many seconds it ended."""
        chance = random.Random(f"signal {number}")
        which = SIGNALS[number % len(SIGNALS)]
        process = self._start(number)
        time.sleep(chance.uniform(0.05, 2.5))
        process.send_signal(which)
        began = time.perf_counter()
        _, said = process.communicate(timeout=120)
        took = time.perf_counter() - began
        if ended_by_python(process.returncode, said, which):
            return "killed", took
        ends = {128 + which: "signal", 0: "model"}
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
        """Return how the run ended; check that the model is whole, or the old one unchanged."""
        assert code in ends, (code, said)
        assert "Traceback" not in said, said
        # A training that was interrupted also has the line about its gap.
        lines = [line for line in said.splitlines() if not line.startswith("GAP NOT REACHED")]
        assert len(lines) <= 1, said
        text = (self.folder / "m").read_text()
        if text != OLD_MODEL:
            load(str(self.folder / "m"))
        assert code != 0 or text != OLD_MODEL
        assert {one.name for one in self.folder.iterdir()} == {"two", "four", "targets", "m"}
        return ends[code]
