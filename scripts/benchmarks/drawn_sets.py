"""Draw training sets with the properties of real data from a seed, and sensible options for them.

A population has columns of one kind and a target that depends on a few directions of them. A search
on a sample of it chooses C and gamma; a population that no machine learns is drawn again. Neither
depends on a time: a seed stands for the same sets on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.svm import SVC, SVR, OneClassSVM
from sklearn.utils.extmath import randomized_svd

from randsvm import files
from randsvm.arrays import FEATURES, CsrMatrix
from randsvm.data import svmlight

Array: TypeAlias = "np.ndarray[Any, Any]"
# Functions of a generator and: a number of rows; the columns of rows.
Columns: TypeAlias = Callable[[np.random.Generator, int], csr_matrix]
Target: TypeAlias = Callable[[np.random.Generator, csr_matrix], Array]

# Task, and whether the target is noisy.
TASKS = (
    *(("two classes", True), ("classes", True), ("svr", True), ("two classes", False)),
    *(("classes", False), ("svr", False), ("one-class", False), ("two classes", True)),
)
ROWS, COLUMNS, CLASSES = (4_000, 200_000), (2, 2_000), (3, 30)
MAX_ENTRIES = 2e7
# Operations of a training, about: rows x support vectors x (nonzeros of a row + OVERHEAD).
MAX_WORK, OVERHEAD = 3e10, 20

SAMPLE, TEST = 2_000, 500  # rows of the search, and those that score it
# Gammas: times 1 / the median square distance. The first pair tells whether anything is learned.
COSTS, GAMMAS = (4, 0.5, 32, 256), (1, 0.25, 4, 16)
LEARNED = 0.85  # most of the error of a constant that is left by a machine worth training
SUPPORT = (0.01, 0.9)  # least and most share of support vectors
MAIN = 10  # principal directions that a target depends on, at most
RARE = 0.002  # share of rows below which a class does not exist


@dataclass(frozen=True)
class Drawn:
    """A set. name: in words. options: LIBSVM's. y: a text a row."""

    name: str
    options: Sequence[str]
    X: csr_matrix
    y: Sequence[str]

    def write(self, path: Path) -> None:
        """Write the rows as an svmlight file."""
        X = CsrMatrix.from_scipy(self.X)
        with files.create_output(str(path)) as stream:
            svmlight.write(stream, self.y, X.with_columns(X.indices + 1, FEATURES))

    def half(self) -> Drawn:
        """Return the first half of the rows."""
        m = len(self.y) // 2
        return replace(self, X=self.X[:m], y=self.y[:m])


def draw(seed: int, number: int) -> Drawn:
    """Return set `number` of a seed. Every five have all kinds, and every eight all tasks."""
    order = np.random.default_rng(seed)
    kind = order.permutation(list(KINDS))[number % len(KINDS)]
    task, noisy = TASKS[order.permutation(len(TASKS))[number % len(TASKS)]]
    for attempt in count():
        rng = np.random.default_rng([seed, number, attempt])
        columns = KINDS[kind](rng)
        target = drawn_target(rng, task, noisy, columns(rng, SAMPLE))
        X = columns(rng, SAMPLE)
        if found := search(rng, task, X, target(rng, X)):
            options, share = found
            break
    width = X.nnz / SAMPLE
    most = min(ROWS[1], MAX_ENTRIES / width, np.sqrt(MAX_WORK / (share * (width + OVERHEAD))))
    X = columns(rng, max(ROWS[0], int(log_uniform(rng, ROWS[0], max(ROWS[0], most)))))
    X.sort_indices()
    y = target(rng, X)
    spelled = "{:.5g}" if task == "svr" else "{:g}"
    name = f"{kind}, {len(set(y))} classes" if "classes" in task else f"{kind}, {task}"
    return Drawn(name, options, X, [spelled.format(label) for label in y.tolist()])


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def whole(rng: np.random.Generator, low: float, high: float) -> int:
    """Draw a whole number whose logarithm is about uniform."""
    return round(log_uniform(rng, low, high))


# ---- columns ----------------------------------------------------------------------------------


def dense_columns(rng: np.random.Generator) -> Columns:
    """Clouds in a few dimensions, mapped to many columns: whole numbers, pixels or decimals."""
    d = whole(rng, *COLUMNS)
    hidden = clouds(rng, min(d, whole(rng, 2, 20)))
    k = hidden(rng, 1).shape[1]
    mapping, noise = rng.normal(size=(k, d)) / np.sqrt(k), log_uniform(rng, 0.05, 0.5)
    decimals, pixels = rng.choice([0, 2, 6]), rng.random() < 1 / 4
    offset = rng.normal(size=d)

    def columns(rng: np.random.Generator, m: int) -> csr_matrix:
        X = hidden(rng, m) @ mapping + noise * rng.normal(size=(m, d)) + offset
        if pixels:
            X = np.clip(X, 0, None)
        return csr_matrix(np.round(X * (5 if decimals == 0 else 1), decimals), dtype=np.float32)

    return columns


def mixed_columns(rng: np.random.Generator) -> Columns:
    """Columns of different scales: normal, with a long tail, of a few values, nearly constant."""
    plain = dense_columns(rng)
    d = plain(rng, 1).shape[1]
    form, scale = rng.integers(4, size=d), 10 ** rng.uniform(-1, 1, d)

    def columns(rng: np.random.Generator, m: int) -> csr_matrix:
        X = plain(rng, m).toarray()
        X = np.select(
            [form == 1, form == 2, form == 3],
            [np.exp(np.clip(X, -4, 4)) / 4, np.round(X), (X > 2.5) * 1.0],
            X,
        )
        return csr_matrix(X * scale, dtype=np.float32)

    return columns


def one_hot_columns(rng: np.random.Generator) -> Columns:
    """A few numbers in [0, 1] and blocks of one-hot columns that go with them.

    In a region of the numbers few values of a block occur: its other columns are constant.
    """
    d, blocks = whole(rng, 1, 12), [whole(rng, 2, 100) for _ in range(whole(rng, 1, 8))]
    hidden, sharpness = clouds(rng, d), log_uniform(rng, 0.5, 8)
    effects = [sharpness * rng.normal(size=(d, size)) for size in blocks]
    popularity = [np.log(1 / np.arange(1, size + 1)) for size in blocks]

    def columns(rng: np.random.Generator, m: int) -> csr_matrix:
        Z = hidden(rng, m)
        parts = [csr_matrix(np.round(np.clip(Z / 6 + 0.5, 0, 1), 4))]
        for effect, share in zip(effects, popularity, strict=True):
            scores = Z @ effect + share + rng.gumbel(size=(m, len(share)))
            value = scores.argmax(axis=1)
            one = (np.ones(m), value, np.arange(m + 1))
            parts.append(csr_matrix(one, shape=(m, len(share))))
        return hstack(parts, format="csr", dtype=np.float32)

    return columns


def binary_columns(rng: np.random.Generator) -> Columns:
    """Sparse columns of ones, some frequent and most rare, that go with a topic of the row."""
    d = whole(rng, 50, COLUMNS[1])
    words = topics(rng, d, min(whole(rng, 5, 50), d // 3))

    def columns(rng: np.random.Generator, m: int) -> csr_matrix:
        X = words(rng, m)
        X.data[:] = 1
        return X

    return columns


def text_columns(rng: np.random.Generator) -> Columns:
    """Words by Zipf's law, weighted as tf-idf is, in rows of length 1."""
    d = whole(rng, 500, COLUMNS[1])
    words = topics(rng, d, whole(rng, 10, 60))
    weights = np.log(1 + SAMPLE / (1 + words(rng, SAMPLE).getnnz(axis=0)))

    def columns(rng: np.random.Generator, m: int) -> csr_matrix:
        X = words(rng, m)
        X.data[:] = (1 + np.log(X.data)) * weights[X.indices]
        rows = np.repeat(np.arange(m), np.diff(X.indptr))
        X.data /= np.sqrt(np.bincount(rows, X.data.astype(float) ** 2, m))[rows]
        return X

    return columns


KINDS: dict[str, Callable[[np.random.Generator], Columns]] = {
    "dense": dense_columns,
    "mixed": mixed_columns,
    "one-hot": one_hot_columns,
    "binary": binary_columns,
    "text": text_columns,
}


def clouds(rng: np.random.Generator, k: int) -> Callable[[np.random.Generator, int], Array]:
    """Return a function that draws points of k dimensions from normal clouds of unequal size."""
    number = whole(rng, 1, 20)
    centres, widths = rng.normal(size=(number, k)) * 1.5, rng.uniform(0.3, 1.2, number)
    shares = rng.dirichlet(np.ones(number))

    def points(rng: np.random.Generator, m: int) -> Array:
        cloud = rng.choice(number, m, p=shares)
        return centres[cloud] + widths[cloud, None] * rng.normal(size=(m, k))

    return points


def topics(rng: np.random.Generator, d: int, length: int) -> Columns:
    """Return a function that draws counts of d words, about `length` a row, half of a topic."""
    number, shape = whole(rng, 2, 40), rng.uniform(0.7, 1.2)
    law = 1 / np.arange(1, d + 1) ** shape
    law /= law.sum()
    ranks = np.array([np.arange(d), *(rng.permutation(d) for _ in range(number))])

    def counts(rng: np.random.Generator, m: int) -> csr_matrix:
        lengths = 1 + rng.poisson(length * rng.gamma(3, 1 / 3, m))
        rows = np.repeat(np.arange(m), lengths)
        topic = rng.integers(1, number + 1, m)[rows] * rng.integers(0, 2, len(rows))
        words = ranks[topic, rng.choice(d, len(rows), p=law)]
        entries, times = np.unique(rows * d + words, return_counts=True)
        rows, words = np.divmod(entries, d)
        indptr = np.searchsorted(rows, np.arange(m + 1))
        return csr_matrix((times.astype(np.float32), words, indptr), shape=(m, d))

    return counts


# ---- targets ----------------------------------------------------------------------------------


def drawn_target(rng: np.random.Generator, task: str, noisy: bool, sample: csr_matrix) -> Target:
    """Return a function that draws labels: waves along a few directions, and noise.

    sample: rows whose principal directions these are mixed of, so that machines can learn them.
    """
    outputs = {"two classes": 2, "classes": whole(rng, *CLASSES)}.get(task, 1)
    k = whole(rng, 2, 6)
    main = min(sample.shape[1], MAIN)
    _, lengths, axes = randomized_svd(sample, main, random_state=0)
    directions = (axes.T / np.sqrt(lengths + 1e-9)) @ rng.normal(size=(main, k))
    projected = sample @ directions
    mean, deviation = projected.mean(axis=0), projected.std(axis=0) + 1e-9
    waves, roughness = 30, log_uniform(rng, 0.3, 1.5)
    frequencies = roughness * rng.normal(size=(k, waves)) / np.sqrt(k)
    phases, weights = rng.uniform(0, 2 * np.pi, waves), rng.normal(size=(waves, outputs))
    noise = log_uniform(rng, 0.2, 1) if noisy else log_uniform(rng, 0.01, 0.05) * (task == "svr")
    offsets = rng.normal(size=outputs) * rng.uniform(0, 1) * (task != "svr")

    def wave(X: csr_matrix) -> Array:
        Z = (X @ directions - mean) / deviation
        return np.cos(Z @ frequencies + phases) @ weights

    usual = wave(sample)
    centre, spread = usual.mean(axis=0), usual.std(axis=0) + 1e-9
    first = ((usual - centre) / spread + offsets).argmax(axis=1)
    offsets[np.bincount(first, minlength=outputs) < RARE * len(first)] = -np.inf

    def target(rng: np.random.Generator, X: csr_matrix) -> Array:
        if task == "one-class":
            return np.ones(X.shape[0])
        found = (wave(X) - centre) / spread + offsets
        found += noise * rng.normal(size=found.shape)
        return found[:, 0] if task == "svr" else 1.0 + found.argmax(axis=1)

    return target


# ---- options ----------------------------------------------------------------------------------


def search(
    rng: np.random.Generator, task: str, X: csr_matrix, y: Array
) -> tuple[list[str], float] | None:
    """Return options for the population of some rows, and the share of support vectors.

    None: no machine learns the target, or all rows are support vectors.
    """
    square = euclidean_distances(X, squared=True)
    unit = 1 / max(float(np.median(square[np.triu_indices(len(square), 1)])), 1e-9)
    train, test = slice(TEST, None), slice(TEST)
    kernels = {factor: np.exp(-factor * unit * square[:, train]) for factor in GAMMAS}
    if task == "one-class":
        nu, factor = log_uniform(rng, 0.01, 0.2), rng.choice(GAMMAS)
        machine = OneClassSVM(kernel="precomputed", nu=nu).fit(kernels[factor][train])
        return accepted(machine, f"-s one-class -n {nu:.3g} -g {factor * unit:.4g}", 0.0)
    if task == "svr":
        width = rng.choice([0.05, 0.1, 0.3])
        new, options = partial(SVR, epsilon=width), f"-s svr -p {width:g} "
        constant = float(np.var(y[test]))
    else:
        new, options = SVC, ""
        values, times = np.unique(y[train], return_counts=True)
        constant = float(np.mean(y[test] != values[times.argmax()]))
        if len(values) < 2:
            return None
    best, machine, words = np.inf, None, ""
    for C, factor in product(COSTS, GAMMAS):
        fitted = new(kernel="precomputed", C=C).fit(kernels[factor][train], y[train])
        guess = fitted.predict(kernels[factor][test])
        error = np.mean((guess - y[test]) ** 2 if task == "svr" else guess != y[test])
        if not words and error > constant:
            return None
        if error < best:
            best, machine, words = error, fitted, f"{options}-c {C:g} -g {factor * unit:.4g}"
    return accepted(machine, words, best / max(constant, 1e-9))


def accepted(machine: Any, words: str, left: float) -> tuple[list[str], float] | None:
    """Return what `search` does. left: share of the error of a constant."""
    share = len(machine.support_) / (SAMPLE - TEST)
    return (words.split(), share) if left <= LEARNED and SUPPORT[0] <= share <= SUPPORT[1] else None
