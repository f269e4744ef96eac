"""The programs that are compared, those that are not installed, and the quality of a model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from math import nan
from pathlib import Path

from benchmarks.harness import output
from benchmarks.sets import RESULTS

TRAIN, PREDICT = (str(Path(sys.executable).with_name(f"randsvm-{w}")) for w in ("train", "predict"))
HERE = Path(__file__).resolve().parent
JSON = ("-q", "--report", "json")
# Kernel values that a certificate or a score may take.
MAX_VALUES = 7e9
PEERS = [sys.executable, str(HERE / "peers.py")]
# `make peers` makes this environment; a link to another one does as well.
INTELEX = [str(RESULTS / "peers/bin/python"), str(HERE / "peers.py")]
LINEAR_PEERS = [str(RESULTS / "linear-peers/bin/python"), str(HERE / "peers.py")]

NO_LIBSVM, NO_LIBLINEAR = (
    None if shutil.which(f"{peer}-train") else f"{peer}-train (Debian's {package}) is not installed"
    for peer, package in (("svm", "libsvm-tools"), ("liblinear", "liblinear-tools"))
)
NO_INTELEX = None if Path(INTELEX[0]).exists() else "scikit-learn-intelex: `make peers` installs it"
NO_LINEAR_PEERS = (
    None if Path(LINEAR_PEERS[0]).exists() else "linear peers: `make peers` installs them"
)


def versions() -> list[str]:
    """Return the versions of all programs, as sentences."""
    packages = ("randsvm", "numpy", "scipy", "libsvm-official", "scikit-learn")
    ours = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    found = [f"{ours}."]
    if not NO_INTELEX:
        query = "from importlib import metadata as m; print(m.version('scikit-learn-intelex'))"
        found.append(f"scikit-learn-intelex {output(INTELEX[0], '-c', query).strip()}.")
    if not NO_LINEAR_PEERS:
        listed = output(LINEAR_PEERS[0], "-m", "pip", "list", "--format", "freeze").split()
        wanted = ("liblinear-multicore", "rehline", "snapml", "cyanure")
        linear = [line.replace("==", " ") for line in listed if line.startswith(wanted)]
        found.append(f"{', '.join(linear)}.")
    if shutil.which("dpkg-query"):
        asked = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n"]
        done = subprocess.run(
            [*asked, "libsvm-tools", "liblinear-tools"], capture_output=True, text=True
        )
        # A package that was removed has no version.
        there = [line for line in done.stdout.splitlines() if line.split()[1:]]
        found += [f"Debian's {', '.join(there)}."] if there else []
    return found


def numbers(*words: object) -> dict[str, float]:
    """Run a process; return the numbers that it prints in lines `name number`."""
    found = re.findall(r"^(\w+) ([-0-9.e+]+|nan)$", output(*words), re.M)
    return {name: float(number) for name, number in found if name != "seconds"}


def accuracy(*words: object) -> dict[str, float]:
    """Run a process; return the accuracy in per cent that it prints as LIBLINEAR does."""
    found = re.search(r"Accuracy = ([0-9.]+)%", output(*words))
    assert found
    return {"accuracy": float(found[1])}


def certified(train: Path, model: Path, test: Path, options: Sequence[str]) -> dict[str, float]:
    """Return gap, accuracy or mse, and size of a kernel machine, by randsvm-predict in float64.

    options: LIBSVM's, in pairs. The result also has `reported_gap`, the gap that a model of randsvm
    reports. With several classes `gap` is the largest of a pair. The gap or the score is missing
    if it would take more than MAX_VALUES kernel values. The gap of a reduced model is missing too:
    it needs D of the full machine, which is not in the file.
    """
    words: list[str] = []
    for name, value in zip(options[::2], options[1::2], strict=True):
        if name.startswith("-w") or name in ("-c", "-p", "-n"):
            words += [name, value]
    found: dict[str, float] = {"SV": size(model)}
    if affordable(train, model) and '\n# randsvm certificate "reduced"\n' not in model.read_text():
        given = ["certify", train, model, *words, *JSON]
        judged = json.loads(output(PREDICT, *given))
        gap = judged["gap"] if judged["largest_gap"] is None else judged["largest_gap"]
        found["gap"] = nan if gap is None else gap
    if affordable(test, model):
        if "one_class" in model.read_text().partition("\nSV\n")[0]:
            labels = output(PREDICT, "-q", test, model, "-").split()
            found["inliers"] = 100 * sum(float(label) > 0 for label in labels) / len(labels)
        else:
            found |= scored(test, model)
    return found | reported_gap(model)


def scored(test: Path, model: Path, with_auc: bool = False) -> dict[str, float]:
    """Return accuracy or mse of a model in LIBSVM's or LIBLINEAR's format, and the area under the
    ROC curve of two classes."""
    metrics = ["--metrics"] if with_auc else []
    record = json.loads(output(PREDICT, test, model, "/dev/null", *metrics, *JSON))
    if record["accuracy"] is None:
        return {"mse": record["squared_error"]}
    auc = {"auc": record["metrics"]["auc"]} if with_auc else {}
    return {"accuracy": record["accuracy"]} | auc


def affordable(rows: Path, model: Path) -> bool:
    """Return whether the decision values of all rows take at most MAX_VALUES kernel values."""
    if re.search(r"^kernel_type linear$", model.read_text().partition("\nSV\n")[0], re.M):
        return True
    with rows.open("rb") as stream:
        count = sum(1 for _ in stream)
    return size(model) * (count + size(model)) <= MAX_VALUES


def reported_gap(model: Path) -> dict[str, float]:
    found = re.search(r"^# randsvm gap (.+)$", model.read_text(), re.M)
    return {"reported_gap": float(found[1])} if found else {}


def size(model: Path) -> int:
    """Return the number of support vectors of a model in LIBSVM's format."""
    found = re.search(r"^total_sv (\d+)$", model.read_text(), re.M)
    assert found
    return int(found[1])


def objective(train: Path, model: Path, lambda_: float, classes: int) -> dict[str, float]:
    """Return J of a linear model of two classes, computed by numpy."""
    if classes > 2:
        return {}
    return numbers(*PEERS, "objective", train, model, lambda_)


def agreement(one: Path, other: Path) -> dict[str, float]:
    """Return the percentage of equal lines."""
    pairs = list(zip(one.read_bytes().split(), other.read_bytes().split(), strict=True))
    return {"agreement": 100 * sum(float(a) == float(b) for a, b in pairs) / len(pairs)}


def count(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


def labels(path: Path) -> set[bytes]:
    with path.open("rb") as lines:
        return {line.split(None, 1)[0] for line in lines}
