"""Make random trainings on data as users have it, and judge each certificate exactly.

The columns are years, times in seconds, prices, counts, constants and texts; files are svmlight,
CSV or precomputed kernels with a few digits; with any scaling, and weights of rows from either
place.

Every choice comes from one random.Random: a seed and a number repeat a case.
"""

import random
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import exact_judge
import numpy as np
from random_problems import ended

SECONDS = 5
TASKS = ("svc", "svc", "weighted", "svr", "svr", "one-class", "nu-svc", "nu-svr")
# Digits after the point of a column, its middle and its spread.
COLUMNS = {
    "year": (0, (2000,), (3, 20)),
    "seconds": (3, (1.7e9,), (1, 100, 1e5, 1e7)),
    "milliseconds": (0, (1.7e12,), (1e4, 1e8)),
    "price": (2, (10, 1e5), (5, 1e4)),
    "number": (3, (0,), (1, 100)),
    "constant": (1, (3, 1e6), (0,)),
}
TEXTS = ("red", "green", "blue")


class UserCase(NamedTuple):
    """A training. words: the command line without files; judged: arguments of the judge."""

    words: list[str]
    data: Path
    task: str
    gap: float
    judged: dict[str, Any]

    def command(self, model: Path) -> list[str]:
        return [*self.words, str(self.data), str(model)]


def user_case(seed: int, number: int, folder: Path) -> UserCase:
    """Write the files of a case, and return it."""
    chance = random.Random(f"{seed} user {number}")
    rng = np.random.default_rng(chance.randrange(2**63))
    n, kind = chance.choice((20, 35, 60, 100, 250)), chance.choice(("svmlight", "svmlight", "csv"))
    kind = "precomputed" if chance.random() < 0.2 else kind
    task, columns = chance.choice(TASKS), _columns(rng, n, chance)
    X = np.array([[float(text) for text in column] for column in columns]).T
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    score = Z[:, 0] + np.sin(2 * Z.sum(axis=1)) + rng.normal(size=n) * chance.choice((0.1, 1))
    labels = [f"{v:.4f}" for v in score * chance.choice((1, 100))]
    if task not in ("svr", "nu-svr"):
        labels = ["+1" if v > np.median(score) else "-1" for v in score]
    weights = _weights(rng, n, chance)
    words, gap, numbers = _options(task, labels, weights, chance)
    scale = chance.choice((None, "minmax", "standard", "standard", "unit"))
    read: Any = exact_judge.read_rows
    data = folder / ("data.csv" if kind == "csv" else "data")
    if kind == "csv":
        texts = [chance.choice(TEXTS) for _ in range(n)]
        names = [f"c{k}" for k in range(len(columns))]
        table = zip(labels, texts, *columns, strict=True)
        lines = [",".join(["target", "colour", *names]), *map(",".join, table)]
        words += ["--label-column", "target"]
        read = partial(exact_judge.read_table, target="target")
    elif kind == "precomputed":
        scale = None
        K = np.exp(-((Z[:, None] - Z) ** 2).sum(axis=2) * 10 ** chance.uniform(-2, 1))
        K *= 1 + chance.choice((0, 1e-7)) * rng.uniform(-1, 1, K.shape)
        digits = chance.choice((7, 9, 17))
        columns = [[f"{v:.{digits}g}" for v in column] for column in K.T]
        lines = _svmlight(labels, columns)
        lines = [line.replace(" ", f" 0:{i + 1} ", 1) for i, line in enumerate(lines)]
        words += ["-t", "precomputed"]
    else:
        lines = _svmlight(labels, columns)
        if weights and chance.random() < 0.5:
            pairs = zip(lines, weights, strict=True)
            lines = [line.replace(" ", f" cost:{weight} ", 1) for line, weight in pairs]
            weights = []
    if weights:
        (folder / "weights").write_text("".join(f"{weight}\n" for weight in weights))
        words += ["--row-weights", str(folder / "weights")]
        read = partial(read, row_weights=folder / "weights")
    if kind != "precomputed":
        in_use = Z if scale else X
        if scale == "unit":
            in_use = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
        words += _kernel(in_use, chance) + (["--scale", scale] if scale else [])
    data.write_text("\n".join(lines) + "\n")
    return UserCase(words, data, task.replace("weighted", "svc"), gap, {"read": read, **numbers})


def _columns(rng: np.random.Generator, n: int, chance: random.Random) -> list[list[str]]:
    """Return columns as texts; a few of their values may be 0, or many of them equal."""
    found = []
    for _ in range(chance.choice((1, 2, 3, 5))):
        digits, middles, spreads = COLUMNS[chance.choice(list(COLUMNS))]
        x = chance.choice(middles) + chance.choice(spreads) * rng.normal(size=n)
        x[rng.random(n) < chance.choice((0, 0, 0, 0.1, 0.8))] = chance.choice((0, x[0]))
        found.append([f"{v:.{digits}f}" for v in x])
    return found


def _weights(rng: np.random.Generator, n: int, chance: random.Random) -> list[str]:
    """Return weights of rows for half of the cases, a few of them 0."""
    if chance.random() < 0.5:
        return []
    weights = 10 ** rng.uniform(-1, 1, n) * (rng.random(n) > chance.choice((0, 0.1)))
    weights[:2] = 1
    return [f"{weight:.3g}" for weight in weights]


def _options(
    task: str, labels: list[str], weights: list[str], chance: random.Random
) -> tuple[list[str], float, dict[str, Any]]:
    """Return words of the command line, the gap, and the numbers of the problem."""
    gap, C = 10 ** chance.uniform(-6, -2), f"{10 ** chance.uniform(-2, 4):.3g}"
    nu, named = chance.uniform(0.05, 0.6), "svc" if task == "weighted" else task
    if task == "nu-svc":
        each = np.array(weights or ["1"] * len(labels), float)
        first = np.array(labels) == "+1"
        nu *= 1.9 * min(each[first].sum(), each[~first].sum()) / each.sum()
    numbers: dict[str, Any] = {"C": C, "epsilon": "0.05", "nu": f"{nu:.6g}"}
    words = [chance.choice(("randsvm", "randsvm", "osuna")), "-q", "-s", named, "-c", C]
    words += ["-p", "0.05", "-n", numbers["nu"], "--gap", f"{gap:.3g}"]
    words += ["--time-limit", f"{SECONDS}s"]
    if task == "weighted":
        numbers["class_weights"] = {"+1": f"{10 ** chance.uniform(-1, 1):.3g}"}
        words += ["-w", "+1", numbers["class_weights"]["+1"]]
    if chance.random() < 0.5:
        words += ["--sample-size" if words[0] == "randsvm" else "--working-set", "12"]
    return words, float(f"{gap:.3g}"), numbers


def _svmlight(labels: list[str], columns: list[list[str]]) -> list[str]:
    """Return lines that write most zeros."""
    rows = zip(labels, zip(*columns, strict=True), strict=True)
    return [
        " ".join([label, *(f"{k}:{text}" for k, text in enumerate(row, 1) if text != "0.000")])
        for label, row in rows
    ]


def _kernel(X: np.ndarray, chance: random.Random) -> list[str]:
    """Return words of a kernel whose values differ among rows like X."""
    kernel = chance.choice(("rbf", "rbf", "rbf", "linear", "poly"))
    if kernel == "linear":
        return ["-t", kernel]
    if kernel == "poly":
        largest = float((X**2).sum(axis=1).max()) or 1.0
        gamma = f"{10 ** chance.uniform(-1, 1) / largest:.3g}"
        return ["-t", kernel, "-d", "2", "-r", chance.choice(("0", "1")), "-g", gamma]
    squares = ((X[:60, None] - X[:60]) ** 2).sum(axis=2)
    typical = float(np.median(squares[squares > 0])) if (squares > 0).any() else 1.0
    return ["-t", kernel, "-g", f"{10 ** chance.uniform(-2, 2) / typical:.3g}"]


def certified(case: UserCase, model: Path) -> str:
    """Run a case and judge its certificate; return how it ended, in a few words.

    Raises WrongError if the certificate is false.
    """
    return ended(case.command(model), case.data, model, case.task, case.gap, **case.judged)
