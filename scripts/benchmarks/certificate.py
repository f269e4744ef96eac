"""What a kernel machine's answer is worth: P, D, the gap between them, accuracy on other rows.

Reads a model file in LIBSVM's format, ours or a peer's, and knows nothing of randsvm: the rows are
scikit-learn's reading, the kernel values numpy's in float64. Two classes, several one against one,
a regression or novelty detection, of the rbf or the linear kernel; -c, -p, -n, -w as in LIBSVM.

    certificate.py TRAIN MODEL -c 1 [-p 0.1] [-n 0.5] [-w LABEL WEIGHT] [--test FILE]

P = 1/2 |w|^2 + sum of losses, D the dual at the model's own coefficients; of several classes both
are sums over the pairs, `gap` the largest of a pair. D bounds the optimum only where the
coefficients are feasible: `off` is what the box and the sum are missed by, beside D, and above
FEASIBLE the gap is nan. What would cost more than --most kernel values is not evaluated.
"""

from __future__ import annotations

import os

# One thread each for BLAS: blocks are worked on by a thread per core.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import argparse
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from sklearn.datasets import load_svmlight_file, load_svmlight_files

BLOCK = 2**22  # kernel values at a time, of each thread
DENSE = 0.2  # share of values above which rows are arrays
FEASIBLE = 1e-4
PROJECTIONS, SAME = 4, 1e-4


class Model(NamedTuple):
    """B (m, machines): coefficients y alpha of the support vectors Z (m, d); f = u - rho.

    pairs: the two places in `labels` that a machine tells apart, the first at f > 0; for a
    regression and novelty detection there is one machine and no label.
    """

    task: str
    gamma: float | None
    labels: list[float]
    pairs: list[tuple[int, int]]
    rho: np.ndarray
    B: np.ndarray
    Z: sparse.csr_matrix


class Worth(NamedTuple):
    """P and D of a machine, and what its coefficients miss the box and the sum by."""

    P: float
    D: float
    off: float

    @property
    def gap(self) -> float:
        largest = max(abs(self.P), abs(self.D))
        if self.off > FEASIBLE * largest:
            return float("nan")
        return (self.P - self.D) / largest if largest else 0.0


def read_model(path: str, features: int) -> Model:
    """A model file in LIBSVM's format; what follows in lines of comments is left out."""
    head, _, rows = Path(path).read_text().split("\n# ")[0].partition("\nSV\n")
    header = {line.split()[0]: line.split()[1:] for line in head.splitlines()}
    labels = [float(word) for word in header.get("label", [])]
    columns = max(1, len(labels) - 1)
    split = [line.split(" ", columns) for line in rows.splitlines()]
    coefficients = np.array([[float(word) for word in words[:columns]] for words in split])
    text = "\n".join(f"0 {words[columns]}" for words in split)
    Z, _ = load_svmlight_file(io.BytesIO(text.encode()), n_features=features, zero_based=False)
    pairs = list(combinations(range(len(labels)), 2)) or [(0, 0)]
    B = coefficients
    if len(labels) > 1:
        # LIBSVM's layout: a support vector of class i has its coefficient against class j > i in
        # column j - 1, against j < i in column j.
        B = np.zeros((len(split), len(pairs)))
        own = np.repeat(np.arange(len(labels)), [int(word) for word in header["nr_sv"]])
        for machine, (i, j) in enumerate(pairs):
            B[own == i, machine] = coefficients[own == i, j - 1]
            B[own == j, machine] = coefficients[own == j, i]
    rho = np.array([float(word) for word in header["rho"]])
    kind = header["kernel_type"][0]
    if kind not in ("rbf", "linear"):
        raise SystemExit(f"{path}: expected an rbf or linear kernel, found {kind}")
    gamma = float(header["gamma"][0]) if kind == "rbf" else None
    return Model(header["svm_type"][0], gamma, labels, pairs, rho, B, Z)


def sums(X: sparse.csr_matrix, model: Model) -> np.ndarray:
    """u = sum_j beta_j K(x, z_j) of each row and machine, (n, machines)."""
    if model.gamma is None:
        return X @ (model.Z.T @ model.B)
    Z, gamma, centre = model.Z, model.gamma, None
    if Z.nnz > DENSE * Z.shape[0] * Z.shape[1]:
        # The kernel of centred rows is the same, and its rounding is smaller.
        Z = Z.toarray()
        centre = Z.mean(axis=0)
        Z -= centre
    norms = np.asarray(Z.multiply(Z).sum(axis=1) if centre is None else (Z**2).sum(axis=1)).ravel()

    def block(start: int) -> np.ndarray:
        x = X[start : start + step].toarray()
        x = x if centre is None else x - centre
        exponents = np.asarray(Z @ x.T)
        exponents *= 2
        exponents -= norms[:, None]
        exponents -= (x**2).sum(axis=1)
        exponents *= gamma
        np.minimum(exponents, 0, out=exponents)
        np.exp(exponents, out=exponents)
        return exponents.T @ model.B

    step = max(1, BLOCK // max(len(norms), 1))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.concatenate(list(pool.map(block, range(0, X.shape[0], step))))


def classification(
    model: Model,
    y: np.ndarray,
    u: np.ndarray,
    norms: np.ndarray,
    C: float,
    weights: dict[float, float],
) -> Iterator[Worth]:
    """The worth of each machine of C-SVC, on the rows of its two classes."""
    for machine, (i, j) in enumerate(model.pairs):
        beta = model.B[:, machine]
        first, other = (model.labels[place] for place in (i, j))
        bound = {1: C * weights.get(first, 1), -1: C * weights.get(other, 1)}
        rows = (y == first) | (y == other)
        sign = np.where(y[rows] == first, 1, -1)
        C_i = np.where(sign > 0, bound[1], bound[-1])
        loss = C_i @ np.maximum(0, 1 - sign * (u[rows, machine] - model.rho[machine]))
        beyond = max(0, beta.max(initial=0) - bound[1], -beta.min(initial=0) - bound[-1])
        half = norms[machine] / 2
        yield Worth(half + loss, np.abs(beta).sum() - half, beyond + abs(beta.sum()))


def regression(
    model: Model,
    X: sparse.csr_matrix,
    y: np.ndarray,
    u: np.ndarray,
    norms: np.ndarray,
    C: float,
    epsilon: float,
) -> Iterator[Worth]:
    beta, half = model.B[:, 0], norms[0] / 2
    loss = C * np.maximum(0, np.abs(y - u[:, 0] + model.rho[0]) - epsilon).sum()
    D = linear_term(X, y, model.Z, beta) - epsilon * np.abs(beta).sum() - half
    yield Worth(half + loss, D, max(0, np.abs(beta).max() - C) + abs(beta.sum()))


def linear_term(
    X: sparse.csr_matrix, y: np.ndarray, Z: sparse.csr_matrix, beta: np.ndarray
) -> float:
    """sum y beta. The target of a support vector is that of its row; among equal rows the largest
    targets go to the largest coefficients, which is feasible like any other choice.

    Rows are found by a few random projections, as a program may write 8 digits of a value.
    """
    directions = np.random.default_rng(0).normal(size=(X.shape[1], PROJECTIONS))
    rows, group = np.unique(X @ directions, axis=0, return_inverse=True)
    away, nearest = cKDTree(rows).query(Z @ directions)
    if away.max(initial=0) > SAME:
        raise SystemExit("a support vector is no row of the training file")
    targets: list[list[float]] = [[] for _ in rows]
    own: list[list[float]] = [[] for _ in rows]
    for place, target in zip(group.ravel(), y, strict=True):
        targets[place].append(target)
    for place, value in zip(nearest, beta, strict=True):
        own[place].append(value)
    return sum(
        float(np.sort(theirs) @ np.sort(values + [0] * (len(theirs) - len(values))))
        for theirs, values in zip(targets, own, strict=True)
        if values
    )


def novelty(model: Model, u: np.ndarray, norms: np.ndarray, nu: float) -> Iterator[Worth]:
    beta, half, total = model.B[:, 0], norms[0] / 2, nu * len(u)
    P = half - total * model.rho[0] + np.maximum(0, model.rho[0] - u[:, 0]).sum()
    beyond = max(0, beta.max() - 1, -beta.min())
    yield Worth(P, -half, beyond + abs(beta.sum() - total))


def on_others(model: Model, u: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """What the predictions of other rows are worth: votes of all pairs, equal ones to the first."""
    f = u - model.rho
    if model.task == "epsilon_svr":
        return {"mse": float(((y - f[:, 0]) ** 2).mean())}
    if model.task == "one_class":
        return {"inliers": 100 * float((f > 0).mean())}
    votes = np.zeros((len(y), len(model.labels)))
    for machine, (i, j) in enumerate(model.pairs):
        votes[:, i] += f[:, machine] > 0
        votes[:, j] += f[:, machine] <= 0
    return {"accuracy": 100 * float((np.array(model.labels)[votes.argmax(axis=1)] == y).mean())}


def evaluate(given: argparse.Namespace) -> dict[str, float]:
    """Everything that is printed: name -> number."""
    paths = [given.train, *([given.test] if given.test else [])]
    X, y, *others = load_svmlight_files(paths, zero_based=False)
    model = read_model(given.model, X.shape[1])
    m = model.Z.shape[0]
    most = np.inf if model.gamma is None else given.most / max(m, 1)
    found = {"SV": m}
    if X.shape[0] + m <= most:
        u = sums(X, model)
        norms = (model.B * sums(model.Z, model)).sum(axis=0)
        weights = {float(label): float(weight) for label, weight in given.w}
        if model.task == "c_svc":
            worth = list(classification(model, y, u, norms, given.c, weights))
        elif model.task == "epsilon_svr":
            worth = list(regression(model, X, y, u, norms, given.c, given.p))
        else:
            worth = list(novelty(model, u, norms, given.n))
        found |= {"primal": sum(each.P for each in worth), "dual": sum(each.D for each in worth)}
        gaps = [each.gap for each in worth]
        found |= {"gap": float(np.max(gaps)), "off": max(each.off for each in worth)}
    if others and others[0].shape[0] <= most:
        found |= on_others(model, sums(others[0], model), others[1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("train")
    parser.add_argument("model")
    parser.add_argument("-c", type=float, default=1.0)
    parser.add_argument("-p", type=float, default=0.1)
    parser.add_argument("-n", type=float, default=0.5)
    parser.add_argument("-w", nargs=2, action="append", default=[], metavar=("LABEL", "WEIGHT"))
    parser.add_argument("--test")
    parser.add_argument("--most", type=float, default=7e9)
    for name, number in evaluate(parser.parse_args()).items():
        print(name, number)


if __name__ == "__main__":
    main()
