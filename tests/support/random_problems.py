"""Make random small trainings, and check each against an exact optimum.

A case is a data set, a command line and a gap. It is judged by dense kernel matrices and an
interior-point method that know nothing of the package:

- D as reported is not above the optimum, P not below;
- P, D, the gap, the violators and the counts as reported are those of the model as written;
- the model is feasible: coefficients within their bounds, their sum exact, except for a reduced
  machine and for the estimate that an interrupted run has in place of a solution;
- the gap that was asked for is reached, or the run says that it is not.

Every choice comes from one random.Random: a seed and a number repeat a case.
"""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import exact_judge
import numpy as np
import oracle
import qp

from randsvm import events as package_events
from randsvm.cli import train as training
from randsvm.errors import ContentError, Interrupted, OutOfTimeError, ParameterError

# Relative error of reported numbers as a share of P, in addition to the rounding of float64 sums.
ACCURACY = 1e-6
# Rounding of float64, relative to the parts of a sum, with some room.
ROUNDING = 2.0**-46
# -s nu-svc has no margin if |w|^2 is below this share of its value for rows one spread apart.
NO_MARGIN = 1e-6
# Reasons for the end of a run whose gap was not reached.
OTHER_ENDS = (
    "no progress",
    "time limit",
    "iteration limit",
    "the proven gap is above",
    "no margin",
    "interrupted",
)
SECONDS = 10
NEWTON_STEPS = 6

exact = np.longdouble


class WrongError(AssertionError):
    """A promise was broken."""


TASKS = ("svc", "svc", "svc", "weighted", "weighted", "svr", "svr", "one-class")
NU_TASKS = ("nu-svc", "nu-svr")
REGRESSIONS = ("svr", "nu-svr")
OWN_BOUNDS = {"one-class": (1.0, 0.0), "nu-svc": (1.0, 1.0)}
OWN_EPSILON = {"nu-svc": 1.0}

# ---- cases ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """y : (n,) labels or targets; X : (n, d) float32 values in float64.

    bounds: C of y > 0 and of the others, 1 of nu-svc. share: nu. The second sum of the nu tasks has
    the tube as its multiplier, which widens epsilon: with 1 as epsilon of nu-svc it is -rho.
    """

    y: np.ndarray
    X: np.ndarray
    algorithm: str
    task: str
    kernel: str
    gamma: float
    coef0: float
    degree: int
    bounds: tuple[float, float]
    epsilon: float
    share: float
    gap: float
    tolerance: float
    words: tuple[str, ...]
    weights: np.ndarray | None = None
    reduce: int | str | None = None

    def command(self, data: Path | str, model: Path | str) -> list[str]:
        return [self.algorithm, *self.words, str(data), str(model)]

    def save(self, path: Path) -> Path:
        return oracle.write_rows(path, self.y, self.X, 1, self.weights)

    @property
    def classes(self) -> bool:
        return self.task in ("svc", "nu-svc", "one-class")

    @property
    def size(self) -> float:
        """Return sum |beta| of the nu tasks; for nu-svr its upper bound."""
        return self.bounds[0] * self.share * self.weight_sum if self.task in NU_TASKS else 0.0

    @property
    def weight_sum(self) -> float:
        return len(self.y) if self.weights is None else float(self.weights.sum())

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and the upper bounds of beta."""
        n, positive = len(self.y), self.y > 0
        weights = np.ones(n) if self.weights is None else self.weights
        if self.task == "one-class":
            return np.zeros(n), weights
        upper, lower = self.bounds[0] * weights, -self.bounds[1] * weights
        if self.classes:
            return np.where(positive, 0.0, lower), np.where(positive, upper, 0.0)
        return lower, upper

    @property
    def targets(self) -> np.ndarray:
        return np.zeros(len(self.y)) if self.task == "one-class" else self.y

    @property
    def total(self) -> float:
        return self.share * self.weight_sum if self.task == "one-class" else 0.0

    def kernel_values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return K(x_i, z_j), (m, n), with 64 bits of mantissa if the machine has them."""
        X, Z = X.astype(exact), Z.astype(exact)
        if self.kernel == "rbf":
            squares = sum((X[:, [j]] - Z[:, j]) ** 2 for j in range(X.shape[1]))
            return np.exp(-exact(self.gamma) * squares)
        products = X @ Z.T
        if self.kernel == "linear":
            return products
        return (exact(self.gamma) * products + exact(self.coef0)) ** self.degree


def case_of(seed: int, number: int) -> Case:
    """Return the case of a seed and a number. Every fourth has a nu task."""
    tasks = NU_TASKS if number % 4 == 3 else TASKS
    return made(random.Random(f"{seed} training {number}"), tasks)


def made(chance: random.Random, tasks: tuple[str, ...]) -> Case:
    """Return a random case; small sets are as likely as larger ones."""
    n = chance.choice((10, 13, 20, 35, 60, 100, 180, 300))
    d = chance.choice((1, 2, 3, 8))
    task = chance.choice(tasks)
    rng = np.random.default_rng(chance.randrange(2**63))
    X = _scaled(_shape(rng, n, d, chance), chance)
    y = _labels(rng, X, task, chance)
    kernel = chance.choice(("rbf", "rbf", "rbf", "linear", "poly"))
    gamma, coef0, degree = _kernel(X, kernel, chance)
    C = 10 ** chance.uniform(-4, 6)
    if task in REGRESSIONS:
        y *= 10 ** chance.choice((0.0, 0.0, chance.uniform(-4, 6)))
    epsilon = float(chance.choice((0.0, 0.01, 0.1, 0.5)) * np.abs(y).mean())
    weights = (1.0, 1.0)
    if task == "weighted":
        weights = chance.choice((1.0, 10 ** chance.uniform(-2, 2))), 10 ** chance.uniform(-2, 2)
    share = chance.choice((0.5, 0.1, 0.9, chance.uniform(0.01, 1.0)))
    row_weights = _weights(X, chance)
    if task == "nu-svc":
        # More than the smaller class allows is infeasible.
        each = np.ones(n) if row_weights is None else row_weights
        share *= 2 * min(each[y > 0].sum(), each[y < 0].sum()) / each.sum() * (1 - 1e-12)
    gap = 10 ** chance.uniform(-6, -1)
    tolerance = chance.choice((1e-3, 1e-3, 1e-3, 1e-1, 1e-2, 1e-5))
    algorithm = chance.choice(("randsvm", "osuna", "osuna-closest"))
    size = chance.choice((None, 2, 3, 10, chance.randint(2, n), n))
    if size is not None and task in NU_TASKS:
        # Two rows of either sum can move.
        size = max(size, 4)
    named = "svc" if task == "weighted" else task
    words = ["-q", "-s", named, "-t", kernel, "-g", gamma, "-r", coef0, "-d", degree, "-c", C]
    words += ["-p", epsilon, "-n", share, "-e", tolerance, "--gap", gap]
    words += ["--seed", chance.randrange(100), "--time-limit", f"{SECONDS}s"]
    if task == "weighted":
        words += ["-w", "+1", weights[0], "-w", "-1", weights[1]]
    if size is not None:
        words += ["--sample-size" if algorithm == "randsvm" else "--working-set", size]
    if size is not None and algorithm != "randsvm" and chance.random() < 0.3:
        words += ["--swap", chance.choice((2, 2, 3, 4, size))]
    bounds = OWN_BOUNDS.get(task, (C * weights[0], C * weights[1]))
    width = OWN_EPSILON.get(task, epsilon if task == "svr" else 0.0)
    return Case(
        y=y, X=X, algorithm=algorithm, task=named, kernel=kernel, gamma=gamma, coef0=coef0,
        degree=degree, bounds=bounds, epsilon=width, share=share,
        gap=gap, tolerance=tolerance, words=tuple(str(word) for word in words),
        weights=row_weights,
    )  # fmt: skip


def on_inner_set(case: Case) -> Case:
    """Return the case with the default algorithm, which uses inner sets."""
    words = list(case.words)
    if case.algorithm != "randsvm":
        while "--swap" in words:
            at = words.index("--swap")
            del words[at : at + 2]
        words = ["--sample-size" if word == "--working-set" else word for word in words]
    return replace(case, algorithm="randsvm", words=tuple(words))


def within(case: Case, seconds: float) -> Case:
    """Return the case with this time limit."""
    words = list(case.words)
    words[words.index("--time-limit") + 1] = f"{seconds:.4f}s"
    return replace(case, words=tuple(words))


def with_reduction(case: Case, chance: random.Random) -> Case:
    """Return the case with a random --reduce."""
    reduce = chance.choice(("auto", "auto", 1, 2, 5, 20, len(case.y)))
    algorithm = "osuna" if case.algorithm == "osuna-closest" else case.algorithm
    words = (*case.words, "--reduce", str(reduce))
    return replace(case, algorithm=algorithm, words=words, reduce=reduce)


def _shape(rng: np.random.Generator, n: int, d: int, chance: random.Random) -> np.ndarray:
    X = rng.normal(size=(n, d))
    kind = chance.choice(("normal", "normal", "clusters", "copies", "grid", "sparse"))
    if kind == "clusters":
        X += 4 * rng.integers(-1, 2, (n, d))
    if kind == "copies":
        X[rng.random(n) < 0.5] = X[0]
    if kind == "grid":
        X = np.round(X)
    if kind == "sparse":
        X[rng.random((n, d)) < 0.7] = 0.0
    return X


def _scaled(X: np.ndarray, chance: random.Random) -> np.ndarray:
    """Scale all columns, or scale and shift each column on its own."""
    if chance.random() < 0.5:
        return oracle.as_float32(X * 10 ** chance.choice((0.0, 0.0, chance.uniform(-6, 8))))
    scales = [10 ** chance.uniform(-6, 8) if chance.random() < 0.4 else 1.0 for _ in X.T]
    offsets = [chance.choice((0.0, 0.0, 1.0, 1e3, 1e6, 1.7e9)) for _ in X.T]
    return oracle.as_float32(X * scales + offsets)


def _weights(X: np.ndarray, chance: random.Random) -> np.ndarray | None:
    """Return weights of rows for half of the cases; equal rows have equal weights."""
    rng = np.random.default_rng(chance.randrange(2**63))
    kind = chance.choice((None, None, None, "few", "exponential", "wide"))
    spread = chance.uniform(0.1, 4)
    if kind is None:
        return None
    found, inverse = np.unique(X, axis=0, return_inverse=True)
    of_row = {
        "few": rng.integers(1, 4, len(found)).astype(float),
        "exponential": rng.exponential(size=len(found)) + 1e-9,
        "wide": 10 ** rng.uniform(-spread / 2, spread / 2, len(found)),
    }[kind]
    return of_row[inverse.ravel()]


def _labels(
    rng: np.random.Generator, X: np.ndarray, task: str, chance: random.Random
) -> np.ndarray:
    """Return labels of classes that a curve separates, with noise, or of very different sizes."""
    n = len(X)
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    score = Z[:, 0] + chance.choice((0.0, 1.0)) * np.sin(2 * Z.sum(axis=1))
    if task == "one-class":
        return np.ones(n)
    score = score + chance.choice((0.0, 0.1, 1.0)) * rng.normal(size=n)
    if task in REGRESSIONS:
        return score
    positive = max(1, min(n - 1, round(n * chance.choice((0.5, 0.5, 0.1, 0.9, 0.02)))))
    y = np.full(n, -1.0)
    y[np.argsort(score)[n - positive :]] = 1.0
    wrong = rng.random(n) < chance.choice((0.0, 0.0, 0.1))
    flipped = np.where(wrong, -y, y)
    return flipped if abs(flipped.sum()) < n else y


def _kernel(X: np.ndarray, kernel: str, chance: random.Random) -> tuple[float, float, int]:
    """Return gamma, r and the degree; most of them give kernel values that differ among rows."""
    if kernel == "rbf":
        squares = ((X[:60, None] - X[:60]) ** 2).sum(axis=2)
        typical = float(np.median(squares[squares > 0])) if (squares > 0).any() else 1.0
        return 10 ** chance.uniform(-2, 2) / typical, 0.0, 3
    if kernel == "poly":
        largest = float((X**2).sum(axis=1).max())
        return 10 ** chance.uniform(-1, 1) / (largest or 1.0), chance.choice((0.0, 1.0)), 2
    return 1.0, 0.0, 3


# ---- the optimum --------------------------------------------------------------------------------


class Bounds(NamedTuple):
    """A lower and an upper bound of the optimum."""

    least: float
    most: float


def primal(case: Case, norm: Any, u: np.ndarray, b: Any, tube: float | None = None) -> float:
    """Return P of u, b and the tube (default: the best one), as sums of 64 bits."""
    lower, upper = case.box
    z = case.targets - (u + b)
    tube = best_tube(case, z) if tube is None else tube
    width = case.epsilon + tube
    loss = np.maximum(0, np.maximum(upper * (z - width), lower * (z + width)))
    return norm / 2 + loss.sum() + exact(case.total) * b + case.size * tube


def best_tube(case: Case, z: np.ndarray) -> float:
    """Return the tube with the least P: as many rows lie beyond it as the second sum has
    coefficients at their bounds."""
    if not case.size:
        return 0.0
    lower, upper = case.box
    beyond = np.maximum(np.where(upper > 0, z, -np.inf), np.where(lower < 0, -z, -np.inf))
    order = np.argsort(-beyond, kind="stable")
    ends = np.cumsum(np.ones(len(z)) if case.weights is None else case.weights[order])
    count = int(np.searchsorted(ends, case.size / case.bounds[0], side="right"))
    return (beyond - case.epsilon)[order[min(count, len(z) - 1)]]


def best_offset(case: Case, u: np.ndarray) -> float:
    """Return the b with the least P; it is at a bend of one of the rows."""
    z = case.targets - u
    breakpoints = np.unique(np.concatenate([z - case.epsilon, z + case.epsilon]))
    values = [primal(case, exact(0), u, b) for b in breakpoints]
    return breakpoints[int(np.argmin(values))]


def dual(case: Case, norm: Any, beta: np.ndarray) -> float:
    return case.targets @ beta - case.epsilon * np.abs(beta).sum() - norm / 2


def optimum(case: Case, K: np.ndarray) -> Bounds:
    """Return bounds of the optimum, by an interior-point method and then Newton's method for the
    coefficients that are neither 0 nor at a bound. Duality certifies both bounds."""
    lower, upper = case.box
    centred, mean = centred_values(case, K)
    if case.size:
        sign = np.sign(case.targets) if case.task == "nu-svc" else 0.0
        linear = case.targets - case.epsilon * sign
        half = case.size / 2
        least, doubt = qp.minimum_of_groups(
            centred.astype(np.float64), linear, lower, upper, (half, half)
        )
        return Bounds(-least, -least + doubt)
    linear = (case.targets - case.total * mean).astype(np.float64)
    beta = qp.solution(
        centred.astype(np.float64), linear, lower, upper, case.total, case.epsilon
    ).astype(exact)
    least, most = -np.inf, np.inf
    for _ in range(NEWTON_STEPS):
        u = K @ beta
        norm, b = beta @ u, best_offset(case, u)
        # A sum that is not exact moves D by b times what it is off by.
        off = abs(b * (beta.sum() - exact(case.total)))
        off += 2 * np.finfo(exact).eps * len(beta) * (np.abs(beta) @ np.abs(K) @ np.abs(beta))
        least = max(least, dual(case, norm, beta) - off)
        most = min(most, primal(case, norm, u, b))
        if most - least <= 1e-9 * abs(most):
            break
        beta = newton(case, centred, beta, u, b)
    # Where all coefficients may be 0 so may D, and sums of 64 bits round below it.
    return Bounds(least, most if case.total else max(most, 0.0))


def centred_values(case: Case, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return kernel values minus the means of rows and columns, and these means.

    As the sum of beta is fixed, the problem is the same; large common parts do not cost digits.
    """
    if case.kernel == "linear" and not case.total:
        X = case.X.astype(exact) - case.X.astype(exact).mean(axis=0)
        K = X @ X.T
    mean = K.mean(axis=1)
    return K - mean[:, None] - mean + mean.mean(), mean


def newton(case: Case, K: np.ndarray, beta: np.ndarray, u: np.ndarray, b: float) -> np.ndarray:
    """Return beta after a Newton step: free coefficients, cut off at their bounds, would meet the
    KKT conditions."""
    lower, upper = case.box
    z = case.targets - u - b - case.epsilon * np.sign(beta)
    near = 1e-10 * (upper - lower)
    pushed = np.where(z > 0, beta > upper - near, beta < lower + near)
    free = ~pushed & ((np.abs(beta) > near) | (case.epsilon == 0))
    m = int(free.sum())
    if not m:
        return beta
    size = float(np.abs(K).max()) or 1.0
    M = np.zeros((m + 1, m + 1))
    M[:m, :m] = (K[np.ix_(free, free)] / size).astype(np.float64)
    M[m, :m] = M[:m, m] = 1.0
    right = np.append(z[free] / size, exact(case.total) - beta.sum()).astype(np.float64)
    if not (np.isfinite(M).all() and np.isfinite(right).all()):
        return beta
    change = np.linalg.lstsq(M, right, rcond=1e-15)[0][:m]
    moved = beta.copy()
    moved[free] = np.clip(beta[free] + change, lower[free], upper[free])
    rest = exact(case.total) - moved.sum()
    room = np.where(rest > 0, upper - moved, moved - lower)
    return moved + rest * room / room.sum() if room.sum() else moved


# ---- a model as written -------------------------------------------------------------------------


class Written(NamedTuple):
    """A model file, read line by line.

    beta : (n,), b: for nu-svc multiplied by rho, which undoes LIBSVM's division. tube: -rho of
    nu-svc; None: unknown, as for an unfinished nu-svc, where rho may have been below 0. metadata:
    the trailer. sure: whether each coefficient belongs to a known row; equal rows with different
    targets make that unknown.
    """

    beta: np.ndarray
    b: float
    tube: float | None
    metadata: dict[str, Any]
    sure: bool


def read(path: Path, case: Case) -> Written:
    head, _, rest = path.read_text().partition("\nSV\n")
    entries = dict(line.split(" ", 1) for line in head.splitlines())
    lines = [line.split() for line in rest.splitlines() if not line.startswith("#")]
    metadata = oracle.trailer(path)
    # A coefficient of a reduced machine does not have the sign of its row.
    two_sides = case.classes and case.task != "one-class" and metadata["certificate"] != "reduced"
    places: dict[tuple[bool | float | None, ...], list[int]] = {}
    for i, x in enumerate(case.X):
        side = case.y[i] > 0 if two_sides else None
        places.setdefault((side, *x), []).append(i)
    sure = all(len(set(case.targets[rows])) == 1 for rows in places.values())
    beta = np.zeros(len(case.y))
    for words in lines:
        x = np.zeros(case.X.shape[1])
        for index, value in (word.split(":") for word in words[1:]):
            x[int(index) - 1] = float(value)
        coefficient = float(words[0])
        side = coefficient > 0 if two_sides else None
        at = places.get((side, *oracle.as_float32(x)))
        if not at:
            raise WrongError(f"a support vector is no row of the data: {' '.join(words)}")
        # Of equal rows each is given once.
        beta[at.pop()] = coefficient
    if entries["total_sv"] != str(len(lines)):
        raise WrongError(f"total_sv {entries['total_sv']}, {len(lines)} lines")
    b, tube = -float(entries["rho"]), None
    if case.task == "nu-svc":
        rho = case.size / np.abs(beta).sum()
        beta, b, tube = rho * beta, rho * b, -rho
    finished = metadata["stopped"].startswith("gap")
    return Written(beta, b, tube if finished else None, metadata, sure)


# ---- the judgement ------------------------------------------------------------------------------


@contextmanager
def interrupted_at(event: int | None) -> Iterator[None]:
    """Interrupt the run in this block at its event of this number; None: do not."""
    count = 0

    def check() -> None:
        nonlocal count
        count += 1
        if count == event:
            raise Interrupted(15)

    with mock.patch.object(package_events, "check", check):
        yield


def check(case: Case, folder: Path, event: int | None = None) -> str:
    """Run a case; return how it ended. Raises WrongError with everything that is wrong.

    event: the number of the event at which the run is interrupted
    """
    data, model, log = case.save(folder / "data"), folder / "model", folder / "log.jsonl"
    log.unlink(missing_ok=True)
    model.unlink(missing_ok=True)
    words = case.command(data, model)
    words[1:1] = ["--log", str(log)]
    K = case.kernel_values(case.X, case.X)
    try:
        with interrupted_at(event):
            training.train.main(words, standalone_mode=False)
    except Interrupted:
        if not model.exists():
            return "no model when interrupted"
    except (ContentError, ParameterError) as error:
        too_large = np.abs(K).max() > 1e30 or (case.size and lost_in_float32(K))
        if "scale the features" in str(error) and too_large:
            return "refused"
        if "finds no margin" in str(error) and not has_margin(case, K):
            return "no margin"
        raise
    except OutOfTimeError:
        return "no model in time"
    written = read(model, case)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    wrong = list(complaints(case, K, written, optimum(case, K), events))
    if wrong:
        raise WrongError("; ".join(wrong))
    stopped = written.metadata["stopped"]
    return "gap reached" if stopped.startswith("gap") else f"said: {stopped}"


def lost_in_float32(K: np.ndarray) -> bool:
    """Whether kernel values are too large for float32 to represent their differences."""
    return 2.0**-24 * np.abs(K).max() > K.diagonal().mean() - K.mean()


def has_margin(case: Case, K: np.ndarray) -> bool:
    """Whether the margin of nu-svc exceeds rounding errors."""
    spread = float(K.diagonal().mean() - K.mean())
    if spread <= ROUNDING * float(np.abs(K).max()):
        return False
    return -2 * optimum(case, K).most > NO_MARGIN * case.size**2 * spread


def complaints(
    case: Case, K: np.ndarray, written: Written, best: Bounds, events: list[dict[str, Any]]
) -> Iterator[str]:
    """Return what is wrong with a finished run, as sentences."""
    beta, metadata = written.beta.astype(exact), written.metadata
    u = K @ beta
    norm, b = beta @ u, exact(written.b)
    P, D = primal(case, norm, u, b, written.tube), dual(case, norm, beta)
    numbers = ("primal", "dual", "gap")
    emitted = {name: float("nan" if metadata[name] is None else metadata[name]) for name in numbers}
    slack = allowance(case, K, written, P)
    # Bounds of the rounding of P and D as printed.
    e_P, e_D = (metadata.get(name, 0) for name in ("primal_error", "dual_error"))
    e_P, e_D = (np.inf if bound is None else bound for bound in (e_P, e_D))
    notices = " ".join(event["text"] for event in events if event["event"] == "notice")
    if not np.isfinite([*emitted.values(), e_P, e_D]).all():
        # Nothing is certified where rounding exceeds the objectives, and the run says so, or where
        # it ends before its closing evaluation.
        is_open = metadata["certificate"] == "none"
        if not is_open and "larger than the objectives" not in notices:
            yield f"not finite: {emitted}"
        return
    own_dual = metadata["certificate"] in ("proven", "sampled")
    if metadata["certificate"] != "reduced":
        yield from infeasible(case, beta, own_dual)
    elif case.reduce != "auto" and np.count_nonzero(beta) > int(case.reduce or 0):
        yield f"{np.count_nonzero(beta)} support vectors after --reduce {case.reduce}"
    # The file lacks the tube of a nu-svr, and of an unfinished nu-svc. It was found for running
    # values, so the best tube for the sums of the judge has a lower P.
    is_lowest = case.size > 0 and written.tube is None
    above = 0.0 if is_lowest else emitted["primal"] - P
    if max(above, P - emitted["primal"]) > slack + e_P:
        yield f"P {emitted['primal']:.10g} reported, of the model {P:.10g}"
    if written.sure and own_dual and emitted["dual"] < D - slack - e_D:
        yield f"D {emitted['dual']:.10g} reported, of the model {D:.10g}"
    if emitted["dual"] > best.most + slack + e_D:
        yield f"D {emitted['dual']:.10g} above the optimum {best.most:.10g}"
    if emitted["primal"] < best.least - slack - e_P:
        yield f"P {emitted['primal']:.10g} below the optimum {best.least:.10g}"
    size = max(abs(emitted["primal"]), abs(emitted["dual"]), nothing(case, K))
    # The gap bounds P - D, where rounding of P and of D may cancel.
    difference, error = emitted["primal"] - emitted["dual"], e_P + e_D
    least = max(0.0, difference - error) / (size + error) if size else 0.0
    most = (max(0.0, difference) + 2 * error) / (size - error) if size > error else np.inf
    if not least * (1 - ROUNDING) - 1e-12 <= emitted["gap"] <= most * (1 + ROUNDING) + 1e-12:
        yield f"gap {emitted['gap']:.6g} reported, {least:.6g} to {most:.6g} by P and D reported"
    if P - best.most > emitted["gap"] * (size + error) + slack:
        yield f"P {P:.10g} of the model is above the optimum by more than the gap"
    if written.sure and not case.size:  # whose violators are those of two groups of rows
        yield from counts(case, K, u + b, beta, metadata)
    if case.reduce is not None and case.reduce != "auto" and "full_gap" in metadata:
        full_gap = metadata["full_gap"]
        yield from silence(case, np.inf if full_gap is None else full_gap, metadata, events)
    else:
        yield from silence(case, emitted["gap"], metadata, events)


def nothing(case: Case, K: np.ndarray) -> float:
    """Return the size below which an objective of novelty detection counts as 0 (see README): a
    hundredth of the optimum of orthogonal rows."""
    if case.task != "one-class":
        return 0.0
    return 0.01 * float(case.total**2 / len(K) * K.diagonal().mean() / 2)


def allowance(case: Case, K: np.ndarray, written: Written, P: float) -> float:
    """Return the tolerance of a number: a share of P, and the rounding of the sums in it."""
    beta = np.abs(written.beta)
    lower, upper = case.box
    parts = np.abs(K).astype(float) @ beta
    rounding = beta @ parts + np.maximum(-lower, upper) @ (
        parts + np.abs(case.targets) + abs(written.b)
    )
    return ACCURACY * abs(float(P)) + ROUNDING * rounding


def infeasible(case: Case, beta: np.ndarray, bounded: bool = True) -> Iterator[str]:
    """Yield what is wrong with the coefficients.

    bounded: whether they must be within their bounds; otherwise only their signs must be right.
    """
    lower, upper = case.box
    if not bounded:
        lower, upper = np.where(lower < 0, -np.inf, 0.0), np.where(upper > 0, np.inf, 0.0)
    beyond = np.maximum(lower - beta, beta - upper).max()
    lower, upper = case.box
    # The file of nu-svc has coefficients divided by rho, which rounds them.
    if beyond > (ROUNDING if case.task == "nu-svc" else 0):
        yield f"a coefficient is {float(beyond):.3g} beyond its bound"
    largest = float(max(np.abs(lower).max(), np.abs(upper).max()))
    off = float(beta.sum() - exact(case.total))
    if abs(off) > 1e-9 * largest + ROUNDING * float(np.abs(beta).sum()):
        yield f"the sum of coefficients is off by {off:.3g} at C = {largest:.3g}"
    if case.size and np.abs(beta).sum() > case.size * (1 + 1e-9):
        yield f"sum |beta| is {np.abs(beta).sum():.10g}, above {case.size:.10g}"


def counts(
    case: Case, K: np.ndarray, f: np.ndarray, beta: np.ndarray, metadata: dict[str, Any]
) -> Iterator[str]:
    """Check the number of violators, if the decision values are accurate enough."""
    if metadata["violators"] is None:
        return
    parts = (np.abs(K) @ np.abs(beta)).max() + np.abs(f).max() + np.abs(case.targets).max()
    rounding = ROUNDING * float(parts)
    rise, fall = slopes(case, f, beta)
    # Float32 sums may change f and b by a quarter of the tolerance each, and by more while the
    # largest violation is so much larger that this hides nothing.
    steepest = float(rise.max() - fall.min())
    changed = max(case.tolerance / 4, steepest / 100)
    violation, near = np.maximum(rise, -fall), 2 * changed + rounding
    sure = np.count_nonzero(violation > case.tolerance + near)
    possible = np.count_nonzero(violation > case.tolerance - near)
    if not sure <= int(metadata["violators"]) <= possible:
        yield f"{metadata['violators']} violators reported, {sure} to {possible} by the formulas"


def slopes(case: Case, f: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much the rise and the fall of D by each coefficient differ from b."""
    lower, upper = case.box
    z = case.targets - f
    below, above = z - case.epsilon, z + case.epsilon
    rise = np.where(beta < upper, np.where(beta < 0, above, below), -np.inf)
    return rise, np.where(beta > lower, np.where(beta > 0, below, above), np.inf)


def silence(
    case: Case, gap: float, metadata: dict[str, Any], events: list[dict[str, Any]]
) -> Iterator[str]:
    """Check that the required gap is reached, or that the run reports that it is not."""
    stopped = metadata["stopped"]
    if gap <= case.gap:
        return
    notices = " ".join(event["text"] for event in events if event["event"] == "notice")
    if stopped.startswith("gap <="):
        yield f"stopped: {stopped}, gap {gap:.6g}"
    elif not stopped.startswith(OTHER_ENDS) and "not reached" not in stopped + notices:
        yield f"gap {gap:.3g} where {case.gap:.3g} was asked for, and only said: {stopped}"


# ---- certificates of any problem ----------------------------------------------------------------

WIDE_SECONDS = 5.0
WIDE_TASKS = ("svc", "weighted", "svr", "one-class", "nu-svc", "nu-svr")
# Rows of a problem for which a better machine is sought, to judge D more sharply.
SEEK_ROWS = 100
# Words of refusals that tell the user what to do.
REFUSALS = ("scale the features", "finds no margin", "nu is too large", "rounding")


def wide_case(seed: int, number: int) -> Case:
    """Return a case of 20 to 3,000 rows whose numbers span what a user may ever give: C from 1e-8
    to 1e8, gamma from 1e-9 to 1e9, columns of 1e-6 to 1e6, constant columns, duplicates, weights.
    """
    chance = random.Random(f"{seed} wide {number}")
    return _wide(chance, round(10 ** (1.3 + 2.1772 * chance.random() ** 2)), WIDE_TASKS, (-8, 8))


def large_case(seed: int, number: int) -> Case:
    """Return a case of 20,000 to 200,000 rows in the plane, with C from 1e-3 to 1e6."""
    chance = random.Random(f"{seed} large {number}")
    n = round(10 ** chance.uniform(4.3, 5.3))
    case = _wide(chance, n, ("svc", "svr", "one-class"), (-3, 6))
    X = np.round(np.random.default_rng(number).uniform(0, 4, (n, 2)), 6)
    parity = np.ceil(X).sum(axis=1) % 2
    y = {"svc": np.where(parity, -1.0, 1.0), "svr": np.round(np.sin(3 * X[:, 0]) + parity, 3)}
    words = list(case.words)
    words[words.index("-t") + 1], words[words.index("-g") + 1] = "rbf", "5.0"
    words[words.index("--time-limit") + 1] = "60s"
    return replace(
        case, y=y.get(case.task, np.ones(n)), X=X, kernel="rbf", gamma=5.0, words=tuple(words),
        weights=None,
    )  # fmt: skip


def _wide(
    chance: random.Random, n: int, tasks: tuple[str, ...], powers: tuple[float, float]
) -> Case:
    """Return a case of n rows. powers: of 10, between which C lies."""
    rng, d = np.random.default_rng(chance.randrange(2**63)), chance.choice((1, 2, 3, 8))
    task = chance.choice(tasks)
    X = _shape(rng, n, d, chance)
    y = _labels(rng, X, task, chance)
    digits = chance.choice((0, 2, 3, 6, 17))
    X = np.round(X, digits)
    X = X * [10.0 ** chance.choice((0, 0, 0, chance.randint(-6, 6))) for _ in range(d)]
    if chance.random() < 0.3:
        X[:, rng.integers(d)] = float(10.0 ** chance.randint(-2, 6))
    # Products of decimal numbers have 15 digits again.
    X = np.array([float(f"{v:.15g}") for v in X.ravel()]).reshape(n, d)
    kernel = chance.choice(("rbf", "rbf", "rbf", "linear", "poly"))
    gamma, coef0, degree = _kernel(X, kernel, chance)
    if chance.random() < 0.3:
        gamma, degree = 10 ** chance.uniform(-9, 9), chance.choice((2, 3))
    C, share = 10 ** chance.uniform(*powers), chance.choice((0.5, 0.1, chance.uniform(0.01, 0.9)))
    if task in REGRESSIONS:
        y = np.round(y * 10.0 ** chance.choice((0, 0, chance.randint(-4, 4))), 6)
    epsilon = float(chance.choice((0.0, 0.1, 0.5)) * np.abs(y).mean())
    weights = _weights(X, chance) if chance.random() < 0.7 else None
    if weights is None and chance.random() < 0.3:  # equal rows with other weights
        weights = 10 ** rng.uniform(-1.5, 1.5, n)
    each = np.ones(n) if weights is None else weights
    if task == "nu-svc":
        share *= 1.9 * min(each[y > 0].sum(), each[y < 0].sum()) / each.sum()
    sides = (10 ** chance.uniform(-1, 1), 1.0) if task == "weighted" else (1.0, 1.0)
    gap, named = 10 ** chance.uniform(-4, -1), "svc" if task == "weighted" else task
    words = ["-q", "-s", named, "-t", kernel, "-g", gamma, "-r", coef0, "-d", degree, "-c", C]
    words += ["-p", epsilon, "-n", share, "--gap", gap, "--time-limit", f"{WIDE_SECONDS}s"]
    if task == "weighted":
        words += ["-w", "+1", sides[0]]
    return Case(
        y=y, X=X, algorithm=chance.choice(("randsvm", "randsvm", "osuna")), task=named,
        kernel=kernel, gamma=gamma, coef0=coef0, degree=degree, bounds=(C * sides[0], C),
        epsilon=epsilon, share=share, gap=gap, tolerance=1e-3,
        words=tuple(str(word) for word in words), weights=weights,
    )  # fmt: skip


def certified(case: Case, folder: Path) -> str:
    """Run a case and judge its certificate exactly; return how it ended, in a few words.

    Raises WrongError if the certificate is false.
    """
    data, model = case.save(folder / "data"), folder / "model"
    numbers = exact_numbers(case)
    return ended(case.command(data, model), data, model, case.task, case.gap, **numbers)


def ended(command: list[str], data: Path, model: Path, task: str, gap: float, **judged: Any) -> str:
    """Run a command of the training, and return how it ended. judged: arguments of the judge."""
    model.unlink(missing_ok=True)
    try:
        training.train.main(command, standalone_mode=False)
    except (ContentError, ParameterError) as error:
        if any(words in str(error) for words in REFUSALS):
            return "refused: rounding or no margin"
        raise
    except OutOfTimeError:
        return "no model in time"
    stated = oracle.trailer(model)
    verdict = exact_judge.judge(data, model, stated, task, better_machines, **judged)
    if verdict is None:
        return f"no certificate: {stated['stopped']}"
    if verdict.wrong:
        raise WrongError("; ".join(verdict.wrong))
    if verdict.doubt > 0.1:
        return "not judged: the judge itself is not sure"
    return "gap reached" if float(stated["gap"]) <= gap else "certified, gap not reached"


def exact_numbers(case: Case) -> dict[str, Any]:
    """Return the numbers of the problem as the command line writes them."""
    words = dict(zip(case.words, case.words[1:], strict=False))
    weights = {"+1": case.words[-1]} if "-w" in words else {}
    return {"C": words["-c"], "epsilon": words["-p"], "nu": words["-n"], "class_weights": weights}


def better_machines(
    problem: exact_judge.Problem, kernel: exact_judge.Kernel, rows: exact_judge.Rows
) -> list[exact_judge.Interval]:
    """Return P of a machine near the optimum, of a small problem."""
    if len(rows.X) > SEEK_ROWS or problem.size:
        return []
    K = exact_judge.kernel_values(kernel, rows.X)
    if not np.isfinite(K).all() or np.abs(K).max() > 1e15:
        return []
    y, lower, upper = (
        each.astype(np.float64) for each in (problem.y, problem.lower, problem.upper)
    )
    with np.errstate(all="ignore"):
        try:
            beta = qp.solution(K, y, lower, upper, float(problem.total), float(problem.epsilon))
        except np.linalg.LinAlgError:
            return []
    if not np.isfinite(beta).all():
        return []
    exact_beta = np.array([Fraction(float(v)) for v in beta])
    machine = exact_judge.machine_of_rows(kernel, rows, exact_beta)
    u = exact_judge.sums(kernel, rows.X, machine.Z, exact_beta, "double-double")
    b = exact_judge.best_offset(problem, u)
    found = exact_judge.objective(problem, kernel, rows, machine._replace(b=b), "double-double")
    return [found]
