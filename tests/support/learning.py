"""Train with any algorithm and read its log; noisy data; the optimum on all rows."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import oracle
import pytest
from commands import run_train

# ---- data -------------------------------------------------------------------------------------


class Data(NamedTuple):
    y: np.ndarray
    X: np.ndarray

    def save(self, path: Path) -> Path:
        return oracle.write_svmlight(path, self.y, self.X)


@cache
def gaussians(rows: int, seed: int = 0) -> Data:
    return Data(*oracle.two_gaussians(rows, seed))


@cache
def board(rows: int, seed: int = 0) -> Data:
    """The checkerboard with every tenth label wrong: most support vectors are bounded."""
    y, X = oracle.checkerboard(rows, seed)
    wrong = np.random.default_rng([seed, 9]).random(rows) < 0.1
    return Data(np.where(wrong, -y, y), X)


MAKERS = {"gaussians": gaussians, "board": board}


def in_order(y: np.ndarray) -> list[float]:
    """Return the distinct labels in the order of their first rows."""
    return list(dict.fromkeys(y.tolist()))


# ---- the optimum ------------------------------------------------------------------------------


def kernel(words: str, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return K for options of LIBSVM, as in "-t 1 -g 0.5 -r 1 -d 2"."""
    letters = dict(zip(words.split()[::2], map(float, words.split()[1::2]), strict=True))
    name = oracle.LIBSVM_KERNELS[int(letters.get("-t", 2))]
    gamma, coef0 = letters.get("-g", 1.0), letters.get("-r", 0.0)
    return oracle.kernel_matrix(name, X, Z, gamma, coef0, int(letters.get("-d", 3)))


class Answer(NamedTuple):
    """A solution in dense float64: beta (n,) and f (n,) over all rows, P and D."""

    beta: np.ndarray
    f: np.ndarray
    primal: float
    dual: float

    @property
    def unbounded(self) -> int:
        alpha = np.abs(self.beta)
        return int(((alpha > 0) & (alpha < alpha.max())).sum())


@cache
def optimum(name: str, rows: int, words: str) -> Answer:
    """Return the solution of LIBSVM on all rows of a set of `MAKERS`, C = 1."""
    y, X = MAKERS[name](rows)
    found = oracle.libsvm_train(y, X, f"{words} -c 1 -e 0.0005")
    u = kernel(words, X, X[found.rows]) @ found.beta
    beta = found.dense(len(y))
    return Answer(beta, u + found.b, *oracle.objectives(y, u, beta, found.b, 1.0))


def answer_of(model: Path, data: Data, words: str, C: float = 1.0) -> Answer:
    """Return the solution that a model file holds; the rows of X must be distinct."""
    y, X = data
    found = oracle.read_model(model, X.shape[1])
    Z = oracle.as_float32(found.Z)
    u = kernel(words, X, Z) @ found.beta
    places = {tuple(x): i for i, x in enumerate(X)}
    beta = np.zeros(len(y))
    beta[[places[tuple(z)] for z in Z]] = found.beta
    return Answer(beta, u + found.b, *oracle.objectives(y, u, beta, found.b, C))


# A run may replace this file, because it begins as a model does.
OLD_MODEL = "svm_type c_svc\nthe rest of an old model\n"


# ---- runs -------------------------------------------------------------------------------------


class Finished(NamedTuple):
    """A finished run: the model file and what --log wrote."""

    model: Path
    events: list[dict[str, Any]]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return self.of("iteration")

    @property
    def outcome(self) -> dict[str, Any]:
        (ended,) = self.of("trained")
        return ended

    @property
    def epochs(self) -> list[dict[str, Any]]:
        return self.of("epoch")

    @property
    def notices(self) -> list[str]:
        return [event["text"] for event in self.of("notice")]

    @property
    def metadata(self) -> dict[str, Any]:
        return oracle.trailer(self.model)

    @property
    def body(self) -> bytes:
        """The model without its trailer."""
        return self.model.read_bytes().partition(b"# randsvm")[0]


@contextmanager
def jumping_clock() -> Iterator[Callable[[], None]]:
    """Yield a function that moves time.perf_counter() forward by hours."""
    late, clock = [0.0], time.perf_counter
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: clock() + late[-1])
        yield partial(late.append, 1e4)


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def learn(algorithm: object, data: Path, model: Path, *words: object) -> Finished:
    """Run `randsvm-train ALGORITHM` within this process; errors are raised as exceptions."""
    log = model.with_suffix(".jsonl")
    run_train(algorithm, "-q", "--log", log, *words, data, model)
    events = read_log(log)
    return Finished(model, [event for event in events if event["run"] == events[-1]["run"]])
