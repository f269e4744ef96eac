"""Our commands as the papers need them, and the logs that they write."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.tables import Record

GAP, LARGE_GAP = "randsvm --gap 0.001", "randsvm --gap 0.01"
LARGE_REDUCED = f"{LARGE_GAP} --reduce auto"
RULE, FORMULA = "randsvm -k 1000 --sample-size 5000", "randsvm --gap none"
LINEAR_GAP, LINEAR_RULE = f"{GAP} -t linear", f"{RULE} -t linear"
SGD = "sgd"
LIBLINEAR = "liblinear-train -s 3 -B 1"
OPTIMUM = f"{LIBLINEAR} -e 0.001"

RCV1 = ("CCAT", "C11")
TEXT_SETS = ("reuters_acq", *RCV1)
LAMBDA = 1e-4  # of Bottou's and Joachims' experiment on CCAT


def events(record: Record) -> list[Record]:
    """Return all records in the --log of a command's last run."""
    return read_log(Path(record["words"][record["words"].index("--log") + 1]))


def read_log(path: Path) -> list[Record]:
    """Return the records of the last run in a log."""
    found = list(map(json.loads, path.read_text().splitlines()))
    return [event for event in found if event["run"] == found[-1]["run"]]
