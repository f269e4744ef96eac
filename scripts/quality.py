"""The programs that run, what is missing of them, and what they made is worth."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

from harness import output
from sets import HERE

TRAIN, PREDICT = (str(Path(sys.executable).with_name(f"randsvm-{w}")) for w in ("train", "predict"))
PEERS = [sys.executable, str(HERE / "peers.py")]

NO_LIBSVM, NO_LIBLINEAR = (
    None if shutil.which(f"{peer}-train") else f"{peer}-train (Debian's {package}) is not installed"
    for peer, package in (("svm", "libsvm-tools"), ("liblinear", "liblinear-tools"))
)
NO_SKLEARN = None if importlib.util.find_spec("sklearn") else "scikit-learn is not installed"


def numbers(*words: object) -> dict[str, float]:
    """What a process prints as `name number` lines."""
    found = re.findall(r"^(\w+) ([0-9.e+-]+)$", output(*words), re.M)
    return {name: float(number) for name, number in found if name != "seconds"}


def accuracy(*words: object) -> dict[str, float]:
    """Per cent, as LIBSVM's and LIBLINEAR's programs print it."""
    return {"accuracy": float(re.search(r"Accuracy = ([0-9.]+)%", output(*words))[1])}


def of_kernel(model: Path, test: Path) -> dict[str, float]:
    """Accuracy and size of our model, and its certified gap."""
    gap = float(re.search(r"^# randsvm gap (.+)$", model.read_text(), re.M)[1])
    return accuracy(PREDICT, "-q", test, model, "/dev/null") | {"SV": size(model), "gap": gap}


def of_libsvm(model: Path, test: Path) -> dict[str, float]:
    return accuracy("svm-predict", test, model, "/dev/null") | {"SV": size(model)}


def size(model: Path) -> int:
    """Support vectors of a model in LIBSVM's format."""
    return int(re.search(r"^total_sv (\d+)$", model.read_text(), re.M)[1])


def objective(train: Path, model: Path, lambda_: float, classes: int) -> dict[str, float]:
    """J of a linear model of two classes, by numpy."""
    if classes > 2 or NO_SKLEARN:
        return {}
    return numbers(*PEERS, "objective", train, model, lambda_)


def agreement(one: Path, other: Path) -> dict[str, float]:
    """Per cent of equal lines."""
    pairs = list(zip(one.read_bytes().split(), other.read_bytes().split(), strict=True))
    return {"agreement": 100 * sum(float(a) == float(b) for a, b in pairs) / len(pairs)}


def count(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


def labels(path: Path) -> set[bytes]:
    with path.open("rb") as lines:
        return {line.split(None, 1)[0] for line in lines}
