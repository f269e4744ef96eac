"""The last record of a command as metrics in the text format of Prometheus.

The textfile collector of node_exporter reads such files. It refuses two files that describe one
metric by different HELP lines, so these lines are the same for every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

# Name of a metric without its prefix -> field of the record, meaning. Values are gauges.
METRICS = {
    "gap_ratio": ("gap", "Certified relative duality gap of the model."),
    "gap_asked_ratio": ("gap_asked", "Relative duality gap that --gap asks for."),
    "duration_seconds": ("seconds", "Wall-clock time of the run."),
    "rows": ("rows", "Rows that were trained on or predicted."),
    "support_vectors": ("support_vectors", "Support vectors of the model."),
    "accuracy_ratio": ("accuracy", "Share of the labelled rows whose label was predicted."),
    "log_loss": ("log_loss", "Mean of -log p of the true class, with -b 1 --metrics."),
    "calibration_error_ratio": (
        "calibration_error",
        "Expected calibration error of the probabilities, with -b 1 --metrics.",
    ),
    "peak_memory_bytes": ("peak_memory", "Largest resident memory of the process."),
    "exit_code": ("exit_code", "Exit code of the command; 0 is success."),
    "completion_timestamp_seconds": ("time", "Unix time at which the run ended."),
}
PREFIX = "randsvm_"
LABELS = ("command", "algorithm", "data", "model")
# The first bytes of each report, which is never empty: the exit code is always known.
BEGINNING = f"# HELP {PREFIX}".encode()


def exposition(record: Mapping[str, Any]) -> str:
    """Return the metrics of the last record of a command; unknown values are left out."""
    values = {**record, "rows": _rows(record), "time": _timestamp(record["time"])}
    if record.get("correct") is not None and record["labelled"]:
        values["accuracy"] = record["accuracy"] / 100
        values |= (record["metrics"] or {}).get("probabilities") or {}
    labels = ",".join(f'{name}="{_escaped(record.get(name, ""))}"' for name in LABELS)
    lines = []
    for name, (field, meaning) in METRICS.items():
        value = values.get(field)
        if value is not None:
            metric = PREFIX + name
            lines += [
                f"# HELP {metric} {meaning}",
                f"# TYPE {metric} gauge",
                f"{metric}{{{labels}}} {value}",
            ]
    return "\n".join(lines) + "\n"


def _rows(record: Mapping[str, Any]) -> int | None:
    """Return the number of rows; --update takes one step for each row."""
    known = [record.get(name) for name in ("rows", "n", "steps")]
    return next((count for count in known if count is not None), None)


def _timestamp(time: str) -> float:
    return datetime.strptime(time, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()


def _escaped(value: str | Sequence[str]) -> str:
    """Return the name of a file, or names with spaces between them, as the value of a label."""
    text = value if isinstance(value, str) else " ".join(value)
    # The format is UTF-8; a name of a file may hold any bytes.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
